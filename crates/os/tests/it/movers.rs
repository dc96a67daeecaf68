//! Page migration and swapping by the kernel: no page is lost, and costs are as configured.

use pagewalk_os::{
    Effects, MigrationSpec, Os, OsSpec, PageMover, Pid, PlacementSpec, SwapSpec, ThpSpec,
};
use pagewalk_tables::{Flags, Invalidation, View};
use pagewalk_units::{Access, Advice, Backing, Cycle, PageSize, VirtAddr};

const BASE: u64 = 0x10_0000_0000;
const GHZ: f64 = 2.0;
/// An interval of one microsecond.
const INTERVAL: Cycle = 2000;

fn boot(set: impl FnOnce(&mut OsSpec), placement: &str) -> Os {
    let mut spec = OsSpec::free(1);
    set(&mut spec);
    let placement: PlacementSpec = toml::from_str(placement).expect("a placement");
    let radix = toml::from_str("radix = { levels = 4 }").expect("a page table");
    Os::new(&spec, &placement, &radix, GHZ, 3).expect("a possible system")
}

fn migrating(pages: u32, stolen: bool) -> Os {
    let text = format!("interval_us = 1.0\npages = {pages}\n");
    let core = if stolen { "core = \"stolen\"\n" } else { "" };
    let migration: MigrationSpec = toml::from_str(&(text + core)).expect("a spec");
    boot(|s| s.migration = Some(migration), "[buddy]")
}

fn swapping(pages: u32) -> Os {
    let text = format!("interval_us = 1.0\npages = {pages}\nlatency_us = 3.0\n");
    let swap: SwapSpec = toml::from_str(&text).expect("a spec");
    boot(|s| s.swap = Some(swap), "[buddy]")
}

fn mapped(os: &mut Os, pages: u64, backing: Backing) -> Pid {
    let pid = os.spawn(false).expect("a process");
    let mut fx = Effects::default();
    let (at, bytes) = (VirtAddr(BASE), pages * 4096);
    os.map(pid, at, bytes, true, backing, &mut fx)
        .expect("a mapping");
    os.populate(pid, at, bytes, &mut fx).expect("memory");
    pid
}

/// Advances time until the mover has made `times` passes.
fn passes(os: &mut Os, which: PageMover, times: u32, fx: &mut Effects) {
    for _ in 0..times {
        let until = os.until_kernel_thread().expect("it has such a thread");
        os.move_pages(which, until, fx).expect("memory");
    }
}

fn frame(os: &Os, pid: Pid, page: u64) -> Option<u64> {
    let View::Native(table) = os.view(pid) else {
        panic!("one dimension");
    };
    let found = table.translate(VirtAddr(BASE + 4096 * page))?;
    assert!(found.flags.contains(Flags::WRITABLE));
    Some(found.frame.base.0)
}

#[test]
fn each_page_that_moves_has_another_frame_and_is_shot_down() {
    let mut os = migrating(4, false);
    let pid = mapped(&mut os, 600, Backing::Anonymous);
    let before: Vec<_> = (0..600).map(|p| frame(&os, pid, p)).collect();
    let free = os.stats().free_bytes;
    let mut fx = Effects::default();
    let soon = os.until_kernel_thread();
    assert_eq!(soon, Some(INTERVAL));
    os.move_pages(PageMover::Migration, INTERVAL - 1, &mut fx)
        .expect("memory");
    assert!(fx.invalidate.is_empty(), "not yet");
    os.move_pages(PageMover::Migration, 1, &mut fx)
        .expect("memory");
    assert_eq!(fx.invalidate.len(), 4);
    for what in &fx.invalidate {
        let Invalidation::Page { asid, page } = *what else {
            panic!("{what:?}");
        };
        assert_eq!((asid, page.size), (os.asid(pid), PageSize::K4));
        let number = (page.base.0 - BASE) >> 12;
        let now = frame(&os, pid, number);
        assert!(now.is_some() && now != before[number as usize], "{number}");
    }
    let moved: Vec<_> = (0..600)
        .filter(|&p| frame(&os, pid, p) != before[p as usize])
        .collect();
    assert!(!moved.is_empty() && moved.len() <= 4);
    assert_eq!(os.stats().free_bytes, free, "as much memory as before");
    // On a separate core it takes no time from the program.
    assert_eq!(fx.cycles, 0);
    passes(&mut os, PageMover::Migration, 99, &mut fx);
    let stats = os.mover_stats().0.expect("it migrates");
    assert_eq!((stats.passes, stats.taken, stats.moved), (100, 400, 400));
    assert_eq!(stats.copied_bytes, 400 * 4096);
    // Each frame has a single owner.
    let mut frames: Vec<_> = (0..600).map(|p| frame(&os, pid, p)).collect();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), 600);
}

#[test]
fn work_on_the_programs_core_costs_what_its_parts_do() {
    let mut os = migrating(3, true);
    let _ = mapped(&mut os, 600, Backing::Anonymous);
    let mut fx = Effects::default();
    passes(&mut os, PageMover::Migration, 10, &mut fx);
    let prices = os.prices();
    let a_page = prices.scan(1) + prices.copy(4096);
    // No page-table node is freed or allocated: each region keeps pages.
    assert_eq!(fx.cycles, 10 * (prices.context_switch + 3 * a_page));
    let shot = os.interrupted_by(PageMover::Migration, 2, 0);
    assert_eq!(shot, os.prices().shootdown(2));
    let stats = os.mover_stats().0.expect("it migrates");
    assert_eq!((stats.cycles, stats.shootdowns), (fx.cycles + shot, 2));
}

#[test]
fn it_sleeps_an_interval_when_its_work_is_done_however_long_that_took() {
    for (stolen, other) in [(true, 0), (true, 5000), (false, 0), (false, 5000)] {
        let mut os = migrating(64, stolen);
        let _ = mapped(&mut os, 600, Backing::Anonymous);
        let mut fx = Effects::default();
        passes(&mut os, PageMover::Migration, 1, &mut fx);
        // Cycles that the program's core loses through the pass and its consequences.
        let mut kept = fx.cycles;
        for _ in fx.invalidate.drain(..) {
            kept += os.interrupted_by(PageMover::Migration, 1, other) + other;
            kept += if stolen {
                0
            } else {
                os.prices().shootdown_remote
            };
        }
        assert!(kept > 20 * INTERVAL, "{kept}");
        os.move_pages(PageMover::Migration, kept, &mut fx)
            .expect("memory");
        assert_eq!(os.mover_stats().0.expect("it migrates").passes, 1);
        let left = os.until_kernel_thread().expect("it migrates");
        assert!(left == INTERVAL || !stolen && left > INTERVAL, "{left}");
    }
}

#[test]
fn shared_pages_stay_where_they_are() {
    let mut os = migrating(8, false);
    let pid = mapped(&mut os, 100, Backing::Shared);
    let before: Vec<_> = (0..100).map(|p| frame(&os, pid, p)).collect();
    let mut fx = Effects::default();
    passes(&mut os, PageMover::Migration, 50, &mut fx);
    let after: Vec<_> = (0..100).map(|p| frame(&os, pid, p)).collect();
    assert_eq!(before, after);
    let stats = os.mover_stats().0.expect("it migrates");
    assert_eq!((stats.taken, stats.skipped), (400, 400));
    // Nor do pages that a fork has shared, until they are written.
    let mut os = migrating(8, false);
    let pid = mapped(&mut os, 100, Backing::Anonymous);
    os.fork(pid, &mut fx).expect("memory");
    passes(&mut os, PageMover::Migration, 50, &mut fx);
    let stats = os.mover_stats().0.expect("it migrates");
    assert_eq!((stats.moved, stats.skipped), (0, 400));
}

#[test]
fn a_page_that_was_swapped_out_comes_back_in_the_devices_time() {
    let mut os = swapping(4);
    let pid = mapped(&mut os, 600, Backing::Anonymous);
    let free = os.stats().free_bytes;
    let mut fx = Effects::default();
    passes(&mut os, PageMover::Swap, 20, &mut fx);
    let stats = os.mover_stats().1.expect("it swaps");
    assert_eq!((stats.passes, stats.taken, stats.swapped_out), (20, 80, 80));
    assert_eq!(fx.invalidate.len(), 80);
    let gone: Vec<u64> = (0..600).filter(|&p| frame(&os, pid, p).is_none()).collect();
    assert_eq!(gone.len(), 80);
    assert_eq!(os.stats().free_bytes, free + 80 * 4096);
    let zeroed = os.stats().zeroed_bytes;
    for &page in &gone {
        let mut fx = Effects::default();
        let at = VirtAddr(BASE + 4096 * page);
        os.fault(pid, at, Access::Read, &mut fx).expect("its page");
        // The read overwrites the frame, so nothing is zeroed.
        assert_eq!(fx.cycles, os.prices().trap + 3 * INTERVAL, "page {page}");
        assert!(frame(&os, pid, page).is_some());
    }
    let stats = os.mover_stats().1.expect("it swaps");
    assert_eq!(
        (stats.swapped_in, stats.swap_in_cycles),
        (80, 80 * 3 * INTERVAL)
    );
    assert_eq!(os.stats().zeroed_bytes, zeroed);
    // Unmapping must not count the pages again.
    os.unmap(pid, VirtAddr(BASE), 600 * 4096, &mut fx)
        .expect("mapped");
    assert_eq!(os.mover_stats().1.expect("it swaps").swapped_in, 80);
}

#[test]
fn what_is_swapped_out_moves_is_copied_and_goes_with_its_mapping() {
    let mut os = swapping(64);
    let pid = mapped(&mut os, 64, Backing::Anonymous);
    let mut fx = Effects::default();
    passes(&mut os, PageMover::Swap, 20, &mut fx);
    let out = os.mover_stats().1.expect("it swaps").swapped_out;
    assert_eq!(out, 64, "all of them");
    // mremap: swapped-out pages are read back at their new place.
    let to = VirtAddr(BASE + (1 << 30));
    os.remap(pid, VirtAddr(BASE), 64 * 4096, to, 64 * 4096, &mut fx)
        .expect("mapped");
    os.fault(pid, to, Access::Write, &mut fx).expect("its page");
    let back = |os: &Os| os.mover_stats().1.expect("it swaps").swapped_in;
    assert_eq!(back(&os), 1);
    // A child reads its own copies back.
    let child = os.fork(pid, &mut fx).expect("memory");
    let second = VirtAddr(to.0 + 4096);
    for of in [pid, child] {
        os.fault(of, second, Access::Read, &mut fx)
            .expect("its page");
    }
    assert_eq!(back(&os), 3);
    // Unmapping drops swapped-out pages: the same addresses are then new memory.
    let third = VirtAddr(to.0 + 2 * 4096);
    os.unmap(pid, third, 4096, &mut fx).expect("mapped");
    os.map(pid, third, 4096, true, Backing::Anonymous, &mut fx)
        .expect("free");
    os.fault(pid, third, Access::Write, &mut fx)
        .expect("a page");
    assert_eq!(back(&os), 3);
}

#[test]
fn a_huge_page_over_what_was_swapped_out_reads_all_of_it() {
    let thp = ThpSpec::default();
    let text = toml::to_string(&PlacementSpec::Thp(thp)).expect("text");
    let swap: SwapSpec =
        toml::from_str("interval_us = 1.0\npages = 8\nlatency_us = 3.0\n").expect("a spec");
    let mut os = boot(|s| s.swap = Some(swap), &text);
    let pid = os.spawn(false).expect("a process");
    let mut fx = Effects::default();
    let (at, bytes) = (VirtAddr(BASE), 512 * 4096);
    os.map(pid, at, bytes, true, Backing::Anonymous, &mut fx)
        .expect("a mapping");
    os.advise(pid, at, bytes, Advice::NoHugePage, &mut fx)
        .expect("mapped");
    os.populate(pid, at, 16 * 4096, &mut fx).expect("memory");
    passes(&mut os, PageMover::Swap, 100, &mut fx);
    assert_eq!(os.mover_stats().1.expect("it swaps").swapped_out, 16);
    os.advise(pid, at, bytes, Advice::HugePage, &mut fx)
        .expect("mapped");
    let zeroed = os.stats().zeroed_bytes;
    os.fault(pid, at, Access::Write, &mut fx).expect("a page");
    assert_eq!(os.stats().faults_2mb, 1);
    assert_eq!(os.mover_stats().1.expect("it swaps").swapped_in, 16);
    assert_eq!(os.stats().zeroed_bytes - zeroed, (512 - 16) * 4096);
}

#[test]
fn a_page_out_swaps_private_pages_out() {
    let mut os = swapping(1);
    let pid = mapped(&mut os, 16, Backing::Anonymous);
    let mut fx = Effects::default();
    let at = VirtAddr(BASE);
    os.advise(pid, at, 8 * 4096, Advice::PageOut, &mut fx)
        .expect("a valid range");
    assert_eq!(os.held(pid).mapped_4kb, 8 * 4096);
    let swapped = os.mover_stats().1.expect("it swaps");
    assert_eq!((swapped.taken, swapped.swapped_out), (8, 8));
    os.fault(pid, at, Access::Read, &mut fx).expect("mapped");
    assert_eq!(os.mover_stats().1.map(|s| s.swapped_in), Some(1));
}
