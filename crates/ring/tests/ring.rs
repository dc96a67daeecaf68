//! Tests of the ring between two threads of one process, which stand for two
//! processes.

use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::{Consumer, Control, Geometry, Producer, RingError, Segment, record};
use proptest::prelude::*;

/// Zeroed, page-aligned memory for a segment.
struct Memory(Vec<Page>);

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl Memory {
    fn new(geometry: Geometry) -> Memory {
        let bytes = geometry.bytes().unwrap();
        Memory(vec![Page([0; 4096]); bytes.div_ceil(4096)])
    }
    fn base(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    fn bytes(&self) -> usize {
        self.0.len() * 4096
    }
}

const SMALL: Geometry = Geometry {
    slots: 2,
    records: 16,
    code_bytes: 4096,
};

fn never(_: &Control) -> bool {
    false
}

struct Shared(Producer);
// SAFETY: each test moves the producer to one thread only.
unsafe impl Send for Shared {}

#[test]
fn all_records_arrive_in_order_whatever_the_speed_of_either_side() {
    let geometry = Geometry {
        records: 1 << 12,
        ..SMALL
    };
    let mut memory = Memory::new(geometry);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), geometry) };
    let control = Control::default();
    control.engine.store(std::process::id(), Relaxed);
    // SAFETY: segment and control outlive the thread.
    let (slot, producer) = unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    let producer = Shared(producer);
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    const N: u64 = 300_000;
    std::thread::scope(|s| {
        s.spawn(move || {
            let producer = producer;
            for i in 0..N {
                // SAFETY: this is the only writer.
                unsafe { producer.0.push(i) };
                if i % 70_001 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            producer.0.close();
        });
        let mut all = Vec::new();
        while all.len() < N as usize {
            let most = 1 + all.len() % 5000;
            if consumer.take(&segment, &mut all, most).unwrap() == 0 {
                std::thread::yield_now();
            }
        }
        assert!(all.iter().copied().eq(0..N));
    });
    assert!(consumer.closed(&segment));
    consumer.free(&segment);
    // The next thread continues in the same slot.
    // SAFETY: as above.
    let (again, producer) = unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    assert_eq!(again, slot);
    // SAFETY: this is the only writer.
    unsafe { producer.push(77) };
    producer.publish();
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    let mut all = Vec::new();
    assert_eq!(consumer.take(&segment, &mut all, 10), Ok(1));
    assert_eq!(all, [77]);
}

#[test]
fn a_thread_meets_the_changes_of_others_at_its_next_block() {
    let mut memory = Memory::new(SMALL);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), SMALL) };
    let control = Control::default();
    // SAFETY: segment and control outlive the producer, which this thread uses.
    let (slot, p) = unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    let block = record::word(record::BLOCK, 5);
    // SAFETY: this is the only writer.
    unsafe {
        p.push_step(block);
        segment.header().tickets.store(3, Relaxed);
        p.poke();
        p.push(11);
        p.push_step(block);
        p.push_step(block);
    }
    p.publish();
    let mut all = Vec::new();
    consumer.take(&segment, &mut all, 99).unwrap();
    assert_eq!(
        all,
        [block, 11, record::word(record::MEET, 3), block, block]
    );
}

#[test]
fn a_new_thread_has_met_what_its_maker_has() {
    let mut memory = Memory::new(SMALL);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), SMALL) };
    let control = Control::default();
    // SAFETY: segment and control outlive the producers, which this thread uses.
    let claim = || unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    let (_, maker) = claim();
    // Changed by a third thread; the maker is in a system call and has not seen
    // it.
    segment.header().tickets.store(3, Relaxed);
    let (slot, made) = claim();
    made.starts_from(&maker);
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    let access = record::memory(0, false);
    // SAFETY: the only writer.
    unsafe { made.push_step(access) };
    made.publish();
    let mut all = Vec::new();
    consumer.take(&segment, &mut all, 99).unwrap();
    assert_eq!(all, [record::word(record::MEET, 3), access]);
}

#[test]
fn unpublished_records_of_a_killed_writer_are_found() {
    let mut memory = Memory::new(SMALL);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), SMALL) };
    let control = Control::default();
    // SAFETY: segment and control outlive the producer, which this thread uses.
    let (slot, p) = unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    let mut all = Vec::new();
    for i in 0..21 {
        // SAFETY: this is the only writer.
        unsafe { p.push(i) };
        if i == 12 {
            p.publish();
            consumer.take(&segment, &mut all, 99).unwrap();
        }
    }
    consumer.publish_rest(&segment);
    consumer.take(&segment, &mut all, 99).unwrap();
    assert!(all.iter().copied().eq(0..21), "{all:?}");
}

/// The results that the test's engine knows.
fn known(integer: u64) -> Option<u64> {
    (!integer.is_multiple_of(3)).then(|| integer.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn a_question_stands_behind_what_was_done_before_and_waits_for_its_answer() {
    let mut memory = Memory::new(SMALL);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), SMALL) };
    let control = Control::default();
    // SAFETY: segment and control outlive the thread.
    let (slot, producer) = unsafe { Producer::claim(&segment, &control, never) }.unwrap();
    let producer = Shared(producer);
    let mut consumer = Consumer::new(&segment, slot).unwrap();
    let block = |number| record::word(record::BLOCK, number);
    const N: u64 = 2000;
    std::thread::scope(|s| {
        s.spawn(move || {
            let producer = producer;
            for i in 0..N {
                // SAFETY: this is the only writer.
                let answer = unsafe {
                    producer.0.push_step(block(i));
                    producer.0.query(record::query::INSERT_VA, i, !i)
                };
                assert_eq!(answer, known(i), "query {i}");
            }
        });
        let mut all = Vec::new();
        for i in 0..N {
            while consumer.take(&segment, &mut all, 99).unwrap() == 0 {
                std::thread::yield_now();
            }
            while all.len() < 2 + record::QUERY_WORDS {
                consumer.take(&segment, &mut all, 99).unwrap();
            }
            let query = record::word(record::QUERY, record::query::INSERT_VA);
            assert_eq!(
                all,
                [block(i), query, i, !i],
                "the writer continued before the result"
            );
            all.clear();
            if i % 500 == 0 {
                // Longer than one sleep interval of the writer.
                std::thread::sleep(std::time::Duration::from_millis(120));
                assert_eq!(consumer.available(&segment), Ok(0));
            }
            consumer.deliver_result(&segment, known(i));
        }
    });
}

#[test]
fn a_question_that_nobody_hears_ends_without_an_answer() {
    let mut memory = Memory::new(SMALL);
    // SAFETY: zeroed, aligned, long enough, and outlives everything below.
    let segment = unsafe { Segment::create(memory.base(), SMALL) };
    let control = Control::default();
    let gone = |_: &Control| true;
    // SAFETY: segment and control outlive the producer, which this thread uses.
    let (slot, p) = unsafe { Producer::claim(&segment, &control, gone) }.unwrap();
    let consumer = Consumer::new(&segment, slot).unwrap();
    // A result without a query is not taken for that of the next query.
    consumer.deliver_result(&segment, Some(7));
    // SAFETY: this is the only writer.
    assert_eq!(unsafe { p.query(record::query::LOAD_VA, 1, 0) }, None);
    // The same holds for a result that arrives too late.
    consumer.deliver_result(&segment, Some(8));
    // SAFETY: as above.
    assert_eq!(unsafe { p.query(record::query::LOAD_VA, 2, 0) }, None);
}

proptest! {
    /// For any contents of the shared memory, the reader returns records or an
    /// error.
    #[test]
    fn corrupt_memory_gives_an_error_at_worst(
        words in proptest::collection::vec((0usize..300, any::<u64>()), 0..40),
        header in proptest::bool::ANY,
        slot in 0usize..4,
    ) {
        let mut memory = Memory::new(SMALL);
        // SAFETY: zeroed, aligned, long enough, and outlives everything below.
        unsafe { Segment::create(memory.base(), SMALL) };
        let bytes = memory.bytes();
        for (at, word) in words {
            // Without `header` only the slots are overwritten, so the segment can
            // always be opened.
            let at = if header { at % 16 * 8 } else { 4096 + at % 64 * 8 };
            let page = &mut memory.0[at / 4096].0;
            page[at % 4096..at % 4096 + 8].copy_from_slice(&word.to_le_bytes());
        }
        // SAFETY: `bytes` long and alive.
        match unsafe { Segment::open(memory.base(), bytes) } {
            Err(why) => prop_assert!(header && !why.is_empty()),
            Ok(segment) => match Consumer::new(&segment, slot) {
                Err(e) => prop_assert_eq!(e, RingError::Slot(slot)),
                Ok(mut consumer) => {
                    let mut all = Vec::new();
                    consumer.publish_rest(&segment);
                    match consumer.take(&segment, &mut all, 100) {
                        Ok(n) => prop_assert!(n == all.len() && n <= segment.geometry().records),
                        Err(e) => {
                            prop_assert!(all.is_empty());
                            prop_assert!(e.to_string().contains("corrupt"));
                        }
                    }
                }
            },
        }
    }

    #[test]
    fn records_keep_their_parts(address in 0u64..1 << 48, index in 0usize..512, store: bool) {
        let word = record::memory(index, store) | address;
        prop_assert_eq!(record::tag(word), record::MEM);
        prop_assert_eq!(word & record::ADDRESS_MASK, address);
        prop_assert_eq!((word >> record::INDEX_SHIFT) as usize & 511, index);
        prop_assert_eq!(word & record::STORE != 0, store);
    }
}
