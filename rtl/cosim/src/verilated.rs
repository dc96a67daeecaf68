//! Blocks that Verilator compiles into shared libraries. A library is kept in Cargo's target folder until
//! a source, a parameter or the tool changes.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests whose waveform is written.
#[derive(Clone, Debug)]
pub struct Waveform {
    /// The VCD file.
    pub file: PathBuf,
    /// Number of the first request. From 0 on, the waveform begins with the reset.
    pub first: u64,
    /// Number of requests.
    pub requests: u64,
}

impl Waveform {
    /// The change before request `n`: the waveform begins in this file, or ends (`Some(None)`).
    pub fn change(&self, n: u64) -> Option<Option<&Path>> {
        if n == self.first + self.requests {
            return Some(None);
        }
        (n == self.first && n > 0).then_some(Some(&self.file))
    }

    /// True if request `n` is in the waveform.
    pub fn contains(&self, n: u64) -> bool {
        (self.first..self.first + self.requests).contains(&n)
    }
}

/// A block to compile.
#[derive(Clone, Debug)]
pub struct Block {
    /// Name of the top module.
    pub top: &'static str,
    /// Its sources.
    pub sources: Vec<PathBuf>,
    /// Its ports, in C++; block.h beside it has the functions that Rust calls.
    pub shim: PathBuf,
    /// Parameters of the top module that differ from the header's.
    pub parameters: Vec<(&'static str, u64)>,
    /// The waveform that the model can write.
    pub waveform: Option<Waveform>,
}

/// The sources in these folders of `rtl/`, in alphabetical order.
pub fn sources(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        let folder = crate::root().join("rtl").join(folder);
        let entries = fs::read_dir(&folder).expect("the folder of sources is readable");
        let paths = entries.map(|entry| entry.expect("the folder is readable").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|e| e == "sv")));
    }
    found.sort();
    found
}

/// Names the Debian package of a program that is needed and missing.
pub fn missing() -> Option<&'static str> {
    let starts = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let tools = [("verilator", "verilator"), ("g++", "g++")];
    let lacks = tools.into_iter().find(|(program, _)| !starts(program));
    lacks.map(|(_, package)| package)
}

/// True if Verilator is there. Otherwise says which package brings what a test needs.
pub fn available() -> bool {
    let missing = missing();
    if let Some(package) = missing {
        eprintln!(
            "SKIPPED: {package} is not installed (on Debian, as root: apt-get install {package})"
        );
    }
    missing.is_none()
}

/// Locks a mutex. A test that failed while it had the lock has left nothing half-done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command to its end.
fn run(command: &mut Command) -> String {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

impl Block {
    /// A number that changes with everything that the library depends on.
    fn fingerprint(&self, version: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        let generated = fs::read_dir(crate::root().join("rtl/generated")).into_iter();
        let headers = generated.flatten().flatten().map(|entry| entry.path());
        let mut headers: Vec<_> = headers.collect();
        headers.sort();
        let shared = self.shim.with_file_name("block.h");
        let shim = [&self.shim, &shared];
        for path in self.sources.iter().chain(shim).chain(&headers) {
            let text = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            text.hash(&mut hasher);
        }
        let traced = self.waveform.is_some();
        (self.top, &self.parameters, traced, version).hash(&mut hasher);
        hasher.finish()
    }

    /// The compiled library.
    fn compiled(&self) -> PathBuf {
        let version = run(Command::new("verilator").arg("--version"));
        let name = format!("{}-{:016x}", self.top, self.fingerprint(&version));
        let folder = target().join("verilated").join(name);
        let library = folder.join("model.so");
        if library.exists() {
            return library;
        }
        // Another process may compile the same: each has a folder of its own, and the last rename stays.
        let work = folder.join(format!("work-{}", std::process::id()));
        fs::create_dir_all(&work).expect("the target folder is writable");
        let generated = crate::root().join("rtl/generated");
        let mut verilate = Command::new("verilator");
        verilate
            .args(["--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"])
            .args(["--noassert", "-Wno-fatal", "--top-module", self.top])
            .args(["--prefix", "Model", "--Mdir"])
            .arg(&work)
            .arg(format!("-I{}", generated.display()))
            .args(
                self.parameters
                    .iter()
                    .map(|(name, n)| format!("-G{name}={n}")),
            )
            .args(self.waveform.is_some().then_some("--trace"))
            .args(&self.sources);
        run(&mut verilate);
        let root = run(Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]));
        let include = Path::new(root.trim()).join("include");
        let entries = fs::read_dir(&work).expect("Verilator has written its model");
        let model = entries.map(|entry| entry.expect("the folder is readable").path());
        let model = model.filter(|path| path.extension().is_some_and(|e| e == "cpp"));
        let runtime = ["verilated.cpp", "verilated_threads.cpp"];
        let tracing = self.waveform.as_ref().map(|_| "verilated_vcd_c.cpp");
        let built = work.join("model.so");
        let mut compile = Command::new("g++");
        compile
            .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-pthread"])
            .arg(format!("-DVM_TRACE={}", u8::from(self.waveform.is_some())))
            .arg(format!("-I{}", work.display()))
            .arg(format!("-I{}", include.display()))
            .arg(format!("-I{}", include.join("vltstd").display()))
            .arg("-o")
            .arg(&built)
            .args(model)
            .arg(&self.shim)
            .args(
                runtime
                    .iter()
                    .chain(&tracing)
                    .map(|file| include.join(file)),
            );
        run(&mut compile);
        fs::rename(&built, &library).expect("the target folder is writable");
        // What is left there helps nobody, and costs space only.
        let _ = fs::remove_dir_all(&work);
        library
    }

    /// Compiles the block if need be, and loads it.
    fn load(&self) -> Library {
        // Tests of one process wait for each other instead of compiling the same library twice.
        static COMPILING: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
        let library = format!("{}{:?}", self.top, (&self.parameters, &self.waveform));
        let compiling = locked(&COMPILING).entry(library).or_default().clone();
        let path = {
            let _compiling = locked(&compiling);
            self.compiled()
        };
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path without zero bytes");
        // SAFETY: the library was compiled above. Its initialisers set constants of Verilator's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} cannot be loaded", path.display());
        Library { handle }
    }
}

/// A loaded block. It stays loaded until the process ends.
struct Library {
    handle: *mut c_void,
}

impl Library {
    /// Address of a function.
    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is that of a loaded library, and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "the library has no {name:?}");
        address
    }
}

type New = unsafe extern "C" fn() -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Trace = unsafe extern "C" fn(*mut c_void, *const c_char);
type Step<I, O> = unsafe extern "C" fn(*mut c_void, *const I, *mut O);

/// A model of a block. `I` and `O` are the structures of its shim.
pub struct Model<I, O> {
    free: Free,
    trace: Trace,
    step: Step<I, O>,
    model: *mut c_void,
    /// Outputs of the last cycle.
    pub outputs: O,
    /// Cycles since the reset.
    pub cycle: u64,
}

// SAFETY: the model belongs to this value alone, and has no state of a thread.
unsafe impl<I, O: Send> Send for Model<I, O> {}
// SAFETY: every method that reaches the model takes `&mut self`.
unsafe impl<I, O: Sync> Sync for Model<I, O> {}

impl<I, O: Copy + Default> Model<I, O> {
    /// Compiles the block if need be, and resets a model of it with these inputs.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    ///
    /// # Safety
    /// The shim's `Inputs` and `Outputs` have the layout of `I` and `O`.
    pub unsafe fn start(block: &Block, reset: &I) -> Self {
        let library = block.load();
        // SAFETY: shim/block.h defines these functions with these signatures.
        let (new, free, trace, step) = unsafe {
            (
                std::mem::transmute::<*mut c_void, New>(library.symbol(c"block_new")),
                std::mem::transmute::<*mut c_void, Free>(library.symbol(c"block_free")),
                std::mem::transmute::<*mut c_void, Trace>(library.symbol(c"block_trace")),
                std::mem::transmute::<*mut c_void, Step<I, O>>(library.symbol(c"block_step")),
            )
        };
        let mut model = Model {
            free,
            trace,
            step,
            // SAFETY: it takes nothing.
            model: unsafe { new() },
            outputs: O::default(),
            cycle: 0,
        };
        if let Some(waveform) = &block.waveform
            && waveform.first == 0
        {
            model.trace(Some(&waveform.file));
        }
        for _ in 0..2 {
            model.step(reset);
        }
        model.cycle = 0;
        model
    }

    /// One cycle.
    pub fn step(&mut self, inputs: &I) -> O {
        // SAFETY: the model lives until `drop`, and both structures are the shim's (`start`).
        unsafe { (self.step)(self.model, inputs, &raw mut self.outputs) };
        self.cycle += 1;
        self.outputs
    }

    /// Begins a waveform in this file, or ends it. Only a block with a waveform writes one.
    ///
    /// # Panics
    /// The path has a zero byte.
    pub fn trace(&mut self, path: Option<&Path>) {
        let path = path.map(|p| CString::new(p.as_os_str().as_bytes()).expect("no zero byte"));
        let path = path.as_ref().map_or(ptr::null(), |p| p.as_ptr());
        // SAFETY: the model lives until `drop`; the path is null or ends with a zero.
        unsafe { (self.trace)(self.model, path) };
    }
}

impl<I, O> Drop for Model<I, O> {
    fn drop(&mut self) {
        // SAFETY: the model was made by the library, and nothing uses it after this.
        unsafe { (self.free)(self.model) };
    }
}
