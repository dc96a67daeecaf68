//! The L2P table and the address generation against the simulator's page table.

use std::sync::Mutex;

use pagewalk_rtl::l2p_check::{self, Checked, CheckedSpec, Options, Totals};
use pagewalk_rtl::verilated;
use pagewalk_tables::{
    CuckooWalkSpec, Flags, FrameSource, MemoryEfficientSpec, Next, NoFrames, Owner, PageTable,
    Walk, WalkCacheSet, WalkCacheSpec, WalkCaches, WalkState, Want,
};
use pagewalk_units::{Asid, Cycle, Frame, Page, PageSize, PhysAddr, VirtAddr, rng};
use rand::{Rng, RngExt};

/// Memory that is used from the start and never again.
struct Fresh(u64);

impl FrameSource<PhysAddr> for Fresh {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        let base = self.0.next_multiple_of(want.bytes);
        self.0 = base + want.bytes;
        let base = PhysAddr(base & ((1 << 46) - 1));
        Ok(Frame { base })
    }
    fn free(&mut self, _: Frame<PhysAddr>, _: u64) {}
}

/// A table that changes at random, and its walks.
struct Case {
    table: Checked<VirtAddr, PhysAddr>,
    memory: Fresh,
    caches: WalkCacheSet,
    random: pagewalk_units::Rng,
    mapped: Vec<Page<VirtAddr>>,
    now: Cycle,
}

impl Case {
    fn new(spec: MemoryEfficientSpec, seed: u64) -> Self {
        let none = WalkCacheSpec {
            entries: 0,
            ways: 1,
            latency: 0,
            serial: false,
        };
        Case {
            table: Checked::new(
                &CheckedSpec(spec),
                Owner::new(Asid(1), seed),
                &Options::default(),
            ),
            memory: Fresh(1 << 30),
            caches: WalkCacheSet::new(&none, 0).with_cuckoo(&CuckooWalkSpec::default()),
            random: rng(seed, "rtl.l2p"),
            mapped: Vec::new(),
            now: 0,
        }
    }

    /// A page of an address space whose gigabytes have pages of one size each.
    fn page(&mut self, sizes: &[PageSize]) -> Page<VirtAddr> {
        let size = sizes[self.random.random_range(0..sizes.len())];
        // A slot of a table has a line of eight pages: most of the pages lie in lines of their own.
        let arena = size.index() as u64 + 3 * self.random.random_range(0..1_500u64);
        let inside = self.random.next_u64() & ((1 << 30) - 1);
        let base = (arena << 30 | inside) & !(size.bytes() - 1) & ((1 << 47) - 1);
        let base = VirtAddr(base);
        Page { base, size }
    }

    fn map(&mut self, sizes: &[PageSize]) {
        let page = self.page(sizes);
        let frame = Frame {
            base: PhysAddr(page.base.0 & ((1 << 40) - 1)),
        };
        let done = self
            .table
            .map(page, frame, Flags::WRITABLE, &mut self.memory);
        if done.is_ok() {
            self.mapped.push(page);
        }
    }

    fn unmap(&mut self) {
        if !self.mapped.is_empty() {
            let n = self.random.random_range(0..self.mapped.len());
            let page = self.mapped.swap_remove(n);
            let done = self.table.unmap(page, &mut self.memory);
            assert!(done.is_some(), "{page:?}");
        }
    }

    /// Walks an address. Later walks begin in the same cycle, in the next ones, or much later.
    fn walk(&mut self, sizes: &[PageSize]) {
        let mapped = !self.mapped.is_empty() && self.random.random_range(0..8) != 0;
        let page = if mapped {
            self.mapped[self.random.random_range(0..self.mapped.len())]
        } else {
            self.page(sizes)
        };
        let va = VirtAddr(page.base.0 | self.random.next_u64() & (page.size.bytes() - 1));
        self.now += [0, 1, 1, 2, 7, 500][self.random.random_range(0..6)];
        let mut caches = WalkCaches::new(&mut self.caches, Asid(1), self.now);
        let mut state = WalkState::default();
        let walked = loop {
            match self.table.next(va, &mut state, &mut caches) {
                Next::Read(group) => {
                    caches.now += caches.spent + 40;
                    (caches.spent, caches.back) = (0, caches.now);
                    for index in 0..group.at.len() {
                        caches.arrive(index, caches.now);
                    }
                }
                Next::One { .. } => unreachable!("these tables read groups"),
                Next::Done(found) => break Some(found),
                Next::Fault => break None,
            }
        };
        assert_eq!(walked, self.table.translate(va));
    }
}

/// Grows and shrinks a table, with walks in between.
fn compare(spec: MemoryEfficientSpec, sizes: &[PageSize], changes: u64, every: u64) -> Totals {
    let mut case = Case::new(spec, changes);
    let mut grows = true;
    for n in 0..changes {
        if n % (changes / 12) == 0 {
            grows = n / (changes / 12) % 4 != 3;
        }
        if grows || case.random.random_range(0..16) == 0 {
            case.map(sizes);
        } else {
            for _ in 0..4 {
                case.unmap();
            }
        }
        if n % every == 0 {
            case.walk(sizes);
        }
    }
    // All at once, as when the process ends.
    case.table.release(&mut case.memory);
    case.mapped.clear();
    case.walk(sizes);
    case.map(sizes);
    case.walk(sizes);
    case.table.totals()
}

/// Ways, L2P entries, chunks, page sizes and changes of a table.
type Table = (u8, u32, [u64; 2], &'static [PageSize], u64);

fn check(tables: &[Table]) -> Totals {
    let mut sums = Totals::default();
    for &(ways, entries, chunks, sizes, changes) in tables {
        for in_place in [true, false] {
            let spec = MemoryEfficientSpec {
                ways,
                l2p_entries: entries,
                chunks: chunks.to_vec(),
                in_place,
                per_way: in_place,
                ..MemoryEfficientSpec::default()
            };
            let t = compare(spec, sizes, changes, changes / 2_000);
            assert!(
                t.walks > 2_000 && t.waited > 300,
                "{ways}, {entries}: {t:?}"
            );
            sums.add(&t);
        }
    }
    sums
}

const ALL: &[PageSize] = &PageSize::ALL;
const KB: u64 = 8 << 10;
const MB: u64 = 1 << 20;

#[test]
fn random_changes_of_a_table_give_the_lines_of_the_simulator() {
    if !verilated::available() {
        return;
    }
    // A table with few L2P entries changes its chunks early.
    let t = check(&[(3, 1, [KB, 8 * MB], &ALL[..1], 12_000)]);
    assert!(t.resizing > 1_000 && t.chunk_changes > 4, "{t:?}");
    assert!(t.entries > 100 && t.registers > 1_000, "{t:?}");
}

#[test]
#[ignore = "compiles the hardware of each setting: make rtl-test"]
fn random_changes_of_any_table_give_the_lines_of_the_simulator() {
    if !verilated::available() {
        return;
    }
    let sums = check(&[
        (3, 32, [KB, MB], ALL, 12_000),
        (3, 1, [KB, 8 * MB], &ALL[..1], 12_000),
        (3, 2, [KB, 64 * MB], &ALL[..2], 12_000),
        (3, 1, [MB, 8 * MB], &ALL[..1], 100_000),
        (2, 1, [KB, MB], ALL, 8_000),
        (4, 3, [8 * MB, 64 * MB], &ALL[1..], 8_000),
    ]);
    assert!(
        sums.resizing > 10_000 && sums.chunk_changes > 40 && sums.retried > 0,
        "{sums:?}"
    );
    assert!(sums.entries > 1_000 && sums.registers > 10_000, "{sums:?}");
}

/// The checked tables of a process share their sums.
static ALONE: Mutex<()> = Mutex::new(());

fn run(workload: &str, size: &str, design: &str, instructions: u64) -> Totals {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    l2p_check::install(Options::default());
    let design = format!("{design}[page_table.external.rtl={{}}]");
    crate::simulate("mehpt-table3", &design, workload, size, instructions);
    l2p_check::take_totals()
}

#[test]
fn walks_of_programs_get_the_lines_of_the_simulator_in_its_cycles() {
    if !verilated::available() {
        return;
    }
    for (workload, size, design, walks) in [
        ("gups", "256MiB", "mehpt", 10_000),
        ("bfs", "64MiB", "mehpt", 50),
        ("xsbench", "64MiB", "mehpt", 400),
        ("kv-hash", "64MiB", "mehpt-thp", 1_000),
        ("dlrm", "64MiB", "mehpt-l2p", 4_000),
    ] {
        let t = run(workload, size, design, 300_000);
        assert!(
            t.walks > walks && t.lines >= 3 * t.walks,
            "{workload}: {t:?}"
        );
        assert!(
            t.selected < t.lines || design != "mehpt-thp",
            "{workload}: {t:?}"
        );
    }
}
