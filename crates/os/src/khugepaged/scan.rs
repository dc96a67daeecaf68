//! The order in which khugepaged scans address spaces, and the extent of a pass
//! (`khugepaged_scan_mm_slot` and `khugepaged_do_scan` of Linux mm/khugepaged.c).

use std::ops::Range;

use pagewalk_units::Backing;

use super::Khugepaged;
use crate::Os;
use crate::space::Space;
use crate::vma::Vma;

const REGION: u64 = 1 << 21;
/// Pages that a scanned region counts for, mapped or not.
const PAGES: u64 = 512;

/// Position of the scan.
#[derive(Default)]
pub struct Scan {
    /// The current address space, and the address where the scan continues.
    space: Option<usize>,
    at: u64,
    /// True while the address space is locked. Each lock counts as one page.
    holds: bool,
    /// Pages scanned in this pass.
    progress: u64,
    /// Number of times that this pass started with the first address space.
    rounds: u8,
    /// True if this pass has already slept for lack of a huge page.
    waited: bool,
    /// True during a pass.
    under_way: bool,
}

impl Scan {
    /// Marks the start of a pass. Returns true if none was in progress.
    pub fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.under_way, true)
    }

    /// Ends the pass. The next one continues at this position.
    pub fn end_pass(&mut self) {
        *self = Scan {
            space: self.space,
            at: self.at,
            ..Scan::default()
        };
    }

    /// Unlocks the address space after a collapse.
    pub fn leave_space(&mut self) {
        self.holds = false;
    }

    /// Records a failed huge-page allocation. Returns true for the second one of this
    /// pass.
    pub fn failed_twice(&mut self) -> bool {
        std::mem::replace(&mut self.waited, true)
    }
}

/// Numbers of the regions that lie entirely in the area, from address `from` on.
fn regions(area: &Vma, from: u64) -> Range<u64> {
    let first = area.start.max(from).div_ceil(REGION);
    first..(area.end / REGION).max(first)
}

impl Khugepaged {
    /// True if the area may have huge pages.
    pub(super) fn may_have(&self, area: &Vma, space: &Space) -> bool {
        !space.no_huge && area.backing == Backing::Anonymous && self.mode.allows(area.huge)
    }

    /// The next region of a pass: address space and region number. `None` at the end of
    /// the pass.
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
            if self.may_have(area, space) && !inside.is_empty() {
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

    /// The address space to scan. `None` if there is none, or if the pass has scanned all.
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

    /// Continues with the address space after `index`.
    fn leave(&mut self, os: &Os, index: usize) {
        let after = os.spaces[index + 1..].iter().position(Option::is_some);
        self.scan.space = after.map(|i| index + 1 + i);
        self.scan.at = 0;
        self.scan.holds = false;
        self.stats.full_scans += u64::from(after.is_none());
    }
}
