//! How much memory the host has left for a graph.

/// Bytes that can be allocated without swapping, as the kernel estimates them, and
/// no more than the control group may have; `None` where neither is known.
pub(super) fn available() -> Option<u64> {
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
