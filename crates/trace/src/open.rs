//! Opens a trace of any format.

use std::path::Path;

use pagewalk_input::{Compression, FileError, Input};
use pagewalk_stream::{Batch, End, Error, Facts, Program, ThreadId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::champsim::{CLOUDSUITE, RECORD, Record};
use crate::drmemtrace::{self, Drmemtrace, Files};
use crate::pump::Pump;
use crate::pwt::block::MAGIC;
use crate::pwt::file::PwtFile;
use crate::pwt::reader::PwtProgram;
use crate::{champsim, gem5, lackey, pin};

/// The formats that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// ChampSim's 64-byte records.
    Champsim,
    /// ChampSim's 96-byte records, of CloudSuite.
    Cloudsuite,
    /// DynamoRIO's offline traces: a folder, or the file of one thread.
    Drmemtrace,
    /// The data dependency trace of gem5's ElasticTrace.
    Elastic,
    /// Valgrind lackey's text.
    Lackey,
    /// The text of Pin's pinatrace.
    Pinatrace,
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
        Opened::Drmemtrace(files) => Ok(Box::new(Drmemtrace::open(&files, options.skip)?)),
        Opened::Other(input, format) => Ok(Box::new(Streamed::new(input, format, options.skip))),
    }
}

/// Threads of the trace at `path`, if they are known before it is read. Its contents are not checked further.
///
/// # Errors
/// As for [`open_trace`].
pub fn trace_threads(path: &Path) -> Result<Option<u32>, FileError> {
    Ok(match opened(path, None)? {
        Opened::Pwt => PwtFile::open(path, false)?.threads(),
        Opened::Drmemtrace(files) => u32::try_from(files.count()).ok(),
        Opened::Other(..) => Some(1),
    })
}

/// Expected contents, for the error about an empty file.
const EXPECTED: &str =
    "a trace (ChampSim, drmemtrace, gem5 elastic, Valgrind lackey, Pin pinatrace or .pwt)";

pub(super) enum Opened {
    Pwt,
    Drmemtrace(Files),
    Other(Input, Format),
}

/// Opens `path` and detects its format.
pub(super) fn opened(path: &Path, format: Option<Format>) -> Result<Opened, FileError> {
    if path.is_dir() {
        return Ok(Opened::Drmemtrace(Files::in_folder(path)?));
    }
    let mut input = Input::open(path, "trace", EXPECTED)?;
    let compressed = input.compression != Compression::None;
    let found = match format {
        Some(format) => Some(format),
        None => sniff(&mut input)?,
    };
    if matches!(found, Some(Format::Pwt | Format::Drmemtrace)) && !path.is_file() {
        let what = format!(
            "is a pipe, and this format is read from any place; write it to a file first: cat {} > FILE",
            path.display()
        );
        return Err(FileError::new(path, what));
    }
    match found {
        Some(Format::Pwt) if compressed => Err(FileError::new(
            path,
            "a .pwt trace inside another compression cannot be read from any place; decompress the file first",
        )),
        Some(Format::Pwt) => Ok(Opened::Pwt),
        Some(Format::Drmemtrace) => Ok(Opened::Drmemtrace(Files::of_file(path))),
        Some(format) => Ok(Opened::Other(input, format)),
        None => {
            let named = input.misnamed().map_or_else(String::new, |name| {
                format!(" (it is called .{name}, but its contents are not {name} data)")
            });
            let other = pin::other_tool(input.peek()?);
            Err(FileError::at(
                path,
                0,
                match other {
                    Some((what, how)) => format!("this is {what}, which is not read; {how}"),
                    None => format!(
                        "this is no trace{named}; expected ChampSim's records of 64 or 96 bytes, a file of drmemtrace, a data dependency trace of gem5's ElasticTrace, the text of valgrind --tool=lackey --trace-mem=yes or of Pin's pinatrace, or a .pwt file; compressed by xz, gzip, zstd, lz4, snappy or zip, or not"
                    ),
                },
            ))
        }
    }
}

fn sniff(input: &mut Input) -> Result<Option<Format>, FileError> {
    let start = input.peek()?;
    if start.starts_with(MAGIC) {
        return Ok(Some(Format::Pwt));
    }
    if drmemtrace::begins(start) {
        return Ok(Some(Format::Drmemtrace));
    }
    if start.starts_with(gem5::MAGIC) {
        let start = start.to_vec();
        gem5::check(&input.path, &start)?;
        return Ok(Some(Format::Elastic));
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
    let mut lines = start.split(|b| *b == b'\n').take(start.len().min(200));
    let first = lines.find(|l| !matches!(pin::parse_line(l), Some(pin::Line::Other)));
    if first.is_some_and(|l| pin::parse_line(l).is_some()) {
        return Ok(Some(Format::Pinatrace));
    }
    let small = all_are(start, |r: &[u8; RECORD]| {
        Record::parse(r).is_some_and(|r| r.ip != 0)
    });
    if small {
        return Ok(Some(Format::Champsim));
    }
    Ok(all_are(start, Record::is_cloudsuite).then_some(Format::Cloudsuite))
}

/// True if `start` begins with such records.
fn all_are<const N: usize>(start: &[u8], is: impl Fn(&[u8; N]) -> bool) -> bool {
    let (records, _) = start.as_chunks();
    !records.is_empty() && records.iter().take(16).all(is)
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
            no_dependences: matches!(format, Format::Lackey | Format::Pinatrace),
            deterministic: true,
            has_roi: false,
            prefetches: format == Format::Elastic,
            flushes: false,
            memory: false,
            request: None,
            live: false,
            cpu: None,
            simulated_clock: false,
            threads: Some(1),
            parts: Vec::new(),
            stopped: None,
            begins_anywhere: false,
            notes: match format {
                Format::Pinatrace => vec!["pinatrace has only the instructions that access memory, so figures for each instruction are for each of these".to_owned()],
                Format::Elastic => vec!["gem5's trace counts micro-operations as instructions, does not say which of them branch, and has loads of wrong paths: no branch is mispredicted".to_owned()],
                _ => Vec::new(),
            },
        };
        let pump = Pump::start(skip, move |sink| match format {
            Format::Lackey => lackey::read(input, sink),
            Format::Pinatrace => pin::read(input, sink),
            Format::Elastic => gem5::read(input, sink),
            Format::Cloudsuite => champsim::read::<CLOUDSUITE, _>(input, sink),
            Format::Champsim | Format::Drmemtrace | Format::Pwt => {
                champsim::read::<RECORD, _>(input, sink)
            }
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
