//! Insertion of a new key: allocation of its node, and its place in the list.

use super::{
    BEGIN, BUCKETS, COUNT, DIVISION, FIRST, Hash, NEXT_RESIZE, NIL, NODE_BYTES, Node, SIZE,
};
use crate::heap::Heap;
use crate::kv::emit::{Emit, Library};
use crate::kv::index::{Found, Key, Place};
use crate::kv::libc;
use crate::thread::NONE;

impl Hash {
    /// Allocates the node of a new key, up to the decision to grow.
    pub(super) fn make<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        hash: u64,
        sp: u64,
    ) -> u32 {
        const CODE: u64 = 0x1178;
        let frame = sp - 56 - 0x28;
        let (va, node) = libc::new(e, heap, (CODE + 0x5, 2), NODE_BYTES, frame);
        e.store(CODE + 0xe, 2, va, 8, node, NONE);
        e.store(CODE + 0x1c, 3, va + 8, 8, node, node);
        let text = e.load(CODE + 0x20, 1, key.object, 8, [NONE; 2]);
        let length = e.load(CODE + 0x23, 1, key.object + 8, 8, [NONE; 2]);
        e.store(CODE + 0x27, 1, frame + 8, 8, NONE, text);
        e.store(CODE + 0x2c, 1, frame + 0x18, 8, NONE, length);
        e.branch(CODE + 0x35, CODE + 0xf0, 2, true, [length, NONE]);
        let capacity = frame + 0x18;
        let (at, ready) = libc::create(e, heap, (CODE + 0xf7, 3), capacity, libc::KEY_BYTES, frame);
        e.store(CODE + 0xfc, 1, va + 8, 8, node, ready);
        let length = e.load(CODE + 0x103, 2, capacity, 8, [NONE; 2]);
        e.store(CODE + 0x108, 1, va + 24, 8, node, length);
        let text = e.load(CODE + 0x10c, 1, frame + 8, 8, [NONE; 2]);
        let call = (CODE + 0x114, 2);
        libc::memcpy(
            e,
            call,
            (at, ready),
            (key.text, text),
            libc::KEY_BYTES,
            frame,
        );
        let length = e.load(CODE + 0x119, 1, capacity, 8, [NONE; 2]);
        let text = e.load(CODE + 0x11e, 1, va + 8, 8, [node, NONE]);
        e.jump(
            CODE + 0x122,
            CODE + 0x53,
            1,
            pagewalk_stream::flags::TAKEN,
            [NONE; 2],
        );
        e.store(CODE + 0x53, 1, va + 16, 8, node, length);
        e.store(CODE + 0x60, 3, at + libc::KEY_BYTES, 1, text, NONE);
        let policy = e.load(CODE + 0x69, 2, NEXT_RESIZE, 8, [NONE; 2]);
        let size = e.load(CODE + 0x6d, 1, SIZE, 8, [NONE; 2]);
        e.load(CODE + 0x71, 1, COUNT, 8, [NONE; 2]);
        e.store(CODE + 0x75, 1, va + 40, 8, node, NONE);
        e.store(CODE + 0x79, 1, va + 48, 8, node, NONE);
        e.store(CODE + 0x81, 1, va + 56, 1, node, NONE);
        e.store(CODE + 0x85, 1, frame + 0x18, 8, NONE, policy);
        // `_M_need_rehash`: 00 endbr64 ; add ; mov 8(%rdi) ; cmp ; 0e jb ; xor ; xor ; and ; ret
        let code = Library::NeedRehash.code();
        e.call_library(CODE + 0x8a, Library::NeedRehash, 1, frame);
        let limit = e.load(code + 0x7, 3, NEXT_RESIZE, 8, [NONE; 2]);
        let grows = self.nodes.len() >= self.limit();
        e.branch(code + 0xe, code + 0x20, 2, grows, [limit, size]);
        e.ret(code + 0x17, CODE + 0x8a, 4, frame);
        e.branch(CODE + 0x94, CODE + 0x118, 3, grows, [NONE; 2]);
        self.nodes.add(Node {
            hash,
            number: key.number,
            next: NIL,
            at: Place::new(va),
            key: Place::new(at),
            value: Place::default(),
        })
    }

    /// Links the new node at the start of its bucket (`_M_insert_bucket_begin`).
    pub(super) fn link<E: Emit>(&mut self, e: &mut E, id: u32, sp: u64) -> Found {
        const CODE: u64 = 0x1212;
        let hash = self.nodes[id as usize].hash;
        let va = self.nodes[id as usize].at.va();
        let bucket = self.bucket(hash);
        let array = e.load(CODE, 1, BUCKETS, 8, [NONE; 2]);
        e.store(CODE + 0x4, 1, va + 72, 8, NONE, NONE);
        let bucket_va = self.array + 8 * bucket as u64;
        let before = self.buckets[bucket];
        let ready = e.load(CODE + 0xc, 2, bucket_va, 8, [array, NONE]);
        e.branch(CODE + 0x12, CODE + 0x9e, 2, before == NIL, [ready, NONE]);
        if before == NIL {
            let second = self.first;
            let old = e.load(CODE + 0x9e, 1, FIRST, 8, [NONE; 2]);
            e.store(CODE + 0xa2, 1, FIRST, 8, NONE, NONE);
            e.store(CODE + 0xa6, 1, va, 8, NONE, old);
            e.branch(CODE + 0xac, CODE + 0xc2, 2, second == NIL, [old, NONE]);
            if second != NIL {
                let there = &self.nodes[second as usize];
                let code = e.load(CODE + 0xae, 1, there.at.va() + 72, 8, [old, NONE]);
                let count = e.load(CODE + 0xb4, 2, COUNT, 8, [NONE; 2]);
                let rest = e.compute(CODE + 0xb4, 0, DIVISION, [code, count]);
                let other = self.bucket(there.hash);
                e.store(CODE + 0xb8, 1, self.array + 8 * other as u64, 8, rest, NONE);
                self.buckets[other] = id;
            }
            e.store(CODE + 0xc2, 2, bucket_va, 8, NONE, NONE);
            e.jump(
                CODE + 0xc8,
                CODE + 0x24,
                1,
                pagewalk_stream::flags::TAKEN,
                [NONE; 2],
            );
            self.nodes[id as usize].next = second;
            self.first = id;
            self.buckets[bucket] = BEGIN;
        } else {
            let before_va = self.next_va(before);
            let next = e.load(CODE + 0x18, 1, before_va, 8, [ready, NONE]);
            e.store(CODE + 0x1b, 1, va, 8, NONE, next);
            let again = e.load(CODE + 0x1e, 1, bucket_va, 8, [array, NONE]);
            e.store(CODE + 0x21, 1, before_va, 8, again, NONE);
            let next = self.next(before);
            self.nodes[id as usize].next = next;
            match before {
                BEGIN => self.first = id,
                node => self.nodes[node as usize].next = id,
            }
        }
        let size = e.load(CODE + 0x24, 1, SIZE, 8, [NONE; 2]);
        e.store(CODE + 0x24, 0, SIZE, 8, NONE, size.plus(1));
        self.leave(e, sp);
        self.found(id, NONE, true)
    }
}
