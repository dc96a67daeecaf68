//! Flushes and non-temporal stores, in closed form.

use crate::common::*;
use pagewalk_memory::{DramSpec, Level, RequestKind, SharedSpec};
use pagewalk_units::FlushKind;

const KINDS: [FlushKind; 3] = [
    FlushKind::Ordered,
    FlushKind::Unordered,
    FlushKind::WriteBack,
];

fn dram(m: &Machine, name: &str) -> u64 {
    m.get("dram.0", name)
}

#[test]
fn ten_rounds_of_flush_and_reload_of_100_lines_miss_1000_times() {
    for kind in KINDS {
        let mut m = machine(&private(), &shared());
        let mut now = 0;
        for _ in 0..10 {
            for line in 0..100 {
                now = m.flush_of(0, line * 64, kind, now);
            }
            for line in 0..100 {
                now = m.load(line * 64, now).at;
            }
        }
        // A clean line stays with clwb.
        let missed = if kind == FlushKind::WriteBack {
            100
        } else {
            1000
        };
        for cache in ["core.0.l1d", "core.0.l2", "l3"] {
            assert_eq!(m.get(cache, "misses"), missed, "{cache} {kind:?}");
        }
        assert_eq!((dram(&m, "reads"), dram(&m, "writes")), (missed, 0));
    }
}

#[test]
fn dirty_lines_of_any_level_are_written_once() {
    // More lines than the L2 has: some are dirty in each level.
    for kind in KINDS {
        let mut m = machine(&private(), &shared());
        for line in 0..8192 {
            m.store(line * 64, line * 1000);
        }
        assert_eq!(dram(&m, "writes"), 0);
        for round in 1..3 {
            for line in 0..8192 {
                m.flush_of(0, line * 64, kind, round * 100_000_000 + line * 1000);
            }
            assert_eq!(dram(&m, "writes"), 8192, "{kind:?}");
        }
        let again = m.load(8191 * 64, 1_000_000_000);
        let stays = kind == FlushKind::WriteBack;
        let level = if stays { Level::L1 } else { Level::Memory };
        assert_eq!(again.level, level, "{kind:?}");
        // A store makes the line dirty again.
        m.store(8191 * 64, 1_000_001_000);
        m.flush_of(0, 8191 * 64, kind, 1_000_002_000);
        assert_eq!(dram(&m, "writes"), 8193);
    }
}

#[test]
fn a_flush_takes_the_way_to_the_memory_if_the_line_is_dirty() {
    let mut m = machine(&private(), &shared());
    m.store(0, 0);
    m.load(64, 0);
    for (line, latency) in [(0, L3 + FIXED), (1, L3), (2, L3)] {
        let done = m.flush_of(0, line * 64, FlushKind::Ordered, 1000);
        assert_eq!(done, 1000 + latency, "line {line}");
    }
    // A line on its way arrives first.
    let ready = m.load(0, 5000).at;
    assert_eq!(m.flush_of(0, 0, FlushKind::Ordered, 5001), ready + L3);
}

#[test]
fn flushes_at_once_are_bound_by_the_mshrs() {
    let mut m = machine(&private(), &shared());
    let last = (0..1000).map(|line| m.flush_of(0, line * 64, FlushKind::Unordered, 0));
    assert_eq!(last.max(), Some(1000 / 10 * L3));
}

#[test]
fn flushes_reach_the_caches_of_other_cores() {
    for kind in KINDS {
        let stays = kind == FlushKind::WriteBack;
        // Dirty in another core.
        let mut m = machine_of(2, &private(), &shared());
        m.access_of(1, 0, RequestKind::Store, 0, 0);
        let done = m.flush_of(0, 0, kind, 1000);
        assert_eq!(done, 1000 + shared().remote_latency + FIXED);
        assert_eq!(dram(&m, "writes"), 1);
        let again = m.access_of(1, 0, RequestKind::Load, 0, 2000).level;
        assert_eq!(again, if stays { Level::L1 } else { Level::Memory });
        // A later store owns the line anew.
        m.access_of(1, 0, RequestKind::Store, 0, 3000);
        m.flush_of(0, 0, kind, 4000);
        assert_eq!(dram(&m, "writes"), 2, "{kind:?}");
        // Clean in both.
        let mut m = machine_of(2, &private(), &shared());
        for core in 0..2 {
            m.access_of(core, 0, RequestKind::Load, 0, u64::from(core) * 500);
        }
        m.flush_of(0, 0, kind, 1000);
        for core in 0..2 {
            let at = 2000 + u64::from(core) * 500;
            let level = m.access_of(core, 0, RequestKind::Load, 0, at).level;
            let expected = match (stays, core) {
                (true, _) => Level::L1,
                (false, 0) => Level::Memory,
                (false, _) => Level::L3,
            };
            assert_eq!(level, expected, "{kind:?}, core {core}");
        }
        assert_eq!(dram(&m, "writes"), 0);
    }
}

#[test]
fn a_non_temporal_memset_reads_nothing_and_writes_each_line_once() {
    for bytes in [4, 8, 16, 32, 64] {
        let mut m = machine(&private(), &shared());
        let mut now = 0;
        for at in (0..1000 * 64).step_by(usize::from(bytes)) {
            now = m.store_past_caches(at, bytes, now);
        }
        assert_eq!((dram(&m, "reads"), dram(&m, "writes")), (0, 1000));
        let counts = m.cores[0].write_combining();
        assert_eq!((counts.full, counts.partial), (1000, 0));
        assert_eq!(counts.stores, 64_000 / u64::from(bytes));
        assert_eq!(m.load(0, now + 1000).level, Level::Memory);
    }
}

#[test]
fn full_buffers_are_bound_by_their_number() {
    // Little's law, as for MSHRs.
    for buffers in [1, 4, 10] {
        let mut p = private();
        p.write_combining_buffers = buffers;
        let mut m = machine(&p, &shared());
        let mut now = 0;
        for line in 0..1000 {
            now = m.store_past_caches(line * 64, 64, now);
        }
        let rounds = 1000 / u64::from(buffers);
        let done = m.cores[0].drain_write_combining(now, &mut m.shared);
        assert_eq!(done, rounds * (L3 + FIXED), "{buffers} buffers");
    }
}

#[test]
fn a_buffer_that_is_not_full_costs_a_write_for_each_8_bytes() {
    let mut m = machine(&private(), &shared());
    // Bytes 12 to 35 are in four words of 8.
    m.store_past_caches(12, 4, 0);
    m.store_past_caches(16, 16, 1);
    m.store_past_caches(32, 4, 2);
    assert_eq!(dram(&m, "writes"), 0);
    m.cores[0].drain_write_combining(100, &mut m.shared);
    assert_eq!((dram(&m, "reads"), dram(&m, "writes")), (0, 4));
    // Five streams and four buffers: each store needs the buffer of another line.
    let mut m = machine(&private(), &shared());
    for round in 0..4 {
        for stream in 0..5 {
            let now = 10_000 * (5 * round + stream);
            m.store_past_caches(4096 * stream + 16 * round, 16, now);
        }
    }
    m.cores[0].drain_write_combining(1_000_000, &mut m.shared);
    let counts = m.cores[0].write_combining();
    assert_eq!(
        (counts.full, counts.partial, counts.partial_writes),
        (0, 20, 40)
    );
    assert_eq!(dram(&m, "writes"), 40);
}

#[test]
fn a_non_temporal_store_evicts_the_line_and_a_load_waits_for_its_buffer() {
    let mut m = machine(&private(), &shared());
    m.store(0, 0);
    m.store_past_caches(0, 16, 1000);
    // The dirty line.
    assert_eq!(dram(&m, "writes"), 1);
    let loaded = m.load(32, 2000);
    assert_eq!(loaded.level, Level::Memory);
    assert_eq!(loaded.at, 2000 + 2 * (L3 + FIXED));
    assert_eq!(dram(&m, "writes"), 1 + 2);
    m.cores[0].drain_write_combining(9000, &mut m.shared);
    assert_eq!(dram(&m, "writes"), 1 + 2, "nothing is left");
}

#[test]
fn a_copy_moves_two_thirds_with_non_temporal_stores() {
    let small = SharedSpec {
        l3: Some(cache(256, 16, L3, 64)),
        l4: None,
        dram: DramSpec::fixed(100.0),
        ..shared()
    };
    let lines = 20_000;
    let (from, to) = (0, 1 << 30);
    for past in [false, true] {
        let mut m = machine(&private(), &small);
        for line in 0..lines {
            let now = line * 1000;
            m.load(from + line * 64, now);
            if past {
                m.store_past_caches(to + line * 64, 64, now + 500);
            } else {
                m.store(to + line * 64, now + 500);
            }
        }
        for line in 0..lines {
            m.flush_of(0, to + line * 64, FlushKind::Ordered, (lines + line) * 1000);
        }
        let reads = if past { lines } else { 2 * lines };
        assert_eq!((dram(&m, "reads"), dram(&m, "writes")), (reads, lines));
    }
}

#[test]
fn functional_warming_leaves_the_same_contents() {
    for kind in KINDS {
        let mut m = machine(&private(), &shared());
        for line in 0..100 {
            m.warm_of(0, line * 64, RequestKind::Store, 0);
            let at = pagewalk_units::PhysAddr(line * 64);
            m.cores[0].warm_flush(at, kind, &mut m.shared);
        }
        let before = m.load(0, 1000).level;
        let stays = kind == FlushKind::WriteBack;
        assert_eq!(before == Level::Memory, !stays);
        // Nothing is dirty.
        for line in 0..100 {
            m.flush_of(0, line * 64, FlushKind::Ordered, 10_000 + line * 1000);
        }
        assert_eq!(dram(&m, "writes"), 0);
    }
    let mut m = machine(&private(), &shared());
    m.warm_of(0, 0, RequestKind::Store, 0);
    m.cores[0].warm_store_past_caches(pagewalk_units::PhysAddr(0), &mut m.shared);
    assert_eq!(m.load(0, 1000).level, Level::Memory);
}
