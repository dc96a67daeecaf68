//! Which page tables there are.

use pagewalk_units::{Addr, Asid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::ADDRESS_BITS;
use crate::cuckoo::{self, Cuckoo};
use crate::hash_dont_cache::HashDontCache;
use crate::level_hashing::LevelHashing;
use crate::metric::TableMetric;
use crate::{
    ElasticCuckooSpec, HashDontCacheSpec, LevelHashingSpec, MemoryEfficientSpec, PageTable, Radix,
    WalkCacheKind,
};

/// Which page table: externally tagged, `[page_table.radix]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PageTableSpec {
    /// The x86-64 radix tree.
    Radix {
        /// 4 (48-bit addresses) or 5 (57-bit addresses).
        levels: u8,
    },
    /// Elastic cuckoo page tables (ECPT).
    ElasticCuckoo(ElasticCuckooSpec),
    /// Memory-efficient hashed page tables (ME-HPT).
    MemoryEfficient(MemoryEfficientSpec),
    /// Hash, don't cache: an open-addressed hashed table with linear probing.
    HashDontCache(HashDontCacheSpec),
    /// Level hashing: a hashed table of two levels.
    LevelHashing(LevelHashingSpec),
}

impl PageTableSpec {
    /// An empty table of this kind for the address space `asid`; an error says
    /// which key is wrong and what was expected.
    pub fn build<In: Addr, Out: Addr>(
        &self,
        asid: Asid,
    ) -> Result<Box<dyn PageTable<In, Out>>, String> {
        self.check()?;
        Ok(match self {
            PageTableSpec::Radix { levels } => Box::new(Radix::new(*levels, asid)),
            PageTableSpec::ElasticCuckoo(spec) => Box::new(Cuckoo::elastic(spec, asid)),
            PageTableSpec::MemoryEfficient(spec) => Box::new(Cuckoo::memory_efficient(spec, asid)),
            PageTableSpec::HashDontCache(spec) => Box::new(HashDontCache::new(spec, asid)),
            PageTableSpec::LevelHashing(spec) => Box::new(LevelHashing::new(spec, asid)),
        })
    }

    /// Whether [`PageTableSpec::build`] would succeed.
    pub fn check(&self) -> Result<(), String> {
        let below = |name: &str, done: Result<(), String>| {
            done.map_err(|what| format!("page_table.{name}.{what}"))
        };
        match self {
            PageTableSpec::Radix { levels: 4 | 5 } => Ok(()),
            PageTableSpec::Radix { levels } => Err(format!(
                "page_table.radix.levels is {levels}; expected 4 or 5"
            )),
            PageTableSpec::ElasticCuckoo(spec) => {
                below("elastic_cuckoo", cuckoo::check(&spec.into()))
            }
            PageTableSpec::MemoryEfficient(spec) => {
                below("memory_efficient", cuckoo::check(&spec.into()))
            }
            PageTableSpec::HashDontCache(spec) => spec.check(),
            PageTableSpec::LevelHashing(spec) => spec.check(),
        }
    }

    /// Which walk caches its walks look into.
    pub fn walk_caches(&self) -> WalkCacheKind {
        match self {
            PageTableSpec::Radix { .. } => WalkCacheKind::Levels,
            PageTableSpec::ElasticCuckoo(_) | PageTableSpec::MemoryEfficient(_) => {
                WalkCacheKind::Cuckoo
            }
            PageTableSpec::HashDontCache(_) | PageTableSpec::LevelHashing(_) => {
                WalkCacheKind::Nothing
            }
        }
    }

    /// Bits of a virtual address that the table translates.
    pub fn address_bits(&self) -> u32 {
        match self {
            PageTableSpec::Radix { levels } => 12 + 9 * u32::from(*levels),
            _ => ADDRESS_BITS,
        }
    }
}

/// What page tables of any kind add to the summary of a result, in order.
pub fn table_metrics() -> impl Iterator<Item = &'static TableMetric> {
    cuckoo::METRICS.iter()
}
