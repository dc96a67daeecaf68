//! Causes of the end of a process that has not exited.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use pagewalk_ring::record;
use pagewalk_stream::{Cause, Death};
use pagewalk_trace::x86::describe_illegal;

use crate::program::Live;

/// Most time in which a parent that has taken its child's status reports it: the return from its system call.
const PARENT: Duration = Duration::from_millis(20);

/// Signals whose default action is a core dump, as signal(7) lists them: faults of the program.
const FAULTS: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

impl Live {
    /// The death of process `p`, which the kernel does not have any more, with the kernel's `verdict`. `None`: it has
    /// exited, or its end is the program's own doing.
    pub(crate) fn death(&mut self, p: usize, verdict: Option<ExitStatus>) -> Option<Death> {
        let process = self.processes.get(p)?;
        if process.exits() {
            return None;
        }
        let threads = || process.threads.iter().map(|&t| t as usize);
        // A program outside the emulator leaves no record of its exit.
        let untraced = threads().any(|t| self.threads.get(t).is_some_and(|t| t.untraced));
        let cause = match (verdict, p) {
            (Some(status), _) => match (status.signal(), status.code()) {
                (Some(signal), _) => Cause::Signal(self.host.signal_of_program(signal as u8)),
                (None, _) if untraced => return None,
                (None, code) => Cause::Emulator(code.unwrap_or(0) as u8),
            },
            (None, 0) => Cause::Unknown,
            (None, _) => match self.parents_report(p) {
                Some(signal) => Cause::Signal(signal),
                None if untraced => return None,
                None => Cause::Unknown,
            },
        };
        if p != 0 && self.is_own_doing(cause) {
            return None;
        }
        let instruction = if cause == Cause::Signal(libc::SIGILL as u8) {
            let threads: Vec<usize> = threads().collect();
            let illegal = threads.into_iter().find_map(|t| self.illegal(p, t));
            illegal.unwrap_or_default()
        } else {
            String::new()
        };
        Some(Death {
            child: p != 0,
            cause,
            instruction,
        })
    }

    /// The signal that killed child `p`, once its parent reports the status that it has taken.
    fn parents_report(&self, p: usize) -> Option<u8> {
        let pid = self.processes[p].who?.pid as u32;
        let deadline = Instant::now() + PARENT;
        loop {
            let found = self.host.control().take_killed(pid);
            if found.is_some() || Instant::now() >= deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// True if a program ends its children so: another process of it has sent the signal, or closed a pipe. A fault is
    /// never meant.
    fn is_own_doing(&self, cause: Cause) -> bool {
        let control = self.host.control();
        match cause {
            Cause::Signal(number) if FAULTS.contains(&i32::from(number)) => false,
            Cause::Signal(number) => {
                i32::from(number) == libc::SIGPIPE || control.has_sent(Some(number))
            }
            Cause::Unknown => control.has_sent(None),
            Cause::Emulator(_) => false,
        }
    }

    /// Description of the last instruction of a thread of process `p`, if it is one that the emulator refuses.
    fn illegal(&mut self, p: usize, thread: usize) -> Option<String> {
        let t = self.threads.get_mut(thread)?;
        if let Some((shared, ring)) = &t.ring {
            ring.publish_rest(&shared.segment);
        }
        t.refill(usize::MAX).ok()?;
        let mut unread = t.words[t.at..].iter().rev();
        let last = unread.find(|&&w| record::tag(w) == record::BLOCK);
        let last = last.map(|w| (w & 0xffff_ffff) as usize);
        let number = last.or(t.last_block)?;
        let process = &self.processes[p];
        let shared = process.shared.as_ref()?;
        describe_illegal(&process.code_of(number)?, |address| {
            shared.segment.header().newest(address)
        })
    }
}
