//! XSBench's tables as functions of the seed, so that no size needs host memory.
//!
//! [0, 1) is divided into `points` equal parts. A nuclide has one energy in each part, at a random place
//! within it, so energies ascend without sorting. The source draws them anywhere in [0, 1) and sorts. The
//! accesses are the same, as a lookup's energy is uniform and independent of them. Energies are multiples of
//! 2^-63, as in the source's generator.

/// Modulus of the generator, which corresponds to an energy of 1.
const ONE: u64 = 1 << 63;
/// The source's linear congruential generator.
const LCG_A: u64 = 2_806_196_910_506_780_709;
/// Initial state.
pub const STARTING_SEED: u64 = 1070;

/// One step.
#[inline(always)]
pub fn lcg(state: u64) -> u64 {
    LCG_A.wrapping_mul(state).wrapping_add(1) % ONE
}

/// `n` steps at once.
pub fn fast_forward(state: u64, n: u64) -> u64 {
    let (mut n, mut a, mut c) = (n % ONE, LCG_A, 1u64);
    let (mut a_new, mut c_new) = (1u64, 0u64);
    while n > 0 {
        if n & 1 == 1 {
            a_new = a_new.wrapping_mul(a);
            c_new = c_new.wrapping_mul(a).wrapping_add(c);
        }
        c = c.wrapping_mul(a.wrapping_add(1));
        a = a.wrapping_mul(a);
        n >>= 1;
    }
    a_new.wrapping_mul(state).wrapping_add(c_new) % ONE
}

/// Maps a generator's state to [0, 1).
#[inline(always)]
pub fn unit(state: u64) -> f64 {
    state as f64 / ONE as f64
}

/// Data read of one nuclide's grid at an energy.
pub struct Micro {
    /// Index of the lower of the two points.
    pub low: u64,
    /// Cross sections there: total, elastic, absorption, fission, nu-fission.
    pub xs: [f64; 5],
}

/// Parameters of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Number of nuclides.
    pub nuclides: u64,
    /// Energies per nuclide.
    pub points: u64,
    /// Seed of all values.
    pub seed: u64,
}

impl Grid {
    #[inline(always)]
    fn hash(self, nuclide: u64, point: u64) -> u64 {
        let mut z = self.seed
            ^ nuclide.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ point.wrapping_mul(0xd1b5_4a32_d192_ed03);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The part of [0, 1) that contains an energy, and the offset within it.
    #[inline(always)]
    fn part(self, energy: u64) -> (u64, u64) {
        let wide = u128::from(energy) * u128::from(self.points);
        ((wide >> 63) as u64, wide as u64 % ONE)
    }

    /// Number of energies of `nuclide` up to and including `energy`.
    #[inline(always)]
    fn rank(self, nuclide: u64, (part, within): (u64, u64)) -> u64 {
        part + u64::from(self.hash(nuclide, part) >> 1 <= within)
    }

    /// Number of energies of all nuclides up to and including `energy`.
    pub fn rank_of_all(self, energy: u64) -> u64 {
        let at = self.part(energy);
        (0..self.nuclides).map(|n| self.rank(n, at)).sum()
    }

    /// Energy of a point of a nuclide, in [0, 1).
    #[inline(always)]
    pub fn energy(self, nuclide: u64, point: u64) -> f64 {
        let within = unit(self.hash(nuclide, point) >> 1);
        (point as f64 + within) / self.points as f64
    }

    #[inline(always)]
    fn xs(self, nuclide: u64, point: u64) -> [f64; 5] {
        let first = self.hash(nuclide, point ^ ONE);
        std::array::from_fn(|k| unit(first.wrapping_mul(2 * k as u64 + 0x9e37_79b9_7f4a_7c15) >> 1))
    }

    /// The lower point that the index grid holds for an energy: the last point up to it, but never the last
    /// of all.
    #[inline(always)]
    pub fn low(self, nuclide: u64, energy: u64) -> u64 {
        let rank = self.rank(nuclide, self.part(energy));
        rank.saturating_sub(1).min(self.points - 2)
    }

    /// Interpolated cross sections of `nuclide` at `energy`.
    #[inline(always)]
    pub fn micro(self, nuclide: u64, energy: u64) -> Micro {
        let low = self.low(nuclide, energy);
        let (e_low, e_high) = (self.energy(nuclide, low), self.energy(nuclide, low + 1));
        let f = (e_high - unit(energy)) / (e_high - e_low);
        let (below, above) = (self.xs(nuclide, low), self.xs(nuclide, low + 1));
        Micro {
            low,
            xs: std::array::from_fn(|k| above[k] - f * (above[k] - below[k])),
        }
    }
}

/// Probabilities of the twelve materials (`pick_mat`).
const SHARES: [f64; 12] = [
    0.140, 0.052, 0.275, 0.134, 0.154, 0.064, 0.066, 0.055, 0.008, 0.015, 0.025, 0.013,
];

/// The material that a generator's state selects. The sums begin with the second material, so the first, the
/// fuel, takes the rest.
pub fn material(state: u64) -> usize {
    let roll = unit(state);
    (1..12)
        .find(|i| roll < SHARES[1..=*i].iter().rev().sum::<f64>())
        .unwrap_or(0)
}

/// Nuclides of each material (`load_mats`).
pub fn materials(small: bool) -> Vec<Vec<u32>> {
    let mut fuel = vec![
        58, 59, 60, 61, 40, 42, 43, 44, 45, 46, 1, 2, 3, 7, 8, 9, 10, 29, 57, 47, 48, 0, 62, 15,
        33, 34, 52, 53, 54, 55, 56, 18, 23, 41,
    ];
    if !small {
        fuel.extend(68..355);
    }
    let cladding = vec![63, 64, 65, 66, 67];
    let water = vec![24, 41, 4, 5];
    let vessel = vec![
        19, 20, 21, 22, 35, 36, 37, 38, 39, 25, 27, 28, 29, 30, 31, 32, 26, 49, 50, 51, 11, 12, 13,
        14, 6, 16, 17,
    ];
    let reflector = vec![
        24, 41, 4, 5, 19, 20, 21, 22, 35, 36, 37, 38, 39, 25, 49, 50, 51, 11, 12, 13, 14,
    ];
    let assembly = [water.clone(), cladding.clone()].concat();
    let mut all = vec![fuel, cladding, water.clone(), water, vessel];
    all.extend(std::iter::repeat_n(reflector, 5));
    all.extend(std::iter::repeat_n(assembly, 2));
    all
}

/// Concentrations of each material's nuclides (`load_concs`).
pub fn concentrations(materials: &[Vec<u32>]) -> Vec<Vec<f64>> {
    let mut state = STARTING_SEED * STARTING_SEED;
    let mut next = |_: &u32| {
        state = lcg(state);
        unit(state)
    };
    materials
        .iter()
        .map(|m| m.iter().map(&mut next).collect())
        .collect()
}
