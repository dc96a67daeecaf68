//! Seeded random streams by name. An additional draw in one part of the
//! simulator never changes the draws of another part.

use rand::SeedableRng;

/// The generator of every random choice: xoshiro256++, the same on every host.
pub type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// The random stream `name` (such as `"os.placement"`) of a run with `seed`.
pub fn rng(seed: u64, name: &str) -> Rng {
    Rng::seed_from_u64(xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), seed))
}
