//! Entries of a map, present or not.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::mem;

use crate::map::{HashMap, InsertError};
use crate::raw::Slot;

/// The entry of a key: [`HashMap::entry`].
pub enum Entry<'a, K, V, S> {
    /// The map has the key.
    Occupied(OccupiedEntry<'a, K, V, S>),
    /// The map does not have the key.
    Vacant(VacantEntry<'a, K, V, S>),
}

/// An entry that the map has.
pub struct OccupiedEntry<'a, K, V, S> {
    pub(crate) slot: Slot,
    pub(crate) map: &'a mut HashMap<K, V, S>,
}

/// An entry that the map does not have yet.
pub struct VacantEntry<'a, K, V, S> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) map: &'a mut HashMap<K, V, S>,
}

// SAFETY: The slot points into the map, which is borrowed exclusively.
unsafe impl<K: Send, V: Send, S: Send> Send for OccupiedEntry<'_, K, V, S> {}
// SAFETY: A shared entry only gives shared references.
unsafe impl<K: Sync, V: Sync, S: Sync> Sync for OccupiedEntry<'_, K, V, S> {}

impl<'a, K: Eq + Hash, V, S: BuildHasher> Entry<'a, K, V, S> {
    /// The key that was asked for.
    pub fn key(&self) -> &K {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => entry.key(),
        }
    }

    /// The value, after inserting this one if there is none.
    #[inline]
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value, after inserting that of a function if there is none.
    #[inline]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        self.or_insert_with_key(|_| value())
    }

    /// The value, after inserting that of a function of the key if there is none.
    #[inline]
    pub fn or_insert_with_key(self, value: impl FnOnce(&K) -> V) -> &'a mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => {
                let value = value(&entry.key);
                entry.insert(value)
            }
        }
    }

    /// The value, after inserting the type's default if there is none.
    #[inline]
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Changes the value if there is one.
    #[inline]
    #[must_use]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    /// Sets the value.
    pub fn insert_entry(self, value: V) -> OccupiedEntry<'a, K, V, S> {
        match self {
            Self::Occupied(mut entry) => {
                entry.insert(value);
                entry
            }
            Self::Vacant(entry) => entry.insert_entry(value),
        }
    }
}

impl<'a, K: Eq + Hash, V, S: BuildHasher> OccupiedEntry<'a, K, V, S> {
    fn pair(&self) -> *mut (K, V) {
        self.slot.entry().cast()
    }

    /// The stored key.
    pub fn key(&self) -> &K {
        // SAFETY: The map is borrowed and has the pair.
        unsafe { &(*self.pair()).0 }
    }

    /// The value.
    pub fn get(&self) -> &V {
        // SAFETY: The map is borrowed and has the pair.
        unsafe { &(*self.pair()).1 }
    }

    /// The value, mutable.
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: The map is borrowed exclusively and has the pair.
        unsafe { &mut (*self.pair()).1 }
    }

    /// The value, for as long as the map is borrowed.
    pub fn into_mut(self) -> &'a mut V {
        // SAFETY: The map is borrowed exclusively and has the pair.
        unsafe { &mut (*self.pair()).1 }
    }

    /// Sets the value, and returns the former one.
    pub fn insert(&mut self, value: V) -> V {
        mem::replace(self.get_mut(), value)
    }

    /// Removes the entry and returns its value.
    pub fn remove(self) -> V {
        self.remove_entry().1
    }

    /// Removes the entry and returns the stored key and its value.
    pub fn remove_entry(self) -> (K, V) {
        // SAFETY: The map has not changed since the slot was found.
        unsafe { self.map.remove_slot(self.slot) }
    }
}

impl<'a, K: Eq + Hash, V, S: BuildHasher> VacantEntry<'a, K, V, S> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key, without an insert.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Inserts the value.
    #[inline]
    pub fn insert(self, value: V) -> &'a mut V {
        self.insert_entry(value).into_mut()
    }

    /// Inserts the value and returns the entry.
    #[inline]
    pub fn insert_entry(self, value: V) -> OccupiedEntry<'a, K, V, S> {
        match self.map.insert_new(self.hash, self.key, value) {
            Ok(slot) => OccupiedEntry {
                slot,
                map: self.map,
            },
            Err(InsertError { error, .. }) => error.handle(),
        }
    }
}

impl<K: fmt::Debug + Eq + Hash, V: fmt::Debug, S: BuildHasher> fmt::Debug for Entry<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(entry) => f
                .debug_tuple("Occupied")
                .field(entry.key())
                .field(entry.get())
                .finish(),
            Self::Vacant(entry) => f.debug_tuple("Vacant").field(&entry.key).finish(),
        }
    }
}
