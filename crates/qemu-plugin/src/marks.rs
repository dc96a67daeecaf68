//! Marks of the region of interest that other threads meet.
//!
//! The engine simulates each thread at its own speed. What the other threads do before a mark is simulated before it,
//! because each of them meets the mark as it meets a change of the address space.

use std::ffi::{c_uint, c_void};

use pagewalk_ring::record;

use crate::process;

/// True if other threads meet the marks.
pub fn are_met() -> bool {
    process::settings().roi
}

/// True if the instruction is a mark of `pagewalk.h`.
pub fn is_mark(bytes: &[u8]) -> bool {
    matches!(bytes, [0x0f, 0x1f, 0x80, 1 | 2, 0x4d, 0x49, 0x53])
}

/// Called before a mark is executed.
pub unsafe extern "C" fn executes(vcpu: c_uint, _: *mut c_void) {
    let vcpu = vcpu as usize;
    // A thread that forks holds the lock until all others have left their translated code. It cannot wait for this one,
    // whose mark then has no order.
    if process::is_alone(vcpu) || !process::lock_soon() {
        return;
    }
    let ticket = process::take_ticket(vcpu);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    let p = unsafe { process::producer(vcpu) };
    // SAFETY: as above.
    unsafe { p.push(record::word(record::MARK, ticket)) };
    p.publish();
    process::unlock();
}
