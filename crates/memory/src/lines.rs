//! The lines of one cache: tags, replacement, ready times.

use pagewalk_structures::{Occupancy, first_masked_equal};
use pagewalk_units::{Cycle, LINE_BYTES};

use crate::prefetch::Prefetcher;
use crate::stats::{CacheStats, KindCounts, is_demand};
use crate::{CacheSpec, Kind, Level, Replacement};

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
const GUESSED: u64 = PREFETCHED | SPECULATIVE;
/// Where the line came from, in three bits.
const LEVEL_SHIFT: u32 = 52;

/// Cycles of a ready word; above them the cycles that the fetch takes.
const READY_BITS: u32 = 48;
const READY_MASK: u64 = (1 << READY_BITS) - 1;

/// Most-distant re-reference of 2-bit SRRIP: the victim.
const RRPV_MAX: u32 = 3;
/// What a line is filled with.
const RRPV_FILL: u32 = 2;

/// A vector whose first element lies at a host cache line, so that the words
/// of one set share as few host lines as possible.
#[derive(Clone, Debug)]
struct Aligned<T> {
    raw: Vec<T>,
    from: usize,
    len: usize,
}

impl<T: Copy> Aligned<T> {
    fn new(value: T, len: usize) -> Self {
        let pad = 64 / size_of::<T>();
        let raw = vec![value; len + pad];
        let from = raw.as_ptr().align_offset(64).min(pad);
        Aligned { raw, from, len }
    }
    #[inline(always)]
    fn get(&self) -> &[T] {
        &self.raw[self.from..self.from + self.len]
    }
    #[inline(always)]
    fn get_mut(&mut self) -> &mut [T] {
        &mut self.raw[self.from..self.from + self.len]
    }
}

/// A line that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub line: u64,
    pub dirty: bool,
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
pub(crate) struct Lines {
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    latency: Cycle,
    own_level: Level,
    replacement: Replacement,
    tags: Aligned<u64>,
    /// LRU: time of last use. SRRIP: re-reference prediction value.
    order: Aligned<u32>,
    ready: Aligned<u64>,
    clock: u32,
    /// SRRIP: where each set's search for a victim begins.
    pointers: Vec<u8>,
    pub mshrs: Occupancy,
    pub prefetcher: Option<Prefetcher>,
    pub kinds: KindCounts,
    pub counts: CacheStats,
}

impl Lines {
    /// An empty cache; refuses what cannot be built with a sentence that names
    /// the key below `name`.
    pub fn new(spec: &CacheSpec, name: &str, level: Level) -> Result<Self, String> {
        let bytes = u64::from(spec.size_kb) * 1024;
        let ways = u64::from(spec.ways);
        if spec.ways == 0 || spec.ways > 128 {
            return Err(format!("{name}.ways is {ways}; a cache has 1 to 128 ways"));
        }
        if bytes == 0 || !bytes.is_multiple_of(ways * LINE_BYTES) {
            return Err(format!(
                "{name}.size_kb is {}, which is not a positive multiple of {name}.ways ({ways}) lines of {LINE_BYTES} bytes",
                spec.size_kb
            ));
        }
        if spec.mshrs == 0 || spec.mshrs > 4096 {
            return Err(format!(
                "{name}.mshrs is {}; a cache has 1 to 4096 MSHRs, or it could never miss",
                spec.mshrs
            ));
        }
        if spec.latency == 0 || spec.latency > 1 << 20 {
            return Err(format!(
                "{name}.latency is {}; load-to-use takes 1 to {} cycles",
                spec.latency,
                1 << 20
            ));
        }
        let prefetcher = match spec.prefetcher {
            Some(p) => Some(Prefetcher::new(p, name)?),
            None => None,
        };
        let sets = bytes / (ways * LINE_BYTES);
        let lines = (sets * ways) as usize;
        Ok(Lines {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            ways: spec.ways as usize,
            latency: spec.latency,
            own_level: level,
            replacement: spec.replacement,
            tags: Aligned::new(EMPTY, lines),
            order: Aligned::new(
                match spec.replacement {
                    Replacement::Lru => 0,
                    Replacement::Srrip => RRPV_MAX,
                },
                lines,
            ),
            ready: Aligned::new(0, lines),
            clock: 0,
            pointers: match spec.replacement {
                Replacement::Lru => vec![],
                Replacement::Srrip => vec![0; sets as usize],
            },
            mshrs: Occupancy::new(spec.mshrs as usize),
            prefetcher,
            kinds: KindCounts::default(),
            counts: CacheStats::default(),
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

    /// Where `line` is, if it is here.
    #[inline(always)]
    pub fn find(&self, line: u64) -> Option<usize> {
        debug_assert!(line < EMPTY);
        let base = self.set(line) * self.ways;
        first_masked_equal(&self.tags.get()[base..base + self.ways], line, LINE_MASK)
            .map(|way| base + way)
    }

    /// The flags of the line at `at`.
    #[inline(always)]
    pub fn flags(&self, at: usize) -> u64 {
        self.tags.get()[at] & !LINE_MASK
    }

    #[inline(always)]
    pub fn set_flags(&mut self, at: usize, flags: u64) {
        self.tags.get_mut()[at] |= flags;
    }

    #[inline(always)]
    pub fn clear_flags(&mut self, at: usize, flags: u64) {
        self.tags.get_mut()[at] &= !flags;
    }

    /// The line at `at` is used.
    #[inline(always)]
    fn touch(&mut self, at: usize) {
        match self.replacement {
            Replacement::Lru => {
                let now = self.tick();
                self.order.get_mut()[at] = now;
            }
            Replacement::Srrip => self.order.get_mut()[at] = 0,
        }
    }

    #[inline(always)]
    fn tick(&mut self) -> u32 {
        if self.clock == u32::MAX {
            self.renumber();
        }
        self.clock += 1;
        self.clock
    }

    /// The clock of uses is at its end: keep the order of each set and begin anew.
    #[cold]
    #[inline(never)]
    fn renumber(&mut self) {
        let mut ways: Vec<usize> = Vec::with_capacity(self.ways);
        for set in self.order.get_mut().chunks_exact_mut(self.ways) {
            ways.clear();
            ways.extend(0..set.len());
            ways.sort_by_key(|&w| (set[w], w));
            for (rank, &w) in ways.iter().enumerate() {
                set[w] = rank as u32;
            }
        }
        self.clock = self.ways as u32;
    }

    /// A request finds its line at `at`: counts it, uses it, waits for it.
    #[inline(always)]
    pub fn hit(&mut self, at: usize, kind: Kind, now: Cycle) -> Hit {
        self.kinds.accesses[kind as usize] += 1;
        if kind != Kind::Speculative {
            self.touch(at);
        }
        let tag = self.tags.get()[at];
        let ready = self.ready.get()[at];
        if ready & READY_MASK <= now && tag & GUESSED == 0 {
            return Hit {
                at: now + self.latency,
                level: self.own_level,
            };
        }
        self.unusual_hit(at, kind, now)
    }

    /// A hit on a line on its way, or on one that was fetched by a guess.
    #[inline(never)]
    fn unusual_hit(&mut self, at: usize, kind: Kind, now: Cycle) -> Hit {
        let word = self.ready.get()[at];
        let mut ready = word & READY_MASK;
        let pending = ready > now;
        if kind != Kind::Speculative {
            self.used(at, pending);
        }
        if !pending {
            return Hit {
                at: now + self.latency,
                level: self.own_level,
            };
        }
        self.kinds.misses[kind as usize] += 1;
        if is_demand(kind) {
            self.counts.merged += 1;
        }
        // Asked for by a request from a later time than this one (requests do
        // not come in order of time): this one brings the line, the other merges.
        let takes = word >> READY_BITS;
        if now + takes < ready {
            ready = now + takes;
            self.ready.get_mut()[at] = ready | takes << READY_BITS;
        }
        Hit {
            at: ready.max(now + self.latency),
            level: self.origin(at),
        }
    }

    /// A guess was right.
    fn used(&mut self, at: usize, pending: bool) {
        let tag = &mut self.tags.get_mut()[at];
        let was = *tag;
        *tag &= !GUESSED;
        if was & PREFETCHED != 0 {
            self.counts.prefetches_useful += 1;
            self.counts.prefetches_late += u64::from(pending);
        }
        if was & SPECULATIVE != 0 {
            self.counts.speculative_useful += 1;
            self.counts.speculative_late += u64::from(pending);
        }
    }

    /// A request does not find its line.
    #[inline(always)]
    pub fn count_miss(&mut self, kind: Kind) {
        self.kinds.accesses[kind as usize] += 1;
        self.kinds.misses[kind as usize] += 1;
    }

    /// A hit without time or counting, but guesses are still judged.
    #[inline(always)]
    pub fn warm_hit(&mut self, at: usize, kind: Kind) {
        if kind != Kind::Speculative {
            self.touch(at);
            if self.tags.get()[at] & GUESSED != 0 {
                self.used(at, false);
            }
        }
    }

    fn origin(&self, at: usize) -> Level {
        match self.tags.get()[at] >> LEVEL_SHIFT & 7 {
            1 => Level::L1,
            2 => Level::L2,
            3 => Level::L3,
            4 => Level::Remote,
            _ => Level::Memory,
        }
    }

    /// Brings in `line`, which is not here, asked for at `asked` and ready at
    /// `ready`; gives what had to go. While warming (`TIMED` false) nothing is
    /// counted, and a guess is a line like others, since nobody counted it as one.
    pub fn fill<const TIMED: bool>(
        &mut self,
        line: u64,
        flags: u64,
        from: Level,
        asked: Cycle,
        ready: Cycle,
    ) -> Option<Victim> {
        let base = self.set(line) * self.ways;
        let at = base + self.victim(base);
        let flags = if TIMED { flags } else { flags & !GUESSED };
        let old = self.tags.get()[at];
        self.tags.get_mut()[at] = line | flags | (from as u64) << LEVEL_SHIFT;
        self.order.get_mut()[at] = match self.replacement {
            Replacement::Lru => self.tick(),
            Replacement::Srrip => RRPV_FILL,
        };
        let takes = ready.saturating_sub(asked).min(u64::from(u16::MAX));
        self.ready.get_mut()[at] = ready | takes << READY_BITS;
        self.counts.fills += u64::from(TIMED);
        self.counts.prefetches_issued += u64::from(flags & PREFETCHED != 0);
        self.counts.speculative_issued += u64::from(flags & SPECULATIVE != 0);
        if old & LINE_MASK == EMPTY {
            return None;
        }
        self.counts.evictions += u64::from(TIMED);
        self.gone(old);
        Some(Victim {
            line: old & LINE_MASK,
            dirty: old & DIRTY != 0,
        })
    }

    /// The line of this tag word leaves: a guess not used until now was useless.
    #[inline(always)]
    fn gone(&mut self, tag: u64) {
        self.counts.prefetches_useless += u64::from(tag & PREFETCHED != 0);
        self.counts.speculative_useless += u64::from(tag & SPECULATIVE != 0);
    }

    /// Takes the line at `at` out; gives its flags.
    pub fn remove(&mut self, at: usize) -> u64 {
        let old = self.tags.get()[at];
        self.gone(old);
        self.tags.get_mut()[at] = EMPTY;
        self.order.get_mut()[at] = match self.replacement {
            Replacement::Lru => 0,
            Replacement::Srrip => RRPV_MAX,
        };
        old & !LINE_MASK
    }

    /// The way that makes room: an empty one if there is any.
    fn victim(&mut self, base: usize) -> usize {
        let ways = self.ways;
        if let Some(empty) =
            first_masked_equal(&self.tags.get()[base..base + ways], EMPTY, LINE_MASK)
        {
            return empty;
        }
        let order = &mut self.order.get_mut()[base..base + ways];
        match self.replacement {
            Replacement::Lru => {
                let mut oldest = u64::MAX;
                for (way, &o) in order.iter().enumerate() {
                    oldest = oldest.min(u64::from(o) << 8 | way as u64);
                }
                (oldest & 0xff) as usize
            }
            Replacement::Srrip => {
                let start = self.pointers[base / ways] as usize;
                // Ageing all until one is at the end is adding what the oldest lacks.
                let lacks = RRPV_MAX - order.iter().copied().max().expect("at least one way");
                if lacks > 0 {
                    for o in order.iter_mut() {
                        *o += lacks;
                    }
                }
                let way = (start..ways)
                    .chain(0..start)
                    .find(|&w| order[w] == RRPV_MAX)
                    .expect("the oldest is at the end");
                self.pointers[base / ways] = ((way + 1) % ways) as u8;
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
        let count = |flag| {
            self.tags
                .get()
                .iter()
                .filter(|&&t| t & LINE_MASK != EMPTY && t & flag != 0)
                .count() as u64
        };
        (count(PREFETCHED), count(SPECULATIVE))
    }

    /// Lines that are here.
    #[cfg(test)]
    pub fn resident(&self) -> u64 {
        self.tags
            .get()
            .iter()
            .filter(|&&t| t & LINE_MASK != EMPTY)
            .count() as u64
    }
}
