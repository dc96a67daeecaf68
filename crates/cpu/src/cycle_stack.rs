//! The cycle stack: every retirement slot has one cause.
//!
//! Slots in which nothing retires are lost. The window keeps two clocks: the real one, and an ideal
//! one in which no access waits for its translation ([`crate::time`]). The slots that only the real
//! clock loses are the cost of translation.
//!
//! The slots that both clocks lose are divided among the parts of the latency of the instruction
//! that delays retirement, without its translation. Its latency begins when its operands are ready.
//! Each part gets a share in proportion to its length, wherever in the latency it lies. Only the
//! end of the latency, which does not overlap with older instructions, delays retirement. But a
//! shorter early part would let the instruction end earlier by as much.

use pagewalk_units::Cycle;

/// Cause to which a retirement slot is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cause {
    /// An instruction retired.
    Base,
    /// The oldest instruction waited for its producers, or executed.
    Compute,
    /// It waited for data from the data cache in front of the first level.
    L0d,
    /// It waited for data from the first-level data cache.
    L1d,
    /// It waited for data from the second-level cache.
    L2,
    /// It waited for data from the third-level cache.
    L3,
    /// It waited for data from the fourth-level cache.
    L4,
    /// It waited for data from another core's cache.
    Remote,
    /// It waited for a DRAM access, without queueing.
    Dram,
    /// It waited for a bank or the bus of the DRAM.
    DramQueue,
    /// It waited for a miss register of a cache.
    MissRegister,
    /// TLB lookups cost these slots.
    Tlb,
    /// Waits for a walker cost them, by own walks or walks merged with.
    Walker,
    /// Page walks cost them, own or merged with.
    Walk,
    /// The front end was refilling after a misprediction.
    Branch,
    /// The front end waited for instructions.
    Fetch,
    /// A store found the store queue full, or a fence waited for it to drain.
    StoreQueue,
    /// The kernel ran.
    Kernel,
    /// The core was idle.
    Idle,
}

/// Number of causes.
pub(crate) const CAUSES: usize = 19;

/// Lost slots by cause, without [`Cause::Base`], which is the number of instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct CycleStack {
    lost: [u64; CAUSES],
    /// Position within a slot at which the next split begins: see [`CycleStack::split`].
    phase: u32,
}

/// Fractional bits of a slot where slots are split.
const FRACTION: u32 = 24;

impl CycleStack {
    /// Charges `slots` to `cause`.
    #[inline]
    pub fn add(&mut self, cause: Cause, slots: u64) {
        self.lost[cause as usize] += slots;
    }

    /// Divides the slots `from..until`, at least one, among the parts of a latency from `begin` to
    /// `until`. Shares are whole slots and add up exactly. The point at which fractions are rounded
    /// moves by the golden ratio from split to split, so no part gains or loses in the long run.
    #[inline(always)]
    pub fn split(&mut self, (begin, from, until): (u64, u64, u64)) -> Split<'_> {
        debug_assert!(from < until);
        if from > begin {
            return self.split_in_proportion((begin, until), until - from);
        }
        Split {
            lost: &mut self.lost,
            begin,
            until,
            slots: until - from,
            scale: 0,
            dither: 0,
            at: begin,
            given: 0,
        }
    }

    /// Divides any number of `slots` among the parts of a latency, as [`CycleStack::split`] does.
    #[inline(always)]
    fn split_in_proportion(&mut self, (begin, until): (u64, u64), slots: u64) -> Split<'_> {
        self.phase = self.phase.wrapping_add(0x9E37_79B9);
        Split {
            lost: &mut self.lost,
            begin,
            until,
            slots,
            scale: (slots << FRACTION) / (until - begin),
            dither: u64::from(self.phase >> (u32::BITS - FRACTION)),
            at: begin,
            given: 0,
        }
    }

    /// Divides `slots` among the parts of a wait for a translation, in proportion to their lengths.
    pub fn translation(&mut self, wait: &TranslationWait, slots: u64) {
        if slots == 0 {
            return;
        }
        let TranslationWait {
            requested,
            lookup_done,
            walk_start,
            known,
        } = *wait;
        debug_assert!(requested < known, "a cost without a wait");
        let mut split = self.split_in_proportion((requested, known), slots);
        if walk_start < known {
            split.part(Cause::Tlb, lookup_done.min(walk_start));
            split.part(Cause::Walker, walk_start);
            split.rest(Cause::Walk);
        } else {
            split.rest(Cause::Tlb);
        }
    }

    /// Slots by cause; `base` is the number of used slots.
    pub fn slots(&self, base: u64) -> StackSlots {
        let s = &self.lost;
        StackSlots {
            base,
            compute: s[Cause::Compute as usize],
            l0d: s[Cause::L0d as usize],
            l1d: s[Cause::L1d as usize],
            l2: s[Cause::L2 as usize],
            l3: s[Cause::L3 as usize],
            l4: s[Cause::L4 as usize],
            remote: s[Cause::Remote as usize],
            dram: s[Cause::Dram as usize],
            dram_queue: s[Cause::DramQueue as usize],
            miss_register: s[Cause::MissRegister as usize],
            tlb: s[Cause::Tlb as usize],
            walker: s[Cause::Walker as usize],
            walk: s[Cause::Walk as usize],
            branch: s[Cause::Branch as usize],
            fetch: s[Cause::Fetch as usize],
            store_queue: s[Cause::StoreQueue as usize],
            kernel: s[Cause::Kernel as usize],
            idle: s[Cause::Idle as usize],
        }
    }
}

/// A wait for a translation, in cycles. Without a walk, all of it is TLB lookups.
#[derive(Clone, Copy, Default)]
pub(crate) struct TranslationWait {
    /// Cycle of the request.
    pub requested: Cycle,
    /// End of the TLB lookups.
    pub lookup_done: Cycle,
    /// Start of the walk, before which a walker was not free. Equals `known` without a walk.
    pub walk_start: Cycle,
    /// Cycle at which the translation is known.
    pub known: Cycle,
}

impl TranslationWait {
    /// A walk from `start` to `known`.
    pub fn walk(start: Cycle, known: Cycle) -> Self {
        TranslationWait {
            requested: start,
            lookup_done: start,
            walk_start: start,
            known,
        }
    }
}

/// A split in progress: see [`CycleStack::split`].
pub(crate) struct Split<'a> {
    lost: &'a mut [u64; CAUSES],
    begin: u64,
    until: u64,
    /// Slots to charge.
    slots: u64,
    /// Slots charged for one slot of the latency, as a fixed-point fraction. 0: one to one, because
    /// the latency does not overlap with older instructions.
    scale: u64,
    dither: u64,
    /// End of the parts so far.
    at: u64,
    /// Slots charged so far.
    given: u64,
}

impl Split<'_> {
    /// Charges the next part, which ends at `end` and may be empty.
    #[inline(always)]
    pub fn part(&mut self, cause: Cause, end: u64) {
        let end = end.min(self.until);
        if end <= self.at {
            return;
        }
        self.at = end;
        let upto = if end == self.until {
            self.slots
        } else if self.scale != 0 {
            ((end - self.begin) * self.scale + self.dither) >> FRACTION
        } else {
            (self.slots + end).saturating_sub(self.until)
        };
        self.lost[cause as usize] += upto - self.given;
        self.given = upto;
    }

    /// Charges the rest to `cause`.
    #[inline(always)]
    pub fn rest(self, cause: Cause) {
        self.lost[cause as usize] += self.slots - self.given;
    }
}

pagewalk_stats::counters! {
    /// Retirement slots by cause.
    pub struct StackSlots {
        base: "slots", "Slots in which an instruction retired";
        compute: "slots", "Slots lost while the oldest instruction waited for its producers or executed";
        l0d: "slots", "Slots lost to accesses served by the data cache in front of the first level, in proportion to their share of the stalled instruction's latency without its translation";
        l1d: "slots", "Slots lost to accesses served by the first-level data cache, in proportion to their share of the stalled instruction's latency without its translation";
        l2: "slots", "Slots lost to accesses served by the second-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        l3: "slots", "Slots lost to accesses served by the third-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        l4: "slots", "Slots lost to accesses served by the fourth-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        remote: "slots", "Slots lost to accesses served by another core's cache, in proportion to their share of the stalled instruction's latency without its translation";
        dram: "slots", "Slots lost to accesses served by DRAM, without their queueing, in proportion to their share of the stalled instruction's latency without its translation";
        dram_queue: "slots", "Slots lost to queueing for a bank or the bus of the DRAM, in proportion to its share of the stalled instruction's latency without its translation";
        miss_register: "slots", "Slots lost to waiting for a free MSHR of a cache, in proportion to its share of the stalled instruction's latency without its translation";
        tlb: "slots", "Slots lost to TLB lookups, beyond those that the window would lose without waits for translations";
        walker: "slots", "Slots lost to waits for a free page walker, by own walks or walks merged with, beyond those that the window would lose without waits for translations";
        walk: "slots", "Slots lost to page walks, own or merged with, beyond those that the window would lose without waits for translations";
        branch: "slots", "Slots lost while the front end refilled after mispredicted branches";
        fetch: "slots", "Slots lost while the front end waited for instructions from the caches";
        store_queue: "slots", "Slots lost to a full store queue and to fences that drain it";
        kernel: "slots", "Slots lost to the kernel: page faults, system calls, context switches";
        idle: "slots", "Slots in which the core had nothing to run";
    }
}

pagewalk_stats::counters! {
    /// Cycles by cause: slots divided by the width, rounded down. The slots are exact: their sum is
    /// the cycles times the width.
    pub struct StackCycles {
        base: "cycles", "Cycles that the instructions need at full width";
        compute: "cycles", "Cycles lost while the oldest instruction waited for its producers or executed";
        l0d: "cycles", "Cycles lost to accesses served by the data cache in front of the first level, in proportion to their share of the stalled instruction's latency without its translation";
        l1d: "cycles", "Cycles lost to accesses served by the first-level data cache, in proportion to their share of the stalled instruction's latency without its translation";
        l2: "cycles", "Cycles lost to accesses served by the second-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        l3: "cycles", "Cycles lost to accesses served by the third-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        l4: "cycles", "Cycles lost to accesses served by the fourth-level cache, in proportion to their share of the stalled instruction's latency without its translation";
        remote: "cycles", "Cycles lost to accesses served by another core's cache, in proportion to their share of the stalled instruction's latency without its translation";
        dram: "cycles", "Cycles lost to accesses served by DRAM, without their queueing, in proportion to their share of the stalled instruction's latency without its translation";
        dram_queue: "cycles", "Cycles lost to queueing for a bank or the bus of the DRAM, in proportion to its share of the stalled instruction's latency without its translation";
        miss_register: "cycles", "Cycles lost to waiting for a free MSHR of a cache, in proportion to its share of the stalled instruction's latency without its translation";
        tlb: "cycles", "Cycles lost to TLB lookups, beyond those that the window would lose without waits for translations";
        walker: "cycles", "Cycles lost to waits for a free page walker, by own walks or walks merged with, beyond those that the window would lose without waits for translations";
        walk: "cycles", "Cycles lost to page walks, own or merged with, beyond those that the window would lose without waits for translations";
        branch: "cycles", "Cycles lost while the front end refilled after mispredicted branches";
        fetch: "cycles", "Cycles lost while the front end waited for instructions from the caches";
        store_queue: "cycles", "Cycles lost to a full store queue and to fences that drain it";
        kernel: "cycles", "Cycles lost to the kernel: page faults, system calls, context switches";
        idle: "cycles", "Cycles in which the core had nothing to run";
    }
}

impl StackSlots {
    /// Converts to cycles of `width` slots. Each part is rounded down, so that it never decreases
    /// over time.
    pub fn cycles(&self, width: u64) -> StackCycles {
        let part = |slots: u64| slots / width;
        StackCycles {
            base: part(self.base),
            compute: part(self.compute),
            l0d: part(self.l0d),
            l1d: part(self.l1d),
            l2: part(self.l2),
            l3: part(self.l3),
            l4: part(self.l4),
            remote: part(self.remote),
            dram: part(self.dram),
            dram_queue: part(self.dram_queue),
            miss_register: part(self.miss_register),
            tlb: part(self.tlb),
            walker: part(self.walker),
            walk: part(self.walk),
            branch: part(self.branch),
            fetch: part(self.fetch),
            store_queue: part(self.store_queue),
            kernel: part(self.kernel),
            idle: part(self.idle),
        }
    }

    /// Sum over all causes.
    pub fn total(&self) -> u64 {
        let mut v = Vec::new();
        pagewalk_stats::Counters::values(self, &mut v);
        v.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, CycleStack, TranslationWait};

    fn of(stack: &CycleStack, cause: Cause) -> u64 {
        stack.lost[cause as usize]
    }

    #[test]
    fn parts_of_a_latency_that_nothing_hides_stay_as_they_are() {
        let mut stack = CycleStack::default();
        let mut lose = |from| {
            let mut split = stack.split((100, from, 200));
            split.part(Cause::MissRegister, 110);
            split.part(Cause::DramQueue, 150);
            split.part(Cause::Dram, 190);
            split.rest(Cause::Compute);
            let causes = [Cause::MissRegister, Cause::DramQueue, Cause::Dram];
            (causes.map(|c| of(&stack, c)), of(&stack, Cause::Compute))
        };
        assert_eq!(lose(100), ([10, 40, 40], 10));
        // Slots lost before belong to the first part.
        assert_eq!(lose(90), ([30, 80, 80], 20));
    }

    #[test]
    fn the_cost_of_a_translation_is_divided_by_the_lengths_of_its_parts() {
        let mut stack = CycleStack::default();
        let mut cost = |walk_start, slots| {
            let wait = TranslationWait {
                requested: 20,
                lookup_done: 22,
                walk_start,
                known: 30,
            };
            stack.translation(&wait, slots);
            [Cause::Tlb, Cause::Walker, Cause::Walk].map(|c| of(&stack, c))
        };
        assert_eq!(cost(26, 500), [100, 200, 200]);
        // A cost may be shorter than the wait: the rest of it was hidden.
        assert_eq!(cost(26, 5), [101, 202, 202]);
        // Without a walk, all of it is TLB lookups.
        assert_eq!(cost(30, 7), [108, 202, 202]);
    }

    #[test]
    fn shares_add_up_in_each_split_and_are_proportional_in_the_long_run() {
        let mut stack = CycleStack::default();
        let (mut slots, mut expected) = (0, [0.0; 3]);
        for i in 0..100_000u64 {
            // Few slots for long latencies: most parts get less than one.
            let (walk, dram, rest) = (1 + i % 700, 1 + i * 7 % 900, i % 3);
            let whole = walk + dram + rest;
            let lost = 1 + i % 5 % whole;
            let begin = 1000 * i;
            let until = begin + whole;
            let mut split = stack.split((begin, until - lost, until));
            split.part(Cause::Walk, begin + walk);
            split.part(Cause::Dram, begin + walk + dram);
            split.rest(Cause::Compute);
            slots += lost;
            assert_eq!(stack.lost.iter().sum::<u64>(), slots);
            for (e, part) in expected.iter_mut().zip([walk, dram, rest]) {
                *e += part as f64 * lost as f64 / whole as f64;
            }
        }
        let causes = [Cause::Walk, Cause::Dram, Cause::Compute];
        for (cause, expected) in causes.into_iter().zip(expected) {
            let got = of(&stack, cause) as f64;
            assert!(
                (got - expected).abs() < 10.0 + expected * 1e-3,
                "{cause:?}: {got}, {expected}"
            );
        }
    }
}
