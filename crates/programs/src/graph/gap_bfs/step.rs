//! One level of the search: the top-down step as compiled by gcc 12.2 with the flags of GAP's Makefile
//! (-std=c++11 -O3).
//!
//! One thread (`SERIAL=1`, where compare-and-swap is a load and a plain store):
//!
//! ```text
//! 39c0 6 x push ; new int[16384] ; 4 loads ; 3a07 jae
//! 3a20 movslq (%rcx),%r11                u = *queue++
//! 3a23 mov 0x18(%r10),%rbx               the graph's index, kept in memory
//! 3a27 mov ; add ; 3a2e mov (%rbx,%r11,8),%r13 ; 3a32 mov -0x8(%rbx,%r11,8),%rbx
//! 3a37 cmp ; 3a3a jne 3a49 ; 3a3c jmp 3a91
//! 3a40 add ; cmp ; 3a47 je 3a85          next edge
//! 3a49 movslq (%rbx),%rbp                v
//! 3a4c mov (%r14),%r11                   start of the parents, kept in memory
//! 3a4f lea ; mov ; 3a56 mov (%r11),%ebp ; test ; 3a5b jns 3a40
//! 3a5d mov %r8d,(%r11) ; cmp ; 3a67 je 3ae0 ; lea ; add ; neg ; add
//! 3a77 mov %r12d,(%r11) ; movslq ; add ; cmp ; 3a83 jne 3a49
//! 3a85 mov 0x18(%r9),%rbp ; lea          the queue's end, kept in memory
//! 3a91 add ; lea ; cmp ; 3a9c jb 3a20
//! ```
//!
//! Several threads (OpenMP): graph and parents are reached through the structure that the compiler passes to
//! a parallel region.
//!
//! ```text
//! 3ba0 mov (%r13),%rax ; 3ba4 mov (%r9),%r10d ; 3ba7 mov 0x18(%rax),%rdi
//! 3bab movslq ; add ; 3bb2 mov (%rdi,%rax,8),%rcx ; 3bb6 mov -0x8(%rdi,%rax,8),%rbx
//! 3bbb cmp ; 3bbe jne 3bd1 ; 3bc0 jmp 3c16
//! 3bc8 add ; cmp ; 3bcf je 3c16
//! 3bd1 mov 0x8(%r13),%rax ; 3bd5 movslq (%rbx),%rdi ; 3bd8 mov (%rax),%rax
//! 3bdb mov ; lea ; 3be2 mov (%rdi),%ebp ; test ; 3be6 jns 3bc8
//! 3be8 mov ; 3bea lock cmpxchg %r10d,(%rdi) ; 3bef jne 3bc8
//! 3bf1 cmp ; 3bf8 je 3c78 ; lea ; add ; neg ; add ; 3c08 mov %r12d,(%rax)
//!      movslq ; add ; cmp ; 3c14 jne 3bd1
//! 3c16 add ; cmp ; 3c1d jb 3ba0
//! ```

use pagewalk_stream::flags::{CALL, RETURN, TAKEN};
use pagewalk_structures::prefetch;

use super::{LOCAL, Objects, Worker, locked};
use crate::thread::{NONE, Thread, Value};

/// Prefetch distance in neighbours.
const AHEAD: usize = 8;

impl Worker {
    /// Prefetches the host's visited bit of `vertex`.
    #[inline(always)]
    fn ahead(&self, vertex: u32) -> u32 {
        prefetch(&self.world.visited[(vertex >> 6) as usize]);
        vertex
    }

    /// Processes this thread's part of the frontier, `window` of the queue.
    pub(super) async fn step(&mut self, window: std::ops::Range<usize>) {
        self.call();
        let frontier = locked(&self.world.queue)[window.clone()].to_vec();
        for (place, vertex) in frontier.into_iter().enumerate() {
            let at = (window.start + place) as u64;
            self.vertex(at, vertex, at + 1 < window.end as u64).await;
        }
        self.flush().await;
        self.ret();
    }

    async fn vertex(&mut self, at: u64, vertex: u32, more: bool) {
        let world = self.world.clone();
        let (graph, arrays) = (&world.graph, world.arrays);
        let row = graph.row(vertex);
        let bounds = self.bounds(at, vertex, row.degree == 0);
        // The host would stall on each visited bit. The bits of the next neighbours are known and prefetched.
        let mut targets = [0; AHEAD];
        for i in 0..row.degree.min(AHEAD as u64) {
            targets[i as usize] = self.ahead(graph.neighbour(&row, i));
        }
        for i in 0..row.degree {
            let slot = i as usize % AHEAD;
            let target = targets[slot];
            if i + (AHEAD as u64) < row.degree {
                targets[slot] = self.ahead(graph.neighbour(&row, i + AHEAD as u64));
            }
            let edge = arrays.neighbours + 4 * (row.start + i);
            let place = Place {
                target,
                bounds: [bounds.start.plus(2 + i), bounds.end.plus(1)],
                last: i + 1 == row.degree,
            };
            if let Some(v) = self.edge(edge, &place, &bounds, i) {
                self.flush().await;
                self.append(v, &place, 3);
            }
            if self.t.full() {
                self.t.pause().await;
            }
        }
        let (t, objects) = (&mut self.t, &self.objects);
        if world.threads > 1 {
            t.branch(0x3c1d, 0x3ba0, 3, more, [NONE; 2]);
        } else if row.degree == 0 {
            t.branch(0x3a9c, 0x3a20, 4, more, [NONE; 2]);
        } else {
            t.load(0x3a85, 1, objects.queue + 0x18, 8, [NONE; 2]);
            t.branch(0x3a9c, 0x3a20, 5, more, [NONE; 2]);
        }
        if t.full() {
            t.pause().await;
        }
    }

    /// Takes `vertex` from position `at` of the queue and loads the bounds of its row.
    fn bounds(&mut self, at: u64, vertex: u32, empty: bool) -> Row {
        let arrays = &self.world.arrays;
        let (t, objects) = (&mut self.t, &self.objects);
        let together = self.world.threads > 1;
        let row = arrays.offsets + 8 * u64::from(vertex);
        let va = arrays.queue + 4 * at;
        let (u, index);
        if together {
            let graph = t.load(0x3ba0, 1, objects.shared, 8, [NONE; 2]);
            u = t.load(0x3ba4, 1, va, 4, [NONE; 2]);
            index = t.load(0x3ba7, 1, objects.graph + 0x18, 8, [graph, NONE]);
        } else {
            u = t.load(0x3a20, 1, va, 4, [NONE; 2]);
            index = t.load(0x3a23, 1, objects.graph + 0x18, 8, [NONE; 2]);
        }
        let pcs = if together {
            [0x3bb2, 0x3bb6, 0x3bbe, 0x3bd1, 0x3bc0, 0x3c16]
        } else {
            [0x3a2e, 0x3a32, 0x3a3a, 0x3a49, 0x3a3c, 0x3a91]
        };
        let end = t.load(pcs[0], 3, row + 8, 8, [u.plus(2), index]);
        let start = t.load(pcs[1], 1, row, 8, [u.plus(2), index]);
        t.branch(pcs[2], pcs[3], 2, !empty, [start, end]);
        if empty {
            t.jump(pcs[4], pcs[5], 1, TAKEN, [NONE; 2]);
        }
        Row { u, start, end }
    }

    /// Processes edge `i` of a row. If its end is newly visited but the local list is full, returns the value
    /// that produces its number.
    #[inline(always)]
    fn edge(&mut self, edge: u64, place: &Place, row: &Row, i: u64) -> Option<Value> {
        let new = self.visit(place.target);
        let parent = self.world.arrays.parent + 4 * u64::from(place.target);
        let at = [row.start.plus(1 + i), NONE];
        let together = self.world.threads > 1;
        let (t, objects) = (&mut self.t, &self.objects);
        let v;
        if together {
            let parents = t.load(0x3bd1, 1, objects.shared + 8, 8, [NONE; 2]);
            v = t.load(0x3bd5, 1, edge, 4, at);
            let base = t.load(0x3bd8, 1, objects.parents, 8, [parents, NONE]);
            let old = t.load(0x3be2, 3, parent, 4, [v.plus(1), base.plus(1)]);
            t.branch(0x3be6, 0x3bc8, 2, !new, [old.plus(1), NONE]);
        } else {
            v = t.load(0x3a49, 1, edge, 4, at);
            let base = t.load(0x3a4c, 1, objects.parents, 8, [NONE; 2]);
            let old = t.load(0x3a56, 3, parent, 4, [v.plus(1), base.plus(1)]);
            t.branch(0x3a5b, 0x3a40, 2, !new, [old.plus(1), NONE]);
        }
        if !new {
            let (pc, to) = if together {
                (0x3bcf, 0x3c16)
            } else {
                (0x3a47, 0x3a85)
            };
            t.branch(pc, to, 3, place.last, place.bounds);
            return None;
        }
        if together {
            let swapped = t.atomic(0x3bea, 2, parent, 4, [v.plus(1), row.u]);
            t.branch(0x3bef, 0x3bc8, 1, false, [swapped.plus(1), NONE]);
        } else {
            t.store(0x3a5d, 1, parent, 4, v.plus(1), row.u);
        }
        if self.world.optimizing {
            // A vertex without edges has degree -1.
            self.scout += self.world.graph.row(place.target).degree.max(1);
        }
        let full = self.found.len() as u64 == LOCAL;
        let (pc, to) = if together {
            (0x3bf8, 0x3c78)
        } else {
            (0x3a67, 0x3ae0)
        };
        t.branch(pc, to, 2, full, [NONE; 2]);
        if full {
            return Some(v);
        }
        self.append(v, place, 5);
        None
    }

    /// Appends the vertex that `v` produces to the list, in `insns` instructions.
    #[inline(always)]
    fn append(&mut self, v: Value, place: &Place, insns: u16) {
        let to = self.list + 4 * self.found.len() as u64;
        self.found.push(place.target);
        let [store, branch, next] = if self.world.threads > 1 {
            [0x3c08, 0x3c14, 0x3bd1]
        } else {
            [0x3a77, 0x3a83, 0x3a49]
        };
        self.t.store(store, insns, to, 4, NONE, v);
        self.t.branch(branch, next, 4, !place.last, place.bounds);
    }

    /// Copies the local list to the shared queue.
    pub(super) async fn flush(&mut self) {
        let world = self.world.clone();
        let objects = self.objects;
        let first = {
            let mut queue = locked(&world.queue);
            let first = queue.len() as u64;
            queue.append(&mut self.found);
            first
        };
        let count = locked(&world.queue).len() as u64 - first;
        let t = &mut self.t;
        if world.threads > 1 {
            t.atomic(0x3c2f, 4, objects.queue + 8, 8, [NONE; 2]);
        } else {
            t.store(0x3aa6, 3, objects.queue + 8, 8, NONE, NONE);
        }
        copy(t, self.list, world.arrays.queue + 4 * first, 4 * count).await;
    }

    /// Pushes the return address and six saved registers, and allocates the list.
    fn call(&mut self) {
        let (t, stack) = (&mut self.t, self.stack);
        t.store(0x436d, 1, stack - 8, 8, NONE, NONE);
        t.jump(0x436d, 0x39c0, 0, TAKEN | CALL, [NONE; 2]);
        for i in 0..6 {
            let insns = 1 + u16::from(i == 2);
            t.store(0x39c0 + 2 * i, insns, stack - 16 - 8 * i, 8, NONE, NONE);
        }
        // `operator new` and `malloc`. The last chunk of this size comes from the top of the heap.
        t.compute(0x39e0, 120, 60, [NONE; 2]);
        for i in 0..4 {
            t.load(0x39e5 + 4 * i, 1, self.objects.queue + 8 * i, 8, [NONE; 2]);
        }
        t.branch(0x3a07, 0x3b3f, 5, false, [NONE; 2]);
    }

    fn ret(&mut self) {
        let (t, stack) = (&mut self.t, self.stack);
        t.compute(0x3ac2, 90, 40, [NONE; 2]);
        for i in 0..6 {
            t.load(0x3ace + i, 1, stack - 56 + 8 * i, 8, [NONE; 2]);
        }
        let to = t.load(0x3ad8, 1, stack - 8, 8, [NONE; 2]);
        t.jump(0x3ad8, 0x4372, 0, TAKEN | RETURN, [to, NONE]);
    }
}

/// An edge of a row.
struct Place {
    /// Target of the edge.
    target: u32,
    /// Operands of the loop's final comparison.
    bounds: [Value; 2],
    last: bool,
}

/// Values that produce a vertex and the bounds of its row.
struct Row {
    u: Value,
    start: Value,
    end: Value,
}

/// glibc's `memcpy` with 32-byte registers: 128 bytes per iteration.
async fn copy(t: &mut Thread, from: u64, to: u64, bytes: u64) {
    const PC: u64 = 0xe000;
    let mut at = 0;
    while at < bytes {
        let turn = (bytes - at).min(128);
        let pieces = turn.div_ceil(32);
        let size = |i: u64| (turn - 32 * i).min(32) as u8;
        let mut read = [NONE; 4];
        for i in 0..pieces {
            read[i as usize] = t.load(PC + 5 * i, 1, from + at + 32 * i, size(i), [NONE; 2]);
        }
        for i in 0..pieces {
            let value = read[i as usize];
            t.store(PC + 20 + 5 * i, 1, to + at + 32 * i, size(i), NONE, value);
        }
        at += turn;
        t.branch(PC + 0x34, PC, 4, at < bytes, [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

impl Objects {
    /// Addresses in the frames of `main` and of the search, above the step's at `stack`. With several
    /// threads, in those of the first.
    pub(super) fn new(stack: u64) -> Self {
        Objects {
            graph: stack + 0x80,
            parents: stack + 0x10,
            queue: stack + 0x40,
            shared: stack + 0x60,
        }
    }
}
