//! From an engine's guesses to lines on their way, and what becomes of them.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Speculated};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Cycle, LINE_SHIFT, PhysAddr};

use super::{Engine, Guess, MOST_GUESSES, Miss, What};
use crate::{Lent, Walked};

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
    }
}

/// The guesses for one miss and what became of them.
pub(crate) type Issued = ArrayVec<(Guess, Speculated), MOST_GUESSES>;

/// An engine and the account of its guesses.
pub(crate) struct Speculation {
    engine: Box<dyn Engine>,
    data: GuessStats,
    entries: GuessStats,
}

impl Speculation {
    pub fn new(engine: Box<dyn Engine>) -> Self {
        Speculation {
            engine,
            data: GuessStats::default(),
            entries: GuessStats::default(),
        }
    }

    /// Has the lines fetched that the engine guesses for `miss`.
    pub fn issue<B: Below>(&mut self, miss: &Miss, lent: &mut Lent<'_, B>) -> Issued {
        let at = miss.at + self.engine.latency();
        let guesses = self.engine.guess(miss, lent.view);
        let fetch = |guess: Guess| (guess, lent.private.speculate(guess.at, at, lent.below));
        guesses.into_iter().map(fetch).collect()
    }

    /// The translation for `miss` is known at `end`, or that there is none:
    /// counts its guesses, and tells the engine of a walk of its own.
    pub fn judge(
        &mut self,
        miss: &Miss,
        issued: &Issued,
        walked: Option<&Walked>,
        view: &View<'_>,
        end: Cycle,
    ) {
        let line = |at: PhysAddr| at.0 >> LINE_SHIFT;
        for (guess, became) in issued {
            let is_it = |at| line(at) == line(guess.at);
            let right = walked.is_some_and(|walked| match guess.what {
                What::Data => is_it(walked.pa(miss.va)),
                What::Entry => walked.entries(view).into_iter().any(is_it),
            });
            let stats = match guess.what {
                What::Data => &mut self.data,
                What::Entry => &mut self.entries,
            };
            stats.count(right, *became, end);
        }
        if let Some(walked) = walked
            && !miss.merges
        {
            self.engine.learn_at(miss, walked, end);
        }
    }

    pub fn invalidate(&mut self, what: &Invalidation) {
        self.engine.invalidate(what);
    }

    /// Adds the account of each kind of guess that the engine makes below `path`, and
    /// what it counted itself.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        if self.engine.makes(What::Data) {
            tree.add(&format!("{path}.data"), &self.data);
        }
        if self.engine.makes(What::Entry) {
            // The walk waits for its entries: none comes after its end.
            tree.add_some(&format!("{path}.entries"), &self.entries, |n| n != "late");
        }
        self.engine.report(path, tree);
    }
}

impl GuessStats {
    fn count(&mut self, right: bool, became: Speculated, end: Cycle) {
        self.guesses += 1;
        self.right += u64::from(right);
        self.wrong += u64::from(!right);
        let ready = match became {
            Speculated::Fetched(ready) => {
                self.fetched += 1;
                ready
            }
            Speculated::UnderWay(ready) => {
                self.merged += 1;
                ready
            }
            Speculated::Present => {
                self.useless += 1;
                return;
            }
            Speculated::Dropped => {
                self.dropped += 1;
                return;
            }
        };
        self.late += u64::from(right && ready > end);
    }
}
