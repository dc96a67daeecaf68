//! First touches as Linux serves them: the shared zero page, fault-around, and pages of files.

use pagewalk_tables::{Flags, Purpose, Refusal};
use pagewalk_units::{Access, PageSize, VirtAddr};

use crate::kernel::Kernel;
use crate::memory::order;
use crate::space::Space;
use crate::touch::Touch;
use crate::vma::{Faults, Vma};
use crate::{Effects, Os, Pid};

/// Bytes around a read that are mapped with it, if they are in the page cache: Linux's default `fault_around_bytes`
/// (mm/memory.c).
const AROUND: u64 = 64 << 10;

/// Maps the shared zero page of `size`. A write has to replace it.
fn map_zero_page(
    size: PageSize,
    touch: &Touch<'_>,
    space: &mut Space,
    k: &mut Kernel,
    fx: &mut Effects,
) -> Result<(), Refusal> {
    let page = VirtAddr(touch.at).page(size);
    let vpn = page.base.0 >> 12;
    let frame = k.zero_page(space.want(size, Purpose::Shared { vpn }))?;
    let flags = touch.flags.without(Flags::WRITABLE);
    space.map_page(k, page, frame, flags, fx)?;
    k.share(frame, order(size));
    space.forked = true;
    Ok(())
}

impl Os {
    /// Backs the unmapped page of `touch`, in an area with [`Faults::Linux`]. Returns its size, and true if it has been
    /// zeroed. `None`: the placement policy has to place it.
    pub(crate) fn linux_touch(
        &mut self,
        touch: &Touch<'_>,
        access: Access,
        vma: &Vma,
        pid: Pid,
        fx: &mut Effects,
    ) -> Result<Option<(PageSize, bool)>, Refusal> {
        let found = match (vma.object_page(touch.at), access) {
            (None, Access::Write) => return Ok(None),
            (None, _) => return self.map_zeros(touch, pid, fx),
            (Some(_), Access::Write) if !vma.is_shared() => {
                self.copy_file(touch, pid, fx)?;
                false
            }
            (Some(_), Access::Write) => self.map_object(touch, touch.at, vma, pid, fx)?,
            (Some(_), _) => self.read_around(touch, vma, pid, fx)?,
        };
        Ok(Some((PageSize::K4, found)))
    }

    /// Maps the shared zero page, small or huge.
    fn map_zeros(
        &mut self,
        touch: &Touch<'_>,
        pid: Pid,
        fx: &mut Effects,
    ) -> Result<Option<(PageSize, bool)>, Refusal> {
        let Some(space) = self.spaces[pid as usize].as_mut() else {
            return Ok(None);
        };
        let Some(size) = self.placement.zero_page(touch, space) else {
            return Ok(None);
        };
        let k = &mut self.kernel;
        if size == PageSize::M2 && map_zero_page(size, touch, space, k, fx).is_ok() {
            return Ok(Some((size, false)));
        }
        map_zero_page(PageSize::K4, touch, space, k, fx)?;
        Ok(Some((PageSize::K4, false)))
    }

    /// Maps a copy of the page of a private file mapping.
    fn copy_file(&mut self, touch: &Touch<'_>, pid: Pid, fx: &mut Effects) -> Result<(), Refusal> {
        let Some(space) = self.spaces[pid as usize].as_mut() else {
            return Ok(());
        };
        let k = &mut self.kernel;
        // The frame lies outside a reservation's block.
        space.demote(k, touch.at >> 21, fx);
        let page = VirtAddr(touch.at).page(PageSize::K4);
        let vpn = page.base.0 >> 12;
        let frame = k.frame(space.want(PageSize::K4, Purpose::Copy { vpn }))?;
        if let Err(refusal) = space.map_page(k, page, frame, touch.flags, fx) {
            k.put(frame, 0);
            return Err(refusal);
        }
        if let Some(area) = space.vmas.find_mut(touch.at) {
            area.faults = Faults::Linux { copies: true };
        }
        k.stats.copied_bytes += 4096;
        fx.cycles += k.prices.copy(4096);
        Ok(())
    }

    /// Maps the page of the object at `at`. Returns true if it has been made and zeroed.
    fn map_object(
        &mut self,
        touch: &Touch<'_>,
        at: u64,
        vma: &Vma,
        pid: Pid,
        fx: &mut Effects,
    ) -> Result<bool, Refusal> {
        let (Some(space), Some(page)) = (&mut self.spaces[pid as usize], vma.object_page(at))
        else {
            return Ok(false);
        };
        let k = &mut self.kernel;
        space.demote(k, at >> 21, fx);
        let want = space.want(PageSize::K4, touch.purpose(PageSize::K4));
        let (frame, zeroed) = self.objects.page(page, want, k)?;
        space.map_page(k, VirtAddr(at).page(PageSize::K4), frame, touch.flags, fx)?;
        k.share(frame, 0);
        Ok(zeroed)
    }

    /// Maps the page that is read, and pages around it that exist (`do_fault_around` of Linux mm/memory.c). Pages of
    /// private mappings and of files are write-protected. Returns true if the page has been made and zeroed.
    fn read_around(
        &mut self,
        touch: &Touch<'_>,
        vma: &Vma,
        pid: Pid,
        fx: &mut Effects,
    ) -> Result<bool, Refusal> {
        let at = touch.at & !0xfff;
        let file = vma
            .object
            .as_ref()
            .is_some_and(|o| self.objects.is_file(*o.id));
        let mut touch = *touch;
        if file || !vma.is_shared() {
            touch.flags = touch.flags.without(Flags::WRITABLE);
        }
        let zeroed = self.map_object(&touch, at, vma, pid, fx)?;
        let Some(space) = self.spaces[pid as usize].as_mut() else {
            return Ok(zeroed);
        };
        space.forked |= vma.writable && !touch.flags.contains(Flags::WRITABLE);
        let k = &mut self.kernel;
        // The window ends with the last-level table.
        let from = (at & !(AROUND - 1)).max(vma.start);
        let table = (at & !((2 << 20) - 1)) + (2 << 20);
        let to = (from + AROUND).min(vma.end).min(table);
        for near in (from..to).step_by(4096).filter(|&near| near != at) {
            let Some(page) = vma.object_page(near).filter(|_| !space.has(near)) else {
                continue;
            };
            let purpose = Touch { at: near, ..touch }.purpose(PageSize::K4);
            let want = space.want(PageSize::K4, purpose);
            let Some(frame) = self.objects.cached(page, want, k) else {
                continue;
            };
            let page = VirtAddr(near).page(PageSize::K4);
            // Memory for the table is there, because the page itself lies in it.
            if space.map_page(k, page, frame, touch.flags, fx).is_ok() {
                k.share(frame, 0);
            }
        }
        Ok(zeroed)
    }
}
