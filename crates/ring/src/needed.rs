//! What the plugin needs of an emulator that does not tell it of all accesses: registers,
//! numbered as in instructions, and functions.

/// How many registers are needed.
pub const REGISTERS: usize = 18;
/// The segments' bases.
pub const FS_BASE: usize = 16;
/// See [`FS_BASE`].
pub const GS_BASE: usize = 17;
/// The functions.
pub const GET_REGISTERS: usize = REGISTERS;
/// See [`GET_REGISTERS`].
pub const READ_REGISTER: usize = REGISTERS + 1;
/// See [`GET_REGISTERS`].
pub const ON_EXECUTION: usize = REGISTERS + 2;
/// See [`GET_REGISTERS`].
pub const NEW_BYTES: usize = REGISTERS + 3;
/// See [`GET_REGISTERS`].
pub const SET_SIZE: usize = REGISTERS + 4;

/// The names by which the emulator has them.
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
