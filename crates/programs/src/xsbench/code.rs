//! The instructions of a lookup, as gcc 12.2 -O2 makes them; program counters are
//! those of its listing.
//!
//! ```text
//! 540 test ; 543 je 550 ; imul ; imul ; add ; 550 lea ; imul ; imul ; shr ; 55f jne 540
//! 6d0 movsd macro(,%rax,8) ; comisd ; maxsd ; cmova ; add ; movapd ; cmp ; 6ed jne 6d0
//! 700 movsd (%rdx) ; xor ; comisd ; seta ; add ; add ; cmp ; 718 jne 700
//!  90 pick_mat: 6 x 16 bytes of constants to the stack, seed, then sums
//! 138 addsd (%rax) ; sub ; cmp ; 143 jne 138 ; comisd ; 149 ja ; add ; add ; cmp ; 155 jne 120
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::data::{Grid, fast_forward, lcg, material};
use crate::layout::CODE;
use crate::thread::{NONE, Thread, Value};

/// Where the arrays lie.
pub struct Tables {
    pub points: u64,
    pub energies: u64,
    pub index: u64,
    pub num_nucs: u64,
    pub mats: u64,
    pub concs: u64,
    /// Row length of `mats` and `concs`.
    pub widest: u64,
}

/// What all threads read, and where they meet.
pub struct Simulation {
    pub grid: Grid,
    pub materials: Vec<Vec<u32>>,
    pub concs: Vec<Vec<f64>>,
    pub tables: Tables,
    /// Next item of the dynamic schedule.
    pub next: AtomicU64,
    /// The source's check sum: the number of the largest channel of each lookup.
    pub verification: AtomicU64,
}

/// What a thread does.
#[derive(Clone, Copy)]
pub struct Work {
    pub history: bool,
    /// Particles, or lookups.
    pub items: u64,
    /// Of a particle.
    pub lookups: u64,
    pub start: u64,
}

/// Iterations a thread takes at a time: `schedule(dynamic,100)`.
const CHUNK: u64 = 100;
/// Constants that the code reads.
const RODATA: u64 = CODE + 0x9000;

/// Addresses on the stack of one thread.
#[derive(Clone, Copy)]
struct Frame {
    /// Stack pointer of the loop over particles.
    outer: u64,
    /// That of `calculate_macro_xs`.
    inner: u64,
}

impl Frame {
    fn seed(self) -> u64 {
        self.outer + 0xa8
    }
    fn totals(self) -> u64 {
        self.outer + 0xb0
    }
    fn xs(self) -> u64 {
        self.inner + 0x20
    }
}

impl Work {
    pub async fn run(self, t: &mut Thread, shared: &Simulation) {
        let outer = t.stack - 0x200;
        let frame = Frame {
            outer,
            inner: outer - 0xd0,
        };
        let mut sum = 0;
        loop {
            // GOMP_loop_dynamic_next adds to the shared counter.
            let first = shared.next.fetch_add(CHUNK, Relaxed);
            t.atomic(0x7a0, 12, t.stack - 0x20, 8, [NONE; 2]);
            t.branch(0x7a6, 0x4c5, 2, first < self.items, [NONE; 2]);
            if first >= self.items {
                break;
            }
            for item in first..(first + CHUNK).min(self.items) {
                sum += self.item(t, shared, frame, item).await;
            }
        }
        t.atomic(0x7b6, 2, t.stack - 0x28, 8, [NONE; 2]);
        shared.verification.fetch_add(sum, Relaxed);
    }

    async fn item(self, t: &mut Thread, shared: &Simulation, frame: Frame, item: u64) -> u64 {
        let (steps, lookups) = if self.history {
            (item * self.lookups * 2 * 5, self.lookups)
        } else {
            (item * 2, 1)
        };
        t.load(0x518, 1, frame.outer + 0x58, 8, [NONE; 2]);
        t.branch(0x520, 0x820, 2, steps == 0, [NONE; 2]);
        let mut state = lcg(fast_forward(self.start, steps));
        let mut seed = forward(t, 0x540, steps, NONE);
        t.store(0x598, 11, frame.seed(), 8, NONE, seed.plus(7));
        let mut energy = state;
        let mut at = seed.plus(15);
        state = lcg(state);
        pick_material(t, frame, 0x5a0, state);
        let mut sum = 0;
        for lookup in 0..lookups {
            let totals = self.lookup(t, shared, frame, energy, material(state), at);
            let totals = totals.await;
            sum += largest(t, frame, &totals);
            if !self.history {
                break;
            }
            let above = totals.iter().filter(|x| **x > 1.0).count() as u64;
            let mut count = NONE;
            for k in 0..5 {
                count = t.load(0x700, 1, frame.totals() + 8 * k, 8, [NONE; 2]);
                t.branch(0x718, 0x700, 7, k < 4, [NONE; 2]);
            }
            seed = t.load(0x71a, 1, frame.seed(), 8, [NONE; 2]);
            t.branch(0x725, 0x7d0, 2, above > 0, [count.plus(5), NONE]);
            if above > 0 {
                t.branch(0x7d3, 0x818, 2, false, [count.plus(6), NONE]);
                forward(t, 0x7f0, above, count.plus(6));
                t.jump(0x81b, 0x72b, 4, pagewalk_stream::flags::TAKEN, [NONE; 2]);
                state = fast_forward(state, above);
                seed = seed.plus(8);
            }
            state = lcg(state);
            energy = state;
            t.load(0x72f, 2, frame.outer, 8, [NONE; 2]);
            t.store(0x750, 7, frame.seed(), 8, NONE, seed.plus(5));
            at = seed.plus(13);
            state = lcg(state);
            pick_material(t, frame, 0x758, state);
            t.branch(0x766, 0x650, 4, lookup + 1 < lookups, [NONE; 2]);
        }
        sum
    }

    /// `calculate_macro_xs` at `energy`, which `at` produces.
    async fn lookup(
        self,
        t: &mut Thread,
        shared: &Simulation,
        frame: Frame,
        energy: u64,
        material: usize,
        at: Value,
    ) -> [f64; 5] {
        let (grid, tables) = (shared.grid, &shared.tables);
        enter(t, frame);
        let row = search(t, shared, energy, at);
        let nuclides = &shared.materials[material];
        let concs = &shared.concs[material];
        let list = tables.num_nucs + 4 * material as u64;
        let count = t.load(0x317, 2, list, 4, [NONE; 2]);
        t.branch(0x31d, 0x3cd, 2, false, [count, NONE]);
        for (slot, insns) in [
            (0xc0, 1u16),
            (0x18, 1),
            (8, 2),
            (0xb8, 1),
            (0x10, 1),
            (0xb0, 1),
        ] {
            let (pc, va) = (0x323 + slot / 4, frame.inner + slot);
            if matches!(slot, 0x18 | 8 | 0x10) {
                t.store(pc, insns, va, 8, NONE, NONE);
            } else {
                t.load(pc, insns, va, 4, [NONE; 2]);
            }
        }
        let start = material as u64 * tables.widest;
        let mut totals = [0.0; 5];
        for (j, (&nuclide, &conc)) in nuclides.iter().zip(concs).enumerate() {
            let place = start + j as u64;
            let nuclide = u64::from(nuclide);
            let micro = grid.micro(nuclide, energy);
            for (total, xs) in totals.iter_mut().zip(micro.xs) {
                *total += xs * conc;
            }
            let element = Element {
                conc: tables.concs + 8 * place,
                mat: tables.mats + 4 * place,
                index: tables.index + 4 * (row * grid.nuclides + nuclide),
                low: tables.points + 48 * (nuclide * grid.points + micro.low),
                first: j == 0,
                more: j + 1 < nuclides.len(),
            };
            element.emit(t, frame, at);
            if t.full() {
                t.pause().await;
            }
        }
        for (k, pc) in [0x3d1u64, 0x3d2, 0x3d3, 0x3d5, 0x3d7, 0x3d9]
            .iter()
            .enumerate()
        {
            let insns = 1 + u16::from(k == 0);
            let va = frame.inner + 0x58 + 8 * k as u64;
            t.load(*pc, insns, va, 8, [NONE; 2]);
        }
        t.ret(0x3db, 0x6b5, 1, t.stack - frame.outer + 0x40);
        t.request();
        totals
    }
}

/// Arguments, call and prologue of `calculate_macro_xs`.
fn enter(t: &mut Thread, frame: Frame) {
    let Frame { outer, inner } = frame;
    t.store(0x650, 1, outer + 0xd0, 8, NONE, NONE);
    t.store(0x664, 3, outer + 0xb0, 16, NONE, NONE);
    t.store(0x66d, 1, outer + 0xc0, 16, NONE, NONE);
    for (k, pc) in [0x676u64, 0x67b, 0x680, 0, 0x687, 0x68b, 0x68f]
        .iter()
        .enumerate()
    {
        let slot = outer - 0x10 - 8 * k as u64;
        if *pc != 0 {
            t.load(*pc, 1, outer + 0x10 + 8 * k as u64, 8, [NONE; 2]);
        }
        // `push` of memory is one instruction.
        let insns = u16::from(k < 4);
        t.store(0x67a + 4 * k as u64, insns, slot, 8, NONE, NONE);
    }
    for k in 0..5 {
        let va = outer + 0x48 + 8 * k;
        t.load(0x693 + 6 * k, 1, va, 8, [NONE; 2]);
    }
    t.call(0x6b5, 0x270, 1, t.stack - outer + 0x40);
    for (k, pc) in [0x270u64, 0x27e, 0x280, 0x285, 0x28a, 0x28e]
        .iter()
        .enumerate()
    {
        let insns = [1, 4, 1, 2, 2, 2][k];
        t.store(*pc, insns, outer - 0x50 - 8 * k as u64, 8, NONE, NONE);
    }
    for k in 0..4 {
        let insns = 1 + u16::from(k == 0);
        t.load(0x293 + 8 * k, insns, inner + 0x90 + 8 * k, 8, [NONE; 2]);
    }
    t.store(0x2b2, 1, frame.totals() + 0x20, 8, NONE, NONE);
    t.store(0x2ba, 1, frame.totals(), 16, NONE, NONE);
    t.store(0x2be, 1, frame.totals() + 0x10, 16, NONE, NONE);
    t.branch(0x2c5, 0x3e0, 2, false, [NONE; 2]);
    t.branch(0x2d7, 0x446, 4, false, [NONE; 2]);
    t.jump(0x2e3, 0x2f7, 3, pagewalk_stream::flags::TAKEN, [NONE; 2]);
}

/// The binary search, the last of whose elements up to `energy` is returned. The
/// compiler made a branch of each comparison, so no load waits for the one before.
fn search(t: &mut Thread, shared: &Simulation, energy: u64, at: Value) -> u64 {
    let grid = shared.grid;
    let rank = grid.rank_of_all(energy);
    let (mut low, mut length) = (0, grid.nuclides * grid.points - 1);
    let mut high = length;
    while length > 1 {
        let middle = low + length / 2;
        let va = shared.tables.energies + 8 * middle;
        let value = t.load(0x2fe, 3, va, 8, [NONE; 2]);
        let below = middle < rank;
        t.branch(0x309, 0x2e8, 2, below, [value.plus(3), at]);
        if below {
            low = middle;
            length = high - low;
            t.branch(0x2f5, 0x314, 5, length <= 1, [NONE; 2]);
        } else {
            high = middle;
            length /= 2;
            t.branch(0x312, 0x2f7, 3, length > 1, [NONE; 2]);
        }
    }
    low
}

/// One nuclide of a lookup.
struct Element {
    conc: u64,
    mat: u64,
    index: u64,
    low: u64,
    first: bool,
    more: bool,
}

impl Element {
    #[inline(always)]
    fn emit(&self, t: &mut Thread, frame: Frame, at: Value) {
        let Frame { inner, .. } = frame;
        let xs = frame.xs();
        let insns = if self.first { 6 } else { 1 };
        let conc = t.load(0x368, insns, self.conc, 8, [NONE; 2]);
        let mat = t.load(0x36d, 1, self.mat, 4, [NONE; 2]);
        t.store(0x36f, 1, inner - 8, 8, NONE, NONE);
        t.store(0x376, 2, inner - 0x10, 8, NONE, NONE);
        t.store(0x378, 1, inner - 0x18, 8, NONE, NONE);
        t.store(0x37a, 1, inner - 0x20, 8, NONE, NONE);
        t.load(0x37c, 1, inner + 0x10, 8, [NONE; 2]);
        t.load(0x381, 1, inner + 0x98, 8, [NONE; 2]);
        t.load(0x389, 1, inner + 0x18, 8, [NONE; 2]);
        t.load(0x38e, 1, inner + 8, 8, [NONE; 2]);
        t.call(0x393, 0x160, 1, t.stack - inner + 0x20);
        let kind = t.load(0x160, 1, inner - 0x10, 4, [NONE; 2]);
        t.load(0x167, 2, inner - 0x18, 8, [NONE; 2]);
        t.branch(0x16f, 0x250, 2, false, [kind, NONE]);
        t.branch(0x177, 0x210, 2, true, [kind, NONE]);
        let row = t.load(0x210, 1, inner - 0x20, 8, [NONE; 2]);
        let index = t.load(0x224, 5, self.index, 4, [mat.plus(2), row.plus(4)]);
        t.jump(0x245, 0x191, 9, pagewalk_stream::flags::TAKEN, [NONE; 2]);
        let point = [index.plus(5), mat.plus(7)];
        let e_high = t.load(0x191, 1, self.low + 0x30, 8, point);
        t.load(0x197, 1, self.low + 0x18, 16, point);
        t.load(0x19d, 1, self.low + 8, 16, point);
        let e_low = t.load(0x1a7, 2, self.low, 8, point);
        t.load(0x1b0, 2, self.low + 0x48, 16, point);
        // The difference of energies, the division, then the points' values.
        let f = t.compute(0x1ba, 2, 13, [e_low.plus(4), e_high.plus(4)]);
        t.load(0x1c2, 2, self.low + 0x38, 16, point);
        let value = f.plus(9);
        t.store(0x1e0, 7, xs + 0x10, 16, at, value);
        t.load(0x1e4, 1, self.low + 0x58, 8, point);
        t.store(0x1f2, 3, xs, 16, NONE, value);
        t.load(0x1f9, 2, self.low + 0x28, 8, point);
        t.store(0x207, 3, xs + 0x20, 8, NONE, value);
        t.ret(0x20c, 0x393, 1, t.stack - inner + 0x20);
        for k in 0..5 {
            let insns = if k == 0 { 4 } else { 1 };
            t.load(0x3a0, insns, xs + 8 * k, 8, [NONE; 2]);
            let va = frame.totals() + 8 * k;
            let sum = t.load(0x3aa, 2, va, 8, [NONE; 2]);
            t.store(
                0x3b0,
                1,
                va,
                8,
                NONE,
                if k == 0 { conc } else { sum.plus(4) },
            );
            t.branch(0x3be, 0x3a0, 3, k < 4, [NONE; 2]);
        }
        t.branch(0x3cb, 0x368, 4, self.more, [NONE; 2]);
    }
}

/// `fast_forward_LCG`: a turn for each bit of `n`.
fn forward(t: &mut Thread, pc: u64, n: u64, condition: Value) -> Value {
    let mut rest = n;
    let mut first = 6;
    let mut last = NONE;
    while rest > 0 {
        let bit = rest & 1 == 1;
        t.branch(pc + 3, pc + 0x10, 2 + first, !bit, [condition, NONE]);
        // The squarings are the chain; the rest hangs on it.
        last = t.compute(pc + 0x18, 3 + 3 * u16::from(bit), 3, [last, NONE]);
        rest >>= 1;
        t.branch(pc + 0x1f, pc, 2, rest > 0, [condition, NONE]);
        first = 0;
    }
    last.plus(3)
}

/// The channel with the largest cross section, from 1.
fn largest(t: &mut Thread, frame: Frame, totals: &[f64; 5]) -> u64 {
    let mut most = -1.0;
    let mut at = 0;
    for (k, x) in (0..).zip(totals) {
        let insns = if k == 0 { 6 } else { 1 };
        t.load(0x6d0, insns, frame.totals() + 8 * k, 8, [NONE; 2]);
        t.branch(0x6ed, 0x6d0, 7, k < 4, [NONE; 2]);
        if *x > most {
            (most, at) = (*x, k);
        }
    }
    t.compute(0x6fd, 6, 1, [NONE; 2]);
    at + 1
}

/// `pick_mat`, called at `call`: the generator's next state is `state`.
fn pick_material(t: &mut Thread, frame: Frame, call: u64, state: u64) {
    let depth = t.stack - frame.outer;
    t.call(call, 0x90, 1, depth);
    let stack = frame.outer - 0x70;
    t.load(0x9e, 4, RODATA, 16, [NONE; 2]);
    let seed = t.load(0xb0, 2, frame.seed(), 8, [NONE; 2]);
    for (k, insns) in [1u16, 1, 3, 1, 1, 1].iter().enumerate() {
        let (k, pc) = (k as u64, 0xb4 + 0x10 * k as u64);
        t.store(pc, *insns, stack + 0x10 * k, 16, NONE, NONE);
        if k < 5 {
            t.load(pc + 5, 1, RODATA + 0x10 * (k + 1), 16, [NONE; 2]);
        }
        if k == 2 {
            t.load(0xe9, 2, RODATA + 0x60, 8, [NONE; 2]);
            t.store(0xf1, 1, frame.seed(), 8, NONE, seed.plus(5));
        }
    }
    let roll = seed.plus(13);
    t.branch(0x11b, 0x157, 3, false, [roll, NONE]);
    let picked = material(state) as u64;
    for i in 1..12 {
        let mut sum = NONE;
        for j in 0..i {
            let insns = if j == 0 { 8 } else { 1 };
            sum = t.load(0x138, insns, stack + 8 * (i - j), 8, [NONE; 2]);
            t.branch(0x143, 0x138, 3, j + 1 < i, [NONE; 2]);
        }
        let last = i == picked;
        t.branch(0x149, 0x159, 2, last, [sum.plus(4 * i), roll]);
        if last {
            break;
        }
        t.branch(0x155, 0x120, 4, i < 11, [NONE; 2]);
    }
    let insns = 2 + u16::from(picked == 0);
    t.ret(0x15b, call, insns, depth);
}
