//! A process as the kernel tells of it, without a descriptor that stands for it: a program
//! may have more processes than the engine may open files.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process, told from others that get its number later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub pid: i32,
    /// When it started, clock ticks since the kernel did.
    started: u64,
}

/// Whether a process lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Lives,
    /// With what a shell shows for how it ended; none when somebody has waited for it.
    Died(Option<i32>),
}

/// What is read of a process's `stat`.
struct Stat {
    /// It has ended, and nobody has waited for it.
    ended: bool,
    started: u64,
    status: i32,
}

/// `None`: there is no such process.
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
    // The name before may hold anything.
    let at = text.iter().rposition(|&b| b == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&text[at + 1..])
        .ok()?
        .split_ascii_whitespace()
        .collect();
    // Of a process whose first thread has ended, that thread is a zombie, too.
    let (state, threads) = (*fields.first()?, fields.get(17)?.parse::<u64>().ok()?);
    Some(Stat {
        ended: matches!(state, "Z" | "X" | "x") && threads <= 1,
        started: fields.get(19)?.parse().ok()?,
        status: fields.last()?.parse().ok()?,
    })
}

impl Identity {
    /// The process that has this number now; `None`: there is none.
    ///
    /// # Errors
    /// The kernel does not say, such as for want of a descriptor.
    pub fn of(pid: i32) -> io::Result<Option<Identity>> {
        Ok(stat(pid)?.map(|s| Identity {
            pid,
            started: s.started,
        }))
    }

    /// Whether it lives.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn look(self) -> io::Result<Condition> {
        Ok(match stat(self.pid)? {
            Some(s) if s.started != self.started => Condition::Died(None),
            Some(s) if s.ended => Condition::Died(Some(if s.status & 0x7f != 0 {
                128 + (s.status & 0x7f)
            } else {
                s.status >> 8 & 0xff
            })),
            Some(_) => Condition::Lives,
            None => Condition::Died(None),
        })
    }

    /// Ends it, unless it has ended.
    pub fn kill(self) {
        // SAFETY: a new descriptor, owned here.
        let handle = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid, 0);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
        };
        // The look comes after: the descriptor stands for what it is taken at.
        if !matches!(self.look(), Ok(Condition::Lives) | Err(_)) {
            return;
        }
        // SAFETY: a signal to the process that the descriptor stands for; without one, to
        // the one that has the number.
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
    use std::process::{Command, Stdio};

    use super::{Condition, Identity, parse};

    #[test]
    fn a_process_lives_until_it_has_ended_and_its_number_is_another_ones_then() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let who = Identity::of(pid).unwrap().unwrap();
        assert_eq!(who.look().unwrap(), Condition::Lives);
        let other = Identity { started: 0, ..who };
        assert_eq!(other.look().unwrap(), Condition::Died(None));
        // Not the one that is meant: it lives on.
        other.kill();
        assert_eq!(who.look().unwrap(), Condition::Lives);
        who.kill();
        // Nobody has waited for it yet: the kernel says how it ended.
        while who.look().unwrap() == Condition::Lives {
            std::thread::yield_now();
        }
        assert_eq!(who.look().unwrap(), Condition::Died(Some(128 + 9)));
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
