//! Functions shared by the graph searches.

use std::sync::atomic::AtomicU32;

use pagewalk_units::{Rng, rng};
use rand::Rng as _;

use super::source::Graph;
use crate::thread::{NONE, Thread};

/// Level of a vertex that was not reached.
pub const NOT_REACHED: u32 = 0xffff_ff00;

/// [`NOT_REACHED`] for each vertex of `graph`.
pub fn unreached(graph: &Graph) -> Vec<AtomicU32> {
    let vertices = 0..graph.vertices();
    vertices.map(|_| AtomicU32::new(NOT_REACHED)).collect()
}

/// Roots of the searches: random vertices with neighbours.
pub struct Roots {
    rng: Rng,
}

impl Roots {
    /// Draws roots by `seed`.
    pub fn new(seed: u64) -> Self {
        Roots {
            rng: rng(seed, "workload.bfs.roots"),
        }
    }

    /// The next root.
    pub fn next(&mut self, graph: &Graph) -> u32 {
        loop {
            let vertex = graph.vertex_of(self.rng.next_u64());
            if graph.row(vertex).degree > 0 {
                return vertex;
            }
        }
    }
}

/// `(*counter)++`, one instruction.
#[inline(always)]
pub fn count(t: &mut Thread, pc: u64, counter: u64) {
    let old = t.load(pc, 1, counter, 8, [NONE; 2]);
    t.store(pc, 0, counter, 8, NONE, old.plus(1));
}
