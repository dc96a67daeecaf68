//! The generated headers are those of the simulator's constants and configuration.

use std::fs;

use pagewalk_rtl::header::{self, SOURCE};

fn text() -> String {
    header::spec_engine(&pagewalk_rtl::configuration(SOURCE.0, SOURCE.1))
}

#[test]
fn the_header_of_the_engine_is_current() {
    let kept = fs::read_to_string(header::path()).expect("the header is in the repository");
    assert!(
        kept == text(),
        "rtl/generated is out of date: cargo test -p pagewalk-rtl --test it write_header -- --ignored"
    );
}

#[test]
#[ignore = "writes rtl/generated"]
fn write_header() {
    fs::write(header::path(), text()).expect("rtl/generated is writable");
}
