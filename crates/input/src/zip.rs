//! Zip archives whose members are the parts of one file.
//!
//! The layout is that of PKWARE's APPNOTE.TXT 6.3.10: the directory at the end of the file (4.3.12 to 4.3.16) lists the
//! members. Members are stored, deflated (8) or compressed by Zstandard (93).

use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result, Take};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Header of the first member.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";
/// Most bytes of the directory: some million members.
const MOST_DIRECTORY: u64 = 1 << 28;
/// Bytes of the end record without its comment, and with the longest one.
const END: u64 = 22;
const MOST_END: u64 = END + 0xffff;

/// A member in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    /// Place of its own header.
    header: u64,
    compressed: u64,
    bytes: u64,
    method: u16,
    crc: u32,
}

/// Reads the members one after the other.
pub(crate) struct Zip {
    file: Arc<File>,
    members: std::vec::IntoIter<Member>,
    now: Option<Open>,
    taken: Arc<AtomicU64>,
}

/// The member that is read now.
struct Open {
    reader: Box<dyn Read + Send>,
    crc: crc32fast::Hasher,
    member: Member,
    given: u64,
}

/// Reads a file from a place on.
struct From {
    file: Arc<File>,
    at: u64,
    taken: Arc<AtomicU64>,
}

impl Read for From {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let bytes = self.file.read_at(into, self.at)?;
        self.at += bytes as u64;
        self.taken.store(self.at, Ordering::Relaxed);
        Ok(bytes)
    }
}

fn short(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
    u64::from(u32::from_le_bytes(word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) | word(bytes, at + 4) << 32
}

impl Zip {
    /// Reads the directory. The error is a message for the user.
    pub(crate) fn open(file: File, taken: Arc<AtomicU64>) -> std::result::Result<Self, String> {
        let members = directory(&file)?;
        let members: Vec<Member> = members.into_iter().filter(|m| m.bytes > 0).collect();
        let odd = members.iter().find(|m| ![0, 8, 93].contains(&m.method));
        if let Some(odd) = odd {
            return Err(format!(
                "a member of the zip archive is compressed by method {}; expected stored, deflate or Zstandard: unpack it",
                odd.method
            ));
        }
        Ok(Zip {
            file: Arc::new(file),
            members: members.into_iter(),
            now: None,
            taken,
        })
    }

    fn start(&self, member: Member) -> Result<Open> {
        let mut header = [0; 30];
        self.file.read_exact_at(&mut header, member.header)?;
        if !header.starts_with(MAGIC) {
            return Err(damaged("a member is not where the directory says"));
        }
        let at = member.header + 30 + short(&header, 26) + short(&header, 28);
        let from = From {
            file: Arc::clone(&self.file),
            at,
            taken: Arc::clone(&self.taken),
        };
        let part: BufReader<Take<From>> =
            BufReader::with_capacity(1 << 16, from.take(member.compressed));
        let reader: Box<dyn Read + Send> = match member.method {
            0 => Box::new(part),
            8 => Box::new(flate2::bufread::DeflateDecoder::new(part)),
            _ => Box::new(zstd::Decoder::with_buffer(part)?),
        };
        Ok(Open {
            reader,
            crc: crc32fast::Hasher::new(),
            member,
            given: 0,
        })
    }
}

impl Read for Zip {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if self.now.is_none() {
                let Some(member) = self.members.next() else {
                    return Ok(0);
                };
                self.now = Some(self.start(member)?);
            }
            let Some(open) = &mut self.now else {
                continue;
            };
            let bytes = open.reader.read(into)?;
            open.given += bytes as u64;
            open.crc.update(&into[..bytes]);
            if bytes > 0 && open.given <= open.member.bytes {
                return Ok(bytes);
            }
            if open.given < open.member.bytes {
                return Err(Error::from(ErrorKind::UnexpectedEof));
            }
            if open.given > open.member.bytes || open.crc.clone().finalize() != open.member.crc {
                return Err(damaged(
                    "a member has other contents than the directory says",
                ));
            }
            self.now = None;
        }
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// The members in the order of the directory.
fn directory(file: &File) -> std::result::Result<Vec<Member>, String> {
    let cut = "the zip archive has no valid directory at its end: it is cut off or damaged; fetch it again, or try `zip -FF` on a copy";
    let read = || -> Result<Option<Vec<Member>>> {
        let length = file.metadata()?.len();
        let from = length.saturating_sub(MOST_END);
        let mut tail = vec![0; (length - from) as usize];
        file.read_exact_at(&mut tail, from)?;
        let is_end = |at: &usize| {
            tail[*at..].starts_with(b"PK\x05\x06")
                && *at as u64 + END + short(&tail, at + 20) == tail.len() as u64
        };
        let last = tail.len().checked_sub(END as usize);
        let Some(end) = last.and_then(|last| (0..=last).rev().find(is_end)) else {
            return Ok(None);
        };
        let (mut count, mut bytes, mut start) = (
            short(&tail, end + 10),
            word(&tail, end + 12),
            word(&tail, end + 16),
        );
        if count == 0xffff || bytes == 0xffff_ffff || start == 0xffff_ffff {
            // The locator of the large end record precedes the small one.
            let mut locator = [0; 20];
            let Some(at) = (from + end as u64).checked_sub(20) else {
                return Ok(None);
            };
            file.read_exact_at(&mut locator, at)?;
            let mut large = [0; 56];
            if !locator.starts_with(b"PK\x06\x07")
                || file.read_exact_at(&mut large, long(&locator, 8)).is_err()
                || !large.starts_with(b"PK\x06\x06")
            {
                return Ok(None);
            }
            (count, bytes, start) = (long(&large, 32), long(&large, 40), long(&large, 48));
        }
        if bytes > MOST_DIRECTORY || start.checked_add(bytes).is_none_or(|end| end > length) {
            return Ok(None);
        }
        let mut directory = vec![0; bytes as usize];
        file.read_exact_at(&mut directory, start)?;
        Ok(entries(&directory, count))
    };
    match read() {
        Ok(Some(members)) if members.is_empty() => Err("the zip archive is empty".into()),
        Ok(Some(members)) => Ok(members),
        Ok(None) => Err(cut.into()),
        Err(error) => Err(format!("cannot read the zip archive: {error}")),
    }
}

fn entries(mut rest: &[u8], count: u64) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    for _ in 0..count {
        let (fixed, after) = rest.split_at_checked(46)?;
        if !fixed.starts_with(b"PK\x01\x02") {
            return None;
        }
        let (_name, after) = after.split_at_checked(short(fixed, 28) as usize)?;
        let (mut extra, after) = after.split_at_checked(short(fixed, 30) as usize)?;
        rest = after.get(short(fixed, 32) as usize..)?;
        let mut member = Member {
            header: word(fixed, 42),
            compressed: word(fixed, 20),
            bytes: word(fixed, 24),
            method: short(fixed, 10) as u16,
            crc: word(fixed, 16) as u32,
        };
        // Sizes of 4 GB and more are in an extra field, in this order.
        while extra.len() >= 4 {
            let (kind, size) = (short(extra, 0), short(extra, 2) as usize);
            let mut field = extra.get(4..4 + size)?;
            extra = &extra[4 + size..];
            if kind != 1 {
                continue;
            }
            for value in [
                &mut member.bytes,
                &mut member.compressed,
                &mut member.header,
            ] {
                if *value == 0xffff_ffff {
                    *value = long(field.get(..8)?, 0);
                    field = &field[8..];
                }
            }
        }
        members.push(member);
    }
    Some(members)
}
