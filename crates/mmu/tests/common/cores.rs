//! Cores whose own TLBs hold one page, with translation sources, over tables that change.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use pagewalk_memory::{Private, Report};
use pagewalk_mmu::source::{Place, SharedPart, TranslationSource};
use pagewalk_mmu::{
    Fault, Lookup, Mmu, MmuSpec, ServedBy, Translated, TranslationSpec, WalkContext,
};
use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::RngExt;

use crate::common::{FLIP, Flat, Memory, caches, mmu};
use crate::pages::Pages;

/// Latency of the memory.
pub const DRAM: Cycle = 200;
/// Bytes of a 2 MB page.
pub const MB2: u64 = 2 << 20;

/// A core whose own TLBs hold one page.
pub struct Core {
    pub mmu: Mmu,
    pub private: Private,
}

/// Cores over one memory, with sources; address space `n` has table `n - 1`.
pub struct Cores {
    pub cores: Vec<Core>,
    pub memory: Memory,
    pub shared: Vec<Box<dyn SharedPart>>,
    /// Sources for one more core.
    pub spare: Vec<(Place, Box<dyn TranslationSource>)>,
    pub tables: Vec<Pages>,
    pub host: Option<Flat>,
}

/// An MMU whose levels hold one page each.
pub fn tiny() -> MmuSpec {
    let mut unit = mmu();
    for level in [&mut unit.l1d, &mut unit.l2] {
        let array = level.get_mut("main").expect("main");
        array.page_sizes = PageSize::ALL.to_vec();
        (array.entries, array.ways) = (1, 1);
    }
    unit
}

impl Cores {
    /// Cores with the sources of `spec`, whose memory begins at 7 TB.
    pub fn with(cores: usize, unit: &MmuSpec, spec: &TranslationSpec) -> Self {
        spec.check(unit).expect("possible sources");
        let mut blocks = 7u64..;
        let set_aside = |_, _| Ok(PhysAddr(blocks.next().expect("endless") << 40));
        let sources = spec.build(cores as u8 + 1, unit, set_aside);
        let mut sources = sources.expect("memory");
        let core = |n: usize| {
            let mut mmu = Mmu::new(unit, n as u8).expect("a possible MMU");
            for (place, source) in std::mem::take(&mut sources.cores[n]) {
                mmu.add_source(place, source);
            }
            let private = caches(64);
            Core { mmu, private }
        };
        Cores {
            cores: (0..cores).map(core).collect(),
            memory: Memory::new(DRAM),
            spare: sources.cores.remove(cores),
            shared: sources.shared,
            tables: vec![Pages::default(); 2],
            host: None,
        }
    }
    /// Maps a 4 KB page of the first address space, by number.
    pub fn small(&mut self, page: u64, frame: u64) {
        self.tables[0].map(page << 12, PageSize::K4, frame << 12, Flags::WRITABLE);
    }
    /// Maps a 2 MB page of the first address space, by number.
    pub fn large(&mut self, region: u64, block: u64) {
        self.tables[0].map(region * MB2, PageSize::M2, block * MB2, Flags::WRITABLE);
    }
    /// Drops what `what` covers on all cores, and in what they share.
    pub fn shoot_down(&mut self, what: &Invalidation) {
        for c in &mut self.cores {
            c.mmu.invalidate(what);
        }
        for part in &mut self.shared {
            part.invalidate(what);
        }
    }
    /// Translates an address on a core; without `now`, by functional warming.
    pub fn try_translate(
        &mut self,
        core: usize,
        asid: u16,
        va: u64,
        access: Access,
        now: Option<Cycle>,
    ) -> Result<Translated, Fault> {
        let table = &self.tables[usize::from(asid) - 1];
        let view = match &self.host {
            None => View::Native(table),
            Some(host) => View::Nested { guest: table, host },
        };
        let c = &mut self.cores[core];
        // Each translation is that of an instruction.
        let executed = c.private.l2_use().instructions + 1;
        c.private.set_instructions(executed);
        let context = WalkContext {
            tiers: None,
            view: &view,
            private: &mut c.private,
            below: &mut self.memory,
        };
        let (asid, va) = (Asid(asid), VirtAddr(va));
        let Some(now) = now else {
            let from = ServedBy::Walk;
            let answer = |pa| Translated {
                pa,
                ready: 0,
                walk_start: 0,
                from,
            };
            return c.mmu.warm(asid, va, access, 0, context).map(answer);
        };
        let lookup = Lookup {
            asid,
            va,
            access,
            pc: 0,
            now,
        };
        c.mmu.translate(lookup, context)
    }
    /// Translates a mapped address of the first address space for a read.
    pub fn translate(&mut self, core: usize, va: u64, now: Cycle) -> Translated {
        self.try_translate(core, 1, va, Access::Read, Some(now))
            .expect("mapped")
    }
    /// A counter of a core and its caches.
    pub fn get(&self, core: usize, path: &str, name: &str) -> u64 {
        let mut tree = Tree::default();
        self.cores[core].mmu.report("mmu", &mut tree);
        self.cores[core].private.report("", &mut tree);
        tree.get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }

    /// Random accesses of two cores to two address spaces, whose pages are mapped, unmapped, moved
    /// and changed in size and rights: every translation equals the page table's. `frame`: frame for
    /// a page of this size at this address.
    pub fn access_and_change(
        &mut self,
        stream: &str,
        steps: usize,
        frame: impl Fn(&mut Rng, u64, PageSize) -> u64,
    ) {
        let mut r = rng(11, stream);
        let mut now = [0; 2];
        let mut latest = [(1, 0); 2];
        let mut faults = 0;
        for _ in 0..steps {
            let mut asid = r.random_range(1..=2u16);
            let page = r.random_range(0..8u64) * 512 + r.random_range(0..24);
            let mut va = page << 12 | r.random_range(0..512) << 3;
            if r.random_range(0..12) == 0 {
                let table = &mut self.tables[usize::from(asid) - 1];
                let size = [PageSize::K4, PageSize::K4, PageSize::M2][r.random_range(0..3)];
                let frame = frame(&mut r, va, size);
                let flags = [Flags::WRITABLE, Flags::default()][r.random_range(0..2)];
                let what = match r.random_range(0..8) {
                    0 => {
                        let bytes = r.random_range(1..64u64) << 12;
                        table.unmap(va, bytes);
                        // 2 MB pages at the edges are unmapped as a whole.
                        let at = VirtAddr(va & !(MB2 - 1));
                        let (asid, bytes) = (Asid(asid), 2 * MB2);
                        Invalidation::Range { asid, at, bytes }
                    }
                    1 if r.random_range(0..20) == 0 => {
                        table.unmap(0, 1 << 40);
                        Invalidation::Space { asid: Asid(asid) }
                    }
                    2 => {
                        // One more right, which needs no shootdown.
                        if let Some((pa, size, _)) = table.find(va) {
                            let frame = pa & !(size.bytes() - 1);
                            table.map(va, size, frame, Flags::WRITABLE);
                        }
                        continue;
                    }
                    _ => {
                        // The old page may be larger: in a virtual machine its parts are cached
                        // separately.
                        let old = table.find(va).map_or(size, |(_, old, _)| old);
                        table.map(va, size, frame, flags);
                        let page = VirtAddr(va).page(size.max(old));
                        Invalidation::Page {
                            asid: Asid(asid),
                            page,
                        }
                    }
                };
                self.shoot_down(&what);
            }
            let core = r.random_range(0..2usize);
            if r.random_range(0..3) == 0 {
                // The same page again, during its lookup.
                (asid, va) = latest[core];
                va ^= 8;
            } else {
                now[core] += r.random_range(0..400);
            }
            latest[core] = (asid, va);
            let at = (r.random_range(0..10) != 0).then_some(now[core]);
            let access = [Access::Read, Access::Read, Access::Write][r.random_range(0..3)];
            let got = self.try_translate(core, asid, va, access, at);
            let expected = self.tables[usize::from(asid) - 1]
                .find(va)
                .filter(|(_, _, flags)| access != Access::Write || flags.contains(Flags::WRITABLE))
                .map(|(pa, ..)| if self.host.is_some() { pa ^ FLIP } else { pa });
            match (&got, expected) {
                (Ok(answer), Some(pa)) => assert_eq!(answer.pa.0, pa, "{va:#x} of {asid}"),
                // The rights are newer than the entry in the core's own TLBs: the kernel has nothing to
                // do, and the access is tried again.
                (Err(_), Some(_)) => {
                    assert_eq!(access, Access::Write);
                    let again = self
                        .try_translate(core, asid, va, access, at)
                        .expect("allowed");
                    assert_eq!(Some(again.pa.0), expected);
                    faults += 1;
                }
                (Err(_), None) => faults += 1,
                (Ok(answer), None) => panic!("{va:#x} of {asid} is not there: {answer:?}"),
            }
        }
        assert!(faults > 100);
    }
}
