//! The search itself: which vertices each level visits, and who visits them.
//!
//! With several threads chunks of the frontier go to them in turn. Which of two
//! threads claims a vertex that both see would depend on their timing; here it
//! is the one whose chunk comes first, so that each thread's stream is the same
//! in whatever order threads are asked. Chunks are therefore resolved in order,
//! as far as some thread has come, and kept as one bit an edge for the others.

use std::collections::VecDeque;

use super::super::graph::source::{Graph, Row};

/// Frontier vertices that a thread takes at a time (OpenMP's `schedule(static, 64)`).
pub const CHUNK: usize = 64;

/// The state of the search from one root.
pub struct Search {
    pub graph: Graph,
    threads: usize,
    visited: Vec<u64>,
    /// Vertices in the order of their discovery.
    pub queue: Vec<u32>,
    /// The present frontier in `queue`.
    pub frontier: std::ops::Range<usize>,
    /// Several threads: chunks of this frontier that are resolved.
    resolved: usize,
    /// Several threads: what each has found in this level.
    pub found: Vec<Vec<u32>>,
    /// Several threads: for each its resolved chunks, a bit an edge: claimed.
    claims: Vec<VecDeque<Vec<u64>>>,
    spare: Vec<Vec<u64>>,
}

impl Search {
    pub fn new(graph: Graph, threads: usize) -> Self {
        Search {
            threads,
            visited: vec![0; (graph.vertices() as usize).div_ceil(64)],
            graph,
            queue: Vec::new(),
            frontier: 0..0,
            resolved: 0,
            found: vec![Vec::new(); threads],
            claims: vec![VecDeque::new(); threads],
            spare: Vec::new(),
        }
    }

    /// Forgets the last search and starts from `root`.
    pub fn start(&mut self, root: u32) {
        self.visited.fill(0);
        self.queue.clear();
        self.queue.push(root);
        self.visit(root);
        self.frontier = 0..1;
        self.resolved = 0;
    }

    /// Marks `vertex`; true when it was not visited before.
    #[inline(always)]
    pub fn visit(&mut self, vertex: u32) -> bool {
        let word = &mut self.visited[(vertex >> 6) as usize];
        let bit = 1 << (vertex & 63);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// One thread: what was found since is the next frontier; false when nothing was.
    pub fn next_level(&mut self) -> bool {
        self.frontier = self.frontier.end..self.queue.len();
        self.resolved = 0;
        !self.frontier.is_empty()
    }

    /// Several threads: appends what they found, in their order.
    pub fn gather(&mut self) {
        debug_assert!(self.claims.iter().all(|c| c.is_empty()));
        for found in &mut self.found {
            self.queue.append(found);
        }
    }

    /// Several threads: the claims in chunk `chunk`, which belongs to its
    /// `chunk % threads`-th thread and is asked for once.
    pub fn take_claims(&mut self, chunk: usize) -> Vec<u64> {
        while self.resolved <= chunk {
            self.resolve();
        }
        let queue = &mut self.claims[chunk % self.threads];
        queue
            .pop_front()
            .expect("a thread's chunks are taken in order")
    }

    /// Gives a buffer of [`Search::take_claims`] back.
    pub fn recycle(&mut self, claims: Vec<u64>) {
        self.spare.push(claims);
    }

    fn resolve(&mut self) {
        let chunk = self.resolved;
        let thread = chunk % self.threads;
        let first = self.frontier.start + chunk * CHUNK;
        let mut bits = self.spare.pop().unwrap_or_default();
        bits.clear();
        let mut edges = 0;
        for at in first..(first + CHUNK).min(self.frontier.end) {
            let row: Row = self.graph.row(self.queue[at]);
            for i in 0..row.degree {
                let vertex = self.graph.neighbour(&row, i);
                if edges % 64 == 0 {
                    bits.push(0);
                }
                if self.visit(vertex) {
                    bits[edges / 64] |= 1 << (edges % 64);
                    self.found[thread].push(vertex);
                }
                edges += 1;
            }
        }
        self.claims[thread].push_back(bits);
        self.resolved += 1;
    }
}
