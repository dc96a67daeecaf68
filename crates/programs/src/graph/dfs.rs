//! GraphBIG's depth-first search: the stack holds discovered vertices whose edges were not traversed yet.
//!
//! ```text
//! while (!stack.empty()) {
//!     u = stack.top(); stack.pop();
//!     for (e = u->edges_begin(); e != u->edges_end(); ++e) {
//!         v = g.find_vertex(e->target());
//!         if (v->color == WHITE) { count white; v->color = GREY; v->order = n++; stack.push(v); }
//!         else if (v->color == GREY) count grey; else count black;
//!     }
//!     u->color = BLACK;
//! }
//! ```
//!
//! g++ 12.2 -O3, from 0xf0: `mov last,%rbx` ; `cmp first,%r8` ; je (previous
//! node) ; 100 `mov -8(%r8),%r15` ; sub ; `mov %r8,finish` ; 10d `u->edges_begin` ;
//! 120 target and find_vertex ; 168 `movzbl color` ; spill v ; test ; je 205 ; cmp ;
//! je 238 ; 184 `addq $1,black` ; 18a `mov (%rbx),%rbx` ; cmp ; jne 120 ; 192
//! `movb $2,color` ; `cmp start` ; jne f0 ; 205 `addq $1,white` ; color ; order ;
//! push ; add ; jmp 18a ; 238 `addq $1,grey` ; jmp 18a.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pagewalk_stream::Error;
use pagewalk_stream::flags::TAKEN;

use super::containers::Deque;
use super::kernel::{Kernel, World, launch};
use super::layout::{Field, Layout, Properties, Vertex};
use super::params::{self, Setup};
use super::search::{NOT_REACHED, Roots, count, unreached};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0)),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "dfs",
    group: "graph",
    description: "Depth-first searches from random roots, with a stack of vertices to visit.",
    stresses: "Dependent random reads (edge, hash table, vertex) and hard-to-predict branches, with less locality than a breadth-first search.",
    source: "L. Nai et al., GraphBIG, SC 2015: bench_DFS",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 1,
    params: &[
        params::GRAPH,
        params::SCALE,
        params::VERTICES,
        params::DEGREE,
        params::DEGREES,
        params::SYMMETRIC,
        params::LAYOUT,
        params::ORDER,
        params::ROOTS,
        POPULATE,
        REGION,
    ],
};

const COLOR: usize = 0;
const ORDER: usize = 1;

/// `class vertex_property { uint8_t color; uint64_t order; }`
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 16,
    fields: &[Field { offset: 0, size: 1 }, Field { offset: 8, size: 8 }],
    weights: false,
};

/// Results of the last search.
pub struct Visits {
    /// Discovery order of each vertex, or [`NOT_REACHED`].
    pub order: Vec<AtomicU32>,
    /// Root of the last search.
    pub root: AtomicU32,
}

/// The program, and its results.
pub fn program(values: &Values<'_>) -> Result<(Code, Arc<Visits>), Error> {
    let searches = values.number_in("roots", 1..=1 << 32, 64)?;
    let setup = Setup::read_shaped(values, &PROPERTIES, params::symmetric(values)?)?;
    setup.holds(4)?;
    let found = Arc::new(Visits {
        order: unreached(&setup.graph),
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
    found: Arc<Visits>,
}

impl Kernel for Searches {
    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, _: u32) {
        let found = &self.found;
        let mut roots = Roots::new(self.seed);
        for search in 0..self.searches {
            let root = roots.next(&world.graph);
            if search > 0 {
                reset(world, t, found).await;
            }
            found.root.store(root, Relaxed);
            run(world, t, root, found).await;
        }
    }
}

/// `reset_graph`.
async fn reset<L: Layout>(world: &World<L>, t: &mut Thread, found: &Visits) {
    let memory = world.memory();
    let mut next = Some(memory.find(t, 0x700, 0, NONE, false));
    while let Some(v) = next {
        for (field, pc) in [(COLOR, 0x750), (ORDER, 0x754)] {
            let (va, from) = memory.field(v, field);
            t.store(pc, 1, va, PROPERTIES.fields[field].size, from, NONE);
        }
        found.order[v.id as usize].store(NOT_REACHED, Relaxed);
        next = memory.next(t, 0x75c, v);
        t.branch(0x762, 0x750, 2, next.is_some(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

async fn run<L: Layout>(world: &World<L>, t: &mut Thread, root: u32, found: &Visits) {
    let (memory, graph) = (world.memory(), &world.graph);
    let mut heap = world.heap();
    let frame = t.stack - 0x600;
    let visitor = t.stack - 0x480;
    let mut stack = Deque::new(&mut heap, frame);
    heap.emit_pending_untouched(t).await;
    // Vertices whose edges were traversed.
    let mut black = vec![0u64; (graph.vertices() as usize).div_ceil(64)];
    let mut known = 1;
    let v = memory.find(t, 0x55, root, NONE, false);
    found.order[root as usize].store(0, Relaxed);
    visit(memory, t, 0xb9, v);
    stack.push(t, 0xc5, root, v.value);
    while let Some((u, value)) = stack.pop_back(t, &mut heap, 0xf0) {
        let u = memory.vertex(u, value);
        let mut edges = memory.edges(t, 0x10d, 0x192, graph, u);
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x120, graph, present);
            let v = memory.find(t, 0x124, target, id, false);
            let (va, from) = memory.field(v, COLOR);
            let color = t.load(0x168, 1, va, 1, [from, NONE]);
            t.store(0x16c, 1, frame + 0x18, 8, NONE, v.value);
            let order = &found.order[target as usize];
            let white = order.load(Relaxed) == NOT_REACHED;
            t.branch(0x174, 0x205, 2, white, [color, NONE]);
            if white {
                order.store(known, Relaxed);
                known += 1;
                count(t, 0x20a, visitor);
                visit(memory, t, 0x20f, v);
                stack.make_room(&mut heap);
                if heap.has_pending() {
                    heap.emit_pending_untouched(t).await;
                }
                stack.push(t, 0x21b, target, v.value);
                t.jump(0x230, 0x18a, 2, TAKEN, [NONE; 2]);
            } else {
                let is_black = black[target as usize / 64] >> (target % 64) & 1 == 1;
                t.branch(0x17e, 0x238, 2, !is_black, [color, NONE]);
                if is_black {
                    count(t, 0x184, visitor + 16);
                } else {
                    count(t, 0x238, visitor + 8);
                    t.jump(0x23e, 0x18a, 1, TAKEN, [NONE; 2]);
                }
            }
            if !memory.advance(t, 0x18a, 0x120, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        black[u.id as usize / 64] |= 1 << (u.id % 64);
        let (va, from) = memory.field(u, COLOR);
        t.store(0x192, 1, va, 1, from, NONE);
        let start = t.load(0x197, 1, frame + 0x10, 8, [NONE; 2]);
        t.branch(0x19c, 0xf0, 1, !stack.is_empty(), [start, NONE]);
        if t.full() {
            t.pause().await;
        }
    }
    stack.free(&mut heap);
    world.give_back(heap);
}

/// Writes color and order of a vertex when it is discovered.
#[inline(always)]
fn visit<L: Layout>(memory: &L, t: &mut Thread, pc: u64, v: Vertex) {
    for (field, at, insns) in [(COLOR, 0, 1), (ORDER, 8, 1)] {
        let (va, from) = memory.field(v, field);
        t.store(
            pc + at,
            insns,
            va,
            PROPERTIES.fields[field].size,
            from,
            NONE,
        );
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
    fn vertices_become_known_in_the_order_of_a_reference() {
        for layout in ["csr", "graphbig"] {
            for graph in ["kronecker", "uniform"] {
                let params = [
                    ("graph", graph),
                    ("scale", "12"),
                    ("degree", "6"),
                    ("layout", layout),
                    ("roots", "2"),
                ];
                let Run { found, setup, .. } = run(&ENTRY.info, 1, &params, program, |v| {
                    Setup::read_shaped(v, &PROPERTIES, params::symmetric(v)?)
                });
                let graph = &setup.graph;
                let root = found.root.load(Relaxed);
                let mut order = vec![NOT_REACHED; graph.vertices() as usize];
                order[root as usize] = 0;
                let (mut stack, mut known) = (vec![root], 1);
                while let Some(u) = stack.pop() {
                    let row = graph.row(u);
                    for i in 0..row.degree {
                        let v = graph.neighbour(&row, i);
                        if order[v as usize] == NOT_REACHED {
                            order[v as usize] = known;
                            known += 1;
                            stack.push(v);
                        }
                    }
                }
                let given: Vec<u32> = found.order.iter().map(|o| o.load(Relaxed)).collect();
                assert_eq!(given, order);
                assert!(known > 1000);
            }
        }
    }
}
