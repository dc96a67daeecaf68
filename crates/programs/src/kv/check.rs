//! Checks that every structure behaves like a plain map.

use std::collections::HashMap;

use super::emit::Quiet;
use super::globals::REQUESTS;
use super::index::{Found, Index, IndexStep, Key, Move};
use crate::heap::Heap;
use crate::layout::Layout;
use crate::thread::NONE;

const SP: u64 = 0x7fff_0000_0000;

pub(super) fn key(number: u64) -> Key {
    Key {
        number,
        object: SP,
        text: REQUESTS,
    }
}

/// Finds or inserts each of `numbers`, writes its value, and compares everything with an oracle. Records must
/// not overlap.
pub(super) fn against_oracle<I: Index>(index: &mut I, numbers: &[u64]) {
    let mut heap = I::heap(Layout::new());
    index.begin(&mut heap);
    let mut oracle: HashMap<u64, u32> = HashMap::new();
    for number in numbers {
        let key = key(*number);
        let before = index.find(&mut Quiet, &mut heap, &key, SP).map(|f| f.id);
        assert_eq!(before, oracle.get(number).copied());
        let mut step = index.entry(&mut Quiet, &mut heap, &key, SP);
        let found = loop {
            match step {
                IndexStep::More => step = index.proceed(&mut Quiet, &mut heap, SP),
                IndexStep::Done(found) => break found,
            }
        };
        assert_eq!(found.fresh, before.is_none());
        let id = *oracle.entry(*number).or_insert(found.id);
        assert_eq!(id, found.id);
        let bytes = index.sizes().bytes(found.id);
        let from = ((REQUESTS + 32, NONE), bytes);
        index.write(&mut Quiet, &mut heap, &found, from, SP);
    }
    let mut spans = Vec::new();
    for (number, id) in &oracle {
        let found = index
            .find(&mut Quiet, &mut heap, &key(*number), SP)
            .unwrap();
        assert_eq!((found.id, found.fresh), (*id, false));
        spans.push((found.record, 16));
        let (text, _) = index.value(&mut Quiet, &found);
        spans.push((text, index.sizes().bytes(found.id)));
        for absent in [number + 1, number.wrapping_sub(1)] {
            let found = index.find(&mut Quiet, &mut heap, &key(absent), SP);
            assert_eq!(found.map(|f| f.id), oracle.get(&absent).copied());
        }
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
}

/// One step of a client: sets a key to a value of this many bytes, or erases it (`None`).
pub(super) type Request = (u64, Option<u64>);

fn set<I: Index>(index: &mut I, heap: &mut Heap, number: u64, bytes: u64) -> Found {
    let key = key(number);
    let mut step = index.entry(&mut Quiet, heap, &key, SP);
    let found = loop {
        match step {
            IndexStep::More => step = index.proceed(&mut Quiet, heap, SP),
            IndexStep::Done(found) => break found,
        }
    };
    let from = ((REQUESTS + 32, NONE), bytes);
    index.write(&mut Quiet, heap, &found, from, SP);
    found
}

/// Sets and erases, and compares with an oracle after each step: the keys, the lengths of their values, and
/// the address of each record unless a move was recorded. At the end no two texts overlap.
pub(super) fn erasing_against_oracle<I: Index>(index: &mut I, requests: &[Request]) {
    let mut heap = I::heap(Layout::new());
    index.begin(&mut heap);
    index.will_erase();
    index.sizes().differ();
    index.record_moves();
    // Per key: record number, length of the value, address of the record.
    let mut oracle: HashMap<u64, (u32, u64, u64)> = HashMap::new();
    for (number, bytes) in requests {
        let before = oracle.get(number).copied();
        let found = index.find(&mut Quiet, &mut heap, &key(*number), SP);
        assert_eq!(found.map(|f| (f.id, f.record)), before.map(|b| (b.0, b.2)));
        let mut now = None;
        match bytes {
            Some(bytes) => {
                let found = set(index, &mut heap, *number, *bytes);
                assert_eq!(found.fresh, before.is_none());
                now = Some((found.id, *bytes, found.record));
            }
            None => {
                let gone = index.erase(&mut Quiet, &mut heap, &key(*number), SP);
                assert_eq!(gone.map(|g| (g.id, g.record)), before.map(|b| (b.0, b.2)));
                oracle.remove(number);
            }
        }
        for Move {
            number, from, to, ..
        } in index.moves()
        {
            if let Some(place) = oracle.get_mut(&number) {
                assert_eq!(place.2, from, "{number} moves from where it was");
                place.2 = to;
            }
        }
        if let Some(now) = now {
            oracle.insert(*number, now);
        }
    }
    let mut spans = Vec::new();
    for (number, (id, bytes, record)) in &oracle {
        let key = key(*number);
        let found = index.find(&mut Quiet, &mut heap, &key, SP).unwrap();
        assert_eq!((found.id, found.record), (*id, *record));
        assert_eq!(index.sizes().bytes(*id), *bytes);
        spans.push((found.record, 16));
        spans.push((index.value(&mut Quiet, &found).0, *bytes));
        spans.push((index.key_text(*id), 24));
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
}

/// Steps of a client over few keys.
pub(super) fn requests() -> impl proptest::strategy::Strategy<Value = Vec<Request>> {
    use proptest::prelude::*;
    let bytes = prop::sample::select(vec![None, None, Some(64), Some(128), Some(256)]);
    // First many inserts, so that the structure grows. Then a mix of inserts and erasures.
    let fill = prop::collection::vec((1u64..400, Just(Some(64))), 0..300);
    let rest = prop::collection::vec((1u64..400, bytes), 1..700);
    (fill, rest).prop_map(|(mut fill, rest)| {
        fill.extend(rest);
        fill
    })
}
