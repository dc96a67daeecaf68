//! The kernel part of an STLT (sections III-D1 and III-F): the tables of the processes, the system
//! calls that create them, and the array of invalid pages, which detects stale rows lazily. In a
//! virtual machine the host keeps the tables, and rows hold the composed translations of guest and
//! host.

mod guard;

use std::collections::BTreeMap;

use pagewalk_stats::Tree;
use pagewalk_tables::{
    Flags, Invalidation, Purpose, QueryResult, STLT_ROW_BYTES, Stlt, StltInserted, StltPage,
    StltSpec, Unit, View, Want,
};
use pagewalk_units::{Asid, Cycle, Error, GuestPhysAddr, Part, PhysAddr, VirtAddr, text};

pub use self::guard::StltGuardStats;
use self::guard::{Guard, Turn};
use crate::host::Host;
use crate::kernel::Kernel;
use crate::{Effects, Os, OsError, Pid};

/// Pages of the array, equal to the number of IPB entries (section III-D1).
pub const INVALID_PAGES: usize = 32;

pagewalk_stats::counters! {
    /// Counters of STLTs and of the kernel's work for them. loads = hits + no_row + invalid +
    /// no_table, inserts = new_rows + matching_rows + replaced_rows + emptied_rows + given_up. Where
    /// tables are turned off, off_loads and off_inserts add to these.
    pub struct StltStats {
        gauge bytes: "bytes", "Physical memory of the tables";
        gauge used_rows: "rows", "Rows in use";
        loads: "instructions", "loadVA instructions";
        hits: "instructions", "loadVA that found a row. The program itself checks that its record has the key";
        no_row: "instructions", "loadVA that found no row; the result is 0";
        invalid: "instructions", "loadVA whose row lies in a page of the array of invalid pages (IPB); the result is 0";
        no_table: "instructions", "loadVA of processes without a table; the result is 0";
        inserts: "instructions", "insertSTLT instructions";
        new_rows: "instructions", "insertSTLT that took an empty row";
        matching_rows: "instructions", "insertSTLT that took the matching row";
        replaced_rows: "instructions", "insertSTLT that took the least frequently used row of a full set";
        emptied_rows: "instructions", "insertSTLT with address 0 that emptied the matching row";
        given_up: "instructions", "insertSTLT without effect: the page is unmapped, the process has no table, a row cannot hold the address, or the address is 0 and no row matches";
        tables: "tables", "Tables allocated for processes";
        refused_tables: "tables", "Tables refused for lack of contiguous memory";
        calls: "calls", "System calls STLTalloc, STLTresize and STLTfree";
        refused_calls: "calls", "System calls of the STLT that failed";
        invalid_pages: "pages", "Pages put into arrays of invalid pages";
        refreshes: "searches", "Searches of a table by the kernel, triggered by a full array or by an invalidation larger than the array";
        refreshed_rows: "rows", "Rows that these searches corrected or emptied";
        refresh_cycles: "cycles", "Kernel time of these searches";
        restored_pages: "pages", "Pages of arrays restored to an IPB when a core switched to their process";
    }
}

/// A process's table, and its invalid pages.
struct Own {
    /// `None` if it was freed or could not be allocated.
    table: Option<Stlt>,
    /// First byte and length of pages whose translation has changed since the kernel last searched
    /// the table.
    invalid: Vec<(u64, u64)>,
    /// The guard that turns the table on and off, if configured.
    guard: Option<Guard>,
}

/// True if `va` lies in one of `ranges`, each a first byte and a length.
fn lies_in(ranges: &[(u64, u64)], va: VirtAddr) -> bool {
    (ranges.iter()).any(|&(at, bytes)| va.0.wrapping_sub(at) < bytes)
}

/// The tables of all processes.
pub struct Stlts {
    spec: StltSpec,
    seed: u64,
    /// The block reserved at boot for the first table, while no process has it.
    spare: Option<PhysAddr>,
    /// True if a process has used the spare block, which must then be zeroed before reuse.
    spare_used: bool,
    of: BTreeMap<Asid, Own>,
    stats: StltStats,
    guards: StltGuardStats,
}

/// The current page of `va`, as a row stores it. In a virtual machine it is the smaller of the
/// guest's and the host's page, in physical memory, with the guest's permissions.
fn page_of(view: &View<'_>, va: VirtAddr) -> Option<StltPage> {
    let (size, at, flags) = match *view {
        View::Native(table) => {
            let found = table.translate(va)?;
            (found.size, found.frame.base.0, found.flags)
        }
        View::Nested { guest, host } => {
            let found = guest.translate(va)?;
            let within = |at: u64, bytes: u64| at & (bytes - 1);
            let gpa = found.frame.base.0 + within(va.0, found.size.bytes());
            let behind = host.translate(GuestPhysAddr(gpa))?;
            let at = behind.frame.base.0 + within(gpa, behind.size.bytes());
            (found.size.min(behind.size), at, found.flags)
        }
    };
    Some(StltPage {
        frame: PhysAddr(at & !(size.bytes() - 1)),
        size,
        writable: flags.contains(Flags::WRITABLE),
    })
}

/// The kernel that owns the tables' memory, and the cost of calling it from a guest.
fn keeper<'a>(own: &'a mut Kernel, host: &'a mut Option<Box<Host>>) -> (&'a mut Kernel, Cycle) {
    match host {
        Some(host) => (&mut host.os.kernel, host.exit),
        None => (own, 0),
    }
}

fn bytes_of(rows: u64) -> u64 {
    rows * STLT_ROW_BYTES
}

impl Os {
    /// Makes STLTs answer the queries of programs from now on. Reserves the memory of the first
    /// table. Call it at boot: it costs no time.
    ///
    /// # Errors
    /// No such block is available. The error has the reason in words.
    pub fn keep_stlt(&mut self, spec: &StltSpec) -> Result<(), Error> {
        let bytes = bytes_of(spec.rows);
        let spare = self.set_aside(bytes).map_err(|why| {
            Error::keyed(
                "shortcut.stlt.rows",
                text![
                    format!("{bytes} bytes of contiguous memory cannot be set aside at boot: {why}; lower it or "),
                    Part::key("os.fragmentation"),
                    ", or enlarge ",
                    Part::key("os.memory_gb"),
                ],
            )
        })?;
        self.stlt = Some(Box::new(Stlts {
            spec: *spec,
            seed: self.seed,
            spare: Some(spare),
            spare_used: false,
            of: BTreeMap::new(),
            stats: StltStats::default(),
            guards: StltGuardStats::default(),
        }));
        Ok(())
    }

    /// `STLTalloc`: gives the process an empty table of `rows`, or of the configured size for 0. A
    /// table of the size reserved at boot uses that memory if it is unused, and zeroes it if it was
    /// used before. Any other table is allocated and zeroed at the price of a page-table block.
    ///
    /// # Errors
    /// The process has a table already, the number of rows is invalid, or there is no contiguous
    /// memory.
    pub fn stlt_alloc(&mut self, pid: Pid, rows: u64, fx: &mut Effects) -> Result<(), OsError> {
        let done = self.try_alloc(pid, rows, fx);
        self.called(done)
    }

    fn try_alloc(&mut self, pid: Pid, rows: u64, fx: &mut Effects) -> Result<(), OsError> {
        let asid = self.space(pid)?.asid;
        fx.cycles += self.kernel.prices.syscall;
        let Some(s) = &mut self.stlt else {
            return Err(OsError::Bad("this machine has no STLT".to_owned()));
        };
        let rows = if rows == 0 { s.spec.rows } else { rows };
        StltSpec::check_rows("rows", rows).map_err(|e| OsError::Bad(format!("STLTalloc: {e}")))?;
        if s.of.get(&asid).is_some_and(|own| own.table.is_some()) {
            return Err(OsError::Bad(format!(
                "STLTalloc: process {pid} has a table already"
            )));
        }
        s.give(asid, rows, keeper(&mut self.kernel, &mut self.host), fx)
    }

    /// `STLTresize`: replaces the process's table by an empty one of `rows`, or of the current size
    /// for 0. Without memory for it the process has no table.
    ///
    /// # Errors
    /// The process has no table, the number of rows is invalid, or there is no contiguous memory.
    pub fn stlt_resize(&mut self, pid: Pid, rows: u64, fx: &mut Effects) -> Result<(), OsError> {
        let done = self.try_resize(pid, rows, fx);
        self.called(done)
    }

    fn try_resize(&mut self, pid: Pid, rows: u64, fx: &mut Effects) -> Result<(), OsError> {
        let asid = self.space(pid)?.asid;
        fx.cycles += self.kernel.prices.syscall;
        let own = self.stlt.as_mut().and_then(|s| {
            let now = s.of.get(&asid)?.table.as_ref()?.rows();
            Some((s, now))
        });
        let Some((s, now)) = own else {
            return Err(OsError::Bad(format!("process {pid} has no STLT")));
        };
        let rows = if rows == 0 { now } else { rows };
        StltSpec::check_rows("rows", rows).map_err(|e| OsError::Bad(format!("STLTresize: {e}")))?;
        let keeper = keeper(&mut self.kernel, &mut self.host);
        s.drop_table(asid, keeper.0);
        s.give(asid, rows, keeper, fx)
    }

    /// `STLTfree`: frees the process's table. The block reserved at boot stays reserved for the next
    /// table of its size.
    ///
    /// # Errors
    /// The process has no table.
    pub fn stlt_free(&mut self, pid: Pid, fx: &mut Effects) -> Result<(), OsError> {
        let asid = self.space(pid)?.asid;
        fx.cycles += self.kernel.prices.syscall;
        let taken = self.stlt.as_mut().is_some_and(|s| {
            let had = s.drop_table(asid, keeper(&mut self.kernel, &mut self.host).0);
            if had {
                s.of.insert(asid, Own::none());
            }
            had
        });
        let none = || OsError::Bad(format!("process {pid} has no STLT"));
        self.called(taken.then_some(()).ok_or_else(none))
    }

    /// Counts a system call and its outcome.
    fn called(&mut self, done: Result<(), OsError>) -> Result<(), OsError> {
        if let Some(s) = &mut self.stlt {
            s.stats.calls += 1;
            s.stats.refused_calls += u64::from(done.is_err());
        }
        done
    }

    /// Frees the table of an address space after exit or exec. The next query with this identifier
    /// allocates a new one.
    pub(crate) fn stlt_forget(&mut self, asid: Asid) {
        if let Some(s) = &mut self.stlt {
            s.drop_table(asid, keeper(&mut self.kernel, &mut self.host).0);
            s.of.remove(&asid);
        }
    }

    /// Handles a call of the kernel's flush functions (`flush_tlb_*`). The pages enter the process's
    /// array and the IPBs of the cores that run it. If they do not fit, the array is emptied, and
    /// the table is searched for rows of all these pages, which are corrected. Returns the kernel
    /// time and the number of pages that entered the IPBs.
    pub fn stlt_invalidate(&mut self, what: &Invalidation) -> (Cycle, u64) {
        let nothing = (0, 0);
        let Some(s) = self.stlt.as_mut().filter(|s| s.spec.translations) else {
            return nothing;
        };
        let asid = what.asid();
        let Some(own) = s.of.get_mut(&asid).filter(|own| own.table.is_some()) else {
            return nothing;
        };
        let off = own.guard.as_mut().filter(|g| !g.is_on());
        if off.as_ref().is_some_and(|g| g.stale) {
            return nothing;
        }
        let (at, bytes, pages) = match *what {
            Invalidation::Page { page, .. } => (page.base.0, page.size.bytes(), 1),
            Invalidation::Range { at, bytes, .. } => {
                let first = at.0 & !0xfff;
                let bytes = (at.0 - first).saturating_add(bytes);
                (first, bytes, bytes.div_ceil(4096))
            }
            Invalidation::Space { .. } => (0, u64::MAX, u64::MAX),
        };
        if pages <= INVALID_PAGES as u64 {
            let each = bytes / pages.max(1);
            let before = own.invalid.len();
            for page in (0..pages).map(|n| (at + n * each, each)) {
                if !own.invalid.contains(&page) {
                    own.invalid.push(page);
                }
            }
            if own.invalid.len() <= INVALID_PAGES {
                let put = (own.invalid.len() - before) as u64;
                s.stats.invalid_pages += put;
                return (self.kernel.prices.registers(put), put);
            }
        }
        if let Some(guard) = off {
            // No queries use the table now. The search is postponed until it is turned on.
            guard.stale = true;
            own.invalid.clear();
            return nothing;
        }
        (self.stlt_refresh(asid, Some((at, bytes))), 0)
    }

    /// Empties the array of `asid`. Searches its table for rows of those pages and of `more`, or for
    /// all rows if `more` is `None`, and corrects them. Returns the kernel time.
    fn stlt_refresh(&mut self, asid: Asid, more: Option<(u64, u64)>) -> Cycle {
        // The kernel also holds the page tables that the correction reads.
        let Some(mut s) = self.stlt.take() else {
            return 0;
        };
        let alive = |s: &crate::space::Space| s.asid == asid;
        let pid = (self.spaces.iter()).position(|s| s.as_deref().is_some_and(alive));
        let view = pid.map(|pid| self.view(pid as Pid));
        let mut cycles = 0;
        if let Some(own) = s.of.get_mut(&asid)
            && let Some(table) = &mut own.table
        {
            let mut invalid = std::mem::take(&mut own.invalid);
            invalid.extend(more);
            let concerned = |va| more.is_none() || lies_in(&invalid, va);
            let now = |va| page_of(view.as_ref()?, va);
            let rows = table.refresh(concerned, now);
            let prices = &self.kernel.prices;
            cycles = prices.search(bytes_of(table.rows())) + prices.moved(rows);
            s.stats.refreshes += 1;
            s.stats.refreshed_rows += rows;
            s.stats.refresh_cycles += cycles;
        }
        self.stlt = Some(s);
        cycles
    }

    /// A thread of `pid` is about to issue a query at `now`. With a guard, this may turn the
    /// process's table on or off. Call it before each `loadVA` in timed simulation.
    pub fn stlt_guard(&mut self, pid: Pid, now: Cycle, fx: &mut Effects) {
        let asid = self.asid(pid);
        let Some(s) = self.stlt.as_mut().filter(|s| s.spec.guard.is_some()) else {
            return;
        };
        let Some(own) = s.of.get_mut(&asid) else {
            return;
        };
        let (Some(table), Some(guard)) = (&own.table, &mut own.guard) else {
            return;
        };
        let rows = table.rows();
        let turn = guard.count_query(now, rows, &mut s.guards);
        let stale = turn == Turn::On && std::mem::take(&mut guard.stale);
        if turn != Turn::Stays {
            fx.cycles += self.kernel.prices.syscall;
        }
        if turn == Turn::Grows {
            s.grow(asid, 2 * rows, keeper(&mut self.kernel, &mut self.host), fx);
        }
        if stale {
            fx.cycles += self.stlt_refresh(asid, None);
        }
    }

    /// A core switches to `pid` from another process: its IPB is cleared and filled from the array
    /// of `pid`. Returns the kernel time and the number of pages.
    pub fn stlt_restore(&mut self, pid: Pid) -> (Cycle, u64) {
        let asid = self.asid(pid);
        let Some(s) = &mut self.stlt else {
            return (0, 0);
        };
        let pages = s.of.get(&asid).map_or(0, |own| own.invalid.len() as u64);
        s.stats.restored_pages += pages;
        (self.kernel.prices.registers(pages), pages)
    }

    /// `loadVA` of a thread of `pid`. The first query of a process allocates its table.
    pub(crate) fn stlt_load(
        &mut self,
        pid: Pid,
        integer: u64,
        fx: &mut Effects,
    ) -> Option<QueryResult> {
        let asid = self.asid(pid);
        let s = self.stlt.as_mut()?;
        s.at_start(asid, keeper(&mut self.kernel, &mut self.host), fx);
        Some(s.load(asid, integer))
    }

    /// `insertSTLT` of a thread of `pid`. Address 0 empties the matching row.
    pub(crate) fn stlt_insert(
        &mut self,
        pid: Pid,
        integer: u64,
        va: VirtAddr,
        fx: &mut Effects,
    ) -> Option<QueryResult> {
        self.stlt.as_ref()?;
        let asid = self.asid(pid);
        let alive = self.space(pid).is_ok();
        let page = alive.then(|| page_of(&self.view(pid), va)).flatten();
        let s = self.stlt.as_mut()?;
        s.at_start(asid, keeper(&mut self.kernel, &mut self.host), fx);
        Some(s.insert(asid, integer, va, page))
    }

    /// Adds the counters of the tables at `path`, if there are tables.
    pub(crate) fn report_stlt(&self, path: &str, tree: &mut Tree) {
        if let Some(s) = &self.stlt {
            tree.add(path, &s.stats());
            if s.spec.guard.is_some() {
                tree.add(&format!("{path}.guard"), &s.guards);
            }
        }
    }
}

impl Own {
    fn none() -> Self {
        Own {
            table: None,
            invalid: Vec::new(),
            guard: None,
        }
    }

    /// True if the table is turned off.
    fn is_off(&self) -> bool {
        self.table.is_some() && self.guard.is_some_and(|g| !g.is_on())
    }
}

impl Stlts {
    /// Programs that use the table begin with `STLTalloc`; here the first query implies it.
    fn at_start(&mut self, asid: Asid, keeper: (&mut Kernel, Cycle), fx: &mut Effects) {
        if self.of.contains_key(&asid) {
            return;
        }
        fx.cycles += keeper.0.prices.syscall;
        // Without memory the program continues without a table, as after a failed call.
        let _ = self.give(asid, self.spec.rows, keeper, fx);
    }

    /// `STLTresize` requested by the guard of `asid`. Without memory for `rows` it continues with an
    /// empty table of the former size.
    fn grow(
        &mut self,
        asid: Asid,
        rows: u64,
        (kernel, exit): (&mut Kernel, Cycle),
        fx: &mut Effects,
    ) {
        let guard = self.of.get(&asid).and_then(|own| own.guard);
        self.drop_table(asid, kernel);
        let full = self.give(asid, rows, (kernel, exit), fx).is_err();
        if full {
            let _ = self.give(asid, rows / 2, (kernel, exit), fx);
        }
        if let Some(own) = self.of.get_mut(&asid) {
            own.guard = guard.map(|mut g| {
                g.full |= full;
                g
            });
        }
    }

    fn give(
        &mut self,
        asid: Asid,
        rows: u64,
        (kernel, exit): (&mut Kernel, Cycle),
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let wanted = bytes_of(rows);
        let spare = self.spare.take_if(|_| rows == self.spec.rows);
        let base = match spare {
            Some(base) => {
                if std::mem::take(&mut self.spare_used) {
                    // The block need not be searched for, only zeroed.
                    fx.cycles += kernel.prices.allocation(wanted, 0.0);
                }
                base
            }
            None => {
                let want = Want {
                    bytes: wanted,
                    asid,
                    purpose: Purpose::Rows,
                };
                let Ok(frame) = kernel.frame(want) else {
                    self.stats.refused_tables += 1;
                    self.of.insert(asid, Own::none());
                    let free = kernel.memory().free_frames() << 12;
                    return Err(OsError::OutOfMemory { wanted, free });
                };
                kernel.rows_bytes += wanted;
                let index = kernel.memory().index_at(frame);
                fx.cycles += exit + kernel.prices.allocation(wanted, index);
                PhysAddr(frame << 12)
            }
        };
        self.stats.tables += 1;
        let name = format!("stlt.{}.{}", asid.0, self.stats.tables);
        let own = Own {
            table: Some(Stlt::new(&self.spec, rows, base, self.seed, &name)),
            invalid: Vec::new(),
            guard: self.spec.guard.map(Guard::new),
        };
        self.of.insert(asid, own);
        Ok(())
    }

    /// Returns true if there was a table.
    fn drop_table(&mut self, asid: Asid, kernel: &mut Kernel) -> bool {
        let Some(table) = self.of.get_mut(&asid).and_then(|own| own.table.take()) else {
            return false;
        };
        // One block of the initial size is kept for the next table.
        if self.spare.is_none() && table.rows() == self.spec.rows {
            self.spare = Some(table.base());
            self.spare_used = true;
        } else {
            let bytes = bytes_of(table.rows());
            kernel.rows_bytes -= bytes;
            kernel.put(table.base().0 >> 12, (bytes >> 12).ilog2() as u8);
        }
        true
    }

    fn load(&mut self, asid: Asid, integer: u64) -> QueryResult {
        let s = &mut self.stats;
        s.loads += 1;
        let mut result = QueryResult {
            latency: self.spec.scanned(self.spec.load_latency),
            at_once: !self.spec.waits_for_set,
            unit: Unit::Load {
                row: None,
                translation: None,
                invalid: None,
            },
            ..QueryResult::default()
        };
        let own = self.of.get_mut(&asid);
        let off = own.as_ref().is_some_and(|own| own.is_off());
        let Some(Own {
            table: Some(table),
            invalid,
            guard,
        }) = own
        else {
            s.no_table += 1;
            return result;
        };
        if off {
            self.guards.off_loads += 1;
            return result;
        }
        result.reads = table.lines(integer);
        let Some(found) = table.load(integer) else {
            s.no_row += 1;
            return result;
        };
        // The counter is written back, incremented or not (table III).
        result.written = Some(found.at);
        let translations = self.spec.translations;
        let invalid = translations && lies_in(invalid, found.va);
        result.unit = Unit::Load {
            row: Some(found.at),
            translation: found.page.filter(|_| !invalid).map(|p| (found.va, p)),
            invalid: translations.then_some(invalid),
        };
        if invalid {
            s.invalid += 1;
        } else {
            s.hits += 1;
            if let Some(guard) = guard {
                guard.found();
            }
            result.value = found.va.0;
        }
        result
    }

    fn insert(
        &mut self,
        asid: Asid,
        integer: u64,
        va: VirtAddr,
        page: Option<StltPage>,
    ) -> QueryResult {
        let s = &mut self.stats;
        s.inserts += 1;
        let translations = self.spec.translations;
        let mut result = QueryResult {
            latency: self.spec.scanned(self.spec.insert_latency),
            walk_latency: self.spec.after_walk(),
            unit: Unit::Insert {
                row: None,
                walk: None,
            },
            ..QueryResult::default()
        };
        let own = self.of.get_mut(&asid);
        let off = own.as_ref().is_some_and(|own| own.is_off());
        let table = own.and_then(|own| own.table.as_mut());
        if off && let Some(table) = table {
            // No row may keep an old address of the record. The access to the set's line resembles a
            // store, which nothing waits for.
            self.guards.off_inserts += 1;
            result.written = table.lines(integer).first().copied();
            table.erase_unless(integer, va);
            return result;
        }
        let erases = va.0 == 0;
        let Some(table) = table.filter(|_| erases || Stlt::holds(va)) else {
            s.given_up += 1;
            return result;
        };
        // The set is read in parallel with the walk, because its address is known at once.
        result.reads = table.lines(integer);
        if erases {
            let row = table.erase(integer);
            *match row {
                Some(_) => &mut s.emptied_rows,
                None => &mut s.given_up,
            } += 1;
            result.written = row;
            result.unit = Unit::Insert { row, walk: None };
            return result;
        }
        let walk = translations.then_some(va);
        if translations && page.is_none() {
            s.given_up += 1;
            result.unit = Unit::Insert { row: None, walk };
            return result;
        }
        let (row, what) = table.insert(integer, va, page.filter(|_| translations));
        *match what {
            StltInserted::New => &mut s.new_rows,
            StltInserted::Matching => &mut s.matching_rows,
            StltInserted::Replaced => &mut s.replaced_rows,
        } += 1;
        result.value = 1;
        result.written = Some(row);
        result.unit = Unit::Insert {
            row: Some(row),
            walk,
        };
        result
    }

    fn stats(&self) -> StltStats {
        let tables = || self.of.values().filter_map(|own| own.table.as_ref());
        StltStats {
            bytes: tables().map(|t| bytes_of(t.rows())).sum(),
            used_rows: tables().map(Stlt::used).sum(),
            ..self.stats
        }
    }
}
