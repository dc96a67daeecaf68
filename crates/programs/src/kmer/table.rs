//! The counters: nibbles in one flat array, and a cuckoo hash map (libcuckoo 0.3) for counts above 15.

use rustc_hash::FxHashMap;

/// Slots per bucket, and bytes per bucket: four keys with values, four one-byte tags, four one-byte flags.
pub const SLOTS: usize = 4;
pub const BUCKET: u64 = 72;
/// Offsets of tags and flags in a bucket.
pub const TAGS: u64 = 64;
pub const FLAGS: u64 = 68;
/// The map begins with 2^16 buckets, which is also its maximum number of locks.
pub const FIRST_POWER: u32 = 16;
/// Address space is reserved for up to 2^26 buckets, 268 million k-mers.
pub const LAST_POWER: u32 = 26;
/// Maximum buckets visited by a search for a free slot (paths of up to five moves).
const SEARCH: usize = 512;
const FREE: u64 = u64::MAX;

/// The hash of a k-mer (`Kmer::hash`, the finaliser of splitmix64).
pub fn hash(kmer: u64) -> u64 {
    let mut z = kmer.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The byte of a hash that a bucket stores.
pub fn tag(hash: u64) -> u8 {
    let half = hash as u32 ^ (hash >> 32) as u32;
    let quarter = half as u16 ^ (half >> 16) as u16;
    quarter as u8 ^ (quarter >> 8) as u8
}

/// The other bucket of a key in `bucket`.
pub fn other(bucket: u64, tag: u8, power: u32) -> u64 {
    let spread = (u64::from(tag) + 1).wrapping_mul(0xc6a4_a793_5bd1_e995);
    (bucket ^ spread) & ((1 << power) - 1)
}

/// Outcome of an upsert.
pub enum Done {
    /// The key was found in this slot of its first or second bucket.
    Found { second: bool, slot: usize },
    /// It was inserted into this free slot.
    Placed { second: bool, slot: usize },
    /// No slot was free. The search visited `visited`. The entries of `path`, the free slot first, each moved
    /// one position.
    Moved {
        visited: Vec<u64>,
        path: Vec<(u64, usize)>,
    },
    /// The table was doubled. Each entry moved from a bucket and slot to another. The caller retries.
    Grown(Vec<[(u64, usize); 2]>),
}

/// State of a slot in a search for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TableSlot {
    Free,
    /// Another key with another tag.
    Other,
    /// The key, or another key with the same tag.
    Tagged,
}

/// Keys of the map. Their values are the counts above 15.
pub struct Cuckoo {
    pub power: u32,
    keys: Vec<[u64; SLOTS]>,
}

impl Cuckoo {
    /// An empty map.
    pub fn new() -> Self {
        Cuckoo {
            power: FIRST_POWER,
            keys: vec![[FREE; SLOTS]; 1 << FIRST_POWER],
        }
    }

    /// First and second bucket of a key.
    pub fn buckets(&self, key: u64) -> [u64; 2] {
        let hash = hash(key);
        let first = hash & ((1 << self.power) - 1);
        [first, other(first, tag(hash), self.power)]
    }

    /// States of the slots of a key's buckets.
    pub fn slots(&self, key: u64) -> [[TableSlot; SLOTS]; 2] {
        let tagged = tag(hash(key));
        self.buckets(key).map(|bucket| {
            self.keys[bucket as usize].map(|k| match k {
                FREE => TableSlot::Free,
                k if tag(hash(k)) == tagged => TableSlot::Tagged,
                _ => TableSlot::Other,
            })
        })
    }

    /// Finds or inserts `key` as `cuckoo_insert` does: the whole first bucket, then the second, then a
    /// breadth-first search.
    pub fn upsert(&mut self, key: u64) -> Done {
        let buckets = self.buckets(key);
        let mut free = None;
        for (second, bucket) in [false, true].into_iter().zip(buckets) {
            let slots = &self.keys[bucket as usize];
            if let Some(slot) = slots.iter().position(|k| *k == key) {
                return Done::Found { second, slot };
            }
            if free.is_none() {
                // The last free slot, as the loop over the slots leaves it.
                free = slots.iter().rposition(|k| *k == FREE).map(|s| (second, s));
            }
        }
        if let Some((second, slot)) = free {
            self.keys[buckets[usize::from(second)] as usize][slot] = key;
            return Done::Placed { second, slot };
        }
        self.make_room(key, buckets)
    }

    fn make_room(&mut self, key: u64, buckets: [u64; 2]) -> Done {
        // Bucket, the search step that led to it, and the slot through which it was reached.
        let mut queue: Vec<(u64, usize, usize)> = buckets.map(|b| (b, usize::MAX, 0)).to_vec();
        let mut at = 0;
        while at < queue.len() {
            let bucket = queue[at].0;
            if let Some(slot) = self.keys[bucket as usize].iter().position(|k| *k == FREE) {
                let mut path = vec![(bucket, slot)];
                let mut step = at;
                while queue[step].1 != usize::MAX {
                    let (_, from, slot) = queue[step];
                    path.push((queue[from].0, slot));
                    step = from;
                }
                for pair in path.windows(2) {
                    let moved = self.keys[pair[1].0 as usize][pair[1].1];
                    self.keys[pair[0].0 as usize][pair[0].1] = moved;
                }
                let (bucket, slot) = path[path.len() - 1];
                self.keys[bucket as usize][slot] = key;
                let visited = queue[..=at].iter().map(|q| q.0).collect();
                return Done::Moved { visited, path };
            }
            for slot in 0..SLOTS {
                if queue.len() < SEARCH {
                    let moved = self.keys[bucket as usize][slot];
                    let next = other(bucket, tag(hash(moved)), self.power);
                    queue.push((next, at, slot));
                }
            }
            at += 1;
        }
        Done::Grown(self.grow())
    }

    /// Doubles the table. An entry moves to the bucket of the same number, or to the one half a table
    /// further.
    fn grow(&mut self) -> Vec<[(u64, usize); 2]> {
        let old = std::mem::take(&mut self.keys);
        let before = self.power;
        self.power += 1;
        self.keys = vec![[FREE; SLOTS]; 1 << self.power];
        let mut moves = Vec::new();
        for (bucket, keys) in (0u64..).zip(old) {
            let mut far = 0;
            for (slot, key) in keys.into_iter().enumerate().filter(|k| k.1 != FREE) {
                let [first, second] = self.buckets(key);
                let low = (1 << before) - 1;
                let to = if first & low == bucket { first } else { second };
                let place = if to == bucket {
                    slot
                } else {
                    far += 1;
                    far - 1
                };
                self.keys[to as usize][place] = key;
                moves.push([(bucket, slot), (to, place)]);
            }
        }
        moves
    }
}

/// Count per k-mer.
#[derive(Default)]
pub struct Counts(FxHashMap<u64, u32>);

impl Counts {
    /// Increments the count of `kmer`. Returns the old count.
    pub fn add(&mut self, kmer: u64) -> u32 {
        let count = self.0.entry(kmer).or_default();
        *count += 1;
        *count - 1
    }

    /// All keys with their counts, in ascending order.
    #[cfg(test)]
    pub fn sorted(&self) -> Vec<(u64, u32)> {
        let mut all: Vec<(u64, u32)> = self.0.iter().map(|(k, n)| (*k, *n)).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{Cuckoo, Done, FIRST_POWER, FREE};

    #[test]
    fn keys_stay_in_one_of_their_buckets_through_moves_and_growth() {
        let mut map = Cuckoo::new();
        let keys = 400_000u64;
        let (mut moved, mut grown) = (0, 0);
        for key in 0..keys {
            loop {
                match map.upsert(key * 7919) {
                    Done::Found { .. } => panic!("{key} was there"),
                    Done::Placed { .. } => break,
                    Done::Moved { .. } => {
                        moved += 1;
                        break;
                    }
                    Done::Grown(moves) => {
                        assert!(moves.len() > 4 * 65_536 * 9 / 10, "{}", moves.len());
                        grown += 1;
                    }
                }
            }
        }
        // Four slots per bucket and two buckets per key allow an occupancy above 95 %.
        assert_eq!((map.power, grown), (FIRST_POWER + 1, 1));
        assert!(moved > 1000, "{moved}");
        for key in 0..keys {
            assert!(matches!(map.upsert(key * 7919), Done::Found { .. }));
        }
        let held: usize = map.keys.iter().flatten().filter(|k| **k != FREE).count();
        assert_eq!(held as u64, keys);
    }
}
