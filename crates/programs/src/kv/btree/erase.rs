//! `erase` of a key: finds the range of equal keys, at most one, and removes its slot. Rebalancing of the
//! node is in `nodes/erase.rs`.
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! 700 lea ; lea ; mov ; mov ; call equal_range ; 4 mov ; lea ; mov ; 72c call erase_range ; jmp 0
//! equal_range 2600 push six ; 1c call lower_bound ; 21 cmpb equal ; mov ; mov ; 30 jne 58
//!   58 mov ; mov ; test ; jne ; cmpb leaf ; 71 jne ; the next slot ; 8a mov ; … its key: memcmp ; ec je ; ee jns ; f0 four stores ; ret
//! erase_range 2700 push six ; … 49 jmp 83 ; 50 the next slot ; 83 cmp ; jne ; mov ; cmp ; 90 jne 50 ; 92 … 125 call remove_values
//!   135 sub size ; 13c call rebalance_after_delete ; 147 mov size ; cmp ; 14f jae ; pop six ; ret
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{Position, SIZE, Tree};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Gone, Key};
use crate::kv::libc::{self, KEY_BYTES};
use crate::kv::nodes::{HEADER_BYTES, NIL, SLOT_BYTES};
use crate::thread::NONE;

impl Tree {
    /// `equal_range`: the key's position. The next position is computed on the way.
    fn equal_range<E: Emit>(&self, e: &mut E, site: u64, key: &Key, sp: u64) -> Option<Position> {
        const CODE: u64 = 0x2600;
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x48;
        // `internal_lower_bound`, which calls `internal_locate`.
        e.call(CODE + 0x1c, CODE + 0x80, 5, frame);
        let inner = frame - 0x30;
        e.push(CODE + 0x80, 1, frame - 8);
        e.call(CODE + 0x88, 0x1000, 6, inner);
        let position = self.locate(e, CODE + 0x88, key, inner);
        for i in 0..3 {
            e.load(CODE + 0x8d + 5 * i, 1, inner + 8 * i, 8, [NONE; 2]);
            e.store(CODE + 0x90 + 5 * i, 1, frame + 0x20 + 8 * i, 8, NONE, NONE);
        }
        e.pop(CODE + 0xa0, 1, frame - 8);
        e.ret(CODE + 0xa8, CODE + 0x1c, 3, frame);
        let equal = e.load(CODE + 0x21, 1, frame + 0x30, 1, [NONE; 2]);
        e.load(CODE + 0x26, 1, frame + 0x20, 8, [NONE; 2]);
        e.load(CODE + 0x2b, 1, frame + 0x28, 4, [NONE; 2]);
        e.branch(CODE + 0x30, CODE + 0x58, 1, position.equal, [equal, NONE]);
        if position.equal {
            let next = self.nodes.next(e, (position.node, position.slot));
            let rightmost = e.load(CODE + 0x8a, 1, super::RIGHTMOST, 8, [NONE; 2]);
            e.branch(CODE + 0x95, CODE + 0x160, 3, false, [rightmost, NONE]);
            e.load(
                CODE + 0x9b,
                1,
                self.nodes.va(self.nodes.rightmost) + 10,
                1,
                [NONE; 2],
            );
            e.branch(CODE + 0xa1, CODE + 0xa8, 2, next.is_some(), [NONE; 2]);
            if let Some((node, slot)) = next
                && E::LOUD
            {
                // An assertion compares the next key with this one.
                let here = self.nodes.get(node);
                let va = here.at.va() + HEADER_BYTES + SLOT_BYTES * slot as u64;
                let mine = e.load(CODE + 0xb4, 4, key.object + 8, 8, [NONE; 2]);
                let text = e.load(CODE + 0xb8, 1, key.object, 8, [NONE; 2]);
                e.load(CODE + 0xc5, 3, va + 8, 8, [NONE; 2]);
                let other = e.load(CODE + 0xc9, 1, va, 8, [NONE; 2]);
                e.branch(CODE + 0xd9, CODE + 0x128, 5, false, [mine, NONE]);
                e.store(CODE + 0xdb, 1, frame + 8, 8, NONE, NONE);
                let equal = crate::kv::index::same(here.number[slot], key.number);
                let record = &self.records[here.id[slot] as usize];
                let (a, b) = ((key.text, text), (record.key.va(), other));
                let order = libc::memcmp(e, (CODE + 0xe0, 1), a, b, equal, frame);
                e.load(CODE + 0xe5, 1, frame + 8, 8, [NONE; 2]);
                e.branch(CODE + 0xec, CODE + 0x128, 2, false, [order, NONE]);
                e.branch(CODE + 0xee, CODE + 0x13b, 1, false, [order, NONE]);
            }
        }
        for i in 0..4 {
            let va = sp + 0x20 + 8 * i;
            e.store(CODE + 0xf0 + 4 * i, 1, va, 8, NONE, NONE);
        }
        e.load(CODE + 0x45, 3, frame + 0x48, 8, [NONE; 2]);
        e.pop(CODE + 0x48, 5, sp - 8);
        e.ret(CODE + 0x52, site, 1, sp);
        position.equal.then_some(position)
    }

    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        if self.nodes.root == NIL {
            return None;
        }
        e.call(0x70c, 0x2600, 5, sp);
        let position = self.equal_range(e, 0x70c, key, sp);
        for i in 0..4 {
            e.load(0x711 + 8 * i, 1, sp + 0x20 + 8 * i, 8, [NONE; 2]);
        }
        const CODE: u64 = 0x2700;
        e.call(0x72c, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x48;
        for i in 0..7 {
            e.store(CODE + 0x22 + 5 * i, 2, frame + 0x10 + 8 * i, 8, NONE, NONE);
        }
        e.jump(CODE + 0x49, CODE + 0x83, 1, TAKEN, [NONE; 2]);
        let mut gone = None;
        e.branch(CODE + 0x86, CODE + 0x50, 2, position.is_some(), [NONE; 2]);
        if let Some(position) = position {
            // `std::distance`: one step.
            self.nodes.next(e, (position.node, position.slot));
            e.load(CODE + 0x88, 3, frame + 8, 4, [NONE; 2]);
            e.branch(CODE + 0x90, CODE + 0x50, 2, false, [NONE; 2]);
            gone = Some(self.take_slot(e, heap, &position, frame));
        }
        e.load(CODE + 0x186, 4, frame + 0x48, 8, [NONE; 2]);
        e.pop(CODE + 0x190, 5, sp - 8);
        e.ret(CODE + 0x19a, 0x72c, 4, sp);
        e.jump(0x731, 0, 1, TAKEN, [NONE; 2]);
        gone
    }

    fn take_slot<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        position: &Position,
        sp: u64,
    ) -> Gone {
        const CODE: u64 = 0x2800;
        let place = (position.node, position.slot);
        let here = self.nodes.get(place.0);
        let (id, leaf) = (here.id[place.1], here.leaf);
        let record = here.at.va() + HEADER_BYTES + SLOT_BYTES * place.1 as u64;
        let size = e.load(CODE, 3, SIZE, 8, [NONE; 2]);
        e.branch(CODE + 0x9, CODE + 0x200, 3, false, [size, NONE]);
        let kind = e.load(CODE + 0x1b, 14, self.nodes.va(place.0) + 11, 1, [NONE; 2]);
        e.branch(CODE + 0x20, CODE + 0x40, 1, leaf, [kind, NONE]);
        // `remove_values` of a leaf, or `erase` of an inner node: registers first.
        for (pc, insns, word) in [(0x24, 2, 0x20), (0x28, 3, 0x20)] {
            e.load(CODE + pc, insns, sp + word, 8, [NONE; 2]);
        }
        e.load(CODE + 0x30, 3, self.nodes.va(place.0) + 10, 1, [NONE; 2]);
        e.store(CODE + 0x40, 4, sp + 8, 8, NONE, NONE);
        e.call(CODE + 0x45, 0x2c00, 2, sp);
        e.push(0x2c00, 6, sp - 8);
        e.branch(0x2c12, 0x2df0, 3, false, [NONE; 2]);
        e.branch(0x2c53, 0x2c94, 18, false, [NONE; 2]);
        let room = u64::from(self.sizes.of(id).room);
        let texts = &self.records[id as usize];
        for (pc, string, text, bytes) in [
            (0x2c58, record + 32, texts.value, room),
            (0x2c72, record, texts.key, KEY_BYTES),
        ] {
            let from = e.load(pc, 1, string, 8, [NONE; 2]);
            e.branch(pc + 0xb, pc + 0x1a, 3, false, [from, NONE]);
            e.load(pc + 0xd, 1, string + 16, 8, [NONE; 2]);
            libc::free(e, heap, (pc + 0x15, 2), (text.va(), from), bytes + 1, sp);
        }
        e.branch(0x2c92, 0x2c58, 3, false, [NONE; 2]);
        let from = if leaf {
            self.nodes.close(e, place, sp - 56);
            place
        } else {
            let last = self.nodes.before(e, place, sp);
            self.nodes.lift(e, last, place);
            last
        };
        e.pop(0x2d77, 6, sp - 8);
        e.ret(0x2d81, CODE + 0x45, 5, sp);
        e.load(CODE + 0x4a, 1, sp + 8, 8, [NONE; 2]);
        let size = e.load(CODE + 0x55, 3, SIZE, 8, [NONE; 2]);
        e.store(CODE + 0x55, 0, SIZE, 8, NONE, size.plus(1));
        self.nodes.shrink(e, heap, from, sp);
        let left = e.load(CODE + 0x67, 3, SIZE, 8, [NONE; 2]);
        e.load(CODE + 0x6b, 0, sp, 8, [NONE; 2]);
        e.branch(CODE + 0x6f, CODE + 0xa6, 2, true, [left, NONE]);
        self.records.remove(id);
        Gone { id, record }
    }
}
