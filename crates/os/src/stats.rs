//! Counters of the operating system.

use std::ops::{Add, Sub};

use pagewalk_stats::{Definition, histogram};

/// Histogram of the cost of page faults.
pub const FAULT_COST: Definition = histogram!(
    "fault_cost",
    "cycles",
    "Kernel time of a page fault: trap, allocation of the page and of page tables, zeroing or copying, and in a guest the host's work for it"
);

pagewalk_stats::counters! {
    /// The operating system's memory manager.
    pub struct OsStats {
        faults_4kb: "faults", "Page faults that mapped a 4 KB page";
        faults_2mb: "faults", "Page faults that mapped a 2 MB page";
        faults_1gb: "faults", "Page faults that mapped a 1 GB page";
        kernel_faults: "faults", "Page faults of the kernel itself, in system calls that accessed unmapped memory of the program; included in the faults by kind";
        cow_faults: "faults", "Writes to pages that were write-protected: for copy-on-write, as the shared zero page, or to note the first write to a page of a file";
        cow_copies: "pages", "4 KB pages copied by copy-on-write";
        spurious_faults: "faults", "Page faults on pages that another thread had mapped meanwhile";
        populated_pages: "pages", "Pages of any size that the simulator populated for the program, or that count as mapped before the simulation; included in the faults by kind, but not in the fault cycles";
        inferred_mappings: "mappings", "2 MB regions assumed to be mapped, because the program comes without mapping information";
        huge_fallbacks: "faults", "First touches of regions that may have a 2 MB page, but for which no 2 MB block was free";
        giant_fallbacks: "faults", "First touches of regions that may have a 1 GB page, but for which no 1 GB block was free";
        reservations_made: "reservations", "2 MB blocks reserved at the first touch of a region";
        promotions: "regions", "Reservations promoted to a 2 MB page";
        demotions: "regions", "Reservations broken up, under memory pressure or by fork and mremap";
        splits: "pages", "2 MB and 1 GB pages split into the next smaller size";
        populate_cycles: "cycles", "Kernel time that the first touches of populated pages would have taken: traps, zeroing, page tables. It does not advance the simulated time";
        populate_table_cycles: "cycles", "Part of populate_cycles for memory of page tables and moved entries";
        fault_cycles: "cycles", "Kernel time of page faults";
        zeroed_bytes: "bytes", "Memory zeroed for pages of programs";
        copied_bytes: "bytes", "Memory copied by copy-on-write";
        invalidations: "requests", "Requested invalidations of TLBs and page-walk caches";
        table_entries_moved: "entries", "Page-table entries moved by resizing and re-insertion";
        table_allocation_cycles: "cycles", "Kernel time of allocating and zeroing memory for page tables, populating and khugepaged included";
        table_move_cycles: "cycles", "Kernel time of moving page-table entries, populating and khugepaged included";
        table_blocks_4kb: "blocks", "4 KB blocks allocated for page tables";
        table_blocks_8kb: "blocks", "8 KB blocks allocated for page tables";
        table_blocks_1mb: "blocks", "Blocks above 8 KB and up to 1 MB allocated for page tables";
        table_blocks_8mb: "blocks", "Blocks above 1 MB and up to 8 MB allocated for page tables";
        table_blocks_64mb: "blocks", "Blocks above 8 MB and up to 64 MB allocated for page tables";
        table_blocks_larger: "blocks", "Blocks above 64 MB allocated for page tables";
        context_switches: "switches", "Switches of a core to another thread than it ran last";
        process_switches: "switches", "Context switches between threads of different processes";
        registers_saved: "registers", "Registers of page tables that context switches saved";
        registers_restored: "registers", "Registers of page tables that context switches restored";
        register_cycles: "cycles", "Kernel time of saving and restoring registers of page tables";
        compactions: "blocks", "Contiguous blocks for page tables and khugepaged that were cleared of movable frames";
        compacted_frames: "frames", "Movable frames moved for contiguous blocks";
        forks: "processes", "Processes created by fork";
        gauge processes: "processes", "Processes that exist";
        gauge mapped_4kb_bytes: "bytes", "Memory of live processes mapped by 4 KB pages at the end";
        gauge mapped_2mb_bytes: "bytes", "Memory of live processes mapped by 2 MB pages at the end";
        gauge mapped_1gb_bytes: "bytes", "Memory of live processes mapped by 1 GB pages at the end";
        gauge huge_mapped_permille: "permille", "Share of the mapped memory of live processes that lies in 2 MB and 1 GB pages at the end";
        gauge reservations: "reservations", "Reserved 2 MB blocks that are not promoted";
        gauge page_table_bytes: "bytes", "Physical memory of all page tables";
        gauge page_table_peak_bytes: "bytes", "Peak physical memory of all page tables";
        gauge largest_contiguous_bytes: "bytes", "Largest contiguous block allocated for a page table";
        gauge free_bytes: "bytes", "Free physical memory";
        gauge set_aside_bytes: "bytes", "Physical memory that is unavailable to programs: kernel memory, memory of other programs since boot, movable frames that fragment it, and the memory of an in-memory TLB and of an STLT";
        gauge free_2mb_blocks: "blocks", "2 MB blocks in free memory";
        gauge unusable_free_permille: "permille", "Share of the free memory outside free 2 MB blocks (unusable-free index at order 9)";
    }
}

/// Number of page faults in the results, without pages that the simulator populated for the
/// program. `count` returns the value of a counter of [`OsStats`], by its name or by its accessor.
pub fn page_faults<N>(count: impl Fn(&'static str, fn(&OsStats) -> u64) -> N) -> N
where
    N: Add<Output = N> + Sub<Output = N>,
{
    let first = count("faults_4kb", |s| s.faults_4kb)
        + count("faults_2mb", |s| s.faults_2mb)
        + count("faults_1gb", |s| s.faults_1gb);
    let others =
        count("cow_faults", |s| s.cow_faults) + count("spurious_faults", |s| s.spurious_faults);
    first + others - count("populated_pages", |s| s.populated_pages)
}

#[cfg(test)]
mod tests {
    use super::{OsStats, page_faults};
    use pagewalk_stats::Tree;

    #[test]
    fn page_faults_are_the_same_by_the_counters_names_and_by_their_values() {
        let s = OsStats {
            faults_4kb: 1000,
            faults_2mb: 200,
            faults_1gb: 30,
            cow_faults: 7,
            spurious_faults: 2,
            populated_pages: 500,
            ..OsStats::default()
        };
        let mut tree = Tree::default();
        tree.add("os", &s);
        let named = page_faults(|name, _| tree.get("os", name).expect("a counter of that name"));
        assert_eq!((named, page_faults(|_, of| of(&s))), (739, 739));
    }
}
