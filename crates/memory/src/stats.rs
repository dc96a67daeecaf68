//! Counters of the memory system.

use crate::RequestKind;

pagewalk_stats::counters! {
    /// Counters of one cache. `accesses`, `hits` and `misses` count demand requests: loads, stores,
    /// fetches and walks. Guesses of prefetchers and engines are separate.
    pub struct CacheStats {
        accesses: "accesses", "Demand accesses: loads, stores, instruction fetches and walkers' reads; hits + misses";
        hits: "accesses", "Demand accesses that found the line ready";
        misses: "accesses", "Demand accesses that found no line, or one still on its way";
        merged: "accesses", "Demand misses to a line on its way, which wait for it instead of asking below";
        loads: "accesses", "Accesses for data reads";
        load_misses: "accesses", "Misses of data reads";
        stores: "accesses", "Accesses for data writes";
        store_misses: "accesses", "Misses of data writes";
        fetches: "accesses", "Accesses for instruction fetches";
        fetch_misses: "accesses", "Misses of instruction fetches";
        walks: "accesses", "Accesses by page walkers";
        walk_misses: "accesses", "Misses of page walkers";
        prefetch_accesses: "accesses", "Accesses by the prefetchers of the levels above";
        prefetch_misses: "accesses", "Misses of the prefetchers of the levels above";
        speculative_accesses: "accesses", "Accesses by speculation engines";
        speculative_misses: "accesses", "Misses of speculation engines";
        fills: "lines", "Lines brought in, for whatever reason";
        evictions: "lines", "Lines that made room for others";
        writebacks: "lines", "Dirty lines sent to the level below";
        updates: "lines", "Dirty lines from the level above that were written over the copy here; one that is not here is a fill";
        invalidated: "lines", "Lines given up because another core writes them";
        upgrades: "accesses", "Stores to a line that is here but that other cores may hold, and so had to ask first";
        prefetches_issued: "lines", "Lines that this cache's prefetcher asked for";
        prefetches_useful: "lines", "Prefetched lines that a request used before they went";
        prefetches_useless: "lines", "Prefetched lines that went unused";
        prefetches_late: "lines", "Useful prefetched lines that were still on their way when first used";
        speculative_issued: "lines", "Lines fetched into this cache for speculation engines";
        speculative_useful: "lines", "Speculatively fetched lines that a request used before they went";
        speculative_useless: "lines", "Speculatively fetched lines that went unused";
        speculative_late: "lines", "Useful speculatively fetched lines that were still on their way when first used";
        mshr_wait_cycles: "cycles", "Time that misses waited for a free MSHR";
    }
}

pagewalk_stats::counters! {
    /// Counters of the directory at the shared cache, for machines with several cores.
    pub struct DirectoryStats {
        invalidations_sent: "lines", "Lines taken from a core because another one writes them";
        remote_hits: "accesses", "Accesses served by another core's private cache, which had the line dirty";
        upgrades: "accesses", "Stores to lines that the core held for reading";
        gauge lines: "lines", "Lines in any private cache";
    }
}

pagewalk_stats::counters! {
    /// Counters of one memory channel.
    pub struct DramStats {
        reads: "lines", "Lines read";
        writes: "lines", "Lines written";
        row_hits: "accesses", "Accesses that found their row open";
        row_misses: "accesses", "Accesses that found no row open in their bank";
        row_conflicts: "accesses", "Accesses that found another row open in their bank";
        bus_busy_ps: "ps", "Time that the data bus carried lines";
        bank_wait_ps: "ps", "Time that accesses waited for their bank";
        bus_wait_ps: "ps", "Time that accesses waited for the data bus";
        latency_ps: "ps", "Sum over reads of the time from the controller's request to the line, waiting included";
    }
}

/// Hits and misses by kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindCounts {
    pub hits: [u64; 6],
    pub misses: [u64; 6],
}

impl KindCounts {
    /// Adds the counters that are sums over kinds to `rest`.
    pub fn into_stats(self, rest: CacheStats) -> CacheStats {
        let [
            loads,
            stores,
            fetches,
            walks,
            prefetch_accesses,
            speculative_accesses,
        ] = std::array::from_fn(|kind| self.hits[kind] + self.misses[kind]);
        let [
            load_misses,
            store_misses,
            fetch_misses,
            walk_misses,
            prefetch_misses,
            speculative_misses,
        ] = self.misses;
        CacheStats {
            accesses: loads + stores + fetches + walks,
            hits: self.hits[..DEMAND].iter().sum(),
            misses: self.misses[..DEMAND].iter().sum(),
            loads,
            load_misses,
            stores,
            store_misses,
            fetches,
            fetch_misses,
            walks,
            walk_misses,
            prefetch_accesses,
            prefetch_misses,
            speculative_accesses,
            speculative_misses,
            ..rest
        }
    }
}

/// Number of demand kinds, which come first: see [`RequestKind`].
const DEMAND: usize = 4;

/// True if requests of this kind are demand requests, not guesses.
#[inline(always)]
pub(crate) fn is_demand(kind: RequestKind) -> bool {
    !matches!(kind, RequestKind::Prefetch | RequestKind::Speculative)
}
