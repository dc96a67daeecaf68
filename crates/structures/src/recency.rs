//! LRU replacement for wide sets, without a search for the victim.

/// A way's neighbours in the LRU order of its set. The order is a ring: the most
/// recently used way is adjacent to the least recently used one.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u16,
    older: u16,
}

/// The LRU order of each set of an array. An update costs a few operations for any
/// number of ways, and the next victim is known without a search.
#[derive(Clone, Debug)]
pub struct Recency {
    /// Indexed by way within a set, sets one after the other.
    links: Vec<Link>,
    /// The most recently used way of each set.
    first: Vec<u16>,
    ways: usize,
}

/// Maximum ways of a set.
pub const MOST_WAYS: usize = 1 << u16::BITS;

impl Recency {
    /// `sets` sets of `ways` ways, 1 to [`MOST_WAYS`]. Initially the first way is the
    /// least recently used.
    pub fn new(sets: usize, ways: usize) -> Self {
        assert!((1..=MOST_WAYS).contains(&ways), "1 to {MOST_WAYS} ways");
        let ring = (0..ways).map(|way| Link {
            newer: ((way + 1) % ways) as u16,
            older: ((way + ways - 1) % ways) as u16,
        });
        Recency {
            links: ring.cycle().take(sets * ways).collect(),
            first: vec![(ways - 1) as u16; sets],
            ways,
        }
    }

    /// Makes `way` of `set` the most recently used.
    #[inline(always)]
    pub fn touch_mru(&mut self, set: usize, way: usize) {
        if usize::from(self.first[set]) != way {
            self.move_to_front(set, way);
        }
    }

    #[inline]
    fn move_to_front(&mut self, set: usize, way: usize) {
        let links = &mut self.links[set * self.ways..][..self.ways];
        let first = std::mem::replace(&mut self.first[set], way as u16);
        let last = links[usize::from(first)].newer;
        // If it is the least recently used way, rotating the ring suffices.
        if usize::from(last) != way {
            let Link { newer, older } = links[way];
            links[usize::from(newer)].older = older;
            links[usize::from(older)].newer = newer;
            links[way] = Link {
                newer: last,
                older: first,
            };
            links[usize::from(last)].older = way as u16;
            links[usize::from(first)].newer = way as u16;
        }
    }

    /// The least recently used way of `set`.
    #[inline(always)]
    pub fn last(&self, set: usize) -> usize {
        let first = usize::from(self.first[set]);
        usize::from(self.links[set * self.ways + first].newer)
    }

    /// Makes `way` of `set` the least recently used.
    pub fn trail(&mut self, set: usize, way: usize) {
        self.touch_mru(set, way);
        self.first[set] = self.links[set * self.ways + way].older;
    }

    /// The ways of `set`, most recently used first.
    pub fn order(&self, set: usize) -> impl Iterator<Item = usize> {
        let links = &self.links[set * self.ways..][..self.ways];
        let next = move |&way: &usize| Some(usize::from(links[way].older));
        std::iter::successors(Some(usize::from(self.first[set])), next).take(self.ways)
    }
}

#[cfg(test)]
mod tests {
    use super::Recency;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ways_are_in_order_of_use(
            sets in 1usize..4, ways in 1usize..70,
            steps in prop::collection::vec((any::<usize>(), any::<usize>(), 0u8..4), 1..400),
        ) {
            let mut recency = Recency::new(sets, ways);
            let mut lists = vec![(0..ways).rev().collect::<Vec<_>>(); sets];
            for (set, way, what) in steps {
                let (set, way) = (set % sets, way % ways);
                let list = &mut lists[set];
                let taken = list.remove(list.iter().position(|&w| w == way).expect("a way"));
                if what == 0 {
                    recency.trail(set, way);
                    list.push(taken);
                } else {
                    recency.touch_mru(set, way);
                    list.insert(0, taken);
                }
                for (set, list) in lists.iter().enumerate() {
                    prop_assert_eq!(&recency.order(set).collect::<Vec<_>>(), list);
                    prop_assert_eq!(Some(&recency.last(set)), list.last());
                }
            }
        }
    }
}
