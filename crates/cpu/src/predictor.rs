//! Branch prediction: directions, targets and return addresses.

use pagewalk_stream::{Op, flags};
use pagewalk_structures::StaleOutcomes;
use rustc_hash::FxHashSet;

use crate::tage::{Departed, Tage};
use crate::{CoreSpec, PredictorSpec};

pagewalk_stats::counters! {
    /// Counters of the branch predictor.
    pub struct PredictorStats {
        conditional: "branches", "Conditional branches";
        conditional_wrong: "branches", "Conditional branches whose direction was mispredicted";
        indirect: "branches", "Indirect jumps and calls";
        indirect_wrong: "branches", "Indirect jumps and calls whose target was mispredicted";
        returns: "branches", "Returns";
        returns_wrong: "branches", "Returns whose target was mispredicted";
    }
}

/// Bytes of the longest x86-64 instruction (Intel SDM vol. 2, 2.3.11).
const LONGEST: u64 = 15;

/// Flags of the branches that can be mispredicted.
const PREDICTED: u8 = flags::CONDITIONAL | flags::INDIRECT | flags::RETURN;

#[derive(Clone, Copy, Default, Debug)]
struct Target {
    tag: u64,
    to: u64,
}

/// History bit of a target.
#[inline]
fn target_bit(to: u64) -> bool {
    (to >> 4 ^ to >> 7 ^ to >> 11) & 1 != 0
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Tage,
    Bimodal,
    Perfect,
}

/// Predicts directions of conditional branches, targets of indirect branches by address and
/// history, and return addresses. Targets of direct branches are always right: the decoder corrects
/// them before anything dispatches.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    direction: Direction,
    tage: Tage,
    /// Targets by address and history.
    targets: Box<[Target]>,
    /// Last target by address alone.
    last: Box<[Target]>,
    /// Return stack: addresses of calls, in a ring that overwrites the oldest.
    calls: Box<[u64]>,
    top: usize,
    held: usize,
    /// Predicted target of the last mispredicted indirect jump; 0: none.
    predicted_target: u64,
    /// Counters.
    pub stats: PredictorStats,
    /// Branches seen since the last fast-forward, if there was one.
    seen: Option<Box<Seen>>,
}

/// Branches seen since the last fast-forward.
#[derive(Clone, Debug)]
struct Seen {
    /// Addresses of the branches.
    branches: FxHashSet<u64>,
    /// Some of the addresses, by their lowest bits: saves the search.
    near: [u64; Seen::NEAR],
    stale: StaleOutcomes,
}

impl Seen {
    const NEAR: usize = 1 << 12;

    /// An address that no branch has.
    const NONE: u64 = u64::MAX;

    fn new() -> Self {
        Seen {
            branches: FxHashSet::default(),
            near: [Seen::NONE; Seen::NEAR],
            stale: StaleOutcomes::default(),
        }
    }

    fn forget(&mut self) {
        self.branches.clear();
        self.near.fill(Seen::NONE);
    }

    /// Counts a prediction as uncertain if its branch was not seen since the fast-forward.
    #[inline(always)]
    fn see(&mut self, pc: u64, right: bool) {
        let near = &mut self.near[pc as usize % Seen::NEAR];
        if *near != pc {
            *near = pc;
            self.see_far(pc, right);
        }
    }

    #[inline(never)]
    fn see_far(&mut self, pc: u64, right: bool) {
        if self.branches.insert(pc) {
            self.stale.hits += u64::from(right);
            self.stale.misses += u64::from(!right);
        }
    }
}

impl Predictor {
    /// Marks the predictor's state as stale after a fast-forward.
    pub fn mark_stale(&mut self) {
        // A perfect predictor is never stale.
        if self.direction != Direction::Perfect {
            let seen = self.seen.get_or_insert_with(|| Box::new(Seen::new()));
            seen.forget();
        }
    }

    /// Branches whose prediction is uncertain because of stale state.
    pub fn stale(&self) -> StaleOutcomes {
        self.seen
            .as_ref()
            .map_or(StaleOutcomes::default(), |s| s.stale)
    }

    /// A predictor that has seen no branch: counters are weakly taken, tables are empty. `spec` was
    /// checked: tables of targets are a power of two.
    pub fn new(spec: &CoreSpec) -> Self {
        let n = spec.indirect_entries as usize;
        Predictor {
            direction: match spec.predictor {
                PredictorSpec::Tage { .. } => Direction::Tage,
                PredictorSpec::Bimodal { .. } => Direction::Bimodal,
                PredictorSpec::Perfect {} => Direction::Perfect,
            },
            tage: Tage::new(&spec.predictor),
            targets: vec![Target::default(); n].into(),
            last: vec![Target::default(); n].into(),
            calls: vec![0; spec.return_stack as usize].into(),
            top: 0,
            held: 0,
            predicted_target: 0,
            seen: None,
            stats: PredictorStats::default(),
        }
    }

    /// Predicts a branch and trains on it. Returns true if the prediction was right. `counted`: in
    /// the statistics.
    #[inline]
    pub fn predict(&mut self, op: &Op, counted: bool) -> bool {
        let right = self.predict_any(op, counted);
        if let Some(seen) = &mut self.seen
            && op.flags & PREDICTED != 0
        {
            seen.see(op.pc, right);
        }
        right
    }

    #[inline(always)]
    fn predict_any(&mut self, op: &Op, counted: bool) -> bool {
        let n = u64::from(counted);
        if op.flags & flags::CONDITIONAL != 0 {
            let taken = op.flags & flags::TAKEN != 0;
            let right = match self.direction {
                Direction::Tage => self.tage.predict(op.pc, taken) == taken,
                Direction::Bimodal => self.tage.bimodal(op.pc, taken) == taken,
                Direction::Perfect => true,
            };
            self.stats.conditional += n;
            self.stats.conditional_wrong += n & u64::from(!right);
            return right;
        }
        if op.flags & (flags::INDIRECT | flags::CALL | flags::RETURN) == 0 {
            return true;
        }
        self.predict_target(op, n)
    }

    /// As [`Predictor::predict`], for an indirect branch, a call or a return.
    #[inline(never)]
    fn predict_target(&mut self, op: &Op, n: u64) -> bool {
        let mut right = true;
        if op.flags & flags::RETURN != 0 {
            right = self.returns_to(op.va);
            self.stats.returns += n;
            self.stats.returns_wrong += n & u64::from(!right);
        } else if op.flags & flags::INDIRECT != 0 {
            right = self.jumps_to(op.pc, op.va);
            self.stats.indirect += n;
            self.stats.indirect_wrong += n & u64::from(!right);
        }
        if op.flags & flags::CALL != 0 {
            self.top = (self.top + 1) % self.calls.len();
            self.calls[self.top] = op.pc;
            self.held = (self.held + 1).min(self.calls.len());
        }
        right
    }

    /// Predicts a return: it goes to the instruction after the call, wherever the call ends.
    fn returns_to(&mut self, to: u64) -> bool {
        if self.held == 0 {
            return self.direction == Direction::Perfect;
        }
        let call = self.calls[self.top];
        self.top = (self.top + self.calls.len() - 1) % self.calls.len();
        self.held -= 1;
        (1..=LONGEST).contains(&to.wrapping_sub(call)) || self.direction == Direction::Perfect
    }

    /// Hash of address and history, and the indices into both tables of targets.
    #[inline]
    fn places(&self, pc: u64) -> (u64, usize, usize) {
        let mask = self.targets.len() - 1;
        let h = self.tage.history(1);
        let mixed = (pc ^ u64::from(h) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (
            mixed,
            (mixed >> 40) as usize & mask,
            (pc ^ pc >> 11) as usize & mask,
        )
    }

    /// Predicts the target seen with the same history, else the last one.
    fn jumps_to(&mut self, pc: u64, to: u64) -> bool {
        if self.direction == Direction::Perfect {
            return true;
        }
        let (mixed, at, last) = self.places(pc);
        let by_history = &mut self.targets[at];
        let by_address = &mut self.last[last];
        let predicted = if by_history.tag == mixed {
            Some(by_history.to)
        } else {
            (by_address.tag == pc).then_some(by_address.to)
        };
        let right = predicted == Some(to);
        if !right {
            self.predicted_target = predicted.unwrap_or(0);
        }
        *by_history = Target { tag: mixed, to };
        *by_address = Target { tag: pc, to };
        self.tage.push(target_bit(to));
        right
    }

    /// Begins the wrong path of the branch `op`, just mispredicted: the history continues as
    /// predicted. Returns the predicted target of an indirect branch; 0: none.
    pub fn depart(&mut self, op: &Op) -> (Departed, u64) {
        if op.flags & flags::CONDITIONAL != 0 {
            return (self.tage.depart(true), 0);
        }
        if op.flags & flags::RETURN != 0 || op.flags & flags::INDIRECT == 0 {
            return (self.tage.depart(false), 0);
        }
        let flip = target_bit(self.predicted_target) != target_bit(op.va);
        (self.tage.depart(flip), self.predicted_target)
    }

    /// Predicts the direction of a conditional branch on a wrong path.
    pub fn predict_wrong_path(&mut self, pc: u64) -> bool {
        let taken = match self.direction {
            Direction::Tage => self.tage.peek(pc),
            Direction::Bimodal | Direction::Perfect => self.tage.peek_bimodal(pc),
        };
        self.tage.push(taken);
        taken
    }

    /// Predicts the target of an indirect branch on a wrong path; 0: none.
    pub fn predict_wrong_path_target(&mut self, pc: u64) -> u64 {
        let (mixed, at, last) = self.places(pc);
        let (by_history, by_address) = (self.targets[at], self.last[last]);
        let to = if by_history.tag == mixed {
            by_history.to
        } else if by_address.tag == pc {
            by_address.to
        } else {
            0
        };
        self.tage.push(target_bit(to));
        to
    }

    /// Restores the history at the beginning of the wrong path.
    pub fn return_to(&mut self, departed: Departed) {
        self.tage.return_to(departed);
    }

    /// Clears the return stack for another thread.
    pub fn forget_calls(&mut self) {
        self.held = 0;
    }
}
