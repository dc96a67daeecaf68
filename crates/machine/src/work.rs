//! Amounts of work, done or still to do.

use pagewalk_stream::{Op, Skipped, flags};
use serde::{Deserialize, Serialize};

/// Work of a machine, of all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Instructions.
    pub(crate) instructions: u64,
    /// Requests that have ended: see [`pagewalk_stream::Facts::request`].
    pub(crate) requests: u64,
}

impl Work {
    /// No limit.
    pub(crate) const FOREVER: Work = Work {
        instructions: u64::MAX,
        requests: u64::MAX,
    };

    /// A limit in instructions.
    pub(crate) fn instructions(instructions: u64) -> Work {
        Work {
            instructions,
            ..Work::FOREVER
        }
    }

    /// A limit in instructions and in requests, whichever is reached first; `None` is no limit.
    pub(crate) fn first_of(instructions: Option<u64>, requests: Option<u64>) -> Work {
        Work {
            instructions: instructions.unwrap_or(u64::MAX),
            requests: requests.unwrap_or(u64::MAX),
        }
    }

    /// Work of one operation.
    #[inline]
    pub(crate) fn of(op: &Op) -> Work {
        Work {
            instructions: u64::from(op.insns),
            requests: u64::from(op.flags & flags::REQUEST != 0),
        }
    }

    /// Work of skipped operations.
    pub(crate) fn of_skipped(skipped: &Skipped) -> Work {
        Work {
            instructions: skipped.instructions,
            requests: skipped.requests,
        }
    }

    /// True if a limit is used up.
    pub(crate) fn is_over(self) -> bool {
        self.instructions == 0 || self.requests == 0
    }

    /// True if neither count has reached the limit `left`.
    pub(crate) fn is_within(self, left: Work) -> bool {
        self.instructions < left.instructions && self.requests < left.requests
    }

    /// The rest of a limit after `done`; no limit stays no limit.
    pub(crate) fn less(self, done: Work) -> Work {
        let less = |left: u64, done| match left {
            u64::MAX => left,
            _ => left.saturating_sub(done),
        };
        Work {
            instructions: less(self.instructions, done.instructions),
            requests: less(self.requests, done.requests),
        }
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.instructions += more.instructions;
        self.requests += more.requests;
    }
}

impl std::ops::Sub for Work {
    type Output = Work;
    fn sub(self, before: Work) -> Work {
        Work {
            instructions: self.instructions - before.instructions,
            requests: self.requests - before.requests,
        }
    }
}
