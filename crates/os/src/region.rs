//! The mappings of each 2 MB region of an address space, in 0.2 bytes for each
//! page.

use std::collections::BTreeMap;

/// Backing of a 2 MB region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// 4 KB pages.
    Small,
    /// One 2 MB page.
    Huge,
    /// The first of the 512 regions of a 1 GB page.
    Giant,
}

/// A 2 MB region with at least one mapped or reserved page.
#[derive(Clone, Debug)]
pub struct Region {
    /// Backing of the region.
    pub kind: RegionKind,
    /// One bit for each mapped 4 KB page.
    pub present: [u64; 8],
    /// Number of mapped 4 KB pages.
    pub count: u16,
    /// True if a 2 MB block was requested and none was available.
    pub refused: bool,
    /// First frame of the reserved block. Page `i` lies in frame `i` of the
    /// block, which the region owns.
    pub reserved: Option<u64>,
}

impl Region {
    /// A region of 4 KB pages, with none mapped.
    pub fn small(reserved: Option<u64>) -> Self {
        Region {
            kind: RegionKind::Small,
            present: [0; 8],
            count: 0,
            refused: false,
            reserved,
        }
    }
    /// A region of one large page, or the first region of it.
    pub fn large(kind: RegionKind) -> Self {
        Region {
            kind,
            ..Region::small(None)
        }
    }
    /// True if page `i` of the region is mapped by a 4 KB page.
    pub fn has(&self, i: u64) -> bool {
        self.present[(i >> 6) as usize] >> (i & 63) & 1 != 0
    }
    /// Marks page `i` as mapped.
    pub fn set(&mut self, i: u64) {
        debug_assert!(!self.has(i));
        self.present[(i >> 6) as usize] |= 1 << (i & 63);
        self.count += 1;
    }
    /// Marks page `i` as unmapped.
    pub fn clear(&mut self, i: u64) {
        debug_assert!(self.has(i));
        self.present[(i >> 6) as usize] &= !(1 << (i & 63));
        self.count -= 1;
    }
}

/// The regions of an address space, by number (address >> 21).
#[derive(Clone, Debug)]
pub struct Regions {
    index: BTreeMap<u64, u32>,
    slab: Vec<Region>,
    free: Vec<u32>,
    /// The last region looked up, because touches come in runs.
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
    /// The region `key`, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut Region> {
        let slot = self.slot(key)?;
        self.last = (key, slot);
        Some(&mut self.slab[slot as usize])
    }
    /// The region whose pages cover `key`: itself, or that of the 1 GB page
    /// around it.
    pub fn covering(&self, key: u64) -> Option<(u64, &Region)> {
        if let Some(r) = self.get(key) {
            return Some((key, r));
        }
        let giant = key & !511;
        let r = self.get(giant)?;
        (r.kind == RegionKind::Giant).then_some((giant, r))
    }
    /// Inserts the region `key`, which must be absent.
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
    /// Removes the region `key`.
    pub fn remove(&mut self, key: u64) {
        if let Some(slot) = self.index.remove(&key) {
            self.free.push(slot);
        }
        if self.last.0 == key {
            self.last.0 = u64::MAX;
        }
    }
    /// Numbers of the regions that overlap the addresses `from..to`, in
    /// ascending order. A 1 GB page counts as its first region.
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
    /// True if anything is mapped or reserved in the 1 GB around region `key`.
    pub fn any_in_giant(&self, key: u64) -> bool {
        let first = key & !511;
        self.index.range(first..first + 512).next().is_some()
    }
    /// All regions, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.index
            .iter()
            .map(|(k, s)| (*k, &self.slab[*s as usize]))
    }
}
