//! Shared memory: the frames of mappings that processes share across fork.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewalk_tables::Refusal;
use pagewalk_units::{PageSize, VirtAddr};

use crate::Effects;
use crate::kernel::Kernel;
use crate::space::Space;
use crate::touch::Touch;
use crate::vma::{Object, ObjectPage};

const CHUNK: u64 = 512;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Pages {
    id: Arc<u64>,
    /// Frame numbers, in chunks of 512 pages.
    chunks: BTreeMap<u64, Box<[u32; CHUNK as usize]>>,
}

/// All shared-memory objects.
#[derive(Debug, Default)]
pub struct Objects {
    objects: BTreeMap<u64, Pages>,
    next: u64,
}

impl Objects {
    /// A new, empty shared-memory object.
    pub fn create(&mut self) -> Object {
        let number = self.next;
        self.next += 1;
        let id = Arc::new(number);
        let pages = Pages {
            id: Arc::clone(&id),
            chunks: BTreeMap::new(),
        };
        self.objects.insert(number, pages);
        Object { id, page: 0 }
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
        let chunk = pages
            .chunks
            .entry(page.index / CHUNK)
            .or_insert_with(|| Box::new([NONE; CHUNK as usize]));
        let slot = &mut chunk[(page.index % CHUNK) as usize];
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

    /// Frees the frames of objects that no area references any more.
    pub fn sweep(&mut self, k: &mut Kernel) {
        self.objects.retain(|_, pages| {
            if Arc::strong_count(&pages.id) > 1 {
                return true;
            }
            for frame in pages.chunks.values().flat_map(|c| c.iter()) {
                if *frame != NONE {
                    k.put(u64::from(*frame), 0);
                }
            }
            false
        });
    }
}
