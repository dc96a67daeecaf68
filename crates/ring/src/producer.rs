use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use crate::record;
use crate::{Control, Header, RingSlot, Segment, futex_wait, futex_wake, slot_state};

/// Number of records after which the producer publishes its position.
const BATCH: usize = 1024;

/// The writing end of a ring. It consists of plain pointers, because the callback of
/// every memory access uses it.
#[derive(Clone, Copy)]
pub struct Producer {
    slot: *const RingSlot,
    header: *const Header,
    control: *const Control,
    records: usize,
    /// Called periodically while the producer waits. Returns true if the reader has
    /// gone, so that records may be dropped.
    deserted: fn(&Control) -> bool,
}

impl Producer {
    /// Claims a free slot for this thread; `None` if there is none. The thread counts
    /// as having seen all earlier address-space changes; see
    /// [`Producer::starts_from`].
    ///
    /// # Safety
    /// `segment`'s memory and `control` outlive the producer and its copies. Only
    /// one thread at a time writes through them.
    pub unsafe fn claim(
        segment: &Segment,
        control: *const Control,
        deserted: fn(&Control) -> bool,
    ) -> Option<(usize, Producer)> {
        for number in 0..segment.geometry().slots {
            let slot = segment.slot(number)?;
            if slot
                .state
                .compare_exchange(slot_state::FREE, slot_state::ACTIVE, Acquire, Relaxed)
                .is_err()
            {
                continue;
            }
            // A reused slot continues at the position of its previous thread, because
            // the reader has taken all records.
            let ring = segment.ring(number);
            let data = ring.as_ptr() as usize;
            let position = slot.head.load(Relaxed);
            let within = (position & (ring.len() as u64 - 1)) as usize;
            slot.data.store(data, Relaxed);
            slot.lap.store(position - within as u64, Relaxed);
            slot.cursor.store(data + within * 8, Relaxed);
            slot.limit.store(0, Relaxed);
            slot.seen
                .store(segment.header().tickets.load(SeqCst), Relaxed);
            return Some((
                number,
                Producer {
                    slot,
                    header: segment.header(),
                    control,
                    records: ring.len(),
                    deserted,
                },
            ));
        }
        None
    }

    #[inline(always)]
    fn slot(&self) -> &RingSlot {
        // SAFETY: alive by the contract of `claim`.
        unsafe { &*self.slot }
    }

    /// Appends one word.
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    #[inline(always)]
    pub unsafe fn push(&self, word: u64) {
        let slot = self.slot();
        if slot.cursor.load(Relaxed) >= slot.limit.load(Relaxed) {
            self.slow();
        }
        // SAFETY: `slow` has set the limit within the ring, with room for at least one
        // record at the cursor.
        unsafe { self.write(word) }
    }

    /// Appends the first word of a block, or an access in it. A [`record::MEET`] comes
    /// first if another thread has changed the address space since the last one.
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    #[inline(always)]
    pub unsafe fn push_step(&self, word: u64) {
        let slot = self.slot();
        if slot.cursor.load(Relaxed) >= slot.limit.load(Relaxed) {
            self.meet();
            self.slow();
        }
        // SAFETY: as in `push`.
        unsafe { self.write(word) }
    }

    /// # Safety
    /// There is room at the cursor.
    #[inline(always)]
    unsafe fn write(&self, word: u64) {
        let slot = self.slot();
        let cursor = slot.cursor.load(Relaxed);
        // SAFETY: the cursor is aligned and within the ring, by the contract.
        unsafe { (*(cursor as *const AtomicU64)).store(word, Relaxed) };
        slot.cursor.store(cursor + 8, Release);
    }

    /// Appends a record of the other threads' changes that this thread has not seen.
    #[cold]
    pub fn meet(&self) {
        let slot = self.slot();
        // SAFETY: the header is alive by the contract of `claim`.
        let ticket = unsafe { &*self.header }.tickets.load(SeqCst);
        if slot.seen.load(Relaxed) != ticket {
            slot.seen.store(ticket, Relaxed);
            self.slow();
            // SAFETY: `slow` has made room; the caller is the slot's own thread.
            unsafe { self.write(record::word(record::MEET, ticket)) };
            self.publish();
        }
    }

    /// Records that this thread itself made the change with this ticket.
    pub fn met(&self, ticket: u64) {
        self.slot().seen.store(ticket, Relaxed);
    }

    /// A new thread has seen the same changes as its creator `maker`. Later changes
    /// are pending for both.
    pub fn starts_from(&self, maker: &Producer) {
        self.met(maker.slot().seen.load(Relaxed));
    }

    /// Makes the thread check for changes at its next block or access. Called by other
    /// threads.
    pub fn poke(&self) {
        self.slot().limit.store(0, SeqCst);
    }

    fn position(&self) -> u64 {
        let slot = self.slot();
        slot.lap.load(Relaxed) + ((slot.cursor.load(Relaxed) - slot.data.load(Relaxed)) / 8) as u64
    }

    /// Publishes all records written so far, and wakes the reader if it sleeps.
    pub fn publish(&self) {
        let slot = self.slot();
        slot.head.store(self.position(), Release);
        fence(SeqCst);
        // SAFETY: alive by the contract of `claim`.
        let control = unsafe { &*self.control };
        if control.waiting.load(Relaxed) != 0 {
            control.waiting.store(0, Relaxed);
            control.doorbell.fetch_add(1, Release);
            futex_wake(&control.doorbell);
        }
    }

    /// Publishes, wraps, waits for room, and sets the next limit.
    #[cold]
    #[inline(never)]
    fn slow(&self) {
        let slot = self.slot();
        self.publish();
        let data = slot.data.load(Relaxed);
        let end = data + self.records * 8;
        if slot.cursor.load(Relaxed) >= end {
            // The order matters to a reader if this process is killed here: the cursor
            // first, then the lap. The reader then misses records but reads no
            // garbage.
            slot.cursor.store(data, Release);
            slot.lap.fetch_add(self.records as u64, Release);
        }
        let position = self.position();
        // SAFETY: alive by the contract of `claim`.
        let (control, header) = unsafe { (&*self.control, &*self.header) };
        let mut room;
        loop {
            room = self.records as u64 - (position - slot.tail.load(Acquire));
            if room > 0 {
                break;
            }
            let seen = slot.space.load(Acquire);
            slot.waiting.store(1, Relaxed);
            fence(SeqCst);
            if slot.tail.load(Acquire) + self.records as u64 > position {
                continue;
            }
            // The engine may sleep because another ring is empty.
            if control.waiting.swap(0, SeqCst) != 0 {
                control.doorbell.fetch_add(1, Release);
                futex_wake(&control.doorbell);
            }
            futex_wait(&slot.space, seen, Duration::from_millis(100));
            if (self.deserted)(control) {
                // Overwrite records that will not be read.
                room = self.records as u64;
                slot.tail.store(position, Relaxed);
                break;
            }
        }
        slot.waiting.store(0, Relaxed);
        let cursor = slot.cursor.load(Relaxed);
        let words = (room as usize).min(BATCH).min((end - cursor) / 8);
        slot.limit.store(cursor + words * 8, SeqCst);
        // A change between the read of the tickets and the store of the limit would be
        // missed, so check again. The caller writes one record in any case.
        if header.tickets.load(SeqCst) != slot.seen.load(Relaxed) {
            slot.limit.store(0, SeqCst);
        }
    }

    /// Sends a query of [`record::query`] to the engine and waits for its result. `None`
    /// if no result is known or the engine has gone.
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    pub unsafe fn query(&self, kind: u64, integer: u64, address: u64) -> Option<u64> {
        // SAFETY: by the contract.
        unsafe { self.ask(&[record::word(record::QUERY, kind), integer, address]) }
    }

    /// Sends a record that the engine answers, and waits. Results as for [`Producer::query`].
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    pub unsafe fn ask(&self, words: &[u64]) -> Option<u64> {
        let slot = self.slot();
        let number = slot.query.load(Relaxed).wrapping_add(1);
        slot.query.store(number, Relaxed);
        for &word in words {
            // SAFETY: by the contract.
            unsafe { self.push(word) };
        }
        self.publish();
        loop {
            let resolved = slot.resolved.load(Acquire);
            if resolved == number {
                break;
            }
            futex_wait(&slot.resolved, resolved, Duration::from_millis(100));
            // SAFETY: alive by the contract of `claim`.
            if slot.resolved.load(Acquire) != number && (self.deserted)(unsafe { &*self.control }) {
                return None;
            }
        }
        (slot.known.load(Relaxed) != 0).then(|| slot.result.load(Relaxed))
    }

    /// Closes the ring after the thread's last record.
    pub fn close(&self) {
        // The state comes first: a reader that has read the last record may free the
        // slot.
        self.slot().state.store(slot_state::CLOSED, Release);
        self.publish();
    }
}
