//! Tests of the map from outside.

mod failure;
mod interface;
mod model;
mod ownership;

use std::hash::{BuildHasher, Hasher};

/// Hash functions of three qualities.
#[derive(Clone, Copy, Debug, Default)]
pub enum Quality {
    /// Keys spread over all buckets.
    #[default]
    Good,
    /// Four different hashes.
    Four,
    /// All hashes are equal.
    Constant,
}

impl BuildHasher for Quality {
    type Hasher = QualityHasher;

    fn build_hasher(&self) -> QualityHasher {
        QualityHasher(*self, 0)
    }
}

/// Hasher of a [`Quality`].
pub struct QualityHasher(Quality, u64);

impl Hasher for QualityHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.1 = (self.1 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        match self.0 {
            Quality::Good => self.1,
            Quality::Four => self.1 & 3,
            Quality::Constant => 7,
        }
    }
}
