//! Redundant memory mappings (Karakostas et al., ISCA 2015): a radix page table and, beside it, a
//! range table with the same translations.
//!
//! A range is a run of pages of equal rights in consecutive frames, longer than 4 KB and as long as
//! possible. The range table is redundant: a range for which it gets no frame stays out of it, and
//! its pages are translated by the page table alone.

mod tree;

use std::marker::PhantomData;

use pagewalk_stats::Tree as Statistics;
use pagewalk_units::{Addr, Asid, Error, Frame, Page, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::tree::{NodeFrames, Tree};
use crate::contract::{
    Flags, FrameSource, MapError, MapWork, MappedRange, Next, PageTable, Path, Purpose,
    Translation, Walk, WalkState, Want,
};
use crate::owner::Owner;
use crate::radix::Radix;
use crate::registry::{BuildTable, TableSpec};
use crate::walk_cache::{WalkCacheKind, WalkCaches};

/// The x86-64 radix tree with a range table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RangesSpec {
    /// Bits of a virtual address: 48 (a radix tree of 4 levels) or 57 (5 levels). Default 48.
    pub address_bits: u32,
}

impl Default for RangesSpec {
    fn default() -> Self {
        RangesSpec { address_bits: 48 }
    }
}

impl TableSpec for RangesSpec {
    fn check(&self) -> Result<(), Error> {
        match self.address_bits {
            48 | 57 => Ok(()),
            bits => Err(Error::key(
                "address_bits",
                format!("is {bits}; expected 48 or 57"),
            )),
        }
    }
    fn walk_caches(&self) -> WalkCacheKind {
        WalkCacheKind::Levels
    }
    fn address_bits(&self) -> u32 {
        self.address_bits
    }
}

impl BuildTable for RangesSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        let levels = if self.address_bits == 57 { 5 } else { 4 };
        Box::new(Ranges {
            pages: Radix::new(levels, owner.asid),
            asid: owner.asid,
            tree: Tree::default(),
            spare: Vec::new(),
            nodes: 0,
            left_out: 0,
            addresses: PhantomData,
        })
    }
}

pagewalk_stats::counters! {
    /// Statistics of range tables.
    pub struct RangeTableStats {
        gauge ranges: "ranges", "Ranges in the range table";
        gauge range_bytes: "bytes", "Physical memory of the range table";
        left_out: "ranges", "Ranges that stayed out of the range table, since no frame for a node was free";
    }
}

/// Bytes of a node, and of the smallest page.
const NODE_BYTES: u64 = 4096;

/// A range: first and last address, physical address of the first, and rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    first: u64,
    last: u64,
    at: u64,
    writable: bool,
}

impl Range {
    /// The range of one page.
    fn page(base: u64, size: PageSize, frame: u64, flags: Flags) -> Self {
        Range {
            first: base,
            last: base + (size.bytes() - 1),
            at: frame,
            writable: flags.contains(Flags::WRITABLE),
        }
    }

    /// True if `next` continues this range in addresses, frames and rights.
    fn continues_in(&self, next: &Range) -> bool {
        self.last != u64::MAX
            && self.last + 1 == next.first
            && self.at + (next.first - self.first) == next.at
            && self.writable == next.writable
    }

    fn is_long(&self) -> bool {
        self.last - self.first >= NODE_BYTES
    }
}

/// A radix table and a range table.
struct Ranges<In, Out> {
    pages: Radix<In, Out>,
    asid: Asid,
    tree: Tree,
    /// Frames for nodes. One is kept beside a table with ranges, because a change of rights can take
    /// none from the kernel.
    spare: Vec<u64>,
    /// Frames of the range table, spare ones included.
    nodes: u64,
    left_out: u64,
    addresses: PhantomData<fn(In) -> Out>,
}

/// Frames for nodes during one change: spare ones first, then those of the kernel, if it gives any.
struct Pool<'a, Out> {
    asid: Asid,
    spare: Vec<u64>,
    frames: Option<&'a mut dyn FrameSource<Out>>,
    allocated: u64,
    freed: u64,
}

impl<Out: Addr> Pool<'_, Out> {
    fn allocate(&mut self) -> Option<u64> {
        let want = Want {
            bytes: NODE_BYTES,
            asid: self.asid,
            purpose: Purpose::Way,
        };
        let frame = self.frames.as_mut()?.alloc(want).ok()?;
        self.allocated += NODE_BYTES;
        Some(frame.base.raw())
    }

    fn free(&mut self, base: u64) {
        if let Some(frames) = &mut self.frames {
            let base = Out::new(base);
            frames.free(Frame { base }, NODE_BYTES);
            self.freed += NODE_BYTES;
        } else {
            self.spare.push(base);
        }
    }
}

impl<Out: Addr> NodeFrames for Pool<'_, Out> {
    fn take(&mut self) -> Option<u64> {
        self.spare.pop().or_else(|| self.allocate())
    }
    fn give(&mut self, base: u64) {
        self.free(base);
    }
}

/// A change of one page.
struct Change {
    /// The page as a range, before and after; one of them at least.
    before: Option<Range>,
    after: Option<Range>,
}

impl<In: Addr, Out: Addr> Ranges<In, Out> {
    /// The range that contains `va`: one of the range table, or the page alone.
    fn around(&self, va: u64) -> Option<Range> {
        self.tree.find(va, &mut |_| {}).or_else(|| {
            let page = self.pages.translate(In::new(va))?;
            let base = va & !(page.size.bytes() - 1);
            Some(Range::page(
                base,
                page.size,
                page.frame.base.raw(),
                page.flags,
            ))
        })
    }

    /// Brings the range table in step with the page table, after `change`. `frames`: the kernel's, if
    /// it gives any. Adds the work to `work`.
    fn follow(
        &mut self,
        change: &Change,
        frames: Option<&mut dyn FrameSource<Out>>,
        work: &mut MapWork,
    ) {
        let mut pool = Pool {
            asid: self.asid,
            spare: std::mem::take(&mut self.spare),
            frames,
            allocated: 0,
            freed: 0,
        };
        self.tree.moved = 0;
        if let Some(page) = &change.before {
            self.cut(page, &mut pool);
        }
        if let Some(page) = change.after {
            self.join(page, &mut pool);
        }
        if pool.frames.is_some() {
            let kept = usize::from(self.tree.ranges > 0);
            while pool.spare.len() > kept {
                let base = pool.spare.pop().expect("more than are kept");
                pool.free(base);
            }
            if pool.spare.len() < kept
                && let Some(base) = pool.allocate()
            {
                pool.spare.push(base);
            }
        }
        let Pool {
            spare,
            allocated,
            freed,
            ..
        } = pool;
        self.nodes = self.nodes + allocated / NODE_BYTES - freed / NODE_BYTES;
        self.spare = spare;
        work.moved += self.tree.moved;
        work.allocated += allocated;
        work.freed += freed;
        if allocated > 0 {
            work.largest = work.largest.max(NODE_BYTES);
        }
    }

    /// Puts a range into the range table, if it is long enough and there is a frame.
    fn put(&mut self, range: Range, pool: &mut Pool<'_, Out>) {
        if range.is_long() && self.tree.put(range, pool).is_err() {
            self.left_out += 1;
        }
    }

    /// Takes `page` out of its range, which falls into two.
    fn cut(&mut self, page: &Range, pool: &mut Pool<'_, Out>) {
        let Some(range) = self.tree.find(page.first, &mut |_| {}) else {
            return;
        };
        let below = Range {
            last: page.first.wrapping_sub(1),
            ..range
        };
        if range.first < page.first && below.is_long() {
            self.put(below, pool);
        } else {
            self.tree.remove(range.first, pool);
        }
        if page.last < range.last {
            let first = page.last + 1;
            let at = range.at + (first - range.first);
            self.put(Range { first, at, ..range }, pool);
        }
    }

    /// Joins `page` with the ranges that it continues.
    fn join(&mut self, page: Range, pool: &mut Pool<'_, Out>) {
        let mut range = page;
        let below = page.first.checked_sub(1).and_then(|va| self.around(va));
        if let Some(below) = below.filter(|below| below.continues_in(&page)) {
            (range.first, range.at) = (below.first, below.at);
        }
        let above = page.last.checked_add(1).and_then(|va| self.around(va));
        if let Some(above) = above.filter(|above| range.continues_in(above)) {
            range.last = above.last;
            if above.is_long() {
                self.tree.remove(above.first, pool);
            }
        }
        self.put(range, pool);
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Ranges<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        self.pages.next(va, state, caches)
    }
    fn translate(&self, va: In) -> Option<Translation<Out>> {
        self.pages.translate(va)
    }
    fn is_tree(&self) -> bool {
        true
    }
    fn path(&self, va: In, path: &mut Path<Out>) -> Option<Translation<Out>> {
        self.pages.path(va, path)
    }
    fn host_prefetch(&self, va: In) -> bool {
        self.pages.host_prefetch(va)
    }
    fn range(&self, va: In, reads: &mut Vec<Out>) -> Option<MappedRange<In, Out>> {
        let range = self
            .tree
            .find(va.raw(), &mut |line| reads.push(Out::new(line)))?;
        Some(MappedRange {
            first: In::new(range.first),
            last: In::new(range.last),
            at: Out::new(range.at),
            writable: range.writable,
        })
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for Ranges<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        let mut work = self.pages.map(page, frame, flags, frames)?;
        let after = Range::page(page.base.raw(), page.size, frame.base.raw(), flags);
        let change = Change {
            before: None,
            after: Some(after),
        };
        self.follow(&change, Some(frames), &mut work);
        Ok(work)
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let (frame, flags, mut work) = self.pages.unmap(page, frames)?;
        let before = Range::page(page.base.raw(), page.size, frame.base.raw(), flags);
        let change = Change {
            before: Some(before),
            after: None,
        };
        self.follow(&change, Some(frames), &mut work);
        Some((frame, flags, work))
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        let old = self.pages.translate(page.base);
        if !self.pages.set_flags(page, flags) {
            return false;
        }
        let old = old.expect("a page that is mapped");
        let of = |flags| Range::page(page.base.raw(), page.size, old.frame.base.raw(), flags);
        let (before, after) = (of(old.flags), of(flags));
        if before != after {
            let change = Change {
                before: Some(before),
                after: Some(after),
            };
            // The kernel prices no work of this change.
            self.follow(&change, None, &mut MapWork::default());
        }
        true
    }

    /// The root of the range table.
    fn registers(&self) -> u32 {
        1
    }

    fn bytes(&self) -> u64 {
        self.pages.bytes() + self.nodes * NODE_BYTES
    }

    fn largest_contiguous(&self) -> u64 {
        self.pages.largest_contiguous()
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        self.pages.for_each(f);
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        self.pages.release(frames);
        let mut pool = Pool {
            asid: self.asid,
            spare: Vec::new(),
            frames: Some(frames),
            allocated: 0,
            freed: 0,
        };
        self.tree.release(&mut pool);
        std::mem::take(&mut self.spare)
            .into_iter()
            .for_each(|base| pool.free(base));
        self.nodes = 0;
    }

    fn report(&self, path: &str, tree: &mut Statistics) {
        let stats = RangeTableStats {
            ranges: self.tree.ranges,
            range_bytes: self.nodes * NODE_BYTES,
            left_out: self.left_out,
        };
        tree.add(path, &stats);
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}
