//! Cuckoo walk tables (CWTs). They record which page sizes a section of the address
//! space holds, and which way holds the section's cluster of large pages (Skarlatos
//! et al., ASPLOS 2020, section 4).
//!
//! The PMD-CWT describes the table of 2 MB pages. It has one header for each 16 MB,
//! the reach of one cluster, and 64 headers in a line. The PUD-CWT describes the
//! table of 1 GB pages, with one header for each 8 GB. 4 KB pages have no CWT. Both
//! CWTs are themselves elastic cuckoo tables.
//!
//! The PMD-CWT does not describe 1 GB pages: a region with a PMD-CWT line contains
//! none.

use pagewalk_units::{Addr, Frame, PageSize};
use rustc_hash::FxHashMap;

use super::elastic::{Elastic, Env};
use super::l2p::L2p;
use super::line::CwtLine;
use super::spec::ElasticSpec;
use crate::cwc::Cwt;
use crate::owner::Owner;
use crate::{FrameSource, MapWork, NoFrames, Refusal, Want};

/// The section holds 4 KB pages.
pub const SMALL: u8 = 1;
/// The section holds 2 MB pages.
pub const HUGE: u8 = 1 << 1;
/// The section holds 1 GB pages.
pub const GIANT: u8 = 1 << 2;
/// The section holds pages of some size.
pub(super) const PRESENT: u8 = SMALL | HUGE | GIANT;
/// Lowest bit of the way in a header.
pub const WAY_SHIFT: u32 = 3;
/// Mask of the way in a header, above [`WAY_SHIFT`].
pub const WAY: u8 = 3;

/// The way in a header. The bits above it belong to the line.
#[inline]
pub(super) fn way_of(header: u8) -> u8 {
    header >> WAY_SHIFT & WAY
}

/// The section number of an address.
#[inline]
pub(super) fn section_of(cwt: Cwt, va: u64) -> u64 {
    match cwt {
        Cwt::Pmd => va >> 24,
        Cwt::Pud => va >> 33,
    }
}

/// The key of a section's line, and the section's index in the line.
#[inline]
pub(super) fn place_of(section: u64) -> (u64, usize) {
    (section >> 6, (section & 63) as usize)
}

/// Salts of the two walk tables' hash functions. The page tables use the numbers of
/// their page sizes as salts.
const SALTS: [u64; 2] = [3, 4];

/// Ways of a walk table (ME-HPT, table III).
const WAYS: u8 = 2;

/// The parameters of the walk tables of page tables with parameters `pages`. As
/// in ECPT, ways are contiguous and are resized all together and out of place.
pub(super) fn spec(pages: &ElasticSpec) -> ElasticSpec {
    ElasticSpec {
        ways: WAYS,
        initial_slots: 128,
        chunks: Vec::new(),
        in_place: false,
        per_way: false,
        ..pages.clone()
    }
}

/// Both walk tables, and the kernel's counts of clusters that show when a section has
/// become empty.
pub(super) struct WalkTables<A> {
    tables: [Elastic<CwtLine, A>; 2],
    /// Unused: the ways of walk tables are contiguous.
    l2p: L2p,
    /// Number of clusters of 4 KB pages in each 16 MB.
    small: FxHashMap<u64, u32>,
    /// For each 8 GB: number of 16 MB sections that hold 4 KB pages, and of clusters
    /// of 2 MB pages.
    large: FxHashMap<u64, [u32; 2]>,
}

/// Undo record for the walk-table lines that were added for a new cluster. It
/// restores the previous state if the cluster finds no slot.
pub(super) struct Added<A> {
    before: [Option<Elastic<CwtLine, A>>; 2],
    taken: Vec<(Frame<A>, u64)>,
    freed: Vec<(Frame<A>, u64)>,
}

/// A frame source that defers frees, so that all changes can be undone.
struct Undoable<'a, A> {
    frames: &'a mut dyn FrameSource<A>,
    taken: &'a mut Vec<(Frame<A>, u64)>,
    freed: &'a mut Vec<(Frame<A>, u64)>,
}

impl<A: Addr> FrameSource<A> for Undoable<'_, A> {
    fn alloc(&mut self, want: Want) -> Result<Frame<A>, NoFrames> {
        let frame = self.frames.alloc(want)?;
        self.taken.push((frame, want.bytes));
        Ok(frame)
    }
    fn free(&mut self, frame: Frame<A>, bytes: u64) {
        self.freed.push((frame, bytes));
    }
}

/// The sections of both tables that cover the cluster of `key`, and the header bit of
/// its page size.
fn sections(size: PageSize, key: u64) -> ([Option<u64>; 2], u8) {
    match size {
        PageSize::K4 => ([Some(key >> 9), Some(key >> 18)], SMALL),
        PageSize::M2 => ([Some(key), Some(key >> 9)], HUGE),
        PageSize::G1 => ([None, Some(key)], GIANT),
    }
}

impl<A: Addr> WalkTables<A> {
    /// Empty walk tables.
    pub(super) fn new(spec: &ElasticSpec, owner: Owner) -> Self {
        let table = |salt| Elastic::new(spec, None, salt, owner);
        WalkTables {
            tables: [table(SALTS[0]), table(SALTS[1])],
            l2p: L2p::new(0, 0),
            small: FxHashMap::default(),
            large: FxHashMap::default(),
        }
    }

    /// The table of `cwt`.
    pub(super) fn table(&self, cwt: Cwt) -> &Elastic<CwtLine, A> {
        &self.tables[cwt as usize]
    }

    /// The header of `section` in memory; 0 without a line.
    pub(super) fn header(&self, cwt: Cwt, section: u64) -> u8 {
        let (key, at) = place_of(section);
        let table = &self.tables[cwt as usize];
        table
            .find(key)
            .map_or(0, |place| CwtLine::header(table.line(place), at))
    }

    /// True if the 1 GB region at `va` holds smaller pages.
    pub(super) fn any_below_giant(&self, va: u64) -> bool {
        self.tables[Cwt::Pmd as usize].find(va >> 30).is_some()
    }

    fn set(&mut self, cwt: Cwt, section: u64, change: impl FnOnce(u8) -> u8) {
        let (key, at) = place_of(section);
        let table = &mut self.tables[cwt as usize];
        if let Some(place) = table.find(key) {
            let line = table.line_mut(place);
            CwtLine::set(line, at, change(CwtLine::header(line, at)));
        }
    }

    /// Adds the lines that a new cluster needs. Changes nothing on failure. The
    /// caller must pass the result to [`WalkTables::commit`] or [`WalkTables::undo`].
    pub(super) fn prepare(
        &mut self,
        size: PageSize,
        key: u64,
        frames: &mut dyn FrameSource<A>,
        work: &mut MapWork,
    ) -> Result<Option<Box<Added<A>>>, Refusal> {
        let (sections, bit) = sections(size, key);
        let mut added: Option<Box<Added<A>>> = None;
        for (i, section) in sections.into_iter().enumerate() {
            let Some(section) = section else { continue };
            let (line, at) = place_of(section);
            if self.tables[i].find(line).is_some() {
                continue;
            }
            let undo = added.get_or_insert_with(|| {
                Box::new(Added {
                    before: [None, None],
                    taken: Vec::new(),
                    freed: Vec::new(),
                })
            });
            undo.before[i] = Some(self.tables[i].clone());
            let mut source = Undoable {
                frames,
                taken: &mut undo.taken,
                freed: &mut undo.freed,
            };
            let mut fresh = CwtLine::empty(line);
            CwtLine::set(&mut fresh, at, bit);
            let env = &mut Env {
                frames: &mut source,
                l2p: &mut self.l2p,
                work,
            };
            let done = self.tables[i].insert(line, fresh, env, &mut |_, _| {});
            if let Err(refusal) = done {
                if let Some(undo) = added {
                    self.undo(*undo, frames);
                }
                return Err(refusal);
            }
        }
        Ok(added)
    }

    /// Reverts [`WalkTables::prepare`] after the cluster found no slot.
    pub(super) fn undo(&mut self, added: Added<A>, frames: &mut dyn FrameSource<A>) {
        for (table, before) in self.tables.iter_mut().zip(added.before) {
            if let Some(before) = before {
                *table = before;
            }
        }
        for (frame, bytes) in added.taken.into_iter().rev() {
            frames.free(frame, bytes);
        }
    }

    /// Updates headers and counts after a prepared cluster was inserted.
    pub(super) fn commit(
        &mut self,
        size: PageSize,
        key: u64,
        added: Option<Box<Added<A>>>,
        frames: &mut dyn FrameSource<A>,
    ) {
        for (frame, bytes) in added.into_iter().flat_map(|a| a.freed) {
            frames.free(frame, bytes);
        }
        match size {
            PageSize::K4 => {
                let small = self.small.entry(key >> 9).or_default();
                *small += 1;
                if *small == 1 {
                    self.set(Cwt::Pmd, key >> 9, |h| h | SMALL);
                    let large = self.large.entry(key >> 18).or_default();
                    large[0] += 1;
                    if large[0] == 1 {
                        self.set(Cwt::Pud, key >> 18, |h| h | SMALL);
                    }
                }
            }
            PageSize::M2 => {
                self.set(Cwt::Pmd, key, |h| h | HUGE);
                let large = self.large.entry(key >> 9).or_default();
                large[1] += 1;
                if large[1] == 1 {
                    self.set(Cwt::Pud, key >> 9, |h| h | HUGE);
                }
            }
            PageSize::G1 => self.set(Cwt::Pud, key, |h| h | GIANT),
        }
    }

    /// Records that the cluster of `key`, of pages above 4 KB, now lies in `way`.
    pub(super) fn landed(&mut self, size: PageSize, key: u64, way: u8) {
        let cwt = match size {
            PageSize::K4 => return,
            PageSize::M2 => Cwt::Pmd,
            PageSize::G1 => Cwt::Pud,
        };
        self.set(cwt, key, |h| h & PRESENT | way << WAY_SHIFT);
    }

    /// Updates headers and counts after the cluster of `key` was removed.
    pub(super) fn removed(
        &mut self,
        size: PageSize,
        key: u64,
        frames: &mut dyn FrameSource<A>,
        work: &mut MapWork,
    ) {
        match size {
            PageSize::K4 => {
                let section = key >> 9;
                let small = self.small.get_mut(&section).map(|n| {
                    *n -= 1;
                    *n
                });
                if small == Some(0) {
                    self.small.remove(&section);
                    self.clear(Cwt::Pmd, section, SMALL, frames, work);
                    self.less_in_large(key >> 18, 0, frames, work);
                }
            }
            PageSize::M2 => {
                self.clear(Cwt::Pmd, key, HUGE, frames, work);
                self.less_in_large(key >> 9, 1, frames, work);
            }
            PageSize::G1 => self.clear(Cwt::Pud, key, GIANT, frames, work),
        }
    }

    fn less_in_large(
        &mut self,
        section: u64,
        which: usize,
        frames: &mut dyn FrameSource<A>,
        work: &mut MapWork,
    ) {
        let Some(large) = self.large.get_mut(&section) else {
            return;
        };
        large[which] -= 1;
        let (gone, none) = (large[which] == 0, *large == [0, 0]);
        if none {
            self.large.remove(&section);
        }
        if gone {
            self.clear(Cwt::Pud, section, [SMALL, HUGE][which], frames, work);
        }
    }

    /// Clears `bit` in a header. Removes the line if it has become empty.
    fn clear(
        &mut self,
        cwt: Cwt,
        section: u64,
        bit: u8,
        frames: &mut dyn FrameSource<A>,
        work: &mut MapWork,
    ) {
        let (key, at) = place_of(section);
        let table = &mut self.tables[cwt as usize];
        let Some(place) = table.find(key) else { return };
        let line = table.line_mut(place);
        let left = CwtLine::header(line, at) & !bit;
        // The way field belongs to the page size that the table describes.
        let own = [HUGE, GIANT][cwt as usize];
        let left = if left & own == 0 {
            left & PRESENT
        } else {
            left
        };
        CwtLine::set(line, at, left);
        if CwtLine::used(line) == 0 {
            let l2p = &mut self.l2p;
            table.remove(place, &mut Env { frames, l2p, work }, &mut |_, _| {});
        }
    }

    /// See [`crate::PageTable`].
    pub(super) fn registers(&self) -> u32 {
        self.tables.iter().map(Elastic::registers).sum()
    }
    /// Memory of both tables, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.iter().map(Elastic::bytes).sum()
    }
    /// Largest contiguous block that they have ever held, in bytes.
    pub(super) fn largest(&self) -> u64 {
        let all = self.tables.iter().map(Elastic::largest);
        all.max().unwrap_or(0)
    }

    /// Frees all memory.
    pub(super) fn release(&mut self, frames: &mut dyn FrameSource<A>) {
        let work = &mut MapWork::default();
        for table in &mut self.tables {
            let l2p = &mut self.l2p;
            table.release(&mut Env { frames, l2p, work });
        }
        self.small = FxHashMap::default();
        self.large = FxHashMap::default();
    }
}
