//! Kurtz's suffix tree in arrays of words, in MUMmer 3's layout for 64-bit machines (`streehuge.h`).
//!
//! - A leaf is one word, its brother.
//! - A small inner node is three words: child, brother, and the distance to the end of its chain.
//! - A large inner node, at the end of a chain, is five: child, brother, depth, head position and suffix
//!   link.
//!
//! Source: S. Kurtz, Reducing the space requirement of suffix trees, Software - Practice and Experience 29,
//! 1999.
//!
//! The program inserts suffix after suffix. Here the same tree is built from a suffix array. A node's head
//! position is the suffix whose insertion created the node: the first one below it that is in another child
//! than the very first. Nodes are stored in the order of their head positions. Two nodes are of one chain if
//! the next suffix creates the target of this node's suffix link.

use super::sort::{common_prefixes, suffixes};

/// No node.
pub const NONE: u32 = u32::MAX;
/// Flag of a reference to a leaf.
const LEAF: u32 = 1 << 31;
/// Words per small and large inner node.
pub const SMALL: u64 = 3;
/// Words of a large inner node.
pub const LARGE: u64 = 5;

/// A child: a leaf or an inner node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    /// Leaf, by the start of its suffix.
    Leaf(u32),
    /// Inner node, by its number.
    Node(u32),
}

fn child(reference: u32) -> Option<Child> {
    match reference {
        NONE => None,
        r if r & LEAF != 0 => Some(Child::Leaf(r & !LEAF)),
        r => Some(Child::Node(r)),
    }
}

/// One inner node. The root has number 0.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Length of its string.
    pub depth: u32,
    /// Head position (see the module): a position of that string in the text.
    pub head: u32,
    first: u32,
    brother: u32,
    /// Suffix link: the node of the string without its first letter.
    pub link: u32,
    /// Index of its first word in the array.
    pub word: u32,
    /// Distance in nodes to the end of its chain. 0 for a large node.
    pub chain: u32,
}

/// A suffix tree with its text.
pub struct Tree {
    /// Letters 0 to 3, and 4 at the end.
    pub text: Vec<u8>,
    /// Inner nodes in the order of their words.
    pub nodes: Vec<Node>,
    brothers: Vec<u32>,
    /// Words of all inner nodes.
    pub words: u64,
}

impl Tree {
    /// The tree of `text` (letters 0 to 3), with a unique end letter.
    pub fn new(mut text: Vec<u8>) -> Self {
        text.push(4);
        let order = suffixes(&text, 4);
        let common = common_prefixes(&text, &order);
        let mut tree = Builder::new(text.len()).run(&order, &common);
        drop((order, common));
        let words = tree.arrange();
        let mut tree = Tree {
            text,
            nodes: tree.nodes,
            brothers: tree.brothers,
            words,
        };
        tree.link();
        tree
    }

    /// First child of a node.
    #[inline(always)]
    pub fn first(&self, node: u32) -> Option<Child> {
        child(self.nodes[node as usize].first)
    }

    /// The next child of the same node.
    #[inline(always)]
    pub fn brother(&self, of: Child) -> Option<Child> {
        child(match of {
            Child::Leaf(leaf) => self.brothers[leaf as usize],
            Child::Node(node) => self.nodes[node as usize].brother,
        })
    }

    /// First letter of the edge from a node of `depth` to `child`.
    #[inline(always)]
    pub fn letter(&self, depth: u32, child: Child) -> u8 {
        self.text[(self.start(child) + depth) as usize]
    }

    /// A position of the string of `child` in the text.
    #[inline(always)]
    pub fn start(&self, child: Child) -> u32 {
        match child {
            Child::Leaf(leaf) => leaf,
            Child::Node(node) => self.nodes[node as usize].head,
        }
    }

    /// The child of `node` whose edge begins with `letter`.
    pub fn find(&self, node: u32, letter: u8) -> Option<Child> {
        let depth = self.nodes[node as usize].depth;
        let mut at = self.first(node);
        while let Some(child) = at {
            if self.letter(depth, child) == letter {
                return at;
            }
            at = self.brother(child);
        }
        None
    }

    /// Computes suffix links, each from the link of the parent.
    fn link(&mut self) {
        let mut below: Vec<(u32, u32)> = vec![(0, 0)];
        while let Some((node, parent)) = below.pop() {
            let mut at = self.first(node);
            while let Some(child) = at {
                if let Child::Node(inner) = child {
                    below.push((inner, node));
                }
                at = self.brother(child);
            }
            let this = self.nodes[node as usize];
            if this.depth <= 1 {
                continue;
            }
            let mut at = self.nodes[parent as usize].link;
            // Descends to the required depth without comparing letters.
            while self.nodes[at as usize].depth + 1 < this.depth {
                let place = this.head + 1 + self.nodes[at as usize].depth;
                match self.find(at, self.text[place as usize]) {
                    Some(Child::Node(next)) => at = next,
                    _ => unreachable!("the string without its first letter has a node"),
                }
            }
            self.nodes[node as usize].link = at;
        }
    }
}

/// An inner node whose children are not all known.
struct Open {
    depth: u32,
    first: u32,
    last: u32,
    /// The two smallest among the smallest leaves of its children.
    least: [u32; 2],
}

struct Builder {
    nodes: Vec<Node>,
    brothers: Vec<u32>,
}

impl Builder {
    fn new(leaves: usize) -> Self {
        Builder {
            nodes: Vec::new(),
            brothers: vec![NONE; leaves],
        }
    }

    fn add(&mut self, open: &mut Open, (reference, least): (u32, u32)) {
        match child(open.last) {
            None => open.first = reference,
            Some(Child::Leaf(leaf)) => self.brothers[leaf as usize] = reference,
            Some(Child::Node(node)) => self.nodes[node as usize].brother = reference,
        }
        open.last = reference;
        if least < open.least[0] {
            open.least = [least, open.least[0]];
        } else {
            open.least[1] = open.least[1].min(least);
        }
    }

    fn close(&mut self, open: &Open) -> (u32, u32) {
        self.nodes.push(Node {
            depth: open.depth,
            head: open.least[1],
            first: open.first,
            brother: NONE,
            link: 0,
            word: 0,
            chain: 0,
        });
        (self.nodes.len() as u32 - 1, open.least[0])
    }

    /// Builds nodes from neighbours in the suffix array, children before parents.
    fn run(mut self, order: &[u32], common: &[u32]) -> Self {
        let mut stack: Vec<Open> = Vec::new();
        let leaf = |start: u32| (start | LEAF, start);
        let mut last = leaf(order[0]);
        for (start, depth) in order.iter().zip(common).skip(1) {
            let mut current = last;
            while let Some(mut top) = stack.pop_if(|top| top.depth > *depth) {
                self.add(&mut top, current);
                current = self.close(&top);
            }
            if stack.last().is_none_or(|top| top.depth < *depth) {
                stack.push(Open {
                    depth: *depth,
                    first: NONE,
                    last: NONE,
                    least: [NONE; 2],
                });
            }
            if let Some(mut top) = stack.pop() {
                self.add(&mut top, current);
                stack.push(top);
            }
            last = leaf(*start);
        }
        while let Some(mut top) = stack.pop() {
            self.add(&mut top, last);
            last = self.close(&top);
        }
        self
    }

    /// Sorts nodes by their head positions, the root first, and chains them. Returns their total words.
    fn arrange(&mut self) -> u64 {
        let count = self.nodes.len();
        let root = count - 1;
        self.nodes[root].head = 0;
        let mut at_head = vec![NONE; self.brothers.len() + 1];
        for (number, node) in (0u32..).zip(&self.nodes[..root]) {
            at_head[node.head as usize] = number;
        }
        let mut order = vec![root as u32];
        order.extend(at_head.iter().copied().filter(|n| *n != NONE));
        drop(at_head);
        let mut place = vec![0u32; count];
        for (new, old) in (0u32..).zip(&order) {
            place[*old as usize] = new;
        }
        let renamed = |reference: u32| match child(reference) {
            Some(Child::Node(node)) => place[node as usize],
            _ => reference,
        };
        let nodes: Vec<Node> = order
            .iter()
            .map(|old| {
                let node = self.nodes[*old as usize];
                Node {
                    first: renamed(node.first),
                    brother: renamed(node.brother),
                    ..node
                }
            })
            .collect();
        self.nodes = nodes;
        for brother in &mut self.brothers {
            *brother = renamed(*brother);
        }
        let small = |a: &Node, b: &Node| a.head + 1 == b.head && a.depth == b.depth + 1;
        let mut word = 0;
        for at in 0..count {
            self.nodes[at].word = word;
            let next = self.nodes.get(at + 1);
            let is_small = at > 0 && next.is_some_and(|next| small(&self.nodes[at], next));
            self.nodes[at].chain = u32::from(is_small);
            word += if is_small { SMALL } else { LARGE } as u32;
        }
        for at in (0..count - 1).rev() {
            if self.nodes[at].chain > 0 {
                self.nodes[at].chain = self.nodes[at + 1].chain + 1;
            }
        }
        u64::from(word)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{LARGE, Node, Tree};

    /// Every inner node by its string: strings followed by two different letters.
    fn branching(text: &[u8]) -> BTreeMap<Vec<u8>, u32> {
        let mut all = text.to_vec();
        all.push(4);
        let mut nodes = BTreeMap::new();
        for length in 0..all.len() {
            let mut seen: BTreeMap<&[u8], Vec<(usize, u8)>> = BTreeMap::new();
            for at in 0..all.len() - length {
                let after = seen.entry(&all[at..at + length]).or_default();
                after.push((at, all[at + length]));
            }
            for (string, after) in seen {
                // The suffix that created the node: the first one with another letter.
                if let Some((head, _)) = after.iter().find(|a| a.1 != after[0].1) {
                    nodes.insert(string.to_vec(), *head as u32);
                }
            }
        }
        nodes
    }

    proptest! {
        #[test]
        fn the_tree_is_that_of_the_definition(
            piece in proptest::collection::vec(0u8..4, 1..40),
            other in proptest::collection::vec(0u8..2, 0..40),
        ) {
            check([&piece[..], &other, &piece, &piece].concat())?;
        }

        /// One base, one letter only, and repeated records: every suffix link is a chain, and nodes are as
        /// deep as the text.
        #[test]
        fn nor_does_degenerate_input_break_it(
            unit in proptest::collection::vec(0u8..4, 1..5),
            turns in 1usize..40,
            cut in 0usize..5,
        ) {
            let text = unit.repeat(turns);
            check(text[..text.len() - cut.min(text.len() - 1)].to_vec())?;
        }
    }

    #[test]
    fn one_base_and_one_letter_are_texts() {
        for letter in 0..4 {
            for count in [1, 2, 3, 200] {
                check(vec![letter; count]).unwrap();
            }
        }
    }

    fn check(text: Vec<u8>) -> Result<(), TestCaseError> {
        let tree = Tree::new(text.clone());
        let expected = branching(&text);
        let string = |n: &Node| tree.text[n.head as usize..(n.head + n.depth) as usize].to_vec();
        let mut found = BTreeMap::new();
        for (number, node) in tree.nodes.iter().enumerate() {
            let head = if number == 0 {
                expected[&Vec::new()]
            } else {
                node.head
            };
            found.insert(string(node), head);
            // Checks suffix links, chains and the order of children.
            if node.depth > 1 {
                let link = &tree.nodes[node.link as usize];
                prop_assert_eq!(string(link), string(node)[1..].to_vec());
            }
            if node.chain > 0 {
                let end = &tree.nodes[number + node.chain as usize];
                prop_assert_eq!(node.word + 3 * node.chain, end.word);
                prop_assert_eq!(
                    (end.depth + node.chain, end.head - node.chain),
                    (node.depth, node.head)
                );
                prop_assert_eq!(node.link as usize, number + 1);
            }
            let mut letters = Vec::new();
            let mut at = tree.first(number as u32);
            while let Some(child) = at {
                letters.push(tree.letter(node.depth, child));
                at = tree.brother(child);
            }
            prop_assert!(letters.len() >= 2 && letters.windows(2).all(|w| w[0] < w[1]));
        }
        prop_assert_eq!(found, expected);
        let small = tree.nodes.iter().filter(|n| n.chain > 0).count() as u64;
        prop_assert_eq!(tree.words, LARGE * tree.nodes.len() as u64 - 2 * small);
        Ok(())
    }
}
