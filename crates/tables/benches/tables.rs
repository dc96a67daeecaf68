//! Host time of map, unmap and walk of every page table.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pagewalk_tables::{
    Flags, FrameSource, HashDontCacheSpec, LevelHashingSpec, Next, NoFrames, PageTable,
    PageTableSpec, WalkCacheSet, WalkCacheSpec, WalkCaches, WalkState, Want,
};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr};

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
        ("radix", PageTableSpec::Radix { levels: 4 }),
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

fn fill(spec: &PageTableSpec, pages: u64) -> (Table, Bump) {
    let mut table: Table = spec.build(Asid(1)).expect("a valid table");
    let mut frames = Bump(1 << 36);
    for i in 0..pages {
        let page = VirtAddr(i << 12).page(PageSize::K4);
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
    const PAGES: u64 = 1 << 20;
    for (name, spec) in tables() {
        let mut group = c.benchmark_group(name);
        group
            .sample_size(10)
            .throughput(Throughput::Elements(PAGES));
        group.bench_function("map 4 GB in order", |b| b.iter(|| fill(&spec, PAGES)));
        group.bench_function("unmap 4 GB in order", |b| {
            b.iter_batched(
                || fill(&spec, PAGES),
                |(mut table, mut frames)| {
                    for i in 0..PAGES {
                        table.unmap(VirtAddr(i << 12).page(PageSize::K4), &mut frames);
                    }
                },
                BatchSize::PerIteration,
            );
        });
        let (table, _) = fill(&spec, PAGES);
        let walk_caches = WalkCacheSpec {
            entries: 32,
            ways: 4,
            latency: 2,
        };
        let mut set = WalkCacheSet::new(&walk_caches, 3);
        group.bench_function("walk at random in 4 GB", |b| {
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
