//! Host time of an access.
#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewalk_memory::{PrefetcherSpec, PrivateSpec, Replacement, RequestKind, SharedSpec};
use std::hint::black_box;

const N: u64 = 4096;

/// A machine like the papers': SRRIP L2 with a streamer, IP-stride at the L1D.
fn spec(l3_kb: u32) -> (PrivateSpec, SharedSpec) {
    let mut private = private();
    private.l1d.prefetcher = Some(PrefetcherSpec::IpStride {
        entries: 64,
        degree: 2,
        lookahead: 4,
    });
    private.l2.replacement = Replacement::Srrip;
    private.l2.prefetcher = Some(PrefetcherSpec::Streamer {
        pages: 64,
        degree: 2,
        lookahead: 4,
    });
    let mut shared = shared();
    shared.l3 = Some(cache(l3_kb, 16, L3, 64));
    shared.dram = ddr(2);
    (private, shared)
}

fn access(c: &mut Criterion) {
    let mut group = c.benchmark_group("access");
    group.throughput(Throughput::Elements(N));
    let lcg = |x: u64| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    };

    for (name, lines) in [("l1_hit", 256u64), ("l2_hit", 3000), ("l3_hit", 24_000)] {
        let (private, shared) = spec(2048);
        let mut m = machine(&private, &shared);
        let (mut x, mut now) = (1u64, 0);
        group.bench_function(name, |b| {
            b.iter(|| {
                for i in 0..N {
                    x = lcg(x);
                    let at = (x >> 33) % lines * 64;
                    now = black_box(m.access(at, RequestKind::Load, 0x400 + i % 16 * 4, now)).at;
                }
            });
        });
    }

    for (name, l3_kb, dependent, kind) in [
        ("dram_miss_2MB", 2048, false, RequestKind::Load),
        ("dram_miss_32MB", 32 * 1024, false, RequestKind::Load),
        (
            "dram_miss_32MB_stores",
            32 * 1024,
            false,
            RequestKind::Store,
        ),
        ("dram_miss_32MB_chain", 32 * 1024, true, RequestKind::Load),
    ] {
        let (private, shared) = spec(l3_kb);
        let mut m = machine(&private, &shared);
        let (mut x, mut now) = (1u64, 0);
        for _ in 0..l3_kb * 32 {
            x = lcg(x);
            m.warm_of(0, x >> 24 & !63, RequestKind::Load, 0x400);
        }
        group.bench_function(name, |b| {
            b.iter(|| {
                for i in 0..N {
                    x = lcg(x);
                    let done = m.access(x >> 24, kind, 0x400 + i % 16 * 4, now);
                    now = if dependent {
                        black_box(done).at
                    } else {
                        now + 12
                    };
                }
            });
        });
    }

    let (private, shared) = spec(2048);
    let mut m = machine(&private, &shared);
    let (mut at, mut now) = (0, 0);
    group.bench_function("stream", |b| {
        b.iter(|| {
            for _ in 0..N {
                at += 8;
                black_box(m.access(at, RequestKind::Load, 0x400, now));
                now += 1;
            }
        });
    });

    let (private, shared) = spec(2048);
    let mut m = machine(&private, &shared);
    let mut x = 1;
    group.bench_function("warm_dram", |b| {
        b.iter(|| {
            for _ in 0..N {
                x = lcg(x);
                m.warm_of(0, x >> 24, RequestKind::Load, 0x400);
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_millis(700));
    targets = access
}
criterion_main!(benches);
