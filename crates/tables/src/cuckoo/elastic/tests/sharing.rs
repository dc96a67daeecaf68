//! Tables of several page sizes in one L2P table.

use pagewalk_units::{Asid, PageSize};

use super::{Table, TestFrames, line_of};
use crate::cuckoo::elastic::{Env, Way};
use crate::cuckoo::l2p::L2p;
use crate::cuckoo::spec::{ElasticSpec, MemoryEfficientSpec};
use crate::{MapWork, Owner};

struct Process {
    tables: [Table; 3],
    source: TestFrames,
    l2p: L2p,
}

impl Process {
    fn new() -> Self {
        let spec = ElasticSpec::from(&MemoryEfficientSpec::default());
        let table =
            |size: PageSize| Table::new(&spec, Some(size), size as u64, Owner::new(Asid(1), 1));
        Process {
            tables: PageSize::ALL.map(table),
            source: TestFrames::new(),
            l2p: L2p::new(3, 32),
        }
    }
    fn insert(&mut self, size: PageSize, key: u64) {
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut MapWork::default(),
        };
        let table = &mut self.tables[size.index()];
        table
            .insert(key, line_of(key), &mut env, &mut |_, _| {})
            .expect("there is memory");
        for way in 0..3 {
            let used = |size| self.l2p.used_by(way, size);
            assert!(PageSize::ALL.map(used).iter().sum::<u32>() <= 96);
            for (table, size) in self.tables.iter().zip(PageSize::ALL) {
                let blocks = table.ways.get(way).map_or(0, Way::blocks);
                assert_eq!(used(size) as usize, blocks);
                assert!(used(size) <= 65);
            }
        }
    }
    fn remove(&mut self, size: PageSize, key: u64) {
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut MapWork::default(),
        };
        let table = &mut self.tables[size.index()];
        let place = table.find(key).unwrap();
        table.remove(place, &mut env, &mut |_, _| {});
    }
}

#[test]
fn page_sizes_grow_in_each_others_way_and_none_is_refused() {
    // Different orders of growth, ending with all three page sizes present.
    use PageSize::{G1, K4, M2};
    for order in [
        [K4, M2, G1],
        [M2, K4, G1],
        [G1, K4, M2],
        [K4, G1, M2],
        [M2, G1, K4],
    ] {
        let mut p = Process::new();
        let mut n = [0u64; 3];
        for size in order {
            // Up to 16 MB for each way; few 1 GB pages.
            let lines = if size == G1 { 300 } else { 300_000 };
            while n[size.index()] < lines {
                p.insert(size, n[size.index()]);
                n[size.index()] += 1;
            }
        }
        for size in order {
            for key in (0..n[size.index()]).rev() {
                p.remove(size, key);
            }
            // Insertions complete the downsize.
            for key in 0..40 {
                p.insert(size, key);
            }
        }
        for size in order {
            for key in 0..40 {
                assert!(p.tables[size.index()].find(key).is_some());
            }
        }
    }
}

#[test]
fn both_sizes_of_clusters_grow_together() {
    let mut p = Process::new();
    for n in 0..60_000 {
        for size in [PageSize::K4, PageSize::M2] {
            p.insert(size, n);
        }
        if n % 500 == 0 {
            p.insert(PageSize::G1, n / 500);
        }
    }
    for n in 0..60_000 {
        for size in [PageSize::K4, PageSize::M2] {
            assert!(p.tables[size.index()].find(n).is_some());
        }
    }
}

/// A way may use all of its 96 entries (figure 6). A page size that then needs
/// larger chunks changes to them at once.
#[test]
fn a_change_of_the_chunk_size_without_a_free_entry_is_made_at_once() {
    use PageSize::{G1, K4, M2};
    let mut p = Process::new();
    let (mut n, mut full) = ([0u64; 3], 0);
    let grow = |p: &mut Process, n: &mut [u64; 3], size: PageSize| {
        p.insert(size, n[size.index()]);
        n[size.index()] += 1;
    };
    while p.tables[M2.index()].slots_of(0) < 32 * 128 {
        grow(&mut p, &mut n, M2);
    }
    while (0..3).any(|way| p.l2p.used_by(way, M2) < 32) {
        grow(&mut p, &mut n, M2);
    }
    // Grow to three ways of 1 MB, which would need more chunks of 8 KB than there
    // are entries.
    while p.tables[K4.index()].largest() < 1 << 20 {
        grow(&mut p, &mut n, K4);
        full += u32::from((0..3).any(|way| p.l2p.used_by(way, K4) == 64));
        assert!(p.l2p.used_by(0, G1) == 0);
    }
    assert!(full > 0);
    let stats = p.tables[K4.index()].stats();
    assert!(stats.changed_at_once > 0, "{stats:?}");
    assert_eq!(p.l2p.peak(), 3 * 96);
    for size in [K4, M2] {
        for key in 0..n[size.index()] {
            assert!(p.tables[size.index()].find(key).is_some());
        }
    }
}
