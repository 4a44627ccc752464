//! Fixtures of a testbed: files, results and certificates that pages name, substitutes for the
//! reader's programs, and routes and interfaces with the pages' names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabHost};
use horolog_record::STORE_VARIABLE;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use super::page::{Page, path};
use super::table;
use crate::process::{TIMEOUT, binary, run_to_end, write_secret};

const SAMPLES: &str = "crates/record/samples";
/// File name of the reader's result store.
pub(super) const STORE: &str = "runs.sqlite";
const CLOCK_LOG: &str = "fuzz/seeds/record_clock_log/server";
const LEAP_SECONDS: &str = "crates/server/testdata/leap-seconds-2016.list";

/// Creates the files that pages name, and the substitutes for the reader's programs.
pub(super) fn create_files(directory: &Path) -> Result<()> {
    for name in ["bin", "here", "home", "run", "tmp"] {
        fs::create_dir(directory.join(name))?;
    }
    let copied = Command::new("cp").args(["-a", "/etc"]).arg(directory.join("etc")).status()?;
    ensure!(copied.success(), "cannot copy /etc");
    std::os::unix::fs::symlink(binary()?, directory.join("bin/horolog"))?;
    std::os::unix::fs::symlink(binary()?, directory.join("bin/ntpperf"))?;
    for (name, script) in table::PROGRAMS {
        let script = script.replace("REPOSITORY", &path("").display().to_string());
        write_executable(&directory.join("bin").join(name), &script)?;
    }
    let here = directory.join("here");
    fs::create_dir(here.join("usr-local-bin"))?;
    for (name, text) in table::FILES {
        write_secret(&here.join(name), text)?;
    }
    for (name, page, begins) in table::FILES_FROM_PAGES {
        let page = Page::read(page)?;
        let text = page.data(begins).with_context(|| format!("cannot find {name} on its page"))?;
        fs::write(here.join(name), text)?;
    }
    fs::copy(path(CLOCK_LOG), here.join("errors.jsonl"))?;
    for (name, golden) in table::RESULTS {
        fs::copy(path(SAMPLES).join(golden), here.join(name))
            .with_context(|| (*golden).to_owned())?;
    }
    store_runs(directory)?;
    for name in ["step", "control", "log"] {
        write_executable(&here.join(name), "exit 0")?;
    }
    let build_directory = directory.join("home/.cache/horolog/target/release");
    fs::create_dir_all(&build_directory)?;
    std::os::unix::fs::symlink(binary()?, build_directory.join("horolog"))?;
    std::os::unix::fs::symlink(path("packaging"), here.join("packaging"))?;
    std::os::unix::fs::symlink(path("plans"), here.join("plans"))?;
    fs::copy(binary()?, here.join("horolog"))?;
    create_identity(directory)?;
    let names = table::FAR_HOST_NAMES.join(" ");
    let hosts = directory.join("etc/hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost\n192.0.2.1 {names}\n"))?;
    Ok(())
}

/// Stores twelve load results for the reader, the eleventh with a name.
fn store_runs(directory: &Path) -> Result<()> {
    let golden = fs::read_to_string(path(SAMPLES).join("load.json"))?;
    let result: Value = serde_json::from_str(&golden)?;
    let lines = (1..=12).map(|minute| {
        let mut result = result.clone();
        result["started"] = format!("2026-01-30T09:{minute:02}:00.000Z").into();
        format!("{result}\n")
    });
    let file = directory.join("tmp/runs.jsonl");
    fs::write(&file, lines.collect::<String>())?;
    let file = file.to_string_lossy();
    for arguments in [&["import", &*file][..], &["name", "11", "before-the-upgrade"]] {
        let mut command = Command::new(binary()?);
        command.arg("runs").args(arguments).env(STORE_VARIABLE, directory.join(STORE));
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(fs::remove_file(&*file)?)
}

fn write_executable(path: &Path, script: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Creates the certificate and key of time.example, and the master secret of its servers.
fn create_identity(directory: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let names = ["time.example".to_owned(), "192.0.2.1".to_owned()];
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    for name in ["here/ca.pem", "here/server.pem"] {
        fs::write(directory.join(name), certificate.pem())?;
    }
    let etc = directory.join("etc");
    for below in ["horolog", "ssl/private"] {
        fs::create_dir_all(etc.join(below))?;
    }
    fs::write(etc.join("ssl/time.example.pem"), certificate.pem())?;
    write_secret(&etc.join("ssl/private/time.example.key"), &key.serialize_pem())?;
    fs::copy(path("packaging/horolog.toml"), etc.join("horolog/horolog.toml"))?;
    fs::copy(path(LEAP_SECONDS), directory.join("here/leap-seconds.list"))?;
    write_secret(&etc.join("horolog/ntp.keys"), table::KEYS)?;
    write_secret(&etc.join("horolog/master-secret"), &"5a".repeat(32))
}

/// Adds routes for simulated clients, and interfaces with the pages' names.
pub(super) fn configure_networks(lab: &Lab) -> Result<()> {
    let run = |host: &LabHost, script: &str| -> Result<()> {
        let mut command = host.command("sh");
        let output = run_to_end(command.args(["-ec", script]), TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    run(lab.server(), table::NEAR_NETWORK)?;
    run(lab.client(), table::FAR_NETWORK)
}
