//! Energy account: counters times energies per event, and time times leakage power.

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;

use pagewalk_stats::Tree;
use pagewalk_units::Cycle;
use schemars::JsonSchema;
use serde::Serialize;

#[cfg(test)]
use super::prices::costs_nothing;
use super::prices::{Group, Part, Prices, place};

/// Attojoules in a nanojoule.
const NANOJOULE: f64 = 1e9;

fn nanojoules(attojoules: i128) -> f64 {
    attojoules as f64 / NANOJOULE
}

/// Energy of a stretch of a run, in attojoules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// Energy of accesses.
    pub dynamic: i128,
    /// Energy of leakage and clocks.
    pub fixed: i128,
}

impl Totals {
    /// Total, dynamic and static energy in nanojoules.
    pub fn nanojoules(self) -> [f64; 3] {
        [self.dynamic + self.fixed, self.dynamic, self.fixed].map(nanojoules)
    }
}

/// Prices, resolved to row positions of a tree. All trees of a machine have the same rows.
pub(crate) struct Account<'a> {
    prices: &'a Prices,
    /// For each part and event: row positions and signs.
    rows: Vec<Vec<Vec<(usize, i128)>>>,
}

impl Prices {
    /// The account for trees with the rows of `tree`.
    pub(crate) fn account(&self, tree: &Tree) -> Account<'_> {
        let mut at: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (i, row) in tree.rows.iter().enumerate() {
            let key = (place(&row.path), row.definition.name);
            at.entry(key).or_default().push(i);
        }
        let found = |part: &Part| -> Vec<Vec<(usize, i128)>> {
            let events = part.events.iter();
            let rows = events.map(|e| {
                let counts = e.counts.iter();
                let rows = counts.flat_map(|c| {
                    let here = at.get(&(c.place.as_str(), c.counter));
                    here.into_iter().flatten().map(|&row| (row, c.sign))
                });
                rows.collect()
            });
            rows.collect()
        };
        Account {
            prices: self,
            rows: self.parts.iter().map(found).collect(),
        }
    }

    /// Places of `tree` whose counters have no price although they may cost energy: a forgotten array.
    #[cfg(test)]
    pub(crate) fn forgotten(&self, tree: &Tree) -> BTreeSet<String> {
        let events = self.parts.iter().flat_map(|p| &p.events);
        let counted: BTreeSet<&str> = events
            .flat_map(|e| e.counts.iter().map(|c| c.place.as_str()))
            .collect();
        let places = tree.rows.iter().map(|r| place(&r.path));
        places
            .filter(|p| !counted.contains(p) && !costs_nothing(p))
            .map(str::to_owned)
            .collect()
    }

    /// The counters that prices are for, as place and name.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> BTreeSet<(String, &'static str)> {
        let events = self.parts.iter().flat_map(|p| &p.events);
        let counts = events.flat_map(|e| &e.counts);
        counts.map(|c| (c.place.clone(), c.counter)).collect()
    }
}

impl Account<'_> {
    /// Counts of each event of part `part`.
    fn happened(&self, part: usize, tree: &Tree) -> impl Iterator<Item = i128> {
        self.rows[part].iter().map(|rows| {
            let of_row = |&(row, sign): &(usize, i128)| sign * i128::from(tree.rows[row].value);
            rows.iter().map(of_row).sum()
        })
    }

    /// Energy of the counts of `tree`, in `cycles` cycles of the slowest core.
    pub(crate) fn totals(&self, tree: &Tree, cycles: Cycle) -> Totals {
        let mut totals = Totals::default();
        for (i, part) in self.prices.parts.iter().enumerate() {
            let of = self.of_part(i, part, tree, cycles);
            totals.dynamic += of.dynamic;
            totals.fixed += of.fixed;
        }
        totals
    }

    fn of_part(&self, i: usize, part: &Part, tree: &Tree, cycles: Cycle) -> Totals {
        let events = part.events.iter().zip(self.happened(i, tree));
        Totals {
            dynamic: events.map(|(e, n)| e.each() * n).sum(),
            fixed: part.static_each(self.prices.frequency_ghz) * i128::from(cycles),
        }
    }

    /// Result with parts and events. `totals` are those of `tree` and `cycles`.
    pub(crate) fn result(&self, totals: Totals, tree: &Tree, cycles: Cycle) -> EnergyResult {
        let [total_nj, dynamic_nj, static_nj] = totals.nanojoules();
        let parts = self.prices.parts.iter().enumerate().map(|(i, part)| {
            let of = self.of_part(i, part, tree, cycles).nanojoules();
            let events = part.events.iter().zip(self.happened(i, tree));
            PartEnergy {
                part: part.name.clone(),
                group: part.group,
                total_nj: of[0],
                dynamic_nj: of[1],
                static_nj: of[2],
                static_mw: part.static_mw,
                number: part.number,
                source: part.source.clone(),
                events: events
                    .map(|(e, n)| EventEnergy {
                        event: e.what,
                        count: u64::try_from(n).unwrap_or(0),
                        each_pj: e.each_pj,
                        total_nj: nanojoules(e.each() * n),
                    })
                    .collect(),
            }
        });
        EnergyResult {
            total_nj,
            dynamic_nj,
            static_nj,
            seconds: cycles as f64 / self.prices.frequency_ghz / 1e9,
            parts: parts.collect(),
        }
    }
}

/// Energy of the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Energy")]
pub struct EnergyResult {
    /// Total energy in nJ.
    pub total_nj: f64,
    /// Energy of accesses in nJ.
    pub dynamic_nj: f64,
    /// Energy of leakage and clocks in nJ.
    pub static_nj: f64,
    /// Simulated time in seconds, of the slowest core.
    pub seconds: f64,
    /// Parts of the machine, which add up to the whole.
    pub parts: Vec<PartEnergy>,
}

/// Energy of one part of the machine, of all cores together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Part")]
pub struct PartEnergy {
    /// Path of the part's statistics without the core's number.
    pub part: String,
    /// Kind of part.
    pub group: Group,
    /// Total energy in nJ.
    pub total_nj: f64,
    /// Energy of accesses in nJ.
    pub dynamic_nj: f64,
    /// Energy of leakage and clocks in nJ.
    pub static_nj: f64,
    /// Leakage of each of `number`, in mW.
    pub static_mw: f64,
    /// Number of such parts in the machine: one for each core, or ranks.
    pub number: u64,
    /// Configuration keys behind the numbers, which `pagewalk explain energy` traces on.
    pub source: String,
    /// Accesses that take energy.
    pub events: Vec<EventEnergy>,
}

/// Energy of the accesses of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventEnergy {
    /// Kind of access.
    pub event: &'static str,
    /// Number of accesses.
    pub count: u64,
    /// Energy of one access in pJ.
    pub each_pj: f64,
    /// Energy of all of them in nJ.
    pub total_nj: f64,
}
