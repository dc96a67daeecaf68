//! From an engine's guesses to lines on their way, and what becomes of them.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Private, Speculated};
use pagewalk_stats::Tree;
use pagewalk_structures::Tiers;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, GuestPhysAddr, PhysAddr, VirtAddr};

use super::{Engine, Guess, Guesses, Miss, NestedStep, Seen, What};
use crate::walk::{behind, translate_untimed};
use crate::{GuessRecord, Lookup, ReadRecord, WalkContext, Walked};

pagewalk_stats::counters! {
    /// What became of an engine's guesses of one kind. guesses = right + wrong, and
    /// guesses = fetched + merged + useless + dropped.
    pub struct GuessStats {
        guesses: "guesses", "Lines that the speculation engine guessed, of data or of page-table entries (those of `steps` within a nested walk, when it has come to where they are needed)";
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

/// A guess whose line was asked for, and what became of that.
#[derive(Clone, Copy)]
struct Issue {
    guess: Guess,
    /// When its line was asked for.
    requested: Cycle,
    became: Speculated,
    /// Of a guess within a nested walk: whether what is read next lies in its line.
    next: bool,
}

/// A nested walk whose steps an engine guesses lines for.
pub(crate) struct NestedSteps<'a> {
    speculation: &'a mut Speculation,
    asid: Asid,
    va: VirtAddr,
    view: &'a View<'a>,
    tiers: Option<&'a Tiers>,
}

impl NestedSteps<'_> {
    /// Has the lines fetched that the engine guesses where the walk has come to an address
    /// (see [`NestedStep`]: what it is, the level, and when).
    pub fn step<B: Below>(
        &mut self,
        (gpa, level, at): (GuestPhysAddr, u8, Cycle),
        private: &mut Private,
        below: &mut B,
    ) {
        let step = NestedStep {
            asid: self.asid,
            va: self.va,
            gpa,
            level,
            at,
        };
        let asked = at + self.speculation.engine.latency();
        let delay = |line| below.delay(line, asked);
        let seen = Seen {
            view: self.view,
            tiers: self.tiers,
            delay: &delay,
        };
        let guesses = self.speculation.engine.guess_step(&step, &seen);
        if !guesses.is_empty() {
            let entries = behind(self.view, &step);
            (self.speculation).fetch(&guesses, &entries, asked, private, below);
        }
    }
}

/// What is known of a miss when its guesses are judged.
pub(crate) struct Outcome<'a> {
    /// What the walk found, if it found something; of a miss that waited for another's
    /// walk, nothing.
    pub walked: Option<&'a Walked>,
    /// Where the data lies, if there is a page.
    pub data: Option<PhysAddr>,
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
    /// Whether it guesses within nested walks.
    pub guesses_nested_steps: bool,
    data: GuessStats,
    entries: GuessStats,
    within: GuessStats,
    /// Guesses for the last miss, and behind them those within its walk.
    issued: Vec<Issue>,
    /// Room for the reads of a walk.
    pub reads: Vec<ReadRecord>,
    /// Guesses of the last miss, where walks are recorded.
    pub recorded: Vec<GuessRecord>,
}

impl Speculation {
    pub fn new(engine: Box<dyn Engine>) -> Self {
        Speculation {
            guesses_nested_steps: engine.guesses_nested_steps(),
            engine,
            data: GuessStats::default(),
            entries: GuessStats::default(),
            within: GuessStats::default(),
            issued: Vec::new(),
            reads: Vec::new(),
            recorded: Vec::new(),
        }
    }

    /// Has the lines fetched that the engine guesses for `miss`.
    pub fn issue<B: Below>(&mut self, miss: &Miss, context: &mut WalkContext<'_, B>) {
        let at = miss.at + self.engine.latency();
        let below = &*context.below;
        let seen = Seen {
            view: context.view,
            tiers: context.tiers,
            delay: &|line| below.delay(line, at),
        };
        let guesses = self.engine.guess(miss, &seen);
        self.issued.clear();
        self.fetch(&guesses, &[], at, context.private, context.below);
    }

    /// Has the lines of `guesses` fetched, asked for at `asked`; within a nested walk `next`
    /// will be read.
    fn fetch<B: Below>(
        &mut self,
        guesses: &Guesses,
        next: &[PhysAddr],
        asked: Cycle,
        private: &mut Private,
        below: &mut B,
    ) {
        for guess in guesses {
            private.host_prefetch(guess.at, below);
        }
        for &guess in guesses {
            self.issued.push(Issue {
                guess,
                requested: asked,
                became: private.speculate(guess.at, asked, below),
                next: next.iter().any(|&at| guess.covers(at)),
            });
        }
    }

    /// Guesses within the walk for `lookup` that follows.
    pub fn nested_steps<'a, B>(
        &'a mut self,
        lookup: &Lookup,
        context: &WalkContext<'a, B>,
    ) -> NestedSteps<'a> {
        NestedSteps {
            speculation: self,
            asid: lookup.asid,
            va: lookup.va,
            view: context.view,
            tiers: context.tiers,
        }
    }

    /// The translation for `miss` is known, or that there is none: counts its guesses,
    /// and tells the engine of them and of a walk of its own.
    pub fn judge(&mut self, miss: &Miss, outcome: &Outcome<'_>, view: &View<'_>) {
        if outcome.recorded {
            self.recorded.clear();
        }
        let of_entry = |issue: &Issue| issue.guess.what == What::Entry;
        let entries = if self.issued.iter().any(of_entry) {
            outcome.entries(miss, view)
        } else {
            ArrayVec::new()
        };
        for (n, issue) in self.issued.iter().enumerate() {
            let verdict = outcome.verdict(miss, issue, &entries);
            let stats = match issue.guess.what {
                What::Data => &mut self.data,
                What::Entry => &mut self.entries,
                What::Step => &mut self.within,
            };
            stats.count(&verdict);
            self.engine.judged(n, &verdict);
            if outcome.recorded {
                self.recorded.push(GuessRecord {
                    at: issue.guess.at,
                    what: issue.guess.what,
                    requested: issue.requested,
                    became: issue.became,
                    right: verdict.right,
                });
            }
        }
        if let Some(walked) = outcome.walked {
            self.engine.learn(miss, walked, outcome.end);
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
            (What::Step, "steps", &self.within),
        ] {
            if self.engine.makes(what) {
                stats.report(&format!("{path}.{name}"), what, tree);
            }
        }
        self.engine.report(path, tree);
    }
}

impl Outcome<'_> {
    /// Where the entries lie that say where the data is; none without a page.
    fn entries(&self, miss: &Miss, view: &View<'_>) -> ArrayVec<PhysAddr, 2> {
        let found = if miss.merges {
            translate_untimed(view, miss.va).ok()
        } else {
            self.walked.copied()
        };
        found.map_or_else(ArrayVec::new, |walked| walked.entries(view))
    }

    /// `entries`: where the right ones lie.
    fn verdict(&self, miss: &Miss, issue: &Issue, entries: &[PhysAddr]) -> Verdict {
        let Issue {
            guess,
            requested: asked,
            became,
            next,
        } = *issue;
        let right = match guess.what {
            What::Data => self.data.is_some_and(|at| guess.covers(at)),
            What::Entry => entries.iter().any(|&at| guess.covers(at)),
            // A step is taken whether the walk finds something in the end or not.
            What::Step => next,
        };
        let (ready, takes) = match became {
            Speculated::Fetched(ready) => (ready, ready - asked),
            // Somebody else's fetch: without the guess it would have come as early.
            Speculated::UnderWay(ready) => (ready, 0),
            Speculated::Present | Speculated::Dropped => (0, 0),
        };
        let waits = match guess.what {
            What::Data if miss.access == Access::Write => takes,
            What::Data => ready.saturating_sub(self.end).max(self.hit),
            What::Entry | What::Step => {
                let read = self.reads.iter().find(|read| guess.covers(read.at));
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
