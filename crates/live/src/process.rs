//! A process of the program: its shared memory, its code, and the part of its address space that events need.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use memmap2::{MmapOptions, MmapRaw};
use pagewalk_ring::{Consumer, Header, Segment};
use pagewalk_stream::{Error, ProgramMemory, ThreadId};
use pagewalk_trace::{Decoded, Known};

use crate::calls::Space;
use crate::host::Hello;
use crate::identity::{Condition, Identity};
use crate::memory::LiveMemory;

/// A segment and the mapping that holds it.
pub(crate) struct MappedSegment {
    pub segment: Segment,
    /// Keeps the memory of `segment` mapped.
    _mapping: MmapRaw,
}

impl MappedSegment {
    /// Maps the memory that a process has sent.
    ///
    /// # Errors
    /// It cannot be mapped, or is no segment.
    pub fn map(memory: &File) -> Result<MappedSegment, Error> {
        let failed =
            |e: std::io::Error| Error::refused(format!("cannot map the emulator's memory: {e}"));
        let bytes = usize::try_from(memory.metadata().map_err(failed)?.len())
            .map_err(|e| Error::refused(e.to_string()))?;
        if bytes == 0 {
            return Err(Error::refused("the emulator's shared memory is empty"));
        }
        let mapping = MmapOptions::new()
            .len(bytes)
            .map_raw(memory)
            .map_err(failed)?;
        // SAFETY: the memory is mapped for `bytes`, and the mapping is kept beside the segment.
        let segment =
            unsafe { Segment::open(mapping.as_mut_ptr(), bytes) }.map_err(Error::refused)?;
        Ok(MappedSegment {
            segment,
            _mapping: mapping,
        })
    }
}

/// A process of the program.
pub(crate) struct Process {
    /// `None`: the process died before its identity could be read.
    pub who: Option<Identity>,
    pub shared: Option<Arc<MappedSegment>>,
    /// Contents of its memory.
    pub memory: Option<ProgramMemory>,
    /// File of the emulator; another file means that the process has left the emulator.
    image: Option<PathBuf>,
    pub blocks: Vec<Known>,
    /// Addresses of `blocks`: the target of a branch is looked up for each block.
    pub addresses: Vec<u64>,
    /// Words of the static part that have been decoded.
    code_at: usize,
    /// Added to the tickets of this image, so that they continue after an execve.
    pub ticket_base: u64,
    pub space: Space,
    pub threads: Vec<ThreadId>,
    /// The kernel has no such process any more.
    pub dead: bool,
    /// The end of the process has been reported.
    pub ended: bool,
    /// Status from the kernel, for a process whose parent had not waited for it.
    pub verdict: Option<ExitStatus>,
}

impl Process {
    /// A process without memory yet.
    pub fn new(who: Option<Identity>) -> Process {
        Process {
            who,
            shared: None,
            memory: None,
            image: None,
            blocks: Vec::new(),
            addresses: Vec::new(),
            code_at: 0,
            ticket_base: 0,
            space: Space::default(),
            threads: Vec::new(),
            dead: false,
            ended: false,
            verdict: None,
        }
    }

    /// A child, which starts with its parent's code and address space.
    pub fn fork(&mut self, who: Option<Identity>, decoded: &mut Decoded) -> Result<Process, Error> {
        self.read_code(decoded)?;
        let mut child = Process::new(who);
        child.blocks = self.blocks.clone();
        child.addresses = self.addresses.clone();
        child.space = self.space.clone();
        Ok(child)
    }

    /// Takes the memory of a new image.
    pub fn attach(&mut self, hello: Hello, forked: bool) -> Result<(), Error> {
        let memory = hello.memory?;
        if forked {
            let inherited = memory.segment.header().inherited.load(Relaxed);
            if inherited > self.blocks.len() as u64 {
                return Err(Error::refused(format!(
                    "a child process has inherited {inherited} blocks of code, its parent had {}",
                    self.blocks.len()
                )));
            }
            self.blocks.truncate(inherited as usize);
            self.addresses.truncate(inherited as usize);
        } else {
            self.blocks.clear();
            self.addresses.clear();
            self.space = Space::default();
        }
        self.code_at = 0;
        self.image = self.who.and_then(|who| image(who.pid));
        let shared = Arc::new(memory);
        self.memory = self
            .who
            .map(|who| ProgramMemory(Arc::new(LiveMemory::new(who, shared.clone()))));
        self.shared = Some(shared);
        Ok(())
    }

    /// The consumer of a slot's ring.
    pub fn reader(&self, slot: usize) -> Result<Option<(Arc<MappedSegment>, Consumer)>, Error> {
        let Some(shared) = &self.shared else {
            return Ok(None);
        };
        let consumer =
            Consumer::new(&shared.segment, slot).map_err(|e| Error::refused(e.to_string()))?;
        Ok(Some((shared.clone(), consumer)))
    }

    /// Decodes the code that was translated since the last call.
    pub fn read_code(&mut self, decoded: &mut Decoded) -> Result<(), Error> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let corrupt =
            || Error::refused("the emulator's memory is corrupt: a block of code is cut short");
        let code = shared.segment.code();
        let end = shared.segment.header().code_words.load(Acquire) as usize;
        let code = code.get(..end).ok_or_else(corrupt)?;
        while self.code_at < end {
            let bytes = usize::try_from(code[self.code_at].load(Relaxed)).map_err(|_| corrupt())?;
            let from = self.code_at + 1;
            let to = from.checked_add(bytes.div_ceil(8)).ok_or_else(corrupt)?;
            let raw: Vec<u8> = code
                .get(from..to)
                .ok_or_else(corrupt)?
                .iter()
                .flat_map(|w| w.load(Relaxed).to_le_bytes())
                .take(bytes)
                .collect();
            self.code_at = to;
            let known = decoded.learn(raw).ok_or_else(corrupt)?;
            self.addresses.push(known.block.address);
            self.blocks.push(known);
        }
        Ok(())
    }

    /// Decodes code until block `number` is known.
    #[inline(always)]
    pub fn learn(&mut self, number: usize, decoded: &mut Decoded) -> Result<(), Error> {
        if number < self.blocks.len() {
            return Ok(());
        }
        self.learn_new(number, decoded)
    }

    #[cold]
    fn learn_new(&mut self, number: usize, decoded: &mut Decoded) -> Result<(), Error> {
        self.read_code(decoded)?;
        if number < self.blocks.len() {
            return Ok(());
        }
        let trouble = self
            .shared
            .as_ref()
            .map_or(0, |s| s.segment.header().trouble.load(Relaxed));
        Err(if trouble == Header::OUT_OF_CODE {
            Error::refused("the program has more code than can be traced (1 GB translated)")
        } else {
            Error::refused(format!(
                "the ring is corrupt: it names block {number} of {}",
                self.blocks.len()
            ))
        })
    }

    /// True if the process has made the system call that ends it.
    pub fn exits(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|s| s.segment.header().exits.load(Acquire) != 0)
    }

    /// Block `number` as the plugin sent it, if this process has translated it.
    pub fn code_of(&self, number: usize) -> Option<Vec<u8>> {
        let segment = &self.shared.as_ref()?.segment;
        let inherited = segment.header().inherited.load(Relaxed) as usize;
        let (code, mut at) = (segment.code(), 0);
        number.checked_sub(inherited)?;
        for _ in inherited..number {
            at += 1 + (code.get(at)?.load(Relaxed) as usize).div_ceil(8);
        }
        let bytes = code.get(at)?.load(Relaxed) as usize;
        let words = code.get(at + 1..at + 1 + bytes.div_ceil(8))?;
        let raw = words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes());
        Some(raw.take(bytes).collect())
    }

    /// True if the process executes a file other than the emulator.
    pub fn has_other_image(&self) -> bool {
        let now = self.who.and_then(|who| image(who.pid));
        self.image.is_some() && now.is_some_and(|now| self.image != Some(now))
    }

    /// Polls the kernel for the end of the process.
    ///
    /// # Errors
    /// The kernel does not say, for example because no descriptor is free.
    pub fn look_for_death(&mut self) -> std::io::Result<()> {
        let condition = match self.who {
            _ if self.dead => return Ok(()),
            Some(who) => who.look()?,
            None => Condition::Died(None),
        };
        if let Condition::Died(status) = condition {
            (self.dead, self.verdict) = (true, status);
        }
        Ok(())
    }
}

/// The file that a process executes. `None`: it has ended, or access is denied.
pub(crate) fn image(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}
