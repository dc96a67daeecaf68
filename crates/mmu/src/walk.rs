//! One walk for every pair of tables: nesting is where the reads go.

use pagewalk_memory::{Below, Done, Kind, Level, Private, Request};
use pagewalk_structures::SetAssoc;
use pagewalk_tables::{Group, Next, Translation, Walk, WalkCacheSet, WalkCaches, WalkState};
use pagewalk_units::{Addr, Asid, Cycle, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

use crate::{NestedTlbSpec, ReadRecord};

/// Why a walk found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The table that was walked has no such page.
    Page,
    /// A guest-physical address that the walk needed is not backed by the host.
    Host(GuestPhysAddr),
}

/// Where a walker's reads go.
pub(crate) trait Port<A> {
    /// Reads the entry at `at` of a table's `level`, asked for at `now`; or the
    /// cycle at which it turned out that the address has no memory behind it.
    fn read(&mut self, at: A, level: u8, now: Cycle) -> Result<Done, (Cycle, Missing)>;
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
    for (i, &at) in group.at.iter().enumerate() {
        let done = port.read(at, group.level, t)?;
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

/// Reads go to physical memory, through the core's caches.
pub(crate) struct Physical<'a, B> {
    pub private: &'a mut Private,
    pub below: &'a mut B,
    pub core: u8,
    /// Reads by the level that served them.
    pub served: &'a mut [u64; LEVELS],
    /// Where the reads are noted, if someone wants them.
    pub record: Option<&'a mut Vec<ReadRecord>>,
}

impl<B> Physical<'_, B> {
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
        let request = Request {
            at,
            kind: Kind::Walk,
            core: self.core,
            pc: 0,
        };
        let done = self.private.access(request, now, self.below);
        self.served[done.level as usize] += 1;
        if self.record.is_some() {
            self.note(at, level, now, done);
        }
        Ok(done)
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
        let request = Request {
            at,
            kind: Kind::Walk,
            core: self.core,
            pc: 0,
        };
        self.private.warm(request, self.below);
        Ok(Done {
            at: now,
            level: Level::L1,
        })
    }
}

pagewalk_stats::counters! {
    /// What one core counted of guest-physical addresses.
    pub struct NestedStats {
        lookups: "lookups", "Guest-physical addresses looked up in the nested TLB: those of the guest's page-table entries and of what they point to";
        hits: "lookups", "Lookups that found a translation that was ready";
        host_walks: "walks", "Walks of the host's page table, those that found nothing among them";
    }
}

/// What a core keeps of the host's translations while it runs a guest.
pub(crate) struct Nesting {
    /// Guest-physical 4 KB page to host frame: the nested TLB, if there is one.
    tlb: Option<SetAssoc<(u64, Cycle)>>,
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

    /// Guest-physical to physical.
    fn resolve(
        &mut self,
        host: &dyn Walk<GuestPhysAddr, PhysAddr>,
        gpa: GuestPhysAddr,
        port: &mut impl Port<PhysAddr>,
        now: Cycle,
    ) -> Result<(PhysAddr, PageSize, Cycle), (Cycle, Missing)> {
        let page = gpa.0 >> 12;
        let t = now + self.latency;
        let counted = u64::from(self.pwc.counting);
        self.stats.lookups += counted * u64::from(self.tlb.is_some());
        if let Some(tlb) = &mut self.tlb
            && let Some(&mut (packed, ready)) = tlb.lookup(page, page)
            && ready <= t
        {
            self.stats.hits += counted;
            let size = PageSize::ALL[(packed & 3) as usize];
            return Ok((PhysAddr(packed & !0xfff | gpa.0 & 0xfff), size, t));
        }
        self.stats.host_walks += counted;
        let (end, found) = walk(host, gpa, HOST, &mut self.pwc, port, t, |t| *t);
        let found = match found {
            Ok(found) => found,
            Err(_) => return Err((end, Missing::Host(gpa))),
        };
        let pa = found.frame.base.0 + (gpa.0 & (found.size.bytes() - 1));
        if let Some(tlb) = &mut self.tlb {
            tlb.insert(page, page, (pa & !0xfff | found.size as u64, end));
        }
        Ok((PhysAddr(pa), found.size, end))
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
        let (pa, _, t) = self.nesting.resolve(self.host, at, self.physical, now)?;
        self.physical.read(pa, level, t)
    }
}

/// The two-dimensional walk: up to 24 references for 4-level tables.
#[inline(never)]
#[allow(
    clippy::too_many_arguments,
    reason = "the parts of a machine are lent one by one"
)]
pub(crate) fn walk_nested(
    guest: &dyn Walk<VirtAddr, GuestPhysAddr>,
    host: &dyn Walk<GuestPhysAddr, PhysAddr>,
    va: VirtAddr,
    asid: Asid,
    pwc: &mut WalkCacheSet,
    nesting: &mut Nesting,
    physical: &mut impl Port<PhysAddr>,
    start: Cycle,
) -> (Cycle, Result<Translation<PhysAddr>, Missing>) {
    let mut port = Guest {
        host,
        nesting,
        physical,
    };
    let (t, found) = walk(guest, va, asid, pwc, &mut port, start, |t| *t);
    let found = match found {
        Ok(found) => found,
        Err(missing) => return (t, Err(missing)),
    };
    let gpa = GuestPhysAddr(found.frame.base.0 + (va.0 & (found.size.bytes() - 1)));
    let (pa, size, end) = match nesting.resolve(host, gpa, physical, t) {
        Ok(r) => r,
        Err((at, missing)) => return (at, Err(missing)),
    };
    (end, Ok(combine(&found, va, pa, size)))
}

/// Guest virtual to physical: the smaller of the two sizes. `leaf` is the
/// guest's entry, in the only space that the guest's walker knows.
pub(crate) fn combine(
    guest: &Translation<GuestPhysAddr>,
    va: VirtAddr,
    pa: PhysAddr,
    host_size: PageSize,
) -> Translation<PhysAddr> {
    let size = guest.size.min(host_size);
    Translation {
        frame: pagewalk_units::Frame {
            base: PhysAddr(pa.0 - (va.0 & (size.bytes() - 1))),
        },
        size,
        flags: guest.flags,
        leaf: PhysAddr(guest.leaf.0),
    }
}
