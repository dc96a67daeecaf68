//! What QEMU 7.2 offers a plugin (version 1 of its interface), as far as it is used here.

use std::ffi::{c_char, c_int, c_uint, c_void};

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
    pub fn qemu_plugin_register_vcpu_tb_exec_inline(
        block: *mut Block,
        operation: c_int,
        word: *mut c_void,
        immediate: u64,
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
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub fn qemu_plugin_path_to_binary() -> *const c_char;
}
