//! Terms of reports and pages that are no statistic, key or file.

/// A term with its other names, unit and definition.
pub(super) struct Term {
    /// The term, then its other names.
    pub names: &'static [&'static str],
    pub unit: &'static str,
    pub text: &'static str,
}

const fn term(names: &'static [&'static str], unit: &'static str, text: &'static str) -> Term {
    Term { names, unit, text }
}

/// Terms in the order in which a reader meets them.
pub(super) const TERMS: &[Term] = &[
    term(
        &["speedup", "fastest", "over the first design"],
        "",
        "How many times as fast as the first design of the comparison: the first's cycles for an instruction over this one's. Where designs do not run the same instructions it is of cycles for a request (by requests), and of a mix the ratio of weighted speedups (weighted)",
    ),
    term(
        &["translation", "translation cost", "cost"],
        "share of the cycles",
        "What perfect TLBs would save of the cycles, measured by simulating the same instructions on a machine whose TLBs never miss (perfect-tlb). Negative where that machine needs more cycles",
    ),
    term(
        &[
            "translation reference",
            "perfect TLBs",
            "against perfect tlbs",
            "against perfect TLBs on the same instructions",
            "perfect TLBs on the same instructions",
        ],
        "",
        "A machine whose TLBs never miss, on the same instructions: the design perfect-tlb, which runs beside the others to say what translation costs",
    ),
    term(
        &[
            "MPKI",
            "misses",
            "misses a kilo-instruction",
            "misses for 1000 instructions",
        ],
        "misses/1000 instructions",
        "Misses for 1000 instructions: of a TLB, a cache, or mispredicted branches",
    ),
    term(
        &["TLB", "TLBs", "translation lookaside buffer"],
        "",
        "Translation lookaside buffer: a core's cache of translations from virtual pages to physical frames. The L1 TLB is asked with every access, the L2 TLB (on Intel STLB) when it misses, and when that misses too a page walk begins",
    ),
    term(
        &["L1 TLB", "L1 TLB MPKI", "L1 TLB misses", "L1 DTLB", "DTLB"],
        "",
        "The first-level TLB of a core, for data (mmu.l1d) or instructions (mmu.l1i)",
    ),
    term(
        &[
            "L2 TLB",
            "STLB",
            "second-level TLB",
            "misses of the L2 TLB",
            "L2 TLB misses",
            "L2 TLB misses a kilo-instruction",
        ],
        "",
        "The second-level TLB of a core (mmu.l2); a translation that it does not have either is walked for",
    ),
    term(
        &["walk", "page walk", "page-table walk"],
        "",
        "A page walk: the hardware's search of the page table for a translation that no TLB has. Each of its reads goes through the caches. In \"Where the cycles went\", cycles lost to instructions that waited for one",
    ),
    term(
        &["walker", "page walker", "for a walker"],
        "",
        "The unit of a core that does page walks; mmu.walkers says how many walks go on at a time. In \"Where the cycles went\", cycles lost while a walk waited for a free one",
    ),
    term(
        &[
            "PWC",
            "walk cache",
            "walk caches",
            "page-walk cache",
            "page walk caches",
            "paging-structure cache",
        ],
        "",
        "Page-walk cache (paging-structure cache): a small cache of upper entries of the page table, by which a walk skips their reads (mmu.walk_caches; of hashed page tables the cuckoo walk caches, mmu.cuckoo)",
    ),
    term(
        &["page table", "page tables", "page-table size"],
        "bytes",
        "What maps virtual pages to physical frames, in simulated memory. In a comparison, the largest size of all page tables together (page_table_bytes)",
    ),
    term(
        &["largest block", "contiguous block"],
        "bytes",
        "The largest contiguous block of physical memory that a page table asked for (largest_contiguous_bytes): large ones are hard to find in fragmented memory",
    ),
    term(
        &["page fault", "fault"],
        "",
        "The program touches a page that is not mapped, or writes to one that it may not: the kernel maps or copies it, and the access goes on",
    ),
    term(
        &["page", "page size", "huge page", "large page"],
        "",
        "The unit of translation: 4 KB, or a huge page of 2 MB or 1 GB, for which one TLB entry reaches farther",
    ),
    term(
        &["reach", "TLB reach"],
        "bytes",
        "Memory that the entries of a TLB translate: entries times page size",
    ),
    term(
        &[
            "cycle",
            "cycles",
            "cycles an instruction",
            "cycles a request",
            "cpi",
        ],
        "cycles",
        "Clock cycles of the simulated core (frequency_ghz): for an instruction (CPI, one over IPC) or for a request",
    ),
    term(
        &["instructions a cycle", "instructions a cycle over time"],
        "instructions/cycle",
        "IPC: instructions of all threads over the cycles of the core that took longest; over time, in each interval",
    ),
    term(
        &["cycles a walk", "walk time"],
        "cycles",
        "Mean time of a page walk, from its start in a walker to its end (walk_cycles_mean)",
    ),
    term(
        &["reads a walk"],
        "reads",
        "Mean number of page-table reads of a walk (walk_reads_per_walk): four with radix tables of four levels, less what walk caches save",
    ),
    term(
        &[
            "L2 TLB misses over time",
            "over time",
            "interval",
            "intervals",
            "million instructions",
        ],
        "",
        "A number in each stretch of --interval instructions of the measured part",
    ),
    term(
        &["request", "a request", "by requests"],
        "",
        "A unit of the program's own work, which the program marks: an operation of a key-value store, an update, a lookup, or a region of interest",
    ),
    term(
        &["where the cycles went", "cycle stack", "cause"],
        "cycles",
        "The cycle stack: every cycle of the measured part, shared out by what the oldest instruction waited for (docs/cycle-stack.md). A share says where time was spent, not what would be saved",
    ),
    term(
        &["base"],
        "cycles",
        "Of where the cycles went: those in which an instruction retired, at the full width of the core",
    ),
    term(
        &["compute"],
        "cycles",
        "Of where the cycles went: those lost while the oldest instruction waited for its producers or executed",
    ),
    term(
        &["L1D", "L1I", "L2", "L3", "last-level cache"],
        "",
        "The caches: each core's first level for data (L1D) and for instructions (L1I), its second level (L2), and the third that all share (L3). In \"Where the cycles went\", cycles lost to instructions whose data came from there",
    ),
    term(
        &["remote"],
        "cycles",
        "Of where the cycles went: those lost to instructions whose data came from another core's cache",
    ),
    term(
        &["DRAM", "memory"],
        "",
        "Main memory, behind the last cache. In \"Where the cycles went\", cycles lost to instructions whose data came from there; DRAM queue: to waiting for its banks and bus",
    ),
    term(
        &["DRAM queue"],
        "cycles",
        "Of where the cycles went: those lost to instructions that waited for a bank or the bus of the DRAM",
    ),
    term(
        &["miss register", "MSHR"],
        "",
        "A cache's register for a line on its way (MSHR): when none is free, a miss waits. In \"Where the cycles went\", cycles lost to that",
    ),
    term(
        &["TLB lookups", "tlb lookup"],
        "cycles",
        "Of where the cycles went: those lost to instructions that waited for TLBs to be looked up",
    ),
    term(
        &["kernel"],
        "cycles",
        "Of where the cycles went: those lost to page faults, system calls and context switches",
    ),
    term(
        &["branch", "branches"],
        "cycles",
        "Of where the cycles went: those lost to refilling after mispredicted branches",
    ),
    term(
        &["fetch"],
        "cycles",
        "Of where the cycles went: those lost while the front end waited for instructions from the caches",
    ),
    term(
        &["store queue"],
        "cycles",
        "Of where the cycles went: those lost to a full store queue and to fences that drain it",
    ),
    term(
        &["idle"],
        "cycles",
        "Of where the cycles went: those in which no thread was on the core",
    ),
    term(
        &[
            "how long it took",
            "histogram",
            "number",
            "count",
            "percentile",
            "percentiles",
            "50 %",
            "90 %",
            "99 %",
            "largest",
            "mean",
            "median",
            "p50",
            "p90",
            "p99",
        ],
        "",
        "A histogram tells how many values there were (number), their mean, the values that 50, 90 and 99 % of them do not exceed (percentiles; at most 1/32 too high), and the largest",
    ),
    term(
        &["where the energy went", "energy ratio", "over the first"],
        "",
        "Energy for an instruction, or a request, relative to the first design's. 'pagewalk explain energy' has the model and every number of it",
    ),
    term(
        &["dynamic", "static", "dynamic energy", "static energy"],
        "nJ",
        "Energy that accesses and instructions took (dynamic), and energy that leaked and ticked while the program ran (static)",
    ),
    term(
        &["core", "cores"],
        "",
        "A core of the simulated machine, with its own TLBs, walkers and first caches. As a part that takes energy: the out-of-order core without caches and TLBs",
    ),
    term(
        &["caches", "cache"],
        "",
        "Caches of the simulated machine: L1I, L1D and L2 of each core, and the L3 of all",
    ),
    term(
        &["speculation", "speculation engine"],
        "",
        "What guesses where data lie while a walk goes on (engine.revelator, engine.spectlb), as a part that takes energy",
    ),
    term(
        &["design"],
        "",
        "How a machine translates: page table, placement of pages, TLBs, walk caches, engines. A file of designs/ or your own; speedups refer to the first of a comparison",
    ),
    term(
        &["machine"],
        "",
        "The simulated processor: cores, TLBs, caches, DRAM, memory. A file of machines/ or your own",
    ),
    term(
        &["program", "programs", "programs of the mix", "mix"],
        "",
        "What runs: a built-in program, a trace, any Linux x86-64 program, or a mix of programs side by side",
    ),
    term(
        &["IPC alone", "alone", "of alone"],
        "instructions/cycle",
        "Of a program in a mix: its IPC without the others, on the first design; 'of alone' is the share of it that is left in their company",
    ),
    term(
        &["weighted speedup", "weighted"],
        "",
        "Of a mix: the sum over its programs of the IPC in the mix over the IPC alone on the first design (Snavely and Tullsen, ASPLOS 2000)",
    ),
    term(
        &["harmonic speedup"],
        "",
        "Of a mix: harmonic mean over its programs of the IPC in the mix over the IPC alone on the first design, which is small where one of them is left behind (Luo, Gummaraju and Franklin, ISPASS 2001)",
    ),
    term(
        &["ANTT"],
        "",
        "Of a mix: average normalized turnaround time, the mean over its programs of how many times longer an instruction takes in the mix than alone on the first design (Eyerman and Eeckhout, IEEE Micro 2008)",
    ),
    term(
        &["speedup in time", "in time", "the same machine"],
        "",
        "Where several machines are compared, clocks differ and cycles do not compare: speed in seconds relative to the first design on the first machine. 'speedup' is then relative to the first design on the same machine, in cycles",
    ),
    term(
        &["skip", "skipped"],
        "",
        "Instructions before the measured part that only map their pages (--skip)",
    ),
    term(
        &["warm-up", "warmup"],
        "",
        "Instructions that are simulated before the measured part and not counted, to fill TLBs and caches (--warmup)",
    ),
    term(
        &["region of interest", "ROI"],
        "",
        "What a program marks with pagewalk.h as the part to be measured (--roi)",
    ),
    term(
        &["measured", "measured part", "instructions measured"],
        "",
        "What numbers count: after skipping and warm-up, until --instructions, --requests or the program's end",
    ),
    term(
        &[
            "sampled",
            "sampled IPC",
            "sampling",
            "confidence",
            "samples",
        ],
        "",
        "With --sample or --precision, short stretches are measured, and what lies between them warms caches and TLBs or is passed over: the numbers are estimates, and lie between their bounds with that confidence",
    ),
    term(
        &["regions", "region", "weights", "regions of a trace"],
        "",
        "With --regions, only these stretches of a trace are measured, and stand for the whole: each counts by its weight, the share of the trace's instructions that are like its own. Counts are those of as many instructions as the regions have; no error bound is known",
    ),
    term(
        &["partial"],
        "",
        "The run was stopped, or a design came to no end: numbers are of what there is, and designs may have different parts behind them",
    ),
    term(
        &["seed"],
        "",
        "Where all random choices begin (--seed): the same seed gives the same result, byte for byte",
    ),
    term(
        &[
            "summary",
            "metric",
            "statistic",
            "statistics",
            "every statistic",
            "meaning",
            "unit",
        ],
        "",
        "The numbers of a result: the summary, and each component's counters with unit and meaning (docs/statistics.md)",
    ),
    term(
        &["details", "resolved configuration", "configuration"],
        "",
        "Every key that a result depends on, with its value: the machine's file, the design's on top of it, and settings on top of both (docs/configuration.md)",
    ),
    term(
        &["share"],
        "",
        "A part of the whole: of the cycles, of the energy, or of a histogram's values",
    ),
    term(
        &[
            "part by part",
            "nJ",
            "nJ an instruction",
            "nJ a request",
            "all",
        ],
        "nJ",
        "Energy in nanojoules, of the whole machine or of each of its parts, for an instruction or a request where it says so",
    ),
    term(
        &["K", "M", "G", "thousands", "millions", "billions"],
        "",
        "Of counts: thousands, millions, billions (powers of ten)",
    ),
    term(
        &["KiB", "MiB", "GiB", "TiB", "bytes"],
        "bytes",
        "Of sizes: 2^10, 2^20, 2^30, 2^40 bytes",
    ),
    term(
        &["uJ", "mJ", "J"],
        "",
        "Of energies: millionths, thousandths of a joule, joules",
    ),
];
