//! STLT (section III): a table from integers that a program makes of its keys to the
//! addresses of the records, with the page-table entries of these. It knows no time.

use pagewalk_units::{Error, LINE_BYTES, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::{Rng as _, RngExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MOST_LINES;

/// What answers a program that asks where the record of a key lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub enum ShortcutSpec {
    /// STLT: a table in the kernel's memory, for each process that asks, of addresses of
    /// records and of their page-table entries; `loadVA` and `insertSTLT` look into it.
    #[serde(rename = "stlt")]
    Stlt(StltSpec),
}

impl ShortcutSpec {
    /// Whether the values make sense; an error names the key and what was expected.
    pub fn check(&self) -> Result<(), Error> {
        let ShortcutSpec::Stlt(spec) = self;
        spec.check().map_err(|e| e.under("shortcut.stlt"))
    }
}

/// What a row's counter does behind its largest value, 15.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StltCounter {
    /// It begins at 0 again.
    Wraps,
    /// It stays there.
    Saturates,
}

/// An STLT: 16 bytes of memory a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StltSpec {
    /// Rows, a power of two from 256 (a page) to 67108864 (1 GB). Default 33554432, which
    /// are the 512 MB of section IV-B.
    pub rows: u64,
    /// Rows that an integer may lie in: 1, 2, 4 or 8. Up to 4 lie in one line, 8 in two.
    /// Default 4 (section IV-A).
    pub ways: u32,
    /// What a row's counter does behind 15. Default `wraps` (section III-E; `saturates` is
    /// ours).
    pub counter: StltCounter,
    /// Cycles of `loadVA` with four ways, beside the memory it reads. Default 6 (table III).
    pub load_latency: u8,
    /// Cycles of `insertSTLT` with four ways, beside the walk and the memory it reads. Default 4
    /// (table III).
    pub insert_latency: u8,
    /// Cycles of both for each way: more ways than four take so much longer, fewer so much less,
    /// at least one cycle. Default 1 (ours: section IV-D2 scans a set row by row, without a number).
    pub scan_latency: u8,
    /// Whether the reply of `loadVA` waits for the lines of its set. Default true; false is no
    /// machine: the reply is there after `load_latency` and the lines are fetched beside, as where
    /// a simulator is given the loads but not what depends on them.
    pub waits_for_set: bool,
    /// Whether rows hold page-table entries, which `loadVA` hands to the MMU. Default true;
    /// false is the paper's STLT-VA (section IV-E): no walk for an insertion, no STB, no IPB.
    pub translations: bool,
    /// Turns the table on and off by how the program fares with it. Default: none, it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<StltGuardSpec>,
}

/// The performance guarantee of section III-F, "turning STLT on and off": each process's questions
/// (`loadVA`) are timed with the table on and off, and the faster one is kept until the next trial.
/// The paper gives no numbers: all defaults are ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StltGuardSpec {
    /// Questions for which what is faster is kept; the last `trial` of them are timed. Default 20000.
    pub period: u64,
    /// Questions then asked the other way, and timed. At most `trial` of `period + trial` are asked
    /// the slower way for long. Default 1000.
    pub trial: u64,
    /// Share of the timed questions that find a row, percent, below which the table is resized to
    /// twice as many rows, which empties it. Default 50; 0: never.
    pub resize_below_percent: u8,
    /// Rows up to which it is resized. Default 67108864 (1 GB, the kernel's largest block).
    pub most_rows: u64,
}

impl Default for StltGuardSpec {
    fn default() -> Self {
        StltGuardSpec {
            period: 20_000,
            trial: 1000,
            resize_below_percent: 50,
            most_rows: MOST_ROWS,
        }
    }
}

impl StltGuardSpec {
    fn check(&self) -> Result<(), Error> {
        if self.trial == 0 || self.trial > self.period {
            return Err(Error::key(
                "trial",
                format!(
                    "is {}; expected 1 to period ({}) questions",
                    self.trial, self.period
                ),
            ));
        }
        if self.resize_below_percent > 100 {
            return Err(Error::key(
                "resize_below_percent",
                format!("is {}; expected 0 to 100", self.resize_below_percent),
            ));
        }
        StltSpec::check_rows("most_rows", self.most_rows)
    }
}

impl Default for StltSpec {
    fn default() -> Self {
        StltSpec {
            rows: 1 << 25,
            ways: 4,
            counter: StltCounter::Wraps,
            load_latency: 6,
            insert_latency: 4,
            scan_latency: 1,
            waits_for_set: true,
            translations: true,
            guard: None,
        }
    }
}

/// Bytes of a row.
pub const STLT_ROW_BYTES: u64 = 16;
/// Fewest rows: the table is page aligned, and a page long.
const FEWEST_ROWS: u64 = 4096 / STLT_ROW_BYTES;
/// Most rows: 1 GB, the kernel's largest block.
const MOST_ROWS: u64 = 1 << 26;
/// Bits of the integer that a row keeps.
const SUB_BITS: u32 = 12;
const SUB_MASK: u64 = (1 << SUB_BITS) - 1;
/// Bits of an address that a row keeps.
const VA_BITS: u32 = 48;
const VA_MASK: u64 = (1 << VA_BITS) - 1;
const COUNTER_SHIFT: u32 = 60;
/// Largest value of a counter.
const MOST_COUNTED: u64 = 15;

/// Ways for which the paper's latencies are (table III, section IV-A).
const WAYS_OF_LATENCIES: u64 = 4;

impl StltSpec {
    /// Cycles from the set's arrival to the reply of an instruction that takes `latency` with
    /// four ways.
    pub fn scanned(&self, latency: u8) -> u8 {
        let scan = |ways: u64| u64::from(self.scan_latency) * ways;
        let with = u64::from(latency) + scan(u64::from(self.ways));
        with.saturating_sub(scan(WAYS_OF_LATENCIES))
            .clamp(1, u64::from(u8::MAX)) as u8
    }

    fn check(&self) -> Result<(), Error> {
        Self::check_rows("rows", self.rows)?;
        if !matches!(self.ways, 1 | 2 | 4 | 8) {
            return Err(Error::key(
                "ways",
                format!("is {}; expected 1, 2, 4 or 8", self.ways),
            ));
        }
        match &self.guard {
            Some(guard) => guard.check().map_err(|e| e.under("guard")),
            None => Ok(()),
        }
    }

    /// Refuses a number of rows, given by `key`, that no table can have.
    pub fn check_rows(key: &str, rows: u64) -> Result<(), Error> {
        if rows.is_power_of_two() && (FEWEST_ROWS..=MOST_ROWS).contains(&rows) {
            return Ok(());
        }
        Err(Error::key(
            key,
            format!("is {rows}; expected a power of two from {FEWEST_ROWS} to {MOST_ROWS}"),
        ))
    }
}

/// What a row says of the page that the record lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StltPage {
    /// First byte of the page's frame.
    pub frame: PhysAddr,
    /// Its size.
    pub size: PageSize,
    /// Stores are allowed.
    pub writable: bool,
}

impl StltPage {
    /// A page-table entry as x86-64 lays it out (present, writable, frame), with the
    /// page's size in two of the bits that are the software's (9 and 10): in a tree the
    /// level tells it.
    fn entry(self) -> u64 {
        self.frame.0 | (self.size.index() as u64) << 9 | u64::from(self.writable) << 1 | 1
    }
    fn of(entry: u64) -> Option<Self> {
        (entry & 1 != 0).then(|| StltPage {
            frame: PhysAddr(entry & !0xfff),
            size: PageSize::ALL[(entry >> 9 & 3) as usize],
            writable: entry & 2 != 0,
        })
    }
}

/// A row that matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StltRow {
    /// Where it lies.
    pub at: PhysAddr,
    /// The address of the record.
    pub va: VirtAddr,
    /// The page around that, if rows keep it.
    pub page: Option<StltPage>,
}

/// What an insertion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StltInserted {
    /// It took an empty row.
    New,
    /// It took the row that matches.
    Matching,
    /// It took the least frequently used row of its set.
    Replaced,
}

/// The rows of one process.
#[derive(Clone, Debug)]
pub struct Stlt {
    base: PhysAddr,
    ways: usize,
    sets: u64,
    saturates: bool,
    /// Two words a row: counter, sub-integer and address; page-table entry. An address
    /// of 0: the row is empty.
    words: Vec<u64>,
    used: u64,
    rng: Rng,
}

impl Stlt {
    /// An empty table of `rows` as `spec`, which was checked, says, at `base`, with random
    /// choices of its own by `name`.
    pub fn new(spec: &StltSpec, rows: u64, base: PhysAddr, seed: u64, name: &str) -> Self {
        Stlt {
            base,
            ways: spec.ways as usize,
            sets: rows / u64::from(spec.ways),
            saturates: spec.counter == StltCounter::Saturates,
            words: vec![0; 2 * rows as usize],
            used: 0,
            rng: rng(seed, name),
        }
    }

    /// Where the table begins.
    pub fn base(&self) -> PhysAddr {
        self.base
    }
    /// Rows, empty or not.
    pub fn rows(&self) -> u64 {
        self.sets * self.ways as u64
    }
    /// Rows that are not empty.
    pub fn used(&self) -> u64 {
        self.used
    }
    /// Whether a row can keep this address.
    pub fn holds(va: VirtAddr) -> bool {
        va.0 != 0 && va.0 & !VA_MASK == 0
    }

    /// Number of the first row of the set of `integer`: by the bits next to the sub-integer.
    fn set(&self, integer: u64) -> usize {
        ((integer >> SUB_BITS) & (self.sets - 1)) as usize * self.ways
    }
    fn at(&self, row: usize) -> PhysAddr {
        PhysAddr(self.base.0 + STLT_ROW_BYTES * row as u64)
    }
    /// The lines of the set of `integer`.
    pub fn lines(&self, integer: u64) -> arrayvec::ArrayVec<PhysAddr, MOST_LINES> {
        let from = self.at(self.set(integer)).0;
        let to = from + STLT_ROW_BYTES * self.ways as u64;
        let first = from & !(LINE_BYTES - 1);
        (first..to)
            .step_by(LINE_BYTES as usize)
            .map(PhysAddr)
            .collect()
    }

    fn matches(&self, row: usize, integer: u64) -> bool {
        let word = self.words[2 * row];
        word & VA_MASK != 0 && word >> VA_BITS & SUB_MASK == integer & SUB_MASK
    }
    fn counter(&self, row: usize) -> u64 {
        self.words[2 * row] >> COUNTER_SHIFT
    }

    /// One of those of the set's rows for which `wanted` says so, all with the same chance.
    fn one_of(&mut self, set: usize, wanted: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let rows = set..set + self.ways;
        let candidates: arrayvec::ArrayVec<usize, 8> = rows.filter(|&r| wanted(self, r)).collect();
        match candidates.len() {
            0 => None,
            1 => Some(candidates[0]),
            n => Some(candidates[self.rng.random_range(0..n)]),
        }
    }

    /// `loadVA`: the row that matches, a random one of several, and its counter goes up
    /// with probability 2^-counter.
    pub fn load(&mut self, integer: u64) -> Option<StltRow> {
        let row = self.one_of(self.set(integer), |t, r| t.matches(r, integer))?;
        self.count(row);
        Some(StltRow {
            at: self.at(row),
            va: VirtAddr(self.words[2 * row] & VA_MASK),
            page: StltPage::of(self.words[2 * row + 1]),
        })
    }

    fn count(&mut self, row: usize) {
        let counter = self.counter(row);
        if self.rng.next_u64() & ((1 << counter) - 1) != 0 {
            return;
        }
        let next = match counter {
            MOST_COUNTED if self.saturates => MOST_COUNTED,
            MOST_COUNTED => 0,
            _ => counter + 1,
        };
        let word = &mut self.words[2 * row];
        *word = *word & !(MOST_COUNTED << COUNTER_SHIFT) | next << COUNTER_SHIFT;
    }

    /// `insertSTLT`: the row that matches, else an empty one, else one of those with the
    /// smallest counter says from now on that the record of `integer` lies at `va`, which
    /// [`Stlt::holds`]. Where it lies, and which row it was.
    pub fn insert(
        &mut self,
        integer: u64,
        va: VirtAddr,
        page: Option<StltPage>,
    ) -> (PhysAddr, StltInserted) {
        let set = self.set(integer);
        let (row, what) = if let Some(r) = self.one_of(set, |t, r| t.matches(r, integer)) {
            (r, StltInserted::Matching)
        } else if let Some(r) = (set..set + self.ways).find(|&r| self.words[2 * r] & VA_MASK == 0) {
            self.used += 1;
            (r, StltInserted::New)
        } else {
            let rows = set..set + self.ways;
            let least = rows.map(|r| self.counter(r)).min().unwrap_or(0);
            let chosen = self.one_of(set, |t, r| t.counter(r) == least);
            (chosen.unwrap_or(set), StltInserted::Replaced)
        };
        self.words[2 * row] = (integer & SUB_MASK) << VA_BITS | va.0 & VA_MASK;
        self.words[2 * row + 1] = page.map_or(0, StltPage::entry);
        (self.at(row), what)
    }

    /// `insertSTLT` of address 0: the row that matches is empty from now on. Where it lies, if
    /// there was one. Insertions never make two rows of a set match.
    pub fn erase(&mut self, integer: u64) -> Option<PhysAddr> {
        self.erase_unless(integer, VirtAddr(0))
    }

    /// The same, unless the row says that the record lies at `va`.
    pub fn erase_unless(&mut self, integer: u64, va: VirtAddr) -> Option<PhysAddr> {
        let row = self.one_of(self.set(integer), |t, r| t.matches(r, integer))?;
        if self.words[2 * row] & VA_MASK == va.0 {
            return None;
        }
        self.words[2 * row..2 * row + 2].fill(0);
        self.used -= 1;
        Some(self.at(row))
    }

    /// Rows whose address `changed` names get the page that `now` tells, and are empty
    /// where there is none; how many there were.
    pub fn refresh(
        &mut self,
        changed: impl Fn(VirtAddr) -> bool,
        now: impl Fn(VirtAddr) -> Option<StltPage>,
    ) -> u64 {
        let mut rows = 0;
        if self.used == 0 {
            return 0;
        }
        for row in self.words.chunks_exact_mut(2) {
            let va = VirtAddr(row[0] & VA_MASK);
            if va.0 == 0 || !changed(va) {
                continue;
            }
            rows += 1;
            match now(va) {
                Some(page) => row[1] = page.entry(),
                None => {
                    row.fill(0);
                    self.used -= 1;
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests;
