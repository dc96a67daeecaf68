//! PageRank in two versions: GraphBIG's pushes ranks along edges, GAP's pulls them.
//!
//! Push, in each iteration (each thread has a range of the vertices):
//!
//! ```text
//! for (v : share) { p = find_vertex(v); p->old_pr = p->pr; p->pr = (1 - damp) / n; }
//! barrier
//! for (v : share) { p = find_vertex(v); push = damp * p->old_pr / p->edges_size();
//!     for (e : p->edges) { q = find_vertex(e->target());
//!         #pragma omp atomic
//!         q->pr += push; } }
//! barrier
//! for (v : share) { p = find_vertex(v); d = p->pr - p->old_pr; e_vec[tid] += d * d; }
//! barrier ; thread 0 sums e_vec ; barrier
//! ```
//!
//! g++ 12.2 -O3: the push itself is 158 `mov 0x18(%rax),%edx` ; lea ; movd ; mov ; `addss %xmm0,%xmm3` ; movd
//! ; 16d `lock cmpxchg %edi,(%rcx)` ; jne, even with one thread. It is followed by reloads of the map's base
//! and size.
//!
//! Pull:
//!
//! ```text
//! for (v) contrib[v] = score[v] / out_degree(v);
//! for (u) { sum = 0; for (v : in_neigh(u)) sum += contrib[v];
//!     old = score[u]; score[u] = base + damp * sum; error += fabs(score[u] - old); }
//! ```
//!
//! g++ 12.2 -O2: 98 `mov (%rax),%edx` ; add ; 9e `addss (%rsi,%rdx,4),%xmm2` ; cmp ; a6 jne 98. A row serves
//! as the list of in-neighbours, and its length as the out-degree: GAP's generated graphs are symmetric.
//!
//! Without `converge` no op depends on the ranks, so they are not computed. Fast-forwarding the pull then
//! skips many edges at once (`over.rs`).

mod over;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use pagewalk_stream::{Error, Program};

use self::over::{BACK, Over};
use super::kernel::{Extras, Kernel, World, launch};
use super::layout::{Field, Layout, Properties};
use super::params::{
    DEGREE, DEGREES, GRAPH, LAYOUT, ORDER, SCALE, SYMMETRIC, Setup, VERTICES, symmetric,
};
use crate::entry::{Entry, Values};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::program::Code;
use crate::thread::{NONE, Thread, share};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(program(values, false)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "pr",
    group: "graph",
    description: "PageRank: in each iteration every vertex distributes its rank among its neighbours.",
    stresses: "Memory-level parallelism: one random update (push) or read (pull) for each edge, which depends only on the edge.",
    source: "L. Nai et al., GraphBIG, SC 2015 (push, with its layout); S. Beamer et al., The GAP Benchmark Suite, 2015 (pull)",
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
            name: "direction",
            unit: "",
            default: "pull with CSR, push with GraphBIG's layout",
            range: "push or pull",
            meaning: "With push, a vertex adds to its neighbours' ranks (atomically); with pull, it sums up their ranks. Pull needs CSR. It takes rows as lists of in-neighbours and their lengths as out-degrees, which is right for a symmetric graph.",
        },
        ParamInfo {
            name: "iterations",
            unit: "",
            default: "20",
            range: "1 to 2^32",
            meaning: "Maximum number of iterations.",
        },
        ParamInfo {
            name: "converge",
            unit: "",
            default: "no",
            range: "yes or no",
            meaning: "With yes, the program stops as the original does when ranks hardly change: root of the sum of squares below 0.001 (push), sum of absolute values below 0.0001 (pull).",
        },
        POPULATE,
        REGION,
    ],
};

const PR: usize = 0;
/// Property: the previous rank (push), or the contribution to each neighbour (pull).
const OLD: usize = 1;

/// `class vertex_property { float pr; float old_pr; }`
const PROPERTIES: Properties = Properties {
    vertex_bytes: 8,
    fields: &[Field { offset: 0, size: 4 }, Field { offset: 4, size: 4 }],
    weights: false,
};

const DAMP: f64 = 0.85;

/// Ranks, and state shared by the threads.
struct Ranks {
    /// Bits of each vertex's rank. Empty if the ranks are not needed: reading those of all neighbours would
    /// dominate host time.
    pr: Vec<AtomicU32>,
    old: Vec<AtomicU32>,
    /// Bits of each thread's error, address of the errors, and number of finished iterations.
    errors: Vec<AtomicU64>,
    errors_at: OnceLock<u64>,
    iterations: AtomicU64,
}

impl Ranks {
    #[inline(always)]
    fn are_computed(&self) -> bool {
        !self.pr.is_empty()
    }
}

#[derive(Clone, Copy)]
struct RankOptions {
    pull: bool,
    iterations: u64,
    converge: bool,
}

/// The program, and its ranks. They are computed only if `wanted`.
fn program(values: &Values<'_>, wanted: bool) -> Result<(Code, Arc<Ranks>), Error> {
    let objects = values.choice("layout", &["csr", "graphbig"], "csr")? == "graphbig";
    let own = if objects { "push" } else { "pull" };
    let pull = values.choice("direction", &["push", "pull"], own)? == "pull";
    if pull && objects {
        return Err(values.refuse("direction", "with GraphBIG's layout ranks are pushed"));
    }
    let converge = values.choice("converge", &["yes", "no"], "no")? == "yes";
    let plan = RankOptions {
        pull,
        iterations: values.number_in("iterations", 1..=1 << 32, 20)?,
        converge,
    };
    let setup = Setup::read_shaped(values, &PROPERTIES, symmetric(values)?)?;
    setup.holds(8)?;
    let vertices = setup.graph.vertices() as usize;
    let n = if converge || wanted { vertices } else { 0 };
    let bits = (1.0 / vertices as f32).to_bits();
    let array = |bits| (0..n).map(|_| AtomicU32::new(bits)).collect();
    let ranks = Arc::new(Ranks {
        pr: array(bits),
        old: array(0),
        errors: (0..setup.threads).map(|_| AtomicU64::new(0)).collect(),
        errors_at: OnceLock::new(),
        iterations: AtomicU64::new(0),
    });
    let kernel = Iterations {
        plan,
        ranks: ranks.clone(),
    };
    Ok((launch(setup, &PROPERTIES, kernel), ranks))
}

/// Iterations over the ranks.
struct Iterations {
    plan: RankOptions,
    ranks: Arc<Ranks>,
}

impl Iterations {
    /// Skips many vertices at once, if their ranks are not needed.
    fn over(&self) -> Option<Over> {
        (!self.ranks.are_computed()).then(Over::default)
    }
}

impl Kernel for Iterations {
    const EXTRAS: Extras = Extras {
        barriers: true,
        ..Extras::NONE
    };

    async fn run<L: Layout>(&self, world: &World<L>, t: &mut Thread, thread: u32) {
        let ranks = &self.ranks;
        if thread == 0 {
            // `vector<float> e_vec(threadnum)`
            let mut heap = world.heap();
            let _ = ranks
                .errors_at
                .set(heap.malloc(8 * u64::from(world.threads)));
            heap.emit_pending_untouched(t).await;
            world.give_back(heap);
        }
        let together = world.threads > 1;
        let mine = share(world.graph.vertices(), thread, world.threads);
        for _ in 0..self.plan.iterations {
            if self.plan.pull {
                contribute(world, t, ranks, self.over(), mine.clone()).await;
            } else {
                remember(world, t, ranks, mine.clone()).await;
            }
            if together {
                world.barrier(t, 0x500).await;
            }
            if self.plan.pull {
                pull(world, t, ranks, self.over(), thread, mine.clone()).await;
            } else {
                push(world, t, ranks, mine.clone()).await;
                if together {
                    world.barrier(t, 0x520).await;
                }
                compare(world, t, ranks, thread, mine.clone()).await;
            }
            if together {
                world.barrier(t, 0x540).await;
            }
            if thread == 0 {
                let at = ranks.errors_at.get().copied().unwrap_or_default();
                let mut sum = NONE;
                for i in 0..u64::from(world.threads) {
                    let part = t.load(0x560, 1, at + 4 * i, 4, [NONE; 2]);
                    sum = t.compute(0x564, 2, 4, [part, sum]);
                }
                t.compute(0x570, 4, 18, [sum, NONE]);
                ranks.iterations.fetch_add(1, Relaxed);
            }
            let parts = ranks.errors.iter().map(|e| f64::from_bits(e.load(Relaxed)));
            let error: f64 = parts.sum();
            let small = if self.plan.pull {
                error < 1e-4
            } else {
                error.sqrt() < 1e-3
            };
            t.branch(0x580, 0x20, 2, !(self.plan.converge && small), [NONE; 2]);
            if together {
                world.barrier(t, 0x590).await;
            }
            if self.plan.converge && small {
                break;
            }
        }
    }
}

/// First loop of push.
async fn remember<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    ranks: &Ranks,
    mine: std::ops::Range<u64>,
) {
    let memory = world.memory();
    let base = ((1.0 - DAMP) / world.graph.vertices() as f64) as f32;
    let end = mine.end;
    for v in mine {
        let vertex = memory.find(t, 0x20, v as u32, NONE, true);
        let (pr, at) = memory.field(vertex, PR);
        let (old, old_at) = memory.field(vertex, OLD);
        // One 8-byte store in GraphBIG's layout: `unpcklps ; movlps`.
        let value = t.load(0x68, 1, pr, 4, [at, NONE]);
        t.store(0x70, 3, old, 4, old_at, value.plus(1));
        t.store(0x74, 1, pr, 4, at, NONE);
        t.branch(0x7c, 0x20, 2, v + 1 < end, [NONE; 2]);
        if ranks.are_computed() {
            let rank = ranks.pr[v as usize].swap(base.to_bits(), Relaxed);
            ranks.old[v as usize].store(rank, Relaxed);
        }
        if t.full() {
            t.pause().await;
        }
    }
}

/// Second loop of push.
async fn push<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    ranks: &Ranks,
    mine: std::ops::Range<u64>,
) {
    let (memory, graph) = (world.memory(), &world.graph);
    let objects = memory.vertex(0, NONE).at > 0;
    // The argument of OpenMP's outlined function: its first member is the graph's address.
    let shared = t.stack - 0x80;
    let last = if objects { 0x1a6 } else { 0x196 };
    let end = mine.end;
    for v in mine {
        if objects {
            t.load(0x9c, 1, shared, 8, [NONE; 2]);
        }
        let vertex = memory.find(t, 0xa0, v as u32, NONE, false);
        let degree = memory.degree(t, 0xe4, vertex);
        let (old, at) = memory.field(vertex, OLD);
        let rank = t.load(0xec, 2, old, 4, [at, NONE]);
        // cvtss2sd 5, mulsd 4, divsd 14, cvtsd2ss 5 cycles.
        let part = t.compute(0x103, 7, 23, [rank.plus(5), degree.plus(4)]);
        let mut edges = memory.edges(t, 0x107, 0x190, graph, vertex);
        let given = ranks.are_computed().then(|| {
            let own = DAMP * f64::from(rank_of(&ranks.old, v as u32));
            (own / graph.row(v as u32).degree as f64) as f32
        });
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x120, graph, present);
            let found = memory.find(t, 0x124, target, id, objects);
            let (pr, at) = memory.field(found, PR);
            t.load(0x168, 2, pr, 4, [at, part]);
            t.atomic(0x17d, 5, pr, 4, [at, NONE]);
            t.branch(0x181, 0x1da, 1, false, [NONE; 2]);
            if let Some(given) = given {
                let sum = rank_of(&ranks.pr, target) + given;
                ranks.pr[target as usize].store(sum.to_bits(), Relaxed);
            }
            if !memory.advance_rereading(t, 0x183, 0x120, shared, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.branch(last, 0xa0, 5, v + 1 < end, [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

/// Third loop of push.
async fn compare<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    ranks: &Ranks,
    thread: u32,
    mine: std::ops::Range<u64>,
) {
    let memory = world.memory();
    let at = ranks.errors_at.get().copied().unwrap_or_default() + 4 * u64::from(thread);
    let end = mine.end;
    let (mut error, mut sum) = (0f32, NONE);
    for v in mine {
        let vertex = memory.find(t, 0x1f8, v as u32, NONE, true);
        let (pr, pr_at) = memory.field(vertex, PR);
        let (old, old_at) = memory.field(vertex, OLD);
        let new = t.load(0x23c, 1, pr, 4, [pr_at, NONE]);
        let before = t.load(0x241, 1, old, 4, [old_at, NONE]);
        // subss, mulss, then addss into the sum.
        let square = t.compute(0x24a, 2, 8, [new, before]);
        sum = t.compute(0x24e, 1, 4, [square, sum]);
        t.store(0x252, 1, at, 4, NONE, sum);
        t.branch(0x259, 0x1f8, 2, v + 1 < end, [NONE; 2]);
        if ranks.are_computed() {
            let d = rank_of(&ranks.pr, v as u32) - rank_of(&ranks.old, v as u32);
            error += d * d;
        }
        if t.full() {
            t.pause().await;
        }
    }
    ranks.errors[thread as usize].store(f64::from(error).to_bits(), Relaxed);
}

/// First loop of pull.
async fn contribute<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    ranks: &Ranks,
    mut over: Option<Over>,
    mine: std::ops::Range<u64>,
) {
    let memory = world.memory();
    let std::ops::Range { start: mut v, end } = mine;
    while v < end {
        if let Some(over) = over.as_mut().filter(|_| t.skips(0x300)) {
            let count = over.contribute(world, t, v..end);
            v += count;
            if count > 0 {
                continue;
            }
        }
        let vertex = memory.find(t, 0x300, v as u32, NONE, true);
        let (pr, at) = memory.field(vertex, PR);
        let score = t.load(0x310, 1, pr, 4, [at, NONE]);
        let degree = memory.degree(t, 0x31d, vertex);
        // cvtsi2ss 5, divss 11 cycles.
        let part = t.compute(0x32b, 3, 11, [score, degree.plus(5)]);
        let (to, to_at) = memory.field(vertex, OLD);
        t.store(0x32f, 1, to, 4, to_at, part);
        t.branch(0x338, 0x310, 2, v + 1 < end, [NONE; 2]);
        if ranks.are_computed() {
            let degree = world.graph.degree(v as u32).max(1);
            let part = rank_of(&ranks.pr, v as u32) / degree as f32;
            ranks.old[v as usize].store(part.to_bits(), Relaxed);
        }
        v += 1;
        if t.full() {
            t.pause().await;
        }
    }
}

/// Second loop of pull.
async fn pull<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    ranks: &Ranks,
    mut over: Option<Over>,
    thread: u32,
    mine: std::ops::Range<u64>,
) {
    let (memory, graph) = (world.memory(), &world.graph);
    let base = ((1.0 - DAMP) / graph.vertices() as f64) as f32;
    let std::ops::Range { start: mut u, end } = mine;
    let (mut error, mut errors) = (0f64, NONE);
    while u < end {
        if let Some(over) = over.as_mut().filter(|_| t.skips(0x300)) {
            let count = over.pull(world, t, u..end);
            u += count;
            if count > 0 {
                errors = t.earlier(BACK);
                continue;
            }
        }
        let vertex = memory.find(t, 0x360, u as u32, NONE, true);
        let mut incoming = 0f32;
        let mut sum = NONE;
        let mut edges = memory.edges(t, 0x370, 0x3d8, graph, vertex);
        while let Some(present) = &mut edges {
            if let Some(over) = over.as_mut().filter(|_| t.skips(0x300)) {
                let count = over.edges(world, t, present);
                if count > 0 {
                    memory.leap(present, count);
                    sum = t.earlier(BACK);
                }
            }
            let (from, id) = memory.target(t, 0x398, graph, present);
            let found = memory.find(t, 0x39c, from, id, true);
            let (at, by) = memory.field(found, OLD);
            let part = t.load(0x39e, 1, at, 4, [by, NONE]);
            sum = t.compute(0x39e, 0, 4, [part, sum]);
            if ranks.are_computed() {
                incoming += rank_of(&ranks.old, from);
            }
            if !memory.advance(t, 0x39f, 0x398, present) {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        let (pr, at) = memory.field(vertex, PR);
        let old = t.load(0x3ac, 2, pr, 4, [at, NONE]);
        // mulss, addss.
        let new = t.compute(0x3b3, 1, 0, [sum.plus(8), NONE]);
        t.store(0x3b7, 1, pr, 4, at, new);
        // subss, andps, cvtss2sd, addsd.
        let change = t.compute(0x3c5, 3, 10, [new, old]);
        errors = t.compute(0x3c9, 1, 4, [change, errors]);
        t.branch(0x3d0, 0x370, 2, u + 1 < end, [NONE; 2]);
        if ranks.are_computed() {
            let before = rank_of(&ranks.pr, u as u32);
            let after = base + DAMP as f32 * incoming;
            ranks.pr[u as usize].store(after.to_bits(), Relaxed);
            error += f64::from((after - before).abs());
        }
        u += 1;
        if t.full() {
            t.pause().await;
        }
    }
    if world.threads > 1 {
        let at = ranks.errors_at.get().copied().unwrap_or_default();
        t.load(0x3f0, 1, at, 8, [NONE; 2]);
        t.atomic(0x3f8, 4, at, 8, [NONE; 2]);
    }
    ranks.errors[thread as usize].store(error.to_bits(), Relaxed);
}

#[inline(always)]
fn rank_of(ranks: &[AtomicU32], vertex: u32) -> f32 {
    f32::from_bits(ranks[vertex as usize].load(Relaxed))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::{DAMP, ENTRY, PROPERTIES, program, rank_of};
    use crate::entry::Values;
    use crate::graph::params::{Setup, symmetric};
    use crate::graph::source::Graph;
    use crate::graph::test::{Run, run};

    /// Reference from the definition, in double precision.
    fn reference(graph: &Graph, iterations: u64, pull: bool) -> Vec<f64> {
        let n = graph.vertices() as usize;
        let edges: Vec<(usize, usize)> = (0..n)
            .flat_map(|v| {
                let row = graph.row(v as u32);
                (0..row.degree).map(move |i| (v, graph.neighbour(&row, i) as usize))
            })
            .collect();
        let mut degrees = vec![0u32; n];
        for (from, _) in &edges {
            degrees[*from] += 1;
        }
        let against = |(a, b): &(usize, usize)| if pull { (*b, *a) } else { (*a, *b) };
        let mut ranks = vec![1.0 / n as f64; n];
        for _ in 0..iterations {
            let mut next = vec![(1.0 - DAMP) / n as f64; n];
            for (from, to) in edges.iter().map(against) {
                next[to] += DAMP * ranks[from] / f64::from(degrees[from].max(1));
            }
            ranks = next;
        }
        ranks
    }

    fn ranks(threads: u32, params: &[(&str, &str)]) -> (Vec<f32>, Graph, u64) {
        let ranked = |values: &Values<'_>| program(values, true);
        let Run { found, setup, .. } = run(&ENTRY.info, threads, params, ranked, |v| {
            Setup::read_shaped(v, &PROPERTIES, symmetric(v)?)
        });
        let ranks = (0..setup.graph.vertices() as u32).map(|v| rank_of(&found.pr, v));
        (ranks.collect(), setup.graph, found.iterations.load(Relaxed))
    }

    #[test]
    fn ranks_are_those_of_the_definition() {
        for (layout, direction) in [("csr", "pull"), ("csr", "push"), ("graphbig", "push")] {
            for threads in [1, 3, 16] {
                for graph in ["kronecker", "uniform", "ldbc"] {
                    let params = [
                        ("graph", graph),
                        ("scale", "12"),
                        ("degree", "5"),
                        ("layout", layout),
                        ("direction", direction),
                        ("iterations", "4"),
                    ];
                    let (ranks, graph, iterations) = ranks(threads, &params);
                    let wanted = reference(&graph, 4, direction == "pull");
                    for (rank, wanted) in ranks.iter().zip(&wanted) {
                        let difference = (f64::from(*rank) - wanted).abs();
                        assert!(difference < 1e-6 && difference < 1e-3 * wanted);
                    }
                    assert_eq!(iterations, 4);
                }
            }
        }
    }

    #[test]
    fn ranks_sum_to_one_where_every_vertex_has_neighbours() {
        for direction in ["pull", "push"] {
            // Ranks of vertices without outgoing edges would be lost.
            let params = [
                ("graph", "ldbc"),
                ("scale", "12"),
                ("degree", "16"),
                ("direction", direction),
            ];
            let (ranks, graph, _) = ranks(2, &params);
            assert!((0..4096).all(|v| graph.row(v).degree > 0));
            let sum: f64 = ranks.iter().map(|r| f64::from(*r)).sum();
            assert!((sum - 1.0).abs() < 1e-4, "{direction}: {sum}");
        }
    }

    #[test]
    fn no_op_depends_on_whether_ranks_are_computed() {
        use crate::drain::drain;
        use crate::entry::Options;

        for direction in ["pull", "push"] {
            let params = [
                ("scale", "12"),
                ("direction", direction),
                ("iterations", "2"),
            ];
            let options = Options {
                threads: 2,
                params: (params.iter())
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
                ..Options::default()
            };
            let [with, without] = [true, false].map(|wanted| {
                let values = Values::new(&ENTRY.info, &options);
                let (mut code, ranks) = program(&values, wanted).unwrap();
                assert_eq!(ranks.are_computed(), wanted);
                let mut ops = Vec::new();
                drain(&mut code, |batch| ops.extend_from_slice(&batch.ops));
                ops
            });
            assert!(with.len() > 10_000 && with == without, "{direction}");
        }
    }

    #[test]
    fn with_converge_it_stops_when_ranks_hardly_change() {
        let params = [("scale", "12"), ("converge", "yes"), ("iterations", "100")];
        let (_, _, iterations) = ranks(1, &params);
        assert!((2..60).contains(&iterations), "{iterations}");
    }
}
