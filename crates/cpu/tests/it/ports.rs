//! Execution ports, and the latency of forwarding.

use crate::bench::*;
use pagewalk_cpu::{CoreSpec, PortsSpec, PredictorSpec};
use pagewalk_stream::{Op, PortWork, flags};

/// Ports of a core of width 6.
fn with_ports(ports: PortsSpec) -> CoreSpec {
    CoreSpec {
        width: 6,
        predictor: PredictorSpec::Perfect {},
        ports,
        ..spec()
    }
}

/// Ports as of Zen 3.
fn limited() -> PortsSpec {
    PortsSpec {
        alu: Some(4),
        multiply: Some(1),
        vector: Some(4),
        vector_multiply: Some(2),
        load: Some(3),
        store: Some(2),
        memory: Some(3),
        branch: Some(2),
        taken_branch: Some(1),
    }
}

/// Cycles of an op of `program`, without start-up.
fn cycles(spec: &CoreSpec, program: impl Fn(u64) -> Op) -> f64 {
    let n = 12_000;
    let mut b = Bench::new(spec);
    let ops: Vec<Op> = (0..2 * n as u64).map(program).collect();
    b.run(&ops[..n]);
    b.run(&ops[n..]) as f64 / n as f64
}

#[track_caller]
fn near(measured: f64, expected: f64) {
    assert!(
        (measured - expected).abs() <= 0.01 * expected,
        "measured {measured}, expected {expected}"
    );
}

/// `n` simple instructions, of which so many multiply integers, and so many vectors.
fn simple(n: u16, multiply: u8, vector: u8, vector_multiply: u8) -> Op {
    Op {
        work: PortWork {
            alu: -((multiply + vector) as i8),
            multiply,
            vector,
            vector_multiply,
        },
        ..compute(n, 0)
    }
}

/// A load, store or branch with `work` among the simple instructions before it.
fn preceded(op: Op, of: Op) -> Op {
    Op {
        insns: of.insns + 1,
        work: of.work,
        ..op
    }
}

#[test]
fn independent_operations_take_the_ports_of_their_class() {
    let s = with_ports(limited());
    near(cycles(&s, |_| simple(12, 0, 0, 0)), 3.0);
    near(cycles(&s, |_| simple(12, 12, 0, 0)), 12.0);
    near(cycles(&s, |_| simple(12, 0, 12, 0)), 3.0);
    near(cycles(&s, |_| simple(12, 0, 12, 12)), 6.0);
    near(cycles(&s, |i| load(i % 3 * 64)), 1.0 / 3.0);
    near(cycles(&s, |_| store(0)), 0.5);
    near(cycles(&s, |_| branch(PC, false)), 0.5);
    near(cycles(&s, |_| branch(PC, true)), 1.0);
    // A group before another op counts as an op of its own does.
    near(cycles(&s, |_| preceded(load(0), simple(8, 8, 0, 0))), 8.0);
    // Stores to different lines are written one a cycle.
    near(cycles(&s, |i| store(i % 2 * 64)), 1.0);
}

#[test]
fn a_mixture_takes_its_most_used_ports_and_the_width_still_limits() {
    let s = with_ports(limited());
    // Three multiplications, eight additions: as many as the multiplier takes.
    near(cycles(&s, |_| simple(11, 3, 0, 0)), 3.0);
    // One multiplication, eight additions.
    near(cycles(&s, |_| simple(9, 1, 0, 0)), 2.0);
    // Six instructions for four classes: the width.
    near(cycles(&s, |_| preceded(load(0), simple(5, 0, 2, 1))), 1.0);
    // Loads and stores share their address units.
    let stores_among_loads = |i: u64| {
        if i % 5 < 2 {
            store(0)
        } else {
            load(i % 5 * 64)
        }
    };
    near(cycles(&s, stores_among_loads), 1.0 / 3.0);
    let apart = with_ports(PortsSpec {
        memory: None,
        ..limited()
    });
    near(cycles(&apart, stores_among_loads), 0.2);
}

#[test]
fn dependent_chains_and_absent_ports_are_as_before() {
    let chains: [&dyn Fn(u64) -> Op; 3] =
        [&|_| after(compute(1, 3), 1), &|_| after(load(0), 1), &|i| {
            if i % 2 == 0 {
                after(compute(2, 2), 1)
            } else {
                branch(PC, false)
            }
        }];
    let (free, s) = (with_ports(PortsSpec::default()), with_ports(limited()));
    for chain in chains {
        near(cycles(&s, chain), cycles(&free, chain));
    }
    near(cycles(&free, |_| simple(12, 12, 0, 0)), 2.0);
    near(cycles(&free, |_| load(0)), 1.0 / 6.0);
}

#[test]
fn operations_that_begin_out_of_order_find_the_ports_of_their_cycle() {
    // A hundred loads depend on a load from memory, and begin two hundred cycles later
    // than the others. The younger ones do not wait for them.
    let s = CoreSpec {
        rob: 512,
        load_queue: 512,
        ..with_ports(PortsSpec {
            load: Some(1),
            ..PortsSpec::default()
        })
    };
    let mut b = Bench::new(&s);
    b.run(&[load(0)]);
    let mut ops = vec![load(1 << 20)];
    ops.extend((1..=100).map(|n| after(load(0), n)));
    ops.extend((0..100).map(|_| load(0)));
    // The late ones take a cycle each after the memory's answer, the others the cycles before it.
    let took = b.run(&ops);
    assert!(
        (DRAM + 100..DRAM + 140).contains(&took),
        "{took} cycles for {} loads",
        ops.len()
    );
}

#[test]
fn a_mispredicted_branch_waits_for_the_multiplications_before_it() {
    let mut took = [0; 2];
    for (ports, took) in [PortsSpec::default(), limited()].into_iter().zip(&mut took) {
        let s = CoreSpec {
            predictor: spec().predictor,
            ..with_ports(ports)
        };
        let mut b = Bench::new(&s);
        let indirect = |i: u64| Op {
            flags: flags::INDIRECT | flags::TAKEN,
            va: PC + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) * 8,
            ..preceded(branch(PC, true), simple(20, 20, 0, 0))
        };
        *took = b.run(&(0..1000).map(indirect).collect::<Vec<_>>());
        assert!(b.stats().mispredictions > 200);
        *took /= b.stats().mispredictions;
    }
    assert!(took[1] > took[0] + 10, "{took:?} cycles a misprediction");
}

#[test]
fn forwarded_data_take_the_forwarding_latency() {
    for latency in [None, Some(7)] {
        let s = CoreSpec {
            forwarding_latency: latency,
            ..spec()
        };
        let mut b = Bench::new(&s);
        b.run(&[load(0)]);
        let trip = |i: u64| {
            if i.is_multiple_of(2) {
                Op {
                    dep: [0, 1],
                    ..store(0)
                }
            } else {
                load(0)
            }
        };
        let n = 2000;
        let took = b.run(&(0..n).map(trip).collect::<Vec<_>>());
        assert_eq!(took / (n / 2), latency.unwrap_or(L1));
    }
}

#[test]
fn impossible_ports_are_refused() {
    let s = with_ports(PortsSpec {
        load: Some(0),
        ..limited()
    });
    let e = s.check().expect_err("no load could start").to_string();
    assert!(
        e.contains("core.ports.load") && e.contains("expected 1 to 7"),
        "{e}"
    );
}
