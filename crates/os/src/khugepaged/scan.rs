//! In which order khugepaged goes through address spaces, and how far a pass comes
//! (`khugepaged_scan_mm_slot` and `khugepaged_do_scan` of Linux mm/khugepaged.c).

use std::ops::Range;

use pagewalk_units::Backing;

use super::Khugepaged;
use crate::Os;
use crate::vma::Vma;

const REGION: u64 = 1 << 21;
/// What a region counts for, whatever is mapped there.
const PAGES: u64 = 512;

/// Where the scan is.
#[derive(Default)]
pub struct Scan {
    /// In which address space, and from which address on it goes on.
    space: Option<usize>,
    at: u64,
    /// It has the address space in its hands: each time it takes one up counts for a page.
    holds: bool,
    /// Of this pass: what it has gone through.
    progress: u64,
    /// Of this pass: times that it began with the first address space.
    rounds: u8,
    /// Of this pass: it has waited for a huge page.
    waited: bool,
    /// A pass is under way.
    under_way: bool,
}

impl Scan {
    /// Whether a pass begins.
    pub fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.under_way, true)
    }

    /// The next step is the first of a pass, which goes on where this one came to.
    pub fn end_pass(&mut self) {
        *self = Scan {
            space: self.space,
            at: self.at,
            ..Scan::default()
        };
    }

    /// After a collapse the address space has to be taken up again.
    pub fn leave_space(&mut self) {
        self.holds = false;
    }

    /// There was no huge page to be had: whether that is the second time in this pass.
    pub fn failed_twice(&mut self) -> bool {
        std::mem::replace(&mut self.waited, true)
    }
}

/// The regions that lie wholly in the area from the address `from` on: numbers.
fn regions(area: &Vma, from: u64) -> Range<u64> {
    let first = area.start.max(from).div_ceil(REGION);
    first..(area.end / REGION).max(first)
}

impl Khugepaged {
    /// Whether the area may have huge pages.
    pub(super) fn may_have(&self, area: &Vma) -> bool {
        area.backing == Backing::Anonymous && self.mode.allows(area.huge)
    }

    /// The next region that a pass goes through: address space and number of the
    /// region; `None` if the pass is over.
    pub(super) fn next_region(&mut self, os: &Os) -> Option<(usize, u64)> {
        let before = self.scan.progress;
        let found = loop {
            if self.scan.progress >= u64::from(self.spec.pages_to_scan) {
                break None;
            }
            let Some(index) = self.space(os) else {
                break None;
            };
            let Some(space) = os.spaces[index].as_ref() else {
                continue;
            };
            let scan = &mut self.scan;
            if !std::mem::replace(&mut scan.holds, true) {
                scan.progress += 1;
            }
            let Some(area) = space.vmas.from(self.scan.at) else {
                self.leave(os, index);
                continue;
            };
            let inside = regions(area, self.scan.at);
            if self.may_have(area) && !inside.is_empty() {
                self.scan.at = (inside.start + 1) * REGION;
                self.scan.progress += PAGES;
                break Some((index, inside.start));
            }
            self.scan.at = area.end;
            self.scan.progress += 1;
        };
        self.stats.pages_scanned += self.scan.progress - before;
        found
    }

    /// The address space that is looked through now; `None` if there is none or the
    /// pass has been through all.
    fn space(&mut self, os: &Os) -> Option<usize> {
        if let Some(index) = self.scan.space {
            if os.spaces[index].is_some() {
                return Some(index);
            }
            self.leave(os, index);
            if self.scan.space.is_some() {
                return self.scan.space;
            }
        }
        self.scan.rounds += 1;
        let first = os.spaces.iter().position(Option::is_some)?;
        if self.scan.rounds > 1 {
            return None;
        }
        (self.scan.space, self.scan.at) = (Some(first), 0);
        Some(first)
    }

    /// Goes on to the address space after `index`.
    fn leave(&mut self, os: &Os, index: usize) {
        let after = os.spaces[index + 1..].iter().position(Option::is_some);
        self.scan.space = after.map(|i| index + 1 + i);
        self.scan.at = 0;
        self.scan.holds = false;
        self.stats.full_scans += u64::from(after.is_none());
    }
}
