//! Translation sources: structures besides the TLB arrays that may hold translations.
//!
//! A source is a buffer, a range TLB, entries in blocks of the L2 cache, a TLB in memory, or any
//! other structure that can say where a page lies. The MMU asks it at one [`Place`], and fills it
//! with the result of a walk. A source owns its entries. It reads and writes lines through the
//! [`Ports`] that it is given. It never sees the walker, the page tables, or another source.
//!
//! A crate outside of the workspace adds a kind by [`registry::register`].
//!
//! One body serves timed simulation and functional warming. While warming, no time passes:
//! [`Ports::timed`] is false, every entry counts as ready, and a source counts nothing.

mod coalesced;
mod colt_fa;
pub(crate) mod entry;
mod extents;
mod l3_tlb;
mod pom_tlb;
pub(crate) mod prefetch_buffer;
mod range_tlb;
pub mod registry;
pub(crate) mod stb;
mod victima;

use arrayvec::ArrayVec;
use pagewalk_memory::{Done, L2Use};
use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Asid, Cycle, LINE_SHIFT, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::coalesced::{CoalescedSpec, CoalescedStats, Groups};
pub use self::colt_fa::{ColtFaSpec, ColtFaStats};
pub use self::entry::Entry;
pub use self::l3_tlb::{L3TlbSpec, L3TlbStats};
pub use self::pom_tlb::InMemoryStats;
pub use self::range_tlb::{RangeTlbSpec, RangeTlbStats};
pub use self::victima::{VictimaSpec, VictimaStats};
use crate::Lookup;
use crate::mapping::Mapping;
use crate::walk::{Walked, translate_untimed};

/// The place at which the MMU asks a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In parallel with the first-level TLB. A hit is a hit of the first level and fills nothing.
    BesideL1,
    /// In parallel with the second-level TLB. A hit fills the first level.
    BesideL2,
    /// In place of the second-level array that holds 4 KB pages. A hit fills the first level, and
    /// what is behind the TLBs waits for a miss.
    InsteadOfL2,
    /// After the last TLB has missed. The walk waits for the outcome. A hit fills both levels.
    BeforeWalk,
    /// From the miss of the last TLB on, in parallel with the walk. A hit ends the walk and fills
    /// both levels.
    WithWalk,
}

/// Consecutive pages whose frames are consecutive, too. A page of any size is one; a source may
/// hold larger or odd ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte; a multiple of 4 KB.
    pub va: VirtAddr,
    /// Length in bytes; a multiple of 4 KB.
    pub bytes: u64,
    /// Physical address of the first byte.
    pub pa: PhysAddr,
    /// True if stores are permitted.
    pub writable: bool,
}

impl Extent {
    /// The page of `size` around `va`, which begins at `frame`.
    pub fn page(va: VirtAddr, size: PageSize, frame: PhysAddr, writable: bool) -> Self {
        Extent {
            va: VirtAddr(va.0 & !(size.bytes() - 1)),
            bytes: size.bytes(),
            pa: frame,
            writable,
        }
    }

    /// The page that a walk for `va` found.
    pub fn of(walked: &Walked, va: VirtAddr) -> Self {
        Extent::page(va, walked.size, walked.frame.base, walked.writable())
    }

    /// True if it contains `va`.
    pub fn covers(&self, va: VirtAddr) -> bool {
        va.0.wrapping_sub(self.va.0) < self.bytes
    }

    /// True if it contains any byte of `first..=last`.
    pub fn overlaps(&self, first: VirtAddr, last: VirtAddr) -> bool {
        self.va <= last && first.0 <= self.va.0 + (self.bytes - 1)
    }

    /// Physical address of `va`, which it contains.
    pub fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.pa.0 + (va.0 - self.va.0))
    }

    /// The largest page around `va`, of at most `largest`, that lies in it and in one frame of that
    /// size.
    pub(crate) fn mapping(&self, va: VirtAddr, largest: PageSize) -> Mapping {
        let fits = |size: &PageSize| {
            let base = VirtAddr(va.0 & !(size.bytes() - 1));
            let last = VirtAddr(base.0 + (size.bytes() - 1));
            let inside = self.covers(base) && self.covers(last);
            inside && self.pa(base).0 & (size.bytes() - 1) == 0
        };
        let sizes = PageSize::ALL[..=largest.index()].iter().rev();
        let size = sizes.copied().find(fits).unwrap_or(PageSize::K4);
        Mapping {
            frame: self.pa(va).0 & !(size.bytes() - 1),
            size,
            writable: self.writable,
        }
    }
}

/// The answer of a source that has the translation.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// The pages that it covers, the asked one among them.
    pub extent: Extent,
    /// Largest page that the TLBs are filled with.
    pub largest: PageSize,
    /// Cycle at which the answer is known.
    pub at: Cycle,
    /// True if the answer was read from DRAM.
    pub memory: bool,
}

/// The answer of a source.
#[derive(Clone, Copy, Debug)]
pub enum Probed {
    /// It has the translation, and the access is permitted.
    Hit(Hit),
    /// It lacks the translation, has it on its way, or the entry does not permit the store. The
    /// kernel may have permitted stores since, and such a change needs no shootdown.
    Miss {
        /// Cycle at which the miss is known.
        at: Cycle,
    },
}

/// Lines of memory, as a source reads and writes them.
pub(crate) trait Lines {
    /// Reads a line where walks enter the caches.
    fn read(&mut self, at: PhysAddr, now: Cycle) -> Done;
    /// Writes a part of a line there, and returns when the write is done.
    fn update(&mut self, at: PhysAddr, now: Cycle) -> Done;
    /// Looks up block `number` of translations in the L2. Returns when it is read.
    fn probe_block(&mut self, number: u64, now: Cycle) -> Option<Cycle>;
    /// True if the L2 has block `number`, ready or on its way.
    fn has_block(&mut self, number: u64) -> bool;
    /// Puts block `number` of translations into the L2, ready from `now` on.
    fn insert_block(&mut self, number: u64, now: Cycle);
    /// Gives blocks of the L2 priority, or takes it from them.
    fn prefer_blocks(&mut self, prefers: bool);
    /// The program's misses of the L2.
    fn l2_use(&self) -> L2Use;
}

/// The parts of a core that a source may use during a call.
pub struct Ports<'a> {
    pub(crate) lines: &'a mut dyn Lines,
    pub(crate) timed: bool,
    pub(crate) counted: bool,
}

impl Ports<'_> {
    /// False in functional warming: no time passes, and nothing is counted.
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// 1 if events are counted, else 0. Beside the second level, a request that waits for an entry
    /// on its way to the first is not counted.
    pub fn count(&self) -> u64 {
        u64::from(self.counted)
    }

    /// True if what is ready from `ready` on is ready at `now`.
    pub fn is_ready(&self, ready: Cycle, now: Cycle) -> bool {
        !self.timed || ready <= now
    }

    /// The cycle `latency` after `now`; `now` itself in functional warming.
    pub fn after(&self, now: Cycle, latency: Cycle) -> Cycle {
        if self.timed { now + latency } else { now }
    }

    /// Reads the line at `at` through the core's caches, at the level where walks enter. Requested
    /// at `now`.
    pub fn read(&mut self, at: PhysAddr, now: Cycle) -> Done {
        self.lines.read(at, now)
    }

    /// Writes a part of the line at `at`, which is fetched and owned first. Returns when the write
    /// is done; 0 in functional warming.
    pub fn update(&mut self, at: PhysAddr, now: Cycle) -> Cycle {
        if self.timed {
            self.lines.update(at, now).at
        } else {
            self.lines.update(at, now);
            0
        }
    }
}

impl Ports<'_> {
    /// Looks up block `number` of the core's L2, a line that holds translations in place of a line
    /// of memory. Its low bits select the set. Returns when the block is read, unless the L2 has
    /// replaced it. `now`: when the lookup begins.
    pub fn probe_block(&mut self, number: u64, now: Cycle) -> Option<Cycle> {
        self.lines.probe_block(number, now)
    }

    /// True if the core's L2 has block `number`, ready or on its way. It becomes the most recently
    /// used.
    pub fn has_block(&mut self, number: u64) -> bool {
        self.lines.has_block(number)
    }

    /// Puts block `number` into the core's L2, which replaces it as any other line, unless blocks have
    /// priority. It is ready from `now` on.
    pub fn insert_block(&mut self, number: u64, now: Cycle) {
        self.lines.insert_block(number, now);
    }

    /// Gives the blocks of the core's L2 priority over lines from now on, or takes it from them.
    pub fn prefer_blocks(&mut self, prefers: bool) {
        self.lines.prefer_blocks(prefers);
    }

    /// The program's misses of the core's L2 so far, with the core's instructions. It counts during
    /// functional warming, too.
    pub fn l2_use(&self) -> L2Use {
        self.lines.l2_use()
    }
}

/// Pages whose page-table entries share a line, at most.
pub const LINE_ENTRIES: usize = 8;

/// The result of a walk, with which a source is filled.
pub struct Found<'a> {
    /// The lookup that walked.
    pub lookup: &'a Lookup,
    /// The translation.
    pub walked: &'a Walked,
    /// When the walk ended; 0 in functional warming.
    pub at: Cycle,
    /// True if the walk read an entry from DRAM. Functional warming does not know, and says that it
    /// did.
    pub read_memory: bool,
    /// True for the walk that [`TranslationSource::evicted`] asked for.
    pub after_eviction: bool,
    pub(crate) view: &'a View<'a>,
}

impl Found<'_> {
    /// The page that contains the address.
    pub fn extent(&self) -> Extent {
        Extent::of(self.walked, self.lookup.va)
    }

    /// The pages whose entries lie in the line that the walk read last, in order of addresses. All
    /// have the size of the walk's page, which is among them. Hardware sees them at no cost.
    pub fn line(&self) -> ArrayVec<Extent, LINE_ENTRIES> {
        let size = self.walked.size;
        let group = LINE_ENTRIES as u64 * size.bytes();
        let first = self.lookup.va.0 & !(group - 1);
        let leaf = self.walked.leaf.at.0 >> LINE_SHIFT;
        let pages = (0..LINE_ENTRIES as u64).map(|n| VirtAddr(first + n * size.bytes()));
        pages
            .filter_map(|va| {
                let walked = translate_untimed(self.view, va).ok()?;
                let same = walked.size == size && walked.leaf.at.0 >> LINE_SHIFT == leaf;
                same.then(|| Extent::of(&walked, va))
            })
            .collect()
    }

    /// The run around the walk's page in [`Found::line`]: pages of equal rights in consecutive
    /// frames.
    pub fn run(&self) -> Extent {
        let own = self.extent();
        let line = self.line();
        let offset = |e: &Extent| e.pa.0.wrapping_sub(e.va.0);
        let fits = |e: &&Extent| offset(e) == offset(&own) && e.writable == own.writable;
        let at = line.iter().position(|e| e.va == own.va).unwrap_or(0);
        let mut run = own;
        for e in line[..at].iter().rev().take_while(fits) {
            if e.va.0 + e.bytes != run.va.0 {
                break;
            }
            (run.va, run.pa) = (e.va, e.pa);
            run.bytes += e.bytes;
        }
        for e in line.iter().skip(at + 1).take_while(fits) {
            if run.va.0 + run.bytes != e.va.0 {
                break;
            }
            run.bytes += e.bytes;
        }
        run
    }

    /// The range of the table of ranges that the address lies in. Appends to `reads` the lines that a
    /// walk of that table reads, one after the other. None in a virtual machine: the ranges of a guest
    /// are not those of physical memory.
    pub fn range(&self, reads: &mut Vec<PhysAddr>) -> Option<Extent> {
        let View::Native(table) = self.view else {
            return None;
        };
        let range = table.range(self.lookup.va, reads)?;
        Some(Extent {
            va: range.first,
            bytes: range.last.0 - range.first.0 + 1,
            pa: range.at,
            writable: range.writable,
        })
    }

    /// The aligned group of `pages` pages around the walk's page, if a kernel marks it as contiguous:
    /// all have the page's size and equal rights, and lie in consecutive frames that are aligned as a
    /// whole. Otherwise the page alone.
    pub fn hinted(&self, pages: u64) -> Extent {
        let own = self.extent();
        let bytes = pages * own.bytes;
        let first = own.va.0 & !(bytes - 1);
        let group = Extent {
            va: VirtAddr(first),
            bytes,
            pa: PhysAddr(own.pa.0.wrapping_sub(own.va.0 - first)),
            writable: own.writable,
        };
        let marked = group.pa.0 & (bytes - 1) == 0
            && (0..pages).all(|n| {
                let va = VirtAddr(first + n * own.bytes);
                translate_untimed(self.view, va).is_ok_and(|walked| {
                    let page = Extent::of(&walked, va);
                    page.bytes == own.bytes
                        && page.pa == group.pa(va)
                        && page.writable == own.writable
                })
            });
        if marked { group } else { own }
    }
}

/// A structure of one core that may hold translations.
pub trait TranslationSource: Send + Sync {
    /// Its name in the statistics, below the core's MMU.
    fn name(&self) -> &'static str;

    /// Looks up the translation for `lookup`, from cycle `lookup.now` on.
    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed;

    /// Takes what it wants of the result of a walk. No request waits for it.
    fn fill(&mut self, _found: &Found<'_>, _ports: &mut Ports<'_>) {}

    /// Inserts a translation that no walk of a miss has found. The part of the MMU that owns the
    /// source calls it. Returns the entry that was evicted, if any.
    fn insert(&mut self, _entry: Entry, _counted: bool) -> Option<Entry> {
        None
    }

    /// True if [`TranslationSource::evicted`] is to be called.
    fn wants_evictions(&self) -> bool {
        false
    }

    /// Called when the second-level TLB has evicted the entry of `page`. True asks for a walk for
    /// that page, for which no request waits and with which the source is filled.
    fn evicted(&mut self, _asid: Asid, _page: &Extent, _ports: &mut Ports<'_>) -> bool {
        false
    }

    /// True if it holds a prefetched translation of `va`, ready or on its way: another prefetch
    /// would be in vain.
    fn holds(&self, _asid: Asid, _va: VirtAddr) -> bool {
        false
    }

    /// Drops what `what` covers.
    fn invalidate(&mut self, what: &Invalidation);

    /// Drops the page of `va`, which faulted: the kernel will change it.
    fn drop_page(&mut self, _asid: Asid, _va: VirtAddr) {}

    /// Called when a request merges with a lookup of this source that hit.
    fn merged(&mut self) {}

    /// Called when its hit in parallel with the second-level TLB has served a miss of the first level.
    /// That TLB lacked the translation, or had it on its way.
    fn served(&mut self) {}

    /// A page of which an address is used during fast-forward. No cache may be touched.
    fn fast_forward(&mut self, _found: &Found<'_>) {}

    /// Marks its entries as stale after a fast-forward: they may have been replaced meanwhile.
    fn mark_stale(&mut self) {}

    /// Lookups whose outcome is uncertain because of stale entries. The default is for sources
    /// that fast-forwarding keeps up to date, and for those that a detailed warm-up fills anew.
    fn stale(&self) -> StaleOutcomes {
        StaleOutcomes::default()
    }

    /// True if filtered functional warming leaves it as full functional warming does.
    fn can_filtered_warm(&self) -> bool {
        false
    }

    /// Adds its counters at `path`.
    fn report(&self, path: &str, tree: &mut Tree);
}

/// The part of a source that all cores share, such as entries in memory. The sources of the cores
/// hold it, too.
pub trait SharedPart: Send + Sync {
    /// Drops what `what` covers.
    fn invalidate(&mut self, what: &Invalidation);

    /// Adds its counters.
    fn report(&self, tree: &mut Tree);
}
