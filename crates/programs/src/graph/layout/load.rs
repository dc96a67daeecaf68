//! GraphBIG's loader: the objects that it allocates, and their order.
//!
//! Sizes are those of g++ 12.2 on x86-64 for openG's default layout (`std::list` of vertices and of edges,
//! each with a `std::tr1::unordered_map` from number to iterator; edge properties behind a
//! `std::tr1::shared_ptr`):
//!
//! ```text
//! vertex in its list   176 + sizeof(property), rounded up to 8, of which each
//!                      of in_edges and out_edges: list head 24, map 48
//! edge in a list        48   next, prev, eid, vid, property, count
//! node of a map         24   number, iterator, next
//! property of an edge 1..4
//! count of a property   32
//! id2key, key2id node   48   std::string of up to 15 digits, number, next
//! buckets of a map       8 (buckets + 1), from 11 buckets
//! ```
//!
//! An edge makes six allocations: edge, node in the source's map, property, count, and edge and node at the
//! target.

use super::Properties;
use super::runs::Runs;
use crate::graph::source::{Graph, Order};
use crate::heap::{Heap, chunk};
use crate::thread::Thread;

/// Bucket counts of a map that starts with the default of `tr1::unordered_map` and grows by single
/// insertions.
const BUCKETS: [u64; 29] = [
    11,
    23,
    47,
    97,
    199,
    409,
    823,
    1741,
    3739,
    7517,
    15173,
    30727,
    62233,
    126_271,
    256_279,
    520_241,
    1_056_323,
    2_144_977,
    4_355_707,
    8_844_859,
    17_961_079,
    36_473_443,
    74_066_549,
    150_406_843,
    305_431_229,
    620_239_453,
    1_259_520_799,
    2_557_710_269,
    6_442_450_933,
];

/// The element of [`BUCKETS`] with this number of binary digits, or 0. No two have the same number.
const BY_DIGITS: [u64; 34] = {
    let mut table = [0; 34];
    let mut i = 0;
    while i < BUCKETS.len() {
        table[(64 - BUCKETS[i].leading_zeros()) as usize] = BUCKETS[i];
        i += 1;
    }
    table
};

/// True if a map has as many elements as buckets: the next insertion makes it grow.
#[inline(always)]
fn full(elements: u64) -> bool {
    BY_DIGITS[(64 - elements.leading_zeros()) as usize] == elements && elements > 0
}

/// The next larger bucket count.
fn larger(buckets: u64) -> u64 {
    let at = BUCKETS.partition_point(|b| *b <= buckets);
    BUCKETS[at.min(BUCKETS.len() - 1)]
}

/// Bytes of a map's bucket array, with its end mark.
const fn array(buckets: u64) -> u64 {
    8 * (buckets + 1)
}

/// Bytes of an edge's object.
pub const EDGE: u64 = 48;
const NODE: u64 = 24;
const PROPERTY: u64 = 4;
const COUNT: u64 = 32;
const KEY: u64 = 48;
/// Sizes of an edge's objects, in the order of allocation.
const OBJECTS: [u64; 6] = [EDGE, NODE, PROPERTY, COUNT, EDGE, NODE];
/// Bytes of all chunks of an edge.
pub const STRIDE: u64 = {
    let (mut sum, mut i) = (0, 0);
    while i < OBJECTS.len() {
        sum += chunk(OBJECTS[i]);
        i += 1;
    }
    sum
};

/// Bytes of a vertex in its list.
pub fn vertex_bytes(properties: &Properties) -> u64 {
    16 + 8 + properties.vertex_bytes.next_multiple_of(8) + 144
}

/// Approximate size of heap and mappings: every vertex is taken to have the mean degree.
pub fn footprint(vertices: u64, edges: u64, properties: &Properties) -> u64 {
    let degree = edges / vertices.max(1);
    let map = |elements: u64| array(larger(elements.saturating_sub(1)));
    let vertex = chunk(vertex_bytes(properties)) + chunk(NODE) + 2 * chunk(KEY) + 2 * map(degree);
    vertices * vertex + 3 * map(vertices) + STRIDE * edges
}

/// A map's bucket array.
#[derive(Clone, Copy)]
struct Map {
    at: u64,
    buckets: u64,
}

impl Map {
    fn new(heap: &mut Heap) -> Self {
        Map {
            at: heap.malloc(array(BUCKETS[0])),
            buckets: BUCKETS[0],
        }
    }

    fn grow(&mut self, heap: &mut Heap) {
        let buckets = larger(self.buckets);
        let at = heap.malloc(array(buckets));
        heap.free(self.at, array(self.buckets));
        *self = Map { at, buckets };
    }
}

/// Addresses of a loaded graph.
pub struct Loaded {
    /// Per vertex: its object in the list, and its node in the map.
    pub vertices: Vec<[u64; 2]>,
    /// The map of all vertices.
    pub buckets: u64,
    pub count: u64,
    /// Edges in the lists of their sources.
    pub edges: Runs,
    /// Property and count of each edge, if the kernel reads them.
    pub properties: Option<[Runs; 2]>,
}

/// Vertices allocated so far, and the tables that refer to them.
struct Vertices {
    /// As in [`Loaded`].
    places: Vec<[u64; 2]>,
    /// Per vertex: the maps of its incoming and of its outgoing edges, in this order.
    maps: Vec<[u64; 2]>,
    bytes: u64,
    index: Map,
    keys: [Map; 2],
}

impl Vertices {
    fn new(heap: &mut Heap, vertices: u64, bytes: u64) -> Self {
        Vertices {
            places: Vec::with_capacity(vertices as usize),
            maps: Vec::with_capacity(vertices as usize),
            bytes,
            index: Map::new(heap),
            keys: [Map::new(heap), Map::new(heap)],
        }
    }

    /// `add_vertex`, then insertions into both tables of keys.
    #[inline(always)]
    fn add(&mut self, heap: &mut Heap) {
        let v = self.places.len() as u64;
        // The temporary vertex that is copied into the list has its own maps.
        let copied = [Map::new(heap), Map::new(heap)];
        let at = heap.malloc(self.bytes);
        self.maps
            .push([Map::new(heap), Map::new(heap)].map(|m| m.at));
        let node = heap.malloc(NODE);
        if full(v) && v >= BUCKETS[0] {
            self.index.grow(heap);
        }
        for map in copied.iter().rev() {
            heap.free(map.at, array(map.buckets));
        }
        for map in &mut self.keys {
            heap.malloc(KEY);
            if full(v) && v >= BUCKETS[0] {
                map.grow(heap);
            }
        }
        self.places.push([at, node]);
    }

    /// Allocates all vertices up to `last`, when an edge first names it.
    #[inline(always)]
    fn name(&mut self, last: u32, heap: &mut Heap) {
        while self.places.len() as u64 <= u64::from(last) {
            self.add(heap);
        }
    }
}

/// Loads vertices in numeric order, then edges ordered by source. `order` may change that.
pub async fn load(
    graph: &Graph,
    order: &Order,
    properties: &Properties,
    heap: &mut Heap,
    t: &mut Thread,
) -> Loaded {
    let n = graph.vertices();
    let mut vertices = Vertices::new(heap, n, vertex_bytes(properties));
    if !order.interleaved {
        for _ in 0..n {
            vertices.add(heap);
            if heap.has_pending() {
                heap.emit_pending(t).await;
            }
        }
    }
    let mut edges = Runs::new(STRIDE, n);
    let mut details = properties
        .weights
        .then(|| [Runs::new(STRIDE, n), Runs::new(STRIDE, n)]);
    // Number of edges in each vertex's map of incoming edges.
    let mut into = vec![0u32; n as usize];
    // Targets of a row, with the number of edges that their maps held before.
    let mut targets: Vec<(u32, u32)> = Vec::new();
    let in_turn = order.sources.is_empty();
    let sources = (order.sources.iter().copied()).chain(0..if in_turn { n as u32 } else { 0 });
    for v in sources {
        let row = graph.row(v);
        // A separate loop overlaps the host's cache misses of a row.
        targets.clear();
        targets.extend((0..row.degree).map(|i| (graph.neighbour(&row, i), 0)));
        for (target, incoming) in &mut targets {
            let count = &mut into[*target as usize];
            *incoming = *count;
            *count += 1;
        }
        for (i, &(target, incoming)) in (0..).zip(&targets) {
            vertices.name(v, heap);
            vertices.name(target, heap);
            let (target, incoming) = (target as usize, u64::from(incoming));
            let at = if !full(i) && !full(incoming) {
                heap.malloc_each(OBJECTS)
            } else {
                let (edge, node) = (heap.malloc(EDGE), heap.malloc(NODE));
                if full(i) && i >= BUCKETS[0] {
                    grow(&mut vertices.maps[v as usize][1], i, heap);
                }
                let (property, count) = (heap.malloc(PROPERTY), heap.malloc(COUNT));
                let (other, other_node) = (heap.malloc(EDGE), heap.malloc(NODE));
                if full(incoming) && incoming >= BUCKETS[0] {
                    grow(&mut vertices.maps[target][0], incoming, heap);
                }
                [edge, node, property, count, other, other_node]
            };
            edges.push(i, at[0]);
            if let Some([property, count]) = &mut details {
                property.push(i, at[2]);
                count.push(i, at[3]);
            }
            if heap.has_pending() {
                heap.emit_pending(t).await;
            }
        }
        edges.end_row(v);
        for places in details.iter_mut().flatten() {
            places.end_row(v);
        }
    }
    heap.emit_pending(t).await;
    Loaded {
        vertices: vertices.places,
        buckets: vertices.index.at,
        count: vertices.index.buckets,
        edges,
        properties: details,
    }
}

/// Grows the array at `at` of a map with as many elements as buckets.
fn grow(at: &mut u64, buckets: u64, heap: &mut Heap) {
    let mut map = Map { at: *at, buckets };
    map.grow(heap);
    *at = map.at;
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pagewalk_stream::{Batch, End, Facts, Program};

    use super::{Loaded, STRIDE, load};
    use crate::graph::layout::{Field, Properties};
    use crate::graph::source::{Csr, Graph, Order, Shape};
    use crate::heap::Heap;
    use crate::layout::Layout;
    use crate::program::Code;
    use crate::thread::Touch;

    /// Properties of the breadth-first search: objects of 192 bytes.
    const PROPERTIES: Properties = Properties {
        vertex_bytes: 24,
        fields: &[Field { offset: 0, size: 1 }],
        weights: false,
    };

    fn loaded(graph: Graph, order: Order) -> Loaded {
        let result = Arc::new(Mutex::new(None));
        let mut code = Code::new(Facts::default(), Touch::Bulk);
        let keep = result.clone();
        code.thread(1 << 46, move |mut t| async move {
            let mut heap = Heap::new(Layout::new());
            let loaded = load(&graph, &order, &PROPERTIES, &mut heap, &mut t).await;
            *keep.lock().unwrap() = Some(loaded);
        });
        while code.fill(0, &mut Batch::new()).unwrap() != End::Exit {}
        let loaded = result.lock().unwrap().take();
        loaded.unwrap()
    }

    /// 26 vertices, then 60 edges from the first vertex to four others in turn. Expected values are addresses
    /// relative to the first vertex, from the same classes built with g++ 12.2 and run with glibc 2.36. Maps
    /// grow at 11 and 23 vertices and edges.
    #[test]
    fn addresses_are_those_of_the_program() {
        let vertices = [
            0, 592, 1184, 1776, 2368, 2960, 3552, 4144, 4736, 5328, 5920, 6512, 7728, 8096, 8576,
            9168, 9760, 10352, 10944, 11536, 12128, 12720, 13312, 13904, 7520, 7248,
        ];
        let nodes = [
            432, 1024, 1616, 2208, 2800, 3392, 3984, 4576, 5168, 5760, 6352, 6944, 7936, 8416,
            9008, 9600, 10192, 10784, 11376, 11968, 12560, 13152, 13744, 14336, 15920, 16304,
        ];
        // All distances are 272 except these.
        let edges = [
            (0, 16_464),
            (24, 23_392),
            (46, 29_584),
            (47, 30_064),
            (48, 31_344),
        ];
        let list: Vec<(u32, u32, u32)> = (0..60).map(|i| (0, 1 + i % 4, 1)).collect();
        let graph = Graph::Held(Csr::from_edges(26, &list, Shape::default()));
        let loaded = loaded(graph, Order::default());
        let first = loaded.vertices[0][0];
        for (v, given) in loaded.vertices.iter().enumerate() {
            let wanted = [vertices[v], nodes[v]];
            assert_eq!(given.map(|at| at - first), wanted, "vertex {v}");
        }
        let mut cursor = loaded.edges.row(0);
        let mut wanted = 0;
        for edge in 0..60 {
            wanted += STRIDE;
            if let Some(run) = edges.iter().find(|e| e.0 == edge) {
                wanted = run.1;
            }
            assert_eq!(cursor.at() - first, wanted, "edge {edge}");
            loaded.edges.advance(&mut cursor);
        }
        assert_eq!((loaded.count, STRIDE), (47, 272));
    }

    /// `load_csv_edges` of the same classes without a vertex file: edges 7>2, 7>9, 2>7, 2>4, 2>7, 4>2, 4>10
    /// to 4>21, 9>7, 9>30, 30>4. Vertices are numbered 0 to 16 as they are named.
    #[test]
    fn vertices_that_edges_name_lie_between_them() {
        // In the real program the first edge reuses a block of 48 bytes freed after reading the file. All
        // later objects lie that much lower.
        let here = |at: u64| if at > 1184 { at + 48 } else { at };
        let vertices = [
            0, 592, 1408, 2544, 3952, 4816, 5680, 6544, 7408, 8272, 9136, 10_000, 11_488, 12_128,
            12_880, 13_952, 14_976,
        ];
        let nodes = [
            432, 1024, 1840, 2976, 4384, 5248, 6112, 6976, 7840, 8704, 9568, 10_432, 11_696,
            12_448, 13_312, 14_272, 15_408,
        ];
        let edges: [(u32, Vec<(u32, u64)>); 5] = [
            (0, vec![(1, 1184), (2, 2000)]),
            (1, vec![(0, 2272), (3, 3136), (0, 3408)]),
            (
                3,
                (std::iter::once(1).chain(4..16))
                    .zip([
                        3680, 4544, 5408, 6272, 7136, 8000, 8864, 9728, 11_216, 11_856, 12_608,
                        13_472, 14_432,
                    ])
                    .collect(),
            ),
            (2, vec![(0, 14_704), (16, 15_568)]),
            (16, vec![(3, 15_840)]),
        ];
        let list: Vec<(u32, u32, u32)> = (edges.iter())
            .flat_map(|(source, row)| row.iter().map(|edge| (*source, edge.0, 1)))
            .collect();
        let graph = Graph::Held(Csr::from_edges(17, &list, Shape::default()));
        let order = Order {
            sources: edges.iter().map(|e| e.0).collect(),
            interleaved: true,
        };
        let loaded = loaded(graph, order);
        let first = loaded.vertices[0][0];
        for (v, given) in loaded.vertices.iter().enumerate() {
            let wanted = [vertices[v], nodes[v]].map(here);
            assert_eq!(given.map(|at| at - first), wanted, "vertex {v}");
        }
        for (source, row) in &edges {
            let mut cursor = loaded.edges.row(*source);
            for (target, wanted) in row {
                assert_eq!(cursor.at() - first, here(*wanted), "{source} to {target}");
                loaded.edges.advance(&mut cursor);
            }
        }
    }
}
