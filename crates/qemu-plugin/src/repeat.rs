//! Repeated string instructions. Up to 9.2, each iteration is a block of its own in QEMU: first the block that ends
//! with the instruction, then the instruction alone. After the last iteration, it runs once more to find the count at
//! zero. From 10.0 on, QEMU iterates within the block; the records sent are those of the earlier versions.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};

use pagewalk_ring::record;

use crate::process::VCPUS;
use crate::{count, process, translate};

/// A repeated string instruction at the end of a block.
pub struct Repeated {
    /// The record of a block with this instruction alone.
    alone: u64,
    /// The constant part of its memory records in the current block.
    within: u64,
    /// Accesses of each iteration.
    accesses: u32,
    /// Only the count ends it, not a comparison.
    by_count: bool,
}

/// State of a virtual CPU's repeated instruction.
struct Under {
    /// Accesses of the current iteration so far.
    made: Cell<u32>,
    /// True after the first iteration in the block.
    further: Cell<bool>,
    /// The block that finds the count at zero; 0: none is due.
    last: Cell<u64>,
}

/// Each entry is used only by the thread of its virtual CPU.
struct All([Under; VCPUS]);
// SAFETY: see the struct.
unsafe impl Sync for All {}

static ALL: All = All([const {
    Under {
        made: Cell::new(0),
        further: Cell::new(false),
        last: Cell::new(0),
    }
}; VCPUS]);

/// Accesses of an iteration, and true if only its count ends it. `None` if it is no repeated string instruction.
pub fn kind(bytes: &[u8]) -> Option<(u32, bool)> {
    let mut repeated = false;
    let mut rest = bytes.iter();
    let opcode = loop {
        match *rest.next()? {
            0xf2 | 0xf3 => repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0x40..=0x4f => {}
            opcode => break opcode,
        }
    };
    match opcode {
        _ if !repeated => None,
        // movs, cmps, stos, lods, scas
        0xa4 | 0xa5 => Some((2, true)),
        0xa6 | 0xa7 => Some((2, false)),
        0xaa..=0xad => Some((1, true)),
        0xae | 0xaf => Some((1, false)),
        _ => None,
    }
}

impl Repeated {
    /// The last instruction of a block, with its `index`. `alone` is the number of the block that holds only this
    /// instruction.
    pub fn new(index: usize, alone: u32, (accesses, by_count): (u32, bool)) -> Repeated {
        Repeated {
            alone: record::word(record::BLOCK, u64::from(alone)),
            within: record::memory(index, false),
            accesses,
            by_count,
        }
    }
}

/// Called at the start of a block that ends with such an instruction.
pub unsafe extern "C" fn starts(vcpu: c_uint, word: *mut c_void) {
    let under = &ALL.0[vcpu as usize];
    // The same instruction alone: QEMU continues it.
    if under.last.get() != word as u64 {
        finish(vcpu);
    }
    under.last.set(0);
    under.made.set(0);
    under.further.set(false);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(word as u64) };
}

/// Called at the start of another block.
#[inline(always)]
pub fn finish(vcpu: c_uint) {
    let last = &ALL.0[vcpu as usize].last;
    if last.get() != 0 {
        find_zero(vcpu, last.take());
    }
}

#[cold]
fn find_zero(vcpu: c_uint, last: u64) {
    count::one_within();
    // SAFETY: called on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(last) };
}

/// Called at an access of such an instruction.
pub unsafe extern "C" fn accesses(vcpu: c_uint, info: u32, address: u64, it: *mut c_void) {
    let under = &ALL.0[vcpu as usize];
    // SAFETY: `translate` passes a reference that is never freed.
    let it = unsafe { &*it.cast::<Repeated>() };
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    let producer = unsafe { process::producer(vcpu as usize) };
    if under.made.get() == it.accesses {
        under.made.set(0);
        under.further.set(true);
        count::one_within();
        // SAFETY: as above.
        unsafe { producer.push_step(it.alone) };
    }
    under.made.set(under.made.get() + 1);
    if it.by_count {
        under.last.set(it.alone);
    }
    let index = if under.further.get() { 0 } else { it.within };
    // SAFETY: as above.
    unsafe { producer.push_step(translate::access(index, info, address)) };
}
