//! The code that a recording names by number: each translation block once.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use pagewalk_input::FileError;
use rustc_hash::FxHashMap;

use super::block::{BlockHeader, load};
use super::codec::{get_varint, put_varint};
use super::steps::Shape;
use crate::pump::Stop;
use crate::x86::{Block, Recorded};

/// Most bytes of code that are written at once.
const PIECE: usize = 1 << 20;
/// Most bytes of code of a recording, as many as the plugin sends.
const MOST_BYTES: u64 = 1 << 30;

/// A decoded block of code, and its shape for steps.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its template.
    pub block: Arc<Block>,
    /// Its number and sizes.
    pub shape: Shape,
}

/// Blocks of code for one block of the file.
#[derive(Default)]
pub struct CodePart {
    /// Number of the first block.
    pub first: u32,
    /// Number of blocks.
    pub count: u32,
    /// Length and bytes of each, as the plugin sends them.
    pub bytes: Vec<u8>,
    /// The decoded blocks.
    pub known: Vec<Known>,
}

/// Decoded blocks of all processes, by address, sizes and bytes. Many processes run the same programs, and the emulator
/// places them at the same addresses.
#[derive(Default)]
pub struct Decoded {
    known: FxHashMap<Box<[u8]>, Known>,
    slots: u32,
    /// Blocks since the last call of `take_fresh`, in a recording.
    fresh: Option<Vec<CodePart>>,
}

impl Decoded {
    /// An empty set, for a recording.
    pub fn recorded() -> Self {
        Decoded {
            fresh: Some(Vec::new()),
            ..Decoded::default()
        }
    }

    /// The block that the plugin sends as `raw`; `None` if it is invalid.
    pub fn learn(&mut self, raw: Vec<u8>) -> Option<Known> {
        if let Some(known) = self.known.get(raw.as_slice()) {
            return Some(known.clone());
        }
        let block = Block::parse(&raw, Recorded::ALL)?;
        let number = u32::try_from(self.known.len()).ok()?;
        let shape = Shape::of(&block, number, self.slots)?;
        self.slots = shape.end() as u32;
        let known = Known {
            block: Arc::new(block),
            shape,
        };
        if let Some(fresh) = &mut self.fresh {
            if fresh.last().is_none_or(|p| p.bytes.len() >= PIECE) {
                fresh.push(CodePart {
                    first: number,
                    ..CodePart::default()
                });
            }
            let part = fresh.last_mut().expect("just pushed, or there before");
            put_varint(&mut part.bytes, raw.len() as u64);
            part.bytes.extend_from_slice(&raw);
            part.count += 1;
            part.known.push(known.clone());
        }
        self.known.insert(raw.into(), known.clone());
        Some(known)
    }

    /// The blocks learnt since the last call.
    pub fn take_fresh(&mut self) -> Vec<CodePart> {
        self.fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// The code that one thread's steps name.
pub struct Code<'a> {
    /// The blocks by number; `None`: not needed so far.
    pub known: &'a mut [Option<Known>],
    /// Decodes the block of a number.
    pub decode: &'a dyn Fn(u32) -> Result<Known, Stop>,
}

impl Code<'_> {
    /// Decodes block `number` if needed. Returns false if there is no such block.
    #[inline(always)]
    pub fn has(&mut self, number: u32) -> Result<bool, Stop> {
        match self.known.get(number as usize) {
            Some(Some(_)) => Ok(true),
            Some(None) => self.learn(number),
            None => Ok(false),
        }
    }

    #[cold]
    fn learn(&mut self, number: u32) -> Result<bool, Stop> {
        self.known[number as usize] = Some((self.decode)(number)?);
        Ok(true)
    }

    /// A block that [`Code::has`] has found.
    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&Known> {
        self.known.get(number as usize)?.as_ref()
    }
}

/// A block of the file that holds code, decompressed.
struct Part {
    offset: u64,
    raw: Vec<u8>,
}

/// The part of a file's code that has been read.
#[derive(Default)]
struct Read {
    parts: Vec<Part>,
    /// Part and byte range of each block of code.
    places: Vec<(u32, Range<u32>)>,
    /// Decoded blocks; `None`: not needed so far.
    known: Vec<Option<Known>>,
    /// Operands of the decoded blocks.
    slots: u32,
    bytes: u64,
}

/// The code in a file. Blocks of the file are read as the threads need them, and each block of code is decoded at its
/// first use. A run that begins far into a recording never uses much of it.
pub struct CodeInFile {
    path: Arc<PathBuf>,
    /// Blocks of the file that hold code: number, offset and header.
    parts: Vec<(usize, u64, BlockHeader)>,
    /// Instructions whose addresses the recording holds.
    recorded: Recorded,
    read: Mutex<Read>,
}

impl CodeInFile {
    /// Takes the file's blocks of code, with their numbers in it. `recorded`: instructions whose addresses it
    /// holds.
    pub fn new(
        path: Arc<PathBuf>,
        parts: Vec<(usize, u64, BlockHeader)>,
        recorded: Recorded,
    ) -> Self {
        CodeInFile {
            path,
            parts,
            recorded,
            read: Mutex::default(),
        }
    }

    /// Reads the code before block `number` of the file, and makes room for it in `mine`.
    ///
    /// # Errors
    /// A fault of that code that its lengths and numbers show.
    pub fn before(&self, number: usize, mine: &mut Vec<Option<Known>>) -> Result<(), FileError> {
        let parts = self.parts.partition_point(|p| p.0 < number);
        let mut read = self.read();
        if read.parts.len() < parts {
            let mut file = File::open(&*self.path)
                .map_err(|e| FileError::io(&self.path, "read the trace", &e))?;
            for (_, offset, header) in &self.parts[read.parts.len()..parts] {
                self.read_part(&mut file, *offset, header, &mut read)?;
            }
        }
        let count = match self.parts.get(parts) {
            // Another thread has read further.
            Some((_, _, next)) if read.parts.len() > parts => next.before as usize,
            _ => read.places.len(),
        };
        if mine.len() < count {
            mine.resize(count, None);
        }
        Ok(())
    }

    /// Decodes block `number` of the code that was read.
    ///
    /// # Errors
    /// A fault of the block.
    pub fn decoded(&self, number: u32) -> Result<Known, FileError> {
        let read = &mut *self.read();
        if let Some(known) = &read.known[number as usize] {
            return Ok(known.clone());
        }
        let (part, place) = &read.places[number as usize];
        let part = &read.parts[*part as usize];
        let raw = &part.raw[place.start as usize..place.end as usize];
        let Some(known) = decoded(raw, number, read.slots, self.recorded) else {
            return Err(self.senseless(part.offset));
        };
        read.slots = known.shape.end() as u32;
        read.known[number as usize] = Some(known.clone());
        Ok(known)
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn senseless(&self, offset: u64) -> FileError {
        let what =
            "code makes no sense (in a block whose checksum is right: a defect of its writer)";
        FileError::at(&self.path, offset, what)
    }

    fn read_part(
        &self,
        file: &mut File,
        offset: u64,
        header: &BlockHeader,
        read: &mut Read,
    ) -> Result<(), FileError> {
        let raw = load(&self.path, file, offset, header)?;
        read.bytes += raw.len() as u64;
        if header.before != read.places.len() as u64 || read.bytes > MOST_BYTES {
            let what = "the code of the trace is not numbered in order";
            return Err(FileError::at(&self.path, offset, what));
        }
        let part = read.parts.len() as u32;
        let mut at = 0;
        let before = read.places.len();
        for _ in 0..header.ops {
            let Some(place) = next_place(&raw, &mut at) else {
                read.places.truncate(before);
                return Err(self.senseless(offset));
            };
            read.places.push((part, place));
        }
        read.known.resize(read.places.len(), None);
        read.parts.push(Part { offset, raw });
        Ok(())
    }
}

/// Byte range of the block whose length is at `at`. Moves `at` past the block.
fn next_place(raw: &[u8], at: &mut usize) -> Option<Range<u32>> {
    let mut rest = &raw[*at..];
    let bytes = usize::try_from(get_varint(&mut rest)?).ok()?;
    let start = raw.len() - rest.len();
    rest.get(..bytes)?;
    *at = start + bytes;
    // A part is shorter than 4 GB.
    Some(start as u32..*at as u32)
}

fn decoded(raw: &[u8], number: u32, slots: u32, recorded: Recorded) -> Option<Known> {
    let block = Block::parse(raw, recorded)?;
    let shape = Shape::of(&block, number, slots)?;
    Some(Known {
        block: Arc::new(block),
        shape,
    })
}
