use std::collections::BTreeMap;

use crate::ThreadId;

/// Threads that have ended, kept as ranges of their numbers. A program may create very many threads one after another,
/// so ended threads must not cost memory each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Last number of each range, by its first.
    ranges: BTreeMap<ThreadId, ThreadId>,
}

impl Ended {
    /// Adds `thread`.
    pub fn insert(&mut self, thread: ThreadId) {
        if self.contains(thread) {
            return;
        }
        let (mut first, mut last) = (thread, thread);
        let before = self.ranges.range(..thread).next_back();
        if let Some((&from, &to)) = before.filter(|(_, to)| **to + 1 == thread) {
            debug_assert!(to < thread);
            first = from;
        }
        if let Some(to) = thread.checked_add(1).and_then(|n| self.ranges.remove(&n)) {
            last = to;
        }
        self.ranges.insert(first, last);
    }

    /// True if `thread` has ended.
    pub fn contains(&self, thread: ThreadId) -> bool {
        let range = self.ranges.range(..=thread).next_back();
        range.is_some_and(|(_, last)| *last >= thread)
    }

    /// Number of ranges, which bounds the memory.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Ended;
    use crate::ThreadId;

    #[test]
    fn it_equals_a_set_and_merges_adjacent_ranges() {
        let (mut ended, mut set) = (Ended::default(), BTreeSet::new());
        // Every number below 97 in an order that leaves gaps, some twice.
        for i in 0..150 {
            let n = i * 35 % 97;
            ended.insert(n);
            set.insert(n);
            for n in 0..100 {
                assert_eq!(ended.contains(n), set.contains(&n), "{n} after {i}");
            }
        }
        assert_eq!(ended.ranges(), 1);
        for n in [ThreadId::MAX, ThreadId::MAX - 1] {
            ended.insert(n);
            assert!(ended.contains(n));
        }
        assert_eq!(ended.ranges(), 2);
    }
}
