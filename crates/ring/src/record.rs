//! The records in a ring.
//!
//! Bits 58..63 hold the tag. A memory record has the address in bits 0..47, the
//! instruction's index in its block in bits 48..56 (a QEMU block has at most 512
//! instructions), and bit 57 set for a store. The callback therefore only ORs the
//! address into a constant. The tag implies the number of words of a record; further
//! words are raw.

/// A memory access; see the module documentation.
pub const MEM: u64 = 0;
/// A translation block starts; its number in bits 0..31.
pub const BLOCK: u64 = 1;
/// A system call starts; its number in bits 0..31. Always published at once.
pub const ENTER: u64 = 2;
/// The system call has returned, without further information.
pub const RETURN: u64 = 3;
/// The system call has returned; [`CALL_WORDS`] words follow: result, ticket, six
/// arguments. Some arguments are replaced ([`call_arguments`]).
pub const CALL: u64 = 4;
/// Another thread changed the address space here, between two blocks or before an access
/// in a block; the ticket in bits 0..57. A block or an access always comes next.
pub const MEET: u64 = 5;
/// A thread is created; its slot in bits 0..31.
pub const SPAWN: u64 = 6;
/// The creation of the thread of the last [`SPAWN`] has failed.
pub const SPAWN_FAILED: u64 = 7;
/// The thread exits; exit status in bits 0..7, bit 8 set if the process exits with it.
pub const EXIT: u64 = 8;
/// A child process was created; its pid in bits 0..31; one word follows: the ticket.
pub const FORK: u64 = 9;
/// The process image is about to be replaced by another traced one.
pub const EXEC: u64 = 10;
/// The process image is about to be replaced by an untraced one; the ticket in the
/// payload. [`UNTRACED_WORDS`] words follow: the reason ([`unseen`]), and the program's
/// file name, up to 64 bytes, padded with zeros.
pub const EXEC_UNTRACED: u64 = 11;
/// A mapping that exists before the first instruction; five words follow: first
/// address, end, [`map_bits`], the file's key, offset in the file.
pub const MAPPED: u64 = 12;

/// The thread sends a query to the engine and waits for the result; the kind of query
/// ([`query`]) in bits 0..7. Two words follow: integer, address. Always published at once,
/// after the block that contains the query.
pub const QUERY: u64 = 13;

/// The kernel has read the program's memory in the current system call, or written it if
/// bit 57 ([`STORE`]) is set; number of bytes in bits 0..54. One word follows: the first
/// address. Bits 55 ([`BY_AREA`]) and 56 ([`POPULATE`]) say that it has populated the memory.
pub const TOUCH: u64 = 14;

/// The current system call concerns memory and is not modelled; its number in the payload.
/// [`UNMODELLED_WORDS`] words follow: its result and arguments.
pub const UNMODELLED: u64 = 15;

/// The program reads a file of the kernel, and the thread waits for its contents; 1 in the payload if it opens the file
/// for writing. [`KERNEL_FILE_WORDS`] words follow: descriptor of the file that takes the contents, offset and length
/// of the wanted part, and the path, padded with zeros.
pub const KERNEL_FILE: u64 = 16;

/// The block contains a mark of the region of interest, which other threads meet as they meet a change of the address
/// space; the ticket in the payload. It lies among the accesses of the block.
pub const MARK: u64 = 17;

/// Words that follow [`KERNEL_FILE`].
pub const KERNEL_FILE_WORDS: usize = 15;

/// Words that follow [`CALL`].
pub const CALL_WORDS: usize = 8;
/// Words that follow [`FORK`].
pub const FORK_WORDS: usize = 1;
/// Words that follow [`MAPPED`].
pub const MAPPED_WORDS: usize = 5;
/// Words that follow [`QUERY`].
pub const QUERY_WORDS: usize = 2;
/// Words that follow [`TOUCH`].
pub const TOUCH_WORDS: usize = 1;

/// Words that follow [`UNMODELLED`].
pub const UNMODELLED_WORDS: usize = 7;

/// Words that follow [`EXEC_UNTRACED`].
pub const UNTRACED_WORDS: usize = 9;

/// Reasons why a program is not traced.
pub mod unseen {
    /// Another architecture, or 32 bits.
    pub const FOREIGN: u64 = 0;
    /// The file is executable but not readable.
    pub const UNREADABLE: u64 = 1;
    /// The emulator is not reachable from the program's root directory.
    pub const OTHER_ROOT: u64 = 2;
    /// The kernel refused to execute the emulator.
    pub const REFUSED: u64 = 3;
}

/// Queries of a program. They use a system call `(kind, integer, address, reply)`
/// that does not exist in Linux. `reply` points to two 64-bit words: with a result, 1 is
/// stored in the first and the value in the second; otherwise both are unchanged. The
/// call itself always fails.
pub mod query {
    /// Number of the system call. Linux permanently leaves 387 to 423 unused on x86-64:
    /// the corresponding calls of other architectures have lower numbers here.
    pub const NUMBER: i64 = 400;
    /// Query: the virtual address of the integer; 0 if none is known.
    pub const LOAD_VA: u64 = 0;
    /// Associates the address with the integer; 0 removes the association.
    pub const INSERT_VA: u64 = 1;
    /// Allocates a table with `integer` rows, or of the default size for 0.
    pub const ALLOC: u64 = 2;
    /// Replaces the table by an empty one with `integer` rows, or of the current size
    /// for 0.
    pub const RESIZE: u64 = 3;
    /// Frees the table. The highest number of a query that a program may send.
    pub const FREE: u64 = 4;
    /// The simulated time in nanoseconds. This query and those below come from the plugin, also outside a block.
    pub const TIME: u64 = 5;
    /// The simulated time in cycles; not 0 in `integer`: when all earlier instructions have retired.
    pub const CYCLES: u64 = 6;
    /// Time of the process on cores, in nanoseconds.
    pub const PROCESS_TIME: u64 = 7;
    /// Time of the thread on cores, in nanoseconds.
    pub const THREAD_TIME: u64 = 8;
    /// Sleeps until the simulated time is `integer` nanoseconds.
    pub const SLEEP: u64 = 9;
}

/// Arguments of [`CALL`] that hold what the engine needs instead of what the program gave.
pub mod call_arguments {
    /// `mmap`, `fallocate`, `ftruncate`, `truncate`: key of the file, instead of hint, descriptor or name; 0 if there is
    /// no regular file.
    pub const KEY: usize = 0;
    /// `mmap`: pages of the file times two, plus 1 if it is in the page cache, instead of the descriptor.
    pub const PAGES: usize = 4;
    /// `brk`: end of the heap before.
    pub const BREAK: usize = 1;
    /// `shmat`: binary logarithm of the size of its huge pages, or 0.
    pub const HUGE: usize = 3;
    /// `shmat`: bytes of the segment.
    pub const SEGMENT: usize = 5;
}

/// Bits of the third word of [`MAPPED`].
pub mod map_bits {
    /// Stores are allowed.
    pub const WRITE: u64 = 1;
    /// The mapping is backed by a file.
    pub const FILE: u64 = 2;
    /// The mapping is shared with other processes.
    pub const SHARED: u64 = 4;
    /// The mapping is the first thread's stack.
    pub const STACK: u64 = 8;
}

/// Position of the tag.
pub const TAG_SHIFT: u32 = 58;
/// Mask of the address in a memory record.
pub const ADDRESS_MASK: u64 = (1 << 48) - 1;
/// Address in the record of a software prefetch whose address is unknown.
pub const UNKNOWN_ADDRESS: u64 = ADDRESS_MASK;
/// Position of the instruction index in a memory record.
pub const INDEX_SHIFT: u32 = 48;
/// Set in the memory record of a store.
pub const STORE: u64 = 1 << 57;
/// Bit of [`TOUCH`]: the kernel populates the memory in one call.
pub const POPULATE: u64 = 1 << 56;
/// Bit of [`TOUCH`] with [`POPULATE`]: private writable mappings are written, others read.
pub const BY_AREA: u64 = 1 << 55;
/// Bit 8 of [`EXIT`]: the process exits with this thread.
pub const LAST: u64 = 1 << 8;

/// A word of `tag` and `payload` (below 2^58).
#[inline(always)]
pub const fn word(tag: u64, payload: u64) -> u64 {
    tag << TAG_SHIFT | payload
}

/// The tag of a word.
#[inline(always)]
pub const fn tag(word: u64) -> u64 {
    word >> TAG_SHIFT
}

/// The word without its tag.
#[inline(always)]
pub const fn payload(word: u64) -> u64 {
    word & ((1 << TAG_SHIFT) - 1)
}

/// The constant part of the memory records of instruction `index` of a block.
#[inline(always)]
pub const fn memory(index: usize, store: bool) -> u64 {
    (index as u64) << INDEX_SHIFT | if store { STORE } else { 0 }
}
