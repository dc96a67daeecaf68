//! What lies in the data segment of the key-value programs.

use crate::layout::DATA;

/// Addresses of library functions, as the linker fills them in.
pub const TABLE: u64 = DATA;
/// The map itself: its first and last words, its counters.
pub const MAP: u64 = DATA + 0x1000;
/// Behind it the same of a second one.
pub const SECOND: u64 = 0x400;
/// The table that leads from keys to records, where there is one.
pub const SHORTCUT: u64 = DATA + 0x1800;
/// `malloc`'s own: free lists of the thread, bins, the end of the heap.
pub const ARENA: u64 = DATA + 0x2000;
/// Buffer of values that GETs answer, and behind it where the next one goes.
pub const REPLIES: u64 = DATA + 0x4000;
pub const REPLIES_AT: u64 = REPLIES + BUFFER;
/// Buffer of requests, and behind it where the next one is and where they end.
pub const REQUESTS: u64 = DATA + 0x1_5000;
pub const REQUESTS_AT: u64 = REQUESTS + BUFFER;
/// Bytes of each buffer.
pub const BUFFER: u64 = 64 << 10;
/// Bytes of all.
pub const BYTES: u64 = REQUESTS_AT + 0x1000 - DATA;
