//! Hash functions for a shortcut table (STLT, table IV). The instructions are those of gcc 12.2 -O2 for a
//! text of unknown length, from `validation/programs/kv_shortcut.h` with xxHash 0.8.1. For a key's 24
//! characters:
//!
//! ```text
//! xxh3 3700 (45) push three ; 0a ja 78 ; 7f ja ; imul ; 97 jbe 15b ; 165 172 two words ; 176 mul
//!   198 19b two words ; 19f mul ; xor ; xor ; add ; add ; 1ba jmp 48 ; shr ; xor ; imul ; shr ; xor ; pop three ; 70 ret
//! xxh64 3900 (79) push five ; 19 jbe 15c ; 16c je ; 199 mov (text) ; imul ; rol ; imul ; xor ; rol ; imul ; add ; cmp ; 1bd jne 199
//!   1c9 jbe 205 ; 208 je 23d ; shr ; pop five ; xor ; imul ; shr ; xor ; imul ; shr ; xor ; 27f ret
//! siphash 3b80 (133) 00 jmp 10 ; seeds ; 69 je ; 70 mov (text) ; a round ; b0 jne 70
//!   bd movslq cases ; c4 jmp *11f ; three rounds ; 1c2 ret
//! djb2 3d40 (198) 03 je ; 10 mov ; add ; shl ; add ; 1e movzbl ; add ; cmp ; 28 jne 10 ; 2a ret
//! murmur (3 and libstdc++'s) mov ; jmp to the stub of _Hash_bytes
//! ```

use pagewalk_stream::flags::{INDIRECT, TAKEN};

use crate::kv::emit::Emit;
use crate::kv::globals::SHORTCUT;
use crate::kv::libc::{self, KEY_BYTES};
use crate::kv::{siphash, ycsb};
use crate::thread::{NONE, Value};

/// Seeds of SipHash, and the jump table of its last word.
const SEEDS: u64 = SHORTCUT + 0x40;
const CASES: u64 = SHORTCUT + 0x60;

/// A hash function of the key's characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastHash {
    /// XXH3 of 64 bits.
    Xxh3,
    /// XXH64 with seed 0.
    Xxh64,
    /// `std::_Hash_bytes`.
    Murmur,
    /// Bernstein's hash: multiply by 33 and add, in 64 bits.
    Djb2,
    /// SipHash-1-2, as in Redis.
    SipHash,
}

impl FastHash {
    /// All by name, the default first.
    pub const ALL: [(&'static str, FastHash); 5] = [
        ("xxh3", FastHash::Xxh3),
        ("xxh64", FastHash::Xxh64),
        ("murmur", FastHash::Murmur),
        ("djb2", FastHash::Djb2),
        ("siphash", FastHash::SipHash),
    ];

    /// Hash of the key with this number.
    pub fn of(self, number: u64) -> u64 {
        let text = ycsb::text(number);
        match self {
            FastHash::Xxh3 => xxhash_rust::xxh3::xxh3_64(&text),
            FastHash::Xxh64 => xxhash_rust::xxh64::xxh64(&text, 0),
            FastHash::Murmur => libc::hash_of(&text),
            FastHash::Djb2 => text.iter().fold(5381, |hash: u64, character| {
                hash.wrapping_mul(33).wrapping_add(u64::from(*character))
            }),
            FastHash::SipHash => siphash::hash_of(number),
        }
    }

    /// Emits a call of the hash on a key's characters, with `insns` instructions up to the call. Returns the
    /// value that produces the hash.
    pub fn emit<E: Emit>(
        self,
        e: &mut E,
        (site, insns): (u64, u16),
        text: (u64, Value),
        sp: u64,
    ) -> Value {
        match self {
            FastHash::Xxh3 => xxh3(e, (site, insns), text, sp),
            FastHash::Xxh64 => xxh64(e, (site, insns), text, sp),
            // This function is a tail call: its two instructions are counted with the call.
            FastHash::Murmur => libc::hash(e, (site, insns + 2), text, sp),
            FastHash::Djb2 => djb2(e, (site, insns), text, sp),
            FastHash::SipHash => sip(e, (site, insns), text, sp),
        }
    }
}

fn xxh3<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (text, ready): (u64, Value),
    sp: u64,
) -> Value {
    const CODE: u64 = 0x3700;
    e.call(site, CODE, insns, sp);
    e.push(CODE, 3, sp - 8);
    e.branch(CODE + 0xa, CODE + 0x78, 2, true, [NONE; 2]);
    e.branch(CODE + 0x7f, CODE + 0x1c0, 2, false, [NONE; 2]);
    e.branch(CODE + 0x97, CODE + 0x15b, 4, true, [NONE; 2]);
    // The first 16 and the last 16 characters, one multiplication each.
    let mut products = [NONE; 2];
    for (i, product) in products.iter_mut().enumerate() {
        let at = text + i as u64 * (KEY_BYTES - 16);
        let (pc, counts) = [(0x165, [2, 2, 4]), (0x198, [3, 1, 1])][i];
        let low = e.load(CODE + pc, counts[0], at, 8, [ready, NONE]);
        let high = e.load(CODE + pc + 0x3, counts[1], at + 8, 8, [ready, NONE]);
        // An exclusive or, then a 64-by-64-bit multiplication.
        *product = e.compute(CODE + pc + 0x7, counts[2], 5, [low, high]);
    }
    e.jump(CODE + 0x1ba, CODE + 0x48, 9, TAKEN, [NONE; 2]);
    // xor, add, add; shift, xor, imul, shift, xor.
    let hash = e.compute(CODE + 0x48, 8, 10, products);
    e.pop(CODE + 0x6a, 3, sp - 8);
    e.ret(CODE + 0x70, site, 1, sp);
    hash
}

fn xxh64<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (text, ready): (u64, Value),
    sp: u64,
) -> Value {
    const CODE: u64 = 0x3900;
    e.call(site, CODE, insns, sp);
    for (i, counted) in [2, 2, 1, 1, 1].into_iter().enumerate() {
        let i = i as u64;
        e.store(CODE + 0xa + 3 * i, counted, sp - 16 - 8 * i, 8, NONE, NONE);
    }
    e.branch(CODE + 0x19, CODE + 0x15c, 2, true, [NONE; 2]);
    e.branch(CODE + 0x16c, CODE + 0x1c5, 6, false, [NONE; 2]);
    let mut words = [NONE; 3];
    for (i, word) in words.iter_mut().enumerate() {
        let first = if i == 0 { 7 } else { 1 };
        *word = e.load(CODE + 0x199, first, text + 8 * i as u64, 8, [ready, NONE]);
        e.branch(CODE + 0x1bd, CODE + 0x199, 10, i < 2, [NONE; 2]);
    }
    e.branch(CODE + 0x1c9, CODE + 0x205, 4, true, [NONE; 2]);
    e.branch(CODE + 0x208, CODE + 0x23d, 2, true, [NONE; 2]);
    for (i, counted) in [2, 1, 2, 1, 2].into_iter().enumerate() {
        let i = i as u64;
        e.load(CODE + 0x240 + 3 * i, counted, sp - 48 + 8 * i, 8, [NONE; 2]);
    }
    // A word takes 7 cycles of its own, and the state 6 per word.
    let hash = e.compute(CODE + 0x24f, 10, 12, [words[0].plus(25), words[2].plus(13)]);
    e.ret(CODE + 0x27f, site, 1, sp);
    hash
}

fn sip<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (text, ready): (u64, Value),
    sp: u64,
) -> Value {
    const CODE: u64 = 0x3b80;
    e.call(site, CODE, insns, sp);
    e.jump(CODE, CODE + 0x10, 1, TAKEN, [NONE; 2]);
    e.load(CODE + 0x13, 2, SEEDS, 8, [NONE; 2]);
    e.load(CODE + 0x1a, 1, SEEDS + 8, 8, [NONE; 2]);
    e.branch(CODE + 0x69, CODE + 0xb2, 15, false, [NONE; 2]);
    let mut words = [NONE; 3];
    for (i, word) in words.iter_mut().enumerate() {
        let first = if i == 0 { 2 } else { 1 };
        *word = e.load(CODE + 0x70, first, text + 8 * i as u64, 8, [ready, NONE]);
        e.branch(CODE + 0xb0, CODE + 0x70, 19, i < 2, [NONE; 2]);
    }
    let case = e.load(CODE + 0xbd, 3, CASES, 4, [NONE; 2]);
    let to = TAKEN | INDIRECT;
    e.jump(CODE + 0xc4, CODE + 0x11f, 2, to, [case.plus(1), NONE]);
    // As in Redis: five cycles per round, three rounds for the words, one for the length, two more.
    let hash = e.compute(CODE + 0x11f, 47, 20, [words[0].plus(10), words[2].plus(2)]);
    e.ret(CODE + 0x1c2, site, 1, sp);
    hash
}

fn djb2<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (text, ready): (u64, Value),
    sp: u64,
) -> Value {
    const CODE: u64 = 0x3d40;
    e.call(site, CODE, insns, sp);
    e.branch(CODE + 0x3, CODE + 0x30, 2, false, [NONE; 2]);
    let (mut first, mut last) = (NONE, NONE);
    for i in 0..KEY_BYTES {
        let counted = if i == 0 { 8 } else { 5 };
        last = e.load(CODE + 0x1e, counted, text + i, 1, [ready, NONE]);
        if i == 0 {
            first = last;
        }
        let more = i + 1 < KEY_BYTES;
        let counted = if more { 3 } else { 2 };
        e.branch(CODE + 0x28, CODE + 0x10, counted, more, [NONE; 2]);
    }
    // Shift, add and add per character.
    let hash = e.compute(CODE + 0x22, 1, 1, [first.plus(3 * (KEY_BYTES - 1)), last]);
    e.ret(CODE + 0x2a, site, 1, sp);
    hash
}

#[cfg(test)]
mod tests {
    use super::FastHash;
    use crate::heap::Heap;
    use crate::kv::emit::Emit;
    use crate::thread::{NONE, Value};

    /// Counts instructions and records the bytes read of the characters at address 0.
    #[derive(Default)]
    struct Count {
        instructions: u64,
        read: Vec<u64>,
    }

    impl Emit for Count {
        const LOUD: bool = true;

        fn load(&mut self, _: u64, insns: u16, va: u64, size: u8, _: [Value; 2]) -> Value {
            self.instructions += u64::from(insns);
            self.read
                .extend((va..va + u64::from(size)).filter(|b| *b < 64));
            NONE
        }
        fn store(&mut self, _: u64, insns: u16, _: u64, _: u8, _: Value, _: Value) {
            self.instructions += u64::from(insns);
        }
        fn compute(&mut self, _: u64, insns: u16, _: u8, _: [Value; 2]) -> Value {
            self.instructions += u64::from(insns);
            NONE
        }
        fn prefetch(&mut self, _: u64, insns: u16, _: u64, _: [Value; 2]) {
            self.instructions += u64::from(insns);
        }
        fn jump(&mut self, _: u64, _: u64, insns: u16, _: u8, _: [Value; 2]) {
            self.instructions += u64::from(insns);
        }
        fn emit_heap_events(&mut self, _: &mut Heap) {}
    }

    /// Counted by Valgrind's callgrind per call, without the call itself.
    #[test]
    fn each_executes_what_the_compiled_one_does_and_reads_the_whole_key() {
        for (hash, instructions) in [
            (FastHash::Xxh3, 45),
            (FastHash::Xxh64, 79),
            (FastHash::Murmur, 63),
            (FastHash::Djb2, 198),
            (FastHash::SipHash, 133),
        ] {
            let mut count = Count::default();
            hash.emit(&mut count, (0x40a, 1), (0, NONE), 1 << 20);
            assert_eq!(count.instructions, instructions + 1, "{hash:?}");
            count.read.sort_unstable();
            count.read.dedup();
            assert_eq!(count.read, (0..24).collect::<Vec<_>>(), "{hash:?}");
        }
    }

    /// Printed by `kv_shortcut hashes`: the code of xxHash and libstdc++, and the two functions defined
    /// there.
    #[test]
    fn hashes_are_those_of_the_published_code() {
        let printed = [
            (
                FastHash::Xxh3,
                [0xf26a_aaf6_1911_e346, 0x74e9_f2f9_9150_8b81],
            ),
            (
                FastHash::Xxh64,
                [0xd5ba_2ee4_3416_e318, 0x1242_6c5a_d841_1c2c],
            ),
            (
                FastHash::Murmur,
                [0x0495_fc96_1870_e243, 0x652c_4df0_06de_3e9e],
            ),
            (
                FastHash::Djb2,
                [0x91c5_ea93_2340_743e, 0x773e_ed2f_ab66_d044],
            ),
            (
                FastHash::SipHash,
                [0xc856_46f1_0d2b_8e31, 0x5ba6_c28b_2083_bcb7],
            ),
        ];
        assert_eq!(printed.len(), FastHash::ALL.len());
        for (hash, [one, none]) in printed {
            assert_eq!(hash.of(6_284_781_860_667_377_211), one, "{hash:?}");
            assert_eq!(hash.of(0), none, "{hash:?}");
        }
    }
}
