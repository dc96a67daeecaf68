//! Parameters of the hardware, generated from the simulator's constants and a shipped configuration.

use std::fmt::Write;
use std::path::PathBuf;

use pagewalk_machine::config::Config;
use pagewalk_mmu::{EngineSpec, INSERTIONS, RevelatorSpec, STB_ENTRIES};
use pagewalk_os::INVALID_PAGES;
use pagewalk_structures::{
    CRC_ROTATION, CRC64_POLYNOMIAL, MIX_FACTORS, MIX_SHIFT, MOST_TIERS, NUMBER_BITS, SEED_STEP,
    TierFunction,
};
use pagewalk_tables::cuckoo_hardware::{
    FIELD, FIELD_WAYS, FIRST_FIELD, GIANT, HUGE, PTES_SHIFT, SMALL, WAY, WAY_SHIFT,
};
use pagewalk_tables::{
    CuckooWalkSpec, HashFunction, PageTableSpec, STLT_COUNTER_BITS, STLT_FEWEST_ROWS,
    STLT_MOST_ROWS, STLT_ROW_BYTES, STLT_SIZE_BIT, STLT_SUB_BITS, STLT_VA_BITS, StltCounter,
    StltSpec,
};
use pagewalk_units::{LINE_SHIFT, PageSize};

use crate::registers;

/// Machine and design whose configuration the header holds.
pub const SOURCE: (&str, &str) = ("revelator-table1", "revelator");

/// Bits of each count of placements: 2^32 pages are 16 TB.
pub const COUNT_BITS: u32 = 32;

/// Name of a hash function in the header. Its number is its place in [`TierFunction::ALL`].
fn name(function: TierFunction) -> &'static str {
    match function {
        TierFunction::Murmur => "MURMUR",
        TierFunction::Multiplicative => "MULTIPLICATIVE",
        TierFunction::Crc => "CRC",
    }
}

/// The stage of the hash unit after which the mixed value is known (`mix_*.sv`).
const fn mixed_stage(function: TierFunction) -> u64 {
    match function {
        TierFunction::Murmur => 4,
        TierFunction::Multiplicative => 2,
        TierFunction::Crc => 1,
    }
}

/// Stages that scale the mixed value to the range of frames.
const SCALING_STAGES: u64 = 2;

/// Bits of an index into a page table.
const LEVEL_BITS: u32 = PageSize::M2.shift() - PageSize::K4.shift();

/// Cycles from the request to the first guess: the sequencer, the stages of the hash unit, and the queue.
pub const fn latency(function: TierFunction) -> u64 {
    mixed_stage(function) + 1 + SCALING_STAGES + 2
}

/// The generated file.
pub fn path() -> PathBuf {
    crate::root().join("rtl/generated/spec_engine.svh")
}

/// A constant as the difference of two numbers without common bits, so that few bits are set: its
/// non-adjacent form (Reitwiesner, 1960), modulo 2^64.
fn signed_digits(constant: u64) -> [u64; 2] {
    let (mut plus, mut minus, mut left) = (0, 0, u128::from(constant));
    for bit in 0..u64::BITS {
        if left >> bit & 1 == 1 {
            if left >> bit & 3 == 3 {
                minus |= 1 << bit;
                left += 1 << bit;
            } else {
                plus |= 1 << bit;
                left -= 1 << bit;
            }
        }
    }
    [plus, minus]
}

/// Parameters of the speculation engine for this configuration.
pub struct SpecEngineParameters {
    /// Bits of a virtual address.
    pub va_bits: u32,
    /// Bits of a frame number, and of the number of frames.
    pub frame_bits: u32,
    /// Bits of a delay of the DRAM's bus, in cycles.
    pub delay_bits: u32,
}

/// The parameters of the engine in `config`.
///
/// # Panics
/// Its engine is not Revelator's, or its page table no tree.
pub fn parameters(config: &Config) -> SpecEngineParameters {
    let (Some(EngineSpec::Revelator(engine)), PageTableSpec::Radix(table)) =
        (&config.engine, &config.page_table)
    else {
        panic!("the configuration has Revelator's engine and a tree");
    };
    let frames = config.os.memory_gb << 30 >> PageSize::K4.shift();
    SpecEngineParameters {
        va_bits: PageSize::K4.shift() + LEVEL_BITS * u32::from(table.levels),
        frame_bits: u64::BITS - frames.leading_zeros(),
        delay_bits: delay_bits(engine, config.frequency_ghz),
    }
}

/// The largest value stands for all longer delays, so each threshold is below it.
fn delay_bits(engine: &RevelatorSpec, frequency_ghz: f64) -> u32 {
    let longest = engine.delays(frequency_ghz).into_iter().max().unwrap_or(0);
    u64::BITS - (longest + 1).leading_zeros()
}

/// The text of the header.
pub fn spec_engine(config: &Config) -> String {
    let parameters = parameters(config);
    let (machine, design) = SOURCE;
    let mut text = format!(
        "// Generated from the simulator's constants and from {design} on {machine} (rtl/cosim/src/header.rs).\n\
         `ifndef SPEC_ENGINE_SVH\n`define SPEC_ENGINE_SVH\n"
    );
    let mut define = |name: &str, value: String| {
        writeln!(text, "`define SPEC_ENGINE_{name} {value}").expect("a string grows");
    };
    for (name, value) in [
        ("TIERS", MOST_TIERS as u32),
        ("ASID_BITS", u16::BITS),
        ("NUMBER_BITS", NUMBER_BITS),
        ("VA_BITS", parameters.va_bits),
        ("PAGE_BITS", PageSize::K4.shift()),
        ("LINE_BITS", LINE_SHIFT),
        ("LEVEL_BITS", LEVEL_BITS),
        ("FRAME_BITS", parameters.frame_bits),
        ("COUNT_BITS", COUNT_BITS),
        ("DELAY_BITS", parameters.delay_bits),
        ("HASH_BITS", u64::BITS),
        ("MIX_SHIFT", MIX_SHIFT),
        ("CRC_ROTATION", CRC_ROTATION),
    ] {
        define(name, value.to_string());
    }
    let [first, second] = MIX_FACTORS;
    for (constant, factor) in [("MIX_1", first), ("MIX_2", second), ("GOLDEN", SEED_STEP)] {
        let [plus, minus] = signed_digits(factor);
        let rows = plus.count_ones() + minus.count_ones() + 1;
        define(&format!("{constant}_PLUS"), format!("64'h{plus:016x}"));
        define(&format!("{constant}_MINUS"), format!("64'h{minus:016x}"));
        define(&format!("{constant}_ROWS"), rows.to_string());
    }
    define("POLYNOMIAL", format!("64'h{CRC64_POLYNOMIAL:016x}"));
    for (number, function) in TierFunction::ALL.into_iter().enumerate() {
        define(&format!("HASH_{}", name(function)), number.to_string());
    }
    define(
        "HASH",
        format!("`SPEC_ENGINE_HASH_{}", name(TierFunction::default())),
    );
    let [murmur, multiplicative, crc] = TierFunction::ALL.map(mixed_stage);
    let stages = format!("((hash) == 0 ? {murmur} : (hash) == 1 ? {multiplicative} : {crc})");
    define("MIXED_STAGE(hash)", stages);
    let whole = format!("(`SPEC_ENGINE_MIXED_STAGE(hash) + {})", 1 + SCALING_STAGES);
    define("HASH_STAGES(hash)", whole);
    define("SEED_STEP", format!("64'h{SEED_STEP:016x}"));
    define("REG_BITS", registers::INDEX_BITS.to_string());
    for (name, number) in registers::NAMED {
        define(&format!("REG_{name}"), number.to_string());
    }
    text.push_str("`endif\n");
    text
}

/// The generated file of the STLT unit.
pub fn stlt_unit_path() -> PathBuf {
    crate::root().join("rtl/generated/stlt_unit.svh")
}

/// Bits of the random number that chooses one of several rows: as many as the simulator's choice uses.
const PICK_BITS: u32 = u32::BITS;
/// Bits of a physical address (STLT, section III-G: base addresses of 36 bits and 4 KB pages).
const STLT_PA_BITS: u32 = 48;

/// The text of the STLT unit's header.
pub fn stlt_unit() -> String {
    let spec = StltSpec::default();
    let mut text = "// Generated from the simulator's constants (rtl/cosim/src/header.rs).\n\
         `ifndef STLT_UNIT_SVH\n`define STLT_UNIT_SVH\n"
        .to_owned();
    let saturates = u8::from(spec.counter == StltCounter::Saturates);
    for (name, value) in [
        ("WAYS", spec.ways.to_string()),
        ("SATURATES", format!("1'b{saturates}")),
        ("VA_BITS", STLT_VA_BITS.to_string()),
        ("PA_BITS", STLT_PA_BITS.to_string()),
        ("PAGE_BITS", PageSize::K4.shift().to_string()),
        ("LEVEL_BITS", LEVEL_BITS.to_string()),
        ("ASID_BITS", u16::BITS.to_string()),
        ("ROW_BITS", STLT_ROW_BYTES.ilog2().to_string()),
        ("FEWEST_ROWS_BITS", STLT_FEWEST_ROWS.ilog2().to_string()),
        ("MOST_ROWS_BITS", STLT_MOST_ROWS.ilog2().to_string()),
        ("SUB_BITS", STLT_SUB_BITS.to_string()),
        ("COUNTER_BITS", STLT_COUNTER_BITS.to_string()),
        ("PICK_BITS", PICK_BITS.to_string()),
        ("PTE_SIZE_BIT", STLT_SIZE_BIT.to_string()),
        ("INSERTIONS", INSERTIONS.to_string()),
        ("IPB_ENTRIES", INVALID_PAGES.to_string()),
        ("STB_ENTRIES", STB_ENTRIES.to_string()),
    ] {
        writeln!(text, "`define STLT_UNIT_{name} {value}").expect("a string grows");
    }
    text.push_str("`endif\n");
    text
}

/// Machine and design whose configuration the header of the L2P table holds.
pub const L2P_SOURCE: (&str, &str) = ("mehpt-table3", "mehpt");

/// Bits of a physical address (ME-HPT, section V-B).
pub const L2P_PA_BITS: u32 = 46;

/// Stages of the address generation (`l2p.sv`): two of the hash, and four of shift, L2P table and mask.
pub const L2P_LATENCY: u64 = 6;

/// Targets of the kernel's writes: an L2P entry, and the registers of a way.
pub const L2P_WRITES: [&str; 4] = ["ENTRY", "SLOTS", "POINTER", "CHUNKS"];

/// Parameters of the L2P table and of the address generation for this configuration.
pub struct L2pParameters {
    /// Ways of each table.
    pub ways: u32,
    /// L2P entries of each way and page size.
    pub entries: u32,
    /// Chunk sizes in bytes, ascending.
    pub chunks: Vec<u64>,
    /// Bits of a virtual address.
    pub va_bits: u32,
}

impl L2pParameters {
    /// The parameters of the page table in `config`.
    ///
    /// # Panics
    /// It is not a memory-efficient table in chunks with CRC hashes and the hardware's latency.
    pub fn of(config: &Config) -> Self {
        let PageTableSpec::MemoryEfficient(table) = &config.page_table else {
            panic!("the configuration has ME-HPT's page table");
        };
        assert_eq!(table.hash, HashFunction::Crc);
        let CuckooWalkSpec {
            hash_latency,
            l2p_latency,
            ..
        } = config.mmu.cuckoo;
        assert_eq!(hash_latency + l2p_latency, L2P_LATENCY);
        L2pParameters {
            ways: table.ways.into(),
            entries: table.l2p_entries,
            chunks: table.chunks.clone(),
            va_bits: table.address_bits,
        }
    }
    /// Binary logarithms of the slots of a chunk.
    pub fn chunk_slot_bits(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().map(|chunk| chunk.ilog2() - LINE_SHIFT)
    }
    /// Bits of a slot. A way has at most twice a sub-table's entries for chunks of one size.
    pub fn slot_bits(&self) -> u32 {
        self.chunk_slot_bits().max().unwrap_or(0) + (2 * self.entries).ilog2()
    }
    /// Bits of a chunk's base: the address above the smallest chunk's bytes.
    pub fn base_bits(&self) -> u32 {
        L2P_PA_BITS - self.chunks[0].ilog2()
    }
    /// Bits of the number of an entry.
    pub fn entry_bits(&self) -> u32 {
        (PageSize::ALL.len() as u32 * self.entries)
            .next_power_of_two()
            .ilog2()
    }
}

/// The generated file of the L2P table.
pub fn l2p_path() -> PathBuf {
    crate::root().join("rtl/generated/l2p.svh")
}

/// The text of the L2P table's header.
pub fn l2p(config: &Config) -> String {
    let parameters = L2pParameters::of(config);
    let (machine, design) = L2P_SOURCE;
    let mut text = format!(
        "// Generated from the simulator's constants and from {design} on {machine} (rtl/cosim/src/header.rs).\n\
         `ifndef L2P_SVH\n`define L2P_SVH\n"
    );
    let kinds: Vec<u32> = parameters.chunk_slot_bits().collect();
    let slots = (kinds.iter().rev()).fold(String::new(), |all, bits| all + &format!("{bits:02x}"));
    let kind_bits = kinds.len().next_power_of_two().ilog2().max(1);
    let header_bits = WAY_SHIFT + WAY.count_ones();
    for (name, value) in [
        ("WAYS", parameters.ways.to_string()),
        ("SIZES", PageSize::ALL.len().to_string()),
        ("ENTRIES", parameters.entries.to_string()),
        ("ENTRY_BITS", parameters.entry_bits().to_string()),
        ("VA_BITS", parameters.va_bits.to_string()),
        ("PA_BITS", L2P_PA_BITS.to_string()),
        ("PAGE_BITS", PageSize::K4.shift().to_string()),
        ("LEVEL_BITS", LEVEL_BITS.to_string()),
        ("CLUSTER_BITS", PTES_SHIFT.to_string()),
        ("LINE_BITS", LINE_SHIFT.to_string()),
        ("SLOT_BITS", parameters.slot_bits().to_string()),
        ("BASE_BITS", parameters.base_bits().to_string()),
        ("CHUNK_KINDS", kinds.len().to_string()),
        ("CHUNK_KIND_BITS", kind_bits.to_string()),
        ("CHUNK_SLOT_BITS", format!("{}'h{slots}", 8 * kinds.len())),
        (
            "MOST_CHUNK_SLOT_BITS",
            kinds.iter().max().map_or(0, |&bits| bits).to_string(),
        ),
        ("POLYNOMIAL", format!("64'h{CRC64_POLYNOMIAL:016x}")),
        ("FIRST_FIELD", FIRST_FIELD.to_string()),
        ("FIELD", FIELD.to_string()),
        ("FIELD_WAYS", FIELD_WAYS.to_string()),
        ("HEADER_BITS", header_bits.to_string()),
        ("HEADER_SMALL", SMALL.ilog2().to_string()),
        ("HEADER_HUGE", HUGE.ilog2().to_string()),
        ("HEADER_GIANT", GIANT.ilog2().to_string()),
        ("HEADER_WAY_SHIFT", WAY_SHIFT.to_string()),
        ("HEADER_WAY_BITS", WAY.count_ones().to_string()),
        ("LATENCY", L2P_LATENCY.to_string()),
    ] {
        writeln!(text, "`define L2P_{name} {value}").expect("a string grows");
    }
    for (number, name) in L2P_WRITES.into_iter().enumerate() {
        writeln!(text, "`define L2P_WRITE_{name} 2'd{number}").expect("a string grows");
    }
    text.push_str("`endif\n");
    text
}

#[cfg(test)]
mod tests {
    use super::signed_digits;
    use pagewalk_structures::MIX_FACTORS;

    #[test]
    fn the_digits_add_up_to_the_constant() {
        for constant in [
            0,
            1,
            3,
            7,
            u64::MAX,
            1 << 63,
            MIX_FACTORS[0],
            MIX_FACTORS[1],
        ] {
            let [plus, minus] = signed_digits(constant);
            assert_eq!(plus.wrapping_sub(minus), constant);
            let digits = plus | minus;
            assert_eq!(digits & digits << 1, 0, "no two digits are neighbours");
        }
    }
}
