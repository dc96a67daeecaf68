//! Tests the table against closed forms and a reference model.

use std::collections::BTreeMap;

use pagewalk_units::{PageSize, PhysAddr, Rng, VirtAddr, rng};
use proptest::prelude::*;
use rand::RngExt;

use super::{MOST_COUNTED, Stlt, StltCounter, StltInserted, StltPage, StltSpec};

const BASE: PhysAddr = PhysAddr(1 << 32);

fn table(rows: u64, ways: u32, counter: StltCounter, seed: u64) -> Stlt {
    let spec = StltSpec {
        rows,
        ways,
        counter,
        ..StltSpec::default()
    };
    spec.check().expect("a possible table");
    Stlt::new(&spec, rows, BASE, seed, "stlt")
}

fn page(number: u64) -> Option<StltPage> {
    Some(StltPage {
        frame: PhysAddr(number << 12),
        size: PageSize::K4,
        writable: number & 1 == 0,
    })
}

/// Addresses that encode their integer.
fn va(integer: u64) -> VirtAddr {
    VirtAddr(0x10_0000_0000 + 64 * integer)
}

fn random_table(rows: u64, ways: u32, items: u64) -> (Stlt, Rng) {
    let mut random = rng(7, "integers");
    let mut t = table(rows, ways, StltCounter::Wraps, 1);
    for i in 0..items {
        t.insert(random.random(), va(i), None);
    }
    (t, random)
}

#[test]
fn a_random_integer_matches_a_full_set_by_ways_in_4096() {
    for ways in [1, 2, 4, 8] {
        // Sixteen times as many items as rows, so nearly every row is in use.
        let (mut t, mut random) = random_table(1 << 12, ways, 1 << 16);
        let used = t.used() as f64 / t.rows() as f64;
        let tries = 1 << 21;
        let hits = (0..tries)
            .filter(|_| t.load(random.random()).is_some())
            .count() as f64;
        let want = f64::from(tries) * (1.0 - (1.0 - used / 4096.0).powi(ways as i32));
        // Five standard deviations, which include those of the rows' own tags.
        assert!(
            (hits - want).abs() < 5.0 * want.sqrt() + 0.01 * want,
            "{ways}: {hits} {want}"
        );
    }
}

#[test]
fn as_many_random_items_as_rows_leave_what_the_closed_form_says_empty() {
    let rows = 1 << 18;
    for ways in [1u32, 2, 4, 8] {
        let (t, _) = random_table(rows, ways, rows);
        // The items of a set are Poisson distributed with mean `ways`. Items beyond the
        // ways are lost.
        let mean = f64::from(ways);
        let (mut p, mut empty) = ((-mean).exp(), 0.0);
        for n in 0..ways {
            empty += p * f64::from(ways - n);
            p *= mean / f64::from(n + 1);
        }
        let share = 1.0 - t.used() as f64 / rows as f64;
        assert!((share - empty / mean).abs() < 0.004, "{ways}: {share}");
        if ways == 1 {
            assert!((share - (-1.0f64).exp()).abs() < 0.004, "1/e: {share}");
        }
    }
}

#[test]
fn a_counter_wraps_after_65535_updates_on_average_or_stays() {
    // The sum of 2^x over the sixteen values; each step is geometric.
    let mean = f64::from((1 << 16) - 1);
    let variance: f64 = (0..16).map(|x| (1.0 - 0.5f64.powi(x)) * 4f64.powi(x)).sum();
    let turns = 200;
    let mut t = table(256, 1, StltCounter::Wraps, 3);
    t.insert(5, va(1), None);
    let (mut updates, mut wrapped, mut seen) = (0u64, 0, 0);
    while wrapped < turns {
        t.load(5).expect("it is there");
        updates += 1;
        let now = t.counter(0);
        wrapped += u64::from(now < seen);
        assert!(now <= seen + 1, "one at a time");
        seen = now;
    }
    let error = (variance / turns as f64).sqrt();
    let measured = updates as f64 / turns as f64;
    assert!((measured - mean).abs() < 4.0 * error, "{measured} {error}");

    let mut t = table(256, 1, StltCounter::Saturates, 3);
    t.insert(5, va(1), None);
    t.words[0] |= MOST_COUNTED << 60;
    for _ in 0..1 << 18 {
        t.load(5).expect("it is there");
        assert_eq!(t.counter(0), MOST_COUNTED);
    }
}

#[test]
fn a_counter_of_x_grows_once_in_two_to_the_x() {
    for x in [0, 1, 3, 6] {
        let mut t = table(256, 1, StltCounter::Wraps, 11);
        t.insert(5, va(1), None);
        let tries = 20_000;
        let mut grown = 0;
        for _ in 0..tries {
            t.words[0] = t.words[0] & !(15 << 60) | x << 60;
            t.load(5).expect("it is there");
            grown += u64::from(t.counter(0) == x + 1);
        }
        let want = tries as f64 / (1u64 << x) as f64;
        assert!((grown as f64 - want).abs() <= 5.0 * want.sqrt(), "{x}");
        assert!(x > 0 || grown == tries, "the first is certain");
    }
}

#[test]
fn lines_and_rows_lie_where_the_integer_says() {
    for (ways, lines) in [(1, 1), (2, 1), (4, 1), (8, 2)] {
        let mut t = table(1 << 10, ways, StltCounter::Wraps, 1);
        let sets = (1 << 10) / u64::from(ways);
        // Neither the low 12 bits nor the bits above the set index select the set.
        let integer = (3 << 40) | (5 << 12) | 0xabc;
        assert_eq!(t.lines(integer), t.lines((5 + sets) << 12));
        let set = BASE.0 + 5 * 16 * u64::from(ways);
        let got = t.lines(integer);
        assert_eq!(got.len(), lines);
        assert_eq!(got[0].0, set & !63);
        let (at, what) = t.insert(integer, va(9), page(4));
        assert_eq!(what, StltInserted::New);
        assert!((set..set + 16 * u64::from(ways)).contains(&at.0));
        let row = t.load(integer).expect("just put in");
        assert_eq!((row.at, row.va, row.page), (at, va(9), page(4)));
    }
}

#[test]
fn of_several_matching_rows_each_is_found() {
    // Insertions alone never make two rows match, but the hardware rule covers this
    // case.
    let mut t = table(256, 4, StltCounter::Wraps, 1);
    for i in 0..4 {
        t.insert(i, va(i), None);
    }
    for row in 0..4 {
        t.words[2 * row] &= !(0xfff << 48);
    }
    let mut found = BTreeMap::new();
    for _ in 0..4000 {
        *found
            .entry(t.load(0).expect("four match").va.0)
            .or_insert(0) += 1;
    }
    assert_eq!(found.len(), 4);
    assert!(found.values().all(|n| (800..1200).contains(n)), "{found:?}");
}

#[test]
fn the_least_frequent_row_goes() {
    let mut t = table(256, 4, StltCounter::Wraps, 1);
    for i in 0..4 {
        t.insert(i, va(i), None);
        t.words[2 * i as usize] |= (4 - i) << 60;
    }
    let (at, what) = t.insert(77, va(77), None);
    assert_eq!((at, what), (t.at(3), StltInserted::Replaced));
    assert_eq!(t.load(3), None);
    assert_eq!(t.words[6] >> 60, 0, "a new row has not been used");
}

#[test]
fn every_size_and_right_of_a_page_comes_back() {
    for size in PageSize::ALL {
        for writable in [false, true] {
            let frame = PhysAddr(7 * size.bytes());
            let page = StltPage {
                frame,
                size,
                writable,
            };
            assert_eq!(StltPage::of(page.entry()), Some(page));
        }
    }
    assert_eq!(StltPage::of(0), None);
}

#[test]
fn what_makes_no_table_is_refused_with_the_key() {
    for (rows, ways, key) in [
        (128, 4, "rows"),
        (3 << 10, 4, "rows"),
        (1 << 27, 4, "rows"),
        (1 << 10, 3, "ways"),
        (1 << 10, 16, "ways"),
    ] {
        let spec = super::ShortcutSpec::Stlt(StltSpec {
            rows,
            ways,
            ..StltSpec::default()
        });
        let why = spec.check().expect_err("refused");
        assert!(
            why.to_string()
                .starts_with(&format!("shortcut.stlt.{key} is ")),
            "{why}"
        );
    }
}

/// The contents of each set, in any order.
type Model = BTreeMap<u64, Vec<(u64, VirtAddr, Option<StltPage>)>>;

proptest! {
    /// Compares with a reference model. A load finds the last insertion of its tag in
    /// its set. A set never holds more rows than its ways, nor a tag twice. Rows are
    /// lost only by replacement in a full set.
    #[test]
    fn as_a_plain_model(
        ways in prop::sample::select(vec![1u32, 2, 4, 8]),
        seed in any::<u64>(),
        steps in prop::collection::vec((0u64..8, 0u64..24, 0u8..9, 1u64..1 << 20), 1..400),
    ) {
        let mut t = table(256, ways, StltCounter::Wraps, seed);
        let mut model = Model::new();
        for (set, tag, what, number) in steps {
            let integer = set << 12 | tag;
            let rows = model.entry(set).or_default();
            let held = rows.iter().position(|r| r.0 == tag);
            match what {
                0..=2 => {
                    let found = t.load(integer).map(|r| (tag, r.va, r.page));
                    prop_assert_eq!(found, held.map(|i| rows[i]));
                }
                3..=6 => {
                    let row = (tag, va(number), page(number));
                    let (_, done) = t.insert(integer, row.1, row.2);
                    if let Some(i) = held {
                        prop_assert_eq!(done, StltInserted::Matching);
                        rows[i] = row;
                    } else if rows.len() < ways as usize {
                        prop_assert_eq!(done, StltInserted::New);
                        rows.push(row);
                    } else {
                        prop_assert_eq!(done, StltInserted::Replaced);
                        let before = rows.len();
                        rows.retain(|r| t.load(set << 12 | r.0).is_some());
                        prop_assert_eq!(rows.len() + 1, before);
                        rows.push(row);
                    }
                }
                8 => {
                    let at = t.erase(integer);
                    prop_assert_eq!(at.is_some(), held.is_some());
                    if let (Some(i), Some(at)) = (held, at) {
                        prop_assert!(t.lines(integer).iter().any(|l| l.0 <= at.0 && at.0 < l.0 + 64));
                        rows.remove(i);
                    }
                    prop_assert_eq!(t.load(integer), None);
                }
                _ => {
                    // Records at even numbers are unmapped, the others are remapped.
                    let gone = |at: VirtAddr| (at.0 >> 6) & 1 == 0;
                    let chosen = va(number);
                    let changed = |at: VirtAddr| at.0 >> 12 == chosen.0 >> 12;
                    let n = t.refresh(changed, |at| if gone(at) { None } else { page(3) });
                    let mut touched = 0;
                    for rows in model.values_mut() {
                        touched += rows.iter().filter(|r| changed(r.1)).count() as u64;
                        rows.retain(|r| !(changed(r.1) && gone(r.1)));
                        for r in rows.iter_mut().filter(|r| changed(r.1)) {
                            r.2 = page(3);
                        }
                    }
                    prop_assert_eq!(n, touched);
                }
            }
            let all: usize = model.values().map(Vec::len).sum();
            prop_assert_eq!(t.used(), all as u64);
            let seen = t.words.iter().step_by(2).filter(|&w| w & super::VA_MASK != 0).count();
            prop_assert_eq!(seen, all);
        }
    }
}

#[test]
fn a_set_is_scanned_row_by_row_and_table_iii_is_of_four() {
    let of = |ways, scan_latency| StltSpec {
        ways,
        scan_latency,
        ..StltSpec::default()
    };
    let scanned = |ways| of(ways, 1).scanned(6);
    assert_eq!([1, 2, 4, 8].map(scanned), [3, 4, 6, 10]);
    let free = |ways| of(ways, 0).scanned(6);
    assert_eq!([1, 2, 4, 8].map(free), [6; 4]);
    assert_eq!(of(1, 9).scanned(4), 1, "no less than a cycle");
    assert_eq!(of(8, u8::MAX).scanned(4), u8::MAX);
    assert_eq!(of(8, 1).after_walk(), 8, "the scan follows the walk");
    let walk_latency = Some(1);
    let overlaps = StltSpec {
        walk_latency,
        ..of(8, 1)
    };
    assert_eq!(overlaps.after_walk(), 1);
}
