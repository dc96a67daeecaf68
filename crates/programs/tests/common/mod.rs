//! Runs a built-in program as a machine does, and keeps its output.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file takes what it needs"
)]

use std::collections::BTreeMap;

use pagewalk_programs::Options;
use pagewalk_stream::{Batch, End, Event, Op, OpClass, Program};

use crate::waits::Waits;

/// Options of a built-in program.
pub fn options(size: Option<u64>, threads: u32, seed: u64, params: &[(&str, &str)]) -> Options {
    Options {
        size_bytes: size,
        threads,
        seed,
        params: params
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
    }
}

/// Output of one thread: its ops and events.
#[derive(Default, PartialEq, Debug)]
pub struct ThreadOutput {
    /// Ops in program order.
    pub ops: Vec<Op>,
    /// Events, each with the number of ops before it.
    pub events: Vec<(usize, Event)>,
}

/// Runs to the end. `pick` chooses the next of the runnable threads.
pub fn run(
    program: &mut dyn Program,
    mut pick: impl FnMut(&[u32]) -> usize,
) -> BTreeMap<u32, ThreadOutput> {
    let mut given = BTreeMap::from([(0, ThreadOutput::default())]);
    let mut live = vec![0u32];
    let mut batch = Batch::new();
    let mut waits = Waits::default();
    while !live.is_empty() {
        let free = waits.free(&live);
        assert!(!free.is_empty(), "all threads wait");
        let thread = free[pick(&free)];
        let end = program.fill(thread, &mut batch).unwrap();
        let mine = given.get_mut(&thread).unwrap();
        mine.ops.extend_from_slice(&batch.ops);
        assert!(batch.ops.len() <= pagewalk_stream::BATCH_OPS);
        waits.see(thread, &batch, &end);
        match end {
            End::More => {}
            End::Barrier { .. } => {}
            End::Event { event, ticket } => {
                assert_eq!(ticket, 0);
                mine.events.push((mine.ops.len(), event.clone()));
                if let Event::Spawn { thread } = event {
                    live.push(thread);
                    given.insert(thread, ThreadOutput::default());
                }
            }
            End::Exit => live.retain(|t| *t != thread),
            other => panic!("{other:?}"),
        }
    }
    given
}

/// Chooses the first runnable thread.
pub fn first(_: &[u32]) -> usize {
    0
}

/// Mappings that the first thread makes: start and end of each.
pub fn mappings(given: &BTreeMap<u32, ThreadOutput>) -> Vec<(u64, u64)> {
    maps_of(&given[&0]).collect()
}

fn maps_of(given: &ThreadOutput) -> impl Iterator<Item = (u64, u64)> {
    given.events.iter().filter_map(|(_, e)| match e {
        Event::Map { at, bytes, .. } => Some((at.0, at.0 + bytes)),
        _ => None,
    })
}

/// Checks that dependences and addresses of all ops are valid.
pub fn check_stream(given: &BTreeMap<u32, ThreadOutput>) {
    let mut maps: Vec<_> = given.values().flat_map(maps_of).collect();
    maps.sort_unstable();
    // Adjacent mappings, such as growth by `brk`, are merged.
    maps.dedup_by(|next, last| {
        let adjacent = next.0 <= last.1;
        last.1 = if adjacent { last.1.max(next.1) } else { last.1 };
        adjacent
    });
    for mine in given.values() {
        for (at, op) in mine.ops.iter().enumerate() {
            for dep in op.dep {
                assert!(
                    usize::from(dep) <= at,
                    "a producer before the start: {op:?}"
                );
            }
            if op.kind == OpClass::Load || op.kind == OpClass::Store {
                let end = op.va + u64::from(op.size);
                assert!(
                    maps.iter().any(|m| m.0 <= op.va && end <= m.1),
                    "outside of all mappings: {op:?}"
                );
            }
            assert!(op.kind != OpClass::Branch || op.latency >= 1);
        }
    }
}
