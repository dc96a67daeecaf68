//! Physical memory: ownership of frames, and their state at boot.

use std::ops::Range;

use pagewalk_tables::{GuestUse, Purpose, Want};
use pagewalk_units::{PageSize, Rng, rng};
use rand::RngExt;

use crate::bits::Bits;
use crate::buddy::{Buddy, MAX_ORDER};
use crate::drawn::Drawn;
use crate::share::Shares;
use crate::spec::{CompactionSpec, FragmentationSpec, OsSpec};

/// log2 of the 4 KB frames in a 2 MB block.
pub const HUGE_ORDER: u8 = 9;
/// log2 of the 4 KB frames in a 1 GB block.
pub const GIANT_ORDER: u8 = 18;

/// log2 of the frames in a page of `size`.
pub fn order(size: PageSize) -> u8 {
    size.shift() as u8 - 12
}

/// Formats a size: `64 MB`, `4 KB`, `100 bytes`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.trailing_zeros() >= 30 => format!("{} GB", b >> 30),
        b if b >= 1 << 20 && b.trailing_zeros() >= 20 => format!("{} MB", b >> 20),
        b if b >= 1 << 10 && b.trailing_zeros() >= 10 => format!("{} KB", b >> 10),
        b => format!("{b} bytes"),
    }
}

/// A bit map of the free frames in `first..frames`. Exactly `taken` of them, chosen at
/// random, are not free (selection sampling: Knuth, vol. 2, 3.4.2, algorithm S).
fn occupy(first: u64, frames: u64, taken: u64, rng: &mut Rng) -> Vec<u64> {
    let mut free = vec![0; frames.div_ceil(64) as usize];
    let mut left = taken;
    for frame in first..frames {
        if rng.random_range(0..frames - frame) < left {
            left -= 1;
        } else {
            free[(frame >> 6) as usize] |= 1 << (frame & 63);
        }
    }
    free
}

/// Frames of a guest that came into use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutToUse {
    /// First frame.
    pub frame: u64,
    /// Number of frames.
    pub frames: u64,
    /// Use of the first frame.
    pub of: GuestUse,
}

/// Physical memory.
#[derive(Clone, Debug)]
pub struct Memory {
    buddy: Buddy,
    shares: Shares,
    /// Movable frames that fragment memory.
    pins: Bits,
    /// Frames that other programs hold since boot. They never move.
    occupied: u64,
    /// Unusable-free index at boot, which determines the price of block allocations.
    index: f64,
    compaction: CompactionSpec,
    /// Share of 2 MB requests that succeed, if it is configured.
    served: Option<(f64, Rng)>,
    /// The 2 MB blocks that successful requests may get, for kernels that select specific
    /// blocks.
    whole: Option<Drawn>,
    kernel_frames: u64,
    /// In a guest: address window above its memory for the ways of hashed page tables.
    /// Ways are contiguous there, and the host backs them page by page.
    window: Option<Buddy>,
    /// In a guest: frames that came into use and are not yet backed by the host.
    touched: Option<Vec<PutToUse>>,
    /// Contiguous blocks for which frames were migrated, and number of frames migrated.
    pub compactions: u64,
    /// See `compactions`.
    pub compacted_frames: u64,
}

impl Memory {
    /// Memory at boot. `spec` is already checked.
    pub(crate) fn new(spec: &OsSpec, seed: u64) -> Self {
        let frames = spec.memory_gb << 18;
        let first = spec.kernel_blocks() << 9;
        let occupied = spec.occupied_frames();
        let buddy = if occupied == 0 {
            let mut buddy = Buddy::new(frames);
            buddy.free_range(first, frames);
            buddy
        } else {
            let free = occupy(first, frames, occupied, &mut rng(seed, "os.occupied"));
            Buddy::with_free(frames, free)
        };
        let blocks = (frames - first) >> 9;
        let (whole, free) = (buddy.available(HUGE_ORDER), buddy.free_frames());
        let (pinned, index, served) = match spec.fragmentation {
            FragmentationSpec::None => (0, 0.0, None),
            FragmentationSpec::Available2mb(a) => {
                let broken = ((1.0 - a) * blocks as f64).round() as u64;
                let pinned = broken.saturating_sub(blocks - whole);
                let free = (free - pinned) as f64;
                (pinned, pinned as f64 * 511.0 / free, None)
            }
            FragmentationSpec::UnusableFreeIndex(f) => {
                // f = 1 - 512 (whole - p) / (free - p)
                let outside = (free - 512 * whole) as f64;
                let wanted = f * 512.0 * whole as f64 - (1.0 - f) * outside;
                // Negative if memory is already that fragmented: then nothing is pinned.
                let pinned = (wanted / (511.0 + f)).round() as u64;
                (pinned.min(whole), f, None)
            }
            FragmentationSpec::Served2mb(a) => {
                (0, 1.0 - a, Some((a, rng(seed, "os.fragmentation.served"))))
            }
        };
        let whole = served.as_ref().map(|&(share, _)| Drawn {
            share,
            seed: rng(seed, "os.fragmentation.whole").random(),
        });
        let mut memory = Memory {
            buddy,
            shares: Shares::default(),
            pins: Bits::new(frames),
            occupied,
            index,
            compaction: spec.compaction,
            served,
            whole,
            kernel_frames: first,
            window: None,
            touched: None,
            compactions: 0,
            compacted_frames: 0,
        };
        memory.pin(first, pinned, &mut rng(seed, "os.fragmentation"));
        if occupied > 0 {
            // The configured index may differ from the actual one.
            memory.index = index.max(memory.buddy.unusable_free_index(HUGE_ORDER));
        }
        memory
    }

    /// Allocates one frame in exactly `pinned` of the entirely free 2 MB blocks from
    /// `first` on (selection sampling, as [`occupy`]).
    fn pin(&mut self, first: u64, pinned: u64, rng: &mut Rng) {
        let (mut left, mut whole) = (pinned, self.buddy.available(HUGE_ORDER));
        for block in (first..self.buddy.frames()).step_by(1 << HUGE_ORDER) {
            if left == 0 {
                break;
            }
            if !self.buddy.is_free(block, HUGE_ORDER) {
                continue;
            }
            let chosen = rng.random_range(0..whole) < left;
            whole -= 1;
            if chosen {
                left -= 1;
                let frame = block + rng.random_range(0..512);
                let taken = self.buddy.alloc_at(frame, 0);
                debug_assert!(taken);
                self.pins.insert(frame);
            }
        }
    }

    /// Turns this into the memory of a guest. As many frames again, beyond its own, form
    /// the window for ways.
    pub(crate) fn virtualise(&mut self) {
        let own = self.buddy.frames();
        let mut window = Buddy::new(2 * own);
        window.free_range(own, 2 * own);
        self.window = Some(window);
        self.touched = Some(Vec::new());
    }

    /// Records that frames came into use, so that a host backs them.
    #[inline]
    pub(crate) fn used(&mut self, frame: u64, frames: u64, of: GuestUse) {
        if let Some(touched) = &mut self.touched {
            touched.push(PutToUse { frame, frames, of });
        }
    }

    /// The frames that came into use since the last call.
    pub(crate) fn take_used(&mut self) -> Vec<PutToUse> {
        self.touched
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Allocates a block for `want` with the buddy strategy for its purpose. Returns its
    /// first frame; `None` if there is none.
    #[inline]
    pub fn take(&mut self, want: &Want) -> Option<u64> {
        let order = want.order();
        match want.purpose {
            Purpose::Node { .. } | Purpose::Rows => self.alloc_contiguous(order),
            Purpose::Way => match &mut self.window {
                Some(window) => window.alloc(order),
                None => self.alloc_contiguous(order),
            },
            Purpose::Reservation { .. } => self.alloc_block(order),
            Purpose::Collapse { defrag, .. } => self.alloc_collapse(order, defrag),
            _ if order == 0 => self.alloc_page(),
            _ if order < HUGE_ORDER => self.alloc_low(order),
            _ => self.alloc_block(order),
        }
    }

    /// Prefetches the allocator's bits of `frame`, which will probably be allocated.
    #[inline]
    pub fn host_prefetch(&self, frame: u64) {
        self.buddy.host_prefetch(frame);
    }

    /// Allocates exactly the block of `order` at `frame`, which must be aligned. Returns
    /// false, and changes nothing, if it is not entirely free.
    #[inline]
    pub fn alloc_at(&mut self, frame: u64, order: u8) -> bool {
        frame + (1 << order) <= self.buddy.frames() && self.buddy.alloc_at(frame, order)
    }

    /// A frame for a 4 KB page: the lowest one in the 2 MB blocks that are partly in use.
    ///
    /// Program pages are not movable here, although Linux would migrate them for a
    /// contiguous block. Spread over all partly used blocks, they would leave none for
    /// compaction to empty.
    #[inline]
    fn alloc_page(&mut self) -> Option<u64> {
        self.alloc_low(0)
    }

    /// A block of `order` that avoids breaking larger blocks. The last sixteenth of memory
    /// is left for those.
    #[inline]
    fn alloc_low(&mut self, order: u8) -> Option<u64> {
        let frames = self.buddy.frames();
        self.buddy
            .alloc_within(order, HUGE_ORDER, frames - frames / 16)
    }

    /// A block for a 2 MB or 1 GB page or for a reservation, if one is free without
    /// migration.
    fn alloc_block(&mut self, order: u8) -> Option<u64> {
        self.serves_block().then(|| self.buddy.alloc(order))?
    }

    /// True if this request for a block succeeds, under a configured success share. Each
    /// call counts as one request.
    pub(crate) fn serves_block(&mut self) -> bool {
        self.served
            .as_mut()
            .is_none_or(|(share, rng)| rng.random::<f64>() < *share)
    }

    /// True if a successful request ([`Memory::serves_block`]) may get the 2 MB block of
    /// `frame`. The share of such blocks equals the share of successful requests.
    pub(crate) fn serves_from(&self, frame: u64) -> bool {
        self.whole.is_none_or(|w| w.has(frame >> HUGE_ORDER))
    }

    /// True if `frame` lies in an entirely free block that a successful request may get.
    pub(crate) fn leaves_to_blocks(&self, frame: u64) -> bool {
        self.serves_from(frame) && self.buddy.is_free(frame, HUGE_ORDER)
    }

    /// A free block for a successful request ([`Memory::serves_block`]).
    pub(crate) fn take_block(&mut self, order: u8) -> Option<u64> {
        self.buddy.alloc(order)
    }

    /// The lowest such block of at least 2 MB, if it lies below frame `end`.
    pub(crate) fn take_block_below(&mut self, order: u8, end: u64) -> Option<u64> {
        let frame = self.buddy.alloc_within(order, order, end)?;
        if frame >= end {
            self.buddy.free(frame, order);
            return None;
        }
        Some(frame)
    }

    /// A block that replaces small pages. With `defrag`, movable frames are migrated to
    /// free one. A configured success share already includes such efforts of the kernel.
    fn alloc_collapse(&mut self, order: u8, defrag: bool) -> Option<u64> {
        let found = self.alloc_block(order);
        let moves = defrag && self.served.is_none() && !self.gives_up(4096 << order);
        match found {
            None if moves => self.compact(order),
            found => found,
        }
    }

    /// True if a failed request for a block is final: with a configured success share,
    /// each region makes one request.
    pub(crate) fn refuses_for_good(&self) -> bool {
        self.served.is_some()
    }

    /// Drops one owner of the block of `order` at `frame`. Frames without an owner become
    /// free.
    #[inline]
    pub(crate) fn put(&mut self, frame: u64, order: u8) {
        if !self.shares.any(frame, order) {
            self.buddy.free(frame, order);
            return;
        }
        for f in frame..frame + (1 << order) {
            if self.shares.remove(f) {
                self.buddy.free(f, 0);
            }
        }
    }

    /// Frees the frames `from..to`, which have a single owner.
    pub(crate) fn put_range(&mut self, from: u64, to: u64) {
        self.buddy.free_range(from, to);
    }

    /// Adds an owner to the block of `order` at `frame`.
    pub(crate) fn share(&mut self, frame: u64, order: u8) {
        self.shares.add(frame, order);
    }

    /// Number of owners of a frame that is in use.
    pub(crate) fn owners(&self, frame: u64) -> u32 {
        self.shares.owners(frame)
    }

    /// True if any frame of the block has several owners.
    pub(crate) fn is_shared(&self, frame: u64, order: u8) -> bool {
        self.shares.any(frame, order)
    }

    /// All frames except the kernel's.
    pub fn frames(&self) -> Range<u64> {
        self.kernel_frames..self.buddy.frames()
    }
    /// Free frames.
    pub fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }
    /// The buddy allocator.
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }
    /// Number of frames that the kernel reserves, that other programs hold, and that
    /// fragment memory.
    pub(crate) fn set_aside_frames(&self) -> u64 {
        self.kernel_frames + self.occupied + self.pins.count()
    }

    /// A contiguous block for a page table. Movable frames are migrated for it.
    fn alloc_contiguous(&mut self, order: u8) -> Option<u64> {
        let found = if order < HUGE_ORDER {
            self.alloc_low(order)
        } else {
            self.buddy.alloc(order)
        };
        if let Some(frame) = found {
            return Some(frame);
        }
        if order == 0 || order > MAX_ORDER || self.gives_up(4096 << order) {
            return None;
        }
        self.compact(order)
    }

    /// The unusable-free index that prices a block at `frame`. A guest's window is never
    /// fragmented.
    pub(crate) fn index_at(&self, frame: u64) -> f64 {
        if frame < self.buddy.frames() {
            self.index
        } else {
            0.0
        }
    }

    /// Frees the block of `order` at `frame`, which has a single owner. It may lie in a
    /// guest's window.
    pub(crate) fn free_block(&mut self, frame: u64, order: u8) {
        match &mut self.window {
            Some(window) if frame >= self.buddy.frames() => window.free(frame, order),
            _ => self.buddy.free(frame, order),
        }
    }

    /// True if compaction does not even try to free a block of `bytes`.
    fn gives_up(&self, bytes: u64) -> bool {
        let limit = &self.compaction;
        self.index > limit.fails_above_index && bytes >> 20 >= limit.fails_from_mb
    }

    /// The reason why a page table got no block of `bytes` although that much is free.
    /// `denied` means that the kernel refused an allocation.
    pub(crate) fn no_block(&self, bytes: u64, denied: bool) -> String {
        let block = size(bytes);
        if bytes > 4096 << MAX_ORDER {
            return format!("the kernel's largest block is {}", size(4096 << MAX_ORDER));
        }
        if self.gives_up(bytes) {
            let limit = &self.compaction;
            return format!(
                "above an unusable-free index of {} compaction makes no block of {} MB or more (os.compaction), and here the index is {}",
                limit.fails_above_index, limit.fails_from_mb, self.index
            );
        }
        if !denied {
            return format!(
                "the table reported this itself: the kernel refused no request for {block} (a table with a limit of its own answers Refusal::Limit)"
            );
        }
        format!("in each aligned block of {block} lies memory that cannot be moved")
    }

    /// The highest block of `order` with only free and movable frames, if there is room
    /// for the latter elsewhere.
    fn compactable(&self, order: u8) -> Option<u64> {
        let size = 1u64 << order;
        (0..self.buddy.frames() >> order).rev().find(|block| {
            let (from, to) = (block << order, (block + 1) << order);
            let pins = self.pins.between(from, to);
            let free = self.buddy.free_in(from, order);
            free + pins >= size && self.buddy.free_frames() - free >= pins
        })
    }

    /// Empties and allocates the highest block of `order` with only free and movable
    /// frames.
    fn compact(&mut self, order: u8) -> Option<u64> {
        let block = self.compactable(order)?;
        let (from, to) = (block << order, (block + 1) << order);
        self.take_free(from, order);
        let inside: Vec<u64> = self.pins.members(from, to).collect();
        for &old in &inside {
            let new = self.alloc_page()?;
            self.pins.remove(old);
            self.pins.insert(new);
        }
        self.compactions += 1;
        self.compacted_frames += inside.len() as u64;
        Some(from)
    }

    /// Allocates every free frame of the block of `order` at `frame`.
    fn take_free(&mut self, frame: u64, order: u8) {
        if !self.buddy.alloc_at(frame, order) && order > 0 {
            self.take_free(frame, order - 1);
            self.take_free(frame + (1 << (order - 1)), order - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pagewalk_tables::{FrameSource, NoFrames, Purpose, Want};
    use pagewalk_units::{Asid, Cycle, Frame, PhysAddr};
    use proptest::prelude::*;

    use super::Memory;
    use crate::choice::{AsItComes, FrameChoice};
    use crate::kernel::{Kernel, TableFrames};
    use crate::price::Prices;
    use crate::spec::{CompactionSpec, FragmentationSpec, OsSpec, PriceSpec};

    #[test]
    fn why_a_page_table_got_no_block_is_the_reason_there_is() {
        // A table that has reached a limit of its own.
        let mut pieces = memory(FragmentationSpec::None);
        for bytes in [4096, 1 << 16, 2 << 20] {
            let why = pieces.no_block(bytes, false);
            assert!(
                why.starts_with("the table reported this itself"),
                "{bytes}: {why}"
            );
        }
        // Every other frame is held and cannot move.
        let frames = pieces.frames();
        for frame in frames.step_by(2) {
            assert!(pieces.buddy.alloc_at(frame, 0));
        }
        assert_eq!(pieces.alloc_contiguous(4), None);
        let why = pieces.no_block(1 << 16, true);
        assert!(why.ends_with("lies memory that cannot be moved"), "{why}");
    }

    fn memory(fragmentation: FragmentationSpec) -> Memory {
        limited(fragmentation, CompactionSpec::default())
    }

    fn limited(fragmentation: FragmentationSpec, compaction: CompactionSpec) -> Memory {
        let spec = OsSpec {
            fragmentation,
            compaction,
            ..OsSpec::free(1)
        };
        Memory::new(&spec, 5)
    }

    fn kernel(memory: Memory) -> Kernel {
        let prices = Prices::new(&PriceSpec::default(), 2.0);
        Kernel::new(memory, Box::new(AsItComes), prices)
    }

    fn want(bytes: u64, purpose: Purpose) -> Want {
        let asid = Asid(1);
        Want {
            bytes,
            asid,
            purpose,
        }
    }

    fn page(k: &mut Kernel) -> Result<u64, NoFrames> {
        k.frame(want(4096, Purpose::Anonymous { vpn: 0 }))
    }

    fn way(k: &mut Kernel, bytes: u64) -> Result<(u64, Cycle), NoFrames> {
        let mut source = TableFrames::new(k);
        let frame: Frame<PhysAddr> = source.alloc(want(bytes, Purpose::Way))?;
        Ok((frame.base.0, source.cycles))
    }

    #[test]
    fn movable_frames_make_room_for_a_way_at_its_price() {
        let mut k = kernel(memory(FragmentationSpec::UnusableFreeIndex(0.7)));
        let m = k.memory();
        let (free, pins) = (m.free_frames(), m.set_aside_frames());
        assert_eq!(m.buddy.available(14), 0, "no 64 MB block is free");
        let (at, cycles) = way(&mut k, 64 << 20).expect("compaction finds one");
        let m = k.memory();
        assert_eq!((at % (64 << 20), cycles), (0, 120_000_000));
        assert_eq!(m.free_frames(), free - (1 << 14));
        assert_eq!(m.set_aside_frames(), pins, "moved, not lost");
        assert_eq!(m.compactions, 1);
        let inside = m.pins.between(at >> 12, (at >> 12) + (1 << 14));
        assert_eq!(inside, 0);
        assert!(m.compacted_frames > 0);
        assert!(
            m.pins
                .members(0, m.buddy.frames())
                .all(|p| !m.buddy.is_free(p, 0))
        );
        assert_eq!((k.tables.bytes, k.tables.largest), (64 << 20, 64 << 20));
    }

    /// Program pages are filled in low memory, so they obstruct no large block until
    /// memory is nearly full.
    #[test]
    fn memory_that_is_mostly_used_still_has_room_for_a_way() {
        for filled in [10, 50, 90] {
            let mut k = kernel(memory(FragmentationSpec::UnusableFreeIndex(0.7)));
            for _ in 0..k.memory().free_frames() * filled / 100 {
                page(&mut k).expect("free");
            }
            let got = way(&mut k, 64 << 20);
            assert!(got.is_ok(), "{filled} %: {got:?}");
        }
    }

    #[test]
    fn compaction_stops_at_its_limit() {
        let index = FragmentationSpec::UnusableFreeIndex(0.75);
        let mut m = kernel(limited(
            index,
            CompactionSpec {
                fails_above_index: 0.8,
                ..CompactionSpec::default()
            },
        ));
        assert!(way(&mut m, 64 << 20).is_ok());
        let mut m = kernel(limited(
            index,
            CompactionSpec {
                fails_from_mb: 8,
                ..CompactionSpec::default()
            },
        ));
        assert!(way(&mut m, 8 << 20).is_err());
        assert!(way(&mut m, 4 << 20).is_ok());
    }

    #[test]
    fn above_an_index_of_0_7_a_64_mb_request_fails_and_8_mb_do_not() {
        let mut k = kernel(memory(FragmentationSpec::UnusableFreeIndex(0.75)));
        let free = k.memory().free_frames();
        let bytes = 64 << 20;
        assert_eq!(way(&mut k, bytes), Err(NoFrames { bytes }));
        let m = k.memory();
        assert_eq!(
            (m.free_frames(), k.tables.bytes, m.compactions),
            (free, 0, 0)
        );
        way(&mut k, 8 << 20).expect("compaction finds one");
    }

    #[test]
    fn pages_of_programs_leave_room_for_ways() {
        let mut k = kernel(memory(FragmentationSpec::UnusableFreeIndex(0.7)));
        for _ in 0..k.memory().free_frames() / 2 {
            page(&mut k).expect("half is free");
        }
        way(&mut k, 64 << 20).expect("compaction finds one");
    }

    #[test]
    fn pages_of_programs_do_not_move() {
        let mut m = memory(FragmentationSpec::UnusableFreeIndex(0.5));
        // One program page in each 8 MB.
        for block in 0..128 {
            let at = (block << 11) + 77;
            assert!(m.alloc_at(at, 0) || m.pins.has(at));
        }
        let held = 128
            - m.pins
                .members(0, m.buddy.frames())
                .filter(|p| p % 2048 == 77)
                .count();
        assert!(held > 100);
        assert!(way(&mut kernel(m), 64 << 20).is_err());
    }

    fn occupied(share: f64, fragmentation: FragmentationSpec, seed: u64) -> Memory {
        let spec = OsSpec {
            kernel_reserved: 0.25,
            occupied: share,
            fragmentation,
            ..OsSpec::free(1)
        };
        spec.check().expect("a share that makes sense");
        Memory::new(&spec, seed)
    }

    #[test]
    fn exactly_the_share_of_the_programs_frames_is_occupied() {
        let user: u32 = 3 << 16;
        for share in [1e-4, 0.1, 0.5, 0.8] {
            let m = occupied(share, FragmentationSpec::None, 5);
            let taken = (f64::from(user) * share).round() as u64;
            assert_eq!(m.free_frames(), u64::from(user) - taken);
            assert_eq!(m.set_aside_frames(), (1 << 16) + taken);
            let free = |m: &Memory, from, to| (from..to).filter(|&f| m.buddy.is_free(f, 0)).count();
            assert_eq!(free(&m, 0, 1 << 16), 0, "the kernel's");
            // Frames are equally likely: both halves agree within five standard
            // deviations.
            let halves = [(1 << 16, 5 << 15), (5 << 15, 1 << 18)].map(|(a, b)| free(&m, a, b));
            let deviation = (f64::from(user) * share * (1.0 - share)).sqrt();
            assert!((halves[0].abs_diff(halves[1]) as f64) < 5.0 * deviation + 1.0);
            let of = |seed| occupied(share, FragmentationSpec::None, seed).buddy;
            assert_eq!(of(5), m.buddy);
            assert_ne!(of(6), m.buddy);
        }
    }

    /// The configured fragmentation includes the occupied frames, as long as these leave
    /// enough free blocks.
    #[test]
    fn fragmentation_adds_what_the_occupied_frames_lack() {
        let share = 100.0 / f64::from(3 << 16);
        let none = occupied(share, FragmentationSpec::None, 5);
        let whole = none.buddy.available(9);
        assert!((284..320).contains(&whole), "{whole}");
        assert_eq!(none.index, none.buddy.unusable_free_index(9));
        let m = occupied(share, FragmentationSpec::Available2mb(0.5), 5);
        assert_eq!(m.buddy.available(9), 384 / 2);
        assert_eq!(m.pins.count(), whole - 384 / 2);
        let m = occupied(share, FragmentationSpec::UnusableFreeIndex(0.7), 5);
        let index = m.buddy.unusable_free_index(9);
        assert!((index - 0.7).abs() < 0.002, "{index}");
        assert_eq!(m.index, index.max(0.7));
        // With half of all frames occupied at random, no free block remains. Nothing is
        // pinned, and blocks are priced by the actual index.
        for (fragmentation, least) in [
            (FragmentationSpec::Available2mb(0.5), 0.0),
            (FragmentationSpec::UnusableFreeIndex(0.7), 0.7),
            (FragmentationSpec::Served2mb(0.5), 0.5),
        ] {
            let m = occupied(0.5, fragmentation, 5);
            assert_eq!((m.pins.count(), m.buddy.available(9)), (0, 0));
            assert_eq!(m.buddy.unusable_free_index(9), 1.0);
            assert!(m.index == 1.0 && m.index >= least);
        }
    }

    #[test]
    fn occupied_frames_do_not_move() {
        let bytes = 4 << 20;
        let mut k = kernel(occupied(0.0, FragmentationSpec::Available2mb(0.0), 5));
        way(&mut k, bytes).expect("frames that fragment memory make room");
        let mut k = kernel(occupied(0.1, FragmentationSpec::None, 5));
        assert_eq!(way(&mut k, bytes), Err(NoFrames { bytes }));
        assert_eq!(k.memory().compactions, 0);
        // Each frame between them can hold a page.
        for _ in 0..k.memory().free_frames() {
            page(&mut k).expect("free");
        }
        assert_eq!(k.memory().free_frames(), 0);
    }

    #[derive(Clone, Debug)]
    enum FrameOp {
        /// The frame that the buddy allocator returns.
        Any(Purpose),
        /// Exactly this frame.
        At(u64),
        Put(usize),
    }

    fn step() -> impl Strategy<Value = FrameOp> {
        // Few different frames, so that they are requested repeatedly.
        let at = prop_oneof![0..2048u64, any::<u64>()];
        prop_oneof![
            Just(FrameOp::Any(Purpose::Anonymous { vpn: 0 })),
            Just(FrameOp::Any(Purpose::Node { level: 1, vpn: 0 })),
            at.clone().prop_map(FrameOp::At),
            at.prop_map(FrameOp::At),
            any::<usize>().prop_map(FrameOp::Put),
        ]
    }

    /// Gives the page with this number the frame of the same number or none. All other
    /// requests go to the buddy allocator.
    struct Exact(u64);

    impl FrameChoice for Exact {
        fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
            match want.purpose {
                Purpose::Anonymous { vpn } if vpn == self.0 => {
                    memory.alloc_at(vpn, want.order()).then_some(vpn)
                }
                _ => memory.take(want),
            }
        }
    }

    #[test]
    fn a_policy_says_which_frame_it_is() {
        let mut k = Kernel::new(
            memory(FragmentationSpec::None),
            Box::new(Exact(77_777)),
            Prices::new(&PriceSpec::default(), 2.0),
        );
        let wish = |vpn| want(4096, Purpose::Anonymous { vpn });
        assert_eq!(k.frame(wish(77_777)), Ok(77_777));
        assert_eq!(k.frame(wish(77_777)), Err(NoFrames { bytes: 4096 }));
        assert_eq!(
            k.frame(wish(1)),
            Ok(77_312),
            "the lowest of the block in use"
        );
        k.put(77_777, 0);
        assert_eq!(k.frame(wish(77_777)), Ok(77_777));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Compares with a set of the allocated frames.
        #[test]
        fn exactly_the_requested_frame_or_none(steps in prop::collection::vec(step(), 1..300)) {
            let mut m = memory(FragmentationSpec::Available2mb(0.5));
            let frames = m.buddy.frames();
            let mut out = BTreeSet::new();
            let set_aside = m.set_aside_frames();
            for s in steps {
                match s {
                    FrameOp::Any(purpose) => {
                        let frame = m.take(&want(4096, purpose)).expect("hardly any is out");
                        prop_assert!(out.insert(frame) && !m.pins.has(frame));
                    }
                    FrameOp::At(at) => {
                        let at = if at < 2048 { at } else { at % (frames + 100) };
                        let free = at < frames && !out.contains(&at) && !m.pins.has(at);
                        prop_assert_eq!(m.alloc_at(at, 0), free, "frame {}", at);
                        if free {
                            out.insert(at);
                        }
                    }
                    FrameOp::Put(i) if !out.is_empty() => {
                        let frame = *out.iter().nth(i % out.len()).expect("below its length");
                        out.remove(&frame);
                        m.put(frame, 0);
                    }
                    FrameOp::Put(_) => {}
                }
                prop_assert_eq!(m.free_frames(), frames - set_aside - out.len() as u64);
            }
        }
    }
}
