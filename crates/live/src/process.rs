//! A process of the program: its shared memory, its code, its address space as
//! far as events need it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use memmap2::{MmapOptions, MmapRaw};
use pagewalk_ring::{Consumer, Header, Segment};
use pagewalk_stream::{Error, ThreadId};
use pagewalk_trace::{Decoded, Known};

use crate::calls::Space;
use crate::host::Hello;
use crate::identity::{Condition, Identity};

/// A segment with the mapping that it lies in.
pub(crate) struct MappedSegment {
    pub segment: Segment,
    /// Keeps `segment`'s memory.
    _mapping: MmapRaw,
}

impl MappedSegment {
    /// Maps the memory that a process has brought.
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
        // SAFETY: mapped for `bytes`, and kept beside the segment.
        let segment =
            unsafe { Segment::open(mapping.as_mut_ptr(), bytes) }.map_err(Error::refused)?;
        Ok(MappedSegment {
            segment,
            _mapping: mapping,
        })
    }
}

pub(crate) struct Process {
    /// `None`: it died before anything was known of it.
    pub who: Option<Identity>,
    pub shared: Option<Arc<MappedSegment>>,
    /// The emulator's file, by which to tell that it runs no more.
    image: Option<PathBuf>,
    pub blocks: Vec<Known>,
    /// Their addresses: where a branch went is asked for each block.
    pub addresses: Vec<u64>,
    /// Words of the static part that are decoded.
    code_at: usize,
    /// Added to the tickets of this image: they go on after an execve.
    pub ticket_base: u64,
    pub space: Space,
    pub threads: Vec<ThreadId>,
    /// The kernel's process is gone.
    pub dead: bool,
    /// Its end has been told.
    pub ended: bool,
    /// How the kernel says that it ended, when it died without a word.
    pub verdict: Option<i32>,
}

impl Process {
    /// One that has not brought its memory yet; `who` it is, if that is known.
    pub fn new(who: Option<Identity>) -> Process {
        Process {
            who,
            shared: None,
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

    /// A child, which starts with the parent's code and address space.
    pub fn fork(&mut self, who: Option<Identity>, decoded: &mut Decoded) -> Result<Process, Error> {
        self.read_code(decoded)?;
        let mut child = Process::new(who);
        child.blocks = self.blocks.clone();
        child.addresses = self.addresses.clone();
        child.space = self.space.clone();
        Ok(child)
    }

    /// Takes the memory that a new image has brought.
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
        self.shared = Some(Arc::new(memory));
        Ok(())
    }

    /// The reading end of a slot.
    pub fn reader(&self, slot: usize) -> Result<Option<(Arc<MappedSegment>, Consumer)>, Error> {
        let Some(shared) = &self.shared else {
            return Ok(None);
        };
        let consumer =
            Consumer::new(&shared.segment, slot).map_err(|e| Error::refused(e.to_string()))?;
        Ok(Some((shared.clone(), consumer)))
    }

    /// Decodes the code that was translated since.
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

    /// Makes block `number` known.
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
            Error::refused("the program has more code than can be followed (1 GB translated)")
        } else {
            Error::refused(format!(
                "the ring is corrupt: it names block {number} of {}",
                self.blocks.len()
            ))
        })
    }

    /// Whether the process runs something else than the emulator.
    pub fn has_other_image(&self) -> bool {
        let now = self.who.and_then(|who| image(who.pid));
        self.image.is_some() && now.is_some_and(|now| self.image != Some(now))
    }

    /// Asks the kernel whether the process is gone.
    ///
    /// # Errors
    /// The kernel does not say, such as for want of a descriptor.
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

/// The file that a process executes; `None`: it has ended, or may not be asked.
pub(crate) fn image(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}
