//! The interface between programs and the machine: batches of operations, and the events between them.
//!
//! A [`Program`] is a set of threads, each a stream of [`Op`]s in program order. An op is one instruction that matters
//! to the memory system or to control flow, together with the simple instructions right before it. Simple instructions
//! neither access memory nor branch.

mod approximated;
mod death;
mod ended;
mod fast_forward;
mod memory;
mod mix;
mod recent_lines;
mod unseen;

pub use approximated::{APPROXIMATIONS, Approximation, InstructionClass, InstructionCounts};
pub use death::{Cause, Death};
pub use ended::Ended;
pub use fast_forward::{FastForwardBudget, ThreadFastForward, TouchSummary};
pub use memory::{Memory, ProgramMemory};
pub use mix::{Mix, Opens};
use pagewalk_units::{Access, VirtAddr};
pub use pagewalk_units::{
    Advice, Backing, Error, FlushKind, KernelFile, MappingSource, MemoryObject, PopulateAs,
    PrefetchHint,
};
pub use recent_lines::{Data, RecentLineFilter};
pub use unseen::{Unseen, Why};

/// Class of an [`Op`]'s own instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum OpClass {
    /// Arithmetic: `insns` instructions whose longest dependence chain takes `latency` cycles.
    #[default]
    Compute = 0,
    /// Reads `size` bytes at `va`. `dep` are the producers of the address.
    Load = 1,
    /// Writes `size` bytes at `va`. `dep[0]` produces the address, `dep[1]` the data.
    Store = 2,
    /// Control flow to `va` if taken. `dep` are the producers of the condition, or of the target.
    Branch = 3,
    /// Queries the machine's shortcut as [`End::Query`] of the batch says. Always the last op of its batch. `dep` are
    /// the producers of the integer and the address.
    Query = 4,
    /// Software prefetch of the line of `va`. `size` is its [`PrefetchHint`]; `dep` are the producers of the address.
    /// It neither waits for the line nor faults.
    Prefetch = 5,
    /// Flush of the line of `va` from all caches. `size` is its [`FlushKind`]; `dep` are the producers of the address.
    Flush = 6,
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
    /// Compute: a step of microcode. The front end delivers nothing younger before it is done.
    pub const MICROCODE: u8 = 128;
    /// Store: non-temporal, through a write-combining buffer.
    pub const NON_TEMPORAL: u8 = 128;
    /// Compute: younger stores wait until older stores, flushes and write-combining buffers are done (`sfence`).
    pub const STORE_FENCE: u8 = 1;
}

/// Operations on execution ports that an [`Op`] includes beside its own memory access or branch. All zero, the value of a
/// source that does not know: each of its simple instructions is one of integer arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct PortWork {
    /// Integer operations other than multiplications, minus the simple instructions. Below zero if some of these take
    /// another port or none.
    pub alu: i8,
    /// Integer multiplications.
    pub multiply: u8,
    /// Vector and floating-point operations, multiplications included.
    pub vector: u8,
    /// Vector and floating-point multiplications.
    pub vector_multiply: u8,
}

/// One operation: 32 bytes, so that two share a cache line of the host.
///
/// A producer is named by its distance: `dep[k] = d > 0` is the op `d` places earlier in the same thread's stream,
/// across batches. 0 means no producer. The value that this op needs is ready `dep_latency[k]` cycles after the
/// producer is done. These are the cycles of simple instructions between the two, which are folded away.
///
/// Without a producer, the op's input is ready when the op is dispatched. For `Compute`, `latency` is the length of the
/// longest chain among the `insns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Op {
    /// Address of the instruction.
    pub pc: u64,
    /// Virtual address of a load, store, prefetch or flush; target of a branch; 0 for `Compute`.
    pub va: u64,
    /// Instructions in this op: its own and the simple ones right before it. The second and later micro-operations of
    /// an instruction have 0 (the store of a read-modify-write).
    pub insns: u16,
    /// Distances to producers in ops; 0 = none.
    pub dep: [u16; 2],
    /// Cycles between a producer's result and this op's input.
    pub dep_latency: [u8; 2],
    /// Execution cycles. For `Compute`: the whole chain. For `Branch`: from the arrival of its inputs to its resolution
    /// (at least 1). A load's latency is the memory's.
    pub latency: u8,
    /// Class of its instruction.
    pub kind: OpClass,
    /// Bytes read or written, 1 to 64; of a prefetch, its [`PrefetchHint`]; of a flush, its [`FlushKind`].
    pub size: u8,
    /// See [`flags`].
    pub flags: u8,
    /// Operations on execution ports.
    pub work: PortWork,
}

const _: () = assert!(size_of::<Op>() == 32);

impl Op {
    /// Instructions that neither access memory nor branch.
    #[inline(always)]
    pub fn simple(&self) -> u16 {
        let own = u16::from(self.kind != OpClass::Compute);
        self.insns.saturating_sub(own)
    }

    /// True if it includes operations on ports beside its own memory access or branch.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        self.simple() > 0 || self.work != PortWork::default()
    }
}

/// Address of a prefetch or flush that its source could not determine. No user address of 48 bits equals it.
pub const UNKNOWN_ADDRESS: u64 = (1 << 48) - 1;

/// Most ops in a batch.
pub const BATCH_OPS: usize = 4096;

/// A stretch of one thread's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Fast-forwarded part that precedes the ops. Empty unless the program has a grant
    /// ([`Program::grant_fast_forward`]).
    pub skipped: Skipped,
    /// In program order; at most [`BATCH_OPS`].
    pub ops: Vec<Op>,
    /// Instructions that were decoded for the ops, with those that are not simulated as hardware does. Zero for a
    /// program without decoded instructions.
    pub counts: InstructionCounts,
    /// Contents of the process's memory, if they can be read.
    pub memory: Option<ProgramMemory>,
}

/// A stretch of one thread's stream that was fast-forwarded: it holds no ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Ops skipped.
    pub ops: u64,
    /// Instructions of the skipped ops.
    pub instructions: u64,
    /// Requests that end in the skipped ops ([`flags::REQUEST`]).
    pub requests: u64,
    /// Touches in program order. A fast-forward grant needs at least the first access of each kind to each page since
    /// the program last changed its address space. Pages that it has populated since may be missing. A filtered-warming
    /// grant ([`Program::grant_filtered_warming`]) needs at least the accesses that [`RecentLineFilter`] lets through.
    pub touched: Vec<(u64, Access)>,
}

impl Skipped {
    /// Empties it.
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
            counts: InstructionCounts::default(),
            memory: None,
        }
    }
    /// Empties it.
    pub fn clear(&mut self) {
        self.skipped.clear();
        self.ops.clear();
        self.counts = InstructionCounts::default();
        self.memory = None;
    }
    /// True if no further op fits.
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

/// Query of the machine's shortcut, which maps integers to addresses. A program derives the integers from its keys.
/// There are two instructions and three system calls (STLT, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortcutQuery {
    /// `loadVA`: looks up where the record of `integer` may lie. The result is its address, or 0.
    LoadVa {
        /// Integer that the program derives from its key.
        integer: u64,
    },
    /// `insertSTLT`: sets the address of the record of `integer` to `va`; address 0 removes the record. The result is
    /// not 0 if the table then holds an address for `integer`.
    InsertVa {
        /// Integer that the program derives from its key.
        integer: u64,
        /// The record's address.
        va: VirtAddr,
    },
    /// The system call `STLTalloc` (section III-F): gives the process an empty table of `rows`, or of the design's own
    /// number of rows if 0. The result of this and the two below is 1, or 0 if the kernel refuses. Without this call, a
    /// process gets a table at its first query.
    Alloc {
        /// Rows, a power of two.
        rows: u64,
    },
    /// `STLTresize`: replaces the table by an empty one; with 0 rows, by one of the same size.
    Resize {
        /// Rows, a power of two.
        rows: u64,
    },
    /// `STLTfree`: frees the process's table.
    Free,
}

/// A question of a live program to the clock of the simulated machine. Times are since the start of the program, and the
/// result is in nanoseconds unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockQuery {
    /// The time at which all earlier instructions have retired.
    Time,
    /// The time stamp counter, in cycles.
    Cycles {
        /// All earlier instructions retire before, as for `rdtscp`.
        retired: bool,
    },
    /// The time that the threads of the process have spent on cores.
    ProcessTime,
    /// The time that the thread has spent on cores.
    ThreadTime,
    /// The thread sleeps until that time. The result is the time at which it continues.
    Sleep {
        /// Nanoseconds.
        until: u64,
    },
}

/// A thread of a program. The first is 0; numbers are never reused.
pub type ThreadId = u32;
/// A process of a program. The first is 0; numbers are never reused.
pub type ProcessId = u32;

/// Unit in which an [`End::Wait`] counts a thread's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Ops.
    Ops,
    /// Instructions.
    Instructions,
}

/// A thread's progress in both units of an [`End::Wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    ops: u64,
    instructions: u64,
}

impl Units {
    /// Adds a batch and its end.
    pub fn add(&mut self, batch: &Batch, end: &End) {
        self.add_counted(batch, batch.instructions(), end);
    }
    /// Adds a batch of `instructions`, which the caller has counted, and its end.
    pub fn add_counted(&mut self, batch: &Batch, instructions: u64, end: &End) {
        let ends = u64::from(!matches!(end, End::More | End::Empty | End::ReadKernel(_)));
        self.ops += batch.skipped.ops + batch.ops.len() as u64 + ends;
        self.instructions += instructions + ends;
    }
    /// The progress in one unit.
    pub fn counted(&self, counted: Counted) -> u64 {
        match counted {
            Counted::Ops => self.ops,
            Counted::Instructions => self.instructions,
        }
    }
}

/// Reason for which a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The batch is full; call `fill` again.
    More,
    /// An event follows the ops of this batch; then call `fill` again. `ticket` > 0 orders it among the changes of the
    /// process's address space. Such an event takes effect when every runnable thread of the process has reached
    /// [`End::Meet`] with this or a later ticket. A thread that waits with an event of its own counts, too.
    Event {
        /// The event.
        event: Event,
        /// Its place in the order of the process's changes, from 1; 0 = not ordered.
        ticket: u64,
    },
    /// Another thread of the process changes the address space here. Wait until the change with `ticket` has taken
    /// effect, then call `fill` again.
    Meet {
        /// Ticket of the change.
        ticket: u64,
    },
    /// The thread continues when every other thread of its process that has not exited has reached a barrier of this or
    /// a higher number. The numbers of one thread ascend. `u64::MAX` is a join: the thread waits until the others have
    /// exited.
    Barrier {
        /// Number of the barrier.
        number: u64,
    },
    /// A recorded wait. The thread continues when each of these threads has made this much progress, or has exited.
    Wait {
        /// The threads, and the progress of each: its ends other than [`End::More`] and [`End::Empty`], plus its ops or
        /// instructions (`counted`).
        until: Vec<(ThreadId, u64)>,
        /// Unit that is counted in addition to the ends.
        counted: Counted,
    },
    /// A live thread waits for another one in the kernel. The thread does not run until `fill` returns something else;
    /// call it again later.
    Blocked,
    /// The last op is a query. The machine calls [`Program::shortcut_result`] before the thread's next `fill`; the
    /// program then branches on the result.
    Query(ShortcutQuery),
    /// The thread reads a file of the simulated kernel, and waits for [`Program::kernel_file`].
    ReadKernel(KernelFile),
    /// The live program asks for the simulated time, or sleeps. The machine calls [`Program::shortcut_result`] before the
    /// thread's next `fill`. It takes no operation.
    Clock(ClockQuery),
    /// A live program has produced nothing yet: call [`Program::wait`], then `fill` again.
    Empty,
    /// The thread has ended. Never call `fill` for it again.
    Exit,
}

/// A change that the operating system or the simulator acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new mapping; older ones in its range are unmapped first (as by mmap with MAP_FIXED).
    Map {
        /// First address, page-aligned.
        at: VirtAddr,
        /// Length, a multiple of 4 KB.
        bytes: u64,
        /// Stores are allowed.
        writable: bool,
        /// Kind of memory behind the mapping.
        backing: Backing,
    },
    /// As [`Event::Map`], for a mapping whose page faults are served as Linux serves them: with the shared zero page,
    /// fault-around, and the page cache.
    Mmap {
        /// First address, page-aligned.
        at: VirtAddr,
        /// Length, a multiple of 4 KB.
        bytes: u64,
        /// Stores are allowed.
        writable: bool,
        /// Memory behind the mapping.
        source: MappingSource,
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
        /// The advice.
        advice: Advice,
    },
    /// The program touches each page of the range once, in ascending order, as an initialisation loop would. This takes
    /// no simulated time.
    Populate {
        /// First address.
        at: VirtAddr,
        /// Length.
        bytes: u64,
    },
    /// The kernel reads or writes the program's memory in a system call, and takes the page faults on unmapped pages.
    /// Addresses outside the program's mappings are skipped.
    KernelTouch {
        /// First address, of any alignment.
        at: VirtAddr,
        /// Length, of any alignment.
        bytes: u64,
        /// It writes, as `read` does; otherwise it reads, as `write` does.
        writes: bool,
    },
    /// The kernel populates the program's memory in a system call, without traps (`MAP_POPULATE`, `mlock`,
    /// `MADV_POPULATE_READ`). Addresses outside the program's mappings are skipped.
    KernelPopulate {
        /// First address, of any alignment.
        at: VirtAddr,
        /// Length, of any alignment.
        bytes: u64,
        /// Accesses by which it populates.
        populate: PopulateAs,
    },
    /// Pages of an object are freed, for all processes that map it (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole {
        /// Number of the object ([`MemoryObject::key`]).
        key: u64,
        /// First page of the object.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// An object has another size; its pages after that are freed (`ftruncate`).
    Truncate {
        /// Number of the object ([`MemoryObject::key`]).
        key: u64,
        /// Number of pages from now on.
        pages: u64,
    },
    /// The process has no new huge pages from now on, or may have them again (`PR_SET_THP_DISABLE`).
    DisableHugePages {
        /// No huge pages.
        disabled: bool,
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
    /// execve: the address space is emptied; `Map` events follow. The thread's barriers count from the beginning again.
    Exec,
    /// The process ends with all its threads. Each thread still gives the batches before that point, and then
    /// [`End::Exit`]. `status` is the exit status as a shell shows it.
    ProcessExit {
        /// 0..255, 128 + signal when killed.
        status: i32,
    },
    /// The process continues with a program that the emulator does not run, or has made a memory call that is not
    /// modelled.
    Unseen(Box<Unseen>),
    /// The process has ended without exiting. [`Event::ProcessExit`] follows.
    Died(Box<Death>),
    /// Start of the region of interest.
    RoiBegin,
    /// End of the region of interest.
    RoiEnd,
}

impl Event {
    /// An event that changes nothing. It only takes its ticket, and counts among the ends of its thread.
    pub const NOTHING: Event = Event::Advise {
        at: VirtAddr(0),
        bytes: 0,
        advice: Advice::DontNeed,
    };
}

/// Facts about a program that are known before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Name for the result, for example `gups --size 1GiB` or the command line.
    pub name: String,
    /// Instructions of all threads, if known (for the progress bar).
    pub instructions: Option<u64>,
    /// No mapping information. The operating system assumes a mapping of the aligned 2 MB region around an unknown
    /// address, and the result says so.
    pub infer_mappings: bool,
    /// No register information: dependences between instructions are unknown, and the result says so.
    pub no_dependences: bool,
    /// The same seed gives the same ops (true for everything except a live process).
    pub deterministic: bool,
    /// The program marks a region of interest.
    pub has_roi: bool,
    /// Unit of a request, such as `update`, if the ops mark where a request ends ([`flags::REQUEST`]). `None`: each
    /// region of interest that ends is one request.
    pub request: Option<String>,
    /// The program is a live process, or a recording of one. It may own memory that no event reports.
    pub live: bool,
    /// CPU model that the emulator gives a live process, or gave it when it was recorded.
    pub cpu: Option<String>,
    /// The program's clocks show the simulated time.
    pub simulated_clock: bool,
    /// Ops may be software prefetches, so they are reported.
    pub prefetches: bool,
    /// Ops may be flushes or non-temporal stores, so they are reported.
    pub flushes: bool,
    /// The contents of its memory can be read ([`Batch::memory`]).
    pub memory: bool,
    /// Threads that it has by itself, if known. A live process and its recording do not say.
    pub threads: Option<u32>,
    /// Programs of a mix; empty otherwise. Process `i` is the first of program `i`, and the processes that it creates
    /// belong to it. Each program marks where its region of interest begins.
    pub parts: Vec<Part>,
    /// Recording that an interrupt has stopped: instructions recorded up to there.
    pub stopped: Option<u64>,
    /// Fast-forwarding from the start costs almost nothing at any distance. True of a recording of one thread that
    /// holds touch summaries.
    pub begins_anywhere: bool,
    /// Sentences about the source that results repeat as warnings.
    pub notes: Vec<String>,
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
/// Thread 0 of process 0 exists from the start. For one seed, each thread's ops do not depend on the order of the
/// `fill` calls (except in live processes). Many designs can therefore share one program.
pub trait Program: Send {
    /// Facts known before it runs.
    fn facts(&self) -> Facts;
    /// Clears `batch`, fills it with the next ops of `thread`, and returns why the batch ends there.
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error>;
    /// Allows the program to fast-forward: for the next instructions or requests, whichever limit comes first, only the
    /// touched pages are needed ([`Batch::skipped`]). Replaces an earlier grant. Batches end where they would end
    /// without a grant. Has no effect after a second thread has started, because the interleaving then depends on the
    /// machine.
    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        let _ = (instructions, requests);
    }
    /// Allows filtered functional warming: as [`Program::grant_fast_forward`], but the machine also needs each access
    /// that [`RecentLineFilter`] lets through. The program applies its filter from now on until the grant is spent, and
    /// empties it at each event. Replaces an earlier grant of either kind.
    fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
        let _ = (instructions, requests);
        self.grant_fast_forward(0, 0);
    }
    /// Result of the [`End::Query`] of `thread`, before its next `fill`. `None`: no machine that runs the program has a
    /// shortcut, and the program continues without.
    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        let _ = (thread, reply);
    }
    /// Contents of the [`End::ReadKernel`] of `thread`. `None`: the simulated kernel has no such file, and the program
    /// reads the host's.
    fn kernel_file(&mut self, thread: ThreadId, contents: Option<Vec<u8>>) {
        let _ = (thread, contents);
    }
    /// No machine calls `fill` for `thread` again: it has ended, or its process has.
    fn gone(&mut self, thread: ThreadId) {
        let _ = thread;
    }
    /// Blocks until a thread that returned [`End::Empty`] or [`End::Blocked`] may have something, or for at most a
    /// tenth of a second.
    fn wait(&mut self) {}
    /// The program's own exit status, once it has ended (live processes).
    fn exit_status(&self) -> Option<i32> {
        None
    }
}
