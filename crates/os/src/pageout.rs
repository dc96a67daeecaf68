//! MADV_PAGEOUT: pages that are reclaimed at once (`madvise_pageout` of Linux mm/madvise.c).

use pagewalk_tables::Flags;
use pagewalk_units::{Page, PageSize, VirtAddr};

use crate::kernel::Kernel;
use crate::mover::swap_out;
use crate::object::Objects;
use crate::space::Space;
use crate::vma::ObjectPage;
use crate::{Effects, Os, OsError, Pid};

/// Unmaps a page of a file that no other mapping has. Its frame leaves the page cache, unless it is dirty: only kswapd
/// writes dirty pages of files back (`shrink_folio_list`).
fn drop_file_page(
    space: &mut Space,
    objects: &mut Objects,
    k: &mut Kernel,
    page: Page<VirtAddr>,
    of: ObjectPage,
    fx: &mut Effects,
) {
    let Some(mapped) = space.table.translate(page.base) else {
        return;
    };
    let cached = objects.is_file(of.object) && objects.frame(of) == Some(mapped.frame);
    // The page cache and this mapping own it.
    if !cached || k.memory().owners(mapped.frame) != 2 {
        return;
    }
    let shared = space.vmas.find(page.base.0).is_some_and(|v| v.is_shared());
    let dirty = shared && mapped.flags.contains(Flags::WRITABLE);
    space.unmap_page(k, page, fx);
    k.put(mapped.frame, 0);
    if !dirty {
        objects.remove(of.object, of.index..of.index + 1, k);
    }
    space.invalidate_page(k, page, fx);
}

impl Os {
    /// Reclaims the 4 KB pages of `from..to`: those of files, and with [`SwapSpec`](crate::SwapSpec) private ones.
    pub(crate) fn page_out(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let Some(space) = &mut self.spaces[pid as usize] else {
            return Ok(());
        };
        let k = &mut self.kernel;
        let mut pages = Vec::new();
        for key in space.regions.overlapping(from, to) {
            space.pages_of(key, from, to, &mut pages);
        }
        for page in pages.into_iter().filter(|p| p.size == PageSize::K4) {
            let of = space.vmas.find(page.base.0);
            match of.and_then(|area| area.object_page(page.base.0)) {
                Some(of) => drop_file_page(space, &mut self.objects, k, page, of, fx),
                None if self.movers.swaps() => {
                    let fate = swap_out(space, k, page, fx);
                    self.movers.count_swapped(&fate);
                }
                None => {}
            }
        }
        self.back(fx)?;
        self.shadow()
    }
}
