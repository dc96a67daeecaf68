//! Opens a trace of any format.

use std::path::Path;

use pagewalk_input::{Compression, FileError, Input};
use pagewalk_stream::{Batch, End, Error, Facts, Program, ThreadId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::champsim::{RECORD, Record};
use crate::pump::Pump;
use crate::pwt::block::MAGIC;
use crate::pwt::file::PwtFile;
use crate::pwt::reader::PwtProgram;
use crate::{champsim, lackey};

/// The formats that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// ChampSim's 64-byte records.
    Champsim,
    /// Valgrind lackey's text.
    Lackey,
    /// Pagewalk's own.
    Pwt,
}

/// Options for opening a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Format chosen by the user. `None`: detected from the contents.
    pub format: Option<Format>,
    /// Reads an unfinished `.pwt` up to its last valid block.
    pub recover: bool,
    /// Instructions to skip at the beginning; events among them are kept.
    pub skip: u64,
}

/// Opens the trace at `path` as a program. Decompression and decoding run in threads of their own.
///
/// # Errors
/// The file cannot be opened, or its beginning is no trace. [`Program::fill`] returns later faults when it reaches
/// them.
pub fn open_trace(path: &Path, options: &OpenOptions) -> Result<Box<dyn Program>, FileError> {
    match opened(path, options.format)? {
        Opened::Pwt => {
            let file = PwtFile::open(path, options.recover)?;
            Ok(Box::new(PwtProgram::new(file, options.skip)))
        }
        Opened::Other(input, format) => Ok(Box::new(Streamed::new(input, format, options.skip))),
    }
}

/// Expected contents, for the error about an empty file.
const EXPECTED: &str = "a trace (ChampSim, Valgrind lackey or .pwt)";

pub(super) enum Opened {
    Pwt,
    Other(Input, Format),
}

/// Opens `path` and detects its format.
pub(super) fn opened(path: &Path, format: Option<Format>) -> Result<Opened, FileError> {
    let mut input = Input::open(path, "trace", EXPECTED)?;
    let compressed = input.compression != Compression::None;
    let found = match format {
        Some(format) => Some(format),
        None => sniff(&mut input)?,
    };
    match found {
        Some(Format::Pwt) if compressed => Err(FileError::new(
            path,
            "a .pwt trace inside another compression cannot be read from any place; decompress the file first",
        )),
        Some(Format::Pwt) => Ok(Opened::Pwt),
        Some(format) => Ok(Opened::Other(input, format)),
        None => {
            let named = input.misnamed().map_or_else(String::new, |name| {
                format!(" (it is called .{name}, but its contents are not {name} data)")
            });
            Err(FileError::at(
                path,
                0,
                format!(
                    "this is no trace{named}; expected ChampSim's 64-byte records, the text of valgrind --tool=lackey --trace-mem=yes, or a .pwt file; compressed by xz, gzip, zstd or not"
                ),
            ))
        }
    }
}

fn sniff(input: &mut Input) -> Result<Option<Format>, FileError> {
    let start = input.peek()?;
    if start.starts_with(MAGIC) {
        return Ok(Some(Format::Pwt));
    }
    let mut lines = start.split(|b| *b == b'\n').take(start.len().min(200));
    let first = lines.find(|l| !matches!(lackey::parse_line(l), Some(lackey::Line::Other)));
    if first.is_some_and(|l| lackey::parse_line(l).is_some()) {
        return Ok(Some(Format::Lackey));
    }
    // Valgrind's own lines can be longer than the peeked buffer.
    if start.starts_with(b"==") && start.iter().all(|b| b.is_ascii()) {
        return Ok(Some(Format::Lackey));
    }
    let plausible = start
        .chunks_exact(RECORD)
        .take(16)
        .map(|r| Record::parse(r.try_into().expect("a record's length")))
        .map(|r| r.is_some_and(|r| r.ip != 0));
    let (records, good) = plausible.fold((0, 0), |(n, g), ok| (n + 1, g + u32::from(ok)));
    Ok((records > 0 && records == good).then_some(Format::Champsim))
}

/// A trace of one thread, read from front to back.
struct Streamed {
    facts: Facts,
    pump: Pump<std::convert::Infallible>,
    ended: bool,
}

impl Streamed {
    fn new(input: Input, format: Format, skip: u64) -> Self {
        let name = input.path.file_name().unwrap_or_default();
        let facts = Facts {
            name: name.to_string_lossy().into_owned(),
            instructions: None,
            infer_mappings: true,
            no_dependences: format == Format::Lackey,
            deterministic: true,
            has_roi: false,
            prefetches: false,
            flushes: false,
            request: None,
            live: false,
            cpu: None,
            simulated_clock: false,
            parts: Vec::new(),
            stopped: None,
            begins_anywhere: false,
        };
        let pump = Pump::start(skip, move |sink| match format {
            Format::Lackey => lackey::read(input, sink),
            Format::Champsim | Format::Pwt => champsim::read(input, sink),
        });
        Streamed {
            facts,
            pump,
            ended: false,
        }
    }
}

impl Program for Streamed {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        if thread != 0 || self.ended {
            return Ok(End::Exit);
        }
        match self.pump.next(&mut batch.ops)? {
            Some(_) => Ok(End::More),
            None => {
                self.ended = true;
                Ok(End::Exit)
            }
        }
    }
}
