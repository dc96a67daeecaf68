//! A social network like that of LDBC's Datagen: "knows" edges among persons, mostly between similar persons.
//!
//! Each person draws a number of friends from Facebook's distribution. Persons are ranked three times (by
//! university, by interest, at random) and cut into blocks of 10,000. Within a block a person meets those of
//! higher rank in order. They become friends with probability 0.95^distance, but at least 0.2, unless one of
//! them has enough friends of this kind already. The three rankings contribute 45, 45 and 10 % of the
//! friends. Source: O. Erling et al., The LDBC Social Network Benchmark: Interactive Workload, SIGMOD 2015,
//! section 2.3; Datagen's default parameters (`baseProbCorrelated`, `limitProCorrelated`, `blockSize`).
//!
//! A person's number is independent of the ranks, as in Datagen, where numbers are ordered by creation date:
//! communities show in the edges, not in the numbering.

use rand::Rng as _;

use super::csr::Csr;

const BLOCK: usize = 10_000;
const NEAR: f64 = 0.95;
const LEAST: f64 = 0.2;
const SHARES: [f64; 3] = [0.45, 0.45, 0.1];

/// Facebook's social graph (J. Ugander et al., The Anatomy of the Facebook Social Graph, 2011). Half of the
/// users have at least 99 friends, the mean is 190, and the maximum 5,000. Modelled as log-normal with this
/// median and mean.
const MEDIAN: f64 = 99.0;
const MEAN: f64 = 190.0;
const MOST: f64 = 5000.0;

/// Degree histogram of the LDBC graph of 1,000 persons in GraphBIG: persons with 0, 1, 2, … friends
/// (`dataset/small`, from the reference output of its degree centrality).
const SHIPPED: [u16; 100] = [
    2, 154, 55, 31, 29, 22, 20, 26, 34, 19, 4, 15, 12, 9, 18, 13, 13, 6, 9, 10, 8, 10, 6, 10, 11,
    8, 14, 6, 9, 7, 7, 10, 4, 8, 8, 7, 11, 6, 8, 11, 7, 8, 6, 6, 6, 7, 13, 11, 8, 5, 10, 2, 9, 3,
    5, 8, 6, 4, 2, 4, 6, 6, 8, 1, 5, 4, 8, 10, 8, 5, 4, 8, 5, 5, 4, 2, 3, 3, 6, 0, 10, 9, 8, 3, 1,
    4, 8, 8, 2, 2, 6, 3, 6, 6, 4, 2, 8, 2, 4, 3,
];
/// Mean friends per person of that graph, counted from both ends.
const SHIPPED_MEAN: f64 = 29.79;

/// Distribution of the number of friends that persons want.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Degrees {
    /// Facebook's, as in present versions of Datagen.
    #[default]
    Facebook,
    /// The graph shipped with GraphBIG: no person has many more friends than three times the mean.
    GraphBig,
}

/// A network of `persons` with a mean of `degree` friends. Every friendship is an edge in both directions,
/// and rows are sorted.
pub fn ldbc(persons: u32, degree: f64, seed: u64, degrees: Degrees) -> Csr {
    let mut rng = pagewalk_units::rng(seed, "workload.graph.ldbc");
    let wanted = match degrees {
        Degrees::Facebook => wanted_degrees(persons, degree, &mut rng),
        Degrees::GraphBig => shipped_degrees(persons, degree, &mut rng),
    };
    // A row has room for the wanted friends. Unused room is removed at the end.
    let mut starts = vec![0u64; persons as usize + 1];
    for (v, d) in wanted.iter().enumerate() {
        starts[v + 1] = starts[v] + u64::from(*d);
    }
    let mut rows = Rows {
        neighbours: vec![0; starts[persons as usize] as usize],
        next: starts[..persons as usize].to_vec(),
    };
    let mut ranked: Vec<u32> = (0..persons).collect();
    let mut begun = vec![0u32; persons as usize];
    for share in SHARES {
        shuffle(&mut ranked, &mut rng);
        // Quota of this ranking: its share, rounded up, of the friends not covered by earlier rankings.
        let quota: Vec<u32> = wanted
            .iter()
            .zip(&mut begun)
            .map(|(d, begun)| {
                let mine = ((share * f64::from(*d)).ceil() as u32).min(d - *begun);
                *begun += mine;
                mine
            })
            .collect();
        for block in ranked.chunks(BLOCK) {
            befriend(block, &quota, &mut rows, &mut rng);
        }
    }
    rows.squeeze(&starts)
}

/// Number of friends that each person wants.
fn wanted_degrees(persons: u32, mean: f64, rng: &mut pagewalk_units::Rng) -> Vec<u32> {
    let (mu, sigma) = (MEDIAN.ln(), (2.0 * (MEAN / MEDIAN).ln()).sqrt());
    let most = f64::from(persons.saturating_sub(1));
    // Box-Muller transform.
    let mut draw = || {
        let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
        radius * (std::f64::consts::TAU * unit(rng)).cos()
    };
    (0..persons)
        .map(|_| {
            let facebook = (mu + sigma * draw()).exp().min(MOST);
            let friends = (facebook * mean / MEAN).round();
            friends.max(1.0).min(most) as u32
        })
        .collect()
}

/// Numbers of wanted friends from [`SHIPPED`], scaled to the mean.
fn shipped_degrees(persons: u32, mean: f64, rng: &mut pagewalk_units::Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..)
        .zip(SHIPPED)
        .flat_map(|(degree, persons)| std::iter::repeat_n(degree, usize::from(persons)))
        .collect();
    let most = f64::from(persons.saturating_sub(1));
    (0..persons)
        .map(|_| {
            let one = all[(unit(rng) * all.len() as f64) as usize];
            let friends = f64::from(one) * mean / SHIPPED_MEAN;
            // Rounds up or down at random, which preserves the mean.
            let friends = (friends + unit(rng)).floor();
            friends.max(1.0).min(most) as u32
        })
        .collect()
}

/// Uniform in [0, 1).
fn unit(rng: &mut pagewalk_units::Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Fisher-Yates shuffle.
pub(super) fn shuffle(items: &mut [u32], rng: &mut pagewalk_units::Rng) {
    for i in (1..items.len()).rev() {
        let j = ((u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64) as usize;
        items.swap(i, j);
    }
}

/// Rows under construction.
struct Rows {
    neighbours: Vec<u32>,
    /// Position of each person's next friend.
    next: Vec<u64>,
}

impl Rows {
    fn add(&mut self, person: u32, friend: u32) {
        let next = &mut self.next[person as usize];
        self.neighbours[*next as usize] = friend;
        *next += 1;
    }

    /// Removes unused room, sorts rows and drops repeated friends.
    fn squeeze(mut self, starts: &[u64]) -> Csr {
        let mut offsets = Vec::with_capacity(starts.len());
        let mut to = 0;
        for (start, end) in starts.iter().zip(&self.next) {
            offsets.push(to as u64);
            let row = *start as usize..*end as usize;
            let length = row.len();
            self.neighbours.copy_within(row, to);
            to += length;
        }
        offsets.push(to as u64);
        self.neighbours.truncate(to);
        let mut graph = Csr::from_parts(offsets, self.neighbours);
        graph.simplify();
        graph
    }
}

/// Matches the persons of one block, given in rank order.
fn befriend(block: &[u32], quota: &[u32], rows: &mut Rows, rng: &mut pagewalk_units::Rng) {
    // 0.95^distance, as long as it exceeds the minimum.
    let mut chances = vec![0u64];
    while NEAR.powi(chances.len() as i32) > LEAST {
        chances.push(threshold(NEAR.powi(chances.len() as i32)));
    }
    let least = threshold(LEAST);
    let mut left: Vec<u32> = block.iter().map(|v| quota[*v as usize]).collect();
    // `open[i]`: the first person from `i` on who may want friends, with path halving.
    let mut open: Vec<u32> = (0..=block.len() as u32).collect();
    for (i, left) in left.iter().enumerate() {
        open[i] += u32::from(*left == 0);
    }
    let first_open = |open: &mut Vec<u32>, mut i: usize| {
        while open[i] as usize != i {
            open[i] = open[open[i] as usize];
            i = open[i] as usize;
        }
        i
    };
    for i in 0..block.len() {
        if left[i] == 0 {
            continue;
        }
        let mut j = first_open(&mut open, i + 1);
        while j < block.len() {
            let chance = chances.get(j - i).copied().unwrap_or(least);
            if rng.next_u64() < chance {
                rows.add(block[i], block[j]);
                rows.add(block[j], block[i]);
                left[i] -= 1;
                left[j] -= 1;
                if left[j] == 0 {
                    open[j] = j as u32 + 1;
                }
                if left[i] == 0 {
                    break;
                }
            }
            j = first_open(&mut open, j + 1);
        }
    }
}

/// A uniform 64-bit number is below this with `probability`.
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use super::{Degrees, MEAN, MEDIAN, MOST, SHIPPED, SHIPPED_MEAN, ldbc};

    #[test]
    fn friendships_go_both_ways_and_repeat_with_the_seed() {
        let graph = ldbc(3000, 20.0, 4, Degrees::Facebook);
        assert_eq!(graph, ldbc(3000, 20.0, 4, Degrees::Facebook));
        assert_ne!(graph, ldbc(3000, 20.0, 5, Degrees::Facebook));
        for v in 0..3000 {
            let row = graph.neighbours(v);
            assert!(row.windows(2).all(|w| w[0] < w[1]), "sorted, each once");
            for w in row {
                assert_ne!(*w, v);
                assert!(graph.neighbours(*w).binary_search(&v).is_ok());
            }
        }
    }

    #[test]
    fn degrees_have_facebooks_median_mean_and_largest() {
        let persons = 40_000;
        let graph = ldbc(persons, 58.0, 1, Degrees::Facebook);
        let mut degrees: Vec<u64> = (0..persons)
            .map(|v| {
                let row = graph.row(v);
                row.end - row.start
            })
            .collect();
        degrees.sort_unstable();
        let scale = 58.0 / MEAN;
        let median = degrees[20_000] as f64;
        assert!((median / (MEDIAN * scale) - 1.0).abs() < 0.08, "{median}");
        let mean = graph.edges() as f64 / f64::from(persons);
        assert!((mean / 58.0 - 1.0).abs() < 0.08, "{mean}");
        let most = degrees[39_999] as f64;
        assert!(most <= MOST * scale && most > 0.4 * MOST * scale, "{most}");
        // Facebook's 90th percentile is 99 e^(1.2816 sigma) with sigma = 1.142.
        let tenth = degrees[36_000] as f64;
        assert!((tenth / (428.0 * scale) - 1.0).abs() < 0.08, "{tenth}");
    }

    #[test]
    fn the_shipped_graph_has_as_many_persons_and_friendships_as_its_output_says() {
        let counts = || (0u64..).zip(SHIPPED.map(u64::from));
        assert_eq!(counts().map(|(_, n)| n).sum::<u64>(), 1000);
        let friends: u64 = counts().map(|(d, n)| d * n).sum();
        assert_eq!((friends, SHIPPED_MEAN), (29_790, 29.79));
    }

    /// Mean length of the list at the end of an edge, relative to the mean degree: 1.96 in the shipped graph
    /// and 3.4 with Facebook's distribution (cut at 5,000).
    #[test]
    fn lists_that_edges_lead_to_are_as_unequal_as_in_the_shipped_graph() {
        let unequal = |degrees| {
            let graph = ldbc(30_000, 29.0, 1, degrees);
            let rows = (0..30_000).map(|v| graph.row(v).end - graph.row(v).start);
            let squares: u64 = rows.map(|d| d * d).sum();
            let mean = graph.edges() as f64 / 30_000.0;
            assert!((mean / 29.0 - 1.0).abs() < 0.04, "{mean}");
            squares as f64 / 30_000.0 / mean / mean
        };
        let [shipped, facebook] = [Degrees::GraphBig, Degrees::Facebook].map(unequal);
        assert!((1.85..2.05).contains(&shipped), "{shipped}");
        assert!(facebook > 3.0, "{facebook}");
    }

    #[test]
    fn friends_of_friends_are_friends() {
        // Fraction of closed wedges, compared with the probability that two persons know each other.
        let persons = 20_000;
        let graph = ldbc(persons, 20.0, 2, Degrees::Facebook);
        let (mut closed, mut wedges) = (0u64, 0u64);
        for v in (0..persons).step_by(10) {
            let row = graph.neighbours(v);
            for (i, a) in row.iter().enumerate() {
                for b in &row[i + 1..] {
                    wedges += 1;
                    closed += u64::from(graph.neighbours(*a).binary_search(b).is_ok());
                }
            }
        }
        let clustering = closed as f64 / wedges as f64;
        let chance = 20.0 / f64::from(persons);
        assert!(clustering > 20.0 * chance, "{clustering} against {chance}");
    }

    #[test]
    fn tiny_networks_have_no_more_friends_than_persons() {
        for persons in [1, 2, 3, 10] {
            let graph = ldbc(persons, 50.0, 1, Degrees::Facebook);
            assert_eq!(graph.vertices(), u64::from(persons));
            assert!(graph.edges() <= u64::from(persons) * (u64::from(persons) - 1));
        }
    }
}
