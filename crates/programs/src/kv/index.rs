//! What a key-value program asks of its structure, whichever it is.
//!
//! This is the seam between a program and the way from a key to its record:
//! [`Index::look`] takes a key and answers with the record's address, and whatever
//! is put in front of it ([`Shortcut`](super::shortcut::Shortcut)) takes the same and
//! answers the same.

use super::emit::Emit;
use super::libc::{self, Text};
use super::records::Sizes;
use super::ycsb;
use crate::heap::Heap;
use crate::layout::{HEAP, Layout};
use crate::thread::{NONE, Value};

/// A key as a request brings it: 24 characters that a `std::string` (or sds) holds.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The number of which the characters are the decimal digits: texts compare
    /// as their numbers do.
    pub number: u64,
    /// Address of the string object.
    pub object: u64,
    /// Address of the characters.
    pub text: u64,
}

impl Key {
    /// The structure's hash of the characters.
    pub fn hash(&self) -> u64 {
        libc::hash_of(&ycsb::text(self.number))
    }
}

/// Characters before the first that differs, of the keys with these numbers.
#[inline]
pub fn same(a: u64, b: u64) -> u64 {
    if a == b {
        return libc::KEY_BYTES;
    }
    // The difference has `digit` + 1 digits, so the texts differ there or, by a
    // carry, further up.
    let mut digit = a.abs_diff(b).ilog10();
    while let Some(power) = 10u64.checked_pow(digit + 1)
        && a / power != b / power
    {
        digit += 1;
    }
    4 + 19 - u64::from(digit)
}

/// A heap address in 32 bits: objects lie at multiples of 16, in 64 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(u32);

impl Place {
    /// Bytes of heap that places reach.
    pub const REACH: u64 = 16 << 32;

    /// Of the object at `va`.
    ///
    /// # Panics
    /// Where `va` is not in the heap's first 64 GiB: programs whose heap could
    /// grow beyond it are refused before they begin.
    pub fn new(va: u64) -> Self {
        debug_assert!(va >= HEAP && va.is_multiple_of(16));
        let units = u32::try_from((va - HEAP) / 16);
        Place(units.expect("a heap that was found to fit 64 GiB"))
    }
    /// Where it is.
    #[inline(always)]
    pub fn va(self) -> u64 {
        HEAP + 16 * u64::from(self.0)
    }
}

/// A record that was found or made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    /// Number of the record in the order of insertion.
    pub id: u32,
    /// Address of the record: the node, slot or entry with its key and value.
    pub record: u64,
    /// What gives that address.
    pub at: Value,
    /// It was made now, and has no value yet.
    pub fresh: bool,
}

/// A record as a table of addresses names it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    /// Its number in the order of insertion.
    pub id: u32,
    /// The index that it belongs to.
    pub owner: usize,
    /// The number of its key.
    pub number: u64,
    /// Address of its pair of key and value, or entry.
    pub va: u64,
    /// What gives that address.
    pub at: Value,
}

/// A record has moved from one address to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Move {
    /// Its number in the order of insertion.
    pub id: u32,
    /// The number of its key.
    pub number: u64,
    /// Where it was.
    pub from: u64,
    /// Where it is.
    pub to: u64,
}

/// A record that was there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gone {
    /// The number that it had.
    pub id: u32,
    /// Its address.
    pub record: u64,
}

/// Keys that are looked for side by side.
pub const AHEAD: usize = 32;

/// How far an operation is that may take long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum IndexStep {
    /// It goes on when [`Index::proceed`] is called.
    More,
    /// It is complete.
    Done(Found),
}

/// What is on the heap when `main` of a C++ program begins: glibc's lists of the
/// thread (`tcache_perthread_struct`) and libstdc++'s reserve for exceptions (the
/// pool in `eh_alloc.cc`). They decide where in its page and across which lines
/// everything after them lies.
pub const START: [u64; 2] = [640, 72_704];

/// See the module. `sp` is the stack pointer of the program's main function.
pub trait Index: Send + Sync + 'static {
    /// Host memory a key takes, in bytes: its record and its part of the arrays
    /// that lead to it, with the old ones while they grow.
    const HOST_BYTES: u64;

    /// Bytes from the begin of a record to its pair of key and value, or entry: to
    /// what a pointer to it points.
    const PAIR: u64;

    /// What lies between the stack pointer of the program's main function and its frame's
    /// end.
    const FRAME: u64 = 0x60;

    /// Whether the program copies a request's key into a string of its own first.
    const COPIES_KEY: bool = true;

    /// The allocator of the program.
    fn heap(layout: Layout) -> Heap {
        Heap::new(layout)
    }

    /// Makes what lies on the heap before the program's own objects.
    fn begin(&mut self, heap: &mut Heap) {
        for bytes in START {
            heap.malloc(bytes);
        }
    }

    /// How long the values of its records are.
    fn sizes(&mut self) -> &mut Sizes;

    /// Brings what the host keeps of the keys with these numbers into its caches:
    /// looks for them side by side, so that the host waits for them together. A
    /// load of millions of keys is several times faster by it.
    fn warm(&self, numbers: &[u64]);

    /// The record of `key`, by the structure's own way from a key to it.
    /// A search may move what is left of a growth, so it has the heap.
    fn look<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Found>;

    /// Whether looking for a record changes nothing.
    fn settled(&self) -> bool {
        true
    }

    /// What a GET does before and after it has the record, but for the value.
    fn begin_get<E: Emit>(&mut self, _: &mut E, _: &Key, _: u64) {}
    /// See [`begin_get`](Self::begin_get).
    fn end_get<E: Emit>(&mut self, _: &mut E, _: Option<&Found>, _: u64) {}

    /// A GET without a shortcut, but for the value.
    fn find<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        self.begin_get(e, key, sp);
        let found = self.look(e, heap, key, sp);
        self.end_get(e, found.as_ref(), sp);
        found
    }

    /// Where the characters of a record's key lie.
    fn key_text(&self, id: u32) -> u64;

    /// Reads the length of `key` and where its characters are: what gives the latter.
    fn operand<E: Emit>(&self, e: &mut E, pc: u64, key: &Key) -> Value {
        e.load(pc, 1, key.object + 8, 8, [NONE; 2]);
        e.load(pc + 5, 1, key.object, 8, [NONE; 2])
    }

    /// Compares the key of `record` with `key`: lengths, then characters. Six
    /// instructions in C++, and those of `memcmp`; what gives the result.
    fn is_of<E: Emit>(&self, e: &mut E, pc: u64, key: &Key, record: &Known, sp: u64) -> Value {
        let length = e.load(pc, 1, key.object + 8, 8, [NONE; 2]);
        let other = e.load(pc + 0x4, 1, record.va + 8, 8, [record.at, NONE]);
        e.branch(pc + 0x8, pc + 0x14, 1, false, [length, other]);
        let mine = e.load(pc + 0xa, 1, key.object, 8, [NONE; 2]);
        let text = e.load(pc + 0xd, 1, record.va, 8, [record.at, NONE]);
        let (a, b) = ((self.key_text(record.id), text), (key.text, mine));
        let equal = same(record.number, key.number);
        libc::memcmp(e, (pc + 0x10, 1), a, b, equal, sp)
    }

    /// From now on notes which records move.
    fn follow_moves(&mut self) {}

    /// The records that have moved since it was asked last, in order.
    fn moves(&mut self) -> Vec<Move> {
        Vec::new()
    }

    /// The record of `key`; a new one without a value when there is none.
    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep;

    /// Goes on with an [`entry`](Self::entry) that was not complete: a part of
    /// the growth that it needs.
    fn proceed<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> IndexStep;

    /// Keys will be erased: said before the first is inserted.
    fn will_erase(&mut self) {}

    /// Takes the record of `key` out and gives its memory back: which it was, and where it
    /// lay; none if it is not there.
    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone>;

    /// Where the `std::string` object of a record's value lies.
    fn value_object(&self, found: &Found) -> u64;

    /// Where the characters of a record's value lie, and where to note that they
    /// lie elsewhere now.
    fn value_text(&mut self, id: u32) -> &mut Place;

    /// Reads where the value of a record is: its address and what gives it.
    fn value<E: Emit>(&mut self, e: &mut E, found: &Found) -> (u64, Value) {
        let object = self.value_object(found);
        e.load(0x1a9, 1, object + 8, 8, [found.at, NONE]);
        let text = e.load(0x1b4, 2, object, 8, [found.at, NONE]);
        (self.value_text(found.id).va(), text)
    }

    /// Writes the value of `bytes` at `from` into a record.
    fn write<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        found: &Found,
        (from, bytes): ((u64, Value), u64),
        sp: u64,
    ) {
        let object = (self.value_object(found), found.at);
        e.load(0x7e, 1, object.0 + 8, 8, [object.1, NONE]);
        e.load(0x82, 1, from.0 - 0x1c, 4, [from.1, NONE]);
        let call = (0x8f, 4);
        let room = u64::from(self.sizes().of(found.id).room);
        let at = self.value_text(found.id).va();
        if found.fresh || bytes > room {
            let old = (!found.fresh).then_some((at, room));
            let at = libc::assign_more(e, heap, call, (object, old), from, bytes, sp);
            *self.value_text(found.id) = Place::new(at);
            self.sizes().set(found.id, bytes, bytes);
        } else {
            libc::assign(e, call, Text { object, at }, from, bytes, sp);
            self.sizes().set(found.id, bytes, room);
        }
        e.jump(0x94, 0, 1, pagewalk_stream::flags::TAKEN, [NONE; 2]);
    }

    /// Bytes of memory for `keys` records with values of `value` bytes.
    fn footprint(keys: u64, value: u64) -> u64
    where
        Self: Sized;
}

#[cfg(test)]
mod tests {
    use super::same;
    use crate::kv::ycsb;

    proptest::proptest! {
        #[test]
        fn texts_differ_where_their_numbers_do(a: u64, shift in 0u32..64, low: u64) {
            let b = a ^ (low >> shift);
            let differ = ycsb::text(a).iter().zip(ycsb::text(b)).position(|(x, y)| *x != y);
            proptest::prop_assert_eq!(same(a, b), differ.unwrap_or(24) as u64);
        }
    }
}
