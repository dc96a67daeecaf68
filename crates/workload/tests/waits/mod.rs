//! Which threads may be asked: barriers and recorded waits, as a machine keeps them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_stream::End;

/// What is known of the threads of one process.
#[derive(Default)]
pub struct Waits {
    held: BTreeMap<u32, End>,
    reached: BTreeMap<u32, u64>,
    units: BTreeMap<u32, u64>,
    gone: BTreeSet<u32>,
}

impl Waits {
    /// `thread` gave `ops` ops and `end`.
    pub fn see(&mut self, thread: u32, ops: usize, end: &End) {
        let unit = u64::from(!matches!(end, End::More | End::Empty));
        *self.units.entry(thread).or_default() += ops as u64 + unit;
        self.held.remove(&thread);
        match end {
            End::Barrier { number } => {
                self.reached.insert(thread, *number);
                self.held.insert(thread, end.clone());
            }
            End::Wait { .. } => drop(self.held.insert(thread, end.clone())),
            End::Exit => drop(self.gone.insert(thread)),
            _ => {}
        }
    }

    /// Nobody waits for `thread` any more.
    pub fn gone(&mut self, thread: u32) {
        self.gone.insert(thread);
        self.held.remove(&thread);
    }

    /// Those of `live` that wait for nobody.
    pub fn free(&self, live: &[u32]) -> Vec<u32> {
        let there = |map: &BTreeMap<u32, u64>, other: &u32, least: u64| {
            self.gone.contains(other) || map.get(other).is_some_and(|n| *n >= least)
        };
        let free = |thread: &u32| match self.held.get(thread) {
            Some(End::Barrier { number }) => live
                .iter()
                .all(|other| other == thread || there(&self.reached, other, *number)),
            Some(End::Wait { until }) => until.iter().all(|(t, n)| there(&self.units, t, *n)),
            _ => true,
        };
        live.iter().copied().filter(free).collect()
    }
}
