//! The reorder buffer: when each of the last instructions retires.

/// Consecutive instructions that retire in consecutive slots.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// One past its last instruction's number.
    end: u64,
    /// Retirement slot of its last instruction.
    last: u64,
}

/// Retirement slots by instruction number, kept as stretches: instructions that
/// wait for nothing cost nothing.
#[derive(Clone, Debug)]
pub(crate) struct Rob {
    size: u64,
    stretches: Box<[Stretch]>,
    mask: usize,
    /// Stretch of the oldest instruction that may still be in the buffer.
    head: usize,
    tail: usize,
    /// Instructions dispatched.
    pub count: u64,
    /// First slot in which the next instruction can retire.
    pub next: u64,
}

impl Rob {
    pub fn new(size: u32) -> Self {
        // Every stretch but the one that the head has just left holds an
        // instruction of the buffer.
        let room = (size as usize + 2).next_power_of_two();
        Rob {
            size: u64::from(size),
            stretches: vec![Stretch::default(); room].into(),
            mask: room - 1,
            head: 0,
            tail: 0,
            count: 0,
            next: 0,
        }
    }

    /// When the next instruction finds room, and how many from it on find room
    /// in the slots right after that.
    #[inline]
    pub fn room(&mut self) -> (u64, u64) {
        let Some(k) = self.count.checked_sub(self.size) else {
            return (0, self.size - self.count);
        };
        let mut s = self.stretches[self.head & self.mask];
        while s.end <= k {
            self.head += 1;
            s = self.stretches[self.head & self.mask];
        }
        (s.last - (s.end - 1 - k), s.end - k)
    }

    /// The next `n` >= 1 instructions retire in the slots from `first` on.
    #[inline]
    pub fn retire(&mut self, first: u64, n: u64) {
        debug_assert!(first >= self.next && n > 0);
        self.count += n;
        self.next = first + n;
        if self.stretches[self.tail & self.mask].last + 1 != first {
            self.tail += 1;
            debug_assert!(self.tail - self.head <= self.mask);
        }
        self.stretches[self.tail & self.mask] = Stretch {
            end: self.count,
            last: self.next - 1,
        };
    }

    /// The last instruction retires only at `slot`, later than it would have: a
    /// further micro-operation of it is done then. Gives the slot.
    pub fn delay_last(&mut self, slot: u64) -> u64 {
        debug_assert!(slot >= self.next);
        self.next = slot + 1;
        if self.count == 0 {
            return slot;
        }
        let before = self.stretches[self.tail.wrapping_sub(1) & self.mask].end;
        let t = &mut self.stretches[self.tail & self.mask];
        if t.end - before > 1 {
            t.end -= 1;
            t.last -= 1;
            self.tail += 1;
        }
        self.stretches[self.tail & self.mask] = Stretch {
            end: self.count,
            last: slot,
        };
        slot
    }

    /// Everything has retired, and nothing retires before `slot`.
    pub fn empty_until(&mut self, slot: u64) {
        self.next = self.next.max(slot);
    }
}
