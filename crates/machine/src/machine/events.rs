//! Ends of batches and program events.

use pagewalk_os::{Effects, OsError};
use pagewalk_stream::{End, Event, ProcessId, RecentLineFilter, ThreadId};

use super::{Machine, Outcome};
use crate::fanout::Fanout;
use crate::thread::{Process, ThreadState};

impl Machine {
    /// Handles the end of a batch.
    pub(super) fn act_on_end(
        &mut self,
        fanout: &Fanout,
        me: usize,
        id: ThreadId,
        core: usize,
        end: End,
    ) -> Result<(), Outcome> {
        match end {
            End::More | End::Empty => {}
            End::Query(_) => {
                let thread = self.threads.get_mut(&id).expect("it runs");
                fanout.shortcut_result(id, thread.query_result.take());
            }
            End::ReadKernel(file) => {
                let thread = self.threads.get_mut(&id).expect("it runs");
                thread.files += 1;
                let (number, process) = (thread.files, thread.process);
                let pid = self.processes[&process].pid;
                fanout.kernel_file(me, id, number, self.os.kernel_file(pid, &file));
            }
            End::Clock(query) => self.ask_clock(fanout, me, id, core, query),
            // Operations of other threads before this end may not have run yet.
            End::Event {
                event: event @ Event::ProcessExit { .. },
                ..
            } => {
                self.release(id, core, ThreadState::Changing(event, u64::MAX));
                self.settle(fanout, me, false)?;
            }
            End::Event { event, ticket: 0 } => self.act_on(id, core, event)?,
            End::Event { event, ticket } => {
                self.release(id, core, ThreadState::Changing(event, ticket));
                self.settle(fanout, me, false)?;
            }
            End::Meet { ticket } => {
                let process = self.threads[&id].process;
                if self.processes[&process].applied < ticket {
                    self.release(id, core, ThreadState::Meeting(ticket));
                    self.settle(fanout, me, false)?;
                }
            }
            End::Barrier { number } => {
                self.threads.get_mut(&id).expect("it runs").barrier = number;
                self.release(id, core, ThreadState::AtBarrier(number));
                self.settle(fanout, me, false)?;
            }
            End::Wait { until, counted } => {
                self.release(id, core, ThreadState::Waiting(until, counted));
                self.settle(fanout, me, false)?;
            }
            End::Blocked => {
                self.release(id, core, ThreadState::Blocked);
                self.settle(fanout, me, false)?;
            }
            End::Exit => {
                self.release(id, core, ThreadState::Ready);
                self.bury(id);
                self.settle(fanout, me, false)?;
            }
        }
        Ok(())
    }

    /// Applies the event, and charges its cost to `core`.
    pub(super) fn act_on(
        &mut self,
        id: ThreadId,
        core: usize,
        event: Event,
    ) -> Result<(), Outcome> {
        let process = self.threads[&id].process;
        let pid = self.processes[&process].pid;
        if let Event::Spawn { thread } | Event::Fork { thread, .. } = &event
            && (self.threads.contains_key(thread) || self.ended.contains(*thread))
        {
            return Err(Outcome::Program(format!(
                "the program starts thread {thread} twice: the recording is damaged"
            )));
        }
        if let (Event::Spawn { .. } | Event::Fork { .. }, Some(_)) =
            (&event, self.plan.unfinished_region())
        {
            return Err(Outcome::Program(
                "the program starts a second thread, and threads go through a trace in an order of the simulated machine's own, so no region lies where it was found: expected --sample instead of --regions".to_owned(),
            ));
        }
        let part = self.part_of(process);
        let mut fx = std::mem::take(&mut self.effects);
        let forks = matches!(event, Event::Fork { .. });
        self.recent_lines
            .iter_mut()
            .for_each(RecentLineFilter::forget);
        if let (Some(room), Event::Map { bytes, .. } | Event::Mmap { bytes, .. }) =
            (&self.room, &event)
            && room.at_once
        {
            room.take(self.os.mapped(), *bytes)?;
        }
        let result = match event {
            Event::Map {
                at,
                bytes,
                writable,
                backing,
            } => self.os.map(pid, at, bytes, writable, backing, &mut fx),
            Event::Mmap {
                at,
                bytes,
                writable,
                source,
            } => self.os.mmap(pid, at, bytes, writable, source, &mut fx),
            Event::Unmap { at, bytes } => self.os.unmap(pid, at, bytes, &mut fx),
            Event::Remap {
                from,
                old_bytes,
                to,
                new_bytes,
            } => self.os.remap(pid, from, old_bytes, to, new_bytes, &mut fx),
            Event::Protect {
                at,
                bytes,
                writable,
            } => self.os.protect(pid, at, bytes, writable, &mut fx),
            // A call that failed or changed nothing only uses up its ticket. Programs that ran natively
            // are reported in the result.
            Event::Advise { bytes: 0, .. } | Event::Unseen(_) => Ok(()),
            Event::Died(death) => {
                self.deaths.push(*death);
                Ok(())
            }
            Event::Advise { at, bytes, advice } => self.os.advise(pid, at, bytes, advice, &mut fx),
            Event::Populate { at, bytes } => {
                if let Some(room) = &self.room {
                    room.take(self.os.mapped(), bytes)?;
                }
                let before = self.os.populate_cycles();
                let result = self.os.populate(pid, at, bytes, &mut fx);
                self.background.owe(self.os.populate_cycles() - before);
                self.run_background(core)?;
                fx.cycles = 0;
                result
            }
            Event::KernelPopulate {
                at,
                bytes,
                populate,
            } => self.os.kernel_populate(pid, at, bytes, populate, &mut fx),
            Event::PunchHole { key, page, pages } => {
                let range = page..page.saturating_add(pages);
                self.os.punch_hole(key, range, &mut fx)
            }
            Event::Truncate { key, pages } => self.os.truncate(key, pages, &mut fx),
            Event::DisableHugePages { disabled } => {
                self.os.disable_huge_pages(pid, disabled, &mut fx)
            }
            Event::KernelTouch { at, bytes, writes } => {
                self.os.kernel_touch(pid, at, bytes, writes, &mut fx)
            }
            Event::Spawn { thread } => {
                self.start(thread, process, core);
                Ok(())
            }
            Event::Fork {
                process: child,
                thread,
            } => self.os.fork(pid, &mut fx).map(|pid| {
                let part = self.parts.of(child, self.processes[&process].part);
                self.processes.insert(
                    child,
                    Process {
                        pid,
                        applied: 0,
                        part,
                        core_time: 0,
                    },
                );
                self.start(thread, child, core);
            }),
            Event::Exec => {
                self.threads.get_mut(&id).expect("it says so").barrier = 0;
                self.os.exec(pid, &mut fx);
                Ok(())
            }
            Event::ProcessExit { .. } => {
                self.end_process(process, &mut fx);
                Ok(())
            }
            Event::RoiBegin => {
                if self.gather(id) {
                    self.begin_roi();
                }
                Ok(())
            }
            Event::RoiEnd => {
                self.end_roi();
                Ok(())
            }
        };
        self.spread(core, process, part, &mut fx);
        self.effects = fx;
        match result {
            // The kernel of the recorded system accepted this call. The simulated one continues without
            // it, and the result says so.
            Err(OsError::Bad(why)) if !forks => {
                self.refused.0 += 1;
                self.refused.1.get_or_insert(why);
                Ok(())
            }
            result => result.map_err(|e| self.os_error(&e)),
        }
    }

    /// Ends a process and all its threads.
    fn end_process(&mut self, process: ProcessId, fx: &mut Effects) {
        let Some(Process { pid, .. }) = self.processes.remove(&process) else {
            return;
        };
        let gone: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, t)| t.process == process)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            if let ThreadState::Running(core) = self.threads[&id].state {
                self.release(id, core, ThreadState::Ready);
            }
            self.ready.retain(|r| *r != id);
            self.bury(id);
            self.gone.push(id);
        }
        if self.processes.is_empty() {
            // The program has ended. Its memory belongs to the result, so the measured part ends before
            // the memory is freed.
            self.leave_phase();
        }
        self.os.exit(pid, fx);
    }

    /// Removes an ended thread and keeps only its number.
    fn bury(&mut self, id: ThreadId) {
        let gone = self.threads.remove(&id);
        if gone.is_some_and(|t| matches!(t.state, ThreadState::Sleeping(_))) {
            self.sleeping -= 1;
        }
        self.ended.insert(id);
    }
}
