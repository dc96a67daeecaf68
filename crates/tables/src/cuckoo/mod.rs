//! Elastic cuckoo page tables: ECPT (Skarlatos et al., ASPLOS 2020) and ME-HPT
//! (Stojkovic et al., HPCA 2023). One engine implements both, with the four
//! techniques of ME-HPT as switches.
//!
//! A process has one elastic cuckoo table for each page size, whose slots are
//! clusters of eight neighbouring entries. Two cuckoo walk tables let the
//! hardware skip tables and ways. This file implements the kernel interface,
//! `walk` the hardware interface.

mod cwt;
mod elastic;
pub mod hardware;
mod hash;
mod l2p;
mod line;
mod metrics;
mod report;
mod spec;
mod stats;
mod storage;
mod walk;

use std::marker::PhantomData;

use pagewalk_stats::Tree;
use pagewalk_units::{Addr, Error, Frame, Page, PageSize};

use self::cwt::WalkTables;
use self::elastic::{Elastic, Env};
use self::l2p::L2p;
use self::spec::ElasticSpec;
pub use self::spec::{
    Choice, ElasticCuckooSpec, HashFunction, MemoryEfficientSpec, WaitFor, WhenDue,
};
use self::walk::{MAX_WAYS, Ways};
use crate::cluster::{self, PTES, PteCluster, Width};
use crate::cwc::Cwt;
use crate::metric::TableMetric;
use crate::owner::Owner;
use crate::registry::{BuildTable, TableSpec};
use crate::{Flags, FrameSource, MapError, MapWork, PageTable, Translation, Walk, WalkCacheKind};

/// Validates the parameters. An error begins with the key.
fn check(spec: &ElasticSpec) -> Result<(), Error> {
    if spec.ways > MAX_WAYS {
        // A walk-table header has two bits for the way.
        return Err(Error::key(
            "ways",
            format!("is {}; expected 2 to {MAX_WAYS}", spec.ways),
        ));
    }
    spec.check()
}

impl TableSpec for ElasticCuckooSpec {
    // Also covers memory-efficient tables: the rows are the same.
    const METRICS: &'static [TableMetric] = metrics::METRICS;
    fn check(&self) -> Result<(), Error> {
        check(&self.into())
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Cuckoo
    }
    fn address_bits(&self) -> u32 {
        self.address_bits
    }
    fn l2p(&self) -> Option<(u32, u32)> {
        (!self.chunks.is_empty()).then_some((self.ways.into(), self.l2p_entries))
    }
}

impl BuildTable for ElasticCuckooSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        Box::new(Cuckoo::elastic(self, owner))
    }
}

impl TableSpec for MemoryEfficientSpec {
    fn check(&self) -> Result<(), Error> {
        check(&self.into())
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Cuckoo
    }
    fn address_bits(&self) -> u32 {
        self.address_bits
    }
    fn l2p(&self) -> Option<(u32, u32)> {
        (!self.chunks.is_empty()).then_some((self.ways.into(), self.l2p_entries))
    }
}

impl BuildTable for MemoryEfficientSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        Box::new(Cuckoo::memory_efficient(self, owner))
    }
}

/// Clusters of 4 KB pages in 2 MB.
const CLUSTERS_IN_HUGE: u64 = 64;

/// The elastic cuckoo page tables of a process.
pub struct Cuckoo<In, Out> {
    /// Indexed by page size.
    tables: [Elastic<PteCluster, Out>; 3],
    walk: WalkTables<Out>,
    l2p: L2p,
    /// Ways that have memory.
    live: Ways,
    /// True if a walk continues as soon as the matching probe returns.
    early: bool,
    /// True if ways use chunks, which the L2P table locates.
    chunked: bool,
    width: Width,
    /// Clusters whose way has changed during the current operation.
    landed: Vec<(u64, u8)>,
    addresses: PhantomData<fn(In) -> Out>,
}

impl<In: Addr, Out: Addr> Cuckoo<In, Out> {
    /// Empty elastic cuckoo page tables of `owner`.
    pub fn elastic(spec: &ElasticCuckooSpec, owner: Owner) -> Self {
        Self::new(&spec.into(), owner)
    }
    /// Empty memory-efficient hashed page tables of `owner`.
    pub fn memory_efficient(spec: &MemoryEfficientSpec, owner: Owner) -> Self {
        Self::new(&spec.into(), owner)
    }

    fn new(spec: &ElasticSpec, owner: Owner) -> Self {
        let salt = |size: PageSize| size.index() as u64;
        let table = |size| Elastic::new(spec, Some(size), salt(size), owner);
        Cuckoo {
            tables: PageSize::ALL.map(table),
            walk: WalkTables::new(&cwt::spec(spec), owner),
            l2p: L2p::new(usize::from(spec.ways), spec.l2p_entries as usize),
            live: Ways::NONE,
            early: spec.wait_for == WaitFor::Matching,
            chunked: !spec.chunks.is_empty(),
            width: Width::new(spec.address_bits),
            landed: Vec::new(),
            addresses: PhantomData,
        }
    }

    /// The entry that maps exactly the page of `size` at `va`.
    #[inline]
    fn entry(&self, va: u64, size: PageSize) -> Option<u64> {
        let (key, index) = self.width.place(va, size);
        let table = &self.tables[size.index()];
        let place = table.find(key)?;
        PteCluster::get(table.line(place), index)
    }

    /// True if a page of another size overlaps the page of `size` at `va`.
    /// `known` means that the page's cluster is present.
    fn overlapped(&self, va: u64, size: PageSize, known: bool) -> bool {
        match size {
            // A larger page covers either the whole cluster or none of it.
            PageSize::K4 | PageSize::M2 if known => {}
            PageSize::K4 => {
                if self.entry(va, PageSize::M2).is_some() || self.entry(va, PageSize::G1).is_some()
                {
                    return true;
                }
            }
            PageSize::M2 => {
                if self.entry(va, PageSize::G1).is_some() {
                    return true;
                }
            }
            PageSize::G1 => {}
        }
        match size {
            PageSize::K4 => false,
            PageSize::M2 => {
                let section = cwt::section_of(Cwt::Pmd, self.width.low(va));
                self.walk.header(Cwt::Pmd, section) & cwt::SMALL != 0 && {
                    let (first, _) = self.width.place(va, PageSize::K4);
                    let small = &self.tables[PageSize::K4.index()];
                    (first..first + CLUSTERS_IN_HUGE).any(|key| small.find(key).is_some())
                }
            }
            PageSize::G1 => self.walk.any_below_giant(self.width.low(va)),
        }
    }

    fn translation(&self, entry: u64, leaf: u64, size: PageSize) -> Translation<Out> {
        Translation {
            frame: Frame {
                base: Out::new(cluster::frame(entry)),
            },
            size,
            flags: cluster::flags(entry),
            leaf: Out::new(leaf),
        }
    }

    /// Updates the walk tables with the clusters that have moved.
    fn note_landed(&mut self, size: PageSize) {
        for (key, way) in self.landed.drain(..) {
            self.walk.landed(size, key, way);
        }
    }

    /// Updates the ways that the hardware probes after a table got memory.
    #[inline]
    fn note_live(&mut self, size: PageSize) {
        self.live = self
            .live
            .with(size, (1 << self.tables[size.index()].ways()) - 1);
    }
}

/// Records where clusters land. Skips 4 KB pages: walk tables do not record
/// their ways.
fn noting(size: PageSize, landed: &mut Vec<(u64, u8)>) -> impl FnMut(u64, u8) {
    move |key, way| {
        if size != PageSize::K4 {
            landed.push((key, way));
        }
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for Cuckoo<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        let (va, size) = (page.base.raw(), page.size);
        debug_assert!(self.width.canonical(va), "the address is canonical");
        let (key, index) = self.width.place(va, size);
        let entry = cluster::entry(frame.base.raw(), flags, size);
        let mut work = MapWork::default();
        self.landed.clear();
        let table = &mut self.tables[size.index()];
        if let Some(place) = table.find(key) {
            if PteCluster::get(table.line(place), index).is_some()
                || self.overlapped(va, size, true)
            {
                return Err(MapError::Occupied);
            }
            let table = &mut self.tables[size.index()];
            PteCluster::put(table.line_mut(place), index, entry);
            let env = &mut Env {
                frames,
                l2p: &mut self.l2p,
                work: &mut work,
            };
            table.merged(env, &mut noting(size, &mut self.landed));
        } else {
            if self.overlapped(va, size, false) {
                return Err(MapError::Occupied);
            }
            let added = self.walk.prepare(size, key, frames, &mut work)?;
            let line = PteCluster::with(key, index, entry);
            let env = &mut Env {
                frames,
                l2p: &mut self.l2p,
                work: &mut work,
            };
            let done = {
                let note = &mut noting(size, &mut self.landed);
                self.tables[size.index()].insert(key, line, env, note)
            };
            match done {
                Ok(_) => self.walk.commit(size, key, added, frames),
                Err(refusal) => {
                    if let Some(added) = added {
                        self.walk.undo(*added, frames);
                    }
                    // A resize may have advanced.
                    self.note_landed(size);
                    return Err(refusal.into());
                }
            }
        }
        self.note_landed(size);
        self.note_live(size);
        Ok(work)
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let (va, size) = (page.base.raw(), page.size);
        if !self.width.canonical(va) {
            return None;
        }
        let (key, index) = self.width.place(va, size);
        let table = &mut self.tables[size.index()];
        let place = table.find(key)?;
        let entry = PteCluster::get(table.line(place), index)?;
        let mut work = MapWork::default();
        let line = table.line_mut(place);
        PteCluster::take(line, index);
        if PteCluster::valid(line) == 0 {
            self.landed.clear();
            let env = &mut Env {
                frames,
                l2p: &mut self.l2p,
                work: &mut work,
            };
            table.remove(place, env, &mut noting(size, &mut self.landed));
            self.walk.removed(size, key, frames, &mut work);
            self.note_landed(size);
        }
        let base = Out::new(cluster::frame(entry));
        Some((Frame { base }, cluster::flags(entry), work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let (va, size) = (page.base.raw(), page.size);
        if !self.width.canonical(va) {
            return false;
        }
        let (key, index) = self.width.place(va, size);
        let table = &mut self.tables[size.index()];
        let Some(place) = table.find(key) else {
            return false;
        };
        let line = table.line_mut(place);
        let Some(old) = PteCluster::get(line, index) else {
            return false;
        };
        let entry = cluster::entry(cluster::frame(old), flags, size);
        PteCluster::put(line, index, entry);
        true
    }

    fn registers(&self) -> u32 {
        let pages: u32 = self.tables.iter().map(Elastic::registers).sum();
        pages + self.walk.registers()
    }

    fn bytes(&self) -> u64 {
        self.tables.iter().map(Elastic::bytes).sum::<u64>() + self.walk.bytes()
    }

    fn largest_contiguous(&self) -> u64 {
        let pages = self.tables.iter().map(Elastic::largest).max();
        pages.unwrap_or(0).max(self.walk.largest())
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        let keys = [0, 1, 2].map(|i| {
            let mut keys = Vec::new();
            self.tables[i].for_each(&mut |line| keys.extend(PteCluster::key(line)));
            keys.sort_unstable();
            keys
        });
        // Clusters of two page sizes may interleave, but pages do not, so the
        // sizes are merged page by page. Addresses are ordered as unsigned
        // numbers.
        let mut pages = [0, 1, 2].map(|i| {
            let (size, table) = (PageSize::ALL[i], &self.tables[i]);
            let entries = keys[i].iter().flat_map(move |&key| {
                let line = table.find(key).map(|place| *table.line(place));
                (0..PTES).filter_map(move |index| {
                    let entry = PteCluster::get(&line?, index)?;
                    Some((self.width.address(key, index, size), entry))
                })
            });
            entries.peekable()
        });
        loop {
            let next = (0..3).filter_map(|i| Some((pages[i].peek()?.0, i))).min();
            let Some((_, i)) = next else { break };
            let Some((va, entry)) = pages[i].next() else {
                break;
            };
            let page = Page {
                base: In::new(va),
                size: PageSize::ALL[i],
            };
            let base = Out::new(cluster::frame(entry));
            f(page, Frame { base }, cluster::flags(entry));
        }
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        let work = &mut MapWork::default();
        for table in &mut self.tables {
            let l2p = &mut self.l2p;
            table.release(&mut Env { frames, l2p, work });
        }
        self.walk.release(frames);
        self.live = Ways::NONE;
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        self.report_to(path, tree);
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
