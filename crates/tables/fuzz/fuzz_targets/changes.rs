//! Random sequences of changes on a table of the contract suite, checked
//! against a reference map. The first byte selects the table, and each step
//! takes six bytes.
#![no_main]

#[path = "../../tests/common/mod.rs"]
#[allow(dead_code, reason = "the suite's other half runs by itself")]
mod common;

use common::steps::{TableOp, random_steps};
use common::tables::cases;
use libfuzzer_sys::fuzz_target;

fn step(b: &[u8; 6]) -> TableOp {
    let slot = u16::from_le_bytes([b[1], b[2]]);
    let (size, flags, starve) = (b[3], b[4], b[5]);
    match b[0] % 16 {
        0..=8 => TableOp::Map {
            slot,
            size,
            flags,
            starve,
        },
        9..=12 => TableOp::Unmap { slot, size },
        13 => TableOp::Flags { slot, size, flags },
        _ => TableOp::Probe {
            slot,
            offset: u32::from_le_bytes([b[3], b[4], b[5], 0]),
        },
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else {
        return;
    };
    let cases = cases();
    let steps: Vec<_> = rest.as_chunks().0.iter().map(step).collect();
    random_steps(&cases[usize::from(which) % cases.len()], &steps);
});
