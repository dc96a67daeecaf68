//! Instructions that the timing model does not simulate as hardware does.

/// A class of such instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum InstructionClass {
    /// `mfence`, `lfence`, `serialize`.
    Fence,
    /// `xsave`, `xrstor`, `fxsave`, `fxrstor` and their like.
    State,
    /// `xbegin`, `xend`, `xabort`, `xtest`.
    Transaction,
    /// `pause`, `tpause`, `monitor`, `mwait`, `umonitor`, `umwait`.
    Wait,
    /// `rdtsc`, `rdtscp`, `rdpmc`.
    Clock,
    /// Instructions of AVX-512 and other EVEX encodings.
    Evex,
}

/// Description of a class.
#[derive(Clone, Copy, Debug)]
pub struct Approximation {
    /// The class.
    pub class: InstructionClass,
    /// Its name in results.
    pub name: &'static str,
    /// Its instructions.
    pub instructions: &'static str,
    /// The simulation of such an instruction.
    pub simulated: &'static str,
    /// The effect on results.
    pub effect: &'static str,
}

/// All classes, in the order of [`InstructionClass`].
pub const APPROXIMATIONS: [Approximation; 6] = [
    Approximation {
        class: InstructionClass::Fence,
        name: "fence",
        instructions: "`mfence`, `lfence`, `serialize`",
        simulated: "a drained window, with all older stores written",
        effect: "cycles are too large for `lfence`",
    },
    Approximation {
        class: InstructionClass::State,
        name: "state",
        instructions: "`xsave`, `xrstor`, `fxsave`, `fxrstor` and variants",
        simulated: "one or two accesses to a line",
        effect: "cycles and cache accesses are too small",
    },
    Approximation {
        class: InstructionClass::Transaction,
        name: "transaction",
        instructions: "`xbegin`, `xend`, `xabort`, `xtest`",
        simulated: "a transaction that always aborts, as under QEMU",
        effect: "instructions and cycles are those of the fallback path",
    },
    Approximation {
        class: InstructionClass::Wait,
        name: "wait",
        instructions: "`pause`, `tpause`, `monitor`, `mwait`, `umonitor`, `umwait`",
        simulated: "a plain instruction of one cycle",
        effect: "waiting loops execute too many instructions, and IPC is too large",
    },
    Approximation {
        class: InstructionClass::Clock,
        name: "clock",
        instructions: "`rdtsc`, `rdtscp`, `rdpmc`",
        simulated: "a plain instruction that reads the emulator's time, without `--clock simulated`",
        effect: "times that the program measures are not those of the machine",
    },
    Approximation {
        class: InstructionClass::Evex,
        name: "evex",
        instructions: "AVX-512 and other EVEX encodings",
        simulated: "not at all: QEMU up to 10.0 has no such instruction, and the program gets SIGILL",
        effect: "the run ends there",
    },
];

/// Instructions of a program, and those of each class among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionCounts {
    /// All instructions that the source has decoded.
    pub instructions: u64,
    /// Instructions of each class.
    pub classes: [u64; APPROXIMATIONS.len()],
    /// System calls of a live program that asked for the time.
    pub clock_calls: u64,
    /// Programs that a live process has started to execute; 0 in a recording.
    pub program_starts: u64,
}

impl InstructionCounts {
    /// Adds an execution of a block of `instructions`, with these classes among them.
    #[inline(always)]
    pub fn add_block(&mut self, instructions: u64, classes: &[(InstructionClass, u16)]) {
        self.instructions += instructions;
        for &(class, n) in classes {
            self.classes[class as usize] += u64::from(n);
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &InstructionCounts) {
        self.instructions += other.instructions;
        self.clock_calls += other.clock_calls;
        self.program_starts += other.program_starts;
        for (own, other) in self.classes.iter_mut().zip(other.classes) {
            *own += other;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::APPROXIMATIONS;

    /// Page with the table of classes, from this crate.
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    const BEGIN: &str = "<!-- Made from crates/stream/src/approximated.rs: its test writes it anew if PAGEWALK_WRITE=1 is set. -->\n";
    const END: &str = "<!-- End of the table. -->\n";

    #[test]
    fn descriptions_are_in_the_order_of_the_classes() {
        for (n, one) in APPROXIMATIONS.iter().enumerate() {
            assert_eq!(one.class as usize, n);
        }
    }

    #[test]
    fn the_page_of_limits_has_the_table_of_all_classes() {
        let mut table =
            String::from("\n| name | instructions | simulated as | effect |\n|---|---|---|---|\n");
        for one in &APPROXIMATIONS {
            writeln!(
                table,
                "| `{}` | {} | {} | {} |",
                one.name, one.instructions, one.simulated, one.effect
            )
            .expect("a text takes all");
        }
        table.push('\n');
        let page = std::fs::read_to_string(PAGE).expect("the page is there");
        let (before, rest) = page.split_once(BEGIN).expect("the table begins");
        let (found, after) = rest.split_once(END).expect("the table ends");
        if std::env::var_os("PAGEWALK_WRITE").is_some() {
            std::fs::write(PAGE, [before, BEGIN, &table, END, after].concat()).expect("written");
        } else {
            assert_eq!(found, table, "set PAGEWALK_WRITE=1 to write docs/limits.md");
        }
    }
}
