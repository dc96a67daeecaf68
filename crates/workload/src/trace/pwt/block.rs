//! The parts of a `.pwt` file.
//!
//! ```text
//! header   "PWTRACE\n", version u32, length u32, JSON, crc32 of all that
//! blocks   64-byte header (see `BlockHeader`), zstd frame
//! index    for each block: offset u64, its header
//! trailer  index offset u64, number of blocks u32, crc32 of the index, "PWTEND\r\n"
//! ```
//!
//! All numbers are little-endian. A block belongs to one thread and stands for
//! itself. Without trailer the file was not finished; its blocks are still good.

use serde::{Deserialize, Serialize};

use super::codec::{Cursors, Streams};

pub const MAGIC: &[u8; 8] = b"PWTRACE\n";
pub const TRAILER_MAGIC: &[u8; 8] = b"PWTEND\r\n";
pub const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 64;
pub const TRAILER_BYTES: usize = 24;
pub const INDEX_ENTRY: usize = 8 + HEADER_BYTES;
/// Ops of a block: enough that the model's learning is a small part of it.
pub const BLOCK_OPS: usize = 1 << 18;
/// A block is closed when its marks take this many bytes.
pub const MARKS_FULL: usize = 1 << 16;
/// What a reader accepts at most: one mark can be longer than `MARKS_FULL`.
const MOST_MARKS: u32 = 1 << 26;
/// Most bytes of the JSON in the header.
pub const MOST_JSON: u32 = 1 << 20;

const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"PWBK");

/// What a trace says of itself.
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
    #[serde(default)]
    pub live: bool,
    /// Seed of the recorded run.
    pub seed: u64,
    /// What was recorded: a command line, a workload, another trace.
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
            live: facts.live,
            seed,
            source: source.to_owned(),
            made_by: concat!("pagewalk ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// What stands before each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHeader {
    pub thread: u32,
    /// Instructions of the thread before this block.
    pub before: u64,
    pub instructions: u64,
    pub ops: u32,
    pub marks: u32,
    /// Bytes of the side, producer, address and mark streams; the control stream
    /// has one byte an op.
    pub lengths: [u32; 4],
    pub compressed: u32,
    pub crc: u32,
    /// Loads and stores.
    pub operands: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl BlockHeader {
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut put32 = |at: usize, v: u32| out[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put32(0, BLOCK_MAGIC);
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

    /// Reads what [`BlockHeader::bytes`] wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        if u32_at(bytes, 0) != BLOCK_MAGIC {
            return Err("no block begins here");
        }
        if u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return Err("the checksum of a block's header does not match");
        }
        let header = BlockHeader {
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
        let ops = header.ops;
        let [side, deps, addresses, marks] = header.lengths;
        // The most that the codec can write for an op: 10 + 8, 5 and 8 bytes.
        let sane = ops as usize <= BLOCK_OPS
            && side <= ops * 18
            && deps <= ops * 5
            && addresses <= ops * 8
            && marks <= MOST_MARKS
            && u64::from(header.marks) * 2 <= u64::from(marks)
            && header.instructions <= u64::from(ops) * 0xffff
            && header.before.checked_add(header.instructions).is_some()
            && u64::from(header.compressed) <= zstd::zstd_safe::compress_bound(header.raw()) as u64;
        if sane {
            Ok(header)
        } else {
            Err("a block claims more than a block can hold")
        }
    }

    /// Bytes of the payload before compression.
    pub fn raw(&self) -> usize {
        self.ops as usize + self.lengths.iter().map(|l| *l as usize).sum::<usize>()
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

/// A full block on its way to the file.
pub struct Sealed {
    pub header: BlockHeader,
    pub streams: Streams,
    pub marks: Vec<u8>,
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

/// Index and trailer for blocks at these offsets; the index begins at `at`.
pub fn index(blocks: &[(u64, BlockHeader)], at: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks.len() * INDEX_ENTRY + TRAILER_BYTES);
    for (offset, header) in blocks {
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&header.bytes());
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(TRAILER_MAGIC);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_header() -> impl Strategy<Value = BlockHeader> {
        (
            any::<u32>(),
            0..1u64 << 60,
            0..=BLOCK_OPS as u32,
            any::<u32>(),
            any::<u32>(),
        )
            .prop_map(|(thread, before, ops, crc, operands)| BlockHeader {
                thread,
                before,
                instructions: u64::from(ops) * 3,
                ops,
                marks: 2,
                lengths: [ops / 2, ops, ops * 8, 17],
                compressed: ops / 3,
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

        /// Even with a right checksum no header makes a reader take much memory.
        #[test]
        fn claims_are_bounded(words in prop::array::uniform15(any::<u32>())) {
            let mut bytes = [0; HEADER_BYTES];
            for (i, word) in words.iter().enumerate() {
                bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
            }
            bytes[..4].copy_from_slice(&BLOCK_MAGIC.to_le_bytes());
            bytes[24..26].fill(0);
            let crc = crc32fast::hash(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = BlockHeader::parse(&bytes) {
                prop_assert!(header.raw() <= 128 << 20 && header.compressed <= 129 << 20);
            }
        }
    }
}
