//! Checksums of xz files, computed outside liblzma.
//!
//! liblzma, as its crate builds it, computes CRC64 by tables only, which takes as long as decompression itself. If the
//! index at a file's end is valid, liblzma ignores the checksums, and this module computes them by carry-less
//! multiplication. liblzma still compares the sizes of the blocks with the index. The layout is that of "The .xz File
//! Format", version 1.2.1.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Result};
use std::os::unix::fs::FileExt;

use liblzma::stream::Error;

/// Bytes of a stream's header, and of its footer.
const HEADER: u64 = 12;
/// Longer indices than this (some million blocks) are left to liblzma.
const MOST_INDEX: u64 = 1 << 25;

/// Checksum algorithm in a stream's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChecksumKind {
    Crc32,
    Crc64,
}

impl ChecksumKind {
    fn bytes(self) -> usize {
        match self {
            ChecksumKind::Crc32 => 4,
            ChecksumKind::Crc64 => 8,
        }
    }
}

/// A block of an xz file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// Size after decompression.
    bytes: u64,
    kind: ChecksumKind,
    /// Its checksum in the file.
    expected: u64,
}

/// The blocks of an xz file in order, from the indices of its streams. `None` if an index is invalid, so that liblzma
/// reports the error, or if the checksums are of another type.
pub(crate) fn blocks(file: &File) -> Option<VecDeque<Block>> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut blocks = VecDeque::new();
    let mut end = metadata.len();
    while end > 0 {
        end = stream(file, end, &mut blocks)?;
    }
    Some(blocks)
}

/// Puts the blocks of the stream that ends at `end` before the others. Returns the offset at which the stream begins.
fn stream(file: &File, end: u64, blocks: &mut VecDeque<Block>) -> Option<u64> {
    let footer: [u8; HEADER as usize] = read(file, end.checked_sub(HEADER)?)?;
    if footer[8..] == [0; 4] {
        // Streams may have padding after them.
        return end.checked_sub(4);
    }
    let kind = match footer[8..] {
        [0, 1, b'Y', b'Z'] => ChecksumKind::Crc32,
        [0, 4, b'Y', b'Z'] => ChecksumKind::Crc64,
        _ => return None,
    };
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    if crc32fast::hash(&footer[4..10]) != number(&footer[..4]) {
        return None;
    }
    let index_bytes = (u64::from(number(&footer[4..8])) + 1) * 4;
    let index_at = (end - HEADER).checked_sub(index_bytes)?;
    if !(8..=MOST_INDEX).contains(&index_bytes) {
        return None;
    }
    let mut index = vec![0; index_bytes as usize];
    file.read_exact_at(&mut index, index_at).ok()?;
    let (index, checksum) = index.split_at(index.len() - 4);
    if crc32fast::hash(index) != number(checksum) {
        return None;
    }
    let mut rest = index.strip_prefix(&[0])?;
    let mut found = Vec::new();
    let mut total = 0u64;
    for _ in 0..integer(&mut rest)? {
        // Without the padding before its checksum and after the block.
        let unpadded = integer(&mut rest)?;
        let bytes = integer(&mut rest)?;
        total = total.checked_add(unpadded.checked_next_multiple_of(4)?)?;
        found.push((total, bytes));
    }
    let first = index_at.checked_sub(total)?;
    for (until, bytes) in found.into_iter().rev() {
        // The checksum ends its block, and its length is a multiple of 4.
        let mut expected = [0; 8];
        let at = (first + until).checked_sub(kind.bytes() as u64)?;
        file.read_exact_at(&mut expected[..kind.bytes()], at).ok()?;
        let expected = u64::from_le_bytes(expected);
        blocks.push_front(Block {
            bytes,
            kind,
            expected,
        });
    }
    first.checked_sub(HEADER)
}

fn read<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// Reads an integer of variable length, at most 63 bits, from the front.
fn integer(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..9 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// An incremental checksum.
enum Digest {
    Crc32(crc32fast::Hasher),
    Crc64(crc64fast::Digest),
}

impl Digest {
    fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Crc32 => Digest::Crc32(crc32fast::Hasher::new()),
            ChecksumKind::Crc64 => Digest::Crc64(crc64fast::Digest::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Digest::Crc32(digest) => digest.update(bytes),
            Digest::Crc64(digest) => digest.write(bytes),
        }
    }

    fn value(&self) -> u64 {
        match self {
            Digest::Crc32(digest) => u64::from(digest.clone().finalize()),
            Digest::Crc64(digest) => digest.sum64(),
        }
    }
}

/// Forwards the data of `reader`, and compares it with the checksums of these blocks.
pub(crate) struct Checked<R> {
    reader: R,
    blocks: VecDeque<Block>,
    /// Checksum of the first block's data so far.
    digest: Option<Digest>,
}

impl<R: Read> Checked<R> {
    pub(crate) fn new(reader: R, blocks: VecDeque<Block>) -> Self {
        Checked {
            reader,
            blocks,
            digest: None,
        }
    }

    /// Returns true if `bytes` match the checksums so far. Empty `bytes` mark the end.
    fn check(&mut self, mut bytes: &[u8]) -> bool {
        let ended = bytes.is_empty();
        while let Some(block) = self.blocks.front_mut() {
            let digest = self.digest.get_or_insert_with(|| Digest::new(block.kind));
            let of_it = bytes
                .len()
                .min(usize::try_from(block.bytes).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(of_it);
            digest.update(now);
            block.bytes -= now.len() as u64;
            bytes = later;
            if block.bytes > 0 {
                return !ended;
            }
            if digest.value() != block.expected {
                return false;
            }
            self.blocks.pop_front();
            self.digest = None;
        }
        bytes.is_empty()
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let bytes = self.reader.read(into)?;
        if self.check(&into[..bytes]) {
            Ok(bytes)
        } else {
            // liblzma's error for a wrong checksum.
            Err(Error::Data.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use liblzma::stream::{Action, Check, Status, Stream};

    use super::{ChecksumKind, blocks};
    use crate::{FileError, Input};

    /// Bytes that cannot be compressed: liblzma stores them unchanged, so that only a checksum detects a changed one.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 3u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// A stream with a block for each part.
    fn compressed(parts: &[&[u8]], check: Check) -> Vec<u8> {
        let mut encoder = Stream::new_easy_encoder(0, check).unwrap();
        let mut out = Vec::with_capacity(1 << 22);
        for part in parts {
            let before = encoder.total_in();
            loop {
                let rest = &part[(encoder.total_in() - before) as usize..];
                let action = Action::FullFlush;
                if encoder.process_vec(rest, &mut out, action).unwrap() == Status::StreamEnd {
                    break;
                }
            }
        }
        while encoder.process_vec(&[], &mut out, Action::Finish).unwrap() != Status::StreamEnd {}
        out
    }

    fn all(path: &Path) -> Result<Vec<u8>, FileError> {
        let mut input = Input::open(path, "trace", "a trace")?;
        let mut all = vec![0; 1 << 22];
        let bytes = input.read_full(&mut all)?;
        all.truncate(bytes);
        Ok(all)
    }

    #[test]
    fn blocks_are_found_and_their_checksums_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.xz");
        let data = noise(700_000);
        let (first, second) = data.split_at(300_001);
        for (check, kind) in [
            (Check::Crc32, Some(ChecksumKind::Crc32)),
            (Check::Crc64, Some(ChecksumKind::Crc64)),
            (Check::Sha256, None),
            (Check::None, None),
        ] {
            let one = compressed(&[&data], check);
            let blocks_of_one = compressed(&[first, second], check);
            let streams = [
                compressed(&[first], check),
                vec![0; 8],
                compressed(&[], check),
                compressed(&[second], check),
                vec![0; 4],
            ];
            let several = streams.concat();
            for (bytes, lengths) in [
                (one, &[700_000][..]),
                (blocks_of_one, &[300_001, 399_999]),
                (several, &[300_001, 399_999]),
            ] {
                std::fs::write(&path, &bytes).unwrap();
                let found = blocks(&std::fs::File::open(&path).unwrap());
                let found = found.map(|b| b.iter().map(|b| (b.bytes, b.kind)).collect::<Vec<_>>());
                let expected = kind.map(|kind| lengths.iter().map(|l| (*l, kind)).collect());
                assert_eq!(found, expected, "{check:?}");
                assert!(all(&path).unwrap() == data, "{check:?}");
                if matches!(check, Check::None) {
                    continue;
                }
                for damaged in [1000, 290_000, 310_000, bytes.len() - 100_000] {
                    let mut bytes = bytes.clone();
                    bytes[damaged] ^= 1;
                    std::fs::write(&path, &bytes).unwrap();
                    let error = all(&path).unwrap_err().to_string();
                    assert!(error.contains("is damaged near byte"), "{error}");
                    assert!(error.contains("lzma data error"), "{error}");
                }
            }
        }
    }

    /// If the index is missing or wrong, liblzma reports the error.
    #[test]
    fn an_end_that_is_cut_off_or_damaged_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.xz");
        let data = noise(300_000);
        let bytes = compressed(&[&data[..1000], &data[1000..]], Check::Crc64);
        let open = || std::fs::File::open(&path).unwrap();
        for cut in (1..80).chain([4000, 299_000]) {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            assert_eq!(blocks(&open()), None);
            let error = all(&path).unwrap_err().to_string();
            assert!(error.contains("is cut off"), "{cut}: {error}");
        }
        for back in 1..60 {
            let mut bytes = bytes.clone();
            let at = bytes.len() - back;
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            assert!(all(&path).is_err(), "{back}");
        }
    }
}
