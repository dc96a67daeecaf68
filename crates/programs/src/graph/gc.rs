//! GraphBIG's graph colouring (Jones and Plassmann). Each vertex has a random number. In each round a vertex
//! gets the round's colour if its number is the largest among its uncoloured neighbours.
//!
//! ```text
//! for (color = 0; !stop; color++) {
//!     barrier; stop = true;
//!     for (vid : input[tid]) {
//!         u = g.find_vertex(vid); larger = false;
//!         for (e = u->edges_begin(); e != u->edges_end(); e++) {
//!             v = g.find_vertex(e->target());
//!             if (v->color < color) continue;
//!             if (v->rand > u->rand || (v->rand == u->rand && v < u)) { larger = true; break; }
//!         }
//!         if (!larger) u->color = color; else output[tid][vid % threads].push_back(vid);
//!     }
//!     barrier; gather output to input, stop = false if there is any
//! }
//! ```
//!
//! g++ 12.2 -O3: 40 `mov (%r15,%rdx,8),%r9` ; find_vertex ; 93 edges_begin, with
//! 9b `movzwl rand` ; a8 target, find_vertex ; d7 `cmp %bp,color` ; jb f2 ; dd
//! `movzwl rand` ; cmp ; e5 jb 13d ; cmp ; eb jne f2 ; cmp ; f0 jb 13d ; f2 next
//! edge ; fa `mov %bp,color` ; ff the vector's length ; 11f jb 3c ; 13d
//! `div`, the vector's end and capacity, `mov %r9,(%rsi)`, its new end and that of the
//! input ; jmp ff.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use pagewalk_stream::flags::TAKEN;
use pagewalk_stream::{Error, Program};

use super::kernel::{Extras, Kernel, World, bounds, launch};
use super::layout::{Field, Layout, Properties};
use super::level_sync::{DIVIDE, gather};
use super::params::{
    DEGREE, DEGREES, GRAPH, LAYOUT, ORDER, SCALE, SYMMETRIC, Setup, VERTICES, symmetric,
};
use super::source::mix;
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gc",
    group: "graph",
    description: "Graph colouring: colours vertices in rounds by random numbers, so that neighbours have different colours.",
    stresses: "Random reads of neighbours' colours and numbers, hard-to-predict ends of loops, and vertex lists that shrink in each round.",
    source: "L. Nai et al., GraphBIG, SC 2015 (graph colouring); M. Jones, P. Plassmann, A Parallel Graph Coloring Heuristic, 1993",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        GRAPH, SCALE, VERTICES, DEGREE, DEGREES, SYMMETRIC, LAYOUT, ORDER, POPULATE, REGION,
    ],
};

const RAND: usize = 0;
const COLOR: usize = 1;

/// `class vertex_property { uint16_t rand; uint16_t color; }`
const PROPERTIES: Properties = Properties {
    vertex_bytes: 4,
    fields: &[Field { offset: 0, size: 2 }, Field { offset: 2, size: 2 }],
    weights: false,
};

/// A vertex without a colour (`MY_INFINITY`).
pub(crate) const NO_COLOR: u32 = 0xfff0;

/// Results of the rounds.
pub(crate) struct Colors {
    /// Colour of each vertex.
    pub colors: Vec<AtomicU32>,
    /// Number of finished rounds.
    pub rounds: AtomicU64,
    seed: u64,
}

impl Colors {
    /// `rand()` of each vertex, in 16 bits.
    #[inline(always)]
    fn number(&self, vertex: u32) -> u16 {
        mix(self.seed, u64::from(vertex)) as u16
    }
}

/// The program, and its results.
pub(crate) fn program(values: &Values<'_>) -> Result<(Code, Arc<Colors>), Error> {
    let setup = Setup::read_shaped(values, &PROPERTIES, symmetric(values)?)?;
    setup.holds(4)?;
    let color = || AtomicU32::new(NO_COLOR);
    let found = Arc::new(Colors {
        colors: (0..setup.graph.vertices()).map(|_| color()).collect(),
        rounds: AtomicU64::new(0),
        seed: setup.seed,
    });
    let kernel = Coloring {
        found: found.clone(),
    };
    Ok((launch(setup, &PROPERTIES, kernel), found))
}

/// Rounds, one colour each.
struct Coloring {
    found: Arc<Colors>,
}

impl Kernel for Coloring {
    const EXTRAS: Extras = Extras {
        lists: true,
        ..Extras::NONE
    };

    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let found = &self.found;
        let (lists, threads) = (world.lists(), world.threads);
        // Every vertex is in its owner's list before the measured part.
        let n = world.graph.vertices();
        let mut input: Vec<u32> = (0..n as u32).filter(|v| v % threads == thread).collect();
        let (list, header) = lists.input(thread);
        t.touch(list, 8 * input.len() as u64).await;
        t.touch(header, 24).await;
        let mut color = 0;
        loop {
            world.barrier(t, 0x1dc).await;
            world.set_stop(true);
            t.store(0x1eb, 4, lists.stop, 1, NONE, NONE);
            round(world, t, thread, &input, color, found).await;
            world.barrier(t, 0x3d3).await;
            input = gather(world, t, thread).await;
            color += 1;
            if thread == 0 {
                found.rounds.fetch_add(1, Relaxed);
            }
            world.barrier(t, 0x644).await;
            let stop = t.load(0x64e, 3, lists.stop, 1, [NONE; 2]);
            t.branch(0x651, 0x1dc, 1, !world.stop(), [stop, NONE]);
            if world.stop() {
                break;
            }
        }
    }
}

async fn round<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    input: &[u32],
    color: u32,
    found: &Colors,
) {
    let (memory, graph, lists) = (world.memory(), &world.graph, world.lists());
    let (list, own_header) = lists.input(thread);
    let frame = t.stack - 0x200;
    let start = bounds(t, 0x0e, own_header);
    t.branch(0x24, 0x125, 4, input.is_empty(), start);
    for (i, &vertex) in input.iter().enumerate() {
        let shared = t.load(0x3c, 1, frame, 8, [NONE; 2]);
        let id = t.load(0x40, 1, list + 8 * i as u64, 8, [NONE; 2]);
        t.load(0x43, 2, t.stack - 0x80, 8, [shared, NONE]);
        let u = memory.find(t, 0x44, vertex, id, false);
        let (va, from) = memory.field(u, RAND);
        let own = t.load(0x9b, 1, va, 2, [from, NONE]);
        let number = found.number(vertex);
        let mut edges = memory.edges(t, 0x93, 0xfa, graph, u);
        if edges.is_some() {
            t.store(0xa1, 1, frame + 0x10, 8, NONE, u.value);
        }
        let mut larger = false;
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0xa8, graph, present);
            let v = memory.find(t, 0xac, target, id, true);
            let (va, from) = memory.field(v, COLOR);
            let theirs = t.load(0xd7, 1, va, 2, [from, NONE]);
            let done = found.colors[target as usize].load(Relaxed) < color;
            t.branch(0xdb, 0xf2, 1, done, [theirs, NONE]);
            if !done {
                let (va, from) = memory.field(v, RAND);
                let theirs = t.load(0xdd, 1, va, 2, [from, NONE]);
                let other = found.number(target);
                larger = other > number;
                t.branch(0xe5, 0x13d, 2, larger, [theirs, own]);
                if !larger {
                    t.branch(0xeb, 0xf2, 2, other != number, [theirs, own]);
                    if other == number {
                        larger = target < vertex;
                        t.branch(0xf0, 0x13d, 2, larger, [id, NONE]);
                    }
                }
            }
            if larger || !memory.advance(t, 0xf2, 0xa8, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        if larger {
            let owner = vertex % world.threads;
            let (list, header) = lists.output(thread, owner);
            let length = world.send(thread, owner, vertex);
            let vectors = t.load(0x13d, 1, frame + 0x2c, 4, [NONE; 2]);
            let vectors = t.load(0x149, 4, frame + 0x18, 8, [vectors, NONE]);
            let at = [id.plus(DIVIDE), vectors];
            let base = t.load(0x155, 3, frame + 0x20, 8, [NONE; 2]);
            t.load(0x15a, 1, frame + 0x70, 8, [base, NONE]);
            t.load(0x15d, 1, frame + 0x28, 8, [NONE; 2]);
            let end = t.load(0x161, 2, header + 8, 8, at);
            let capacity = t.load(0x165, 1, header + 16, 8, at);
            t.branch(0x169, 0x184, 1, false, [end, capacity]);
            t.store(0x16b, 1, list + 8 * length, 8, end, id);
            let input = t.load(0x16e, 1, frame + 0x18, 8, [NONE; 2]);
            t.store(0x172, 2, header + 8, 8, at[0], end.plus(1));
            t.load(0x174, 1, own_header + 8, 8, [input, NONE]);
            t.jump(0x176, 0xff, 1, TAKEN, [NONE; 2]);
        } else {
            t.load(0xf5, 1, frame + 0x10, 8, [NONE; 2]);
            let (va, from) = memory.field(u, COLOR);
            t.store(0xfa, 1, va, 2, from, NONE);
            found.colors[vertex as usize].store(color, Relaxed);
        }
        t.branch(0x11f, 0x3c, 7, i + 1 < input.len(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::{ENTRY, PROPERTIES, program};
    use crate::graph::params::{Setup, symmetric};
    use crate::graph::test::{Run, run};

    fn colors(threads: u32, params: &[(&str, &str)]) -> (Vec<u32>, Setup, u64) {
        let Run { found, setup, .. } = run(&ENTRY.info, threads, params, program, |v| {
            Setup::read_shaped(v, &PROPERTIES, symmetric(v)?)
        });
        let colors = found.colors.iter().map(|c| c.load(Relaxed)).collect();
        (colors, setup, found.rounds.load(Relaxed))
    }

    #[test]
    fn no_two_neighbours_have_the_same_color() {
        for graph in ["kronecker", "uniform", "ldbc"] {
            let mut first = None;
            for (layout, threads) in [("csr", 1), ("csr", 5), ("graphbig", 1), ("graphbig", 16)] {
                let params = [
                    ("graph", graph),
                    ("scale", "12"),
                    ("degree", "8"),
                    ("symmetric", "yes"),
                    ("layout", layout),
                ];
                let (colors, setup, rounds) = colors(threads, &params);
                for v in 0..4096u32 {
                    let color = colors[v as usize];
                    assert!(u64::from(color) < rounds, "every vertex has a color");
                    let row = setup.graph.row(v);
                    for i in 0..row.degree {
                        let w = setup.graph.neighbour(&row, i);
                        assert!(w == v || colors[w as usize] != color, "{v} and {w}");
                    }
                }
                assert!(rounds > 3);
                // The order of the threads has no effect: the random numbers decide.
                assert_eq!(*first.get_or_insert(colors.clone()), colors);
            }
        }
    }
}
