//! GraphBIG's degree centrality: counts the outgoing and incoming edges of each vertex.
//!
//! ```text
//! for (u = g.vertices_begin(); u != g.vertices_end(); u++) {
//!     u->outdegree = u->edges_size();
//!     for (e = u->edges_begin(); e != u->edges_end(); e++)
//!         g.find_vertex(e->target())->indegree++;
//! }
//! ```
//!
//! g++ 12.2 -O3, one thread: 10 `mov size,%rax` ; `mov begin,%rsi` ; `lea` ; 1c
//! `mov %ax,outdegree` ; cmp ; 24 je 74 ; 26 the map's base, its buckets, `lea` ;
//! 38 target and find_vertex without those ; 67 `mov (%rsi),%rsi` ; 6a `addw
//! $1,indegree` ; cmp ; 72 jne 38 ; 74 `mov (%r11),%r11` ; cmp ; 7a jne 10.
//!
//! Several threads, each with a range of the vertex numbers: b0 find_vertex ; f0 as 10 to 24 ; 110 target and
//! find_vertex ; 148 `lock addw $1,indegree` ; 14e next ; cmp ; je 168 ; 156 base and buckets again ; jmp 110
//! ; 168 mov, cmp, je, add, jmp b0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pagewalk_stream::Error;
use pagewalk_stream::flags::TAKEN;

use super::kernel::{Kernel, World, launch};
use super::layout::{Field, Layout, Properties, Vertex};
use super::params::{self, Setup};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values, None)?)),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "dc",
    group: "graph",
    description: "Degree centrality: counts the edges into each vertex, in one pass over all edges.",
    stresses: "Independent random read-modify-writes, and reads of all edges in the order in which they were loaded.",
    source: "L. Nai et al., GraphBIG, SC 2015: bench_degreeCentr",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        params::GRAPH,
        params::SCALE,
        params::VERTICES,
        params::DEGREE,
        params::DEGREES,
        params::LAYOUT,
        params::ORDER,
        ParamInfo {
            name: "rounds",
            unit: "passes",
            default: "64",
            range: "1 to 2^32",
            meaning: "Passes over the graph, one after the other. Each begins with counts of 0.",
        },
        POPULATE,
        REGION,
    ],
};

const IN: usize = 0;
const OUT: usize = 1;

/// `class vertex_property { int16_t indegree; int16_t outdegree; }`
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 4,
    fields: &[Field { offset: 0, size: 2 }, Field { offset: 2, size: 2 }],
    weights: false,
};

/// Incoming and outgoing edges of each vertex, in the last pass. These counts do not overflow at 16 bits,
/// unlike the program's own.
type Degrees = Vec<[AtomicU64; 2]>;

/// The program. No op depends on its counts, so they are kept only if `degrees` is given.
fn program(values: &Values<'_>, degrees: Option<Arc<Degrees>>) -> Result<Code, Error> {
    let rounds = values.number_in("rounds", 1..=1 << 32, 64)?;
    let setup = Setup::read(values, &PROPERTIES)?;
    Ok(launch(setup, &PROPERTIES, Rounds { rounds, degrees }))
}

/// Repeated counts.
struct Rounds {
    rounds: u64,
    degrees: Option<Arc<Degrees>>,
}

impl Kernel for Rounds {
    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let degrees = self.degrees.as_deref();
        for round in 0..self.rounds {
            if round > 0 {
                reset(world, t, thread, degrees).await;
            }
            run(world, t, thread, degrees).await;
        }
    }
}

/// `reset_graph`: the first thread walks the list.
async fn reset<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    degrees: Option<&Degrees>,
) {
    if world.threads > 1 {
        world.barrier(t, 0x780).await;
    }
    if thread == 0 {
        let memory = world.memory();
        let mut next = Some(memory.find(t, 0x700, 0, NONE, false));
        while let Some(v) = next {
            for (field, pc) in [(IN, 0x750), (OUT, 0x758)] {
                let (va, from) = memory.field(v, field);
                t.store(pc, 1, va, 2, from, NONE);
                if let Some(degrees) = degrees {
                    degrees[v.id as usize][field].store(0, Relaxed);
                }
            }
            next = memory.next(t, 0x75c, v);
            t.branch(0x762, 0x750, 2, next.is_some(), [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }
    if world.threads > 1 {
        world.barrier(t, 0x790).await;
    }
}

async fn run<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32, degrees: Option<&Degrees>) {
    let memory = world.memory();
    if world.threads == 1 {
        let mut next = Some(memory.vertex(0, NONE));
        while let Some(u) = next {
            edges(world, t, u, 0x10, degrees).await;
            next = memory.next(t, 0x74, u);
            t.branch(0x7a, 0x10, 2, next.is_some(), [NONE; 2]);
        }
        return;
    }
    let vertices = world.graph.vertices();
    let chunk = vertices.div_ceil(u64::from(world.threads));
    let first = chunk * u64::from(thread);
    let last = (first + chunk).min(vertices);
    for id in first..last {
        let u = memory.find(t, 0xb0, id as u32, NONE, false);
        edges(world, t, u, 0xf0, degrees).await;
        let more = id + 1 < last;
        t.branch(0x16e, 0x181, 3, !more, [NONE; 2]);
        if more {
            t.jump(0x174, 0xb0, 2, TAKEN, [NONE; 2]);
        }
    }
}

/// Counts the edges of `u`; the code begins at `pc`.
#[inline(always)]
async fn edges<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    u: Vertex,
    pc: u64,
    degrees: Option<&Degrees>,
) {
    let (memory, graph) = (world.memory(), &world.graph);
    let alone = world.threads == 1;
    let (again, end) = if alone { (0x38, 0x74) } else { (0x110, 0x168) };
    let size = memory.degree(t, pc, u);
    let (va, from) = memory.field(u, OUT);
    t.store(pc + 0xc, 1, va, 2, from, size);
    let mut edges = memory.edges(t, pc + 4, end, graph, u);
    if alone && edges.is_some() {
        memory.reload(t, 0x26);
    }
    while let Some(present) = &mut edges {
        let (target, id) = memory.target(t, again, graph, present);
        let v = memory.find(t, again - 3, target, id, true);
        if let Some(degrees) = degrees {
            degrees[target as usize][IN].fetch_add(1, Relaxed);
        }
        let (va, from) = memory.field(v, IN);
        if alone {
            let old = t.load(0x6a, 1, va, 2, [from, NONE]);
            t.store(0x6a, 0, va, 2, from, old.plus(1));
            if !memory.advance(t, 0x67, 0x38, present) {
                edges = None;
            }
        } else {
            t.atomic(0x148, 1, va, 2, [from, NONE]);
            if memory.advance(t, 0x14e, 0x156, present) {
                memory.reload(t, 0x156);
                t.jump(0x15e, 0x110, 1, TAKEN, [NONE; 2]);
            } else {
                edges = None;
            }
        }
        if t.full() {
            t.pause().await;
        }
    }
    if let Some(degrees) = degrees {
        degrees[u.id as usize][OUT].store(graph.row(u.id).degree, Relaxed);
    }
    if t.full() {
        t.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use super::{ENTRY, IN, OUT, PROPERTIES, program};
    use crate::entry::Values;
    use crate::graph::params::Setup;
    use crate::graph::test::{Run, run};

    #[test]
    fn degrees_are_those_of_the_graph() {
        for layout in ["csr", "graphbig"] {
            for threads in [1, 3, 16] {
                let params = [("scale", "12"), ("layout", layout), ("rounds", "2")];
                let counted = |values: &Values<'_>| {
                    let vertices = Setup::read(values, &PROPERTIES)?.graph.vertices();
                    let mut degrees = Vec::new();
                    degrees.resize_with(vertices as usize, Default::default);
                    let degrees = Arc::new(degrees);
                    Ok((program(values, Some(degrees.clone()))?, degrees))
                };
                let Run { found, setup, .. } = run(&ENTRY.info, threads, &params, counted, |v| {
                    Setup::read(v, &PROPERTIES)
                });
                let graph = &setup.graph;
                let mut degrees = vec![[0; 2]; graph.vertices() as usize];
                for u in 0..graph.vertices() as u32 {
                    let row = graph.row(u);
                    degrees[u as usize][OUT] = row.degree;
                    for i in 0..row.degree {
                        degrees[graph.neighbour(&row, i) as usize][IN] += 1;
                    }
                }
                for (given, wanted) in found.iter().zip(degrees) {
                    assert_eq!(given.each_ref().map(|d| d.load(Relaxed)), wanted);
                }
            }
        }
    }
}
