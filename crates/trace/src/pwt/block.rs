//! The parts of a `.pwt` file.
//!
//! ```text
//! header   "PWTRACE\n", version u32, length u32, JSON, crc32 of everything before
//! blocks   64-byte header (see `BlockHeader`), zstd frame: ops of a thread, steps of
//!          a thread, the code that steps of later blocks name, touch summaries
//!          of earlier blocks, or memory of a process
//! index    for each block: offset u64, its header
//! trailer  index offset u64, number of blocks u32, crc32 of the index, "PWTEND\r\n", or
//!          "PWTSTOP\n" if an interrupt has stopped the recording
//! ```
//!
//! All numbers are little-endian. A block belongs to one thread, and is encoded independently. Without a trailer the
//! file is unfinished; its blocks are still valid.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use pagewalk_input::FileError;
use serde::{Deserialize, Serialize};

use super::code::Known;
use super::codec::Cursors;
use super::steps::{MOST_RECORDS, MOST_STEPS};

/// First bytes of a recording.
pub const MAGIC: &[u8; 8] = b"PWTRACE\n";
/// Last bytes of a complete recording.
pub const TRAILER_MAGIC: &[u8; 8] = b"PWTEND\r\n";
/// Last bytes of a recording that an interrupt has stopped. Older readers take such a file for one that was cut off.
pub const STOPPED_MAGIC: &[u8; 8] = b"PWTSTOP\n";
/// Version that is written. Version 2 added steps, version 3 the kernel's reads and writes, version 4 the ends of
/// batches, version 5 touch summaries, version 6 processes that died, software prefetches and memory calls as Linux
/// serves them, version 7 flushes and non-temporal stores, version 8 the work on ports of ops, and version 9 memory.
pub const VERSION: u32 = 9;
/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 24;
/// Bytes of an entry of the index: a block's offset and its header.
pub const INDEX_ENTRY: usize = 8 + HEADER_BYTES;
/// Most ops of a block: enough that the model's learning phase is a small part of it.
pub const BLOCK_OPS: usize = 1 << 18;
/// A block is closed when its marks take this many bytes.
pub const MARKS_FULL: usize = 1 << 16;
/// Most bytes of marks that a reader accepts: one mark can be longer than `MARKS_FULL`.
const MOST_MARKS: u32 = 1 << 26;
/// Most bytes of the JSON in the header.
pub const MOST_JSON: u32 = 1 << 20;

/// Most bytes of code in a block.
const MOST_CODE: u32 = 1 << 26;

/// Most bytes of touch summaries in a block; writers stay below a third of it.
const MOST_SKIPS: u32 = 1 << 22;
/// Most bytes of each column of memory; writers stay below a third of it.
const MOST_MEMORY: u32 = 1 << 26;

/// Fewest bytes of the touch summary of one block.
const LEAST_SKIP: u64 = 5;

/// Contents of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holds {
    /// Ops and marks of one thread, each op encoded alone.
    #[default]
    Ops,
    /// Steps and marks of one thread: executions of blocks of code.
    Steps,
    /// Blocks of code.
    Code,
    /// Touch summaries of the first thread's blocks of ops or steps.
    Skips,
    /// Changes of the memory of a process, up to the end of the next block of steps of the thread.
    Memory,
}

impl Holds {
    const ALL: [Holds; 5] = [
        Holds::Ops,
        Holds::Steps,
        Holds::Code,
        Holds::Skips,
        Holds::Memory,
    ];

    /// True of a part of a thread's stream.
    pub fn is_stream(self) -> bool {
        matches!(self, Holds::Ops | Holds::Steps)
    }

    fn magic(self) -> u32 {
        u32::from_le_bytes(match self {
            Holds::Ops => *b"PWBK",
            Holds::Steps => *b"PWST",
            Holds::Code => *b"PWCO",
            Holds::Skips => *b"PWSK",
            Holds::Memory => *b"PWME",
        })
    }
}

/// Description of a trace in its header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the program, as in [`pagewalk_stream::Facts`].
    pub name: String,
    /// See [`pagewalk_stream::Facts`].
    pub infer_mappings: bool,
    /// See [`pagewalk_stream::Facts`].
    pub no_dependences: bool,
    /// See [`pagewalk_stream::Facts`].
    pub has_roi: bool,
    /// See [`pagewalk_stream::Facts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// See [`pagewalk_stream::Facts`].
    #[serde(default)]
    pub live: bool,
    /// It may hold software prefetches, with their addresses. False of older recordings.
    #[serde(default)]
    pub prefetches: bool,
    /// See [`pagewalk_stream::Facts`]. None of other programs and of older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// It may hold flushes, with their addresses. False of older recordings.
    #[serde(default)]
    pub flushes: bool,
    /// It holds the contents of memory. False of older recordings.
    #[serde(default)]
    pub memory: bool,
    /// See [`pagewalk_stream::Facts`]. None of live programs and of older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Seed of the recorded run.
    pub seed: u64,
    /// The recorded command line, workload or trace.
    pub source: String,
    /// Program and version that wrote it.
    pub made_by: String,
}

impl Header {
    /// The header of a recording of a program with these facts.
    pub fn of(facts: &pagewalk_stream::Facts, seed: u64, source: &str) -> Self {
        Header {
            name: facts.name.clone(),
            infer_mappings: facts.infer_mappings,
            no_dependences: facts.no_dependences,
            has_roi: facts.has_roi,
            request: facts.request.clone(),
            live: facts.live,
            prefetches: facts.prefetches,
            cpu: facts.cpu.clone(),
            flushes: facts.flushes,
            memory: false,
            threads: facts.threads,
            seed,
            source: source.to_owned(),
            made_by: concat!("pagewalk ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Header in front of each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHeader {
    pub holds: Holds,
    pub thread: u32,
    /// Instructions of the thread before this block. For code: number of the first block of code. For touch summaries:
    /// number of the first thread's first block that they cover. For memory: number of the process.
    pub before: u64,
    pub instructions: u64,
    /// Ops, steps, blocks of code, blocks with a summary, or pages.
    pub ops: u32,
    pub marks: u32,
    /// For ops: bytes of the side, producer, address and mark streams; the control stream has one byte for each op. For
    /// steps: bytes of the columns after the first, which has one bit for each step and one more. For memory: bytes of
    /// the three columns, then zero. Otherwise: the bytes, then zeros.
    pub lengths: [u32; 4],
    pub compressed: u32,
    pub crc: u32,
    /// Loads and stores; for steps, records of accesses; for memory, changed words.
    pub operands: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl BlockHeader {
    /// The header in its file form, with its checksum.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut put32 = |at: usize, v: u32| out[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put32(0, self.holds.magic());
        put32(4, self.thread);
        put32(24, self.ops);
        put32(28, self.marks);
        for (i, length) in self.lengths.iter().enumerate() {
            put32(32 + 4 * i, *length);
        }
        put32(48, self.compressed);
        put32(52, self.crc);
        put32(56, self.operands);
        out[8..16].copy_from_slice(&self.before.to_le_bytes());
        out[16..24].copy_from_slice(&self.instructions.to_le_bytes());
        let crc = crc32fast::hash(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the output of [`BlockHeader::bytes`].
    ///
    /// # Errors
    /// The fault of the header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let magic = u32_at(bytes, 0);
        let Some(holds) = Holds::ALL.into_iter().find(|h| h.magic() == magic) else {
            return Err("no block begins here");
        };
        if u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return Err("the checksum of a block's header does not match");
        }
        let header = BlockHeader {
            holds,
            thread: u32_at(bytes, 4),
            before: u64_at(bytes, 8),
            instructions: u64_at(bytes, 16),
            ops: u32_at(bytes, 24),
            marks: u32_at(bytes, 28),
            lengths: [32, 36, 40, 44].map(|at| u32_at(bytes, at)),
            compressed: u32_at(bytes, 48),
            crc: u32_at(bytes, 52),
            operands: u32_at(bytes, 56),
        };
        if header.is_sane() {
            Ok(header)
        } else {
            Err("a block claims more than a block can hold")
        }
    }

    /// True if it claims no more than a block can hold.
    fn is_sane(&self) -> bool {
        let BlockHeader { ops, lengths, .. } = *self;
        let [first, second, third, marks] = lengths;
        let fits = match self.holds {
            // The longest encoding of an op: 10 + 8, 5 and 8 bytes.
            Holds::Ops => {
                ops as usize <= BLOCK_OPS
                    && first <= ops * 18
                    && second <= ops * 5
                    && third <= ops * 8
                    && marks <= MOST_MARKS
            }
            Holds::Steps => {
                ops as usize <= MOST_STEPS
                    && first <= ops * 4 + 4
                    && self.operands as usize <= MOST_RECORDS
                    && second == self.operands.div_ceil(2)
                    && third <= self.operands * 8
                    && marks <= MOST_MARKS
            }
            Holds::Code => first <= MOST_CODE && self.is_plain(),
            Holds::Skips => {
                first <= MOST_SKIPS
                    && u64::from(ops) * LEAST_SKIP <= u64::from(first)
                    && self.is_plain()
            }
            Holds::Memory => {
                first <= MOST_MEMORY
                    && second <= MOST_MEMORY
                    && third <= MOST_MEMORY
                    && u64::from(ops) * 2 <= u64::from(first)
                    && second == self.operands
                    && u64::from(third) <= u64::from(second) * 8
                    && marks == 0
                    && self.instructions == 0
            }
        };
        fits && u64::from(self.marks) * 2 <= u64::from(marks)
            && self.instructions <= u64::from(ops) * 0xffff
            && self.before.checked_add(self.instructions).is_some()
            && u64::from(self.compressed) <= zstd::zstd_safe::compress_bound(self.raw()) as u64
    }

    /// True if fields that only blocks of a thread use are zero.
    fn is_plain(&self) -> bool {
        self.lengths[1..] == [0; 3] && self.instructions == 0
    }

    /// Bytes of the payload before compression.
    pub fn raw(&self) -> usize {
        self.first_column() + self.lengths.iter().map(|l| *l as usize).sum::<usize>()
    }

    fn first_column(&self) -> usize {
        match self.holds {
            Holds::Ops => self.ops as usize,
            Holds::Steps => (self.ops as usize + 1).div_ceil(8),
            Holds::Code | Holds::Skips | Holds::Memory => 0,
        }
    }

    /// The columns in an uncompressed payload of memory.
    pub fn memory_columns<'a>(&self, raw: &'a [u8]) -> [&'a [u8]; 3] {
        let [places, tags, ..] = self.lengths.map(|l| l as usize);
        let (places, rest) = raw.split_at(places);
        let (tags, words) = rest.split_at(tags);
        [places, tags, words]
    }

    /// The columns in an uncompressed payload of steps.
    pub fn columns<'a>(&self, raw: &'a [u8]) -> Columns<'a> {
        let [ids, tags, bytes, _] = self.lengths.map(|l| l as usize);
        let (misses, rest) = raw.split_at(self.first_column());
        let (ids, rest) = rest.split_at(ids);
        let (tags, rest) = rest.split_at(tags);
        let (bytes, marks) = rest.split_at(bytes);
        Columns {
            misses,
            ids,
            tags,
            bytes,
            marks,
        }
    }

    /// The streams in an uncompressed payload, and the marks.
    pub fn split<'a>(&self, raw: &'a [u8]) -> (Cursors<'a>, &'a [u8]) {
        let [side, deps, addresses, _] = self.lengths.map(|l| l as usize);
        let (control, rest) = raw.split_at(self.ops as usize);
        let (side, rest) = rest.split_at(side);
        let (deps, rest) = rest.split_at(deps);
        let (addresses, marks) = rest.split_at(addresses);
        (
            Cursors {
                control,
                side,
                deps,
                addresses,
            },
            marks,
        )
    }
}

/// The columns of a block of steps, while they are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns<'a> {
    /// One bit for each block of code executed: set if the guess was wrong.
    pub misses: &'a [u8],
    /// Numbers of the blocks of code, for wrong guesses.
    pub ids: &'a [u8],
    /// Four bits for each access.
    pub tags: &'a [u8],
    /// Address differences.
    pub bytes: &'a [u8],
    /// Marks.
    pub marks: &'a [u8],
}

/// A finished block, before compression.
pub struct Sealed {
    pub header: BlockHeader,
    /// The parts of the payload.
    pub columns: [Vec<u8>; 5],
    /// Touch summary of a block of ops.
    pub skip: Option<Vec<u8>>,
    /// For code: the decoded blocks.
    pub known: Vec<Known>,
}

/// The bytes at an offset of a file.
pub fn read_at<const N: usize>(file: &mut File, at: u64) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads and decompresses one block.
pub fn load(
    path: &Path,
    file: &mut File,
    offset: u64,
    expected: &BlockHeader,
) -> Result<Vec<u8>, FileError> {
    let fault = |what: &str| {
        FileError::at(
            path,
            offset,
            format!("{what}; the blocks before are good; see `pagewalk trace check`"),
        )
    };
    let header: [u8; HEADER_BYTES] =
        read_at(file, offset).map_err(|e| fault(&format!("cannot read a block: {e}")))?;
    let header = BlockHeader::parse(&header).map_err(fault)?;
    if header != *expected {
        return Err(fault("the block's header is not the one in the index"));
    }
    let mut payload = vec![0; header.compressed as usize];
    file.read_exact(&mut payload)
        .map_err(|e| fault(&format!("cannot read a block: {e}")))?;
    if crc32fast::hash(&payload) != header.crc {
        return Err(fault("the checksum of a block does not match"));
    }
    let raw = zstd::bulk::decompress(&payload, header.raw())
        .map_err(|e| fault(&format!("a block cannot be decompressed ({e})")))?;
    if raw.len() != header.raw() {
        return Err(fault("a block is shorter than its header says"));
    }
    Ok(raw)
}

/// The header of a file, ready to be written.
pub fn file_header(header: &Header) -> Vec<u8> {
    let json = serde_json::to_vec(header).expect("plain strings and numbers");
    let mut out = Vec::with_capacity(json.len() + 20);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(&json);
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Index and trailer for blocks at these offsets; the index begins at `at`. `stopped`: an interrupt has stopped the
/// recording.
pub fn index(blocks: &[(u64, BlockHeader)], at: u64, stopped: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks.len() * INDEX_ENTRY + TRAILER_BYTES);
    for (offset, header) in blocks {
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&header.bytes());
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(if stopped {
        STOPPED_MAGIC
    } else {
        TRAILER_MAGIC
    });
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BLOCK_OPS, BlockHeader, HEADER_BYTES, Holds};
    use crate::pwt::steps::MOST_RECORDS;

    fn some_header() -> impl Strategy<Value = BlockHeader> {
        (
            any::<u32>(),
            0..1u64 << 60,
            0..=BLOCK_OPS as u32,
            any::<u32>(),
            0..=MOST_RECORDS as u32,
            0..Holds::ALL.len(),
        )
            .prop_map(|(thread, before, ops, crc, operands, holds)| BlockHeader {
                holds: Holds::ALL[holds],
                thread,
                before,
                instructions: if holds >= 2 { 0 } else { u64::from(ops) * 3 },
                ops,
                marks: if holds >= 2 { 0 } else { 2 },
                lengths: [
                    [ops / 2, ops, ops * 8, 17],
                    [ops * 4 + 4, operands.div_ceil(2), operands * 8, 17],
                    [ops * 100, 0, 0, 0],
                    [ops * 9, 0, 0, 0],
                    [ops * 9, operands, operands * 5, 0],
                ][holds],
                compressed: ops / 9,
                crc,
                operands,
            })
    }

    proptest! {
        #[test]
        fn headers_come_back(header in some_header()) {
            prop_assert_eq!(BlockHeader::parse(&header.bytes()), Ok(header));
        }

        #[test]
        fn a_flipped_bit_of_a_header_is_found(header in some_header(), at in 0..512usize) {
            let mut bytes = header.bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert!(BlockHeader::parse(&bytes).is_err());
        }

        /// Even with a valid checksum, no header makes a reader allocate much memory.
        #[test]
        fn claims_are_bounded(words in prop::array::uniform15(any::<u32>()), holds in 0..Holds::ALL.len()) {
            let mut bytes = [0; HEADER_BYTES];
            for (i, word) in words.iter().enumerate() {
                bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
            }
            bytes[..4].copy_from_slice(&Holds::ALL[holds].magic().to_le_bytes());
            bytes[24..26].fill(0);
            let crc = crc32fast::hash(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = BlockHeader::parse(&bytes) {
                prop_assert!(header.raw() <= 128 << 20 && header.compressed <= 129 << 20);
            }
        }
    }

    /// Otherwise they would count as the trace's.
    #[test]
    fn only_blocks_of_threads_have_instructions() {
        for holds in Holds::ALL {
            let mut header = BlockHeader {
                holds,
                ops: 1,
                lengths: [5, 0, 0, 0],
                instructions: 1,
                ..BlockHeader::default()
            };
            assert_eq!(
                BlockHeader::parse(&header.bytes()).is_ok(),
                holds.is_stream()
            );
            header.instructions = 0;
            assert!(BlockHeader::parse(&header.bytes()).is_ok());
        }
    }

    /// A summary takes more memory than the fewest bytes that it takes in a file.
    #[test]
    fn a_summary_has_a_least_size_for_each_block() {
        let mut header = BlockHeader {
            holds: Holds::Skips,
            ops: 100,
            lengths: [500, 0, 0, 0],
            ..BlockHeader::default()
        };
        assert!(BlockHeader::parse(&header.bytes()).is_ok());
        header.lengths[0] = 499;
        assert!(BlockHeader::parse(&header.bytes()).is_err());
    }
}
