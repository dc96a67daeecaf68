//! Matches against brute force, and the tree that they are found in against what
//! the program's loads say.

use std::sync::{Arc, Mutex};

use pagewalk_stream::{Batch, End, Kind, Op, Program as _};
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

/// Longest match at each place of the query, when it is unique in the text,
/// cannot be extended to the left and is long enough.
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
    // About three reads of tree and text a letter that wait for one another.
    let loads = ops.iter().filter(|o| o.kind == Kind::Load).count();
    assert!(
        loads > 20 * query.len() && loads < 300 * query.len(),
        "{loads}"
    );
}

/// The measured size of the tree, which sets the length of generated texts.
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
        built.err().unwrap().message
    };
    assert!(refused(&[], Some(1 << 40)).contains("8GiB"));
    assert!(refused(&[("reference", "/nowhere")], None).contains("/nowhere"));
    assert!(refused(&[("least", "0")], None).contains("least"));
}
