//! Virtual memory areas: the address ranges that a program may access.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewalk_units::Backing;

use crate::hugetlb::PoolArea;

/// The memory of a shared mapping. Areas reference it; after the last reference
/// its frames are freed.
#[derive(Clone, Debug)]
pub struct Object {
    /// Identifier of the object.
    pub id: Arc<u64>,
    /// Page of the object at the start of the area.
    pub page: u64,
}

/// A page of a shared mapping's memory.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPage {
    /// Identifier of the object.
    pub object: u64,
    /// Page index in the object.
    pub index: u64,
}

/// Effect of a fork on an area of the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFork {
    /// The area with its pages.
    #[default]
    Keep,
    /// The area without pages (MADV_WIPEONFORK).
    Wipe,
    /// Nothing (MADV_DONTFORK).
    Drop,
}

/// Rules of the page faults of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Each first touch maps a page of the area's own, or one of its object.
    Plain,
    /// As Linux: reads map the shared zero page or pages of a file around the address.
    Linux {
        /// The area has private copies of pages of its object (Linux's `anon_vma`).
        copies: bool,
    },
}

/// A range of addresses with the same attributes.
#[derive(Clone, Debug)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Stores are allowed.
    pub writable: bool,
    /// Backing of the area.
    pub backing: Backing,
    /// `madvise` advice on huge pages, if any.
    pub huge: Option<bool>,
    /// The object, for shared memory and for files of [`Faults::Linux`].
    pub object: Option<Object>,
    /// Rules of its page faults.
    pub faults: Faults,
    /// Effect of a fork on it.
    pub on_fork: OnFork,
    /// Its pages are those of a pool.
    pub pool: Option<PoolArea>,
    /// The kernel reserves memory for it (not MAP_NORESERVE).
    pub reserves: bool,
    /// True if the mapping was inferred from an access.
    pub inferred: bool,
}

impl Vma {
    /// An area from `start` up to `end` without an object, with plain page faults.
    pub fn new(start: u64, end: u64, writable: bool, backing: Backing) -> Vma {
        Vma {
            start,
            end,
            writable,
            backing,
            huge: None,
            object: None,
            faults: Faults::Plain,
            on_fork: OnFork::Keep,
            pool: None,
            reserves: true,
            inferred: false,
        }
    }
    /// The shared-memory page at `at`, if the area is shared memory.
    pub fn object_page(&self, at: u64) -> Option<ObjectPage> {
        self.object.as_ref().map(|o| ObjectPage {
            object: *o.id,
            index: o.page + ((at - self.start) >> 12),
        })
    }

    /// True if its pages belong to an object, so that writes are seen by other processes.
    pub fn is_shared(&self) -> bool {
        self.object.is_some() && self.backing == Backing::Shared
    }

    /// True if page faults follow [`Faults::Linux`].
    pub fn is_linux(&self) -> bool {
        self.faults != Faults::Plain
    }

    /// True if a fork does not copy its entries of the page table, because faults find the pages in the object
    /// (`vma_needs_copy` of Linux mm/memory.c).
    pub fn faults_again_after_fork(&self) -> bool {
        self.on_fork != OnFork::Keep
            || self.object.is_some() && self.faults == Faults::Linux { copies: false }
    }

    fn page_at(&self, at: u64) -> Option<Object> {
        self.object.as_ref().map(|o| Object {
            id: Arc::clone(&o.id),
            page: o.page + ((at - self.start) >> 12),
        })
    }

    /// The part of the area between two addresses inside it.
    fn part(&self, start: u64, end: u64) -> Vma {
        debug_assert!(self.start <= start && start < end && end <= self.end);
        Vma {
            start,
            end,
            object: self.page_at(start),
            ..self.clone()
        }
    }

    /// The same area at another address.
    pub fn moved(&self, start: u64) -> Vma {
        Vma {
            start,
            end: start + (self.end - self.start),
            ..self.clone()
        }
    }

    /// A new area that continues this one up to `end`.
    pub fn grown(&self, end: u64) -> Vma {
        Vma {
            start: self.end,
            end,
            object: self.page_at(self.end),
            ..self.clone()
        }
    }

    fn continues(&self, before: &Vma) -> bool {
        let object = match (before.page_at(before.end), &self.object) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(&a.id, &b.id) && a.page == b.page,
            _ => false,
        };
        before.end == self.start
            && before.writable == self.writable
            && before.backing == self.backing
            && before.huge == self.huge
            && before.inferred == self.inferred
            && before.faults == self.faults
            && before.on_fork == self.on_fork
            && before.pool == self.pool
            && before.reserves == self.reserves
            && object
    }
}

/// The areas of a process by start address. They never overlap.
#[derive(Clone, Debug, Default)]
pub struct Vmas {
    areas: BTreeMap<u64, Vma>,
}

impl Vmas {
    /// The area that contains `at`.
    pub fn find(&self, at: u64) -> Option<&Vma> {
        let (_, v) = self.areas.range(..=at).next_back()?;
        (at < v.end).then_some(v)
    }
    /// As [`Vmas::find`], mutable. The caller changes no border.
    pub fn find_mut(&mut self, at: u64) -> Option<&mut Vma> {
        let (_, v) = self.areas.range_mut(..=at).next_back()?;
        (at < v.end).then_some(v)
    }
    /// The area that contains `at`, or else the first one above it.
    pub fn from(&self, at: u64) -> Option<&Vma> {
        self.find(at).or_else(|| self.above(at))
    }
    /// The first area that starts after `at`.
    pub fn above(&self, at: u64) -> Option<&Vma> {
        self.areas.range(at + 1..).next().map(|e| e.1)
    }
    /// End of the last area that ends at or below `at`; 0 if there is none.
    pub fn end_below(&self, at: u64) -> u64 {
        self.areas.range(..at).next_back().map_or(0, |e| e.1.end)
    }
    /// Removes and returns the areas in `from..to`. Areas that straddle a border
    /// are cut.
    pub fn carve(&mut self, from: u64, to: u64) -> Vec<Vma> {
        let first = self.find(from).map_or(from, |v| v.start);
        let keys: Vec<u64> = self.areas.range(first..to).map(|e| *e.0).collect();
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(v) = self.areas.remove(&key) else {
                continue;
            };
            if v.start < from {
                self.areas.insert(v.start, v.part(v.start, from));
            }
            if v.end > to {
                self.areas.insert(to, v.part(to, v.end));
            }
            out.push(v.part(v.start.max(from), v.end.min(to)));
        }
        out
    }

    /// Inserts an area into a gap and merges it with neighbours of equal
    /// attributes.
    pub fn insert(&mut self, mut v: Vma) {
        debug_assert!(self.find(v.start).is_none());
        if let Some((&key, before)) = self.areas.range(..v.start).next_back()
            && v.continues(before)
        {
            v.object = before.object.clone();
            v.start = before.start;
            self.areas.remove(&key);
        }
        if let Some(after) = self.areas.get(&v.end)
            && after.continues(&v)
        {
            let end = v.end;
            v.end = after.end;
            self.areas.remove(&end);
        }
        self.areas.insert(v.start, v);
    }

    /// All areas, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.areas.values()
    }

    /// Changes the attributes of the areas in `from..to`.
    pub fn update(&mut self, from: u64, to: u64, change: impl Fn(&mut Vma)) {
        for mut v in self.carve(from, to) {
            change(&mut v);
            self.insert(v);
        }
    }

    /// Makes these areas those of a child.
    pub fn forked(&mut self) {
        self.areas.retain(|_, v| v.on_fork != OnFork::Drop);
        for pool in self.areas.values_mut().filter_map(|v| v.pool.as_mut()) {
            pool.owner = false;
        }
    }

    /// Removes all areas.
    pub fn clear(&mut self) {
        self.areas.clear();
    }
}
