//! The walker of elastic cuckoo page tables: cuckoo walk caches (CWCs) and fixed latencies.

use pagewalk_structures::SetAssoc;
use pagewalk_units::{Cycle, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The probes of a walk that fill their lines into the core's own caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptProbes {
    /// All probes, like other walker reads.
    #[default]
    All,
    /// Only the matching probe.
    Matching,
}

/// The walker of elastic cuckoo page tables. Defaults: ME-HPT, table III.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CuckooWalkSpec {
    /// Lines of the fully associative cache of the 2 MB pages' cuckoo walk table; 0 for no such cache. Default 16.
    pub pmd_cwc_entries: u32,
    /// Lines of the fully associative cache of the 1 GB pages' cuckoo walk table; 0 for no such cache. Default 2.
    pub pud_cwc_entries: u32,
    /// Cycles of a lookup in both caches, which are looked up in parallel. Default 4.
    pub cwc_latency: Cycle,
    /// Cycles of the hash functions. Default 2.
    pub hash_latency: Cycle,
    /// Cycles of the shift, the access to the L2P table and the mask, in parallel with the CWC lookup. Default 4.
    pub l2p_latency: Cycle,
    /// The probes of a group that fill their lines into the core's own caches, if the walk waits only for the matching
    /// one: "all", or "matching" (the others read the core's caches and then the shared cache, without allocating in
    /// the core's). Default "all".
    pub kept_probes: KeptProbes,
}

impl Default for CuckooWalkSpec {
    fn default() -> Self {
        CuckooWalkSpec {
            pmd_cwc_entries: 16,
            pud_cwc_entries: 2,
            cwc_latency: 4,
            hash_latency: 2,
            l2p_latency: 4,
            kept_probes: KeptProbes::All,
        }
    }
}

impl CuckooWalkSpec {
    /// Maximum lines of one cache.
    const MAX_ENTRIES: u32 = 1 << 12;
    /// Maximum latency, equal to that of caches.
    const MAX_LATENCY: Cycle = 1 << 20;

    /// Validates the values. An error names the key below `mmu.cuckoo` and the expected values.
    pub fn check(&self) -> Result<(), Error> {
        for (key, entries) in [
            ("pmd_cwc_entries", self.pmd_cwc_entries),
            ("pud_cwc_entries", self.pud_cwc_entries),
        ] {
            if entries > Self::MAX_ENTRIES {
                return Err(Error::key(
                    format!("mmu.cuckoo.{key}"),
                    format!("is {entries}; expected at most {}", Self::MAX_ENTRIES),
                ));
            }
        }
        for (key, cycles) in [
            ("cwc_latency", self.cwc_latency),
            ("hash_latency", self.hash_latency),
            ("l2p_latency", self.l2p_latency),
        ] {
            if cycles > Self::MAX_LATENCY {
                return Err(Error::key(
                    format!("mmu.cuckoo.{key}"),
                    format!("is {cycles}; expected at most {} cycles", Self::MAX_LATENCY),
                ));
            }
        }
        Ok(())
    }
}

pagewalk_stats::counters! {
    /// Counters of a walker of elastic cuckoo page tables.
    pub struct CuckooWalkStats {
        direct: "walks", "Walks for which the walk caches selected one way of one table";
        size: "walks", "Walks for which the walk caches selected the page size: all ways of one table";
        partial: "walks", "Walks for which the walk caches excluded some ways or page sizes";
        complete: "walks", "Walks that began with all ways of all tables, because the walk caches selected none";
        retried: "walks", "Walks that continued with all ways of all tables, because nothing matched in the selected ones";
        probes: "reads", "Lines of page tables that walks requested";
        cwt_fetches: "reads", "Lines of cuckoo walk tables requested, off the walks' critical path";
    }
}

pagewalk_stats::counters! {
    /// Counters of one cache of a cuckoo walk table.
    pub struct CwcStats {
        lookups: "lookups", "Lookups in this cache of a cuckoo walk table";
        hits: "lookups", "Lookups that found a line that was ready";
        fills: "lines", "Lines filled";
    }
}

/// The two cuckoo walk tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cwt {
    /// The walk table of 2 MB pages: a section covers 16 MB, a line 1 GB.
    Pmd,
    /// The walk table of 1 GB pages: a section covers 8 GB, a line 512 GB.
    Pud,
}

/// Result of a CWC lookup of one section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cached {
    /// The section's header, as of the time when the line was fetched.
    Header(u8),
    /// The fill of the line has not completed.
    Pending,
    /// Miss.
    Absent,
}

#[derive(Clone, Copy, Default, Debug)]
struct Line {
    headers: [u64; 8],
    ready: Cycle,
}

impl Line {
    fn header(&self, section: usize) -> u8 {
        (self.headers[section / 8] >> (section % 8 * 8)) as u8
    }
}

/// The cuckoo-table part of a core's walk caches.
#[derive(Clone, Debug)]
pub(crate) struct CuckooWalk {
    /// Indexed by [`Cwt`].
    arrays: [Option<SetAssoc<Line>>; 2],
    counts: [CwcStats; 2],
    pub(crate) stats: CuckooWalkStats,
    /// Cycles before the first probe: without and with an L2P table.
    before: [Cycle; 2],
    matches_only: bool,
}

impl CuckooWalk {
    /// Without caches and latencies.
    pub(crate) fn none() -> Self {
        CuckooWalk {
            arrays: [None, None],
            counts: [CwcStats::default(); 2],
            stats: CuckooWalkStats::default(),
            before: [0; 2],
            matches_only: false,
        }
    }

    /// Empty walk caches.
    pub(crate) fn new(spec: &CuckooWalkSpec) -> Self {
        let array = |n: u32| (n > 0).then(|| SetAssoc::new(1, n as usize));
        let arrays = [array(spec.pmd_cwc_entries), array(spec.pud_cwc_entries)];
        let cwc = if arrays.iter().any(Option::is_some) {
            spec.cwc_latency
        } else {
            0
        };
        CuckooWalk {
            arrays,
            before: [
                spec.hash_latency + cwc,
                spec.hash_latency + cwc.max(spec.l2p_latency),
            ],
            matches_only: spec.kept_probes == KeptProbes::Matching,
            ..CuckooWalk::none()
        }
    }

    /// True if only the matching probe allocates in the core's caches.
    #[inline]
    pub(crate) fn matches_only(&self) -> bool {
        self.matches_only
    }

    /// Cycles from the start of a walk to its first probe.
    #[inline]
    pub(crate) fn before(&self, l2p: bool) -> Cycle {
        self.before[usize::from(l2p)]
    }

    /// Counters of the present caches, by name.
    pub(crate) fn caches(&self) -> impl Iterator<Item = (&'static str, &CwcStats)> {
        ["pmd", "pud"]
            .into_iter()
            .zip(&self.counts)
            .zip(&self.arrays)
            .filter_map(|(row, array)| array.is_some().then_some(row))
    }

    /// The header of `section` in the line of `key`.
    #[inline]
    pub(crate) fn header(
        &mut self,
        cwt: Cwt,
        key: u64,
        section: usize,
        now: Cycle,
        counted: bool,
    ) -> Cached {
        let Some(array) = &mut self.arrays[cwt as usize] else {
            return Cached::Absent;
        };
        let counts = &mut self.counts[cwt as usize];
        counts.lookups += u64::from(counted);
        match array.lookup(key, key) {
            Some(line) if line.ready <= now => {
                counts.hits += u64::from(counted);
                Cached::Header(line.header(section))
            }
            Some(_) => Cached::Pending,
            None => Cached::Absent,
        }
    }

    /// The header of `section` in the line of `key`, if the line is cached and ready. Changes nothing.
    pub(crate) fn peek(&self, cwt: Cwt, key: u64, section: usize, now: Cycle) -> Option<u8> {
        let line = self.arrays[cwt as usize].as_ref()?.peek(key, key)?;
        (line.ready <= now).then(|| line.header(section))
    }

    /// Inserts a line that is valid from `ready` on.
    pub(crate) fn keep(
        &mut self,
        cwt: Cwt,
        key: u64,
        headers: [u64; 8],
        ready: Cycle,
        counted: bool,
    ) {
        if let Some(array) = &mut self.arrays[cwt as usize] {
            array.insert(key, key, Line { headers, ready });
            self.counts[cwt as usize].fills += u64::from(counted);
        }
    }

    /// True if there is a cache for `cwt`.
    pub(crate) fn has(&self, cwt: Cwt) -> bool {
        self.arrays[cwt as usize].is_some()
    }

    /// Keeps only the lines whose key `keep` accepts.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        for array in self.arrays.iter_mut().flatten() {
            array.retain(|k, _| keep(k));
        }
    }
}
