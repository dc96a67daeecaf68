//! Addresses of one kind of object, for every edge. Most lie at a constant distance, since the loader
//! allocates the objects of one edge after another. They are stored as runs.

use crate::layout::HEAP;

/// Bits of a run's address, in units of 16 bytes from the heap's start: 1 TiB.
const ADDRESS_BITS: u32 = 36;

/// Addresses of the edges' objects, by row.
pub struct Runs {
    stride: u64,
    /// First run of each vertex in `runs`, and the end of its runs.
    rows: Vec<[u32; 2]>,
    /// First run of the current row.
    begun: u32,
    /// Per run: number of its first edge in the row, and address.
    runs: Vec<u64>,
    /// Address of the next edge's object, if it continues the run.
    expected: u64,
}

/// A position in a row.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: u64,
    /// Remaining runs of the row.
    next: u32,
    end: u32,
    edge: u64,
}

impl Runs {
    /// No runs yet, of objects `stride` bytes apart.
    pub fn new(stride: u64, vertices: u64) -> Self {
        Runs {
            stride,
            rows: vec![[0; 2]; vertices as usize],
            begun: 0,
            runs: Vec::new(),
            expected: 0,
        }
    }

    /// Appends the object of the `edge`-th edge of the current row, at address `at`.
    #[inline(always)]
    pub fn push(&mut self, edge: u64, at: u64) {
        if at != self.expected || edge == 0 {
            debug_assert!(edge < 1 << (64 - ADDRESS_BITS) && at >= HEAP && at.is_multiple_of(16));
            self.runs.push((edge << ADDRESS_BITS) | ((at - HEAP) / 16));
        }
        self.expected = at + self.stride;
    }

    /// Ends the current row, which belongs to `vertex`.
    pub fn end_row(&mut self, vertex: u32) {
        let end = self.runs.len() as u32;
        self.rows[vertex as usize] = [self.begun, end];
        self.begun = end;
    }

    /// Position of the first edge of `vertex`, which must have one.
    #[inline(always)]
    pub fn row(&self, vertex: u32) -> Cursor {
        let [first, end] = self.rows[vertex as usize];
        Cursor {
            at: self.address(first),
            next: first + 1,
            end,
            edge: 0,
        }
    }

    #[inline(always)]
    fn address(&self, run: u32) -> u64 {
        HEAP + (self.runs[run as usize] & ((1 << ADDRESS_BITS) - 1)) * 16
    }

    /// Advances to the next edge of the row.
    #[inline(always)]
    pub fn advance(&self, cursor: &mut Cursor) {
        cursor.edge += 1;
        cursor.at += self.stride;
        if cursor.next < cursor.end
            && self.runs[cursor.next as usize] >> ADDRESS_BITS == cursor.edge
        {
            cursor.at = self.address(cursor.next);
            cursor.next += 1;
        }
    }
}

impl Cursor {
    /// Address of the current edge's object.
    #[inline(always)]
    pub fn at(&self) -> u64 {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::Runs;
    use crate::layout::HEAP;

    #[test]
    fn addresses_come_back_as_they_were_given() {
        let rows: Vec<Vec<u64>> = vec![
            vec![0, 272, 544, 5000 * 16, 5000 * 16 + 272],
            vec![],
            vec![5000 * 16 + 544, 16, 32, 48],
        ];
        let mut places = Runs::new(272, 3);
        // The vertices may come in any order.
        for v in [2, 0, 1] {
            for (i, at) in rows[v].iter().enumerate() {
                places.push(i as u64, HEAP + at);
            }
            places.end_row(v as u32);
        }
        for (v, row) in rows.iter().enumerate().filter(|r| !r.1.is_empty()) {
            let mut cursor = places.row(v as u32);
            for at in row {
                assert_eq!(cursor.at(), HEAP + at);
                places.advance(&mut cursor);
            }
        }
    }
}
