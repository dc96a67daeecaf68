//! The text of Pin's example tool `pinatrace`: `0xIP: R 0xADDRESS` for each access.
//!
//! Only instructions that access memory appear, without sizes. A store that follows a load of the same instruction
//! belongs to it.

use pagewalk_input::{FileError, Input};
use pagewalk_stream::{Op, OpClass};

use crate::lackey::{next_line, shown};
use crate::pump::{Sink, Stop};

/// Lines by which another tool is recognised.
const LOOK: usize = 50;
/// Bytes of an access, which the text does not say.
const BYTES: u8 = 8;

/// Content of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    Access {
        pc: u64,
        va: u64,
        store: bool,
    },
    /// `#eof`, another comment, or an empty line.
    Other,
}

/// `None` if the line is not one of pinatrace's.
pub fn parse_line(line: &[u8]) -> Option<Line> {
    if line.is_empty() || line.starts_with(b"#") {
        return Some(Line::Other);
    }
    let text = std::str::from_utf8(line).ok()?;
    let (pc, access) = text.split_once(':')?;
    let mut words = access.split_ascii_whitespace();
    let store = match words.next()? {
        "R" => false,
        "W" => true,
        _ => return None,
    };
    let va = address(words.next()?)?;
    // Some versions of the tool add the size, a prefetch mark or the value.
    Some(Line::Access {
        pc: address(pc.trim())?,
        va,
        store,
    })
}

fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    // `from_str_radix` would accept a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// Body of the reading thread.
pub fn read<E>(mut input: Input, sink: &mut Sink<E>) -> Result<(), Stop> {
    let (mut line, mut number) = (Vec::new(), 0);
    // Address of the last instruction, if it was a load so far.
    let mut loaded = None;
    while let Some(at) = next_line(&mut input, &mut line, &mut number)? {
        match parse_line(&line) {
            Some(Line::Access { pc, va, store }) => {
                let same = store && loaded == Some(pc);
                loaded = (!store).then_some(pc);
                sink.push(Op {
                    pc,
                    va,
                    insns: u16::from(!same),
                    kind: if store { OpClass::Store } else { OpClass::Load },
                    size: BYTES,
                    ..Op::default()
                })?;
            }
            Some(Line::Other) => {}
            None => {
                let what = format!(
                    "line {number}, {}, makes no sense; expected lines such as `0x401136: R 0x7ffe1c3b5a08` of Pin's pinatrace; what comes before is good",
                    shown(&line)
                );
                return Err(FileError::at(&input.path, at, what).into());
            }
        }
    }
    Ok(())
}

/// A trace of another tool, and how to make pinatrace's text of it. `start` is the beginning of the file.
pub fn other_tool(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let hex = |word: &str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let text = start.split_inclusive(|b| *b == b'\n').take(LOOK);
    let text = text.filter(|l| l.ends_with(b"\n")).map(std::str::from_utf8);
    let lines: Vec<&str> = text.collect::<Result<_, _>>().ok()?;
    let all = |is: &dyn Fn(&[&str]) -> bool| {
        !lines.is_empty()
            && lines
                .iter()
                .all(|l| is(&l.split_ascii_whitespace().collect::<Vec<_>>()))
    };
    let number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    if all(&|words| matches!(words, [address, "R" | "W"] if hex(address))) {
        return Some((
            "a memory trace of Ramulator",
            r#"convert it with awk '{print "0x400000: " $2 " " $1}'"#,
        ));
    }
    if all(&|words| matches!(words, ["0" | "1" | "2", address, ..] if hex(address))) {
        return Some((
            "a dinero trace",
            r#"convert it with awk '$1==2{ip=$2} $1<2{print "0x0" ip ": " ($1?"W":"R") " 0x" $2}'"#,
        ));
    }
    let bubbles = |words: &[&str]| match words {
        [first, rest @ ..] => {
            number(first) && matches!(rest.len(), 1 | 2) && rest.iter().all(|w| hex(w))
        }
        [] => false,
    };
    all(&bubbles).then_some((
        "a processor trace of Ramulator",
        r#"convert it with awk '{printf "0x400000: R 0x%x\n", $2} NF>2{printf "0x400000: W 0x%x\n", $3}'"#,
    ))
}

#[cfg(test)]
mod tests {
    use super::{Line, other_tool, parse_line};

    #[test]
    fn lines_of_pinatrace_are_read_and_no_others() {
        let access = |pc, store, va| Some(Line::Access { pc, va, store });
        assert_eq!(
            parse_line(b"0x401136: R 0x7ffe08"),
            access(0x40_1136, false, 0x7f_fe08)
        );
        assert_eq!(parse_line(b"0x1: W   0x2  8 0x5"), access(1, true, 2));
        assert_eq!(parse_line(b"#eof"), Some(Line::Other));
        for bad in [
            "0x1 R 0x2",
            "0x1: X 0x2",
            "1: R 0x2",
            "0x1: R",
            "0x+1: R 0x2",
            "0x1: R 0x",
            "\u{e9}",
        ] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn other_tools_are_named_by_their_form() {
        for (start, name) in [
            (
                "0x12345680 R\n0x4cbd56c0 W\n",
                Some("memory trace of Ramulator"),
            ),
            ("2 401136\n0 7ffe08\n1 10\n", Some("dinero")),
            (
                "3 20734016\n1 20846400 20734016\n",
                Some("processor trace of Ramulator"),
            ),
            ("hello world\n", None),
            ("", None),
            ("3\n", None),
        ] {
            let found = other_tool(start.as_bytes()).map(|f| f.0);
            assert_eq!(found.is_some(), name.is_some(), "{start}");
            assert!(
                found.unwrap_or_default().contains(name.unwrap_or_default()),
                "{start}"
            );
        }
    }
}
