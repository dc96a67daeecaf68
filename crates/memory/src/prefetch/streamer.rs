//! Streams within a page: a direction, and a pointer that runs ahead of it.

use super::{PAGE_LINES_SHIFT, Recent, Wanted};

/// Saturation value of the confidence.
const MOST: u8 = 7;
/// Confidence from which the prefetcher fires.
const FIRE: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Page {
    last: u8,
    up: u8,
    down: u8,
    /// Next offset to fetch in the direction of `next_up`.
    next: i16,
    next_up: bool,
}

/// Tracks the most recently used pages. Parameters as in the released Virtuoso configuration: fires
/// at a confidence of 2 of at most 7.
#[derive(Clone, Debug)]
pub(crate) struct Streamer {
    pages: Recent<Page>,
    degree: u32,
    lookahead: i16,
}

impl Streamer {
    /// Tracks `pages` pages; at most `degree` lines an access, `lookahead` lines ahead.
    pub fn new(pages: u32, degree: u32, lookahead: u32) -> Self {
        Streamer {
            pages: Recent::new(pages as usize),
            degree,
            lookahead: lookahead as i16,
        }
    }

    /// Trains on an access to `line`. Returns true if it put lines into `wanted`.
    #[inline(never)]
    pub fn train(&mut self, line: u64, wanted: &mut Wanted) -> bool {
        let number = line >> PAGE_LINES_SHIFT;
        let first = number << PAGE_LINES_SHIFT;
        let offset = (line - first) as u8;
        let Some(p) = self.pages.get(number) else {
            self.pages.insert(
                number,
                Page {
                    last: offset,
                    up: 0,
                    down: 0,
                    next: i16::from(offset),
                    next_up: true,
                },
            );
            return false;
        };
        if offset == p.last {
            return false;
        }
        let up = offset > p.last;
        p.last = offset;
        let (with, against) = if up {
            (&mut p.up, &mut p.down)
        } else {
            (&mut p.down, &mut p.up)
        };
        *with = (*with + 1).min(MOST);
        *against = against.saturating_sub(1);
        if *with < FIRE || *with <= *against {
            return false;
        }
        let step: i16 = if up { 1 } else { -1 };
        let here = i16::from(offset);
        // The pointer is ahead of the access and at most `lookahead` from it.
        let ahead = (p.next - here) * step;
        if p.next_up != up || ahead < 1 || ahead > self.lookahead + 1 {
            p.next = here + step;
            p.next_up = up;
        }
        for _ in 0..self.degree {
            let far = (p.next - here) * step > self.lookahead;
            if far || !(0..1 << PAGE_LINES_SHIFT).contains(&p.next) {
                break;
            }
            wanted.push(first + p.next as u64);
            p.next += step;
        }
        !wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Streamer, Wanted};

    fn train(p: &mut Streamer, line: u64) -> Vec<u64> {
        let mut w = Wanted::new();
        p.train(line, &mut w);
        w.to_vec()
    }

    #[test]
    fn fires_at_confidence_two_and_runs_up_to_the_lookahead() {
        let mut p = Streamer::new(64, 2, 4);
        assert!(train(&mut p, 64).is_empty());
        assert!(train(&mut p, 65).is_empty());
        assert_eq!(train(&mut p, 66), [67, 68]);
        assert_eq!(train(&mut p, 67), [69, 70]);
        assert_eq!(train(&mut p, 68), [71, 72]);
        assert_eq!(train(&mut p, 69), [73], "four ahead, no more");
        for line in 70..128 {
            assert!(train(&mut p, line).iter().all(|l| (64..128).contains(l)));
        }
    }

    #[test]
    fn goes_down_too_and_turns_round() {
        let mut p = Streamer::new(64, 2, 4);
        train(&mut p, 40);
        train(&mut p, 39);
        assert_eq!(train(&mut p, 38), [37, 36]);
        assert!(train(&mut p, 41).is_empty(), "one up among downs");
        assert!(train(&mut p, 42).is_empty() || p.pages.get(0).is_some_and(|e| e.up > e.down));
        assert_eq!(train(&mut p, 43), [45, 46]);
    }

    #[test]
    fn pages_are_apart() {
        let mut p = Streamer::new(2, 1, 1);
        for i in 0..3 {
            train(&mut p, i);
            train(&mut p, 6400 + 10 * i);
        }
        assert_eq!(train(&mut p, 3), [4]);
        assert_eq!(train(&mut p, 6430), [6431]);
    }
}
