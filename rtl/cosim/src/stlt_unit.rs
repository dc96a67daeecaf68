//! The STLT unit of `rtl/stlt_unit`, one cycle at a time.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::verilated::{Block, sources};

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

/// Functions of the library.
#[derive(Clone, Copy)]
struct Functions {
    free: unsafe extern "C" fn(*mut c_void),
    trace: unsafe extern "C" fn(*mut c_void, *const c_char),
    step: unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs),
}

/// A model of the unit, after its reset. Random numbers come from its inputs.
pub struct StltUnit {
    functions: Functions,
    model: *mut c_void,
    /// Cycles since the reset.
    pub cycle: u64,
}

impl StltUnit {
    /// Compiles the block if need be, and resets a model of it.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn new(ways: u64, saturates: bool, trace: bool) -> Self {
        let block = Block {
            top: "stlt_unit",
            sources: sources(&["stlt_unit"]),
            shim: crate::root().join("rtl/cosim/shim/stlt_unit.cpp"),
            parameters: vec![
                ("WAYS", ways),
                ("SATURATES", u64::from(saturates)),
                ("EXTERNAL_RANDOM", 1),
            ],
            trace,
        };
        let library = block.load();
        // SAFETY: the shim defines these functions with these signatures.
        let (make, functions) = unsafe {
            let make: unsafe extern "C" fn() -> *mut c_void =
                std::mem::transmute(library.symbol(c"stlt_unit_new"));
            let functions = Functions {
                free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(
                    library.symbol(c"stlt_unit_free"),
                ),
                trace: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *const c_char),
                >(library.symbol(c"stlt_unit_trace")),
                step: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs),
                >(library.symbol(c"stlt_unit_step")),
            };
            (make, functions)
        };
        // SAFETY: it takes nothing.
        let model = unsafe { make() };
        let mut unit = StltUnit {
            functions,
            model,
            cycle: 0,
        };
        for _ in 0..2 {
            unit.step(&Inputs {
                rst: true,
                ..Inputs::default()
            });
        }
        unit.cycle = 0;
        unit
    }

    /// One cycle.
    pub fn step(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the model lives until `drop`, and both structures are the shim's.
        unsafe { (self.functions.step)(self.model, inputs, &raw mut outputs) };
        self.cycle += 1;
        outputs
    }

    /// Begins a waveform in this file, or ends it. Only a model with `trace` writes one.
    ///
    /// # Panics
    /// The path has a zero byte.
    pub fn trace(&mut self, path: Option<&Path>) {
        let path = path.map(|p| CString::new(p.as_os_str().as_bytes()).expect("no zero byte"));
        let path = path.as_ref().map_or(ptr::null(), |p| p.as_ptr());
        // SAFETY: the model lives until `drop`; the path is null or ends with a zero.
        unsafe { (self.functions.trace)(self.model, path) };
    }
}

impl Drop for StltUnit {
    fn drop(&mut self) {
        // SAFETY: the model was made by the library, and nothing uses it after this.
        unsafe { (self.functions.free)(self.model) };
    }
}
