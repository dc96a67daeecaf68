//! Address spaces of one kernel never see each other's pages, whether or not their tables share
//! memory.

use std::collections::BTreeMap;

use crate::common::tables::Case;
use crate::common::{Table, TestFrames, caches, walk};
use crate::contract::all;
use pagewalk_tables::{Flags, MapError};
use pagewalk_units::{Asid, Frame, Page, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::RngExt;

/// A process: its table, and what it has mapped.
struct Process {
    asid: Asid,
    table: Table,
    pages: BTreeMap<u64, (PageSize, u64, Flags)>,
}

/// Few pages, so that all processes have most of them. Regions of one page size lie apart.
fn page(rng: &mut Rng) -> Page<VirtAddr> {
    let size = PageSize::ALL[[0, 0, 0, 0, 0, 0, 1, 2][rng.random_range(0..8)]];
    let at = (1 + size.index() as u64) << 42;
    let number = match rng.random_range(0..2) {
        0 => rng.random_range(0..64),
        _ => rng.random_range(0..32) * 4096,
    };
    let number = if size == PageSize::G1 {
        number % 32
    } else {
        number
    };
    VirtAddr(at + number * size.bytes()).page(size)
}

/// Compares all that the process has at `va` with what it has mapped.
fn agree(process: &Process, page: Page<VirtAddr>, name: &str) {
    let expected = process.pages.get(&page.base.0).copied();
    let va = page.base.offset(page.size.bytes() / 2);
    let found = process.table.translate(va);
    let seen = found.map(|t| (t.size, t.frame.base.0, t.flags));
    assert_eq!(seen, expected, "{name}: {:?} at {va}", process.asid);
    let (_, walked) = walk(&*process.table, va, &mut caches(0));
    assert_eq!(walked, found, "{name}: {:?} at {va}", process.asid);
}

fn random_processes(case: &Case, steps: u32) -> [u32; 4] {
    let mut source = TestFrames::new();
    let kernel = case.boot(&mut source);
    let at_boot = kernel.shared_bytes();
    let mut rng = rng(1, case.name);
    let mut processes: Vec<Process> = Vec::new();
    let mut seen = [0; 4];
    let mut frames = 0;
    for _ in 0..steps {
        let free = (1..6)
            .map(Asid)
            .find(|asid| processes.iter().all(|p| p.asid != *asid));
        let which = rng.random_range(0..processes.len().max(1));
        match (rng.random_range(0..64), free) {
            // spawn or fork
            (0, Some(asid)) => {
                let mut child = Process {
                    asid,
                    table: kernel.of_space(asid),
                    pages: BTreeMap::new(),
                };
                if let Some(parent) = processes.get_mut(which) {
                    parent.table.for_each(&mut |page, frame, flags| {
                        let flags = flags.without(Flags::WRITABLE);
                        let done = child.table.map(page, frame, flags, &mut source);
                        done.expect("memory is plenty");
                        let entry = (page.size, frame.base.0, flags);
                        child.pages.insert(page.base.0, entry);
                    });
                    for (&at, entry) in &mut parent.pages {
                        entry.2 = entry.2.without(Flags::WRITABLE);
                        let page = VirtAddr(at).page(entry.0);
                        assert!(parent.table.set_flags(page, entry.2));
                    }
                    seen[0] += 1;
                }
                processes.push(child);
            }
            // exit
            (1, _) if processes.len() > 2 => {
                let mut gone = processes.swap_remove(which);
                gone.table.release(&mut source);
                for &at in gone.pages.keys() {
                    assert_eq!(gone.table.translate(VirtAddr(at)), None);
                }
                seen[1] += 1;
            }
            // exec
            (2, _) if !processes.is_empty() => {
                processes[which].table.release(&mut source);
                processes[which].pages.clear();
            }
            (3..44, _) if !processes.is_empty() => {
                let page = page(&mut rng);
                frames += 1;
                let base = PhysAddr(frames << 30);
                let flags = Flags(rng.random());
                source.left = if rng.random_range(0..8) == 0 {
                    0
                } else {
                    u64::MAX
                };
                let process = &mut processes[which];
                let done = process.table.map(page, Frame { base }, flags, &mut source);
                source.left = u64::MAX;
                let mapped = process.pages.contains_key(&page.base.0);
                assert_eq!(done == Err(MapError::Occupied), mapped, "{}", case.name);
                if done.is_ok() {
                    process
                        .pages
                        .insert(page.base.0, (page.size, base.0, flags));
                    seen[2] += 1;
                }
                for process in &processes {
                    agree(process, page, case.name);
                }
            }
            _ if !processes.is_empty() => {
                let page = page(&mut rng);
                let process = &mut processes[which];
                let gone = process.table.unmap(page, &mut source);
                let gone = gone.map(|(frame, flags, _)| (page.size, frame.base.0, flags));
                assert_eq!(gone, process.pages.remove(&page.base.0), "{}", case.name);
                seen[3] += u32::from(gone.is_some());
                for process in &processes {
                    agree(process, page, case.name);
                }
            }
            _ => {}
        }
        let own: u64 = processes.iter().map(|p| p.table.bytes()).sum();
        assert_eq!(own + kernel.shared_bytes() - at_boot, source.bytes());
    }
    for process in &mut processes {
        let mut listed = BTreeMap::new();
        process.table.for_each(&mut |page, frame, flags| {
            listed.insert(page.base.0, (page.size, frame.base.0, flags));
        });
        assert_eq!(listed, process.pages, "{}", case.name);
        process.table.release(&mut source);
    }
    assert_eq!((kernel.shared_bytes(), source.bytes()), (at_boot, 0));
    seen
}

#[test]
fn address_spaces_never_see_each_others_pages() {
    for case in all() {
        let seen = random_processes(&case, 8_000);
        println!("{}: {seen:?}", case.name);
        let [forks, exits, maps, unmaps] = seen;
        assert!(
            forks > 20 && exits > 20 && maps > 1000 && unmaps > 200,
            "{seen:?}"
        );
    }
}
