//! Translation: sends each block's bytes once, and registers the callbacks that name it.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, OnceLock};

use pagewalk_ring::{Header, record};

use crate::api::{Info, Interface};
use crate::prefetch::{self, Prefetching};
use crate::repeat::{self, Repeated};
use crate::unreported::{self, UnreportedAccess};
use crate::{answers, api, clock, count, maps, marks, process};

/// Blocks sent so far, by address, sizes and bytes. QEMU translates a block again after a flush of its code, and the
/// number stays the same.
struct Sent {
    numbers: Option<HashMap<Box<[u8]>, u32>>,
    key: Vec<u8>,
    /// The repeated string instructions at the ends of blocks, as arguments of callbacks.
    repeated: Option<HashMap<u32, &'static Repeated>>,
    /// The instructions with unreported accesses, as arguments of callbacks.
    unreported: Option<HashMap<u32, UnreportedInBlock>>,
    /// The blocks with software prefetches, as arguments of callbacks.
    prefetching: Option<HashMap<u32, Option<Points>>>,
}

/// Loads and prefetches of a block.
type Points = &'static [(&'static Prefetching, usize)];

/// Instructions of a block, with their indices.
type UnreportedInBlock = &'static [(usize, UnreportedAccess)];

impl Sent {
    /// The number of the block that `key` describes.
    fn number(&mut self) -> u32 {
        let numbers = self.numbers.get_or_insert_default();
        if let Some(&number) = numbers.get(self.key.as_slice()) {
            return number;
        }
        let number = send(&self.key);
        numbers.insert(self.key.as_slice().into(), number);
        number
    }

    /// The instructions with unreported accesses in block `number`, which `key` describes.
    fn unreported(&mut self, number: u32) -> UnreportedInBlock {
        if let Some(known) = self.unreported.get_or_insert_default().get(&number) {
            return known;
        }
        let (head, rest) = self.key.split_at(12);
        let mut address = head[..8].try_into().map_or(0, u64::from_le_bytes);
        let count = head[8..].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (sizes, mut code) = rest.split_at(count);
        let mut found = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            let (bytes, later) = code.split_at(usize::from(size));
            found.extend(UnreportedAccess::decode(bytes, address, index).map(|it| (index, it)));
            (code, address) = (later, address + u64::from(size));
        }
        let found: UnreportedInBlock = Box::leak(found.into_boxed_slice());
        self.unreported
            .get_or_insert_default()
            .insert(number, found);
        found
    }

    /// Block `number`, which `key` describes, if it has software prefetches.
    fn prefetching(&mut self, number: u32) -> Option<Points> {
        let all = self.prefetching.get_or_insert_default();
        *all.entry(number)
            .or_insert_with(|| Prefetching::of(&self.key, number))
    }

    /// The repeated instruction at the end of block `number`, which `key` describes: instruction `index`, `offset`
    /// bytes after the block's `address`.
    fn repeated(
        &mut self,
        number: u32,
        address: u64,
        offset: usize,
        index: usize,
        accesses: usize,
    ) -> &'static Repeated {
        if let Some(&known) = self.repeated.get_or_insert_default().get(&number) {
            return known;
        }
        let code = 12 + index + 1;
        let bytes = self.key[code + offset..].to_vec();
        self.key.clear();
        self.key.extend((address + offset as u64).to_le_bytes());
        self.key.extend(1u32.to_le_bytes());
        self.key.push(bytes.len() as u8);
        self.key.extend(bytes);
        let alone = self.number();
        let made: &'static Repeated = Box::leak(Box::new(Repeated::new(
            (number, index),
            alone,
            address + offset as u64,
            accesses,
        )));
        self.repeated.get_or_insert_default().insert(number, made);
        made
    }
}

static SENT: Mutex<Sent> = Mutex::new(Sent {
    numbers: None,
    key: Vec::new(),
    repeated: None,
    unreported: None,
    prefetching: None,
});

/// Called when QEMU has translated a block; one call at a time.
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
    let mut guard = SENT.lock().unwrap_or_else(|e| e.into_inner());
    let sent = &mut *guard;
    if sent.numbers.is_none() {
        // The first block of this image: the guest has been loaded.
        sent.numbers = Some(HashMap::new());
        // SAFETY: QEMU's instruction.
        let host = unsafe { api::qemu_plugin_insn_haddr(api::qemu_plugin_tb_get_insn(block, 0)) };
        maps::send_initial(host as u64, address);
        clock::trap();
    }
    let (mut from, mut at) = (0, address);
    if clock::is_simulated() {
        // The engine must have executed everything before a question for the time: a part of the block ends there.
        let mut bytes = Vec::new();
        let mut next = address;
        for i in 0..count {
            // SAFETY: `i` is below the count.
            let instruction = unsafe { api::qemu_plugin_tb_get_insn(block, i) };
            bytes.clear();
            // SAFETY: QEMU's instruction.
            unsafe { interface().append(instruction, &mut bytes) };
            next += bytes.len() as u64;
            if let Some(argument) = clock::counter(&bytes) {
                part(sent, block, from..i + 1, at);
                // SAFETY: QEMU's function, with a callback of the required type. The argument is a number.
                unsafe {
                    api::qemu_plugin_register_vcpu_insn_exec_cb(
                        instruction,
                        clock::reads_counter,
                        api::NO_REGISTERS,
                        argument,
                    );
                }
                (from, at) = (i + 1, next);
            }
        }
    }
    if from < count {
        part(sent, block, from..count, at);
    }
    // SAFETY: QEMU's block, which is being translated.
    unsafe { count::add(block, count as u64) };
}

/// Sends the instructions `range` of a block, which begin at `address`, as a block, and registers their callbacks.
fn part(sent: &mut Sent, block: *mut api::Block, range: Range<usize>, address: u64) {
    let count = range.len();
    // SAFETY: `i` is below the count.
    let instruction = |i| unsafe { api::qemu_plugin_tb_get_insn(block, range.start + i) };
    // SAFETY: QEMU's instruction.
    let size = |i| unsafe { api::qemu_plugin_insn_size(instruction(i)) };
    let key = &mut sent.key;
    key.clear();
    key.extend(address.to_le_bytes());
    key.extend((count as u32).to_le_bytes());
    key.extend((0..count).map(|i| size(i) as u8));
    let code = key.len();
    let (mut prefetches, mut met) = (false, Vec::new());
    for i in 0..count {
        let start = key.len();
        // SAFETY: QEMU's instruction.
        unsafe { interface().append(instruction(i), key) };
        prefetches |= prefetch::is_prefetch(&key[start..]);
        if marks::are_met() && marks::is_mark(&key[start..]) {
            met.push(i);
        }
    }
    let last = (key.len() - size(count - 1)).max(code);
    let repeats = repeat::kind(&key[last..]);
    let number = sent.number();
    note_newest(address + (last - code) as u64, instruction(count - 1));
    let unreported = if unreported::applies() {
        sent.unreported(number)
    } else {
        &[]
    };
    let points = (prefetches && !unreported::applies())
        .then(|| sent.prefetching(number))
        .flatten()
        .unwrap_or_default();
    let repeated = repeats.map(|kind| sent.repeated(number, address, last - code, count - 1, kind));
    // SAFETY: QEMU's functions, with callbacks of the required types. The arguments are numbers, or pointers to memory
    // that is never freed.
    unsafe {
        let word = record::word(record::BLOCK, u64::from(number));
        let (started, argument): (api::ExecuteCallback, *mut c_void) = match repeated {
            Some(it) => {
                let it: *const Repeated = it;
                (answers::repeat_block_starts, it as _)
            }
            None => match points.first() {
                Some((prefetching, _)) if !api::is_second() => {
                    (prefetch::block_starts, prefetching.argument())
                }
                _ => (answers::block_starts, word as _),
            },
        };
        let no = api::NO_REGISTERS;
        if range.start == 0 {
            api::qemu_plugin_register_vcpu_tb_exec_cb(block, started, no, argument);
        } else {
            api::qemu_plugin_register_vcpu_insn_exec_cb(instruction(0), started, no, argument);
        }
        for i in met {
            let none = std::ptr::null_mut();
            api::qemu_plugin_register_vcpu_insn_exec_cb(instruction(i), marks::executes, no, none);
        }
        for i in 0..count {
            if let Some((_, it)) = unreported.iter().find(|(n, _)| *n == i) {
                it.watch(instruction(i));
                continue;
            }
            let point = points
                .iter()
                .find(|(it, number)| it.point(*number).instruction == i);
            if let Some(point) = point {
                let argument: *const _ = point;
                if point.0.point(point.1).prefetch {
                    prefetch::watch(instruction(i), argument as _);
                    continue;
                }
                if !api::is_second() {
                    api::qemu_plugin_register_vcpu_mem_cb(
                        instruction(i),
                        prefetch::loads,
                        api::NO_REGISTERS,
                        api::READ_WRITE,
                        argument as _,
                    );
                    continue;
                }
            }
            let (accessed, argument) = match repeated {
                Some(it) if i == count - 1 => {
                    let it: *const Repeated = it;
                    (repeat::accesses as api::MemoryCallback, it as *mut c_void)
                }
                _ if api::is_second() => (accesses_wide as _, record::memory(i, false) as _),
                _ => (accesses as _, record::memory(i, false) as _),
            };
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction(i),
                accessed,
                api::NO_REGISTERS,
                api::READ_WRITE,
                argument,
            );
        }
    }
}

/// Notes the memory from the last instruction of a block, in its page: the engine describes an unknown instruction
/// from it.
fn note_newest(address: u64, instruction: *mut api::Instruction) {
    // SAFETY: QEMU's instruction.
    let host = unsafe { api::qemu_plugin_insn_haddr(instruction) }.cast::<u8>();
    let mut memory = [0; 16];
    let bytes = memory.len().min(4096 - (address & 4095) as usize);
    if !host.is_null() {
        // SAFETY: QEMU has read the instruction from this page, and keeps it mapped during the translation.
        unsafe { std::ptr::copy_nonoverlapping(host, memory.as_mut_ptr(), bytes) };
    }
    process::segment().header().set_newest(address, memory);
}

/// Appends a block: a word with its number of bytes, then the bytes. Returns its number.
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

/// The block of this record starts.
///
/// # Safety
/// Called on the thread of the virtual CPU.
#[inline(always)]
pub unsafe fn starts(vcpu: c_uint, word: *mut c_void) {
    repeat::finish(vcpu);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(word as u64) };
}

static INTERFACE: OnceLock<Interface> = OnceLock::new();
/// Bit of a memory access's description that marks a store.
static STORE_BIT: AtomicU32 = AtomicU32::new(0);
/// Bits of a memory access's description that are set if it is wider than 8 bytes.
static WIDE: AtomicU32 = AtomicU32::new(0);

/// This QEMU's differences from other interfaces.
pub fn interface() -> &'static Interface {
    INTERFACE
        .get()
        .unwrap_or_else(|| process::die("used before installed"))
}

/// Detects this QEMU's functions, and the meaning of the bits in an access's description. QEMU 7.2 handles the
/// direction wrongly when it chooses callbacks, and a query at each access costs a call.
///
/// # Safety
/// `info` is QEMU's argument at the installation.
pub unsafe fn prepare(info: *const Info, count: bool) -> Result<(), String> {
    // SAFETY: by the contract.
    let found = unsafe { Interface::find(info, count) }
        .map_err(|name| format!("this version of QEMU lacks {name}"))?;
    let differs = || "this version of QEMU describes memory accesses in another way".to_owned();
    // SAFETY: the functions only read the bits of their argument.
    let store = |info: u32| unsafe { api::qemu_plugin_mem_is_store(info) };
    // SAFETY: as above.
    let shift = |info: u32| unsafe { api::qemu_plugin_mem_size_shift(info) };
    let mut bits = (0..32).filter(|&b| store(1 << b));
    let (Some(bit), None, false) = (bits.next(), bits.next(), store(0)) else {
        return Err(differs());
    };
    // The size is a power of two, whose exponent is in the description.
    let wide = (0..32)
        .map(|b| 1 << b)
        .filter(|&info| shift(info) > 3)
        .fold(0, |all, info| all | info);
    if shift(0) != 0 {
        return Err(differs());
    }
    STORE_BIT.store(bit, Relaxed);
    WIDE.store(wide, Relaxed);
    INTERFACE.get_or_init(|| found);
    Ok(())
}

/// The record of an access by the instruction with this constant part.
#[inline(always)]
pub fn access(constant: u64, info: u32, address: u64) -> u64 {
    let store = u64::from(info >> STORE_BIT.load(Relaxed) & 1) * record::STORE;
    constant | address & record::ADDRESS_MASK | store
}

unsafe extern "C" fn accesses(vcpu: c_uint, info: u32, address: u64, word: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(access(word as u64, info, address)) };
}

/// As [`accesses`], if 16 bytes may be one access: it is sent as two, as other versions do.
unsafe extern "C" fn accesses_wide(vcpu: c_uint, info: u32, address: u64, word: *mut c_void) {
    // SAFETY: as for `accesses`.
    unsafe {
        accesses(vcpu, info, address, word);
        if info & WIDE.load(Relaxed) != 0 {
            accesses(vcpu, info, address + 8, word);
        }
    }
}
