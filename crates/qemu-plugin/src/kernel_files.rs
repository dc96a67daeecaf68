//! Files of the kernel about memory: a program reads what the simulated kernel has.
//!
//! QEMU opens such a file of the host. The plugin then replaces the descriptor by one of an anonymous file, and the
//! engine writes the simulated contents there. `/proc` makes contents anew for each read, so the plugin asks for them
//! again before a read at the start of the file, and before each read of `pagemap`.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::{Producer, record};

use crate::{guest, maps};

/// Begins the name of an anonymous file; the path that it stands for follows.
const NAME: &str = "pagewalk:";
/// Text of the kernel around that name.
const LINK: &str = "/memfd:pagewalk:";
const DELETED: &str = " (deleted)";
/// Bytes of `pagemap`: 8 for each page of the user's half of 48 bits.
const PAGEMAP_BYTES: u64 = 1 << (47 - 12 + 3);
/// Most bytes of `pagemap` that one read gets.
const MOST: u64 = 1 << 24;

/// Files of the process.
const KNOWN: [&str; 5] = ["smaps", "smaps_rollup", "statm", "status", "pagemap"];

/// The process has opened such a file, or has inherited one in a fork.
static ANY: AtomicBool = AtomicBool::new(false);

/// The simulated file of this name, with `/proc/self/` for the process. `None`: the host's file is left.
fn simulated(path: &str) -> Option<String> {
    let own = format!("/proc/{}/", std::process::id());
    let of_process = ["/proc/self/", "/proc/thread-self/", &own]
        .iter()
        .find_map(|start| path.strip_prefix(start));
    if let Some(name) = of_process {
        let known = KNOWN.contains(&name);
        return known.then(|| format!("/proc/self/{name}"));
    }
    let known = ["/proc/meminfo", "/proc/vmstat", "/proc/sys/vm/nr_hugepages"].contains(&path)
        || path.starts_with("/sys/kernel/mm/transparent_hugepage/")
        || path.starts_with("/sys/kernel/mm/hugepages/");
    known.then(|| path.to_owned())
}

/// The path that a descriptor was opened by.
fn link(descriptor: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    path.into_os_string().into_string().ok()
}

/// Asks the engine to write the wanted part of a file into `into`. False: it did not.
///
/// # Safety
/// `p` is the calling thread's producer.
unsafe fn ask(
    p: &Producer,
    path: &str,
    into: i32,
    (offset, bytes): (u64, u64),
    writes: bool,
) -> bool {
    let mut words = [0; record::KERNEL_FILE_WORDS + 1];
    let [head, descriptor, at, length, name @ ..] = &mut words;
    *head = record::word(record::KERNEL_FILE, writes.into());
    (*descriptor, *at, *length) = (into as u64, offset, bytes);
    let chunks = path.as_bytes().chunks(8);
    if chunks.len() > name.len() {
        return false;
    }
    for (word, chunk) in name.iter_mut().zip(chunks) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(bytes);
    }
    // SAFETY: by the contract.
    unsafe { p.ask(&words) }.is_some()
}

/// Replaces the descriptor that an `open` has returned, if the simulated kernel has the file.
///
/// # Safety
/// `p` is the calling thread's producer.
pub unsafe fn opened(p: &Producer, number: i64, a: &[u64; 6], result: i64) {
    let Ok(descriptor @ 0..) = i32::try_from(result) else {
        return;
    };
    let (name, flags) = match number {
        libc::SYS_open => (a[0], a[1] as i32),
        libc::SYS_openat => (a[1], a[2] as i32),
        libc::SYS_openat2 => (a[1], libc::O_CLOEXEC),
        _ => return,
    };
    if flags & libc::O_DIRECTORY != 0 {
        return;
    }
    // QEMU makes some of these files itself, and other names lead to one.
    let named = guest::string(name).and_then(|path| simulated(path.to_str().ok()?));
    let Some(path) = named.or_else(|| simulated(&link(descriptor)?)) else {
        return;
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // SAFETY: by the contract.
    let _ = unsafe { replace(p, &path, descriptor, flags, writes) };
}

/// # Safety
/// As for [`opened`].
unsafe fn replace(
    p: &Producer,
    path: &str,
    descriptor: i32,
    flags: i32,
    writes: bool,
) -> Option<()> {
    let name = CString::new(format!("{NAME}{path}")).ok()?;
    // SAFETY: the descriptor is new and owned here.
    let file = unsafe {
        let made = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        (made >= 0).then(|| File::from(OwnedFd::from_raw_fd(made)))?
    };
    if path == "/proc/self/pagemap" {
        // Beyond this limit, a signal would end the process.
        // SAFETY: an all-zero rlimit is valid, and the call fills it.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit);
            limit.rlim_cur
        };
        if limit < PAGEMAP_BYTES {
            return None;
        }
    }
    // SAFETY: by the contract.
    unsafe { fill(p, path, &file, writes)? };
    let mode = flags & (libc::O_ACCMODE | libc::O_CLOEXEC);
    let own = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // SAFETY: the new descriptor is owned here, and the program's is replaced as it asked.
    unsafe {
        let again = libc::open(own.as_ptr(), mode | libc::O_CLOEXEC);
        let again = (again >= 0).then(|| OwnedFd::from_raw_fd(again))?;
        if libc::dup3(again.as_raw_fd(), descriptor, flags & libc::O_CLOEXEC) < 0 {
            return None;
        }
    }
    ANY.store(true, Relaxed);
    Some(())
}

/// Writes the simulated contents. `None`: the simulated kernel has no such file.
///
/// # Safety
/// As for [`opened`].
unsafe fn fill(p: &Producer, path: &str, file: &File, writes: bool) -> Option<()> {
    let into = file.as_raw_fd();
    if path == "/proc/self/pagemap" {
        // SAFETY: by the contract. Nothing is written yet.
        let there = unsafe { ask(p, path, into, (0, 0), writes) };
        return there.then(|| file.set_len(PAGEMAP_BYTES).ok())?;
    }
    file.set_len(0).ok()?;
    // SAFETY: by the contract.
    if !unsafe { ask(p, path, into, (0, 0), writes) } {
        return None;
    }
    let read = |path: String| std::fs::read_to_string(path).ok();
    let text = || read(format!("/proc/self/fd/{into}"));
    let shown = match path {
        "/proc/self/smaps" => maps::with_names(&text()?),
        "/proc/self/status" => status(&read(path.to_owned())?, &text()?),
        _ => return Some(()),
    };
    file.set_len(0).ok()?;
    file.write_all_at(shown.as_bytes(), 0).ok()?;
    Some(())
}

/// The host's `status`, with the simulated lines about memory.
fn status(host: &str, simulated: &str) -> String {
    let is_memory = |line: &&str| {
        let starts = ["Vm", "Rss", "HugetlbPages", "THP_enabled"];
        starts.iter().any(|start| line.starts_with(start))
    };
    let first = host.lines().take_while(|line| !is_memory(line));
    let rest = host.lines().skip_while(|line| !is_memory(line));
    let all = first
        .chain(simulated.lines())
        .chain(rest.filter(|line| !is_memory(line)));
    all.flat_map(|line| [line, "\n"]).collect()
}

/// Brings the contents up to date that the call is about to read.
///
/// # Safety
/// As for [`opened`].
pub unsafe fn before_read(p: &Producer, number: i64, a: &[u64; 6]) {
    if !ANY.load(Relaxed) {
        return;
    }
    let descriptor = a[0] as i32;
    let current = || {
        // SAFETY: asks for the position of the program's own file.
        u64::try_from(unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) }).ok()
    };
    let (offset, bytes) = match number {
        libc::SYS_read => (None, a[2]),
        libc::SYS_pread64 => (Some(a[3]), a[2]),
        libc::SYS_readv => (None, MOST),
        libc::SYS_preadv | libc::SYS_preadv2 => (Some(a[3]), MOST),
        _ => return,
    };
    let Some(path) = link(descriptor) else {
        return;
    };
    let path = path
        .strip_prefix(LINK)
        .and_then(|path| path.strip_suffix(DELETED));
    let Some((path, offset)) = path.and_then(|path| Some((path, offset.or_else(current)?))) else {
        return;
    };
    // A descriptor of the program's may be open for reading only.
    let own = format!("/proc/self/fd/{descriptor}");
    let Ok(file) = File::options().read(true).write(true).open(own) else {
        return;
    };
    // SAFETY: by the contract.
    unsafe {
        if path == "/proc/self/pagemap" {
            ask(p, path, file.as_raw_fd(), (offset, bytes.min(MOST)), false);
        } else if offset == 0 {
            fill(p, path, &file, false);
        }
    }
}
