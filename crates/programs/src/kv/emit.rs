//! Destination of the instructions of a structure's code: a thread, or none.
//!
//! Each structure is written once, as an algorithm that names the instructions it executes. The load of
//! millions of keys before the region of interest runs the same code over [`Quiet`], for which the compiler
//! drops all of them.

use pagewalk_stream::{PrefetchHint, flags};

use crate::heap::Heap;
use crate::thread::{NONE, Thread, Value};

/// Receiver of instructions. Arguments are those of [`Thread`]'s methods of the same name. Stack addresses
/// are absolute.
pub trait Emit: Send {
    /// True if instructions are recorded. Work that only serves emission is left out otherwise.
    const LOUD: bool;

    /// Reads `size` bytes at `va`.
    fn load(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: [Value; 2]) -> Value;
    /// Writes `size` bytes at `va`.
    fn store(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: Value, data: Value);
    /// Plain instructions.
    fn compute(&mut self, pc: u64, insns: u16, latency: u8, inputs: [Value; 2]) -> Value;
    /// Prefetches the line of `va` into the first-level cache (`prefetcht0`).
    fn prefetch(&mut self, pc: u64, insns: u16, va: u64, address: [Value; 2]);
    /// A control transfer.
    fn jump(&mut self, pc: u64, target: u64, insns: u16, flags: u8, inputs: [Value; 2]);
    /// Reports the heap's system calls to the machine, where they are due now.
    fn emit_heap_events(&mut self, heap: &mut Heap);

    /// A conditional branch, as [`Thread::branch`].
    #[inline(always)]
    fn branch(&mut self, pc: u64, target: u64, insns: u16, taken: bool, on: [Value; 2]) {
        let taken = if taken { flags::TAKEN } else { 0 };
        self.jump(pc, target, insns, flags::CONDITIONAL | taken, on);
    }

    /// Saves `count` registers below `sp`, an instruction each.
    #[inline(always)]
    fn push(&mut self, pc: u64, count: u64, sp: u64) {
        for i in 0..count {
            self.store(pc + 2 * i, 1, sp - 8 * (i + 1), 8, NONE, NONE);
        }
    }

    /// Restores the registers that [`push`](Self::push) saved.
    #[inline(always)]
    fn pop(&mut self, pc: u64, count: u64, sp: u64) {
        for i in 0..count {
            let at = sp - 8 * (count - i);
            self.load(pc + 2 * i, 1, at, 8, [NONE; 2]);
        }
    }

    /// Calls the function at `target`. `sp` is the caller's stack pointer.
    #[inline(always)]
    fn call(&mut self, pc: u64, target: u64, insns: u16, sp: u64) {
        self.store(pc, insns, sp - 8, 8, NONE, NONE);
        self.jump(pc, target, 0, flags::TAKEN | flags::CALL, [NONE; 2]);
    }

    /// Returns from the function called from `site` with stack pointer `sp`.
    #[inline(always)]
    fn ret(&mut self, pc: u64, site: u64, insns: u16, sp: u64) {
        let to = self.load(pc, insns, sp - 8, 8, [NONE; 2]);
        let after = flags::TAKEN | flags::RETURN;
        self.jump(pc, site + 5, 0, after, [to, NONE]);
    }

    /// Calls a function of a shared library through its stub, which jumps to the address in `slot`.
    #[inline(always)]
    fn call_library(&mut self, pc: u64, function: Library, insns: u16, sp: u64) {
        self.call(pc, function.stub(), insns, sp);
        let to = self.load(function.stub(), 1, function.slot(), 8, [NONE; 2]);
        let target = flags::TAKEN | flags::INDIRECT;
        self.jump(function.stub(), function.code(), 0, target, [to, NONE]);
    }
}

/// A function of libc or libstdc++ that programs call through a stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Library {
    /// `memcpy`.
    Memcpy,
    /// `memcmp`.
    Memcmp,
    /// `std::_Hash_bytes`.
    Hash,
    /// `std::string::_M_replace`.
    Replace,
    /// `std::string::_M_mutate`.
    Mutate,
    /// `std::string::_M_create`.
    Create,
    /// `operator new`.
    New,
    /// `operator delete` and `free`.
    Free,
    /// `std::__detail::_Prime_rehash_policy::_M_need_rehash`.
    NeedRehash,
    /// `std::_Rb_tree_insert_and_rebalance`.
    Rebalance,
    /// `memset`.
    Memset,
    /// `malloc`, the longest function.
    Malloc,
    /// `std::_Rb_tree_rebalance_for_erase`.
    EraseRebalance,
    /// `std::_Rb_tree_increment`.
    Increment,
    /// Abseil's `LowLevelHash`, by way of `MixingHashState::LowLevelHashImpl`.
    LowLevelHash,
    /// Abseil's `ShouldInsertBackwards`.
    Backwards,
}

impl Library {
    /// Address of its code, behind the program's own.
    pub const fn code(self) -> u64 {
        let n = self as u64;
        let longest = Library::Malloc as u64;
        if n <= longest {
            0x4000 + 0x400 * n
        } else {
            0x8800 + 0x800 * (n - longest - 1)
        }
    }
    /// The program's stub for it.
    const fn stub(self) -> u64 {
        0x3f00 + 16 * self as u64
    }
    /// Address of the word that holds the function's address.
    const fn slot(self) -> u64 {
        super::globals::TABLE + 8 * self as u64
    }
}

impl Emit for Thread {
    const LOUD: bool = true;

    #[inline(always)]
    fn load(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: [Value; 2]) -> Value {
        Thread::load(self, pc, insns, va, size, address)
    }
    #[inline(always)]
    fn store(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: Value, data: Value) {
        Thread::store(self, pc, insns, va, size, address, data);
    }
    #[inline(always)]
    fn compute(&mut self, pc: u64, insns: u16, latency: u8, inputs: [Value; 2]) -> Value {
        Thread::compute(self, pc, insns, latency, inputs)
    }
    fn prefetch(&mut self, pc: u64, insns: u16, va: u64, address: [Value; 2]) {
        Thread::prefetch(self, pc, insns, va, PrefetchHint::T0, address);
    }
    #[inline(always)]
    fn jump(&mut self, pc: u64, target: u64, insns: u16, flags: u8, inputs: [Value; 2]) {
        Thread::jump(self, pc, target, insns, flags, inputs);
    }
    #[inline(always)]
    fn emit_heap_events(&mut self, heap: &mut Heap) {
        if heap.has_pending() {
            heap.note(self);
        }
    }
}

/// Runs the same code on a second structure, whose words lie behind those of the first.
pub struct Second<'a>(pub &'a mut Thread);

/// Address of a word of the second structure.
#[inline(always)]
fn second(va: u64) -> u64 {
    let first = super::globals::MAP..super::globals::MAP + super::globals::SECOND;
    if first.contains(&va) {
        va + super::globals::SECOND
    } else {
        va
    }
}

impl Emit for Second<'_> {
    const LOUD: bool = true;

    #[inline(always)]
    fn load(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: [Value; 2]) -> Value {
        Thread::load(self.0, pc, insns, second(va), size, address)
    }
    #[inline(always)]
    fn store(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: Value, data: Value) {
        Thread::store(self.0, pc, insns, second(va), size, address, data);
    }
    #[inline(always)]
    fn compute(&mut self, pc: u64, insns: u16, latency: u8, inputs: [Value; 2]) -> Value {
        Thread::compute(self.0, pc, insns, latency, inputs)
    }
    fn prefetch(&mut self, pc: u64, insns: u16, va: u64, address: [Value; 2]) {
        Thread::prefetch(self.0, pc, insns, second(va), PrefetchHint::T0, address);
    }
    #[inline(always)]
    fn jump(&mut self, pc: u64, target: u64, insns: u16, flags: u8, inputs: [Value; 2]) {
        Thread::jump(self.0, pc, target, insns, flags, inputs);
    }
    #[inline(always)]
    fn emit_heap_events(&mut self, heap: &mut Heap) {
        Emit::emit_heap_events(self.0, heap);
    }
}

/// Evaluates `body` for structure `n`, with the words of the first or of the second.
macro_rules! on {
    ($n:expr, $t:expr, $e:ident => $body:expr) => {
        if $n == 0 {
            let $e = &mut *$t;
            $body
        } else {
            let $e = &mut $crate::kv::emit::Second(&mut *$t);
            $body
        }
    };
}
pub(super) use on;

/// Discards all instructions.
pub struct Quiet;

impl Emit for Quiet {
    const LOUD: bool = false;

    #[inline(always)]
    fn load(&mut self, _: u64, _: u16, _: u64, _: u8, _: [Value; 2]) -> Value {
        NONE
    }
    #[inline(always)]
    fn store(&mut self, _: u64, _: u16, _: u64, _: u8, _: Value, _: Value) {}
    #[inline(always)]
    fn compute(&mut self, _: u64, _: u16, _: u8, _: [Value; 2]) -> Value {
        NONE
    }
    fn prefetch(&mut self, _: u64, _: u16, _: u64, _: [Value; 2]) {}
    #[inline(always)]
    fn jump(&mut self, _: u64, _: u64, _: u16, _: u8, _: [Value; 2]) {}
    #[inline(always)]
    fn emit_heap_events(&mut self, _: &mut Heap) {}
}
