//! Eager paging of redundant memory mappings (Karakostas et al., ISCA 2015).
//!
//! A call that allocates memory also backs it, with the largest blocks that the buddy allocator has. The page table
//! gets 4 KB pages. Where blocks follow each other in memory, their pages are one range of `page_table.ranges`.

use pagewalk_stats::Tree;
use pagewalk_tables::Refusal;
use pagewalk_units::{Backing, Error, PageSize, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::{Placement, small};
use crate::buddy::MAX_ORDER;
use crate::kernel::Kernel;
use crate::memory::HUGE_ORDER;
use crate::space::Space;
use crate::spec::share;
use crate::table::Role;
use crate::touch::Touch;
use crate::vma::Vma;
use crate::{Effects, Os, OsError, Pid};

/// Eager paging.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EagerSpec {
    /// Unusable-free index at order 9, 0 to 1, above which memory is backed by page faults. Default 0.7 (our
    /// choice, as for `os.compaction`; the paper has such a threshold).
    pub most_fragmented: f64,
    /// Share of memory, 0 to 1, that stays free. A call that would leave less is backed by page faults. Default
    /// 0.0625 (our choice).
    pub keep_free: f64,
}

impl Default for EagerSpec {
    fn default() -> Self {
        EagerSpec {
            most_fragmented: 0.7,
            keep_free: 0.0625,
        }
    }
}

pagewalk_stats::counters! {
    /// Memory that eager paging has backed.
    pub struct EagerStats {
        backed: "calls", "Calls that backed the memory that they allocated";
        deferred: "calls", "Calls whose memory was left to page faults, because free memory was short or fragmented";
        pages: "pages", "4 KB pages that calls backed";
        blocks: "blocks", "Free blocks that calls took for these pages";
        cycles: "cycles", "Kernel time of backing these pages, without that of their page tables";
    }
}

impl PolicySpec for EagerSpec {
    fn check(&self) -> Result<(), Error> {
        share("most_fragmented", self.most_fragmented)?;
        share("keep_free", self.keep_free)
    }
    fn build(&self, _frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(Eager {
            spec: *self,
            stats: EagerStats::default(),
        }))
    }
}

/// Backs memory when it is allocated.
struct Eager {
    spec: EagerSpec,
    stats: EagerStats,
}

/// A run of consecutive frames, or of consecutive pages.
type Run = std::ops::Range<u64>;

impl Eager {
    /// True if memory has room for `pages`, and is not too fragmented.
    fn has_room(&self, pages: u64, k: &Kernel) -> bool {
        let memory = k.memory();
        let all = memory.frames();
        let kept = (self.spec.keep_free * (all.end - all.start) as f64) as u64;
        memory.free_frames() >= pages + kept
            && memory.buddy().unusable_free_index(HUGE_ORDER) <= self.spec.most_fragmented
    }

    /// Takes blocks for the pages of `vpns`, the largest first.
    fn take(&mut self, vpns: Run, touch: &Touch<'_>, space: &Space, k: &mut Kernel) -> Vec<Run> {
        // Under a configured success share, each 2 MB make one request.
        let chunk = if k.memory().refuses_for_good() {
            1 << HUGE_ORDER
        } else {
            u64::MAX
        };
        let mut blocks = Vec::new();
        let mut vpn = vpns.start;
        while vpn < vpns.end {
            let end = vpns.end.min(vpn.saturating_add(chunk));
            let mut most = MAX_ORDER;
            while vpn < end {
                let order = most.min((end - vpn).ilog2() as u8);
                let at = vpn << 12;
                let purpose = Touch { at, ..*touch }.purpose(PageSize::K4);
                let mut want = space.want(PageSize::K4, purpose);
                want.bytes <<= order;
                match k.frame(want) {
                    Ok(frame) => {
                        blocks.push(frame..frame + (1 << order));
                        vpn += 1 << order;
                    }
                    Err(_) if order == 0 => return blocks,
                    Err(_) => most = order - 1,
                }
            }
        }
        blocks
    }

    /// Backs the pages of `vpns`, which are neither mapped nor swapped out. All blocks are taken before any is mapped,
    /// so that no page table comes to lie between two of them. Returns the number of pages, from the first on.
    fn back(
        &mut self,
        vpns: Run,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> u64 {
        let blocks = self.take(vpns.clone(), touch, space, k);
        let mut vpn = vpns.start;
        let mut refused = false;
        for block in blocks {
            let first = vpn;
            for frame in block.clone() {
                let page = VirtAddr(vpn << 12).page(PageSize::K4);
                if refused || space.map_page(k, page, frame, touch.flags, fx).is_err() {
                    // Memory for page tables is exhausted.
                    refused = true;
                    k.put_range(frame, block.end);
                    break;
                }
                vpn += 1;
            }
            self.stats.blocks += u64::from(vpn > first);
        }
        vpn - vpns.start
    }

    /// Backs the pages of `from..to` that are missing. Returns their number; `None` if memory has no room for them.
    fn back_missing(
        &mut self,
        from: u64,
        to: u64,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Option<u64> {
        let runs = missing(space, from, to);
        let pages = runs.iter().map(|run| run.end - run.start).sum();
        if !self.has_room(pages, k) {
            return None;
        }
        let back = |run| self.back(run, touch, space, k, fx);
        Some(runs.into_iter().map(back).sum())
    }

    /// Charges the work for `pages`, all of which are zeroed but `zeroed`.
    fn charge(&mut self, pages: u64, zeroed: u64, k: &mut Kernel, fx: &mut Effects) {
        let bytes = (pages - zeroed) << 12;
        let cycles = k.prices.populate * pages + k.prices.zero(bytes);
        k.stats.zeroed_bytes += bytes;
        fx.cycles += cycles;
        self.stats.pages += pages;
        self.stats.cycles += cycles;
    }
}

/// The pages of `from..to` that are neither mapped nor swapped out, as runs.
fn missing(space: &Space, from: u64, to: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for vpn in from >> 12..to >> 12 {
        if space.has(vpn << 12) || space.swapped.contains(&vpn) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == vpn => last.end += 1,
            _ => runs.push(vpn..vpn + 1),
        }
    }
    runs
}

impl Placement for Eager {
    /// A page fault backs one page. An area that was inferred from an access has had no call that allocated it, so its
    /// first touch is taken for one.
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        if !touch.inferred {
            return small(touch, space, k, fx);
        }
        let region = touch.at & !((1 << 21) - 1);
        let (from, to) = (touch.start.max(region), touch.end.min(region + (1 << 21)));
        let pages = self.back_missing(from, to, touch, space, k, fx);
        let done = space.has(touch.at);
        // The page fault zeroes the touched page.
        self.charge(pages.unwrap_or(0), u64::from(done), k, fx);
        if done {
            return Ok(PageSize::K4);
        }
        small(touch, space, k, fx)
    }

    fn allocate(&mut self, area: &Touch<'_>, space: &mut Space, k: &mut Kernel, fx: &mut Effects) {
        match self.back_missing(area.start, area.end, area, space, k, fx) {
            None => self.stats.deferred += 1,
            Some(0) => {}
            Some(pages) => {
                self.stats.backed += 1;
                self.charge(pages, 0, k, fx);
            }
        }
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(&format!("{path}.eager"), &self.stats);
    }
}

impl Vma {
    /// True if a call has allocated its memory for the process alone: Linux counts it as committed
    /// (`accountable_mapping` of mm/mmap.c). A stack is none: it is allocated by page faults.
    fn is_allocated(&self) -> bool {
        self.writable
            && self.backing == Backing::Anonymous
            && self.object.is_none()
            && self.pool.is_none()
            && self.reserves
            && !self.inferred
    }
}

impl Os {
    /// Lets the placement policy back `from..to`, which a call has mapped or made writable. A host backs the memory of
    /// its guest at first touches. Error: the host of a virtual machine has no memory.
    pub(crate) fn allocate(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        if self.role == Role::Host {
            return Ok(());
        }
        let mut at = from;
        while let Some(vma) = self.space(pid)?.vmas.from(at).filter(|vma| vma.start < to) {
            let vma = vma.clone();
            at = vma.end;
            if !vma.is_allocated() {
                continue;
            }
            let start = vma.start.max(from);
            let touch = Touch {
                start,
                end: vma.end.min(to),
                ..Touch::new(VirtAddr(start), &vma)
            };
            if let Some(space) = self.spaces[pid as usize].as_mut() {
                self.placement.allocate(&touch, space, &mut self.kernel, fx);
            }
        }
        self.back(fx)?;
        self.shadow()
    }
}
