//! Energy, computed after a run from the counters of each array. The simulation does not depend on it.

mod account;
mod prices;
pub(crate) mod sources;
mod spec;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use account::Totals;
pub use account::{EnergyResult, EventEnergy, PartEnergy};
pub use prices::Group;
pub(crate) use prices::Prices;
pub use spec::{ArrayEnergy, CacheEnergy, CoreEnergy, DramEnergy, EnergySpec, OwnEnergy};
