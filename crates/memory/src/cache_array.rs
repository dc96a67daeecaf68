//! The lines of one cache: tags, replacement, ready times.

mod lru_export;

use pagewalk_structures::{EPOCHS, Occupancy, RRPV_FILL, RRPV_MAX, StaleOutcomes};
use pagewalk_units::{Cycle, Error, LINE_BYTES};

use crate::prefetch::Prefetcher;
use crate::sets::{Base, Sets, Way};
use crate::stats::{CacheStats, KindCounts, is_demand};
use crate::{CacheSpec, Level, Replacement, RequestKind};

/// Bits of a tag word that hold the line's number (physical address / 64).
const LINE_MASK: u64 = (1 << 48) - 1;
/// No line has this number.
const EMPTY: u64 = LINE_MASK;

/// Differs from memory below.
pub(crate) const DIRTY: u64 = 1 << 48;
/// Fetched by this cache's prefetcher and not used since.
pub(crate) const PREFETCHED: u64 = 1 << 49;
/// Fetched for a speculation engine and not used since.
pub(crate) const SPECULATIVE: u64 = 1 << 50;
/// No other core has it: may be written without asking.
pub(crate) const OWNED: u64 = 1 << 51;
/// Fetched by this cache's prefetcher while warming, which nobody counts, and not used since.
const WARMED: u64 = 1 << 55;
const GUESSED: u64 = PREFETCHED | SPECULATIVE | WARMED;
/// In which stretch of the run the line was last used, in eight bits, or when the way was emptied,
/// what was in it: one begins where something was passed over. 0: before all that are told apart.
const EPOCH_SHIFT: u32 = 56;
const EPOCH: u64 = 0xff << EPOCH_SHIFT;
/// Where the line came from, in three bits.
const LEVEL_SHIFT: u32 = 52;

/// Cycles of a ready word; above them the cycles that the fetch takes.
const READY_BITS: u32 = 48;
const READY_MASK: u64 = (1 << READY_BITS) - 1;
/// A fetch that takes as many cycles, or more: how many is not known.
const LONG: u64 = u16::MAX as u64;

/// SRRIP: an empty way goes before all others.
const RRPV_EMPTY: u8 = RRPV_MAX + 1;

/// A line that went, if one did: its tag word, which is handed over in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim(u64);

impl Victim {
    /// Its number; `None`: the way was empty.
    #[inline(always)]
    pub fn line(self) -> Option<u64> {
        let line = self.0 & LINE_MASK;
        (line != EMPTY).then_some(line)
    }

    /// Whether it differs from memory below.
    #[inline(always)]
    pub fn dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    base: Base,
    way: Way,
}

/// What a lookup of a present line says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Load-to-use.
    pub at: Cycle,
    pub level: Level,
}

/// A cache: state, MSHRs, prefetcher and counters; who lies above and below is
/// the caller's.
#[derive(Clone, Debug)]
pub(crate) struct CacheArray {
    sets: u64,
    mask: Option<u64>,
    latency: Cycle,
    own_level: Level,
    replacement: Replacement,
    /// Orders: with LRU a way's rank in the order of use, 0 the last used one;
    /// with SRRIP its re-reference prediction. The byte of a set: with SRRIP
    /// where the search for a victim begins.
    state: Sets,
    /// First-level caches: the way where each set's last hit was. Apart from the
    /// sets, so that the host need not wait for one line to know the next.
    likely: Vec<u8>,
    pub mshrs: Occupancy,
    pub prefetcher: Option<Prefetcher>,
    /// Whether the access that the prefetcher is to see missed, or was the first to a line
    /// that it had brought.
    pub missed: bool,
    pub kinds: KindCounts,
    pub counts: CacheStats,
    /// The mark of what is used now, as in a tag word.
    epoch: u64,
    /// What is not known because something was passed over.
    pub stale: StaleOutcomes,
}

impl CacheArray {
    /// An empty cache; refuses what cannot be built with a sentence that names
    /// the key below `name`.
    pub fn new(spec: &CacheSpec, name: &str, level: Level) -> Result<Self, Error> {
        spec.check(name)?;
        let bytes = u64::from(spec.size_kb) * 1024;
        let ways = u64::from(spec.ways);
        let prefetcher = spec.prefetcher.map(Prefetcher::new);
        let sets = bytes / (ways * LINE_BYTES);
        let mut state = Sets::new(sets as usize, spec.ways as usize);
        for set in 0..sets as usize {
            let base = state.base(set);
            for way in 0..spec.ways as usize {
                let rank = spec.ways as usize - 1 - way;
                let way = state.way(way);
                *state.tag_mut(base, way) = EMPTY;
                *state.order(base, way) = match spec.replacement {
                    // The first way is filled first.
                    Replacement::Lru => rank as u8,
                    Replacement::Srrip | Replacement::SrripFp => RRPV_EMPTY,
                };
            }
        }
        Ok(CacheArray {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            latency: spec.latency,
            own_level: level,
            replacement: spec.replacement,
            state,
            likely: match level {
                Level::L1 => vec![0; sets as usize],
                _ => vec![],
            },
            mshrs: Occupancy::new(spec.mshrs as usize),
            prefetcher,
            missed: false,
            kinds: KindCounts::default(),
            counts: CacheStats::default(),
            epoch: 0,
            stale: StaleOutcomes::default(),
        })
    }

    /// Load-to-use of a hit.
    #[inline(always)]
    pub fn latency(&self) -> Cycle {
        self.latency
    }

    #[inline(always)]
    fn set(&self, line: u64) -> usize {
        match self.mask {
            Some(m) => (line & m) as usize,
            None => (line % self.sets) as usize,
        }
    }

    /// Where the line's set begins.
    #[inline(always)]
    fn base(&self, line: u64) -> Base {
        self.state.base(self.set(line))
    }

    #[inline(always)]
    fn tag(&self, at: Place) -> u64 {
        self.state.tag(at.base, at.way)
    }

    #[inline(always)]
    fn tag_mut(&mut self, at: Place) -> &mut u64 {
        self.state.tag_mut(at.base, at.way)
    }

    /// Tells the host that `line` will be asked for.
    #[inline(always)]
    pub fn host_prefetch(&self, line: u64) {
        self.state.prefetch(self.base(line));
    }

    /// The same of a cache of few ways, with these: which of them is meant is known only
    /// when the first line of the set is there, and that would be another wait.
    #[inline(always)]
    pub fn host_prefetch_ways(&self, line: u64) {
        self.state.prefetch_ways(self.base(line));
    }

    /// Tells the host that `line`, which is not here, will be brought in: with
    /// LRU it is known which line has to go.
    #[inline(always)]
    pub fn host_prefetch_fill(&self, line: u64) {
        if self.replacement == Replacement::Lru {
            let base = self.base(line);
            let last = (self.state.ways() - 1) as u8;
            if let Some(way) = self.state.first_with_order(base, last, 0) {
                self.state.prefetch_tag(base, way);
            }
        }
    }

    /// Tells the host that `line` will be asked for, whose set is there by now: its tag, or
    /// that of the line which has to go for it, will be needed.
    #[inline]
    pub fn host_prefetch_place(&self, line: u64) {
        let base = self.base(line);
        let way = match self.state.first_with_print(base, print(line)) {
            Some(way) => Some(way),
            None => self.next_way(base),
        };
        if let Some(way) = way {
            self.state.prefetch_tag(base, way);
        }
    }

    /// The way that makes room next.
    #[inline(always)]
    fn next_way(&self, base: Base) -> Option<Way> {
        match self.replacement {
            Replacement::Lru => {
                let last = (self.state.ways() - 1) as u8;
                self.state.first_with_order(base, last, 0)
            }
            Replacement::Srrip | Replacement::SrripFp => {
                self.state.oldest(base, self.state.byte(base)).1
            }
        }
    }

    /// The line that has to go when `line`, which is not here, is brought in, if it is
    /// known: with LRU.
    #[inline(always)]
    pub fn next_victim(&self, line: u64) -> Victim {
        if self.replacement != Replacement::Lru {
            return Victim(EMPTY);
        }
        let base = self.base(line);
        let last = (self.state.ways() - 1) as u8;
        let way = self.state.first_with_order(base, last, 0);
        Victim(way.map_or(EMPTY, |way| self.state.tag(base, way)))
    }

    /// Where `line` is, if it is here.
    #[inline(always)]
    pub fn find(&self, line: u64) -> Option<Place> {
        debug_assert!(line < EMPTY);
        let base = self.base(line);
        let is_it = |tag: u64| is_of(tag, line);
        let way = self.state.find(base, print(line), is_it)?;
        Some(Place { base, way })
    }

    /// `find` in a first-level cache, where most accesses go to the line that
    /// its set's last one went to. A line is in one place at most, so it does
    /// not matter which way is looked at first.
    #[inline(always)]
    pub fn find_likely(&mut self, line: u64) -> Option<Place> {
        let set = self.set(line);
        let base = self.state.base(set);
        let way = self.state.way(usize::from(self.likely[set]));
        if is_of(self.tag(Place { base, way }), line) {
            return Some(Place { base, way });
        }
        let way = self.find_unlikely(set, line)?;
        Some(Place { base, way })
    }

    #[inline(never)]
    fn find_unlikely(&mut self, set: usize, line: u64) -> Option<Way> {
        let way = self.find(line)?.way;
        self.likely[set] = way.index() as u8;
        Some(way)
    }

    /// The flags of the line at `at`.
    #[inline(always)]
    pub fn flags(&self, at: Place) -> u64 {
        self.tag(at) & !LINE_MASK
    }

    #[inline(always)]
    pub fn set_flags(&mut self, at: Place, flags: u64) {
        *self.tag_mut(at) |= flags;
    }

    #[inline(always)]
    pub fn clear_flags(&mut self, at: Place, flags: u64) {
        *self.tag_mut(at) &= !flags;
    }

    /// When the line at `at` is ready.
    #[inline]
    pub fn ready(&self, at: Place) -> Cycle {
        self.state.ready(at.base, at.way) & READY_MASK
    }

    #[inline(always)]
    fn ready_word(&mut self, at: Place) -> &mut u64 {
        self.state.ready_mut(at.base, at.way)
    }

    /// The line at `at` is used.
    #[inline(always)]
    fn touch(&mut self, at: Place) {
        match self.replacement {
            Replacement::Lru => {
                let rank = *self.state.order(at.base, at.way);
                if rank != 0 {
                    self.state.renew(at.base, rank);
                }
            }
            Replacement::Srrip => *self.state.order(at.base, at.way) = 0,
            Replacement::SrripFp => {
                let prediction = self.state.order(at.base, at.way);
                *prediction = prediction.saturating_sub(1);
            }
        }
    }

    /// A request finds its line at `at`: counts it, uses it, waits for it. A speculative one
    /// comes from the cache above, which will have the line: this one has been useful.
    #[inline(always)]
    pub fn hit(&mut self, at: Place, kind: RequestKind, now: Cycle) -> Hit {
        self.touch(at);
        let tag = self.tag(at);
        let ready = self.state.ready(at.base, at.way);
        if ready & READY_MASK <= now && (tag ^ self.epoch) & (GUESSED | EPOCH) == 0 {
            self.kinds.hits[kind as usize] += 1;
            return Hit {
                at: now + self.latency,
                level: self.own_level,
            };
        }
        self.unusual_hit(at, kind, now)
    }

    /// A hit on a line on its way, on one that was fetched by a guess, or on one of before.
    #[inline(never)]
    fn unusual_hit(&mut self, at: Place, kind: RequestKind, now: Cycle) -> Hit {
        self.stale.hits += u64::from(self.is_stale(self.tag(at)));
        let pending = self.ready(at) > now;
        self.used(at, pending);
        if !pending {
            self.kinds.hits[kind as usize] += 1;
            return Hit {
                at: now + self.latency,
                level: self.own_level,
            };
        }
        self.kinds.misses[kind as usize] += 1;
        if is_demand(kind) {
            self.counts.merged += 1;
        }
        Hit {
            at: self.joined(at, now).max(now + self.latency),
            level: self.origin(at),
        }
    }

    /// When the line at `at`, which is on its way, is ready for a request at `now`, too. If it
    /// was asked for by one from a later time (requests do not come in order of time), this
    /// one brings the line and the other merges.
    fn joined(&mut self, at: Place, now: Cycle) -> Cycle {
        let word = *self.ready_word(at);
        let (ready, takes) = (word & READY_MASK, word >> READY_BITS);
        if takes < LONG && now + takes < ready {
            *self.ready_word(at) = (now + takes) | (takes << READY_BITS);
            return now + takes;
        }
        ready
    }

    /// Whether what this tag word is of was not used since something was passed over.
    #[inline(always)]
    fn is_stale(&self, tag: u64) -> bool {
        (tag ^ self.epoch) & EPOCH != 0
    }

    /// Something was passed over: of what is here, nobody knows whether it still would be.
    pub fn mark_stale(&mut self) {
        if self.epoch >> EPOCH_SHIFT == EPOCHS {
            // All marks are in use: what has any is of before all that come.
            for set in 0..self.state.count() {
                let base = self.state.base(set);
                for way in 0..self.state.ways() {
                    let way = self.state.way(way);
                    *self.state.tag_mut(base, way) &= !EPOCH;
                }
            }
            self.epoch = 0;
        }
        self.epoch += 1 << EPOCH_SHIFT;
    }

    /// A line of before is used, or a guess was right.
    fn used(&mut self, at: Place, pending: bool) {
        *self.tag_mut(at) = self.used_word(self.tag(at), pending);
    }

    /// The same of a tag word: as it is from then on.
    fn used_word(&mut self, was: u64, pending: bool) -> u64 {
        self.missed |= was & (PREFETCHED | WARMED) != 0;
        if was & PREFETCHED != 0 {
            self.counts.prefetches_useful += 1;
            self.counts.prefetches_late += u64::from(pending);
        }
        if was & SPECULATIVE != 0 {
            self.counts.speculative_useful += 1;
            self.counts.speculative_late += u64::from(pending);
        }
        was & !(GUESSED | EPOCH) | self.epoch
    }

    /// A request does not find its line.
    #[inline(always)]
    pub fn count_miss(&mut self, kind: RequestKind) {
        self.kinds.misses[kind as usize] += 1;
    }

    /// A hit without time or counting, but guesses are still judged.
    #[inline(always)]
    pub fn warm_hit(&mut self, at: Place) {
        self.touch(at);
        if (self.tag(at) ^ self.epoch) & (GUESSED | EPOCH) != 0 {
            self.used(at, false);
        }
    }

    /// A guess finds the line that it would have brought: that is no use of it. When the
    /// line is here, where it still is on its way.
    pub fn glimpse(&mut self, at: Place, kind: RequestKind, now: Cycle) -> Option<Cycle> {
        if self.ready(at) <= now {
            self.kinds.hits[kind as usize] += 1;
            return None;
        }
        self.kinds.misses[kind as usize] += 1;
        Some(self.joined(at, now).max(now + self.latency))
    }

    fn origin(&self, at: Place) -> Level {
        match self.tag(at) >> LEVEL_SHIFT & 7 {
            1 => Level::L1,
            2 => Level::L2,
            3 => Level::L3,
            4 => Level::Remote,
            _ => Level::Memory,
        }
    }

    /// Brings in `line`, which is not here, asked for at `asked` and ready at
    /// `ready`; gives what had to go. While warming (`TIMED` false) nothing is
    /// counted, and a guess is one for the prefetcher alone, since nobody counted it.
    #[inline(always)]
    pub fn fill<const TIMED: bool>(
        &mut self,
        line: u64,
        flags: u64,
        from: Level,
        asked: Cycle,
        ready: Cycle,
    ) -> Victim {
        if TIMED {
            self.fill_timed(line, flags, from, asked, ready)
        } else {
            self.fill_warm(line, flags, from)
        }
    }

    // Not generic, so that there is one copy of each for all callers: the host's
    // instruction cache is what a miss would run out of first.

    #[inline(never)]
    fn fill_timed(
        &mut self,
        line: u64,
        flags: u64,
        from: Level,
        asked: Cycle,
        ready: Cycle,
    ) -> Victim {
        let takes = ready.saturating_sub(asked).min(LONG);
        let old = self.put(
            line,
            self.word(line, flags, from),
            ready | takes << READY_BITS,
        );
        self.counts.fills += 1;
        let empty = old & LINE_MASK == EMPTY;
        self.counts.evictions += u64::from(!empty);
        if self.is_stale(old) || empty && self.epoch != 0 {
            self.fill_stale(line, flags, old);
        }
        if (flags | old) & GUESSED != 0 {
            self.counts.prefetches_issued += u64::from(flags & PREFETCHED != 0);
            self.counts.speculative_issued += u64::from(flags & SPECULATIVE != 0);
            self.gone(old);
        }
        Victim(old)
    }

    /// `line` came in place of `old`, which is of before or no line. Under LRU what is of before
    /// goes first, so that elsewhere in the set there is more of it only behind an empty way.
    #[cold]
    fn fill_stale(&mut self, line: u64, flags: u64, old: u64) {
        // What nobody asked for is no miss: a guess, or what the level above has written.
        let asked = flags & GUESSED == 0 && (self.own_level == Level::L1 || flags & DIRTY == 0);
        if !asked {
            return;
        }
        let base = self.base(line);
        let mut tags = (0..self.state.ways()).map(|w| self.state.tag(base, self.state.way(w)));
        let unknown = self.is_stale(old) || tags.any(|tag| self.is_stale(tag));
        self.stale.misses += u64::from(unknown);
    }

    #[inline(never)]
    fn fill_warm(&mut self, line: u64, flags: u64, from: Level) -> Victim {
        let old = self.put(line, self.warmed_word(line, flags, from), 0);
        if old & GUESSED != 0 {
            self.gone(old);
        }
        Victim(old)
    }

    /// The tag word of a line that comes in now.
    #[inline(always)]
    fn word(&self, line: u64, flags: u64, from: Level) -> u64 {
        line | flags | (from as u64) << LEVEL_SHIFT | self.epoch
    }

    /// The same while warming.
    #[inline(always)]
    fn warmed_word(&self, line: u64, flags: u64, from: Level) -> u64 {
        let warmed = if flags & PREFETCHED != 0 { WARMED } else { 0 };
        self.word(line, flags & !GUESSED | warmed, from)
    }

    /// Replaces the victim of the line's set by that of this tag word; gives its own.
    #[inline(always)]
    fn put(&mut self, line: u64, word: u64, ready: u64) -> u64 {
        let base = self.base(line);
        let way = self.victim(base);
        let at = Place { base, way };
        *self.ready_word(at) = ready;
        self.state.set_print(base, way, print(line));
        std::mem::replace(self.tag_mut(at), word)
    }

    /// The line of this tag word leaves: a guess not used until now was useless.
    #[inline(always)]
    fn gone(&mut self, tag: u64) {
        self.counts.prefetches_useless += u64::from(tag & PREFETCHED != 0);
        self.counts.speculative_useless += u64::from(tag & SPECULATIVE != 0);
    }

    /// Takes the line at `at` out; gives its flags.
    pub fn remove(&mut self, at: Place) -> u64 {
        let old = self.tag(at);
        // No better known than the line: the gap may have brought another here.
        *self.tag_mut(at) = EMPTY | old & EPOCH;
        self.gone(old);
        match self.replacement {
            Replacement::Lru => self.make_last(at),
            Replacement::Srrip | Replacement::SrripFp => {
                *self.state.order(at.base, at.way) = RRPV_EMPTY;
            }
        }
        old & !(LINE_MASK | EPOCH)
    }

    /// LRU: the way of `at` becomes the next victim.
    fn make_last(&mut self, at: Place) {
        let rank = *self.state.order(at.base, at.way);
        let ways = self.state.ways();
        for way in 0..ways {
            let o = self.state.order(at.base, self.state.way(way));
            *o -= u8::from(*o > rank);
        }
        *self.state.order(at.base, at.way) = (ways - 1) as u8;
    }

    /// The way that makes room, an empty one if there is any; its order is that
    /// of a line just filled.
    #[inline(always)]
    fn victim(&mut self, base: Base) -> Way {
        match self.replacement {
            Replacement::Lru => {
                let last = (self.state.ways() - 1) as u8;
                self.state.take(base, last).expect("one way is the last")
            }
            Replacement::Srrip | Replacement::SrripFp => {
                let from = self.state.byte(base);
                let (most, way) = self.state.oldest(base, from);
                let way = way.expect("one way has the most");
                // Ageing all until one is at the end is adding what the oldest lacks.
                let lacks = RRPV_MAX.saturating_sub(most);
                self.state.age(base, lacks);
                let next = way.index() + 1;
                let next = if next == self.state.ways() { 0 } else { next };
                self.state.set_byte(base, next as u8);
                *self.state.order(base, way) = RRPV_FILL;
                way
            }
        }
    }

    /// All counters.
    pub fn stats(&self) -> CacheStats {
        self.kinds.into_stats(self.counts)
    }

    /// Resident lines that a guess brought and nobody has used:
    /// (prefetched, speculative).
    #[cfg(test)]
    pub fn unjudged(&self) -> (u64, u64) {
        let count = |flag| self.present().filter(|t| t & flag != 0).count() as u64;
        (count(PREFETCHED), count(SPECULATIVE))
    }

    /// Tag words of the lines that are here.
    #[cfg(test)]
    pub fn present(&self) -> impl Iterator<Item = u64> {
        let ways = self.state.ways();
        (0..self.state.count() * ways)
            .map(move |i| {
                let (set, way) = (i / ways, i % ways);
                self.state.tag(self.state.base(set), self.state.way(way))
            })
            .filter(|t| t & LINE_MASK != EMPTY)
    }
}

/// Whether a tag word is that of `line`.
#[inline(always)]
fn is_of(tag: u64, line: u64) -> bool {
    (tag ^ line) & LINE_MASK == 0
}

/// A byte that tells lines of a set apart, mostly: the high byte of Fibonacci
/// hashing depends on all bits of the line's number.
#[inline(always)]
fn print(line: u64) -> u8 {
    (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[cfg(test)]
mod marks_test;
