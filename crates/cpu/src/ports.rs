//! Execution ports: how many operations of a class start in a cycle.

use pagewalk_stream::PortWork;
use pagewalk_units::Cycle;

use crate::PortsSpec;

/// Cycles for which starts are counted. A start further back is not limited.
const HORIZON: usize = 512;
/// Bits of an entry's counters; the cycle is above them.
const COUNTER_BITS: u32 = 20;
/// Limits of the counters have three bits; the fourth shows that one is exceeded.
const EXCEEDED: u64 = 0x8_8888;
/// Starts lie at most that many cycles apart. An entry beyond it is left from before the cycle
/// numbers of entries wrapped.
const APART: u64 = 1 << 30;
/// Fractional bits of the times of in-order classes.
const FRACTION: u32 = 8;

/// An operation that has an op of its own, as the sum of its counters: loads, stores, both, branches,
/// taken branches.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Load = 0x0_0101,
    Store = 0x0_0110,
    Branch = 0x0_1000,
    TakenBranch = 0x1_1000,
}

/// A class whose operations start in order.
#[derive(Clone, Copy)]
struct InOrder {
    /// Slots between two starts, with fraction; 0 if the class is not limited.
    interval: u64,
    /// Slot of the next start, with fraction.
    next: u64,
}

impl InOrder {
    fn new(limit: Option<u32>, width: u64) -> Self {
        InOrder {
            interval: limit.map_or(0, |n| (width << FRACTION) / u64::from(n)),
            next: 0,
        }
    }

    /// Starts `n` operations from slot `at` on. Returns the slot of the last start, with fraction.
    #[inline(always)]
    fn start(&mut self, n: u64, at: u64) -> u64 {
        let first = self.next.max(at << FRACTION);
        self.next = first + n * self.interval;
        self.next.saturating_sub(self.interval)
    }
}

/// The ports of a core.
#[derive(Clone)]
pub(crate) struct Ports {
    alu: InOrder,
    multiply: InOrder,
    vector: InOrder,
    vector_multiply: InOrder,
    /// Added to counters, it shows in [`EXCEEDED`] those that are above their limit.
    spare: u64,
    /// Counters of classes with a limit.
    limited: u64,
    /// Counters of the latest cycles, each below the cycle's number.
    starts: [u64; HORIZON],
    /// Stores of a line that are written in a cycle.
    writes: u32,
    /// The last line written, and the stores written with its last one in the same cycle.
    written: (u64, u32),
}

impl Ports {
    /// The ports of a core of `width`; `None` if it has any number.
    pub fn new(spec: &PortsSpec, width: u64) -> Option<Box<Self>> {
        if spec.is_unlimited() {
            return None;
        }
        let limits = [
            spec.load,
            spec.store,
            spec.memory,
            spec.branch,
            spec.taken_branch,
        ];
        let counters = |of: fn(u32) -> u32| {
            let bits = limits.iter().rev().map(|limit| limit.map_or(0, of));
            bits.fold(0, |all, bits| all << 4 | u64::from(bits))
        };
        Some(Box::new(Ports {
            alu: InOrder::new(spec.alu, width),
            multiply: InOrder::new(spec.multiply, width),
            vector: InOrder::new(spec.vector, width),
            vector_multiply: InOrder::new(spec.vector_multiply, width),
            spare: counters(|limit| 7 - limit),
            limited: counters(|_| 0xf),
            starts: [0; HORIZON],
            writes: spec.store.unwrap_or(1),
            written: (u64::MAX, 0),
        }))
    }

    /// Starts an operation in `cycle` or later. Returns the cycle.
    #[inline]
    pub fn start(&mut self, operation: Operation, cycle: Cycle) -> Cycle {
        let operation = operation as u64 & self.limited;
        let mut at = cycle;
        loop {
            let entry = &mut self.starts[at as usize % HORIZON];
            let tag = at << COUNTER_BITS;
            let ahead = entry.wrapping_sub(tag) >> COUNTER_BITS;
            if ahead != 0 {
                if ahead < APART {
                    return at;
                }
                *entry = tag;
            }
            let counted = *entry + operation;
            if (counted + self.spare) & EXCEEDED == 0 {
                *entry = counted;
                return at;
            }
            at += 1;
        }
    }

    /// Starts at least one integer operation from slot `at` on. Returns the slot in which the last
    /// starts.
    #[inline(always)]
    pub fn start_alu(&mut self, n: u64, at: u64) -> u64 {
        self.alu.start(n, at) >> FRACTION
    }

    /// Starts the operations `work` of `n` simple instructions, in program order from slot `at` on.
    /// Returns the slot in which the last starts.
    #[inline(never)]
    pub fn start_simple(&mut self, n: u16, work: PortWork, at: u64) -> u64 {
        let alu = u64::try_from(i32::from(n) + i32::from(work.alu)).unwrap_or(0);
        let mut last = 0;
        for (class, n) in [
            (&mut self.alu, alu),
            (&mut self.multiply, work.multiply.into()),
            (&mut self.vector, work.vector.into()),
            (&mut self.vector_multiply, work.vector_multiply.into()),
        ] {
            if n > 0 {
                last = last.max(class.start(n, at));
            }
        }
        last >> FRACTION
    }

    /// Writes a store to `line`. Returns true if it shares the cycle of the store before.
    #[inline]
    pub fn writes_with_last(&mut self, line: u64) -> bool {
        let (last, n) = self.written;
        let together = line == last && n < self.writes;
        self.written = (line, if together { n + 1 } else { 1 });
        together
    }
}
