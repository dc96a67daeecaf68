//! Shortest paths with several threads, in rounds.
//!
//! ```text
//! while (!stop) {
//!     barrier; stop = true;
//!     for (vid : input[tid]) {
//!         u = g.find_vertex(vid); near = u->distance;
//!         for (e = u->edges_begin(); e != u->edges_end(); e++) {
//!             v = g.find_vertex(e->target()); new = near + e->property().weight;
//!             while (__sync_lock_test_and_set(&locks[v], 1));
//!             if (v->update > new) { active = true; v->update = new; }
//!             __sync_lock_release(&locks[v]);
//!             if (active) output[tid][v % threads].push_back(v);
//!         }
//!     }
//!     barrier; gather output to input
//!     for (vid : input[tid]) { v = g.find_vertex(vid); v->distance = v->update; }
//!     barrier;
//! }
//! ```
//!
//! g++ 12.2 -O3: d7 `mov (%r10,%rcx,8),%rcx` ; find_vertex ; 120 edges_begin ; 128
//! `movzwl distance` ; 136 target, spilled, find_vertex ; 180 the weight ; 1b7 `xchg
//! %al,(%rbx,%rcx,1)` ; test ; jne ; 1c6 `cmp update,%si` ; jb 1e8 ; 1cc `movb
//! $0,(%rax)` ; 1cf next edge ; 1d8 the map's base and buckets ; jmp ; 1e8 `mov
//! %si,update` ; 1f1 `movb $0,(%rax)` ; div ; the vector's end and capacity ; 223
//! `mov %rcx,(%rsi)` ; its new end ; next edge.

use std::sync::atomic::Ordering::Relaxed;

use pagewalk_stream::flags::TAKEN;

use super::{DISTANCE, Distances, NOT_REACHED, UPDATE};
use crate::graph::kernel::{World, bounds};
use crate::graph::layout::Layout;
use crate::graph::level_sync::{DIVIDE, gather};
use crate::thread::{NONE, Thread};

/// One search, called by each thread.
pub(super) async fn run<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    root: u32,
    found: &Distances,
) {
    let lists = world.lists();
    let threads = world.threads;
    if thread == 0 {
        let v = world.memory().find(t, 0x10, root, NONE, false);
        for (field, pc) in [(DISTANCE, 0x60), (UPDATE, 0x64)] {
            let (va, from) = world.memory().field(v, field);
            t.store(pc, 1, va, 2, from, NONE);
        }
        found.distances[root as usize].store(0, Relaxed);
        found.updates[root as usize].store(0, Relaxed);
        world.send(0, root % threads, root);
        let (at, header) = lists.input(root % threads);
        t.store(0x70, 4, at, 8, NONE, NONE);
        t.store(0x78, 2, header + 8, 8, NONE, NONE);
        t.store(0x80, 1, lists.stop, 1, NONE, NONE);
    }
    world.barrier(t, 0x88).await;
    let mut input = world.receive(thread);
    loop {
        world.barrier(t, 0x8a).await;
        world.set_stop(true);
        t.store(0x8c, 2, lists.stop, 1, NONE, NONE);
        relax(world, t, thread, &input, found).await;
        world.barrier(t, 0x3d3).await;
        input = gather(world, t, thread).await;
        settle(world, t, thread, &input, found).await;
        world.barrier(t, 0x644).await;
        let stop = t.load(0x64e, 2, lists.stop, 1, [NONE; 2]);
        t.branch(0x651, 0x8a, 1, !world.stop(), [stop, NONE]);
        if world.stop() {
            break;
        }
    }
}

async fn relax<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    input: &[u32],
    found: &Distances,
) {
    let (memory, graph, lists) = (world.memory(), &world.graph, world.lists());
    let locks = found.locks.get().copied().unwrap_or_default();
    let (list, header) = lists.input(thread);
    let frame = t.stack - 0x200;
    let start = bounds(t, 0xa1, header);
    t.branch(0xb3, 0x25b, 4, input.is_empty(), start);
    for (i, &vertex) in input.iter().enumerate() {
        let id = t.load(0xd7, 1, list + 8 * lists.within(i as u64), 8, [NONE; 2]);
        let u = memory.find(t, 0xdb, vertex, id, false);
        let (va, from) = memory.field(u, DISTANCE);
        let near = t.load(0x128, 1, va, 2, [from, NONE]);
        let distance = found.distances[vertex as usize].load(Relaxed);
        debug_assert!(distance != NOT_REACHED);
        let mut place = graph.row(vertex).start;
        let mut edges = memory.edges(t, 0x120, 0x23f, graph, u);
        while let Some(present) = &mut edges {
            let (target, id) = memory.target(t, 0x136, graph, present);
            t.store(0x140, 1, frame + 0x28, 8, NONE, id);
            let v = memory.find(t, 0x13d, target, id, true);
            let weight = memory.weight(t, 0x180, present, 2);
            let new = t.compute(0x1a1, 1, 1, [near, weight]);
            let lock = locks + u64::from(target);
            // `xchg` with memory is implicitly locked. Spinning is not modelled, as only one thread's code
            // runs at a time.
            let held = t.atomic(0x1b7, 2, lock, 1, [id, NONE]);
            t.branch(0x1bc, 0x1b0, 2, false, [held, NONE]);
            t.load(0x1be, 1, frame + 0x28, 8, [NONE; 2]);
            let (va, from) = memory.field(v, UPDATE);
            let old = t.load(0x1c6, 2, va, 2, [from, NONE]);
            let weight_of = found.weights.of(graph, place, vertex, target);
            let sum = distance.saturating_add(weight_of);
            let active = sum < found.updates[target as usize].load(Relaxed);
            t.branch(0x1ca, 0x1e8, 1, active, [old, new]);
            if active {
                found.updates[target as usize].store(sum, Relaxed);
                t.store(0x1e8, 1, va, 2, from, new);
                t.store(0x1f1, 3, lock, 1, id, NONE);
                let owner = target % world.threads;
                let (list, header) = lists.output(thread, owner);
                let length = lists.within(world.send(thread, owner, target));
                let id = t.load(0x1f4, 1, frame + 0x28, 8, [NONE; 2]);
                t.load(0x1ff, 3, frame + 0xc, 4, [NONE; 2]);
                let vectors = t.load(0x206, 2, frame + 0x70, 8, [NONE; 2]);
                let at = [id.plus(1 + DIVIDE), vectors];
                let end = t.load(0x211, 3, header + 8, 8, at);
                let capacity = t.load(0x215, 1, header + 16, 8, at);
                t.branch(0x219, 0x2a8, 1, false, [capacity, end]);
                t.store(0x223, 1, list + 8 * length, 8, end, id);
                t.store(0x22a, 2, header + 8, 8, at[0], end.plus(1));
            } else {
                t.store(0x1cc, 1, lock, 1, id, NONE);
            }
            place += 1;
            if memory.advance(t, 0x1cf, 0x1d8, present) {
                memory.reload(t, 0x1d8);
                t.jump(0x1e0, 0x136, 1, TAKEN, [NONE; 2]);
            } else {
                edges = None;
            }
            if t.full() {
                t.pause().await;
            }
        }
        let count = t.load(0x242, 1, frame + 8, 4, [NONE; 2]);
        t.store(0x242, 0, frame + 8, 4, NONE, count.plus(1));
        t.load(0x247, 1, frame + 8, 4, [NONE; 2]);
        t.branch(0x255, 0xd7, 5, i + 1 < input.len(), [NONE; 2]);
        if t.full() {
            t.pause().await;
        }
    }
}

/// `distance = update` for the changed vertices.
async fn settle<L: Layout>(
    world: &World<L>,
    t: &mut Thread,
    thread: u32,
    input: &[u32],
    found: &Distances,
) {
    let (memory, lists) = (world.memory(), world.lists());
    let (list, header) = lists.input(thread);
    let start = bounds(t, 0x5c0, header);
    t.branch(0x5c8, 0x640, 2, input.is_empty(), start);
    for (i, &vertex) in input.iter().enumerate() {
        let at = list + 8 * lists.within(i as u64);
        let id = t.load(0x5d0, 2, at, 8, [NONE; 2]);
        let v = memory.find(t, 0x5d4, vertex, id, true);
        let (va, from) = memory.field(v, UPDATE);
        let update = t.load(0x618, 1, va, 2, [from, NONE]);
        let (va, from) = memory.field(v, DISTANCE);
        t.store(0x61c, 1, va, 2, from, update);
        t.branch(0x628, 0x5d0, 5, i + 1 < input.len(), [NONE; 2]);
        let update = found.updates[vertex as usize].load(Relaxed);
        found.distances[vertex as usize].store(update, Relaxed);
        if t.full() {
            t.pause().await;
        }
    }
}
