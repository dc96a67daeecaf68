use std::mem::{align_of, size_of};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use crate::futex_wake;

/// The string "pagewalk" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"pagewalk");
/// Incremented with every change of the layout or of the records.
const VERSION: u64 = 7;
/// Bytes before the first slot.
const HEADER_BYTES: usize = 4096;

/// Sizes of the parts of a segment. The backing file is sparse: only touched pages take
/// memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Maximum number of threads that are alive or whose records are not yet all read.
    pub slots: usize,
    /// Records in each ring, a power of two.
    pub records: usize,
    /// Bytes for the static part of translated code, a multiple of 4096.
    pub code_bytes: usize,
}

impl Geometry {
    /// Total bytes; `None` if the sizes are invalid.
    pub fn bytes(&self) -> Option<usize> {
        if !self.records.is_power_of_two()
            || !(16..=1 << 32).contains(&self.records)
            || !(1..=1 << 16).contains(&self.slots)
            || !self.code_bytes.is_multiple_of(4096)
        {
            return None;
        }
        self.rings_at()?
            .checked_add(self.slots.checked_mul(self.records.checked_mul(8)?)?)
    }
    fn code_at(&self) -> usize {
        (HEADER_BYTES + self.slots * size_of::<RingSlot>()).next_multiple_of(4096)
    }
    fn rings_at(&self) -> Option<usize> {
        self.code_at().checked_add(self.code_bytes)
    }
}

/// The first page of a segment.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    slots: AtomicU64,
    records: AtomicU64,
    code_bytes: AtomicU64,
    /// Number of completed words of the static part.
    pub code_words: AtomicU64,
    /// Number of blocks that this process inherited in its fork.
    pub inherited: AtomicU64,
    /// Ticket of the last address-space change.
    pub tickets: AtomicU64,
    /// Number of live threads.
    pub threads: AtomicU64,
    /// A condition that the reader must know; see [`Header::OUT_OF_CODE`].
    pub trouble: AtomicU64,
    /// Instructions executed, as QEMU counts them, if requested. Exact with one thread.
    pub executed: AtomicU64,
    /// Lock that serialises system calls that change the address space: 0 free, 1 held.
    pub lock: AtomicU32,
    /// Not 0 after the last record of a process that exits: it is not killed.
    pub exits: AtomicU32,
    /// Distance from an address of the program to the emulator's own. Set before the program's first
    /// instruction.
    pub guest_base: AtomicU64,
    /// Address of the last instruction of the newest block, and the memory from there: QEMU has read only part of an
    /// instruction that it does not know.
    newest: [AtomicU64; 3],
}

impl Header {
    /// [`Header::trouble`]: the static part is full.
    pub const OUT_OF_CODE: u64 = 1;
    /// [`Header::trouble`]: there are more live threads than slots.
    pub const OUT_OF_SLOTS: u64 = 2;

    /// Sets the memory from `address`, the last instruction of the newest block. One caller at a time.
    pub fn set_newest(&self, address: u64, memory: [u8; 16]) {
        let [low, high] =
            [0, 8].map(|at| memory[at..at + 8].try_into().map_or(0, u64::from_le_bytes));
        for (word, value) in self.newest.iter().zip([address, low, high]) {
            word.store(value, Relaxed);
        }
    }

    /// The memory from `address`, if that is the last instruction of the newest block.
    pub fn newest(&self, address: u64) -> Option<[u8; 16]> {
        let [at, low, high] = [0, 1, 2].map(|word: usize| self.newest[word].load(Relaxed));
        (at == address).then(|| (u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }
}

/// States of a slot.
pub mod slot_state {
    /// The slot is free.
    pub const FREE: u32 = 0;
    /// A thread writes to the ring.
    pub const ACTIVE: u32 = 1;
    /// The thread has exited; the reader frees the slot after it has read all records.
    pub const CLOSED: u32 = 2;
}

/// Both ends of a ring, and the results of queries. The producer writes the first two lines
/// and `query`. The consumer writes the rest, and clears the waiting flag.
#[repr(C, align(64))]
#[derive(Default)]
pub struct RingSlot {
    /// Address of the next record, in the producer's process.
    pub(crate) cursor: AtomicUsize,
    /// Cursor position at which the producer must publish, wrap, wait or check for changes.
    /// Other threads set it to 0 to force a check at the next block or access.
    pub(crate) limit: AtomicUsize,
    /// Address of the ring's first record, in the producer's process.
    pub(crate) data: AtomicUsize,
    /// Position of `data[0]` in the current lap.
    pub(crate) lap: AtomicU64,
    /// Last ticket that this thread has seen.
    pub seen: AtomicU64,
    /// See [`slot_state`].
    pub state: AtomicU32,
    pad0: [u64; 2],
    /// Position up to which records are published.
    pub(crate) head: AtomicU64,
    /// Set while the producer sleeps on `space`.
    pub(crate) waiting: AtomicU32,
    pad1: [u64; 6],
    /// Position up to which records have been taken.
    pub(crate) tail: AtomicU64,
    /// Futex of the producer: changes when space is freed.
    pub(crate) space: AtomicU32,
    pad2: [u64; 6],
    /// Number of the last query.
    pub(crate) query: AtomicU32,
    /// Futex of the producer: number of the last query with a result.
    pub(crate) resolved: AtomicU32,
    /// Result of that query, if `known`.
    pub(crate) result: AtomicU64,
    /// 0 if no result is known.
    pub(crate) known: AtomicU32,
    pad3: [u64; 5],
}

const _: () = assert!(size_of::<RingSlot>() == 256 && align_of::<RingSlot>() == 64);
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// A page that the engine creates and every traced process maps. It serves to wake the
/// engine and to check that the engine still runs.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Control {
    /// Set while the engine sleeps on `doorbell`.
    pub waiting: AtomicU32,
    /// Futex of the engine.
    pub doorbell: AtomicU32,
    /// Not 0 after the engine has stopped; producers then terminate their process.
    pub abort: AtomicU32,
    /// Process ID of the engine.
    pub engine: AtomicU32,
    /// The reason why tracing has failed, see [`Control::trouble`]; 0 without failure.
    trouble: AtomicU64,
    /// Bit n: a process of the program has sent signal n to another process.
    sent: AtomicU64,
    /// Number of entries of `killed` that have been written.
    kills: AtomicU32,
    /// Children that a signal killed and whose status their parents have taken: process ID and signal.
    killed: [AtomicU64; KILLED],
    /// Pages of the pools of huge pages, 2 MB and 1 GB, that the program has not reserved.
    huge_pages: [AtomicU64; 2],
}

/// Entries of [`Control::killed`], reused in order. The reader looks for a child soon after its end.
const KILLED: usize = 32;

const _: () = assert!(size_of::<Control>() <= HEADER_BYTES);

/// Reasons why a program cannot be traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A forked process cannot connect to the engine.
    Child = 1,
    /// The emulator cannot be started for a process's new program.
    Image = 2,
    /// The engine cannot be notified of new processes.
    Listener = 3,
    /// The emulator lacks a function or register that the plugin needs. The error number is
    /// replaced by its index in [`needed`](crate::needed).
    Emulator = 4,
}

impl Control {
    /// Fills the pools of pages of 2 MB and of 1 GB, before the program starts.
    pub fn set_huge_pages(&self, pages: [u64; 2]) {
        for (pool, pages) in self.huge_pages.iter().zip(pages) {
            pool.store(pages, SeqCst);
        }
    }

    fn pool(&self, shift: u32) -> &AtomicU64 {
        &self.huge_pages[usize::from(shift == 30)]
    }

    /// Reserves pages of `2^shift` bytes. Returns false, and changes nothing, if fewer are left.
    pub fn reserve(&self, shift: u32, pages: u64) -> bool {
        let less = |left: u64| left.checked_sub(pages);
        self.pool(shift).fetch_update(SeqCst, SeqCst, less).is_ok()
    }

    /// Gives reservations of pages of `2^shift` bytes back.
    pub fn unreserve(&self, shift: u32, pages: u64) {
        self.pool(shift).fetch_add(pages, SeqCst);
    }

    /// Notes that a process of the program is about to send `signal` to another one.
    pub fn sends(&self, signal: u64) {
        if (1..64).contains(&signal) {
            self.sent.fetch_or(1 << signal, SeqCst);
        }
    }

    /// True if a process of the program has sent `signal` to another one, or any signal for `None`.
    pub fn has_sent(&self, signal: Option<u8>) -> bool {
        let sent = self.sent.load(SeqCst);
        signal.map_or(sent != 0, |n| n < 64 && sent >> n & 1 != 0)
    }

    /// Notes that `signal` has killed the child `pid`, from the status that its parent has taken.
    pub fn was_killed(&self, pid: u32, signal: u8) {
        let at = self.kills.fetch_add(1, SeqCst) as usize % KILLED;
        self.killed[at].store(u64::from(pid) << 8 | u64::from(signal), SeqCst);
    }

    /// Signal that killed the child `pid`, if its parent has taken its status. Clears the entry.
    pub fn take_killed(&self, pid: u32) -> Option<u8> {
        let found = self.killed.iter().find_map(|entry| {
            let word = entry.load(SeqCst);
            (word != 0 && word >> 8 == u64::from(pid)).then_some((entry, word))
        });
        found.map(|(entry, word)| {
            let _ = entry.compare_exchange(word, 0, SeqCst, SeqCst);
            word as u8
        })
    }

    /// Records the first tracing failure: the reason, the kernel's error number and the
    /// process `pid`. Wakes the engine.
    pub fn report(&self, trouble: Trouble, errno: i32, pid: u32) {
        let word = trouble as u64 | (errno as u64 & 0xffff) << 8 | u64::from(pid) << 32;
        // The word comes first: the program may continue, and even exit, after this.
        let _ = self.trouble.compare_exchange(0, word, SeqCst, SeqCst);
        self.doorbell.fetch_add(1, SeqCst);
        futex_wake(&self.doorbell);
    }

    /// The first recorded failure: reason, the kernel's error number, and process.
    #[inline]
    pub fn trouble(&self) -> Option<(Trouble, i32, u32)> {
        let word = self.trouble.load(Acquire);
        if word == 0 {
            return None;
        }
        let trouble = match word & 0xff {
            1 => Trouble::Child,
            2 => Trouble::Image,
            3 => Trouble::Listener,
            _ => Trouble::Emulator,
        };
        Some((trouble, (word >> 8 & 0xffff) as i32, (word >> 32) as u32))
    }
}

/// The mapped shared memory of one process. Every word is atomic, so no write of the other
/// side can cause undefined behaviour here. The geometry is read and checked once.
pub struct Segment {
    base: *mut u8,
    geometry: Geometry,
}

// SAFETY: all access goes through atomics.
unsafe impl Send for Segment {}
// SAFETY: all access goes through atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Initialises the header of a new segment in zeroed memory at `base`.
    ///
    /// # Safety
    /// `base` is page-aligned, zeroed, writable for `geometry.bytes()` bytes, and
    /// mapped for as long as the value or any reference from it lives.
    pub unsafe fn create(base: *mut u8, geometry: Geometry) -> Segment {
        use std::sync::atomic::Ordering::Release;
        let segment = Segment { base, geometry };
        let h = segment.header();
        h.version.store(VERSION, Relaxed);
        h.slots.store(geometry.slots as u64, Relaxed);
        h.records.store(geometry.records as u64, Relaxed);
        h.code_bytes.store(geometry.code_bytes as u64, Relaxed);
        h.magic.store(MAGIC, Release);
        segment
    }

    /// Opens a segment that the other side created, in `bytes` of mapped memory at `base`.
    ///
    /// # Errors
    /// The memory is no segment: wrong magic number, version or sizes, in one sentence.
    ///
    /// # Safety
    /// `base` is page-aligned and mapped, readable and writable, for `bytes`
    /// bytes for as long as the value or any reference from it lives.
    pub unsafe fn open(base: *mut u8, bytes: usize) -> Result<Segment, String> {
        if bytes < HEADER_BYTES {
            return Err(format!("the shared memory is too short: {bytes} bytes"));
        }
        // SAFETY: long enough for a header, which is all atomics.
        let h = unsafe { &*base.cast::<Header>() };
        if h.magic.load(Acquire) != MAGIC {
            return Err("the shared memory does not start with a Pagewalk header".into());
        }
        let version = h.version.load(Relaxed);
        if version != VERSION {
            return Err(format!(
                "the plugin speaks version {version} of the ring, the engine {VERSION}: build both from the same source"
            ));
        }
        let size = |v: &AtomicU64| usize::try_from(v.load(Relaxed)).unwrap_or(usize::MAX);
        let geometry = Geometry {
            slots: size(&h.slots),
            records: size(&h.records),
            code_bytes: size(&h.code_bytes),
        };
        match geometry.bytes() {
            Some(needed) if needed <= bytes => Ok(Segment { base, geometry }),
            _ => Err(format!(
                "the shared memory has {bytes} bytes, not what its header says: {geometry:?}"
            )),
        }
    }

    /// The sizes at the time of creation or opening.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    /// The base address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
    /// The header.
    pub fn header(&self) -> &Header {
        // SAFETY: mapped by the constructors' contracts; all atomics.
        unsafe { &*self.base.cast::<Header>() }
    }
    /// The slot with this number; `None` if it does not exist.
    pub fn slot(&self, number: usize) -> Option<&RingSlot> {
        (number < self.geometry.slots).then(|| {
            // SAFETY: within the mapping by the geometry check; all atomics.
            unsafe {
                &*self
                    .base
                    .add(HEADER_BYTES + number * size_of::<RingSlot>())
                    .cast::<RingSlot>()
            }
        })
    }
    /// The ring of the slot with this number; empty if it does not exist.
    pub fn ring(&self, number: usize) -> &[AtomicU64] {
        let (Some(_), Some(at)) = (self.slot(number), self.geometry.rings_at()) else {
            return &[];
        };
        // SAFETY: within the mapping by the geometry check; 8-byte aligned; atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.base
                    .add(at + number * self.geometry.records * 8)
                    .cast::<AtomicU64>(),
                self.geometry.records,
            )
        }
    }
    /// The static part of translated code.
    pub fn code(&self) -> &[AtomicU64] {
        // SAFETY: within the mapping by the geometry check; 8-byte aligned; atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.base.add(self.geometry.code_at()).cast::<AtomicU64>(),
                self.geometry.code_bytes / 8,
            )
        }
    }
}
