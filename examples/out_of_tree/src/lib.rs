//! An engine with one more page table (`flattened.rs`), and one more translation source: a direct segment (Basu, Gandhi, Chang, Hill and
//! Swift, ISCA 2013). One pair of registers maps one range of virtual pages to consecutive frames.
//!
//! The range is the longest run of consecutive frames that the walks have found so far. That stands
//! for the kernel, which would know it and set the registers.

mod flattened;
mod last_offset;

use std::collections::BTreeMap;

use pagewalk_mmu::Lookup;
use pagewalk_mmu::source::registry::{Built, Context, Reserved, SourceKind, register};
use pagewalk_mmu::source::{Extent, Found, Hit, Place, Ports, Probed, TranslationSource};
use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Error, PageSize};
use pyo3::prelude::*;
use serde::Deserialize;

/// A direct segment: `[translation.external.direct_segment]`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectSegment {
    /// Least pages of the segment. A shorter run is not mapped.
    least_pages: u64,
}

impl SourceKind for DirectSegment {
    fn check(&self) -> Result<(), Error> {
        if self.least_pages == 0 {
            return Err(Error::key("least_pages", "is 0; expected at least 1"));
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::BesideL1
    }

    fn build(&self, context: &Context<'_>, _: &Reserved) -> Built {
        Built::separate(context, || Segment {
            least: self.least_pages * PageSize::K4.bytes(),
            runs: BTreeMap::new(),
            stats: SegmentStats::default(),
        })
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's direct segment.
    pub struct SegmentStats {
        lookups: "lookups", "Addresses compared with the segment, after the first level has missed";
        hits: "lookups", "Addresses in the segment";
    }
}

/// A core's registers, and what the kernel knows of runs.
struct Segment {
    /// Least bytes of the segment.
    least: u64,
    /// Runs of consecutive frames, by address space and first page. The longest is the segment.
    runs: BTreeMap<(Asid, u64), Extent>,
    stats: SegmentStats,
}

/// The union of two runs of one address space, if `b` begins in `a` or behind its last page, and
/// both lie in consecutive frames and have equal rights.
fn union(a: &Extent, b: &Extent) -> Option<Extent> {
    let offset = |e: &Extent| e.pa.0.wrapping_sub(e.va.0);
    let end = |e: &Extent| e.va.0 + e.bytes;
    let joins = offset(a) == offset(b) && a.writable == b.writable && b.va.0 <= end(a);
    joins.then(|| Extent {
        bytes: end(a).max(end(b)) - a.va.0,
        ..*a
    })
}

impl Segment {
    fn segment(&self) -> Option<(Asid, Extent)> {
        let longest = self.runs.iter().max_by_key(|(_, run)| run.bytes);
        let (&(asid, _), &run) = longest.filter(|(_, run)| run.bytes >= self.least)?;
        Some((asid, run))
    }
}

impl TranslationSource for Segment {
    fn name(&self) -> &'static str {
        "direct_segment"
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        self.stats.lookups += ports.count();
        let covers = |(asid, run): &(Asid, Extent)| {
            let may = run.writable || lookup.access != Access::Write;
            *asid == lookup.asid && run.covers(lookup.va) && may
        };
        match self.segment().filter(covers) {
            Some((_, extent)) => {
                self.stats.hits += ports.count();
                Probed::Hit(Hit {
                    extent,
                    largest: PageSize::K4,
                    at: lookup.now,
                    memory: false,
                })
            }
            None => Probed::Miss { at: lookup.now },
        }
    }

    fn fill(&mut self, found: &Found<'_>, _: &mut Ports<'_>) {
        let asid = found.lookup.asid;
        let mut run = found.run();
        // The run before, and the runs that begin in this one or behind its last page.
        let before = self.runs.range(..=(asid, run.va.0)).next_back();
        if let Some((&at, before)) = before.filter(|((own, _), _)| *own == asid)
            && let Some(both) = union(before, &run)
        {
            self.runs.remove(&at);
            run = both;
        }
        while let Some((&at, next)) = self.runs.range((asid, run.va.0)..).next()
            && at.0 == asid
            && let Some(both) = union(&run, next)
        {
            self.runs.remove(&at);
            run = both;
        }
        self.runs.insert((asid, run.va.0), run);
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        self.runs
            .retain(|(own, _), run| *own != asid || !run.overlaps(first, last));
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}

/// The engine's Python module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register::<DirectSegment>("direct_segment");
    last_offset::add();
    pagewalk_tables::register::<flattened::FlattenedSpec>("flattened");
    ::_native::fill_module(module)
}
