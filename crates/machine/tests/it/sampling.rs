//! Estimates of a whole run from samples, and their uncertainty.

use crate::common::{installation, spec};
use pagewalk_machine::{RunResult, RunSpec, Status};
use pagewalk_stream::{Backing, Batch, End, Error, Event, Facts, Op, OpClass, Program, ThreadId};
use pagewalk_units::VirtAddr;
use serde_json::{Value, json};

fn sampled(design: &str, workload: &str, instructions: u64, sample: &Value) -> RunSpec {
    let mut run = spec("epyc-milan", &[design], workload, instructions, &[]);
    run.options.limits.sample = serde_json::from_value(sample.clone()).unwrap();
    run
}

fn run(spec: &RunSpec) -> RunResult {
    let result = installation().run(spec, &mut |_| true).unwrap();
    assert!(result.designs.iter().all(|d| d.status == Status::Complete));
    result
}

fn number(result: &RunResult, design: usize, name: &str) -> f64 {
    let mut all = result.designs[design].summary.iter();
    all.find(|m| m.name == name).and_then(|m| m.value).unwrap()
}

/// Samples lie at the same places for any warming. With functional warming of everything, TLBs and caches
/// are not stale, so it is the reference for samples with less warming.
#[test]
fn stale_state_uncertainty_bounds_the_misses_of_full_warming() {
    for workload in [
        "gups 64MB",
        "kv-hash keys=100000",
        "bfs scale=16",
        "xsbench 64MB",
    ] {
        let sample = |filtered: Value, warmed: u64| json!({"length": 3000, "period": 60_000, "warming": {"filtered": filtered, "warmed": warmed}});
        let misses = |sample: &Value| {
            let result = run(&sampled("radix", workload, 1_500_000, sample));
            let sampling = result.designs[0].sampling.clone().unwrap();
            (number(&result, 0, "l2_tlb_mpki"), sampling)
        };
        let (known, all) = misses(&sample(json!(0), 120_000));
        assert!(
            all.warming.is_none(),
            "{workload}: nothing was fast-forwarded"
        );
        for (filtered, warmed) in [(json!(0), 3000), (json!(0), 20_000), (json!(10_000), 3000)] {
            let (counted, found) = misses(&sample(filtered.clone(), warmed));
            let Some(error) = found.warming else {
                panic!("{workload}: something was fast-forwarded")
            };
            let [hits, misses] = error.unknown["tlb_l2"];
            assert!(
                (counted - misses - 1e-9..=counted + hits + 1e-9).contains(&known),
                "{workload} {filtered}+{warmed}: {known} of {counted} -{misses} +{hits}"
            );
            assert!(hits + misses > 0.0, "{workload}");
        }
        // With filtered warming of the whole gap, the second-level TLB is not stale.
        let (_, found) = misses(&sample(json!(null), 3000));
        let unknown = found.warming.map_or([0.0; 2], |w| w.unknown["tlb_l2"]);
        assert_eq!(unknown, [0.0; 2], "{workload}");
    }
}

/// The same holds where a translation source takes the place of a TLB, and one behind the TLBs counts apart.
#[test]
fn stale_sources_count() {
    let sampled = |design: &str, filtered: Value, warmed: u64| {
        let warming = json!({"filtered": filtered, "warmed": warmed});
        let sample = json!({"length": 3000, "period": 60_000, "warming": warming});
        let result = run(&sampled(design, "gups 64MB", 1_500_000, &sample));
        let warming = result.designs[0].sampling.clone().unwrap().warming;
        let unknown = warming.map(|warming| warming.unknown);
        (number(&result, 0, "l2_tlb_mpki"), unknown)
    };
    let (known, _) = sampled("colt", json!(0), 120_000);
    let (counted, unknown) = sampled("colt", json!(0), 3000);
    let [hits, misses] = unknown.expect("fast-forwarded")["tlb_l2"];
    assert!((counted - misses..=counted + hits).contains(&known));
    // The first walks of a sample fill a TLB of which most entries are older.
    assert!(hits > 0.0 && misses > 1.0, "{hits} {misses}");
    let behind = |design: &str, filtered: Value| {
        let (_, unknown) = sampled(design, filtered, 3000);
        unknown.and_then(|unknown| unknown.get("translation").copied())
    };
    let [hits, misses] = behind("l3-tlb", json!(0)).expect("counted");
    assert!(hits > 0.0 && misses > 1.0, "{hits} {misses}");
    assert_eq!(
        behind("l3-tlb", json!(null)),
        None,
        "warmed over the whole gap"
    );
    assert_eq!(behind("radix", json!(0)), None, "there is no source");
}

/// Filtered warming gives the last levels of TLBs and caches the same misses as full warming.
#[test]
fn filtered_warming_gives_the_misses_of_full_warming() {
    for (workload, within) in [("gups 64MB", 0.01), ("kv-hash keys=100000", 0.02)] {
        let whole = run(&sampled("radix", workload, 2_000_000, &Value::Null));
        let at = |warming: Value| {
            let sample = json!({"length": 5000, "period": 25_000, "warming": warming});
            run(&sampled("radix", workload, 2_000_000, &sample))
        };
        let (all, filtered) = (at(json!({"warmed": 25_000})), at(json!({"warmed": 3000})));
        for name in ["ipc", "l2_tlb_mpki", "dram_reads"] {
            let (a, b) = (number(&all, 0, name), number(&filtered, 0, name));
            assert!((a / b - 1.0).abs() < within, "{workload} {name}: {a} {b}");
        }
        let sampling = filtered.designs[0].sampling.as_ref().unwrap();
        for name in ["ipc", "l2_tlb_mpki"] {
            let (of, truth) = (sampling.metrics[name], number(&whole, 0, name));
            // Each of these is outside its interval with a probability of one in twenty; seeds are fixed.
            assert!(
                of.low < truth && truth < of.high,
                "{workload} {name}: {truth} {of:?}"
            );
        }
    }
}

/// On a single core, filtered warming keeps LRU stacks; on several it warms as usual. With one thread
/// there is no other difference.
#[test]
fn lru_stacks_leave_what_filtered_warming_leaves() {
    let sample =
        json!({"length": 5000, "period": 40_000, "warming": {"filtered": null, "warmed": 3000}});
    let mut differ = false;
    for (design, workload) in [
        ("radix", "gups 64MB"),
        ("thp", "gups 64MB"),
        ("radix", "kv-hash keys=100000"),
        ("radix5", "bfs scale=16"),
        ("thp", "xsbench 64MB"),
    ] {
        let at = |cores: u32| {
            let mut spec = sampled(design, workload, 2_000_000, &sample);
            spec.set.push(format!("cores={cores}"));
            run(&spec)
        };
        let (lone, two) = (at(1), at(2));
        for (name, within) in [
            ("ipc", 0.001),
            ("l2_tlb_mpki", 0.005),
            ("dram_reads", 0.002),
        ] {
            let [a, b] = [&lone, &two].map(|result| number(result, 0, name));
            let apart = (a - b).abs();
            assert!(apart <= within * b + 1e-3, "{workload} {name}: {a} {b}");
            differ |= a != b;
        }
    }
    // The LRU stacks replace the first-level TLBs and the walk caches, so a few misses differ.
    assert!(differ, "a single core kept no LRU stacks");
}

#[test]
fn samples_are_taken_until_the_numbers_are_sure_enough() {
    let mut spec = spec(
        "epyc-milan",
        &["radix", "thp"],
        "gups 64MB",
        60_000_000,
        &[],
    );
    let precise = |within: f64, metrics: &[&str]| {
        serde_json::from_value(json!({"within": within, "metrics": metrics})).unwrap()
    };
    spec.options.precision = precise(0.03, &[]);
    let result = run(&spec);
    for d in &result.designs {
        let s = d.sampling.as_ref().unwrap();
        let ipc = s.metrics["ipc"];
        assert!((ipc.high - ipc.low) / 2.0 <= 0.0305 * ipc.value, "{ipc:?}");
        assert!(s.ipc_low < s.ipc && s.ipc < s.ipc_high);
    }
    let speedup = result.designs[1]
        .sampling
        .as_ref()
        .unwrap()
        .speedup
        .unwrap();
    let ipc = |d: usize| result.designs[d].sampling.as_ref().unwrap().metrics["ipc"];
    let half = |i: pagewalk_machine::Interval| (i.high - i.low) / 2.0 / i.value;
    assert!(
        half(speedup) < half(ipc(0)) + half(ipc(1)),
        "pairs are surer than their halves"
    );
    assert!((speedup.value - result.designs[1].speedup.unwrap()).abs() < 0.01);
    // If samples cost as much as simulating everything, everything is simulated.
    spec.options.precision = precise(0.0001, &["ipc"]);
    spec.options.limits.instructions = Some(3_000_000);
    let result = run(&spec);
    assert!(result.limits.sample.is_none() && result.designs[0].sampling.is_none());
    for (within, metrics, said) in [
        (1.5, &[][..], "expected a share"),
        (0.02, &["ipk"], "did you mean ipc"),
    ] {
        spec.options.precision = precise(within, metrics);
        let e = installation().run(&spec, &mut |_| true).unwrap_err();
        assert!(e.to_string().contains(said), "{e}");
    }
    spec.options.precision = precise(0.02, &[]);
    spec.options.limits.instructions = None;
    let e = installation().run(&spec, &mut |_| true).unwrap_err();
    assert!(e.to_string().contains("--instructions"), "{e}");
}

/// Touches a new page by an instruction after several plain ones, repeatedly.
struct Faulting {
    pages: u64,
    at: u64,
}

const DATA: u64 = 0x1000_0000;

impl Program for Faulting {
    fn facts(&self) -> Facts {
        Facts {
            name: "faulting".to_owned(),
            deterministic: true,
            ..Facts::default()
        }
    }
    fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        if self.at == 0 {
            self.at = 1;
            let event = Event::Map {
                at: VirtAddr(DATA),
                bytes: (self.pages + 1) << 12,
                writable: true,
                backing: Backing::Anonymous,
            };
            return Ok(End::Event { event, ticket: 0 });
        }
        if self.at > self.pages {
            return Ok(End::Exit);
        }
        batch.ops.push(Op {
            pc: DATA,
            va: DATA + (self.at << 12),
            insns: 10,
            kind: OpClass::Load,
            size: 8,
            ..Op::default()
        });
        self.at += 1;
        Ok(End::More)
    }
}

/// Instructions before the one that faults have completed when it faults. A phase whose limit they reach
/// still ends after that instruction, as without a fault. So phases of all designs end at the same place.
#[test]
fn a_phase_ends_behind_an_instruction_that_faults() {
    for (warmup, most, all) in [(100, 205, 210), (100, 210, 210), (103, 211, 220)] {
        let mut spec = spec("epyc-milan", &["radix"], "gups 64MB", most, &[]);
        spec.source = None;
        spec.options.limits.warmup = warmup;
        let program = Faulting { pages: 100, at: 0 };
        let result = installation()
            .run_program(&spec, Box::new(program), &mut |_| true)
            .unwrap();
        let instructions = number(&result, 0, "instructions");
        assert_eq!(instructions as u64, all, "{warmup} {most}");
    }
}

/// Precision may need several passes, which a program given once does not allow.
#[test]
fn a_program_of_ones_own_has_no_precision() {
    let mut spec = spec("epyc-milan", &["radix"], "gups 64MB", 1000, &[]);
    spec.source = None;
    spec.options.precision = serde_json::from_value(json!({"within": 0.02})).unwrap();
    let program = Faulting { pages: 100, at: 0 };
    let e = installation().run_program(&spec, Box::new(program), &mut |_| true);
    assert!(e.unwrap_err().to_string().contains("is run once"));
}
