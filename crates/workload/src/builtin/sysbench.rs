//! SysBench's memory test: each event reads or writes one block, 8 bytes at a time.
//!
//! ```c
//! for (size_t *p = block; p < end; p++) *p = tid;              // write
//! for (size_t *p = block; p < end; p++) val = *p;              // read, val volatile
//! for (i = 0; i < words; i++) block[offset(rng)] = tid;        // access=random
//! ```
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! 10  mov %rdx,(%rax) ; add $8,%rax ; cmp %rax,%rcx ; 1a ja 10
//! 20  mov (%rax),%rdx ; add $8,%rax ; 27 mov %rdx,8(%rsp) ; cmp %rax,%rcx ; 2f ja 20
//! 40  xorshift128+ in registers, 9 instructions ; multiply and shift to a word
//!     58 mov %rdx,(%rax,%rsi,8) ; sub ; 5f jne 40
//! ```

use pagewalk_stream::{Facts, Program, ProgramError};
use rand::Rng as _;

use super::heap::Heap;
use super::layout::Layout;
use super::program::Code;
use super::thread::{NONE, Thread};
use crate::registry::{Entry, POPULATE, ParamInfo, Values, WorkloadInfo};
use crate::size::format_size;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(sysbench(values)?) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "sysbench",
    group: "micro",
    description: "Writes (or reads) one large block, 8 bytes at a time, from end to end.",
    stresses: "Bandwidth and prefetchers: with small pages one TLB miss for 512 accesses, each to the page after the last one.",
    source: "A. Kopytov, sysbench 1.0, test `memory`",
    default_size: 4 << 30,
    size_range: "4KiB to 64TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "operation",
            unit: "",
            default: "write",
            range: "write or read",
            meaning: "What is done to each word (--memory-oper).",
        },
        ParamInfo {
            name: "access",
            unit: "",
            default: "sequential",
            range: "sequential or random",
            meaning: "In which order (--memory-access-mode).",
        },
        ParamInfo {
            name: "scope",
            unit: "",
            default: "global",
            range: "global or local",
            meaning: "Whether all threads go through one block or each through its own of size / threads (--memory-scope).",
        },
        ParamInfo {
            name: "events",
            unit: "blocks",
            default: "4",
            range: "1 to 2^32",
            meaning: "How often each thread goes through its block.",
        },
        POPULATE,
    ],
};

#[derive(Clone, Copy)]
struct Work {
    block: u64,
    words: u64,
    events: u64,
    read: bool,
    random: bool,
}

fn sysbench(values: &Values<'_>) -> Result<Code, ProgramError> {
    let size = values.size();
    let threads = values.options.threads;
    let least = 4096 * u64::from(threads);
    if !(least..=1 << 46).contains(&size) {
        return Err(values.refuse_size(size, "out of range (4 KiB a thread at least)"));
    }
    let read = values.choice("operation", &["write", "read"], "write")? == "read";
    let random = values.choice("access", &["sequential", "random"], "sequential")? == "random";
    let local = values.choice("scope", &["global", "local"], "global")? == "local";
    let events = values.number_in("events", 1..=1 << 32, 4)?;
    let touch = values.touch()?;

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
        })
        .collect();
    let facts = Facts {
        name: format!("sysbench --size {} --threads {threads}", format_size(size)),
        deterministic: true,
        has_roi: true,
        ..Facts::default()
    };
    let seed = values.options.seed;
    let mut code = Code::new(facts, touch);
    let mut heap = Some(heap);
    for (number, (work, stack)) in works.into_iter().zip(stacks).enumerate() {
        let rng = pagewalk_units::rng(seed, &format!("workload.sysbench.{number}"));
        let heap = heap.take();
        code.thread(stack, move |mut t| async move {
            let first = heap.is_some();
            if let Some(mut heap) = heap {
                t.enter().await;
                heap.announce(&mut t).await;
                t.begin(threads).await;
            }
            work.run(&mut t, rng).await;
            if first {
                t.finish(threads).await;
            }
        });
    }
    Ok(code)
}

impl Work {
    async fn run(self, t: &mut Thread, mut rng: pagewalk_units::Rng) {
        let volatile = t.stack - 0x40;
        let mut state = NONE;
        for _ in 0..self.events {
            for i in 0..self.words {
                let more = i + 1 < self.words;
                if self.random {
                    let word = ((u128::from(rng.next_u64()) * u128::from(self.words)) >> 64) as u64;
                    // Four cycles from state to state, then a multiplication.
                    state = t.compute(0x54, 11, 4, [state, NONE]);
                    let va = self.block + 8 * word;
                    self.access(t, 0x58, va, state.plus(4), volatile);
                    t.branch(0x5f, 0x40, 2, more, [NONE; 2]);
                } else {
                    let va = self.block + 8 * i;
                    let pc = if self.read { 0x20 } else { 0x10 };
                    self.access(t, pc, va, NONE, volatile);
                    t.branch(pc + 0xa, pc, if self.read { 2 } else { 3 }, more, [NONE; 2]);
                }
                if t.full() {
                    t.pause().await;
                }
            }
        }
    }

    #[inline(always)]
    fn access(self, t: &mut Thread, pc: u64, va: u64, at: super::thread::Value, volatile: u64) {
        if self.read {
            let word = t.load(pc, 1, va, 8, [at, NONE]);
            t.store(pc + 7, 2, volatile, 8, NONE, word);
        } else {
            t.store(pc, 1, va, 8, at, NONE);
        }
    }
}
