//! The instructions: what gcc 12.2 -O2 makes of GAP's top-down step, and the ops
//! that stand for them.
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

use pagewalk_stream::{Batch, Kind, Op, flags};

use super::super::layout::CODE;

/// Most ops that one call of a function below appends.
pub const MOST_OPS: usize = 16;

/// Where the arrays lie.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrays {
    /// u64 a vertex, and one more.
    pub offsets: u64,
    /// u32 an edge.
    pub neighbours: u64,
    /// i32 a vertex.
    pub parent: u64,
    /// u32 a vertex.
    pub queue: u64,
    /// The barrier's counter; several threads.
    pub barrier: u64,
}

/// Appends one thread's ops and remembers where producers are.
#[derive(Clone, Debug, Default)]
pub struct Emitter {
    /// Ops of this thread so far.
    ops: u64,
    /// Stack pointer at the call of the step.
    stack: u64,
    vertex_load: u64,
    start_load: u64,
    end_load: u64,
}

/// An edge under way.
#[derive(Clone, Copy)]
pub struct Edge {
    /// Its place in the row, and among all edges.
    pub i: u64,
    pub at: u64,
    pub neighbour: u32,
    /// Not visited before: where it is listed. One thread: the place in the
    /// queue; several: the address in the thread's own list.
    pub claim: Option<u64>,
    /// The row ends here.
    pub last: bool,
}

fn outcome(taken: bool) -> u8 {
    if taken { flags::TAKEN } else { 0 }
}

/// `add`s since the row's start was loaded, as latency.
fn chain(steps: u64) -> u8 {
    steps.min(255) as u8
}

impl Emitter {
    /// For a thread whose stack pointer is `stack` when it calls the step.
    pub fn new(stack: u64) -> Self {
        Emitter {
            stack,
            ..Emitter::default()
        }
    }

    #[inline(always)]
    fn push(&mut self, batch: &mut Batch, op: Op) {
        self.ops += 1;
        batch.ops.push(op);
    }

    /// How far back the op numbered `producer` is; too far to matter is none.
    #[inline(always)]
    fn back(&self, producer: u64) -> u16 {
        u16::try_from(self.ops - producer).unwrap_or(0)
    }

    #[inline(always)]
    fn load(&mut self, batch: &mut Batch, pc: u64, insns: u16, va: u64, size: u8, from: (u16, u8)) {
        self.push(
            batch,
            Op {
                pc: CODE + pc,
                va,
                insns,
                dep: [from.0, 0],
                dep_latency: [from.1, 0],
                kind: Kind::Load,
                size,
                ..Op::default()
            },
        );
    }

    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a thing of its own, lent for the call"
    )]
    fn store(
        &mut self,
        batch: &mut Batch,
        pc: u64,
        insns: u16,
        va: u64,
        size: u8,
        address: (u16, u8),
        data: (u16, u8),
    ) {
        self.push(
            batch,
            Op {
                pc: CODE + pc,
                va,
                insns,
                dep: [address.0, data.0],
                dep_latency: [address.1, data.1],
                kind: Kind::Store,
                size,
                ..Op::default()
            },
        );
    }

    #[inline(always)]
    fn branch(
        &mut self,
        batch: &mut Batch,
        pc: (u64, u64),
        insns: u16,
        taken: bool,
        from: [(u16, u8); 2],
    ) {
        self.push(
            batch,
            Op {
                pc: CODE + pc.0,
                va: CODE + pc.1,
                insns,
                dep: [from[0].0, from[1].0],
                dep_latency: [from[0].1, from[1].1],
                latency: 1,
                kind: Kind::Branch,
                flags: flags::CONDITIONAL | outcome(taken),
                ..Op::default()
            },
        );
    }

    /// Calls the step: return address and four saved registers go to the stack.
    pub fn enter(&mut self, batch: &mut Batch) {
        let none = (0, 0);
        self.store(batch, 0x200, 1, self.stack - 8, 8, none, none);
        self.push(
            batch,
            Op {
                pc: CODE + 0x200,
                va: CODE,
                insns: 0,
                latency: 1,
                kind: Kind::Branch,
                flags: flags::TAKEN | flags::CALL,
                ..Op::default()
            },
        );
        for (i, pc) in [0x00, 0x02, 0x04, 0x05].into_iter().enumerate() {
            let va = self.stack - 16 - 8 * i as u64;
            self.store(batch, pc, 1, va, 8, none, none);
        }
        self.push(
            batch,
            Op {
                pc: CODE + 0x22,
                insns: 9,
                latency: 2,
                ..Op::default()
            },
        );
    }

    /// Returns from the step.
    pub fn leave(&mut self, batch: &mut Batch) {
        for (i, pc) in [0x7e, 0x82, 0x83, 0x85].into_iter().enumerate() {
            let va = self.stack - 40 + 8 * i as u64;
            self.load(batch, pc, 1 + u16::from(i == 1), va, 8, (0, 0));
        }
        self.load(batch, 0x87, 1, self.stack - 8, 8, (0, 0));
        self.push(
            batch,
            Op {
                pc: CODE + 0x87,
                va: CODE + 0x205,
                insns: 0,
                dep: [1, 0],
                latency: 1,
                kind: Kind::Branch,
                flags: flags::TAKEN | flags::RETURN,
                ..Op::default()
            },
        );
    }

    /// Takes `vertex` from place `at` of the queue and reads its row's bounds.
    #[inline]
    pub fn vertex(
        &mut self,
        batch: &mut Batch,
        a: &Arrays,
        parallel: bool,
        at: u64,
        vertex: u32,
        empty: bool,
    ) {
        let pcs = if parallel {
            [0xc0, 0xca, 0xce, 0xd6, 0x118]
        } else {
            [0x28, 0x33, 0x37, 0x3f, 0x75]
        };
        self.vertex_load = self.ops;
        self.load(batch, pcs[0], 1, a.queue + 4 * at, 4, (0, 0));
        let row = a.offsets + 8 * u64::from(vertex);
        self.end_load = self.ops;
        self.load(batch, pcs[1], 3, row + 8, 8, (1, 1));
        self.start_load = self.ops;
        self.load(batch, pcs[2], 1, row, 8, (2, 1));
        self.branch(batch, (pcs[3], pcs[4]), 2, empty, [(1, 0), (2, 0)]);
        if parallel && !empty {
            self.push(
                batch,
                Op {
                    pc: CODE + 0xe0,
                    va: CODE + 0xf1,
                    insns: 3,
                    latency: 1,
                    kind: Kind::Branch,
                    flags: flags::TAKEN,
                    ..Op::default()
                },
            );
        }
    }

    /// Goes on to the next vertex of the frontier, when there is one.
    #[inline]
    pub fn vertex_end(&mut self, batch: &mut Batch, parallel: bool, more: bool) {
        let pc = if parallel {
            (0x11f, 0xc0)
        } else {
            (0x7c, 0x28)
        };
        self.branch(batch, pc, 3, more, [(0, 0), (0, 0)]);
    }

    /// An edge, serial.
    #[inline(always)]
    pub fn edge(&mut self, batch: &mut Batch, a: &Arrays, edge: Edge) {
        let Edge {
            i,
            at,
            neighbour,
            claim,
            last,
        } = edge;
        let row = (self.back(self.start_load), chain(1 + i));
        let nops = if i == 0 { 3 } else { 0 };
        self.load(batch, 0x50, 1 + nops, a.neighbours + 4 * at, 4, row);
        let parent = a.parent + 4 * u64::from(neighbour);
        self.load(batch, 0x59, 3, parent, 4, (1, 1));
        self.branch(batch, (0x5f, 0x6c), 2, claim.is_none(), [(1, 1), (0, 0)]);
        let mut insns = 3;
        if let Some(tail) = claim {
            let vertex = (self.back(self.vertex_load), 0);
            self.store(batch, 0x61, 1, parent, 4, (3, 1), vertex);
            self.store(batch, 0x64, 1, a.queue + 4 * tail, 4, (0, 0), (4, 0));
            insns = 4;
        }
        let bounds = [
            (self.back(self.start_load), chain(2 + i)),
            (self.back(self.end_load), 1),
        ];
        self.branch(batch, (0x73, 0x50), insns, !last, bounds);
    }

    /// An edge, with other threads beside.
    #[inline(always)]
    pub fn edge_parallel(&mut self, batch: &mut Batch, a: &Arrays, edge: Edge) {
        let Edge {
            i,
            at,
            neighbour,
            claim,
            last,
        } = edge;
        let row = (self.back(self.start_load), chain(1 + i));
        self.load(batch, 0xf1, 1, a.neighbours + 4 * at, 4, row);
        let parent = a.parent + 4 * u64::from(neighbour);
        self.load(batch, 0xfa, 3, parent, 4, (1, 1));
        self.branch(batch, (0xfe, 0xe8), 2, claim.is_none(), [(1, 1), (0, 0)]);
        let loop_end = if let Some(at) = claim {
            self.push(
                batch,
                Op {
                    pc: CODE + 0x100,
                    va: parent,
                    insns: 1,
                    dep: [3, 0],
                    dep_latency: [1, 0],
                    kind: Kind::Load,
                    size: 4,
                    flags: flags::SERIALISING,
                    ..Op::default()
                },
            );
            let vertex = (self.back(self.vertex_load), 0);
            self.store(batch, 0x100, 0, parent, 4, (4, 1), vertex);
            self.branch(batch, (0x105, 0xe8), 1, false, [(2, 1), (0, 0)]);
            self.store(batch, 0x10b, 2, at, 4, (0, 0), (6, 1));
            ((0x116, 0xf1), !last)
        } else {
            ((0xef, 0x118), last)
        };
        let bounds = [
            (self.back(self.start_load), chain(2 + i)),
            (self.back(self.end_load), 1),
        ];
        self.branch(batch, loop_end.0, 3, loop_end.1, bounds);
    }

    /// One turn of glibc's `memset` with 32-byte registers: 128 bytes at `va`.
    pub fn memset(&mut self, batch: &mut Batch, va: u64, more: bool) {
        for i in 0..4 {
            self.store(batch, 0x300 + 5 * i, 1, va + 32 * i, 32, (0, 0), (0, 0));
        }
        self.branch(batch, (0x320, 0x300), 3, more, [(0, 0), (0, 0)]);
    }

    /// `parent[root] = root`.
    pub fn set_parent(&mut self, batch: &mut Batch, a: &Arrays, root: u32) {
        let va = a.parent + 4 * u64::from(root);
        self.store(batch, 0x330, 2, va, 4, (0, 0), (0, 0));
    }

    /// `queue[0] = root`.
    pub fn set_queue(&mut self, batch: &mut Batch, a: &Arrays) {
        self.store(batch, 0x338, 1, a.queue, 4, (0, 0), (0, 0));
    }

    /// Moves one vertex from this thread's own list to the shared queue.
    pub fn copy(&mut self, batch: &mut Batch, from: u64, to: u64, more: bool) {
        self.load(batch, 0x180, 1, from, 4, (0, 0));
        self.store(batch, 0x183, 1, to, 4, (0, 0), (1, 0));
        self.branch(batch, (0x18d, 0x180), 3, more, [(0, 0), (0, 0)]);
    }

    /// Arrives at the barrier: `lock add`.
    pub fn barrier(&mut self, batch: &mut Batch, a: &Arrays) {
        self.push(
            batch,
            Op {
                pc: CODE + 0x1a0,
                va: a.barrier,
                insns: 1,
                kind: Kind::Load,
                size: 8,
                flags: flags::SERIALISING,
                ..Op::default()
            },
        );
        self.store(batch, 0x1a0, 0, a.barrier, 8, (0, 0), (1, 1));
    }
}
