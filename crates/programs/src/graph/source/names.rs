//! Numbering of a file's vertices: 0, 1, 2, … in the order in which they are first named, as in GraphBIG's
//! loader.

use rustc_hash::FxHashMap;

/// Numbers below this are looked up in an array.
const SMALL: u64 = 1 << 26;
const NONE: u32 = u32::MAX;

/// Map from the file's numbers to vertices.
#[derive(Default)]
pub(super) struct Names {
    small: Vec<u32>,
    large: FxHashMap<u64, u32>,
    count: u32,
}

impl Names {
    /// The vertex called `name`, a new one if necessary. `None` if there are 2^32 - 1 vertices already.
    #[inline]
    pub(super) fn vertex(&mut self, name: u64) -> Option<u32> {
        // The condition prevents a few large numbers from enlarging the array.
        if name < SMALL && name < 64 + 16 * self.count as u64 {
            let at = name as usize;
            if at >= self.small.len() {
                self.small.resize(at + 1, NONE);
            }
            if self.small[at] != NONE {
                return Some(self.small[at]);
            }
            if let Some(vertex) = self.large.remove(&name) {
                self.small[at] = vertex;
                return Some(vertex);
            }
            let vertex = self.new_vertex()?;
            self.small[at] = vertex;
            return Some(vertex);
        }
        if let Some(vertex) = self.large.get(&name) {
            return Some(*vertex);
        }
        let vertex = self.new_vertex()?;
        self.large.insert(name, vertex);
        Some(vertex)
    }

    fn new_vertex(&mut self) -> Option<u32> {
        let vertex = self.count;
        self.count = self.count.checked_add(1)?;
        Some(vertex)
    }

    /// Number of vertices.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Host memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (4 * self.small.capacity() + 17 * self.large.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Names, SMALL};

    proptest! {
        #[test]
        fn each_name_is_one_vertex_in_the_order_of_first_appearance(
            given in proptest::collection::vec(prop_oneof![0u64..300, any::<u64>(), 60u64..5000], 0..2000),
        ) {
            let mut names = Names::default();
            let mut model: HashMap<u64, u32> = HashMap::new();
            for name in given {
                let next = model.len() as u32;
                let wanted = *model.entry(name).or_insert(next);
                prop_assert_eq!(names.vertex(name), Some(wanted));
                prop_assert_eq!(names.count() as usize, model.len());
            }
        }
    }

    #[test]
    fn memory_grows_with_the_number_of_names_not_their_size() {
        let mut names = Names::default();
        for name in (0..1000u64).map(|n| SMALL - 1 - n) {
            names.vertex(name);
        }
        assert!(names.bytes() < 1 << 20, "{}", names.bytes());
    }
}
