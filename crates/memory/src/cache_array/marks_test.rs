//! Uncertain lookups after gaps, compared with a model whose epochs never wrap.

use super::*;
use pagewalk_units::rng;
use rand::RngExt;

/// More than twice as many gaps as a tag word has epochs.
const GAPS: u64 = 600;

fn cache(ways: u32, replacement: Replacement, level: Level) -> CacheArray {
    let spec = CacheSpec {
        size_kb: 1,
        ways,
        latency: 1,
        mshrs: 8,
        replacement,
        prefetcher: None,
        index: SetIndex::Modulo,
    };
    match level {
        Level::L1 => CacheArray::first(&spec, "c", level),
        _ => CacheArray::new(&spec, "c", level),
    }
    .expect("possible")
}

fn fill(lines: &mut CacheArray, line: u64, flags: u64) -> Victim {
    lines.fill::<true>(line, flags, Level::Memory, 0, 0)
}

fn hit(lines: &mut CacheArray, line: u64) {
    let at = lines.find(line).expect("it was filled");
    lines.hit(at, RequestKind::Load, 0);
}

/// A set: lines with the time of their last use, most recently used first. `empty`: the last use of
/// each empty way, the one emptied last at the end.
struct Model {
    lines: Vec<(u64, u64)>,
    empty: Vec<u64>,
}

#[test]
fn what_is_older_than_the_gap_is_not_known_however_many_gaps_there_were() {
    for ways in [1, 2, 4, 16] {
        let mut lines = cache(ways, Replacement::Lru, Level::L2);
        let sets = 16 / u64::from(ways);
        let mut model: Vec<Model> = (0..sets)
            .map(|_| Model {
                lines: vec![],
                empty: vec![0; ways as usize],
            })
            .collect();
        let mut want = StaleOutcomes::default();
        let mut r = rng(5, "test.marks");
        for now in 0..GAPS {
            for _ in 0..r.random_range(0..40) {
                let line = r.random_range(0..24u64);
                let timed: bool = r.random();
                let set = &mut model[(line % sets) as usize];
                let before = set
                    .empty
                    .iter()
                    .chain(set.lines.iter().map(|(_, used)| used));
                let before = before.filter(|&&used| used != now).count() > 0;
                let there = set.lines.iter().position(|l| l.0 == line);
                let at = lines.find(line);
                assert_eq!(at.is_some(), there.is_some());
                match (at, there) {
                    (Some(at), Some(i)) if r.random_range(0..6) == 0 => {
                        lines.remove(at);
                        let (_, used) = set.lines.remove(i);
                        set.empty.push(used);
                    }
                    (Some(at), Some(i)) => {
                        let (_, used) = set.lines.remove(i);
                        set.lines.insert(0, (line, now));
                        if timed {
                            lines.hit(at, RequestKind::Load, 0);
                            want.hits += u64::from(used != now);
                        } else {
                            lines.warm_hit(at);
                        }
                    }
                    _ => {
                        if set.empty.pop().is_none() {
                            set.lines.pop();
                        }
                        set.lines.insert(0, (line, now));
                        if timed {
                            fill(&mut lines, line, 0);
                            want.misses += u64::from(before);
                        } else {
                            lines.fill::<false>(line, 0, Level::Memory, 0, 0);
                        }
                    }
                }
                assert_eq!(lines.stale, want, "{ways} ways after {now} gaps");
            }
            lines.mark_stale();
        }
        assert!(want.hits > 100 && want.misses > 100);
    }
}

#[test]
fn a_line_not_used_for_hundreds_of_gaps_is_of_before_and_as_it_was() {
    for replacement in [Replacement::Lru, Replacement::Srrip, Replacement::SrripFp] {
        for gaps in [1, 254, 255, 256, 257, 510, 511, GAPS] {
            let mut lines = cache(4, replacement, Level::L2);
            // All epoch values are in use somewhere.
            for begun in [0, 1, 100, 254, 255] {
                (0..begun).for_each(|_| lines.mark_stale());
                let line = (1 << 47) + 4 * begun;
                fill(&mut lines, line, DIRTY | OWNED);
                (0..gaps).for_each(|_| lines.mark_stale());
                let before = lines.stale.hits;
                hit(&mut lines, line);
                hit(&mut lines, line);
                assert_eq!(lines.stale.hits, before + 1, "{replacement:?} {gaps}");
                let at = lines.find(line).expect("still there");
                assert_eq!(lines.flags(at) & (DIRTY | OWNED | GUESSED), DIRTY | OWNED);
                assert_eq!(lines.origin(at), Level::Memory);
                assert_eq!(lines.remove(at) & EPOCH, 0);
            }
        }
    }
}

/// Set 0 of two ways: the line of an emptied way may have been evicted in the gap, and another
/// filled.
#[test]
fn an_empty_way_is_known_no_better_than_what_was_in_it() {
    let mut lines = cache(2, Replacement::Lru, Level::L2);
    fill(&mut lines, 0, 0);
    fill(&mut lines, 8, 0);
    lines.mark_stale();
    // A stale line is replaced; the new line may have been present.
    let at = lines.find(0).expect("filled");
    lines.remove(at);
    fill(&mut lines, 16, 0);
    assert_eq!(lines.stale.misses, 1);
    // A current line is replaced; the other way is still stale.
    let at = lines.find(16).expect("filled");
    lines.remove(at);
    fill(&mut lines, 24, 0);
    assert_eq!(lines.stale.misses, 2);
    // If all lines are current, an empty way is certain to be empty.
    hit(&mut lines, 8);
    let at = lines.find(24).expect("filled");
    lines.remove(at);
    fill(&mut lines, 32, 0);
    assert_eq!(lines.stale, StaleOutcomes { hits: 1, misses: 2 });
}

#[test]
fn guesses_and_write_backs_are_no_misses() {
    for (level, flags, misses) in [
        (Level::L2, 0, 1),
        (Level::L2, PREFETCHED, 0),
        (Level::L2, SPECULATIVE, 0),
        // Write-backs from the level above.
        (Level::L2, DIRTY | OWNED, 0),
        (Level::L3, DIRTY, 0),
        // A store's fill.
        (Level::L1, DIRTY | OWNED, 1),
    ] {
        let mut lines = cache(2, Replacement::Lru, level);
        lines.mark_stale();
        fill(&mut lines, 3, flags);
        assert_eq!(lines.stale.misses, misses, "{level:?} {flags:x}");
    }
}
