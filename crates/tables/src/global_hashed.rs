//! Global hashed page table, the PA-RISC's (Huck and Hays, ISCA 1993): one table for all address
//! spaces of a kernel. Physical memory determines its size, and it is set aside at boot.
//!
//! An entry takes 16 bytes. It holds a tag (address space and page number), frame, flags, and the
//! number of the next entry of its chain. The first entry of a chain lies in the table itself. Colliding
//! ones lie in an overflow area, which takes a frame when it is full and gives it back when it is
//! empty.
//!
//! Entries of one chain agree in their bucket. So the tag leaves out the page-number bits that the
//! bucket gives: the hash is an exclusive or with them.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_units::{Addr, Asid, Cycle, Error, Frame, Page, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ADDRESS_BITS, Width, check_address_bits};
use crate::contract::{
    Flags, FrameSource, MapError, MapWork, Next, NoFrames, PageTable, Purpose, Translation, Walk,
    WalkState, Want,
};
use crate::hash_dont_cache::check_latency;
use crate::kernel_tables::{BootingKernel, KernelTables, NoBlock};
use crate::murmur::murmur;
use crate::registry::{BootTables, TableSpec};
use crate::walk_cache::{WalkCacheKind, WalkCaches};

/// A hashed page table for all address spaces (Huck and Hays, ISCA 1993).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GlobalHashedSpec {
    /// Entries for each frame of physical memory, besides the overflow area. The table's number of entries is
    /// rounded up to a power of two. Default 1: a walk then reads 1.5 entries when memory is full.
    pub entries_per_frame: f64,
    /// Cycles of the hash function, before the first read. Default 2 (ME-HPT, table III).
    pub hash_latency: Cycle,
    /// Bits of a virtual address that the table translates: 48, or 57 as five-level paging.
    /// Default 48.
    pub address_bits: u32,
}

impl Default for GlobalHashedSpec {
    fn default() -> Self {
        GlobalHashedSpec {
            entries_per_frame: 1.0,
            hash_latency: 2,
            address_bits: ADDRESS_BITS,
        }
    }
}

/// Allowed entries for each frame.
const PER_FRAME: std::ops::RangeInclusive<f64> = 0.01..=16.0;

impl TableSpec for GlobalHashedSpec {
    fn check(&self) -> Result<(), Error> {
        if !PER_FRAME.contains(&self.entries_per_frame) {
            return Err(Error::key(
                "entries_per_frame",
                format!(
                    "is {}; expected {} to {}",
                    self.entries_per_frame,
                    PER_FRAME.start(),
                    PER_FRAME.end()
                ),
            ));
        }
        check_address_bits(self.address_bits)?;
        check_latency("hash_latency", self.hash_latency)
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Nothing
    }
    fn address_bits(&self) -> u32 {
        self.address_bits
    }
}

impl BootTables for GlobalHashedSpec {
    fn boot<In: Addr, Out: Addr>(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<Box<dyn KernelTables<In, Out>>, NoBlock> {
        let mut tables = ArrayVec::new();
        for size in PageSize::ALL {
            let wanted = (kernel.memory / size.bytes()) as f64 * self.entries_per_frame;
            let key = "entries_per_frame";
            let table = Chained::new(size, wanted, frames);
            tables.push(table.map_err(|NoFrames { bytes }| NoBlock { bytes, key })?);
        }
        Ok(Box::new(Global {
            table: Arc::new(Mutex::new(Shared { tables })),
            spec: *self,
            addresses: PhantomData,
        }))
    }
}

pagewalk_stats::counters! {
    /// The table of one page size.
    pub struct GlobalHashedStats {
        inserted: "entries", "Entries inserted by all address spaces";
        collisions: "entries", "Entries inserted into the overflow area, since their place in the table was taken";
        gauge entries: "entries", "Pages of this size that all address spaces have mapped";
        gauge overflow_entries: "entries", "Entries in the overflow area";
        gauge buckets: "entries", "Places for entries in the table, besides the overflow area";
        gauge bytes: "bytes", "Physical memory of the table and its overflow area";
    }
}

/// Bytes of an entry.
const ENTRY_BYTES: u64 = size_of::<u128>() as u64;
/// Bytes of a piece of the overflow area.
const CHUNK_BYTES: u64 = 4096;
/// Entries of a piece.
const CHUNK: usize = (CHUNK_BYTES / ENTRY_BYTES) as usize;
/// Bits of the widest virtual address.
const WIDEST: u32 = 57;

/// An entry: flags in bits 0..8, valid in bit 8, the frame in bits 12..52, the tag from bit 52 on,
/// and above it the link: 0 at the end of a chain, otherwise the next entry's slot and one.
type Entry = u128;
const VALID: Entry = 1 << 8;
const FRAME: Entry = ((1 << 52) - 1) & !0xfff;
const TAG_SHIFT: u32 = 52;
const ASID_BITS: u32 = 16;

/// Location of an entry: `2b + 1` for bucket b, `2s + 2` for slot s of the overflow area; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(u64);

impl Place {
    const NONE: Place = Place(0);
    fn bucket(bucket: usize) -> Self {
        Place(2 * bucket as u64 + 1)
    }
    fn slot(slot: usize) -> Self {
        Place(2 * slot as u64 + 2)
    }
}

/// The table of one page size.
struct Chained {
    size: PageSize,
    base: u64,
    buckets: Vec<Entry>,
    /// True once it has held an entry. Walks do not read it before.
    used: bool,
    overflow: Vec<Entry>,
    /// Pieces of the overflow area: base, and entries in use.
    chunks: Vec<Option<(u64, usize)>>,
    /// Free slots of the pieces. The lowest is taken first, so that pieces become empty.
    free: BTreeSet<usize>,
    stats: GlobalHashedStats,
}

/// A chain, and the tag to look for in it.
#[derive(Clone, Copy)]
struct Key {
    bucket: usize,
    tag: u64,
}

impl Chained {
    /// An empty table of at least `wanted` entries, as a power of two.
    fn new<Out: Addr>(
        size: PageSize,
        wanted: f64,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<Self, NoFrames> {
        let most = 1u64 << (WIDEST - size.shift());
        let buckets = (wanted.ceil() as u64).clamp(CHUNK as u64, most);
        let buckets = buckets.next_power_of_two();
        let bytes = buckets * ENTRY_BYTES;
        let base = allocate(bytes, frames)?;
        Ok(Chained {
            size,
            base,
            buckets: vec![0; buckets as usize],
            used: false,
            overflow: Vec::new(),
            chunks: Vec::new(),
            free: BTreeSet::new(),
            stats: GlobalHashedStats {
                buckets,
                bytes,
                ..GlobalHashedStats::default()
            },
        })
    }

    /// log2 of the number of buckets.
    fn bits(&self) -> u32 {
        self.buckets.len().ilog2()
    }
    fn tag_bits(&self) -> u32 {
        ASID_BITS + WIDEST - self.size.shift() - self.bits()
    }
    fn link_shift(&self) -> u32 {
        TAG_SHIFT + self.tag_bits()
    }

    fn key(&self, asid: Asid, number: u64) -> Key {
        let tag = number >> self.bits() << ASID_BITS | u64::from(asid.0);
        let hash = number ^ murmur(tag, self.size.index() as u64);
        Key {
            bucket: hash as usize & (self.buckets.len() - 1),
            tag,
        }
    }

    fn holds(&self, entry: Entry, key: Key) -> bool {
        let tag = (entry >> TAG_SHIFT) as u64 & ((1 << self.tag_bits()) - 1);
        entry & VALID != 0 && tag == key.tag
    }
    fn next(&self, entry: Entry) -> Place {
        match (entry >> self.link_shift()) as usize {
            0 => Place::NONE,
            link => Place::slot(link - 1),
        }
    }
    /// `entry` with the link to `next`, a slot or none.
    fn linked(&self, entry: Entry, next: Place) -> Entry {
        let shift = self.link_shift();
        entry & ((1 << shift) - 1) | Entry::from(next.0 / 2) << shift
    }

    fn entry(&self, place: Place) -> Entry {
        let at = (place.0 as usize - 1) / 2;
        if place.0 % 2 == 1 {
            self.buckets[at]
        } else {
            self.overflow[at]
        }
    }
    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        let at = (place.0 as usize - 1) / 2;
        if place.0 % 2 == 1 {
            &mut self.buckets[at]
        } else {
            &mut self.overflow[at]
        }
    }
    fn address(&self, place: Place) -> u64 {
        let at = (place.0 as usize - 1) / 2;
        if place.0 % 2 == 1 {
            return self.base + at as u64 * ENTRY_BYTES;
        }
        let (base, _) = self.chunks[at / CHUNK].expect("a slot in use is in memory");
        base + (at % CHUNK) as u64 * ENTRY_BYTES
    }

    /// The place of the entry before that of `key` (none for the first of a chain), and its own.
    fn find(&self, key: Key) -> Option<(Place, Place)> {
        let (mut before, mut at) = (Place::NONE, Place::bucket(key.bucket));
        while at != Place::NONE {
            let entry = self.entry(at);
            if self.holds(entry, key) {
                return Some((before, at));
            }
            (before, at) = (at, self.next(entry));
        }
        None
    }

    /// Inserts an entry of `key`, which is absent: into its bucket, or into the chain right behind
    /// that. Changes nothing on failure.
    fn insert<Out: Addr>(
        &mut self,
        key: Key,
        content: Entry,
        work: &mut MapWork,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<(), NoFrames> {
        let entry = content | VALID | Entry::from(key.tag) << TAG_SHIFT;
        let first = self.buckets[key.bucket];
        if first & VALID == 0 {
            self.buckets[key.bucket] = entry;
        } else {
            let slot = self.take(work, frames)?;
            self.overflow[slot] = self.linked(entry, self.next(first));
            self.buckets[key.bucket] = self.linked(first, Place::slot(slot));
            self.stats.collisions += 1;
            self.stats.overflow_entries += 1;
        }
        self.used = true;
        self.stats.inserted += 1;
        self.stats.entries += 1;
        Ok(())
    }

    /// Removes the entry at `at`, which follows the one at `before`. A bucket is never empty before
    /// a chain: the second entry moves there.
    fn remove<Out: Addr>(
        &mut self,
        (before, at): (Place, Place),
        work: &mut MapWork,
        frames: &mut dyn FrameSource<Out>,
    ) {
        let next = self.next(self.entry(at));
        let freed = if before != Place::NONE {
            let entry = self.entry(before);
            *self.entry_mut(before) = self.linked(entry, next);
            at
        } else if next != Place::NONE {
            *self.entry_mut(at) = self.entry(next);
            work.moved += 1;
            next
        } else {
            *self.entry_mut(at) = 0;
            Place::NONE
        };
        if freed != Place::NONE {
            *self.entry_mut(freed) = 0;
            self.stats.overflow_entries -= 1;
            self.give((freed.0 as usize - 1) / 2, work, frames);
        }
        self.stats.entries -= 1;
    }

    /// A slot of the overflow area.
    fn take<Out: Addr>(
        &mut self,
        work: &mut MapWork,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<usize, NoFrames> {
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None => {
                let base = allocate(CHUNK_BYTES, frames)?;
                work.allocated += CHUNK_BYTES;
                work.largest = CHUNK_BYTES;
                self.stats.bytes += CHUNK_BYTES;
                let gap = self.chunks.iter().position(Option::is_none);
                let chunk = gap.unwrap_or_else(|| {
                    self.chunks.push(None);
                    self.overflow.resize(self.chunks.len() * CHUNK, 0);
                    self.chunks.len() - 1
                });
                self.chunks[chunk] = Some((base, 0));
                let first = chunk * CHUNK;
                self.free.extend(first + 1..first + CHUNK);
                first
            }
        };
        if let Some((_, used)) = &mut self.chunks[slot / CHUNK] {
            *used += 1;
        }
        Ok(slot)
    }

    /// Frees a slot, and its piece of the overflow area if that is empty.
    fn give<Out: Addr>(
        &mut self,
        slot: usize,
        work: &mut MapWork,
        frames: &mut dyn FrameSource<Out>,
    ) {
        self.free.insert(slot);
        let chunk = slot / CHUNK;
        let Some((base, used)) = &mut self.chunks[chunk] else {
            unreachable!("a slot in use is in memory");
        };
        *used -= 1;
        if *used == 0 {
            let base = Out::new(*base);
            frames.free(Frame { base }, CHUNK_BYTES);
            work.freed += CHUNK_BYTES;
            self.stats.bytes -= CHUNK_BYTES;
            self.chunks[chunk] = None;
            for slot in chunk * CHUNK..(chunk + 1) * CHUNK {
                self.free.remove(&slot);
            }
        }
    }
}

/// Allocates a block of the table, which belongs to no address space.
fn allocate<Out: Addr>(bytes: u64, frames: &mut dyn FrameSource<Out>) -> Result<u64, NoFrames> {
    let frame = frames.alloc(Want {
        bytes,
        asid: Asid(0),
        purpose: Purpose::Way,
    })?;
    Ok(frame.base.raw())
}

/// The tables of the three page sizes.
struct Shared {
    tables: ArrayVec<Chained, 3>,
}

/// The table of a kernel. A machine runs on one thread at a time, so the lock is never contended.
struct Global<In, Out> {
    table: Arc<Mutex<Shared>>,
    spec: GlobalHashedSpec,
    addresses: PhantomData<fn(In) -> Out>,
}

fn lock(table: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<In: Addr, Out: Addr> KernelTables<In, Out> for Global<In, Out> {
    fn of_space(&self, asid: Asid) -> Box<dyn PageTable<In, Out>> {
        Box::new(OfSpace {
            table: Arc::clone(&self.table),
            hash_latency: self.spec.hash_latency,
            width: Width::new(self.spec.address_bits),
            asid,
            pages: Default::default(),
            addresses: PhantomData,
        })
    }
    fn report(&self, path: &str, tree: &mut Tree) {
        for (table, size) in lock(&self.table).tables.iter().zip(["4kb", "2mb", "1gb"]) {
            tree.add(&format!("{path}.global.{size}"), &table.stats);
        }
    }
    fn shared_bytes(&self) -> u64 {
        let shared = lock(&self.table);
        shared.tables.iter().map(|t| t.stats.bytes).sum()
    }
}

/// Page numbers, as bitmaps of 512 pages.
#[derive(Default)]
struct Pages(BTreeMap<u64, [u64; 8]>);

impl Pages {
    fn bit(number: u64) -> (usize, u64) {
        ((number >> 6 & 7) as usize, 1 << (number & 63))
    }
    fn has(&self, number: u64) -> bool {
        let (word, bit) = Self::bit(number);
        let words = self.0.get(&(number >> 9));
        words.is_some_and(|words| words[word] & bit != 0)
    }
    fn insert(&mut self, number: u64) {
        let (word, bit) = Self::bit(number);
        self.0.entry(number >> 9).or_default()[word] |= bit;
    }
    fn remove(&mut self, number: u64) {
        let (word, bit) = Self::bit(number);
        if let Some(words) = self.0.get_mut(&(number >> 9)) {
            words[word] &= !bit;
            if *words == [0; 8] {
                self.0.remove(&(number >> 9));
            }
        }
    }
    /// True if it has a page of the `count` from `first` on, both multiples of 512.
    fn any(&self, first: u64, count: u64) -> bool {
        let blocks = first >> 9..(first + count) >> 9;
        self.0.range(blocks).next().is_some()
    }
    fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(block, words)| {
            (0..512)
                .filter(|i| words[i / 64] >> (i % 64) & 1 != 0)
                .map(move |i| block << 9 | i as u64)
        })
    }
}

/// The table as one address space sees it. A walk does not know the page size, so it follows one
/// chain for each size of which a page was ever mapped, all in parallel.
struct OfSpace<In, Out> {
    table: Arc<Mutex<Shared>>,
    hash_latency: Cycle,
    width: Width,
    asid: Asid,
    /// Pages that it maps, by size, which its kernel knows: the table itself has no list of them.
    pages: [Pages; 3],
    addresses: PhantomData<fn(In) -> Out>,
}

impl<In: Addr, Out: Addr> OfSpace<In, Out> {
    fn number(&self, va: u64, size: PageSize) -> u64 {
        self.width.low(va) >> size.shift()
    }

    /// True if a page overlaps `page`.
    fn overlaps(&self, page: Page<In>) -> bool {
        PageSize::ALL.into_iter().any(|size| {
            let pages = &self.pages[size.index()];
            let first = self.number(page.base.raw(), size);
            if size < page.size {
                pages.any(first, page.size.bytes() / size.bytes())
            } else {
                pages.has(first)
            }
        })
    }

    fn translation(table: &Chained, place: Place) -> Translation<Out> {
        let entry = table.entry(place);
        Translation {
            frame: Frame {
                base: Out::new((entry & FRAME) as u64),
            },
            size: table.size,
            flags: Flags(entry as u8),
            leaf: Out::new(table.address(place)),
        }
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for OfSpace<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        let first = state.step == 0;
        if first {
            if !self.width.canonical(va) {
                return Next::Fault;
            }
            caches.spent = self.hash_latency;
        }
        // A register for each page size: the place that was read last.
        let shared = lock(&self.table);
        let mut at = ArrayVec::new();
        let mut matching = None;
        for table in &shared.tables {
            let register = &mut state.regs[table.size.index()];
            let key = table.key(self.asid, self.number(va, table.size));
            let mut place = Place(*register);
            if first && table.used {
                place = Place::bucket(key.bucket);
            } else if place != Place::NONE {
                let entry = table.entry(place);
                if table.holds(entry, key) {
                    return Next::Done(Self::translation(table, place));
                }
                place = table.next(entry);
            }
            *register = place.0;
            if place != Place::NONE {
                if table.holds(table.entry(place), key) {
                    matching = Some(at.len() as u8);
                }
                at.push(Out::new(table.address(place)));
            }
        }
        state.step = state.step.saturating_add(1);
        Next::in_parallel(at, matching)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let va = va.raw();
        if !self.width.canonical(va) {
            return None;
        }
        let shared = lock(&self.table);
        let mut used = shared.tables.iter().filter(|table| table.used);
        used.find_map(|table| {
            let (_, place) = table.find(table.key(self.asid, self.number(va, table.size)))?;
            Some(Self::translation(table, place))
        })
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for OfSpace<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        debug_assert!(self.width.canonical(page.base.raw()));
        if self.overlaps(page) {
            return Err(MapError::Occupied);
        }
        let number = self.number(page.base.raw(), page.size);
        let mut work = MapWork::default();
        let mut shared = lock(&self.table);
        let table = &mut shared.tables[page.size.index()];
        let content = Entry::from(frame.base.raw()) | Entry::from(flags.0);
        table.insert(table.key(self.asid, number), content, &mut work, frames)?;
        self.pages[page.size.index()].insert(number);
        Ok(work)
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let va = page.base.raw();
        let number = self.number(va, page.size);
        if !self.width.canonical(va) || !self.pages[page.size.index()].has(number) {
            return None;
        }
        self.pages[page.size.index()].remove(number);
        let mut work = MapWork::default();
        let mut shared = lock(&self.table);
        let table = &mut shared.tables[page.size.index()];
        let found = table.find(table.key(self.asid, number))?;
        let was = Self::translation(table, found.1);
        table.remove(found, &mut work, frames);
        Some((was.frame, was.flags, work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let va = page.base.raw();
        let number = self.number(va, page.size);
        if !self.width.canonical(va) || !self.pages[page.size.index()].has(number) {
            return false;
        }
        let mut shared = lock(&self.table);
        let table = &mut shared.tables[page.size.index()];
        let Some((_, place)) = table.find(table.key(self.asid, number)) else {
            return false;
        };
        let entry = table.entry_mut(place);
        *entry = *entry & !0xff | Entry::from(flags.0);
        true
    }

    /// None: the registers of the table are those of the machine.
    fn registers(&self) -> u32 {
        0
    }

    /// None: the memory belongs to no address space.
    fn bytes(&self) -> u64 {
        0
    }

    fn largest_contiguous(&self) -> u64 {
        let shared = lock(&self.table);
        let largest = shared.tables.iter().map(|t| t.stats.buckets).max();
        largest.unwrap_or(0) * ENTRY_BYTES
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        let mut all = Vec::new();
        let shared = lock(&self.table);
        for (table, pages) in shared.tables.iter().zip(&self.pages) {
            for number in pages.iter() {
                let Some((_, place)) = table.find(table.key(self.asid, number)) else {
                    unreachable!("a mapped page has an entry");
                };
                let va = self.width.extend(number << table.size.shift());
                all.push((va, Self::translation(table, place)));
            }
        }
        drop(shared);
        all.sort_unstable_by_key(|&(va, _)| va);
        for (va, t) in all {
            let base = In::new(va);
            f(Page { base, size: t.size }, t.frame, t.flags);
        }
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        let mut shared = lock(&self.table);
        for (table, pages) in shared.tables.iter_mut().zip(&mut self.pages) {
            for number in std::mem::take(pages).iter() {
                if let Some(found) = table.find(table.key(self.asid, number)) {
                    table.remove(found, &mut MapWork::default(), frames);
                }
            }
        }
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
