//! Turns a thread's ring into batches.

use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::record::{self, map_bits, query};
use pagewalk_stream::{
    Cause, ClockQuery, End, Error, Event, KernelFile, MappingSource, MemoryObject, PopulateAs,
    ProcessId, ShortcutQuery, ThreadId, Unseen, Why,
};
use pagewalk_trace::x86::Piece;
use pagewalk_units::VirtAddr;

use crate::calls;
use crate::program::Live;
use crate::sink::{Execution, Sink};
use crate::thread::{LiveThread, MOST_HELD};

/// Records taken from a ring at once.
const CHUNK: usize = 8192;
/// Most words that follow a record.
const MOST_WORDS: usize = record::KERNEL_FILE_WORDS;

impl Live {
    /// Gives the next part of a thread's stream to `sink`.
    pub(crate) fn next(&mut self, id: usize, sink: &mut impl Sink) -> Result<End, Error> {
        if id >= self.threads.made() {
            return Err(Error::refused(format!("there is no thread {id}")));
        }
        if self.threads.get(id).is_none() {
            return Ok(End::Exit);
        }
        loop {
            while let Some(piece) = self.threads[id].queue.pop_front() {
                match piece {
                    Piece::End(end) => return Ok(end),
                    Piece::Ops(ops) => {
                        if let Some(rest) = sink.ops(ops) {
                            self.threads[id].queue.push_front(Piece::Ops(rest));
                            return Ok(End::More);
                        }
                    }
                }
            }
            if let Some(end) = self.step(id, sink)? {
                return Ok(end);
            }
        }
    }

    /// Reads until a batch ends, something is queued (`None`), or the ring is empty.
    fn step(&mut self, id: usize, sink: &mut impl Sink) -> Result<Option<End>, Error> {
        loop {
            let p = self.threads[id].process;
            if self.threads[id].stillborn || self.processes.get(p).is_none() {
                return Ok(Some(End::Exit));
            }
            if self.threads[id].replacing.is_some() && self.replaced(id)? {
                return Ok(None);
            }
            let t = &mut self.threads[id];
            let process = &mut self.processes[p];
            let last = process.dead && t.reported_death && t.available() == 0;
            // The hot loop handles blocks that are complete and known.
            while let Some(&word) = t.words.get(t.at) {
                if record::tag(word) != record::BLOCK {
                    break;
                }
                if sink.is_full() {
                    return Ok(Some(End::More));
                }
                if t.met_within.is_empty() && t.marks.is_empty() {
                    let words = sink.run(&t.words[t.at..], &process.blocks);
                    if words > 0 {
                        t.at += words;
                        continue;
                    }
                }
                let from = t.at + 1;
                let mut to = from;
                let next_word = loop {
                    while t
                        .words
                        .get(to)
                        .is_some_and(|&w| record::tag(w) == record::MEM)
                    {
                        to += 1;
                    }
                    // A meeting point precedes the next block, or another access.
                    let next_word = t.words.get(to).and_then(|&w| match record::tag(w) {
                        record::MEET => t.words.get(to + 1),
                        _ => Some(&t.words[to]),
                    });
                    match next_word {
                        Some(&w) if record::tag(w) == record::MEM => {
                            t.met_at(to, w, process.ticket_base);
                        }
                        Some(&w) if record::tag(w) == record::MARK => {
                            t.mark_at(to, process.ticket_base);
                        }
                        _ => break next_word.copied(),
                    }
                };
                let mut query = None;
                let next = match next_word {
                    Some(w) if record::tag(w) == record::BLOCK => {
                        let next = (w & 0xffff_ffff) as usize;
                        process.learn(next, &mut self.decoded)?;
                        Some(next)
                    }
                    Some(_) if is_of_program(t.words[to]) => {
                        query = shortcut_query(&t.words[to..])?;
                        if query.is_none() && !last {
                            break;
                        }
                        None
                    }
                    Some(_) => None,
                    None if last => None,
                    None => break,
                };
                let number = (word & 0xffff_ffff) as usize;
                if last && next_word.is_none() {
                    t.last_block = Some(number);
                }
                process.learn(number, &mut self.decoded)?;
                let execution = Execution {
                    known: &process.blocks[number],
                    records: &t.words[from..to],
                    next: next.map(|n| (process.addresses[n], &process.blocks[n])),
                    met: &mut t.met_within,
                    marks: &mut t.marks,
                    registers: &mut t.registers,
                    queue: &mut t.queue,
                };
                t.at = to;
                if let Some(query) = query {
                    t.at += 1 + record::QUERY_WORDS;
                    sink.query(execution, query)?;
                    return Ok(None);
                }
                if sink.take(execution)? {
                    return Ok(None);
                }
            }
            let waits_for_next = t
                .words
                .get(t.at)
                .is_none_or(|&w| matches!(record::tag(w), record::BLOCK | record::MEM));
            if !waits_for_next {
                match self.control(id)? {
                    Control::Done => {
                        if !self.threads[id].queue.is_empty() {
                            return Ok(None);
                        }
                        continue;
                    }
                    Control::Short => {}
                }
            } else if t
                .words
                .get(t.at)
                .is_some_and(|&w| record::tag(w) == record::MEM)
            {
                return Err(Error::refused(
                    "the ring is corrupt: a memory access outside a block",
                ));
            }
            if self.threads[id].refill(CHUNK)? {
                continue;
            }
            if let Some(end) = self.dry(id, sink.is_empty())? {
                return Ok(Some(end));
            }
        }
    }

    /// The reason for an empty ring. `None`: read again.
    fn dry(&mut self, id: usize, nothing: bool) -> Result<Option<End>, Error> {
        let p = self.threads[id].process;
        if self.threads[id].unread() >= MOST_HELD {
            return Err(Error::refused(
                "a thread waits for another one that is gigabytes of records behind",
            ));
        }
        if self.threads[id].ring.is_none()
            && let Some(who) = self.processes[p].who
            && let Some(hello) = self.host.take_hello(who, true)
        {
            self.processes[p].attach(hello, true)?;
            self.threads[id].ring = self.processes[p].reader(0)?;
            return Ok(None);
        }
        let alone = self.threads.len() == 1;
        let (t, process) = (&mut self.threads[id], &mut self.processes[p]);
        // The program now runs, so the call did not fail.
        if t.unseen.is_some() && (process.dead || process.has_other_image()) {
            let unseen = t.unseen.take().map(Event::Unseen);
            t.queue
                .extend(unseen.map(|event| Piece::End(End::Event { event, ticket: 0 })));
            return Ok(Some(self.pop_end(id)));
        }
        // Another thread has reported the end. Everything that this one did before has been read.
        if process.ended {
            return Ok(Some(if nothing { End::Exit } else { End::More }));
        }
        if process.dead {
            if !t.reported_death {
                // Reads once more, including records that the process had not published.
                t.reported_death = true;
                if let Some((shared, ring)) = &t.ring {
                    ring.publish_rest(&shared.segment);
                }
                return Ok(None);
            }
            // The process was killed: the first thread read to its end reports that.
            process.ended = true;
            let verdict = if p == 0 {
                self.host.wait_status(true)
            } else {
                process.verdict
            };
            let death = self.death(p, verdict);
            let status = verdict
                .and_then(|status| self.host.shell_status(status))
                .or(death.as_ref().and_then(|d| match d.cause {
                    Cause::Signal(number) => Some(128 + i32::from(number)),
                    _ => None,
                }))
                .unwrap_or(128 + libc::SIGKILL);
            if p == 0 {
                self.status = Some(status);
            }
            let t = &mut self.threads[id];
            t.queue.extend(death.map(|death| {
                let event = Event::Died(Box::new(death));
                Piece::End(End::Event { event, ticket: 0 })
            }));
            t.queue.push_back(Piece::End(End::Event {
                event: Event::ProcessExit { status },
                ticket: 0,
            }));
            t.queue.push_back(Piece::End(End::Exit));
            return Ok(Some(self.pop_end(id)));
        }
        let in_kernel = t.in_kernel || t.untraced;
        if !nothing {
            return Ok(Some(if in_kernel { End::More } else { End::Empty }));
        }
        // A thread that leaves its core finds another state there afterwards. Without other threads nothing waits for
        // that, so times that repeat do not depend on how fast the host was.
        let stays = self.simulated_clock && alone;
        t.reported_blocked = in_kernel && t.replacing.is_none() && !stays;
        Ok(Some(if t.reported_blocked {
            End::Blocked
        } else {
            End::Empty
        }))
    }

    fn pop_end(&mut self, id: usize) -> End {
        match self.threads[id].queue.pop_front() {
            Some(Piece::End(end)) => end,
            _ => End::More,
        }
    }

    /// Takes the new image of an execve, if it has arrived.
    fn replaced(&mut self, id: usize) -> Result<bool, Error> {
        let p = self.threads[id].process;
        let who = self.processes[p].who;
        let Some(hello) = who.and_then(|who| self.host.take_hello(who, false)) else {
            return Ok(false);
        };
        let Some(ticket) = self.threads[id].replacing.take() else {
            return Ok(false);
        };
        let process = &mut self.processes[p];
        process.attach(hello, false)?;
        process.ticket_base = ticket;
        self.program_starts += 1;
        for &other in process.threads.iter().filter(|t| **t as usize != id) {
            if let Some(t) = self.threads.get_mut(other as usize) {
                t.stillborn = true;
            }
        }
        process.threads = vec![id as ThreadId];
        let ring = process.reader(0)?;
        let t = &mut self.threads[id];
        let queue = std::mem::take(&mut t.queue);
        *t = LiveThread::new(p, ring);
        t.queue = queue;
        t.queue.push_back(Piece::End(End::Event {
            event: Event::Exec,
            ticket,
        }));
        Ok(true)
    }

    /// Handles the record at the front, which is neither a block nor an access.
    fn control(&mut self, id: usize) -> Result<Control, Error> {
        let t = &mut self.threads[id];
        let p = t.process;
        let process = &mut self.processes[p];
        let word = t.words[t.at];
        let (tag, payload) = (record::tag(word), record::payload(word));
        let words = match tag {
            record::CALL => record::CALL_WORDS,
            record::FORK => record::FORK_WORDS,
            record::MAPPED => record::MAPPED_WORDS,
            record::QUERY => record::QUERY_WORDS,
            record::TOUCH => record::TOUCH_WORDS,
            record::UNMODELLED => record::UNMODELLED_WORDS,
            record::EXEC_UNTRACED => record::UNTRACED_WORDS,
            record::KERNEL_FILE => record::KERNEL_FILE_WORDS,
            _ => 0,
        };
        let Some(body) = t.words.get(t.at + 1..t.at + 1 + words) else {
            return Ok(Control::Short);
        };
        let mut body8 = [0u64; MOST_WORDS];
        body8[..words].copy_from_slice(body);
        t.at += 1 + words;
        let base = process.ticket_base;
        let mut say = |event, ticket| {
            t.queue.push_back(Piece::End(End::Event { event, ticket }));
        };
        // A failed execve leaves a ticket without a change.
        if let Some(ticket) = t.replacing.take() {
            say(Event::NOTHING, ticket);
        }
        match tag {
            record::ENTER => {
                t.in_kernel = true;
                self.clock_calls += u64::from(calls::asks_for_time(payload as i64));
            }
            record::RETURN => {
                t.in_kernel = false;
                // The execve failed: the program outside the emulator does not run.
                t.untraced = false;
                t.unseen = None;
                if std::mem::take(&mut t.reported_blocked) {
                    // The thread continues, even if its next records have not arrived yet.
                    t.queue.push_back(Piece::End(End::More));
                }
            }
            record::CALL => {
                t.in_kernel = false;
                let [result, ticket, a0, a1, a2, a3, a4, a5, ..] = body8;
                let arguments = &[a0, a1, a2, a3, a4, a5];
                let event = process
                    .space
                    .event(payload as i64, result as i64, arguments);
                say(event, base.wrapping_add(ticket));
                if let Some(event) = calls::left_behind(payload as i64, result as i64, arguments) {
                    say(event, 0);
                }
            }
            record::TOUCH => {
                let at = VirtAddr(body8[0]);
                let bytes = payload & (record::BY_AREA - 1);
                let has = |bit| payload & bit != 0;
                let event = if has(record::POPULATE) {
                    let populate = if has(record::BY_AREA) {
                        PopulateAs::Area
                    } else if has(record::STORE) {
                        PopulateAs::Write
                    } else {
                        PopulateAs::Read
                    };
                    Event::KernelPopulate {
                        at,
                        bytes,
                        populate,
                    }
                } else {
                    Event::KernelTouch {
                        at,
                        bytes,
                        writes: has(record::STORE),
                    }
                };
                say(event, 0);
            }
            record::UNMODELLED => {
                let [result, a0, a1, a2, a3, a4, a5, ..] = body8;
                let call = calls::NotModelled {
                    number: payload as i64,
                    result: result as i64,
                    arguments: [a0, a1, a2, a3, a4, a5],
                };
                if self.named.insert(call.kind()) {
                    let program = call.to_string();
                    let why = Why::NotModelled;
                    say(Event::Unseen(Box::new(Unseen { program, why })), 0);
                }
            }
            record::MEET => t.queue.push_back(Piece::End(End::Meet {
                ticket: base.wrapping_add(payload),
            })),
            record::MAPPED => {
                let [from, to, bits, key, offset, ..] = body8;
                if from >= to || (from | to) & 4095 != 0 {
                    return Err(Error::refused(
                        "the ring is corrupt: a mapping without pages",
                    ));
                }
                let has = |b| bits & b != 0;
                let source = if has(map_bits::SHARED) || has(map_bits::FILE) {
                    MappingSource::Object {
                        object: MemoryObject {
                            key: (key != 0).then_some(key),
                            file: has(map_bits::FILE),
                            page: offset >> 12,
                            // The loader maps no page after the file's end.
                            pages: u64::MAX,
                        },
                        private: !has(map_bits::SHARED),
                    }
                } else {
                    MappingSource::Zeros {
                        stack: has(map_bits::STACK),
                        reserves: true,
                    }
                };
                let writable = has(map_bits::WRITE);
                say(calls::mapped(from, to - from, writable, source), 0);
            }
            record::SPAWN => {
                let ring = process.reader(payload as usize)?;
                let thread = self.threads.push(LiveThread::new(p, ring)) as ThreadId;
                self.processes[p].threads.push(thread);
                let t = &mut self.threads[id];
                t.last_spawned = Some(thread);
                t.queue.push_back(Piece::End(End::Event {
                    event: Event::Spawn { thread },
                    ticket: 0,
                }));
            }
            record::SPAWN_FAILED => {
                let child = t.last_spawned.take();
                if let Some(child) = child.and_then(|c| self.threads.get_mut(c as usize)) {
                    child.stillborn = true;
                }
            }
            record::FORK => {
                t.in_kernel = false;
                let who = self.host.identify(payload as i32).map_err(|e| {
                    Error::refused(format!(
                        "cannot find out which process {payload} is, which the program forked: {e}"
                    ))
                })?;
                let child = process.fork(who, &mut self.decoded)?;
                let number = self.processes.push(child) as ProcessId;
                let mut made = LiveThread::new(number as usize, None);
                // The child returns from the same call.
                made.in_kernel = true;
                let thread = self.threads.push(made) as ThreadId;
                self.processes[number as usize].threads.push(thread);
                self.threads[id].queue.push_back(Piece::End(End::Event {
                    event: Event::Fork {
                        process: number,
                        thread,
                    },
                    ticket: base.wrapping_add(body8[0]),
                }));
            }
            record::EXIT => {
                t.in_kernel = false;
                if payload & record::LAST != 0 {
                    let status = (payload & 0xff) as i32;
                    say(Event::ProcessExit { status }, 0);
                    if p == 0 {
                        self.status = Some(status);
                        self.counted = process
                            .shared
                            .as_ref()
                            .map(|s| s.segment.header().executed.load(Relaxed));
                    }
                }
                t.queue.push_back(Piece::End(End::Exit));
                if let Some((shared, ring)) = t.ring.take()
                    && ring.closed(&shared.segment)
                {
                    ring.free(&shared.segment);
                }
                if payload & record::LAST != 0 {
                    process.ended = true;
                }
            }
            record::EXEC => t.replacing = Some(base.wrapping_add(payload)),
            record::EXEC_UNTRACED => {
                say(Event::NOTHING, base.wrapping_add(payload));
                t.untraced = true;
                t.unseen = Some(unseen(&body8)?);
            }
            record::KERNEL_FILE => {
                // The thread continues as soon as it has the contents. Others must not overtake it meanwhile.
                (t.in_kernel, t.reported_blocked) = (false, false);
                let [file, offset, bytes, path @ ..] = body8;
                t.kernel_file = Some((file, offset));
                let path = text(&path);
                let unseen = if payload != 0 {
                    Some((format!("writing to {path}"), Why::NotModelled))
                } else {
                    (!self.has_kernel).then(|| (path.clone(), Why::HostFile))
                };
                let unseen = unseen.map(|(program, why)| Unseen { program, why });
                if let Some(unseen) = unseen.filter(|u| self.named_files.insert(u.clone())) {
                    say(Event::Unseen(Box::new(unseen)), 0);
                }
                if self.has_kernel {
                    t.queue.push_back(Piece::End(End::ReadKernel(KernelFile {
                        path,
                        offset,
                        bytes,
                    })));
                } else if let Some((shared, ring)) = &t.ring {
                    ring.deliver_result(&shared.segment, None);
                }
            }
            record::QUERY => {
                let query = clock_query(payload, body8[0])?;
                t.queue.push_back(Piece::End(End::Clock(query)));
            }
            _ => {
                return Err(Error::refused(format!(
                    "the ring is corrupt: {word:#x} is no record"
                )));
            }
        }
        Ok(Control::Done)
    }
}

/// A program outside the emulator, and the reason.
#[cold]
fn unseen(words: &[u64; MOST_WORDS]) -> Result<Box<Unseen>, Error> {
    let [why, name @ ..] = words;
    let why = match *why {
        record::unseen::FOREIGN => Why::Foreign,
        record::unseen::UNREADABLE => Why::Unreadable,
        record::unseen::OTHER_ROOT => Why::OtherRoot,
        record::unseen::REFUSED => Why::Refused,
        other => {
            return Err(Error::refused(format!(
                "the ring is corrupt: {other} is no reason why a program is not traced"
            )));
        }
    };
    let program = text(name);
    Ok(Box::new(Unseen { program, why }))
}

/// Text in words, up to its first zero.
#[cold]
fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// True for a query that the program itself sends. Its block is the one before.
fn is_of_program(word: u64) -> bool {
    record::tag(word) == record::QUERY && record::payload(word) <= query::FREE
}

/// A query that the plugin sends for the program.
#[cold]
fn clock_query(kind: u64, integer: u64) -> Result<ClockQuery, Error> {
    match kind {
        query::TIME => Ok(ClockQuery::Time),
        query::CYCLES => Ok(ClockQuery::Cycles {
            retired: integer != 0,
        }),
        query::PROCESS_TIME => Ok(ClockQuery::ProcessTime),
        query::THREAD_TIME => Ok(ClockQuery::ThreadTime),
        query::SLEEP => Ok(ClockQuery::Sleep { until: integer }),
        ..=query::FREE => Err(Error::refused(
            "the ring is corrupt: a query outside a block",
        )),
        other => Err(Error::refused(format!(
            "the ring is corrupt: {other} is no kind of query"
        ))),
    }
}

/// The query at the front of `words`. `None`: it has not arrived completely.
#[cold]
fn shortcut_query(words: &[u64]) -> Result<Option<ShortcutQuery>, Error> {
    let [word, integer, address, ..] = *words else {
        return Ok(None);
    };
    match record::payload(word) {
        query::LOAD_VA => Ok(Some(ShortcutQuery::LoadVa { integer })),
        query::INSERT_VA => Ok(Some(ShortcutQuery::InsertVa {
            integer,
            va: VirtAddr(address),
        })),
        query::ALLOC => Ok(Some(ShortcutQuery::Alloc { rows: integer })),
        query::RESIZE => Ok(Some(ShortcutQuery::Resize { rows: integer })),
        query::FREE => Ok(Some(ShortcutQuery::Free)),
        other => Err(Error::refused(format!(
            "the ring is corrupt: {other} is no kind of query"
        ))),
    }
}

enum Control {
    Done,
    /// The words that follow the record have not arrived.
    Short,
}
