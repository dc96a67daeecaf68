//! What a thread does while nobody looks at its ops: it counts them, and notes which pages they
//! touch for the first time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pagewalk_stream::{Batch, Event, Kind, Lines, Op, Passed, flags};
use pagewalk_units::Access;
use rustc_hash::FxHashMap;

/// What a program may still pass over, and what its threads have changed.
#[derive(Default)]
pub(super) struct Leave {
    instructions: AtomicU64,
    requests: AtomicU64,
    /// Lines are wanted, not pages alone.
    lines: AtomicBool,
    /// Changes of the address space after which a page that was touched may have to be touched
    /// again.
    changes: AtomicU64,
}

impl Leave {
    /// So much may be passed over from now on; `lines`: those that it uses are wanted.
    pub(super) fn give(&self, instructions: u64, requests: u64, lines: bool) {
        self.lines.store(lines, Relaxed);
        // Below what a thread has for "not known".
        self.instructions.store(instructions.min(1 << 62), Relaxed);
        self.requests.store(requests, Relaxed);
    }
}

/// Blocks of pages that are found without a search.
const NEAR: usize = 1024;

/// Pages that were touched, 512 in a block.
struct Pages {
    blocks: FxHashMap<u64, u32>,
    /// Pages read and written, a bit each.
    bits: Vec<[[u64; 8]; 2]>,
    /// Blocks and where their bits are, by the lowest bits of their numbers.
    near: Box<[(u64, u32); NEAR]>,
}

impl Pages {
    fn new() -> Self {
        Pages {
            blocks: FxHashMap::default(),
            bits: Vec::new(),
            near: Box::new([(u64::MAX, 0); NEAR]),
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.bits.clear();
        self.near.fill((u64::MAX, 0));
    }

    #[inline(never)]
    fn look_up(&mut self, block: u64) {
        let next = self.bits.len() as u32;
        let at = *self.blocks.entry(block).or_insert(next);
        if at == next {
            self.bits.push([[0; 8]; 2]);
        }
        self.near[block as usize % NEAR] = (block, at);
    }

    /// Whether `page` is touched in this way for the first time. What was written was read.
    #[inline(always)]
    fn is_new(&mut self, page: u64, write: bool) -> bool {
        let block = page >> 9;
        let slot = block as usize % NEAR;
        if self.near[slot].0 != block {
            self.look_up(block);
        }
        let near = &self.near[slot];
        let [read, written] = &mut self.bits[near.1 as usize];
        let (word, bit) = ((page >> 6 & 7) as usize, 1 << (page & 63));
        let seen = if write { written[word] } else { read[word] };
        if seen & bit != 0 {
            return false;
        }
        read[word] |= bit;
        if write {
            written[word] |= bit;
        }
        true
    }
}

/// A thread's part. See the module.
pub(super) struct Passing {
    leave: Arc<Leave>,
    /// Requests that may be passed in this turn.
    requests: u64,
    /// In this turn.
    pub(super) passed: Passed,
    pages: Pages,
    /// Where lines are wanted: those of a moment ago.
    lines: Lines,
    follows: bool,
    /// Changes that `pages` knows of.
    changes: u64,
    /// The page that was executed last.
    code: u64,
}

impl Passing {
    pub(super) fn new(leave: Arc<Leave>) -> Self {
        Passing {
            leave,
            requests: 0,
            passed: Passed::default(),
            pages: Pages::new(),
            lines: Lines::default(),
            follows: false,
            changes: 0,
            code: u64::MAX,
        }
    }

    /// A turn begins; gives how many instructions may be passed in it.
    pub(super) fn begin(&mut self) -> u64 {
        self.requests = self.leave.requests.load(Relaxed);
        let changes = self.leave.changes.load(Relaxed);
        if self.changes != changes {
            self.changes = changes;
            self.forget();
        }
        let follows = self.leave.lines.load(Relaxed);
        if self.follows != follows {
            self.follows = follows;
            self.lines.forget();
        }
        match self.requests {
            0 => 0,
            _ => self.leave.instructions.load(Relaxed),
        }
    }

    fn forget(&mut self) {
        self.pages.clear();
        self.lines.forget();
        self.code = u64::MAX;
    }

    /// It ends with so many instructions left.
    pub(super) fn end(&mut self, left: u64) {
        self.leave.instructions.store(left, Relaxed);
        self.leave.requests.store(self.requests, Relaxed);
        if left == 0 || self.requests == 0 {
            // What is followed next is another stretch.
            self.lines.forget();
        }
    }

    /// The op that was passed last ends a request; whether more may be passed.
    pub(super) fn request(&mut self) -> bool {
        self.passed.requests += 1;
        self.requests = self.requests.saturating_sub(1);
        self.requests > 0
    }

    /// Passes over what it may of the ops of `batch`, which are a turn of its only thread.
    pub(super) fn condense(&mut self, batch: &mut Batch) {
        let mut left = self.begin();
        let mut count = 0;
        for op in &batch.ops {
            if left == 0 || op.kind == Kind::Ask {
                break;
            }
            left = left.saturating_sub(u64::from(op.insns));
            self.pass(op);
            count += 1;
            if op.flags & flags::REQUEST != 0 && !self.request() {
                left = 0;
            }
        }
        batch.ops.drain(..count);
        std::mem::swap(&mut batch.passed, &mut self.passed);
        self.passed.clear();
        self.end(left);
    }

    /// The program's address space changes.
    pub(super) fn change(&mut self, event: &Event) {
        if event.takes_away() {
            self.changes = self.leave.changes.fetch_add(1, Relaxed) + 1;
            self.forget();
        }
    }

    /// Passes over `op`.
    #[inline(always)]
    pub(super) fn pass(&mut self, op: &Op) {
        self.passed.ops += 1;
        self.passed.instructions += u64::from(op.insns);
        if self.follows {
            let touched = &mut self.passed.touched;
            return self.lines.pass(op, |at, access| touched.push((at, access)));
        }
        if op.pc >> 12 != self.code {
            self.code = op.pc >> 12;
            self.touch(op.pc, Access::Fetch);
        }
        let access = match op.kind {
            Kind::Load => Access::Read,
            Kind::Store => Access::Write,
            Kind::Compute | Kind::Branch | Kind::Ask => return,
        };
        self.touch(op.va, access);
        let last = op.va.wrapping_add(u64::from(op.size.max(1)) - 1);
        if last >> 12 != op.va >> 12 {
            self.touch(last, access);
        }
    }

    #[inline(always)]
    fn touch(&mut self, at: u64, access: Access) {
        if self.pages.is_new(at >> 12, access == Access::Write) {
            self.passed.touched.push((at, access));
        }
    }
}
