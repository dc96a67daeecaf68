//! Breadth-first search as in GAP, top down, over compressed sparse rows.
//!
//! The instructions are what gcc 12.2 -O2 makes of the top-down step.
//!
//! One thread (GAP's serial build: compare-and-swap is a plain store):
//!
//! ```text
//!  00  push %r13, %r12, %rbp, %rbx ; 13 instructions of set-up to 22
//!  28  mov (%r12),%eax                        u = queue[head]
//!  2c  mov ; add ; 33 mov (%r11,%rax,8),%rdx  end = offsets[u + 1]
//!  37  mov -8(%r11,%rax,8),%rax               e = offsets[u]
//!  3c  cmp ; 3f jae 75 ; lea ; lea ; nopl
//!  50  mov (%rax),%ecx                        v = neighbours[e]
//!  52  mov ; lea ; 59 mov (%rcx),%r9d         parent[v]
//!  5c  test ; 5f jns 6c                       visited?
//!  61  mov %r8d,(%rcx)                        parent[v] = u
//!  64  mov %edx,(%rbp,%rsi,4) ; 68 add        queue[tail++] = v
//!  6c  add ; cmp ; 73 jne 50
//!  75  add ; cmp ; 7c jne 28
//!  7e  pop %rbx ; mov ; pop %rbp, %r12, %r13 ; 87 ret
//! ```
//!
//! Several threads (OpenMP build):
//!
//! ```text
//!  c0  as 28 to 3c above ; d6 jae 118 ; lea ; lea ; e0 jmp f1
//!  e8  add ; cmp ; ef je 118                  next edge
//!  f1  mov (%rdx),%eax                        v = neighbours[e]
//!  f3  lea ; mov ; fa mov (%rcx),%eax         parent[v]
//!  fc  test ; fe jns e8                       visited?
//! 100  lock cmpxchg %r9d,(%rcx) ; 105 jne e8
//! 107  add ; 10b mov %esi,(%r12,%r8,4) ; add ; cmp ; 116 jne f1
//! 118  add ; cmp ; 11f jne c0
//! ```
//!
//! With several threads, chunks of 64 vertices of the frontier go to them in
//! turn (`schedule(static, 64)`); each appends what it claims to a list of its
//! own, and moves that to the shared queue when all are done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewalk_stream::{Facts, ProgramError, ThreadId, flags};

use super::layout::{Field, Properties};
use super::params::{Setup, symmetric};
use super::search::Roots;
use super::source::Graph;
use crate::entry::Values;
use crate::layout;
use crate::program::Code;
use crate::thread::{NONE, Thread, Touch, Value};

/// Frontier vertices that a thread takes at a time.
const CHUNK: usize = 64;

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
}

/// What the threads share.
struct World {
    graph: Graph,
    arrays: Arrays,
    threads: u32,
    /// A bit a vertex.
    visited: Vec<AtomicU64>,
    /// The present frontier of a search and of the next: the first thread may
    /// begin with that before the others have seen that this one is done.
    frontiers: [Mutex<Arc<Vec<u32>>>; 2],
    /// What each thread has found in this level.
    found: Vec<Mutex<Vec<u32>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread and what it works with.
struct Worker {
    t: Thread,
    world: Arc<World>,
    thread: ThreadId,
    /// Address of its own list; several threads.
    list: u64,
    /// Stack pointer at the call of the step.
    stack: u64,
    /// Which of the frontiers is this search's.
    side: usize,
}

/// The program.
pub fn program(values: &Values<'_>) -> Result<Code, ProgramError> {
    let searches = values.number_in("roots", 1..=1 << 32, 64)?;
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
    let arrays = Arrays {
        offsets: array(&mut layout, 8 * (vertices + 1)),
        neighbours: array(&mut layout, 4 * graph.edges().max(1)),
        parent: array(&mut layout, 4 * vertices),
        queue: array(&mut layout, 4 * vertices),
        barrier: if threads > 1 {
            array(&mut layout, 64)
        } else {
            0
        },
    };
    let places: Vec<(u64, u64)> = (0..threads)
        .map(|thread| {
            let stack = layout.stack(thread);
            // Grows page by page as it is filled, like a vector of the program.
            let list = if threads > 1 {
                layout.array(4 * vertices, false)
            } else {
                0
            };
            (stack, list)
        })
        .collect();
    let mut visited = Vec::new();
    visited.resize_with((vertices as usize).div_ceil(64), AtomicU64::default);
    let world = Arc::new(World {
        graph,
        arrays,
        threads,
        visited,
        frontiers: Default::default(),
        found: (0..threads).map(|_| Mutex::default()).collect(),
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
                stack,
                side: 0,
            };
            let mut roots = Roots::new(seed);
            for search in 0..searches {
                let root = roots.next(&worker.world.graph);
                // The first search's parents are initialised with the array.
                let clear = search > 0 || start.touch == Touch::Never;
                worker.side = (search % 2) as usize;
                worker.search(root, clear).await;
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
    async fn search(&mut self, root: u32, clear: bool) {
        self.initialise(root, clear).await;
        // Of the frontier in the queue.
        let mut start = 0;
        if self.world.threads == 1 {
            self.levels(root).await;
            return;
        }
        loop {
            let frontier = locked(&self.world.frontiers[self.side]).clone();
            if frontier.is_empty() {
                return;
            }
            self.scan_chunks(&frontier, start).await;
            start += frontier.len();
            self.barrier().await;
            self.gather(start).await;
            self.barrier().await;
        }
    }

    async fn barrier(&mut self) {
        let counter = self.world.arrays.barrier;
        self.t.atomic(0x1a0, 1, counter, 8, [NONE; 2]);
        self.t.barrier().await;
    }

    /// Sets all parents to -1, the root's to itself, and queues the root.
    async fn initialise(&mut self, root: u32, clear: bool) {
        let arrays = self.world.arrays;
        let vertices = self.world.graph.vertices();
        let lines = crate::thread::share(vertices.div_ceil(32), self.thread, self.world.threads);
        let (first, last) = (lines.start, lines.end);
        for line in if clear { first } else { last }..last {
            for i in 0..4 {
                let va = arrays.parent + 128 * line + 32 * i;
                self.t.store(0x300 + 5 * i, 1, va, 32, NONE, NONE);
            }
            self.t.branch(0x320, 0x300, 3, line + 1 < last, [NONE; 2]);
            if self.t.full() {
                self.t.pause().await;
            }
        }
        if (first..last).contains(&(u64::from(root) / 32)) {
            let va = arrays.parent + 4 * u64::from(root);
            self.t.store(0x330, 2, va, 4, NONE, NONE);
        }
        if self.thread == 0 {
            self.t.store(0x338, 1, arrays.queue, 4, NONE, NONE);
            for word in &self.world.visited {
                word.store(0, Relaxed);
            }
            self.visit(root);
            *locked(&self.world.frontiers[self.side]) = Arc::new(vec![root]);
        }
        if self.world.threads > 1 {
            self.barrier().await;
        }
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

    /// Takes `vertex` from place `at` of the queue and reads its row's bounds:
    /// the vertex, start and end.
    #[inline(always)]
    fn vertex(&mut self, pcs: [u64; 5], at: u64, vertex: u32, empty: bool) -> [Value; 3] {
        let arrays = &self.world.arrays;
        let (t, row) = (&mut self.t, arrays.offsets + 8 * u64::from(vertex));
        let u = t.load(pcs[0], 1, arrays.queue + 4 * at, 4, [NONE; 2]);
        let end = t.load(pcs[1], 3, row + 8, 8, [u.plus(1), NONE]);
        let start = t.load(pcs[2], 1, row, 8, [u.plus(1), NONE]);
        t.branch(pcs[3], pcs[4], 2, empty, [start, end]);
        [u, start, end]
    }

    /// One thread: one call of the step after the other, until one finds nothing.
    async fn levels(&mut self, root: u32) {
        let world = self.world.clone();
        let (graph, arrays) = (&world.graph, world.arrays);
        let mut queue = vec![root];
        let mut frontier = 0..1;
        while !frontier.is_empty() {
            self.call();
            for at in frontier.clone() {
                let vertex = queue[at];
                let row = graph.row(vertex);
                let pcs = [0x28, 0x33, 0x37, 0x3f, 0x75];
                let [u, start, end] = self.vertex(pcs, at as u64, vertex, row.degree == 0);
                for i in 0..row.degree {
                    let target = graph.neighbour(&row, i);
                    let new = self.visit(target);
                    let t = &mut self.t;
                    let nops = if i == 0 { 3 } else { 0 };
                    let edge = arrays.neighbours + 4 * (row.start + i);
                    let v = t.load(0x50, 1 + nops, edge, 4, [start.plus(1 + i), NONE]);
                    let parent = arrays.parent + 4 * u64::from(target);
                    let old = t.load(0x59, 3, parent, 4, [v.plus(1), NONE]);
                    t.branch(0x5f, 0x6c, 2, !new, [old.plus(1), NONE]);
                    if new {
                        let tail = arrays.queue + 4 * queue.len() as u64;
                        t.store(0x61, 1, parent, 4, v.plus(1), u);
                        t.store(0x64, 1, tail, 4, NONE, v);
                        queue.push(target);
                    }
                    let insns = if new { 4 } else { 3 };
                    let bounds = [start.plus(2 + i), end.plus(1)];
                    t.branch(0x73, 0x50, insns, i + 1 < row.degree, bounds);
                    if t.full() {
                        t.pause().await;
                    }
                }
                self.t
                    .branch(0x7c, 0x28, 3, at + 1 < frontier.end, [NONE; 2]);
                if self.t.full() {
                    self.t.pause().await;
                }
            }
            self.ret();
            frontier = frontier.end..queue.len();
        }
    }

    /// Return address and four saved registers go to the stack.
    fn call(&mut self) {
        let (t, stack) = (&mut self.t, self.stack);
        t.store(0x200, 1, stack - 8, 8, NONE, NONE);
        t.jump(0x200, 0, 0, flags::TAKEN | flags::CALL, [NONE; 2]);
        for (i, pc) in [0x00, 0x02, 0x04, 0x05].into_iter().enumerate() {
            t.store(pc, 1, stack - 16 - 8 * i as u64, 8, NONE, NONE);
        }
        t.compute(0x22, 9, 2, [NONE; 2]);
    }

    fn ret(&mut self) {
        let (t, stack) = (&mut self.t, self.stack);
        for (i, pc) in [0x7e, 0x82, 0x83, 0x85].into_iter().enumerate() {
            let va = stack - 40 + 8 * i as u64;
            t.load(pc, 1 + u16::from(i == 1), va, 8, [NONE; 2]);
        }
        let to = t.load(0x87, 1, stack - 8, 8, [NONE; 2]);
        t.jump(0x87, 0x205, 0, flags::TAKEN | flags::RETURN, [to, NONE]);
    }

    /// Several threads: this one's chunks of the frontier, which begins at
    /// `first` of the queue.
    async fn scan_chunks(&mut self, frontier: &[u32], first: usize) {
        let world = self.world.clone();
        let (graph, arrays) = (&world.graph, world.arrays);
        // The others have read how much there was.
        locked(&world.found[self.thread as usize]).clear();
        let chunks = (self.thread as usize..).step_by(world.threads as usize);
        for from in chunks
            .map(|c| c * CHUNK)
            .take_while(|f| *f < frontier.len())
        {
            let to = (from + CHUNK).min(frontier.len());
            for (at, vertex) in (from..to).zip(&frontier[from..to]) {
                let vertex = *vertex;
                let row = graph.row(vertex);
                let empty = row.degree == 0;
                let pcs = [0xc0, 0xca, 0xce, 0xd6, 0x118];
                let [u, start, end] = self.vertex(pcs, (first + at) as u64, vertex, empty);
                if !empty {
                    self.t.jump(0xe0, 0xf1, 3, flags::TAKEN, [NONE; 2]);
                }
                for i in 0..row.degree {
                    let target = graph.neighbour(&row, i);
                    let new = self.visit(target);
                    let t = &mut self.t;
                    let edge = arrays.neighbours + 4 * (row.start + i);
                    let v = t.load(0xf1, 1, edge, 4, [start.plus(1 + i), NONE]);
                    let parent = arrays.parent + 4 * u64::from(target);
                    let old = t.load(0xfa, 3, parent, 4, [v.plus(1), NONE]);
                    t.branch(0xfe, 0xe8, 2, !new, [old.plus(1), NONE]);
                    let last = i + 1 == row.degree;
                    let mut end_of_loop = (0xef, 0x118, last);
                    if new {
                        let mut found = locked(&world.found[self.thread as usize]);
                        let to = self.list + 4 * found.len() as u64;
                        found.push(target);
                        let swapped = t.atomic(0x100, 1, parent, 4, [v.plus(1), u]);
                        t.branch(0x105, 0xe8, 1, false, [swapped.plus(1), NONE]);
                        t.store(0x10b, 2, to, 4, NONE, v.plus(1));
                        end_of_loop = (0x116, 0xf1, !last);
                    }
                    let bounds = [start.plus(2 + i), end.plus(1)];
                    let (pc, to, taken) = end_of_loop;
                    t.branch(pc, to, 3, taken, bounds);
                    if t.full() {
                        t.pause().await;
                    }
                }
                self.t.branch(0x11f, 0xc0, 3, at + 1 < to, [NONE; 2]);
                if self.t.full() {
                    self.t.pause().await;
                }
            }
        }
    }

    /// Moves what this thread has found to the shared queue, whose end is at
    /// `end`; the first makes it the next frontier.
    async fn gather(&mut self, end: usize) {
        let world = self.world.clone();
        let before: usize = world.found[..self.thread as usize]
            .iter()
            .map(|f| locked(f).len())
            .sum();
        let mine = locked(&world.found[self.thread as usize]).len();
        if self.thread == 0 {
            let mut next = Vec::new();
            for found in &world.found {
                next.extend_from_slice(&locked(found));
            }
            *locked(&world.frontiers[self.side]) = Arc::new(next);
        }
        for i in 0..mine {
            let to = world.arrays.queue + 4 * (end + before + i) as u64;
            let v = self
                .t
                .load(0x180, 1, self.list + 4 * i as u64, 4, [NONE; 2]);
            self.t.store(0x183, 1, to, 4, NONE, v);
            self.t.branch(0x18d, 0x180, 3, i + 1 < mine, [NONE; 2]);
            if self.t.full() {
                self.t.pause().await;
            }
        }
    }
}
