//! From an engine's guesses to lines on their way, and what becomes of them.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Speculated};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Cycle, LINE_SHIFT, PhysAddr};

use super::{Engine, Guess, MOST_GUESSES, Miss, Seen, What};
use crate::{GuessRecord, Lent, ReadRecord, Walked};

pagewalk_stats::counters! {
    /// What became of an engine's guesses of one kind. guesses = right + wrong, and
    /// guesses = fetched + merged + useless + dropped.
    pub struct GuessStats {
        guesses: "guesses", "Lines that the speculation engine guessed, of data or of page-table entries";
        right: "guesses", "Guesses that the walk proved right: the line of the data, or of an entry that the walk ended at";
        wrong: "guesses", "Guesses that the walk proved wrong, those where it found no page among them";
        fetched: "guesses", "Guesses that fetched their line into the second-level cache; of those the cache counts what went unused";
        merged: "guesses", "Guesses whose line was on its way to the core already";
        useless: "guesses", "Guesses whose line one of the core's caches had already";
        dropped: "guesses", "Guesses for which no miss register of the second-level cache was free";
        late: "guesses", "Right guesses of data whose line was still on its way when the translation was known";
        saved_cycles: "cycles", "Time that right guesses which fetched their line took from what waits for it: what the fetch took, less what was still waited for. Of entries the walk waits; of data an access that asks for it when the translation is known, stores left out, since nothing waits for theirs";
    }
}

/// What became of a guess.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The walk proved it right.
    pub right: bool,
    /// What became of its line.
    pub became: Speculated,
    /// Whether the line was still on its way when the translation was known.
    pub late: bool,
    /// Cycles that it took from what waited for the line.
    pub saved: Cycle,
}

/// The guesses for one miss and what became of them.
pub(crate) type Issued = ArrayVec<(Guess, Speculated), MOST_GUESSES>;

/// What is known of a miss when its guesses are judged.
pub(crate) struct Outcome<'a> {
    /// What the walk found, if it found something.
    pub walked: Option<&'a Walked>,
    /// What it read, if it was this miss's own.
    pub reads: &'a [ReadRecord],
    /// When the translation was known, or that there is none.
    pub end: Cycle,
    /// Load-to-use of the cache that guesses go into.
    pub hit: Cycle,
    /// Whether walks are recorded.
    pub recorded: bool,
}

/// An engine and the account of its guesses.
pub(crate) struct Speculation {
    engine: Box<dyn Engine>,
    data: GuessStats,
    entries: GuessStats,
    /// Room for the reads of a walk.
    pub reads: Vec<ReadRecord>,
    /// Guesses of the last miss, where walks are recorded.
    pub recorded: Vec<GuessRecord>,
}

fn line(at: PhysAddr) -> u64 {
    at.0 >> LINE_SHIFT
}

impl Speculation {
    pub fn new(engine: Box<dyn Engine>) -> Self {
        Speculation {
            engine,
            data: GuessStats::default(),
            entries: GuessStats::default(),
            reads: Vec::new(),
            recorded: Vec::new(),
        }
    }

    /// Has the lines fetched that the engine guesses for `miss`.
    pub fn issue<B: Below>(&mut self, miss: &Miss, lent: &mut Lent<'_, B>) -> Issued {
        let at = miss.at + self.engine.latency();
        let below = &*lent.below;
        let seen = Seen {
            view: lent.view,
            tiers: lent.tiers,
            delay: &|line| below.delay(line, at),
        };
        let guesses = self.engine.guess(miss, &seen);
        let fetch = |guess: Guess| (guess, lent.private.speculate(guess.at, at, lent.below));
        guesses.into_iter().map(fetch).collect()
    }

    /// The translation for `miss` is known, or that there is none: counts its guesses,
    /// and tells the engine of them and of a walk of its own.
    pub fn judge(&mut self, miss: &Miss, issued: &Issued, outcome: &Outcome<'_>, view: &View<'_>) {
        let asked = miss.at + self.engine.latency();
        if outcome.recorded {
            self.recorded.clear();
        }
        for (n, (guess, became)) in issued.iter().enumerate() {
            let verdict = outcome.verdict(miss, guess, (asked, *became), view);
            let stats = match guess.what {
                What::Data => &mut self.data,
                What::Entry => &mut self.entries,
            };
            stats.count(&verdict);
            self.engine.judged(n, &verdict);
            if outcome.recorded {
                self.recorded.push(GuessRecord {
                    at: guess.at,
                    what: guess.what,
                    asked,
                    became: *became,
                    right: verdict.right,
                });
            }
        }
        if let Some(walked) = outcome.walked
            && !miss.merges
        {
            self.engine.learn_at(miss, walked, outcome.end);
        }
    }

    pub fn invalidate(&mut self, what: &Invalidation) {
        self.engine.invalidate(what);
    }

    /// Adds the account of each kind of guess that the engine makes below `path`, and
    /// what it counted itself.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        for (what, name, stats) in [
            (What::Data, "data", &self.data),
            (What::Entry, "entries", &self.entries),
        ] {
            if self.engine.makes(what) {
                stats.report(&format!("{path}.{name}"), what, tree);
            }
        }
        self.engine.report(path, tree);
    }
}

impl Outcome<'_> {
    /// Of a guess asked for at the first of two times, of which the second became.
    fn verdict(
        &self,
        miss: &Miss,
        guess: &Guess,
        (asked, became): (Cycle, Speculated),
        view: &View<'_>,
    ) -> Verdict {
        let is_it = |at| line(at) == line(guess.at);
        let right = self.walked.is_some_and(|walked| match guess.what {
            What::Data => is_it(walked.pa(miss.va)),
            What::Entry => walked.entries(view).into_iter().any(is_it),
        });
        let (ready, takes) = match became {
            Speculated::Fetched(ready) => (ready, ready - asked),
            // Somebody else's fetch: without the guess it would have come as early.
            Speculated::UnderWay(ready) => (ready, 0),
            Speculated::Present | Speculated::Dropped => (0, 0),
        };
        let waits = match guess.what {
            What::Data if miss.access == Access::Write => takes,
            What::Data => ready.saturating_sub(self.end).max(self.hit),
            What::Entry => {
                let read = self.reads.iter().find(|read| is_it(read.at));
                read.map_or(takes, |read| read.end - read.start)
            }
        };
        Verdict {
            right,
            became,
            late: right && ready > self.end,
            saved: if right {
                takes.saturating_sub(waits)
            } else {
                0
            },
        }
    }
}

impl GuessStats {
    /// Counts one guess.
    pub(super) fn count(&mut self, verdict: &Verdict) {
        self.guesses += 1;
        self.right += u64::from(verdict.right);
        self.wrong += u64::from(!verdict.right);
        match verdict.became {
            Speculated::Fetched(_) => self.fetched += 1,
            Speculated::UnderWay(_) => self.merged += 1,
            Speculated::Present => self.useless += 1,
            Speculated::Dropped => self.dropped += 1,
        }
        self.late += u64::from(verdict.late);
        self.saved_cycles += verdict.saved;
    }

    /// Adds what can move in guesses of this kind.
    pub(super) fn report(&self, path: &str, what: What, tree: &mut Tree) {
        // The walk waits for its entries: none comes after its end.
        let kept = |name: &str| what == What::Data || name != "late";
        tree.add_some(path, self, kept);
    }
}
