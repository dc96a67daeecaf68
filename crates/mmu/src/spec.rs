//! Configuration of the MMU.

use std::collections::BTreeMap;

use pagewalk_tables::{CuckooWalkSpec, WalkCacheSpec};
use pagewalk_units::{Cycle, Error, PageSize, Part, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{TlbPrefetcherSpec, TlbReplacement};

/// One TLB array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// Page sizes it holds.
    pub page_sizes: Vec<PageSize>,
    /// Entries. When `ways` does not divide them, the number of sets is rounded
    /// down (1024 entries of 12 ways: 85 sets, indexed by modulo).
    pub entries: u32,
    /// Ways; = entries: fully associative. Sets need not be a power of two.
    pub ways: u32,
    /// Cycles from the core's request to the result of this level. At the first level, only the
    /// cycles beyond the L1 data cache's load-to-use latency delay an access, since the two are
    /// looked up in parallel.
    pub latency: Cycle,
    /// Replacement policy; default "lru".
    #[serde(default)]
    pub replacement: TlbReplacement,
}

/// The nested TLB: the host's translations that a core caches while it runs a guest. It maps a
/// guest-physical 4 KB page to its physical address and is looked up before each walk of the host's
/// table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NestedTlbSpec {
    /// Entries, fully associative; 0: no nested TLB. Default 64 (our choice: no paper gives the
    /// size; in the range of published paging-structure caches).
    pub entries: u32,
    /// Cycles of a lookup. Default 2 (our choice).
    pub latency: Cycle,
}

impl Default for NestedTlbSpec {
    fn default() -> Self {
        NestedTlbSpec {
            entries: 64,
            latency: 2,
        }
    }
}

/// The MMU of one core. Arrays of a level are looked up in parallel; the one that
/// serves 4 KB pages is named `main` in every shipped machine. A page of a size
/// that no array of a level holds is cached there in pieces of the next smaller
/// size that one does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MmuSpec {
    /// First level, instructions.
    pub l1i: BTreeMap<String, TlbSpec>,
    /// First level, data.
    pub l1d: BTreeMap<String, TlbSpec>,
    /// Second level, for data and instructions unless `l2i` is given.
    pub l2: BTreeMap<String, TlbSpec>,
    /// Second level for instructions only.
    #[serde(default)]
    pub l2i: BTreeMap<String, TlbSpec>,
    /// Page-walk caches.
    pub walk_caches: WalkCacheSpec,
    /// Caches of walks of elastic cuckoo page tables, in place of page-walk caches.
    #[serde(default)]
    pub cuckoo: CuckooWalkSpec,
    /// Nested TLB, for virtual machines.
    #[serde(default)]
    pub nested_tlb: NestedTlbSpec,
    /// Number of concurrent page walks.
    pub walkers: u32,
    /// TLB prefetcher for data translations; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetcher: Option<TlbPrefetcherSpec>,
    /// Every translation is known at once, without TLB misses: the upper bound that designs are
    /// compared with.
    #[serde(default)]
    pub perfect: bool,
}

/// Most entries of one array: slot numbers have 32 bits, way numbers 16.
pub(crate) const MAX_ENTRIES: u32 = 1 << 24;

/// Most entries of one walk cache.
const MAX_WALK_CACHE: u32 = 1 << 20;
/// Most ways of a walk cache, and entries of the nested TLB.
pub(crate) const MAX_WAYS: u32 = 1 << 16;
/// Longest latency, the same as for caches.
pub(crate) const MAX_LATENCY: Cycle = 1 << 20;

impl MmuSpec {
    /// The second-level array that holds 4 KB pages, with its name.
    pub fn small_l2(&self) -> Option<(&str, &TlbSpec)> {
        let mut arrays = self.l2.iter();
        let small = arrays.find(|(_, spec)| spec.page_sizes.contains(&PageSize::K4))?;
        Some((small.0, small.1))
    }

    /// Checks the values.
    ///
    /// # Errors
    /// One sentence that names the impossible key.
    pub fn check(&self) -> Result<(), Error> {
        for (level, arrays, needed) in [
            ("l1i", &self.l1i, true),
            ("l1d", &self.l1d, true),
            ("l2", &self.l2, false),
            ("l2i", &self.l2i, false),
        ] {
            let mut seen = [false; 3];
            for (name, spec) in arrays {
                let key = format!("mmu.{level}.{name}");
                if spec.entries == 0 || spec.entries > MAX_ENTRIES {
                    return Err(Error::key(
                        format!("{key}.entries"),
                        format!("is {}; expected 1 to {MAX_ENTRIES}", spec.entries),
                    ));
                }
                if spec.ways == 0 || spec.ways > spec.entries || spec.ways > u32::from(u16::MAX) {
                    return Err(Error::key(
                        format!("{key}.ways"),
                        format!(
                            "is {}; expected 1 to the number of entries ({}), at most 65535",
                            spec.ways, spec.entries
                        ),
                    ));
                }
                if spec.latency > MAX_LATENCY {
                    return Err(Error::key(
                        format!("{key}.latency"),
                        format!("is {}; expected at most {MAX_LATENCY} cycles", spec.latency),
                    ));
                }
                let policy = spec.replacement.check();
                policy.map_err(|what| what.under(&key))?;
                if spec.page_sizes.is_empty() {
                    return Err(Error::key(
                        format!("{key}.page_sizes"),
                        "is empty; name at least one size",
                    ));
                }
                for &size in &spec.page_sizes {
                    if std::mem::replace(&mut seen[size.index()], true) {
                        return Err(Error::keyed(
                            format!("{key}.page_sizes"),
                            text![
                                format!("{size} is held by another array of "),
                                Part::key(format!("mmu.{level}")),
                                " too"
                            ],
                        ));
                    }
                }
            }
            if !seen[PageSize::K4.index()] && (needed || !arrays.is_empty()) {
                return Err(Error::keyed(
                    format!("mmu.{level}"),
                    "no array holds 4KB pages",
                ));
            }
        }
        let w = &self.walk_caches;
        if w.entries > MAX_WALK_CACHE {
            return Err(Error::key(
                "mmu.walk_caches.entries",
                format!("is {}; expected at most {MAX_WALK_CACHE}", w.entries),
            ));
        }
        if w.latency > MAX_LATENCY {
            return Err(Error::key(
                "mmu.walk_caches.latency",
                format!("is {}; expected at most {MAX_LATENCY} cycles", w.latency),
            ));
        }
        if w.entries > 0 && (w.ways == 0 || w.ways > MAX_WAYS || !w.entries.is_multiple_of(w.ways))
        {
            return Err(Error::key(
                "mmu.walk_caches.ways",
                text![
                    format!("is {}; expected a divisor of ", w.ways),
                    Part::key("mmu.walk_caches.entries"),
                    format!(" ({}), at most {MAX_WAYS}", w.entries),
                ],
            ));
        }
        self.cuckoo.check()?;
        let n = self.nested_tlb;
        if n.entries > MAX_WAYS {
            return Err(Error::key(
                "mmu.nested_tlb.entries",
                format!("is {}; expected at most {MAX_WAYS}", n.entries),
            ));
        }
        if n.latency > MAX_LATENCY {
            return Err(Error::key(
                "mmu.nested_tlb.latency",
                format!("is {}; expected at most {MAX_LATENCY} cycles", n.latency),
            ));
        }
        if self.walkers == 0 || self.walkers > 256 {
            return Err(Error::key(
                "mmu.walkers",
                format!("is {}; expected 1 to 256", self.walkers),
            ));
        }
        let Some(prefetcher) = &self.prefetcher else {
            return Ok(());
        };
        if prefetcher.buffer() == 0 && self.l2.is_empty() {
            return Err(Error::key(
                format!("mmu.prefetcher.{}.buffer", prefetcher.name()),
                text![
                    "is 0 and there is no ",
                    Part::key("mmu.l2"),
                    " to fetch into; expected a buffer of at least 1"
                ],
            ));
        }
        prefetcher.check()
    }
}
