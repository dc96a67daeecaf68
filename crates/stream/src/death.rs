//! Processes of a program that ended without exiting.

use std::collections::BTreeMap;
use std::fmt;

/// Cause of a [`Death`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A signal that is not known: the parent waited without asking for the status.
    Unknown,
    /// The signal with this number.
    Signal(u8),
    /// The emulator or its plugin failed with this exit status.
    Emulator(u8),
}

/// Names of the signals from 1 on, as of Linux on x86-64.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::Unknown => f.write_str("died of a signal that its parent did not ask for"),
            Cause::Signal(number) => match SIGNALS.get(usize::from(number).wrapping_sub(1)) {
                Some(name) => write!(f, "died of {name}"),
                None => write!(f, "died of signal {number}"),
            },
            Cause::Emulator(status) => {
                write!(f, "ended with the emulator's own failure (status {status})")
            }
        }
    }
}

/// End of a process that a signal or a failure of the emulator ended. The stream holds what it did before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Death {
    /// True if it was not the first process of its program.
    pub child: bool,
    /// The cause.
    pub cause: Cause,
    /// Sentence about the illegal instruction after SIGILL, if known; otherwise empty.
    pub instruction: String,
}

impl Death {
    /// Sentences for the reader of a result: one for the first process, and one for each cause of the others.
    pub fn sentences(all: &[Death]) -> Vec<String> {
        let mut counts: BTreeMap<(bool, Cause, &str), u64> = BTreeMap::new();
        for death in all {
            let key = (death.child, death.cause, &death.instruction[..]);
            *counts.entry(key).or_default() += 1;
        }
        let sentence = |((child, cause, instruction), n): ((bool, Cause, &str), u64)| {
            let who = match n {
                _ if !child => "the program".to_owned(),
                1 => "a child process of the program".to_owned(),
                n => format!("{n} child processes of the program"),
            };
            let colon = if instruction.is_empty() { "" } else { ": " };
            format!("{who} {cause}{colon}{instruction}")
        };
        counts.into_iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Death};

    #[test]
    fn each_cause_is_told_once_and_the_first_process_first() {
        let death = |child, cause, instruction: &str| Death {
            child,
            cause,
            instruction: instruction.to_owned(),
        };
        let all = [
            death(true, Cause::Signal(9), ""),
            death(true, Cause::Signal(9), ""),
            death(true, Cause::Unknown, ""),
            death(false, Cause::Signal(4), "ud2"),
            death(true, Cause::Signal(40), ""),
            death(true, Cause::Emulator(125), ""),
        ];
        assert_eq!(
            Death::sentences(&all),
            [
                "the program died of SIGILL: ud2",
                "a child process of the program died of a signal that its parent did not ask for",
                "2 child processes of the program died of SIGKILL",
                "a child process of the program died of signal 40",
                "a child process of the program ended with the emulator's own failure (status 125)",
            ]
        );
    }
}
