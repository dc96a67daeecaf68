//! Contract of all replacement policies, and known results of each.

use pagewalk_units::{Asid, PageSize, rng};
use proptest::prelude::*;
use rand::RngExt;

use super::{HitVisibility, Replacement};
use crate::TlbReplacement;
use crate::tlb::oracle_test::array;
use crate::tlb::{Tlb, TlbEntry, key};

const A: Asid = Asid(1);

fn of(page: u64) -> u64 {
    key(A, PageSize::K4, page << 12)
}

/// Accesses a page, and fills it on a miss. Returns true on a hit.
fn access(tlb: &mut Tlb, page: u64) -> bool {
    match tlb.find(of(page)) {
        Some(slot) => {
            tlb.touch(slot);
            true
        }
        None => {
            tlb.fill(of(page), TlbEntry::new(page << 12, true, 0), true);
            false
        }
    }
}

/// Number of hits of a sequence of accesses.
fn hits(tlb: &mut Tlb, pages: impl IntoIterator<Item = u64>) -> u64 {
    let hit = |page| u64::from(access(tlb, page));
    pages.into_iter().map(hit).sum()
}

/// Narrow sets and wide ones, for which searches and LRU have separate code.
fn shapes() -> impl Strategy<Value = (u32, u32)> {
    (
        1u32..5,
        prop_oneof![6 => 1u32..20, 1 => 31u32..34, 1 => 127u32..131],
    )
}

/// Accesses, and occasionally (0) an invalidation.
fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
    let page = prop_oneof![3 => 0u64..40, 1 => 0u64..400];
    prop::collection::vec((0u8..12, page), 1..500)
}

proptest! {
    /// A fill takes a way of its set, the first free one if there is any (under LRU any free one),
    /// and changes no other entry.
    #[test]
    fn free_ways_are_filled_first_and_one_entry_goes_from_a_full_set(
        (sets, ways) in shapes(), steps in steps(),
    ) {
        for (name, policy) in TlbReplacement::all() {
            let mut tlb = array(sets, ways, policy);
            for &(what, page) in &steps {
                if what == 0 {
                    tlb.drop_page(A, page << 12);
                    continue;
                }
                let before = tlb.keys();
                if access(&mut tlb, page) {
                    prop_assert_eq!(before, tlb.keys());
                    continue;
                }
                let changed: Vec<usize> = (before.iter().zip(&tlb.keys()).enumerate())
                    .filter_map(|(slot, (a, b))| (a != b).then_some(slot))
                    .collect();
                let [slot] = changed[..] else { panic!("{name}: {changed:?} changed") };
                let first = (page % u64::from(sets)) as usize * ways as usize;
                let set = first..first + ways as usize;
                prop_assert!(set.contains(&slot), "{}: in another set", name);
                prop_assert_eq!(tlb.keys()[slot], of(page));
                if let Some(free) = set.clone().find(|&s| before[s] == u64::MAX) {
                    prop_assert_eq!(before[slot], u64::MAX, "{}: {} is free", name, free);
                    prop_assert!(policy == TlbReplacement::Lru || slot == free, "{}", name);
                }
            }
        }
    }

    /// Equal steps leave equal state, with and without random draws. If a policy draws nothing and
    /// keeps no state across sets, the sets are independent.
    #[test]
    fn a_seed_and_its_steps_decide_all((sets, ways) in shapes(), steps in steps()) {
        for (name, policy) in TlbReplacement::all() {
            let run = |sets: u32, only: Option<u64>| {
                let mut tlb = array(sets, ways, policy);
                let mut answers = vec![];
                for &(what, page) in &steps {
                    if only.is_some_and(|set| page % 4 != set) {
                        continue;
                    }
                    if what == 0 {
                        tlb.drop_page(A, page << 12);
                    } else {
                        answers.push((page, access(&mut tlb, page)));
                    }
                }
                (answers, tlb.state())
            };
            prop_assert_eq!(run(sets, None), run(sets, None), "{}", name);
            if ["lru", "lfu", "srrip"].contains(&name) {
                let (all, _) = run(4, None);
                for set in 0..4 {
                    let of_set: Vec<_> = all.iter().filter(|a| a.0 % 4 == set).copied().collect();
                    prop_assert_eq!(of_set, run(4, Some(set)).0, "{}", name);
                }
            }
        }
    }

    /// Uses that a policy declares that it need not see do not change its state.
    #[test]
    fn a_policy_sees_all_that_it_has_to((sets, ways) in shapes(), steps in steps()) {
        for (name, policy) in TlbReplacement::all() {
            let hit_visibility = policy.hit_visibility();
            if hit_visibility == HitVisibility::EveryUse {
                continue;
            }
            let mut tlb = array(sets, ways, policy);
            for &(_, page) in &steps {
                let hit = access(&mut tlb, page);
                if hit || hit_visibility == HitVisibility::NoRepeat {
                    let before = tlb.state();
                    access(&mut tlb, page);
                    prop_assert_eq!(before, tlb.state(), "{}", name);
                }
            }
        }
    }

    /// LRU is a stack algorithm (Mattson et al., 1970): with more ways in as many sets, every
    /// earlier hit remains a hit.
    #[test]
    fn more_ways_of_lru_never_miss_more(
        (sets, ways) in shapes(), more in 1u32..20, steps in steps(),
    ) {
        let mut small = array(sets, ways, TlbReplacement::Lru);
        let mut large = array(sets, ways + more, TlbReplacement::Lru);
        for &(_, page) in &steps {
            let hit = access(&mut small, page);
            prop_assert!(access(&mut large, page) >= hit, "page {page}");
        }
    }

    /// The five steps of section 4.1, one after the other.
    #[test]
    fn srrip_is_that_of_the_paper((sets, ways) in shapes(), steps in steps()) {
        let mut tlb = array(sets, ways, TlbReplacement::Srrip);
        let mut paper = vec![vec![None::<(u64, u8)>; ways as usize]; sets as usize];
        for &(what, page) in &steps {
            let set = &mut paper[(page % u64::from(sets)) as usize];
            let way = set.iter().position(|w| w.is_some_and(|(held, _)| held == page));
            if what == 0 {
                tlb.drop_page(A, page << 12);
                if let Some(way) = way {
                    set[way] = None;
                }
                continue;
            }
            prop_assert_eq!(access(&mut tlb, page), way.is_some());
            if let Some(way) = way {
                set[way] = Some((page, 0));
                continue;
            }
            let victim = loop {
                let goes = |w: &Option<(u64, u8)>| w.is_none_or(|(_, distance)| distance == 3);
                let free = set.iter().position(Option::is_none);
                if let Some(way) = free.or_else(|| set.iter().position(goes)) {
                    break way;
                }
                set.iter_mut().flatten().for_each(|(_, distance)| *distance += 1);
            };
            set[victim] = Some((page, 2));
        }
        let held: Vec<u64> = (paper.iter().flatten())
            .map(|w| w.map_or(u64::MAX, |(page, _)| of(page)))
            .collect();
        prop_assert_eq!(tlb.keys(), held);
    }
}

/// A cycle of one page more than there are ways. Under LRU the next page is always the one that was
/// just replaced. So it is under SRRIP, whose entries are used once and are replaced from the first
/// way on. LFU replaces its newest entry: in a round all pages hit except the absent one and the
/// one that it replaces. Under random replacement each of the other pages is equally likely to be
/// absent: misses are (N + 1) / 2 accesses apart.
#[test]
fn a_cycle_that_does_not_fit() {
    for ways in [4u32, 16, 40] {
        let (n, turns) = (u64::from(ways), 4000);
        let cycle = |turns| (0..turns * (n + 1)).map(move |i| i % (n + 1));
        for (name, policy) in TlbReplacement::all() {
            let mut tlb = array(1, ways, policy);
            hits(&mut tlb, cycle(10));
            let share = hits(&mut tlb, cycle(turns)) as f64 / (turns * (n + 1)) as f64;
            let expected = match name {
                "lru" | "srrip" => 0.0,
                "lfu" => (n - 1) as f64 / (n + 1) as f64,
                "random" => (n - 1) as f64 / (n + 1) as f64,
                _ => continue,
            };
            assert!(
                (share - expected).abs() < 0.01,
                "{name}, {ways} ways: {share}"
            );
        }
    }
}

/// Under SRRIP, used entries that hold H of N ways survive a scan of up to 3 (N - H) pages. Each
/// third of the scan ages them once, and only scanned pages are replaced meanwhile. Under LRU they
/// survive a scan of at most N - H pages.
#[test]
fn what_was_used_outlives_a_scan() {
    for (ways, hot) in [(8u32, 2u64), (16, 12), (64, 16)] {
        let free = u64::from(ways) - hot;
        let left = |policy, scan: u64| {
            let mut tlb = array(1, ways, policy);
            for _ in 0..2 {
                hits(&mut tlb, 0..hot);
            }
            assert_eq!(hits(&mut tlb, 1000..1000 + scan), 0);
            (0..hot).filter(|&p| tlb.find(of(p)).is_some()).count() as u64
        };
        for (policy, longest) in [
            (TlbReplacement::Srrip, 3 * free),
            (TlbReplacement::Lru, free),
        ] {
            assert_eq!(left(policy, longest), hot, "{policy:?}, {ways} ways");
            assert_eq!(
                left(policy, longest + 1),
                hot - 1,
                "{policy:?}, {ways} ways"
            );
        }
    }
}

/// Every way is equally frequent, within five standard deviations.
#[test]
fn a_victim_at_random_is_any() {
    for ways in [1u32, 3, 16, 33] {
        let mut tlb = array(1, ways, TlbReplacement::Random);
        hits(&mut tlb, 0..u64::from(ways));
        let mut went = vec![0u32; ways as usize];
        let draws = 60_000;
        for page in 0..draws {
            let slot = tlb.fill(of(1000 + page), TlbEntry::default(), true);
            went[slot] += 1;
        }
        let (mean, p) = (draws as f64 / f64::from(ways), 1.0 / f64::from(ways));
        let deviation = (mean * (1.0 - p)).sqrt();
        for n in went {
            assert!(
                (f64::from(n) - mean).abs() <= 5.0 * deviation,
                "{n} of {mean}"
            );
        }
    }
}

/// Each name builds its own policy.
#[test]
fn names_are_those_of_their_policies() {
    for (name, policy) in TlbReplacement::all() {
        assert_eq!(policy.check(), Ok(()), "{name}");
        let built = format!("{:?}", policy.build(2, 2, rng(1, "test")));
        assert!(built.to_lowercase().starts_with(name), "{name}: {built}");
    }
    assert!(matches!(
        TlbReplacement::default().build(1, 1, rng(1, "test")),
        Replacement::Lru(_)
    ));
    // Random streams of different names differ.
    let mut two = [
        "core.0.mmu.l2.main.replacement",
        "core.1.mmu.l2.main.replacement",
    ]
    .map(|name| rng(1, name));
    let [a, b] = &mut two;
    assert_ne!(a.random::<u64>(), b.random::<u64>());
}
