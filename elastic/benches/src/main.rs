//! Measures `elastic` beside other maps, and writes `elastic/results.json`.
//!
//!     cargo run --release -- [ROUNDS [SIZE...]]        all maps, in alternating order, each in a process of its own
//!     cargo run --release -- merge                     the results file, from the runs that are kept so far
//!
//! With `--features huge-pages`, run `elastic-benches 'elastic, huge pages' SIZE >> runs.jsonl` for that variant.
//!
//! Times are those of the processor: while other processes ran, no time is counted. Keys and values have
//! eight bytes, and keys are random. Each run is appended to `runs.jsonl` in the target folder.
//! The results file has the median of each quantity over the runs of a map and size.

mod maps;
mod report;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::time::Instant;

use maps::Map;
use serde_json::{Value, json};

/// Entries of the maps that are measured by default.
const SIZES: [usize; 5] = [1_000, 100_000, 3_000_000, 10_000_000, 30_000_000];
const ROUNDS: usize = 3;
/// Lookups of each kind.
const LOOKUPS: usize = 10_000_000;
/// Operations that take longer count with their processor time.
const SLOW_NS: f64 = 3_000.0;
/// Operations after which the processor time is read at the latest.
const READ_EVERY: u64 = 4096;
/// Inserts of small maps, at least: they are filled several times.
const INSERTS: usize = 3_000_000;

static CURRENT: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, which counts bytes.
struct Counting;

/// Counts allocated or freed bytes. The C++ map calls it, too.
#[unsafe(no_mangle)]
extern "C" fn bench_count(bytes: isize) {
    let current = CURRENT.fetch_add(bytes, Relaxed) + bytes;
    if current > PEAK.load(Relaxed) {
        PEAK.store(current, Relaxed);
    }
}

// SAFETY: The system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        bench_count(layout.size() as isize);
        // SAFETY: As of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        bench_count(-(layout.size() as isize));
        // SAFETY: As of the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn clock() -> u64 {
    // SAFETY: Every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Latencies in clock ticks, in bins of a thirty-second of their size.
struct Latencies {
    bins: Vec<u64>,
    count: u64,
    largest: u64,
    /// Ticks of a long operation or pause.
    slow: u64,
    /// Clock at the end of the last operation.
    ended: u64,
    /// Clock and processor time of this thread when both were last read.
    read: (u64, f64),
    ticks_per_ns: f64,
}

impl Latencies {
    const PARTS: u32 = 5;

    fn new(ticks_per_ns: f64) -> Self {
        Self {
            bins: vec![0; 64 << Self::PARTS],
            count: 0,
            largest: 0,
            slow: (SLOW_NS * ticks_per_ns) as u64,
            ended: clock(),
            read: (clock(), cpu_ns()),
            ticks_per_ns,
        }
    }

    /// Measures an operation.
    ///
    /// A long one counts with its processor time, so that other processes do not count. That time is read after long
    /// operations, after long pauses and at intervals. In between, the thread had a processor all the time. Reading it
    /// each time would take longer than most operations.
    #[inline(always)]
    fn record(&mut self, operation: impl FnOnce()) {
        let mut start = clock();
        if start - self.ended > self.slow {
            self.read = (clock(), cpu_ns());
            start = clock();
        }
        operation();
        self.ended = clock();
        let mut ticks = self.ended - start;
        if ticks > self.slow || self.count.is_multiple_of(READ_EVERY) {
            let now_ns = cpu_ns();
            if ticks > self.slow {
                let before_ns = (start - self.read.0) as f64 / self.ticks_per_ns;
                let own_ns = (now_ns - self.read.1 - before_ns).max(0.0);
                ticks = ticks.min((own_ns * self.ticks_per_ns) as u64);
            }
            self.ended = clock();
            self.read = (self.ended, now_ns);
        }
        let shift = (ticks | 1).ilog2().saturating_sub(Self::PARTS);
        self.bins[((shift as usize) << Self::PARTS) + (ticks >> shift) as usize] += 1;
        self.count += 1;
        self.largest = self.largest.max(ticks);
    }

    /// Upper end of the bin in which this part of the latencies ends.
    fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (bin, &count) in self.bins.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let shift = (bin >> Self::PARTS).saturating_sub(1);
                let ticks = bin - (shift << Self::PARTS);
                return (((ticks + 1) << shift) - 1) as u64;
            }
        }
        self.largest
    }

    fn json(&self) -> Value {
        let ns = |ticks: u64| ticks as f64 / self.ticks_per_ns;
        json!({
            "p50": ns(self.quantile(0.5)), "p99": ns(self.quantile(0.99)), "p99.9": ns(self.quantile(0.999)),
            "p99.99": ns(self.quantile(0.9999)), "max": ns(self.largest),
        })
    }
}

/// The key of a number: a bijection that leaves no order.
fn key(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A number below `size` that visits them in no order.
fn shuffled(step: usize, size: usize) -> u64 {
    ((key(step as u64) as u128 * size as u128) >> 64) as u64
}

/// Nanoseconds of processor time of this thread.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The system writes the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Processor time for each of `count` operations, in nanoseconds.
fn ns_each(count: usize, body: impl FnOnce()) -> f64 {
    let start = cpu_ns();
    body();
    (cpu_ns() - start) / count as f64
}

/// Ticks of the clock in a nanosecond.
fn ticks_per_ns() -> f64 {
    let (start, ticks) = (Instant::now(), clock());
    while start.elapsed().as_millis() < 50 {}
    (clock() - ticks) as f64 / start.elapsed().as_nanos() as f64
}

fn resident_peak() -> i64 {
    // SAFETY: The system writes the whole structure, for which zeros are valid.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_maxrss * 1024
    }
}

fn measure<M: Map>(size: usize) -> Value {
    let scale = ticks_per_ns();
    let before = resident_peak();
    let base = CURRENT.load(Relaxed);
    let builds = INSERTS.div_ceil(size);
    let mut map = M::new();
    let mut insert_ns = Vec::new();
    for _ in 0..builds {
        map = M::new();
        insert_ns.push(ns_each(size, || {
            for number in 0..size as u64 {
                map.insert(key(number), number);
            }
        }));
    }
    insert_ns.sort_by(f64::total_cmp);
    drop(map);
    // SAFETY: The call gives unused memory back to the system, so that the next map starts as the first one did.
    unsafe { libc::malloc_trim(0) };
    PEAK.store(CURRENT.load(Relaxed), Relaxed);
    let mut inserts = Latencies::new(scale);
    let mut map = M::new();
    for build in 0..builds {
        if build > 0 {
            map = M::new();
        }
        for number in 0..size as u64 {
            inserts.record(|| map.insert(key(number), number));
        }
    }
    let peak = (PEAK.load(Relaxed) - base) as f64;
    let resident = resident_peak() - before;
    let bytes = CURRENT.load(Relaxed) - base;
    let mut found = 0;
    let hit = ns_each(LOOKUPS, || {
        for step in 0..LOOKUPS {
            found += usize::from(black_box(map.get(key(shuffled(step, size)))).is_some());
        }
    });
    let miss = ns_each(LOOKUPS, || {
        for step in 0..LOOKUPS {
            found += usize::from(black_box(map.get(key((size + step) as u64))).is_some());
        }
    });
    assert!(found == LOOKUPS || M::NAME == "no map", "keys are lost");
    // The next key depends on the value, so that lookups do not overlap.
    let chained = ns_each(LOOKUPS, || {
        let mut number = 0;
        for step in 0..LOOKUPS {
            number = map
                .get(key(shuffled(step ^ (number as usize & 1), size)))
                .unwrap_or(0);
        }
        black_box(number);
    });
    let iterate = ns_each(size, || {
        black_box(map.sum());
    });
    let mut removals = Latencies::new(scale);
    let removed = size / 10 * 9;
    for number in 0..removed as u64 {
        removals.record(|| assert!(map.remove(key(number))));
    }
    let left = (CURRENT.load(Relaxed) - base) as f64;
    let free = ns_each(size - removed, || drop(map));
    json!({
        "map": M::NAME, "entries": size,
        "insert_ns": insert_ns[insert_ns.len() / 2], "insert_latency_ns": inserts.json(),
        "hit_ns": hit, "miss_ns": miss, "chained_hit_ns": chained, "iterate_ns": iterate,
        "remove_latency_ns": removals.json(), "free_ns": free,
        "peak_bytes": peak / size as f64, "resident_peak_bytes": resident as f64 / size as f64,
        "bytes": bytes as f64 / size as f64,
        "bytes_after_removals": left / (size - removed) as f64,
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    if let [name, size] = &arguments[..]
        && let Some((_, run)) = maps::all().into_iter().find(|(known, _)| known == name)
        && let Ok(size) = size.parse()
    {
        println!("{}", run(size));
        return;
    }
    if arguments.first().is_some_and(|text| text == "merge") {
        return report::merge();
    }
    let rounds = numbers.first().copied().unwrap_or(ROUNDS);
    let sizes = if numbers.len() > 1 {
        &numbers[1..]
    } else {
        &SIZES
    };
    let program = std::env::current_exe().expect("the program has a path");
    for round in 0..rounds {
        for &size in sizes {
            let mut maps = maps::all();
            // Each map runs as often before as after any other.
            if round % 2 == 1 {
                maps.reverse();
            }
            for (name, _) in maps {
                let output = Command::new(&program)
                    .args([name, &size.to_string()])
                    .output()
                    .expect("the program runs");
                assert!(
                    output.status.success(),
                    "{name}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                report::keep(&String::from_utf8_lossy(&output.stdout));
            }
        }
    }
    report::merge();
}
