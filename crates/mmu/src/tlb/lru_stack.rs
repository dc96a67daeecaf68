//! The LRU stack of a TLB array, for filtered functional warming.

use pagewalk_structures::{Epoch, position, push_mru, touch_mru};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, PageSize};

use super::{EMPTY, NUMBER_BITS, Tlb, TlbEntry, key, print, size_of_key};
use crate::mapping::Mapping;
use crate::replacement::lru::Ranks;

/// The contents of a TLB array under LRU, each set in order of use, most recently used first. It
/// replaces the array during filtered functional warming.
#[derive(Default)]
pub(crate) struct TlbLruStack {
    keys: Vec<u64>,
    /// For each key: the frame as in a [`TlbEntry`], and above [`FRAME_BITS`] the epoch of its last
    /// use.
    frames: Vec<u64>,
    /// Valid entries of each page size, as in the array.
    held: [u32; 3],
    /// Number of valid entries.
    used: usize,
}

/// Bits of a frame's address and of its write permission.
const FRAME_BITS: u32 = 56;

impl TlbLruStack {
    /// Invalidates the entries that `what` covers.
    pub fn forget(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        for key in &mut self.keys {
            if *key == EMPTY || *key >> 48 != u64::from(asid.0) {
                continue;
            }
            let size = size_of_key(*key);
            let shift = PageSize::ALL[size].shift();
            let base = (*key & ((1 << NUMBER_BITS) - 1)) << shift;
            if base <= last.0 && first.0 <= base + ((1 << shift) - 1) {
                self.held[size] -= 1;
                self.used -= 1;
                *key = EMPTY;
            }
        }
    }
}

impl Tlb {
    /// True if [`Tlb::export_lru`] is exact: the array's order of use is in ranks.
    pub fn can_export_lru(&self) -> bool {
        self.ranked
    }

    /// Copies the entries to `stack`, which replaces the array until [`Tlb::import_lru`].
    pub fn export_lru(&self, stack: &mut TlbLruStack) {
        stack.keys.resize(self.slots.len(), EMPTY);
        stack.frames.resize(self.slots.len(), 0);
        stack.held = self.held;
        stack.used = self.held.iter().map(|&held| held as usize).sum();
        for slot in &self.slots {
            let set = slot.set as usize;
            let rank = self.heads[set].ranks.of(usize::from(slot.way));
            let at = set * self.ways + usize::from(rank);
            stack.keys[at] = slot.key;
            stack.frames[at] = slot.entry.frame | slot.epoch.number() << FRAME_BITS;
        }
    }

    /// Replaces the contents by those of `stack`. All entries are ready.
    pub fn import_lru(&mut self, stack: &TlbLruStack) {
        self.held = stack.held;
        let mut from = 0;
        for head in &mut self.heads {
            head.ranks = Ranks::new(self.ways);
            let ranks = from..from + self.ways;
            // Free ways go last.
            let used = ranks.clone().filter(|&at| stack.keys[at] != EMPTY);
            let free = ranks.filter(|&at| stack.keys[at] == EMPTY);
            for (way, at) in used.chain(free).enumerate() {
                let (key, frame) = (stack.keys[at], stack.frames[at]);
                let slot = &mut self.slots[from + way];
                slot.key = key;
                slot.entry.frame = frame & ((1 << FRAME_BITS) - 1);
                slot.entry.ready = 0;
                slot.epoch = Epoch::of(frame >> FRAME_BITS);
                head.prints[way] = print(key);
            }
            from += self.ways;
        }
    }

    /// Looks up `va` in `stack`, which replaces the array. A hit makes the entry the most recently
    /// used.
    #[inline(always)]
    pub fn look_up_lru(&self, stack: &mut TlbLruStack, asid: Asid, va: u64) -> Option<Mapping> {
        for size in PageSize::ALL {
            if stack.held[size.index()] == 0 {
                continue;
            }
            let key = key(asid, size, va);
            let set = self.set(key) * self.ways;
            let keys = &mut stack.keys[set..set + self.ways];
            let Some(way) = position(keys, |k| k == key) else {
                continue;
            };
            touch_mru(keys, way);
            let frames = &mut stack.frames[set..set + self.ways];
            touch_mru(frames, way);
            let frame = frames[0] & ((1 << FRAME_BITS) - 1);
            frames[0] = frame | self.epoch.number() << FRAME_BITS;
            return Some(Mapping {
                frame: frame & !1,
                size,
                writable: frame & 1 != 0,
            });
        }
        None
    }

    /// Inserts `new`, which is absent, into `stack`.
    #[inline(always)]
    pub fn fill_lru(&self, stack: &mut TlbLruStack, new: u64, entry: TlbEntry) {
        let set = self.set(new) * self.ways;
        let keys = &mut stack.keys[set..set + self.ways];
        let frames = &mut stack.frames[set..set + self.ways];
        let frame = entry.frame | self.epoch.number() << FRAME_BITS;
        stack.held[size_of_key(new)] += 1;
        if stack.used == self.slots.len() {
            let old = push_mru(keys, new);
            push_mru(frames, frame);
            stack.held[size_of_key(old)] -= 1;
            return;
        }
        // A free way is filled first, wherever it is.
        let free = keys.iter().rposition(|&k| k == EMPTY);
        let last = free.unwrap_or(self.ways - 1);
        let old = std::mem::replace(&mut keys[last], new);
        touch_mru(keys, last);
        frames[last] = frame;
        touch_mru(frames, last);
        if old == EMPTY {
            stack.used += 1;
        } else {
            stack.held[size_of_key(old)] -= 1;
        }
    }
}
