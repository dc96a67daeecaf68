//! Which page tables there are.

use pagewalk_units::{Addr, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::TableMetric;
use crate::{Owner, PageTable, WalkCacheKind};

/// The configuration of one kind of page table.
pub(crate) trait TableSpec {
    /// What it adds to the summary of a result; a number that several kinds have is
    /// named by one of them.
    const METRICS: &'static [TableMetric] = &[];
    /// Whether [`TableSpec::build`] would succeed; an error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// An empty table of `owner`; the values were checked.
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>>;
    /// Which walk caches its walks look into.
    fn walk_caches(&self) -> WalkCacheKind;
    /// Bits of a virtual address that the table translates.
    fn address_bits(&self) -> u32;
    /// The table's L2P table, if its walks look into one: ways, and entries of each.
    fn l2p(&self) -> Option<(u32, u32)> {
        None
    }
}

/// Each line: the name in configurations, the variant, and its parameters.
macro_rules! page_tables {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// Which page table: externally tagged, `[page_table.radix]`.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum PageTableSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(crate::$file::$spec),)*
        }

        $(pub use crate::$file::$spec;)*

        /// The names of all kinds in configurations.
        pub const PAGE_TABLES: &[&str] = &[$($name,)*];

        /// What page tables of any kind add to the summary of a result, in order.
        pub fn table_metrics() -> impl Iterator<Item = &'static TableMetric> {
            [$(<crate::$file::$spec as TableSpec>::METRICS,)*]
                .into_iter()
                .flatten()
        }

        impl PageTableSpec {
            /// An empty table of this kind for `owner`; an error says which key is
            /// wrong and what was expected.
            pub fn build<In: Addr, Out: Addr>(
                &self,
                owner: Owner,
            ) -> Result<Box<dyn PageTable<In, Out>>, Error> {
                self.check()?;
                Ok(match self {
                    $(PageTableSpec::$variant(spec) => spec.build(owner),)*
                })
            }

            /// Whether [`PageTableSpec::build`] would succeed.
            pub fn check(&self) -> Result<(), Error> {
                let done = match self {
                    $(PageTableSpec::$variant(spec) => TableSpec::check(spec),)*
                };
                done.map_err(|what| what.under(self.name()).under("page_table"))
            }

            /// Its name in configurations: `page_table.NAME`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(PageTableSpec::$variant(_) => $name,)*
                }
            }

            /// Which walk caches its walks look into.
            pub fn walk_caches(&self) -> WalkCacheKind {
                match self {
                    $(PageTableSpec::$variant(spec) => spec.walk_caches(),)*
                }
            }

            /// Bits of a virtual address that the table translates.
            pub fn address_bits(&self) -> u32 {
                match self {
                    $(PageTableSpec::$variant(spec) => spec.address_bits(),)*
                }
            }

            /// The table's L2P table, if its walks look into one: ways, and entries of each.
            pub fn l2p(&self) -> Option<(u32, u32)> {
                match self {
                    $(PageTableSpec::$variant(spec) => spec.l2p(),)*
                }
            }
        }
    };
}

page_tables! {
    /// The x86-64 radix tree.
    "radix" => Radix(radix::RadixSpec),
    /// Elastic cuckoo page tables (ECPT).
    "elastic_cuckoo" => ElasticCuckoo(cuckoo::ElasticCuckooSpec),
    /// Memory-efficient hashed page tables (ME-HPT).
    "memory_efficient" => MemoryEfficient(cuckoo::MemoryEfficientSpec),
    /// Hash, don't cache: an open-addressed hashed table with linear probing.
    "hash_dont_cache" => HashDontCache(hash_dont_cache::HashDontCacheSpec),
    /// Level hashing: a hashed table of two levels.
    "level_hashing" => LevelHashing(level_hashing::LevelHashingSpec),
}
