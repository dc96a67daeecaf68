//! Latencies of translations, and the state that they leave.

use crate::common::*;
use pagewalk_memory::Private;
use pagewalk_mmu::{Fault, Lookup, Mmu, MmuSpec, ServedBy, TlbReplacement, Translated};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

const A: Asid = Asid(1);
const DRAM: Cycle = 200;

fn lookup(va: u64, access: Access, now: Cycle) -> Lookup {
    Lookup {
        asid: A,
        va: VirtAddr(va),
        access,
        pc: 0,
        now,
    }
}

/// An MMU over its caches, a flat table and a memory.
struct Bench {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    table: Flat,
}

impl Bench {
    fn new(spec: &MmuSpec) -> Self {
        Bench {
            mmu: Mmu::new(spec, 0).expect("a possible MMU"),
            private: caches(16),
            memory: Memory::new(DRAM),
            table: Flat::new(1 << 39),
        }
    }
    fn try_translate(&mut self, va: u64, access: Access, now: Cycle) -> Result<Translated, Fault> {
        let view = View::Native(&self.table);
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        self.mmu.translate(lookup(va, access, now), context)
    }
    fn translate(&mut self, va: u64, now: Cycle) -> Translated {
        self.try_translate(va, Access::Read, now).expect("mapped")
    }
    fn warm(&mut self, va: u64) -> PhysAddr {
        let view = View::Native(&self.table);
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        self.mmu
            .warm(A, VirtAddr(va), Access::Read, 0, context)
            .expect("mapped")
    }
    fn tree(&self) -> Tree {
        let mut t = Tree::default();
        self.mmu.report("mmu", &mut t);
        t
    }
    fn get(&self, path: &str, name: &str) -> u64 {
        self.tree()
            .get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }
}

#[test]
fn a_first_walk_costs_the_lookups_and_four_reads_from_memory() {
    let mut b = Bench::new(&mmu());
    let a = b.translate(0x1234_5678, 1000);
    assert_eq!(a.pa, PhysAddr(0x1234_5678 ^ FLIP));
    assert_eq!(a.ready, 1000 + L2_TLB + 2 + 4 * DRAM);
    assert_eq!(a.from, ServedBy::Walk);
    let s = b.mmu.stats();
    assert_eq!((s.walks, s.walk_reads, s.walk_reads_memory), (1, 4, 4));
    assert_eq!(s.walk_cycles, 2 + 4 * DRAM);
}

#[test]
fn a_neighbouring_page_reads_one_entry_from_the_cache() {
    let mut b = Bench::new(&mmu());
    let t = b.translate(0, 0).ready;
    let a = b.translate(0x1000, t);
    assert_eq!(a.ready - t, L2_TLB + 2 + L2);
    assert_eq!(b.mmu.stats().walk_reads_l2, 1);
}

#[test]
fn without_walk_caches_a_walk_reads_every_level() {
    let mut spec = mmu();
    spec.walk_caches.entries = 0;
    let mut b = Bench::new(&spec);
    let t = b.translate(0, 0).ready;
    assert_eq!(t, L2_TLB + 4 * DRAM);
    assert_eq!(b.translate(0x1000, t).ready - t, L2_TLB + 4 * L2);
}

#[test]
fn a_first_level_hit_costs_nothing_and_a_second_level_hit_its_latency() {
    let mut b = Bench::new(&mmu());
    let t = b.translate(0, 0).ready;
    assert_eq!(b.translate(8, t).ready, t);
    for p in 1..=64u64 {
        b.translate(p << 12, t + p * 10_000);
    }
    let now = 1_000_000;
    let a = b.translate(0, now);
    assert_eq!((a.ready, a.from), (now + L2_TLB, ServedBy::L2));
    let a = b.translate(0, now);
    assert_eq!(
        (a.ready, a.from),
        (now + L2_TLB, ServedBy::L2),
        "its entry is on its way"
    );
    assert_eq!(b.translate(0, now + L2_TLB).ready, now + L2_TLB);
}

#[test]
fn a_first_level_slower_than_the_cache_costs_the_difference() {
    let mut spec = mmu();
    spec.l1d.get_mut("main").expect("main").latency = 7;
    let mut b = Bench::new(&spec);
    b.mmu.overlap_with_l1(L1);
    let t = b.translate(0, 0).ready;
    for va in [0, 8] {
        assert_eq!(b.translate(va, t).ready, t + 2);
    }
}

#[test]
fn a_second_miss_to_the_same_4_kb_page_waits_for_the_first_walk() {
    let mut b = Bench::new(&mmu());
    let first = b.translate(0x5000, 100).ready;
    let second = b.translate(0x5800, 120);
    assert_eq!((second.ready, second.from), (first, ServedBy::Walk));
    let late = b.translate(0x5800, first - 1);
    assert_eq!(
        late.ready,
        first - 1 + L2_TLB,
        "no sooner than the second level answers"
    );
    let s = b.mmu.stats();
    assert_eq!((s.walks, s.walks_merged), (1, 2));
    assert_eq!((s.l1d_misses, s.l1d_waits, s.l2_waits), (1, 2, 0));
}

#[test]
fn one_entry_fetched_is_one_miss_of_each_level_that_had_none() {
    let mut spec = mmu();
    let one = spec.l1d.get_mut("main").expect("main");
    (one.entries, one.ways) = (1, 1);
    let mut b = Bench::new(&spec);
    for (n, va) in [0x5000, 0x6000].into_iter().enumerate() {
        b.translate(va, 10_000 * n as u64);
    }
    // From the second level: the first access fetches the entry, those that wait for it do not.
    for later in 0..L2_TLB {
        let at = b.translate(0x5000, 100_000 + later).ready;
        assert_eq!(at, 100_000 + later + L2_TLB);
    }
    let s = b.mmu.stats();
    assert_eq!((s.l1d_misses, s.l1d_waits), (3, L2_TLB - 1));
    assert_eq!((s.l2_hits, s.walks, s.walks_merged), (1, 2, 0));
}

#[test]
fn an_entry_on_its_way_serves_only_its_4_kb_page() {
    let mut b = Bench::new(&mmu());
    b.table.size = PageSize::M2;
    let first = b.translate(0, 0).ready;
    let other = b.translate(0x7000, 10);
    assert_eq!(b.mmu.stats().walks, 2);
    assert!(other.ready > L2_TLB + 10);
    let t = first.max(other.ready);
    assert_eq!(
        b.translate(0x9000, t).from,
        ServedBy::L1,
        "ready, it serves all 2 MB"
    );
    assert_eq!(b.mmu.stats().walks, 2);
}

#[test]
fn a_request_from_before_the_walk_takes_its_role() {
    let mut b = Bench::new(&mmu());
    let later = b.translate(0x5000, 10_000).ready;
    let earlier = b.translate(0x5000, 500).ready;
    assert_eq!(earlier - 500, later - 10_000);
    assert_eq!(b.translate(0x5000, earlier).ready, earlier);
    let s = b.mmu.stats();
    assert_eq!((s.walks, s.walks_merged), (1, 1));
}

#[test]
fn w_walkers_serve_w_walks_at_a_time() {
    for walkers in [1, 2, 4, 8] {
        let mut spec = mmu();
        spec.walkers = walkers;
        spec.walk_caches.entries = 0;
        let mut b = Bench::new(&spec);
        // Entries of the upper levels are in the L2; leaves lie a line apart and come from memory.
        b.translate(0, 0);
        let start = 1_000_000;
        let each = 3 * L2 + DRAM;
        let n = 64;
        let end = (1..=n)
            .map(|p| b.translate(p * 8 * 4096, start).ready)
            .max()
            .expect("some");
        // Each walk reads 3 entries in the L2, but the level-2 entry changes line every 64 MB only.
        assert_eq!(end - start - L2_TLB, n / u64::from(walkers) * each);
        assert_eq!(b.mmu.stats().walker_wait_cycles > 0, n > u64::from(walkers));
    }
}

#[test]
fn a_write_to_a_read_only_page_faults_wherever_the_entry_is() {
    let mut b = Bench::new(&mmu());
    b.table.writable = false;
    let f = b
        .try_translate(0x1000, Access::Write, 0)
        .expect_err("read-only");
    assert_eq!(f.at, L2_TLB + 2 + 4 * DRAM);
    let t = b.translate(0x1000, 10_000).ready;
    let f = b
        .try_translate(0x1000, Access::Write, t)
        .expect_err("read-only");
    assert_eq!((f.va, f.access, f.at), (VirtAddr(0x1000), Access::Write, t));
    // The fault has dropped the entry: the next access sees the kernel's change.
    b.table.writable = true;
    b.try_translate(0x1000, Access::Write, t + 1000)
        .expect("writable now");
    assert_eq!(b.mmu.stats().faults, 2);
}

#[test]
fn an_unmapped_page_faults_after_the_walk() {
    let mut b = Bench::new(&mmu());
    let f = b
        .try_translate(1 << 40, Access::Read, 5)
        .expect_err("unmapped");
    assert!(f.at > 5 + L2_TLB + DRAM);
    assert_eq!(f.host, None);
    assert_eq!(b.mmu.stats().faults, 1);
}

#[test]
fn invalidations_reach_pages_of_every_size_and_no_others() {
    for size in [PageSize::K4, PageSize::M2] {
        let mut b = Bench::new(&mmu());
        b.table.size = size;
        b.translate(0x20_0000, 0);
        b.translate(0x80_0000, 50_000);
        let page = VirtAddr(0x20_0000).page(PageSize::K4);
        b.mmu.invalidate(&Invalidation::Page {
            asid: Asid(2),
            page,
        });
        assert_eq!(b.translate(0x20_0000, 100_000).from, ServedBy::L1);
        b.mmu.invalidate(&Invalidation::Page { asid: A, page });
        assert_eq!(b.translate(0x80_0000, 100_000).from, ServedBy::L1);
        assert_eq!(b.translate(0x20_0000, 100_000).from, ServedBy::Walk);
        b.mmu.invalidate(&Invalidation::Range {
            asid: A,
            at: VirtAddr(0x20_0000),
            bytes: 0x60_0000,
        });
        assert_eq!(b.translate(0x80_0000, 200_000).from, ServedBy::L1);
        assert_eq!(b.translate(0x20_0000, 200_000).from, ServedBy::Walk);
        b.mmu.invalidate(&Invalidation::Space { asid: A });
        assert_eq!(b.translate(0x80_0000, 300_000).from, ServedBy::Walk);
        assert_eq!(b.mmu.stats().invalidations, 4);
    }
}

#[test]
fn a_footprint_within_the_second_level_has_compulsory_misses_only() {
    let mut b = Bench::new(&mmu());
    let pages = 1536;
    let mut now = 0;
    for _ in 0..5 {
        for p in 0..pages {
            now = b.translate(p << 12, now).ready;
        }
    }
    assert_eq!(b.mmu.stats().walks, pages);
    assert_eq!(b.get("mmu.l2.main", "misses"), pages);
    assert_eq!(b.get("mmu.l2.main", "evictions"), 0);
}

#[test]
fn any_number_of_sets_is_used_whole() {
    let mut spec = mmu();
    spec.l2 = [("main".to_owned(), array(&[PageSize::K4], 1024, 12, L2_TLB))].into();
    let mut b = Bench::new(&spec);
    let mut now = 0;
    for _ in 0..3 {
        for p in 0..85 * 12 {
            now = b.translate(p << 12, now).ready;
        }
    }
    assert_eq!(b.mmu.stats().walks, 85 * 12);
}

/// A random walk over pages with much reuse: (address, access, time).
fn program(seed: u64, n: usize) -> Vec<(u64, Access, Cycle)> {
    let mut r = rng(seed, "test.mmu");
    let mut va = 0;
    let mut now = 0;
    (0..n)
        .map(|_| {
            if r.random_range(0..3) == 0 {
                va = r.random_range(0..4000u64) << 12;
            }
            now += r.random_range(0..40);
            let access = match r.random_range(0..4) {
                0 => Access::Write,
                1 => Access::Fetch,
                _ => Access::Read,
            };
            let at: Cycle = now + r.random_range(0..300);
            (va + r.random_range(0..4096), access, at)
        })
        .collect()
}

#[test]
fn lookups_hits_and_misses_add_up() {
    let mut spec = mmu();
    spec.l1d = [
        ("main".to_owned(), array(&[PageSize::K4], 64, 4, 1)),
        ("huge".to_owned(), array(&[PageSize::M2], 32, 4, 1)),
    ]
    .into();
    let mut b = Bench::new(&spec);
    let n = 20_000;
    for (i, (va, access, at)) in program(1, n).into_iter().enumerate() {
        b.table.size = if va >> 23 & 1 == 0 {
            PageSize::K4
        } else {
            PageSize::M2
        };
        b.try_translate(va, access, at).expect("mapped");
        if i % 5000 == 0 {
            b.mmu.invalidate(&Invalidation::Space { asid: A });
        }
    }
    let t = b.tree();
    let get = |p: &str, n: &str| t.get(p, n).expect("there");
    for array in ["l1d.main", "l1d.huge", "l1i.main", "l2.main"] {
        let p = format!("mmu.{array}");
        assert_eq!(
            get(&p, "hits") + get(&p, "waits") + get(&p, "misses"),
            get(&p, "lookups"),
            "{p}"
        );
        assert!(get(&p, "hits") > 0, "{p}");
    }
    let translations = get("mmu", "translations");
    assert_eq!(translations, n as u64);
    assert_eq!(
        translations,
        get("mmu.l1d.main", "lookups") + get("mmu.l1i.main", "lookups")
    );
    let l1_hits =
        get("mmu.l1d.main", "hits") + get("mmu.l1d.huge", "hits") + get("mmu.l1i.main", "hits");
    let l1_misses = get("mmu", "l1d_misses") + get("mmu", "l1i_misses");
    let l1_waits = get("mmu", "l1d_waits") + get("mmu", "l1i_waits");
    assert_eq!(translations, l1_hits + l1_waits + l1_misses);
    assert_eq!(l1_misses, get("mmu.l2.main", "lookups"));
    assert_eq!(
        l1_misses,
        get("mmu", "l2_hits") + get("mmu", "walks") + get("mmu", "l2_waits")
    );
    assert_eq!(get("mmu", "l2_hits"), get("mmu.l2.main", "hits"));
    assert_eq!(
        get("mmu.l2.main", "lookups") - get("mmu.l2.main", "hits"),
        get("mmu", "walks") + get("mmu", "l2_waits")
    );
    assert_eq!(
        get("mmu", "walk_reads"),
        get("mmu", "walk_reads_l1d")
            + get("mmu", "walk_reads_l2")
            + get("mmu", "walk_reads_l3")
            + get("mmu", "walk_reads_remote")
            + get("mmu", "walk_reads_memory")
    );
    let fetches = get("mmu", "walks_merged_fetches");
    assert!(0 < fetches && fetches < get("mmu", "walks_merged"));
}

#[test]
fn a_perfect_mmu_answers_at_once_and_is_never_slower() {
    let mut spec = mmu();
    spec.perfect = true;
    // Slower than the L1 cache: only the real MMU pays for that.
    spec.l1d.get_mut("main").expect("main").latency = L1 + 2;
    let mut perfect = Bench::new(&spec);
    perfect.mmu.overlap_with_l1(L1);
    let mut real = Bench::new(&mmu());
    for (va, access, at) in program(2, 5000) {
        let p = perfect.try_translate(va, access, at).expect("mapped");
        let r = real.try_translate(va, access, at).expect("mapped");
        assert_eq!((p.ready, p.pa), (at, r.pa));
        assert!(p.ready <= r.ready);
    }
    let s = perfect.mmu.stats();
    assert_eq!((s.translations, s.walks), (5000, 0));
    perfect.table.limit = 0;
    perfect.mmu.invalidate(&Invalidation::Space { asid: A });
    perfect
        .try_translate(0, Access::Read, 0)
        .expect_err("an unmapped page still faults");
}

#[test]
fn warming_leaves_the_state_of_timed_execution_and_counts_nothing() {
    let mut warmed = Bench::new(&mmu());
    let mut timed = Bench::new(&mmu());
    let mut now = 0;
    for (va, _, _) in program(3, 20_000) {
        assert_eq!(warmed.warm(va), PhysAddr(va ^ FLIP));
        now = timed.translate(va, now).ready;
    }
    let before = timed.tree();
    for row in &warmed.tree().rows {
        assert_eq!(row.value, 0, "{} {}", row.path, row.definition.name);
    }
    for (va, _, _) in program(4, 20_000) {
        let w = warmed.translate(va, now);
        let t = timed.translate(va, now);
        assert_eq!((w.from, w.ready), (t.from, t.ready));
        now = w.ready;
    }
    let since = timed.tree().since(&before);
    for (w, t) in warmed.tree().rows.iter().zip(&since.rows) {
        assert_eq!(w.value, t.value, "{} {}", w.path, w.definition.name);
    }
}

#[test]
fn walk_records_say_when_and_where_each_read_was_served() {
    let mut b = Bench::new(&mmu());
    b.translate(0, 0);
    b.mmu.record_walks(true);
    let now = 10_000;
    let a = b.translate(0x1000, now);
    b.translate(0x1008, now + 1);
    let walks = b.mmu.take_walk_records();
    assert_eq!(walks.len(), 2);
    let w = &walks[0];
    assert_eq!(
        (w.start, w.end, w.merged, w.faulted),
        (now + L2_TLB, a.ready, false, false)
    );
    let r = &w.reads[0];
    assert_eq!((r.at, r.level), (PhysAddr(Flat::entry(1, 0x1000)), 1));
    assert_eq!((r.start, r.end), (now + L2_TLB + 2, a.ready));
    assert!(walks[1].merged && walks[1].reads.is_empty());
    assert!(b.mmu.take_walk_records().is_empty());
    b.mmu.record_walks(false);
    b.translate(0x9_0000, now);
    assert!(b.mmu.take_walk_records().is_empty());
}

#[test]
fn impossible_machines_are_refused_by_key() {
    let refuse = |change: fn(&mut MmuSpec), key: &str| {
        let mut spec = mmu();
        change(&mut spec);
        let message = Mmu::new(&spec, 0).err().expect("refused");
        assert!(message.to_string().contains(key), "{message}");
    };
    refuse(|s| s.walkers = 0, "mmu.walkers");
    refuse(|s| s.l1d.clear(), "mmu.l1d");
    refuse(
        |s| s.l1d.get_mut("main").expect("main").ways = 65,
        "mmu.l1d.main.ways",
    );
    refuse(
        |s| s.l2.get_mut("main").expect("main").entries = 0,
        "mmu.l2.main.entries",
    );
    refuse(
        |s| {
            s.l2.insert("more".into(), array(&[PageSize::K4], 8, 8, 1));
        },
        "mmu.l2",
    );
    refuse(|s| s.walk_caches.ways = 5, "mmu.walk_caches.ways");
}

/// A guest's table over a host's table.
struct Virtual {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    guest: Flat,
    host: Flat,
}

impl Virtual {
    fn new(spec: &MmuSpec) -> Self {
        Virtual {
            mmu: Mmu::new(spec, 0).expect("a possible MMU"),
            private: caches(64),
            memory: Memory::new(DRAM),
            guest: Flat::new(1 << 39),
            host: Flat::new(1 << 46),
        }
    }
    fn translate(&mut self, va: u64, now: Cycle) -> Result<Translated, Fault> {
        let view = View::Nested {
            guest: &self.guest,
            host: &self.host,
        };
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        self.mmu.translate(lookup(va, Access::Read, now), context)
    }
}

#[test]
fn a_nested_walk_makes_24_references() {
    let mut spec = mmu();
    spec.walk_caches.entries = 0;
    let mut v = Virtual::new(&spec);
    let a = v.translate(0x5123, 0).expect("mapped");
    assert_eq!(a.pa, PhysAddr(0x5123), "both tables flip the same bit");
    assert_eq!(v.mmu.stats().walk_reads, 24);
    // A neighbouring page: the pages of its four guest entries are in the nested TLB, the data page
    // is not.
    v.translate(0x6123, a.ready).expect("mapped");
    assert_eq!(v.mmu.stats().walk_reads - 24, 4 + 4);
    assert_eq!(
        v.translate(0x5999, 2 * a.ready).expect("mapped").from,
        ServedBy::L1
    );
    assert_eq!(v.mmu.stats().walks, 2);
}

#[test]
fn an_entry_of_two_dimensions_has_the_smaller_size() {
    let mut v = Virtual::new(&mmu());
    v.guest.size = PageSize::M2;
    let t = v.translate(0x5000, 0).expect("mapped").ready;
    v.translate(0x6000, t).expect("mapped");
    assert_eq!(v.mmu.stats().walks, 2, "the host's pages are of 4 KB");
    v.host.size = PageSize::M2;
    v.mmu.invalidate(&Invalidation::Space { asid: A });
    let t = v.translate(0x5000, 2 * t).expect("mapped").ready;
    v.translate(0x6000, t).expect("mapped");
    assert_eq!(v.mmu.stats().walks, 3);
}

#[test]
fn a_host_that_backs_nothing_is_named_in_the_fault() {
    let mut v = Virtual::new(&mmu());
    v.host.limit = 0;
    let fault = v.translate(0x5000, 0).expect_err("not backed");
    let root = Flat::entry(4, 0x5000);
    assert_eq!(fault.host.map(|g| g.0), Some(root));
}

/// First level of one set of four ways, second level of one set of `second`.
fn small(policy: TlbReplacement, second: u32) -> MmuSpec {
    let mut spec = mmu();
    let array = |ways: u32, latency| {
        let mut t = array(&[PageSize::K4], ways, ways, latency);
        t.replacement = policy;
        [("main".to_owned(), t)].into()
    };
    spec.l1d = array(4, 1);
    spec.l2 = array(second, L2_TLB);
    spec
}

#[test]
fn a_page_used_often_survives_a_scan_by_frequency_and_not_by_age() {
    const HOT: u64 = 0x100_0000;
    for timed in [true, false] {
        let stays = |policy: TlbReplacement| {
            let mut b = Bench::new(&small(policy, 64));
            let mut now = 0;
            let mut use_page = |b: &mut Bench, va: u64| {
                now += 10_000;
                if timed {
                    b.translate(va, now).from
                } else {
                    b.warm(va);
                    ServedBy::L1
                }
            };
            // Successive words of the page, as in reading a buffer.
            for word in 0..512 {
                use_page(&mut b, HOT + 8 * word);
            }
            for page in 1..=32u64 {
                use_page(&mut b, page << 12);
            }
            if timed {
                assert_eq!(b.get("mmu.l1d.main", "lookups"), 512 + 32);
                assert_eq!(b.get("mmu.l1d.main", "hits"), 511);
                assert_eq!(b.get("mmu.l1d.main", "evictions"), 33 - 4);
            }
            b.translate(HOT, 10_000_000).from
        };
        assert_eq!(stays(TlbReplacement::Lru), ServedBy::L2);
        assert_eq!(stays(TlbReplacement::Lfu), ServedBy::L1);
    }
}

#[test]
fn waiting_for_a_walk_is_a_use_of_the_first_level_only() {
    let mut b = Bench::new(&small(TlbReplacement::Lfu, 2));
    let t = b.translate(0, 0).ready;
    assert_eq!(b.translate(8, 1).ready, t);
    assert_eq!(b.mmu.stats().walks_merged, 1);
    // Both entries of the second level have one use: the lower way, page 0, is replaced.
    b.translate(0x1000, 10_000);
    b.translate(0x2000, 20_000);
    // Pages 3 and 4 both use way 0 of the second level. In the first level way 0 has two uses, so
    // they replace page 1.
    b.translate(0x3000, 30_000);
    b.translate(0x4000, 40_000);
    assert_eq!(b.translate(0, 50_000).from, ServedBy::L1);
    assert_eq!(b.translate(0x1000, 50_000).from, ServedBy::L2);
    assert_eq!(b.mmu.stats().walks, 5);
}
