//! A page table for tests that set each mapping themselves: one entry a walk.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use std::collections::BTreeMap;

use pagewalk_tables::{Flags, MappedRange, Next, Translation, Walk, WalkCaches, WalkState};
use pagewalk_units::{Addr, Frame, PageSize};

/// Pages by their first address: size, frame and flags. They do not overlap.
#[derive(Clone, Default, Debug)]
pub struct Pages(pub BTreeMap<u64, (PageSize, u64, Flags)>);

impl Pages {
    /// Maps the page of `size` at `va`, replacing all mappings in its range.
    pub fn map(&mut self, va: u64, size: PageSize, frame: u64, flags: Flags) {
        let first = va & !(size.bytes() - 1);
        self.unmap(first, size.bytes());
        self.0.insert(first, (size, frame, flags));
    }
    /// Unmaps the pages that have a byte in the range.
    pub fn unmap(&mut self, at: u64, bytes: u64) {
        self.0
            .retain(|&first, page| first + page.0.bytes() <= at || first >= at + bytes);
    }
    /// Physical address, page size and flags of `va`.
    pub fn find(&self, va: u64) -> Option<(u64, PageSize, Flags)> {
        let (first, &(size, frame, flags)) = self.0.range(..=va).next_back()?;
        (va < first + size.bytes()).then_some((frame + (va - first), size, flags))
    }
    /// The longest run of pages around `va` with equal rights and consecutive frames, if it exceeds
    /// 4 KB: first and last address, physical address of the first, and rights.
    pub fn run(&self, va: u64) -> Option<(u64, u64, u64, bool)> {
        let page = |va: u64| {
            let (&first, &(size, frame, flags)) = self.0.range(..=va).next_back()?;
            let last = first + (size.bytes() - 1);
            (va <= last).then_some((first, last, frame, flags.contains(Flags::WRITABLE)))
        };
        let (mut first, mut last, mut at, writable) = page(va)?;
        while let Some((below, end, frame, w)) = first.checked_sub(1).and_then(page) {
            if w != writable || frame + (end + 1 - below) != at {
                break;
            }
            (first, at) = (below, frame);
        }
        while let Some((above, end, frame, w)) = page(last + 1) {
            if w != writable || frame != at + (above - first) {
                break;
            }
            last = end;
        }
        (last - first >= 4096).then_some((first, last, at, writable))
    }
    /// Address of the line that a walk of the ranges reads first.
    pub const RANGES: u64 = 1 << 44;
    /// Address of the entry for `va`.
    pub fn entry(va: u64) -> u64 {
        (1 << 43) + (va >> 12) * 8
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Pages {
    fn next(&self, va: In, state: &mut WalkState, _: &mut WalkCaches<'_>) -> Next<Out> {
        state.step += 1;
        if state.step == 1 {
            let at = Out::new(Pages::entry(va.raw()));
            return Next::One { at, level: 1 };
        }
        self.translate(va).map_or(Next::Fault, Next::Done)
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let (pa, size, flags) = self.find(va.raw())?;
        Some(Translation {
            frame: Frame {
                base: Out::new(pa & !(size.bytes() - 1)),
            },
            size,
            flags,
            leaf: Out::new(Pages::entry(va.raw())),
        })
    }

    fn range(&self, va: In, reads: &mut Vec<Out>) -> Option<MappedRange<In, Out>> {
        let (first, last, at, writable) = self.run(va.raw())?;
        reads.extend([0, 64].map(|line| Out::new(Pages::RANGES + line)));
        Some(MappedRange {
            first: In::new(first),
            last: In::new(last),
            at: Out::new(at),
            writable,
        })
    }
}
