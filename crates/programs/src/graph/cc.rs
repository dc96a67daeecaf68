//! GraphBIG's connected components: a breadth-first search from each vertex that no earlier search has
//! reached, in vertex order.
//!
//! ```text
//! for (r = g.vertices_begin(); r != g.vertices_end(); r++) {
//!     if (r->level != INFINITY) continue;
//!     r->level = 0; r->label = r->id(); queue.push(r);
//!     while (!queue.empty()) {
//!         u = queue.front(); queue.pop();
//!         for (e = u->edges_begin(); e != u->edges_end(); ++e) {
//!             v = g.find_vertex(e->target());
//!             if (v->level == INFINITY) { v->level = u->level + 1; v->label = r->id(); queue.push(v); }
//!         }
//!     }
//! }
//! ```
//!
//! g++ 12.2 -O3: 2b8 `cmpl level` ; je 2d8 ; 2c1 `mov (%rbx),%rbx` ; cmp ; jne 2b8 ;
//! 2d8 id, mov, add, call 0 ; there: queue, find_vertex ; from 100: pop ; 104
//! `u->edges_begin` ; 120 target and find_vertex ; 168 `cmpl level` ; 16f spill v ;
//! je 1f1 ; 176 `mov (%rbx),%rbx` ; cmp ; jne 120 ; 183 cmp ; je ; 1f1 `mov
//! level(u)`, last, label, add, level, push, jmp 176.
//!
//! Several threads: see `level_sync`. The first thread selects the next root.
//!
//! Edges are traversed in their own direction. On an asymmetric graph a label is therefore the first root
//! that reaches the vertex.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pagewalk_stream::Error;
use pagewalk_stream::flags::TAKEN;

use super::containers::{self, Deque, From};
use super::kernel::{Kernel, World, launch};
use super::layout::{Field, Layout, Properties, Vertex};
use super::level_sync::{Claim, sweep};
use super::params::{self, Setup};
use super::search::{NOT_REACHED, unreached};
use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread, Value};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0)),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "cc",
    group: "graph",
    description: "Connected components: a breadth-first search from each vertex that no earlier search has reached.",
    stresses: "Dependent random reads (edge, hash table, vertex) over the whole graph, and with several threads compare-and-swap on shared data.",
    source: "L. Nai et al., GraphBIG, SC 2015: bench_connectedComp",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        params::GRAPH,
        params::SCALE,
        params::VERTICES,
        params::DEGREE,
        params::DEGREES,
        params::SYMMETRIC,
        params::LAYOUT,
        params::ORDER,
        ParamInfo {
            name: "rounds",
            unit: "runs",
            default: "64",
            range: "1 to 2^32",
            meaning: "Repetitions of the search for components, one after the other.",
        },
        POPULATE,
        REGION,
    ],
};

const LEVEL: usize = 0;
const LABEL: usize = 1;

/// `class vertex_property { unsigned level; uint64_t label; }`
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 16,
    fields: &[Field { offset: 0, size: 4 }, Field { offset: 8, size: 8 }],
    weights: false,
};

/// Results of the last run, per vertex.
pub struct Components {
    /// Distance from the vertex's root.
    pub levels: Vec<AtomicU32>,
    /// Root of the vertex.
    pub labels: Vec<AtomicU32>,
    /// Root of the current search, with several threads.
    root: AtomicU32,
}

/// The program, and its results.
pub fn program(values: &Values<'_>) -> Result<(Code, Arc<Components>), Error> {
    let rounds = values.number_in("rounds", 1..=1 << 32, 64)?;
    let setup = Setup::read_shaped(values, &PROPERTIES, params::symmetric(values)?)?;
    setup.holds(8)?;
    let found = Arc::new(Components {
        levels: unreached(&setup.graph),
        labels: unreached(&setup.graph),
        root: AtomicU32::new(0),
    });
    let kernel = Rounds {
        rounds,
        found: found.clone(),
    };
    Ok((launch(setup, &PROPERTIES, kernel), found))
}

/// Repeated computations of the components.
struct Rounds {
    rounds: u64,
    found: Arc<Components>,
}

impl Kernel for Rounds {
    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let found = &self.found;
        for round in 0..self.rounds {
            if round > 0 {
                reset(world, t, thread, found).await;
            }
            if world.threads == 1 {
                alone(world, t, found).await;
            } else {
                together(world, t, thread, found).await;
            }
        }
    }
}

/// `reset_graph`: the first thread walks the list.
async fn reset<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, found: &Components) {
    if world.threads > 1 {
        world.barrier(t, 0x780).await;
    }
    if thread == 0 {
        let memory = world.memory();
        let mut next = Some(memory.find(t, 0x700, 0, NONE, false));
        while let Some(v) = next {
            for (field, pc) in [(LABEL, 0x750), (LEVEL, 0x758)] {
                let (va, from) = memory.field(v, field);
                t.store(pc, 1, va, PROPERTIES.fields[field].size, from, NONE);
            }
            found.levels[v.id as usize].store(NOT_REACHED, Relaxed);
            found.labels[v.id as usize].store(NOT_REACHED, Relaxed);
            next = memory.next(t, 0x760, v);
            t.branch(0x766, 0x750, 2, next.is_some(), [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }
    if world.threads > 1 {
        world.barrier(t, 0x790).await;
    }
}

async fn alone<L: Layout>(world: &World<L>, t: &mut Thread, found: &Components) {
    let memory = world.memory();
    let mut heap = world.heap();
    let mut next = Some(memory.vertex(0, NONE));
    while let Some(r) = next {
        let (va, from) = memory.field(r, LEVEL);
        let level = t.load(0x2b8, 1, va, 4, [from, NONE]);
        let new = found.levels[r.id as usize].load(Relaxed) == NOT_REACHED;
        t.branch(0x2bf, 0x2d8, 1, new, [level, NONE]);
        if new {
            // Vertex objects hold their number. Other layouts count.
            if r.at > 0 {
                t.load(0x2d8, 1, r.at + 0x10, 8, [r.value, NONE]);
            }
            t.call(0x2e3, 0, 3, 0x400);
            component(world, t, r.id, &mut heap, found).await;
            t.ret(0x285, 0x2e3, 1, 0x400);
        }
        next = memory.next(t, 0x2c1, r);
        t.branch(0x2c7, 0x2b8, 2, next.is_some(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    world.give_back(heap);
}

/// Searches from `root`.
async fn component<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    root: u32,
    heap: &mut Heap,
    found: &Components,
) {
    let (memory, graph) = (world.memory(), &world.graph);
    let frame = t.stack - 0x600;
    let mut queue = Deque::new(heap, frame);
    heap.emit_pending_untouched(t).await;
    construct(t, frame);
    let r = memory.find(t, 0x9c, root, NONE, false);
    found.levels[root as usize].store(0, Relaxed);
    found.labels[root as usize].store(root, Relaxed);
    visit(memory, t, 0xe1, r, NONE);
    queue.push(t, 0xed, root, r.value);
    while let Some((u, value)) = queue.pop_front(t, heap, 0x18c) {
        let u = memory.vertex(u, value);
        let mine = found.levels[u.id as usize].load(Relaxed);
        let mut edges = memory.edges(t, 0x104, 0x183, graph, u);
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x120, graph, present);
            let v = memory.find(t, 0x124, target, id, false);
            let (va, from) = memory.field(v, LEVEL);
            let level = t.load(0x168, 1, va, 4, [from, NONE]);
            t.store(0x16f, 1, frame + 0x18, 8, NONE, v.value);
            let new = found.levels[target as usize].load(Relaxed) == NOT_REACHED;
            t.branch(0x174, 0x1f1, 1, new, [level, NONE]);
            if new {
                found.levels[target as usize].store(mine + 1, Relaxed);
                found.labels[target as usize].store(root, Relaxed);
                let (va, from) = memory.field(u, LEVEL);
                let level = t.load(0x1f1, 1, va, 4, [from, NONE]);
                visit(memory, t, 0x1fa, v, level);
                queue.make_room(heap);
                if heap.has_pending() {
                    heap.emit_pending_untouched(t).await;
                }
                queue.push(t, 0x204, target, v.value);
                t.jump(0x219, 0x176, 1, TAKEN, [NONE; 2]);
            }
            if !memory.advance(t, 0x176, 0x120, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.branch(0x186, 0x237, 2, queue.is_empty(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    destroy(t, frame);
    queue.free(heap);
}

/// Prologue of the function and constructor of the queue: five saved registers, ten cleared members, two
/// allocations, and the members for the first node.
fn construct(t: &mut Thread, frame: u64) {
    for i in 0..5 {
        t.store(2 + 3 * i, 2, frame + 0x68 + 8 * i, 8, NONE, NONE);
    }
    for (i, pc) in [0x1b, 0x24, 0x29, 0x2e, 0x33].into_iter().enumerate() {
        t.store(pc, 1, frame + 16 * i as u64, 16, NONE, NONE);
    }
    containers::allocate(t, 0x38, From::List, None);
    t.store(0x42, 2, frame, 8, NONE, NONE);
    containers::allocate(t, 0x4a, From::List, None);
    for (i, pc) in [0x58, 0x7c, 0x84, 0x92, 0x97].into_iter().enumerate() {
        t.store(pc, 2, frame + 16 * i as u64, 16, NONE, NONE);
    }
}

/// Destructor of the queue: two deallocations.
fn destroy(t: &mut Thread, frame: u64) {
    for (pc, at) in [(0x237, 0), (0x241, 0x48), (0x246, 0x28)] {
        t.load(pc, 2, frame + at, 8, [NONE; 2]);
    }
    t.load(0x254, 1, frame + 0x28, 8, [NONE; 2]);
    containers::release(t, 0x25b, From::List, None);
    t.branch(0x263, 0x254, 3, false, [NONE; 2]);
    containers::release(t, 0x274, From::List, None);
    for i in 0..5 {
        t.load(0x268 + 2 * i, 1, frame + 0x68 + 8 * i, 8, [NONE; 2]);
    }
}

/// Writes label and level of a vertex when it is discovered.
#[inline(always)]
fn visit<L: Layout>(memory: &L, t: &mut Thread, pc: u64, v: Vertex, level: Value) {
    for (field, at, insns, data) in [(LABEL, 0, 1, NONE), (LEVEL, 7, 2, level.plus(1))] {
        let (va, from) = memory.field(v, field);
        let size = PROPERTIES.fields[field].size;
        t.store(pc + at, insns, va, size, from, data);
    }
}

/// Version for several threads: the first thread selects an unreached vertex, all search from it.
async fn together<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, found: &Components) {
    let memory = world.memory();
    let vertices = world.graph.vertices() as u32;
    if thread == 0 {
        found.root.store(0, Relaxed);
    }
    // Each thread sees the root that the first thread chose before the barrier.
    loop {
        world.barrier(t, 0x6a0).await;
        let root = found.root.load(Relaxed);
        if root == vertices {
            return;
        }
        let claim = Claim {
            level: LEVEL,
            level_bytes: 4,
            label: Some((LABEL, 8)),
        };
        if thread == 0 {
            found.labels[root as usize].store(root, Relaxed);
        }
        sweep(world, t, thread, root, claim, &found.levels, |v| {
            found.labels[v as usize].store(root, Relaxed);
        })
        .await;
        if thread > 0 {
            continue;
        }
        let mut next = root;
        while next < vertices {
            let v = memory.find(t, 0x6c0, next, NONE, false);
            let (va, from) = memory.field(v, LEVEL);
            let level = t.load(0x710, 1, va, 4, [from, NONE]);
            let new = found.levels[next as usize].load(Relaxed) == NOT_REACHED;
            t.branch(0x717, 0x730, 1, new, [level, NONE]);
            if new {
                break;
            }
            next += 1;
            t.branch(0x720, 0x6c0, 3, next < vertices, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
        found.root.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::{ENTRY, PROPERTIES, program};
    use crate::graph::params;
    use crate::graph::params::Setup;
    use crate::graph::search::NOT_REACHED;
    use crate::graph::test::{Run, run};

    #[test]
    fn labels_are_the_first_root_that_reaches_a_vertex() {
        for layout in ["csr", "graphbig"] {
            for threads in [1, 2, 7] {
                let params = [
                    ("scale", "12"),
                    ("degree", "3"),
                    ("layout", layout),
                    ("rounds", "2"),
                ];
                let Run { found, setup, .. } = run(&ENTRY.info, threads, &params, program, |v| {
                    Setup::read_shaped(v, &PROPERTIES, params::symmetric(v)?)
                });
                let graph = &setup.graph;
                let mut labels = vec![NOT_REACHED; graph.vertices() as usize];
                for root in 0..labels.len() as u32 {
                    let mut stack = vec![root];
                    while let Some(u) = stack.pop() {
                        if labels[u as usize] != NOT_REACHED {
                            continue;
                        }
                        labels[u as usize] = root;
                        let row = graph.row(u);
                        stack.extend((0..row.degree).map(|i| graph.neighbour(&row, i)));
                    }
                }
                let given: Vec<u32> = found.labels.iter().map(|l| l.load(Relaxed)).collect();
                assert_eq!(given, labels, "{layout} {threads}");
            }
        }
    }

    /// Compares with components of a symmetric graph by union-find.
    #[test]
    fn labels_of_a_symmetric_graph_are_its_components() {
        let params = [
            ("scale", "12"),
            ("degree", "1"),
            ("symmetric", "yes"),
            ("layout", "graphbig"),
            ("rounds", "1"),
        ];
        for threads in [1, 4] {
            let Run { found, setup, .. } = run(&ENTRY.info, threads, &params, program, |v| {
                Setup::read_shaped(v, &PROPERTIES, params::symmetric(v)?)
            });
            let graph = &setup.graph;
            let mut parent: Vec<u32> = (0..graph.vertices() as u32).collect();
            fn root(parent: &mut [u32], mut v: u32) -> u32 {
                while parent[v as usize] != v {
                    parent[v as usize] = parent[parent[v as usize] as usize];
                    v = parent[v as usize];
                }
                v
            }
            for u in 0..graph.vertices() as u32 {
                let row = graph.row(u);
                for i in 0..row.degree {
                    let (a, b) = (
                        root(&mut parent, u),
                        root(&mut parent, graph.neighbour(&row, i)),
                    );
                    // The smaller root represents the component.
                    parent[a.max(b) as usize] = a.min(b);
                }
            }
            let mut components = std::collections::BTreeSet::new();
            for v in 0..graph.vertices() as u32 {
                let component = root(&mut parent, v);
                components.insert(component);
                assert_eq!(found.labels[v as usize].load(Relaxed), component);
            }
            assert!(components.len() > 100);
        }
    }
}
