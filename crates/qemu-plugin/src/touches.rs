//! Memory of the program that the kernel reads and writes in system calls.
//!
//! Two sorts of accesses are left out. The first are those that a call makes only when it fails. The second depend on a
//! command within the call (`fcntl`, `prctl`, `semctl`, `futex`); they are a word or two that the program has just
//! written itself.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::{Producer, record};

use crate::guest;

/// The process has called `mlockall(MCL_FUTURE)`: calls populate what they map. A child does not inherit it.
static LOCKS_NEW_MAPPINGS: AtomicBool = AtomicBool::new(false);

/// Flags of `mlock2` and `mlockall` with which pages are populated at their first touch.
const MLOCK_ONFAULT: u64 = 1;
const MCL_ONFAULT: u64 = 4;

/// Ends the effect of `mlockall` in a child.
pub fn forked() {
    LOCKS_NEW_MAPPINGS.store(false, Relaxed);
}

/// A range of the program's memory that the kernel reads or writes in a call that succeeds. The fields are the argument
/// with its address, its length, and true if it is written.
#[derive(Clone, Copy)]
struct Range(usize, Length, bool);

/// Length of a range.
#[derive(Clone, Copy)]
enum Length {
    /// This many bytes.
    Bytes(u64),
    /// The call's result, times this many bytes.
    Returned(u64),
    /// The argument, times this many bytes.
    Argument(usize, u64),
    /// One bit for each unit of the argument, in whole words.
    Bits(usize),
    /// One byte for each page of the argument.
    Pages(usize),
    /// The value at the argument's address (`socklen_t`).
    Pointed(usize),
    /// Encoded in the argument with the direction (`_IOC` of `ioctl`).
    Encoded(usize),
    /// An array of `iovec`, as long as the argument says. Together they hold as many bytes as the call returned.
    Vectors(usize),
    /// A `msghdr`, whose vectors hold as many bytes as the call returned.
    Message,
    /// An array of `mmsghdr`, as many as the call returned.
    Messages,
}

use Length::{
    Argument, Bits, Bytes, Encoded, Message, Messages, Pages, Pointed, Returned, Vectors,
};

const fn writes(argument: usize, length: Length) -> Range {
    Range(argument, length, true)
}

const fn reads(argument: usize, length: Length) -> Range {
    Range(argument, length, false)
}

/// The ranges of a call, apart from populated memory.
fn ranges(number: i64) -> &'static [Range] {
    match number {
        // Data.
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_mq_timedreceive
        | libc::SYS_getdents
        | libc::SYS_getdents64
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_flistxattr
        | libc::SYS_readlink => const { &[writes(1, Returned(1))] },
        libc::SYS_getrandom | libc::SYS_getcwd => const { &[writes(0, Returned(1))] },
        libc::SYS_readlinkat | libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_fgetxattr => {
            const { &[writes(2, Returned(1))] }
        }
        // The type of the message precedes it.
        libc::SYS_msgrcv => const { &[writes(1, Returned(1)), writes(1, Bytes(8))] },
        libc::SYS_write | libc::SYS_pwrite64 => const { &[reads(1, Returned(1))] },
        libc::SYS_mq_timedsend | libc::SYS_msgsnd => const { &[reads(1, Argument(2, 1))] },
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
            const { &[reads(1, Argument(2, 16)), writes(1, Vectors(2))] }
        }
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_vmsplice => {
            const { &[reads(1, Argument(2, 16)), reads(1, Vectors(2))] }
        }
        libc::SYS_sendfile => const { &[writes(2, Bytes(8))] },
        libc::SYS_splice | libc::SYS_copy_file_range => {
            const { &[writes(1, Bytes(8)), writes(3, Bytes(8))] }
        }
        libc::SYS_ioctl => const { &[Range(2, Encoded(1), true)] },
        // Sockets.
        libc::SYS_recvfrom => {
            const {
                &[
                    writes(1, Returned(1)),
                    writes(4, Pointed(5)),
                    writes(5, Bytes(4)),
                ]
            }
        }
        libc::SYS_sendto => const { &[reads(1, Returned(1)), reads(4, Argument(5, 1))] },
        libc::SYS_recvmsg => const { &[writes(1, Message)] },
        libc::SYS_sendmsg => const { &[reads(1, Message)] },
        libc::SYS_recvmmsg => const { &[writes(1, Messages)] },
        libc::SYS_sendmmsg => const { &[reads(1, Messages)] },
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_getsockname | libc::SYS_getpeername => {
            const { &[writes(1, Pointed(2)), writes(2, Bytes(4))] }
        }
        libc::SYS_bind | libc::SYS_connect => const { &[reads(1, Argument(2, 1))] },
        libc::SYS_getsockopt => const { &[writes(3, Pointed(4)), writes(4, Bytes(4))] },
        libc::SYS_setsockopt => const { &[reads(3, Argument(4, 1))] },
        libc::SYS_socketpair => const { &[writes(3, Bytes(8))] },
        libc::SYS_pipe | libc::SYS_pipe2 => const { &[writes(0, Bytes(8))] },
        // Files and the system.
        libc::SYS_stat | libc::SYS_fstat | libc::SYS_lstat => const { &[writes(1, Bytes(144))] },
        libc::SYS_newfstatat => const { &[writes(2, Bytes(144))] },
        libc::SYS_statx => const { &[writes(4, Bytes(256))] },
        libc::SYS_statfs | libc::SYS_fstatfs => const { &[writes(1, Bytes(120))] },
        libc::SYS_uname => const { &[writes(0, Bytes(390))] },
        libc::SYS_sysinfo => const { &[writes(0, Bytes(112))] },
        libc::SYS_getgroups => const { &[writes(1, Returned(4))] },
        libc::SYS_getresuid | libc::SYS_getresgid => {
            const {
                &[
                    writes(0, Bytes(4)),
                    writes(1, Bytes(4)),
                    writes(2, Bytes(4)),
                ]
            }
        }
        libc::SYS_mincore => const { &[writes(2, Pages(1))] },
        // Time.
        libc::SYS_clock_gettime
        | libc::SYS_clock_getres
        | libc::SYS_timer_gettime
        | libc::SYS_sched_rr_get_interval => const { &[writes(1, Bytes(16))] },
        libc::SYS_gettimeofday => const { &[writes(0, Bytes(16)), writes(1, Bytes(8))] },
        libc::SYS_time => const { &[writes(0, Bytes(8))] },
        libc::SYS_times => const { &[writes(0, Bytes(32))] },
        libc::SYS_getitimer | libc::SYS_timerfd_gettime => const { &[writes(1, Bytes(32))] },
        libc::SYS_setitimer => const { &[reads(1, Bytes(32)), writes(2, Bytes(32))] },
        libc::SYS_timer_settime | libc::SYS_timerfd_settime => {
            const { &[reads(2, Bytes(32)), writes(3, Bytes(32))] }
        }
        libc::SYS_timer_create => const { &[writes(2, Bytes(4))] },
        // NUMA.
        libc::SYS_set_mempolicy => const { &[reads(1, Bits(2))] },
        libc::SYS_mbind => const { &[reads(3, Bits(4))] },
        libc::SYS_get_mempolicy => const { &[writes(0, Bytes(4)), writes(1, Bits(2))] },
        libc::SYS_migrate_pages => const { &[reads(2, Bits(1)), reads(3, Bits(1))] },
        libc::SYS_move_pages => {
            const {
                &[
                    reads(2, Argument(1, 8)),
                    reads(3, Argument(1, 4)),
                    writes(4, Argument(1, 4)),
                ]
            }
        }
        // Waiting.
        libc::SYS_poll | libc::SYS_ppoll => const { &[writes(0, Argument(1, 8))] },
        libc::SYS_select | libc::SYS_pselect6 => {
            const { &[writes(1, Bits(0)), writes(2, Bits(0)), writes(3, Bits(0))] }
        }
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            const { &[writes(1, Returned(12))] }
        }
        libc::SYS_io_getevents => const { &[writes(3, Returned(32))] },
        libc::SYS_wait4 => const { &[writes(1, Bytes(4)), writes(3, Bytes(144))] },
        libc::SYS_waitid => const { &[writes(2, Bytes(128)), writes(4, Bytes(144))] },
        // Processes, their limits and signals.
        libc::SYS_getrusage => const { &[writes(1, Bytes(144))] },
        libc::SYS_getrlimit => const { &[writes(1, Bytes(16))] },
        libc::SYS_prlimit64 => const { &[writes(3, Bytes(16))] },
        libc::SYS_sched_getaffinity => const { &[writes(2, Returned(1))] },
        libc::SYS_sched_getparam => const { &[writes(1, Bytes(4))] },
        libc::SYS_getcpu => const { &[writes(0, Bytes(4)), writes(1, Bytes(4))] },
        libc::SYS_rt_sigaction => const { &[reads(1, Bytes(32)), writes(2, Bytes(32))] },
        libc::SYS_rt_sigprocmask => {
            const { &[reads(1, Argument(3, 1)), writes(2, Argument(3, 1))] }
        }
        libc::SYS_rt_sigpending => const { &[writes(0, Argument(1, 1))] },
        libc::SYS_rt_sigtimedwait => const { &[writes(1, Bytes(128))] },
        libc::SYS_sigaltstack => const { &[reads(0, Bytes(24)), writes(1, Bytes(24))] },
        _ => &[],
    }
}

/// True if the call writes the program's memory, false if it only reads it; `None` if it does neither.
#[cfg(test)]
pub fn kernel_writes(number: i64) -> Option<bool> {
    let ranges = ranges(number);
    (!ranges.is_empty()).then(|| ranges.iter().any(|&Range(_, _, writes)| writes))
}

/// Reports the memory that the call with these arguments and this result has read and written.
///
/// # Safety
/// `p` is the calling thread's producer.
pub unsafe fn report(p: &Producer, number: i64, result: i64, arguments: &[u64; 6]) {
    // The kernel's errors: a failed call has touched nothing.
    if (-4095..0).contains(&result) {
        return;
    }
    let call = Finished {
        p,
        result: result as u64,
        arguments,
    };
    if let Some((at, bytes, how)) = call.populated(number) {
        // SAFETY: by the contract.
        return unsafe { call.push_touch(at, bytes, record::POPULATE | how) };
    }
    for range in ranges(number) {
        // SAFETY: by the contract. Unreadable ranges are not reported.
        let _ = unsafe { call.range(range) };
    }
}

/// A call that has succeeded.
struct Finished<'a> {
    p: &'a Producer,
    result: u64,
    arguments: &'a [u64; 6],
}

impl Finished<'_> {
    /// Start and length of the range that the call populates, and the bits of [`record::TOUCH`]. QEMU ignores
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`, which Linux itself would not.
    fn populated(&self, number: i64) -> Option<(u64, u64, u64)> {
        let [at, bytes, how, flags, ..] = *self.arguments;
        let has = |value: u64, flag: libc::c_int| value & flag as u64 != 0;
        let locks = LOCKS_NEW_MAPPINGS.load(Relaxed);
        match number {
            libc::SYS_mmap if how & (libc::PROT_READ | libc::PROT_WRITE) as u64 == 0 => None,
            libc::SYS_mmap if locks || has(flags, libc::MAP_LOCKED) => {
                Some((self.result, bytes, record::BY_AREA))
            }
            libc::SYS_mmap if has(flags, libc::MAP_POPULATE) && !has(flags, libc::MAP_NONBLOCK) => {
                Some((self.result, bytes, record::BY_AREA))
            }
            libc::SYS_brk if locks && bytes != 0 => {
                Some((bytes, self.result.saturating_sub(bytes), record::BY_AREA))
            }
            libc::SYS_mremap if locks => {
                let new = self.result.wrapping_add(bytes);
                Some((new, how.saturating_sub(bytes), record::BY_AREA))
            }
            libc::SYS_mprotect if locks && has(how, libc::PROT_WRITE) => {
                Some((at, bytes, record::BY_AREA))
            }
            libc::SYS_mlock => Some((at & !4095, bytes + (at & 4095), record::BY_AREA)),
            libc::SYS_mlock2 if how & MLOCK_ONFAULT == 0 => {
                Some((at & !4095, bytes + (at & 4095), record::BY_AREA))
            }
            libc::SYS_mlockall => {
                let populates = at & MCL_ONFAULT == 0;
                LOCKS_NEW_MAPPINGS.store(has(at, libc::MCL_FUTURE) && populates, Relaxed);
                (has(at, libc::MCL_CURRENT) && populates).then_some((
                    4096,
                    1 << 47,
                    record::BY_AREA,
                ))
            }
            libc::SYS_munlockall => {
                LOCKS_NEW_MAPPINGS.store(false, Relaxed);
                None
            }
            libc::SYS_madvise => match how as libc::c_int {
                libc::MADV_POPULATE_READ => Some((at, bytes, 0)),
                libc::MADV_POPULATE_WRITE => Some((at, bytes, record::STORE)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Reports a range. `None`: the guest's memory lacks a value that the length depends on.
    ///
    /// # Safety
    /// The producer is the calling thread's.
    unsafe fn range(&self, &Range(argument, length, writes): &Range) -> Option<()> {
        let (at, mut writes) = (self.arguments[argument], writes);
        if at == 0 {
            return None;
        }
        let a = |i: usize| self.arguments[i];
        let bytes = match length {
            Bytes(n) => n,
            Returned(each) => self.result.saturating_mul(each),
            Argument(i, each) => a(i).saturating_mul(each),
            Bits(i) => (a(i) & 0xffff_ffff).div_ceil(64) * 8,
            Pages(i) => a(i).div_ceil(4096),
            Pointed(i) => u64::from(u32::from_le_bytes(fetch(a(i))?)),
            Encoded(i) => {
                // Direction in bits 30 and 31: 1 if the kernel reads, 2 if it writes.
                writes = a(i) >> 31 & 1 != 0;
                if a(i) >> 30 & 3 == 0 {
                    0
                } else {
                    a(i) >> 16 & 0x3fff
                }
            }
            // SAFETY: by the contract.
            Vectors(i) => return unsafe { self.vectors(at, a(i), self.result, writes) },
            // SAFETY: by the contract.
            Message => return unsafe { self.message(at, self.result, writes) },
            Messages => {
                for i in 0..self.result {
                    let one = at.checked_add(i.checked_mul(64)?)?;
                    let bytes = u32::from_le_bytes(fetch(one.checked_add(56)?)?);
                    // SAFETY: by the contract.
                    unsafe {
                        self.message(one, u64::from(bytes), writes)?;
                        self.push(one, 64, true);
                    }
                }
                return Some(());
            }
        };
        // SAFETY: by the contract.
        unsafe { self.push(at, bytes, writes) };
        Some(())
    }

    /// Reports a `msghdr` (address and length of a name, of vectors, of control messages) with `bytes` of data.
    ///
    /// # Safety
    /// As [`Finished::range`].
    unsafe fn message(&self, at: u64, bytes: u64, writes: bool) -> Option<()> {
        let header: [u8; 56] = fetch(at)?;
        let word = |i: usize| {
            let raw = header[i * 8..i * 8 + 8].try_into();
            raw.map_or(0, u64::from_le_bytes)
        };
        // SAFETY: by the contract.
        unsafe {
            self.push(at, 56, writes);
            self.push(word(0), word(1) & 0xffff_ffff, writes);
            self.push(word(2), word(3).saturating_mul(16), false);
            self.push(word(4), word(5), writes);
            self.vectors(word(2), word(3), bytes, writes)
        }
    }

    /// Reports `bytes` of data in the `count` vectors at `at`, in order.
    ///
    /// # Safety
    /// As [`Finished::range`].
    unsafe fn vectors(&self, at: u64, count: u64, mut bytes: u64, writes: bool) -> Option<()> {
        for i in 0..count {
            if bytes == 0 {
                break;
            }
            let raw: [u8; 16] = fetch(at.checked_add(i.checked_mul(16)?)?)?;
            let both = u128::from_le_bytes(raw);
            let (base, length) = (both as u64, ((both >> 64) as u64).min(bytes));
            // SAFETY: by the contract.
            unsafe { self.push(base, length, writes) };
            bytes -= length;
        }
        Some(())
    }

    /// # Safety
    /// As [`Finished::range`].
    unsafe fn push(&self, at: u64, bytes: u64, writes: bool) {
        // SAFETY: by the contract.
        unsafe { self.push_touch(at, bytes, if writes { record::STORE } else { 0 }) };
    }

    /// As [`Finished::push`], with the bits of [`record::TOUCH`].
    ///
    /// # Safety
    /// As [`Finished::range`].
    unsafe fn push_touch(&self, at: u64, bytes: u64, how: u64) {
        if at == 0 || bytes == 0 || bytes >= record::BY_AREA {
            return;
        }
        // SAFETY: by the contract.
        unsafe {
            self.p.push(record::word(record::TOUCH, bytes | how));
            self.p.push(at);
        }
    }
}

/// Reads bytes of the guest's memory.
fn fetch<const N: usize>(at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    guest::read(at, &mut bytes)?;
    Some(bytes)
}
