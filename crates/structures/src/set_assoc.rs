//! A set-associative array with least-recently-used replacement: TLBs, walk caches.

/// `sets` x `ways` entries of a 64-bit key and a value. Any number of sets:
/// the set is `index mod sets`. Keys must be complete (two different entries
/// never share one) and never `u64::MAX`.
#[derive(Clone, Debug)]
pub struct SetAssoc<V> {
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    keys: Vec<u64>,
    stamps: Vec<u64>,
    values: Vec<V>,
    clock: u64,
}

const EMPTY: u64 = u64::MAX;

impl<V: Copy + Default> SetAssoc<V> {
    /// An empty array of `sets` x `ways`; both at least 1.
    pub fn new(sets: usize, ways: usize) -> Self {
        assert!(
            sets > 0 && ways > 0,
            "an array has at least one set and one way"
        );
        SetAssoc {
            sets: sets as u64,
            mask: sets.is_power_of_two().then(|| sets as u64 - 1),
            ways,
            keys: vec![EMPTY; sets * ways],
            stamps: vec![0; sets * ways],
            values: vec![V::default(); sets * ways],
            clock: 0,
        }
    }

    #[inline]
    fn base(&self, index: u64) -> usize {
        let set = match self.mask {
            Some(m) => index & m,
            None => index % self.sets,
        };
        set as usize * self.ways
    }

    #[inline]
    fn find(&self, base: usize, key: u64) -> Option<usize> {
        self.keys[base..base + self.ways]
            .iter()
            .position(|&k| k == key)
            .map(|w| base + w)
    }

    /// The value of `key` in the set of `index`, made most recently used.
    #[inline]
    pub fn lookup(&mut self, index: u64, key: u64) -> Option<&mut V> {
        let at = self.find(self.base(index), key)?;
        self.clock += 1;
        self.stamps[at] = self.clock;
        Some(&mut self.values[at])
    }

    /// The value of `key`, leaving the order of use as it is.
    pub fn peek(&self, index: u64, key: u64) -> Option<&V> {
        self.find(self.base(index), key).map(|at| &self.values[at])
    }

    /// Puts `key` in as most recently used; gives what it replaced: an older
    /// value of the same key, or the least recently used entry of a full set.
    pub fn insert(&mut self, index: u64, key: u64, value: V) -> Option<(u64, V)> {
        debug_assert_ne!(key, EMPTY);
        let base = self.base(index);
        self.clock += 1;
        let at = self
            .find(base, key)
            .or_else(|| self.find(base, EMPTY))
            .unwrap_or_else(|| {
                let stamps = &self.stamps[base..base + self.ways];
                base + stamps
                    .iter()
                    .enumerate()
                    .min_by_key(|e| e.1)
                    .expect("at least one way")
                    .0
            });
        let old = (self.keys[at] != EMPTY).then(|| (self.keys[at], self.values[at]));
        self.keys[at] = key;
        self.stamps[at] = self.clock;
        self.values[at] = value;
        old
    }

    /// Takes `key` out.
    pub fn remove(&mut self, index: u64, key: u64) -> Option<V> {
        let at = self.find(self.base(index), key)?;
        self.keys[at] = EMPTY;
        self.stamps[at] = 0;
        Some(self.values[at])
    }

    /// Keeps the entries for which `keep(key, value)` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        for at in 0..self.keys.len() {
            if self.keys[at] != EMPTY && !keep(self.keys[at], &self.values[at]) {
                self.keys[at] = EMPTY;
                self.stamps[at] = 0;
            }
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.keys.iter().filter(|&&k| k != EMPTY).count()
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> usize {
        self.keys.len()
    }
}
