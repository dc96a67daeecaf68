//! `std::priority_queue` of pairs of vertex and distance, the nearest on top: a binary heap in a
//! `std::vector`.
//!
//! g++ 12.2 -O3. Pop: 650 the last pair moves to a register and the first to its place ; 6ab the hole sinks,
//! each time to the nearer child: 6c1 `mov 8(%rcx),%r8` (right) ; 6cc `mov 8(%rdi),%r14` (left) ; cmp ; 6d3
//! jae ; 6de copy ; 6f6 jg 6ab ; 743 then the last pair rises: 754 `mov 8(%rsi),%rcx` ; cmp ; 75b jb 710 ;
//! 710 copy. Push: 54d pair to the stack ; 552 capacity ; 567 to the end ; 5f4 rises, in the same way.

use crate::heap::Heap;
use crate::thread::{NONE, Thread, Value};

/// Bytes of a pair.
const PAIR: u64 = 16;
/// Code of `_M_realloc_insert`.
const GROW: u64 = 0xd200;

/// The queue.
pub(super) struct Queue {
    /// Address of the vector's begin, end and capacity.
    header: u64,
    pairs: Vec<(u32, u32)>,
    at: u64,
    capacity: u64,
}

impl Queue {
    pub(super) fn new(header: u64) -> Self {
        Queue {
            header,
            pairs: Vec::new(),
            at: 0,
            capacity: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Frees its memory.
    pub(super) fn free(self, heap: &mut Heap) {
        if self.capacity > 0 {
            heap.free(self.at, PAIR * self.capacity);
        }
    }

    fn place(&self, index: usize) -> u64 {
        self.at + PAIR * index as u64
    }

    /// Adds a pair. `distance` produces its second half.
    #[inline]
    pub(super) async fn push(
        &mut self,
        t: &mut Thread,
        heap: &mut Heap,
        pair: (u32, u32),
        distance: Value,
    ) {
        t.store(0x54d, 2, self.header - 0x10, 16, NONE, distance);
        let end = t.load(0x548, 1, self.header + 8, 8, [NONE; 2]);
        let capacity = t.load(0x552, 1, self.header + 16, 8, [NONE; 2]);
        let full = self.pairs.len() as u64 == self.capacity;
        t.branch(0x557, 0x7dd, 1, full, [end, capacity]);
        if full {
            self.grow(t, heap).await;
        }
        let mut hole = self.pairs.len();
        let stored = t.load(0x55d, 1, self.header - 0x10, 16, [NONE; 2]);
        t.store(0x567, 2, self.place(hole), 16, end, stored);
        t.store(0x56b, 1, self.header + 8, 8, NONE, end.plus(1));
        let begin = t.load(0x570, 1, self.header, 8, [NONE; 2]);
        let last = t.load(0x575, 1, self.place(hole), 16, [NONE; 2]);
        self.pairs.push(pair);
        t.branch(0x5a4, 0x5e3, 12, hole > 0, [begin, end]);
        hole = self.up(t, [0x5f4, 0x5fb, 0x5b0, 0x5da], hole, pair, last);
        t.store(0x5fd, 1, self.place(hole), 16, NONE, last);
    }

    /// Moves ancestors that are farther than `pair` down. Returns the position for `pair`.
    #[inline(always)]
    fn up(
        &mut self,
        t: &mut Thread,
        pc: [u64; 4],
        mut hole: usize,
        pair: (u32, u32),
        own: Value,
    ) -> usize {
        while hole > 0 {
            let parent = (hole - 1) / 2;
            let farther = self.pairs[parent].1 > pair.1;
            let theirs = t.load(pc[0], 7, self.place(parent) + 8, 8, [NONE; 2]);
            t.branch(pc[1], pc[2], 2, farther, [theirs, own]);
            if !farther {
                break;
            }
            let first = t.load(pc[2], 1, self.place(parent), 8, [NONE; 2]);
            t.store(pc[2] + 9, 4, self.place(hole), 16, NONE, first);
            t.branch(pc[3], pc[2] + 0x10, 8, parent == 0, [NONE; 2]);
            self.pairs[hole] = self.pairs[parent];
            hole = parent;
        }
        self.pairs[hole] = pair;
        hole
    }

    /// Removes the nearest vertex. Returns it and the value that produces its number.
    #[inline]
    pub(super) async fn pop(&mut self, t: &mut Thread) -> Option<(u32, Value)> {
        let (top, _) = *self.pairs.first()?;
        let id = t.load(0x404, 2, self.at, 8, [NONE; 2]);
        let last = self.pairs.len() - 1;
        t.branch(0x412, 0x650, 4, last > 0, [NONE; 2]);
        let pair = self.pairs.pop()?;
        if last == 0 {
            return Some((top, id));
        }
        let value = t.load(0x653, 2, self.place(last), 16, [NONE; 2]);
        let rest = t.load(0x660, 3, self.at + 8, 8, [NONE; 2]);
        t.store(0x66a, 3, self.place(last), 16, NONE, rest);
        t.branch(0x693, 0x80e, 12, last <= 2, [NONE; 2]);
        let mut hole = 0;
        let mut from = NONE;
        while hole < (last - 1) / 2 {
            let right = 2 * (hole + 1);
            let nearer_left = self.pairs[right].1 > self.pairs[right - 1].1;
            let r = t.load(0x6c1, 7, self.place(right) + 8, 8, [from, NONE]);
            let l = t.load(0x6cc, 3, self.place(right - 1) + 8, 8, [from, NONE]);
            t.branch(0x6d3, 0x6de, 2, !nearer_left, [r, l]);
            let child = right - usize::from(nearer_left);
            let moves = if nearer_left { 4 } else { 1 };
            from = t.load(0x6de, moves, self.place(child), 8, [NONE; 2]);
            t.store(0x6ef, 4, self.place(hole), 16, NONE, from);
            self.pairs[hole] = self.pairs[child];
            hole = child;
            t.branch(0x6f6, 0x6a8, 2, hole < (last - 1) / 2, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
        let even = last.is_multiple_of(2) && hole == (last - 2) / 2;
        t.branch(0x700, 0x79b, 3, even, [NONE; 2]);
        if even {
            let child = 2 * hole + 1;
            let only = t.load(0x7be, 11, self.place(child), 16, [NONE; 2]);
            t.store(0x7ca, 3, self.place(hole), 16, NONE, only);
            self.pairs[hole] = self.pairs[child];
            hole = child;
        }
        if hole < last {
            hole = self.up(t, [0x754, 0x75b, 0x710, 0x73a], hole, pair, value);
            t.store(0x75d, 1, self.place(hole), 16, NONE, value);
        }
        Some((top, id))
    }

    #[cold]
    async fn grow(&mut self, t: &mut Thread, heap: &mut Heap) {
        let capacity = (2 * self.capacity).max(1);
        let at = heap.malloc(PAIR * capacity);
        heap.emit_pending_untouched(t).await;
        t.call(0x7e4, GROW, 3, 0x680);
        t.compute(GROW + 0x20, 60, 40, [NONE; 2]);
        for i in 0..self.pairs.len() {
            let pair = t.load(GROW + 0x40, 1, self.place(i), 16, [NONE; 2]);
            t.store(GROW + 0x44, 3, at + PAIR * i as u64, 16, NONE, pair);
            t.branch(
                GROW + 0x50,
                GROW + 0x40,
                2,
                i + 1 < self.pairs.len(),
                [NONE; 2],
            );
            if t.full() {
                t.pause().await;
            }
        }
        if self.capacity > 0 {
            heap.free(self.at, PAIR * self.capacity);
        }
        heap.emit_pending_untouched(t).await;
        (self.at, self.capacity) = (at, capacity);
        for member in 0..3 {
            t.store(
                GROW + 0x60 + 4 * member,
                1,
                self.header + 8 * member,
                8,
                NONE,
                NONE,
            );
        }
        t.ret(GROW + 0x70, 0x7e4, 8, 0x680);
    }
}
