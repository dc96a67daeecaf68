//! Memory that is repeatedly mapped and unmapped: a query's temporary result in arenas. Records are appended,
//! read at random, and freed with their arenas.
//!
//! Databases and analytic engines treat the results of queries this way. The allocator maps arenas as records
//! are appended. When the query is over, it unmaps them, or frees their pages with `madvise`, except for some
//! that it keeps. Page tables that can shrink do so here, and then grow again.
//!
//! The loops of this source by g++ 12.2 -O2 (21 instructions a record appended, 23 a record read, 9 an arena
//! freed):
//!
//! ```text
//! append: t.arenas[i >> shift][i & mask] = {i, v ^ v >> 32}, v = i * golden
//!  de  mov ; shr %cl,%r15 ; cmp %r15,0x10(%r12) ; jne a0, else call grow
//!  a0  mov ; mov (%r12),%rdx ; shl ; not ; and ; shl ; add (%rdx,%r15,8),%rax
//!  bc  mov ; shr ; mov %rbx,(%rax) ; add ; xor ; add ; mov %rdx,0x8(%rax)
//!  d4  mov %rbx,0x8(%r12) ; cmp ; jae, to the end
//! read: x = xorshift(x), at = x * count >> 64, sum += the record's value
//!  140 10 of xorshift ; mov ; mul %rbp ; mov ; and ; shr ; shl
//!  174 add (%rbx,%rax,8),%rsi ; cmp %rdx,(%rsi) ; jne, a wrong record
//!  181 add ; add 0x8(%rsi),%r9 ; cmp ; jne 140
//! give back, the newest arena first
//!  1d0 sub ; mov (%rbx),%rdx ; mov 0x18(%rbx),%ecx ; mov ; mov %rax,0x10(%rbx)
//!      mov (%rdx,%rax,8),%rdi ; shl ; call munmap
//!  1ed mov 0x10(%rbx),%rax ; cmp ; jb 1d0
//! ```

use pagewalk_stream::{Backing, Error, Event, Facts, Program};
use pagewalk_units::{Advice, VirtAddr};

use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::info::{ParamInfo, WorkloadInfo};
use crate::layout::Layout;
use crate::program::{Code, Member};
use crate::size::format_size;
use crate::thread::{NONE, Thread, Touch, Value};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(churn(values)?) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "churn",
    group: "micro",
    description: "Fills arenas with records, reads the records at random, returns the arenas to the kernel, and repeats.",
    stresses: "Page faults, and page tables that grow and shrink because memory is mapped and unmapped all the time.",
    source: "ours: a query's temporary result, as arena allocators of databases hold it",
    default_size: 256 << 20,
    size_range: "64KiB to 1TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "arena",
            unit: "bytes",
            default: "2MiB",
            range: "a power of two from 4KiB to 1GiB, at most size / threads",
            meaning: "Size of an arena, the unit that is mapped and released at once.",
        },
        ParamInfo {
            name: "keep",
            unit: "%",
            default: "10",
            range: "0 to 100",
            meaning: "Share of the arenas that a query keeps; the next query begins with them.",
        },
        ParamInfo {
            name: "rounds",
            unit: "queries",
            default: "4",
            range: "1 to 2^32",
            meaning: "Queries of each thread. A query fills its arenas and releases them.",
        },
        ParamInfo {
            name: "reads",
            unit: "% of the records",
            default: "100",
            range: "0 to 1000000",
            meaning: "Random reads of a query when its arenas are full, and again of the kept arenas.",
        },
        ParamInfo {
            name: "release",
            unit: "",
            default: "unmap",
            range: "unmap or advise",
            meaning: "System call that releases arenas: munmap, or madvise(MADV_DONTNEED), which keeps the mapping.",
        },
    ],
};

/// Bytes of a record, the loops' `shl $0x6`.
const RECORD: u64 = 64;

#[derive(Clone, Copy)]
struct Work {
    /// The `Table`: address of the arenas' addresses, records, arenas, shift.
    table: u64,
    /// The arenas' addresses.
    directory: u64,
    /// First address of the first arena. The kernel places each next to the previous one.
    base: u64,
    arena: u64,
    arenas: u64,
    kept: u64,
    rounds: u64,
    reads: u64,
    unmap: bool,
}

fn churn(values: &Values<'_>) -> Result<Code, Error> {
    let size = values.size();
    let threads = values.options.threads;
    if !(64 << 10..=1 << 40).contains(&size) {
        return Err(values.refuse_size(size, "out of range"));
    }
    let share = size / u64::from(threads);
    let default = (2u64 << 20).min(1 << share.ilog2());
    let arena = values.number_in("arena", 4096..=1 << 30, default)?;
    if !arena.is_power_of_two() || arena > share {
        return Err(values.refuse("arena", "not a power of two within a thread's share"));
    }
    let arenas = share / arena;
    let keep = values.number_in("keep", 0..=100, 10)?;
    let rounds = values.number_in("rounds", 1..=1 << 32, 4)?;
    let reads = values.number_in("reads", 0..=1_000_000, 100)?;
    let unmap = values.choice("release", &["unmap", "advise"], "unmap")? == "unmap";

    let mut heap = Heap::new(Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let works: Vec<Work> = (0..threads)
        .map(|_| Work {
            table: heap.malloc(40),
            directory: heap.malloc(8 * arenas),
            base: heap.reserve(arenas * arena),
            arena,
            arenas,
            kept: arenas * keep / 100,
            rounds,
            reads,
            unmap,
        })
        .collect();
    let facts = Facts {
        name: format!("churn --size {} --threads {threads}", format_size(size)),
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let seed = values.options.seed;
    let members = (0..).zip(works).map(|(number, work)| Churn {
        work,
        state: start(seed, number),
    });
    let members = stacks.into_iter().zip(members).collect();
    Ok(Code::team(facts, Touch::Never, heap, members))
}

/// Initial state of a thread's random numbers. Never 0, a fixed point of xorshift.
fn start(seed: u64, thread: u64) -> u64 {
    use rand::Rng as _;
    pagewalk_units::rng(seed, &format!("workload.churn.{thread}")).next_u64() | 1
}

/// A thread with its work and its random numbers.
struct Churn {
    work: Work,
    state: u64,
}

impl Member for Churn {
    async fn run(self, t: &mut Thread) {
        self.work.run(t, self.state).await;
    }
}

impl Work {
    async fn run(self, t: &mut Thread, mut state: u64) {
        let per_arena = self.arena / RECORD;
        // Numbers of appended records and of mapped arenas.
        let (mut records, mut mapped) = (0, 0);
        for _ in 0..self.rounds {
            while records < self.arenas * per_arena {
                if records == mapped * per_arena {
                    self.grow(t, mapped).await;
                    mapped += 1;
                }
                self.append(t, records);
                records += 1;
                if t.full() {
                    t.pause().await;
                }
            }
            state = self.read(t, records, state).await;
            for arena in (self.kept..self.arenas).rev() {
                self.give_back(t, arena).await;
            }
            if self.unmap {
                mapped = self.kept;
            }
            records = self.kept * per_arena;
            state = self.read(t, records, state).await;
        }
    }

    fn record(self, number: u64) -> u64 {
        self.base + number * RECORD
    }

    fn append(self, t: &mut Thread, number: u64) {
        let slot = self.directory + 8 * (number * RECORD / self.arena);
        let count = t.load(0xe4, 3, self.table + 16, 8, [NONE; 2]);
        t.branch(0xe9, 0xa0, 1, true, [count, NONE]);
        let arenas = t.load(0xa7, 2, self.table, 8, [NONE; 2]);
        let record = t.load(0xb8, 5, slot, 8, [arenas, NONE]).plus(1);
        let va = self.record(number);
        t.store(0xc3, 3, va, 8, record, NONE);
        t.store(0xd0, 4, va + 8, 8, record, NONE);
        t.store(0xd4, 1, self.table + 8, 8, NONE, NONE);
        t.branch(0xdc, 0x100, 2, false, [NONE; 2]);
    }

    /// The first record of `arena` finds it unmapped: `mmap`.
    async fn grow(self, t: &mut Thread, arena: u64) {
        let count = t.load(0xe4, 3, self.table + 16, 8, [NONE; 2]);
        t.branch(0xe9, 0xa0, 1, false, [count, NONE]);
        t.call(0xee, 0, 2, 56);
        t.store(0, 1, t.stack - 72, 8, NONE, NONE);
        t.load(0x1, 1, self.table + 24, 4, [NONE; 2]);
        t.call(0x24, 0x200, 9, 72);
        let event = Event::Map {
            at: VirtAddr(self.base + arena * self.arena),
            bytes: self.arena,
            writable: true,
            backing: Backing::Anonymous,
        };
        t.event(event).await;
        t.ret(0x215, 0x24, 4, 72);
        t.branch(0x2d, 0x50, 2, false, [NONE; 2]);
        let number = t.load(0x2f, 1, self.table + 16, 8, [NONE; 2]);
        let arenas = t.load(0x33, 1, self.table, 8, [NONE; 2]);
        t.store(0x3a, 2, self.table + 16, 8, NONE, number.plus(1));
        t.store(0x3e, 1, self.directory + 8 * arena, 8, arenas, NONE);
        t.load(0x47, 2, t.stack - 72, 8, [NONE; 2]);
        t.ret(0x48, 0xee, 1, 56);
        t.branch(0xf5, 0x100, 2, false, [NONE; 2]);
        t.load(0xf7, 1, self.table + 24, 4, [NONE; 2]);
        t.branch(0xfc, 0xa0, 1, true, [NONE; 2]);
    }

    /// Reads random records: `reads` percent of `records`. Returns the next random state.
    async fn read(self, t: &mut Thread, records: u64, mut x: u64) -> u64 {
        let turns = records * self.reads / 100;
        let mut state = Value::default();
        for i in 0..turns {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let number = ((u128::from(x) * u128::from(records)) >> 64) as u64;
            state = t.compute(0x140, 10, 6, [state, NONE]);
            // mul and shift, and, shift.
            let slot = self.directory + 8 * (number * RECORD / self.arena);
            let record = t.load(0x174, 7, slot, 8, [state.plus(5), NONE]).plus(1);
            let key = t.load(0x178, 1, self.record(number), 8, [record, NONE]);
            t.branch(0x17b, 0x190, 1, false, [key, NONE]);
            t.load(0x185, 2, self.record(number) + 8, 8, [record, NONE]);
            t.branch(0x18c, 0x140, 2, i + 1 < turns, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
        x
    }

    async fn give_back(self, t: &mut Thread, arena: u64) {
        let arenas = t.load(0x1d4, 2, self.table, 8, [NONE; 2]);
        t.load(0x1d7, 1, self.table + 24, 4, [NONE; 2]);
        if self.unmap {
            t.store(0x1dd, 2, self.table + 16, 8, NONE, NONE);
        }
        t.load(0x1e1, 1, self.directory + 8 * arena, 8, [arenas, NONE]);
        t.call(0x1e8, 0x220, 2, 40);
        let (at, bytes) = (VirtAddr(self.base + arena * self.arena), self.arena);
        let event = if self.unmap {
            Event::Unmap { at, bytes }
        } else {
            let advice = Advice::DontNeed;
            Event::Advise { at, bytes, advice }
        };
        t.event(event).await;
        t.ret(0x230, 0x1e8, 4, 40);
        let left = t.load(0x1ed, 1, self.table + 16, 8, [NONE; 2]);
        t.branch(0x1f4, 0x1d0, 2, arena > self.kept, [left, NONE]);
        if t.full() {
            t.pause().await;
        }
    }
}
