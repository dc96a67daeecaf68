//! A graph whose edges are held in host memory: 4 bytes per edge, 4 more with weights, 8 per vertex.

use super::Graph;

/// Compressed sparse rows: the neighbours of each vertex are contiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Csr {
    /// First edge of each vertex, plus the end.
    offsets: Vec<u64>,
    neighbours: Vec<u32>,
    /// One per edge, or empty.
    weights: Vec<u32>,
}

/// Transformation of the edges that a graph was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Each edge is stored in both directions.
    pub symmetric: bool,
    /// Rows are sorted, without self-loops and repeated edges.
    pub simple: bool,
    /// Weights are kept.
    pub weighted: bool,
}

/// Builds a [`Csr`] in two passes: count each edge, then add each edge.
pub struct Builder {
    shape: Shape,
    /// During counting, `offsets[v + 1]` is the degree of `v`. Afterwards it is the position of its next
    /// edge.
    offsets: Vec<u64>,
    /// Directed edges counted.
    edges: u64,
    graph: Csr,
}

impl Builder {
    /// An empty graph.
    pub fn new(shape: Shape) -> Self {
        Builder {
            shape,
            offsets: vec![0],
            edges: 0,
            graph: Csr::default(),
        }
    }

    /// Allocates vertices up to `vertex`.
    pub fn vertex(&mut self, vertex: u32) {
        let needed = vertex as usize + 2;
        if self.offsets.len() < needed {
            self.offsets.resize(needed, 0);
        }
    }

    /// Number of vertices so far.
    pub fn vertices(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// First pass: counts an edge.
    #[inline]
    pub fn count(&mut self, source: u32, target: u32) {
        self.vertex(source.max(target));
        self.offsets[source as usize + 1] += 1;
        self.edges += 1;
        if self.shape.symmetric && source != target {
            self.offsets[target as usize + 1] += 1;
            self.edges += 1;
        }
    }

    /// Directed edges counted so far.
    pub fn counted(&self) -> u64 {
        self.edges
    }

    /// Peak host memory of this graph with `vertices` and `edges` during construction, in bytes: two arrays
    /// of offsets, neighbours, weights.
    pub fn bytes(&self, vertices: u64, edges: u64) -> u64 {
        let an_edge = if self.shape.weighted { 8 } else { 4 };
        vertices
            .saturating_mul(16)
            .saturating_add(edges.saturating_mul(an_edge))
    }

    /// Allocates the edges, between the passes.
    pub fn allocate(&mut self) {
        for v in 1..self.offsets.len() {
            self.offsets[v] += self.offsets[v - 1];
        }
        let edges = self.edges as usize;
        self.graph.offsets.clone_from(&self.offsets);
        self.graph.neighbours = vec![0; edges];
        if self.shape.weighted {
            self.graph.weights = vec![0; edges];
        }
    }

    /// Second pass: adds an edge. Returns false for an edge that was not counted.
    #[inline]
    pub fn add(&mut self, source: u32, target: u32, weight: u32) -> bool {
        let there = self.put(source, target, weight);
        let both = self.shape.symmetric && source != target;
        there && (!both || self.put(target, source, weight))
    }

    #[inline]
    fn put(&mut self, source: u32, target: u32, weight: u32) -> bool {
        let v = source as usize;
        let Some(end) = self.graph.offsets.get(v + 1) else {
            return false;
        };
        let at = self.offsets[v];
        if at == *end {
            return false;
        }
        self.offsets[v] += 1;
        self.graph.neighbours[at as usize] = target;
        if self.shape.weighted {
            self.graph.weights[at as usize] = weight;
        }
        true
    }

    /// The graph, without duplicate edges and loops if its shape is simple.
    pub fn finish(mut self) -> Csr {
        if self.shape.simple {
            self.graph.simplify();
        }
        self.graph
    }
}

impl Csr {
    #[cfg(test)]
    /// The graph of an edge list (source, target, weight) with at least `vertices`.
    pub fn from_edges(vertices: u32, edges: &[(u32, u32, u32)], shape: Shape) -> Self {
        let mut builder = Builder::new(shape);
        if vertices > 0 {
            builder.vertex(vertices - 1);
        }
        for &(source, target, _) in edges {
            builder.count(source, target);
        }
        builder.allocate();
        for &(source, target, weight) in edges {
            let counted = builder.add(source, target, weight);
            debug_assert!(counted);
        }
        builder.finish()
    }

    /// Copies the edges of another graph.
    pub fn of(graph: &Graph, shape: Shape) -> Self {
        let each = |f: &mut dyn FnMut(u32, u32)| {
            for v in 0..graph.vertices() as u32 {
                let row = graph.row(v);
                for i in 0..row.degree {
                    f(v, graph.neighbour(&row, i));
                }
            }
        };
        let mut builder = Builder::new(shape);
        if let Some(last) = graph.vertices().checked_sub(1) {
            builder.vertex(last as u32);
        }
        each(&mut |s, t| builder.count(s, t));
        builder.allocate();
        each(&mut |s, t| {
            builder.add(s, t, 1);
        });
        builder.finish()
    }

    /// Builds a graph from contiguous rows. `offsets` has one element more than there are vertices.
    pub(super) fn from_parts(offsets: Vec<u64>, neighbours: Vec<u32>) -> Self {
        debug_assert_eq!(offsets.last().copied(), Some(neighbours.len() as u64));
        Csr {
            offsets,
            neighbours,
            weights: Vec::new(),
        }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Number of directed edges.
    pub fn edges(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// Positions of `vertex`'s edges among all edges.
    #[inline(always)]
    pub fn row(&self, vertex: u32) -> std::ops::Range<u64> {
        let v = vertex as usize;
        self.offsets[v]..self.offsets[v + 1]
    }

    /// The neighbours of `vertex`.
    #[inline(always)]
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let row = self.row(vertex);
        &self.neighbours[row.start as usize..row.end as usize]
    }

    /// Target of the edge at position `edge`.
    #[inline(always)]
    pub fn target(&self, edge: u64) -> u32 {
        self.neighbours[edge as usize]
    }

    /// Weight of the edge at position `edge`, if edges have weights.
    #[inline(always)]
    pub fn weight(&self, edge: u64) -> Option<u32> {
        self.weights.get(edge as usize).copied()
    }

    /// Sorts rows and removes self-loops. Of several edges with the same ends it keeps the lightest.
    pub(super) fn simplify(&mut self) {
        // `read` is the start of the input row. The output of earlier rows ends at `to`.
        let (mut read, mut to) = (0, 0);
        let mut row: Vec<(u32, u32)> = Vec::new();
        for v in 0..self.offsets.len() - 1 {
            let end = self.offsets[v + 1] as usize;
            self.offsets[v] = to as u64;
            if self.weights.is_empty() {
                self.neighbours[read..end].sort_unstable();
                let mut last = v as u32;
                let mut first = true;
                for e in read..end {
                    let target = self.neighbours[e];
                    if target != v as u32 && (first || target != last) {
                        self.neighbours[to] = target;
                        to += 1;
                        (last, first) = (target, false);
                    }
                }
            } else {
                row.clear();
                let targets = self.neighbours[read..end].iter().copied();
                row.extend(targets.zip(self.weights[read..end].iter().copied()));
                row.sort_unstable();
                row.dedup_by_key(|e| e.0);
                for &(target, weight) in row.iter().filter(|e| e.0 != v as u32) {
                    self.neighbours[to] = target;
                    self.weights[to] = weight;
                    to += 1;
                }
            }
            read = end;
        }
        if let Some(last) = self.offsets.last_mut() {
            *last = to as u64;
        }
        self.neighbours.truncate(to);
        self.neighbours.shrink_to_fit();
        if !self.weights.is_empty() {
            self.weights.truncate(to);
            self.weights.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::{Csr, Shape};

    fn list(graph: &Csr) -> Vec<(u32, u32, u32)> {
        let mut edges = Vec::new();
        for v in 0..graph.vertices() as u32 {
            for e in graph.row(v) {
                edges.push((v, graph.target(e), graph.weight(e).unwrap_or(0)));
            }
        }
        edges
    }

    fn edges() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
        proptest::collection::vec((0u32..20, 0u32..20, 1u32..5), 0..200)
    }

    proptest! {
        #[test]
        fn rows_hold_every_edge_in_the_order_given(edges in edges()) {
            let shape = Shape { weighted: true, ..Shape::default() };
            let graph = Csr::from_edges(20, &edges, shape);
            let mut wanted = edges;
            wanted.sort_by_key(|e| e.0);
            prop_assert_eq!(graph.vertices(), 20);
            prop_assert_eq!(list(&graph), wanted);
        }

        #[test]
        fn a_simple_graph_has_each_edge_once_and_no_loop(
            edges in edges(), symmetric: bool, weighted: bool,
        ) {
            let shape = Shape { symmetric, simple: true, weighted };
            let graph = Csr::from_edges(20, &edges, shape);
            let mut wanted: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for &(s, t, w) in edges.iter().filter(|e| e.0 != e.1) {
                for (a, b) in [(s, t), (t, s)].into_iter().take(1 + usize::from(symmetric)) {
                    let weight = wanted.entry((a, b)).or_insert(w);
                    *weight = w.min(*weight);
                }
            }
            let weight = |w| if weighted { w } else { 0 };
            let wanted: Vec<_> = wanted.into_iter().map(|((a, b), w)| (a, b, weight(w))).collect();
            prop_assert_eq!(list(&graph), wanted);
        }

        #[test]
        fn a_symmetric_graph_has_each_edge_both_ways(edges in edges()) {
            let shape = Shape { symmetric: true, ..Shape::default() };
            let graph = Csr::from_edges(0, &edges, shape);
            let pairs: BTreeSet<_> = list(&graph).iter().map(|e| (e.0, e.1)).collect();
            prop_assert!(pairs.iter().all(|&(a, b)| pairs.contains(&(b, a))));
            let loops = edges.iter().filter(|e| e.0 == e.1).count();
            prop_assert_eq!(graph.edges() as usize, 2 * edges.len() - loops);
        }
    }
}
