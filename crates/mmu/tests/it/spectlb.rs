//! Contents, timing and effects of a SpecTLB.

use crate::common::{L2, L2_TLB, Memory, caches, counted, load, mmu, walk_context};
use crate::pages::Pages;
use pagewalk_memory::Private;
use pagewalk_mmu::{Detect, EngineSpec, Fault, Lookup, Mmu, SpecTlbSpec, Translated};
use pagewalk_tables::{Flags, Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, PageSize, VirtAddr, rng};
use rand::RngExt;

const DRAM: Cycle = 200;
const SPECTLB: Cycle = 4;
const MB2: u64 = 2 << 20;
const RESERVED: Flags = Flags(Flags::WRITABLE.0 | Flags::RESERVED.0);

fn spec(entries: u32, ways: u32, detect: Detect) -> SpecTlbSpec {
    SpecTlbSpec {
        entries,
        ways,
        latency: SPECTLB,
        detect,
    }
}

struct Bench {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    table: Pages,
    /// The host's table, for a virtual machine.
    host: Option<Pages>,
}

impl Bench {
    fn new(engine: Option<SpecTlbSpec>) -> Self {
        let mut spec = mmu();
        // Almost every access walks.
        for level in [&mut spec.l1d, &mut spec.l2] {
            let array = level.get_mut("main").expect("main");
            (array.entries, array.ways) = (1, 1);
        }
        let mut unit = Mmu::new(&spec, 0).expect("a possible MMU");
        if let Some(engine) = engine {
            let engine = EngineSpec::SpecTlb(engine);
            engine.check().expect("possible");
            unit = unit.with_engine(engine.build(2.0));
        }
        Bench {
            mmu: unit,
            private: caches(64).with_speculation(),
            memory: Memory::new(DRAM),
            table: Pages::default(),
            host: None,
        }
    }
    /// A reservation of `pages` pages: region and block by number.
    fn reserve(&mut self, region: u64, block: u64, pages: u64) {
        for i in 0..pages {
            let at = |n: u64| n * MB2 + (i << 12);
            self.table
                .map(at(region), PageSize::K4, at(block), RESERVED);
        }
    }
    fn look_up(
        &mut self,
        asid: Asid,
        va: u64,
        access: Access,
        now: Cycle,
    ) -> Result<Translated, Fault> {
        let view = match &self.host {
            None => View::Native(&self.table),
            Some(host) => View::Nested {
                guest: &self.table,
                host,
            },
        };
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        let va = VirtAddr(va);
        let lookup = Lookup {
            asid,
            va,
            access,
            pc: 0,
            now,
        };
        self.mmu.translate(lookup, context)
    }
    fn translate(&mut self, va: u64, now: Cycle) -> Translated {
        self.look_up(Asid(1), va, Access::Read, now)
            .expect("mapped")
    }
    /// Cycles at which the translation and the data of a load are ready.
    fn load(&mut self, va: u64, now: Cycle) -> (Cycle, Cycle) {
        let answer = self.translate(va, now);
        (answer.ready, self.fetch(answer))
    }
    /// Cycle at which the line of a translated load is ready.
    fn fetch(&mut self, answer: Translated) -> Cycle {
        load(&answer, &mut self.private, &mut self.memory)
    }
    fn get(&self, path: &str, name: &str) -> u64 {
        counted(&self.mmu, &self.private)
            .get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }
    fn own(&self, name: &str) -> u64 {
        self.get("mmu.engine.spectlb", name)
    }
    fn data(&self, name: &str) -> u64 {
        self.get("mmu.engine.data", name)
    }
}

#[test]
fn the_second_page_of_a_reservation_is_fetched_while_its_walk_goes_on() {
    let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
    b.reserve(5, 9, 40);
    let walk = L2_TLB + DRAM;
    // The region is new: walk, then data.
    assert_eq!(b.load(5 * MB2, 0), (walk, walk + DRAM));
    // Entry and data come from memory in parallel, the data four cycles later.
    let now = 10_000;
    let far = 5 * MB2 + (30 << 12) + 64;
    assert_eq!(b.load(far, now), (now + walk, now + walk + L2));
    assert_eq!((b.data("guesses"), b.data("right")), (1, 1));
    assert_eq!(
        (b.own("lookups"), b.own("hits"), b.own("misses")),
        (2, 1, 1)
    );
    assert_eq!(b.own("fills"), 1);
    // A walk that takes no longer than the L2 waits for the line.
    let near = far + 4096;
    let known = now + 10_000 + L2_TLB + L2;
    let fetched = now + 10_000 + L2_TLB + SPECTLB + DRAM;
    assert_eq!(b.load(near, now + 10_000), (known, fetched));
}

#[test]
fn an_entry_answers_from_the_end_of_its_walk_on() {
    for (later, guesses) in [(DRAM - 1, 0), (DRAM, 1)] {
        let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
        b.reserve(5, 9, 4);
        let end = b.translate(5 * MB2, 0).ready;
        assert_eq!(end, L2_TLB + DRAM);
        b.translate(5 * MB2 + 4096, later);
        assert_eq!(b.data("guesses"), guesses);
    }
    // With two concurrent walks, the first to end fills the entry.
    let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
    b.reserve(5, 9, 16);
    b.translate(5 * MB2, 100);
    b.translate(5 * MB2 + (8 << 12), 0);
    b.translate(5 * MB2 + (9 << 12), DRAM);
    assert_eq!((b.own("fills"), b.own("hits")), (1, 1));
}

#[test]
fn accesses_that_wait_for_a_walk_are_counted_apart_and_guess_their_own_line() {
    let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
    b.reserve(5, 9, 4);
    b.translate(5 * MB2, 0);
    let page = 5 * MB2 + 4096;
    for (n, at) in [0, 64, 128, 128].into_iter().enumerate() {
        b.translate(page + at, 1000 + n as u64);
    }
    assert_eq!((b.own("lookups"), b.own("hits")), (2, 1));
    assert_eq!((b.own("merged_lookups"), b.own("merged_hits")), (3, 3));
    assert_eq!((b.data("guesses"), b.data("right")), (4, 4));
    assert_eq!((b.data("fetched"), b.data("merged")), (3, 1));
    assert_eq!(b.get("mmu", "walks"), b.own("lookups"));
    assert_eq!(b.get("mmu", "walks_merged"), b.own("merged_lookups"));
}

/// Model: regions in order of use, set by set.
struct Model {
    sets: Vec<Vec<(u16, u64)>>,
    ways: usize,
}

impl Model {
    fn new(entries: usize, ways: usize) -> Self {
        Model {
            sets: vec![vec![]; entries / ways],
            ways,
        }
    }
    fn set(&mut self, region: u64) -> &mut Vec<(u16, u64)> {
        let n = self.sets.len() as u64;
        &mut self.sets[(region % n) as usize]
    }
    /// True if the region is present; it becomes the most recently used.
    fn use_it(&mut self, asid: u16, region: u64) -> bool {
        let set = self.set(region);
        match set.iter().position(|e| *e == (asid, region)) {
            None => false,
            Some(at) => {
                let e = set.remove(at);
                set.push(e);
                true
            }
        }
    }
    fn put(&mut self, asid: u16, region: u64) {
        let ways = self.ways;
        let set = self.set(region);
        if set.len() == ways {
            set.remove(0);
        }
        set.push((asid, region));
    }
}

#[test]
fn it_hits_where_lists_in_order_of_use_do() {
    for (entries, ways) in [(8, 4), (12, 4), (4, 4), (6, 1)] {
        let mut b = Bench::new(Some(spec(entries, ways, Detect::Flag)));
        let mut model = Model::new(entries as usize, ways as usize);
        for region in 0..30 {
            // Every third region has no reservation.
            let flags = if region % 3 == 2 {
                Flags::WRITABLE
            } else {
                RESERVED
            };
            for i in 0..64 {
                let at = |n: u64| n * MB2 + (i << 12);
                b.table
                    .map(at(region), PageSize::K4, at(100 - region), flags);
            }
        }
        let mut r = rng(3, "test.spectlb");
        let (mut now, mut fills) = (0, 0);
        let mut latest = u64::MAX;
        for _ in 0..4000 {
            let region = r.random_range(0..30u64);
            let asid = 1 + u16::from(r.random_range(0..4) == 0);
            let va = region * MB2 + (r.random_range(0..64) << 12);
            if std::mem::replace(&mut latest, va) == va {
                continue;
            }
            now += 10_000;
            let before = b.own("hits");
            b.look_up(Asid(asid), va, Access::Read, now)
                .expect("mapped");
            let hit = model.use_it(asid, region);
            if !hit && region % 3 != 2 {
                model.put(asid, region);
                fills += 1;
            }
            assert_eq!(b.own("hits") - before, u64::from(hit), "{region} of {asid}");
            if r.random_range(0..50) == 0 {
                let gone = r.random_range(0..30u64);
                b.mmu.invalidate(&Invalidation::Range {
                    asid: Asid(asid),
                    at: VirtAddr(gone * MB2 + 4096),
                    bytes: 4096,
                });
                model.set(gone).retain(|e| *e != (asid, gone));
                latest = u64::MAX;
            }
        }
        assert_eq!(b.own("fills"), fills);
        assert!(b.own("hits") > 300 && b.own("invalidated") > 5);
        assert_eq!(b.own("mispredictions"), 0);
        assert_eq!(b.data("right"), b.own("hits"));
    }
}

#[test]
fn a_bit_of_the_kernel_identifies_reservations_exactly_and_offsets_by_chance() {
    for (detect, flags, shifted, hits) in [
        (Detect::Flag, RESERVED, 0, 1),
        (Detect::Flag, Flags::WRITABLE, 0, 0),
        (Detect::Offset, Flags::WRITABLE, 0, 1),
        (Detect::Offset, RESERVED, 1, 0),
    ] {
        let mut b = Bench::new(Some(spec(64, 4, detect)));
        for i in 0..4u64 {
            let frame = 9 * MB2 + ((i + shifted) << 12);
            b.table.map(5 * MB2 + (i << 12), PageSize::K4, frame, flags);
        }
        b.translate(5 * MB2, 0);
        b.translate(5 * MB2 + 4096, 10_000);
        assert_eq!(b.own("hits"), hits, "{detect:?} {flags:?}");
    }
    // A page that lies in place by chance creates a wrong entry: the next walk removes or corrects
    // it.
    for (reserved, hits) in [(false, 1), (true, 2)] {
        let mut b = Bench::new(Some(spec(64, 4, Detect::Offset)));
        b.table.map(5 * MB2, PageSize::K4, 3 * MB2, Flags::WRITABLE);
        for i in 1..4u64 {
            let frame = 9 * MB2 + ((i + u64::from(!reserved)) << 12);
            b.table
                .map(5 * MB2 + (i << 12), PageSize::K4, frame, Flags::WRITABLE);
            b.translate(5 * MB2, 0);
        }
        b.translate(5 * MB2 + 4096, 10_000);
        assert_eq!((b.own("mispredictions"), b.data("wrong")), (1, 1));
        b.translate(5 * MB2 + 8192, 20_000);
        assert_eq!((b.own("mispredictions"), b.own("hits")), (1, hits));
    }
}

#[test]
fn a_region_that_the_kernel_has_changed_is_forgotten() {
    let page = |size| Invalidation::Page {
        asid: Asid(1),
        page: VirtAddr(5 * MB2 + 8192).page(size),
    };
    let range = |at, bytes| Invalidation::Range {
        asid: Asid(1),
        at: VirtAddr(at),
        bytes,
    };
    let space = |asid| Invalidation::Space { asid: Asid(asid) };
    for (what, stays) in [
        (page(PageSize::K4), false),
        (page(PageSize::M2), false),
        (page(PageSize::G1), false),
        (range(5 * MB2, MB2), false),
        (range(4 * MB2, MB2 + 1), false),
        (range(6 * MB2 - 4096, 3 * MB2), false),
        (range(4 * MB2, MB2), true),
        (range(6 * MB2, 8 * MB2), true),
        (space(1), false),
        (space(2), true),
    ] {
        let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
        b.reserve(5, 9, 4);
        b.translate(5 * MB2, 0);
        b.mmu.invalidate(&what);
        b.translate(5 * MB2 + 4096, 10_000);
        assert_eq!(b.own("hits"), u64::from(stays), "{what:?}");
        assert_eq!(b.own("invalidated"), u64::from(!stays), "{what:?}");
    }
}

#[test]
fn after_a_demotion_and_new_frames_no_guess_is_made_from_the_old_reservation() {
    let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
    b.reserve(5, 9, 4);
    b.translate(5 * MB2, 0);
    // The kernel breaks the reservation and later allocates other frames.
    for i in 0..8u64 {
        let frame = 77 * MB2 + ((511 - i) << 12);
        b.table
            .map(5 * MB2 + (i << 12), PageSize::K4, frame, Flags::WRITABLE);
    }
    b.mmu.invalidate(&Invalidation::Range {
        asid: Asid(1),
        at: VirtAddr(5 * MB2),
        bytes: MB2,
    });
    for i in 0..8 {
        b.translate(5 * MB2 + (i << 12), 10_000 * (i + 1));
    }
    assert_eq!((b.data("guesses"), b.own("fills")), (0, 1));
    // A region that has become one page needs no entry.
    b.table.map(5 * MB2, PageSize::M2, 9 * MB2, Flags::WRITABLE);
    b.mmu.invalidate(&Invalidation::Space { asid: Asid(1) });
    b.translate(5 * MB2, 200_000);
    assert_eq!((b.data("guesses"), b.own("fills")), (0, 1));
}

#[test]
fn a_first_touch_is_a_wrong_guess_and_leaves_the_entry() {
    let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
    b.reserve(5, 9, 2);
    b.translate(5 * MB2, 0);
    let new = 5 * MB2 + (2 << 12);
    b.look_up(Asid(1), new, Access::Write, 10_000)
        .expect_err("not mapped");
    assert_eq!((b.data("wrong"), b.own("mispredictions")), (1, 0));
    b.reserve(5, 9, 3);
    b.translate(new, 20_000);
    assert_eq!((b.own("hits"), b.data("right")), (2, 1));
}

#[test]
fn in_a_virtual_machine_guest_and_host_have_to_have_reserved() {
    for (guest, host, hits) in [
        (RESERVED, RESERVED, 1),
        (RESERVED, Flags::WRITABLE, 0),
        (Flags::WRITABLE, RESERVED, 0),
    ] {
        let mut b = Bench::new(Some(spec(64, 4, Detect::Flag)));
        let (mut inner, mut outer) = (Pages::default(), Pages::default());
        for i in 0..4 {
            let at = |n: u64| n * MB2 + (i << 12);
            inner.map(at(5), PageSize::K4, at(7), guest);
            outer.map(at(7), PageSize::K4, at(9), host);
            let entry = Pages::entry(at(5)) & !0xfff;
            outer.map(entry, PageSize::K4, entry, host);
        }
        (b.table, b.host) = (inner, Some(outer));
        b.translate(5 * MB2, 0);
        let answer = b.translate(5 * MB2 + 4096 + 8, 10_000);
        assert_eq!(answer.pa.0, 9 * MB2 + 4096 + 8);
        assert_eq!((b.own("hits"), b.data("right")), (hits, hits));
    }
}

#[test]
fn guesses_change_when_things_happen_and_nothing_else() {
    let mut with = Bench::new(Some(spec(8, 4, Detect::Offset)));
    let mut without = Bench::new(None);
    let mut r = rng(9, "test.spectlb.law");
    let mut now = 0;
    let mut sooner = 0;
    for step in 0..20_000u64 {
        let va = r.random_range(0..12 * MB2);
        let page = va & !0xfff;
        if r.random_range(0..40) == 0 {
            // A page is mapped, unmapped or moved; half of them are in place.
            let frame = match r.random_range(0..2) {
                0 => 40 * MB2 + page,
                _ => r.random_range(0..1u64 << 20) << 12,
            };
            let gone = r.random_range(0..4) == 0;
            for b in [&mut with, &mut without] {
                if gone {
                    b.table.unmap(page, 64 << 12);
                } else {
                    for i in 0..64 {
                        let (va, frame) = (page + (i << 12), frame + (i << 12));
                        b.table.map(va, PageSize::K4, frame, Flags::WRITABLE);
                    }
                }
                b.mmu.invalidate(&Invalidation::Range {
                    asid: Asid(1),
                    at: VirtAddr(page),
                    bytes: 64 << 12,
                });
            }
        }
        now += r.random_range(0..300);
        let access = if step % 3 == 0 {
            Access::Write
        } else {
            Access::Read
        };
        let [a, b] = [&mut with, &mut without].map(|b| {
            let answer = b.look_up(Asid(1), va, access, now).ok()?;
            Some((answer.pa, b.fetch(answer)))
        });
        assert_eq!(a.map(|a| a.0), b.map(|b| b.0), "at {va:#x}");
        assert_eq!(a.is_some(), with.table.find(va).is_some());
        if let (Some((_, a)), Some((_, b))) = (a, b) {
            sooner += u64::from(a < b);
        }
    }
    assert!(with.data("right") > 100 && with.data("wrong") > 100);
    assert_eq!(
        with.own("hits") + with.own("merged_hits"),
        with.data("guesses")
    );
    assert_eq!(with.get("mmu", "walks"), with.own("lookups"));
    assert!(sooner > 100, "{sooner} lines came sooner");
}

#[test]
fn an_impossible_array_is_refused_by_key() {
    for (s, key) in [
        (spec(0, 4, Detect::Flag), "engine.spectlb.entries"),
        (spec(1 << 21, 4, Detect::Flag), "engine.spectlb.entries"),
        (spec(66, 4, Detect::Flag), "engine.spectlb.ways"),
        (spec(64, 0, Detect::Flag), "engine.spectlb.ways"),
        (
            SpecTlbSpec {
                latency: 1 << 40,
                ..spec(64, 4, Detect::Flag)
            },
            "engine.spectlb.latency",
        ),
    ] {
        let message = EngineSpec::SpecTlb(s).check().expect_err("impossible");
        assert!(message.to_string().starts_with(key), "{message}");
    }
}
