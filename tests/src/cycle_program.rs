//! Scenarios of programs that do the work of a periodic task: the examples of the documentation in
//! C and Python, and programs that violate the protocol.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::launch_after::processes;
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::Scenario;
use crate::usage_error::{self, ENVIRONMENT, RefusalCase, USAGE, case};
use crate::{cycle_program, scenarios};

/// Directory of the documented examples.
const EXAMPLES: &str = concat!(env!("HOROLOG_REPOSITORY"), "docs/examples");

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(&[], cycle_program:
        a_program_in_c_marks_its_phases,
        periods_of_a_python_program_are_distinguished_by_its_states,
        a_failing_program_is_named_and_nothing_is_left,
        invalid_programs_are_refused,
    ))
}

fn cycle(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["cycle", "run"]).args(arguments), TIMEOUT)
}

fn task(output: &Output) -> Result<Value> {
    let result: Value = serde_json::from_slice(&output.stdout)?;
    Ok(result["runs"][0]["nodes"][0]["tasks"][0].clone())
}

fn max_of(task: &Value, times: &str) -> Result<u64> {
    task[times]["max"].as_u64().with_context(|| format!("no {times}: {task}"))
}

fn a_program_in_c_marks_its_phases() -> Result<()> {
    let directory = TempDir::new()?;
    let program = directory.path().join("program");
    let source = Path::new(EXAMPLES).join("cycle_program.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    let compiled = run_to_end(&mut compiler, TIMEOUT)?;
    ensure!(compiled.status.success(), "{compiled:?}");
    let program = program.to_str().context("path is not UTF-8")?;
    let settings = ["--json", "-", "-p", "10ms", "-t", "500ms", "--program", "--", program];
    let output = cycle(&settings)?;
    ensure!(output.status.success(), "{output:?}");
    let task = task(&output)?;
    ensure!(task["periods"] == 50 && task["failed"] == 0 && task["planned"] == 50, "{task}");
    let (computation, execution) =
        (max_of(&task, "computation_ns")?, max_of(&task, "execution_ns")?);
    ensure!(0 < computation && computation <= execution, "{task}");
    ensure!(max_of(&task, "communication_ns")? > 0 && max_of(&task, "barrier_ns")? == 0, "{task}");
    ensure!(processes(program)?.is_empty(), "program still runs");
    Ok(())
}

fn periods_of_a_python_program_are_distinguished_by_its_states() -> Result<()> {
    let directory = TempDir::new()?;
    let (file, log) = (directory.path().join("tasks.toml"), directory.path().join("log.csv"));
    let tasks = format!(
        "[[task]]\nname = \"tracks\"\nperiod = \"10ms\"\npolicy = \"other\"\n\
         program = [\"python3\", \"{EXAMPLES}/cycle_program.py\"]\n\
         states = [\"data simulation\", \"unused\", \"fault tolerance\"]\n"
    );
    fs::write(&file, tasks)?;
    let (file, log_name) = (file.to_str().context("no text")?, log.to_str().context("no text")?);
    let output = cycle(&[file, "-t", "500ms", "--json", "-", "--log", log_name])?;
    ensure!(output.status.success(), "{output:?}");
    let task = task(&output)?;
    let states = task["states"].as_array().context("no states")?;
    let state_periods: Vec<_> =
        states.iter().map(|state| (state["name"].as_str(), state["periods"].as_u64())).collect();
    let wanted = [(Some("data simulation"), Some(35)), (Some("fault tolerance"), Some(15))];
    ensure!(state_periods == wanted, "{task}");
    let text = fs::read_to_string(&log)?;
    let of = |state: &str| text.lines().filter(|line| line.ends_with(state)).count();
    ensure!((of(",data simulation"), of(",fault tolerance")) == (35, 15), "{text}");
    Ok(())
}

/// Returns a shell script that reports readiness and executes `third` at its third release.
fn failing_script(third: &str) -> String {
    format!(
        "echo ready >&3; while set -- $(dd bs=128 count=1 <&3 2>/dev/null); do \
         [ $1 = release ] || exit 0; [ $2 = 2 ] && {{ {third}; }}; echo begin >&3; echo end >&3; done"
    )
}

fn a_failing_program_is_named_and_nothing_is_left() -> Result<()> {
    for (third, named) in [
        ("exit 1", "unexpected end of the program"),
        ("sleep 61.75", "no answer within --timeout"),
        ("echo hello >&3", "unknown mark"),
        ("echo end >&3", "mark out of order"),
        ("echo state dry >&3", "marked state 'dry' is not"),
    ] {
        let script = failing_script(third);
        let settings = ["-p", "20ms", "-t", "10s", "--timeout", "500ms", "--program", "--"];
        let output = cycle(&[&["--json", "-"], &settings[..], &["sh", "-c", &script]].concat())?;
        ensure!(output.status.code() == Some(1), "{third}: {output:?}");
        let task = task(&output)?;
        ensure!(task["periods"] == 3 && task["failed"] == 1, "{third}: {task}");
        let is_named = String::from_utf8_lossy(&output.stdout).contains(named);
        ensure!(is_named, "{third}: {output:?}");
    }
    ensure!(processes("sleep 61.75")?.is_empty(), "'sleep 61.75' still runs");
    // A period that the program marks as failed does not end the run.
    let script = failing_script("echo begin >&3; echo end failed >&3; continue");
    let settings = ["--json", "-", "-p", "20ms", "-t", "200ms", "--program", "--"];
    let output = cycle(&[&settings[..], &["sh", "-c", &script]].concat())?;
    let task = task(&output)?;
    ensure!(task["periods"] == 10 && task["failed"] == 1, "{task}");
    ensure!(task["failure"] == Value::Null, "{task}");
    Ok(())
}

const INVALID_PROGRAMS: &[RefusalCase] = &[
    case(&["-p", "20ms", "--program"], USAGE, &["COMMAND"]),
    case(
        &["-p", "20ms", "-t", "100ms", "--program", "--", "/nowhere/at/all"],
        ENVIRONMENT,
        &["node1 is not ready", "cannot start '/nowhere/at/all'"],
    ),
    case(
        &["-p", "20ms", "-t", "1s", "--timeout", "200ms", "--program", "--", "sleep", "61.5"],
        ENVIRONMENT,
        &["node1 is not ready", "its first mark must be 'ready'"],
    ),
    case(
        &["-p", "20ms", "--policy", "deadline", "--program", "--", "true"],
        USAGE,
        &["policy deadline does not support tasks that start programs"],
    ),
    case(
        &["-p", "20ms", "--compare", "fifo,deadline", "--", "true"],
        USAGE,
        &["policy deadline does not support tasks that start programs"],
    ),
];

fn invalid_programs_are_refused() -> Result<()> {
    usage_error::check_all_refused(INVALID_PROGRAMS, cycle)?;
    ensure!(processes("sleep 61.5")?.is_empty(), "'sleep 61.5' still runs");
    let directory = TempDir::new()?;
    let path = directory.path().join("tasks.toml");
    for (lines, named) in [
        ("units = 1\nstates = [\"a\"]", "line 5: only a program reports states"),
        ("program = [\"true\"]\nstates = [\"a,b\"]", "invalid state name 'a,b'"),
        ("program = [\"true\"]\nstates = [\"a\", \"a\"]", "state 'a' occurs twice"),
        ("program = []", "the program is missing"),
    ] {
        fs::write(&path, format!("[[task]]\nname = \"a\"\nperiod = \"20ms\"\n{lines}\n"))?;
        let output = cycle(&[path.to_str().context("no text")?])?;
        usage_error::check_refusal(&output, USAGE, &[named])?;
    }
    Ok(())
}
