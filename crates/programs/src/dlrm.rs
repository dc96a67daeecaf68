//! DLRM's sparse-length sum: for each sample and table, the sum of some rows of the table. In PyTorch it is
//! `EmbeddingBag(mode="sum")`, implemented by a kernel that FBGEMM generates at run time.
//!
//! ```c
//! for (bag = 0; bag < batch; bag++) {
//!   for (i = offsets[bag]; i < offsets[bag + 1]; i++)
//!     for (d = 0; d < dim; d++) out[bag][d] += table[indices[i]][d];
//! }
//! ```
//!
//! The kernel for 32-bit floats, 64-bit indices, AVX2, without weights (`EmbeddingSpMDM.cc`). It holds sums
//! in up to 16 registers of 8. For longer rows it reads the indices again for the next 16 registers.
//!
//! ```text
//!  10 dec %rdi ; jl end ; vxorps a register
//!  40 mov 8(%r9),%r13d ; sub (%r9),%r13d ; lea ; cmp ; 50 jg error
//!  54 dec %r13d ; 57 jl c0 ; 5d mov (%r8),%r12 ; cmp ; 64 jae error
//!     lea 128(%r8),%r14 ; cmp ; 72 jge 80 ; 78 mov 128(%r8),%r14 ; 7f jmp 83 ; 80 mov (%r8),%r14
//!  83 imul ; add $8,%r8 ; imul
//!  90 vaddps (%rcx,%r12),%ymm0,%ymm0 and prefetcht0 (%rcx,%r14), one per cache line ; … ; b8 jmp 54
//!  c0 vmovups %ymm0,(%r11) ; … ; add ; add ; f8 jmp 10
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use pagewalk_stream::{Error, Facts, PrefetchHint, Program, flags};
use rand::Rng as _;

use crate::entry::{Entry, Values};
use crate::heap::Heap;
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::{Code, Member};
use crate::size::format_size;
use crate::thread::{NONE, Thread, share};

pub(crate) const ENTRY: Entry = Entry {
    info: INFO,
    build: |values| Ok(Box::new(dlrm(values)?) as Box<dyn Program>),
};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "dlrm",
    group: "science",
    description: "Sums random rows of large tables, a few dozen for each sample and table.",
    stresses: "TLB reach with short bursts: each row is a few adjacent lines of a page that was not used recently; its address is known in advance.",
    source: "M. Naumov et al., Deep learning recommendation model for personalization and recommendation systems, 2019; facebookresearch/dlrm, bench/dlrm_s_benchmark.sh; pytorch/FBGEMM, EmbeddingSpMDM.cc",
    default_size: 8 * 1_000_000 * 256,
    size_range: "two rows a table (4KiB with 8 tables of 64 floats) to 64TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "tables",
            unit: "tables",
            default: "8",
            range: "1 to 1024",
            meaning: "Number of tables, all of the same size.",
        },
        ParamInfo {
            name: "dim",
            unit: "floats",
            default: "64",
            range: "a multiple of 8 from 8 to 1024",
            meaning: "Length of a row. The number of rows results from the size.",
        },
        ParamInfo {
            name: "pooling",
            unit: "indices",
            default: "100",
            range: "1 to 4096",
            meaning: "Maximum number of rows of a bag, before duplicates are dropped (--num-indices-per-lookup).",
        },
        ParamInfo {
            name: "fixed",
            unit: "",
            default: "no",
            range: "yes or no",
            meaning: "With yes, every bag draws `pooling` indices; with no, a uniform number up to it (--num-indices-per-lookup-fixed).",
        },
        ParamInfo {
            name: "batch",
            unit: "samples",
            default: "2048",
            range: "1 to 65536",
            meaning: "Samples of a batch (--mini-batch-size).",
        },
        ParamInfo {
            name: "batches",
            unit: "batches",
            default: "1000",
            range: "1 to 2^32",
            meaning: "Batches until the program ends (--num-batches).",
        },
        ParamInfo {
            name: "prefetch",
            unit: "indices",
            default: "16",
            range: "0 to 256",
            meaning: "Distance at which the kernel prefetches rows ahead of its sums, 16 in PyTorch; 0 disables prefetching.",
        },
        ParamInfo {
            name: "prefetch_as",
            unit: "",
            default: "load",
            range: "load or prefetcht0",
            meaning: "Form of a prefetch: a load that nothing depends on, which occupies the window until its data arrives, or the kernel's own instruction, which does not.",
        },
        POPULATE,
        REGION,
    ],
};

/// Parameters of a run.
#[derive(Clone, Copy)]
struct Work {
    tables: u64,
    rows: u64,
    dim: u64,
    pooling: u64,
    fixed: bool,
    batch: u64,
    batches: u64,
    prefetch: u64,
    /// Prefetches are `prefetcht0` instead of loads.
    hints: bool,
    seed: u64,
}

/// Addresses of the arrays.
struct Arrays {
    tables: Vec<u64>,
    /// Indices and offsets of each table, reused by every batch.
    indices: Vec<u64>,
    offsets: Vec<u64>,
    /// Sums of each table.
    sums: Vec<u64>,
}

/// Bags of one table in one batch.
#[derive(Default)]
struct Bags {
    indices: Vec<u64>,
    offsets: Vec<usize>,
}

/// The current bags, generated by the first thread that needs them.
type Current = Mutex<(u64, u64, Arc<Bags>)>;

fn dlrm(values: &Values<'_>) -> Result<Code, Error> {
    let tables = values.number_in("tables", 1..=1024, 8)?;
    let dim = values.number_in("dim", 8..=1024, 64)?;
    if dim % 8 != 0 {
        return Err(values.refuse("dim", "not a multiple of 8"));
    }
    let size = values.size();
    let rows = size / (tables * dim * 4);
    if rows < 2 || size > 1 << 46 {
        return Err(values.refuse_size(size, "out of range (two rows a table at least)"));
    }
    let work = Work {
        tables,
        rows,
        dim,
        pooling: values.number_in("pooling", 1..=4096, 100)?,
        fixed: values.choice("fixed", &["yes", "no"], "no")? == "yes",
        batch: values.number_in("batch", 1..=65536, 2048)?,
        batches: values.number_in("batches", 1..=1 << 32, 1000)?,
        prefetch: values.number_in("prefetch", 0..=256, 16)?,
        hints: values.choice("prefetch_as", &["load", "prefetcht0"], "load")? == "prefetcht0",
        seed: pagewalk_units::rng(values.options.seed, "workload.dlrm").next_u64(),
    };
    // The host holds the indices of one table's bags and the start of each bag. The array of indices doubles
    // as it grows.
    let what = format!("dlrm: the indices of {} samples", work.batch);
    crate::host::fits(work.batch * (16 * work.pooling + 8), &what)?;
    let start = values.start()?;
    let threads = values.options.threads;

    let mut heap = Heap::new(Layout::new());
    let stacks: Vec<u64> = (0..threads).map(|t| heap.stack(t)).collect();
    let mut arrays = |bytes: u64| -> Vec<u64> {
        // PyTorch aligns arrays to 64 bytes.
        let one = |_| heap.malloc(bytes + 64).next_multiple_of(64);
        (0..tables).map(one).collect()
    };
    let places = Arc::new(Arrays {
        tables: arrays(rows * dim * 4),
        indices: arrays(work.batch * work.pooling * 8),
        offsets: arrays(work.batch * 8 + 8),
        sums: arrays(work.batch * dim * 4),
    });
    let facts = Facts {
        name: format!("dlrm --size {} --threads {threads}", format_size(size)),
        deterministic: true,
        has_roi: true,
        request: Some("embedding bag".to_owned()),
        prefetches: work.hints && work.prefetch > 0,
        ..Facts::default()
    };
    let current = Arc::new(Current::new((u64::MAX, 0, Arc::default())));
    let members = (0..threads)
        .zip(stacks)
        .map(|(thread, stack)| {
            let (places, current) = (places.clone(), current.clone());
            let sums = Sums {
                work,
                places,
                current,
                thread,
                threads,
            };
            (stack, sums)
        })
        .collect();
    Ok(Code::team(facts, start, heap, members))
}

/// Random generator of one bag: splitmix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The work of one thread: its share of each batch.
struct Sums {
    work: Work,
    places: Arc<Arrays>,
    current: Arc<Current>,
    thread: u32,
    threads: u32,
}

impl Member for Sums {
    async fn run(self, t: &mut Thread) {
        let work = self.work;
        for batch in 0..work.batches {
            for table in 0..work.tables {
                let bags = work.bags_at(&self.current, batch, table);
                let mine = share(work.batch, self.thread, self.threads);
                work.sum(t, &self.places, table as usize, &bags, mine).await;
                if self.threads > 1 {
                    t.barrier().await;
                }
            }
        }
    }
}

impl Work {
    /// Rows of one bag, drawn as in `generate_uniform_input_batch`: sorted and distinct.
    fn bag(self, batch: u64, table: u64, sample: u64, rows: &mut Vec<u64>) {
        let place = (batch * self.tables + table) * self.batch + sample;
        let mut draws = Draws(self.seed ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let most = self.rows.min(self.pooling);
        let count = if self.fixed {
            self.pooling
        } else {
            (draws.next() * most as f64).max(1.0).round_ties_even() as u64
        };
        let last = (self.rows - 1) as f64;
        let from = rows.len();
        rows.extend((0..count).map(|_| (draws.next() * last).round_ties_even() as u64));
        rows[from..].sort_unstable();
        let mut kept = from;
        for at in from..rows.len() {
            if kept == from || rows[at] != rows[kept - 1] {
                rows[kept] = rows[at];
                kept += 1;
            }
        }
        rows.truncate(kept);
    }

    fn bags(self, batch: u64, table: u64) -> Bags {
        let mut bags = Bags {
            indices: Vec::with_capacity((self.batch * self.pooling / 2) as usize),
            offsets: vec![0],
        };
        for sample in 0..self.batch {
            self.bag(batch, table, sample, &mut bags.indices);
            bags.offsets.push(bags.indices.len());
        }
        bags
    }

    fn bags_at(self, current: &Current, batch: u64, table: u64) -> Arc<Bags> {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if (current.0, current.1) != (batch, table) {
            *current = (batch, table, Arc::new(self.bags(batch, table)));
        }
        current.2.clone()
    }

    /// One call of the kernel, for the bags `mine` of a table.
    async fn sum(
        self,
        t: &mut Thread,
        places: &Arrays,
        table: usize,
        bags: &Bags,
        mine: std::ops::Range<u64>,
    ) {
        let vectors = self.dim / 8;
        let base = places.tables[table];
        let end = bags.indices.len() as u64;
        let index_at = |i: u64| places.indices[table] + 8 * i;
        t.call(0, 0x8, 10, 0x80);
        for bag in mine.clone() {
            let lengths = places.offsets[table] + 8 * bag;
            let sums = places.sums[table] + 4 * self.dim * bag;
            let range = bags.offsets[bag as usize] as u64..bags.offsets[bag as usize + 1] as u64;
            t.branch(0x12, 0x100, 2, false, [NONE; 2]);
            for block in (0..vectors).step_by(16) {
                let width = (vectors - block).min(16);
                let next = t.load(0x40, 1 + width as u16, lengths + 8, 4, [NONE; 2]);
                let from = t.load(0x44, 1, lengths, 4, [NONE; 2]);
                let length = [next.plus(1), from.plus(1)];
                t.branch(0x50, 0x110, 3, false, length);
                let mut sum = NONE;
                for i in range.clone() {
                    t.branch(0x57, 0xc0, 2, false, length);
                    let index = t.load(0x5d, 1, index_at(i), 8, [NONE; 2]);
                    t.branch(0x64, 0x110, 2, false, [index, NONE]);
                    let mut ahead = NONE;
                    if self.prefetch > 0 {
                        let beyond = i + self.prefetch >= end;
                        t.branch(0x72, 0x80, 3, beyond, [NONE; 2]);
                        if beyond {
                            ahead = t.load(0x80, 1, index_at(i), 8, [NONE; 2]);
                        } else {
                            let va = index_at(i + self.prefetch);
                            ahead = t.load(0x78, 1, va, 8, [NONE; 2]);
                            t.jump(0x7f, 0x83, 1, flags::TAKEN, [NONE; 2]);
                        }
                    }
                    let row = base + 4 * self.dim * bags.indices[i as usize];
                    let later = if i + self.prefetch >= end {
                        i
                    } else {
                        i + self.prefetch
                    };
                    let later = base + 4 * self.dim * bags.indices[later as usize];
                    for v in 0..width {
                        let before = match (v, self.prefetch) {
                            (0, 0) => 2,
                            (0, _) => 3,
                            _ => 0,
                        };
                        let pc = 0x90 + 5 * (v / 2) + 3 * (v % 2);
                        let va = row + 32 * (block + v);
                        sum = t.load(pc, 1 + before, va, 32, [index.plus(3), NONE]);
                        if self.prefetch > 0 && (block + v) % 2 == 0 {
                            let va = later + 32 * (block + v);
                            let row = [ahead.plus(3), NONE];
                            if self.hints {
                                t.prefetch(pc + 1, 1, va, PrefetchHint::T0, row);
                            } else {
                                t.load(pc + 1, 1, va, 1, row);
                            }
                        }
                    }
                    t.jump(0xb8, 0x54, 1, flags::TAKEN, [NONE; 2]);
                    if t.full() {
                        t.pause().await;
                    }
                }
                t.branch(0x57, 0xc0, 2, true, length);
                for v in 0..width {
                    let va = sums + 32 * (block + v);
                    t.store(0xc0 + 4 * v, 1, va, 32, NONE, sum.plus(3));
                }
                if block + 16 < vectors {
                    t.load(0xe8, 1, lengths + 8, 4, [NONE; 2]);
                    t.load(0xec, 1, lengths, 4, [NONE; 2]);
                    t.compute(0xf0, 2, 4, [NONE; 2]);
                }
            }
            t.jump(0xf8, 0x10, 3, flags::TAKEN, [NONE; 2]);
            t.request();
            if t.full() {
                t.pause().await;
            }
        }
        t.branch(0x12, 0x100, 2, true, [NONE; 2]);
        t.ret(0x108, 0, 12, 0x80);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pagewalk_stream::{Batch, End, OpClass, Program as _};
    use rand::Rng as _;

    use super::{INFO, Work, dlrm};
    use crate::entry::{Options, Values};

    fn work(rows: u64, pooling: u64, fixed: bool) -> Work {
        Work {
            tables: 3,
            rows,
            dim: 16,
            pooling,
            fixed,
            batch: 200,
            batches: 1,
            prefetch: 16,
            hints: false,
            seed: 77,
        }
    }

    #[test]
    fn bags_are_sorted_sets_of_uniform_rows() {
        let work = work(1000, 40, false);
        let (mut counts, mut lengths) = (vec![0u32; 1000], Vec::new());
        for batch in 0..20 {
            let bags = work.bags(batch, 1);
            for ends in bags.offsets.windows(2) {
                let bag = &bags.indices[ends[0]..ends[1]];
                assert!(bag.windows(2).all(|w| w[0] < w[1]));
                assert!((1..=40).contains(&bag.len()) && bag[bag.len() - 1] < 1000);
                bag.iter().for_each(|row| counts[*row as usize] += 1);
                lengths.push(bag.len() as f64);
            }
        }
        // Rounding halves the frequency of the first and the last row.
        let total: u32 = counts.iter().sum();
        let mean = f64::from(total) / 999.0;
        let chi: f64 = counts[1..999]
            .iter()
            .map(|c| (f64::from(*c) - mean).powi(2) / mean)
            .sum();
        assert!((chi - 998.0).abs() < 5.0 * f64::sqrt(2.0 * 998.0), "{chi}");
        // Uniform up to 40, minus the few rows drawn twice.
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        assert!((19.0..20.5).contains(&mean), "{mean}");
    }

    /// The sums computed from the kernel's loads equal those of the definition.
    #[test]
    fn the_kernel_adds_the_rows_of_each_bag() {
        for (threads, dim, prefetch, form) in [
            (1, "160", "16", "load"),
            (1, "160", "16", "prefetcht0"),
            (3, "16", "0", "load"),
        ] {
            let options = Options {
                size_bytes: Some(1 << 20),
                threads,
                seed: 5,
                params: [
                    ("tables", "2"),
                    ("dim", dim),
                    ("pooling", "30"),
                    ("batch", "50"),
                    ("batches", "2"),
                    ("prefetch", prefetch),
                    ("prefetch_as", form),
                ]
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .into(),
            };
            let values = Values::new(&INFO, &options);
            let mut code = dlrm(&values).unwrap();
            let dim: u64 = dim.parse().unwrap();
            let work = Work {
                tables: 2,
                rows: (1 << 20) / (8 * dim),
                dim,
                pooling: 30,
                fixed: false,
                batch: 50,
                batches: 2,
                prefetch: prefetch.parse().unwrap(),
                hints: form == "prefetcht0",
                seed: pagewalk_units::rng(5, "workload.dlrm").next_u64(),
            };
            // A value for each float of a row, a function of its address.
            let value = |va: u64| va.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let mut batch = Batch::new();
            let mut base = None;
            let mut sums: Vec<(u64, u64)> = Vec::new();
            let mut hinted: Vec<u64> = Vec::new();
            let mut held = vec![[0u64; 16]; threads as usize];
            let mut live: Vec<u32> = vec![0];
            let mut turn = 0;
            while !live.is_empty() {
                turn += 1;
                let thread = live[turn % live.len()];
                let end = code.fill(thread, &mut batch).unwrap();
                for op in &batch.ops {
                    let pc = op.pc - crate::layout::CODE;
                    match op.kind {
                        OpClass::Load if op.size == 32 => {
                            let v = (pc - 0x90) / 5 * 2 + u64::from((pc - 0x90) % 5 == 3);
                            let held = &mut held[thread as usize][v as usize];
                            *held = held.wrapping_add(value(op.va - base.unwrap()));
                        }
                        OpClass::Prefetch => hinted.push(op.va - base.unwrap()),
                        OpClass::Store if (0xc0..0x100).contains(&pc) => {
                            let held = &mut held[thread as usize][((pc - 0xc0) / 4) as usize];
                            sums.push((op.va, std::mem::take(held)));
                        }
                        _ => {}
                    }
                }
                match end {
                    End::Event { event, .. } => match event {
                        pagewalk_stream::Event::Spawn { thread } => live.push(thread),
                        pagewalk_stream::Event::Map { at, bytes, .. }
                            if base.is_none() && at.0 >> 44 == 1 && bytes < 8 << 20 =>
                        {
                            base = Some(at.0 + 64);
                        }
                        _ => {}
                    },
                    End::Exit => live.retain(|t| *t != thread),
                    _ => {}
                }
            }
            let base = base.unwrap();
            let second = {
                // Tables of half a megabyte lie 2 MB apart.
                let bytes = work.rows * dim * 4 + 64;
                assert!(bytes < 2 << 20);
                2 << 20
            };
            if work.hints {
                // The lines of the row 16 indices later; past the end of a table's bags, of the row itself.
                let mut all = Vec::new();
                for (batch, table) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let bags = work.bags(batch, table);
                    for ends in bags.offsets.windows(2) {
                        for block in (0..dim / 8).step_by(16) {
                            for i in ends[0]..ends[1] {
                                let later = bags.indices.get(i + 16).unwrap_or(&bags.indices[i]);
                                let row = table * second + later * dim * 4;
                                let vectors = (block..dim / 8).take(16).filter(|v| v % 2 == 0);
                                all.extend(vectors.map(|v| row + 32 * v));
                            }
                        }
                    }
                }
                assert_eq!(hinted, all);
            } else {
                assert!(hinted.is_empty());
            }
            let mut expected = Vec::new();
            for batch in 0..2 {
                for table in 0..2 {
                    for sample in 0..50 {
                        let mut rows = Vec::new();
                        work.bag(batch, table, sample, &mut rows);
                        let rows: BTreeSet<u64> = rows.into_iter().collect();
                        for v in 0..dim / 8 {
                            let sum = rows.iter().fold(0u64, |sum, row| {
                                let va = table * second + row * dim * 4 + 32 * v;
                                sum.wrapping_add(value(va))
                            });
                            expected.push(sum);
                        }
                    }
                }
            }
            assert_eq!(sums.len(), expected.len());
            let mut found: Vec<u64> = sums.iter().map(|s| s.1).collect();
            if threads > 1 {
                found.sort_unstable();
                expected.sort_unstable();
            }
            assert!(found == expected, "base {base:#x}");
        }
    }

    #[test]
    fn rows_of_all_sizes_fit_their_tables() {
        let mut rows = Vec::new();
        for (count, pooling, fixed) in [(2, 40, true), (1, 3, false), (1 << 40, 7, true)] {
            rows.clear();
            work(count.max(2), pooling, fixed).bag(0, 0, 0, &mut rows);
            assert!(rows.iter().all(|r| *r < count.max(2)));
        }
    }
}
