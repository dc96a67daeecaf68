//! A fast-forwarded recording gives the counts and touches of its ops, and ends batches at the same places. After the
//! grant it continues with the same ops.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use pagewalk_stream::{BATCH_OPS, Batch, End, Event, Op, OpClass, Program, Skipped, flags};
use pagewalk_trace::{OpenOptions, check_trace, convert_trace};
use pagewalk_units::Access;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::pwt::Run;
use crate::steps::STEPS;
use crate::{opened, program, recorded};

const OPS_4: &[u8] = include_bytes!("../data/ops4.pwt");
const STEPS_4: &[u8] = include_bytes!("../data/steps4.pwt");

/// State of a machine that maps pages at their first touch: for each page, true if it was read, and if it was written.
#[derive(Default)]
struct Pages(HashMap<u64, (bool, bool)>);

impl Pages {
    fn touch(&mut self, at: u64, access: Access, new: &mut Vec<(u64, bool)>) {
        let write = access == Access::Write;
        let (read, written) = self.0.entry(at >> 12).or_default();
        if !*(if write { &mut *written } else { &mut *read }) {
            new.push((at >> 12, write));
        }
        *read = true;
        *written |= write;
    }

    fn op(&mut self, op: &Op, new: &mut Vec<(u64, bool)>) {
        self.touch(op.pc, Access::Fetch, new);
        let access = match op.kind {
            OpClass::Load => Access::Read,
            OpClass::Store => Access::Write,
            OpClass::Compute
            | OpClass::Branch
            | OpClass::Query
            | OpClass::Prefetch
            | OpClass::Flush => return,
        };
        self.touch(op.va, access, new);
        let last = op.va.wrapping_add(u64::from(op.size.max(1)) - 1);
        self.touch(last, access, new);
    }

    /// The first touches in `batch`.
    fn batch(&mut self, batch: &Batch) -> Vec<(u64, bool)> {
        let mut new = Vec::new();
        for (at, access) in &batch.skipped.touched {
            self.touch(*at, *access, &mut new);
        }
        batch.ops.iter().for_each(|op| self.op(op, &mut new));
        new
    }

    /// Forgets the pages that the program has changed.
    fn change(&mut self, end: &End) {
        let End::Event { event, .. } = end else {
            return;
        };
        match event {
            Event::Map { at, bytes, .. }
            | Event::Unmap { at, bytes }
            | Event::Protect { at, bytes, .. }
            | Event::Advise { at, bytes, .. } => {
                let gone = at.0 >> 12..(at.0 + bytes).div_ceil(4096);
                self.0.retain(|page, _| !gone.contains(page));
            }
            Event::Populate { at, bytes } => {
                let there = at.0 >> 12..(at.0 + bytes).div_ceil(4096);
                self.0.extend(there.map(|page| (page, (true, true))));
            }
            Event::Remap { .. } | Event::Fork { .. } | Event::Exec => self.0.clear(),
            _ => {}
        }
    }
}

/// Compares the batches of `forwarded` with those of `full`, of the same recording. `grant` returns the grant before
/// each batch. Returns the ops skipped.
fn compare(
    what: &str,
    (mut full, mut forwarded): (Box<dyn Program>, Box<dyn Program>),
    mut grant: impl FnMut(usize) -> (u64, u64),
) -> u64 {
    let (mut one, mut other) = (Batch::new(), Batch::new());
    let (mut here, mut there) = (Pages::default(), Pages::default());
    let mut skipped = 0;
    for number in 0.. {
        let at = format!("{what}: {number}");
        let left = grant(number);
        let end = full.fill(0, &mut one).unwrap();
        forwarded.grant_fast_forward(left.0, left.1);
        assert_eq!(forwarded.fill(0, &mut other).unwrap(), end, "{at}");
        assert!(one.skipped == Skipped::default());
        let count = other.skipped.ops as usize;
        assert_eq!(count + other.ops.len(), one.ops.len(), "{at}");
        assert!(other.ops[..] == one.ops[count..], "{at}");
        // The skipped part ends exactly with the grant, or before a query.
        let before = |n: usize| {
            (one.ops[..n].iter())
                .map(|o| (u64::from(o.insns), u64::from(o.flags & flags::REQUEST != 0)))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let within = |n: usize| before(n).0 < left.0 && before(n).1 < left.1;
        assert!(count == 0 || within(count - 1), "{at}");
        assert!(
            count == one.ops.len() || one.ops[count].kind == OpClass::Query || !within(count),
            "{at}: {count}"
        );
        assert_eq!(
            before(count),
            (other.skipped.instructions, other.skipped.requests),
            "{at}"
        );
        assert_eq!(there.batch(&other), here.batch(&one), "{at}");
        here.change(&end);
        there.change(&end);
        skipped += count as u64;
        match end {
            End::Query(_) => {
                full.shortcut_result(0, None);
                forwarded.shortcut_result(0, None);
            }
            End::Exit => break,
            // After this, skipping is not allowed.
            End::Event {
                event: Event::Spawn { .. } | Event::Fork { .. },
                ..
            } => break,
            _ => {}
        }
    }
    skipped
}

/// Compares the recording at `path` for all sorts of grants.
fn check(path: &Path, least: u64) {
    let what = path.display().to_string();
    let both = || (opened(path), opened(path));
    let always = |left: (u64, u64)| {
        let (mut instructions, mut requests) = left;
        let mut counting = opened(path);
        let mut batch = Batch::new();
        move |number: usize| {
            if number > 0 {
                instructions = instructions.saturating_sub(batch.instructions());
                requests = requests.saturating_sub(batch.requests());
            }
            counting.fill(0, &mut batch).unwrap();
            (instructions, requests)
        }
    };
    let all = compare(&what, both(), always((u64::MAX, u64::MAX)));
    assert!(all >= least, "{what}: {all}");
    let total = opened(path).facts().instructions.unwrap();
    for part in [1, 2, 5, 9] {
        let n = total * part / 10 + 1;
        compare(&format!("{what} {n}"), both(), always((n, u64::MAX)));
    }
    compare(&format!("{what} requests"), both(), always((u64::MAX, 701)));
    // Alternating grants, for a few batches and for many.
    for (on, off) in [(3, 2), (100, 1), (300, 70), (1, 200)] {
        let grant = |number: usize| match number % (on + off) {
            n if n < on => (1 << 40, 1 << 40),
            n if n == on => (777, 3),
            _ => (0, 0),
        };
        compare(&format!("{what} {on} {off}"), both(), grant);
    }
}

#[test]
fn fast_forwarding_loses_no_work_and_no_touch() {
    let dir = tempfile::tempdir().unwrap();
    let runs: [Run; 6] = [
        ("gups", 1, &[("updates", "100000"), ("populate", "no")]),
        ("bfs", 1, &[("scale", "14"), ("roots", "2")]),
        ("bfs", 3, &[("scale", "13")]),
        (
            "kv-hash",
            1,
            &[
                ("keys", "20000"),
                ("sets", "40"),
                ("deletes", "20"),
                ("resize", "yes"),
                ("populate", "timed"),
            ],
        ),
        (
            "kv-btree",
            1,
            &[("keys", "1000"), ("sets", "40"), ("shortcut", "stlt")],
        ),
        ("churn", 1, &[("rounds", "3"), ("arena", "4KiB")]),
    ];
    for (name, threads, params) in runs {
        let path = recorded(dir.path(), program(name, threads, params), Some(3_000_000));
        let good = check_trace(&path, None).unwrap();
        assert!(good.whole, "{name}: {good:?}");
        // With several threads, up to where they start.
        let least = if threads == 1 { 300_000 } else { 0 };
        check(&path, least);
        // A copy behaves the same.
        let copy = dir.path().join("copy.pwt");
        convert_trace(&path, &OpenOptions::default(), &copy, false).unwrap();
        assert!(check_trace(&copy, None).unwrap().whole);
        check(&copy, least);
    }
}

/// Recordings of earlier versions hold no touch summaries: the reader makes them from the ops.
#[test]
fn recordings_of_earlier_versions_too() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("ops4", OPS_4), ("steps", STEPS), ("steps4", STEPS_4)] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        check(&path, 10_000);
    }
}

/// Skipped blocks are not read: a damaged block in the middle does not matter to a reader that skips it.
#[test]
fn skipped_blocks_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(
        dir.path(),
        program("gups", 1, &[("updates", "300000")]),
        None,
    );
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    let mut program = opened(&path);
    let total = program.facts().instructions.unwrap();
    let mut left = total * 9 / 10;
    let (mut batch, mut decoded) = (Batch::new(), 0);
    loop {
        program.grant_fast_forward(left, u64::MAX);
        let end = program.fill(0, &mut batch).unwrap();
        left = left.saturating_sub(batch.instructions());
        decoded += batch.ops.len();
        if end == End::Exit {
            break;
        }
    }
    assert!(decoded > BATCH_OPS && decoded < 3 << 18, "{decoded}");
}

/// `bytes` with the contents of its first block of touch summaries changed by `change`, and valid checksums; and the
/// offset of that block. The index is lost.
fn planted(bytes: &[u8], change: impl Fn(&mut Vec<u8>)) -> (Vec<u8>, usize) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 20 + word(12) as usize;
    while &bytes[at..at + 4] != b"PWSK" {
        assert_eq!(&bytes[at..at + 2], b"PW");
        at += 64 + word(at + 48) as usize;
    }
    let payload = &bytes[at + 64..][..word(at + 48) as usize];
    let mut raw = zstd::bulk::decompress(payload, 1 << 26).unwrap();
    change(&mut raw);
    let payload = zstd::bulk::compress(&raw, 3).unwrap();
    let mut header = bytes[at..at + 64].to_vec();
    let mut put = |at: usize, value: u32| {
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    put(32, raw.len() as u32);
    put(48, payload.len() as u32);
    put(52, crc32fast::hash(&payload));
    let crc = crc32fast::hash(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    ([&bytes[..at], &header, &payload].concat(), at)
}

#[test]
fn damage_to_what_skipping_needs_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(
        dir.path(),
        program("bfs", 1, &[("scale", "14"), ("roots", "2")]),
        Some(3_000_000),
    );
    let good = std::fs::read(&path).unwrap();
    let skip = || {
        let options = OpenOptions {
            recover: true,
            ..OpenOptions::default()
        };
        let mut program = pagewalk_trace::open_trace(&path, &options).unwrap();
        let mut batch = Batch::new();
        loop {
            program.grant_fast_forward(u64::MAX, u64::MAX);
            match program.fill(0, &mut batch) {
                Ok(End::Exit) => return None,
                Ok(_) => {}
                Err(e) => return Some(e.to_string()),
            }
        }
    };
    let fault = || check_trace(&path, None).unwrap().fault.unwrap();
    let at = |place: usize| format!("t.pwt, byte {place}: ");

    // A flipped bit.
    let place = planted(&good, |_| {}).1;
    let mut bytes = good.clone();
    bytes[place + 70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    for said in [fault(), skip().unwrap()] {
        assert!(said.contains(&at(place)), "{said}");
        assert!(
            said.contains("the checksum of a block does not match"),
            "{said}"
        );
    }
    // Only the index is missing.
    let (bytes, place) = planted(&good, |_| {});
    std::fs::write(&path, &bytes).unwrap();
    assert!(fault().contains("no index"), "{}", fault());
    // Another page in valid form: only a reader of the block itself can find it.
    let mut changed = 0;
    for byte in 20..60 {
        let (bytes, _) = planted(&good, |raw| {
            let at = raw.len() - byte;
            raw[at] ^= 8;
        });
        std::fs::write(&path, &bytes).unwrap();
        let said = fault();
        assert!(said.contains(&at(place)), "{said}");
        assert!(
            said.contains("of the first thread needs is not what it does"),
            "{said}"
        );
        changed += u32::from(skip().is_none());
    }
    assert!(changed > 0);
    // A summary with fewer or more ops than its block.
    for byte in [3, 4, 5, 6] {
        let (bytes, _) = planted(&good, |raw| raw[byte] ^= 1);
        std::fs::write(&path, &bytes).unwrap();
        assert!(fault().contains(&at(place)), "{}", fault());
    }
    let (bytes, _) = planted(&good, |raw| raw.truncate(raw.len() - 1));
    std::fs::write(&path, &bytes).unwrap();
    for said in [fault(), skip().unwrap()] {
        assert!(said.contains(&at(place)), "{said}");
        assert!(
            said.contains("what skipping needs makes no sense"),
            "{said}"
        );
    }
}

/// Recordings to change: with many pages, with queries, and with many changes of the address space.
static FUZZED: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let runs: [Run; 3] = [
        ("gups", 1, &[("updates", "100000"), ("populate", "no")]),
        (
            "kv-btree",
            1,
            &[("keys", "1000"), ("sets", "40"), ("shortcut", "stlt")],
        ),
        ("churn", 1, &[("rounds", "3"), ("arena", "4KiB")]),
    ];
    runs.map(|(name, threads, params)| {
        let dir = tempfile::tempdir().unwrap();
        let path = recorded(dir.path(), program(name, threads, params), Some(3_000_000));
        std::fs::read(path).unwrap()
    })
});

/// A change to bytes.
#[derive(Clone, Debug)]
enum Change {
    Byte(u8),
    Gone(Index),
    Twice(Index),
}

fn any_change() -> impl Strategy<Value = (Index, Change)> {
    let change = prop_oneof![
        4 => any::<u8>().prop_map(Change::Byte),
        1 => any::<Index>().prop_map(Change::Gone),
        1 => any::<Index>().prop_map(Change::Twice),
    ];
    (any::<Index>(), change)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// With any touch summaries under valid checksums, and any grants, a file is read to its end or refused. Batches
    /// keep their size limit.
    #[test]
    fn whatever_is_said_of_skipping_is_answered(
        which in 0..3usize,
        changes in prop::collection::vec(any_change(), 1..6),
        near in any::<bool>(),
        grant in prop::collection::vec((any::<Index>(), 0..1u64 << 20), 1..9),
    ) {
        let good = &FUZZED[which];
        let (bytes, place) = planted(good, |raw| {
            for (at, change) in &changes {
                if raw.is_empty() {
                    return;
                }
                // Counts are at the front.
                let at = at.index(if near { raw.len().min(64) } else { raw.len() });
                let end = |n: &Index| at + n.index((raw.len() - at).min(200)) + 1;
                match change {
                    Change::Byte(byte) => raw[at] = *byte,
                    Change::Gone(n) => drop(raw.drain(at..end(n))),
                    Change::Twice(n) => {
                        let again = raw[at..end(n)].to_vec();
                        raw.splice(at..at, again);
                    }
                }
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.pwt");
        std::fs::write(&path, bytes).unwrap();
        let options = OpenOptions { recover: true, ..OpenOptions::default() };
        let mut program = pagewalk_trace::open_trace(&path, &options).unwrap();
        let mut batch = Batch::new();
        for number in 0.. {
            let (skip, left) = &grant[number / 7 % grant.len()];
            program.grant_fast_forward(if skip.index(3) == 0 { *left } else { u64::MAX }, u64::MAX);
            match program.fill(0, &mut batch) {
                Ok(End::Exit) => break,
                Ok(end) => {
                    prop_assert!(batch.ops.len() <= BATCH_OPS);
                    if matches!(end, End::Query(_)) {
                        program.shortcut_result(0, None);
                    }
                }
                Err(error) => {
                    prop_assert!(error.to_string().contains(&format!("byte {place}: ")), "{}", error);
                    break;
                }
            }
            prop_assert!(number < 1 << 16);
        }
        // Without an index, no file is complete.
        prop_assert!(!check_trace(&path, None).unwrap().whole);
    }
}
