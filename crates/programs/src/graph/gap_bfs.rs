//! GAP's breadth-first search over compressed sparse rows (CSR), top down.
//!
//! The instructions are those of GAP compiled with its own build files. [`step`] has those of a level.
//! Outside the levels:
//!
//! ```text
//! InitParent, one iteration per vertex: parent[n] = -degree, or -1 without neighbours
//! 3cf0 mov 0x8(%rdi,%rcx,8),%rdx ; 3cf5 mov (%rdi,%rcx,8),%rsi ; cmp ; 3cfc je 3d20
//!      sub ; sar ; neg ; 3d07 mov %edx,(%rax,%rcx,4) ; add ; cmp ; 3d11 jne 3cf0
//! 3d20 movl $-1,(%rax,%rcx,4) ; add ; cmp ; 3d2e jne 3cf0
//! DOBFS, its end: parent[n] = -1 for unreached vertices
//! 42f8 cmpl $-1,(%rax) ; 42fb jge 4303 ; 42fd movl $-1,(%rax)
//! 4303 add ; cmp ; 430a jne 42f8
//! ```
//!
//! `direction=optimizing` ([`bottom_up`]) adds GAP's change of direction and its two bitmaps. Parents, queue
//! and bitmaps keep their addresses from one search to the next, whereas GAP reallocates them.
//!
//! With several threads each takes an equal part of the frontier. A thread appends claimed vertices to its
//! local list, and copies that to the shared queue when it is full and at the end of the level.

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

/// Capacity of a thread's local list, in vertices.
const LOCAL: u64 = 16384;

/// Parents and queue, in addition to the graph.
pub const PROPERTIES: Properties = Properties {
    vertex_bytes: 8,
    fields: &[Field { offset: 0, size: 4 }, Field { offset: 4, size: 4 }],
    weights: false,
};

/// Addresses of the arrays.
#[derive(Clone, Copy)]
struct Arrays {
    /// One u64 per vertex, plus one.
    offsets: u64,
    /// One u32 per edge.
    neighbours: u64,
    /// One i32 per vertex.
    parent: u64,
    /// One u32 per vertex.
    queue: u64,
    /// The barrier's counter, with several threads.
    barrier: u64,
    /// Two bitmaps with a bit per vertex, used by a change of direction.
    maps: [u64; 2],
}

/// State shared by the threads.
struct World {
    graph: Graph,
    arrays: Arrays,
    threads: u32,
    /// True if levels are searched bottom up whenever that examines fewer edges.
    optimizing: bool,
    /// A bit per vertex.
    visited: Vec<AtomicU64>,
    /// Queue of the current search.
    queue: Mutex<Vec<u32>>,
}

/// Addresses of the objects whose fields a step reloads.
#[derive(Clone, Copy)]
struct Objects {
    /// The graph.
    graph: u64,
    /// The vector of parents.
    parents: u64,
    /// The queue.
    queue: u64,
    /// Arguments of a parallel region.
    shared: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread and its state.
struct Worker {
    t: Thread,
    world: Arc<World>,
    thread: ThreadId,
    /// Address of its local list.
    list: u64,
    /// Contents of the local list.
    found: Vec<u32>,
    /// Sum of the degrees of the vertices found in this step, for the change of direction.
    scout: u64,
    /// Stack pointer at the call of the step.
    stack: u64,
    objects: Objects,
}

/// True if the search may change its direction. The graph must then be symmetric.
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
            // No thread claims a vertex before all have reached the next barrier.
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

    /// This thread's range in a loop over all vertices.
    fn vertices(&self) -> std::ops::Range<u64> {
        share(self.world.graph.vertices(), self.thread, self.world.threads)
    }

    /// Initialises the parents with the negative degrees.
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

    /// Enqueues the root, which is its own parent.
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

    /// Resets the parent of unreached vertices from the negative degree to -1.
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

    /// Marks `vertex`. Returns true if it was not visited before.
    #[inline(always)]
    fn visit(&self, vertex: u32) -> bool {
        let word = &self.world.visited[(vertex >> 6) as usize];
        let bit = 1 << (vertex & 63);
        let old = word.load(Relaxed);
        word.store(old | bit, Relaxed);
        old & bit == 0
    }
}
