//! Threads that QEMU reports in the new thread, not in its creator's, as versions from 9.0 on do. The thread's number
//! is known when the creator's clone returns. Only then can a ring be assigned, and the new thread waits for it before
//! its first block.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::time::Duration;

use pagewalk_ring::{Producer, futex_wait, futex_wake, record};

use crate::process;

/// Most threads at the same time, as many as a segment has rings.
const THREADS: usize = 1024;

/// A ring that its thread has not taken yet.
struct Promised {
    /// The thread's number; 0: the entry is free.
    thread: AtomicI32,
    ring: UnsafeCell<Option<Producer>>,
}

// SAFETY: the creator writes `ring` before `thread`, and the new thread takes it afterwards.
unsafe impl Sync for Promised {}

/// Indexed by the ring's number. Without a lock, because a process may fork while another thread waits here.
static ALL: [Promised; THREADS] = [const {
    Promised {
        thread: AtomicI32::new(0),
        ring: UnsafeCell::new(None),
    }
}; THREADS];
/// Changes with each assignment.
static PROMISES: AtomicU32 = AtomicU32::new(0);

/// Assigns a ring to `thread`, which the calling thread's clone has created.
///
/// # Safety
/// The caller runs on virtual CPU `maker`.
pub unsafe fn promise(maker: usize, thread: i32) {
    let (slot, ring) = process::take_slot();
    let Some(promised) = ALL.get(slot) else {
        process::die("more threads at a time than can be traced (1024)");
    };
    // SAFETY: by the contract.
    let p = unsafe { process::producer(maker) };
    ring.starts_from(p);
    // SAFETY: by the contract.
    unsafe { p.push(record::word(record::SPAWN, slot as u64)) };
    // The reader must know of the thread before it runs.
    p.publish();
    // SAFETY: no thread reads it before `thread` is set.
    unsafe { *promised.ring.get() = Some(ring) };
    promised.thread.store(thread, Release);
    PROMISES.fetch_add(1, Release);
    futex_wake(&PROMISES);
}

/// The calling thread's ring, once its creator has assigned it.
pub fn wait() -> Producer {
    // SAFETY: the call has no arguments and cannot fail.
    let own = unsafe { libc::gettid() };
    loop {
        let seen = PROMISES.load(Acquire);
        for promised in &ALL {
            if promised.thread.load(Acquire) == own {
                // SAFETY: written before `thread`, and this thread's now.
                let ring = unsafe { (*promised.ring.get()).take() };
                promised.thread.store(0, Release);
                return ring.unwrap_or_else(|| process::die("a thread has lost its ring"));
            }
        }
        futex_wait(&PROMISES, seen, Duration::from_millis(100));
    }
}

/// Clears all entries in a child, which has one thread.
pub fn forget() {
    for promised in &ALL {
        promised.thread.store(0, Relaxed);
    }
}
