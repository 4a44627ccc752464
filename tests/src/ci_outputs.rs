//! Scenarios of outputs for continuous integration: valid `JUnit` XML that agrees with the exit
//! status, a summary to which several commands append, and the example workflow, whose commands are
//! executed unchanged.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{binary, is_running, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{ci_outputs, scenarios};

const TIMEOUT: Duration = Duration::from_mins(1);
const REPOSITORY: &str = env!("HOROLOG_REPOSITORY");
/// Measurement that takes hardly any time.
const SIMULATE_COMMAND: [&str; 5] = ["clock", "simulate", "--duration", "10m", "--no-store"];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[Need::Peer("xmllint")], ci_outputs:
        junit_agrees_with_the_exit_status,
        existing_files_are_not_overwritten,
    ));
    all.extend(scenarios!(&[Need::Root, Need::Peer("xmllint"), Need::Peer("python3")], ci_outputs:
        the_example_workflow_runs,
    ));
    all
}

fn horolog(arguments: &[&str], directory: &Path) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(arguments).current_dir(directory), TIMEOUT)
}

/// Validates a `JUnit` file, and returns the number of its failures and errors.
fn failure_count(file: &Path) -> Result<usize> {
    let mut command = Command::new("xmllint");
    command
        .args(["--noout", "--schema"])
        .arg(Path::new(REPOSITORY).join("tests/src/junit.xsd"))
        .arg(file);
    let output = run_to_end(&mut command, TIMEOUT)?;
    let xml = fs::read_to_string(file)?;
    ensure!(output.status.success(), "{}\n{xml}", String::from_utf8_lossy(&output.stderr));
    let wrong = xml.matches("<failure ").count() + xml.matches("<error ").count();
    let counted = format!(
        "failures=\"{}\" errors=\"{}\"",
        xml.matches("<failure ").count(),
        xml.matches("<error ").count()
    );
    ensure!(xml.matches(&counted).count() == 2, "{counted}: {xml}");
    Ok(wrong)
}

fn junit_agrees_with_the_exit_status() -> Result<()> {
    let directory = TempDir::new()?;
    let golden = |name: &str| format!("{REPOSITORY}crates/record/samples/{name}.json");
    let load = golden("load");
    let compare = ["runs", "compare", &load, &load];
    let unmeasured = ["path", "tcp", "127.0.0.1:1", "--no-store"];
    let passed = [&SIMULATE_COMMAND[..], &["--fail-if", "max>1s"]].concat();
    let broken =
        [&SIMULATE_COMMAND[..], &["--fail-if", "max>1ns", "--fail-if", "mean>1s"]].concat();
    let cases: [(&[&str], i32, usize); 5] = [
        (&SIMULATE_COMMAND, 0, 0),
        (&passed, 0, 0),
        (&broken, 1, 1),
        (&unmeasured, 3, 1),
        (&compare, 0, 0),
    ];
    for (arguments, status, wrong) in cases {
        let arguments = [arguments, &["--junit", "x.xml", "--summary", "all.md"]].concat();
        let output = horolog(&arguments, directory.path())?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
        let found = failure_count(&directory.path().join("x.xml"))?;
        ensure!(found == wrong, "{arguments:?}: {found} failed cases");
    }
    let summary = fs::read_to_string(directory.path().join("all.md"))?;
    let titles = summary.lines().filter(|line| line.starts_with("## ")).count();
    ensure!(titles == cases.len(), "{summary}");
    ensure!(summary.contains("## horolog clock simulate: 1 of 3 checks failed"), "{summary}");
    ensure!(summary.contains("| max&#62;1ns | "), "{summary}");
    Ok(())
}

fn existing_files_are_not_overwritten() -> Result<()> {
    let directory = TempDir::new()?;
    for (more, words) in [
        (&["--junit", "x", "--summary", "x"][..], "--junit and --summary name the same file"),
        (&["--json", "x", "--junit", "./x"], "--json and --junit name the same file"),
        (&["--junit", "-"], "--junit takes a file"),
        (&["--summary", "-"], "--summary takes a file"),
    ] {
        let output = horolog(&[&SIMULATE_COMMAND, more].concat(), directory.path())?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2) && stderr.contains(words), "{stderr}");
        ensure!(fs::read_dir(directory.path())?.next().is_none(), "{more:?} left files");
    }
    let output =
        horolog(&[&SIMULATE_COMMAND[..], &["--junit", "no/x"]].concat(), directory.path())?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    Ok(())
}

/// Returns name and script of each step of the example workflow that runs commands, read by a YAML
/// parser.
fn steps() -> Result<Vec<(String, String)>> {
    let workflow = Path::new(REPOSITORY).join("docs/examples/ci-workflow.yml");
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    // Debian's interpreter, for which the YAML parser is installed.
    let mut command = Command::new("/usr/bin/python3");
    let output = run_to_end(command.args(["-c", script]).arg(workflow), TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let workflow: Value = serde_json::from_slice(&output.stdout)?;
    let steps = workflow["jobs"]["qualify"]["steps"].as_array().context("no steps")?;
    let runs = steps.iter().filter_map(|step| {
        Some((step["name"].as_str()?.to_owned(), step["run"].as_str()?.to_owned()))
    });
    Ok(runs.collect())
}

/// Checks the example workflow in two runs, of which the second has a baseline. Whether a limit
/// fails depends on the host, but the files must agree with the exit status.
fn the_example_workflow_runs() -> Result<()> {
    let directory = TempDir::new()?;
    // The lab provides a separate loopback interface.
    let lab = Lab::new(&LabConfig::default())?;
    let programs = directory.path().join("bin");
    fs::create_dir(&programs)?;
    symlink(binary()?, programs.join("horolog"))?;
    let steps = steps()?;
    ensure!(steps.len() == 6, "{steps:?}");
    for has_baseline in [false, true] {
        let mut stop = WorkflowServerStop(None);
        for (name, script) in &steps {
            match &**name {
                "install" => continue,
                "compare" if !has_baseline => continue,
                "start the server" => stop.0 = Some(directory.path().to_owned()),
                "stop the server" => stop.0 = None,
                _ => {}
            }
            step(lab.client(), name, script, directory.path(), &programs)?;
            if name == "stop the server" {
                await_exit(directory.path())?;
            }
        }
    }
    let summary = fs::read_to_string(directory.path().join("summary.md"))?;
    let titles: Vec<_> = summary.lines().filter(|line| line.starts_with("## ")).collect();
    ensure!(titles.len() == 3 && titles[2].starts_with("## horolog runs compare "), "{titles:?}");
    Ok(())
}

fn step(host: &LabHost, name: &str, script: &str, directory: &Path, programs: &Path) -> Result<()> {
    let mut command = host.command("bash");
    command.args(["-eo", "pipefail", "-c", script]).current_dir(directory);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", programs.display()));
    command.env("GITHUB_STEP_SUMMARY", directory.join("summary.md"));
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let junit = match name {
        "qualify" => directory.join("junit/load.xml"),
        "compare" => directory.join("junit/compare.xml"),
        _ => {
            ensure!(output.status.success(), "{name}: {stderr}");
            return Ok(());
        }
    };
    let is_wrong = failure_count(&junit)? > 0;
    let status = output.status.code();
    ensure!(status == Some(i32::from(is_wrong)), "{name}: {status:?}, {is_wrong}: {stderr}");
    Ok(())
}

/// Waits for the exit of the workflow's server, whose port the next one uses.
fn await_exit(directory: &Path) -> Result<()> {
    let pid = fs::read_to_string(directory.join("server.pid"))?.trim().parse()?;
    let begun = Instant::now();
    while is_running(pid) {
        ensure!(begun.elapsed() < TIMEOUT, "the server does not exit");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends the workflow's server if an earlier step fails.
struct WorkflowServerStop(Option<PathBuf>);

impl Drop for WorkflowServerStop {
    fn drop(&mut self) {
        let Some(directory) = self.0.take() else { return };
        let script = "kill \"$(cat server.pid)\"";
        let _ = Command::new("sh").args(["-c", script]).current_dir(directory).status();
    }
}
