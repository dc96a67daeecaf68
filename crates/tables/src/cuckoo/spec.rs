//! Parameters of elastic cuckoo and of memory-efficient page tables: the same keys with different defaults.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ADDRESS_BITS, check_address_bits};

/// Policy that selects the way of a new line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// A random way, whether its slot is free or not.
    #[default]
    Blind,
    /// A random one of the ways whose slot is free, if there is one.
    PreferEmpty,
}

/// Hash function that selects the slots of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashFunction {
    /// CRC-64 of ECMA-182; each way uses its own bits (ME-HPT, table III: CRC units). Regular keys spread more evenly
    /// than random keys, or less.
    #[default]
    Crc,
    /// The finalizer of MurmurHash3: spreads all keys like random ones.
    Murmur,
}

/// Handling of an upsize that becomes due while another is in progress.
///
/// Under either rule, a downsize in progress is reversed when an upsize is due: its rehash pointers move back, which
/// needs no memory.
///
/// A downsize that is due never waits: the resize in progress is completed at once. Waiting would need removals, but
/// few lines are left. A downsize of `s` slots takes `s` / `migrated_per_insertion` removals and starts with at most
/// `downsize_at` * `s` lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDue {
    /// The upsize in progress is completed at once, and the next one begins.
    Finish,
    /// The next upsize begins after the one in progress has completed, as in released code of one of ECPT's authors.
    #[default]
    Wait,
}

/// Condition on which a walk has its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// The matching probe has returned.
    #[default]
    Matching,
    /// All probes have returned.
    All,
}

/// Defines a configuration with the keys in braces and its own defaults.
macro_rules! configuration {
    (
        { $($(#[$doc:meta])* $key:ident: $type:ty,)* }
        $(#[$about:meta])* $name:ident { $($own:ident: $default:expr,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$doc])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                $name { $($own: $default,)* }
            }
        }

        impl From<&$name> for ElasticSpec {
            fn from(s: &$name) -> Self {
                ElasticSpec { $($key: s.$key.clone(),)* }
            }
        }
    };
}

/// Defines the engine's parameter struct, and the configurations that convert into it.
macro_rules! specs {
    (
        @engine $(#[$all:meta])* $engine:ident { $($(#[$doc:meta])* $key:ident: $type:ty,)* }
    ) => {
        $(#[$all])*
        #[derive(Clone, PartialEq, Debug)]
        pub(crate) struct $engine { $($(#[$doc])* pub $key: $type,)* }
    };
    (
        $(#[$all:meta])* $engine:ident $keys:tt
        $($(#[$about:meta])* $name:ident $defaults:tt)*
    ) => {
        $(configuration! { $keys $(#[$about])* $name $defaults })*
        specs! { @engine $(#[$all])* $engine $keys }
    };
}

specs! {
    /// Engine parameters of both kinds of tables.
    ElasticSpec {
        /// Ways of each table, 2 to 4; each has its own hash function.
        ways: u8,
        /// Initial slots of a way (64-byte lines of eight entries), a power of two of at least 64.
        initial_slots: u64,
        /// Load factor above which a table (or, with `per_way`, a way) is upsized.
        upsize_at: f64,
        /// Load factor below which a table (or, with `per_way`, a way) is downsized.
        downsize_at: f64,
        /// Factor by which an upsize multiplies the slots: 2 or 4 (in place: 2). A downsize halves them.
        growth: u8,
        /// Re-insertion limit of an insertion, 1 to 4096. If it is exceeded, the table is resized.
        max_kicks: u32,
        /// Average number of old-table slots that each insertion migrates while a resize is in progress: 0.125 to
        /// 65536.
        migrated_per_insertion: f64,
        /// Handling of an upsize that becomes due while another is in progress. A downsize that is due completes it.
        when_due: WhenDue,
        /// Count an entry that is added to an existing line as an insertion for `migrated_per_insertion`.
        merge_counts: bool,
        /// Hash function that selects the slots of a key.
        hash: HashFunction,
        /// Policy that selects the way of a new line.
        choice: Choice,
        /// Condition on which a walk has its result: the matching probe, or all probes.
        wait_for: WaitFor,
        /// Chunk sizes of the ways in bytes, ascending powers of two of at least 4096; none: each way is contiguous.
        chunks: Vec<u64>,
        /// Change to the next chunk size when a way outgrows the current one. If false, only the first size is used.
        change_chunks: bool,
        /// L2P entries for each way and page size, 1 to 256.
        l2p_entries: u32,
        /// Resize in place: old and new table share their memory.
        in_place: bool,
        /// Resize ways one at a time, and weight the choice of a line's way by free slots.
        per_way: bool,
        /// Bits of a virtual address that the table translates: 48, or 57 as five-level paging.
        address_bits: u32,
    }

    /// Elastic cuckoo page tables (ECPT), with the parameters of ME-HPT's evaluation (table III, section VI).
    ElasticCuckooSpec {
        ways: 3,
        initial_slots: 128,
        upsize_at: 0.6,
        downsize_at: 0.2,
        growth: 2,
        max_kicks: 32,
        migrated_per_insertion: MIGRATED_PER_INSERTION,
        when_due: WhenDue::Wait,
        merge_counts: false,
        hash: HashFunction::Crc,
        choice: Choice::Blind,
        wait_for: WaitFor::Matching,
        chunks: Vec::new(),
        change_chunks: false,
        l2p_entries: 32,
        in_place: false,
        per_way: false,
        address_bits: ADDRESS_BITS,
    }

    /// Memory-efficient hashed page tables (ME-HPT): elastic cuckoo page tables with the four techniques of its section
    /// IV.
    MemoryEfficientSpec {
        ways: 3,
        initial_slots: 128,
        upsize_at: 0.6,
        downsize_at: 0.2,
        growth: 2,
        max_kicks: 32,
        migrated_per_insertion: MIGRATED_PER_INSERTION,
        when_due: WhenDue::Wait,
        merge_counts: false,
        hash: HashFunction::Crc,
        choice: Choice::Blind,
        wait_for: WaitFor::Matching,
        chunks: vec![8 << 10, 1 << 20, 8 << 20, 64 << 20],
        change_chunks: true,
        l2p_entries: 32,
        in_place: true,
        per_way: true,
        address_bits: ADDRESS_BITS,
    }
}

/// Slots that an insertion migrates under `wait`. Our value, fitted to the way sizes printed in ME-HPT's table I.
///
/// With it a table starts its upsizes at a load of 1 / 1.45 = 0.69. This reproduces 20 of the 22 cells without huge
/// pages. It also matches more of the other cells than two slots with `finish`, the choice after section IV-C. There,
/// old and new table coexist for 87.3 % of the time. Two slots give 84 % of ECPT's insertions on average, over programs
/// that stop growing at up to 15,000 lines (a test measures it).
///
/// With 1.45 no resize completes before the next upsize is due, so two tables always coexist from the first upsize on.
/// An entry that is added to an existing line does not count (`merge_counts`): otherwise resizes of dense ranges would
/// run over eight times as fast.
const MIGRATED_PER_INSERTION: f64 = 1.45;

impl ElasticSpec {
    /// Validates the parameters. An error has the key and the expected values.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |key: &str, is: &dyn std::fmt::Display, expected: &str| {
            Err(Error::key(key, format!("is {is}; expected {expected}")))
        };
        if !(2..=MAX_WAYS as u8).contains(&self.ways) {
            return wrong("ways", &self.ways, "2 to 8");
        }
        let slots = self.initial_slots;
        if !slots.is_power_of_two() || !(64..=1 << 26).contains(&slots) {
            return wrong(
                "initial_slots",
                &slots,
                "a power of two from 64 to 67108864",
            );
        }
        if !(0.1..=0.95).contains(&self.upsize_at) {
            return wrong("upsize_at", &self.upsize_at, "0.1 to 0.95");
        }
        if self.growth != 2 && (self.growth != 4 || self.in_place) {
            return wrong("growth", &self.growth, "2, or 4 if in_place is false");
        }
        if !(self.downsize_at >= 0.0 && self.downsize_at * f64::from(self.growth) < self.upsize_at)
        {
            let expected = "at least 0 and, times growth, less than upsize_at";
            return wrong("downsize_at", &self.downsize_at, expected);
        }
        if !(1..=4096).contains(&self.max_kicks) {
            return wrong("max_kicks", &self.max_kicks, "1 to 4096");
        }
        if !(0.125..=65536.0).contains(&self.migrated_per_insertion) {
            let is = &self.migrated_per_insertion;
            return wrong("migrated_per_insertion", is, "0.125 to 65536");
        }
        for (i, &chunk) in self.chunks.iter().enumerate() {
            let ascending = i == 0 || self.chunks[i - 1] < chunk;
            if !chunk.is_power_of_two() || !(4096..=1 << 30).contains(&chunk) || !ascending {
                let expected = "ascending powers of two from 4096 to 1073741824";
                return wrong("chunks", &format_args!("{:?}", self.chunks), expected);
            }
        }
        if !(1..=256).contains(&self.l2p_entries) {
            return wrong("l2p_entries", &self.l2p_entries, "1 to 256");
        }
        check_address_bits(self.address_bits)
    }
}

/// Maximum ways of a table.
pub(crate) const MAX_WAYS: usize = 8;
