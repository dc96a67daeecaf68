//! Files of the kernel that tell a program about memory.

/// Part of such a file, as a program asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Its path. Files of the process begin with `/proc/self/`.
    pub path: String,
    /// First wanted byte of `pagemap`; other files are given as a whole.
    pub offset: u64,
    /// Wanted bytes of `pagemap`.
    pub bytes: u64,
}
