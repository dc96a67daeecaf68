//! Emulator, plugin and compiler, as the tests of live programs need them.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// True if `program` is on the path; prints that a test is skipped if not.
pub fn has(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|d| d.join(program).exists());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// True if the machine has everything that these tests need; prints what is missing.
///
/// # Panics
/// Something is missing, and `PAGEWALK_REQUIRE_LIVE` is set.
pub fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        let emulator = pagewalk_live::find_qemu(None);
        if let Err(why) = &emulator {
            eprintln!("skipped: {why}");
        }
        let present = emulator.is_ok() && has("cc");
        assert!(
            present || std::env::var_os("PAGEWALK_REQUIRE_LIVE").is_none(),
            "PAGEWALK_REQUIRE_LIVE is set, and what live programs need is missing"
        );
        present
    })
}

/// Folder for the files of the tests of this process. Another run at the same time has its own.
pub fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let all = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live");
        let path = all.join(std::process::id().to_string());
        std::fs::create_dir_all(&path).unwrap();
        // Folders of ended runs: their numbers name no process any more.
        for old in std::fs::read_dir(&all).unwrap().flatten() {
            let name = old.file_name();
            let number = name.to_str().and_then(|n| n.parse::<u32>().ok());
            if number.is_some() && !Path::new("/proc").join(name).exists() {
                // Another run may remove it at the same time.
                drop(std::fs::remove_dir_all(old.path()));
            }
        }
        path
    })
}

/// The plugin, built once, in a target folder of its own: Cargo holds a lock on the usual one, and on this one while it
/// builds.
pub fn plugin() -> PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN
        .get_or_init(|| {
            let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live/plugin");
            let status = Command::new(env!("CARGO"))
                .args([
                    "build",
                    "--quiet",
                    "--profile=dev-fast",
                    "-p",
                    "pagewalk-qemu-plugin",
                    "--target-dir",
                ])
                .arg(&target)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .unwrap();
            assert!(status.success());
            target.join("dev-fast/libpagewalk_qemu_plugin.so")
        })
        .clone()
}

/// Compiles a C program, and returns its path.
pub fn compile(name: &str, source: &str) -> String {
    compile_with("-O2", name, source)
}

/// [`compile`] with this optimisation option.
pub fn compile_with(optimisation: &str, name: &str, source: &str) -> String {
    let file = folder().join(format!("{name}.c"));
    let program = folder().join(name);
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc")
        .args([optimisation, "-pthread", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../include"))
        .arg("-o")
        .args([&program, &file])
        .status()
        .unwrap();
    assert!(status.success());
    program.to_str().unwrap().into()
}
