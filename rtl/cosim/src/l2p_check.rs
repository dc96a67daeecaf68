//! A page table that gives each walk to the simulator's table and to the hardware, and compares them:
//! `[page_table.external.rtl]`, with the keys of `[page_table.memory_efficient]`. A run of a whole machine then drives
//! the hardware with its own walks. Any difference ends the run.
//!
//! This file is the kernel of the hardware: it writes registers and L2P entries when a change of the table says so.

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewalk_stats::Tree;
use pagewalk_tables::cuckoo_hardware::{Chunks, PTES_SHIFT, WayRegisters};
use pagewalk_tables::{
    BuildTable, Cuckoo, Flags, FrameSource, HashFunction, MapError, MapWork, MemoryEfficientSpec,
    Next, Owner, PageTable, TableSpec, Translation, Walk, WalkCacheKind, WalkCaches, WalkState,
};
use pagewalk_units::{Addr, Cycle, Error, Frame, LINE_SHIFT, Page, PageSize};
use serde::{Deserialize, Serialize};

use crate::header::{L2P_LATENCY, L2P_PA_BITS, L2P_SOURCE, L2pParameters};
use crate::l2p::{Inputs, L2pTable, Outputs};
use crate::verilated::Waveform;

/// Name of the kind of page table.
pub const NAME: &str = "rtl";

/// Page sizes, each with L2P entries of its own.
const SIZES: usize = PageSize::ALL.len();

/// Most cycles between walks that are simulated outside of a waveform. Longer pauses end when the hardware is idle.
const PAUSE: i64 = 64;

/// Sums over the tables that have been dropped.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Walks that began.
    pub walks: u64,
    /// Lines that were compared: all ways of all tables that have memory.
    pub lines: u64,
    /// Lines of the ways that walks read first.
    pub selected: u64,
    /// Walks that began with all ways of all tables.
    pub complete: u64,
    /// Walks that went on with all ways of all tables.
    pub retried: u64,
    /// Walks that began in the cycle of another and waited. The simulator's do not wait.
    pub waited: u64,
    /// Walks during a resize of at least one way.
    pub resizing: u64,
    /// Changes of a way's chunk size that the hardware saw.
    pub chunk_changes: u64,
    /// Times that a way's L2P entries were moved together because they had a gap.
    pub packed: u64,
    /// Registers written.
    pub registers: u64,
    /// L2P entries written.
    pub entries: u64,
    /// Clock cycles of the hardware.
    pub cycles: u64,
}

impl Totals {
    /// Adds counts.
    pub fn add(&mut self, other: &Totals) {
        for (sum, n) in [
            (&mut self.walks, other.walks),
            (&mut self.lines, other.lines),
            (&mut self.selected, other.selected),
            (&mut self.complete, other.complete),
            (&mut self.retried, other.retried),
            (&mut self.waited, other.waited),
            (&mut self.resizing, other.resizing),
            (&mut self.chunk_changes, other.chunk_changes),
            (&mut self.packed, other.packed),
            (&mut self.registers, other.registers),
            (&mut self.entries, other.entries),
            (&mut self.cycles, other.cycles),
        ] {
            *sum += n;
        }
    }
}

/// Options of the tables that are built next.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A waveform, whose requests are walks.
    pub waveform: Option<Waveform>,
}

struct Shared {
    options: Options,
    totals: Totals,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

fn shared() -> MutexGuard<'static, Option<Shared>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the kind, and sets the options of the tables that are built next.
pub fn install(options: Options) {
    let totals = Totals::default();
    *shared() = Some(Shared { options, totals });
    pagewalk_tables::register::<CheckedSpec>(NAME);
}

/// The sums since the last call.
pub fn take_totals() -> Totals {
    let mut shared = shared();
    shared
        .as_mut()
        .map_or_else(Totals::default, |shared| std::mem::take(&mut shared.totals))
}

/// The configuration of a checked table.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct CheckedSpec(pub MemoryEfficientSpec);

/// Parameters of the hardware.
fn hardware() -> L2pParameters {
    L2pParameters::of(&crate::configuration(L2P_SOURCE.0, L2P_SOURCE.1))
}

impl TableSpec for CheckedSpec {
    fn check(&self) -> Result<(), Error> {
        TableSpec::check(&self.0)?;
        let hardware = hardware();
        if self.0.hash != HashFunction::Crc {
            return Err(Error::key("hash", "is not crc; the hardware has CRC units"));
        }
        if self.0.address_bits != hardware.va_bits {
            let expected = hardware.va_bits;
            return Err(Error::key(
                "address_bits",
                format!("is not {expected}, the hardware's"),
            ));
        }
        let unknown = |chunk: &&u64| !hardware.chunks.contains(chunk);
        if let Some(chunk) = self.0.chunks.iter().find(unknown) {
            let expected = &hardware.chunks;
            return Err(Error::key(
                "chunks",
                format!("has {chunk}; expected sizes of {expected:?}"),
            ));
        }
        let (least, most) = (1, hardware.entries);
        if self.0.chunks.is_empty() || !(least..=most).contains(&self.0.l2p_entries) {
            return Err(Error::key(
                "l2p_entries",
                format!("has no table in the hardware; expected chunks and {least} to {most}"),
            ));
        }
        Ok(())
    }
    fn walk_caches(&self) -> WalkCacheKind {
        TableSpec::walk_caches(&self.0)
    }
    fn address_bits(&self) -> u32 {
        TableSpec::address_bits(&self.0)
    }
    fn l2p(&self) -> Option<(u32, u32)> {
        TableSpec::l2p(&self.0)
    }
}

impl BuildTable for CheckedSpec {
    fn build<In: Addr, Out: Addr>(&self, owner: Owner) -> Box<dyn PageTable<In, Out>> {
        let options = shared().as_ref().map(|shared| shared.options.clone());
        let mut table = Checked::new(self, owner, &options.unwrap_or_default());
        table.counted = true;
        Box::new(table)
    }
}

/// A write of the kernel: target, way, page size, number of the entry, and value.
type Write = (u8, usize, usize, u8, u64);

/// Targets in the order of [`crate::header::L2P_WRITES`].
const ENTRY: u8 = 0;
const SLOTS: u8 = 1;
const POINTER: u8 = 2;
const CHUNKS: u8 = 3;

/// State of one way that the kernel wants the hardware to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
struct WayImage {
    /// Base of each L2P entry in use.
    entries: Vec<Option<u64>>,
    /// Values of the registers of each page size: slots, pointer, chunks.
    registers: [[u64; 3]; SIZES],
}

/// A result that the hardware has to give.
struct Expected {
    va: u64,
    /// Cycle of the hardware.
    cycle: i64,
    /// Lines that the simulator's walk reads first.
    selected: Vec<u64>,
    /// Lines of all ways that have memory, each with its unit.
    lines: Vec<(usize, u64)>,
}

struct Hardware {
    model: L2pTable,
    parameters: L2pParameters,
    ways: usize,
    /// L2P entries of the simulated table, for each way and page size.
    entries: usize,
    waveform: Option<Waveform>,
    images: Vec<WayImage>,
    /// The chunk size of the way's table is being changed.
    changing: Vec<[bool; SIZES]>,
    /// The table has changed since the registers were written.
    stale: bool,
    /// Number of times that the registers were written.
    generation: u64,
    expected: VecDeque<Expected>,
    /// Headers of the walks that have not received them.
    headers: VecDeque<[Option<u8>; 2]>,
    /// Lines of all ways of recent walks, as a walker holds them for a second round.
    held: HashMap<u64, (u64, Vec<u64>)>,
    resizing: bool,
    /// Cycle of the hardware, less the simulator's.
    base: i64,
    /// The hardware has spent cycles that the simulator has not: `base` is set anew.
    rebase: bool,
    /// Cycles of the simulator in which the hardware takes walks that follow each other without a pause.
    busy: Range<Cycle>,
    totals: Totals,
}

impl Hardware {
    fn new(ways: usize, entries: usize, options: &Options) -> Self {
        let parameters = hardware();
        let image = WayImage {
            entries: vec![None; SIZES * parameters.entries as usize],
            registers: [[0; 3]; SIZES],
        };
        Hardware {
            model: L2pTable::with_table_ways(ways as u64, options.waveform.as_ref()),
            parameters,
            ways,
            entries,
            waveform: options.waveform.clone(),
            images: vec![image; ways],
            changing: vec![[false; SIZES]; ways],
            stale: true,
            generation: 0,
            expected: VecDeque::new(),
            headers: VecDeque::new(),
            held: HashMap::new(),
            resizing: false,
            base: 0,
            rebase: true,
            busy: 0..0,
            totals: Totals::default(),
        }
    }

    /// One cycle. Compares the result, if there is one.
    fn step(&mut self, mut inputs: Inputs) -> Outputs {
        if self.model.outputs.cwc_due {
            let headers = self.headers.pop_front();
            let [pmd, pud] = headers.expect("each walk has headers");
            (inputs.cwc_pmd_hit, inputs.cwc_pmd_header) = (pmd.is_some(), pmd.unwrap_or(0) & 31);
            (inputs.cwc_pud_hit, inputs.cwc_pud_header) = (pud.is_some(), pud.unwrap_or(0) & 31);
        }
        let now = self.model.cycle as i64;
        let out = self.model.step(&inputs);
        if out.valid {
            let expected = self.expected.pop_front();
            let expected = expected.expect("a result of a walk that the model does not make");
            let va = expected.va;
            assert_eq!(now, expected.cycle, "cycle of the walk of {va:#x}");
            let units =
                |ways: u16| (0..SIZES * self.ways).filter(move |unit| ways >> unit & 1 != 0);
            let lines: Vec<_> = units(out.live).map(|unit| (unit, out.line(unit))).collect();
            assert_eq!(lines, expected.lines, "lines of {va:#x}");
            let selected: Vec<u64> = units(out.ways).map(|unit| out.line(unit)).collect();
            assert_eq!(selected, expected.selected, "ways of {va:#x}: {out:x?}");
            assert_eq!(out.missing, 0, "L2P entries of {va:#x}");
            assert!(!out.all || out.ways == out.live);
            self.totals.lines += lines.len() as u64;
            self.totals.selected += selected.len() as u64;
            self.totals.complete += u64::from(out.all);
            if self.held.len() >= 64 {
                self.held.clear();
            }
            let all = lines.into_iter().map(|(_, line)| line).collect();
            self.held.insert(va, (self.generation, all));
        }
        out
    }

    /// Lets all walks end.
    fn drain(&mut self) {
        for _ in 0..=L2P_LATENCY {
            self.step(Inputs::default());
        }
        assert!(
            self.expected.is_empty() && self.headers.is_empty(),
            "a walk has no result"
        );
        self.rebase = true;
    }

    /// The number of a chunk size.
    fn kind(&self, bytes: u64) -> u64 {
        let kind = self.parameters.chunks.iter().position(|&c| c == bytes);
        kind.expect("the sizes were checked") as u64
    }

    /// The state that the kernel gives to `way`. The simulator's numbers of entries are kept where each table's chunks have
    /// adjacent ones. Otherwise the entries of all page sizes are moved together.
    fn image(&mut self, way: usize, tables: &[Option<WayRegisters>; SIZES]) -> WayImage {
        let all = self.images[way].entries.len();
        let packs = !tables.iter().zip(PageSize::ALL).all(|(table, size)| {
            let runs = table.iter().flat_map(|t| [Some(&t.old), t.new.as_ref()]);
            runs.flatten().all(|chunks| adjacent(size, chunks))
        });
        self.totals.packed += u64::from(packs);
        let mut image = WayImage {
            entries: vec![None; all],
            registers: [[0; 3]; SIZES],
        };
        // The free entries, if they are moved. 2 MB pages begin at the end, also of a smaller table of the simulator's.
        let mut free = 0..all;
        let last = all - SIZES * self.entries;
        for (size, table) in PageSize::ALL.into_iter().zip(tables) {
            let Some(table) = table else { continue };
            let down = size == PageSize::M2;
            let mut place = |chunks: &Chunks| {
                let (n, given) = (chunks.entries.len(), usize::from(chunks.entries[0].0));
                let first = match (packs, down) {
                    (false, false) => given,
                    (false, true) => last + given,
                    (true, false) => free.start,
                    (true, true) => free.end - 1,
                };
                if down {
                    free.end -= n;
                } else {
                    free.start += n;
                }
                for (i, &(_, base)) in chunks.entries.iter().enumerate() {
                    let at = if down { first - i } else { first + i };
                    let before = image.entries[at].replace(base);
                    assert_eq!(before, None, "entry {at} of way {way}");
                }
                first as u64
            };
            let first = place(&table.old);
            let new_first = table.new.as_ref().map_or(first, place);
            let kind = self.kind(table.old.bytes);
            let new_kind = table.new.as_ref().map_or(kind, |new| self.kind(new.bytes));
            let bits = |mask: u64| u64::from((mask + 1).ilog2());
            let separate = u64::from(table.new.is_some());
            // A number of slots is up to a power of two of so many bits.
            let width = self.parameters.slot_bits().ilog2() + 1;
            let firsts = new_first << self.parameters.entry_bits() | first;
            let kind_bits = (self.parameters.chunks.len() as u64)
                .next_power_of_two()
                .ilog2();
            image.registers[size.index()] = [
                1 << (2 * width + 1)
                    | separate << (2 * width)
                    | bits(table.new_mask) << width
                    | bits(table.old_mask),
                table.pointer,
                firsts << (2 * kind_bits) | new_kind << kind_bits | kind,
            ];
        }
        image
    }

    /// Writes what has changed.
    fn synchronise<In: Addr, Out: Addr>(&mut self, table: &Cuckoo<In, Out>) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut writes: Vec<Write> = Vec::new();
        self.resizing = false;
        for way in 0..self.ways {
            let tables = PageSize::ALL.map(|size| table.way_registers(size, way));
            let resizes = |t: &WayRegisters| t.new.is_some() || t.old_mask != t.new_mask;
            self.resizing |= tables.iter().flatten().any(resizes);
            let image = self.image(way, &tables);
            let before = &self.images[way];
            let changed = before.entries.iter().zip(&image.entries).enumerate();
            for (index, (_, entry)) in changed.filter(|(_, (old, new))| old != new) {
                let shift = L2P_PA_BITS - self.parameters.base_bits();
                let value = entry.map_or(0, |base| {
                    assert!(base >> L2P_PA_BITS == 0, "{base:#x} has too many bits");
                    1 << self.parameters.base_bits() | base >> shift
                });
                writes.push((ENTRY, way, 0, index as u8, value));
            }
            for (size, table) in tables.iter().enumerate() {
                let (old, new) = (before.registers[size], image.registers[size]);
                for what in [SLOTS, POINTER, CHUNKS] {
                    let n = usize::from(what - SLOTS);
                    if old[n] != new[n] {
                        writes.push((what, way, size, 0, new[n]));
                    }
                }
                let bytes = |t: &WayRegisters| t.new.as_ref().map(|new| new.bytes != t.old.bytes);
                let changes = table.as_ref().and_then(bytes).unwrap_or(false);
                let begins = changes && !std::mem::replace(&mut self.changing[way][size], changes);
                self.changing[way][size] = changes;
                self.totals.chunk_changes += u64::from(begins);
            }
            self.images[way] = image;
        }
        if writes.is_empty() {
            return;
        }
        self.drain();
        self.generation += 1;
        for (what, way, size, index, value) in writes {
            let write = Inputs {
                write_valid: true,
                write_what: what,
                write_way: way as u8,
                write_size: size as u8,
                write_index: index,
                write_value: value,
                ..Inputs::default()
            };
            while !self.step(write).write_ready {}
            self.totals.entries += u64::from(what == ENTRY);
            self.totals.registers += u64::from(what != ENTRY);
        }
    }

    /// Gives a walk to the hardware at its own time, or as soon as it is taken.
    fn walk(&mut self, va: u64, begins: Cycle, headers: [Option<u8>; 2], expected: Expected) {
        let waits = self.busy.contains(&begins);
        if !waits {
            self.busy = begins..begins;
        }
        let start = if waits { self.busy.end } else { begins };
        self.totals.waited += u64::from(waits);
        self.busy.end = start + 1;
        let now = self.model.cycle as i64;
        let traced = |w: &Waveform| w.contains(self.totals.walks);
        let pause = if self.waveform.as_ref().is_some_and(traced) {
            1 << 20
        } else {
            PAUSE
        };
        if self.rebase || !(now..now + pause).contains(&self.cycle(start)) {
            self.drain();
            self.base = self.model.cycle as i64 - start as i64;
            self.rebase = false;
        }
        while (self.model.cycle as i64) < self.cycle(start) {
            self.step(Inputs::default());
        }
        self.trace();
        let cycle = self.cycle(start) + expected.cycle;
        self.expected.push_back(Expected { cycle, ..expected });
        self.headers.push_back(headers);
        let page = va & ((1 << self.parameters.va_bits) - 1);
        let out = self.step(Inputs {
            req_valid: true,
            req_key: page >> (PageSize::K4.shift() + PTES_SHIFT),
            ..Inputs::default()
        });
        assert!(out.req_ready, "the hardware takes a walk in each cycle");
        self.totals.walks += 1;
        self.totals.resizing += u64::from(self.resizing);
    }

    /// The hardware's cycle at this time of the simulator.
    fn cycle(&self, at: Cycle) -> i64 {
        self.base.saturating_add_unsigned(at)
    }

    /// Begins or ends the waveform with the walk that comes next.
    fn trace(&mut self) {
        let change = (self.waveform.as_ref()).and_then(|w| w.change(self.totals.walks));
        if let Some(file) = change {
            self.model.trace(file);
        }
    }

    /// Compares the lines of a second round with those that the hardware has given for the first.
    fn second_round(&mut self, va: u64, lines: &[u64]) {
        self.drain();
        if let Some((generation, held)) = self.held.get(&va)
            && *generation == self.generation
            && !self.stale
        {
            assert_eq!(held, lines, "second round of {va:#x}");
            self.totals.retried += 1;
        }
    }
}

/// True if the chunks have adjacent entries: ascending ones, or descending ones of 2 MB pages.
fn adjacent(size: PageSize, chunks: &Chunks) -> bool {
    let step = if size == PageSize::M2 { -1 } else { 1 };
    let number = |entry: &(u16, u64)| i32::from(entry.0);
    (chunks.entries.windows(2)).all(|pair| number(&pair[1]) - number(&pair[0]) == step)
}

/// A page table whose walks drive the hardware as well.
pub struct Checked<In, Out> {
    table: Cuckoo<In, Out>,
    hardware: Mutex<Hardware>,
    ways: usize,
    /// Its sums are added to those of the process.
    counted: bool,
    addresses: PhantomData<fn(In) -> Out>,
}

impl<In: Addr, Out: Addr> Checked<In, Out> {
    /// An empty table of `owner`.
    ///
    /// # Panics
    /// Verilator or the compiler fails.
    pub fn new(spec: &CheckedSpec, owner: Owner, options: &Options) -> Self {
        let ways = usize::from(spec.0.ways);
        Checked {
            table: Cuckoo::memory_efficient(&spec.0, owner),
            hardware: Mutex::new(Hardware::new(ways, spec.0.l2p_entries as usize, options)),
            ways,
            counted: false,
            addresses: PhantomData,
        }
    }

    fn hardware_mut(&mut self) -> &mut Hardware {
        (self.hardware.get_mut()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Sums so far, after all walks have ended.
    pub fn totals(&mut self) -> Totals {
        let hardware = self.hardware_mut();
        hardware.drain();
        Totals {
            cycles: hardware.model.cycle,
            ..hardware.totals
        }
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Checked<In, Out> {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let first = state.step == 0;
        let headers = self.table.cached_headers(va.raw(), caches);
        let begins = caches.now;
        let next = self.table.next(va, state, caches);
        let Next::Read(group) = &next else {
            return next;
        };
        if group.off_path {
            return next;
        }
        let selected: Vec<u64> = group.at.iter().map(|at| at.raw() >> LINE_SHIFT).collect();
        let mut hardware = self.hardware.lock().unwrap_or_else(PoisonError::into_inner);
        if !first {
            hardware.second_round(va.raw(), &selected);
            return next;
        }
        hardware.synchronise(&self.table);
        let mut lines = Vec::with_capacity(SIZES * self.ways);
        for size in PageSize::ALL {
            for way in 0..self.ways {
                let line = self.table.probed_line(va.raw(), size, way);
                let unit = size.index() * self.ways + way;
                lines.extend(line.map(|line| (unit, line.raw() >> LINE_SHIFT)));
            }
        }
        let expected = Expected {
            va: va.raw(),
            cycle: caches.spent as i64,
            selected,
            lines,
        };
        hardware.walk(va.raw(), begins, headers, expected);
        next
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        self.table.translate(va)
    }
}

impl<In: Addr, Out: Addr> PageTable<In, Out> for Checked<In, Out> {
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError> {
        let done = self.table.map(page, frame, flags, frames);
        // A change that failed may have advanced a resize.
        self.hardware_mut().stale |= done.as_ref().map_or(true, |work| work.registers_changed);
        done
    }

    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)> {
        let done = self.table.unmap(page, frames);
        self.hardware_mut().stale |= (done.as_ref()).is_some_and(|done| done.2.registers_changed);
        done
    }

    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool {
        self.table.set_flags(page, flags)
    }

    fn registers(&self) -> u32 {
        self.table.registers()
    }

    fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    fn largest_contiguous(&self) -> u64 {
        self.table.largest_contiguous()
    }

    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags)) {
        self.table.for_each(f);
    }

    fn release(&mut self, frames: &mut dyn FrameSource<Out>) {
        self.hardware_mut().stale = true;
        self.table.release(frames);
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        self.table.report(path, tree);
    }

    fn hardware(&self) -> &dyn Walk<In, Out> {
        self
    }
}

impl<In, Out> Drop for Checked<In, Out> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let hardware = (self.hardware.get_mut()).unwrap_or_else(PoisonError::into_inner);
        hardware.drain();
        hardware.model.trace(None);
        hardware.totals.cycles = hardware.model.cycle;
        if self.counted
            && let Some(shared) = shared().as_mut()
        {
            shared.totals.add(&hardware.totals);
        }
    }
}
