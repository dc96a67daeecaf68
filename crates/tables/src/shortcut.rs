//! What answers a program that asks for the address of a record by an integer
//! that it made of the key (STLT, section III).

use arrayvec::ArrayVec;
use pagewalk_units::{Asid, PhysAddr, VirtAddr};

use crate::StltPage;

/// Most lines that one question reads: a set of eight rows of 64 bytes.
pub const MOST_LINES: usize = 8;

/// A reply, and what it took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueryResult {
    /// What the program gets: of `loadVA` the record's virtual address, or 0 for none;
    /// of `insertSTLT` whether the table holds it now, 1 or 0.
    pub value: u64,
    /// Lines of the table that are read, side by side.
    pub reads: ArrayVec<PhysAddr, MOST_LINES>,
    /// The line that is written afterwards, if one is: an insertion, or a counter.
    pub written: Option<PhysAddr>,
    /// Cycles from the last line's arrival to the reply.
    pub latency: u8,
    /// The reply does not wait for the lines, which are fetched all the same.
    pub at_once: bool,
    /// What the core's unit for such questions does beside.
    pub unit: Unit,
}

/// What a core's unit for questions (STLT's STU, section III-D) has of one, beside the
/// lines that are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// There is no such unit.
    #[default]
    Nothing,
    /// It was `loadVA`.
    Load {
        /// The row that matches: an insertion under way into it is waited for.
        row: Option<PhysAddr>,
        /// What goes into the buffer of translations (STB).
        translation: Option<(VirtAddr, StltPage)>,
        /// Whether the buffer of invalid pages (IPB) was asked, and had the page.
        invalid: Option<bool>,
    },
    /// It was `insertSTLT`.
    Insert {
        /// The row that it writes, unless it gives up.
        row: Option<PhysAddr>,
        /// The address whose page-table entry it has to find first.
        walk: Option<VirtAddr>,
    },
}

/// A table of addresses in memory that the kernel keeps and that instructions of
/// the program look into. It knows no time: the core prices what it reads.
pub trait Shortcut: Send {
    /// `loadVA` of a program in the address space `asid`.
    fn load_va(&mut self, asid: Asid, integer: u64) -> QueryResult;
    /// `insertSTLT` of the same: the record of `integer` lies at `va`, or with address 0
    /// there is none any more.
    fn insert_va(&mut self, asid: Asid, integer: u64, va: VirtAddr) -> QueryResult;
}
