//! How a graph lies in memory, and what compiled code does to get at it.
//!
//! A kernel is written once, against [`Layout`]; each of its methods emits the
//! instructions that stand at `pc` in the program's code.

mod csr;
mod load;
mod open_g;
mod runs;

use std::ops::Range;

use super::source::{Graph, Order};
use crate::heap::Heap;
use crate::thread::{Thread, Value};

pub use csr::Csr;
pub use open_g::OpenG;

/// One property of a vertex.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Where it lies in the vertex's property object.
    pub offset: u64,
    /// Its length in bytes, in the object and in an array of its own.
    pub size: u8,
}

/// What a kernel keeps with vertices and edges.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `sizeof(vertex_property)`.
    pub vertex_bytes: u64,
    /// Its members.
    pub fields: &'static [Field],
    /// Edges have a weight that the kernel reads.
    pub weights: bool,
}

/// A vertex at hand.
#[derive(Clone, Copy, Debug)]
pub struct Vertex {
    /// Its number.
    pub id: u32,
    /// Address of its object, or of nothing where there are none.
    pub at: u64,
    /// What produced that address (or the number).
    pub value: Value,
}

/// See the module.
pub trait Layout: Sized + Send + Sync + 'static {
    /// Where an iteration over a vertex's edges stands.
    type Edges: Send;

    /// Bytes that `vertices` and `edges` take, about.
    fn footprint(vertices: u64, edges: u64, properties: &Properties) -> u64;

    /// Puts `graph` into memory as the program does when it reads it in this order.
    fn load<'a>(
        graph: &'a Graph,
        order: &'a Order,
        properties: &'a Properties,
        heap: &'a mut Heap,
        thread: &'a mut Thread,
    ) -> impl Future<Output = Self> + Send + 'a;

    /// The vertex whose number `id` produced: at most 0x44 bytes of code. With
    /// `hoisted` the loop around holds the table's base and size in registers.
    fn find(&self, t: &mut Thread, pc: u64, vertex: u32, id: Value, hoisted: bool) -> Vertex;

    /// The vertex `vertex` whose address (or number) `value` is.
    fn vertex(&self, vertex: u32, value: Value) -> Vertex;

    /// Reads again what a loop could not keep over an atomic operation: the
    /// map's base and size; at most 8 bytes of code.
    fn reload(&self, t: &mut Thread, pc: u64);

    /// The vertex after `vertex` in the order of the program's list, or `None`
    /// after the last: one load where there is a list.
    fn next(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Option<Vertex>;

    /// Begins with the edges of `vertex`, and goes to `end` when there are none.
    fn edges(
        &self,
        t: &mut Thread,
        pc: u64,
        end: u64,
        graph: &Graph,
        vertex: Vertex,
    ) -> Option<Self::Edges>;

    /// Number of edges of `vertex`, as the program reads it.
    fn degree(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Value;

    /// Reads the target of the present edge.
    fn target(&self, t: &mut Thread, pc: u64, graph: &Graph, edges: &Self::Edges) -> (u32, Value);

    /// Reads the weight of the present edge (`bytes` long): at most 0x20 bytes of code.
    fn weight(&self, t: &mut Thread, pc: u64, edges: &Self::Edges, bytes: u8) -> Value;

    /// Goes on to the next edge; branches to `again`, or falls through and gives
    /// false after the last.
    fn advance(&self, t: &mut Thread, pc: u64, again: u64, edges: &mut Self::Edges) -> bool;

    /// [`advance`](Self::advance) where the compiler cannot keep the map's base and
    /// size over what the loop writes: they are read again, from the graph whose
    /// address lies at `pointer`, before the jump to `again`. At most 0x20 bytes of code.
    fn advance_rereading(
        &self,
        t: &mut Thread,
        pc: u64,
        again: u64,
        pointer: u64,
        edges: &mut Self::Edges,
    ) -> bool;

    /// The layout as arrays, if it is that.
    fn csr(&self) -> Option<&Csr> {
        None
    }

    /// The places of the present edge and of those after it in its row, where edges lie side by side.
    fn left(&self, _: &Self::Edges) -> Option<Range<u64>> {
        None
    }

    /// Goes on by so many edges, fewer than are [`left`](Self::left), without a look at them.
    fn leap(&self, _: &mut Self::Edges, _: u64) {}

    /// Where the neighbours of `vertex` lie side by side, 4 bytes each, if they do.
    fn row_at(&self, _: &Graph, _: Vertex) -> Option<u64> {
        None
    }

    /// Address of property `field` of `vertex`, and what produces it.
    fn field(&self, vertex: Vertex, field: usize) -> (u64, Value);
}
