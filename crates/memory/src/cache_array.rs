//! One cache array: tags, replacement, ready times.

mod block_priority;
mod lru_export;

use pagewalk_structures::{EPOCHS, Occupancy, RRPV_FILL, RRPV_MAX, StaleOutcomes, XorFold};
use pagewalk_units::{Cycle, Error, LINE_BYTES};

use crate::prefetch::Prefetcher;
use crate::sets::{Base, Sets, Way};
use crate::stats::{CacheStats, KindCounts, is_demand};
use crate::{CacheSpec, Level, Replacement, RequestKind, SetIndex};

/// Bits of a tag word that hold the line's number (physical address / 64).
const LINE_MASK: u64 = (1 << 48) - 1;
/// A line number that no line has: the way is empty.
const EMPTY: u64 = LINE_MASK;

/// Bit of the number of a block that holds no line of memory; [`EMPTY`] has it, too.
pub(crate) const BLOCK: u64 = 1 << 47;

/// The number of a line that is not the program's, in any number of ways.
const FOREIGN: u64 = EMPTY - 1;

/// The line is dirty.
pub(crate) const DIRTY: u64 = 1 << 48;
/// Fetched by this cache's prefetcher and not used since.
pub(crate) const PREFETCHED: u64 = 1 << 49;
/// Fetched for a speculation engine and not used since.
pub(crate) const SPECULATIVE: u64 = 1 << 50;
/// No other core has the line: it may be written without a request for ownership.
pub(crate) const OWNED: u64 = 1 << 51;
/// Fetched by this cache's prefetcher in functional warming, which is not counted, and not used
/// since.
const WARMED: u64 = 1 << 55;
const GUESSED: u64 = PREFETCHED | SPECULATIVE | WARMED;
/// Epoch in which the line was last used, in eight bits; for an invalidated way, that of its last
/// line. Each [`CacheArray::mark_stale`] begins an epoch, and a line of an older epoch is stale.
/// Epoch 0 is older than all others.
const EPOCH_SHIFT: u32 = 56;
const EPOCH: u64 = 0xff << EPOCH_SHIFT;
/// Level that the line came from, in three bits.
const LEVEL_SHIFT: u32 = 52;

/// Bits of a ready word that hold the ready cycle. The upper bits hold the duration of the fetch.
const READY_BITS: u32 = 48;
const READY_MASK: u64 = (1 << READY_BITS) - 1;
/// Saturated duration of a fetch: this long or longer.
const LONG: u64 = u16::MAX as u64;

/// SRRIP: an empty way is replaced before all others.
const RRPV_EMPTY: u8 = RRPV_MAX + 1;

/// An evicted line, if any: its tag word, which is returned in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim(u64);

impl Victim {
    /// Line number; `None` if the way was empty or held no line of memory.
    #[inline(always)]
    pub fn line(self) -> Option<u64> {
        let line = self.0 & LINE_MASK;
        (line & BLOCK == 0).then_some(line)
    }

    /// True if it is dirty.
    #[inline(always)]
    pub fn dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
}

/// Position of a line: set and way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    base: Base,
    way: Way,
}

/// Result of a hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Load-to-use.
    pub at: Cycle,
    /// Level that had the line.
    pub level: Level,
}

/// Low bits of a hashed set index that stay those of the line. The same line of all pages then reaches
/// an eighth of the sets, as in the L2 of a Zen 4 (`validation/set_index.c`).
const PLAIN_BITS: u32 = 3;

/// A hashed set index.
#[derive(Clone, Copy, Debug)]
struct IndexHash {
    sets: u64,
    /// Bits of the index; 0 if the number of sets is no power of two.
    bits: u32,
    fold: XorFold,
}

impl IndexHash {
    fn new(sets: u64) -> Self {
        let bits = if sets.is_power_of_two() {
            sets.ilog2()
        } else {
            0
        };
        IndexHash {
            sets,
            bits,
            fold: XorFold::new(bits.saturating_sub(PLAIN_BITS)),
        }
    }

    /// The index is XORed with the folded bits above it, except its low bits. If the number of sets
    /// is no power of two, it is the sum of the line's digits to that base.
    fn set(self, line: u64) -> u64 {
        if self.sets.is_power_of_two() {
            let index = line & (self.sets - 1);
            return index ^ self.fold.of(line >> self.bits) << PLAIN_BITS;
        }
        let (mut sum, mut rest) = (0, line);
        while rest != 0 {
            sum += rest % self.sets;
            rest /= self.sets;
        }
        sum % self.sets
    }
}

/// A cache: state, MSHRs, prefetcher and counters. The caller connects it to the levels above and
/// below.
#[derive(Clone, Debug)]
pub(crate) struct CacheArray {
    sets: u64,
    /// Mask of a set's index; 0 if the index is no part of the line's number.
    mask: u64,
    hash: Option<IndexHash>,
    latency: Cycle,
    own_level: Level,
    replacement: Replacement,
    /// Sets. Order of a way: under LRU its rank in the order of use, 0 for the most recently used;
    /// under SRRIP its re-reference prediction. Byte of a set: under SRRIP the way at which the
    /// search for a victim begins.
    state: Sets,
    /// First-level caches: the way of each set's last hit. Separate from the sets, so that the host
    /// can load both in parallel.
    likely: Vec<u8>,
    /// The MSHRs.
    pub mshrs: Occupancy,
    /// The hardware prefetcher, if there is one.
    pub prefetcher: Option<Prefetcher>,
    /// True if the access that trains the prefetcher missed, or was the first to a prefetched line.
    pub missed: bool,
    /// True if blocks that hold no line of memory have priority over lines.
    prefers_blocks: bool,
    /// Hits and misses by kind of request.
    pub kinds: KindCounts,
    /// All other counters.
    pub counts: CacheStats,
    /// The current epoch, at its place in a tag word.
    epoch: u64,
    /// Lookups whose outcome is uncertain because the contents are stale.
    pub stale: StaleOutcomes,
}

impl CacheArray {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// An impossible configuration. The message names the key below `name`.
    pub fn new(spec: &CacheSpec, name: &str, level: Level) -> Result<Self, Error> {
        spec.check(name)?;
        let bytes = u64::from(spec.size_kb) * 1024;
        let ways = u64::from(spec.ways);
        let prefetcher = spec.prefetcher.map(Prefetcher::new);
        let sets = bytes / (ways * LINE_BYTES);
        let hash = (spec.index == SetIndex::Xor).then(|| IndexHash::new(sets));
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
            mask: if hash.is_none() && sets.is_power_of_two() {
                sets - 1
            } else {
                0
            },
            hash,
            latency: spec.latency,
            own_level: level,
            replacement: spec.replacement,
            state,
            likely: vec![],
            mshrs: Occupancy::new(spec.mshrs as usize),
            prefetcher,
            missed: false,
            prefers_blocks: false,
            kinds: KindCounts::default(),
            counts: CacheStats::default(),
            epoch: 0,
            stale: StaleOutcomes::default(),
        })
    }

    /// As [`CacheArray::new`], for a cache that the core accesses first. It has
    /// [`CacheArray::find_likely`].
    pub fn first(spec: &CacheSpec, name: &str, level: Level) -> Result<Self, Error> {
        let cache = CacheArray::new(spec, name, level)?;
        Ok(CacheArray {
            likely: vec![0; cache.sets as usize],
            ..cache
        })
    }

    /// Its level.
    #[inline]
    pub fn level(&self) -> Level {
        self.own_level
    }

    /// Load-to-use of a hit.
    #[inline(always)]
    pub fn latency(&self) -> Cycle {
        self.latency
    }

    /// The set of a line: the only place that knows the index.
    #[inline(always)]
    fn set(&self, line: u64) -> usize {
        if self.mask != 0 {
            (line & self.mask) as usize
        } else {
            self.set_without_mask(line)
        }
    }

    #[inline(never)]
    fn set_without_mask(&self, line: u64) -> usize {
        let set = match self.hash {
            Some(hash) => hash.set(line),
            None => line % self.sets,
        };
        set as usize
    }

    /// Number of sets.
    pub fn set_count(&self) -> usize {
        self.sets as usize
    }

    /// Number of the set of `line`.
    #[inline]
    pub fn set_number(&self, line: u64) -> usize {
        self.set(line)
    }

    /// First word of the line's set.
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

    /// Prefetches into the host's caches the set of `line`, which will be requested.
    #[inline(always)]
    pub fn host_prefetch(&self, line: u64) {
        self.state.prefetch(self.base(line));
    }

    /// As [`CacheArray::host_prefetch`], for a cache of few ways: prefetches all ways too. To find
    /// the right way in the set's first line would cost the host a second miss.
    #[inline(always)]
    pub fn host_prefetch_ways(&self, line: u64) {
        self.state.prefetch_ways(self.base(line));
    }

    /// Prefetches into the host's caches the victim of `line`, which will be filled. Only LRU knows
    /// the victim in advance.
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

    /// The step after [`CacheArray::host_prefetch`]: prefetches the tag of `line`, or of its victim
    /// if it is absent.
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

    /// The next victim, if the policy knows it without a search.
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

    /// The victim of a fill of `line`, which is absent, if it is known in advance: under LRU.
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

    /// Position of `line`, if it is present.
    #[inline(always)]
    pub fn find(&self, line: u64) -> Option<Place> {
        debug_assert!(line < EMPTY);
        let base = self.base(line);
        let is_it = |tag: u64| is_of(tag, line);
        let way = self.state.find(base, print(line), is_it)?;
        Some(Place { base, way })
    }

    /// `find` for a first-level cache, where most accesses go to the line of the set's last hit. A
    /// line is in at most one way, so the order of the search does not matter.
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

    /// Sets flags of the line at `at`.
    #[inline(always)]
    pub fn set_flags(&mut self, at: Place, flags: u64) {
        *self.tag_mut(at) |= flags;
    }

    /// Clears flags of the line at `at`.
    #[inline(always)]
    pub fn clear_flags(&mut self, at: Place, flags: u64) {
        *self.tag_mut(at) &= !flags;
    }

    /// Cycle at which the line at `at` is ready.
    #[inline]
    pub fn ready(&self, at: Place) -> Cycle {
        self.state.ready(at.base, at.way) & READY_MASK
    }

    #[inline(always)]
    fn ready_word(&mut self, at: Place) -> &mut u64 {
        self.state.ready_mut(at.base, at.way)
    }

    /// Records a use of the line at `at`.
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

    /// Serves a hit at `at`: counts it, updates replacement, and waits for a line on its way. A hit
    /// by a speculative request also counts as a use of a guess: the cache above will hold the
    /// line.
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

    /// A hit on a line that is on its way, was fetched by a guess, or is stale.
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

    /// Merges a request at `now` with the line at `at`, which is on its way. Returns when the line
    /// is ready. Requests do not arrive in order of time. If the line was requested at a later
    /// time, this request counts as the one that fetches it, and the other as the one that merges.
    fn joined(&mut self, at: Place, now: Cycle) -> Cycle {
        let word = *self.ready_word(at);
        let (ready, takes) = (word & READY_MASK, word >> READY_BITS);
        if takes < LONG && now + takes < ready {
            *self.ready_word(at) = (now + takes) | (takes << READY_BITS);
            return now + takes;
        }
        ready
    }

    /// True if this tag word's line was not used since the last fast-forward.
    #[inline(always)]
    fn is_stale(&self, tag: u64) -> bool {
        (tag ^ self.epoch) & EPOCH != 0
    }

    /// Marks all lines as stale after a fast-forward: they may have been evicted meanwhile.
    pub fn mark_stale(&mut self) {
        if self.epoch >> EPOCH_SHIFT == EPOCHS {
            // Epochs are used up: every line moves to epoch 0, and numbers start again at 1.
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

    /// Records the first use of a stale line or of a guess.
    fn used(&mut self, at: Place, pending: bool) {
        *self.tag_mut(at) = self.used_word(self.tag(at), pending);
    }

    /// As [`CacheArray::used`], for a tag word. Returns the new word.
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

    /// Counts a miss.
    #[inline(always)]
    pub fn count_miss(&mut self, kind: RequestKind) {
        self.kinds.misses[kind as usize] += 1;
    }

    /// A hit in functional warming: no time and no counting, but guesses are still judged.
    #[inline(always)]
    pub fn warm_hit(&mut self, at: Place) {
        self.touch(at);
        if (self.tag(at) ^ self.epoch) & (GUESSED | EPOCH) != 0 {
            self.used(at, false);
        }
    }

    /// Serves a guess for the line at `at`, which does not count as a use. Returns when the line is
    /// ready, if it is still on its way.
    pub fn probe_by_guess(&mut self, at: Place, kind: RequestKind, now: Cycle) -> Option<Cycle> {
        if self.ready(at) <= now {
            self.kinds.hits[kind as usize] += 1;
            return None;
        }
        self.kinds.misses[kind as usize] += 1;
        Some(self.joined(at, now).max(now + self.latency))
    }

    /// Level that the line at `at` came from.
    fn origin(&self, at: Place) -> Level {
        match self.tag(at) >> LEVEL_SHIFT & 7 {
            0 => Level::L0,
            1 => Level::L1,
            2 => Level::L2,
            3 => Level::L3,
            4 => Level::L4,
            5 => Level::Remote,
            _ => Level::Memory,
        }
    }

    /// Fills `line`, which is absent, requested at `requested` and ready at `ready`. Returns the
    /// victim. In functional warming (`TIMED` false) nothing is counted. A prefetched line is then
    /// marked only so that its first use trains the prefetcher.
    #[inline(always)]
    pub fn fill<const TIMED: bool>(
        &mut self,
        line: u64,
        flags: u64,
        from: Level,
        requested: Cycle,
        ready: Cycle,
    ) -> Victim {
        if TIMED {
            self.fill_timed(line, flags, from, requested, ready)
        } else {
            self.fill_warm(line, flags, from)
        }
    }

    // The next functions are not generic, so that all callers share one copy: misses of the host's
    // instruction cache dominate the cost of a simulated miss.

    #[inline(never)]
    fn fill_timed(
        &mut self,
        line: u64,
        flags: u64,
        from: Level,
        requested: Cycle,
        ready: Cycle,
    ) -> Victim {
        let takes = ready.saturating_sub(requested).min(LONG);
        let old = self.put(
            line,
            self.word(line, flags, from),
            ready | takes << READY_BITS,
        );
        self.counts.fills += 1;
        let empty = old & LINE_MASK >= FOREIGN;
        self.counts.evictions += u64::from(!empty);
        let foreign = old & LINE_MASK == FOREIGN;
        if !foreign && (self.is_stale(old) || empty && self.epoch != 0) {
            self.fill_stale(line, flags, old);
        }
        if (flags | old) & GUESSED != 0 {
            self.counts.prefetches_issued += u64::from(flags & PREFETCHED != 0);
            self.counts.speculative_issued += u64::from(flags & SPECULATIVE != 0);
            self.count_evicted(old);
        }
        Victim(old)
    }

    /// Fills a line that is not the program's into the set of `line`. Returns the victim.
    pub fn fill_foreign(&mut self, line: u64) -> Victim {
        let old = self.put(line, self.word(FOREIGN, 0, Level::Memory), 0);
        self.count_evicted(old);
        Victim(old)
    }

    /// Counts the fill of `line` over `old`, which is a stale line or none. The lookup may have
    /// missed only because of stale lines. LRU evicts stale lines before current ones, so a set
    /// with an empty way can still hold some.
    #[cold]
    fn fill_stale(&mut self, line: u64, flags: u64, old: u64) {
        // A guess or a write-back from the level above is not a miss.
        let is_first = !self.likely.is_empty();
        let is_miss = flags & GUESSED == 0 && (is_first || flags & DIRTY == 0);
        if !is_miss {
            return;
        }
        let base = self.base(line);
        let mut tags = (0..self.state.ways()).map(|w| self.state.tag(base, self.state.way(w)));
        let stale = self.is_stale(old) || tags.any(|tag| self.is_stale(tag));
        self.stale.misses += u64::from(stale);
    }

    #[inline(never)]
    fn fill_warm(&mut self, line: u64, flags: u64, from: Level) -> Victim {
        let old = self.put(line, self.warmed_word(line, flags, from), 0);
        if old & GUESSED != 0 {
            self.count_evicted(old);
        }
        Victim(old)
    }

    /// The tag word of a line that is filled now.
    #[inline(always)]
    fn word(&self, line: u64, flags: u64, from: Level) -> u64 {
        line | flags | (from as u64) << LEVEL_SHIFT | self.epoch
    }

    /// As [`CacheArray::word`], in functional warming.
    #[inline(always)]
    fn warmed_word(&self, line: u64, flags: u64, from: Level) -> u64 {
        let warmed = if flags & PREFETCHED != 0 { WARMED } else { 0 };
        self.word(line, flags & !GUESSED | warmed, from)
    }

    /// Replaces the victim of the line's set by this tag word. Returns the victim's word.
    #[inline(always)]
    fn put(&mut self, line: u64, word: u64, ready: u64) -> u64 {
        let base = self.base(line);
        let way = self.victim(base);
        let at = Place { base, way };
        *self.ready_word(at) = ready;
        self.state.set_print(base, way, print(line));
        std::mem::replace(self.tag_mut(at), word)
    }

    /// Counts the eviction of this tag word: if it is an unused guess, the guess was useless.
    #[inline(always)]
    fn count_evicted(&mut self, tag: u64) {
        self.counts.prefetches_useless += u64::from(tag & PREFETCHED != 0);
        self.counts.speculative_useless += u64::from(tag & SPECULATIVE != 0);
    }

    /// Removes the line at `at` and returns its flags.
    pub fn remove(&mut self, at: Place) -> u64 {
        let old = self.tag(at);
        // The empty way keeps the line's epoch. If that is stale, another line may have been filled
        // here during the fast-forward.
        *self.tag_mut(at) = EMPTY | old & EPOCH;
        self.count_evicted(old);
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

    /// Chooses the way to replace, an empty one if there is any. Its order becomes that of a newly
    /// filled line.
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
                // SRRIP ages all ways until one reaches the maximum: adds the difference at once.
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

    /// Resident lines that a guess fetched and no request has used: (prefetched, speculative).
    #[cfg(test)]
    pub fn unjudged(&self) -> (u64, u64) {
        let count = |flag| self.present().filter(|t| t & flag != 0).count() as u64;
        (count(PREFETCHED), count(SPECULATIVE))
    }

    /// Tag words of the resident lines.
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

/// True if the tag word is that of `line`.
#[inline(always)]
fn is_of(tag: u64, line: u64) -> bool {
    (tag ^ line) & LINE_MASK == 0
}

/// A one-byte fingerprint of a line: the high byte of Fibonacci hashing depends on all bits of the
/// line's number.
#[inline(always)]
fn print(line: u64) -> u8 {
    (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[cfg(test)]
mod marks_test;
