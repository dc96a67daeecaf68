//! An op that asks the machine's shortcut, priced.

use pagewalk_memory::{Below, Done, Kind as Ask, Level, Request};
use pagewalk_stream::{Op, flags};
use pagewalk_tables::Looked;

use super::{Core, Translated, Waits};

impl Core {
    /// Does the op at which [`Core::run`] came back with [`super::Stop::Ask`]. Its
    /// result is there when all lines that `looked` names have come, and the
    /// latency has passed; the line that is written goes out at retirement. Without
    /// a reply (there is no shortcut) it is an instruction of one cycle.
    pub fn ask<B: Below>(&mut self, op: &Op, looked: Option<&Looked>, below: &mut B) {
        self.lead(op);
        let at = self.dispatch(op.insns);
        let start = at.max(self.input(op, 0)).max(self.input(op, 1));
        let now = self.cycle(start);
        let mut back = Done::new(now, Level::L1);
        for &line in looked.iter().flat_map(|l| &l.reads) {
            let done = self.request(Ask::Load, line, op.pc, now, below);
            if done.at > back.at {
                back = done;
            }
        }
        let latency = looked.map_or(1, |l| u64::from(l.latency));
        let done = start.max(back.at * self.width) + latency * self.width;
        let waits = Waits {
            start,
            translated: Translated::at(now),
            data: back,
        };
        let slot = self.retire(op.insns, at, done, waits);
        if let Some(line) = looked.and_then(|l| l.written) {
            let retired = self.cycle(slot);
            self.request(Ask::Store, line, op.pc, retired, below);
        }
        if let Some(w) = &mut self.wrong {
            w.learn(std::slice::from_ref(op));
        }
        self.done.set(self.op_count, done);
        self.op_count += 1;
        self.stats.requests += u64::from(op.flags & flags::REQUEST != 0);
    }

    /// The same between samples: what it leaves in the caches, and a clock that
    /// runs at `cpi_milli`/1000 cycles an instruction.
    pub fn warm_ask<B: Below>(
        &mut self,
        op: &Op,
        looked: Option<&Looked>,
        cpi_milli: u64,
        below: &mut B,
    ) {
        let reads = looked.iter().flat_map(|l| &l.reads);
        let written = looked.and_then(|l| l.written);
        let accesses = reads
            .map(|&at| (at, Ask::Load))
            .chain(written.map(|at| (at, Ask::Store)));
        for (at, kind) in accesses {
            let request = Request {
                at,
                kind,
                core: self.core,
                pc: op.pc,
            };
            self.private.warm(request, below);
        }
        if let Some(w) = &mut self.wrong {
            w.learn(std::slice::from_ref(op));
        }
        self.warmed += u64::from(op.insns);
        self.warm_rest += u64::from(op.insns) * cpi_milli;
        self.warmed_requests += u64::from(op.flags & flags::REQUEST != 0);
    }
}
