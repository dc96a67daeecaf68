//! The C and C++ headers over the crate's tables: compiled, linked and run where there is a compiler.
#![cfg(not(any(loom, miri)))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library of this build: the newest one beside the test programs.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test runs");
    let files = test
        .parent()
        .expect("a folder")
        .read_dir()
        .expect("a readable folder");
    let libraries = files
        .map(|file| file.expect("a readable folder").path())
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("liblookaside") && name.ends_with(".a")
        });
    libraries
        .max_by_key(|file| file.metadata().and_then(|about| about.modified()).ok())
        .expect("a static library")
}

/// Compiles and runs a program of `tests/cpp`. Without the compiler, says so.
fn run(compiler: &str, source: &str, flags: &[&str], libraries: &[String]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {compiler} is not installed");
        return;
    }
    let out = tempfile::tempdir().expect("a temporary folder");
    let program = out.path().join("program");
    let compiled = Command::new(compiler)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/cpp").join(source))
        .arg("-o")
        .arg(&program)
        .arg(library())
        .args(libraries)
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("the compiler runs");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let ran = Command::new(&program).output().expect("the program runs");
    assert!(
        ran.status.success(),
        "{:?}: {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn c_shares_the_table() {
    run("cc", "check.c", &["-std=c11"], &[]);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        run("cc", "check.c", &["-std=c11", "-mavx2"], &[]);
    }
}

/// With all containers that are installed, under the sanitizers of addresses and undefined behaviour.
#[test]
fn cpp_shares_the_table() {
    let mut flags = vec!["-std=c++17", "-fsanitize=address,undefined"];
    if Path::new("/usr/include/sparsehash/dense_hash_map").exists() {
        flags.push("-DHAVE_SPARSEHASH");
    }
    let absl = Command::new("pkg-config")
        .args(["--libs", "absl_flat_hash_map", "absl_btree"])
        .output();
    let absl = absl.ok().filter(|output| output.status.success());
    let libraries = absl
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    if !libraries.is_empty() {
        flags.push("-DHAVE_ABSL");
    }
    let libraries: Vec<String> = libraries.split_whitespace().map(str::to_owned).collect();
    run("c++", "check.cc", &flags, &libraries);
}

#[test]
fn cpp_threads_do_not_race() {
    run("c++", "check.cc", &["-std=c++17", "-fsanitize=thread"], &[]);
}
