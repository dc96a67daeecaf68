//! Sources of a graph's edges. All have the same interface, so each kernel runs over each of them.

mod csr;
mod file;
mod generated;
mod ldbc;
mod lines;
mod names;
mod order;

pub use self::csr::{Builder, Csr, Shape};
pub use self::file::load;
pub use self::generated::{Generated, Model};
pub use self::ldbc::{Degrees, ldbc};
pub use self::order::{Order, by_edges, shuffled};

/// A directed graph: rows of neighbours, as compressed sparse rows hold them.
pub enum Graph {
    /// A function of the seed.
    Generated(Generated),
    /// Held in the host's memory.
    Held(Csr),
}

/// One vertex's row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Position of its first edge among all edges, ordered by source.
    pub start: u64,
    /// Number of its edges.
    pub degree: u64,
    /// State from which the source computes its neighbours.
    key: u32,
}

/// Mixes two 64-bit words into one: the folded 128-bit product of wyhash (Wang Yi, public domain).
#[inline(always)]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

impl Graph {
    /// Number of vertices.
    pub fn vertices(&self) -> u64 {
        match self {
            Graph::Generated(g) => g.vertices(),
            Graph::Held(g) => g.vertices(),
        }
    }

    /// Number of directed edges.
    pub fn edges(&self) -> u64 {
        match self {
            Graph::Generated(g) => g.edges(),
            Graph::Held(g) => g.edges(),
        }
    }

    /// Maps a random `word` to a vertex, uniformly.
    #[inline]
    pub fn vertex_of(&self, word: u64) -> u32 {
        ((u128::from(word) * u128::from(self.vertices())) >> 64) as u32
    }

    /// The row of `vertex`.
    #[inline]
    pub fn row(&self, vertex: u32) -> Row {
        match self {
            Graph::Generated(g) => g.row(vertex),
            Graph::Held(g) => {
                let row = g.row(vertex);
                Row {
                    start: row.start,
                    degree: row.end - row.start,
                    key: vertex,
                }
            }
        }
    }

    /// Number of edges in the row of `vertex`.
    #[inline]
    pub fn degree(&self, vertex: u32) -> u64 {
        match self {
            Graph::Generated(g) => g.degree(vertex),
            Graph::Held(g) => g.neighbours(vertex).len() as u64,
        }
    }

    /// The sorted neighbours of `vertex`. `None` for a generated graph.
    #[inline]
    pub fn sorted(&self, vertex: u32) -> Option<&[u32]> {
        match self {
            Graph::Generated(_) => None,
            Graph::Held(g) => Some(g.neighbours(vertex)),
        }
    }

    /// Weight of the edge at position `edge` among all edges, 1 if edges have no weights.
    #[inline]
    pub fn weight(&self, edge: u64) -> u32 {
        match self {
            Graph::Generated(_) => 1,
            Graph::Held(g) => g.weight(edge).unwrap_or(1),
        }
    }

    /// The `i`-th neighbour in `row`.
    #[inline]
    pub fn neighbour(&self, row: &Row, i: u64) -> u32 {
        match self {
            Graph::Generated(g) => g.neighbour(row, i),
            Graph::Held(g) => g.target(row.start + i),
        }
    }
}
