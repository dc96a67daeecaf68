//! The words in a ring.
//!
//! Bits 58..63 are the tag. A memory record has the address in bits 0..47, the
//! instruction's index in its block in bits 48..56 (a block of QEMU's has at
//! most 512) and bit 57 set for a store, so that the callback only ORs the
//! address into a constant. Records of more than one word say so with their tag;
//! their further words are raw.

/// A memory access; see the module.
pub const MEM: u64 = 0;
/// A translation block starts; its number in bits 0..31.
pub const BLOCK: u64 = 1;
/// A system call starts; its number in bits 0..31. Always published at once.
pub const ENTER: u64 = 2;
/// The system call is over; nothing else to say of it.
pub const RETURN: u64 = 3;
/// The system call is over; [`CALL_WORDS`] words follow: result, ticket, six arguments.
pub const CALL: u64 = 4;
/// Another thread changes the address space here, between two blocks or before an
/// access in one; the ticket in bits 0..57. A block or an access always follows.
pub const MEET: u64 = 5;
/// A thread is created; its slot in bits 0..31.
pub const SPAWN: u64 = 6;
/// The thread made by the last [`SPAWN`] does not come to life.
pub const SPAWN_FAILED: u64 = 7;
/// The thread ends; exit status in bits 0..7, bit 8 when the process ends with it.
pub const EXIT: u64 = 8;
/// A child process was made; one word follows the header: ticket; its pid in bits 0..31.
pub const FORK: u64 = 9;
/// The process image is about to be replaced by another one that is traced too.
pub const EXEC: u64 = 10;
/// The process image is about to be replaced by one that is not followed; the ticket in
/// the payload, [`UNTRACED_WORDS`] words follow: why ([`unseen`]), and the name of the
/// program's file, up to 64 bytes, filled up with zeros.
pub const EXEC_UNTRACED: u64 = 11;
/// A mapping that exists before the first instruction; three words follow:
/// first address, end, [`map_bits`].
pub const MAPPED: u64 = 12;

/// The program asks the engine, and the thread waits for the answer; two words follow:
/// integer, address; which question ([`query`]) in bits 0..7. Always published at once,
/// behind the block that asks.
pub const QUERY: u64 = 13;

/// The kernel has read the program's memory in the system call at hand, or written it
/// with bit 57 ([`STORE`]); bytes in bits 0..56, one word follows: the first address.
pub const TOUCH: u64 = 14;

/// Words that follow [`CALL`].
pub const CALL_WORDS: usize = 8;
/// Words that follow [`FORK`].
pub const FORK_WORDS: usize = 1;
/// Words that follow [`MAPPED`].
pub const MAPPED_WORDS: usize = 3;
/// Words that follow [`QUERY`].
pub const QUERY_WORDS: usize = 2;
/// Words that follow [`TOUCH`].
pub const TOUCH_WORDS: usize = 1;

/// Words that follow [`EXEC_UNTRACED`].
pub const UNTRACED_WORDS: usize = 9;

/// Why a program is not followed.
pub mod unseen {
    /// Another architecture, or 32 bits.
    pub const FOREIGN: u64 = 0;
    /// It may be executed, but not read.
    pub const UNREADABLE: u64 = 1;
    /// From its root directory the emulator is not reachable.
    pub const OTHER_ROOT: u64 = 2;
    /// The kernel did not execute the emulator on it.
    pub const REFUSED: u64 = 3;
}

/// How a program asks: by a system call `(question, integer, address, reply)` that no
/// Linux has. `reply` points at two 64-bit words; an answer is 1 in the first and the
/// value in the second, without one they stay as they are. The call fails in any case.
pub mod query {
    /// Number of the system call. Linux leaves 387 to 423 unused on x86-64 for good:
    /// what other architectures have there has lower numbers here.
    pub const NUMBER: i64 = 400;
    /// Question: which virtual address belongs to the integer? 0: none is known.
    pub const LOAD_VA: u64 = 0;
    /// The address belongs to the integer from now on; 0: none does.
    pub const INSERT_VA: u64 = 1;
    /// A table of as many rows as the integer says, of the usual size for 0.
    pub const ALLOC: u64 = 2;
    /// An empty one of so many rows instead; 0: of as many as now.
    pub const RESIZE: u64 = 3;
    /// No table from now on. The last one.
    pub const FREE: u64 = 4;
}

/// Bits of the third word of [`MAPPED`].
pub mod map_bits {
    /// Stores are allowed.
    pub const WRITE: u64 = 1;
    /// A file lies behind it.
    pub const FILE: u64 = 2;
    /// Shared with other processes.
    pub const SHARED: u64 = 4;
    /// The first thread's stack.
    pub const STACK: u64 = 8;
}

/// Where the tag starts.
pub const TAG_SHIFT: u32 = 58;
/// The address in a memory record.
pub const ADDRESS_MASK: u64 = (1 << 48) - 1;
/// Where the instruction's index starts in a memory record.
pub const INDEX_SHIFT: u32 = 48;
/// Set in a memory record of a store.
pub const STORE: u64 = 1 << 57;
/// Bit 8 of [`EXIT`]: the process ends with this thread.
pub const LAST: u64 = 1 << 8;

/// A word with `tag` and `payload` (below 2^58).
#[inline(always)]
pub const fn word(tag: u64, payload: u64) -> u64 {
    tag << TAG_SHIFT | payload
}

/// The tag of a word.
#[inline(always)]
pub const fn tag(word: u64) -> u64 {
    word >> TAG_SHIFT
}

/// All but the tag.
#[inline(always)]
pub const fn payload(word: u64) -> u64 {
    word & ((1 << TAG_SHIFT) - 1)
}

/// The constant part of the memory records of instruction `index` of a block.
#[inline(always)]
pub const fn memory(index: usize, store: bool) -> u64 {
    (index as u64) << INDEX_SHIFT | if store { STORE } else { 0 }
}
