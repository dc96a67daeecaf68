//! Key choice of a YCSB client: the generators of YCSB core 0.17.0, reproduced number for number.
//!
//! Sources: Cooper et al., SoCC 2010; for the zipfian generator Gray et al., "Quickly generating
//! billion-record synthetic databases", SIGMOD 1994. Gray's method draws rank 2 more often than the zipfian
//! law (.051 instead of .044 with a thousand items). YCSB has the same deviation.

use rand::RngExt as _;

/// Exponent of the zipfian law (`ZIPFIAN_CONSTANT`).
const THETA: f64 = 0.99;
/// Items of the scrambled generator, hashed to keys (`ITEM_COUNT`).
const SCRAMBLED_ITEMS: u64 = 10_000_000_001;
/// Their zeta (`ZETAN`).
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// `Utils.fnvhash64`: eight octets, lowest first, and the absolute value.
pub fn fnv64(mut number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    (hash as i64).unsigned_abs()
}

/// Sum of `i^-theta` for i from `from` + 1 to `to`, added to `sum`.
fn zeta(from: u64, to: u64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, i| sum + 1.0 / ((i + 1) as f64).powf(THETA))
}

/// Zipfian ranks from 0: low ranks are drawn most often.
#[derive(Clone, Debug)]
pub struct Zipfian {
    /// Items at construction. `eta` keeps using it when items are added.
    items: f64,
    counted: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// A generator over `items` ranks. Takes time proportional to their number.
    pub fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta(0, items, 0.0))
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        let mut made = Zipfian {
            items: items as f64,
            counted: items,
            zeta,
            eta: 0.0,
        };
        made.set_eta();
        made
    }

    fn set_eta(&mut self) {
        let two = zeta(0, 2, 0.0);
        self.eta = (1.0 - (2.0 / self.items).powf(1.0 - THETA)) / (1.0 - two / self.zeta);
    }

    /// The rank for `u` in 0..1, of `items` ranks: the initial number or more.
    pub fn rank(&mut self, u: f64, items: u64) -> u64 {
        if items > self.counted {
            self.zeta = zeta(self.counted, items, self.zeta);
            self.counted = items;
            self.set_eta();
        }
        let uz = u * self.zeta;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            (items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        }
    }
}

/// Distribution over the keys 0 to n - 1, in the order of insertion.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// The first key is drawn most often (`ZipfianGenerator`).
    Zipfian(Zipfian),
    /// Ten thousand million zipfian items, hashed to the keys (`ScrambledZipfianGenerator`, YCSB's
    /// `requestdistribution=zipfian`).
    Scrambled(Zipfian),
    /// The last key is drawn most often (`SkewedLatestGenerator`).
    Latest(Zipfian),
    /// All keys equally often (`UniformLongGenerator`).
    Uniform,
}

impl Chooser {
    /// The distribution by name, over `keys` keys. `None` for another name.
    pub fn new(distribution: &str, keys: u64) -> Option<Self> {
        Some(match distribution {
            "zipfian" => Chooser::Zipfian(Zipfian::new(keys)),
            "scrambled" => Chooser::Scrambled(Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA)),
            // The generator is constructed for the last key's number, one less than the number of keys.
            "latest" => Chooser::Latest(Zipfian::new(keys.saturating_sub(1).max(1))),
            "uniform" => Chooser::Uniform,
            _ => return None,
        })
    }

    /// The next key, out of `keys`.
    pub fn next(&mut self, rng: &mut pagewalk_units::Rng, keys: u64) -> u64 {
        let u: f64 = rng.random();
        match self {
            Chooser::Zipfian(zipfian) => {
                let items = zipfian.counted;
                zipfian.rank(u, items)
            }
            Chooser::Scrambled(zipfian) => fnv64(zipfian.rank(u, SCRAMBLED_ITEMS)) % keys,
            // `max - nextLong(max)`, with the last key's number as max.
            Chooser::Latest(zipfian) => {
                let last = keys - 1;
                last.saturating_sub(zipfian.rank(u, last.max(1)))
            }
            Chooser::Uniform => ((u * keys as f64) as u64).min(keys - 1),
        }
    }
}

/// The 24 characters of a key: "user" and `number` with leading zeros (`CoreWorkload.buildKeyName`,
/// `zeropadding=20`).
pub fn text(number: u64) -> [u8; 24] {
    const HALF: u64 = 10_000_000_000;
    let mut text = *b"user00000000000000000000";
    // Two independent chains of divisions.
    let (mut high, mut low) = (number / HALF, number % HALF);
    for digit in (0..10).rev() {
        text[4 + digit] = b'0' + (high % 10) as u8;
        text[14 + digit] = b'0' + (low % 10) as u8;
        (high, low) = (high / 10, low / 10);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Chooser, THETA, Zipfian, fnv64, text, zeta};

    #[test]
    fn hashes_are_those_of_the_reference() {
        let hashes = [0, 1, 2, 3].map(fnv64);
        assert_eq!(
            hashes,
            [
                6284781860667377211,
                8517097267634966620,
                1820151046732198393,
                4052466453699787802
            ]
        );
    }

    #[test]
    fn zeta_is_that_of_the_reference() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(zeta(0, 1000, 0.0), 7.728953217284729);
        near(zeta(0, 10_000_000, 0.0), 18.066242574968303);
        // Computed in steps, the sum is the same.
        near(zeta(400, 1000, zeta(0, 400, 0.0)), 7.728953217284729);
    }

    fn shares(chooser: &mut Chooser, keys: u64, draws: u64) -> Vec<u64> {
        let mut rng = pagewalk_units::rng(1, "test.ycsb");
        let mut counts = vec![0u64; keys as usize];
        for _ in 0..draws {
            counts[chooser.next(&mut rng, keys) as usize] += 1;
        }
        counts
    }

    /// Shares printed by the reference after five million draws.
    #[test]
    fn zipfian_shares_are_those_of_the_reference() {
        let draws = 3_000_000;
        let counts = shares(&mut Chooser::new("zipfian", 1000).unwrap(), 1000, draws);
        for (rank, share) in [
            (0, 0.12966),
            (1, 0.06493),
            (2, 0.05106),
            (9, 0.01342),
            (99, 0.00129),
        ] {
            let got = counts[rank] as f64 / draws as f64;
            // Five standard deviations of both samples.
            let sigma: f64 = (share * (1.0 / draws as f64 + 1.0 / 5e6)).sqrt();
            assert!((got - share).abs() < 5.0 * sigma, "rank {rank}: {got}");
        }
    }

    /// Probability of each rank by Gray's formula: rank r is drawn if u lies between the inverses of r and r
    /// + 1.
    fn law(items: u64) -> Vec<f64> {
        let zipfian = Zipfian::new(items);
        let inverse = |rank: u64| {
            ((rank as f64 / items as f64).powf(1.0 - THETA) - 1.0 + zipfian.eta) / zipfian.eta
        };
        let first = [
            1.0 / zipfian.zeta,
            (1.0 + 0.5_f64.powf(THETA)) / zipfian.zeta,
        ];
        let low = |rank: u64| match rank {
            0 => 0.0,
            1 | 2 => first[rank as usize - 1],
            _ => inverse(rank).max(first[1]),
        };
        let mut law: Vec<f64> = (0..items).map(|r| low(r + 1) - low(r)).collect();
        law[items as usize - 1] = 1.0 - low(items - 1);
        law
    }

    /// Chi-square of `counts` against `law`, in units of its standard deviation.
    fn chi_square(counts: &[u64], law: &[f64]) -> f64 {
        let draws: u64 = counts.iter().sum();
        let mut chi = 0.0;
        for (count, p) in counts.iter().zip(law) {
            let expected = p * draws as f64;
            assert!(expected > 5.0);
            chi += (*count as f64 - expected).powi(2) / expected;
        }
        let degrees = law.len() as f64 - 1.0;
        (chi - degrees) / (2.0 * degrees).sqrt()
    }

    #[test]
    fn zipfian_and_latest_are_as_the_formula_says() {
        let (keys, draws) = (500, 1_000_000);
        let law_of_500 = law(keys);
        let counts = shares(&mut Chooser::new("zipfian", keys).unwrap(), keys, draws);
        assert!(chi_square(&counts, &law_of_500) < 5.0);
        // `latest` counts back from the last key.
        let mut counts = shares(&mut Chooser::new("latest", keys).unwrap(), keys, draws);
        counts.reverse();
        assert_eq!(counts.pop(), Some(0), "the first key is never drawn");
        assert!(chi_square(&counts, &law(keys - 1)) < 5.0);
        let even = vec![1.0 / keys as f64; keys as usize];
        assert!(chi_square(&counts, &even) > 1000.0);
    }

    #[test]
    fn uniform_is_even() {
        let counts = shares(&mut Chooser::new("uniform", 1000).unwrap(), 1000, 1_000_000);
        assert!(chi_square(&counts, &[0.001; 1000]) < 5.0);
    }

    #[test]
    fn scrambled_shares_are_those_of_the_reference() {
        let (keys, draws) = (10_000_000, 3_000_000u64);
        let counts = shares(&mut Chooser::new("scrambled", keys).unwrap(), keys, draws);
        let top = *counts.iter().max().unwrap() as f64 / draws as f64;
        assert!((top - 0.0378).abs() < 0.0008, "{top}");
        let distinct = counts.iter().filter(|c| **c > 0).count() as f64;
        assert!((distinct - 1_441_847.0).abs() < 5_000.0, "{distinct}");
    }

    #[test]
    fn latest_prefers_new_keys() {
        let mut chooser = Chooser::new("latest", 1000).unwrap();
        let mut rng = pagewalk_units::rng(1, "test.ycsb");
        let newest = |chooser: &mut Chooser, keys, rng: &mut _| {
            (0..10_000)
                .filter(|_| chooser.next(rng, keys) == keys - 1)
                .count()
        };
        for keys in [1000, 1001, 1500] {
            let count = newest(&mut chooser, keys, &mut rng);
            assert!((1100..1450).contains(&count), "{count} of {keys}");
        }
    }

    #[test]
    fn keys_are_24_characters() {
        assert_eq!(&text(0), b"user00000000000000000000");
        assert_eq!(&text(6284781860667377211), b"user06284781860667377211");
        assert_eq!(&text(u64::MAX), b"user18446744073709551615");
    }
}
