//! Replacement policies of TLB arrays, as components of a machine.

use crate::common::{one, run_spec, spec, sum};
use pagewalk_machine::DesignResult;

const MACHINE: &str = "revelator-table1";
const N: u64 = 200_000;
/// A second level that is too small for the program's pages.
const SMALL: [&str; 2] = ["mmu.l2.main.entries=96", "mmu.l2.main.ways=12"];

fn at(design: &str, set: &[&str], seed: u64) -> DesignResult {
    let mut s = spec(MACHINE, &[design], "bfs 64MB layout=graphbig", N, set);
    s.options.seed = seed;
    run_spec(&s).expect("a run").designs.remove(0)
}

/// All counters.
fn counted(d: &DesignResult) -> Vec<(&str, &'static str, u64)> {
    let rows = d.stats.iter();
    rows.map(|s| (s.path.as_str(), s.name, s.value)).collect()
}

fn misses(d: &DesignResult) -> u64 {
    sum(d, "walks", |p| p.ends_with(".mmu"))
}

#[test]
fn each_array_has_its_own_policy_and_the_default_is_lru() {
    let plain = at("radix", &SMALL, 1);
    for (array, design) in [("l2", "tlb-srrip"), ("l2", "tlb-random"), ("l1d", "radix")] {
        let policy = design.strip_prefix("tlb-").unwrap_or("srrip");
        let key = format!("mmu.{array}.main.replacement={policy}");
        let other = at("radix", &[&SMALL[..], &[&key]].concat(), 1);
        assert!(counted(&plain) != counted(&other), "{key} changes nothing");
        let lru = format!("mmu.{array}.main.replacement=lru");
        let again = at(design, &[&SMALL[..], &[&lru]].concat(), 1);
        assert!(counted(&plain) == counted(&again), "{lru} with {design}");
        if array == "l2" {
            let shipped = at(design, &SMALL, 1);
            assert!(counted(&shipped) == counted(&other), "{design}");
        }
    }
}

/// The program makes no random choices, so the seed changes its misses only with random victims.
#[test]
fn victims_at_random_are_those_of_the_seed() {
    let run = |design: &str, seed| {
        let mut s = spec(MACHINE, &[design], "gups 4MB first=0", N, &SMALL);
        s.options.seed = seed;
        run_spec(&s).expect("a run").designs.remove(0)
    };
    assert_eq!(misses(&run("radix", 1)), misses(&run("radix", 2)));
    assert_ne!(misses(&run("tlb-random", 1)), misses(&run("tlb-random", 2)));
    let [a, b] = [1, 1].map(|seed| run("tlb-random", seed));
    assert!(counted(&a) == counted(&b));
}

/// Fully associative, direct-mapped and in between.
#[test]
fn any_shape_goes_with_any_policy() {
    for policy in ["lru", "lfu", "srrip", "random"] {
        for ways in ["1", "64", "16"] {
            let set = [
                "mmu.l2.main.entries=64".to_owned(),
                format!("mmu.l2.main.ways={ways}"),
                format!("mmu.l2.main.replacement={policy}"),
                format!("mmu.l1d.main.replacement={policy}"),
                format!("mmu.l1i.main.replacement={policy}"),
            ];
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            let d = one(MACHINE, "radix", "gups 4MB first=0", 50_000, &set);
            let of = |name| sum(&d, name, |p| p.ends_with(".mmu.l2.main"));
            assert_eq!(of("lookups"), of("hits") + of("waits") + of("misses"));
            assert!(
                of("fills") > 64 && of("evictions") <= of("fills"),
                "{set:?}"
            );
        }
    }
}
