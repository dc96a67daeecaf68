//! Identity of a process from `/proc`, without a descriptor: a program may have more processes than the engine may open
//! files.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A process, distinct from later processes with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub pid: i32,
    /// Start time in clock ticks since the kernel's start.
    started: u64,
}

/// State of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Lives,
    /// Status as `wait` gives it; `None` if its parent has already waited for it.
    Died(Option<ExitStatus>),
}

/// Fields of a process's `stat` file.
struct Stat {
    /// The process has ended, and its parent has not waited for it.
    ended: bool,
    started: u64,
    status: i32,
}

/// `None`: no such process.
fn stat(pid: i32) -> io::Result<Option<Stat>> {
    let text = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(e) => return Err(e),
    };
    parse(&text)
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not what proc(5) says it is")))
}

fn parse(text: &[u8]) -> Option<Stat> {
    // The name before the last bracket may hold any bytes.
    let at = text.iter().rposition(|&b| b == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&text[at + 1..])
        .ok()?
        .split_ascii_whitespace()
        .collect();
    // The first thread of a living process may be a zombie, too.
    let (state, threads) = (*fields.first()?, fields.get(17)?.parse::<u64>().ok()?);
    Some(Stat {
        ended: matches!(state, "Z" | "X" | "x") && threads <= 1,
        started: fields.get(19)?.parse().ok()?,
        status: fields.last()?.parse().ok()?,
    })
}

impl Identity {
    /// The process that has this number now; `None` if there is none.
    ///
    /// # Errors
    /// The kernel does not say, for example because no descriptor is free.
    pub fn of(pid: i32) -> io::Result<Option<Identity>> {
        Ok(stat(pid)?.map(|s| Identity {
            pid,
            started: s.started,
        }))
    }

    /// State of the process.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn look(self) -> io::Result<Condition> {
        Ok(match stat(self.pid)? {
            Some(s) if s.started != self.started => Condition::Died(None),
            Some(s) if s.ended => Condition::Died(Some(ExitStatus::from_raw(s.status))),
            Some(_) => Condition::Lives,
            None => Condition::Died(None),
        })
    }

    /// Kills the process if it lives.
    pub fn kill(self) {
        // SAFETY: the descriptor is new, and owned here.
        let handle = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid, 0);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
        };
        // Checked after the descriptor is taken: from then on it stands for the same process.
        if !matches!(self.look(), Ok(Condition::Lives) | Err(_)) {
            return;
        }
        // SAFETY: sends a signal to the process of the descriptor, or without one to the process with this number.
        unsafe {
            match handle {
                Some(handle) => {
                    libc::syscall(
                        libc::SYS_pidfd_send_signal,
                        handle.as_raw_fd(),
                        libc::SIGKILL,
                        std::ptr::null::<libc::c_void>(),
                        0,
                    );
                }
                None => {
                    libc::kill(self.pid, libc::SIGKILL);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio};

    use super::{Condition, Identity, parse};

    #[test]
    fn a_process_lives_until_it_has_ended_and_its_number_is_another_ones_then() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let who = Identity::of(pid).unwrap().unwrap();
        assert_eq!(who.look().unwrap(), Condition::Lives);
        let other = Identity { started: 0, ..who };
        assert_eq!(other.look().unwrap(), Condition::Died(None));
        // The identity is another one's: the process lives on.
        other.kill();
        assert_eq!(who.look().unwrap(), Condition::Lives);
        who.kill();
        // Its parent has not waited yet, so the kernel still knows the exit status.
        while who.look().unwrap() == Condition::Lives {
            std::thread::yield_now();
        }
        let killed = ExitStatus::from_raw(libc::SIGKILL);
        assert_eq!(who.look().unwrap(), Condition::Died(Some(killed)));
        child.wait().unwrap();
        assert_eq!(who.look().unwrap(), Condition::Died(None));
        assert_eq!(Identity::of(pid).unwrap(), None);
    }

    #[test]
    fn a_first_thread_that_has_ended_does_not_end_the_process() {
        let line = |threads: &str| {
            format!("7 (a) Z (b)) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0 9")
        };
        let many = parse(line("2").as_bytes()).unwrap();
        assert!(!many.ended && many.started == 4711);
        assert!(parse(line("1").as_bytes()).unwrap().ended);
        assert!(parse(b"7 (cat").is_none());
    }
}
