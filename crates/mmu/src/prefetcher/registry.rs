//! Which prefetchers of translations there are.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Prefetcher;

/// A table that a prefetcher looks into: a set-associative array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetcherTable {
    /// Where it is in the statistics, below `mmu`: with `lookups` and `fills`.
    pub name: &'static str,
    /// Entries.
    pub entries: u32,
    /// Ways.
    pub ways: u32,
}

/// The configuration of one kind of prefetcher.
pub(crate) trait PrefetcherKind {
    /// Whether the values make sense; an error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// A prefetcher that has learned nothing yet.
    fn build(&self) -> Box<dyn Prefetcher>;
    /// Entries of the buffer that what it has fetched goes into; 0: into the last TLB.
    fn buffer(&self) -> u32;
    /// The table that it has, for its energy.
    fn table(&self) -> Option<PrefetcherTable> {
        None
    }
}

/// Each line: the name in configurations, the variant, and its parameters. Before it, in
/// brackets, the condition under which it is compiled, if there is one.
macro_rules! prefetchers {
    ($($(#[$doc:meta])* $([$when:meta])? $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// What fetches translations unasked.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum TlbPrefetcherSpec {
            $($(#[$doc])* $(#[cfg($when)])? #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $($(#[cfg($when)])? pub use super::$file::$spec;)*

        impl TlbPrefetcherSpec {
            /// Whether the values make sense; an error names the key and what was expected.
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

            /// A prefetcher that has learned nothing yet.
            pub(crate) fn build(&self) -> Box<dyn Prefetcher> {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => spec.build(),)*
                }
            }

            /// Entries of the buffer that what it has fetched goes into; 0: into the last TLB.
            pub fn buffer(&self) -> u32 {
                match self {
                    $($(#[cfg($when)])? TlbPrefetcherSpec::$variant(spec) => PrefetcherKind::buffer(spec),)*
                }
            }

            /// The table that it has.
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
    /// By the distances between misses (Kandiraju and Sivasubramaniam, ISCA 2002).
    "distance" => Distance(distance::DistanceSpec),
    /// The pages behind the one that was missed (tagged sequential prefetching: Smith,
    /// Computing Surveys 1982; of translations: Kandiraju and Sivasubramaniam, ISCA 2002).
    "next_page" => NextPage(next_page::NextPageSpec),
    /// That of docs/how-to/tlb-policy.md.
    [test] "stride" => Stride(stride::StrideSpec),
}
