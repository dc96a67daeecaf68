//! The MMU of one core: from a virtual address to a physical one, in time.

use pagewalk_memory::{Below, Private};
use pagewalk_stats::Tree;
use pagewalk_structures::Occupancy;
use pagewalk_tables::{Flags, Invalidation, Translation, View, WalkCacheSet};
use pagewalk_units::{Access, Asid, Cycle, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

use crate::level::{Found, Level};
use crate::tlb::{Entry, key};
use crate::walk::{Missing, Nesting, Physical, Served, Warming, combine, walk, walk_nested};
use crate::{MmuSpec, WalkRecord};

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where the byte lies.
    pub pa: PhysAddr,
    /// When the translation is known; = the time of asking for an L1 TLB hit, whose lookup is part of the L1 cache's load-to-use.
    pub at: Cycle,
    /// Which part of the MMU had it.
    pub from: From,
}

/// Where a translation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// First-level TLB.
    L1,
    /// Second-level TLB.
    L2,
    /// A walk, its own or one that it waited for.
    Walk,
}

/// A translation that only the kernel can make possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub va: VirtAddr,
    /// What was wanted.
    pub access: Access,
    /// When the hardware found out.
    pub at: Cycle,
    /// The host has nothing behind this guest-physical address: a fault of the
    /// hypervisor, not of the guest's kernel.
    pub host: Option<GuestPhysAddr>,
}

pagewalk_stats::counters! {
    /// What the MMU of one core counted.
    pub struct MmuStats {
        translations: "translations", "Addresses translated, data and instructions";
        l2_hits: "translations", "Translations that the first level missed and the second had";
        walks: "walks", "Page walks, those that ended in a fault among them";
        walks_merged: "translations", "Translations that waited for a walk to the same 4 KB page instead of walking";
        walk_cycles: "cycles", "Sum of the walks' lengths, from a walker's start to the outcome";
        walker_wait_cycles: "cycles", "Sum of the times that walks waited for a walker";
        walk_reads: "reads", "Reads that walks made";
        walk_reads_l1d: "reads", "Walk reads served by the first-level data cache";
        walk_reads_l2: "reads", "Walk reads served by the second-level cache";
        walk_reads_l3: "reads", "Walk reads served by the shared cache";
        walk_reads_remote: "reads", "Walk reads served by another core's cache";
        walk_reads_memory: "reads", "Walk reads served by DRAM";
        faults: "faults", "Translations that ended in a page fault";
        invalidations: "invalidations", "Invalidations of pages, ranges or address spaces taken";
    }
}

pagewalk_stats::counters! {
    /// What one page-walk cache counted.
    pub struct PwcStats {
        lookups: "lookups", "Lookups in the page-walk cache of this level";
        hits: "lookups", "Lookups that found an entry that was ready";
    }
}

/// Arrays of walk caches that are kept: array `k` holds entries of level `k + 2`
/// of a radix table, and five levels are the most there are.
const PWC_ARRAYS: usize = 4;
/// Walks remembered for merging: more than a window has outstanding.
const IN_FLIGHT: usize = 64;
/// Translations that a perfect MMU remembers, only to be fast on the host.
const REMEMBERED: usize = 1024;
/// Pages of a range beyond which arrays are scanned instead of probed.
const PROBED_PAGES: u64 = 32;

/// The page of the last access: most accesses hit it again. It is the most
/// recently used entry already, so a hit here changes nothing but a count.
#[derive(Clone, Copy, Debug)]
struct Filter {
    /// Key of the 4 KB page; `u64::MAX`: none.
    page: u64,
    /// Frame of that 4 KB page.
    frame: u64,
    ready: Cycle,
    writable: bool,
    /// Array of the first level that holds it.
    array: u32,
    /// Hits not yet handed to the array's count.
    hits: u64,
}

const NO_PAGE: Filter = Filter {
    page: u64::MAX,
    frame: 0,
    ready: 0,
    writable: false,
    array: 0,
    hits: 0,
};

/// A walk that may not have ended yet.
#[derive(Clone, Copy, Debug)]
struct Flight {
    asked: Cycle,
    end: Cycle,
    found: Found,
}

/// The MMU of one core.
pub struct Mmu {
    /// Data, instructions.
    filter: [Filter; 2],
    /// Cycles by which a first-level lookup outlasts the cache's.
    exceeds: [Cycle; 2],
    perfect: bool,
    /// Data, instructions.
    l1: [Level; 2],
    /// Second level; the second entry is the instructions' own, if they have one.
    l2: [Option<Box<Level>>; 2],
    pwc: WalkCacheSet,
    /// A walk's length is unknown when it starts: admitted first, held when its end is known.
    walkers: Occupancy,
    flight_keys: Box<[u64; IN_FLIGHT]>,
    flights: Box<[Flight; IN_FLIGHT]>,
    next_flight: usize,
    /// End of the latest walk: where warming's clock stands.
    latest: Cycle,
    nesting: Option<Box<Nesting>>,
    nested_pwc: WalkCacheSet,
    /// Page key, frame with bit 0 = writable: what a perfect MMU was told.
    remembered: Box<[(u64, u64)]>,
    core: u8,
    perfect_translations: u64,
    stats: MmuStats,
    records: Option<Vec<WalkRecord>>,
}

#[inline]
fn side(access: Access) -> usize {
    usize::from(access == Access::Fetch)
}

impl Found {
    fn of(t: &Translation<PhysAddr>) -> Self {
        Found {
            frame: t.frame.base.0,
            size: t.size,
            writable: t.flags.contains(Flags::WRITABLE),
        }
    }
    pub(crate) fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.frame + (va.0 & (self.size.bytes() - 1)))
    }
}

impl Mmu {
    /// An empty MMU; refuses what is impossible with a sentence that names the key.
    pub fn new(spec: &MmuSpec, core: u8) -> Result<Self, String> {
        spec.check()?;
        let level =
            |s: &std::collections::BTreeMap<_, _>| (!s.is_empty()).then(|| Box::new(Level::new(s)));
        let none = Flight {
            asked: 0,
            end: 0,
            found: Found {
                frame: 0,
                size: PageSize::K4,
                writable: false,
            },
        };
        let remembered = if spec.perfect { REMEMBERED } else { 0 };
        let pwc = WalkCacheSet::new(&spec.walk_caches, PWC_ARRAYS);
        Ok(Mmu {
            filter: [NO_PAGE; 2],
            exceeds: [0; 2],
            perfect: spec.perfect,
            l1: [Level::new(&spec.l1d), Level::new(&spec.l1i)],
            l2: [level(&spec.l2), level(&spec.l2i)],
            nested_pwc: pwc.clone(),
            pwc,
            walkers: Occupancy::new(spec.walkers as usize),
            flight_keys: Box::new([u64::MAX; IN_FLIGHT]),
            flights: Box::new([none; IN_FLIGHT]),
            next_flight: 0,
            latest: 0,
            nesting: None,
            remembered: vec![(u64::MAX, 0); remembered].into(),
            core,
            perfect_translations: 0,
            stats: MmuStats::default(),
            records: None,
        })
    }

    /// The first-level lookup runs beside that of a cache with this load-to-use:
    /// only what exceeds it delays an access.
    pub fn run_beside(&mut self, load_to_use: Cycle) {
        for side in 0..2 {
            self.exceeds[side] = self.l1[side].latency.saturating_sub(load_to_use);
        }
    }

    /// Translates `va`, asked for at `now` by the instruction at `pc`.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn translate<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        now: Cycle,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let s = side(access);
        let f = &mut self.filter[s];
        if f.page == key(asid, PageSize::K4, va.0)
            && f.ready <= now
            && (access != Access::Write || f.writable)
        {
            f.hits += 1;
            return Ok(Answer {
                pa: PhysAddr(f.frame | va.0 & 0xfff),
                at: now + self.exceeds[s],
                from: From::L1,
            });
        }
        self.look_up(asid, va, access, pc, now, view, private, below)
    }

    /// Hands the filter's hits to their array.
    #[inline]
    fn settle(&mut self, s: usize) {
        let f = &mut self.filter[s];
        let hits = std::mem::take(&mut f.hits);
        if self.perfect {
            self.perfect_translations += hits;
        } else {
            self.l1[s].lookups += hits;
            self.l1[s].arrays[f.array as usize].hits += hits;
        }
    }

    #[inline]
    fn watch(&mut self, s: usize, page: u64, pa: PhysAddr, e: Entry, array: usize) {
        self.filter[s] = Filter {
            page,
            frame: pa.0 & !0xfff,
            ready: e.ready,
            writable: e.writable(),
            array: array as u32,
            hits: 0,
        };
    }

    #[allow(clippy::too_many_arguments)]
    fn look_up<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        now: Cycle,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let s = side(access);
        self.settle(s);
        if self.perfect {
            self.perfect_translations += 1;
            let (pa, _) = self.know(asid, va, access, now, view)?;
            return Ok(Answer {
                pa,
                at: now,
                from: From::L1,
            });
        }
        let level = &mut self.l1[s];
        level.lookups += 1;
        if let Some((a, slot)) = level.find(asid, va.0) {
            let array = &mut level.arrays[a];
            let e = array.entries[slot];
            if e.ready <= now {
                array.hits += 1;
                array.touch(slot);
                let at = now + self.exceeds[s];
                if access == Access::Write && !e.writable() {
                    return Err(self.refuse(asid, va, access, at));
                }
                let pa = level.address(a, slot, va);
                self.watch(s, key(asid, PageSize::K4, va.0), pa, e, a);
                return Ok(Answer {
                    pa,
                    at,
                    from: From::L1,
                });
            }
        }
        self.miss(asid, va, access, pc, now, view, private, below)
    }

    /// Past the first level.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn miss<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        now: Cycle,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let s = side(access);
        let own = s & usize::from(self.l2[1].is_some());
        let mut asked = now;
        if let Some(level) = &mut self.l2[own] {
            level.lookups += 1;
            asked += level.latency;
            if let Some((a, slot)) = level.find(asid, va.0)
                && level.arrays[a].entries[slot].ready <= now
            {
                let array = &mut level.arrays[a];
                array.hits += 1;
                array.touch(slot);
                let at = now + array.latency;
                let found = array.found(slot);
                self.stats.l2_hits += 1;
                if access == Access::Write && !found.writable {
                    return Err(self.refuse(asid, va, access, at));
                }
                let pa = found.pa(va);
                self.fill_l1(s, asid, va, found, at, true);
                return Ok(Answer {
                    pa,
                    at,
                    from: From::L2,
                });
            }
        }
        if let Some(answer) = self.join(asid, va, access, pc, now, asked) {
            return answer;
        }

        let walker = self.walkers.admit(asked);
        let start = walker.start;
        let mut record = self.records.as_ref().map(|_| Vec::new());
        let mut port = Physical {
            private,
            below,
            core: self.core,
            served: Served::default(),
            record: record.as_mut(),
        };
        let (end, found) = match *view {
            View::Native(table) => walk(table, va, asid, &mut self.pwc, &mut port, start),
            View::Nested { guest, host } => {
                let nesting = self
                    .nesting
                    .get_or_insert_with(|| Box::new(Nesting::new(self.nested_pwc.clone())));
                walk_nested(
                    guest,
                    host,
                    va,
                    asid,
                    &mut self.pwc,
                    nesting,
                    &mut port,
                    start,
                )
            }
        };
        let served = port.served;
        self.walkers.hold(walker, end);
        self.latest = self.latest.max(end);
        let st = &mut self.stats;
        st.walks += 1;
        st.walk_cycles += end - start;
        st.walker_wait_cycles += start - asked;
        st.walk_reads_l1d += served.l1d;
        st.walk_reads_l2 += served.l2;
        st.walk_reads_l3 += served.l3;
        st.walk_reads_remote += served.remote;
        st.walk_reads_memory += served.memory;
        let outcome = match found {
            Ok(t) => {
                let found = Found::of(&t);
                self.fill(s, asid, va, found, end, true);
                let i = self.next_flight;
                self.next_flight = (i + 1) % IN_FLIGHT;
                self.flight_keys[i] = key(asid, PageSize::K4, va.0);
                self.flights[i] = Flight { asked, end, found };
                if access == Access::Write && !found.writable {
                    Err(self.refuse(asid, va, access, end))
                } else {
                    Ok(Answer {
                        pa: found.pa(va),
                        at: end,
                        from: From::Walk,
                    })
                }
            }
            Err(missing) => {
                let mut fault = self.refuse(asid, va, access, end);
                if let Missing::Host(gpa) = missing {
                    fault.host = Some(gpa);
                }
                Err(fault)
            }
        };
        if let (Some(records), Some(reads)) = (&mut self.records, record) {
            records.push(WalkRecord {
                asid,
                va,
                pc,
                access,
                start,
                end,
                merged: false,
                faulted: outcome.is_err(),
                reads,
            });
        }
        outcome
    }

    /// Waits for a walk to the same 4 KB page that has not ended at `now`.
    fn join(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        now: Cycle,
        asked: Cycle,
    ) -> Option<Result<Answer, Fault>> {
        if self.latest <= now {
            return None;
        }
        let page = key(asid, PageSize::K4, va.0);
        let same = self
            .flight_keys
            .iter()
            .fold(0, |n, &k| n + u32::from(k == page));
        if same == 0 {
            return None;
        }
        let i =
            (0..IN_FLIGHT).find(|&i| self.flight_keys[i] == page && self.flights[i].end > now)?;
        let flight = &mut self.flights[i];
        if flight.asked > asked {
            // Older in the program, later in time: had this request been seen
            // first, its walk would have served the other.
            flight.end = asked + (flight.end - flight.asked);
            flight.asked = asked;
        }
        let flight = *flight;
        let at = flight.end.max(asked);
        self.stats.walks_merged += 1;
        let s = side(access);
        self.fill(s, asid, va, flight.found, at, true);
        if let Some(records) = &mut self.records {
            records.push(WalkRecord {
                asid,
                va,
                pc,
                access,
                start: asked,
                end: at,
                merged: true,
                faulted: access == Access::Write && !flight.found.writable,
                reads: Vec::new(),
            });
        }
        if access == Access::Write && !flight.found.writable {
            return Some(Err(self.refuse(asid, va, access, at)));
        }
        Some(Ok(Answer {
            pa: flight.found.pa(va),
            at,
            from: From::Walk,
        }))
    }

    fn fill_l1(&mut self, s: usize, asid: Asid, va: VirtAddr, f: Found, ready: Cycle, n: bool) {
        if let Some((a, slot)) = self.l1[s].fill(asid, va.0, f, ready, n) {
            let e = self.l1[s].arrays[a].entries[slot];
            self.watch(s, key(asid, PageSize::K4, va.0), f.pa(va), e, a);
        } else {
            self.filter[s] = NO_PAGE;
        }
    }

    fn fill(&mut self, s: usize, asid: Asid, va: VirtAddr, f: Found, ready: Cycle, n: bool) {
        let own = s & usize::from(self.l2[1].is_some());
        if let Some(level) = &mut self.l2[own] {
            level.fill(asid, va.0, f, ready, n);
        }
        self.fill_l1(s, asid, va, f, ready, n);
    }

    /// A page fault drops what the TLBs hold of the page (Intel SDM vol. 3,
    /// 4.10.4.1), so that the next try sees what the kernel did.
    #[cold]
    fn refuse(&mut self, asid: Asid, va: VirtAddr, access: Access, at: Cycle) -> Fault {
        self.stats.faults += 1;
        self.drop_page(asid, va.0);
        self.forget_flights(asid);
        Fault {
            va,
            access,
            at,
            host: None,
        }
    }

    /// The translation itself, without hardware.
    fn know(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        now: Cycle,
        view: &View<'_>,
    ) -> Result<(PhysAddr, bool), Fault> {
        let page = key(asid, PageSize::K4, va.0);
        let slot = page as usize % REMEMBERED;
        let (known, frame) = self.remembered[slot];
        let (pa, writable) = if known == page {
            (PhysAddr(frame & !0xfff | va.0 & 0xfff), frame & 1 != 0)
        } else {
            let fault = Fault {
                va,
                access,
                at: now,
                host: None,
            };
            let found = match *view {
                View::Native(table) => table.translate(va).ok_or(fault),
                View::Nested { guest, host } => guest.translate(va).ok_or(fault).and_then(|g| {
                    let gpa = GuestPhysAddr(g.frame.base.0 + (va.0 & (g.size.bytes() - 1)));
                    let h = host.translate(gpa).ok_or(Fault {
                        host: Some(gpa),
                        ..fault
                    })?;
                    let pa = PhysAddr(h.frame.base.0 + (gpa.0 & (h.size.bytes() - 1)));
                    Ok(combine(&g, va, pa, h.size))
                }),
            };
            let found = match found {
                Ok(t) => Found::of(&t),
                Err(fault) => {
                    self.stats.faults += 1;
                    return Err(fault);
                }
            };
            let pa = found.pa(va);
            self.remembered[slot] = (page, pa.0 & !0xfff | u64::from(found.writable));
            (pa, found.writable)
        };
        if access == Access::Write && !writable {
            self.remembered[slot] = (u64::MAX, 0);
            return Err(self.refuse(asid, va, access, now));
        }
        let e = Entry::new(0, writable, 0);
        self.watch(side(access), page, pa, e, 0);
        Ok((pa, writable))
    }

    /// State only: what [`Mmu::translate`] would leave behind, without time and
    /// without counting.
    #[inline]
    pub fn warm<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<PhysAddr, Fault> {
        let f = &self.filter[side(access)];
        if f.page == key(asid, PageSize::K4, va.0) && (access != Access::Write || f.writable) {
            return Ok(PhysAddr(f.frame | va.0 & 0xfff));
        }
        self.warm_look_up(asid, va, access, view, private, below)
    }

    fn warm_look_up<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<PhysAddr, Fault> {
        let s = side(access);
        self.settle(s);
        let now = self.latest;
        if self.perfect {
            return self.know(asid, va, access, now, view).map(|k| k.0);
        }
        let level = &mut self.l1[s];
        if let Some((a, slot)) = level.find(asid, va.0) {
            let array = &mut level.arrays[a];
            array.touch(slot);
            let e = array.entries[slot];
            if access == Access::Write && !e.writable() {
                return Err(self.refuse(asid, va, access, now));
            }
            let pa = level.address(a, slot, va);
            self.watch(s, key(asid, PageSize::K4, va.0), pa, e, a);
            return Ok(pa);
        }
        let own = s & usize::from(self.l2[1].is_some());
        if let Some(level) = &mut self.l2[own]
            && let Some((a, slot)) = level.find(asid, va.0)
        {
            level.arrays[a].touch(slot);
            let found = level.arrays[a].found(slot);
            if access == Access::Write && !found.writable {
                return Err(self.refuse(asid, va, access, now));
            }
            self.fill_l1(s, asid, va, found, 0, false);
            return Ok(found.pa(va));
        }
        let mut counts = [[0; 2]; PWC_ARRAYS];
        let arrays = self.pwc.counts.len();
        counts[..arrays].copy_from_slice(&self.pwc.counts);
        let mut port = Warming {
            private,
            below,
            core: self.core,
        };
        let (_, found) = match *view {
            View::Native(table) => walk(table, va, asid, &mut self.pwc, &mut port, now),
            View::Nested { guest, host } => {
                let nesting = self
                    .nesting
                    .get_or_insert_with(|| Box::new(Nesting::new(self.nested_pwc.clone())));
                walk_nested(
                    guest,
                    host,
                    va,
                    asid,
                    &mut self.pwc,
                    nesting,
                    &mut port,
                    now,
                )
            }
        };
        self.pwc.counts.copy_from_slice(&counts[..arrays]);
        let found = match found {
            Ok(t) => Found::of(&t),
            Err(missing) => {
                let mut fault = self.refuse(asid, va, access, now);
                if let Missing::Host(gpa) = missing {
                    fault.host = Some(gpa);
                }
                return Err(fault);
            }
        };
        if access == Access::Write && !found.writable {
            return Err(self.refuse(asid, va, access, now));
        }
        self.fill(s, asid, va, found, 0, false);
        Ok(found.pa(va))
    }

    fn drop_page(&mut self, asid: Asid, va: u64) {
        self.settle(0);
        self.settle(1);
        self.filter = [NO_PAGE; 2];
        for level in self
            .l1
            .iter_mut()
            .chain(self.l2.iter_mut().flatten().map(|l| &mut **l))
        {
            for array in &mut level.arrays {
                array.drop_page(asid, va);
            }
        }
    }

    fn forget_flights(&mut self, asid: Asid) {
        for k in self.flight_keys.iter_mut() {
            if *k >> 48 == u64::from(asid.0) {
                *k = u64::MAX;
            }
        }
    }

    /// Forgets what the kernel has changed.
    pub fn invalidate(&mut self, what: &Invalidation) {
        self.stats.invalidations += 1;
        self.settle(0);
        self.settle(1);
        self.filter = [NO_PAGE; 2];
        self.remembered.fill((u64::MAX, 0));
        let (asid, range) = match *what {
            Invalidation::Page { asid, page } => (asid, Some((page.base.0, page.size.bytes()))),
            Invalidation::Range { asid, at, bytes } => (asid, Some((at.0, bytes))),
            Invalidation::Space { asid } => (asid, None),
        };
        self.forget_flights(asid);
        self.pwc.invalidate(asid);
        if let Some(n) = &mut self.nesting {
            n.clear();
        }
        for level in self
            .l1
            .iter_mut()
            .chain(self.l2.iter_mut().flatten().map(|l| &mut **l))
        {
            for array in &mut level.arrays {
                match range {
                    None => array.drop_space(asid),
                    Some((at, bytes)) => {
                        let first = at >> 12;
                        let pages = (at.saturating_add(bytes).div_ceil(4096)).saturating_sub(first);
                        if pages <= PROBED_PAGES {
                            for p in first..first + pages {
                                array.drop_page(asid, p << 12);
                            }
                        } else {
                            array.drop_range(asid, at, bytes);
                        }
                    }
                }
            }
        }
    }

    /// Keeps a record of every walk from now on, or stops and forgets them.
    pub fn record_walks(&mut self, on: bool) {
        self.records = on.then(Vec::new);
    }

    /// The walks recorded since the last call, in the order of the program.
    pub fn take_walk_records(&mut self) -> Vec<WalkRecord> {
        self.records
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Counters of the MMU itself.
    pub fn stats(&self) -> MmuStats {
        let l1: u64 = self.l1.iter().map(|l| l.lookups).sum();
        let s = &self.stats;
        MmuStats {
            translations: l1
                + self.perfect_translations
                + self.filter.iter().map(|f| f.hits).sum::<u64>(),
            walk_reads: s.walk_reads_l1d
                + s.walk_reads_l2
                + s.walk_reads_l3
                + s.walk_reads_remote
                + s.walk_reads_memory,
            ..*s
        }
    }

    /// Adds the MMU's counters at `path`, its arrays' below.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        for (s, name) in ["l1d", "l1i"].into_iter().enumerate() {
            let f = &self.filter[s];
            let extra = (!self.perfect).then_some((f.array as usize, f.hits));
            self.l1[s].report(&format!("{path}.{name}"), extra, tree);
        }
        for (s, name) in ["l2", "l2i"].into_iter().enumerate() {
            if let Some(level) = &self.l2[s] {
                level.report(&format!("{path}.{name}"), None, tree);
            }
        }
        for (i, &[lookups, hits]) in self.pwc.counts.iter().enumerate() {
            tree.add(
                &format!("{path}.pwc.{}", i + 2),
                &PwcStats { lookups, hits },
            );
        }
    }
}

#[cfg(test)]
#[path = "filter_test.rs"]
mod filter_test;
