//! Random changes of address spaces, checked against a simple model of memory contents
//! and a TLB that drops entries only on invalidations.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_os::{
    BuddySpec, EagerSpec, Effects, FragmentationSpec, KhugepagedSpec, MigrationSpec, Os, OsError,
    OsSpec, PageMover, PageTableSpec, Pid, PlacementSpec, ReservationSpec, ThpMode, ThpSizes,
    ThpSpec, VirtualSpec,
};
use pagewalk_tables::{Flags, Invalidation, Translation, View};
use pagewalk_units::{Access, Advice, Asid, Backing, GuestPhysAddr, PageSize, VirtAddr};
use proptest::prelude::*;

/// The window of all operations: 8 regions of 2 MB.
const BASE: u64 = 0x10_0000_0000;
const PAGES: usize = 8 * 512;

#[derive(Clone, Debug)]
enum Op {
    Map {
        at: usize,
        pages: usize,
        writable: bool,
        backing: u8,
    },
    Unmap {
        at: usize,
        pages: usize,
    },
    Remap {
        from: usize,
        old: usize,
        to: usize,
        new: usize,
    },
    Protect {
        at: usize,
        pages: usize,
        writable: bool,
    },
    Advise {
        at: usize,
        pages: usize,
        advice: u8,
    },
    Populate {
        at: usize,
        pages: usize,
    },
    Touch {
        page: usize,
        write: bool,
    },
    /// Advances time: khugepaged runs and pages are migrated.
    Elapse {
        millisecs: u64,
    },
    /// khugepaged does all collapses that it would ever do.
    Settle,
    Fork,
    Exec,
    Exit,
}

/// A range; often whole regions, so that large pages occur.
fn range() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![
        (0..8usize, 1..5usize).prop_map(|(r, n)| (r * 512, (n * 512).min(PAGES - r * 512))),
        (0..PAGES, 1..900usize).prop_map(|(at, n)| (at, n.min(PAGES - at))),
        // Short and adjacent ranges: inside reservations and their holes.
        (0..1024usize, 1..60usize),
        (0..40usize, 1..20usize),
    ]
}

fn op() -> impl Strategy<Value = (u8, Op)> {
    let op = prop_oneof![
        4 => (range(), prop::bool::weighted(0.8), any::<u8>()).prop_map(
            |((at, pages), writable, backing)| Op::Map { at, pages, writable, backing }),
        2 => range().prop_map(|(at, pages)| Op::Unmap { at, pages }),
        2 => (range(), range()).prop_map(|((from, old), (to, new))| Op::Remap { from, old, to, new }),
        2 => (range(), any::<bool>()).prop_map(
            |((at, pages), writable)| Op::Protect { at, pages, writable }),
        2 => (range(), any::<u8>()).prop_map(
            |((at, pages), advice)| Op::Advise { at, pages, advice }),
        4 => range().prop_map(|(at, pages)| Op::Populate { at, pages }),
        8 => (prop_oneof![0..PAGES, 0..1024usize, 0..60usize], any::<bool>()).prop_map(|(page, write)| Op::Touch { page, write }),
        3 => (1..20u64).prop_map(|millisecs| Op::Elapse { millisecs }),
        1 => Just(Op::Settle),
        2 => Just(Op::Fork),
        1 => Just(Op::Exec),
        1 => Just(Op::Exit),
    ];
    (any::<u8>(), op)
}

#[derive(Clone, Copy, Debug)]
struct Area {
    writable: bool,
    /// The shared-memory object and its page.
    object: Option<(u64, usize)>,
}

#[derive(Clone)]
struct Process {
    areas: Vec<Option<Area>>,
    /// Contents of each mapped private page.
    contents: Vec<Option<u64>>,
}

impl Process {
    fn empty() -> Self {
        Process {
            areas: vec![None; PAGES],
            contents: vec![None; PAGES],
        }
    }
}

struct World {
    os: Os,
    model: BTreeMap<Pid, Process>,
    /// Contents of each physical frame.
    frames: BTreeMap<u64, u64>,
    /// Contents and frame of each shared-memory page.
    shared: BTreeMap<(u64, usize), u64>,
    shared_frames: BTreeMap<(u64, usize), u64>,
    objects: u64,
    token: u64,
    tlb: BTreeMap<(u16, usize), (u64, Flags)>,
    /// Frame of each page after the last step.
    places: BTreeMap<(Pid, usize), u64>,
}

fn va(page: usize) -> VirtAddr {
    VirtAddr(BASE + page as u64 * 4096)
}

/// Attributes of a translation except its frame.
#[derive(Clone, Copy)]
struct Entry {
    size: PageSize,
    flags: Flags,
}

impl Entry {
    fn of<A>(t: &Translation<A>) -> Self {
        Entry {
            size: t.size,
            flags: t.flags,
        }
    }
}

impl World {
    /// In a guest, the guest's frame, which the host must back.
    fn translate(&self, pid: Pid, page: usize) -> Option<(u64, Entry)> {
        let at = va(page);
        let (base, found) = match self.os.layers(pid) {
            View::Native(table) => {
                let t = table.translate(at)?;
                (t.frame.base.0, Entry::of(&t))
            }
            View::Nested { guest, host } => {
                let t = guest.translate(at)?;
                let within = at.0 & (t.size.bytes() - 1);
                let gpa = GuestPhysAddr(t.frame.base.0 + within);
                assert!(
                    host.translate(gpa).is_some(),
                    "the host does not back {gpa}"
                );
                (t.frame.base.0, Entry::of(&t))
            }
        };
        Some(((base + (at.0 & (found.size.bytes() - 1))) >> 12, found))
    }

    /// The shadow must equal the composition of guest and host.
    fn check_shadow(&self, pid: Pid) {
        let (View::Native(shadow), View::Nested { guest, host }) =
            (self.os.view(pid), self.os.layers(pid))
        else {
            return;
        };
        for page in 0..PAGES {
            let at = va(page);
            let says = |base: u64, size: PageSize| base + (at.0 & (size.bytes() - 1));
            let found = shadow
                .translate(at)
                .map(|t| (says(t.frame.base.0, t.size), t.size, t.flags));
            let wanted = guest.translate(at).map(|g| {
                let gpa = says(g.frame.base.0, g.size);
                let h = host.translate(GuestPhysAddr(gpa)).expect("it is backed");
                let within = gpa & (h.size.bytes() - 1);
                (h.frame.base.0 + within, g.size.min(h.size), g.flags)
            });
            assert_eq!(found, wanted, "process {pid}, page {page}");
        }
    }

    fn step(&mut self, who: u8, op: &Op) {
        let pids: Vec<Pid> = self.model.keys().copied().collect();
        let pid = pids[usize::from(who) % pids.len()];
        let mut fx = Effects::default();
        let mut remap_failed = false;
        let copies = matches!(
            op,
            Op::Touch { write: true, .. } | Op::Populate { .. } | Op::Elapse { .. } | Op::Settle
        );
        match *op {
            Op::Map {
                at,
                pages,
                writable,
                backing,
            } => {
                let backing = [
                    Backing::Anonymous,
                    Backing::Anonymous,
                    Backing::File,
                    Backing::Shared,
                ][usize::from(backing % 4)];
                let bytes = pages as u64 * 4096;
                let done = self.os.map(pid, va(at), bytes, writable, backing, &mut fx);
                if oom(done) {
                    self.objects += 1;
                    let p = self.process(pid);
                    for i in 0..pages {
                        p.contents[at + i] = None;
                    }
                    let id = self.objects;
                    let p = self.process(pid);
                    for i in 0..pages {
                        let object = (backing == Backing::Shared).then_some((id, i));
                        p.areas[at + i] = Some(Area { writable, object });
                    }
                }
            }
            Op::Unmap { at, pages } => {
                if oom(self.os.unmap(pid, va(at), pages as u64 * 4096, &mut fx)) {
                    let p = self.process(pid);
                    p.areas[at..at + pages].fill(None);
                    p.contents[at..at + pages].fill(None);
                }
            }
            Op::Remap { from, old, to, new } => {
                let (old_bytes, new_bytes) = (old as u64 * 4096, new as u64 * 4096);
                let done = self
                    .os
                    .remap(pid, va(from), old_bytes, va(to), new_bytes, &mut fx);
                let overlap = from != to && from < to + new && to < from + old;
                let p = self.process(pid);
                let unmapped = p.areas[from].is_none();
                if overlap || unmapped {
                    assert!(matches!(done, Err(OsError::Bad(_))), "{op:?}: {done:?}");
                } else if oom(done) {
                    let kept = old.min(new);
                    let areas = p.areas[from..from + kept].to_vec();
                    let contents = p.contents[from..from + kept].to_vec();
                    p.areas[from..from + old].fill(None);
                    p.contents[from..from + old].fill(None);
                    p.areas[to..to + new].fill(None);
                    p.contents[to..to + new].fill(None);
                    p.areas[to..to + kept].copy_from_slice(&areas);
                    p.contents[to..to + kept].copy_from_slice(&contents);
                    if new > old
                        && let Some(last) = areas[old - 1]
                    {
                        for i in old..new {
                            let object = last.object.map(|(id, page)| (id, page + i + 1 - old));
                            p.areas[to + i] = Some(Area { object, ..last });
                        }
                    }
                } else {
                    remap_failed = true;
                    // The kernel decides what remains of the tail and of the target.
                    if new < old && self.translate_all_none(pid, from + new, from + old) {
                        let p = self.process(pid);
                        p.areas[from + new..from + old].fill(None);
                        p.contents[from + new..from + old].fill(None);
                    }
                }
            }
            Op::Protect {
                at,
                pages,
                writable,
            } => {
                let bytes = pages as u64 * 4096;
                if oom(self.os.protect(pid, va(at), bytes, writable, &mut fx)) {
                    let p = self.process(pid);
                    for area in p.areas[at..at + pages].iter_mut().flatten() {
                        area.writable = writable;
                    }
                }
            }
            Op::Advise { at, pages, advice } => {
                let advice = [Advice::HugePage, Advice::NoHugePage, Advice::DontNeed]
                    [usize::from(advice % 3)];
                let done = self
                    .os
                    .advise(pid, va(at), pages as u64 * 4096, advice, &mut fx);
                if oom(done) && advice == Advice::DontNeed {
                    self.process(pid).contents[at..at + pages].fill(None);
                }
            }
            Op::Populate { at, pages } => {
                let done = self.os.populate(pid, va(at), pages as u64 * 4096, &mut fx);
                let areas = &self.model[&pid].areas[at..at + pages];
                let hole = areas.iter().position(Option::is_none);
                match done {
                    Ok(()) => assert_eq!(hole, None),
                    Err(OsError::SegmentationFault { at: where_, .. }) => {
                        assert_eq!(hole.map(|h| va(at + h)), Some(where_));
                    }
                    Err(e) => assert!(is_lack(&e), "{e}"),
                }
                assert_eq!(fx.cycles, 0, "takes no simulated time");
            }
            Op::Touch { page, write } => {
                let access = if write { Access::Write } else { Access::Read };
                let done = self.os.fault(pid, va(page), access, &mut fx);
                assert!(fx.cycles > 0);
                let area = self.model[&pid].areas[page];
                let allowed = area.is_some_and(|a| a.writable || !write);
                match done {
                    Ok(()) => assert!(allowed, "{op:?} is not allowed"),
                    Err(OsError::SegmentationFault { .. }) => assert!(!allowed),
                    Err(e) => assert!(is_lack(&e), "{e}"),
                }
                self.forget(&fx);
                fx = Effects::default();
                self.settle(false, copies);
                if self.os_ok(pid, page, write, allowed) && write {
                    self.token += 1;
                    let token = self.token;
                    let (frame, t) = self.translate(pid, page).expect("just touched");
                    assert!(t.flags.contains(Flags::WRITABLE));
                    self.frames.insert(frame, token);
                    match area.and_then(|a| a.object) {
                        Some(key) => {
                            self.shared.insert(key, token);
                        }
                        None => self.process(pid).contents[page] = Some(token),
                    }
                }
            }
            Op::Elapse { millisecs } => {
                let done = self.os.elapse(millisecs * 2_000_000, &mut fx);
                assert_eq!(done, Ok(()), "nothing has been lost");
                let mut passed = millisecs * 2_000_000;
                while passed > 0 || self.os.mover_is_due(PageMover::Migration) {
                    let moved = (self.os).move_pages(PageMover::Migration, passed, &mut fx);
                    assert_eq!(moved, Ok(()), "nor here");
                    passed = 0;
                }
                assert_eq!(fx.cycles, 0, "on a core of its own");
            }
            Op::Settle => {
                assert_eq!(self.os.settle(&mut fx), Ok(()), "nothing has been lost");
                assert_eq!(fx.cycles, 0, "takes no simulated time");
            }
            Op::Fork => {
                if self.model.len() < 4 {
                    match self.os.fork(pid, &mut fx) {
                        Ok(child) => {
                            let copy = self.model[&pid].clone();
                            self.model.insert(child, copy);
                        }
                        Err(e) => assert!(is_lack(&e), "{e}"),
                    }
                }
            }
            Op::Exec => {
                self.os.exec(pid, &mut fx);
                *self.process(pid) = Process::empty();
            }
            Op::Exit => {
                if self.model.len() > 1 {
                    self.os.exit(pid, &mut fx);
                    self.model.remove(&pid);
                }
            }
        }
        self.forget(&fx);
        self.settle(remap_failed, copies);
        self.check();
    }

    /// True if an allowed touch succeeded (and did not run out of memory).
    fn os_ok(&self, pid: Pid, page: usize, write: bool, allowed: bool) -> bool {
        allowed
            && self
                .translate(pid, page)
                .is_some_and(|(_, t)| !write || t.flags.contains(Flags::WRITABLE))
    }

    fn process(&mut self, pid: Pid) -> &mut Process {
        self.model.get_mut(&pid).expect("a live process")
    }

    fn translate_all_none(&self, pid: Pid, from: usize, to: usize) -> bool {
        (from..to).all(|p| self.translate(pid, p).is_none())
    }

    /// Applies invalidations to the model TLB.
    fn forget(&mut self, fx: &Effects) {
        for what in &fx.invalidate {
            let (Asid(asid), from, to) = match *what {
                Invalidation::Page { asid, page } => {
                    (asid, page.base.0, page.base.0 + page.size.bytes())
                }
                Invalidation::Range { asid, at, bytes } => (asid, at.0, at.0 + bytes),
                Invalidation::Space { asid } => (asid, 0, u64::MAX),
            };
            self.tlb
                .retain(|&(a, page), _| a != asid || !(from..to).contains(&va(page).0));
        }
    }

    /// Models the kernel: it zeroes new pages, and copies shared pages that are written.
    fn settle(&mut self, may_lose: bool, may_copy: bool) {
        let pids: Vec<Pid> = self.model.keys().copied().collect();
        for pid in pids {
            for page in 0..PAGES {
                let found = self.translate(pid, page).map(|f| f.0);
                let object = self.model[&pid].areas[page].and_then(|a| a.object);
                match (found, object) {
                    (Some(frame), Some(key)) => {
                        let at = *self.shared_frames.entry(key).or_insert(frame);
                        assert_eq!(at, frame, "shared memory lies at one place");
                        if let std::collections::btree_map::Entry::Vacant(e) =
                            self.shared.entry(key)
                        {
                            e.insert(0);
                            self.frames.insert(frame, 0);
                        }
                    }
                    (Some(frame), None) => {
                        let p = self.model.get_mut(&pid).expect("live");
                        match p.contents[page] {
                            None => {
                                p.contents[page] = Some(0);
                                self.frames.insert(frame, 0);
                            }
                            Some(content) => {
                                let before = self.places.get(&(pid, page));
                                if may_copy && before.is_some_and(|b| *b != frame) {
                                    self.frames.insert(frame, content);
                                }
                            }
                        }
                    }
                    (None, _) => {
                        let p = self.model.get_mut(&pid).expect("live");
                        assert!(
                            may_lose || p.contents[page].is_none(),
                            "process {pid} lost page {page}"
                        );
                        p.contents[page] = None;
                    }
                }
            }
        }
        let alive: BTreeSet<u64> = self
            .model
            .values()
            .flat_map(|p| p.areas.iter().flatten())
            .filter_map(|a| a.object.map(|o| o.0))
            .collect();
        self.shared_frames.retain(|key, _| alive.contains(&key.0));
    }

    fn check(&mut self) {
        let mut used: BTreeSet<u64> = self.shared_frames.values().copied().collect();
        let mut mappings: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
        let mut reserved = BTreeSet::new();
        let mut now = BTreeMap::new();
        self.places.clear();
        let model = std::mem::take(&mut self.model);
        for (&pid, p) in &model {
            self.check_shadow(pid);
            let asid = self.os.asid(pid).0;
            for page in 0..PAGES {
                let Some((frame, t)) = self.translate(pid, page) else {
                    continue;
                };
                now.insert((asid, page), (frame, t.flags));
                self.places.insert((pid, page), frame);
                let area = p.areas[page].expect("nothing is mapped outside the areas");
                let writable = t.flags.contains(Flags::WRITABLE);
                assert!(area.writable || !writable);
                let expected = match area.object {
                    Some(key) => self.shared[&key],
                    None => p.contents[page].expect("settled"),
                };
                assert_eq!(self.frames[&frame], expected, "process {pid}, page {page}");
                if area.object.is_none() {
                    let m = mappings.entry(frame).or_default();
                    m.0 += 1;
                    m.1 |= writable;
                } else {
                    assert_eq!(t.size, PageSize::K4);
                }
                used.insert(frame);
                if t.flags.contains(Flags::RESERVED) {
                    assert_eq!(frame % 512, va(page).0 >> 12 & 511, "in its place");
                    used.extend(frame / 512 * 512..(frame / 512 + 1) * 512);
                    reserved.insert(frame / 512);
                }
            }
        }
        self.model = model;
        for (frame, (count, writable)) in &mappings {
            assert!(
                *count == 1 || !writable,
                "frame {frame} is shared and writable"
            );
            assert!(!self.shared_frames.values().any(|f| f == frame));
        }
        for (key, cached) in &self.tlb {
            assert_eq!(
                now.get(key),
                Some(cached),
                "the TLB holds a stale entry for {key:?}"
            );
        }
        self.tlb = now;

        let s = self.os.stats();
        let in_use = used.len() as u64 * 4096;
        assert_eq!(s.reservations, reserved.len() as u64);
        let total = s.free_bytes + s.set_aside_bytes + s.page_table_bytes + in_use;
        assert_eq!(total, 1 << 30, "every frame is free or has an owner");
        assert_eq!(s.processes, self.model.len() as u64);
    }
}

/// True if memory is exhausted or fragmented.
fn is_lack(e: &OsError) -> bool {
    matches!(
        e,
        OsError::OutOfMemory { .. } | OsError::NoContiguous { .. }
    )
}

/// True on success. Only a lack of memory may be the cause of a failure.
fn oom(done: Result<(), OsError>) -> bool {
    match done {
        Ok(()) => true,
        Err(e) if is_lack(&e) => false,
        Err(e) => panic!("{e}"),
    }
}

fn run(
    placement: &PlacementSpec,
    kernel_reserved: f64,
    available: f64,
    table: &Tables,
    ops: &[(u8, Op)],
) {
    let spec = OsSpec {
        kernel_reserved,
        fragmentation: FragmentationSpec::Available2mb(available),
        migration: Some(MigrationSpec::default()),
        ..OsSpec::free(1)
    };
    if table.host.is_some() && kernel_reserved > 0.0 {
        // A guest's kernel reserves no memory, so it cannot become scarce.
        return;
    }
    let own = table_of(table.own);
    let mut os = match table.host {
        None => Os::new(&spec, placement, &own, 2.0, 3),
        Some(host) => {
            let machine = VirtualSpec {
                page_table: table_of(host),
                placement: thp(),
                memory_gb: None,
                fragmentation: spec.fragmentation,
                exit_ns: 500.0,
                shadow: table.shadow,
            };
            // The guest has the native machine's memory; the host has more.
            let host = OsSpec {
                memory_gb: 4,
                ..spec
            };
            let guest = VirtualSpec {
                memory_gb: Some(1),
                ..machine
            };
            Os::virtualised(&host, placement, &own, &guest, 2.0, 3)
        }
    }
    .expect("a valid system");
    let booted = os.stats();
    let pid = os.spawn(false).expect("the first process");
    let mut world = World {
        os,
        model: BTreeMap::from([(pid, Process::empty())]),
        frames: BTreeMap::new(),
        shared: BTreeMap::new(),
        shared_frames: BTreeMap::new(),
        objects: 0,
        token: 0,
        tlb: BTreeMap::new(),
        places: BTreeMap::new(),
    };
    // Two regions with a few pages, which short ranges then split.
    let touch = |page| Op::Touch { page, write: true };
    let start = [
        Op::Map {
            at: 0,
            pages: 1024,
            writable: true,
            backing: 0,
        },
        touch(3),
        touch(30),
        touch(700),
        touch(1000),
    ];
    for op in &start {
        world.step(0, op);
    }
    for (who, op) in ops {
        world.step(*who, op);
    }
    let pids: Vec<Pid> = world.model.keys().copied().collect();
    let mut fx = Effects::default();
    for pid in pids {
        world.os.exit(pid, &mut fx);
    }
    let s = world.os.stats();
    assert_eq!(
        (s.free_bytes, s.page_table_bytes),
        (booted.free_bytes, booted.page_table_bytes),
        "all comes back"
    );
    assert_eq!(s.mapped_4kb_bytes + s.mapped_2mb_bytes + s.reservations, 0);
}

/// A page table, and the host's table for a guest.
#[derive(Clone, Copy, Debug)]
struct Tables {
    own: &'static str,
    host: Option<&'static str>,
    /// True if the hardware walks a shadow table.
    shadow: bool,
}

const RADIX: &str = "radix.levels = 4";
const ECPT: &str = "elastic_cuckoo = {}";
const MEHPT: &str = "memory_efficient = {}";
/// Small, so that it is resized all the time, with chunk-size changes.
const SMALL: &str =
    "memory_efficient = { initial_slots = 64, chunks = [4096, 16384], l2p_entries = 4 }";
/// One table for all processes, so small that most entries lie in chains.
const GLOBAL: &str = "global_hashed = { entries_per_frame = 0.01 }";

fn table_of(text: &str) -> PageTableSpec {
    toml::from_str(text).expect(text)
}

fn tables() -> impl Strategy<Value = Tables> {
    let native = |own| Tables {
        own,
        host: None,
        shadow: false,
    };
    let guest = |own, host| Tables {
        own,
        host: Some(host),
        shadow: false,
    };
    let shadowed = |own, host| Tables {
        shadow: true,
        ..guest(own, host)
    };
    prop::sample::select(vec![
        native(RADIX),
        native(ECPT),
        native(MEHPT),
        native(SMALL),
        native("hash_dont_cache = {}"),
        native("level_hashing = {}"),
        native(GLOBAL),
        // Guests' nodes come from their own memory, where every frame is counted.
        guest(RADIX, RADIX),
        guest(RADIX, MEHPT),
        guest(RADIX, GLOBAL),
        shadowed(RADIX, RADIX),
        shadowed(RADIX, MEHPT),
    ])
}

/// Transparent huge pages with a khugepaged that sleeps only briefly.
fn thp() -> PlacementSpec {
    collapsing(511, true)
}

fn collapsing(max_ptes_none: u16, defrag: bool) -> PlacementSpec {
    PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Always,
        giant: false,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec {
            pages_to_scan: 1024,
            scan_sleep_millisecs: 1,
            alloc_sleep_millisecs: 2,
            max_ptes_none,
            defrag,
            settled: true,
            ..KhugepagedSpec::default()
        },
    })
}

fn reservation() -> PlacementSpec {
    PlacementSpec::Reservation(ReservationSpec {
        promotion_threshold: 0.3,
    })
}

/// 16 MB for programs: too little, so that memory runs out at times.
const SCARCE: f64 = 1.0 - 16.0 / 1024.0;

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_pages(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&PlacementSpec::Buddy(BuddySpec {}), 0.0, 1.0, &table, &ops);
    }

    #[test]
    fn huge_pages(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&thp(), 0.0, 0.7, &table, &ops);
    }

    #[test]
    fn huge_pages_of_full_regions(table in tables(), none in 0..512u16, ops in prop::collection::vec(op(), 1..50)) {
        run(&collapsing(none, false), 0.0, 0.7, &table, &ops);
    }

    #[test]
    fn reservations(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&reservation(), 0.0, 0.7, &table, &ops);
    }

    #[test]
    fn memory_backed_when_allocated(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&PlacementSpec::Eager(EagerSpec::default()), 0.0, 0.7, &table, &ops);
    }

    #[test]
    fn memory_backed_when_allocated_and_scarce(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        let spec = EagerSpec { most_fragmented: 1.0, keep_free: 0.0 };
        run(&PlacementSpec::Eager(spec), SCARCE, 0.8, &table, &ops);
    }

    #[test]
    fn huge_pages_when_memory_is_scarce(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&thp(), SCARCE, 0.8, &table, &ops);
    }

    #[test]
    fn reservations_when_memory_is_scarce(table in tables(), ops in prop::collection::vec(op(), 1..50)) {
        run(&reservation(), SCARCE, 0.8, &table, &ops);
    }
}
