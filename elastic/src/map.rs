//! The map.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::mem;
use core::ops::Index;
use core::ptr;

use crate::entry::{Entry, OccupiedEntry, VacantEntry};
use crate::iter::{
    Drain, IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Pairs, Values, ValuesMut,
};
use crate::raw::{Geometry, Shape, Slot, Table, TryReserveError};

/// The default hash function: SipHash with random keys, as in the standard library. An attacker who selects keys
/// cannot make them collide. Faster functions, such as `foldhash`, fit where nobody attacks.
#[cfg(feature = "std")]
pub type DefaultHashBuilder = std::hash::RandomState;

/// Without `std` there is no random key, hence no default: name a hasher in the map's type.
#[cfg(not(feature = "std"))]
#[derive(Clone, Copy, Debug)]
pub enum DefaultHashBuilder {}

/// The shape of a table of `T`.
pub(crate) struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Typed<T> {
    const GEOMETRY: Geometry = match Geometry::new(core::alloc::Layout::new::<T>()) {
        Some(geometry) => geometry,
        None => panic!("the entries are larger than the address space"),
    };
}

impl<T> Clone for Typed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Typed<T> {}

// SAFETY: It is a constant.
unsafe impl<T> Shape for Typed<T> {
    #[inline]
    fn geometry(self) -> Geometry {
        Self::GEOMETRY
    }
}

/// A table that owns its entries.
pub(crate) struct Owned<T>(pub(crate) Table<Typed<T>>);

impl<T> Owned<T> {
    pub(crate) const fn new() -> Self {
        Self(Table::new(Typed(PhantomData)))
    }
}

// SAFETY: The table owns its entries and shares no memory.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: A shared table only gives shared entries.
unsafe impl<T: Sync> Sync for Owned<T> {}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            let mut cursor = crate::raw::Cursor::new();
            // SAFETY: Nothing changes the table, which is being dropped.
            while let Some(slot) = unsafe { self.0.next(&mut cursor) } {
                // SAFETY: The entry is initialised, and never used again.
                unsafe { ptr::drop_in_place(slot.entry().cast::<T>()) };
            }
        }
    }
}

/// A hash map whose inserts never stop to rehash and whose memory never doubles.
///
/// It has the interface of the standard library's [`HashMap`](std::collections::HashMap). The differences:
///
/// - An insert adds one bucket at most, and moves the entries of one bucket to it. So each insert takes about the
///   same time.
/// - A removal may free memory: [`remove`](Self::remove), [`retain`](Self::retain), [`clear`](Self::clear) and
///   [`drain`](Self::drain) do.
/// - [`try_insert`](Self::try_insert) returns an error without memory. The map then is as it was before.
///
/// A lookup reads the tags of two buckets at once, and compares the keys with an equal tag. A miss usually reads
/// nothing else.
pub struct HashMap<K, V, S = DefaultHashBuilder> {
    pub(crate) table: Owned<(K, V)>,
    pub(crate) hash_builder: S,
}

/// A pair that found no room, because memory was missing.
pub struct InsertError<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The missing memory.
    pub error: TryReserveError,
}

impl<K, V> fmt::Debug for InsertError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for InsertError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no room for the pair: {}", self.error)
    }
}

impl<K, V> core::error::Error for InsertError<K, V> {}

/// Returns the hash of the entry at an address.
///
/// The function must only get addresses of entries of the map of these types.
pub(crate) fn rehash<K: Hash, V, S: BuildHasher>(hash_builder: &S) -> impl Fn(*const u8) -> u64 {
    // SAFETY: The address is that of an entry.
    move |entry| hash_builder.hash_one(unsafe { &(*entry.cast::<(K, V)>()).0 })
}

/// True for the entry of a key.
///
/// The function must only get addresses of entries of the map of these types.
fn same<K: Borrow<Q>, V, Q: ?Sized + Eq>(key: &Q) -> impl Fn(*const u8) -> bool {
    // SAFETY: The address is that of an entry.
    move |entry| unsafe { (*entry.cast::<(K, V)>()).0.borrow() == key }
}

#[cfg(feature = "std")]
impl<K, V> HashMap<K, V> {
    /// An empty map, which has no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[cfg(feature = "std")]
impl<K: Eq + Hash, V> HashMap<K, V> {
    /// An empty map with room for `capacity` entries.
    ///
    /// # Panics
    ///
    /// If the room exceeds the address space.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, DefaultHashBuilder::default())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// An empty map, which has no memory yet, with this hash function.
    pub const fn with_hasher(hash_builder: S) -> Self {
        Self {
            table: Owned::new(),
            hash_builder,
        }
    }

    /// The hash function.
    pub fn hasher(&self) -> &S {
        &self.hash_builder
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.0.len()
    }

    /// True without entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries for which there is room before the map grows by the next bucket.
    pub fn capacity(&self) -> usize {
        self.table.0.capacity()
    }

    /// Bytes of memory that the map has allocated, without that of keys and values themselves.
    pub fn allocated_bytes(&self) -> usize {
        self.table.0.allocated_bytes()
    }

    /// Entries that found no room in their two buckets: zero or few, unless many hashes are equal.
    pub fn stashed(&self) -> usize {
        self.table.0.stashed()
    }

    pub(crate) fn pairs(&self) -> Pairs<K, V> {
        Pairs::new(&self.table)
    }

    /// All pairs, in no particular order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(self.pairs())
    }

    /// All pairs with mutable values, in no particular order.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut::new(self.pairs())
    }

    /// All keys, in no particular order.
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// All values, in no particular order.
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// All values, mutable and in no particular order.
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// All keys, without the map.
    pub fn into_keys(self) -> IntoKeys<K, V> {
        IntoKeys(self.into_iter())
    }

    /// All values, without the map.
    pub fn into_values(self) -> IntoValues<K, V> {
        IntoValues(self.into_iter())
    }

    /// Takes all pairs out of the map, which has no memory afterwards.
    pub fn drain(&mut self) -> Drain<'_, K, V> {
        Drain::new(mem::replace(&mut self.table, Owned::new()))
    }

    /// Removes all entries and frees the memory.
    pub fn clear(&mut self) {
        self.table = Owned::new();
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> HashMap<K, V, S> {
    /// An empty map with room for `capacity` entries and with this hash function.
    ///
    /// # Panics
    ///
    /// If the room exceeds the address space.
    pub fn with_capacity_and_hasher(capacity: usize, hash_builder: S) -> Self {
        let mut map = Self::with_hasher(hash_builder);
        map.reserve(capacity);
        map
    }

    /// Makes room for `additional` more entries, and keeps room for that many until [`Self::shrink_to_fit`].
    ///
    /// # Panics
    ///
    /// If the room exceeds the address space.
    pub fn reserve(&mut self, additional: usize) {
        self.try_reserve(additional)
            .unwrap_or_else(|error| error.handle());
    }

    /// Makes room as [`Self::reserve`] does.
    ///
    /// # Errors
    ///
    /// There is not enough memory. The map then is as it was before.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        self.table
            .0
            .reserve(additional, rehash::<K, V, S>(&self.hash_builder))
    }

    /// Frees the memory that the entries do not need.
    pub fn shrink_to_fit(&mut self) {
        self.table
            .0
            .shrink_to_fit(rehash::<K, V, S>(&self.hash_builder));
    }

    #[inline]
    pub(crate) fn find<Q: ?Sized + Eq + Hash>(&self, hash: u64, key: &Q) -> Option<Slot>
    where
        K: Borrow<Q>,
    {
        self.table.0.find(hash, same::<K, V, Q>(key))
    }

    #[inline]
    fn find_pair<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> Option<*mut (K, V)>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        Some(
            self.find(self.hash_builder.hash_one(key), key)?
                .entry()
                .cast(),
        )
    }

    /// The value of a key.
    #[inline]
    pub fn get<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: The pair lives as long as the map is borrowed.
        self.find_pair(key).map(|pair| unsafe { &(*pair).1 })
    }

    /// The value of a key, mutable.
    #[inline]
    pub fn get_mut<Q: ?Sized + Eq + Hash>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: The pair lives as long as the map is borrowed, which is exclusively.
        self.find_pair(key).map(|pair| unsafe { &mut (*pair).1 })
    }

    /// The stored key and the value of a key.
    #[inline]
    pub fn get_key_value<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        // SAFETY: The pair lives as long as the map is borrowed.
        self.find_pair(key)
            .map(|pair| unsafe { (&(*pair).0, &(*pair).1) })
    }

    /// True if the map has this key.
    #[inline]
    pub fn contains_key<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find_pair(key).is_some()
    }

    /// Sets the value of a key, and returns the former value.
    ///
    /// The stored key stays the same if the map has it.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.try_insert(key, value) {
            Ok(former) => former,
            Err(InsertError { error, .. }) => error.handle(),
        }
    }

    /// Sets the value of a key, and returns the former value.
    ///
    /// # Errors
    ///
    /// The map has to grow and there is no memory. The map then is as it was before, and the error has the pair.
    #[inline]
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, InsertError<K, V>> {
        let found = self.table.0.find_or_insert(
            self.hash_builder.hash_one(&key),
            same::<K, V, K>(&key),
            rehash::<K, V, S>(&self.hash_builder),
        );
        match found {
            Ok((slot, inserted)) => {
                let pair = slot.entry().cast::<(K, V)>();
                // SAFETY: The map is borrowed exclusively. A new entry is for a pair, which is written before anything
                // else happens.
                unsafe {
                    if inserted {
                        pair.write((key, value));
                        Ok(None)
                    } else {
                        Ok(Some(mem::replace(&mut (*pair).1, value)))
                    }
                }
            }
            Err(error) => Err(InsertError { key, value, error }),
        }
    }

    /// Inserts a key that the map does not have.
    #[inline]
    pub(crate) fn insert_new(
        &mut self,
        hash: u64,
        key: K,
        value: V,
    ) -> Result<Slot, InsertError<K, V>> {
        match self
            .table
            .0
            .insert(hash, rehash::<K, V, S>(&self.hash_builder))
        {
            Ok(slot) => {
                // SAFETY: The table made the entry for a pair, which is written before anything else happens.
                unsafe { slot.entry().cast::<(K, V)>().write((key, value)) };
                Ok(slot)
            }
            Err(error) => Err(InsertError { key, value, error }),
        }
    }

    /// Removes a key and returns its value.
    #[inline]
    pub fn remove<Q: ?Sized + Eq + Hash>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes a key and returns the stored key and its value.
    #[inline]
    pub fn remove_entry<Q: ?Sized + Eq + Hash>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        let slot = self.find(self.hash_builder.hash_one(key), key)?;
        // SAFETY: The slot was just found.
        Some(unsafe { self.remove_slot(slot) })
    }

    /// Removes the pair of a slot.
    ///
    /// # Safety
    ///
    /// The slot is one of this map, which has not changed since.
    #[inline]
    pub(crate) unsafe fn remove_slot(&mut self, slot: Slot) -> (K, V) {
        // SAFETY: The slot is full. Its pair is taken once, since the slot is empty afterwards.
        let pair = unsafe {
            let pair = slot.entry().cast::<(K, V)>().read();
            self.table.0.erase(slot);
            pair
        };
        self.table.0.shrink(rehash::<K, V, S>(&self.hash_builder));
        pair
    }

    /// The entry of a key, to be read, changed or inserted.
    #[inline]
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V, S> {
        let hash = self.hash_builder.hash_one(&key);
        match self.find(hash, &key) {
            Some(slot) => Entry::Occupied(OccupiedEntry { slot, map: self }),
            None => Entry::Vacant(VacantEntry {
                hash,
                key,
                map: self,
            }),
        }
    }

    /// Keeps only the entries for which `keep` is true, and frees memory.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut rejected: Option<(K, V)> = None;
        self.table.0.retain(|entry| {
            // The pair before is dropped when the table no longer has it.
            rejected = None;
            // SAFETY: The address is that of an entry of this map, which is borrowed exclusively. The table erases
            // the entry if it is rejected, and calls nothing before.
            unsafe {
                let (key, value) = &mut *entry.cast::<(K, V)>();
                let kept = keep(key, value);
                if !kept {
                    rejected = Some(entry.cast::<(K, V)>().read());
                }
                kept
            }
        });
        drop(rejected);
        self.table
            .0
            .shrink_all(rehash::<K, V, S>(&self.hash_builder));
    }
}

#[cfg_attr(not(feature = "std"), allow(clippy::derivable_impls))]
impl<K, V, S: Default> Default for HashMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone, S: Clone + BuildHasher> Clone for HashMap<K, V, S> {
    fn clone(&self) -> Self {
        let mut map = Self::with_hasher(self.hash_builder.clone());
        map.extend(self.iter().map(|(key, value)| (key.clone(), value.clone())));
        map
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for HashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Eq + Hash, V: PartialEq, S: BuildHasher> PartialEq for HashMap<K, V, S> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K: Eq + Hash, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

impl<K: Eq + Hash + Borrow<Q>, Q: ?Sized + Eq + Hash, V, S: BuildHasher> Index<&Q>
    for HashMap<K, V, S>
{
    type Output = V;

    /// The value of a key.
    ///
    /// # Panics
    ///
    /// If the map does not have the key.
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry for the key")
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Extend<(K, V)> for HashMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl<'a, K: Eq + Hash + Copy, V: Copy, S: BuildHasher> Extend<(&'a K, &'a V)> for HashMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, pairs: I) {
        self.extend(pairs.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> FromIterator<(K, V)> for HashMap<K, V, S> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        map.extend(pairs);
        map
    }
}

#[cfg(feature = "std")]
impl<K: Eq + Hash, V, const N: usize> From<[(K, V); N]> for HashMap<K, V> {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl<K, V, S> IntoIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter::new(self.table)
    }
}

impl<'a, K, V, S> IntoIterator for &'a HashMap<K, V, S> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V, S> IntoIterator for &'a mut HashMap<K, V, S> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}
