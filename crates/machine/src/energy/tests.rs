//! Tests of the account on machines and on made-up counters.

use std::collections::BTreeSet;
use std::path::Path;

use pagewalk_memory::{CacheStats, DramStats};
use pagewalk_mmu::TlbStats;
use pagewalk_stats::{Counters, Tree};
use pagewalk_units::Cycle;

use super::account::Account;
use super::{EnergyResult, Prices, Totals};
use crate::config::{Config, DataDir, Shipped};

fn config(machine: &str, design: &str, set: &[&str]) -> Config {
    let data = DataDir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let set: Vec<String> = set.iter().map(|&s| s.to_owned()).collect();
    let resolved = data.resolve(machine, design, &set);
    resolved
        .unwrap_or_else(|e| panic!("{machine} {design}: {e}"))
        .config
}

fn shipped(kind: Shipped) -> Vec<String> {
    let data = DataDir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let files = data.list(kind).expect("the folder is there");
    files.into_iter().map(|f| f.name).collect()
}

/// Counters of such a machine before it has run.
fn tree_of(config: &Config) -> Tree {
    crate::explain::tree_of(config.clone()).expect("it was resolved")
}

/// All shipped machines with one design, and one machine with all shipped designs. They have two cores
/// and also the options that no shipped file sets.
fn all() -> impl Iterator<Item = (String, Config)> {
    let (machines, designs) = (shipped(Shipped::Machine), shipped(Shipped::Design));
    let first = machines[0].clone();
    let plain = machines.into_iter().map(|m| (m, "radix".to_owned()));
    let pairs = plain.chain(designs.into_iter().map(move |d| (first.clone(), d)));
    let shared = pairs.map(|(machine, design)| {
        let set = [&["cores=2"][..], &crate::explain::in_no_file(&design)].concat();
        let config = config(&machine, &design, &set);
        (format!("{design} on {machine}"), config)
    });
    // Each core has the third level for itself.
    let mut private = config("epyc-milan", "revelator", &["cores=2"]);
    private.caches.l3 = private.memory.l3.take();
    private.memory.l4 = private.caches.l3.clone();
    shared.chain([("a private third level".to_owned(), private)])
}

#[test]
fn every_array_of_every_machine_has_a_price() {
    for (what, config) in all() {
        let prices = Prices::new(&config).expect("it was resolved");
        let mut tree = tree_of(&config);
        assert_eq!(prices.forgotten(&tree), BTreeSet::new(), "{what}");
        tree.add("core.0.mmu.l2.another", &TlbStats::default());
        tree.add("core.1.mmu.engine.table", &TlbStats::default());
        tree.add("l5", &CacheStats::default());
        let forgotten: Vec<String> = prices.forgotten(&tree).into_iter().collect();
        assert_eq!(forgotten, ["l5", "mmu.engine.table", "mmu.l2.another"]);
    }
}

#[test]
fn every_counter_with_a_price_is_one_of_a_machine() {
    let (mut wanted, mut there) = (BTreeSet::new(), BTreeSet::new());
    for (_, config) in all() {
        wanted.extend(Prices::new(&config).expect("it was resolved").counters());
        for row in tree_of(&config).rows {
            let at = super::prices::place(&row.path).to_owned();
            there.insert((at, row.definition.name));
        }
    }
    // Levels of five-level tables and TLBs depend on the design, but each exists in some design.
    let unknown: Vec<_> = wanted.difference(&there).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// A tree with the rows of `like` and values derived from `seed`.
fn counted(like: &Tree, seed: u64) -> Tree {
    let mut tree = like.clone();
    for (i, row) in tree.rows.iter_mut().enumerate() {
        row.value = (i as u64 + 1).wrapping_mul(seed) % 1_000_003;
    }
    tree
}

#[test]
fn stretches_and_cores_add_up_to_the_last_attojoule() {
    for (what, config) in all() {
        let prices = Prices::new(&config).expect("it was resolved");
        let shape = tree_of(&config);
        let account = prices.account(&shape);
        let parts = [3, 7_654_321, 99_991].map(|seed| (counted(&shape, seed), seed % 10_007));
        let mut whole = shape.clone();
        let (mut cycles, mut sum) = (0, Totals::default());
        for (part, own) in &parts {
            for (row, part) in whole.rows.iter_mut().zip(&part.rows) {
                row.value += part.value;
            }
            cycles += own;
            let of = account.totals(part, *own);
            sum.dynamic += of.dynamic;
            sum.fixed += of.fixed;
        }
        assert_eq!(account.totals(&whole, cycles), sum, "{what}");
        // Sums by core also match: one core, and all others.
        let only = |mine: bool| {
            let mut tree = whole.clone();
            for row in &mut tree.rows {
                if row.path.starts_with("core.1") != mine {
                    row.value = 0;
                }
            }
            account.totals(&tree, 0).dynamic
        };
        assert_eq!(only(true) + only(false), sum.dynamic, "{what}");
        assert!(only(true) != 0 && only(false) != 0, "{what}");
    }
}

/// Energy of a run with these counters.
fn result_of(account: &Account<'_>, tree: &Tree, cycles: Cycle) -> EnergyResult {
    account.result(account.totals(tree, cycles), tree, cycles)
}

#[test]
fn parts_add_up_to_the_whole_and_without_accesses_only_time_is_paid() {
    for (what, config) in all() {
        let prices = Prices::new(&config).expect("it was resolved");
        let tree = tree_of(&config);
        let account = prices.account(&tree);
        let idle = result_of(&account, &counted(&tree, 0), 1_000_000);
        assert_eq!(idle.dynamic_nj, 0.0, "{what}");
        let milliwatts = idle.parts.iter().map(|p| p.static_mw * p.number as f64);
        let nanojoules = milliwatts.sum::<f64>() * 1e6 / config.frequency_ghz / 1e3;
        // Leakage for a cycle is rounded to attojoules.
        assert!((idle.static_nj / nanojoules - 1.0).abs() < 1e-7, "{what}");
        let r = result_of(&account, &counted(&tree, 12_345), 1_000_000);
        let sum = |of: fn(&super::PartEnergy) -> f64| r.parts.iter().map(of).sum::<f64>();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{what}: {a} {b}");
        near(sum(|p| p.total_nj), r.total_nj);
        near(sum(|p| p.dynamic_nj), r.dynamic_nj);
        near(sum(|p| p.static_nj), r.static_nj);
        near(r.dynamic_nj + r.static_nj, r.total_nj);
        near(
            sum(|p| p.events.iter().map(|e| e.total_nj).sum::<f64>()),
            r.dynamic_nj,
        );
        assert_eq!(idle.static_nj, r.static_nj, "{what}");
    }
}

/// Dynamic energy of a part in pJ, if only the counters `stats` at `at` are not zero.
fn alone(config: &Config, at: &str, stats: &dyn Counters, part: &str) -> f64 {
    let prices = Prices::new(config).expect("it was resolved");
    let mut tree = Tree::default();
    tree.add(at, stats);
    let r = result_of(&prices.account(&tree), &tree, 0);
    let own = r.parts.iter().find(|p| p.part == part);
    let own = own.unwrap_or_else(|| panic!("no part {part}")).dynamic_nj;
    assert_eq!(r.total_nj, own, "{at} costs {part} only");
    own * 1e3
}

/// Further levels have the prices of today's caches of the same size.
#[test]
fn a_cache_of_another_level_costs_as_much_as_one_of_its_size() {
    let plain = config("epyc-milan", "radix", &["cores=2"]);
    let mut deep = plain.clone();
    deep.caches.l0d = Some(plain.caches.l1d.clone());
    deep.caches.l3 = deep.memory.l3.take();
    deep.memory.l4 = plain.memory.l3.clone();
    let part = |config: &Config, name: &str| {
        let prices = Prices::new(config).expect("possible");
        let part = prices.parts.iter().find(|p| p.name == name).cloned();
        part.unwrap_or_else(|| panic!("no part {name}"))
    };
    let each = |config: &Config, name: &str| {
        let part = part(config, name);
        let events = part.events.iter().map(|e| (e.what, e.each()));
        (part.static_mw.to_bits(), events.collect::<Vec<_>>())
    };
    for (new, old) in [("l0d", "l1d"), ("l3", "l3"), ("l4", "l3")] {
        assert_eq!(each(&deep, new), each(&plain, old), "{new}");
    }
    assert_eq!(each(&deep, "l1d"), each(&plain, "l1d"));
    let number = |name: &str| part(&deep, name).number;
    assert_eq!(["l0d", "l3", "l4"].map(number), [2, 2, 1]);
    // The last private level has the dirty lines that other cores read.
    let supplies = |config: &Config, name: &str| {
        let events = part(config, name).events;
        let mut counts = events.iter().flat_map(|e| &e.counts);
        counts.any(|c| c.counter == "remote_hits")
    };
    assert_eq!(
        ["l2", "l3", "l4"].map(|n| supplies(&deep, n)),
        [false, true, false]
    );
    assert_eq!(["l2", "l3"].map(|n| supplies(&plain, n)), [true, false]);
    // The directory has an entry for each line of a private cache.
    assert!(part(&deep, "l4.directory").static_mw > part(&plain, "l3.directory").static_mw);
    // Behind an L0D, a store is a read, and the dirty line that comes back a write.
    let l1d = CacheStats {
        accesses: 10,
        stores: 4,
        fills: 3,
        updates: 2,
        ..CacheStats::default()
    };
    let [read, write] = [0, 1].map(|n| part(&deep, "l1d").events[n].each_pj);
    let found = alone(&deep, "core.0.l1d", &l1d, "l1d");
    assert!(
        (found - (10.0 * read + 5.0 * write)).abs() < 1e-4,
        "{found}"
    );
}

#[test]
fn each_kind_of_access_costs_what_it_should() {
    let config = config("revelator-table1", "radix", &[]);
    // Prices are whole attojoules.
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-4, "{a} and {b}");
    // An L2 of 1 MB with 10 accesses: 6 miss, one of these merges with an earlier miss. 4 prefetches from
    // above, of which 3 miss; 8 fills, 2 dirty lines in, 1 out.
    let l2 = CacheStats {
        accesses: 10,
        hits: 4,
        misses: 6,
        merged: 1,
        prefetch_accesses: 4,
        prefetch_misses: 3,
        fills: 8,
        updates: 2,
        writebacks: 1,
        ..CacheStats::default()
    };
    // Tags of 16,384 lines: three fifths of the way, log-log, from 2,048 to 65,536 entries.
    let tags = 26.0 * (109f64 / 26.0).powf(3.0 / 5.0);
    let expected = (4 + 1 + 1 + 1) as f64 * 342.0 + (8 + 2) as f64 * 253.0 + (5 + 3) as f64 * tags;
    near(alone(&config, "core.0.l2", &l2, "l2"), expected);
    // A first-level cache: stores and fills write, everything else reads.
    let l1d = CacheStats {
        accesses: 100,
        hits: 90,
        misses: 10,
        loads: 70,
        stores: 30,
        fills: 9,
        writebacks: 3,
        ..CacheStats::default()
    };
    let expected = (70 + 3) as f64 * 19.0 + (30 + 9) as f64 * 23.0;
    near(alone(&config, "core.0.l1d", &l1d, "l1d"), expected);
    let dram = DramStats {
        reads: 5,
        writes: 3,
        row_hits: 4,
        row_misses: 1,
        row_conflicts: 3,
        ..DramStats::default()
    };
    let expected = 1e3 * (4.0 * 3.46 + 5.0 * 2.94 + 3.0 * 2.56 + 8.0 * 1.5);
    near(alone(&config, "dram.0", &dram, "dram"), expected);
    let tlb = TlbStats {
        lookups: 50,
        hits: 40,
        misses: 10,
        fills: 7,
        ..TlbStats::default()
    };
    let place = "core.0.mmu.l2.main";
    near(
        alone(&config, place, &tlb, "mmu.l2.main"),
        50.0 * 26.0 + 7.0 * 53.0,
    );
}

#[test]
fn a_memory_without_rows_opens_one_for_each_access() {
    let config = config("stlt-table3", "radix", &[]);
    let dram = DramStats {
        reads: 5,
        writes: 3,
        ..DramStats::default()
    };
    let expected = 1e3 * (8.0 * 3.46 + 5.0 * 2.94 + 3.0 * 2.56 + 8.0 * 1.5);
    let is = alone(&config, "dram.0", &dram, "dram");
    assert!((is - expected).abs() < 1e-6, "{is} and {expected}");
}
