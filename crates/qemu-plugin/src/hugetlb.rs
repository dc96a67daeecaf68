//! Pools of huge pages, as the program sees them.
//!
//! The host's pool is usually empty, so the plugin answers for the simulated one: it counts reservations on the control
//! page, and QEMU gets ordinary memory, aligned to huge pages. Pages that a fault takes without a reservation (after a
//! fork, or with MAP_NORESERVE) are counted by the simulated kernel only.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard};

use pagewalk_ring::record::call_arguments;

use crate::ranges::Ranges;
use crate::{files, process};

/// Position and mask of the size in flags: `MAP_HUGE_SHIFT`, the same for shared memory and memory files.
const SIZE_SHIFT: u32 = 26;
const SIZE_MASK: u64 = 0x3f;
/// Binary logarithm of the default size, 2 MB.
const DEFAULT: u32 = 21;

/// A mapping of huge pages.
#[derive(Clone, Copy)]
struct Area {
    /// Binary logarithm of the page size.
    shift: u32,
    /// Its pages are counted as reserved.
    counted: bool,
    /// Key of the shared file whose pages they are, or 0.
    file: u64,
}

/// A file of huge pages, or a System V segment.
struct PoolFile {
    shift: u32,
    /// Pages that this process has reserved.
    reserved: BTreeSet<u64>,
}

struct Known {
    areas: Ranges<Area>,
    /// Files of huge pages by key.
    files: BTreeMap<u64, PoolFile>,
    /// System V segments by number.
    segments: BTreeMap<u64, PoolFile>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    areas: Ranges::new(),
    files: BTreeMap::new(),
    segments: BTreeMap::new(),
});

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Known>>> = const { RefCell::new(None) };
}

/// Locks the state for a fork.
pub fn hold() {
    HELD.set(Some(known()));
}

/// Ends the effect of [`hold`].
pub fn let_go() {
    HELD.take();
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(|e| e.into_inner())
}

/// The part of a system call that concerns a pool.
#[derive(Clone, Copy, Default)]
pub struct Request {
    /// Binary logarithm of the page size; 0: no huge pages.
    pub shift: u32,
    /// Pages that the call has reserved.
    reserved: u64,
    /// Key of the shared file whose pages it maps.
    file: u64,
    /// The kernel's error, with which the call fails; 0: none.
    pub error: c_int,
    /// Bytes on which advice acts, if fewer than the program says.
    pub bytes: Option<u64>,
}

thread_local! {
    static REQUEST: Cell<Request> = const { Cell::new(Request {
        shift: 0,
        reserved: 0,
        file: 0,
        error: 0,
        bytes: None,
    }) };
}

/// The request of the thread's present call.
pub fn request() -> Request {
    REQUEST.get()
}

fn release(shift: u32, pages: u64) {
    process::control().unreserve(shift, pages);
}

/// The size in the flags of a call, or `error` if there is no such size.
fn size(flags: u64, error: c_int) -> Result<u32, c_int> {
    match (flags >> SIZE_SHIFT & SIZE_MASK) as u32 {
        0 => Ok(DEFAULT),
        shift @ (21 | 30) => Ok(shift),
        _ => Err(error),
    }
}

fn reserve(shift: u32, pages: u64) -> Result<u64, c_int> {
    if process::control().reserve(shift, pages) {
        Ok(pages)
    } else {
        Err(libc::ENOMEM)
    }
}

const fn aligned(value: u64, shift: u32) -> bool {
    value & ((1 << shift) - 1) == 0
}

/// The system call begins. Reserves the pages that it needs.
pub fn enter(number: i64, a: &[u64; 6]) {
    let found = match number {
        libc::SYS_mmap => map(a),
        libc::SYS_memfd_create if a[1] & u64::from(libc::MFD_HUGETLB) != 0 => {
            size(a[1], libc::ENODEV).map(|shift| Request {
                shift,
                ..Request::default()
            })
        }
        libc::SYS_shmget if a[2] & libc::SHM_HUGETLB as u64 != 0 => segment(a),
        libc::SYS_shmat => Ok(Request {
            shift: known().segments.get(&a[0]).map_or(0, |s| s.shift),
            ..Request::default()
        }),
        libc::SYS_munmap => whole(a[0], a[1]).map(|()| Request::default()),
        libc::SYS_mprotect => whole(a[0], a[1]).map(|()| Request::default()),
        libc::SYS_madvise => advise(a),
        libc::SYS_mremap => remap(a),
        _ => Ok(Request::default()),
    };
    REQUEST.set(found.unwrap_or_else(|error| Request {
        error,
        ..Request::default()
    }));
}

/// Checks that a range neither begins nor ends within a huge page.
fn whole(at: u64, bytes: u64) -> Result<(), c_int> {
    let end = at.saturating_add(bytes.saturating_add(4095) & !4095);
    let areas = &known().areas;
    let splits = |border| {
        let area = areas.find(border);
        area.is_some_and(|(start, _, area)| start < border && !aligned(border, area.shift))
    };
    if splits(at) || splits(end) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

fn map(a: &[u64; 6]) -> Result<Request, c_int> {
    let [hint, bytes, protection, flags, descriptor, offset] = *a;
    let has = |flag: c_int| flags & flag as u64 != 0;
    if has(libc::MAP_FIXED) {
        whole(hint, bytes)?;
    }
    let file = if has(libc::MAP_ANONYMOUS) {
        None
    } else {
        files::of_descriptor(descriptor as i32)
    };
    let mut known = known();
    let file = file.and_then(|file| Some((file, known.files.get_mut(&file.key)?)));
    let shift = match &file {
        Some((_, pool)) => pool.shift,
        None if !has(libc::MAP_HUGETLB) || bytes == 0 => return Ok(Request::default()),
        None if !has(libc::MAP_ANONYMOUS) => return Err(libc::EINVAL),
        None => size(flags, libc::EINVAL)?,
    };
    let fixed = has(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    if fixed && !aligned(hint, shift) || file.is_some() && !aligned(offset, shift) {
        return Err(libc::EINVAL);
    }
    let page = 1 << shift;
    let length = bytes.checked_next_multiple_of(page).ok_or(libc::ENOMEM)?;
    let mut request = Request {
        shift,
        ..Request::default()
    };
    let reserves = !has(libc::MAP_NORESERVE);
    if let Some((file, pool)) = file {
        let end = offset.checked_add(length).ok_or(libc::EINVAL)?;
        // A writable mapping makes the file as long as itself (`hugetlbfs_file_mmap`).
        if protection & libc::PROT_WRITE as u64 != 0 && file.pages << 12 < end {
            // SAFETY: the program's file; the call only enlarges it.
            unsafe { libc::ftruncate(descriptor as i32, end as libc::off_t) };
        }
        if has(libc::MAP_SHARED) {
            request.file = file.key;
            let range = offset >> shift..end >> shift;
            let missing: Vec<u64> = range.filter(|n| !pool.reserved.contains(n)).collect();
            if reserves {
                reserve(shift, missing.len() as u64)?;
                // They belong to the file from now on, also if the call fails.
                pool.reserved.extend(missing);
            }
            return Ok(request);
        }
    }
    if reserves {
        request.reserved = reserve(shift, length >> shift)?;
    }
    Ok(request)
}

fn segment(&[key, bytes, flags, ..]: &[u64; 6]) -> Result<Request, c_int> {
    let shift = size(flags, libc::EINVAL)?;
    let exists = key as libc::key_t != libc::IPC_PRIVATE && {
        // SAFETY: finds a segment, and makes none.
        unsafe { libc::shmget(key as libc::key_t, 0, 0) >= 0 }
    };
    let mut request = Request {
        shift,
        ..Request::default()
    };
    if !exists && flags & libc::IPC_CREAT as u64 != 0 {
        request.reserved = reserve(shift, bytes.div_ceil(1 << shift))?;
    }
    Ok(request)
}

fn advise(&[at, bytes, advice, ..]: &[u64; 6]) -> Result<Request, c_int> {
    let known = known();
    let Some((_, end, area)) = known.areas.find(at) else {
        return Ok(Request::default());
    };
    match advice as c_int {
        libc::MADV_DONTNEED | libc::MADV_REMOVE => {
            if !aligned(at, area.shift) {
                return Err(libc::EINVAL);
            }
            let to = at.saturating_add(bytes);
            let whole = to & !((1 << area.shift) - 1);
            Ok(Request {
                bytes: (to < end).then_some(whole.saturating_sub(at)),
                ..Request::default()
            })
        }
        // `hugepage_madvise` and others refuse mappings of pools (VM_HUGETLB).
        libc::MADV_FREE
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_COLLAPSE
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT => Err(libc::EINVAL),
        _ => Ok(Request::default()),
    }
}

fn remap(&[at, old, new, _, to, _]: &[u64; 6]) -> Result<Request, c_int> {
    let found = known().areas.find(at);
    let Some((_, _, area)) = found else {
        return Ok(Request::default());
    };
    let page = 1 << area.shift;
    let lengths = [old, new].map(|bytes| bytes.next_multiple_of(page));
    if !aligned(at, area.shift) || !aligned(to, area.shift) || lengths[1] > lengths[0] {
        return Err(libc::EINVAL);
    }
    Ok(Request {
        shift: area.shift,
        ..Request::default()
    })
}

impl Known {
    /// Forgets the mappings in a range, and gives their reservations back.
    fn forget(&mut self, from: u64, to: u64) {
        for (start, end, area) in self.areas.remove(from, to) {
            if area.counted {
                release(area.shift, (end - start) >> area.shift);
            }
            if area.file != 0
                && !self.areas.values().any(|other| other.file == area.file)
                && let Some(file) = self.files.get_mut(&area.file)
            {
                release(file.shift, std::mem::take(&mut file.reserved).len() as u64);
            }
        }
    }
}

/// The system call has ended. Returns the result that Linux gives, and changes the arguments for the engine.
pub fn leave(number: i64, result: i64, a: &mut [u64; 6]) -> i64 {
    let request = REQUEST.take();
    if request.error != 0 {
        return -i64::from(request.error);
    }
    let failed = (-4095..0).contains(&result);
    if failed {
        release(request.shift, request.reserved);
        return result;
    }
    let pages = |bytes: u64| bytes.saturating_add(4095) & !4095;
    let at = result as u64;
    match number {
        libc::SYS_mmap => {
            let mut known = known();
            let shift = request.shift;
            let bytes = match shift {
                0 => pages(a[1]),
                shift => a[1].next_multiple_of(1 << shift),
            };
            known.forget(at, at.saturating_add(bytes));
            if shift != 0 {
                let area = Area {
                    shift,
                    counted: request.reserved > 0,
                    file: request.file,
                };
                known.areas.set(at, at.saturating_add(bytes), area);
                let size = SIZE_MASK << SIZE_SHIFT;
                a[3] = a[3] & !size | libc::MAP_HUGETLB as u64 | u64::from(shift) << SIZE_SHIFT;
            }
        }
        libc::SYS_munmap => known().forget(a[0], a[0].saturating_add(pages(a[1]))),
        libc::SYS_mremap if request.shift != 0 => {
            let mut known = known();
            let page = 1 << request.shift;
            let [old, new] = [a[1], a[2]].map(|bytes| bytes.next_multiple_of(page));
            known.forget(a[0] + new, a[0] + old);
            let moved = known.areas.remove(a[0], a[0] + new);
            known.forget(at, at + new);
            for (start, end, area) in moved {
                known.areas.set(start - a[0] + at, end - a[0] + at, area);
            }
            (a[1], a[2]) = (old, new);
        }
        libc::SYS_mremap => known().forget(at, at.saturating_add(pages(a[2]))),
        libc::SYS_memfd_create if request.shift != 0 => {
            let file = files::of_descriptor(result as i32);
            known().files.extend(file.map(|file| {
                let pool = PoolFile {
                    shift: request.shift,
                    reserved: BTreeSet::new(),
                };
                (file.key, pool)
            }));
        }
        libc::SYS_shmget if request.shift != 0 => {
            let pool = PoolFile {
                shift: request.shift,
                reserved: (0..request.reserved).collect(),
            };
            known().segments.entry(at).or_insert(pool);
        }
        libc::SYS_shmctl if a[1] as c_int == libc::IPC_RMID => {
            if let Some(segment) = known().segments.remove(&a[0]) {
                release(segment.shift, segment.reserved.len() as u64);
            }
        }
        libc::SYS_shmat => a[call_arguments::HUGE] = u64::from(request.shift),
        _ => {}
    }
    result
}

/// In a child, which has no reservation of its own.
pub fn forked() {
    let mut known = known();
    for area in known.areas.values_mut() {
        area.counted = false;
    }
    let Known {
        files, segments, ..
    } = &mut *known;
    for pool in files.values_mut().chain(segments.values_mut()) {
        pool.reserved.clear();
    }
}

/// The process ends, or executes another program. Segments stay.
pub fn end() {
    let mut known = known();
    known.forget(0, u64::MAX);
    for file in known.files.values_mut() {
        release(file.shift, std::mem::take(&mut file.reserved).len() as u64);
    }
}
