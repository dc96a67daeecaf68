//! Loads and stores.

use pagewalk_memory::{Below, Done, Level, Request, RequestKind};
use pagewalk_mmu::{Fault, Lookup, Translated};
use pagewalk_stream::{Op, flags};
use pagewalk_units::{Access, Cycle, LINE_BYTES, LINE_SHIFT, PhysAddr, VirtAddr};

use super::{Core, CoreContext, Waits};
use crate::cycle_stack::{Cause, TranslationWait};
use crate::ports::Operation;
use crate::time::Time;

impl Core {
    /// Runs a load.
    #[inline(never)]
    pub(super) fn load<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        self.dispatch_preceding(op, context.below);
        let oldest = self.load_count.wrapping_sub(self.load_queue);
        self.next = self.next.max(self.loads.get(oldest as usize));
        let at = self.dispatch(op.insns);
        let start = self.after_fence(op, at, context.below);
        let start = self.after_inputs(op, start);
        let (low, high) = bytes(op);
        let (start, requested) = self.start(Operation::Load, start);
        let line = op.va >> LINE_SHIFT;
        // Slot in which an older store of the same data has them.
        let mut stored = Time::default();
        let (known, walk_start, data);
        if high >= LINE_BYTES {
            let t;
            (t, data) = self.split_load(op, requested, context)?;
            (known, walk_start) = (t.ready, t.walk_start);
        } else {
            let t = self.translate(op.va, Access::Read, op.pc, requested, context)?;
            (known, walk_start) = (t.ready, t.walk_start);
            if let Some(s) = self.stores.forward(line, low as u8, high as u8, requested) {
                self.stats.forwarded_loads += 1;
                stored = s;
                let at = t.ready.max(self.cycle(s.real)) + self.forwarding;
                data = Done::new(at, Level::L1);
            } else {
                data = self.request(RequestKind::Load, t.pa, op.pc, t.ready, context.below);
            }
        }
        // Nearly all loads take the latency of a hit.
        let done = if data.at == requested + self.load_to_use && stored.real == 0 {
            let done = start.delayed_to(data.at * self.width);
            let waits = || Waits::until(done, start, data.level);
            let slot = self.retire(op.insns, at, done, waits);
            self.add_load(slot);
            done
        } else {
            if data.at != requested + self.load_to_use {
                self.long_loads.record(data.at - requested);
                self.stats.load_translation_cycles += known - requested;
                if walk_start < known {
                    let entries = self.mmu.walk_read_memory();
                    self.walked_loads.count(entries, data.level);
                }
            }
            let waited = self.translation_wait(requested, walk_start, known);
            self.long_load(op, at, start, stored, &waited, &data)
        };
        self.complete(done);
        if self.orders(op) {
            self.fenced = self.fenced.max(done);
        } else if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        Ok(())
    }

    /// The wait of a data access for its translation.
    #[inline(always)]
    pub(super) fn translation_wait(
        &self,
        requested: Cycle,
        walk_start: Cycle,
        known: Cycle,
    ) -> TranslationWait {
        TranslationWait {
            requested,
            lookup_done: requested + self.mmu.tlb_lookup_done(Access::Read),
            walk_start,
            known,
        }
    }

    /// Retires a load that is dispatched at `at`, begins at `start` and is no hit. Returns the slot
    /// in which it is done. Data of an older store are known in slot `stored`; 0 if there is none.
    #[inline(never)]
    fn long_load(
        &mut self,
        op: &Op,
        at: Time,
        start: Time,
        stored: Time,
        waited: &TranslationWait,
        data: &Done,
    ) -> Time {
        let width = self.width;
        let real = data.at * width;
        // Accesses begin with a cycle.
        let begin = start.moved_to(waited.requested * width).ideal;
        let (admitted, ideal) = if stored.real != 0 {
            let known = begin.max(self.cycle(stored.ideal) * width);
            (begin, known + self.forwarding * width)
        } else {
            self.ideal_arrival(op.va >> LINE_SHIFT, begin, waited.known, data)
        };
        let done = Time {
            real,
            ideal: ideal.min(real),
        };
        self.record_wait(done, waited);
        let waits = || Waits {
            start: start.ideal,
            admitted,
            queued: admitted + u64::from(data.queued) * width,
            data: done.ideal,
            level: data.level,
        };
        let slot = self.retire(op.insns, at, done, waits);
        self.add_load(slot);
        done
    }

    /// Adds a load that retires in `slot`.
    #[inline(always)]
    pub(super) fn add_load(&mut self, slot: Time) {
        self.loads.set(self.load_count as usize, slot);
        self.load_count += 1;
    }

    /// Slots of the ideal clock in which a request for `line` finds a free MSHR, and in which the
    /// line arrives. The request begins in slot `begin`; in the real clock, in cycle `requested`.
    ///
    /// A line that an older access has requested arrives for both. A miss waits until one of the
    /// older misses releases its MSHR. All other latencies are those of the real clock.
    fn ideal_arrival(
        &mut self,
        line: u64,
        begin: u64,
        requested: Cycle,
        data: &Done,
    ) -> (u64, u64) {
        let width = self.width;
        let real = data.at * width;
        if let Some(arrival) = self.misses.requested(line, real) {
            return (
                begin,
                arrival.max(begin + self.load_to_use * width).min(real),
            );
        }
        let total = data.at - requested;
        if !data.missed {
            return (begin, begin + total * width);
        }
        let held = total.min(data.held.into());
        let mut admitted = begin;
        if held != 0 {
            let release = (requested + held) * width;
            admitted = admitted.max(self.misses.released().moved_to(release).ideal);
        }
        let latest = real - (total - held) * width;
        let mshr = self.misses.mshrs.admit(self.cycle(admitted));
        admitted = admitted.max(mshr.start * width).min(latest);
        let ideal = admitted + (total - held) * width;
        let until = self.cycle(ideal);
        self.misses.add(line, mshr, until, Time { real, ideal });
        (admitted, ideal)
    }

    /// Runs a store. It is done when its address is translated and its data are ready.
    #[inline(never)]
    pub(super) fn store<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        self.dispatch_preceding(op, context.below);
        let room = self.stores.room();
        if room.exceeds(self.next) {
            self.stall(room, Cause::StoreQueue);
        }
        let at = self.dispatch(op.insns);
        let start = self.after_fence(op, at, context.below);
        let start = self.after_input(op, 0, start);
        let data = self.after_input(op, 1, at);
        let (start, requested) = self.start(Operation::Store, start);
        let (low, high) = bytes(op);
        let split = high >= LINE_BYTES;
        let t = self.translate(op.va, Access::Write, op.pc, requested, context)?;
        let (mut known, mut walk_start) = (t.ready, t.walk_start);
        let mut second = PhysAddr(0);
        if split {
            let u = self.translate_second(op, &t, Access::Write, requested, context)?;
            second = u.pa;
            if u.ready > known {
                (known, walk_start) = (u.ready, u.walk_start);
            }
        }
        // Address and data of a store become ready independently: the later one completes it.
        let mut done = data.max(start);
        if known > requested {
            done.real = done.real.max(known * self.width);
            let waited = self.translation_wait(requested, walk_start, known);
            self.record_wait(done, &waited);
        }
        self.complete(done);
        let slot = self.retire_executed(op.insns, at, done);
        // The line is requested at retirement; stores are written in order, one a cycle.
        let retirement = self.cycles(slot);
        let retired = retirement.real;
        let mut written = if op.flags & flags::NON_TEMPORAL == 0 {
            self.request(RequestKind::Store, t.pa, op.pc, retired, context.below)
                .at
        } else {
            let within = (low as u8, high.min(LINE_BYTES - 1) as u8);
            self.store_past_caches(t.pa, within, retired, context.below)
        };
        if split {
            let rest = if op.flags & flags::NON_TEMPORAL == 0 {
                self.request(RequestKind::Store, second, op.pc, retired, context.below)
                    .at
            } else {
                let within = (0, (high - LINE_BYTES) as u8);
                self.store_past_caches(second, within, retired, context.below)
            };
            written = written.max(rest);
            self.stats.split_accesses += 1;
        }
        let line = op.va >> LINE_SHIFT;
        let together = match &mut self.ports {
            Some(ports) => ports.writes_with_last(line),
            None => false,
        };
        let in_order = self.stores.last_commit + u64::from(!together);
        let commit = retirement.moved_to(written).max(in_order);
        self.stores.last_commit = commit;
        self.stores.enter(commit * self.width);
        let within = high.min(LINE_BYTES - 1) as u8;
        self.stores
            .write(line, low as u8, within, data, commit.real);
        if split {
            let rest = (high - LINE_BYTES) as u8;
            self.stores.write(line + 1, 0, rest, data, commit.real);
        }
        if op.flags & flags::SERIALISING != 0 && !self.orders(op) {
            self.stall(commit * self.width, Cause::StoreQueue);
        }
        Ok(())
    }

    /// Translates `va` for the instruction at `pc`, from `now` on.
    #[inline(always)]
    pub(super) fn translate<B: Below>(
        &mut self,
        va: u64,
        access: Access,
        pc: u64,
        now: Cycle,
        context: &mut CoreContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let lookup = Lookup {
            asid: context.asid,
            va: VirtAddr(va),
            access,
            pc,
            now,
        };
        let walk_context = context.walk_context(&mut self.private);
        let t = self.mmu.translate(lookup, walk_context);
        // The op will run again, without its simple instructions.
        self.resumes |= t.is_err();
        t
    }

    /// Requests a line from the core's caches at `now`.
    #[inline(always)]
    pub(super) fn request<B: Below>(
        &mut self,
        kind: RequestKind,
        at: PhysAddr,
        pc: u64,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let request = Request {
            at,
            kind,
            core: self.core,
            pc,
        };
        self.private.access(request, now, below)
    }

    /// Translates the second line of an access whose first line is at `first`.
    #[cold]
    pub(super) fn translate_second<B: Below>(
        &mut self,
        op: &Op,
        first: &Translated,
        access: Access,
        now: Cycle,
        context: &mut CoreContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let va = (op.va | (LINE_BYTES - 1)) + 1;
        if va & 0xfff != 0 {
            let pa = PhysAddr((first.pa.0 | (LINE_BYTES - 1)) + 1);
            return Ok(Translated { pa, ..*first });
        }
        self.translate(va, access, op.pc, now, context)
    }

    /// Runs a load that spans two lines. Returns the later translation and the later line.
    #[cold]
    pub(super) fn split_load<B: Below>(
        &mut self,
        op: &Op,
        requested: Cycle,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(Translated, Done), Fault> {
        let t = self.translate(op.va, Access::Read, op.pc, requested, context)?;
        let u = self.translate_second(op, &t, Access::Read, requested, context)?;
        self.start(Operation::Load, Time::both(requested * self.width));
        self.stats.split_accesses += 1;
        let later = if u.ready > t.ready { u } else { t };
        let (low, high) = bytes(op);
        let line = op.va >> LINE_SHIFT;
        // Each line comes from an older store if that writes some of its bytes, else from the
        // caches.
        let stores = &self.stores;
        let halves = [
            stores.forward(line, low as u8, LINE_BYTES as u8 - 1, requested),
            stores.forward(line + 1, 0, (high - LINE_BYTES) as u8, requested),
        ];
        let mut half = |data: Option<Time>, t: &Translated| match data {
            Some(data) => {
                let data = self.cycle(data.real);
                Done::new(t.ready.max(data) + self.forwarding, Level::L1)
            }
            None => self.request(RequestKind::Load, t.pa, op.pc, t.ready, context.below),
        };
        let (a, b) = (half(halves[0], &t), half(halves[1], &u));
        self.stats.forwarded_loads += u64::from(halves.iter().any(Option::is_some));
        let last = if b.at > a.at { b } else { a };
        Ok((later, last))
    }
}

/// First and last byte of an access, relative to the start of its first line.
#[inline]
pub(super) fn bytes(op: &Op) -> (u64, u64) {
    let low = op.va & (LINE_BYTES - 1);
    (low, low + u64::from(op.size).clamp(1, LINE_BYTES) - 1)
}
