//! Library code that dominates the programs' time: glibc 2.36 with AVX2, libstdc++ of gcc 12. Each function
//! emits the instructions of its disassembly.
//!
//! `sp` is the stack pointer of the caller and `pc` the address of the call. `insns` counts instructions up
//! to and including the call, as everywhere.

use super::emit::{Emit, Library};
use super::globals::ARENA;
use super::malloc::new_body;
pub use super::malloc::{free, malloc, new};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

/// Bytes of a key.
pub const KEY_BYTES: u64 = 24;

/// `memcpy` of 24, or 32 to 256 bytes.
///
/// ```text
/// 00 mov ; cmp $0x20 ; 07 jb 30
/// 09 ymm0 = (src) ; cmp $0x40 ; 11 ja c0
/// 17 ymm1 = end ; 1d two stores ; 27 vzeroupper ; ret
/// 30 cmp ; jae 62 : 62 two loads and stores of 16 bytes ; 76 ret
/// c0 cmp threshold ; c7 ja ; cd cmp $0x100 ; d4 ja ; d6 ymm1 ; db cmp $0x80 ; e2 jbe 91
/// ```
#[inline(always)]
pub fn memcpy<E: Emit>(
    e: &mut E,
    (pc, insns): (u64, u16),
    to: (u64, Value),
    from: (u64, Value),
    bytes: u64,
    sp: u64,
) {
    let code = Library::Memcpy.code();
    e.call_library(pc, Library::Memcpy, insns, sp);
    let (to, at) = to;
    let (from, ready) = from;
    e.branch(code + 0x7, code + 0x30, 3, bytes < 32, [NONE; 2]);
    if bytes < 32 {
        e.branch(code + 0x33, code + 0x62, 2, true, [NONE; 2]);
        let first = e.load(code + 0x62, 1, from, 16, [ready, NONE]);
        let last = e.load(code + 0x66, 1, from + bytes - 16, 16, [ready, NONE]);
        e.store(code + 0x6c, 1, to, 16, at, first);
        e.store(code + 0x70, 1, to + bytes - 16, 16, at, last);
        e.ret(code + 0x76, pc, 1, sp);
        return;
    }
    let mut words = [NONE; 8];
    words[0] = e.load(code + 0x9, 1, from, 32, [ready, NONE]);
    e.branch(code + 0x11, code + 0xc0, 2, bytes > 64, [NONE; 2]);
    let pieces = (bytes / 32).next_power_of_two() as usize;
    let place = |i: usize| {
        if i < pieces / 2 {
            32 * i as u64
        } else {
            bytes - 32 * (i - pieces / 2 + 1) as u64
        }
    };
    let mut body = code + 0x17;
    if bytes > 64 {
        e.load(code + 0xc0, 1, ARENA + 0x1f00, 8, [NONE; 2]);
        e.branch(code + 0xc7, code + 0x2c0, 1, false, [NONE; 2]);
        e.branch(code + 0xd4, code + 0x135, 2, false, [NONE; 2]);
        words[1] = e.load(code + 0xd6, 1, from + 32, 32, [ready, NONE]);
        e.branch(code + 0xe2, code + 0x91, 2, bytes <= 128, [NONE; 2]);
        body = code + if bytes <= 128 { 0x91 } else { 0xe4 };
    }
    let begun = if bytes > 64 { 2 } else { 1 };
    for (i, word) in words.iter_mut().enumerate().take(pieces).skip(begun) {
        *word = e.load(body + 6 * i as u64, 1, from + place(i), 32, [ready, NONE]);
    }
    for (i, word) in words.iter().enumerate().take(pieces) {
        e.store(body + 0x30 + 5 * i as u64, 1, to + place(i), 32, at, *word);
    }
    e.ret(body + 0x60, pc, 2, sp);
}

/// `memcmp` of two keys. `same` is the length of their common prefix, in characters.
///
/// ```text
/// 00 cmp $0x20 ; 04 jb 2e0 : 2e0 cmp $1 ; 2e3 jbe
/// 2e5 both addresses within 32 bytes of the end of a page? 2f3 jg 320
/// 2f5 ymm2 = (b) ; 2f9 vpcmpeqb (a) ; vpmovmskb ; inc ; bzhi ; 308 jne d0
/// 30e xor ; vzeroupper ; 313 ret
/// d0 tzcnt ; d4 movzbl (b) ; d8 movzbl (a) ; sub ; vzeroupper ; e1 ret
/// 320 jae 3a3 : the same in two halves of 16 bytes
/// ```
#[inline(always)]
pub fn memcmp<E: Emit>(
    e: &mut E,
    (pc, insns): (u64, u16),
    a: (u64, Value),
    b: (u64, Value),
    same: u64,
    sp: u64,
) -> Value {
    let code = Library::Memcmp.code();
    e.call_library(pc, Library::Memcmp, insns, sp);
    e.branch(code + 0x4, code + 0x2e0, 2, true, [NONE; 2]);
    e.branch(code + 0x2e3, code + 0x360, 2, false, [NONE; 2]);
    let crosses = (a.0 | b.0) & 0xfff > 0xfe0;
    e.branch(
        code + 0x2f3,
        code + 0x320,
        5,
        crosses,
        [a.1.plus(2), b.1.plus(2)],
    );
    let mut found = NONE;
    if crosses {
        e.branch(code + 0x323, code + 0x3a3, 2, true, [NONE; 2]);
        for (half, at) in [(0, 0), (0x17, KEY_BYTES - 16)] {
            let one = e.load(code + 0x3a3 + half, 1, b.0 + at, 16, [b.1, NONE]);
            let skip = if half == 0 { 1 } else { 3 };
            let two = e.load(code + 0x3a7 + half, skip, a.0 + at, 16, [a.1, NONE]);
            found = two.plus(3);
            let differs = same < if half == 0 { 16 } else { KEY_BYTES };
            let on = [one.plus(3), found];
            e.branch(code + 0x3b4 + half, code + 0xd0, 3, differs, on);
            if differs {
                break;
            }
        }
        if same >= KEY_BYTES {
            e.ret(code + 0x3dd, pc, 1, sp);
            return found;
        }
    } else {
        let one = e.load(code + 0x2f5, 1, b.0, 32, [b.1, NONE]);
        let two = e.load(code + 0x2f9, 1, a.0, 32, [a.1, NONE]);
        found = two.plus(6);
        let on = [one.plus(6), found];
        e.branch(code + 0x308, code + 0xd0, 4, same < KEY_BYTES, on);
        if same >= KEY_BYTES {
            e.ret(code + 0x30e, pc, 3, sp);
            return found;
        }
    }
    e.load(code + 0xd4, 2, b.0 + same, 1, [found.plus(1), NONE]);
    let last = e.load(code + 0xd8, 1, a.0 + same, 1, [found.plus(1), NONE]);
    e.ret(code + 0xe1, pc, 3, sp);
    last.plus(1)
}

/// `std::_Hash_bytes` of a key: Murmur's 64-bit hash, eight bytes per iteration.
///
/// ```text
/// 00 endbr64 … 2b je 58 ; nopl
/// 30 mov (%rcx) ; add ; imul ; mov ; shr ; xor ; imul ; xor ; imul ; mov ; cmp ; 56 jne 30
/// 58 and ; 5b je 8d : 8d movabs ; mov ; shr ; xor ; imul ; mov ; shr ; xor ; af ret
/// ```
#[inline(always)]
pub fn hash<E: Emit>(e: &mut E, (pc, insns): (u64, u16), text: (u64, Value), sp: u64) -> Value {
    let code = Library::Hash.code();
    e.call_library(pc, Library::Hash, insns, sp);
    e.branch(code + 0x2b, code + 0x58, 12, false, [NONE; 2]);
    let mut words = [NONE; 3];
    for (i, word) in words.iter_mut().enumerate() {
        let first = if i == 0 { 2 } else { 1 };
        *word = e.load(code + 0x30, first, text.0 + 8 * i as u64, 8, [text.1, NONE]);
        e.branch(code + 0x56, code + 0x30, 11, i < 2, [NONE; 2]);
    }
    e.branch(code + 0x5b, code + 0x8d, 2, true, [NONE; 2]);
    // The first word takes 12 cycles to the state's last multiplication, each later one 4 more.
    let hash = e.compute(code + 0x8d, 8, 7, [words[0].plus(20), words[2].plus(12)]);
    e.ret(code + 0xaf, pc, 1, sp);
    hash
}

/// The host's `std::_Hash_bytes` of a key with libstdc++'s seed.
pub fn hash_of(text: &[u8; KEY_BYTES as usize]) -> u64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = 0xc70f_6907 ^ KEY_BYTES.wrapping_mul(MUL);
    for word in text.as_chunks::<8>().0 {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(MUL);
        hash = (hash ^ (mixed ^ mixed >> 47).wrapping_mul(MUL)).wrapping_mul(MUL);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(MUL);
    hash ^ hash >> 47
}

/// A `std::string`: the address of the object, and of its characters.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The object: pointer, length, and capacity or the text itself if short.
    pub object: (u64, Value),
    /// Address of its characters.
    pub at: u64,
}

/// `std::string::assign` of a text of the same length: `_M_replace`.
///
/// ```text
/// 00 endbr64 ; movabs ; push six registers ; 22 mov 8(%rdi) ; 2c jb
/// 35 mov (%rdi) ; 4c je ; 52 mov 0x10(%rdi) ; 59 jb ; 72 jae
/// 77 je a8 : ab je ; b1 je ; c0 call memcpy
/// c5 mov (%rbx) ; c8 mov %r13,8(%rbx) ; cc movb $0 ; d1 pop six registers ; e2 ret
/// ```
#[inline(always)]
pub fn assign<E: Emit>(
    e: &mut E,
    (pc, insns): (u64, u16),
    to: Text,
    from: (u64, Value),
    bytes: u64,
    sp: u64,
) {
    let code = Library::Replace.code();
    let frame = replace_head(e, (pc, insns), to, (false, false), sp);
    e.branch(code + 0x72, code + 0xe8, 7, false, [NONE; 2]);
    e.branch(code + 0x77, code + 0xa8, 2, true, [NONE; 2]);
    e.branch(code + 0xab, code + 0xc5, 2, false, [NONE; 2]);
    e.branch(code + 0xb1, code + 0x1b8, 2, false, [NONE; 2]);
    memcpy(e, (code + 0xc0, 4), (to.at, frame.1), from, bytes, frame.0);
    replace_tail(e, pc, to, bytes, sp);
}

/// `_M_replace` up to the comparison with the capacity. `own`: the string is stored in the object. `grows`:
/// it needs more room. Returns the stack pointer within, and the pointer to the characters.
#[inline(always)]
fn replace_head<E: Emit>(
    e: &mut E,
    (pc, insns): (u64, u16),
    to: Text,
    (own, grows): (bool, bool),
    sp: u64,
) -> (u64, Value) {
    let code = Library::Replace.code();
    let (object, ready) = to.object;
    e.call_library(pc, Library::Replace, insns, sp);
    e.store(code + 0xe, 3, sp - 16, 8, NONE, NONE);
    e.push(code + 0x10, 5, sp - 16);
    let length = e.load(code + 0x22, 5, object + 8, 8, [ready, NONE]);
    e.branch(code + 0x2c, code + 0x2b7, 3, false, [length.plus(1), NONE]);
    let text = e.load(code + 0x35, 2, object, 8, [ready, NONE]);
    e.branch(code + 0x4c, code + 0x1d8, 7, own, [text, NONE]);
    if own {
        // The object itself holds its characters, if any.
        e.jump(
            code + 0x1dd,
            code + 0x56,
            2,
            pagewalk_stream::flags::TAKEN,
            [NONE; 2],
        );
        e.branch(code + 0x59, code + 0x1a0, 2, grows, [length.plus(2), NONE]);
    } else {
        let capacity = e.load(code + 0x52, 1, object + 16, 8, [ready, NONE]);
        e.branch(code + 0x59, code + 0x1a0, 2, grows, [capacity, length]);
    }
    (sp - 56 - 0x28, text)
}

#[inline(always)]
fn replace_tail<E: Emit>(e: &mut E, pc: u64, to: Text, bytes: u64, sp: u64) {
    let code = Library::Replace.code();
    let (object, ready) = to.object;
    let text = e.load(code + 0xc5, 1, object, 8, [ready, NONE]);
    e.store(code + 0xc8, 1, object + 8, 8, ready, NONE);
    e.store(code + 0xcc, 1, to.at + bytes, 1, text, NONE);
    e.load(code + 0xd8, 3, sp - 56, 8, [NONE; 2]);
    e.pop(code + 0xd9, 5, sp - 16);
    e.ret(code + 0xe2, pc, 1, sp);
}

/// `std::string::assign` of a text that exceeds the capacity: `_M_mutate` allocates memory, whose address is
/// returned. `old` is the address and capacity of the present characters, `None` for a string that is still
/// empty.
#[inline(always)]
pub fn assign_more<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    (pc, insns): (u64, u16),
    (object, old): ((u64, Value), Option<(u64, u64)>),
    from: (u64, Value),
    bytes: u64,
    sp: u64,
) -> u64 {
    let (replace, code) = (Library::Replace.code(), Library::Mutate.code());
    let own = old.is_none();
    let now = Text {
        object,
        at: old.map_or(object.0 + 16, |o| o.0),
    };
    let (inner, _) = replace_head(e, (pc, insns), now, (own, true), sp);
    // 1a0 three moves and the call; six registers, the source, the lengths.
    e.call_library(replace + 0x1a9, Library::Mutate, 4, inner);
    e.store(code + 0x4, 2, inner - 16, 8, NONE, NONE);
    e.push(code + 0xa, 5, inner - 16);
    let frame = inner - 56 - 0x28;
    e.store(code + 0x23, 8, frame, 8, NONE, NONE);
    let length = e.load(code + 0x27, 1, object.0 + 8, 8, [object.1, NONE]);
    e.store(code + 0x31, 3, frame + 8, 8, NONE, length.plus(1));
    e.store(code + 0x3f, 4, frame + 0x18, 8, NONE, length.plus(2));
    let text = e.load(code + 0x44, 1, object.0, 8, [object.1, NONE]);
    e.branch(code + 0x47, code + 0x120, 1, own, [text, NONE]);
    if own {
        let back = pagewalk_stream::flags::TAKEN;
        e.jump(code + 0x125, code + 0x51, 2, back, [NONE; 2]);
    } else {
        e.load(code + 0x4d, 1, object.0 + 16, 8, [object.1, NONE]);
    }
    let (at, ready) = create(e, heap, (code + 0x59, 3), frame + 0x18, bytes, frame);
    e.branch(code + 0x64, code + 0x7e, 3, true, [NONE; 2]);
    e.load(code + 0x7e, 1, frame, 8, [NONE; 2]);
    e.branch(code + 0x83, code + 0xa0, 1, false, [NONE; 2]);
    e.branch(code + 0x88, code + 0xa0, 2, false, [NONE; 2]);
    e.branch(code + 0x92, code + 0x190, 3, false, [NONE; 2]);
    e.load(code + 0x94, 1, frame, 8, [NONE; 2]);
    memcpy(e, (code + 0x9b, 2), (at, ready), from, bytes, frame);
    // The replaced characters are the last ones. Only separately allocated characters are freed.
    e.load(code + 0xa0, 1, frame + 8, 8, [NONE; 2]);
    e.branch(code + 0xa5, code + 0xd0, 1, false, [NONE; 2]);
    let before = e.load(code + 0xd0, 1, object.0, 8, [object.1, NONE]);
    e.branch(code + 0xd3, code + 0xe6, 1, own, [before, NONE]);
    if let Some((at, room)) = old {
        // `operator delete` through its stub, which jumps to `free`.
        free(e, heap, (code + 0xd5, 1), (at, before), room + 1, frame);
    }
    let capacity = e.load(code + 0xe6, 1, frame + 0x18, 8, [NONE; 2]);
    e.store(code + 0xeb, 1, object.0, 8, object.1, ready);
    e.store(code + 0xee, 1, object.0 + 16, 8, object.1, capacity);
    e.load(code + 0xf6, 2, inner - 56, 8, [NONE; 2]);
    e.pop(code + 0xf7, 5, inner - 16);
    e.ret(code + 0x100, replace + 0x1a9, 1, inner);
    e.jump(
        replace + 0x1b0,
        replace + 0xc5,
        1,
        pagewalk_stream::flags::TAKEN,
        [NONE; 2],
    );
    let to = Text { object, at };
    replace_tail(e, pc, to, bytes, sp);
    at
}

/// `std::string::_M_create`: memory for `bytes` characters and the final zero. The caller stores the capacity
/// at `wanted`.
#[inline(always)]
pub fn create<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    (pc, insns): (u64, u16),
    wanted: u64,
    bytes: u64,
    sp: u64,
) -> (u64, Value) {
    let code = Library::Create.code();
    e.call_library(pc, Library::Create, insns, sp);
    let capacity = e.load(code + 0xe, 3, wanted, 8, [NONE; 2]);
    e.branch(code + 0x14, code + 0x4c, 2, false, [capacity, NONE]);
    e.branch(code + 0x1d, code + 0x39, 3, false, [capacity, NONE]);
    e.branch(code + 0x25, code + 0x39, 3, true, [capacity, NONE]);
    // A tail call: `new` returns to our caller.
    e.jump(
        code + 0x39,
        Library::New.code(),
        1,
        pagewalk_stream::flags::TAKEN,
        [NONE; 2],
    );
    new_body(e, heap, pc, bytes + 1, sp)
}

/// Part of a `memset` of a large array: `rep stosb`, one instruction that stores line by line.
pub fn clear<E: Emit>(e: &mut E, at: u64, bytes: u64) {
    let mut va = at;
    while va < at + bytes {
        let size = (at + bytes - va).min(64 - va % 64);
        let insns = u16::from(va == at);
        e.store(Library::Memset.code(), insns, va, size as u8, NONE, NONE);
        va += size;
    }
}

#[cfg(test)]
mod tests {
    use super::hash_of;

    /// Printed by `std::hash<std::string>` of gcc 12.2.
    #[test]
    fn hashes_are_those_of_libstdcxx() {
        let hash = |text: &[u8; 24]| hash_of(text);
        assert_eq!(hash(b"user06284781860667377211"), HASHES[0]);
        assert_eq!(hash(b"user00000000000000000000"), HASHES[1]);
    }

    const HASHES: [u64; 2] = [330_447_869_266_944_579, 7_290_287_590_108_708_510];
}
