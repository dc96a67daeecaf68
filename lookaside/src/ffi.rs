//! The C interface: what `lookaside.h` declares. Hot paths are in the header, over the same memory.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::rows::Error;
use crate::switch::{Statistics, numbered_slot_of_thread};
use crate::table::{Found, Table};

const OK: c_int = 0;
const NULL: c_int = 1;
const MISALIGNED: c_int = 2;
const NO_ROWS: c_int = 3;
const NO_MEMORY: c_int = 4;

/// Compares the key of the record at `at` with the one that is looked up: not 0 if they are equal.
type Verify = unsafe extern "C" fn(context: *mut c_void, at: *mut c_void) -> c_int;

fn code(error: Error) -> c_int {
    match error {
        Error::NoRows => NO_ROWS,
        Error::NoMemory(_) => NO_MEMORY,
    }
}

/// The status of a pointer: null or misaligned ones are refused.
fn checked<T>(pointer: *mut T) -> Result<NonNull<T>, c_int> {
    let pointer = NonNull::new(pointer).ok_or(NULL)?;
    if pointer.is_aligned() {
        Ok(pointer)
    } else {
        Err(MISALIGNED)
    }
}

/// Runs `operation` on a table that other threads may use meanwhile.
///
/// # Safety
///
/// `table` is null, misaligned, or a live table of `lookaside_new`.
unsafe fn with(table: *mut Table, operation: impl FnOnce(&Table)) -> c_int {
    match checked(table) {
        Ok(table) => {
            // SAFETY: the caller's promise.
            operation(unsafe { table.as_ref() });
            OK
        }
        Err(status) => status,
    }
}

/// Makes a table and writes its address to `out`.
///
/// # Safety
///
/// `out` is null, misaligned, or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_new(rows: usize, out: *mut *mut Table) -> c_int {
    let out = match checked(out) {
        Ok(out) => out,
        Err(status) => return status,
    };
    let (table, status) = match Table::new(rows) {
        Ok(table) => (Box::into_raw(Box::new(table)), OK),
        Err(error) => (std::ptr::null_mut(), code(error)),
    };
    // SAFETY: the caller's promise.
    unsafe { out.write(table) };
    status
}

/// # Safety
///
/// `table` is null, misaligned, or a live table of `lookaside_new` that nothing uses any longer.
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_free(table: *mut Table) -> c_int {
    match checked(table) {
        Ok(table) => {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(table.as_ptr()) });
            OK
        }
        Err(NULL) => OK,
        Err(status) => status,
    }
}

/// # Safety
///
/// `table` is null, misaligned, or a live table of `lookaside_new` that no other thread uses meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_resize(table: *mut Table, rows: usize) -> c_int {
    match checked(table) {
        // SAFETY: the caller's promise.
        Ok(mut table) => unsafe { table.as_mut() }
            .resize(rows)
            .map_or_else(code, |()| OK),
        Err(status) => status,
    }
}

/// # Safety
///
/// As for [`with`].
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_flush(table: *mut Table) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(table, Table::flush) }
}

/// # Safety
///
/// As for [`with`].
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_set_automatic(table: *mut Table, automatic: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(table, |table| table.set_automatic(automatic != 0)) }
}

/// # Safety
///
/// As for [`with`]; `out` is null, misaligned, or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_statistics(table: *mut Table, out: *mut Statistics) -> c_int {
    match checked(out) {
        // SAFETY: the caller's promise.
        Ok(out) => unsafe { with(table, |table| out.write(table.statistics())) },
        Err(status) => status,
    }
}

/// The number of this thread, which is that of its slot: 1 and up.
#[unsafe(no_mangle)]
extern "C" fn lookaside_number_thread() -> u32 {
    numbered_slot_of_thread() as u32
}

/// Ends a part of the switch's sequence. Not 0 if the lookups that begin now use the table.
///
/// # Safety
///
/// As for [`with`].
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_step(table: *mut Table, slot: u32, lookups: u32) -> c_int {
    let mut on = false;
    // SAFETY: the caller's promise.
    unsafe { with(table, |table| on = table.step(slot as usize, lookups)) };
    c_int::from(on)
}

/// [`Table::find`] with the best instructions of this processor. Null for a miss or a bad table.
///
/// # Safety
///
/// As for [`with`]; `verify` may be called with `context` and every inserted address of the set.
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_find_call(
    table: *mut Table,
    hash: u64,
    verify: Option<Verify>,
    context: *mut c_void,
) -> *mut c_void {
    let mut found: Found = None;
    let Some(verify) = verify else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's promise.
    unsafe {
        with(table, |table| {
            found = table.find(hash, |at| verify(context, at.as_ptr().cast()) != 0)
        })
    };
    found.map_or(std::ptr::null_mut(), |at| at.as_ptr().cast())
}

/// [`Table::insert`]. 0 if the address is null or above 48 bits, or for a bad table.
///
/// # Safety
///
/// As for [`with`].
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_insert_call(table: *mut Table, hash: u64, at: *mut c_void) -> c_int {
    let mut inserted = false;
    if let Some(at) = NonNull::new(at.cast()) {
        // SAFETY: the caller's promise.
        unsafe { with(table, |table| inserted = table.insert(hash, at)) };
    }
    c_int::from(inserted)
}

/// # Safety
///
/// As for [`with`].
#[unsafe(no_mangle)]
unsafe extern "C" fn lookaside_invalidate_call(table: *mut Table, hash: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(table, |table| table.invalidate(hash)) }
}
