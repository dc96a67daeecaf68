//! Contents of a trace, and a check for damage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pagewalk_input::{Compression, FileError};
use pagewalk_stream::{Death, End, Error, Event, OpClass, Unseen};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::open::{Format, OpenOptions, Opened, open_trace, opened};
use crate::pwt::Header;
use crate::pwt::file::PwtFile;
use crate::record::drive;

/// Contents of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TraceInfo {
    /// The file.
    #[serde(serialize_with = "shown")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Format.
    pub format: Format,
    /// Compression of the file (a `.pwt` is compressed inside).
    pub compression: Compression,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Instructions of all threads.
    pub instructions: u64,
    /// Operations that stand for the instructions.
    pub ops: u64,
    /// Threads.
    pub threads: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Branches.
    pub branches: u64,
    /// Branches that were taken.
    pub taken: u64,
    /// Different 4 KB pages of data.
    pub data_pages: u64,
    /// Different 4 KB pages of code.
    pub code_pages: u64,
    /// Bytes of the file for an instruction.
    pub bytes_per_instruction: f64,
    /// Events of the address space: mappings, unmappings and so on.
    pub mapping_events: u64,
    /// True if mappings are inferred from the addresses used.
    pub mappings_inferred: bool,
    /// True if there is no register information: loads are taken as independent.
    pub no_dependences: bool,
    /// True if there is a region of interest: the header has the flag, or a mark was found.
    pub has_roi: bool,
    /// Why it is only a part of the run, when that is known.
    pub partial: Option<String>,
    /// Exit status of the first process, when the trace has its end.
    pub exit_status: Option<i32>,
    /// Programs that its processes executed and that were not recorded, a sentence each.
    pub unseen: Vec<String>,
    /// Header of a `.pwt`.
    pub made: Option<Made>,
}

/// Origin of a `.pwt`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Made {
    /// Name of the program.
    pub name: String,
    /// The program's word for a request, if it counts any.
    pub request: Option<String>,
    /// True if it records a live program.
    pub live: bool,
    /// CPU model that the emulator gave a live program; None of a recording that does not hold it.
    pub cpu: Option<String>,
    /// Seed of the recorded run.
    pub seed: u64,
    /// The recorded command line, workload or trace.
    pub source: String,
    /// Program and version that wrote it.
    pub made_by: String,
}

impl From<Header> for Made {
    fn from(header: Header) -> Self {
        Made {
            name: header.name,
            request: header.request,
            live: header.live,
            cpu: header.cpu,
            seed: header.seed,
            source: header.source,
            made_by: header.made_by,
        }
    }
}

/// Displays a file's name, which need not be UTF-8.
fn shown<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Different 4 KB pages: a bitmap for each 2 MB, so that dense and scattered
/// footprints both stay small.
#[derive(Default)]
struct Pages {
    touched: FxHashMap<u64, [u64; 8]>,
    /// Most touches go to the same page as the one before.
    last: Option<u64>,
}

impl Pages {
    #[inline]
    fn touch(&mut self, va: u64) {
        let page = va >> 12;
        if self.last == Some(page) {
            return;
        }
        self.last = Some(page);
        let bits = self.touched.entry(page >> 9).or_default();
        bits[(page >> 6 & 7) as usize] |= 1 << (page & 63);
    }
    fn count(&self) -> u64 {
        let ones = self
            .touched
            .values()
            .flatten()
            .map(|w| u64::from(w.count_ones()));
        ones.sum()
    }
}

/// Reads the whole trace at `path`, and returns its contents.
///
/// # Errors
/// A fault of the trace; [`check_trace`] says up to where the trace is valid.
pub fn trace_info(path: &Path, options: &OpenOptions) -> Result<TraceInfo, Error> {
    let mut bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    let (format, compression, made) = match opened(path, options.format)? {
        Opened::Pwt => {
            let file = PwtFile::open(path, options.recover)?;
            (
                Format::Pwt,
                Compression::None,
                Some(Made::from(file.header)),
            )
        }
        Opened::Drmemtrace(files) => {
            bytes = files.bytes();
            (Format::Drmemtrace, files.compression()?, None)
        }
        Opened::Other(input, format) => (format, input.compression, None),
    };
    let mut program = open_trace(path, options)?;
    let facts = program.facts();
    let mut info = TraceInfo {
        path: path.to_owned(),
        format,
        compression,
        bytes,
        instructions: 0,
        ops: 0,
        threads: 0,
        loads: 0,
        stores: 0,
        branches: 0,
        taken: 0,
        data_pages: 0,
        code_pages: 0,
        bytes_per_instruction: 0.0,
        mapping_events: 0,
        mappings_inferred: facts.infer_mappings,
        no_dependences: facts.no_dependences,
        has_roi: facts.has_roi,
        partial: facts
            .stopped
            .map(|n| format!("stopped by an interrupt after {n} instructions")),
        exit_status: None,
        unseen: Vec::new(),
        made,
    };
    let (mut data, mut code) = (Pages::default(), Pages::default());
    let mut threads = BTreeSet::new();
    let (mut unseen, mut deaths) = (Vec::new(), Vec::new());
    drive(program.as_mut(), &mut |_, thread, batch, end| {
        threads.insert(thread);
        info.ops += batch.ops.len() as u64;
        info.instructions += batch.instructions();
        for op in &batch.ops {
            code.touch(op.pc);
            match op.kind {
                OpClass::Load => info.loads += 1,
                OpClass::Store => info.stores += 1,
                OpClass::Branch => {
                    info.branches += 1;
                    info.taken += u64::from(op.flags & pagewalk_stream::flags::TAKEN);
                    continue;
                }
                OpClass::Compute | OpClass::Query | OpClass::Prefetch | OpClass::Flush => continue,
            }
            data.touch(op.va);
            data.touch(op.va.wrapping_add(u64::from(op.size).saturating_sub(1)));
        }
        if let End::Event { event, .. } = end {
            match event {
                Event::Map { .. }
                | Event::Mmap { .. }
                | Event::Unmap { .. }
                | Event::Remap { .. }
                | Event::Protect { .. }
                | Event::Advise { .. }
                | Event::PunchHole { .. }
                | Event::Truncate { .. }
                | Event::DisableHugePages { .. }
                | Event::Populate { .. } => info.mapping_events += 1,
                Event::ProcessExit { status } if info.exit_status.is_none() => {
                    info.exit_status = Some(*status);
                }
                Event::RoiBegin => info.has_roi = true,
                Event::Unseen(program) => unseen.push((**program).clone()),
                Event::Died(death) => deaths.push((**death).clone()),
                _ => {}
            }
        }
        Ok(true)
    })?;
    info.unseen = Unseen::sentences(&unseen);
    if !deaths.is_empty() {
        info.partial = Some(Death::sentences(&deaths).join("; "));
    }
    info.threads = threads.len() as u64;
    info.data_pages = data.count();
    info.code_pages = code.count();
    info.bytes_per_instruction = bytes as f64 / info.instructions.max(1) as f64;
    Ok(info)
}

/// Result of a check of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceCheck {
    /// True if nothing is wrong.
    pub whole: bool,
    /// Instructions before the first fault (all, when there is none).
    pub good_instructions: u64,
    /// Blocks of a `.pwt` before the first fault.
    pub good_blocks: Option<u64>,
    /// Blocks of a `.pwt` that are found.
    pub blocks: Option<u64>,
    /// The first fault and its place.
    pub fault: Option<String>,
    /// Offset of the fault in bytes of the decompressed trace.
    pub fault_offset: Option<u64>,
}

/// Reads all of the trace at `path` and verifies every checksum.
///
/// # Errors
/// The file cannot be opened, or is no trace at all. Later damage is part of the result.
pub fn check_trace(path: &Path, format: Option<Format>) -> Result<TraceCheck, FileError> {
    if let Opened::Pwt = opened(path, format)? {
        return check_pwt(path);
    }
    let options = OpenOptions {
        format,
        ..OpenOptions::default()
    };
    let mut program = open_trace(path, &options)?;
    let mut good = 0;
    let result = drive(program.as_mut(), &mut |_, _, batch, _| {
        good += batch.instructions();
        Ok(true)
    });
    let fault = result.err().map(|e| e.to_string());
    Ok(TraceCheck {
        whole: fault.is_none(),
        good_instructions: good,
        good_blocks: None,
        blocks: None,
        fault_offset: fault.as_deref().and_then(|f| offset_in(path, f)),
        fault,
    })
}

/// The offset in a message of [`FileError`].
fn offset_in(path: &Path, message: &str) -> Option<u64> {
    let place = message
        .strip_prefix(&path.display().to_string())?
        .strip_prefix(", byte ")?;
    place.split(':').next()?.parse().ok()
}

fn check_pwt(path: &Path) -> Result<TraceCheck, FileError> {
    let unfinished = PwtFile::open(path, false).err();
    let file = PwtFile::open(path, true)?;
    let mut check = TraceCheck {
        whole: true,
        good_instructions: 0,
        good_blocks: Some(0),
        blocks: Some(file.blocks.len() as u64),
        fault: None,
        fault_offset: None,
    };
    let mut fault = None;
    let mut verifier = file.verifier();
    for (number, (_, header)) in file.blocks.iter().enumerate() {
        match verifier.verify(number) {
            Ok(()) => {
                check.good_instructions += header.instructions;
                check.good_blocks = Some(number as u64 + 1);
            }
            Err(mut error) => {
                error.message = format!("block {number}: {}", error.message);
                fault = Some(error);
                break;
            }
        }
    }
    let fault = fault.or(file.stopped).or(unfinished);
    if let Some(error) = fault {
        check.whole = false;
        check.fault_offset = error.offset;
        check.fault = Some(error.to_string());
    }
    Ok(check)
}
