//! The part of QEMU's plugin interface that is used here: version 1 (7.2 to 8.2), and versions 2 and later (9.0 to
//! 10.x). From version 2 on, counters are kept for each virtual CPU. From version 3 on, an instruction's bytes are
//! copied. Functions that only some versions have are looked up when this library is loaded.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

/// The plugin's number.
pub type Id = u64;
/// A block during its translation.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}
/// An instruction of such a block.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// The callback does not read registers.
pub const NO_REGISTERS: c_int = 0;
/// Loads and stores.
pub const READ_WRITE: c_int = 3;
/// Adds a constant to a 64-bit word.
pub const ADD: c_int = 0;

/// Runs when a virtual CPU starts.
pub type VcpuCallback = unsafe extern "C" fn(Id, c_uint);
/// Runs when QEMU translates a block.
pub type TranslateCallback = unsafe extern "C" fn(Id, *mut Block);
/// Runs when a block or an instruction executes.
pub type ExecuteCallback = unsafe extern "C" fn(c_uint, *mut c_void);
/// Runs at each access: virtual CPU, kind, address, argument.
pub type MemoryCallback = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Runs before a system call: number and up to eight arguments.
pub type SyscallCallback =
    unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Runs after a system call: number and result.
pub type SyscallReturnCallback = unsafe extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: VcpuCallback);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: TranslateCallback);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: ExecuteCallback,
        flags: c_int,
        argument: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: MemoryCallback,
        flags: c_int,
        direction: c_int,
        argument: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecuteCallback,
        flags: c_int,
        argument: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SyscallCallback);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, callback: SyscallReturnCallback);
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
}

/// The version of the interface that this library uses: 2 if QEMU has the functions of version 2, otherwise 1. QEMU
/// reads it before any call.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded, before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    if !symbol(c"qemu_plugin_scoreboard_new").is_null() {
        qemu_plugin_version.store(2, Relaxed);
    }
}

/// True for QEMU 9.0 and later.
pub fn is_second() -> bool {
    qemu_plugin_version.load(Relaxed) >= 2
}

/// Address of a function of QEMU or a loaded library; null if there is none.
pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is null-terminated; the call searches the loaded libraries.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The function at `pointer`.
///
/// # Safety
/// `F` is the type of that function.
pub unsafe fn function<F: Copy>(pointer: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: by the contract; the sizes are the same.
    unsafe { transmute_copy(&pointer) }
}

/// The first fields of QEMU's description of itself at the installation.
#[repr(C)]
pub struct Info {
    _target: *const c_char,
    _oldest: c_int,
    /// The newest version of the interface that QEMU has.
    newest: c_int,
}

/// First version of the interface in which QEMU does not report all accesses (QEMU 9.1).
const LEAVES_OUT_ACCESSES: c_int = 3;

/// 64-bit counters, one for each virtual CPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PerVcpu {
    board: *mut c_void,
    offset: usize,
}

// SAFETY: QEMU's functions take it on any thread.
unsafe impl Sync for PerVcpu {}
// SAFETY: as above.
unsafe impl Send for PerVcpu {}

type PointAt = unsafe extern "C" fn(*const Instruction) -> *const c_void;
type CopyTo = unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize;
type AddToWord = unsafe extern "C" fn(*mut Block, c_int, *mut c_void, u64);
type AddPerVcpu = unsafe extern "C" fn(*mut Block, c_int, PerVcpu, u64);

/// Access to an instruction's bytes.
#[derive(Clone, Copy)]
enum Bytes {
    Pointed(PointAt),
    Copied(CopyTo),
}

/// Counter of executed instructions.
#[derive(Clone, Copy)]
pub enum Counting {
    /// None.
    No,
    /// One word; concurrent threads lose counts.
    Word(AddToWord),
    /// One counter for each virtual CPU; the second function adds them up.
    PerVcpu(AddPerVcpu, PerVcpu, unsafe extern "C" fn(PerVcpu) -> u64),
}

/// Differences between the interfaces.
#[derive(Clone, Copy)]
pub struct Interface {
    bytes: Bytes,
    pub counting: Counting,
    /// QEMU does not report the accesses in `unreported`.
    pub leaves_out_accesses: bool,
}

impl Interface {
    /// Finds the functions. Looks for a counter only if `count`, because QEMU otherwise need not extend it as threads
    /// are created.
    ///
    /// # Errors
    /// The name of a missing function.
    ///
    /// # Safety
    /// `info` is QEMU's argument at the installation.
    pub unsafe fn find(info: *const Info, count: bool) -> Result<Interface, &'static str> {
        // SAFETY: by the contract.
        let newest = unsafe { (*info).newest };
        let named = |name: &'static CStr| match symbol(name) {
            p if p.is_null() => Err(name.to_str().unwrap_or("a function")),
            p => Ok(p),
        };
        let data = named(c"qemu_plugin_insn_data")?;
        // SAFETY: these are the functions' types in the supported versions.
        unsafe {
            let bytes = if newest >= 3 {
                Bytes::Copied(function(data))
            } else {
                Bytes::Pointed(function(data))
            };
            let counting = if !count {
                Counting::No
            } else if is_second() {
                let make = named(c"qemu_plugin_scoreboard_new")?;
                let make: unsafe extern "C" fn(usize) -> *mut c_void = function(make);
                let add = named(c"qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu")?;
                let sum = named(c"qemu_plugin_u64_sum")?;
                let counters = PerVcpu {
                    board: make(size_of::<u64>()),
                    offset: 0,
                };
                Counting::PerVcpu(function(add), counters, function(sum))
            } else {
                let add = named(c"qemu_plugin_register_vcpu_tb_exec_inline")?;
                Counting::Word(function(add))
            };
            Ok(Interface {
                bytes,
                counting,
                leaves_out_accesses: newest >= LEAVES_OUT_ACCESSES,
            })
        }
    }

    /// Appends the bytes of an instruction.
    ///
    /// # Safety
    /// `instruction` belongs to the block that is being translated.
    pub unsafe fn append(&self, instruction: *const Instruction, to: &mut Vec<u8>) {
        // SAFETY: by the contract; QEMU returns as many bytes as its size says.
        unsafe {
            let size = qemu_plugin_insn_size(instruction);
            match self.bytes {
                Bytes::Pointed(data) => {
                    let data = data(instruction).cast::<u8>();
                    to.extend(std::slice::from_raw_parts(data, size));
                }
                Bytes::Copied(copy) => {
                    let start = to.len();
                    to.resize(start + size, 0);
                    copy(instruction, to[start..].as_mut_ptr().cast(), size);
                }
            }
        }
    }
}

/// The program on QEMU's command line, after the end of its options. Not every version reports it to plugins.
pub fn program() -> Option<PathBuf> {
    let words = std::fs::read("/proc/self/cmdline").ok()?;
    let mut words = words.split(|&b| b == 0).skip_while(|w| *w != b"--");
    let path = PathBuf::from(OsString::from_vec(words.nth(1)?.to_vec()));
    std::path::absolute(path).ok()
}
