//! GraphBIG's breadth-first search.
//!
//! One thread, a `std::queue` of iterators:
//!
//! ```text
//! while (!queue.empty()) {
//!     u = queue.front(); queue.pop();
//!     for (e = u->edges_begin(); e != u->edges_end(); ++e) {
//!         v = g.find_vertex(e->target());
//!         if (v->color == WHITE) { count white; v->color = GREY; v->order = n++; v->level = u->level + 1; queue.push(v); }
//!         else if (v->color == GREY) count grey; else count black;
//!     }
//!     u->color = BLACK;
//! }
//! ```
//!
//! g++ 12.2 -O3, from 0xf0: pop; 109 `u->edges_begin`; 120 target and
//! find_vertex (see `layout::open_g`); 168 `movzbl color` ; 16c spill v ; test ;
//! je 204 ; cmp ; je 240 ; 182 `addq $1,black` ; 188 `mov (%rbx),%rbx` ; cmp ;
//! jne 120 ; 195 `movb $2,color` ; cmp ; jne f0 ; 204 `addq $1,white` ; color,
//! `mov level(u)`, order, lea, level, push ; add ; jmp 188 ; 240 `addq $1,grey`.
//!
//! Several threads: see `level_sync`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use pagewalk_stream::Error;

use super::containers::Deque;
use super::gap_bfs;
use super::kernel::{Kernel, World, launch};
use super::layout::{Field, Layout, Properties, Vertex};
use super::level_sync::{Claim, sweep};
use super::params::{self, Setup};
use super::search::{NOT_REACHED, Roots, count, unreached};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread, Value};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| match values.choice("layout", &["csr", "graphbig"], "csr")? {
        "csr" => Ok(Box::new(gap_bfs::program(values)?)),
        _ if values.text("direction").is_some() => {
            Err(values.refuse("direction", "of searches over csr only"))
        }
        _ => Ok(Box::new(program(values)?.0)),
    },
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "bfs",
    group: "graph",
    description: "Breadth-first searches from random roots over compressed sparse rows or GraphBIG's objects.",
    stresses: "Dependent random reads (neighbour, then its parent entry), hard-to-predict branches, and sequential reads of neighbour lists.",
    source: "S. Beamer, K. Asanovic, D. Patterson, The GAP Benchmark Suite, 2015 (top-down step); Graph500 specification (Kronecker graph)",
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
        params::DIRECTION,
        params::ORDER,
        params::ROOTS,
        POPULATE,
        REGION,
    ],
};

const COLOR: usize = 0;
const ORDER: usize = 1;
const LEVEL: usize = 2;

/// `class vertex_property { uint8_t color; uint64_t order; uint64_t level; }`
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 24,
    fields: &[
        Field { offset: 0, size: 1 },
        Field { offset: 8, size: 8 },
        Field {
            offset: 16,
            size: 8,
        },
    ],
    weights: false,
};

/// Results of the last search.
pub struct Levels {
    /// Level of each vertex.
    pub levels: Vec<AtomicU32>,
    /// Number of searches done.
    pub searches: AtomicU64,
    /// Root of the last search.
    pub root: AtomicU32,
}

/// The program, and its results.
pub fn program(values: &Values<'_>) -> Result<(Code, Arc<Levels>), Error> {
    let searches = values.number_in("roots", 1..=1 << 32, 64)?;
    let setup = Setup::read_shaped(values, &PROPERTIES, params::symmetric(values)?)?;
    setup.holds(4)?;
    let found = Arc::new(Levels {
        levels: unreached(&setup.graph),
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
    found: Arc<Levels>,
}

impl Kernel for Searches {
    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let found = &self.found;
        let mut roots = Roots::new(self.seed);
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
                let claim = Claim {
                    level: LEVEL,
                    level_bytes: 8,
                    label: None,
                };
                sweep(world, t, thread, root, claim, &found.levels, |_| {}).await;
            }
            if thread == 0 {
                found.searches.fetch_add(1, Relaxed);
            }
        }
    }
}

/// `reset_graph`: one thread walks the list and sets all properties.
async fn reset<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, found: &Levels) {
    if world.threads > 1 {
        world.barrier(t, 0x780).await;
    }
    if thread == 0 {
        let memory = world.memory();
        let mut next = Some(memory.find(t, 0x700, 0, NONE, false));
        while let Some(v) = next {
            for (field, pc) in [(COLOR, 0x750), (ORDER, 0x754), (LEVEL, 0x75c)] {
                let (va, from) = memory.field(v, field);
                let size = PROPERTIES.fields[field].size;
                t.store(pc, 1, va, size, from, NONE);
            }
            found.levels[v.id as usize].store(NOT_REACHED, Relaxed);
            next = memory.next(t, 0x764, v);
            t.branch(0x76a, 0x750, 2, next.is_some(), [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }
    if world.threads > 1 {
        world.barrier(t, 0x790).await;
    }
}

async fn alone<L: Layout>(world: &World<L>, t: &mut Thread, root: u32, found: &Levels) {
    let (memory, graph) = (world.memory(), &world.graph);
    let mut heap = world.heap();
    let frame = t.stack - 0x600;
    // Counters of white, grey and black accesses: a variable of `main`.
    let visitor = t.stack - 0x480;
    let mut queue = Deque::new(&mut heap, frame);
    heap.emit_pending_untouched(t).await;
    let mut black = vec![0u64; (graph.vertices() as usize).div_ceil(64)];
    let v = memory.find(t, 0x55, root, NONE, false);
    found.levels[root as usize].store(0, Relaxed);
    visit(memory, t, 0xbd, v, NONE);
    queue.push(t, 0xc5, root, v.value);
    while let Some((u, value)) = queue.pop_front(t, &mut heap, 0xf0) {
        let u = memory.vertex(u, value);
        let level = found.levels[u.id as usize].load(Relaxed);
        let mut edges = memory.edges(t, 0x109, 0x195, graph, u);
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x120, graph, present);
            let v = memory.find(t, 0x124, target, id, false);
            let (va, from) = memory.field(v, COLOR);
            let color = t.load(0x168, 1, va, 1, [from, NONE]);
            t.store(0x16c, 1, frame + 0x18, 8, NONE, v.value);
            let white = found.levels[target as usize].load(Relaxed) == NOT_REACHED;
            t.branch(0x173, 0x204, 2, white, [color, NONE]);
            if white {
                found.levels[target as usize].store(level + 1, Relaxed);
                count(t, 0x204, visitor);
                let (va, from) = memory.field(u, LEVEL);
                let level = t.load(0x212, 1, va, 8, [from, NONE]);
                visit(memory, t, 0x20e, v, level);
                queue.make_room(&mut heap);
                if heap.has_pending() {
                    heap.emit_pending_untouched(t).await;
                }
                queue.push(t, 0x222, target, v.value);
                t.jump(0x23b, 0x188, 2, pagewalk_stream::flags::TAKEN, [NONE; 2]);
            } else {
                let is_black = black[target as usize / 64] >> (target % 64) & 1 == 1;
                t.branch(0x17c, 0x240, 2, !is_black, [color, NONE]);
                if is_black {
                    count(t, 0x182, visitor + 16);
                } else {
                    count(t, 0x240, visitor + 8);
                    t.jump(0x246, 0x188, 1, pagewalk_stream::flags::TAKEN, [NONE; 2]);
                }
            }
            if !memory.advance(t, 0x188, 0x120, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        black[u.id as usize / 64] |= 1 << (u.id % 64);
        let (va, from) = memory.field(u, COLOR);
        t.store(0x195, 1, va, 1, from, NONE);
        t.branch(0x19d, 0xf0, 2, !queue.is_empty(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
    queue.free(&mut heap);
    world.give_back(heap);
}

/// Writes color, order and level of a vertex when it is discovered.
#[inline(always)]
fn visit<L: Layout>(memory: &L, t: &mut Thread, pc: u64, v: Vertex, level: Value) {
    for (field, at, insns, data) in [
        (COLOR, 0, 1, NONE),
        (ORDER, 8, 1, NONE),
        (LEVEL, 0x10, 2, level.plus(1)),
    ] {
        let (va, from) = memory.field(v, field);
        t.store(
            pc + at,
            insns,
            va,
            PROPERTIES.fields[field].size,
            from,
            data,
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

    fn reference(graph: &crate::graph::source::Graph, root: u32) -> Vec<u32> {
        let mut levels = vec![NOT_REACHED; graph.vertices() as usize];
        levels[root as usize] = 0;
        let mut queue = std::collections::VecDeque::from([root]);
        while let Some(u) = queue.pop_front() {
            let row = graph.row(u);
            for i in 0..row.degree {
                let v = graph.neighbour(&row, i) as usize;
                if levels[v] == NOT_REACHED {
                    levels[v] = levels[u as usize] + 1;
                    queue.push_back(v as u32);
                }
            }
        }
        levels
    }

    #[test]
    fn levels_are_those_of_a_reference() {
        for layout in ["csr", "graphbig"] {
            for threads in [1, 2, 5, 16] {
                for graph in ["kronecker", "uniform"] {
                    let params = [
                        ("graph", graph),
                        ("scale", "12"),
                        ("degree", "6"),
                        ("layout", layout),
                        ("roots", "2"),
                    ];
                    let Run { found, setup, ops } =
                        run(&ENTRY.info, threads, &params, program, |v| {
                            Setup::read_shaped(v, &PROPERTIES, params::symmetric(v)?)
                        });
                    let root = found.root.load(Relaxed);
                    let levels: Vec<u32> = found.levels.iter().map(|l| l.load(Relaxed)).collect();
                    assert_eq!(levels, reference(&setup.graph, root));
                    assert_eq!(found.searches.load(Relaxed), 2);
                    assert!(ops > 12 * 6 * 1000);
                }
            }
        }
    }
}
