//! Hierarchies with a data cache in front of the L1D, a private third level and a shared fourth.

use crate::common::*;
use pagewalk_memory::*;
use pagewalk_units::{Cycle, FlushKind, PhysAddr, PrefetchHint, rng};
use rand::RngExt;

const L0: Cycle = 2;
const OWN_L3: Cycle = 25;
const L4: Cycle = 60;

/// Caches of 4, 32, 256 KB and 1 MB for data, all of one core.
fn deep() -> PrivateSpec {
    PrivateSpec {
        l0d: Some(cache(4, 4, L0, 6)),
        l3: Some(cache(1024, 16, OWN_L3, 32)),
        ..private()
    }
}

/// An L4 of 4 MB behind private third levels.
fn side() -> SharedSpec {
    SharedSpec {
        l3: None,
        l4: Some(cache(4096, 16, L4, 64)),
        remote_latency: 80,
        background: None,
        ..shared()
    }
}

/// Two shared levels.
fn two_shared() -> SharedSpec {
    SharedSpec {
        l4: Some(cache(4096, 16, L4, 64)),
        ..shared()
    }
}

fn request(at: u64, kind: RequestKind) -> Request {
    let (at, core, pc) = (PhysAddr(at), 0, 0);
    Request { at, kind, core, pc }
}

#[test]
fn a_chain_that_fits_a_level_has_its_latency() {
    let all = [
        (32, L0, Level::L0),
        (256, L1, Level::L1),
        (2048, L2, Level::L2),
        (8192, OWN_L3, Level::L3),
        (32_768, L4, Level::L4),
        (100_000, L4 + FIXED, Level::Memory),
    ];
    let shared_only = [
        (256, L1, Level::L1),
        (16_384, L3, Level::L3),
        (50_000, L4, Level::L4),
        (100_000, L4 + FIXED, Level::Memory),
    ];
    for (spec, below, cases) in [
        (deep(), side(), &all[..]),
        (private(), two_shared(), &shared_only),
    ] {
        for &(lines, latency, level) in cases {
            let mut m = machine(&spec, &below);
            let mut now = 0;
            for round in 0..3 {
                for line in 0..lines {
                    let done = m.load(line * 64, now);
                    if round == 2 {
                        assert_eq!(
                            (done.at - now, done.level),
                            (latency, level),
                            "{lines} lines"
                        );
                    }
                    now = done.at;
                }
            }
        }
    }
}

#[test]
fn fetches_pass_by_the_levels_of_data() {
    let mut m = machine(&deep(), &side());
    assert_eq!(m.access(0x9000, RequestKind::Fetch, 0, 0).at, L4 + FIXED);
    let again = m.access(0x9000, RequestKind::Fetch, 0, 1000);
    assert_eq!((again.at, again.level), (1000 + L1, Level::L1));
    assert_eq!(m.load(0x9000, 2000).level, Level::L2);
    for level in ["l0d", "l1d"] {
        let path = format!("core.0.{level}");
        assert_eq!(m.get(&path, "fills"), 1, "{path}");
        assert_eq!(m.tree().get(&path, "fetches"), None, "{path}");
    }
}

#[test]
fn walks_enter_at_any_private_level_and_at_the_first_shared_one() {
    let latencies = [
        (Enter::L0d, L0),
        (Enter::L1d, L1),
        (Enter::L2, L2),
        (Enter::L3, OWN_L3),
        (Enter::L4, L4),
    ];
    for (walks_enter, latency) in latencies {
        let spec = PrivateSpec {
            walks_enter,
            ..deep()
        };
        for (cores, below) in [(1, side()), (2, side())] {
            let mut m = machine_of(cores, &spec, &below);
            let first = m.access(0x5000, RequestKind::Walk, 0, 0);
            assert_eq!(first.at, L4 + FIXED);
            let again = m.access(0x5000, RequestKind::Walk, 0, 1000);
            assert_eq!(again.at, 1000 + latency, "{walks_enter:?}");
            assert_eq!(again.level, walks_enter.level());
            // Levels in front have no copy.
            assert_eq!(m.load(0x5000, 2000).at, 2000 + latency);
            // A walker's write leaves the line dirty where walks enter.
            let write = request(0x7000, RequestKind::Walk);
            let done = m.cores[0].update(write, 3000, &mut m.shared);
            assert_eq!(done.at, 3000 + L4 + FIXED);
            let name = walks_enter.level().name();
            let path = match walks_enter {
                Enter::L4 => name.to_owned(),
                _ => format!("core.0.{name}"),
            };
            assert_eq!(m.get(&path, "walks"), 3, "{path}");
        }
    }
}

#[test]
fn a_guess_fills_the_l2_and_passes_the_levels_behind() {
    let mut m = machine(&deep(), &side());
    let Machine { cores, shared } = &mut m;
    let guess = cores[0].speculate(PhysAddr(0x4000), 0, shared);
    assert_eq!(guess, Speculated::Fetched(L4 + FIXED));
    let found = m.load(0x4000, 1000);
    assert_eq!((found.at, found.level), (1000 + L2, Level::L2));
    assert_eq!(m.get("core.0.l2", "speculative_useful"), 1);
    // The L2 loses the line; the third level keeps it.
    for line in 1..20_000u64 {
        m.load((1 << 24) + line % 6000 * 64, line * 1000);
    }
    let Machine { cores, shared } = &mut m;
    let again = cores[0].speculate(PhysAddr(0x4000), 1 << 30, shared);
    assert_eq!(again, Speculated::Fetched((1 << 30) + OWN_L3));
    assert_eq!(m.get("core.0.l3", "speculative_accesses"), 2);
    assert_eq!(m.get("core.0.l3", "speculative_misses"), 1);
}

#[test]
fn software_prefetches_fill_the_levels_that_their_hint_names() {
    let filled = |hint| {
        let mut m = machine(&deep(), &side());
        let one = request(0x4000, RequestKind::SoftwarePrefetch);
        let Machine { cores, shared } = &mut m;
        let outcome = cores[0].software_prefetch(one, hint, 0, shared);
        assert_eq!(outcome, SoftwarePrefetched::Requested);
        let again = cores[0].software_prefetch(one, hint, 1000, shared);
        assert_eq!(again, SoftwarePrefetched::Present, "{hint:?}");
        ["core.0.l0d", "core.0.l1d", "core.0.l2", "core.0.l3", "l4"].map(|at| m.get(at, "fills"))
    };
    assert_eq!(filled(PrefetchHint::T0), [1, 1, 1, 1, 1]);
    assert_eq!(filled(PrefetchHint::Nta), [1, 0, 0, 0, 1]);
    assert_eq!(filled(PrefetchHint::T1), [0, 0, 1, 1, 1]);
    assert_eq!(filled(PrefetchHint::T2), [0, 0, 0, 1, 1]);
}

#[test]
fn flushes_and_stores_past_the_caches_leave_no_copy_at_any_level() {
    for past in [false, true] {
        let mut m = machine(&deep(), &side());
        // A dirty copy at each level: newer ones push the older ones down.
        m.store(0x4000, 0);
        let now = 10_000;
        let done = if past {
            m.store_past_caches(0x4000, 64, now);
            now + 5000
        } else {
            let done = m.flush_of(0, 0x4000, FlushKind::Ordered, now);
            assert!(done >= now + L4, "the last level was asked");
            done
        };
        assert_eq!(m.get("dram.0", "writes"), 1 + u64::from(past));
        let found = m.load(0x4000, done);
        assert_eq!((found.at, found.level), (done + L4 + FIXED, Level::Memory));
    }
}

/// A mix of a hot set, a stream and random lines.
fn traffic(steps: u64, mut act: impl FnMut(u64, RequestKind)) {
    let mut random = rng(3, "test.levels");
    for step in 0..steps {
        let kind = match random.random_range(0..16) {
            0..9 => RequestKind::Load,
            9..13 => RequestKind::Store,
            13..15 => RequestKind::Walk,
            _ => RequestKind::Fetch,
        };
        let at = match random.random_range(0..8) {
            0..3 => random.random_range(0u64..3000) * 64,
            3..5 => (1 << 30) + step * 16,
            5 => 1 << 28 | random.random_range(0u64..1 << 18),
            _ => random.random_range(0u64..1 << 23),
        };
        act(at, kind);
    }
}

#[test]
fn hits_and_misses_add_up_and_each_miss_is_one_access_of_the_next_level() {
    let mut spec = deep();
    spec.l0d.as_mut().expect("given").prefetcher = Some(PrefetcherSpec::IpStride {
        entries: 16,
        degree: 2,
        lookahead: 4,
    });
    let streams = || {
        Some(PrefetcherSpec::Streamer {
            pages: 16,
            degree: 2,
            lookahead: 4,
        })
    };
    spec.l1d.prefetcher = streams();
    spec.l3.as_mut().expect("given").prefetcher = streams();
    let mut below = side();
    below.l4.as_mut().expect("given").prefetcher = streams();
    let mut m = machine(&spec, &below);
    let mut now = 0;
    traffic(200_000, |at, kind| {
        let done = m.access(at, kind, at >> 28, now);
        now += (done.at - now) / 4;
    });
    let tree = m.tree();
    let get = |path: &str, name: &str| tree.get(path, name).unwrap_or(0);
    let path = ["core.0.l0d", "core.0.l1d", "core.0.l2", "core.0.l3", "l4"];
    for at in path {
        assert_eq!(
            get(at, "hits") + get(at, "misses"),
            get(at, "accesses"),
            "{at}"
        );
        assert!(
            get(at, "misses") > get(at, "merged") && get(at, "merged") > 0,
            "{at}"
        );
        let judged = get(at, "prefetches_useful") + get(at, "prefetches_useless");
        assert!(judged <= get(at, "prefetches_issued"), "{at}");
        assert!(judged > 0 || at == "core.0.l2", "{at}");
    }
    let requests = |at: &str| get(at, "misses") - get(at, "merged");
    for (near, far) in path.iter().zip(&path[1..]) {
        let entered = match *far {
            "core.0.l2" => get("core.0.l2", "walks") + requests("core.0.l1i"),
            _ => 0,
        };
        assert_eq!(
            get(far, "accesses"),
            requests(near) + entered,
            "{near} {far}"
        );
        // Prefetches of a level pass all behind it that lack the line.
        let passed = match get(near, "prefetch_accesses") {
            0 => 0,
            _ => get(near, "prefetch_misses"),
        };
        let asked = get(near, "prefetches_issued");
        assert!(
            get(far, "prefetch_accesses") <= passed + asked,
            "{near} {far}"
        );
        assert!(get(far, "prefetch_accesses") >= asked, "{near} {far}");
    }
    // A fill is a request or a dirty line without a copy.
    for (near, far) in path.iter().zip(&path[1..]) {
        let came = get(near, "writebacks") - get(far, "updates");
        let guessed = get(far, "prefetches_issued");
        let fetched = get(far, "fills") - came - guessed;
        assert!(fetched >= requests(far), "{far}");
    }
    assert_eq!(get("dram.0", "writes"), get("l4", "writebacks"));
    assert!(get("dram.0", "writes") > 0);
}

/// The same hierarchy with smaller caches, which soon evict dirty lines to memory.
fn small(mut private: PrivateSpec, mut shared: SharedSpec) -> (PrivateSpec, SharedSpec) {
    (private.l1i.size_kb, private.l1d.size_kb, private.l2.size_kb) = (8, 8, 32);
    for (cache, size_kb) in [
        (&mut private.l3, 96),
        (&mut shared.l3, 96),
        (&mut shared.l4, 256),
    ] {
        if let Some(cache) = cache {
            (cache.size_kb, cache.ways) = (size_kb, 8);
        }
    }
    (private, shared)
}

/// Functional warming leaves the lines, their order and the dirty ones as timed execution does, if
/// no request overlaps with another.
#[test]
fn warming_leaves_what_timed_requests_leave() {
    for (cores, spec, below) in [
        (1, deep(), side()),
        (1, private(), two_shared()),
        (2, deep(), side()),
        (2, private(), two_shared()),
    ] {
        let (spec, below) = small(spec, below);
        let [mut timed, mut warmed] = [(); 2].map(|()| machine_of(cores, &spec, &below));
        let (mut now, mut core) = (0, 0);
        traffic(60_000, |at, kind| {
            core = (core + 1) % cores;
            timed.access_of(core, at, kind, 0, now);
            warmed.warm_of(core, at, kind, 0);
            now += 10_000;
        });
        let before = ["writebacks", "fills"].map(|name| timed.tree().sum(name, |_| true));
        let written = [&timed, &warmed].map(|m| m.get("dram.0", "writes"));
        assert!(written[0] > 0 && written[1] == 0, "warming counts nothing");
        // From here on both are timed: they must serve each request at the same level, and evict
        // the same dirty lines.
        let mut served = [0; 7];
        traffic(60_000, |at, kind| {
            core = (core + 1) % cores;
            let [a, b] =
                [&mut timed, &mut warmed].map(|m| m.access_of(core, at ^ 64, kind, 0, now));
            assert_eq!(a, b);
            served[a.level as usize] += 1;
            now += 10_000;
        });
        for (n, name) in ["writebacks", "fills"].into_iter().enumerate() {
            let [a, b] = [&timed, &warmed].map(|m| m.tree().sum(name, |_| true));
            assert_eq!(a - before[n], b, "{name}");
        }
        let given = spec.data_levels().chain(below.levels());
        for (level, _) in given {
            assert!(
                served[level as usize] > 0,
                "nothing was served by {level:?}"
            );
        }
    }
}

/// With several levels behind the first, filtered warming warms each of them in full.
#[test]
fn filtered_warming_of_several_levels_is_functional_warming_below_the_first() {
    let [mut filtered, mut warmed] = [(); 2].map(|()| machine(&deep(), &side()));
    assert!(!filtered.cores[0].begin_filtered_warming());
    traffic(20_000, |at, kind| {
        let (a, b) = (&mut filtered, &mut warmed);
        if kind == RequestKind::Walk {
            a.cores[0].warm_filtered_walk(PhysAddr(at), &mut a.shared);
            b.cores[0].warm(request(at, kind), &mut b.shared);
        } else {
            a.cores[0].warm_filtered(request(at, kind), &mut a.shared);
            b.cores[0].warm_below_first(request(at, kind), &mut b.shared);
        }
    });
    filtered.cores[0].end_filtered_warming();
    let mut now = 0;
    let mut served = [0; 7];
    traffic(20_000, |at, kind| {
        let [a, b] = [&mut filtered, &mut warmed].map(|m| m.access(at, kind, 0, now));
        assert_eq!(a, b);
        served[a.level as usize] += 1;
        now += 1000;
    });
    assert!(served[Level::L1 as usize] > 0 && served[Level::L3 as usize] > 0);
}

#[test]
fn the_fill_port_lies_between_the_l2_and_the_l1d() {
    let mut spec = deep();
    spec.l1d_fill_bytes = Some(8);
    let mut m = machine(&spec, &side());
    let lines = |n: u64| (0..n).map(|l| l * 64);
    let mut now = 0;
    for at in lines(256) {
        now = m.load(at, now).at;
    }
    // From the L1D into the L0 lines do not wait for the port.
    let independent = |m: &mut Machine, at: u64, now| m.load(at, now).at - now;
    now += 1000;
    assert!(lines(4).all(|at| independent(&mut m, at, now) == L1));
    for at in lines(2048) {
        now = m.load(at, now).at;
    }
    now += 1000;
    let all: Vec<Cycle> = lines(4).map(|at| independent(&mut m, at, now)).collect();
    assert_eq!(all, [L2, L2 + 8, L2 + 16, L2 + 24]);
}

#[test]
fn levels_that_are_no_hierarchy_are_refused_with_a_remedy() {
    let refused = |private: PrivateSpec, shared: SharedSpec, words: &[&str]| {
        let found = private
            .check()
            .and_then(|()| check_levels(&private, &shared))
            .and_then(|()| shared.check(2));
        let error = found.expect_err("an error").to_string();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    };
    refused(deep(), shared(), &["memory.l3", "caches.l3", "memory.l4"]);
    let none = SharedSpec {
        l3: None,
        ..shared()
    };
    refused(private(), none.clone(), &["memory.l3", "missing"]);
    refused(deep(), none, &["memory.l4", "missing"]);
    let slow = PrivateSpec {
        l3: Some(cache(1024, 16, L4 + 1, 32)),
        ..deep()
    };
    refused(slow, side(), &["memory.l4.latency", "caches.l3.latency"]);
    let slow = PrivateSpec {
        l0d: Some(cache(4, 4, L1 + 1, 6)),
        ..deep()
    };
    refused(slow, side(), &["caches.l1d.latency", "caches.l0d.latency"]);
    let mut near = two_shared();
    near.l4.as_mut().expect("given").latency = L3 - 1;
    refused(private(), near, &["memory.l4.latency", "memory.l3.latency"]);
    for (walks_enter, spec) in [(Enter::L0d, private()), (Enter::L4, private())] {
        let spec = PrivateSpec {
            walks_enter,
            ..spec
        };
        let expected = ["caches.walks_enter", "\"l1d\", \"l2\", \"l3\""];
        refused(spec, two_shared(), &expected);
    }
}
