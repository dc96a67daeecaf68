//! Length of filtered warming before a sample, chosen from the reuse in the program.
//!
//! **Problem.** Warming has to be long enough to reconstruct caches and TLBs, and should be no longer.
//!
//! **Idea.** A part of the program is analysed without simulating it. A length suffices in either of two
//! cases:
//!
//! - Nearly all reuses are shorter (Haskins and Skadron, ISPASS 2003; Eeckhout et al., The Computer Journal 2005).
//! - Its mean footprint exceeds the structure by a factor, so older contents have been evicted. The footprint follows
//!   from the times between uses (Xiang et al., ASPLOS 2013).
//!
//! Lines and pages are sampled by a hash of their numbers (SHARDS: Waldspurger et al., FAST 2015).

use pagewalk_stream::{Error, Program, RecentLineFilter};
use pagewalk_trace::drive;
use pagewalk_units::{LINE_BYTES, LINE_SHIFT, PageSize};
use rustc_hash::FxHashMap;

use crate::limits::Limits;
use crate::options::Design;

/// One in this number of instructions of the measured part is analysed.
const SHARE: u64 = 10;
/// Maximum number of instructions to analyse, also for a program of unknown length.
const MOST: u64 = 500_000_000;
/// Reuse-latency threshold: uses for 1000 instructions whose last use may lie further back than the
/// warming. At 200 cycles each, a memory access, they cost four cycles.
const REUSE_LATENCY_THRESHOLD: f64 = 0.02;
/// Footprint factor: a structure counts as filled by this multiple of its capacity. With random addresses
/// a set of 16 ways then gets 32 on average, and 1 of 500 sets fewer than 16.
const FOOTPRINT_FACTOR: u64 = 2;
/// log2 of the sampling ratio of lines.
const LINE_SAMPLING_SHIFT: u32 = 4;
/// log2 of the sampling ratio of 4 KB pages.
const PAGE_SAMPLING_SHIFT: u32 = 2;

/// Lengths in instructions are classed by quarters of a power of two, from 65,536 on.
const SHORTEST: u32 = 16;
const LENGTHS: usize = 4 * (41 - SHORTEST as usize);

/// Shortest length of a class. The first class has all lengths below that of the second.
fn length(class: usize) -> u64 {
    let power = SHORTEST + (class as u32 - 1) / 4;
    (1 << power) + (((class as u64 - 1) % 4) << (power - 2))
}

fn class(instructions: u64) -> usize {
    if instructions < 1 << SHORTEST {
        return 0;
    }
    let power = instructions.ilog2();
    let quarter = (instructions >> (power - 2)) & 3;
    ((4 * (power - SHORTEST)) as usize + quarter as usize + 1).min(LENGTHS - 1)
}

/// Lines or pages, and the number that fills the largest structure of any design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FootprintTarget {
    /// log2 of their size in bytes.
    shift: u32,
    /// log2 of the sampling ratio.
    sampling_shift: u32,
    fill: u64,
}

/// Footprint targets of the caches and TLBs of `designs`.
pub(crate) fn footprint_targets(designs: &[Design]) -> Vec<FootprintTarget> {
    let cached = designs.iter().map(|d| {
        let (own, shared) = (d.config.caches.data_levels(), d.config.memory.levels());
        let largest = own.chain(shared).map(|(_, cache)| cache.size_kb).max();
        u64::from(largest.unwrap_or(0)) * 1024 / LINE_BYTES
    });
    let translated = |size: PageSize| {
        let arrays = designs.iter().flat_map(|d| {
            let mmu = &d.config.mmu;
            [&mmu.l1d, &mmu.l2, &mmu.l2i].into_iter().flatten()
        });
        let holding = arrays.filter(|(_, array)| array.page_sizes.contains(&size));
        holding.map(|(_, array)| u64::from(array.entries)).max()
    };
    let pages =
        |size: PageSize, fewer| Some((size.bytes().trailing_zeros(), fewer, translated(size)?));
    let all = [
        cached
            .max()
            .map(|lines| (LINE_SHIFT, LINE_SAMPLING_SHIFT, lines)),
        pages(PageSize::K4, PAGE_SAMPLING_SHIFT),
        pages(PageSize::M2, 0),
    ];
    let target = |(shift, fewer, holds)| FootprintTarget {
        shift,
        sampling_shift: fewer,
        fill: FOOTPRINT_FACTOR * holds,
    };
    all.into_iter().flatten().map(target).collect()
}

/// Histogram of times by class.
struct Times {
    counts: Vec<u64>,
    sums: Vec<u64>,
}

impl Times {
    fn new() -> Self {
        Times {
            counts: vec![0; LENGTHS],
            sums: vec![0; LENGTHS],
        }
    }

    fn add(&mut self, time: u64) {
        let class = class(time);
        self.counts[class] += 1;
        self.sums[class] += time;
    }

    /// Sum of the parts of all times that exceed the shortest length of a class.
    fn beyond(&self, class: usize) -> f64 {
        let n: u64 = self.counts[class..].iter().sum();
        let sum: u64 = self.sums[class..].iter().sum();
        sum as f64 - n as f64 * length(class) as f64
    }
}

/// Uses of the sampled lines or pages of a footprint target.
struct Uses {
    target: FootprintTarget,
    last: FxHashMap<u64, u64>,
    /// Times between two uses of an address.
    again: Times,
    /// Times from the start to the first use.
    first: Times,
    /// Uses in the second half by the class of the time since the last use.
    late: Vec<u64>,
    /// First uses in the second half.
    late_first: u64,
}

impl Uses {
    fn new(target: FootprintTarget) -> Self {
        Uses {
            target,
            last: FxHashMap::default(),
            again: Times::new(),
            first: Times::new(),
            late: vec![0; LENGTHS],
            late_first: 0,
        }
    }

    fn see(&mut self, address: u64, now: u64, half: u64) {
        let unit = address >> self.target.shift;
        let hash = unit.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if hash & ((1 << self.target.sampling_shift) - 1) != 0 {
            return;
        }
        match self.last.insert(unit, now) {
            Some(before) => {
                self.again.add(now - before);
                self.late[class(now - before)] += u64::from(now >= half);
            }
            None => {
                self.first.add(now);
                self.late_first += u64::from(now >= half);
            }
        }
    }

    /// Class of the needed length, after `seen` instructions. Nothing if the analysed part is too short.
    fn needed(&self, seen: u64) -> Option<usize> {
        let mut to_the_end = Times::new();
        for last in self.last.values() {
            to_the_end.add(seen - last);
        }
        let scale = (1u64 << self.target.sampling_shift) as f64;
        // Lengths short enough to classify each use in the second half.
        let lengths = || (1..LENGTHS).take_while(|c| length(*c) <= seen / 2);
        let footprint = |class: usize| {
            let parts = [&self.again, &self.first, &to_the_end];
            let outside: f64 = parts.iter().map(|t| t.beyond(class)).sum();
            let windows = (seen - length(class) + 1) as f64;
            scale * (self.last.len() as f64 - outside / windows)
        };
        let full = lengths().find(|c| footprint(*c) >= self.target.fill as f64);
        let late = |class: usize| {
            let again: u64 = self.late[class..].iter().sum();
            scale * (again + self.late_first) as f64
        };
        let few = REUSE_LATENCY_THRESHOLD / 1000.0 * (seen - seen / 2) as f64;
        let enough = lengths().find(|c| late(*c) <= few);
        [enough, full].into_iter().flatten().min()
    }
}

/// Instructions of filtered warming before each sample that reconstruct the structures of `targets`.
/// Nothing if the analysed part is inconclusive; then everything has to be warmed. `go_on` gets the
/// instructions analysed so far and in all.
///
/// # Errors
/// An error of the program.
pub(crate) fn needed(
    mut program: Box<dyn Program>,
    limits: &Limits,
    targets: &[FootprintTarget],
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<u64>, Error> {
    let before = limits.skip.saturating_add(limits.warmup);
    let length_of_all = program.facts().instructions;
    let rest = length_of_all.map(|n| n.saturating_sub(before));
    let measured = [limits.instructions, rest].into_iter().flatten().min();
    let wanted = measured.map_or(MOST, |n| (n / SHARE).min(MOST));
    if before > 0 {
        program.grant_fast_forward(before, u64::MAX);
    } else {
        program.grant_filtered_warming(u64::MAX, u64::MAX);
    }
    let mut uses: Vec<Uses> = targets.iter().map(|r| Uses::new(*r)).collect();
    let (mut skipped, mut seen) = (0, 0);
    let mut lines = RecentLineFilter::default();
    drive(program.as_mut(), &mut |program, _, batch, _| {
        if skipped < before {
            skipped += batch.instructions();
            if skipped >= before {
                program.grant_filtered_warming(u64::MAX, u64::MAX);
            }
            return Ok(go_on(0, wanted));
        }
        let mut see = |address: u64, now: u64| {
            for one in &mut uses {
                one.see(address, now, wanted / 2);
            }
        };
        let touched = &batch.skipped.touched;
        for (n, &(address, access)) in touched.iter().enumerate() {
            if lines.is_new(address, access) {
                // The exact place within the skipped stretch does not matter to such long lengths.
                see(
                    address,
                    seen + batch.skipped.instructions * n as u64 / touched.len() as u64,
                );
            }
        }
        seen += batch.skipped.instructions;
        for op in &batch.ops {
            lines.filter(op, |address, _| see(address, seen));
            seen += u64::from(op.insns);
        }
        Ok(seen < wanted && go_on(seen, wanted))
    })?;
    // A program that ended or was stopped early gives too little information.
    if seen < wanted {
        return Ok(None);
    }
    let classes: Option<Vec<usize>> = uses.iter().map(|u| u.needed(seen)).collect();
    Ok(classes.map(|all| all.into_iter().max().map_or(0, length)))
}

#[cfg(test)]
mod tests {
    use super::{FootprintTarget, LENGTHS, Uses, class, length};

    #[test]
    fn lengths_and_their_classes_agree() {
        assert_eq!((class(0), class(65_535), class(65_536)), (0, 0, 1));
        for c in 1..LENGTHS - 1 {
            assert_eq!((class(length(c) - 1), class(length(c))), (c - 1, c));
        }
    }

    /// Cycles through `units` lines, one each 100 instructions.
    fn cyclic(units: u64, fill: u64) -> Option<u64> {
        let mut uses = Uses::new(FootprintTarget {
            shift: 6,
            sampling_shift: 0,
            fill,
        });
        let seen = 20_000_000;
        for n in 0..seen / 100 {
            uses.see((n % units) << 6, 100 * n, seen / 2);
        }
        uses.needed(seen).map(length)
    }

    /// All reuses of a cycle have the length of the cycle.
    #[test]
    fn a_cycle_that_fits_a_structure_needs_one_round_of_warming() {
        let round = 100 * 5000;
        let found = cyclic(5000, 8000).unwrap();
        assert!(found > round && found <= round * 5 / 4, "{found}");
    }

    #[test]
    fn a_cycle_that_does_not_fit_needs_the_warming_that_fills_the_structure() {
        let fills = 100 * 8000;
        let found = cyclic(50_000, 8000).unwrap();
        assert!(found >= fills && found <= fills * 5 / 4, "{found}");
    }

    #[test]
    fn a_part_that_does_not_fill_the_structure_gives_no_length() {
        // Each line is used once.
        assert_eq!(cyclic(u64::MAX, 300_000), None);
        let found = cyclic(u64::MAX, 3000).unwrap();
        assert!((300_000..=375_000).contains(&found), "{found}");
    }

    /// Random uses have touched half of the lines after `ln 2` times as many uses as lines.
    #[test]
    fn random_uses_need_the_warming_that_fills_the_structure() {
        use rand::RngExt;
        let mut draw = pagewalk_units::rng(7, "uses");
        let (units, seen) = (10_000u64, 40_000_000u64);
        let mut uses = Uses::new(FootprintTarget {
            shift: 6,
            sampling_shift: 0,
            fill: units / 2,
        });
        for n in 0..seen / 100 {
            uses.see(draw.random_range(0..units) << 6, 100 * n, seen / 2);
        }
        let fills = 100.0 * units as f64 * std::f64::consts::LN_2;
        let found = length(uses.needed(seen).unwrap()) as f64;
        assert!(
            found > 0.8 * fills && found < 1.3 * fills,
            "{found} {fills}"
        );
    }
}
