//! Tests of `scripts/static.sh` without the build, which takes too long: with `--check` the script
//! finds the sources in C that it compiles and names missing downloads.

use std::path::Path;
use std::process::{Command, Output};

use crate::cargo;

/// Runs the script with an empty cache.
fn run_script(arguments: &[&str]) -> Output {
    let nowhere = Path::new("/nonexistent");
    let mut command = Command::new(cargo::root().join("scripts/static.sh"));
    command.args(arguments).env("HOROLOG_CACHE", nowhere).output().unwrap()
}

#[test]
fn missing_downloads_are_named_and_sources_are_found() {
    for machine in ["x86_64", "aarch64"] {
        let output = run_script(&["--check", machine]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stdout.contains("static: missing: zig "), "{stdout}");
        // The script fails with a message here if a source is missing.
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn other_architectures_are_refused() {
    let output = run_script(&["--check", "sparc"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "), "{output:?}");
}
