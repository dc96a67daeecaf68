//! Counters of the operating system.

use std::ops::{Add, Sub};

use pagewalk_stats::{Definition, histogram};

/// Histogram of the cost of page faults.
pub const FAULT_COST: Definition = histogram!(
    "fault_cost",
    "cycles",
    "Kernel time of a page fault: trap, memory for the page and for page tables, zeroing or copying, and of a guest what its host does for it"
);

pagewalk_stats::counters! {
    /// The operating system's memory manager.
    pub struct OsStats {
        faults_4kb: "faults", "Page faults that a 4 KB page answered";
        faults_2mb: "faults", "Page faults that a 2 MB page answered";
        faults_1gb: "faults", "Page faults that a 1 GB page answered";
        kernel_faults: "faults", "Page faults that the kernel took itself, in system calls that read or wrote memory of the program that was not mapped; among the faults by kind";
        cow_faults: "faults", "Writes to pages that were write-protected for copy-on-write";
        cow_copies: "pages", "4 KB pages copied by copy-on-write";
        spurious_faults: "faults", "Page faults on pages that were mapped already, by another thread";
        populated_pages: "pages", "Pages of any size that the laboratory touched for the program, or that count as mapped before it is looked at, among the faults by kind but not in the fault cycles";
        inferred_mappings: "mappings", "2 MB regions taken as mappings because the program comes without mapping information";
        huge_fallbacks: "faults", "First touches of regions that may have a 2 MB page but found no free 2 MB block";
        giant_fallbacks: "faults", "First touches of regions that may have a 1 GB page but found no free 1 GB block";
        reservations_made: "reservations", "2 MB blocks reserved at the first touch of a region";
        promotions: "regions", "Reservations that became a 2 MB page";
        demotions: "regions", "Reservations broken up, under memory pressure or by fork and mremap";
        splits: "pages", "2 MB and 1 GB pages split into the next smaller size";
        populate_cycles: "cycles", "Kernel time that the first touches of populated pages would have taken: traps, zeroing, page tables. No time passes for it";
        populate_table_cycles: "cycles", "The part of it that page tables' memory and moved entries would have taken";
        fault_cycles: "cycles", "Kernel time of page faults";
        zeroed_bytes: "bytes", "Memory zeroed for pages of programs";
        copied_bytes: "bytes", "Memory copied by copy-on-write";
        invalidations: "requests", "Invalidations of TLBs and walk caches that were asked for";
        table_entries_moved: "entries", "Page-table entries moved by resizing and re-insertion";
        table_allocation_cycles: "cycles", "Kernel time of allocating and zeroing memory for page tables, populating and khugepaged included";
        table_move_cycles: "cycles", "Kernel time of moving page-table entries, populating and khugepaged included";
        table_blocks_4kb: "blocks", "Blocks of 4 KB that page tables were given";
        table_blocks_8kb: "blocks", "Blocks of 8 KB that page tables were given";
        table_blocks_1mb: "blocks", "Blocks above 8 KB and up to 1 MB that page tables were given";
        table_blocks_8mb: "blocks", "Blocks above 1 MB and up to 8 MB that page tables were given";
        table_blocks_64mb: "blocks", "Blocks above 8 MB and up to 64 MB that page tables were given";
        table_blocks_larger: "blocks", "Blocks above 64 MB that page tables were given";
        context_switches: "switches", "Times that a core took up another thread than it ran last";
        process_switches: "switches", "Those between threads of different processes";
        registers_saved: "registers", "Registers of page tables that context switches saved";
        registers_restored: "registers", "Registers of page tables that context switches restored";
        register_cycles: "cycles", "Kernel time of saving and restoring them";
        compactions: "blocks", "Contiguous blocks for page tables and for khugepaged that movable frames had to leave";
        compacted_frames: "frames", "Movable frames moved for contiguous blocks";
        forks: "processes", "Processes created by fork";
        gauge processes: "processes", "Processes that exist";
        gauge mapped_4kb_bytes: "bytes", "Memory mapped by 4 KB pages at the end, of the processes that then live";
        gauge mapped_2mb_bytes: "bytes", "Memory mapped by 2 MB pages at the end, of the processes that then live";
        gauge mapped_1gb_bytes: "bytes", "Memory mapped by 1 GB pages at the end, of the processes that then live";
        gauge huge_mapped_permille: "permille", "Share of the mapped memory that lies in 2 MB and 1 GB pages at the end, of the processes that then live";
        gauge reservations: "reservations", "2 MB blocks reserved and not promoted";
        gauge page_table_bytes: "bytes", "Physical memory of all page tables";
        gauge page_table_peak_bytes: "bytes", "Most physical memory that all page tables held at a time";
        gauge largest_contiguous_bytes: "bytes", "Largest contiguous block that a page table asked for and got";
        gauge free_bytes: "bytes", "Physical memory that is free";
        gauge set_aside_bytes: "bytes", "Physical memory that the kernel keeps, that other programs hold since boot, movable frames that fragment it, and what is set aside for an in-memory TLB and for an STLT";
        gauge free_2mb_blocks: "blocks", "2 MB blocks of free memory";
        gauge unusable_free_permille: "permille", "Share of the free memory that does not lie in free 2 MB blocks (unusable-free index at order 9)";
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
