//! Reads a text file line by line, and reports errors with line numbers.

use std::path::Path;

use pagewalk_input::Input;
use pagewalk_stream::Error;

/// Longest accepted line. A binary file may have no line ends at all.
const LONGEST: usize = 1 << 16;

/// A file and its current line.
pub(super) struct LineReader {
    input: Input,
    line: Vec<u8>,
    /// Number of the current line, from 1.
    number: u64,
}

impl LineReader {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let expected = "an edge list or a Matrix Market file";
        Ok(LineReader {
            input: Input::open(path, "graph", expected)?,
            line: Vec::new(),
            number: 0,
        })
    }

    /// Advances to the next line. Returns false at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        self.line.clear();
        self.number += 1;
        loop {
            let there = self.input.peek()?;
            if there.is_empty() {
                return Ok(!self.line.is_empty());
            }
            let end = there.iter().position(|b| *b == b'\n');
            let taken = end.unwrap_or(there.len());
            if self.line.len() + taken > LONGEST {
                self.line.clear();
                return Err(self.wrong("a line of more than 64 KiB", "text"));
            }
            self.line.extend_from_slice(&there[..taken]);
            self.input.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The current line without its end.
    pub(super) fn line(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// An error at the current line.
    pub(super) fn wrong(&self, found: &str, expected: &str) -> Error {
        let path = self.input.path.display();
        Error::refused(format!("{found}; expected {expected}"))
            .at(format!("{path}, line {}", self.number))
    }

    /// An error that quotes the current line.
    pub(super) fn wrong_line(&self, expected: &str) -> Error {
        let text: String = String::from_utf8_lossy(self.line())
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(60)
            .collect();
        self.wrong(&format!("`{text}`"), expected)
    }
}

/// Fields of a line, separated by spaces, commas, bars or semicolons.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| b.is_ascii_whitespace() || matches!(b, b',' | b'|' | b';'))
        .filter(|f| !f.is_empty())
}

/// A whole number that fits 64 bits.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A weight: a number of at least 0, rounded to a whole number below 2^32.
pub(super) fn weight(text: &[u8]) -> Option<u32> {
    if let Some(n) = whole(text) {
        return u32::try_from(n).ok();
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (0.0..4_294_967_295.0)
        .contains(&number)
        .then(|| number.round() as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{fields, weight, whole};

    #[test]
    fn numbers_are_whole_and_weights_are_rounded() {
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "", "-1", "+1", "1.0", "1e3", "x"] {
            assert_eq!(whole(text.as_bytes()), None, "{text}");
        }
        for (text, value) in [
            ("3", 3),
            ("2.5", 3),
            ("1e2", 100),
            ("0.2", 0),
            ("4294967295", u32::MAX),
        ] {
            assert_eq!(weight(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["-1", "-0.6", "nan", "inf", "4294967296", "1e10", "one", ""] {
            assert_eq!(weight(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_number_comes_back(n: u64) {
            prop_assert_eq!(whole(n.to_string().as_bytes()), Some(n));
        }

        #[test]
        fn fields_join_to_the_line(parts in proptest::collection::vec("[a-z0-9]{1,5}", 1..6), by in "[ ,|;\t]{1,2}") {
            let line = parts.join(&by);
            let found: Vec<_> = fields(line.as_bytes()).map(|f| String::from_utf8_lossy(f).into_owned()).collect();
            prop_assert_eq!(found, parts);
        }
    }
}
