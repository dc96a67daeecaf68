//! Loads and stores.

use pagewalk_memory::{Below, Done, Level, Request, RequestKind};
use pagewalk_mmu::{Fault, Lookup, Translated};
use pagewalk_stream::{Op, flags};
use pagewalk_units::{Access, Cycle, LINE_BYTES, LINE_SHIFT, PhysAddr, VirtAddr};

use super::{Core, CoreContext, TranslationWait, Waits};
use crate::cycle_stack::Cause;
use crate::ports::Operation;

impl Core {
    /// Runs a load. Returns the slot in which its data are ready.
    #[inline]
    pub(super) fn load<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<u64, Fault> {
        self.dispatch_preceding(op, context.below);
        let oldest = self.load_count.wrapping_sub(self.load_queue);
        self.next = self.next.max(self.loads.get(oldest as usize));
        let at = self.dispatch(op.insns);
        let start = self.after_fence(op, at, context.below);
        let start = start.max(self.input(op, 0)).max(self.input(op, 1));
        let (low, high) = bytes(op);
        let (start, requested) = self.start(Operation::Load, start);
        let (translated, data);
        if high >= LINE_BYTES {
            (translated, data) = self.split_load(op, requested, context)?;
        } else {
            let t = self.translate(op.va, Access::Read, op.pc, requested, context)?;
            translated = TranslationWait::of(&t);
            let line = op.va >> LINE_SHIFT;
            if let Some(stored) = self.stores.forward(line, low as u8, high as u8, requested) {
                self.stats.forwarded_loads += 1;
                data = Done::new(t.ready.max(stored) + self.forwarding, Level::L1);
            } else {
                data = self.request(RequestKind::Load, t.pa, op.pc, t.ready, context.below);
            }
        }
        // Nearly all loads take the latency of a hit, so only the others are recorded.
        if data.at != requested + self.load_to_use {
            self.long_loads.record(data.at - requested);
            self.stats.load_translation_cycles += translated.known - requested;
            if translated.walk_start < translated.known {
                let entries = self.mmu.walk_read_memory();
                self.walked_loads.count(entries, data.level);
            }
        }
        let done = data.at * self.width;
        let waits = Waits {
            start,
            translated,
            data,
        };
        let slot = self.retire(op.insns, at, done, waits);
        self.loads.set(self.load_count as usize, slot);
        self.load_count += 1;
        if self.orders(op) {
            self.fenced = self.fenced.max(done);
        } else if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        Ok(done)
    }

    /// Runs a store. Returns the slot in which its address is translated and its data are ready.
    #[inline]
    pub(super) fn store<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<u64, Fault> {
        self.dispatch_preceding(op, context.below);
        let room = self.stores.room();
        if room > self.next {
            self.stall(room, Cause::StoreQueue);
        }
        let at = self.dispatch(op.insns);
        let start = self
            .after_fence(op, at, context.below)
            .max(self.input(op, 0));
        let data = at.max(self.input(op, 1));
        let (start, requested) = self.start(Operation::Store, start);
        let (low, high) = bytes(op);
        let split = high >= LINE_BYTES;
        let t = self.translate(op.va, Access::Write, op.pc, requested, context)?;
        let mut translated = TranslationWait::of(&t);
        let mut second = PhysAddr(0);
        if split {
            let u = self.translate_second(op, &t, Access::Write, requested, context)?;
            second = u.pa;
            if u.ready > translated.known {
                translated = TranslationWait::of(&u);
            }
        }
        let known = translated.known * self.width;
        let done = data.max(start).max(known);
        // Address and data of a store become ready independently: the later one completes it.
        let slot = if data > known || translated.known == requested {
            self.retire_executed(op.insns, at, done)
        } else {
            let waits = Waits {
                start,
                translated,
                data: Done::new(0, Level::L1),
            };
            self.retire(op.insns, at, done, waits)
        };
        // The line is requested at retirement; stores are written in order, one a cycle.
        let retired = self.cycle(slot);
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
        let commit = written.max(self.stores.last_commit + u64::from(!together));
        self.stores.last_commit = commit;
        self.stores.enter(commit * self.width);
        let ready = self.cycle(data);
        let within = high.min(LINE_BYTES - 1) as u8;
        self.stores.write(line, low as u8, within, ready, commit);
        if split {
            let rest = (high - LINE_BYTES) as u8;
            self.stores.write(line + 1, 0, rest, ready, commit);
        }
        if op.flags & flags::SERIALISING != 0 && !self.orders(op) {
            self.stall(commit * self.width, Cause::StoreQueue);
        }
        Ok(done)
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
    ) -> Result<(TranslationWait, Done), Fault> {
        let t = self.translate(op.va, Access::Read, op.pc, requested, context)?;
        let u = self.translate_second(op, &t, Access::Read, requested, context)?;
        self.start(Operation::Load, requested * self.width);
        self.stats.split_accesses += 1;
        let later = if u.ready > t.ready { &u } else { &t };
        let (low, high) = bytes(op);
        let line = op.va >> LINE_SHIFT;
        // Each line comes from an older store if that writes some of its bytes, else from the
        // caches.
        let stores = &self.stores;
        let halves = [
            stores.forward(line, low as u8, LINE_BYTES as u8 - 1, requested),
            stores.forward(line + 1, 0, (high - LINE_BYTES) as u8, requested),
        ];
        let mut half = |data: Option<Cycle>, t: &Translated| match data {
            Some(data) => Done::new(t.ready.max(data) + self.forwarding, Level::L1),
            None => self.request(RequestKind::Load, t.pa, op.pc, t.ready, context.below),
        };
        let (a, b) = (half(halves[0], &t), half(halves[1], &u));
        self.stats.forwarded_loads += u64::from(halves.iter().any(Option::is_some));
        let last = if b.at > a.at { b } else { a };
        Ok((TranslationWait::of(later), last))
    }
}

/// First and last byte of an access, relative to the start of its first line.
#[inline]
pub(super) fn bytes(op: &Op) -> (u64, u64) {
    let low = op.va & (LINE_BYTES - 1);
    (low, low + u64::from(op.size).clamp(1, LINE_BYTES) - 1)
}
