use std::mem::{align_of, size_of};
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use crate::futex_wake;

/// "pagewalk" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"pagewalk");
/// Changes with every change of the layout or of the records.
const VERSION: u64 = 4;
/// Bytes before the first slot.
const HEADER_BYTES: usize = 4096;

/// Sizes of the parts of a segment. The file behind it is sparse: only what is
/// touched takes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Threads that can be alive or not yet read to the end at a time.
    pub slots: usize,
    /// Records of a ring, a power of two.
    pub records: usize,
    /// Bytes for the static part of translated code, a multiple of 4096.
    pub code_bytes: usize,
}

impl Geometry {
    /// Bytes of the whole; `None` when the sizes do not fit together.
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
        (HEADER_BYTES + self.slots * size_of::<Slot>()).next_multiple_of(4096)
    }
    fn rings_at(&self) -> Option<usize> {
        self.code_at().checked_add(self.code_bytes)
    }
}

/// First page of a segment.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    slots: AtomicU64,
    records: AtomicU64,
    code_bytes: AtomicU64,
    /// Words of the static part that are complete.
    pub code_words: AtomicU64,
    /// Blocks that this process had inherited when it was forked.
    pub inherited: AtomicU64,
    /// Ticket of the last change of the address space.
    pub tickets: AtomicU64,
    /// Threads alive.
    pub threads: AtomicU64,
    /// Something that the reader must know; see [`Header::OUT_OF_CODE`].
    pub trouble: AtomicU64,
    /// Instructions executed as QEMU counts them itself, when asked for. Exact
    /// with one thread.
    pub executed: AtomicU64,
    /// 0 free, 1 held: serialises system calls that change the address space.
    pub lock: AtomicU32,
}

impl Header {
    /// [`Header::trouble`]: the static part is full.
    pub const OUT_OF_CODE: u64 = 1;
    /// [`Header::trouble`]: more threads at a time than slots.
    pub const OUT_OF_SLOTS: u64 = 2;
}

/// States of a slot.
pub mod slot_state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A thread writes.
    pub const ACTIVE: u32 = 1;
    /// The thread is gone; the reader frees the slot when it has read all.
    pub const CLOSED: u32 = 2;
}

/// A ring's ends, and what the thread is answered. Written by the producer: the first
/// two lines and `asked`; by the consumer: the rest, and the waiting flag, which it clears.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Slot {
    /// Where the next record goes: an address in the producer's process.
    pub(crate) cursor: AtomicUsize,
    /// At this address the producer has to publish, to wrap, to wait or to look
    /// around; other threads set it to 0 to make it look around at its next block or access.
    pub(crate) limit: AtomicUsize,
    /// The ring's first record: an address in the producer's process.
    pub(crate) data: AtomicUsize,
    /// Position of `data[0]` in this lap.
    pub(crate) lap: AtomicU64,
    /// Last ticket that this thread has met.
    pub seen: AtomicU64,
    /// See [`slot_state`].
    pub state: AtomicU32,
    pad0: [u64; 2],
    /// Position up to which records may be read.
    pub(crate) head: AtomicU64,
    /// The producer sleeps on `space`.
    pub(crate) waiting: AtomicU32,
    pad1: [u64; 6],
    /// Position up to which records have been taken.
    pub(crate) tail: AtomicU64,
    /// Futex of the producer: changes when room was made.
    pub(crate) space: AtomicU32,
    pad2: [u64; 6],
    /// Number of the last question.
    pub(crate) asked: AtomicU32,
    /// Futex of the producer: number of the last question that was answered.
    pub(crate) answered: AtomicU32,
    /// Its answer, if `known`.
    pub(crate) answer: AtomicU64,
    /// 0: nobody knows an answer.
    pub(crate) known: AtomicU32,
    pad3: [u64; 5],
}

const _: () = assert!(size_of::<Slot>() == 256 && align_of::<Slot>() == 64);
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// A page that the engine makes and every traced process maps: how to wake the
/// engine, and whether it still listens.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Control {
    /// The engine sleeps on `doorbell`.
    pub waiting: AtomicU32,
    /// Futex of the engine.
    pub doorbell: AtomicU32,
    /// Not 0: the engine has gone; a producer ends its process.
    pub abort: AtomicU32,
    /// Process number of the engine.
    pub engine: AtomicU32,
    /// Why the program cannot be followed any more, see [`Control::trouble`]; 0: it can.
    trouble: AtomicU64,
}

/// What keeps a program from being followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A process that was forked does not reach the engine.
    Child = 1,
    /// The emulator cannot be started for what a process executes.
    Image = 2,
    /// The engine does not hear of new processes.
    Listener = 3,
    /// The emulator lacks what the plugin needs: its number in
    /// [`needed`](crate::needed) stands in place of the kernel's error number.
    Emulator = 4,
}

impl Control {
    /// Says, if nobody has before, what keeps process `pid` from being followed, with the
    /// kernel's error number for it, and wakes the engine.
    pub fn report(&self, trouble: Trouble, errno: i32, pid: u32) {
        let word = trouble as u64 | (errno as u64 & 0xffff) << 8 | u64::from(pid) << 32;
        // First the word: the program may go on, and even end, after this.
        let _ = self.trouble.compare_exchange(0, word, SeqCst, SeqCst);
        self.doorbell.fetch_add(1, SeqCst);
        futex_wake(&self.doorbell);
    }

    /// What was reported first: what, the kernel's error number, of which process.
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

/// One process's shared memory, mapped. Every word is an atomic, so nothing that
/// the other side writes can be undefined behaviour here; the geometry is read
/// and checked once.
pub struct Segment {
    base: *mut u8,
    geometry: Geometry,
}

// SAFETY: all access goes through atomics.
unsafe impl Send for Segment {}
// SAFETY: all access goes through atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Writes the header of a new segment into zeroed memory at `base`.
    ///
    /// # Safety
    /// `base` is page-aligned, zeroed, writable for `geometry.bytes()` bytes, and
    /// mapped for as long as the value or any reference from it lives.
    pub unsafe fn create(base: *mut u8, geometry: Geometry) -> Segment {
        use std::sync::atomic::Ordering::{Relaxed, Release};
        let segment = Segment { base, geometry };
        let h = segment.header();
        h.version.store(VERSION, Relaxed);
        h.slots.store(geometry.slots as u64, Relaxed);
        h.records.store(geometry.records as u64, Relaxed);
        h.code_bytes.store(geometry.code_bytes as u64, Relaxed);
        h.magic.store(MAGIC, Release);
        segment
    }

    /// Takes `bytes` of mapped memory at `base` for a segment that the other side made.
    ///
    /// # Errors
    /// One sentence when it is none: wrong magic number, version or sizes.
    ///
    /// # Safety
    /// `base` is page-aligned and mapped, readable and writable, for `bytes`
    /// bytes for as long as the value or any reference from it lives.
    pub unsafe fn open(base: *mut u8, bytes: usize) -> Result<Segment, String> {
        use std::sync::atomic::Ordering::Relaxed;
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

    /// The sizes, as they were when it was made or opened.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    /// The first address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
    /// The header.
    pub fn header(&self) -> &Header {
        // SAFETY: mapped by the constructors' contracts; all atomics.
        unsafe { &*self.base.cast::<Header>() }
    }
    /// The slot with this number; `None` beyond the last.
    pub fn slot(&self, number: usize) -> Option<&Slot> {
        (number < self.geometry.slots).then(|| {
            // SAFETY: within the mapping by the geometry check; all atomics.
            unsafe {
                &*self
                    .base
                    .add(HEADER_BYTES + number * size_of::<Slot>())
                    .cast::<Slot>()
            }
        })
    }
    /// The ring of the slot with this number; empty beyond the last.
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
