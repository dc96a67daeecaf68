//! What a machine has done, or has still to do.

use pagewalk_stream::{Op, Skipped, flags};
use serde::{Deserialize, Serialize};

/// What a machine has done, all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Instructions.
    pub(crate) instructions: u64,
    /// Requests that have ended: see [`pagewalk_stream::Facts::request`].
    pub(crate) requests: u64,
}

impl Work {
    /// More than any program does.
    pub(crate) const FOREVER: Work = Work {
        instructions: u64::MAX,
        requests: u64::MAX,
    };

    /// So many instructions, whatever requests are in them.
    pub(crate) fn instructions(instructions: u64) -> Work {
        Work {
            instructions,
            ..Work::FOREVER
        }
    }

    /// So many instructions or so many requests, whichever come first; without a
    /// number, endless.
    pub(crate) fn first_of(instructions: Option<u64>, requests: Option<u64>) -> Work {
        Work {
            instructions: instructions.unwrap_or(u64::MAX),
            requests: requests.unwrap_or(u64::MAX),
        }
    }

    /// What `op` adds.
    #[inline]
    pub(crate) fn of(op: &Op) -> Work {
        Work {
            instructions: u64::from(op.insns),
            requests: u64::from(op.flags & flags::REQUEST != 0),
        }
    }

    /// What was done by ops that are not there.
    pub(crate) fn of_skipped(skipped: &Skipped) -> Work {
        Work {
            instructions: skipped.instructions,
            requests: skipped.requests,
        }
    }

    /// Whether one of the two is used up.
    pub(crate) fn is_over(self) -> bool {
        self.instructions == 0 || self.requests == 0
    }

    /// Whether neither of the two has come to what there is of it.
    pub(crate) fn is_within(self, left: Work) -> bool {
        self.instructions < left.instructions && self.requests < left.requests
    }

    /// What is left after `done`; what is endless stays so.
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
