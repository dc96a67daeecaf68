//! Interface between a key-value program and its structure.
//!
//! [`Index::look`] takes a key and returns its record's address. A table in front of the structure
//! ([`Shortcut`](super::shortcut::Shortcut)) takes and returns the same.

use super::emit::Emit;
use super::libc::{self, Text};
use super::records::Sizes;
use super::redis::{Parts, WholeGet};
use super::ycsb;
use crate::heap::Heap;
use crate::layout::{HEAP, Layout};
use crate::thread::{NONE, Value};

/// A key of a request: 24 characters in a `std::string` (or sds).
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The number whose decimal digits are the characters. Texts compare as their numbers do.
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

/// Length of the common prefix of the keys with these numbers, in characters.
#[inline]
pub fn same(a: u64, b: u64) -> u64 {
    if a == b {
        return libc::KEY_BYTES;
    }
    // The difference has `digit` + 1 digits. The texts differ there or, by a carry, further up.
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
    /// Bytes of heap that a place can address.
    pub const REACH: u64 = 16 << 32;

    /// The place of the object at `va`.
    ///
    /// # Panics
    /// If `va` is not in the heap's first 64 GiB. Programs whose heap could grow beyond it are refused at the
    /// start.
    pub fn new(va: u64) -> Self {
        debug_assert!(va >= HEAP && va.is_multiple_of(16));
        let units = u32::try_from((va - HEAP) / 16);
        Place(units.expect("a heap that was found to fit 64 GiB"))
    }
    /// Address of the object.
    #[inline(always)]
    pub fn va(self) -> u64 {
        HEAP + 16 * u64::from(self.0)
    }
}

/// A record that was found or inserted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    /// Number of the record in the order of insertion.
    pub id: u32,
    /// Address of the record: the node, slot or entry with its key and value.
    pub record: u64,
    /// Value that produces that address.
    pub at: Value,
    /// True if it was inserted now, and has no value yet.
    pub fresh: bool,
}

/// A record found by its address in a shortcut table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    /// Its number in the order of insertion.
    pub id: u32,
    /// The index that holds it.
    pub owner: usize,
    /// The number of its key.
    pub number: u64,
    /// Address of its pair of key and value, or entry.
    pub va: u64,
    /// Value that produces that address.
    pub at: Value,
}

/// A record's move from one address to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Move {
    /// Its number in the order of insertion.
    pub id: u32,
    /// The number of its key.
    pub number: u64,
    /// Old address.
    pub from: u64,
    /// New address.
    pub to: u64,
}

/// An erased record.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gone {
    /// Its former number.
    pub id: u32,
    /// Its address.
    pub record: u64,
}

/// Number of keys that are looked up side by side.
pub const AHEAD: usize = 32;

/// Progress of an operation that may take many steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum IndexStep {
    /// [`Index::proceed`] continues it.
    More,
    /// It is complete.
    Done(Found),
}

/// Objects on the heap when `main` of a C++ program begins: glibc's thread cache (`tcache_perthread_struct`)
/// and libstdc++'s reserve for exceptions (the pool in `eh_alloc.cc`). They determine the offset within pages
/// and lines of all later objects.
pub const START: [u64; 2] = [640, 72_704];

/// A structure of a key-value program. `sp` is the stack pointer of the program's main function.
pub trait Index: Send + Sync + 'static {
    /// Host memory per key, in bytes: its record and its share of the arrays, with the old arrays during
    /// growth.
    const HOST_BYTES: u64;

    /// Bytes from the start of a record to its pair of key and value, or entry. Pointers to records point
    /// there.
    const PAIR: u64;

    /// Bytes between the stack pointer of the program's main function and the end of its frame.
    const FRAME: u64 = 0x60;

    /// True if the program first copies a request's key into a string of its own.
    const COPIES_KEY: bool = true;

    /// The code around a search that GETs execute unless `request=lookup`. `None` for a container.
    fn whole(_: &mut Heap, _: Parts) -> Option<WholeGet> {
        None
    }

    /// The allocator of the program.
    fn heap(layout: Layout) -> Heap {
        Heap::new(layout)
    }

    /// Allocates the objects that precede the program's own on the heap.
    fn begin(&mut self, heap: &mut Heap) {
        for bytes in START {
            heap.malloc(bytes);
        }
    }

    /// Lengths of the values of its records.
    fn sizes(&mut self) -> &mut Sizes;

    /// Prefetches the host's data for the keys with these numbers. Looking them up side by side overlaps the
    /// host's cache misses, which makes loading millions of keys several times faster.
    fn warm(&self, numbers: &[u64]);

    /// The record of `key`, by the structure's own search. A search may perform a step of a growth, so
    /// it takes the heap.
    fn look<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Found>;

    /// True if a lookup changes no state.
    fn settled(&self) -> bool {
        true
    }

    /// First part of a GET, before its record is found.
    fn begin_get<E: Emit>(&mut self, _: &mut E, _: &Key, _: u64) {}
    /// Last part of a GET, after its record was found, except for the value.
    fn end_get<E: Emit>(&mut self, _: &mut E, _: Option<&Found>, _: u64) {}

    /// A GET without a shortcut, except for the value.
    fn find<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        self.begin_get(e, key, sp);
        let found = self.look(e, heap, key, sp);
        self.end_get(e, found.as_ref(), sp);
        found
    }

    /// Address of the characters of a record's key.
    fn key_text(&self, id: u32) -> u64;

    /// Loads the length of `key` and the address of its characters. Returns the value that produces the
    /// latter.
    fn operand<E: Emit>(&self, e: &mut E, pc: u64, key: &Key) -> Value {
        e.load(pc, 1, key.object + 8, 8, [NONE; 2]);
        e.load(pc + 5, 1, key.object, 8, [NONE; 2])
    }

    /// Compares the key of `record` with `key`: lengths, then characters. Six instructions in C++, and those
    /// of `memcmp`. Returns the value that produces the result.
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

    /// Starts to record moves of records.
    fn record_moves(&mut self) {}

    /// Takes the recorded moves, in order.
    fn moves(&mut self) -> Vec<Move> {
        Vec::new()
    }

    /// The record of `key`. Inserts one without a value if there is none.
    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep;

    /// Continues an incomplete [`entry`](Self::entry) by one step of its growth.
    fn proceed<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> IndexStep;

    /// Prepares for erasures of keys. Called before the first insertion.
    fn will_erase(&mut self) {}

    /// Removes the record of `key` and frees its memory. Returns its number and address, `None` if there is none.
    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone>;

    /// Address of the `std::string` object of a record's value.
    fn value_object(&self, found: &Found) -> u64;

    /// Address of the characters of a record's value, for reading and for updating.
    fn value_text(&mut self, id: u32) -> &mut Place;

    /// Loads the address of a record's value. Returns it and the value that produces it.
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
