//! Walk MSHRs: requests for a page to which a walk is under way merge with it.

use pagewalk_memory::Below;
use pagewalk_structures::equal_bytes;
use pagewalk_units::{Access, Cycle, PageSize};

use super::miss::Missed;
use super::{Fault, Lookup, Mmu, ServedBy, Translated, WALK_MSHRS, WalkContext, WalkMshr, side};
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::tlb::{TlbEntry, key, print};
use crate::{ReadRecord, WalkRecord};

/// The place at which a request found the walk with which it merges.
pub(super) enum Waiting<'a> {
    /// Both levels have its 4 KB page in an entry that is not ready, at these slots.
    Entry { slots: [usize; 2] },
    /// It missed both levels.
    Miss(&'a Missed),
}

impl Mmu {
    /// Allocates a walk MSHR for the 4 KB page `page`. It replaces the oldest one.
    #[inline(always)]
    pub(super) fn allocate_mshr(&mut self, page: u64, mshr: WalkMshr) {
        let i = self.next_mshr;
        self.next_mshr = (i + 1) % WALK_MSHRS;
        self.mshr_keys[i] = page;
        self.mshr_prints[i / 16][i % 16] = print(page);
        self.walk_mshrs[i] = mshr;
    }

    /// The MSHR of a walk to the same 4 KB page that has not ended yet.
    #[inline(always)]
    pub(super) fn find_mshr(&self, lookup: &Lookup) -> Option<usize> {
        if self.latest <= lookup.now {
            return None;
        }
        let page = key(lookup.asid, PageSize::K4, lookup.va.0);
        // The host compares a one-byte hash of sixteen keys at once.
        let mut same = 0u64;
        for (n, prints) in self.mshr_prints.iter().enumerate() {
            same |= u64::from(equal_bytes(prints, print(page))) << (n * 16);
        }
        while same != 0 {
            let i = same.trailing_zeros() as usize;
            if self.mshr_keys[i] == page && self.walk_mshrs[i].end > lookup.now {
                return Some(i);
            }
            same &= same - 1;
        }
        None
    }

    /// Finds the outstanding walk for a 4 KB page that both levels hold in an entry that is not
    /// ready. The store of a read-modify-write is such a request. `first`: array and slot in the
    /// first level. Returns the MSHR and the slot in the second level.
    #[inline(always)]
    pub(super) fn find_mshr_of_entry(
        &mut self,
        lookup: &Lookup,
        first: (usize, usize),
    ) -> Option<(usize, usize)> {
        let s = side(lookup.access);
        let own = self.second(s);
        let second = self.l2[own].as_deref_mut()?;
        let page = key(lookup.asid, PageSize::K4, lookup.va.0);
        let (a, slot) = second.find(lookup.asid, lookup.va.0)?;
        let small = self.l1[s].holds_small(first, page) && second.holds_small((a, slot), page);
        if !small || second.arrays[a].entry(slot).ready <= lookup.now || self.records.is_some() {
            return None;
        }
        let i = self.find_mshr(lookup)?;
        (self.walk_mshrs[i].mapping.size == PageSize::K4).then_some((i, slot))
    }

    /// Lets the engine guess for a lookup that merges with MSHR `i`, if the MSHR is that of a walk
    /// and not of a source's hit. The lookup missed all TLBs at `requested`; its
    /// translation is known at `at`.
    #[inline(always)]
    fn guess_if_walk<B: Below>(
        &mut self,
        i: usize,
        lookup: &Lookup,
        (requested, at): (Cycle, Cycle),
        context: &mut WalkContext<'_, B>,
    ) {
        let mshr = &self.walk_mshrs[i];
        if self.speculation.is_some() && mshr.from == ServedBy::Walk {
            let lookup_done = requested.max(mshr.tlb_lookup_done);
            let data = mshr.mapping.pa(lookup.va);
            self.guess_merged(lookup, data, (lookup_done, at), context);
        }
    }

    /// Merges a request of side `s`, made at `requested`, with MSHR `i`. Returns the mapping, and
    /// the start and end of the walk, but not before `requested`.
    #[inline(always)]
    fn merge_times(&mut self, i: usize, s: usize, requested: Cycle) -> (Cycle, Cycle, Mapping) {
        let mshr = &mut self.walk_mshrs[i];
        if mshr.requested > requested {
            // The MSHR's request was simulated first but comes later in time. In hardware this
            // request would have started the walk, and the other would have merged: the walk moves
            // to the earlier time.
            mshr.end = requested + (mshr.end - mshr.requested);
            mshr.tlb_lookup_done = requested + (mshr.tlb_lookup_done - mshr.requested);
            mshr.walk_start = requested + (mshr.walk_start - mshr.requested);
            mshr.requested = requested;
        }
        self.walk_read_memory = mshr.memory;
        self.source_cycles[s] = mshr.tlb_lookup_done.saturating_sub(requested);
        if let ServedBy::Source(source) = mshr.from {
            let slot = &mut self.sources[usize::from(source)];
            slot.stats.merged += 1;
            slot.source.merged();
        } else {
            self.stats.walks_merged += 1;
            self.stats.walks_merged_fetches += s as u64;
        }
        let began = mshr.walk_start.max(requested);
        (began, mshr.end.max(requested), mshr.mapping)
    }

    /// Merges a request with MSHR `i`, and fills both levels.
    #[inline(always)]
    pub(super) fn merge<B: Below>(
        &mut self,
        i: usize,
        waiting: Waiting<'_>,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let s = side(access);
        let second = self.second(s);
        let (requested, beside) = match waiting {
            Waiting::Miss(missed) => (missed.requested, missed.beside),
            Waiting::Entry { .. } => {
                let latency = self.l2[second].as_ref().map_or(0, |level| level.latency);
                (lookup.now + latency, 0)
            }
        };
        let (began, at, mapping) = self.merge_times(i, s, requested);
        self.source_cycles[s] += beside;
        self.guess_if_walk(i, lookup, (requested, at), context);
        match waiting {
            Waiting::Miss(missed) => {
                let arrival = Arrival {
                    asid,
                    va,
                    mapping,
                    ready: at,
                    counted: true,
                    fetched: false,
                };
                self.fill(s, &arrival, missed.presence);
            }
            Waiting::Entry { slots } => {
                let entry = TlbEntry::new(mapping.frame, mapping.writable, at);
                if let Some(level) = &mut self.l2[second] {
                    // The first level already waits for the page, so this is not a lookup of the
                    // second.
                    level.small().refill(slots[1], entry, false, false);
                }
                let array = self.l1[s].small_array();
                let entry = self.l1[s].small().refill(slots[0], entry, false, true);
                let page = key(asid, PageSize::K4, va.0);
                self.set_filter(s, page, mapping.pa(va), entry, array);
            }
        }
        let faulted = access == Access::Write && !mapping.writable;
        if self.records.is_some() && self.walk_mshrs[i].from == ServedBy::Walk {
            self.record(lookup, (requested, at), true, faulted, Vec::new());
        }
        if faulted {
            return Err(self.raise_fault(lookup, at));
        }
        Ok(Translated {
            pa: mapping.pa(va),
            ready: at,
            walk_start: began,
            from: self.walk_mshrs[i].from,
        })
    }

    /// Records a walk, or a merge with one.
    #[cold]
    #[inline(never)]
    pub(super) fn record(
        &mut self,
        lookup: &Lookup,
        (start, end): (Cycle, Cycle),
        merged: bool,
        faulted: bool,
        reads: Vec<ReadRecord>,
    ) {
        let guesses = self.speculation.as_mut();
        let guesses = guesses.map_or_else(Vec::new, |s| std::mem::take(&mut s.recorded));
        let record = WalkRecord {
            asid: lookup.asid,
            va: lookup.va,
            pc: lookup.pc,
            access: lookup.access,
            start,
            end,
            merged,
            faulted,
            reads,
            guesses,
        };
        self.records.get_or_insert_default().push(record);
    }
}
