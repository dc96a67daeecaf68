//! Micro-benchmarks: what each does, and how it is repeated.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chain::{self, CHAINS, UNROLLED};
use crate::memory::Memory;

/// Loop of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Dependent additions: one a cycle. Operation: an addition.
    Add,
    /// Dependent loads, in one or several chains. Operation: a load.
    Chase,
    /// Independent loads, whose addresses come from a list. Operation: a line of the order.
    Gather,
    /// Loads of a word of each line, in order. Operation: a line.
    Read,
    /// Loads of each word, in order. Operation: a word.
    Words,
    /// Copies of a word of each line of the first half to the second. Operation: a line.
    Copy,
    /// First stores to fresh pages, and the end of their mapping. Operation: a page of 4 KB.
    Touch,
}

/// A benchmark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// Loop.
    pub kind: Kind,
    /// Huge pages of 2 MB are asked for; else 4 KB pages.
    pub huge: bool,
    /// Bytes of virtual memory, a multiple of 4096.
    pub bytes: u64,
    /// Lines used in each page of 4 KB: a power of two up to 64.
    pub lines_per_page: u64,
    /// The lines of a page follow one another.
    pub local: bool,
    /// Chains of dependent loads.
    pub chains: usize,
}

/// Times of a benchmark.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Measured {
    /// Nanoseconds of processor time for an operation, one value for each repetition.
    pub ns: Vec<f64>,
    /// Nanoseconds to unmap a page of 4 KB, one value for each repetition of `touch`.
    pub unmap_ns: Vec<f64>,
    /// Share of its memory in huge pages; 0 if it has none, and none if the kernel does not say.
    pub huge_share: Option<f64>,
}

/// Operations of a repetition, if the working set is small and if it is large. Ours: about 0.1 to 2
/// ms, far above the cost of reading the clock and below a time slice.
const SMALL_LOADS: u64 = 1 << 16;
const LARGE_LOADS: u64 = 1 << 14;
/// Lines up to which a working set is small: 128 KB.
const SMALL_LINES: u64 = 1 << 11;
/// Lines up to which a working set is loaded once before it is measured: 64 MB. Larger ones find
/// little of theirs in any cache.
const WARMED_LINES: u64 = 1 << 20;
/// Lines up to which it is loaded before each repetition, because another thread may have run: 8 MB.
const OFTEN_WARMED_LINES: u64 = 1 << 17;
/// Repetitions one after the other, between two of other benchmarks.
const TOGETHER: usize = 3;
/// Additions of a repetition.
const ADDITIONS: u64 = 1 << 19;

/// Processor time of the thread, ns.
fn now() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The cost of reading the clock, ns: the least of many.
fn clock_cost() -> f64 {
    (0..200).fold(f64::MAX, |least, _| {
        let begun = now();
        least.min(now() - begun)
    })
}

/// A benchmark with its order of lines.
struct Ready {
    benchmark: Benchmark,
    /// Byte offsets of the lines, for [`Kind::Chase`] and [`Kind::Gather`].
    order: Vec<u64>,
    measured: Measured,
}

impl Ready {
    fn new(benchmark: &Benchmark) -> Result<Self, Error> {
        check(benchmark)?;
        let order = match benchmark.kind {
            Kind::Chase | Kind::Gather => {
                chain::order(benchmark.bytes, benchmark.lines_per_page, benchmark.local)
            }
            _ => vec![],
        };
        Ok(Ready {
            benchmark: benchmark.clone(),
            order,
            measured: Measured::default(),
        })
    }

    /// Repetitions, after the working set is in the caches again. Benchmarks share their `memory`,
    /// so chains are linked anew each time.
    fn repeat(&mut self, memory: &mut Memory, clock: f64) -> Result<(), Error> {
        let chains = self.benchmark.chains as u64;
        let lines = self.order.len() as u64;
        let base = memory.from() as u64;
        let length = memory.words().len().min(self.benchmark.bytes as usize / 8);
        let words = &mut memory.words()[..length];
        let (mut at, mut list) = (vec![], vec![]);
        if self.benchmark.kind == Kind::Chase {
            at = chain::link(words, &self.order, self.benchmark.chains);
        } else if self.benchmark.kind == Kind::Gather {
            list = self.order.iter().map(|at| base + at).collect();
        }
        let mut list = list.chunks_exact(LARGE_LOADS as usize);
        for repetition in 0..TOGETHER {
            let warms = lines <= OFTEN_WARMED_LINES || lines <= WARMED_LINES && repetition == 0;
            if self.benchmark.kind == Kind::Chase && warms {
                chain::chase(&mut at, lines.div_ceil(UNROLLED * chains));
            }
            let begun = now();
            let operations = match self.benchmark.kind {
                Kind::Add => {
                    chain::add(ADDITIONS / 16);
                    ADDITIONS
                }
                Kind::Chase => {
                    let loads = if lines <= SMALL_LINES {
                        SMALL_LOADS
                    } else {
                        LARGE_LOADS
                    };
                    let rounds = loads / (UNROLLED * chains);
                    chain::chase(&mut at, rounds);
                    rounds * UNROLLED * chains
                }
                Kind::Gather => {
                    // A short list has no further part: its lines would be in the caches.
                    let Some(some) = list.next() else { break };
                    chain::gather(some);
                    some.len() as u64
                }
                Kind::Read => {
                    chain::read::<64>(words);
                    words.len() as u64 / 8
                }
                Kind::Words => {
                    chain::read::<8>(words);
                    words.len() as u64
                }
                Kind::Copy => {
                    chain::copy(words);
                    words.len() as u64 / 16
                }
                Kind::Touch => {
                    self.touch(clock)?;
                    continue;
                }
            };
            let gone = now() - begun - clock;
            self.measured.ns.push(gone.max(0.0) / operations as f64);
        }
        Ok(())
    }

    fn touch(&mut self, clock: f64) -> Result<(), Error> {
        let Benchmark { bytes, huge, .. } = self.benchmark;
        let pages = (bytes / 4096) as f64;
        let mut memory = Memory::map(bytes as usize, huge)?;
        let begun = now();
        memory.words().iter_mut().step_by(512).for_each(|w| *w = 1);
        let touched = now();
        self.measured.huge_share = memory.huge_share();
        let asked = now();
        memory.unmap();
        let unmapped = now();
        let each = |time: f64| (time - clock).max(0.0) / pages;
        self.measured.ns.push(each(touched - begun));
        self.measured.unmap_ns.push(each(unmapped - asked));
        Ok(())
    }
}

fn check(benchmark: &Benchmark) -> Result<(), Error> {
    let Benchmark {
        kind,
        bytes,
        lines_per_page,
        chains,
        ..
    } = *benchmark;
    let wrong = |key: &str, expected: &str| {
        Err(Error::refused(format!(
            "{key} of a micro-benchmark; expected {expected}"
        )))
    };
    if kind != Kind::Add && (bytes == 0 || !bytes.is_multiple_of(4096)) {
        return wrong(&format!("bytes={bytes}"), "a multiple of 4096");
    }
    if !lines_per_page.is_power_of_two() || lines_per_page > 64 {
        return wrong(
            &format!("lines_per_page={lines_per_page}"),
            "a power of two up to 64",
        );
    }
    if !CHAINS.contains(&chains) || bytes / 4096 * lines_per_page < chains as u64 && bytes > 0 {
        return wrong(
            &format!("chains={chains}"),
            "1, 2, 4, 8 or 12, each with a line",
        );
    }
    Ok(())
}

/// Touched memory for all benchmarks in pages of one size, which `touch` does not need.
fn shared_memory(benchmarks: &[Benchmark], huge: bool) -> Result<Memory, Error> {
    let of_size = benchmarks
        .iter()
        .filter(|b| b.huge == huge && b.kind != Kind::Touch);
    let bytes = of_size.map(|b| b.bytes).max().unwrap_or(0);
    let mut memory = Memory::map(bytes as usize, huge)?;
    memory.words().iter_mut().step_by(512).for_each(|w| *w = 1);
    Ok(memory)
}

/// Runs the benchmarks in turn, `rounds` times all of them. `progress` gets the share that is done,
/// and returns false to stop; the result is then `None`.
///
/// # Errors
/// An impossible benchmark, or the host has too little memory.
pub fn measure(
    benchmarks: &[Benchmark],
    rounds: u32,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Vec<Measured>>, Error> {
    let steps = (benchmarks.len() * (rounds as usize + 1)).max(1) as f64;
    let mut done = 0.0;
    let mut go_on = || {
        done += 1.0;
        progress(done / steps)
    };
    let mut all = Vec::with_capacity(benchmarks.len());
    for benchmark in benchmarks {
        all.push(Ready::new(benchmark)?);
        if !go_on() {
            return Ok(None);
        }
    }
    let mut memories = [
        shared_memory(benchmarks, false)?,
        shared_memory(benchmarks, true)?,
    ];
    for ready in &mut all {
        ready.measured.huge_share = memories[usize::from(ready.benchmark.huge)].huge_share();
    }
    let clock = clock_cost();
    for _ in 0..rounds {
        for ready in &mut all {
            ready.repeat(&mut memories[usize::from(ready.benchmark.huge)], clock)?;
            if !go_on() {
                return Ok(None);
            }
        }
    }
    Ok(Some(all.into_iter().map(|ready| ready.measured).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, bytes: u64) -> Benchmark {
        Benchmark {
            kind,
            huge: false,
            bytes,
            lines_per_page: 64,
            local: false,
            chains: 1,
        }
    }

    #[test]
    fn every_kind_gives_a_time_for_each_repetition() {
        let kinds = [
            Kind::Add,
            Kind::Chase,
            Kind::Gather,
            Kind::Read,
            Kind::Words,
            Kind::Copy,
            Kind::Touch,
        ];
        let all: Vec<Benchmark> = kinds.map(|kind| of(kind, 4 << 20)).to_vec();
        let mut shares = vec![];
        let found = measure(&all, 2, &mut |share| {
            shares.push(share);
            true
        });
        let found = found.expect("possible").expect("not stopped");
        for (benchmark, measured) in all.iter().zip(&found) {
            assert_eq!(measured.ns.len(), 6, "{benchmark:?}");
            assert!(measured.ns.iter().all(|ns| *ns > 0.0), "{benchmark:?}");
        }
        let touch = all
            .iter()
            .position(|b| b.kind == Kind::Touch)
            .expect("among them");
        assert_eq!(found[touch].unmap_ns.len(), 6);
        assert_eq!(shares.last(), Some(&1.0));
        // A load of the first-level cache takes some cycles, an addition one.
        let least = |n: usize| found[n].ns.iter().copied().fold(f64::MAX, f64::min);
        assert!(least(1) > 2.0 * least(0), "{} {}", least(1), least(0));
    }

    #[test]
    fn a_stopped_measurement_has_no_result() {
        let stopped = measure(&[of(Kind::Add, 0)], 1, &mut |_| false);
        assert!(stopped.expect("possible").is_none());
    }

    #[test]
    fn impossible_benchmarks_are_refused() {
        for (wrong, part) in [
            (of(Kind::Chase, 100), "a multiple of 4096"),
            (
                Benchmark {
                    chains: 3,
                    ..of(Kind::Chase, 4096)
                },
                "chains=3",
            ),
            (
                Benchmark {
                    lines_per_page: 65,
                    ..of(Kind::Chase, 4096)
                },
                "lines_per_page=65",
            ),
        ] {
            let error = measure(&[wrong], 1, &mut |_| true).expect_err(part);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
