//! GraphBIG's triangle count: intersects the sorted neighbours of both ends of each edge by merging.
//!
//! ```text
//! for (u : share) for (e = u->edges_begin(); e != u->edges_end(); e++) {
//!     if (u->id() > e->target()) continue;
//!     v = g.find_vertex(e->target());
//!     n = size of the intersection of u->neighbor_set and v->neighbor_set;
//!     u->count += n; v->count += n;
//! }
//! for (u : share) { u->count /= 2; sum += u->count; }          // sum / 3
//! ```
//!
//! In GraphBIG's layout the sets are vectors of 8-byte numbers, built before the measured part. With
//! compressed sparse rows they are the rows themselves.
//!
//! g++ 12.2 -O3: 7bc `mov 0x18(%r8),%rsi` ; cmp ; jb 7b0 ; find_vertex ; 808 both
//! vectors ; cmp ; je ; 81a `mov %r9,8(%rsp)` (v) ; 851 `cmp %rcx,%r12` ; jne 830 ; 830 `mov (%rax),%rdx` ; 833 `mov
//! (%rcx),%rsi` ; cmp ; 839 jb 848 ; add ; cmp ; 842 jb 84c ; add ; 848 add ; 84c
//! cmp ; 84f je 851 ; 851 `mov 8(%rsp),%r9` ; 856 `add %r13w,count(u)` ; 85b `add %r13w,count(v)` (with
//! several threads `lock add`) ; 860 next edge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pagewalk_stream::{Error, Program};

use super::kernel::{Extras, Kernel, World, launch};
use super::layout::{Field, Layout, Properties, Vertex};
use super::params::{DEGREE, DEGREES, GRAPH, LAYOUT, ORDER, SCALE, Setup, VERTICES};
use super::source::{Graph, Shape};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread, Value};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "tc",
    group: "graph",
    description: "Triangle counting: merges the sorted neighbour lists of both ends of each edge.",
    stresses: "Sequential reads of two lists at a time, unpredictable branches (one in two), and one random access for each edge.",
    source: "L. Nai et al., GraphBIG, SC 2015 (triangle count)",
    default_size: 128 << 20,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        GRAPH, SCALE, VERTICES, DEGREE, DEGREES, LAYOUT, ORDER, POPULATE, REGION,
    ],
};

const COUNT: usize = 0;
const BEGIN: usize = 1;
const END: usize = 2;

/// `class vertex_property { int16_t count; std::vector<uint64_t> neighbor_set; }`
const OBJECTS: Properties = Properties {
    vertex_bytes: 32,
    fields: &[
        Field { offset: 0, size: 2 },
        Field { offset: 8, size: 8 },
        Field {
            offset: 16,
            size: 8,
        },
    ],
    weights: false,
};

/// The rows serve as sets.
const ARRAYS: Properties = Properties {
    vertex_bytes: 2,
    fields: &[Field { offset: 0, size: 2 }],
    weights: false,
};

/// Triangle counting needs each edge once, in both directions, in sorted rows.
const SHAPE: Shape = Shape {
    symmetric: true,
    simple: true,
    weighted: false,
};

/// Results.
pub(crate) struct Triangles {
    /// Count per vertex: twice the triangles until the end.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Triangles {
    /// Triangles of the whole graph, after the program has ended.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.sum.load(Relaxed) / 3
    }
}

fn read(values: &Values<'_>) -> Result<(Setup, &'static Properties), Error> {
    let properties = match values.choice("layout", &["csr", "graphbig"], "csr")? {
        "csr" => &ARRAYS,
        _ => &OBJECTS,
    };
    Ok((Setup::read_shaped(values, properties, SHAPE)?, properties))
}

/// The program, and its results.
pub(crate) fn program(values: &Values<'_>) -> Result<(Code, Arc<Triangles>), Error> {
    let (setup, properties) = read(values)?;
    setup.holds(8)?;
    let found = Arc::new(Triangles {
        counts: (0..setup.graph.vertices())
            .map(|_| AtomicU64::new(0))
            .collect(),
        sum: AtomicU64::new(0),
    });
    let kernel = Counting {
        found: found.clone(),
    };
    Ok((launch(setup, properties, kernel), found))
}

/// Each thread counts at the vertices of its work set.
struct Counting {
    found: Arc<Triangles>,
}

impl Kernel for Counting {
    const EXTRAS: Extras = Extras {
        sets: true,
        barriers: true,
        ..Extras::NONE
    };

    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        share(world, t, thread, &self.found).await;
    }
}

/// `gen_workset`: the vertices of `thread`. All threads have about as many edges.
fn workset(graph: &Graph, thread: u32, threads: u32) -> std::ops::Range<u32> {
    let first = |thread: u64| {
        let wanted = graph.edges() * thread / u64::from(threads);
        let (mut low, mut high) = (0, graph.vertices() as u32);
        while low < high {
            let middle = low + (high - low) / 2;
            if graph.row(middle).start < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    if thread + 1 == threads {
        return first(u64::from(thread))..graph.vertices() as u32;
    }
    first(u64::from(thread))..first(u64::from(thread) + 1)
}

async fn share<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, found: &Triangles) {
    let (memory, graph) = (world.memory(), &world.graph);
    let together = world.threads > 1;
    let mine = workset(graph, thread, world.threads);
    let mut vertex = (!mine.is_empty()).then(|| memory.find(t, 0x740, mine.start, NONE, false));
    while let Some(u) = vertex {
        edges_of(world, t, u, found).await;
        vertex = after(world, t, u, mine.end, 0x86c);
        t.branch(0x872, 0x790, 2, vertex.is_some(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    if together {
        world.barrier(t, 0x8a8).await;
    }
    let sum_at = t.stack - 0x100;
    let mut sum = NONE;
    let mut vertex = (!mine.is_empty()).then(|| memory.find(t, 0x740, mine.start, NONE, false));
    while let Some(u) = vertex {
        let (va, from) = memory.field(u, COUNT);
        let twice = t.load(0x880, 1, va, 2, [from, NONE]);
        t.store(0x88f, 5, va, 2, from, twice.plus(4));
        let half = found.counts[u.id as usize].load(Relaxed) / 2;
        found.counts[u.id as usize].store(half, Relaxed);
        found.sum.fetch_add(half, Relaxed);
        vertex = after(world, t, u, mine.end, 0x893);
        sum = t.compute(0x89b, 2, 1, [twice.plus(5), sum]);
        t.branch(0x8a1, 0x880, 2, vertex.is_some(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    t.store(0x8a3, 1, sum_at, 8, NONE, sum);
}

/// The next vertex: from the list with one thread, by number with several.
fn after<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    vertex: Vertex,
    end: u32,
    pc: u64,
) -> Option<Vertex> {
    if vertex.id + 1 >= end {
        return None;
    }
    if world.threads == 1 {
        world.memory().next(t, pc, vertex)
    } else {
        Some(world.memory().find(t, 0x740, vertex.id + 1, NONE, false))
    }
}

async fn edges_of<L: Layout>(world: &World<L>, t: &mut Thread, u: Vertex, found: &Triangles) {
    let (memory, graph) = (world.memory(), &world.graph);
    let mut edges = memory.edges(t, 0x790, 0x86c, graph, u);
    let id = match u.at {
        0 => u.value,
        at => t.load(0x7a7, 2, at + 0x10, 8, [u.value, NONE]),
    };
    while let Some(present) = &mut edges {
        let (target, number) = memory.target(t, 0x7bc, graph, present);
        let skip = target < u.id;
        t.branch(0x7c3, 0x7b0, 2, skip, [number, id]);
        if !skip {
            let v = memory.find(t, 0x7c5, target, number, false);
            let objects = v.at > 0;
            if objects {
                t.store(0x81a, 1, t.stack - 0x110, 8, NONE, v.value);
            }
            let same = intersect(world, t, u, v).await;
            if objects {
                t.load(0x851, 1, t.stack - 0x110, 8, [NONE; 2]);
            }
            for (vertex, pc) in [(u, 0x856), (v, 0x85b)] {
                let (va, from) = memory.field(vertex, COUNT);
                if world.threads > 1 {
                    t.atomic(pc, 1, va, 2, [from, NONE]);
                } else {
                    let old = t.load(pc, 1, va, 2, [from, NONE]);
                    t.store(pc, 0, va, 2, from, old.plus(1));
                }
                found.counts[vertex.id as usize].fetch_add(same, Relaxed);
            }
        }
        if !memory.advance(t, 0x860, 0x7bc, present) {
            edges = None;
        }
        if t.full() {
            t.pause().await;
        }
    }
}

/// Loads begin and end of the set of `vertex`. Returns the values that produce them.
fn bounds<L: Layout>(world: &World<L>, t: &mut Thread, pc: u64, vertex: Vertex) -> [Value; 2] {
    let memory = world.memory();
    if memory.row_at(&world.graph, vertex).is_some() {
        return [memory.degree(t, pc, vertex), NONE];
    }
    [END, BEGIN].map(|field| {
        let (va, from) = memory.field(vertex, field);
        t.load(pc + 4 * field as u64, 1, va, 8, [from, NONE])
    })
}

/// Merges the sets of `u` and `v`. Returns the size of their intersection.
async fn intersect<L: Layout>(world: &World<L>, t: &mut Thread, u: Vertex, v: Vertex) -> u64 {
    let (Some(mine), Some(theirs)) = (world.graph.sorted(u.id), world.graph.sorted(v.id)) else {
        return 0;
    };
    let own = bounds(world, t, 0x804, u);
    let other = bounds(world, t, 0x810, v);
    t.branch(0x817, 0x8d4, 2, mine.is_empty(), own);
    let (mut a, a_bytes) = world.set(u);
    let (mut b, b_bytes) = world.set(v);
    let (mut i, mut j, mut same) = (0, 0, 0);
    t.branch(0x854, 0x830, 4, !theirs.is_empty(), other);
    while i < mine.len() && j < theirs.len() {
        let x = t.load(0x830, 1, a, a_bytes, [NONE; 2]);
        let y = t.load(0x833, 1, b, b_bytes, [NONE; 2]);
        let less = mine[i] < theirs[j];
        t.branch(0x839, 0x848, 2, less, [x, y]);
        let mut insns = 3;
        if !less {
            j += 1;
            b += u64::from(b_bytes);
            let greater = mine[i] > theirs[j - 1];
            t.branch(0x842, 0x84c, 3, greater, [x, y]);
            if greater {
                insns = 2;
            } else {
                same += 1;
                insns = 4;
            }
        }
        if insns != 2 {
            i += 1;
            a += u64::from(a_bytes);
        }
        let ended = i == mine.len();
        t.branch(0x84f, 0x856, insns, ended, [NONE; 2]);
        if !ended {
            t.branch(0x854, 0x830, 2, j < theirs.len(), [NONE; 2]);
        }
        if t.full() {
            t.pause().await;
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, program, read, workset};
    use crate::graph::source::{Degrees, Graph};
    use crate::graph::test::{Run, run};

    /// Reference: tests all triples.
    fn brute_force(graph: &Graph) -> u64 {
        let n = graph.vertices() as usize;
        let mut edge = vec![false; n * n];
        for v in 0..n {
            let row = graph.row(v as u32);
            for i in 0..row.degree {
                edge[v * n + graph.neighbour(&row, i) as usize] = true;
            }
        }
        let mut count = 0;
        for a in 0..n {
            for b in (a + 1..n).filter(|b| edge[a * n + b]) {
                count += (b + 1..n)
                    .filter(|c| edge[a * n + c] && edge[b * n + c])
                    .count();
            }
        }
        count as u64
    }

    #[test]
    fn triangles_are_those_of_brute_force() {
        for (graph, degree) in [("kronecker", "2"), ("uniform", "7"), ("ldbc", "4")] {
            let mut wanted = None;
            for (layout, threads) in [("csr", 1), ("csr", 16), ("graphbig", 1), ("graphbig", 3)] {
                let params = [
                    ("graph", graph),
                    ("scale", "12"),
                    ("degree", degree),
                    ("layout", layout),
                ];
                let Run { found, setup, .. } = run(&ENTRY.info, threads, &params, program, |v| {
                    read(v).map(|r| r.0)
                });
                let wanted = *wanted.get_or_insert_with(|| brute_force(&setup.graph));
                assert_eq!(found.total(), wanted, "{params:?} {threads}");
                assert!(wanted > 0);
            }
        }
    }

    #[test]
    fn worksets_cover_all_vertices_once() {
        let graph = Graph::Held(crate::graph::source::ldbc(5000, 9.0, 1, Degrees::Facebook));
        for threads in [1, 2, 7, 16] {
            let mut at = 0;
            for thread in 0..threads {
                let mine = workset(&graph, thread, threads);
                assert_eq!(mine.start, at);
                at = mine.end;
            }
            assert_eq!(at, 5000);
        }
    }
}
