//! Host time of one simulated op on each kind of path.

#[path = "../tests/bench/mod.rs"]
mod bench;

use bench::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewalk_cpu::{Core, CoreContext};
use pagewalk_memory::{DramSpec, Shared, SharedSpec};
use pagewalk_mmu::Mmu;
use pagewalk_stream::Op;
use pagewalk_tables::View;
use pagewalk_units::{Asid, rng};
use rand::RngExt;

const OPS: usize = 4096;
const BATCHES: u64 = 64;

fn shared() -> Shared {
    let spec = SharedSpec {
        l3: Some(cache(16 * 1024, 16, 45, 128)),
        l4: None,
        remote_latency: 100,
        background: None,
        dram: DramSpec::fixed(45.0),
    };
    Shared::new(&spec, 1, 3.0).expect("possible")
}

fn run(c: &mut Criterion, name: &str, warm: bool, batches: Vec<Vec<Op>>) {
    let mut group = c.benchmark_group("core");
    group.throughput(Throughput::Elements(OPS as u64));
    group.sample_size(20);
    let m = Mmu::new(&mmu(), 0).expect("possible");
    let mut core = Core::new(&spec(), m, caches(16), 0).expect("possible");
    let mut below = shared();
    let table = Flat::new(1 << 40);
    let view = View::Native(&table);
    let mut next = 0;
    group.bench_function(name, |b| {
        b.iter(|| {
            let ops = &batches[next];
            next = (next + 1) % batches.len();
            let context = CoreContext {
                asid: Asid(1),
                tiers: None,
                view: &view,
                below: &mut below,
            };
            if warm {
                core.warm(ops, 0, u64::MAX, 1000, context)
            } else {
                core.run(ops, 0, u64::MAX, u64::MAX, context)
            }
        });
    });
    group.finish();
}

/// `BATCHES` batches of the ops that `op` returns for each number.
fn batches(mut op: impl FnMut(u64) -> Op) -> Vec<Vec<Op>> {
    (0..BATCHES)
        .map(|b| (0..OPS as u64).map(|i| op(b * OPS as u64 + i)).collect())
        .collect()
}

fn benches(c: &mut Criterion) {
    run(c, "compute", false, batches(|_| compute(3, 1)));
    run(
        c,
        "branches, a loop of 20",
        false,
        batches(|i| branch(PC + i % 4 * 8, i % 20 != 0)),
    );
    run(c, "loads, one line", false, batches(|i| load(i % 8 * 8)));
    run(
        c,
        "loads, 16 KB",
        false,
        batches(|i| load(i * 8 % (16 << 10))),
    );
    let mix = |i: u64| match i % 8 {
        0 | 3 => Op {
            insns: 2,
            ..load(i * 264 % (16 << 10))
        },
        1 | 5 => after(compute(3, 2), 1),
        2 | 6 => store(i * 136 % (16 << 10)),
        4 => after(load(i * 72 % (16 << 10)), 1),
        _ => branch(PC + i % 16 * 2, i % 16 != 7),
    };
    run(c, "a mix in the L1", false, batches(mix));
    run(c, "a mix in the L1, warming", true, batches(mix));
    for warm in [false, true] {
        let mut r = rng(1, "bench");
        let name = if warm {
            "random loads, 1 GB, warming"
        } else {
            "random loads, 1 GB"
        };
        run(
            c,
            name,
            warm,
            batches(|_| load(r.random_range(0..1u64 << 27) * 8)),
        );
    }
}

criterion_group!(all, benches);
criterion_main!(all);
