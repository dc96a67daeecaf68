//! Threads whose virtual CPU QEMU tells of in the new thread, not in its maker's: from
//! 9.0 on. The maker's clone gives the thread's number when it returns; only then is there
//! a ring for it, and the new thread waits for that before its first block.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::time::Duration;

use pagewalk_ring::{Producer, futex_wait, futex_wake, record};

use crate::process;

/// Threads at a time, as many as a segment has rings.
const THREADS: usize = 1024;

/// A ring whose thread has not taken it yet.
struct Promised {
    /// The thread's number; 0: nothing is promised.
    thread: AtomicI32,
    ring: UnsafeCell<Option<Producer>>,
}

// SAFETY: the maker writes `ring` before `thread`, and the new thread takes it after.
unsafe impl Sync for Promised {}

/// By the ring's number. No lock: a child may be made while another thread waits here.
static ALL: [Promised; THREADS] = [const {
    Promised {
        thread: AtomicI32::new(0),
        ring: UnsafeCell::new(None),
    }
}; THREADS];
/// Changes with each promise.
static PROMISES: AtomicU32 = AtomicU32::new(0);

/// The calling thread's clone has made thread number `thread`.
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
    // The reader has to know of the thread before that runs.
    p.publish();
    // SAFETY: nobody looks at it before `thread` is set.
    unsafe { *promised.ring.get() = Some(ring) };
    promised.thread.store(thread, Release);
    PROMISES.fetch_add(1, Release);
    futex_wake(&PROMISES);
}

/// The calling thread's ring, once its maker has promised it.
pub fn wait() -> Producer {
    // SAFETY: only asks.
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

/// In a child, which has one thread.
pub fn forget() {
    for promised in &ALL {
        promised.thread.store(0, Relaxed);
    }
}
