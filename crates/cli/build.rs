//! Compresses the binary's debug information, which else takes three times the space of its code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}
