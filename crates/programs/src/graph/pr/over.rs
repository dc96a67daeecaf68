//! Bulk fast-forwarding of the pull, many edges at once. The ops of a vertex depend on its degree alone. They
//! touch no page for the first time, once all ranks and the used range of the other arrays were touched.

use std::ops::Range;

use pagewalk_units::Access;

use super::{OLD, PR};
use crate::graph::kernel::World;
use crate::graph::layout::{Csr, Layout};
use crate::thread::{Cost, Thread};

/// Cost of a vertex in the first loop.
const CONTRIBUTION: Cost = Cost::new(7, 10);
/// Cost of a vertex in the second loop, without its edges.
const VERTEX: Cost = Cost::new(9, 14);
/// Cost of an edge.
const EDGE: Cost = Cost::new(4, 5);
/// Distance in ops from the sum of an edge, or from the error sum of a vertex, to the last op.
pub const BACK: u64 = 1;

/// Minimum number of edges for which the check pays off.
const FEW: u64 = 32;

/// Bulk fast-forwarding. Holds the positions up to which earlier checks failed.
#[derive(Default)]
pub struct Over {
    vertex: u64,
    edge: u64,
}

impl Over {
    /// Skips vertices of the first loop, from the start of `left`. Returns their number.
    pub fn contribute<L: Layout>(
        &mut self,
        world: &World<L>,
        t: &mut Thread,
        left: Range<u64>,
    ) -> u64 {
        let Some(csr) = world.memory().csr().filter(|_| left.start >= self.vertex) else {
            return 0;
        };
        let count = t.spare(CONTRIBUTION).min(left.end - left.start);
        let vertices = left.start..left.start + count;
        if count == 0 {
            return 0;
        }
        let known = t.knows(csr.field_of(PR, vertices.clone()), Access::Read)
            && t.knows(csr.rows_of(vertices.clone()), Access::Read)
            && t.knows(csr.field_of(OLD, vertices.clone()), Access::Write);
        if !known {
            self.vertex = vertices.end;
            return 0;
        }
        t.skip_stretch(CONTRIBUTION.times(count));
        count
    }

    /// Skips vertices of the second loop, likewise.
    pub fn pull<L: Layout>(&mut self, world: &World<L>, t: &mut Thread, left: Range<u64>) -> u64 {
        let Some(csr) = world.memory().csr().filter(|_| left.start >= self.vertex) else {
            return 0;
        };
        let (mut cost, mut edges, mut end) = (Cost::default(), 0, left.start);
        while end < left.end {
            let degree = world.graph.degree(end as u32);
            let with = cost.plus(VERTEX).plus(EDGE.times(degree));
            if t.spare(with) == 0 {
                break;
            }
            (cost, edges, end) = (with, edges + degree, end + 1);
        }
        let vertices = left.start..end;
        if vertices.is_empty() {
            return 0;
        }
        let first = world.graph.row(left.start as u32).start;
        let known = t.knows(csr.rows_of(vertices.clone()), Access::Read)
            && t.knows(csr.field_of(PR, vertices.clone()), Access::Write)
            && reads(world, csr, t, first..first + edges);
        if !known {
            self.vertex = end;
            return 0;
        }
        t.skip_stretch(cost);
        end - left.start
    }

    /// Skips edges of a row from the current one on, except the last. Returns their number.
    pub fn edges<L: Layout>(&mut self, world: &World<L>, t: &mut Thread, edges: &L::Edges) -> u64 {
        let (Some(csr), Some(left)) = (world.memory().csr(), world.memory().left(edges)) else {
            return 0;
        };
        let count = t.spare(EDGE).min(left.end - left.start - 1);
        if count < FEW || left.start < self.edge {
            return 0;
        }
        let end = left.start + count;
        if !reads(world, csr, t, left.start..end) {
            self.edge = end;
            return 0;
        }
        t.skip_stretch(EDGE.times(count));
        count
    }
}

/// True if these edges touch no page for the first time, whatever their targets.
fn reads<L: Layout>(world: &World<L>, csr: &Csr, t: &Thread, edges: Range<u64>) -> bool {
    let all = csr.field_of(OLD, 0..world.graph.vertices());
    t.knows(csr.edges_of(edges), Access::Read) && t.knows(all, Access::Read)
}
