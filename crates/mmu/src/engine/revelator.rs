//! Revelator's speculation engine (section 5.3): the frames that the kernel's hashes
//! name, of the page and of the last-level page table, guessed where no TLB has an answer.

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_structures::{MOST_TIERS, Placed};
use pagewalk_units::{Cycle, LINE_SHIFT, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::EngineKind;
use super::{
    Engine, Guess, GuessStats, GuessedLines, Guesses, MOST_GUESSES, Miss, Seen, Verdict, What,
};
use crate::Walked;
use crate::spec::MAX_LATENCY;
use crate::walk::foresee;

/// An engine that hashes as the kernel of `placement.tiered_hash` does: number, order,
/// seeds and success counts of the tiers are that kernel's.
///
/// Guesses are made tier by tier, the likeliest first; of a tier the page-table entry
/// before the data, since the walk waits for it. What waits for another's walk guesses
/// its data only. Entries are those of 4 KB pages; data is guessed in 2 MB blocks too, these
/// first, where the kernel hashes them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevelatorSpec {
    /// Cycles from a miss of all TLBs to its guesses. Default 2 (our choice: a hash takes
    /// as long in ME-HPT, table III).
    pub latency: Cycle,
    /// Which lines it has fetched. Default both (Revelator, section 7.1).
    pub what: GuessedLines,
    /// Tiers that are guessed, at most: 1 to 6. Default 6 (Revelator, table 1).
    pub degree: u8,
    /// Whether data is guessed in 2 MB blocks too, as `placement.tiered_hash` places with a
    /// `promotion_threshold`. Default false.
    pub large: bool,
    /// Which guesses are withheld. Default adaptive (Revelator, section 5.3.2).
    pub filter: DegreeFilter,
    /// Share of what the hash has placed, of pages or of page tables, that a tier after
    /// the first must have placed for its guesses to be made, 0 to 1. Default 0.1 (the
    /// number of the released code, which divides by the tier's tries instead).
    pub least_share: f64,
    /// How much longer than on an idle memory a DRAM access to the line may take, by
    /// tier, ns: where it would take longer, the guess is not made. Default 85.4, 42.7,
    /// 20.5, 10, 5 and 2.5 (the released code; the paper has no number).
    pub delays_ns: [f64; MOST_TIERS],
}

/// How guesses are held back (Revelator, sections 5.3.2 and 7.1, figure 16).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DegreeFilter {
    /// By what each tier has placed and by how busy the DRAM is.
    Adaptive,
    /// All are made.
    Off,
    /// Those that are right are made, and no others: the most that a filter could gain.
    Perfect,
}

impl Default for RevelatorSpec {
    fn default() -> Self {
        RevelatorSpec {
            latency: 2,
            what: GuessedLines::Both,
            degree: MOST_TIERS as u8,
            large: false,
            filter: DegreeFilter::Adaptive,
            least_share: 0.1,
            delays_ns: [85.4, 42.7, 20.5, 10.0, 5.0, 2.5],
        }
    }
}

impl EngineKind for RevelatorSpec {
    fn check(&self) -> Result<(), String> {
        if self.latency > MAX_LATENCY {
            return Err(format!(
                "latency is {}; expected at most {MAX_LATENCY} cycles",
                self.latency
            ));
        }
        if !(1..=MOST_TIERS).contains(&usize::from(self.degree)) {
            return Err(format!(
                "degree is {}; expected 1 to {MOST_TIERS}",
                self.degree
            ));
        }
        if !(0.0..=1.0).contains(&self.least_share) {
            return Err(format!(
                "least_share is {}; expected a share from 0 to 1",
                self.least_share
            ));
        }
        if !self.delays_ns.iter().all(|ns| (0.0..=1e9).contains(ns)) {
            return Err(format!(
                "delays_ns is {:?}; expected nanoseconds from 0 to 1000000000",
                self.delays_ns
            ));
        }
        Ok(())
    }
    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
        Box::new(Revelator {
            spec: *self,
            delays: self.delays_ns.map(|ns| (ns * frequency_ghz) as Cycle),
            made: ArrayVec::new(),
            accounts: Default::default(),
        })
    }
}

pagewalk_stats::counters! {
    /// What became of the lines that one tier names before they were guesses. candidates =
    /// guesses + withheld_by_share + withheld_by_delay + withheld_by_oracle + repeated.
    pub struct FilterStats {
        candidates: "lines", "Lines that this tier named";
        withheld_by_share: "lines", "Lines that were not guessed since the tier has placed too small a share of what the hash has placed";
        withheld_by_delay: "lines", "Lines that were not guessed since the DRAM was too busy for a guess of this tier";
        withheld_by_oracle: "lines", "Lines that were not guessed since they were not the right ones: a perfect filter's";
        repeated: "lines", "Lines that were guessed for the same miss already: an earlier tier had named them";
    }
}

/// What one tier named, guessed and got.
#[derive(Default)]
struct Account {
    filter: FilterStats,
    guesses: GuessStats,
}

struct Revelator {
    spec: RevelatorSpec,
    /// [`RevelatorSpec::delays_ns`] in cycles.
    delays: [Cycle; MOST_TIERS],
    /// Whose the guesses for the last miss were.
    made: ArrayVec<(Class, usize), MOST_GUESSES>,
    /// By class and tier.
    accounts: [[Account; MOST_TIERS]; 3],
}

/// What is guessed by a hash of its own, or of a number of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Data in a 4 KB page.
    Data,
    /// An entry of a last-level page table.
    Entry,
    /// Data in a 2 MB block.
    Large,
}

impl Class {
    fn what(self) -> What {
        match self {
            Class::Data | Class::Large => What::Data,
            Class::Entry => What::Entry,
        }
    }
}

/// What all guesses for a miss have in common.
struct Asked<'a> {
    seen: &'a Seen<'a>,
    /// With a perfect filter: what the walk will find, if it finds something.
    answer: Option<Option<Walked>>,
}

fn line(at: PhysAddr) -> u64 {
    at.0 >> LINE_SHIFT
}

impl Asked<'_> {
    /// Whether `guess` is one that a perfect filter lets through.
    fn is_right(&self, guess: &Guess, miss: &Miss) -> bool {
        let Some(answer) = &self.answer else {
            return true;
        };
        let is_it = |at| line(at) == line(guess.at);
        answer.as_ref().is_some_and(|walked| match guess.what {
            What::Data => is_it(walked.pa(miss.va)),
            What::Entry => walked.entries(self.seen.view).into_iter().any(is_it),
        })
    }
}

impl Revelator {
    /// Counts what `tier` has for `class`; whether it is among those `serving`. What is
    /// not is not even hashed.
    fn serves(&mut self, (class, tier): (Class, usize), serving: u32) -> bool {
        let stats = &mut self.accounts[class as usize][tier].filter;
        stats.candidates += 1;
        // Not `+= u64::from(!serves)`: rustc 1.95 loses that in optimised builds, which
        // the test of the account shows when it is run in one.
        if serving & (1 << tier) == 0 {
            stats.withheld_by_share += 1;
            return false;
        }
        true
    }

    /// Guesses that what `miss` wants of `class` is at `at`, as `tier` says, unless it is to
    /// be held back.
    fn consider(
        &mut self,
        (class, tier): (Class, usize),
        at: u64,
        miss: &Miss,
        asked: &Asked<'_>,
        guesses: &mut Guesses,
    ) {
        let adaptive = self.spec.filter == DegreeFilter::Adaptive;
        let (at, what) = (PhysAddr(at), class.what());
        let guess = Guess { at, what };
        let stats = &mut self.accounts[class as usize][tier].filter;
        let same = |other: &Guess| other.what == what && line(other.at) == line(at);
        if guesses.iter().any(same) {
            stats.repeated += 1;
        } else if adaptive && (asked.seen.delay)(at) > self.delays[tier] {
            stats.withheld_by_delay += 1;
        } else if !asked.is_right(&guess, miss) {
            stats.withheld_by_oracle += 1;
        } else {
            guesses.push(guess);
            self.made.push((class, tier));
        }
    }
}

impl Engine for Revelator {
    fn latency(&self) -> Cycle {
        self.spec.latency
    }

    fn makes(&self, what: What) -> bool {
        self.spec.what.has(what)
    }

    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses {
        let mut guesses = Guesses::new();
        self.made.clear();
        let Some(tiers) = seen.tiers else {
            return guesses;
        };
        let perfect = self.spec.filter == DegreeFilter::Perfect;
        let asked = Asked {
            seen,
            answer: perfect.then(|| foresee(seen.view, miss.va).ok()),
        };
        let entries = self.makes(What::Entry) && !miss.merges;
        let va = miss.va.0;
        let (data, degree) = (self.makes(What::Data), usize::from(self.spec.degree));
        let blocks = tiers.large.as_ref().filter(|_| self.spec.large);
        let spec = self.spec;
        // The first tier is always asked.
        let serving = |placed: &Placed| match spec.filter {
            DegreeFilter::Adaptive => placed.serving(spec.least_share) | 1,
            DegreeFilter::Off | DegreeFilter::Perfect => u32::MAX,
        };
        let of_data = serving(&tiers.data);
        let of_tables = serving(&tiers.tables);
        let of_blocks = blocks.map_or(0, |large| serving(&large.placed));
        for tier in 0..tiers.hash.tiers().min(degree) {
            let whose = (Class::Entry, tier);
            if entries && tier < tiers.table_tiers && self.serves(whose, of_tables) {
                let frame = tiers.hash.frame(tier, miss.asid, va >> 21);
                let at = (frame << 12) + 8 * (va >> 12 & 511);
                self.consider(whose, at, miss, &asked, &mut guesses);
            }
            let whose = (Class::Large, tier);
            if data
                && let Some(large) = blocks
                && self.serves(whose, of_blocks)
            {
                let block = large.hash.frame(tier, miss.asid, va >> 21);
                let at = block << 21 | va & ((1 << 21) - 1);
                self.consider(whose, at, miss, &asked, &mut guesses);
            }
            let whose = (Class::Data, tier);
            if data && self.serves(whose, of_data) {
                let frame = tiers.hash.frame(tier, miss.asid, va >> 12);
                self.consider(whose, frame << 12 | va & 0xfff, miss, &asked, &mut guesses);
            }
        }
        guesses
    }

    fn judged(&mut self, n: usize, verdict: &Verdict) {
        let (class, tier) = self.made[n];
        let account = &mut self.accounts[class as usize][tier];
        account.guesses.count(verdict);
    }

    /// Tier by tier, from 1 on, below `path`.
    fn report(&self, path: &str, tree: &mut Tree) {
        for (class, name) in [
            (Class::Data, "data"),
            (Class::Entry, "entries"),
            (Class::Large, "data_2mb"),
        ] {
            let what = class.what();
            if !self.makes(what) || class == Class::Large && !self.spec.large {
                continue;
            }
            let accounts = &self.accounts[class as usize];
            for (tier, account) in accounts[..usize::from(self.spec.degree)].iter().enumerate() {
                let path = format!("{path}.{name}.{}", tier + 1);
                tree.add(&path, &account.filter);
                account.guesses.report(&path, what, tree);
            }
        }
    }
}
