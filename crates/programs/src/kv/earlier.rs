//! Requests before the region of interest. Only their effects are computed: values that SETs write, records
//! in the table in front of the structure, progress of Redis's incremental rehash. They emit no instructions.
//!
//! With no table, or one of the program's own, the final state equals that of serving every request. The
//! machine's table is queried for the last requests only, as many as there are keys, one by one. Of the
//! requests before those, each requested record is inserted once. Least requested records come first, since a
//! full set evicts those. Counters of rows begin at this insertion.

use pagewalk_stream::ShortcutQuery;
use pagewalk_units::VirtAddr;

use super::emit::Quiet;
use super::index::{Index, Key};
use super::serve::{Client, CommandKind, Server};
use crate::thread::{NONE, Thread};

/// A requested record.
struct Wanted {
    number: u64,
    requests: u32,
    record: Option<(u32, u64)>,
}

impl<I: Index> Server<I> {
    /// Serves the client's earlier requests.
    pub async fn earlier(&mut self, t: &mut Thread, client: &mut Client) {
        let mut left = client.work.earlier;
        if self.shortcut.as_ref().is_some_and(|s| s.is_in_machine()) {
            let last = left.min(client.keys);
            self.enter(t, client, left - last).await;
            left = last;
        }
        for _ in 0..left {
            let wish = client.next();
            let key = self.take(client.work.number(wish.n), wish.kind);
            if let CommandKind::Set(bytes) = wish.kind {
                self.put(t, key.number, bytes).await;
                continue;
            }
            let (indexes, heap, sp) = (&mut self.indexes, &mut self.heap, self.sp);
            match &mut self.shortcut {
                Some(shortcut) => shortcut.recall(t, indexes, heap, &key, sp).await,
                None if !indexes[0].settled() => _ = indexes[0].look(&mut Quiet, heap, &key, sp),
                None => {}
            }
        }
    }

    /// Reads a request and answers it if it is a GET. Returns its key.
    fn take(&mut self, number: u64, kind: CommandKind) -> Key {
        let from = self.next_request(&mut Quiet, kind);
        if kind == CommandKind::Get
            && let Some(whole) = &mut self.whole
        {
            whole.skip(Some(self.value));
        } else if kind == CommandKind::Get && self.replies {
            self.answer(&mut Quiet, (0, NONE), self.value);
        }
        self.key_of(number, from)
    }

    /// Serves a SET and updates the rows of moved records.
    async fn put(&mut self, t: &mut Thread, number: u64, bytes: u64) {
        self.load((0, number), bytes);
        // No row is inserted for an unmapped page.
        self.heap.emit_pending(t).await;
        if let Some(shortcut) = &mut self.shortcut {
            for moved in self.indexes[0].moves() {
                shortcut.update_moved_quietly::<I>(t, &moved, self.sp).await;
            }
        }
    }

    /// Serves the next `requests`, then inserts their records into the machine's table.
    async fn enter(&mut self, t: &mut Thread, client: &mut Client, requests: u64) {
        let mut counts = vec![0_u32; client.keys as usize];
        for _ in 0..requests {
            let wish = client.next();
            let key = self.take(client.work.number(wish.n), wish.kind);
            if let CommandKind::Set(bytes) = wish.kind {
                self.load((0, key.number), bytes);
                if self.heap.has_pending() {
                    self.heap.emit_pending(t).await;
                }
                counts.resize(client.keys as usize, 0);
                // Each moved record is inserted, even if no request names it.
                for moved in self.indexes[0].moves() {
                    let count = &mut counts[moved.id as usize];
                    *count = (*count).max(1);
                }
            } else {
                let count = &mut counts[wish.n as usize];
                // While it grows, Redis moves a bucket at each lookup. A lookup happens for keys that the
                // table lacks.
                if *count == 0 && !self.indexes[0].settled() {
                    self.indexes[0].look(&mut Quiet, &mut self.heap, &key, self.sp);
                }
                *count = count.saturating_add(1);
            }
        }
        self.heap.emit_pending(t).await;
        let mut wanted: Vec<_> = counts
            .into_iter()
            .zip(0..)
            .filter(|(requests, _)| *requests > 0)
            .map(|(requests, n)| Wanted {
                number: client.work.number(n),
                requests,
                record: None,
            })
            .collect();
        // Neighbouring keys are close in a tree: the host's cache holds their common path.
        wanted.sort_unstable_by_key(|w| w.number);
        for w in &mut wanted {
            let key = self.key_of(w.number, 0);
            let found = self.indexes[0].look(&mut Quiet, &mut self.heap, &key, self.sp);
            w.record = found.map(|f| (f.id, f.record + I::PAIR));
        }
        wanted.sort_by_key(|w| w.requests);
        let Some(shortcut) = &mut self.shortcut else {
            return;
        };
        for w in &wanted {
            let Some((id, va)) = w.record else { continue };
            if !shortcut.enter(t, id, w.number, va).await {
                return;
            }
        }
    }
}

/// Queries the machine's table before the region of interest.
pub async fn shortcut_query(t: &mut Thread, query: ShortcutQuery) -> Option<u64> {
    t.shortcut_query(0x3000, 1, query, [NONE; 2]).1.await
}

/// Query that inserts the address `va` of the record for `integer`.
pub fn insertion(integer: u64, va: u64) -> ShortcutQuery {
    ShortcutQuery::InsertVa {
        integer,
        va: VirtAddr(va),
    }
}
