//! k-mer counting: kmer-cnt of GenomicsBench, the counter of the Flye assembler.
//!
//! ```c++
//! for (KmerIterator i = begin; i != end; ++i) {
//!   Kmer kmer = *i;  kmer.standardForm();             // the smaller of it and its reverse complement
//!   size_t at = kmer.numRepr() / 2;  bool high = kmer.numRepr() % 2;
//!   do { expected = flat[at];  count = high ? expected >> 4 : expected & 15;
//!        if (count == 15) { hash.upsert(kmer, [](size_t& n) { ++n; }, 1);  break; }
//!   } while (!flat[at].compare_exchange_weak(expected, high ? expected + 16 : expected + 1));
//!   if (count == 0) ++numKmers;
//! }
//! ```
//!
//! gcc 12.2 with the flags of its Makefile, -O3 -fopenmp (`code.rs` emits it, `upsert.rs` the part after
//! `hash.upsert`). The reverse complement takes one iteration per base. Program counters are the lower 16
//! bits of those of the listing:
//!
//! ```text
//! 25a0 mov kmerSize ; mov %rbx,0x30(%rsp) ; mov %r12d,0x38(%rsp) ; mov ; test ; 25bb je
//! 25c0 mov %rcx,%rax ; shr $2,%rcx ; not ; and $3 ; lea (%rax,%rsi,4),%rsi ; lea ; mov ; cmp ; 25da jb 25c0
//! 25dc cmp ; 25df jb 2800 ; 25e8 cmpb 9(%rbp) ; je ; 25f2 cmpb 10(%rbp) ; 25f6 mov 16(%rbp),%rax ; 25fa je 2810
//! 2810 mov ; shr ; and $1 ; 2819 jne 28b8 ; 281f mov 16(%rbp),%rax ; movzbl (%rax,%rdx),%eax
//!      mov ; and $15 ; cmp $15 ; 282f je 26da ; 2835 mov (%r14),%rsi ; lea ; 283b mov 16(%rsi),%rsi
//! 283f lock cmpxchg %dil,(%rsi,%rdx) ; 2845 jne ; test ; 284d jne 27f2 ; 284f addq $1,0x28(%rsp)
//! 2628 mov kmerSize ; 262f mov (%r13),%rcx ; 2633 cmpb 8(%r13) ; 2638 mov 16(%rcx),%rdi ; lea ; 2640 je 26c0
//! 26c0 mov ; and ; shr ; lea ; 26ce mov (%rdi,%r8,8),%rax ; shr ; and ; jmp 2664 ; 8 plain ones
//! 2683 cmp 8(%rsp) ; jne ; 268e cmp 0x20(%rsp),%r12 ; 2693 jne 25a0
//! ```
//!
//! As in the source, the last k-mer of a read is not counted: it is at the iterator's end.

mod code;
mod reads;
mod table;
#[cfg(test)]
mod tests;
mod upsert;

use std::sync::{Arc, Mutex};

use pagewalk_stream::{Error, Facts, Program};
use pagewalk_units::{RunOption, text};
use rand::Rng as _;

use self::code::{Counting, CountingState, OBJECTS};
pub(super) use self::reads::sequences;
use self::reads::{Generated, Reads};
use crate::entry::{Entry, Values};
use crate::heap::{Heap, chunk};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::{Code, Member};
use crate::size::format_size;
use crate::thread::Thread;

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(kmer(values)?.0) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "kmer",
    group: "science",
    description: "Counts the k-mers of sequencing reads: for each base, one atomic update of a random byte of a large array.",
    stresses: "TLB reach: one TLB miss for each base, which overlaps with no other because each update is a locked instruction.",
    source: "A. Subramaniyan et al., GenomicsBench: a benchmark suite for genomics, ISPASS 2021, kmer-cnt; fenderglass/Flye, src/sequence/vertex_index.cpp and kmer.h; libcuckoo 0.3",
    default_size: 9 << 30,
    size_range: "the memory of the counters of k and one read (40KiB with k=8) to 64GiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "k",
            unit: "bases",
            default: "the largest up to 17 whose counters fit",
            range: "8 to 17",
            meaning: "Length of a k-mer: 4^k / 2 bytes of counters, 8 GiB for 17. The rest of the size is reads.",
        },
        ParamInfo {
            name: "reads",
            unit: "",
            default: "generated",
            range: "generated, or a FASTA or FASTQ file, plain or gzip-compressed",
            meaning: "Source of the reads. With a file, either k or the size gives the memory of the counters.",
        },
        ParamInfo {
            name: "length",
            unit: "bases",
            default: "8192",
            range: "32 to 2^24",
            meaning: "Length of a generated read.",
        },
        ParamInfo {
            name: "coverage",
            unit: "times",
            default: "50",
            range: "1 to 10000",
            meaning: "Mean number of generated reads that cover a base of the genome.",
        },
        ParamInfo {
            name: "errors",
            unit: "bases in a thousand",
            default: "100",
            range: "0 to 500",
            meaning: "Sequencing errors (substituted bases) in generated reads.",
        },
        POPULATE,
        REGION,
    ],
};

fn kmer(values: &Values<'_>) -> Result<(Code, Arc<Counting>), Error> {
    let file = values.text("reads").filter(|f| *f != "generated");
    let size = values.options.size_bytes;
    let fitting = |bytes: u64| (8..=17).rev().find(|k| counters(*k) <= bytes / 10 * 9);
    let k = match values.number("k")? {
        Some(_) if file.is_some() && size.is_some() => {
            return Err(values.refuse(
                "k",
                text![
                    RunOption::Size,
                    " chooses it for a file of reads; give one of the two"
                ],
            ));
        }
        Some(k) if (8..=17).contains(&k) => k,
        Some(_) => return Err(values.refuse("k", "out of range")),
        None => match (file, size) {
            (Some(_), None) => 17,
            // The smallest size is refused below if there is no room for it.
            (_, _) => fitting(values.size()).unwrap_or(8),
        },
    };
    let bytes = values.size();
    let too_small =
        || values.refuse_size(bytes, format!("no room for counters of k={k} and reads"));
    if bytes > 64 << 30 {
        return Err(values.refuse_size(bytes, "out of range"));
    }
    let start = values.start()?;
    let reads = match file {
        Some(path) => {
            if size.is_some() && counters(k) > bytes {
                return Err(values.refuse_size(bytes, format!("no room for counters of k={k}")));
            }
            for param in ["length", "coverage", "errors"] {
                if values.number(param)?.is_some() {
                    return Err(values.refuse(param, "is for generated reads, not for a file"));
                }
            }
            let (bases, starts) = sequences(path)?;
            Reads::File { bases, starts }
        }
        None => {
            let length = values.number_in("length", 32..=1 << 24, 8192)?;
            let coverage = values.number_in("coverage", 1..=10_000, 50)?;
            let errors = values.number_in("errors", 0..=500, 100)?;
            if counters(k) >= bytes {
                return Err(too_small());
            }
            let count = (bytes - counters(k)) / (read_bytes(length) + code::LISTED);
            if count == 0 {
                return Err(too_small());
            }
            let mut rng = pagewalk_units::rng(values.options.seed, "workload.kmer");
            Reads::Generated(Generated {
                seed: rng.next_u64(),
                count,
                length,
                genome: (count * length / coverage).max(length),
                errors,
            })
        }
    };
    let threads = values.options.threads;

    let mut heap = Heap::new(Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let places = match &reads {
        Reads::Generated(g) => {
            // Three adjacent objects are allocated as one of their total size.
            let each = read_bytes(g.length);
            let first = if each < 128 << 10 {
                heap.malloc_many(each - 8, g.count)
            } else {
                heap.malloc(each * g.count)
            };
            code::ReadAddresses::Regular { first, each }
        }
        Reads::File { .. } => code::ReadAddresses::Each(
            (0..reads.count())
                .map(|n| {
                    let at = OBJECTS.map(|bytes| heap.malloc(bytes));
                    [at[0], heap.malloc(reads.length(n).div_ceil(32) * 8)]
                })
                .collect(),
        ),
    };
    let records = heap.malloc((code::LISTED - 8) * reads.count());
    let ids = heap.malloc(8 * reads.count());
    let counter = heap.malloc(code::COUNTER_BYTES + 8 + code::CONTAINER_BYTES);
    let node = heap.malloc(40);
    let locks = heap.malloc(64 << 16);
    let flat = heap.malloc(counters(k));
    let name = match file {
        Some(path) => format!("kmer k={k} reads={path} --threads {threads}"),
        None => format!("kmer --size {} --threads {threads}", format_size(bytes)),
    };
    let facts = Facts {
        name,
        deterministic: true,
        has_roi: true,
        request: Some("k-mer".to_owned()),
        ..Facts::default()
    };
    let tables = code::tables(&mut heap);
    let shared = Arc::new(Counting {
        k,
        reads,
        places,
        threads,
        counter,
        records,
        ids,
        flat,
        node,
        locks,
        tables,
        state: Mutex::new(CountingState::new()),
    });
    let members = stacks.into_iter().map(|stack| (stack, shared.clone()));
    Ok((Code::team(facts, start, heap, members.collect()), shared))
}

impl Member for Arc<Counting> {
    async fn initialise(&self, t: &mut Thread) {
        for event in self.tables.events.iter().cloned() {
            t.event(event).await;
        }
        let first = self.tables.at(table::FIRST_POWER);
        t.touch(first, table::BUCKET << table::FIRST_POWER).await;
    }

    async fn run(self, t: &mut Thread) {
        Counting::run(&self, t).await;
    }
}

/// Bytes of the flat counters.
fn counters(k: u64) -> u64 {
    (1 << (2 * k)) / 2
}

/// Bytes of heap for a read of `length` bases, without its entries in lists.
fn read_bytes(length: u64) -> u64 {
    OBJECTS.map(chunk).iter().sum::<u64>() + chunk(length.div_ceil(32) * 8)
}
