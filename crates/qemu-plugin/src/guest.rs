//! The guest's memory, accessed from inside the emulator.

use std::ffi::CString;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Offset from a guest's address to QEMU's own. Set before the guest's first instruction, and constant from then on.
pub static BASE: AtomicU64 = AtomicU64::new(0);

/// Copies guest memory into `into`; `None` if it is not all mapped. A plain read would fault inside QEMU.
pub fn read(address: u64, into: &mut [u8]) -> Option<()> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address.wrapping_add(BASE.load(Relaxed)) as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel checks the remote side; the local one is `into`.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (n == into.len() as isize).then_some(())
}

/// `madvise` of guest memory. Returns 0 or the negated error.
pub fn advise(address: u64, bytes: u64, advice: libc::c_int) -> i64 {
    let at = address.wrapping_add(BASE.load(Relaxed)) as *mut libc::c_void;
    // SAFETY: the guest asks for it, on memory that it may change. Advice that frees memory of others is not given.
    match unsafe { libc::madvise(at, bytes as usize, advice) } {
        0 => 0,
        _ => -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// True if all pages of a range are mapped.
pub fn is_mapped(address: u64, bytes: u64) -> bool {
    let at = address.wrapping_add(BASE.load(Relaxed)) as *mut libc::c_void;
    // SAFETY: on Linux the call only checks the range.
    unsafe { libc::msync(at, bytes as usize, libc::MS_ASYNC) == 0 }
}

/// True if the page at `address` is in memory; `None` if nothing is mapped there.
pub fn is_resident(address: u64) -> Option<bool> {
    let at = address.wrapping_add(BASE.load(Relaxed)) as *mut libc::c_void;
    let mut resident = 0;
    // SAFETY: the call only fills one byte for the page.
    let done = unsafe { libc::mincore(at, 4096, &mut resident) } == 0;
    done.then_some(resident & 1 != 0)
}

/// Copies `from` into guest memory; `None` if that is not all mapped for writing. Also `None` on pages with translated
/// code, which QEMU write-protects.
pub fn write(address: u64, from: &[u8]) -> Option<()> {
    let local = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    let remote = libc::iovec {
        iov_base: address.wrapping_add(BASE.load(Relaxed)) as *mut libc::c_void,
        iov_len: from.len(),
    };
    // SAFETY: the kernel checks the remote side, the guest's own memory, and respects its rights. It only reads the
    // local one, `from`.
    let n = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    (n == from.len() as isize).then_some(())
}

/// The null-terminated string at `address`; `None` if it is not all mapped, or longer than execve accepts.
pub fn string(mut address: u64) -> Option<CString> {
    let mut bytes = Vec::new();
    let mut page = [0u8; 4096];
    loop {
        // Never across the end of a page, because the next page may be unmapped.
        let chunk = &mut page[..4096 - (address as usize & 4095)];
        read(address, chunk)?;
        if let Some(end) = chunk.iter().position(|&b| b == 0) {
            bytes.extend(&chunk[..end]);
            return CString::new(bytes).ok();
        }
        bytes.extend(&*chunk);
        address += chunk.len() as u64;
        if bytes.len() > 1 << 21 {
            return None;
        }
    }
}

/// The strings of a null-terminated array of pointers, as for execve. Address 0 gives no strings.
pub fn strings(mut address: u64) -> Option<Vec<CString>> {
    let mut all = Vec::new();
    while address != 0 {
        let mut raw = [0; 8];
        read(address, &mut raw)?;
        match u64::from_le_bytes(raw) {
            0 => break,
            pointer => all.push(string(pointer)?),
        }
        address += 8;
    }
    Some(all)
}
