//! POM-TLB (Ryoo, Gulur, Song and John, ISCA 2017): a TLB in memory, shared by all cores. A
//! set has four entries and fills one line. 4 KB and 2 MB pages have separate tables.

use pagewalk_stats::Tree;
use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Cycle, Error, LINE_BYTES, PageSize, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Invalidation;

/// A POM-TLB, with 16 bytes of memory for each entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PomTlbSpec {
    /// Entries for 4 KB pages; a multiple of 4. Default 65536 (Revelator, section 6.3: 128 K
    /// entries in total; its second version: 16 MB, which is 524288 entries for each size).
    pub entries_4kb: u32,
    /// Entries for 2 MB pages; a multiple of 4. A 1 GB page is held as 2 MB pieces. Default
    /// 65536.
    pub entries_2mb: u32,
    /// Bits of each core's page-size predictor, a power of two. The index is the lowest bits
    /// of the 2 MB region's number (our choice; Ryoo et al. use nine bits of the address).
    /// Default 512.
    pub size_predictor: u32,
}

impl Default for PomTlbSpec {
    fn default() -> Self {
        PomTlbSpec {
            entries_4kb: 65_536,
            entries_2mb: 65_536,
            size_predictor: 512,
        }
    }
}

/// Entries of a set, which fills one line.
const WAYS: usize = 4;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = LINE_BYTES / WAYS as u64;
/// Maximum entries for one page size: 256 MB.
const MOST_ENTRIES: u32 = 1 << 24;
/// Maximum bits of a size predictor.
const MOST_BITS: u32 = 1 << 20;
/// Bits of a page number in a key: 57-bit addresses in 4 KB pages.
const NUMBER_BITS: u32 = 45;

impl PomTlbSpec {
    /// Checks the values.
    ///
    /// # Errors
    /// One sentence that begins with the impossible key.
    pub fn check(&self) -> Result<(), Error> {
        for (name, entries) in [
            ("entries_4kb", self.entries_4kb),
            ("entries_2mb", self.entries_2mb),
        ] {
            if entries == 0 || entries > MOST_ENTRIES || !entries.is_multiple_of(WAYS as u32) {
                return Err(Error::key(
                    name,
                    format!(
                        "is {entries}; expected a multiple of {WAYS} from {WAYS} to {MOST_ENTRIES}"
                    ),
                ));
            }
        }
        let bits = self.size_predictor;
        if !bits.is_power_of_two() || bits > MOST_BITS {
            return Err(Error::key(
                "size_predictor",
                format!("is {bits}; expected a power of two, at most {MOST_BITS}"),
            ));
        }
        Ok(())
    }

    /// Entries for 4 KB pages and for 2 MB pages.
    fn entries(&self) -> [u32; 2] {
        [self.entries_4kb, self.entries_2mb]
    }

    /// Bytes of memory for the entries of 4 KB pages and of 2 MB pages.
    pub fn bytes(&self) -> [u64; 2] {
        self.entries().map(|n| u64::from(n) * ENTRY_BYTES)
    }
}

pagewalk_stats::counters! {
    /// Counters of the contents of an in-memory TLB.
    pub struct PomTlbStats {
        gauge bytes: "bytes", "Physical memory of the in-memory TLB";
        gauge entries_4kb: "entries", "Entries in use of 4 KB pages";
        gauge entries_2mb: "entries", "Entries in use of 2 MB pages, or of 2 MB pieces of 1 GB pages";
        evictions: "entries", "Entries replaced while still valid";
        invalidated: "entries", "Entries dropped because the kernel changed their page";
    }
}

/// The translation that an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PomEntry {
    /// First byte of the frame.
    pub frame: PhysAddr,
    /// Stores are allowed.
    pub writable: bool,
}

/// The stored form of an entry: the frame, with bit 0 = writable, and the cycle from which it
/// is valid.
#[derive(Clone, Copy, Default, Debug)]
struct StoredEntry {
    frame: u64,
    ready: Cycle,
}

/// The contents of a POM-TLB. Its only notion of time is the cycle from which each entry is
/// valid.
#[derive(Clone, Debug)]
pub struct PomTlb {
    /// Tables for 4 KB pages and for 2 MB pages.
    tables: [Table; 2],
    evictions: u64,
    invalidated: u64,
}

/// The entries of one page size.
#[derive(Clone, Debug)]
struct Table {
    base: PhysAddr,
    sets: u64,
    size: PageSize,
    entries: SetAssoc<StoredEntry>,
    used: u64,
}

impl Table {
    /// The page number of `va`.
    fn number(&self, va: u64) -> u64 {
        (va >> self.size.shift()) & ((1 << NUMBER_BITS) - 1)
    }

    fn drop_entry(&mut self, asid: Asid, number: u64) -> bool {
        let gone = self.entries.remove(number, key(asid, number)).is_some();
        self.used -= u64::from(gone);
        gone
    }

    /// Drops the entries of pages `first..=last` and returns their number.
    fn drop_range(&mut self, asid: Asid, first: u64, last: u64) -> u64 {
        if last - first < self.sets {
            return (first..=last)
                .map(|n| u64::from(self.drop_entry(asid, n)))
                .sum();
        }
        let (first, last) = (key(asid, first), key(asid, last));
        let mut dropped = 0;
        self.entries.retain(|key, _| {
            let covered = (first..=last).contains(&key);
            dropped += u64::from(covered);
            !covered
        });
        self.used -= dropped;
        dropped
    }
}

/// The key of a page in the table of its size.
fn key(asid: Asid, number: u64) -> u64 {
    u64::from(asid.0) << 48 | number
}

impl PomTlb {
    /// An empty POM-TLB. `spec` is already checked. `bases` are the start addresses of the
    /// tables of 4 KB and of 2 MB pages.
    pub fn new(spec: &PomTlbSpec, bases: [PhysAddr; 2]) -> Self {
        let entries = spec.entries();
        let table = |i: usize| {
            let sets = entries[i] as usize / WAYS;
            Table {
                base: bases[i],
                sets: sets as u64,
                size: PageSize::ALL[i],
                entries: SetAssoc::new(sets, WAYS),
                used: 0,
            }
        };
        PomTlb {
            tables: [table(0), table(1)],
            evictions: 0,
            invalidated: 0,
        }
    }

    /// The entry size that holds a page of `size`.
    pub fn held(size: PageSize) -> PageSize {
        size.min(PageSize::M2)
    }

    fn table(&mut self, size: PageSize) -> &mut Table {
        &mut self.tables[Self::held(size).index()]
    }

    /// The line of the set for the page of `size` around `va`.
    pub fn line(&self, va: u64, size: PageSize) -> PhysAddr {
        let t = &self.tables[Self::held(size).index()];
        PhysAddr(t.base.0 + LINE_BYTES * (t.number(va) % t.sets))
    }

    /// Looks up the page of `size` around `va`. Returns the entry if it is valid at `now`.
    /// The entry becomes the most recently used one of its set.
    pub fn lookup(&mut self, asid: Asid, va: u64, size: PageSize, now: Cycle) -> Option<PomEntry> {
        let t = self.table(size);
        let number = t.number(va);
        let kept = t.entries.lookup(number, key(asid, number))?;
        (kept.ready <= now).then_some(PomEntry {
            frame: PhysAddr(kept.frame & !1),
            writable: kept.frame & 1 != 0,
        })
    }

    /// Inserts the page of `size`, 4 KB or 2 MB, around `va`. Replaces the least recently
    /// used entry of its set. The entry is valid from `ready` on.
    pub fn insert(&mut self, asid: Asid, va: u64, size: PageSize, page: PomEntry, ready: Cycle) {
        let t = self.table(size);
        let number = t.number(va);
        let key = key(asid, number);
        let kept = StoredEntry {
            frame: page.frame.0 | u64::from(page.writable),
            ready,
        };
        let evicted = match t.entries.insert(number, key, kept) {
            None => {
                t.used += 1;
                false
            }
            Some((old, _)) => old != key,
        };
        self.evictions += u64::from(evicted);
    }

    /// Drops the entries that an invalidation covers.
    pub fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        for t in &mut self.tables {
            let (first, last) = (t.number(first.0), t.number(last.0));
            self.invalidated += t.drop_range(asid, first, last);
        }
    }

    /// Counters and gauges.
    pub fn stats(&self) -> PomTlbStats {
        let [small, large] = &self.tables;
        PomTlbStats {
            bytes: (small.sets + large.sets) * LINE_BYTES,
            entries_4kb: small.used,
            entries_2mb: large.used,
            evictions: self.evictions,
            invalidated: self.invalidated,
        }
    }

    /// Adds the counters at `path`.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
    }
}
