//! An engine that gives each miss to the simulator's model and to the hardware, and compares them:
//! `[engine.external.rtl]`, with the keys of `[engine.revelator]`. A run of a whole machine then drives the
//! hardware with its own misses. Any difference ends the run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

use pagewalk_mmu::engine::{
    DegreeFilter, Engine, EngineKind, Guesses, HashedGuesses, Miss, Seen, Verdict, What, register,
};
use pagewalk_mmu::{RevelatorSpec, Walked};
use pagewalk_stats::Tree;
use pagewalk_structures::{Hashes, MOST_TIERS, Placed, Tiers};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Cycle, Error, LINE_SHIFT, PhysAddr};
use serde::{Deserialize, Serialize};

use crate::header::{self, COUNT_BITS, SOURCE};
use crate::registers as reg;
use crate::spec_engine::{Inputs, Outputs, SpecEngine, Variant};

/// Name of the kind of engine.
pub const NAME: &str = "rtl";

/// Outcomes of candidates, for data and for page-table entries, by tier.
type Counts = [[Outcomes; MOST_TIERS]; 2];

/// Outcomes of the candidates of one kind and tier.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Outcomes {
    candidates: u64,
    withheld_by_share: u64,
    withheld_by_delay: u64,
    repeated: u64,
}

/// Sums over the engines that have been dropped.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Misses that the engines were asked about.
    pub requests: u64,
    /// Lines whose frame was computed.
    pub candidates: u64,
    /// Guesses compared, each with its cycle.
    pub guesses: u64,
    /// Requests that waited for the candidates of the one before.
    pub waited: u64,
    /// Clock cycles of the hardware.
    pub cycles: u64,
    /// Writes of registers.
    pub writes: u64,
}

/// Options of the engines that are built next.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The hardware.
    pub variant: Variant,
    /// True if all cycles between misses are simulated. Otherwise pauses end when the hardware is idle.
    pub pauses: bool,
}

struct Shared {
    options: Option<Options>,
    totals: Option<Totals>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    options: None,
    totals: None,
});

fn shared() -> std::sync::MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(|held| held.into_inner())
}

/// Registers the kind, and sets the options of the engines that are built next.
pub fn install(options: Options) {
    shared().options = Some(options);
    register::<CheckedSpec>(NAME);
}

/// The sums since the last call.
pub fn take_totals() -> Totals {
    shared().totals.take().unwrap_or_default()
}

/// The configuration of a checked engine.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct CheckedSpec(RevelatorSpec);

impl EngineKind for CheckedSpec {
    fn check(&self) -> Result<(), Error> {
        self.0.check()?;
        let options = shared().options.clone().unwrap_or_default();
        let latency = header::latency(options.variant.function);
        if (self.0.latency, self.0.interval) != (latency, 1) {
            let expected =
                format!("expected {latency}, with an interval of 1, as the hardware has");
            return Err(Error::key(
                "latency",
                format!("is {}; {expected}", self.0.latency),
            ));
        }
        let refused = [
            ("filter", self.0.filter == DegreeFilter::Perfect),
            ("large", self.0.large),
            ("nested", self.0.nested.is_some()),
        ];
        match refused.into_iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(Error::key(key, "is set; the hardware has no such part")),
            None => Ok(()),
        }
    }

    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
        let options = shared().options.clone().unwrap_or_default();
        Box::new(Checked::new(self.0, frequency_ghz, options))
    }

    fn hashed_guesses(&self) -> Option<HashedGuesses> {
        self.0.hashed_guesses()
    }
}

/// A guess that the hardware has to make.
#[derive(Clone, Copy, Debug)]
struct Expected {
    line: u64,
    entry: bool,
    /// Cycle of the hardware.
    cycle: i64,
}

/// A request whose candidates are on their way.
struct Pending {
    /// Candidates that have not been judged.
    left: u64,
    /// Line and delay of the DRAM's bus of those that are not repeated, in order.
    asked: VecDeque<(u64, Cycle)>,
}

struct Checked {
    spec: RevelatorSpec,
    model: Box<dyn Engine>,
    hardware: SpecEngine,
    options: Options,
    pending: VecDeque<Pending>,
    expected: VecDeque<Expected>,
    /// Values of the registers as the hardware has them.
    written: [Option<u64>; 1 << reg::INDEX_BITS],
    thresholds: [Cycle; MOST_TIERS],
    /// The longest delay that the input of the hardware can hold. It stands for all that are longer.
    longest: Cycle,
    counts: Counts,
    totals: Totals,
    /// Cycle of the hardware, less the simulator's.
    base: i64,
    /// True if the hardware has spent cycles that the simulator has not: `base` is set anew.
    rebase: bool,
    /// Cycles of the simulator in which the hardware takes the candidates of requests that followed each
    /// other without a pause.
    busy: Range<Cycle>,
}

/// Requests between comparisons of the counters.
const COMPARE_COUNTS: u64 = 1 << 17;

/// Most cycles of a pause that are simulated without [`Options::pauses`].
const PAUSE: i64 = 64;

impl Checked {
    fn new(spec: RevelatorSpec, frequency_ghz: f64, options: Options) -> Self {
        Checked {
            spec,
            model: spec.build(frequency_ghz),
            hardware: SpecEngine::of(&options.variant),
            options,
            pending: VecDeque::new(),
            expected: VecDeque::new(),
            written: [None; 1 << reg::INDEX_BITS],
            thresholds: spec.delays(frequency_ghz),
            longest: longest_delay(),
            counts: Counts::default(),
            totals: Totals::default(),
            base: 0,
            rebase: true,
            busy: 0..0,
        }
    }

    /// One cycle with these inputs. Compares the candidate that is judged and the guess that is taken.
    fn step(&mut self, mut inputs: Inputs) -> Outputs {
        let before = self.hardware.outputs;
        let next = self.pending.front().and_then(|p| p.asked.front()).copied();
        let next = next.filter(|(line, _)| before.probe_valid && *line == before.probe_line);
        inputs.probe_delay = next.map_or(0, |(_, delay)| delay.min(self.longest)) as u16;
        inputs.guess_ready = true;
        let now = self.hardware.cycle;
        let out = self.hardware.step(&inputs);
        if out.guess || out.repeated || out.delayed {
            self.totals.candidates += 1;
            let counts = &mut self.counts[usize::from(out.entry)][usize::from(out.tier)];
            counts.candidates += 1;
            counts.repeated += u64::from(out.repeated);
            counts.withheld_by_delay += u64::from(out.delayed);
            let Some(pending) = self.pending.front_mut() else {
                panic!("a candidate that the model does not name: {before:x?}");
            };
            assert!(
                next.is_some() != out.repeated,
                "candidate {:#x}, the model has {:x?} next: {out:?}",
                before.probe_line,
                pending.asked.front()
            );
            if next.is_some() {
                pending.asked.pop_front();
            }
            pending.left -= 1;
            if pending.left == 0 {
                assert!(pending.asked.is_empty(), "not named: {:x?}", pending.asked);
                self.pending.pop_front();
            }
        }
        if out.guess_valid {
            let Some(expected) = self.expected.pop_front() else {
                panic!("a guess that the model does not make: {out:?}");
            };
            assert_eq!(
                (out.guess_line, out.guess_entry),
                (expected.line, expected.entry),
                "guess in cycle {now}: {out:x?}"
            );
            self.totals.guesses += 1;
            assert_eq!(now as i64, expected.cycle, "cycle of {expected:x?}");
        }
        out
    }

    /// Lets all candidates and guesses leave.
    fn drain(&mut self) {
        for _ in 0..=2 * MOST_TIERS as u64 + self.spec.latency {
            self.step(Inputs::default());
        }
        assert!(
            self.expected.is_empty() && self.pending.is_empty(),
            "the hardware has not made {:x?}",
            self.expected
        );
        self.rebase = true;
    }

    /// The registers' values for the kernel's state.
    fn values(&self, tiers: &Tiers) -> Vec<(u8, u64)> {
        let least = |placed: &Placed| match self.spec.filter {
            // Counts are whole numbers.
            DegreeFilter::Adaptive => {
                (self.spec.least_share * placed.tries(0) as f64).ceil() as u64
            }
            DegreeFilter::Off | DegreeFilter::Perfect => 0,
        };
        let kinds = self.spec.what;
        let degree = tiers.hash.tiers().min(usize::from(self.spec.degree)) as u64;
        let of_data = if kinds.has(What::Data) { degree } else { 0 };
        let of_tables = if kinds.has(What::Entry) {
            degree.min(tiers.table_tiers as u64)
        } else {
            0
        };
        let range = tiers.hash.range();
        let mut values = vec![
            (reg::DEGREE, of_data | of_tables << 8),
            (reg::RANGE_START, range.start),
            (reg::RANGE_FRAMES, range.end - range.start),
            (reg::DATA_LEAST, least(&tiers.data)),
            (reg::TABLE_LEAST, least(&tiers.tables)),
        ];
        for tier in 0..MOST_TIERS as u8 {
            let n = usize::from(tier);
            values.push((reg::DATA_HITS + tier, tiers.data.hits[n]));
            values.push((reg::TABLE_HITS + tier, tiers.tables.hits[n]));
            let threshold = match self.spec.filter {
                DegreeFilter::Adaptive => self.thresholds[n],
                DegreeFilter::Off | DegreeFilter::Perfect => Cycle::MAX,
            };
            values.push((reg::DELAY + tier, threshold));
        }
        values
    }

    /// Writes the registers that have changed.
    fn synchronise(&mut self, tiers: &Tiers) {
        let function = self.options.variant.function;
        assert_eq!(
            tiers.hash.function(),
            function,
            "the kernel's hash function"
        );
        let mut changed = Vec::new();
        if self.written[usize::from(reg::SEED)].is_none() {
            let seed = tiers.hash.seed_in_order();
            let seed = seed.expect("the seeds of a run are in order unless it says otherwise");
            let order = (1..=MOST_TIERS as u64).rfold(0, |order, n| order << 8 | n);
            changed.extend([(reg::ORDER, order), (reg::SEED, seed)]);
        }
        for (register, value) in self.values(tiers) {
            let value = match register {
                reg::DELAY.. => value.min(self.longest),
                _ => value,
            };
            if self.written[usize::from(register)] != Some(value) {
                changed.push((register, value));
            }
        }
        if changed.is_empty() {
            return;
        }
        self.drain();
        for (register, value) in changed {
            if matches!(register, reg::DATA_LEAST..reg::DELAY) {
                assert!(value >> COUNT_BITS == 0, "{value} placements");
            }
            let write = Inputs {
                reg_valid: true,
                reg_index: register,
                reg_value: value,
                ..Inputs::default()
            };
            while !self.step(write).reg_ready {}
            self.written[usize::from(register)] = Some(value);
            self.totals.writes += 1;
        }
    }

    /// Gives the request to the hardware at its own time, or as soon as it is taken.
    fn request(&mut self, miss: &Miss, guesses: &Guesses, asked: Vec<(u64, Cycle)>) {
        let waits = self.busy.contains(&miss.at);
        if !waits {
            self.busy.start = miss.at;
        }
        let start = if waits { self.busy.end } else { miss.at };
        self.totals.waited += u64::from(waits);
        let now = self.hardware.cycle as i64;
        let pause: i64 = if self.options.pauses { 1 << 20 } else { PAUSE };
        let comparable = now..now + pause;
        if self.rebase || !comparable.contains(&self.cycle(start)) {
            self.drain();
            self.base = self.hardware.cycle as i64 - start as i64;
            self.rebase = false;
        }
        while (self.hardware.cycle as i64) < self.cycle(miss.at) {
            self.step(Inputs::default());
        }
        for guess in guesses {
            self.expected.push_back(Expected {
                line: guess.at.0 >> LINE_SHIFT,
                entry: guess.what == What::Entry,
                cycle: self.cycle(miss.at + self.spec.latency + guess.after),
            });
        }
        let inputs = Inputs {
            req_valid: true,
            req_asid: miss.asid.0,
            req_line: miss.va.0 >> LINE_SHIFT,
            req_merges: miss.merges,
            ..Inputs::default()
        };
        let left = self.candidates(miss.merges);
        if left > 0 {
            let asked = asked.into();
            self.pending.push_back(Pending { left, asked });
        }
        let taken = loop {
            let cycle = self.hardware.cycle as i64;
            let out = self.step(inputs);
            if out.req_ready {
                self.count_withheld(&out);
                break cycle;
            }
        };
        assert_eq!(taken, self.cycle(start), "cycle of {miss:?}");
        self.busy.end = start + left.max(1);
        self.totals.requests += 1;
    }

    /// The hardware's cycle at this time of the simulator.
    fn cycle(&self, at: Cycle) -> i64 {
        self.base.saturating_add_unsigned(at)
    }

    /// Candidates of a request, by the registers.
    fn candidates(&self, merges: bool) -> u64 {
        let value = |register: u8| self.written[usize::from(register)].unwrap_or(0);
        let degree = value(reg::DEGREE);
        let of = |degree: u64, hits: u8, least: u8| {
            let serves = |&t: &u8| t == 0 || value(hits + t) >= value(least);
            (0..degree as u8).filter(serves).count() as u64
        };
        let of_tables = if merges {
            0
        } else {
            of(degree >> 8, reg::TABLE_HITS, reg::TABLE_LEAST)
        };
        of_tables + of(degree & 0xff, reg::DATA_HITS, reg::DATA_LEAST)
    }

    fn count_withheld(&mut self, out: &Outputs) {
        for (kind, withheld) in [out.data_withheld, out.table_withheld]
            .into_iter()
            .enumerate()
        {
            for (tier, counts) in self.counts[kind].iter_mut().enumerate() {
                let withheld = u64::from(withheld >> tier & 1);
                counts.candidates += withheld;
                counts.withheld_by_share += withheld;
            }
        }
    }

    /// Begins or ends the waveform with the request that comes next.
    fn trace(&mut self) {
        let Some(waveform) = self.options.variant.waveform.clone() else {
            return;
        };
        if let Some(change) = waveform.change(self.totals.requests) {
            self.drain();
            self.hardware.trace(change);
        }
    }

    /// Compares all counters with the model's.
    fn compare_counts(&self) {
        let mut tree = Tree::default();
        self.model.report("engine", &mut tree);
        for (kind, name) in ["data", "entries"].into_iter().enumerate() {
            for tier in 0..usize::from(self.spec.degree) {
                let path = format!("engine.{name}.{}", tier + 1);
                let get = |counter| tree.get(&path, counter).unwrap_or(0);
                let model = Outcomes {
                    candidates: get("candidates"),
                    withheld_by_share: get("withheld_by_share"),
                    withheld_by_delay: get("withheld_by_delay"),
                    repeated: get("repeated"),
                };
                assert_eq!(self.counts[kind][tier], model, "{path}");
            }
        }
    }
}

/// The longest delay that the input of the hardware can hold.
fn longest_delay() -> Cycle {
    let (machine, design) = SOURCE;
    let parameters = header::parameters(&crate::configuration(machine, design));
    (1 << parameters.delay_bits) - 1
}

impl Engine for Checked {
    fn latency(&self) -> Cycle {
        self.model.latency()
    }

    fn makes(&self, what: What) -> bool {
        self.model.makes(what)
    }

    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses {
        let asked = RefCell::new(Vec::new());
        let delay = |at: PhysAddr| {
            let delay = (seen.delay)(at);
            asked.borrow_mut().push((at.0 >> LINE_SHIFT, delay));
            delay
        };
        let watched = Seen {
            view: seen.view,
            tiers: seen.tiers,
            delay: &delay,
        };
        let guesses = self.model.guess(miss, &watched);
        let Some(tiers) = seen.tiers.filter(|t| t.of == Hashes::Virtual) else {
            return guesses;
        };
        let asked = match self.spec.filter {
            DegreeFilter::Adaptive => asked.into_inner(),
            // The model asks for no delay, and each candidate that is not repeated is a guess.
            DegreeFilter::Off | DegreeFilter::Perfect => {
                guesses.iter().map(|g| (g.at.0 >> LINE_SHIFT, 0)).collect()
            }
        };
        self.synchronise(tiers);
        self.trace();
        self.request(miss, &guesses, asked);
        if self.totals.requests.is_multiple_of(COMPARE_COUNTS) {
            self.drain();
            self.compare_counts();
        }
        guesses
    }

    fn judged(&mut self, n: usize, verdict: &Verdict) {
        self.model.judged(n, verdict);
    }

    fn learn(&mut self, miss: &Miss, walked: &Walked, end: Cycle) {
        self.model.learn(miss, walked, end);
    }

    fn invalidate(&mut self, what: &Invalidation) {
        self.model.invalidate(what);
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        self.model.report(path, tree);
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.drain();
        self.compare_counts();
        self.hardware.trace(None);
        let mut shared = shared();
        let sums = shared.totals.get_or_insert_default();
        for (sum, n) in [
            (&mut sums.requests, self.totals.requests),
            (&mut sums.candidates, self.totals.candidates),
            (&mut sums.guesses, self.totals.guesses),
            (&mut sums.waited, self.totals.waited),
            (&mut sums.cycles, self.hardware.cycle),
            (&mut sums.writes, self.totals.writes),
        ] {
            *sum += n;
        }
    }
}
