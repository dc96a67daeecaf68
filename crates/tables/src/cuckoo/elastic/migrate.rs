//! Migration: moving lines from the old to the new table during a resize.

use pagewalk_units::Addr;
use rand::RngExt;

use super::{CuckooSlot, Elastic, Env, Resize, Way};
use crate::cuckoo::hash::Hash;
use crate::cuckoo::line::Format;
use crate::cuckoo::spec::WhenDue;

/// Outcome of one migration step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MigrationStep {
    /// The rehash pointer has moved.
    Done,
    /// A line found no slot within the re-insertion limit. Nothing has changed.
    Stuck,
}

impl<F: Format, A: Addr> Elastic<F, A> {
    /// The migration work of one insertion. Advances the rehash pointers of
    /// randomly chosen ways with unfinished resizes, by as many steps as are due.
    pub(super) fn migrate(&mut self, env: &mut Env<'_, A>, landed: &mut dyn FnMut(u64, u8)) {
        self.owed += self.spec.migrated_per_insertion;
        let steps = self.owed as u32;
        self.owed -= f64::from(steps);
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
            if self.step(way, env, landed) == MigrationStep::Stuck {
                self.downsize_from = self.lines / 2;
                // Reverse all ways together, so that ways of equal size keep equal
                // sizes.
                self.turn_round(if self.spec.per_way { 1 << way } else { u8::MAX });
            }
            self.close(env);
        }
    }

    /// True if `way` has nothing left to migrate.
    fn arrived(&self, way: usize) -> bool {
        let w = &self.ways[way];
        match w.resize {
            None => true,
            Some(Resize { back: true, .. }) => w.pointer == 0,
            Some(_) => w.pointer > w.old_mask,
        }
    }

    /// Completes finished resizes: each way on its own, or all ways together after
    /// the last one has finished.
    fn close(&mut self, env: &mut Env<'_, A>) {
        if !self.spec.per_way && !(0..self.ways.len()).all(|way| self.arrived(way)) {
            return;
        }
        for way in 0..self.ways.len() {
            if !self.arrived(way) {
                continue;
            }
            let w = &mut self.ways[way];
            let Some(resize) = w.resize.take() else {
                continue;
            };
            env.work.registers_changed = true;
            w.pointer = 0;
            if resize.back {
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
                    if resize.unlisted {
                        self.list(way, env);
                    }
                }
                None if resize.up => {}
                None => {
                    let (blocks, bytes) = w.table.halve(env.frames);
                    self.release_entries(way, blocks, bytes, env);
                }
            }
        }
    }

    /// Reverses the downsizes among `ways` (a bit each). Reversal needs no memory,
    /// and lines find their old slots free. A downsize is not reversed if its way
    /// would become more than twice as large as another.
    pub(super) fn turn_round(&mut self, ways: u8) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            let smallest = self.ways.iter().map(Way::slots).min().unwrap_or(0);
            let balanced = !self.spec.per_way || self.ways[way].old_mask < 2 * smallest;
            let resize = &mut self.ways[way].resize;
            if let Some(Resize {
                up: false, back, ..
            }) = resize
                && !*back
                && balanced
            {
                *back = true;
                self.stats.turned_round += 1;
            }
        }
    }

    /// Completes the resizes of `ways` at once. A downsize in which a line finds no
    /// slot stays in progress.
    pub(super) fn finish_now(
        &mut self,
        ways: u8,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            self.stats.drained += u64::from(!self.arrived(way));
            while !self.arrived(way) && self.step(way, env, landed) == MigrationStep::Done {}
        }
        self.close(env);
    }

    /// Completes chunk-size changes whose new chunks have no L2P entries yet. These
    /// are always upsizes, so lines find their slots free.
    pub(super) fn change_at_once(&mut self, env: &mut Env<'_, A>, landed: &mut dyn FnMut(u64, u8)) {
        let unlisted = |w: &Way<A>| u8::from(w.resize.is_some_and(|f| f.unlisted));
        let ways = (self.ways.iter().enumerate()).fold(0, |bits, (i, w)| bits | unlisted(w) << i);
        if ways == 0 {
            return;
        }
        self.stats.changed_at_once += u64::from(ways.count_ones());
        // Ways that are resized together also finish together.
        let ways = if self.spec.per_way { ways } else { u8::MAX };
        for way in (0..self.ways.len()).filter(|way| ways >> way & 1 == 1) {
            while !self.arrived(way) && self.step(way, env, landed) == MigrationStep::Done {}
        }
        self.close(env);
    }

    /// Handles resizes in progress among `ways` when an upsize is due. A downsize
    /// is reversed. An upsize is completed or left in progress, depending on
    /// `when_due`.
    pub(super) fn hurry(
        &mut self,
        ways: u8,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        let down = |w: &usize| ways >> w & 1 == 1 && self.ways[*w].resize == Some(Resize::DOWN);
        let down = (0..self.ways.len())
            .filter(down)
            .fold(0, |bits, w| bits | 1 << w);
        self.turn_round(down);
        if self.spec.when_due == WhenDue::Finish {
            self.finish_now(ways & !down, env, landed);
        }
    }

    /// Advances the rehash pointer of `way` by one slot.
    fn step(
        &mut self,
        way: usize,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) -> MigrationStep {
        let (function, salt, ways) = (self.spec.hash, self.salt, usize::from(self.spec.ways));
        let hash = |key| Hash::new(function, key, salt).of(way, ways);
        let w = &mut self.ways[way];
        let resize = w.resize.expect("the way is being resized");
        env.work.registers_changed = true;
        let in_place = w.next.is_none();
        if resize.back {
            w.pointer -= 1;
            let (old, new) = (w.pointer, w.pointer & w.new_mask);
            let line = *w.storage(true).line(new);
            let Some(key) = F::key(&line) else {
                return MigrationStep::Done;
            };
            let home = hash(key) & w.old_mask;
            if home != old || in_place && old == new {
                return MigrationStep::Done;
            }
            *w.storage_mut(true).line_mut(new) = [0; 8];
            debug_assert_eq!(F::key(w.table.line(old)), None);
            *w.table.line_mut(old) = line;
            self.count(in_place, true, env);
            self.stats.placed(0);
            return MigrationStep::Done;
        }

        let old = w.pointer;
        w.pointer += 1;
        let line = *w.table.line(old);
        let Some(key) = F::key(&line) else {
            return MigrationStep::Done;
        };
        let new = hash(key) & w.new_mask;
        if in_place && new == old {
            self.count(in_place, false, env);
            self.stats.placed(0);
            return MigrationStep::Done;
        }
        *w.table.line_mut(old) = [0; 8];
        w.lines -= 1;
        let place = CuckooSlot {
            way: way as u8,
            new: !in_place,
            slot: new as u32,
        };
        // In a larger table the slot is always free; see the module documentation.
        if self.place_at(place, line).is_err() {
            let w = &mut self.ways[way];
            w.lines += 1;
            w.pointer = old;
            *w.table.line_mut(old) = line;
            return MigrationStep::Stuck;
        }
        debug_assert!(!resize.up || self.displaced.len() == 1);
        self.count(in_place, true, env);
        let kicks = self.displaced.len() as u32 - 1;
        env.work.kicks += kicks;
        if self.size.is_some() {
            env.work.lookups += kicks;
        }
        if kicks > 0 {
            self.report_displaced(landed);
        }
        MigrationStep::Done
    }

    /// Counts a line that a resize has moved or left in place.
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
