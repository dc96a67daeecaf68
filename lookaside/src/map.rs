//! Maps of the standard library and of hashbrown behind a table.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ptr::NonNull;

use rustc_hash::FxBuildHasher;

use crate::rows::Error;
use crate::switch::Statistics;
use crate::table::{BATCH, Found, Table};

/// A key by which an [`Index`] finds an [`Entry`].
#[derive(Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Key<Q: ?Sized>(Q);

impl<Q: ?Sized> Key<Q> {
    fn of(key: &Q) -> &Self {
        // SAFETY: `Key` is transparent over its only field.
        unsafe { &*(std::ptr::from_ref(key) as *const Self) }
    }
}

struct Record<K, V> {
    /// The hash of all rows of this record. Kept, since a hash function of the caller may change its mind.
    hash: u64,
    key: K,
    value: V,
}

/// A record in memory of its own: it stays where it is when the index moves the entry.
///
/// Entries compare and hash as their keys do.
pub struct Entry<K, V>(NonNull<Record<K, V>>);

// SAFETY: an entry owns its record, as a box does.
unsafe impl<K: Send, V: Send> Send for Entry<K, V> {}
// SAFETY: as above.
unsafe impl<K: Sync, V: Sync> Sync for Entry<K, V> {}

impl<K, V> Entry<K, V> {
    fn new(hash: u64, key: K, value: V) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Record {
            hash,
            key,
            value,
        }))))
    }

    fn record(&self) -> &Record<K, V> {
        // SAFETY: the record lives as long as its entry. Only `Map::get_mut` gives mutable access, and
        // borrows the whole map mutably.
        unsafe { self.0.as_ref() }
    }

    fn into_record(self) -> Box<Record<K, V>> {
        let record = self.0;
        std::mem::forget(self);
        // SAFETY: `new` leaked this box, and the entry that owned it is forgotten.
        unsafe { Box::from_raw(record.as_ptr()) }
    }
}

impl<K, V> Drop for Entry<K, V> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked this box, and its owner goes now.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<K: Borrow<Q>, Q: ?Sized, V> Borrow<Key<Q>> for Entry<K, V> {
    fn borrow(&self) -> &Key<Q> {
        Key::of(self.record().key.borrow())
    }
}

impl<K: PartialEq, V> PartialEq for Entry<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.record().key == other.record().key
    }
}

impl<K: Eq, V> Eq for Entry<K, V> {}

impl<K: PartialOrd, V> PartialOrd for Entry<K, V> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.record().key.partial_cmp(&other.record().key)
    }
}

impl<K: Ord, V> Ord for Entry<K, V> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.record().key.cmp(&other.record().key)
    }
}

impl<K: Hash, V> Hash for Entry<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.record().key.hash(state);
    }
}

/// Empties the table if the index unwinds. Sets of hashes may drop entries then, whose rows would stay.
struct FlushOnUnwind<'a>(&'a Table);

impl Drop for FlushOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.flush();
    }
}

mod sealed {
    /// Implemented here only: a set that drops entries on its own would leave rows of freed records.
    pub trait Sealed {}
}

/// A set of entries that finds them by key.
pub trait Index<K, V>: sealed::Sealed {
    /// The entry of this key.
    fn get<Q>(&self, key: &Key<Q>) -> Option<&Entry<K, V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord;

    /// Puts an entry in place of the one with an equal key, which it returns.
    fn replace(&mut self, entry: Entry<K, V>) -> Option<Entry<K, V>>;

    /// Takes out the entry of this key.
    fn take<Q>(&mut self, key: &Key<Q>) -> Option<Entry<K, V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord;

    /// Number of entries.
    fn len(&self) -> usize;

    /// True if there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, in the order of the set.
    fn iter<'a>(&'a self) -> impl Iterator<Item = &'a Entry<K, V>>
    where
        K: 'a,
        V: 'a;
}

macro_rules! index {
    ($($set:ty $(where $hasher:ident)?),*) => {$(
        impl<K, V $(, $hasher)?> sealed::Sealed for $set {}

        impl<K: Hash + Ord, V $(, $hasher: BuildHasher)?> Index<K, V> for $set {
            fn get<Q>(&self, key: &Key<Q>) -> Option<&Entry<K, V>>
            where
                K: Borrow<Q>,
                Q: ?Sized + Hash + Ord,
            {
                Self::get(self, key)
            }

            fn replace(&mut self, entry: Entry<K, V>) -> Option<Entry<K, V>> {
                Self::replace(self, entry)
            }

            fn take<Q>(&mut self, key: &Key<Q>) -> Option<Entry<K, V>>
            where
                K: Borrow<Q>,
                Q: ?Sized + Hash + Ord,
            {
                Self::take(self, key)
            }

            fn len(&self) -> usize {
                Self::len(self)
            }

            fn iter<'a>(&'a self) -> impl Iterator<Item = &'a Entry<K, V>>
            where
                K: 'a,
                V: 'a,
            {
                Self::iter(self)
            }
        }
    )*};
}

index!(BTreeSet<Entry<K, V>>, HashSet<Entry<K, V>, S> where S);
#[cfg(feature = "hashbrown")]
index!(hashbrown::HashSet<Entry<K, V>, S> where S);

/// A map whose lookups go through a [`Table`].
///
/// `M` is the index: a `BTreeSet`, a `HashSet`, or with the feature `hashbrown` its `HashSet`. Each record
/// has memory of its own, so its address is stable. `H` hashes keys for the table.
///
/// Lookups borrow the map, so many threads may look up at once. Changes borrow it mutably.
///
/// ```
/// use std::collections::BTreeSet;
///
/// let mut map: lookaside::Map<String, u32, BTreeSet<_>> = lookaside::Map::new(BTreeSet::new(), 1024)?;
/// map.insert("one".to_owned(), 1);
/// assert_eq!(map.get("one"), Some(&1));
/// assert_eq!(map.remove("one"), Some(1));
/// assert_eq!(map.get("one"), None);
/// # Ok::<(), lookaside::Error>(())
/// ```
pub struct Map<K, V, M, H = FxBuildHasher> {
    index: M,
    table: Table,
    hasher: H,
    // Entries leave the index through the map only.
    entries: PhantomData<Entry<K, V>>,
}

impl<K: Hash + Ord, V, M: Index<K, V>> Map<K, V, M> {
    /// Puts a table of at least `rows` rows in front of an index.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`].
    pub fn new(index: M, rows: usize) -> Result<Self, Error> {
        Self::with_hasher(index, rows, FxBuildHasher)
    }
}

impl<K: Hash + Ord, V, M: Index<K, V>, H: BuildHasher> Map<K, V, M, H> {
    /// As [`Map::new`], with a hash function for the table.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`].
    pub fn with_hasher(index: M, rows: usize, hasher: H) -> Result<Self, Error> {
        Ok(Self {
            index,
            table: Table::new(rows)?,
            hasher,
            entries: PhantomData,
        })
    }

    fn hash<Q: ?Sized + Hash>(&self, key: &Q) -> u64 {
        // Hash functions of maps promise good bits at one end only.
        crate::mix(self.hasher.hash_one(key))
    }

    fn verify<Q: ?Sized + Eq>(at: NonNull<u8>, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        // SAFETY: rows hold addresses of this map's records, and are emptied before a record goes.
        unsafe { at.cast::<Record<K, V>>().as_ref() }.key.borrow() == key
    }

    /// Finds the record in the index, and inserts its row if the table is in use.
    fn find_in_index<Q>(&self, key: &Q, admitted: bool) -> Option<NonNull<Record<K, V>>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        let entry = self.index.get(Key::of(key))?;
        if admitted {
            self.table.insert(entry.record().hash, entry.0.cast());
        }
        Some(entry.0)
    }

    #[inline]
    fn record<Q>(&self, key: &Q) -> Option<NonNull<Record<K, V>>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        if !self.table.admit(1) {
            return self.find_in_index(key, false);
        }
        let found = self.table.find(self.hash(key), |at| Self::verify(at, key));
        found
            .map(NonNull::cast)
            .or_else(|| self.find_in_index(key, true))
    }

    /// The value of this key.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        // SAFETY: the record is in the index, which self borrows.
        self.record(key)
            .map(|record| &unsafe { record.as_ref() }.value)
    }

    /// The value of this key, for changes.
    #[inline]
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        // SAFETY: the record is in the index, which self borrows mutably.
        self.record(key)
            .map(|mut record| &mut unsafe { record.as_mut() }.value)
    }

    /// Passes the value of each key to `each` with the key's position. Waits for memory overlap.
    pub fn get_batch<'a, Q>(&'a self, keys: &[&Q], mut each: impl FnMut(usize, Option<&'a V>))
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        for (group, keys) in keys.chunks(BATCH).enumerate() {
            let mut hashes = [0; BATCH];
            let mut found: [Found; BATCH] = [None; BATCH];
            let admitted = self.table.admit(keys.len() as u32);
            if admitted {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = self.hash(*key);
                }
                self.table
                    .find_batch(&hashes[..keys.len()], &mut found, |position, at| {
                        Self::verify(at, keys[position])
                    });
            }
            for (position, key) in keys.iter().enumerate() {
                let found = found[position]
                    .map(NonNull::cast)
                    .or_else(|| self.find_in_index(*key, admitted));
                // SAFETY: the record is in the index, which self borrows.
                let value = found.map(|at: NonNull<Record<K, V>>| &unsafe { at.as_ref() }.value);
                each(group * BATCH + position, value);
            }
        }
    }

    /// Inserts a record in place of the one with an equal key, whose value it returns.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hash(&key);
        let entry = Entry::new(hash, key, value);
        let at = entry.0;
        let guard = FlushOnUnwind(&self.table);
        let old = self.index.replace(entry);
        std::mem::forget(guard);
        if let Some(old) = &old {
            self.table.invalidate(old.record().hash);
        }
        self.table.insert(hash, at.cast());
        old.map(|old| old.into_record().value)
    }

    /// Removes the record of this key and returns its value.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord,
    {
        let guard = FlushOnUnwind(&self.table);
        let old = self.index.take(Key::of(key));
        std::mem::forget(guard);
        let old = old?;
        self.table.invalidate(old.record().hash);
        Some(old.into_record().value)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if there is no record.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All keys and values, in the order of the index.
    pub fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: 'a,
        V: 'a,
    {
        self.index
            .iter()
            .map(|entry| (&entry.record().key, &entry.record().value))
    }

    /// Replaces the table with an empty one of at least `rows` rows.
    ///
    /// # Errors
    ///
    /// Those of [`Table::resize`]. The table is then unchanged.
    pub fn resize(&mut self, rows: usize) -> Result<(), Error> {
        self.table.resize(rows)
    }

    /// Keeps the table on, or lets it switch itself off where it does not pay, as new maps do.
    pub fn set_automatic(&self, automatic: bool) {
        self.table.set_automatic(automatic);
    }

    /// Counts of the table.
    pub fn statistics(&self) -> Statistics {
        self.table.statistics()
    }
}
