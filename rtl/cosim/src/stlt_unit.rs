//! The STLT unit of `rtl/stlt_unit`, one cycle at a time.

use crate::verilated::{Block, Model, Waveform, sources};

/// Inputs of a cycle. The module's ports have the same names.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
#[allow(
    missing_docs,
    reason = "rtl/stlt_unit/stlt_unit.sv describes the ports"
)]
pub struct Inputs {
    pub crs_base: u64,
    pub req_integer: u64,
    pub req_va: u64,
    pub row_word: u64,
    pub row_pte: u64,
    pub walked_pte: u64,
    pub ipb_vpn: u64,
    pub stb_vpn: u64,
    pub shoot_vpn: u64,
    pub crs_mask: u32,
    pub random_pick: u32,
    pub req_asid: u16,
    pub stb_asid: u16,
    pub shoot_asid: u16,
    pub random_count: u16,
    pub rst: bool,
    pub crs_write: bool,
    pub crs_on: bool,
    pub req_valid: bool,
    pub req_insert: bool,
    pub set_ready: bool,
    pub row_valid: bool,
    pub write_ready: bool,
    pub walk_ready: bool,
    pub walked_valid: bool,
    pub walked_id: u8,
    pub ipb_insert: bool,
    pub ipb_clear: bool,
    pub ipb_size: u8,
    pub stb_valid: bool,
    pub stb_store: bool,
    pub shoot_valid: bool,
    pub shoot_all: bool,
    pub shoot_size: u8,
}

/// Outputs of a cycle.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(
    missing_docs,
    reason = "rtl/stlt_unit/stlt_unit.sv describes the ports"
)]
pub struct Outputs {
    pub res_va: u64,
    pub set_row: u64,
    pub write_row: u64,
    pub write_word: u64,
    pub write_pte: u64,
    pub walk_vpn: u64,
    pub stb_pte: u64,
    pub walk_asid: u16,
    pub idle: bool,
    pub req_ready: bool,
    pub res_valid: bool,
    pub set_valid: bool,
    pub write_valid: bool,
    pub write_counter: bool,
    pub walk_valid: bool,
    pub walk_id: u8,
    pub ipb_full: bool,
    pub stb_hit: bool,
    pub inserted: bool,
    pub outcome: u8,
    pub dropped: bool,
    pub invalid: bool,
}

/// A model of the unit. Random numbers come from its inputs.
pub type StltUnit = Model<Inputs, Outputs>;

impl Model<Inputs, Outputs> {
    /// A model with these parameters, after its reset.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn with_ways(ways: u64, saturates: bool, waveform: Option<&Waveform>) -> Self {
        let block = Block {
            top: "stlt_unit",
            sources: sources(&["stlt_unit"]),
            shim: crate::root().join("rtl/cosim/shim/stlt_unit.cpp"),
            parameters: vec![
                ("WAYS", ways),
                ("SATURATES", u64::from(saturates)),
                ("EXTERNAL_RANDOM", 1),
            ],
            waveform: waveform.cloned(),
        };
        let reset = Inputs {
            rst: true,
            ..Inputs::default()
        };
        // SAFETY: shim/stlt_unit.cpp has the same structures.
        unsafe { Model::start(&block, &reset) }
    }
}
