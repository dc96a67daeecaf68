//! What the workers of a run sleep for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What wakes the workers of a run: one for all its programs.
#[derive(Default)]
pub(crate) struct WakeSignal {
    /// How many there were, and how many workers sleep: to wake nobody is a system call,
    /// too, and a program that asks makes a batch for each question.
    state: Mutex<(u64, u32)>,
    changed: Condvar,
}

impl WakeSignal {
    /// Number of changes so far, for [`WakeSignal::wait`].
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).0
    }

    /// Tells sleeping workers that something has changed.
    pub(crate) fn notify(&self) {
        let mut state = lock(&self.state);
        state.0 += 1;
        let sleep = state.1 > 0;
        drop(state);
        if sleep {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the version is not `seen`, at most a tenth of a second.
    pub(crate) fn wait(&self, seen: u64) {
        let mut state = lock(&self.state);
        if state.0 == seen {
            state.1 += 1;
            let tenth = Duration::from_millis(100);
            let woken = self.changed.wait_timeout(state, tenth);
            woken.unwrap_or_else(PoisonError::into_inner).0.1 -= 1;
        }
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
