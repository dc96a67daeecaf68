//! Frames with more than one owner: copy-on-write after fork, shared memory.

use rustc_hash::FxHashMap;

const CHUNK: usize = 512;

#[derive(Clone, Debug)]
struct Chunk {
    /// Owners of each frame in addition to the first.
    extra: [u32; CHUNK],
    shared: u16,
}

/// Additional owners of frames. Frames with one owner take no memory. A 2 MB
/// block with any shared frame takes 2 KB.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    chunks: FxHashMap<u64, Box<Chunk>>,
}

impl Shares {
    /// Adds an owner to the block of `order` at `frame`.
    pub fn add(&mut self, frame: u64, order: u8) {
        for f in frame..frame + (1 << order) {
            let chunk = self.chunks.entry(f / CHUNK as u64).or_insert_with(|| {
                Box::new(Chunk {
                    extra: [0; CHUNK],
                    shared: 0,
                })
            });
            let extra = &mut chunk.extra[f as usize % CHUNK];
            chunk.shared += u16::from(*extra == 0);
            *extra += 1;
        }
    }

    /// Drops one owner of `frame`. Returns true if it was the last one.
    pub fn remove(&mut self, frame: u64) -> bool {
        let key = frame / CHUNK as u64;
        let Some(chunk) = self.chunks.get_mut(&key) else {
            return true;
        };
        let extra = &mut chunk.extra[frame as usize % CHUNK];
        if *extra == 0 {
            return true;
        }
        *extra -= 1;
        if *extra == 0 {
            chunk.shared -= 1;
            if chunk.shared == 0 {
                self.chunks.remove(&key);
            }
        }
        false
    }

    /// Owners of `frame` in addition to the first.
    pub fn extra(&self, frame: u64) -> u64 {
        let chunk = self.chunks.get(&(frame / CHUNK as u64));
        chunk.map_or(0, |c| u64::from(c.extra[frame as usize % CHUNK]))
    }

    /// True if any frame of the block of `order` at `frame` has several owners.
    pub fn any(&self, frame: u64, order: u8) -> bool {
        if self.chunks.is_empty() {
            return false;
        }
        let end = frame + (1 << order);
        (frame / CHUNK as u64..end.div_ceil(CHUNK as u64)).any(|key| {
            self.chunks.get(&key).is_some_and(|c| {
                let base = key * CHUNK as u64;
                let from = frame.max(base) - base;
                let to = end.min(base + CHUNK as u64) - base;
                c.extra[from as usize..to as usize].iter().any(|&e| e > 0)
            })
        })
    }
}
