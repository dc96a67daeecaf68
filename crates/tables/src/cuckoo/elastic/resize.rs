//! Resize decisions, and the memory of resizes.

use pagewalk_units::{Addr, Frame, PageSize};

use super::{Elastic, Env, Resize, Way};
use crate::cuckoo::l2p::{Growth, L2p, L2pFull};
use crate::cuckoo::line::Format;
use crate::cuckoo::storage::{LINE_BYTES, Storage};
use crate::{Purpose, Refusal, Want};

/// Plan for the memory of a resized way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryPlan {
    /// Reuses the memory and adds `blocks` blocks of `bytes`.
    InPlace { blocks: usize, bytes: u64 },
    /// Allocates new memory: `blocks` blocks of `bytes`.
    OutOfPlace { blocks: usize, bytes: u64 },
}

impl MemoryPlan {
    fn blocks(self) -> (usize, u64) {
        match self {
            MemoryPlan::InPlace { blocks, bytes } | MemoryPlan::OutOfPlace { blocks, bytes } => {
                (blocks, bytes)
            }
        }
    }
}

impl<F: Format, A: Addr> Elastic<F, A> {
    /// Ways with a resize in progress, a bit each.
    pub(super) fn ways_resizing(&self) -> u8 {
        let bit = |w: &Way<A>| u8::from(w.resize.is_some());
        (self.ways.iter().enumerate()).fold(0, |bits, (i, w)| bits | bit(w) << i)
    }
    fn all(&self) -> u8 {
        ((1u32 << self.ways.len()) - 1) as u8
    }

    /// True if one more line would exceed the upsize threshold.
    #[inline]
    pub(super) fn full(&self, lines: u64, slots: u64) -> bool {
        (lines + 1) as f64 > self.spec.upsize_at * slots as f64
    }
    /// Ways to upsize before the next insertion: all ways if the table is full, or
    /// each full way that is among the smallest (ME-HPT, section IV-D).
    pub(super) fn upsizes_due(&self) -> u8 {
        if !self.spec.per_way {
            let slots = self.ways.iter().map(Way::slots).sum();
            return if self.full(self.lines, slots) {
                self.all()
            } else {
                0
            };
        }
        let smallest = self.ways.iter().map(Way::slots).min();
        let due = |w: &Way<A>| Some(w.slots()) == smallest && self.full(w.lines, w.slots());
        (self.ways.iter().enumerate()).fold(0, |bits, (i, w)| bits | u8::from(due(w)) << i)
    }
    /// Ways to downsize: all ways if the table is below the threshold, or each such
    /// way that is among the largest. Never below the initial size.
    pub(super) fn downsizes_due(&self) -> u8 {
        let empty = |lines: u64, slots: u64| (lines as f64) < self.spec.downsize_at * slots as f64;
        if !self.spec.per_way {
            let slots: u64 = self.ways.iter().map(Way::slots).sum();
            let least = self.spec.initial_slots * self.ways.len() as u64;
            return if slots > least && empty(self.lines, slots) {
                self.all()
            } else {
                0
            };
        }
        let largest = self.ways.iter().map(Way::slots).max();
        let due = |w: &Way<A>| {
            Some(w.slots()) == largest
                && w.slots() > self.spec.initial_slots
                && empty(w.lines, w.slots())
        };
        (self.ways.iter().enumerate()).fold(0, |bits, (i, w)| bits | u8::from(due(w)) << i)
    }

    /// Allocates the initial memory of all ways.
    pub(super) fn start(&mut self, env: &mut Env<'_, A>) -> Result<(), Refusal> {
        let slots = self.spec.initial_slots;
        let mut ways: Vec<Way<A>> = Vec::with_capacity(usize::from(self.spec.ways));
        for i in 0..usize::from(self.spec.ways) {
            let bytes = self.chunk().unwrap_or(slots * LINE_BYTES);
            let plan = MemoryPlan::OutOfPlace {
                blocks: (slots * LINE_BYTES).div_ceil(bytes) as usize,
                bytes,
            };
            match self.acquire(i, plan, Growth::Change, env) {
                Ok(blocks) => ways.push(Way::new(self.storage(slots, bytes, blocks))),
                Err(refusal) => {
                    for (i, way) in ways.into_iter().enumerate() {
                        self.give_back(i, way.table, env);
                    }
                    return Err(refusal);
                }
            }
        }
        self.ways = ways;
        Ok(())
    }
    /// The smallest chunk size, if ways use chunks.
    fn chunk(&self) -> Option<u64> {
        self.size.and(self.spec.chunks.first().copied())
    }
    fn storage(&self, slots: u64, bytes: u64, blocks: Vec<Frame<A>>) -> Storage<A> {
        match self.size {
            Some(_) => Storage::chunked(slots, bytes, blocks),
            None => Storage::contiguous(slots, blocks[0]),
        }
    }

    /// Acquires the L2P entries and the memory of `plan`, or neither.
    fn acquire(
        &self,
        way: usize,
        plan: MemoryPlan,
        growth: Growth,
        env: &mut Env<'_, A>,
    ) -> Result<Vec<Frame<A>>, Refusal> {
        let (n, _) = plan.blocks();
        if let Some(size) = self.size
            && !env.l2p.take(way, size, n, growth)
        {
            return Err(self.l2p_full(way, size, plan, env.l2p));
        }
        let blocks = self.memory(plan, env);
        if let Some(size) = self.size
            && blocks.is_err()
        {
            env.l2p.give_back(way, size, n);
        }
        blocks
    }
    /// Allocates the memory of `plan`, all or nothing.
    fn memory(&self, plan: MemoryPlan, env: &mut Env<'_, A>) -> Result<Vec<Frame<A>>, Refusal> {
        let (n, bytes) = plan.blocks();
        let mut blocks = Vec::with_capacity(n);
        for _ in 0..n {
            let want = Want {
                bytes,
                asid: self.asid,
                purpose: Purpose::Way,
            };
            match env.frames.alloc(want) {
                Ok(block) => blocks.push(block),
                Err(refusal) => {
                    for block in blocks.into_iter().rev() {
                        env.frames.free(block, bytes);
                    }
                    return Err(refusal.into());
                }
            }
        }
        if n > 0 {
            env.work.allocated += n as u64 * bytes;
            env.work.largest = env.work.largest.max(bytes);
            env.work.registers_changed = true;
        }
        Ok(blocks)
    }
    /// Takes L2P entries for the chunks of `way`, whose old chunks have released
    /// theirs.
    pub(super) fn list(&self, way: usize, env: &mut Env<'_, A>) {
        let size = self.size.expect("only ways in chunks go without");
        let n = self.ways[way].table.blocks();
        let taken = env.l2p.take(way, size, n, Growth::Change);
        debug_assert!(taken, "there was room without the old chunks");
    }
    fn l2p_full(&self, way: usize, size: PageSize, plan: MemoryPlan, l2p: &L2p) -> Refusal {
        let (n, bytes) = plan.blocks();
        Refusal::from(L2pFull {
            way: way as u8,
            size,
            used: l2p.used_by(way, size),
            most: l2p.most(way, size),
            wanted: n as u32,
            chunk: bytes,
        })
    }
    /// Frees memory of `way` and releases its L2P entries.
    pub(super) fn give_back(&self, way: usize, table: Storage<A>, env: &mut Env<'_, A>) {
        let (blocks, bytes) = table.free(env.frames);
        self.release_entries(way, blocks, bytes, env);
    }
    /// Counts freed memory of `way` and releases its L2P entries.
    pub(super) fn release_entries(
        &self,
        way: usize,
        blocks: usize,
        bytes: u64,
        env: &mut Env<'_, A>,
    ) {
        env.work.freed += bytes;
        env.work.registers_changed |= blocks > 0;
        if let Some(size) = self.size {
            env.l2p.give_back(way, size, blocks);
        }
    }

    /// The possible plans to resize `way` to `slots`, best first, each with its kind
    /// of L2P growth.
    fn plans(&self, way: usize, slots: u64) -> Vec<(MemoryPlan, Growth)> {
        let w = &self.ways[way];
        let bytes = slots * LINE_BYTES;
        let up = slots > w.table.slots();
        let Some(now) = w.table.chunk() else {
            let plan = match self.spec.in_place {
                true if up => MemoryPlan::InPlace {
                    blocks: 1,
                    bytes: w.table.slots() * LINE_BYTES,
                },
                true => MemoryPlan::InPlace { blocks: 0, bytes },
                false => MemoryPlan::OutOfPlace { blocks: 1, bytes },
            };
            return vec![(plan, Growth::Same)];
        };
        let chunks_of = |chunk: u64| bytes.div_ceil(chunk) as usize;
        let same = if self.spec.in_place {
            MemoryPlan::InPlace {
                blocks: chunks_of(now).saturating_sub(w.table.blocks()),
                bytes: now,
            }
        } else {
            MemoryPlan::OutOfPlace {
                blocks: chunks_of(now),
                bytes: now,
            }
        };
        let same = (same, Growth::Same);
        if !self.spec.change_chunks {
            return vec![same];
        }
        let change = |chunk: u64| {
            let plan = MemoryPlan::OutOfPlace {
                blocks: chunks_of(chunk),
                bytes: chunk,
            };
            (plan, Growth::Change)
        };
        let chunks = self.spec.chunks.iter().copied();
        if up {
            let larger = chunks.filter(|&c| c > now).map(change);
            std::iter::once(same).chain(larger).collect()
        } else {
            // Return to smaller chunks if one chunk of the current size is too large.
            let smaller = chunks.filter(|&c| c < now && bytes < now).map(change);
            smaller.rev().chain([same]).collect()
        }
    }

    /// Allocates memory for `slots` in `way` and sets the rehash pointer to its
    /// start.
    fn begin(&mut self, way: usize, slots: u64, env: &mut Env<'_, A>) -> Result<(), Refusal> {
        let mut refused = None;
        for (plan, growth) in self.plans(way, slots) {
            let (n, bytes) = plan.blocks();
            let up = slots > self.ways[way].table.slots();
            let listed = self
                .size
                .is_none_or(|size| env.l2p.has_room(way, size, n, growth));
            if let Some(size) = self.size
                && !listed
                && !(up && growth == Growth::Change && env.l2p.has_room_instead(way, size, n))
            {
                // Larger chunks need fewer entries, so try the next plan.
                refused = Some(self.l2p_full(way, size, plan, env.l2p));
                continue;
            }
            let blocks = if listed {
                self.acquire(way, plan, growth, env)?
            } else {
                self.memory(plan, env)?
            };
            let next = match plan {
                MemoryPlan::InPlace { .. } => None,
                MemoryPlan::OutOfPlace { .. } => Some(self.storage(slots, bytes, blocks.clone())),
            };
            let w = &mut self.ways[way];
            if next.is_none() && up {
                w.table.double(blocks);
            }
            w.next = next;
            w.new_mask = slots - 1;
            w.pointer = 0;
            w.resize = Some(Resize {
                up,
                back: false,
                unlisted: !listed,
            });
            self.downsize_from = u64::MAX;
            let stats = &mut self.stats.ways[way];
            stats.chunk_changes += u64::from(growth == Growth::Change);
            if up {
                stats.upsizes += 1;
            } else {
                stats.downsizes += 1;
            }
            env.work.registers_changed = true;
            return Ok(());
        }
        Err(refused.expect("there is at least one plan"))
    }

    /// Starts an upsize of all `ways` (a bit each), or of none.
    pub(super) fn begin_upsizes(&mut self, ways: u8, env: &mut Env<'_, A>) -> Result<(), Refusal> {
        let growth = u64::from(self.spec.growth);
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let slots = growth * self.ways[way].slots();
            if let Err(refusal) = self.begin(way, slots, env) {
                self.cancel_upsizes(ways & ((1 << way) - 1), env);
                return Err(refusal);
            }
        }
        Ok(())
    }
    /// Cancels upsizes that have not migrated anything.
    pub(super) fn cancel_upsizes(&mut self, ways: u8, env: &mut Env<'_, A>) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let w = &mut self.ways[way];
            let Some(Resize {
                up: true, unlisted, ..
            }) = w.resize
            else {
                continue;
            };
            if w.pointer != 0 {
                continue;
            }
            w.resize = None;
            w.new_mask = w.old_mask;
            let stats = &mut self.stats.ways[way];
            stats.upsizes -= 1;
            match w.next.take() {
                Some(next) => {
                    stats.chunk_changes -= u64::from(next.chunk() != w.table.chunk());
                    if unlisted {
                        env.work.freed += next.free(env.frames).1;
                    } else {
                        self.give_back(way, next, env);
                    }
                }
                None => {
                    let (blocks, bytes) = w.table.halve(env.frames);
                    self.release_entries(way, blocks, bytes, env);
                }
            }
        }
    }
    /// Starts a downsize of those `ways` for which memory is available. Without
    /// per-way resizing it starts all or none.
    pub(super) fn begin_downsizes(&mut self, ways: u8, env: &mut Env<'_, A>) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let slots = self.ways[way].slots() / 2;
            if self.begin(way, slots, env).is_err() && !self.spec.per_way {
                self.cancel_downsizes(ways & ((1 << way) - 1), env);
                return;
            }
        }
    }
    fn cancel_downsizes(&mut self, ways: u8, env: &mut Env<'_, A>) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let w = &mut self.ways[way];
            w.resize = None;
            w.new_mask = w.old_mask;
            let stats = &mut self.stats.ways[way];
            stats.downsizes -= 1;
            if let Some(next) = w.next.take() {
                stats.chunk_changes -= u64::from(next.chunk() != w.table.chunk());
                self.give_back(way, next, env);
            }
        }
    }

    /// Makes room after an insertion exceeded the re-insertion limit. Resizes in
    /// progress are completed, and downsizes are reversed. If none could be
    /// completed, the whole table or the fullest of the smallest ways is upsized.
    pub(super) fn make_room(
        &mut self,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) -> Result<(), Refusal> {
        let resizing = self.ways_resizing();
        if resizing != 0 {
            self.turn_round(resizing);
            self.finish_now(resizing, env, landed);
            if self.ways_resizing() != resizing {
                return Ok(());
            }
        }
        let ways = if self.spec.per_way {
            // A smallest way never has a stuck downsize: after reversal it would be
            // at most twice as large as another way.
            let smallest = self.ways.iter().map(Way::slots).min();
            let fullest = (0..self.ways.len())
                .filter(|&i| self.ways[i].resize.is_none())
                .filter(|&i| Some(self.ways[i].slots()) == smallest)
                .max_by_key(|&i| self.ways[i].lines);
            1 << fullest.expect("a smallest way")
        } else {
            self.all()
        };
        self.begin_upsizes(ways, env)?;
        self.stats.forced_upsizes += 1;
        Ok(())
    }

    /// Updates the peak values.
    pub(super) fn note(&mut self) {
        for (w, stats) in self.ways.iter().zip(&mut self.stats.ways) {
            stats.peak_bytes = stats.peak_bytes.max(w.bytes());
            let next = w.next.as_ref().map_or(0, Storage::largest);
            self.stats.largest = self.stats.largest.max(w.table.largest()).max(next);
        }
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.bytes());
    }
}
