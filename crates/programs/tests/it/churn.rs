//! `churn` from outside: the records that it appends and reads, and the memory that it frees.

use std::collections::BTreeMap;

use crate::common::{check_stream, first, options, run};
use pagewalk_programs::build;
use pagewalk_stream::{Event, OpClass};
use rand::Rng as _;

const ARENA: u64 = 64 << 10;
const RECORD: u64 = 64;

/// Records appended and read by each phase, found from addresses and events alone. Every access must lie in
/// memory mapped at that time.
fn phases(release: &str) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
    let params = [
        ("arena", "64KiB"),
        ("keep", "25"),
        ("rounds", "3"),
        ("reads", "50"),
        ("release", release),
    ];
    let given = run(
        build("churn", &options(Some(1 << 20), 1, 5, &params))
            .unwrap()
            .as_mut(),
        first,
    );
    check_stream(&given);
    let given = &given[&0];
    let (mut appended, mut read) = (vec![vec![]], vec![vec![]]);
    let mut mapped = BTreeMap::new();
    let (mut base, mut released) = (u64::MAX, false);
    let mut events = given.events.iter().peekable();
    for (at, op) in given.ops.iter().enumerate() {
        while let Some((_, e)) = events.next_if(|(before, _)| *before <= at) {
            match *e {
                Event::Map { at, bytes, .. } => {
                    if bytes == ARENA && at.0 % ARENA == 0 && at.0 >> 44 == 1 {
                        base = base.min(at.0);
                    }
                    mapped.insert(at.0, at.0 + bytes);
                }
                Event::Unmap { at, .. } => {
                    assert!(mapped.remove(&at.0).is_some());
                    released = true;
                }
                Event::Advise { at, .. } => {
                    assert!(mapped.contains_key(&at.0));
                    released = true;
                }
                _ => {}
            }
        }
        if !matches!(op.kind, OpClass::Load | OpClass::Store) {
            continue;
        }
        let below = mapped.range(..=op.va).next_back();
        assert!(below.is_some_and(|(_, end)| op.va < *end), "{op:?}");
        if op.va < base || op.va >= base + (1 << 20) || op.va % RECORD != 8 {
            continue;
        }
        let record = (op.va - base) / RECORD;
        let (mine, other) = match op.kind {
            OpClass::Store => (&mut appended, &mut read),
            _ => (&mut read, &mut appended),
        };
        // A phase ends when the other kind begins, or when arenas are freed.
        if std::mem::take(&mut released) || other.last().is_some_and(|o| !o.is_empty()) {
            if mine.last().is_some_and(|m| !m.is_empty()) {
                mine.push(vec![]);
            }
            if other.last().is_some_and(|o| !o.is_empty()) {
                other.push(vec![]);
            }
        }
        mine.last_mut().unwrap().push(record);
    }
    let full = |v: Vec<Vec<u64>>| v.into_iter().filter(|p| !p.is_empty()).collect();
    (full(appended), full(read))
}

#[test]
fn every_query_reads_what_it_appended_and_what_is_left() {
    let all = (1 << 20) / RECORD;
    let left = all / 4;
    let (appended, read) = phases("unmap");
    let lengths: Vec<usize> = appended.iter().map(Vec::len).collect();
    assert_eq!(lengths, [all, all - left, all - left].map(|n| n as usize));
    for (i, phase) in appended.iter().enumerate() {
        let from = if i == 0 { 0 } else { left };
        assert!(phase.iter().copied().eq(from..all), "in order");
    }
    assert_eq!(read.len(), 6);
    // An independent xorshift from the program's seed selects the same records, so the sums match those of
    // the source.
    let mut x = pagewalk_units::rng(5, "workload.churn.0").next_u64() | 1;
    for (i, phase) in read.iter().enumerate() {
        let records = if i % 2 == 0 { all } else { left };
        let expected: Vec<u64> = (0..records / 2)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                ((u128::from(x) * u128::from(records)) >> 64) as u64
            })
            .collect();
        assert_eq!(phase, &expected);
    }
    let (again, same) = phases("advise");
    assert_eq!((again, same), (appended, read), "however it goes back");
}

#[test]
fn invalid_options_are_refused() {
    for (size, params) in [
        (1024, vec![]),
        (1 << 20, vec![("arena", "2MiB")]),
        (1 << 20, vec![("arena", "12KiB")]),
        (1 << 20, vec![("keep", "101")]),
        (1 << 20, vec![("release", "free")]),
    ] {
        assert!(build("churn", &options(Some(size), 1, 0, &params)).is_err());
    }
}
