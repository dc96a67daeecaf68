//! What every structure has to be: the same as a plain map.

use std::collections::HashMap;

use super::emit::Quiet;
use super::globals::REQUESTS;
use super::index::{Index, Key, Step};
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

/// Finds or inserts each of `numbers`, writes its value, and compares everything
/// with an oracle; records do not overlap.
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
                Step::More => step = index.proceed(&mut Quiet, &mut heap, SP),
                Step::Done(found) => break found,
            }
        };
        assert_eq!(found.fresh, before.is_none());
        let id = *oracle.entry(*number).or_insert(found.id);
        assert_eq!(id, found.id);
        index.write(&mut Quiet, &mut heap, &found, (REQUESTS + 32, NONE), SP);
    }
    let mut spans = Vec::new();
    for (number, id) in &oracle {
        let found = index
            .find(&mut Quiet, &mut heap, &key(*number), SP)
            .unwrap();
        assert_eq!((found.id, found.fresh), (*id, false));
        spans.push((found.record, 16));
        let (text, _) = index.value(&mut Quiet, &found);
        spans.push((text, index.value_bytes()));
        for absent in [number + 1, number.wrapping_sub(1)] {
            let found = index.find(&mut Quiet, &mut heap, &key(absent), SP);
            assert_eq!(found.map(|f| f.id), oracle.get(&absent).copied());
        }
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
}
