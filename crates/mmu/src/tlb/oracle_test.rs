//! The array compared with simple models of its policies.

use pagewalk_structures::StaleOutcomes;
use pagewalk_units::{Asid, PageSize, rng};
use proptest::prelude::*;
use rand::RngExt;

use super::{EMPTY, Tlb, TlbEntry, TlbSlot, key};
use crate::replacement::Replacement;
use crate::{TlbReplacement, TlbSpec};

impl Tlb {
    /// State that determines replacement: under LRU the keys in order of use, else the key of each
    /// way; and the policy's own state.
    pub fn state(&self) -> (Vec<u64>, String) {
        let keys = if self.lru {
            self.in_order_of_use()
        } else {
            self.keys()
        };
        (keys, format!("{:?}", self.policy))
    }

    /// Key of each way.
    pub fn keys(&self) -> Vec<u64> {
        self.slots.iter().map(|s| s.key).collect()
    }

    /// Under LFU: key and number of uses of each way.
    fn uses(&self) -> Vec<u64> {
        let Replacement::Lfu(lfu) = &self.policy else {
            panic!("counts no uses")
        };
        let ways = self.slots.iter().zip(lfu.uses());
        ways.flat_map(|(s, &uses)| [s.key, if s.key == EMPTY { 0 } else { uses }])
            .collect()
    }

    /// Keys, most recently used first.
    fn in_order_of_use(&self) -> Vec<u64> {
        let mut all = vec![];
        for (set, slots) in self.slots.chunks(self.ways).enumerate() {
            if !self.ranked
                && let Replacement::Lru(lru) = &self.policy
            {
                all.extend(lru.order(set).map(|way| slots[way].key));
            } else {
                let ranks = &self.heads[set].ranks;
                let mut slots: Vec<&TlbSlot> = slots.iter().collect();
                slots.sort_by_key(|s| ranks.of(usize::from(s.way)));
                all.extend(slots.iter().map(|s| s.key));
            }
        }
        all
    }
}

/// Creates an array for 4 KB pages.
pub(crate) fn array(sets: u32, ways: u32, replacement: TlbReplacement) -> Tlb {
    let spec = TlbSpec {
        page_sizes: vec![PageSize::K4],
        entries: sets * ways,
        ways,
        latency: 1,
        replacement,
    };
    Tlb::new("main", &spec, rng(1, "test.array"))
}

/// Model of the array: lists of keys, most recently used first.
struct Oracle {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Oracle {
    fn set(&mut self, number: u64) -> &mut Vec<u64> {
        let n = self.sets.len() as u64;
        &mut self.sets[(number % n) as usize]
    }
}

proptest! {
    #[test]
    fn an_array_replaces_the_least_recently_used(
        sets in 1u32..6, ways in prop_oneof![8 => 1u32..20, 1 => 30u32..50, 1 => 127u32..131], steps in prop::collection::vec((0u8..8, prop_oneof![3 => 0u64..60, 1 => 0u64..160]), 1..400),
    ) {
        let mut tlb = array(sets, ways, TlbReplacement::Lru);
        let mut oracle = Oracle { sets: vec![vec![]; sets as usize], ways: ways as usize };
        let asid = Asid(3);
        for (what, number) in steps {
            let va = number << 12;
            let k = key(asid, PageSize::K4, va);
            let most = oracle.ways;
            let set = oracle.set(number);
            let place = set.iter().position(|&x| x == k);
            prop_assert_eq!(tlb.cover(asid, va).is_some(), place.is_some());
            match what {
                0 => {
                    tlb.drop_page(asid, va);
                    set.retain(|&x| x != k);
                }
                1..=3 => {
                    let entry = TlbEntry::new(number << 12, true, 0);
                    match tlb.find(k) {
                        Some(slot) => {
                            tlb.refill(slot, entry, true, true);
                        }
                        None => {
                            tlb.fill(k, entry, true);
                        }
                    }
                    set.retain(|&x| x != k);
                    set.insert(0, k);
                    set.truncate(most);
                }
                _ => {
                    if let Some(slot) = tlb.cover(asid, va) {
                        tlb.touch(slot);
                        prop_assert_eq!(tlb.mapping(slot).frame, va);
                        set.retain(|&x| x != k);
                        set.insert(0, k);
                    }
                }
            }
            let held: Vec<u64> = tlb.in_order_of_use().into_iter().filter(|&x| x != EMPTY).collect();
            prop_assert_eq!(held, oracle.sets.concat());
        }
    }
}

/// Model of an LFU array: keys and uses of its ways.
struct Counts {
    sets: Vec<Vec<Option<(u64, u64)>>>,
}

impl Counts {
    fn way(&mut self, set: usize, k: u64) -> Option<&mut Option<(u64, u64)>> {
        let mut ways = self.sets[set].iter_mut();
        ways.find(|w| w.is_some_and(|(held, _)| held == k))
    }

    fn put(&mut self, set: usize, k: u64) {
        let ways = &mut self.sets[set];
        let mut victim = 0;
        for way in 0..ways.len() {
            let Some((_, uses)) = ways[way] else {
                victim = way;
                break;
            };
            if ways[victim].is_some_and(|(_, fewest)| uses < fewest) {
                victim = way;
            }
        }
        ways[victim] = Some((k, 1));
    }
}

fn lfu(sets: u32, ways: u32) -> Tlb {
    array(sets, ways, TlbReplacement::Lfu)
}

proptest! {
    #[test]
    fn an_array_replaces_the_least_frequently_used(
        sets in 1u32..6, ways in prop_oneof![8 => 1u32..20, 1 => 127u32..131], steps in prop::collection::vec((0u8..12, prop_oneof![3 => 0u64..60, 1 => 0u64..600]), 1..600),
    ) {
        let mut tlb = lfu(sets, ways);
        let mut oracle = Counts { sets: vec![vec![None; ways as usize]; sets as usize] };
        let asid = Asid(3);
        for (what, number) in steps {
            let va = number << 12;
            let k = key(asid, PageSize::K4, va);
            let set = (number % u64::from(sets)) as usize;
            let entry = TlbEntry::new(va, true, 0);
            match (what, tlb.find(k), oracle.way(set, k)) {
                (0, found, way) => {
                    prop_assert_eq!(found.is_some(), way.is_some());
                    tlb.drop_page(asid, va);
                    if let Some(way) = way {
                        *way = None;
                    }
                }
                (1, Some(slot), Some(_)) => {
                    tlb.refill(slot, entry, true, false);
                }
                (2, Some(slot), Some(Some((_, uses)))) => {
                    tlb.refill(slot, entry, true, true);
                    *uses += 1;
                }
                (_, Some(slot), Some(Some((_, uses)))) => {
                    prop_assert_eq!(tlb.mapping(slot).frame, va);
                    tlb.touch(slot);
                    *uses += 1;
                }
                (_, None, None) => {
                    tlb.fill(k, entry, true);
                    oracle.put(set, k);
                }
                (_, found, way) => prop_assert_eq!(found.is_some(), way.is_some()),
            }
            let held = oracle.sets.iter().flatten();
            let expected: Vec<u64> = held.flat_map(|w| w.map_or([EMPTY, 0], |(k, n)| [k, n])).collect();
            prop_assert_eq!(tlb.uses(), expected);
        }
    }
}

#[test]
fn the_lowest_way_goes_among_those_used_equally_often() {
    let mut tlb = lfu(1, 4);
    let page = |n: u64| key(Asid(1), PageSize::K4, n << 12);
    let mut fill = |n: u64| tlb.fill(page(n), TlbEntry::new(n << 12, true, 0), true);
    // Four free ways, then way 0 repeatedly: its entry has one use, as the others have.
    let ways: Vec<usize> = (0..10).map(&mut fill).collect();
    assert_eq!(ways, [0, 1, 2, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!((tlb.fills, tlb.evictions), (10, 6));
    // With a second use way 0 stays, and the next lowest is replaced.
    tlb.touch(0);
    let mut fill = |n: u64| tlb.fill(page(n), TlbEntry::new(n << 12, true, 0), true);
    assert_eq!([fill(10), fill(11)], [1, 1]);
    // A free way is filled before any other is replaced, whatever its last entry's count.
    tlb.touch(3);
    tlb.touch(3);
    tlb.drop_page(Asid(1), 3 << 12);
    let mut fill = |n: u64| tlb.fill(page(n), TlbEntry::new(n << 12, true, 0), true);
    assert_eq!([fill(12), fill(13)], [3, 1]);
}

/// Model of a set: keys with the time of their last use, most recently used first. The last use of
/// each empty way, the one emptied last at the end.
#[derive(Clone)]
struct Marked {
    keys: Vec<(u64, u64)>,
    empty: Vec<u64>,
}

/// More gaps than there are epochs, and sometimes pages that were unused for hundreds of them.
#[test]
fn what_is_older_than_the_gap_is_not_known_however_many_gaps_there_were() {
    let asid = Asid(3);
    for (sets, ways) in [(4u32, 1u32), (2, 4), (1, 16), (1, 40)] {
        let mut tlb = array(sets, ways, TlbReplacement::Lru);
        let none = Marked {
            keys: vec![],
            empty: vec![0; ways as usize],
        };
        let mut model = vec![none; sets as usize];
        let mut want = StaleOutcomes::default();
        let mut r = rng(6, "test.marks");
        for now in 0..1200u64 {
            // Mostly few pages, so that others become old.
            let pages = if now % 257 < 2 {
                60
            } else {
                1 + u64::from(ways) / 4
            };
            for _ in 0..r.random_range(0..30) {
                let number = r.random_range(0..pages);
                let va = number << 12;
                let k = key(asid, PageSize::K4, va);
                let set = &mut model[(number % u64::from(sets)) as usize];
                let mut used = set
                    .empty
                    .iter()
                    .chain(set.keys.iter().map(|(_, used)| used));
                let before = used.any(|&used| used != now);
                let there = set.keys.iter().position(|&(held, _)| held == k);
                assert_eq!(tlb.find(k).is_some(), there.is_some());
                match (tlb.find(k), there) {
                    (Some(_), Some(i)) if r.random_range(0..6) == 0 => {
                        tlb.drop_page(asid, va);
                        let (_, used) = set.keys.remove(i);
                        set.empty.push(used);
                    }
                    (Some(slot), Some(i)) => {
                        tlb.touch(slot);
                        let (_, used) = set.keys.remove(i);
                        want.hits += u64::from(used != now);
                        set.keys.insert(0, (k, now));
                    }
                    _ => {
                        tlb.fill(k, TlbEntry::new(va, true, 0), true);
                        if set.empty.pop().is_none() {
                            set.keys.pop();
                        }
                        want.misses += u64::from(before);
                        set.keys.insert(0, (k, now));
                    }
                }
                assert_eq!(tlb.stale, want, "{ways} ways after {now} gaps");
            }
            tlb.mark_stale();
        }
        assert!(want.hits > 100 && want.misses > 100);
    }
}

#[test]
fn an_entry_not_used_for_hundreds_of_gaps_is_of_before_under_any_policy() {
    for replacement in [TlbReplacement::Lru, TlbReplacement::Srrip] {
        for gaps in [1, 254, 255, 256, 510, 600] {
            let mut tlb = array(1, 4, replacement);
            for begun in [0u64, 1, 100, 254] {
                (0..begun).for_each(|_| tlb.mark_stale());
                let k = key(Asid(3), PageSize::K4, begun << 12);
                let slot = tlb.fill(k, TlbEntry::new(begun << 12, true, 0), true);
                (0..gaps).for_each(|_| tlb.mark_stale());
                let before = tlb.stale.hits;
                tlb.touch(slot);
                tlb.touch(slot);
                assert_eq!(tlb.stale.hits, before + 1, "{begun}+{gaps}");
            }
        }
    }
}
