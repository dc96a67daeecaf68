//! GAP's change of direction. When the frontier has many edges, each unreached vertex searches its neighbours
//! for one in the frontier, until few vertices are found in this way.
//!
//! One thread, on a symmetric graph, so that rows serve both directions. gcc 12.2 with the flags of GAP's
//! Makefile (-std=c++11 -O3) and `SERIAL=1`:
//!
//! ```text
//! DOBFS: scout_count > edges_to_check / 15
//! 4038 mov ; mov ; xor ; cqto ; 4046 idivq 0x58(%rsp) ; cmp ; 404e jge 4378
//! QueueToBitmap, one iteration per vertex of the queue
//! 4090 movslq (%rdx),%rax ; mov ; add ; mov ; shr ; shl ; 40a4 or %r10,(%rsi,%rax,8)
//!      cmp ; 40ab jb 4090
//! BUStep, one iteration per vertex
//! 394d mov (%r11,%rcx,4),%eax ; test ; 3953 jns 3940
//! 3955 mov 0x28(%rbx),%rax ; 3959 mov (%rax,%rdi,1),%r8 ; 395d mov (%rax,%rcx,8),%rax
//!      cmp ; 3964 je 3940 ; 3966 mov 0x0(%rbp),%r10 ; 396a jmp 3979
//! 3970 add ; cmp ; 3977 je 3940
//! 3979 movslq (%rax),%rdx ; mov ; shr ; 3983 mov (%r10,%rdx,8),%rdx ; bt ; 398b jae 3970
//!      mov ; mov ; 3995 mov %esi,(%r11,%rcx,4) ; add ; shr ; shl ; add ; add
//! 39ac or %rax,(%r9,%rdx,8) ; 39b0 mov 0x8(%rbx),%r13 ; cmp ; 39b7 jl 394d
//! 3940 add ; add ; cmp ; 394b jge 39b9
//! BitmapToQueue, one iteration per vertex
//! 3c01 mov (%r12),%rax ; mov ; mov ; shr ; 3c0f mov (%rax,%rcx,8),%rax ; bt ; 3c17 jae 3bf8
//!      cmp ; 3c20 je 3c80 ; lea ; add ; add ; 3c2e mov %r13d,(%rax) ; cmp ; 3c34 jl 3c01
//! 3bf8 add ; cmp ; 3bff jge 3c36
//! ```

use pagewalk_stream::flags::{CALL, RETURN, TAKEN};

use super::{LOCAL, Worker, locked};
use crate::thread::NONE;

/// GAP's defaults. The search stays top down while the frontier's edges are at most 1/ALPHA of the remaining
/// ones,
const ALPHA: u64 = 15;
/// and returns to it when at most 1/BETA of the vertices were found.
const BETA: u64 = 18;

/// State of a search that may change its direction.
pub(super) struct Progress {
    /// Edges of the frontier, as far as counted.
    pub scout: u64,
    /// Edges of vertices that were in no frontier yet.
    to_check: u64,
    /// Bitmaps of the frontier, and of the vertices found in this level.
    front: Vec<u64>,
    next: Vec<u64>,
    /// True if the two maps in the program's memory are exchanged.
    swapped: bool,
}

impl Worker {
    /// Clears both maps for a new search. `root` is its first frontier.
    pub(super) async fn begin(&mut self, root: u32) -> Progress {
        let graph = &self.world.graph;
        let words = (graph.vertices() as usize).div_ceil(64);
        let (scout, to_check) = (graph.row(root).degree, graph.edges());
        for map in self.world.arrays.maps {
            self.t.fill(map, 8 * words as u64).await;
        }
        Progress {
            scout,
            to_check,
            front: vec![0; words],
            next: vec![0; words],
            swapped: false,
        }
    }

    /// True if the level is to be searched bottom up.
    pub(super) fn turns(&mut self, progress: &mut Progress) -> bool {
        let (t, stack) = (&mut self.t, self.stack);
        let edges = t.load(0x4038, 1, stack + 0x20, 8, [NONE; 2]);
        t.load(0x403d, 1, stack + 0x8, 8, [NONE; 2]);
        t.load(0x4046, 3, stack + 0x28, 8, [NONE; 2]);
        let share = t.compute(0x4046, 0, 18, [edges, NONE]);
        let turns = progress.scout > progress.to_check / ALPHA;
        t.branch(0x404e, 0x4378, 2, !turns, [share, NONE]);
        if !turns {
            progress.to_check = progress.to_check.saturating_sub(progress.scout);
        }
        turns
    }

    /// Searches bottom up, from the frontier at `window` of the queue, until few vertices are found in a
    /// level. Returns the next frontier.
    pub(super) async fn bottom_up(
        &mut self,
        progress: &mut Progress,
        window: std::ops::Range<usize>,
    ) -> std::ops::Range<usize> {
        self.queue_to_map(progress, window.clone()).await;
        let mut awake = window.len() as u64;
        loop {
            let before = awake;
            awake = self.bottom_up_step(progress).await;
            std::mem::swap(&mut progress.front, &mut progress.next);
            progress.swapped = !progress.swapped;
            let grows = awake >= before;
            self.t.branch(0x4192, 0x41c8, 12, grows, [NONE; 2]);
            if grows {
                continue;
            }
            let few = awake <= self.world.graph.vertices() / BETA;
            self.t.branch(0x41b4, 0x4290, 8, few, [NONE; 2]);
            if few {
                break;
            }
        }
        self.map_to_queue(progress).await;
        progress.scout = 1;
        window.end..locked(&self.world.queue).len()
    }

    fn map(&self, progress: &Progress, next: bool) -> u64 {
        self.world.arrays.maps[usize::from(progress.swapped != next)]
    }

    async fn queue_to_map(&mut self, progress: &mut Progress, window: std::ops::Range<usize>) {
        let queue = self.world.arrays.queue;
        let map = self.map(progress, false);
        let frontier = locked(&self.world.queue)[window.clone()].to_vec();
        for (place, vertex) in (window.start as u64..).zip(frontier) {
            let word = map + 8 * u64::from(vertex >> 6);
            progress.front[vertex as usize >> 6] |= 1 << (vertex & 63);
            let t = &mut self.t;
            let read = t.load(0x4090, 1, queue + 4 * place, 4, [NONE; 2]);
            let old = t.load(0x40a4, 6, word, 8, [read.plus(1), NONE]);
            t.store(0x40a4, 0, word, 8, read.plus(1), old.plus(1));
            let more = place + 1 < window.end as u64;
            t.branch(0x40ab, 0x4090, 2, more, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// One level. Returns the number of vertices found.
    async fn bottom_up_step(&mut self, progress: &mut Progress) -> u64 {
        self.enter_step().await;
        let (front, next) = (self.map(progress, false), self.map(progress, true));
        let words = progress.next.len();
        progress.next.fill(0);
        self.t.fill(next, 8 * words as u64).await;
        let world = self.world.clone();
        let (arrays, objects) = (world.arrays, self.objects);
        let vertices = world.graph.vertices();
        let mut awake = 0;
        self.t.load(0x391f, 2, objects.graph + 8, 8, [NONE; 2]);
        self.t.load(0x392c, 3, objects.parents, 8, [NONE; 2]);
        self.t.jump(0x393a, 0x394d, 4, TAKEN, [NONE; 2]);
        for u in 0..vertices as u32 {
            let parent = arrays.parent + 4 * u64::from(u);
            let t = &mut self.t;
            let old = t.load(0x394d, 1, parent, 4, [NONE; 2]);
            let reached = self.is_visited(u);
            let t = &mut self.t;
            t.branch(0x3953, 0x3940, 2, reached, [old.plus(1), NONE]);
            let more = u64::from(u) + 1 < vertices;
            if !reached && self.look_up(progress, u, front) {
                let word = next + 8 * u64::from(u >> 6);
                progress.next[u as usize >> 6] |= 1 << (u & 63);
                self.visit(u);
                awake += 1;
                let t = &mut self.t;
                t.store(0x3995, 3, parent, 4, NONE, NONE);
                let old = t.load(0x39ac, 6, word, 8, [NONE; 2]);
                t.store(0x39ac, 0, word, 8, NONE, old.plus(1));
                let end = t.load(0x39b0, 1, objects.graph + 8, 8, [NONE; 2]);
                t.branch(0x39b7, 0x394d, 2, more, [end, NONE]);
            } else {
                self.t.branch(0x394b, 0x39b9, 4, !more, [NONE; 2]);
            }
            if self.t.full() {
                self.t.pause().await;
            }
        }
        self.leave_step();
        awake
    }

    /// True if a neighbour of `u` is in the frontier.
    fn look_up(&mut self, progress: &Progress, u: u32, front: u64) -> bool {
        let world = self.world.clone();
        let (graph, arrays) = (&world.graph, world.arrays);
        let row = graph.row(u);
        let (t, objects) = (&mut self.t, &self.objects);
        let at = arrays.offsets + 8 * u64::from(u);
        let index = t.load(0x3955, 1, objects.graph + 0x28, 8, [NONE; 2]);
        let end = t.load(0x3959, 1, at + 8, 8, [index, NONE]);
        let start = t.load(0x395d, 1, at, 8, [index, NONE]);
        t.branch(0x3964, 0x3940, 2, row.degree == 0, [start, end]);
        if row.degree == 0 {
            return false;
        }
        let map = t.load(0x3966, 1, self.objects.queue + 0x20, 8, [NONE; 2]);
        t.jump(0x396a, 0x3979, 1, TAKEN, [NONE; 2]);
        for i in 0..row.degree {
            let target = graph.neighbour(&row, i);
            let edge = arrays.neighbours + 4 * (row.start + i);
            let v = t.load(0x3979, 1, edge, 4, [start.plus(1 + i), NONE]);
            let word = front + 8 * u64::from(target >> 6);
            let bits = t.load(0x3983, 3, word, 8, [v.plus(1), map]);
            let there = progress.front[target as usize >> 6] >> (target & 63) & 1 == 1;
            t.branch(0x398b, 0x3970, 2, !there, [bits.plus(1), NONE]);
            if there {
                return true;
            }
            let last = i + 1 == row.degree;
            t.branch(0x3977, 0x3940, 3, last, [start.plus(2 + i), end]);
        }
        false
    }

    /// Copies the vertices of the last map to the queue.
    async fn map_to_queue(&mut self, progress: &Progress) {
        let world = self.world.clone();
        let vertices = world.graph.vertices();
        let map = self.map(progress, false);
        for n in 0..vertices {
            let word = map + 8 * (n >> 6);
            let there = progress.front[(n >> 6) as usize] >> (n & 63) & 1 == 1;
            let more = n + 1 < vertices;
            let t = &mut self.t;
            let base = t.load(0x3c01, 1, self.objects.queue + 0x20, 8, [NONE; 2]);
            let bits = t.load(0x3c0f, 4, word, 8, [base, NONE]);
            t.branch(0x3c17, 0x3bf8, 2, !there, [bits.plus(1), NONE]);
            if there {
                let full = self.found.len() as u64 == LOCAL;
                t.branch(0x3c20, 0x3c80, 2, full, [NONE; 2]);
                if full {
                    self.flush().await;
                }
                let to = self.list + 4 * self.found.len() as u64;
                self.found.push(n as u32);
                self.t.store(0x3c2e, 4, to, 4, NONE, NONE);
                self.t.branch(0x3c34, 0x3c01, 2, more, [NONE; 2]);
            } else {
                t.branch(0x3bff, 0x3c36, 3, !more, [NONE; 2]);
            }
            if self.t.full() {
                self.t.pause().await;
            }
        }
        self.flush().await;
    }

    async fn enter_step(&mut self) {
        let (t, stack, objects) = (&mut self.t, self.stack, self.objects);
        t.store(0x4147, 4, stack - 8, 8, NONE, NONE);
        t.jump(0x4147, 0x38f0, 0, TAKEN | CALL, [NONE; 2]);
        for (i, insns) in (0..).zip([1, 1, 2, 2]) {
            t.store(0x38f0 + 4 * i, insns, stack - 16 - 8 * i, 8, NONE, NONE);
        }
        let end = t.load(0x3903, 3, objects.queue + 0x38, 8, [NONE; 2]);
        let start = t.load(0x3907, 1, objects.queue + 0x30, 8, [NONE; 2]);
        t.branch(0x390d, 0x391f, 2, false, [start, end]);
        t.compute(0x3917, 6, 1, [NONE; 2]);
    }

    fn leave_step(&mut self) {
        let (t, stack) = (&mut self.t, self.stack);
        for (i, insns) in (0..).zip([3, 1, 1, 1]) {
            t.load(0x39c0 + i, insns, stack - 40 + 8 * i, 8, [NONE; 2]);
        }
        let to = t.load(0x39c6, 1, stack - 8, 8, [NONE; 2]);
        t.jump(0x39c6, 0x414c, 0, TAKEN | RETURN, [to, NONE]);
    }
}
