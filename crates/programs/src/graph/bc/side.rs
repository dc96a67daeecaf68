//! One thread's side arrays of Brandes's algorithm, and their addresses.

use crate::graph::containers::{From, allocate, release};
use crate::heap::{Heap, chunk};
use crate::thread::{NONE, Thread, Value};

/// Depth of an unreached vertex: -1.
pub(super) const UNKNOWN: u32 = u32::MAX;
/// No node.
const NIL: u32 = u32::MAX;
/// `std::_List_node<size_t>`
const NODE: u64 = 24;
/// Code of `_List_node_base::_M_hook`.
const HOOK: u64 = 0xd400;

/// Addresses of one thread's arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideArrays {
    /// `vector<list<size_t>>`: next, previous and size of each vertex's list.
    pub parents: u64,
    /// `vector<size_t>`
    pub paths: u64,
    /// `vector<int8_t>`
    pub depth: u64,
    /// `vector<double>`
    pub update: u64,
    pub queue: u64,
    pub stack: u64,
    /// Nodes of the lists, in the thread's own arena.
    nodes: u64,
}

impl SideArrays {
    /// Arrays for a graph of `n` vertices and `m` edges.
    pub(super) fn new(heap: &mut Heap, n: u64, m: u64) -> Self {
        SideArrays {
            parents: heap.malloc(24 * n),
            paths: heap.malloc(8 * n),
            depth: heap.malloc(n),
            update: heap.malloc(8 * n),
            queue: heap.malloc(8 * n),
            stack: heap.malloc(8 * n),
            nodes: heap.malloc(chunk(NODE) * m),
        }
    }

    /// Constructs the vectors.
    pub(super) async fn touch(&self, t: &mut Thread, n: u64) {
        t.touch(self.parents, 24 * n).await;
        t.touch(self.paths, 8 * n).await;
        t.touch(self.depth, n).await;
        t.touch(self.update, 8 * n).await;
    }

    /// Address of the `place`-th node.
    #[inline(always)]
    pub(super) fn node(&self, place: u32) -> u64 {
        self.nodes + chunk(NODE) * u64::from(place)
    }
}

/// One thread's side arrays: addresses and contents.
pub(super) struct Side {
    pub at: SideArrays,
    pub depth: Vec<u32>,
    pub paths: Vec<u64>,
    pub update: Vec<f64>,
    /// Vertices in search order: the queue, later the stack.
    pub order: Vec<u32>,
    /// First and last node of each vertex's list.
    lists: Vec<[u32; 2]>,
    /// Per node: its parent, and the next node of its list or of the free list.
    nodes: Vec<[u32; 2]>,
    free: u32,
}

impl Side {
    pub(super) fn new(at: SideArrays, n: u64) -> Self {
        let n = n as usize;
        Side {
            at,
            depth: vec![UNKNOWN; n],
            paths: vec![0; n],
            update: vec![0.0; n],
            order: Vec::new(),
            lists: vec![[NIL; 2]; n],
            nodes: Vec::new(),
            free: NIL,
        }
    }

    pub(super) fn first(&self, vertex: u32) -> Option<u32> {
        let first = self.lists[vertex as usize][0];
        (first != NIL).then_some(first)
    }

    #[inline(always)]
    pub(super) fn parent_at(&self, node: u32) -> u32 {
        self.nodes[node as usize][0]
    }

    #[inline(always)]
    pub(super) fn after(&self, node: u32) -> Option<u32> {
        let next = self.nodes[node as usize][1];
        (next != NIL).then_some(next)
    }

    /// The initialisation loop before each search.
    pub(super) async fn clear(&mut self, t: &mut Thread, source: u32) {
        let (at, frame) = (self.at, t.stack - 0x300);
        self.order.clear();
        let n = self.depth.len() as u32;
        for i in 0..n {
            let list = at.parents + 24 * u64::from(i);
            t.load(0x118, 1, frame + 0x150, 8, [NONE; 2]);
            let mut link = t.load(0x129, 4, list, 8, [NONE; 2]);
            t.store(0x130, 2, frame, 16, NONE, NONE);
            let mut node = self.first(i);
            t.branch(0x137, 0x156, 2, node.is_none(), [link, NONE]);
            while let Some(place) = node {
                let next = self.after(place);
                let va = at.node(place);
                link = t.load(0x143, 2, va, 8, [link, NONE]);
                // Pushes the node to the free chunks of its size.
                release(t, 0x14c, From::Bin, Some([va - 8, va]));
                self.nodes[place as usize][1] = self.free;
                self.free = place;
                node = next;
                t.branch(0x154, 0x140, 2, node.is_some(), [link, NONE]);
                if t.full() {
                    t.pause().await;
                }
            }
            self.lists[i as usize] = [NIL; 2];
            let own = t.load(0x156, 1, frame, 16, [NONE; 2]);
            t.load(0x15b, 1, frame + 0x158, 8, [NONE; 2]);
            t.store(0x15e, 1, list + 16, 8, NONE, NONE);
            t.load(0x166, 1, frame + 0x20, 8, [NONE; 2]);
            t.store(0x16b, 1, list, 16, NONE, own);
            let first = i == source;
            t.branch(0x175, 0x460, 3, first, [NONE; 2]);
            let pc = if first { 0x460 } else { 0x17b };
            t.store(pc, 1, at.paths + 8 * u64::from(i), 8, NONE, NONE);
            t.load(pc + 7, 1, frame + 0x148, 8, [NONE; 2]);
            t.store(pc + 0xb, 1, at.depth + u64::from(i), 1, NONE, NONE);
            t.load(0x18a, 1, frame + 0x140, 8, [NONE; 2]);
            t.load(0x192, 1, frame + 0x160, 8, [NONE; 2]);
            t.store(0x195, 1, at.update + 8 * u64::from(i), 8, NONE, NONE);
            t.branch(0x1a6, 0x118, 3, i + 1 < n, [NONE; 2]);
            self.paths[i as usize] = u64::from(first);
            self.depth[i as usize] = if first { 0 } else { UNKNOWN };
            self.update[i as usize] = 0.0;
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// `paths[w] += paths[v]; parents[w].push_back(v);`, with the values that produce both numbers.
    #[inline(always)]
    pub(super) fn parent(&mut self, t: &mut Thread, v: u32, w: u32, from: [Value; 2]) {
        let (at, frame) = (self.at, t.stack - 0x300);
        let reached = self.paths[v as usize];
        let paths = &mut self.paths[w as usize];
        *paths = paths.wrapping_add(reached);
        t.load(0x307, 1, frame + 0x158, 8, [NONE; 2]);
        t.load(0x30a, 1, frame + 0x18, 8, [NONE; 2]);
        let more = t.load(0x314, 2, at.paths + 8 * u64::from(v), 8, [from[0], NONE]);
        let sum = at.paths + 8 * u64::from(w);
        let old = t.load(0x318, 1, sum, 8, [from[1], NONE]);
        let new = t.compute(0x318, 0, 1, [old, more]);
        t.store(0x318, 0, sum, 8, from[1], new);
        t.load(0x320, 2, frame + 0x150, 8, [NONE; 2]);
        let place = self.allocate(t);
        self.nodes[place as usize] = [v, NIL];
        let va = at.node(place);
        t.store(0x32c, 1, va + 16, 8, NONE, from[0]);
        // Appends the node: `_M_hook`.
        let list = at.parents + 24 * u64::from(w);
        t.call(0x336, HOOK, 3, 0x400);
        let last = t.load(HOOK + 4, 1, list + 8, 8, [from[1], NONE]);
        t.store(HOOK, 1, va, 8, NONE, from[1]);
        t.store(HOOK + 8, 1, va + 8, 8, NONE, last);
        let [first, tail] = self.lists[w as usize];
        let before = if tail == NIL { list } else { at.node(tail) };
        t.store(HOOK + 0xc, 1, before, 8, last, NONE);
        t.store(HOOK + 0xf, 1, list + 8, 8, from[1], NONE);
        t.ret(HOOK + 0x13, 0x336, 1, 0x400);
        if tail == NIL {
            self.lists[w as usize] = [place, place];
        } else {
            self.nodes[tail as usize][1] = place;
            self.lists[w as usize] = [first, place];
        }
        let size = t.load(0x343, 1, list + 16, 8, [from[1], NONE]);
        t.store(0x343, 0, list + 16, 8, from[1], size.plus(1));
    }

    /// `operator new(24)`: the chunk freed last, else the next one of the arena.
    #[inline(always)]
    fn allocate(&mut self, t: &mut Thread) -> u32 {
        let (place, words);
        if self.free == NIL {
            self.nodes.push([NIL; 2]);
            place = self.nodes.len() as u32 - 1;
            // Splits the top chunk: the size field of the node is new.
            words = [t.stack - 0x280, self.at.node(place) - 8];
        } else {
            place = self.free;
            self.free = self.nodes[place as usize][1];
            words = [0, 8].map(|word| self.at.node(place) + word);
        }
        allocate(t, 0x327, From::Bin, Some(words));
        place
    }
}
