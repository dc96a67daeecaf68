//! Programs that a live program has executed and that could not be followed.

use std::collections::BTreeMap;
use std::fmt;

/// Why a program is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Another architecture, or 32 bits.
    Foreign,
    /// It may be executed, but not read.
    Unreadable,
    /// From its root directory the emulator is not reachable.
    OtherRoot,
    /// The kernel did not execute the emulator on it.
    Refused,
}

impl Why {
    /// Each, in the order of their numbers in recordings.
    pub const ALL: [Why; 4] = [Why::Foreign, Why::Unreadable, Why::OtherRoot, Why::Refused];
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Foreign => "not a 64-bit x86 program",
            Why::Unreadable => "its file cannot be read",
            Why::OtherRoot => "the emulator is not there from its root directory",
            Why::Refused => "the emulator could not be executed on it",
        })
    }
}

/// A process that went on with a program that is not followed: it ran on the bare
/// processor, and nothing of it is in the stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unseen {
    /// Name of the program's file, without folders, at most 64 bytes of it.
    pub program: String,
    /// Why.
    pub why: Why,
}

impl Unseen {
    /// What the reader of a result should know of them: a line for each program and
    /// reason, with the number of processes.
    pub fn sentences(all: &[Unseen]) -> Vec<String> {
        let mut counts: BTreeMap<&Unseen, u64> = BTreeMap::new();
        for unseen in all {
            *counts.entry(unseen).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(Unseen { program, why }, n)| {
                let processes = if n == 1 { "process" } else { "processes" };
                format!("{n} {processes} ran {program} unseen: {why}")
            })
            .collect()
    }
}
