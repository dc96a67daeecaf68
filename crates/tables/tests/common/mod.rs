//! Requirements on every page table, whatever its structure.

pub mod long;
pub mod steps;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_tables::{
    CuckooWalkSpec, Flags, FrameSource, KernelTables, MapError, MapWork, MappedRange, Next,
    NoFrames, PageTable, Path, Translation, Walk, WalkCacheSet, WalkCacheSpec, WalkCaches,
    WalkState, Want,
};
use pagewalk_units::{Asid, Cycle, Frame, Page, PageSize, PhysAddr, VirtAddr};

use tables::Case;

pub type Table = Box<dyn PageTable<VirtAddr, PhysAddr>>;

/// The table of a kernel's only address space. Its memory includes all that the kernel's tables took
/// after boot.
pub struct Alone {
    pub kernel: Box<dyn KernelTables<VirtAddr, PhysAddr>>,
    pub table: Table,
    pub at_boot: u64,
}

impl Walk<VirtAddr, PhysAddr> for Alone {
    fn next(
        &self,
        va: VirtAddr,
        state: &mut WalkState,
        caches: &mut WalkCaches<'_>,
    ) -> Next<PhysAddr> {
        self.table.next(va, state, caches)
    }
    fn translate(&self, va: VirtAddr) -> Option<Translation<PhysAddr>> {
        self.table.translate(va)
    }
    fn is_tree(&self) -> bool {
        self.table.is_tree()
    }
    fn path(&self, va: VirtAddr, path: &mut Path<PhysAddr>) -> Option<Translation<PhysAddr>> {
        self.table.path(va, path)
    }
    fn range(
        &self,
        va: VirtAddr,
        reads: &mut Vec<PhysAddr>,
    ) -> Option<MappedRange<VirtAddr, PhysAddr>> {
        self.table.range(va, reads)
    }
}

impl PageTable<VirtAddr, PhysAddr> for Alone {
    fn map(
        &mut self,
        page: Page<VirtAddr>,
        frame: Frame<PhysAddr>,
        flags: Flags,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Result<MapWork, MapError> {
        self.table.map(page, frame, flags, frames)
    }
    fn unmap(
        &mut self,
        page: Page<VirtAddr>,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Option<(Frame<PhysAddr>, Flags, MapWork)> {
        self.table.unmap(page, frames)
    }
    fn set_flags(&mut self, page: Page<VirtAddr>, flags: Flags) -> bool {
        self.table.set_flags(page, flags)
    }
    fn registers(&self) -> u32 {
        self.table.registers()
    }
    fn bytes(&self) -> u64 {
        self.table.bytes() + self.kernel.shared_bytes() - self.at_boot
    }
    fn largest_contiguous(&self) -> u64 {
        self.table.largest_contiguous()
    }
    fn for_each(&self, f: &mut dyn FnMut(Page<VirtAddr>, Frame<PhysAddr>, Flags)) {
        self.table.for_each(f);
    }
    fn release(&mut self, frames: &mut dyn FrameSource<PhysAddr>) {
        self.table.release(frames);
    }
    fn hardware(&self) -> &dyn Walk<VirtAddr, PhysAddr> {
        self
    }
}

/// Allocates aligned blocks from the bottom up and tracks the ones in use.
/// `left` is the number of allocations that will still succeed.
pub struct TestFrames {
    next: u64,
    pub owned: BTreeMap<u64, u64>,
    free: BTreeMap<u64, BTreeSet<u64>>,
    pub left: u64,
    bytes: u64,
    /// Hash of all allocations and frees, in order.
    pub trace: u64,
}

impl TestFrames {
    /// A source with no block in use.
    pub fn new() -> Self {
        TestFrames {
            next: 1 << 40,
            owned: BTreeMap::new(),
            free: BTreeMap::new(),
            left: u64::MAX,
            bytes: 0,
            trace: 0,
        }
    }
    /// True if `at` lies in a block in use.
    pub fn owns(&self, at: u64) -> bool {
        self.owned
            .range(..=at)
            .next_back()
            .is_some_and(|(base, bytes)| at < base + bytes)
    }
    /// Stops counting the blocks in use, which a kernel has set aside at boot.
    pub fn booted(&mut self) {
        self.bytes = 0;
    }
    /// Bytes of all blocks in use that were allocated after boot.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    fn note(&mut self, base: u64, bytes: u64) {
        for x in [base, bytes] {
            self.trace = (self.trace.rotate_left(5) ^ x).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }
}

impl FrameSource<PhysAddr> for TestFrames {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        assert!(want.bytes >= 4096 && want.bytes.is_power_of_two());
        if self.left == 0 {
            return Err(NoFrames { bytes: want.bytes });
        }
        self.left -= 1;
        let base = match self.free.get_mut(&want.bytes).and_then(BTreeSet::pop_first) {
            Some(base) => base,
            None => {
                let base = self.next.next_multiple_of(want.bytes);
                self.next = base + want.bytes;
                base
            }
        };
        assert!(self.owned.insert(base, want.bytes).is_none());
        self.bytes += want.bytes;
        self.note(base, want.bytes);
        Ok(Frame {
            base: PhysAddr(base),
        })
    }
    fn free(&mut self, frame: Frame<PhysAddr>, bytes: u64) {
        let base = frame.base.0;
        assert_eq!(
            self.owned.remove(&base),
            Some(bytes),
            "gives back exactly what it got"
        );
        self.free.entry(bytes).or_default().insert(base);
        self.bytes -= bytes;
        self.note(base, 0);
    }
}

/// Walk caches with a clock that continues from walk to walk, so that fills of
/// one walk are ready for the next.
pub struct Caches {
    pub set: WalkCacheSet,
    pub now: Cycle,
    /// Reads of the last walk that were off its path.
    pub off_path: Vec<PhysAddr>,
}

/// Walk caches with `entries` each; 0: no caches.
pub fn caches(entries: u32) -> Caches {
    let spec = WalkCacheSpec {
        entries,
        ways: entries.max(1),
        latency: 4,
        serial: false,
    };
    let cuckoo = CuckooWalkSpec {
        pmd_cwc_entries: entries,
        pud_cwc_entries: entries.min(2),
        ..CuckooWalkSpec::default()
    };
    Caches {
        set: WalkCacheSet::new(&spec, 4).with_cuckoo(&cuckoo),
        now: 0,
        off_path: Vec::new(),
    }
}

/// A complete walk: the reads on its path by group, and the result.
pub fn walk(
    table: &dyn Walk<VirtAddr, PhysAddr>,
    va: VirtAddr,
    caches: &mut Caches,
) -> (Vec<Vec<PhysAddr>>, Option<Translation<PhysAddr>>) {
    let mut state = WalkState::default();
    let mut reads = Vec::new();
    caches.off_path.clear();
    for _ in 0..4096 {
        caches.now += 1;
        let mut view = WalkCaches::new(&mut caches.set, Asid(7), caches.now);
        match table.next(va, &mut state, &mut view) {
            Next::One { at, .. } => reads.push(vec![at]),
            Next::Read(group) => {
                assert!(!group.at.is_empty());
                if let Some(m) = group.matching {
                    assert!(usize::from(m) < group.at.len());
                }
                if group.off_path {
                    caches.off_path.extend(group.at);
                } else {
                    reads.push(group.at.to_vec());
                }
            }
            Next::Done(t) => return (reads, Some(t)),
            Next::Fault => return (reads, None),
        }
    }
    panic!("the walk of {va} does not end");
}

/// The mapped pages: address to size, frame and flags.
pub type Oracle = BTreeMap<u64, (PageSize, u64, Flags)>;

/// The mapped page at `va`: first address, size, frame and flags.
pub fn find(oracle: &Oracle, va: u64) -> Option<(u64, PageSize, u64, Flags)> {
    let (&base, &(size, frame, flags)) = oracle.range(..=va).next_back()?;
    (va < base + size.bytes()).then_some((base, size, frame, flags))
}

/// True if any page overlaps `page`.
pub fn overlaps(oracle: &Oracle, page: Page<VirtAddr>) -> bool {
    let (at, end) = (page.base.0, page.base.0 + page.size.bytes());
    find(oracle, at).is_some() || oracle.range(at..end).next().is_some()
}

/// Compares the table with the oracle at one address.
pub fn agree(
    table: &Table,
    case: &Case,
    oracle: &Oracle,
    source: &TestFrames,
    va: VirtAddr,
    set: &mut Caches,
) {
    let expected = find(oracle, va.0);
    let found = table.translate(va);
    assert_eq!(found.is_some(), expected.is_some(), "{va}");
    let (reads, walked) = walk(&**table, va, set);
    assert_eq!(walked, found, "walk and translate differ at {va}");
    let groups = reads.len();
    let most = reads.iter().map(Vec::len).max().unwrap_or(0);
    assert!(
        groups <= case.groups && most <= case.reads,
        "{groups} groups of up to {most} reads at {va}"
    );
    for at in reads.iter().flatten().chain(&set.off_path) {
        assert!(
            source.owns(at.0),
            "reads {at}, which the table does not own"
        );
    }
    if table.is_tree() {
        let mut path = Path::new();
        assert_eq!(table.path(va, &mut path), found, "{va}");
        if found.is_some() {
            let levels = (path.leaf_level()..=path.root_level()).rev();
            let all: Vec<Vec<PhysAddr>> = levels.map(|level| vec![path.at(level)]).collect();
            assert!(all.ends_with(&reads), "{all:?}, read {reads:?} at {va}");
            assert!(set.set.entries() > 0 || all == reads, "{va}");
        }
    }
    if let (Some(t), Some((_, size, frame, flags))) = (found, expected) {
        assert_eq!((t.size, t.frame.base.0, t.flags), (size, frame, flags));
        assert!(source.owns(t.leaf.0));
        let last = reads.last().expect("a walk reads the leaf");
        assert!(
            last.iter().any(|a| a.0 >> 6 == t.leaf.0 >> 6),
            "the leaf entry is among what was read last"
        );
    }
}

/// A dense range of small pages. Neighbours share a line, and the table takes
/// at most `slack` times a 512th of the mapped bytes.
pub fn dense(case: &Case, pages: u64) {
    let mut source = TestFrames::new();
    let mut table = case.make(Asid(7), &mut source);
    let at = 0x5555_0000_0000;
    for i in 0..pages {
        let p = VirtAddr(at + i * 4096).page(PageSize::K4);
        let f = Frame {
            base: PhysAddr(i << 12),
        };
        table
            .map(p, f, Flags::WRITABLE, &mut source)
            .expect("memory is plenty");
    }
    let leaf = |i: u64| {
        table
            .translate(VirtAddr(at + i * 4096))
            .expect("mapped")
            .leaf
            .0
    };
    for i in (0..pages - 1).step_by(2) {
        assert_eq!(leaf(i) >> 6, leaf(i + 1) >> 6, "pages {i} and {}", i + 1);
        assert_ne!(leaf(i), leaf(i + 1));
    }
    let share = table.bytes() as f64 / (pages * 4096) as f64;
    assert!(
        share >= 1.0 / 512.0 && share <= case.slack / 512.0,
        "{share}"
    );
}
