//! Addresses of large anonymous mappings, aligned to 2 MB as Linux aligns them, and calls on pools of huge pages, which
//! QEMU would give to the host.
//!
//! QEMU up to 8 chooses the address of a guest's mapping itself: it asks the host's kernel for inaccessible pages at a
//! hint, and maps the guest's memory over them. The host's kernel honours the hint, so its own rule for huge pages never
//! acts. Later versions leave the choice to the host's kernel, which may be older than the rule. During calls to which the rule applies, the plugin therefore answers QEMU's question with an aligned
//! range. It does so in QEMU's table of imported functions, because no function of the plugin interface reaches there.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

use crate::{guest, hugetlb};

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

thread_local! {
    /// Bytes to which Linux aligns the mapping of the thread's call; 0: to none.
    static ALIGNS: Cell<u64> = const { Cell::new(0) };
}

/// Sets the alignment of the mapping that the calling thread's system call makes.
///
/// Linux aligns an anonymous private mapping without a hint, if its length is a multiple of 2 MB. It does since 6.7
/// (commit efa7df3e3bb5), then also for other lengths from 2 MB; since 6.12 (commit d4148aeab412) for multiples only.
/// The later rule is applied, because the kernels in between are not maintained any more. A mapping that `mremap` moves
/// is placed by the same function of the kernel.
pub fn enter(number: i64, a: &[u64; 6]) {
    let is_whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(HUGE);
    let has = |value: u64, flag: c_int| value & flag as u64 != 0;
    let aligns = match number {
        libc::SYS_mmap => {
            let anonymous = has(a[3], libc::MAP_ANONYMOUS) && has(a[3], libc::MAP_PRIVATE);
            let huge = has(a[3], libc::MAP_HUGETLB);
            // The kernel rounds lengths up to whole pages first.
            a[0] == 0 && anonymous && !huge && is_whole(a[1].wrapping_add(4095) & !4095)
        }
        libc::SYS_mremap => !has(a[3], libc::MREMAP_FIXED) && is_whole(a[2]),
        _ => false,
    };
    ALIGNS.set(match hugetlb::request().shift {
        0 if aligns => HUGE,
        0 => 0,
        shift => 1 << shift,
    });
}

/// Ends the effect of [`enter`].
pub fn leave() {
    ALIGNS.set(0);
}

/// QEMU's `mmap`.
unsafe extern "C" fn mmap(
    hint: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let pool = hugetlb::request();
    if let Some(result) = refused(pool.error) {
        return result as *mut c_void;
    }
    let (mut bytes, mut flags) = (bytes, flags);
    if pool.shift != 0 {
        bytes = bytes.next_multiple_of(1 << pool.shift);
        flags &= !libc::MAP_HUGETLB;
    }
    // SAFETY: the caller's arguments, or a range that the kernel chooses.
    let plain = |bytes| unsafe { libc::mmap(hint, bytes, protection, flags, file, offset) };
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    let align = ALIGNS.get();
    if align == 0 || fixed || flags & libc::MAP_ANONYMOUS == 0 && pool.shift == 0 {
        return plain(bytes);
    }
    if flags & libc::MAP_ANONYMOUS == 0 {
        let inaccessible = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: a range that the kernel chooses; the file is mapped over it.
        unsafe {
            let room = |bytes| libc::mmap(hint, bytes, libc::PROT_NONE, inaccessible, -1, 0);
            return match place(bytes, align, room) {
                libc::MAP_FAILED => libc::MAP_FAILED,
                at => libc::mmap(at, bytes, protection, flags | libc::MAP_FIXED, file, offset),
            };
        }
    }
    place(bytes, align, plain)
}

/// Maps `bytes` with `plain` at a multiple of `align`.
fn place(bytes: usize, align: u64, plain: impl Fn(usize) -> *mut c_void) -> *mut c_void {
    let wide = plain(bytes + align as usize);
    if wide == libc::MAP_FAILED {
        return plain(bytes);
    }
    let base = guest::BASE.load(Relaxed);
    let from = wide as u64;
    let aligned = from.wrapping_sub(base).next_multiple_of(align) + base;
    let head = (aligned - from) as usize;
    let at = wide.wrapping_byte_add(head);
    // SAFETY: both parts lie in the fresh mapping, around the range that is returned.
    unsafe {
        if head > 0 {
            libc::munmap(wide, head);
        }
        libc::munmap(at.wrapping_byte_add(bytes), align as usize - head);
    }
    at
}

/// -1 with the kernel's `error`, if there is one.
fn refused(error: c_int) -> Option<isize> {
    if error == 0 {
        return None;
    }
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = error };
    Some(-1)
}

/// QEMU's `munmap`.
unsafe extern "C" fn munmap(at: *mut c_void, bytes: usize) -> c_int {
    match refused(hugetlb::request().error) {
        Some(result) => result as c_int,
        // SAFETY: the caller's arguments.
        None => unsafe { libc::munmap(at, bytes) },
    }
}

/// QEMU's `mprotect`.
unsafe extern "C" fn mprotect(at: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    match refused(hugetlb::request().error) {
        Some(result) => result as c_int,
        // SAFETY: the caller's arguments.
        None => unsafe { libc::mprotect(at, bytes, protection) },
    }
}

/// QEMU's `mremap`.
unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let pool = hugetlb::request();
    if let Some(result) = refused(pool.error) {
        return result as *mut c_void;
    }
    let whole = |bytes: usize| match pool.shift {
        0 => bytes,
        shift => bytes.next_multiple_of(1 << shift),
    };
    // SAFETY: the caller's arguments, or whole pages of the mapping.
    unsafe { libc::mremap(at, whole(old), whole(new), flags, to) }
}

/// QEMU's `madvise`.
unsafe extern "C" fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    let pool = hugetlb::request();
    match refused(pool.error) {
        Some(result) => result as c_int,
        // SAFETY: the caller's arguments, or a part of the range.
        None => unsafe { libc::madvise(at, pool.bytes.map_or(bytes, |b| b as usize), advice) },
    }
}

/// QEMU's `memfd_create`.
unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    let pool = hugetlb::request();
    let size = 0x3f << 26;
    let flags = match pool.shift {
        0 => flags,
        _ => flags & !(libc::MFD_HUGETLB | size),
    };
    match refused(pool.error) {
        Some(result) => result as c_int,
        // SAFETY: the caller's arguments.
        None => unsafe { libc::memfd_create(name, flags) },
    }
}

/// QEMU's `shmget`.
unsafe extern "C" fn shmget(key: libc::key_t, bytes: usize, flags: c_int) -> c_int {
    let pool = hugetlb::request();
    if let Some(result) = refused(pool.error) {
        return result as c_int;
    }
    let (bytes, flags) = match pool.shift {
        0 => (bytes, flags),
        shift => (
            bytes.next_multiple_of(1 << shift),
            flags & !(libc::SHM_HUGETLB | 0x3f << 26),
        ),
    };
    // SAFETY: the caller's arguments.
    unsafe { libc::shmget(key, bytes, flags) }
}

/// The functions that replace imports of QEMU, by name.
fn replacements() -> [(&'static CStr, usize); 8] {
    [
        (c"mmap", mmap as *const () as usize),
        (c"mmap64", mmap as *const () as usize),
        (c"munmap", munmap as *const () as usize),
        (c"mprotect", mprotect as *const () as usize),
        (c"mremap", mremap as *const () as usize),
        (c"madvise", madvise as *const () as usize),
        (c"memfd_create", memfd_create as *const () as usize),
        (c"shmget", shmget as *const () as usize),
    ]
}

/// Entry of a relocation table (`Elf64_Rela`).
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A relocation that holds the address of an imported function.
const GLOB_DAT: u64 = 6;
const JUMP_SLOT: u64 = 7;

/// Replaces imports of QEMU. False: QEMU does not import `mmap`.
pub fn install() -> bool {
    let mut found = false;
    for (name, replacement) in replacements() {
        // SAFETY: functions of the same types.
        let done = unsafe { replace_import(name, replacement) };
        found |= done && [c"mmap", c"mmap64"].contains(&name);
    }
    found
}

/// Function that QEMU imports, to be replaced.
struct Import<'a> {
    name: &'a CStr,
    replacement: usize,
    done: bool,
}

/// Replaces QEMU's import of the function `name`. False: QEMU imports none.
///
/// # Safety
/// `replacement` is the address of a function of the same type.
pub unsafe fn replace_import(name: &CStr, replacement: usize) -> bool {
    let mut import = Import {
        name,
        replacement,
        done: false,
    };
    // SAFETY: `first` has the type that the function requires, and `import` lives longer.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut import).cast()) };
    import.done
}

/// Acts on the first object that is listed, the program itself.
unsafe extern "C" fn first(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    import: *mut c_void,
) -> c_int {
    // SAFETY: by the contract of dl_iterate_phdr, and of `replace_import`.
    unsafe {
        let import = &mut *import.cast::<Import<'_>>();
        import.done = replace(&*info, import).is_some();
    }
    1
}

/// # Safety
/// `program` describes the running program, and the import's replacement has the same type.
unsafe fn replace(program: &libc::dl_phdr_info, import: &Import<'_>) -> Option<()> {
    let base = program.dlpi_addr;
    // SAFETY: the program's headers, which stay mapped.
    let headers =
        unsafe { std::slice::from_raw_parts(program.dlpi_phdr, program.dlpi_phnum.into()) };
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
    let mut entry = (base + dynamic.p_vaddr) as *const [u64; 2];
    let mut tables = [0u64; 64];
    loop {
        // SAFETY: the dynamic section ends with an entry of tag 0.
        let [tag, value] = unsafe { *entry };
        if tag == 0 {
            break;
        }
        if let Some(slot) = tables.get_mut(tag as usize) {
            *slot = value;
        }
        entry = entry.wrapping_add(1);
    }
    // Tags of the System V ABI. glibc has replaced offsets in the file by addresses.
    let [strings, symbols, general, general_bytes] = [5, 6, 7, 8].map(|tag: usize| tables[tag]);
    let [calls, calls_bytes] = [23, 2].map(|tag: usize| tables[tag]);
    // Slots are write-protected if the dynamic linker has resolved all of them at the start.
    let protected = |slot: u64| {
        let mut areas = headers.iter().filter(|h| h.p_type == libc::PT_GNU_RELRO);
        areas.any(|h| (h.p_vaddr..h.p_vaddr + h.p_memsz).contains(&slot))
    };
    let mut found = None;
    for (table, bytes) in [(general, general_bytes), (calls, calls_bytes)] {
        if table == 0 {
            continue;
        }
        let count = bytes as usize / size_of::<Relocation>();
        // SAFETY: the table lies where the dynamic section says, and is as long.
        let all = unsafe { std::slice::from_raw_parts(table as *const Relocation, count) };
        for one in all
            .iter()
            .filter(|r| matches!(r.info & 0xffff_ffff, GLOB_DAT | JUMP_SLOT))
        {
            // SAFETY: the relocation's symbol, and its name in the table of strings.
            let name = unsafe {
                let symbol = (symbols as *const libc::Elf64_Sym).add((one.info >> 32) as usize);
                CStr::from_ptr((strings + u64::from((*symbol).st_name)) as *const _)
            };
            if import.name == name {
                let slot = base + one.offset;
                // SAFETY: the slot of this function in the program's own table.
                let set = unsafe { set(slot, import.replacement, protected(one.offset)) };
                found = found.or(set);
            }
        }
    }
    found
}

/// Stores the address of a function in `slot`, which the dynamic linker may have write-`protected`.
///
/// # Safety
/// `slot` holds the address of a function of the same type.
unsafe fn set(slot: u64, function: usize, protected: bool) -> Option<()> {
    let page = (slot & !4095) as *mut c_void;
    // SAFETY: a page of the program's data. It is as before afterwards, except for the slot; another thread reads the
    // old or the new address, which both work.
    unsafe {
        if libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return None;
        }
        (slot as *mut usize).write_volatile(function);
        if protected {
            libc::mprotect(page, 4096, libc::PROT_READ);
        }
    }
    Some(())
}
