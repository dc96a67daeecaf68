//! Page tables as the kernel uses them: the same calls for all combinations of address
//! types. As everywhere in this crate, frames are numbers.

use pagewalk_stats::Tree;
use pagewalk_tables::{
    BootingKernel, Flags, KernelTables, MapError, MapWork, NoBlock, PageTable, PageTableSpec,
    TranslatesTo, Translation, Walk as _,
};
use pagewalk_units::{
    Addr, Asid, Error, Frame, GuestPhysAddr, Page, PageSize, Part, PhysAddr, VirtAddr, text,
};

use crate::kernel::{Kernel, TableFrames};
use crate::shadow::Shadowed;

/// Role of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The kernel of a machine without virtualisation.
    Native,
    /// A guest's kernel: its physical memory belongs to a virtual machine.
    Guest,
    /// The host's kernel: its processes are virtual machines.
    Host,
}

impl Role {
    /// Name of the kernel within its machine.
    pub fn name(self) -> &'static str {
        match self {
            Role::Native | Role::Guest => "os",
            Role::Host => "host",
        }
    }
    /// Path of its page tables' counters.
    pub fn tables(self) -> &'static str {
        match self {
            Role::Native | Role::Guest => "page_table",
            Role::Host => "host.page_table",
        }
    }
}

/// The page tables of a kernel, by its role.
pub enum Tables {
    /// Tables of native processes.
    Native(Box<dyn KernelTables<VirtAddr, PhysAddr>>),
    /// Tables of guest processes.
    Guest(Box<dyn KernelTables<VirtAddr, GuestPhysAddr>>),
    /// Tables of virtual machines.
    Host(Box<dyn KernelTables<GuestPhysAddr, PhysAddr>>),
}

/// Makes the tables of `spec`, whose keys lie in `section`, for a kernel that boots. Memory comes from `k`,
/// in no time.
fn boot<In: TranslatesTo<Out>, Out: Addr>(
    spec: &PageTableSpec,
    section: &str,
    kernel: BootingKernel,
    k: &mut Kernel,
) -> Result<Box<dyn KernelTables<In, Out>>, Error> {
    let made = spec.boot(kernel, &mut TableFrames::new(k))?;
    made.map_err(|NoBlock { bytes, key }| {
        let why = k.memory().no_block(bytes, true);
        Error::keyed(
            format!("{section}.{}.{key}", spec.name()),
            text![
                format!("{bytes} bytes of contiguous memory cannot be set aside at boot: {why}; lower it or "),
                Part::key("os.fragmentation"),
            ],
        )
    })
}

impl Tables {
    /// The tables of `spec` for a kernel of `role` that boots with `memory` bytes. `seed` determines random
    /// choices.
    pub fn boot(
        spec: &PageTableSpec,
        role: Role,
        memory: u64,
        k: &mut Kernel,
        seed: u64,
    ) -> Result<Self, Error> {
        let kernel = BootingKernel {
            name: role.tables(),
            seed,
            memory,
        };
        Ok(match role {
            Role::Native => Tables::Native(boot(spec, "page_table", kernel, k)?),
            Role::Guest => Tables::Guest(boot(spec, "page_table", kernel, k)?),
            Role::Host => Tables::Host(boot(spec, "virtual.page_table", kernel, k)?),
        })
    }

    /// An empty table of the address space `asid`.
    pub fn of_space(&self, asid: Asid) -> Table {
        match self {
            Tables::Native(tables) => Table::Native(tables.of_space(asid)),
            Tables::Guest(tables) => Table::Guest(tables.of_space(asid)),
            Tables::Host(tables) => Table::Host(tables.of_space(asid)),
        }
    }

    /// See [`KernelTables::report`].
    pub fn report(&self, path: &str, tree: &mut Tree) {
        match self {
            Tables::Native(tables) => tables.report(path, tree),
            Tables::Guest(tables) => tables.report(path, tree),
            Tables::Host(tables) => tables.report(path, tree),
        }
    }
}

/// The page table of an address space.
pub enum Table {
    /// Table of a native process.
    Native(Box<dyn PageTable<VirtAddr, PhysAddr>>),
    /// Table of a guest process.
    Guest(Box<dyn PageTable<VirtAddr, GuestPhysAddr>>),
    /// Table of a guest process with a shadow, which the hardware walks.
    Shadowed(Box<Shadowed>),
    /// Table of a virtual machine: its virtual addresses are the guest's physical
    /// addresses.
    Host(Box<dyn PageTable<GuestPhysAddr, PhysAddr>>),
}

/// Translation of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// First frame of the page.
    pub frame: u64,
    /// Page size.
    pub size: PageSize,
    /// Page flags.
    pub flags: Flags,
}

macro_rules! each {
    ($table:expr, $t:ident => $call:expr) => {
        match $table {
            Table::Native($t) => $call,
            Table::Guest($t) => $call,
            Table::Shadowed($t) => $call,
            Table::Host($t) => $call,
        }
    };
}

fn as_page<A: Addr>(page: Page<VirtAddr>) -> Page<A> {
    Page {
        base: A::new(page.base.0),
        size: page.size,
    }
}

fn number<A: Addr>(frame: Frame<A>) -> u64 {
    frame.base.raw() >> 12
}

fn map<In: Addr, Out: Addr>(
    table: &mut dyn PageTable<In, Out>,
    page: Page<VirtAddr>,
    frame: u64,
    flags: Flags,
    source: &mut TableFrames<'_>,
) -> Result<MapWork, MapError> {
    let base = Out::new(frame << 12);
    table.map(as_page(page), Frame { base }, flags, source)
}

fn mapped<Out: Addr>(t: &Translation<Out>) -> Mapped {
    Mapped {
        frame: number(t.frame),
        size: t.size,
        flags: t.flags,
    }
}

impl Table {
    /// Adds a shadow of `levels` to an empty guest table. Returns any other table
    /// unchanged.
    #[must_use]
    pub fn shadowed(self, levels: u8, asid: Asid) -> Self {
        match self {
            Table::Guest(t) => Table::Shadowed(Box::new(Shadowed::new(t, levels, asid))),
            other => other,
        }
    }

    /// See [`PageTable::map`].
    #[inline]
    pub fn map(
        &mut self,
        page: Page<VirtAddr>,
        frame: u64,
        flags: Flags,
        source: &mut TableFrames<'_>,
    ) -> Result<MapWork, MapError> {
        each!(self, t => map(&mut **t, page, frame, flags, source))
    }

    /// See [`PageTable::unmap`].
    #[inline]
    pub fn unmap(
        &mut self,
        page: Page<VirtAddr>,
        source: &mut TableFrames<'_>,
    ) -> Option<(u64, Flags, MapWork)> {
        each!(self, t => {
            let (frame, flags, work) = t.unmap(as_page(page), source)?;
            Some((number(frame), flags, work))
        })
    }

    /// See [`PageTable::set_flags`].
    pub fn set_flags(&mut self, page: Page<VirtAddr>, flags: Flags) -> bool {
        each!(self, t => t.set_flags(as_page(page), flags))
    }

    /// See [`PageTable::registers`].
    pub fn registers(&self) -> u32 {
        each!(self, t => t.registers())
    }

    /// See [`PageTable::bytes`].
    pub fn bytes(&self) -> u64 {
        each!(self, t => t.bytes())
    }

    /// The page mapped at `at`.
    #[inline]
    pub fn translate(&self, at: VirtAddr) -> Option<Mapped> {
        match self {
            Table::Native(t) => t.translate(at).as_ref().map(mapped),
            Table::Guest(t) => t.translate(at).as_ref().map(mapped),
            Table::Shadowed(t) => t.translate(at).as_ref().map(mapped),
            Table::Host(t) => t.translate(GuestPhysAddr(at.0)).as_ref().map(mapped),
        }
    }

    /// See [`PageTable::for_each`].
    pub fn for_each(&self, f: &mut dyn FnMut(Page<VirtAddr>, u64)) {
        each!(self, t => t.for_each(&mut |page, frame, _| f(as_page(Page {
            base: VirtAddr(page.base.raw()),
            size: page.size,
        }), number(frame))));
    }

    /// See [`PageTable::release`].
    pub fn release(&mut self, source: &mut TableFrames<'_>) {
        each!(self, t => t.release(source));
    }

    /// See [`PageTable::report`].
    pub fn report(&self, path: &str, tree: &mut Tree) {
        each!(self, t => t.report(path, tree));
    }
}
