//! Hash table of a directory's lines.

use pagewalk_structures::prefetch;
use pagewalk_units::Cycle;

/// Holders of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holders {
    /// These cores, one bit each; none has written it.
    Clean(u64),
    /// Only this core, which has written it and has it from this cycle on.
    Writer(u8, Cycle),
}

impl Holders {
    /// The holders, one bit each.
    #[inline(always)]
    pub fn cores(self) -> u64 {
        match self {
            Holders::Clean(cores) => cores,
            Holders::Writer(core, _) => 1 << core,
        }
    }
}

/// Bits of a tag that hold the line's number; above them is the writer.
const LINE_BITS: u32 = 48;
const LINE_MASK: u64 = (1 << LINE_BITS) - 1;
/// Writer field of a clean line.
const NOBODY: u64 = 0xff;
/// The tag of a free slot: no line has its number.
const EMPTY: u64 = u64::MAX;

/// A line and its holders in two words, so that four fit into a cache line of the host.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct DirectorySlot {
    tag: u64,
    /// The holding cores, or for a line with a writer the cycle from which it has the line.
    word: u64,
}

impl DirectorySlot {
    #[inline(always)]
    fn new(line: u64, holders: Holders) -> Self {
        debug_assert!(line < LINE_MASK);
        let (writer, word) = match holders {
            Holders::Clean(cores) => (NOBODY, cores),
            Holders::Writer(core, ready) => (u64::from(core), ready),
        };
        let tag = line | writer << LINE_BITS;
        DirectorySlot { tag, word }
    }

    #[inline(always)]
    fn line(self) -> u64 {
        self.tag & LINE_MASK
    }

    #[inline(always)]
    fn holders(self) -> Holders {
        match self.tag >> LINE_BITS {
            NOBODY => Holders::Clean(self.word),
            core => Holders::Writer(core as u8, self.word),
        }
    }
}

const FREE: DirectorySlot = DirectorySlot {
    tag: EMPTY,
    word: 0,
};

/// log2 of the slots of an empty table.
const SMALLEST: u32 = 10;

/// Open-addressing hash table with linear probing. A line's home slot is known without a search, so
/// that the host can prefetch it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A power of two of slots, at most three quarters used.
    slots: Vec<DirectorySlot>,
    len: usize,
    /// Shift from a number's hash to its slot.
    shift: u32,
}

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        Table::of(SMALLEST)
    }

    fn of(log: u32) -> Self {
        Table {
            slots: vec![FREE; 1 << log],
            len: 0,
            shift: u64::BITS - log,
        }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Home slot of `line`: Fibonacci hashing.
    #[inline(always)]
    fn home(&self, line: u64) -> usize {
        (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Prefetches the home slot of `line` into the host's caches.
    #[inline(always)]
    pub fn host_prefetch(&self, line: u64) {
        prefetch(&self.slots[self.home(line)]);
    }

    /// The slot of `line`, or the free one where it would go.
    #[inline]
    fn find(&self, line: u64) -> Result<usize, usize> {
        let mut at = self.home(line);
        loop {
            let slot = self.slots[at];
            if slot.line() == line {
                return Ok(at);
            }
            if slot.tag == EMPTY {
                return Err(at);
            }
            at = self.behind(at);
        }
    }

    /// The slot and the holders of `line`, if present.
    #[inline]
    pub fn get(&self, line: u64) -> Option<(usize, Holders)> {
        let at = self.find(line).ok()?;
        Some((at, self.slots[at].holders()))
    }

    /// The slot and the holders of `line`; inserts it without holders if absent.
    #[inline]
    pub fn entry(&mut self, line: u64) -> (usize, Holders) {
        let at = self.find(line).unwrap_or_else(|at| self.put(line, at));
        (at, self.slots[at].holders())
    }

    /// Sets the holders of `line`, which is in slot `at`.
    #[inline]
    pub fn set(&mut self, at: usize, line: u64, holders: Holders) {
        debug_assert_eq!(self.slots[at].line(), line);
        self.slots[at] = DirectorySlot::new(line, holders);
    }

    /// Inserts `line` into the free slot `at`, or after growing into its slot there. Returns the
    /// slot.
    fn put(&mut self, line: u64, mut at: usize) -> usize {
        if 4 * (self.len + 1) > 3 * self.slots.len() {
            self.grow();
            at = self.find(line).unwrap_or_else(|free| free);
        }
        self.slots[at] = DirectorySlot::new(line, Holders::Clean(0));
        self.len += 1;
        at
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Table::of(u64::BITS - self.shift + 1);
        for slot in self.slots.iter().filter(|s| s.tag != EMPTY) {
            let (at, _) = larger.entry(slot.line());
            larger.slots[at] = *slot;
        }
        *self = larger;
    }

    /// Removes the line in slot `hole`.
    pub fn remove(&mut self, mut hole: usize) {
        // Later lines of the probe sequence move up, unless their home slot is after the hole.
        let most = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = self.behind(at);
            let slot = self.slots[at];
            if slot.tag == EMPTY {
                break;
            }
            let passed = at.wrapping_sub(self.home(slot.line())) & most;
            if passed >= at.wrapping_sub(hole) & most {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.len -= 1;
    }

    /// Every line with its holders.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (u64, Holders)> {
        let used = self.slots.iter().filter(|s| s.tag != EMPTY);
        used.map(|s| (s.line(), s.holders()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Holders, Table};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn holders() -> impl Strategy<Value = Holders> {
        prop_oneof![
            any::<u64>().prop_map(Holders::Clean),
            (0u8..64, any::<u64>()).prop_map(|(core, ready)| Holders::Writer(core, ready)),
        ]
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            spread in 0u32..40,
            steps in prop::collection::vec((0u64..3000, 0u8..5, holders()), 1..4000),
        ) {
            let mut table = Table::new();
            let mut map = BTreeMap::new();
            for (number, what, holders) in steps {
                let line = number << spread & ((1 << 48) - 1);
                let got = table.get(line);
                prop_assert_eq!(got.map(|g| g.1), map.get(&line).copied());
                match (what, got) {
                    (0, Some((at, _))) => {
                        table.remove(at);
                        map.remove(&line);
                    }
                    (0 | 1, _) => {}
                    _ => {
                        let (at, held) = table.entry(line);
                        let nobody = Holders::Clean(0);
                        prop_assert_eq!(held, map.get(&line).copied().unwrap_or(nobody));
                        table.set(at, line, holders);
                        map.insert(line, holders);
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let mut all: Vec<_> = table.iter().collect();
            all.sort_unstable_by_key(|&(line, _)| line);
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
