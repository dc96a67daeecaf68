//! Compares the counts with direct counting.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewalk_stream::{Op, OpClass};

use super::code::Counting;
use super::reads::Reads;
use super::{INFO, counters, kmer, table};
use crate::drain::drain;
use crate::entry::{Options, Values};

fn run(params: &[(&str, &str)], size: Option<u64>, threads: u32) -> (Vec<Op>, Arc<Counting>) {
    let options = Options {
        size_bytes: size,
        threads,
        seed: 3,
        params: params
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
    };
    let values = Values::new(&INFO, &options);
    let (mut code, shared) = kmer(&values).unwrap();
    let mut ops = Vec::new();
    drain(&mut code, |batch| ops.extend_from_slice(&batch.ops));
    (ops, shared)
}

/// Every k-mer of every read except the last, in its canonical form, compared as text.
fn by_hand(reads: &Reads, k: usize) -> Vec<(u64, u32)> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    let mut bases = Vec::new();
    for number in 0..reads.count() {
        reads.read(number, &mut bases);
        for window in bases[..bases.len() - 1].windows(k) {
            let text: Vec<u8> = window.to_vec();
            let back: Vec<u8> = window.iter().rev().map(|b| 3 - b).collect();
            let least = text.min(back);
            let number = least.iter().fold(0, |n, b| n * 4 + u64::from(*b));
            *counts.entry(number).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}

#[test]
fn counts_are_those_of_counting_by_hand() {
    for (size, threads, params) in [
        (
            160 << 10,
            1,
            vec![("k", "9"), ("errors", "20"), ("length", "600")],
        ),
        (64 << 10, 5, vec![("k", "8"), ("length", "3000")]),
    ] {
        let (ops, shared) = run(&params, Some(size), threads);
        let expected = by_hand(&shared.reads, shared.k as usize);
        assert!(expected.len() > 5_000);
        let state = shared.state.lock().unwrap();
        assert!(state.counts.sorted() == expected, "{params:?}");
        // The flat array, reconstructed from the stores of the stream.
        let mut flat: BTreeMap<u64, u32> = BTreeMap::new();
        let inside = shared.flat..shared.flat + counters(shared.k);
        for op in &ops {
            if op.kind == OpClass::Store && inside.contains(&op.va) {
                *flat.entry(op.va - shared.flat).or_default() += 1;
            }
        }
        let mut bytes: BTreeMap<u64, u32> = BTreeMap::new();
        for (kmer, count) in expected {
            *bytes.entry(kmer / 2).or_default() += count.min(15);
        }
        assert!(flat == bytes, "{params:?}");
    }
}

/// A file with one k-mer that exceeds the flat counter: further counts go to the hash map.
#[test]
fn saturated_counters_go_to_the_hash_map() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        format!(">x\n{}\n>short\nACG\n", "A".repeat(57)),
    )
    .unwrap();
    let path = file.path().to_str().unwrap();
    let (ops, shared) = run(&[("k", "8"), ("reads", path)], None, 1);
    // 49 times AAAAAAAA: 15 in the array, 1 inserted and 33 found in the map.
    let table = shared.tables.at(table::FIRST_POWER);
    let values = table..table + (table::BUCKET << table::FIRST_POWER);
    let stores = ops
        .iter()
        .filter(|o| o.kind == OpClass::Store && values.contains(&o.va));
    let (mut keys, mut counted) = (0, 0);
    for store in stores.filter(|o| o.size == 8) {
        match (store.va - table) % table::BUCKET % 16 {
            0 => keys += 1,
            _ => counted += 1,
        }
    }
    assert_eq!((keys, counted), (1, 34));
    let at = |pc: u64, kind: OpClass| {
        ops.iter()
            .filter(move |o| o.pc & 0xffff == 0x1000 + pc && o.kind == kind)
            .count()
    };
    // AAAAAAAA is 0, an even number.
    assert_eq!(at(0x283f, OpClass::Load), 15);
    assert_eq!(at(0x27cc, OpClass::Store), 33);
    // Both locks are acquired and released.
    assert_eq!(at(0xe98a, OpClass::Load) + at(0xe9c2, OpClass::Load), 68);
    assert_eq!(at(0x27df, OpClass::Store) + at(0x27ef, OpClass::Store), 68);
}

/// Instructions, loads, stores and branches of one k-mer, as in the compiled program.
#[test]
fn a_kmer_is_as_long_as_the_real_one() {
    let of = |read: &str, number: usize| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!(">x\n{read}\n")).unwrap();
        let path = file.path().to_str().unwrap();
        let (ops, _) = run(&[("k", "8"), ("reads", path)], None, 1);
        let begins: Vec<usize> = (0..ops.len())
            .filter(|i| ops[*i].pc & 0xffff == 0x1000 + 0x25a0)
            .collect();
        let part = &ops[begins[number]..begins[number + 1]];
        let count = |kind: OpClass| part.iter().filter(|o| o.kind == kind).count();
        (
            part.iter().map(|o| u32::from(o.insns)).sum::<u32>(),
            [OpClass::Load, OpClass::Store, OpClass::Branch].map(count),
        )
    };
    // Counted by hand in the listing. In the array: an even new one, an odd new one whose complement is
    // smaller, and an even one that was seen before.
    assert_eq!(of("AAAAAAAAGC", 0), (135, [18, 4, 21]));
    assert_eq!(of("GTTTTTTTAA", 0), (136, [18, 5, 22]));
    assert_eq!(of(&"A".repeat(30), 9), (134, [17, 3, 21]));
    // In the map: the last slot of the first bucket (cdaf), the other slots are free. The second bucket's
    // lock (8697) precedes the first one's, which saves a jump.
    assert_eq!(of(&"A".repeat(30), 20), (376, [88, 52, 48]));
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
        kmer(&Values::new(&INFO, &options))
            .err()
            .unwrap()
            .to_string()
    };
    assert!(refused(&[("k", "18")], None).contains("8 to 17"));
    assert!(refused(&[("k", "17")], Some(8 << 30)).contains("no room"));
    assert!(refused(&[], Some(1000)).contains("no room"));
    assert!(refused(&[("reads", "/nowhere")], None).contains("/nowhere"));
}
