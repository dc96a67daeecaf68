//! Records of a drmemtrace file.
//!
//! A record has 12 bytes, little-endian: type, size (or kind of marker, or number of encoding bytes), and a value.
//! Layout and numbers as in DynamoRIO's `clients/drcachesim/common/trace_entry.h` of version 7 of the format.

/// Bytes of a record.
pub(super) const ENTRY: usize = 12;
/// The newest version of the format that is read.
pub(super) const NEWEST: u64 = 7;
/// From this version on, a kernel event names the address at which it interrupted the thread.
pub(super) const KERNEL_PC: u64 = 3;

/// Types of records.
pub(super) mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DIRECT_JUMP: u16 = 11;
    pub const INDIRECT_JUMP: u16 = 12;
    pub const CONDITIONAL_JUMP: u16 = 13;
    pub const DIRECT_CALL: u16 = 14;
    pub const INDIRECT_CALL: u16 = 15;
    pub const RETURN: u16 = 16;
    pub const BUNDLE: u16 = 17;
    pub const FLUSH: u16 = 18;
    pub const FLUSH_END: u16 = 21;
    pub const THREAD: u16 = 22;
    pub const THREAD_EXIT: u16 = 23;
    pub const PROCESS: u16 = 24;
    pub const HEADER: u16 = 25;
    pub const FOOTER: u16 = 26;
    pub const HARDWARE_PREFETCH: u16 = 27;
    pub const MARKER: u16 = 28;
    pub const NO_FETCH: u16 = 29;
    pub const MAYBE_FETCH: u16 = 30;
    pub const SYSENTER: u16 = 31;
    pub const ENCODING: u16 = 47;
    pub const TAKEN_JUMP: u16 = 48;
    pub const UNTAKEN_JUMP: u16 = 49;
    /// The first and last types of instructions in one range.
    pub const INSTRUCTION: u16 = 10;
    pub const LAST_INSTRUCTION: u16 = RETURN;
}

/// Kinds of markers.
pub(super) mod marker {
    pub const KERNEL_EVENT: u16 = 0;
    pub const TIMESTAMP: u16 = 2;
    pub const FILE_TYPE: u16 = 9;
    pub const VERSION: u16 = 12;
    pub const SYSCALL_TRACE_START: u16 = 27;
    pub const SYSCALL_TRACE_END: u16 = 28;
    pub const CONTEXT_SWITCH_START: u16 = 34;
    pub const CONTEXT_SWITCH_END: u16 = 35;
}

/// Bits of the file type.
pub(super) mod file_type {
    pub const FILTERED: u64 = 0x1 | 0x80 | 0x100;
    pub const INSTRUCTIONS_ONLY: u64 = 0x4;
    pub const AARCH64: u64 = 0x8;
    pub const X86_64: u64 = 0x40;
    pub const ENCODINGS: u64 = 0x200;
    pub const KERNEL: u64 = 0x1000 | 0x8000;
    pub const TEMPLATES: u64 = 0x4000;
    pub const CORE_SHARDED: u64 = 0x10000;
    pub const REGDEPS: u64 = 0x20000;
    pub const WHOLE_SYSTEM: u64 = 0x40000;
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: u16,
    pub size: u16,
    pub value: u64,
}

impl Entry {
    /// The entry in these bytes, little-endian.
    pub fn parse(bytes: &[u8; ENTRY]) -> Self {
        Entry {
            kind: u16::from_le_bytes([bytes[0], bytes[1]]),
            size: u16::from_le_bytes([bytes[2], bytes[3]]),
            value: u64::from_le_bytes(bytes[4..].try_into().expect("eight bytes")),
        }
    }
}

/// True for an executed instruction, fetched or not.
pub(super) fn is_instruction(kind: u16) -> bool {
    is_branch(kind)
        || matches!(
            kind,
            kind::INSTRUCTION | kind::NO_FETCH | kind::MAYBE_FETCH | kind::SYSENTER
        )
}

/// True for a jump, call or return.
pub(super) fn is_branch(kind: u16) -> bool {
    (kind::DIRECT_JUMP..=kind::LAST_INSTRUCTION).contains(&kind)
        || matches!(kind, kind::TAKEN_JUMP | kind::UNTAKEN_JUMP)
}

/// True if a decompressed file that begins so is a drmemtrace.
pub(crate) fn begins(start: &[u8]) -> bool {
    let Some((first, rest)) = start.split_first_chunk::<ENTRY>() else {
        return false;
    };
    let first = Entry::parse(first);
    let header = first.kind == kind::HEADER && first.size == 0 && (1..256).contains(&first.value);
    let second = rest.first_chunk::<ENTRY>().map(Entry::parse);
    header && second.is_none_or(|e| matches!(e.kind, kind::MARKER | kind::THREAD | kind::PROCESS))
}
