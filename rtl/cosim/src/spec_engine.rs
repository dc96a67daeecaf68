//! The speculation engine of `rtl/spec_engine`, one cycle at a time.

use pagewalk_structures::TierFunction;

use crate::verilated::{Block, Model, Waveform, sources};

/// Inputs of a cycle.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Inputs {
    /// Value of the register that is written.
    pub reg_value: u64,
    /// Line of the virtual address that missed.
    pub req_line: u64,
    /// Its address space.
    pub req_asid: u16,
    /// Delay of the DRAM's bus for the candidate of [`Outputs::probe_line`], in cycles.
    pub probe_delay: u16,
    /// Resets the engine.
    pub rst: bool,
    /// A register is to be written.
    pub reg_valid: bool,
    /// Number of the register.
    pub reg_index: u8,
    /// There is a request.
    pub req_valid: bool,
    /// It merges with another's walk.
    pub req_merges: bool,
    /// The cache takes a guess.
    pub guess_ready: bool,
}

/// Outputs of a cycle.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Outputs {
    /// Physical line of the guess.
    pub guess_line: u64,
    /// Line of the candidate that is judged in the next cycle.
    pub probe_line: u64,
    /// The register is written in this cycle, if there is one to write.
    pub reg_ready: bool,
    /// The request is taken in this cycle, if there is one.
    pub req_ready: bool,
    /// There is a guess.
    pub guess_valid: bool,
    /// It is a page-table entry.
    pub guess_entry: bool,
    /// Tiers of data that the request's filter withholds, a bit each.
    pub data_withheld: u8,
    /// Tiers of page-table entries that it withholds, a bit each.
    pub table_withheld: u8,
    /// The candidate that is judged is a page-table entry.
    pub entry: bool,
    /// Its tier.
    pub tier: u8,
    /// It becomes a guess.
    pub guess: bool,
    /// It was guessed before, for the same request.
    pub repeated: bool,
    /// The DRAM's bus is too busy for it.
    pub delayed: bool,
    /// A candidate is judged in the next cycle.
    pub probe_valid: bool,
}

/// The block that is compiled.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Tiers of the hardware; the header's if `None`.
    pub tiers: Option<u64>,
    /// The hash function of the hardware.
    pub function: TierFunction,
    /// The waveform that it can write.
    pub waveform: Option<Waveform>,
}

impl Variant {
    fn block(&self) -> Block {
        Block {
            top: "spec_engine",
            sources: sources(&["common", "spec_engine"]),
            shim: crate::root().join("rtl/cosim/shim/spec_engine.cpp"),
            parameters: [("HASH", self.function as u64)]
                .into_iter()
                .chain(self.tiers.map(|n| ("TIERS", n)))
                .collect(),
            waveform: self.waveform.clone(),
        }
    }
}

/// A model of the engine.
pub type SpecEngine = Model<Inputs, Outputs>;

impl Model<Inputs, Outputs> {
    /// A model of this variant, after its reset.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn of(variant: &Variant) -> Self {
        let reset = Inputs {
            rst: true,
            ..Inputs::default()
        };
        // SAFETY: shim/spec_engine.cpp has the same structures.
        unsafe { Model::start(&variant.block(), &reset) }
    }
}
