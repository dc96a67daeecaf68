//! Huge pages as khugepaged makes them in the end, beside a run in which it had no time.
//!
//! The run itself shows that a design lacks them, so this takes a second run of these designs alone. A machine
//! more in every comparison of transparent huge pages would cost more: few programs need it.

use pagewalk_os::PlacementSpec;
use pagewalk_units::Error;

use crate::installation::Installation;
use crate::options::{Design, OnMachine};
use crate::results::{CYCLES, DesignResult, RunResult, Settled, Status, cost};
use crate::run::Progress;
use crate::session::{RunSpec, SourceSpec};
use crate::warnings::unsettled;

/// Most simulated instructions of a design that is simulated again: about a minute. Ours. Not a time, so that
/// a result does not depend on the host.
const MOST: u64 = 500_000_000;

/// Designs of a result that lack settled huge pages, each by its name and as it is with them.
fn lacking(spec: &RunSpec, result: &RunResult) -> Vec<(String, Settled)> {
    if !spec.options.translation_cost {
        return Vec::new();
    }
    let machine = |d: &DesignResult| d.on.as_ref().map(|o| o.machine.clone());
    let there = |on: &DesignResult, name: &str| {
        let mut designs = result.designs.iter().filter(|d| machine(d) == machine(on));
        designs.any(|d| d.on.as_ref().map_or(&d.name, |o| &o.design) == name)
    };
    let found = unsettled(&result.designs).into_iter();
    found
        .filter(|(design, name)| !there(design, name))
        .map(|(design, name)| {
            let settled = Settled {
                name,
                on: design.on.clone(),
                speedup: None,
            };
            (design.name.clone(), settled)
        })
        .collect()
}

/// The designs that lack settled huge pages, as they are with them, without a run.
pub(crate) fn named(spec: &RunSpec, result: &RunResult) -> Vec<Settled> {
    lacking(spec, result).into_iter().map(|(_, s)| s).collect()
}

impl Installation {
    /// Adds the designs with settled huge pages to `result`. Simulates them if that is quick, and `here` is
    /// the host that simulates.
    pub(crate) fn add_settled(
        &self,
        spec: &RunSpec,
        here: bool,
        result: &mut RunResult,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<(), Error> {
        let mut lacking = lacking(spec, result);
        let again = matches!(
            spec.source,
            Some(SourceSpec::Workload { .. } | SourceSpec::Trace { .. })
        );
        let quick = result.designs.iter().all(|d| d.simulated <= MOST);
        let once = spec.options.precision.is_none();
        if !lacking.is_empty() && again && quick && once && here && !result.partial {
            let mut spec = spec.clone();
            spec.options.translation_cost = false;
            spec.options.perfetto = None;
            spec.options.interval = None;
            let mut designs = self.resolve(&spec)?;
            designs.retain(|d| lacking.iter().any(|(name, _)| *name == d.name));
            designs.iter_mut().for_each(settle);
            let found = self.run_designs(designs, &spec, None, None, &mut |p| {
                progress(&Progress {
                    design_instructions: Vec::new(),
                    phase: "settled huge pages",
                    ..p.clone()
                })
            })?;
            result.host.seconds += found.host.seconds;
            let machine = |on: &Option<OnMachine>| on.as_ref().map(|o| o.machine.clone());
            for (name, settled) in &mut lacking {
                let own = found.designs.iter().find(|d| d.name == *name);
                let own = own.filter(|d| d.status == Status::Complete);
                let base = (result.designs.iter()).find(|d| machine(&d.on) == machine(&settled.on));
                settled.speedup = own.zip(base).and_then(|(own, base)| {
                    let cycles = |d| cost(d, CYCLES, base.speedup_by);
                    Some(cycles(base)? / cycles(own)?)
                });
            }
        }
        result.settled = lacking.into_iter().map(|(_, s)| s).collect();
        Ok(())
    }
}

/// Has all collapses of khugepaged done.
fn settle(design: &mut Design) {
    if let PlacementSpec::Thp(thp) = &mut design.config.placement {
        thp.khugepaged.settled = true;
    }
}
