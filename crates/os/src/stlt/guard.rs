//! The performance guarantee (section III-F): it turns a process's table on or off, depending on the
//! measured time of queries with and without the table.
//!
//! For `period` queries the current setting is used, and the last `trial` of them are timed. Then a
//! trial of the same number of queries times the other setting. The faster setting is kept for the
//! next period.

use pagewalk_tables::StltGuardSpec;
use pagewalk_units::Cycle;

pagewalk_stats::counters! {
    /// Counters of the guards. off_loads are among the loads of `stlt`, but in none of their
    /// categories there. The same holds for off_inserts.
    pub struct StltGuardStats {
        trials: "trials", "Trials of the other setting (table on or off), whose time was compared with that of the current setting";
        kept_on: "trials", "Trials after which the table was on";
        kept_off: "trials", "Trials after which the table was off";
        switches: "trials", "Trials after which the other setting was kept";
        resizes: "tables", "Tables doubled because too few queries found a row";
        off_loads: "instructions", "loadVA while the table was off; the result is 0, and nothing is read";
        off_inserts: "instructions", "insertSTLT while the table was off; a matching row with another address is emptied, and nothing is inserted";
        off_cycles: "cycles", "Time between queries of processes whose table was off";
    }
}

/// Action before a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// No change.
    Stays,
    /// Turn the table on.
    On,
    /// Turn the table off.
    Off,
    /// Double the number of rows.
    Grows,
}

/// The guard state of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    spec: StltGuardSpec,
    on: bool,
    /// True during a trial of the other setting.
    trial: bool,
    /// Queries of the current period or trial.
    queries: u64,
    /// Start of its timed part.
    began: Cycle,
    /// Queries of the timed part that found a row.
    hits: u64,
    /// True while a timed query awaits its result.
    awaits_result: bool,
    /// Duration of the timed part with the kept setting.
    kept: Cycle,
    /// Time of the last query.
    last: Cycle,
    /// True if more pages have changed than the array holds while the table was off. All rows must be
    /// checked when it is turned on.
    pub stale: bool,
    /// True after a larger table could not be allocated.
    pub full: bool,
}

impl Guard {
    /// The guard of a new process, with its table on.
    pub fn new(spec: StltGuardSpec) -> Self {
        Guard {
            spec,
            on: true,
            trial: false,
            queries: 0,
            began: 0,
            hits: 0,
            awaits_result: false,
            kept: 0,
            last: 0,
            stale: false,
            full: false,
        }
    }

    /// True if the table is on.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records that a query found a row. It is either the query passed to
    /// [`count_query`](Self::count_query), or an untimed one, which is not counted.
    pub fn found(&mut self) {
        self.hits += u64::from(std::mem::take(&mut self.awaits_result));
    }

    /// Processes a query at `now` to a table of `rows`.
    pub fn count_query(&mut self, now: Cycle, rows: u64, stats: &mut StltGuardStats) -> Turn {
        if !self.on {
            stats.off_cycles += now.saturating_sub(self.last);
        }
        self.last = now;
        let turn = self.end_of_stretch(now, rows, stats);
        if !self.trial && self.queries == self.spec.period - self.spec.trial {
            (self.began, self.hits) = (now, 0);
        }
        self.queries += 1;
        self.awaits_result = true;
        turn
    }

    fn end_of_stretch(&mut self, now: Cycle, rows: u64, stats: &mut StltGuardStats) -> Turn {
        let spec = self.spec;
        let took = now.saturating_sub(self.began);
        if self.trial && self.queries == spec.trial {
            (self.trial, self.queries) = (false, 0);
            stats.trials += 1;
            let better = took < self.kept;
            stats.switches += u64::from(better);
            let turn = if better { Turn::Stays } else { self.turn() };
            let kept = if self.on {
                &mut stats.kept_on
            } else {
                &mut stats.kept_off
            };
            *kept += 1;
            return turn;
        }
        if self.trial || self.queries < spec.period {
            return Turn::Stays;
        }
        self.queries = 0;
        let too_few = self.hits * 100 < spec.trial * u64::from(spec.resize_below_percent);
        if self.on && too_few && !self.full && 2 * rows <= spec.most_rows {
            stats.resizes += 1;
            return Turn::Grows;
        }
        (self.trial, self.kept, self.began) = (true, took, now);
        self.turn()
    }

    fn turn(&mut self) -> Turn {
        self.on = !self.on;
        if self.on { Turn::On } else { Turn::Off }
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, StltGuardStats, Turn};
    use pagewalk_tables::StltGuardSpec;
    use pagewalk_units::Cycle;

    const SPEC: StltGuardSpec = StltGuardSpec {
        period: 1000,
        trial: 50,
        resize_below_percent: 50,
        most_rows: 4096,
    };

    /// A process whose queries take `[off, on]` cycles and find a row in `hits` of 10 cases.
    struct Bench {
        guard: Guard,
        stats: StltGuardStats,
        now: Cycle,
        rows: u64,
    }

    impl Bench {
        fn new() -> Self {
            Bench {
                guard: Guard::new(SPEC),
                stats: StltGuardStats::default(),
                now: 0,
                rows: 256,
            }
        }
        fn query(&mut self, n: u64, hits: u64, cycles: [Cycle; 2]) {
            for i in 0..n {
                let turn = self.guard.count_query(self.now, self.rows, &mut self.stats);
                if turn == Turn::Grows {
                    self.rows *= 2;
                }
                let on = self.guard.is_on();
                self.now += cycles[usize::from(on)];
                if on && i % 10 < hits {
                    self.guard.found();
                }
            }
        }
    }

    #[test]
    fn a_table_that_slows_down_is_off_but_for_its_trials() {
        let mut b = Bench::new();
        // A period on, a trial off, and then 50 of each 1050 on.
        let n = 1050 * 101;
        b.query(n, 10, [300, 500]);
        let on = 1000 + 100 * 50;
        assert_eq!(b.now, n * 300 + on * 200);
        // The result of the last trial becomes known with the next query.
        let s = &b.stats;
        assert_eq!((s.trials, s.kept_off, s.switches), (100, 100, 1));
        assert_eq!(s.off_cycles, (n - on) * 300);
    }

    #[test]
    fn a_table_that_helps_is_on_but_for_its_trials() {
        let mut b = Bench::new();
        let n = 1050 * 100;
        b.query(n, 10, [500, 300]);
        assert_eq!(b.now, n * 300 + 100 * 50 * 200);
        let s = &b.stats;
        assert_eq!((s.kept_on, s.switches, b.rows), (99, 0, 256));
    }

    #[test]
    fn it_adapts_to_a_changed_program_within_a_period() {
        let mut b = Bench::new();
        b.query(500, 10, [300, 500]);
        for (cycles, on) in [
            ([300, 500], false),
            ([500, 300], true),
            ([400, 401], false),
            ([400, 400], false),
        ] {
            b.query(3 * 1050, 10, cycles);
            assert_eq!(b.guard.is_on(), on, "{cycles:?}");
        }
        assert_eq!(b.stats.switches, 3);
    }

    #[test]
    fn too_few_hits_double_it_up_to_the_limit_and_then_it_is_judged() {
        let mut b = Bench::new();
        // 256 rows: four doublings, one in each period.
        b.query(6 * 1050, 1, [300, 500]);
        assert_eq!((b.rows, b.stats.resizes), (4096, 4));
        assert!(!b.guard.is_on());
        let mut b = Bench::new();
        b.query(6 * 1050, 6, [500, 300]);
        assert_eq!((b.rows, b.stats.resizes), (256, 0));
    }
}
