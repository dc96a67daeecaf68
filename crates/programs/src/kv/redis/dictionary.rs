//! Memory layout of Redis's dictionary: its fields, its tables, its records.

use crate::kv::globals::{ARENA, MAP};
use crate::kv::index::Place;
use crate::kv::records::{Records, Sizes};

/// No record.
pub const NIL: u32 = u32::MAX;
/// Fields of the dictionary: type, private data, two tables (array, size, mask, used), and the next bucket to
/// move.
pub const TYPE: u64 = MAP;
pub const TABLES: u64 = MAP + 0x10;
/// Bytes of one of the two tables.
pub const TABLE_BYTES: u64 = 0x20;
pub const REHASH: u64 = MAP + 0x50;
/// The type's functions, and the hash's key.
pub const FUNCTIONS: u64 = MAP + 0x100;
/// The key of the hash.
pub const SEED: u64 = MAP + 0x200;
/// Jump tables of `sdslen`.
pub const SWITCH: u64 = ARENA + 0x1e00;

/// A key with its entry and its value, and the host's data about them.
pub struct Record {
    /// Hash of the key.
    pub hash: u64,
    /// Number of the key.
    pub number: u64,
    /// The next record in its chain, or [`NIL`].
    pub next: u32,
    /// Address of the entry: key, value, next.
    pub entry: Place,
    /// Address of the key's sds, header first.
    pub key: Place,
    /// Address of the value's object.
    pub object: Place,
    /// Address of the value's sds, header first.
    pub value: Place,
}

/// A table: its address, and the first record of each bucket.
#[derive(Default)]
pub struct Table {
    /// First record of each bucket, or [`NIL`].
    pub buckets: Vec<u32>,
    /// Address of the array of buckets.
    pub array: u64,
    /// Number of entries.
    pub used: usize,
}

impl Table {
    /// Bucket of a key with this hash.
    pub fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }
}

/// The dictionary, and the host's data about it.
pub struct Dictionary {
    /// Records in the order of insertion.
    pub records: Records<Record>,
    /// The second table is in use only during growth.
    pub tables: [Table; 2],
    /// The next bucket to move, during growth.
    pub rehash: Option<usize>,
    /// Lengths of the values.
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
