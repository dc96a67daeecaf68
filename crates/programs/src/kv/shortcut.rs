//! Shortcut in front of a structure's own search: a table of record addresses, indexed by a fast hash of the
//! key (STLT, figure 4).
//!
//! ```text
//! getValueFast(key):
//!     integer = fast hash of key
//!     record = find(integer)                    loadVA, or a table in software
//!     if record and its key is the requested one: return record
//!     record = getValueSlow(key)                the structure, as without
//!     insert(integer, record)                   insertSTLT
//! ```
//!
//! Only GETs use it: the paper does not change insertion either. Moved records are reinserted after their
//! move ([`Move`]). The row of an erased record is emptied before its memory is freed. From
//! `validation/programs/kv_shortcut.cc`, gcc 12.2 -O2:
//!
//! ```text
//! 400 mov 8(key) ; mov (key) ; 40a call integer_of ; 40f mov table ; mov ; mov ; mov ; 41c call find
//! 421 test ; 424 je 500 : the structure's find ; 50c add ; mov table ; mov ; mov ; 51a mov record ; 51f call insert
//! 524 mov record ; 529 jmp 42a
//! erase: 680 mov (key) ; mov 8(key) ; mov ; 68a call integer_of ; 68f mov table ; mov ; 69c call erase
//! ```

mod earlier;
mod fast_hash;
mod machine_table;
mod rows;
mod slb;

use pagewalk_stream::flags::TAKEN;
use pagewalk_units::PageSize;
use rustc_hash::FxHashMap;

pub use self::fast_hash::FastHash;
use self::rows::Rows;
use self::slb::Slb;
use super::emit::{Emit, on};
use super::index::{Found, Gone, Index, Key, Known, Move};
use crate::heap::Heap;
use crate::layout::Layout;
use crate::thread::{NONE, Thread, Value};

/// Code of a GET with a shortcut, in the program's main function.
const CODE: u64 = 0x400;
/// Address of the call of a table's `find`.
const CALL: u64 = CODE + 0x1c;
/// Code that updates the rows of moved records.
const MOVED: u64 = 0x600;
/// Code that empties the row of an erased record.
const ERASED: u64 = 0x680;
/// Code that checks which index a record belongs to.
const OWNED: u64 = 0x640;
/// Locals of the main function: the table's address, the record.
const TABLE_LOCAL: u64 = 0x50;
const RECORD_LOCAL: u64 = 0x58;
/// Low bits of an integer, replaced by the identifier of an index (figure 10).
pub const ID_BITS: u32 = 4;
/// Host bytes per record in [`Places`], right after its map has grown.
pub const HOST_BYTES: u64 = 60;

/// Parameters of a search lookaside buffer.
#[derive(Clone, Copy, Debug)]
pub struct SlbChoice {
    /// Bytes of slots and logs together: a fifth and four fifths of it.
    pub bytes: u64,
    /// Sampling period: a full slot is offered one of this many records.
    pub sampling: u64,
    /// A record takes a free entry at its first miss. Otherwise its log must have its tag.
    pub first_free: bool,
    /// A query prefetches its slot.
    pub prefetches: bool,
    /// Size of the pages that hold it.
    pub pages: PageSize,
}

/// Kind of table, with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum ShortcutKind {
    /// The machine's table: `loadVA` and `insertSTLT`.
    Machine,
    /// A search lookaside buffer.
    Slb(SlbChoice),
    /// STLT's table without hardware.
    Rows {
        /// Bytes of all rows, a power of two.
        bytes: u64,
    },
}

impl ShortcutKind {
    /// Host memory of the table, in bytes.
    pub fn host_bytes(self) -> u64 {
        match self {
            ShortcutKind::Machine => 0,
            ShortcutKind::Slb(choice) => choice.bytes,
            ShortcutKind::Rows { bytes } => bytes / 2,
        }
    }
}

/// The user's choice of a table.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The table.
    pub kind: ShortcutKind,
    /// Hash from keys to integers.
    pub hash: FastHash,
    /// Identifier of the first index, if several share the table. The next index has the next identifier.
    pub id: Option<u64>,
    /// Number of indexes with the same keys.
    pub indexes: u64,
}

enum Table {
    /// The machine has no shortcut.
    Off,
    Machine,
    Slb(Slb),
    Rows(Rows),
}

/// Records that the table may name, by address: number in the order of insertion, index, and number of the
/// key.
#[derive(Default)]
pub struct Places(FxHashMap<u64, ((u32, u8), u64)>);

impl Places {
    /// The record at `va`. `at` produces the address.
    fn known(&self, va: u64, at: Value) -> Option<Known> {
        let ((id, owner), number) = *self.0.get(&va)?;
        let owner = usize::from(owner);
        Some(Known {
            id,
            owner,
            number,
            va,
            at,
        })
    }

    fn forget(&mut self, id: (u32, u8), va: u64) {
        // Another record may have been placed there since.
        if self.0.get(&va).is_some_and(|r| r.0 == id) {
            self.0.remove(&va);
        }
    }

    fn relocate(&mut self, id: (u32, u8), number: u64, (from, to): (u64, u64)) {
        self.forget(id, from);
        self.0.insert(to, (id, number));
    }
}

/// A shortcut with its table and hash.
pub struct Shortcut {
    table: Table,
    hash: FastHash,
    id: Option<u64>,
    /// True if several indexes have no identifiers: the owner of a record with the right key has to be
    /// checked.
    checks_owner: bool,
    places: Places,
}

impl Shortcut {
    /// An empty table in memory of `layout`. With `populate`, every page of it is touched.
    pub fn new(choice: Choice, layout: &mut Layout, populate: bool) -> Self {
        let table = match choice.kind {
            ShortcutKind::Machine => Table::Machine,
            ShortcutKind::Slb(choice) => Table::Slb(Slb::new(choice, layout, populate)),
            ShortcutKind::Rows { bytes } => Table::Rows(Rows::new(bytes, layout, populate)),
        };
        Shortcut {
            table,
            hash: choice.hash,
            id: choice.id,
            checks_owner: choice.indexes > 1 && choice.id.is_none(),
            places: Places::default(),
        }
    }

    /// The integer of the key with this number in index `n`.
    fn integer_of(&self, n: usize, number: u64) -> u64 {
        let hash = self.hash.of(number);
        match self.id {
            Some(id) => hash >> ID_BITS << ID_BITS | (id + n as u64) & ((1 << ID_BITS) - 1),
            None => hash,
        }
    }

    /// Calls the hash function from `pc`. Returns the value that produces the integer.
    fn integer<E: Emit>(&self, e: &mut E, pc: u64, text: (u64, Value), sp: u64) -> Value {
        let hashed = self.hash.emit(e, (pc, 1), text, sp);
        match self.id {
            // and, or
            Some(_) => e.compute(pc + 0x5, 2, 2, [hashed, NONE]),
            None => hashed,
        }
    }

    /// The record of `key` in index `n`, from the table or by the structure's own search.
    pub async fn find<I: Index>(
        &mut self,
        t: &mut Thread,
        (indexes, n): (&mut [I], usize),
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Found> {
        if matches!(self.table, Table::Off) {
            return on!(n, t, e => indexes[n].look(e, heap, key, sp));
        }
        let text = indexes[n].operand(t, CODE, key);
        let hashed = self.integer(t, CODE + 0xa, (key.text, text), sp);
        let integer = (self.integer_of(n, key.number), hashed);
        t.load(CODE + 0xf, 1, sp + TABLE_LOCAL, 8, [NONE; 2]);
        let known = match &mut self.table {
            Table::Off => None,
            Table::Machine => {
                match machine_table::find(t, indexes, &self.places, key, integer, sp).await {
                    Some(known) => known,
                    None => {
                        self.table = Table::Off;
                        None
                    }
                }
            }
            Table::Slb(slb) => slb.find(t, indexes, &self.places, key, integer, sp),
            Table::Rows(rows) => rows.find(t, indexes, &self.places, key, integer, sp),
        };
        let known = known.filter(|k| !self.checks_owner || owns(t, indexes, n, k));
        debug_assert!(known.is_none_or(|k| k.owner == n));
        let answer = known.map_or(NONE, |k| k.at);
        t.branch(CODE + 0x24, 0x500, 2, known.is_none(), [answer, NONE]);
        if let Some(known) = known {
            return Some(Found {
                id: known.id,
                record: known.va - I::PAIR,
                at: known.at,
                fresh: false,
            });
        }
        let found = on!(n, t, e => indexes[n].look(e, heap, key, sp))?;
        let va = found.record + I::PAIR;
        if matches!(self.table, Table::Off) {
            return Some(found);
        }
        self.places.0.insert(va, ((found.id, n as u8), key.number));
        t.load(0x510, 2, sp + TABLE_LOCAL, 8, [NONE; 2]);
        t.store(0x51a, 3, sp + RECORD_LOCAL, 8, NONE, found.at);
        self.insert(t, 0x51f, integer, (va, found.at), sp).await;
        let at = t.load(0x524, 1, sp + RECORD_LOCAL, 8, [NONE; 2]);
        t.jump(0x529, CODE + 0x2a, 1, TAKEN, [NONE; 2]);
        Some(Found { at, ..found })
    }

    async fn insert(
        &mut self,
        t: &mut Thread,
        site: u64,
        integer: (u64, Value),
        record: (u64, Value),
        sp: u64,
    ) {
        match &mut self.table {
            Table::Off => {}
            Table::Machine => {
                if !machine_table::insert(t, site, integer, record, sp).await {
                    self.table = Table::Off;
                }
            }
            Table::Slb(slb) => slb.insert(t, site, integer, record, sp),
            Table::Rows(rows) => rows.insert(t, site, integer, record, sp),
        }
    }

    /// Empties every row of the key's integer, before the key is erased.
    pub async fn empty<I: Index>(
        &mut self,
        t: &mut Thread,
        (index, n): (&I, usize),
        key: &Key,
        sp: u64,
    ) {
        if matches!(self.table, Table::Off) {
            return;
        }
        let text = index.operand(t, ERASED, key);
        let hashed = self.integer(t, ERASED + 0xa, (key.text, text), sp);
        let integer = (self.integer_of(n, key.number), hashed);
        t.load(ERASED + 0xf, 1, sp + TABLE_LOCAL, 8, [NONE; 2]);
        let site = ERASED + 0x1c;
        match &mut self.table {
            Table::Off => {}
            Table::Machine => {
                if !machine_table::insert(t, site, integer, (0, NONE), sp).await {
                    self.table = Table::Off;
                }
            }
            Table::Slb(slb) => slb.erase(t, site, integer, sp),
            Table::Rows(rows) => rows.erase(t, site, integer, sp),
        }
    }

    /// Removes an erased record from [`Places`].
    pub fn forget<I: Index>(&mut self, n: usize, gone: &Gone) {
        let id = (gone.id, n as u8);
        self.places.forget(id, gone.record + I::PAIR);
    }

    /// Updates the row of a moved record.
    pub async fn update_moved<I: Index>(
        &mut self,
        t: &mut Thread,
        (index, n): (&I, usize),
        moved: &Move,
        sp: u64,
    ) {
        if matches!(self.table, Table::Off) {
            return;
        }
        let (from, to) = (moved.from + I::PAIR, moved.to + I::PAIR);
        let id = (moved.id, n as u8);
        self.places.relocate(id, moved.number, (from, to));
        t.load(MOVED, 1, to + 8, 8, [NONE; 2]);
        let text = t.load(MOVED + 0x5, 1, to, 8, [NONE; 2]);
        let hashed = self.integer(t, MOVED + 0xa, (index.key_text(moved.id), text), sp);
        let integer = (self.integer_of(n, moved.number), hashed);
        t.load(MOVED + 0xf, 1, sp + TABLE_LOCAL, 8, [NONE; 2]);
        let site = MOVED + 0x1c;
        match &mut self.table {
            Table::Slb(slb) => slb.update_moved(t, site, integer, (from, to), sp),
            _ => self.insert(t, site, integer, (to, NONE), sp).await,
        }
    }
}

/// True if a record with the right key belongs to index `n`, according to the first byte of its value.
fn owns<I: Index>(t: &mut Thread, indexes: &mut [I], n: usize, known: &Known) -> bool {
    let found = Found {
        id: known.id,
        record: known.va - I::PAIR,
        at: known.at,
        fresh: false,
    };
    let object = indexes[known.owner].value_object(&found);
    let text = indexes[known.owner].value_text(known.id).va();
    let ready = t.load(OWNED, 1, object, 8, [known.at, NONE]);
    let owner = t.load(OWNED + 0x4, 1, text, 1, [ready, NONE]);
    let is_its = known.owner == n;
    t.branch(OWNED + 0x8, 0x500, 2, !is_its, [owner, NONE]);
    is_its
}

/// Marsaglia's xorshift64, sufficient for sampling.
struct Random(u64);

impl Random {
    const START: Random = Random(88_172_645_463_325_252);
    /// Latency of a draw in cycles: six shifts and exclusive ors.
    const LATENCY: u64 = 6;

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
