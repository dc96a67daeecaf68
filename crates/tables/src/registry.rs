//! The registry of page tables.

use pagewalk_units::{Addr, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::TableMetric;
use crate::{Owner, PageTable, WalkCacheKind};

/// The configuration of one kind of page table.
pub(crate) trait TableSpec {
    /// Metrics that it adds to the summary of a result. A metric that several kinds share is
    /// listed by only one of them.
    const METRICS: &'static [TableMetric] = &[];
    /// Validates the parameters for [`TableSpec::build`]. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// Builds an empty table of `owner`. The parameters are already checked.
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>>;
    /// The kind of walk caches that its walks use.
    fn walk_caches(&self) -> WalkCacheKind;
    /// Bits of a virtual address that the table translates.
    fn address_bits(&self) -> u32;
    /// Ways of the L2P table and entries of each. `None` if walks use no L2P table.
    fn l2p(&self) -> Option<(u32, u32)> {
        None
    }
}

/// One line for each kind: the name in configurations, the variant, and its parameters.
macro_rules! page_tables {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// The kind of page table: externally tagged, `[page_table.radix]`.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum PageTableSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(crate::$file::$spec),)*
        }

        $(pub use crate::$file::$spec;)*

        /// The names of all kinds in configurations.
        pub const PAGE_TABLES: &[&str] = &[$($name,)*];

        /// The summary metrics of all kinds of page tables, in order.
        pub fn table_metrics() -> impl Iterator<Item = &'static TableMetric> {
            [$(<crate::$file::$spec as TableSpec>::METRICS,)*]
                .into_iter()
                .flatten()
        }

        impl PageTableSpec {
            /// Builds an empty table of this kind for `owner`. An error names the wrong key
            /// and the expected values.
            pub fn build<In: Addr, Out: Addr>(
                &self,
                owner: Owner,
            ) -> Result<Box<dyn PageTable<In, Out>>, Error> {
                self.check()?;
                Ok(match self {
                    $(PageTableSpec::$variant(spec) => spec.build(owner),)*
                })
            }

            /// Validates the parameters for [`PageTableSpec::build`].
            pub fn check(&self) -> Result<(), Error> {
                let done = match self {
                    $(PageTableSpec::$variant(spec) => TableSpec::check(spec),)*
                };
                done.map_err(|what| what.under(self.name()).under("page_table"))
            }

            /// The name in configurations: `page_table.NAME`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(PageTableSpec::$variant(_) => $name,)*
                }
            }

            /// The kind of walk caches that its walks use.
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

            /// Ways of the L2P table and entries of each. `None` if walks use no L2P table.
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
    /// Redundant memory mappings: the radix tree and a table of ranges with the same translations.
    "ranges" => Ranges(ranges::RangesSpec),
    /// Elastic cuckoo page tables (ECPT).
    "elastic_cuckoo" => ElasticCuckoo(cuckoo::ElasticCuckooSpec),
    /// Memory-efficient hashed page tables (ME-HPT).
    "memory_efficient" => MemoryEfficient(cuckoo::MemoryEfficientSpec),
    /// Hash, don't cache: an open-addressed hashed table with linear probing.
    "hash_dont_cache" => HashDontCache(hash_dont_cache::HashDontCacheSpec),
    /// Level hashing: a hashed table of two levels.
    "level_hashing" => LevelHashing(level_hashing::LevelHashingSpec),
}
