//! Detection of a file's format by its contents.

use std::io::Write;

use pagewalk_trace::{Format, OpenOptions, check_trace, trace_info};

use crate::champsim::{champsim_ops, champsim_record};
use crate::{drain, opened, refused, try_drain};

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
        (b"PWTRACE\n\x0a\0\0\0\0\0\0\0\0\0\0\0", "version 10"),
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

/// A 96-byte record of one load and four stores.
fn cloudsuite_record(ip: u64, dest: [u8; 4], stores: [u64; 4], load: u64, space: u8) -> [u8; 96] {
    let mut r = [0; 96];
    r[..8].copy_from_slice(&ip.to_le_bytes());
    r[10..14].copy_from_slice(&dest);
    for (n, va) in stores.iter().chain([&load]).enumerate() {
        r[24 + 8 * n..32 + 8 * n].copy_from_slice(&va.to_le_bytes());
    }
    r[88] = space;
    r
}

#[test]
fn cloudsuites_records_have_four_destinations_and_an_address_space() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace.xz");
    let stores = [0x2000, 0x3000, 0x4000, 0x5000];
    let records = [
        cloudsuite_record(0x1000, [0; 4], stores, 0, 3),
        cloudsuite_record(0x1004, [0, 0, 0, 9], [0; 4], 0x6000, 3),
        cloudsuite_record(0x1008, [0; 4], [0x7000, 0, 0, 0], 0, 9),
        cloudsuite_record(0x100c, [0; 4], [0xffff_ffff_7fff_0000, 0, 0, 0], 0, 3),
    ];
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&records.concat()).unwrap();
    std::fs::write(&path, xz.finish().unwrap()).unwrap();
    let ops = drain(opened(&path).as_mut()).remove(&0).unwrap().0;
    let vas: Vec<u64> = ops.iter().map(|o| o.va).collect();
    let other = 1 << 40;
    assert_eq!(
        vas,
        [
            0x2000,
            0x3000,
            0x4000,
            0x5000,
            0x6000,
            other | 0x7000,
            0xff_7fff_0000
        ]
    );
    assert_eq!(ops.iter().map(|o| o.insns).sum::<u16>(), 4);
    assert_eq!(ops[5].pc, other | 0x1008);
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!((info.format, info.stores), (Format::Cloudsuite, 6));
    // The fourth destination is read: a later use depends on it.
    let uses = |register| {
        let mut user = cloudsuite_record(0x1008, [0; 4], [0x7000, 0, 0, 0], 0, 3);
        user[14] = register;
        std::fs::write(&path, [records[1], user].concat()).unwrap();
        drain(opened(&path).as_mut()).remove(&0).unwrap().0[1].dep[0]
    };
    assert_eq!((uses(9), uses(8)), (1, 0));
    std::fs::write(&path, &records.concat()[..200]).unwrap();
    let said = refused(&path, &OpenOptions::default());
    assert!(said.contains("within record 2: 8 of 96 bytes"), "{said}");
    let mut many = Vec::new();
    for space in 0..=128 {
        many.extend(cloudsuite_record(0x1000, [0; 4], [0; 4], 0x6000, space));
    }
    std::fs::write(&path, many).unwrap();
    assert!(refused(&path, &OpenOptions::default()).contains("more than 128 address spaces"));
}

/// A tar archive of these files and a folder.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |name: &str, kind: u8, bytes: &[u8]| {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        out.extend(header);
        out.extend(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    };
    put("traces/", b'5', &[]);
    for (name, bytes) in files {
        put(name, b'0', bytes);
    }
    out.resize(out.len() + 1024, 0);
    out
}

#[test]
fn a_tar_archive_with_one_member_is_read_as_that_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.tar.xz");
    let records: Vec<_> = (0..5000)
        .map(|i| champsim_record(0x1000 + 4 * i, [3, 0], [3, 0, 0, 0], 0, 0x9000 + 64 * i))
        .collect();
    let expected = champsim_ops(dir.path(), &records);
    let raw = records.concat();
    let write = |archive: &[u8]| {
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(archive).unwrap();
        std::fs::write(&path, xz.finish().unwrap()).unwrap();
    };
    write(&tar(&[("traces/a", &raw)]));
    let ops = drain(opened(&path).as_mut()).remove(&0).unwrap().0;
    assert!(ops == expected);
    write(&tar(&[("traces/a", &raw), ("traces/b", &raw)]));
    let said = refused(&path, &OpenOptions::default());
    assert!(said.contains("does not hold one file; unpack it"), "{said}");
    write(&tar(&[("traces/a", &raw)])[..100_000]);
    let said = refused(&path, &OpenOptions::default());
    assert!(said.contains("cut off"), "{said}");
    write(&tar(&[]));
    let said = refused(&path, &OpenOptions::default());
    assert!(said.contains("does not hold one file"), "{said}");
}

#[test]
fn pinatrace_is_read_and_other_tools_text_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pinatrace.out");
    let text =
        "#\n0x401136: R 0x7ffe08\n0x401136: W 0x7ffe08\n0x40113a: W 0x10\n0x40113a: W 0x18\n#eof\n";
    std::fs::write(&path, text).unwrap();
    let mut program = opened(&path);
    let facts = program.facts();
    assert!(facts.no_dependences && facts.notes[0].contains("access memory"));
    let ops = drain(program.as_mut()).remove(&0).unwrap().0;
    let found: Vec<_> = ops.iter().map(|o| (o.kind, o.va, o.insns)).collect();
    use pagewalk_stream::OpClass::{Load, Store};
    assert_eq!(
        found,
        [
            (Load, 0x7f_fe08, 1),
            (Store, 0x7f_fe08, 0),
            (Store, 0x10, 1),
            (Store, 0x18, 1)
        ]
    );
    std::fs::write(&path, text.replace("W 0x10", "Q")).unwrap();
    let said = refused(&path, &OpenOptions::default());
    assert!(
        said.contains("byte 44") && said.contains("0x401136: R"),
        "{said}"
    );
    for (bytes, words) in [
        (
            "0 7ffe08\n2 401136\n",
            "a dinero trace, which is not read; convert it with awk",
        ),
        ("3 20734016\n", "a processor trace of Ramulator"),
        ("0x12345680 R\n", "a memory trace of Ramulator"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let said = refused(&path, &OpenOptions::default());
        assert!(said.contains(words), "{said}");
    }
}
