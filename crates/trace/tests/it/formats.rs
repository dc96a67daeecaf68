//! Detection of a file's format by its contents.

use std::io::Write;

use pagewalk_trace::{Format, OpenOptions, check_trace};

use crate::champsim::{champsim_ops, champsim_record};
use crate::{opened, refused, try_drain};

#[test]
fn compression_is_found_by_content_not_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..8000)
        .map(|i: u64| {
            // Hard to compress, so that a cut file has valid parts before the cut.
            let va = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 | 1;
            champsim_record(0x1000 + 4 * i, [3, 0], [3, 0, 0, 0], 0, va)
        })
        .collect();
    let expected = champsim_ops(dir.path(), &records);
    let raw = records.concat();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&raw).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&raw).unwrap();
    let all = [
        raw.clone(),
        xz.finish().unwrap(),
        gz.finish().unwrap(),
        zstd::encode_all(&raw[..], 1).unwrap(),
    ];
    for (bytes, cut) in all.iter().flat_map(|b| [(b, false), (b, true)]) {
        for name in ["x", "x.xz", "x.gz", "x.zst", "x.pwt"] {
            let path = dir.path().join(name);
            let length = if cut {
                bytes.len() * 2 / 3 + 1
            } else {
                bytes.len()
            };
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (streams, error) = try_drain(opened(&path).as_mut());
            let ops = streams.get(&0).map_or(&[][..], |s| &s.0);
            assert_eq!(error.is_some(), cut, "{error:?}");
            if cut {
                let message = error.unwrap();
                assert!(
                    message.contains("byte") && message.contains("good"),
                    "{message}"
                );
                assert_eq!(ops, &expected[..ops.len()]);
                let check = check_trace(&path, None).unwrap();
                assert!(!check.whole && check.fault_offset.is_some(), "{check:?}");
            } else {
                assert_eq!(ops, expected);
            }
        }
    }
}

#[test]
fn files_that_are_no_traces_are_refused_with_the_expected_form() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.xz");
    let empty: (&[u8], &str) = (b"", "empty");
    for (bytes, said) in [
        empty,
        (
            b"hello world, this is no trace at all, but text of more than 64 bytes. ",
            "called .xz",
        ),
        (&[0xff; 640], "called .xz"),
        (&[0; 640], "no trace"),
        (b"short", "no trace"),
        (b"PWTRACE\n", "16 bytes"),
        (b"PWTRACE\n\x09\0\0\0\0\0\0\0\0\0\0\0", "version 9"),
        (
            b"PWTRACE\n\x01\0\0\0\xff\xff\xff\xff\0\0\0\0",
            "longer than it can be",
        ),
        (b"\xfd7zXZ\0 but not really", "damaged"),
        (b"\x1f\x8b nor this", "damaged"),
        (b"\x28\xb5\x2f\xfd nor that", "damaged"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = refused(&path, &OpenOptions::default());
        assert!(message.contains(said), "{message}");
        assert!(message.contains("t.xz"), "{message}");
    }
    let message = refused(&dir.path().join("absent"), &OpenOptions::default());
    assert!(
        message.contains("absent") && message.contains("open"),
        "{message}"
    );
    // The user names a format that the file does not have.
    std::fs::write(&path, b"I  1000,4\n").unwrap();
    let options = OpenOptions {
        format: Some(Format::Champsim),
        ..OpenOptions::default()
    };
    assert!(refused(&path, &options).contains("within record 0"));
}
