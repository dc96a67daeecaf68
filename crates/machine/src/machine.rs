//! One simulated machine: wiring, scheduler and run loop.

use std::collections::{BTreeMap, VecDeque};

use pagewalk_cpu::{Core, Stop};
use pagewalk_memory::{Private, Report, Shared};
use pagewalk_mmu::{Mmu, WalkRecord};
use pagewalk_os::{Effects, Os, OsError};
use pagewalk_stats::Tree;
use pagewalk_stream::{End, Event, Facts, Kind, ProcessId, ProgramError, ThreadId};
use pagewalk_tables::{Flags, View};
use pagewalk_units::{Access, Cycle, PageSize, PhysAddr, VirtAddr};

use crate::config::Config;
use crate::hub::{Hub, Item, Supply};
use crate::limits::{Limits, Phase, Plan};
use crate::measure::Measured;
use crate::thread::{Process, State, Thread};

/// Why a run of a design ended, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The measured part is complete.
    Complete,
    /// Somebody asked to stop.
    Stopped,
    /// Simulated memory ran out.
    OutOfMemory(String),
    /// The program could not go on.
    Program(String),
    /// The program used memory that it does not have.
    Fault(String),
}

/// Why [`Machine::advance`] came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It has used up its turn.
    Turn,
    /// Other machines have to catch up.
    Ahead,
    /// The live program has nothing for any thread.
    Starved,
    /// It is over.
    Over,
}

/// A machine with a design, running a program.
pub(crate) struct Machine {
    config: Config,
    pub(crate) os: Os,
    pub(crate) cores: Vec<Core>,
    shared: Shared,
    threads: BTreeMap<ThreadId, Thread>,
    processes: BTreeMap<ProcessId, Process>,
    ready: VecDeque<ThreadId>,
    on_core: Vec<Option<ThreadId>>,
    /// The thread that each core ran last.
    ran: Vec<Option<ThreadId>>,
    slice_end: Vec<Cycle>,
    /// Instructions skipped on each core: keeps cores in step while no time passes.
    skipped: Vec<u64>,
    touched: TouchFilter,
    snoops: Vec<(PhysAddr, bool)>,
    effects: Effects,
    plan: Plan,
    pub(crate) measured: Measured,
    /// Instructions of all threads since the start.
    pub(crate) executed: u64,
    /// Milli-cycles an instruction of the last sample: the clock between samples.
    cpi_milli: u64,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) roi_seen: bool,
    /// Items to take before [`Pause::Turn`].
    turn: u32,
    /// What a blocked thread does next is kept back until other machines have caught up.
    ahead: bool,
    /// Walks still to be recorded for each core, and those that were.
    walks_wanted: usize,
    pub(crate) walks: Vec<Vec<WalkRecord>>,
    /// Changes of an address space that the OS refused, and why it did the first.
    pub(crate) refused: (u64, Option<String>),
}

/// The pages that a skipping machine has seen mapped: direct-mapped.
struct TouchFilter {
    keys: Vec<u64>,
}

impl TouchFilter {
    const SLOTS: usize = 1 << 14;

    fn new() -> Self {
        TouchFilter {
            keys: vec![u64::MAX; Self::SLOTS],
        }
    }
    fn key(asid: u16, at: u64, write: bool) -> u64 {
        (at >> 12) << 17 | u64::from(asid) << 1 | u64::from(write)
    }
    #[inline]
    fn hit(&mut self, key: u64) -> bool {
        let slot = &mut self.keys[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize];
        let hit = *slot == key;
        *slot = key;
        hit
    }
    fn clear(&mut self) {
        self.keys.fill(u64::MAX);
    }
}

/// Turns of cores before [`Machine::advance`] comes back in any case.
const MOST_STEPS: u32 = 1 << 20;

impl Machine {
    /// Builds the machine of `config` for a program with `facts`.
    ///
    /// # Errors
    /// A component refuses its configuration: a sentence with the key.
    pub(crate) fn new(
        config: &Config,
        limits: Limits,
        facts: &Facts,
        seed: u64,
        interval: Option<u64>,
    ) -> Result<Self, String> {
        config.validate()?;
        limits.validate()?;
        let n = config.cores as usize;
        let mut cores = Vec::with_capacity(n);
        for core in 0..config.cores {
            let mmu = Mmu::new(&config.mmu, core)?;
            let private = Private::new(&config.caches, core)?;
            cores.push(Core::new(&config.core, mmu, private, core)?);
        }
        let mut os = Os::new(
            &config.os,
            &config.placement,
            &config.page_table,
            config.frequency_ghz,
            seed,
        )?;
        // A live program may own memory that it got in ways nobody announces.
        let infer = facts.infer_mappings || facts.live;
        let pid = os.spawn(infer).map_err(|e| e.to_string())?;
        let plan = Plan::new(limits);
        let mut machine = Machine {
            os,
            cores,
            shared: Shared::new(&config.memory, config.cores, config.frequency_ghz)?,
            threads: BTreeMap::from([(0, Thread::new(0, 0, 0))]),
            processes: BTreeMap::from([(
                0,
                Process {
                    pid,
                    applied: 0,
                    alive: true,
                },
            )]),
            ready: VecDeque::from([0]),
            on_core: vec![None; n],
            ran: vec![None; n],
            slice_end: vec![0; n],
            skipped: vec![0; n],
            touched: TouchFilter::new(),
            snoops: Vec::new(),
            effects: Effects::default(),
            measured: Measured::new(interval, n),
            plan,
            executed: 0,
            cpi_milli: 1000,
            outcome: None,
            roi_seen: false,
            turn: 0,
            ahead: false,
            walks_wanted: 0,
            walks: vec![Vec::new(); n],
            refused: (0, None),
            config: config.clone(),
        };
        machine.enter_phase();
        Ok(machine)
    }

    /// Keeps the first `walks` walks of each core in the measured part.
    pub(crate) fn record_walks(&mut self, walks: usize) {
        self.walks_wanted = walks;
        if self.plan.phase.measures() {
            self.harvest_walks();
        }
    }

    /// Takes over what the MMUs have recorded, and switches them on and off.
    fn harvest_walks(&mut self) {
        if self.walks_wanted == 0 {
            return;
        }
        for (core, kept) in self.cores.iter_mut().zip(&mut self.walks) {
            kept.extend(core.mmu.take_walk_records());
            kept.truncate(self.walks_wanted);
            core.mmu
                .record_walks(self.plan.phase.measures() && kept.len() < self.walks_wanted);
        }
        if self.walks.iter().all(|w| w.len() >= self.walks_wanted) {
            self.walks_wanted = 0;
        }
    }

    /// Word for the progress bar.
    pub(crate) fn phase_word(&self) -> &'static str {
        self.plan.phase.word()
    }

    /// All counters now.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        for (i, core) in self.cores.iter().enumerate() {
            core.report(&format!("core.{i}"), &mut tree);
        }
        self.shared.report("", &mut tree);
        self.os.report("os", &mut tree);
        // No design has a speculation engine, so nothing of theirs can move.
        tree.rows
            .retain(|r| !r.definition.name.starts_with("speculative_"));
        tree
    }

    /// When each core has retired what it has been given.
    fn times(&self) -> Vec<Cycle> {
        self.cores.iter().map(Core::finish).collect()
    }

    fn enter_phase(&mut self) {
        if self.plan.phase.measures() {
            let (tree, times) = (self.tree(), self.times());
            self.measured.begin(tree, times, self.executed);
        }
        self.harvest_walks();
        if self.plan.phase == Phase::Done && self.outcome.is_none() {
            self.outcome = Some(Outcome::Complete);
        }
    }

    fn leave_phase(&mut self) {
        if self.measured.is_open() {
            let (tree, times) = (self.tree(), self.times());
            if let Some(cpi) = self.measured.end(&tree, &times, self.executed) {
                self.cpi_milli = (cpi * 1000.0).round().max(1.0) as u64;
            }
        }
    }

    /// Ends the run: what has been measured so far stays.
    pub(crate) fn stop(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.leave_phase();
            self.outcome = Some(outcome);
        }
    }

    /// Runs until something outside is needed, or for `items` batches.
    pub(crate) fn advance(&mut self, hub: &Hub, me: usize, items: u32) -> Pause {
        self.turn = items;
        for t in self.threads.values_mut() {
            t.starved = false;
        }
        // Bounded, so that whoever asks to stop is heard even where turns of
        // cores follow each other without a new batch.
        for _ in 0..MOST_STEPS {
            if self.outcome.is_some() {
                return Pause::Over;
            }
            if self.turn == 0 {
                return Pause::Turn;
            }
            match self.step(hub, me) {
                Ok(None) => {}
                Ok(Some(pause)) => return pause,
                Err(outcome) => self.stop(outcome),
            }
        }
        Pause::Turn
    }

    /// One turn of one core.
    fn step(&mut self, hub: &Hub, me: usize) -> Result<Option<Pause>, Outcome> {
        self.fill_cores();
        let Some(core) = self.next_core() else {
            return self.nothing_runs(hub, me);
        };
        let id = self.on_core[core].expect("next_core gives a core with a thread");
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        match &thread.item {
            Some(item) if thread.at < item.batch.ops.len() => {}
            Some(_) => {
                let item = thread.item.take().expect("just seen");
                let end = item.end.clone();
                thread.units += item.batch.ops.len() as u64 + u64::from(end != End::More);
                hub.recycle(item);
                self.act_on_end(hub, me, id, core, end)?;
                self.wake_waiting();
                return Ok(None);
            }
            None => {
                match hub.next(me, id).map_err(program)? {
                    Supply::Item(item) => {
                        thread.item = Some(item);
                        thread.at = 0;
                        self.turn -= 1;
                        self.poll_blocked(hub, me)?;
                    }
                    Supply::Ahead => return Ok(Some(Pause::Ahead)),
                    Supply::Empty => thread.starved = true,
                }
                return Ok(None);
            }
        }
        if self.plan.phase.skips() {
            self.skip(id, core)
        } else {
            self.simulate(id, core)
        }?;
        self.preempt(core);
        Ok(None)
    }

    /// Gives idle cores to threads that wait for one: the core that the thread
    /// had last if it is free, else the first free one.
    fn fill_cores(&mut self) {
        while let Some(&id) = self.ready.front() {
            let thread = &self.threads[&id];
            let last = thread.last_core.min(self.on_core.len() - 1);
            let free = if self.on_core[last].is_none() {
                Some(last)
            } else {
                self.on_core.iter().position(Option::is_none)
            };
            let Some(core) = free else { return };
            self.ready.pop_front();
            let thread = self.threads.get_mut(&id).expect("a ready thread exists");
            thread.state = State::Running(core);
            thread.last_core = core;
            self.on_core[core] = Some(id);
            let ready_at = thread.ready_at;
            self.cores[core].idle(ready_at);
            let other = self.ran[core].replace(id).is_some_and(|last| last != id);
            if other && self.plan.phase.takes_time() {
                let cost = self.os.prices().context_switch;
                self.cores[core].kernel(cost);
            }
            self.slice_end[core] = self.cores[core].now() + self.config.schedule.time_slice_cycles;
        }
    }

    fn local_time(&self, core: usize) -> u64 {
        self.cores[core].now() + self.skipped[core]
    }

    fn runnable(&self, core: usize) -> bool {
        self.on_core[core].is_some_and(|id| !self.threads[&id].starved)
    }

    /// The core with the smallest local time among those with something to run.
    fn next_core(&self) -> Option<usize> {
        if self.on_core.len() == 1 {
            return self.runnable(0).then_some(0);
        }
        (0..self.on_core.len())
            .filter(|&c| self.runnable(c))
            .min_by_key(|&c| (self.local_time(c), c))
    }

    /// The time up to which `core` may run before another one's turn.
    fn until(&self, core: usize) -> Cycle {
        let alone = self.cores[core].now() + self.config.schedule.time_slice_cycles;
        (0..self.on_core.len())
            .filter(|&c| c != core && self.runnable(c))
            .map(|c| self.cores[c].now() + self.config.schedule.step_cycles)
            .min()
            .unwrap_or(alone)
            .max(self.cores[core].now() + 1)
    }

    /// No core has a thread that can go on.
    fn nothing_runs(&mut self, hub: &Hub, me: usize) -> Result<Option<Pause>, Outcome> {
        let starved = self.threads.values().any(|t| t.starved);
        if self.poll_blocked(hub, me)? || self.settle(hub, me, false)? {
            return Ok(None);
        }
        if self.ahead {
            return Ok(Some(Pause::Ahead));
        }
        if starved {
            return Ok(Some(Pause::Starved));
        }
        if self.threads.values().all(|t| t.state == State::Exited) {
            self.finish_program();
            return Ok(None);
        }
        // A thread in the kernel may be the one that makes the change awaited.
        if self.threads.values().any(|t| t.state == State::Blocked) {
            return Ok(Some(Pause::Starved));
        }
        // Nobody is left who could still reach the meeting or the end of a wait
        // (a recording that was cut): the first change takes effect, or all go on.
        if !self.settle(hub, me, true)? {
            let now = self.latest();
            let waiting = |t: &Thread| {
                matches!(
                    t.state,
                    State::Meeting(_) | State::AtBarrier(_) | State::Waiting(_)
                )
            };
            let stuck: Vec<ThreadId> = self
                .threads
                .iter()
                .filter(|(_, t)| waiting(t))
                .map(|(id, _)| *id)
                .collect();
            if stuck.is_empty() {
                return Ok(Some(Pause::Starved));
            }
            for id in stuck {
                self.make_ready(id, now);
            }
        }
        Ok(None)
    }

    fn finish_program(&mut self) {
        self.leave_phase();
        self.outcome = Some(if self.plan.phase == Phase::UntilRoi {
            Outcome::Program(
                "the program ended and its region of interest never began: leave out --roi, or mark the region with pagewalk.h".to_owned(),
            )
        } else if self.plan.phase.skips() || self.plan.phase == Phase::Warmup {
            Outcome::Program(format!(
                "the program ended after {} instructions, before the measured part began: lower --skip and --warmup",
                self.executed
            ))
        } else {
            Outcome::Complete
        });
        self.plan.phase = Phase::Done;
    }

    /// Asks for blocked threads; whether one is ready again.
    fn poll_blocked(&mut self, hub: &Hub, me: usize) -> Result<bool, Outcome> {
        let blocked: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, t)| t.state == State::Blocked)
            .map(|(id, _)| *id)
            .collect();
        let mut woken = false;
        self.ahead = false;
        for id in blocked {
            let supply = hub.next(me, id).map_err(program)?;
            self.ahead |= matches!(supply, Supply::Ahead);
            if let Supply::Item(item) = supply {
                let now = self.latest();
                let thread = self.threads.get_mut(&id).expect("just listed");
                thread.item = Some(item);
                thread.at = 0;
                thread.state = State::Ready;
                thread.ready_at = now;
                self.ready.push_back(id);
                woken = true;
            }
        }
        Ok(woken)
    }

    /// Readies the threads whose barrier or wait is over.
    fn wake_waiting(&mut self) {
        let over: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(id, t)| match &t.state {
                State::AtBarrier(number) => self.threads.iter().all(|(other, o)| {
                    other == *id
                        || o.process != t.process
                        || o.state == State::Exited
                        || o.barrier >= *number
                }),
                State::Waiting(until) => self.is_over(until),
                _ => false,
            })
            .map(|(id, _)| *id)
            .collect();
        if over.is_empty() {
            return;
        }
        // The last one to come is on its core, or has just left it.
        let now = self.latest();
        for id in over {
            self.make_ready(id, now);
        }
    }

    /// Whether each thread has come as far as a wait asks.
    fn is_over(&self, until: &[(ThreadId, u64)]) -> bool {
        until.iter().all(|(other, units)| {
            let there = |o: &Thread| o.state == State::Exited || o.units >= *units;
            self.threads.get(other).is_some_and(there)
        })
    }

    fn make_ready(&mut self, id: ThreadId, now: Cycle) {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("only threads that exist wait");
        thread.state = State::Ready;
        thread.ready_at = thread.ready_at.max(now);
        self.ready.push_back(id);
    }

    /// The time that the youngest core has come to.
    fn latest(&self) -> Cycle {
        self.cores.iter().map(Core::now).max().unwrap_or(0)
    }

    /// Takes the thread off its core.
    fn release(&mut self, id: ThreadId, core: usize, state: State) {
        debug_assert_eq!(self.on_core[core], Some(id));
        self.on_core[core] = None;
        self.cores[core].switch();
        let now = self.cores[core].now();
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        thread.state = state;
        thread.ready_at = now;
    }

    /// A thread whose time slice is over goes to the end of the queue.
    fn preempt(&mut self, core: usize) {
        if self.ready.is_empty() || self.cores[core].now() < self.slice_end[core] {
            return;
        }
        if let Some(id) = self.on_core[core] {
            self.release(id, core, State::Ready);
            self.ready.push_back(id);
        }
    }

    fn act_on_end(
        &mut self,
        hub: &Hub,
        me: usize,
        id: ThreadId,
        core: usize,
        end: End,
    ) -> Result<(), Outcome> {
        match end {
            End::More | End::Empty => {}
            // What the other threads did before the end may still be to come.
            End::Event {
                event: event @ Event::ProcessExit { .. },
                ..
            } => {
                self.release(id, core, State::Changing(event, u64::MAX));
                self.settle(hub, me, false)?;
            }
            End::Event { event, ticket: 0 } => self.act_on(id, core, event)?,
            End::Event { event, ticket } => {
                self.release(id, core, State::Changing(event, ticket));
                self.settle(hub, me, false)?;
            }
            End::Meet { ticket } => {
                let process = self.threads[&id].process;
                if self.processes[&process].applied < ticket {
                    self.release(id, core, State::Meeting(ticket));
                    self.settle(hub, me, false)?;
                }
            }
            End::Barrier { number } => {
                self.threads.get_mut(&id).expect("it runs").barrier = number;
                self.release(id, core, State::AtBarrier(number));
                self.settle(hub, me, false)?;
            }
            End::Wait { until } => {
                self.release(id, core, State::Waiting(until));
                self.settle(hub, me, false)?;
            }
            End::Blocked => {
                self.release(id, core, State::Blocked);
                self.settle(hub, me, false)?;
            }
            End::Exit => {
                self.release(id, core, State::Exited);
                self.settle(hub, me, false)?;
            }
        }
        Ok(())
    }

    /// Lets changes take effect that all threads concerned have reached, in
    /// the order of their tickets; whether there was one. `force`: the first
    /// one takes effect though a thread has not reached it.
    fn settle(&mut self, hub: &Hub, me: usize, force: bool) -> Result<bool, Outcome> {
        let mut any = false;
        loop {
            let mut candidates: Vec<(u64, ThreadId)> = self
                .threads
                .iter()
                .filter_map(|(id, t)| match &t.state {
                    State::Changing(_, ticket) => Some((*ticket, *id)),
                    _ => None,
                })
                .collect();
            if candidates.is_empty() {
                return Ok(any);
            }
            // That a thread waits may be long past: what it did since then came
            // before the change, unless the change says otherwise.
            self.poll_blocked(hub, me)?;
            if self.ahead {
                return Ok(any);
            }
            candidates.sort_unstable();
            let ready = candidates.iter().copied().find(|&(ticket, id)| {
                let process = self.threads[&id].process;
                (force && !any)
                    || self
                        .threads
                        .iter()
                        .filter(|(other, t)| **other != id && t.process == process)
                        .all(|(_, t)| match &t.state {
                            State::Meeting(at) => *at >= ticket,
                            State::Changing(_, at) => *at > ticket,
                            // One that is about to go on may have to do with
                            // what is changed.
                            State::Waiting(until) => !self.is_over(until),
                            State::Blocked | State::AtBarrier(_) | State::Exited => true,
                            State::Running(_) | State::Ready => false,
                        })
            });
            let Some((ticket, id)) = ready else {
                return Ok(any);
            };
            any = true;
            let thread = self.threads.get_mut(&id).expect("just listed");
            let State::Changing(event, _) = std::mem::replace(&mut thread.state, State::Ready)
            else {
                unreachable!("only changing threads are candidates")
            };
            let (process, core) = (thread.process, thread.last_core);
            self.ready.push_back(id);
            self.act_on(id, core, event)?;
            let now = self.cores[core].now();
            if let Some(p) = self.processes.get_mut(&process) {
                p.applied = p.applied.max(ticket);
            }
            let applied = self.processes.get(&process).map_or(u64::MAX, |p| p.applied);
            for (id, t) in &mut self.threads {
                if t.process == process && matches!(t.state, State::Meeting(at) if at <= applied) {
                    t.state = State::Ready;
                    t.ready_at = t.ready_at.max(now);
                    self.ready.push_back(*id);
                }
            }
        }
    }

    fn act_on(&mut self, id: ThreadId, core: usize, event: Event) -> Result<(), Outcome> {
        let process = self.threads[&id].process;
        let pid = self.processes[&process].pid;
        let mut fx = std::mem::take(&mut self.effects);
        let forks = matches!(event, Event::Fork { .. });
        let result = match event {
            Event::Map {
                at,
                bytes,
                writable,
                backing,
            } => self.os.map(pid, at, bytes, writable, backing, &mut fx),
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
            // A call that failed, or changed nothing: it only took its ticket.
            Event::Advise { bytes: 0, .. } => Ok(()),
            Event::Advise { at, bytes, advice } => self.os.advise(pid, at, bytes, advice, &mut fx),
            Event::Populate { at, bytes } => {
                let result = self.os.populate(pid, at, bytes, &mut fx);
                fx.cycles = 0;
                result
            }
            Event::Spawn { thread } => {
                self.start(thread, process, core);
                Ok(())
            }
            Event::Fork {
                process: child,
                thread,
            } => self.os.fork(pid, &mut fx).map(|pid| {
                self.processes.insert(
                    child,
                    Process {
                        pid,
                        applied: 0,
                        alive: true,
                    },
                );
                self.start(thread, child, core);
            }),
            Event::Exec => {
                self.os.exec(pid, &mut fx);
                Ok(())
            }
            Event::ProcessExit { .. } => {
                self.end_process(process, &mut fx);
                Ok(())
            }
            Event::RoiBegin => {
                self.roi_seen = true;
                if self.plan.roi_begin() {
                    self.enter_phase();
                }
                Ok(())
            }
            Event::RoiEnd => {
                if self.plan.phase != Phase::Done {
                    let mut plan = self.plan.clone();
                    if plan.roi_end() {
                        self.leave_phase();
                        self.plan = plan;
                        self.enter_phase();
                    }
                }
                Ok(())
            }
        };
        self.spread(core, process, &mut fx);
        self.effects = fx;
        match result {
            // The kernel that the program ran on did it. Ours goes on without,
            // and the result says so.
            Err(OsError::Bad(why)) if !forks => {
                self.refused.0 += 1;
                self.refused.1.get_or_insert(why);
                Ok(())
            }
            result => result.map_err(|e| self.os_error(&e)),
        }
    }

    /// Hands the effects of a kernel call to the cores: the caller pays, all forget.
    fn spread(&mut self, core: usize, process: ProcessId, fx: &mut Effects) {
        if !fx.invalidate.is_empty() {
            self.touched.clear();
            for what in &fx.invalidate {
                for c in &mut self.cores {
                    c.mmu.invalidate(what);
                }
            }
            // A shootdown interrupts every other core that runs the process.
            let mut others = 0;
            for c in 0..self.cores.len() {
                let runs = self.on_core[c].map(|id| self.threads[&id].process);
                if c != core && runs == Some(process) {
                    others += 1;
                    if self.plan.phase.takes_time() {
                        self.cores[c].kernel(self.os.prices().shootdown_remote);
                    }
                }
            }
            if others > 0 {
                fx.cycles += self.os.prices().shootdown(others);
            }
            fx.invalidate.clear();
        }
        if fx.cycles > 0 {
            if self.plan.phase.takes_time() {
                self.cores[core].kernel(fx.cycles);
            }
            fx.cycles = 0;
        }
    }

    fn start(&mut self, id: ThreadId, process: ProcessId, core: usize) {
        let now = self.cores[core].now();
        let home = id as usize % self.cores.len();
        self.threads.insert(id, Thread::new(process, now, home));
        self.ready.push_back(id);
    }

    fn end_process(&mut self, process: ProcessId, fx: &mut Effects) {
        let Some(p) = self.processes.get_mut(&process) else {
            return;
        };
        if !p.alive {
            return;
        }
        p.alive = false;
        let pid = p.pid;
        let gone: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, t)| t.process == process)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            if let State::Running(core) = self.threads[&id].state {
                self.release(id, core, State::Exited);
            }
            self.ready.retain(|r| *r != id);
            self.threads.get_mut(&id).expect("just listed").state = State::Exited;
        }
        if self.processes.values().all(|p| !p.alive) {
            // The program is over. What it holds belongs to the result, so the
            // measured part ends before it is given back.
            self.leave_phase();
        }
        self.os.exit(pid, fx);
    }

    fn os_error(&self, e: &OsError) -> Outcome {
        match e {
            OsError::OutOfMemory { .. } => Outcome::OutOfMemory(format!(
                "{e}; enlarge the machine's memory (os.memory_gb = {}) or shrink the program",
                self.config.os.memory_gb
            )),
            other => Outcome::Fault(other.to_string()),
        }
    }

    fn fault(
        &mut self,
        core: usize,
        process: ProcessId,
        va: VirtAddr,
        access: Access,
    ) -> Result<(), Outcome> {
        let pid = self.processes[&process].pid;
        let mut fx = std::mem::take(&mut self.effects);
        let result = self.os.fault(pid, va, access, &mut fx);
        self.spread(core, process, &mut fx);
        self.effects = fx;
        result.map_err(|e| self.os_error(&e))
    }

    /// Timed or warming execution of one core's thread.
    fn simulate(&mut self, id: ThreadId, core: usize) -> Result<(), Outcome> {
        let until = self.until(core);
        if self.shared.has_snoops(core as u8) {
            self.shared.take_snoops(core as u8, &mut self.snoops);
            for (at, exclusive) in self.snoops.drain(..) {
                self.cores[core].private.snoop(at, exclusive);
            }
        }
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        let process = thread.process;
        let pid = self.processes[&process].pid;
        let view = self.os.view(pid);
        let asid = self.os.asid(pid);
        let item: &Item = thread.item.as_ref().expect("checked by step");
        let c = &mut self.cores[core];
        let before = c.instructions();
        let left = self
            .plan
            .left
            .min(self.measured.until_interval(self.executed));
        let limit = before.saturating_add(left);
        let ran = if self.plan.phase == Phase::SampleWarm {
            c.warm(
                &item.batch.ops,
                thread.at,
                limit,
                self.cpi_milli,
                asid,
                &view,
                &mut self.shared,
            )
        } else {
            c.run(
                &item.batch.ops,
                thread.at,
                until,
                limit,
                asid,
                &view,
                &mut self.shared,
            )
        };
        thread.at = ran.at;
        let done = c.instructions() - before;
        self.harvest_walks();
        self.count(done);
        if let Stop::Fault(f) = ran.stop {
            self.fault(core, process, f.va, f.access)?;
        }
        Ok(())
    }

    fn count(&mut self, instructions: u64) {
        self.executed += instructions;
        if self.measured.until_interval(self.executed) == 0 {
            let (tree, times) = (self.tree(), self.times());
            self.measured.interval(tree, times, self.executed);
        }
        if self.plan.left != u64::MAX && instructions >= self.plan.left {
            self.leave_phase();
        }
        if self.plan.advance(instructions) {
            self.enter_phase();
        }
    }

    /// Maps what the ops touch and does nothing else.
    fn skip(&mut self, id: ThreadId, core: usize) -> Result<(), Outcome> {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        let process = thread.process;
        let pid = self.processes[&process].pid;
        let asid = self.os.asid(pid).0;
        let item = thread.item.clone().expect("checked by step");
        let from = thread.at;
        let ops = &item.batch.ops;
        let mut done = 0u64;
        let mut at = from;
        let mut pc_page = u64::MAX;
        while at < ops.len() && done < self.plan.left {
            let op = &ops[at];
            if op.pc >> 12 != pc_page {
                pc_page = op.pc >> 12;
                self.touch(core, process, asid, op.pc, Access::Fetch)?;
            }
            match op.kind {
                Kind::Load => self.touch(core, process, asid, op.va, Access::Read)?,
                Kind::Store => self.touch(core, process, asid, op.va, Access::Write)?,
                Kind::Compute | Kind::Branch => {}
            }
            done += u64::from(op.insns);
            at += 1;
        }
        self.threads
            .get_mut(&id)
            .expect("a thread on a core exists")
            .at = at;
        self.skipped[core] += done.max(1);
        self.count(done);
        Ok(())
    }

    #[inline]
    fn touch(
        &mut self,
        core: usize,
        process: ProcessId,
        asid: u16,
        at: u64,
        access: Access,
    ) -> Result<(), Outcome> {
        if self
            .touched
            .hit(TouchFilter::key(asid, at, access == Access::Write))
        {
            return Ok(());
        }
        let pid = self.processes[&process].pid;
        let va = VirtAddr(at).page(PageSize::K4).base;
        let mapped = match self.os.view(pid) {
            View::Native(table) => table.translate(va).map(|t| t.flags),
            View::Nested { guest, .. } => guest.translate(va).map(|t| t.flags),
        };
        if mapped.is_some_and(|f| access != Access::Write || f.contains(Flags::WRITABLE)) {
            return Ok(());
        }
        self.fault(core, process, va, access)
    }
}

fn program(e: ProgramError) -> Outcome {
    Outcome::Program(e.message)
}
