//! Stride prefetching by instruction (Fu, Patel and Janssens, MICRO 1992; the
//! states are those of Chen and Baer's reference prediction table, IEEE
//! Transactions on Computers 1995).

use super::{PAGE_LINES_SHIFT, Recent, Wanted};

/// Confidence in an instruction's stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrideState {
    /// No stride seen, or a steady one broken once.
    Initial,
    /// A new stride seen once.
    Transient,
    /// The stride was confirmed: prefetch.
    Steady,
    /// No regular stride.
    NoPrediction,
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    last: u64,
    stride: i64,
    state: StrideState,
    /// Number of strides beyond `last` that are already prefetched.
    ahead: u8,
}

/// The table. Strides are in lines; accesses to the same line as the last do not train. For a
/// steady instruction prefetches run `lookahead` strides ahead, at most `degree` lines an access.
#[derive(Clone, Debug)]
pub(crate) struct IpStride {
    table: Recent<Instruction>,
    degree: u32,
    lookahead: u8,
}

impl IpStride {
    /// A table of `entries` instructions; at most `degree` lines an access, `lookahead` strides
    /// ahead.
    pub fn new(entries: u32, degree: u32, lookahead: u32) -> Self {
        IpStride {
            table: Recent::new(entries as usize),
            degree,
            lookahead: lookahead as u8,
        }
    }

    /// Trains on a load of `line` by the instruction at `pc`. Returns true if it put lines into
    /// `wanted`.
    #[inline(always)]
    pub fn train(&mut self, line: u64, pc: u64, wanted: &mut Wanted) -> bool {
        match self.table.get(pc) {
            Some(e) if e.last == line => false,
            _ => self.train_by(line, pc, wanted),
        }
    }

    /// As [`IpStride::train`], if the instruction or its line is new.
    #[inline(never)]
    fn train_by(&mut self, line: u64, pc: u64, wanted: &mut Wanted) -> bool {
        let Some(e) = self.table.get(pc) else {
            self.table.insert(
                pc,
                Instruction {
                    last: line,
                    stride: 0,
                    state: StrideState::Initial,
                    ahead: 0,
                },
            );
            return false;
        };
        let stride = line.wrapping_sub(e.last) as i64;
        e.last = line;
        let same = stride == e.stride;
        e.state = match (e.state, same) {
            (StrideState::Initial | StrideState::Transient | StrideState::Steady, true) => {
                StrideState::Steady
            }
            (StrideState::NoPrediction, true) => StrideState::Transient,
            (StrideState::Initial, false) => StrideState::Transient,
            (StrideState::Transient | StrideState::NoPrediction, false) => {
                StrideState::NoPrediction
            }
            (StrideState::Steady, false) => {
                // One break (a new page, a new row) keeps the stride.
                e.state = StrideState::Initial;
                e.ahead = 0;
                return false;
            }
        };
        e.stride = stride;
        if e.state != StrideState::Steady {
            e.ahead = 0;
            return false;
        }
        e.ahead = e.ahead.saturating_sub(1);
        for _ in 0..self.degree {
            if e.ahead == self.lookahead {
                break;
            }
            let to = line.wrapping_add_signed(stride.wrapping_mul(i64::from(e.ahead) + 1));
            if to >> PAGE_LINES_SHIFT != line >> PAGE_LINES_SHIFT {
                break;
            }
            wanted.push(to);
            e.ahead += 1;
        }
        !wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{IpStride, Wanted};

    fn train(p: &mut IpStride, line: u64, pc: u64) -> Vec<u64> {
        let mut w = Wanted::new();
        p.train(line, pc, &mut w);
        w.to_vec()
    }

    #[test]
    fn fires_only_when_steady_and_stays_in_the_page() {
        let mut p = IpStride::new(64, 2, 4);
        assert!(train(&mut p, 0, 7).is_empty(), "first access");
        assert!(train(&mut p, 2, 7).is_empty(), "first stride");
        assert_eq!(train(&mut p, 4, 7), [6, 8], "confirmed");
        assert!(train(&mut p, 4, 7).is_empty(), "same line");
        assert_eq!(train(&mut p, 6, 7), [10, 12]);
        assert_eq!(train(&mut p, 8, 7), [14, 16], "four strides ahead");
        for line in (10..=54).step_by(2) {
            assert_eq!(train(&mut p, line, 7), [line + 8], "and kept there");
        }
        assert!(train(&mut p, 56, 7).is_empty(), "64 is in the next page");
        for line in [58, 60, 62] {
            assert!(train(&mut p, line, 7).is_empty());
        }
        assert_eq!(train(&mut p, 64, 7), [66, 68], "where it begins anew");
    }

    #[test]
    fn a_break_costs_one_access_and_disorder_all() {
        let mut p = IpStride::new(64, 1, 1);
        for line in 0..4 {
            train(&mut p, line, 1);
        }
        assert!(train(&mut p, 1000, 1).is_empty(), "broken");
        assert_eq!(train(&mut p, 1001, 1), [1002], "the stride is still known");
        for line in [5, 77, 3, 900, 12] {
            assert!(train(&mut p, line * 64, 1).is_empty());
        }
    }

    #[test]
    fn the_least_recently_used_instruction_is_forgotten() {
        let mut p = IpStride::new(2, 1, 1);
        for line in 0..3 {
            train(&mut p, line, 1);
            train(&mut p, line + 100, 2);
        }
        train(&mut p, 0, 3); // over instruction 1
        assert_eq!(train(&mut p, 103, 2), [104]);
        assert!(train(&mut p, 3, 1).is_empty());
    }

    #[test]
    fn negative_strides_go_down() {
        let mut p = IpStride::new(4, 2, 2);
        train(&mut p, 40, 1);
        train(&mut p, 37, 1);
        assert_eq!(train(&mut p, 34, 1), [31, 28]);
    }
}
