//! Which accesses bring a line that was not used a moment ago.

use pagewalk_units::{Access, LINE_SHIFT};

use crate::{Op, OpClass};

/// What an op accesses.
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
    /// What `op` accesses, if it does.
    #[inline(always)]
    pub fn of(op: &Op) -> Option<Self> {
        let access = match op.kind {
            OpClass::Load => Access::Read,
            OpClass::Store => Access::Write,
            OpClass::Compute | OpClass::Branch | OpClass::Query => return None,
        };
        Some(Data {
            at: op.va,
            size: op.size,
            access,
        })
    }
}

/// Lines of data that are remembered; a power of two.
const DATA: usize = 1 << 11;
/// Lines of code.
const CODE: usize = 1 << 8;

/// Remembers lines by the lowest bits of a hash of their numbers, the last one each. What it lets
/// through of a stream, it lets through again whatever it remembered before: so a program that
/// passes over its ops may leave out what its own filter holds back, and a machine that applies one
/// to what is left sees what it would have seen of all ops.
#[derive(Clone, Debug)]
pub struct RecentLineFilter {
    /// Number of the line, shifted by one, and whether it was written.
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
    /// Nothing is remembered.
    pub fn forget(&mut self) {
        self.data.fill(u64::MAX);
        self.code.fill(u64::MAX);
    }

    /// Whether an access brings a line that is not remembered, or is the first that writes it;
    /// it is remembered from now on.
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

    /// Whether [`RecentLineFilter::look`] would find nothing new in `data`, all of which lies in one line.
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

    /// The line of code that an instruction at `pc` would take the place of, if it were new.
    pub fn in_place_of(&self, pc: u64) -> u64 {
        (self.code[slot(pc >> LINE_SHIFT, CODE)] >> 1) << LINE_SHIFT
    }

    /// Gives `out` what of `op` is new, in program order.
    #[inline(always)]
    pub fn filter(&mut self, op: &Op, out: impl FnMut(u64, Access)) {
        self.look(op.pc, Data::of(op), out);
    }

    /// The same of an op at `pc` that accesses `data`.
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

    /// What is left of a stream that another filter has seen less of is, seen through one that has
    /// seen all of it, what that lets through of the whole stream.
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
                // The other is asked from some place on.
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
