//! QEMU's own count of executed instructions, for comparison with the records.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::api::{ADD, Block, Counting};
use crate::translate::interface;

/// The counter, if one word is used.
static WORD: AtomicU64 = AtomicU64::new(0);
/// Count at the start of this process.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// Instructions that QEMU executes within one of its own.
static WITHIN: AtomicU64 = AtomicU64::new(0);

/// Counts `instructions` at each execution of the block that is being translated.
///
/// # Safety
/// `block` is that block.
pub unsafe fn add(block: *mut Block, instructions: u64) {
    // SAFETY: by the contract; the words are never freed.
    unsafe {
        match interface().counting {
            Counting::No => {}
            Counting::Word(add) => add(block, ADD, WORD.as_ptr().cast(), instructions),
            Counting::PerVcpu(add, counters, _) => add(block, ADD, counters, instructions),
        }
    }
}

/// Counts an instruction that QEMU does not count.
#[cold]
pub fn one_within() {
    if !matches!(interface().counting, Counting::No) {
        WITHIN.fetch_add(1, Relaxed);
    }
}

/// Takes back an instruction that QEMU counts although it continues the one before.
#[cold]
pub fn one_less() {
    if !matches!(interface().counting, Counting::No) {
        WITHIN.fetch_sub(1, Relaxed);
    }
}

fn all() -> u64 {
    let counted = match interface().counting {
        Counting::No => 0,
        Counting::Word(_) => WORD.load(Relaxed),
        // SAFETY: QEMU's function and counters.
        Counting::PerVcpu(_, counters, sum) => unsafe { sum(counters) },
    };
    counted.wrapping_add(WITHIN.load(Relaxed))
}

/// Instructions that this process has executed.
pub fn executed() -> u64 {
    all().wrapping_sub(BEFORE.load(Relaxed))
}

/// Restarts the count in a child, which has executed nothing yet.
pub fn restart() {
    BEFORE.store(all(), Relaxed);
}
