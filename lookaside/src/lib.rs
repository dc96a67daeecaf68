//! A cache of record addresses in front of any key-value index.
//!
//! An index (a tree, a hash table, the dictionary of a database) finds a record in several dependent
//! memory accesses. A [`Table`] remembers where records lie. A hit reads one cache line of the table and
//! the record itself. The design is STLT's, without its instructions: rows hold virtual addresses only.
//!
//! - A row has 8 bytes: a tag of 16 bits and an address of 48 bits. A set of eight rows is one cache line.
//! - The caller compares the key of the record. A row that leads to another record is a miss, not an error.
//! - A hit stores nothing in the table. A miss may overwrite one row of its set.
//! - [`Table::lookup`] measures lookups with and without the table, and bypasses a table that does not pay.
//!
//! # Which records may be cached
//!
//! Two conditions make a returned address safe to read. Both are the caller's.
//!
//! 1. **The address is stable.** The record stays where it is until it is invalidated: a boxed value, a node
//!    of a list or of a tree, an entry of an arena. A slot of a growing array is not stable.
//! 2. **A record is invalidated before it is moved or freed**, and no thread may still read it or insert
//!    it. Three ways to ensure this:
//!    - **One owner**: lookups borrow the structure, changes borrow it mutably. [`Map`] does this.
//!    - **A lock**: lookups with their insertions hold it shared, removals hold it exclusively.
//!    - **Epochs**: unlink the record from the index, mark it dead, and [`Table::invalidate`] it. After
//!      one grace period, invalidate it again; after a second one, free it. A lookup that began before
//!      the unlinking may insert a row after the first invalidation, and the second removes that row.
//!      The caller's comparison must refuse dead records.
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::ptr::NonNull;
//!
//! struct Record { key: u64, value: &'static str }
//!
//! let mut index = BTreeMap::new();
//! for (key, value) in [(1, "one"), (2, "two")] {
//!     index.insert(key, Box::new(Record { key, value }));
//! }
//! let table = lookaside::Table::new(1024)?;
//! let hash = |key: u64| lookaside::mix(key);
//! let get = |key: u64| {
//!     table.lookup(
//!         || hash(key),
//!         // SAFETY: records are boxed, and none is removed in this example.
//!         |at| unsafe { at.cast::<Record>().as_ref() }.key == key,
//!         || index.get(&key).map(|record| NonNull::from(&**record).cast()),
//!     )
//!     // SAFETY: as above.
//!     .map(|at| unsafe { at.cast::<Record>().as_ref() }.value)
//! };
//! assert_eq!(get(1), Some("one"));
//! assert_eq!(get(1), Some("one"));
//! assert_eq!(get(3), None);
//! # Ok::<(), lookaside::Error>(())
//! ```

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod compare;
#[cfg(not(loom))]
mod ffi;
#[cfg(not(loom))]
mod map;
mod rows;
mod switch;
mod sync;
mod table;

#[cfg(not(loom))]
pub use map::{Entry, Index, Key, Map};
pub use rows::Error;
pub use switch::Statistics;
pub use table::{BATCH, Found, Table};

/// Mixes an integer key into a hash whose bits all depend on all bits of `key`.
///
/// Multiplications and shifts of SplitMix64's output function (Steele, Lea and Flood, 2014).
#[inline]
pub const fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}
