//! Least frequently used.

use pagewalk_units::Rng;

use super::Policy;

/// Number of uses of each entry since its fill, which counts as one.
#[derive(Clone, Debug)]
pub(crate) struct Lfu {
    uses: Vec<u64>,
    ways: usize,
}

impl Lfu {
    fn of(&mut self, set: usize) -> &mut [u64] {
        &mut self.uses[set * self.ways..][..self.ways]
    }
}

#[cfg(test)]
impl Lfu {
    /// Uses by set and way; a free way keeps the count of its last entry.
    pub fn uses(&self) -> &[u64] {
        &self.uses
    }
}

impl Policy for Lfu {
    type Spec = ();

    fn new(_: &(), sets: usize, ways: usize, _: Rng) -> Self {
        Lfu {
            uses: vec![0; sets * ways],
            ways,
        }
    }
    fn filled(&mut self, set: usize, way: usize) {
        self.of(set)[way] = 1;
    }
    fn used(&mut self, set: usize, way: usize) {
        self.of(set)[way] += 1;
    }
    fn victim(&mut self, set: usize) -> usize {
        let uses = self.of(set);
        let fewest = (0..uses.len()).min_by_key(|&way| uses[way]);
        fewest.expect("sets have ways")
    }
}
