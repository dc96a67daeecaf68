//! The range table: a B+ tree of ranges in simulated memory.
//!
//! A node is a frame of 4 KB: a header and up to 127 entries of 32 bytes, in order of addresses. An
//! entry of a leaf has the first and the last address of a range, its frame and its rights. An entry
//! of another node has the least address of a node below it, and that node's frame. A node is freed
//! when its last entry goes, and the root when one node below it is left.

use super::Range;

/// Most entries of a node.
pub(super) const ENTRIES: usize = 127;
/// Bytes of an entry, and of the header.
const ENTRY_BYTES: u64 = 32;
/// Bytes of a line.
const LINE_BYTES: u64 = 64;

/// A node.
struct Node {
    /// Its frame.
    base: u64,
    entries: Entries,
}

enum Entries {
    Leaf(Vec<Range>),
    /// Least address and node. No range of the node before reaches the least address. The first
    /// node's may be smaller than any range.
    Inner(Vec<(u64, Node)>),
}

/// Frames for nodes.
pub(super) trait NodeFrames {
    /// A frame for a node, if there is one.
    fn take(&mut self) -> Option<u64>;
    /// Frees the frame of a node.
    fn give(&mut self, base: u64);
}

/// No frame for a node is free. The tree is unchanged.
#[derive(Debug)]
pub(super) struct NoNode;

/// The range table.
#[derive(Default)]
pub(super) struct Tree {
    root: Option<Node>,
    /// Ranges.
    pub ranges: u64,
    /// Entries that splits have moved to other nodes.
    pub moved: u32,
}

impl Node {
    fn len(&self) -> usize {
        match &self.entries {
            Entries::Leaf(ranges) => ranges.len(),
            Entries::Inner(nodes) => nodes.len(),
        }
    }

    /// Least address of its entries. None if it is empty.
    fn least(&self) -> Option<u64> {
        match &self.entries {
            Entries::Leaf(ranges) => ranges.first().map(|r| r.first),
            Entries::Inner(nodes) => nodes.first().map(|n| n.0),
        }
    }

    /// Number of entries that begin at `va` or below. Calls `read` with the lines that a binary search
    /// reads, the header's first.
    fn search(&self, va: u64, read: &mut dyn FnMut(u64)) -> usize {
        read(self.base);
        let mut last = self.base;
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let line = (self.base + (middle as u64 + 1) * ENTRY_BYTES) & !(LINE_BYTES - 1);
            if line != last && line != self.base {
                read(line);
            }
            last = line;
            let first = match &self.entries {
                Entries::Leaf(ranges) => ranges[middle].first,
                Entries::Inner(nodes) => nodes[middle].0,
            };
            if first <= va {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Puts `range` below this node. Returns the node that a split has made, with its least address.
    fn put(&mut self, range: Range, fresh: &mut Vec<u64>, moved: &mut u32) -> Option<(u64, Node)> {
        match &mut self.entries {
            Entries::Leaf(ranges) => {
                let at = ranges.partition_point(|r| r.first < range.first);
                ranges.insert(at, range);
            }
            Entries::Inner(nodes) => {
                let at = nodes.partition_point(|n| n.0 <= range.first);
                nodes[0].0 = nodes[0].0.min(range.first);
                let split = nodes[at.saturating_sub(1)].1.put(range, fresh, moved)?;
                nodes.insert(at.max(1), split);
            }
        }
        if self.len() <= ENTRIES {
            return None;
        }
        let half = self.len() / 2;
        *moved += (self.len() - half) as u32;
        let (least, entries) = match &mut self.entries {
            Entries::Leaf(ranges) => (ranges[half].first, Entries::Leaf(ranges.split_off(half))),
            Entries::Inner(nodes) => (nodes[half].0, Entries::Inner(nodes.split_off(half))),
        };
        let base = fresh.pop().expect("a frame for each split");
        Some((least, Node { base, entries }))
    }

    /// Removes the range that begins at `first` from the nodes below. False if none does.
    fn remove(&mut self, first: u64, frames: &mut dyn NodeFrames) -> bool {
        match &mut self.entries {
            Entries::Leaf(ranges) => {
                let at = ranges.binary_search_by_key(&first, |r| r.first);
                at.map(|at| ranges.remove(at)).is_ok()
            }
            Entries::Inner(nodes) => {
                let at = nodes.partition_point(|n| n.0 <= first).saturating_sub(1);
                let below = &mut nodes[at].1;
                let found = below.remove(first, frames);
                match below.least() {
                    Some(least) => nodes[at].0 = least,
                    None => {
                        frames.give(below.base);
                        nodes.remove(at);
                    }
                }
                found
            }
        }
    }

    fn release(&self, frames: &mut dyn NodeFrames) {
        if let Entries::Inner(nodes) = &self.entries {
            nodes.iter().for_each(|(_, node)| node.release(frames));
        }
        frames.give(self.base);
    }
}

impl Tree {
    /// The range around `va`. Calls `read` with the lines that a walk reads, one after the other.
    pub fn find(&self, va: u64, read: &mut dyn FnMut(u64)) -> Option<Range> {
        let mut node = self.root.as_ref()?;
        loop {
            let at = node.search(va, read);
            match &node.entries {
                Entries::Leaf(ranges) => {
                    return ranges[..at].last().copied().filter(|r| va <= r.last);
                }
                Entries::Inner(nodes) => node = &nodes[at.saturating_sub(1)].1,
            }
        }
    }

    /// The range that begins at `first`, to be changed in place.
    fn find_mut(&mut self, first: u64) -> Option<&mut Range> {
        let mut node = self.root.as_mut()?;
        loop {
            match &mut node.entries {
                Entries::Leaf(ranges) => return ranges.iter_mut().find(|r| r.first == first),
                Entries::Inner(nodes) => {
                    let at = nodes.partition_point(|n| n.0 <= first).saturating_sub(1);
                    node = &mut nodes[at].1;
                }
            }
        }
    }

    /// Puts `range` into the table, in place of the one that begins at the same address, if any. It
    /// overlaps no other.
    pub fn put(&mut self, range: Range, frames: &mut dyn NodeFrames) -> Result<(), NoNode> {
        if let Some(held) = self.find_mut(range.first) {
            *held = range;
            return Ok(());
        }
        let mut fresh = Vec::new();
        for _ in 0..self.new_nodes(range.first) {
            let Some(base) = frames.take() else {
                fresh.into_iter().for_each(|base| frames.give(base));
                return Err(NoNode);
            };
            fresh.push(base);
        }
        self.ranges += 1;
        let entries = match self.root.take() {
            None => Entries::Leaf(vec![range]),
            Some(mut root) => match root.put(range, &mut fresh, &mut self.moved) {
                None => {
                    self.root = Some(root);
                    return Ok(());
                }
                Some(split) => Entries::Inner(vec![(0, root), split]),
            },
        };
        let base = fresh.pop().expect("a frame for the new root");
        self.root = Some(Node { base, entries });
        Ok(())
    }

    /// Nodes that a new range at `first` needs: one for each full node that it splits, and a root.
    fn new_nodes(&self, first: u64) -> usize {
        let Some(mut node) = self.root.as_ref() else {
            return 1;
        };
        let (mut levels, mut full) = (0, 0);
        loop {
            levels += 1;
            full = if node.len() == ENTRIES { full + 1 } else { 0 };
            let Entries::Inner(nodes) = &node.entries else {
                return full + usize::from(full == levels);
            };
            let at = nodes.partition_point(|n| n.0 <= first).saturating_sub(1);
            node = &nodes[at].1;
        }
    }

    /// Removes the range that begins at `first`, if one does.
    pub fn remove(&mut self, first: u64, frames: &mut dyn NodeFrames) {
        let Some(mut root) = self.root.take() else {
            return;
        };
        self.ranges -= u64::from(root.remove(first, frames));
        // A root with one node below it is not needed.
        while let Entries::Inner(nodes) = &mut root.entries
            && nodes.len() == 1
        {
            frames.give(root.base);
            let (_, below) = nodes.pop().expect("one node");
            root = below;
        }
        if root.len() == 0 {
            frames.give(root.base);
        } else {
            self.root = Some(root);
        }
    }

    /// Removes all ranges.
    pub fn release(&mut self, frames: &mut dyn NodeFrames) {
        if let Some(root) = self.root.take() {
            root.release(frames);
        }
        self.ranges = 0;
    }
}
