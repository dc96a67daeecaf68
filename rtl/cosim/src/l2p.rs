//! The L2P table of `rtl/l2p`, one cycle at a time.

use pagewalk_units::LINE_SHIFT;

use crate::header::L2P_PA_BITS;
use crate::verilated::{Block, Model, Waveform, sources};

/// Inputs of a cycle. The module's ports have the same names.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "rtl/l2p/l2p.sv describes the ports")]
pub struct Inputs {
    pub write_value: u64,
    pub req_key: u64,
    pub rst: bool,
    pub write_valid: bool,
    pub write_what: u8,
    pub write_way: u8,
    pub write_size: u8,
    pub write_index: u8,
    pub req_valid: bool,
    pub cwc_pud_hit: bool,
    pub cwc_pud_header: u8,
    pub cwc_pmd_hit: bool,
    pub cwc_pmd_header: u8,
}

/// Words of the lines of all ways.
const WORDS: usize = 16;

/// Outputs of a cycle.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Outputs {
    /// Lines of all ways, packed.
    lines: [u32; WORDS],
    /// Ways to read, a bit for each way of each page size, 4 KB first.
    pub ways: u16,
    /// Ways that have memory.
    pub live: u16,
    /// Those of them without an L2P entry.
    pub missing: u16,
    /// The write is taken in this cycle, if there is one.
    pub write_ready: bool,
    /// The walk is taken in this cycle, if there is one.
    pub req_ready: bool,
    /// There is a result.
    pub valid: bool,
    /// The walk reads all ways.
    pub all: bool,
    /// The headers of a walk are due in the next cycle.
    pub cwc_due: bool,
}

impl Outputs {
    /// Number of the physical line of a unit: page size times ways plus way.
    pub fn line(&self, unit: usize) -> u64 {
        const BITS: u32 = L2P_PA_BITS - LINE_SHIFT;
        let (word, shift) = (unit * BITS as usize / 32, unit * BITS as usize % 32);
        let wide = (0..3).rfold(0u128, |wide, i| {
            wide << 32 | u128::from(*self.lines.get(word + i).unwrap_or(&0))
        });
        (wide >> shift) as u64 & ((1 << BITS) - 1)
    }
}

/// A model of the block.
pub type L2pTable = Model<Inputs, Outputs>;

impl Model<Inputs, Outputs> {
    /// A model with tables of this number of ways, after its reset.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn with_table_ways(ways: u64, waveform: Option<&Waveform>) -> Self {
        let block = Block {
            top: "l2p",
            sources: sources(&["common", "l2p"]),
            shim: crate::root().join("rtl/cosim/shim/l2p.cpp"),
            parameters: vec![("WAYS", ways)],
            waveform: waveform.cloned(),
        };
        let reset = Inputs {
            rst: true,
            ..Inputs::default()
        };
        // SAFETY: shim/l2p.cpp has the same structures.
        unsafe { Model::start(&block, &reset) }
    }
}
