//! Where the cycles went: every retirement slot has one cause.

/// What a slot was lost to, or used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cause {
    /// An instruction retired.
    Base,
    /// The oldest instruction waited for its producers, or executed.
    Compute,
    /// It waited for data from the first-level data cache.
    L1d,
    /// From the second-level cache.
    L2,
    /// From the shared cache.
    L3,
    /// From another core's cache.
    Remote,
    /// From DRAM.
    Dram,
    /// It waited for the second-level TLB.
    Tlb,
    /// It waited for a page walk.
    Walk,
    /// The front end was refilling after a misprediction.
    Branch,
    /// The front end waited for instructions.
    Fetch,
    /// A store found no room in the store queue, or a fence waited for it.
    StoreQueue,
    /// The kernel worked.
    Kernel,
    /// There was nothing to run.
    Idle,
}

/// How many causes there are.
pub(crate) const CAUSES: usize = 14;

/// Slots by cause, without [`Cause::Base`]: that one is the instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct CycleStack {
    lost: [u64; CAUSES],
}

impl CycleStack {
    #[inline]
    pub fn add(&mut self, cause: Cause, slots: u64) {
        self.lost[cause as usize] += slots;
    }

    /// Slots by cause, `base` of them used.
    pub fn slots(&self, base: u64) -> StackSlots {
        let s = &self.lost;
        StackSlots {
            base,
            compute: s[Cause::Compute as usize],
            l1d: s[Cause::L1d as usize],
            l2: s[Cause::L2 as usize],
            l3: s[Cause::L3 as usize],
            remote: s[Cause::Remote as usize],
            dram: s[Cause::Dram as usize],
            tlb: s[Cause::Tlb as usize],
            walk: s[Cause::Walk as usize],
            branch: s[Cause::Branch as usize],
            fetch: s[Cause::Fetch as usize],
            store_queue: s[Cause::StoreQueue as usize],
            kernel: s[Cause::Kernel as usize],
            idle: s[Cause::Idle as usize],
        }
    }
}

pagewalk_stats::counters! {
    /// Retirement slots by what they were used for or lost to.
    pub struct StackSlots {
        base: "slots", "Slots in which an instruction retired";
        compute: "slots", "Slots lost while the oldest instruction waited for its producers or executed";
        l1d: "slots", "Slots lost while the oldest instruction waited for the first-level data cache";
        l2: "slots", "Slots lost while the oldest instruction waited for the second-level cache";
        l3: "slots", "Slots lost while the oldest instruction waited for the shared cache";
        remote: "slots", "Slots lost while the oldest instruction waited for another core's cache";
        dram: "slots", "Slots lost while the oldest instruction waited for DRAM";
        tlb: "slots", "Slots lost while the oldest instruction waited for the second-level TLB";
        walk: "slots", "Slots lost while the oldest instruction waited for a page walk";
        branch: "slots", "Slots lost to refilling after mispredicted branches";
        fetch: "slots", "Slots lost while the front end waited for instructions from the caches";
        store_queue: "slots", "Slots lost to a full store queue and to fences that drain it";
        kernel: "slots", "Slots lost to the kernel: page faults, system calls, context switches";
        idle: "slots", "Slots in which the core had nothing to run";
    }
}

pagewalk_stats::counters! {
    /// Cycles by cause: the slots divided by the width, rounded down. The slots
    /// are exact: together they are the cycles times the width.
    pub struct StackCycles {
        base: "cycles", "Cycles that the instructions need at full width";
        compute: "cycles", "Cycles lost while the oldest instruction waited for its producers or executed";
        l1d: "cycles", "Cycles lost while the oldest instruction waited for the first-level data cache";
        l2: "cycles", "Cycles lost while the oldest instruction waited for the second-level cache";
        l3: "cycles", "Cycles lost while the oldest instruction waited for the shared cache";
        remote: "cycles", "Cycles lost while the oldest instruction waited for another core's cache";
        dram: "cycles", "Cycles lost while the oldest instruction waited for DRAM";
        tlb: "cycles", "Cycles lost while the oldest instruction waited for the second-level TLB";
        walk: "cycles", "Cycles lost while the oldest instruction waited for a page walk";
        branch: "cycles", "Cycles lost to refilling after mispredicted branches";
        fetch: "cycles", "Cycles lost while the front end waited for instructions from the caches";
        store_queue: "cycles", "Cycles lost to a full store queue and to fences that drain it";
        kernel: "cycles", "Cycles lost to the kernel: page faults, system calls, context switches";
        idle: "cycles", "Cycles in which the core had nothing to run";
    }
}

impl StackSlots {
    /// In cycles of `width` slots, each part rounded down, so that none ever shrinks.
    pub fn cycles(&self, width: u64) -> StackCycles {
        let part = |slots: u64| slots / width;
        StackCycles {
            base: part(self.base),
            compute: part(self.compute),
            l1d: part(self.l1d),
            l2: part(self.l2),
            l3: part(self.l3),
            remote: part(self.remote),
            dram: part(self.dram),
            tlb: part(self.tlb),
            walk: part(self.walk),
            branch: part(self.branch),
            fetch: part(self.fetch),
            store_queue: part(self.store_queue),
            kernel: part(self.kernel),
            idle: part(self.idle),
        }
    }

    /// Slots of all causes together.
    pub fn total(&self) -> u64 {
        let mut v = Vec::new();
        pagewalk_stats::Counters::values(self, &mut v);
        v.iter().sum()
    }
}
