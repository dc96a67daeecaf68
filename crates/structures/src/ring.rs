//! What the last things of a sequence were, by number.

/// The last `len` values of a sequence, `len` a power of two; older ones are
/// overwritten.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    items: Box<[T]>,
    mask: usize,
}

impl<T: Copy> Ring<T> {
    /// Room for at least `least` values, all `value` at first.
    pub fn new(least: usize, value: T) -> Self {
        let len = least.next_power_of_two();
        Ring {
            items: vec![value; len].into(),
            mask: len - 1,
        }
    }

    /// How many values there is room for.
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// Never: there is room for one value at least.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The value of number `n`, if it is among the last ones.
    #[inline(always)]
    pub fn get(&self, n: usize) -> T {
        // SAFETY: `n & mask` is at most `mask`, and there are `mask + 1` items.
        unsafe { *self.items.get_unchecked(n & self.mask) }
    }

    /// Sets the value of number `n`.
    #[inline(always)]
    pub fn set(&mut self, n: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { *self.items.get_unchecked_mut(n & self.mask) = value }
    }

    /// Sets all.
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
