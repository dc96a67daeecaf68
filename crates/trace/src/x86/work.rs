//! Execution ports of instructions.

use iced_x86::{CpuidFeature, FlowControl, Instruction, Mnemonic as M, OpKind};
use pagewalk_stream::PortWork;

use super::latency::{has_memory, latency};
use super::operands::clears;

/// Operations on ports since the last op.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    alu: i32,
    multiply: u8,
    vector: u8,
    vector_multiply: u8,
}

impl Work {
    /// Adds an instruction, apart from its memory accesses and its branch.
    pub fn add(&mut self, i: &Instruction) {
        if clears(i) || takes_no_port(i) {
            return;
        }
        if is_vector(i) {
            self.vector = self.vector.saturating_add(1);
            let multiplies = u8::from(multiplies_vectors(i));
            self.vector_multiply = self.vector_multiply.saturating_add(multiplies);
            return;
        }
        match i.mnemonic() {
            M::Imul | M::Mul | M::Mulx | M::Crc32 | M::Pdep | M::Pext => {
                self.multiply = self.multiply.saturating_add(1);
            }
            _ => self.alu += 1,
        }
    }

    /// Removes the instruction before a conditional branch, which executes with it.
    pub fn fuse(&mut self) {
        self.alu -= 1;
    }

    /// Adds it to that of an op.
    pub fn add_to(self, op: &mut PortWork) {
        op.alu = op.alu.saturating_add(self.alu.clamp(-128, 127) as i8);
        op.multiply = op.multiply.saturating_add(self.multiply);
        op.vector = op.vector.saturating_add(self.vector);
        op.vector_multiply = op.vector_multiply.saturating_add(self.vector_multiply);
    }

    /// The work beside `simple` instructions.
    pub fn beside(mut self, simple: u16) -> PortWork {
        let mut work = PortWork::default();
        self.alu -= i32::from(simple);
        self.add_to(&mut work);
        work
    }
}

/// True if a conditional branch right after it executes together with it (branch fusion of Zen 3, AMD Software
/// Optimization Guide for family 19h, publication 56665).
pub(super) fn fuses(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        M::Cmp | M::Test | M::Add | M::Sub | M::Inc | M::Dec | M::And | M::Or | M::Xor
    )
}

/// True for control flow, which a branch op executes, for what renaming executes, and for a plain load or store.
fn takes_no_port(i: &Instruction) -> bool {
    if i.flow_control() != FlowControl::Next {
        return true;
    }
    if matches!(i.mnemonic(), M::Nop | M::Endbr64 | M::Vzeroupper) {
        return true;
    }
    let registers = (0..i.op_count()).all(|n| i.op_kind(n) == OpKind::Register);
    let narrow = i.op0_register().is_gpr8() || i.op0_register().is_gpr16();
    latency(i) == 0 && (has_memory(i) || registers && !narrow)
}

/// True for vector and floating-point instructions.
fn is_vector(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_register(n).is_vector_register() || i.op_register(n).is_mm())
        || i.cpuid_features().contains(&CpuidFeature::FPU)
}

fn multiplies_vectors(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        M::Mulss
            | M::Mulsd
            | M::Mulps
            | M::Mulpd
            | M::Vmulss
            | M::Vmulsd
            | M::Vmulps
            | M::Vmulpd
            | M::Pmuludq
            | M::Pmuldq
            | M::Pmulld
            | M::Pmullw
            | M::Pmulhw
            | M::Pmulhuw
            | M::Pmaddwd
            | M::Psadbw
            | M::Vpmuludq
            | M::Vpmuldq
            | M::Vpmulld
            | M::Vpmullw
            | M::Vpmulhw
            | M::Vpmulhuw
            | M::Vpmaddwd
            | M::Vpsadbw
            | M::Vfmadd132ss
            | M::Vfmadd132sd
            | M::Vfmadd132ps
            | M::Vfmadd132pd
            | M::Vfmadd213ss
            | M::Vfmadd213sd
            | M::Vfmadd213ps
            | M::Vfmadd213pd
            | M::Vfmadd231ss
            | M::Vfmadd231sd
            | M::Vfmadd231ps
            | M::Vfmadd231pd
            | M::Fmul
            | M::Fmulp
            | M::Fimul
    )
}
