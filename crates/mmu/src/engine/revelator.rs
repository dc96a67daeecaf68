//! Revelator's speculation engine (section 5.3). When all TLBs miss, it guesses the frames that the
//! kernel's hashes name for the page and for its last-level page table.

use std::ops::Range;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_structures::{HashKey, Hashes, MOST_TIERS, Tiers};
use pagewalk_units::{Cycle, Error, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Engine, EngineKind, Guess, GuessStats, GuessedLines, Guesses, HashedGuesses, Miss, NestedStep,
    Seen, Verdict, What,
};
use crate::spec::MAX_LATENCY;
use crate::walk::{behind, translate_untimed};

/// An engine that uses the hashes of the kernel's `placement.tiered_hash`: number, order, seeds and
/// success counts of the tiers are the kernel's.
///
/// Guesses are made tier by tier, the most likely first. Within a tier the page-table entry comes
/// before the data, since the walk waits for it. A miss that merges with another's walk guesses its
/// data only. Entries are those of 4 KB pages. If the kernel hashes 2 MB blocks, data is guessed in
/// these too, after all tiers of 4 KB pages (the released code).
///
/// In a virtual machine the hashes are the host's, `virtual.placement.tiered_hash`. By default the
/// data's line is guessed from the guest-virtual page (Revelator, section 5.5).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevelatorSpec {
    /// Cycles from a miss of all TLBs to its first guess. Default 2 (our choice: a hash takes
    /// as long in ME-HPT, table III).
    pub latency: Cycle,
    /// Cycles between the lines that are named for one miss. A miss that comes earlier than the
    /// last line of the one before waits. Default 0: all guesses at once (the paper gives no number).
    pub interval: Cycle,
    /// Kinds of lines to fetch. Default both (Revelator, section 7.1).
    pub what: GuessedLines,
    /// Most tiers to guess: 1 to 6. Default 6 (Revelator, table 1).
    pub degree: u8,
    /// Guess data in 2 MB blocks too, as `placement.tiered_hash` places it with a
    /// `promotion_threshold`. Default false.
    pub large: bool,
    /// Filter that withholds guesses. Default adaptive (Revelator, section 5.3.2).
    pub filter: DegreeFilter,
    /// Share of all pages, or of all last-level page tables, that a tier must have placed for its
    /// guesses to be made, 0 to 1. The first tier is exempt. Default 0.1 (the released code, whose
    /// allocators `revelator_simple` and `revelator_thp` also divide by all pages; the paper gives
    /// no number). For 2 MB blocks the first tier is not exempt; the share is then that of the
    /// pages of both sizes, a block counting as 512 pages.
    pub least_share: f64,
    /// Longest time that the line may wait for and occupy the DRAM's bus, by tier, in ns. A guess
    /// that would take longer is not made. Default 85.4, 42.7, 20.5, 10.05, 5.02 and 2.51 (the
    /// released code; the paper gives no number). With these, memory below 3200 MT/s is too slow
    /// for guesses of the sixth tier. The tiers of 2 MB blocks are numbered after those of 4 KB
    /// pages (the released code, which has three of each): with three tiers the first one uses the
    /// fourth number. Tiers past the sixth use the sixth number (our choice).
    pub delays_ns: [f64; MOST_TIERS],
    /// In virtual machines: the page-table entries to guess. Default none.
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
    /// When the walk reaches a guest-physical address on which the nested TLB misses: the guest's
    /// entry at that address, and the host's last-level entry for it.
    Horizontal,
    /// Both.
    Both,
}

impl Nested {
    /// True if entries are guessed at the miss.
    pub fn is_diagonal(self) -> bool {
        self != Nested::Horizontal
    }
    /// True if entries are guessed within the walk.
    pub fn is_horizontal(self) -> bool {
        self != Nested::Diagonal
    }
}

/// Filter that withholds guesses (Revelator, sections 5.3.2 and 7.1, figure 16).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DegreeFilter {
    /// By the share of pages that each tier has placed, and by the load of the DRAM.
    Adaptive,
    /// No filter: all guesses are made.
    Off,
    /// Oracle: only right guesses are made. An upper bound on the gain of a filter.
    Perfect,
}

impl Default for RevelatorSpec {
    fn default() -> Self {
        RevelatorSpec {
            latency: 2,
            interval: 0,
            what: GuessedLines::Both,
            degree: MOST_TIERS as u8,
            large: false,
            filter: DegreeFilter::Adaptive,
            least_share: 0.1,
            delays_ns: [85.416666, 42.708333, 20.5, 10.049019, 5.024509, 2.512254],
            nested: None,
        }
    }
}

impl RevelatorSpec {
    /// `delays_ns` in cycles of a core with this clock frequency, rounded up, as the delays that are
    /// compared with them.
    pub fn delays(&self, frequency_ghz: f64) -> [Cycle; MOST_TIERS] {
        self.delays_ns
            .map(|ns| (ns * frequency_ghz).ceil() as Cycle)
    }
}

impl EngineKind for RevelatorSpec {
    fn check(&self) -> Result<(), Error> {
        if self.latency > MAX_LATENCY {
            return Err(Error::key(
                "latency",
                format!("is {}; expected at most {MAX_LATENCY} cycles", self.latency),
            ));
        }
        if self.interval > MAX_LATENCY {
            return Err(Error::key(
                "interval",
                format!(
                    "is {}; expected at most {MAX_LATENCY} cycles",
                    self.interval
                ),
            ));
        }
        if !(1..=MOST_TIERS).contains(&usize::from(self.degree)) {
            return Err(Error::key(
                "degree",
                format!("is {}; expected 1 to {MOST_TIERS}", self.degree),
            ));
        }
        if !(0.0..=1.0).contains(&self.least_share) {
            return Err(Error::key(
                "least_share",
                format!("is {}; expected a share from 0 to 1", self.least_share),
            ));
        }
        if !self.delays_ns.iter().all(|ns| (0.0..=1e9).contains(ns)) {
            return Err(Error::key(
                "delays_ns",
                format!(
                    "is {:?}; expected nanoseconds from 0 to 1000000000",
                    self.delays_ns
                ),
            ));
        }
        Ok(())
    }
    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
        Box::new(Revelator {
            spec: *self,
            delays: self.delays(frequency_ghz),
            busy: 0..0,
            next_after: 0,
            made: Vec::new(),
            accounts: Default::default(),
            withheld: Default::default(),
            serving: Default::default(),
        })
    }

    fn hashed_guesses(&self) -> Option<HashedGuesses> {
        Some(HashedGuesses {
            what: self.what,
            large: self.large,
            nested: self.nested,
        })
    }
}

pagewalk_stats::counters! {
    /// Counters of the lines that one tier names, before they become guesses. candidates = guesses
    /// + withheld_by_share + withheld_by_delay + withheld_by_oracle + repeated. Only the counters
    /// that the filter and the tier can change are reported.
    pub struct FilterStats {
        candidates: "lines", "Lines predicted by this tier";
        withheld_by_share: "lines", "Lines not guessed because the tier has placed too small a share of all pages or page tables";
        withheld_by_delay: "lines", "Lines not guessed because the DRAM bus was too slow or too busy for a guess of this tier";
        withheld_by_oracle: "lines", "Lines not guessed because a perfect filter knows that they are wrong";
        repeated: "lines", "Lines not guessed because an earlier tier had guessed them for the same miss";
    }
}

/// Counters of one tier.
#[derive(Default)]
struct Account {
    filter: FilterStats,
    guesses: GuessStats,
}

/// The tiers that the filter withholds by their share, one bit each, and the number of consecutive
/// misses with this set. Most misses withhold the same tiers, so the accounts are updated only when
/// the set changes.
#[derive(Clone, Copy, Default)]
struct Withheld {
    tiers: u32,
    times: u64,
}

impl Withheld {
    /// Adds the outstanding counts of `tier` to `stats`.
    fn settle(&self, tier: usize, stats: &mut FilterStats) {
        let times = self.times * u64::from(self.tiers >> tier & 1);
        stats.candidates += times;
        stats.withheld_by_share += times;
    }
}

/// The tiers, one bit each, whose share was large enough when the count of placements was `placed`.
#[derive(Clone, Copy, Default)]
struct Serving {
    placed: u64,
    tiers: u32,
}

/// Kinds of placements, each with its own shares.
#[derive(Clone, Copy)]
enum Shares {
    Data,
    Tables,
    Blocks,
}

struct Revelator {
    spec: RevelatorSpec,
    /// [`RevelatorSpec::delays_ns`] in cycles.
    delays: [Cycle; MOST_TIERS],
    /// Cycles in which the pipeline takes the lines of the last misses that followed each other closely.
    busy: Range<Cycle>,
    /// [`Guess::after`] of the line that is named next.
    next_after: Cycle,
    /// Class and tier of each guess for the last miss, including those within its walk.
    made: Vec<(Class, usize)>,
    /// By class and tier.
    accounts: [[Account; MOST_TIERS]; 4],
    /// By class.
    withheld: [Withheld; 4],
    /// By [`Shares`].
    serving: [Serving; 3],
}

/// Classes of guesses that differ in hash or in hashed number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Data in a 4 KB page.
    Data,
    /// An entry of a last-level page table.
    Entry,
    /// Data in a 2 MB block.
    Large,
    /// An entry within a nested walk.
    Step,
}

impl Class {
    fn what(self) -> What {
        match self {
            Class::Data | Class::Large => What::Data,
            Class::Entry => What::Entry,
            Class::Step => What::Step,
        }
    }
}

/// State that is common to all guesses for a miss, or for a step of its walk.
struct GuessRequest<'a> {
    seen: &'a Seen<'a>,
    tiers: &'a Tiers,
    /// Number of tiers to guess, for 4 KB pages and for 2 MB blocks each.
    degree: usize,
    /// For a perfect filter: the addresses that will be read.
    answer: Option<OracleAnswer>,
}

/// Physical addresses that an oracle knows.
#[derive(Default)]
struct OracleAnswer {
    data: Option<PhysAddr>,
    entries: ArrayVec<PhysAddr, 2>,
}

/// The tiers whose bits are set, in ascending order.
fn each(tiers: u32) -> impl Iterator<Item = usize> {
    let mut left = tiers;
    std::iter::from_fn(move || {
        let next = (left != 0).then(|| left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        next
    })
}

impl GuessRequest<'_> {
    /// True if the filter is not perfect, or `guess` is right.
    fn is_right(&self, guess: &Guess) -> bool {
        let Some(answer) = &self.answer else {
            return true;
        };
        let is_it = |&at: &PhysAddr| guess.covers(at);
        match guess.what {
            What::Data => answer.data.iter().any(is_it),
            What::Entry | What::Step => answer.entries.iter().any(is_it),
        }
    }
}

impl Revelator {
    /// Highest level whose guest entries are guessed at the miss, from the virtual page.
    fn named_at_the_miss(&self) -> u8 {
        u8::from(self.spec.nested.is_some_and(Nested::is_diagonal))
    }

    /// Largest number of tiers to guess.
    fn degree(&self, tiers: &Tiers) -> usize {
        tiers.hash.tiers().min(usize::from(self.spec.degree))
    }

    /// The tiers, one bit each, whose `shares` are large enough. For 4 KB pages and page tables the
    /// first tier always is.
    #[inline]
    fn serving(&mut self, shares: Shares, tiers: &Tiers) -> u32 {
        if self.spec.filter != DegreeFilter::Adaptive {
            return u32::MAX;
        }
        let last = &mut self.serving[shares as usize];
        // The count grows with each placement: equal counts mean equal shares.
        let all = match shares {
            Shares::Data => tiers.data.tries(0),
            Shares::Tables => tiers.tables.tries(0),
            Shares::Blocks => tiers.data.tries(0) + tiers.blocks(),
        };
        if last.placed != all || last.tiers == 0 {
            let least = self.spec.least_share;
            *last = Serving {
                placed: all,
                tiers: match shares {
                    Shares::Data => tiers.data.serving(least) | 1,
                    Shares::Tables => tiers.tables.serving(least) | 1,
                    Shares::Blocks => tiers.blocks_serving(least),
                },
            };
        }
        last.tiers
    }

    /// True if the statistic `name` of this class and tier can change under this filter.
    fn can_withhold(&self, (class, tier): (Class, usize), name: &str) -> bool {
        let spared = tier == 0 && class != Class::Large;
        match name {
            "withheld_by_share" => self.spec.filter == DegreeFilter::Adaptive && !spared,
            "withheld_by_delay" => self.spec.filter == DegreeFilter::Adaptive,
            "withheld_by_oracle" => self.spec.filter == DegreeFilter::Perfect,
            _ => true,
        }
    }

    /// The oracle's answer, if the filter is perfect.
    fn oracle(&self, answer: impl FnOnce() -> OracleAnswer) -> Option<OracleAnswer> {
        (self.spec.filter == DegreeFilter::Perfect).then(answer)
    }

    /// The tiers below `tiers` that are in `serving`. Counts the others as withheld, without
    /// computing their hash.
    #[inline]
    fn among(&mut self, class: Class, tiers: usize, serving: u32) -> u32 {
        let all = (1 << tiers) - 1;
        let others = all & !serving;
        let withheld = &mut self.withheld[class as usize];
        if withheld.tiers != others {
            for (tier, account) in self.accounts[class as usize].iter_mut().enumerate() {
                withheld.settle(tier, &mut account.filter);
            }
            *withheld = Withheld {
                tiers: others,
                times: 0,
            };
        }
        withheld.times += 1;
        all & serving
    }

    /// Lets a request that comes at `at` enter the pipeline, with this number of lines to name.
    fn enter(&mut self, at: Cycle, candidates: u32) {
        let start = if self.busy.contains(&at) {
            self.busy.end
        } else {
            self.busy.start = at;
            at
        };
        self.busy.end = start + Cycle::from(candidates.max(1)) * self.spec.interval;
        self.next_after = start - at;
    }

    /// Guesses that the content of `class` lies at `offset` of the frame to which `tier` hashes
    /// `key`, unless the filter withholds it.
    fn consider_page(
        &mut self,
        (class, tier): (Class, usize),
        (key, offset): (HashKey, u64),
        request: &GuessRequest<'_>,
        guesses: &mut Guesses,
    ) {
        let frame = request.tiers.hash.of(tier, key);
        self.consider((class, tier), frame << 12 | offset, request, guesses);
    }

    /// Guesses that the content of `class` lies at `at`, as `tier` names it, unless the filter
    /// withholds it.
    fn consider(
        &mut self,
        (class, tier): (Class, usize),
        at: u64,
        request: &GuessRequest<'_>,
        guesses: &mut Guesses,
    ) {
        let adaptive = self.spec.filter == DegreeFilter::Adaptive;
        let (at, what) = (PhysAddr(at), class.what());
        let after = self.next_after;
        self.next_after += self.spec.interval;
        let guess = Guess { at, what, after };
        let rank = match class {
            Class::Large => (request.degree + tier).min(MOST_TIERS - 1),
            Class::Data | Class::Entry | Class::Step => tier,
        };
        let stats = &mut self.accounts[class as usize][tier].filter;
        stats.candidates += 1;
        let same = |other: &Guess| other.what == what && other.covers(at);
        if guesses.iter().any(same) {
            stats.repeated += 1;
        } else if adaptive && (request.seen.delay)(at) > self.delays[rank] {
            stats.withheld_by_delay += 1;
        } else if !request.is_right(&guess) {
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
        // If the kernel hashes guest-physical pages, the number to hash is not known at the miss.
        if tiers.of == Hashes::GuestPhysical {
            return guesses;
        }
        let request = GuessRequest {
            seen,
            tiers,
            degree: self.degree(tiers),
            answer: self.oracle(|| {
                let walked = translate_untimed(seen.view, miss.va).ok();
                walked.map_or_else(OracleAnswer::default, |walked| OracleAnswer {
                    data: Some(walked.pa(miss.va)),
                    entries: walked.entries(seen.view),
                })
            }),
        };
        let entries = self.makes(What::Entry) && !miss.merges;
        let data = self.makes(What::Data);
        let (va, vpn) = (miss.va.0, miss.va.0 >> 12);
        let entry_at = (HashKey::table(miss.asid, vpn), 8 * (vpn & 511));
        let data_at = (HashKey::page(miss.asid, vpn), va & 0xfff);
        let blocks = tiers.large.as_ref().filter(|_| self.spec.large);
        let degree = request.degree;
        let (mut of_tables, mut of_blocks, mut of_data) = (0, 0, 0);
        if entries {
            let serving = self.serving(Shares::Tables, tiers);
            of_tables = self.among(Class::Entry, degree.min(tiers.table_tiers), serving);
        }
        if data {
            let serving = self.serving(Shares::Data, tiers);
            of_data = self.among(Class::Data, degree, serving);
            if blocks.is_some() {
                let serving = self.serving(Shares::Blocks, tiers);
                of_blocks = self.among(Class::Large, degree, serving);
            }
        }
        let candidates = [of_tables, of_data, of_blocks].map(u32::count_ones);
        self.enter(miss.at, candidates.into_iter().sum());
        for tier in each(of_tables | of_data) {
            if of_tables >> tier & 1 != 0 {
                self.consider_page((Class::Entry, tier), entry_at, &request, &mut guesses);
            }
            if of_data >> tier & 1 != 0 {
                self.consider_page((Class::Data, tier), data_at, &request, &mut guesses);
            }
        }
        if let Some(large) = blocks {
            for tier in each(of_blocks) {
                let block = large.hash.frame(tier, miss.asid, va >> 21);
                let at = block << 21 | va & ((1 << 21) - 1);
                self.consider((Class::Large, tier), at, &request, &mut guesses);
            }
        }
        guesses
    }

    /// True even if only data is guessed: its guest-physical page is hashed within the walk.
    fn guesses_nested_steps(&self) -> bool {
        self.spec.nested.is_some_and(Nested::is_horizontal)
    }

    /// Guesses the host's last-level entry first, since the guest's is read after it.
    fn guess_step(&mut self, step: &NestedStep, seen: &Seen<'_>) -> Guesses {
        let mut guesses = Guesses::new();
        let Some(tiers) = seen.tiers else {
            return guesses;
        };
        let request = GuessRequest {
            seen,
            tiers,
            degree: self.degree(tiers),
            answer: self.oracle(|| OracleAnswer {
                data: translate_untimed(seen.view, step.va)
                    .ok()
                    .map(|w| w.pa(step.va)),
                entries: behind(seen.view, step),
            }),
        };
        let page = step.gpa.0 >> 12;
        let host_at = (HashKey::host_table(page), 8 * (page & 511));
        let there_at = (HashKey::guest_page(page), step.gpa.0 & 0xfff);
        let class = match step.level {
            0 => Class::Data,
            _ => Class::Step,
        };
        // Content that the host placed by its guest-physical page: everything, or the guest's page
        // tables that no virtual page names.
        let of_tables = self.serving(Shares::Tables, tiers);
        let (there, of_there) = match tiers.of {
            Hashes::GuestPhysical => {
                let serving = self.serving(Shares::Data, tiers);
                (tiers.hash.tiers(), serving)
            }
            Hashes::Both if step.level > self.named_at_the_miss() => (tiers.table_tiers, of_tables),
            Hashes::Both | Hashes::Virtual => (0, 0),
        };
        let host = tiers.host_tables && self.makes(What::Step);
        let host = if host { tiers.table_tiers } else { 0 };
        let there = if self.makes(class.what()) { there } else { 0 };
        let host = self.among(Class::Step, request.degree.min(host), of_tables);
        let there = self.among(class, request.degree.min(there), of_there);
        self.enter(step.at, host.count_ones() + there.count_ones());
        for tier in each(host | there) {
            if host >> tier & 1 != 0 {
                self.consider_page((Class::Step, tier), host_at, &request, &mut guesses);
            }
            if there >> tier & 1 != 0 {
                self.consider_page((class, tier), there_at, &request, &mut guesses);
            }
        }
        guesses
    }

    fn judged(&mut self, n: usize, verdict: &Verdict) {
        let (class, tier) = self.made[n];
        let account = &mut self.accounts[class as usize][tier];
        account.guesses.count(verdict);
    }

    /// Adds the counters of each tier, numbered from 1, below `path`.
    fn report(&self, path: &str, tree: &mut Tree) {
        for (class, name) in [
            (Class::Data, "data"),
            (Class::Entry, "entries"),
            (Class::Large, "data_2mb"),
            (Class::Step, "steps"),
        ] {
            let what = class.what();
            if !self.makes(what) || class == Class::Large && !self.spec.large {
                continue;
            }
            let accounts = &self.accounts[class as usize];
            for (tier, account) in accounts[..usize::from(self.spec.degree)].iter().enumerate() {
                let path = format!("{path}.{name}.{}", tier + 1);
                let mut stats = account.filter;
                self.withheld[class as usize].settle(tier, &mut stats);
                tree.add_some(&path, &stats, |name| self.can_withhold((class, tier), name));
                account.guesses.report(&path, what, tree);
            }
        }
    }
}
