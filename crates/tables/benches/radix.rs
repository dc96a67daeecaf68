//! Host time of map, unmap and walk of the radix table.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pagewalk_tables::{
    Flags, FrameSource, Next, NoFrames, PageTable, Radix, Walk, WalkCacheSet, WalkCacheSpec,
    WalkCaches, WalkState, Want,
};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr};

struct Bump(u64);

impl FrameSource<PhysAddr> for Bump {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        self.0 += want.bytes;
        Ok(Frame {
            base: PhysAddr(self.0),
        })
    }
    fn free(&mut self, _: Frame<PhysAddr>, _: u64) {}
}

type Table = Radix<VirtAddr, PhysAddr>;

fn fill(pages: u64) -> (Table, Bump) {
    let mut table = Table::new(4, Asid(1));
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
    let mut group = c.benchmark_group("radix");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(PAGES));
    group.bench_function("map 4 GB in order", |b| b.iter(|| fill(PAGES)));
    group.bench_function("unmap 4 GB in order", |b| {
        b.iter_batched(
            || fill(PAGES),
            |(mut table, mut frames)| {
                for i in 0..PAGES {
                    table.unmap(VirtAddr(i << 12).page(PageSize::K4), &mut frames);
                }
            },
            BatchSize::PerIteration,
        );
    });
    let (table, _) = fill(PAGES);
    let spec = WalkCacheSpec {
        entries: 32,
        ways: 4,
        latency: 2,
    };
    let mut set = WalkCacheSet::new(&spec, 3);
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

criterion_group!(benches, bench);
criterion_main!(benches);
