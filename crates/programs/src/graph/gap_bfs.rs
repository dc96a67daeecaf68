//! Breadth-first search as in GAP, top down, over compressed sparse rows.
//!
//! The instructions are those of GAP's own build files; [`step`] has those of a level.
//! Around the levels:
//!
//! ```text
//! InitParent, one turn a vertex: parent[n] = -degree, or -1 without neighbours
//! 3cf0 mov 0x8(%rdi,%rcx,8),%rdx ; 3cf5 mov (%rdi,%rcx,8),%rsi ; cmp ; 3cfc je 3d20
//!      sub ; sar ; neg ; 3d07 mov %edx,(%rax,%rcx,4) ; add ; cmp ; 3d11 jne 3cf0
//! 3d20 movl $-1,(%rax,%rcx,4) ; add ; cmp ; 3d2e jne 3cf0
//! DOBFS, its end: parent[n] = -1 where nothing was found
//! 42f8 cmpl $-1,(%rax) ; 42fb jge 4303 ; 42fd movl $-1,(%rax)
//! 4303 add ; cmp ; 430a jne 42f8
//! ```
//!
//! GAP's change of direction, and the two bit maps that only it uses, are
//! `direction=optimizing` ([`bottom_up`]). Parents, queue and maps stay where they are
//! from one search to the next, where GAP allocates them anew.
//!
//! With several threads each takes an equal part of the frontier, and appends what it
//! claims to a list of its own, which goes to the shared queue whenever it is full and
//! at the end of the level.

mod bottom_up;
mod step;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewalk_stream::{Error, Facts, ThreadId};
use pagewalk_units::{Part, RunOption, text};

use super::layout::{Field, Properties};
use super::params::{Setup, symmetric};
use super::search::Roots;
use super::source::Graph;
use crate::entry::Values;
use crate::layout;
use crate::program::Code;
use crate::thread::{NONE, Thread, share};

/// Vertices that a thread's own list has room for.
const LOCAL: u64 = 16384;

/// Parents and queue beside the graph.
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 8,
    fields: &[Field { offset: 0, size: 4 }, Field { offset: 4, size: 4 }],
    weights: false,
};

/// Where the arrays lie.
#[derive(Clone, Copy)]
struct Arrays {
    /// u64 a vertex, and one more.
    offsets: u64,
    /// u32 an edge.
    neighbours: u64,
    /// i32 a vertex.
    parent: u64,
    /// u32 a vertex.
    queue: u64,
    /// The barrier's counter; several threads.
    barrier: u64,
    /// A bit a vertex, twice; with a change of direction.
    maps: [u64; 2],
}

/// What the threads share.
struct World {
    graph: Graph,
    arrays: Arrays,
    threads: u32,
    /// Whether levels are searched from the bottom up where that takes fewer edges.
    optimizing: bool,
    /// A bit a vertex.
    visited: Vec<AtomicU64>,
    /// Of the present search.
    queue: Mutex<Vec<u32>>,
}

/// Where the objects lie whose fields the step reads again and again.
#[derive(Clone, Copy)]
struct Objects {
    /// The graph.
    graph: u64,
    /// The vector of parents.
    parents: u64,
    /// The queue.
    queue: u64,
    /// What a parallel region is given.
    shared: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread and what it works with.
struct Worker {
    t: Thread,
    world: Arc<World>,
    thread: ThreadId,
    /// Address of its own list.
    list: u64,
    /// What is in it.
    found: Vec<u32>,
    /// Edges of the vertices that the present step found; with a change of direction.
    scout: u64,
    /// Stack pointer at the call of the step.
    stack: u64,
    objects: Objects,
}

/// Whether the search may change its direction, for which a graph has to have each
/// edge both ways.
fn optimizing(values: &Values<'_>) -> Result<bool, Error> {
    let given = values.choice("direction", &["top-down", "optimizing"], "top-down")?;
    if given != "optimizing" {
        return Ok(false);
    }
    if values.options.threads > 1 {
        return Err(values.refuse(
            "direction",
            text!["of one thread only; leave ", RunOption::Threads, " out"],
        ));
    }
    if values.text("graph") != Some("ldbc") && values.text("symmetric") != Some("yes") {
        let why = text![
            "needs each edge both ways; add ",
            Part::param("symmetric", "yes")
        ];
        return Err(values.refuse("direction", why));
    }
    Ok(true)
}

/// The program.
pub fn program(values: &Values<'_>) -> Result<Code, Error> {
    let searches = values.number_in("roots", 1..=1 << 32, 64)?;
    let optimizing = optimizing(values)?;
    let setup = Setup::read_shaped(values, &PROPERTIES, symmetric(values)?)?;
    setup.holds(4)?;
    let Setup {
        graph,
        start,
        threads,
        seed,
        name,
        ..
    } = setup;
    let facts = Facts {
        name,
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let vertices = graph.vertices();
    let mut layout = layout::Layout::new();
    let mut initialised = Vec::new();
    let mut array = |layout: &mut layout::Layout, bytes| {
        let at = layout.array(bytes, false);
        initialised.push((at, bytes));
        at
    };
    let mut arrays = Arrays {
        offsets: array(&mut layout, 8 * (vertices + 1)),
        neighbours: array(&mut layout, 4 * graph.edges().max(1)),
        parent: array(&mut layout, 4 * vertices),
        queue: array(&mut layout, 4 * vertices),
        barrier: if threads > 1 {
            array(&mut layout, 64)
        } else {
            0
        },
        maps: [0; 2],
    };
    let places: Vec<(u64, u64)> = (0..threads)
        .map(|thread| (layout.stack(thread), array(&mut layout, 4 * LOCAL)))
        .collect();
    if optimizing {
        let bytes = 8 * vertices.div_ceil(64);
        arrays.maps = [array(&mut layout, bytes), array(&mut layout, bytes)];
    }
    let objects = Objects::new(places[0].0 - 256);
    let mut visited = Vec::new();
    visited.resize_with((vertices as usize).div_ceil(64), AtomicU64::default);
    let world = Arc::new(World {
        graph,
        arrays,
        threads,
        optimizing,
        visited,
        queue: Mutex::default(),
    });
    let mut setup = Some((layout.events(), initialised));
    let mut code = Code::new(facts, start);
    for (thread, (stack, list)) in (0..).zip(places) {
        let (world, setup) = (world.clone(), setup.take());
        code.thread(stack, move |mut t| async move {
            if let Some((events, initialised)) = setup {
                t.enter().await;
                for event in events {
                    t.event(event).await;
                }
                for (at, bytes) in initialised {
                    t.touch(at, bytes).await;
                }
                t.begin(world.threads).await;
            }
            let stack = t.stack - 256;
            let mut worker = Worker {
                t,
                world,
                thread,
                list,
                found: Vec::new(),
                scout: 0,
                stack,
                objects,
            };
            let mut roots = Roots::new(seed);
            for _ in 0..searches {
                let root = roots.next(&worker.world.graph);
                worker.search(root).await;
            }
            if thread == 0 {
                let threads = worker.world.threads;
                worker.t.finish(threads).await;
            }
        });
    }
    Ok(code)
}

impl Worker {
    async fn search(&mut self, root: u32) {
        let world = self.world.clone();
        let together = world.threads > 1;
        self.initialise().await;
        if together {
            self.barrier().await;
        }
        if self.thread == 0 {
            self.start(root);
        }
        let mut progress = match world.optimizing {
            true => Some(self.begin(root).await),
            false => None,
        };
        let mut window = 0..1;
        while !window.is_empty() {
            if let Some(progress) = &mut progress
                && self.turns(progress)
            {
                window = self.bottom_up(progress, window).await;
                continue;
            }
            if together {
                self.barrier().await;
            }
            let mine = share(window.len() as u64, self.thread, world.threads);
            let first = window.start;
            self.step(first + mine.start as usize..first + mine.end as usize)
                .await;
            if together {
                self.barrier().await;
            }
            // Nobody finds anything before all have come to the next barrier.
            window = window.end..locked(&world.queue).len();
            let scout = std::mem::take(&mut self.scout);
            if let Some(progress) = &mut progress {
                progress.scout = scout;
            }
        }
        self.finish().await;
        if together {
            self.barrier().await;
        }
    }

    async fn barrier(&mut self) {
        let counter = self.world.arrays.barrier;
        self.t.atomic(0x3c50, 1, counter, 8, [NONE; 2]);
        self.t.barrier().await;
    }

    /// The vertices of this thread in a loop over all of them.
    fn vertices(&self) -> std::ops::Range<u64> {
        share(self.world.graph.vertices(), self.thread, self.world.threads)
    }

    /// The degrees as negative numbers into the parents.
    async fn initialise(&mut self) {
        let world = self.world.clone();
        let arrays = world.arrays;
        let vertices = self.vertices();
        for v in vertices.clone() {
            let (row, parent) = (arrays.offsets + 8 * v, arrays.parent + 4 * v);
            let none = world.graph.degree(v as u32) == 0;
            let t = &mut self.t;
            let end = t.load(0x3cf0, 1, row + 8, 8, [NONE; 2]);
            let start = t.load(0x3cf5, 1, row, 8, [NONE; 2]);
            t.branch(0x3cfc, 0x3d20, 2, none, [start, end]);
            if none {
                t.store(0x3d20, 1, parent, 4, NONE, NONE);
            } else {
                t.store(0x3d07, 4, parent, 4, NONE, end.plus(3));
            }
            let pc = if none { 0x3d2e } else { 0x3d11 };
            t.branch(pc, 0x3cf0, 3, v + 1 < vertices.end, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// Queues the root, which is its own parent.
    fn start(&mut self, root: u32) {
        let arrays = self.world.arrays;
        let parent = arrays.parent + 4 * u64::from(root);
        self.t.store(0x3f20, 2, parent, 4, NONE, NONE);
        self.t.store(0x3f60, 1, arrays.queue, 4, NONE, NONE);
        for word in &self.world.visited {
            word.store(0, Relaxed);
        }
        self.visit(root);
        *locked(&self.world.queue) = vec![root];
    }

    /// Vertices that were not reached lose their degree.
    async fn finish(&mut self) {
        let world = self.world.clone();
        let vertices = self.vertices();
        for v in vertices.clone() {
            let parent = world.arrays.parent + 4 * v;
            let keeps = self.is_visited(v as u32) || world.graph.degree(v as u32) < 2;
            let t = &mut self.t;
            let old = t.load(0x42f8, 1, parent, 4, [NONE; 2]);
            t.branch(0x42fb, 0x4303, 1, keeps, [old, NONE]);
            if !keeps {
                t.store(0x42fd, 1, parent, 4, NONE, NONE);
            }
            t.branch(0x430a, 0x42f8, 3, v + 1 < vertices.end, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }

    #[inline(always)]
    fn is_visited(&self, vertex: u32) -> bool {
        let word = &self.world.visited[(vertex >> 6) as usize];
        word.load(Relaxed) >> (vertex & 63) & 1 == 1
    }

    /// Marks `vertex`; true when it was not visited before.
    #[inline(always)]
    fn visit(&self, vertex: u32) -> bool {
        let word = &self.world.visited[(vertex >> 6) as usize];
        let bit = 1 << (vertex & 63);
        let old = word.load(Relaxed);
        word.store(old | bit, Relaxed);
        old & bit == 0
    }
}
