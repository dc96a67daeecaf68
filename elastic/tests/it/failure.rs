//! Allocations that fail.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use elastic::raw::Geometry;
use elastic::{HashMap, TryReserveError};

use crate::Quality;

thread_local! {
    /// Allocations of this thread until all fail.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Entries that need several chunks, or several sizes of the first one.
const MANY: usize = if cfg!(miri) { 2000 } else { 1_000_000 };

struct Limited;

fn allowed() -> bool {
    LEFT.with(|left| {
        if left.get() != usize::MAX {
            left.set(left.get().saturating_sub(1));
        }
        left.get() > 0
    })
}

// SAFETY: The system's allocator does all the work, or none.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if allowed() {
            // SAFETY: As of the caller.
            unsafe { System.alloc(layout) }
        } else {
            std::ptr::null_mut()
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: As of the caller.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if allowed() {
            // SAFETY: As of the caller.
            unsafe { System.realloc(at, layout, size) }
        } else {
            std::ptr::null_mut()
        }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;

/// Runs `body` while only this many allocations succeed.
fn limited<T>(allocations: usize, body: impl FnOnce() -> T) -> T {
    LEFT.set(allocations + 1);
    let result = body();
    LEFT.set(usize::MAX);
    result
}

#[test]
fn an_insert_that_fails_at_any_allocation_leaves_the_map_whole() {
    for quality in [Quality::Good, Quality::Four, Quality::Constant] {
        for allocations in 0..if cfg!(miri) { 6 } else { 24 } {
            let mut map = HashMap::with_hasher(quality);
            let mut inserted = 0;
            let error = limited(allocations, || {
                loop {
                    match map.try_insert(inserted, inserted) {
                        Ok(former) => assert!(former.is_none()),
                        Err(error) => return error,
                    }
                    inserted += 1;
                }
            });
            assert_eq!((error.key, error.value), (inserted, inserted));
            assert!(matches!(error.error, TryReserveError::AllocError { .. }));
            assert_eq!(map.len(), inserted);
            for key in 0..inserted {
                assert_eq!(map.get(&key), Some(&key));
            }
            // With memory, the map goes on.
            let more = if cfg!(miri) { 30 } else { 500 };
            for key in inserted..inserted + more {
                assert_eq!(map.insert(key, key), None);
            }
            assert!((0..inserted + more).all(|key| map.get(&key) == Some(&key)));
        }
    }
}

#[test]
fn entries_near_the_size_of_the_address_space_have_no_geometry() {
    for power in 40..usize::BITS - 1 {
        for (size, align) in [(1 << power, 1), (1 << power, 4096), (0, 1 << power)] {
            let geometry = Layout::from_size_align(size, align)
                .ok()
                .and_then(Geometry::new);
            assert_eq!(
                geometry.is_some(),
                power < usize::BITS - 8,
                "{size} {align}"
            );
        }
    }
}

#[test]
fn a_reservation_that_fails_changes_nothing() {
    let mut map = HashMap::with_hasher(Quality::Good);
    let present = if cfg!(miri) { 200 } else { 1000_u64 };
    for key in 0..present {
        map.insert(key, key);
    }
    let (capacity, bytes) = (map.capacity(), map.allocated_bytes());
    let mut allocations = 0;
    while limited(allocations, || map.try_reserve(MANY)).is_err() {
        assert_eq!(map.capacity(), capacity);
        // The directory and the first chunk may keep their room.
        assert!(map.allocated_bytes() < 2 * bytes + (4 << 20));
        assert!((0..present).all(|key| map.get(&key) == Some(&key)));
        allocations += 1;
    }
    // At least the trial and the first chunk of each way are allocated.
    assert!(allocations >= 3);
    assert!(map.capacity() >= MANY + present as usize);
}

#[test]
fn removals_need_no_memory() {
    for quality in [Quality::Good, Quality::Four, Quality::Constant] {
        let mut map = HashMap::with_hasher(quality);
        let (count, rest) = if cfg!(miri) { (60, 50) } else { (1000, 900) };
        for key in 0..count {
            map.insert(key, key);
        }
        limited(0, || {
            for key in 0..rest {
                assert_eq!(map.remove(&key), Some(key));
            }
            map.retain(|key, _| key % 2 == 0);
            map.shrink_to_fit();
        });
        assert!((rest..count).all(|key| map.contains_key(&key) == (key % 2 == 0)));
    }
}
