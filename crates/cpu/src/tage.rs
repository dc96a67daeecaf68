//! TAGE: tagged tables with geometrically growing history over a bimodal one.

use crate::PredictorSpec;

/// log2 of the number of counters of the bimodal table.
const BASE_LOG: u32 = 13;
/// Bits to which a table's history is folded: the low bits form the index, the high bits the tag.
const FOLD_BITS: u32 = 23;
const TAG_BITS: u32 = 12;
/// Outcomes kept; more than the longest history.
const KEPT: usize = 1024;
/// Branches between two agings of the useful bits (Seznec and Michaud age every 256 K).
const AGE: u32 = 1 << 18;
/// Most tagged tables.
const TABLES: usize = 8;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    tag: u16,
    /// Predicts taken if not negative; -4..=3.
    counter: i8,
    useful: u8,
}

/// The history at the beginning of a wrong path.
pub(crate) struct Departed {
    folded: [u32; TABLES],
    head: usize,
    outcomes: Box<[u8; KEPT]>,
}

/// The direction predictor and the global history.
#[derive(Clone, Debug)]
pub(crate) struct Tage {
    base: Box<[i8]>,
    entries: Box<[Entry]>,
    log: u32,
    tables: usize,
    length: [u32; TABLES],
    folded: [u32; TABLES],
    /// The bit of a folded history at which the oldest outcome leaves.
    outgoing: [u32; TABLES],
    outcomes: Box<[u8; KEPT]>,
    head: usize,
    until_age: u32,
    /// Alternates the table that gets a new entry.
    spread: u32,
}

impl Tage {
    /// A predictor that has seen no branch. The history lengths grow geometrically from
    /// `min_history` to `max_history`. For other kinds of predictors there are two unused tables:
    /// their folded histories serve the indirect targets.
    pub fn new(spec: &PredictorSpec) -> Self {
        let (log, tables, min, max) = match *spec {
            PredictorSpec::Tage {
                log_entries,
                tables,
                min_history,
                max_history,
            } => (log_entries, tables as usize, min_history, max_history),
            // Only the history is used, for indirect targets.
            PredictorSpec::Bimodal { .. } | PredictorSpec::Perfect {} => (0, 2, 8, 25),
        };
        let base_log = match *spec {
            PredictorSpec::Bimodal { log_entries } => log_entries,
            _ => BASE_LOG,
        };
        let mut length = [0; TABLES];
        let ratio = (f64::from(max) / f64::from(min)).powf(1.0 / (tables as f64 - 1.0));
        for (i, l) in length.iter_mut().take(tables).enumerate() {
            *l = (f64::from(min) * ratio.powi(i as i32)).round() as u32;
        }
        Tage {
            base: vec![0; 1 << base_log].into(),
            entries: vec![Entry::default(); tables << log].into(),
            log,
            tables,
            length,
            folded: [0; TABLES],
            outgoing: length.map(|l| 1 << (l % FOLD_BITS)),
            outcomes: Box::new([0; KEPT]),
            head: 0,
            until_age: AGE,
            spread: 0,
        }
    }

    /// History folded for `table`, for the indirect targets.
    #[inline]
    pub fn history(&self, table: usize) -> u32 {
        self.folded[table]
    }

    /// Appends one bit to the history.
    #[inline]
    pub fn push(&mut self, bit: bool) {
        if self.tables <= 4 {
            self.push_to::<4>(bit);
        } else {
            self.push_to::<TABLES>(bit);
        }
    }

    #[inline]
    fn push_to<const N: usize>(&mut self, bit: bool) {
        let head = (self.head + KEPT - 1) % KEPT;
        self.head = head;
        self.outcomes[head] = u8::from(bit);
        // All tables at once, in the host's vectors.
        let mut gone = [0u32; N];
        for (g, &length) in gone.iter_mut().zip(&self.length) {
            *g = u32::from(self.outcomes[(head + length as usize) % KEPT]);
        }
        for (i, gone) in gone.into_iter().enumerate() {
            let mut f = self.folded[i] << 1 | u32::from(bit);
            f ^= self.outgoing[i] & gone.wrapping_neg();
            f ^= f >> FOLD_BITS;
            self.folded[i] = f & ((1 << FOLD_BITS) - 1);
        }
    }

    /// Begins a wrong path. Flips the last bit of history if `flip`. [`Tage::return_to`] discards
    /// the bits from now on.
    pub fn depart(&mut self, flip: bool) -> Departed {
        let departed = Departed {
            folded: self.folded,
            head: self.head,
            outcomes: self.outcomes.clone(),
        };
        if flip {
            self.outcomes[self.head] ^= 1;
            self.folded.iter_mut().for_each(|f| *f ^= 1);
        }
        departed
    }

    /// Restores the history at the beginning of the wrong path.
    pub fn return_to(&mut self, departed: Departed) {
        self.folded = departed.folded;
        self.head = departed.head;
        self.outcomes = departed.outcomes;
    }

    /// The prediction of [`Tage::bimodal`], without training.
    pub fn peek_bimodal(&self, pc: u64) -> bool {
        self.base[hash(pc) as usize & (self.base.len() - 1)] >= 0
    }

    /// The prediction of [`Tage::predict`], without training.
    pub fn peek(&self, pc: u64) -> bool {
        let h = hash(pc);
        let within = (1u32 << self.log) - 1;
        let mut longest = self.peek_bimodal(pc);
        let mut predicted = longest;
        for (i, &f) in self.folded.iter().enumerate().take(self.tables) {
            let index = (h ^ h >> (i + 3) ^ f) & within;
            let tag =
                ((h >> 18 ^ f >> (FOLD_BITS - TAG_BITS)) & ((1 << TAG_BITS) - 1)) as u16 | 1 << 15;
            let e = &self.entries[(i << self.log) + index as usize];
            if e.tag == tag {
                // A fresh entry is less reliable than the one it was allocated from.
                let fresh = e.useful == 0 && (e.counter == 0 || e.counter == -1);
                predicted = if fresh { longest } else { e.counter >= 0 };
                longest = e.counter >= 0;
            }
        }
        predicted
    }

    /// Predicts by two-bit counters alone, trains, and appends the outcome to the history.
    #[inline(never)]
    pub fn bimodal(&mut self, pc: u64, taken: bool) -> bool {
        let n = self.base.len();
        let counter = &mut self.base[hash(pc) as usize & (n - 1)];
        let predicted = *counter >= 0;
        *counter = learn(*counter, taken, -2, 1);
        self.push(taken);
        predicted
    }

    /// Predicts, trains on the outcome, and appends it to the history. Returns the prediction.
    #[inline]
    pub fn predict(&mut self, pc: u64, taken: bool) -> bool {
        if self.tables == 4 {
            self.predict_with::<4>(pc, taken)
        } else {
            self.predict_with_most(pc, taken)
        }
    }

    #[inline(never)]
    fn predict_with_most(&mut self, pc: u64, taken: bool) -> bool {
        self.predict_with::<TABLES>(pc, taken)
    }

    #[inline]
    fn predict_with<const N: usize>(&mut self, pc: u64, taken: bool) -> bool {
        let h = hash(pc);
        let tables = self.tables.min(N);
        let mut at = [0usize; N];
        let mut tag = [0u16; N];
        let mut matching = 0u32;
        let within = (1u32 << self.log) - 1;
        for i in 0..if N == 4 { N } else { tables } {
            let f = self.folded[i];
            let index = (h ^ h >> (i + 3) ^ f) & within;
            at[i] = (i << self.log) + index as usize;
            tag[i] =
                ((h >> 18 ^ f >> (FOLD_BITS - TAG_BITS)) & ((1 << TAG_BITS) - 1)) as u16 | 1 << 15;
            matching |= u32::from(self.entries[at[i]].tag == tag[i]) << i;
        }
        let n = self.base.len();
        let b = h as usize & (n - 1);
        let base = self.base[b] >= 0;
        let predicted;
        if matching == 0 {
            predicted = base;
            self.base[b] = learn(self.base[b], taken, -2, 1);
        } else {
            let p = 31 - matching.leading_zeros();
            let rest = matching & !(1 << p);
            let other = if rest == 0 {
                base
            } else {
                self.entries[at[31 - rest.leading_zeros() as usize]].counter >= 0
            };
            let e = &mut self.entries[at[p as usize]];
            let own = e.counter >= 0;
            // A fresh entry is less reliable than the one it was allocated from.
            let fresh = e.useful == 0 && (e.counter == 0 || e.counter == -1);
            predicted = if fresh { other } else { own };
            e.counter = learn(e.counter, taken, -4, 3);
            if own != other {
                e.useful = if own == taken {
                    (e.useful + 1).min(3)
                } else {
                    e.useful.saturating_sub(1)
                };
            }
            if fresh && rest == 0 {
                self.base[b] = learn(self.base[b], taken, -2, 1);
            }
        }
        if predicted != taken {
            self.allocate(&at, &tag, matching, taken);
        }
        self.until_age -= 1;
        if self.until_age == 0 {
            self.until_age = AGE;
            self.entries.iter_mut().for_each(|e| e.useful >>= 1);
        }
        self.push_to::<N>(taken);
        predicted
    }

    /// Allocates an entry with a longer history for a mispredicted branch.
    #[cold]
    fn allocate(&mut self, at: &[usize], tag: &[u16], matching: u32, taken: bool) {
        let longer = (32 - matching.leading_zeros()) as usize;
        if longer >= self.tables {
            return;
        }
        // One time in two the first choice is skipped, so that tables share the load.
        self.spread = self
            .spread
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let first = if self.spread >> 31 == 1 && longer + 1 < self.tables {
            longer + 1
        } else {
            longer
        };
        for i in first..self.tables {
            let e = &mut self.entries[at[i]];
            if e.useful == 0 {
                *e = Entry {
                    tag: tag[i],
                    counter: if taken { 0 } else { -1 },
                    useful: 0,
                };
                return;
            }
        }
        for &slot in &at[first..self.tables] {
            let e = &mut self.entries[slot];
            e.useful -= 1;
        }
    }
}

#[inline]
fn hash(pc: u64) -> u32 {
    (pc.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

#[inline]
fn learn(counter: i8, up: bool, low: i8, high: i8) -> i8 {
    if up {
        (counter + 1).min(high)
    } else {
        (counter - 1).max(low)
    }
}

#[cfg(test)]
mod tests {
    use super::{Tage, hash};
    use crate::PredictorSpec;

    /// Branches with and without pattern.
    fn outcome(i: u64) -> (u64, bool) {
        let pc = 0x40_0000 + hash(i) as u64 % 40 * 4;
        let taken = match pc / 4 % 4 {
            0 => true,
            1 => i.is_multiple_of(3),
            2 => hash(i / 2) & 1 == 0,
            _ => hash(i ^ 77) & 3 == 0,
        };
        (pc, taken)
    }

    #[test]
    fn a_wrong_path_sees_what_the_right_one_would_and_leaves_no_trace() {
        for tables in [4, 7] {
            let spec = PredictorSpec::Tage {
                log_entries: 8,
                tables,
                min_history: 4,
                max_history: 1000,
            };
            let (mut one, mut other) = (Tage::new(&spec), Tage::new(&spec));
            for i in 0..20_000 {
                let (pc, taken) = outcome(i);
                let peeked = one.peek(pc);
                assert_eq!(one.peek_bimodal(pc), other.peek_bimodal(pc));
                let predicted = one.predict(pc, taken);
                assert_eq!(peeked, predicted, "branch {i}");
                assert_eq!(other.predict(pc, taken), predicted, "branch {i}");
                if predicted == taken {
                    continue;
                }
                // The history if the branch had gone the other way.
                let departed = one.depart(true);
                let mut flipped = other.clone();
                let before = flipped.outcomes[flipped.head] ^ 1;
                flipped.outcomes[flipped.head] = before;
                flipped.folded.iter_mut().for_each(|f| *f ^= 1);
                for k in 0..50 {
                    let (pc, taken) = outcome(i * 31 + k);
                    assert_eq!(one.peek(pc), flipped.peek(pc));
                    one.push(taken);
                    flipped.push(taken);
                }
                one.return_to(departed);
            }
        }
    }
}
