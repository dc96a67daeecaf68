//! All interleavings of few operations: `RUSTFLAGS="--cfg loom" cargo test -p lookaside --test loom --release`.
#![cfg(loom)]

use std::ptr::NonNull;

use lookaside::Table;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, RwLock};
use loom::thread;

fn address(number: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut(number)).expect("not null")
}

/// Explores all interleavings with at most three preemptions.
fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn a_hit_is_an_address_that_was_inserted_with_the_tag() {
    explore(|| {
        let table = Arc::new(Table::new(1).expect("memory"));
        let writers = [(1_u64, 0x10), (2, 0x20)].map(|(tag, at)| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.insert(tag << 48, address(at)))
        });
        for (tag, at) in [(1_u64, 0x10), (2, 0x20)] {
            let found = table.find(tag << 48, |_| true);
            assert!(found.is_none_or(|found| found == address(at)));
        }
        for writer in writers {
            assert!(writer.join().expect("no panic"));
        }
    });
}

#[test]
fn an_invalidation_removes_what_two_threads_inserted_before() {
    explore(|| {
        let table = Arc::new(Table::new(1).expect("memory"));
        let other = Arc::clone(&table);
        let writer = thread::spawn(move || other.insert(1 << 48, address(0x10)));
        table.insert(1 << 48, address(0x10));
        assert!(writer.join().expect("no panic"));
        table.invalidate(1 << 48);
        assert_eq!(table.find(1 << 48, |_| true), None);
    });
}

/// Lookups under a shared lock insert what they find. A removal under the exclusive lock leaves no row.
#[test]
fn removal_under_a_lock_leaves_no_row() {
    explore(|| {
        let table = Arc::new(Table::new(1).expect("memory"));
        let index = Arc::new(RwLock::new(true));
        let (other, others) = (Arc::clone(&table), Arc::clone(&index));
        let reader = thread::spawn(move || {
            let present = others.read().expect("no panic");
            let found = other.find(1 << 48, |_| true);
            assert!(found.is_none() || *present);
            if found.is_none() && *present {
                other.insert(1 << 48, address(0x10));
            }
        });
        {
            let mut present = index.write().expect("no panic");
            table.invalidate(1 << 48);
            *present = false;
        }
        reader.join().expect("no panic");
        assert_eq!(table.find(1 << 48, |_| true), None);
    });
}

/// A reader that found the record before it was unlinked may insert it after the first invalidation. The
/// invalidation after the grace period, here a join, removes the row.
#[test]
fn the_second_invalidation_of_an_epoch_leaves_no_row() {
    explore(|| {
        let table = Arc::new(Table::new(1).expect("memory"));
        let linked = Arc::new(AtomicBool::new(true));
        let (other, others) = (Arc::clone(&table), Arc::clone(&linked));
        let reader = thread::spawn(move || {
            if others.load(Ordering::Acquire) {
                other.insert(1 << 48, address(0x10));
            }
        });
        linked.store(false, Ordering::Release);
        table.invalidate(1 << 48);
        reader.join().expect("no panic");
        table.invalidate(1 << 48);
        assert_eq!(table.find(1 << 48, |_| true), None);
    });
}
