//! Iterators over the pairs of a map.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem;
use core::ptr;

use crate::map::{Owned, Typed};
use crate::raw::{Cursor, Table};

/// Addresses of all pairs of a table, which must not change meanwhile.
pub(crate) struct Pairs<K, V> {
    table: *const Table<Typed<(K, V)>>,
    cursor: Cursor,
    left: usize,
}

impl<K, V> Pairs<K, V> {
    pub(crate) fn new(table: &Owned<(K, V)>) -> Self {
        Self {
            table: &raw const table.0,
            cursor: Cursor::new(),
            left: table.0.len(),
        }
    }

    /// The next pair.
    ///
    /// # Safety
    ///
    /// The table still exists, and has not changed since [`Self::new`].
    #[inline]
    unsafe fn next(&mut self) -> Option<*mut (K, V)> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: The caller guarantees it.
        unsafe {
            (*self.table)
                .next(&mut self.cursor)
                .map(|slot| slot.entry().cast())
        }
    }
}

impl<K, V> Clone for Pairs<K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// Iterator of [`HashMap::iter`](crate::HashMap::iter).
pub struct Iter<'a, K, V> {
    pairs: Pairs<K, V>,
    map: PhantomData<&'a (K, V)>,
}

impl<K, V> Iter<'_, K, V> {
    /// The caller ties the lifetime to the borrow of the map.
    pub(crate) fn new(pairs: Pairs<K, V>) -> Self {
        Self {
            pairs,
            map: PhantomData,
        }
    }
}

// SAFETY: The iterator is a shared borrow of the map.
unsafe impl<K: Sync, V: Sync> Send for Iter<'_, K, V> {}
// SAFETY: As above.
unsafe impl<K: Sync, V: Sync> Sync for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self::new(self.pairs.clone())
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: The map is borrowed as long as the iterator lives.
        unsafe { self.pairs.next().map(|pair| (&(*pair).0, &(*pair).1)) }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.pairs.left, Some(self.pairs.left))
    }
}

/// Iterator of [`HashMap::iter_mut`](crate::HashMap::iter_mut).
pub struct IterMut<'a, K, V> {
    pairs: Pairs<K, V>,
    map: PhantomData<&'a mut (K, V)>,
}

impl<K, V> IterMut<'_, K, V> {
    /// The caller ties the lifetime to the exclusive borrow of the map.
    pub(crate) fn new(pairs: Pairs<K, V>) -> Self {
        Self {
            pairs,
            map: PhantomData,
        }
    }
}

// SAFETY: The iterator is an exclusive borrow of the map.
unsafe impl<K: Send, V: Send> Send for IterMut<'_, K, V> {}
// SAFETY: A shared iterator gives nothing.
unsafe impl<K: Sync, V: Sync> Sync for IterMut<'_, K, V> {}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: The map is borrowed exclusively as long as the iterator lives, which gives each pair once.
        unsafe { self.pairs.next().map(|pair| (&(*pair).0, &mut (*pair).1)) }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.pairs.left, Some(self.pairs.left))
    }
}

/// Iterator of [`HashMap::into_iter`](crate::HashMap::into_iter).
pub struct IntoIter<K, V> {
    /// The table owns the pairs that are still to come, by this iterator's destructor and not by its own.
    table: mem::ManuallyDrop<Owned<(K, V)>>,
    cursor: Cursor,
    left: usize,
}

impl<K, V> IntoIter<K, V> {
    pub(crate) fn new(table: Owned<(K, V)>) -> Self {
        Self {
            left: table.0.len(),
            table: mem::ManuallyDrop::new(table),
            cursor: Cursor::new(),
        }
    }
}

// SAFETY: The iterator owns the pairs. Its cursor points into the memory of its own table.
unsafe impl<K: Send, V: Send> Send for IntoIter<K, V> {}
// SAFETY: A shared iterator gives nothing.
unsafe impl<K: Sync, V: Sync> Sync for IntoIter<K, V> {}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    #[inline]
    fn next(&mut self) -> Option<(K, V)> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: The iterator owns the table and changes nothing before it frees it.
        let slot = unsafe { self.table.0.next(&mut self.cursor) }?;
        // SAFETY: The cursor gives each pair once.
        Some(unsafe { slot.entry().cast::<(K, V)>().read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> Drop for IntoIter<K, V> {
    fn drop(&mut self) {
        /// Frees the memory, also if a destructor of a pair panics.
        struct Free<'a, K, V>(&'a mut Owned<(K, V)>);
        impl<K, V> Drop for Free<'_, K, V> {
            fn drop(&mut self) {
                self.0.0.clear();
            }
        }
        let free = Free(&mut self.table);
        if mem::needs_drop::<(K, V)>() {
            // SAFETY: As in `next`.
            while let Some(slot) = unsafe { free.0.0.next(&mut self.cursor) } {
                // SAFETY: The cursor gives each pair once.
                unsafe { ptr::drop_in_place(slot.entry().cast::<(K, V)>()) };
            }
        }
    }
}

/// Iterator of [`HashMap::drain`](crate::HashMap::drain).
pub struct Drain<'a, K, V> {
    pairs: IntoIter<K, V>,
    map: PhantomData<&'a mut (K, V)>,
}

impl<K, V> Drain<'_, K, V> {
    /// The caller ties the lifetime to the exclusive borrow of the map, as in the standard library.
    pub(crate) fn new(table: Owned<(K, V)>) -> Self {
        Self {
            pairs: IntoIter::new(table),
            map: PhantomData,
        }
    }
}

impl<K, V> Iterator for Drain<'_, K, V> {
    type Item = (K, V);

    #[inline]
    fn next(&mut self) -> Option<(K, V)> {
        self.pairs.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pairs.size_hint()
    }
}

/// An iterator that gives a part of the pairs of another.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident<$($lifetime:lifetime)?>, $pairs:ty, $item:ty, $part:tt) => {
        $(#[$doc])*
        pub struct $name<$($lifetime,)? K, V>(pub(crate) $pairs);

        impl<$($lifetime,)? K, V> Iterator for $name<$($lifetime,)? K, V> {
            type Item = $item;

            #[inline]
            fn next(&mut self) -> Option<$item> {
                self.0.next().map(|pair| pair.$part)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }
    };
}

part!(
    /// Iterator of [`HashMap::keys`](crate::HashMap::keys).
    Keys<'a>, Iter<'a, K, V>, &'a K, 0
);
part!(
    /// Iterator of [`HashMap::values`](crate::HashMap::values).
    Values<'a>, Iter<'a, K, V>, &'a V, 1
);
part!(
    /// Iterator of [`HashMap::values_mut`](crate::HashMap::values_mut).
    ValuesMut<'a>, IterMut<'a, K, V>, &'a mut V, 1
);
part!(
    /// Iterator of [`HashMap::into_keys`](crate::HashMap::into_keys).
    IntoKeys<>, IntoIter<K, V>, K, 0
);
part!(
    /// Iterator of [`HashMap::into_values`](crate::HashMap::into_values).
    IntoValues<>, IntoIter<K, V>, V, 1
);

impl<K, V> Clone for Keys<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Clone for Values<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Traits that all iterators have: the number of items is known, and nothing comes after the end.
macro_rules! exact {
    ($($name:ty),*) => {$(
        impl<K, V> ExactSizeIterator for $name {}

        impl<K, V> FusedIterator for $name {}

        impl<K, V> fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("left", &self.len()).finish()
            }
        }
    )*};
}

exact!(
    Iter<'_, K, V>, IterMut<'_, K, V>, IntoIter<K, V>, Drain<'_, K, V>, Keys<'_, K, V>, Values<'_, K, V>,
    ValuesMut<'_, K, V>, IntoKeys<K, V>, IntoValues<K, V>
);
