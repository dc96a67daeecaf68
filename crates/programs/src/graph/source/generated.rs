//! Graphs that are functions of the seed. Each row is computed on demand, so a graph of any scale needs no
//! edges in host memory.

use rand::Rng as _;

use super::{Row, mix};

/// Distribution of the edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// Each vertex has the same number of neighbours, drawn uniformly.
    Uniform,
    /// Graph500's stochastic Kronecker graph, vertices renamed at random.
    Kronecker,
}

/// A directed graph. Neither self-loops nor repeated edges are removed.
pub struct Generated {
    vertices: u64,
    /// Bits of a vertex's number.
    scale: u32,
    model: Model,
    degree: u64,
    edges: u64,
    seed: u64,
    rename: Rename,
    /// Kronecker: expected degree of a vertex whose original number has `k` ones, in units of 2^-FRACTION
    /// edges.
    expected: Vec<u64>,
    /// Kronecker: first edge of every 32nd vertex, and the end of the last row. Rows between are summed on
    /// demand.
    bases: Vec<u64>,
}

const ROWS_PER_BASE: u32 = 32;
const FRACTION: u32 = 24;

// Graph500 specification, section "Generating the edge list": A = 0.57,
// B = C = 0.19, D = 0.05. A bit of the source is 1 with probability C + D; given
// it, the same bit of the target is 1 with B/(A+B) = 1/4 or D/(C+D) = 5/24.
const SOURCE_ZERO: f64 = 0.76;
const SOURCE_ONE: f64 = 0.24;
/// 5/24 to 12 binary places.
const FIVE_24THS: u32 = 853;

impl Generated {
    /// `vertices` must be at most 2^31. For Kronecker it must be a power of two from 2.
    pub fn new(model: Model, vertices: u64, degree: u64, seed: u64) -> Self {
        let scale = vertices.max(2).next_power_of_two().trailing_zeros();
        debug_assert!(scale < 32 && (model == Model::Uniform || vertices.is_power_of_two()));
        let mut rng = pagewalk_units::rng(seed, "workload.bfs.graph");
        let mut graph = Generated {
            vertices,
            scale,
            model,
            degree,
            edges: degree * vertices,
            seed: rng.next_u64(),
            rename: Rename::new(scale, &mut rng),
            expected: Vec::new(),
            bases: Vec::new(),
        };
        if model == Model::Kronecker {
            graph.expected = (0..=scale)
                .map(|ones| {
                    let mut edges = graph.edges as f64 * f64::from(1 << FRACTION);
                    for bit in 0..scale {
                        edges *= if bit < ones { SOURCE_ONE } else { SOURCE_ZERO };
                    }
                    edges as u64
                })
                .collect();
            let mut sum = 0;
            for vertex in 0..graph.vertices() as u32 {
                if vertex % ROWS_PER_BASE == 0 {
                    graph.bases.push(sum);
                }
                sum += graph.kronecker_degree(graph.rename.original(vertex));
            }
            graph.bases.push(sum);
            graph.edges = sum;
        }
        graph
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u64 {
        self.vertices
    }

    /// Number of directed edges.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// Rounds the expected degree up or down at random, which preserves its mean.
    #[inline(always)]
    fn kronecker_degree(&self, original: u32) -> u64 {
        let coin = mix(self.seed, u64::from(original)) >> (64 - FRACTION);
        (self.expected[original.count_ones() as usize] + coin) >> FRACTION
    }

    /// Number of edges in the row of `vertex`.
    #[inline]
    pub fn degree(&self, vertex: u32) -> u64 {
        match self.model {
            Model::Uniform => self.degree,
            Model::Kronecker => self.kronecker_degree(self.rename.original(vertex)),
        }
    }

    /// The row of `vertex`.
    #[inline]
    pub fn row(&self, vertex: u32) -> Row {
        match self.model {
            Model::Uniform => Row {
                start: u64::from(vertex) * self.degree,
                degree: self.degree,
                key: vertex,
            },
            Model::Kronecker => {
                let base = vertex / ROWS_PER_BASE;
                let first = base * ROWS_PER_BASE;
                let next = self.vertices.min(u64::from(first + ROWS_PER_BASE)) as u32;
                let original = self.rename.original(vertex);
                let degree = self.kronecker_degree(original);
                let edges = |vertices: std::ops::Range<u32>| {
                    vertices
                        .map(|v| self.kronecker_degree(self.rename.original(v)))
                        .sum::<u64>()
                };
                // Sums from the nearer base.
                let start = if vertex - first <= next - vertex {
                    self.bases[base as usize] + edges(first..vertex)
                } else {
                    self.bases[base as usize + 1] - degree - edges(vertex + 1..next)
                };
                Row {
                    start,
                    degree,
                    key: original,
                }
            }
        }
    }

    /// The `i`-th neighbour in `row`.
    #[inline]
    pub fn neighbour(&self, row: &Row, i: u64) -> u32 {
        let edge = row.start + i;
        match self.model {
            Model::Uniform => {
                let word = u128::from(mix(self.seed, edge));
                ((word * u128::from(self.vertices)) >> 64) as u32
            }
            Model::Kronecker => {
                let target = self.kronecker_target(edge, row.key);
                self.rename
                    .renamed(target & ((1u64 << self.scale) - 1) as u32)
            }
        }
    }

    /// Computes all bits of the target at once. A bit that is 1 with probability 0.b1b2…b12 comes from twelve
    /// fair bits: OR where b is 1, AND where it is 0, the last place first.
    #[inline(always)]
    fn kronecker_target(&self, edge: u64, source: u32) -> u32 {
        let mut given_one = 0;
        let mut given_zero = 0;
        for pair in 0..6 {
            let word = mix(self.seed.wrapping_add(pair), edge);
            for (half, fair) in [(0, word as u32), (1, (word >> 32) as u32)] {
                let place = pair as u32 * 2 + half;
                given_one = if FIVE_24THS >> place & 1 == 1 {
                    given_one | fair
                } else {
                    given_one & fair
                };
                // One quarter is 0.01 in binary: only the last two steps matter.
                given_zero = match place {
                    10 => fair,
                    11 => given_zero & fair,
                    _ => 0,
                };
            }
        }
        (source & given_one) | (!source & given_zero)
    }
}

/// A bijection on `scale` bits. Graph500 renames vertices at random, so that hubs are not adjacent.
struct Rename {
    mask: u32,
    shift: u32,
    add: u32,
    multiply: [u32; 2],
    inverse: [u32; 2],
}

impl Rename {
    fn new(scale: u32, rng: &mut pagewalk_units::Rng) -> Self {
        let multiply = [rng.next_u32() | 1, rng.next_u32() | 1];
        // Newton's iteration: each step doubles the number of correct bits.
        let inverse = multiply.map(|m| {
            (0..5).fold(m, |x, _| {
                x.wrapping_mul(2u32.wrapping_sub(m.wrapping_mul(x)))
            })
        });
        Rename {
            mask: ((1u64 << scale) - 1) as u32,
            shift: scale.div_ceil(2),
            add: rng.next_u32(),
            multiply,
            inverse,
        }
    }

    // A shift by at least half of the bits makes `x ^ x >> shift` an involution.
    #[inline(always)]
    fn renamed(&self, original: u32) -> u32 {
        let mut x = original.wrapping_add(self.add) & self.mask;
        for m in self.multiply {
            x ^= x >> self.shift;
            x = x.wrapping_mul(m) & self.mask;
        }
        x ^ x >> self.shift
    }

    #[inline(always)]
    fn original(&self, renamed: u32) -> u32 {
        let mut x = renamed ^ renamed >> self.shift;
        for m in self.inverse.iter().rev() {
            x = x.wrapping_mul(*m) & self.mask;
            x ^= x >> self.shift;
        }
        x.wrapping_sub(self.add) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::{Generated, Model, Rename};

    #[test]
    fn renaming_is_a_bijection() {
        for scale in [1, 2, 7, 12, 16] {
            let mut rng = pagewalk_units::rng(u64::from(scale), "test");
            let rename = Rename::new(scale, &mut rng);
            let mut seen = vec![false; 1 << scale];
            for x in 0..1u32 << scale {
                let y = rename.renamed(x);
                assert!(!std::mem::replace(&mut seen[y as usize], true));
                assert_eq!(rename.original(y), x);
            }
        }
    }

    #[test]
    fn rows_are_adjacent_and_cover_all_edges() {
        for model in [Model::Uniform, Model::Kronecker] {
            let graph = Generated::new(model, 1 << 12, 16, 3);
            let mut at = 0;
            for v in 0..graph.vertices() as u32 {
                let row = graph.row(v);
                assert_eq!(row.start, at);
                at += row.degree;
            }
            assert_eq!(at, graph.edges());
            let wanted = 16.0 * 4096.0;
            assert!((at as f64 / wanted - 1.0).abs() < 0.01, "{model:?}: {at}");
        }
    }

    #[test]
    fn kronecker_bits_have_the_probabilities_of_graph500() {
        let graph = Generated::new(Model::Kronecker, 1 << 14, 16, 1);
        // counts[s][t]: number of bits that are s in the source and t in the target.
        let mut counts = [[0u64; 2]; 2];
        for v in 0..graph.vertices() as u32 {
            let row = graph.row(v);
            for i in 0..row.degree {
                let target = graph.rename.original(graph.neighbour(&row, i));
                for bit in 0..14 {
                    let s = row.key >> bit & 1;
                    counts[s as usize][(target >> bit & 1) as usize] += 1;
                }
            }
        }
        let all: u64 = counts.iter().flatten().sum();
        for (s, t, p) in [(0, 0, 0.57), (0, 1, 0.19), (1, 0, 0.19), (1, 1, 0.05)] {
            let share = counts[s][t] as f64 / all as f64;
            assert!((share - p).abs() < 0.002, "{s}{t}: {share} instead of {p}");
        }
    }

    #[test]
    fn kronecker_degrees_are_skewed_and_uniform_ones_are_not() {
        let skew = |model| {
            let graph = Generated::new(model, 1 << 16, 16, 5);
            let mut into = vec![0u32; 1 << 16];
            let mut out = 0;
            for v in 0..1 << 16 {
                let row = graph.row(v);
                out = out.max(row.degree);
                for i in 0..row.degree {
                    into[graph.neighbour(&row, i) as usize] += 1;
                }
            }
            (out, into.iter().copied().max().unwrap())
        };
        let (out, into) = skew(Model::Uniform);
        assert_eq!(out, 16);
        assert!(into < 50, "{into}");
        // The first vertex has 0.76^16 of 2^20 edges: 12,990.
        let (out, into) = skew(Model::Kronecker);
        assert!((12_980..13_000).contains(&out), "{out}");
        assert!((12_000..14_000).contains(&into), "{into}");
    }
}
