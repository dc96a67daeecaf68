//! Results of system calls that the program gets instead of QEMU's.
//!
//! QEMU stores a result in the guest's registers after the last callback of the call. The plugin therefore replaces it
//! before the first instruction that follows. Interfaces of QEMU that write registers came with 10.1 only.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::{repeat, translate};

/// A result that waits for the next block.
#[derive(Clone, Copy)]
struct Answer {
    arguments: [u64; 6],
    qemu: i64,
    linux: i64,
}

thread_local! {
    static WAITING: Cell<Option<Answer>> = const { Cell::new(None) };
}

/// Threads with an answer that waits.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes the present call of this thread, with these arguments, return `linux` instead of `qemu`.
pub fn replace(arguments: &[u64; 6], qemu: i64, linux: i64) {
    if qemu == linux {
        return;
    }
    let arguments = *arguments;
    WAITING.set(Some(Answer {
        arguments,
        qemu,
        linux,
    }));
    COUNT.fetch_add(1, Relaxed);
}

/// Drops an answer that no block has taken.
pub fn forget() {
    if WAITING.take().is_some() {
        COUNT.fetch_sub(1, Relaxed);
    }
}

/// A child has only the thread that forked, in a call without an answer.
pub fn forked() {
    COUNT.store(0, Relaxed);
}

/// Called at the start of each block. `registers` points to the guest's, or is null.
///
/// # Safety
/// As for `deliver_waiting`.
#[inline(always)]
pub unsafe fn deliver(registers: *mut u64) {
    if COUNT.load(Relaxed) != 0 {
        // SAFETY: by the contract.
        unsafe { deliver_waiting(registers) };
    }
}

/// Stores the answer. The registers are those of the call, unless a handler of a signal comes first; the answer then
/// waits for the handler's end.
///
/// # Safety
/// `registers` points to 16 registers that this thread may write, or is null.
#[cold]
unsafe fn deliver_waiting(registers: *mut u64) {
    /// Numbers of the registers of a system call's arguments: rdi, rsi, rdx, r10, r8, r9.
    const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];
    let Some(answer) = WAITING.get().filter(|_| !registers.is_null()) else {
        return;
    };
    // SAFETY: by the contract.
    let of = |n: usize| unsafe { registers.add(n).read() };
    let same = ARGUMENTS
        .into_iter()
        .zip(answer.arguments)
        .all(|(n, argument)| of(n) == argument);
    if same && of(0) == answer.qemu as u64 {
        // SAFETY: by the contract.
        unsafe { registers.write(answer.linux as u64) };
        forget();
    }
}

// As in `prefetch`: `rbp` points to the guest's processor, whose registers come first.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden pagewalk_block",
    ".globl pagewalk_block",
    "pagewalk_block:",
    "mov rdx, rbp",
    "jmp {starts}",
    ".hidden pagewalk_repeat_block",
    ".globl pagewalk_repeat_block",
    "pagewalk_repeat_block:",
    "mov rdx, rbp",
    "jmp {repeats}",
    starts = sym starts,
    repeats = sym repeats,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Callback at the start of a block.
    #[link_name = "pagewalk_block"]
    pub fn block_starts(vcpu: c_uint, word: *mut c_void);
    /// As [`block_starts`], if the block ends with a repeated string instruction.
    #[link_name = "pagewalk_repeat_block"]
    pub fn repeat_block_starts(vcpu: c_uint, it: *mut c_void);
}

/// Callback at the start of a block. The program gets QEMU's results on this host.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe extern "C" fn block_starts(vcpu: c_uint, word: *mut c_void) {
    // SAFETY: by the caller's contract; no registers are given.
    unsafe { starts(vcpu, word, std::ptr::null_mut()) };
}

/// As [`block_starts`], if the block ends with a repeated string instruction.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe extern "C" fn repeat_block_starts(vcpu: c_uint, it: *mut c_void) {
    // SAFETY: by the caller's contract; no registers are given.
    unsafe { repeats(vcpu, it, std::ptr::null_mut()) };
}

unsafe extern "C" fn starts(vcpu: c_uint, word: *mut c_void, registers: *mut u64) {
    // SAFETY: QEMU's registers, on the thread of the virtual CPU.
    unsafe {
        deliver(registers);
        translate::starts(vcpu, word);
    }
}

unsafe extern "C" fn repeats(vcpu: c_uint, it: *mut c_void, registers: *mut u64) {
    // SAFETY: as in `starts`.
    unsafe {
        deliver(registers);
        repeat::starts(vcpu, it);
    }
}
