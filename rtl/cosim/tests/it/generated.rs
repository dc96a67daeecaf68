//! The generated headers are those of the simulator's constants and configuration.

use std::fs;
use std::path::PathBuf;

use pagewalk_rtl::header::{self, L2P_SOURCE, SOURCE};

fn headers() -> [(PathBuf, String); 3] {
    let engine = header::spec_engine(&pagewalk_rtl::configuration(SOURCE.0, SOURCE.1));
    let l2p = header::l2p(&pagewalk_rtl::configuration(L2P_SOURCE.0, L2P_SOURCE.1));
    [
        (header::path(), engine),
        (header::stlt_unit_path(), header::stlt_unit()),
        (header::l2p_path(), l2p),
    ]
}

#[test]
fn the_headers_are_current() {
    for (path, text) in headers() {
        let kept = fs::read_to_string(&path).expect("the header is in the repository");
        assert!(
            kept == text,
            "{} is out of date: cargo test -p pagewalk-rtl --test it write_headers -- --ignored",
            path.display()
        );
    }
}

#[test]
#[ignore = "writes rtl/generated"]
fn write_headers() {
    for (path, text) in headers() {
        fs::write(path, text).expect("rtl/generated is writable");
    }
}
