//! The smallest machine that meets the contract of `Program`. Threads take turns, and a change of an address space
//! takes effect when all its runnable threads have met.

use std::collections::BTreeMap;

use pagewalk_stream::{
    Batch, End, Error, Event, Op, OpClass, ProcessId, Program, ShortcutQuery, ThreadId,
};

#[derive(Clone, Debug, PartialEq)]
enum ThreadState {
    Runs,
    /// It has waited, and may have continued since: batches read ahead come later.
    MayRun,
    Blocked,
    /// At `Meet` with this ticket.
    Meets(u64),
    /// Has an event of its own.
    Changes(Event, u64),
    Gone,
}

/// Outcome of a run.
#[derive(Default, Debug)]
pub struct Outcome {
    pub instructions: u64,
    pub ops: u64,
    pub loads: u64,
    pub stores: u64,
    pub threads: usize,
    pub processes: usize,
    pub status: Option<i32>,
    /// Events in the order in which they took effect, with process and thread.
    pub events: Vec<(ProcessId, ThreadId, Event)>,
}

/// Runs `program` to its end. `see` gets each batch with its process and thread, and each event once it has taken
/// effect. Queries get no result.
pub fn run(
    program: &mut dyn Program,
    see: impl FnMut(ProcessId, ThreadId, &[Op]),
    effect: impl FnMut(ProcessId, ThreadId, &Event),
) -> Result<Outcome, Error> {
    run_answered(program, see, effect, |_, _| None)
}

/// As [`run`], with a result for each query.
pub fn run_answered(
    program: &mut dyn Program,
    mut see: impl FnMut(ProcessId, ThreadId, &[Op]),
    mut effect: impl FnMut(ProcessId, ThreadId, &Event),
    mut answer: impl FnMut(ProcessId, ShortcutQuery) -> Option<u64>,
) -> Result<Outcome, Error> {
    let mut threads: BTreeMap<ThreadId, (ProcessId, ThreadState)> = BTreeMap::new();
    threads.insert(0, (0, ThreadState::Runs));
    let mut applied: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let mut out = Outcome {
        threads: 1,
        processes: 1,
        ..Outcome::default()
    };
    let mut batch = Batch::new();
    let mut idle = 0;
    while threads.values().any(|(_, s)| *s != ThreadState::Gone) {
        let mut progress = false;
        let ids: Vec<ThreadId> = threads.keys().copied().collect();
        for id in ids {
            let (process, state) = threads[&id].clone();
            let next = match state {
                ThreadState::Gone => continue,
                ThreadState::Meets(t) if applied.get(&process).copied().unwrap_or(0) < t => {
                    continue;
                }
                ThreadState::Changes(event, ticket) => {
                    let ready = ticket == 0
                        || threads.iter().all(|(&o, (p, s))| {
                            o == id
                                || *p != process
                                || match s {
                                    ThreadState::Runs | ThreadState::MayRun => false,
                                    ThreadState::Meets(t) => *t >= ticket,
                                    // A change without a ticket waits for no thread: it takes effect first, perhaps
                                    // before an earlier change.
                                    ThreadState::Changes(_, t) => *t >= ticket,
                                    ThreadState::Blocked | ThreadState::Gone => true,
                                }
                        });
                    if !ready {
                        continue;
                    }
                    progress = true;
                    if ticket > 0 {
                        let last = applied.entry(process).or_insert(0);
                        assert!(ticket > *last, "ticket {ticket} after {last}: {event:?}");
                        *last = ticket;
                    }
                    match &event {
                        Event::Spawn { thread } => {
                            threads.insert(*thread, (process, ThreadState::Runs));
                            out.threads += 1;
                        }
                        Event::Fork {
                            process: child,
                            thread,
                        } => {
                            threads.insert(*thread, (*child, ThreadState::Runs));
                            out.processes += 1;
                        }
                        Event::ProcessExit { .. } => {
                            for (p, s) in threads.values_mut() {
                                if *p == process {
                                    *s = ThreadState::Gone;
                                }
                            }
                        }
                        _ => {}
                    }
                    effect(process, id, &event);
                    let gone = matches!(event, Event::ProcessExit { .. });
                    out.events.push((process, id, event));
                    if gone {
                        ThreadState::Gone
                    } else {
                        ThreadState::Runs
                    }
                }
                ThreadState::Runs
                | ThreadState::MayRun
                | ThreadState::Blocked
                | ThreadState::Meets(_) => {
                    let waited = matches!(state, ThreadState::MayRun | ThreadState::Blocked);
                    let end = program.fill(id, &mut batch)?;
                    assert!(batch.ops.len() <= pagewalk_stream::BATCH_OPS);
                    out.ops += batch.ops.len() as u64;
                    out.instructions += batch.instructions();
                    let before = batch.ops.split_last().map_or(&[][..], |(_, ops)| ops);
                    assert!(before.iter().all(|o| o.kind != OpClass::Query));
                    for op in &batch.ops {
                        out.loads += u64::from(op.kind == OpClass::Load);
                        out.stores += u64::from(op.kind == OpClass::Store);
                    }
                    progress |= !batch.ops.is_empty();
                    see(process, id, &batch.ops);
                    match end {
                        End::More => ThreadState::Runs,
                        End::Empty => ThreadState::Runs,
                        End::Query(query) => {
                            progress = true;
                            assert_eq!(batch.ops.last().map(|o| o.kind), Some(OpClass::Query));
                            program.shortcut_result(id, answer(process, query));
                            ThreadState::Runs
                        }
                        End::ReadKernel(_) => {
                            progress = true;
                            program.kernel_file(id, None);
                            ThreadState::Runs
                        }
                        End::Blocked if batch.ops.is_empty() && waited => ThreadState::Blocked,
                        End::Blocked => ThreadState::MayRun,
                        End::Barrier { .. } | End::Wait { .. } => {
                            unreachable!("of recorded and built-in programs only")
                        }
                        End::Clock(_) => unreachable!("the clocks are the emulator's"),
                        End::Meet { ticket } => {
                            progress = true;
                            ThreadState::Meets(ticket)
                        }
                        End::Event { event, ticket } => {
                            progress = true;
                            ThreadState::Changes(event, ticket)
                        }
                        End::Exit => {
                            progress = true;
                            ThreadState::Gone
                        }
                    }
                }
            };
            if let Some(entry) = threads.get_mut(&id) {
                entry.1 = next;
            }
        }
        if progress {
            idle = 0;
        } else {
            program.wait();
            idle += 1;
            assert!(idle < 600, "nothing happens for a minute: {threads:?}");
        }
    }
    out.status = program.exit_status();
    Ok(out)
}
