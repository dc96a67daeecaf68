//! The page walk, native or nested.
//!
//! [`MmuCaches::walk`] is the entry. The MMU calls it with a walker's start time and a [`Port`],
//! which performs the reads: [`Physical`] reads through the core's caches in time, [`Warming`]
//! changes the caches' state without time.
//!
//! - Native: [`walk`] loops over [`Walk::next`] of the page table. The table looks into its walk
//!   caches and names the next entry or group of entries to read. The port reads them and returns
//!   when they arrive. The loop ends with a translation or a missing page.
//! - Nested: [`walk_nested`] runs the same loop over the guest's table with the port [`Guest`].
//!   That port first resolves each guest-physical address through the nested TLB, and on a miss
//!   through a walk of the host's table ([`Nesting::resolve`]). It then reads the entry from
//!   physical memory. The guest-physical address of the data is resolved last.
//!
//! Page tables know nothing of nesting: the two kinds of walk differ only in the port.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Done, Level, Private, Request, RequestKind};
use pagewalk_structures::SetAssoc;
use pagewalk_tables::{
    Flags, Group, Next, Translation, View, Walk, WalkCacheSet, WalkCaches, WalkState,
};
use pagewalk_units::{Addr, Asid, Cycle, Frame, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

use crate::engine::{NestedStep, NestedSteps};
use crate::{MmuSpec, NestedTlbSpec, ReadRecord};

/// Reason why a walk found no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The page table does not map the page.
    Page,
    /// The host does not back this guest-physical address, which the walk needed.
    Host(GuestPhysAddr),
}

impl Missing {
    /// The guest-physical address that the host does not back.
    pub fn behind(self) -> Option<GuestPhysAddr> {
        match self {
            Missing::Page => None,
            Missing::Host(gpa) => Some(gpa),
        }
    }
}

/// The page-table entry at which a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<A> {
    /// Address of the entry: physical for a host's entry, guest-physical for a guest's.
    pub at: A,
    /// Flags of the entry.
    pub flags: Flags,
}

impl<A: Addr> Leaf<A> {
    #[inline]
    fn of(translation: &Translation<A>) -> Self {
        Leaf {
            at: translation.leaf,
            flags: translation.flags,
        }
    }
}

/// Result of a walk, native or nested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Frame of the page that contains the address.
    pub frame: Frame<PhysAddr>,
    /// Size of the page; in a nested walk the smaller of the guest's and the host's.
    pub size: PageSize,
    /// The entry that names the frame; in a nested walk the host's.
    pub leaf: Leaf<PhysAddr>,
    /// The guest's entry, in a nested walk.
    pub guest: Option<Leaf<GuestPhysAddr>>,
}

impl Walked {
    /// Result of a native walk.
    #[inline]
    pub(crate) fn native(found: &Translation<PhysAddr>) -> Self {
        Walked {
            frame: found.frame,
            size: found.size,
            leaf: Leaf::of(found),
            guest: None,
        }
    }

    /// Result of a nested walk for `va`.
    fn nested(guest: &Translation<GuestPhysAddr>, host: &Backing, va: VirtAddr) -> Self {
        let size = guest.size.min(host.size);
        Walked {
            frame: Frame {
                base: PhysAddr(host.pa.0 - (va.0 & (size.bytes() - 1))),
            },
            size,
            leaf: host.leaf,
            guest: Some(Leaf::of(guest)),
        }
    }

    /// True if the program may write. In a nested walk the guest's entry decides.
    #[inline]
    pub fn writable(&self) -> bool {
        let flags = self.guest.map_or(self.leaf.flags, |g| g.flags);
        flags.contains(Flags::WRITABLE)
    }

    /// Physical address of `va`, an address in the page.
    #[inline]
    pub fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.frame.base.0 + (va.0 & (self.size.bytes() - 1)))
    }

    /// Physical addresses of the entries at which the walk of `view` ended: the guest's, if there
    /// is one, and the one that names the frame.
    pub(crate) fn entries(&self, view: &View<'_>) -> ArrayVec<PhysAddr, 2> {
        let mut entries = ArrayVec::new();
        if let (Some(guest), View::Nested { host, .. }) = (self.guest, view)
            && let Some(found) = host.translate(guest.at)
        {
            entries.push(Backing::of(&found, guest.at).pa);
        }
        entries.push(self.leaf.at);
        entries
    }
}

/// The physical memory that backs a guest-physical address.
#[derive(Clone, Copy, Debug)]
struct Backing {
    pa: PhysAddr,
    size: PageSize,
    leaf: Leaf<PhysAddr>,
}

impl Backing {
    fn of(found: &Translation<PhysAddr>, gpa: GuestPhysAddr) -> Self {
        Backing {
            pa: PhysAddr(found.frame.base.0 + (gpa.0 & (found.size.bytes() - 1))),
            size: found.size,
            leaf: Leaf::of(found),
        }
    }
}

/// Guest-physical address of `va`, an address in the page.
fn guest_physical(found: &Translation<GuestPhysAddr>, va: VirtAddr) -> GuestPhysAddr {
    GuestPhysAddr(found.frame.base.0 + (va.0 & (found.size.bytes() - 1)))
}

/// Translates `va` without time and without any effect on caches.
pub(crate) fn translate_untimed(view: &View<'_>, va: VirtAddr) -> Result<Walked, Missing> {
    match *view {
        View::Native(table) => {
            let found = table.translate(va).ok_or(Missing::Page)?;
            Ok(Walked::native(&found))
        }
        View::Nested { guest, host } => {
            let found = guest.translate(va).ok_or(Missing::Page)?;
            let gpa = guest_physical(&found, va);
            let backing = host.translate(gpa).ok_or(Missing::Host(gpa))?;
            Ok(Walked::nested(&found, &Backing::of(&backing, gpa), va))
        }
    }
}

/// Physical addresses of the entries that `step` of a nested walk will read. These are the host's
/// last-level entry, and the guest's entry unless the step is for the data. Empty if the host does
/// not back the address.
pub(crate) fn behind(view: &View<'_>, step: &NestedStep) -> ArrayVec<PhysAddr, 2> {
    let mut entries = ArrayVec::new();
    if let View::Nested { host, .. } = view
        && let Some(found) = host.translate(step.gpa)
    {
        entries.push(found.leaf);
        if step.level > 0 {
            entries.push(Backing::of(&found, step.gpa).pa);
        }
    }
    entries
}

/// True if a read of `va` would not fault, neither in the guest nor in the host.
pub fn is_mapped(view: &View<'_>, va: VirtAddr) -> bool {
    translate_untimed(view, va).is_ok()
}

/// Performs the reads of a walker.
pub(crate) trait Port<A> {
    /// Reads the entry of a table's `level` at address `at`, requested at `now`. An error holds the
    /// cycle at which the walk of the host's table finds no backing.
    fn read(&mut self, at: A, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)>;
    /// As [`Port::read`], but a line that is not in the core's caches is not allocated there.
    fn read_no_allocate(&mut self, at: A, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)>;
    /// Called when the nested TLB has missed on `gpa` at `now`. `level` is that of the guest's
    /// entry at `gpa`, or 0 if `gpa` is the address of the data.
    fn on_nested_step(&mut self, _gpa: GuestPhysAddr, _level: u8, _now: Cycle) {}
}

/// Walks `table` for `va` from `start`. Returns the cycle at which the outcome is known, and the
/// result of `found` for the translation.
// `found` takes a reference: a copy would stall the host, because the translation was just stored.
#[inline]
pub(crate) fn walk<In: Addr, Out: Addr, T>(
    table: &dyn Walk<In, Out>,
    va: In,
    asid: Asid,
    pwc: &mut WalkCacheSet,
    port: &mut impl Port<Out>,
    start: Cycle,
    found: impl FnOnce(&Translation<Out>) -> T,
) -> (Cycle, Result<T, Missing>) {
    let mut state = WalkState::default();
    let mut caches = WalkCaches::new(pwc, asid, start);
    let mut t = start;
    // When the last group on the walk's critical path was requested. A group off that path is
    // requested at the same time.
    let mut requested = start;
    loop {
        caches.now = t;
        caches.spent = 0;
        let next = table.next(va, &mut state, &mut caches);
        t = caches.now + caches.spent;
        // Not one `match`, which compiles to an indirect jump: the host predicts these branches
        // better. By reference, because a group is large and would be copied.
        if let &Next::One { at, level } = &next {
            match port.read(at, level, t) {
                Ok(done) => t = t.max(done.at),
                Err((at, missing)) => return (at, Err(missing)),
            }
        } else if let Next::Done(translation) = &next {
            return (t, Ok(found(translation)));
        } else if let Next::Read(group) = &next {
            if !group.off_path {
                requested = t;
            }
            match read_group(group, port, requested, &mut caches) {
                Ok(back) if group.off_path => caches.back = back,
                Ok(back) => t = back,
                Err((at, missing)) => return (at, Err(missing)),
            }
        } else {
            return (t, Err(Missing::Page));
        }
    }
}

/// Reads a group of entries requested at `t`. Returns when the walk can continue: when the matching
/// entry arrives, if the table names one, else when the last entry arrives.
#[inline(never)]
fn read_group<Out: Addr>(
    group: &Group<Out>,
    port: &mut impl Port<Out>,
    t: Cycle,
    caches: &mut WalkCaches<'_>,
) -> Result<Cycle, (Cycle, Missing)> {
    let mut back = t;
    let only = group.matching.filter(|_| caches.keeps_matches_only());
    for (i, &at) in group.at.iter().enumerate() {
        let done = if only.is_some_and(|m| usize::from(m) != i) {
            port.read_no_allocate(at, group.level, t)?
        } else {
            port.read(at, group.level, t)?
        };
        if !group.off_path {
            caches.arrive(i, done.at);
        }
        match group.matching {
            Some(m) if usize::from(m) != i => {}
            _ => back = back.max(done.at),
        }
    }
    Ok(back)
}

/// Number of levels of the memory system.
pub(crate) const LEVELS: usize = Level::Memory as usize + 1;

/// A walker's read of the page-table entry at `at`.
#[inline]
pub(crate) fn request(at: PhysAddr, core: u8) -> Request {
    Request {
        at,
        kind: RequestKind::Walk,
        core,
        pc: 0,
    }
}

/// The timed port: reads go to physical memory through the core's caches.
pub(crate) struct Physical<'a, B> {
    /// The core's private caches.
    pub private: &'a mut Private,
    /// The memory system below them.
    pub below: &'a mut B,
    /// Number of the core.
    pub core: u8,
    /// Reads, by the level that served them.
    pub served: &'a mut [u64; LEVELS],
    /// Records each read, if set.
    pub record: Option<&'a mut Vec<ReadRecord>>,
    /// Guesses within nested walks, if the engine makes such guesses.
    pub nested_steps: Option<NestedSteps<'a>>,
}

impl<B> Physical<'_, B> {
    #[inline]
    fn counted(&mut self, at: PhysAddr, level: u8, start: Cycle, done: Done) -> Done {
        self.served[done.level as usize] += 1;
        if self.record.is_some() {
            self.note(at, level, start, done);
        }
        done
    }

    #[cold]
    fn note(&mut self, at: PhysAddr, level: u8, start: Cycle, done: Done) {
        if let Some(reads) = &mut self.record {
            reads.push(ReadRecord {
                at,
                level,
                start,
                end: done.at,
                served: done.level,
            });
        }
    }
}

impl<B: Below> Port<PhysAddr> for Physical<'_, B> {
    #[inline]
    fn read(&mut self, at: PhysAddr, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)> {
        let done = self.private.access(request(at, self.core), now, self.below);
        Ok(self.counted(at, level, now, done))
    }

    fn read_no_allocate(
        &mut self,
        at: PhysAddr,
        level: u8,
        now: Cycle,
    ) -> Result<Done, (Cycle, Missing)> {
        let done = self
            .private
            .read_no_allocate(request(at, self.core), now, self.below);
        Ok(self.counted(at, level, now, done))
    }

    #[inline]
    fn on_nested_step(&mut self, gpa: GuestPhysAddr, level: u8, now: Cycle) {
        if let Some(nested_steps) = &mut self.nested_steps {
            nested_steps.step((gpa, level, now), self.private, self.below);
        }
    }
}

/// A port on which no read begins from cycle `until` on: the walk is ended.
pub(crate) struct Until<P> {
    /// The port.
    pub port: P,
    /// When the walk is ended.
    pub until: Cycle,
}

impl<P: Port<PhysAddr>> Port<PhysAddr> for Until<P> {
    fn read(&mut self, at: PhysAddr, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)> {
        if now >= self.until {
            return Err((self.until, Missing::Page));
        }
        self.port.read(at, level, now)
    }

    fn read_no_allocate(
        &mut self,
        at: PhysAddr,
        level: u8,
        now: Cycle,
    ) -> Result<Done, (Cycle, Missing)> {
        if now >= self.until {
            return Err((self.until, Missing::Page));
        }
        self.port.read_no_allocate(at, level, now)
    }
}

/// The untimed port, for functional warming: reads change the state of caches and take no time.
pub(crate) struct Warming<'a, B> {
    /// The core's private caches.
    pub private: &'a mut Private,
    /// The memory system below them.
    pub below: &'a mut B,
    /// Number of the core.
    pub core: u8,
}

impl<B: Below> Port<PhysAddr> for Warming<'_, B> {
    #[inline]
    fn read(&mut self, at: PhysAddr, _: u8, now: Cycle) -> Result<Done, (Cycle, Missing)> {
        self.private.warm(request(at, self.core), self.below);
        Ok(Done::new(now, Level::L1))
    }

    fn read_no_allocate(
        &mut self,
        at: PhysAddr,
        _: u8,
        now: Cycle,
    ) -> Result<Done, (Cycle, Missing)> {
        self.private
            .warm_no_allocate(request(at, self.core), self.below);
        Ok(Done::new(now, Level::L1))
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's nested TLB and of its walks of the host's table.
    pub struct NestedStats {
        lookups: "lookups", "Guest-physical addresses looked up in the nested TLB: addresses of the guest's page-table entries and of the pages that they map";
        hits: "lookups", "Lookups that found a translation that was ready";
        fills: "entries", "Translations filled into the nested TLB";
        host_walks: "walks", "Walks of the host's page table, including those that found no mapping";
    }
}

/// Translations of the host that a core caches while it runs a guest.
pub(crate) struct Nesting {
    /// The nested TLB, if there is one. It maps a guest-physical 4 KB page to its backing and the
    /// cycle from which the entry is ready.
    tlb: Option<SetAssoc<Option<(Backing, Cycle)>>>,
    latency: Cycle,
    /// Walk caches for the host's table.
    pub pwc: WalkCacheSet,
    /// Counters.
    pub stats: NestedStats,
}

/// Address space of the host's table: one for all address spaces of the guest.
const HOST: Asid = Asid(0);

impl Nesting {
    /// An empty nested TLB, with the empty walk caches `pwc` for the host's table.
    pub fn new(spec: &NestedTlbSpec, pwc: WalkCacheSet) -> Self {
        let entries = spec.entries as usize;
        Nesting {
            tlb: (entries > 0).then(|| SetAssoc::new(1, entries)),
            latency: if entries > 0 { spec.latency } else { 0 },
            pwc,
            stats: NestedStats::default(),
        }
    }
    /// Empties the nested TLB and the walk caches. An invalidation names guest-virtual pages, so
    /// the affected guest-physical pages are unknown.
    pub fn clear(&mut self) {
        if let Some(tlb) = &mut self.tlb {
            tlb.retain(|_, _| false);
        }
        self.pwc.invalidate(HOST);
    }

    /// Translates `gpa` by the nested TLB or a walk of the host's table. `gpa` is the address of
    /// the guest's entry of `level`, or of the data if `level` is 0. Returns the backing and the
    /// cycle at which it is known.
    fn resolve(
        &mut self,
        host: &dyn Walk<GuestPhysAddr, PhysAddr>,
        (gpa, level): (GuestPhysAddr, u8),
        port: &mut impl Port<PhysAddr>,
        now: Cycle,
    ) -> Result<(Backing, Cycle), (Cycle, Missing)> {
        let page = gpa.0 >> 12;
        let t = now + self.latency;
        let counted = u64::from(self.pwc.counting);
        self.stats.lookups += counted * u64::from(self.tlb.is_some());
        if let Some(tlb) = &mut self.tlb
            && let Some(&mut Some((first, ready))) = tlb.lookup(page, page)
            && ready <= t
        {
            self.stats.hits += counted;
            let pa = PhysAddr(first.pa.0 | gpa.0 & 0xfff);
            return Ok((Backing { pa, ..first }, t));
        }
        self.stats.host_walks += counted;
        port.on_nested_step(gpa, level, t);
        let found = |t: &Translation<PhysAddr>| Backing::of(t, gpa);
        let (end, found) = walk(host, gpa, HOST, &mut self.pwc, port, t, found);
        let backing = found.map_err(|_| (end, Missing::Host(gpa)))?;
        if let Some(tlb) = &mut self.tlb {
            let pa = PhysAddr(backing.pa.0 & !0xfff);
            tlb.insert(page, page, Some((Backing { pa, ..backing }, end)));
            self.stats.fills += counted;
        }
        Ok((backing, end))
    }
}

/// The port of a guest's walk: resolves each guest-physical address, then reads through `physical`.
struct Guest<'a, P> {
    host: &'a dyn Walk<GuestPhysAddr, PhysAddr>,
    nesting: &'a mut Nesting,
    physical: &'a mut P,
}

impl<P: Port<PhysAddr>> Port<GuestPhysAddr> for Guest<'_, P> {
    fn read(&mut self, at: GuestPhysAddr, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)> {
        let (backing, t) = (self.nesting).resolve(self.host, (at, level), self.physical, now)?;
        self.physical.read(backing.pa, level, t)
    }

    fn read_no_allocate(
        &mut self,
        at: GuestPhysAddr,
        level: u8,
        now: Cycle,
    ) -> Result<Done, (Cycle, Missing)> {
        let (backing, t) = (self.nesting).resolve(self.host, (at, level), self.physical, now)?;
        self.physical.read_no_allocate(backing.pa, level, t)
    }
}

/// The two-dimensional walk: up to 24 references for 4-level tables without any cache hit.
#[inline(never)]
fn walk_nested<P: Port<PhysAddr>>(
    guest: &dyn Walk<VirtAddr, GuestPhysAddr>,
    va: VirtAddr,
    asid: Asid,
    pwc: &mut WalkCacheSet,
    mut port: Guest<'_, P>,
    start: Cycle,
) -> (Cycle, Result<Walked, Missing>) {
    let (t, found) = walk(guest, va, asid, pwc, &mut port, start, |t| *t);
    let found = match found {
        Ok(found) => found,
        Err(missing) => return (t, Err(missing)),
    };
    let gpa = guest_physical(&found, va);
    let Guest {
        host,
        nesting,
        physical,
    } = port;
    match nesting.resolve(host, (gpa, 0), physical, t) {
        Ok((backing, end)) => (end, Ok(Walked::nested(&found, &backing, va))),
        Err((at, missing)) => (at, Err(missing)),
    }
}

fn nesting(tlb: &NestedTlbSpec, pwc: &WalkCacheSet) -> Box<Nesting> {
    Box::new(Nesting::new(tlb, pwc.clone()))
}

/// The caches of a core's walkers: walk caches, and for guests the nested TLB.
pub(crate) struct MmuCaches {
    /// Walk caches for the tables of the program's kernel: the guest's in a nested walk.
    pub pwc: WalkCacheSet,
    /// Created when a guest runs for the first time.
    pub nesting: Option<Box<Nesting>>,
    nested_tlb: NestedTlbSpec,
    /// Empty walk caches, cloned for the host's tables.
    nested_pwc: WalkCacheSet,
}

impl MmuCaches {
    /// Empty caches, with `arrays` page-walk caches for each table.
    pub fn new(spec: &MmuSpec, arrays: usize) -> Self {
        let pwc = WalkCacheSet::new(&spec.walk_caches, arrays).with_cuckoo(&spec.cuckoo);
        MmuCaches {
            nesting: None,
            nested_tlb: spec.nested_tlb,
            nested_pwc: pwc.clone(),
            pwc,
        }
    }

    /// Creates the caches that guests need.
    pub fn prepare_nesting(&mut self) {
        self.nesting
            .get_or_insert_with(|| nesting(&self.nested_tlb, &self.nested_pwc));
    }

    /// Sets whether the next walks are counted.
    pub fn count(&mut self, counting: bool) {
        self.pwc.counting = counting;
    }

    /// Walks the tables of `view` from `start`. Returns the cycle at which the outcome is known,
    /// and the outcome.
    #[inline(always)]
    pub fn walk(
        &mut self,
        view: &View<'_>,
        va: VirtAddr,
        asid: Asid,
        port: &mut impl Port<PhysAddr>,
        start: Cycle,
    ) -> (Cycle, Result<Walked, Missing>) {
        match *view {
            View::Native(table) => {
                walk(table, va, asid, &mut self.pwc, port, start, Walked::native)
            }
            View::Nested { guest, host } => {
                let nesting = self
                    .nesting
                    .get_or_insert_with(|| nesting(&self.nested_tlb, &self.nested_pwc));
                nesting.pwc.counting = self.pwc.counting;
                let port = Guest {
                    host,
                    nesting,
                    physical: port,
                };
                walk_nested(guest, va, asid, &mut self.pwc, port, start)
            }
        }
    }
}
