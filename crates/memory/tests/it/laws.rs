//! Properties that hold for any traffic.

use crate::common::*;
use pagewalk_memory::*;
use pagewalk_units::{Cycle, PhysAddr, Rng, rng};
use proptest::prelude::*;
use rand::RngExt;

/// A mix of a hot set, a stream and random lines; stores, fetches and walks among loads.
struct Traffic {
    random: Rng,
    stream: u64,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Traffic {
            random: rng(seed, "test.traffic"),
            stream: 0,
        }
    }

    fn next(&mut self) -> (u64, RequestKind, u64) {
        let r = &mut self.random;
        let kind = match r.random_range(0..20) {
            0..12 => RequestKind::Load,
            12..16 => RequestKind::Store,
            16..18 => RequestKind::Walk,
            18 => RequestKind::Fetch,
            _ => RequestKind::Speculative,
        };
        let (at, pc) = match r.random_range(0..8) {
            0..3 => (r.random_range(0u64..400) * 64, 1),
            3..6 => {
                self.stream += 16;
                (1 << 30 | self.stream, 2)
            }
            _ => (r.random_range(0u64..1 << 24), 3),
        };
        (at, kind, pc)
    }
}

impl Traffic {
    /// The next access of filtered warming: no engine guesses meanwhile.
    fn next_filtered(&mut self) -> (u64, RequestKind) {
        match self.next() {
            (at, RequestKind::Speculative, _) => (at, RequestKind::Load),
            (at, kind, _) => (at, kind),
        }
    }
}

/// Runs `n` accesses with at most `window` outstanding; every third depends on the one before.
fn run(m: &mut Machine, n: u64, window: usize, seed: u64) -> Cycle {
    run_from(m, n, window, seed, 0)
}

/// As [`run`], from the cycle `start` on.
fn run_from(m: &mut Machine, n: u64, window: usize, seed: u64, start: Cycle) -> Cycle {
    let mut traffic = Traffic::new(seed);
    let mut open = std::collections::VecDeque::new();
    let (mut retired, mut last) = (start, start);
    for i in 0..n {
        let (at, kind, pc) = traffic.next();
        if open.len() == window {
            retired = std::cmp::max(retired, open.pop_front().expect("full"));
        }
        let mut now = (start + i / 2).max(retired);
        if i % 3 == 0 {
            now = now.max(last);
        }
        last = m.access(at, kind, pc, now).at;
        open.push_back(last);
    }
    open.into_iter().max().expect("some")
}

fn with_prefetchers() -> PrivateSpec {
    let mut p = private();
    p.l1d.prefetcher = Some(PrefetcherSpec::IpStride {
        entries: 64,
        degree: 2,
        lookahead: 4,
    });
    p.l2.replacement = Replacement::Srrip;
    p.l2.prefetcher = Some(PrefetcherSpec::Streamer {
        pages: 64,
        degree: 2,
        lookahead: 4,
    });
    p
}

/// The private caches with the other two prefetchers.
fn with_learning_prefetchers() -> PrivateSpec {
    let mut p = private();
    p.l1d.prefetcher = Some(PrefetcherSpec::Simple {
        flows: 16,
        degree: 3,
        within_page: true,
    });
    p.l2.prefetcher = Some(PrefetcherSpec::Vldp {
        pages: 16,
        tables: 3,
        entries: 64,
        degree: 4,
    });
    p
}

#[test]
fn hits_and_misses_add_up_and_each_miss_is_one_access_below() {
    for p in [private(), with_prefetchers(), with_learning_prefetchers()] {
        let mut s = shared();
        s.dram = ddr(2);
        let mut m = machine(&p, &s);
        run(&mut m, 200_000, 60, 1);
        let tree = m.tree();
        let get = |path: &str, name: &str| tree.get(path, name).expect("a counter");
        // Requests that cannot reach a first-level cache are not reported there; engines' guesses
        // are fetched into the L2.
        let some = |path: &str, name: &str| {
            let found = tree.get(path, name);
            assert!(found.is_some() || path != "core.0.l2", "{path} {name}");
            found.unwrap_or(0)
        };
        // Every access belongs to one request, which is counted once.
        let mut traffic = Traffic::new(1);
        let kinds: Vec<RequestKind> = (0..200_000).map(|_| traffic.next().1).collect();
        for (path, name, kind) in [
            ("core.0.l1d", "loads", RequestKind::Load),
            ("core.0.l1d", "stores", RequestKind::Store),
            ("core.0.l1i", "fetches", RequestKind::Fetch),
            ("core.0.l2", "walks", RequestKind::Walk),
            (
                "core.0.l2",
                "speculative_accesses",
                RequestKind::Speculative,
            ),
        ] {
            let times = kinds.iter().filter(|&&k| k == kind).count();
            assert_eq!(get(path, name), times as u64, "{path} {name}");
        }
        for path in ["core.0.l1i", "core.0.l1d", "core.0.l2", "l3"] {
            assert_eq!(
                get(path, "hits") + get(path, "misses"),
                get(path, "accesses"),
                "{path}"
            );
            for (total, parts) in [
                ("accesses", ["loads", "stores", "fetches", "walks"]),
                (
                    "misses",
                    ["load_misses", "store_misses", "fetch_misses", "walk_misses"],
                ),
            ] {
                let sum: u64 = parts.iter().map(|n| some(path, n)).sum();
                assert_eq!(sum, get(path, total), "{path} {total}");
            }
            assert!(get(path, "merged") <= get(path, "misses"));
            for guess in ["prefetches", "speculative"] {
                let judged = some(path, &format!("{guess}_useful"))
                    + some(path, &format!("{guess}_useless"));
                assert!(
                    judged <= some(path, &format!("{guess}_issued")),
                    "{path} {guess}"
                );
                assert!(
                    some(path, &format!("{guess}_late")) <= some(path, &format!("{guess}_useful"))
                );
            }
        }
        let requests = |path: &str| get(path, "misses") - get(path, "merged");
        assert_eq!(
            get("core.0.l2", "accesses") - get("core.0.l2", "walks"),
            requests("core.0.l1i") + requests("core.0.l1d")
        );
        assert_eq!(get("l3", "accesses"), requests("core.0.l2"));
        assert_eq!(
            get("core.0.l2", "prefetch_accesses"),
            get("core.0.l1d", "prefetches_issued")
        );
        let dram = |name| get("dram.0", name) + get("dram.1", name);
        let (reads, writes) = (dram("reads"), dram("writes"));
        assert_eq!(
            dram("row_hits") + dram("row_misses") + dram("row_conflicts"),
            reads + writes
        );
        assert_eq!(dram("bus_busy_ps"), (reads + writes) * 3333);
        assert_eq!(writes, get("l3", "writebacks"));
        assert!(
            writes > 0
                && get("core.0.l1d", "merged") > 0
                && get("core.0.l2", "speculative_useless") > 0
        );
        assert!(get("core.0.l2", "evictions") <= get("core.0.l2", "fills"));
    }
}

#[test]
fn a_dirty_line_that_goes_down_is_written_over_a_copy_or_brought_in() {
    let mut m = machine(&private(), &shared());
    let mut random = rng(5, "test.writes");
    let mut now = 0;
    for i in 0..100_000u64 {
        // Constantly used lines stay in the first level while the L2 evicts them.
        let at = match random.random_range(0..2) {
            0 => (1 << 30) + (i / 20_000) * 8192 + random.random_range(0..8192),
            _ => random.random_range(0u64..1 << 22),
        };
        now = if random.random_range(0..3) == 0 {
            m.store(at, now).at
        } else {
            m.load(at, now).at
        };
    }
    let (mut written_over, mut brought_in) = (0, 0);
    for (above, cache) in [("core.0.l1d", "core.0.l2"), ("core.0.l2", "l3")] {
        let get = |name| m.get(cache, name);
        let (came, over) = (m.get(above, "writebacks"), get("updates"));
        let requests = get("misses") - get("merged");
        assert_eq!(get("fills"), requests + came - over, "{cache}");
        written_over += over;
        brought_in += came - over;
    }
    // Both cases occur.
    assert!(
        written_over > 0 && brought_in > 0,
        "{written_over} {brought_in}"
    );
}

#[test]
fn taking_hardware_away_never_helps() {
    let time = |change: &dyn Fn(&mut PrivateSpec, &mut SharedSpec)| {
        let (mut p, mut s) = (private(), shared());
        s.dram = ddr(2);
        change(&mut p, &mut s);
        run(&mut machine(&p, &s), 60_000, 60, 2) as f64
    };
    let set_rate = |s: &mut SharedSpec, rate| {
        if let DramSpec::Ddr { data_rate_mts, .. } = &mut s.dram {
            *data_rate_mts = rate;
        }
    };
    let slower = |name: &str, times: Vec<f64>| {
        for (less, more) in times.iter().zip(&times[1..]) {
            assert!(*less >= more * 0.995, "{name}: {times:?}");
        }
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(first > last, "{name} changes nothing: {times:?}");
    };
    slower(
        "l1d.mshrs",
        [1, 2, 4, 10, 40]
            .map(|n| time(&|p, _| p.l1d.mshrs = n))
            .to_vec(),
    );
    slower(
        "l2.mshrs",
        [1, 2, 4, 10, 40]
            .map(|n| time(&|p, _| p.l2.mshrs = n))
            .to_vec(),
    );
    slower(
        "l3.mshrs",
        [1, 2, 4, 10, 40]
            .map(|n| time(&|_, s| s.l3.as_mut().expect("given").mshrs = n))
            .to_vec(),
    );
    slower(
        "data rate",
        [400, 800, 1600, 3200]
            .map(|n| time(&|_, s| set_rate(s, n)))
            .to_vec(),
    );
    slower(
        "channels",
        [1, 2, 4].map(|n| time(&|_, s| s.dram = ddr(n))).to_vec(),
    );
    slower(
        "l1d.size_kb",
        [8, 16, 32, 64]
            .map(|n| time(&|p, _| p.l1d.size_kb = n))
            .to_vec(),
    );
    slower(
        "l2.size_kb",
        [64, 128, 256, 512]
            .map(|n| time(&|p, _| p.l2.size_kb = n))
            .to_vec(),
    );
    slower(
        "l3.size_kb",
        [512, 1024, 2048, 8192]
            .map(|n| time(&|_, s| s.l3.as_mut().expect("given").size_kb = n))
            .to_vec(),
    );
}

#[test]
fn warming_leaves_the_state_that_running_leaves() {
    // The same loads, far enough apart that nothing is on its way, once timed and once in
    // functional warming: every load then behaves the same.
    for p in [private(), with_prefetchers(), with_learning_prefetchers()] {
        let (mut timed, mut warmed) = (machine(&p, &shared()), machine(&p, &shared()));
        let mut traffic = Traffic::new(3);
        let mut now = 0;
        for _ in 0..100_000 {
            let (at, kind, pc) = traffic.next();
            now = timed.access(at, kind, pc, now + 1000).at;
            warmed.warm_of(0, at, kind, pc);
        }
        assert_eq!(
            warmed.get("core.0.l1d", "accesses"),
            0,
            "warming counts nothing"
        );
        now += 10_000;
        for _ in 0..20_000 {
            let (at, kind, pc) = traffic.next();
            let (a, b) = (
                timed.access(at, kind, pc, now),
                warmed.access(at, kind, pc, now),
            );
            assert_eq!(a, b);
            now = a.at + 1000;
        }
    }
}

/// During filtered functional warming an LRU stack replaces the L2's tags. Later timed requests
/// show that it leaves the same state as full warming: lines, their order, dirty lines, the state
/// of prefetchers and the usefulness of guesses.
#[test]
fn filtered_warming_leaves_the_same_state_as_warming_the_l2() {
    let prefetchers = [
        None,
        Some(PrefetcherSpec::Streamer {
            pages: 64,
            degree: 2,
            lookahead: 4,
        }),
        with_learning_prefetchers().l2.prefetcher,
    ];
    // Associativities with special code and others; numbers of sets that are no power of two; a
    // hashed index.
    for (size_kb, ways, index) in [
        (8, 1, SetIndex::Modulo),
        (12, 2, SetIndex::Modulo),
        (24, 6, SetIndex::Modulo),
        (32, 8, SetIndex::Modulo),
        (32, 8, SetIndex::Xor),
        (64, 16, SetIndex::Modulo),
        (80, 20, SetIndex::Modulo),
    ] {
        for prefetcher in prefetchers {
            let mut spec = private();
            spec.l2 = cache(size_kb, ways, L2, 20);
            spec.l2.prefetcher = prefetcher;
            spec.l2.index = index;
            let [mut filtered, mut warmed] = [(); 2].map(|()| machine(&spec, &shared()));
            for round in 0..4 {
                for m in [&mut filtered, &mut warmed] {
                    run_from(m, 3000, 20, round, round * 10_000_000);
                }
                assert!(filtered.cores[0].begin_filtered_warming());
                let mut traffic = Traffic::new(100 + round);
                for _ in 0..4000 {
                    let (at, kind) = traffic.next_filtered();
                    let (at, core, pc) = (PhysAddr(at), 0, 0);
                    let request = |kind| Request { at, kind, core, pc };
                    let (a, b) = (&mut filtered, &mut warmed);
                    if kind == RequestKind::Walk {
                        a.cores[0].warm_filtered_walk(at, &mut a.shared);
                        b.cores[0].warm(request(kind), &mut b.shared);
                        continue;
                    }
                    // Some are read and then written.
                    let kinds = [RequestKind::Load, kind, RequestKind::Store];
                    for kind in &kinds[usize::from(at.0 % 3 != 0)..] {
                        a.cores[0].warm_filtered(request(*kind), &mut a.shared);
                        b.cores[0].warm_below_first(request(*kind), &mut b.shared);
                        if at.0 % 5 != 0 {
                            break;
                        }
                        // For some, a walk comes in between, in the same set.
                        if at.0 % 2 == 0 {
                            let at = PhysAddr(at.0 ^ 1 << 20);
                            a.cores[0].warm_filtered_walk(at, &mut a.shared);
                            let kind = RequestKind::Walk;
                            let request = Request { at, kind, core, pc };
                            b.cores[0].warm(request, &mut b.shared);
                        }
                    }
                }
                filtered.cores[0].end_filtered_warming();
            }
            for m in [&mut filtered, &mut warmed] {
                run_from(m, 3000, 20, 9, 90_000_000);
            }
            let [filtered, warmed] = [filtered, warmed].map(|m| m.tree().rows);
            let apart = filtered.iter().zip(&warmed).find(|(a, b)| a != b);
            assert_eq!(apart, None, "{size_kb} KB, {ways} ways, {prefetcher:?}");
        }
    }
}

/// Otherwise requests are warmed in full.
#[test]
fn without_lru_or_with_walks_at_the_l3_nothing_is_exported() {
    let mut by_prediction = private();
    by_prediction.l2.replacement = Replacement::Srrip;
    let mut bypassed = private();
    bypassed.walks_enter = Enter::L3;
    for spec in [by_prediction, bypassed] {
        let [mut filtered, mut warmed] = [(); 2].map(|()| machine(&spec, &shared()));
        assert!(!filtered.cores[0].begin_filtered_warming());
        let mut traffic = Traffic::new(7);
        for _ in 0..4000 {
            let (at, kind) = traffic.next_filtered();
            let (at, core, pc) = (PhysAddr(at), 0, 0);
            let request = Request { at, kind, core, pc };
            let (a, b) = (&mut filtered, &mut warmed);
            if kind == RequestKind::Walk {
                a.cores[0].warm_filtered_walk(at, &mut a.shared);
                b.cores[0].warm(request, &mut b.shared);
            } else {
                a.cores[0].warm_filtered(request, &mut a.shared);
                b.cores[0].warm_below_first(request, &mut b.shared);
            }
        }
        filtered.cores[0].end_filtered_warming();
        for m in [&mut filtered, &mut warmed] {
            run(m, 3000, 20, 9);
        }
        let [filtered, warmed] = [filtered, warmed].map(|m| m.tree().rows);
        assert!(filtered == warmed);
    }
}

#[test]
fn the_same_traffic_gives_the_same_answer() {
    let mut s = shared();
    s.dram = ddr(2);
    let go = || {
        let mut m = machine(&with_prefetchers(), &s);
        (run(&mut m, 50_000, 60, 4), m.tree().rows)
    };
    assert_eq!(go(), go());
}

/// A mock of everything below the private caches; records the requests.
#[derive(Default)]
struct Recorder(Vec<Request>);

impl Below for Recorder {
    fn access(&mut self, request: Request, now: Cycle) -> Done {
        self.0.push(request);
        Done::new(now + 200, Level::Memory)
    }
    fn write_back(&mut self, _: pagewalk_units::PhysAddr, _: u8, _: Cycle) {}
    fn dropped(&mut self, _: pagewalk_units::PhysAddr, _: u8) {}
    fn delay(&self, _: pagewalk_units::PhysAddr, _: Cycle) -> Cycle {
        0
    }
    fn warm(&mut self, request: Request) {
        self.0.push(request);
    }
    fn warm_write_back(&mut self, _: pagewalk_units::PhysAddr, _: u8) {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn prefetches_stay_in_the_page_that_caused_them(
        start in 0u64..1 << 20, stride in -700i64..700, n in 1usize..200, learning: bool,
    ) {
        let spec = if learning { with_learning_prefetchers() } else { with_prefetchers() };
        let mut caches = Private::new(&spec, 0).expect("possible");
        let mut below = Recorder::default();
        let mut at = 1u64 << 30 | start;
        for i in 0..n {
            let request = Request { at: pagewalk_units::PhysAddr(at), kind: RequestKind::Load, core: 0, pc: 9 };
            caches.access(request, 1000 * i as u64, &mut below);
            for request in below.0.drain(..) {
                prop_assert_eq!(request.at.0 >> 12, at >> 12);
            }
            at = at.wrapping_add_signed(stride);
        }
    }
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let refused = |key: &str, change: &dyn Fn(&mut PrivateSpec, &mut SharedSpec)| {
        let (mut p, mut s) = (private(), shared());
        s.dram = ddr(1);
        change(&mut p, &mut s);
        let error = Private::new(&p, 0)
            .err()
            .or_else(|| Shared::new(&s, 2, 2.0).err())
            .unwrap_or_else(|| panic!("{key} was accepted"));
        assert!(error.to_string().contains(key), "{error}");
    };
    refused("l1d.ways", &|p, _| p.l1d.ways = 0);
    refused("l1i.size_kb", &|p, _| p.l1i.size_kb = 0);
    refused("l2.size_kb", &|p, _| (p.l2.size_kb, p.l2.ways) = (1, 12));
    refused("l2.mshrs", &|p, _| p.l2.mshrs = 0);
    refused("l2.latency", &|p, _| p.l2.latency = 2);
    refused("l3.latency", &|_, s| {
        s.l3.as_mut().expect("given").latency = 0
    });
    refused("remote_latency", &|_, s| s.remote_latency = 10);
    refused("l1d.prefetcher.ip_stride.degree", &|p, _| {
        p.l1d.prefetcher = Some(PrefetcherSpec::IpStride {
            entries: 1,
            degree: 0,
            lookahead: 1,
        });
    });
    refused("l2.prefetcher.streamer.lookahead", &|p, _| {
        p.l2.prefetcher = Some(PrefetcherSpec::Streamer {
            pages: 1,
            degree: 1,
            lookahead: 64,
        });
    });
    refused("l2.prefetcher.vldp.tables", &|p, _| {
        p.l2.prefetcher = Some(PrefetcherSpec::Vldp {
            pages: 1,
            tables: 5,
            entries: 1,
            degree: 1,
        });
    });
    refused("l3.prefetcher.simple.degree", &|_, s| {
        s.l3.as_mut().expect("given").prefetcher = Some(PrefetcherSpec::Simple {
            flows: 1,
            degree: 17,
            within_page: false,
        });
    });
    refused("dram.fixed.latency_ns", &|_, s| {
        s.dram = DramSpec::fixed(f64::NAN)
    });
    for bandwidth_gbs in [f64::NAN, -1.0, 1e-9, 1e9] {
        refused("dram.fixed.bandwidth_gbs", &|_, s| {
            s.dram = DramSpec::Fixed {
                latency_ns: 1.0,
                bandwidth_gbs,
            };
        });
    }
    fn ddr_with(s: &mut SharedSpec, change: impl Fn(&mut u32, &mut u32, &mut f64, &mut f64)) {
        if let DramSpec::Ddr {
            data_rate_mts,
            row_bytes,
            tcl_ns,
            tras_ns,
            ..
        } = &mut s.dram
        {
            change(data_rate_mts, row_bytes, tcl_ns, tras_ns);
        }
    }
    refused("dram.ddr.data_rate_mts", &|_, s| {
        ddr_with(s, |rate, _, _, _| *rate = 0)
    });
    refused("dram.ddr.row_bytes", &|_, s| {
        ddr_with(s, |_, row, _, _| *row = 100)
    });
    refused("dram.ddr.tcl_ns", &|_, s| {
        ddr_with(s, |_, _, tcl, _| *tcl = -1.0)
    });
    refused("dram.ddr.tras_ns", &|_, s| {
        ddr_with(s, |_, _, _, tras| *tras = 1.0)
    });
    assert!(Shared::new(&shared(), 0, 2.0).is_err());
    assert!(
        Shared::new(&shared(), 1, 0.0)
            .unwrap_err()
            .to_string()
            .contains("frequency_ghz")
    );
}
