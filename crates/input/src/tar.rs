//! Tar archives with one member.
//!
//! The layout is that of POSIX.1-2017, `pax`, "ustar Interchange Format".

use std::io::{BufRead, Error, ErrorKind, Read, Result};

/// Bytes of a header, and unit of the contents.
pub(crate) const BLOCK: usize = 512;

/// The place and size of the first member that is a file, if `start` is the beginning of a tar archive. The error is a
/// message for the user.
pub(crate) fn member(start: &[u8]) -> Option<std::result::Result<(usize, u64), String>> {
    let mut at = 0;
    loop {
        let header = start.get(at..at + BLOCK)?;
        if &header[257..262] != b"ustar" {
            return (at > 0).then(|| Err(several()));
        }
        let bytes = number(&header[124..136])?;
        let contents = at + BLOCK;
        match header[156] {
            b'0' | 0 => return Some(Ok((contents, bytes))),
            // Folders, and headers that describe the next member.
            b'5' | b'x' | b'g' | b'L' | b'K' => {
                let blocks = usize::try_from(bytes.div_ceil(BLOCK as u64)).ok()?;
                at = contents.checked_add(blocks.checked_mul(BLOCK)?)?;
            }
            _ => return Some(Err(several())),
        }
    }
}

pub(crate) fn several() -> String {
    "the tar archive does not hold one file; unpack it and give the trace in it".into()
}

/// A size: octal, or binary if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let bytes = field[field.len() - 8..].try_into().ok()?;
        return Some(u64::from_be_bytes(bytes));
    }
    let text = std::str::from_utf8(field).ok()?;
    u64::from_str_radix(text.trim_matches([' ', '\0']), 8).ok()
}

/// True if what follows a member's contents is the end of the archive: zeroes, or nothing.
pub(crate) fn ends(next: &[u8]) -> bool {
    next.iter().all(|b| *b == 0)
}

/// Offset of the header behind a member's contents.
pub(crate) fn behind(contents: usize, bytes: u64) -> u64 {
    contents as u64 + bytes.next_multiple_of(BLOCK as u64)
}

/// Reads the contents of a member, and checks that no further one follows.
pub(crate) struct Member {
    archive: Box<dyn BufRead + Send>,
    left: u64,
    padding: u64,
    ended: bool,
}

impl Member {
    pub(crate) fn new(archive: Box<dyn BufRead + Send>, bytes: u64) -> Self {
        Member {
            archive,
            left: bytes,
            padding: bytes.next_multiple_of(BLOCK as u64) - bytes,
            ended: false,
        }
    }

    /// Reads what follows the contents: zeroes.
    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let mut rest = self.archive.as_mut().take(self.padding);
        std::io::copy(&mut rest, &mut std::io::sink())?;
        loop {
            let there = self.archive.fill_buf()?;
            let bytes = there.len();
            if bytes == 0 {
                return Ok(());
            }
            if !ends(there) {
                return Err(Error::new(ErrorKind::Unsupported, several()));
            }
            self.archive.consume(bytes);
        }
    }
}

impl BufRead for Member {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        if self.left == 0 {
            self.end()?;
            return Ok(&[]);
        }
        let there = self.archive.fill_buf()?;
        if there.is_empty() {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        Ok(&there[..there.len().min(most)])
    }

    fn consume(&mut self, bytes: usize) {
        self.archive.consume(bytes);
        self.left -= bytes as u64;
    }
}

impl Read for Member {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let there = self.fill_buf()?;
        let bytes = there.len().min(into.len());
        into[..bytes].copy_from_slice(&there[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}
