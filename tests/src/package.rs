//! Scenarios of the Debian package: it is built, installed on a clean system, started by that
//! system's systemd, queried by chronyd from another lab host, upgraded, removed and purged. The
//! package consists of files that `make scenarios` has built and written.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use tempfile::TempDir;

use crate::debian_root::DebianSystem;
use crate::interop_clients::{chronyd, offset_of};
use crate::process::{binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{package, scenarios};

const TIMEOUT: Duration = Duration::from_mins(2);
const ERROR_MAX_S: f64 = 0.001;
const SCRIPT: &str = concat!(env!("HOROLOG_REPOSITORY"), "scripts/deb.sh");
const CONFIGURATION: &str = "/etc/horolog/horolog.toml";

/// Unit and script of a service that writes the server's state to a file, and powers the system off
/// on request.
const OBSERVER_UNIT: &str = r"
[Unit]
Wants=horolog.service
After=horolog.service
[Service]
ExecStart=/bin/sh /observe
";
const OBSERVER_SCRIPT: &str = r"
exec > /observed.part 2>&1
systemctl is-active horolog
stat -c %U /proc/$(systemctl show -P MainPID horolog)
horolog status
mv /observed.part /observed
while ! [ -e /enough ]; do sleep 0.1; done
systemctl reload horolog && echo reloaded >> /ended
systemctl stop horolog
systemctl show -p Result horolog >> /ended
systemctl poweroff --force
";

pub(crate) fn all() -> Vec<Scenario> {
    const BUILDING: &[Need] = &[Need::Peer("dpkg-deb"), Need::Peer("dpkg-shlibdeps")];
    const INSTALLING: &[Need] = &[
        Need::Root,
        Need::Systemd,
        Need::DebianRoot,
        Need::Peer("dpkg-deb"),
        Need::Peer("dpkg-shlibdeps"),
        Need::Peer("setpriv"),
        Need::Peer("chronyd"),
    ];
    let mut all = Vec::from(scenarios!(BUILDING, package:
        builds_are_identical_and_links_resolve,
    ));
    all.extend(scenarios!(&[Need::Peer("mandoc")], package: manual_pages_are_valid));
    all.extend(scenarios!(INSTALLING, package: a_clean_system_serves_time));
    all
}

/// Builds the package in a directory, with faster and weaker compression than for a release.
pub(crate) fn build(into: &Path) -> Result<PathBuf> {
    let binary = binary()?;
    let papers = env::var_os("HOROLOG_PAPERS").map(PathBuf::from);
    let default_papers = || Some(binary.parent()?.parent()?.join("papers"));
    let mut command = Command::new(SCRIPT);
    command
        .arg(&binary)
        .arg(papers.or_else(default_papers).context("no directory of papers")?)
        .arg(into);
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

/// Builds of the same binary yield the same package, which has the files that its pages link to.
fn builds_are_identical_and_links_resolve() -> Result<()> {
    let directories = [TempDir::new()?, TempDir::new()?];
    let files = [build(directories[0].path())?, build(directories[1].path())?];
    ensure!(files[0].file_name() == files[1].file_name(), "{files:?}");
    let [one, other] = [fs::read(&files[0])?, fs::read(&files[1])?];
    ensure!(one == other, "packages differ: {} and {} bytes", one.len(), other.len());
    check_links(&files[0], &directories[0].path().join("tree"))
}

/// Unpacks a package into a directory and checks that it has the files that its pages link to.
fn check_links(package: &Path, tree: &Path) -> Result<()> {
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(package).arg(tree);
    ensure!(run_to_end(&mut unpack, TIMEOUT)?.status.success(), "cannot unpack the package");
    let documents = tree.join("usr/share/doc/horolog");
    let (mut links, mut broken) = (0, Vec::new());
    for folder in [documents.clone(), documents.join("docs")] {
        for entry in fs::read_dir(&folder)? {
            let page = entry?.path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            for target in relative_links(&fs::read_to_string(&page)?) {
                links += 1;
                if !folder.join(&target).exists() {
                    broken.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    ensure!(links > 100, "{links} links in all pages");
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// Returns the files that a page links to, as written in the links.
fn relative_links(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = targets.filter_map(|(target, _)| target.split('#').next());
    let is_file = |target: &&str| {
        !target.is_empty() && !target.contains("://") && !target.contains(char::is_whitespace)
    };
    files.filter(is_file).map(str::to_owned).collect()
}

/// `mandoc -Tlint` accepts the manual pages.
fn manual_pages_are_valid() -> Result<()> {
    let directory = TempDir::new()?;
    let mut write = Command::new(binary()?);
    write.args(["man", "--date", "2026-01-31"]).arg(directory.path());
    ensure!(run_to_end(&mut write, TIMEOUT)?.status.success(), "cannot write manual pages");
    let mut lint = Command::new("mandoc");
    lint.args(["-Tlint", "-Wwarning"]);
    for page in fs::read_dir(directory.path())? {
        lint.arg(page?.path());
    }
    let output = run_to_end(&mut lint, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// The package is installed and serves time; its purge leaves nothing behind.
fn a_clean_system_serves_time() -> Result<()> {
    let directory = TempDir::new()?;
    let package = build(directory.path())?;
    let system = DebianSystem::unpack()?;
    let before = system.paths()?;
    fs::copy(&package, system.path("/var/cache/horolog.deb"))?;
    system.run("apt-get install -y --no-install-recommends /var/cache/horolog.deb")?;
    check_installed(&system)?;
    check_commands(&system)?;

    let text = system.read(CONFIGURATION)? + "\nlocal = true\n";
    system.write(CONFIGURATION, &text)?;
    system.run(&format!("horolog serve --check --config {CONFIGURATION}"))?;
    system.run("systemctl enable horolog")?;
    check_service(&system)?;

    system.run("apt-get install -y --reinstall /var/cache/horolog.deb")?;
    ensure!(system.read(CONFIGURATION)? == text, "the upgrade changed the configuration");
    system.run("apt-get remove -y horolog")?;
    ensure!(system.read(CONFIGURATION)? == text, "the removal changed the configuration");
    system.run("apt-get purge -y horolog")?;
    let after = system.paths()?;
    let left: Vec<_> = after.difference(&before).collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

/// Checks that the package is complete, and that its services are disabled.
fn check_installed(system: &DebianSystem) -> Result<()> {
    let changed = system.run("dpkg --verify horolog")?;
    ensure!(changed.is_empty(), "{changed}");
    let user = system.run("getent passwd _horolog")?;
    ensure!(user.contains(":/nonexistent:/usr/sbin/nologin"), "{user}");
    let conffiles = system.run("dpkg-query -W -f '${Conffiles}' horolog")?;
    for name in [CONFIGURATION, "/etc/horolog/policy.toml"] {
        ensure!(conffiles.contains(name), "{name} is no conffile: {conffiles}");
    }
    for service in ["horolog", "horolog-agent"] {
        let state = system.run(&format!("systemctl is-enabled {service} || true"))?;
        ensure!(state == "disabled\n", "{service}: {state}");
    }
    system.run("systemd-analyze verify --man=no horolog.service horolog-agent.service")?;
    Ok(())
}

/// Checks the program, its manual, its completions and its ntpperf name.
fn check_commands(system: &DebianSystem) -> Result<()> {
    let version = system.run("horolog --version")?;
    ensure!(version.starts_with("horolog "), "{version}");
    let page = system.run("zcat /usr/share/man/man1/horolog-load-ntp.1.gz")?;
    ensure!(page.contains(".TH horolog-load-ntp 1 "), "{page}");
    let other = system.run("/usr/lib/horolog/ntpperf --help")?;
    ensure!(other.contains("horolog ntpperf"), "{other}");
    let completed = system.run(
        "bash -c '. /usr/share/bash-completion/completions/horolog; COMP_WORDS=(horolog lo); \
         COMP_CWORD=1; _horolog horolog lo horolog; echo \"${COMPREPLY[@]}\"'",
    )?;
    ensure!(completed == "load\n", "{completed}");
    Ok(())
}

/// Checks that systemd starts the server without privileges, and that it answers another host.
fn check_service(system: &DebianSystem) -> Result<()> {
    system.write("/etc/systemd/system/observer.service", OBSERVER_UNIT)?;
    system.write("/observe", OBSERVER_SCRIPT)?;
    let lab = Lab::new(&LabConfig::default())?;
    let mut booted = system.boot(lab.server(), "observer.service")?;
    let observed = system.path("/observed");
    booted.wait_until_ready(|| observed.exists())?;
    let contents = system.read("/observed")?;
    ensure!(contents.starts_with("active\n_horolog\n{"), "{contents}\n{}", journal(system));
    let offset_s = offset_of(&chronyd(lab.client(), lab.server().first_interface().ipv4.into())?)?;
    ensure!(offset_s.abs() < ERROR_MAX_S, "chronyd reads {offset_s} s");
    system.write("/enough", "")?;
    booted.wait_for_end()?;
    let ended = system.read("/ended")?;
    ensure!(ended == "reloaded\nResult=success\n", "{ended}\n{}", journal(system));
    let files = ["/observe", "/observed", "/enough", "/ended"];
    system.run(&format!("rm /etc/systemd/system/observer.service {}", files.join(" ")))?;
    Ok(())
}

/// Returns the journal of the system.
fn journal(system: &DebianSystem) -> String {
    let script = "journalctl --no-pager -D /var/log/journal || true";
    system.run(script).unwrap_or_else(|error| format!("{error:#}"))
}
