//! Contents of a recorded program's memory.
//!
//! A part holds the pages of one process that have changed since the process's last part, as differences from their
//! last contents; a page begins with zeros. Columns hold the pages and the indices of their changed words, one tag for
//! each changed word, and the words. The tag says how many bytes follow, and if they are the word itself or its
//! distance from its own address, which is small for most pointers.

mod pages;
mod snapshots;
#[cfg(test)]
mod tests;

pub use pages::{MemoryPart, RecordedPages};
pub(crate) use snapshots::{MemoryInFile, check_memory};

use super::codec::{get_varint, put_varint, unzigzag, zigzag};

/// Binary logarithm of the bytes of a page.
pub(super) const PAGE_SHIFT: u32 = 12;
/// Words of a page.
pub(super) const WORDS: usize = 512;
/// First page above user space.
const MOST_PAGE: u64 = 1 << 36;
/// Set in the tag of a word that is stored as a distance.
const DISTANCE: u8 = 16;

/// Contents of a page, as little-endian words.
pub(super) type Page = [u64; WORDS];

/// The columns of a part.
#[derive(Default)]
struct Columns {
    /// For each page: its distance from the last one, the number of changed words, and the distance of each from the
    /// last.
    places: Vec<u8>,
    tags: Vec<u8>,
    words: Vec<u8>,
}

fn width(value: u64) -> usize {
    (value.checked_ilog2().map_or(0, |log| log as usize + 1)).div_ceil(8)
}

impl Columns {
    fn bytes(&self) -> usize {
        self.places.len() + self.tags.len() + self.words.len()
    }

    /// Appends the word `index` of `page`, which has changed to `word`.
    fn put_word(&mut self, page: u64, index: usize, word: u64) {
        let at = page << PAGE_SHIFT | (index as u64) << 3;
        let distance = zigzag(word.wrapping_sub(at));
        let (value, kind) = if width(distance) < width(word) {
            (distance, DISTANCE)
        } else {
            (word, 0)
        };
        let bytes = width(value);
        self.tags.push(bytes as u8 | kind);
        self.words.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// Appends the words of `page` that differ between `old` and `new`.
    fn put_page(&mut self, page: u64, gap: u64, old: &Page, new: &Page) {
        put_varint(&mut self.places, gap);
        let changed = (0..WORDS).filter(|&i| old[i] != new[i]);
        put_varint(&mut self.places, changed.clone().count() as u64);
        let mut next = 0;
        for index in changed {
            put_varint(&mut self.places, (index - next) as u64);
            next = index + 1;
            self.put_word(page, index, new[index]);
        }
    }
}

/// Reads a part with these columns. `apply` gets each page and its changed words. `None`: the part is invalid.
fn each_page(
    pages: u32,
    [mut places, mut tags, mut words]: [&[u8]; 3],
    mut apply: impl FnMut(u64, &[(usize, u64)]),
) -> Option<()> {
    let mut next = 0u64;
    let mut changed = Vec::new();
    for _ in 0..pages {
        let page = next.checked_add(get_varint(&mut places)?)?;
        if page >= MOST_PAGE {
            return None;
        }
        next = page + 1;
        changed.clear();
        let count = get_varint(&mut places)?;
        let mut index = 0u64;
        for _ in 0..count {
            index = index.checked_add(get_varint(&mut places)?)?;
            if index >= WORDS as u64 {
                return None;
            }
            let (&tag, rest) = tags.split_first()?;
            tags = rest;
            let bytes = usize::from(tag & !DISTANCE);
            let (value, rest) = words.split_at_checked(bytes.min(9))?;
            words = rest;
            let mut word = [0; 8];
            word.get_mut(..bytes)?.copy_from_slice(value);
            let value = u64::from_le_bytes(word);
            let at = page << PAGE_SHIFT | index << 3;
            let word = match tag & DISTANCE {
                0 => value,
                _ => at.wrapping_add(unzigzag(value)),
            };
            changed.push((index as usize, word));
            index += 1;
        }
        apply(page, &changed);
    }
    (places.is_empty() && tags.is_empty() && words.is_empty()).then_some(())
}
