//! A fully associative array of extents under LRU: the base of range TLBs.

use pagewalk_structures::{Epoch, StaleOutcomes};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, PageSize, VirtAddr};

use super::{Extent, Hit, Ports, Probed};
use crate::Lookup;

/// An entry.
#[derive(Clone, Copy, Debug)]
struct Held {
    asid: Asid,
    extent: Extent,
    /// Cycle from which it is ready.
    ready: Cycle,
    /// Number of its last use.
    used: u64,
    /// Epoch of its last use.
    epoch: Epoch,
}

/// The array. All entries are compared at once.
pub(super) struct Extents {
    held: Vec<Held>,
    /// Uses so far.
    uses: u64,
    /// The current epoch. Entries of an older one are stale.
    epoch: Epoch,
    /// Epoch of the last use of each free way. The last one is filled next.
    free: Vec<Epoch>,
    stale: StaleOutcomes,
}

impl Extents {
    /// An empty array of `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Extents {
            held: Vec::with_capacity(capacity),
            uses: 0,
            epoch: Epoch::default(),
            free: vec![Epoch::default(); capacity],
            stale: StaleOutcomes::default(),
        }
    }

    /// Marks all entries as stale after a fast-forward.
    pub fn mark_stale(&mut self) {
        let held = self.held.iter_mut().map(|h| &mut h.epoch);
        let ways = held.chain(&mut self.free);
        (self.epoch).advance(|| ways.for_each(|epoch| *epoch = Epoch::default()));
    }

    /// Lookups whose outcome is uncertain because of stale entries.
    pub fn stale(&self) -> StaleOutcomes {
        self.stale
    }

    /// The answer to `lookup`, known after `latency`. TLBs are filled with 4 KB pages.
    pub fn probe(&mut self, lookup: &Lookup, latency: Cycle, ports: &Ports<'_>) -> Probed {
        let at = ports.after(lookup.now, latency);
        match self.look_up(lookup, ports) {
            None => Probed::Miss { at },
            Some(extent) => Probed::Hit(Hit {
                extent,
                largest: PageSize::K4,
                at,
                memory: false,
            }),
        }
    }

    /// The extent for `lookup`, if it is ready and permits the access. It becomes the most recently
    /// used one.
    fn look_up(&mut self, lookup: &Lookup, ports: &Ports<'_>) -> Option<Extent> {
        self.uses += 1;
        let held = self.held.iter_mut().find(|h| {
            h.asid == lookup.asid
                && h.extent.covers(lookup.va)
                && ports.is_ready(h.ready, lookup.now)
                && (h.extent.writable || lookup.access != Access::Write)
        })?;
        held.used = self.uses;
        (self.epoch).count_use(&mut held.epoch, &mut self.stale);
        Some(held.extent)
    }

    /// True if it holds exactly `extent`, ready or on its way.
    pub fn holds(&self, asid: Asid, extent: &Extent) -> bool {
        self.held
            .iter()
            .any(|h| h.asid == asid && h.extent == *extent)
    }

    /// Inserts an extent that is ready from `ready` on. Drops the entries that it overlaps. Returns
    /// true if the least recently used entry had to go.
    pub fn insert(&mut self, asid: Asid, extent: Extent, ready: Cycle) -> bool {
        let last = VirtAddr(extent.va.0 + (extent.bytes - 1));
        self.drop_where(|h| h.asid == asid && h.extent.overlaps(extent.va, last));
        let way = self.free.pop();
        let last = way.unwrap_or_else(|| {
            let oldest = (0..self.held.len()).min_by_key(|&i| self.held[i].used);
            let oldest = oldest.expect("a capacity of at least 1");
            self.held.swap_remove(oldest).epoch
        });
        let epoch = self.epoch;
        let ways = self
            .held
            .iter()
            .map(|h| h.epoch)
            .chain(self.free.iter().copied());
        let others_are_stale = || ways.into_iter().any(|last| last != epoch);
        epoch.count_fill((last, way.is_some()), others_are_stale, &mut self.stale);
        self.uses += 1;
        self.held.push(Held {
            asid,
            extent,
            ready,
            used: self.uses,
            epoch,
        });
        way.is_none()
    }

    /// Removes an entry that `extent` continues or overlaps, if both lie in consecutive frames and
    /// have equal rights. Returns their union, of at most `most` bytes.
    pub fn take_joined(&mut self, asid: Asid, extent: Extent, most: u64) -> Option<Extent> {
        let end = |e: &Extent| e.va.0 + e.bytes;
        let joins = |h: &Held| {
            let e = &h.extent;
            let near = e.va.0 <= end(&extent) && extent.va.0 <= end(e);
            let union = end(e).max(end(&extent)) - e.va.0.min(extent.va.0);
            h.asid == asid
                && near
                && union <= most
                && e.writable == extent.writable
                && e.pa.0.wrapping_sub(e.va.0) == extent.pa.0.wrapping_sub(extent.va.0)
        };
        let at = self.held.iter().position(joins)?;
        let joined = self.held.swap_remove(at);
        self.free.push(joined.epoch);
        let other = joined.extent;
        let first = if other.va < extent.va { other } else { extent };
        let bytes = end(&other).max(end(&extent)) - first.va.0;
        Some(Extent { bytes, ..first })
    }

    /// Drops the entries that `what` touches.
    pub fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        self.drop_where(|h| h.asid == asid && h.extent.overlaps(first, last));
    }

    fn drop_where(&mut self, gone: impl Fn(&Held) -> bool) {
        let free = &mut self.free;
        self.held.retain(|h| {
            let gone = gone(h);
            free.extend(gone.then_some(h.epoch));
            !gone
        });
    }
}
