//! A core's hardware for an STLT (section III-D): the translation buffer (STB), the buffer of
//! invalid pages (IPB), the insertion buffer, and the walks of insertions.
//!
//! Each core's IPB always equals the kernel's array of invalid pages of the process. The kernel
//! changes all of them together, and refills a core's IPB when the core switches to the process.
//! The simulator therefore keeps one copy, in the kernel. The kernel has checked that copy before a
//! query reaches this unit, so the unit only counts the IPB's lookups.

use pagewalk_memory::Below;
use pagewalk_stats::Tree;
use pagewalk_structures::{Occupancy, OccupancySlot};
use pagewalk_tables::{StltPage, Unit};
use pagewalk_units::{Asid, Cycle, PhysAddr, VirtAddr};

use super::{Mmu, WalkContext};
use crate::mapping::Mapping;
use crate::source::Entry;
use crate::source::stb::Stb;

/// Entries of an insertion buffer (table I; the text says 16).
pub const INSERTIONS: usize = 8;

pagewalk_stats::counters! {
    /// Counters of one core's timed `loadVA` and `insertSTLT` instructions.
    pub struct StltUnitStats {
        loads: "instructions", "loadVA instructions executed";
        inserts: "instructions", "insertSTLT instructions executed";
        load_wait_cycles: "cycles", "Sum of the times that loadVA waited for an insertion in progress into the row that it found";
        insert_wait_cycles: "cycles", "Sum of the times that insertSTLT waited for a free entry of the insertion buffer";
        walks: "walks", "Page walks of insertSTLT, including those that found no page; not among the MMU's walks";
        walk_faults: "walks", "Page walks of insertSTLT that found no page. The insertion is dropped without a fault";
        walk_cycles: "cycles", "Sum of the latencies of insertSTLT's walks, from the start in a walker to the outcome";
        walker_wait_cycles: "cycles", "Sum of the times that insertSTLT's walks waited for a free walker";
        walk_reads: "reads", "Page-table reads of insertSTLT's walks; not among the MMU's walk_reads";
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's IPB.
    pub struct IpbStats {
        lookups: "lookups", "Lookups by loadVA that found a row and checked its page against the invalid pages";
        hits: "lookups", "Lookups that found the page invalid; the result is 0";
        fills: "entries", "Pages entered by the kernel: pages that it changed, and those of a process's array when the core switched to the process";
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's insertion buffer.
    pub struct InsertionBufferStats {
        lookups: "lookups", "Lookups by loadVA for an insertion in progress";
        fills: "entries", "Insertions that occupied an entry";
    }
}

/// A core's STLT unit.
pub(super) struct StltUnit {
    /// The STB among the MMU's sources. Without one, rows hold no page-table entries, and there is
    /// no IPB.
    stb: Option<usize>,
    buffer: Occupancy,
    /// Rows that the latest insertions write, and when the write is done.
    rows: [(PhysAddr, Cycle); INSERTIONS],
    next_row: usize,
    stats: StltUnitStats,
    ipb: IpbStats,
    insertions: InsertionBufferStats,
}

/// Address that no row has: rows never lie at the end of the address space.
const NO_ROW: PhysAddr = PhysAddr(u64::MAX);

impl StltUnit {
    fn new(stb: Option<usize>) -> Self {
        StltUnit {
            stb,
            buffer: Occupancy::new(INSERTIONS),
            rows: [(NO_ROW, 0); INSERTIONS],
            next_row: 0,
            stats: StltUnitStats::default(),
            ipb: IpbStats::default(),
            insertions: InsertionBufferStats::default(),
        }
    }

    /// False: queries walk through the walk caches, which filtered functional warming does not keep.
    pub fn can_filtered_warm(&self) -> bool {
        false
    }
}

/// A query in a core's STLT unit.
pub struct StltQuery {
    /// When the unit started it, after any wait for a row or a buffer entry.
    pub start: Cycle,
    /// When its walk started and ended; both are `start` without a walk.
    pub walk: (Cycle, Cycle),
    /// Entry of the insertion buffer, for an insertion.
    slot: Option<OccupancySlot>,
}

impl Mmu {
    /// Adds an STLT unit. `translations`: rows hold page-table entries.
    #[must_use]
    pub fn with_stlt(mut self, translations: bool) -> Self {
        let stb = translations.then(|| self.add_buffer(Box::new(Stb::new())));
        self.stlt = Some(Box::new(StltUnit::new(stb)));
        self
    }

    /// Puts the translation that a `loadVA` has found into the STB, ready from `ready` on.
    fn fill_stb(
        &mut self,
        asid: Asid,
        (va, page): (VirtAddr, StltPage),
        ready: Cycle,
        counted: bool,
    ) {
        let Some(stb) = self.stlt.as_ref().and_then(|stlt| stlt.stb) else {
            return;
        };
        let mapping = Mapping {
            frame: page.frame.0,
            size: page.size,
            writable: page.writable,
        };
        let entry = Entry::new(asid, va, mapping, ready);
        self.source(stb).insert(entry, counted);
    }

    /// Starts a query at `now`. The result says when its lines may be read, and when an insertion's
    /// walk starts and ends.
    pub fn begin_query<B: Below>(
        &mut self,
        unit: &Unit,
        asid: Asid,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> StltQuery {
        let mut query = StltQuery {
            start: now,
            walk: (now, now),
            slot: None,
        };
        let Some(stlt) = &mut self.stlt else {
            return query;
        };
        match *unit {
            Unit::Nothing => {}
            Unit::Load { row, invalid, .. } => {
                stlt.stats.loads += 1;
                stlt.insertions.lookups += 1;
                if let Some(invalid) = invalid {
                    stlt.ipb.lookups += 1;
                    stlt.ipb.hits += u64::from(invalid);
                }
                let under_way = stlt.rows.iter().filter(|r| Some(r.0) == row);
                query.start = under_way.map(|r| r.1).fold(now, Cycle::max);
                stlt.stats.load_wait_cycles += query.start - now;
            }
            Unit::Insert { walk, .. } => {
                stlt.stats.inserts += 1;
                stlt.insertions.fills += 1;
                let slot = stlt.buffer.admit(now);
                query.start = slot.start;
                stlt.stats.insert_wait_cycles += slot.start - now;
                query.slot = Some(slot);
                query.walk = (query.start, query.start);
                if let Some(va) = walk {
                    query.walk = self.walk_to_insert(asid, va, query.start, context);
                }
            }
        }
        query
    }

    /// The walk of an insertion: in the background, without faults and TLB fills. Returns when a
    /// walker was free and when the walk ended.
    fn walk_to_insert<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> (Cycle, Cycle) {
        if self.perfect {
            return (now, now);
        }
        let walk = self.walk_in_background(asid, va, now, context);
        if let Some(stlt) = &mut self.stlt {
            let s = &mut stlt.stats;
            s.walks += 1;
            s.walk_faults += u64::from(walk.found.is_none());
            s.walk_cycles += walk.end - walk.start;
            s.walker_wait_cycles += walk.start - now;
            s.walk_reads += walk.served.iter().sum::<u64>();
        }
        (walk.start, walk.end)
    }

    /// Ends `query`: its result is ready at `result_ready`, and its writes are done at
    /// `written`.
    pub fn end_query(
        &mut self,
        unit: &Unit,
        asid: Asid,
        query: StltQuery,
        (result_ready, written): (Cycle, Cycle),
    ) {
        let Some(stlt) = &mut self.stlt else { return };
        if let Some(slot) = query.slot {
            stlt.buffer.hold(slot, written);
        }
        match *unit {
            Unit::Load {
                translation: Some(found),
                ..
            } => self.fill_stb(asid, found, result_ready, true),
            Unit::Insert { row: Some(row), .. } => {
                stlt.rows[stlt.next_row] = (row, written);
                stlt.next_row = (stlt.next_row + 1) % INSERTIONS;
            }
            _ => {}
        }
    }

    /// Functional warming of a query: updates the unit, walk caches and memory system, except for
    /// the lines of the query itself.
    pub fn warm_query<B: Below>(
        &mut self,
        unit: &Unit,
        asid: Asid,
        context: &mut WalkContext<'_, B>,
    ) {
        if self.stlt.is_none() {
            return;
        }
        match *unit {
            Unit::Load {
                translation: Some(found),
                ..
            } => self.fill_stb(asid, found, 0, false),
            Unit::Insert { walk: Some(va), .. } if !self.perfect => {
                let at = self.latest;
                let _ = self.walk_untimed(asid, va, at, context);
            }
            _ => {}
        }
    }

    /// Counts `pages` that the kernel put into the IPB.
    pub fn fill_ipb(&mut self, pages: u64) {
        if let Some(stlt) = &mut self.stlt {
            stlt.ipb.fills += pages;
        }
    }

    /// Adds this core's STLT counters below `path`.
    pub(super) fn report_stlt(&self, path: &str, tree: &mut Tree) {
        let Some(stlt) = &self.stlt else { return };
        tree.add(&format!("{path}.stlt"), &stlt.stats);
        tree.add(&format!("{path}.insertion_buffer"), &stlt.insertions);
        if let Some(stb) = stlt.stb {
            self.report_source(stb, path, tree);
            tree.add(&format!("{path}.ipb"), &stlt.ipb);
        }
    }
}
