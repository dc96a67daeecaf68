//! The mappings that exist before the guest's first instruction.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::Trouble;
use pagewalk_ring::record::{self, map_bits};

use crate::{files, guest, process};

/// Mappings from before the guest was loaded: the emulator's.
static OWN: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

#[derive(Clone)]
struct Line<'a> {
    from: u64,
    to: u64,
    permissions: &'a str,
    file: bool,
    /// Its key, if it is a file.
    key: u64,
    offset: u64,
    path: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let (offset, device, inode) = (fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let device = libc::makedev(hex(major)?, hex(minor)?);
    Some(Line {
        from: u64::from_str_radix(from, 16).ok()?,
        to: u64::from_str_radix(to, 16).ok()?,
        permissions,
        file: inode != "0",
        key: match inode.parse().ok()? {
            0 => 0,
            inode => files::key(device, inode),
        },
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: fields.next().unwrap_or("").trim(),
    })
}

/// The mappings as text; file names may hold any bytes. Without it the run ends.
fn read() -> String {
    match std::fs::read("/proc/self/maps") {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => process::lost(Trouble::Image, error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Records the mappings before the guest is loaded.
pub fn note_own() {
    OWN.get_or_init(|| {
        read()
            .lines()
            .filter_map(parse)
            .map(|l| (l.from, l.to))
            .collect()
    });
}

impl<'a> Line<'a> {
    fn has(&self, permission: char) -> bool {
        self.permissions.contains(permission)
    }

    /// Its part from an address on.
    fn starting_at(self, from: u64) -> Line<'a> {
        Line {
            from,
            offset: self.offset + (from - self.from),
            ..self
        }
    }

    /// The parts of it that are new.
    fn new_parts(&self) -> Vec<Line<'a>> {
        let mut parts = Vec::new();
        let mut from = self.from;
        for &(start, end) in OWN.get().map_or(&[][..], Vec::as_slice) {
            if start < self.to && end > from {
                if start > from {
                    parts.push(Line {
                        to: start,
                        ..self.clone().starting_at(from)
                    });
                }
                from = end;
            }
        }
        if from < self.to {
            parts.push(self.clone().starting_at(from));
        }
        parts
    }

    /// True for a program's file, and for the page of code for its system calls. That page is read-only, because QEMU
    /// does not execute a guest's code at its own address.
    fn is_loaded(&self) -> bool {
        self.file || self.has('r') && !self.has('w')
    }

    /// True if it is as large as a stack: QEMU makes the stack of 8 MB or more of private memory, above a guard page.
    fn is_stack(&self) -> bool {
        !self.file && self.to - self.from >= 8 << 20
    }

    /// True if the emulator made it later: its own memory, its code, our rings.
    fn is_later_own(&self) -> bool {
        self.path == "[heap]" || self.has('s') || self.has('w') && self.has('x')
    }
}

/// The guest's mappings. Up to 8.0, QEMU places the guest from 256 GB upwards, or where a fixed program must be. That
/// is below the emulator, its heap and its libraries, which the kernel puts near the top. Later the kernel places both,
/// and the mappings made since the emulator loaded this library are the guest's.
fn of_the_guest(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let own = own.to_string_lossy();
    let emulator = lines
        .iter()
        .find(|l| own == l.path)
        .map_or(u64::MAX, |l| l.from);
    let new: Vec<Line<'_>> = lines
        .iter()
        .flat_map(Line::new_parts)
        .filter(|l| !l.is_later_own())
        .collect();
    let mixed = new.iter().any(|l| l.from >= emulator && l.is_loaded());
    if mixed {
        return loaded(new);
    }
    lines.into_iter().filter(|l| l.to <= emulator).collect()
}

/// Selects the mappings of QEMU's loader from the new ones. These are files, the page of code for system calls, zeros
/// directly after one, and the stack with its guard page.
fn loaded(new: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut kept: Vec<Line<'_>> = Vec::new();
    let mut guard: Option<Line<'_>> = None;
    for line in new {
        if !line.file && !line.has('r') {
            guard = Some(line);
            continue;
        }
        let below = guard
            .take()
            .filter(|g| g.to == line.from && line.is_stack());
        let behind = kept.last().is_some_and(|l| l.to == line.from);
        if line.is_loaded() || behind || below.is_some() {
            kept.extend(below);
            kept.push(line);
        }
    }
    kept
}

/// Writes the guest's mappings to the first thread's ring. The guest's `address` is `host` in this process.
pub fn send_initial(host: u64, address: u64) {
    if host == 0 {
        process::die("QEMU does not say where the program's memory is");
    }
    let guest_base = host.wrapping_sub(address);
    guest::BASE.store(guest_base, Relaxed);
    process::segment()
        .header()
        .guest_base
        .store(guest_base, Relaxed);
    let text = read();
    let lines = of_the_guest(text.lines().filter_map(parse).collect());
    // SAFETY: the first block is translated by the first virtual CPU's thread.
    let producer = unsafe { process::producer(0) };
    let mut guard_end = 0;
    for line in &lines {
        let readable = line.permissions.starts_with('r');
        let mut bits = 0;
        if line.has('w') {
            bits |= map_bits::WRITE;
        }
        if line.file {
            bits |= map_bits::FILE;
        }
        if line.has('s') {
            bits |= map_bits::SHARED;
        }
        if line.from == guard_end && line.is_stack() {
            bits |= map_bits::STACK;
        }
        guard_end = if readable { 0 } else { line.to };
        for word in [
            record::word(record::MAPPED, 0),
            line.from.wrapping_sub(guest_base),
            line.to.wrapping_sub(guest_base),
            bits,
            line.key,
            line.offset,
        ] {
            // SAFETY: as above.
            unsafe { producer.push(word) };
        }
    }
}

/// The text of `smaps` with what only the emulator knows of an area: the file, its place, and the name.
pub fn with_names(text: &str) -> String {
    let base = guest::BASE.load(Relaxed);
    let host = read();
    let lines: Vec<(Line<'_>, &str)> = host
        .lines()
        .filter_map(|line| Some((parse(line)?, line)))
        .collect();
    let mut out = String::with_capacity(text.len() * 5 / 4);
    for line in text.lines() {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let from = range.and_then(|(from, _)| u64::from_str_radix(from, 16).ok());
        let at = from.map(|from| from.wrapping_add(base));
        let found = at.and_then(|at| {
            let inside = |(l, _): &&(Line<'_>, &str)| l.file && (l.from..l.to).contains(&at);
            Some((at, lines.iter().find(inside)?))
        });
        match found {
            Some((at, (known, whole))) => {
                let permissions = line.split(' ').nth(1).unwrap_or_default();
                let identity: Vec<&str> = whole.split(' ').skip(3).take(2).collect();
                let offset = known.offset + (at - known.from);
                let range = line.split(' ').next().unwrap_or_default();
                let head = format!("{range} {permissions} {offset:08x} {} ", identity.join(" "));
                out += &format!("{head:<73}{}\n", known.path);
            }
            None => {
                out += line;
                out.push('\n');
            }
        }
    }
    out
}
