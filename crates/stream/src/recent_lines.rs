//! Filter of the accesses to lines that were used recently.

use pagewalk_units::{Access, LINE_SHIFT};

use crate::{Op, OpClass};

/// Data access of an op.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Address of its first byte.
    pub at: u64,
    /// Bytes.
    pub size: u8,
    /// Read or written.
    pub access: Access,
}

impl Data {
    /// The data access of `op`, if it is a load or a store.
    #[inline(always)]
    pub fn of(op: &Op) -> Option<Self> {
        let access = match op.kind {
            OpClass::Load => Access::Read,
            OpClass::Store => Access::Write,
            OpClass::Compute
            | OpClass::Branch
            | OpClass::Query
            | OpClass::Prefetch
            | OpClass::Flush => return None,
        };
        Some(Data {
            at: op.va,
            size: op.size,
            access,
        })
    }
}

/// Entries for lines of data; a power of two.
const DATA: usize = 1 << 11;
/// Entries for lines of code; a power of two.
const CODE: usize = 1 << 8;

/// Direct-mapped filter, indexed by a hash of the line's number. A slot holds its last line.
///
/// A filter that started empty later in the stream lets through the same accesses, and more. Put before this filter,
/// it therefore changes nothing: both let through what this one alone would. So a program in filtered functional
/// warming drops the accesses that its own, later filter stops, and the machine filters the rest.
#[derive(Clone, Debug)]
pub struct RecentLineFilter {
    /// Number of the line, shifted left by one; bit 0 is set after a write.
    data: Box<[u64; DATA]>,
    code: Box<[u64; CODE]>,
}

impl Default for RecentLineFilter {
    fn default() -> Self {
        RecentLineFilter {
            data: Box::new([u64::MAX; DATA]),
            code: Box::new([u64::MAX; CODE]),
        }
    }
}

#[inline(always)]
fn slot(line: u64, slots: usize) -> usize {
    (line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (slots - 1)
}

impl RecentLineFilter {
    /// Empties the filter.
    pub fn forget(&mut self) {
        self.data.fill(u64::MAX);
        self.code.fill(u64::MAX);
    }

    /// True if the access brings a line that the filter does not hold, or is the first write to it. The filter holds
    /// the line from now on.
    #[inline(always)]
    pub fn is_new(&mut self, at: u64, access: Access) -> bool {
        let line = at >> LINE_SHIFT;
        let (seen, write) = match access {
            Access::Fetch => (&mut self.code[slot(line, CODE)], 0),
            Access::Read => (&mut self.data[slot(line, DATA)], 0),
            Access::Write => (&mut self.data[slot(line, DATA)], 1),
        };
        if *seen >> 1 != line {
            *seen = line << 1 | write;
            return true;
        }
        let new = write > *seen & 1;
        *seen |= write;
        new
    }

    /// True if [`RecentLineFilter::look`] would let nothing of `data` through. `data` must lie in one line.
    #[inline(always)]
    pub fn holds(&self, data: Data) -> bool {
        let line = data.at >> LINE_SHIFT;
        let seen = self.data[slot(line, DATA)];
        let ends = data.at.wrapping_add(u64::from(data.size.max(1)) - 1) >> LINE_SHIFT;
        let known = match data.access {
            Access::Write => seen == line << 1 | 1,
            Access::Read | Access::Fetch => seen >> 1 == line,
        };
        known & (ends == line)
    }

    /// First address of the line of code that a new instruction at `pc` would evict.
    pub fn in_place_of(&self, pc: u64) -> u64 {
        (self.code[slot(pc >> LINE_SHIFT, CODE)] >> 1) << LINE_SHIFT
    }

    /// Calls `out` for each access of `op` that is let through, in program order.
    #[inline(always)]
    pub fn filter(&mut self, op: &Op, out: impl FnMut(u64, Access)) {
        self.look(op.pc, Data::of(op), out);
    }

    /// Calls `out` for each access that is let through, for an op at `pc` that accesses `data`.
    #[inline(always)]
    pub fn look(&mut self, pc: u64, data: Option<Data>, mut out: impl FnMut(u64, Access)) {
        if self.is_new(pc, Access::Fetch) {
            out(pc, Access::Fetch);
        }
        let Some(Data { at, size, access }) = data else {
            return;
        };
        if self.is_new(at, access) {
            out(at, access);
        }
        let last = at.wrapping_add(u64::from(size.max(1)) - 1);
        if last >> LINE_SHIFT != at >> LINE_SHIFT && self.is_new(last, access) {
            out(last, access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RecentLineFilter;
    use pagewalk_units::{Access, rng};
    use rand::RngExt;

    /// A filter may start empty in the middle of a stream, in front of another filter. The second one still lets
    /// through the same accesses as over the whole stream.
    #[test]
    fn a_filter_before_a_filter_changes_nothing() {
        let mut draw = rng(1, "lines");
        for _ in 0..20 {
            let (mut whole, mut behind, mut before) = (
                RecentLineFilter::default(),
                RecentLineFilter::default(),
                RecentLineFilter::default(),
            );
            let (mut all, mut left) = (Vec::new(), Vec::new());
            for n in 0..20_000 {
                let at = draw.random_range(0..5000u64) << 5;
                let access = [Access::Read, Access::Write, Access::Fetch][n % 3];
                if whole.is_new(at, access) {
                    all.push((at, access));
                }
                // After the first part, `behind` gets only the accesses that `before` lets through.
                if (n < 3000 || before.is_new(at, access)) && behind.is_new(at, access) {
                    left.push((at, access));
                }
            }
            assert!(all == left && all.len() > 5000);
        }
    }

    #[test]
    fn a_line_is_new_once_and_once_more_when_it_is_written() {
        let mut lines = RecentLineFilter::default();
        assert!(lines.is_new(0x1000, Access::Read) && !lines.is_new(0x103f, Access::Read));
        assert!(lines.is_new(0x1008, Access::Write) && !lines.is_new(0x1010, Access::Write));
        assert!(!lines.is_new(0x1000, Access::Read) && lines.is_new(0x1000, Access::Fetch));
        lines.forget();
        assert!(lines.is_new(0x1000, Access::Read));
    }
}
