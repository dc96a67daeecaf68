//! Mutated traces of every format give a result, never a panic, a hang or much memory.

use std::io::Write;
use std::path::Path;

use pagewalk_stream::{Batch, End};
use pagewalk_trace::{OpenOptions, open_trace};

use crate::champsim::champsim_record;
use crate::{program, recorded};

#[test]
fn damaged_traces_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let pwt = std::fs::read(recorded(
        dir.path(),
        program("bfs", 2, &[("scale", "12"), ("roots", "1")]),
        Some(3000),
    ))
    .unwrap();
    let records: Vec<_> = (0..60)
        .map(|i| {
            champsim_record(
                0x1000 + 4 * i,
                [3, 25],
                [3, 4, 5, 6],
                i % 3 * 64,
                0x9000 + 64 * i,
            )
        })
        .collect();
    let raw = records.concat();
    let lackey = b"==1== x\nI  1000,4\n L 7000,8\nI  1004,3\n S 7000,8\n M 8000,4\n".repeat(8);
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&raw).unwrap();
    let seeds = [
        crate::steps::STEPS.to_vec(),
        pwt,
        zstd::encode_all(&raw[..], 1).unwrap(),
        xz.finish().unwrap(),
        raw,
        lackey,
        crate::drmemtrace::seed(),
        crate::gem5::seed(),
        b"0x401136: R 0x7ffe08\n0x401136: W 0x7ffe08\n#eof\n".repeat(8),
    ];
    // Most of the time goes to thread wake-ups.
    let answered = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|worker| {
                let (seeds, path) = (&seeds, dir.path().join(format!("fuzz{worker}")));
                scope.spawn(move || mutate(seeds, &path, worker, 3_000))
            })
            .collect();
        let all = workers.into_iter().map(|w| w.join().unwrap());
        all.fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]])
    });
    assert!(answered[0] > 1000 && answered[1] > 100, "{answered:?}");
}

/// Number of mutations that were refused, and that were read to their ends.
fn mutate(seeds: &[Vec<u8>], path: &Path, seed: u64, rounds: usize) -> [u32; 2] {
    let mut state = seed * 12345;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    let mut answered = [0u32; 2];
    for round in 0..rounds {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random(8),
                2 => bytes[at] = [0, 255, 127, 128][random(4)],
                3 => bytes.insert(at, random(256) as u8),
                _ => {
                    let end = (at + random(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = random(bytes.len());
                    bytes.splice(to..to, part);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        std::fs::write(path, &bytes).unwrap();
        let options = OpenOptions {
            format: None,
            recover: random(2) == 0,
            skip: if random(4) == 0 { 20 } else { 0 },
        };
        let good = match open_trace(path, &options) {
            Ok(mut program) => {
                let mut batch = Batch::new();
                let mut fills = 0;
                loop {
                    match program.fill(0, &mut batch) {
                        Err(error) => {
                            assert!(error.to_string().contains("fuzz"), "{error}");
                            break false;
                        }
                        Ok(End::Exit) => break true,
                        // This test reads only the first thread.
                        Ok(_) => fills += 1,
                    }
                    if fills > 1000 {
                        break true;
                    }
                }
            }
            Err(error) => {
                assert!(error.to_string().contains("fuzz"), "{error}");
                false
            }
        };
        answered[usize::from(good)] += 1;
    }
    answered
}
