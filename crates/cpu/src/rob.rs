//! The reorder buffer: retirement slots of the latest instructions.

use pagewalk_structures::Ring;

use crate::time::Time;

/// Consecutive instructions that retire in consecutive slots of both clocks.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// One past its last instruction's number.
    end: u64,
    /// Retirement slot of its last instruction.
    last: Time,
}

/// Retirement slots by instruction number. They are stored as stretches, so that instructions that
/// retire back to back cost nothing. The youngest stretch is open: it ends with the last
/// instruction, which retires in the slot before `next`.
#[derive(Clone, Debug)]
pub(crate) struct Rob {
    size: u64,
    /// Instructions dispatched.
    pub count: u64,
    /// First slot in which the next instruction can retire.
    pub next: Time,
    /// The stretch of the oldest instruction in the buffer, unless it is the open one.
    head: Stretch,
    /// Closed stretches from the one after `head`: positions `first..end` of the ring.
    closed: Ring<Stretch>,
    first: usize,
    end: usize,
    /// One past the last instruction of a closed stretch.
    closed_until: u64,
}

/// Position of a scan by [`Rob::freed`].
pub(crate) struct Freed {
    head: Stretch,
    first: usize,
}

impl Rob {
    /// An empty buffer of `size` instructions.
    pub fn new(size: u32) -> Self {
        Rob {
            size: u64::from(size),
            count: 0,
            next: Time::default(),
            head: Stretch::default(),
            // Every closed stretch except those before the oldest instruction holds an instruction
            // of the buffer.
            closed: Ring::new(size as usize + 2, Stretch::default()),
            first: 0,
            end: 0,
            closed_until: 0,
        }
    }

    /// Slot in which the next instruction finds a free entry, and the number of instructions, from
    /// it on, that find one in consecutive slots.
    #[inline(always)]
    pub fn room(&mut self) -> (Time, u64) {
        let Some(k) = self.count.checked_sub(self.size) else {
            return (Time::default(), self.size - self.count);
        };
        if k < self.head.end {
            let free = self.head.last.wrapping_sub(self.head.end - 1 - k);
            return (free, self.head.end - k);
        }
        self.advance(k)
    }

    /// As [`Rob::room`], if instruction `k`, which frees the entry, comes after the stretch `head`.
    #[inline(never)]
    fn advance(&mut self, k: u64) -> (Time, u64) {
        while self.first != self.end {
            let s = self.closed.get(self.first);
            self.first += 1;
            if k < s.end {
                self.head = s;
                return (s.last.wrapping_sub(s.end - 1 - k), s.end - k);
            }
        }
        let n = self.count - k;
        (self.next.wrapping_sub(n), n)
    }

    /// Capacity in instructions.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Starts a scan by [`Rob::freed`].
    pub fn cursor(&self) -> Freed {
        Freed {
            head: self.head,
            first: self.first,
        }
    }

    /// Slot of the real clock in which an instruction finds a free entry, `ahead` places after the next one to
    /// dispatch. Each instruction between them takes an entry, and none of these retires. `None`:
    /// only after the next one retires. `ahead` must not decrease from call to call.
    pub fn freed(&self, cursor: &mut Freed, ahead: u64) -> Option<u64> {
        let Some(k) = (self.count + ahead).checked_sub(self.size) else {
            return Some(0);
        };
        if k >= self.count {
            return None;
        }
        while k >= cursor.head.end && cursor.first != self.end {
            cursor.head = self.closed.get(cursor.first);
            cursor.first += 1;
        }
        let h = cursor.head;
        Some(if k < h.end {
            h.last.real - (h.end - 1 - k)
        } else {
            self.next.real - (self.count - k)
        })
    }

    /// Ends the open stretch after instruction `end - 1`, which retires in slot `last`.
    #[inline]
    fn close(&mut self, end: u64, last: Time) {
        if end > self.closed_until {
            self.closed_until = end;
            self.closed.set(self.end, Stretch { end, last });
            self.end += 1;
            debug_assert!(self.end - self.first <= self.closed.len());
        }
    }

    /// Retires the next `n` >= 1 instructions in the slots from `first` on.
    #[inline(always)]
    pub fn retire(&mut self, first: Time, n: u64) {
        debug_assert!(first == first.max(self.next) && n > 0);
        if first != self.next {
            self.close(self.count, self.next.wrapping_sub(1));
        }
        self.count += n;
        self.next = first + n;
    }

    /// Retires the next instruction in slot `next`, and returns the slot.
    #[inline(always)]
    pub fn retire_next(&mut self) -> Time {
        let slot = self.next;
        self.count += 1;
        self.next = slot + 1;
        slot
    }

    /// Delays the last instruction's retirement to the slot before `next`, when a further
    /// micro-operation of it is done.
    pub fn delay_last(&mut self, next: Time) {
        if self.count > self.closed_until {
            self.close(self.count - 1, self.next.wrapping_sub(2));
        }
        self.next = next;
    }

    /// Empties the buffer; nothing retires before `slot`.
    pub fn empty_until(&mut self, slot: Time) {
        if slot.exceeds(self.next) {
            self.close(self.count, self.next.wrapping_sub(1));
            self.next = self.next.max(slot);
        }
    }
}
