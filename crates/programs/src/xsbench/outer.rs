//! The loops over particles and over lookups around [`Call`], with the inlined `pick_mat`.
//!
//! ```text
//! history                                            event
//! 31b1 mov stack ; btr ; test ; 31be je 374b         3dad mov ; btr ; test ; 3db8 je 4045
//! 31e0 test ; 31e4 je 31f1 ; imul ; imul ; add       3dd8 the same
//! 31f1 lea ; imul ; imul ; shr ; 3200 jne 31e0       3df7 jne 3dd8
//! 3202 12 more ; 323f mulsd m ; 5 more ; mulsd m     3df9 the same
//! 3262 comisd ; 3266 ja 3771                         3e5a ja 406b
//! 326c 11 x { movsd sum ; comisd ; ja }              3e60 the same
//! 3342 9 x load, 8 x store, 7 more
//! 33c0 arguments, 3400 call 2cf0                     3f26 arguments, 3f60 call 2cf0
//! 3405 largest of five ; 349f jbe 36a2               3f65 largest of five
//! 34a5 or 36a2 number of channels above 1
//! 34e1 the loop of 31e0 over that number
//! 350f 14 more ; 3559 ja 36ea ; 355f as at 326c
//! 3625 add ; cmp ; 362b jne 33c0
//! 3631 next particle ; 3658 jg 31b1                  3fd3 add ; add ; add ; cmp m ; 3fe3 jg 3dad
//! ```

use std::sync::atomic::Ordering::Relaxed;

use pagewalk_stream::flags::TAKEN;

use super::code::{Call, Simulation};
use super::data::{fast_forward, lcg, material};
use crate::layout::CODE;
use crate::thread::{NONE, Thread, Value};

/// Work of a thread.
#[derive(Clone, Copy)]
pub struct Work {
    pub history: bool,
    /// Particles, or lookups.
    pub items: u64,
    /// Lookups per particle.
    pub lookups: u64,
    pub start: u64,
}

/// Iterations that a thread takes at a time: `schedule(dynamic,100)`.
const CHUNK: u64 = 100;
/// Constants in memory: -1, 2^-63, then the sums of `pick_mat` from the second material on.
const SCALE: u64 = CODE + 0x5438;
const LEAST: u64 = CODE + 0x5430;
const SUMS: u64 = CODE + 0x5440;

/// Code addresses of one inlined `pick_mat`.
struct Pick {
    /// Per sum: the branch, and its target.
    branches: [(u64, u64); 10],
    /// The sum that is held in a register.
    held: usize,
    /// Address of the code after it.
    end: u64,
}

/// Before a particle's first lookup.
const FIRST: Pick = Pick {
    branches: [
        (0x3278, 0x37c8),
        (0x328a, 0x3767),
        (0x329c, 0x37be),
        (0x32ae, 0x37b4),
        (0x32c0, 0x37aa),
        (0x32d2, 0x37a0),
        (0x32e4, 0x3796),
        (0x32f6, 0x378c),
        (0x3308, 0x3782),
        (0x331a, 0x3778),
    ],
    held: usize::MAX,
    end: 0x3339,
};
/// Between two lookups of a particle.
const NEXT: Pick = Pick {
    branches: [
        (0x356b, 0x36e0),
        (0x3576, 0x3705),
        (0x3588, 0x36fb),
        (0x359a, 0x36f1),
        (0x35ac, 0x370f),
        (0x35be, 0x3723),
        (0x35d0, 0x3719),
        (0x35e2, 0x3741),
        (0x35f4, 0x3737),
        (0x3606, 0x372d),
    ],
    held: 1,
    end: 0x3625,
};
/// In a lookup of the event loop.
const EVENT: Pick = Pick {
    branches: [
        (0x3e6c, 0x40cc),
        (0x3e7e, 0x4072),
        (0x3e89, 0x4086),
        (0x3e9b, 0x407c),
        (0x3ead, 0x409a),
        (0x3ebf, 0x4090),
        (0x3ed1, 0x40a4),
        (0x3ee3, 0x40ae),
        (0x3ef5, 0x40c2),
        (0x3f07, 0x40b8),
    ],
    held: 2,
    end: 0x3f26,
};

impl Pick {
    /// Compares `roll`, produced from a generator's `state`, with one sum after the other.
    fn emit(&self, t: &mut Thread, state: u64, roll: Value) {
        let picked = material(state);
        for (k, (pc, to)) in self.branches.iter().enumerate() {
            if k != self.held {
                t.load(pc - 12, 1, SUMS + 8 * k as u64, 8, [NONE; 2]);
            }
            let found = picked == k + 1;
            t.branch(*pc, *to, 2, found, [roll.plus(3), NONE]);
            if found {
                t.jump(to + 5, self.end, 2, TAKEN, [NONE; 2]);
                return;
            }
        }
        t.load(self.end - 0x19, 1, SUMS + 80, 8, [NONE; 2]);
        // The last comparison is a conditional move.
        t.compute(self.end - 3, 4, 1, [roll.plus(3), NONE]);
    }
}

impl Work {
    /// Looks up cross sections until none is left.
    pub async fn run(self, t: &mut Thread, shared: &Simulation) {
        // The callers' frames with the simulation's data. Then return address, six registers, and the
        // function's own frame.
        let own = if self.history { 0xd8 } else { 0xa8 };
        let frame = t.stack - 0x200 - 0x38 - own;
        let mut sum = 0;
        loop {
            // `GOMP_loop_nonmonotonic_dynamic_next` adds to the shared counter.
            let first = shared.next.fetch_add(CHUNK, Relaxed);
            t.atomic(0x3676, 40, frame + 0x180, 8, [NONE; 2]);
            t.branch(0x367d, 0x3130, 2, first < self.items, [NONE; 2]);
            if first >= self.items {
                break;
            }
            // Copies of the chunk and of the two structures, used by both loops.
            for k in 0..8 {
                t.load(0x3130 + 6 * k, 1, frame + 8 * k, 8, [NONE; 2]);
                t.store(0x3160 + 5 * k, 1, frame + 8 * k, 8, NONE, NONE);
            }
            for item in first..(first + CHUNK).min(self.items) {
                sum += if self.history {
                    self.particle(t, shared, frame, item).await
                } else {
                    self.event(t, shared, frame, item).await
                };
            }
        }
        t.atomic(0x368b, 2, frame + 0x188, 8, [NONE; 2]);
        shared.verification.fetch_add(sum, Relaxed);
    }

    async fn particle(self, t: &mut Thread, shared: &Simulation, frame: u64, item: u64) -> u64 {
        let steps = item * self.lookups * 2 * 5;
        t.load(0x31b1, 1, frame + 0x50, 8, [NONE; 2]);
        t.branch(0x31be, 0x374b, 3, steps == 0, [NONE; 2]);
        let mut energy = lcg(fast_forward(self.start, steps));
        let mut state = lcg(energy);
        let (mut at, mut seed) = (NONE, NONE);
        if steps > 0 {
            let forward = forward(t, 0x31e0, 5, steps, NONE);
            (at, seed) = draw(t, 0x323f, 13, forward.plus(5));
            t.branch(0x3266, 0x3771, 2, false, [seed.plus(11), NONE]);
            FIRST.emit(t, state, seed.plus(8));
        }
        begin(t, frame);
        let mut sum = 0;
        for lookup in 0..self.lookups {
            let call = Call {
                pc: 0x3400,
                stack: frame - 0x40,
                totals: frame + 0xa0,
                energy,
                at,
                material: material(state),
            };
            arguments(t, frame);
            let (totals, sums) = call.run(t, shared).await;
            let above = totals.iter().filter(|x| **x > 1.0).count() as u64;
            sum += count(t, call.totals, &totals, sums);
            if above > 0 {
                state = fast_forward(state, above);
                let forwarded = forward(t, 0x34e1, 4, above, sums.plus(3));
                seed = t.compute(0x350c, 4, 6, [forwarded, seed]);
            }
            energy = lcg(state);
            state = lcg(energy);
            // Both numbers are computed from the seed in parallel. The conversions come after that.
            seed = t.compute(0x3548, 14, 10, [seed, NONE]);
            at = seed.plus(3);
            t.branch(0x3559, 0x36ea, 4, false, [seed.plus(11), NONE]);
            NEXT.emit(t, state, seed.plus(8));
            t.branch(0x362b, 0x33c0, 3, lookup + 1 < self.lookups, [NONE; 2]);
        }
        end(t, frame);
        sum
    }

    async fn event(self, t: &mut Thread, shared: &Simulation, frame: u64, item: u64) -> u64 {
        let steps = item * 2;
        t.branch(0x3db8, 0x4045, 4, steps == 0, [NONE; 2]);
        let energy = lcg(fast_forward(self.start, steps));
        let state = lcg(energy);
        let mut at = NONE;
        if steps > 0 {
            let forward = forward(t, 0x3dd8, 5, steps, NONE);
            let (energy, seed) = draw(t, 0x3e36, 13, forward.plus(5));
            at = energy;
            t.branch(0x3e5a, 0x406b, 2, false, [seed.plus(11), NONE]);
            EVENT.emit(t, state, seed.plus(8));
        }
        let call = Call {
            pc: 0x3f60,
            stack: frame - 0x40,
            totals: frame + 0x70,
            energy,
            at,
            material: material(state),
        };
        event_arguments(t, frame);
        let (totals, sums) = call.run(t, shared).await;
        event_largest(t, frame, &totals, sums)
    }
}

/// `fast_forward_LCG`'s loop at `pc`: `before` instructions, then one iteration per bit of `n`.
fn forward(t: &mut Thread, pc: u64, before: u16, n: u64, condition: Value) -> Value {
    let mut rest = n;
    let mut first = before;
    let mut last = NONE;
    while rest > 0 {
        let bit = rest & 1 == 1;
        t.branch(pc + 3, pc + 0x11, 2 + first, !bit, [condition, NONE]);
        // The squarings form the dependence chain.
        last = t.compute(pc + 0x19, 3 + 3 * u16::from(bit), 3, [last, NONE]);
        rest >>= 1;
        t.branch(pc + 0x20, pc, 2, rest > 0, [condition, NONE]);
        first = 0;
    }
    last.plus(3)
}

/// Draws two numbers from a new seed, with `insns` instructions up to the first multiplication at `pc`.
/// Returns the values that produce the energy and the next seed.
fn draw(t: &mut Thread, pc: u64, insns: u16, seed: Value) -> (Value, Value) {
    t.load(pc, insns, SCALE, 8, [NONE; 2]);
    let seed = t.compute(pc + 0x16, 5, 10, [seed, NONE]);
    t.load(pc + 0x1b, 1, SCALE, 8, [NONE; 2]);
    (seed.plus(3), seed)
}

/// Saves a particle's data for its lookups on the stack.
fn begin(t: &mut Thread, frame: u64) {
    t.branch(0x333c, 0x3641, 2, false, [NONE; 2]);
    for (k, insns) in [1, 2, 1, 1, 1, 1, 1, 1, 1].into_iter().enumerate() {
        let k = k as u64;
        t.load(0x3342 + 9 * k, insns, frame + 0x150 + 8 * k, 8, [NONE; 2]);
        if k < 8 {
            let slot = [0x80, 0x88, 0x28, 0x2c, 0x30, 0x38, 0x40, 0x48][k as usize];
            t.store(0x3345 + 9 * k, 1, frame + slot, 8, NONE, NONE);
        }
    }
    t.compute(0x33bd, 6, 1, [NONE; 2]);
}

/// Passes arguments on the stack and in registers.
fn arguments(t: &mut Thread, frame: u64) {
    t.load(0x33c8, 3, frame + 0x28, 4, [NONE; 2]);
    t.store(0x33cc, 1, frame - 0x10, 8, NONE, NONE);
    t.store(0x33cd, 1, frame - 0x18, 8, NONE, NONE);
    t.load(0x33cf, 1, frame + 0x2c, 4, [NONE; 2]);
    t.store(0x33d3, 1, frame - 0x20, 8, NONE, NONE);
    for (k, slot) in [0x48, 0x30, 0x20, 0x18].into_iter().enumerate() {
        let (pc, k) = (0x33d4 + 4 * k as u64, k as u64);
        // `push` of memory is one instruction.
        let value = t.load(pc, 1, frame + slot, 8, [NONE; 2]);
        t.store(pc, 0, frame - 0x28 - 8 * k, 8, NONE, value);
    }
    for (k, slot) in [0x10, 8, 0, 0x38, 0x40].into_iter().enumerate() {
        t.load(0x33e4 + 5 * k as u64, 1, frame + slot, 8, [NONE; 2]);
    }
}

/// Passes the arguments of a lookup in the event loop.
fn event_arguments(t: &mut Thread, frame: u64) {
    t.load(0x3f31, 4, frame + 0x18, 4, [NONE; 2]);
    t.store(0x3f35, 1, frame - 0x10, 8, NONE, NONE);
    t.load(0x3f36, 1, frame + 0x1c, 4, [NONE; 2]);
    t.store(0x3f3a, 1, frame - 0x18, 8, NONE, NONE);
    t.load(0x3f3b, 1, frame + 0x40, 4, [NONE; 2]);
    t.store(0x3f3f, 1, frame - 0x20, 8, NONE, NONE);
    for (k, slot) in [0x38, 0x20].into_iter().enumerate() {
        let (pc, k) = (0x3f40 + 4 * k as u64, k as u64);
        let value = t.load(pc, 1, frame + slot, 8, [NONE; 2]);
        t.store(pc, 0, frame - 0x28 - 8 * k, 8, NONE, value);
    }
    t.store(0x3f48, 1, frame - 0x38, 8, NONE, NONE);
    t.store(0x3f4a, 1, frame - 0x40, 8, NONE, NONE);
    for (k, slot) in [0x28, 0x10, 8, 0x30].into_iter().enumerate() {
        t.load(0x3f4c + 5 * k as u64, 1, frame + slot, 8, [NONE; 2]);
    }
}

/// Returns the channel with the largest cross section, from 1. Emits the branches that count channels above
/// 1.
fn count(t: &mut Thread, at: u64, totals: &[f64; 5], sums: Value) -> u64 {
    // The sums were stored just before: the loads depend on those stores.
    let known = [sums, NONE];
    t.load(0x340a, 2, at, 8, known);
    let second = t.load(0x3417, 2, at + 8, 8, known);
    t.load(0x3424, 2, LEAST, 8, [NONE; 2]);
    let larger = totals[1] > totals[0].max(-1.0);
    t.branch(0x3430, 0x343b, 2, !larger, [second.plus(7), NONE]);
    let insns = if larger { 3 } else { 1 };
    t.load(0x343b, insns, at + 16, 8, known);
    t.load(0x3449, 2, at + 24, 8, known);
    let last = t.load(0x3452, 1, at + 32, 8, known);
    let above = totals.map(|x| x > 1.0);
    let known = [last.plus(3), NONE];
    t.branch(0x349f, 0x36a2, 18, !above[1], known);
    let mut from = 2;
    let mut add = 1;
    if !above[1] {
        // At the first of the rest that is above 1, the code returns to the additions.
        for (k, pc, to) in [
            (2, 0x36a7, 0x34b0),
            (3, 0x36b2, 0x34bb),
            (4, 0x36bd, 0x34c6),
        ] {
            t.branch(pc, to, 2, above[k], known);
            from = k + 1;
            if above[k] {
                break;
            }
        }
        if !above[2..].contains(&true) {
            t.branch(0x36c8, 0x350f, 2, !above[0], known);
            if above[0] {
                t.jump(0x36d3, 0x34ca, 2, TAKEN, [NONE; 2]);
            }
            return largest(totals);
        }
    }
    let adds = [
        (2, 0x34ae, 0x34b4),
        (3, 0x34b9, 0x34bf),
        (4, 0x34c4, 0x34ca),
    ];
    for (k, pc, to) in adds.into_iter().filter(|a| a.0 >= from) {
        t.branch(pc, to, 2 + add, !above[k], known);
        add = u16::from(above[k]);
    }
    if add > 0 {
        t.compute(0x34c6, add, 1, [NONE; 2]);
    }
    largest(totals)
}

/// Index of the largest sum, from 1.
fn largest(totals: &[f64; 5]) -> u64 {
    let mut most = -1.0;
    let mut at = 0;
    for (k, x) in (0..).zip(totals) {
        if *x > most {
            (most, at) = (*x, k);
        }
    }
    at + 1
}

/// [`count`] for the event loop, up to the end of its iteration.
fn event_largest(t: &mut Thread, frame: u64, totals: &[f64; 5], sums: Value) -> u64 {
    let (at, known) = (frame + 0x70, [sums, NONE]);
    t.load(0x3f6f, 3, at, 8, known);
    t.load(0x3f78, 1, LEAST, 8, [NONE; 2]);
    t.load(0x3f84, 2, at + 8, 8, known);
    let mut last = t.load(0x3f92, 3, at + 16, 8, known);
    let most = |k: usize| totals[..k].iter().fold(-1.0f64, |a, b| a.max(*b));
    let third = totals[2] > most(2);
    t.branch(0x3fa3, 0x4061, 3, third, [last.plus(7), NONE]);
    if third {
        t.jump(0x4066, 0x3fad, 2, TAKEN, [NONE; 2]);
    }
    last = t.load(0x3fad, 2 - u16::from(third), at + 24, 8, known);
    let fourth = totals[3] > most(3);
    t.branch(0x3fba, 0x4057, 2, fourth, [last.plus(3), NONE]);
    if fourth {
        t.jump(0x405c, 0x3fc4, 2, TAKEN, [NONE; 2]);
    }
    last = t.load(0x3fc4, 2 - u16::from(fourth), at + 32, 8, known);
    let fifth = totals[4] > most(4);
    t.branch(0x3fd1, 0x4021, 2, fifth, [last.plus(3), NONE]);
    t.load(
        if fifth { 0x402d } else { 0x3fde },
        4,
        frame + 0x44,
        4,
        [NONE; 2],
    );
    t.branch(
        if fifth { 0x4032 } else { 0x3fe3 },
        0x3dad,
        1,
        !fifth,
        [NONE; 2],
    );
    largest(totals)
}

/// End of a particle's lookups.
fn end(t: &mut Thread, frame: u64) {
    t.load(0x3631, 1, frame + 0x80, 8, [NONE; 2]);
    t.load(0x3639, 1, frame + 0x88, 8, [NONE; 2]);
    for (pc, slot, size) in [(0x3641, 0x58, 4), (0x364f, 0x50, 8)] {
        let old = t.load(pc, 1, frame + slot, size, [NONE; 2]);
        t.store(pc, 0, frame + slot, size, NONE, old.plus(1));
        t.load(pc + 5, 1, frame + slot + 8, size, [NONE; 2]);
    }
    t.load(0x3654, 1, frame + 0x5c, 4, [NONE; 2]);
    t.branch(0x3658, 0x31b1, 1, true, [NONE; 2]);
}
