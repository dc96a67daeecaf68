//! GraphBIG's betweenness centrality: Brandes's algorithm. Each thread has its own sources and side arrays.
//!
//! ```text
//! for (s : share) {
//!     for (i : vertices) { parents[i].clear(); paths[i] = i == s; depth[i] = i == s ? 0 : -1; update[i] = 0; }
//!     queue.push(s);
//!     while (!queue.empty()) {
//!         v = queue.front(); queue.pop(); stack.push(v); p = g.find_vertex(v);
//!         for (e = p->edges_begin(); e != p->edges_end(); e++) {
//!             w = e->target();
//!             if (depth[w] < 0) { queue.push(w); depth[w] = depth[v] + 1; }
//!             if (depth[w] == depth[v] + 1) { paths[w] += paths[v]; parents[w].push_back(v); }
//!         }
//!     }
//!     while (!stack.empty()) {
//!         w = stack.top(); stack.pop();
//!         for (v : parents[w]) update[v] += paths[v] / (double)paths[w] * (1 + update[w]);
//!         if (w != s) g.find_vertex(w)->BC += update[w];
//!     }
//! }
//! ```
//!
//! Parents are `std::list`s with a node of 24 bytes per entry, freed and reused last in, first out. g++ 12.2
//! -O3: clear 118 to 1a6, 26 instructions ; 1c2 front, pop, push, find_vertex ; 2a5 target ; 2b6 `movsbl
//! depth(w)` ; 2bb jns 288 ; 2bd push ; 2f1 `mov %al,depth(w)` ; 288 or 2fb `movsbl depth(v)` ; 292 je 307 ;
//! 307 paths, `operator new`, hook, size ; 33b next edge ; 391 top, pop ; 3b7 the list ; 42e `mov
//! 0x10(%rax),%rdx` ; paths ; 409 divsd ; 40d update(w) ; 412 next ; 41d update(v) ; 425 je ; 508 find_vertex
//! ; 568 BC (with several threads `lock cmpxchg`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use pagewalk_stream::flags::TAKEN;
use pagewalk_stream::{Error, Program};

use super::kernel::{Extras, Kernel, World, launch};
use super::layout::{Field, Layout, Properties};
use super::params::{
    DEGREE, DEGREES, GRAPH, LAYOUT, ORDER, SCALE, SYMMETRIC, Setup, VERTICES, symmetric,
};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread, share};

use self::side::Side;

mod side;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "bc",
    group: "graph",
    description: "Betweenness centrality by Brandes's algorithm: a search from each source, then a traversal of all shortest paths in reverse.",
    stresses: "Random accesses to several arrays for each edge, allocation of list nodes, and pointer chasing through the lists in reverse order.",
    source: "L. Nai et al., GraphBIG, SC 2015 (betweenness centrality); U. Brandes, A Faster Algorithm for Betweenness Centrality, 2001",
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
        ParamInfo {
            name: "sources",
            unit: "vertices",
            default: "all vertices",
            range: "1 to the number of vertices",
            meaning: "Number of vertices from which searches start, counted from vertex 0.",
        },
        POPULATE,
        REGION,
    ],
};

/// `class vertex_property { double BC; }`
const PROPERTIES: Properties = Properties {
    vertex_bytes: 8,
    fields: &[Field { offset: 0, size: 8 }],
    weights: false,
};

/// Results.
pub(crate) struct Centrality {
    /// Centrality of each vertex, as bits of an `f64`.
    pub values: Vec<AtomicU64>,
    /// Number of finished searches.
    pub searches: AtomicU64,
    /// Addresses of each thread's side arrays.
    sides: OnceLock<Vec<side::SideArrays>>,
}

/// The program, and its results.
pub(crate) fn program(values: &Values<'_>) -> Result<(Code, Arc<Centrality>), Error> {
    let sources = values.number_in("sources", 1..=1 << 32, 0)?;
    let setup = Setup::read_shaped(values, &PROPERTIES, symmetric(values)?)?;
    let n = setup.graph.vertices();
    if sources > n {
        return Err(values.refuse("sources", format!("the graph has {n} vertices")));
    }
    // Side arrays of each thread, with one parent per vertex.
    setup.holds(8 + 40 * u64::from(setup.threads))?;
    let sources = if sources == 0 { n } else { sources };
    let found = Arc::new(Centrality {
        values: (0..n).map(|_| AtomicU64::new(0)).collect(),
        searches: AtomicU64::new(0),
        sides: OnceLock::new(),
    });
    let kernel = Searches {
        sources,
        found: found.clone(),
    };
    Ok((launch(setup, &PROPERTIES, kernel), found))
}

/// A search from each of the first `sources` vertices.
struct Searches {
    sources: u64,
    found: Arc<Centrality>,
}

impl Kernel for Searches {
    const EXTRAS: Extras = Extras {
        barriers: true,
        ..Extras::NONE
    };

    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let found = &self.found;
        if thread == 0 {
            let mut heap = world.heap();
            let (n, m) = (world.graph.vertices(), world.graph.edges());
            let sides: Vec<side::SideArrays> = (0..world.threads)
                .map(|_| side::SideArrays::new(&mut heap, n, m))
                .collect();
            heap.emit_pending_untouched(t).await;
            world.give_back(heap);
            for side in &sides {
                side.touch(t, n).await;
            }
            let _ = found.sides.set(sides);
        }
        if world.threads > 1 {
            world.barrier(t, 0xf00).await;
        }
        let places = found.sides.get().and_then(|s| s.get(thread as usize));
        let Some(places) = places.copied() else {
            return;
        };
        let mut side = Side::new(places, world.graph.vertices());
        for source in share(self.sources, thread, world.threads) {
            side.clear(t, source as u32).await;
            forth(world, t, &mut side, source as u32).await;
            back(world, t, &mut side, source as u32, found).await;
            found.searches.fetch_add(1, Relaxed);
        }
    }
}

/// Forward search: counts shortest paths and lists parents.
async fn forth<L: Layout>(world: &World<L>, t: &mut Thread, side: &mut Side, source: u32) {
    let (memory, graph, at) = (world.memory(), &world.graph, side.at);
    let frame = t.stack - 0x300;
    side.order.push(source);
    t.store(0xe5, 2, at.queue, 8, NONE, NONE);
    t.store(0xf1, 3, frame + 0xe0, 8, NONE, NONE);
    let mut head = 0;
    while head < side.order.len() {
        let v = side.order[head];
        // Front and pop, then push to the stack.
        let id = t.load(0x1ca, 6, at.queue + 8 * head as u64, 8, [NONE; 2]);
        t.store(0x1d1, 2, frame + 0x50, 8, NONE, id);
        t.branch(0x1d9, 0x4a2, 2, false, [NONE; 2]);
        t.store(0x1eb, 3, frame + 0xc0, 8, NONE, NONE);
        let top = t.load(0x1f3, 1, frame + 0x90, 8, [NONE; 2]);
        t.branch(0x202, 0x4ee, 3, false, [top, NONE]);
        t.store(0x208, 1, at.stack + 8 * head as u64, 8, top, id);
        t.store(0x20f, 2, frame + 0x90, 8, NONE, top.plus(1));
        t.load(0x217, 1, frame + 0x28, 8, [NONE; 2]);
        head += 1;
        let vertex = memory.find(t, 0x21e, v, id, false);
        t.store(0x270, 2, frame, 8, NONE, NONE);
        t.store(0x274, 2, frame + 0x18, 8, NONE, id);
        let next_depth = side.depth[v as usize] + 1;
        let mut edges = memory.edges(t, 0x260, 0x358, graph, vertex);
        while let Some(present) = &mut edges {
            let (w, number) = memory.target(t, 0x2a5, graph, present);
            t.load(0x2a9, 1, frame + 0x148, 8, [NONE; 2]);
            t.store(0x2b1, 2, frame + 0x58, 8, NONE, number);
            let theirs = at.depth + u64::from(w);
            let depth = t.load(0x2b6, 1, theirs, 1, [number, NONE]);
            let known = side.depth[w as usize] != side::UNKNOWN;
            t.branch(0x2bb, 0x288, 2, known, [depth, NONE]);
            if !known {
                let last = t.load(0x2bd, 1, frame + 0xf0, 8, [NONE; 2]);
                let end = t.load(0x2c5, 1, frame + 0xe0, 8, [NONE; 2]);
                t.branch(0x2d4, 0x478, 3, false, [last, end]);
                let tail = side.order.len() as u64;
                t.store(0x2da, 1, at.queue + 8 * tail, 8, end, number);
                t.store(0x2e1, 2, frame + 0xe0, 8, NONE, end.plus(1));
                side.order.push(w);
                side.depth[w as usize] = next_depth;
                let own = t.load(0x2e9, 1, at.depth + u64::from(v), 1, [id, NONE]);
                t.store(0x2f1, 2, theirs, 1, number, own.plus(1));
                t.load(0x2f3, 1, frame + 0x148, 8, [NONE; 2]);
                t.load(0x2f7, 1, theirs, 1, [number, NONE]);
            }
            let below = side.depth[w as usize] == next_depth;
            let pc = if known { 0x288 } else { 0x2fb };
            let own = t.load(pc, 1, at.depth + u64::from(v), 1, [id, NONE]);
            t.branch(pc + 0xa, 0x307, 3, below, [own.plus(1), depth]);
            if below {
                side.parent(t, v, w, [id, number]);
            }
            let pc = if below { 0x33b } else { 0x294 };
            if !memory.advance(t, pc, 0x2a5, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        let front = t.load(0x358, 1, frame + 0xc0, 8, [NONE; 2]);
        t.branch(0x368, 0x1c2, 2, head < side.order.len(), [front, NONE]);
        if t.full() {
            t.pause().await;
        }
    }
}

/// Backward pass along the parents: accumulates dependencies.
async fn back<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    side: &mut Side,
    source: u32,
    found: &Centrality,
) {
    let (memory, at) = (world.memory(), side.at);
    let frame = t.stack - 0x300;
    for top in (0..side.order.len()).rev() {
        let w = side.order[top];
        t.branch(0x38b, 0x583, 2, false, [NONE; 2]);
        t.load(0x391, 1, frame + 0xa8, 8, [NONE; 2]);
        t.load(0x399, 1, frame + 0x98, 8, [NONE; 2]);
        t.branch(0x3a1, 0x670, 1, false, [NONE; 2]);
        let number = t.load(0x3a7, 1, at.stack + 8 * top as u64, 8, [NONE; 2]);
        t.store(0x3af, 2, frame + 0x90, 8, NONE, NONE);
        t.load(0x3b7, 1, frame + 0x150, 8, [NONE; 2]);
        let list = at.parents + 24 * u64::from(w);
        let mut node = side.first(w);
        let mut link = t.load(0x3c2, 3, list, 8, [number, NONE]);
        t.branch(0x3c8, 0x508, 2, node.is_none(), [link, number]);
        if node.is_some() {
            t.load(0x3ce, 1, frame + 0x158, 8, [NONE; 2]);
            let theirs = at.paths + 8 * u64::from(w);
            let paths = t.load(0x3d9, 2, theirs, 8, [number, NONE]);
            t.branch(0x3e0, 0x648, 2, false, [paths, NONE]);
            t.load(0x3ef, 3, frame + 0x140, 8, [NONE; 2]);
            t.load(0x3f7, 1, frame + 0x160, 8, [NONE; 2]);
            t.jump(0x3fd, 0x42e, 2, TAKEN, [NONE; 2]);
            let own = at.update + 8 * u64::from(w);
            let share = (1.0 + side.update[w as usize]) / side.paths[w as usize] as f64;
            while let Some(place) = node {
                let v = side.parent_at(place);
                let id = t.load(0x42e, 1, at.node(place) + 16, 8, [link, NONE]);
                let reached = t.load(0x436, 2, at.paths + 8 * u64::from(v), 8, [id, NONE]);
                t.branch(0x43d, 0x400, 2, true, [reached, NONE]);
                let mine = t.load(0x40d, 4, own, 8, [number, NONE]);
                link = t.load(0x412, 1, at.node(place), 8, [link, NONE]);
                // cvtsi2sd 4, divsd 14 and mulsd 4 cycles; addsd 4 in parallel.
                let ratio = reached.plus(18);
                let part = t.compute(0x419, 2, 4, [ratio, mine.plus(4)]);
                let sum = at.update + 8 * u64::from(v);
                let before = t.load(0x41d, 1, sum, 8, [id, NONE]);
                let after = t.compute(0x41d, 0, 4, [before, part]);
                t.store(0x421, 1, sum, 8, id, after);
                side.update[v as usize] += side.paths[v as usize] as f64 * share;
                node = side.after(place);
                t.branch(0x428, 0x508, 2, node.is_none(), [link, NONE]);
                if t.full() {
                    t.pause().await;
                }
            }
        }
        let own = t.load(0x508, 0, frame + 0x48, 8, [NONE; 2]);
        t.branch(0x50d, 0x388, 2, w == source, [own, number]);
        if w != source {
            t.load(0x513, 1, frame + 0x28, 8, [NONE; 2]);
            let vertex = memory.find(t, 0x51a, w, number, false);
            let (va, from) = memory.field(vertex, 0);
            t.load(0x560, 1, frame + 0x140, 8, [NONE; 2]);
            let old = t.load(0x568, 1, va, 8, [from, NONE]);
            t.load(0x56d, 1, frame + 0x160, 8, [NONE; 2]);
            let update = t.load(0x570, 1, at.update + 8 * u64::from(w), 8, [number, NONE]);
            if world.threads > 1 {
                t.atomic(0x575, 4, va, 8, [from, NONE]);
                t.branch(0x579, 0x570, 1, false, [NONE; 2]);
            } else {
                let sum = t.compute(0x570, 0, 4, [old, update]);
                t.store(0x575, 1, va, 8, from, sum);
            }
            t.branch(0x57d, 0x391, 2, top > 0, [NONE; 2]);
            let value = &found.values[w as usize];
            let sum = f64::from_bits(value.load(Relaxed)) + side.update[w as usize];
            value.store(sum.to_bits(), Relaxed);
        }
        if t.full() {
            t.pause().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::Ordering::Relaxed;

    use super::{ENTRY, PROPERTIES, program};
    use crate::graph::params::{Setup, symmetric};
    use crate::graph::source::Graph;
    use crate::graph::test::{Run, run};

    /// Reference from the definition: for all pairs, the fraction of shortest paths through each vertex.
    /// Distances and path counts come from additions only.
    fn reference(graph: &Graph) -> Vec<f64> {
        let n = graph.vertices() as usize;
        let mut distance = vec![vec![usize::MAX; n]; n];
        let mut paths = vec![vec![0f64; n]; n];
        for s in 0..n {
            (distance[s][s], paths[s][s]) = (0, 1.0);
            for level in 0..n {
                for v in (0..n)
                    .filter(|v| distance[s][*v] == level)
                    .collect::<Vec<_>>()
                {
                    let row = graph.row(v as u32);
                    for i in 0..row.degree {
                        let w = graph.neighbour(&row, i) as usize;
                        if distance[s][w] > level + 1 {
                            distance[s][w] = level + 1;
                        }
                        if distance[s][w] == level + 1 {
                            paths[s][w] += paths[s][v];
                        }
                    }
                }
            }
        }
        let mut values = vec![0.0; n];
        for s in 0..n {
            for e in (0..n).filter(|e| *e != s && distance[s][*e] != usize::MAX) {
                for v in (0..n).filter(|v| *v != s && *v != e) {
                    let (a, b) = (distance[s][v], distance[v][e]);
                    if a != usize::MAX && b != usize::MAX && a + b == distance[s][e] {
                        values[v] += paths[s][v] * paths[v][e] / paths[s][e];
                    }
                }
            }
        }
        values
    }

    fn check(threads: u32, params: &[(&str, &str)]) {
        let Run { found, setup, .. } = run(&ENTRY.info, threads, params, program, |v| {
            Setup::read_shaped(v, &PROPERTIES, symmetric(v)?)
        });
        let wanted = reference(&setup.graph);
        assert_eq!(found.searches.load(Relaxed), setup.graph.vertices());
        let values = found.values.iter().map(|v| f64::from_bits(v.load(Relaxed)));
        for (value, wanted) in values.zip(&wanted) {
            assert!(
                (value - wanted).abs() <= 1e-9 * wanted.max(1.0),
                "{value} {wanted}"
            );
        }
        assert!(wanted.iter().any(|v| *v > 1.0));
    }

    #[test]
    fn values_are_those_of_the_definition() {
        let mut rng = pagewalk_units::rng(3, "test");
        use rand::Rng as _;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..250 {
            let (a, b) = (rng.next_u32() % 80, rng.next_u32() % 80);
            writeln!(file, "{a} {b}").unwrap();
        }
        let path = file.path().to_str().unwrap();
        for (layout, symmetric, threads) in [
            ("csr", "yes", 1),
            ("csr", "no", 3),
            ("graphbig", "no", 1),
            ("graphbig", "yes", 16),
        ] {
            let params = [
                ("graph", path),
                ("symmetric", symmetric),
                ("layout", layout),
            ];
            check(threads, &params);
        }
    }
}
