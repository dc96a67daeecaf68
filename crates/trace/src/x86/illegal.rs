//! The instruction that the emulator refused, for the report of SIGILL.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// Description of the instruction that ends a block, given as the plugin sends it. The emulator ends a block at an
/// instruction that it does not execute, and may have read only part of it: `memory` gives what lies at its address, if
/// known. `None`: the block ends with a branch, or is cut short.
pub fn describe_illegal(
    raw: &[u8],
    memory: impl FnOnce(u64) -> Option<[u8; 16]>,
) -> Option<String> {
    let (head, rest) = raw.split_at_checked(12)?;
    let start = u64::from_le_bytes(head[..8].try_into().ok()?);
    let count = u32::from_le_bytes(head[8..].try_into().ok()?) as usize;
    let (sizes, code) = rest.split_at_checked(count)?;
    let before: usize = sizes
        .iter()
        .rev()
        .skip(1)
        .map(|&size| usize::from(size))
        .sum();
    let bytes = code.get(before..)?;
    let address = start.wrapping_add(before as u64);
    let decode = |bytes| Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    let (mut bytes, mut instruction) = (bytes, decode(bytes));
    let memory = memory(address).filter(|_| instruction.is_invalid());
    if let Some(memory) = &memory {
        let whole = decode(memory);
        if !whole.is_invalid() {
            (bytes, instruction) = (&memory[..whole.len()], whole);
        }
    }
    let ends_program = matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::Exception
    );
    (!bytes.is_empty() && ends_program).then(|| description(&instruction, bytes, address))
}

fn description(instruction: &Instruction, bytes: &[u8], address: u64) -> String {
    let hexadecimal: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let place = format!("(bytes {} at {address:#x})", hexadecimal.join(" "));
    let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
    match instruction.mnemonic() {
        Mnemonic::INVALID => format!("the emulator does not know the instruction {place}"),
        Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 => {
            format!("{name} {place} is an instruction that programs end themselves with")
        }
        _ => {
            let features: Vec<String> = instruction
                .cpuid_features()
                .iter()
                .map(|feature| format!("{feature:?}"))
                .collect();
            // No CPU model of QEMU 7.2 to 10 has these.
            let nowhere = |f: &String| f.starts_with("AVX512") || f.starts_with("AMX");
            let another = if features.iter().any(nowhere) {
                ""
            } else {
                ", or ask for a processor that has it (--cpu)"
            };
            format!(
                "the emulator does not execute {name} {place}, which needs {}; compile the program without that, for example with -march=x86-64-v3{another}",
                features.join(" and ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::describe_illegal;

    /// A block at 0x1000 of these instructions.
    fn block(instructions: &[&[u8]]) -> Vec<u8> {
        let mut raw = 0x1000u64.to_le_bytes().to_vec();
        raw.extend((instructions.len() as u32).to_le_bytes());
        raw.extend(instructions.iter().map(|bytes| bytes.len() as u8));
        raw.extend(instructions.concat());
        raw
    }

    #[test]
    fn the_last_instruction_is_named_with_its_bytes_its_place_and_a_remedy() {
        let nop: &[u8] = &[0x90];
        // vmovups zmm0, [rdi]
        let wide: &[u8] = &[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x07];
        let expected = "the emulator does not execute vmovups (bytes 62 f1 7c 48 10 07 at 0x1001), which needs AVX512F; compile the program without that, for example with -march=x86-64-v3";
        assert_eq!(
            describe_illegal(&block(&[nop, wide]), |_| None).unwrap(),
            expected
        );
        // The emulator has read one byte of it.
        let mut memory = [0x90; 16];
        memory[..6].copy_from_slice(wide);
        let at = |address| (address == 0x1001).then_some(memory);
        assert_eq!(
            describe_illegal(&block(&[nop, &wide[..1]]), at).unwrap(),
            expected
        );
        // sha256rnds2 xmm0, xmm0
        let hash = describe_illegal(&block(&[&[0x0f, 0x38, 0xcb, 0xc0]]), |_| None).unwrap();
        assert!(
            hash.ends_with("or ask for a processor that has it (--cpu)"),
            "{hash}"
        );
        assert_eq!(
            describe_illegal(&block(&[&[0x0f, 0x0b]]), |_| None).unwrap(),
            "ud2 (bytes 0f 0b at 0x1000) is an instruction that programs end themselves with"
        );
        assert_eq!(
            describe_illegal(&block(&[nop, &[0x06]]), |_| None).unwrap(),
            "the emulator does not know the instruction (bytes 06 at 0x1001)"
        );
        // ret
        assert_eq!(describe_illegal(&block(&[nop, &[0xc3]]), |_| None), None);
        assert_eq!(describe_illegal(&block(&[wide])[..12], |_| None), None);
    }
}
