//! MUMmer 3: finds the matches of a query in a reference, in one walk through the reference's suffix tree
//! (`mummer -mumreference`, `findmumcandidates`).
//!
//! ```c
//! lptr = scanprefixfromnode(root, query);                  // as far down as it matches
//! for (suffix = query; lptr != NULL; suffix++) {
//!   if (loc.length >= least && unique(loc) && leftmaximal(loc)) report(loc, suffix);
//!   linkloc(&loc);                                         // suffix link, then down again
//!   lptr = scanprefix(&loc, lptr);                         // and further, letter by letter
//! }
//! ```
//!
//! For each letter of the query the program chases a suffix link, descends along known letters, and
//! compares. Each step is a chain of dependent loads: a node or leaf, its brothers until the letter matches,
//! and the text of the node's string. `tree.rs` has the tree's layout, `code.rs` the instructions.

mod code;
mod sort;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use pagewalk_stream::{Error, Facts, Program};
use pagewalk_units::{Part, text};

use self::code::{Addresses, Match, Matcher};
use self::text::Make;
use self::tree::Tree;
use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::host;
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::Code;
use crate::size::format_size;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(mummer(values, |_| ())?) as Box<dyn Program>),
};

/// Words of the tree per letter of a generated text, measured over texts of 0.1 to 16 million letters: 1 of
/// leaf, 2.775 of inner nodes (0.63 per letter, a third of them small).
const WORDS_PER_LETTER: f64 = 3.775;
/// Approximate host memory per letter during construction.
const HOST_BYTES: u64 = 30;
/// Maximum letters of a sequence.
const MOST: u64 = 1 << 28;

/// Bytes per letter of a generated text, with its share of the tree and of the query.
fn bytes_per_letter(word: u64) -> f64 {
    2.0 + WORDS_PER_LETTER * word as f64
}

const INFO: WorkloadInfo = WorkloadInfo {
    name: "mummer",
    group: "science",
    description: "Matches a query sequence against the suffix tree of a reference, letter by letter.",
    stresses: "Latency: chains of dependent reads of a tree and a text far larger than TLBs and caches, about three for each letter.",
    source: "S. Kurtz et al., Versatile and open software for comparing large genomes, Genome Biology 2004; mummer 3, src/kurtz/streesrc and mm3src/findmumcand.c",
    default_size: 128 << 20,
    size_range: "64KiB to 4GiB, with word=8 to 8GiB (host memory is about as much, or twice)",
    max_threads: 1,
    params: &[
        ParamInfo {
            name: "reference",
            unit: "",
            default: "generated",
            range: "generated, or a FASTA or FASTQ file, plain or gzip-compressed",
            meaning: "Text of the tree; the size sets the length of a generated one.",
        },
        ParamInfo {
            name: "query",
            unit: "",
            default: "generated, as long as the reference",
            range: "generated, or a FASTA or FASTQ file, plain or gzip-compressed",
            meaning: "Sequence that is matched against the tree.",
        },
        ParamInfo {
            name: "least",
            unit: "bases",
            default: "20",
            range: "1 to 1000000",
            meaning: "Minimum length of a reported match (-l).",
        },
        ParamInfo {
            name: "word",
            unit: "bytes",
            default: "4",
            range: "4 or 8",
            meaning: "Size of a number in the tree: 4 as in the builds of MUMmer's Makefile and Debian, 8 with -DSIXTYFOURBITS, which longer texts need.",
        },
        ParamInfo {
            name: "repeats",
            unit: "bases in a thousand",
            default: "500",
            range: "0 to 1000",
            meaning: "Share of generated sequences that consists of copies of 64 repeated elements; in a human genome it is about half.",
        },
        ParamInfo {
            name: "divergence",
            unit: "bases in a thousand",
            default: "150",
            range: "0 to 500",
            meaning: "Bases in which a copy differs from its element.",
        },
        ParamInfo {
            name: "homology",
            unit: "bases in a thousand",
            default: "200",
            range: "0 to 1000",
            meaning: "Share of a generated query that is taken from the reference.",
        },
        ParamInfo {
            name: "mutation",
            unit: "bases in a thousand",
            default: "20",
            range: "0 to 500",
            meaning: "Bases that differ in a stretch taken from the reference.",
        },
        POPULATE,
        REGION,
    ],
};

fn mummer(values: &Values<'_>, found: impl FnMut(Match) + Send + 'static) -> Result<Code, Error> {
    let path = |param: &str| values.text(param).filter(|path| *path != "generated");
    let (reference, query) = (path("reference"), path("query"));
    if let Some(bytes) = values.options.size_bytes.filter(|_| reference.is_some()) {
        return Err(values.refuse_size(bytes, "given together with a reference, which has its own"));
    }
    let size = values.size();
    let word = match values.choice("word", &["4", "8"], "4")? {
        "8" => 8,
        _ => 4,
    };
    let generated = (size as f64 / bytes_per_letter(word)) as u64;
    if reference.is_none() && !(2000..=MOST).contains(&generated) {
        let why = match word {
            4 if generated > MOST => text![
                "too large for words of 4 bytes, see ",
                Part::param("word", "8")
            ],
            _ => text!["out of range"],
        };
        return Err(values.refuse_size(size, why));
    }
    let make = Make {
        repeats: values.number_in("repeats", 0..=1000, 500)?,
        divergence: values.number_in("divergence", 0..=500, 150)?,
        homology: values.number_in("homology", 0..=1000, 200)?,
        mutation: values.number_in("mutation", 0..=500, 20)?,
    };
    for (param, unused, why) in [
        ("homology", query.is_some(), "the query is from a file"),
        ("mutation", query.is_some(), "the query is from a file"),
        (
            "repeats",
            reference.is_some() && query.is_some(),
            "both sequences come from files",
        ),
        (
            "divergence",
            reference.is_some() && query.is_some(),
            "both sequences come from files",
        ),
    ] {
        if unused && values.text(param).is_some() {
            return Err(values.refuse(param, why));
        }
    }
    let least = values.number_in("least", 1..=1_000_000, 20)? as u32;
    let start = values.start()?;
    let seed = values.options.seed;
    let read = |param: &str, path: Option<&str>| {
        let Some(path) = path else { return Ok(None) };
        let (bases, _) = crate::kmer::sequences(path)?;
        if bases.len() as u64 > MOST {
            let why = format!("{} bases, more than {MOST}", bases.len());
            return Err(values.refuse(param, why));
        }
        Ok(Some(bases))
    };
    let (reference, query) = (read("reference", reference)?, read("query", query)?);
    let letters = reference.as_ref().map_or(generated, |r| r.len() as u64);
    host::fits(
        HOST_BYTES * letters,
        &format!("mummer: the tree of {letters} bases"),
    )?;
    let facts = Facts {
        name: match &reference {
            Some(r) => format!("mummer, a reference of {} bases", r.len()),
            None => format!("mummer --size {}", format_size(size)),
        },
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let mut heap = Heap::new(Layout::new());
    let stack = heap.stack(0);
    let mut code = Code::new(facts, start);
    let mut found = found;
    code.thread(stack, move |mut t| async move {
        // The tree is built when the program runs, not when its facts are requested.
        let mut rng = pagewalk_units::rng(seed, "workload.mummer");
        let elements = Make::elements(&mut rng);
        let reference =
            reference.unwrap_or_else(|| make.sequence(&mut rng, &elements, &[], letters as usize));
        let query = query
            .unwrap_or_else(|| make.sequence(&mut rng, &elements, &reference, reference.len()));
        let tree = Tree::new(reference);
        t.enter().await;
        let places = Addresses {
            text: heap.malloc(tree.text.len() as u64),
            query: heap.malloc(query.len() as u64),
            leaves: heap.malloc(word * tree.text.len() as u64),
            nodes: heap.malloc(word * tree.words),
            root_children: heap.malloc(word * 257),
            word,
        };
        heap.emit_pending(&mut t).await;
        t.begin(1).await;
        let matcher = Matcher {
            tree: &tree,
            places,
            query: &query,
            least,
        };
        matcher.run(&mut t, &mut found).await;
        t.finish(1).await;
    });
    Ok(code)
}
