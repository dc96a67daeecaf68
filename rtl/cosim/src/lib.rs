//! The hardware in `rtl/` against the simulator: parameters generated from its configuration, blocks
//! that Verilator has compiled, and engines that compare each of their answers with a block's.

pub mod check;
pub mod header;
pub mod l2p;
pub mod l2p_check;
pub mod registers;
pub mod spec_engine;
pub mod stlt_check;
pub mod stlt_unit;
pub mod verilated;

use std::path::{Path, PathBuf};

use pagewalk_machine::config::Config;
use pagewalk_machine::{Installation, RunSpec};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The configuration of a shipped design on a shipped machine.
///
/// # Panics
/// There is no such machine or design.
pub fn configuration(machine: &str, design: &str) -> Config {
    let spec: RunSpec =
        serde_json::from_value(serde_json::json!({ "machine": machine, "designs": [design] }))
            .expect("the specification is well formed");
    let mut designs = Installation::at(&root())
        .resolve(&spec)
        .unwrap_or_else(|error| panic!("{machine}, {design}: {error}"));
    designs.remove(0).config
}
