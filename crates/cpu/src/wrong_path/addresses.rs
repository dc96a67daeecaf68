//! The addresses that loads had, by where their inputs came from.

/// What is known of an address that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// The load has no inputs.
    Constant,
    /// It has, and they are those of the time before.
    Remembered,
}

/// Times in a row that a load without inputs must have had the same address:
/// an input may be one that no op made, such as a counter in a register.
const SURE: u32 = 3;

/// Entries of a set.
const WAYS: usize = 4;

/// Addresses by key, in sets of four. An entry that proved right stays a while when
/// others want its place.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    // Zeroed integers take memory of the host only where they are written.
    /// Of each the upper bits of its key, and in the lowest two how often in a row its
    /// address was right.
    tags: Box<[[u32; WAYS]]>,
    addresses: Box<[[u64; WAYS]]>,
}

/// Spreads a key.
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

    /// What has this key asked for `va`. `new`: it may take the place of another.
    /// Gives whether its address was known, right or wrong.
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
        // The first in a turn that the key decides of those that never proved right.
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

    /// What it was last.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let (at, tag) = self.place(key);
        let way = self.tags[at].iter().position(|t| t & !3 == tag)?;
        let va = self.addresses[at][way];
        (va != 0).then_some(va)
    }

    /// The address that it had last.
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
