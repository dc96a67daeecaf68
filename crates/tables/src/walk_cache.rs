//! Walk caches: defined here, owned for each core by the MMU.

use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Cycle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Lookups and hits of each array.
    pub counts: Vec<[u64; 2]>,
    /// Whether lookups are counted: not while warming.
    pub counting: bool,
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
            counts: vec![[0; 2]; n],
            counting: true,
        }
    }

    /// Forgets everything of `asid` (an INVLPG drops all paging-structure
    /// entries of the address space: Intel SDM vol. 3, 4.10.4.1).
    pub fn invalidate(&mut self, asid: Asid) {
        for a in &mut self.arrays {
            a.retain(|k, _| k >> 48 != u64::from(asid.0));
        }
    }
}

/// The caches as a table sees them during a walk: bound to a time and an
/// address space, so that only entries that are ready answer.
pub struct WalkCaches<'a> {
    set: &'a mut WalkCacheSet,
    /// The address space, where it stands in a key.
    space: u64,
    /// When the reads so far are back.
    pub now: Cycle,
    /// Cycles that lookups have cost since the last group.
    pub spent: Cycle,
}

impl<'a> WalkCaches<'a> {
    /// A view of `set` for a walk of `asid` that stands at `now`.
    pub fn new(set: &'a mut WalkCacheSet, asid: Asid, now: Cycle) -> Self {
        WalkCaches {
            set,
            space: u64::from(asid.0) << 48,
            now,
            spent: 0,
        }
    }

    fn key(&self, key: u64) -> u64 {
        debug_assert!(key < 1 << 48);
        self.space | key
    }

    /// The payload of `key` in array `id`. Arrays are looked up in parallel:
    /// the latency is spent once.
    #[inline(always)]
    pub fn lookup(&mut self, id: usize, key: u64) -> Option<u64> {
        self.spent = self.set.latency;
        let k = self.key(key);
        let counted = u64::from(self.set.counting);
        let array = self.set.arrays.get_mut(id)?;
        let [lookups, hits] = &mut self.set.counts[id];
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
        }
    }
}
