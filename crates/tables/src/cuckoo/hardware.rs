//! The state that a walker's hardware holds for cuckoo tables: registers and L2P entries of each way, and headers in the
//! walk caches (ME-HPT, figures 2 and 7). Names the constants of its hash function and of its headers.

use pagewalk_units::{Addr, PageSize};

use super::Cuckoo;
pub use super::cwt::{GIANT, HUGE, SMALL, WAY, WAY_SHIFT};
use super::cwt::{place_of, section_of};
pub use super::hash::{FIELD, FIELD_WAYS, FIRST_FIELD};
use super::storage::Storage;
use crate::WalkCaches;
pub use crate::cluster::PTES_SHIFT;
use crate::cwc::Cwt;

/// The state of one way as the hardware holds it, and the memory of its chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WayRegisters {
    /// Slots of the old table, less one.
    pub old_mask: u64,
    /// Slots of the new table, less one. Without a resize both masks are equal.
    pub new_mask: u64,
    /// The rehash pointer: the number of slots of the old table that were migrated.
    pub pointer: u64,
    /// The old table's chunks.
    pub old: Chunks,
    /// The new table's chunks. `None` if both tables share their memory.
    pub new: Option<Chunks>,
}

/// The chunks of one generation of a way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// Bytes of a chunk.
    pub bytes: u64,
    /// For each chunk in order, the number of its L2P entry, counted from the 4 KB end, and its physical address.
    pub entries: Vec<(u16, u64)>,
}

impl<In: Addr, Out: Addr> Cuckoo<In, Out> {
    /// The registers of `way` of the table of `size`. `None` while the table has no memory, or if its ways have no
    /// chunks.
    pub fn way_registers(&self, size: PageSize, way: usize) -> Option<WayRegisters> {
        let way_of_table = self.tables[size.index()].way(way)?;
        let mut entries = self.l2p.entries_of(way, size).iter().copied();
        let mut chunks = |storage: &Storage<Out>| {
            let bases = storage.bases().map(Out::raw);
            Some(Chunks {
                bytes: storage.chunk()?,
                entries: entries.by_ref().zip(bases).collect(),
            })
        };
        Some(WayRegisters {
            old_mask: way_of_table.old_mask,
            new_mask: way_of_table.new_mask,
            pointer: way_of_table.pointer,
            old: chunks(&way_of_table.table)?,
            new: way_of_table.next.as_ref().and_then(chunks),
        })
    }

    /// The line of `way` of the table of `size` at which a walk of `va` probes. `None` while the table has no memory.
    pub fn probed_line(&self, va: u64, size: PageSize, way: usize) -> Option<Out> {
        let table = &self.tables[size.index()];
        table.way(way)?;
        let (key, _) = self.width.place(va, size);
        let slot = table.live(table.hash(key), way);
        Some(Out::new(table.address(slot)))
    }

    /// The headers of the PMD-CWT and of the PUD-CWT that a walk of `va` finds in the walk caches now. `None` for a miss or
    /// a fill that has not completed. Neither counts nor changes the order of replacement.
    pub fn cached_headers(&self, va: u64, caches: &WalkCaches<'_>) -> [Option<u8>; 2] {
        [Cwt::Pmd, Cwt::Pud].map(|cwt| {
            let (key, section) = place_of(section_of(cwt, self.width.low(va)));
            caches.peek_section(cwt, key, section)
        })
    }
}
