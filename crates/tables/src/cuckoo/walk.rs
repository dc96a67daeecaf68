//! The hardware interface: the probes of a walk, and the fills of cuckoo walk
//! caches.
//!
//! The walk caches determine which ways of which tables can hold the page. These
//! are read in parallel. If nothing matches, because a cached line is older than
//! the walk tables, all ways of all tables are read before the walk faults.
//! Walk-table lines that missed or proved stale are fetched off the walk's path.
//!
//! Group levels in the statistics: 1 is a page table, 2 a walk table.

use arrayvec::ArrayVec;
use pagewalk_units::{Addr, PageSize};

use super::Cuckoo;
use super::cwt::{self, GIANT, HUGE, SMALL};
use crate::cluster::PteCluster;
use crate::cwc::{Cached, Cwt};
use crate::{Group, Next, Translation, Walk, WalkCaches, WalkState};

/// Registers of a walk: plan, entry found, address of that entry, and the ways
/// being probed.
const PLAN: usize = 0;
const ENTRY: usize = 1;
const LEAF: usize = 2;
const PROBED: usize = 3;

/// Plan bits: page size of the entry found, plus one.
const FOUND: u64 = 3;
/// All ways of all tables are being read.
const ALL: u64 = 1 << 2;
/// Walk-table lines are being fetched.
const FETCHING: u64 = 1 << 3;
/// Walk-table lines to fetch: one bit for each [`Cwt`] from this bit on.
const WANTED: u32 = 4;
/// Cached walk-table lines that the first probes relied on: one bit for each
/// [`Cwt`] from this bit on.
const TRUSTED: u32 = 6;
const BOTH: u64 = 3;

fn bit(cwt: Cwt) -> u64 {
    1 << cwt as u64
}

/// A set of ways to probe: [`MAX_WAYS`] bits for each page size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways(u16);

/// Maximum ways of a table.
pub(super) const MAX_WAYS: u8 = 4;

impl Ways {
    /// No ways.
    pub(super) const NONE: Ways = Ways(0);

    /// The ways of page size `size`, one bit each.
    #[inline]
    fn of(self, size: PageSize) -> u16 {
        self.0 >> (u32::from(MAX_WAYS) * size.index() as u32) & ((1 << MAX_WAYS) - 1)
    }
    /// Adds the `ways` of page size `size`, one bit each.
    #[inline]
    pub(super) fn with(self, size: PageSize, ways: u16) -> Ways {
        Ways(self.0 | ways << (u32::from(MAX_WAYS) * size.index() as u32))
    }
}

/// The probes left after the walk-cache lookup.
struct Narrowed {
    ways: Ways,
    /// Bits for [`TRUSTED`] and [`WANTED`].
    trusted: u64,
    wanted: u64,
}

impl<In: Addr, Out: Addr> Cuckoo<In, Out> {
    /// All ways of the table of `size`. Empty while the table has no memory.
    #[inline]
    fn ways(&self, size: PageSize) -> u16 {
        self.live.of(size)
    }

    /// Looks up both walk caches in parallel. The PMD-CWT's result is used if the
    /// PUD-CWT's does not determine the page size.
    #[inline]
    fn narrow(&self, low: u64, caches: &mut WalkCaches<'_>) -> Narrowed {
        let mut wanted = 0;
        let mut look = |cwt: Cwt| {
            let (key, at) = cwt::place_of(cwt::section_of(cwt, low));
            let found = caches.section(cwt, key, at);
            if found == Cached::Absent && caches.caches(cwt) {
                wanted |= bit(cwt);
            }
            found
        };
        let small = || Ways::NONE.with(PageSize::K4, self.ways(PageSize::K4));
        let one = |size, h| Ways::NONE.with(size, 1 << cwt::way_of(h) & self.ways(size));
        let giant = |h| one(PageSize::G1, h);
        let pud = look(Cwt::Pud);
        let conclusive = match pud {
            Cached::Header(h) => match h & cwt::PRESENT {
                SMALL => Some(small()),
                GIANT => Some(giant(h)),
                0 => Some(Ways::NONE),
                _ => None,
            },
            Cached::Pending | Cached::Absent => None,
        };
        let (ways, trusted) = if let Some(ways) = conclusive {
            (ways, bit(Cwt::Pud))
        } else if let Cached::Header(h) = look(Cwt::Pmd) {
            let mut ways = Ways::NONE;
            if h & SMALL != 0 {
                ways = small();
            }
            if h & HUGE != 0 {
                ways = Ways(ways.0 | one(PageSize::M2, h).0);
            }
            (ways, bit(Cwt::Pmd))
        } else if let Cached::Header(h) = pud {
            let mut ways = Ways::NONE;
            if h & SMALL != 0 {
                ways = small();
            }
            if h & HUGE != 0 {
                ways = ways.with(PageSize::M2, self.ways(PageSize::M2));
            }
            if h & GIANT != 0 {
                ways = Ways(ways.0 | giant(h).0);
            }
            (ways, bit(Cwt::Pud))
        } else {
            (self.live, 0)
        };
        Narrowed {
            ways,
            trusted,
            wanted,
        }
    }

    /// The group of reads that probe `ways`.
    #[inline]
    fn probe(&self, va: u64, ways: Ways, state: &mut WalkState) -> Next<Out> {
        let mut group = Group {
            at: ArrayVec::new(),
            matching: None,
            off_path: false,
            level: 1,
        };
        for size in PageSize::ALL {
            let mut left = ways.of(size);
            if left == 0 {
                continue;
            }
            let (key, _) = self.width.place(va, size);
            let table = &self.tables[size.index()];
            let hash = table.hash(key);
            while left != 0 {
                let place = table.live(hash, left.trailing_zeros() as usize);
                left &= left - 1;
                // Prefetch for the host: the line is inspected when the simulated
                // reads return.
                table.host_prefetch(place);
                group.at.push(Out::new(table.address(place)));
            }
        }
        state.regs[PROBED] = u64::from(ways.0);
        state.step += 1;
        Next::Read(group)
    }

    /// Inspects the probed lines. The walk continues when the matching probe
    /// returns, unless it must wait for all probes.
    #[inline]
    fn look(&self, va: u64, state: &mut WalkState, caches: &mut WalkCaches<'_>) {
        let ways = Ways(std::mem::take(&mut state.regs[PROBED]) as u16);
        let mut before = 0;
        for size in PageSize::ALL {
            let probed = ways.of(size);
            if probed == 0 {
                continue;
            }
            let (key, index) = self.width.place(va, size);
            let table = &self.tables[size.index()];
            if let Some(place) = table.find(key)
                && probed >> place.way & 1 != 0
                && let Some(entry) = PteCluster::get(table.line(place), index)
            {
                let plan = &mut state.regs[PLAN];
                *plan |= size.index() as u64 + 1;
                if *plan & ALL != 0 {
                    // The cached lines did not predict this way, so they are
                    // stale.
                    *plan |= (*plan >> TRUSTED & BOTH) << WANTED;
                }
                state.regs[ENTRY] = entry;
                state.regs[LEAF] = table.address(place) + 8 * index as u64;
                if self.early {
                    let earlier = probed & ((1 << place.way) - 1);
                    caches.now = caches.arrived((before + earlier.count_ones()) as usize);
                }
                return;
            }
            before += probed.count_ones();
        }
    }

    #[inline]
    fn begin(&self, va: u64, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let all = self.live;
        if all == Ways::NONE || !self.width.canonical(va) {
            return Next::Fault;
        }
        caches.begin_cuckoo(self.chunked);
        let low = self.width.low(va);
        let Narrowed {
            mut ways,
            trusted,
            wanted,
        } = self.narrow(low, caches);
        let mut plan = trusted << TRUSTED | wanted << WANTED;
        let complete = trusted == 0 || ways == Ways::NONE;
        if complete {
            ways = all;
            plan |= ALL;
        }
        if let Some(stats) = caches.cuckoo_stats() {
            let probes = ways.0.count_ones();
            let sizes = PageSize::ALL.into_iter().filter(|&s| ways.of(s) != 0);
            *match probes {
                _ if complete => &mut stats.complete,
                1 => &mut stats.direct,
                _ if sizes.count() == 1 => &mut stats.size,
                _ => &mut stats.partial,
            } += 1;
            stats.probes += u64::from(probes);
        }
        state.regs[PLAN] = plan;
        self.probe(va, ways, state)
    }

    /// The reads that fetch the wanted walk-table lines.
    #[cold]
    fn fetch(
        &self,
        low: u64,
        state: &mut WalkState,
        caches: &mut WalkCaches<'_>,
    ) -> Option<Next<Out>> {
        let mut at = ArrayVec::new();
        for cwt in [Cwt::Pmd, Cwt::Pud] {
            if state.regs[PLAN] >> WANTED & bit(cwt) != 0 {
                let table = self.walk.table(cwt);
                let (key, _) = cwt::place_of(cwt::section_of(cwt, low));
                let probes = (0..table.ways()).filter_map(|way| table.probe(key, way));
                at.extend(probes.map(|p| Out::new(p.at)));
            }
        }
        if at.is_empty() {
            // The walk table does not exist, because none of its page sizes was
            // ever mapped.
            state.regs[PLAN] &= !(BOTH << WANTED);
            return None;
        }
        if let Some(stats) = caches.cuckoo_stats() {
            stats.cwt_fetches += at.len() as u64;
        }
        state.regs[PLAN] |= FETCHING;
        state.step += 1;
        Some(Next::Read(Group {
            at,
            matching: None,
            off_path: true,
            level: 2,
        }))
    }

    /// Fills the fetched lines into the walk caches.
    #[cold]
    fn fetched(&self, low: u64, state: &mut WalkState, caches: &mut WalkCaches<'_>) {
        for cwt in [Cwt::Pmd, Cwt::Pud] {
            if state.regs[PLAN] >> WANTED & bit(cwt) != 0 {
                let table = self.walk.table(cwt);
                let (key, _) = cwt::place_of(cwt::section_of(cwt, low));
                if let Some(place) = table.find(key) {
                    caches.keep_line(cwt, key, *table.line(place));
                }
            }
        }
        state.regs[PLAN] &= !(FETCHING | BOTH << WANTED);
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Cuckoo<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        if state.step == 0 {
            return self.begin(va, state, caches);
        }
        let low = self.width.low(va);
        if state.regs[PROBED] != 0 {
            self.look(va, state, caches);
        }
        if state.regs[PLAN] & FETCHING != 0 {
            self.fetched(low, state, caches);
        }
        if state.regs[PLAN] >> WANTED & BOTH != 0
            && let Some(fetch) = self.fetch(low, state, caches)
        {
            return fetch;
        }
        let plan = state.regs[PLAN];
        if plan & FOUND != 0 {
            let size = PageSize::ALL[(plan & FOUND) as usize - 1];
            return Next::Done(self.translation(state.regs[ENTRY], state.regs[LEAF], size));
        }
        if plan & ALL != 0 {
            return Next::Fault;
        }
        // The walk caches are stale, or the page is not mapped.
        if let Some(stats) = caches.cuckoo_stats() {
            stats.retried += 1;
            stats.probes += u64::from(self.live.0.count_ones());
        }
        state.regs[PLAN] |= ALL;
        self.probe(va, self.live, state)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let va = va.raw();
        if !self.width.canonical(va) {
            return None;
        }
        PageSize::ALL.into_iter().find_map(|size| {
            let (key, index) = self.width.place(va, size);
            let table = &self.tables[size.index()];
            let place = table.find(key)?;
            let entry = PteCluster::get(table.line(place), index)?;
            let leaf = table.address(place) + 8 * index as u64;
            Some(self.translation(entry, leaf, size))
        })
    }
}
