//! The registry of page tables, and of those that other crates add ([`register`]).

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use pagewalk_units::external::{Kind, Parameters, Registry};
use pagewalk_units::{Addr, Error, GuestPhysAddr, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::contract::FrameSource;
use crate::kernel_tables::{BootingKernel, KernelTables, NoBlock, NoMemory, Separate};
use crate::metric::TableMetric;
use crate::{Owner, PageTable, WalkCacheKind};

/// The configuration of one kind of page table. A kind also implements [`BuildTable`], or
/// [`BootTables`] if its address spaces share memory.
pub trait TableSpec: Clone + Send + Sync + 'static {
    /// Metrics that it adds to the summary of a result. A metric that several kinds share is
    /// listed by only one of them.
    const METRICS: &'static [TableMetric] = &[];
    /// Validates the parameters. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// The kind of walk caches that its walks use.
    fn walk_caches(&self) -> WalkCacheKind;
    /// Bits of a virtual address that the table translates.
    fn address_bits(&self) -> u32;
    /// Ways of the L2P table and entries of each. `None` if walks use no L2P table.
    fn l2p(&self) -> Option<(u32, u32)> {
        None
    }
}

/// A kind that has a table for each address space.
pub trait BuildTable: TableSpec {
    /// Builds an empty table of `owner`. The parameters are already checked.
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>>;
}

/// A kind that makes the page tables of a kernel.
pub trait BootTables: TableSpec {
    /// Makes the page tables of a kernel that boots. `frames` gives memory that all address spaces
    /// share and that is never given back, at no cost. The parameters are already checked.
    fn boot<In: Addr, Out: Addr>(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<Out>,
    ) -> Boot<In, Out>;
}

impl<S: BuildTable> BootTables for S {
    fn boot<In: Addr, Out: Addr>(
        &self,
        kernel: BootingKernel,
        _: &mut dyn FrameSource<Out>,
    ) -> Boot<In, Out> {
        let spec = self.clone();
        Ok(Box::new(Separate { spec, kernel }))
    }
}

/// The result of [`BootTables::boot`].
pub type Boot<In, Out> = Result<Box<dyn KernelTables<In, Out>>, NoBlock>;

/// A [`BootTables`] as a trait object, with a method for each pair of address types.
pub trait AnyTableSpec {
    /// See [`TableSpec::check`].
    fn check(&self) -> Result<(), Error>;
    /// Boots the kernel of a machine without virtualization.
    fn boot_native(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Boot<VirtAddr, PhysAddr>;
    /// Boots a guest's kernel.
    fn boot_guest(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<GuestPhysAddr>,
    ) -> Boot<VirtAddr, GuestPhysAddr>;
    /// Boots a host's kernel.
    fn boot_host(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Boot<GuestPhysAddr, PhysAddr>;
    /// See [`TableSpec::walk_caches`].
    fn walk_caches(&self) -> WalkCacheKind;
    /// See [`TableSpec::address_bits`].
    fn address_bits(&self) -> u32;
    /// See [`TableSpec::l2p`].
    fn l2p(&self) -> Option<(u32, u32)>;
}

impl<S: BootTables> AnyTableSpec for S {
    fn check(&self) -> Result<(), Error> {
        TableSpec::check(self)
    }
    fn boot_native(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Boot<VirtAddr, PhysAddr> {
        self.boot(kernel, frames)
    }
    fn boot_guest(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<GuestPhysAddr>,
    ) -> Boot<VirtAddr, GuestPhysAddr> {
        self.boot(kernel, frames)
    }
    fn boot_host(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<PhysAddr>,
    ) -> Boot<GuestPhysAddr, PhysAddr> {
        self.boot(kernel, frames)
    }
    fn walk_caches(&self) -> WalkCacheKind {
        TableSpec::walk_caches(self)
    }
    fn address_bits(&self) -> u32 {
        TableSpec::address_bits(self)
    }
    fn l2p(&self) -> Option<(u32, u32)> {
        TableSpec::l2p(self)
    }
}

/// An address that page tables translate to an `Out`.
pub trait TranslatesTo<Out: Addr>: Addr {
    /// Makes the tables of a kernel: the method of [`AnyTableSpec`] for this pair of addresses.
    fn boot(
        spec: &dyn AnyTableSpec,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<Out>,
    ) -> Boot<Self, Out>;
}

macro_rules! pairs {
    ($($from:ident to $to:ident by $boot:ident,)*) => {$(
        impl TranslatesTo<$to> for $from {
            fn boot(
                spec: &dyn AnyTableSpec,
                kernel: BootingKernel,
                frames: &mut dyn FrameSource<$to>,
            ) -> Boot<Self, $to> {
                spec.$boot(kernel, frames)
            }
        }
    )*};
}

pairs! {
    VirtAddr to PhysAddr by boot_native,
    VirtAddr to GuestPhysAddr by boot_guest,
    GuestPhysAddr to PhysAddr by boot_host,
}

/// The external kinds.
static EXTERNAL: Registry<dyn AnyTableSpec> = Registry::new("page_table");
/// Summary metrics of the external kinds, by name of the kind.
static EXTERNAL_METRICS: RwLock<BTreeMap<String, &[TableMetric]>> = RwLock::new(BTreeMap::new());

/// Adds a kind of page table, which designs configure as `[page_table.external.NAME]`. Its
/// parameters are the fields of `K`. A later kind of the same name replaces an earlier one.
pub fn register<K: BootTables + DeserializeOwned>(name: &str) {
    EXTERNAL.register::<K>(name, |kind| Box::new(kind));
    let mut metrics = EXTERNAL_METRICS
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    metrics.insert(name.to_owned(), K::METRICS);
}

/// The name of a kind that another crate has registered, with its parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ExternalTable(BTreeMap<String, Parameters>);

impl ExternalTable {
    /// The kind `name` with `parameters`.
    pub fn new(name: &str, parameters: Parameters) -> Self {
        ExternalTable(BTreeMap::from([(name.to_owned(), parameters)]))
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
            /// A kind that another crate has registered, by name, with its parameters.
            #[serde(rename = "external")]
            External(ExternalTable),
        }

        $(pub use crate::$file::$spec;)*

        /// The names of all kinds of this crate in configurations.
        pub const PAGE_TABLES: &[&str] = &[$($name,)*];

        /// The summary metrics of all kinds of page tables, in order.
        pub fn table_metrics() -> impl Iterator<Item = &'static TableMetric> {
            let external = EXTERNAL_METRICS
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let external: Vec<_> = external.values().copied().collect();
            [$(<crate::$file::$spec as TableSpec>::METRICS,)*]
                .into_iter()
                .chain(external)
                .flatten()
        }

        impl PageTableSpec {
            fn kind(&self) -> Result<Kind<'_, dyn AnyTableSpec>, Error> {
                Ok(match self {
                    $(PageTableSpec::$variant(spec) => Kind::Own(spec),)*
                    PageTableSpec::External(spec) => Kind::External(EXTERNAL.read_one(&spec.0)?),
                })
            }

            /// The name in configurations: `page_table.NAME`.
            pub fn name(&self) -> String {
                match self {
                    $(PageTableSpec::$variant(_) => $name.to_owned(),)*
                    PageTableSpec::External(ExternalTable(kinds)) => {
                        let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
                        format!("external.{}", names.join("."))
                    }
                }
            }
        }
    };
}

impl PageTableSpec {
    /// Validates the parameters for [`PageTableSpec::boot`].
    pub fn check(&self) -> Result<(), Error> {
        let done = self.kind()?.check();
        done.map_err(|what| what.under(&self.name()).under("page_table"))
    }

    /// Makes the page tables of a kernel that boots: [`BootTables::boot`]. An error names the wrong
    /// key and the expected values. The inner error is that of a
    /// correct configuration for which `frames` has no memory.
    pub fn boot<In: TranslatesTo<Out>, Out: Addr>(
        &self,
        kernel: BootingKernel,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<Boot<In, Out>, Error> {
        self.check()?;
        Ok(In::boot(&*self.kind()?, kernel, frames))
    }

    /// Builds an empty table of `owner`, of a kind that has one for each address space. An error
    /// names the wrong key and the expected values.
    pub fn build<In: TranslatesTo<Out>, Out: Addr>(
        &self,
        owner: Owner,
    ) -> Result<Box<dyn PageTable<In, Out>>, Error> {
        let kernel = BootingKernel {
            name: owner.kernel,
            seed: owner.seed,
            memory: 0,
        };
        let tables = self.boot(kernel, &mut NoMemory)?.map_err(|_| {
            let key = format!("page_table.{}", self.name());
            Error::key(
                key,
                "is one table for all address spaces; expected PageTableSpec::boot",
            )
        })?;
        Ok(tables.of_space(owner.asid))
    }

    /// The kind of walk caches that its walks use.
    pub fn walk_caches(&self) -> WalkCacheKind {
        let kind = self.kind();
        kind.map_or(WalkCacheKind::Nothing, |kind| kind.walk_caches())
    }

    /// Bits of a virtual address that the table translates.
    pub fn address_bits(&self) -> u32 {
        self.kind().map_or(48, |kind| kind.address_bits())
    }

    /// Ways of the L2P table and entries of each. `None` if walks use no L2P table.
    pub fn l2p(&self) -> Option<(u32, u32)> {
        self.kind().ok()?.l2p()
    }
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
    /// Global hashed page table (Huck and Hays, ISCA 1993): one table for all address spaces, whose
    /// size physical memory determines, with chains of colliding entries.
    "global_hashed" => GlobalHashed(global_hashed::GlobalHashedSpec),
}
