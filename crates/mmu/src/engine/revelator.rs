//! Revelator's speculation engine (section 5.3): the frames that the kernel's hashes
//! name, of the page and of the last-level page table, guessed where no TLB has an answer.

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_structures::{HashKey, Hashes, MOST_TIERS, Placed, Tiers};
use pagewalk_units::{Cycle, LINE_SHIFT, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::EngineKind;
use super::{Engine, Guess, GuessStats, GuessedLines, Guesses, Miss, Seen, Step, Verdict, What};
use crate::spec::MAX_LATENCY;
use crate::walk::{behind, foresee};

/// An engine that hashes as the kernel of `placement.tiered_hash` does: number, order,
/// seeds and success counts of the tiers are that kernel's.
///
/// Guesses are made tier by tier, the likeliest first; of a tier the page-table entry
/// before the data, since the walk waits for it. What waits for another's walk guesses
/// its data only. Guesses are for 4 KB pages.
///
/// In a virtual machine the hashes are the host's, `virtual.placement.tiered_hash`. By default
/// the data's line is guessed from the guest-virtual page (Revelator, section 5.5).
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
    /// Of virtual machines: which page-table entries are guessed. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested: Option<Nested>,
}

/// Prediction of page-table entries of a nested walk, by when it can be made (Revelator, second
/// version).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nested {
    /// At the miss, from the guest-virtual page: the guest's last-level entry.
    Diagonal,
    /// When the walk has come to a guest-physical address that the nested TLB does not have:
    /// the guest's entry that lies there, and the host's last-level entry for it.
    Horizontal,
    /// Both.
    Both,
}

impl Nested {
    /// Whether entries are guessed at the miss.
    pub fn is_diagonal(self) -> bool {
        self != Nested::Horizontal
    }
    /// Whether they are guessed within the walk.
    pub fn is_horizontal(self) -> bool {
        self != Nested::Diagonal
    }
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
            filter: DegreeFilter::Adaptive,
            least_share: 0.1,
            delays_ns: [85.4, 42.7, 20.5, 10.0, 5.0, 2.5],
            nested: None,
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
            made: Vec::new(),
            data: Default::default(),
            entries: Default::default(),
            steps: Default::default(),
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
        repeated: "lines", "Lines that an earlier tier had named for the same miss";
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
    /// Kinds and tiers of the guesses for the last miss, and within its walk.
    made: Vec<(What, usize)>,
    data: [Account; MOST_TIERS],
    entries: [Account; MOST_TIERS],
    steps: [Account; MOST_TIERS],
}

/// What all guesses for a miss, or for a step of its walk, have in common.
struct Asked<'a> {
    seen: &'a Seen<'a>,
    tiers: &'a Tiers,
    /// With a perfect filter: what will be read.
    answer: Option<Answer>,
}

/// Where that lies.
#[derive(Default)]
struct Answer {
    data: Option<PhysAddr>,
    entries: ArrayVec<PhysAddr, 2>,
}

fn line(at: PhysAddr) -> u64 {
    at.0 >> LINE_SHIFT
}

impl Asked<'_> {
    /// Whether `guess` is one that a perfect filter lets through.
    fn is_right(&self, guess: &Guess) -> bool {
        let Some(answer) = &self.answer else {
            return true;
        };
        let is_it = |at: &PhysAddr| line(*at) == line(guess.at);
        match guess.what {
            What::Data => answer.data.iter().any(is_it),
            What::Entry | What::Step => answer.entries.iter().any(is_it),
        }
    }
}

/// A byte of the frame that a tier has for something.
struct Named {
    what: What,
    key: HashKey,
    offset: u64,
}

impl Revelator {
    fn account(&mut self, what: What, tier: usize) -> &mut Account {
        match what {
            What::Data => &mut self.data[tier],
            What::Entry => &mut self.entries[tier],
            What::Step => &mut self.steps[tier],
        }
    }

    /// Up to this level the guest's entries are guessed from the virtual page, at the miss.
    fn named_at_the_miss(&self) -> u8 {
        u8::from(self.spec.nested.is_some_and(Nested::is_diagonal))
    }

    /// Tiers that are guessed, at most.
    fn degree(&self, tiers: &Tiers) -> usize {
        tiers.hash.tiers().min(usize::from(self.spec.degree))
    }

    /// Guesses what `tier` has for `named`, unless it is to be held back; `placed` is
    /// what the tiers have placed of its kind.
    fn consider(
        &mut self,
        named: &Named,
        tier: usize,
        placed: &Placed,
        asked: &Asked<'_>,
        guesses: &mut Guesses,
    ) {
        let frame = asked.tiers.hash.of(tier, named.key);
        let guess = Guess {
            at: PhysAddr(frame << 12 | named.offset),
            what: named.what,
        };
        let RevelatorSpec {
            filter,
            least_share,
            ..
        } = self.spec;
        let adaptive = filter == DegreeFilter::Adaptive;
        let delay = self.delays[tier];
        let account = self.account(guess.what, tier);
        let stats = &mut account.filter;
        stats.candidates += 1;
        let same = |other: &Guess| other.what == guess.what && line(other.at) == line(guess.at);
        if guesses.iter().any(same) {
            stats.repeated += 1;
        } else if adaptive && tier > 0 && !placed.serves(tier, least_share) {
            stats.withheld_by_share += 1;
        } else if adaptive && (asked.seen.delay)(guess.at) > delay {
            stats.withheld_by_delay += 1;
        } else if !asked.is_right(&guess) {
            stats.withheld_by_oracle += 1;
        } else {
            guesses.push(guess);
            self.made.push((guess.what, tier));
        }
    }
}

impl Engine for Revelator {
    fn latency(&self) -> Cycle {
        self.spec.latency
    }

    fn makes(&self, what: What) -> bool {
        let nested = self.spec.nested;
        self.spec.what.has(what)
            && match what {
                What::Data => true,
                What::Entry => nested.is_none_or(Nested::is_diagonal),
                What::Step => nested.is_some_and(Nested::is_horizontal),
            }
    }

    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses {
        let mut guesses = Guesses::new();
        self.made.clear();
        let Some(tiers) = seen.tiers else {
            return guesses;
        };
        // Where guest-physical pages are hashed there is nothing to hash yet.
        if tiers.of == Hashes::GuestPhysical {
            return guesses;
        }
        let asked = Asked {
            seen,
            tiers,
            answer: (self.spec.filter == DegreeFilter::Perfect).then(|| {
                let walked = foresee(seen.view, miss.va).ok();
                walked.map_or_else(Answer::default, |walked| Answer {
                    data: Some(walked.pa(miss.va)),
                    entries: walked.entries(seen.view),
                })
            }),
        };
        let (va, vpn) = (miss.va.0, miss.va.0 >> 12);
        let entry = Named {
            what: What::Entry,
            key: HashKey::table(miss.asid, vpn),
            offset: 8 * (vpn & 511),
        };
        let data = Named {
            what: What::Data,
            key: HashKey::page(miss.asid, vpn),
            offset: va & 0xfff,
        };
        let entries = self.makes(What::Entry) && !miss.merges;
        for tier in 0..self.degree(tiers) {
            if entries && tier < tiers.table_tiers {
                self.consider(&entry, tier, &tiers.tables, &asked, &mut guesses);
            }
            if self.makes(What::Data) {
                self.consider(&data, tier, &tiers.data, &asked, &mut guesses);
            }
        }
        guesses
    }

    /// Also where data alone is guessed: of guest-physical pages.
    fn follows(&self) -> bool {
        self.spec.nested.is_some_and(Nested::is_horizontal)
    }

    /// The host's last-level entry first, since the guest's is read after it.
    fn guess_step(&mut self, step: &Step, seen: &Seen<'_>) -> Guesses {
        let mut guesses = Guesses::new();
        let Some(tiers) = seen.tiers else {
            return guesses;
        };
        let asked = Asked {
            seen,
            tiers,
            answer: (self.spec.filter == DegreeFilter::Perfect).then(|| Answer {
                data: foresee(seen.view, step.va).ok().map(|w| w.pa(step.va)),
                entries: behind(seen.view, step),
            }),
        };
        let page = step.gpa.0 >> 12;
        let host = Named {
            what: What::Step,
            key: HashKey::host_table(page),
            offset: 8 * (page & 511),
        };
        let what = if step.level == 0 {
            What::Data
        } else {
            What::Step
        };
        let there = Named {
            what,
            key: HashKey::guest_page(page),
            offset: step.gpa.0 & 0xfff,
        };
        // What lies there was placed by its guest-physical page: everything, or of the guest's
        // table what no virtual page names.
        let (by_gpa, there_tiers) = match tiers.of {
            Hashes::GuestPhysical => (Some(&tiers.data), tiers.hash.tiers()),
            Hashes::Both if step.level > self.named_at_the_miss() => {
                (Some(&tiers.tables), tiers.table_tiers)
            }
            Hashes::Both | Hashes::Virtual => (None, 0),
        };
        let entries = tiers.host_tables && self.makes(What::Step);
        for tier in 0..self.degree(tiers) {
            if entries && tier < tiers.table_tiers {
                self.consider(&host, tier, &tiers.tables, &asked, &mut guesses);
            }
            if let Some(placed) = by_gpa
                && tier < there_tiers
                && self.makes(what)
            {
                self.consider(&there, tier, placed, &asked, &mut guesses);
            }
        }
        guesses
    }

    fn judged(&mut self, n: usize, verdict: &Verdict) {
        let (what, tier) = self.made[n];
        self.account(what, tier).guesses.count(verdict);
    }

    /// Tier by tier, from 1 on, below `path`.
    fn report(&self, path: &str, tree: &mut Tree) {
        for (what, name, accounts) in [
            (What::Data, "data", &self.data),
            (What::Entry, "entries", &self.entries),
            (What::Step, "steps", &self.steps),
        ] {
            if !self.makes(what) {
                continue;
            }
            for (tier, account) in accounts[..usize::from(self.spec.degree)].iter().enumerate() {
                let path = format!("{path}.{name}.{}", tier + 1);
                tree.add(&path, &account.filter);
                account.guesses.report(&path, what, tree);
            }
        }
    }
}
