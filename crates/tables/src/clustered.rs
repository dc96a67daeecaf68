//! The kernel interface of page tables that store clusters of entries under a
//! key, with one store for each page size. The kind of store is a parameter.

use std::marker::PhantomData;

use pagewalk_units::{Addr, Asid, Frame, Page, PageSize};

use crate::cluster::{self, Line, PTES, PteCluster, Width};
use crate::contract::{
    Flags, FrameSource, MapError, MapWork, NoFrames, PageTable, Purpose, Translation, Walk, Want,
};

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = size_of::<Line>() as u64;

/// A contiguous block of simulated memory, in lines.
pub(crate) struct Block<A> {
    base: Frame<A>,
    /// The contents. Zeroed words cost the host no memory until they are
    /// touched.
    words: Vec<u64>,
    /// Index of the first word that is aligned to a host cache line.
    first: usize,
    slots: usize,
}

impl<A: Addr> Block<A> {
    fn new(base: Frame<A>, slots: usize) -> Self {
        let words = vec![0; (slots + 1) * PTES];
        let past = words.as_ptr().addr() / size_of::<u64>() % PTES;
        Block {
            base,
            words,
            first: (PTES - past) % PTES,
            slots,
        }
    }
    /// Number of lines.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots
    }
    /// All lines of the block.
    #[inline]
    pub fn lines(&self) -> &[Line] {
        self.words[self.first..][..self.slots * PTES].as_chunks().0
    }
    /// All lines of the block, mutable.
    #[inline]
    pub fn lines_mut(&mut self) -> &mut [Line] {
        self.words[self.first..][..self.slots * PTES]
            .as_chunks_mut()
            .0
    }
    /// The physical address of line `i`.
    #[inline]
    pub fn address(&self, i: usize) -> u64 {
        self.base.base.raw() + i as u64 * LINE_BYTES
    }
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.slots as u64 * LINE_BYTES
    }
    /// Frees the block's memory.
    pub fn free(self, frames: &mut dyn FrameSource<A>) {
        frames.free(self.base, self.bytes());
    }
}

/// The frame source of a store during one change, and the work of that change.
pub(crate) struct Pool<'a, A> {
    /// Frame source.
    pub frames: &'a mut dyn FrameSource<A>,
    asid: Asid,
    /// Work done so far.
    pub work: MapWork,
}

impl<A: Addr> Pool<'_, A> {
    /// Allocates `lines` empty lines: a power of two of at least 64.
    pub fn alloc(&mut self, lines: usize) -> Result<Block<A>, NoFrames> {
        let bytes = lines as u64 * LINE_BYTES;
        let base = self.frames.alloc(Want {
            bytes,
            asid: self.asid,
            purpose: Purpose::Way,
        })?;
        self.work.allocated += bytes;
        self.work.largest = self.work.largest.max(bytes);
        self.work.registers_changed = true;
        Ok(Block::new(base, lines))
    }
    /// Frees `block`.
    pub fn free(&mut self, block: Block<A>) {
        self.work.freed += block.bytes();
        self.work.registers_changed = true;
        block.free(self.frames);
    }
}

/// A store of lines of one page size, by key.
pub(crate) trait Store<A: Addr>: Send + Sync {
    /// Location of a line in the store.
    type Place: Copy;

    /// The location of the line of `key`, if it is present.
    fn find(&self, key: u64) -> Option<Self::Place>;
    /// The line at `place`.
    fn line(&self, place: Self::Place) -> &Line;
    /// The line at `place`, mutable. Callers keep its key.
    fn line_mut(&mut self, place: Self::Place) -> &mut Line;
    /// The physical address of the line at `place`.
    fn address(&self, place: Self::Place) -> u64;
    /// Inserts `line` under `key`, which must be absent. Changes nothing on
    /// failure.
    fn insert(&mut self, key: u64, line: Line, pool: &mut Pool<'_, A>) -> Result<(), NoFrames>;
    /// Frees the line at `place`, which has lost its last entry.
    fn remove(&mut self, place: Self::Place, pool: &mut Pool<'_, A>);
    /// Number of lines in use.
    fn used(&self) -> usize;
    /// Bytes of simulated memory that the store holds.
    fn bytes(&self) -> u64;
    /// Hardware registers that locate the store; 0 before its first line.
    fn registers(&self) -> u32;
    /// Calls `f` for every line in use, in any order.
    fn for_each(&self, f: &mut dyn FnMut(u64, &Line));
    /// Removes all lines and frees all memory.
    fn release(&mut self, frames: &mut dyn FrameSource<A>);
}

/// A page table of three stores, one for each page size.
pub(crate) struct Clustered<S, In, Out> {
    pub(crate) stores: [S; 3],
    asid: Asid,
    pub(crate) width: Width,
    largest: u64,
    addresses: PhantomData<fn(In) -> Out>,
}

impl<S: Store<Out>, In: Addr, Out: Addr> Clustered<S, In, Out> {
    /// Three empty stores, for addresses of `width`.
    pub(crate) fn of(stores: [S; 3], asid: Asid, width: Width) -> Self {
        Clustered {
            stores,
            asid,
            width,
            largest: 0,
            addresses: PhantomData,
        }
    }

    /// The translation of `va` by its entry at `place`, if the entry is valid.
    #[inline]
    pub(crate) fn translation(
        &self,
        va: u64,
        size: PageSize,
        place: S::Place,
    ) -> Option<Translation<Out>> {
        let store = &self.stores[size.index()];
        let (_, index) = self.width.place(va, size);
        let e = PteCluster::get(store.line(place), index)?;
        Some(Translation {
            frame: Frame {
                base: Out::new(cluster::frame(e)),
            },
            size,
            flags: cluster::flags(e),
            leaf: Out::new(store.address(place) + 8 * index as u64),
        })
    }

    /// The translation of `va` by a page of `size`, if one is mapped.
    #[inline]
    pub(crate) fn lookup(&self, va: u64, size: PageSize) -> Option<Translation<Out>> {
        let (key, _) = self.width.place(va, size);
        let place = self.stores[size.index()].find(key)?;
        self.translation(va, size, place)
    }

    /// The translation of `va` by a page of any size.
    pub(crate) fn any(&self, va: u64) -> Option<Translation<Out>> {
        if !self.width.canonical(va) {
            return None;
        }
        PageSize::ALL
            .into_iter()
            .find_map(|size| self.lookup(va, size))
    }

    /// True if a page of another size overlaps `page`. `page` itself is not
    /// mapped.
    fn overlaps(&self, page: Page<In>) -> bool {
        let va = page.base.raw();
        PageSize::ALL.into_iter().any(|size| {
            if size >= page.size {
                return size > page.size && self.lookup(va, size).is_some();
            }
            let store = &self.stores[size.index()];
            // A larger page covers whole lines of the smaller pages.
            let (first, _) = self.width.place(va, size);
            let lines = page.size.bytes() / size.bytes() / PTES as u64;
            if (store.used() as u64) < lines {
                let mut found = false;
                store.for_each(&mut |key, _| found |= key - first.min(key) < lines && key >= first);
                return found;
            }
            (first..first + lines).any(|key| store.find(key).is_some())
        })
    }

    /// Location, index and value of the entry that maps exactly `page`.
    fn locate(&self, page: Page<In>) -> Option<(S::Place, usize, u64)> {
        let va = page.base.raw();
        if !self.width.canonical(va) {
            return None;
        }
        let (key, index) = self.width.place(va, page.size);
        let store = &self.stores[page.size.index()];
        let place = store.find(key)?;
        let e = PteCluster::get(store.line(place), index)?;
        Some((place, index, e))
    }
}

impl<S: Store<Out>, In: Addr, Out: Addr> PageTable<In, Out> for Clustered<S, In, Out>
where
    Self: Walk<In, Out>,
{
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        let va = page.base.raw();
        debug_assert!(self.width.canonical(va), "the address is canonical");
        if self.overlaps(page) {
            return Err(MapError::Occupied);
        }
        let (key, index) = self.width.place(va, page.size);
        let e = cluster::entry(frame.base.raw(), flags, page.size);
        let store = &mut self.stores[page.size.index()];
        if let Some(place) = store.find(key) {
            let line = store.line_mut(place);
            if PteCluster::get(line, index).is_some() {
                return Err(MapError::Occupied);
            }
            PteCluster::put(line, index, e);
            return Ok(MapWork::default());
        }
        let mut pool = Pool {
            frames,
            asid: self.asid,
            work: MapWork::default(),
        };
        store.insert(key, PteCluster::with(key, index, e), &mut pool)?;
        self.largest = self.largest.max(pool.work.largest);
        Ok(pool.work)
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let (place, index, e) = self.locate(page)?;
        let mut pool = Pool {
            frames,
            asid: self.asid,
            work: MapWork::default(),
        };
        let store = &mut self.stores[page.size.index()];
        let line = store.line_mut(place);
        PteCluster::take(line, index);
        if PteCluster::valid(line) == 0 {
            store.remove(place, &mut pool);
        }
        self.largest = self.largest.max(pool.work.largest);
        let base = Out::new(cluster::frame(e));
        Some((Frame { base }, cluster::flags(e), pool.work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let Some((place, index, e)) = self.locate(page) else {
            return false;
        };
        let line = self.stores[page.size.index()].line_mut(place);
        let e = cluster::entry(cluster::frame(e), flags, page.size);
        PteCluster::put(line, index, e);
        true
    }

    fn registers(&self) -> u32 {
        // One register is the root pointer, which every context switch saves.
        let all: u32 = self.stores.iter().map(Store::registers).sum();
        all.saturating_sub(1)
    }

    fn bytes(&self) -> u64 {
        self.stores.iter().map(Store::bytes).sum()
    }

    fn largest_contiguous(&self) -> u64 {
        self.largest
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        let mut all = Vec::new();
        for size in PageSize::ALL {
            self.stores[size.index()].for_each(&mut |key, line| {
                for index in 0..PTES {
                    if let Some(e) = PteCluster::get(line, index) {
                        all.push((self.width.address(key, index, size), size, e));
                    }
                }
            });
        }
        all.sort_unstable_by_key(|&(va, ..)| va);
        for (va, size, e) in all {
            let page = Page {
                base: In::new(va),
                size,
            };
            let base = Out::new(cluster::frame(e));
            f(page, Frame { base }, cluster::flags(e));
        }
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        for store in &mut self.stores {
            store.release(frames);
        }
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
