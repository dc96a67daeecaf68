//! Parts of a live program that are missing in its stream: programs that it has executed outside the emulator, and
//! memory calls that are not modelled.

use std::collections::BTreeMap;
use std::fmt;

/// Reason why a program does not run in the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is for another architecture, or for 32 bits.
    Foreign,
    /// It is executable, but not readable.
    Unreadable,
    /// The emulator is not reachable from its root directory.
    OtherRoot,
    /// The kernel did not execute the emulator on it.
    Refused,
    /// It is no program but a memory call, which the simulated kernel does not model.
    NotModelled,
    /// It is no program but a file of the kernel, and no simulated kernel could tell its contents.
    HostFile,
}

impl Why {
    /// All reasons, in the order of their numbers in recordings.
    pub const ALL: [Why; 6] = [
        Why::Foreign,
        Why::Unreadable,
        Why::OtherRoot,
        Why::Refused,
        Why::NotModelled,
        Why::HostFile,
    ];
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Foreign => "not a 64-bit x86 program",
            Why::Unreadable => "its file cannot be read",
            Why::OtherRoot => "the emulator is not there from its root directory",
            Why::Refused => "the emulator could not be executed on it",
            Why::NotModelled => "the simulated kernel ignores it",
            Why::HostFile => "the program read the host's",
        })
    }
}

/// A process that continued with a program outside the emulator: it ran on the host's processor, and the stream holds
/// nothing of it. Or a memory call that is not modelled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unseen {
    /// Name of the program's file without folders, cut to 64 bytes. Of a call, its number and arguments.
    pub program: String,
    /// The reason.
    pub why: Why,
}

impl Unseen {
    /// Notes for the reader of a result: one line for each program and reason, with the number of processes.
    pub fn sentences(all: &[Unseen]) -> Vec<String> {
        let mut counts: BTreeMap<&Unseen, u64> = BTreeMap::new();
        for unseen in all {
            *counts.entry(unseen).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(Unseen { program, why }, n)| {
                match why {
                    Why::NotModelled => return format!("{program} is not modelled: {why}"),
                    Why::HostFile => return format!("{program} is not simulated: {why}"),
                    _ => {}
                }
                let processes = if n == 1 { "process" } else { "processes" };
                format!("{n} {processes} ran {program} unseen: {why}")
            })
            .collect()
    }
}
