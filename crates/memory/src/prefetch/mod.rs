//! Hardware prefetchers: they train on the accesses of one cache and name lines to fetch.

mod ip_stride;
mod simple;
mod streamer;
mod vldp;

use ip_stride::IpStride;
use simple::Simple;
use streamer::Streamer;
use vldp::Vldp;

use crate::{PrefetcherSpec, RequestKind};

pub(crate) use vldp::MOST_TABLES;

/// log2 of the lines of a 4 KB page. Prefetches stay within a page unless configured otherwise: the
/// next physical page is unrelated.
const PAGE_LINES_SHIFT: u32 = 6;

/// Most lines that one access may prefetch.
pub(crate) const MAX_DEGREE: usize = 16;

/// Lines to fetch, in order.
pub(crate) type Wanted = arrayvec::ArrayVec<u64, MAX_DEGREE>;

/// A prefetcher of one cache.
#[derive(Clone, Debug)]
pub(crate) enum Prefetcher {
    IpStride(IpStride),
    Streamer(Streamer),
    Vldp(Box<Vldp>),
    Simple(Simple),
}

impl Prefetcher {
    /// Creates a prefetcher. The parameters were checked.
    pub fn new(spec: PrefetcherSpec) -> Self {
        match spec {
            PrefetcherSpec::IpStride {
                entries,
                degree,
                lookahead,
            } => Prefetcher::IpStride(IpStride::new(entries, degree, lookahead)),
            PrefetcherSpec::Streamer {
                pages,
                degree,
                lookahead,
            } => Prefetcher::Streamer(Streamer::new(pages, degree, lookahead)),
            PrefetcherSpec::Vldp {
                pages,
                tables,
                entries,
                degree,
            } => Prefetcher::Vldp(Box::new(Vldp::new(pages, tables, entries, degree))),
            PrefetcherSpec::Simple {
                flows,
                degree,
                within_page,
            } => Prefetcher::Simple(Simple::new(flows, degree, within_page)),
        }
    }

    /// Trains on an access of the cache. `missed`: it missed or was the first to a prefetched line.
    /// Returns true if it put lines into `wanted`.
    #[inline(always)]
    pub fn train(
        &mut self,
        kind: RequestKind,
        line: u64,
        pc: u64,
        missed: bool,
        wanted: &mut Wanted,
    ) -> bool {
        match self {
            // Only loads have strides by instruction.
            Prefetcher::IpStride(p) => kind == RequestKind::Load && p.train(line, pc, wanted),
            // Requests that move through a page: not walkers, whose reads depend on the program's
            // pages, and not engines' guesses.
            Prefetcher::Streamer(p) => moves(kind) && p.train(line, wanted),
            Prefetcher::Vldp(p) => moves(kind) && p.train(line, wanted),
            Prefetcher::Simple(p) => moves(kind) && p.train(line, missed, wanted),
        }
    }
}

/// True if requests of this kind move through pages as the program does.
#[inline(always)]
fn moves(kind: RequestKind) -> bool {
    matches!(
        kind,
        RequestKind::Load | RequestKind::Store | RequestKind::Fetch | RequestKind::Prefetch
    )
}

/// A few keyed entries under LRU, found in constant time: a model of a content-addressed memory.
#[derive(Clone, Debug)]
struct Recent<V> {
    /// Hash buckets: first entry + 1 of each chain.
    heads: Vec<u16>,
    entries: Vec<Entry<V>>,
    capacity: usize,
    newest: u16,
    oldest: u16,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    key: u64,
    value: V,
    /// Next in the hash chain, + 1; 0 ends it.
    chain: u16,
    newer: u16,
    older: u16,
}

const NONE: u16 = u16::MAX;

impl<V> Recent<V> {
    fn new(capacity: usize) -> Self {
        Recent {
            heads: vec![0; (capacity * 4).next_power_of_two()],
            entries: Vec::with_capacity(capacity),
            capacity,
            newest: NONE,
            oldest: NONE,
        }
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.heads.len() - 1)
    }

    /// The value of `key`, which becomes the most recently used.
    #[inline(always)]
    fn get(&mut self, key: u64) -> Option<&mut V> {
        let mut at = self.heads[self.bucket(key)];
        while at != 0 {
            let i = at - 1;
            if self.entries[i as usize].key == key {
                if self.newest != i {
                    self.renew(i);
                }
                return Some(&mut self.entries[i as usize].value);
            }
            at = self.entries[i as usize].chain;
        }
        None
    }

    #[inline(never)]
    fn renew(&mut self, i: u16) {
        self.unlink(i);
        self.link(i);
    }

    /// Inserts a key that is absent, replacing the oldest if all entries are in use.
    #[inline(never)]
    fn insert(&mut self, key: u64, value: V) {
        let bucket = self.bucket(key);
        let i = if self.entries.len() < self.capacity {
            self.entries.push(Entry {
                key,
                value,
                chain: self.heads[bucket],
                newer: NONE,
                older: NONE,
            });
            (self.entries.len() - 1) as u16
        } else {
            let i = self.oldest;
            self.unlink(i);
            self.unchain(i);
            let chain = self.heads[bucket];
            let e = &mut self.entries[i as usize];
            (e.key, e.value, e.chain) = (key, value, chain);
            i
        };
        self.heads[bucket] = i + 1;
        self.link(i);
    }

    fn unchain(&mut self, i: u16) {
        let bucket = self.bucket(self.entries[i as usize].key);
        let next = self.entries[i as usize].chain;
        let mut at = self.heads[bucket];
        if at == i + 1 {
            self.heads[bucket] = next;
            return;
        }
        while self.entries[at as usize - 1].chain != i + 1 {
            at = self.entries[at as usize - 1].chain;
        }
        self.entries[at as usize - 1].chain = next;
    }

    #[inline]
    fn unlink(&mut self, i: u16) {
        let (newer, older) = {
            let e = &self.entries[i as usize];
            (e.newer, e.older)
        };
        match newer {
            NONE => self.newest = older,
            n => self.entries[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.entries[o as usize].newer = newer,
        }
    }

    #[inline]
    fn link(&mut self, i: u16) {
        let second = self.newest;
        let e = &mut self.entries[i as usize];
        (e.newer, e.older) = (NONE, second);
        match second {
            NONE => self.oldest = i,
            s => self.entries[s as usize].newer = i,
        }
        self.newest = i;
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn recent_keeps_the_last_used_keys(
            capacity in 1usize..20, keys in prop::collection::vec(0u64..40, 1..400),
        ) {
            let mut r = Recent::new(capacity);
            let mut model: Vec<u64> = vec![];
            for key in keys {
                let here = model.iter().position(|&k| k == key);
                prop_assert_eq!(r.get(key).copied(), here.map(|_| key * 3));
                match here {
                    Some(at) => { model.remove(at); }
                    None => {
                        r.insert(key, key * 3);
                        if model.len() == capacity { model.remove(0); }
                    }
                }
                model.push(key);
            }
        }
    }
}
