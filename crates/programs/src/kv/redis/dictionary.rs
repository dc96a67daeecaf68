//! Redis's dictionary as it lies in memory: its fields, its tables, its records.

use crate::kv::globals::{ARENA, MAP};
use crate::kv::index::Place;
use crate::kv::records::{Records, Sizes};

/// No record.
pub const NIL: u32 = u32::MAX;
/// Fields of the dictionary: type, private data, two tables (array, size, mask,
/// used), the bucket that moves next.
pub const TYPE: u64 = MAP;
pub const TABLES: u64 = MAP + 0x10;
pub const TABLE_BYTES: u64 = 0x20;
pub const REHASH: u64 = MAP + 0x50;
/// The type's functions, and the hash's key.
pub const FUNCTIONS: u64 = MAP + 0x100;
pub const SEED: u64 = MAP + 0x200;
/// Jump tables of `sdslen`.
pub const SWITCH: u64 = ARENA + 0x1e00;

/// A key with its entry, its value and what the host knows of them.
pub struct Record {
    /// Of the key.
    pub hash: u64,
    /// The key's number.
    pub number: u64,
    /// The record behind it in its chain, or [`NIL`].
    pub next: u32,
    /// Where the entry lies: key, value, next.
    pub entry: Place,
    /// The key's sds, header first.
    pub key: Place,
    /// The value's object.
    pub object: Place,
    /// The value's sds, header first.
    pub value: Place,
}

/// A table: where it lies, and the first record of each bucket.
#[derive(Default)]
pub struct Table {
    /// The first record of each, or [`NIL`].
    pub buckets: Vec<u32>,
    /// Address of the array of buckets.
    pub array: u64,
    /// Entries in it.
    pub used: usize,
}

impl Table {
    /// The bucket of a key with this hash.
    pub fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }
}

/// The dictionary, and what the host keeps of it.
pub struct Dictionary {
    /// In the order of insertion.
    pub records: Records<Record>,
    /// The second is used while it grows.
    pub tables: [Table; 2],
    /// The next bucket to move, while it grows.
    pub rehash: Option<usize>,
    /// How long the values are.
    pub sizes: Sizes,
}

impl Dictionary {
    /// An empty dictionary for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Dictionary {
            records: Records::default(),
            tables: Default::default(),
            rehash: None,
            sizes: Sizes::new(value_bytes),
        }
    }
}
