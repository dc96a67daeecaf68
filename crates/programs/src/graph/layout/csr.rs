//! Compressed sparse rows as in GAP: an array of 8-byte row starts, an array of 4-byte neighbours (8 bytes
//! with a weight), and one array per property.

use std::ops::Range;

use super::{Field, Layout, Properties, Vertex};
use crate::graph::source::{Graph, Order, Row};
use crate::heap::Heap;
use crate::thread::{NONE, Thread, Value};

/// Addresses of the arrays.
pub struct Csr {
    vertices: u64,
    /// Row starts, plus one.
    offsets: u64,
    neighbours: u64,
    edge_bytes: u64,
    /// Address and element size of each property's array.
    fields: Vec<(u64, u64)>,
}

/// Position in a row.
pub struct Edges {
    row: Row,
    i: u64,
    start: Value,
    end: Value,
}

fn edge_bytes(properties: &Properties) -> u64 {
    if properties.weights { 8 } else { 4 }
}

/// Address ranges of the data of a range of vertices or edges.
impl Csr {
    /// Row starts of `vertices`, and the end of the last row.
    pub fn rows_of(&self, vertices: Range<u64>) -> Range<u64> {
        self.offsets + 8 * vertices.start..self.offsets + 8 * (vertices.end + 1)
    }

    /// Neighbours at these edge positions.
    pub fn edges_of(&self, edges: Range<u64>) -> Range<u64> {
        let at = |edge: u64| self.neighbours + self.edge_bytes * edge;
        at(edges.start)..at(edges.end)
    }

    /// Property `field` of `vertices`.
    pub fn field_of(&self, field: usize, vertices: Range<u64>) -> Range<u64> {
        let (at, bytes) = self.fields[field];
        at + bytes * vertices.start..at + bytes * vertices.end
    }
}

impl Layout for Csr {
    type Edges = Edges;

    fn footprint(vertices: u64, edges: u64, properties: &Properties) -> u64 {
        let fields: u64 = properties.fields.iter().map(|f| u64::from(f.size)).sum();
        vertices * (8 + fields) + edges * edge_bytes(properties)
    }

    async fn load(
        graph: &Graph,
        _: &Order,
        properties: &Properties,
        heap: &mut Heap,
        t: &mut Thread,
    ) -> Self {
        let vertices = graph.vertices();
        let edge_bytes = edge_bytes(properties);
        let offsets = heap.malloc(8 * (vertices + 1));
        let neighbours = heap.malloc(edge_bytes * graph.edges().max(1));
        let array = |f: &Field| (heap.malloc(u64::from(f.size) * vertices), u64::from(f.size));
        let fields = properties.fields.iter().map(array).collect();
        heap.emit_pending(t).await;
        Csr {
            vertices,
            offsets,
            neighbours,
            edge_bytes,
            fields,
        }
    }

    #[inline(always)]
    fn find(&self, _: &mut Thread, _: u64, vertex: u32, id: Value, _: bool) -> Vertex {
        Vertex {
            id: vertex,
            at: 0,
            value: id,
        }
    }

    #[inline(always)]
    fn vertex(&self, vertex: u32, value: Value) -> Vertex {
        Vertex {
            id: vertex,
            at: 0,
            value,
        }
    }

    #[inline(always)]
    fn reload(&self, _: &mut Thread, _: u64) {}

    #[inline(always)]
    fn next(&self, _: &mut Thread, _: u64, vertex: Vertex) -> Option<Vertex> {
        let id = vertex.id + 1;
        let value = vertex.value.plus(1);
        (u64::from(id) < self.vertices).then_some(Vertex { id, at: 0, value })
    }

    #[inline(always)]
    fn edges(
        &self,
        t: &mut Thread,
        pc: u64,
        end: u64,
        graph: &Graph,
        vertex: Vertex,
    ) -> Option<Edges> {
        let row = graph.row(vertex.id);
        let at = self.offsets + 8 * u64::from(vertex.id);
        let stop = t.load(pc, 1, at + 8, 8, [vertex.value, NONE]);
        let start = t.load(pc + 5, 1, at, 8, [vertex.value, NONE]);
        let empty = row.degree == 0;
        t.branch(pc + 0xc, end, 2, empty, [stop, start]);
        (!empty).then_some(Edges {
            row,
            i: 0,
            start,
            end: stop,
        })
    }

    #[inline(always)]
    fn degree(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Value {
        let at = self.offsets + 8 * u64::from(vertex.id);
        let end = t.load(pc, 1, at + 8, 8, [vertex.value, NONE]);
        let start = t.load(pc + 5, 1, at, 8, [vertex.value, NONE]);
        t.compute(pc + 8, 1, 1, [end, start])
    }

    #[inline(always)]
    fn target(&self, t: &mut Thread, pc: u64, graph: &Graph, edges: &Edges) -> (u32, Value) {
        let vertex = graph.neighbour(&edges.row, edges.i);
        let at = self.neighbours + self.edge_bytes * (edges.row.start + edges.i);
        let from = edges.start.plus(1 + edges.i);
        (vertex, t.load(pc, 1, at, 4, [from, NONE]))
    }

    /// The weight is next to the neighbour. GAP's weights have 4 bytes.
    #[inline(always)]
    fn weight(&self, t: &mut Thread, pc: u64, edges: &Edges, _: u8) -> Value {
        debug_assert!(self.edge_bytes == 8);
        let at = self.neighbours + self.edge_bytes * (edges.row.start + edges.i);
        t.load(pc, 1, at + 4, 4, [edges.start.plus(1 + edges.i), NONE])
    }

    /// This layout has no map to read again.
    #[inline(always)]
    fn advance_rereading(
        &self,
        t: &mut Thread,
        pc: u64,
        again: u64,
        _: u64,
        edges: &mut Edges,
    ) -> bool {
        self.advance(t, pc, again, edges)
    }

    #[inline(always)]
    fn advance(&self, t: &mut Thread, pc: u64, again: u64, edges: &mut Edges) -> bool {
        edges.i += 1;
        let more = edges.i < edges.row.degree;
        let bounds = [edges.start.plus(1 + edges.i), edges.end];
        t.branch(pc + 7, again, 3, more, bounds);
        more
    }

    fn csr(&self) -> Option<&Csr> {
        Some(self)
    }

    fn left(&self, edges: &Edges) -> Option<Range<u64>> {
        Some(edges.row.start + edges.i..edges.row.start + edges.row.degree)
    }

    fn leap(&self, edges: &mut Edges, count: u64) {
        edges.i += count;
    }

    #[inline(always)]
    fn row_at(&self, graph: &Graph, vertex: Vertex) -> Option<u64> {
        Some(self.neighbours + self.edge_bytes * graph.row(vertex.id).start)
    }

    #[inline(always)]
    fn field(&self, vertex: Vertex, field: usize) -> (u64, Value) {
        let (at, bytes) = self.fields[field];
        (at + bytes * u64::from(vertex.id), vertex.value.plus(1))
    }
}
