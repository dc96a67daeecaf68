//! Files that the guest maps.

use std::ffi::CStr;

/// A regular file, as the engine needs to know it.
#[derive(Clone, Copy, Default)]
pub struct MappedFile {
    /// Number of the file, the same in all processes; never 0.
    pub key: u64,
    /// Its pages, the last one perhaps in part.
    pub pages: u64,
    /// Its pages are in the page cache; otherwise it is shared memory (`memfd_create`, `/dev/shm`).
    pub cached: bool,
}

/// Number of a file by its device and inode. Bit 63 is left to System V segments.
pub fn key(device: u64, inode: u64) -> u64 {
    (device << 32 ^ inode) & !(1 << 63)
}

/// Key of the file with this name.
pub fn at_path(path: &CStr) -> Option<u64> {
    // SAFETY: an all-zero stat is valid, and the call only fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let done = libc::stat(path.as_ptr(), &mut status) == 0;
        done.then(|| key(status.st_dev, status.st_ino))
    }
}

/// The regular file behind a descriptor. `None`: none, or a device.
pub fn of_descriptor(descriptor: i32) -> Option<MappedFile> {
    // SAFETY: all-zero structures are valid, and the calls only fill them.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let mut system: libc::statfs = std::mem::zeroed();
        if libc::fstat(descriptor, &mut status) != 0
            || libc::fstatfs(descriptor, &mut system) != 0
            || status.st_mode & libc::S_IFMT != libc::S_IFREG
        {
            return None;
        }
        Some(MappedFile {
            key: key(status.st_dev, status.st_ino),
            pages: (status.st_size as u64).div_ceil(4096),
            cached: ![libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC].contains(&system.f_type),
        })
    }
}
