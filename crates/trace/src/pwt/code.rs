//! The code that a recording names by number: each translation block once.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pagewalk_input::FileError;
use rustc_hash::FxHashMap;

use super::block::{BlockHeader, load};
use super::codec::{get_varint, put_varint};
use super::steps::Shape;
use crate::x86::Block;

/// Bytes of code that are written together.
const PIECE: usize = 1 << 20;
/// Bytes of code of a recording at most, as much as the plugin sends.
const MOST_BYTES: u64 = 1 << 30;

/// A decoded block with what steps need of it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its template.
    pub block: Arc<Block>,
    /// Its number and sizes.
    pub shape: Shape,
}

/// Blocks for a block of the file.
#[derive(Default)]
pub struct CodePart {
    /// Number of the first.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Length and bytes of each, as the plugin sends them.
    pub bytes: Vec<u8>,
    /// The same, decoded.
    pub known: Vec<Known>,
}

/// Decoded blocks of all processes by address, sizes and bytes: many run the same
/// programs, and the emulator places them at the same addresses.
#[derive(Default)]
pub struct Decoded {
    known: FxHashMap<Box<[u8]>, Known>,
    slots: u32,
    /// Blocks since they were taken, when they are recorded.
    fresh: Option<Vec<CodePart>>,
}

impl Decoded {
    /// For a recording.
    pub fn recorded() -> Self {
        Decoded {
            fresh: Some(Vec::new()),
            ..Decoded::default()
        }
    }

    /// The block that the plugin sends as `raw`; `None` when it is none.
    pub fn learn(&mut self, raw: Vec<u8>) -> Option<Known> {
        if let Some(known) = self.known.get(raw.as_slice()) {
            return Some(known.clone());
        }
        let block = Block::parse(&raw)?;
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

    /// What is new since the last time.
    pub fn take_fresh(&mut self) -> Vec<CodePart> {
        self.fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// What is read of a file's code.
#[derive(Default)]
struct Read {
    /// Blocks of the file that are read.
    parts: usize,
    all: Vec<Known>,
    slots: u32,
    bytes: u64,
}

/// The code in a file, read as far as its threads need it.
pub struct CodeInFile {
    path: Arc<PathBuf>,
    /// Which blocks of the file hold code, and where.
    parts: Vec<(usize, u64, BlockHeader)>,
    read: Mutex<Read>,
}

impl CodeInFile {
    /// The code in these blocks of the file, by their place in it.
    pub fn new(path: Arc<PathBuf>, parts: Vec<(usize, u64, BlockHeader)>) -> Self {
        CodeInFile {
            path,
            parts,
            read: Mutex::default(),
        }
    }

    /// Brings `mine` up to what stands before block `number` of the file.
    ///
    /// # Errors
    /// What is wrong with that code.
    pub fn before(&self, number: usize, mine: &mut Vec<Known>) -> Result<(), FileError> {
        let mut read = self.read.lock().unwrap_or_else(|e| e.into_inner());
        while let Some((_, offset, header)) = self.parts.get(read.parts).filter(|p| p.0 < number) {
            self.read_part(*offset, header, &mut read)?;
            read.parts += 1;
        }
        mine.extend_from_slice(read.all.get(mine.len()..).unwrap_or_default());
        Ok(())
    }

    fn read_part(
        &self,
        offset: u64,
        header: &BlockHeader,
        read: &mut Read,
    ) -> Result<(), FileError> {
        let fault = |what: &str| FileError::at(&self.path, offset, what);
        let mut file =
            File::open(&*self.path).map_err(|e| FileError::io(&self.path, "read the trace", &e))?;
        let raw = load(&self.path, &mut file, offset, header)?;
        read.bytes += raw.len() as u64;
        if header.before != read.all.len() as u64 || read.bytes > MOST_BYTES {
            return Err(fault("the code of the trace is not numbered in order"));
        }
        let mut rest = &raw[..];
        let before = (read.all.len(), read.slots);
        for _ in 0..header.ops {
            let known = next_block(&mut rest, read.all.len() as u32, read.slots);
            let Some(known) = known else {
                read.all.truncate(before.0);
                read.slots = before.1;
                return Err(fault(
                    "code makes no sense (in a block whose checksum is right: a defect of its writer)",
                ));
            };
            read.slots = known.shape.end() as u32;
            read.all.push(known);
        }
        Ok(())
    }
}

fn next_block(from: &mut &[u8], number: u32, slots: u32) -> Option<Known> {
    let bytes = usize::try_from(get_varint(from)?).ok()?;
    let (raw, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    let block = Block::parse(raw)?;
    let shape = Shape::of(&block, number, slots)?;
    Some(Known {
        block: Arc::new(block),
        shape,
    })
}
