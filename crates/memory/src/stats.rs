//! Counters of the memory system.

use crate::RequestKind;

pagewalk_stats::counters! {
    /// Counters of one cache. `accesses`, `hits` and `misses` count demand requests: loads, stores,
    /// fetches and walks. Guesses of prefetchers and engines are separate.
    pub struct CacheStats {
        accesses: "accesses", "Demand accesses (hits + misses): loads, stores, instruction fetches and walkers' reads";
        hits: "accesses", "Demand accesses that found the line ready";
        misses: "accesses", "Demand accesses that found no line, or a line in flight";
        merged: "accesses", "Demand misses that merged with an outstanding request for the line";
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
        software_prefetch_accesses: "accesses", "Accesses by software prefetches";
        software_prefetch_misses: "accesses", "Misses of software prefetches";
        fills: "lines", "Lines filled, by requests of any kind";
        evictions: "lines", "Lines evicted to make room";
        writebacks: "lines", "Dirty lines sent to the level below";
        updates: "lines", "Dirty lines from the level above that overwrote a copy in this cache; a line without a copy is a fill";
        invalidated: "lines", "Lines invalidated because another core writes or flushes them";
        upgrades: "accesses", "Stores to a present line that other cores may share, and that therefore requested ownership first";
        prefetches_issued: "lines", "Lines requested by this cache's prefetcher";
        prefetches_useful: "lines", "Prefetched lines that a request used before their eviction";
        prefetches_useless: "lines", "Prefetched lines that were never used";
        prefetches_late: "lines", "Useful prefetched lines that were still in flight at their first use";
        speculative_issued: "lines", "Lines fetched into this cache for speculation engines";
        speculative_useful: "lines", "Speculatively fetched lines that a request used before their eviction";
        speculative_useless: "lines", "Speculatively fetched lines that were never used";
        speculative_late: "lines", "Useful speculatively fetched lines that were still in flight at their first use";
        mshr_wait_cycles: "cycles", "Sum of the times that misses waited for a free MSHR";
    }
}

pagewalk_stats::counters! {
    /// Counters of the directory at the shared cache, for machines with several cores.
    pub struct DirectoryStats {
        invalidations_sent: "lines", "Lines invalidated in a core because another core writes or flushes them";
        remote_hits: "accesses", "Accesses served by another core's private cache, which held the line dirty";
        upgrades: "accesses", "Stores to lines that the core held in shared state";
        gauge lines: "lines", "Lines in any private cache";
    }
}

pagewalk_stats::counters! {
    /// Counters of one memory channel.
    pub struct DramStats {
        reads: "lines", "Lines read";
        writes: "lines", "Lines written, and parts of lines that write-combining buffers wrote before they were full";
        row_hits: "accesses", "Accesses that found their row open";
        row_misses: "accesses", "Accesses that found no row open in their bank";
        row_conflicts: "accesses", "Accesses that found another row open in their bank";
        bus_busy_ps: "ps", "Time that the data bus was occupied by lines";
        bank_wait_ps: "ps", "Sum of the times that accesses waited for their bank";
        bus_wait_ps: "ps", "Sum of the times that accesses waited for the data bus";
        latency_ps: "ps", "Sum of the read latencies, from the controller's request to the line, queueing included";
    }
}

/// Hits and misses by kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindCounts {
    /// Hits, by [`RequestKind`].
    pub hits: [u64; 7],
    /// Misses, by [`RequestKind`].
    pub misses: [u64; 7],
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
            software_prefetch_accesses,
        ] = std::array::from_fn(|kind| self.hits[kind] + self.misses[kind]);
        let [
            load_misses,
            store_misses,
            fetch_misses,
            walk_misses,
            prefetch_misses,
            speculative_misses,
            software_prefetch_misses,
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
            software_prefetch_accesses,
            software_prefetch_misses,
            ..rest
        }
    }
}

/// Number of demand kinds, which come first: see [`RequestKind`].
const DEMAND: usize = 4;

/// True if requests of this kind are demand requests, not guesses.
#[inline(always)]
pub(crate) fn is_demand(kind: RequestKind) -> bool {
    (kind as usize) < DEMAND
}
