//! What every page table has to do, whatever it is made of.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_tables::{
    Flags, FrameSource, MapError, Next, NoFrames, PageTable, Translation, Walk, WalkCacheSet,
    WalkCacheSpec, WalkCaches, WalkState, Want,
};
use pagewalk_units::{Asid, Cycle, Frame, Page, PageSize, PhysAddr, VirtAddr};

pub type Table = Box<dyn PageTable<VirtAddr, PhysAddr>>;

/// Hands out aligned blocks from the bottom up and knows which are out.
/// `left` is how many requests are still granted.
pub struct Source {
    next: u64,
    pub owned: BTreeMap<u64, u64>,
    free: BTreeMap<u64, BTreeSet<u64>>,
    pub left: u64,
    pub trace: Vec<(u64, u64)>,
}

impl Source {
    pub fn new() -> Self {
        Source {
            next: 1 << 40,
            owned: BTreeMap::new(),
            free: BTreeMap::new(),
            left: u64::MAX,
            trace: Vec::new(),
        }
    }
    pub fn owns(&self, at: u64) -> bool {
        self.owned
            .range(..=at)
            .next_back()
            .is_some_and(|(base, bytes)| at < base + bytes)
    }
    pub fn bytes(&self) -> u64 {
        self.owned.values().sum()
    }
}

impl FrameSource<PhysAddr> for Source {
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
        self.trace.push((base, want.bytes));
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
        self.trace.push((base, 0));
    }
}

/// Walk caches and a clock that runs on from walk to walk, so that what one
/// walk has filled is ready for the next.
pub struct Caches {
    pub set: WalkCacheSet,
    pub now: Cycle,
}

pub fn caches(entries: u32) -> Caches {
    let spec = WalkCacheSpec {
        entries,
        ways: entries.max(1),
        latency: 4,
    };
    Caches {
        set: WalkCacheSet::new(&spec, 4),
        now: 0,
    }
}

/// All of a walk: the reads, group by group, and the answer.
pub fn walk(
    table: &dyn Walk<VirtAddr, PhysAddr>,
    va: VirtAddr,
    caches: &mut Caches,
) -> (Vec<Vec<PhysAddr>>, Option<Translation<PhysAddr>>) {
    let mut state = WalkState::default();
    let mut reads = Vec::new();
    for _ in 0..64 {
        caches.now += 1;
        let mut view = WalkCaches::new(&mut caches.set, Asid(7), caches.now);
        match table.next(va, &mut state, &mut view) {
            Next::One { at, .. } => reads.push(vec![at]),
            Next::Read(group) => {
                assert!(!group.at.is_empty());
                if let Some(m) = group.matching {
                    assert!(usize::from(m) < group.at.len());
                }
                reads.push(group.at.to_vec());
            }
            Next::Done(t) => return (reads, Some(t)),
            Next::Fault => return (reads, None),
        }
    }
    panic!("the walk of {va} does not end");
}

/// One step of a random program of the kernel's.
#[derive(Clone, Debug)]
pub enum Step {
    Map {
        slot: u16,
        size: u8,
        flags: u8,
        starve: u8,
    },
    Unmap {
        slot: u16,
        size: u8,
    },
    Flags {
        slot: u16,
        size: u8,
        flags: u8,
    },
    Probe {
        slot: u16,
        offset: u32,
    },
}

/// Slots lie so that neighbours, huge pages over small ones, several nodes and
/// far-apart regions all come up.
fn page(slot: u16, size: u8) -> Page<VirtAddr> {
    let size = PageSize::ALL[usize::from(size % 3)];
    let s = u64::from(slot);
    let va = match s % 4 {
        0 | 1 => 0x7f00_0000_0000 + (s >> 2) * 4096,
        2 => 0x10_0000_0000 + (s >> 2 & 0xff) * 0x20_0000 + (s >> 10) * 0x3000,
        _ => (s >> 2 & 7) * 0x40_0000_0000 + (s >> 5 & 3) * 0x4000_0000,
    };
    VirtAddr(va).page(size)
}

type Oracle = BTreeMap<u64, (PageSize, u64, Flags)>;

fn find(oracle: &Oracle, va: u64) -> Option<(u64, PageSize, u64, Flags)> {
    let (&base, &(size, frame, flags)) = oracle.range(..=va).next_back()?;
    (va < base + size.bytes()).then_some((base, size, frame, flags))
}

fn overlaps(oracle: &Oracle, page: Page<VirtAddr>) -> bool {
    let (at, end) = (page.base.0, page.base.0 + page.size.bytes());
    find(oracle, at).is_some() || oracle.range(at..end).next().is_some()
}

/// The state of the table against the oracle at one address.
fn agree(table: &Table, oracle: &Oracle, source: &Source, va: VirtAddr, set: &mut Caches) {
    let expected = find(oracle, va.0);
    let found = table.translate(va);
    assert_eq!(found.is_some(), expected.is_some(), "{va}");
    let (reads, walked) = walk(&**table, va, set);
    assert_eq!(walked, found, "walk and translate differ at {va}");
    for at in reads.iter().flatten() {
        assert!(
            source.owns(at.0),
            "reads {at}, which the table does not own"
        );
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

/// Random maps, unmaps and flags of all sizes against a plain map, with memory
/// that runs out at times.
pub fn random_steps(make: &dyn Fn(Asid) -> Table, steps: &[Step]) -> Vec<(u64, u64)> {
    let mut table = make(Asid(7));
    let mut source = Source::new();
    let mut oracle = Oracle::new();
    let mut warm = caches(16);
    for (i, step) in steps.iter().enumerate() {
        match *step {
            Step::Map {
                slot,
                size,
                flags,
                starve,
            } => {
                let p = page(slot, size);
                let frame =
                    ((i as u64 + 1) << 30 | (i as u64 & 0x1ff) << 12) & !(p.size.bytes() - 1);
                let flags = Flags(flags);
                let before = (source.owned.clone(), table.bytes());
                source.left = if starve % 3 == 0 {
                    u64::from(starve % 5)
                } else {
                    u64::MAX
                };
                let f = Frame {
                    base: PhysAddr(frame),
                };
                let done = table.map(p, f, flags, &mut source);
                source.left = u64::MAX;
                if overlaps(&oracle, p) {
                    assert_eq!(done, Err(MapError::Occupied));
                }
                match done {
                    Ok(work) => {
                        assert_eq!(before.1 + work.allocated - work.freed, table.bytes());
                        oracle.insert(p.base.0, (p.size, frame, flags));
                    }
                    Err(_) => assert_eq!(before, (source.owned.clone(), table.bytes()), "atomic"),
                }
                agree(&table, &oracle, &source, p.base, &mut warm);
            }
            Step::Unmap { slot, size } => {
                // Half of the time something that is mapped, if anything is near.
                let mut p = page(slot, size);
                if let Some((base, size, ..)) = find(&oracle, p.base.0).filter(|_| size & 4 == 0) {
                    p = VirtAddr(base).page(size);
                }
                let exact = oracle.get(&p.base.0).filter(|e| e.0 == p.size).copied();
                let gone = table.unmap(p, &mut source);
                assert_eq!(
                    gone.map(|(frame, flags, _)| (p.size, frame.base.0, flags)),
                    exact
                );
                if exact.is_some() {
                    oracle.remove(&p.base.0);
                    warm.set.invalidate(Asid(7));
                }
                agree(&table, &oracle, &source, p.base, &mut warm);
            }
            Step::Flags { slot, size, flags } => {
                let p = page(slot, size);
                let e = oracle.get_mut(&p.base.0).filter(|e| e.0 == p.size);
                assert_eq!(table.set_flags(p, Flags(flags)), e.is_some());
                if let Some(e) = e {
                    e.2 = Flags(flags);
                }
                agree(&table, &oracle, &source, p.base, &mut warm);
            }
            Step::Probe { slot, offset } => {
                let base = page(slot, 0).base;
                agree(
                    &table,
                    &oracle,
                    &source,
                    base.offset(u64::from(offset)),
                    &mut warm,
                );
            }
        }
        assert_eq!(table.bytes(), source.bytes(), "bytes() is what it holds");
        assert!(table.largest_contiguous() >= source.owned.values().copied().max().unwrap_or(0));
    }
    let mut listed = Vec::new();
    table.for_each(&mut |p, frame, flags| listed.push((p.base.0, (p.size, frame.base.0, flags))));
    assert_eq!(
        listed,
        oracle.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>()
    );
    let mut cold = caches(0);
    for &base in oracle.keys() {
        agree(&table, &oracle, &source, VirtAddr(base), &mut cold);
    }
    table.release(&mut source);
    assert_eq!(
        (table.bytes(), source.bytes()),
        (0, 0),
        "everything goes back"
    );
    assert!(
        oracle
            .keys()
            .all(|&va| table.translate(VirtAddr(va)).is_none())
    );
    source.trace
}

/// A dense range of small pages: neighbours share a line, and the table takes
/// about a 512th of what it maps (`slack` times that at most).
pub fn dense(make: &dyn Fn(Asid) -> Table, pages: u64, slack: f64) {
    let mut table = make(Asid(7));
    let mut source = Source::new();
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
    assert!(share >= 1.0 / 512.0 && share <= slack / 512.0, "{share}");
}
