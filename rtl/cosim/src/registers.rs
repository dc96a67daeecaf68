//! The registers of the speculation engine, as `rtl/spec_engine/registers.sv` numbers them.

/// Value from which the seeds are generated. A write generates them by the order that was written before.
pub const SEED: u8 = 0;
/// Number of the seed of each tier, from 1 on, a byte for each.
pub const ORDER: u8 = 1;
/// Number of tiers to guess: a byte for data, a byte for page-table entries.
pub const DEGREE: u8 = 2;
/// First frame to choose from.
pub const RANGE_START: u8 = 3;
/// Number of frames to choose from.
pub const RANGE_FRAMES: u8 = 4;
/// Fewest placements of pages for which a tier is guessed.
pub const DATA_LEAST: u8 = 5;
/// Fewest placements of page tables for which a tier is guessed.
pub const TABLE_LEAST: u8 = 6;
/// Placements of pages by the first tier; those of the others follow.
pub const DATA_HITS: u8 = 8;
/// Placements of page tables by the first tier; those of the others follow.
pub const TABLE_HITS: u8 = 16;
/// Longest delay of the DRAM's bus for the first tier, in cycles; those of the others follow.
pub const DELAY: u8 = 24;

/// Names and numbers, for the generated header.
pub const NAMED: [(&str, u8); 10] = [
    ("SEED", SEED),
    ("ORDER", ORDER),
    ("DEGREE", DEGREE),
    ("RANGE_START", RANGE_START),
    ("RANGE_FRAMES", RANGE_FRAMES),
    ("DATA_LEAST", DATA_LEAST),
    ("TABLE_LEAST", TABLE_LEAST),
    ("DATA_HITS", DATA_HITS),
    ("TABLE_HITS", TABLE_HITS),
    ("DELAY", DELAY),
];

/// Bits of a register's number.
pub const INDEX_BITS: u32 = 5;
