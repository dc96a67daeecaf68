//! Processes: spawn, fork, exec, exit.

use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, Refusal};
use pagewalk_units::Asid;

use crate::memory::order;
use crate::shadow::levels;
use crate::space::Space;
use crate::vma::Vma;
use crate::{Effects, Os, OsError, Pid};

impl Os {
    /// An address-space identifier for a new process. The placement policy's own come first, then those of exited
    /// processes.
    fn unused_asid(&mut self) -> Option<u16> {
        let given = self.placement.asids();
        let asid = match given.get(self.asids.len()) {
            Some(&asid) => asid,
            None => {
                if let Some(asid) = self.free_asids.pop_first() {
                    return Some(asid);
                }
                loop {
                    self.next_asid = self.next_asid.checked_add(1)?;
                    if !given.contains(&self.next_asid) {
                        break self.next_asid;
                    }
                }
            }
        };
        self.asids.push(asid);
        Some(asid)
    }

    /// Creates an empty process. With `infer`, a touch of an unmapped address
    /// maps the aligned 2 MB around it. Error: 65,535 processes exist.
    pub fn spawn(&mut self, infer: bool) -> Result<Pid, OsError> {
        let Some(asid) = self.unused_asid() else {
            return Err(OsError::Bad("65,535 processes exist at once".to_owned()));
        };
        let table = self.tables.of_space(Asid(asid));
        let table = match &self.host {
            Some(host) if host.shadows.is_some() => {
                table.shadowed(levels(&self.page_table), Asid(asid))
            }
            _ => table,
        };
        let space = Space::new(Asid(asid), infer, table);
        self.spaces.push(Some(Box::new(space)));
        self.kernel.stats.processes += 1;
        Ok(self.spaces.len() as Pid - 1)
    }

    /// Creates a process with a copy-on-write copy of the address space. If its
    /// page table gets no memory, there is no new process.
    pub fn fork(&mut self, pid: Pid, fx: &mut Effects) -> Result<Pid, OsError> {
        self.alive(pid)?;
        fx.cycles += self.kernel.prices.syscall;
        let infer = self.space(pid)?.infer;
        let child = self.spawn(infer)?;
        let done = self.with_reclaim(pid, fx, |os, fx| os.copy(pid, child, fx));
        if let Err(e) = done {
            self.exit(child, fx);
            return Err(e);
        }
        self.kernel.stats.forks += 1;
        Ok(child)
    }

    fn copy(&mut self, pid: Pid, child: Pid, fx: &mut Effects) -> Result<(), Refusal> {
        let (older, newer) = self.spaces.split_at_mut(child as usize);
        let (Some(parent), Some(copy)) = (&mut older[pid as usize], &mut newer[0]) else {
            return Ok(());
        };
        let k = &mut self.kernel;
        // A retry after a reclaim starts from an empty copy.
        copy.clear(k, fx);
        parent.demote_range(k, 0, u64::MAX, fx);
        parent.forked = true;
        // All pages become write-protected, also those that are not clean.
        parent.lazily_free.clear();
        copy.forked = true;
        copy.vmas = parent.vmas.clone();
        copy.swapped = parent.swapped.clone();
        copy.no_huge = parent.no_huge;
        copy.vmas.forked();
        let mut pages = Vec::new();
        let mut protected = false;
        let mut done = Ok(());
        'pages: for key in parent.regions.overlapping(0, u64::MAX) {
            pages.clear();
            parent.pages_of(key, 0, u64::MAX, &mut pages);
            for &p in &pages {
                let Some(t) = parent.table.translate(p.base) else {
                    continue;
                };
                let area = parent.vmas.find(p.base.0);
                if area.is_some_and(Vma::faults_again_after_fork) {
                    continue;
                }
                let frame = t.frame;
                let shared = area.is_some_and(Vma::is_shared);
                let flags = if shared {
                    t.flags
                } else {
                    t.flags.without(Flags::WRITABLE)
                };
                done = copy.map_page(k, p, frame, flags, fx);
                if done.is_err() {
                    break 'pages;
                }
                k.share(frame, order(p.size));
                if flags != t.flags {
                    parent.table.set_flags(p, flags);
                    protected = true;
                }
            }
        }
        // Also after a failure: the next attempt finds these pages protected.
        if protected {
            parent.invalidate_all(k, fx);
        }
        done
    }

    /// exec: empties the address space. The process and its address-space
    /// identifier stay.
    pub fn exec(&mut self, pid: Pid, fx: &mut Effects) {
        fx.cycles += self.kernel.prices.syscall;
        if let Some(Some(space)) = self.spaces.get_mut(pid as usize) {
            space.clear(&mut self.kernel, fx);
            space.forked = false;
            if let Some(host) = &mut self.host {
                space.table.drop_shadow(host, pid);
            }
            let asid = space.asid;
            self.stlt_forget(asid);
            self.objects.sweep(&mut self.kernel);
        }
    }

    /// exit: removes the process and frees all its frames. Its address-space
    /// identifier may be reused. Has no effect on an exited process.
    pub fn exit(&mut self, pid: Pid, fx: &mut Effects) {
        let Some(slot) = self.spaces.get_mut(pid as usize) else {
            return;
        };
        let Some(mut space) = slot.take() else {
            return;
        };
        fx.cycles += self.kernel.prices.syscall;
        space.clear(&mut self.kernel, fx);
        if let Some(host) = &mut self.host {
            space.table.drop_shadow(host, pid);
        }
        let mut counted = Tree::default();
        space.table.report(self.role.tables(), &mut counted);
        self.gone.merge(&counted);
        self.stlt_forget(space.asid);
        self.free_asids.insert(space.asid.0);
        self.kernel.stats.processes -= 1;
        self.objects.sweep(&mut self.kernel);
    }
}
