//! A program whose operations come from Python, a block at a time. The interpreter's lock is held only while a block is
//! fetched.

use std::collections::VecDeque;

use pagewalk_stream::{
    BATCH_OPS, Backing, Batch, End, Error, Event, Facts, FlushKind, Op, OpClass, PrefetchHint,
    Program, ThreadId, flags,
};
use pagewalk_units::VirtAddr;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of an operation: those of [`Op`] in memory.
const OP_BYTES: usize = size_of::<Op>();

/// Code that every program has mapped; `custom.py` has the same address.
const CODE: VirtAddr = VirtAddr(0x40_1000);
const CODE_BYTES: u64 = 0x1_0000;

/// First address, bytes, writable, populate.
pub type Mapping = (u64, u64, bool, bool);

/// The program in its Python form: `Streams` of `python/pagewalk/custom.py`.
#[derive(FromPyObject)]
pub struct Streams {
    name: String,
    /// One function for each thread. It returns bytes of operations, or `None` at the end.
    pulls: Vec<Py<PyAny>>,
    /// If empty, the operating system infers mappings from the addresses.
    mappings: Vec<Mapping>,
    /// Operations name the producers of their addresses.
    dependences: bool,
    /// Operations mark where a request ends.
    requests: bool,
    /// Operations may be prefetches.
    prefetches: bool,
    /// Operations may be flushes or non-temporal stores.
    flushes: bool,
}

/// See the module.
pub struct Custom {
    facts: Facts,
    setup: VecDeque<Event>,
    threads: Vec<PythonThread>,
}

/// A thread whose operations a Python function generates.
struct PythonThread {
    /// Returns bytes of operations, or `None` at the end.
    pull: Py<PyAny>,
    ops: Vec<Op>,
    /// Number of `ops` already given.
    given: usize,
    ended: bool,
}

impl Custom {
    /// A program of these threads.
    pub fn new(streams: Streams) -> Self {
        let Streams {
            name,
            pulls,
            mappings,
            dependences,
            requests,
            prefetches,
            flushes,
        } = streams;
        let mut setup = VecDeque::new();
        if !mappings.is_empty() {
            setup.push_back(Event::Map {
                at: CODE,
                bytes: CODE_BYTES,
                writable: false,
                backing: Backing::File,
            });
        }
        for (at, bytes, writable, populate) in mappings.iter().copied() {
            let at = VirtAddr(at);
            setup.push_back(Event::Map {
                at,
                bytes,
                writable,
                backing: Backing::Anonymous,
            });
            if populate {
                setup.push_back(Event::Populate { at, bytes });
            }
        }
        setup.extend((1..pulls.len() as ThreadId).map(|thread| Event::Spawn { thread }));
        Custom {
            facts: Facts {
                name: format!("python {name}"),
                infer_mappings: mappings.is_empty(),
                no_dependences: !dependences,
                deterministic: true,
                request: requests.then(|| "request".to_owned()),
                prefetches,
                flushes,
                threads: u32::try_from(pulls.len()).ok(),
                ..Facts::default()
            },
            setup,
            threads: pulls
                .into_iter()
                .map(|pull| PythonThread {
                    pull,
                    ops: Vec::new(),
                    given: 0,
                    ended: false,
                })
                .collect(),
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(all)
}

/// Number of a non-temporal store in `python/pagewalk/programs/generators.py`.
const NON_TEMPORAL_STORE: u8 = 7;

/// An operation from its fields; `python/pagewalk/custom.py` lays them out.
fn op(bytes: &[u8]) -> Op {
    let (kind, size) = match bytes[25] {
        5 => (OpClass::Prefetch, PrefetchHint::T0 as u8),
        6 => (OpClass::Flush, FlushKind::Ordered as u8),
        2 | NON_TEMPORAL_STORE => (OpClass::Store, bytes[26]),
        _ => (OpClass::Load, bytes[26]),
    };
    let mut marks = if bytes[27] == 1 { flags::REQUEST } else { 0 };
    if bytes[25] == NON_TEMPORAL_STORE {
        marks |= flags::NON_TEMPORAL;
    }
    Op {
        pc: number::<8>(bytes, 0),
        va: number::<8>(bytes, 8),
        insns: number::<2>(bytes, 16) as u16,
        dep: [number::<2>(bytes, 18) as u16, 0],
        kind,
        size,
        flags: marks,
        ..Op::default()
    }
}

impl PythonThread {
    fn refill(&mut self) -> Result<(), Error> {
        self.given = 0;
        self.ops.clear();
        Python::attach(|py| {
            let block = self
                .pull
                .call0(py)
                .map_err(|e| Error::refused(e.value(py).to_string()))?;
            if block.is_none(py) {
                self.ended = true;
                return Ok(());
            }
            let block = block
                .cast_bound::<PyBytes>(py)
                .map_err(|e| Error::refused(e.to_string()))?;
            let bytes = block.as_bytes();
            if bytes.len() % OP_BYTES != 0 {
                return Err(Error::refused(format!(
                    "a block of {} bytes is no whole number of operations",
                    bytes.len()
                )));
            }
            self.ops.extend(bytes.chunks_exact(OP_BYTES).map(op));
            Ok(())
        })
    }
}

impl Program for Custom {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        if thread == 0
            && let Some(event) = self.setup.pop_front()
        {
            return Ok(End::Event { event, ticket: 0 });
        }
        let count = self.threads.len();
        let name = &self.facts.name;
        let Some(this) = self.threads.get_mut(thread as usize) else {
            return Err(Error::refused(format!(
                "{name} has {count} threads, not a thread {thread}"
            )));
        };
        while !this.ended && this.given == this.ops.len() {
            this.refill()?;
        }
        if this.ended {
            return Ok(End::Exit);
        }
        let end = this.ops.len().min(this.given + BATCH_OPS);
        batch.ops.extend_from_slice(&this.ops[this.given..end]);
        this.given = end;
        Ok(End::More)
    }
}
