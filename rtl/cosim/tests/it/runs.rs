//! Runs of whole machines whose misses drive the hardware as well. The engine compares each answer.

use std::sync::Mutex;

use pagewalk_rtl::check::{self, Options, Totals};
use pagewalk_rtl::header::latency;
use pagewalk_rtl::spec_engine::Variant;
use pagewalk_rtl::verilated;
use pagewalk_structures::TierFunction;

/// The checked engines of a process share their sums.
static ALONE: Mutex<()> = Mutex::new(());

fn run(
    function: TierFunction,
    workload: &str,
    size: &str,
    instructions: u64,
    engine: &str,
    set: &[&str],
) -> Totals {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    check::install(Options {
        variant: Variant {
            function,
            ..Variant::default()
        },
        ..Options::default()
    });
    let latency = latency(function);
    let engine = format!("engine.external.rtl={{latency={latency},interval=1{engine}}}");
    let function = format!(
        "placement.tiered_hash.function={}",
        serde_json::json!(function)
    );
    let set = [&[&*engine, &function], set].concat();
    let design = format!("revelator[{}]", set.join(","));
    crate::simulate("revelator-table1", &design, workload, size, instructions);
    check::take_totals()
}

fn check(function: TierFunction, runs: &[(&str, &str, u64)]) {
    if !verilated::available() {
        return;
    }
    let set = ["placement.tiered_hash.denied=0.6"];
    for &(workload, size, instructions) in runs {
        let totals = run(function, workload, size, instructions, "", &set);
        assert!(
            totals.requests > 300,
            "{function:?}, {workload}: {totals:?}"
        );
        assert!(
            totals.guesses > totals.requests,
            "{function:?}, {workload}: {totals:?}"
        );
    }
}

#[test]
fn the_hardware_makes_the_guesses_of_the_simulator_in_its_cycles() {
    let runs = [("gups", "256MiB", 400_000), ("bfs", "64MiB", 400_000)];
    check(TierFunction::Murmur, &runs);
}

#[test]
#[ignore = "compiles the hardware of each function: make rtl-test"]
fn the_hardware_of_each_function_makes_the_guesses_of_the_simulator() {
    for function in [TierFunction::Multiplicative, TierFunction::Crc] {
        check(function, &[("gups", "256MiB", 60_000)]);
    }
}

#[test]
fn the_hardware_follows_kind_degree_and_filter() {
    if !verilated::available() {
        return;
    }
    for engine in [
        ",what=\"data\"",
        ",what=\"entries\"",
        ",degree=3",
        ",filter=\"off\"",
        ",least_share=0.3",
    ] {
        // A slow memory withholds guesses by its delay.
        let set = [
            "placement.tiered_hash.denied=0.5",
            "memory.dram.ddr.data_rate_mts=1600",
        ];
        let totals = run(TierFunction::Murmur, "gups", "256MiB", 60_000, engine, &set);
        assert!(totals.guesses > 100, "{engine}: {totals:?}");
    }
}
