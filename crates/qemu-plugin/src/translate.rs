//! The static part: each block's bytes once, and the callbacks that name it.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};

use pagewalk_ring::{Header, record};

use crate::{api, maps, process};

/// Blocks sent so far, by address, sizes and bytes: QEMU translates again after it
/// has thrown its code away, and the number stays the same.
struct Sent {
    numbers: Option<HashMap<Box<[u8]>, u32>>,
    key: Vec<u8>,
}

static SENT: Mutex<Sent> = Mutex::new(Sent {
    numbers: None,
    key: Vec::new(),
});

/// QEMU has translated a block; it calls this for one at a time.
pub unsafe extern "C" fn block(_id: api::Id, block: *mut api::Block) {
    // SAFETY: QEMU's block, alive during the callback.
    let (count, address) = unsafe {
        (
            api::qemu_plugin_tb_n_insns(block),
            api::qemu_plugin_tb_vaddr(block),
        )
    };
    if count == 0 {
        return;
    }
    let mut sent = SENT.lock().unwrap_or_else(|e| e.into_inner());
    let Sent { numbers, key } = &mut *sent;
    if numbers.is_none() {
        // The first block of this image: the guest is loaded.
        *numbers = Some(HashMap::new());
        // SAFETY: QEMU's instruction.
        let host = unsafe { api::qemu_plugin_insn_haddr(api::qemu_plugin_tb_get_insn(block, 0)) };
        maps::send_initial((host as u64).wrapping_sub(address));
    }
    key.clear();
    key.extend(address.to_le_bytes());
    key.extend((count as u32).to_le_bytes());
    for i in 0..count {
        // SAFETY: `i` is below the count.
        key.push(
            unsafe { api::qemu_plugin_insn_size(api::qemu_plugin_tb_get_insn(block, i)) } as u8,
        );
    }
    for i in 0..count {
        // SAFETY: QEMU gives as many bytes as it says.
        key.extend(unsafe {
            let instruction = api::qemu_plugin_tb_get_insn(block, i);
            std::slice::from_raw_parts(
                api::qemu_plugin_insn_data(instruction).cast::<u8>(),
                api::qemu_plugin_insn_size(instruction),
            )
        });
    }
    let numbers = numbers.get_or_insert_default();
    let number = match numbers.get(key.as_slice()) {
        Some(&number) => number,
        None => {
            let number = send(key);
            numbers.insert(key.as_slice().into(), number);
            number
        }
    };
    drop(sent);
    // SAFETY: QEMU's functions, with callbacks of the types that it wants; the
    // arguments are numbers, not pointers.
    unsafe {
        let word = record::word(record::BLOCK, u64::from(number));
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, starts, api::NO_REGISTERS, word as _);
        if process::settings().count {
            api::qemu_plugin_register_vcpu_tb_exec_inline(
                block,
                api::ADD,
                process::EXECUTED.as_ptr().cast(),
                count as u64,
            );
        }
        for i in 0..count {
            let instruction = api::qemu_plugin_tb_get_insn(block, i);
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accesses,
                api::NO_REGISTERS,
                api::READ_WRITE,
                record::memory(i, false) as _,
            );
        }
    }
}

/// Appends a block: a word with the bytes that follow, then they. Returns its number.
fn send(bytes: &[u8]) -> u32 {
    let segment = process::segment();
    let (header, code) = (segment.header(), segment.code());
    let number = process::BLOCKS.load(Relaxed);
    let at = header.code_words.load(Relaxed) as usize;
    let words = 1 + bytes.len().div_ceil(8);
    if at + words > code.len() || number >= u64::from(u32::MAX) {
        header.trouble.store(Header::OUT_OF_CODE, Relaxed);
        return u32::MAX;
    }
    code[at].store(bytes.len() as u64, Relaxed);
    for (word, chunk) in code[at + 1..].iter().zip(bytes.chunks(8)) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(raw), Relaxed);
    }
    process::BLOCKS.store(number + 1, Relaxed);
    header.code_words.store((at + words) as u64, Release);
    number as u32
}

unsafe extern "C" fn starts(vcpu: c_uint, word: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(word as u64) };
}

/// Bit of a memory access's description that marks a store.
static STORE_BIT: AtomicU32 = AtomicU32::new(0);

/// Finds out which bit that is. QEMU 7.2 takes the direction wrongly into account
/// when it chooses callbacks, and asking it at each access costs a call.
pub fn find_store_bit() -> Result<(), &'static str> {
    // SAFETY: the function only looks at the bits of its argument.
    let store = |info: u32| unsafe { api::qemu_plugin_mem_is_store(info) };
    let mut bits = (0..32).filter(|&b| store(1 << b));
    match (bits.next(), bits.next(), store(0)) {
        (Some(bit), None, false) => {
            STORE_BIT.store(bit, Relaxed);
            Ok(())
        }
        _ => Err("this version of QEMU describes memory accesses in another way"),
    }
}

unsafe extern "C" fn accesses(vcpu: c_uint, info: u32, address: u64, word: *mut c_void) {
    let store = u64::from(info >> STORE_BIT.load(Relaxed) & 1) * record::STORE;
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe {
        process::producer(vcpu as usize)
            .push_step(word as u64 | address & record::ADDRESS_MASK | store);
    }
}
