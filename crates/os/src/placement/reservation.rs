//! Reservations (Navarro et al., "Practical, transparent operating system support for
//! superpages", OSDI 2002): the THP of Revelator and SpecTLB.
//!
//! An area that may grow, such as a heap, gets reservations that reach beyond its end.
//! Their blocks are no larger than the area (section 4.2). Such a reservation becomes
//! a 2 MB page only after the area covers it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pagewalk_tables::{Flags, Purpose, Refusal};
use pagewalk_units::{Error, PageSize, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::{Placement, ThpMode, ThpSizes, small};
use crate::Effects;
use crate::kernel::Kernel;
use crate::memory::HUGE_ORDER;
use crate::region::{Region, RegionKind};
use crate::space::Space;
use crate::spec::share;
use crate::touch::Touch;

/// Reservations, and the condition for their promotion.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationSpec {
    /// Share of the region that must be exceeded for promotion, 0 to 1 (Revelator,
    /// table 1: 0.3).
    pub promotion_threshold: f64,
}

impl PolicySpec for ReservationSpec {
    fn check(&self) -> Result<(), Error> {
        share("promotion_threshold", self.promotion_threshold)
    }
    fn build(&self, _frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(Reservation::new(self.promotion_threshold)))
    }
    fn thp(&self) -> Option<(ThpMode, ThpSizes)> {
        Some((ThpMode::Always, ThpSizes::default()))
    }
}

/// 4 KB pages of a 2 MB region.
const PAGES: u64 = 512;

/// Reserves a block at the first touch, and promotes it to a 2 MB page when enough of
/// it is in use.
pub(super) struct Reservation {
    /// A region with more pages than this is promoted.
    most_pages: u64,
    /// Reservations by pages in use, ASID and region. Built when memory runs out for
    /// the first time. Entries may be stale.
    least_used: Option<BinaryHeap<Reverse<(u16, u16, u64)>>>,
}

impl Reservation {
    /// Promotes when the share of pages in use exceeds `threshold`.
    pub(super) fn new(threshold: f64) -> Self {
        Reservation {
            most_pages: (threshold * PAGES as f64).floor() as u64,
            least_used: None,
        }
    }

    /// Reserves a block for the region of `touch`, if the region may have one.
    fn reserve(&mut self, touch: &Touch<'_>, space: &mut Space, k: &mut Kernel) {
        let key = touch.at >> 21;
        if !touch.may_be_large()
            || !(touch.covers(PageSize::M2) || touch.may_grow_over(PageSize::M2, &space.vmas))
            || space.regions.covering(key).is_some()
        {
            return;
        }
        let purpose = Purpose::Reservation { vpn: key << 9 };
        match k.frame(space.want(PageSize::M2, purpose)) {
            Ok(base) => {
                space.regions.insert(key, Region::small(Some(base)));
                k.stats.reservations_made += 1;
                k.stats.reservations += 1;
                if let Some(heap) = &mut self.least_used {
                    heap.push(Reverse((0, space.asid.0, key)));
                }
            }
            Err(_) => k.stats.huge_fallbacks += 1,
        }
    }

    /// Promotes the reservation of region `key` to a 2 MB page. If the page table gets
    /// no memory, nothing changes.
    fn promote(
        key: u64,
        base: u64,
        flags: Flags,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<bool, Refusal> {
        let Some(pages) = space.merge(k, key, base, flags, fx)? else {
            return Ok(false);
        };
        k.stats.promotions += 1;
        k.stats.reservations -= 1;
        let fresh = (PAGES - pages.len() as u64) * 4096;
        k.stats.zeroed_bytes += fresh;
        fx.cycles += k.prices.zero(fresh);
        Ok(true)
    }
}

impl Placement for Reservation {
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        let key = touch.at >> 21;
        if space.regions.get(key).is_none() {
            self.reserve(touch, space, k);
        }
        let Some((base, count)) = space
            .regions
            .get(key)
            .and_then(|r| r.reserved.map(|base| (base, u64::from(r.count))))
        else {
            return small(touch, space, k, fx);
        };
        let i = touch.at >> 12 & (PAGES - 1);
        let page = VirtAddr(touch.at).page(PageSize::K4);
        let flags = touch.flags.with(Flags::RESERVED);
        if let Err(refusal) = space.map_page(k, page, base + i, flags, fx) {
            if count > 0 {
                return Err(refusal);
            }
            // The reserved block may have been the last memory for page-table nodes.
            space.regions.remove(key);
            k.put(base, HUGE_ORDER);
            k.stats.reservations_made -= 1;
            k.stats.reservations -= 1;
            return small(touch, space, k, fx);
        }
        // The area may have been cut or changed after the reservation.
        if count + 1 > self.most_pages && touch.may_be_large() && touch.covers(PageSize::M2) {
            Self::promote(key, base, touch.flags, space, k, fx)?;
        }
        Ok(PageSize::K4)
    }

    /// The first touch reserves a block, read or write, as in FreeBSD, which has no shared zero page (Navarro et al.,
    /// section 4.1).
    fn zero_page(&self, _touch: &Touch<'_>, _space: &Space) -> Option<PageSize> {
        None
    }

    /// Breaks up the reservation with the fewest pages in use.
    fn reclaim(
        &mut self,
        spaces: &mut [Option<Box<Space>>],
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> bool {
        let heap = self.least_used.get_or_insert_with(|| {
            let mut heap = BinaryHeap::new();
            for space in spaces.iter().flatten() {
                for (key, r) in space.regions.iter() {
                    if r.reserved.is_some() {
                        heap.push(Reverse((r.count, space.asid.0, key)));
                    }
                }
            }
            heap
        });
        while let Some(Reverse((count, asid, key))) = heap.pop() {
            let Some(space) = spaces.iter_mut().flatten().find(|s| s.asid.0 == asid) else {
                continue;
            };
            let Some(now) = space
                .regions
                .get(key)
                .filter(|r| r.kind == RegionKind::Small && r.reserved.is_some())
                .map(|r| r.count)
            else {
                continue;
            };
            if now > count {
                heap.push(Reverse((now, asid, key)));
                continue;
            }
            // A full region frees nothing, and its pages are in place.
            if u64::from(now) == PAGES {
                continue;
            }
            space.demote(k, key, fx);
            return true;
        }
        false
    }
}
