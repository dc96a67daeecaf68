//! Whole machines that execute wrong paths.

use crate::common::{metric, one, run_spec, spec, sum};
use pagewalk_machine::DesignResult;

const MACHINE: &str = "epyc-milan";
const ON: &str = "core.wrong_path.enabled=true";
const N: u64 = 400_000;

fn wrong(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(".wrong_path"))
}

#[test]
fn loads_of_wrong_paths_are_among_what_mmu_and_caches_count_and_nowhere_else() {
    for workload in ["kv-map 64MB", "bfs 16MB", "kv-btree 64MB"] {
        let off = one(MACHINE, "radix", workload, N, &[]);
        let on = one(MACHINE, "radix", workload, N, &[ON]);
        let core = |d: &DesignResult, name: &str| sum(d, name, |p| p == "core.0");
        for name in [
            "instructions",
            "loads",
            "stores",
            "branches",
            "mispredictions",
        ] {
            let (off, on) = (core(&off, name), core(&on, name));
            assert_eq!(off, on, "{workload} {name}");
        }
        let episodes = wrong(&on, "episodes") + wrong(&on, "unknown_episodes");
        assert_eq!(episodes, core(&on, "mispredictions"), "{workload}");
        let sources = ["converged_loads", "constant_loads", "remembered_loads"];
        let loads = wrong(&on, "loads");
        let by_source: u64 = sources.iter().map(|s| wrong(&on, s)).sum();
        assert_eq!(loads, by_source, "{workload}");
        // Each access translates once, or twice if it spans two pages.
        let translated = |d: &DesignResult| sum(d, "translations", |p| p == "core.0.mmu");
        let more = translated(&on) - translated(&off);
        assert!(loads > N / 1000, "{workload}: {loads}");
        assert!(
            (loads..loads * 11 / 10).contains(&more),
            "{workload}: {more} for {loads}"
        );
        // The program's own misses do not increase: some pages are present already.
        let walks = |d: &DesignResult| sum(d, "walks", |p| p == "core.0.mmu");
        let (own, without) = (walks(&on) - wrong(&on, "walks"), walks(&off));
        assert!(
            own < without + without / 20,
            "{workload}: {own}, {without} without"
        );
        assert!(off.stats.iter().all(|s| !s.path.contains("wrong_path")));
        // The cycle stack adds up.
        let stack: f64 = on.cycle_stack.iter().map(|s| s.cycles).sum();
        assert!((stack - metric(&on, "cycles")).abs() <= 2.0 + stack * 1e-6);
    }
}

#[test]
fn wrong_paths_change_nothing_with_a_perfect_predictor() {
    let set = ["core.predictor.perfect={}"];
    let off = one(MACHINE, "radix", "kv-map 64MB", N, &set);
    let on = one(MACHINE, "radix", "kv-map 64MB", N, &[set[0], ON]);
    let rows = |d: &DesignResult| {
        let rows = d.stats.iter().filter(|s| !s.path.contains("wrong_path"));
        rows.map(|s| (s.path.clone(), s.name, s.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&off), rows(&on));
    assert_eq!(wrong(&on, "episodes"), 0);
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_wrong_paths() {
    let text = |host_threads: usize| {
        let designs = ["radix", "thp", "radix-virtual"];
        let mut s = spec(MACHINE, &designs, "bfs 16MB threads=4", N, &["cores=2", ON]);
        s.options.host_threads = Some(host_threads);
        let result = run_spec(&s).unwrap();
        assert!(wrong(&result.designs[0], "loads") > 0);
        serde_json::to_string(&result.designs).unwrap()
    };
    let alone = text(1);
    assert_eq!(alone, text(1));
    assert_eq!(alone, text(2));
}

#[test]
fn fast_forwarding_trains_the_wrong_path_state() {
    let loads = |skip: u64| {
        let mut s = spec(MACHINE, &["radix"], "kv-map 64MB", N, &[ON]);
        s.options.limits.skip = skip;
        let d = run_spec(&s).unwrap().designs.remove(0);
        wrong(&d, "unknown_loads") * 100 / wrong(&d, "loads")
    };
    // Pointers that the earlier part chased, about a fifth of the tree.
    let (fresh, after) = (loads(0), loads(40_000_000));
    assert!(after < fresh, "{after} of 100, {fresh} without");
}
