//! GraphBIG's level-synchronous search with several threads.
//!
//! A vertex belongs to the thread given by its number modulo the number of threads. Each thread processes its
//! own list, claims vertices by compare-and-swap, and appends them to a list for their owner. Each then
//! gathers its own vertices for the next level.
//!
//! ```text
//! while (!stop) {
//!     barrier; stop = true;
//!     for (vid : input[tid]) {
//!         u = g.find_vertex(vid); level = u->level;
//!         for (e = u->edges_begin(); e != u->edges_end(); e++) {
//!             v = g.find_vertex(e->target());
//!             if (cas(&v->level, INFINITY, level + 1)) output[tid][v % threads].push_back(v);
//!         }
//!     }
//!     barrier;
//!     input[tid].clear();
//!     for (i : threads) if (output[i][tid].size()) { stop = false; append to input[tid]; clear }
//!     barrier;
//! }
//! ```
//!
//! g++ 12.2 -O3 -fopenmp: 220 `mov (%r8,%rdx,8),%rbx` ; find_vertex ; 268 `mov
//! level,%rax` ; 26c edges_begin ; two spills ; 290 target, find_vertex ; 2c8
//! `mov` ; `lock cmpxchg` ; jne 303 ; `mov`, `mov`, `xor`, `div`, `mov (%r10)`,
//! `add`, `lea`, `lea`, `mov end`, `cmp capacity`, `je`, `mov %rbx,(%rax)`,
//! `add`, `mov %rax,end` ; 303 next edge, `je 3a8` ; 310 the map's base and
//! buckets again ; `jmp 290` ; 3a8 two spills back, the list's bounds, 9 more.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pagewalk_stream::flags::TAKEN;

use super::kernel::{World, bounds, copy};
use super::layout::Layout;
use super::search::NOT_REACHED;
use crate::thread::{NONE, Thread};

/// Cycles of a 32-bit division: 12 on Intel's cores since Ice Lake (A. Fog,
/// Instruction tables).
pub const DIVIDE: u64 = 12;

/// Stores to a vertex when it is discovered.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Property written by compare-and-swap.
    pub level: usize,
    /// Size of that property in bytes.
    pub level_bytes: u8,
    /// Another property, written afterwards, and its size in bytes.
    pub label: Option<(usize, u8)>,
}

/// Searches from `root`, called by each thread. `levels` are all [`NOT_REACHED`] before, and the result
/// afterwards. `reached` is called for each discovered vertex.
pub async fn sweep<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    root: u32,
    claim: Claim,
    levels: &[AtomicU32],
    reached: impl Fn(u32),
) {
    let lists = world.lists();
    let threads = world.threads;
    if thread == 0 {
        let v = world.memory().find(t, 0x110, root, NONE, false);
        let (va, from) = world.memory().field(v, claim.level);
        t.store(0x160, 2, va, claim.level_bytes, from, NONE);
        levels[root as usize].store(0, Relaxed);
        world.send(0, root % threads, root);
        let (at, header) = lists.input(root % threads);
        t.store(0x170, 4, at, 8, NONE, NONE);
        t.store(0x178, 2, header + 8, 8, NONE, NONE);
        t.store(0x180, 1, lists.stop, 1, NONE, NONE);
    }
    world.barrier(t, 0x1a0).await;
    let mut input = world.receive(thread);
    loop {
        world.barrier(t, 0x1dc).await;
        world.set_stop(true);
        t.store(0x1eb, 4, lists.stop, 1, NONE, NONE);
        scan(world, t, thread, &input, claim, levels, &reached).await;
        world.barrier(t, 0x3d3).await;
        input = gather(world, t, thread).await;
        world.barrier(t, 0x644).await;
        let stop = t.load(0x64e, 2, lists.stop, 1, [NONE; 2]);
        t.branch(0x651, 0x1dc, 1, !world.stop(), [stop, NONE]);
        if world.stop() {
            break;
        }
    }
}

async fn scan<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    input: &[u32],
    claim: Claim,
    levels: &[AtomicU32],
    reached: &impl Fn(u32),
) {
    let (memory, graph, lists) = (world.memory(), &world.graph, world.lists());
    let (list, header) = lists.input(thread);
    let frame = t.stack - 0x200;
    let [mut begin, end] = bounds(t, 0x1f3, header);
    t.branch(0x1fd, 0x3d3, 2, input.is_empty(), [begin, end]);
    for (i, vertex) in input.iter().enumerate() {
        let id = t.load(0x220, 1, list + 8 * i as u64, 8, [begin, NONE]);
        let u = memory.find(t, 0x224, *vertex, id, false);
        let (va, from) = memory.field(u, claim.level);
        let level = t.load(0x268, 1, va, claim.level_bytes, [from, NONE]);
        let mine = levels[*vertex as usize].load(Relaxed);
        let mut edges = memory.edges(t, 0x26c, 0x3b7, graph, u);
        if edges.is_some() {
            t.store(0x27d, 1, frame, 8, NONE, NONE);
            t.store(0x287, 3, frame + 8, 4, NONE, NONE);
        }
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x290, graph, present);
            let v = memory.find(t, 0x28d, target, id, true);
            let (va, from) = memory.field(v, claim.level);
            let old = t.atomic(0x2cd, 2, va, claim.level_bytes, [from, level.plus(1)]);
            let won = levels[target as usize].load(Relaxed) == NOT_REACHED;
            t.branch(0x2d3, 0x303, 1, !won, [old, NONE]);
            if won {
                levels[target as usize].store(mine + 1, Relaxed);
                reached(target);
                if let Some((label, bytes)) = claim.label {
                    let (va, from) = memory.field(v, label);
                    t.store(0x2d4, 1, va, bytes, from, NONE);
                }
                let owner = target % world.threads;
                let (list, header) = lists.output(thread, owner);
                let length = world.send(thread, owner, target);
                let vectors = t.load(0x2e0, 5, frame + 0x50, 8, [NONE; 2]);
                let at = [id.plus(1 + DIVIDE), vectors];
                let end = t.load(0x2ee, 4, header + 8, 8, at);
                let capacity = t.load(0x2f2, 1, header + 16, 8, at);
                t.branch(0x2f6, 0x328, 1, false, [capacity, end]);
                t.store(0x2f8, 1, list + 8 * length, 8, end, id);
                t.store(0x2ff, 2, header + 8, 8, at[0], end.plus(1));
            }
            if memory.advance(t, 0x303, 0x310, present) {
                memory.reload(t, 0x310);
                t.jump(0x318, 0x290, 1, TAKEN, [NONE; 2]);
            } else {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.load(0x3a8, 1, frame, 8, [NONE; 2]);
        t.load(0x3ac, 1, frame + 8, 4, [NONE; 2]);
        let again = bounds(t, 0x3b0, header);
        begin = again[0];
        t.branch(0x3ca, 0x220, 7, i + 1 < input.len(), again);
        if t.full() {
            t.pause().await;
        }
    }
}

/// Takes all vertices sent to this thread.
pub async fn gather<L: Layout>(world: &World<L>, t: &mut Thread, thread: u32) -> Vec<u32> {
    let lists = world.lists();
    let (list, header) = lists.input(thread);
    let begin = t.load(0x3e0, 2, header, 8, [NONE; 2]);
    t.store(0x3e8, 2, header + 8, 8, NONE, begin);
    let mut next = 0;
    for from in 0..world.threads {
        let (found, found_header) = lists.output(from, thread);
        let some = bounds(t, 0x430, found_header);
        let count = world.sent(from, thread);
        t.branch(0x43c, 0x5a9, 4, count == 0, some);
        if count > 0 {
            world.set_stop(false);
            t.store(0x450, 1, lists.stop, 1, NONE, NONE);
            let capacity = t.load(0x458, 2, header + 16, 8, [NONE; 2]);
            t.branch(0x460, 0x4c0, 6, false, [capacity, some[1]]);
            let room = lists.room() - next;
            copy(t, 0x470, found, list + 8 * next, 8 * count.min(room)).await;
            next += count.min(room);
            t.store(0x4a0, 2, header + 8, 8, NONE, NONE);
            t.store(0x4a8, 1, found_header + 8, 8, NONE, some[0]);
        }
        t.branch(0x5b0, 0x430, 3, from + 1 < world.threads, [NONE; 2]);
    }
    world.receive(thread)
}
