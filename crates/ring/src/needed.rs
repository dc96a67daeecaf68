//! Registers and functions that the plugin needs from an emulator that does not report
//! all accesses. Registers are numbered as in instructions.

/// Number of needed registers.
pub const REGISTERS: usize = 18;
/// Base of the FS segment.
pub const FS_BASE: usize = 16;
/// Base of the GS segment.
pub const GS_BASE: usize = 17;
/// The functions that the plugin needs.
pub const GET_REGISTERS: usize = REGISTERS;
/// See [`GET_REGISTERS`].
pub const READ_REGISTER: usize = REGISTERS + 1;
/// See [`GET_REGISTERS`].
pub const ON_EXECUTION: usize = REGISTERS + 2;
/// See [`GET_REGISTERS`].
pub const NEW_BYTES: usize = REGISTERS + 3;
/// See [`GET_REGISTERS`].
pub const SET_SIZE: usize = REGISTERS + 4;

/// Names of the registers and functions in the emulator.
pub const NAMES: [&str; REGISTERS + 5] = [
    "rax",
    "rcx",
    "rdx",
    "rbx",
    "rsp",
    "rbp",
    "rsi",
    "rdi",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
    "fs_base",
    "gs_base",
    "qemu_plugin_get_registers",
    "qemu_plugin_read_register",
    "qemu_plugin_register_vcpu_insn_exec_cb",
    "g_byte_array_new",
    "g_byte_array_set_size",
];
