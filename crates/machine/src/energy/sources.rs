//! Default numbers of the energy model, with their sources.

use super::spec::{ArrayEnergy, CacheEnergy};

/// A number with its source.
pub(super) struct Sourced<T> {
    pub value: T,
    pub source: &'static str,
}

const CACTI: &str =
    "CACTI 7 at 45 nm, its default configuration: energy-delay-squared, 360 K, one port, no ECC";
const CACTI_LSTP: &str = "CACTI 7 at 45 nm with low-standby-power cells";
const CACTI_HALF: &str = "CACTI 7 at 45 nm; a write is ours: of 512 KB it is 0.74 of a read";
const CACTI_SMALLEST: &str = "CACTI 7 at 45 nm; ours: a write is 0.74 of a read, and what leaks is 0.0745 of high-performance cells' 280 mW, both as of 512 KB";
const CACTI_READ: &str =
    "CACTI 7 at 45 nm; a write is ours: of 1,774 entries and 4 ways it is 1.47 of a read";
const CACTI_LARGE: &str = "CACTI 7 at 45 nm; what leaks is ours: of high-performance cells' 970 and 1,940 mW the share (0.0844) that low-standby-power ones have in a cache of 1 MB";
const EXTENDED: &str = "ours: CACTI has no organisation for so few entries; along the line of 128 and 256 entries, and within the 3 to 5 pJ that small arrays are given";

const fn cache(
    size_kb: u32,
    read_pj: f64,
    write_pj: f64,
    static_mw: f64,
    source: &'static str,
) -> Sourced<CacheEnergy> {
    Sourced {
        value: CacheEnergy {
            size_kb,
            read_pj,
            write_pj,
            static_mw,
        },
        source,
    }
}

const fn array(
    entries: u32,
    ways: u32,
    [read_pj, write_pj, static_mw]: [f64; 3],
    source: &'static str,
) -> Sourced<ArrayEnergy> {
    Sourced {
        value: ArrayEnergy {
            entries,
            ways,
            read_pj,
            write_pj,
            static_mw,
        },
        source,
    }
}

/// First-level caches.
pub(super) const L1: &[Sourced<CacheEnergy>] = &[
    cache(32, 19.0, 23.0, 41.0, CACTI),
    cache(64, 34.0, 35.0, 74.0, CACTI),
];

/// Second-level and shared caches.
pub(super) const L2_L3: &[Sourced<CacheEnergy>] = &[
    cache(256, 140.0, 104.0, 20.9, CACTI_SMALLEST),
    cache(512, 307.0, 227.0, 41.0, CACTI_LSTP),
    cache(1024, 342.0, 253.0, 92.0, CACTI_HALF),
    cache(2048, 499.0, 369.0, 128.0, CACTI_HALF),
    cache(16384, 1404.0, 1038.0, 1255.0, CACTI_HALF),
];

/// TLB-like arrays.
pub(super) const TLB: &[Sourced<ArrayEnergy>] = &[
    array(32, 4, [3.3, 4.8, 0.65], EXTENDED),
    array(64, 4, [4.2, 6.2, 1.25], EXTENDED),
    array(128, 4, [5.3, 7.8, 2.4], CACTI_READ),
    array(256, 4, [6.7, 9.8, 4.6], CACTI_READ),
    // 1,536 to 2,048 entries: their geometric mean.
    array(1774, 4, [15.0, 22.0, 32.0], CACTI),
    array(1024, 8, [13.0, 28.0, 17.0], CACTI),
    array(2048, 16, [26.0, 53.0, 34.0], CACTI),
    array(65536, 16, [109.0, 223.0, 82.0], CACTI_LARGE),
    array(131072, 16, [145.0, 258.0, 164.0], CACTI_LARGE),
];

/// Name, description and source of one number of the model.
pub(crate) struct Number {
    pub name: String,
    pub text: String,
    pub source: &'static str,
}

/// Description of the energy model.
pub(crate) const MODEL: &str = "Energy of the measured part: what each array counted, times what one access takes, and what leaks, times the time of the slowest core. Computed after the run, from the counters of the result; each part of a result has its counts and prices. Sizes between those below are interpolated log-log. A guess that an engine had fetched in vain costs what its accesses to L2, L3 and DRAM cost. Not priced: the network between cores, the kernel's own memory traffic, page-table walks of populating, prefetchers' tables and predictors (they are in what an instruction takes)";

/// Source of the energy model.
pub(crate) const MODEL_SOURCE: &str = "45 nm throughout, since Horowitz's instruction (ISSCC 2014) and the synthesised engine (Revelator, section 6.1) are at 45 nm; no paper gives its node, and absolute numbers are no more than an order of magnitude: compare designs";

/// Every number of the tables, with its source.
pub(crate) fn numbers() -> Vec<Number> {
    let caches = [
        ("l1", L1, "a first-level cache"),
        ("l2_l3", L2_L3, "a cache behind it"),
    ];
    let of_caches = caches.into_iter().flat_map(|(key, points, what)| {
        points.iter().map(move |p| Number {
            name: format!("energy.{key}: {} KB", p.value.size_kb),
            text: format!(
                "{what} of {} KB: {} pJ a read, {} pJ a write, {} mW leak",
                p.value.size_kb, p.value.read_pj, p.value.write_pj, p.value.static_mw
            ),
            source: p.source,
        })
    });
    let of_arrays = TLB.iter().map(|p| Number {
        name: format!(
            "energy.tlb: {} entries, {} ways",
            p.value.entries, p.value.ways
        ),
        text: format!(
            "a TLB, walk cache, tag array or directory of {} entries and {} ways: {} pJ a lookup, {} pJ an entry put in, {} mW leak",
            p.value.entries, p.value.ways, p.value.read_pj, p.value.write_pj, p.value.static_mw
        ),
        source: p.source,
    });
    of_caches.chain(of_arrays).collect()
}
