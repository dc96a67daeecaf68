//! Memory that processes share: the frames of shared mappings, and of files in the page cache.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use pagewalk_tables::{Refusal, Want};
use pagewalk_units::{MemoryObject, PageSize, VirtAddr};

use crate::Effects;
use crate::kernel::Kernel;
use crate::memory::order;
use crate::space::Space;
use crate::touch::Touch;
use crate::vma::{Object, ObjectPage};

const CHUNK: u64 = 512;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Pages {
    id: Arc<u64>,
    /// Number that mappings of all processes name it by.
    key: Option<u64>,
    /// A file: its pages are in the page cache.
    file: bool,
    /// Number of pages.
    count: u64,
    /// Frame numbers, in chunks of 512 pages.
    chunks: BTreeMap<u64, Box<[u32; CHUNK as usize]>>,
    /// Present if its pages are those of a pool.
    pool: Option<PoolPages>,
}

/// Pages of an object that come from a pool.
#[derive(Debug)]
pub struct PoolPages {
    size: PageSize,
    /// Numbers of the pages that are reserved and not touched yet.
    reserved: BTreeSet<u64>,
    /// Frames by number of the page.
    frames: BTreeMap<u64, u64>,
}

impl PoolPages {
    /// Gives pages and reservations of a range back.
    fn free(&mut self, range: Range<u64>, k: &mut Kernel) {
        let before = self.reserved.len();
        self.reserved.retain(|index| !range.contains(index));
        let reserved = before - self.reserved.len();
        k.pools.unreserve(self.size, reserved as u64);
        self.frames.retain(|index, frame| {
            let stays = !range.contains(index);
            if !stays {
                k.put(*frame, order(self.size));
            }
            stays
        });
    }
}

impl Pages {
    /// The frame of page `index`, if it has one.
    fn frame(&self, index: u64) -> Option<u64> {
        let chunk = self.chunks.get(&(index / CHUNK))?;
        let frame = chunk[(index % CHUNK) as usize];
        (frame != NONE).then_some(u64::from(frame))
    }

    fn slot(&mut self, index: u64) -> &mut u32 {
        let chunk = self
            .chunks
            .entry(index / CHUNK)
            .or_insert_with(|| Box::new([NONE; CHUNK as usize]));
        &mut chunk[(index % CHUNK) as usize]
    }

    /// Drops the object's ownership of its frames.
    fn release(&mut self, k: &mut Kernel) {
        if let Some(pool) = &mut self.pool {
            pool.free(0..u64::MAX, k);
        }
        for frame in self.chunks.values().flat_map(|c| c.iter()) {
            if *frame != NONE {
                k.put(u64::from(*frame), 0);
            }
        }
    }
}

/// All shared-memory objects and cached files.
#[derive(Debug, Default)]
pub struct Objects {
    objects: BTreeMap<u64, Pages>,
    keys: BTreeMap<u64, u64>,
    next: u64,
}

impl Objects {
    /// A new, empty shared-memory object.
    pub fn create(&mut self) -> Object {
        self.add(None, false, u64::MAX)
    }

    fn add(&mut self, key: Option<u64>, file: bool, count: u64) -> Object {
        let number = self.next;
        self.next += 1;
        let id = Arc::new(number);
        let pages = Pages {
            id: Arc::clone(&id),
            key,
            file,
            count,
            chunks: BTreeMap::new(),
            pool: None,
        };
        self.objects.insert(number, pages);
        if let Some(key) = key {
            self.keys.insert(key, number);
        }
        Object { id, page: 0 }
    }

    /// The object that `part` names, created at its first mapping.
    pub fn open(&mut self, part: &MemoryObject) -> Object {
        let known = part.key.and_then(|key| self.keys.get(&key));
        let mut object = match known.and_then(|number| self.objects.get_mut(number)) {
            Some(pages) => {
                pages.count = part.pages;
                Object {
                    id: Arc::clone(&pages.id),
                    page: 0,
                }
            }
            None => self.add(part.key, part.file, part.pages),
        };
        object.page = part.page;
        object
    }

    /// The object with this key, if there is one.
    pub fn named(&self, key: u64) -> Option<u64> {
        self.keys.get(&key).copied()
    }

    /// The frame of `page`, if it has one.
    pub fn frame(&self, page: ObjectPage) -> Option<u64> {
        self.objects.get(&page.object)?.frame(page.index)
    }

    /// Sets the number of pages of an object.
    pub fn resize(&mut self, object: u64, count: u64) {
        if let Some(pages) = self.objects.get_mut(&object) {
            pages.count = count;
        }
    }

    /// Frees pages of an object that no process maps any more.
    pub fn remove(&mut self, object: u64, range: Range<u64>, k: &mut Kernel) {
        let Some(pages) = self.objects.get_mut(&object) else {
            return;
        };
        if let Some(pool) = &mut pages.pool {
            let order = order(pool.size);
            let whole = range.start.div_ceil(1 << order)..range.end >> order;
            if !whole.is_empty() {
                pool.free(whole, k);
            }
        }
        let first = range.start / CHUNK;
        for (number, chunk) in pages.chunks.range_mut(first..) {
            for (i, frame) in (number * CHUNK..).zip(chunk.iter_mut()) {
                if range.contains(&i) && *frame != NONE {
                    k.put(u64::from(std::mem::replace(frame, NONE)), 0);
                }
            }
        }
    }

    /// Pages of a pool that an object has; from now on, it may have such.
    pub fn pool_pages(
        &mut self,
        object: &Option<Object>,
        size: PageSize,
    ) -> Option<&mut PoolPages> {
        let pages = self.objects.get_mut(&*object.as_ref()?.id)?;
        Some(pages.pool.get_or_insert_with(|| PoolPages {
            size,
            reserved: BTreeSet::new(),
            frames: BTreeMap::new(),
        }))
    }

    /// Reserves those pages of a pool in `range` that the object neither has nor has reserved. Returns false, and
    /// changes nothing, if the pool has too few.
    pub fn reserve_pool(
        &mut self,
        object: &Option<Object>,
        range: Range<u64>,
        size: PageSize,
        k: &mut Kernel,
    ) -> bool {
        let Some(pool) = self.pool_pages(object, size) else {
            return false;
        };
        let missing =
            |index: &u64| !pool.reserved.contains(index) && !pool.frames.contains_key(index);
        let missing: Vec<u64> = range.filter(missing).collect();
        let done = k.pools.reserve(size, missing.len() as u64);
        if done {
            pool.reserved.extend(missing);
        }
        done
    }

    /// The frame of page `index` of a pool, if the object has it.
    pub fn pool_frame(&self, object: u64, index: u64) -> Option<u64> {
        let pool = self.objects.get(&object)?.pool.as_ref()?;
        pool.frames.get(&index).copied()
    }

    /// Uses up the reservation of page `index`. Returns false if there is none.
    pub fn use_reserved(&mut self, object: u64, index: u64) -> bool {
        let pages = self.objects.get_mut(&object);
        let pool = pages.and_then(|pages| pages.pool.as_mut());
        pool.is_some_and(|pool| pool.reserved.remove(&index))
    }

    /// Gives the object the frame of page `index`.
    pub fn set_pool_frame(&mut self, object: u64, index: u64, frame: u64) {
        let pages = self.objects.get_mut(&object);
        if let Some(pool) = pages.and_then(|pages| pages.pool.as_mut()) {
            pool.frames.insert(index, frame);
        }
    }

    /// Gives the pages of pools back that belong to objects which no area references.
    pub fn free_pools(&mut self, k: &mut Kernel) {
        self.free_unused(|pages| pages.pool.is_some(), k);
    }

    /// Memory of files in the page cache, and of shared memory.
    pub fn bytes(&self) -> [u64; 2] {
        let mut sum = [0; 2];
        for pages in self.objects.values() {
            let frames = pages.chunks.values().flat_map(|c| c.iter());
            sum[usize::from(!pages.file)] += 4096 * frames.filter(|&&f| f != NONE).count() as u64;
        }
        sum
    }

    /// True if the object is a file.
    pub fn is_file(&self, object: u64) -> bool {
        self.objects.get(&object).is_some_and(|pages| pages.file)
    }

    /// The frame of `page` without a touch: it exists, or is in the page cache. `None` if the page must be made first,
    /// or if no memory is free for it.
    pub fn cached(&mut self, page: ObjectPage, want: Want, k: &mut Kernel) -> Option<u64> {
        let pages = self.objects.get_mut(&page.object)?;
        if let Some(frame) = pages.frame(page.index) {
            return Some(frame);
        }
        if !pages.file || page.index >= pages.count {
            return None;
        }
        let frame = k.frame(want).ok()?;
        *pages.slot(page.index) = frame as u32;
        Some(frame)
    }

    /// The frame of `page`, and true if it has been made now. It is zeroed then, unless it is a file's.
    pub fn page(
        &mut self,
        page: ObjectPage,
        want: Want,
        k: &mut Kernel,
    ) -> Result<(u64, bool), Refusal> {
        let Some(pages) = self.objects.get_mut(&page.object) else {
            unreachable!("an area holds the object");
        };
        if let Some(frame) = pages.frame(page.index) {
            return Ok((frame, false));
        }
        let frame = k.frame(want)?;
        *pages.slot(page.index) = frame as u32;
        Ok((frame, !pages.file))
    }

    /// Maps `page` at the touched address. Its frame is allocated at the first
    /// touch by any process. Both the object and each mapping own it.
    pub fn map(
        &mut self,
        page: ObjectPage,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        let Some(pages) = self.objects.get_mut(&page.object) else {
            unreachable!("an area holds the object");
        };
        // The frame lies outside a reservation's block.
        space.demote(k, touch.at >> 21, fx);
        let slot = pages.slot(page.index);
        let at = VirtAddr(touch.at).page(PageSize::K4);
        let known = *slot != NONE;
        let frame = if known {
            u64::from(*slot)
        } else {
            k.frame(space.want(PageSize::K4, touch.purpose(PageSize::K4)))?
        };
        if let Err(refusal) = space.map_page(k, at, frame, touch.flags, fx) {
            if !known {
                k.put(frame, 0);
            }
            return Err(refusal);
        }
        *slot = frame as u32;
        k.share(frame, 0);
        Ok(())
    }

    /// Frees the frames of objects that no area references any more. Objects with a key stay: a file in the page cache,
    /// shared memory that a process may map again.
    pub fn sweep(&mut self, k: &mut Kernel) {
        self.free_unused(|pages| pages.key.is_none(), k);
    }

    /// Frees the frames of all objects that no area references, because memory is short. Returns true if there are any.
    pub fn reclaim(&mut self, k: &mut Kernel) -> bool {
        self.free_unused(|_| true, k)
    }

    fn free_unused(&mut self, which: impl Fn(&Pages) -> bool, k: &mut Kernel) -> bool {
        let mut freed = false;
        let keys = &mut self.keys;
        self.objects.retain(|_, pages| {
            if Arc::strong_count(&pages.id) > 1 || !which(pages) {
                return true;
            }
            freed |= !pages.chunks.is_empty();
            pages.release(k);
            if let Some(key) = pages.key {
                keys.remove(&key);
            }
            false
        });
        freed
    }
}
