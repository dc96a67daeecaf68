//! Accesses that QEMU does not report from 9.1 on: it reads and writes the x87's 80-bit numbers and the processor's
//! state as a whole. When such an instruction executes, its address is computed from its registers, and its accesses
//! are sent as other versions report them. An emulator without access to these registers ends the run, because accesses
//! would be missing.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use pagewalk_ring::needed::{self, FS_BASE, GS_BASE};
use pagewalk_ring::{Trouble, record};

use crate::api::{self, ExecuteCallback, Instruction};
use crate::{prefetch, process, translate};

/// The callback reads registers.
const READS_REGISTERS: c_int = 1;

/// Accesses: offset of each from the address, and true for a store.
type Accesses = Vec<(u64, bool)>;

/// An instruction with unreported accesses.
pub struct UnreportedAccess {
    /// The constant part of its memory records.
    within: u64,
    accesses: Accesses,
    /// Constant part of the address.
    constant: u64,
    /// Registers by number, and their shifts in bits.
    registers: Vec<(usize, u32)>,
    /// The sum has 32 bits, without the segment's base.
    short: bool,
}

/// GLib's array of bytes.
#[repr(C)]
struct Bytes {
    data: *const u8,
    length: c_uint,
}

/// GLib's array of [`Description`].
#[repr(C)]
struct Descriptions {
    data: *const Description,
    length: c_uint,
}

/// QEMU's description of a register.
#[repr(C)]
struct Description {
    handle: *mut c_void,
    name: *const c_char,
    _feature: *const c_char,
}

/// QEMU's functions for registers, and the handles of the needed ones.
struct Registers {
    read: unsafe extern "C" fn(*mut c_void, *mut Bytes) -> c_int,
    new_bytes: unsafe extern "C" fn() -> *mut Bytes,
    shrink: unsafe extern "C" fn(*mut Bytes, c_uint) -> *mut Bytes,
    on_execution: unsafe extern "C" fn(*mut Instruction, ExecuteCallback, c_int, *mut c_void),
    handles: [usize; needed::REGISTERS],
}

static REGISTERS: OnceLock<Registers> = OnceLock::new();

thread_local! {
    static BYTES: std::cell::Cell<*mut Bytes> = const { std::cell::Cell::new(null_mut()) };
}

/// Finds the registers. Called on the first virtual CPU's thread at its start, from 9.0 on. An emulator without them may
/// only leave out software prefetches.
pub fn find_registers() {
    if REGISTERS.get().is_some() {
        return;
    }
    match Registers::find() {
        Ok(found) => drop(REGISTERS.set(found)),
        Err(number) if translate::interface().leaves_out_accesses => lack(number),
        Err(_) => {}
    }
}

/// Name of a needed function or register.
fn name(number: usize) -> CString {
    CString::new(needed::NAMES[number]).unwrap_or_default()
}

/// Ends the run, because this QEMU lacks a function or register.
fn lack(number: usize) -> ! {
    process::lost(Trouble::Emulator, number as i32)
}

impl Registers {
    /// # Errors
    /// The number of the missing one.
    fn find() -> Result<Registers, usize> {
        let named = |number: usize| match api::symbol(&name(number)) {
            p if p.is_null() => Err(number),
            p => Ok(p),
        };
        // SAFETY: these are the functions' types. Their results belong to QEMU, and stay valid during their use.
        unsafe {
            let all = named(needed::GET_REGISTERS)?;
            let all: unsafe extern "C" fn() -> *const Descriptions = api::function(all);
            let mut found = Registers {
                read: api::function(named(needed::READ_REGISTER)?),
                new_bytes: api::function(named(needed::NEW_BYTES)?),
                shrink: api::function(named(needed::SET_SIZE)?),
                on_execution: api::function(named(needed::ON_EXECUTION)?),
                handles: [0; needed::REGISTERS],
            };
            let all = all();
            for (number, handle) in found.handles.iter_mut().enumerate() {
                *handle = look_up(all.as_ref(), &name(number)).ok_or(number)?;
            }
            Ok(found)
        }
    }
}

/// QEMU's handle of the register with this name; `None` if it has none.
///
/// # Safety
/// The array holds as many descriptions as it says, with null-terminated names.
unsafe fn look_up(all: Option<&Descriptions>, name: &CStr) -> Option<usize> {
    let all = all?;
    // SAFETY: by the contract.
    let register = |n| unsafe { &*all.data.add(n) };
    (0..all.length as usize).map(register).find_map(|register| {
        // SAFETY: by the contract.
        let is = unsafe { CStr::from_ptr(register.name) } == name;
        is.then_some(register.handle as usize)
    })
}

/// True if the plugin must send accesses that QEMU does not report.
pub fn applies() -> bool {
    REGISTERS.get().is_some()
}

/// The accesses of an x87 instruction, or of one for the processor's state, by its opcode and the number in its second
/// byte. `wide`: it has the prefix of 16 bits.
fn accesses(opcode: &[u8], number: u8, wide: bool) -> Option<Accesses> {
    let loads = |all: &[u64]| all.iter().map(|&at| (at, false)).collect::<Accesses>();
    let stores = |all: &[u64]| all.iter().map(|&at| (at, true)).collect::<Accesses>();
    let environment = [0, 4, 8, 12, 16, 20, 24];
    // Eight numbers of 80 bits after the environment.
    let numbers = (0..8).flat_map(|n| [28 + 10 * n, 36 + 10 * n]);
    Some(match (opcode, number) {
        // fldt, fstpt
        ([0xdb], 5) => loads(&[0, 8]),
        ([0xdb], 7) => stores(&[0, 8]),
        // fbld, fbstp
        ([0xdf], 4) => loads(&[8, 7, 6, 5, 4, 3, 2, 1, 0, 9]),
        ([0xdf], 6) => stores(&[9, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        // fldenv, fnstenv
        ([0xd9], 4) => loads(&[0, 4, 8]),
        ([0xd9], 6) => stores(&environment),
        // frstor, fnsave
        ([0xdd], 4) => loads(&[0, 4, 8].into_iter().chain(numbers).collect::<Vec<_>>()),
        ([0xdd], 6) => stores(&environment.into_iter().chain(numbers).collect::<Vec<_>>()),
        // fxsave, fxrstor: one access, because no op is larger than a line
        ([0x0f, 0xae], 0) => stores(&[0]),
        ([0x0f, 0xae], 1) => loads(&[0]),
        // clflush, clflushopt; clwb: no version reports them
        ([0x0f, 0xae], 7) => loads(&[0]),
        ([0x0f, 0xae], 6) if wide => loads(&[0]),
        // xsave, xsaveopt; xrstor: first the header after the x87's part, which says what is saved
        ([0x0f, 0xae], 4 | 6) => vec![(512, false), (0, true)],
        ([0x0f, 0xae], 5) => loads(&[512]),
        // Software prefetches: no version reports them
        ([0x0f, 0x18], 0..=3) | ([0x0f, 0x0d], 0..=2) => loads(&[0]),
        _ => return None,
    })
}

impl UnreportedAccess {
    /// Decodes instruction number `index` of a block, at `address`. `None`: QEMU reports all its accesses.
    pub fn decode(bytes: &[u8], address: u64, index: usize) -> Option<UnreportedAccess> {
        let (mut at, mut rex, mut segment, mut short, mut wide) = (0, 0, None, false, false);
        loop {
            match *bytes.get(at)? {
                0x64 => segment = Some(FS_BASE),
                0x65 => segment = Some(GS_BASE),
                0x67 => short = true,
                0x66 => wide = true,
                0x26 | 0x2e | 0x36 | 0x3e => {}
                // A wait instruction, which assemblers insert before.
                0x9b if bytes.len() > 1 => {}
                _ => break,
            }
            at += 1;
        }
        if bytes[at] & 0xf0 == 0x40 {
            rex = bytes[at];
            at += 1;
        }
        let length = if *bytes.get(at)? == 0x0f { 2 } else { 1 };
        let opcode = bytes.get(at..at + length)?;
        let modrm = *bytes.get(at + length)?;
        let mode = modrm >> 6;
        if mode == 3 {
            return None;
        }
        if !prefetch::is_prefetch(bytes) && !translate::interface().leaves_out_accesses {
            return None;
        }
        let accesses = accesses(opcode, modrm >> 3 & 7, wide)?;
        let mut rest = at + length + 1;
        let mut registers = Vec::new();
        let mut base = Some(modrm & 7 | (rex & 1) << 3);
        let mut long = mode == 2;
        let mut constant = 0;
        if modrm & 7 == 4 {
            let sib = *bytes.get(rest)?;
            rest += 1;
            let number = sib >> 3 & 7 | (rex & 2) << 2;
            if number != 4 {
                registers.push((usize::from(number), u32::from(sib >> 6)));
            }
            base = Some(sib & 7 | (rex & 1) << 3);
            if sib & 7 == 5 && mode == 0 {
                (base, long) = (None, true);
            }
        } else if modrm & 7 == 5 && mode == 0 {
            // Relative to the next instruction.
            (base, long) = (None, true);
            constant = address + bytes.len() as u64;
        }
        registers.extend(base.map(|b| (usize::from(b), 0)));
        let displacement = if long {
            let raw = bytes.get(rest..rest + 4)?.try_into().ok()?;
            i64::from(i32::from_le_bytes(raw))
        } else if mode == 1 {
            i64::from(*bytes.get(rest)? as i8)
        } else {
            0
        };
        // The segment's base comes last, because it is added to the whole sum.
        registers.extend(segment.map(|s| (s, 0)));
        Some(UnreportedAccess {
            within: record::memory(index, false),
            accesses,
            constant: constant.wrapping_add_signed(displacement),
            registers,
            short,
        })
    }

    /// Sends its accesses whenever `instruction` executes.
    ///
    /// # Safety
    /// `instruction` belongs to the block that is being translated.
    pub unsafe fn watch(&'static self, instruction: *mut Instruction) {
        let it: *const UnreportedAccess = self;
        if let Some(registers) = REGISTERS.get() {
            // SAFETY: by the contract, and `self` is never freed.
            unsafe { (registers.on_execution)(instruction, executes, READS_REGISTERS, it as _) };
        }
    }
}

/// The value of a register.
fn read(registers: &Registers, number: usize) -> u64 {
    let handle = registers.handles[number];
    // SAFETY: QEMU's functions; the array belongs to this thread.
    unsafe {
        let mut bytes = BYTES.get();
        if bytes.is_null() {
            bytes = (registers.new_bytes)();
            BYTES.set(bytes);
        }
        (registers.shrink)(bytes, 0);
        (registers.read)(handle as *mut c_void, bytes);
        let mut value = [0; 8];
        let length = ((*bytes).length as usize).min(8);
        if length == 0 {
            lack(number);
        }
        std::ptr::copy_nonoverlapping((*bytes).data, value.as_mut_ptr(), length);
        u64::from_le_bytes(value)
    }
}

unsafe extern "C" fn executes(vcpu: c_uint, it: *mut c_void) {
    let Some(registers) = REGISTERS.get() else {
        return;
    };
    // SAFETY: `watch` passes a reference that is never freed.
    let it = unsafe { &*it.cast::<UnreportedAccess>() };
    let mut address = it.constant;
    for &(number, shift) in &it.registers {
        if it.short && number >= FS_BASE {
            address &= 0xffff_ffff;
        }
        address = address.wrapping_add(read(registers, number) << shift);
    }
    if it.short && !it.registers.iter().any(|&(number, _)| number >= FS_BASE) {
        address &= 0xffff_ffff;
    }
    for &(offset, store) in &it.accesses {
        let place = address.wrapping_add(offset) & record::ADDRESS_MASK;
        let store = u64::from(store) * record::STORE;
        let word = it.within | place | store;
        // SAFETY: QEMU calls this on the thread of the virtual CPU.
        unsafe { process::producer(vcpu as usize).push_step(word) };
    }
}
