//! Addresses of loads, by the origins of their inputs.

/// Reason why an address is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// The load has no inputs.
    Constant,
    /// The load has inputs, of the same origins as last time.
    Remembered,
}

/// Times in a row that a load without known inputs must have had the same address to be predicted.
/// It may have an input that no op made, such as a counter in a register.
const SURE: u32 = 3;

/// Associativity.
const WAYS: usize = 4;

/// Set-associative table of addresses by key. An entry that proved right resists replacement for a
/// while.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    // Zeroed arrays take host memory only where they are written.
    /// For each entry the upper bits of its key. The lowest two bits count how often in a row its
    /// address was right.
    tags: Box<[[u32; WAYS]]>,
    addresses: Box<[[u64; WAYS]]>,
}

/// Hash of a key.
#[inline]
pub(super) fn hash(key: u64) -> u64 {
    let x = key.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

impl Addresses {
    /// `entries`: a power of two.
    pub fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS);
        Addresses {
            tags: vec![[0; WAYS]; sets].into(),
            addresses: vec![[0; WAYS]; sets].into(),
        }
    }

    /// Set and tag of a key.
    #[inline]
    fn place(&self, key: u64) -> (usize, u32) {
        let h = hash(key);
        let at = h as usize & (self.tags.len() - 1);
        (at, (h >> 32) as u32 & !3)
    }

    /// Learns that the load of this key has accessed `va`. `new`: a new key may get an entry.
    /// Returns true if the key had an address, right or wrong.
    #[inline]
    pub fn learn(&mut self, key: u64, va: u64, new: bool) -> bool {
        let (at, tag) = self.place(key);
        let (tags, addresses) = (&mut self.tags[at], &mut self.addresses[at]);
        for (t, a) in tags.iter_mut().zip(addresses.iter_mut()) {
            if *t & !3 == tag {
                let right = if *a == va { (*t & 3) + 1 } else { 0 };
                (*t, *a) = (tag | right.min(3), va);
                return true;
            }
        }
        if !new {
            return false;
        }
        // The first entry that has not proved right, starting at a way that the key selects.
        let first = (key >> 61) as usize;
        let free = (0..WAYS).find(|&w| addresses[w] == 0);
        let unsure = || {
            (first..first + WAYS)
                .map(|w| w % WAYS)
                .find(|&w| tags[w] & 3 == 0)
        };
        match free.or_else(unsure) {
            Some(w) => (tags[w], addresses[w]) = (tag, va),
            None => tags[first % WAYS] -= 1,
        }
        false
    }

    /// The last address of this key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let (at, tag) = self.place(key);
        let way = self.tags[at].iter().position(|t| t & !3 == tag)?;
        let va = self.addresses[at][way];
        (va != 0).then_some(va)
    }

    /// The last address of this key, if it is reliable, and the reason why it is known.
    pub fn find(&self, key: u64, constant: bool) -> Option<(u64, Known)> {
        let (at, tag) = self.place(key);
        let way = self.tags[at].iter().position(|t| t & !3 == tag)?;
        let (right, va) = (self.tags[at][way] & 3, self.addresses[at][way]);
        if va == 0 {
            return None;
        }
        if !constant {
            return Some((va, Known::Remembered));
        }
        (right >= SURE).then_some((va, Known::Constant))
    }
}
