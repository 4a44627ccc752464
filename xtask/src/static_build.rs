//! What is tested of `scripts/static.sh` without the build, which takes too long for each run: that
//! the script, told to check, finds the sources in C that it compiles and names what is missing.

use std::path::Path;
use std::process::{Command, Output};

use crate::cargo;

/// With a cache that has nothing.
fn script(arguments: &[&str]) -> Output {
    let nowhere = Path::new("/nonexistent");
    let mut command = Command::new(cargo::root().join("scripts/static.sh"));
    command.args(arguments).env("HOROLOG_CACHE", nowhere).output().unwrap()
}

#[test]
fn what_is_missing_is_named_and_the_sources_are_there() {
    for machine in ["x86_64", "aarch64"] {
        let output = script(&["--check", machine]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stdout.contains("static: zig "), "{stdout}");
        // The script fails with a message here if a source is missing.
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn other_machines_are_refused() {
    let output = script(&["--check", "sparc"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "), "{output:?}");
}
