//! The registry of translation sources, and of those that other crates add ([`register`]).

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use pagewalk_units::external::{Kind, Parameters, Registry};
use pagewalk_units::{Error, Part, PhysAddr, text};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Place, SharedPart, TranslationSource};
use crate::{MmuSpec, TlbSpec};

/// Blocks of memory that one source may have set aside.
const MOST_BLOCKS: usize = 4;

/// First bytes of the blocks that [`SourceKind::memory`] names.
pub type Reserved = ArrayVec<PhysAddr, MOST_BLOCKS>;

/// The machine for which a source is built.
pub struct Context<'a> {
    /// Number of cores.
    pub cores: u8,
    /// TLBs of each core, as configured.
    pub mmu: &'a MmuSpec,
}

impl Context<'_> {
    /// The second-level array that holds 4 KB pages, if there is one.
    pub fn small_l2(&self) -> Option<&TlbSpec> {
        self.mmu.small_l2().map(|(_, spec)| spec)
    }
}

/// A source, built: one for each core, and the part that the cores share.
#[derive(Default)]
pub struct Built {
    /// One for each core.
    pub cores: Vec<Box<dyn TranslationSource>>,
    /// Shared by them, if anything is.
    pub shared: Option<Box<dyn SharedPart>>,
}

impl Built {
    /// A source of which the cores share nothing.
    pub fn separate<S: TranslationSource + 'static>(
        context: &Context<'_>,
        one: impl Fn() -> S,
    ) -> Self {
        Built {
            cores: (0..context.cores).map(|_| Box::new(one()) as _).collect(),
            shared: None,
        }
    }
}

/// An array of a source, for the energy model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceArray {
    /// Name in the statistics, below `mmu`; it has `lookups` and `fills`.
    pub name: &'static str,
    /// Entries.
    pub entries: u32,
    /// Ways.
    pub ways: u32,
    /// True if all cores share it.
    pub shared: bool,
}

/// The configuration of one kind of source.
pub trait SourceKind {
    /// Checks the values. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// The place at which the MMU asks it.
    fn place(&self) -> Place;
    /// Bytes of contiguous physical memory that the kernel sets aside at boot, each block under the
    /// key that determines its size.
    fn memory(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// True if fast-forwarding must report each access, not only first touches of pages.
    fn needs_each_access(&self) -> bool {
        false
    }
    /// True if it is filled from ranges of the page table ([`super::Found::range`]).
    fn needs_ranges(&self) -> bool {
        false
    }
    /// Its array, if it has one.
    fn array(&self, _context: &Context<'_>) -> Option<SourceArray> {
        None
    }
    /// Name in the statistics of a source whose entries are blocks of the L2, for the energy model:
    /// it has `lookups`, `hits` and `fills`.
    fn blocks_in_l2(&self) -> Option<&'static str> {
        None
    }
    /// Builds the empty sources of a machine. `at`: the blocks of [`SourceKind::memory`].
    fn build(&self, context: &Context<'_>, at: &Reserved) -> Built;
}

/// The external kinds.
static EXTERNAL: Registry<dyn SourceKind> = Registry::new("translation");

/// Adds a kind of source, which designs configure as `[translation.external.NAME]`. Its parameters
/// are the fields of `K`. A later kind of the same name replaces an earlier one.
pub fn register<K: SourceKind + DeserializeOwned + 'static>(name: &str) {
    EXTERNAL.register::<K>(name, |kind| Box::new(kind));
}

/// All sources of a machine.
#[derive(Default)]
pub struct Sources {
    /// For each core, its sources in the order in which they are asked.
    pub cores: Vec<Vec<(Place, Box<dyn TranslationSource>)>>,
    /// Their shared parts.
    pub shared: Vec<Box<dyn SharedPart>>,
}

/// Keys below `translation`, and configurations of sources.
type Kinds<'a> = Vec<(String, Kind<'a, dyn SourceKind>)>;

/// Each line: name in configurations, and parameters.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident: $spec:path,)*) => {
        /// Structures besides the TLBs that may hold translations, by name. Those of one place are
        /// asked in the order of this list.
        #[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct TranslationSpec {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$spec>,
            )*
            /// Kinds that another crate has registered, by name, each with its parameters. They
            /// are asked after the others, in the order of their names.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub external: BTreeMap<String, Parameters>,
        }

        impl TranslationSpec {
            /// The names of all kinds.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// Key, below `translation`, and configuration of each source that the design has.
            fn kinds(&self) -> Result<Kinds<'_>, Error> {
                let mut kinds = Kinds::new();
                $(if let Some(spec) = &self.$name {
                    kinds.push((stringify!($name).to_owned(), Kind::Own(spec)));
                })*
                for (name, parameters) in &self.external {
                    let kind = Kind::External(EXTERNAL.read(name, parameters)?);
                    kinds.push((format!("external.{name}"), kind));
                }
                Ok(kinds)
            }

            /// As `kinds`, of a checked configuration; of another, nothing.
            fn checked(&self) -> Kinds<'_> {
                self.kinds().unwrap_or_default()
            }
        }
    };
}

sources! {
    /// POM-TLB (Ryoo et al., ISCA 2017): a TLB in memory, shared by all cores, with sets of four
    /// entries, one line each, which cores read through their caches before a walk. A one-bit
    /// predictor guesses the page size.
    pom_tlb: pagewalk_tables::PomTlbSpec,
    /// A third level of TLBs, of each core or one for all cores.
    l3_tlb: super::l3_tlb::L3TlbSpec,
    /// A small fully associative TLB beside the first level, whose entries cover runs of pages in
    /// consecutive frames (CoLT-FA: Pham et al., MICRO 2012).
    colt_fa: super::colt_fa::ColtFaSpec,
    /// A coalescing TLB in place of the second-level array that holds 4 KB pages (CoLT-SA: Pham et
    /// al., MICRO 2012; Arm's contiguous hint).
    coalesced: super::coalesced::CoalescedSpec,
    /// A range TLB in parallel with the second-level TLB, filled from the range table of
    /// `page_table.ranges` (RMM: Karakostas et al., ISCA 2015).
    range_tlb: super::range_tlb::RangeTlbSpec,
    /// Victima (Kanellopoulos et al., MICRO 2023): blocks of the L2 cache that hold the translations
    /// of eight pages, looked up in parallel with the walk.
    victima: super::victima::VictimaSpec,
}

impl TranslationSpec {
    /// True if there is no source.
    pub fn is_empty(&self) -> bool {
        *self == TranslationSpec::default()
    }

    /// Checks the values, on cores with `mmu`. An error names the key and the expected values.
    ///
    /// # Errors
    /// One sentence that names the impossible key.
    pub fn check(&self, mmu: &MmuSpec) -> Result<(), Error> {
        for (name, kind) in self.kinds()? {
            kind.check()
                .map_err(|e| e.under(&name).under("translation"))?;
            if kind.place() == Place::InsteadOfL2 && mmu.small_l2().is_none() {
                return Err(Error::key(
                    format!("translation.{name}"),
                    text![
                        "takes the place of the array of ",
                        Part::key("mmu.l2"),
                        " that holds 4 KB pages, but the machine has none"
                    ],
                ));
            }
        }
        match &mmu.prefetcher {
            Some(prefetcher) if self.replaces_l2() && prefetcher.buffer() == 0 => Err(Error::key(
                format!("mmu.prefetcher.{}.buffer", prefetcher.name()),
                text![
                    "is 0: the prefetcher fetches into ",
                    Part::key("mmu.l2"),
                    ", whose place a source of ",
                    Part::key("translation"),
                    " takes; expected a buffer of at least 1"
                ],
            )),
            _ => Ok(()),
        }
    }

    /// True if a source takes the place of the second-level array that holds 4 KB pages.
    pub fn replaces_l2(&self) -> bool {
        let kinds = self.checked();
        kinds.iter().any(|(_, k)| k.place() == Place::InsteadOfL2)
    }

    /// True if fast-forwarding must report each access, not only first touches of pages.
    pub fn needs_each_access(&self) -> bool {
        let kinds = self.checked();
        kinds.iter().any(|(_, k)| k.needs_each_access())
    }

    /// Key of a source that is filled from ranges of the page table, if there is one.
    pub fn needs_ranges(&self) -> Option<String> {
        let kinds = self.checked();
        let needing = kinds.iter().find(|(_, k)| k.needs_ranges());
        needing.map(|(name, _)| format!("translation.{name}"))
    }

    /// Arrays of the sources on cores with `mmu`, for the energy model.
    pub fn arrays(&self, mmu: &MmuSpec) -> Vec<SourceArray> {
        let context = Context { cores: 1, mmu };
        let kinds = self.checked();
        (kinds.iter())
            .filter_map(|(_, kind)| kind.array(&context))
            .collect()
    }

    /// Names of the sources whose entries are blocks of the L2, for the energy model.
    pub fn blocks_in_l2(&self) -> Vec<&'static str> {
        let kinds = self.checked();
        kinds.iter().filter_map(|(_, k)| k.blocks_in_l2()).collect()
    }

    /// Builds the sources of `cores` cores with `mmu`. `set_aside` is called with a key and a number of bytes,
    /// and returns the first byte of such a block of memory.
    ///
    /// # Errors
    /// The first error of `set_aside`.
    pub fn build(
        &self,
        cores: u8,
        mmu: &MmuSpec,
        mut set_aside: impl FnMut(String, u64) -> Result<PhysAddr, Error>,
    ) -> Result<Sources, Error> {
        let context = Context { cores, mmu };
        let mut sources = Sources {
            cores: (0..cores).map(|_| Vec::new()).collect(),
            shared: Vec::new(),
        };
        for (name, kind) in self.checked() {
            let mut at = Reserved::new();
            for (key, bytes) in kind.memory() {
                at.push(set_aside(format!("translation.{name}.{key}"), bytes)?);
            }
            let built = kind.build(&context, &at);
            for (list, source) in sources.cores.iter_mut().zip(built.cores) {
                list.push((kind.place(), source));
            }
            sources.shared.extend(built.shared);
        }
        Ok(sources)
    }
}
