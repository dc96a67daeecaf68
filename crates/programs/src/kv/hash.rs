//! `std::unordered_map<std::string, std::string>` of libstdc++: one list of all nodes, in which nodes of a
//! bucket are adjacent. A bucket points to the node *before* its first one.
//!
//! A node is `next`, the key's string, the value's string, the key's hash: 80 bytes. Texts of more than 15
//! characters are separate objects. The number of buckets is a prime. When there are as many nodes, it grows
//! to the next prime after twice their number.
//!
//! gcc 12.2 -O2, path of a find (the call of the hash is in `libc.rs`):
//!
//! ```text
//! 0d0 mov 8(%rsp) ; mov (%rsp) ; mov ; call _Hash_bytes ; xor ; mov ; mov ; eb divq buckets
//! 0f8 call 1000
//! 1000 push six ; 0e mov (%rdi) ; 11 mov (%rax,%rsi,8) ; 18 je ; 1a mov (%r12) ; 2a mov 0x48(%rbx)
//! 1050 cmp hash ; 53 jne 30 ; 55 mov 8(%r15) ; 59 cmp 0x10(%rbx) ; 5d jne ; 62 je
//! 64 mov 8(%rbx) ; 68 mov (%r15) ; 6b call memcmp ; 70 test ; 72 jne 30 ; 74 pop six ; 85 ret
//! 1030 mov (%rbx) ; 36 je ; 38 mov 0x48(%rsi) ; 44 divq 8(%rbp) ; 48 cmp ; 4b jne 90 ; 4d … 50
//! ```

mod erase;
mod growth;
mod insert;

use super::emit::Emit;
use super::globals::MAP;
use super::index::{AHEAD, Found, Gone, Index, IndexStep, Key, Place, same};
use super::libc;
use super::records::{Records, Sizes};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

/// Bucket counts of a map that grows from nothing (`__prime_list`).
const PRIMES: [u32; 26] = [
    13,
    29,
    59,
    127,
    257,
    541,
    1109,
    2357,
    5087,
    10273,
    20753,
    42043,
    85229,
    172_933,
    351_061,
    712_697,
    1_447_153,
    2_938_679,
    5_967_347,
    12_117_689,
    24_607_243,
    49_969_847,
    101_473_717,
    206_062_531,
    418_451_333,
    849_721_997,
];
const NODE_BYTES: u64 = 80;
/// No node.
const NIL: u32 = u32::MAX;
/// The word before the first node, as a bucket refers to it.
const BEGIN: u32 = u32::MAX - 1;
/// Addresses of the map's words.
const BUCKETS: u64 = MAP;
const COUNT: u64 = MAP + 8;
const FIRST: u64 = MAP + 0x10;
const SIZE: u64 = MAP + 0x18;
const NEXT_RESIZE: u64 = MAP + 0x28;
/// Cycles of a 64-bit division on Intel since Ice Lake (A. Fog).
pub(super) const DIVISION: u8 = 15;
/// Nodes that one step of a growth moves, and bytes that one step clears.
const STEP: usize = 256;
const CLEARED: u64 = 64 << 10;

struct Node {
    hash: u64,
    number: u64,
    next: u32,
    at: Place,
    key: Place,
    value: Place,
}

/// A chained hash table of records.
pub struct Hash {
    nodes: Records<Node>,
    buckets: Vec<u32>,
    /// Address of the buckets.
    array: u64,
    first: u32,
    prime: usize,
    sizes: Sizes,
    growth: Option<Growth>,
}

/// `_M_rehash` under way.
struct Growth {
    buckets: Vec<u32>,
    array: u64,
    cleared: u64,
    /// The next node to move, the first node of the list, and the bucket that it belongs to.
    node: u32,
    first: u32,
    behind: usize,
    /// Number of the record whose insertion caused the growth.
    fresh: u32,
}

impl Hash {
    /// An empty map for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Hash {
            nodes: Records::default(),
            // One bucket, inside the map itself.
            buckets: vec![NIL],
            array: MAP + 0x30,
            first: NIL,
            prime: 0,
            sizes: Sizes::new(value_bytes),
            growth: None,
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash % self.buckets.len() as u64) as usize
    }

    /// Address of the `next` field of `before`.
    fn next_va(&self, before: u32) -> u64 {
        match before {
            BEGIN => FIRST,
            node => self.nodes[node as usize].at.va(),
        }
    }

    fn next(&self, before: u32) -> u32 {
        match before {
            BEGIN => self.first,
            node => self.nodes[node as usize].next,
        }
    }

    /// Values that produce the hash of the key and its bucket.
    #[inline(always)]
    fn locate<E: Emit>(&self, e: &mut E, pc: u64, key: &Key, sp: u64) -> (Value, Value) {
        e.load(pc, 1, key.object + 8, 8, [NONE; 2]);
        let text = e.load(pc + 5, 1, key.object, 8, [NONE; 2]);
        let hash = libc::hash(e, (pc + 14, 2), (key.text, text), sp);
        let count = e.load(pc + 0x1b, 4, COUNT, 8, [NONE; 2]);
        (hash, e.compute(pc + 0x1b, 0, DIVISION, [hash, count]))
    }

    /// `_M_find_before_node`: the node before the key's.
    #[inline(always)]
    fn find_before<E: Emit>(
        &self,
        e: &mut E,
        site: u64,
        key: &Key,
        hash: u64,
        (hashed, index): (Value, Value),
        sp: u64,
    ) -> Option<(u32, Value)> {
        const CODE: u64 = 0x1000;
        let bucket = self.bucket(hash);
        e.push(CODE, 6, sp - 8);
        let inner = sp - 8 - 48 - 8;
        let array = e.load(CODE + 0xe, 2, BUCKETS, 8, [NONE; 2]);
        let mut before = self.buckets[bucket];
        let mut ready = e.load(
            CODE + 0x11,
            1,
            self.array + 8 * bucket as u64,
            8,
            [array, index],
        );
        e.branch(CODE + 0x18, CODE + 0x74, 2, before == NIL, [ready, NONE]);
        let mut found = None;
        if before != NIL {
            let mut node = self.next(before);
            let mut at = e.load(CODE + 0x1a, 1, self.next_va(before), 8, [ready, NONE]);
            let mut code = e.load(
                CODE + 0x2a,
                5,
                self.nodes[node as usize].at.va() + 72,
                8,
                [at, NONE],
            );
            e.jump(
                CODE + 0x2e,
                CODE + 0x50,
                1,
                pagewalk_stream::flags::TAKEN,
                [NONE; 2],
            );
            loop {
                let here = &self.nodes[node as usize];
                let va = here.at.va();
                e.branch(
                    CODE + 0x53,
                    CODE + 0x30,
                    2,
                    here.hash != hash,
                    [code, hashed],
                );
                if here.hash == hash {
                    let length = e.load(CODE + 0x55, 1, key.object + 8, 8, [NONE; 2]);
                    let other = e.load(CODE + 0x59, 1, va + 16, 8, [at, NONE]);
                    e.branch(CODE + 0x5d, CODE + 0x30, 0, false, [length, other]);
                    e.branch(CODE + 0x62, CODE + 0x74, 2, false, [length, NONE]);
                    let text = e.load(CODE + 0x64, 1, va + 8, 8, [at, NONE]);
                    let mine = e.load(CODE + 0x68, 1, key.object, 8, [NONE; 2]);
                    let equal = if E::LOUD {
                        same(here.number, key.number)
                    } else {
                        0
                    };
                    let (a, b) = ((key.text, mine), (here.key.va(), text));
                    let order = libc::memcmp(e, (CODE + 0x6b, 1), a, b, equal, inner);
                    let is_it = here.number == key.number;
                    e.branch(CODE + 0x72, CODE + 0x30, 2, !is_it, [order, NONE]);
                    if is_it {
                        found = Some((before, ready));
                        break;
                    }
                }
                let next = here.next;
                let next_at = e.load(CODE + 0x30, 1, va, 8, [at, NONE]);
                e.branch(CODE + 0x36, CODE + 0x90, 2, next == NIL, [next_at, NONE]);
                if next == NIL {
                    break;
                }
                let there = &self.nodes[next as usize];
                code = e.load(CODE + 0x38, 1, there.at.va() + 72, 8, [next_at, NONE]);
                let count = e.load(CODE + 0x44, 4, COUNT, 8, [NONE; 2]);
                let rest = e.compute(CODE + 0x44, 0, DIVISION, [code, count]);
                let leaves = self.bucket(there.hash) != bucket;
                e.branch(CODE + 0x4b, CODE + 0x90, 2, leaves, [rest, index]);
                if leaves {
                    break;
                }
                e.compute(CODE + 0x4d, 1, 1, [NONE; 2]);
                (before, ready, node, at) = (node, at, next, next_at);
            }
            if found.is_none() {
                e.jump(
                    CODE + 0x93,
                    CODE + 0x74,
                    2,
                    pagewalk_stream::flags::TAKEN,
                    [NONE; 2],
                );
            }
        }
        e.load(CODE + 0x7b, 3, inner + 8, 8, [NONE; 2]);
        e.pop(CODE + 0x7c, 5, sp - 8);
        e.ret(CODE + 0x85, site, 1, sp);
        found
    }

    fn found(&self, id: u32, at: Value, fresh: bool) -> Found {
        let record = self.nodes[id as usize].at.va();
        Found {
            id,
            record,
            at,
            fresh,
        }
    }

    /// Epilogue of `operator[]`.
    #[inline(always)]
    fn leave<E: Emit>(&self, e: &mut E, sp: u64) {
        e.load(0x1231, 3, sp - 56, 8, [NONE; 2]);
        e.pop(0x1232, 5, sp - 16);
        e.ret(0x123b, 0x74, 1, sp);
    }

    /// Number of nodes at which the map grows.
    fn limit(&self) -> usize {
        if self.prime == 0 {
            0
        } else {
            self.buckets.len()
        }
    }
}

impl Index for Hash {
    const HOST_BYTES: u64 = 48;
    /// Offset of the pair: behind `next`.
    const PAIR: u64 = 8;

    fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    fn warm(&self, numbers: &[u64]) {
        let mut at = [NIL; AHEAD];
        for (at, number) in at.iter_mut().zip(numbers) {
            let hash = libc::hash_of(&super::ycsb::text(*number));
            *at = self.buckets[self.bucket(hash)];
        }
        // The node before the bucket's first, then the first.
        for at in &mut at {
            *at = self.nodes.get(*at).map_or(NIL, |n| n.next);
        }
        let node = |at: &u32| self.nodes.get(*at).map_or(0, |n| n.hash);
        std::hint::black_box(at.iter().map(node).fold(0, u64::wrapping_add));
    }

    fn look<E: Emit>(&mut self, e: &mut E, _: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        let size = e.load(0x148, 1, SIZE, 8, [NONE; 2]);
        e.branch(0x150, 0xd0, 1, true, [size, NONE]);
        let located = self.locate(e, 0xd0, key, sp);
        let hash = key.hash();
        e.call(0xf8, 0x1000, 3, sp);
        let before = self.find_before(e, 0xf8, key, hash, located, sp);
        e.branch(0x100, 0, 2, before.is_none(), [NONE; 2]);
        let (before, ready) = before?;
        let at = e.load(0x106, 1, self.next_va(before), 8, [ready, NONE]);
        e.branch(0x10c, 0, 2, false, [at, NONE]);
        e.jump(0x112, 0x1a2, 1, pagewalk_stream::flags::TAKEN, [NONE; 2]);
        Some(self.found(self.next(before), at, false))
    }

    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep {
        const CODE: u64 = 0x1110;
        e.call(0x74, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        e.compute(CODE + 0x11, 4, 1, [NONE; 2]);
        let frame = sp - 56 - 0x28;
        let located = self.locate(e, CODE + 0x19, key, frame);
        let hash = key.hash();
        e.call(CODE + 0x3d, 0x1000, 5, frame);
        let before = self.find_before(e, CODE + 0x3d, key, hash, located, frame);
        e.branch(CODE + 0x45, CODE + 0x68, 2, before.is_none(), [NONE; 2]);
        if let Some((before, ready)) = before {
            let at = e.load(CODE + 0x47, 1, self.next_va(before), 8, [ready, NONE]);
            self.leave(e, sp);
            return IndexStep::Done(self.found(self.next(before), at, false));
        }
        let id = self.make(e, heap, key, hash, sp);
        if self.nodes.len() <= self.limit() {
            return IndexStep::Done(self.link(e, id, sp));
        }
        let count = PRIMES[self.prime];
        self.prime += 1;
        let (array, _) = libc::new(e, heap, (0x1320, 12), 8 * u64::from(count), sp - 56 - 0x28);
        self.growth = Some(Growth {
            buckets: vec![NIL; count as usize],
            array,
            cleared: 0,
            node: self.first,
            first: NIL,
            behind: 0,
            fresh: id,
        });
        IndexStep::More
    }

    fn proceed<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> IndexStep {
        match self.rehash(e, heap, sp) {
            Some(fresh) => IndexStep::Done(self.link(e, fresh, sp)),
            None => IndexStep::More,
        }
    }

    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone> {
        self.take_out(e, heap, key, sp)
    }

    fn key_text(&self, id: u32) -> u64 {
        self.nodes[id as usize].key.va()
    }

    fn value_object(&self, found: &Found) -> u64 {
        found.record + 40
    }

    fn value_text(&mut self, id: u32) -> &mut Place {
        &mut self.nodes[id as usize].value
    }

    fn footprint(keys: u64, value: u64) -> u64 {
        let chunk = crate::heap::chunk;
        let buckets = PRIMES.iter().find(|p| u64::from(**p) >= keys);
        let record = chunk(NODE_BYTES) + chunk(libc::KEY_BYTES + 1) + chunk(value + 1);
        keys * record + 8 * u64::from(*buckets.unwrap_or(&u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, Hash, NIL};
    use crate::kv::check;

    /// Every node is in its bucket, and the bucket knows the node before its first.
    fn check_list(hash: &Hash) {
        let (mut before, mut node, mut count) = (BEGIN, hash.first, 0);
        let mut last = None;
        while node != NIL {
            let bucket = hash.bucket(hash.nodes[node as usize].hash);
            if last != Some(bucket) {
                assert_eq!(hash.buckets[bucket], before);
            }
            (last, before) = (Some(bucket), node);
            node = hash.nodes[node as usize].next;
            count += 1;
        }
        assert_eq!(count, hash.nodes.len());
        assert!(count <= hash.buckets.len());
    }

    proptest::proptest! {
        #[test]
        fn erased_keys_leave_one_list(requests in check::requests()) {
            let mut hash = Hash::new(64);
            check::erasing_against_oracle(&mut hash, &requests);
            check_list(&hash);
        }

        #[test]
        fn is_one_list_with_every_key(numbers in proptest::collection::vec(0u64..3000, 1..600)) {
            let mut hash = Hash::new(64);
            check::against_oracle(&mut hash, &numbers);
            check_list(&hash);
        }
    }
}
