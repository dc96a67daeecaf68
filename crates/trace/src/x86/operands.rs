//! Registers that an instruction reads and writes, by the numbers that dependences use.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

use crate::x86::X87;

/// Number of the full register that holds this one. `None` if it carries no dependences (segments, instruction pointer,
/// control).
pub(super) fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    if full.is_gpr64() {
        Some((full as u32 - Register::RAX as u32) as u8)
    } else if full.is_zmm() {
        Some(16 + (full as u32 - Register::ZMM0 as u32) as u8)
    } else if full.is_st() || full.is_mm() {
        Some(X87)
    } else {
        None
    }
}

/// True if the operand is read.
pub(super) fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// True if the operand is written.
pub(super) fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Registers that an instruction writes.
#[derive(Default)]
pub(super) struct Changed {
    /// Registers that hold its result.
    pub results: Vec<u8>,
    /// The stack pointer and the pointers of string instructions, which do not depend on the data.
    pub pointers: Vec<u8>,
}

impl Changed {
    /// `addresses` are the registers of its address operands.
    pub fn by(i: &Instruction, info: &InstructionInfo, addresses: &[u8]) -> Changed {
        let mut changed = Changed::default();
        for used in info.used_registers() {
            if let (true, Some(r)) = (writes(used.access()), number(used.register())) {
                let explicit = (0..i.op_count()).any(|n| {
                    i.op_kind(n) == OpKind::Register && number(i.op_register(n)) == Some(r)
                });
                let list = if !explicit && addresses.contains(&r) {
                    &mut changed.pointers
                } else {
                    &mut changed.results
                };
                if !list.contains(&r) {
                    list.push(r);
                }
            }
        }
        changed
    }
}

/// True if the result depends on no input, as with `xor eax, eax`.
pub(super) fn clears(i: &Instruction) -> bool {
    use Mnemonic as M;
    let (a, b) = match i.mnemonic() {
        M::Xor
        | M::Sub
        | M::Pxor
        | M::Xorps
        | M::Xorpd
        | M::Psubb
        | M::Psubd
        | M::Psubq
        | M::Pcmpeqb
        | M::Pcmpeqd
        | M::Pcmpeqw => (0, 1),
        M::Vpxor | M::Vxorps | M::Vxorpd | M::Vpcmpeqb | M::Vpcmpeqd => (1, 2),
        _ => return false,
    };
    i.op_kind(a) == OpKind::Register
        && i.op_kind(b) == OpKind::Register
        && i.op_register(a) == i.op_register(b)
}
