//! Objects numbered in order of creation, and kept while they live.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Index, IndexMut};

/// The living objects of a numbering.
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
    /// Starts with one object, number 0.
    pub fn of(first: T) -> Self {
        let mut all = Living::default();
        all.push(first);
        all
    }
    /// Adds an object, and returns its number.
    pub fn push(&mut self, one: T) -> usize {
        let number = self.made;
        self.made += 1;
        self.all.insert(number, one);
        number
    }
    /// Objects created so far.
    pub fn made(&self) -> usize {
        self.made
    }
    /// Objects that live.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// True if no object lives.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// The object with this number, if it lives.
    pub fn get(&self, number: usize) -> Option<&T> {
        self.all.get(&number)
    }
    /// As [`Living::get`], mutable.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(&number)
    }
    /// Removes an object, and returns it.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        self.all.remove(&number)
    }
    /// Numbers of the living objects, in order.
    pub fn numbers(&self) -> Vec<usize> {
        self.all.keys().copied().collect()
    }
    /// The living objects with their numbers, in order.
    pub fn iter(&self) -> btree_map::Iter<'_, usize, T> {
        self.all.iter()
    }
    /// The living objects, in order.
    pub fn values(&self) -> btree_map::Values<'_, usize, T> {
        self.all.values()
    }
    /// As [`Living::values`], mutable.
    pub fn values_mut(&mut self) -> btree_map::ValuesMut<'_, usize, T> {
        self.all.values_mut()
    }
    /// Numbers of at most `most` objects: those above `last`, then from the lowest on.
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
