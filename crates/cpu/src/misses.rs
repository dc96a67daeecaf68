//! Load misses of the first-level data cache in the ideal clock.

use pagewalk_structures::{Occupancy, OccupancySlot, Ring};

use crate::time::Time;

/// Lines whose arrival is remembered.
const LINES: usize = 64;

/// The latest misses and their lines' arrivals, in slots of both clocks.
#[derive(Clone, Debug)]
pub(crate) struct Misses {
    /// MSHRs, in cycles of the ideal clock.
    pub mshrs: Occupancy,
    /// Arrivals by the number of the miss.
    arrivals: Ring<Time>,
    count: usize,
    /// Lines and their arrivals, direct-mapped.
    lines: Box<[(u64, Time); LINES]>,
}

impl Misses {
    /// No misses so far, in a cache of `mshrs`.
    pub fn new(mshrs: usize) -> Self {
        Misses {
            mshrs: Occupancy::new(mshrs),
            arrivals: Ring::new(mshrs, Time::default()),
            // No miss comes before the ring is full of these.
            count: mshrs,
            lines: Box::new([(u64::MAX, Time::default()); LINES]),
        }
    }

    /// Arrival of the line of the oldest miss that may hold an MSHR if all are taken.
    #[inline]
    pub fn released(&self) -> Time {
        self.arrivals.get(self.count - self.mshrs.places())
    }

    /// Adds a miss of `line`, which holds `mshr` until it arrives in cycle `until` of the ideal
    /// clock.
    pub fn add(&mut self, line: u64, mshr: OccupancySlot, until: u64, arrival: Time) {
        self.mshrs.hold(mshr, until);
        self.arrivals.set(self.count, arrival);
        self.count += 1;
        self.lines[line as usize % LINES] = (line, arrival);
    }

    /// Arrival of `line` in the ideal clock, if an older miss requested it and it arrives in slot
    /// `real`.
    #[inline]
    pub fn requested(&self, line: u64, real: u64) -> Option<u64> {
        let (requested, arrival) = self.lines[line as usize % LINES];
        (requested == line && arrival.real == real).then_some(arrival.ideal)
    }
}
