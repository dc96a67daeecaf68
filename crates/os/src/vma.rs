//! Virtual memory areas: what a program may touch.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewalk_units::Backing;

/// The memory behind a shared mapping. Areas hold it; when the last one is gone
/// its frames go back.
#[derive(Clone, Debug)]
pub struct Object {
    /// Which.
    pub id: Arc<u64>,
    /// Page of the object at the start of the area.
    pub page: u64,
}

/// A page of the memory behind a shared mapping.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPage {
    /// Of which object.
    pub object: u64,
    /// Which page of it.
    pub index: u64,
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
    /// What lies behind it.
    pub backing: Backing,
    /// What `madvise` said of huge pages, if anything.
    pub huge: Option<bool>,
    /// Of shared memory.
    pub object: Option<Object>,
    /// Nobody announced it.
    pub inferred: bool,
}

impl Vma {
    /// The page of shared memory at `at`, if it is shared memory.
    pub fn object_page(&self, at: u64) -> Option<ObjectPage> {
        self.object.as_ref().map(|o| ObjectPage {
            object: *o.id,
            index: o.page + ((at - self.start) >> 12),
        })
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

    /// A further area that continues this one up to `end`.
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
            && object
    }
}

/// The areas of a process, by start; they never overlap.
#[derive(Clone, Debug, Default)]
pub struct Vmas {
    areas: BTreeMap<u64, Vma>,
}

impl Vmas {
    /// The area that holds `at`.
    pub fn find(&self, at: u64) -> Option<&Vma> {
        let (_, v) = self.areas.range(..=at).next_back()?;
        (at < v.end).then_some(v)
    }
    /// The area that holds `at`, or else the first above it.
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
    /// Takes out what lies in `from..to`, cutting areas at the borders.
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

    /// Puts an area into a gap; it merges with neighbours of the same attributes.
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

    /// Changes the attributes of what lies in `from..to`.
    pub fn update(&mut self, from: u64, to: u64, change: impl Fn(&mut Vma)) {
        for mut v in self.carve(from, to) {
            change(&mut v);
            self.insert(v);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.areas.clear();
    }
}
