//! GraphBIG's own layout, openG: vertices in a `std::list` with a hash map from number to iterator. Each
//! vertex has a `std::list` of its edges, which refer to their targets by number.
//!
//! From an edge to its target's properties (g++ 12.2 -O3; %rbp is the graph,
//! %rbx the edge):
//!
//! ```text
//!   0  mov 0x18(%rbx),%rcx              the edge's target
//!   4  mov 0x28(%rbp),%rsi              buckets of the map
//!   8  xor %edx,%edx ; a mov 0x20(%rbp),%rdi
//!   e  mov %rcx,%rax ; div %rsi ; 14 mov (%rdi,%rdx,8),%rax
//!  18  test ; 1b jne 35
//!  28  mov 0x10(%rax),%rax ; test ; je   next in the bucket
//!  35  cmp (%rax),%rcx ; 38 jne 28       the node's number
//!  3a  cmp (%rdi,%rsi,8),%rax ; 3e je    is it the map's end?
//!  44  mov 0x8(%rax),%rax                the vertex
//! ```
//!
//! Numbers ascend from 0 and hash to themselves, so each bucket holds at most one.

use pagewalk_stream::flags::TAKEN;

use super::load::{self, Loaded};
use super::runs::Cursor;
use super::{Layout, Properties, Vertex};
use crate::graph::source::{Graph, Order};
use crate::heap::Heap;
use crate::thread::{NONE, Thread, Value};

/// Cycles of a 64-bit division: 15 on Intel's cores since Ice Lake (A. Fog,
/// Instruction tables).
const DIVIDE: u64 = 15;
/// Offset of the graph object, in the frame of `main`, below the stack's top.
const GRAPH: u64 = 0x400;

/// A graph in openG's layout.
pub struct OpenG {
    /// The graph object, a variable of `main`.
    graph: u64,
    loaded: Loaded,
    /// Offset of the list of outgoing edges in a vertex.
    out_edges: u64,
    offsets: Vec<u64>,
}

/// Position in a row.
pub struct Edges {
    row: crate::graph::source::Row,
    i: u64,
    edge: Cursor,
    /// Its property and count, if the kernel reads them.
    details: Option<[Cursor; 2]>,
    /// Value that produced its address.
    value: Value,
}

impl OpenG {
    /// Loads the address of the next edge. Returns false if there is none.
    #[inline(always)]
    fn load_next_edge(&self, t: &mut Thread, pc: u64, edges: &mut Edges) -> bool {
        edges.value = t.load(pc, 1, edges.edge.at(), 8, [edges.value, NONE]);
        edges.i += 1;
        let more = edges.i < edges.row.degree;
        if more {
            self.loaded.edges.advance(&mut edges.edge);
            if let (Some(places), Some(cursors)) = (&self.loaded.properties, &mut edges.details) {
                for (place, cursor) in places.iter().zip(cursors) {
                    place.advance(cursor);
                }
            }
        }
        more
    }
}

impl Layout for OpenG {
    type Edges = Edges;

    fn footprint(vertices: u64, edges: u64, properties: &Properties) -> u64 {
        load::footprint(vertices, edges, properties)
    }

    async fn load(
        graph: &Graph,
        order: &Order,
        properties: &Properties,
        heap: &mut Heap,
        t: &mut Thread,
    ) -> Self {
        OpenG {
            graph: t.stack - GRAPH,
            loaded: load::load(graph, order, properties, heap, t).await,
            out_edges: load::vertex_bytes(properties) - 72,
            offsets: properties.fields.iter().map(|f| 0x18 + f.offset).collect(),
        }
    }

    #[inline(always)]
    fn find(&self, t: &mut Thread, pc: u64, vertex: u32, id: Value, hoisted: bool) -> Vertex {
        let [at, node] = self.loaded.vertices[vertex as usize];
        let (buckets, count) = (self.loaded.buckets, self.loaded.count);
        debug_assert!(u64::from(vertex) < count);
        let bucket = buckets + 8 * u64::from(vertex);
        let (mut first, mut base) = (NONE, NONE);
        if !hoisted {
            first = t.load(pc, 1, self.graph + 0x28, 8, [NONE; 2]);
            base = t.load(pc + 6, 2, self.graph + 0x20, 8, [NONE; 2]);
        }
        let insns = if hoisted { 4 } else { 3 };
        let quotient = id.plus(1 + DIVIDE);
        let found = t.load(pc + 0x10, insns, bucket, 8, [quotient, base]);
        t.branch(pc + 0x17, pc + 0x31, 2, true, [found, NONE]);
        let number = t.load(pc + 0x31, 1, node, 8, [found, NONE]);
        t.branch(pc + 0x34, pc + 0x24, 1, false, [number, id]);
        let end = t.load(pc + 0x36, 1, buckets + 8 * count, 8, [first, base]);
        t.branch(pc + 0x3a, pc + 0x80, 1, false, [end, found]);
        let value = t.load(pc + 0x40, 1, node + 8, 8, [found, NONE]);
        Vertex {
            id: vertex,
            at,
            value,
        }
    }

    #[inline(always)]
    fn vertex(&self, vertex: u32, value: Value) -> Vertex {
        Vertex {
            id: vertex,
            at: self.loaded.vertices[vertex as usize][0],
            value,
        }
    }

    #[inline(always)]
    fn reload(&self, t: &mut Thread, pc: u64) {
        t.load(pc, 1, self.graph + 0x20, 8, [NONE; 2]);
        t.load(pc + 4, 1, self.graph + 0x28, 8, [NONE; 2]);
    }

    #[inline(always)]
    fn next(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Option<Vertex> {
        let value = t.load(pc, 1, vertex.at, 8, [vertex.value, NONE]);
        let id = vertex.id + 1;
        let at = self.loaded.vertices.get(id as usize)?[0];
        Some(Vertex { id, at, value })
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
        let list = vertex.at + self.out_edges;
        let value = t.load(pc, 1, list, 8, [vertex.value, NONE]);
        let empty = row.degree == 0;
        t.branch(pc + 0xb, end, 3, empty, [value, vertex.value.plus(1)]);
        (!empty).then(|| Edges {
            row,
            i: 0,
            edge: self.loaded.edges.row(vertex.id),
            details: (self.loaded.properties.as_ref())
                .map(|p| p.each_ref().map(|places| places.row(vertex.id))),
            value,
        })
    }

    #[inline(always)]
    fn degree(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Value {
        let size = vertex.at + self.out_edges + 16;
        t.load(pc, 1, size, 8, [vertex.value, NONE])
    }

    #[inline(always)]
    fn target(&self, t: &mut Thread, pc: u64, graph: &Graph, edges: &Edges) -> (u32, Value) {
        let vertex = graph.neighbour(&edges.row, edges.i);
        let value = t.load(pc, 1, edges.edge.at() + 0x18, 8, [edges.value, NONE]);
        (vertex, value)
    }

    /// `assert(count > 0)` and the property itself.
    #[inline(always)]
    fn weight(&self, t: &mut Thread, pc: u64, edges: &Edges, bytes: u8) -> Value {
        let Some([property, count]) = edges.details.map(|d| d.map(|c| c.at())) else {
            debug_assert!(false, "a kernel that said it reads no weights");
            return NONE;
        };
        let edge = edges.edge.at();
        let counted = t.load(pc, 1, edge + 0x28, 8, [edges.value, NONE]);
        t.branch(pc + 7, pc + 0x80, 2, false, [counted, NONE]);
        let uses = t.load(pc + 9, 1, count + 8, 4, [counted, NONE]);
        t.branch(pc + 0xe, pc + 0x80, 2, false, [uses, NONE]);
        let pointer = t.load(pc + 0x14, 1, edge + 0x20, 8, [edges.value, NONE]);
        t.load(pc + 0x18, 1, property, bytes, [pointer, NONE])
    }

    #[inline(always)]
    fn advance(&self, t: &mut Thread, pc: u64, again: u64, edges: &mut Edges) -> bool {
        let more = self.load_next_edge(t, pc, edges);
        t.branch(pc + 6, again, 2, more, [edges.value, NONE]);
        more
    }

    /// `mov (%rdi),%rdi ; cmp ; je` (the end) ` ; f mov pointer,%rsi ; mov 0x20(%rsi),%r9 ;
    /// mov 0x28(%rsi),%r8 ; 1b jmp again`.
    #[inline(always)]
    fn advance_rereading(
        &self,
        t: &mut Thread,
        pc: u64,
        again: u64,
        pointer: u64,
        edges: &mut Edges,
    ) -> bool {
        let more = self.load_next_edge(t, pc, edges);
        t.branch(pc + 6, pc + 0x20, 2, !more, [edges.value, NONE]);
        if more {
            let graph = t.load(pc + 0xc, 1, pointer, 8, [NONE; 2]);
            t.load(pc + 0x10, 1, self.graph + 0x20, 8, [graph, NONE]);
            t.load(pc + 0x14, 1, self.graph + 0x28, 8, [graph, NONE]);
            t.jump(pc + 0x18, again, 1, TAKEN, [NONE; 2]);
        }
        more
    }

    #[inline(always)]
    fn field(&self, vertex: Vertex, field: usize) -> (u64, Value) {
        (vertex.at + self.offsets[field], vertex.value)
    }
}
