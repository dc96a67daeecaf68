//! A shortcut for tests: a map, with rows at made-up addresses.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_tables::{QueryResult, Shortcut};
use pagewalk_units::{Asid, PhysAddr, VirtAddr};

/// Number of calls of a shortcut.
#[derive(Default)]
pub struct Calls {
    pub loads: AtomicU64,
    pub inserts: AtomicU64,
}

impl Calls {
    /// Counts of 0.
    pub const fn new() -> Self {
        Calls {
            loads: AtomicU64::new(0),
            inserts: AtomicU64::new(0),
        }
    }
    /// Loads and insertions since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.loads.swap(0, Relaxed), self.inserts.swap(0, Relaxed))
    }
}

/// Keeps all addresses, or those of the last few integers.
struct Rows {
    kept: HashMap<(Asid, u64), u64>,
    order: VecDeque<(Asid, u64)>,
    most: usize,
    calls: Option<&'static Calls>,
}

impl Rows {
    fn line(integer: u64) -> PhysAddr {
        PhysAddr((1 << 30) + 64 * (integer % 1024))
    }
}

impl Shortcut for Rows {
    fn load_va(&mut self, asid: Asid, integer: u64) -> QueryResult {
        if let Some(calls) = self.calls {
            calls.loads.fetch_add(1, Relaxed);
        }
        QueryResult {
            value: self.kept.get(&(asid, integer)).copied().unwrap_or(0),
            reads: [Self::line(integer)].into_iter().collect(),
            written: None,
            latency: 3,
            ..QueryResult::default()
        }
    }
    fn insert_va(&mut self, asid: Asid, integer: u64, va: VirtAddr) -> QueryResult {
        if let Some(calls) = self.calls {
            calls.inserts.fetch_add(1, Relaxed);
        }
        if self.kept.insert((asid, integer), va.0).is_none() {
            self.order.push_back((asid, integer));
        }
        if self.order.len() > self.most {
            let oldest = self.order.pop_front().expect("not empty");
            self.kept.remove(&oldest);
        }
        QueryResult {
            value: 1,
            reads: [Self::line(integer)].into_iter().collect(),
            written: Some(Self::line(integer)),
            latency: 1,
            ..QueryResult::default()
        }
    }
}

/// A shortcut that keeps `most` addresses.
pub fn rows(most: usize, calls: Option<&'static Calls>) -> Box<dyn Shortcut> {
    Box::new(Rows {
        kept: HashMap::new(),
        order: VecDeque::new(),
        most,
        calls,
    })
}

/// A shortcut that keeps all addresses.
pub fn all_rows(_seed: u64) -> Box<dyn Shortcut> {
    rows(usize::MAX, None)
}

/// A shortcut that keeps the addresses of the last 50 integers.
pub fn few_rows(_seed: u64) -> Box<dyn Shortcut> {
    rows(50, None)
}
