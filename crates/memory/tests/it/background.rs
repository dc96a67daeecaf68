//! Load by other tenants: the bandwidth and the lines of the L3 that they take, in closed form.

use crate::common::*;
use pagewalk_memory::{BackgroundSpec, Below, DramSpec, Request, RequestKind, Shared, SharedSpec};
use pagewalk_units::PhysAddr;

/// Memory of 100 ns and 6.4 GB/s, at 1 GHz: a line crosses in 10 cycles.
fn loaded(bandwidth_gbs: f64) -> SharedSpec {
    SharedSpec {
        dram: DramSpec::Fixed {
            latency_ns: FIXED as f64,
            bandwidth_gbs: 6.4,
        },
        background: Some(BackgroundSpec {
            bandwidth_gbs,
            l3_fill_gbs: 0.0,
        }),
        ..shared()
    }
}

fn machine_under(spec: &SharedSpec, seed: u64) -> Machine {
    let mut m = machine(&private(), spec);
    m.shared = Shared::new(spec, 1, 1.0)
        .expect("possible")
        .with_background(spec, seed);
    m
}

/// Mean latency of reads that are far apart: each finds the queue of the others alone.
fn idle_latency(spec: &SharedSpec, gap: u64) -> f64 {
    let mut m = machine_under(spec, 1);
    let reads = 40_000;
    let mut sum = 0;
    for n in 0..reads {
        // Other rows and banks each time.
        let (at, now) = (n * 64 * 4099, 100_000 + n * gap);
        sum += m.load(at, now).at - now;
    }
    sum as f64 / reads as f64
}

#[test]
fn an_idle_read_waits_as_long_as_in_an_m_d_1_queue() {
    let idle = (L3 + FIXED + 10) as f64;
    assert_eq!(idle_latency(&loaded(0.0), 997), idle);
    for load in [0.25, 0.5, 0.75] {
        let wait = idle_latency(&loaded(6.4 * load), 997) - idle;
        let expected = load * 10.0 / (2.0 * (1.0 - load));
        // Waits are whole cycles, rounded up.
        let error = (wait - expected).abs();
        assert!(
            error < 0.05 * expected + 0.5,
            "{load}: {wait} for {expected}"
        );
    }
}

#[test]
fn a_stream_gets_the_bandwidth_that_others_leave() {
    for load in [0.0, 0.25, 0.5, 0.75] {
        let mut m = machine_under(&loaded(6.4 * load), 1);
        // As many lines on their way as the L1D has MSHRs, always.
        let lines = 20_000_u64;
        let mut ends = std::collections::VecDeque::from(vec![0; 10]);
        for line in 0..lines {
            let now = ends.pop_front().expect("ten");
            ends.push_back(m.load(line * 64, now).at);
        }
        let cycles = *ends.back().expect("ten") as f64;
        // In a closed loop, the stream is held up by its own latency, too.
        let fastest = 10.0 / (1.0 - load);
        let slowest = fastest.max((L3 + FIXED + 10) as f64 / 10.0 + load * 10.0 / (1.0 - load));
        let line = cycles / lines as f64;
        assert!(
            line > 0.98 * fastest && line < 1.1 * slowest,
            "{load}: {line} of {fastest}..{slowest}"
        );
    }
}

#[test]
fn banks_of_a_ddr_memory_are_taken_too() {
    let ddr_under = |bandwidth_gbs| SharedSpec {
        dram: ddr(1),
        background: Some(BackgroundSpec {
            bandwidth_gbs,
            l3_fill_gbs: 0.0,
        }),
        ..shared()
    };
    // 19.2 GB/s, 16 banks: a load of 0.25 on the bus takes 31 ns of a bank each 213 ns.
    let [none, some] = [0.0, 4.8].map(|gbs| idle_latency(&ddr_under(gbs), 997));
    let bus = 0.25 * 3.333 / (2.0 * 0.75);
    let busy: f64 = 31.333 / 213.3;
    let bank = busy * 31.333 / (2.0 * (1.0 - busy));
    let wait = some - none;
    assert!(
        wait > 0.8 * (bus + bank) && wait < 2.0 * (bus + bank),
        "{wait}"
    );
}

#[test]
fn requests_of_others_are_not_counted_and_repeat_by_seed() {
    let spec = SharedSpec {
        dram: ddr(1),
        ..loaded(4.8)
    };
    let run = |seed| {
        let mut m = machine_under(&spec, seed);
        let ends: Vec<u64> = (0..500).map(|n| m.load(n * 64 * 129, n * 500).at).collect();
        assert_eq!(m.get("dram.0", "reads"), 500);
        assert_eq!(m.get("dram.0", "bus_busy_ps"), 500 * 3333);
        ends
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Sets of the L3 of [`shared`].
const SETS: u64 = 2048;
const WAYS: u64 = 16;

/// Tenants that fill each set `fills` times in 1000 cycles on average, at 1 GHz.
fn filled(fills: f64) -> SharedSpec {
    SharedSpec {
        background: Some(BackgroundSpec {
            bandwidth_gbs: 0.0,
            l3_fill_gbs: fills * SETS as f64 * 64.0 / 1000.0,
        }),
        ..shared()
    }
}

fn read(line: u64) -> Request {
    Request {
        at: PhysAddr(line * 64),
        kind: RequestKind::Load,
        core: 0,
        pc: 0,
    }
}

/// Probability that a Poisson number of mean `mean` is `least` or more.
fn poisson_tail(mean: f64, least: u64) -> f64 {
    let (mut term, mut below) = ((-mean).exp(), 0.0);
    for n in 0..least {
        below += term;
        term *= mean / (n + 1) as f64;
    }
    1.0 - below
}

/// Share of misses of a cycle through `own` lines of each set, a pass each `period` cycles.
fn missed(spec: &SharedSpec, own: u64, period: u64) -> f64 {
    let mut m = machine_under(spec, 1);
    let (lines, passes) = (own * SETS, 12);
    for pass in 0..passes {
        for line in 0..lines {
            let now = (pass * lines + line) * period / lines + pass;
            m.shared.access(read(line), now);
        }
    }
    let first = lines;
    (m.get("l3", "misses") - first) as f64 / (lines * (passes - 1)) as f64
}

#[test]
fn a_line_stays_if_its_set_sees_fewer_fills_than_ways_between_two_uses() {
    assert_eq!(missed(&shared(), WAYS, 200_000), 0.0);
    for (fills, own, period) in [
        (0.1, 1, 100_000),
        (0.1, 1, 200_000),
        (0.1, 4, 130_000),
        (0.1, 12, 60_000),
    ] {
        let mean = fills * period as f64 / 1000.0;
        let expected = poisson_tail(mean, WAYS - own + 1);
        let found = missed(&filled(fills), own, period);
        assert!(
            (found - expected).abs() < 0.015,
            "{fills} fills, {own} lines, {period} cycles: {found} for {expected}"
        );
    }
}

#[test]
fn a_faster_program_keeps_more() {
    let (slow, fast) = (
        missed(&filled(0.1), 8, 400_000),
        missed(&filled(0.1), 8, 40_000),
    );
    assert!(slow > 0.99 && fast < 0.05, "{slow} {fast}");
}

#[test]
fn dirty_lines_that_tenants_evict_are_written_to_memory() {
    let mut m = machine_under(&filled(1.0), 1);
    for line in 0..SETS {
        m.shared.write_back(PhysAddr(line * 64), 0, 0);
    }
    for line in 0..SETS {
        m.shared.access(read(line), 1_000_000);
    }
    assert_eq!(m.get("l3", "misses"), SETS);
    assert_eq!(m.get("l3.tenants", "evictions"), SETS);
    assert_eq!(m.get("l3", "writebacks"), SETS);
}

#[test]
fn functional_warming_is_filled_at_its_own_time() {
    let missed_after = |period: u64| {
        let mut m = machine_under(&filled(1.0), 1);
        for pass in 0..10 {
            m.shared.set_warming_clock(pass * period);
            for line in 0..SETS {
                m.shared.warm(read(line));
            }
        }
        for line in 0..SETS {
            m.shared.access(read(line), 10 * period);
        }
        m.get("l3", "misses") as f64 / SETS as f64
    };
    for period in [8_000, 16_000, 24_000] {
        let expected = poisson_tail(period as f64 / 1000.0, WAYS);
        let found = missed_after(period);
        assert!((found - expected).abs() < 0.04, "{found} for {expected}");
    }
}

#[test]
fn tenants_repeat_by_seed() {
    let misses = |seed| {
        let mut m = machine_under(&filled(1.0), seed);
        (0..4 * SETS)
            .filter(|n| {
                let now = n * 10;
                m.shared.access(read(n % SETS), now).at - now > L3
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(misses(1), misses(1));
    assert_ne!(misses(1), misses(2));
}

#[test]
fn impossible_loads_are_refused_by_name() {
    let refused = |spec: SharedSpec, part: &str| {
        let error = Shared::new(&spec, 1, 1.0).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    let of = |bandwidth_gbs, l3_fill_gbs| {
        Some(BackgroundSpec {
            bandwidth_gbs,
            l3_fill_gbs,
        })
    };
    let key = "memory.background.bandwidth_gbs";
    refused(
        SharedSpec {
            background: of(6.4, 0.0),
            ..loaded(0.0)
        },
        key,
    );
    refused(
        SharedSpec {
            background: of(-1.0, 0.0),
            ..loaded(0.0)
        },
        "expected 0 to below 6.4",
    );
    refused(
        SharedSpec {
            background: of(f64::NAN, 0.0),
            ..loaded(0.0)
        },
        key,
    );
    refused(
        SharedSpec {
            background: of(1.0, 0.0),
            ..shared()
        },
        "unlimited bandwidth",
    );
    refused(
        SharedSpec {
            background: of(0.0, -2.0),
            ..shared()
        },
        "memory.background.l3_fill_gbs",
    );
    refused(
        SharedSpec {
            background: of(0.0, 1.0),
            l3: None,
            l4: shared().l3,
            ..shared()
        },
        "there is no",
    );
}
