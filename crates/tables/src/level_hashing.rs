//! Level hashing (Zuo, Hua and Wu, OSDI 2018) as a page table. It has two levels of
//! buckets, the bottom half as large as the top, and two hash functions. An insertion
//! moves at most one line. A resize rehashes only the bottom level. ME-HPT (section
//! IX) compares against it.

use arrayvec::ArrayVec;
use pagewalk_units::{Addr, Asid, Cycle, Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ADDRESS_BITS, Line, PTES, PteCluster, Width, check_address_bits};
use crate::clustered::{Block, Clustered, Pool, Store};
use crate::contract::{
    FrameSource, Group, Next, NoFrames, PageTable, Translation, Walk, WalkState,
};
use crate::hash_dont_cache::{check_latency, check_slots};
use crate::murmur::murmur;
use crate::owner::Owner;
use crate::registry::{BuildTable, TableSpec};
use crate::walk_cache::{WalkCacheKind, WalkCaches};

/// A two-level hashed page table, one for each page size. A bucket is a 64-byte line
/// that holds a cluster of eight entries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LevelHashingSpec {
    /// Lines of the top level of a new table: a power of two of at least 128. The
    /// bottom level has half as many. Default 256: with the bottom level the 384
    /// lines that ME-HPT's table III gives its cuckoo tables.
    pub initial_slots: u32,
    /// Load factor below which the top level is removed, down to the initial size; 0
    /// for never. Default 0.
    pub downsize_at: f64,
    /// Cycles of the hash functions, before the reads. Default 2 (ME-HPT, table III).
    pub hash_latency: Cycle,
    /// Bits of a virtual address that the table translates: 48, or 57 as five-level paging.
    /// Default 48.
    pub address_bits: u32,
}

impl Default for LevelHashingSpec {
    fn default() -> Self {
        LevelHashingSpec {
            initial_slots: 256,
            downsize_at: 0.0,
            hash_latency: 2,
            address_bits: ADDRESS_BITS,
        }
    }
}

impl LevelHashingSpec {
    /// The original shrinks a table only below this load factor (its `level_shrink`).
    const SHRINKABLE: f64 = 0.4;
}

impl TableSpec for LevelHashingSpec {
    fn check(&self) -> Result<(), Error> {
        check_slots("initial_slots", self.initial_slots)?;
        if self.initial_slots < 128 {
            return Err(Error::key(
                "initial_slots",
                format!(
                    "is {}; expected at least 128, since the bottom level has half of it",
                    self.initial_slots
                ),
            ));
        }
        if !(0.0..=Self::SHRINKABLE).contains(&self.downsize_at) {
            return Err(Error::key(
                "downsize_at",
                format!(
                    "is {}; expected 0 to {}",
                    self.downsize_at,
                    Self::SHRINKABLE
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

impl BuildTable for LevelHashingSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        Box::new(LevelHashing::new(self, owner.asid))
    }
}

/// Location of a line: level and bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    level: usize,
    index: usize,
}

/// The two levels for one page size.
pub(crate) struct TwoLevels<A> {
    spec: LevelHashingSpec,
    salt: u64,
    levels: Option<[Block<A>; 2]>,
    used: usize,
    /// True if the bottom level was once the top level. Lines may then move up from
    /// it.
    grown: bool,
    /// Number of lines in use when a shrink failed for lack of a free bucket. The
    /// shrink is retried after half of them are removed.
    refused: usize,
}

/// The two buckets of a key in a level of `slots`. The first function covers the
/// lower half and the second the upper half, as in the authors' code.
#[inline]
fn buckets(key: u64, salt: u64, slots: usize) -> [usize; 2] {
    let half = slots / 2;
    let hash = |function: u64| murmur(key, salt << 1 | function) as usize & (half - 1);
    [hash(0), hash(1) + half]
}

/// The lines of both levels, without their physical addresses.
type LevelLines<'a> = [&'a mut [Line]; 2];

/// Inserts `line` with at most one movement and returns the number of movements.
/// `None` if no bucket is free; nothing has changed then.
fn place(levels: &mut LevelLines<'_>, salt: u64, grown: bool, key: u64, line: Line) -> Option<u32> {
    for level in levels.iter_mut() {
        for i in buckets(key, salt, level.len()) {
            if PteCluster::valid(&level[i]) == 0 {
                level[i] = line;
                return Some(0);
            }
        }
    }
    // Move a resident line to its other bucket of the same level.
    for level in levels.iter_mut() {
        for i in buckets(key, salt, level.len()) {
            let there = PteCluster::key(&level[i])?;
            let [first, second] = buckets(there, salt, level.len());
            let other = if i == first { second } else { first };
            if PteCluster::valid(&level[other]) == 0 {
                level[other] = level[i];
                level[i] = line;
                return Some(1);
            }
        }
    }
    if !grown {
        return None;
    }
    // Move a resident line from the bottom level to the top level, which was added
    // later.
    let [top, bottom] = levels;
    for i in buckets(key, salt, bottom.len()) {
        let there = PteCluster::key(&bottom[i])?;
        for up in buckets(there, salt, top.len()) {
            if PteCluster::valid(&top[up]) == 0 {
                top[up] = bottom[i];
                bottom[i] = line;
                return Some(1);
            }
        }
    }
    None
}

impl<A: Addr> TwoLevels<A> {
    fn new(spec: LevelHashingSpec, salt: u64) -> Self {
        TwoLevels {
            spec,
            salt,
            levels: None,
            used: 0,
            grown: false,
            refused: usize::MAX,
        }
    }

    fn place(&mut self, key: u64, line: Line) -> Option<u32> {
        let [top, bottom] = self.levels.as_mut()?;
        let mut levels = [top.lines_mut(), bottom.lines_mut()];
        place(&mut levels, self.salt, self.grown, key, line)
    }

    /// Adds a new top level of twice the size, moves the lines of the bottom level
    /// into it, and returns the old bottom level. A line keeps its hash function: its
    /// new bucket is the old one with one or two more hash bits. Two lines therefore
    /// never collide.
    fn grow(&mut self, pool: &mut Pool<'_, A>) -> Result<Block<A>, NoFrames> {
        let [old_top, old_bottom] = self.levels.as_ref().expect("a table that grows is there");
        let mut new = pool.alloc(old_top.slots() * 2)?;
        for (i, line) in old_bottom.lines().iter().enumerate() {
            if let Some(key) = PteCluster::key(line) {
                let function = usize::from(i >= old_bottom.slots() / 2);
                let to = buckets(key, self.salt, new.slots())[function];
                debug_assert_eq!(PteCluster::valid(&new.lines()[to]), 0);
                new.lines_mut()[to] = *line;
                pool.work.moved += 1;
            }
        }
        let [old_top, old_bottom] = self.levels.take().expect("as above");
        self.levels = Some([new, old_top]);
        Ok(old_bottom)
    }

    /// Removes the top level. Its lines move into the bottom level, which becomes the
    /// top level, and into a new bottom level of half its size. Does nothing if
    /// memory is refused or a line finds no bucket.
    fn shrink(&mut self, pool: &mut Pool<'_, A>) {
        let [old_top, old_bottom] = self.levels.as_mut().expect("a table that shrinks is there");
        let before = pool.work;
        let Ok(mut new) = pool.alloc(old_bottom.slots() / 2) else {
            return;
        };
        let mut top = old_bottom.lines().to_vec();
        let (mut moved, mut kicks) = (0, 0);
        for line in old_top.lines() {
            let Some(key) = PteCluster::key(line) else {
                continue;
            };
            let mut levels = [&mut top[..], new.lines_mut()];
            let Some(movements) = place(&mut levels, self.salt, false, key, *line) else {
                self.refused = self.used;
                pool.free(new);
                pool.work = before;
                return;
            };
            moved += 1;
            kicks += movements;
        }
        pool.work.moved += moved;
        pool.work.kicks += kicks;
        old_bottom.lines_mut().copy_from_slice(&top);
        let [old_top, old_bottom] = self.levels.take().expect("as above");
        self.levels = Some([old_bottom, new]);
        self.grown = false;
        self.refused = usize::MAX;
        pool.free(old_top);
    }

    /// Lines of both levels, in use or not.
    fn slots(&self) -> usize {
        self.levels.iter().flatten().map(Block::slots).sum()
    }
}

impl<A: Addr> Store<A> for TwoLevels<A> {
    type Place = Bucket;

    #[inline]
    fn find(&self, key: u64) -> Option<Bucket> {
        let levels = self.levels.as_ref()?;
        for (level, block) in levels.iter().enumerate() {
            for index in buckets(key, self.salt, block.slots()) {
                if PteCluster::holds(&block.lines()[index], key) {
                    return Some(Bucket { level, index });
                }
            }
        }
        None
    }
    #[inline]
    fn line(&self, at: Bucket) -> &Line {
        &self.levels.as_ref().expect("a place is in memory")[at.level].lines()[at.index]
    }
    #[inline]
    fn line_mut(&mut self, at: Bucket) -> &mut Line {
        &mut self.levels.as_mut().expect("a place is in memory")[at.level].lines_mut()[at.index]
    }
    #[inline]
    fn address(&self, at: Bucket) -> u64 {
        self.levels.as_ref().expect("a place is in memory")[at.level].address(at.index)
    }

    fn insert(&mut self, key: u64, line: Line, pool: &mut Pool<'_, A>) -> Result<(), NoFrames> {
        if self.levels.is_none() {
            let top = pool.alloc(self.spec.initial_slots as usize)?;
            match pool.alloc(self.spec.initial_slots as usize / 2) {
                Ok(bottom) => self.levels = Some([top, bottom]),
                Err(refusal) => {
                    pool.free(top);
                    return Err(refusal);
                }
            }
        }
        // Rehashed bottom levels, kept until the whole insertion has succeeded.
        let mut old = ArrayVec::<Block<A>, 32>::new();
        let was_grown = self.grown;
        let movements = loop {
            if let Some(movements) = self.place(key, line) {
                break movements;
            }
            match self.grow(pool) {
                Ok(bottom) => old.push(bottom),
                Err(refusal) => {
                    while let Some(bottom) = old.pop() {
                        let [new, top] = self.levels.take().expect("it has grown");
                        self.levels = Some([top, bottom]);
                        pool.free(new);
                    }
                    self.grown = was_grown;
                    return Err(refusal);
                }
            }
            self.grown = true;
        };
        if !old.is_empty() {
            self.refused = usize::MAX;
        }
        for block in old {
            pool.free(block);
        }
        pool.work.kicks += movements;
        self.used += 1;
        Ok(())
    }

    fn remove(&mut self, at: Bucket, pool: &mut Pool<'_, A>) {
        *self.line_mut(at) = [0; PTES];
        self.used -= 1;
        let initial = self.spec.initial_slots as usize / 2 * 3;
        let few = (self.used as f64) < self.spec.downsize_at * self.slots() as f64;
        if few && self.slots() > initial && self.used <= self.refused / 2 {
            self.shrink(pool);
        }
    }

    fn used(&self) -> usize {
        self.used
    }
    fn bytes(&self) -> u64 {
        self.levels.iter().flatten().map(Block::bytes).sum()
    }
    /// One register for each level. A block is aligned to its size, so the register
    /// has spare bits for the size.
    fn registers(&self) -> u32 {
        self.levels.iter().flatten().count() as u32
    }
    fn for_each(&self, f: &mut dyn FnMut(u64, &Line)) {
        for line in self.levels.iter().flatten().flat_map(Block::lines) {
            if let Some(key) = PteCluster::key(line) {
                f(key, line);
            }
        }
    }
    fn release(&mut self, frames: &mut dyn FrameSource<A>) {
        for block in self.levels.take().into_iter().flatten() {
            block.free(frames);
        }
        self.used = 0;
        self.grown = false;
        self.refused = usize::MAX;
    }
}

/// The page table of an address space: two levels for each page size.
///
/// A walk reads two buckets of the top level and two of the bottom level, for each
/// page size that has ever held a page. All reads are parallel. The walk ends when
/// the read of the matching bucket returns.
pub(crate) type LevelHashing<In, Out> = Clustered<TwoLevels<Out>, In, Out>;

impl<In: Addr, Out: Addr> LevelHashing<In, Out> {
    /// An empty table for address space `asid`.
    pub fn new(spec: &LevelHashingSpec, asid: Asid) -> Self {
        let stores = PageSize::ALL.map(|size| TwoLevels::new(*spec, size.index() as u64));
        Clustered::of(stores, asid, Width::new(spec.address_bits))
    }
}

/// Registers of a walk: index of the matching page size plus one (0 for none), and
/// the matching bucket.
const SIZE: usize = 0;
const LEVEL: usize = 1;
const INDEX: usize = 2;

impl<In: Addr, Out: Addr> Walk<In, Out> for LevelHashing<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        if state.step > 0 {
            let Some(size) = (state.regs[SIZE] as usize).checked_sub(1) else {
                return Next::Fault;
            };
            let at = Bucket {
                level: state.regs[LEVEL] as usize,
                index: state.regs[INDEX] as usize,
            };
            return self
                .translation(va, PageSize::ALL[size], at)
                .map_or(Next::Fault, Next::Done);
        }
        if !self.width.canonical(va) {
            return Next::Fault;
        }
        let mut group = Group {
            at: ArrayVec::new(),
            matching: None,
            off_path: false,
            level: 1,
        };
        for size in PageSize::ALL {
            let store = &self.stores[size.index()];
            let Some(levels) = &store.levels else {
                continue;
            };
            let (key, entry) = self.width.place(va, size);
            for (level, block) in levels.iter().enumerate() {
                for index in buckets(key, store.salt, block.slots()) {
                    let line = &block.lines()[index];
                    if PteCluster::holds(line, key) && PteCluster::get(line, entry).is_some() {
                        group.matching = Some(group.at.len() as u8);
                        state.regs[SIZE] = 1 + size.index() as u64;
                        state.regs[LEVEL] = level as u64;
                        state.regs[INDEX] = index as u64;
                    }
                    group.at.push(Out::new(block.address(index)));
                }
            }
        }
        if group.at.is_empty() {
            return Next::Fault;
        }
        caches.spent = self.stores[0].spec.hash_latency;
        state.step = 1;
        Next::Read(group)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        self.any(va.raw())
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr};

    use super::{LevelHashing, LevelHashingSpec, buckets};
    use crate::contract::{Flags, FrameSource, MapError, NoFrames, PageTable, Want};

    /// Memory that grants `left` more allocations.
    struct TestFrames {
        next: u64,
        left: u32,
        bytes: u64,
    }

    impl FrameSource<PhysAddr> for TestFrames {
        fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
            let Some(left) = self.left.checked_sub(1) else {
                return Err(NoFrames { bytes: want.bytes });
            };
            let base = self.next.next_multiple_of(want.bytes);
            self.next = base + want.bytes;
            self.left = left;
            self.bytes += want.bytes;
            let base = PhysAddr(base);
            Ok(Frame { base })
        }
        fn free(&mut self, _: Frame<PhysAddr>, bytes: u64) {
            self.bytes -= bytes;
        }
    }

    /// Five keys share their buckets at three table sizes, so the fifth makes the
    /// table grow three times. If any of these allocations fails, the table is
    /// unchanged.
    #[test]
    fn an_insertion_that_grows_more_than_once_is_undone_as_a_whole() {
        let spec = LevelHashingSpec::default();
        let slots = 4 * spec.initial_slots as usize;
        let meet = buckets(0, 0, slots);
        let keys: Vec<u64> = (0..1 << 22)
            .filter(|&key| buckets(key, 0, slots) == meet)
            .take(5)
            .collect();
        assert_eq!(keys.len(), 5);
        let mut table = LevelHashing::<VirtAddr, PhysAddr>::new(&spec, Asid(1));
        let mut source = TestFrames {
            next: 1 << 40,
            left: 2,
            bytes: 0,
        };
        let page = |key: u64| VirtAddr(key << 15).page(PageSize::K4);
        let map = |table: &mut LevelHashing<_, _>, key: u64, source: &mut TestFrames| {
            let base = PhysAddr(key << 15);
            table.map(page(key), Frame { base }, Flags::WRITABLE, source)
        };
        for &key in &keys[..4] {
            map(&mut table, key, &mut source).expect("memory is plenty");
        }
        let picture = |table: &LevelHashing<VirtAddr, PhysAddr>| {
            let found = keys.iter().map(|&key| table.any(key << 15));
            let leaves: Vec<_> = found.map(|t| t.map(|t| t.leaf)).collect();
            (leaves, PageTable::bytes(table), table.stores[0].grown)
        };
        let before = picture(&table);
        for left in 0..3 {
            source.left = left;
            let done = map(&mut table, keys[4], &mut source);
            assert!(matches!(done, Err(MapError::Refused(_))), "{left} blocks");
            assert_eq!(picture(&table), before, "{left} blocks");
            assert_eq!(source.bytes, before.1, "{left} blocks");
        }
        source.left = 3;
        let work = map(&mut table, keys[4], &mut source).expect("there is enough");
        assert_eq!(source.left, 0);
        // Two lines of the bottom level, then the two that were in the top level, and
        // so on.
        assert_eq!(work.moved, 6);
        assert!(keys.iter().all(|&key| table.any(key << 15).is_some()));
    }
}
