//! Breadth-first search, top down, over a generated graph in CSR form.

mod code;
mod search;

use std::collections::VecDeque;

use pagewalk_stream::{BATCH_OPS, Batch, End, Event, Facts, Program, ProgramError, ThreadId};
use rand::Rng as _;

use self::code::{Arrays, Edge, Emitter, MOST_OPS};
use self::search::{CHUNK, Search};
use super::graph::layout::{Field, Properties};
use super::graph::params::{self, Setup};
use super::graph::source::Row;
use super::layout::Layout;
use super::thread::Touch;
use crate::registry::{Entry, POPULATE, Values, WorkloadInfo, error};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| match values.choice("layout", &["csr", "graphbig"], "csr")? {
        "csr" => Ok(Box::new(Bfs::new(values)?)),
        _ => Ok(Box::new(super::graph::bfs::program(values)?.0)),
    },
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "bfs",
    group: "graph",
    description: "Breadth-first searches from random roots over a generated graph in compressed sparse row form.",
    stresses: "Dependent random reads (neighbour, then its parent entry) and hard branches, beside streams through the neighbour lists.",
    source: "S. Beamer, K. Asanovic, D. Patterson, The GAP Benchmark Suite, 2015 (top-down step); Graph500 specification (Kronecker graph)",
    default_size: 4 << 30,
    size_range: "a size that a graph of scale 12 to 31 fits in",
    max_threads: 16,
    params: &[
        params::GRAPH,
        params::SCALE,
        params::VERTICES,
        params::DEGREE,
        params::LAYOUT,
        params::ROOTS,
        POPULATE,
    ],
};

/// Parents and queue beside the graph.
const PROPERTIES: Properties = Properties {
    vertex_bytes: 8,
    fields: &[Field { offset: 0, size: 4 }, Field { offset: 4, size: 4 }],
    weights: false,
};

/// What all threads do between two barriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Sets all parents to -1, the root's to itself, and queues the root.
    Init { root: u32, clear: bool },
    /// Scans the frontier.
    Scan,
    /// Several threads: moves what each has found to the shared queue.
    Copy,
    /// All searches are done.
    Done,
}

/// Where one thread stands in the present step.
#[derive(Default)]
struct Worker {
    emitter: Emitter,
    /// Address of its own list of found vertices; several threads.
    list: u64,
    begun: bool,
    /// Gave all ops of the step.
    finished: bool,
    /// Position in the queue (scan), or in its part of an array (init, copy).
    at: usize,
    end: usize,
    /// Chunk of the frontier; several threads.
    chunk: usize,
    claims: Vec<u64>,
    claim: usize,
    claimed: u64,
    /// The vertex under way: its row and the next edge.
    row: Row,
    edge: u64,
    in_row: bool,
    /// Copy: where its part begins in the queue.
    to: usize,
}

pub(crate) struct Bfs {
    facts: Facts,
    setup: VecDeque<Event>,
    search: Search,
    arrays: Arrays,
    workers: Vec<Worker>,
    step: Step,
    roots: pagewalk_units::Rng,
    roots_left: u64,
    /// Number of the present step, from 1, and of the barrier at its end.
    steps: u64,
    joined: bool,
    roi_ended: bool,
}

impl Bfs {
    pub(crate) fn new(values: &Values<'_>) -> Result<Self, ProgramError> {
        let setup = Setup::read(values, &PROPERTIES)?;
        let roots_left = values.number_in("roots", 1..=1 << 32, 64)?;
        let populate = match setup.touch {
            Touch::Bulk => true,
            Touch::Never => false,
            Touch::Stores => {
                return Err(values.refuse("populate", "not with layout=csr"));
            }
        };
        let Setup {
            graph,
            threads,
            seed,
            name,
            ..
        } = setup;
        let vertices = graph.vertices();
        let mut layout = Layout::new();
        let mut arrays = Arrays {
            offsets: layout.array(8 * (vertices + 1), populate),
            neighbours: layout.array(4 * graph.edges(), populate),
            parent: layout.array(4 * vertices, populate),
            queue: layout.array(4 * vertices, populate),
            barrier: 0,
        };
        if threads > 1 {
            arrays.barrier = layout.array(64, true);
        }
        let workers = (0..threads)
            .map(|thread| Worker {
                emitter: Emitter::new(layout.stack(thread) - 256),
                // Grows page by page as it is filled, like a vector of the program.
                list: if threads > 1 {
                    layout.array(4 * vertices, false)
                } else {
                    0
                },
                ..Worker::default()
            })
            .collect();
        let mut bfs = Bfs {
            facts: Facts {
                name,
                instructions: None,
                infer_mappings: false,
                no_dependences: false,
                deterministic: true,
                has_roi: true,
                live: false,
            },
            setup: layout.begin(threads),
            search: Search::new(graph, threads as usize),
            arrays,
            workers,
            step: Step::Done,
            roots: pagewalk_units::rng(seed, "workload.bfs.roots"),
            roots_left,
            steps: 1,
            joined: false,
            roi_ended: false,
        };
        // The first search's parents are initialised with the populated arrays.
        bfs.next_root(!populate);
        Ok(bfs)
    }

    /// Begins the next search, if there is one.
    fn next_root(&mut self, clear: bool) {
        if self.roots_left == 0 {
            self.step = Step::Done;
            return;
        }
        self.roots_left -= 1;
        let graph = &self.search.graph;
        let root = loop {
            let v = graph.vertex_of(self.roots.next_u64());
            if graph.row(v).degree > 0 {
                break v;
            }
        };
        self.search.start(root);
        self.step = Step::Init { root, clear };
    }

    /// All threads are at the barrier: what comes next.
    fn advance(&mut self) {
        let alone = self.workers.len() == 1;
        match self.step {
            Step::Init { .. } => self.step = Step::Scan,
            Step::Scan if !alone => {
                let mut to = self.search.queue.len();
                for (worker, found) in self.workers.iter_mut().zip(&self.search.found) {
                    worker.to = to;
                    worker.end = found.len();
                    to += found.len();
                }
                self.search.gather();
                self.step = Step::Copy;
            }
            Step::Scan | Step::Copy => {
                self.step = Step::Scan;
                if !self.search.next_level() {
                    self.next_root(true);
                }
            }
            Step::Done => {}
        }
        for worker in &mut self.workers {
            (worker.begun, worker.finished) = (false, false);
        }
        self.steps += 1;
    }

    /// Appends `thread`'s ops of the present step; true when it has given all.
    fn emit(&mut self, thread: usize, batch: &mut Batch) -> bool {
        let threads = self.workers.len();
        let worker = &mut self.workers[thread];
        let parallel = threads > 1;
        match self.step {
            Step::Init { root, clear } => {
                let lines = self.search.graph.vertices().div_ceil(32) as usize;
                let part = lines * thread / threads..lines * (thread + 1) / threads;
                if !worker.begun {
                    worker.begun = true;
                    worker.at = if clear { part.start } else { part.end };
                }
                while worker.at < part.end {
                    if BATCH_OPS - batch.ops.len() < MOST_OPS {
                        return false;
                    }
                    let va = self.arrays.parent + 128 * worker.at as u64;
                    worker.at += 1;
                    worker.emitter.memset(batch, va, worker.at < part.end);
                }
                if BATCH_OPS - batch.ops.len() < MOST_OPS {
                    return false;
                }
                if part.contains(&(root as usize / 32)) {
                    worker.emitter.set_parent(batch, &self.arrays, root);
                }
                if thread == 0 {
                    worker.emitter.set_queue(batch, &self.arrays);
                }
            }
            Step::Scan if parallel => {
                if !worker.scan_chunks(thread, &mut self.search, &self.arrays, batch) {
                    return false;
                }
            }
            Step::Scan => {
                if !worker.scan(&mut self.search, &self.arrays, batch) {
                    return false;
                }
            }
            Step::Copy => {
                if !worker.begun {
                    worker.begun = true;
                    worker.at = 0;
                }
                while worker.at < worker.end {
                    if BATCH_OPS - batch.ops.len() < MOST_OPS {
                        return false;
                    }
                    let from = worker.list + 4 * worker.at as u64;
                    let to = self.arrays.queue + 4 * (worker.to + worker.at) as u64;
                    worker.at += 1;
                    worker.emitter.copy(batch, from, to, worker.at < worker.end);
                }
                if BATCH_OPS - batch.ops.len() < MOST_OPS {
                    return false;
                }
            }
            Step::Done => return true,
        }
        if parallel {
            worker.emitter.barrier(batch, &self.arrays);
        }
        true
    }
}

impl Worker {
    /// One thread: scans the frontier, visiting as it goes. The caller's batch
    /// has room for [`MOST_OPS`] before each append.
    fn scan(&mut self, search: &mut Search, arrays: &Arrays, batch: &mut Batch) -> bool {
        let room = |batch: &Batch| BATCH_OPS - batch.ops.len() >= MOST_OPS;
        if !self.begun {
            if !room(batch) {
                return false;
            }
            self.begun = true;
            self.at = search.frontier.start;
            self.in_row = false;
            self.emitter.enter(batch);
        }
        while self.at < search.frontier.end {
            if !self.in_row {
                if !room(batch) {
                    return false;
                }
                let vertex = search.queue[self.at];
                self.row = search.graph.row(vertex);
                self.edge = 0;
                self.in_row = true;
                let empty = self.row.degree == 0;
                self.emitter
                    .vertex(batch, arrays, false, self.at as u64, vertex, empty);
            }
            while self.edge < self.row.degree {
                if !room(batch) {
                    return false;
                }
                let i = self.edge;
                self.edge += 1;
                let v = search.graph.neighbour(&self.row, i);
                let claim = search.visit(v).then_some(search.queue.len() as u64);
                if claim.is_some() {
                    search.queue.push(v);
                }
                let last = self.edge == self.row.degree;
                let at = self.row.start + i;
                let edge = Edge {
                    i,
                    at,
                    neighbour: v,
                    claim,
                    last,
                };
                self.emitter.edge(batch, arrays, edge);
            }
            if !room(batch) {
                return false;
            }
            self.in_row = false;
            self.at += 1;
            self.emitter
                .vertex_end(batch, false, self.at < search.frontier.end);
        }
        if !room(batch) {
            return false;
        }
        self.emitter.leave(batch);
        true
    }

    /// Several threads: scans this thread's chunks of the frontier.
    fn scan_chunks(
        &mut self,
        thread: usize,
        search: &mut Search,
        arrays: &Arrays,
        batch: &mut Batch,
    ) -> bool {
        let room = |batch: &Batch| BATCH_OPS - batch.ops.len() >= MOST_OPS;
        let threads = search.found.len();
        if !self.begun {
            self.begun = true;
            self.chunk = thread;
            self.claimed = 0;
            self.in_row = false;
            (self.at, self.end) = (0, 0);
        }
        loop {
            if self.at == self.end {
                let start = search.frontier.start + self.chunk * CHUNK;
                if start >= search.frontier.end {
                    return room(batch);
                }
                debug_assert!(!self.in_row, "a row ends before its chunk");
                search.recycle(std::mem::take(&mut self.claims));
                self.claims = search.take_claims(self.chunk);
                self.claim = 0;
                self.at = start;
                self.end = (start + CHUNK).min(search.frontier.end);
                self.chunk += threads;
            }
            if !room(batch) {
                return false;
            }
            if !self.in_row {
                let vertex = search.queue[self.at];
                self.row = search.graph.row(vertex);
                self.edge = 0;
                self.in_row = true;
                let empty = self.row.degree == 0;
                self.emitter
                    .vertex(batch, arrays, true, self.at as u64, vertex, empty);
            }
            while self.edge < self.row.degree {
                if !room(batch) {
                    return false;
                }
                let i = self.edge;
                self.edge += 1;
                let v = search.graph.neighbour(&self.row, i);
                let mine = self.claims[self.claim / 64] >> (self.claim % 64) & 1 == 1;
                self.claim += 1;
                let to = self.list + 4 * self.claimed;
                self.claimed += u64::from(mine);
                let last = self.edge == self.row.degree;
                let at = self.row.start + i;
                let claim = mine.then_some(to);
                let edge = Edge {
                    i,
                    at,
                    neighbour: v,
                    claim,
                    last,
                };
                self.emitter.edge_parallel(batch, arrays, edge);
            }
            if !room(batch) {
                return false;
            }
            self.in_row = false;
            self.at += 1;
            self.emitter.vertex_end(batch, true, self.at < self.end);
        }
    }
}

impl Program for Bfs {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        if thread == 0
            && let Some(event) = self.setup.pop_front()
        {
            return Ok(End::Event { event, ticket: 0 });
        }
        let count = self.workers.len();
        let thread = thread as usize;
        if thread >= count {
            return Err(error(format!(
                "bfs has {count} threads, not a thread {thread}"
            )));
        }
        loop {
            if self.step == Step::Done {
                break;
            }
            let worker = &mut self.workers[thread];
            if worker.finished {
                // Who asks again is past the barrier, so all have come to it.
                if !self.workers.iter().all(|w| w.finished) {
                    return Err(error(format!(
                        "bfs: thread {thread} did not wait at its barrier"
                    )));
                }
                self.advance();
                continue;
            }
            let finished = self.emit(thread, batch);
            self.workers[thread].finished = finished;
            if !finished {
                return Ok(End::More);
            }
            if count > 1 {
                return Ok(End::Barrier { number: self.steps });
            }
            // Alone, there is no barrier to wait at.
            self.advance();
        }
        if thread == 0 {
            if count > 1 && !std::mem::replace(&mut self.joined, true) {
                return Ok(End::Barrier { number: u64::MAX });
            }
            if !std::mem::replace(&mut self.roi_ended, true) {
                return Ok(End::Event {
                    event: Event::RoiEnd,
                    ticket: 0,
                });
            }
        }
        Ok(End::Exit)
    }
}
