//! The table against a plain map, with resizes under way.

use std::collections::BTreeMap;

use pagewalk_units::{Asid, Frame, PageSize, PhysAddr};

use super::*;
use crate::cluster::PteCluster;
use crate::cuckoo::spec::{ElasticCuckooSpec, MemoryEfficientSpec};
use crate::{FrameSource, Want};

/// Memory that refuses from the request on that `left` says.
pub(super) struct Source {
    next: u64,
    owned: BTreeMap<u64, u64>,
    pub(super) left: u64,
    pub(super) asked: u64,
}

impl Source {
    pub(super) fn new() -> Self {
        Source {
            next: 1 << 40,
            owned: BTreeMap::new(),
            left: u64::MAX,
            asked: 0,
        }
    }
    pub(super) fn bytes(&self) -> u64 {
        self.owned.values().sum()
    }
}

impl FrameSource<PhysAddr> for Source {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        assert!(want.bytes >= 4096 && want.bytes.is_power_of_two());
        self.asked += 1;
        if self.left == 0 {
            return Err(NoFrames { bytes: want.bytes });
        }
        self.left -= 1;
        let base = self.next.next_multiple_of(want.bytes);
        self.next = base + want.bytes;
        self.owned.insert(base, want.bytes);
        Ok(Frame {
            base: PhysAddr(base),
        })
    }
    fn free(&mut self, frame: Frame<PhysAddr>, bytes: u64) {
        assert_eq!(self.owned.remove(&frame.base.0), Some(bytes));
    }
}

pub(super) type Table = Elastic<PteCluster, PhysAddr>;

/// A table with all that it stands on, and the map that it has to agree with.
pub(super) struct Bench {
    pub(super) table: Table,
    pub(super) source: Source,
    pub(super) l2p: L2p,
    pub(super) work: MapWork,
    pub(super) oracle: BTreeMap<u64, Line>,
}

pub(super) fn line_of(key: u64) -> Line {
    PteCluster::with(key, (key % 8) as usize, 1 | (key & 0xff_ffff) << 12)
}

impl Bench {
    pub(super) fn new(spec: &ElasticSpec, seed: u64) -> Self {
        assert_eq!(spec.check(), Ok(()));
        Bench {
            table: Table::new(spec, Some(PageSize::K4), seed, Asid(1)),
            source: Source::new(),
            l2p: L2p::new(usize::from(spec.ways), spec.l2p_entries as usize),
            work: MapWork::default(),
            oracle: BTreeMap::new(),
        }
    }
    pub(super) fn insert(&mut self, key: u64) -> Result<(), NoFrames> {
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut self.work,
        };
        let line = line_of(key);
        let mut ways = BTreeMap::new();
        let mut landed = |key, way| {
            ways.insert(key, way);
        };
        let place = self.table.insert(key, line, &mut env, &mut landed)?;
        assert_eq!(*self.table.line(place), line);
        assert_eq!(ways.get(&key), Some(&place.way));
        for (key, way) in ways {
            assert_eq!(self.table.find(key).map(|p| p.way), Some(way));
        }
        self.oracle.insert(key, line);
        Ok(())
    }
    pub(super) fn remove(&mut self, key: u64) {
        let place = self.table.find(key).expect("it is there");
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut self.work,
        };
        self.table.remove(place, &mut env, &mut |_, _| {});
        self.oracle.remove(&key);
    }
    pub(super) fn check(&self) {
        for (&key, line) in &self.oracle {
            let place = self
                .table
                .find(key)
                .unwrap_or_else(|| panic!("{key:#x} is lost"));
            assert_eq!(self.table.line(place), line);
        }
        let mut n = 0;
        self.table.for_each(&mut |_| n += 1);
        assert_eq!(
            (n, self.table.lines()),
            (self.oracle.len(), self.oracle.len() as u64)
        );
        assert_eq!(self.table.bytes(), self.source.bytes());
    }
}

#[test]
fn lines_come_and_go() {
    for spec in [
        ElasticSpec::from(&ElasticCuckooSpec::default()),
        ElasticSpec::from(&MemoryEfficientSpec::default()),
    ] {
        let mut b = Bench::new(&spec, 1);
        for k in 0..20000 {
            b.insert(k * 7).unwrap();
            if k % 1000 == 0 {
                b.check();
            }
        }
        for k in 0..20000 {
            b.remove(k * 7);
            if k % 1000 == 0 {
                b.check();
            }
        }
        b.check();
    }
}
