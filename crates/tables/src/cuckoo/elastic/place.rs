//! Placement of a line, and re-insertion of the lines that it displaces.

use pagewalk_units::Addr;
use rand::RngExt;

use super::{CuckooSlot, Elastic, Env, Way};
use crate::Refusal;
use crate::cluster::Line;
use crate::cuckoo::hash::Hash;
use crate::cuckoo::line::Format;
use crate::cuckoo::spec::{Choice, MAX_WAYS};

/// Factor on the re-insertion limit while a resize is in progress. Beyond it
/// the resize is completed at once.
pub(super) const PATIENCE: usize = 8;

impl<F: Format, A: Addr> Elastic<F, A> {
    /// Chooses a way for a line, excluding the ways in `not` (a bit each). The
    /// choice is uniform, or weighted by free slots with per-way resizing
    /// (ME-HPT, section IV-D).
    fn choose(&mut self, not: u8) -> usize {
        let allowed = |way: &usize| not >> way & 1 == 0;
        let n = self.ways.len();
        if self.spec.per_way {
            let mut weights = [0u64; MAX_WAYS];
            let smallest = self.ways.iter().map(Way::slots).min().unwrap_or(0);
            for way in (0..n).filter(allowed) {
                let w = &self.ways[way];
                if w.slots() == smallest || !self.full(w.lines, w.slots()) {
                    weights[way] = w.slots().saturating_sub(w.lines);
                }
            }
            let sum: u64 = weights.iter().sum();
            if sum > 0 {
                let mut r = self.rng.random_range(0..sum);
                for (way, &weight) in weights.iter().enumerate() {
                    if r < weight {
                        return way;
                    }
                    r -= weight;
                }
            }
        }
        let left = (0..n).filter(allowed).count();
        let nth = self.rng.random_range(0..left);
        (0..n).filter(allowed).nth(nth).expect("one of those left")
    }

    /// Chooses a way for the line with this hash, excluding `not`.
    fn choose_for(&mut self, hash: Hash, not: Option<usize>) -> usize {
        let not = not.map_or(0, |way| 1 << way);
        if self.spec.choice == Choice::PreferEmpty {
            let taken = (0..self.ways.len())
                .filter(|&way| F::key(self.line(self.live(hash, way))).is_some())
                .fold(not, |taken: u8, way| taken | 1 << way);
            if taken.count_ones() < self.ways.len() as u32 {
                return self.choose(taken);
            }
        }
        self.choose(not)
    }

    /// Puts `line` into a way other than `from`. A displaced line moves to
    /// another way, and so on, until a slot is free. After too many
    /// displacements it returns `Err` and restores the previous state.
    ///
    /// On success `self.displaced` lists every slot that received a new line.
    /// The last one was free.
    fn place(&mut self, key: u64, line: Line, from: Option<usize>) -> Result<(), ()> {
        let way = self.choose_for(self.hash(key), from);
        self.displaced.clear();
        let start = self.live(self.hash(key), way);
        self.place_at(start, line)
    }

    /// Like [`Elastic::place`], with the first slot given.
    pub(super) fn place_at(&mut self, start: CuckooSlot, mut line: Line) -> Result<(), ()> {
        self.displaced.clear();
        let limit = self.most_kicks();
        let mut place = start;
        loop {
            std::mem::swap(self.line_mut(place), &mut line);
            self.displaced.push(place);
            let Some(key) = F::key(&line) else {
                self.ways[usize::from(place.way)].lines += 1;
                self.stats.placed(self.displaced.len() - 1);
                return Ok(());
            };
            if self.displaced.len() > limit {
                break;
            }
            let hash = self.hash(key);
            let way = self.choose_for(hash, Some(usize::from(place.way)));
            place = self.live(hash, way);
        }
        while let Some(place) = self.displaced.pop() {
            std::mem::swap(self.line_mut(place), &mut line);
        }
        self.stats.exhausted += 1;
        Err(())
    }

    /// Maximum displacements of one insertion. The limit is higher while a
    /// resize is in progress, when the remaining old slots are crowded.
    fn most_kicks(&self) -> usize {
        let times = if self.ways_resizing() == 0 {
            1
        } else {
            PATIENCE
        };
        times * self.spec.max_kicks as usize
    }

    /// Inserts `line`. Makes room whenever the re-insertion limit is exceeded.
    pub(super) fn place_or_resize(
        &mut self,
        key: u64,
        line: Line,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) -> Result<CuckooSlot, Refusal> {
        while self.place(key, line, None).is_err() {
            env.work.kicks += self.most_kicks() as u32;
            self.make_room(env, landed)?;
        }
        let kicks = self.displaced.len() as u32 - 1;
        env.work.kicks += kicks;
        if self.size.is_some() {
            env.work.lookups += kicks;
        }
        Ok(self.displaced[0])
    }
}
