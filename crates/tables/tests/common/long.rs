//! Long random sequences of kernel operations. A table grows to thousands of
//! lines and shrinks again several times, with pages of all sizes.

use pagewalk_tables::{Flags, MapError, MapWork};
use pagewalk_units::{Asid, Frame, Page, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::RngExt;

use super::tables::Case;
use super::{Caches, Oracle, Table, TestFrames, agree, caches, find, overlaps, walk};

/// A table under test and the reference map.
pub struct Run<'a> {
    pub case: &'a Case,
    pub table: Table,
    pub source: TestFrames,
    pub oracle: Oracle,
    /// Mapped pages, for random selection.
    mapped: Vec<Page<VirtAddr>>,
    caches: Caches,
    rng: Rng,
    frames: u64,
    /// Remaining steps of the current memory shortage.
    spell: u32,
    /// Number of refused changes.
    pub refused: u64,
    /// Number of moved entries.
    pub moved: u64,
    /// Mappings that allocated memory.
    pub grown: u64,
    /// Mappings that allocated without freeing: old and new table coexist.
    pub begun: u64,
    /// Removals that freed memory or allocated a smaller block.
    pub shrunk: u64,
}

impl<'a> Run<'a> {
    /// An empty table of the case. `seed` selects the random choices.
    pub fn new(case: &'a Case, seed: u64) -> Self {
        let mut source = TestFrames::new();
        Run {
            case,
            table: case.make(Asid(7), &mut source),
            source,
            oracle: Oracle::new(),
            mapped: Vec::new(),
            caches: caches(16),
            rng: rng(seed, "long run"),
            frames: 0,
            spell: 0,
            refused: 0,
            moved: 0,
            grown: 0,
            begun: 0,
            shrunk: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    /// A random page: from dense runs, lone pages in the whole address space, or
    /// huge pages next to and over them.
    fn draw(&mut self) -> Page<VirtAddr> {
        let size = match self.below(32) {
            0..=23 => PageSize::K4,
            24..=30 => PageSize::M2,
            _ => PageSize::G1,
        };
        let va = match self.below(8) {
            0..=2 => 0x7f00_0000_0000 + (self.below(1 << 15) << 12),
            3..=5 => self.below(1 << 35) << 12,
            6 => 0x10_0000_0000 + (self.below(1 << 14) << 15),
            // A neighbour of a mapped page.
            _ if !self.mapped.is_empty() => {
                let at = self.below(self.mapped.len() as u64) as usize;
                self.mapped[at].base.0 ^ (1 + self.below(7)) << size.shift()
            }
            _ => 0,
        };
        VirtAddr(va & ((1 << 47) - 1)).page(size)
    }

    fn account(&mut self, before: (u64, u32), work: &MapWork, up: bool) {
        let after = (self.table.bytes(), self.table.registers());
        assert_eq!(before.0 + work.allocated - work.freed, after.0);
        assert!(work.largest <= work.allocated);
        assert!(work.largest <= self.table.largest_contiguous());
        assert!(work.registers_changed || before.1 == after.1);
        self.moved += u64::from(work.moved);
        self.grown += u64::from(up && work.allocated > 0);
        self.begun += u64::from(up && work.allocated > 0 && work.freed == 0);
        self.shrunk += u64::from(!up && work.allocated + work.freed > 0);
    }

    /// Maps `page` to the next frame, in the table and in the reference map.
    pub fn map(&mut self, page: Page<VirtAddr>) -> Result<(), MapError> {
        self.frames += 1;
        let base = (self.frames << 12) << (page.size.shift() - 12) & ((1 << 52) - 1);
        let flags = Flags(self.below(256) as u8);
        let before = (self.table.bytes(), self.table.registers());
        let f = Frame {
            base: PhysAddr(base),
        };
        let done = self.table.map(page, f, flags, &mut self.source);
        match &done {
            Ok(work) => {
                assert!(!overlaps(&self.oracle, page), "{page:?}");
                self.account(before, work, true);
                self.oracle.insert(page.base.0, (page.size, base, flags));
                self.mapped.push(page);
            }
            Err(MapError::Occupied) => assert!(overlaps(&self.oracle, page), "{page:?}"),
            Err(MapError::Refused(_)) => {
                self.refused += 1;
                assert_eq!(before, (self.table.bytes(), self.table.registers()));
            }
        }
        done.map(|_| ())
    }

    /// Unmaps page `at` of the list.
    fn unmap(&mut self, at: usize) {
        let page = self.mapped.swap_remove(at);
        let before = (self.table.bytes(), self.table.registers());
        let gone = self.table.unmap(page, &mut self.source);
        let (frame, flags, work) = gone.expect("it is mapped");
        let expected = self.oracle.remove(&page.base.0);
        assert_eq!(expected, Some((page.size, frame.base.0, flags)));
        self.account(before, &work, false);
        self.caches.set.invalidate(Asid(7));
    }

    fn set_flags(&mut self, page: Page<VirtAddr>) {
        let flags = Flags(self.below(256) as u8);
        let there = self.oracle.get_mut(&page.base.0);
        let there = there.filter(|(size, ..)| *size == page.size);
        assert_eq!(self.table.set_flags(page, flags), there.is_some());
        if let Some(entry) = there {
            entry.2 = flags;
        }
    }

    /// Table and reference map agree on `va`.
    pub fn agree(&mut self, va: VirtAddr) {
        agree(
            &self.table,
            self.case,
            &self.oracle,
            &self.source,
            va,
            &mut self.caches,
        );
        assert_eq!(self.table.bytes(), self.source.bytes());
    }

    /// One random change, and checks around its address. `maps` of 16 changes
    /// are mappings.
    pub fn step(&mut self, maps: u64) {
        // Occasional memory shortages.
        match self.below(512) {
            0 => self.spell = 128,
            _ => self.spell = self.spell.saturating_sub(1),
        }
        self.source.left = match self.spell {
            0 => u64::MAX,
            _ => self.below(6).saturating_sub(3),
        };
        let page = self.draw();
        let touched = match self.below(16) {
            x if x < maps => {
                let _ = self.map(page);
                page.base
            }
            15 => {
                self.set_flags(page);
                page.base
            }
            _ if self.mapped.is_empty() => page.base,
            x => {
                let at = self.below(self.mapped.len() as u64) as usize;
                let page = self.mapped[at];
                if x == 14 {
                    self.set_flags(page);
                } else {
                    self.unmap(at);
                }
                page.base.offset(self.below(page.size.bytes()))
            }
        };
        self.source.left = u64::MAX;
        self.agree(touched);
        if self.below(16) == 0 {
            let anywhere = VirtAddr(self.draw().base.0 ^ self.below(1 << 21));
            self.agree(anywhere);
            let missing = self.table.unmap(page, &mut self.source).is_some();
            let exact = self.oracle.get(&page.base.0).map(|e| e.0) == Some(page.size);
            assert_eq!(missing, exact);
            if exact {
                self.oracle.remove(&page.base.0);
                self.mapped.retain(|p| *p != page);
                self.caches.set.invalidate(Asid(7));
            }
        }
    }

    /// Compares the whole table with the reference map.
    pub fn compare(&mut self) {
        let mut expected = self.oracle.iter();
        self.table.for_each(&mut |page, frame, flags| {
            let entry = (page.base.0, (page.size, frame.base.0, flags));
            assert_eq!(expected.next().map(|(k, v)| (*k, *v)), Some(entry));
        });
        assert!(expected.next().is_none());
        let largest = self.source.owned.values().copied().max().unwrap_or(0);
        assert!(self.table.largest_contiguous() >= largest);
        for i in (0..self.mapped.len()).step_by(1 + self.mapped.len() / 512) {
            let page = self.mapped[i];
            self.agree(page.base.offset(page.size.bytes() - 1));
        }
        let bits = self.case.spec.address_bits();
        let mut cold = caches(0);
        for va in [1 << (bits - 1), 1 << 62, u64::MAX >> 1] {
            assert_eq!(self.table.translate(VirtAddr(va)), None);
            assert_eq!(walk(&*self.table, VirtAddr(va), &mut cold).1, None);
        }
    }

    /// The visible state of the table.
    pub fn picture(&mut self, near: VirtAddr) -> Picture {
        let mut entries = Vec::new();
        self.table
            .for_each(&mut |p, f, flags| entries.push((p.base.0, f.base.0, flags.0)));
        let mut cold = caches(0);
        let some = self.mapped.iter().step_by(1 + self.mapped.len() / 32);
        let walks = some
            .map(|p| p.base)
            .chain([near])
            .map(|va| walk(&*self.table, va, &mut cold).0)
            .collect();
        Picture {
            entries,
            walks,
            memory: self.source.owned.clone().into_iter().collect(),
            numbers: (self.table.bytes(), self.table.registers()),
        }
    }

    /// Frees everything. Returns a hash of all allocations and frees, in order.
    pub fn finish(mut self) -> u64 {
        self.table.release(&mut self.source);
        assert_eq!((self.table.bytes(), self.source.bytes()), (0, 0));
        assert!(
            self.mapped
                .iter()
                .all(|p| self.table.translate(p.base).is_none())
        );
        // The table can be used again after a release.
        let page = VirtAddr(0x1234_5000).page(PageSize::K4);
        let base = PhysAddr(0x9000);
        self.table
            .map(page, Frame { base }, Flags::WRITABLE, &mut self.source)
            .expect("memory is plenty");
        let found = self.table.translate(page.base).expect("mapped");
        assert_eq!(found.frame.base, base);
        self.table.release(&mut self.source);
        assert_eq!(self.source.bytes(), 0);
        self.source.trace
    }
}

/// The visible state of a table: entries, reads of walks, memory.
#[derive(PartialEq, Debug)]
pub struct Picture {
    entries: Vec<(u64, u64, u8)>,
    walks: Vec<Vec<Vec<PhysAddr>>>,
    memory: Vec<(u64, u64)>,
    numbers: (u64, u32),
}

/// Alternates between phases of mostly mapping and mostly unmapping.
pub fn tides(case: &Case, seed: u64, steps: u64, tides: u64) -> (u64, [u64; 5]) {
    let mut run = Run::new(case, seed);
    for i in 0..steps {
        let rising = (i * tides / steps).is_multiple_of(2);
        run.step(if rising { 11 } else { 3 });
        if i.is_multiple_of((steps / 16).max(1)) {
            run.compare();
        }
    }
    run.compare();
    // Empty the table, so that it shrinks completely.
    while !run.mapped.is_empty() {
        let at = run.below(run.mapped.len() as u64) as usize;
        run.unmap(at);
    }
    run.compare();
    let seen = [run.refused, run.moved, run.grown, run.begun, run.shrunk];
    (run.finish(), seen)
}

/// A short run that tries every change with no free frame, then with one, and so
/// on, until it succeeds. Each refusal must leave the table unchanged.
pub fn every_refusal(case: &Case, seed: u64, steps: u64) -> u64 {
    let mut run = Run::new(case, seed);
    for i in 0..steps {
        let page = run.draw();
        if overlaps(&run.oracle, page) {
            continue;
        }
        if i * 4 / steps == 2 && !run.mapped.is_empty() {
            // A removal succeeds without memory.
            run.source.left = 0;
            let at = run.below(run.mapped.len() as u64) as usize;
            let va = run.mapped[at].base;
            run.unmap(at);
            run.agree(va);
        }
        for left in 0.. {
            run.source.left = left;
            // Comparing the state at every step would take too long. Without an
            // allocation of its own, a change cannot be refused twice.
            let before = (left > 0 || i.is_multiple_of(8)).then(|| run.picture(page.base));
            if run.map(page).is_ok() {
                break;
            }
            if let Some(before) = before {
                assert_eq!(run.picture(page.base), before, "{}, step {i}", case.name);
            }
            assert_eq!(find(&run.oracle, page.base.0), None);
            assert!(left < 64, "a single change wants {left} blocks");
        }
        run.source.left = u64::MAX;
        run.agree(page.base);
    }
    run.compare();
    let refused = run.refused;
    run.finish();
    refused
}
