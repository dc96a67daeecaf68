//! Walk caches. Each core's MMU owns one set.

use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Cycle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cwc::{Cached, CuckooWalk, Cwt};
use crate::{CuckooWalkSpec, CuckooWalkStats, CwcStats, MOST_PARALLEL};

/// Page-walk caches: one array for each level of the table above the leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSpec {
    /// Entries of each array; 0 disables the walk caches.
    pub entries: u32,
    /// Ways of each array (= entries: fully associative).
    pub ways: u32,
    /// Cycles from the start of a walk to the result of all arrays, which are looked up in parallel.
    pub latency: Cycle,
    /// Look up the arrays one after the other, beginning with the one next to the leaves; each lookup takes the
    /// latency. Default false.
    #[serde(default)]
    pub serial: bool,
}

/// The kind of walk caches that the walks of a table use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WalkCacheKind {
    /// One array for each level of the table: [`WalkCacheSpec`].
    #[default]
    Levels,
    /// Caches of cuckoo walk tables: [`CuckooWalkSpec`].
    Cuckoo,
    /// No walk caches.
    Nothing,
}

impl WalkCacheKind {
    /// True if filtered functional warming has a form of such caches: recently walked regions of
    /// each level of a tree.
    pub fn can_filtered_warm(self) -> bool {
        self == WalkCacheKind::Levels
    }
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
    /// 1 if each lookup takes the latency, 0 if parallel lookups take it once.
    serial: Cycle,
    cuckoo: CuckooWalk,
    /// Lookups, hits and fills of each array.
    pub counts: Vec<[u64; 3]>,
    /// True if lookups and fills are counted; false during warming.
    pub counting: bool,
    /// Completion time of each read of the last group on the walk's path.
    pub arrived: [Cycle; MOST_PARALLEL],
}

impl WalkCacheSet {
    /// `arrays` empty caches of equal geometry.
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

    /// Adds the caches and latencies for walks of cuckoo tables.
    #[must_use]
    pub fn with_cuckoo(mut self, spec: &CuckooWalkSpec) -> Self {
        self.cuckoo = CuckooWalk::new(spec);
        self
    }

    /// Counters of walks of cuckoo tables.
    pub fn cuckoo_stats(&self) -> &CuckooWalkStats {
        &self.cuckoo.stats
    }

    /// Counters of each cache of cuckoo walk tables, by name.
    pub fn cwc_stats(&self) -> impl Iterator<Item = (&'static str, &CwcStats)> {
        self.cuckoo.caches()
    }

    /// Invalidates all entries of `asid` (INVLPG drops all paging-structure cache entries of the address space: Intel
    /// SDM vol. 3, 4.10.4.1).
    pub fn invalidate(&mut self, asid: Asid) {
        for a in &mut self.arrays {
            a.retain(|k, _| k >> 48 != u64::from(asid.0));
        }
        self.cuckoo.retain(|k| k >> 48 != u64::from(asid.0));
    }
}

/// The walk caches during one walk, bound to a time and an address space. Only entries whose fill has completed hit.
pub struct WalkCaches<'a> {
    set: &'a mut WalkCacheSet,
    /// The address space, in its key position.
    space: u64,
    /// Completion time of the reads so far. A table that needs only one read of a group sets it back to that read
    /// ([`WalkCaches::arrived`]).
    pub now: Cycle,
    /// Cycles spent on lookups since the last group.
    pub spent: Cycle,
    /// Completion time of the last group off the walk's path.
    pub back: Cycle,
}

impl<'a> WalkCaches<'a> {
    /// A view of `set` for a walk of `asid` at time `now`.
    pub fn new(set: &'a mut WalkCacheSet, asid: Asid, now: Cycle) -> Self {
        WalkCaches {
            set,
            space: u64::from(asid.0) << 48,
            now,
            spent: 0,
            back: now,
        }
    }

    /// Completion time of read `index` of the last group on the walk's path.
    #[inline]
    pub fn arrived(&self, index: usize) -> Cycle {
        self.set.arrived[index]
    }
    /// Records the completion time of read `index`.
    #[inline]
    pub fn arrive(&mut self, index: usize, at: Cycle) {
        self.set.arrived[index] = at;
    }

    fn key(&self, key: u64) -> u64 {
        debug_assert!(key < 1 << 48);
        self.space | key
    }

    /// Looks up `key` in array `id` and returns its payload. Adds the latency once for parallel lookups, or for each
    /// serial lookup.
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

    /// Inserts `key` into array `id`. The entry is valid from [`WalkCaches::now`] on.
    #[inline(never)]
    pub fn fill(&mut self, id: usize, key: u64, payload: u64) {
        let k = self.key(key);
        let ready = self.now;
        if let Some(array) = self.set.arrays.get_mut(id) {
            array.insert(key, k, Entry { payload, ready });
            self.set.counts[id][2] += u64::from(self.set.counting);
        }
    }

    /// Starts a walk of cuckoo tables. Adds the latency of the hash functions and of the parallel lookups in the CWCs
    /// and, with `l2p`, in the L2P table.
    #[inline]
    pub(crate) fn begin_cuckoo(&mut self, l2p: bool) {
        self.spent = self.set.cuckoo.before(l2p);
    }

    /// Looks up the header of `section` in the line of `key` of a cuckoo walk table.
    #[inline]
    pub(crate) fn section(&mut self, cwt: Cwt, key: u64, section: usize) -> Cached {
        let (k, counted) = (self.key(key), self.set.counting);
        self.set.cuckoo.header(cwt, k, section, self.now, counted)
    }

    /// The header of `section` in the line of `key`, if its cache has it now. Changes nothing.
    pub(crate) fn peek_section(&self, cwt: Cwt, key: u64, section: usize) -> Option<u8> {
        self.set.cuckoo.peek(cwt, self.key(key), section, self.now)
    }

    /// True if this walk table has a cache.
    #[inline]
    pub(crate) fn caches(&self, cwt: Cwt) -> bool {
        self.set.cuckoo.has(cwt)
    }

    /// Fills a line of a cuckoo walk table that was read off the walk's path.
    pub(crate) fn keep_line(&mut self, cwt: Cwt, key: u64, headers: [u64; 8]) {
        let (k, counted) = (self.key(key), self.set.counting);
        self.set.cuckoo.keep(cwt, k, headers, self.back, counted);
    }

    /// True if only the matching probe allocates in the core's caches.
    #[inline]
    pub fn keeps_matches_only(&self) -> bool {
        self.set.cuckoo.matches_only()
    }

    /// Counters of walks of cuckoo tables. `None` during warming.
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
