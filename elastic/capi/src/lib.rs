//! The table of `elastic` for C and C++: entries of one size, as bytes.
//!
//! An entry begins with its key. The caller gives a hash and a comparison of keys. Entries are moved as bytes, so
//! they must not hold addresses of themselves. `elastic.hpp` is a typed map on top, and declares these functions.
//!
//! A null map has no entries: functions return null, zero or false for it.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr;

use elastic::raw::{Cursor, Geometry, Table};

/// Hash of a key.
pub type Hash = unsafe extern "C" fn(context: *const c_void, key: *const c_void) -> u64;
/// True if two keys are equal.
pub type Equal =
    unsafe extern "C" fn(context: *const c_void, left: *const c_void, right: *const c_void) -> bool;

/// A map of entries of one size.
pub struct Map {
    table: Table<Geometry>,
    functions: Functions,
}

/// The functions of the caller, and their first argument.
#[derive(Clone, Copy)]
struct Functions {
    hash: Hash,
    equal: Equal,
    context: *const c_void,
}

impl Functions {
    fn hash(self, key: *const u8) -> u64 {
        // SAFETY: `elastic_new` demands functions for all keys of the map.
        unsafe { (self.hash)(self.context, key.cast()) }
    }

    fn equal(self, left: *const u8, right: *const u8) -> bool {
        // SAFETY: `elastic_new` demands functions for all keys of the map.
        unsafe { (self.equal)(self.context, left.cast(), right.cast()) }
    }
}

// The cursor of C has four words.
const _: () = assert!(
    size_of::<Cursor>() <= 4 * size_of::<usize>() && align_of::<Cursor>() <= align_of::<usize>()
);

/// Makes an empty map of entries of `size` bytes at multiples of `align` bytes.
///
/// Returns null without memory, without functions, if `align` is no power of two, or if no bucket of such entries
/// fits into the address space.
///
/// # Safety
///
/// Until the map is freed, the functions accept `context` and each key of the map, and do not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_new(
    size: usize,
    align: usize,
    hash: Option<Hash>,
    equal: Option<Equal>,
    context: *const c_void,
) -> *mut Map {
    let (Some(hash), Some(equal)) = (hash, equal) else {
        return ptr::null_mut();
    };
    let layout = Layout::from_size_align(size, align).ok();
    let Some(geometry) = layout
        .filter(|layout| layout.pad_to_align() == *layout)
        .and_then(Geometry::new)
    else {
        return ptr::null_mut();
    };
    // SAFETY: The layout of a map has bytes.
    let at = unsafe { std::alloc::alloc(Layout::new::<Map>()) }.cast::<Map>();
    if !at.is_null() {
        let functions = Functions {
            hash,
            equal,
            context,
        };
        // SAFETY: The memory was allocated for a map.
        unsafe {
            at.write(Map {
                table: Table::new(geometry),
                functions,
            })
        };
    }
    at
}

/// Frees a map.
///
/// # Safety
///
/// The map is null, or comes from `elastic_new` and is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_free(map: *mut Map) {
    if !map.is_null() {
        // SAFETY: The map was allocated with the layout of a box.
        drop(unsafe { Box::from_raw(map) });
    }
}

/// Address of the entry of a key, until the next change of the map; null if there is none.
///
/// # Safety
///
/// The map is null or valid, and the key is one that its functions accept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_find(map: *const Map, key: *const c_void) -> *mut c_void {
    // SAFETY: The caller guarantees it.
    let Some(map) = (unsafe { map.as_ref() }) else {
        return ptr::null_mut();
    };
    if map.table.is_empty() {
        return ptr::null_mut();
    }
    let (functions, key) = (map.functions, key.cast::<u8>());
    let found = map
        .table
        .find(functions.hash(key), |entry| functions.equal(entry, key));
    found.map_or(ptr::null_mut(), |slot| slot.entry().cast())
}

/// Address of the entry of a key, which is made if there is none. Null without memory: the map is unchanged then.
///
/// If `inserted` becomes true, the caller writes all bytes of the entry, the key first, before the next call.
///
/// # Safety
///
/// As [`elastic_find`]. `inserted` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_insert(
    map: *mut Map,
    key: *const c_void,
    inserted: *mut bool,
) -> *mut c_void {
    // SAFETY: The caller guarantees it.
    let Some(map) = (unsafe { map.as_mut() }) else {
        return ptr::null_mut();
    };
    let (functions, key) = (map.functions, key.cast::<u8>());
    let found = map.table.find_or_insert(
        functions.hash(key),
        |entry| functions.equal(entry, key),
        |entry| functions.hash(entry),
    );
    // SAFETY: The caller guarantees it.
    unsafe { inserted.write(matches!(found, Ok((_, true)))) };
    found.map_or(ptr::null_mut(), |(slot, _)| slot.entry().cast())
}

/// Removes the entry of a key. Returns false if there is none.
///
/// # Safety
///
/// As [`elastic_find`]. The key is not that of an entry of the map itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_erase(map: *mut Map, key: *const c_void) -> bool {
    // SAFETY: The caller guarantees it.
    let Some(map) = (unsafe { map.as_mut() }) else {
        return false;
    };
    if map.table.is_empty() {
        return false;
    }
    let (functions, key) = (map.functions, key.cast::<u8>());
    let Some(slot) = map
        .table
        .find(functions.hash(key), |entry| functions.equal(entry, key))
    else {
        return false;
    };
    // SAFETY: The slot was just found.
    unsafe { map.table.erase(slot) };
    map.table.shrink(|entry| functions.hash(entry));
    true
}

/// Makes room for more entries. Returns false without memory: the map is unchanged then.
///
/// # Safety
///
/// The map is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_reserve(map: *mut Map, additional: usize) -> bool {
    // SAFETY: The caller guarantees it.
    let Some(map) = (unsafe { map.as_mut() }) else {
        return false;
    };
    let functions = map.functions;
    map.table
        .reserve(additional, |entry| functions.hash(entry))
        .is_ok()
}

/// Frees the memory that the entries do not need.
///
/// # Safety
///
/// The map is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_shrink_to_fit(map: *mut Map) {
    // SAFETY: The caller guarantees it.
    if let Some(map) = unsafe { map.as_mut() } {
        let functions = map.functions;
        map.table.shrink_to_fit(|entry| functions.hash(entry));
    }
}

/// Removes all entries and frees their memory.
///
/// # Safety
///
/// The map is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_clear(map: *mut Map) {
    // SAFETY: The caller guarantees it.
    if let Some(map) = unsafe { map.as_mut() } {
        map.table.clear();
    }
}

/// Number of entries.
///
/// # Safety
///
/// The map is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_len(map: *const Map) -> usize {
    // SAFETY: The caller guarantees it.
    unsafe { map.as_ref() }.map_or(0, |map| map.table.len())
}

/// Bytes of memory that the map has allocated for entries.
///
/// # Safety
///
/// The map is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_allocated_bytes(map: *const Map) -> usize {
    // SAFETY: The caller guarantees it.
    unsafe { map.as_ref() }.map_or(0, |map| map.table.allocated_bytes())
}

/// Sets a cursor before all entries.
///
/// # Safety
///
/// The cursor is valid for writes of four words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_start(cursor: *mut Cursor) {
    // SAFETY: The caller guarantees it.
    unsafe { cursor.write(Cursor::new()) };
}

/// Address of the entry after a cursor, which moves behind it; null at the end.
///
/// # Safety
///
/// The map is null or valid. `elastic_start` has set the cursor, and the map has not changed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elastic_next(map: *const Map, cursor: *mut Cursor) -> *mut c_void {
    // SAFETY: The caller guarantees it.
    let slot = unsafe { map.as_ref().and_then(|map| map.table.next(&mut *cursor)) };
    slot.map_or(ptr::null_mut(), |slot| slot.entry().cast())
}
