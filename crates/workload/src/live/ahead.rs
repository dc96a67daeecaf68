//! Reading beside the engine: a thread of the host that turns rings into batches
//! while the engine simulates what came before.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagewalk_stream::{Batch, End, Event, Facts, Program, ProgramError, ThreadId};

use super::{Live, error};

/// Batches of one thread that wait at most: 2 MB.
const AHEAD: usize = 16;
/// How long the reader sleeps before it looks again at a thread that has had nothing.
const LOOK: Duration = Duration::from_millis(1);

/// What was read of a thread.
#[derive(Default)]
struct Line {
    items: VecDeque<(Batch, End)>,
    /// It waits in the kernel, since the last item.
    blocked: bool,
    ended: bool,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    pool: Vec<Batch>,
    failed: Option<ProgramError>,
    /// The engine can do nothing with what it has: the program has to go on,
    /// even if more has to be held for another thread.
    starved: bool,
    /// The exit status is wanted, and the answer.
    asked: bool,
    status: Option<Option<i32>>,
    /// The reader is to end, and that it has.
    closing: bool,
    gone: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// For the engine: there is something new.
    filled: Condvar,
    /// For the reader: there is room, or a question.
    room: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A live program that is read ahead.
pub(crate) struct Ahead {
    facts: Facts,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

impl Ahead {
    pub fn start(live: Live) -> Result<Ahead, ProgramError> {
        let facts = live.facts();
        let shared = Arc::new(Shared::default());
        shared.state().lines.push(Line::default());
        let theirs = shared.clone();
        let reader = std::thread::Builder::new()
            .name("live-reader".into())
            .spawn(move || {
                let leaves = Leaves(theirs);
                read(live, &leaves.0);
            })
            .map_err(|e| error(format!("cannot start a thread: {e}")))?;
        Ok(Ahead {
            facts,
            shared,
            reader: Some(reader),
        })
    }
}

/// Tells the engine that the reader is no more, however it ended.
struct Leaves(Arc<Shared>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.state().gone = true;
        self.0.filled.notify_all();
    }
}

fn read(mut live: Live, shared: &Shared) {
    let mut number = 1;
    loop {
        let mut moved = false;
        for thread in 0..number {
            let mut state = shared.state();
            if state.closing {
                return;
            }
            if std::mem::take(&mut state.asked) {
                drop(state);
                let status = live.exit_status();
                state = shared.state();
                state.status = Some(status);
                shared.filled.notify_all();
            }
            let line = &state.lines[thread];
            if line.ended || line.items.len() >= AHEAD {
                continue;
            }
            let mut batch = state.pool.pop().unwrap_or_default();
            drop(state);
            let end = live.fill(thread as ThreadId, &mut batch);
            let mut state = shared.state();
            let end = match end {
                Ok(end) => end,
                Err(e) => {
                    state.failed = Some(e);
                    return;
                }
            };
            let line = &mut state.lines[thread];
            let nothing = end == End::Empty || end == End::Blocked && line.blocked;
            if nothing && batch.ops.is_empty() {
                state.pool.push(batch);
                continue;
            }
            moved = true;
            line.blocked = end == End::Blocked;
            line.ended = end == End::Exit;
            let made = match &end {
                End::Event {
                    event: Event::Spawn { thread } | Event::Fork { thread, .. },
                    ..
                } => *thread as usize + 1,
                _ => 0,
            };
            line.items.push_back((batch, end));
            if made > state.lines.len() {
                state.lines.resize_with(made, Line::default);
            }
            shared.filled.notify_all();
        }
        let state = shared.state();
        number = state.lines.len();
        if moved || state.asked || state.closing {
            continue;
        }
        let full = |l: &Line| !l.ended && l.items.len() >= AHEAD;
        if state.lines.iter().all(|l| l.ended || full(l)) {
            drop(shared.room.wait(state));
        } else if state.lines.iter().any(full) && !state.starved {
            // The program must not run further ahead for the sake of threads
            // that wait: the engine is the one to wait for.
            drop(shared.room.wait_timeout(state, LOOK));
        } else {
            drop(state);
            live.wait_at_most(LOOK * 5);
        }
    }
}

impl Program for Ahead {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let Some(line) = state.lines.get_mut(thread as usize) else {
            return Err(error(format!("there is no thread {thread}")));
        };
        if let Some((next, end)) = line.items.pop_front() {
            // Half the room at a time, so that the reader does not wake for each batch.
            let wake = line.items.len() == AHEAD / 2;
            state.starved = false;
            state.pool.push(std::mem::replace(batch, next));
            drop(guard);
            if wake {
                self.shared.room.notify_one();
            }
            return Ok(end);
        }
        if line.ended {
            return Ok(End::Exit);
        }
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        if state.gone {
            return Err(error(
                "the reader of the program stopped unexpectedly (a defect of Pagewalk)",
            ));
        }
        Ok(if line.blocked {
            End::Blocked
        } else {
            End::Empty
        })
    }

    fn wait(&mut self) {
        let mut state = self.shared.state();
        state.starved = true;
        self.shared.room.notify_one();
        // Short: who waits may hold up other designs.
        drop(self.shared.filled.wait_timeout(state, LOOK));
    }

    fn exit_status(&self) -> Option<i32> {
        let mut state = self.shared.state();
        state.asked = true;
        state.status = None;
        self.shared.room.notify_one();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(status) = state.status {
                return status;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.gone || left.is_zero() {
                return None;
            }
            state = self
                .shared
                .filled
                .wait_timeout(state, left)
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.room.notify_all();
        if let Some(reader) = self.reader.take() {
            // A panic there has been shown; there is nothing to add to it.
            drop(reader.join());
        }
    }
}
