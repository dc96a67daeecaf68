//! Resizes under way: how lines get from the old table to the new one.

use pagewalk_units::Addr;
use rand::RngExt;

use super::{Elastic, Env, Flight, Slot, Way};
use crate::cuckoo::hash::Hash;
use crate::cuckoo::line::Format;

/// What became of one step of a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The pointer has moved.
    Done,
    /// A line found no place within the allowed re-insertions; nothing has changed.
    Stuck,
}

impl<F: Format, A: Addr> Elastic<F, A> {
    /// Moves the rehash pointer of a way whose resize is not over, chosen at
    /// random, `steps` times.
    pub(super) fn migrate(
        &mut self,
        steps: u32,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        for _ in 0..steps {
            let open = (0..self.ways.len())
                .filter(|&way| !self.arrived(way))
                .fold(0u8, |bits, way| bits | 1 << way);
            let nth = match open.count_ones() {
                0 => break,
                1 => 0,
                n => self.rng.random_range(0..n as usize),
            };
            let way = (0..self.ways.len())
                .filter(|&way| open >> way & 1 == 1)
                .nth(nth);
            let way = way.expect("one of those counted");
            if self.step(way, env, landed) == Step::Stuck {
                self.downsize_from = self.lines / 2;
                // Ways of one size stay of one size.
                self.turn_round(if self.spec.per_way { 1 << way } else { u8::MAX });
            }
            self.close(env);
        }
    }

    /// Whether nothing is left to migrate in `way`.
    fn arrived(&self, way: usize) -> bool {
        let w = &self.ways[way];
        match w.flight {
            None => true,
            Some(Flight { back: true, .. }) => w.pointer == 0,
            Some(_) => w.pointer > w.old_mask,
        }
    }

    /// Ends the resizes that have arrived: each way's, or with all ways at
    /// once when the last has.
    fn close(&mut self, env: &mut Env<'_, A>) {
        if !self.spec.per_way && !(0..self.ways.len()).all(|way| self.arrived(way)) {
            return;
        }
        for way in 0..self.ways.len() {
            if !self.arrived(way) {
                continue;
            }
            let w = &mut self.ways[way];
            let Some(flight) = w.flight.take() else {
                continue;
            };
            env.work.registers_changed = true;
            w.pointer = 0;
            if flight.back {
                w.new_mask = w.old_mask;
                if let Some(next) = w.next.take() {
                    self.give_back(way, next, env);
                }
                continue;
            }
            w.old_mask = w.new_mask;
            match w.next.take() {
                Some(next) => {
                    let old = std::mem::replace(&mut w.table, next);
                    self.give_back(way, old, env);
                }
                None if flight.up => {}
                None => {
                    let (blocks, bytes) = w.table.halve(env.frames);
                    self.gave_back(way, blocks, bytes, env);
                }
            }
        }
    }

    /// Downsizes among `ways` (a bit each) go back to where they came from;
    /// this needs no memory, and lines find their old slots free. One stays
    /// that would leave its way more than twice as large as another.
    pub(super) fn turn_round(&mut self, ways: u8) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let smallest = self.ways.iter().map(Way::slots).min().unwrap_or(0);
            let balanced = !self.spec.per_way || self.ways[way].old_mask < 2 * smallest;
            let flight = &mut self.ways[way].flight;
            if let Some(Flight { up: false, back }) = flight
                && !*back
                && balanced
            {
                *back = true;
                self.stats.turned_round += 1;
            }
        }
    }

    /// Finishes the resizes of `ways` at once; a downsize for which a line
    /// finds no place stays under way.
    pub(super) fn finish_now(
        &mut self,
        ways: u8,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            self.stats.drained += u64::from(!self.arrived(way));
            while !self.arrived(way) && self.step(way, env, landed) == Step::Done {}
        }
        self.close(env);
    }

    /// What happens to the resizes of `ways` when an upsize of them is due:
    /// one under way is finished, and a downsize turns round.
    pub(super) fn hurry(
        &mut self,
        ways: u8,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        let down = |w: &usize| {
            ways >> w & 1 == 1
                && self.ways[*w].flight
                    == Some(Flight {
                        up: false,
                        back: false,
                    })
        };
        let down = (0..self.ways.len())
            .filter(down)
            .fold(0, |bits, w| bits | 1 << w);
        self.turn_round(down);
        self.finish_now(ways & !down, env, landed);
    }

    /// Moves the rehash pointer of `way` by one slot.
    fn step(&mut self, way: usize, env: &mut Env<'_, A>, landed: &mut dyn FnMut(u64, u8)) -> Step {
        let (function, salt, ways) = (self.spec.hash, self.salt, usize::from(self.spec.ways));
        let hash = |key| Hash::new(function, key, salt).of(way, ways);
        let w = &mut self.ways[way];
        let flight = w.flight.expect("the way is being resized");
        env.work.registers_changed = true;
        let in_place = w.next.is_none();
        if flight.back {
            w.pointer -= 1;
            let (old, new) = (w.pointer, w.pointer & w.new_mask);
            let line = *w.storage(true).line(new);
            let Some(key) = F::key(&line) else {
                return Step::Done;
            };
            let home = hash(key) & w.old_mask;
            if home != old || in_place && old == new {
                return Step::Done;
            }
            *w.storage_mut(true).line_mut(new) = [0; 8];
            debug_assert_eq!(F::key(w.table.line(old)), None);
            *w.table.line_mut(old) = line;
            self.count(in_place, true, env);
            self.stats.placed(0);
            return Step::Done;
        }

        let old = w.pointer;
        w.pointer += 1;
        let line = *w.table.line(old);
        let Some(key) = F::key(&line) else {
            return Step::Done;
        };
        let new = hash(key) & w.new_mask;
        if in_place && new == old {
            self.count(in_place, false, env);
            self.stats.placed(0);
            return Step::Done;
        }
        *w.table.line_mut(old) = [0; 8];
        w.lines -= 1;
        let place = Slot {
            way: way as u8,
            new: !in_place,
            slot: new as u32,
        };
        // A larger table always has the slot free; see the module's head.
        if self.place_at(place, line).is_err() {
            let w = &mut self.ways[way];
            w.lines += 1;
            w.pointer = old;
            *w.table.line_mut(old) = line;
            return Step::Stuck;
        }
        debug_assert!(!flight.up || self.displaced.len() == 1);
        self.count(in_place, true, env);
        let kicks = self.displaced.len() as u32 - 1;
        env.work.kicks += kicks;
        if self.size.is_some() {
            env.work.lookups += kicks;
        }
        if kicks > 0 {
            self.tell(landed);
        }
        Step::Done
    }

    /// Counts a line that a resize has moved, or left where it was.
    fn count(&mut self, in_place: bool, moved: bool, env: &mut Env<'_, A>) {
        let stats = &mut self.stats;
        match (in_place, moved) {
            (true, true) => stats.moved += 1,
            (true, false) => stats.stayed += 1,
            (false, _) => stats.moved_out_of_place += 1,
        }
        env.work.moved += u32::from(moved);
    }
}
