//! The text of `valgrind --tool=lackey --trace-mem=yes`.
//!
//! `I  04001f30,3` is an instruction, ` L`, ` S` and ` M` its loads, stores and modifies (addresses in hexadecimal,
//! sizes in decimal). Valgrind's own lines begin with `==` or `--`. There are no registers and no branches. An
//! instruction is a branch if the next one is not at the following address, and remains a branch from then on.

use pagewalk_input::{FileError, Input};
use pagewalk_stream::{Op, OpClass, flags};
use rustc_hash::FxHashMap;

use crate::pump::{Sink, Stop};

/// Longer lines are invalid.
const LONGEST_LINE: usize = 4096;
/// Most branches kept; real programs have fewer.
const MOST_BRANCHES: usize = 1 << 20;

/// Content of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    Instruction {
        pc: u64,
        size: u64,
    },
    Load {
        va: u64,
        size: u64,
    },
    Store {
        va: u64,
        size: u64,
    },
    Modify {
        va: u64,
        size: u64,
    },
    /// A line of Valgrind's own, or an empty one.
    Other,
}

/// `None` if the line is not one of lackey's.
pub fn parse_line(line: &[u8]) -> Option<Line> {
    if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
        return Some(Line::Other);
    }
    let (code, rest) = line.split_at_checked(3)?;
    let comma = rest.iter().position(|b| *b == b',')?;
    let number = |bytes: &[u8], radix| {
        let text = std::str::from_utf8(bytes).ok()?;
        // `from_str_radix` would accept a sign.
        let plain = text.bytes().all(|b| b.is_ascii_hexdigit());
        u64::from_str_radix(text, radix).ok().filter(|_| plain)
    };
    let at = number(&rest[..comma], 16)?;
    let size = number(&rest[comma + 1..], 10)?;
    if size == 0 || size > 4096 {
        return None;
    }
    Some(match code {
        b"I  " => Line::Instruction { pc: at, size },
        b" L " => Line::Load { va: at, size },
        b" S " => Line::Store { va: at, size },
        b" M " => Line::Modify { va: at, size },
        _ => return None,
    })
}

/// Reads the next line without its newline. Returns the offset at its start, or `None` at the end of the trace. `number`
/// is the line's, counted from 1. A last line without a newline is an error: the trace is cut off there.
pub fn next_line(
    input: &mut Input,
    line: &mut Vec<u8>,
    number: &mut u64,
) -> Result<Option<u64>, FileError> {
    let begin = input.at;
    line.clear();
    *number += 1;
    loop {
        let there = input.peek()?;
        if there.is_empty() && line.is_empty() {
            return Ok(None);
        }
        if there.is_empty() {
            let what = format!(
                "the trace is cut off in line {number}, {}; what comes before is good; record it again, or end the line if it is whole",
                shown(line)
            );
            return Err(FileError::at(&input.path, begin, what));
        }
        let end = there.iter().position(|b| *b == b'\n');
        let take = end.unwrap_or(there.len());
        if line.len() + take > LONGEST_LINE {
            return Err(bad_line(input, begin, "a line of more than 4096 bytes"));
        }
        line.extend_from_slice(&there[..take]);
        input.consume(take + usize::from(end.is_some()));
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(begin));
        }
    }
}

fn bad_line(input: &Input, at: u64, what: &str) -> FileError {
    FileError::at(
        &input.path,
        at,
        format!(
            "{what}; expected lines such as `I  04001f30,3` or ` L 1ffeffe7e8,8` of valgrind --tool=lackey --trace-mem=yes; what comes before is good"
        ),
    )
}

/// A line as text for a message, cut to a readable length.
pub fn shown(line: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(line).chars().take(40).collect();
    format!("`{}`", text.escape_debug())
}

#[derive(Clone, Copy)]
struct KnownBranch {
    target: u64,
    several: bool,
}

/// Turns lines into ops.
#[derive(Default)]
struct Translator {
    pc: u64,
    size: u64,
    /// 1 if no op includes the current instruction yet.
    own: u16,
    plain: u16,
    begun: bool,
    branches: FxHashMap<u64, KnownBranch>,
}

impl Translator {
    fn insns(&mut self) -> u16 {
        std::mem::take(&mut self.own) + std::mem::take(&mut self.plain)
    }

    fn instruction<E>(&mut self, pc: u64, size: u64, sink: &mut Sink<E>) -> Result<(), Stop> {
        if self.begun {
            self.leave(Some(pc), sink)?;
        }
        self.begun = true;
        (self.pc, self.size, self.own) = (pc, size, 1);
        Ok(())
    }

    /// Ends the current instruction; `next` is the address of the next one.
    fn leave<E>(&mut self, next: Option<u64>, sink: &mut Sink<E>) -> Result<(), Stop> {
        let falls = next.is_none_or(|n| n == self.pc.wrapping_add(self.size));
        let known = self.branches.get_mut(&self.pc);
        let branch = match (next, known) {
            (Some(next), Some(known)) if !falls => {
                known.several |= known.target != next;
                let indirect = if known.several {
                    flags::INDIRECT
                } else {
                    flags::CONDITIONAL
                };
                Some((next, flags::TAKEN | indirect))
            }
            (Some(next), None) if !falls => {
                if self.branches.len() < MOST_BRANCHES {
                    let several = false;
                    self.branches.insert(
                        self.pc,
                        KnownBranch {
                            target: next,
                            several,
                        },
                    );
                }
                Some((next, flags::TAKEN | flags::CONDITIONAL))
            }
            (_, Some(known)) if !known.several => Some((known.target, flags::CONDITIONAL)),
            _ => None,
        };
        if let Some((va, flags)) = branch {
            let op = Op {
                pc: self.pc,
                va,
                insns: self.insns(),
                latency: 1,
                kind: OpClass::Branch,
                flags,
                ..Op::default()
            };
            return sink.push(op);
        }
        self.plain += std::mem::take(&mut self.own);
        if self.plain == u16::MAX - 1 {
            self.compute(sink)?;
        }
        Ok(())
    }

    fn compute<E>(&mut self, sink: &mut Sink<E>) -> Result<(), Stop> {
        if self.plain == 0 {
            return Ok(());
        }
        let op = Op {
            pc: self.pc,
            insns: self.insns(),
            latency: 1,
            ..Op::default()
        };
        sink.push(op)
    }

    fn access<E>(
        &mut self,
        kind: OpClass,
        va: u64,
        size: u64,
        sink: &mut Sink<E>,
    ) -> Result<(), Stop> {
        // Wider accesses (`fxsave`) become several of 64 bytes.
        for at in (0..size).step_by(64) {
            let op = Op {
                pc: self.pc,
                va: va.wrapping_add(at),
                insns: self.insns(),
                kind,
                size: (size - at).min(64) as u8,
                ..Op::default()
            };
            sink.push(op)?;
        }
        Ok(())
    }
}

/// Body of the reading thread.
pub fn read<E>(mut input: Input, sink: &mut Sink<E>) -> Result<(), Stop> {
    let mut translator = Translator::default();
    let result = read_lines(&mut input, &mut translator, sink);
    if let Err(Stop::Gone) = result {
        return result;
    }
    translator.leave(None, sink)?;
    translator.compute(sink)?;
    result
}

fn read_lines<E>(input: &mut Input, to: &mut Translator, sink: &mut Sink<E>) -> Result<(), Stop> {
    let (mut line, mut number) = (Vec::new(), 0);
    while let Some(at) = next_line(input, &mut line, &mut number)? {
        match parse_line(&line) {
            Some(Line::Instruction { pc, size }) => to.instruction(pc, size, sink)?,
            Some(Line::Load { va, size }) => to.access(OpClass::Load, va, size, sink)?,
            Some(Line::Store { va, size }) => to.access(OpClass::Store, va, size, sink)?,
            Some(Line::Modify { va, size }) => {
                to.access(OpClass::Load, va, size, sink)?;
                to.access(OpClass::Store, va, size, sink)?;
            }
            Some(Line::Other) => {}
            None => {
                let what = format!("line {number}, {}, makes no sense", shown(&line));
                return Err(bad_line(input, at, &what).into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Line, parse_line, shown};

    proptest! {
        #[test]
        fn any_line_is_answered(line: Vec<u8>) {
            let _ = parse_line(&line);
            let _ = shown(&line);
        }

        #[test]
        fn lines_of_lackey_are_read(va: u64, size in 1..4096u64) {
            let line = |code| format!("{code}{va:08x},{size}");
            prop_assert_eq!(parse_line(line("I  ").as_bytes()), Some(Line::Instruction { pc: va, size }));
            prop_assert_eq!(parse_line(line(" L ").as_bytes()), Some(Line::Load { va, size }));
            prop_assert_eq!(parse_line(line(" S ").as_bytes()), Some(Line::Store { va, size }));
            prop_assert_eq!(parse_line(line(" M ").as_bytes()), Some(Line::Modify { va, size }));
            prop_assert_eq!(parse_line(line("  L").as_bytes()), None);
            prop_assert_eq!(parse_line(format!(" L +{va:x},{size}").as_bytes()), None);
        }
    }
}
