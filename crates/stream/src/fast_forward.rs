//! Fast-forwarding in a program: it counts its ops, and records the first touch of each page.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pagewalk_units::Access;
use rustc_hash::FxHashMap;

use crate::{Batch, Data, Event, Op, OpClass, RecentLineFilter, Skipped, flags};

/// The grant that remains to a program, shared by its threads.
#[derive(Default)]
pub struct FastForwardBudget {
    instructions: AtomicU64,
    requests: AtomicU64,
    /// The grant is for filtered warming, not for fast-forwarding.
    filtered_warming: AtomicBool,
    /// Number of changes of the address space after which pages may be touched for the first time again.
    changes: AtomicU64,
}

impl FastForwardBudget {
    /// Grants fast-forwarding: only touched pages are needed.
    pub fn grant_fast_forward(&self, instructions: u64, requests: u64) {
        self.filtered_warming.store(false, Relaxed);
        self.set(instructions, requests);
    }

    /// Grants filtered warming: accesses that [`RecentLineFilter`] lets through are needed.
    pub fn grant_filtered_warming(&self, instructions: u64, requests: u64) {
        self.filtered_warming.store(true, Relaxed);
        self.set(instructions, requests);
    }

    fn set(&self, instructions: u64, requests: u64) {
        // The limit leaves room above for a thread's own "unknown" value.
        self.instructions.store(instructions.min(1 << 62), Relaxed);
        self.requests.store(requests, Relaxed);
    }

    /// Instructions and requests that remain.
    pub fn remaining(&self) -> (u64, u64) {
        (self.instructions.load(Relaxed), self.requests.load(Relaxed))
    }

    /// Subtracts `skipped` from the grant.
    pub fn spend(&self, skipped: &Skipped) {
        let (instructions, requests) = self.remaining();
        self.set(
            instructions.saturating_sub(skipped.instructions),
            requests.saturating_sub(skipped.requests),
        );
    }
}

/// Slots of the direct-mapped lookup of blocks.
const NEAR: usize = 8192;
/// Longest full ranges that a caller can test without a lookup.
const LONGEST: usize = 3;
/// Index of a block whose pages are all touched, in place of an index of `bits`.
const ALL: u32 = u32::MAX;

/// Pages touched, in blocks of 512.
struct Pages {
    blocks: FxHashMap<u64, u32>,
    /// Ranges of blocks whose pages are all touched: from the first block to past the last. Ranges, because a program
    /// may populate more blocks than could be listed one by one. `blocks` may lack pages of a block in here.
    full: BTreeMap<u64, u64>,
    /// Bitmaps of pages read and of pages written.
    bits: Vec<[[u64; 8]; 2]>,
    /// Direct-mapped lookup: a block, and the index of its bitmaps.
    near: Box<[(u64, u32); NEAR]>,
    /// The longest ranges of `full`, longest first. `full` may hold longer ones.
    longest: [Range<u64>; LONGEST],
}

impl Default for Pages {
    fn default() -> Self {
        Pages {
            blocks: FxHashMap::default(),
            full: BTreeMap::new(),
            bits: Vec::new(),
            near: Box::new([(u64::MAX, 0); NEAR]),
            longest: Default::default(),
        }
    }
}

impl Pages {
    fn clear(&mut self) {
        self.blocks.clear();
        self.full.clear();
        self.bits.clear();
        self.near.fill((u64::MAX, 0));
        self.longest = Default::default();
    }

    fn is_full(&self, block: u64) -> bool {
        let before = self.full.range(..=block).next_back();
        before.is_some_and(|(_, end)| block < *end)
    }

    #[inline(never)]
    fn look_up(&mut self, block: u64) -> u32 {
        let at = if self.is_full(block) {
            ALL
        } else {
            let next = self.bits.len() as u32;
            let at = *self.blocks.entry(block).or_insert(next);
            if at == next {
                self.bits.push([[0; 8]; 2]);
            }
            at
        };
        self.near[block as usize % NEAR] = (block, at);
        at
    }

    /// True if this is the first access of this kind to `page`. A write counts as a read, too.
    #[inline(always)]
    fn is_new(&mut self, page: u64, write: bool) -> bool {
        let block = page >> 9;
        let slot = block as usize % NEAR;
        if self.near[slot].0 != block {
            self.look_up(block);
        }
        let near = &self.near[slot];
        if near.1 == ALL {
            return false;
        }
        let [read, written] = &mut self.bits[near.1 as usize];
        let (word, bit) = ((page >> 6 & 7) as usize, 1 << (page & 63));
        let seen = if write { written[word] } else { read[word] };
        if seen & bit != 0 {
            return false;
        }
        read[word] |= bit;
        if write {
            written[word] |= bit;
            if written[word] == u64::MAX && *written == [u64::MAX; 8] {
                self.add_full(block..block + 1);
            }
        }
        true
    }

    /// True if the page of `at` was written, so that an access of either kind touches nothing new. False also if
    /// another block has replaced this one in `near`.
    fn is_written(&self, at: u64) -> bool {
        let (page, block) = (at >> 12, at >> 21);
        let near = &self.near[block as usize % NEAR];
        let bit = |bits: &[[u64; 8]; 2]| bits[1][(page >> 6 & 7) as usize] >> (page & 63) & 1 != 0;
        near.0 == block && (near.1 == ALL || bit(&self.bits[near.1 as usize]))
    }

    /// True if all `pages` were touched in this way.
    fn holds_all(&self, pages: Range<u64>, write: bool) -> bool {
        let mut page = pages.start;
        while page < pages.end {
            let block = page >> 9;
            if let Some((_, end)) = self.full.range(..=block).next_back()
                && block < *end
            {
                page = end << 9;
                continue;
            }
            let Some(at) = self.blocks.get(&block) else {
                return false;
            };
            let words = &self.bits[*at as usize][usize::from(write)];
            let end = pages.end.min((block + 1) << 9);
            while page < end {
                let next = end.min((page | 63) + 1);
                let wanted = u64::MAX >> (64 - (next - page)) << (page & 63);
                if words[(page >> 6 & 7) as usize] & wanted != wanted {
                    return false;
                }
                page = next;
            }
        }
        true
    }

    /// Marks all `pages` as read and written.
    fn add(&mut self, pages: Range<u64>) {
        let whole = pages.start.div_ceil(512)..pages.end >> 9;
        if whole.is_empty() {
            return self.add_some(pages);
        }
        self.add_some(pages.start..whole.start << 9);
        self.add_some(whole.end << 9..pages.end);
        self.add_full(whole);
    }

    /// Marks `pages`, which lie in one block or two, as read and written.
    fn add_some(&mut self, pages: Range<u64>) {
        for page in pages {
            let at = self.look_up(page >> 9);
            if at != ALL {
                for kind in &mut self.bits[at as usize] {
                    kind[(page >> 6 & 7) as usize] |= 1 << (page & 63);
                }
                if self.bits[at as usize][1] == [u64::MAX; 8] {
                    self.add_full(page >> 9..(page >> 9) + 1);
                }
            }
        }
    }

    /// Marks all pages of `blocks` as touched.
    fn add_full(&mut self, mut blocks: Range<u64>) {
        let added = blocks.clone();
        // Overlapping and adjacent ranges are merged.
        while let Some((&start, &end)) = self.full.range(..=blocks.end).next_back()
            && end >= blocks.start
        {
            self.full.remove(&start);
            blocks = blocks.start.min(start)..blocks.end.max(end);
        }
        self.full.insert(blocks.start, blocks.end);
        let length = |range: &Range<u64>| range.end - range.start;
        let last = LONGEST - 1;
        let at = (self.longest.iter())
            .position(|range| blocks.start <= range.start && range.end <= blocks.end)
            .unwrap_or(last);
        if length(&blocks) > length(&self.longest[at]) {
            self.longest[at] = blocks;
            self.longest.sort_by_key(|range| Reverse(length(range)));
        }
        if added.end - added.start < NEAR as u64 {
            for block in added {
                self.near[block as usize % NEAR] = (block, ALL);
            }
        } else {
            self.near.fill((u64::MAX, 0));
        }
    }

    /// True if any of `pages` was touched.
    fn holds_any(&self, pages: Range<u64>) -> bool {
        let page = |block: u64, bit: usize| (block << 9) + bit as u64;
        let full = self.full.range(..pages.end.div_ceil(512)).next_back();
        if full.is_some_and(|(_, end)| pages.start < end << 9) {
            return true;
        }
        self.blocks.iter().any(|(&block, &at)| {
            let near = pages.start < page(block, 512) && page(block, 0) < pages.end;
            let [read, _] = &self.bits[at as usize];
            let touched = |bit: &usize| read[bit >> 6] >> (bit & 63) & 1 != 0;
            near && (0..512)
                .filter(touched)
                .any(|bit| pages.contains(&page(block, bit)))
        })
    }
}

/// Summarises skipped ops as [`Skipped`]. See the module.
#[derive(Default)]
pub struct TouchSummary {
    /// Counts and touches since the caller last took them.
    pub skipped: Skipped,
    pages: Pages,
    /// Number of the page that was executed last, plus one.
    code: u64,
}

impl TouchSummary {
    /// Records the pages touched by an op at `pc` that accesses `data`, without counting the op.
    #[inline(always)]
    pub fn look(&mut self, pc: u64, data: Option<Data>) {
        self.fetch(pc);
        if let Some(Data { at, size, access }) = data {
            self.access(at, size, access);
        }
    }

    /// Skips `ops` and counts them, with their requests. Returns true if one is a query.
    pub fn skip_all(&mut self, ops: &[Op]) -> bool {
        let (mut instructions, mut all) = (0, 0);
        let mut requests = 0;
        // Pages read and written last: most accesses go to these.
        let mut last = [u64::MAX; 2];
        for op in ops {
            instructions += u64::from(op.insns);
            requests += u64::from(op.flags & flags::REQUEST != 0);
            self.fetch(op.pc);
            all |= 1 << op.kind as u8;
            let (write, access) = match op.kind {
                OpClass::Load => (0, Access::Read),
                OpClass::Store => (1, Access::Write),
                OpClass::Compute
                | OpClass::Branch
                | OpClass::Query
                | OpClass::Prefetch
                | OpClass::Flush => continue,
            };
            let end = op.va.wrapping_add(u64::from(op.size.max(1)) - 1);
            if op.va >> 12 == last[write] && end >> 12 == last[write] {
                continue;
            }
            last[write] = op.va >> 12;
            self.access(op.va, op.size, access);
        }
        self.skipped.ops += ops.len() as u64;
        self.skipped.instructions += instructions;
        self.skipped.requests += requests;
        all & 1 << OpClass::Query as u8 != 0
    }

    /// Records an instruction fetch at `pc`.
    #[inline(always)]
    pub fn fetch(&mut self, pc: u64) {
        if (pc >> 12) + 1 != self.code {
            self.code = (pc >> 12) + 1;
            self.touch(pc, Access::Fetch);
        }
    }

    /// Records an access to `size` bytes at `at`.
    #[inline(always)]
    pub fn access(&mut self, at: u64, size: u8, access: Access) {
        self.touch(at, access);
        let last = at.wrapping_add(u64::from(size.max(1)) - 1);
        if last >> 12 != at >> 12 {
            self.touch(last, access);
        }
    }

    #[inline(always)]
    fn touch(&mut self, at: u64, access: Access) {
        if self.pages.is_new(at >> 12, access == Access::Write) {
            self.skipped.touched.push((at, access));
        }
    }

    /// Applies a change of the address space. Returns true if all pages count as untouched from now on, because
    /// accesses may fault again.
    pub fn change(&mut self, event: &Event) -> bool {
        let takes_away = match event {
            Event::Unmap { .. }
            | Event::Remap { .. }
            | Event::Protect { .. }
            | Event::Advise { .. }
            | Event::PunchHole { .. }
            | Event::Truncate { .. }
            | Event::DisableHugePages { .. }
            | Event::Fork { .. }
            | Event::Exec
            | Event::ProcessExit { .. } => true,
            // A new mapping unmaps the old one in its range.
            Event::Map { at, bytes, .. } | Event::Mmap { at, bytes, .. } => {
                let end = at.0.saturating_add(*bytes).div_ceil(4096);
                self.pages.holds_any(at.0 >> 12..end)
            }
            Event::Populate { at, bytes } => {
                let end = at.0.saturating_add(*bytes).div_ceil(4096);
                self.pages.add(at.0 >> 12..end);
                false
            }
            Event::KernelTouch { .. }
            | Event::KernelPopulate { .. }
            | Event::Spawn { .. }
            | Event::Unseen(_)
            | Event::Died(_)
            | Event::RoiBegin
            | Event::RoiEnd => false,
        };
        if takes_away {
            self.forget();
        }
        takes_away
    }

    fn forget(&mut self) {
        self.pages.clear();
        self.code = 0;
    }
}

/// Fast-forwarding of one thread.
pub struct ThreadFastForward {
    budget: Arc<FastForwardBudget>,
    /// Requests that may be skipped in this turn.
    requests: u64,
    /// Counts and touches of this turn, and the pages touched so far.
    pub summary: TouchSummary,
    /// Lines used recently; only for filtered warming.
    recent_lines: RecentLineFilter,
    filtered_warming: bool,
    /// Changes of the address space up to the last turn of this thread.
    changes: u64,
}

impl ThreadFastForward {
    /// A thread of the program that `budget` belongs to.
    pub fn new(budget: Arc<FastForwardBudget>) -> Self {
        ThreadFastForward {
            budget,
            requests: 0,
            summary: TouchSummary::default(),
            recent_lines: RecentLineFilter::default(),
            filtered_warming: false,
            changes: 0,
        }
    }

    /// Begins a turn. Returns the number of instructions that may be skipped in it.
    pub fn begin(&mut self) -> u64 {
        self.requests = self.budget.requests.load(Relaxed);
        let changes = self.budget.changes.load(Relaxed);
        if self.changes != changes {
            self.changes = changes;
            self.summary.forget();
        }
        let filtered_warming = self.budget.filtered_warming.load(Relaxed);
        if self.filtered_warming != filtered_warming {
            self.filtered_warming = filtered_warming;
            self.recent_lines.forget();
        }
        match self.requests {
            0 => 0,
            _ => self.budget.instructions.load(Relaxed),
        }
    }

    /// Ends the turn with `left` instructions of the grant unused.
    pub fn end(&mut self, left: u64) {
        self.budget.instructions.store(left, Relaxed);
        self.budget.requests.store(self.requests, Relaxed);
        if left == 0 || self.requests == 0 {
            // The next grant may begin elsewhere in the stream.
            self.recent_lines.forget();
        }
    }

    /// Skips `op`, but for [`request`](Self::request).
    #[inline(always)]
    pub fn skip(&mut self, op: &Op) {
        self.count(1, u64::from(op.insns));
        self.look(op.pc, Data::of(op));
    }

    /// Counts skipped ops and their instructions.
    #[inline(always)]
    pub fn count(&mut self, ops: u64, instructions: u64) {
        let skipped = &mut self.summary.skipped;
        skipped.ops += ops;
        skipped.instructions += instructions;
    }

    /// Records the touches of an op at `pc` that accesses `data`; the caller also [`count`](Self::count)s it.
    #[inline(always)]
    pub fn look(&mut self, pc: u64, data: Option<Data>) {
        if !self.filtered_warming {
            return self.summary.look(pc, data);
        }
        let touched = &mut self.summary.skipped.touched;
        self.recent_lines
            .look(pc, data, |at, access| touched.push((at, access)));
    }

    /// True if the turn is filtered warming, so that every access goes through [`look`](Self::look).
    #[inline(always)]
    pub fn warms_filtered(&self) -> bool {
        self.filtered_warming
    }

    /// Lines used recently; only for filtered warming.
    #[inline(always)]
    pub fn recent_lines(&self) -> &RecentLineFilter {
        &self.recent_lines
    }

    /// Address ranges where accesses touch nothing new until the turn ends: the longest full ranges. Also true if the
    /// page of `at`, the last access, was written.
    pub fn known(&self, at: u64) -> ([Range<u64>; LONGEST], bool) {
        let pages = &self.summary.pages;
        let bytes = |blocks: &Range<u64>| blocks.start << 21..blocks.end << 21;
        (pages.longest.each_ref().map(bytes), pages.is_written(at))
    }

    /// True if all pages of `addresses` were touched in this way.
    pub fn knows(&self, addresses: Range<u64>, access: Access) -> bool {
        let pages = addresses.start >> 12..addresses.end.div_ceil(4096);
        (self.summary.pages).holds_all(pages, access == Access::Write)
    }

    /// Counts a request that ends with the last skipped op. Returns true if another may be skipped.
    pub fn request(&mut self) -> bool {
        self.summary.skipped.requests += 1;
        self.requests = self.requests.saturating_sub(1);
        self.requests > 0
    }

    /// Skips as many ops of `batch` as the grant allows. The batch is one turn of the program's only thread.
    pub fn skip_batch(&mut self, batch: &mut Batch) {
        let mut left = self.begin();
        let mut count = 0;
        for op in &batch.ops {
            if left == 0 || op.kind == OpClass::Query {
                break;
            }
            left = left.saturating_sub(u64::from(op.insns));
            self.skip(op);
            count += 1;
            if op.flags & flags::REQUEST != 0 && !self.request() {
                left = 0;
            }
        }
        batch.ops.drain(..count);
        std::mem::swap(&mut batch.skipped, &mut self.summary.skipped);
        self.summary.skipped.clear();
        self.end(left);
    }

    /// Applies a change of the address space.
    pub fn change(&mut self, event: &Event) {
        self.recent_lines.forget();
        if self.summary.change(event) {
            self.changes = self.budget.changes.fetch_add(1, Relaxed) + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pagewalk_units::{Access, VirtAddr, rng};
    use rand::RngExt;

    use super::{Event, Pages, TouchSummary};

    /// [`Pages`] agrees with a set of pages, wherever ranges begin, end and meet.
    #[test]
    fn pages_that_are_populated_were_touched() {
        let mut draw = rng(1, "passing");
        for _ in 0..50 {
            let mut pages = Pages::default();
            let (mut read, mut written) = (HashSet::new(), HashSet::new());
            for _ in 0..200 {
                let start = draw.random_range(0..20_000u64);
                let range = start..start + draw.random_range(0..1500);
                match draw.random_range(0..20) {
                    0 => {
                        pages.add(range.clone());
                        read.extend(range.clone());
                        written.extend(range);
                    }
                    1..5 if !range.is_empty() => {
                        let any = range.clone().any(|page| read.contains(&page));
                        assert_eq!(pages.holds_any(range), any);
                    }
                    5..8 => {
                        let few = start..start + draw.random_range(1..100);
                        for (write, all) in [(false, &read), (true, &written)] {
                            let each = few.clone().all(|page| all.contains(&page));
                            assert_eq!(pages.holds_all(few.clone(), write), each);
                        }
                        for mut range in pages.longest.iter().map(|r| r.start << 9..r.end << 9) {
                            assert!(range.all(|page| written.contains(&page)));
                        }
                        assert!(!pages.is_written(start << 12) || written.contains(&start));
                    }
                    n => {
                        let write = n > 12;
                        let new = if write {
                            written.insert(start)
                        } else {
                            !read.contains(&start)
                        };
                        read.insert(start);
                        assert_eq!(pages.is_new(start, write), new);
                    }
                }
            }
        }
    }

    /// A recording may contain such an event. Only a machine can refuse it, for lack of memory.
    #[test]
    fn all_of_the_address_space_is_populated_at_once() {
        let mut summary = TouchSummary::default();
        let (at, bytes) = (VirtAddr(4096), u64::MAX);
        for _ in 0..1000 {
            assert!(!summary.change(&Event::Populate { at, bytes }));
        }
        summary.access(1 << 60, 8, Access::Write);
        assert!(summary.skipped.touched.is_empty());
        summary.access(0, 8, Access::Read);
        assert_eq!(summary.skipped.touched, [(0, Access::Read)]);
    }
}
