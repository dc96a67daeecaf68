//! GraphBIG's single-source shortest paths: a priority queue with one thread, rounds with several.
//!
//! One thread:
//!
//! ```text
//! while (!pq.empty()) {
//!     u = pq.top().first; pq.pop();
//!     p = g.find_vertex(u);
//!     for (e = p->edges_begin(); e != p->edges_end(); e++) {
//!         v = g.find_vertex(e->target());
//!         alt = p->distance + e->property().weight;
//!         if (alt < v->distance) { v->distance = alt; v->predecessor = u; pq.push({v, alt}); }
//!     }
//! }
//! ```
//!
//! When a shorter path to a vertex in the queue is found, its old entry stays, and the vertex is expanded
//! again. g++ 12.2 -O3: 401 top ; 412 `jg 650` (pop, see `queue`) ; 418 find_vertex ; 460 edges_begin ; 471
//! target, find_vertex ; 4a8 the weight, with 4ac `movzwl distance(u)` ; add ; 4ce `movzwl distance(v)` ;
//! cltq ; cmp ; 4d8 jb 530 ; 4da next edge, with the map's base and size again ; 530 predecessor, distance,
//! push ; 600 next edge.
//!
//! Several threads: see `rounds`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use pagewalk_stream::{Error, Program};

use self::queue::Queue;
use super::kernel::{Kernel, World, launch};
use super::layout::{Field, Layout, Properties};
use super::params::{
    DEGREE, DEGREES, GRAPH, LAYOUT, ORDER, ROOTS, SCALE, SYMMETRIC, Setup, VERTICES, is_file,
    symmetric,
};
use super::search::Roots;
use super::source::{Graph, Shape, mix};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread};

mod queue;
mod rounds;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "sssp",
    group: "graph",
    description: "Shortest paths from random roots: with a priority queue (one thread), or in rounds that relax the edges of changed vertices (several threads).",
    stresses: "Random reads of distances and weights, hard-to-predict branches, and (one thread) dependent reads of a binary heap.",
    source: "L. Nai et al., GraphBIG, SC 2015 (shortest path)",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        GRAPH,
        SCALE,
        VERTICES,
        DEGREE,
        DEGREES,
        SYMMETRIC,
        LAYOUT,
        ORDER,
        ROOTS,
        ParamInfo {
            name: "weights",
            unit: "",
            default: "one",
            range: "one, random or file",
            meaning: "Weights of the edges: 1, as in GraphBIG by default; 1 to 255 at random, as in GAP; or the third column of the graph's file, which each of its lines must have.",
        },
        POPULATE,
        REGION,
    ],
};

const DISTANCE: usize = 0;
const PREDECESSOR: usize = 1;
const UPDATE: usize = 2;

/// `class vertex_property { uint16_t distance; uint64_t predecessor; uint16_t update; }`
const PROPERTIES: Properties = Properties {
    vertex_bytes: 24,
    fields: &[
        Field { offset: 0, size: 2 },
        Field { offset: 8, size: 8 },
        Field {
            offset: 16,
            size: 2,
        },
    ],
    weights: true,
};

/// Distance of an unreached vertex. A path of this length counts as none.
pub(crate) const NOT_REACHED: u32 = u32::MAX;

/// Source of the edge weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weights {
    One,
    Random { seed: u64 },
    File,
}

impl Weights {
    /// Weight of the edge at position `edge` from `source` to `target`. Random weights are equal in both
    /// directions.
    #[inline(always)]
    fn of(self, graph: &Graph, edge: u64, source: u32, target: u32) -> u32 {
        match self {
            Weights::One => 1,
            Weights::Random { seed } => {
                let (a, b) = (source.min(target), source.max(target));
                let word = mix(seed, u64::from(a) << 32 | u64::from(b));
                1 + ((u128::from(word) * 255) >> 64) as u32
            }
            Weights::File => graph.weight(edge),
        }
    }
}

/// Results of the last search.
pub(crate) struct Distances {
    /// Distance of each vertex.
    pub distances: Vec<AtomicU32>,
    /// Tentative distances, with several threads.
    updates: Vec<AtomicU32>,
    /// Address of the array of locks.
    locks: OnceLock<u64>,
    weights: Weights,
    /// Number of searches done, and root of the last one.
    pub searches: AtomicU64,
    pub root: AtomicU32,
}

/// The program, and its results.
pub(crate) fn program(values: &Values<'_>) -> Result<(Code, Arc<Distances>), Error> {
    let weights = values.choice("weights", &["one", "random", "file"], "one")?;
    if weights == "file" && !is_file(values) {
        return Err(values.refuse("weights", "the graph is generated, not from a file"));
    }
    let searches = values.number_in("roots", 1..=1 << 32, 64)?;
    let shape = Shape {
        weighted: weights == "file",
        ..symmetric(values)?
    };
    let setup = Setup::read_shaped(values, &PROPERTIES, shape)?;
    setup.holds(if setup.threads > 1 { 8 } else { 4 })?;
    let array = |n: u64| (0..n).map(|_| AtomicU32::new(NOT_REACHED)).collect();
    let n = setup.graph.vertices();
    let found = Arc::new(Distances {
        distances: array(n),
        updates: array(if setup.threads > 1 { n } else { 0 }),
        locks: OnceLock::new(),
        weights: match weights {
            "random" => Weights::Random { seed: setup.seed },
            "file" => Weights::File,
            _ => Weights::One,
        },
        searches: AtomicU64::new(0),
        root: AtomicU32::new(0),
    });
    let kernel = Searches {
        seed: setup.seed,
        searches,
        found: found.clone(),
    };
    Ok((launch(setup, &PROPERTIES, kernel), found))
}

/// Successive searches from roots drawn by `seed`.
struct Searches {
    seed: u64,
    searches: u64,
    found: Arc<Distances>,
}

impl Kernel for Searches {
    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let found = &self.found;
        let mut roots = Roots::new(self.seed);
        if world.threads > 1 {
            if thread == 0 {
                // `new bool[g.num_vertices()]`, cleared.
                let mut heap = world.heap();
                let locks = heap.malloc(world.graph.vertices());
                heap.emit_pending_untouched(t).await;
                world.give_back(heap);
                t.touch(locks, world.graph.vertices()).await;
                let _ = found.locks.set(locks);
            }
            world.barrier(t, 0xf00).await;
        }
        for search in 0..self.searches {
            let root = roots.next(&world.graph);
            if search > 0 {
                reset(world, t, thread, found).await;
            }
            if thread == 0 {
                found.root.store(root, Relaxed);
            }
            if world.threads == 1 {
                alone(world, t, root, found).await;
            } else {
                rounds::run(world, t, thread, root, found).await;
            }
            if thread == 0 {
                found.searches.fetch_add(1, Relaxed);
            }
        }
    }
}

#[inline(always)]
fn distance(found: &Distances, vertex: u32) -> u32 {
    found.distances[vertex as usize].load(Relaxed)
}

/// `reset_graph`: one thread walks the list and sets all properties.
async fn reset<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, found: &Distances) {
    if world.threads > 1 {
        world.barrier(t, 0xe80).await;
    }
    if thread == 0 {
        let memory = world.memory();
        let mut next = Some(memory.find(t, 0xe00, 0, NONE, false));
        while let Some(v) = next {
            for (field, pc) in [(PREDECESSOR, 0xe50), (DISTANCE, 0xe58), (UPDATE, 0xe5c)] {
                let (va, from) = memory.field(v, field);
                t.store(pc, 1, va, PROPERTIES.fields[field].size, from, NONE);
            }
            found.distances[v.id as usize].store(NOT_REACHED, Relaxed);
            if let Some(update) = found.updates.get(v.id as usize) {
                update.store(NOT_REACHED, Relaxed);
            }
            next = memory.next(t, 0xe64, v);
            t.branch(0xe6a, 0xe50, 2, next.is_some(), [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }
    if world.threads > 1 {
        world.barrier(t, 0xe90).await;
    }
}

async fn alone<L: Layout>(world: &World<L>, t: &mut Thread, root: u32, found: &Distances) {
    let (memory, graph) = (world.memory(), &world.graph);
    let mut heap = world.heap();
    let objects = memory.vertex(0, NONE).at > 0;
    let frame = t.stack - 0x600;
    let mut queue = Queue::new(frame + 0x20);
    let v = memory.find(t, 0x2ea, root, NONE, false);
    let (va, from) = memory.field(v, DISTANCE);
    t.store(0x346, 2, va, 2, from, NONE);
    found.distances[root as usize].store(0, Relaxed);
    queue.push(t, &mut heap, (root, 0), NONE).await;
    while let Some((u, id)) = queue.pop(t).await {
        if objects {
            t.load(0x414, 1, frame + 0x18, 8, [NONE; 2]);
        }
        let vertex = memory.find(t, 0x418, u, id, false);
        t.store(0x427, 1, frame + 0x28, 8, NONE, NONE);
        let row = graph.row(u);
        let mut edges = memory.edges(t, 0x460, 0x60c, graph, vertex);
        let mut place = row.start;
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x471, graph, present);
            let v = memory.find(t, 0x475, target, id, objects);
            let weight = memory.weight(t, 0x4a8, present, 2);
            let (va, from) = memory.field(vertex, DISTANCE);
            let near = t.load(0x4ac, 1, va, 2, [from, NONE]);
            let (va, from) = memory.field(v, DISTANCE);
            let old = t.load(0x4ce, 4, va, 2, [from, NONE]);
            let weight_of = found.weights.of(graph, place, u, target);
            let alternative = distance(found, u).saturating_add(weight_of);
            let better = alternative < distance(found, target);
            let sum = t.compute(0x4d5, 1, 1, [near.plus(1), weight]);
            t.branch(0x4d8, 0x530, 2, better, [sum, old]);
            if better {
                found.distances[target as usize].store(alternative, Relaxed);
                let (to, at) = memory.field(v, PREDECESSOR);
                t.store(0x53c, 4, to, 8, at, id);
                t.store(0x544, 2, va, 2, from, sum);
                queue.push(t, &mut heap, (target, alternative), sum).await;
            }
            place += 1;
            if !memory.advance_rereading(t, 0x4da, 0x471, frame + 0x18, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.branch(0x619, 0x401, 3, !queue.is_empty(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    queue.free(&mut heap);
    world.give_back(heap);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::Ordering::Relaxed;

    use super::{ENTRY, NOT_REACHED, PROPERTIES, Weights, program};
    use crate::graph::params::{Setup, symmetric};
    use crate::graph::source::{Graph, Shape};
    use crate::graph::test::{Run, run};

    /// Bellman-Ford: relaxes every edge until nothing changes.
    fn reference(graph: &Graph, weights: Weights, root: u32) -> Vec<u32> {
        let mut distances = vec![NOT_REACHED; graph.vertices() as usize];
        distances[root as usize] = 0;
        let mut changed = true;
        while changed {
            changed = false;
            for v in 0..graph.vertices() as u32 {
                let near = distances[v as usize];
                let row = graph.row(v);
                for i in 0..row.degree {
                    let w = graph.neighbour(&row, i);
                    let weight = weights.of(graph, row.start + i, v, w);
                    if near != NOT_REACHED && near + weight < distances[w as usize] {
                        distances[w as usize] = near + weight;
                        changed = true;
                    }
                }
            }
        }
        distances
    }

    fn check(threads: u32, params: &[(&str, &str)], weighted: bool) {
        let Run { found, setup, .. } = run(&ENTRY.info, threads, params, program, |v| {
            let shape = Shape {
                weighted,
                ..symmetric(v)?
            };
            Setup::read_shaped(v, &PROPERTIES, shape)
        });
        let distances: Vec<u32> = found.distances.iter().map(|d| d.load(Relaxed)).collect();
        let wanted = reference(&setup.graph, found.weights, found.root.load(Relaxed));
        assert_eq!(distances, wanted, "{params:?}, {threads} threads");
        assert!(wanted.iter().filter(|d| **d != NOT_REACHED).count() > 2);
        assert_eq!(found.searches.load(Relaxed), 2);
    }

    #[test]
    fn distances_are_those_of_a_reference() {
        for layout in ["csr", "graphbig"] {
            for threads in [1, 2, 16] {
                for (graph, weights) in [
                    ("kronecker", "random"),
                    ("uniform", "one"),
                    ("ldbc", "random"),
                ] {
                    let params = [
                        ("graph", graph),
                        ("scale", "12"),
                        ("degree", "6"),
                        ("weights", weights),
                        ("layout", layout),
                        ("roots", "2"),
                    ];
                    check(threads, &params, false);
                }
            }
        }
    }

    #[test]
    fn weights_of_a_file_are_those_of_its_edges() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for v in 0..300u32 {
            for (i, step) in [1, 7, 31].into_iter().enumerate() {
                let weight = 1 + (v * 13 + i as u32 * 5) % 97;
                writeln!(file, "{v} {} {weight}", (v + step) % 300).unwrap();
            }
        }
        let path = file.path().to_str().unwrap();
        for (layout, threads) in [("csr", 1), ("graphbig", 3)] {
            let params = [
                ("graph", path),
                ("weights", "file"),
                ("layout", layout),
                ("roots", "2"),
            ];
            check(threads, &params, true);
        }
    }
}
