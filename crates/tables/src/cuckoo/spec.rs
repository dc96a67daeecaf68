//! The parameters of elastic cuckoo page tables and of memory-efficient ones:
//! the same keys, with other defaults.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Into which way a line goes when several have room, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Any way, at random, whether its slot is free or not.
    #[default]
    Blind,
    /// One of the ways whose slot is free, if there is one.
    PreferEmpty,
}

/// What the slots of a key are computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashFunction {
    /// CRC-64 of ECMA-182, of which each way takes bits of its own (ME-HPT, table III: CRC units). Regular keys spread more evenly than by chance, or less.
    #[default]
    Crc,
    /// The finalizer of MurmurHash3: spreads any keys as chance would.
    Murmur,
}

/// What becomes of an upsize that is due while one is under way.
///
/// Under either rule a downsize turns round when an upsize is due: its pointers
/// go back, which takes no memory. And a downsize that is due never waits:
/// what is under way is finished at once. It would wait for removals, of which
/// it is due because few are left: a downsize of `s` slots takes `s` / `migrated_per_insertion`
/// of them, and begins with no more than `downsize_at` * `s` lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDue {
    /// The one under way is finished at once, and the next begins.
    Finish,
    /// It begins when the one under way is over, as in released code of one of ECPT's authors.
    #[default]
    Wait,
}

/// When a walk has its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// When the probe that matches is back.
    #[default]
    Matching,
    /// When all probes are back.
    All,
}

/// A configuration with the keys in braces and its own defaults.
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

/// The one struct that the engine takes, and the configurations that are made into it.
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
    /// The parameters of either table, which one engine serves.
    ElasticSpec {
        /// Ways of each table, 2 to 4; each has a hash function of its own.
        ways: u8,
        /// Slots (64-byte lines of eight entries) of a way at the start, a power of two of at least 64.
        initial_slots: u64,
        /// Occupancy above which a table (or, with `per_way`, a way) is upsized.
        upsize_at: f64,
        /// Occupancy below which a table (or, with `per_way`, a way) is downsized.
        downsize_at: f64,
        /// By how much an upsize multiplies the slots: 2 or 4 (in place: 2). A downsize halves them.
        growth: u8,
        /// Re-insertions that an insertion may cause before it is given up and the table resized, 1 to 4096.
        max_kicks: u32,
        /// Slots of the old table that each insertion goes through while a resize is under way, on average: 0.125 to 65536.
        migrated_per_insertion: f64,
        /// What becomes of an upsize that is due while one is under way. A downsize that is due has it finished.
        when_due: WhenDue,
        /// Whether an entry that goes into a line which is there counts as an insertion for `migrated_per_insertion`.
        merge_counts: bool,
        /// What the slots of a key are computed with.
        hash: HashFunction,
        /// Into which way a line goes.
        choice: Choice,
        /// When a walk has its answer: with the matching probe, or with all of them.
        wait_for: WaitFor,
        /// Chunk sizes of the ways in bytes, ascending powers of two of at least 4096; none: each way is contiguous.
        chunks: Vec<u64>,
        /// Whether a way that has outgrown its chunk size goes over to the next; if not, only the first is used.
        change_chunks: bool,
        /// L2P entries for each way and page size, 1 to 256.
        l2p_entries: u32,
        /// Whether old and new table share their memory while a resize is under way.
        in_place: bool,
        /// Whether ways are resized one at a time, and lines inserted with weights by free slots.
        per_way: bool,
    }

    /// Elastic cuckoo page tables (ECPT), with the parameters that ME-HPT's
    /// evaluation gives them (table III, section VI).
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
    }

    /// Memory-efficient hashed page tables (ME-HPT): elastic cuckoo page tables
    /// with the four techniques of its section IV.
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
    }
}

/// Slots that an insertion of a line migrates, while an upsize that is due waits: ours,
/// chosen by the printed ways of ME-HPT's table I. A table that waits begins its
/// upsizes at a load of 1 / 1.45 = 0.69, which has 20 of that table's 22 cells without
/// huge pages come out, and more of the paper's other cells than two slots and
/// `finish`, the choice by section IV-C: old and new table live side by side for 87.3 %
/// of the time, for which two slots give 84 % of ECPT's insertions on average over
/// the sizes at which a program may stop to grow, up to 15,000 lines (a test
/// measures it). With 1.45 a table is never ready before the next upsize is due, so
/// that two live side by side from the first one on. An entry that goes into a line
/// which is there does not count (`merge_counts`): resizes of dense ranges would be
/// over eight times as fast.
const MIGRATED_PER_INSERTION: f64 = 1.45;

impl ElasticSpec {
    /// What is wrong with the parameters: the key, and what was expected.
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
        Ok(())
    }
}

/// Most ways that a table may have.
pub(crate) const MAX_WAYS: usize = 8;
