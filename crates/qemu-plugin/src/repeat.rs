//! Repeated string instructions. Processors execute one as an instruction that moves through lines, and so it is sent:
//! one block, and of each of its streams the first access to each line, and the last access.
//!
//! Up to 9.2, each iteration is a block of its own in QEMU: first the block that ends with the instruction, then the
//! instruction alone. After the last iteration, it runs once more to find the count at zero. From 10.0 on, QEMU
//! iterates within the block.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};

use pagewalk_ring::record;

use crate::process::VCPUS;
use crate::{count, process, translate};

/// Accesses of a group of iterations, below the limit of an execution of a block. A longer instruction is sent as several
/// groups.
const GROUP: u32 = 1 << 15;

/// A repeated string instruction at the end of a block.
pub struct Repeated {
    /// The record of the block.
    block: u64,
    /// The record of a block with this instruction alone.
    alone: u64,
    /// Address of the instruction.
    address: u64,
    /// The constant part of its memory records in the block.
    within: u64,
    /// Accesses of each iteration.
    accesses: usize,
}

/// State of a virtual CPU's repeated instruction.
struct Under {
    /// Address of the instruction under way; 0: none is.
    address: Cell<u64>,
    /// The constant part of its memory records.
    within: Cell<u64>,
    /// Number of the next access within its iteration.
    next: Cell<usize>,
    /// The last access of each stream, and the last one sent, as records; 0: none.
    last: [Cell<u64>; 2],
    sent: [Cell<u64>; 2],
    /// Accesses sent.
    count: Cell<u32>,
}

/// Each entry is used only by the thread of its virtual CPU.
struct All([Under; VCPUS]);
// SAFETY: see the struct.
unsafe impl Sync for All {}

static ALL: All = All([const {
    Under {
        address: Cell::new(0),
        within: Cell::new(0),
        next: Cell::new(0),
        last: [const { Cell::new(0) }; 2],
        sent: [const { Cell::new(0) }; 2],
        count: Cell::new(0),
    }
}; VCPUS]);

/// Accesses of an iteration. `None` if it is no repeated string instruction.
pub fn kind(bytes: &[u8]) -> Option<usize> {
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
        // movs, cmps
        0xa4..=0xa7 => Some(2),
        // stos, lods, scas
        0xaa..=0xaf => Some(1),
        _ => None,
    }
}

impl Repeated {
    /// Instruction `index` at the end of block `number`, at `address`. `alone` is the number of the block that holds
    /// only this instruction.
    pub fn new(
        (number, index): (u32, usize),
        alone: u32,
        address: u64,
        accesses: usize,
    ) -> Repeated {
        Repeated {
            block: record::word(record::BLOCK, u64::from(number)),
            alone: record::word(record::BLOCK, u64::from(alone)),
            address,
            within: record::memory(index, false),
            accesses,
        }
    }
}

impl Under {
    fn begin(&self, it: &Repeated, within: u64) {
        self.address.set(it.address);
        self.within.set(within);
        self.next.set(0);
        self.count.set(0);
        for stream in 0..2 {
            self.last[stream].set(0);
            self.sent[stream].set(0);
        }
    }
}

/// A block starts that ends with such an instruction.
///
/// # Safety
/// Called on the thread of the virtual CPU, with the block's [`Repeated`].
#[inline(always)]
pub unsafe fn starts(vcpu: c_uint, it: *mut c_void) {
    let under = &ALL.0[vcpu as usize];
    // SAFETY: `translate` passes a reference that is never freed.
    let it = unsafe { &*it.cast::<Repeated>() };
    // The same instruction alone: QEMU continues it.
    if under.address.get() == it.address && it.block == it.alone {
        count::one_less();
        return;
    }
    finish(vcpu);
    under.begin(it, it.within);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(it.block) };
}

/// Called at the start of another block.
#[inline(always)]
pub fn finish(vcpu: c_uint) {
    let under = &ALL.0[vcpu as usize];
    if under.address.get() != 0 {
        end(vcpu, under);
    }
}

/// Sends the last access of each stream.
#[cold]
fn end(vcpu: c_uint, under: &Under) {
    under.address.set(0);
    for (last, sent) in under.last.iter().zip(&under.sent) {
        if last.get() != sent.get() {
            // SAFETY: called on the thread of the virtual CPU.
            unsafe { process::producer(vcpu as usize).push_step(last.get()) };
        }
    }
}

/// Called at an access of such an instruction.
pub unsafe extern "C" fn accesses(vcpu: c_uint, info: u32, address: u64, it: *mut c_void) {
    let under = &ALL.0[vcpu as usize];
    // SAFETY: `translate` passes a reference that is never freed.
    let it = unsafe { &*it.cast::<Repeated>() };
    let stream = under.next.get();
    if stream == 0 && under.count.get() >= GROUP {
        end(vcpu, under);
        under.begin(it, record::memory(0, false));
        count::one_within();
        // SAFETY: QEMU calls this on the thread of the virtual CPU.
        unsafe { process::producer(vcpu as usize).push_step(it.alone) };
    }
    under.next.set(if stream + 1 == it.accesses {
        0
    } else {
        stream + 1
    });
    let word = translate::access(under.within.get(), info, address);
    under.last[stream].set(word);
    if word >> 6 != under.sent[stream].get() >> 6 {
        under.sent[stream].set(word);
        under.count.set(under.count.get() + 1);
        // SAFETY: as above.
        unsafe { process::producer(vcpu as usize).push_step(word) };
    }
}
