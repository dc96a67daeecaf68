//! Out of memory on the host: prints one sentence and ends the process.

use std::alloc::{GlobalAlloc, Layout, System};

/// The same as Python's `Failure.exit_status`.
const STATUS: i32 = 1;

/// The system's allocator. On failure it prints an explanation, where the standard library would abort. A successful
/// call costs one comparison more.
struct ReportingAllocator;

// SAFETY: each call goes to the system's allocator with the caller's arguments, and its result is returned unchanged.
// If the result is null, the process ends.
unsafe impl GlobalAlloc for ReportingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own promise.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own promise.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's own promise.
        checked(unsafe { System.realloc(at, layout, size) }, size)
    }
}

#[global_allocator]
static ALLOCATOR: ReportingAllocator = ReportingAllocator;

#[inline]
fn checked(at: *mut u8, bytes: usize) -> *mut u8 {
    if at.is_null() {
        none_left(bytes);
    }
    at
}

/// Prints the error without allocating, and ends the process: most of the engine cannot continue, and no result may be
/// half written.
#[cold]
#[inline(never)]
fn none_left(bytes: usize) -> ! {
    let mut said = Text::new();
    said.add(b"error: the host gives no more memory: ");
    said.size(bytes as u64);
    said.add(b" more were wanted");
    if let Some(used) = resident() {
        said.add(b", and this process has ");
        said.size(used);
    }
    said.add(
        b"; take a smaller program or fewer designs at a time, or raise the limit \
          (ulimit -v, the container's)\n",
    );
    // SAFETY: `length` bytes of the text are initialised, and nothing runs after the exit.
    unsafe {
        libc::write(2, said.bytes.as_ptr().cast(), said.length);
        libc::_exit(STATUS)
    }
}

/// Resident memory of this process in bytes, from `/proc/self/statm`.
fn resident() -> Option<u64> {
    let mut read = [0u8; 128];
    // SAFETY: the path ends in a zero byte, and at most the length of `read` is read.
    let got = unsafe {
        let file = libc::open(
            c"/proc/self/statm".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        );
        if file < 0 {
            return None;
        }
        libc::read(file, read.as_mut_ptr().cast(), read.len())
    };
    let text = read.get(..usize::try_from(got).ok()?)?;
    let second = text.split(|&b| b == b' ').nth(1)?;
    let pages = second.iter().try_fold(0u64, |n, &b| {
        b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0'))
    })?;
    Some(pages * 4096)
}

/// A text buffer on the stack.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl Text {
    fn new() -> Self {
        Text {
            bytes: [0; 512],
            length: 0,
        }
    }

    /// Adds as many bytes as fit.
    fn add(&mut self, more: &[u8]) {
        for &byte in more {
            if let Some(free) = self.bytes.get_mut(self.length) {
                *free = byte;
                self.length += 1;
            }
        }
    }

    /// Adds a size in the largest unit that gives at least two.
    fn size(&mut self, bytes: u64) {
        let units: [(&[u8], u32); 4] =
            [(b" bytes", 0), (b" KiB", 10), (b" MiB", 20), (b" GiB", 30)];
        let (unit, shift) = units
            .into_iter()
            .rfind(|(_, shift)| bytes >> shift >= 2)
            .unwrap_or(units[0]);
        let mut digits = [0u8; 20];
        let mut left = bytes >> shift;
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.add(&digits[at..]);
        self.add(unit);
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, resident};

    #[test]
    fn sizes_are_written_without_an_allocation() {
        for (bytes, written) in [
            (0, "0 bytes"),
            (1, "1 bytes"),
            (2047, "2047 bytes"),
            (2048, "2 KiB"),
            (8 << 20, "8 MiB"),
            (u64::MAX, "17179869183 GiB"),
        ] {
            let mut text = Text::new();
            text.size(bytes);
            assert_eq!(&text.bytes[..text.length], written.as_bytes());
        }
        assert!(resident().unwrap() > 1 << 20);
    }

    #[test]
    fn text_beyond_the_buffer_is_left_out() {
        let mut text = Text::new();
        text.add(&[b'x'; 600]);
        assert_eq!(text.length, 512);
    }
}
