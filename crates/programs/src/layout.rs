//! Virtual address layout of a built-in program, and the events that start its run.
//!
//! Addresses are those of a Linux x86-64 process: code at 0x400000, large arrays as `mmap` places them
//! (aligned to 2 MB), the stack below 2^47.

use std::collections::VecDeque;

use pagewalk_stream::{Backing, Event, ThreadId};
use pagewalk_units::{MappingSource, PageSize, VirtAddr};

/// First address of the code segment.
pub const CODE: u64 = 0x40_1000;
/// Length of the code segment. A program's own code lies in the lower part.
pub const CODE_BYTES: u64 = 0x1_0000;
/// Initial `brk`: some pages behind the data segment, as on Linux, and not aligned to a huge page. Linux
/// randomises it; here it is the same in each run.
pub const HEAP: u64 = 0x1c3_5000;
/// First address of the mapped arrays, far below the stack: arrays of 64 TiB fit in between.
const ARRAYS: u64 = 0x1000_0000_0000;
/// First address of the data segment of programs that have one.
pub const DATA: u64 = 0x60_0000;
const STACK_TOP: u64 = 0x7fff_ffff_f000;
/// Linux's default stack limit.
const STACK_BYTES: u64 = 8 << 20;

/// Places arrays one after the other and collects the events that start a run.
pub struct Layout {
    next: u64,
    events: VecDeque<Event>,
}

impl Layout {
    /// Maps the code and the first thread's stack.
    pub fn new() -> Self {
        let map = |at, bytes, writable, backing| Event::Map {
            at: VirtAddr(at),
            bytes,
            writable,
            backing,
        };
        let stack = STACK_TOP - STACK_BYTES;
        Layout {
            next: ARRAYS,
            events: VecDeque::from([
                map(CODE, CODE_BYTES, false, Backing::File),
                map(stack, STACK_BYTES, true, Backing::Stack),
            ]),
        }
    }

    /// Initial stack pointer of `thread`; stacks grow down from it. Stacks of later threads are mapped here,
    /// as `pthread_create` does.
    pub fn stack(&mut self, thread: ThreadId) -> u64 {
        if thread == 0 {
            return STACK_TOP;
        }
        let (at, bytes) = self.place(STACK_BYTES);
        self.events.push_back(Event::Map {
            at: VirtAddr(at),
            bytes,
            writable: true,
            backing: Backing::Stack,
        });
        at + bytes
    }

    /// Reserves address space for a mapping of `bytes`. The caller emits the event.
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        self.place(bytes).0
    }

    /// Takes the events so far, for the caller to emit.
    pub fn events(&mut self) -> VecDeque<Event> {
        std::mem::take(&mut self.events)
    }

    fn place(&mut self, bytes: u64) -> (u64, u64) {
        let at = self.next;
        let bytes = bytes.next_multiple_of(4096).max(4096);
        // One unmapped page behind each array: an overrun faults.
        self.next = (at + bytes + 4096).next_multiple_of(2 << 20);
        (at, bytes)
    }

    /// Maps an anonymous array of `bytes`. With `populate`, every page of it is touched.
    pub fn array(&mut self, bytes: u64, populate: bool) -> u64 {
        let (at, bytes) = self.place(bytes);
        let at = VirtAddr(at);
        self.events.push_back(Event::Map {
            at,
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        });
        if populate {
            self.events.push_back(Event::Populate { at, bytes });
        }
        at.0
    }

    /// As [`Layout::array`], with pages of this size: those of 2 MB and 1 GB come from the kernel's pool
    /// (`MAP_HUGETLB`).
    pub fn array_of(&mut self, bytes: u64, pages: PageSize, populate: bool) -> u64 {
        if pages == PageSize::K4 {
            return self.array(bytes, populate);
        }
        self.next = self.next.next_multiple_of(pages.bytes());
        let (at, bytes) = self.place(bytes.next_multiple_of(pages.bytes()));
        let at = VirtAddr(at);
        self.events.push_back(Event::Mmap {
            at,
            bytes,
            writable: true,
            source: MappingSource::Pool {
                size: pages,
                reserves: true,
                object: None,
                private: true,
            },
        });
        if populate {
            self.events.push_back(Event::Populate { at, bytes });
        }
        at.0
    }

    /// Maps a data segment of `bytes` at [`DATA`]. With `populate`, every page of it is touched.
    pub fn data(&mut self, bytes: u64, populate: bool) {
        let at = VirtAddr(DATA);
        let bytes = bytes.next_multiple_of(4096);
        debug_assert!(DATA + bytes < HEAP);
        self.events.push_back(Event::Map {
            at,
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        });
        if populate {
            self.events.push_back(Event::Populate { at, bytes });
        }
    }
}
