//! Memory of a process that is recorded.

use pagewalk_ring::record::{self, ADDRESS_MASK, STORE};
use pagewalk_stream::ProgramMemory;
use pagewalk_trace::RecordedPages;

const PAGE_SHIFT: u32 = 12;
const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// Entries of the filter of pages noted.
const FILTER: usize = 1 << 10;

/// The memory of one image of a process: the pages that the program has touched, as they were at the end of the turn
/// in which it last wrote to them.
pub(crate) struct Image {
    /// Number in the trace.
    pub number: u64,
    memory: ProgramMemory,
    /// The pages as last read.
    pub pages: RecordedPages,
    /// Pages that must be read at the end of the turn, some of them more than once.
    stale: Vec<u64>,
    /// Pages noted in this turn, times two, plus 1 if they are written, plus 2.
    noted: Box<[u64; FILTER]>,
}

impl Image {
    /// An image whose pages have not been read.
    pub fn new(number: u64, memory: ProgramMemory) -> Image {
        Image {
            number,
            memory,
            pages: RecordedPages::default(),
            stale: Vec::new(),
            noted: Box::new([0; FILTER]),
        }
    }

    /// True if it is that of this memory.
    pub fn is_of(&self, memory: &ProgramMemory) -> bool {
        self.memory == *memory
    }

    /// Notes the pages of the memory accesses among `words` of a ring that are written or new.
    pub fn note(&mut self, words: &[u64]) {
        for &word in words {
            if record::tag(word) != record::MEM {
                continue;
            }
            let page = (word & ADDRESS_MASK) >> PAGE_SHIFT;
            let writes = word & STORE != 0;
            let key = (page << 1 | u64::from(writes)) + 2;
            let noted = &mut self.noted[page as usize % FILTER];
            // A page that is written need not be noted again for a load.
            if *noted == key || *noted == key + 1 && !writes {
                continue;
            }
            *noted = key;
            if writes || !self.pages.contains(page) {
                self.stale.push(page);
            }
        }
    }

    /// Notes that the kernel has written to `bytes` at `va`.
    #[cold]
    pub fn note_range(&mut self, va: u64, bytes: u64) {
        if bytes > 0 {
            let last = va.saturating_add(bytes - 1) >> PAGE_SHIFT;
            self.stale.extend(va >> PAGE_SHIFT..=last);
        }
    }

    /// Reads the pages noted. A page that cannot be read keeps its last contents.
    pub fn read(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        self.noted.fill(0);
        self.stale.sort_unstable();
        self.stale.dedup();
        let mut bytes = [0; PAGE_BYTES];
        for page in self.stale.drain(..) {
            if self.memory.0.read(page << PAGE_SHIFT, &mut bytes) {
                self.pages.set(page, &bytes);
            }
        }
    }
}
