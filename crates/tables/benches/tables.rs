//! Host time of map, unmap and walk of every page table.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pagewalk_tables::{
    CuckooWalkSpec, ElasticCuckooSpec, Flags, FrameSource, HashDontCacheSpec, LevelHashingSpec,
    MemoryEfficientSpec, Next, NoFrames, Owner, PageTable, PageTableSpec, RadixSpec, WalkCacheSet,
    WalkCacheSpec, WalkCaches, WalkState, Want,
};
use pagewalk_units::{Asid, Frame, Page, PageSize, PhysAddr, VirtAddr};

struct Bump(u64);

impl FrameSource<PhysAddr> for Bump {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        let base = self.0.next_multiple_of(want.bytes);
        self.0 = base + want.bytes;
        Ok(Frame {
            base: PhysAddr(base),
        })
    }
    fn free(&mut self, _: Frame<PhysAddr>, _: u64) {}
}

type Table = Box<dyn PageTable<VirtAddr, PhysAddr>>;

fn tables() -> Vec<(&'static str, PageTableSpec)> {
    vec![
        ("radix", PageTableSpec::Radix(RadixSpec { levels: 4 })),
        (
            "ecpt",
            PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default()),
        ),
        (
            "mehpt",
            PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default()),
        ),
        (
            "hash-dont-cache",
            PageTableSpec::HashDontCache(HashDontCacheSpec::default()),
        ),
        (
            "level-hashing",
            PageTableSpec::LevelHashing(LevelHashingSpec::default()),
        ),
    ]
}

/// Page `i` of the mapped range. A stride of 1 gives neighbours, a larger one
/// lone pages.
fn page(i: u64, stride: u64) -> Page<VirtAddr> {
    VirtAddr((i * stride) << 12).page(PageSize::K4)
}

fn fill(spec: &PageTableSpec, pages: u64, stride: u64) -> (Table, Bump) {
    let mut table: Table = spec.build(Owner::new(Asid(1), 1)).expect("a valid table");
    let mut frames = Bump(1 << 36);
    for i in 0..pages {
        let page = page(i, stride);
        let frame = Frame {
            base: PhysAddr(i << 12),
        };
        table
            .map(page, frame, Flags::WRITABLE, &mut frames)
            .expect("memory is plenty");
    }
    (table, frames)
}

fn walk(table: &Table, va: VirtAddr, set: &mut WalkCacheSet) -> u32 {
    let mut state = WalkState::default();
    let mut reads = 0;
    loop {
        match table.next(va, &mut state, &mut WalkCaches::new(set, Asid(1), 0)) {
            Next::One { .. } | Next::Read(_) => reads += 1,
            Next::Done(_) | Next::Fault => return reads,
        }
    }
}

fn bench(c: &mut Criterion) {
    for (name, spec) in tables() {
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        // 4 GB of neighbouring pages; or one page in each cluster, because
        // hashed tables move and resize clusters.
        for (what, pages, stride) in [("4 GB in order", 1 << 20, 1), ("lone pages", 1 << 18, 9)] {
            group.throughput(Throughput::Elements(pages));
            group.bench_function(format!("map {what}"), |b| {
                b.iter_with_large_drop(|| fill(&spec, pages, stride));
            });
            group.bench_function(format!("unmap {what}"), |b| {
                b.iter_batched(
                    || fill(&spec, pages, stride),
                    |(mut table, mut frames)| {
                        for i in 0..pages {
                            table.unmap(page(i, stride), &mut frames);
                        }
                        table
                    },
                    BatchSize::PerIteration,
                );
            });
        }
        const PAGES: u64 = 1 << 20;
        group.throughput(Throughput::Elements(PAGES));
        group.bench_function("walk at random in 4 GB", |b| {
            let (table, _) = fill(&spec, PAGES, 1);
            let walk_caches = WalkCacheSpec {
                entries: 32,
                ways: 4,
                latency: 2,
                serial: false,
            };
            let mut set =
                WalkCacheSet::new(&walk_caches, 3).with_cuckoo(&CuckooWalkSpec::default());
            b.iter(|| {
                let mut x = 1u64;
                let mut reads = 0;
                for _ in 0..PAGES {
                    x = x
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    reads += walk(&table, VirtAddr(x >> 44 << 12), &mut set);
                }
                reads
            });
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
