//! The STLT unit against the simulator's table.

use pagewalk_rtl::stlt_check::{Harness, Query, Totals, run};
use pagewalk_rtl::verilated;
use pagewalk_tables::{StltCounter, StltSpec};
use pagewalk_units::rng;
use rand::{Rng, RngExt};

fn spec(ways: u32, counter: StltCounter) -> StltSpec {
    StltSpec {
        ways,
        counter,
        ..StltSpec::default()
    }
}

/// Queries of few sets and few sub-integers, so that rows match, fill and are replaced.
fn random_query(random: &mut impl Rng, steps: u64) -> Query {
    let sets = [2, 64, 1 << 14][random.random_range(0..3)];
    let high = random.random_range(0..sets) | random.next_u64() << 40;
    let integer = high << 12 | random.random_range(0..6);
    let arena = random.random_range(0..12u64) << 30;
    let va = match random.random_range(0..32) {
        0 => 0,
        1 => 1 << 48,
        2 => (1 << 48) - 1,
        _ => arena + random.random_range(1..4096) * 64,
    };
    Query {
        insert: random.random_range(0..steps) == 0,
        integer,
        va,
    }
}

fn compare(ways: u32, counter: StltCounter, queries: u64) -> Totals {
    let mut harness = Harness::new(
        spec(ways, counter),
        256 << (ways % 3),
        u64::from(ways),
        None,
    );
    let mut random = rng(u64::from(ways), "queries");
    let mut steps = 2;
    for n in 0..queries {
        if n % 512 == 0 {
            steps = [1, 2, 5, 40][random.random_range(0..4)];
        }
        match random.random_range(0..256) {
            0..16 => {
                let va = random_query(&mut random, 1).va & ((1 << 48) - 1);
                harness.invalidate(va);
            }
            16 => harness.switch(),
            17 => {
                harness.turn(false);
                for _ in 0..8 {
                    harness.query(&random_query(&mut random, 2));
                }
                harness.turn(true);
            }
            18..64 => harness.pause(random.random_range(0..300)),
            _ => {}
        }
        harness.query(&random_query(&mut random, steps));
    }
    harness.compare_rows();
    harness.totals
}

fn check(units: &[(u32, StltCounter)]) {
    if !verilated::available() {
        return;
    }
    for &(ways, counter) in units {
        let t = compare(ways, counter, 20_000);
        assert!(
            t.hits > 500 && t.invalid > 50 && t.refreshes > 10,
            "{ways}: {t:?}"
        );
        assert!(
            t.rows_written > 2000 && t.conflict_cycles > 100,
            "{ways}: {t:?}"
        );
        assert!(
            t.stb_hits > 500 && t.stb_lookups > 2 * t.stb_hits,
            "{ways}: {t:?}"
        );
        assert!(t.inserts_timed > 100, "{ways}: {t:?}");
        // The simulator charges a cycle for each row behind the walk, the unit only one.
        assert_eq!(t.inserts_early > 100, ways > 1, "{ways}: {t:?}");
        // With one line the result is in the simulator's cycle; the first of two is scanned early.
        assert_eq!(t.loads_early > 0, ways == 8, "{ways}: {t:?}");
        assert!(t.loads_timed > 500, "{ways}: {t:?}");
    }
}

#[test]
fn random_queries_leave_the_rows_and_results_of_the_simulator() {
    check(&[(4, StltCounter::Wraps)]);
}

#[test]
#[ignore = "compiles the hardware of each setting: make rtl-test"]
fn random_queries_leave_the_rows_and_results_of_the_simulator_with_any_ways() {
    check(&[
        (8, StltCounter::Wraps),
        (1, StltCounter::Wraps),
        (2, StltCounter::Saturates),
    ]);
}

const PROGRAMS: [&str; 5] = ["kv-hash", "kv-dense", "kv-map", "kv-btree", "kv-redis"];

#[test]
fn queries_of_key_value_stores_get_the_results_of_the_simulator() {
    if !verilated::available() {
        return;
    }
    for name in PROGRAMS {
        let t = run(name, 4 << 20, 8_000, StltSpec::default(), 1 << 12, 1, None)
            .expect("the program has enough queries");
        assert!(t.loads + t.inserts >= 8_000, "{name}: {t:?}");
        assert!(t.hits > 300 && t.rows_written > 300, "{name}: {t:?}");
        assert_eq!(t.loads_timed, t.loads, "{name}: {t:?}");
    }
}
