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
        "Speedup over the first design of the comparison: the first's cycles per instruction over this one's. If designs do not run the same instructions, cycles per request are compared (by requests); for a mix it is the ratio of weighted speedups (weighted)",
    ),
    term(
        &["translation", "translation cost", "cost"],
        "share of the cycles",
        "Share of the cycles that perfect TLBs would save, measured by simulating the same instructions on a machine whose TLBs never miss (perfect-tlb). The kernel's time is left out of both. Negative if that machine needs more cycles",
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
        "A machine whose TLBs never miss, on the same instructions: the design perfect-tlb, which runs beside the others to measure the cost of translation",
    ),
    term(
        &[
            "MPKI",
            "misses",
            "misses a kilo-instruction",
            "misses for 1000 instructions",
        ],
        "misses/1000 instructions",
        "Misses of a TLB or a cache, or mispredicted branches, per 1000 instructions",
    ),
    term(
        &["TLB", "TLBs", "translation lookaside buffer"],
        "",
        "Translation lookaside buffer: a core's cache of translations from virtual pages to physical frames. Every access looks up the L1 TLB. A miss looks up the L2 TLB (on Intel STLB), and a miss there begins a page walk",
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
        "The second-level TLB of a core (mmu.l2); a miss there begins a page walk",
    ),
    term(
        &["walk", "page walk", "page-table walk"],
        "",
        "A page walk: the hardware's search of the page table for a translation that no TLB has. Each of its reads goes through the caches. In the cycle stack, cycles lost to page walks",
    ),
    term(
        &[
            "walker",
            "page walker",
            "page-table walker",
            "PTW",
            "walker wait",
        ],
        "",
        "The unit of a core that performs page walks; mmu.walkers is the number of concurrent walks. In the cycle stack, cycles lost while a walk waited for a free walker",
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
        "Page-walk cache (paging-structure cache): a small cache of upper-level page-table entries, which lets a walk skip their reads (mmu.walk_caches; for hashed page tables the cuckoo walk caches, mmu.cuckoo)",
    ),
    term(
        &["page table", "page tables", "page-table size"],
        "bytes",
        "The structure in simulated memory that maps virtual pages to physical frames. In a comparison, the peak size of all page tables together (page_table_bytes)",
    ),
    term(
        &["largest block", "contiguous block"],
        "bytes",
        "The largest contiguous block of physical memory allocated for a page table (largest_contiguous_bytes). Large blocks are hard to find in fragmented memory",
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
        "Clock cycles of the simulated core (frequency_ghz): per instruction (CPI, one over IPC) or per request",
    ),
    term(
        &["instructions a cycle", "instructions a cycle over time"],
        "instructions/cycle",
        "IPC: instructions of all threads over the cycles of the slowest core; over time, in each interval",
    ),
    term(
        &["cycles a walk", "walk time"],
        "cycles",
        "Mean latency of a page walk, from its start in a walker to its end (walk_cycles_mean)",
    ),
    term(
        &["reads a walk"],
        "reads",
        "Mean number of page-table reads per walk (walk_reads_per_walk): four with radix tables of four levels, less the reads that walk caches save",
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
        "A number in each interval of --interval instructions of the measured part",
    ),
    term(
        &["request", "a request", "by requests"],
        "",
        "A unit of the program's own work, which the program marks: an operation of a key-value store, an update, a lookup, or a region of interest",
    ),
    term(
        &["cycle stack", "cause"],
        "cycles",
        "The cycle stack: every cycle of the measured part, charged to the causes that delayed the oldest instruction (docs/cycle-stack.md). The share of translation (TLB, walker, walk) estimates what perfect TLBs would save. Another share is the time spent on a cause, not the time that its removal would save",
    ),
    term(
        &["base"],
        "cycles",
        "In the cycle stack: cycles in which instructions retired, at the full width of the core",
    ),
    term(
        &["compute"],
        "cycles",
        "In the cycle stack: cycles lost while the oldest instruction waited for its producers or executed",
    ),
    term(
        &["L0D", "L1D", "L1I", "L2", "L3", "L4", "last-level cache"],
        "",
        "The caches: each core's first level for data (L1D) and for instructions (L1I), its second level (L2), and the third (L3), which all share unless each core has its own. Some machines have a small data cache in front of the L1D (L0D), or a shared fourth level (L4). In the cycle stack, cycles lost to accesses that a level served",
    ),
    term(
        &["remote"],
        "cycles",
        "In the cycle stack: cycles lost to accesses served by another core's cache",
    ),
    term(
        &["DRAM", "memory"],
        "",
        "Main memory, behind the last cache. In the cycle stack, cycles lost to accesses served by DRAM; DRAM queue: cycles lost to queueing for its banks and bus",
    ),
    term(
        &["DRAM queue"],
        "cycles",
        "In the cycle stack: cycles lost to queueing for a bank or the bus of the DRAM",
    ),
    term(
        &["miss register", "MSHR"],
        "",
        "Miss status holding register (MSHR): tracks a line in flight to a cache. A miss waits if none is free. In the cycle stack, cycles lost to that wait",
    ),
    term(
        &["TLB lookups", "tlb lookup"],
        "cycles",
        "In the cycle stack: cycles lost to TLB lookups",
    ),
    term(
        &["kernel"],
        "cycles",
        "In the cycle stack: cycles lost to page faults, system calls and context switches",
    ),
    term(
        &["branch", "branches"],
        "cycles",
        "In the cycle stack: cycles lost while the front end refilled after mispredicted branches",
    ),
    term(
        &["fetch"],
        "cycles",
        "In the cycle stack: cycles lost while the front end waited for instructions from the caches",
    ),
    term(
        &["store queue"],
        "cycles",
        "In the cycle stack: cycles lost to a full store queue and to fences that drain it",
    ),
    term(
        &["idle"],
        "cycles",
        "In the cycle stack: cycles in which no thread was on the core",
    ),
    term(
        &[
            "latencies",
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
        "A histogram gives the number of values, their mean, the values that 50, 90 and 99 % of them do not exceed (percentiles; at most 1/32 too high), and the largest",
    ),
    term(
        &["energy ratio", "over the first"],
        "",
        "Energy per instruction, or per request, relative to the first design's. 'pagewalk explain energy' has the model and every number of it",
    ),
    term(
        &["dynamic", "static", "dynamic energy", "static energy"],
        "nJ",
        "Energy that accesses and instructions consume (dynamic), and energy that leakage and clocks consume while the program runs (static)",
    ),
    term(
        &["core", "cores"],
        "",
        "A core of the simulated machine, with its own TLBs, walkers and private caches. As a consumer of energy: the out-of-order core without caches and TLBs",
    ),
    term(
        &["caches", "cache"],
        "",
        "Caches of the simulated machine: those of each core (L1I, L1D, L2), and the shared ones (L3)",
    ),
    term(
        &["speculation", "speculation engine"],
        "",
        "Speculation engine, as a consumer of energy: it guesses the place of the data during a walk (engine.revelator, engine.spectlb)",
    ),
    term(
        &["design"],
        "",
        "A translation design of a machine: page table, placement of pages, TLBs, walk caches, engines. A file of designs/ or your own; speedups refer to the first of a comparison",
    ),
    term(
        &["machine"],
        "",
        "The simulated processor: cores, TLBs, caches, DRAM, memory. A file of machines/ or your own",
    ),
    term(
        &["program", "programs", "programs of the mix", "mix"],
        "",
        "The simulated workload: a built-in program, a trace, any Linux x86-64 program, or a mix of programs side by side",
    ),
    term(
        &["IPC alone", "alone", "of alone"],
        "instructions/cycle",
        "IPC of a program of a mix without the others, on the first design; 'of alone' is the share of it that the program reaches in the mix",
    ),
    term(
        &["weighted speedup", "weighted"],
        "",
        "Weighted speedup of a mix: the sum over its programs of the IPC in the mix over the IPC alone on the first design (Snavely and Tullsen, ASPLOS 2000)",
    ),
    term(
        &["harmonic speedup"],
        "",
        "Harmonic speedup of a mix: harmonic mean over its programs of the IPC in the mix over the IPC alone on the first design. It is small if one program is starved (Luo, Gummaraju and Franklin, ISPASS 2001)",
    ),
    term(
        &["ANTT"],
        "",
        "Average normalized turnaround time of a mix: mean over its programs of the CPI in the mix over the CPI alone on the first design (Eyerman and Eeckhout, IEEE Micro 2008)",
    ),
    term(
        &["speedup in time", "in time", "the same machine"],
        "",
        "Speedup in seconds over the first design on the first machine, if several machines with different clocks are compared. 'speedup' is then relative to the first design on the same machine, in cycles",
    ),
    term(
        &[
            "skip",
            "skipped",
            "fast-forward",
            "fast-forwarding",
            "fast-forwarded",
        ],
        "",
        "Instructions that are fast-forwarded before the measured part and only map their pages (--skip)",
    ),
    term(
        &["warm-up", "warmup", "detailed warm-up", "detailed warming"],
        "",
        "Instructions that are simulated before the measured part and not counted, to fill TLBs and caches (--warmup)",
    ),
    term(
        &[
            "functional warming",
            "warming",
            "filtered functional warming",
            "filtered warming",
        ],
        "",
        "Simulation without timing between samples: instructions update caches, TLBs, page tables and predictors, and take no time (--sample, warm=). Filtered functional warming updates the caches by one access to each line of a stretch only (filtered=)",
    ),
    term(
        &["region of interest", "ROI"],
        "",
        "The part of a program that it marks for measurement with pagewalk.h (--roi)",
    ),
    term(
        &["measured", "measured part", "instructions measured"],
        "",
        "The part of the run that numbers count: after fast-forwarding and warm-up, until --instructions, --requests or the program's end",
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
        "With --sample or --precision, short samples are measured. Between them, functional warming keeps caches and TLBs warm, or instructions are fast-forwarded. The numbers are estimates, and lie between their bounds with the given confidence",
    ),
    term(
        &["regions", "region", "weights", "regions of a trace"],
        "",
        "With --regions, only these regions of a trace are measured, and represent the whole. The weight of a region is the share of the trace's instructions that it represents. Counts refer to as many instructions as the regions have; no error bound is known",
    ),
    term(
        &["partial"],
        "",
        "The run was stopped, or a design did not finish. Numbers cover the simulated part, which may differ between designs",
    ),
    term(
        &["seed"],
        "",
        "Random seed (--seed): the same seed gives the same result, byte for byte",
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
        "Energy in nanojoules, of the whole machine or of each of its parts, per instruction or per request if the title says so",
    ),
    term(
        &["K", "M", "G", "thousands", "millions", "billions"],
        "",
        "Suffixes of counts: thousands, millions, billions (powers of ten)",
    ),
    term(
        &["KiB", "MiB", "GiB", "TiB", "bytes"],
        "bytes",
        "Units of sizes: 2^10, 2^20, 2^30, 2^40 bytes",
    ),
    term(
        &["uJ", "mJ", "J"],
        "",
        "Units of energies: microjoules, millijoules, joules",
    ),
];
