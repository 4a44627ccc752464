//! Compiles every `bpf/*.bpf.c` with clang into `OUT_DIR`, from where the loader includes them.

#![allow(clippy::expect_used, reason = "a build script that cannot go on says why and stops")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let mut sources: Vec<_> = fs::read_dir("bpf")
        .expect("the bpf directory stands beside this script")
        .map(|entry| entry.expect("readable directory").path())
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();
    for source in sources {
        compile(&source, &out, &libbpf);
    }
}

fn compile(source: &Path, out: &Path, libbpf: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let here = env::current_dir().expect("cargo runs this in the crate's directory");
    let name = source.file_stem().expect("a file has a name");
    let object = out.join(name).with_extension("o");
    let status = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        .args(["-target", "bpf", "-mcpu=v3"])
        // Makes the object independent of the build directory.
        .arg(format!("-ffile-prefix-map={libbpf}=libbpf"))
        .arg(format!("-ffile-prefix-map={}=.", here.display()))
        .args(["-I", libbpf])
        .args(multiarch_include())
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap_or_else(|error| panic!("{clang}: {error}; install clang or set CLANG"));
    assert!(status.success(), "{clang} could not compile {}", source.display());
}

/// Returns the clang arguments for the include path of `asm/types.h` on Debian, which only a native
/// compiler searches by default; none where it does not exist.
fn multiarch_include() -> Vec<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let path = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&path).is_dir() { vec!["-I".to_owned(), path] } else { Vec::new() }
}
