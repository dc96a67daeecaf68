//! Where the emulator and the program are, and whether they can be used.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pagewalk_stream::ProgramError;

use super::error;

/// Names under which distributions install the emulator. The static one cannot load plugins.
const QEMU: &str = "qemu-x86_64";

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| is_executable(p))
}

/// The emulator: `asked`, else the variable `PAGEWALK_QEMU`, else on the path.
///
/// # Errors
/// It is not there; says what to install.
pub fn find_qemu(asked: Option<&Path>) -> Result<PathBuf, ProgramError> {
    let asked = asked
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("PAGEWALK_QEMU").map(PathBuf::from));
    match asked {
        Some(path) if is_executable(&path) => Ok(path),
        Some(path) => Err(error(format!(
            "no emulator at {}: expected QEMU's qemu-x86_64 (option or variable PAGEWALK_QEMU)",
            path.display()
        ))),
        None => on_path(OsStr::new(QEMU)).ok_or_else(|| {
            error(
                "qemu-x86_64 is not installed, and running a program needs it: install the \
                 package qemu-user (Debian, Ubuntu: apt install qemu-user), version 7.2 or \
                 newer, or set PAGEWALK_QEMU to it",
            )
        }),
    }
}

/// The file that a command runs, and the interpreter's words before it when it is
/// a script: what the emulator is to be given, from `argv[0]` on.
///
/// # Errors
/// No such program, not executable, not an x86-64 program; says which.
pub fn resolve_program(
    argv: &[std::ffi::OsString],
) -> Result<(PathBuf, Vec<std::ffi::OsString>), ProgramError> {
    let Some(name) = argv.first().filter(|n| !n.is_empty()) else {
        return Err(error("no program given: expected -- PROGRAM ARGUMENTS"));
    };
    let mut path = if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        on_path(name).ok_or_else(|| {
            error(format!(
                "{}: no such program on the path",
                name.to_string_lossy()
            ))
        })?
    };
    let mut words = argv.to_vec();
    // As many scripts one after the other as the kernel follows.
    for _ in 0..=5 {
        let shown = path.display();
        let status = std::fs::metadata(&path).map_err(|e| error(format!("{shown}: {e}")))?;
        if !status.is_file() {
            return Err(error(format!("{shown}: is not a file")));
        }
        if !is_executable(&path) {
            return Err(error(format!("{shown}: is not executable (chmod +x?)")));
        }
        let mut head = Vec::new();
        std::fs::File::open(&path)
            .and_then(|f| f.take(256).read_to_end(&mut head))
            .map_err(|e| error(format!("{shown}: {e}")))?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line
                .split(|&b| b == b'\n')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            let split = line
                .iter()
                .position(|b| b.is_ascii_whitespace())
                .unwrap_or(line.len());
            let (interpreter, argument) = (&line[..split], line[split..].trim_ascii());
            let mut next = vec![OsStr::from_bytes(interpreter).to_owned()];
            if !argument.is_empty() {
                next.push(OsStr::from_bytes(argument).to_owned());
            }
            next.push(path.clone().into_os_string());
            next.extend(words.into_iter().skip(1));
            words = next;
            path = PathBuf::from(OsStr::from_bytes(interpreter));
            continue;
        }
        if !head.starts_with(b"\x7fELF") {
            return Err(error(format!(
                "{shown}: neither an ELF program nor a script with #!"
            )));
        }
        if head.len() < 20 || head[4] != 2 || head[5] != 1 || head[18..20] != [62, 0] {
            let machine = head.get(18).copied().unwrap_or(0);
            return Err(error(format!(
                "{shown}: not a 64-bit x86 program (ELF class {}, machine {machine}; expected class 2, machine 62)",
                head.get(4).copied().unwrap_or(0)
            )));
        }
        return Ok((path, words));
    }
    Err(error(format!(
        "{}: scripts that name scripts, more than five deep",
        name.to_string_lossy()
    )))
}
