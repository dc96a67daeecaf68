//! Fast-forwarding: a program must report the pages that its ops would have touched, and their counts. It
//! must end batches at the same places, and continue from the same state.

use std::collections::HashMap;

use crate::small::small;
use pagewalk_programs::{build, workloads};
use pagewalk_stream::{BATCH_OPS, Batch, End, Event, OpClass, Skipped, flags};
use pagewalk_units::Access;

/// First touches: pages that were read, and written.
#[derive(Default)]
struct Pages(HashMap<u64, (bool, bool)>);

impl Pages {
    fn touch(&mut self, at: u64, access: Access, touched: &mut Vec<(u64, Access)>) {
        let write = access == Access::Write;
        let (read, written) = self.0.entry(at >> 12).or_default();
        if !*(if write { &mut *written } else { &mut *read }) {
            touched.push((at, access));
        }
        *read = true;
        *written |= write;
    }
}

/// Summary of `batch` when all of its ops are skipped.
fn skipped_of(batch: &Batch, pages: &mut Pages) -> Skipped {
    let mut skipped_part = Skipped {
        ops: batch.ops.len() as u64,
        instructions: batch.instructions(),
        requests: batch.requests(),
        touched: Vec::new(),
    };
    for op in &batch.ops {
        // A fetch is a read: each page of code counts once.
        pages.touch(op.pc, Access::Fetch, &mut skipped_part.touched);
        let access = match op.kind {
            OpClass::Load => Access::Read,
            OpClass::Store => Access::Write,
            OpClass::Compute
            | OpClass::Branch
            | OpClass::Query
            | OpClass::Prefetch
            | OpClass::Flush => continue,
        };
        let last = op.va + u64::from(op.size.max(1)) - 1;
        for at in [op.va, last] {
            pages.touch(at, access, &mut skipped_part.touched);
        }
    }
    skipped_part
}

/// True if the event invalidates earlier touches.
fn takes_away(end: &End, pages: &Pages) -> bool {
    let End::Event { event, .. } = end else {
        return false;
    };
    match event {
        Event::Map { at, bytes, .. } => {
            let there = |page: &u64| (at.0..at.0 + bytes).contains(&(page << 12));
            pages.0.keys().any(there)
        }
        Event::Populate { .. } | Event::RoiBegin | Event::RoiEnd => false,
        _ => true,
    }
}

/// Runs two instances of `name` for `batches` batches, one with a fast-forward budget of `instructions` and
/// `requests` from the beginning.
fn check(
    name: &str,
    params: &[(&str, &str)],
    batches: usize,
    (instructions, requests): (u64, u64),
) {
    let what = format!("{name} {params:?} {instructions} {requests}");
    let options = small(name, 1, params);
    let make = || build(name, &options).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let (mut full, mut forwarded) = (make(), make());
    let (mut one, mut other) = (Batch::new(), Batch::new());
    let (mut pages, mut left) = (Pages::default(), (instructions, requests));
    let mut skipped = 0;
    for number in 0..batches {
        let end = full.fill(0, &mut one).unwrap();
        forwarded.grant_fast_forward(left.0, left.1);
        assert_eq!(
            forwarded.fill(0, &mut other).unwrap(),
            end,
            "{what}: {number}"
        );
        assert!(one.skipped == Skipped::default());
        let count = other.skipped.ops as usize;
        assert!(count + other.ops.len() <= BATCH_OPS);
        assert!(other.ops[..] == one.ops[count..], "{what}: {number}");
        // The program must skip exactly the granted ops, except those that query a shortcut.
        let before = |n: usize| {
            (one.ops[..n].iter())
                .map(|o| (u64::from(o.insns), u64::from(o.flags & flags::REQUEST != 0)))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let within = |n: usize| before(n).0 < left.0 && before(n).1 < left.1;
        assert!(count == 0 || within(count - 1), "{what}: {number}");
        assert!(
            count == one.ops.len() || one.ops[count].kind == OpClass::Query || !within(count),
            "{what}: {number}"
        );
        if count > 0 {
            let part = Batch {
                ops: one.ops[..count].to_vec(),
                ..Batch::default()
            };
            assert!(
                other.skipped == skipped_of(&part, &mut pages),
                "{what}: {number}"
            );
        }
        skipped += count;
        left.0 = left.0.saturating_sub(one.instructions());
        left.1 = left.1.saturating_sub(one.requests());
        if takes_away(&end, &pages) {
            pages.0.clear();
        }
        if let End::Event {
            event: Event::Populate { at, bytes },
            ..
        } = &end
        {
            let populated = (at.0 >> 12..(at.0 + bytes) >> 12).map(|page| (page, (true, true)));
            pages.0.extend(populated);
        }
        if matches!(end, End::Query(_)) {
            full.shortcut_result(0, Some(0));
            forwarded.shortcut_result(0, Some(0));
        }
        if end == End::Exit {
            break;
        }
    }
    assert!(skipped > 1000, "{what}: {skipped} were fast-forwarded");
}

#[test]
fn fast_forwarding_loses_no_work_and_no_touch() {
    for info in workloads() {
        // All of it; a number of instructions that ends within a batch; a number of requests.
        check(info.name, &[], 300, (u64::MAX, u64::MAX));
        check(info.name, &[], 300, (123_457, u64::MAX));
    }
    for name in ["kv-hash", "kv-dense", "kv-btree", "gups", "dlrm"] {
        check(name, &[], 300, (u64::MAX, 171));
    }
}

/// Rows of a graph are skipped in bulk, up to the end of a batch or of the budget: in the middle of a vertex,
/// of a long row, or of the other loop.
#[test]
fn rows_skipped_in_bulk_end_within_the_budget() {
    let all = u64::MAX;
    for params in [
        &[("scale", "12")][..],
        &[("scale", "12"), ("populate", "no")],
        &[("scale", "12"), ("populate", "timed")],
        &[("scale", "12"), ("populate", "100KiB")],
        &[("scale", "12"), ("converge", "yes")],
        &[("scale", "12"), ("degree", "40"), ("graph", "uniform")],
        &[("scale", "12"), ("symmetric", "yes")],
        &[("scale", "12"), ("direction", "push")],
    ] {
        check("pr", params, 300, (all, all));
    }
    for more in 0..60 {
        // In the first loop, in the second, and after it.
        for base in [20_000, 100_000, 430_000] {
            check("pr", &[], 130, (base + 7 * more, all));
        }
    }
}

/// Freed memory has to be touched again. Shortcut queries get results.
#[test]
fn changes_and_questions_are_seen() {
    for name in [
        "kv-hash", "kv-dense", "kv-map", "kv-btree", "kv-flat", "kv-redis",
    ] {
        let mut params = vec![
            ("keys", "1000"),
            ("sets", "40"),
            ("deletes", "20"),
            ("resize", "yes"),
            ("populate", "timed"),
        ];
        check(name, &params, 400, (u64::MAX, u64::MAX));
        params.push(("shortcut", "stlt"));
        check(name, &params, 400, (u64::MAX, u64::MAX));
    }
    check("churn", &[("rounds", "3")], 400, (u64::MAX, u64::MAX));
    check(
        "churn",
        &[("rounds", "3"), ("arena", "4KiB")],
        400,
        (2_000_000, u64::MAX),
    );
}
