//! What stands for a cache while its lines are followed.

use pagewalk_structures::position;

use super::{EPOCH, GUESSED, LINE_MASK, Lines, Place, Victim, is_of, print};
use crate::ordered::Ordered;
use crate::{Level, Replacement};

impl Lines {
    /// Whether [`Lines::lay_out`] tells all that there is: under LRU.
    pub fn can_be_laid_out(&self) -> bool {
        self.replacement == Replacement::Lru
    }

    /// Hands its tags over to `ordered`, which stands for it until [`Lines::take_over`].
    pub fn lay_out(&self, ordered: &mut Ordered) {
        let ways = self.state.ways();
        ordered.prepare(self.state.count(), ways);
        for set in 0..self.state.count() {
            let base = self.state.base(set);
            let words = ordered.set_mut(set);
            for way in 0..ways {
                let way = self.state.way(way);
                words[usize::from(self.state.rank(base, way))] = self.state.tag(base, way);
            }
        }
    }

    /// Holds what `ordered` does, all of it ready.
    pub fn take_over(&mut self, ordered: &Ordered) {
        for set in 0..self.state.count() {
            let base = self.state.base(set);
            for (rank, &word) in ordered.set(set).iter().enumerate() {
                let way = self.state.way(rank);
                *self.state.order(base, way) = rank as u8;
                self.state.set_print(base, way, print(word & LINE_MASK));
                let at = Place { base, way };
                *self.tag_mut(at) = word;
                *self.ready_word(at) = 0;
            }
        }
    }

    /// [`Lines::announce_ways`] of what stands for it.
    #[inline(always)]
    pub fn announce_followed(&self, ordered: &Ordered, line: u64) {
        ordered.announce(self.set(line));
    }

    /// Whether `ordered`, which stands for it, has `line`.
    #[inline(always)]
    pub fn follows(&self, ordered: &Ordered, line: u64) -> bool {
        let words = ordered.set(self.set(line));
        position(words, |word| is_of(word, line)).is_some()
    }

    /// [`Lines::find`] and [`Lines::warm_hit`] of what stands for it; whether the line is there.
    #[inline(always)]
    pub fn follow_hit(&mut self, ordered: &mut Ordered, line: u64) -> bool {
        let set = self.set(line);
        let Some(word) = ordered.renew(set, |word| is_of(word, line)) else {
            return false;
        };
        if (*word ^ self.epoch) & (GUESSED | EPOCH) != 0 {
            *word = self.used_word(*word, false);
        }
        true
    }

    /// [`Lines::set_flags`] of what stands for it, if it has the line.
    #[inline(always)]
    pub fn follow_flags(&self, ordered: &mut Ordered, line: u64, flags: u64) {
        let words = ordered.set_mut(self.set(line));
        if let Some(way) = position(words, |word| is_of(word, line)) {
            words[way] |= flags;
        }
    }

    /// [`Lines::fill`] of what stands for it, while warming.
    #[inline(always)]
    pub fn follow_fill(&mut self, ordered: &mut Ordered, line: u64, flags: u64) -> Victim {
        let word = self.warmed_word(line, flags, Level::Memory);
        let old = ordered.bring(self.set(line), word);
        if old & GUESSED != 0 {
            self.gone(old);
        }
        Victim(old)
    }
}
