//! The switch: measures lookups with and without the table, and bypasses a table that does not pay.
//!
//! STLT's section III-F proposes it: turn the table on and off periodically and keep what is faster. Each
//! thread decides for itself. Its lookups form this sequence:
//!
//! 1. **Fill**: lookups go through the table and are not judged.
//! 2. **Trial**: pairs of blocks, one through the table and one without. The first half of a block lets the
//!    caches settle. The second half is timed in bursts. Bursts far above the median do not count, so pauses of
//!    the caller and interrupts do not either.
//! 3. **Run**: the winner serves a long run without any measurement, then a fill and a trial follow.
//!
//! A run is so long that the loser's share of the trial costs less than [`LOSS`] of it.

use crate::sync::{AtomicU32, AtomicU64, Relaxed};

/// Threads that count apart. More threads share slots: their counts are then approximate.
pub(crate) const THREADS: usize = if cfg!(loom) { 1 } else { 16 };
/// A slot for each of them, and the first one for threads that have no number yet. Its lookups always step.
const SLOTS: usize = THREADS + 1;
/// Lookups of a timed burst.
const BURST: u32 = 32;
/// Timed bursts of a block.
const BURSTS: usize = 32;
/// Bursts that cost more medians than this do not count. The limit lies far above what lookups alone vary: a mean of
/// the cheapest bursts would favour a table, whose hits and misses vary more than lookups of the index.
const FAR: u64 = 4;
/// Lookups of a block before its timed half.
const SETTLE: u32 = BURST * BURSTS as u32;
/// Most pairs of blocks of a trial. A trial ends earlier if one side costs [`CLEAR`] times the other's.
const PAIRS: u32 = 6;
/// Ratio of costs, in 256ths, that ends a trial after two pairs.
const CLEAR: u64 = 320;
/// Reciprocal of the share of a run's time that its trial may cost.
const LOSS: u64 = 200;
/// Shortest and longest run in lookups.
const RUNS: (u64, u64) = (1 << 19, 1 << 24);
/// Share of a bypass, as its reciprocal, that fills the table before the next trial.
const REFILL: u32 = 64;
/// Savings in 256ths from which a table is on. A table that saves less than trials vary does not pay.
const MARGIN: u64 = 5;
/// Longest first fill in lookups.
const LONGEST_FILL: u64 = 1 << 20;

/// Counts of a table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
#[repr(C)]
pub struct Statistics {
    /// Lookups that were admitted.
    pub admitted: u64,
    /// Lookups that bypassed the table.
    pub bypassed: u64,
    /// Lookups that found no row of their record.
    pub misses: u64,
    /// Trials that ended with the table switched on.
    pub switched_on: u64,
    /// Trials that ended with the table switched off.
    pub switched_off: u64,
}

/// Parts of the sequence. In a fresh slot, nothing was counted or measured.
const FRESH: u32 = 4;
const FILL: u32 = 0;
const SETTLING: u32 = 1;
const TIMED: u32 = 2;
const RUN: u32 = 3;

/// The state of one thread, in cache lines of its own. C and C++ know the first three fields and the size.
#[repr(C, align(128))]
#[derive(Default)]
struct Slot {
    /// Lookups until the next step; negative, as `i32`, if they bypass the table. A bypassed lookup then counts
    /// and decides by one load: each instruction of it keeps the next lookup's first one out of the processor's
    /// window, and lookups of a hash table in memory take as long as their window is full.
    left: AtomicU32,
    /// 1 if lookups go through the table.
    on: AtomicU32,
    /// Lookups without a row.
    misses: AtomicU64,
    state: AtomicU32,
    /// Length of the present part in lookups: `left` began with it.
    planned: AtomicU32,
    /// Ended blocks of this trial.
    blocks: AtomicU32,
    /// Ended bursts of this block.
    bursts: AtomicU32,
    /// Length of the last run without the table. The next one is twice as long.
    bypass: AtomicU32,
    burst_start: AtomicU64,
    /// Sums of the trial's blocks in ticks a burst: without the table, and with it.
    costs: [AtomicU64; 2],
    /// Lookups of ended parts: without the table, and with it.
    lookups: [AtomicU64; 2],
    /// Trials by winner.
    results: [AtomicU64; 2],
    samples: [AtomicU32; BURSTS],
}

/// The slots of all threads.
#[repr(C)]
pub(crate) struct Switch {
    slots: [Slot; SLOTS],
    /// Lookups of a first fill.
    fill: AtomicU32,
    /// 0: every lookup is admitted.
    automatic: AtomicU32,
}

// The C header states both.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 256 && std::mem::offset_of!(Switch, slots) == 0);

impl Slot {
    fn begin(&self, state: u32, on: u32, planned: u32, lookups: u32) -> bool {
        let planned = planned.max(lookups).min(i32::MAX as u32);
        self.state.store(state, Relaxed);
        self.on.store(on, Relaxed);
        self.planned.store(planned, Relaxed);
        let left = planned.saturating_sub(lookups);
        let signed = if on != 0 { left } else { left.wrapping_neg() };
        self.left.store(signed, Relaxed);
        on != 0
    }

    /// Counts `lookups` of the present part, and says if they use the table. `None`: the part has ended.
    #[inline]
    fn count(&self, lookups: u32) -> Option<bool> {
        let left = self.left.load(Relaxed) as i32;
        if left < 0 {
            let left = i64::from(left) + i64::from(lookups);
            (left <= 0).then(|| {
                self.left.store(left as u32, Relaxed);
                false
            })
        } else {
            (left as u32 >= lookups).then(|| {
                self.left.store(left as u32 - lookups, Relaxed);
                true
            })
        }
    }

    /// Lookups of the present part so far.
    fn done(&self) -> u32 {
        let left = (self.left.load(Relaxed) as i32).unsigned_abs();
        self.planned.load(Relaxed).saturating_sub(left)
    }

    /// Adds the lookups of the present part to those of its side.
    fn add_done(&self) {
        let side = self.on.load(Relaxed) & 1;
        Self::add(&self.lookups[side as usize], u64::from(self.done()));
    }

    fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
    }

    fn next_block(&self, lookups: u32) -> bool {
        // Both sides come first equally often, so that a trend of costs favours neither.
        let on = [0, 1, 1, 0][self.blocks.load(Relaxed) as usize % 4];
        self.begin(SETTLING, on, SETTLE, lookups)
    }

    fn next_trial(&self, lookups: u32) -> bool {
        self.blocks.store(0, Relaxed);
        self.costs.iter().for_each(|cost| cost.store(0, Relaxed));
        self.next_block(lookups)
    }

    fn next_burst(&self, bursts: u32, now: u64, lookups: u32) -> bool {
        self.bursts.store(bursts, Relaxed);
        self.burst_start.store(now, Relaxed);
        self.begin(TIMED, self.on.load(Relaxed), BURST, lookups)
    }

    /// Ends the present part at time `now`. The `lookups` that are about to begin belong to the next part.
    fn step(&self, fill: u32, now: u64, lookups: u32) -> bool {
        let on = self.on.load(Relaxed);
        let side = (on & 1) as usize;
        let done = self.done();
        self.add_done();
        match self.state.load(Relaxed) {
            FRESH => self.begin(FILL, 1, fill, lookups),
            SETTLING => self.next_burst(0, now, lookups),
            TIMED => {
                let ticks = now.wrapping_sub(self.burst_start.load(Relaxed));
                let ticks = ticks.saturating_mul(u64::from(BURST)) / u64::from(done.max(1));
                let bursts = self.bursts.load(Relaxed);
                if let Some(sample) = self.samples.get(bursts as usize) {
                    sample.store(u32::try_from(ticks).unwrap_or(u32::MAX), Relaxed);
                }
                if bursts + 1 < BURSTS as u32 {
                    return self.next_burst(bursts + 1, now, lookups);
                }
                let mut samples = [0; BURSTS];
                samples
                    .iter_mut()
                    .zip(&self.samples)
                    .for_each(|(to, from)| *to = from.load(Relaxed));
                Self::add(&self.costs[side], cost(samples));
                self.blocks.store(self.blocks.load(Relaxed) + 1, Relaxed);
                self.judge(lookups)
            }
            RUN if on == 0 => self.begin(FILL, 1, done / REFILL, lookups),
            // RUN and FILL.
            _ => self.next_trial(lookups),
        }
    }

    /// Begins the trial's next block, or the run of its winner.
    fn judge(&self, lookups: u32) -> bool {
        let blocks = self.blocks.load(Relaxed);
        let [without, with] = [0, 1].map(|side: usize| self.costs[side].load(Relaxed).max(1));
        let (less, more) = (without.min(with), without.max(with));
        let clear = blocks >= 4 && more.saturating_mul(256) >= less.saturating_mul(CLEAR);
        if blocks % 2 == 1 || (blocks < 2 * PAIRS && !clear) {
            return self.next_block(lookups);
        }
        let on = with.saturating_mul(256) <= without.saturating_mul(256 - MARGIN);
        let tried = u64::from(blocks / 2) * u64::from(SETTLE + BURST * BURSTS as u32);
        let mut run = (tried as f64 * LOSS as f64 * (more - less) as f64 / less as f64) as u64;
        if on {
            self.bypass.store(0, Relaxed);
        } else {
            run = run.max(2 * u64::from(self.bypass.load(Relaxed)));
        }
        let run = run.clamp(RUNS.0, RUNS.1) as u32;
        if !on {
            self.bypass.store(run, Relaxed);
        }
        Self::add(&self.results[usize::from(on)], 1);
        self.begin(RUN, u32::from(on), run, lookups)
    }
}

/// Ticks of a block: the mean of its bursts that are not far above the median, for all bursts.
fn cost(mut bursts: [u32; BURSTS]) -> u64 {
    bursts.sort_unstable();
    let most = FAR * u64::from(bursts[BURSTS / 2]);
    let near = bursts.iter().map(|&ticks| u64::from(ticks));
    let near = near.take_while(|&ticks| ticks <= most);
    let (sum, count) = near.fold((0, 0), |(sum, count), ticks| (sum + ticks, count + 1));
    sum * BURSTS as u64 / count
}

impl Switch {
    /// The switch of a table of so many rows.
    pub(crate) fn new(rows: usize) -> Self {
        let switch = Self {
            slots: Default::default(),
            fill: AtomicU32::new(0),
            automatic: AtomicU32::new(1),
        };
        switch.restart(rows);
        switch
    }

    /// Fills the table of so many rows anew before the next trial.
    pub(crate) fn restart(&self, rows: usize) {
        self.fill
            .store((rows as u64).min(LONGEST_FILL) as u32, Relaxed);
        for slot in &self.slots {
            slot.add_done();
            slot.bypass.store(0, Relaxed);
            slot.begin(FRESH, 1, 0, 0);
        }
    }

    #[inline]
    pub(crate) fn admit(&self, lookups: u32) -> bool {
        match self.slots[slot_of_thread()].count(lookups) {
            Some(on) => on,
            None => self.step(numbered_slot_of_thread(), lookups),
        }
    }

    /// Ends the present part of this slot's sequence. True if `lookups`, which begin now, use the table.
    #[cold]
    pub(crate) fn step(&self, slot: usize, lookups: u32) -> bool {
        let slot = &self.slots[slot % SLOTS];
        // A thread that has its number only now.
        if let Some(on) = slot.count(lookups) {
            return on;
        }
        if self.automatic.load(Relaxed) == 0 {
            slot.add_done();
            return slot.begin(FRESH, 1, RUNS.1 as u32, lookups);
        }
        slot.step(self.fill.load(Relaxed), ticks(), lookups)
    }

    #[inline]
    pub(crate) fn count_misses(&self, misses: u64) {
        if misses != 0 {
            Slot::add(&self.slots[numbered_slot_of_thread()].misses, misses);
        }
    }

    pub(crate) fn set_automatic(&self, automatic: bool) {
        self.automatic.store(u32::from(automatic), Relaxed);
        for slot in &self.slots {
            slot.add_done();
            slot.begin(FRESH, 1, 0, 0);
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for slot in &self.slots {
            let done = slot.done();
            let on = slot.on.load(Relaxed) != 0;
            let now = |side| if on == side { u64::from(done) } else { 0 };
            sum.admitted += slot.lookups[1].load(Relaxed) + now(true);
            sum.bypassed += slot.lookups[0].load(Relaxed) + now(false);
            sum.misses += slot.misses.load(Relaxed);
            sum.switched_off += slot.results[0].load(Relaxed);
            sum.switched_on += slot.results[1].load(Relaxed);
        }
        sum
    }
}

/// The slot of this thread: 0 until it has a number.
#[cfg(not(loom))]
#[inline]
fn slot_of_thread() -> usize {
    SLOT.with(std::cell::Cell::get).min(THREADS)
}

#[cfg(not(loom))]
thread_local!(static SLOT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// The slot of this thread: threads are numbered in the order of their first lookup.
#[cfg(not(loom))]
pub(crate) fn numbered_slot_of_thread() -> usize {
    static NUMBERED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    if slot_of_thread() == 0 {
        SLOT.with(|slot| slot.set(NUMBERED.fetch_add(1, Relaxed) % THREADS + 1));
    }
    slot_of_thread()
}

#[cfg(loom)]
fn slot_of_thread() -> usize {
    1
}

#[cfg(loom)]
fn numbered_slot_of_thread() -> usize {
    1
}

/// The processor's clock: cycles of the time-stamp counter, or ticks of the system timer.
fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the counter.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let ticks: u64;
        // SAFETY: user space may read the virtual counter.
        unsafe {
            std::arch::asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        return ticks;
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START
            .get_or_init(std::time::Instant::now)
            .elapsed()
            .as_nanos() as u64
    }
}

// Simulated lookups by the million: too many for an interpreter.
#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// Runs `lookups` over a simulated clock. Returns ticks and how many lookups were admitted.
    fn run(slot: &Slot, clock: &mut u64, lookups: u64, mut cost: impl FnMut(bool) -> u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..lookups {
            let on = slot.count(1);
            let on = on.unwrap_or_else(|| slot.step(1 << 16, *clock, 1));
            admitted += u64::from(on);
            *clock += cost(on);
        }
        admitted
    }

    fn fresh() -> Slot {
        let slot = Slot::default();
        slot.begin(FRESH, 1, 0, 0);
        slot
    }

    #[test]
    fn a_table_that_costs_more_is_bypassed() {
        let (slot, mut clock) = (fresh(), 0);
        run(&slot, &mut clock, 1 << 17, |on| if on { 120 } else { 100 });
        let start = clock;
        let admitted = run(&slot, &mut clock, 1 << 22, |on| if on { 120 } else { 100 });
        assert!(admitted < (1 << 22) / 20, "{admitted}");
        assert!(
            (clock - start) * 100 < (100 << 22) * 101,
            "{}",
            clock - start
        );
    }

    #[test]
    fn a_table_that_saves_nothing_is_bypassed() {
        let (slot, mut clock) = (fresh(), 0);
        run(&slot, &mut clock, 1 << 17, |_| 100);
        let admitted = run(&slot, &mut clock, 1 << 22, |_| 100);
        assert!(admitted < (1 << 22) / 10, "{admitted}");
    }

    #[test]
    fn a_table_that_pays_serves_nearly_all_lookups() {
        let (slot, mut clock) = (fresh(), 0);
        run(&slot, &mut clock, 1 << 17, |on| if on { 100 } else { 900 });
        let start = clock;
        run(&slot, &mut clock, 1 << 24, |on| if on { 100 } else { 900 });
        assert!(
            (clock - start) * 100 < (100 << 24) * 102,
            "{}",
            clock - start
        );
    }

    #[test]
    fn costs_that_change_switch_it_off_and_on_again() {
        let (slot, mut clock) = (fresh(), 0);
        run(&slot, &mut clock, 1 << 25, |on| if on { 100 } else { 200 });
        run(&slot, &mut clock, 1 << 25, |on| if on { 200 } else { 100 });
        let admitted = run(&slot, &mut clock, 1 << 22, |on| if on { 200 } else { 100 });
        assert!(admitted < (1 << 22) / 20, "{admitted}");
        run(&slot, &mut clock, 1 << 25, |on| if on { 100 } else { 200 });
        let admitted = run(&slot, &mut clock, 1 << 22, |on| if on { 100 } else { 200 });
        assert!(admitted > (1 << 22) * 19 / 20, "{admitted}");
    }

    #[test]
    fn pauses_of_the_caller_do_not_count() {
        let (slot, mut clock, mut turn) = (fresh(), 0, 0_u64);
        // A pause after every 256 lookups, with the table only.
        let admitted = run(&slot, &mut clock, 1 << 22, |on| {
            turn += 1;
            if on {
                100 + u64::from(turn % 256 == 0) * 1_000_000
            } else {
                150
            }
        });
        assert!(admitted > (1 << 22) * 9 / 10, "{admitted}");
    }

    #[test]
    fn a_table_whose_cost_varies_more_is_judged_by_its_mean() {
        let (slot, mut clock, mut turn) = (fresh(), 0, 0_u64);
        // Bursts of hits alone, and bursts with misses: dearer in the mean, cheaper by the median.
        let admitted = run(&slot, &mut clock, 1 << 22, |on| {
            turn += 1;
            match (on, turn / 32 % 4) {
                (true, 0) => 220,
                (true, _) => 80,
                (false, _) => 110,
            }
        });
        assert!(admitted < (1 << 22) / 20, "{admitted}");
    }

    #[test]
    fn every_lookup_is_counted_once() {
        let switch = Switch::new(64);
        for lookups in 0..10_000 {
            switch.admit(lookups % 40);
        }
        let statistics = switch.statistics();
        assert_eq!(
            statistics.admitted + statistics.bypassed,
            (0..10_000).map(|lookups| lookups % 40).sum::<u64>()
        );
    }
}
