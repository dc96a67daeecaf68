//! SysBench's memory test: each event reads or writes one block, 8 bytes at a time.
//!
//! The loops of Debian's sysbench 1.0.20, which is built with loops unrolled eight times (5.25 and 1.375
//! instructions per word in order, 31 at random):
//!
//! ```text
//! write, in order: *p = end - p
//!  aa46  mov %rdx,%r8 ; sub %r9,%r8 ; sar $3,%r8 ; mov %r8,(%r9)
//!        7 times: lea 8(%r9),%r10 ; mov ; sub ; sar ; mov %r11,8(%r9)
//!  aad1  add $0x40,%r9 ; cmp %r9,%rdx ; ja aa46
//! write, in order, `value=constant`: *p = v, 1.375 instructions per word. No known release of sysbench does
//! this; the public simulation log does (docs/validation.md).
//!  b90a  8 times: mov %rcx,(%rdi)
//!  b929  add $0x40,%rdi ; cmp %rdi,%rdx ; ja b90a
//! read, in order
//!  a90a  8 times: mov (%rdi),%rcx
//!  a929  add $0x40,%rdi ; cmp %rdi,%rdx ; ja a90a
//! at random: xoroshiro128+, state in thread-local memory, scaled in floating point
//!  a742  mov %fs:(%rsi),%rax ; mov %fs:8(%rsi),%r11 ; 15 more
//!  a782  mov %rdx,%fs:8(%rsi) ; subsd ; xor ; mov %rcx,%fs:(%rsi)
//!        mulsd ; comisd ; jb a720
//!  a720  cvttsd2si %xmm0,%r10 ; mov %fs:buffer,%rax ; mov %rdi,(%rax,%r10,8)
//!  a732  mov max_offset,%r10 ; add ; cmp ; jle, to the end
//! ```
//!
//! The work between two blocks (a mutex, two clock reads) is left out: blocks are large.

use pagewalk_stream::{Error, Facts, Program};
use rand::Rng as _;

use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::{Code, Member};
use crate::size::format_size;
use crate::thread::{NONE, Thread};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(sysbench(values)?) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "sysbench",
    group: "micro",
    description: "Writes (or reads) one large block, 8 bytes at a time, from end to end.",
    stresses: "Memory bandwidth and prefetchers: with small pages one TLB miss in 512 accesses, each to the next page.",
    source: "A. Kopytov, sysbench 1.0.20, test `memory`",
    default_size: 4 << 30,
    size_range: "4KiB to 64TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "operation",
            unit: "",
            default: "write",
            range: "write or read",
            meaning: "Operation on each word (--memory-oper).",
        },
        ParamInfo {
            name: "access",
            unit: "",
            default: "sequential",
            range: "sequential or random",
            meaning: "Order of the accesses (--memory-access-mode).",
        },
        ParamInfo {
            name: "scope",
            unit: "",
            default: "global",
            range: "global or local",
            meaning: "With global, all threads access one block; with local, each has its own of size / threads (--memory-scope).",
        },
        ParamInfo {
            name: "value",
            unit: "",
            default: "counted",
            range: "counted or constant",
            meaning: "Values written in sequential order: the number of words that are left, as in the release, or a constant, as in the traces of EMT's artifact.",
        },
        ParamInfo {
            name: "events",
            unit: "blocks",
            default: "4",
            range: "1 to 2^32",
            meaning: "Passes of each thread over its block.",
        },
        POPULATE,
        REGION,
    ],
};

#[derive(Clone, Copy)]
struct Work {
    block: u64,
    words: u64,
    events: u64,
    read: bool,
    random: bool,
    constant: bool,
}

fn sysbench(values: &Values<'_>) -> Result<Code, Error> {
    let size = values.size();
    let threads = values.options.threads;
    let least = 4096 * u64::from(threads);
    if !(least..=1 << 46).contains(&size) {
        return Err(values.refuse_size(size, "out of range (4 KiB a thread at least)"));
    }
    let read = values.choice("operation", &["write", "read"], "write")? == "read";
    let random = values.choice("access", &["sequential", "random"], "sequential")? == "random";
    let constant = values.choice("value", &["counted", "constant"], "counted")? == "constant";
    if constant && (read || random) {
        return Err(values.refuse("value", "constant is of writes in order alone"));
    }
    let local = values.choice("scope", &["global", "local"], "global")? == "local";
    let events = values.number_in("events", 1..=1 << 32, 4)?;
    let start = values.start()?;

    let mut heap = Heap::new(Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let bytes = if local {
        size / u64::from(threads)
    } else {
        size
    };
    let shared = heap.malloc(bytes);
    let works: Vec<Work> = (0..threads)
        .map(|t| Work {
            block: if local && t > 0 {
                heap.malloc(bytes)
            } else {
                shared
            },
            words: bytes / 8,
            events,
            read,
            random,
            constant,
        })
        .collect();
    let facts = Facts {
        name: format!("sysbench --size {} --threads {threads}", format_size(size)),
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let seed = values.options.seed;
    let members = (0..).zip(works).map(|(number, work)| Sysbench {
        work,
        rng: pagewalk_units::rng(seed, &format!("workload.sysbench.{number}")),
    });
    let members = stacks.into_iter().zip(members).collect();
    Ok(Code::team(facts, start, heap, members))
}

/// Offsets of thread-local variables below the stack's top: the generator's two words, the buffer's address,
/// the number of words.
const LOCALS: [u64; 4] = [0x80, 0x78, 0x60, 0x58];

/// A thread with its work and its random generator.
struct Sysbench {
    work: Work,
    rng: pagewalk_units::Rng,
}

impl Member for Sysbench {
    async fn run(self, t: &mut Thread) {
        self.work.run(t, self.rng).await;
    }
}

impl Work {
    async fn run(self, t: &mut Thread, mut rng: pagewalk_units::Rng) {
        for _ in 0..self.events {
            let mut at = 0;
            while at < self.words {
                if self.random {
                    let word = ((u128::from(rng.next_u64()) * u128::from(self.words)) >> 64) as u64;
                    at += 1;
                    self.at_random(t, word, at < self.words);
                } else {
                    let words = (self.words - at).min(8);
                    self.in_order(t, self.block + 8 * at, words, at + words < self.words);
                    at += words;
                }
                if t.full() {
                    t.pause().await;
                }
            }
        }
    }

    fn in_order(self, t: &mut Thread, va: u64, words: u64, more: bool) {
        for i in 0..words {
            if self.read {
                t.load(0x90a + 4 * i, 1, va + 8 * i, 8, [NONE; 2]);
            } else if self.constant {
                t.store(0x190a + 4 * i, 1, va + 8 * i, 8, NONE, NONE);
            } else {
                let insns = if i == 0 { 4 } else { 5 };
                t.store(0xa50 + 18 * i, insns, va + 8 * i, 8, NONE, NONE);
            }
        }
        let (pc, start) = if self.read {
            (0x930, 0x90a)
        } else if self.constant {
            (0x1930, 0x190a)
        } else {
            (0xad8, 0xa46)
        };
        t.branch(pc, start, 3, more, [NONE; 2]);
    }

    fn at_random(self, t: &mut Thread, word: u64, more: bool) {
        let [low, high, buffer, limit] = LOCALS.map(|below| t.stack - below);
        t.load(0x742, 1, low, 8, [NONE; 2]);
        let b = t.load(0x746, 1, high, 8, [NONE; 2]);
        // Both words are ready at the same time: xor, rotate, then a shift and two xors.
        t.store(0x782, 16, high, 8, NONE, b.plus(2));
        t.store(0x78e, 3, low, 8, NONE, b.plus(4));
        // add, shr, or, movq; subsd and mulsd of 4 cycles, comisd.
        let fraction = b.plus(12);
        t.branch(0x79a, 0x720, 3, true, [fraction.plus(3), NONE]);
        let base = t.load(0x725, 2, buffer, 8, [NONE; 2]);
        let at = fraction.plus(7);
        let va = self.block + 8 * word;
        if self.read {
            t.load(0x72e, 1, va, 8, [base, at]);
        } else {
            // The base comes from the same address each time, and is ready long before.
            t.store(0x72e, 1, va, 8, at, NONE);
        }
        t.load(0x732, 1, limit, 8, [NONE; 2]);
        t.branch(0x740, 0x7b0, 3, !more, [NONE; 2]);
    }
}
