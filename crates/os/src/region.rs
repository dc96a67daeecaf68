//! What is mapped in each 2 MB of an address space, in 0.2 bytes a page.

use std::collections::BTreeMap;

/// How a 2 MB region is backed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// By 4 KB pages.
    Small,
    /// By one 2 MB page.
    Huge,
    /// It is the first of the 512 regions of a 1 GB page.
    Giant,
}

/// A 2 MB region of which something is mapped.
#[derive(Clone, Debug)]
pub struct Region {
    /// By what.
    pub kind: RegionKind,
    /// A bit for each 4 KB page that is mapped.
    pub present: [u64; 8],
    /// 4 KB pages that are mapped.
    pub count: u16,
    /// A 2 MB block was asked for, and there was none.
    pub refused: bool,
    /// First frame of the block that is reserved for it: page `i` lies in frame
    /// `i` of the block, and the block belongs to the region.
    pub reserved: Option<u64>,
}

impl Region {
    /// A region of 4 KB pages, none mapped yet.
    pub fn small(reserved: Option<u64>) -> Self {
        Region {
            kind: RegionKind::Small,
            present: [0; 8],
            count: 0,
            refused: false,
            reserved,
        }
    }
    /// A region that is one large page, or its start.
    pub fn large(kind: RegionKind) -> Self {
        Region {
            kind,
            ..Region::small(None)
        }
    }
    /// Whether page `i` of the region is mapped by a 4 KB page.
    pub fn has(&self, i: u64) -> bool {
        self.present[(i >> 6) as usize] >> (i & 63) & 1 != 0
    }
    /// Books page `i` in.
    pub fn set(&mut self, i: u64) {
        debug_assert!(!self.has(i));
        self.present[(i >> 6) as usize] |= 1 << (i & 63);
        self.count += 1;
    }
    /// Books page `i` out.
    pub fn clear(&mut self, i: u64) {
        debug_assert!(self.has(i));
        self.present[(i >> 6) as usize] &= !(1 << (i & 63));
        self.count -= 1;
    }
}

/// The regions of an address space by number (address >> 21).
#[derive(Clone, Debug)]
pub struct Regions {
    index: BTreeMap<u64, u32>,
    slab: Vec<Region>,
    free: Vec<u32>,
    /// Where the last one asked for is, since touches come in runs.
    last: (u64, u32),
}

impl Default for Regions {
    fn default() -> Self {
        Regions {
            index: BTreeMap::new(),
            slab: Vec::new(),
            free: Vec::new(),
            last: (u64::MAX, 0),
        }
    }
}

impl Regions {
    #[inline]
    fn slot(&self, key: u64) -> Option<u32> {
        if self.last.0 == key {
            return Some(self.last.1);
        }
        self.index.get(&key).copied()
    }

    /// The region `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&Region> {
        self.slot(key).map(|s| &self.slab[s as usize])
    }
    /// The region `key`.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut Region> {
        let slot = self.slot(key)?;
        self.last = (key, slot);
        Some(&mut self.slab[slot as usize])
    }
    /// The region whose pages cover `key`: itself, or the 1 GB page around it.
    pub fn covering(&self, key: u64) -> Option<(u64, &Region)> {
        if let Some(r) = self.get(key) {
            return Some((key, r));
        }
        let giant = key & !511;
        let r = self.get(giant)?;
        (r.kind == RegionKind::Giant).then_some((giant, r))
    }
    /// Adds the region `key`.
    pub fn insert(&mut self, key: u64, region: Region) -> &mut Region {
        let slot = match self.free.pop() {
            Some(s) => {
                self.slab[s as usize] = region;
                s
            }
            None => {
                self.slab.push(region);
                self.slab.len() as u32 - 1
            }
        };
        let old = self.index.insert(key, slot);
        debug_assert!(old.is_none());
        self.last = (key, slot);
        &mut self.slab[slot as usize]
    }
    /// Takes the region `key` out.
    pub fn remove(&mut self, key: u64) {
        if let Some(slot) = self.index.remove(&key) {
            self.free.push(slot);
        }
        if self.last.0 == key {
            self.last.0 = u64::MAX;
        }
    }
    /// Numbers of the regions that overlap the addresses `from..to`, ascending,
    /// a 1 GB page by its first.
    pub fn overlapping(&self, from: u64, to: u64) -> Vec<u64> {
        let (first, last) = (from >> 21, (to - 1) >> 21);
        let giant = (first & 511 != 0)
            .then(|| self.covering(first))
            .flatten()
            .filter(|(key, _)| *key != first)
            .map(|(key, _)| key);
        let rest = self.index.range(first..=last).map(|e| *e.0);
        giant.into_iter().chain(rest).collect()
    }
    /// Whether anything is mapped or reserved in the 1 GB around region `key`.
    pub fn any_in_giant(&self, key: u64) -> bool {
        let first = key & !511;
        self.index.range(first..first + 512).next().is_some()
    }
    /// All, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.index
            .iter()
            .map(|(k, s)| (*k, &self.slab[*s as usize]))
    }
}
