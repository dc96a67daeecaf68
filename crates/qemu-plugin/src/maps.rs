//! The mappings that exist before the guest's first instruction.

use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::record::{self, map_bits};

use crate::{guest, process};

struct Line<'a> {
    from: u64,
    to: u64,
    permissions: &'a str,
    file: bool,
    path: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let (_offset, _device, inode) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Line {
        from: u64::from_str_radix(from, 16).ok()?,
        to: u64::from_str_radix(to, 16).ok()?,
        permissions,
        file: inode != "0",
        path: fields.next().unwrap_or("").trim(),
    })
}

/// Writes them to the first thread's ring. The guest's are those below the emulator
/// itself: the kernel puts that, its heap and its libraries near the top, while
/// QEMU places the guest from 256 GB upwards or where a fixed program wants to be.
pub fn send_initial(guest_base: u64) {
    guest::BASE.store(guest_base, Relaxed);
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let lines: Vec<Line> = text.lines().filter_map(parse).collect();
    let emulator = lines
        .iter()
        .find(|l| own.as_os_str() == l.path)
        .map_or(u64::MAX, |l| l.from);
    // SAFETY: the first block is translated by the first virtual CPU's thread.
    let producer = unsafe { process::producer(0) };
    let mut guard_end = 0;
    for line in lines.iter().filter(|l| l.to <= emulator) {
        let readable = line.permissions.starts_with('r');
        let mut bits = 0;
        if line.permissions.contains('w') {
            bits |= map_bits::WRITE;
        }
        if line.file {
            bits |= map_bits::FILE;
        }
        if line.permissions.contains('s') {
            bits |= map_bits::SHARED;
        }
        // QEMU makes the stack as private memory of 8 MB or more above a guard page.
        if line.from == guard_end && !line.file && line.to - line.from >= 8 << 20 {
            bits |= map_bits::STACK;
        }
        guard_end = if readable { 0 } else { line.to };
        for word in [
            record::word(record::MAPPED, 0),
            line.from.wrapping_sub(guest_base),
            line.to.wrapping_sub(guest_base),
            bits,
        ] {
            // SAFETY: as above.
            unsafe { producer.push(word) };
        }
    }
}
