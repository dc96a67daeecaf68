//! Several programs as processes of one program.
//!
//! The first thread forks a process for each further program, which begins with [`Event::Exec`]. Thread and process `i`
//! are the first of program `i`; threads and processes that the programs create are numbered as they come. A program
//! that has ended starts again in its process, so a mix has no end.

use std::collections::BTreeMap;

use crate::{Batch, End, Error, Event, Facts, Part, ProcessId, Program, ThreadId, Units};

/// Opens a program; each call gives the same one.
pub type Opens = Box<dyn FnMut() -> Result<Box<dyn Program>, Error> + Send>;

/// Replaces an end that does not concern the other programs. A thread thus passes as many ends as it does alone.
fn nothing(ticket: u64) -> End {
    End::Event {
        event: Event::NOTHING,
        ticket,
    }
}

/// One run of a program, with its numbers in the mix.
struct Run {
    program: Box<dyn Program>,
    /// Numbers of its threads in the mix, by the program's own numbers.
    threads: BTreeMap<ThreadId, ThreadId>,
    /// Threads that have not ended.
    live: usize,
    /// Progress of its first thread before this run.
    before: Units,
    /// Largest ticket of the earlier runs; added to its own tickets.
    tickets: u64,
}

/// One of the programs.
struct Member {
    open: Opens,
    facts: Facts,
    /// Its region of interest has begun.
    begun: bool,
    /// Runs with live threads, by number; the last is the current one.
    runs: BTreeMap<u32, Run>,
    count: u32,
    /// Largest ticket so far.
    tickets: u64,
}

/// Next step of the first thread of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberStage {
    /// Forks the processes of the other programs (the first program's only).
    Fork(ThreadId),
    /// Empties its address space and starts the program.
    Exec,
    /// Marks the start of the region of interest, if the program does not mark it.
    Begin,
    /// Gives the program's batches.
    Runs,
    /// Waits for the other threads of its process.
    Joins,
}

/// Place of a thread of the mix.
#[derive(Clone, Copy)]
struct MixThread {
    member: usize,
    /// Number of the program's run.
    run: u32,
    /// The numbers of the thread and its process in that run.
    inner: ThreadId,
    process: ProcessId,
}

/// Programs side by side, presented as one.
pub struct Mix {
    members: Vec<Member>,
    steps: Vec<MemberStage>,
    threads: BTreeMap<ThreadId, MixThread>,
    /// Progress of the first thread of each member.
    units: Vec<Units>,
    next_thread: ThreadId,
    next_process: ProcessId,
}

impl Mix {
    /// A mix of at least one program.
    ///
    /// # Errors
    /// A program does not open, or is a live process, which cannot start again.
    pub fn new(programs: Vec<Opens>) -> Result<Self, Error> {
        let count = programs.len() as u32;
        let mut members = Vec::with_capacity(programs.len());
        for mut open in programs {
            let program = open()?;
            let facts = program.facts();
            if facts.live && !facts.deterministic {
                return Err(Error::refused(format!(
                    "{} is a live process; expected built-in programs or recordings in a mix: record it first",
                    facts.name
                )));
            }
            let mut member = Member {
                open,
                begun: !facts.has_roi,
                facts,
                runs: BTreeMap::new(),
                count: 0,
                tickets: 0,
            };
            member.runs.insert(0, Run::new(program, 0));
            members.push(member);
        }
        let first = |i| {
            if i == 0 {
                MemberStage::Fork(1)
            } else {
                MemberStage::Exec
            }
        };
        Ok(Mix {
            steps: (0..count).map(first).collect(),
            threads: BTreeMap::new(),
            units: vec![Units::default(); count as usize],
            members,
            next_thread: count,
            next_process: count,
        })
    }

    /// The end that the first thread of `member` gives at `step`, and the next step.
    fn begin(&mut self, member: usize, step: MemberStage) -> Result<(End, MemberStage), Error> {
        let event = |event| End::Event { event, ticket: 0 };
        let count = self.members.len() as ThreadId;
        Ok(match step {
            MemberStage::Fork(i) if i < count => {
                let fork = Event::Fork {
                    process: i,
                    thread: i,
                };
                (event(fork), MemberStage::Fork(i + 1))
            }
            MemberStage::Fork(_) => (nothing(0), MemberStage::Exec),
            MemberStage::Exec => {
                let me = &mut self.members[member];
                if !me.runs.contains_key(&me.count) {
                    let program = (me.open)()?;
                    me.runs.insert(me.count, Run::new(program, me.tickets));
                }
                let run = me.runs.get_mut(&me.count).expect("just made");
                let begins = me.count == 0 && !me.facts.has_roi;
                run.threads.insert(0, member as ThreadId);
                let first = MixThread {
                    member,
                    run: me.count,
                    inner: 0,
                    process: 0,
                };
                self.threads.insert(member as ThreadId, first);
                let next = if begins {
                    MemberStage::Begin
                } else {
                    MemberStage::Runs
                };
                (event(Event::Exec), next)
            }
            MemberStage::Begin => (event(Event::RoiBegin), MemberStage::Runs),
            MemberStage::Joins => {
                self.members[member].count += 1;
                (End::Barrier { number: u64::MAX }, MemberStage::Exec)
            }
            MemberStage::Runs => unreachable!("the program says it"),
        })
    }

    /// Translates `end` of a thread to the numbers of the mix.
    fn translate(&mut self, of: MixThread, end: End) -> End {
        let me = &mut self.members[of.member];
        let run = me.runs.get_mut(&of.run).expect("its threads live");
        let threads = &mut run.threads;
        let ticketed = |ticket: u64| if ticket == 0 { 0 } else { ticket + run.tickets };
        let of_mix = |id: ThreadId| threads.get(&id).copied().unwrap_or(ThreadId::MAX);
        match end {
            End::Meet { ticket } => End::Meet {
                ticket: ticketed(ticket),
            },
            End::Wait { until, counted } => End::Wait {
                until: until
                    .into_iter()
                    .map(|(id, units)| {
                        let before = if id == 0 {
                            run.before.counted(counted)
                        } else {
                            0
                        };
                        (of_mix(id), units + before)
                    })
                    .collect(),
                counted,
            },
            End::Event { event, ticket } => {
                let ticket = ticketed(ticket);
                me.tickets = me.tickets.max(ticket);
                let event = match event {
                    Event::Spawn { thread } => {
                        let id = self.next_thread;
                        self.next_thread += 1;
                        threads.insert(thread, id);
                        self.threads.insert(
                            id,
                            MixThread {
                                inner: thread,
                                ..of
                            },
                        );
                        run.live += 1;
                        Event::Spawn { thread: id }
                    }
                    Event::Fork { process, thread } => {
                        let (id, child) = (self.next_thread, self.next_process);
                        self.next_thread += 1;
                        self.next_process += 1;
                        threads.insert(thread, id);
                        self.threads.insert(
                            id,
                            MixThread {
                                inner: thread,
                                process,
                                ..of
                            },
                        );
                        run.live += 1;
                        Event::Fork {
                            process: child,
                            thread: id,
                        }
                    }
                    Event::RoiBegin if !me.begun => {
                        me.begun = true;
                        event
                    }
                    Event::RoiBegin | Event::RoiEnd => return nothing(ticket),
                    // The first process's threads end one by one; then the program starts again.
                    Event::ProcessExit { .. } if of.process == 0 => return nothing(ticket),
                    other => other,
                };
                End::Event { event, ticket }
            }
            other => other,
        }
    }
}

impl Run {
    fn new(program: Box<dyn Program>, tickets: u64) -> Self {
        Run {
            program,
            threads: BTreeMap::new(),
            live: 1,
            before: Units::default(),
            tickets,
        }
    }
}

impl Program for Mix {
    fn facts(&self) -> Facts {
        let all = |of: fn(&Facts) -> bool| self.members.iter().all(|m| of(&m.facts));
        let names: Vec<&str> = self.members.iter().map(|m| &m.facts.name[..]).collect();
        let parts = self.members.iter().map(|m| Part {
            name: m.facts.name.clone(),
            request: m.facts.request.clone(),
        });
        Facts {
            name: names.join(" + "),
            instructions: None,
            infer_mappings: !all(|f| !f.infer_mappings),
            no_dependences: !all(|f| !f.no_dependences),
            deterministic: all(|f| f.deterministic),
            has_roi: true,
            request: all(|f| f.request.is_some()).then(|| "request".to_owned()),
            cpu: None,
            simulated_clock: false,
            live: !all(|f| !f.live),
            prefetches: !all(|f| !f.prefetches),
            flushes: !all(|f| !f.flushes),
            memory: !all(|f| !f.memory),
            threads: Some(
                (self.members.iter())
                    .map(|m| m.facts.threads.unwrap_or(1))
                    .fold(0, u32::saturating_add),
            ),
            parts: parts.collect(),
            stopped: self.members.iter().find_map(|m| m.facts.stopped),
            begins_anywhere: false,
            notes: self
                .members
                .iter()
                .flat_map(|m| m.facts.notes.clone())
                .collect(),
        }
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let leads = (thread as usize) < self.members.len();
        if leads && self.steps[thread as usize] != MemberStage::Runs {
            let member = thread as usize;
            let (end, next) = self.begin(member, self.steps[member])?;
            self.steps[member] = next;
            self.units[member].add(batch, &end);
            if next == MemberStage::Runs {
                let me = &mut self.members[member];
                let run = me.runs.get_mut(&me.count).expect("it runs");
                run.before = self.units[member];
            }
            return Ok(end);
        }
        let Some(&of) = self.threads.get(&thread) else {
            return Err(Error::refused(format!("the mix has no thread {thread}")));
        };
        let me = &mut self.members[of.member];
        let run = me.runs.get_mut(&of.run).expect("its threads live");
        let mut end = run.program.fill(of.inner, batch)?;
        if end == End::Exit {
            run.live -= 1;
            if run.live == 0 {
                me.runs.remove(&of.run);
            }
            self.threads.remove(&thread);
            if leads {
                if !me.begun {
                    return Err(Error::refused(format!(
                        "{} ended and its region of interest never began",
                        me.facts.name
                    )));
                }
                self.steps[of.member] = MemberStage::Joins;
                end = nothing(0);
            }
        } else {
            end = self.translate(of, end);
        }
        if leads {
            self.units[of.member].add(batch, &end);
        }
        Ok(end)
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        if let Some(of) = self.threads.get(&thread)
            && let Some(run) = self.members[of.member].runs.get_mut(&of.run)
        {
            run.program.shortcut_result(of.inner, reply);
        }
    }

    fn kernel_file(&mut self, thread: ThreadId, contents: Option<Vec<u8>>) {
        if let Some(of) = self.threads.get(&thread)
            && let Some(run) = self.members[of.member].runs.get_mut(&of.run)
        {
            run.program.kernel_file(of.inner, contents);
        }
    }

    fn gone(&mut self, thread: ThreadId) {
        let Some(of) = self.threads.remove(&thread) else {
            return;
        };
        let runs = &mut self.members[of.member].runs;
        if let Some(run) = runs.get_mut(&of.run) {
            run.program.gone(of.inner);
            run.live -= 1;
            if run.live == 0 {
                runs.remove(&of.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mix, Opens};
    use crate::{Batch, Counted, End, Error, Event, Facts, Op, Program, ThreadId};

    /// Gives the scripted ends of each thread, then ends it.
    struct Script {
        name: &'static str,
        threads: Vec<Vec<(usize, End)>>,
        at: Vec<usize>,
        has_roi: bool,
    }

    impl Program for Script {
        fn facts(&self) -> Facts {
            Facts {
                name: self.name.to_owned(),
                deterministic: true,
                has_roi: self.has_roi,
                ..Facts::default()
            }
        }
        fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
            batch.ops.clear();
            let (t, at) = (thread as usize, &mut self.at[thread as usize]);
            let Some((ops, end)) = self.threads[t].get(*at) else {
                return Ok(End::Exit);
            };
            *at += 1;
            let op = Op {
                insns: 1,
                ..Op::default()
            };
            batch.ops.resize(*ops, op);
            Ok(end.clone())
        }
    }

    fn script(name: &'static str, has_roi: bool, threads: Vec<Vec<(usize, End)>>) -> Opens {
        Box::new(move || {
            Ok(Box::new(Script {
                name,
                at: vec![0; threads.len()],
                threads: threads.clone(),
                has_roi,
            }))
        })
    }

    fn event(event: Event) -> (usize, End) {
        (0, End::Event { event, ticket: 0 })
    }

    fn ends(mix: &mut Mix, thread: ThreadId, n: usize) -> Vec<End> {
        let mut batch = Batch::new();
        (0..n)
            .map(|_| mix.fill(thread, &mut batch).unwrap())
            .collect()
    }

    fn of(end: &End) -> Option<&Event> {
        match end {
            End::Event { event, .. } => Some(event),
            _ => None,
        }
    }

    fn is_nothing(end: &End) -> bool {
        of(end) == Some(&Event::NOTHING)
    }

    #[test]
    fn the_first_forks_the_others_and_each_begins_with_an_empty_address_space() {
        let one = || {
            script(
                "one",
                true,
                vec![vec![event(Event::RoiBegin), (5, End::More)]],
            )
        };
        let mut mix = Mix::new(vec![one(), one(), one()]).unwrap();
        assert_eq!(mix.facts().parts.len(), 3);
        let first = ends(&mut mix, 0, 6);
        let fork = |i| Event::Fork {
            process: i,
            thread: i,
        };
        assert_eq!(of(&first[0]), Some(&fork(1)));
        assert_eq!(of(&first[1]), Some(&fork(2)));
        assert!(is_nothing(&first[2]));
        assert_eq!(of(&first[3]), Some(&Event::Exec));
        assert_eq!(of(&first[4]), Some(&Event::RoiBegin));
        assert_eq!(first[5], End::More);
        for child in [1, 2] {
            let begun = ends(&mut mix, child, 2);
            assert_eq!(of(&begun[0]), Some(&Event::Exec));
            assert_eq!(of(&begun[1]), Some(&Event::RoiBegin));
        }
    }

    #[test]
    fn a_program_that_ended_starts_again_and_begins_its_region_once() {
        let lines = vec![vec![
            event(Event::RoiBegin),
            (5, End::More),
            event(Event::RoiEnd),
        ]];
        let mut mix = Mix::new(vec![script("again", true, lines)]).unwrap();
        let all = ends(&mut mix, 0, 40);
        let count = |what: &Event| all.iter().filter(|e| of(e) == Some(what)).count();
        assert!(count(&Event::Exec) >= 4);
        assert_eq!((count(&Event::RoiBegin), count(&Event::RoiEnd)), (1, 0));
        let joins = |e: &&End| matches!(e, End::Barrier { number: u64::MAX });
        assert_eq!(all.iter().filter(joins).count(), count(&Event::Exec) - 1);
    }

    #[test]
    fn a_program_without_a_region_begins_it_at_once() {
        let mut mix = Mix::new(vec![script("plain", false, vec![vec![(5, End::More)]])]).unwrap();
        let all = ends(&mut mix, 0, 5);
        assert_eq!(of(&all[2]), Some(&Event::RoiBegin));
        assert_eq!(all[3], End::More);
    }

    #[test]
    fn one_whose_region_never_begins_is_refused() {
        let mut mix = Mix::new(vec![script("never", true, vec![vec![(5, End::More)]])]).unwrap();
        let mut batch = Batch::new();
        let error = (0..10).find_map(|_| mix.fill(0, &mut batch).err()).unwrap();
        assert!(error.to_string().contains("never began"), "{error}");
    }

    #[test]
    fn threads_processes_tickets_and_waits_are_translated_for_each_run() {
        let ticketed = |ticket| {
            let event = Event::Exec;
            (1, End::Event { event, ticket })
        };
        let wait = End::Wait {
            until: vec![(0, 2), (1, 7)],
            counted: Counted::Ops,
        };
        let first = vec![
            event(Event::Spawn { thread: 1 }),
            event(Event::Fork {
                process: 9,
                thread: 2,
            }),
            ticketed(1),
            (0, wait),
        ];
        let lines = vec![
            first,
            vec![(3, End::More)],
            vec![event(Event::ProcessExit { status: 0 })],
        ];
        let other = || script("other", false, vec![vec![(1, End::More)]]);
        let mut mix = Mix::new(vec![script("two", false, lines), other()]).unwrap();
        // Fork, an empty event, exec, begin; then the program.
        let all = ends(&mut mix, 0, 8);
        assert_eq!(of(&all[4]), Some(&Event::Spawn { thread: 2 }));
        let forked = Event::Fork {
            process: 2,
            thread: 3,
        };
        assert_eq!(of(&all[5]), Some(&forked));
        let until = |e: &End| match e {
            End::Wait { until, .. } => until.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(until(&all[7]), [(0, 4 + 2), (2, 7)]);
        // The process of a child may end; the end of the first process is hidden.
        assert!(matches!(
            of(&ends(&mut mix, 3, 1)[0]),
            Some(Event::ProcessExit { .. })
        ));
        // Exit, join, exec; then again with numbers of its own.
        let again = ends(&mut mix, 0, 7);
        assert!(is_nothing(&again[0]));
        assert_eq!(of(&again[2]), Some(&Event::Exec));
        assert_eq!(of(&again[3]), Some(&Event::Spawn { thread: 4 }));
        let End::Event { ticket, .. } = again[5] else {
            panic!("{again:?}")
        };
        assert_eq!(ticket, 2);
        // One op of the first run; 8 ends before it, and 3 between the runs.
        assert_eq!(until(&again[6]), [(0, 8 + 1 + 3 + 2), (4, 7)]);
        // The thread that is left of the first run continues.
        assert_eq!(ends(&mut mix, 2, 2), [End::More, End::Exit]);
        assert_eq!(ends(&mut mix, 4, 1), [End::More]);
    }

    #[test]
    fn that_the_first_process_ends_is_said_by_none_of_its_threads() {
        let exit = event(Event::ProcessExit { status: 3 });
        let lines = vec![vec![event(Event::Spawn { thread: 1 })], vec![exit]];
        let mut mix = Mix::new(vec![script("exits", false, lines)]).unwrap();
        ends(&mut mix, 0, 4);
        assert!(is_nothing(&ends(&mut mix, 1, 1)[0]));
        assert_eq!(ends(&mut mix, 1, 1), [End::Exit]);
    }
}
