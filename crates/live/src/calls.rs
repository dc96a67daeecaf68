//! Events of system calls that change an address space.

use std::collections::BTreeMap;

use pagewalk_stream::{Advice, Backing, Event};
use pagewalk_units::VirtAddr;

/// State of an address space that its system calls depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Attached System V segments and their lengths.
    attached: BTreeMap<u64, u64>,
}

fn pages(bytes: u64) -> u64 {
    bytes.saturating_add(4095) & !4095
}

impl Space {
    /// The event of a finished system call; [`Event::NOTHING`] if it failed or changed nothing.
    pub fn event(&mut self, number: i64, result: i64, a: &[u64; 6]) -> Event {
        // The kernel's errors are -1 to -4095; brk returns an address.
        if (-4095..0).contains(&result) {
            return Event::NOTHING;
        }
        let at = VirtAddr(a[0] & !4095);
        let made = VirtAddr(result as u64 & !4095);
        match number {
            libc::SYS_mmap => Event::Map {
                at: made,
                bytes: pages(a[1]),
                writable: a[2] & libc::PROT_WRITE as u64 != 0,
                backing: backing(a[3]),
            },
            libc::SYS_munmap => Event::Unmap {
                at,
                bytes: pages(a[1]),
            },
            libc::SYS_mprotect => Event::Protect {
                at,
                bytes: pages(a[1]),
                writable: a[2] & libc::PROT_WRITE as u64 != 0,
            },
            libc::SYS_mremap if a[1] == 0 => Event::Map {
                at: made,
                bytes: pages(a[2]),
                writable: true,
                backing: Backing::Shared,
            },
            libc::SYS_mremap => Event::Remap {
                from: at,
                old_bytes: pages(a[1]),
                to: made,
                new_bytes: pages(a[2]),
            },
            libc::SYS_madvise => {
                let advice = match a[2] as libc::c_int {
                    libc::MADV_HUGEPAGE => Advice::HugePage,
                    libc::MADV_NOHUGEPAGE => Advice::NoHugePage,
                    libc::MADV_DONTNEED | libc::MADV_FREE => Advice::DontNeed,
                    _ => return Event::NOTHING,
                };
                Event::Advise {
                    at,
                    bytes: pages(a[1]),
                    advice,
                }
            }
            // The plugin adds the old end of the heap, because the calls of several threads are not read in order.
            libc::SYS_brk => heap(a[1], result as u64),
            libc::SYS_shmat => {
                let bytes = pages(a[5]);
                self.attached.insert(made.0, bytes);
                Event::Map {
                    at: made,
                    bytes,
                    writable: a[2] & libc::SHM_RDONLY as u64 == 0,
                    backing: Backing::Shared,
                }
            }
            libc::SYS_shmdt => match self.attached.remove(&at.0) {
                Some(bytes) => Event::Unmap { at, bytes },
                None => Event::NOTHING,
            },
            _ => Event::NOTHING,
        }
    }
}

/// The heap's end moves from `before` (0: unknown) to `end`.
fn heap(before: u64, end: u64) -> Event {
    let (known, before, end) = (before != 0, pages(before), pages(end));
    if known && end > before {
        Event::Map {
            at: VirtAddr(before),
            bytes: end - before,
            writable: true,
            backing: Backing::Anonymous,
        }
    } else if known && end < before {
        Event::Unmap {
            at: VirtAddr(end),
            bytes: before - end,
        }
    } else {
        Event::NOTHING
    }
}

fn backing(mmap_flags: u64) -> Backing {
    let has = |f: libc::c_int| mmap_flags & f as u64 != 0;
    if has(libc::MAP_SHARED) {
        Backing::Shared
    } else if !has(libc::MAP_ANONYMOUS) {
        Backing::File
    } else if has(libc::MAP_STACK) || has(libc::MAP_GROWSDOWN) {
        Backing::Stack
    } else {
        Backing::Anonymous
    }
}
