//! What QEMU offers a plugin, as far as it is used here: version 1 of its interface (7.2 to
//! 8.2), and versions 2 and up (9.0 to 10.x), where counters are kept for each virtual CPU
//! and, from version 3 on, an instruction's bytes are copied. What only one of the two has
//! is looked for when this library is loaded.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

/// The plugin's number.
pub type Id = u64;
/// A block while it is translated.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}
/// An instruction of such a block.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// The callback does not look at registers.
pub const NO_REGISTERS: c_int = 0;
/// Loads and stores.
pub const READ_WRITE: c_int = 3;
/// Adds a constant to a 64-bit word.
pub const ADD: c_int = 0;

pub type VcpuCallback = unsafe extern "C" fn(Id, c_uint);
pub type TranslateCallback = unsafe extern "C" fn(Id, *mut Block);
pub type ExecuteCallback = unsafe extern "C" fn(c_uint, *mut c_void);
pub type MemoryCallback = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type SyscallCallback =
    unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
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

/// The version of the interface that this library speaks, which QEMU reads before it calls
/// anything: 1, or where QEMU has what came with version 2, that.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded, before QEMU looks at the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    if !symbol(c"qemu_plugin_scoreboard_new").is_null() {
        qemu_plugin_version.store(2, Relaxed);
    }
}

/// Whether QEMU is 9.0 or newer.
pub fn is_second() -> bool {
    qemu_plugin_version.load(Relaxed) >= 2
}

pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a null-terminated name, looked for in what is loaded.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The function at `pointer`.
///
/// # Safety
/// `F` is the type of a function, and that one's.
pub unsafe fn function<F: Copy>(pointer: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: by the contract; the sizes are the same.
    unsafe { transmute_copy(&pointer) }
}

/// The start of what QEMU tells of itself at the installation.
#[repr(C)]
pub struct Info {
    _target: *const c_char,
    _oldest: c_int,
    /// The newest version of the interface that it has.
    newest: c_int,
}

/// The version of the interface from which on QEMU does not tell of all accesses (9.1).
const TELLS_LESS: c_int = 3;

/// Counters of 64 bits, one for each virtual CPU.
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

/// How an instruction's bytes are had.
#[derive(Clone, Copy)]
enum Bytes {
    Pointed(PointAt),
    Copied(CopyTo),
}

/// How executed instructions are counted.
#[derive(Clone, Copy)]
pub enum Counting {
    /// Not at all.
    No,
    /// In one word, where threads lose counts to each other.
    Word(AddToWord),
    /// For each virtual CPU; the second function adds them up.
    PerVcpu(AddPerVcpu, PerVcpu, unsafe extern "C" fn(PerVcpu) -> u64),
}

/// What differs between the interfaces.
#[derive(Clone, Copy)]
pub struct Interface {
    bytes: Bytes,
    pub counting: Counting,
    /// QEMU does not tell of what is in `untold`.
    pub tells_less: bool,
}

impl Interface {
    /// With what counts instructions, if `count`. Without it QEMU has nothing to make room for
    /// as threads come.
    ///
    /// # Errors
    /// The name of what is missing.
    ///
    /// # Safety
    /// `info` is what QEMU gives at the installation.
    pub unsafe fn find(info: *const Info, count: bool) -> Result<Interface, &'static str> {
        // SAFETY: by the contract.
        let newest = unsafe { (*info).newest };
        let named = |name: &'static CStr| match symbol(name) {
            p if p.is_null() => Err(name.to_str().unwrap_or("a function")),
            p => Ok(p),
        };
        let data = named(c"qemu_plugin_insn_data")?;
        // SAFETY: these are the functions' types in the versions at hand.
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
                tells_less: newest >= TELLS_LESS,
            })
        }
    }

    /// Appends the bytes of an instruction.
    ///
    /// # Safety
    /// `instruction` is one of the block that is translated at the moment.
    pub unsafe fn append(&self, instruction: *const Instruction, to: &mut Vec<u8>) {
        // SAFETY: by the contract; QEMU gives as many bytes as it says.
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

/// The program that QEMU was given on its command line, behind the end of its options. Not
/// every version tells plugins of it.
pub fn program() -> Option<PathBuf> {
    let words = std::fs::read("/proc/self/cmdline").ok()?;
    let mut words = words.split(|&b| b == 0).skip_while(|w| *w != b"--");
    let path = PathBuf::from(OsString::from_vec(words.nth(1)?.to_vec()));
    std::path::absolute(path).ok()
}
