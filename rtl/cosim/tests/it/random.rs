//! Random registers, requests, delays and pauses of the cache, against a model that knows no cycles.

use std::collections::VecDeque;

use pagewalk_rtl::registers as reg;
use pagewalk_rtl::spec_engine::{Inputs, SpecEngine, Variant};
use pagewalk_rtl::verilated;
use pagewalk_structures::{HashKey, TierFunction, TieredHash};
use pagewalk_units::Asid;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const LONGEST: u64 = 255;

/// A candidate and its outcome.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    line: u64,
    entry: bool,
    tier: u8,
    delay: u16,
    repeated: bool,
    delayed: bool,
}

/// The registers, as the kernel has written them.
struct Registers {
    hash: TieredHash,
    degrees: [u64; 2],
    hits: [Vec<u64>; 2],
    least: [u64; 2],
    delays: Vec<u64>,
}

fn near(rng: &mut impl Rng, at: u64, most: u64) -> u64 {
    match rng.random_range(0..4) {
        0 => at,
        1 => at.saturating_sub(1),
        2 => (at + 1).min(most),
        _ => rng.random_range(0..=most),
    }
}

impl Registers {
    fn draw(
        rng: &mut impl Rng,
        function: TierFunction,
        tiers: usize,
    ) -> (Registers, Vec<(u8, u64)>) {
        let mut order: Vec<u8> = (1..=6).collect();
        for i in 0..6 {
            order.swap(i, rng.random_range(i..6));
        }
        let order = order[..tiers].to_vec();
        let seed = rng.next_u64();
        // A small range makes tiers select the same frame.
        let frames = match rng.random_range(0..4) {
            0 => rng.random_range(1..4),
            1 => 1 << rng.random_range(0..25),
            _ => rng.random_range(1..1 << 25),
        };
        let start = near(rng, 0, (1 << 25) - frames);
        let least = [0; 2].map(|_| u64::from(rng.next_u32()) >> rng.random_range(0..32));
        let draw = |rng: &mut _, at, most| -> Vec<u64> {
            (0..tiers).map(|_| near(rng, at, most)).collect()
        };
        let registers = Registers {
            hash: TieredHash::with(function, seed, &order, start..start + frames),
            degrees: [0; 2].map(|_| rng.random_range(0..=tiers as u64)),
            hits: least.map(|least| draw(rng, least, u64::from(u32::MAX))),
            least,
            delays: draw(rng, LONGEST, LONGEST),
        };
        let order = order.iter().rfold(0, |all, &n| all << 8 | u64::from(n));
        let [of_data, of_tables] = registers.degrees;
        let mut writes = vec![
            (reg::DEGREE, of_data | of_tables << 8),
            (reg::RANGE_START, start),
            (reg::RANGE_FRAMES, frames),
            (reg::DATA_LEAST, least[0]),
            (reg::TABLE_LEAST, least[1]),
        ];
        for tier in 0..tiers {
            let n = tier as u8;
            writes.push((reg::DATA_HITS + n, registers.hits[0][tier]));
            writes.push((reg::TABLE_HITS + n, registers.hits[1][tier]));
            writes.push((reg::DELAY + n, registers.delays[tier]));
        }
        let registers_written = writes.len();
        for i in 0..registers_written {
            writes.swap(i, rng.random_range(i..registers_written));
        }
        writes.extend([(reg::ORDER, order), (reg::SEED, seed)]);
        (registers, writes)
    }

    /// Candidates of a request, in order.
    fn candidates(
        &self,
        rng: &mut impl Rng,
        (asid, va, merges): (u16, u64, bool),
    ) -> Vec<Candidate> {
        let vpn = va >> 12;
        let mut all: Vec<Candidate> = Vec::new();
        for tier in 0..self.delays.len() {
            for kind in [1, 0] {
                let entry = kind == 1;
                let tried = (tier as u64) < self.degrees[kind];
                let serves = tier == 0 || self.hits[kind][tier] >= self.least[kind];
                if !tried || !serves || entry && merges {
                    continue;
                }
                let (key, offset) = if entry {
                    (HashKey::table(Asid(asid), vpn), 8 * (vpn & 511))
                } else {
                    (HashKey::page(Asid(asid), vpn), va & 0xfff)
                };
                let line = (self.hash.of(tier, key) << 12 | offset) >> 6;
                let guessed =
                    |c: &Candidate| c.entry == entry && c.line == line && !c.repeated && !c.delayed;
                let repeated = all.iter().any(guessed);
                let delay = near(rng, self.delays[tier], LONGEST);
                all.push(Candidate {
                    line,
                    entry,
                    tier: tier as u8,
                    delay: delay as u16,
                    repeated,
                    delayed: !repeated && delay > self.delays[tier],
                });
            }
        }
        all
    }
}

fn address(rng: &mut impl Rng) -> (u16, u64, bool) {
    let asid = [0, 1, u16::MAX, rng.next_u32() as u16][rng.random_range(0..4)];
    let va = [
        0,
        (1 << 48) - 1,
        rng.next_u64() >> 16,
        rng.random_range(0..1 << 22),
    ];
    (
        asid,
        va[rng.random_range(0..4)],
        rng.random_range(0..3) == 0,
    )
}

/// Drives the hardware with `rounds` settings of the registers and `requests` requests for each.
fn compare(function: TierFunction, tiers: usize, rounds: u64, requests: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(tiers as u64);
    let variant = Variant {
        tiers: Some(tiers as u64),
        function,
        ..Variant::default()
    };
    let mut engine = SpecEngine::of(&variant);
    let (mut guessed, mut repeated, mut delayed) = (0, 0, 0);
    let (mut judged, mut guesses) = (VecDeque::new(), VecDeque::new());
    // The registers of a round are written while candidates of the round before are on their way. In the
    // last round nothing comes after the registers.
    for round in 0..=rounds {
        let requests = if round < rounds { requests } else { 0 };
        let (registers, writes) = Registers::draw(&mut rng, function, tiers);
        let mut writes = VecDeque::from(writes);
        let (mut sent, mut request) = (0, None);
        // Tenths of the cycles without a request, and in which the cache takes no guess.
        let [gap, busy] = [0; 2].map(|_| [0, 1, 4, 9][rng.random_range(0..4)]);
        while sent < requests || !writes.is_empty() || requests == 0 && !guesses.is_empty() {
            let write = writes.front().copied();
            let may = write.is_none() && request.is_none() && sent < requests;
            if may && rng.random_range(0..10) >= gap {
                let drawn = address(&mut rng);
                request = Some((drawn, registers.candidates(&mut rng, drawn)));
            }
            let probed = engine.outputs.probe_valid;
            let probe = judged.front().copied().filter(|_| probed);
            let line = engine.outputs.probe_line;
            let mut inputs = Inputs {
                guess_ready: rng.random_range(0..10) >= busy,
                probe_delay: probe.map_or(0, |c: Candidate| c.delay),
                ..Inputs::default()
            };
            if let Some((index, value)) = write {
                (inputs.reg_valid, inputs.reg_index, inputs.reg_value) = (true, index, value);
            } else if let Some(((asid, va, merges), _)) = &request {
                inputs.req_valid = true;
                (inputs.req_asid, inputs.req_line, inputs.req_merges) = (*asid, va >> 6, *merges);
            }
            let out = engine.step(&inputs);
            if inputs.reg_valid && out.reg_ready {
                writes.pop_front();
            }
            if inputs.req_valid && out.req_ready {
                let ((_, _, merges), candidates) = request.take().expect("there is a request");
                let withheld = |kind: usize| {
                    let tiers = 1..registers.degrees[kind].max(1) as usize;
                    let of =
                        |t: usize| u8::from(registers.hits[kind][t] < registers.least[kind]) << t;
                    tiers.map(of).sum::<u8>()
                };
                let of_tables = if merges { 0 } else { withheld(1) };
                assert_eq!(
                    (out.data_withheld, out.table_withheld),
                    (withheld(0), of_tables)
                );
                judged.extend(candidates);
                sent += 1;
            } else {
                assert_eq!((out.data_withheld, out.table_withheld), (0, 0));
            }
            if out.guess || out.repeated || out.delayed {
                let c = judged.pop_front().expect("a request has this candidate");
                assert_eq!(
                    (line, out.entry, out.tier),
                    (c.line, c.entry, c.tier),
                    "{c:?}"
                );
                assert_eq!(
                    (out.repeated, out.delayed),
                    (c.repeated, c.delayed),
                    "{c:?}"
                );
                repeated += u64::from(c.repeated);
                delayed += u64::from(c.delayed);
                if out.guess {
                    guesses.push_back(c);
                }
            }
            if out.guess_valid && inputs.guess_ready {
                let c = guesses
                    .pop_front()
                    .expect("the filter has passed this guess");
                assert_eq!((out.guess_line, out.guess_entry), (c.line, c.entry));
                guessed += 1;
            }
        }
    }
    assert!(judged.is_empty() && guesses.is_empty());
    assert!(
        guessed > 0 && delayed > 0,
        "{guessed} guesses, {delayed} delayed"
    );
    assert_eq!(repeated > 0, tiers > 1, "{repeated} repeated");
}

#[test]
fn random_requests_and_pauses_give_the_guesses_of_the_hash() {
    if !verilated::available() {
        return;
    }
    compare(TierFunction::Murmur, 3, 60, 100);
}

#[test]
#[ignore = "compiles the hardware of each setting: make rtl-test"]
fn random_requests_and_pauses_give_the_guesses_of_every_hash() {
    if !verilated::available() {
        return;
    }
    let [murmur, multiplicative, crc] = TierFunction::ALL;
    for (function, tiers) in [(murmur, 1), (murmur, 6), (multiplicative, 6), (crc, 6)] {
        compare(function, tiers, 60, 100);
    }
}
