//! Compares lookups with the source's algorithm on real tables.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_stream::{Op, OpClass};

use super::code::Simulation;
use super::data::{Grid, STARTING_SEED, concentrations, fast_forward, lcg, materials, unit};
use super::{INFO, data, xsbench};
use crate::drain::drain;
use crate::entry::{Options, Values};

fn run(params: &[(&str, &str)], size: u64, threads: u32) -> (Vec<Op>, Arc<Simulation>) {
    let options = Options {
        size_bytes: Some(size),
        threads,
        seed: 0,
        params: params
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
    };
    let values = Values::new(&INFO, &options);
    let (mut code, shared) = xsbench(&values).unwrap();
    let mut ops = Vec::new();
    drain(&mut code, |batch| ops.extend_from_slice(&batch.ops));
    (ops, shared)
}

/// The source's tables: sorted energies per nuclide, their union, and the index grid.
struct Real {
    energies: Vec<Vec<f64>>,
    union: Vec<f64>,
    index: Vec<Vec<usize>>,
}

fn real(grid: Grid) -> Real {
    let energies: Vec<Vec<f64>> = (0..grid.nuclides)
        .map(|n| (0..grid.points).map(|p| grid.energy(n, p)).collect())
        .collect();
    for one in &energies {
        assert!(one.windows(2).all(|w| w[0] < w[1]) && one[0] >= 0.0 && one[one.len() - 1] < 1.0);
    }
    let mut union = energies.concat();
    union.sort_by(f64::total_cmp);
    let mut low = vec![0usize; energies.len()];
    let index = union
        .iter()
        .map(|energy| {
            for (low, one) in low.iter_mut().zip(&energies) {
                if *energy >= one[*low + 1] && *low < one.len() - 2 {
                    *low += 1;
                }
            }
            low.clone()
        })
        .collect();
    Real {
        energies,
        union,
        index,
    }
}

impl Real {
    /// Returns the row of the union, the points read, and the sums.
    fn lookup(&self, energy: f64, list: &[u32]) -> (usize, Vec<usize>) {
        let (mut low, mut high) = (0, self.union.len() - 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.union[middle] > energy {
                high = middle;
            } else {
                low = middle;
            }
        }
        let row = &self.index[low];
        (low, list.iter().map(|n| row[*n as usize]).collect())
    }
}

#[test]
fn every_lookup_reads_the_points_of_the_source() {
    for (problem, size) in [("small", 68 * 50 * 328), ("large", 355 * 7 * 1476)] {
        let params = [
            ("problem", problem),
            ("method", "event"),
            ("lookups", "400"),
        ];
        let (ops, shared) = run(&params, size, 1);
        let (grid, tables) = (shared.grid, &shared.tables);
        let real = real(grid);
        let lists = materials(problem == "small");
        let mut expected = Vec::new();
        for lookup in 0..400 {
            let state = lcg(fast_forward(STARTING_SEED, 2 * lookup));
            let list = &lists[data::material(lcg(state))];
            let (row, points) = real.lookup(unit(state), list);
            for (n, p) in list.iter().zip(points) {
                let n = u64::from(*n);
                expected.push(tables.index + 4 * (row as u64 * grid.nuclides + n));
                expected.push(tables.points + 48 * (n * grid.points + p as u64));
            }
        }
        let of = |op: &&Op| {
            matches!(op.pc - crate::layout::CODE, 0x2e00 | 0x2e50) && op.kind == OpClass::Load
        };
        let found: Vec<u64> = ops.iter().filter(of).map(|op| op.va).collect();
        let expected_after: Vec<u64> = expected;
        assert!(found == expected_after, "{problem}");
    }
}

#[test]
fn the_check_sum_is_that_of_the_tables_whatever_the_threads() {
    let params = [("problem", "small"), ("particles", "250"), ("lookups", "9")];
    let sums = [1, 3, 16].map(|threads| {
        let (_, shared) = run(&params, 68 * 40 * 328, threads);
        (shared.verification.load(Relaxed), shared.grid)
    });
    assert!(sums[0] == sums[1] && sums[1] == sums[2]);
    let grid = sums[0].1;
    let real = real(grid);
    let lists = materials(true);
    let concs = concentrations(&lists);
    let mut sum = 0;
    for particle in 0..250 {
        let mut state = lcg(fast_forward(STARTING_SEED, particle * 9 * 10));
        for _ in 0..9 {
            let energy = state;
            state = lcg(state);
            let material = data::material(state);
            let (_, points) = real.lookup(unit(energy), &lists[material]);
            let mut totals = [0.0f64; 5];
            for ((n, low), conc) in lists[material].iter().zip(&points).zip(&concs[material]) {
                let micro = grid.micro(u64::from(*n), energy);
                assert_eq!(micro.low, *low as u64);
                let one = &real.energies[*n as usize];
                let inside = one[*low] <= unit(energy) && unit(energy) < one[*low + 1];
                assert!(!inside || micro.xs.iter().all(|x| (0.0..1.0).contains(x)));
                for (total, xs) in totals.iter_mut().zip(micro.xs) {
                    *total += xs * conc;
                }
            }
            let mut best = 0;
            for k in 1..5 {
                if totals[k] > totals[best] {
                    best = k;
                }
            }
            sum += best as u64 + 1;
            let above = totals.iter().filter(|t| **t > 1.0).count() as u64;
            if above > 0 {
                state = fast_forward(state, above);
            }
            state = lcg(state);
        }
    }
    assert_eq!(sums[0].0, sum);
}

#[test]
fn materials_are_picked_at_the_sources_rates() {
    let mut counts = [0u32; 12];
    let mut state = STARTING_SEED;
    for _ in 0..200_000 {
        state = lcg(state);
        counts[data::material(state)] += 1;
    }
    let expected = [
        0.139, 0.052, 0.275, 0.134, 0.154, 0.064, 0.066, 0.055, 0.008, 0.015, 0.025, 0.013,
    ];
    for (count, share) in counts.iter().zip(expected) {
        let mean = share * 200_000.0;
        assert!(
            (f64::from(*count) - mean).abs() < 5.0 * f64::sqrt(mean),
            "{counts:?}"
        );
    }
    let lengths = [321, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9];
    assert_eq!(
        materials(false).iter().map(Vec::len).collect::<Vec<_>>(),
        lengths
    );
}

#[test]
fn jumping_ahead_equals_stepping() {
    let mut state = STARTING_SEED;
    for n in 0..2000 {
        assert_eq!(fast_forward(STARTING_SEED, n), state);
        state = lcg(state);
    }
}
