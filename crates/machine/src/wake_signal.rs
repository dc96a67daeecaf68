//! Wake signal of the workers of a run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Wakes sleeping workers; one for all programs of a run.
#[derive(Default)]
pub(crate) struct WakeSignal {
    /// The generation, and the number of sleeping workers. The number avoids a system call when no worker
    /// sleeps: a program with a shortcut notifies once a query.
    state: Mutex<(u64, u32)>,
    changed: Condvar,
}

impl WakeSignal {
    /// Number of notifications so far, for [`WakeSignal::wait`].
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).0
    }

    /// Wakes all sleeping workers.
    pub(crate) fn notify(&self) {
        let mut state = lock(&self.state);
        state.0 += 1;
        let sleep = state.1 > 0;
        drop(state);
        if sleep {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the generation differs from `seen`, for at most a tenth of a second.
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
