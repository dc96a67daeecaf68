//! The variable length delta prefetcher (Shevgoor et al., "Efficiently prefetching complex address
//! patterns", MICRO 2015). Details that the paper leaves open are as in its authors' code for the
//! second Data Prefetching Championship.
//!
//! A delta is the distance from one access of a page to the next, in lines. Tables that all pages
//! share map the latest deltas to the next one; each table uses one delta more than the one before
//! it.

use super::{PAGE_LINES_SHIFT, Recent, Wanted};

/// Saturation value of a prediction's counter (the authors' code).
const MOST_ACCURATE: u8 = 4;
/// Deltas in a page's history, a byte each.
const REMEMBERED: u8 = 8;
/// Most tables: their deltas and one more fit into a page's history.
pub(crate) const MOST_TABLES: u32 = 4;
/// Lines of a page.
const PAGE_LINES: usize = 1 << PAGE_LINES_SHIFT;

/// The next delta, and a counter of how often it was right.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    delta: i8,
    accuracy: u8,
}

impl Prediction {
    /// Trains on `delta`, which replaces a prediction that is wrong too often. Returns true if the
    /// prediction was right.
    fn learn(&mut self, delta: i8) -> bool {
        let right = self.delta == delta;
        if right {
            self.accuracy = (self.accuracy + 1).min(MOST_ACCURATE);
        } else {
            self.accuracy = self.accuracy.saturating_sub(1);
            if self.accuracy == 0 {
                self.delta = delta;
            }
        }
        right
    }
}

/// Maps the latest deltas to the next one; first-in first-out replacement.
#[derive(Clone, Debug)]
struct Table {
    /// Mask of the deltas in a key, a byte each, the latest lowest.
    mask: u64,
    entries: Vec<(u64, Prediction)>,
    capacity: usize,
    next: usize,
}

impl Table {
    fn get(&mut self, history: u64) -> Option<&mut Prediction> {
        let key = history & self.mask;
        let found = self.entries.iter_mut().find(|e| e.0 == key);
        found.map(|e| &mut e.1)
    }

    /// Trains on `delta` after `history`, which may be new.
    fn learn(&mut self, history: u64, delta: i8) {
        if let Some(prediction) = self.get(history) {
            prediction.learn(delta);
            return;
        }
        let entry = (history & self.mask, Prediction { delta, accuracy: 0 });
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
            self.next = (self.next + 1) % self.capacity;
        }
    }
}

/// A page that is being accessed.
#[derive(Clone, Copy, Debug)]
struct Page {
    first: u8,
    last: u8,
    /// Its last deltas, a byte each, the latest lowest.
    history: u64,
    /// Number of deltas in the history.
    deltas: u8,
    /// The table that predicted the next delta.
    provider: Option<u8>,
}

/// The prefetcher.
#[derive(Clone, Debug)]
pub(crate) struct Vldp {
    /// Delta history buffer.
    pages: Recent<Page>,
    /// Offset prediction table: the first delta of pages whose first access is to this line.
    offsets: [Option<Prediction>; PAGE_LINES],
    /// Delta prediction tables.
    tables: Vec<Table>,
    degree: u32,
}

fn push_delta(history: u64, delta: i8) -> u64 {
    history << 8 | u64::from(delta as u8)
}

impl Vldp {
    /// Tracks `pages` pages with `tables` of `entries` each. The first table is indexed by the last
    /// delta, each further one by one delta more. At most `degree` lines an access.
    pub fn new(pages: u32, tables: u32, entries: u32, degree: u32) -> Self {
        let table = |n: u32| Table {
            mask: (1 << (8 * (n + 1))) - 1,
            entries: Vec::with_capacity(entries as usize),
            capacity: entries as usize,
            next: 0,
        };
        Vldp {
            pages: Recent::new(pages as usize),
            offsets: [None; PAGE_LINES],
            tables: (0..tables).map(table).collect(),
            degree,
        }
    }

    /// Trains on an access to `line`. Returns true if it put lines into `wanted`.
    #[inline(never)]
    pub fn train(&mut self, line: u64, wanted: &mut Wanted) -> bool {
        let number = line >> PAGE_LINES_SHIFT;
        let base = number << PAGE_LINES_SHIFT;
        let offset = (line - base) as u8;
        let Some(page) = self.pages.get(number) else {
            let page = Page {
                first: offset,
                last: offset,
                history: 0,
                deltas: 0,
                provider: None,
            };
            self.pages.insert(number, page);
            if let Some(first) = self.offsets[usize::from(offset)] {
                let to = i16::from(offset) + i16::from(first.delta);
                // The predicted first delta stays within the page.
                wanted.push(base + to as u64);
            }
            return !wanted.is_empty();
        };
        if offset == page.last {
            return false;
        }
        let delta = offset as i8 - page.last as i8;
        if page.deltas == 0 {
            let none = Prediction { delta, accuracy: 0 };
            let first = &mut self.offsets[usize::from(page.first)];
            match first {
                Some(known) => _ = known.learn(delta),
                None => *first = Some(none),
            }
        } else {
            learn(&mut self.tables, page, delta);
        }
        page.last = offset;
        page.history = push_delta(page.history, delta);
        page.deltas = (page.deltas + 1).min(REMEMBERED);
        page.provider = None;
        let (mut history, mut at) = (page.history, i16::from(offset));
        for step in 0..self.degree {
            let Some((provider, delta)) = predict(&mut self.tables, history, page.deltas) else {
                break;
            };
            if step == 0 {
                page.provider = Some(provider);
            }
            at += i16::from(delta);
            if !(0..PAGE_LINES as i16).contains(&at) {
                break;
            }
            if at != i16::from(offset) {
                wanted.push(base + at as u64);
            }
            history = push_delta(history, delta);
        }
        !wanted.is_empty()
    }
}

/// The prediction of the longest known history, and its table. Not longer than the page's own
/// history.
fn predict(tables: &mut [Table], history: u64, deltas: u8) -> Option<(u8, i8)> {
    let longest = usize::from(deltas).min(tables.len());
    (0..longest).rev().find_map(|n| {
        let found = tables[n].get(history)?;
        Some((n as u8, found.delta))
    })
}

/// Trains the table that predicted on `delta` after the history of `page`. If the prediction was
/// wrong, trains the next longer table too. If no table predicted, or the first lacks the history,
/// trains the first.
fn learn(tables: &mut [Table], page: &Page, delta: i8) {
    let (history, deltas) = (page.history, usize::from(page.deltas));
    let provider = page.provider.map(usize::from);
    let known = provider.and_then(|n| tables[n].get(history));
    let right = known.map(|prediction| prediction.learn(delta));
    if let (Some(n), Some(false)) = (provider, right)
        && n + 1 < tables.len()
        && deltas > n + 1
    {
        tables[n + 1].learn(history, delta);
    }
    if right.is_none() || tables[0].get(history).is_none() {
        tables[0].learn(history, delta);
    }
}

#[cfg(test)]
mod tests {
    use super::{Vldp, Wanted};

    fn train(p: &mut Vldp, line: u64) -> Vec<u64> {
        let mut w = Wanted::new();
        p.train(line, &mut w);
        w.to_vec()
    }

    /// Accesses the lines of a page. Returns the prefetches of the last one, as lines of the page.
    fn walk(p: &mut Vldp, page: u64, lines: &[u64]) -> Vec<u64> {
        let mut last = vec![];
        for line in lines {
            last = train(p, page * 64 + line);
        }
        last.iter().map(|l| l - page * 64).collect()
    }

    #[test]
    fn a_repeated_pattern_is_predicted_from_its_history_alone() {
        let mut p = Vldp::new(16, 3, 64, 4);
        // 1 2 1 2: the first table predicts 2 after 1, and 1 after 2.
        assert_eq!(walk(&mut p, 5, &[0, 1, 3, 4]), [6, 7, 9, 10]);
        // Also in a new page, from its first delta on.
        assert_eq!(walk(&mut p, 9, &[20, 22]), [23, 25, 26, 28]);
    }

    #[test]
    fn the_first_access_of_a_page_prefetches_by_the_first_delta_of_other_pages() {
        let mut p = Vldp::new(16, 3, 64, 4);
        assert!(walk(&mut p, 1, &[7]).is_empty());
        walk(&mut p, 1, &[10]);
        assert_eq!(walk(&mut p, 2, &[7]), [10]);
        assert!(walk(&mut p, 3, &[8]).is_empty(), "another line");
        // Wrong with its counter at zero: replaced.
        walk(&mut p, 2, &[9]);
        assert_eq!(walk(&mut p, 4, &[7]), [9]);
        // Right twice: replaced only after as many wrong ones.
        walk(&mut p, 4, &[9]);
        walk(&mut p, 5, &[7, 9]);
        walk(&mut p, 6, &[7, 8]);
        assert_eq!(walk(&mut p, 7, &[7]), [9]);
        walk(&mut p, 7, &[8]);
        assert_eq!(walk(&mut p, 8, &[7]), [8]);
    }

    #[test]
    fn two_deltas_distinguish_what_one_cannot() {
        // 1 1 2: after a 1 comes alternately a 1 and a 2.
        let lines: Vec<u64> = (0..12).map(|i| i / 3 * 4 + i % 3).collect();
        for (tables, expected) in [(1, false), (2, true)] {
            let mut right = 0;
            for i in 3..11 {
                let mut p = Vldp::new(16, tables, 64, 1);
                walk(&mut p, 1, &lines);
                walk(&mut p, 2, &lines);
                let prefetched = walk(&mut p, 3, &lines[..=i]);
                right += u64::from(prefetched == [lines[i + 1]]);
            }
            assert_eq!(right == 8, expected, "{tables} tables: {right} of 8");
        }
    }

    #[test]
    fn it_stays_in_the_page() {
        let mut p = Vldp::new(16, 3, 64, 4);
        assert_eq!(walk(&mut p, 1, &[50, 54, 58]), [62]);
        assert_eq!(walk(&mut p, 2, &[9, 5, 1]), [] as [u64; 0]);
    }

    #[test]
    fn the_oldest_entry_of_a_table_goes() {
        let mut p = Vldp::new(16, 1, 2, 1);
        walk(&mut p, 1, &[0, 1, 2]); // 1 after 1
        walk(&mut p, 2, &[0, 2, 4]); // 2 after 2
        assert_eq!(walk(&mut p, 3, &[10, 11]), [12]);
        walk(&mut p, 4, &[0, 3, 6]); // 3 after 3, over the first
        assert!(walk(&mut p, 5, &[10, 11]).is_empty());
        assert_eq!(walk(&mut p, 6, &[10, 12]), [14]);
    }
}
