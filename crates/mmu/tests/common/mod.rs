//! Mocks: a radix-shaped page table that needs no kernel, and a memory of one latency.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use arrayvec::ArrayVec;
use pagewalk_memory::{
    Below, CacheSpec, Done, Enter, Flush, Level, Private, PrivateSpec, Replacement, Report,
    Request, RequestKind, SetIndex,
};
use pagewalk_mmu::{Mmu, MmuSpec, TlbReplacement, TlbSpec, Translated, WalkContext};
use pagewalk_stats::Tree;
use pagewalk_tables::{
    Flags, Group, Next, Path, Translation, View, Walk, WalkCacheSpec, WalkCaches, WalkState,
};
use pagewalk_units::{Addr, Cycle, Frame, PageSize, PhysAddr};

/// Context for a walk of `view`, without placement hashes.
pub fn walk_context<'a, B>(
    view: &'a View<'a>,
    private: &'a mut Private,
    below: &'a mut B,
) -> WalkContext<'a, B> {
    WalkContext {
        view,
        tiers: None,
        private,
        below,
    }
}

/// A page table that maps everything below `limit` with pages of `size` to the physical address `va
/// ^ FLIP`. The entries of each level lie in an array of their own.
pub struct Flat {
    pub limit: u64,
    pub size: PageSize,
    pub writable: bool,
    /// Levels; 4 in x86-64.
    pub levels: u8,
}

pub const FLIP: u64 = 1 << 40;

impl Flat {
    /// Maps every 4 KB page below `limit`, four levels, writable.
    pub fn new(limit: u64) -> Self {
        Flat {
            limit,
            size: PageSize::K4,
            writable: true,
            levels: 4,
        }
    }
    fn shift(level: u8) -> u32 {
        3 + 9 * u32::from(level)
    }
    /// Address of the entry of `level` for `va`.
    pub fn entry(level: u8, va: u64) -> u64 {
        (u64::from(level) << 42) + (va >> Self::shift(level)) * 8
    }
    fn last(&self) -> u8 {
        1 + self.size.index() as u8
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Flat {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let raw = va.raw();
        let last = self.last();
        if state.step == 0 {
            // Array k holds the node of level k + 1.
            state.regs[0] = u64::from(self.levels);
            for level in last..self.levels {
                let key = raw >> Self::shift(level + 1);
                if caches.lookup(usize::from(level) - 1, key).is_some() {
                    state.regs[0] = u64::from(level);
                    break;
                }
            }
        } else {
            let read = state.regs[0] as u8;
            if raw >= self.limit {
                return Next::Fault;
            }
            if read == last {
                return Next::Done(Walk::<In, Out>::translate(self, va).expect("below the limit"));
            }
            caches.fill(usize::from(read) - 2, raw >> Self::shift(read), 1);
            state.regs[0] -= 1;
        }
        state.step += 1;
        let level = state.regs[0] as u8;
        let mut at = ArrayVec::new();
        at.push(Out::new(Self::entry(level, raw)));
        Next::Read(Group {
            at,
            matching: None,
            off_path: false,
            level,
        })
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let raw = va.raw();
        (raw < self.limit).then(|| Translation {
            frame: Frame {
                base: Out::new((raw & !(self.size.bytes() - 1)) ^ FLIP),
            },
            size: self.size,
            flags: if self.writable {
                Flags::WRITABLE
            } else {
                Flags::default()
            },
            leaf: Out::new(Self::entry(self.last(), raw)),
        })
    }

    fn host_prefetch(&self, _: In) -> bool {
        true
    }

    fn is_tree(&self) -> bool {
        true
    }

    fn path(&self, va: In, path: &mut Path<Out>) -> Option<Translation<Out>> {
        path.begin(self.levels);
        for level in (self.last()..=self.levels).rev() {
            path.go_on(Out::new(Self::entry(level, va.raw())));
        }
        self.translate(va)
    }
}

/// A memory with a fixed `latency`, which serves a line every `gap` cycles.
pub struct Memory {
    pub latency: Cycle,
    pub gap: Cycle,
    pub free: Cycle,
    pub requests: u64,
    /// Delay that it reports for an access.
    pub delay: Cycle,
    /// If set, requested lines are then in a shared cache of this latency.
    pub remembers: Option<Cycle>,
    pub known: std::collections::BTreeSet<u64>,
}

impl Memory {
    /// A memory with a fixed `latency` and unlimited bandwidth.
    pub fn new(latency: Cycle) -> Self {
        Memory {
            latency,
            gap: 0,
            free: 0,
            requests: 0,
            delay: 0,
            remembers: None,
            known: Default::default(),
        }
    }
}

impl Below for Memory {
    fn access(&mut self, request: Request, now: Cycle) -> Done {
        self.requests += 1;
        if let Some(latency) = self.remembers
            && !self.known.insert(request.at.0 >> 6)
        {
            return Done::new(now + latency, Level::L3);
        }
        let start = now.max(self.free);
        if self.gap > 0 {
            self.free = start + self.gap;
        }
        Done::new(start + self.latency, Level::Memory)
    }
    fn write_back(&mut self, _: PhysAddr, _: u8, _: Cycle) {}
    fn flush(&mut self, _: PhysAddr, _: Flush, now: Cycle) -> Cycle {
        now + self.latency
    }
    fn write_memory(&mut self, _: PhysAddr, _: u8, _: u32, now: Cycle) -> Cycle {
        now + self.latency
    }
    fn dropped(&mut self, _: PhysAddr, _: u8) {}
    fn delay(&self, _: PhysAddr, _: Cycle) -> Cycle {
        self.delay
    }
    fn warm(&mut self, request: Request) {
        if self.remembers.is_some() {
            self.known.insert(request.at.0 >> 6);
        }
    }
    fn warm_write_back(&mut self, _: PhysAddr, _: u8) {}
}

pub const L1: Cycle = 5;
pub const L2: Cycle = 14;

/// A cache with LRU replacement and no prefetcher.
pub fn cache(size_kb: u32, ways: u32, latency: Cycle, mshrs: u32) -> CacheSpec {
    CacheSpec {
        size_kb,
        ways,
        latency,
        mshrs,
        replacement: Replacement::Lru,
        prefetcher: None,
        index: SetIndex::Modulo,
    }
}

/// The caches of a core, with `mshrs` miss registers each.
pub fn caches(mshrs: u32) -> Private {
    let spec = PrivateSpec {
        l1i: cache(32, 8, 4, mshrs),
        l0d: None,
        l1d: cache(32, 8, L1, mshrs),
        l2: cache(1024, 8, L2, mshrs),
        l3: None,
        walks_enter: Enter::L2,
        l1d_fill_bytes: None,
        write_combining_buffers: 4,
    };
    Private::new(&spec, 0).expect("a possible geometry")
}

/// A TLB array for pages of `sizes`; `latency` in cycles.
pub fn array(sizes: &[PageSize], entries: u32, ways: u32, latency: Cycle) -> TlbSpec {
    TlbSpec {
        page_sizes: sizes.to_vec(),
        entries,
        ways,
        latency,
        replacement: TlbReplacement::Lru,
    }
}

pub const L2_TLB: Cycle = 7;

/// 64-entry first level of all sizes, 1536-entry second level, walk caches of
/// 32 entries and 2 cycles, 4 walkers.
pub fn mmu() -> MmuSpec {
    let one = |t: TlbSpec| [("main".to_owned(), t)].into();
    MmuSpec {
        l1i: one(array(&PageSize::ALL, 64, 64, 1)),
        l1d: one(array(&PageSize::ALL, 64, 64, 1)),
        l2: one(array(&[PageSize::K4, PageSize::M2], 1536, 12, L2_TLB)),
        l2i: Default::default(),
        walk_caches: WalkCacheSpec {
            entries: 32,
            ways: 4,
            latency: 2,
            serial: false,
        },
        cuckoo: Default::default(),
        nested_tlb: Default::default(),
        walkers: 4,
        prefetcher: None,
        perfect: false,
    }
}

/// Counters of an MMU and of its core's caches.
pub fn counted(mmu: &Mmu, private: &Private) -> Tree {
    let mut tree = Tree::default();
    mmu.report("mmu", &mut tree);
    private.report("", &mut tree);
    tree
}

/// Cycle at which the line of a translated load is ready.
pub fn load<B: Below>(answer: &Translated, private: &mut Private, below: &mut B) -> Cycle {
    let request = Request {
        at: answer.pa,
        kind: RequestKind::Load,
        core: 0,
        pc: 0,
    };
    private.access(request, answer.ready, below).at
}
