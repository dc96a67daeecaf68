use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use crate::record;
use crate::{Control, Header, Segment, Slot, futex_wait, futex_wake, slot_state};

/// Records after which the producer publishes its position.
const BATCH: usize = 1024;

/// The writing end of a ring: plain pointers, since it stands in the callback of
/// every memory access.
#[derive(Clone, Copy)]
pub struct Producer {
    slot: *const Slot,
    header: *const Header,
    control: *const Control,
    records: usize,
    /// Asked from time to time while it waits; `true`: nobody reads any more, so
    /// that records may be dropped.
    deserted: fn(&Control) -> bool,
}

impl Producer {
    /// Takes a free slot and makes it this thread's; `None` when there is none.
    /// The thread has met every change up to now, see [`Producer::starts_from`].
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
            // A slot that had another thread goes on where that one ended, at the
            // start of a lap: the reader has taken everything.
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
    fn slot(&self) -> &Slot {
        // SAFETY: alive by the contract of `claim`.
        unsafe { &*self.slot }
    }

    /// Writes one word.
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    #[inline(always)]
    pub unsafe fn push(&self, word: u64) {
        let slot = self.slot();
        if slot.cursor.load(Relaxed) >= slot.limit.load(Relaxed) {
            self.slow();
        }
        // SAFETY: `slow` has set the limit within the ring, with room for a record
        // at the cursor at least.
        unsafe { self.write(word) }
    }

    /// Writes the first word of a block or an access in it, after a
    /// [`record::MEET`] if another thread has changed the address space since the
    /// last one.
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

    /// Tells the reader of changes by other threads that this one has not met.
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

    /// This thread itself has made the change with this ticket.
    pub fn met(&self, ticket: u64) {
        self.slot().seen.store(ticket, Relaxed);
    }

    /// This thread comes to life in one that has met what `maker` has: a change
    /// after that is still to come for both.
    pub fn starts_from(&self, maker: &Producer) {
        self.met(maker.slot().seen.load(Relaxed));
    }

    /// Makes the thread look around at its next block or access. Called by others.
    pub fn poke(&self) {
        self.slot().limit.store(0, SeqCst);
    }

    fn position(&self) -> u64 {
        let slot = self.slot();
        slot.lap.load(Relaxed) + ((slot.cursor.load(Relaxed) - slot.data.load(Relaxed)) / 8) as u64
    }

    /// Lets the reader see everything written so far, and wakes it if it sleeps.
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
            // The order matters to a reader after this process has been killed
            // here: first back, then the lap, so that it sees too little, not junk.
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
                // Overwrite what nobody will read.
                room = self.records as u64;
                slot.tail.store(position, Relaxed);
                break;
            }
        }
        slot.waiting.store(0, Relaxed);
        let cursor = slot.cursor.load(Relaxed);
        let words = (room as usize).min(BATCH).min((end - cursor) / 8);
        slot.limit.store(cursor + words * 8, SeqCst);
        // A change between the look at the tickets and the store of the limit
        // would be missed: look again. The caller writes one record in any case.
        if header.tickets.load(SeqCst) != slot.seen.load(Relaxed) {
            slot.limit.store(0, SeqCst);
        }
    }

    /// Asks the engine a question of [`record::query`] and waits for the answer. `None`:
    /// nobody knows one, or nobody listens any more.
    ///
    /// # Safety
    /// Only the slot's own thread calls this.
    pub unsafe fn query(&self, question: u64, integer: u64, address: u64) -> Option<u64> {
        let slot = self.slot();
        let number = slot.asked.load(Relaxed).wrapping_add(1);
        slot.asked.store(number, Relaxed);
        for word in [record::word(record::QUERY, question), integer, address] {
            // SAFETY: by the contract.
            unsafe { self.push(word) };
        }
        self.publish();
        loop {
            let answered = slot.answered.load(Acquire);
            if answered == number {
                break;
            }
            futex_wait(&slot.answered, answered, Duration::from_millis(100));
            // SAFETY: alive by the contract of `claim`.
            if slot.answered.load(Acquire) != number && (self.deserted)(unsafe { &*self.control }) {
                return None;
            }
        }
        (slot.known.load(Relaxed) != 0).then(|| slot.answer.load(Relaxed))
    }

    /// The thread is gone: nothing follows.
    pub fn close(&self) {
        // First the state: who has read the last record may free the slot.
        self.slot().state.store(slot_state::CLOSED, Release);
        self.publish();
    }
}
