//! Erasure (`EraseMetaOnly`): the slot becomes empty if no search can have passed a full group at it, and
//! deleted otherwise.
//!
//! gcc 12.2 -O2, in the loop:
//!
//! ```text
//! 700 as a find ; 823 mov 0x20(%r15) ; lea ; cmp ; je ; mov ; lea ; call delete ; the same of the key
//! 856 cmpb control ; js ; 861 subq size ; mov control ; … movdqu (control) ; … pcmpeqb ; pmovmskb ; movdqu before it ; …
//! 8ae test ; setne ; test ; setne ; and ; 8be jne ; cmp ; jae ; 8d1 movb ; … 8e1 movb ; 8e5 add left ; 8ec jmp 0
//! ```

use pagewalk_stream::flags::TAKEN;

use super::hash::{SEED, hash_of};
use super::{ALL_EMPTY, CAPACITY, CONTROL, DELETED, EMPTY, FIND, Flat, GROUP, LEFT, SIZE, Way};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Gone, Key};
use crate::kv::libc::{self, KEY_BYTES};
use crate::thread::NONE;

const ERASE: Way = Way {
    code: 0x2c00,
    ..FIND
};

impl Flat {
    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        const CODE: u64 = 0x2f20;
        let hashed = self.hash_key(e, ERASE, key, sp);
        let hash = hash_of(key.number, SEED);
        let (slot, at) = self.search(e, ERASE, key, (hash, hashed), sp)?;
        let id = self.block.ids[slot];
        let va = self.block.slot_va(slot);
        let room = u64::from(self.sizes.of(id).room);
        let record = &self.records[id as usize];
        for (pc, string, text, bytes) in [
            (CODE, va + 32, record.value, room),
            (CODE + 0x1a, va, record.key, KEY_BYTES),
        ] {
            let from = e.load(pc, 1, string, 8, [at, NONE]);
            e.branch(pc + 0xb, pc + 0x1a, 3, false, [from, NONE]);
            e.load(pc + 0xd, 1, string + 16, 8, [at, NONE]);
            libc::free(e, heap, (pc + 0x15, 2), (text.va(), from), bytes + 1, sp);
        }
        let byte_va = self.block.at + slot as u64;
        let full = e.load(CODE + 0x33, 0, byte_va, 1, [at, NONE]);
        e.branch(CODE + 0x38, CODE + 0x330, 2, false, [full, NONE]);
        let size = e.load(CODE + 0x3e, 1, SIZE, 8, [NONE; 2]);
        e.store(CODE + 0x3e, 0, SIZE, 8, NONE, size.plus(1));
        let control = e.load(CODE + 0x46, 1, CONTROL, 8, [NONE; 2]);
        e.load(CODE + 0x55, 3, ALL_EMPTY, 16, [NONE; 2]);
        let after = e.load(CODE + 0x5d, 1, byte_va, 16, [at, NONE]);
        e.load(CODE + 0x66, 2, CAPACITY, 8, [NONE; 2]);
        let mask = self.block.capacity();
        let earlier = slot.wrapping_sub(GROUP) & mask;
        let earlier_va = self.block.at + earlier as u64;
        let before = e.load(CODE + 0x7d, 5, earlier_va, 16, [control, at]);
        let empty = |at| self.block.which(at, |b| b == EMPTY);
        let (behind, ahead) = (empty(slot), empty(earlier));
        let both = behind != 0 && ahead != 0;
        let on = [after.plus(6), before.plus(6)];
        e.branch(CODE + 0x9b, CODE + 0x258, 7, both, on);
        // Length of the run of full bytes around the slot, between the nearest empty bytes.
        let passed = behind.trailing_zeros() + (ahead << 16).leading_zeros();
        let was_never_full = both && passed < GROUP as u32;
        if both {
            e.branch(CODE + 0x270, CODE + 0xa1, 11, true, on);
        }
        e.branch(CODE + 0xa4, CODE + 0x34d, 2, false, [NONE; 2]);
        let again = self.block.again(slot);
        e.store(CODE + 0xae, 2, byte_va, 1, at, NONE);
        e.store(CODE + 0xbe, 5, self.block.at + again as u64, 1, at, NONE);
        let left = e.load(CODE + 0xc2, 1, LEFT, 8, [NONE; 2]);
        e.store(CODE + 0xc2, 0, LEFT, 8, NONE, left.plus(1));
        e.jump(CODE + 0xc9, 0, 1, TAKEN, [NONE; 2]);
        let byte = if was_never_full { EMPTY } else { DELETED };
        self.block.set(slot, byte);
        self.left += usize::from(was_never_full);
        self.records.remove(id);
        Some(Gone { id, record: va })
    }
}
