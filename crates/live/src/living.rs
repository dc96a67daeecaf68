//! What is numbered in the order in which it is made and kept as long as it lives.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Index, IndexMut};

/// The living of all that were ever made.
#[derive(Debug)]
pub(crate) struct Living<T> {
    made: usize,
    all: BTreeMap<usize, T>,
}

impl<T> Default for Living<T> {
    fn default() -> Self {
        Living {
            made: 0,
            all: BTreeMap::new(),
        }
    }
}

impl<T> Living<T> {
    /// The first of them.
    pub fn of(first: T) -> Self {
        let mut all = Living::default();
        all.push(first);
        all
    }
    /// One more; its number.
    pub fn push(&mut self, one: T) -> usize {
        let number = self.made;
        self.made += 1;
        self.all.insert(number, one);
        number
    }
    /// How many there ever were.
    pub fn made(&self) -> usize {
        self.made
    }
    /// How many live.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// The one with this number, if it lives.
    pub fn get(&self, number: usize) -> Option<&T> {
        self.all.get(&number)
    }
    /// The same, to change it.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(&number)
    }
    /// It lives no more; what it was.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        self.all.remove(&number)
    }
    /// The numbers of those that live, in order.
    pub fn numbers(&self) -> Vec<usize> {
        self.all.keys().copied().collect()
    }
    /// Those that live with their numbers, in order.
    pub fn iter(&self) -> btree_map::Iter<'_, usize, T> {
        self.all.iter()
    }
    /// Those that live, in order.
    pub fn values(&self) -> btree_map::Values<'_, usize, T> {
        self.all.values()
    }
    /// The same, to change them.
    pub fn values_mut(&mut self) -> btree_map::ValuesMut<'_, usize, T> {
        self.all.values_mut()
    }
    /// Numbers of `most` of them, from the first one above `last` on and around.
    pub fn after(&self, last: usize, most: usize) -> Vec<usize> {
        let above = self.all.range(last + 1..).map(|(n, _)| *n);
        let around = self.all.range(..=last).map(|(n, _)| *n);
        above.chain(around).take(most).collect()
    }
}

impl<T> Index<usize> for Living<T> {
    type Output = T;
    fn index(&self, number: usize) -> &T {
        &self.all[&number]
    }
}

impl<T> IndexMut<usize> for Living<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.all.get_mut(&number).expect("it lives")
    }
}
