//! Runnable threads: barriers and recorded waits, as in a machine.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_stream::{Batch, End, Units};

/// State of the threads of one process.
#[derive(Default)]
pub struct Waits {
    held: BTreeMap<u32, End>,
    reached: BTreeMap<u32, u64>,
    units: BTreeMap<u32, Units>,
    gone: BTreeSet<u32>,
}

impl Waits {
    /// Records that `thread` delivered `batch` and `end`.
    pub fn see(&mut self, thread: u32, batch: &Batch, end: &End) {
        self.units.entry(thread).or_default().add(batch, end);
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

    /// Removes `thread`: no other thread waits for it any more.
    pub fn gone(&mut self, thread: u32) {
        self.gone.insert(thread);
        self.held.remove(&thread);
    }

    /// The threads of `live` that do not wait.
    pub fn free(&self, live: &[u32]) -> Vec<u32> {
        let there = |far: Option<u64>, other: &u32, least: u64| {
            self.gone.contains(other) || far.is_some_and(|n| n >= least)
        };
        let free = |thread: &u32| match self.held.get(thread) {
            Some(End::Barrier { number }) => live
                .iter()
                .all(|o| o == thread || there(self.reached.get(o).copied(), o, *number)),
            Some(End::Wait { until, counted }) => until.iter().all(|(t, n)| {
                let far = self.units.get(t).map(|u| u.counted(*counted));
                there(far, t, *n)
            }),
            _ => true,
        };
        live.iter().copied().filter(free).collect()
    }
}
