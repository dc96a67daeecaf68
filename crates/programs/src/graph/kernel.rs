//! Threads of a kernel, and the memory that they share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pagewalk_stream::Facts;

use super::layout::{Csr, Layout, OpenG, Properties, Vertex};
use super::params::{GraphLayout, Setup};
use super::source::Graph;
use crate::heap::Heap;
use crate::layout;
use crate::program::Code;
use crate::thread::{NONE, Thread, Value};

/// Code of the OpenMP runtime's barrier, above the kernels' code.
const BARRIER: u64 = 0xe000;

/// State shared by the threads of a kernel.
pub struct World<L> {
    /// The graph.
    pub graph: Graph,
    /// Number of threads, from 1.
    pub threads: u32,
    memory: OnceLock<L>,
    heap: Mutex<Option<Heap>>,
    lists: OnceLock<Lists>,
    /// Address of the vector of sorted neighbours, per vertex.
    sets: OnceLock<Vec<u64>>,
    /// Vertices in transit, per sender and receiver.
    mail: Vec<Mutex<Vec<u32>>>,
    stop: AtomicBool,
}

/// Vectors that pass vertices between threads: an input vector per thread, and an output vector per pair.
/// They are mapped for the worst case and touched as they fill, since a grown vector keeps its capacity.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    first: u64,
    bytes: u64,
    /// Begin, end and capacity of each vector, 24 bytes.
    headers: u64,
    threads: u64,
    /// The barrier of the threads.
    barrier: u64,
    /// The flag that ends the loop over levels.
    pub stop: u64,
}

impl Lists {
    /// Addresses of the elements and of the header of `thread`'s input vector.
    pub fn input(&self, thread: u32) -> (u64, u64) {
        self.nth(u64::from(thread))
    }

    /// Addresses of the elements and of the header of the output vector from `from` to `to`.
    pub fn output(&self, from: u32, to: u32) -> (u64, u64) {
        self.nth(self.threads * (1 + u64::from(from)) + u64::from(to))
    }

    /// Capacity of a list in vertices.
    pub fn room(&self) -> u64 {
        self.bytes / 8
    }

    /// Position `index` in a list, with wrap-around.
    pub fn within(&self, index: u64) -> u64 {
        index % self.room()
    }

    fn nth(&self, i: u64) -> (u64, u64) {
        (self.first + i * self.bytes, self.headers + 24 * i)
    }
}

impl<L: Layout> World<L> {
    /// Memory layout of the graph. Available once the first thread has loaded it, before the other threads
    /// start.
    pub fn memory(&self) -> &L {
        let memory = self.memory.get();
        memory.expect("the graph is loaded before a kernel begins")
    }

    /// Takes the heap after the graph was loaded, for a kernel of one thread.
    pub fn heap(&self) -> Heap {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.take()
            .unwrap_or_else(|| Heap::new(layout::Layout::new()))
    }

    /// Returns the heap for later use.
    pub fn give_back(&self, heap: Heap) {
        *self.heap.lock().unwrap_or_else(PoisonError::into_inner) = Some(heap);
    }

    fn mail(&self, from: u32, to: u32) -> MutexGuard<'_, Vec<u32>> {
        let mail = &self.mail[(from * self.threads + to) as usize];
        mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `vertex` from thread `from` to `to`. Returns the number of earlier ones in transit.
    pub fn send(&self, from: u32, to: u32, vertex: u32) -> u64 {
        let mut mail = self.mail(from, to);
        mail.push(vertex);
        mail.len() as u64 - 1
    }

    /// Number of vertices in transit from `from` to `to`.
    pub fn sent(&self, from: u32, to: u32) -> u64 {
        self.mail(from, to).len() as u64
    }

    /// Takes all vertices sent to thread `to`, ordered by sender.
    pub fn receive(&self, to: u32) -> Vec<u32> {
        let mut all = Vec::new();
        for from in 0..self.threads {
            all.append(&mut self.mail(from, to));
        }
        all
    }

    /// True if the loop over levels ends.
    pub fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sets [`stop`](Self::stop).
    pub fn set_stop(&self, stop: bool) {
        self.stop.store(stop, Ordering::Relaxed);
    }

    /// The work lists of several threads.
    pub fn lists(&self) -> Lists {
        let lists = self.lists.get();
        *lists.expect("several threads have lists before a kernel begins")
    }

    /// Allocates the vectors of sorted neighbours, in the order of the vertices.
    async fn allocate_sets(&self, heap: &mut Heap, t: &mut Thread) {
        let mut sets = Vec::new();
        for id in 0..self.graph.vertices() as u32 {
            let vertex = self.memory().vertex(id, NONE);
            if self.memory().row_at(&self.graph, vertex).is_some() {
                break;
            }
            let degree = self.graph.row(id).degree;
            sets.push(if degree > 0 {
                heap.malloc(8 * degree)
            } else {
                0
            });
            if heap.has_pending() {
                heap.emit_pending(t).await;
            }
        }
        heap.emit_pending(t).await;
        let _ = self.sets.set(sets);
    }

    /// Address of the sorted neighbours of `vertex`, and bytes per element.
    pub fn set(&self, vertex: Vertex) -> (u64, u8) {
        match self.memory().row_at(&self.graph, vertex) {
            Some(at) => (at, 4),
            None => {
                let at = self.sets.get().and_then(|s| s.get(vertex.id as usize));
                (at.copied().unwrap_or_default(), 8)
            }
        }
    }

    /// `#pragma omp barrier`.
    pub async fn barrier(&self, t: &mut Thread, pc: u64) {
        t.call(pc, BARRIER, 1, 0x800);
        t.atomic(BARRIER + 0x10, 6, self.lists().barrier, 4, [NONE; 2]);
        t.barrier().await;
        t.load(BARRIER + 0x30, 4, self.lists().barrier + 4, 4, [NONE; 2]);
        t.ret(BARRIER + 0x40, pc, 4, 0x800);
    }
}

/// Memory that a kernel needs in addition to the graph.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// Work lists even with one thread.
    pub lists: bool,
    /// Several threads synchronise at barriers only, and need no lists.
    pub barriers: bool,
    /// Sorted neighbours per vertex: a vector of 8-byte numbers, unless the layout has rows.
    pub sets: bool,
}

impl Extras {
    /// No extra memory.
    pub const NONE: Extras = Extras {
        lists: false,
        barriers: false,
        sets: false,
    };
}

/// A kernel over a graph.
pub trait Kernel: Send + Sync + 'static {
    /// Memory needed in addition to the graph.
    const EXTRAS: Extras = Extras::NONE;

    /// Code of thread `thread` after the graph is loaded.
    fn run<L: Layout>(
        &self,
        world: &World<L>,
        t: &mut Thread,
        thread: u32,
    ) -> impl Future<Output = ()> + Send;
}

/// The program that loads the graph of `setup`, with `properties` per vertex, and then runs `kernel` in each
/// of its threads.
pub fn launch<K: Kernel>(setup: Setup, properties: &'static Properties, kernel: K) -> Code {
    match setup.kind {
        GraphLayout::Csr => launch_in::<Csr, K>(setup, properties, kernel),
        GraphLayout::OpenG => launch_in::<OpenG, K>(setup, properties, kernel),
    }
}

fn launch_in<L: Layout, K: Kernel>(
    setup: Setup,
    properties: &'static Properties,
    kernel: K,
) -> Code {
    let extras = K::EXTRAS;
    let kernel = Arc::new(kernel);
    let facts = Facts {
        name: setup.name,
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let threads = setup.threads;
    let mut order = Some(setup.order);
    let world = Arc::new(World::<L> {
        graph: setup.graph,
        threads,
        memory: OnceLock::new(),
        heap: Mutex::new(None),
        lists: OnceLock::new(),
        sets: OnceLock::new(),
        mail: (0..threads * threads).map(|_| Mutex::default()).collect(),
        stop: AtomicBool::new(false),
    });
    let mut heap = Heap::new(layout::Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let mut heap = Some(heap);
    let mut code = Code::new(facts, setup.start);
    for (thread, stack) in (0..).zip(stacks) {
        let (world, kernel, heap) = (world.clone(), kernel.clone(), heap.take());
        // For the loading thread.
        let order = order.take().unwrap_or_default();
        code.thread(stack, move |mut t| async move {
            if let Some(mut heap) = heap {
                t.enter().await;
                let memory = L::load(&world.graph, &order, properties, &mut heap, &mut t).await;
                let _ = world.memory.set(memory);
                if extras.sets {
                    world.allocate_sets(&mut heap, &mut t).await;
                }
                if threads > 1 || extras.lists {
                    // Rounds with weights may list a vertex more than once.
                    let times = if properties.weights { 4 } else { 1 };
                    let all = times * world.graph.vertices();
                    let room = if extras.barriers { 1 } else { all };
                    let lists = map_lists(room, threads, &mut heap);
                    heap.emit_pending_untouched(&mut t).await;
                    let _ = world.lists.set(lists);
                }
                world.give_back(heap);
                t.begin(threads).await;
            }
            kernel.run(&world, &mut t, thread).await;
            if thread == 0 {
                t.finish(threads).await;
            }
        });
    }
    code
}

fn map_lists(vertices: u64, threads: u32, heap: &mut Heap) -> Lists {
    let threads = u64::from(threads);
    let all = threads * (threads + 1);
    let bytes = (8 * vertices).next_multiple_of(4096);
    Lists {
        first: heap.malloc(bytes * all),
        bytes,
        headers: heap.malloc(24 * all),
        threads,
        barrier: heap.malloc(128),
        stop: heap.malloc(64),
    }
}

/// `memmove` of `bytes` with 32-byte registers. Its code takes at most 0x20 bytes.
pub async fn copy(t: &mut Thread, pc: u64, from: u64, to: u64, bytes: u64) {
    let mut at = 0;
    while at < bytes {
        let size = (bytes - at).min(32) as u8;
        let value = t.load(pc, 1, from + at, size, [NONE; 2]);
        t.store(pc + 5, 1, to + at, size, NONE, value);
        at += 32;
        t.branch(pc + 0x12, pc, 3, at < bytes, [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

/// Loads begin and end of the vector whose header is at `header`.
pub fn bounds(t: &mut Thread, pc: u64, header: u64) -> [Value; 2] {
    let begin = t.load(pc, 1, header, 8, [NONE; 2]);
    let end = t.load(pc + 4, 1, header + 8, 8, [NONE; 2]);
    [begin, end]
}
