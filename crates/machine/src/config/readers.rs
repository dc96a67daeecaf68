//! Component that reads a configuration key, and the unit of its value.

/// Component for a key: that of the longest matching prefix.
const READERS: &[(&str, &str)] = &[
    ("cores", "the machine, which builds so many cores"),
    (
        "frequency_ghz",
        "DRAM, kernel and energy, which count in ns",
    ),
    ("core", "the out-of-order core"),
    ("core.predictor", "the core's branch predictor"),
    ("mmu", "the MMU of each core"),
    ("mmu.l1i", "the first-level instruction TLB"),
    ("mmu.l1d", "the first-level data TLB"),
    ("mmu.l2", "the second-level TLB"),
    ("mmu.l2i", "the second-level instruction TLB"),
    ("mmu.walkers", "the page walkers"),
    ("mmu.walk_caches", "the page-walk caches of radix tables"),
    (
        "mmu.cuckoo",
        "the walk caches of elastic cuckoo and memory-efficient tables",
    ),
    (
        "mmu.nested_tlb",
        "the walker, where it walks in a virtual machine",
    ),
    ("mmu.prefetcher", "the prefetcher into the TLBs"),
    ("caches", "the private caches of each core"),
    ("caches.walks_enter", "the page walkers, for their reads"),
    ("memory", "what the cores share"),
    ("memory.l3", "the shared third-level cache"),
    ("memory.l4", "the shared fourth-level cache"),
    ("memory.dram", "the DRAM"),
    ("os", "the kernel"),
    ("os.prices", "the kernel, for its time"),
    ("os.fragmentation", "the buddy allocator, at boot"),
    ("os.compaction", "the buddy allocator"),
    ("placement", "the kernel's placement of pages in frames"),
    (
        "page_table",
        "the page table: the kernel that changes it, the walker that reads it",
    ),
    ("engine", "the speculation engine of each core"),
    ("translation", "the MMU of each core, on a TLB miss"),
    ("translation.l3_tlb", "the third-level TLB"),
    (
        "translation.range_tlb",
        "the range TLB beside the second level",
    ),
    (
        "translation.range_tlb",
        "the range TLB beside the second level",
    ),
    (
        "translation.coalesced",
        "the coalescing TLB in place of an array of the second level",
    ),
    (
        "translation.colt_fa",
        "the coalescing TLB beside the first level",
    ),
    (
        "translation.victima",
        "the MMU, for its blocks in the L2 cache",
    ),
    (
        "translation.pom_tlb",
        "the TLB in memory, which all cores share",
    ),
    (
        "shortcut",
        "the table of shortcuts (STLT), and the unit of each core that reads it",
    ),
    ("virtual", "the host of the virtual machine"),
    (
        "virtual.placement",
        "the host's placement of pages in frames",
    ),
    ("virtual.page_table", "the host's page table"),
    ("schedule", "the scheduler of cores and threads"),
    ("energy", "the account of energy, after the run"),
];

/// The component that reads the key of this path.
pub(super) fn reader(path: &str) -> &'static str {
    let fits = |prefix: &str| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let found = READERS.iter().filter(|(prefix, _)| fits(prefix));
    found
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or("", |r| r.1)
}

/// Unit for a key by the end of its name; the first match counts.
const UNITS: &[(&str, &str)] = &[
    ("available_2mb", "share, 0 to 1"),
    ("served_2mb", "share, 0 to 1"),
    ("entries_4kb", "entries"),
    ("entries_2mb", "entries"),
    ("log_entries", "log2 of the entries"),
    ("ns_per_byte", "ns/byte"),
    ("gb", "GB (2^30 bytes)"),
    ("mb", "MB (2^20 bytes)"),
    ("kb", "KB (2^10 bytes)"),
    ("bytes", "bytes"),
    ("ghz", "GHz"),
    ("mts", "million transfers/s"),
    ("ns", "ns"),
    ("us", "us"),
    ("millisecs", "ms"),
    ("pj", "pJ"),
    ("nj", "nJ"),
    ("mw", "mW"),
    ("percent", "%"),
    ("cycles", "cycles"),
    ("latency", "cycles"),
    ("penalty", "cycles"),
    ("width", "instructions/cycle"),
    ("entries", "entries"),
    ("rob", "entries"),
    ("queue", "entries"),
    ("stack", "entries"),
    ("slots", "slots"),
    ("ways", "ways"),
    ("mshrs", "miss registers"),
    ("walkers", "walks"),
    ("levels", "levels"),
    ("chunks", "bytes"),
    ("cores", "cores"),
    ("channels", "channels"),
    ("ranks", "ranks"),
    ("banks", "banks"),
    ("rows", "rows"),
];

/// Unit of the key of this path; empty for a value without unit, such as a choice.
pub(super) fn unit(path: &str, expected: &str) -> &'static str {
    if !expected.ends_with("number") {
        return "";
    }
    let fits = |end: &str| {
        let before = path.strip_suffix(end);
        before.is_some_and(|b| b.is_empty() || b.ends_with(['.', '_']))
    };
    let found = UNITS.iter().find(|(end, _)| fits(end));
    found.map_or("", |f| f.1)
}

#[cfg(test)]
mod tests {
    use super::super::{keys, readers};

    #[test]
    fn every_key_is_read_by_some_part() {
        for key in keys() {
            assert!(!key.reader.is_empty(), "{}", key.path);
        }
        assert_eq!(readers::reader("mmu.l2.main.ways"), "the second-level TLB");
        assert_eq!(readers::reader("mmu.perfect"), "the MMU of each core");
        // A prefix ends at a dot, not within a word.
        assert_eq!(readers::reader("cores"), readers::READERS[0].1);
        // Each prefix matches an existing key.
        for (path, _) in readers::READERS {
            let below = format!("{path}.");
            let there = |k: &super::super::Key| k.path == *path || k.path.starts_with(&below);
            assert!(keys().iter().any(there), "{path}");
        }
    }

    #[test]
    fn numbers_with_a_unit_say_it() {
        let unit = |path: &str| keys().into_iter().find(|k| k.path == path).map(|k| k.unit);
        assert_eq!(unit("caches.l1d.size_kb"), Some("KB (2^10 bytes)"));
        assert_eq!(unit("mmu.l2.<name>.latency"), Some("cycles"));
        assert_eq!(
            unit("os.fragmentation.available_2mb"),
            Some("share, 0 to 1")
        );
        assert_eq!(unit("placement.thp.mode"), Some(""));
    }
}
