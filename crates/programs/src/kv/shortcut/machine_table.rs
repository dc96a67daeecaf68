//! The machine's table: one instruction queries it, another inserts.
//!
//! ```text
//! find 3000 push ; mov ; loadVA ; test ; 0a je 18 ; 0c mov 8(key) ; 10 cmp 8(record) ; 14 je 20
//!   20 mov (key) ; mov (record) ; mov ; 29 call memcmp ; test ; mov ; cmovne ; mov ; 3c pop ; ret
//!   18 mov ; 1b pop ; ret
//! insert 3080 insertSTLT ; ret
//! ```

use pagewalk_stream::ShortcutQuery;
use pagewalk_units::VirtAddr;

use super::{CALL, Places};
use crate::kv::emit::Emit;
use crate::kv::index::{Index, Key, Known};
use crate::thread::{NONE, Thread, Value};

const FIND: u64 = 0x3000;
const INSERT: u64 = 0x3080;

/// The record of `key`, if the machine's table returns it. The outer `None` means that the machine has no
/// table.
pub async fn find<I: Index>(
    t: &mut Thread,
    indexes: &[I],
    places: &Places,
    key: &Key,
    (integer, hashed): (u64, Value),
    sp: u64,
) -> Option<Option<Known>> {
    Emit::call(t, CALL, FIND, 4, sp);
    t.store(FIND, 1, sp - 16, 8, NONE, NONE);
    let (at, result) = t.shortcut_query(
        FIND + 0x4,
        2,
        ShortcutQuery::LoadVa { integer },
        [hashed, NONE],
    );
    let reply = result.await;
    let va = reply.unwrap_or(0);
    t.branch(FIND + 0xa, FIND + 0x18, 2, va == 0, [at, NONE]);
    let mut found = None;
    if va == 0 {
        t.load(FIND + 0x1b, 2, sp - 16, 8, [NONE; 2]);
    } else {
        // Only records in `places` are compared. The table returns no address that was never inserted, and
        // every moved record is reinserted.
        if let Some(known) = places.known(va, at) {
            indexes[known.owner].is_of(t, FIND + 0xc, key, &known, sp - 16);
            found = (known.number == key.number).then_some(known);
        }
        t.load(FIND + 0x3c, 6, sp - 16, 8, [NONE; 2]);
    }
    Emit::ret(t, FIND + 0x3d, CALL, 1, sp);
    reply.map(|_| found)
}

/// Inserts the address `va` of the record for `integer`. Returns true if the machine has a table.
pub async fn insert(
    t: &mut Thread,
    site: u64,
    (integer, hashed): (u64, Value),
    (va, at): (u64, Value),
    sp: u64,
) -> bool {
    Emit::call(t, site, INSERT, 1, sp);
    let query = ShortcutQuery::InsertVa {
        integer,
        va: VirtAddr(va),
    };
    let (_, result) = t.shortcut_query(INSERT, 1, query, [hashed, at]);
    let reply = result.await;
    Emit::ret(t, INSERT + 0x4, site, 1, sp);
    reply.is_some()
}
