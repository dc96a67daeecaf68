//! Compiles and runs the test in C++.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_header_passes_its_test_in_cpp() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a test has a path");
    // Cargo puts the library beside the test, with a hash in its name. Older builds may lie there, too.
    let library = fs::read_dir(test.parent().expect("a test lies in a folder"))
        .expect("the folder can be read")
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.to_string_lossy().contains("libelastic_capi-"))
        .filter(|path| path.extension().is_some_and(|extension| extension == "a"))
        .max_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
        .expect("the library was built with the test");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elastic-map");
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no compiler for C++ here");
        return;
    }
    let compiled = Command::new("c++")
        .args([
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(folder.join("../include"))
        .arg(folder.join("tests/map.cpp"))
        .arg(&library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let run = Command::new(&program).output().expect("the program runs");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(run.stdout, b"passed\n");
}
