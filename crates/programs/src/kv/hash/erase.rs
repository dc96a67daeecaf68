//! Erasure: `erase` of a key unlinks its node. gcc 12.2 -O2 inlines it into the loop.
//!
//! ```text
//! 700 cmpq $0x14,size ; ja ; hash as for a find ; 720 call 1000 ; mov ; test ; je out ; mov (%rax),%rbx ; jmp
//! 72c mov buckets ; mov (%rbx),%rsi ; lea ; cmp (bucket),%r15 ; 73d je 790
//! 73f test ; je 75a ; mov 0x48(%rsi) ; xor ; divq ; cmp ; 751 je 75a ; mov %r15,(%rdi,%rdx,8) ; mov (%rbx)
//! 75a mov 0x28(%rbx) ; lea ; mov %rsi,(%r15) ; cmp ; je ; mov 0x38(%rbx) ; lea ; call delete
//! 777 mov 8(%rbx) ; lea ; cmp ; je ; mov 0x18(%rbx) ; lea ; call delete ; 2 mov ; call delete ; subq ; jmp 0
//! 790 test ; je 7a9 ; mov 0x48(%rsi) ; xor ; divq ; cmp ; 79f je 75a ; mov %r15,(%rdi,%rdx,8)
//! 7a9 lea ; cmp (bucket) ; je 7c2 ; 7b5 xor ; mov 0,(bucket) ; mov (%rbx) ; jmp 75a ; 7c2 mov begin ; jmp 7b5
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{BEGIN, BUCKETS, COUNT, DIVISION, FIRST, Hash, NIL, NODE_BYTES, SIZE};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Gone, Key};
use crate::kv::libc::{self, KEY_BYTES};
use crate::thread::NONE;

impl Hash {
    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        let size = e.load(0x700, 1, SIZE, 8, [NONE; 2]);
        e.branch(0x704, 0x706, 1, true, [size, NONE]);
        let located = self.locate(e, 0x706, key, sp);
        let hash = key.hash();
        e.call(0x720, 0x1000, 4, sp);
        let before = self.find_before(e, 0x720, key, hash, located, sp);
        e.branch(0x726, 0, 3, before.is_none(), [NONE; 2]);
        let (before, ready) = before?;
        let id = self.next(before);
        let va = self.nodes[id as usize].at.va();
        let next = self.nodes[id as usize].next;
        let bucket = self.bucket(hash);
        let bucket_va = self.array + 8 * bucket as u64;
        let at = e.load(0x728, 1, self.next_va(before), 8, [ready, NONE]);
        e.jump(0x72a, 0x72c, 1, TAKEN, [NONE; 2]);
        let array = e.load(0x72c, 1, BUCKETS, 8, [NONE; 2]);
        let next_node = e.load(0x733, 1, va, 8, [at, NONE]);
        let of_bucket = e.load(0x73a, 2, bucket_va, 8, [array, located.1]);
        let first = self.buckets[bucket] == before;
        e.branch(0x73d, 0x790, 1, first, [of_bucket, NONE]);
        // The bucket of the next node, which may become its bucket's first.
        let pc = if first { 0x790 } else { 0x73f };
        let none = if first { 0x7a9 } else { 0x75a };
        e.branch(pc + 2, none, 2, next == NIL, [next_node, NONE]);
        let mut other = None;
        if next != NIL {
            let there = &self.nodes[next as usize];
            let code = e.load(pc + 4, 1, there.at.va() + 72, 8, [next_node, NONE]);
            let count = e.load(pc + 0xa, 2, COUNT, 8, [NONE; 2]);
            let rest = e.compute(pc + 0xa, 0, DIVISION, [code, count]);
            let of_next = self.bucket(there.hash);
            let same = of_next == bucket;
            e.branch(pc + 0xf, 0x75a, 2, same, [rest, NONE]);
            if !same {
                let slot = self.array + 8 * of_next as u64;
                e.store(pc + 0x12, 1, slot, 8, rest, NONE);
                self.buckets[of_next] = before;
                other = Some(of_next);
            }
        }
        if first && (next == NIL || other.is_some()) {
            let of_bucket = e.load(0x7b0, 2, bucket_va, 8, [array, NONE]);
            let begins = before == BEGIN;
            e.branch(0x7b3, 0x7c2, 1, begins, [of_bucket, NONE]);
            if begins {
                e.store(0x7c2, 1, FIRST, 8, NONE, next_node);
                e.jump(0x7c9, 0x7b5, 1, TAKEN, [NONE; 2]);
            }
            e.store(0x7b7, 2, bucket_va, 8, array, NONE);
            e.load(0x7ba, 1, va, 8, [at, NONE]);
            e.jump(0x7bd, 0x75a, 1, TAKEN, [NONE; 2]);
            self.buckets[bucket] = NIL;
        } else if other.is_some() {
            e.load(0x756, 1, va, 8, [at, NONE]);
        }
        let value = e.load(0x75a, 1, va + 40, 8, [at, NONE]);
        e.store(0x762, 2, self.next_va(before), 8, ready, next_node);
        match before {
            BEGIN => self.first = next,
            node => self.nodes[node as usize].next = next,
        }
        let room = u64::from(self.sizes.of(id).room);
        let node = &self.nodes[id as usize];
        e.branch(0x768, 0x777, 2, false, [value, NONE]);
        e.load(0x76a, 1, va + 56, 8, [at, NONE]);
        let text = (node.value.va(), value);
        libc::free(e, heap, (0x772, 2), text, room + 1, sp);
        let text = e.load(0x777, 1, va + 8, 8, [at, NONE]);
        e.branch(0x77e, 0x790, 3, false, [text, NONE]);
        e.load(0x780, 1, va + 24, 8, [at, NONE]);
        let text = (node.key.va(), text);
        libc::free(e, heap, (0x788, 2), text, KEY_BYTES + 1, sp);
        libc::free(e, heap, (0x78c, 3), (va, at), NODE_BYTES, sp);
        let size = e.load(0x78e, 1, SIZE, 8, [NONE; 2]);
        e.store(0x78e, 0, SIZE, 8, NONE, size.plus(1));
        e.jump(0x78f, 0, 1, TAKEN, [NONE; 2]);
        self.nodes.remove(id);
        Some(Gone { id, record: va })
    }
}
