//! Memory of a benchmark, in pages of a known size.

use pagewalk_units::Error;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// An anonymous mapping that begins at a multiple of 2 MB.
pub(crate) struct Memory {
    mapped: *mut libc::c_void,
    mapped_bytes: usize,
    from: *mut u8,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes`, untouched, with the kernel's advice for huge pages or against them.
    ///
    /// # Errors
    /// The host gives no more memory.
    pub fn map(bytes: usize, huge: bool) -> Result<Self, Error> {
        let mapped_bytes = bytes + HUGE;
        // SAFETY: a new anonymous mapping touches no memory of this process.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let why = std::io::Error::last_os_error();
            return Err(Error::refused(format!(
                "{} MB for a micro-benchmark cannot be mapped ({why}); free memory, or raise the limit (ulimit -v)",
                bytes >> 20
            )));
        }
        let skip = mapped.align_offset(HUGE);
        // SAFETY: the mapping is longer than `bytes` by a whole huge page, and `skip` is below one.
        let from = unsafe { mapped.cast::<u8>().add(skip) };
        let memory = Memory {
            mapped,
            mapped_bytes,
            from,
            bytes,
        };
        let advice = if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: the range lies in the mapping. A kernel without huge pages refuses the advice,
        // which `huge_share` shows.
        unsafe { libc::madvise(from.cast(), bytes, advice) };
        Ok(memory)
    }

    /// First byte.
    pub fn from(&self) -> *mut u8 {
        self.from
    }

    /// Its words of 8 bytes. Reading them maps their pages.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is owned, readable and writable, zeroed, and aligned to 2 MB.
        unsafe { std::slice::from_raw_parts_mut(self.from.cast(), self.bytes / 8) }
    }

    /// Share of its bytes that lie in huge pages, by `/proc/self/smaps`. `None` if that cannot be
    /// read.
    pub fn huge_share(&self) -> Option<f64> {
        if self.bytes == 0 {
            return None;
        }
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(
            huge_kb(&text, self.from as u64, self.bytes as u64) as f64 * 1024.0 / self.bytes as f64,
        )
    }

    /// Unmaps it all.
    pub fn unmap(self) {
        drop(self);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows it any more.
        unsafe { libc::munmap(self.mapped, self.mapped_bytes) };
    }
}

/// KB in huge pages of the mappings in `text`, a `smaps` file, that lie in `bytes` from `from` on.
/// The kernel joins neighbouring mappings, so a longer one counts by its share at most.
fn huge_kb(text: &str, from: u64, bytes: u64) -> u64 {
    let (mut inside, mut sum) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((begin, end)) = first.split_once('-')
            && let (Ok(begin), Ok(end)) =
                (u64::from_str_radix(begin, 16), u64::from_str_radix(end, 16))
        {
            inside = begin < from + bytes && from < end;
        } else if inside && first == "AnonHugePages:" {
            sum += words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
        }
    }
    sum.min(bytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_found_in_smaps() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      2048 kB\n\
                    7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n";
        assert_eq!(huge_kb(text, 0x7f00_0000_0000, 4 << 20), 2048);
        assert_eq!(huge_kb(text, 0x7f00_0000_0000, 16 << 20), 4096);
        assert_eq!(huge_kb(text, 0x7f00_0040_0000, 4 << 20), 0);
    }

    #[test]
    fn small_pages_are_never_huge() {
        let mut memory = Memory::map(4 << 20, false).expect("memory");
        memory.words().iter_mut().step_by(512).for_each(|w| *w = 1);
        assert_eq!(memory.huge_share(), Some(0.0));
        memory.unmap();
    }
}
