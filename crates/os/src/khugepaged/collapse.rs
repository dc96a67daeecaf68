//! Scans a region and collapses its small pages into a 2 MB page (`hpage_collapse_scan_pmd`
//! and `collapse_huge_page` of Linux mm/khugepaged.c).
//!
//! A region with swapped-out pages is never collapsed (Linux's `max_ptes_swap` is 64). Linux's
//! other checks always pass: nothing is pinned or locked, and all mapped pages count as
//! accessed, because accesses are not tracked.

use pagewalk_tables::{Flags, Purpose, Refusal};
use pagewalk_units::{Backing, PageSize, VirtAddr};

use super::Khugepaged;
use crate::kernel::Kernel;
use crate::memory::HUGE_ORDER;
use crate::region::{Region, RegionKind};
use crate::space::Space;
use crate::{Effects, Os, OsError, Pid};

/// 4 KB pages of a region.
const PAGES: u64 = 512;

/// Result of scanning a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollapseOutcome {
    /// The region is unchanged.
    Nothing,
    /// The region was collapsed into a 2 MB page.
    Collapsed,
    /// The region qualifies, but no block is available.
    NoBlock,
}

/// Result of reading a region's entries.
enum Found {
    /// The region may be collapsed.
    Fit,
    TooManyNone,
    TooManyShared,
}

/// Work of a collapse, in bytes.
struct Collapsed {
    copied: u64,
    zeroed: u64,
}

/// Collapses the small pages of region `key` into a 2 MB page, for which movable frames may be migrated if `defrag`.
/// `None`: nothing has changed, because there is no block for it or no memory for the page table.
fn collapse(
    space: &mut Space,
    k: &mut Kernel,
    key: u64,
    defrag: bool,
    fx: &mut Effects,
) -> Result<Option<Collapsed>, Refusal> {
    let vpn = key << 9;
    let moved = k.memory().compacted_frames;
    let wanted = k.frame(space.want(PageSize::M2, Purpose::Collapse { vpn, defrag }));
    fx.cycles += k.prices.copy((k.memory().compacted_frames - moved) * 4096);
    let Ok(frame) = wanted else {
        if let Some(region) = space.regions.get_mut(key) {
            region.refused = true;
        }
        return Ok(None);
    };
    let writable = space.vmas.find(key << 21).is_some_and(|v| v.writable);
    let flags = if writable {
        Flags::WRITABLE
    } else {
        Flags::default()
    };
    let Some(small) = space.merge(k, key, frame, flags, fx)? else {
        k.put(frame, HUGE_ORDER);
        return Ok(None);
    };
    let zeros = small.iter().filter(|(_, frame)| k.is_zero(*frame)).count();
    let copied = (small.len() - zeros) as u64 * 4096;
    for (_, frame) in small {
        k.put(frame, 0);
    }
    let zeroed = PAGES * 4096 - copied;
    fx.cycles += k.prices.copy(copied) + k.prices.zero(zeroed);
    Ok(Some(Collapsed { copied, zeroed }))
}

impl Khugepaged {
    /// Scans region `key` of an address space and collapses it if it qualifies. Adds the cost
    /// to `fx.cycles`.
    pub(super) fn look_at(
        &mut self,
        os: &mut Os,
        space: usize,
        key: u64,
        fx: &mut Effects,
    ) -> Result<CollapseOutcome, OsError> {
        let Some(space) = &mut os.spaces[space] else {
            return Ok(CollapseOutcome::Nothing);
        };
        let k = &mut os.kernel;
        let small =
            |r: &&Region| r.kind == RegionKind::Small && r.reserved.is_none() && r.count > 0;
        let swapped = (space.swapped.range(key << 9..(key + 1) << 9).next()).is_some();
        let fit = space.regions.get(key).filter(small).filter(|_| !swapped);
        let Some(region) = fit else {
            fx.cycles += k.prices.scan(1);
            return Ok(CollapseOutcome::Nothing);
        };
        let refused = region.refused && k.memory().refuses_for_good();
        let (found, entries) = self.read(region, space, k, key);
        fx.cycles += k.prices.scan(entries);
        match found {
            Found::TooManyNone => self.stats.exceeded_none += 1,
            Found::TooManyShared => self.stats.exceeded_shared += 1,
            Found::Fit if refused => {
                self.stats.allocation_failures += 1;
                return Ok(CollapseOutcome::NoBlock);
            }
            Found::Fit => {
                let collapsed = self.collapse(space, k, key, fx);
                let collapsed = collapsed.map_err(|refusal| os.stuck(refusal))?;
                os.back(fx)?;
                return Ok(if collapsed {
                    CollapseOutcome::Collapsed
                } else {
                    CollapseOutcome::NoBlock
                });
            }
        }
        Ok(CollapseOutcome::Nothing)
    }

    /// Reads the entries of region `key` until the decision is clear. Returns the number of
    /// entries read.
    fn read(&self, region: &Region, space: &Space, k: &Kernel, key: u64) -> (Found, u64) {
        let (mut none, mut shared) = (0, 0);
        for i in 0..PAGES {
            if !region.has(i) {
                none += 1;
                if none > self.spec.max_ptes_none {
                    return (Found::TooManyNone, i + 1);
                }
            } else if space.forked {
                let at = VirtAddr(key << 21 | i << 12);
                let mapped = space.table.translate(at).map(|t| t.frame);
                // The shared zero page counts as none.
                if mapped.is_some_and(|frame| k.is_zero(frame)) {
                    none += 1;
                    if none > self.spec.max_ptes_none {
                        return (Found::TooManyNone, i + 1);
                    }
                    continue;
                }
                shared += u16::from(mapped.is_some_and(|frame| k.is_shared(frame, 0)));
                if shared > self.spec.max_ptes_shared {
                    return (Found::TooManyShared, i + 1);
                }
            }
        }
        (Found::Fit, PAGES)
    }

    /// Collapses the small pages of region `key` into a 2 MB page. Returns false, without
    /// changes, if there is no block for it or no memory for the page table.
    fn collapse(
        &mut self,
        space: &mut Space,
        k: &mut Kernel,
        key: u64,
        fx: &mut Effects,
    ) -> Result<bool, Refusal> {
        let Some(collapsed) = collapse(space, k, key, self.spec.defrag, fx)? else {
            self.stats.allocation_failures += 1;
            return Ok(false);
        };
        self.stats.copied_bytes += collapsed.copied;
        self.stats.zeroed_bytes += collapsed.zeroed;
        self.stats.collapses += 1;
        Ok(true)
    }

    /// Collapses qualifying regions of all address spaces until nothing changes.
    pub(super) fn settle(&mut self, os: &mut Os, fx: &mut Effects) -> Result<(), OsError> {
        let mut own = Effects::default();
        let before = self.stats.collapses;
        // Pages that one collapse copies are no longer shared, which may let another region
        // qualify.
        'all: loop {
            let collapses = self.stats.collapses;
            for space in 0..os.spaces.len() {
                for key in self.collapsible(os, space) {
                    let looked = self.look_at(os, space, key, &mut own)?;
                    let memory = os.kernel.memory();
                    if looked == CollapseOutcome::NoBlock && !memory.refuses_for_good() {
                        // No other region would get a block either.
                        break 'all;
                    }
                }
            }
            if self.stats.collapses == collapses {
                break;
            }
        }
        self.stats.settled_collapses += self.stats.collapses - before;
        fx.invalidate.append(&mut own.invalidate);
        Ok(())
    }

    /// Numbers of the regions of an address space that have small pages and may have a large
    /// one.
    fn collapsible(&self, os: &Os, space: usize) -> Vec<u64> {
        let Some(space) = &os.spaces[space] else {
            return Vec::new();
        };
        let covered = |key: u64| {
            let area = space.vmas.find(key << 21);
            area.is_some_and(|v| self.may_have(v, space) && v.end >> 21 > key)
        };
        let small = space
            .regions
            .iter()
            .filter(|(_, r)| r.kind == RegionKind::Small);
        small
            .map(|(key, _)| key)
            .filter(|&key| covered(key))
            .collect()
    }
}

impl Os {
    /// MADV_COLLAPSE: collapses the regions that lie in `from..to`, on the caller's time. khugepaged's limits do not
    /// hold (`madvise_collapse` of Linux mm/khugepaged.c). A region without pages, or without a free block, stays.
    pub(crate) fn collapse_range(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        for key in from.div_ceil(PAGES << 12)..to / (PAGES << 12) {
            let Some(space) = &mut self.spaces[pid as usize] else {
                break;
            };
            let area = space.vmas.find(key << 21).filter(|v| v.end >> 21 > key);
            let allowed = !space.no_huge
                && area.is_some_and(|v| {
                    v.backing == Backing::Anonymous && self.placement.may_collapse(v.huge)
                });
            let small =
                |r: &Region| r.kind == RegionKind::Small && r.reserved.is_none() && r.count > 0;
            let swapped = (space.swapped.range(key << 9..(key + 1) << 9).next()).is_some();
            if !allowed || swapped || !space.regions.get(key).is_some_and(small) {
                continue;
            }
            let k = &mut self.kernel;
            fx.cycles += k.prices.scan(PAGES);
            match collapse(space, k, key, true, fx) {
                Ok(Some(done)) => {
                    k.stats.copied_bytes += done.copied;
                    k.stats.zeroed_bytes += done.zeroed;
                }
                Ok(None) => {}
                Err(refusal) => return Err(self.stuck(refusal)),
            }
        }
        self.back(fx)?;
        self.shadow()
    }

    /// Error for a page table that could not restore its previous mappings.
    pub(crate) fn stuck(&self, refusal: Refusal) -> OsError {
        match refusal {
            Refusal::NoFrames(refusal) => self.refusal(refusal.bytes),
            Refusal::Limit(limit) => OsError::TableLimit {
                at: self.kernel.refused,
                limit,
            },
        }
    }
}
