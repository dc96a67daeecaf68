//! Addresses of software prefetches and of flushes. QEMU reports none, because it executes them as no-operations.
//!
//! From 9.0 on, [`crate::unreported`] computes them from registers that QEMU reads. Before, plugins cannot read
//! registers. The address is then computed from the registers at the start of the block: QEMU keeps them in its memory
//! there, where a register of the host points (`first` below). From there to the prefetch, this module follows the
//! block's integer instructions and loads. An address that depends on anything else is sent as unknown.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use pagewalk_ring::record;

use crate::process::{self, VCPUS};
use crate::translate::access;
use crate::{answers, api, guest, repeat};

/// Registers of the guest, and one for an operand in memory.
const REGISTERS: usize = 17;
/// That register.
const MEMORY: u8 = 16;

/// Operand of a step.
#[derive(Clone, Copy)]
enum Source {
    Register(u8),
    Constant(u64),
}

/// Sum of an address.
#[derive(Clone, Copy, Default)]
struct Sum {
    base: Option<u8>,
    index: Option<(u8, u32)>,
    constant: u64,
    /// The sum has 32 bits.
    short: bool,
}

/// Effect of an instruction, or of a part of it, on registers.
#[derive(Clone, Copy)]
enum Effect {
    /// A result of 64 bits, or of 32 if `short`.
    Binary {
        to: u8,
        of: fn(u64, u64, bool) -> u64,
        a: Source,
        b: Source,
        short: bool,
    },
    Address {
        to: u8,
        sum: Sum,
        short: bool,
    },
    /// The low bytes of a register.
    Extend {
        to: u8,
        from: u8,
        how: Extension,
    },
    Load {
        to: u8,
        how: Extension,
    },
    /// The registers in this mask become unknown.
    Forget(u32),
}

/// Extension of a value of a few bytes.
#[derive(Clone, Copy)]
struct Extension {
    bytes: usize,
    signed: bool,
    /// To 32 bits.
    short: bool,
}

impl Extension {
    fn of(self, value: u64) -> u64 {
        let unused = 64 - 8 * self.bytes as u32;
        let value = value << unused;
        let wide = if self.signed {
            ((value as i64) >> unused) as u64
        } else {
            value >> unused
        };
        if self.short { wide & 0xffff_ffff } else { wide }
    }
}

/// A block with software prefetches.
pub struct Prefetching {
    /// The record of the block.
    word: u64,
    address: u64,
    effects: Vec<Effect>,
    points: Vec<Point>,
}

/// An instruction at which QEMU calls the plugin: a load or a prefetch.
pub struct Point {
    /// Its number in the block.
    pub instruction: usize,
    /// It is a prefetch.
    pub prefetch: bool,
    /// Constant part of its record.
    within: u64,
    /// Effects before it.
    effects: usize,
    /// The prefetch's address, if it is a sum of registers.
    sum: Option<Sum>,
}

/// A point of a block, as an argument of callbacks.
type PointOf = (&'static Prefetching, usize);

/// State of a virtual CPU in such a block.
struct State {
    /// The block whose start was seen last.
    block: Cell<u64>,
    registers: [Cell<u64>; REGISTERS],
    known: Cell<u32>,
    done: Cell<usize>,
}

/// Each entry is used only by the thread of its virtual CPU.
struct All([State; VCPUS]);
// SAFETY: see the struct.
unsafe impl Sync for All {}

static ALL: All = All([const {
    State {
        block: Cell::new(0),
        registers: [const { Cell::new(0) }; REGISTERS],
        known: Cell::new(0),
        done: Cell::new(0),
    }
}; VCPUS]);

/// QEMU's state of the processor has been found where it is expected.
static FOUND: AtomicBool = AtomicBool::new(false);

// A block's callback runs before any of its registers changes. In QEMU's code for x86-64 hosts, `rbp` points to the
// guest's processor (`TCG_AREG0` in tcg/i386/tcg-target.h): 16 registers and the instruction pointer come first
// (`CPUArchState` in target/i386/cpu.h).
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden pagewalk_prefetch_block",
    ".globl pagewalk_prefetch_block",
    "pagewalk_prefetch_block:",
    "mov rdx, rbp",
    "jmp {starts}",
    starts = sym starts,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "pagewalk_prefetch_block"]
    pub fn block_starts(vcpu: c_uint, it: *mut c_void);
}

/// Called at the start of a block with software prefetches. Their addresses stay unknown on this host.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe extern "C" fn block_starts(vcpu: c_uint, it: *mut c_void) {
    // SAFETY: by the caller's contract; no processor is given.
    unsafe { starts(vcpu, it, std::ptr::null_mut()) };
}

/// `first` points to the guest's registers.
unsafe extern "C" fn starts(vcpu: c_uint, it: *mut c_void, first: *mut u64) {
    // SAFETY: the registers, if they are given.
    unsafe { answers::deliver(first) };
    // SAFETY: `translate` passes a reference that is never freed.
    let it = unsafe { &*it.cast::<Prefetching>() };
    let state = &ALL.0[vcpu as usize];
    state.block.set(it.word);
    state.done.set(0);
    state.known.set(0);
    if !first.is_null() {
        // QEMU sets the instruction pointer before blocks that it does not jump to directly, among them each new one.
        // SAFETY: on a supported host QEMU's processor is there, which is larger.
        if !FOUND.load(Relaxed) && unsafe { first.add(16).read() } == it.address {
            FOUND.store(true, Relaxed);
        }
        if FOUND.load(Relaxed) {
            for (n, register) in state.registers[..16].iter().enumerate() {
                // SAFETY: as above.
                register.set(unsafe { first.add(n).read() });
            }
            state.known.set(0xffff);
        }
    }
    repeat::finish(vcpu);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(it.word) };
}

/// Called at a load of such a block, after it.
pub unsafe extern "C" fn loads(vcpu: c_uint, info: u32, address: u64, point: *mut c_void) {
    // SAFETY: `translate` passes a reference that is never freed.
    let &(it, number) = unsafe { &*point.cast::<PointOf>() };
    let point = &it.points[number];
    let state = &ALL.0[vcpu as usize];
    state.run(it, point.effects);
    if let Some(&Effect::Load { to, how }) = it.effects.get(point.effects)
        && state.done.get() == point.effects
    {
        let mut bytes = [0; 8];
        let from = address.wrapping_add(guest::BASE.load(Relaxed)) as *const u8;
        // SAFETY: the guest has just read these bytes.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), how.bytes) };
        state.set(to, Some(how.of(u64::from_le_bytes(bytes))));
        state.done.set(state.done.get() + 1);
    }
    let word = access(point.within, info, address);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(word) };
}

/// Called before a prefetch executes.
pub unsafe extern "C" fn executes(vcpu: c_uint, point: *mut c_void) {
    // SAFETY: `translate` passes a reference that is never freed.
    let &(it, number) = unsafe { &*point.cast::<PointOf>() };
    let point = &it.points[number];
    let state = &ALL.0[vcpu as usize];
    // Starts are not seen from 9.0 on, or of a block that ends with a repeated string instruction.
    let seen = state.block.get() == it.word;
    state.run(it, point.effects);
    let address = point.sum.filter(|_| seen).and_then(|sum| state.sum(sum));
    let place = match address {
        Some(address) => address & record::ADDRESS_MASK,
        None => record::UNKNOWN_ADDRESS,
    };
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    unsafe { process::producer(vcpu as usize).push_step(point.within | place) };
}

/// Sends the address of the prefetch at `point` ([`PointOf`]) whenever `instruction` executes.
///
/// # Safety
/// `instruction` belongs to the block that is being translated.
pub unsafe fn watch(instruction: *mut api::Instruction, point: *mut c_void) {
    // SAFETY: by the contract; the point is never freed.
    unsafe {
        api::qemu_plugin_register_vcpu_insn_exec_cb(
            instruction,
            executes,
            api::NO_REGISTERS,
            point,
        );
    }
}

impl State {
    fn get(&self, register: u8) -> Option<u64> {
        let known = self.known.get() >> register & 1 != 0;
        known.then(|| self.registers[usize::from(register)].get())
    }

    fn set(&self, register: u8, value: Option<u64>) {
        let bit = 1 << register;
        match value {
            Some(value) => {
                self.registers[usize::from(register)].set(value);
                self.known.set(self.known.get() | bit);
            }
            None => self.known.set(self.known.get() & !bit),
        }
    }

    fn source(&self, source: Source) -> Option<u64> {
        match source {
            Source::Register(register) => self.get(register),
            Source::Constant(value) => Some(value),
        }
    }

    fn sum(&self, sum: Sum) -> Option<u64> {
        let mut value = sum.constant;
        if let Some(base) = sum.base {
            value = value.wrapping_add(self.get(base)?);
        }
        if let Some((index, shift)) = sum.index {
            value = value.wrapping_add(self.get(index)? << shift);
        }
        Some(if sum.short {
            value & 0xffff_ffff
        } else {
            value
        })
    }

    /// Applies the effects before number `until`.
    fn run(&self, it: &Prefetching, until: usize) {
        let from = self.done.get();
        for effect in it.effects.get(from..until).unwrap_or_default() {
            match *effect {
                Effect::Binary {
                    to,
                    of,
                    a,
                    b,
                    short,
                } => {
                    let both = self.source(a).zip(self.source(b));
                    let result = both.map(|(a, b)| of(a, b, short));
                    self.set(to, result.map(|r| if short { r & 0xffff_ffff } else { r }));
                }
                Effect::Address { to, sum, short } => {
                    let sum = self.sum(sum);
                    self.set(to, sum.map(|s| if short { s & 0xffff_ffff } else { s }));
                }
                Effect::Extend { to, from, how } => {
                    self.set(to, self.get(from).map(|value| how.of(value)));
                }
                // QEMU did not report it.
                Effect::Load { to, .. } => self.set(to, None),
                Effect::Forget(mask) => self.known.set(self.known.get() & !mask),
            }
        }
        self.done.set(from.max(until));
    }
}

/// True if the instruction is a software prefetch or a flush.
pub fn is_prefetch(bytes: &[u8]) -> bool {
    let mut rest = bytes.iter();
    let wide = bytes.iter().take_while(|b| **b != 0x0f).any(|b| *b == 0x66);
    let prefixed = |b: &&u8| matches!(**b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let mut opcode = rest.by_ref().skip_while(prefixed);
    if opcode.next() != Some(&0x0f) {
        return false;
    }
    let (second, modrm) = (opcode.next(), opcode.next());
    let number = modrm.map_or(8, |m| m >> 3 & 7);
    let memory = modrm.is_some_and(|m| m >> 6 != 3);
    // clwb is xsaveopt with a prefix.
    let flush = second == Some(&0xae) && (number == 7 || number == 6 && wide);
    memory && (flush || matches!((second, number), (Some(0x18), 0..=3) | (Some(0x0d), 0..=2)))
}

impl Prefetching {
    /// The block that `key` describes (address, count, sizes, bytes), if it has software prefetches. `number` is that
    /// of the block.
    pub fn of(key: &[u8], number: u32) -> Option<&'static [PointOf]> {
        let (head, rest) = key.split_at(12);
        let address = head[..8].try_into().map_or(0, u64::from_le_bytes);
        let count = head[8..].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (sizes, mut code) = rest.split_at(count);
        let mut made = Prefetching {
            word: record::word(record::BLOCK, u64::from(number)),
            address,
            effects: Vec::new(),
            points: Vec::new(),
        };
        let mut info = InstructionInfoFactory::new();
        let mut at = address;
        for (n, &size) in sizes.iter().enumerate() {
            let (bytes, later) = code.split_at(usize::from(size));
            let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            made.add(n, &i, is_prefetch(bytes), &mut info);
            (code, at) = (later, at + u64::from(size));
        }
        let last = made.points.iter().rposition(|point| point.prefetch)?;
        made.points.truncate(last + 1);
        let made: &'static Prefetching = Box::leak(Box::new(made));
        let points: Vec<PointOf> = (0..=last).map(|number| (made, number)).collect();
        Some(Box::leak(points.into_boxed_slice()))
    }

    /// The argument of [`block_starts`].
    pub fn argument(&'static self) -> *mut c_void {
        let it: *const Prefetching = self;
        it as _
    }

    /// A point's own description.
    pub fn point(&self, number: usize) -> &Point {
        &self.points[number]
    }

    fn add(
        &mut self,
        number: usize,
        i: &Instruction,
        prefetch: bool,
        info: &mut InstructionInfoFactory,
    ) {
        if prefetch {
            self.point_at(number, true, address_of(i));
        } else if self.understand(number, i).is_none() {
            let mut mask = 0;
            for used in info.info(i).used_registers() {
                let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                if let (false, Some(r)) = (reads, number_of(used.register())) {
                    mask |= 1 << r;
                }
            }
            self.effects.push(Effect::Forget(mask));
        }
    }

    fn point_at(&mut self, instruction: usize, prefetch: bool, sum: Option<Sum>) {
        self.points.push(Point {
            instruction,
            prefetch,
            within: record::memory(instruction, false),
            effects: self.effects.len(),
            sum,
        });
    }

    /// Adds the effects of an instruction. `None`, without any effect added: it is not followed.
    fn understand(&mut self, number: usize, i: &Instruction) -> Option<()> {
        use Mnemonic as M;
        if i.op_count() == 0 {
            // cdqe
            if i.mnemonic() != M::Cdqe {
                return None;
            }
            let how = Extension {
                bytes: 4,
                signed: true,
                short: false,
            };
            self.effects.push(Effect::Extend {
                to: 0,
                from: 0,
                how,
            });
            return Some(());
        }
        if i.mnemonic() == M::Push {
            self.add_to_stack_pointer(-8);
            return (i.stack_pointer_increment() == -8).then_some(());
        }
        if i.op0_kind() != OpKind::Register {
            // Stores and comparisons change no register.
            let plain = matches!(
                i.mnemonic(),
                M::Mov
                    | M::Cmp
                    | M::Test
                    | M::Add
                    | M::Sub
                    | M::And
                    | M::Or
                    | M::Xor
                    | M::Inc
                    | M::Dec
            );
            return (plain && !i.has_lock_prefix()).then_some(());
        }
        if matches!(i.mnemonic(), M::Cmp | M::Test) {
            return Some(());
        }
        let register = i.op0_register();
        let to = number_of(register)?;
        let short = match register.size() {
            8 => false,
            4 => true,
            _ => return None,
        };
        let own = Extension {
            bytes: register.size(),
            signed: false,
            short,
        };
        match i.mnemonic() {
            M::Mov if i.op1_kind() == OpKind::Memory => self.load(number, to, own),
            M::Mov => {
                let b = source(i, 1)?;
                self.binary(to, |_, b, _| b, Source::Constant(0), b, short);
            }
            M::Movzx | M::Movsx | M::Movsxd => {
                let signed = i.mnemonic() != M::Movzx;
                if i.op1_kind() == OpKind::Memory {
                    let bytes = i.memory_size().size();
                    self.load(
                        number,
                        to,
                        Extension {
                            bytes,
                            signed,
                            short,
                        },
                    );
                } else {
                    let from = i.op1_register();
                    if matches!(
                        from,
                        Register::AH | Register::BH | Register::CH | Register::DH
                    ) {
                        return None;
                    }
                    let bytes = from.size();
                    let how = Extension {
                        bytes,
                        signed,
                        short,
                    };
                    let from = number_of(from)?;
                    self.effects.push(Effect::Extend { to, from, how });
                }
            }
            M::Lea => {
                let sum = address_of(i)?;
                self.effects.push(Effect::Address { to, sum, short });
            }
            M::Pop if !short => {
                self.load(number, to, own);
                if to != 4 {
                    self.add_to_stack_pointer(8);
                }
            }
            M::Inc => self.binary(
                to,
                |a, b, _| a.wrapping_add(b),
                Source::Register(to),
                Source::Constant(1),
                short,
            ),
            M::Dec => self.binary(
                to,
                |a, b, _| a.wrapping_sub(b),
                Source::Register(to),
                Source::Constant(1),
                short,
            ),
            M::Neg => self.binary(
                to,
                |a, b, _| b.wrapping_sub(a),
                Source::Register(to),
                Source::Constant(0),
                short,
            ),
            M::Not => self.binary(
                to,
                |a, _, _| !a,
                Source::Register(to),
                Source::Constant(0),
                short,
            ),
            M::Imul if i.op_count() == 3 => {
                if i.op1_kind() == OpKind::Memory {
                    return None;
                }
                let (a, b) = (source(i, 1)?, source(i, 2)?);
                self.binary(to, |a, b, _| a.wrapping_mul(b), a, b, short);
            }
            _ => {
                let of: fn(u64, u64, bool) -> u64 = match i.mnemonic() {
                    M::Add => |a, b, _| a.wrapping_add(b),
                    M::Sub => |a, b, _| a.wrapping_sub(b),
                    M::And => |a, b, _| a & b,
                    M::Or => |a, b, _| a | b,
                    M::Xor => |a, b, _| a ^ b,
                    M::Imul if i.op_count() == 2 => |a, b, _| a.wrapping_mul(b),
                    M::Shl => |a, b, short| a << (b & if short { 31 } else { 63 }),
                    M::Shr => |a, b, short| {
                        let a = if short { a & 0xffff_ffff } else { a };
                        a >> (b & if short { 31 } else { 63 })
                    },
                    M::Sar => |a, b, short| {
                        let a = if short { i64::from(a as i32) } else { a as i64 };
                        (a >> (b & if short { 31 } else { 63 })) as u64
                    },
                    _ => return None,
                };
                let cleared = matches!(i.mnemonic(), M::Xor | M::Sub)
                    && i.op1_kind() == OpKind::Register
                    && i.op1_register() == register;
                if cleared {
                    let zero = Source::Constant(0);
                    self.binary(to, |_, _, _| 0, zero, zero, short);
                    return Some(());
                }
                let b = if i.op1_kind() == OpKind::Memory {
                    self.load(number, MEMORY, own);
                    Source::Register(MEMORY)
                } else {
                    source(i, 1)?
                };
                self.binary(to, of, Source::Register(to), b, short);
            }
        }
        Some(())
    }

    fn binary(&mut self, to: u8, of: fn(u64, u64, bool) -> u64, a: Source, b: Source, short: bool) {
        self.effects.push(Effect::Binary {
            to,
            of,
            a,
            b,
            short,
        });
    }

    fn load(&mut self, number: usize, to: u8, how: Extension) {
        self.point_at(number, false, None);
        self.effects.push(Effect::Load { to, how });
    }

    fn add_to_stack_pointer(&mut self, bytes: i64) {
        let bytes = Source::Constant(bytes as u64);
        self.binary(
            4,
            |a, b, _| a.wrapping_add(b),
            Source::Register(4),
            bytes,
            false,
        );
    }
}

/// Number of the general register that holds this one.
fn number_of(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64()
        .then(|| (full as u32 - Register::RAX as u32) as u8)
}

/// A register or a constant. `None`: memory, or the second byte of a register.
fn source(i: &Instruction, operand: u32) -> Option<Source> {
    match i.op_kind(operand) {
        OpKind::Register => {
            let register = i.op_register(operand);
            let high = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            number_of(register).filter(|_| !high).map(Source::Register)
        }
        OpKind::Memory => None,
        _ => Some(Source::Constant(i.try_immediate(operand).ok()?)),
    }
}

/// The address of the memory operand; `None` if it needs a segment's base.
fn address_of(i: &Instruction) -> Option<Sum> {
    if i.mnemonic() != Mnemonic::Lea && matches!(i.memory_segment(), Register::FS | Register::GS) {
        return None;
    }
    let (base, index) = (i.memory_base(), i.memory_index());
    let short = base.size() == 4 || index.size() == 4;
    if i.is_ip_rel_memory_operand() {
        return Some(Sum {
            constant: i.ip_rel_memory_address(),
            ..Sum::default()
        });
    }
    let part = |register: Register| match register {
        Register::None => Some(None),
        // A vector of indices.
        _ => number_of(register).map(Some),
    };
    Some(Sum {
        base: part(base)?,
        index: part(index)?.map(|r| (r, i.memory_index_scale().trailing_zeros())),
        constant: i.memory_displacement64(),
        short,
    })
}
