//! `absl::Hash<std::string>` of Abseil 20220623 on x86-64. `LowLevelHash` (wyhash) hashes the characters.
//! Their hash and then their number are mixed in by 128-bit multiplications. The seed is an address in the
//! program.
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! combine 1700 push two ; 09 mov 8(%rsi) ; mov (%rsi) ; cmp ; 14 jbe ; cmp ; 1d ja ; 26 call LowLevelHashImpl
//!   mov ; movabs ; lea ; mul ; mov ; xor ; add ; add ; movabs ; mov ; pop two ; mul ; xor ; 62 ret
//! LowLevelHashImpl (3) mov &seed ; lea ; jmp to the stub of LowLevelHash
//! LowLevelHash (60) push six ; 10 mov salt ; 13 mov salt ; xor ; cmp ; 1e jbe db ; db cmp ; df jbe ; mov ; lea
//!   f0 mov (%rcx) ; xor 8(%rcx) ; … mul ; … 111 ja f0 ; … 136 jbe 168 ; 168 cmp ; jbe ; 16e mov ; xor ; mov ; … 17e jmp 146
//!   146 … mul ; pop six ; xor ; mul ; xor ; 162 ret
//! ```

use pagewalk_stream::flags::{INDIRECT, TAKEN};

use crate::kv::emit::{Emit, Library};
use crate::kv::globals::{MAP, TABLE};
use crate::kv::libc::KEY_BYTES;
use crate::kv::ycsb;
use crate::thread::{NONE, Value};

/// Address of `MixingHashState::kSeed`. The seed is this address.
pub const SEED: u64 = TABLE + 0x800;
/// `kHashSalt`: the first digits of pi.
const SALT: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];
/// `kMul` of `MixingHashState`.
const MUL: u64 = 0x9ddf_ea08_eb38_2d69;

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Hash of the key with this number, in a program whose seed has the address `seed`.
pub fn hash_of(number: u64, seed: u64) -> u64 {
    let text = ycsb::text(number);
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| text[at + i]));
    // `LowLevelHash`: 16 characters, then the last 8 in halves.
    let state = mix(word(0) ^ SALT[1], word(8) ^ seed ^ SALT[0]);
    let (low, high) = (word(16) & 0xffff_ffff, word(16) >> 32);
    let text_hash = mix(mix(low ^ SALT[1], high ^ state), SALT[1] ^ KEY_BYTES);
    let state = mix(seed.wrapping_add(text_hash), MUL);
    mix(state.wrapping_add(KEY_BYTES), MUL)
}

/// Emits a call of the hash, with `insns` instructions up to the call. The view of the text is at `view`.
/// Returns the value that produces the hash.
#[inline(always)]
pub fn emit<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (view, text): (u64, u64),
    sp: u64,
) -> Value {
    const CODE: u64 = 0x1700;
    e.call(site, CODE, insns, sp);
    e.push(CODE, 2, sp - 8);
    e.load(CODE + 0x9, 3, view + 8, 8, [NONE; 2]);
    let ready = e.load(CODE + 0xd, 1, view, 8, [NONE; 2]);
    e.branch(CODE + 0x14, CODE + 0x68, 2, false, [NONE; 2]);
    e.branch(CODE + 0x1d, CODE + 0x100, 2, false, [NONE; 2]);
    // Hash of the characters, called through two stubs.
    let (low, inner) = (Library::LowLevelHash.code(), sp - 8 - 24);
    e.call_library(CODE + 0x26, Library::LowLevelHash, 2, inner);
    e.load(low + 0x160, 1, MAP + 0x100, 8, [NONE; 2]);
    e.jump(low + 0x16e, low + 0x1f0, 2, TAKEN, [NONE; 2]);
    let to = e.load(low + 0x1f0, 1, TABLE + 0x100, 8, [NONE; 2]);
    e.jump(low + 0x1f0, low, 0, TAKEN | INDIRECT, [to, NONE]);
    for (i, counted) in [1, 2, 2, 1, 1, 1].into_iter().enumerate() {
        let i = i as u64;
        e.store(low + 2 * i, counted, inner - 16 - 8 * i, 8, NONE, NONE);
    }
    e.load(low + 0x10, 1, TABLE + 0x840, 8, [NONE; 2]);
    e.load(low + 0x13, 1, TABLE + 0x848, 8, [NONE; 2]);
    e.branch(low + 0x1e, low + 0xdb, 3, true, [NONE; 2]);
    e.branch(low + 0xdf, low + 0x132, 2, false, [NONE; 2]);
    let one = e.load(low + 0xf0, 4, text, 8, [ready, NONE]);
    let two = e.load(low + 0xf3, 1, text + 8, 8, [ready, NONE]);
    e.branch(low + 0x111, low + 0xf0, 9, false, [NONE; 2]);
    e.branch(low + 0x136, low + 0x168, 10, true, [NONE; 2]);
    e.branch(low + 0x16c, low + 0x180, 2, false, [NONE; 2]);
    let three = e.load(low + 0x16e, 1, text + 20, 4, [ready, NONE]);
    e.load(low + 0x176, 2, text + 16, 4, [ready, NONE]);
    e.jump(low + 0x17e, low + 0x146, 3, TAKEN, [NONE; 2]);
    e.pop(low + 0x14c, 6, inner - 8);
    // A multiplication with its exclusive ors takes five cycles. Three of them form a chain.
    let state = e.compute(low + 0x146, 3, 6, [one, two]);
    let mixed = e.compute(low + 0x14e, 3, 12, [state.plus(2), three.plus(1)]);
    e.ret(low + 0x162, CODE + 0x26, 1, inner);
    e.pop(CODE + 0x5a, 2, sp - 8);
    let hash = e.compute(CODE + 0x5c, 12, 13, [mixed, NONE]);
    e.ret(CODE + 0x62, site, 1, sp);
    hash
}
