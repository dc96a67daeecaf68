//! Statistics of elastic cuckoo page tables.

use pagewalk_stats::{Counters, Definition, Tree};
use pagewalk_units::{Addr, PageSize};

use super::Cuckoo;
use super::elastic::Elastic;
use super::l2p::L2p;
use super::line::Format;
use super::stats::ElasticStats;
use crate::cwc::Cwt;

pagewalk_stats::counters! {
    /// One elastic cuckoo table: of a page size, or a walk table.
    pub struct TableStats {
        inserted: "lines", "Lines inserted";
        merged: "entries", "Entries written into lines that were present";
        removed: "lines", "Lines removed";
        reinsertions: "lines", "Lines displaced and inserted again";
        insertions_and_rehashes: "insertions", "Insertions of lines, and rehashes of lines by resizes";
        moved: "lines", "Lines that in-place resizes rehashed and moved";
        stayed: "lines", "Lines that in-place resizes rehashed and left in place";
        moved_out_of_place: "lines", "Lines that out-of-place resizes moved";
        coexisting_insertions: "lines", "Lines inserted while a resize was under way";
        upsizes: "resizes", "Upsizes of ways";
        downsizes: "resizes", "Downsizes of ways";
        chunk_changes: "resizes", "Resizes of ways that changed the chunk size";
        forced_upsizes: "resizes", "Upsizes started because an insertion took too many re-insertions, not by occupancy";
        turned_round: "resizes", "Downsizes reversed because occupancy rose again or a line found no slot";
        drained: "resizes", "Resizes completed at once because the next one was due";
        changed_at_once: "resizes", "Changes of the chunk size completed at once, because no L2P entries were free for the new chunks beside the old ones";
        exhausted: "insertions", "Insertions that exceeded the limit of re-insertions, and were retried with more room";
        gauge lines: "lines", "Lines in the table";
        gauge slots: "slots", "Slots of the table's ways, during a resize those of the new table";
        gauge bytes: "bytes", "Physical memory of the table";
        peak peak_bytes: "bytes", "Peak physical memory of the table, of one process";
        peak largest_contiguous_bytes: "bytes", "Largest contiguous block of the table";
    }
}

pagewalk_stats::counters! {
    /// One way of a table of a page size.
    pub struct WayStats {
        upsizes: "resizes", "Upsizes of this way";
        downsizes: "resizes", "Downsizes of this way";
        chunk_changes: "resizes", "Resizes of this way that changed the chunk size";
        gauge lines: "lines", "Lines in this way";
        gauge slots: "slots", "Slots of this way, during a resize the new ones";
        gauge bytes: "bytes", "Physical memory of this way";
        peak peak_bytes: "bytes", "Peak physical memory of this way, of one process";
        gauge l2p_entries: "entries", "Entries of the L2P table that this way uses";
        peak l2p_entries_peak: "entries", "Peak number of L2P entries that this way used, of one process";
    }
}

pagewalk_stats::counters! {
    /// The L2P table.
    pub struct L2pStats {
        steals: "times", "Times that a sub-table began to use entries of others";
        gauge entries: "entries", "Entries in use, of all ways and page sizes";
        peak entries_peak: "entries", "Peak number of entries in use, of one process";
    }
}

/// Insertions and rehashes by their number of re-insertions.
struct Reinsertions<'a>(&'a [u64]);

/// Numbers of re-insertions with a row of their own.
const REPORTED: usize = 16;

const fn took(name: &'static str, meaning: &'static str) -> Definition {
    Definition {
        name,
        unit: "insertions",
        meaning,
        gauge: false,
        peak: false,
    }
}

static REINSERTIONS: [Definition; REPORTED + 1] = {
    const ONE: &str = "Insertions and rehashes that took this number of re-insertions";
    [
        took("0", ONE),
        took("1", ONE),
        took("2", ONE),
        took("3", ONE),
        took("4", ONE),
        took("5", ONE),
        took("6", ONE),
        took("7", ONE),
        took("8", ONE),
        took("9", ONE),
        took("10", ONE),
        took("11", ONE),
        took("12", ONE),
        took("13", ONE),
        took("14", ONE),
        took("15", ONE),
        took(
            "more",
            "Insertions and rehashes that took 16 or more re-insertions",
        ),
    ]
};

impl Counters for Reinsertions<'_> {
    fn definitions(&self) -> &'static [Definition] {
        &REINSERTIONS
    }
    fn values(&self, out: &mut Vec<u64>) {
        out.extend((0..REPORTED).map(|n| self.0.get(n).copied().unwrap_or(0)));
        out.push(self.0.iter().skip(REPORTED).sum());
    }
}

fn table_stats<F: Format, A: Addr>(table: &Elastic<F, A>) -> TableStats {
    let s: &ElasticStats = table.stats();
    let ways = 0..usize::from(table.ways());
    TableStats {
        inserted: s.inserted,
        merged: s.merged,
        removed: s.removed,
        reinsertions: s.reinsertions,
        insertions_and_rehashes: s.insertions_and_rehashes(),
        moved: s.moved,
        stayed: s.stayed,
        moved_out_of_place: s.moved_out_of_place,
        coexisting_insertions: s.coexisting_insertions,
        upsizes: s.ways.iter().map(|w| w.upsizes).sum(),
        downsizes: s.ways.iter().map(|w| w.downsizes).sum(),
        chunk_changes: s.ways.iter().map(|w| w.chunk_changes).sum(),
        forced_upsizes: s.forced_upsizes,
        turned_round: s.turned_round,
        drained: s.drained,
        changed_at_once: s.changed_at_once,
        exhausted: s.exhausted,
        lines: table.lines(),
        slots: ways.map(|way| table.slots_of(way)).sum(),
        bytes: table.bytes(),
        peak_bytes: s.peak_bytes,
        largest_contiguous_bytes: table.largest(),
    }
}

fn way_stats<F: Format, A: Addr>(
    table: &Elastic<F, A>,
    way: usize,
    l2p: &L2p,
    size: PageSize,
) -> WayStats {
    let s = &table.stats().ways[way];
    WayStats {
        upsizes: s.upsizes,
        downsizes: s.downsizes,
        chunk_changes: s.chunk_changes,
        lines: table.lines_of(way),
        slots: table.slots_of(way),
        bytes: table.bytes_of(way),
        peak_bytes: s.peak_bytes,
        l2p_entries: l2p.used_by(way, size).into(),
        l2p_entries_peak: l2p.peak_of(way, size).into(),
    }
}

impl<In: Addr, Out: Addr> Cuckoo<In, Out> {
    /// See [`crate::PageTable::report`].
    pub(super) fn report_to(&self, path: &str, tree: &mut Tree) {
        for (size, name) in PageSize::ALL.into_iter().zip(["4kb", "2mb", "1gb"]) {
            let path = format!("{path}.{name}");
            let table = &self.tables[size.index()];
            tree.add(&path, &table_stats(table));
            let reinsertions = Reinsertions(&table.stats().by_reinsertions);
            tree.add(&format!("{path}.reinsertions"), &reinsertions);
            for way in 0..usize::from(table.ways()) {
                let stats = way_stats(table, way, &self.l2p, size);
                let path = format!("{path}.way.{way}");
                tree.add_some(&path, &stats, |n| self.chunked || !n.starts_with("l2p"));
            }
        }
        for (cwt, name) in [(Cwt::Pmd, "pmd_cwt"), (Cwt::Pud, "pud_cwt")] {
            // Walk tables are always contiguous and are resized out of place.
            let reported = |n: &str| {
                ![
                    "merged",
                    "moved",
                    "stayed",
                    "chunk_changes",
                    "changed_at_once",
                ]
                .contains(&n)
            };
            let stats = table_stats(self.walk.table(cwt));
            tree.add_some(&format!("{path}.{name}"), &stats, reported);
        }
        if self.chunked {
            let stats = L2pStats {
                steals: self.l2p.steals(),
                entries: self.l2p.used().into(),
                entries_peak: self.l2p.peak().into(),
            };
            tree.add(&format!("{path}.l2p"), &stats);
        }
    }
}
