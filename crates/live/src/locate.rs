//! Finds the emulator and the program, and checks that they can be used.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewalk_ring::needed;
use pagewalk_stream::Error;
use pagewalk_units::{RunOption, text};

/// The emulator's name in distributions.
const QEMU: &str = "qemu-x86_64";

/// True if the plugin works with QEMU of this version. 7.2 is the first version with the functions that the plugin
/// calls; 11.0 changes their arguments.
fn is_served(major: u32, minor: u32) -> bool {
    (major, minor) >= (7, 2) && major < 11
}

/// The version in the output of `qemu-x86_64 --version`; `None` if it has another form.
fn version(said: &str) -> Option<(u32, u32)> {
    let rest = said.split_once(" version ")?.1;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Standard output of the program at `path` with `options`; empty if it fails to start.
fn output(path: &Path, options: &[&str]) -> String {
    Command::new(path)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default()
}

/// Reason why the emulator at `path` cannot be used, from the output for its version and its options. `None` if the
/// output does not look like QEMU's: then the emulator itself may report the failure.
fn refusal(path: &Path, said: &str, options: &str) -> Option<String> {
    let (major, minor) = version(said)?;
    let path = path.display();
    if !is_served(major, minor) {
        return Some(format!(
            "{path} is QEMU {major}.{minor}, whose plugin interface Pagewalk's plugin does not \
             speak: expected 7.2 to 10.x; set PAGEWALK_QEMU to such a one ('pagewalk doctor' names \
             the page that builds one)"
        ));
    }
    (!options.contains("-plugin")).then(|| {
        format!(
            "{path} is QEMU {major}.{minor} built without plugins, as Debian 13's \
             and Ubuntu 24.04's are: set PAGEWALK_QEMU to one with the option -plugin ('pagewalk \
             doctor' names the page that builds one)"
        )
    })
}

/// An emulator that loads the plugin.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// Path of the program.
    pub path: PathBuf,
    /// Major and minor version, if known.
    pub version: Option<(u32, u32)>,
}

impl Emulator {
    /// CPU model for the emulator: `asked`, or that of the variable `QEMU_CPU`. Else QEMU 7.2's default, so that programs
    /// choose the same code on each version. Empty, its own default, if it does not tell its version.
    ///
    /// From 9.0 on `max` has more features, which the list disables: faster memory copies (`fsrm` and similar), hashing
    /// and random numbers.
    pub fn cpu(&self, asked: Option<&str>) -> String {
        let variable = std::env::var("QEMU_CPU").ok();
        let chosen = asked.map(str::to_owned).or(variable);
        chosen.unwrap_or_else(|| self.default_cpu().to_owned())
    }

    /// Checks that the emulator lists the CPU model `asked`.
    ///
    /// # Errors
    /// It does not; the message says where the models are listed.
    pub(crate) fn check_cpu(&self, asked: &str) -> Result<(), Error> {
        let name = asked.split(',').next().unwrap_or_default();
        let listed = output(&self.path, &["-cpu", "help"]);
        if listed.is_empty() || listed.split_whitespace().any(|word| word == name) {
            return Ok(());
        }
        let path = self.path.display();
        Err(Error::refused(text![
            RunOption::Cpu,
            format!(
                " {asked}: QEMU has no CPU model '{name}'; expected one that {path} -cpu help lists"
            ),
        ]))
    }

    fn default_cpu(&self) -> &'static str {
        let Some(version) = self.version else {
            return "";
        };
        if version < (9, 0) {
            return "max";
        }
        "max,family=15,model=107,stepping=1,fsrm=off,fzrm=off,fsrs=off,fsrc=off,sha-ni=off,\
         rdseed=off,rdpid=off,cmpccxadd=off,3dnowprefetch=off"
    }

    /// The program's number of the signal that the host calls `number`. QEMU moves real-time signals up by those that
    /// it and its libc keep: two in 7.2, from 8.2 on also one for SIGABRT, and from 10.0 on one to interrupt a processor
    /// (`signal_table_init` in linux-user/signal.c).
    pub(crate) fn signal_of_program(&self, number: u8) -> u8 {
        /// The first real-time signal, as signal(7) has it.
        const RTMIN: u8 = 32;
        let moved = match self.version {
            Some(version) if version >= (10, 0) => 4,
            Some(version) if version >= (8, 2) => 3,
            _ => 2,
        };
        if number >= RTMIN + moved {
            number - moved
        } else {
            number
        }
    }

    /// Base that the emulator adds to the program's addresses. Up to 8.0 QEMU places the program itself. Later versions
    /// place it where Linux would, which without randomisation is where the emulator lies. Empty: QEMU's default.
    pub(crate) fn base(&self) -> &'static str {
        if self.version.is_some_and(|v| v > (8, 0)) {
            "0x100000000000"
        } else {
            ""
        }
    }

    /// Error text for an emulator without the register or function of this number in [`needed`].
    pub(crate) fn lacks(&self, number: usize) -> String {
        let which = self.version.map_or_else(String::new, |(major, minor)| {
            format!(" is QEMU {major}.{minor}, which")
        });
        let what = if number < needed::REGISTERS {
            "the register"
        } else {
            "the function"
        };
        format!(
            "{}{which} does not give Pagewalk's plugin {what} {}, and without it accesses to memory \
             would be missing: set PAGEWALK_QEMU to another QEMU from 7.2 to 10.x \
             ('pagewalk doctor' names the page that builds one; up to 9.0 nothing of the kind is \
             needed)",
            self.path.display(),
            needed::NAMES.get(number).unwrap_or(&"that it needs"),
        )
    }
}

fn judged(path: PathBuf) -> Result<Emulator, Error> {
    let said = output(&path, &["--version"]);
    match refusal(&path, &said, &output(&path, &["--help"])) {
        Some(why) => Err(Error::refused(why)),
        None => Ok(Emulator {
            version: version(&said),
            path,
        }),
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| is_executable(p))
}

/// Finds the emulator: `path`, else the variable `PAGEWALK_QEMU`, else `qemu-x86_64` on the path.
///
/// # Errors
/// The emulator is missing, or does not load the plugin; the message says what to install.
pub fn find_qemu(path: Option<&Path>) -> Result<Emulator, Error> {
    let path = path
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("PAGEWALK_QEMU").map(PathBuf::from));
    let found = match path {
        Some(path) if is_executable(&path) => Ok(path),
        Some(path) => Err(Error::refused(format!(
            "no emulator at {}: expected QEMU's qemu-x86_64 (option or variable PAGEWALK_QEMU)",
            path.display()
        ))),
        None => on_path(OsStr::new(QEMU)).ok_or_else(|| {
            Error::refused(
                "qemu-x86_64 is not installed, and running a program needs it: install the \
                 package qemu-user (Debian 12: apt-get install qemu-user), version 7.2 to 10.x, or \
                 set PAGEWALK_QEMU to it; 'pagewalk doctor' names the way on this system",
            )
        }),
    };
    found.and_then(judged)
}

/// Resolves a command: the file to run, and its arguments from `argv[0]` on. For a script, that is its interpreter,
/// with the interpreter's arguments first.
///
/// # Errors
/// No such program, not executable, or not an x86-64 program; the message says which.
pub fn resolve_program(
    argv: &[std::ffi::OsString],
) -> Result<(PathBuf, Vec<std::ffi::OsString>), Error> {
    let Some(name) = argv.first().filter(|n| !n.is_empty()) else {
        return Err(Error::refused(text![
            "no program given: expected ",
            RunOption::Program,
            " PROGRAM ARGUMENTS",
        ]));
    };
    let mut path = if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        on_path(name).ok_or_else(|| {
            Error::refused(format!(
                "{}: no such program on the path",
                name.to_string_lossy()
            ))
        })?
    };
    let mut words = argv.to_vec();
    // As many nested scripts as the kernel allows.
    for _ in 0..=5 {
        let shown = path.display().to_string();
        let status =
            std::fs::metadata(&path).map_err(|e| Error::refused(e.to_string()).at(&shown))?;
        if !status.is_file() {
            return Err(Error::refused("is not a file").at(&shown));
        }
        if !is_executable(&path) {
            return Err(Error::refused("is not executable (chmod +x?)").at(&shown));
        }
        let mut head = Vec::new();
        std::fs::File::open(&path)
            .and_then(|f| f.take(256).read_to_end(&mut head))
            .map_err(|e| Error::refused(e.to_string()).at(&shown))?;
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
            return Err(Error::refused("neither an ELF program nor a script with #!").at(&shown));
        }
        if head.len() < 20 || head[4] != 2 || head[5] != 1 || head[18..20] != [62, 0] {
            let machine = head.get(18).copied().unwrap_or(0);
            return Err(Error::refused(format!("not a 64-bit x86 program (ELF class {}, machine {machine}; expected class 2, machine 62)", head.get(4).copied().unwrap_or(0))).at(&shown));
        }
        return Ok((path, words));
    }
    Err(Error::refused(format!(
        "{}: scripts that name scripts, more than five deep",
        name.to_string_lossy()
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pagewalk_ring::needed;

    use super::{Emulator, is_served, refusal, version};

    #[test]
    fn versions_are_read_and_judged() {
        let judged = |said| version(said).map(|(major, minor)| is_served(major, minor));
        let debian = "qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright";
        assert_eq!(version(debian), Some((7, 2)));
        assert_eq!(judged(debian), Some(true));
        assert_eq!(
            judged("qemu-x86_64 version 8.2.2 (Debian 1:8.2.2)"),
            Some(true)
        );
        assert_eq!(judged("qemu-x86_64 version 6.2.0"), Some(false));
        assert_eq!(judged("qemu-x86_64 version 9.0.0"), Some(true));
        assert_eq!(judged("qemu-x86_64 version 10.2.2 (Debian)"), Some(true));
        assert_eq!(judged("qemu-x86_64 version 11.0.0"), Some(false));
        assert_eq!(judged("false (GNU coreutils) 9.1"), None);
        assert_eq!(judged(""), None);
    }

    #[test]
    fn another_version_and_one_without_plugins_are_refused_with_the_reason() {
        let path = Path::new("/usr/bin/q");
        let options = "-plugin   QEMU_PLUGIN  [file=]<file>";
        let why = refusal(path, "qemu-x86_64 version 11.0.2", options).unwrap();
        assert!(why.contains("/usr/bin/q is QEMU 11.0,"), "{why}");
        assert!(why.contains("expected 7.2 to 10.x"), "{why}");
        let why = refusal(path, "qemu-x86_64 version 10.0.2", "-strace").unwrap();
        assert!(why.contains("QEMU 10.0 built without plugins"), "{why}");
        assert_eq!(refusal(path, "qemu-x86_64 version 10.0.2", options), None);
    }

    #[test]
    fn an_unfit_emulator_is_refused_with_its_version_and_the_reason() {
        let mut emulator = Emulator {
            path: "/usr/bin/q".into(),
            version: Some((10, 0)),
        };
        let why = emulator.lacks(needed::FS_BASE);
        assert!(why.starts_with("/usr/bin/q is QEMU 10.0, which does not give"));
        assert!(why.contains("the register fs_base,") && why.contains("set PAGEWALK_QEMU to"));
        emulator.version = None;
        let why = emulator.lacks(needed::GET_REGISTERS);
        assert!(why.starts_with("/usr/bin/q does not give"), "{why}");
        assert!(why.contains("the function qemu_plugin_get_registers,"));
        let functions = &needed::NAMES[needed::GET_REGISTERS..];
        assert!(functions.iter().all(|name| name.contains('_')));
        assert_eq!(needed::NAMES[needed::SET_SIZE], "g_byte_array_set_size");
    }
}
