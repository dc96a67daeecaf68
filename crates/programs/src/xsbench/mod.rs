//! XSBench: lookups of macroscopic neutron cross sections, the kernel of Monte
//! Carlo reactor physics, with its unionised energy grid.
//!
//! ```c
//! idx = grid_search(nuclides * points, energy, egrid);             // binary search
//! for (j = 0; j < num_nucs[mat]; j++) {                            // 4 to 321 nuclides
//!   nuc = mats[mat * max + j];  conc = concs[mat * max + j];
//!   low = &grid[nuc * points + index[idx * nuclides + nuc]];       // 48-byte points
//!   f = (low[1].energy - energy) / (low[1].energy - low->energy);
//!   for (k = 0; k < 5; k++) xs[k] = low[1].xs[k] - f * (low[1].xs[k] - low->xs[k]);
//!   for (k = 0; k < 5; k++) macro[k] += xs[k] * conc;
//! }
//! ```
//!
//! The instructions are those of the source's own Makefile: see `code.rs` and `outer.rs`.

mod code;
mod data;
mod outer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pagewalk_stream::{Error, Facts, Program};
use rand::Rng as _;

use self::code::{Simulation, Tables};
use self::data::Grid;
use self::outer::Work;
use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::{Code, Member};
use crate::size::format_size;
use crate::thread::Thread;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(xsbench(values)?.0) as Box<dyn Program>),
};

/// Points per nuclide in the source's two problems.
const POINTS: u64 = 11_303;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "xsbench",
    group: "science",
    description: "Looks up cross sections: a binary search in one large grid, then two points in the grid of each of 4 to 321 nuclides.",
    stresses: "TLB reach with independent misses: each nuclide of a lookup accesses one page of the index row and one page of its own grid.",
    source: "J. Tramm et al., XSBench: the development and verification of a performance abstraction for Monte Carlo reactor analysis, PHYSOR 2014; ANL-CESAR/XSBench v20, openmp-threading",
    default_size: 355 * POINTS * (48 + 8 + 4 * 355),
    size_range: "1MiB to 64TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "problem",
            unit: "",
            default: "large",
            range: "large or small",
            meaning: "Hoogenboom-Martin problem: large has 355 nuclides, 321 of them in the fuel; small has 68 and 34. The size sets the points of a nuclide; without it there are 11303.",
        },
        ParamInfo {
            name: "method",
            unit: "",
            default: "history",
            range: "history or event",
            meaning: "With history, the lookups of a particle depend on each other; with event, all lookups are independent (-m).",
        },
        ParamInfo {
            name: "particles",
            unit: "particles",
            default: "500000",
            range: "1 to 2^31 - 1",
            meaning: "Particles of the history method (-p).",
        },
        ParamInfo {
            name: "lookups",
            unit: "lookups",
            default: "34 a particle, 17000000 events",
            range: "1 to 2^31 - 1",
            meaning: "Lookups of each particle, or of all with the event method (-l).",
        },
        POPULATE,
        REGION,
    ],
};

fn xsbench(values: &Values<'_>) -> Result<(Code, Arc<Simulation>), Error> {
    let small = values.choice("problem", &["large", "small"], "large")? == "small";
    let history = values.choice("method", &["history", "event"], "history")? == "history";
    let nuclides = if small { 68 } else { 355 };
    let row = nuclides * (48 + 8 + 4 * nuclides);
    let points = values.options.size_bytes.map_or(POINTS, |b| b / row);
    let bytes = points * row;
    if points < 2 || bytes > 1 << 46 {
        return Err(values.refuse_size(values.size(), "out of range (2 points a nuclide at least)"));
    }
    let most = (1 << 31) - 1;
    if !history && values.number("particles")?.is_some() {
        return Err(values.refuse("particles", "the event method has no particles"));
    }
    let particles = values.number_in("particles", 1..=most, 500_000)?;
    let lookups = values.number_in("lookups", 1..=most, if history { 34 } else { 17_000_000 })?;
    let start = values.start()?;
    let threads = values.options.threads;

    let mut heap = Heap::new(Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let materials = data::materials(small);
    let widest = materials[0].len() as u64;
    let tables = Tables {
        points: heap.malloc(nuclides * points * 48),
        energies: heap.malloc(nuclides * points * 8),
        index: heap.malloc(nuclides * points * nuclides * 4),
        num_nucs: heap.malloc(12 * 4),
        mats: heap.malloc(12 * widest * 4),
        concs: heap.malloc(12 * widest * 8),
        widest,
    };
    let mut rng = pagewalk_units::rng(values.options.seed, "workload.xsbench");
    // A seed changes the particles as well. Seed 0 keeps those of the source.
    let skipped = match values.options.seed {
        0 => 0,
        seed => pagewalk_units::rng(seed, "workload.xsbench.particles").next_u64(),
    };
    let shared = Arc::new(Simulation {
        grid: Grid {
            nuclides,
            points,
            seed: rng.next_u64(),
        },
        concs: data::concentrations(&materials),
        materials,
        tables,
        next: AtomicU64::new(0),
        verification: AtomicU64::new(0),
    });
    let work = Work {
        history,
        items: if history { particles } else { lookups },
        lookups,
        start: data::fast_forward(data::STARTING_SEED, skipped),
    };
    let facts = Facts {
        name: format!("xsbench --size {} --threads {threads}", format_size(bytes)),
        deterministic: true,
        has_roi: true,
        request: Some("cross-section lookup".to_owned()),
        ..Facts::default()
    };
    let member = |stack| {
        let shared = shared.clone();
        (stack, Lookups { work, shared })
    };
    let members = stacks.into_iter().map(member).collect();
    Ok((Code::team(facts, start, heap, members), shared))
}

/// Lookups of one thread.
struct Lookups {
    work: Work,
    shared: Arc<Simulation>,
}

impl Member for Lookups {
    async fn run(self, t: &mut Thread) {
        self.work.run(t, &self.shared).await;
    }
}
