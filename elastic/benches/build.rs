//! Compiles the C++ map that is compared.

fn main() {
    println!("cargo::rerun-if-changed=src/unordered_map.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .file("src/unordered_map.cpp")
        .compile("unordered_map");
}
