//! Fetches the lines that an engine guesses, and judges the guesses.

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
    /// Counters of an engine's guesses of one kind. guesses = right + wrong, and guesses = fetched
    /// + merged + useless + dropped.
    pub struct GuessStats {
        guesses: "guesses", "Lines of data or of page-table entries that the speculation engine guessed. Guesses of `steps` within a nested walk count when the walk reaches the step";
        right: "guesses", "Guesses that the walk confirmed: the line of the data, or of an entry at which the walk ended";
        wrong: "guesses", "Guesses that the walk refuted, including those for which it found no page";
        fetched: "guesses", "Guesses that fetched their line into the second-level cache. The cache counts those that were never used";
        merged: "guesses", "Guesses whose line was in flight to the core already";
        useless: "guesses", "Guesses whose line was present in one of the core's caches";
        dropped: "guesses", "Guesses dropped because no MSHR of the second-level cache was free";
        late: "guesses", "Right guesses of data whose line was still in flight when the translation was known";
        saved_cycles: "cycles", "Cycles saved by right guesses that fetched their line: the latency of the fetch, less the wait that remained. The wait is that of the walk for entries, and of an access at the end of the translation for data. Guesses for stores save nothing, because nothing waits for a store's line";
    }
}

/// Verdict on a guess.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// True if the walk proved it right.
    pub right: bool,
    /// Outcome of the request for its line.
    pub became: Speculated,
    /// True if the line was still on its way when the translation was known.
    pub late: bool,
    /// Cycles that it saved for the access or walk that needed the line.
    pub saved: Cycle,
}

/// A guess and the outcome of the request for its line.
#[derive(Clone, Copy)]
struct Issue {
    guess: Guess,
    /// When its line was requested.
    requested: Cycle,
    became: Speculated,
    /// For a guess within a nested walk: true if an entry that is read next lies in its line.
    next: bool,
}

/// The state by which an engine guesses within a nested walk.
pub(crate) struct NestedSteps<'a> {
    speculation: &'a mut Speculation,
    asid: Asid,
    va: VirtAddr,
    view: &'a View<'a>,
    tiers: Option<&'a Tiers>,
}

impl NestedSteps<'_> {
    /// Fetches the lines that the engine guesses for a guest-physical address that the walk has
    /// reached: address, level and cycle of a [`NestedStep`].
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
        let requested = at + self.speculation.engine.latency();
        let delay = |line| below.delay(line, requested);
        let seen = Seen {
            view: self.view,
            tiers: self.tiers,
            delay: &delay,
        };
        let guesses = self.speculation.engine.guess_step(&step, &seen);
        if !guesses.is_empty() {
            let entries = behind(self.view, &step);
            (self.speculation).fetch(&guesses, &entries, requested, private, below);
        }
    }
}

/// The outcome of a miss, by which its guesses are judged.
pub(crate) struct Outcome<'a> {
    /// Result of the walk, if it found a page; `None` for a miss that merged with another's walk.
    pub walked: Option<&'a Walked>,
    /// Physical address of the data, if the page is mapped.
    pub data: Option<PhysAddr>,
    /// Reads of the walk; empty for a miss that merged.
    pub reads: &'a [ReadRecord],
    /// When the translation was known, or the fault detected.
    pub end: Cycle,
    /// Load-to-use latency of the cache into which guesses are fetched.
    pub hit: Cycle,
    /// True if walks are recorded.
    pub recorded: bool,
}

/// An engine and the counters of its guesses.
pub(crate) struct Speculation {
    engine: Box<dyn Engine>,
    /// True if the engine guesses within nested walks.
    pub guesses_nested_steps: bool,
    data: GuessStats,
    entries: GuessStats,
    within: GuessStats,
    /// Guesses for the last miss, then those within its walk.
    issued: Vec<Issue>,
    /// Scratch buffer for the reads of a walk.
    pub reads: Vec<ReadRecord>,
    /// Guesses of the last miss, if walks are recorded.
    pub recorded: Vec<GuessRecord>,
}

impl Speculation {
    /// A core's engine, without guesses so far.
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

    /// Fetches the lines that the engine guesses for `miss`.
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

    /// Fetches the lines of `guesses`, the first at `requested`. `next`: within a nested walk, the entries
    /// that the walk reads next.
    fn fetch<B: Below>(
        &mut self,
        guesses: &Guesses,
        next: &[PhysAddr],
        requested: Cycle,
        private: &mut Private,
        below: &mut B,
    ) {
        for guess in guesses {
            private.host_prefetch(guess.at, below);
        }
        for &guess in guesses {
            let requested = requested + guess.after;
            self.issued.push(Issue {
                guess,
                requested,
                became: private.speculate(guess.at, requested, below),
                next: next.iter().any(|&at| guess.covers(at)),
            });
        }
    }

    /// State for guesses within the next walk, which is for `lookup`.
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

    /// Judges and counts the guesses for `miss`, once its outcome is known. The engine receives the
    /// verdicts, and the result of the walk if the miss walked itself.
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

    /// See [`Engine::can_filtered_warm`].
    pub fn can_filtered_warm(&self) -> bool {
        self.engine.can_filtered_warm()
    }

    /// Passes an invalidation to the engine.
    pub fn invalidate(&mut self, what: &Invalidation) {
        self.engine.invalidate(what);
    }

    /// Adds the counters of each kind of guess that the engine makes below `path`, and the engine's
    /// own.
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
    /// Physical addresses of the page-table entries at which the walk ends; empty if the page is
    /// not mapped.
    fn entries(&self, miss: &Miss, view: &View<'_>) -> ArrayVec<PhysAddr, 2> {
        let found = if miss.merges {
            translate_untimed(view, miss.va).ok()
        } else {
            self.walked.copied()
        };
        found.map_or_else(ArrayVec::new, |walked| walked.entries(view))
    }

    /// Judges one guess. `entries`: addresses of the right page-table entries.
    fn verdict(&self, miss: &Miss, issue: &Issue, entries: &[PhysAddr]) -> Verdict {
        let Issue {
            guess,
            requested,
            became,
            next,
        } = *issue;
        let right = match guess.what {
            What::Data => self.data.is_some_and(|at| guess.covers(at)),
            What::Entry => entries.iter().any(|&at| guess.covers(at)),
            // The walk reads this entry even if it ends in a fault.
            What::Step => next,
        };
        let (ready, takes) = match became {
            Speculated::Fetched(ready) => (ready, ready - requested),
            // Another request fetched the line: the guess saved nothing.
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

    /// Adds the counters that guesses of this kind can change.
    pub(super) fn report(&self, path: &str, what: What, tree: &mut Tree) {
        // The walk waits for its entries, so an entry is never late.
        let kept = |name: &str| what == What::Data || name != "late";
        tree.add_some(path, self, kept);
    }
}
