//! How much memory the host has left for a graph.

use pagewalk_stream::ProgramError;

use crate::registry::Values;
use crate::size::format_size;

/// Part of the host's available memory that a graph may take: the simulator needs
/// some as well.
const SHARE: (u64, u64) = (3, 4);

/// Bytes that a graph may take.
pub(super) fn room() -> u64 {
    available().map_or(u64::MAX, |b| b / SHARE.1 * SHARE.0)
}

/// Refuses a generated graph that is held and would make the host swap: 4 bytes an
/// edge, and 32 a vertex while it is made.
///
/// # Errors
/// The graph is too large.
pub fn fits(values: &Values<'_>, vertices: u64, edges: u64) -> Result<(), ProgramError> {
    let (needed, room) = (4 * edges + 32 * vertices, room());
    if needed <= room {
        return Ok(());
    }
    Err(values.refuse(
        "graph",
        &format!(
            "{vertices} vertices and {edges} edges need {} of host memory, and {} can be had",
            mebibytes(needed),
            mebibytes(room)
        ),
    ))
}

/// A size for a message.
pub(super) fn mebibytes(bytes: u64) -> String {
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
