//! The operating system's memory manager: frames, placement, address spaces, page faults.
//!
//! It has no access to caches and TLBs. Each call returns its [`Effects`] on the rest of the machine: kernel time and
//! required invalidations.

mod bits;
mod buddy;
mod change;
mod choice;
mod drawn;
mod fault;
mod hashed_frames;
mod host;
mod hugetlb;
mod kernel;
mod kernel_file;
mod khugepaged;
mod lazy;
mod linux;
mod memory;
mod mover;
mod object;
mod pageout;
mod placement;
mod populate;
mod price;
mod process;
mod region;
mod shadow;
mod share;
mod space;
mod spec;
mod stats;
mod stlt;
mod system_call;
mod table;
mod touch;
mod virtual_spec;
mod vma;

use std::collections::BTreeSet;

use pagewalk_stats::Tree;
use pagewalk_structures::Tiers;
pub use pagewalk_tables::PageTableSpec;
use pagewalk_tables::{
    Invalidation, Limit, PageTable as _, Purpose, QueryResult, Shortcut, View, Want,
};
use pagewalk_units::{Access, Asid, Cycle, Error, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::Serialize;

pub use crate::buddy::Buddy;
pub use crate::choice::FrameChoice;
pub use crate::hashed_frames::{FrameContent, HashedFrames, PlacedFrame};
pub use crate::hugetlb::{HugetlbSpec, HugetlbStats};
pub use crate::khugepaged::{KhugepagedCore, KhugepagedSpec, KhugepagedStats};
pub use crate::memory::Memory;
pub use crate::mover::{MigrationSpec, MigrationStats, PageMover, SwapSpec, SwapStats};
pub use crate::placement::registry::*;
pub use crate::placement::{
    EagerStats, HashOf, HashedTables, RecordedStats, SizeMode, ThpMode, ThpSizeStats, ThpSizes,
};
pub use crate::price::Prices;
pub use crate::spec::{CompactionSpec, FragmentationSpec, InferredPages, OsSpec, PriceSpec};
use crate::stats::FAULT_COST;
pub use crate::stats::{OsStats, page_faults};
pub use crate::stlt::{INVALID_PAGES, StltGuardStats, StltStats};
pub use crate::virtual_spec::VirtualSpec;

use crate::host::Host;
use crate::kernel::Kernel;
use crate::kernel_file::Shown;
use crate::khugepaged::Khugepaged;
use crate::memory::HUGE_ORDER;
use crate::mover::Movers;
use crate::object::Objects;
use crate::placement::{Booted, Placement};
use crate::space::Space;
use crate::stlt::Stlts;
use crate::table::{Role, Table, Tables};

/// Effects of a call on the rest of the machine.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Invalidations that every core must apply before its next access.
    pub invalidate: Vec<Invalidation>,
    /// Kernel time of the caller, cycles. Excludes shootdowns, whose cost depends on the running cores
    /// ([`Prices::shootdown`]).
    pub cycles: Cycle,
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsError {
    /// Simulated memory is exhausted: a valid result of the run. The state is as before the call.
    #[error(
        "out of memory: {wanted} contiguous bytes wanted, {free} bytes of physical memory free"
    )]
    OutOfMemory {
        /// Requested contiguous bytes.
        wanted: u64,
        /// Free bytes at that moment.
        free: u64,
    },
    /// Memory is free, but not in a contiguous block of the size that a page table requested: a valid result of the
    /// run. The state is as before the call.
    #[error(
        "no contiguous {} for the page table to map {at}: {why}; {free} bytes of physical memory are free",
        memory::size(*.wanted)
    )]
    NoContiguous {
        /// Requested contiguous bytes.
        wanted: u64,
        /// Free bytes at that moment.
        free: u64,
        /// The page to be mapped.
        at: VirtAddr,
        /// The reason why there is no such block, in words.
        why: String,
    },
    /// The page table has reached a limit of its own, which more memory does not lift: a valid result of the run. The
    /// state is as before the call.
    #[error("the page table cannot grow to map {at}: {limit}")]
    TableLimit {
        /// The page to be mapped.
        at: VirtAddr,
        /// The limit, with advice.
        limit: Box<Limit>,
    },
    /// The address is not mapped, or the access is not allowed.
    #[error("segmentation fault: {access:?} at {at}")]
    SegmentationFault {
        /// The address.
        at: VirtAddr,
        /// The attempted access.
        access: Access,
    },
    /// The address needs five-level paging, and the page table has four levels' width.
    #[error(
        "the address {at} needs 57 bits, and the page table translates {bits}; expected design radix5, or this \
         design with --set {advice}"
    )]
    BeyondWidth {
        /// The address.
        at: VirtAddr,
        /// Bits that the table translates.
        bits: u32,
        /// The setting that widens the table.
        advice: String,
    },
    /// A page fault on a mapping of huge pages, and none is free that is not reserved. Linux sends SIGBUS.
    #[error(
        "bus error (SIGBUS): the pool of {} pages is empty, and the page at {at} is not reserved; raise os.hugetlb.pages_{}",
        memory::size(size.bytes()),
        if *size == PageSize::G1 { "1gb" } else { "2mb" }
    )]
    PoolEmpty {
        /// First address of the page.
        at: VirtAddr,
        /// Size of the page.
        size: PageSize,
    },
    /// The host of a virtual machine could not back the guest's memory.
    #[error("the host: {0}")]
    Host(Box<OsError>),
    /// An invalid call, with the reason in one sentence.
    #[error("{0}")]
    Bad(String),
}

/// A page of a process, and its physical address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct MappedPage {
    /// The process.
    pub process: Pid,
    /// Virtual address.
    pub address: u64,
    /// Physical address. For a process of a guest, the guest-physical address.
    pub at: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Identifier of a process in the OS. Identifiers are never reused.
pub type Pid = u32;

/// Memory of processes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Mapped by 4 KB pages.
    pub mapped_4kb: u64,
    /// Mapped by 2 MB pages.
    pub mapped_2mb: u64,
    /// Mapped by 1 GB pages.
    pub mapped_1gb: u64,
    /// Memory of their page tables.
    pub page_table_bytes: u64,
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, more: Self) {
        self.mapped_4kb += more.mapped_4kb;
        self.mapped_2mb += more.mapped_2mb;
        self.mapped_1gb += more.mapped_1gb;
        self.page_table_bytes += more.page_table_bytes;
    }
}

/// The operating system of a machine, with its host if there is one.
pub struct Os {
    kernel: Kernel,
    spaces: Vec<Option<Box<Space>>>,
    objects: Objects,
    placement: Box<dyn Placement>,
    page_table: PageTableSpec,
    /// [`PageTableSpec::address_bits`].
    address_bits: u32,
    tables: Tables,
    /// Page-table counters of exited processes.
    gone: Tree,
    role: Role,
    seed: u64,
    /// Present in a guest.
    host: Option<Box<Host>>,
    khugepaged: Option<Khugepaged>,
    movers: Movers,
    inferred_pages: InferredPages,
    inferred_touch_cycles: Cycle,
    /// Settings that files of the kernel show.
    shown: Shown,
    /// The shortcut table that answers queries of programs, if any.
    shortcut: Option<Box<dyn Shortcut>>,
    /// The STLTs that answer queries of programs, if any.
    stlt: Option<Box<Stlts>>,
    /// All address-space identifiers that were ever in use, in the order of their first processes.
    asids: Vec<u16>,
    free_asids: BTreeSet<u16>,
    next_asid: u16,
}

impl Os {
    /// The system of a machine of `frequency_ghz` that has just booted. An error names the wrong key and the expected
    /// values.
    pub fn new(
        spec: &OsSpec,
        placement: &PlacementSpec,
        table: &PageTableSpec,
        frequency_ghz: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::of(Role::Native, spec, placement, table, frequency_ghz, seed)
    }

    fn of(
        role: Role,
        spec: &OsSpec,
        placement: &PlacementSpec,
        table: &PageTableSpec,
        frequency_ghz: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        spec.check()?;
        placement.check()?;
        placement.check_memory(spec.program_mb())?;
        table.check()?;
        if !(frequency_ghz.is_finite() && frequency_ghz > 0.0) {
            return Err(Error::refused(format!(
                "the core's frequency is {frequency_ghz} GHz: expected more than 0"
            )));
        }
        let khugepaged = placement.khugepaged();
        let shown = Shown::new(spec, placement);
        let placement = placement.build(spec.memory_gb << 18)?;
        let memory = Memory::new(spec, seed);
        let choice = placement.choice(&Booted {
            role,
            page_table: table,
            memory: &memory,
            seed,
        });
        let bytes = memory.frames().end << 12;
        let mut kernel = Kernel::new(memory, choice, Prices::new(&spec.prices, frequency_ghz));
        if role == Role::Guest {
            kernel.virtualise();
        }
        let tables = Tables::boot(table, role, bytes, &mut kernel, seed)?;
        // The set of rows does not depend on the process.
        let mut gone = Tree::default();
        tables.of_space(Asid(0)).report(role.tables(), &mut gone);
        let mut os = Os {
            gone,
            kernel,
            spaces: Vec::new(),
            objects: Objects::default(),
            placement,
            page_table: table.clone(),
            address_bits: table.address_bits(),
            tables,
            role,
            seed,
            host: None,
            khugepaged: khugepaged.map(|(spec, mode)| Khugepaged::new(spec, mode, frequency_ghz)),
            movers: Movers::new(
                spec.migration.as_ref(),
                spec.swap.as_ref(),
                frequency_ghz,
                seed,
            ),
            inferred_pages: spec.inferred_pages,
            inferred_touch_cycles: spec.inferred_touch_cycles,
            shown,
            shortcut: None,
            stlt: None,
            asids: Vec::new(),
            free_asids: BTreeSet::new(),
            next_asid: 0,
        };
        if role != Role::Host {
            os.fill_pools(&spec.hugetlb)?;
        }
        Ok(os)
    }

    /// The address-space identifier of a process; 0 after its exit.
    pub fn asid(&self, pid: Pid) -> Asid {
        self.space(pid).map_or(Asid(0), |s| s.asid)
    }

    /// The page tables that the walker of a thread of `pid` uses. Panics if the process has exited, because its threads
    /// have exited with it.
    pub fn view(&self, pid: Pid) -> View<'_> {
        match self.space(pid).map(|s| &s.table) {
            Ok(Table::Shadowed(table)) => View::Native(table.shadow()),
            _ => self.layers(pid),
        }
    }

    /// The tables that the kernels maintain for `pid`: in a guest, its own and the host's, even if the hardware walks
    /// neither. Panics as [`Os::view`].
    pub fn layers(&self, pid: Pid) -> View<'_> {
        let Ok(space) = self.space(pid) else {
            panic!("process {pid} is gone and has no address space");
        };
        let host = self.host.as_ref().and_then(|h| h.os.space(h.machine).ok());
        match (&space.table, host.map(|s| &s.table)) {
            (Table::Native(table), _) => View::Native(table.hardware()),
            (Table::Guest(guest), Some(Table::Host(host))) => View::Nested {
                guest: guest.hardware(),
                host: host.hardware(),
            },
            (Table::Shadowed(guest), Some(Table::Host(host))) => View::Nested {
                guest: guest.hardware(),
                host: host.hardware(),
            },
            _ => panic!("process {pid} has a table of the wrong kind"),
        }
    }

    /// The hashes of a hash-based frame choice, with their success counts so far. With a host, the host's. The hardware
    /// may read them, as it reads the paper's registers (Revelator, section 5.3.1).
    #[inline]
    pub fn tiers(&self) -> Option<&Tiers> {
        match &self.host {
            None => self.kernel.tiers(),
            Some(host) => host.os.kernel.tiers(),
        }
    }

    /// All mapped pages by process, in ascending order of address. For a guest, with guest-physical addresses.
    pub fn mappings(&self) -> Vec<MappedPage> {
        let mut found = Vec::new();
        for (process, space) in (0..).zip(&self.spaces) {
            let Some(space) = space else { continue };
            space.table.for_each(&mut |page, frame| {
                found.push(MappedPage {
                    process,
                    address: page.base.0,
                    at: frame << 12,
                    bytes: page.size.bytes(),
                });
            });
        }
        found
    }

    /// Permanently reserves `bytes` of contiguous physical memory, rounded up to a power of two of at least 4 KB, for a
    /// translation table that the hardware maintains. In a virtual machine it is the host's memory. Call it at boot: it
    /// costs no time.
    ///
    /// # Errors
    /// No such block is available. The error has the reason in words.
    pub fn set_aside(&mut self, bytes: u64) -> Result<PhysAddr, Error> {
        if let Some(host) = &mut self.host {
            return host.os.set_aside(bytes);
        }
        let want = Want {
            bytes: bytes.next_power_of_two().max(4096),
            asid: Asid(0),
            purpose: Purpose::Rows,
        };
        let k = &mut self.kernel;
        match k.frame(want) {
            Ok(frame) => {
                k.rows_bytes += want.bytes;
                Ok(PhysAddr(frame << 12))
            }
            Err(_) => Err(Error::failed(k.memory().no_block(want.bytes, true))),
        }
    }

    /// Makes `shortcut` answer the queries of programs from now on.
    pub fn set_shortcut(&mut self, shortcut: Box<dyn Shortcut>) {
        self.shortcut = Some(shortcut);
    }

    /// True if queries of programs are answered.
    pub fn has_shortcut(&self) -> bool {
        self.shortcut.is_some() || self.stlt.is_some()
    }

    /// `loadVA` of a thread of `pid`; `None` without a shortcut or an STLT. The first query of a process may take
    /// kernel time, because it allocates a table.
    pub fn load_va(&mut self, pid: Pid, integer: u64, fx: &mut Effects) -> Option<QueryResult> {
        let asid = self.asid(pid);
        match &mut self.shortcut {
            Some(shortcut) => Some(shortcut.load_va(asid, integer)),
            None => self.stlt_load(pid, integer, fx),
        }
    }

    /// `insertSTLT` of a thread of `pid`, as for [`Os::load_va`].
    pub fn insert_va(
        &mut self,
        pid: Pid,
        integer: u64,
        va: VirtAddr,
        fx: &mut Effects,
    ) -> Option<QueryResult> {
        let asid = self.asid(pid);
        match &mut self.shortcut {
            Some(shortcut) => Some(shortcut.insert_va(asid, integer, va)),
            None => self.stlt_insert(pid, integer, va, fx),
        }
    }

    /// Switches a core from a thread of `from` to another one of `to`. Returns the kernel time. Between processes it
    /// saves and restores the page table's registers. Registers of an exited process are not saved.
    pub fn context_switch(&mut self, from: Pid, to: Pid) -> Cycle {
        let registers = |pid| {
            self.space(pid)
                .map_or(0, |s| u64::from(s.table.registers()))
        };
        let (saved, restored) = if from == to {
            (0, 0)
        } else {
            (registers(from), registers(to))
        };
        let k = &mut self.kernel;
        let cycles = k.prices.registers(saved + restored);
        k.stats.context_switches += 1;
        k.stats.process_switches += u64::from(from != to);
        k.stats.registers_saved += saved;
        k.stats.registers_restored += restored;
        k.stats.register_cycles += cycles;
        k.prices.context_switch + cycles
    }

    /// Prices of kernel work that the machine schedules: TLB shootdowns.
    pub fn prices(&self) -> &Prices {
        &self.kernel.prices
    }

    /// Number of page faults so far, and their kernel time in cycles. Excludes pages that the simulator populated for
    /// the program.
    pub fn page_faults(&self) -> (u64, Cycle) {
        let s = &self.kernel.stats;
        (page_faults(|_, of| of(s)), s.fault_cycles)
    }

    /// Bytes mapped by all processes.
    pub fn mapped(&self) -> u64 {
        let of = |s: &Space| PageSize::ALL.map(|size| s.mapped[size.index()] * size.bytes());
        self.alive_spaces().flat_map(of).sum()
    }

    /// Memory of a process; zero after its exit.
    pub fn held(&self, pid: Pid) -> Held {
        self.space(pid).map_or(Held::default(), |s| {
            let mapped = |size: PageSize| s.mapped[size.index()] * size.bytes();
            Held {
                mapped_4kb: mapped(PageSize::K4),
                mapped_2mb: mapped(PageSize::M2),
                mapped_1gb: mapped(PageSize::G1),
                page_table_bytes: s.table.bytes(),
            }
        })
    }

    /// All counters and gauges.
    pub fn stats(&self) -> OsStats {
        let k = &self.kernel;
        let m = k.memory();
        let mapped = |size: PageSize| {
            let pages: u64 = self.alive_spaces().map(|s| s.mapped[size.index()]).sum();
            pages * size.bytes()
        };
        let sizes = [PageSize::K4, PageSize::M2, PageSize::G1].map(mapped);
        let all: u64 = sizes.iter().sum();
        OsStats {
            mapped_4kb_bytes: sizes[0],
            mapped_2mb_bytes: sizes[1],
            mapped_1gb_bytes: sizes[2],
            huge_mapped_permille: (1000 * (all - sizes[0])).checked_div(all).unwrap_or(0),
            page_table_bytes: k.tables.bytes,
            page_table_peak_bytes: k.tables.peak,
            largest_contiguous_bytes: k.tables.largest,
            free_bytes: m.free_frames() << 12,
            set_aside_bytes: (m.set_aside_frames() << 12) + k.rows_bytes,
            free_2mb_blocks: m.buddy().available(HUGE_ORDER),
            unusable_free_permille: (m.buddy().unusable_free_index(HUGE_ORDER) * 1000.0).round()
                as u64,
            compactions: m.compactions,
            compacted_frames: m.compacted_frames,
            table_blocks_4kb: k.tables.blocks[0],
            table_blocks_8kb: k.tables.blocks[1],
            table_blocks_1mb: k.tables.blocks[2],
            table_blocks_8mb: k.tables.blocks[3],
            table_blocks_64mb: k.tables.blocks[4],
            table_blocks_larger: k.tables.blocks[5],
            ..k.stats
        }
    }

    /// Adds the counters under `path`, and those of the page tables of all processes under `page_table`, exited
    /// processes included. Counters of khugepaged and of the frame choice lie below `path`. Those of a host lie under
    /// `host` and `host.page_table`.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        if let Some(stats) = self.khugepaged_stats() {
            tree.add(&format!("{path}.khugepaged"), &stats);
        }
        if self.shown.has_sizes() {
            tree.add(&format!("{path}.thp_sizes"), &self.kernel.thp_sizes);
        }
        let (migration, swap) = self.mover_stats();
        if let Some(stats) = migration {
            tree.add(&format!("{path}.migration"), &stats);
        }
        if let Some(stats) = swap {
            tree.add(&format!("{path}.swap"), &stats);
        }
        self.report_pools(path, tree);
        self.placement.report(path, tree);
        self.kernel.report_choice(path, tree);
        tree.add_values(path, &FAULT_COST, self.kernel.fault_cost.distribution());
        let mut tables = self.gone.clone();
        for space in self.alive_spaces() {
            let mut own = Tree::default();
            space.table.report(self.role.tables(), &mut own);
            tables.merge(&own);
        }
        tree.append(tables);
        self.tables.report(self.role.tables(), tree);
        self.report_stlt("stlt", tree);
        if let Some(host) = &self.host {
            host.os.report("host", tree);
        }
    }

    /// Restarts the maxima of the histograms that [`Os::report`] adds.
    pub fn mark(&mut self) {
        self.kernel.fault_cost.mark();
        if let Some(host) = &mut self.host {
            host.os.mark();
        }
    }

    fn alive_spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.iter().flatten().map(|s| &**s)
    }

    fn space(&self, pid: Pid) -> Result<&Space, OsError> {
        match self.spaces.get(pid as usize) {
            Some(Some(space)) => Ok(space),
            _ => Err(OsError::Bad(format!("there is no process {pid}"))),
        }
    }

    fn space_mut(&mut self, pid: Pid) -> Result<&mut Space, OsError> {
        match self.spaces.get_mut(pid as usize) {
            Some(Some(space)) => Ok(space),
            _ => Err(OsError::Bad(format!("there is no process {pid}"))),
        }
    }

    fn alive(&self, pid: Pid) -> Result<(), OsError> {
        self.space(pid).map(|_| ())
    }

    /// True if the table can translate all of `at..at + bytes`: the bits above the translated ones equal the highest
    /// translated bit.
    fn canonical(&self, at: u64, bytes: u64) -> bool {
        let fits = |a: u64| extends(a, self.address_bits);
        let Some(end) = at.checked_add(bytes) else {
            return false;
        };
        // The last page is excluded, so that the address after a range exists.
        end <= u64::MAX - 0xfff && fits(at) && fits(end - 1) && at >> 63 == (end - 1) >> 63
    }

    /// The error of an access to `at`, which the table cannot translate: five levels would, or nothing can.
    fn beyond_width(&self, at: u64) -> Option<OsError> {
        let bits = self.address_bits;
        let wide = !extends(at, bits) && extends(at, 57);
        wide.then(|| OsError::BeyondWidth {
            at: VirtAddr(at),
            bits,
            advice: match &self.page_table {
                PageTableSpec::Radix(_) => "page_table.radix.levels=5".to_owned(),
                table => format!("page_table.{}.address_bits=57", table.name()),
            },
        })
    }

    /// Start and end of a range of whole pages.
    fn range(&self, at: VirtAddr, bytes: u64) -> Result<(u64, u64), OsError> {
        let rounded = bytes.checked_next_multiple_of(4096).unwrap_or(0);
        if at.0 & 0xfff != 0 || rounded == 0 || !self.canonical(at.0, rounded) {
            let last = at.0.saturating_add(rounded.saturating_sub(1));
            for end in [at.0, last] {
                if !self.canonical(end, 1)
                    && let Some(error) = self.beyond_width(end)
                {
                    return Err(OsError::Bad(error.to_string()));
                }
            }
            return Err(OsError::Bad(format!(
                "{bytes} bytes at {at}: expected a range of whole pages within the {}-bit address space",
                self.address_bits
            )));
        }
        Ok((at.0, at.0 + rounded))
    }
}

/// True if the bits of `address` above the lowest `bits` equal the highest of these.
fn extends(address: u64, bits: u32) -> bool {
    let above = 64 - bits;
    ((address << above) as i64 >> above) as u64 == address
}
