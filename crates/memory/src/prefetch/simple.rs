//! Sniper's prefetcher "simple" (`simple_prefetcher.cc`): keeps the last lines of a few flows. An
//! access continues the nearest flow.

use super::{PAGE_LINES_SHIFT, Wanted};

/// Lines of a page: an access further than this from a flow does not continue it.
const FAR: u64 = 1 << PAGE_LINES_SHIFT;
/// Lines of 52-bit physical addresses; lines beyond are not fetched.
const LINES: u64 = 1 << 46;

/// The flows. An access that continues none replaces one round-robin. Its stride is then the
/// distance to that unrelated line, as in Sniper's code.
#[derive(Clone, Debug)]
pub(crate) struct Simple {
    last: Vec<Option<u64>>,
    /// The flow to replace next; advances with every access.
    turn: usize,
    degree: u32,
    within_page: bool,
}

impl Simple {
    /// Tracks `flows` flows and prefetches `degree` strides, if `within_page` only those in the
    /// page.
    pub fn new(flows: u32, degree: u32, within_page: bool) -> Self {
        Simple {
            last: vec![None; flows as usize],
            turn: 0,
            degree,
            within_page,
        }
    }

    /// Trains on an access to `line`. Prefetches only if it `missed` or is the first to a
    /// prefetched line. Returns true if it put lines into `wanted`.
    #[inline(never)]
    pub fn train(&mut self, line: u64, missed: bool, wanted: &mut Wanted) -> bool {
        let mut flow = self.turn;
        self.turn = (self.turn + 1) % self.last.len();
        let mut nearest = FAR;
        for (i, last) in self.last.iter().enumerate() {
            if let Some(last) = last
                && line.abs_diff(*last) < nearest
            {
                (flow, nearest) = (i, line.abs_diff(*last));
            }
        }
        let Some(last) = self.last[flow].replace(line) else {
            return false;
        };
        let stride = line.wrapping_sub(last) as i64;
        if stride == 0 || !missed {
            return false;
        }
        let mut to = line;
        for _ in 0..self.degree {
            to = to.wrapping_add_signed(stride);
            let same_page = to >> PAGE_LINES_SHIFT == line >> PAGE_LINES_SHIFT;
            if to >= LINES || self.within_page && !same_page {
                break;
            }
            wanted.push(to);
        }
        !wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Simple, Wanted};

    fn train(p: &mut Simple, line: u64, missed: bool) -> Vec<u64> {
        let mut w = Wanted::new();
        p.train(line, missed, &mut w);
        w.to_vec()
    }

    #[test]
    fn the_second_access_of_a_flow_has_a_stride() {
        let mut p = Simple::new(16, 3, true);
        assert!(train(&mut p, 1000, true).is_empty());
        assert_eq!(train(&mut p, 1002, true), [1004, 1006, 1008]);
        assert!(train(&mut p, 1002, true).is_empty(), "the same line again");
        assert_eq!(train(&mut p, 1005, true), [1008, 1011, 1014]);
        assert_eq!(
            train(&mut p, 990, true),
            [975, 960],
            "down to the page's first"
        );
    }

    #[test]
    fn a_hit_trains_and_prefetches_nothing() {
        let mut p = Simple::new(16, 1, true);
        train(&mut p, 10, true);
        assert!(train(&mut p, 11, false).is_empty());
        assert_eq!(
            train(&mut p, 13, true),
            [15],
            "two from 11, not three from 10"
        );
    }

    #[test]
    fn flows_go_on_side_by_side_with_the_nearest() {
        let mut p = Simple::new(2, 1, true);
        train(&mut p, 6400, true);
        train(&mut p, 64_000, true);
        assert_eq!(train(&mut p, 6401, true), [6402]);
        assert_eq!(train(&mut p, 64_002, true), [64_004]);
        // A distance of 64 lines is a page: the access continues no flow.
        assert!(train(&mut p, 6401 + 64, true).is_empty());
    }

    #[test]
    fn beyond_pages_a_new_flow_has_the_distance_to_the_one_that_it_replaces() {
        let mut p = Simple::new(1, 2, false);
        assert!(train(&mut p, 1000, true).is_empty());
        assert_eq!(train(&mut p, 5000, true), [9000, 13_000]);
        assert!(train(&mut p, 100, true).is_empty(), "below the first line");
        let mut p = Simple::new(1, 2, true);
        train(&mut p, 1000, true);
        assert!(train(&mut p, 5000, true).is_empty(), "not within the page");
    }
}
