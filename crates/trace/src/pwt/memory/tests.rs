//! Pages that are written to a file come back as they were before each of its blocks.

use std::collections::BTreeMap;

use pagewalk_stream::{End, ProgramMemory};
use proptest::prelude::*;

use super::{PAGE_SHIFT, Page, RecordedPages, WORDS, each_page};
use crate::check_trace;
use crate::pwt::block::Holds;
use crate::pwt::file::PwtFile;
use crate::pwt::marks::Mark;
use crate::pwt::memory::MemoryPart;
use crate::pwt::steps::StepEncoder;
use crate::pwt::{Header, TraceWriter};

/// Pages, near and far from each other, up to the last of user space.
const PAGES: [u64; 5] = [0, 1, 0x7_ffff, 0x5_5555_5555, (1 << 36) - 1];

/// A change of a process.
#[derive(Clone, Debug)]
enum Change {
    /// Words of a page, by index.
    Set(usize, usize, BTreeMap<usize, u64>),
    /// The block of a thread ends. The thread has the number of its process.
    Seal(usize),
}

fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0..100u64,
        // A pointer near or far from the words of the pages above.
        (0..PAGES.len(), 0..4096u64).prop_map(|(page, at)| PAGES[page] << PAGE_SHIFT | at),
        any::<u64>(),
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    let words = prop::collection::btree_map(0..WORDS, any_word(), 0..6);
    prop_oneof![
        3 => (0..2usize, 0..PAGES.len(), words).prop_map(|(p, page, w)| Change::Set(p, page, w)),
        1 => (0..2usize).prop_map(Change::Seal),
    ]
}

type Pages = BTreeMap<u64, Box<Page>>;

fn bytes(page: &Page) -> [u8; 8 * WORDS] {
    let all: Vec<u8> = page.iter().flat_map(|w| w.to_le_bytes()).collect();
    all.try_into().expect("a page's length")
}

/// Pages as a snapshot has them.
fn read(memory: Option<&ProgramMemory>) -> Pages {
    let mut found = Pages::new();
    let Some(memory) = memory else {
        return found;
    };
    for page in PAGES {
        let mut bytes = [0; 8 * WORDS];
        if memory.0.read(page << PAGE_SHIFT, &mut bytes) {
            let (words, _) = bytes.as_chunks();
            let mut all = Box::new([0; WORDS]);
            for (word, bytes) in all.iter_mut().zip(words) {
                *word = u64::from_le_bytes(*bytes);
            }
            found.insert(page, all);
        }
    }
    found
}

proptest! {
    /// In whichever order the snapshots are read, and whichever of them are still in use.
    #[test]
    fn memory_comes_back(
        changes in prop::collection::vec(any_change(), 1..40),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.pwt");
        let header = Header { memory: true, ..Header::default() };
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        let mut recorded = [RecordedPages::default(), RecordedPages::default()];
        let mut now = [Pages::new(), Pages::new()];
        let mut expected = Vec::new();
        for change in changes {
            match change {
                Change::Set(process, page, words) => {
                    let contents = now[process].entry(PAGES[page]).or_insert([0; WORDS].into());
                    for (index, word) in words {
                        contents[index] = word;
                    }
                    recorded[process].set(PAGES[page], &bytes(contents));
                }
                Change::Seal(process) => {
                    let mut parts = recorded[process].take();
                    parts.push(MemoryPart::default());
                    for part in parts {
                        writer.memory(process as u32, process as u64, part).unwrap();
                    }
                    let mut steps = StepEncoder::default();
                    steps.mark(&Mark::End(End::More));
                    writer.steps(process as u32, 0, steps.take()).unwrap();
                    expected.push((process as u32, now[process].clone()));
                }
            }
        }
        writer.finish().unwrap();
        prop_assert!(check_trace(&path, None).unwrap().fault.is_none());

        let file = PwtFile::open(&path, false).unwrap();
        let memory = file.memory();
        let blocks = file.blocks.iter().enumerate().filter(|(_, (_, h))| h.holds == Holds::Steps);
        let blocks: Vec<usize> = blocks.map(|(number, _)| number).collect();
        prop_assert_eq!(blocks.len(), expected.len());
        if expected.is_empty() {
            return Ok(());
        }
        let mut held = Vec::new();
        for (at, keeps) in order {
            let at = at.index(expected.len());
            let (thread, pages) = &expected[at];
            let snapshot = memory.before(*thread, blocks[at]);
            // Some are never read, and only later ones build on them.
            if keeps {
                held.push(snapshot);
            } else {
                prop_assert_eq!(&read(snapshot.as_ref()), pages);
            }
        }
        for ((thread, pages), number) in expected.iter().zip(&blocks) {
            prop_assert_eq!(&read(memory.before(*thread, *number).as_ref()), pages);
        }
        prop_assert!(memory.fault().is_none());
    }

    /// Whatever a block holds, reading it ends, and names only pages and words that exist.
    #[test]
    fn no_part_names_what_does_not_exist(
        pages in 0..9u32,
        columns in prop::array::uniform3(prop::collection::vec(any::<u8>(), 0..60)),
    ) {
        let columns = [&columns[0][..], &columns[1], &columns[2]];
        each_page(pages, columns, |page, words| {
            assert!(page < 1 << 36 && words.iter().all(|(index, _)| *index < WORDS));
        });
    }
}

#[test]
fn words_across_pages_are_read_and_unknown_pages_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.pwt");
    let mut writer = TraceWriter::create(&path, &Header::default()).unwrap();
    let mut pages = RecordedPages::default();
    let (mut first, mut second) = ([0; WORDS], [0; WORDS]);
    first[WORDS - 1] = 0x1122_3344_5566_7788;
    second[0] = 0x99aa_bbcc_ddee_ff00;
    pages.set(7, &bytes(&first));
    pages.set(8, &bytes(&second));
    for part in pages.take() {
        writer.memory(0, 0, part).unwrap();
    }
    assert!(pages.take().is_empty(), "nothing has changed since");
    writer.finish().unwrap();
    let memory = PwtFile::open(&path, false).unwrap().memory();
    assert!(memory.before(0, 0).is_none() && memory.before(1, 1).is_none());
    let memory = memory.before(0, 1).unwrap();
    assert_eq!(memory.word(0x8000), Some(second[0]));
    assert_eq!(memory.word(0x7ffc), Some(0xddee_ff00_1122_3344));
    // Seven bytes of the word are recorded.
    assert_eq!(memory.word(0x8ff9), None);
    assert_eq!(memory.word(u64::MAX - 7), None);
}
