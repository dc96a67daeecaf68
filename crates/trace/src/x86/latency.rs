use iced_x86::{Instruction, Mnemonic as M, OpKind};

/// Cycles from the operands of an instruction to its result, without memory.
///
/// Zen 3, from AMD's Software Optimization Guide for family 19h (publication 56665, sections 2.10 and 2.11 and its
/// instruction latency table): integer arithmetic, logic and shifts 1, multiplication 3, floating-point addition and
/// multiplication 3, fused 4, conversions 3 to 4, integer to vector register and back 3. Division takes the upper end
/// of the table's range for its width.
pub(crate) fn latency(i: &Instruction) -> u16 {
    match i.mnemonic() {
        // Renamed, not executed.
        M::Mov
        | M::Movaps
        | M::Movups
        | M::Movdqa
        | M::Movdqu
        | M::Movapd
        | M::Movupd
        | M::Vmovaps
        | M::Vmovups
        | M::Vmovdqa
        | M::Vmovdqu
        | M::Vmovapd
        | M::Vmovupd => 0,
        M::Movd | M::Movq | M::Vmovd | M::Vmovq if crosses(i) => 3,
        // From memory these cost no more than the load.
        M::Movd
        | M::Movq
        | M::Vmovd
        | M::Vmovq
        | M::Movss
        | M::Movsd
        | M::Vmovss
        | M::Vmovsd
        | M::Movzx
        | M::Movsx
        | M::Movsxd
        | M::Movlps
        | M::Movhps
        | M::Vbroadcastss
        | M::Vbroadcastsd
        | M::Pop
        | M::Push
        | M::Lddqu
        | M::Vlddqu
        | M::Fld
        | M::Fst
        | M::Fstp
            if has_memory(i) =>
        {
            0
        }
        M::Imul | M::Mul | M::Mulx => 3,
        M::Div | M::Idiv => match i.op0_register().size().max(i.memory_size().size()) {
            0..=2 => 11,
            3..=4 => 12,
            _ => 20,
        },
        M::Popcnt | M::Lzcnt | M::Bswap => 1,
        M::Bsf | M::Bsr => 4,
        M::Tzcnt => 2,
        M::Crc32 | M::Pdep | M::Pext => 3,
        M::Pclmulqdq
        | M::Vpclmulqdq
        | M::Aesenc
        | M::Aesdec
        | M::Aesenclast
        | M::Aesdeclast
        | M::Vaesenc
        | M::Vaesdec
        | M::Vaesenclast
        | M::Vaesdeclast => 4,
        M::Shld | M::Shrd => 4,
        M::Cpuid | M::Rdtsc | M::Rdtscp => 40,
        M::Addss
        | M::Addsd
        | M::Addps
        | M::Addpd
        | M::Subss
        | M::Subsd
        | M::Subps
        | M::Subpd
        | M::Mulss
        | M::Mulsd
        | M::Mulps
        | M::Mulpd
        | M::Vaddss
        | M::Vaddsd
        | M::Vaddps
        | M::Vaddpd
        | M::Vsubss
        | M::Vsubsd
        | M::Vsubps
        | M::Vsubpd
        | M::Vmulss
        | M::Vmulsd
        | M::Vmulps
        | M::Vmulpd
        | M::Haddpd
        | M::Haddps
        | M::Pmuludq
        | M::Pmulld
        | M::Pmullw
        | M::Pmulhw
        | M::Pmulhuw
        | M::Pmaddwd
        | M::Psadbw
        | M::Vpmuludq
        | M::Vpmulld
        | M::Vpmullw
        | M::Vpmulhw
        | M::Vpmulhuw
        | M::Vpmaddwd
        | M::Vpsadbw => 3,
        M::Vfmadd132sd
        | M::Vfmadd213sd
        | M::Vfmadd231sd
        | M::Vfmadd132ss
        | M::Vfmadd213ss
        | M::Vfmadd231ss
        | M::Vfmadd132pd
        | M::Vfmadd213pd
        | M::Vfmadd231pd
        | M::Vfmadd132ps
        | M::Vfmadd213ps
        | M::Vfmadd231ps => 4,
        M::Cvtsi2sd
        | M::Cvtsi2ss
        | M::Cvttsd2si
        | M::Cvttss2si
        | M::Cvtsd2si
        | M::Cvtss2si
        | M::Vcvtsi2sd
        | M::Vcvtsi2ss
        | M::Vcvttsd2si
        | M::Vcvttss2si => 7,
        M::Cvtss2sd
        | M::Cvtsd2ss
        | M::Cvtdq2pd
        | M::Cvtdq2ps
        | M::Cvttps2dq
        | M::Cvttpd2dq
        | M::Vcvtss2sd
        | M::Vcvtsd2ss
        | M::Vcvtdq2pd
        | M::Vcvtdq2ps => 4,
        M::Comiss
        | M::Comisd
        | M::Ucomiss
        | M::Ucomisd
        | M::Vcomiss
        | M::Vcomisd
        | M::Vucomiss
        | M::Vucomisd
        | M::Pmovmskb
        | M::Vpmovmskb
        | M::Movmskps
        | M::Movmskpd
        | M::Vmovmskps
        | M::Vmovmskpd
        | M::Ptest
        | M::Vptest
        | M::Pextrq
        | M::Pextrd
        | M::Pextrw
        | M::Pextrb
        | M::Pinsrq
        | M::Pinsrd
        | M::Pinsrw
        | M::Pinsrb => 3,
        M::Divss | M::Divps | M::Vdivss | M::Vdivps => 10,
        M::Divsd | M::Divpd | M::Vdivsd | M::Vdivpd => 13,
        M::Sqrtss | M::Sqrtps | M::Vsqrtss | M::Vsqrtps => 14,
        M::Sqrtsd | M::Sqrtpd | M::Vsqrtsd | M::Vsqrtpd => 20,
        M::Pcmpistri | M::Pcmpistrm | M::Pcmpestri | M::Pcmpestrm | M::Vpcmpistri => 11,
        M::Fadd
        | M::Faddp
        | M::Fiadd
        | M::Fsub
        | M::Fsubp
        | M::Fsubr
        | M::Fsubrp
        | M::Fmul
        | M::Fmulp
        | M::Fimul
        | M::Fisub => 6,
        M::Fdiv | M::Fdivp | M::Fdivr | M::Fdivrp => 15,
        M::Fsqrt => 22,
        M::Fild | M::Fist | M::Fistp | M::Fisttp => 8,
        _ => 1,
    }
}

pub(super) fn has_memory(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory)
        || matches!(i.mnemonic(), M::Pop | M::Push)
}

/// True for a move between a general and a vector register.
fn crosses(i: &Instruction) -> bool {
    let (a, b) = (i.op0_register(), i.op1_register());
    a.is_gpr() && b.is_vector_register() || a.is_vector_register() && b.is_gpr()
}
