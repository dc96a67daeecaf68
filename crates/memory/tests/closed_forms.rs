//! What memory costs, as closed forms.

mod common;

use common::*;
use pagewalk_memory::{Below, Kind, Level};

#[test]
fn a_hit_costs_the_latency_of_its_level() {
    let mut m = machine(&private(), &shared());
    let first = m.load(0x10_0000, 0);
    assert_eq!(first.level, Level::Memory);
    assert_eq!(first.at, L3 + FIXED);
    assert_eq!(m.load(0x10_0000, 1000).at, 1000 + L1);
    assert_eq!(m.load(0x10_0000, 1000).level, Level::L1);
}

#[test]
fn chains_cost_exactly_the_latency_of_their_level() {
    // Footprints (lines) that fit L1D, L2, L3 and nothing; a cycle through a
    // set-associative LRU cache that it does not fit never hits.
    for (lines, latency, level) in [
        (64, L1, Level::L1),
        (2048, L2, Level::L2),
        (16384, L3, Level::L3),
        (100_000, L3 + FIXED, Level::Memory),
    ] {
        let mut m = machine(&private(), &shared());
        let mut now = 0;
        for round in 0..3 {
            let began = now;
            for l in 0..lines {
                let done = m.load(l * 64, now);
                if round == 2 {
                    assert_eq!((done.at - now, done.level), (latency, level));
                }
                now = done.at;
            }
            if round == 2 {
                assert_eq!(now - began, lines * latency);
            }
        }
    }
}

#[test]
fn a_walk_enters_at_the_l2_and_pays_its_latency() {
    let mut m = machine(&private(), &shared());
    let done = m.access(0x5000, Kind::Walk, 0, 0);
    assert_eq!(done.at, L3 + FIXED);
    assert_eq!(m.access(0x5000, Kind::Walk, 0, 1000).at, 1000 + L2);
    assert_eq!(m.load(0x5000, 2000).at, 2000 + L2, "not in the L1D");
    assert_eq!(m.shared.delay(pagewalk_units::PhysAddr(0), 0), 0);
}
