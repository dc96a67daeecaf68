//! Events of system calls that change an address space.

use std::collections::BTreeMap;
use std::fmt;

use pagewalk_ring::record::call_arguments;
use pagewalk_stream::{Advice, Event, MappingSource, MemoryObject};
use pagewalk_units::{PageSize, VirtAddr};

/// State of an address space that its system calls depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Attached System V segments and their lengths.
    attached: BTreeMap<u64, u64>,
}

/// True for a system call whose result is a time.
pub(crate) fn asks_for_time(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_clock_gettime
            | libc::SYS_gettimeofday
            | libc::SYS_time
            | libc::SYS_times
            | libc::SYS_getrusage
    )
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
            libc::SYS_mmap => {
                let writable = a[2] & libc::PROT_WRITE as u64 != 0;
                let size = match a[3] & libc::MAP_HUGETLB as u64 {
                    0 => None,
                    _ => pool_size(a[3] >> libc::MAP_HUGE_SHIFT & 0x3f),
                };
                let reserves = a[3] & libc::MAP_NORESERVE as u64 == 0;
                mapped(
                    made.0,
                    pages(a[1]),
                    writable,
                    pool(size, reserves, source(a)),
                )
            }
            libc::SYS_munmap => Event::Unmap {
                at,
                bytes: pages(a[1]),
            },
            libc::SYS_mprotect => Event::Protect {
                at,
                bytes: pages(a[1]),
                writable: a[2] & libc::PROT_WRITE as u64 != 0,
            },
            libc::SYS_mremap if a[1] == 0 => mapped(made.0, pages(a[2]), true, shared(None)),
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
                    libc::MADV_DONTNEED => Advice::DontNeed,
                    libc::MADV_FREE => Advice::Free,
                    libc::MADV_COLLAPSE => Advice::Collapse,
                    libc::MADV_REMOVE => Advice::Remove,
                    libc::MADV_PAGEOUT => Advice::PageOut,
                    libc::MADV_DONTFORK => Advice::DontFork,
                    libc::MADV_WIPEONFORK => Advice::WipeOnFork,
                    libc::MADV_DOFORK | libc::MADV_KEEPONFORK => Advice::KeepOnFork,
                    _ => return Event::NOTHING,
                };
                Event::Advise {
                    at,
                    bytes: pages(a[1]),
                    advice,
                }
            }
            libc::SYS_prctl => Event::DisableHugePages {
                disabled: a[1] != 0,
            },
            libc::SYS_fallocate if a[call_arguments::KEY] != 0 => {
                // Whole pages are freed, and parts of pages are zeroed.
                let (from, end) = (a[2].div_ceil(4096), a[2].saturating_add(a[3]) >> 12);
                Event::PunchHole {
                    key: a[call_arguments::KEY],
                    page: from,
                    pages: end.saturating_sub(from),
                }
            }
            libc::SYS_ftruncate | libc::SYS_truncate if a[call_arguments::KEY] != 0 => {
                Event::Truncate {
                    key: a[call_arguments::KEY],
                    pages: a[1].div_ceil(4096),
                }
            }
            // The plugin adds the old end of the heap, because the calls of several threads are not read in order.
            libc::SYS_brk => heap(a[call_arguments::BREAK], result as u64),
            libc::SYS_shmat => {
                let bytes = pages(a[call_arguments::SEGMENT]);
                self.attached.insert(made.0, bytes);
                let writable = a[2] & libc::SHM_RDONLY as u64 == 0;
                let key = 1 << 63 | a[0] & 0xffff_ffff;
                let size = pool_size(a[call_arguments::HUGE]);
                mapped(made.0, bytes, writable, pool(size, true, shared(Some(key))))
            }
            libc::SYS_shmdt => match self.attached.remove(&at.0) {
                Some(bytes) => Event::Unmap { at, bytes },
                None => Event::NOTHING,
            },
            _ => Event::NOTHING,
        }
    }
}

/// A memory call that is not modelled.
pub(crate) struct NotModelled {
    pub number: i64,
    pub result: i64,
    pub arguments: [u64; 6],
}

impl NotModelled {
    /// Name of the call, number of its arguments, and the one that says what it does, if there is one.
    fn describe(&self) -> (&'static str, usize, Option<u64>) {
        let a = &self.arguments;
        match self.number {
            libc::SYS_madvise => ("madvise", 3, Some(a[2])),
            libc::SYS_prctl => ("prctl", 5, Some(a[0])),
            libc::SYS_fallocate => ("fallocate", 4, Some(a[1])),
            libc::SYS_remap_file_pages => ("remap_file_pages", 5, None),
            libc::SYS_pkey_mprotect => ("pkey_mprotect", 4, None),
            libc::SYS_userfaultfd => ("userfaultfd", 1, None),
            libc::SYS_process_madvise => ("process_madvise", 5, Some(a[3])),
            libc::SYS_migrate_pages => ("migrate_pages", 4, None),
            libc::SYS_move_pages => ("move_pages", 6, None),
            _ => ("a memory call", 6, None),
        }
    }

    /// Calls of one kind are named once.
    pub fn kind(&self) -> (i64, Option<u64>) {
        (self.number, self.describe().2)
    }
}

impl fmt::Display for NotModelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, count, _) = self.describe();
        let arguments = self.arguments[..count].iter().map(|a| format!("{a:#x}"));
        let arguments: Vec<String> = arguments.collect();
        let (number, arguments) = (self.number, arguments.join(", "));
        write!(f, "{name} (system call {number}) with {arguments}")?;
        if (-4095..0).contains(&self.result) {
            let error = std::io::Error::from_raw_os_error(-self.result as i32);
            write!(f, ", which QEMU fails with \"{error}\",")?;
        }
        Ok(())
    }
}

/// The old mapping of a `mremap` with `MREMAP_DONTUNMAP`, which stays without its pages.
pub(crate) fn left_behind(number: i64, result: i64, a: &[u64; 6]) -> Option<Event> {
    let stays = number == libc::SYS_mremap
        && a[3] & libc::MREMAP_DONTUNMAP as u64 != 0
        && !(-4095..0).contains(&result);
    let zeros = MappingSource::Zeros {
        stack: false,
        reserves: true,
    };
    stays.then(|| mapped(a[0] & !4095, pages(a[1]), true, zeros))
}

/// The heap's end moves from `before` (0: unknown) to `end`.
fn heap(before: u64, end: u64) -> Event {
    let (known, before, end) = (before != 0, pages(before), pages(end));
    if known && end > before {
        mapped(
            before,
            end - before,
            true,
            MappingSource::Zeros {
                stack: false,
                reserves: true,
            },
        )
    } else if known && end < before {
        Event::Unmap {
            at: VirtAddr(end),
            bytes: before - end,
        }
    } else {
        Event::NOTHING
    }
}

/// The event of a new mapping.
pub(crate) fn mapped(at: u64, bytes: u64, writable: bool, source: MappingSource) -> Event {
    Event::Mmap {
        at: VirtAddr(at),
        bytes,
        writable,
        source,
    }
}

/// Size of a pool's pages with this binary logarithm.
fn pool_size(shift: u64) -> Option<PageSize> {
    [PageSize::M2, PageSize::G1]
        .into_iter()
        .find(|size| u64::from(size.shift()) == shift)
}

/// The same memory, of pages of a pool if a size is given.
fn pool(size: Option<PageSize>, reserves: bool, source: MappingSource) -> MappingSource {
    let Some(size) = size else {
        return source;
    };
    let (object, private) = match source {
        MappingSource::Object { object, private } => (Some(object), private),
        _ => (None, true),
    };
    MappingSource::Pool {
        size,
        reserves,
        object,
        private,
    }
}

/// Shared memory from its first page on.
fn shared(key: Option<u64>) -> MappingSource {
    MappingSource::Object {
        object: MemoryObject {
            key,
            file: false,
            page: 0,
            pages: u64::MAX,
        },
        private: false,
    }
}

/// Memory behind a mapping with these arguments of `mmap`, in which the plugin has replaced hint and descriptor.
fn source(a: &[u64; 6]) -> MappingSource {
    let has = |f: libc::c_int| a[3] & f as u64 != 0;
    let key = a[call_arguments::KEY];
    if key != 0 && !has(libc::MAP_ANONYMOUS) {
        let file = a[call_arguments::PAGES];
        return MappingSource::Object {
            object: MemoryObject {
                key: Some(key),
                file: file & 1 != 0,
                page: a[5] >> 12,
                pages: file >> 1,
            },
            private: !has(libc::MAP_SHARED),
        };
    }
    if has(libc::MAP_SHARED) {
        return shared(None);
    }
    MappingSource::Zeros {
        stack: has(libc::MAP_STACK) || has(libc::MAP_GROWSDOWN),
        reserves: !has(libc::MAP_NORESERVE),
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stream::{Advice, Event, MappingSource, MemoryObject};
    use pagewalk_units::{PageSize, VirtAddr};

    use super::{NotModelled, Space, left_behind, mapped};

    fn event(number: i64, result: i64, arguments: [u64; 6]) -> Event {
        Space::default().event(number, result, &arguments)
    }

    #[test]
    fn a_mapping_names_the_file_and_its_part() {
        let (private, shared) = (libc::MAP_PRIVATE as u64, libc::MAP_SHARED as u64);
        // The plugin has put the key and twice the pages in place of hint and descriptor.
        let file =
            |flags, pages| event(libc::SYS_mmap, 1 << 30, [77, 8191, 3, flags, pages, 12288]);
        let object = |file, private| MappingSource::Object {
            object: MemoryObject {
                key: Some(77),
                file,
                page: 3,
                pages: 40,
            },
            private,
        };
        assert_eq!(
            file(private, 81),
            mapped(1 << 30, 8192, true, object(true, true))
        );
        assert_eq!(
            file(shared, 80),
            mapped(1 << 30, 8192, true, object(false, false))
        );
        let anonymous = private | libc::MAP_ANONYMOUS as u64;
        let zeros = MappingSource::Zeros {
            stack: false,
            reserves: true,
        };
        assert_eq!(file(anonymous, 0), mapped(1 << 30, 8192, true, zeros));
        // A failed call maps nothing.
        assert_eq!(
            event(libc::SYS_mmap, -12, [0, 4096, 3, private, 0, 0]),
            Event::NOTHING
        );
    }

    #[test]
    fn mappings_of_pools_name_size_object_and_reservation() {
        let huge = (libc::MAP_HUGETLB | libc::MAP_HUGE_1GB) as u64;
        let made = |key, flags| {
            let flags = flags as u64 | huge;
            event(libc::SYS_mmap, 1 << 30, [key, 4096, 3, flags, 0, 0])
        };
        let of = |size, reserves, object, private| {
            let source = MappingSource::Pool {
                size,
                reserves,
                object,
                private,
            };
            mapped(1 << 30, 4096, true, source)
        };
        let anonymous = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        let giant = PageSize::G1;
        assert_eq!(made(0, anonymous), of(giant, true, None, true));
        let unreserved = anonymous | libc::MAP_NORESERVE;
        assert_eq!(made(0, unreserved), of(giant, false, None, true));
        let object = |key, pages| {
            Some(MemoryObject {
                key: Some(key),
                file: false,
                page: 0,
                pages,
            })
        };
        let file = made(77, libc::MAP_SHARED);
        assert_eq!(file, of(giant, true, object(77, 0), false));
        // The plugin has put the size and the bytes of a segment in place of two arguments.
        let segment = event(libc::SYS_shmat, 1 << 30, [5, 0, 0, 21, 0, 4096]);
        let key = 1 << 63 | 5;
        assert_eq!(
            segment,
            of(PageSize::M2, true, object(key, u64::MAX), false)
        );
    }

    #[test]
    fn calls_that_take_pages_away_become_events() {
        let advice = |number| event(libc::SYS_madvise, 0, [4096, 100, number, 0, 0, 0]);
        for (number, advice_of) in [
            (8, Advice::Free),
            (9, Advice::Remove),
            (21, Advice::PageOut),
            (10, Advice::DontFork),
            (11, Advice::KeepOnFork),
            (18, Advice::WipeOnFork),
            (19, Advice::KeepOnFork),
            (25, Advice::Collapse),
        ] {
            let expected = Event::Advise {
                at: VirtAddr(4096),
                bytes: 4096,
                advice: advice_of,
            };
            assert_eq!(advice(number), expected, "{number}");
        }
        // Only whole pages are freed.
        let hole = event(libc::SYS_fallocate, 0, [7, 3, 4095, 8194, 0, 0]);
        let (key, page, pages) = (7, 1, 2);
        assert_eq!(hole, Event::PunchHole { key, page, pages });
        let shorter = event(libc::SYS_ftruncate, 0, [7, 4097, 0, 0, 0, 0]);
        assert_eq!(shorter, Event::Truncate { key, pages });
        let device = event(libc::SYS_ftruncate, 0, [0, 4097, 0, 0, 0, 0]);
        assert_eq!(device, Event::NOTHING);
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP) as u64;
        let zeros = MappingSource::Zeros {
            stack: false,
            reserves: true,
        };
        let moved =
            |flags| left_behind(libc::SYS_mremap, 1 << 30, &[8192, 4096, 4096, flags, 0, 0]);
        assert_eq!(moved(flags), Some(mapped(8192, 4096, true, zeros)));
        assert_eq!(moved(libc::MREMAP_MAYMOVE as u64), None);
    }

    #[test]
    fn a_call_that_is_not_modelled_is_named_with_its_own_arguments() {
        let call = |number, result| NotModelled {
            number,
            result,
            arguments: [4096, 8192, 12, 1, 2, 3],
        };
        let text = "madvise (system call 28) with 0x1000, 0x2000, 0xc";
        assert_eq!(call(libc::SYS_madvise, 0).to_string(), text);
        let text = call(libc::SYS_migrate_pages, -38).to_string();
        assert!(text.contains("(system call 256) with 0x1000, 0x2000, 0xc, 0x1, which QEMU fails"));
    }
}
