//! execve: QEMU would run the new program outside the emulator. Instead, the emulator is executed again with this
//! plugin, so that the program stays visible.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pagewalk_ring::{Producer, Trouble, record};

use crate::guest::{string, strings};
use crate::{hugetlb, process};

/// Descriptors that an emulator needs at the same time to load itself, the plugin and the program.
const DESCRIPTORS: usize = 4;

/// Most `#!` lines in a chain of scripts, as in the kernel.
const SCRIPTS: usize = 5;

enum Executable {
    /// A program for QEMU, and its arguments from `argv[0]` on.
    Program(PathBuf, Vec<CString>),
    /// A file that the kernel may execute outside the emulator, and the reason ([`record::unseen`]).
    Unseen(u64, PathBuf),
}

/// Resolves scripts to the program at their end; `None` if the kernel refuses it.
fn find(mut path: PathBuf, mut arguments: Vec<CString>) -> Option<Executable> {
    for _ in 0..=SCRIPTS {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the string is null-terminated. Effective ids, as execve checks.
        if unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) }
            != 0
            || !std::fs::metadata(&path).ok()?.is_file()
        {
            return None;
        }
        let mut head = Vec::new();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                process::lost(Trouble::Image, libc::EMFILE)
            }
            Err(_) => return Some(Executable::Unseen(record::unseen::UNREADABLE, path)),
        };
        file.take(256).read_to_end(&mut head).ok()?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|&b| b == b'\n').next()?.trim_ascii();
            let split = line
                .iter()
                .position(|b| b.is_ascii_whitespace())
                .unwrap_or(line.len());
            let (interpreter, argument) = (&line[..split], line[split..].trim_ascii());
            if interpreter.is_empty() {
                return None;
            }
            let mut next = vec![CString::new(interpreter).ok()?];
            if !argument.is_empty() {
                next.push(CString::new(argument).ok()?);
            }
            next.push(name);
            next.extend(arguments.into_iter().skip(1));
            arguments = next;
            path = PathBuf::from(OsStr::from_bytes(interpreter));
            continue;
        }
        if !head.starts_with(b"\x7fELF") {
            return None;
        }
        // 64 bits, little-endian, x86-64.
        let ours = head.len() >= 20 && head[4] == 2 && head[5] == 1 && head[18..20] == [62, 0];
        return Some(
            match (ours && interpreter_exists(&path), process::is_reachable()) {
                (true, true) => Executable::Program(path, arguments),
                (true, false) => Executable::Unseen(record::unseen::OTHER_ROOT, path),
                (false, _) => Executable::Unseen(record::unseen::FOREIGN, path),
            },
        );
    }
    None
}

/// True if the dynamic linker that an ELF file names exists. Without it execve fails, and must fail in the guest.
fn interpreter_exists(path: &Path) -> bool {
    let check = || -> Option<bool> {
        let file = File::open(path).ok()?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
        let table = word(32)?;
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        for i in 0..u64::from(half(56)) {
            let mut entry = [0; 56];
            file.read_exact_at(&mut entry, table + i * u64::from(half(54)))
                .ok()?;
            if entry[..4] == [3, 0, 0, 0] {
                let at = u64::from_le_bytes(entry[8..16].try_into().ok()?);
                let bytes = u64::from_le_bytes(entry[32..40].try_into().ok()?).min(4096);
                let mut name = vec![0; bytes as usize];
                file.read_exact_at(&mut name, at).ok()?;
                let name = name.split(|&b| b == 0).next()?;
                return Some(Path::new(OsStr::from_bytes(name)).exists());
            }
        }
        Some(true)
    };
    check().unwrap_or(true)
}

fn target(directory: Option<i32>, path: &CStr, flags: u64) -> Option<PathBuf> {
    let name = Path::new(OsStr::from_bytes(path.to_bytes()));
    if name == Path::new("/proc/self/exe") {
        // QEMU's own link would show QEMU.
        return process::program().map(Path::to_owned);
    }
    match directory {
        Some(fd) if name.as_os_str().is_empty() => (flags & libc::AT_EMPTY_PATH as u64 != 0)
            .then(|| PathBuf::from(format!("/proc/self/fd/{fd}")))
            .and_then(|link| std::fs::read_link(link).ok()),
        Some(fd) if name.is_relative() && fd != libc::AT_FDCWD => {
            let base = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            Some(base.join(name))
        }
        _ => Some(name.to_owned()),
    }
}

/// True if enough descriptors are free to start the emulator in this process's place. Otherwise it would end with a
/// message of its own, which looks like the program's failure.
fn enough_descriptors() -> bool {
    // SAFETY: an all-zero rlimit is valid, and the call fills it; a closed descriptor gives an error.
    let free = |limit: &mut libc::rlimit| unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, limit) != 0 {
            return DESCRIPTORS;
        }
        let goes = |&fd: &i32| {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            flags < 0 || flags & libc::FD_CLOEXEC != 0
        };
        let limit = i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX);
        (0..limit).filter(goes).take(DESCRIPTORS).count()
    };
    // SAFETY: as above.
    free(&mut unsafe { std::mem::zeroed() }) >= DESCRIPTORS
}

/// Executes the emulator on the guest's new program. Returns if that is impossible: then QEMU's own execve fails as the
/// guest expects, or runs a program of another architecture outside the emulator.
pub fn replace(vcpu: usize, directory: Option<i32>, path: u64, argv: u64, envp: u64, flags: u64) {
    let wanted = || {
        let path = target(directory, &string(path)?, flags)?;
        Some((find(path, strings(argv)?)?, strings(envp)?))
    };
    let Some((found, environment)) = wanted() else {
        return;
    };
    // SAFETY: called on the thread of the virtual CPU.
    let p = unsafe { process::producer(vcpu) };
    let ticket = process::take_ticket(vcpu);
    let (program, arguments) = match found {
        Executable::Program(program, arguments) => (program, arguments),
        // SAFETY: as above.
        Executable::Unseen(why, program) => return unsafe { untraced(p, ticket, why, &program) },
    };
    let settings = process::settings();
    let mut words: Vec<CString> = Vec::new();
    let first = arguments.first().cloned().unwrap_or_default();
    let mut emulator = vec![settings.qemu.as_bytes()];
    for (option, value) in [("-cpu", &settings.cpu), ("-B", &settings.base)] {
        if !value.is_empty() {
            emulator.extend([option.as_bytes(), value.as_bytes()]);
        }
    }
    let option = settings.as_option();
    emulator.extend([
        b"-plugin",
        option.as_bytes(),
        b"-0",
        first.as_bytes(),
        b"--",
        program.as_os_str().as_bytes(),
    ]);
    for word in emulator {
        match CString::new(word) {
            Ok(word) => words.push(word),
            Err(_) => return,
        }
    }
    words.extend(arguments.into_iter().skip(1));
    let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
        all.iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    if !enough_descriptors() {
        process::lost(Trouble::Image, libc::EMFILE);
    }
    // SAFETY: called on the thread of the virtual CPU.
    unsafe { p.push(record::word(record::EXEC, ticket)) };
    p.publish();
    hugetlb::end();
    // SAFETY: null-terminated arrays of null-terminated strings.
    unsafe {
        libc::execve(
            words[0].as_ptr(),
            pointers(&words).as_ptr(),
            pointers(&environment).as_ptr(),
        )
    }; // The image was not replaced: QEMU executes the program outside the emulator.
    let ticket = process::take_ticket(vcpu);
    // SAFETY: as above.
    unsafe { untraced(p, ticket, record::unseen::REFUSED, &program) };
}

/// Reports that a program outside the emulator is about to replace the image.
///
/// # Safety
/// `p` is the calling thread's producer.
unsafe fn untraced(p: &Producer, ticket: u64, why: u64, program: &Path) {
    let mut name = [0; 64];
    let file = program.file_name().unwrap_or_default().as_bytes();
    let bytes = file.len().min(name.len());
    name[..bytes].copy_from_slice(&file[..bytes]);
    let words = name.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    for word in [record::word(record::EXEC_UNTRACED, ticket), why]
        .into_iter()
        .chain(words)
    {
        // SAFETY: by the contract.
        unsafe { p.push(word) };
    }
    p.publish();
}
