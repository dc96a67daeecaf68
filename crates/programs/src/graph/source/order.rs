//! Order in which a graph's file lists its edges, and thereby its vertices.
//!
//! GraphBIG's own LDBC files (`dataset/small`) group edges by source, but sources come in another order than
//! in `vertex.csv`. Built with `EDGES=1` its programs read no vertex file. A vertex is then allocated when an
//! edge first names it, between the edges, and vertices without edges do not exist.

use super::csr::Csr;
use super::ldbc::shuffle;
use super::{Builder, Graph, Shape};

/// Order of loading.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Sources in the order of their edges. Empty: numeric order.
    pub sources: Vec<u32>,
    /// Each vertex is allocated when an edge first names it.
    pub interleaved: bool,
}

/// A random order of sources.
pub fn shuffled(graph: &Graph, seed: u64) -> Order {
    let mut sources: Vec<u32> = (0..graph.vertices() as u32).collect();
    let mut rng = pagewalk_units::rng(seed, "workload.graph.order");
    shuffle(&mut sources, &mut rng);
    Order {
        sources,
        interleaved: false,
    }
}

/// The graph as loaded from its edges alone, in a random order of their sources. Vertices are numbered as
/// they are first named. With `shape.simple` rows are sorted again.
pub fn by_edges(graph: &Graph, shape: Shape, seed: u64) -> (Csr, Order) {
    const UNNAMED: u32 = u32::MAX;
    let mut names = vec![UNNAMED; graph.vertices() as usize];
    let mut count = 0;
    let mut name = |vertex: u32| {
        let name = &mut names[vertex as usize];
        if *name == UNNAMED {
            *name = count;
            count += 1;
        }
        *name
    };
    let old = shuffled(graph, seed).sources;
    let mut sources = Vec::with_capacity(old.len());
    let mut builder = Builder::new(Shape {
        symmetric: false,
        ..shape
    });
    for &source in &old {
        let row = graph.row(source);
        if row.degree == 0 {
            continue;
        }
        let named = name(source);
        sources.push(named);
        for i in 0..row.degree {
            builder.count(named, name(graph.neighbour(&row, i)));
        }
    }
    builder.allocate();
    for &source in &old {
        let row = graph.row(source);
        for i in 0..row.degree {
            let target = names[graph.neighbour(&row, i) as usize];
            let weight = graph.weight(row.start + i);
            let counted = builder.add(names[source as usize], target, weight);
            debug_assert!(counted);
        }
    }
    let order = Order {
        sources,
        interleaved: true,
    };
    (builder.finish(), order)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{by_edges, shuffled};
    use crate::graph::source::{Csr, Graph, Shape, ldbc::ldbc};

    #[test]
    fn edges_name_each_vertex_once_and_in_turn() {
        let given = Graph::Held(ldbc(2000, 12.0, 1, Default::default()));
        let (graph, order) = by_edges(&given, Shape::default(), 7);
        assert_eq!(graph.edges(), given.edges());
        let mut known = 0;
        for &source in &order.sources {
            for named in std::iter::once(source).chain(graph.neighbours(source).iter().copied()) {
                assert!(named <= known, "{named} before {known}");
                known = known.max(named + 1);
            }
        }
        assert_eq!(u64::from(known), graph.vertices());
        let degrees = [Graph::Held(graph), given].map(|g| {
            let mut all: Vec<u64> = (0..g.vertices() as u32).map(|v| g.row(v).degree).collect();
            all.retain(|d| *d > 0);
            all.sort_unstable();
            all
        });
        assert_eq!(degrees[0], degrees[1]);
    }

    #[test]
    fn weights_stay_with_their_edges_and_unnamed_vertices_vanish() {
        let edges = [(5, 2, 7), (2, 5, 8), (2, 2, 9)];
        let weighted = Shape {
            weighted: true,
            ..Shape::default()
        };
        let given = Graph::Held(Csr::from_edges(9, &edges, weighted));
        let (graph, order) = by_edges(&given, weighted, 1);
        assert_eq!((graph.vertices(), graph.edges()), (2, 3));
        let two = u32::from(order.sources[0] != 0 || graph.neighbours(0).len() != 2);
        let weights: Vec<_> = graph.row(two).filter_map(|e| graph.weight(e)).collect();
        assert_eq!(weights, [8, 9]);
    }

    #[test]
    fn a_shuffled_order_has_every_source_once() {
        let given = Graph::Held(ldbc(1000, 5.0, 1, Default::default()));
        let order = shuffled(&given, 3);
        let all: BTreeSet<u32> = order.sources.iter().copied().collect();
        assert_eq!((order.sources.len(), all.len()), (1000, 1000));
        assert!(order.sources.windows(2).any(|w| w[0] > w[1]));
    }
}
