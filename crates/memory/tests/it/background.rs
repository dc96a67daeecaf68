//! Load by other tenants: the bandwidth and the capacity that they take, in closed form.

use crate::common::*;
use pagewalk_memory::{BackgroundSpec, DramSpec, Shared, SharedSpec};

/// Memory of 100 ns and 6.4 GB/s, at 1 GHz: a line crosses in 10 cycles.
fn loaded(bandwidth_gbs: f64) -> SharedSpec {
    SharedSpec {
        dram: DramSpec::Fixed {
            latency_ns: FIXED as f64,
            bandwidth_gbs: 6.4,
        },
        background: Some(BackgroundSpec {
            bandwidth_gbs,
            l3_mb: 0.0,
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
            l3_mb: 0.0,
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

#[test]
fn a_cycle_through_the_l3_hits_as_long_as_it_fits_what_others_leave() {
    // 2 MB of L3 with 16 ways; lines of a cycle through an LRU cache all hit, or all miss.
    for (share, fits) in [
        (0.0, 32_768),
        (0.5, 24_576),
        (1.0, 16_384),
        (1.75, 4_096),
        (1.96875, 512),
    ] {
        let spec = SharedSpec {
            background: Some(BackgroundSpec {
                bandwidth_gbs: 0.0,
                l3_mb: share,
            }),
            ..shared()
        };
        for (lines, level) in [(fits, L3), (fits * 9 / 8, L3 + FIXED)] {
            let mut m = machine_under(&spec, 1);
            let mut last = 0;
            for round in 0..3 {
                for line in 0..lines {
                    let now = last;
                    let request = pagewalk_memory::Request {
                        at: pagewalk_units::PhysAddr(line * 64),
                        kind: pagewalk_memory::RequestKind::Load,
                        core: 0,
                        pc: 0,
                    };
                    last = pagewalk_memory::Below::access(&mut m.shared, request, now).at;
                    if round == 2 && line == lines - 1 {
                        assert_eq!(last - now, level, "{share} MB, {lines} lines");
                    }
                }
            }
        }
    }
}

#[test]
fn impossible_loads_are_refused_by_name() {
    let refused = |spec: SharedSpec, part: &str| {
        let error = Shared::new(&spec, 1, 1.0).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    let of = |bandwidth_gbs, l3_mb| {
        Some(BackgroundSpec {
            bandwidth_gbs,
            l3_mb,
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
            background: of(0.0, 2.0),
            ..shared()
        },
        "memory.background.l3_mb",
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
