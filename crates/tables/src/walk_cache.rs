//! Walk caches: defined here, owned for each core by the MMU.

use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Cycle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cwc::{Cached, CuckooWalk, Cwt};
use crate::{CuckooWalkSpec, CuckooWalkStats, CwcStats, MOST_PARALLEL};

/// Page-walk caches: one array a level of the table above the leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSpec {
    /// Entries of each array; 0 switches the walk caches off.
    pub entries: u32,
    /// Ways of each array (= entries: fully associative).
    pub ways: u32,
    /// Cycles from the start of a walk to the answer of all arrays, looked up in parallel.
    pub latency: Cycle,
    /// Whether the arrays are looked up one after the other, from the one next to the leaves on; each then takes the latency. Default false.
    #[serde(default)]
    pub serial: bool,
}

/// Which walk caches the walks of a table look into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WalkCacheKind {
    /// One array a level of the table: [`WalkCacheSpec`].
    #[default]
    Levels,
    /// Caches of cuckoo walk tables: [`CuckooWalkSpec`].
    Cuckoo,
    /// None.
    Nothing,
}

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    payload: u64,
    ready: Cycle,
}

/// The walk caches of one core.
#[derive(Clone, Debug)]
pub struct WalkCacheSet {
    arrays: Vec<SetAssoc<Entry>>,
    latency: Cycle,
    /// 1 if the latency is spent by each lookup, 0 if once by all of them.
    serial: Cycle,
    cuckoo: CuckooWalk,
    /// Lookups, hits and fills of each array.
    pub counts: Vec<[u64; 3]>,
    /// Whether lookups and fills are counted: not while warming.
    pub counting: bool,
    /// When each read of the last group on a walk's path was back.
    pub arrived: [Cycle; MOST_PARALLEL],
}

impl WalkCacheSet {
    /// `arrays` empty caches of the same geometry.
    pub fn new(spec: &WalkCacheSpec, arrays: usize) -> Self {
        let n = if spec.entries == 0 { 0 } else { arrays };
        let ways = spec.ways.clamp(1, spec.entries.max(1)) as usize;
        let sets = (spec.entries as usize / ways).max(1);
        WalkCacheSet {
            arrays: vec![SetAssoc::new(sets, ways); n],
            latency: if n == 0 { 0 } else { spec.latency },
            serial: u64::from(spec.serial),
            cuckoo: CuckooWalk::none(),
            counts: vec![[0; 3]; n],
            counting: true,
            arrived: [0; MOST_PARALLEL],
        }
    }

    /// Entries of each array.
    pub fn entries(&self) -> usize {
        self.arrays.first().map_or(0, SetAssoc::entries)
    }

    /// The same with the caches and latencies that walks of cuckoo tables need.
    #[must_use]
    pub fn with_cuckoo(mut self, spec: &CuckooWalkSpec) -> Self {
        self.cuckoo = CuckooWalk::new(spec);
        self
    }

    /// What walks of cuckoo tables counted.
    pub fn cuckoo_stats(&self) -> &CuckooWalkStats {
        &self.cuckoo.stats
    }

    /// What each cache of cuckoo walk tables counted, by name.
    pub fn cwc_stats(&self) -> impl Iterator<Item = (&'static str, &CwcStats)> {
        self.cuckoo.caches()
    }

    /// Forgets everything of `asid` (an INVLPG drops all paging-structure
    /// entries of the address space: Intel SDM vol. 3, 4.10.4.1).
    pub fn invalidate(&mut self, asid: Asid) {
        for a in &mut self.arrays {
            a.retain(|k, _| k >> 48 != u64::from(asid.0));
        }
        self.cuckoo.retain(|k| k >> 48 != u64::from(asid.0));
    }
}

/// The caches as a table sees them during a walk: bound to a time and an
/// address space, so that only entries that are ready answer.
pub struct WalkCaches<'a> {
    set: &'a mut WalkCacheSet,
    /// The address space, where it stands in a key.
    space: u64,
    /// When the reads so far are back. A table that does not need all of a group
    /// sets it back to the read that it waits for ([`WalkCaches::arrived`]).
    pub now: Cycle,
    /// Cycles that lookups have cost since the last group.
    pub spent: Cycle,
    /// When the last group that was off the walk's path is back.
    pub back: Cycle,
}

impl<'a> WalkCaches<'a> {
    /// A view of `set` for a walk of `asid` that stands at `now`.
    pub fn new(set: &'a mut WalkCacheSet, asid: Asid, now: Cycle) -> Self {
        WalkCaches {
            set,
            space: u64::from(asid.0) << 48,
            now,
            spent: 0,
            back: now,
        }
    }

    /// When read `index` of the last group on the walk's path was back.
    #[inline]
    pub fn arrived(&self, index: usize) -> Cycle {
        self.set.arrived[index]
    }
    /// Notes when that was.
    #[inline]
    pub fn arrive(&mut self, index: usize, at: Cycle) {
        self.set.arrived[index] = at;
    }

    fn key(&self, key: u64) -> u64 {
        debug_assert!(key < 1 << 48);
        self.space | key
    }

    /// The payload of `key` in array `id`. Arrays are looked up in parallel, and
    /// the latency is spent once, or one after the other.
    #[inline(always)]
    pub fn lookup(&mut self, id: usize, key: u64) -> Option<u64> {
        self.spent = self.spent * self.set.serial + self.set.latency;
        let k = self.key(key);
        let counted = u64::from(self.set.counting);
        let array = self.set.arrays.get_mut(id)?;
        let [lookups, hits, _] = &mut self.set.counts[id];
        *lookups += counted;
        match array.lookup(key, k) {
            Some(e) if e.ready <= self.now => {
                *hits += counted;
                Some(e.payload)
            }
            _ => None,
        }
    }

    /// Puts `key` into array `id`, ready from now on.
    #[inline(never)]
    pub fn fill(&mut self, id: usize, key: u64, payload: u64) {
        let k = self.key(key);
        let ready = self.now;
        if let Some(array) = self.set.arrays.get_mut(id) {
            array.insert(key, k, Entry { payload, ready });
            self.set.counts[id][2] += u64::from(self.set.counting);
        }
    }

    /// Starts a walk of cuckoo tables: the hash functions, and beside each other
    /// the caches of walk tables and, with `l2p`, the L2P table.
    #[inline]
    pub(crate) fn begin_cuckoo(&mut self, l2p: bool) {
        self.spent = self.set.cuckoo.before(l2p);
    }

    /// What is known of `section` in the line of `key` of a cuckoo walk table.
    #[inline]
    pub(crate) fn section(&mut self, cwt: Cwt, key: u64, section: usize) -> Cached {
        let (k, counted) = (self.key(key), self.set.counting);
        self.set.cuckoo.header(cwt, k, section, self.now, counted)
    }

    /// Whether there is a cache of this walk table.
    #[inline]
    pub(crate) fn caches(&self, cwt: Cwt) -> bool {
        self.set.cuckoo.has(cwt)
    }

    /// Keeps a line of a cuckoo walk table that has been read off the path.
    pub(crate) fn keep_line(&mut self, cwt: Cwt, key: u64, headers: [u64; 8]) {
        let (k, counted) = (self.key(key), self.set.counting);
        self.set.cuckoo.keep(cwt, k, headers, self.back, counted);
    }

    /// Whether probes that do not match leave nothing in the core's caches.
    #[inline]
    pub fn keeps_matches_only(&self) -> bool {
        self.set.cuckoo.matches_only()
    }

    /// Where a walk of cuckoo tables counts itself; nowhere while warming.
    #[inline]
    pub(crate) fn cuckoo_stats(&mut self) -> Option<&mut CuckooWalkStats> {
        let set = &mut *self.set;
        set.counting.then_some(&mut set.cuckoo.stats)
    }
}

#[cfg(test)]
mod tests {
    use super::{WalkCacheSet, WalkCacheSpec, WalkCaches};
    use pagewalk_units::Asid;

    #[test]
    fn lookups_in_turn_cost_each_and_lookups_side_by_side_once() {
        for (serial, spent) in [(false, 4), (true, 12)] {
            let spec = WalkCacheSpec {
                entries: 32,
                ways: 32,
                latency: 4,
                serial,
            };
            let mut set = WalkCacheSet::new(&spec, 3);
            let mut caches = WalkCaches::new(&mut set, Asid(1), 0);
            for array in 0..3 {
                assert_eq!(caches.lookup(array, 7), None);
            }
            assert_eq!(caches.spent, spent);
        }
    }
}
