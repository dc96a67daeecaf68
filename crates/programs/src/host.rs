//! How much memory the host has left for what a program holds.

use pagewalk_stream::ProgramError;

use crate::size::format_size;

/// Part of the host's available memory that a program may take: the simulator needs
/// some as well.
const SHARE: (u64, u64) = (3, 4);

/// Bytes that a program may take.
pub(crate) fn room() -> u64 {
    available().map_or(u64::MAX, |b| b / SHARE.1 * SHARE.0)
}

/// Refuses what would make the host swap: `what` needs `bytes`.
///
/// # Errors
/// `bytes` are more than can be had.
pub(crate) fn fits(bytes: u64, what: &str) -> Result<(), ProgramError> {
    fits_in(bytes, room(), what)
}

/// The same where `room` bytes can be had.
///
/// # Errors
/// As [`fits`].
pub(crate) fn fits_in(bytes: u64, room: u64, what: &str) -> Result<(), ProgramError> {
    if bytes <= room {
        return Ok(());
    }
    Err(ProgramError::new(format!(
        "{what} need {} of host memory, and {} can be had; take a smaller problem or a larger host",
        mebibytes(bytes),
        mebibytes(room)
    )))
}

/// A size for a message.
fn mebibytes(bytes: u64) -> String {
    format_size((bytes >> 20).max(1) << 20)
}

/// Bytes that can be allocated without swapping, as the kernel estimates them, and
/// no more than the control group may have; `None` where neither is known.
fn available() -> Option<u64> {
    let text = |path: &str| std::fs::read_to_string(path).ok();
    let host = text("/proc/meminfo").and_then(|t| {
        let line = t.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes << 10)
    });
    let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    match (host, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::{available, fits, fits_in};

    #[test]
    fn what_is_larger_than_the_room_is_refused_with_both_sizes() {
        assert!(fits_in(4 << 30, 4 << 30, "x").is_ok());
        let message = fits_in(6 << 30, 4 << 30, "two arrays").unwrap_err().message;
        for part in ["two arrays", "6GiB of host memory", "4GiB can be had"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(fits(u64::MAX, "x").is_err() || available().is_none());
    }
}
