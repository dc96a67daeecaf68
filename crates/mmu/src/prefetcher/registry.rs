//! The registry of TLB prefetchers.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Prefetcher;

/// A set-associative table of a prefetcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetcherTable {
    /// Name in the statistics, below `mmu`; it has `lookups` and `fills`.
    pub name: &'static str,
    /// Entries.
    pub entries: u32,
    /// Ways.
    pub ways: u32,
}

/// The configuration of one kind of prefetcher.
pub(crate) trait PrefetcherKind {
    /// Checks the values. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// Builds an untrained prefetcher.
    fn build(&self) -> Box<dyn Prefetcher>;
    /// Entries of the prefetch buffer; 0: translations are prefetched into the last TLB.
    fn buffer(&self) -> u32;
    /// Its table, for the energy model.
    fn table(&self) -> Option<PrefetcherTable> {
        None
    }
}

/// Each line: name in configurations, variant, and parameters. A condition in brackets before it
/// limits when it is compiled.
macro_rules! prefetchers {
    ($($(#[$doc:meta])* $([$when:meta])? $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// TLB prefetcher.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum TlbPrefetcherSpec {
            $($(#[$doc])* $(#[cfg($when)])? #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $($(#[cfg($when)])? pub use super::$file::$spec;)*

        impl TlbPrefetcherSpec {
            /// Checks the values. An error names the key and the expected values.
            pub(crate) fn check(&self) -> Result<(), Error> {
                let done = match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => PrefetcherKind::check(spec),)*
                };
                done.map_err(|what| what.under(self.name()).under("mmu.prefetcher"))
            }

            /// Its name in configurations: `mmu.prefetcher.NAME`.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(_) => $name,)*
                }
            }

            /// Builds an untrained prefetcher.
            pub(crate) fn build(&self) -> Box<dyn Prefetcher> {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => spec.build(),)*
                }
            }

            /// Entries of the prefetch buffer; 0: translations are prefetched into the last TLB.
            pub fn buffer(&self) -> u32 {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => PrefetcherKind::buffer(spec),)*
                }
            }

            /// Its table, if it has one.
            pub fn table(&self) -> Option<PrefetcherTable> {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => spec.table(),)*
                }
            }

            /// The names of all kinds.
            #[cfg(test)]
            pub(crate) fn names() -> &'static [&'static str] {
                &[$($name,)*]
            }
        }
    };
}

prefetchers! {
    /// By the stride of an instruction's misses (ASP: Kandiraju and Sivasubramaniam, ISCA 2002).
    "asp" => Asp(asp::AspSpec),
    /// Distance prefetching: by the distances between misses (Kandiraju and Sivasubramaniam, ISCA
    /// 2002).
    "distance" => Distance(distance::DistanceSpec),
    /// The pages after the one that missed (tagged sequential prefetching: Smith, Computing Surveys
    /// 1982; of translations: Kandiraju and Sivasubramaniam, ISCA 2002).
    "next_page" => NextPage(next_page::NextPageSpec),
    /// The example of docs/how-to/tlb-policy.md.
    [test] "stride" => Stride(stride::StrideSpec),
}
