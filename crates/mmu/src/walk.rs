//! One walk for every pair of tables: nesting is where the reads go.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Done, Level, Private, Request, RequestKind};
use pagewalk_structures::SetAssoc;
use pagewalk_tables::{
    Flags, Group, Next, Translation, View, Walk, WalkCacheSet, WalkCaches, WalkState,
};
use pagewalk_units::{Addr, Asid, Cycle, Frame, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

use crate::engine::{NestedStep, NestedSteps};
use crate::{MmuSpec, NestedTlbSpec, ReadRecord};

/// Why a walk found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The table that was walked has no such page.
    Page,
    /// A guest-physical address that the walk needed is not backed by the host.
    Host(GuestPhysAddr),
}

impl Missing {
    /// The guest-physical address with nothing behind it.
    pub fn behind(self) -> Option<GuestPhysAddr> {
        match self {
            Missing::Page => None,
            Missing::Host(gpa) => Some(gpa),
        }
    }
}

/// The entry of a page table that ends a walk of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<A> {
    /// Where it lies: a host's entries in physical memory, a guest's in what the
    /// guest takes for that.
    pub at: A,
    /// What it says beside the frame.
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

/// What a walk found, in one dimension or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The frame of the page that holds the address.
    pub frame: Frame<PhysAddr>,
    /// Its size; of a nested walk the smaller one of guest's and host's.
    pub size: PageSize,
    /// The entry that names the frame: of a nested walk the host's.
    pub leaf: Leaf<PhysAddr>,
    /// The guest's entry, of a nested walk.
    pub guest: Option<Leaf<GuestPhysAddr>>,
}

impl Walked {
    /// What a walk of the only table found.
    #[inline]
    pub(crate) fn native(found: &Translation<PhysAddr>) -> Self {
        Walked {
            frame: found.frame,
            size: found.size,
            leaf: Leaf::of(found),
            guest: None,
        }
    }

    /// Guest virtual to physical, for `va`.
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

    /// Whether the program may write: the kernel whose program it is says so.
    #[inline]
    pub fn writable(&self) -> bool {
        let flags = self.guest.map_or(self.leaf.flags, |g| g.flags);
        flags.contains(Flags::WRITABLE)
    }

    /// Where `va`, an address of the page, lies.
    #[inline]
    pub fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.frame.base.0 + (va.0 & (self.size.bytes() - 1)))
    }

    /// Where in physical memory the entries lie that it was found in: the guest's,
    /// if there is one, and that which names the frame. `view` is what was walked.
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

/// The memory behind a guest-physical address.
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

/// Where in guest-physical memory `va`, an address of the page, lies.
fn guest_physical(found: &Translation<GuestPhysAddr>, va: VirtAddr) -> GuestPhysAddr {
    GuestPhysAddr(found.frame.base.0 + (va.0 & (found.size.bytes() - 1)))
}

/// What a walk for `va` will find, at once.
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

/// Where in physical memory the entries lie that `step` of a nested walk will read: the host's
/// last one for it, and the guest's, if it is one that lies there. None without a page.
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

/// Whether a read of `va` would find its page, and memory behind it.
pub fn is_mapped(view: &View<'_>, va: VirtAddr) -> bool {
    translate_untimed(view, va).is_ok()
}

/// Where a walker's reads go.
pub(crate) trait Port<A> {
    /// Reads the entry at `at` of a table's `level`, asked for at `now`; or the
    /// cycle at which it turned out that the address has no memory behind it.
    fn read(&mut self, at: A, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)>;
    /// The same, and the line is not to stay in the core's caches if it was not there.
    fn read_no_allocate(&mut self, at: A, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)>;
    /// A nested walk has come to `gpa`, where the guest's entry of `level` lies, or at 0 what
    /// is asked for; at `now` the nested TLB has said that it does not have it.
    fn on_nested_step(&mut self, _gpa: GuestPhysAddr, _level: u8, _now: Cycle) {}
}

/// Walks `table` for `va` from `start`; gives the cycle at which the outcome is
/// known, and what `found` makes of it. That is taken where it lies: a copy of
/// the whole would wait for the host's stores of its parts.
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
    // When the last group was asked for.
    let mut asked = start;
    loop {
        caches.now = t;
        caches.spent = 0;
        let next = table.next(va, &mut state, &mut caches);
        t = caches.now + caches.spent;
        // Not one `match`: the host foresees these branches better than a jump
        // by a table. By reference: a group is large, and seldom there.
        if let &Next::One { at, level } = &next {
            match port.read(at, level, t) {
                Ok(done) => t = t.max(done.at),
                Err((at, missing)) => return (at, Err(missing)),
            }
        } else if let Next::Done(translation) = &next {
            return (t, Ok(found(translation)));
        } else if let Next::Read(group) = &next {
            if !group.off_path {
                asked = t;
            }
            match read_group(group, port, asked, &mut caches) {
                Ok(back) if group.off_path => caches.back = back,
                Ok(back) => t = back,
                Err((at, missing)) => return (at, Err(missing)),
            }
        } else {
            return (t, Err(Missing::Page));
        }
    }
}

/// Reads a group asked for at `t`; when what the walk wants of it is back.
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

/// One more than the number of the memory system's last level.
pub(crate) const LEVELS: usize = Level::Memory as usize + 1;

/// A core's walker reads an entry of a page table.
#[inline]
pub(crate) fn request(at: PhysAddr, core: u8) -> Request {
    Request {
        at,
        kind: RequestKind::Walk,
        core,
        pc: 0,
    }
}

/// Reads go to physical memory, through the core's caches.
pub(crate) struct Physical<'a, B> {
    pub private: &'a mut Private,
    pub below: &'a mut B,
    pub core: u8,
    /// Reads by the level that served them.
    pub served: &'a mut [u64; LEVELS],
    /// Where the reads are noted, if someone wants them.
    pub record: Option<&'a mut Vec<ReadRecord>>,
    /// Guesses within nested walks, if something does.
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

/// Reads that leave state and take no time.
pub(crate) struct Warming<'a, B> {
    pub private: &'a mut Private,
    pub below: &'a mut B,
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
    /// What one core counted of guest-physical addresses.
    pub struct NestedStats {
        lookups: "lookups", "Guest-physical addresses looked up in the nested TLB: those of the guest's page-table entries and of what they point to";
        hits: "lookups", "Lookups that found a translation that was ready";
        fills: "entries", "Translations put into the nested TLB";
        host_walks: "walks", "Walks of the host's page table, those that found nothing among them";
    }
}

/// What a core keeps of the host's translations while it runs a guest.
pub(crate) struct Nesting {
    /// The nested TLB, if there is one: what lies behind the first byte of a
    /// guest-physical 4 KB page, and when that is known.
    tlb: Option<SetAssoc<Option<(Backing, Cycle)>>>,
    latency: Cycle,
    /// Walk caches of the host's table.
    pub pwc: WalkCacheSet,
    pub stats: NestedStats,
}

/// The host's tables are not told apart by the guest's address spaces.
const HOST: Asid = Asid(0);

impl Nesting {
    /// Nothing kept yet; `pwc` are the host's walk caches, empty.
    pub fn new(spec: &NestedTlbSpec, pwc: WalkCacheSet) -> Self {
        let entries = spec.entries as usize;
        Nesting {
            tlb: (entries > 0).then(|| SetAssoc::new(1, entries)),
            latency: if entries > 0 { spec.latency } else { 0 },
            pwc,
            stats: NestedStats::default(),
        }
    }
    /// Forgets all: which guest-physical pages changed is not known.
    pub fn clear(&mut self) {
        if let Some(tlb) = &mut self.tlb {
            tlb.retain(|_, _| false);
        }
        self.pwc.invalidate(HOST);
    }

    /// Guest-physical to physical, for the entry of `level` of the guest's table, or 0 for
    /// what is asked for.
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

/// A guest's reads: each address is translated by the host first.
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

/// The two-dimensional walk: up to 24 references for 4-level tables.
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

/// What a core's walks keep from one to the next.
pub(crate) struct MmuCaches {
    /// Walk caches of the tables that the program's kernel keeps.
    pub pwc: WalkCacheSet,
    /// Made when a guest runs for the first time.
    pub nesting: Option<Box<Nesting>>,
    nested_tlb: NestedTlbSpec,
    /// Empty ones, for the host's tables.
    nested_pwc: WalkCacheSet,
}

impl MmuCaches {
    /// Nothing yet; `arrays` walk caches for each table.
    pub fn new(spec: &MmuSpec, arrays: usize) -> Self {
        let pwc = WalkCacheSet::new(&spec.walk_caches, arrays).with_cuckoo(&spec.cuckoo);
        MmuCaches {
            nesting: None,
            nested_tlb: spec.nested_tlb,
            nested_pwc: pwc.clone(),
            pwc,
        }
    }

    /// A guest will run.
    pub fn prepare_nesting(&mut self) {
        self.nesting
            .get_or_insert_with(|| nesting(&self.nested_tlb, &self.nested_pwc));
    }

    /// Whether the walks that follow are in the statistics.
    pub fn count(&mut self, counting: bool) {
        self.pwc.counting = counting;
    }

    /// Walks the tables of `view` from `start`: when the outcome is known, and what it is.
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
