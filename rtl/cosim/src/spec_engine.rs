//! The speculation engine of `rtl/spec_engine`, one cycle at a time.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use crate::verilated::{Block, sources};

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

/// Functions of the library.
#[derive(Clone, Copy)]
struct Functions {
    free: unsafe extern "C" fn(*mut c_void),
    trace: unsafe extern "C" fn(*mut c_void, *const c_char),
    step: unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs),
}

/// The block that is compiled.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Tiers of the hardware; the header's if `None`.
    pub tiers: Option<u64>,
    /// True if it can write a waveform.
    pub trace: bool,
    /// A netlist of the engine and the models of its cells, in place of the sources.
    pub netlist: Vec<PathBuf>,
}

impl Variant {
    fn block(&self) -> Block {
        Block {
            top: "spec_engine",
            sources: if self.netlist.is_empty() {
                sources(&["common", "spec_engine"])
            } else {
                self.netlist.clone()
            },
            shim: crate::root().join("rtl/cosim/shim/spec_engine.cpp"),
            parameters: self.tiers.map(|n| ("TIERS", n)).into_iter().collect(),
            trace: self.trace,
        }
    }
}

/// A model of the engine, after its reset.
pub struct SpecEngine {
    functions: Functions,
    model: *mut c_void,
    /// Outputs of the last cycle.
    pub outputs: Outputs,
    /// Cycles since the reset.
    pub cycle: u64,
}

// SAFETY: the model belongs to this value alone, and has no state of a thread.
unsafe impl Send for SpecEngine {}
// SAFETY: every method that reaches the model takes `&mut self`.
unsafe impl Sync for SpecEngine {}

impl SpecEngine {
    /// Compiles the block if need be, and resets a model of it.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn new(variant: &Variant) -> Self {
        let library = variant.block().load();
        // SAFETY: the shim defines these functions with these signatures.
        let (make, functions) = unsafe {
            let make: unsafe extern "C" fn() -> *mut c_void =
                std::mem::transmute(library.symbol(c"spec_engine_new"));
            let functions = Functions {
                free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(
                    library.symbol(c"spec_engine_free"),
                ),
                trace: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *const c_char),
                >(library.symbol(c"spec_engine_trace")),
                step: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs),
                >(library.symbol(c"spec_engine_step")),
            };
            (make, functions)
        };
        // SAFETY: it takes nothing.
        let model = unsafe { make() };
        let mut engine = SpecEngine {
            functions,
            model,
            outputs: Outputs::default(),
            cycle: 0,
        };
        let reset = Inputs {
            rst: true,
            ..Inputs::default()
        };
        for _ in 0..2 {
            engine.step(&reset);
        }
        engine.cycle = 0;
        engine
    }

    /// One cycle.
    pub fn step(&mut self, inputs: &Inputs) -> Outputs {
        // SAFETY: the model lives until `drop`, and both structures are the shim's.
        unsafe { (self.functions.step)(self.model, inputs, &mut self.outputs) };
        self.cycle += 1;
        self.outputs
    }

    /// Begins a waveform in this file, or ends it. Only a variant with `trace` writes one.
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

impl Drop for SpecEngine {
    fn drop(&mut self) {
        // SAFETY: the model was made by the library, and nothing uses it after this.
        unsafe { (self.functions.free)(self.model) };
    }
}
