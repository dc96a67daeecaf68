//! Data segment of the key-value programs.

use crate::layout::DATA;

/// Addresses of library functions, as the linker fills them in.
pub const TABLE: u64 = DATA;
/// The map itself: its first and last words, its counters. A second map lies `SECOND` bytes behind it.
pub const MAP: u64 = DATA + 0x1000;
/// Bytes from the first map to the second.
pub const SECOND: u64 = 0x400;
/// The shortcut table from keys to records, if any.
pub const SHORTCUT: u64 = DATA + 0x1800;
/// State of `malloc`: thread cache, bins, the end of the heap.
pub const ARENA: u64 = DATA + 0x2000;
/// Buffer for the values of GETs. Behind it lies the position of the next value.
pub const REPLIES: u64 = DATA + 0x4000;
/// Address of the position of the next value.
pub const REPLIES_AT: u64 = REPLIES + BUFFER;
/// Buffer of requests. Behind it lie the position of the next request and their end.
pub const REQUESTS: u64 = DATA + 0x1_5000;
/// Address of the position of the next request.
pub const REQUESTS_AT: u64 = REQUESTS + BUFFER;
/// Bytes of each buffer.
pub const BUFFER: u64 = 64 << 10;
/// Bytes of the data segment.
pub const BYTES: u64 = REQUESTS_AT + 0x1000 - DATA;
/// Fixed data of Redis that a whole request uses, behind the rest: client, server, command table, libraries.
pub const SERVER: u64 = DATA + BYTES;
/// Pages of that data.
pub const DATA_PAGES: u64 = 64;
