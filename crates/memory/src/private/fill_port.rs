//! The path of lines from the L2 into the L1D.

use pagewalk_structures::FreeIntervals;
use pagewalk_units::{Cycle, LINE_BYTES};

use super::Private;
use crate::Done;

/// A path that moves one line at a time.
#[derive(Clone, Debug)]
pub(super) struct FillPort {
    /// Cycles of a line.
    cycles: Cycle,
    free: FreeIntervals<64>,
}

impl FillPort {
    /// A path of `bytes` a cycle.
    pub fn new(bytes: u32) -> Box<Self> {
        Box::new(FillPort {
            cycles: LINE_BYTES / u64::from(bytes),
            free: FreeIntervals::new(),
        })
    }
}

impl Private {
    /// Delays a line on its way into the L1D while others use the path. The time of the line itself
    /// is part of the latencies.
    #[inline(always)]
    pub(super) fn through_fill_port<const TIMED: bool>(&mut self, done: Done) -> Done {
        let Some(port) = self.fill_port.as_deref_mut().filter(|_| TIMED) else {
            return done;
        };
        let wanted = done.at.saturating_sub(port.cycles);
        Done {
            at: port.free.take(wanted, port.cycles) + port.cycles,
            ..done
        }
    }
}
