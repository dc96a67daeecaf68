//! The lines of a directory by their numbers.

use pagewalk_structures::prefetch;
use pagewalk_units::Cycle;

/// No core has the line dirty.
pub(super) const CLEAN: u8 = u8::MAX;

/// Who holds a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders {
    /// One bit each.
    pub cores: u64,
    /// When the writer has the line.
    pub ready: Cycle,
    /// The only holder, which has written it.
    pub writer: u8,
}

const NOBODY: Holders = Holders {
    cores: 0,
    ready: 0,
    writer: CLEAN,
};

/// No line has this number.
const EMPTY: u64 = u64::MAX;

/// Within one cache line of the host: its own misses are what costs.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot {
    line: u64,
    holders: Holders,
}

const FREE: Slot = Slot {
    line: EMPTY,
    holders: NOBODY,
};

/// Slots of an empty table, as a power of two.
const SMALLEST: u32 = 10;

/// Where a line lies is known before it is looked for, so that the host can be told:
/// from its slot by its number on, in the first that was free.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A power of two, of which three quarters are used at most.
    slots: Vec<Slot>,
    len: usize,
    /// A number's hash becomes a slot by a shift.
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

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where to look for `line` first: Fibonacci hashing.
    #[inline(always)]
    fn home(&self, line: u64) -> usize {
        (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Tells the host that `line` will be looked for.
    #[inline(always)]
    pub fn announce(&self, line: u64) {
        prefetch(&self.slots[self.home(line)]);
    }

    /// The slot of `line`, or the free one where it would go.
    #[inline]
    fn find(&self, line: u64) -> Result<usize, usize> {
        let mut at = self.home(line);
        loop {
            let held = self.slots[at].line;
            if held == line {
                return Ok(at);
            }
            if held == EMPTY {
                return Err(at);
            }
            at = self.behind(at);
        }
    }

    /// Who holds `line`, if it is here.
    #[inline]
    pub fn get(&mut self, line: u64) -> Option<&mut Holders> {
        let at = self.find(line).ok()?;
        Some(&mut self.slots[at].holders)
    }

    /// Who holds `line`; nobody, if it was not here until now.
    #[inline]
    pub fn entry(&mut self, line: u64) -> &mut Holders {
        let at = self.find(line).unwrap_or_else(|at| self.put(line, at));
        &mut self.slots[at].holders
    }

    /// Puts `line` into the free slot `at`, or where that is in a larger table; gives
    /// the slot.
    fn put(&mut self, line: u64, mut at: usize) -> usize {
        if 4 * (self.len + 1) > 3 * self.slots.len() {
            self.grow();
            at = self.find(line).unwrap_or_else(|free| free);
        }
        self.slots[at] = Slot {
            line,
            holders: NOBODY,
        };
        self.len += 1;
        at
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Table::of(u64::BITS - self.shift + 1);
        for slot in self.slots.iter().filter(|s| s.line != EMPTY) {
            *larger.entry(slot.line) = slot.holders;
        }
        *self = larger;
    }

    /// Takes `line` out, if it is here.
    pub fn remove(&mut self, line: u64) {
        let Ok(mut hole) = self.find(line) else {
            return;
        };
        // What comes behind moves up, as far as it was not meant for behind the hole.
        let most = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = self.behind(at);
            let slot = self.slots[at];
            if slot.line == EMPTY {
                break;
            }
            let passed = at.wrapping_sub(self.home(slot.line)) & most;
            if passed >= at.wrapping_sub(hole) & most {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.len -= 1;
    }

    /// Every line with who holds it.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Holders)> {
        let used = self.slots.iter().filter(|s| s.line != EMPTY);
        used.map(|s| (s.line, &s.holders))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            spread in 0u32..40,
            steps in prop::collection::vec((0u64..3000, 0u8..5, any::<u64>()), 1..4000),
        ) {
            let mut table = Table::new();
            let mut map = BTreeMap::new();
            for (number, what, cores) in steps {
                let line = number << spread & ((1 << 48) - 1);
                match what {
                    0 => {
                        table.remove(line);
                        map.remove(&line);
                    }
                    1 => prop_assert_eq!(
                        table.get(line).map(|h| h.cores),
                        map.get(&line).copied()
                    ),
                    _ => {
                        let held = table.entry(line);
                        prop_assert_eq!(held.cores, map.get(&line).copied().unwrap_or(0));
                        held.cores = cores;
                        map.insert(line, cores);
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let mut all: Vec<_> = table.iter().map(|(line, h)| (line, h.cores)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
