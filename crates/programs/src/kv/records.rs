//! The host's data of a structure's records, by record number, and the lengths of their values.

/// Records by number. Numbers of erased records are reused.
pub struct Records<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Records {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Records<T> {
    /// Adds a record and returns its number.
    pub fn add(&mut self, record: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = record;
            return id;
        }
        self.all.push(record);
        self.all.len() as u32 - 1
    }

    /// Frees number `id`.
    pub fn remove(&mut self, id: u32) {
        debug_assert!(!self.free.contains(&id) || self.free.len() > 1000);
        self.free.push(id);
    }

    /// Number of records present.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// True if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record by number, if that number was ever used.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.all.get(id as usize)
    }

    /// The records in use, with their numbers.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let free: std::collections::HashSet<u32> = self.free.iter().copied().collect();
        let all = (0..).zip(&self.all);
        all.filter(move |(id, _)| !free.contains(id))
    }
}

impl<T> std::ops::Index<usize> for Records<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, id: usize) -> &T {
        &self.all[id]
    }
}

impl<T> std::ops::IndexMut<usize> for Records<T> {
    #[inline(always)]
    fn index_mut(&mut self, id: usize) -> &mut T {
        &mut self.all[id]
    }
}

/// Length of a value and capacity of its text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Length of the value.
    pub bytes: u16,
    /// Capacity of its text, without the final zero.
    pub room: u16,
}

/// Lengths of the values of all records.
pub struct Sizes {
    first: Size,
    /// Per record number, if SETs write other lengths.
    each: Option<Vec<Size>>,
}

impl Sizes {
    /// All values have `bytes`.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes as u16;
        Sizes {
            first: Size { bytes, room: bytes },
            each: None,
        }
    }

    /// Allows lengths to differ from now on.
    pub fn differ(&mut self) {
        self.each.get_or_insert_default();
    }

    /// Size of the value of record `id`.
    #[inline(always)]
    pub fn of(&self, id: u32) -> Size {
        match &self.each {
            None => self.first,
            Some(each) => *each.get(id as usize).unwrap_or(&self.first),
        }
    }

    /// Length of its value in bytes.
    #[inline(always)]
    pub fn bytes(&self, id: u32) -> u64 {
        u64::from(self.of(id).bytes)
    }

    /// Sets the value of record `id` to `bytes`, with text capacity `room`.
    pub fn set(&mut self, id: u32, bytes: u64, room: u64) {
        if let Some(each) = &mut self.each {
            let at = id as usize;
            if each.len() <= at {
                each.resize(at + 1, self.first);
            }
            each[at] = Size {
                bytes: bytes as u16,
                room: room as u16,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Records, Size, Sizes};

    #[test]
    fn numbers_are_taken_again() {
        let mut records = Records::default();
        assert!(records.is_empty());
        for n in 0..5 {
            assert_eq!(records.add(n), n);
        }
        records.remove(3);
        records.remove(1);
        assert_eq!(records.len(), 3);
        assert_eq!(
            (records.add(11), records.add(13), records.add(5)),
            (1, 3, 5)
        );
        assert_eq!(records[1], 11);
        assert_eq!(records.len(), 6);
        assert_eq!(records.get(6), None);
    }

    #[test]
    fn sizes_are_the_same_until_they_may_differ() {
        let mut sizes = Sizes::new(64);
        sizes.set(3, 128, 256);
        assert_eq!(sizes.bytes(3), 64);
        sizes.differ();
        sizes.set(3, 128, 256);
        let size = |bytes, room| Size { bytes, room };
        assert_eq!(sizes.of(3), size(128, 256));
        assert_eq!([0, 2, 4].map(|id| sizes.of(id)), [size(64, 64); 3]);
    }
}
