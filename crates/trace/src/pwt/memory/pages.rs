//! The pages of a process while it is recorded.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Columns, Page, WORDS};

/// Bytes at which a part is closed.
const PART_FULL: usize = 1 << 24;

/// The pages of a process that have changed, for a block of the file.
#[derive(Default)]
pub struct MemoryPart {
    /// Pages in it.
    pub pages: u32,
    /// In the order of the block's columns: places, tags and words.
    pub columns: [Vec<u8>; 3],
}

/// The pages of one process as last read.
#[derive(Default)]
pub struct RecordedPages {
    pages: FxHashMap<u64, Box<Page>>,
    /// Contents in the file of pages that have changed since.
    written: BTreeMap<u64, Box<Page>>,
}

impl RecordedPages {
    /// True if the page has been read.
    #[inline]
    pub fn contains(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// Sets the contents of a page.
    pub fn set(&mut self, page: u64, bytes: &[u8; 8 * WORDS]) {
        let (words, _) = bytes.as_chunks();
        let mut new = Box::new([0; WORDS]);
        for (word, bytes) in new.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        let old = match self.pages.get(&page) {
            Some(old) if *old == new => return,
            Some(old) => old.clone(),
            None => Box::new([0; WORDS]),
        };
        self.written.entry(page).or_insert(old);
        self.pages.insert(page, new);
    }

    /// Takes the changes since the last call.
    pub fn take(&mut self) -> Vec<MemoryPart> {
        let mut parts = Vec::new();
        let (mut columns, mut pages, mut next) = (Columns::default(), 0, 0);
        let mut close = |columns: &mut Columns, pages: &mut u32| {
            if *pages > 0 {
                let Columns {
                    places,
                    tags,
                    words,
                } = std::mem::take(columns);
                parts.push(MemoryPart {
                    pages: std::mem::take(pages),
                    columns: [places, tags, words],
                });
            }
        };
        for (page, old) in std::mem::take(&mut self.written) {
            columns.put_page(page, page - next, &old, &self.pages[&page]);
            (pages, next) = (pages + 1, page + 1);
            if columns.bytes() >= PART_FULL {
                close(&mut columns, &mut pages);
                next = 0;
            }
        }
        close(&mut columns, &mut pages);
        parts
    }
}
