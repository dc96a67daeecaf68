//! Hash, don't cache (Yaniv and Tsafrir, SIGMETRICS 2016): an open-addressed hashed page table
//! with linear probing. Entries are clustered eight to a cache line, and the line's tag lies in
//! their spare bits.

use arrayvec::ArrayVec;
use pagewalk_units::{Addr, Asid, Cycle, Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ADDRESS_BITS, Line, PTES, PteCluster, Width, check_address_bits};
use crate::clustered::{Block, Clustered, Pool, Store};
use crate::contract::{FrameSource, Next, NoFrames, PageTable, Translation, Walk, WalkState};
use crate::murmur::murmur;
use crate::owner::Owner;
use crate::registry::{BuildTable, TableSpec};
use crate::walk_cache::{WalkCacheKind, WalkCaches};

/// An open-addressed hashed page table, one for each page size. Initial sizes, threshold and
/// growth factor are those of the released Virtuoso simulator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HashDontCacheSpec {
    /// Lines (of eight entries) of a new table of 4 KB pages: a power of two. Default 65536.
    pub initial_slots: u32,
    /// Lines of a new table of 2 MB or 1 GB pages: a power of two. Default 256.
    pub initial_huge_slots: u32,
    /// Load factor above which a table is moved at once to a larger one. Default 0.6.
    pub upsize_at: f64,
    /// Load factor below which a table is moved to one of half the size, down to the initial
    /// size; 0 for never. Default 0.
    pub downsize_at: f64,
    /// Growth factor of a resize: a power of two. Default 2.
    pub growth: u32,
    /// Cycles of the hash function, before the first read. Default 2 (ME-HPT, table III).
    pub hash_latency: Cycle,
    /// Bits of a virtual address that the table translates: 48, or 57 as five-level paging.
    /// Default 48.
    pub address_bits: u32,
}

impl Default for HashDontCacheSpec {
    fn default() -> Self {
        HashDontCacheSpec {
            initial_slots: 65_536,
            initial_huge_slots: 256,
            upsize_at: 0.6,
            downsize_at: 0.0,
            growth: 2,
            hash_latency: 2,
            address_bits: ADDRESS_BITS,
        }
    }
}

/// Allowed initial lines of a table: one page to 1 GB.
const INITIAL: std::ops::RangeInclusive<u32> = 64..=1 << 24;

/// Checks that `slots` is a valid initial number of lines.
pub(crate) fn check_slots(key: &str, slots: u32) -> Result<(), Error> {
    if slots.is_power_of_two() && INITIAL.contains(&slots) {
        return Ok(());
    }
    Err(Error::key(
        key,
        format!(
            "is {slots}; expected a power of two from {} to {}",
            INITIAL.start(),
            INITIAL.end()
        ),
    ))
}
/// Checks that `cycles` is a valid latency.
pub(crate) fn check_latency(key: &str, cycles: Cycle) -> Result<(), Error> {
    const MOST: Cycle = 1 << 20;
    if cycles <= MOST {
        return Ok(());
    }
    Err(Error::key(
        key,
        format!("is {cycles}; expected at most {MOST} cycles"),
    ))
}

impl TableSpec for HashDontCacheSpec {
    fn check(&self) -> Result<(), Error> {
        check_slots("initial_slots", self.initial_slots)?;
        check_slots("initial_huge_slots", self.initial_huge_slots)?;
        if !(0.1..=0.95).contains(&self.upsize_at) {
            return Err(Error::key(
                "upsize_at",
                format!("is {}; expected 0.1 to 0.95", self.upsize_at),
            ));
        }
        if !(2..=16).contains(&self.growth) || !self.growth.is_power_of_two() {
            return Err(Error::key(
                "growth",
                format!("is {}; expected 2, 4, 8 or 16", self.growth),
            ));
        }
        // A table that was just resized must be far from both thresholds.
        let most = self.upsize_at / f64::from(self.growth);
        if !(0.0..=most).contains(&self.downsize_at) {
            return Err(Error::key(
                "downsize_at",
                format!(
                    "is {}; expected 0 to {most} (upsize_at / growth)",
                    self.downsize_at
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

impl BuildTable for HashDontCacheSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        Box::new(HashDontCache::new(self, owner.asid))
    }
}

/// The table of one page size.
pub(crate) struct Linear<A> {
    spec: HashDontCacheSpec,
    initial: usize,
    salt: u64,
    block: Option<Block<A>>,
    used: usize,
}

/// Result of a search: start line, number of lines probed, and whether the key was found.
#[derive(Clone, Copy)]
struct Search {
    start: usize,
    probes: usize,
    found: bool,
}

impl<A: Addr> Linear<A> {
    fn new(spec: HashDontCacheSpec, initial: u32, salt: u64) -> Self {
        Linear {
            spec,
            initial: initial as usize,
            salt,
            block: None,
            used: 0,
        }
    }

    /// The home slot of `key` in a table of `slots`.
    #[inline]
    fn home(&self, key: u64, slots: usize) -> usize {
        murmur(key, self.salt) as usize & (slots - 1)
    }

    /// Probes from the home slot to the line of `key` or to the first free line.
    #[inline]
    fn search(&self, key: u64, lines: &[Line]) -> Search {
        let mask = lines.len() - 1;
        let start = self.home(key, lines.len());
        // The loop ends because a table is never full.
        let mut probes = 0;
        loop {
            let line = &lines[(start + probes) & mask];
            probes += 1;
            let found = PteCluster::holds(line, key);
            if found || PteCluster::valid(line) == 0 {
                return Search {
                    start,
                    probes,
                    found,
                };
            }
        }
    }

    /// Puts `line` into the first free slot from its home slot on.
    fn put(&self, key: u64, line: Line, lines: &mut [Line]) {
        let end = self.search(key, lines);
        debug_assert!(!end.found);
        let mask = lines.len() - 1;
        lines[(end.start + end.probes - 1) & mask] = line;
    }

    /// Moves all lines to a table of `slots`.
    fn resize(&mut self, slots: usize, pool: &mut Pool<'_, A>) -> Result<(), NoFrames> {
        let mut new = pool.alloc(slots)?;
        if let Some(old) = self.block.take() {
            for line in old.lines() {
                if let Some(key) = PteCluster::key(line) {
                    self.put(key, *line, new.lines_mut());
                }
            }
            pool.work.moved += self.used as u32;
            pool.free(old);
        }
        self.block = Some(new);
        Ok(())
    }

    fn slots(&self) -> usize {
        self.block.as_ref().map_or(0, |b| b.slots())
    }
}

impl<A: Addr> Store<A> for Linear<A> {
    type Place = usize;

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let lines = self.block.as_ref()?.lines();
        let end = self.search(key, lines);
        end.found
            .then_some((end.start + end.probes - 1) & (lines.len() - 1))
    }
    #[inline]
    fn line(&self, place: usize) -> &Line {
        &self.block.as_ref().expect("a place is in memory").lines()[place]
    }
    #[inline]
    fn line_mut(&mut self, place: usize) -> &mut Line {
        &mut self
            .block
            .as_mut()
            .expect("a place is in memory")
            .lines_mut()[place]
    }
    #[inline]
    fn address(&self, place: usize) -> u64 {
        let block = self.block.as_ref().expect("a place is in memory");
        block.address(place)
    }

    fn insert(&mut self, key: u64, line: Line, pool: &mut Pool<'_, A>) -> Result<(), NoFrames> {
        let slots = self.slots();
        if slots == 0 {
            self.resize(self.initial, pool)?;
        } else if (self.used + 1) as f64 > self.spec.upsize_at * slots as f64 {
            self.resize(slots * self.spec.growth as usize, pool)?;
        }
        let mut block = self.block.take().expect("there is memory by now");
        self.put(key, line, block.lines_mut());
        self.block = Some(block);
        self.used += 1;
        Ok(())
    }

    /// Backward-shift deletion: lines after the hole whose probe sequence crosses it move up.
    /// Searches then end at the right place without tombstones.
    fn remove(&mut self, place: usize, pool: &mut Pool<'_, A>) {
        let mut block = self.block.take().expect("a place is in memory");
        let lines = block.lines_mut();
        let mask = lines.len() - 1;
        let (mut hole, mut next) = (place, place);
        loop {
            next = (next + 1) & mask;
            let Some(key) = PteCluster::key(&lines[next]) else {
                break;
            };
            let home = self.home(key, lines.len());
            let from_home = next.wrapping_sub(home) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                lines[hole] = lines[next];
                hole = next;
                pool.work.moved += 1;
            }
        }
        lines[hole] = [0; PTES];
        let slots = lines.len();
        self.block = Some(block);
        self.used -= 1;
        if slots > self.initial && (self.used as f64) < self.spec.downsize_at * slots as f64 {
            // If memory for the smaller table is refused, the larger one stays.
            let _ = self.resize(slots / 2, pool);
        }
    }

    fn used(&self) -> usize {
        self.used
    }
    fn bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, Block::bytes)
    }
    /// One register. A block is aligned to its size, so the register has spare bits for the
    /// size.
    fn registers(&self) -> u32 {
        u32::from(self.block.is_some())
    }
    fn for_each(&self, f: &mut dyn FnMut(u64, &Line)) {
        for line in self.block.iter().flat_map(Block::lines) {
            if let Some(key) = PteCluster::key(line) {
                f(key, line);
            }
        }
    }
    fn release(&mut self, frames: &mut dyn FrameSource<A>) {
        if let Some(block) = self.block.take() {
            block.free(frames);
        }
        self.used = 0;
    }
}

/// The page table of an address space: one [`Linear`] for each page size.
///
/// A walk does not know the page size, so it probes the tables of all sizes that have ever held
/// a page in parallel. In each table it reads line by line until the key or a free line. The
/// walk ends when the read of the matching line returns.
pub(crate) type HashDontCache<In, Out> = Clustered<Linear<Out>, In, Out>;

impl<In: Addr, Out: Addr> HashDontCache<In, Out> {
    /// An empty table for address space `asid`.
    pub fn new(spec: &HashDontCacheSpec, asid: Asid) -> Self {
        let stores = PageSize::ALL.map(|size| {
            let initial = match size {
                PageSize::K4 => spec.initial_slots,
                _ => spec.initial_huge_slots,
            };
            Linear::new(*spec, initial, size.index() as u64)
        });
        Clustered::of(stores, asid, Width::new(spec.address_bits))
    }
}

/// Packing into one walk register; zero where there is no table.
impl Search {
    const PROBES: u32 = 31;
    const FOUND: u32 = 63;

    fn pack(self) -> u64 {
        self.start as u64
            | (self.probes as u64) << Self::PROBES
            | u64::from(self.found) << Self::FOUND
    }
    fn unpack(r: u64) -> Self {
        Search {
            start: (r & ((1 << Self::PROBES) - 1)) as usize,
            probes: (r << 1 >> (Self::PROBES + 1)) as usize,
            found: r >> Self::FOUND != 0,
        }
    }
}

/// Walk register: lines read so far in each table. The first three registers hold the searches
/// by page size.
const READ: usize = 3;

impl<In: Addr, Out: Addr> Walk<In, Out> for HashDontCache<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        if state.step == 0 {
            if !self.width.canonical(va) {
                return Next::Fault;
            }
            caches.spent = self.stores[0].spec.hash_latency;
            for size in PageSize::ALL {
                let store = &self.stores[size.index()];
                if let Some(block) = &store.block {
                    let (key, index) = self.width.place(va, size);
                    let mut search = store.search(key, block.lines());
                    if search.found {
                        // The line has the key but no valid entry: the page is not mapped.
                        let last = search.start + search.probes - 1;
                        let line = &block.lines()[last & (block.slots() - 1)];
                        search.found = PteCluster::get(line, index).is_some();
                    }
                    state.regs[size.index()] = search.pack();
                }
            }
        }
        let read = state.regs[READ] as usize;
        let mut at = ArrayVec::new();
        let mut matching = None;
        for size in PageSize::ALL {
            let search = Search::unpack(state.regs[size.index()]);
            if read >= search.probes {
                if search.found {
                    return self.found(va, size, search);
                }
                continue;
            }
            let block = self.stores[size.index()].block.as_ref();
            let block = block.expect("only a table is searched");
            if search.found {
                matching = Some(at.len() as u8);
            }
            let line = (search.start + read) & (block.slots() - 1);
            at.push(Out::new(block.address(line)));
        }
        state.step = state.step.saturating_add(1);
        state.regs[READ] += 1;
        Next::in_parallel(at, matching)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        self.any(va.raw())
    }
}

impl<In: Addr, Out: Addr> HashDontCache<In, Out> {
    fn found(&self, va: u64, size: PageSize, search: Search) -> Next<Out> {
        let slots = self.stores[size.index()].slots();
        let place = (search.start + search.probes - 1) & (slots - 1);
        self.translation(va, size, place)
            .map_or(Next::Fault, Next::Done)
    }
}
