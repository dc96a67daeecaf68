//! Flattened page tables (Park, Vougioukas, Sandberg and Black-Schaffer, ASPLOS 2022): two levels of
//! the radix tree are one node of 2 MB, so a walk reads half as many entries.
//!
//! A 2 MB page has its entry 512 times in a flattened node, since a walk does not know the page size.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use pagewalk_stats::Tree;
use pagewalk_tables::{
    BuildTable, Flags, FrameSource, MapError, MapWork, Next, NoFrames, Owner, PageTable, Purpose,
    TableMetric, TableSpec, Translation, Walk, WalkCacheKind, WalkCaches, WalkState, Want,
};
use pagewalk_units::{Addr, Asid, Error, Frame, Page, PageSize};
use serde::Deserialize;

/// A flattened page table: `[page_table.external.flattened]`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlattenedSpec {
    /// Flatten the upper two levels, too. Only the lower two, which hold the entries of pages, always are.
    flatten_root: bool,
}

impl TableSpec for FlattenedSpec {
    const METRICS: &'static [TableMetric] = &[TableMetric {
        name: "flattened_fill",
        unit: "",
        meaning: "Share of the entries of flattened page tables that are in use",
        value: |tree| {
            let used = tree.get("page_table", "flattened_used")?;
            let entries = tree.get("page_table", "flattened_entries")?;
            (entries > 0).then(|| used as f64 / entries as f64)
        },
    }];

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Nothing
    }
    fn address_bits(&self) -> u32 {
        48
    }
}

impl BuildTable for FlattenedSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        let levels: &[u32] = if self.flatten_root {
            &[18, 18]
        } else {
            &[9, 9, 18]
        };
        Box::new(Flattened {
            levels,
            asid: owner.asid,
            nodes: BTreeMap::new(),
            bytes: 0,
            largest: 0,
            addresses: PhantomData,
        })
    }
}

pagewalk_stats::counters! {
    /// Counters of a flattened page table.
    pub struct FlattenedStats {
        gauge flattened_used: "entries", "Entries in use, of pages and of nodes";
        gauge flattened_entries: "entries", "Entries of all nodes";
    }
}

/// A node: its address, and its entries in use by their index. The 512 entries of a 2 MB page are one
/// here, at the index of the first.
struct Node {
    base: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Clone, Copy)]
enum Entry {
    /// A node of the next level.
    Node,
    /// A page, or a part of one.
    Page {
        frame: u64,
        flags: Flags,
        size: PageSize,
    },
}

impl Entry {
    /// Number of equal entries of the node.
    fn count(self) -> u64 {
        match self {
            Entry::Page {
                size: PageSize::M2, ..
            } => 512,
            _ => 1,
        }
    }
}

struct Flattened<In, Out> {
    /// Address bits that each level translates, from the root on.
    levels: &'static [u32],
    asid: Asid,
    /// Nodes by level (0 is the root) and by the number of the region that they map.
    nodes: BTreeMap<(usize, u64), Node>,
    bytes: u64,
    largest: u64,
    addresses: PhantomData<fn(In) -> Out>,
}

/// True if the upper bits of a 48-bit address equal its bit 47.
fn canonical(va: u64) -> bool {
    (va << 16) as i64 >> 16 == va as i64
}

impl<In: Addr, Out: Addr> Flattened<In, Out> {
    /// Address bits below those that entries of `level` translate.
    fn shift(&self, level: usize) -> u32 {
        12 + self.levels[level + 1..].iter().sum::<u32>()
    }
    /// Key of the node at `level` on the way to `va`, and the index of the entry in it.
    fn place(&self, va: u64, level: usize) -> ((usize, u64), u64) {
        let number = (va & ((1 << 48) - 1)) >> self.shift(level);
        let bits = self.levels[level];
        ((level, number >> bits), number & ((1 << bits) - 1))
    }
    fn node_bytes(&self, level: usize) -> u64 {
        8 << self.levels[level]
    }
    /// The lowest level: the one of 4 KB and 2 MB pages.
    fn leaf(&self) -> usize {
        self.levels.len() - 1
    }
    /// The level of the entries of pages of `size`, and their number.
    fn entries_of(&self, size: PageSize) -> (usize, u64) {
        match size {
            PageSize::K4 => (self.leaf(), 1),
            PageSize::M2 => (self.leaf(), 512),
            PageSize::G1 => (self.leaf() - 1, 1),
        }
    }
    fn entry(&self, va: u64, level: usize) -> Option<Entry> {
        let (key, index) = self.place(va, level);
        let (&first, &entry) = self.nodes.get(&key)?.entries.range(..=index).next_back()?;
        (index - first < entry.count()).then_some(entry)
    }
    /// Address of the entry of `va` at `level`, whose node exists.
    fn address(&self, va: u64, level: usize) -> Out {
        let (key, index) = self.place(va, level);
        Out::new(self.nodes[&key].base + 8 * index)
    }
    /// The page of exactly this address and size.
    fn exact(&self, page: Page<In>) -> Option<(u64, Flags)> {
        let va = page.base.raw();
        let (level, _) = self.entries_of(page.size);
        match self.entry(va, level).filter(|_| canonical(va))? {
            Entry::Page { frame, flags, size } if size == page.size => Some((frame, flags)),
            _ => None,
        }
    }
    fn occupied(&self, page: Page<In>) -> bool {
        let va = page.base.raw();
        let (level, count) = self.entries_of(page.size);
        let (key, first) = self.place(va, level);
        let inside = |node: &Node| node.entries.range(first..first + count).next().is_some();
        let above = (level > 0).then(|| self.entry(va, level - 1));
        matches!(above, Some(Some(Entry::Page { .. })))
            || self.entry(va, level).is_some()
            || self.nodes.get(&key).is_some_and(inside)
    }

    fn free(&mut self, key: (usize, u64), frames: &mut dyn FrameSource<Out>) -> u64 {
        let bytes = self.node_bytes(key.0);
        if let Some(node) = self.nodes.remove(&key) {
            let base = Out::new(node.base);
            frames.free(Frame { base }, bytes);
            self.bytes -= bytes;
        }
        bytes
    }

    /// Frees the nodes on the way to `va` that have no entries, from `level` up.
    fn prune(&mut self, va: u64, level: usize, frames: &mut dyn FrameSource<Out>) -> u64 {
        let mut freed = 0;
        for level in (0..=level).rev() {
            let (key, _) = self.place(va, level);
            if self
                .nodes
                .get(&key)
                .is_some_and(|node| !node.entries.is_empty())
            {
                break;
            }
            freed += self.free(key, frames);
            if level > 0 {
                let (above, index) = self.place(va, level - 1);
                if let Some(node) = self.nodes.get_mut(&above) {
                    node.entries.remove(&index);
                }
            }
        }
        freed
    }

    /// Makes the nodes on the way to `va` down to `level`. Changes nothing on failure.
    fn grow(
        &mut self,
        va: u64,
        level: usize,
        work: &mut MapWork,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<(), NoFrames> {
        for at in 0..=level {
            let (key, _) = self.place(va, at);
            if self.nodes.contains_key(&key) {
                continue;
            }
            let bytes = self.node_bytes(at);
            let vpn = key.1 << self.levels[at] << self.shift(at) >> 12;
            let purpose = Purpose::Node {
                level: (self.levels.len() - at) as u8,
                vpn,
            };
            let want = Want {
                bytes,
                asid: self.asid,
                purpose,
            };
            let base = match frames.alloc(want) {
                Ok(frame) => frame.base.raw(),
                Err(refusal) => {
                    if at > 0 {
                        self.prune(va, at - 1, frames);
                    }
                    return Err(refusal);
                }
            };
            let entries = BTreeMap::new();
            self.nodes.insert(key, Node { base, entries });
            if at > 0 {
                let (above, index) = self.place(va, at - 1);
                let above = self.nodes.get_mut(&above).expect("made before");
                above.entries.insert(index, Entry::Node);
            }
            self.bytes += bytes;
            work.allocated += bytes;
            work.largest = work.largest.max(bytes);
        }
        self.largest = self.largest.max(work.largest);
        Ok(())
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Flattened<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, _: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        let level = usize::from(state.step);
        // The step's number is the level to read; the one before has been read.
        let read = level.checked_sub(1).map(|level| self.entry(va, level));
        match read {
            Some(Some(Entry::Page { .. })) => {
                return self.translate(In::new(va)).map_or(Next::Fault, Next::Done);
            }
            Some(None) => return Next::Fault,
            None if !canonical(va) || self.nodes.is_empty() => return Next::Fault,
            Some(Some(Entry::Node)) | None => {}
        }
        state.step += 1;
        Next::One {
            at: self.address(va, level),
            level: (self.levels.len() - level) as u8,
        }
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let va = va.raw();
        if !canonical(va) {
            return None;
        }
        (0..self.levels.len()).find_map(|level| match self.entry(va, level)? {
            Entry::Page { frame, flags, size } => Some(Translation {
                frame: Frame {
                    base: Out::new(frame),
                },
                size,
                flags,
                leaf: self.address(va, level),
            }),
            Entry::Node => None,
        })
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for Flattened<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        if self.occupied(page) {
            return Err(MapError::Occupied);
        }
        let (va, size) = (page.base.raw(), page.size);
        let (level, _) = self.entries_of(size);
        let mut work = MapWork::default();
        self.grow(va, level, &mut work, frames)?;
        let (key, first) = self.place(va, level);
        let node = self.nodes.get_mut(&key).expect("it has grown");
        let frame = frame.base.raw();
        let entry = Entry::Page { frame, flags, size };
        node.entries.insert(first, entry);
        Ok(work)
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let (frame, flags) = self.exact(page)?;
        let va = page.base.raw();
        let (level, _) = self.entries_of(page.size);
        let (key, first) = self.place(va, level);
        let node = self.nodes.get_mut(&key)?;
        node.entries.remove(&first);
        let freed = self.prune(va, level, frames);
        let work = MapWork {
            freed,
            ..MapWork::default()
        };
        let base = Out::new(frame);
        Some((Frame { base }, flags, work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let Some((frame, _)) = self.exact(page) else {
            return false;
        };
        let (level, _) = self.entries_of(page.size);
        let (key, first) = self.place(page.base.raw(), level);
        let node = self.nodes.get_mut(&key).expect("the page is mapped");
        let size = page.size;
        let entry = Entry::Page { frame, flags, size };
        node.entries.insert(first, entry);
        true
    }

    fn registers(&self) -> u32 {
        0
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn largest_contiguous(&self) -> u64 {
        self.largest
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        let mut pages = BTreeMap::new();
        for (&(level, region), node) in &self.nodes {
            let base = region << self.levels[level];
            for (&index, entry) in &node.entries {
                let va = ((base | index) << self.shift(level) << 16) as i64 >> 16;
                if let Entry::Page { frame, flags, size } = *entry {
                    pages.insert(va as u64, (size, frame, flags));
                }
            }
        }
        for (va, (size, frame, flags)) in pages {
            let (base, frame) = (In::new(va), Out::new(frame));
            f(Page { base, size }, Frame { base: frame }, flags);
        }
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        let keys: Vec<_> = self.nodes.keys().copied().collect();
        for key in keys {
            self.free(key, frames);
        }
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        let used = self.nodes.values().flat_map(|node| node.entries.values());
        let stats = FlattenedStats {
            flattened_used: used.map(|entry| entry.count()).sum(),
            flattened_entries: self.bytes / 8,
        };
        tree.add(path, &stats);
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
