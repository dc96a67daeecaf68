//! The hash function by which a kernel places pages and hardware guesses their frames
//! (Revelator, sections 5.1 and 5.3.1).

use std::ops::Range;

use pagewalk_units::Asid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crc64;

/// Maximum number of tiers (Revelator, table 1).
pub const MOST_TIERS: usize = 6;

/// Hashed bits of a page number, more than any virtual address has.
pub const NUMBER_BITS: u32 = 48;

/// The factors of [`mix`].
pub const MIX_FACTORS: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

/// The right shift of [`mix`] before, between and after its multiplications.
pub const MIX_SHIFT: u32 = 33;

/// Distance of the values whose mixtures are the seeds of the tiers.
pub const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Left rotation of the CRC. The upper bits select the frame. Adjacent pages, twice as many as 2^n frames, reach
/// each frame if the upper n bits have full rank over the lower n + 1 bits of the page number. They have it for 30
/// of the 32 smallest n, and with no other rotation for more.
pub const CRC_ROTATION: u32 = 15;

/// A hash key: an address space, and a number in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashKey {
    /// The address space.
    pub asid: Asid,
    /// The page number, or the number of a page table's region.
    pub number: u64,
}

/// Address space of guest-physical keys, which no process has.
const MACHINE: Asid = Asid(0);
/// Separates the keys of the host's page tables from those of the pages that they map.
const TABLE_OF_HOST: u64 = 1 << (NUMBER_BITS - 1);

impl HashKey {
    /// The key of page `vpn` of `asid`, also for a guest process.
    #[inline]
    pub fn page(asid: Asid, vpn: u64) -> Self {
        HashKey { asid, number: vpn }
    }
    /// The key of the last-level page table for page `vpn` of `asid`, also for a guest.
    #[inline]
    pub fn table(asid: Asid, vpn: u64) -> Self {
        HashKey {
            asid,
            number: vpn >> 9,
        }
    }
    /// The key of page `page` of a guest's physical memory.
    #[inline]
    pub fn guest_page(page: u64) -> Self {
        HashKey {
            asid: MACHINE,
            number: page,
        }
    }
    /// The key of the host's last-level page table for that page.
    #[inline]
    pub fn host_table(page: u64) -> Self {
        HashKey {
            asid: MACHINE,
            number: TABLE_OF_HOST | page >> 9,
        }
    }
}

/// A bijective mixing function in which each input bit affects about half of the output
/// bits (the finaliser of MurmurHash3).
#[inline]
pub fn mix(value: u64) -> u64 {
    let fold = |h: u64| h ^ h >> MIX_SHIFT;
    let [first, second] = MIX_FACTORS;
    fold(fold(fold(value).wrapping_mul(first)).wrapping_mul(second))
}

/// The hash function of all tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TierFunction {
    /// The finaliser of MurmurHash3: two multiplications (our choice: the paper names no function).
    #[default]
    Murmur,
    /// One multiplication by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section
    /// 6.4). Adjacent pages spread more evenly than random ones.
    Multiplicative,
    /// CRC-64 of ECMA-182, rotated: parities only. Pages that select the same frame in one tier select the same
    /// frame in each tier, because a CRC is linear.
    Crc,
}

impl TierFunction {
    /// All functions, in the order of their numbers in hardware.
    pub const ALL: [TierFunction; 3] = [Self::Murmur, Self::Multiplicative, Self::Crc];

    /// The hash of a key that was combined with the seed of a tier. Its upper bits select the frame.
    #[inline]
    pub fn hash(self, value: u64) -> u64 {
        match self {
            TierFunction::Murmur => mix(value),
            TierFunction::Multiplicative => value.wrapping_mul(SEED_STEP),
            TierFunction::Crc => crc64(value).rotate_left(CRC_ROTATION),
        }
    }

    /// Seed number `n` of the generator started with `seed` (with `Murmur`, SplitMix64: Steele, Lea and
    /// Flood, OOPSLA 2014).
    fn generated(self, seed: u64, n: u8) -> u64 {
        self.hash(seed.wrapping_add(u64::from(n).wrapping_mul(SEED_STEP)))
    }
}

/// Selection of frames by hash. Each tier is the hash function with a separate seed.
///
/// Kernel and hardware use the same function. Configuration registers hold the number,
/// order and seeds of the tiers. The address space is part of the key, so pages of
/// different address spaces never have the same hash: they select the same frame only by
/// chance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TieredHash {
    function: TierFunction,
    /// The value from which `seeds` are generated.
    seed: u64,
    /// True if the seeds are numbers 1, 2, … of the generator.
    in_order: bool,
    seeds: [u64; MOST_TIERS],
    tiers: usize,
    range: Range<u64>,
}

impl TieredHash {
    /// One tier for each number in `order`, which selects a seed generated from `seed`,
    /// from 1 on. `range` is the range of frames to choose from. The function is `Murmur`.
    ///
    /// # Panics
    /// There are more than [`MOST_TIERS`] tiers, or `range` is empty.
    pub fn new(seed: u64, order: &[u8], range: Range<u64>) -> Self {
        Self::with(TierFunction::default(), seed, order, range)
    }

    /// As [`Self::new`], with another function.
    ///
    /// # Panics
    /// There are more than [`MOST_TIERS`] tiers, or `range` is empty.
    pub fn with(function: TierFunction, seed: u64, order: &[u8], range: Range<u64>) -> Self {
        assert!(!range.is_empty(), "there are frames to choose from");
        let mut seeds = [0; MOST_TIERS];
        for (of_tier, &n) in seeds[..order.len()].iter_mut().zip(order) {
            *of_tier = function.generated(seed, n);
        }
        TieredHash {
            function,
            seed,
            in_order: (1..).zip(order).all(|(n, &seed)| n == seed),
            seeds,
            tiers: order.len(),
            range,
        }
    }

    /// The function of all tiers.
    pub fn function(&self) -> TierFunction {
        self.function
    }

    /// The value from which the seeds of the tiers are generated, if these are numbers 1, 2, … of the generator.
    pub fn seed_in_order(&self) -> Option<u64> {
        self.in_order.then_some(self.seed)
    }

    /// Number of tiers.
    #[inline]
    pub fn tiers(&self) -> usize {
        self.tiers
    }

    /// The frames to choose from.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// The first tier, from 1 on, that selects `frame` for `key`; 0 if none does.
    pub fn tier_of(&self, frame: u64, key: HashKey) -> u8 {
        let selects = |&tier: &usize| self.of(tier, key) == frame;
        let found = (0..self.tiers).find(selects);
        found.map_or(0, |tier| tier as u8 + 1)
    }

    /// The frame that `tier`, from 0 on, selects for `key`.
    #[inline]
    pub fn of(&self, tier: usize, key: HashKey) -> u64 {
        self.frame(tier, key.asid, key.number)
    }

    /// The frame that `tier`, from 0 on, selects for a page of `asid`. `number` is its
    /// virtual page number, or that of the region for a frame of a page table
    /// ([`HashKey`]).
    #[inline]
    pub fn frame(&self, tier: usize, asid: Asid, number: u64) -> u64 {
        let number = number & ((1 << NUMBER_BITS) - 1);
        let key = u64::from(asid.0) << NUMBER_BITS | number;
        let hash = self.function.hash(key ^ self.seeds[tier]);
        // A multiplication replaces the remainder, because the number of frames is no power
        // of two.
        let frames = self.range.end - self.range.start;
        self.range.start + ((u128::from(hash) * u128::from(frames)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CRC_ROTATION, HashKey, MOST_TIERS, TierFunction, TieredHash, mix};
    use crate::crc64;
    use pagewalk_units::Asid;

    const ALL: [u8; MOST_TIERS] = [1, 2, 3, 4, 5, 6];

    /// Pearson's chi-square statistic for equally likely cells.
    fn chi_square(counts: &[u64]) -> f64 {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let terms = counts.iter().map(|&c| (c as f64 - mean).powi(2) / mean);
        terms.sum()
    }

    /// Neighbouring pages, as in programs, over a number of frames that is no power of two.
    /// Each tier and each pair of tiers must spread them like random numbers.
    #[test]
    fn every_frame_is_as_likely_in_every_tier_whatever_the_others_say() {
        let cells = 96;
        // Chi-square with n degrees of freedom has mean n and standard deviation sqrt(2 n).
        let most = |cells: f64| cells + 5.0 * (2.0 * cells).sqrt();
        for stride in [1, 512] {
            let h = TieredHash::new(7, &ALL, 1000..1000 + 96 * 1013);
            let cell = |tier, n: u64| ((h.frame(tier, Asid(3), n * stride) - 1000) / 1013) as usize;
            for a in 0..MOST_TIERS {
                let mut alone = vec![0; cells];
                (0..200_000).for_each(|n| alone[cell(a, n)] += 1);
                let x = chi_square(&alone);
                assert!(x < most(96.0), "tier {a}, stride {stride}: {x}");
                for b in 0..a {
                    let mut pairs = vec![0; cells * cells];
                    (0..200_000).for_each(|n| pairs[cell(a, n) * cells + cell(b, n)] += 1);
                    let x = chi_square(&pairs);
                    assert!(x < most(9216.0), "tiers {a} and {b}, stride {stride}: {x}");
                }
            }
        }
    }

    #[test]
    fn frames_lie_in_the_range() {
        let h = TieredHash::new(1, &ALL, 40..43);
        let got: BTreeSet<u64> = (0..500)
            .map(|n| h.frame(n as usize % 6, Asid(0), n))
            .collect();
        assert_eq!(got, BTreeSet::from([40, 41, 42]));
    }

    /// With as many frames as hashes, the frame equals the hash, so no frame may occur
    /// twice.
    #[test]
    fn pages_of_different_address_spaces_never_have_the_same_hash() {
        for function in TierFunction::ALL {
            let h = TieredHash::with(function, 5, &[1], 0..u64::MAX);
            let numbers = (0..2000).chain((1 << 36) - 5..(1 << 36) + 5);
            let mut seen = BTreeSet::new();
            for number in numbers {
                for asid in [0, 1, 2, 3, 255, 256, u16::MAX] {
                    let frame = h.frame(0, Asid(asid), number);
                    assert!(
                        seen.insert(frame),
                        "{function:?}, address space {asid}, page {number}"
                    );
                }
            }
        }
    }

    /// Pages of an array and as many frames: random pages leave 1/e of the frames empty. The golden ratio
    /// spaces adjacent pages evenly, and a CRC of adjacent pages is a permutation of its upper bits here.
    #[test]
    fn adjacent_pages_collide_less_by_multiplication_and_by_crc() {
        let pages = 1 << 16;
        let [murmur, multiplicative, crc] = TierFunction::ALL.map(|function| {
            let h = TieredHash::with(function, 7, &[1], 0..pages);
            let frames: BTreeSet<u64> = (0..pages).map(|n| h.frame(0, Asid(3), n)).collect();
            frames.len() as f64 / pages as f64
        });
        let random = 1.0 - (-1.0f64).exp();
        assert!((murmur - random).abs() < 0.01, "{murmur}");
        assert!(multiplicative > random + 0.1, "{multiplicative}");
        assert_eq!(crc, 1.0);
    }

    /// Rank of a matrix over GF(2) with these columns.
    fn rank(columns: impl Iterator<Item = u64>) -> u32 {
        let mut basis = [0u64; 64];
        for mut column in columns {
            while column != 0 {
                let top = 63 - column.leading_zeros() as usize;
                if basis[top] == 0 {
                    basis[top] = column;
                    break;
                }
                column ^= basis[top];
            }
        }
        basis.iter().filter(|&&column| column != 0).count() as u32
    }

    #[test]
    fn no_rotation_of_the_crc_suits_more_sizes_of_memory() {
        let suits = |rotation: u32| {
            let column = |bit| crc64(1u64 << bit).rotate_left(rotation);
            let full = |&n: &u32| rank((0..=n).map(|bit| column(bit) >> (64 - n))) == n;
            (1..=32).filter(full).count()
        };
        assert_eq!(suits(CRC_ROTATION), 30);
        assert_eq!((0..64).map(suits).max(), Some(30));
    }

    /// A CRC is linear, so the seed of a tier only moves all frames.
    #[test]
    fn pages_that_collide_in_one_tier_of_a_crc_collide_in_all() {
        let frames = 1 << 10;
        let collide = |function| {
            let h = TieredHash::with(function, 7, &[1, 2], 0..frames);
            let pages: Vec<u64> = (0..2000).map(|n| mix(n) >> 20).collect();
            let of = |tier, n: usize| h.frame(tier, Asid(3), pages[n]);
            let pairs = (0..pages.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            let first: Vec<_> = pairs.filter(|&(a, b)| of(0, a) == of(0, b)).collect();
            let both = first.iter().filter(|&&(a, b)| of(1, a) == of(1, b)).count();
            assert!(first.len() > 1000, "{function:?}: {}", first.len());
            both as f64 / first.len() as f64
        };
        assert!(collide(TierFunction::Murmur) < 0.01);
        assert_eq!(collide(TierFunction::Crc), 1.0);
    }

    /// Page numbers and region numbers of a guest's memory are small and overlap.
    #[test]
    fn a_hosts_tables_and_the_pages_that_they_map_have_hashes_of_their_own() {
        let h = TieredHash::new(5, &[1], 0..u64::MAX);
        let mut seen = BTreeSet::new();
        for n in 0..2000 {
            assert!(seen.insert(h.of(0, HashKey::guest_page(n))));
            assert!(seen.insert(h.of(0, HashKey::host_table(n << 9))));
            assert!(seen.insert(h.of(0, HashKey::page(Asid(1), n))));
        }
        // All entries of a table select the frame of that table.
        let (first, last) = (HashKey::host_table(512), HashKey::host_table(1023));
        assert_eq!(h.of(0, first), h.of(0, last));
        assert_eq!(HashKey::table(Asid(3), 1023), HashKey::page(Asid(3), 1));
    }

    #[test]
    fn the_order_says_which_seed_a_tier_takes() {
        let made = |seed, order: &[u8]| TieredHash::new(seed, order, 0..1 << 20);
        let (as_made, other) = (made(9, &[1, 2, 3]), made(9, &[3, 1, 2]));
        let mut differ = 0;
        for n in 0..100 {
            let of = |h: &TieredHash| [0, 1, 2].map(|t| h.frame(t, Asid(1), n));
            let [a, b, c] = of(&as_made);
            assert_eq!(of(&other), [c, a, b]);
            let key = HashKey::page(Asid(1), n);
            assert_eq!(
                [a, b, c].map(|frame| as_made.tier_of(frame, key)),
                [1, 2, 3]
            );
            assert_eq!(as_made.tier_of(1 << 20, key), 0);
            assert_eq!(of(&made(9, &[1, 2, 3])), [a, b, c]);
            differ += u64::from(of(&made(10, &[1, 2, 3])) != [a, b, c]);
        }
        assert_eq!(differ, 100, "another seed, other frames");
        let seeds = [&as_made, &other].map(TieredHash::seed_in_order);
        assert_eq!(seeds, [Some(9), None]);
    }

    #[test]
    fn the_mixing_is_murmurs() {
        // fmix64 of MurmurHash3, computed by hand from its constants.
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
    }
}
