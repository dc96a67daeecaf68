//! Requests before the region of interest, of which only what they leave is made: what
//! SETs wrote, which records the table in front of the structure holds, how far Redis has
//! moved its buckets. No instruction is emitted for them.
//!
//! Where the table is the program's own or there is none, everything is afterwards as if
//! each had been served. The machine's table is asked for the last of them only, as many as
//! there are keys, one by one. Of those before, what they asked for is entered once, what was
//! asked for least first, since that is what a full set gives up; counters of rows begin with it.

use pagewalk_stream::ShortcutQuery;
use pagewalk_units::VirtAddr;

use super::emit::Quiet;
use super::index::{Index, Key};
use super::serve::{Client, CommandKind, Server};
use crate::thread::{NONE, Thread};

/// A record that was asked for.
struct Wanted {
    number: u64,
    asked: u32,
    record: Option<(u32, u64)>,
}

impl<I: Index> Server<I> {
    /// Serves the client's earlier requests.
    pub async fn earlier(&mut self, t: &mut Thread, client: &mut Client) {
        let mut left = client.work.earlier;
        if self.shortcut.as_ref().is_some_and(|s| s.asks()) {
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

    /// A request is read and, if it is a GET, answered: its key.
    fn take(&mut self, number: u64, kind: CommandKind) -> Key {
        let from = self.next_request(&mut Quiet, kind);
        if kind == CommandKind::Get && self.replies {
            self.answer(&mut Quiet, (0, NONE), self.value);
        }
        self.key_of(number, from)
    }

    /// A SET, whose moved records are followed.
    async fn put(&mut self, t: &mut Thread, number: u64, bytes: u64) {
        self.load((0, number), bytes);
        // A row is not entered for a page that is not there.
        self.heap.emit_pending(t).await;
        if let Some(shortcut) = &mut self.shortcut {
            for moved in self.indexes[0].moves() {
                shortcut.follow_quietly::<I>(t, &moved, self.sp).await;
            }
        }
    }

    /// Enters what the next `requests` ask for, when they have all been served.
    async fn enter(&mut self, t: &mut Thread, client: &mut Client, requests: u64) {
        let mut asked = vec![0_u32; client.keys as usize];
        for _ in 0..requests {
            let wish = client.next();
            let key = self.take(client.work.number(wish.n), wish.kind);
            if let CommandKind::Set(bytes) = wish.kind {
                self.load((0, key.number), bytes);
                if self.heap.has_pending() {
                    self.heap.emit_pending(t).await;
                }
                asked.resize(client.keys as usize, 0);
                // Each record that moves is entered, asked for or not.
                for moved in self.indexes[0].moves() {
                    let asked = &mut asked[moved.id as usize];
                    *asked = (*asked).max(1);
                }
            } else {
                let asked = &mut asked[wish.n as usize];
                // Redis moves a bucket at each lookup while it grows, and looks for what the
                // table does not have.
                if *asked == 0 && !self.indexes[0].settled() {
                    self.indexes[0].look(&mut Quiet, &mut self.heap, &key, self.sp);
                }
                *asked = asked.saturating_add(1);
            }
        }
        self.heap.emit_pending(t).await;
        let mut wanted: Vec<_> = asked
            .into_iter()
            .zip(0..)
            .filter(|(asked, _)| *asked > 0)
            .map(|(asked, n)| Wanted {
                number: client.work.number(n),
                asked,
                record: None,
            })
            .collect();
        // Neighbours in a tree, which the host finds together.
        wanted.sort_unstable_by_key(|w| w.number);
        for w in &mut wanted {
            let key = self.key_of(w.number, 0);
            let found = self.indexes[0].look(&mut Quiet, &mut self.heap, &key, self.sp);
            w.record = found.map(|f| (f.id, f.record + I::PAIR));
        }
        wanted.sort_by_key(|w| w.asked);
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

/// The machine's table, asked before the program is.
pub async fn shortcut_query(t: &mut Thread, ask: ShortcutQuery) -> Option<u64> {
    t.shortcut_query(0x3000, 1, ask, [NONE; 2]).1.await
}

/// The record of `integer` lies there.
pub fn insertion(integer: u64, va: u64) -> ShortcutQuery {
    ShortcutQuery::InsertVa {
        integer,
        va: VirtAddr(va),
    }
}
