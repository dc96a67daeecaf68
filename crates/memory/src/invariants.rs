//! Internal invariants after any traffic.

use crate::cache_array::{CacheArray, DIRTY, OWNED};
use crate::*;
use pagewalk_units::{FlushKind, PhysAddr, rng};
use rand::RngExt;

fn cache(size_kb: u32, ways: u32, latency: u64, replacement: Replacement) -> CacheSpec {
    CacheSpec {
        size_kb,
        ways,
        latency,
        mshrs: 8,
        replacement,
        prefetcher: None,
        index: SetIndex::Modulo,
    }
}

fn specs(replacement: Replacement, walks_enter: Enter) -> (PrivateSpec, SharedSpec) {
    let mut p = PrivateSpec {
        l1i: cache(1, 2, 4, replacement),
        l0d: None,
        l3: None,
        l1d: cache(1, 2, 4, replacement),
        l2: cache(4, 4, 14, replacement),
        walks_enter,
        l1d_fill_bytes: None,
        write_combining_buffers: 2,
    };
    p.l1d.prefetcher = Some(PrefetcherSpec::IpStride {
        entries: 4,
        degree: 2,
        lookahead: 2,
    });
    p.l2.prefetcher = Some(PrefetcherSpec::Streamer {
        pages: 4,
        degree: 2,
        lookahead: 4,
    });
    let mut l3 = cache(8, 4, 40, replacement);
    l3.prefetcher = Some(PrefetcherSpec::Vldp {
        pages: 4,
        tables: 2,
        entries: 8,
        degree: 2,
    });
    let s = SharedSpec {
        l3: Some(l3),
        l4: None,
        remote_latency: 60,
        background: None,
        dram: DramSpec::fixed(50.0),
    };
    (p, s)
}

/// The same with a data cache in front of the L1D, a private third level and a shared fourth.
fn deep(replacement: Replacement, walks_enter: Enter) -> (PrivateSpec, SharedSpec) {
    let (mut p, mut s) = specs(replacement, walks_enter);
    (p.l1d.size_kb, p.l2.size_kb) = (2, 4);
    p.l0d = Some(CacheSpec {
        prefetcher: p.l1d.prefetcher,
        ..cache(1, 4, 2, replacement)
    });
    p.l3 = Some(CacheSpec {
        prefetcher: p.l2.prefetcher,
        ..cache(6, 3, 25, replacement)
    });
    s.l4 = s.l3.take();
    (p, s)
}

/// The same with hashed set indices.
fn hashed(replacement: Replacement, walks_enter: Enter) -> (PrivateSpec, SharedSpec) {
    let (mut p, mut s) = specs(replacement, walks_enter);
    (p.l1d.size_kb, p.l2.size_kb) = (2, 8);
    (p.l1d.index, p.l2.index) = (SetIndex::Xor, SetIndex::Xor);
    s.l3.as_mut().expect("given").index = SetIndex::Xor;
    (p, s)
}

fn guesses_are_accounted_for(cache: &CacheArray) {
    let stats = cache.stats();
    let (prefetched, speculative) = cache.unjudged();
    assert_eq!(
        stats.prefetches_issued,
        stats.prefetches_useful + stats.prefetches_useless + prefetched
    );
    assert_eq!(
        stats.speculative_issued,
        stats.speculative_useful + stats.speculative_useless + speculative
    );
}

type Specs = fn(Replacement, Enter) -> (PrivateSpec, SharedSpec);

/// Random traffic of `cores`. After every step the snoops are served and the directory is
/// compared with the contents of the caches.
fn traffic(cores: u8, (p, s): (PrivateSpec, SharedSpec), steps: u64, warm_now_and_then: bool) {
    let mut private: Vec<Private> = (0..cores)
        .map(|c| Private::new(&p, c).expect("possible"))
        .collect();
    let mut shared = Shared::new(&s, cores, 1.0).expect("possible");
    let mut r = rng(7, "test.invariants");
    let mut mail = vec![];
    let mut now = 0;
    for step in 0..steps {
        let core = r.random_range(0..cores);
        let kind = [
            RequestKind::Load,
            RequestKind::Load,
            RequestKind::Store,
            RequestKind::Fetch,
            RequestKind::Walk,
            RequestKind::Speculative,
        ][r.random_range(0..6)];
        let at = PhysAddr(if r.random_range(0..3) == 0 {
            step * 16
        } else {
            r.random_range(0u64..20_000)
        });
        let request = Request {
            at,
            kind,
            core,
            pc: u64::from(r.random_range(0u8..6)),
        };
        now += r.random_range(0..100);
        if step % 8 == 4 {
            let private = &mut private[usize::from(core)];
            let kind = [
                FlushKind::Ordered,
                FlushKind::Unordered,
                FlushKind::WriteBack,
            ][r.random_range(0..3)];
            match (warm_now_and_then && step / 1000 % 2 == 1, step % 16) {
                (true, 4) => private.warm_flush(at, kind, &mut shared),
                (true, _) => private.warm_store_past_caches(at, &mut shared),
                (false, 4) => assert!(private.flush(at, kind, now, &mut shared).at > now),
                (false, _) => {
                    let stored = private.store_past_caches(at, (0, 15), now, &mut shared);
                    assert!(stored >= now);
                }
            }
        } else if step % 8 == 0 {
            // Lines of page tables, which programs do not touch.
            let at = PhysAddr((1 << 30) + r.random_range(0u64..4000));
            let (kind, pc) = (RequestKind::Walk, 0);
            let request = Request { at, kind, core, pc };
            let private = &mut private[usize::from(core)];
            match (warm_now_and_then && step / 1000 % 2 == 1, step % 16) {
                (true, 0) => private.warm_update(request, &mut shared),
                (true, _) => private.warm(request, &mut shared),
                (false, 0) => assert!(private.update(request, now, &mut shared).at > now),
                (false, _) => assert!(private.access(request, now, &mut shared).at > now),
            }
        } else if warm_now_and_then && step / 1000 % 2 == 1 {
            let private = &mut private[usize::from(core)];
            match kind {
                RequestKind::Load | RequestKind::Store | RequestKind::Fetch if step % 3 == 0 => {
                    private.warm_below_first(request, &mut shared);
                }
                _ => private.warm(request, &mut shared),
            }
        } else {
            let done = private[usize::from(core)].access(request, now, &mut shared);
            assert!(done.at > now || done.level == Level::L1 && done.at >= now);
        }
        for c in 0..cores {
            shared.take_snoops(c, &mut mail);
            for (at, exclusive) in mail.drain(..) {
                private[usize::from(c)].snoop(at, exclusive);
            }
        }
        if cores > 1 && step % 16 == 0 {
            coherent(&private, &shared);
        }
    }
    for p in &private {
        for cache in p.caches() {
            guesses_are_accounted_for(cache);
        }
    }
    shared.levels().for_each(guesses_are_accounted_for);
}

fn coherent(private: &[Private], shared: &Shared) {
    let mut held = std::collections::BTreeMap::<u64, u64>::new();
    let mut dirty = std::collections::BTreeMap::<u64, u64>::new();
    for (core, p) in private.iter().enumerate() {
        for tag in p.caches().flat_map(CacheArray::present) {
            let line = tag & ((1 << 48) - 1);
            *held.entry(line).or_default() |= 1 << core;
            if tag & (DIRTY | OWNED) != 0 {
                *dirty.entry(line).or_default() |= 1 << core;
            }
        }
    }
    assert_eq!(
        held,
        shared.directory().expect("several cores").holders(),
        "who has what"
    );
    for (line, cores) in &dirty {
        assert_eq!(cores.count_ones(), 1, "one writer of {line:#x}");
        assert_eq!(held[line], *cores, "the writer of {line:#x} is alone");
    }
    assert_eq!(
        dirty,
        shared.directory().expect("several cores").writers(),
        "who wrote what"
    );
}

#[test]
fn the_directory_equals_the_contents_of_the_caches() {
    let three = [Enter::L1d, Enter::L2, Enter::L3];
    let five = [Enter::L0d, Enter::L1d, Enter::L2, Enter::L3, Enter::L4];
    for (specs, enters, steps) in [
        (specs as Specs, &three[..], 30_000),
        (deep, &five, 10_000),
        (hashed, &three, 3_000),
    ] {
        for &enter in enters {
            for replacement in [Replacement::Lru, Replacement::Srrip, Replacement::SrripFp] {
                traffic(2, specs(replacement, enter), steps, false);
                traffic(4, specs(replacement, enter), steps, true);
            }
        }
    }
}

#[test]
fn every_guess_is_useful_useless_or_still_there() {
    for specs in [specs, deep] {
        traffic(1, specs(Replacement::Lru, Enter::L2), 100_000, false);
        traffic(1, specs(Replacement::Srrip, Enter::L2), 100_000, true);
    }
}

#[test]
fn srrip_keeps_what_is_used_again_through_a_scan() {
    let mut lines =
        CacheArray::new(&cache(1, 16, 1, Replacement::Srrip), "c", Level::L1).expect("possible");
    let hot: Vec<u64> = (0..8).collect();
    for round in 0..50 {
        for &l in &hot {
            match lines.find(l) {
                Some(at) => {
                    lines.hit(at, RequestKind::Load, 0);
                }
                None => {
                    assert_eq!(round, 0, "hot line {l} was lost to the scan");
                    lines.fill::<true>(l, 0, Level::L2, 0, 0);
                }
            }
        }
        for l in 0..8 {
            lines.fill::<true>(1000 + round * 8 + l, 0, Level::L2, 0, 0);
        }
    }
}

/// One line is used once and another thrice, and three more fills age both. The victim is then the
/// former with frequency priority, and the first one that the search finds with hit priority.
#[test]
fn frequency_priority_distinguishes_one_use_from_three() {
    for (replacement, kept) in [(Replacement::SrripFp, true), (Replacement::Srrip, false)] {
        let mut lines =
            CacheArray::new(&cache(1, 16, 1, replacement), "c", Level::L1).expect("possible");
        let fill = |lines: &mut CacheArray, line| {
            lines.fill::<true>(line, 0, Level::L2, 0, 0);
        };
        for line in 0..16 {
            fill(&mut lines, line);
        }
        // Line 0, which the search finds first, is used thrice; the others once.
        for line in [0, 0].into_iter().chain(0..16) {
            let at = lines.find(line).expect("it was filled");
            lines.hit(at, RequestKind::Load, 0);
        }
        fill(&mut lines, 100);
        assert_eq!(lines.find(0).is_some(), kept, "{replacement:?}");
    }
}

/// The bits above the index, a group after the other, or the sum of digits.
fn hashed_index(line: u64, sets: u64) -> u64 {
    let (mut index, mut above) = (line % sets, line / sets);
    while above > 0 {
        if sets.is_power_of_two() {
            let groups = (sets / 8).max(1);
            index ^= above % groups * 8;
            above = if groups == 1 { 0 } else { above / groups };
        } else {
            index = (index + above) % sets;
            above /= sets;
        }
    }
    index
}

/// The same cache as lists of lines, most recently used first.
#[test]
fn the_line_that_goes_is_the_least_recently_used() {
    use SetIndex::{Modulo, Xor};
    for (size_kb, ways, index) in [
        (1, 2, Modulo),
        (1, 1, Xor),
        (4, 4, Xor),
        (4, 64, Xor),
        (6, 8, Xor),
        (3, 3, Modulo),
        (1, 8, Modulo),
        (3, 24, Modulo),
        (2, 32, Modulo),
        (4, 64, Modulo),
    ] {
        let spec = CacheSpec {
            index,
            ..cache(size_kb, ways, 1, Replacement::Lru)
        };
        let mut lines = CacheArray::new(&spec, "c", Level::L1).expect("possible");
        let sets = u64::from(size_kb) * 16 / u64::from(ways);
        let mut model = vec![Vec::<u64>::new(); sets as usize];
        let mut r = rng(11, "test.lru");
        for _ in 0..20_000 {
            let line = r.random_range(0..sets * u64::from(ways) * 2);
            let index = match index {
                Modulo => line % sets,
                Xor => hashed_index(line, sets),
            };
            let set = &mut model[index as usize];
            let place = set.iter().position(|&l| l == line);
            assert_eq!(lines.find(line).is_some(), place.is_some());
            match lines.find(line) {
                Some(at) if r.random_range(0..8) == 0 => {
                    lines.remove(at);
                    set.retain(|&l| l != line);
                }
                Some(at) => {
                    lines.hit(at, RequestKind::Load, 0);
                    set.retain(|&l| l != line);
                    set.insert(0, line);
                }
                None => {
                    let gone = lines.fill::<true>(line, 0, Level::L2, 0, 0);
                    let full = set.len() == ways as usize;
                    let last = if full { set.pop() } else { None };
                    assert_eq!(gone.line(), last, "{ways} ways");
                    set.insert(0, line);
                }
            }
        }
    }
}

#[test]
fn looking_at_the_likely_way_first_finds_the_same_line() {
    let mut lines =
        CacheArray::first(&cache(1, 4, 1, Replacement::Lru), "c", Level::L1).expect("possible");
    let mut r = rng(9, "test.likely");
    for _ in 0..20_000 {
        let line = r.random_range(0u64..40);
        let plain = lines.find(line);
        assert_eq!(lines.find_likely(line), plain);
        match plain {
            Some(at) if r.random_range(0..10) == 0 => {
                lines.remove(at);
            }
            Some(at) => {
                lines.hit(at, RequestKind::Load, 0);
            }
            None => {
                lines.fill::<true>(line, 0, Level::L2, 0, 0);
            }
        }
    }
}
