//! Latencies and bandwidths of the memory system, in closed form.

use crate::common::*;
use pagewalk_memory::{Below, Level, PrefetcherSpec, RequestKind, SetIndex, Speculated};
use pagewalk_units::PhysAddr;

#[test]
fn a_hit_costs_the_latency_of_its_level() {
    let mut m = machine(&private(), &shared());
    let first = m.load(0x10_0000, 0);
    assert_eq!(first.level, Level::Memory);
    assert_eq!(first.at, L3 + FIXED);
    assert_eq!(m.load(0x10_0000, 1000).at, 1000 + L1);
    assert_eq!(m.load(0x10_0000, 1000).level, Level::L1);
}

#[test]
fn chains_cost_exactly_the_latency_of_their_level() {
    // Footprints (lines) that fit L1D, L2, L3 and nothing; a cycle through a
    // set-associative LRU cache that it does not fit never hits.
    for (lines, latency, level) in [
        (64, L1, Level::L1),
        (2048, L2, Level::L2),
        (16384, L3, Level::L3),
        (100_000, L3 + FIXED, Level::Memory),
    ] {
        let mut m = machine(&private(), &shared());
        let mut now = 0;
        for round in 0..3 {
            let began = now;
            for l in 0..lines {
                let done = m.load(l * 64, now);
                if round == 2 {
                    assert_eq!((done.at - now, done.level), (latency, level));
                }
                now = done.at;
            }
            if round == 2 {
                assert_eq!(now - began, lines * latency);
            }
        }
    }
}

#[test]
fn a_walk_enters_at_the_l2_and_pays_its_latency() {
    let mut m = machine(&private(), &shared());
    let done = m.access(0x5000, RequestKind::Walk, 0, 0);
    assert_eq!(done.at, L3 + FIXED);
    assert_eq!(m.access(0x5000, RequestKind::Walk, 0, 1000).at, 1000 + L2);
    assert_eq!(m.load(0x5000, 2000).at, 2000 + L2, "not in the L1D");
    assert_eq!(m.shared.delay(pagewalk_units::PhysAddr(0), 0), 0);
}

#[test]
fn a_read_without_allocation_finds_lines_and_leaves_none() {
    let mut m = machine(&private(), &shared());
    let read = |m: &mut Machine, at, now| {
        let request = pagewalk_memory::Request {
            at: PhysAddr(at),
            kind: RequestKind::Walk,
            core: 0,
            pc: 0,
        };
        m.cores[0].read_no_allocate(request, now, &mut m.shared)
    };
    assert_eq!(read(&mut m, 0x5000, 0).at, L3 + FIXED);
    let again = read(&mut m, 0x5000, 1000);
    assert_eq!((again.at, again.level), (1000 + L3, Level::L3));
    assert_eq!(
        m.access(0x5000, RequestKind::Walk, 0, 2000).level,
        Level::L3
    );
    // The walk has left the line where a read without allocation hits it.
    let found = read(&mut m, 0x5000, 3000);
    assert_eq!((found.at, found.level), (3000 + L2, Level::L2));
}

#[test]
fn a_walk_that_enters_at_the_l3_leaves_nothing_in_private_caches() {
    let spec = pagewalk_memory::PrivateSpec {
        walks_enter: pagewalk_memory::Enter::L3,
        ..private()
    };
    let mut m = machine(&spec, &shared());
    assert_eq!(m.access(0x5000, RequestKind::Walk, 0, 0).at, L3 + FIXED);
    let again = m.access(0x5000, RequestKind::Walk, 0, 1000);
    assert_eq!((again.at, again.level), (1000 + L3, Level::L3));
    assert_eq!(m.load(0x5000, 2000).at, 2000 + L3, "not in the L2");
    assert_eq!(m.access(0x5000, RequestKind::Walk, 0, 3000).at, 3000 + L3);
}

#[test]
fn a_line_that_takes_very_long_is_waited_for_to_its_end() {
    let far = pagewalk_memory::SharedSpec {
        dram: pagewalk_memory::DramSpec::fixed(100_000.0),
        ..shared()
    };
    let mut m = machine(&private(), &far);
    let first = m.load(0, 100);
    assert_eq!(first.at, 100 + L3 + 100_000);
    assert_eq!(m.load(8, 150).at, first.at);
    assert_eq!(m.load(16, 99_000).at, first.at);
}

#[test]
fn the_reads_of_a_memory_with_a_fixed_latency_take_it() {
    let mut m = machine(&private(), &shared());
    for line in 0..7 {
        m.load(line * 64, line * 1000);
    }
    m.load(0, 10_000);
    let dram = |name| m.get("dram.0", name);
    assert_eq!((dram("reads"), dram("latency_ps")), (7, 7 * FIXED * 1000));
}

/// Lines of 64 bytes cross a channel of 6.4 GB/s in 10 ns, which is 10 cycles.
#[test]
fn lines_cross_a_channel_of_a_given_bandwidth_one_after_the_other() {
    let mut limited = shared();
    limited.dram = pagewalk_memory::DramSpec::Fixed {
        latency_ns: FIXED as f64,
        bandwidth_gbs: 6.4,
    };
    let mut m = machine(&private(), &limited);
    for line in 0..8 {
        let end = L3 + 10 * (line + 1) + FIXED;
        assert_eq!(m.load(line * 64, 0).at, end, "line {line}");
    }
    // Free again: the latency and the line's own transfer.
    assert_eq!(m.load(4096, 1000).at, 1000 + L3 + 10 + FIXED);
    let dram = |name| m.get("dram.0", name);
    let waits: u64 = (0..8).map(|line| 10 * line).sum();
    assert_eq!(dram("bus_busy_ps"), 9 * 10_000);
    assert_eq!(dram("bus_wait_ps"), waits * 1000);
    assert_eq!(dram("latency_ps"), (9 * (FIXED + 10) + waits) * 1000);
}

#[test]
fn a_line_on_its_way_is_waited_for_and_requested_once() {
    let mut m = machine(&private(), &shared());
    let first = m.load(0, 100);
    let second = m.load(8, 150);
    assert_eq!((second.at, second.level), (first.at, first.level));
    assert!(first.missed && !second.missed);
    // A request from an earlier time than the first one fetches the line itself.
    assert_eq!(m.load(16, 20).at, 20 + L3 + FIXED);
    assert_eq!(m.load(24, 5000).at, 5000 + L1);
    assert_eq!(m.get("core.0.l1d", "misses"), 3);
    assert_eq!(m.get("core.0.l1d", "merged"), 2);
    assert_eq!(m.get("core.0.l2", "accesses"), 1);
    assert_eq!(m.get("dram.0", "reads"), 1);
}

#[test]
fn lines_from_the_l2_share_the_path_into_the_l1d() {
    for (bytes, cycles) in [(None, 1), (Some(64), 1), (Some(32), 2), (Some(16), 4)] {
        let mut p = private();
        (p.l1d.mshrs, p.l1d_fill_bytes) = (256, bytes);
        let mut m = machine(&p, &shared());
        // Twice the L1D, half of the L2.
        for round in 0..2 {
            for line in 0..1024 {
                m.load(line * 64, round * 1_000_000 + line * 1000);
            }
        }
        // One load a cycle.
        let last = (0..1024)
            .map(|line| m.load(line * 64, 10_000_000 + line).at)
            .max();
        assert_eq!(last, Some(10_000_000 + L2 + 1023 * cycles), "{bytes:?}");
        // A line alone arrives as without the limit.
        assert_eq!(m.load(0, 20_000_000).at, 20_000_000 + L2);
    }
}

#[test]
fn independent_misses_are_bound_by_the_mshrs() {
    // Little's law: MSHRs / latency.
    for mshrs in [1, 4, 10] {
        let mut p = private();
        p.l1d.mshrs = mshrs;
        let mut m = machine(&p, &shared());
        let n = 1000;
        let last = (0..n).map(|l| m.load(l * 64, 0).at).max();
        assert_eq!(last, Some(n / u64::from(mshrs) * (L3 + FIXED)));
    }
    // The L2's MSHRs are the limit if they are fewer.
    let mut p = private();
    p.l2.mshrs = 5;
    let mut m = machine(&p, &shared());
    let last = (0..1000).map(|l| m.load(l * 64, 0).at).max();
    assert_eq!(last, Some(1000 / 5 * (L3 + FIXED)));
}

/// A machine whose caches have MSHRs for everything.
fn wide(channels: u32) -> (pagewalk_memory::PrivateSpec, pagewalk_memory::SharedSpec) {
    let mut p = private();
    (p.l1d.mshrs, p.l2.mshrs) = (500, 500);
    let mut s = shared();
    s.l3.as_mut().expect("given").mshrs = 1000;
    s.dram = ddr(channels);
    (p, s)
}

#[test]
fn independent_misses_in_plenty_are_bound_by_the_bus() {
    for (channels, rate, bus) in [(1, 2400, 8), (2, 2400, 8), (1, 400, 8), (1, 3200, 4)] {
        let (p, mut s) = wide(channels);
        if let pagewalk_memory::DramSpec::Ddr {
            data_rate_mts,
            bus_bytes,
            ..
        } = &mut s.dram
        {
            (*data_rate_mts, *bus_bytes) = (rate, bus);
        }
        let mut m = machine(&p, &s);
        let n = 20_000u64;
        let last = (0..n).map(|l| m.load(l * 64, 0).at).max().expect("some");
        let line_ns = 64_000.0 / f64::from(bus) / f64::from(rate) / f64::from(channels);
        let error = last as f64 / (n as f64 * line_ns) - 1.0;
        assert!(error.abs() < 0.01, "{channels} x {rate}: {error}");
    }
}

#[test]
fn a_ddr_read_costs_what_its_row_costs() {
    let s = pagewalk_memory::SharedSpec {
        dram: ddr(1),
        ..shared()
    };
    let mut m = machine(&private(), &s);
    // Controller 20, line 3.333: rounded up to whole cycles.
    let rest = L3 + 24;
    assert_eq!(m.load(0, 0).at, rest + 28, "no row open");
    assert_eq!(m.load(64, 1000).at, 1000 + rest + 14, "its row open");
    // 16 banks of 8 KB rows; the next row of bank 0 is where the hash puts it.
    let conflict = 8192 * 16 + 8192;
    assert_eq!(
        m.load(conflict, 2000).at,
        2000 + rest + 42,
        "another row open"
    );
    assert_eq!(
        m.load(128, 2020).at,
        2020 + rest + 42 + (14 + 32 - 20),
        "and not closed before tRAS is over"
    );
    for (name, value) in [("row_misses", 1), ("row_hits", 1), ("row_conflicts", 2)] {
        assert_eq!(m.get("dram.0", name), value, "{name}");
    }
}

#[test]
fn an_idle_row_closes_after_its_time() {
    let mut s = shared();
    s.dram = ddr(1);
    if let pagewalk_memory::DramSpec::Ddr { keep_open_ns, .. } = &mut s.dram {
        *keep_open_ns = 120.0;
    }
    let mut m = machine(&private(), &s);
    m.load(0, 0);
    m.load(64, 140);
    m.load(128, 1000);
    assert_eq!(m.get("dram.0", "row_hits"), 1);
    assert_eq!(m.get("dram.0", "row_misses"), 2);
}

#[test]
fn delay_is_the_time_that_an_access_then_waits_for_the_bus_and_is_on_it() {
    let (p, s) = wide(1);
    let mut m = machine(&p, &s);
    let at = |line: u64| pagewalk_units::PhysAddr(line * 64);
    assert_eq!(
        m.shared.delay(at(999), 0),
        4,
        "idle: 3.3 cycles, begun ones count"
    );
    for line in 0..64 {
        m.load(line * 64, 0);
    }
    let delay = m.shared.delay(at(64), 0);
    assert!(delay > 200, "64 lines of 3.3 cycles before it: {delay}");
    let done = m.load(64 * 64, 0);
    let idle = L3 + 24 + 28; // no row open, with its 3.3 cycles on the bus
    assert!(
        done.at.abs_diff(idle + delay - 4) <= 1,
        "{} {delay}",
        done.at
    );
}

#[test]
fn a_busy_bank_is_no_delay() {
    let (p, s) = wide(1);
    let mut m = machine(&p, &s);
    let at = |line: u64| pagewalk_units::PhysAddr(line * 64);
    // Two rows of one bank, one after the other: the bus is free long before the bank.
    let conflict = 8192 * 16 + 8192;
    m.load(0, 0);
    m.load(conflict, 0);
    assert_eq!(m.shared.delay(at(2 * conflict / 64), 200), 4);
}

/// Cycles of in-order loads of 8 bytes, of which `window` may be outstanding at once.
fn stream(m: &mut Machine, loads: u64, window: usize) -> u64 {
    let mut done = std::collections::VecDeque::new();
    let mut retired = 0;
    for i in 0..loads {
        let mut now = i / 4;
        if done.len() == window {
            retired = retired.max(done.pop_front().expect("full"));
        }
        now = now.max(retired);
        done.push_back(m.load(i * 8, now).at);
    }
    done.into_iter().max().expect("some")
}

#[test]
fn a_stream_is_bound_by_mshrs_without_prefetching_and_by_the_bus_with_it() {
    let mut s = shared();
    s.dram = ddr(1);
    let lines = 470 * 64;
    let off = stream(&mut machine(&private(), &s), lines * 8, 240);
    let bus = lines as f64 * 10.0 / 3.0;
    let mshr = lines as f64 * (40.0 + 20.0 + 14.0 + 10.0 / 3.0) / 10.0;
    assert!((off as f64 / mshr - 1.0).abs() < 0.03, "{off} for {mshr}");
    for l1d in [true, false] {
        let mut p = private();
        if l1d {
            p.l1d.prefetcher = Some(PrefetcherSpec::IpStride {
                entries: 64,
                degree: 4,
                lookahead: 32,
            });
        } else {
            p.l2.prefetcher = Some(PrefetcherSpec::Streamer {
                pages: 64,
                degree: 4,
                lookahead: 32,
            });
        }
        let mut m = machine(&p, &s);
        let on = stream(&mut m, lines * 8, 240);
        assert!(on as f64 / bus >= 0.99, "no faster than the bus");
        // No prefetch fetches the first lines of a page, three of 64 with the streamer; at the L2
        // they also wait for the L1D's MSHRs.
        let most = if l1d { 1.1 } else { 1.3 };
        assert!((on as f64) < bus * most, "{on} for {bus}");
        let path = if l1d { "core.0.l1d" } else { "core.0.l2" };
        assert!(m.get(path, "prefetches_useful") > lines * 5 / 10);
        assert_eq!(
            m.get("dram.0", "reads"),
            lines,
            "nothing twice, nothing beyond"
        );
    }
}

/// Reads `lines`, far apart in time, through an L3 with this prefetcher. Returns the machine.
fn read_past(prefetcher: PrefetcherSpec, lines: impl Iterator<Item = u64>) -> Machine {
    let mut s = shared();
    s.l3.as_mut().expect("given").prefetcher = Some(prefetcher);
    let mut m = machine(&private(), &s);
    for (i, line) in lines.enumerate() {
        m.load(line * 64, i as u64 * 10_000);
    }
    m
}

#[test]
fn a_page_pattern_that_was_seen_once_costs_one_miss_a_page_with_vldp() {
    // Deltas 3, 5, 3, 5 …: they alternate.
    let pattern: Vec<u64> = (0..16).map(|i| i / 2 * 8 + i % 2 * 3).collect();
    let pages = 50;
    let lines = (0..pages).flat_map(|p| pattern.iter().map(move |l| p * 64 + l));
    let vldp = PrefetcherSpec::Vldp {
        pages: 16,
        tables: 3,
        entries: 64,
        degree: 1,
    };
    let m = read_past(vldp, lines);
    // The first page misses while its first three accesses and two deltas are new. Other pages miss
    // only their first line: the offset table predicts the second.
    assert_eq!(m.get("l3", "load_misses"), 4 + (pages - 1));
    assert_eq!(m.get("l3", "prefetches_useful"), 12 + 15 * (pages - 1));
    // One line beyond each page's last access is still in the page: 59 + 5 is not.
    assert_eq!(
        m.get("l3", "prefetches_issued"),
        m.get("l3", "prefetches_useful")
    );
    assert_eq!(m.get("dram.0", "reads"), 16 * pages);
}

#[test]
fn a_flow_that_is_none_costs_the_simple_prefetcher_as_many_reads_as_its_degree() {
    // Squares: no two consecutive distances are equal.
    let far = 1000;
    let lines = |n: u64| (1..=n).map(move |i| i * i * far);
    let n = 60;
    for (within_page, reads) in [(false, n + 2 * (n - 1)), (true, n)] {
        let simple = PrefetcherSpec::Simple {
            flows: 1,
            degree: 2,
            within_page,
        };
        let m = read_past(simple, lines(n));
        assert_eq!(
            m.get("dram.0", "reads"),
            reads,
            "within the page: {within_page}"
        );
        assert_eq!(m.get("l3", "prefetches_useful"), 0);
        assert_eq!(m.get("l3", "load_misses"), n);
    }
    // A stride is prefetched from the second access on: each first use prefetches more.
    let simple = PrefetcherSpec::Simple {
        flows: 16,
        degree: 3,
        within_page: true,
    };
    let m = read_past(simple, (0..64).map(|i| i + 640));
    assert_eq!(m.get("l3", "load_misses"), 2);
    assert_eq!(m.get("l3", "prefetches_useful"), 62);
    assert_eq!(m.get("dram.0", "reads"), 64);
}

#[test]
fn stores_that_always_miss_cost_two_lines_of_bus_each() {
    let (p, mut s) = wide(1);
    // Many banks, so that a fill and a write-back seldom use the same one.
    if let pagewalk_memory::DramSpec::Ddr { banks, .. } = &mut s.dram {
        *banks = 64;
    }
    let mut m = machine(&p, &s);
    // First the caches fill with dirty lines; then each fill evicts one.
    let (warm, n) = (60_000u64, 40_000u64);
    for l in 0..warm {
        m.warm_of(0, l * 64, RequestKind::Store, 0);
    }
    let last = (warm..warm + n)
        .map(|l| m.store(l * 64, 0).at)
        .max()
        .expect("some");
    assert_eq!(m.get("dram.0", "reads"), n);
    assert_eq!(m.get("dram.0", "writes"), n);
    let bus = 2.0 * n as f64 * 10.0 / 3.0;
    let error = last as f64 / bus - 1.0;
    assert!(error.abs() < 0.01, "{error}");
}

#[test]
fn two_cores_on_one_channel_get_half_the_bus_each() {
    let (p, s) = wide(1);
    let mut m = machine_of(2, &p, &s);
    let n = 20_000u64;
    let mut last = [0; 2];
    for l in 0..n {
        for core in 0..2u8 {
            // Each in rows and banks of its own.
            let at = u64::from(core) * ((1 << 30) + 8 * 8192) + l * 64;
            let done = m.access_of(core, at, RequestKind::Load, 0, l * 6);
            last[usize::from(core)] = done.at;
        }
    }
    let half = n as f64 * 2.0 * 10.0 / 3.0;
    for t in last {
        let error = t as f64 / half - 1.0;
        assert!(error.abs() < 0.01, "{error}");
    }
}

#[test]
fn a_right_guess_costs_the_longer_of_walk_and_fetch() {
    // A walk of 60 cycles in parallel with a fetch of 140, and a walk of 300.
    for (walk, want) in [(60, L3 + FIXED), (300, 300 + L2)] {
        let mut m = machine(&private(), &shared());
        m.access(0x1000, RequestKind::Speculative, 0, 0);
        assert_eq!(m.load(0x1000, walk).at, want);
        assert_eq!(m.get("core.0.l2", "speculative_useful"), 1);
        assert_eq!(
            m.get("core.0.l2", "speculative_late"),
            u64::from(walk == 60)
        );
    }
}

#[test]
fn an_engine_takes_a_miss_register_or_none_and_fetches_nothing_twice() {
    let mut p = private();
    p.l2.mshrs = 2;
    let mut m = machine(&p, &shared());
    let at = |line: u64| PhysAddr(line * 64);
    let guess = |m: &mut Machine, line, now| m.cores[0].speculate(at(line), now, &mut m.shared);
    let there = L3 + FIXED;
    assert_eq!(guess(&mut m, 1, 0), Speculated::Fetched(there));
    assert_eq!(guess(&mut m, 1, 5), Speculated::UnderWay(there));
    assert_eq!(guess(&mut m, 2, 6), Speculated::Fetched(6 + there));
    assert_eq!(guess(&mut m, 3, 7), Speculated::Dropped);
    assert_eq!(guess(&mut m, 1, there), Speculated::Present);
    assert_eq!(guess(&mut m, 3, there), Speculated::Fetched(2 * there));
    // A line that a load has on its way, later in the first level.
    let loaded = m.load(4 * 64, 1000).at;
    assert_eq!(guess(&mut m, 4, 1001), Speculated::UnderWay(loaded));
    assert_eq!(guess(&mut m, 4, loaded), Speculated::Present);
    assert_eq!(m.get("core.0.l2", "speculative_issued"), 3);
    assert_eq!(m.get("dram.0", "reads"), 4);
}

#[test]
fn a_guess_that_goes_unused_is_useless_even_if_it_never_arrived() {
    let mut m = machine(&private(), &shared());
    m.access(0, RequestKind::Speculative, 0, 0);
    // 512 sets of 8 ways: eight more in the same set, before the guess is ready.
    for way in 1..=8 {
        m.access(way * 512 * 64, RequestKind::Walk, 0, way);
    }
    assert_eq!(m.get("core.0.l2", "speculative_issued"), 1);
    assert_eq!(m.get("core.0.l2", "speculative_useless"), 1);
    assert_eq!(m.load(0, 20).level, Level::Memory, "on its way into the L3");
}

#[test]
fn what_another_core_wrote_comes_from_there() {
    let mut m = machine_of(3, &private(), &shared());
    let remote = 60;
    m.access_of(0, 0, RequestKind::Load, 0, 0);
    m.access_of(1, 0, RequestKind::Load, 0, 1000);
    let write = m.access_of(0, 0, RequestKind::Store, 0, 2000);
    assert_eq!(
        write.at,
        2000 + remote,
        "the other reader has to give it up"
    );
    assert_eq!(
        m.access_of(0, 0, RequestKind::Store, 0, 3000).at,
        3000 + L1,
        "its own now"
    );
    let read = m.access_of(1, 0, RequestKind::Load, 0, 4000);
    assert_eq!((read.at, read.level), (4000 + remote, Level::Remote));
    let third = m.access_of(2, 0, RequestKind::Load, 0, 5000);
    assert_eq!(
        (third.at, third.level),
        (5000 + L3, Level::L3),
        "clean by then"
    );
    assert_eq!(m.get("l3.directory", "remote_hits"), 1);
    assert_eq!(m.get("l3.directory", "invalidations_sent"), 1);
    m.access_of(2, 0, RequestKind::Store, 0, 6000);
    assert_eq!(m.get("l3.directory", "invalidations_sent"), 3);
    assert_eq!(
        m.access_of(0, 0, RequestKind::Load, 0, 7000).level,
        Level::Remote
    );
    assert_eq!(m.get("core.0.l1d", "invalidated"), 1);
}

#[test]
fn a_line_that_two_cores_write_in_turns_is_handed_over_each_time() {
    let mut m = machine_of(2, &private(), &shared());
    m.access_of(0, 0, RequestKind::Store, 0, 0);
    let mut last = 1000;
    for i in 0..100u8 {
        // Both request at once; the second waits until the first has the line.
        let done = m.access_of(1 - i % 2, 0, RequestKind::Store, 0, 1000);
        assert_eq!(done.at, last + 60);
        last = done.at;
    }
}

#[test]
fn stores_to_owned_lines_request_nothing() {
    let mut m = machine_of(2, &private(), &shared());
    m.access_of(0, 0, RequestKind::Load, 0, 0);
    assert_eq!(m.access_of(0, 0, RequestKind::Store, 0, 1000).at, 1000 + L1);
    assert_eq!(m.get("l3.directory", "invalidations_sent"), 0);
}

#[test]
fn a_line_that_guesses_take_from_the_l3_stays_there() {
    // Caches of one set, of 16 and 32 lines; line 0 is guessed between others that are loaded.
    let (mut p, mut s) = (private(), shared());
    (p.l1d, p.l2) = (cache(1, 16, L1, 8), cache(1, 16, L2, 20));
    s.l3 = Some(cache(2, 32, L3, 64));
    let mut m = machine(&p, &s);
    m.load(0, 0);
    let mut now = 0;
    for round in 1..=8 {
        // More lines than the L2 holds, fewer than the L3: line 0 is evicted from the L2 only.
        for line in 0..20 {
            now += 1000;
            m.load((round * 20 + line) * 64, now);
        }
        now += 1000;
        let guessed = m.cores[0].speculate(PhysAddr(0), now, &mut m.shared);
        assert_eq!(guessed, Speculated::Fetched(now + L3), "round {round}");
    }
}

/// Lines at a distance that is a multiple of all sets share one set. With a hashed index they share
/// an eighth of the sets, and fit them exactly.
#[test]
fn lines_at_a_power_of_two_fill_an_eighth_of_hashed_sets() {
    let (sets, ways) = (512, 8);
    for (index, shared_sets) in [(SetIndex::Modulo, 1), (SetIndex::Xor, sets / 8)] {
        let mut p = private();
        p.l2.index = index;
        for shift in [0, 1, 4] {
            let stride = (sets * 64) << shift;
            let last_round = |lines: u64| {
                let mut m = machine(&p, &shared());
                let mut levels = vec![];
                for load in 0..3 * lines {
                    levels.push(m.load(load % lines * stride, load * 1000).level);
                }
                levels.split_off(2 * lines as usize)
            };
            let fit = last_round(shared_sets * ways);
            assert!(fit.iter().all(|&l| l <= Level::L2), "{index:?}: {fit:?}");
            // Twice as many fill each set twice: LRU keeps none of them.
            let thrash = last_round(2 * shared_sets * ways);
            assert!(thrash.iter().all(|&l| l > Level::L2), "{index:?}");
        }
    }
}

/// Half of each pair of loads reads `row`, the other half the next one of the same bank. With a cap
/// of `W` hits that overtake, a row serves 2 W + 1 loads each time that it is opened: `W` while the
/// other one is in use, `W` ahead of its next activation, and the one that opens it.
#[test]
fn two_streams_in_one_bank_pay_an_activation_for_each_cap() {
    for cap in [0, 1, 4, 16] {
        let (p, mut s) = wide(1);
        s.dram = ddr(1);
        if let pagewalk_memory::DramSpec::Ddr { row_hit_cap, .. } = &mut s.dram {
            *row_hit_cap = cap;
        }
        let mut m = machine(&p, &s);
        // 16 banks of 8 KB rows; the next row of bank 0 is where the hash puts it.
        let other = 8192 * 16 + 8192;
        let pairs = 128;
        for line in 0..pairs {
            m.load(line * 64, 0);
            m.load(other + line * 64, 0);
        }
        let opened = m.get("dram.0", "row_conflicts") + m.get("dram.0", "row_misses");
        let exact = 2.0 * pairs as f64 / f64::from(2 * cap + 1);
        let error = opened as f64 - exact;
        assert!(error.abs() <= 2.0, "cap {cap}: {opened} for {exact}");
    }
}

/// A row is open until the activation of another one begins, not until that was asked for.
#[test]
fn a_row_is_hit_until_its_bank_begins_to_close_it() {
    let (p, mut s) = wide(1);
    if let pagewalk_memory::DramSpec::Ddr { row_hit_cap, .. } = &mut s.dram {
        *row_hit_cap = 4;
    }
    let other = 8192 * 16 + 8192;
    // The row was activated at 100 + L3. The other one waits until tRAS, 32 ns, is over.
    for (late, hits) in [(31, 1), (33, 0)] {
        let mut m = machine(&p, &s);
        m.load(0, 100);
        let conflict = m.load(other, 110);
        assert_eq!(conflict.at, 100 + L3 + 32 + 14 + 14 + 14 + 24);
        m.load(64, 100 + late);
        assert_eq!(m.get("dram.0", "row_hits"), hits, "{late} ns later");
    }
}
