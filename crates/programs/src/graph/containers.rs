//! `std::deque` of pointers, as `std::queue` and `std::stack` use it.
//!
//! Elements are stored in nodes of 512 bytes. A map holds the nodes' addresses and is replaced by a larger
//! one when full. Push and pop (g++ 12.2 -O3), with the iterators in the caller's frame:
//!
//! ```text
//! push   0  mov last,%rdi ; lea -8(%rdi),%rdx ; cmp ; 9 je (next node)
//!       10  mov %rax,(%r8) ; add $8,%r8 ; 17 mov %r8,finish
//! front  0  mov last,%rsi ; 5 mov (%rax),%r15 ; lea ; cmp ; f je (next node)
//!       15  add $8,%rax ; 18 mov %rax,start
//! ```

use std::collections::VecDeque;

use pagewalk_stream::flags::{INDIRECT, TAKEN};

use crate::heap::Heap;
use crate::thread::{NONE, Thread, Value};

/// `_S_buffer_size()`: elements of 8 bytes in a node of 512.
const EACH: usize = 64;
const NODE: u64 = 512;
/// Code of `_M_push_back_aux` and `operator delete`.
const NEXT_NODE: u64 = 0xd000;
const LAST_NODE: u64 = 0xd100;

/// Code of the allocator, and the stack offset of its working memory: these lines always hit the L1 cache.
const ALLOCATOR: u64 = 0xd500;
const RELEASE: u64 = 0xd900;
const ITS_OWN: u64 = 0x900;

/// Cost of a function: instructions, loads, stores, conditional branches.
#[derive(Clone, Copy)]
struct Cost {
    insns: u16,
    loads: u64,
    stores: u64,
    branches: u64,
}

/// Origin and destination of objects. Costs of glibc 2.36 from callgrind.
#[derive(Clone, Copy)]
pub enum From {
    /// The thread cache: few objects are in use at a time.
    List,
    /// Mostly the fast bin, as many objects are freed in a row. The cost is the mean over a betweenness
    /// centrality of 128 vertices.
    Bin,
}

impl From {
    fn new_and_delete(self) -> [Cost; 2] {
        let cost = |insns, loads, stores, branches| Cost {
            insns,
            loads,
            stores,
            branches,
        };
        match self {
            From::List => [cost(57, 14, 8, 8), cost(88, 28, 15, 13)],
            From::Bin => [cost(85, 23, 13, 14), cost(111, 33, 14, 21)],
        }
    }
}

/// Calls `operator new`, in kernels that allocate often enough to matter. It reads and writes `words` of the
/// object's chunk, unless they are sure to be in the cache.
pub fn allocate(t: &mut Thread, pc: u64, from: From, words: Option<[u64; 2]>) {
    let [cost, _] = from.new_and_delete();
    library(t, pc, ALLOCATOR, cost, words);
}

/// Calls `operator delete`, likewise.
pub fn release(t: &mut Thread, pc: u64, from: From, words: Option<[u64; 2]>) {
    let [_, cost] = from.new_and_delete();
    library(t, pc, RELEASE, cost, words);
}

/// Calls the function at `code` from `pc`. Its cost includes the call and the return.
fn library(t: &mut Thread, pc: u64, code: u64, cost: Cost, words: Option<[u64; 2]>) {
    let own = t.stack - ITS_OWN;
    t.call(pc, code, 1, 0x680);
    let mut at = code + 8;
    let mut next = || {
        at += 8;
        at
    };
    let mut read = NONE;
    for i in 0..cost.loads - 1 {
        let va = match words {
            Some([word, _]) if i == 0 => word,
            _ => own + 8 * (i % 16),
        };
        read = t.load(next(), 1, va, 8, [NONE; 2]);
    }
    for i in 0..cost.stores - 1 {
        let va = match words {
            Some([_, word]) if i == 0 => word,
            _ => own + 8 * i,
        };
        t.store(next(), 1, va, 8, NONE, NONE);
    }
    for _ in 0..cost.branches {
        let pc = next();
        t.branch(pc, pc + 0x200, 1, false, [read, NONE]);
    }
    // `jmp *slot`, twice: the stub's, and the operator's jump to its function.
    for _ in 0..2 {
        let pc = next();
        t.jump(pc, pc + 8, 1, TAKEN | INDIRECT, [read, NONE]);
    }
    let named = cost.stores + cost.loads + cost.branches + 2;
    t.compute(next(), cost.insns - named as u16, 10, [read, NONE]);
    t.ret(next(), pc, 1, 0x680);
}

/// A deque. `frame` is the address of its iterators.
pub struct Deque {
    frame: u64,
    items: VecDeque<u32>,
    nodes: VecDeque<u64>,
    /// Free elements before the first.
    before: usize,
    map: u64,
    slots: u64,
}

impl Deque {
    /// An empty deque, with its first node and a map of eight.
    pub fn new(heap: &mut Heap, frame: u64) -> Self {
        let map = heap.malloc(64);
        Deque {
            frame,
            items: VecDeque::new(),
            nodes: VecDeque::from([heap.malloc(NODE)]),
            before: 0,
            map,
            slots: 8,
        }
    }

    /// Frees its memory.
    pub fn free(self, heap: &mut Heap) {
        for node in self.nodes {
            heap.free(node, NODE);
        }
        heap.free(self.map, 8 * self.slots);
    }

    /// True if the deque has no elements.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn end(&self) -> usize {
        self.before + self.items.len()
    }

    /// Allocates memory for the next [`push`](Self::push). The caller then emits the heap's events.
    #[inline(always)]
    pub fn make_room(&mut self, heap: &mut Heap) {
        if self.end() % EACH == EACH - 1 && self.nodes.len() == self.end() / EACH + 1 {
            self.add_node(heap);
        }
    }

    #[cold]
    fn add_node(&mut self, heap: &mut Heap) {
        if self.nodes.len() as u64 + 2 > self.slots {
            let slots = 2 * self.slots + 2;
            let map = heap.malloc(8 * slots);
            heap.free(self.map, 8 * self.slots);
            (self.map, self.slots) = (map, slots);
        }
        self.nodes.push_back(heap.malloc(NODE));
    }

    fn place(&self, at: usize) -> u64 {
        self.nodes[at / EACH] + 8 * (at % EACH) as u64
    }

    /// Appends `vertex` with address `value`. Call [`make_room`](Self::make_room) first.
    #[inline(always)]
    pub fn push(&mut self, t: &mut Thread, pc: u64, vertex: u32, value: Value) {
        let end = self.end();
        let at = self.place(end);
        let full = end % EACH == EACH - 1;
        let last = t.load(pc, 1, self.frame + 0x40, 8, [NONE; 2]);
        t.branch(pc + 9, pc + 0x80, 3, full, [last, NONE]);
        if full {
            // The map's next entry, and the iterator's four members.
            let entry = self.map + 8 * (end / EACH + 1) as u64 % (8 * self.slots);
            t.call(pc + 0x8a, NEXT_NODE, 3, 0x680);
            let node = t.load(NEXT_NODE + 0x20, 12, self.frame + 0x48, 8, [NONE; 2]);
            let memory = t.compute(NEXT_NODE + 0x40, 30, 20, [NONE; 2]);
            t.store(NEXT_NODE + 0x50, 2, entry, 8, node, memory);
            t.store(NEXT_NODE + 0x58, 1, at, 8, NONE, value);
            for member in 0..4 {
                let va = self.frame + 0x30 + 8 * member;
                t.store(NEXT_NODE + 0x60 + 5 * member, 2, va, 8, NONE, memory);
            }
            t.ret(NEXT_NODE + 0x80, pc + 0x8a, 4, 0x680);
        } else {
            t.store(pc + 0x10, 1, at, 8, NONE, value);
            t.store(pc + 0x17, 2, self.frame + 0x30, 8, NONE, NONE);
        }
        self.items.push_back(vertex);
    }

    /// Removes the first element. Returns it and the value that produces its address.
    #[inline(always)]
    pub fn pop_front(&mut self, t: &mut Thread, heap: &mut Heap, pc: u64) -> Option<(u32, Value)> {
        let at = self.place(self.before);
        let vertex = self.items.pop_front()?;
        let last = t.load(pc, 1, self.frame + 0x20, 8, [NONE; 2]);
        let value = t.load(pc + 5, 1, at, 8, [NONE; 2]);
        self.before += 1;
        let emptied = self.before == EACH;
        t.branch(pc + 0xf, pc + 0x171, 3, emptied, [last, NONE]);
        if emptied {
            self.before = 0;
            if let Some(node) = self.nodes.pop_front() {
                t.call(pc + 0x176, LAST_NODE, 2, 0x680);
                t.compute(LAST_NODE + 0x10, 25, 10, [NONE; 2]);
                t.store(LAST_NODE + 0x30, 2, node, 8, NONE, NONE);
                t.ret(LAST_NODE + 0x40, pc + 0x176, 3, 0x680);
                heap.free(node, NODE);
            }
            for member in 0..4 {
                let va = self.frame + 0x10 + 8 * member;
                t.store(pc + 0x180 + 5 * member, 2, va, 8, NONE, NONE);
            }
        } else {
            t.store(pc + 0x18, 2, self.frame + 0x10, 8, NONE, NONE);
        }
        Some((vertex, value))
    }

    /// Removes the last element. Returns it and the value that produces its address. Frees the next node if
    /// the element was the first of its own node.
    #[inline(always)]
    pub fn pop_back(&mut self, t: &mut Thread, heap: &mut Heap, pc: u64) -> Option<(u32, Value)> {
        let vertex = self.items.pop_back()?;
        let end = self.end();
        let first = t.load(pc, 1, self.frame + 0x38, 8, [NONE; 2]);
        let emptied = end % EACH == EACH - 1;
        t.branch(pc + 5, pc + 0x160, 2, emptied, [first, NONE]);
        if emptied
            && self.nodes.len() > end / EACH + 1
            && let Some(node) = self.nodes.pop_back()
        {
            t.call(pc + 0x176, LAST_NODE, 2, 0x680);
            t.compute(LAST_NODE + 0x10, 25, 10, [NONE; 2]);
            t.store(LAST_NODE + 0x30, 2, node, 8, NONE, NONE);
            t.ret(LAST_NODE + 0x40, pc + 0x176, 3, 0x680);
            heap.free(node, NODE);
        }
        let value = t.load(pc + 0x10, 1, self.place(end), 8, [NONE; 2]);
        t.store(pc + 0x18, 2, self.frame + 0x30, 8, NONE, NONE);
        Some((vertex, value))
    }
}
