//! Memory layouts of a graph, and the compiled code that accesses them.
//!
//! A kernel is written once, against [`Layout`]. Each method of it emits the instructions at `pc` of the
//! program's code.

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
    /// Offset in the vertex's property object.
    pub offset: u64,
    /// Size in bytes, in the object and in a separate array.
    pub size: u8,
}

/// Properties of vertices and edges in a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `sizeof(vertex_property)`.
    pub vertex_bytes: u64,
    /// Its members.
    pub fields: &'static [Field],
    /// True if edges have a weight that the kernel reads.
    pub weights: bool,
}

/// A vertex and the value that produced its address.
#[derive(Clone, Copy, Debug)]
pub struct Vertex {
    /// Its number.
    pub id: u32,
    /// Address of its object, 0 if the layout has none.
    pub at: u64,
    /// Value that produced that address (or the number).
    pub value: Value,
}

/// A memory layout of a graph.
pub trait Layout: Sized + Send + Sync + 'static {
    /// State of an iteration over a vertex's edges.
    type Edges: Send;

    /// Approximate bytes of `vertices` and `edges`.
    fn footprint(vertices: u64, edges: u64, properties: &Properties) -> u64;

    /// Loads `graph` into memory, as the program does when it reads it in this order.
    fn load<'a>(
        graph: &'a Graph,
        order: &'a Order,
        properties: &'a Properties,
        heap: &'a mut Heap,
        thread: &'a mut Thread,
    ) -> impl Future<Output = Self> + Send + 'a;

    /// Finds the vertex whose number `id` produced. At most 0x44 bytes of code. With `hoisted`, the
    /// surrounding loop holds the table's base and size in registers.
    fn find(&self, t: &mut Thread, pc: u64, vertex: u32, id: Value, hoisted: bool) -> Vertex;

    /// The vertex `vertex`, whose address (or number) is `value`.
    fn vertex(&self, vertex: u32, value: Value) -> Vertex;

    /// Reloads the map's base and size, which a loop cannot keep in registers across an atomic operation. At
    /// most 8 bytes of code.
    fn reload(&self, t: &mut Thread, pc: u64);

    /// The vertex after `vertex` in the order of the program's list: one load if there is a list. `None`
    /// after the last.
    fn next(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Option<Vertex>;

    /// Starts an iteration over the edges of `vertex`. Branches to `end` if there are none.
    fn edges(
        &self,
        t: &mut Thread,
        pc: u64,
        end: u64,
        graph: &Graph,
        vertex: Vertex,
    ) -> Option<Self::Edges>;

    /// Loads the number of edges of `vertex`.
    fn degree(&self, t: &mut Thread, pc: u64, vertex: Vertex) -> Value;

    /// Loads the target of the current edge.
    fn target(&self, t: &mut Thread, pc: u64, graph: &Graph, edges: &Self::Edges) -> (u32, Value);

    /// Loads the weight of the current edge (`bytes` long). At most 0x20 bytes of code.
    fn weight(&self, t: &mut Thread, pc: u64, edges: &Self::Edges, bytes: u8) -> Value;

    /// Advances to the next edge and branches to `again`. After the last edge it falls through and returns
    /// false.
    fn advance(&self, t: &mut Thread, pc: u64, again: u64, edges: &mut Self::Edges) -> bool;

    /// [`advance`](Self::advance) in a loop whose stores prevent keeping the map's base and size in
    /// registers. It reloads them from the graph whose address is stored at `pointer`, before the jump to
    /// `again`. At most 0x20 bytes of code.
    fn advance_rereading(
        &self,
        t: &mut Thread,
        pc: u64,
        again: u64,
        pointer: u64,
        edges: &mut Self::Edges,
    ) -> bool;

    /// The layout as arrays, if it consists of arrays.
    fn csr(&self) -> Option<&Csr> {
        None
    }

    /// Edge positions of the current edge and the rest of its row, if edges are contiguous.
    fn left(&self, _: &Self::Edges) -> Option<Range<u64>> {
        None
    }

    /// Skips this many edges, fewer than are [`left`](Self::left), without emitting ops.
    fn leap(&self, _: &mut Self::Edges, _: u64) {}

    /// Address of the neighbours of `vertex`, if they are contiguous, 4 bytes each.
    fn row_at(&self, _: &Graph, _: Vertex) -> Option<u64> {
        None
    }

    /// Address of property `field` of `vertex`, and the value that produces it.
    fn field(&self, vertex: Vertex, field: usize) -> (u64, Value);
}
