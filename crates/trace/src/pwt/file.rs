//! A `.pwt` file from outside: its header, the offsets of its blocks, and their contents.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewalk_input::FileError;
use pagewalk_stream::ThreadId;

use super::block::{
    BlockHeader, HEADER_BYTES, Header, Holds, INDEX_ENTRY, MAGIC, MOST_JSON, STOPPED_MAGIC,
    TRAILER_BYTES, TRAILER_MAGIC, VERSION, read_at,
};
use super::code::CodeInFile;
use super::memory::MemoryInFile;
use super::skips::SkipsInFile;
use crate::x86::Recorded;

/// An opened trace: its header, and the offsets of its blocks.
pub(crate) struct PwtFile {
    pub path: PathBuf,
    pub header: Header,
    pub blocks: Vec<(u64, BlockHeader)>,
    /// Place and reason at which a scan without an index stopped.
    pub stopped: Option<FileError>,
    /// An interrupt has stopped the recording.
    pub interrupted: bool,
}

impl PwtFile {
    /// Opens `path`. Without an index, a scan finds the blocks if `recover`.
    pub fn open(path: &Path, recover: bool) -> Result<Self, FileError> {
        let io = |e: std::io::Error| FileError::io(path, "read the trace", &e);
        let mut file = File::open(path).map_err(|e| FileError::io(path, "open the trace", &e))?;
        let bytes = file.metadata().map_err(io)?.len();
        let (header, first) = read_header(path, &mut file, bytes)?;
        let mut opened = PwtFile {
            path: path.to_owned(),
            header,
            blocks: Vec::new(),
            stopped: None,
            interrupted: false,
        };
        match read_index(path, &mut file, bytes, first) {
            Ok((blocks, interrupted)) => {
                opened.blocks = blocks;
                opened.interrupted = interrupted;
            }
            Err(error) if !recover => return Err(error),
            Err(_) => {
                let (blocks, stopped) = scan(path, &mut file, bytes, first)?;
                opened.blocks = blocks;
                opened.stopped = stopped;
            }
        }
        Ok(opened)
    }

    /// Instructions of all threads.
    pub fn instructions(&self) -> u64 {
        self.blocks.iter().map(|(_, h)| h.instructions).sum()
    }

    /// Threads of the recorded program. A recording of a live one does not say, as the program does not: so
    /// both run on as many cores by default. An older recording has as many as there are blocks of.
    pub fn threads(&self) -> Option<u32> {
        let in_blocks = || {
            let ops = self.blocks.iter().filter(|(_, h)| h.holds.is_stream());
            let ids: std::collections::BTreeSet<u32> = ops.map(|(_, h)| h.thread).collect();
            u32::try_from(ids.len()).ok()
        };
        match self.header.threads {
            None if !self.header.live => in_blocks(),
            known => known,
        }
    }

    /// Its code.
    pub fn code(&self) -> CodeInFile {
        let parts = self.blocks.iter().enumerate();
        let parts = parts.filter(|(_, (_, h))| h.holds == Holds::Code);
        let parts = parts.map(|(n, (offset, header))| (n, *offset, *header));
        CodeInFile::new(
            Arc::new(self.path.clone()),
            parts.collect(),
            Recorded {
                prefetches: self.header.prefetches,
                flushes: self.header.flushes,
            },
        )
    }
}

impl PwtFile {
    /// Its memory.
    pub fn memory(&self) -> MemoryInFile {
        let parts = self.blocks.iter().enumerate();
        let parts = parts.filter(|(_, (_, h))| h.holds == Holds::Memory);
        let parts = parts.map(|(n, (offset, header))| (n, *offset, *header));
        MemoryInFile::new(Arc::new(self.path.clone()), parts)
    }

    /// Its touch summaries.
    pub fn skips(&self) -> SkipsInFile {
        let parts = self.blocks.iter();
        let parts = parts.filter(|(_, h)| h.holds == Holds::Skips).copied();
        SkipsInFile::new(Arc::new(self.path.clone()), parts.collect())
    }
}

fn read_header(path: &Path, file: &mut File, bytes: u64) -> Result<(Header, u64), FileError> {
    let damaged = |at, what: &str| {
        FileError::at(
            path,
            at,
            format!("{what}; expected the header of a .pwt trace; record it again"),
        )
    };
    let start: [u8; 16] = match read_at(file, 0) {
        Ok(start) => start,
        Err(_) => return Err(damaged(bytes, "the file ends within its first 16 bytes")),
    };
    if &start[..8] != MAGIC {
        return Err(damaged(0, "this is not a .pwt trace"));
    }
    let word = |at: usize| u32::from_le_bytes(start[at..at + 4].try_into().expect("four bytes"));
    if !(1..=VERSION).contains(&word(8)) {
        return Err(FileError::at(
            path,
            8,
            format!(
                "version {} of the .pwt format; this program reads versions 1 to {VERSION}; convert it with the version that wrote it",
                word(8)
            ),
        ));
    }
    let length = word(12);
    if length > MOST_JSON || 20 + u64::from(length) > bytes {
        return Err(damaged(12, "the header claims to be longer than it can be"));
    }
    let mut json = vec![0; length as usize];
    let mut crc = [0; 4];
    file.read_exact(&mut json)
        .and_then(|()| file.read_exact(&mut crc))
        .map_err(|e| FileError::io(path, "read the trace", &e))?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&start);
    hasher.update(&json);
    if hasher.finalize() != u32::from_le_bytes(crc) {
        return Err(damaged(16, "the checksum of the header does not match"));
    }
    let header = serde_json::from_slice(&json)
        .map_err(|e| damaged(16, &format!("the header cannot be understood ({e})")))?;
    Ok((header, 20 + u64::from(length)))
}

type Blocks = Vec<(u64, BlockHeader)>;

/// The blocks, and true if an interrupt has stopped the recording.
fn read_index(
    path: &Path,
    file: &mut File,
    bytes: u64,
    first: u64,
) -> Result<(Blocks, bool), FileError> {
    let advice = "the recording was cut off, or the file was; 'pagewalk trace convert --keep-good' makes a whole one of what is there";
    let unfinished = |what: &str| FileError::at(path, bytes, format!("{what}: {advice}"));
    let Some(at) = bytes
        .checked_sub(TRAILER_BYTES as u64)
        .filter(|at| *at >= first)
    else {
        return Err(unfinished("the trace has no index"));
    };
    let trailer: [u8; TRAILER_BYTES] =
        read_at(file, at).map_err(|e| FileError::io(path, "read the trace", &e))?;
    let interrupted = &trailer[16..] == STOPPED_MAGIC;
    if &trailer[16..] != TRAILER_MAGIC && !interrupted {
        return Err(unfinished("the trace has no index"));
    }
    let start = u64::from_le_bytes(trailer[..8].try_into().expect("eight bytes"));
    let count = u32::from_le_bytes(trailer[8..12].try_into().expect("four bytes"));
    let crc = u32::from_le_bytes(trailer[12..16].try_into().expect("four bytes"));
    let length = u64::from(count) * INDEX_ENTRY as u64;
    if start < first || start.checked_add(length) != Some(at) {
        return Err(unfinished("the index does not fit the file"));
    }
    let mut index = vec![0; length as usize];
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.read_exact(&mut index))
        .map_err(|e| FileError::io(path, "read the trace", &e))?;
    if crc32fast::hash(&index) != crc {
        return Err(FileError::at(
            path,
            start,
            format!("the checksum of the index does not match: {advice}"),
        ));
    }
    let mut blocks = Blocks::with_capacity(count as usize);
    for entry in index.chunks_exact(INDEX_ENTRY) {
        let offset = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
        let header: &[u8; HEADER_BYTES] = entry[8..].try_into().expect("an entry's length");
        let header = BlockHeader::parse(header).map_err(|what| FileError::at(path, start, what))?;
        let end = offset.checked_add((HEADER_BYTES as u64) + u64::from(header.compressed));
        if offset < first || end.is_none_or(|end| end > start) {
            return Err(FileError::at(
                path,
                start,
                "a block lies outside of the file",
            ));
        }
        blocks.push((offset, header));
    }
    Ok((blocks, interrupted))
}

/// Finds blocks from the front, up to the first invalid one.
fn scan(
    path: &Path,
    file: &mut File,
    bytes: u64,
    first: u64,
) -> Result<(Blocks, Option<FileError>), FileError> {
    let mut blocks = Blocks::new();
    let mut before: BTreeMap<ThreadId, u64> = BTreeMap::new();
    let mut at = first;
    while at < bytes {
        let what = match read_at::<HEADER_BYTES>(file, at) {
            Err(_) => "the file ends within the header of a block",
            Ok(header) => match BlockHeader::parse(&header) {
                Err(what) => what,
                Ok(header) => {
                    let end = at + HEADER_BYTES as u64 + u64::from(header.compressed);
                    let mut none = header.before;
                    let expected = match header.holds {
                        Holds::Code | Holds::Skips | Holds::Memory => &mut none,
                        Holds::Ops | Holds::Steps => before.entry(header.thread).or_default(),
                    };
                    if end > bytes {
                        "the file ends within a block"
                    } else if header.before != *expected {
                        "a block of this thread is missing before this one"
                    } else {
                        *expected += header.instructions;
                        blocks.push((at, header));
                        at = end;
                        continue;
                    }
                }
            },
        };
        return Ok((blocks, Some(FileError::at(path, at, what))));
    }
    Ok((blocks, None))
}
