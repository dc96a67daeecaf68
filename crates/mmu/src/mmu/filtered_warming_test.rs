//! Filtered functional warming leaves the same last-level TLB, and makes the same page-table reads,
//! as full warming.

use super::common::{Flat, L2_TLB, array, cache, mmu, walk_context};
use pagewalk_memory::{Below, Done, Enter, Level, Private, PrivateSpec, Request};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View, WalkCacheKind};
use pagewalk_units::{Access, Asid, Cycle, Page, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

use super::{Fault, Lookup, Mmu, NO_PAGE};
use crate::engine::{Engine, Guesses, Miss, Seen, What};
use crate::source::{Place, Ports, Probed, TranslationSource};
use crate::{MmuSpec, NextPageSpec, TlbPrefetcherSpec, TlbReplacement};

/// A mock of the memory that records the requests.
#[derive(Default)]
struct RequestRecorder(Vec<PhysAddr>);

impl Below for RequestRecorder {
    fn access(&mut self, _: Request, now: Cycle) -> Done {
        Done::new(now, Level::Memory)
    }
    fn write_back(&mut self, _: PhysAddr, _: u8, _: Cycle) {}
    fn dropped(&mut self, _: PhysAddr, _: u8) {}
    fn delay(&self, _: PhysAddr, _: Cycle) -> Cycle {
        0
    }
    fn warm(&mut self, request: Request) {
        self.0.push(request.at);
    }
    fn warm_write_back(&mut self, _: PhysAddr, _: u8) {}
}

/// Small caches, which miss often.
fn caches() -> Private {
    let spec = PrivateSpec {
        l1i: cache(1, 2, 4, 8),
        l0d: None,
        l1d: cache(1, 2, 4, 8),
        l2: cache(4, 2, 14, 8),
        l3: None,
        walks_enter: Enter::L2,
        l1d_fill_bytes: None,
        write_combining_buffers: 4,
    };
    Private::new(&spec, 0).expect("possible")
}

struct Machine {
    mmu: Mmu,
    private: Private,
    below: RequestRecorder,
}

impl Machine {
    fn new(spec: &MmuSpec) -> Self {
        Machine {
            mmu: Mmu::new(spec, 0).expect("possible"),
            private: caches(),
            below: RequestRecorder::default(),
        }
    }

    fn access(
        &mut self,
        filtered: bool,
        table: &Flat,
        (asid, va, access): (Asid, VirtAddr, Access),
    ) -> Result<PhysAddr, Fault> {
        let view = View::Native(table);
        let context = walk_context(&view, &mut self.private, &mut self.below);
        if filtered {
            self.mmu.warm_filtered(asid, va, access, context)
        } else {
            self.mmu.warm(asid, va, access, 0, context)
        }
    }

    /// Keys of each array of the second level, in order of use.
    fn second(&self) -> Vec<Vec<u64>> {
        let levels = self.mmu.l2.iter().flatten();
        let arrays = levels.flat_map(|level| &level.arrays);
        arrays.map(|array| array.state().0).collect()
    }
}

/// A small first level, no walk caches, and a second level of these arrays, for data and, if given,
/// for instructions.
fn spec(second: &[(&str, crate::TlbSpec)], own: &[(&str, crate::TlbSpec)]) -> MmuSpec {
    let level = |arrays: &[(&str, crate::TlbSpec)]| {
        let named = arrays
            .iter()
            .map(|(name, array)| ((*name).to_owned(), array.clone()));
        named.collect()
    };
    let mut spec = mmu();
    let one = [("main", array(&PageSize::ALL, 1, 1, 1))];
    (spec.l1d, spec.l1i) = (level(&one), level(&one));
    (spec.l2, spec.l2i) = (level(second), level(own));
    spec.walk_caches.entries = 0;
    spec
}

#[test]
fn filtered_warming_leaves_the_same_state_as_full_warming() {
    let both = [PageSize::K4, PageSize::M2];
    let specs = [
        spec(&[("main", array(&both, 96, 12, L2_TLB))], &[]),
        spec(
            &[
                ("huge", array(&[PageSize::M2, PageSize::G1], 16, 16, L2_TLB)),
                ("main", array(&[PageSize::K4], 64, 8, L2_TLB)),
            ],
            &[("main", array(&both, 24, 4, L2_TLB))],
        ),
        // Larger pages are cached in pieces.
        spec(&[("main", array(&[PageSize::K4], 56, 8, L2_TLB))], &[]),
    ];
    for spec in specs {
        let [mut filtered, mut warmed] = [(); 2].map(|()| Machine::new(&spec));
        let mut r = rng(3, "test.filtered");
        let (mut protected, mut faults) = (false, 0);
        for _ in 0..40 {
            let view: &Flat = &Flat::new(1 << 34);
            assert!(filtered.mmu.begin_filtered_warming(&View::Native(view)));
            assert!(filtered.private.begin_filtered_warming());
            for _ in 0..1500 {
                let va = r.random_range(0..200u64) << 12
                    | u64::from(r.random_range(0..3u8)) << 31
                    | r.random_range(0..4096);
                let (asid, va) = (Asid(1 + r.random_range(0..2)), VirtAddr(va));
                if r.random_range(0..200) == 0 {
                    protected = !protected;
                    let page = va.page(PageSize::K4);
                    let at = page.base;
                    let what = [
                        Invalidation::Space { asid },
                        Invalidation::Page { asid, page },
                        Invalidation::Range {
                            asid,
                            at,
                            bytes: 90 << 12,
                        },
                    ];
                    let what = what[r.random_range(0..3)];
                    filtered.mmu.invalidate(&what);
                    warmed.mmu.invalidate(&what);
                }
                let mut table = Flat::new(1 << 34);
                table.size = PageSize::ALL[(va.0 >> 31) as usize % 3];
                table.writable = !protected;
                let access = [Access::Read, Access::Write, Access::Fetch][r.random_range(0..3)];
                let access = (asid, va, access);
                let found = filtered.access(true, &table, access);
                assert_eq!(found, warmed.access(false, &table, access));
                faults += usize::from(found.is_err());
                // Empty the first level of both, so that every access reaches the second.
                filtered.mmu.filtered.as_mut().unwrap().clear();
                warmed.mmu.filter = [NO_PAGE; 2];
                for array in warmed.mmu.l1.iter_mut().flat_map(|l| &mut l.arrays) {
                    for asid in [1, 2] {
                        array.drop_space(Asid(asid));
                    }
                }
            }
            filtered.mmu.end_filtered_warming();
            filtered.private.end_filtered_warming();
            assert_eq!(filtered.second(), warmed.second());
        }
        assert!(filtered.below.0 == warmed.below.0);
        assert!(faults > 100 && filtered.below.0.len() > 10_000);
    }
}

/// Alternating pages of two parts of the address space: entries above the leaves are read once.
#[test]
fn walk_caches_save_reads_in_filtered_warming() {
    let mut spec = mmu();
    spec.walk_caches.entries = 8;
    let mut m = Machine::new(&spec);
    m.private = super::common::caches(8);
    let table = Flat::new(1 << 34);
    assert!(m.mmu.begin_filtered_warming(&View::Native(&table)));
    let page = |n: u64| Page::<VirtAddr> {
        base: VirtAddr((n & 1) << 30 | n << 16),
        size: PageSize::K4,
    };
    for n in 0..16 {
        let access = (Asid(1), page(n).base, Access::Read);
        m.access(true, &table, access).expect("mapped");
    }
    m.mmu.end_filtered_warming();
    // Lines of entries: one of the root and one of the next level, which both parts share, and one
    // for each part. Each page has a leaf line of its own, since the pages are 64 KB apart.
    assert_eq!(m.below.0.len(), 1 + 1 + 2 + 16);
    // Entries above the leaves are read once for each part, and the root's once. They are not
    // requested again, although no cache holds them.
    let mut again = Machine::new(&spec);
    assert!(again.mmu.begin_filtered_warming(&View::Native(&table)));
    let reads = |m: &Machine| m.below.0.len();
    for n in 0..16 {
        let access = (Asid(1), page(n).base, Access::Read);
        let before = reads(&again);
        again.access(true, &table, access).expect("mapped");
        assert!(n < 2 || reads(&again) == before + 1, "the leaf's alone");
    }
}

/// A part that only says if it can be warmed in filtered form.
struct Says(bool);

impl TranslationSource for Says {
    fn name(&self) -> &'static str {
        "says"
    }
    fn probe(&mut self, lookup: &Lookup, _: &mut Ports<'_>) -> Probed {
        Probed::Miss { at: lookup.now }
    }
    fn invalidate(&mut self, _: &Invalidation) {}
    fn can_filtered_warm(&self) -> bool {
        self.0
    }
    fn report(&self, _: &str, _: &mut Tree) {}
}

impl Engine for Says {
    fn latency(&self) -> Cycle {
        0
    }
    fn makes(&self, _: What) -> bool {
        false
    }
    fn guess(&mut self, _: &Miss, _: &Seen<'_>) -> Guesses {
        Guesses::new()
    }
    fn can_filtered_warm(&self) -> bool {
        self.0
    }
}

#[test]
fn each_part_says_if_it_can_be_warmed_in_filtered_form() {
    let table = Flat::new(1 << 34);
    let begins = |mut m: Mmu| m.begin_filtered_warming(&View::Native(&table));
    let plain = || Mmu::new(&mmu(), 0).expect("possible");
    assert!(begins(plain()));
    for says in [true, false] {
        assert_eq!(begins(plain().with_engine(Box::new(Says(says)))), says);
        let mut m = plain();
        m.add_source(Place::BeforeWalk, Box::new(Says(says)));
        assert_eq!(begins(m), says);
    }
    assert!(!begins(plain().with_stlt(true)));
    assert!(!begins(plain().serving(WalkCacheKind::Nothing)));
    let mut prefetching = mmu();
    prefetching.prefetcher = Some(TlbPrefetcherSpec::NextPage(NextPageSpec {
        degree: 1,
        buffer: 0,
    }));
    assert!(!begins(Mmu::new(&prefetching, 0).expect("possible")));
}

#[test]
fn only_ranked_lru_arrays_are_exported() {
    let table = Flat::new(1 << 34);
    let by_policy = |replacement| {
        let mut spec = mmu();
        spec.l2
            .values_mut()
            .for_each(|t| t.replacement = replacement);
        spec
    };
    for (name, policy) in TlbReplacement::all() {
        let mut m = Mmu::new(&by_policy(policy), 0).expect("possible");
        let exported = m.begin_filtered_warming(&View::Native(&table));
        assert_eq!(exported, policy == TlbReplacement::Lru, "{name}");
    }
    let mut wide = mmu();
    wide.l2
        .values_mut()
        .for_each(|t| (t.entries, t.ways) = (64, 64));
    assert!(
        !Mmu::new(&wide, 0)
            .unwrap()
            .begin_filtered_warming(&View::Native(&table))
    );
    let mut none = mmu();
    none.l2 = Default::default();
    assert!(
        !Mmu::new(&none, 0)
            .unwrap()
            .begin_filtered_warming(&View::Native(&table))
    );
}
