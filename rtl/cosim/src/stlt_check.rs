//! Gives queries to the simulator's table and to the STLT unit, and compares them: results, rows in memory,
//! translations, invalid pages, and the cycle of each result and write.
//!
//! The test is the memory, the walker and the kernel. It delays each of them at random, and changes pages
//! only while the unit is idle. The STB and the IPB are compared with lists in this file.

use std::collections::HashMap;

use pagewalk_os::INVALID_PAGES;
use pagewalk_programs::{Options, build};
use pagewalk_stream::{Batch, End, ShortcutQuery};
use pagewalk_tables::{
    STLT_FEWEST_ROWS, STLT_ROW_BYTES, STLT_SIZE_BIT, STLT_SUB_BITS, Stlt, StltCounter,
    StltInserted, StltPage, StltSpec,
};
use pagewalk_units::{PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::{Rng as _, RngExt};
use serde::{Deserialize, Serialize};

use crate::stlt_unit::{Inputs, Outputs, StltUnit};
use crate::verilated::Waveform;

/// Rows of a cache line.
const LINE_ROWS: usize = 4;
const PAGE_SHIFT: u32 = PageSize::K4.shift();
const COUNTER_SHIFT: u32 = 60;

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// `insertSTLT`, else `loadVA`.
    pub insert: bool,
    /// Hash of the key.
    pub integer: u64,
    /// Address of the record. 0 erases.
    pub va: u64,
}

/// Sums of the comparisons.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// `loadVA` instructions.
    pub loads: u64,
    /// Those that found a row in a valid page.
    pub hits: u64,
    /// Those whose row lies in an invalid page.
    pub invalid: u64,
    /// Results in the simulator's cycle.
    pub loads_timed: u64,
    /// Results before it, because rows were scanned while another line was on its way.
    pub loads_early: u64,
    /// `insertSTLT` instructions.
    pub inserts: u64,
    /// Rows written by them.
    pub rows_written: u64,
    /// Rows offered to memory in the simulator's cycle.
    pub inserts_timed: u64,
    /// Rows offered before it, because the set was scanned during the walk.
    pub inserts_early: u64,
    /// Rows that waited for the write port.
    pub inserts_waited: u64,
    /// Cycles in which an instruction waited for an insertion into its set.
    pub conflict_cycles: u64,
    /// Lookups of the STB.
    pub stb_lookups: u64,
    /// Lookups that hit.
    pub stb_hits: u64,
    /// Pages that the kernel has changed.
    pub invalidations: u64,
    /// Searches of the table by the kernel.
    pub refreshes: u64,
    /// Clock cycles.
    pub cycles: u64,
}

/// A load between its start and its result.
struct Load {
    value: u64,
    row: Option<u64>,
    translation: Option<u64>,
    invalid: bool,
    /// Cycle in which its last line arrived, and cycle of its last row.
    lines: u64,
    last_row: u64,
}

/// An insertion that has not ended.
struct Insertion {
    row: Option<u64>,
    kind: u8,
    vpn: u64,
    pte: u64,
    lines: u64,
    last_row: Option<u64>,
    /// Cycle in which the walk's result is given to the unit. `None` until the walk has ended.
    walked: Option<u64>,
    erases: bool,
    /// Its walk has begun.
    walks: bool,
    offered: bool,
    number: u64,
}

impl Insertion {
    /// Cycle from which it can end.
    fn ready(&self) -> Option<u64> {
        let walked = if self.erases { 0 } else { self.walked? + 1 };
        Some(walked.max(self.last_row? + 1))
    }
}

/// A set that is being read.
struct Read {
    first: usize,
    rows: Vec<[u64; 2]>,
    next: usize,
    arrivals: Vec<u64>,
}

#[derive(Clone, Copy)]
struct StbEntry {
    asid: u16,
    vpn: u64,
    pte: u64,
}

/// Shift of the page of a page-table entry.
fn shift(pte: u64) -> u32 {
    PageSize::ALL[(pte >> STLT_SIZE_BIT & 3) as usize].shift()
}

/// The table and the unit, and what surrounds them.
pub struct Harness {
    hardware: StltUnit,
    model: Stlt,
    spec: StltSpec,
    base: u64,
    asid: u16,
    on: bool,
    memory: Vec<[u64; 2]>,
    random: Rng,
    read: Option<Read>,
    load: Option<Load>,
    insertions: Vec<Insertion>,
    /// Walks that were begun: entry, number of the insertion, and cycle of the result.
    walks: Vec<(u8, u64, u64)>,
    invalid: Vec<(u64, u8)>,
    stb: Vec<Option<StbEntry>>,
    stb_next: usize,
    /// The answer of the lookup of the last cycle.
    stb_answer: Option<Option<u64>>,
    epochs: HashMap<u64, u64>,
    /// Page of the last result, which the program is about to access.
    accessed: Option<u64>,
    /// Cycles without progress.
    stuck: u64,
    /// The row whose counter is written next.
    counted: Option<u64>,
    /// The unit was idle in the last cycle.
    idle: bool,
    /// Sums so far.
    pub totals: Totals,
    seed: u64,
}

impl Harness {
    /// An empty table of `rows` rows.
    pub fn new(spec: StltSpec, rows: u64, seed: u64, waveform: Option<&Waveform>) -> Self {
        let saturates = spec.counter == StltCounter::Saturates;
        let mut random = rng(seed, "rtl.stlt");
        // A multiple of the table's size.
        let base = (random.random_range(1..16) * rows * STLT_ROW_BYTES) & ((1 << 46) - 1);
        let mut harness = Harness {
            hardware: StltUnit::with_ways(u64::from(spec.ways), saturates, waveform),
            model: Stlt::new(&spec, rows, PhysAddr(base), seed, "table"),
            spec,
            base,
            asid: 7,
            on: false,
            memory: vec![[0; 2]; rows as usize],
            random,
            read: None,
            load: None,
            insertions: Vec::new(),
            walks: Vec::new(),
            invalid: Vec::new(),
            stb: vec![None; pagewalk_mmu::STB_ENTRIES],
            stb_next: 0,
            stb_answer: None,
            epochs: HashMap::new(),
            accessed: None,
            stuck: 0,
            counted: None,
            idle: false,
            totals: Totals::default(),
            seed,
        };
        harness.turn(true);
        harness
    }

    /// The unit, for waveforms.
    pub fn hardware(&mut self) -> &mut StltUnit {
        &mut self.hardware
    }

    /// Turns the table on or off.
    pub fn turn(&mut self, on: bool) {
        self.settle();
        let rows = self.memory.len() as u64;
        self.on = on;
        self.cycle(
            None,
            Inputs {
                crs_write: true,
                crs_on: on,
                crs_base: self.base >> PAGE_SHIFT,
                crs_mask: (rows / STLT_FEWEST_ROWS - 1) as u32,
                ..Inputs::default()
            },
        );
    }

    /// A number that depends on a page.
    fn hash(&self, x: u64) -> u64 {
        let x = (x ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
    }

    /// The size of the page of an address. It depends on the gigabyte.
    fn page_size(&self, va: u64) -> PageSize {
        match self.hash(va >> 30) % 8 {
            0 => PageSize::G1,
            1 | 2 => PageSize::M2,
            _ => PageSize::K4,
        }
    }

    /// The page of an address. Its frame depends on how often the kernel has changed it. One of 32 is not
    /// mapped.
    fn page(&self, va: u64) -> Option<StltPage> {
        let size = self.page_size(va);
        let page = va & !(size.bytes() - 1);
        let epoch = self.epochs.get(&page).copied().unwrap_or(0);
        let hash = self.hash(page ^ epoch << 52 ^ 1);
        (!hash.is_multiple_of(32)).then(|| StltPage {
            frame: PhysAddr((hash >> 3) & ((1 << 48) - 1) & !(size.bytes() - 1)),
            size,
            writable: hash & 4 != 0,
        })
    }

    fn pte(&self, va: u64) -> u64 {
        self.page(va).map_or(0, |page| {
            let size = (page.size.index() as u64) << STLT_SIZE_BIT;
            page.frame.0 | size | u64::from(page.writable) << 1 | 1
        })
    }

    fn is_invalid(&self, va: u64) -> bool {
        self.invalid.iter().any(|&(vpn, size)| {
            let shift = PageSize::ALL[usize::from(size)].shift();
            va >> shift == vpn << PAGE_SHIFT >> shift
        })
    }

    fn index(&self, at: PhysAddr) -> u64 {
        (at.0 - self.base) / STLT_ROW_BYTES
    }

    /// Applies a query that the unit has taken to the model.
    fn apply(&mut self, query: &Query, cycle: u64) {
        let ways = u64::from(self.spec.ways);
        let sets = self.memory.len() as u64 / ways;
        let set = (query.integer >> STLT_SUB_BITS & (sets - 1)) * ways;
        if self.on && (!query.insert || query.va >> 48 == 0) {
            let first = set as usize;
            let rows = self.memory[first..first + ways as usize].to_vec();
            let lines = rows.len().div_ceil(LINE_ROWS);
            let arrivals: Vec<u64> = (0..lines)
                .map(|_| cycle + [4, 4, 4, 12, 40, 161][self.random.random_range(0..6)])
                .collect();
            self.read = Some(Read {
                first,
                rows,
                next: 0,
                arrivals,
            });
        }
        let lines = self
            .read
            .as_ref()
            .map_or(0, |r| *r.arrivals.iter().max().expect("a set has a line"));
        if !query.insert {
            self.totals.loads += 1;
            let row = if self.on {
                self.model.load(query.integer)
            } else {
                None
            };
            let invalid = row.is_some_and(|r| self.is_invalid(r.va.0));
            let valid = row.filter(|_| !invalid);
            let at = row.map(|r| self.index(r.at));
            self.totals.hits += u64::from(valid.is_some());
            self.totals.invalid += u64::from(invalid);
            self.load = Some(Load {
                value: valid.map_or(0, |r| r.va.0),
                row: at,
                translation: valid.and(at).map(|row| self.model.row_words(row)[1]),
                invalid,
                lines,
                // Without a table the result comes two cycles after the request.
                last_row: if self.on { 0 } else { cycle - 1 },
            });
            return;
        }
        self.totals.inserts += 1;
        if self.read.is_none() {
            return;
        }
        let va = VirtAddr(query.va);
        let page = self.page(query.va);
        let (row, kind) = if query.va == 0 {
            let row = self.model.erase(query.integer);
            (row, if row.is_some() { 2 } else { 0 })
        } else if page.is_none() {
            (None, 0)
        } else {
            let (row, what) = self.model.insert(query.integer, va, page);
            let kind = match what {
                StltInserted::New => 1,
                StltInserted::Matching => 2,
                StltInserted::Replaced => 3,
            };
            (Some(row), kind)
        };
        self.insertions.push(Insertion {
            row: row.map(|at| self.index(at)),
            kind,
            vpn: query.va >> PAGE_SHIFT,
            pte: self.pte(query.va),
            lines,
            last_row: None,
            walked: None,
            erases: query.va == 0,
            walks: false,
            offered: false,
            number: self.totals.inserts,
        });
    }

    /// One cycle. True if the query was taken.
    fn cycle(&mut self, query: Option<&Query>, mut inputs: Inputs) -> bool {
        let now = self.hardware.cycle;
        let mut chance = |n: u32| self.random.random_range(0..n) == 0;
        inputs.set_ready = !chance(16);
        inputs.write_ready = !chance(4);
        inputs.walk_ready = !chance(4);
        inputs.random_pick = self.random.next_u32();
        inputs.random_count = self.random.next_u32() as u16 & 0x7fff;
        inputs.req_asid = self.asid;
        if let Some(query) = query {
            (inputs.req_valid, inputs.req_insert) = (true, query.insert);
            (inputs.req_integer, inputs.req_va) = (query.integer, query.va);
            let drawn = self.model.random().next_u64();
            inputs.random_pick = (drawn >> 32) as u32;
            inputs.random_count = drawn as u16 & 0x7fff;
        }
        let beat = self.read.as_ref().and_then(|r| {
            let arrived = r.arrivals[r.next / LINE_ROWS] <= now;
            arrived.then(|| (r.first + r.next, r.rows[r.next]))
        });
        if let Some((row, words)) = beat {
            assert_eq!(
                words, self.memory[row],
                "row {row} changed while it was read"
            );
            inputs.row_valid = true;
            [inputs.row_word, inputs.row_pte] = words;
        }
        if let Some(n) = self.walks.iter().position(|w| w.2 <= now) {
            let (id, insertion, _) = self.walks.swap_remove(n);
            let walking = self.insertions.iter_mut().find(|i| i.number == insertion);
            let insertion = walking.expect("an insertion lives until its walk has ended");
            (inputs.walked_valid, inputs.walked_id) = (true, id);
            inputs.walked_pte = insertion.pte;
            // It can end from the next cycle on.
            insertion.walked = Some(now);
        }
        self.choose_lookup(&mut inputs);
        let out = self.hardware.step(&inputs);
        self.totals.cycles += 1;
        self.idle = out.idle;
        self.stuck = if out.idle || out.res_valid || inputs.row_valid || out.write_valid {
            0
        } else {
            self.stuck + 1
        };
        assert!(
            self.stuck < 10_000,
            "the unit stands still: {inputs:x?} {out:x?}"
        );
        self.compare_stb(&inputs, &out, now);
        assert_eq!(out.ipb_full, self.invalid.len() == INVALID_PAGES);
        self.compare_writes(&inputs, &out, now);
        self.take_walks(&inputs, &out, now);
        if beat.is_some() {
            self.advance_read(now);
        }
        let taken = inputs.req_valid && out.req_ready;
        if let Some(query) = query {
            let blocked = self.load.is_none() && self.read.is_none() && !taken;
            self.totals.conflict_cycles += u64::from(blocked && inputs.set_ready);
            if taken {
                self.apply(query, now);
                let set = self.read.as_ref().map(|r| r.first as u64);
                let asked = out
                    .set_valid
                    .then(|| out.set_row - self.base / STLT_ROW_BYTES);
                assert_eq!(asked, set, "set of {query:x?}");
            }
        }
        taken
    }

    fn choose_lookup(&mut self, inputs: &mut Inputs) {
        let accessed = self.accessed.take();
        let vpn = accessed.or_else(|| {
            let any = self.stb[self.random.random_range(0..self.stb.len())]?;
            let near = self.random.random_range(0..4) * (1 << (9 * self.random.random_range(0..3)));
            (self.random.random_range(0..8) == 0).then_some(any.vpn ^ near)
        });
        if let Some(vpn) = vpn {
            inputs.stb_valid = true;
            inputs.stb_vpn = vpn;
            inputs.stb_asid = self.asid ^ u16::from(self.random.random_range(0..16) == 0);
            inputs.stb_store = self.random.random_range(0..3) == 0;
        }
    }

    /// Compares results and the STB.
    fn compare_stb(&mut self, inputs: &Inputs, out: &Outputs, now: u64) {
        if let Some(answer) = self.stb_answer.take() {
            assert_eq!(
                out.stb_hit.then_some(out.stb_pte),
                answer,
                "answer of the STB"
            );
            self.totals.stb_lookups += 1;
            self.totals.stb_hits += u64::from(answer.is_some());
        }
        if out.res_valid {
            let load = self.load.take().expect("a result without a query");
            assert_eq!(out.res_va, load.value, "result in cycle {now}");
            assert_eq!(now, load.last_row + 3, "cycle of a result");
            if self.on {
                let model = load.lines + u64::from(self.spec.scanned(self.spec.load_latency));
                assert!(now <= model, "the result is late");
                self.totals.loads_timed += u64::from(now == model);
                self.totals.loads_early += u64::from(now < model);
            }
            self.counted = load.row;
            if let Some(pte) = load.translation {
                self.stb[self.stb_next] = Some(StbEntry {
                    asid: self.asid,
                    vpn: load.value >> PAGE_SHIFT,
                    pte,
                });
                self.stb_next = (self.stb_next + 1) % self.stb.len();
                self.accessed = Some(load.value >> PAGE_SHIFT);
            }
        } else if out.invalid {
            assert!(self.load.as_ref().is_some_and(|l| l.invalid));
        }
        if inputs.stb_valid {
            let vpn = inputs.stb_vpn << PAGE_SHIFT;
            let answers = |e: &&StbEntry| {
                let may = e.pte & 2 != 0 || !inputs.stb_store;
                let same = (e.vpn << PAGE_SHIFT) >> shift(e.pte) == vpn >> shift(e.pte);
                e.asid == inputs.stb_asid && same && may
            };
            self.stb_answer = Some(self.stb.iter().flatten().find(answers).map(|e| e.pte));
        }
        if inputs.shoot_valid {
            for entry in &mut self.stb {
                let hit = entry.is_some_and(|e| {
                    let size = PageSize::ALL[usize::from(inputs.shoot_size)].shift();
                    let shift = shift(e.pte).max(size);
                    let same =
                        e.vpn << PAGE_SHIFT >> shift == inputs.shoot_vpn << PAGE_SHIFT >> shift;
                    e.asid == inputs.shoot_asid && (inputs.shoot_all || same)
                });
                if hit {
                    *entry = None;
                }
            }
        }
    }

    /// Compares the write that is offered, and the insertion that ends.
    fn compare_writes(&mut self, inputs: &Inputs, out: &Outputs, now: u64) {
        let base = self.base / STLT_ROW_BYTES;
        let ready = |i: &Insertion| i.ready().is_some_and(|at| at <= now);
        if self.insertions.iter().any(ready) {
            assert!(
                out.write_valid || out.inserted,
                "an insertion is late in cycle {now}"
            );
        }
        if out.write_valid && !out.write_counter {
            let row = out.write_row - base;
            let insertion = self.insertions.iter_mut().find(|i| i.row == Some(row));
            let insertion = insertion.unwrap_or_else(|| panic!("no insertion writes row {row}"));
            let ready_at = insertion.ready().expect("an insertion that can end");
            assert!(now >= ready_at, "row {row} in cycle {now}");
            if !std::mem::replace(&mut insertion.offered, true) {
                let begins = insertion.lines.max(insertion.walked.unwrap_or(0));
                let model = begins + u64::from(self.spec.scanned(self.spec.insert_latency));
                match () {
                    () if now > ready_at => self.totals.inserts_waited += 1,
                    () if now == model => self.totals.inserts_timed += 1,
                    () => {
                        assert!(now < model, "row {row} is late in cycle {now}");
                        self.totals.inserts_early += 1;
                    }
                }
            }
        }
        if out.write_valid && inputs.write_ready {
            let row = (out.write_row - base) as usize;
            if out.write_counter {
                assert_eq!(self.counted.take(), Some(row as u64), "row of a counter");
                let kept = self.memory[row][0] & ((1 << COUNTER_SHIFT) - 1);
                self.memory[row][0] = kept | out.write_word;
            } else {
                self.memory[row] = [out.write_word, out.write_pte];
                self.totals.rows_written += 1;
            }
            let model = self.model.row_words(row as u64);
            assert_eq!(self.memory[row], model, "row {row} in cycle {now}");
        }
        if out.inserted {
            let written = out.write_valid && inputs.write_ready && !out.write_counter;
            let row = written.then(|| out.write_row - base);
            let ends = |i: &Insertion| i.row == row && i.ready().is_some_and(|at| at <= now);
            let n = self.insertions.iter().position(ends);
            let n = n.unwrap_or_else(|| panic!("no insertion ends in cycle {now}: {out:x?}"));
            assert_eq!(out.outcome, self.insertions.swap_remove(n).kind);
        }
    }

    fn take_walks(&mut self, inputs: &Inputs, out: &Outputs, now: u64) {
        if out.walk_valid && inputs.walk_ready {
            assert_eq!(out.walk_asid, self.asid);
            // All insertions of a page have the same entry: which of them walks first makes no difference.
            let waits = |i: &&mut Insertion| i.vpn == out.walk_vpn && !i.erases && !i.walks;
            let insertion = self.insertions.iter_mut().find(waits);
            let insertion = insertion.expect("an insertion that waits for a walk");
            insertion.walks = true;
            let end = now + [1, 9, 30, 200][self.random.random_range(0..4)];
            self.walks.push((out.walk_id, insertion.number, end));
        }
    }

    fn advance_read(&mut self, now: u64) {
        let read = self.read.as_mut().expect("a set is being read");
        read.next += 1;
        if read.next < read.rows.len() {
            return;
        }
        self.read = None;
        match &mut self.load {
            Some(load) => load.last_row = now,
            None => {
                let last = self.insertions.iter_mut().max_by_key(|i| i.number);
                last.expect("a set is read for a query").last_row = Some(now);
            }
        }
    }

    /// Runs a query. The result of `loadVA`; 0 for `insertSTLT`, which goes on.
    pub fn query(&mut self, query: &Query) -> u64 {
        while !self.cycle(Some(query), Inputs::default()) {}
        if query.insert {
            return 0;
        }
        let value = self.load.as_ref().expect("the load was taken").value;
        while self.load.is_some() {
            self.cycle(None, Inputs::default());
        }
        value
    }

    /// Cycles without a query.
    pub fn pause(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.cycle(None, Inputs::default());
        }
    }

    /// Lets all insertions end.
    pub fn settle(&mut self) {
        while self.load.is_some() || !self.insertions.is_empty() {
            self.cycle(None, Inputs::default());
        }
        // The counter of the last load may still wait for memory.
        self.idle = false;
        while !self.idle {
            self.cycle(None, Inputs::default());
        }
    }

    /// The kernel changes the page of an address: `flush_tlb_page` with the paper's instructions.
    pub fn invalidate(&mut self, va: u64) {
        self.settle();
        self.totals.invalidations += 1;
        let size = self.page_size(va);
        let page = va & !(size.bytes() - 1);
        *self.epochs.entry(page).or_default() += 1;
        let entry = (page >> PAGE_SHIFT, size.index() as u8);
        let mut inputs = Inputs {
            shoot_valid: true,
            shoot_all: self.random.random_range(0..32) == 0,
            shoot_asid: self.asid,
            shoot_vpn: entry.0,
            shoot_size: entry.1,
            ipb_vpn: entry.0,
            ipb_size: entry.1,
            ..Inputs::default()
        };
        if self.invalid.contains(&entry) {
            self.cycle(None, inputs);
            return;
        }
        if self.invalid.len() < INVALID_PAGES {
            inputs.ipb_insert = true;
            self.cycle(None, inputs);
            self.invalid.push(entry);
            return;
        }
        self.totals.refreshes += 1;
        inputs.ipb_clear = true;
        self.cycle(None, inputs);
        self.invalid.push(entry);
        let mut model = self.model.clone();
        model.refresh(|va| self.is_invalid(va.0), |va| self.page(va.0));
        self.model = model;
        self.invalid.clear();
        for (row, words) in self.memory.iter_mut().enumerate() {
            *words = self.model.row_words(row as u64);
        }
    }

    /// A context switch and back: the IPB is cleared and filled again.
    pub fn switch(&mut self) {
        self.settle();
        self.cycle(
            None,
            Inputs {
                ipb_clear: true,
                ..Inputs::default()
            },
        );
        for (ipb_vpn, ipb_size) in std::mem::take(&mut self.invalid) {
            self.cycle(
                None,
                Inputs {
                    ipb_insert: true,
                    ipb_vpn,
                    ipb_size,
                    ..Inputs::default()
                },
            );
            self.invalid.push((ipb_vpn, ipb_size));
        }
    }

    /// Compares all rows.
    pub fn compare_rows(&mut self) {
        self.settle();
        for (row, words) in self.memory.iter().enumerate() {
            assert_eq!(*words, self.model.row_words(row as u64), "row {row}");
        }
    }
}

/// Gives the queries of a key-value store to the unit until there are enough. Requests of the waveform are
/// queries.
///
/// # Errors
/// The program cannot be built, or fails.
pub fn run(
    name: &str,
    size: u64,
    queries: u64,
    spec: StltSpec,
    rows: u64,
    seed: u64,
    waveform: Option<&Waveform>,
) -> Result<Totals, String> {
    let params = [("shortcut", "stlt"), ("request", "lookup")];
    let options = Options {
        size_bytes: Some(size),
        threads: 1,
        seed,
        params: params.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
    };
    let named = |error: String| format!("{name}: {error}");
    let mut program = build(name, &options).map_err(|error| named(error.to_string()))?;
    let mut harness = Harness::new(spec, rows, seed, waveform);
    let mut random = rng(seed, name);
    let mut batch = Batch::new();
    for n in 0.. {
        if let Some(change) = waveform.and_then(|w| w.change(n)) {
            harness.settle();
            harness.hardware.trace(change);
        }
        if n == queries {
            break;
        }
        let query = loop {
            let end = program.fill(0, &mut batch);
            break match end.map_err(|error| named(error.to_string()))? {
                End::Query(ShortcutQuery::LoadVa { integer }) => Query {
                    insert: false,
                    integer,
                    va: 0,
                },
                End::Query(ShortcutQuery::InsertVa { integer, va }) => Query {
                    insert: true,
                    integer,
                    va: va.0,
                },
                End::Exit => return Err(named(format!("ends after {n} queries"))),
                _ => continue,
            };
        };
        let value = harness.query(&query);
        if random.random_range(0..2000) == 0 {
            harness.invalidate(if query.insert { query.va } else { value });
        }
        harness.pause(random.random_range(0..16));
        let reply = if query.insert { 1 } else { value };
        program.shortcut_result(0, Some(reply));
    }
    harness.compare_rows();
    Ok(harness.totals)
}
