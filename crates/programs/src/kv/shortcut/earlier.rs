//! Effects on the table of requests before the region of interest, without instructions.

use pagewalk_stream::ShortcutQuery;

use super::{Shortcut, Table};
use crate::heap::Heap;
use crate::kv::earlier::{insertion, shortcut_query};
use crate::kv::emit::Quiet;
use crate::kv::index::{Index, Key, Move};
use crate::thread::{NONE, Thread};

impl Shortcut {
    /// True if the table is the machine's.
    pub fn is_in_machine(&self) -> bool {
        matches!(self.table, Table::Machine)
    }

    /// Applies the effects of a GET of `key` to the table.
    pub async fn recall<I: Index>(
        &mut self,
        t: &mut Thread,
        indexes: &mut [I],
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) {
        let e = &mut Quiet;
        let integer = self.integer_of(0, key.number);
        let hashed = (integer, NONE);
        let known = match &mut self.table {
            Table::Off => None,
            Table::Machine => match shortcut_query(t, ShortcutQuery::LoadVa { integer }).await {
                Some(va) => self.places.known(va, NONE),
                None => {
                    self.table = Table::Off;
                    None
                }
            },
            Table::Slb(slb) => slb.find(e, indexes, &self.places, key, hashed, sp),
            Table::Rows(rows) => rows.find(e, indexes, &self.places, key, hashed, sp),
        };
        if known.is_some_and(|k| k.number == key.number)
            || matches!(self.table, Table::Off) && indexes[0].settled()
        {
            return;
        }
        if let Some(found) = indexes[0].look(e, heap, key, sp) {
            let va = found.record + I::PAIR;
            self.enter(t, found.id, key.number, va).await;
        }
    }

    /// Offers the record of the key `number` to the table. Returns true if there is a table.
    pub async fn enter(&mut self, t: &mut Thread, id: u32, number: u64, va: u64) -> bool {
        let integer = self.integer_of(0, number);
        let (hashed, record) = ((integer, NONE), (va, NONE));
        match &mut self.table {
            Table::Off => return false,
            Table::Machine => {
                if shortcut_query(t, insertion(integer, va)).await.is_none() {
                    self.table = Table::Off;
                    return false;
                }
            }
            Table::Slb(slb) => slb.insert(&mut Quiet, 0, hashed, record, 0x1000),
            Table::Rows(rows) => rows.insert(&mut Quiet, 0, hashed, record, 0x1000),
        }
        self.places.0.insert(va, ((id, 0), number));
        true
    }

    /// [`update_moved`](Self::update_moved) without emitted instructions.
    pub async fn update_moved_quietly<I: Index>(&mut self, t: &mut Thread, moved: &Move, sp: u64) {
        let (from, to) = (moved.from + I::PAIR, moved.to + I::PAIR);
        let hashed = (self.integer_of(0, moved.number), NONE);
        match &mut self.table {
            Table::Off => return,
            Table::Slb(slb) => slb.update_moved(&mut Quiet, 0, hashed, (from, to), sp),
            Table::Machine | Table::Rows(_) => {
                self.enter(t, moved.id, moved.number, to).await;
            }
        }
        self.places
            .relocate((moved.id, 0), moved.number, (from, to));
    }
}
