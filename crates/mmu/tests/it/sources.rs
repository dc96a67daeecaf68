//! The contract of translation sources, which every registered kind must fulfil.

use std::collections::BTreeMap;

use pagewalk_mmu::source::{
    CoalescedSpec, ColtFaSpec, Groups, L3TlbSpec, RangeTlbSpec, VictimaSpec,
};
use pagewalk_mmu::{ServedBy, TranslationSpec};
use pagewalk_stats::Tree;
use pagewalk_tables::PomTlbSpec;
use pagewalk_units::{Access, PageSize, Rng, rng};
use rand::RngExt;

use crate::common::{Flat, L2_TLB};
use crate::cores::{Cores, DRAM, MB2, tiny};

/// A case for each kind, small enough to evict.
fn cases() -> Vec<(&'static str, TranslationSpec)> {
    let none = TranslationSpec::default;
    let coalesced = |pages, groups| TranslationSpec {
        coalesced: Some(CoalescedSpec { pages, groups }),
        ..none()
    };
    let l3_tlb = |shared| TranslationSpec {
        l3_tlb: Some(L3TlbSpec {
            page_sizes: vec![PageSize::K4, PageSize::M2],
            entries: 64,
            ways: 4,
            latency: 20,
            shared,
        }),
        ..none()
    };
    vec![
        (
            "pom_tlb",
            TranslationSpec {
                pom_tlb: Some(PomTlbSpec {
                    entries_4kb: 64,
                    entries_2mb: 8,
                    size_predictor: 4,
                }),
                ..none()
            },
        ),
        (
            "colt_fa",
            TranslationSpec {
                colt_fa: Some(ColtFaSpec {
                    entries: 4,
                    ..ColtFaSpec::default()
                }),
                ..none()
            },
        ),
        (
            "range_tlb",
            TranslationSpec {
                range_tlb: Some(RangeTlbSpec {
                    entries: 4,
                    ..RangeTlbSpec::default()
                }),
                ..none()
            },
        ),
        (
            "victima",
            TranslationSpec {
                victima: Some(VictimaSpec {
                    least_costly: 0,
                    ..VictimaSpec::default()
                }),
                ..none()
            },
        ),
        (
            "victima",
            TranslationSpec {
                victima: Some(VictimaSpec {
                    window: 8,
                    ..VictimaSpec::default()
                }),
                ..none()
            },
        ),
        ("l3_tlb", l3_tlb(false)),
        ("l3_tlb", l3_tlb(true)),
        ("coalesced", coalesced(4, Groups::Line)),
        ("coalesced", coalesced(16, Groups::Hint)),
    ]
}

/// Two cores with the sources of `spec`. A second level in whose place a source may be has 16
/// entries.
fn cores(spec: &TranslationSpec) -> Cores {
    let mut unit = tiny();
    if spec.replaces_l2() {
        let array = unit.l2.get_mut("main").expect("main");
        (array.entries, array.ways) = (16, 4);
    }
    Cores::with(2, &unit, spec)
}

/// Frames that continue those of the neighbouring pages, mostly.
fn frames(r: &mut Rng, va: u64, size: PageSize) -> u64 {
    let block = MB2 * (1 + va / MB2) + (1 << 30);
    match size {
        PageSize::K4 if r.random_range(0..8) == 0 => r.random_range(0..1u64 << 20) << 12,
        PageSize::K4 => block + (va & (MB2 - 1) & !0xfff),
        _ => block,
    }
}

/// The counters of all cores and of what they share.
fn counters(b: &Cores) -> BTreeMap<(String, &'static str), u64> {
    let mut tree = Tree::default();
    for (n, c) in b.cores.iter().enumerate() {
        c.mmu.report(&format!("core.{n}.mmu"), &mut tree);
    }
    b.shared.iter().for_each(|part| part.report(&mut tree));
    let rows = tree.rows.into_iter();
    rows.map(|row| ((row.path, row.definition.name), row.value))
        .collect()
}

#[test]
fn every_kind_has_a_case() {
    let mut named: Vec<&str> = cases().iter().map(|(name, _)| *name).collect();
    named.dedup();
    let mut kinds = TranslationSpec::NAMES.to_vec();
    named.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(named, kinds);
}

#[test]
fn no_translation_is_ever_out_of_date_and_the_same_steps_count_the_same() {
    for (name, spec) in cases() {
        for nested in [false, true] {
            let run = || {
                let mut b = cores(&spec);
                b.host = nested.then(|| Flat::new(1 << 47));
                b.access_and_change(&format!("test.sources.{name}"), 30_000, frames);
                counters(&b)
            };
            let counted = run();
            assert_eq!(counted, run(), "{name}");
            let hits: u64 = (counted.iter())
                .filter(|((path, counter), _)| path.contains(name_of(name)) && *counter == "hits")
                .map(|(_, value)| value)
                .sum();
            if nested && name == "range_tlb" {
                assert_eq!(hits, 0, "a guest's ranges are not those of physical memory");
                continue;
            }
            assert!(hits > 20, "{name}: {hits} hits, nested: {nested}");
        }
    }
}

/// Name of a kind in the statistics.
fn name_of(kind: &str) -> &str {
    match kind {
        "pom_tlb" => "in_memory_tlb",
        other => other,
    }
}

/// Every translation is counted once, by the part that had it.
#[test]
fn each_translation_is_counted_by_the_part_that_had_it() {
    for (name, spec) in cases() {
        let mut b = cores(&spec);
        for page in 0..256u64 {
            b.small(page, page + 4096);
        }
        let mut r = rng(5, "test.sources.served");
        let mut served = [0u64; 4];
        for n in 0..4000u64 {
            let va = r.random_range(0..256u64) << 12;
            // Far enough apart that no translation waits for another.
            let part = match b.translate(0, va, 10_000 * n).from {
                ServedBy::L1 => 0,
                ServedBy::L2 => 1,
                ServedBy::Source(_) => 2,
                ServedBy::Walk => 3,
            };
            served[part] += 1;
        }
        let counted = |path: &str, counter| b.get(0, path, counter);
        // The second level may have what a source beside it has, too.
        let counter = ["hits", "served"][usize::from(name == "range_tlb")];
        let own = counted(&format!("mmu.{}", name_of(name)), counter);
        assert_eq!(served[1], counted("mmu", "l2_hits"), "{name}");
        assert_eq!(served[2], own, "{name}");
        assert_eq!(served[3], counted("mmu", "walks"), "{name}");
        assert!(served[2] > 0 && served[3] > 0, "{name}: {served:?}");
        assert_eq!(served.iter().sum::<u64>(), counted("mmu", "translations"));
        let avoided = counted(&format!("mmu.{}.asked", name_of(name)), "walks_avoided");
        let behind = ["pom_tlb", "l3_tlb", "victima"].contains(&name);
        assert_eq!(avoided, if behind { own } else { 0 }, "{name}");
    }
}

#[test]
fn warming_leaves_what_a_timed_run_leaves_and_counts_nothing() {
    for (name, spec) in cases() {
        let state = |timed: bool| {
            let mut b = cores(&spec);
            let mut r = rng(7, "test.sources.warm");
            for page in 0..600 {
                let frame = frames(&mut r, page << 12, PageSize::K4);
                b.small(page, frame >> 12);
            }
            b.large(2, 9);
            let va = |page: u64| {
                if page < 600 {
                    page << 12
                } else {
                    2 * MB2 + ((page - 600) << 12)
                }
            };
            for n in 0..5000u64 {
                let page = r.random_range(0..620);
                let now = timed.then_some(10_000 * n);
                b.try_translate(0, 1, va(page), Access::Read, now)
                    .expect("mapped");
            }
            if !timed {
                for ((path, counter), value) in counters(&b) {
                    // Gauges tell what is there.
                    let gauge = path == "in_memory_tlb";
                    assert!(value == 0 || gauge, "{name}: {path} {counter}");
                }
            }
            let mut answers = Vec::new();
            for page in 0..620 {
                let now = 1_000_000_000 + 10_000 * page;
                answers.push(b.translate(0, va(page), now).from);
            }
            answers
        };
        let warmed = state(false);
        assert_eq!(warmed, state(true), "{name}");
        let source = |from: &ServedBy| matches!(from, ServedBy::Source(_));
        assert!(warmed.iter().any(source), "{name}");
    }
}

/// The second level's miss, the third level's lookup, and the walk after it.
#[test]
fn a_third_level_is_looked_up_between_the_second_and_the_walk() {
    for shared in [false, true] {
        let (_, mut spec) = cases()
            .into_iter()
            .find(|(n, _)| *n == "l3_tlb")
            .expect("a case");
        let l3 = spec.l3_tlb.as_mut().expect("a third level");
        (l3.shared, l3.latency) = (shared, 20);
        let mut b = cores(&spec);
        for page in 0..64u64 {
            b.small(page, page + 4096);
        }
        let first = b.translate(0, 5 << 12, 0);
        assert_eq!(first.ready, L2_TLB + 20 + DRAM);
        b.translate(0, 40 << 12, 10_000);
        let again = b.translate(0, 5 << 12, 20_000);
        assert_eq!(again.ready, 20_000 + L2_TLB + 20);
        assert_eq!(again.from, ServedBy::Source(0));
        // The other core finds it only in a shared level.
        let other = b.translate(1, 5 << 12, 30_000);
        assert_eq!(other.from == ServedBy::Source(0), shared);
    }
}

/// Pages in consecutive frames, each accessed once: one walk for each entry's reach.
#[test]
fn a_sweep_over_contiguous_pages_walks_once_for_each_entry() {
    let none = TranslationSpec::default;
    let coalesced = |pages, groups| TranslationSpec {
        coalesced: Some(CoalescedSpec { pages, groups }),
        ..none()
    };
    let colt_fa = TranslationSpec {
        colt_fa: Some(ColtFaSpec::default()),
        ..none()
    };
    let walks = |spec: &TranslationSpec, frame: fn(u64) -> u64| {
        let mut b = cores(spec);
        for page in 0..512 {
            b.small(page, frame(page));
        }
        for page in 0..512 {
            b.translate(0, page << 12, 10_000 * page);
        }
        b.get(0, "mmu", "walks")
    };
    let contiguous = |page| page + 4096;
    // The line of a page-table entry holds eight of them.
    assert_eq!(walks(&colt_fa, contiguous), 512 / 8);
    assert_eq!(walks(&coalesced(4, Groups::Line), contiguous), 512 / 4);
    assert_eq!(walks(&coalesced(16, Groups::Line), contiguous), 512 / 8);
    assert_eq!(walks(&coalesced(16, Groups::Hint), contiguous), 512 / 16);
    // Frames that are consecutive, but not aligned as a group, have no hint.
    let shifted = |page| page + 4097;
    assert_eq!(walks(&coalesced(4, Groups::Line), shifted), 512 / 4);
    assert_eq!(walks(&coalesced(16, Groups::Hint), shifted), 512);
    // No two frames are consecutive.
    let apart = |page| 2 * page + 4096;
    for spec in [colt_fa, coalesced(4, Groups::Line)] {
        assert_eq!(walks(&spec, apart), 512);
    }
}

/// After a fast-forward, a hit on an older entry might have been a miss. A miss where older entries
/// are left might have been a hit.
#[test]
fn lookups_that_older_entries_decide_are_counted() {
    for (name, spec) in cases() {
        let mut b = cores(&spec);
        for page in [0, 16, 32, 48] {
            (page..page + 8).for_each(|page| b.small(page, page + 4096));
        }
        let mut now = 0;
        let mut look = |b: &mut Cores, page: u64| {
            now += 10_000;
            b.translate(0, page << 12, now).from
        };
        for page in [0, 16, 32] {
            look(&mut b, page);
        }
        // The TLBs beside colt_fa and range_tlb, which hold one page, are filled by the walk, too.
        let (level, misses) = match name {
            "colt_fa" => (0, 2),
            "range_tlb" => (1, 2),
            "coalesced" => (1, 1),
            _ => (2, 1),
        };
        let stale = |b: &Cores| {
            let mmu = &b.cores[0].mmu;
            let [first, second] = mmu.stale();
            let found = [first, second, mmu.stale_behind()][level];
            (found.hits, found.misses)
        };
        assert_eq!(stale(&b), (0, 0), "{name}: nothing was fast-forwarded");
        b.cores[0].mmu.mark_stale(false);
        let hit = look(&mut b, 0);
        // Fast-forwarding keeps a POM-TLB up to date. Victima's blocks are lines of the L2 cache,
        // which counts their uses.
        if ["pom_tlb", "victima"].contains(&name) {
            assert_eq!(stale(&b), (0, 0), "{name}");
            continue;
        }
        assert!(matches!(hit, ServedBy::Source(_)), "{name}: {hit:?}");
        assert_eq!(stale(&b), (1, 0), "{name}");
        assert_eq!(look(&mut b, 48), ServedBy::Walk, "{name}");
        assert_eq!(stale(&b), (1, misses), "{name}");
        // Filtered functional warming keeps all but the first level, and what is beside it.
        b.cores[0].mmu.mark_stale(true);
        look(&mut b, 0);
        let more = u64::from(level == 0);
        assert_eq!(stale(&b), (1 + more, misses), "{name}");
    }
}
