//! All that the core knows of programs: batches of operations, and the events
//! between them.
//!
//! A [`Program`] is a set of threads, each a stream of [`Op`]s in program
//! order. An op is one instruction that matters to the memory system or to
//! control flow, together with the plain instructions right before it.

mod ended;
mod fast_forward;
mod mix;
mod recent_lines;
mod unseen;

pub use ended::Ended;
pub use fast_forward::{FastForwardBudget, ThreadFastForward, TouchSummary};
pub use mix::{Mix, Opens};
use pagewalk_units::{Access, VirtAddr};
pub use pagewalk_units::{Advice, Backing, Error};
pub use recent_lines::{Data, RecentLineFilter};
pub use unseen::{Unseen, Why};

/// What an [`Op`]'s own instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum OpClass {
    /// Arithmetic: `insns` instructions whose longest dependence chain takes
    /// `latency` cycles.
    #[default]
    Compute = 0,
    /// Reads `size` bytes at `va`. `dep` are the producers of the address.
    Load = 1,
    /// Writes `size` bytes at `va`. `dep[0]` produces the address, `dep[1]` the data.
    Store = 2,
    /// Control flow to `va` when taken. `dep` are the producers of the condition
    /// (or of the target).
    Branch = 3,
    /// Asks the machine's shortcut, as the batch's [`End::Query`] says: always the
    /// last op of its batch. `dep` are the producers of the integer and the address.
    Query = 4,
}

/// Bits of [`Op::flags`].
pub mod flags {
    /// Branch: taken.
    pub const TAKEN: u8 = 1;
    /// Branch: conditional; without it the branch is always taken.
    pub const CONDITIONAL: u8 = 2;
    /// Branch: target from a register or memory, predicted by history.
    pub const INDIRECT: u8 = 4;
    /// Branch: pushes a return address.
    pub const CALL: u8 = 8;
    /// Branch: pops a return address.
    pub const RETURN: u8 = 16;
    /// Drains the window before it executes (atomic read-modify-write, fence, `cpuid`).
    pub const SERIALISING: u8 = 32;
    /// The last op of a request, whatever its kind: see [`super::Facts::request`].
    pub const REQUEST: u8 = 64;
}

/// One operation: 32 bytes, so that two share a cache line of the host.
///
/// A producer is named by its distance: `dep[k] = d > 0` is the op `d` places
/// earlier in the same thread's stream (over batch borders), 0 is no producer.
/// The value that this op needs is ready `dep_latency[k]` cycles after that
/// producer is done: plain instructions between the two, folded away.
///
/// With no producer the op's input is ready when it is dispatched; a chain of
/// plain instructions among the `insns` is given by `latency` for `Compute`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Op {
    /// Address of the instruction.
    pub pc: u64,
    /// Virtual address of a load or store; target of a branch; 0 for `Compute`.
    pub va: u64,
    /// Instructions that this op stands for: itself and the plain ones right
    /// before it. 0 for the second and later micro-operations of one
    /// instruction (the store of a read-modify-write).
    pub insns: u16,
    /// Distances to producers in ops; 0 = none.
    pub dep: [u16; 2],
    /// Cycles between a producer's result and this op's input.
    pub dep_latency: [u8; 2],
    /// Execution cycles: of `Compute` the whole chain; of `Branch` until it is
    /// resolved after its inputs (at least 1). A load's latency is the memory's.
    pub latency: u8,
    /// What it does.
    pub kind: OpClass,
    /// Bytes read or written, 1 to 64.
    pub size: u8,
    /// See [`flags`].
    pub flags: u8,
}

const _: () = assert!(size_of::<Op>() == 32);

/// Ops a batch holds at most.
pub const BATCH_OPS: usize = 4096;

/// A stretch of one thread's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What comes before the ops, of which nobody needs more: empty unless the program was told
    /// so ([`Program::grant_fast_forward`]).
    pub skipped: Skipped,
    /// In program order; at most [`BATCH_OPS`].
    pub ops: Vec<Op>,
}

/// A stretch of one thread's stream without its ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Ops that are not there.
    pub ops: u64,
    /// Instructions of those.
    pub instructions: u64,
    /// How many of them end a request ([`flags::REQUEST`]).
    pub requests: u64,
    /// What they touch, in program order: of each page and kind at least the first access since
    /// the program last changed its address space, but for pages that it has populated since; of
    /// lines, where they are followed
    /// ([`Program::grant_filtered_warming`]), at least what [`RecentLineFilter`] lets through.
    pub touched: Vec<(u64, Access)>,
}

impl Skipped {
    /// Nothing.
    pub fn clear(&mut self) {
        self.touched.clear();
        (self.ops, self.instructions, self.requests) = (0, 0, 0);
    }
}

impl Batch {
    /// An empty batch with room for [`BATCH_OPS`].
    pub fn new() -> Self {
        Batch {
            skipped: Skipped::default(),
            ops: Vec::with_capacity(BATCH_OPS),
        }
    }
    /// Empties it.
    pub fn clear(&mut self) {
        self.skipped.clear();
        self.ops.clear();
    }
    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.ops.len() >= BATCH_OPS
    }
    /// Instructions in the batch.
    pub fn instructions(&self) -> u64 {
        let ops = self.ops.iter().map(|o| u64::from(o.insns));
        self.skipped.instructions + ops.sum::<u64>()
    }
    /// Requests that end in the batch.
    pub fn requests(&self) -> u64 {
        let ends = |o: &&Op| o.flags & flags::REQUEST != 0;
        self.skipped.requests + self.ops.iter().filter(ends).count() as u64
    }
}

/// What a program asks of the machine's shortcut from integers to addresses,
/// which it makes of its keys: two instructions and three system calls (STLT, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortcutQuery {
    /// `loadVA`: where the record of `integer` may lie. The reply is its address,
    /// or 0.
    LoadVa {
        /// What the program made of its key.
        integer: u64,
    },
    /// `insertSTLT`: the record of `integer` lies at `va`, or with address 0 nowhere any
    /// more. The reply is not 0 if the table holds an address for it now.
    InsertVa {
        /// What the program made of its key.
        integer: u64,
        /// The record's address.
        va: VirtAddr,
    },
    /// The system call `STLTalloc` (section III-F): the process has an empty table of
    /// `rows` from now on; 0: of as many as the machine's design says. The reply to this and
    /// the two below is 1, or 0 if the kernel refuses. A process that never says it gets a
    /// table at its first question.
    Alloc {
        /// Rows, a power of two.
        rows: u64,
    },
    /// `STLTresize`: an empty table instead of its own; of 0 rows: as many as that has.
    Resize {
        /// Rows, a power of two.
        rows: u64,
    },
    /// `STLTfree`: it has no table from now on.
    Free,
}

/// A thread of a program; the first is 0, numbers are never used again.
pub type ThreadId = u32;
/// A process of a program; the first is 0, numbers are never used again.
pub type ProcessId = u32;

/// How far a thread has come, for an [`End::Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// In ops.
    Ops,
    /// In instructions.
    Instructions,
}

/// What lies behind a thread, in both measures of an [`End::Wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    ops: u64,
    instructions: u64,
}

impl Units {
    /// A batch and its end lie behind the thread.
    pub fn add(&mut self, batch: &Batch, end: &End) {
        self.add_counted(batch, batch.instructions(), end);
    }
    /// The same of a batch with so many instructions, which are not counted again.
    pub fn add_counted(&mut self, batch: &Batch, instructions: u64, end: &End) {
        let ends = u64::from(!matches!(end, End::More | End::Empty));
        self.ops += batch.skipped.ops + batch.ops.len() as u64 + ends;
        self.instructions += instructions + ends;
    }
    /// How far that is.
    pub fn counted(&self, counted: Counted) -> u64 {
        match counted {
            Counted::Ops => self.ops,
            Counted::Instructions => self.instructions,
        }
    }
}

/// Why a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The batch is full; ask again.
    More,
    /// After the ops of this batch, this happens; then ask again. `ticket` > 0
    /// orders it among the changes of the process's address space: it takes
    /// effect when every runnable thread of the process has reached
    /// [`End::Meet`] with this or a later ticket (or waits with an event of its own).
    Event {
        /// What happens.
        event: Event,
        /// Its place in the order of the process's changes, from 1; 0 = not ordered.
        ticket: u64,
    },
    /// Another thread of the process changes the address space here: wait until
    /// the change with `ticket` has taken effect, then ask again.
    Meet {
        /// Which change.
        ticket: u64,
    },
    /// The thread goes on when every other thread of its process that has not
    /// exited has come to a barrier of this or a higher number. Numbers of one
    /// thread ascend. `u64::MAX` joins: it waits until the others have exited.
    Barrier {
        /// Which barrier.
        number: u64,
    },
    /// A recorded wait: the thread goes on when each of these threads has come
    /// this far, or has exited.
    Wait {
        /// Which threads, and how far: ends other than [`End::More`] and
        /// [`End::Empty`], and what `counted` says.
        until: Vec<(ThreadId, u64)>,
        /// What is counted next to the ends.
        counted: Counted,
    },
    /// A live thread waits for another one, in the kernel: it takes no part until
    /// `fill` gives something else. Ask again later.
    Blocked,
    /// The last op asks: [`Program::shortcut_result`] comes before the next `fill` of this
    /// thread, with what the program then branches on.
    Query(ShortcutQuery),
    /// A live program has produced nothing yet: call [`Program::wait`], ask again.
    Empty,
    /// The thread is gone. Never ask again.
    Exit,
}

/// A change that the operating system or the laboratory acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new mapping; what was there is unmapped first (as mmap with MAP_FIXED).
    Map {
        /// First address, page-aligned.
        at: VirtAddr,
        /// Length, a multiple of 4 KB.
        bytes: u64,
        /// Stores are allowed.
        writable: bool,
        /// What lies behind it.
        backing: Backing,
    },
    /// munmap.
    Unmap {
        /// First address, page-aligned.
        at: VirtAddr,
        /// Length, a multiple of 4 KB.
        bytes: u64,
    },
    /// mremap: pages move, frames stay.
    Remap {
        /// Old first address.
        from: VirtAddr,
        /// Old length.
        old_bytes: u64,
        /// New first address.
        to: VirtAddr,
        /// New length.
        new_bytes: u64,
    },
    /// mprotect.
    Protect {
        /// First address.
        at: VirtAddr,
        /// Length.
        bytes: u64,
        /// Stores are allowed from now on.
        writable: bool,
    },
    /// madvise.
    Advise {
        /// First address.
        at: VirtAddr,
        /// Length.
        bytes: u64,
        /// What was said.
        advice: Advice,
    },
    /// The program touches each page of the range once, in ascending order, as
    /// an initialisation loop would. Takes no simulated time.
    Populate {
        /// First address.
        at: VirtAddr,
        /// Length.
        bytes: u64,
    },
    /// The kernel reads or writes the program's memory in a system call, and takes
    /// the page faults of what is not mapped yet. What is no memory of the program's
    /// is left out.
    KernelTouch {
        /// First address, of any alignment.
        at: VirtAddr,
        /// Length, of any alignment.
        bytes: u64,
        /// It writes, as `read` does; otherwise it reads, as `write` does.
        writes: bool,
    },
    /// A new thread of the same process starts here.
    Spawn {
        /// Its number.
        thread: ThreadId,
    },
    /// fork: a new process with a copy-on-write copy of the address space.
    Fork {
        /// The child's number.
        process: ProcessId,
        /// The child's first thread.
        thread: ThreadId,
    },
    /// execve: the address space is emptied; `Map` events follow. Barriers of the
    /// thread count from the beginning again.
    Exec,
    /// The process ends with all its threads, each of which still gives what it
    /// did before and then [`End::Exit`]; `status` as a shell shows it.
    ProcessExit {
        /// 0..255, 128 + signal when killed.
        status: i32,
    },
    /// The process goes on with a program that is not followed.
    Unseen(Box<Unseen>),
    /// Start of the region of interest.
    RoiBegin,
    /// End of the region of interest.
    RoiEnd,
}

impl Event {
    /// One that changes nothing: it only takes its ticket, and its place among the
    /// ends of its thread.
    pub const NOTHING: Event = Event::Advise {
        at: VirtAddr(0),
        bytes: 0,
        advice: Advice::DontNeed,
    };
}

/// What is known of a program before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// For the result, e.g. `gups --size 1GiB` or the command line.
    pub name: String,
    /// Instructions of all threads, when known (for the progress bar).
    pub instructions: Option<u64>,
    /// No mapping information: the operating system takes the aligned 2 MB
    /// region around an unknown address as a mapping, and the result says so.
    pub infer_mappings: bool,
    /// No register information: dependences between instructions are unknown,
    /// and the result says so.
    pub no_dependences: bool,
    /// The same seed gives the same ops (everything but a live process).
    pub deterministic: bool,
    /// There is a region of interest.
    pub has_roi: bool,
    /// What one request is, such as `update`, where ops say where a request ends
    /// ([`flags::REQUEST`]). Without, each region of interest that ends is one.
    pub request: Option<String>,
    /// It is, or was when it was recorded, a live process: it may own memory that
    /// it got in ways that nobody announced.
    pub live: bool,
    /// Of a mix: its programs. Process `i` is the first of program `i`, and those
    /// that it makes belong to it; each says where its region of interest begins.
    pub parts: Vec<Part>,
    /// Of a recording that an interrupt has stopped: after so many instructions.
    pub stopped: Option<u64>,
    /// To pass over its first part costs next to nothing, however long that is: a recording of one
    /// thread that says what skipping needs.
    pub begins_anywhere: bool,
}

/// A program of a mix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// As its own [`Facts::name`].
    pub name: String,
    /// As its own [`Facts::request`].
    pub request: Option<String>,
}

/// A program: built in, recorded, or a live process.
///
/// Thread 0 of process 0 exists from the start. For one seed each thread's ops
/// are the same whatever the order in which threads are asked (but for live
/// processes), so that many designs can share one program.
pub trait Program: Send {
    /// What is known before it runs.
    fn facts(&self) -> Facts;
    /// Clears `batch` and fills it with the next ops of `thread`, and says why it ended there.
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error>;
    /// Of the next so many instructions and requests, whichever end first, nobody needs more than
    /// what they touch, until this is said anew: a program may give them as [`Batch::skipped`].
    /// Batches end where they would without. Nothing may be passed over any more once a second
    /// thread has started: which of them is where depends on the machine.
    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        let _ = (instructions, requests);
    }
    /// The same, but each access is needed that [`RecentLineFilter`] lets through, which is applied from now on
    /// until so much is done, and forgets at each event.
    /// [`Program::grant_fast_forward`] and this take each other's place.
    fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
        let _ = (instructions, requests);
        self.grant_fast_forward(0, 0);
    }
    /// The reply to the [`End::Query`] of `thread`, before its next `fill`. `None`:
    /// no machine that runs the program has a shortcut, and it does without.
    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        let _ = (thread, reply);
    }
    /// No machine asks for `thread` again: it has ended, or its process has.
    fn gone(&mut self, thread: ThreadId) {
        let _ = thread;
    }
    /// Blocks until some thread that was [`End::Empty`] or [`End::Blocked`] may
    /// have something, or for at most a tenth of a second.
    fn wait(&mut self) {}
    /// The program's own exit status, once it has ended (live processes).
    fn exit_status(&self) -> Option<i32> {
        None
    }
}
