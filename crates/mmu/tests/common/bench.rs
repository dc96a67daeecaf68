//! An MMU with small TLBs over its own page table and a memory of one latency.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use pagewalk_memory::Private;
use pagewalk_mmu::{Fault, Lookup, Mmu, MmuSpec, Translated, WalkContext};
use pagewalk_tables::{Flags, View};
use pagewalk_units::{Access, Asid, Cycle, PageSize, VirtAddr};

use crate::common::{Memory, caches, counted, mmu, walk_context};
use crate::pages::Pages;

/// Latency of the memory.
pub const DRAM: Cycle = 200;
/// The address space.
pub const A: Asid = Asid(1);

/// See the module.
pub struct Bench {
    pub mmu: Mmu,
    pub private: Private,
    pub memory: Memory,
    pub table: Pages,
}

/// Physical address of the page of `va`.
pub fn frame(va: u64) -> u64 {
    (va & !0xfff) ^ (1 << 40)
}

/// A first level of one entry and a second level of `second`, for pages of all sizes.
pub fn small(second: u32) -> MmuSpec {
    let mut unit = mmu();
    for (level, entries) in [(&mut unit.l1d, 1), (&mut unit.l2, second)] {
        let array = level.get_mut("main").expect("main");
        array.page_sizes = PageSize::ALL.to_vec();
        (array.entries, array.ways) = (entries, entries);
    }
    unit
}

impl Bench {
    /// Maps the 4 KB pages that begin at `pages`.
    pub fn over(mmu: Mmu, pages: impl Iterator<Item = u64>) -> Self {
        let mut table = Pages::default();
        for va in pages {
            table.map(va, PageSize::K4, frame(va), Flags::WRITABLE);
        }
        Bench {
            mmu,
            private: caches(64),
            memory: Memory::new(DRAM),
            table,
        }
    }
    /// Runs `call` with the MMU and its context.
    pub fn with_context<T>(
        &mut self,
        call: impl FnOnce(&mut Mmu, WalkContext<'_, Memory>) -> T,
    ) -> T {
        let view = View::Native(&self.table);
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        call(&mut self.mmu, context)
    }
    /// Translates `va` at `now`; the program counter does not matter.
    pub fn translate(&mut self, va: u64, access: Access, now: Cycle) -> Result<Translated, Fault> {
        let lookup = Lookup {
            asid: A,
            va: VirtAddr(va),
            access,
            pc: 0,
            now,
        };
        self.with_context(|mmu, context| mmu.translate(lookup, context))
    }
    /// A counter of `part` of the MMU, or of the MMU itself if `part` is empty.
    pub fn get(&self, part: &str, name: &str) -> u64 {
        let tree = counted(&self.mmu, &self.private);
        let path = format!("mmu.{part}");
        let path = path.trim_end_matches('.');
        tree.get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }
}
