//! Tests of the fan-out: machines take their batches in all orders.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagewalk_stream::{
    Batch, ClockQuery, End, Error, Event, Facts, KernelFile, Op, OpClass, Program, ShortcutQuery,
    ThreadId,
};

use super::{Detail, Fanout, FastForwarding, LOOKAHEAD, SKIPPED_LOOKAHEAD, Supply, WINDOW, Work};
use crate::wake_signal::{WakeSignal, lock};

/// Detail of a machine that needs all operations.
const ALL: (Detail, Work) = (
    Detail::Full,
    Work {
        instructions: u64::MAX,
        requests: u64::MAX,
    },
);

fn fanout(program: impl Program + 'static, machines: usize) -> Fanout {
    Fanout::new(
        Box::new(program),
        machines,
        (false, FastForwarding::Never),
        Arc::default(),
    )
}

/// The unfinished machine that has progressed least.
fn slowest(fanout: &Fanout) -> usize {
    let progress = fanout.progress();
    let unfinished = (0..progress.len()).filter(|&m| progress[m].is_some());
    unfinished.min_by_key(|&m| progress[m]).unwrap()
}

/// Program with counting threads: operation i of thread t has pc = t << 32 | i.
struct Counting {
    left: Vec<u64>,
    made: Vec<u64>,
}

impl Program for Counting {
    fn facts(&self) -> Facts {
        Facts {
            deterministic: true,
            ..Facts::default()
        }
    }
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let t = thread as usize;
        if self.left[t] == 0 {
            return Ok(End::Exit);
        }
        self.left[t] -= 1;
        for _ in 0..4 {
            batch.ops.push(Op {
                pc: u64::from(thread) << 32 | self.made[t],
                insns: 1,
                ..Op::default()
            });
            self.made[t] += 1;
        }
        Ok(End::More)
    }
}

fn drain(
    fanout: &Fanout,
    machine: usize,
    thread: ThreadId,
    n: usize,
) -> (Vec<u64>, Option<Supply>) {
    let mut seen = vec![];
    for _ in 0..n {
        match fanout.next(machine, thread, ALL).unwrap() {
            Supply::Item(item) => {
                assert_eq!(item.instructions, item.batch.instructions());
                seen.extend(item.batch.ops.iter().map(|o| o.pc));
                fanout.recycle(item);
            }
            other => return (seen, Some(other)),
        }
    }
    (seen, None)
}

#[test]
fn every_machine_sees_every_op_of_every_thread_in_order() {
    let fanout = fanout(
        Counting {
            left: vec![10, 10],
            made: vec![0, 0],
        },
        3,
    );
    for machine in [2, 0, 1] {
        for thread in [1, 0] {
            let (seen, _) = drain(&fanout, machine, thread, 10);
            assert_eq!(
                seen,
                (0..40)
                    .map(|i| u64::from(thread) << 32 | i)
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_machine_may_run_ahead_by_the_window_and_no_more() {
    let fanout = fanout(
        Counting {
            left: vec![1000],
            made: vec![0],
        },
        2,
    );
    let (_, stop) = drain(&fanout, 0, 0, 1000);
    assert!(matches!(stop, Some(Supply::Ahead)));
    let (seen, _) = drain(&fanout, 1, 0, 10);
    assert_eq!(seen.len(), 40);
    let (more, stop) = drain(&fanout, 0, 0, 1000);
    assert_eq!(more.len(), 40);
    assert!(matches!(stop, Some(Supply::Ahead)));
}

/// The detail that a machine needs before an event does not hold after the event.
#[test]
fn no_batch_is_prefetched_past_an_event() {
    /// Counts its batches, the third of which ends with an event, and the granted instructions.
    struct Granted(Counting, Arc<Mutex<(u64, u64)>>);
    impl Program for Granted {
        fn facts(&self) -> Facts {
            self.0.facts()
        }
        fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
            let mut counts = lock(&self.1);
            counts.0 += 1;
            let end = self.0.fill(thread, batch)?;
            let event = Event::RoiBegin;
            Ok(match counts.0 {
                3 => End::Event { event, ticket: 0 },
                _ => end,
            })
        }
        fn grant_fast_forward(&mut self, instructions: u64, _: u64) {
            lock(&self.1).1 += instructions;
        }
        fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
            self.grant_fast_forward(instructions, requests);
        }
    }
    // Fast-forwarded batches are made in large groups, once none is left.
    for (detail, left, soon) in [
        (Detail::FilteredWarm, 1, LOOKAHEAD),
        (Detail::FastForward, 0, SKIPPED_LOOKAHEAD),
    ] {
        let counts = Arc::new(Mutex::new((0, 0)));
        let counting = Counting {
            left: vec![1000],
            made: vec![0],
        };
        let program = Granted(counting, Arc::clone(&counts));
        let fanout = Fanout::new(
            Box::new(program),
            2,
            (false, FastForwarding::ByInstructions),
            Arc::default(),
        );
        let skips = (detail, Work::instructions(1_000_000));
        let take = |machine, detail| {
            let supply = fanout.next(machine, 0, detail);
            assert!(matches!(supply, Ok(Supply::Item(_))));
            *lock(&counts)
        };
        assert_eq!(take(0, ALL), (1, 0), "nothing was there");
        for made in 2..=5 {
            assert_eq!(take(0, ALL), (made, 0));
        }
        for _ in 0..4 - left {
            assert_eq!(take(1, skips), (5, 0));
        }
        // After the event, batches are prefetched again, and fast-forwarding is granted.
        let (made, skipped) = take(1, skips);
        assert_eq!((made, skipped > 0), (5 - left + soon, true));
    }
}

/// While a batch of an only thread is made, another machine lets others run. With several threads it
/// waits, so that the results do not depend on the order.
#[test]
fn a_machine_waits_for_a_batch_being_made_only_if_results_depend_on_it() {
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Signals that it makes a batch of thread 0, and makes it when released.
    struct Slow(Counting, Sender<()>, Receiver<()>);
    impl Program for Slow {
        fn facts(&self) -> Facts {
            self.0.facts()
        }
        fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
            if thread == 0 {
                self.1.send(()).unwrap();
                _ = self.2.recv();
            }
            self.0.fill(thread, batch)
        }
    }
    let item = |supply| matches!(supply, Ok(Supply::Item(_)));
    for threads in [1, 2] {
        let counting = Counting {
            left: vec![1000; threads],
            made: vec![0; threads],
        };
        let ((makes, making), (go, go_on)) = (channel(), channel());
        let fanout = fanout(Slow(counting, makes, go_on), 2);
        if threads == 2 {
            assert!(item(fanout.next(1, 1, ALL)));
        }
        std::thread::scope(|s| {
            let first = s.spawn(|| item(fanout.next(0, 0, ALL)));
            making.recv().unwrap();
            let second = s.spawn(|| fanout.next(1, 0, ALL));
            if threads == 1 {
                let supply = second.join().unwrap();
                assert!(matches!(supply, Ok(Supply::Ahead)), "{supply:?}");
                drop(go);
                assert!(first.join().unwrap());
                assert!(item(fanout.next(1, 0, ALL)));
            } else {
                std::thread::sleep(Duration::from_millis(20));
                assert!(!second.is_finished());
                go.send(()).unwrap();
                assert!(first.join().unwrap() && item(second.join().unwrap()));
            }
        });
    }
}

#[test]
fn machines_ahead_on_different_threads_do_not_starve_each_other() {
    let fanout = fanout(
        Counting {
            left: vec![1000, 1000],
            made: vec![0, 0],
        },
        2,
    );
    drain(&fanout, 0, 0, 1000);
    drain(&fanout, 1, 1, 1000);
    // Each machine is ahead on one thread. Taking turns by least progress, both finish the other thread.
    let mut done = [0, 0];
    for _ in 0..100_000 {
        let m = slowest(&fanout);
        let other = 1 - m as u32;
        match fanout.next(m, other, ALL).unwrap() {
            Supply::Item(item) => done[m] += item.batch.ops.len(),
            Supply::Ahead => panic!("the slowest machine is never ahead"),
            Supply::Empty => unreachable!(),
        }
        if done[0] >= 4000 && done[1] >= 4000 {
            return;
        }
    }
    panic!("no end: {done:?}");
}

#[test]
fn waiting_for_the_program_blocks_no_queued_batch() {
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// One batch, then nothing until it is released.
    struct Live {
        given: u32,
        waits: Sender<()>,
        go_on: Receiver<()>,
    }
    impl Program for Live {
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
            batch.ops.clear();
            self.given += 1;
            match self.given {
                1 | 3 => batch.ops.push(Op {
                    insns: 1,
                    ..Op::default()
                }),
                2 => return Ok(End::Empty),
                _ => return Ok(End::Exit),
            }
            Ok(End::More)
        }
        fn wait(&mut self) {
            self.waits.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
    }
    let ((waits, waiting), (go, go_on)) = (channel(), channel());
    let program = Live {
        given: 0,
        waits,
        go_on,
    };
    let fanout = fanout(program, 2);
    let item = |supply| matches!(supply, Ok(Supply::Item(_)));
    assert!(item(fanout.next(0, 0, ALL)));
    assert!(matches!(fanout.next(0, 0, ALL), Ok(Supply::Empty)));
    std::thread::scope(|s| {
        s.spawn(|| fanout.wait_for_program());
        waiting.recv().unwrap();
        // A queued batch is returned at once, although the other machine waits.
        assert!(item(fanout.next(1, 0, ALL)));
        // A batch that is not made yet arrives when the other machine stops waiting.
        let requests = s.spawn(|| item(fanout.next(1, 0, ALL)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!requests.is_finished());
        go.send(()).unwrap();
        assert!(requests.join().unwrap());
    });
}

#[test]
fn a_queued_batch_is_taken_while_another_is_made() {
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Two batches at once, the third when it is released.
    struct Slow {
        given: u32,
        makes: Sender<()>,
        go_on: Receiver<()>,
    }
    impl Program for Slow {
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
            batch.ops.clear();
            self.given += 1;
            if self.given == 3 {
                self.makes.send(()).unwrap();
                self.go_on.recv().unwrap();
            }
            batch.ops.push(Op::default());
            Ok(End::More)
        }
    }
    let ((makes, making), (go, go_on)) = (channel(), channel());
    let program = Slow {
        given: 0,
        makes,
        go_on,
    };
    let fanout = fanout(program, 2);
    let item = |supply| matches!(supply, Ok(Supply::Item(_)));
    assert!(item(fanout.next(0, 0, ALL)) && item(fanout.next(0, 0, ALL)));
    std::thread::scope(|s| {
        let first = s.spawn(|| item(fanout.next(0, 0, ALL)));
        making.recv().unwrap();
        let second = s.spawn(|| item(fanout.next(1, 0, ALL)) && item(fanout.next(1, 0, ALL)));
        for _ in 0..6000 {
            if second.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let waited = !second.is_finished();
        go.send(()).unwrap();
        assert!(first.join().unwrap() && second.join().unwrap());
        assert!(!waited, "waited for the batch of another");
    });
}

#[test]
fn a_finished_machine_holds_nobody_up() {
    let fanout = fanout(
        Counting {
            left: vec![1000],
            made: vec![0],
        },
        2,
    );
    drain(&fanout, 0, 0, 1000);
    fanout.finish(1);
    let (seen, stop) = drain(&fanout, 0, 0, 2000);
    assert!(
        stop.is_none() || !matches!(stop, Some(Supply::Ahead)),
        "{stop:?}"
    );
    assert!(seen.len() as u64 >= 4 * (1000 - WINDOW) - 8);
}

#[test]
fn a_finished_machine_holds_up_no_thread_that_starts_later() {
    let fanout = fanout(
        Counting {
            left: vec![1, 1000],
            made: vec![0, 0],
        },
        3,
    );
    fanout.finish(2);
    let (seen, _) = drain(&fanout, 0, 1, 40);
    assert_eq!(seen.len(), 160);
    let (seen, _) = drain(&fanout, 1, 1, 40);
    assert_eq!(seen.len(), 160);
    assert!(
        lock(&fanout.state).threads[&1].items.is_empty(),
        "items are kept"
    );
}

/// Every thread starts the next one and ends.
#[derive(Clone, Default)]
struct Chain {
    started: Arc<Mutex<Vec<ThreadId>>>,
    gone: Arc<Mutex<Vec<ThreadId>>>,
}

impl Program for Chain {
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn fill(&mut self, me: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let mut started = self.started.lock().unwrap();
        if started.contains(&me) {
            return Ok(End::Exit);
        }
        started.push(me);
        let event = Event::Spawn { thread: me + 1 };
        Ok(End::Event { event, ticket: 0 })
    }
    fn gone(&mut self, thread: ThreadId) {
        self.gone.lock().unwrap().push(thread);
    }
}

#[test]
fn a_thread_that_has_ended_or_is_gone_leaves_no_queue() {
    let program = Chain::default();
    let fanout = fanout(program.clone(), 2);
    let item = |supply| matches!(supply, Ok(Supply::Item(_)));
    for thread in 0..100 {
        for machine in [0, 1] {
            assert!(item(fanout.next(machine, thread, ALL)));
            // The process of every third thread ends.
            if thread % 3 == 0 {
                fanout.gone(machine, thread);
            } else {
                assert!(item(fanout.next(machine, thread, ALL)));
            }
        }
        let kept: Vec<ThreadId> = lock(&fanout.state).threads.keys().copied().collect();
        assert_eq!(kept, [thread + 1]);
    }
    assert!(
        program
            .gone
            .lock()
            .unwrap()
            .iter()
            .copied()
            .eq((0..100).step_by(3))
    );
}

#[test]
fn a_machine_that_ends_first_leaves_no_finished_queues() {
    let program = Chain::default();
    let fanout = fanout(program.clone(), 2);
    let item = |supply| matches!(supply, Ok(Supply::Item(_)));
    for thread in 0..30 {
        assert!(item(fanout.next(1, thread, ALL)));
        if thread % 3 == 0 {
            fanout.gone(1, thread);
        } else {
            assert!(item(fanout.next(1, thread, ALL)));
        }
        // The other machine progresses less.
        assert!(thread > 10 || item(fanout.next(0, thread, ALL)));
    }
    let kept = || {
        lock(&fanout.state)
            .threads
            .keys()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(), (0..=30).collect::<Vec<_>>());
    fanout.finish(0);
    assert_eq!(kept(), [30], "the thread that goes on");
    let gone = || lock(&program.gone).clone();
    let ended: Vec<ThreadId> = (0..30).step_by(3).collect();
    assert_eq!(gone(), ended, "their processes have ended");
    // The end of the run is not the end of a process.
    fanout.finish(1);
    assert_eq!((kept(), gone()), (vec![], ended));
}

/// Queries in each batch, and puts the result into the pc of the next operation.
#[derive(Clone, Default)]
struct Querying {
    results: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Program for Querying {
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let integer = lock(&self.results).len() as u64;
        batch.ops.push(Op {
            insns: 1,
            kind: OpClass::Query,
            ..Op::default()
        });
        Ok(End::Query(ShortcutQuery::LoadVa { integer }))
    }
    fn shortcut_result(&mut self, _: ThreadId, reply: Option<u64>) {
        lock(&self.results).push(reply);
    }
}

#[test]
fn without_a_shortcut_each_query_gets_one_empty_result() {
    let program = Querying::default();
    let fanout = fanout(program.clone(), 2);
    for machine in [0, 1] {
        for integer in 0..3 {
            let Ok(Supply::Item(item)) = fanout.next(machine, 0, ALL) else {
                panic!("no item")
            };
            assert_eq!(item.end, End::Query(ShortcutQuery::LoadVa { integer }));
            fanout.shortcut_result(0, Some(7));
        }
    }
    assert_eq!(*lock(&program.results), [None, None, None]);
}

#[test]
fn the_only_machine_returns_query_results() {
    let program = Querying::default();
    let fanout = Fanout::new(
        Box::new(program.clone()),
        1,
        (true, FastForwarding::Never),
        Arc::new(WakeSignal::default()),
    );
    for reply in [Some(5), Some(0)] {
        assert!(matches!(fanout.next(0, 0, ALL), Ok(Supply::Item(_))));
        fanout.shortcut_result(0, reply);
    }
    assert_eq!(*lock(&program.results), [Some(5), Some(0)]);
}

/// Reads a file of the kernel in each batch.
#[derive(Clone, Default)]
struct Reading {
    contents: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
}

impl Program for Reading {
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        Ok(End::ReadKernel(KernelFile {
            path: "/proc/meminfo".into(),
            offset: 0,
            bytes: 0,
        }))
    }
    fn kernel_file(&mut self, _: ThreadId, contents: Option<Vec<u8>>) {
        lock(&self.contents).push(contents);
    }
}

#[test]
fn the_first_machine_that_still_runs_answers_for_the_kernel() {
    let program = Reading::default();
    let fanout = fanout(program.clone(), 3);
    let comes = |machine: usize, number: u64| {
        let item = fanout.next(machine, 0, ALL);
        assert!(matches!(item, Ok(Supply::Item(_))));
        fanout.kernel_file(machine, 0, number, Some(vec![machine as u8]));
    };
    comes(1, 1);
    assert!(lock(&program.contents).is_empty());
    comes(0, 1);
    assert_eq!(*lock(&program.contents), [Some(vec![0])]);
    // The second file: a machine that is still at the first one says nothing about it.
    comes(1, 2);
    comes(2, 1);
    assert_eq!(lock(&program.contents).len(), 1);
    fanout.finish(0);
    assert_eq!(lock(&program.contents)[1..], [Some(vec![1])]);
    comes(1, 3);
    assert_eq!(lock(&program.contents)[2..], [Some(vec![1])]);
}

/// Asks for the time in each batch.
#[derive(Clone, Default)]
struct Asking {
    results: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Program for Asking {
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        Ok(End::Clock(ClockQuery::Time))
    }
    fn shortcut_result(&mut self, _: ThreadId, reply: Option<u64>) {
        lock(&self.results).push(reply);
    }
}

#[test]
fn the_first_machine_that_has_not_ended_tells_the_time() {
    let program = Asking::default();
    let fanout = fanout(program.clone(), 2);
    let results = || lock(&program.results).clone();
    let takes = |machine| matches!(fanout.next(machine, 0, ALL), Ok(Supply::Item(_)));
    // The second machine is ahead, and waits for the answer of the first.
    assert!(takes(1));
    fanout.clock_result(1, 0, 50);
    assert!(matches!(fanout.next(1, 0, ALL), Ok(Supply::Ahead)));
    assert_eq!(results(), []);
    assert!(takes(0));
    fanout.clock_result(0, 0, 70);
    assert_eq!(results(), [Some(70)]);
    // The first machine ends before it comes to the next question. Times do not decrease.
    assert!(takes(1));
    fanout.clock_result(1, 0, 60);
    assert_eq!(results(), [Some(70)]);
    fanout.finish(0);
    assert_eq!(results(), [Some(70), Some(70)]);
    assert!(takes(1));
    fanout.clock_result(1, 0, 80);
    assert_eq!(results(), [Some(70), Some(70), Some(80)]);
}
