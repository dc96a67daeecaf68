//! The timing of an op that queries the machine's shortcut.

use pagewalk_memory::{Below, Done, Level, Request, RequestKind};
use pagewalk_stream::{Op, flags};
use pagewalk_tables::{QueryResult, Unit};

use super::{Core, CoreContext, Waits};

impl Core {
    /// Executes the op at which [`Core::run`] ended with [`super::Stop::Query`].
    ///
    /// The latency of `query_result` begins when all lines that it reads have arrived (unless it is
    /// `at_once`), and its `walk_latency` when its walk has ended, if there is one. The result is ready
    /// after both. A line that the query writes is requested at retirement. Without a shortcut there
    /// is no `query_result`, and the op is an instruction of one cycle.
    pub fn run_query<B: Below>(
        &mut self,
        op: &Op,
        query_result: Option<&QueryResult>,
        mut context: CoreContext<'_, B>,
    ) {
        self.dispatch_preceding(op, context.below);
        let at = self.dispatch(op.insns);
        let start = self.after_inputs(op, at);
        let now = self.cycle(start.real);
        let asid = context.asid;
        let unit = query_result.map_or(Unit::Nothing, |l| l.unit);
        let query = self.mmu.begin_query(
            &unit,
            asid,
            now,
            &mut context.walk_context(&mut self.private),
        );
        let mut back = Done::new(query.start, Level::L1);
        for &line in query_result.iter().flat_map(|l| &l.reads) {
            let done = self.request(RequestKind::Load, line, op.pc, query.start, context.below);
            if done.at > back.at && !query_result.is_some_and(|l| l.at_once) {
                back = done;
            }
        }
        let (began, known) = query.walk;
        let latency = query_result.map_or(1, |l| u64::from(l.latency));
        let arrived = start.max(start.moved_to(back.at * self.width));
        let mut done = arrived + latency * self.width;
        if known > back.at {
            let after_walk = query_result.map_or(1, |l| u64::from(l.walk_latency));
            let walked = start.real.max(known * self.width) + after_walk * self.width;
            done.real = done.real.max(walked);
            let waited = self.translation_wait(now, began, known);
            self.record_wait(done, &waited);
        }
        let waits = || Waits::until(arrived, start, back.level);
        let slot = self.retire(op.insns, at, done, waits);
        let mut written = self.cycle(slot.real);
        if let Some(line) = query_result.and_then(|l| l.written) {
            let request = self.request(RequestKind::Store, line, op.pc, written, context.below);
            written = request.at;
        }
        let result_ready = self.cycle(done.real);
        self.mmu
            .end_query(&unit, asid, query, (result_ready, written));
        if let Some(w) = &mut self.wrong {
            w.learn(std::slice::from_ref(op));
        }
        self.complete(done);
        self.stats.requests += u64::from(op.flags & flags::REQUEST != 0);
    }

    /// Functional warming of a query: updates the caches and the core's STLT unit. The clock runs
    /// at `cpi_milli`/1000 cycles an instruction.
    pub fn warm_query<B: Below>(
        &mut self,
        op: &Op,
        query_result: Option<&QueryResult>,
        cpi_milli: u64,
        mut context: CoreContext<'_, B>,
    ) {
        if let Some(query_result) = query_result {
            let asid = context.asid;
            let mut walk_context = context.walk_context(&mut self.private);
            self.mmu
                .warm_query(&query_result.unit, asid, &mut walk_context);
        }
        let reads = query_result.iter().flat_map(|l| &l.reads);
        let written = query_result.and_then(|l| l.written);
        let accesses = reads
            .map(|&at| (at, RequestKind::Load))
            .chain(written.map(|at| (at, RequestKind::Store)));
        for (at, kind) in accesses {
            let request = Request {
                at,
                kind,
                core: self.core,
                pc: op.pc,
            };
            self.private.warm(request, context.below);
        }
        if let Some(w) = &mut self.wrong {
            w.learn(std::slice::from_ref(op));
        }
        self.warmed += u64::from(op.insns);
        self.warm_rest += u64::from(op.insns) * cpi_milli;
        self.warmed_requests += u64::from(op.flags & flags::REQUEST != 0);
    }
}
