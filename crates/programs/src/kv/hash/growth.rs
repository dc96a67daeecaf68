//! Growth of the array of buckets: node by node, in list order.

use super::{BEGIN, BUCKETS, CLEARED, COUNT, DIVISION, FIRST, Hash, NIL, STEP};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::libc;
use crate::thread::NONE;

impl Hash {
    /// One step of a growth (`_M_rehash`). When it is complete, returns the node whose insertion caused it.
    ///
    /// ```text
    /// 40 mov (%rcx) ; mov 0x48(%rcx) ; xor ; divq ; lea (,%rdx,8) ; mov (bucket) ; test ; je 80
    /// 5c mov (%rdx) ; mov %rdx,(%rcx) ; mov (bucket) ; mov %rcx,(%rax) ; test ; jne 40
    /// 80 mov begin ; mov %rdx,(%rcx) ; mov %rcx,begin ; mov &begin,(bucket) ; cmpq (%rcx) ; je
    ///    mov %rcx,(behind) ; mov ; test ; jne 40
    /// ```
    pub(super) fn rehash<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> Option<u32> {
        const CODE: u64 = 0x1340;
        let mut growth = self.growth.take()?;
        let bytes = 8 * growth.buckets.len() as u64;
        if E::LOUD && growth.cleared < bytes {
            let part = CLEARED.min(bytes - growth.cleared);
            libc::clear(e, growth.array + growth.cleared, part);
            growth.cleared += part;
            self.growth = Some(growth);
            return None;
        }
        let steps = if E::LOUD { STEP } else { usize::MAX };
        for _ in 0..steps {
            if growth.node == NIL {
                break;
            }
            let id = growth.node;
            let node = &self.nodes[id as usize];
            let (next, va) = (node.next, node.at.va());
            let bucket = (node.hash % growth.buckets.len() as u64) as usize;
            let bucket_va = growth.array + 8 * bucket as u64;
            let next_node = e.load(CODE, 1, va, 8, [NONE; 2]);
            let code = e.load(CODE + 3, 1, va + 72, 8, [NONE; 2]);
            let index = e.compute(CODE + 9, 3, DIVISION, [code, NONE]);
            let before = growth.buckets[bucket];
            let ready = e.load(CODE + 0x10, 2, bucket_va, 8, [index, NONE]);
            e.branch(CODE + 0x17, CODE + 0x40, 2, before == NIL, [ready, NONE]);
            if before == NIL {
                let old = e.load(CODE + 0x40, 1, FIRST, 8, [NONE; 2]);
                e.store(CODE + 0x44, 1, va, 8, NONE, old);
                e.store(CODE + 0x47, 1, FIRST, 8, NONE, NONE);
                e.store(CODE + 0x4b, 1, bucket_va, 8, index, NONE);
                let first = growth.first;
                e.branch(CODE + 0x52, CODE + 0x60, 2, first == NIL, [old, NONE]);
                if first != NIL {
                    e.store(
                        CODE + 0x54,
                        1,
                        growth.array + 8 * growth.behind as u64,
                        8,
                        NONE,
                        NONE,
                    );
                    growth.buckets[growth.behind] = id;
                }
                self.nodes[id as usize].next = first;
                growth.first = id;
                growth.buckets[bucket] = BEGIN;
                growth.behind = bucket;
            } else {
                let (before_va, after) = match before {
                    BEGIN => (FIRST, growth.first),
                    node => (
                        self.nodes[node as usize].at.va(),
                        self.nodes[node as usize].next,
                    ),
                };
                let word = e.load(CODE + 0x1c, 1, before_va, 8, [ready, NONE]);
                e.store(CODE + 0x1f, 1, va, 8, NONE, word);
                let again = e.load(CODE + 0x22, 1, bucket_va, 8, [index, NONE]);
                e.store(CODE + 0x25, 1, before_va, 8, again, NONE);
                self.nodes[id as usize].next = after;
                match before {
                    BEGIN => growth.first = id,
                    node => self.nodes[node as usize].next = id,
                }
            }
            e.branch(CODE + 0x2b, CODE, 2, next != NIL, [next_node, NONE]);
            growth.node = next;
        }
        if growth.node != NIL {
            self.growth = Some(growth);
            return None;
        }
        let old = 8 * self.buckets.len() as u64;
        if self.buckets.len() > 1 {
            let at = (self.array, NONE);
            libc::free(e, heap, (CODE + 0x70, 6), at, old, sp - 56 - 0x28);
        }
        e.store(CODE + 0x78, 1, COUNT, 8, NONE, NONE);
        e.store(CODE + 0x7c, 1, BUCKETS, 8, NONE, NONE);
        self.buckets = growth.buckets;
        self.array = growth.array;
        self.first = growth.first;
        Some(growth.fresh)
    }
}
