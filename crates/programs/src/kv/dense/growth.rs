//! Growth: every pair is copied to a table of twice the size, then the old pairs are destroyed.

use super::{Dense, EMPTY, Growth, LIMIT, SLOT_BYTES, SLOTS, STEP, TABLE, USED};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::Move;
use crate::kv::libc::{self, KEY_BYTES};
use crate::thread::NONE;

impl Dense {
    /// One step of a growth. Returns true when it is complete.
    pub(super) fn grow<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        growth: &mut Growth,
        sp: u64,
    ) -> bool {
        const CODE: u64 = 0x2200;
        let frame = sp - 56 - 0xa8;
        let step = if E::LOUD { STEP } else { usize::MAX };
        if growth.filled < growth.slots.len() {
            let end = growth.slots.len().min(growth.filled.saturating_add(step));
            if E::LOUD {
                for slot in growth.filled..end {
                    // `uninitialized_fill`: two empty strings.
                    let va = growth.table + SLOT_BYTES * slot as u64;
                    for (i, offset) in [0, 8, 16, 32, 40, 48].into_iter().enumerate() {
                        let size = if offset % 32 == 16 { 1 } else { 8 };
                        let pc = CODE + 0x620 + 5 * i as u64;
                        e.store(pc, 4, va + offset, size, NONE, NONE);
                    }
                    e.branch(CODE + 0x660, CODE + 0x620, 2, true, [NONE; 2]);
                }
            }
            growth.filled = end;
            return false;
        }
        if growth.copied < self.slots.len() {
            let end = self.slots.len().min(growth.copied.saturating_add(step));
            for slot in growth.copied..end {
                let va = self.table + SLOT_BYTES * slot as u64;
                let length = e.load(CODE + 0x100, 2, va + 8, 8, [NONE; 2]);
                let id = self.slots[slot];
                e.branch(CODE + 0x104, CODE + 0x1c0, 2, id == EMPTY, [length, NONE]);
                if id == EMPTY {
                    continue;
                }
                let record = &mut self.records[id as usize];
                if record.gone {
                    // Deleted pairs are not copied. They are freed with the old table.
                    let room = self.sizes.of(id).room;
                    e.branch(CODE + 0x10c, CODE + 0x1c0, 4, true, [length, NONE]);
                    growth.old.push((record.key, record.value, room));
                    self.deleted -= 1;
                    self.records.remove(id);
                    continue;
                }
                let text = e.load(CODE + 0x110, 2, va, 8, [NONE; 2]);
                let hashed = libc::hash(e, (CODE + 0x120, 3), (record.key.va(), text), frame);
                let last = growth.slots.len() - 1;
                let mut to = record.hash as usize & last;
                let mut probe = 0;
                loop {
                    let va = growth.table + SLOT_BYTES * to as u64;
                    let length = e.load(CODE + 0x130, 4, va + 8, 8, [hashed.plus(2), NONE]);
                    let free = growth.slots[to] == EMPTY;
                    e.branch(CODE + 0x13c, CODE + 0x150, 3, free, [length, NONE]);
                    if free {
                        break;
                    }
                    probe += 1;
                    to = (to + probe) & last;
                }
                growth.slots[to] = id;
                let size = self.sizes.of(id);
                growth.old.push((record.key, record.value, size.room));
                record.slot = to as u32;
                let into = growth.table + SLOT_BYTES * to as u64;
                if let Some(moves) = &mut self.moves {
                    moves.push(Move {
                        id,
                        number: record.number,
                        from: va,
                        to: into,
                    });
                }
                let from = (record.key.va(), text);
                record.key = Self::construct(e, heap, CODE + 0x170, into, from, KEY_BYTES, frame);
                let value = e.load(CODE + 0x178, 2, va + 32, 8, [NONE; 2]);
                let from = (record.value.va(), value);
                let bytes = u64::from(size.bytes);
                record.value =
                    Self::construct(e, heap, CODE + 0x180, into + 32, from, bytes, frame);
                self.sizes.set(id, bytes, bytes);
                e.branch(CODE + 0x1c4, CODE + 0x100, 4, true, [NONE; 2]);
            }
            growth.copied = end;
            return false;
        }
        let end = growth.old.len().min(growth.freed.saturating_add(step));
        for (key, value, room) in &growth.old[growth.freed..end] {
            // `~pair`: the value first.
            let value = (value.va(), NONE);
            e.load(CODE + 0x200, 2, self.table + 32, 8, [NONE; 2]);
            libc::free(
                e,
                heap,
                (CODE + 0x210, 4),
                value,
                u64::from(*room) + 1,
                frame,
            );
            e.load(CODE + 0x218, 1, self.table, 8, [NONE; 2]);
            libc::free(
                e,
                heap,
                (CODE + 0x220, 4),
                (key.va(), NONE),
                KEY_BYTES + 1,
                frame,
            );
            e.branch(CODE + 0x22c, CODE + 0x200, 2, true, [NONE; 2]);
        }
        growth.freed = end;
        if end < growth.old.len() {
            return false;
        }
        let old = SLOT_BYTES * self.slots.len() as u64;
        libc::free(e, heap, (CODE + 0x240, 4), (self.table, NONE), old, frame);
        for word in [USED, SLOTS, TABLE, LIMIT] {
            e.store(CODE + 0x250, 2, word, 8, NONE, NONE);
        }
        self.slots = std::mem::take(&mut growth.slots);
        self.table = growth.table;
        true
    }
}
