//! The contract of a shortcut table: a program queries the address of a record by an
//! integer derived from the record's key (STLT, section III).

use arrayvec::ArrayVec;
use pagewalk_units::{Asid, PhysAddr, VirtAddr};

use crate::StltPage;

/// Maximum lines that one query reads.
pub const MOST_LINES: usize = 8;

/// The result of a query, and its memory accesses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueryResult {
    /// The value returned to the program. `loadVA`: the record's virtual address, or 0
    /// if no row matches. `insertSTLT`: 1 if the table now holds the record, else 0.
    pub value: u64,
    /// Lines of the table that are read, in parallel.
    pub reads: ArrayVec<PhysAddr, MOST_LINES>,
    /// The line that is written afterwards, if any: an insertion or a counter update.
    pub written: Option<PhysAddr>,
    /// Cycles from the arrival of the last line to the result.
    pub latency: u8,
    /// Cycles from the end of the walk to the result, if there is one.
    pub walk_latency: u8,
    /// The result does not wait for the lines. They are fetched anyway.
    pub at_once: bool,
    /// The additional work of the core's query unit.
    pub unit: Unit,
}

/// The work of a core's query unit (STLT's STU, section III-D) for one query, in
/// addition to the lines that are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// No query unit.
    #[default]
    Nothing,
    /// A `loadVA` query.
    Load {
        /// The matching row. The query waits for an insertion in progress into this row.
        row: Option<PhysAddr>,
        /// The translation that is inserted into the translation buffer (STB).
        translation: Option<(VirtAddr, StltPage)>,
        /// Result of the lookup in the invalid page buffer (IPB): true on a hit. `None`
        /// without a lookup.
        invalid: Option<bool>,
    },
    /// An `insertSTLT` query.
    Insert {
        /// The row that it writes. `None` if the insertion is abandoned.
        row: Option<PhysAddr>,
        /// The address whose page-table entry must be found by a walk first.
        walk: Option<VirtAddr>,
    },
}

/// A table of record addresses that the kernel keeps in memory and program instructions
/// query. It has no clock: the core adds the time of the accesses.
pub trait Shortcut: Send {
    /// `loadVA` by a program in address space `asid`.
    fn load_va(&mut self, asid: Asid, integer: u64) -> QueryResult;
    /// `insertSTLT` by a program in address space `asid`: the record of `integer` lies
    /// at `va`. Address 0 removes the record.
    fn insert_va(&mut self, asid: Asid, integer: u64, va: VirtAddr) -> QueryResult;
}
