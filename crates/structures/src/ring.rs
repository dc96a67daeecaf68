//! A ring buffer of the last values of a sequence, indexed by sequence number.

/// The last `len` values of a sequence, where `len` is a power of two. Older
/// values are overwritten.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    items: Box<[T]>,
    mask: usize,
}

impl<T: Copy> Ring<T> {
    /// A buffer for at least `least` values, all initialised to `value`.
    pub fn new(least: usize, value: T) -> Self {
        let len = least.next_power_of_two();
        Ring {
            items: vec![value; len].into(),
            mask: len - 1,
        }
    }

    /// Capacity.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// Always false: the capacity is at least one.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The value with number `n`. Valid only if it has not been overwritten.
    #[inline(always)]
    pub fn get(&self, n: usize) -> T {
        // SAFETY: `n & mask` is at most `mask`, and there are `mask + 1` items.
        unsafe { *self.items.get_unchecked(n & self.mask) }
    }

    /// Sets the value with number `n`.
    #[inline(always)]
    pub fn set(&mut self, n: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { *self.items.get_unchecked_mut(n & self.mask) = value }
    }

    /// Sets all values.
    pub fn fill(&mut self, value: T) {
        self.items.fill(value);
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn the_last_ones_are_kept() {
        let mut r = Ring::new(5, 0);
        assert_eq!(r.len(), 8);
        for n in 0..100 {
            r.set(n, n * n);
            for back in 0..8.min(n + 1) {
                assert_eq!(r.get(n - back), (n - back) * (n - back));
            }
        }
        r.fill(7);
        assert!((0..8).all(|n| r.get(n) == 7));
        assert_eq!(Ring::new(0, 1).len(), 1);
    }
}
