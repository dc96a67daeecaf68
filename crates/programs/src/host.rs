//! Host memory that is available for the data of a program.

use pagewalk_stream::Error;

use crate::size::format_size;

/// Part of the host's available memory that a program may use. The simulator needs the rest.
const SHARE: (u64, u64) = (3, 4);

/// Host bytes that a program may use.
pub(crate) fn room() -> u64 {
    available().map_or(u64::MAX, |b| b / SHARE.1 * SHARE.0)
}

/// Refuses a problem that would make the host swap: `what` needs `bytes`.
///
/// # Errors
/// `bytes` exceed the available memory.
pub(crate) fn fits(bytes: u64, what: &str) -> Result<(), Error> {
    fits_in(bytes, room(), what)
}

/// [`fits`] with `room` bytes available.
///
/// # Errors
/// As [`fits`].
pub(crate) fn fits_in(bytes: u64, room: u64, what: &str) -> Result<(), Error> {
    if bytes <= room {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{what} need {} of host memory, and {} can be had; take a smaller problem or a larger host",
        mebibytes(bytes),
        mebibytes(room)
    )))
}

/// A size as text for a message.
fn mebibytes(bytes: u64) -> String {
    format_size((bytes >> 20).max(1) << 20)
}

/// Bytes that can be allocated without swapping: the kernel's estimate, reduced to what the control groups
/// and the limits of this process (`ulimit -v`, `ulimit -d`) leave. `None` if none of them is known.
pub fn available() -> Option<u64> {
    let text = |path: &str| std::fs::read_to_string(path).ok();
    let host = text("/proc/meminfo").and_then(|t| kilobytes(&t, "MemAvailable:"));
    let groups = text("/proc/self/cgroup")
        .map(|t| folders(&t))
        .unwrap_or_default();
    let groups = groups.iter().filter_map(|folder| left_in(folder, &text));
    let own = text("/proc/self/limits").zip(text("/proc/self/status"));
    let own = own.and_then(|(limits, status)| left_to_process(&limits, &status));
    groups.chain(host).chain(own).min()
}

/// A number of kilobytes behind `name` at the start of a line, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number << 10)
}

/// The directories of the control groups in `/proc/self/cgroup`, and of their ancestors.
fn folders(groups: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            c if c.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            found.push(format!("{root}{path}"));
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
    }
    found
}

/// Bytes that a control group may still allocate. Its inactive file cache counts as free: the kernel reclaims
/// it first.
fn left_in(folder: &str, text: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let number = |name: &str| {
        text(&format!("{folder}/{name}"))?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let most = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // Version 1 counts the groups below it on separate lines, after those of the group itself.
    let files = text(&format!("{folder}/memory.stat")).and_then(|t| {
        let of = |name: &str| {
            let line = t.lines().find_map(|l| l.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        of("total_inactive_file ").or_else(|| of("inactive_file "))
    });
    Some(most.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
}

/// Bytes of address space and of data that the limits of a process leave.
fn left_to_process(limits: &str, status: &str) -> Option<u64> {
    let left = |limit: &str, used: &str| {
        let line = limits.lines().find_map(|l| l.strip_prefix(limit))?;
        let most: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(most.saturating_sub(kilobytes(status, used)?))
    };
    let space = left("Max address space", "VmSize:");
    space
        .into_iter()
        .chain(left("Max data size", "VmData:"))
        .min()
}

#[cfg(test)]
mod tests {
    use super::{available, fits, fits_in, folders, left_in, left_to_process};

    #[test]
    fn a_size_above_the_room_is_refused_with_both_sizes() {
        assert!(fits_in(4 << 30, 4 << 30, "x").is_ok());
        let message = fits_in(6 << 30, 4 << 30, "two arrays")
            .unwrap_err()
            .to_string();
        for part in ["two arrays", "6GiB of host memory", "4GiB can be had"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(fits(u64::MAX, "x").is_err() || available().is_none());
    }

    #[test]
    fn the_limits_of_the_process_count() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         4096000              unlimited            bytes\n";
        let status = "VmSize:\t    1000 kB\nVmData:\t     500 kB\n";
        assert_eq!(left_to_process(limits, status), Some(4_096_000 - 1_024_000));
        let both = limits.replace("size             unlimited", "size             1024000");
        assert_eq!(left_to_process(&both, status), Some(1_024_000 - 512_000));
        let none = limits.replace("4096000", "unlimited");
        assert_eq!(left_to_process(&none, status), None);
    }

    #[test]
    fn the_control_groups_above_count_too() {
        assert_eq!(
            folders("5:cpu:/x\n4:cpu,memory:/a/b\n0::/c\n"),
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/c",
                "/sys/fs/cgroup",
            ]
        );
        let files = |path: &str| {
            let text = match path {
                "/g/memory.max" => "1000\n",
                "/g/memory.current" => "700\n",
                "/g/memory.stat" => "anon 400\ninactive_file 200\n",
                "/h/memory.max" => "max\n",
                // Version 1: 300 of the used bytes are file cache of the groups below.
                "/v1/memory.limit_in_bytes" => "1000\n",
                "/v1/memory.usage_in_bytes" => "700\n",
                "/v1/memory.stat" => {
                    "cache 350\ninactive_file 50\ntotal_cache 650\ntotal_inactive_file 350\n"
                }
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(left_in("/g", &files), Some(500));
        assert_eq!(left_in("/h", &files), None);
        assert_eq!(left_in("/v1", &files), Some(650));
    }
}
