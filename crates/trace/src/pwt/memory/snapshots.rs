//! The memory of recorded processes before each block of the file.
//!
//! A snapshot is a pure function of its place in the file, so a replay does not depend on the order in which host
//! threads read. Its pages are decoded at the first read only: a design without wrong paths reads none.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use pagewalk_input::FileError;
use pagewalk_stream::{Memory, ProgramMemory, ThreadId};

use super::{PAGE_SHIFT, Page, WORDS, each_page};
use crate::pwt::block::{BlockHeader, load};

/// Binary logarithm of the children of an inner node.
const FANOUT_LOG: u32 = 9;
/// Levels of inner nodes: page numbers have 36 bits.
const LEVELS: u32 = 4;

/// A node of the tree of pages. Snapshots share the nodes that are equal.
#[derive(Clone)]
enum Node {
    Inner(Box<[Option<Arc<Node>>; 1 << FANOUT_LOG]>),
    Page(Box<Page>),
}

/// Pages of a process, by number.
#[derive(Clone, Default)]
pub(super) struct PageTree {
    root: Option<Arc<Node>>,
}

fn child(page: u64, level: u32) -> usize {
    (page >> (FANOUT_LOG * level)) as usize % (1 << FANOUT_LOG)
}

impl PageTree {
    /// The contents of `page`, if it was recorded.
    pub fn get(&self, page: u64) -> Option<&Page> {
        if page >> (FANOUT_LOG * LEVELS) != 0 {
            return None;
        }
        let mut node = self.root.as_ref()?;
        for level in (0..LEVELS).rev() {
            let Node::Inner(children) = &**node else {
                return None;
            };
            node = children[child(page, level)].as_ref()?;
        }
        match &**node {
            Node::Page(page) => Some(page),
            Node::Inner(_) => None,
        }
    }

    /// Changes words of `page`, which begins with zeros.
    pub fn change(&mut self, page: u64, words: &[(usize, u64)]) {
        let mut at = &mut self.root;
        for level in (0..LEVELS).rev() {
            let node = at.get_or_insert_with(|| {
                Arc::new(Node::Inner(Box::new([const { None }; 1 << FANOUT_LOG])))
            });
            let Node::Inner(children) = Arc::make_mut(node) else {
                unreachable!("pages are at the last level");
            };
            at = &mut children[child(page, level)];
        }
        let node = at.get_or_insert_with(|| Arc::new(Node::Page(Box::new([0; WORDS]))));
        if let Node::Page(contents) = Arc::make_mut(node) {
            for &(index, word) in words {
                contents[index] = word;
            }
        }
    }
}

/// Checks a block of memory.
///
/// # Errors
/// The fault of the block.
pub(crate) fn check_memory(
    path: &Path,
    file: &mut File,
    block: (u64, &BlockHeader),
) -> Result<(), FileError> {
    apply(path, file, block, &mut PageTree::default())
}

/// Decodes a block of memory into `pages`.
///
/// # Errors
/// The fault of the block.
fn apply(
    path: &Path,
    file: &mut File,
    (offset, header): (u64, &BlockHeader),
    pages: &mut PageTree,
) -> Result<(), FileError> {
    let raw = load(path, file, offset, header)?;
    let columns = header.memory_columns(&raw);
    each_page(header.ops, columns, |page, words| pages.change(page, words)).ok_or_else(|| {
        let what =
            "pages make no sense (in a block whose checksum is right: a defect of its writer)";
        FileError::at(path, offset, what)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that all snapshots of a file share.
#[derive(Debug)]
struct Source {
    path: Arc<PathBuf>,
    /// Locked while a snapshot is decoded.
    file: Mutex<Option<File>>,
    fault: OnceLock<FileError>,
}

/// Memory of a process after some of its parts.
struct Snapshot {
    source: Arc<Source>,
    /// An earlier snapshot; `None`: no page. Dropped once this one is decoded.
    before: Mutex<Option<Arc<Snapshot>>>,
    /// Blocks of the file between the two.
    parts: Vec<(u64, BlockHeader)>,
    pages: OnceLock<PageTree>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "recorded memory in {}", self.source.path.display())
    }
}

impl Snapshot {
    fn pages(&self) -> &PageTree {
        if let Some(pages) = self.pages.get() {
            return pages;
        }
        let pages = self.pages.get_or_init(|| {
            let mut file = lock(&self.source.file);
            let mut chain = Vec::new();
            let mut at = lock(&self.before).clone();
            while let Some(snapshot) = at {
                // In this order: the earlier snapshot is dropped after the pages are set.
                let before = lock(&snapshot.before).clone();
                at = before.filter(|_| snapshot.pages.get().is_none());
                chain.push(snapshot);
            }
            let mut pages = PageTree::default();
            for snapshot in chain.iter().rev() {
                pages = match snapshot.pages.get() {
                    Some(pages) => pages.clone(),
                    None => self.source.decoded(&mut file, &snapshot.parts, pages),
                };
            }
            self.source.decoded(&mut file, &self.parts, pages)
        });
        drop(lock(&self.before).take());
        pages
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // A loop, because a chain may be longer than the stack.
        let mut at = lock(&self.before).take();
        while let Some(mut snapshot) = at.and_then(Arc::into_inner) {
            at = snapshot
                .before
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
    }
}

impl Source {
    /// `pages` after these blocks. A fault is kept, and the rest is left out.
    fn decoded(
        &self,
        file: &mut Option<File>,
        parts: &[(u64, BlockHeader)],
        mut pages: PageTree,
    ) -> PageTree {
        let opened = match file.take() {
            Some(file) => Ok(file),
            None => {
                File::open(&*self.path).map_err(|e| FileError::io(&self.path, "open the trace", &e))
            }
        };
        let done = opened.and_then(|mut opened| {
            for (offset, header) in parts {
                apply(&self.path, &mut opened, (*offset, header), &mut pages)?;
            }
            Ok(opened)
        });
        match done {
            Ok(opened) => *file = Some(opened),
            Err(error) => drop(self.fault.set(error)),
        }
        pages
    }
}

impl Memory for Snapshot {
    fn read(&self, va: u64, into: &mut [u8]) -> bool {
        let pages = self.pages();
        let (mut at, mut rest) = (va, into);
        while !rest.is_empty() {
            let Some(page) = pages.get(at >> PAGE_SHIFT) else {
                return false;
            };
            let inside = (at & ((1 << PAGE_SHIFT) - 1)) as usize;
            let bytes = rest.len().min((8 * WORDS) - inside);
            for (i, byte) in rest[..bytes].iter_mut().enumerate() {
                let place = inside + i;
                *byte = page[place / 8].to_le_bytes()[place % 8];
            }
            rest = &mut rest[bytes..];
            at = at.wrapping_add(bytes as u64);
        }
        true
    }
}

/// A block of memory: its number in the file, its offset and its header.
type Part = (usize, u64, BlockHeader);

/// The memory in a file.
pub(crate) struct MemoryInFile {
    source: Arc<Source>,
    /// Parts of each process.
    parts: BTreeMap<u64, Vec<Part>>,
    /// For each thread: blocks of memory from which on it belongs to a process.
    processes: BTreeMap<ThreadId, Vec<(usize, u64)>>,
    /// Snapshots in use, by process and number of parts.
    alive: Mutex<BTreeMap<(u64, usize), Weak<Snapshot>>>,
}

impl MemoryInFile {
    /// The memory in these blocks of a file.
    pub fn new(path: Arc<PathBuf>, blocks: impl Iterator<Item = Part>) -> Self {
        let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut processes: BTreeMap<ThreadId, Vec<(usize, u64)>> = BTreeMap::new();
        for part in blocks {
            let (number, _, header) = part;
            let process = header.before;
            let of_thread = processes.entry(header.thread).or_default();
            if of_thread.last().is_none_or(|(_, last)| *last != process) {
                of_thread.push((number, process));
            }
            parts.entry(process).or_default().push(part);
        }
        MemoryInFile {
            source: Arc::new(Source {
                path,
                file: Mutex::new(None),
                fault: OnceLock::new(),
            }),
            parts,
            processes,
            alive: Mutex::default(),
        }
    }

    /// The fault that a read has met.
    pub fn fault(&self) -> Option<&FileError> {
        self.source.fault.get()
    }

    /// Memory of the process of `thread` before block `number` of the file.
    pub fn before(&self, thread: ThreadId, number: usize) -> Option<ProgramMemory> {
        let of_thread = self.processes.get(&thread)?;
        let at = of_thread.partition_point(|(n, _)| *n < number);
        let process = of_thread[at.checked_sub(1)?].1;
        let parts = &self.parts[&process];
        let count = parts.partition_point(|(n, ..)| *n < number);
        let mut alive = lock(&self.alive);
        alive.retain(|_, snapshot| snapshot.strong_count() > 0);
        let mut earlier = alive.range((process, 0)..=(process, count)).rev();
        let nearest = earlier.find_map(|((_, n), snapshot)| Some((*n, snapshot.upgrade()?)));
        let (from, before) = match nearest {
            Some((n, snapshot)) if n == count => return Some(ProgramMemory(snapshot)),
            Some((n, snapshot)) => (n, Some(snapshot)),
            None => (0, None),
        };
        let blocks = parts[from..count].iter();
        let snapshot = Arc::new(Snapshot {
            source: Arc::clone(&self.source),
            before: Mutex::new(before),
            parts: blocks
                .map(|(_, offset, header)| (*offset, *header))
                .collect(),
            pages: OnceLock::new(),
        });
        alive.insert((process, count), Arc::downgrade(&snapshot));
        Some(ProgramMemory(snapshot))
    }
}
