//! Compares matches with brute force, and the tree with the program's loads.

use std::sync::{Arc, Mutex};

use pagewalk_stream::{Batch, End, Op, OpClass, Program as _};
use proptest::prelude::*;

use super::code::Match;
use super::text::Make;
use super::tree::Tree;
use super::{INFO, bytes_per_letter, mummer};
use crate::entry::{Options, Values};

fn run(params: &[(&str, &str)], size: Option<u64>) -> (Vec<Op>, Vec<Match>) {
    let options = Options {
        size_bytes: size,
        params: params
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        ..Options::default()
    };
    let matches = Arc::new(Mutex::new(Vec::new()));
    let sink = matches.clone();
    let values = Values::new(&INFO, &options);
    let mut code = mummer(&values, move |m| sink.lock().unwrap().push(m)).unwrap();
    let (mut ops, mut batch) = (Vec::new(), Batch::new());
    loop {
        let end = code.fill(0, &mut batch).unwrap();
        ops.extend_from_slice(&batch.ops);
        if end == End::Exit {
            let matches = matches.lock().unwrap().clone();
            return (ops, matches);
        }
    }
}

/// Longest match at each position of the query, if it is unique in the text, not extensible to the left, and
/// long enough.
fn brute_force(text: &[u8], query: &[u8], least: usize) -> Vec<Match> {
    let mut matches = Vec::new();
    for at in 0..query.len() {
        let common = |from: usize| {
            let both = text[from..].iter().zip(&query[at..]);
            both.take_while(|(a, b)| a == b).count()
        };
        let lengths: Vec<usize> = (0..text.len()).map(common).collect();
        let longest = lengths.iter().copied().max().unwrap();
        let places: Vec<usize> = (0..text.len()).filter(|i| lengths[*i] == longest).collect();
        let [place] = places[..] else { continue };
        let left = at == 0 || place == 0 || text[place - 1] != query[at - 1];
        if longest >= least && left {
            matches.push(Match {
                text: place as u32,
                query: at as u32,
                length: longest as u32,
            });
        }
    }
    matches
}

fn fasta(bases: &[u8]) -> tempfile::NamedTempFile {
    let text: String = bases
        .iter()
        .map(|b| ['A', 'C', 'G', 'T'][usize::from(*b)])
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!(">x\n{text}\n")).unwrap();
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn matches_are_those_of_brute_force(
        a in proptest::collection::vec(0u8..4, 1..60),
        b in proptest::collection::vec(0u8..2, 0..40),
        cut in 0usize..40,
        least in 1usize..6,
    ) {
        let text = [&a[..], &b, &a[..a.len() / 2]].concat();
        let query = [&b[..b.len() / 2], &a[cut.min(a.len() - 1)..], &[3, 0, 3], &b].concat();
        let (reference, second) = (fasta(&text), fasta(&query));
        let least_text = least.to_string();
        let params = [
            ("reference", reference.path().to_str().unwrap()),
            ("query", second.path().to_str().unwrap()),
            ("least", &least_text),
        ];
        let (_, found) = run(&params, None);
        prop_assert_eq!(found, brute_force(&text, &query, least));
    }
}

#[test]
fn generated_sequences_match_as_brute_force_says() {
    let (ops, found) = run(&[("homology", "300"), ("least", "12")], Some(80 << 10));
    let mut rng = pagewalk_units::rng(0, "workload.mummer");
    let make = Make {
        repeats: 500,
        divergence: 150,
        homology: 300,
        mutation: 20,
    };
    let elements = Make::elements(&mut rng);
    let letters = ((80 << 10) as f64 / bytes_per_letter(4)) as usize;
    let text = make.sequence(&mut rng, &elements, &[], letters);
    let query = make.sequence(&mut rng, &elements, &text, letters);
    let expected = brute_force(&text, &query, 12);
    assert!(expected.len() > 10, "{}", expected.len());
    assert_eq!(found, expected);
    // Each letter needs about three dependent reads of tree and text.
    let loads = ops.iter().filter(|o| o.kind == OpClass::Load).count();
    assert!(
        loads > 20 * query.len() && loads < 300 * query.len(),
        "{loads}"
    );
}

/// Instructions of Debian's binary per letter of a query that is the reference with two letters in a hundred
/// changed: 322, counted by callgrind, with the operands and branches of its instructions.
#[test]
fn a_letter_takes_the_instructions_of_the_binary() {
    let mut rng = pagewalk_units::rng(5, "test");
    let make = Make {
        repeats: 0,
        divergence: 0,
        homology: 0,
        mutation: 0,
    };
    let letters = 30_000;
    let text = make.sequence(&mut rng, &[], &[], letters);
    // Two letters of a hundred are redrawn. One redraw in four leaves the letter unchanged.
    let mut changed = |base: &u8| match rng.next_u64() % 1000 {
        0..20 => (rng.next_u64() & 3) as u8,
        _ => *base,
    };
    let query: Vec<u8> = text.iter().map(&mut changed).collect();
    let (reference, second) = (fasta(&text), fasta(&query));
    for word in ["4", "8"] {
        let params = [
            ("reference", reference.path().to_str().unwrap()),
            ("query", second.path().to_str().unwrap()),
            ("least", "1000"),
            ("word", word),
        ];
        let (ops, _) = run(&params, None);
        let each = |n: u64| n as f64 / letters as f64;
        let count = |kind| each(ops.iter().filter(|o| o.kind == kind).count() as u64);
        let instructions = each(ops.iter().map(|o| u64::from(o.insns)).sum());
        for (name, own, real) in [
            ("instructions", instructions, 322.0),
            ("loads", count(OpClass::Load), 79.6),
            ("stores", count(OpClass::Store), 49.2),
            ("branches", count(OpClass::Branch), 61.1),
        ] {
            assert!((own / real - 1.0).abs() < 0.02, "{name}: {own}, not {real}");
        }
    }
}

/// The tree's words have 4 bytes, or 8 on request. Its arrays scale accordingly.
#[test]
fn words_of_the_tree_are_as_wide_as_asked_for() {
    let text: Vec<u8> = (0..4000u32).map(|i| (i * i % 251 % 4) as u8).collect();
    let file = fasta(&text);
    let path = file.path().to_str().unwrap();
    let spread = |word| {
        let params = [("reference", path), ("query", path), ("word", word)];
        let (ops, found) = run(&params, None);
        let sizes = ops
            .iter()
            .filter(|o| o.kind == OpClass::Load && o.size == 8);
        (sizes.count() as f64 / ops.len() as f64, found)
    };
    let (narrow, found) = spread("4");
    let (wide, same) = spread("8");
    assert_eq!(found, same);
    assert!(
        wide > 1.2 * narrow,
        "{wide} and {narrow} of the ops read 8 bytes"
    );
}

/// The measured size of the tree, which determines the length of generated texts.
#[test]
fn bytes_a_letter_are_as_measured() {
    let mut rng = pagewalk_units::rng(1, "workload.mummer");
    let make = Make {
        repeats: 500,
        divergence: 150,
        homology: 200,
        mutation: 20,
    };
    let elements = Make::elements(&mut rng);
    let text = make.sequence(&mut rng, &elements, &[], 1_000_000);
    let tree = Tree::new(text);
    for word in [4, 8] {
        let each = 2.0 + word as f64 * (1.0 + tree.words as f64 / 1e6);
        assert!((each / bytes_per_letter(word) - 1.0).abs() < 0.01, "{each}");
    }
}

#[test]
fn mistakes_are_refused() {
    let refused = |params: &[(&str, &str)], size| {
        let options = Options {
            size_bytes: size,
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            ..Options::default()
        };
        let built = mummer(&Values::new(&INFO, &options), |_| ());
        built.err().unwrap().to_string()
    };
    assert!(refused(&[], Some(1 << 40)).contains("8GiB"));
    assert!(refused(&[("reference", "/nowhere")], None).contains("/nowhere"));
    assert!(refused(&[("least", "0")], None).contains("least"));
    assert!(refused(&[("word", "6")], None).contains("word"));
    assert!(refused(&[], Some(6 << 30)).contains("word=8"));
}
