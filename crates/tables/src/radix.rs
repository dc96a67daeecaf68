//! The x86-64 radix tree: 4 or 5 levels of 4 KB nodes with 512 entries each
//! (Intel SDM vol. 3, 4.5).

use std::marker::PhantomData;

use arrayvec::ArrayVec;
use pagewalk_structures::prefetch;
use pagewalk_units::{Addr, Asid, Error, Frame, Page, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::{
    Flags, FrameSource, MOST_LEVELS, MapError, MapWork, Next, PageTable, Path, Purpose,
    Translation, Walk, WalkState, Want,
};
use crate::owner::Owner;
use crate::pte;
use crate::registry::{BuildTable, TableSpec};
use crate::walk_cache::{WalkCacheKind, WalkCaches};

/// The x86-64 radix tree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RadixSpec {
    /// Levels: 4 (48-bit addresses) or 5 (57-bit addresses).
    pub levels: u8,
}

impl TableSpec for RadixSpec {
    fn check(&self) -> Result<(), Error> {
        match self.levels {
            4 | 5 => Ok(()),
            levels => Err(Error::key(
                "levels",
                format!("is {levels}; expected 4 or 5"),
            )),
        }
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Levels
    }
    fn address_bits(&self) -> u32 {
        12 + 9 * u32::from(self.levels)
    }
}

impl BuildTable for RadixSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        Box::new(Radix::new(self.levels, owner.asid))
    }
}

const ENTRIES: usize = 512;
const NODE_BYTES: u64 = 4096;

/// Reference to a node: its simulated frame number in the upper bits, its index in the
/// host's slab in the lower bits. Walk caches hold these references, so a walk-cache hit
/// reaches the entry with one host load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeRef(u64);

impl NodeRef {
    const SLOT_BITS: u32 = 28;

    fn new(frame: u64, slot: u32) -> Self {
        debug_assert!(frame >> 48 == 0 && slot >> Self::SLOT_BITS == 0);
        NodeRef(frame >> 12 << Self::SLOT_BITS | u64::from(slot))
    }
    #[inline]
    fn base(self) -> u64 {
        self.0 >> Self::SLOT_BITS << 12
    }
    #[inline]
    fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

/// Nodes of level 1: only their 512 entries, in large zeroed chunks that the host kernel
/// backs on first touch. The first chunk grows on demand, because most processes are small
/// and the allocator zeroes recycled memory completely.
#[derive(Default)]
struct Leaves {
    chunks: Vec<Vec<[u64; ENTRIES]>>,
    live: Vec<u16>,
    free: Vec<u32>,
}

impl Leaves {
    const CHUNK_SHIFT: u32 = 11;
    /// Initial nodes of the first chunk, a power of two.
    const FIRST: usize = 16;

    #[inline]
    fn node(&self, slot: usize) -> &[u64; ENTRIES] {
        &self.chunks[slot >> Self::CHUNK_SHIFT][slot & ((1 << Self::CHUNK_SHIFT) - 1)]
    }
    #[inline]
    fn node_mut(&mut self, slot: usize) -> &mut [u64; ENTRIES] {
        &mut self.chunks[slot >> Self::CHUNK_SHIFT][slot & ((1 << Self::CHUNK_SHIFT) - 1)]
    }
    /// Allocates an empty node. Freed nodes are already empty, because only empty nodes are
    /// freed.
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.live.len();
            if slot >> Self::CHUNK_SHIFT > 0 {
                if slot >> Self::CHUNK_SHIFT == self.chunks.len() {
                    self.chunks.push(vec![[0; ENTRIES]; 1 << Self::CHUNK_SHIFT]);
                }
            } else if slot == 0 {
                self.chunks.push(vec![[0; ENTRIES]; Self::FIRST]);
            } else if slot == self.chunks[0].len() {
                self.chunks[0].resize(2 * slot, [0; ENTRIES]);
            }
            self.live.push(0);
            slot as u32
        })
    }
}

/// A node above level 1: its entries, and the slab indices of its children.
struct Upper {
    entry: [u64; ENTRIES],
    child: [u32; ENTRIES],
    live: u16,
}

/// A radix page table of 4 or 5 levels with leaves of 4 KB, 2 MB and 1 GB.
///
/// Array `k` of the walk caches maps the address bits above the reach of a level `k + 1`
/// node to that node. The deepest array that hits determines the first read. Nodes take one
/// frame each and are freed when they are empty, the root included.
pub struct Radix<In, Out> {
    levels: u8,
    /// Translated bits of an address.
    bits: u32,
    asid: Asid,
    root: Option<NodeRef>,
    leaves: Leaves,
    uppers: Vec<Box<Upper>>,
    free_uppers: Vec<u32>,
    nodes: u64,
    largest: u64,
    addresses: PhantomData<fn(In) -> Out>,
}

impl<In: Addr, Out: Addr> Radix<In, Out> {
    /// An empty table of `levels` (4 or 5) for the address space `asid`.
    pub fn new(levels: u8, asid: Asid) -> Self {
        assert!(
            levels == 4 || levels == 5,
            "an x86-64 radix table has 4 or 5 levels"
        );
        Radix {
            levels,
            bits: Self::shift(levels + 1),
            asid,
            root: None,
            leaves: Leaves::default(),
            uppers: Vec::new(),
            free_uppers: Vec::new(),
            nodes: 0,
            largest: 0,
            addresses: PhantomData,
        }
    }

    /// log2 of the bytes that one entry of a node of `level` maps.
    #[inline]
    fn shift(level: u8) -> u32 {
        3 + 9 * u32::from(level)
    }
    #[inline]
    fn index(va: u64, level: u8) -> usize {
        (va >> Self::shift(level)) as usize & (ENTRIES - 1)
    }
    /// Sign-extends the translated bits of an address.
    #[inline]
    fn extend(&self, va: u64) -> u64 {
        let above = 64 - self.bits;
        ((va << above) as i64 >> above) as u64
    }
    #[inline]
    fn entry(&self, node: NodeRef, level: u8, index: usize) -> u64 {
        if level == 1 {
            self.leaves.node(node.slot())[index]
        } else {
            self.uppers[node.slot()].entry[index]
        }
    }
    #[inline]
    fn child(&self, node: NodeRef, index: usize) -> NodeRef {
        let n = &self.uppers[node.slot()];
        NodeRef::new(pte::frame(n.entry[index]), n.child[index])
    }
    fn set_entry(&mut self, node: NodeRef, level: u8, index: usize, e: u64) {
        if level == 1 {
            self.leaves.node_mut(node.slot())[index] = e;
        } else {
            self.uppers[node.slot()].entry[index] = e;
        }
    }
    fn live_mut(&mut self, node: NodeRef, level: u8) -> &mut u16 {
        if level == 1 {
            &mut self.leaves.live[node.slot()]
        } else {
            &mut self.uppers[node.slot()].live
        }
    }

    /// Adds an empty node of `level` in `frame`.
    fn add_node(&mut self, level: u8, frame: u64) -> NodeRef {
        self.nodes += 1;
        self.largest = NODE_BYTES;
        let slot = if level == 1 {
            self.leaves.take()
        } else {
            self.free_uppers.pop().unwrap_or_else(|| {
                self.uppers.push(Box::new(Upper {
                    entry: [0; ENTRIES],
                    child: [0; ENTRIES],
                    live: 0,
                }));
                self.uppers.len() as u32 - 1
            })
        };
        NodeRef::new(frame, slot)
    }
    /// Frees the empty `node` of `level`.
    fn remove_node(&mut self, node: NodeRef, level: u8, frames: &mut dyn FrameSource<Out>) {
        self.nodes -= 1;
        if level == 1 {
            self.leaves.free.push(node.slot() as u32);
        } else {
            self.free_uppers.push(node.slot() as u32);
        }
        let base = Out::new(node.base());
        frames.free(Frame { base }, NODE_BYTES);
    }

    fn translation(&self, node: NodeRef, level: u8, index: usize, e: u64) -> Translation<Out> {
        Translation {
            frame: Frame {
                base: Out::new(pte::frame(e)),
            },
            size: PageSize::ALL[usize::from(level) - 1],
            flags: pte::flags(e),
            leaf: Out::new(node.base() + 8 * index as u64),
        }
    }

    /// The translation of `va`. Calls `read` with the address of each entry on the way.
    #[inline(always)]
    fn descend(&self, va: u64, mut read: impl FnMut(Out)) -> Option<Translation<Out>> {
        if self.extend(va) != va {
            return None;
        }
        let mut node = self.root?;
        let mut level = self.levels;
        loop {
            let index = Self::index(va, level);
            let e = self.entry(node, level, index);
            read(Out::new(node.base() + 8 * index as u64));
            if e == 0 {
                return None;
            }
            if level == 1 || e & pte::HUGE != 0 {
                return Some(self.translation(node, level, index, e));
            }
            node = self.child(node, index);
            level -= 1;
        }
    }

    /// Node, level and index of the leaf entry that maps exactly `page`.
    fn locate(&self, page: Page<In>) -> Option<(NodeRef, u8, usize)> {
        let va = page.base.raw();
        let leaf_level = 1 + page.size.index() as u8;
        if self.extend(va) != va {
            return None;
        }
        let mut node = self.root?;
        for level in (leaf_level..=self.levels).rev() {
            let index = Self::index(va, level);
            let e = self.entry(node, level, index);
            if e == 0 {
                return None;
            }
            if level == leaf_level {
                return (level == 1 || e & pte::HUGE != 0).then_some((node, level, index));
            }
            if e & pte::HUGE != 0 {
                return None;
            }
            node = self.child(node, index);
        }
        None
    }

    fn visit(
        &self,
        node: NodeRef,
        level: u8,
        base: u64,
        f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags),
    ) {
        for index in 0..ENTRIES {
            let e = self.entry(node, level, index);
            if e == 0 {
                continue;
            }
            let va = base | (index as u64) << Self::shift(level);
            if level == 1 || e & pte::HUGE != 0 {
                let t = self.translation(node, level, index, e);
                let base = In::new(self.extend(va));
                f(Page { base, size: t.size }, t.frame, t.flags);
            } else {
                self.visit(self.child(node, index), level - 1, va, f);
            }
        }
    }

    fn free_frames(&self, node: NodeRef, level: u8, frames: &mut dyn FrameSource<Out>) {
        if level > 1 {
            for index in 0..ENTRIES {
                let e = self.entry(node, level, index);
                if e != 0 && e & pte::HUGE == 0 {
                    self.free_frames(self.child(node, index), level - 1, frames);
                }
            }
        }
        let base = Out::new(node.base());
        frames.free(Frame { base }, NODE_BYTES);
    }
}

/// Registers of a walk: the node whose entry is being read, and its level.
const NODE: usize = 0;
const LEVEL: usize = 1;

impl<In: Addr, Out: Addr> Radix<In, Out> {
    /// The first read, at the level where the walk-cache lookup lets the walk start. Not
    /// inlined: otherwise all other reads would save and restore its registers.
    #[inline(never)]
    fn begin(&self, va: u64, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let low = va & ((1 << self.bits) - 1);
        let Some(root) = self.root else {
            return Next::Fault;
        };
        if self.extend(va) != va {
            return Next::Fault;
        }
        // All arrays are looked up, as hardware does in parallel, so the contents of one
        // array do not depend on hits in the others.
        let mut start = (root, self.levels);
        for level in (1..self.levels).rev() {
            let key = low >> Self::shift(level + 1);
            if let Some(node) = caches.lookup(usize::from(level) - 1, key) {
                start = (NodeRef(node), level);
            }
        }
        self.read(va, start.0, start.1, state)
    }

    #[inline]
    fn read(&self, va: u64, node: NodeRef, level: u8, state: &mut WalkState) -> Next<Out> {
        // The host needs this entry when the simulated read returns, so prefetch it now.
        let index = Self::index(va, level);
        if level == 1 {
            prefetch(&self.leaves.node(node.slot())[index]);
        } else {
            let n = &self.uppers[node.slot()];
            prefetch(&n.entry[index]);
            prefetch(&n.child[index]);
        }
        state.regs[NODE] = node.0;
        state.regs[LEVEL] = u64::from(level);
        state.step += 1;
        Next::One {
            at: Out::new(node.base() + 8 * index as u64),
            level,
        }
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Radix<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let va = va.raw();
        if state.step == 0 {
            return self.begin(va, state, caches);
        }
        let node = NodeRef(state.regs[NODE]);
        let level = state.regs[LEVEL] as u8;
        let index = Self::index(va, level);
        let e = self.entry(node, level, index);
        if e == 0 {
            return Next::Fault;
        }
        if level == 1 || e & pte::HUGE != 0 {
            return Next::Done(self.translation(node, level, index, e));
        }
        let child = self.child(node, index);
        let low = va & ((1 << self.bits) - 1);
        caches.fill(usize::from(level) - 2, low >> Self::shift(level), child.0);
        self.read(va, child, level - 1, state)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        self.descend(va.raw(), |_| {})
    }

    fn is_tree(&self) -> bool {
        true
    }

    fn path(&self, va: In, path: &mut Path<Out>) -> Option<Translation<Out>> {
        path.begin(self.levels);
        self.descend(va.raw(), |at| path.go_on(at))
    }

    fn host_prefetch(&self, va: In) -> bool {
        let va = va.raw();
        let Some(mut node) = self.root else {
            return false;
        };
        for level in (2..=self.levels).rev() {
            let index = Self::index(va, level);
            let e = self.entry(node, level, index);
            if e == 0 || e & pte::HUGE != 0 {
                return e != 0;
            }
            node = self.child(node, index);
        }
        prefetch(&self.leaves.node(node.slot())[Self::index(va, 1)]);
        true
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for Radix<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        let va = page.base.raw();
        let leaf_level = 1 + page.size.index() as u8;
        debug_assert_eq!(self.extend(va), va, "the address is canonical");

        // The deepest existing node, and the highest level without one.
        let mut parent = None;
        let mut missing = self.levels;
        let mut next = self.root;
        while let Some(node) = next {
            let level = missing;
            missing -= 1;
            parent = Some((node, level));
            let e = self.entry(node, level, Self::index(va, level));
            if level == leaf_level {
                if e != 0 {
                    return Err(MapError::Occupied);
                }
                break;
            }
            if e & pte::HUGE != 0 {
                return Err(MapError::Occupied);
            }
            next = (e != 0).then(|| self.child(node, Self::index(va, level)));
        }

        // Allocate all frames first, so that a failed allocation changes nothing.
        let mut fresh = ArrayVec::<(u8, Frame<Out>), MOST_LEVELS>::new();
        for level in (leaf_level..=missing).rev() {
            let reach = 1u64 << Self::shift(level + 1);
            let want = Want {
                bytes: NODE_BYTES,
                asid: self.asid,
                purpose: Purpose::Node {
                    level,
                    vpn: (va & !(reach - 1)) >> 12,
                },
            };
            match frames.alloc(want) {
                Ok(frame) => fresh.push((level, frame)),
                Err(refusal) => {
                    for (_, frame) in fresh.into_iter().rev() {
                        frames.free(frame, NODE_BYTES);
                    }
                    return Err(refusal.into());
                }
            }
        }

        let allocated = NODE_BYTES * fresh.len() as u64;
        for (level, frame) in fresh {
            let base = frame.base.raw();
            let node = self.add_node(level, base);
            match parent {
                None => self.root = Some(node),
                Some((above, above_level)) => {
                    let index = Self::index(va, above_level);
                    let n = &mut self.uppers[above.slot()];
                    n.entry[index] = pte::node(base);
                    n.child[index] = node.slot() as u32;
                    n.live += 1;
                }
            }
            parent = Some((node, level));
        }
        let (node, level) = parent.expect("the walk down ends at a node");
        debug_assert_eq!(level, leaf_level);
        let e = pte::leaf(frame.base.raw(), flags, level > 1);
        self.set_entry(node, level, Self::index(va, level), e);
        *self.live_mut(node, level) += 1;
        Ok(MapWork {
            allocated,
            largest: if allocated > 0 { NODE_BYTES } else { 0 },
            ..MapWork::default()
        })
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let (node, level, index) = self.locate(page)?;
        let found = self.translation(node, level, index, self.entry(node, level, index));
        let va = page.base.raw();
        let mut work = MapWork::default();

        // Walk upwards while nodes become empty.
        let mut path = ArrayVec::<NodeRef, MOST_LEVELS>::new();
        path.push(self.root?);
        for l in (level + 1..=self.levels).rev() {
            let above = path[path.len() - 1];
            path.push(self.child(above, Self::index(va, l)));
        }
        let mut level = level;
        while let Some(node) = path.pop() {
            self.set_entry(node, level, Self::index(va, level), 0);
            let live = self.live_mut(node, level);
            *live -= 1;
            if *live > 0 {
                break;
            }
            self.remove_node(node, level, frames);
            work.freed += NODE_BYTES;
            if level == self.levels {
                self.root = None;
            }
            level += 1;
        }
        Some((found.frame, found.flags, work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let Some((node, level, index)) = self.locate(page) else {
            return false;
        };
        let frame = pte::frame(self.entry(node, level, index));
        self.set_entry(node, level, index, pte::leaf(frame, flags, level > 1));
        true
    }

    fn registers(&self) -> u32 {
        0
    }

    fn bytes(&self) -> u64 {
        self.nodes * NODE_BYTES
    }

    fn largest_contiguous(&self) -> u64 {
        self.largest
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        let Some(root) = self.root else { return };
        // Ascending order as unsigned numbers: the lower half of the address space first.
        self.visit(root, self.levels, 0, f);
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        if let Some(root) = self.root.take() {
            self.free_frames(root, self.levels, frames);
        }
        self.leaves = Leaves::default();
        self.uppers = Vec::new();
        self.free_uppers = Vec::new();
        self.nodes = 0;
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
