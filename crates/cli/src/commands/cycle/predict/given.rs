//! What a prediction is made of: the task file, results of other commands, and what is measured
//! now.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use horolog_cycle::predict::{Measured, Source};
use horolog_cycle::task::{FILE_MAX, TaskSet};
use horolog_probe::host::all::{self, HostAllOptions, Watch};
use horolog_record::{
    CYCLE_SCHEMA, CycleResult, HOST_ALL_SCHEMA, HOST_CLOCK_SCHEMA, HOST_INTERRUPT_SCHEMA,
    HOST_SWITCH_SCHEMA, HOST_TIMER_SCHEMA, HostPart, PATH_UDP_SCHEMA,
};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Progress};

/// The longest result that is read, in bytes: one of many cores with its histograms has a few MB.
const RESULT_MAX: u64 = 256 << 20;
/// Measured as tasks run: above most others.
const PRIORITY: u8 = 80;
const MEASURED: &str = "the measurement now";

/// Reads a task file.
pub(super) fn tasks(path: &Path) -> Result<TaskSet, Failure> {
    let text = text(path, FILE_MAX)?;
    TaskSet::parse(&text).map_err(|fault| Failure::usage(format!("{}, {fault}", path.display())))
}

/// The costs in a result of another command.
pub(in crate::commands::cycle) fn costs(path: &Path) -> Result<Vec<Source>, Failure> {
    let refused = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let (schema, read) = result(path)?;
    let measured = of_schema(&schema, read).map_err(refused)?;
    Ok(named(&path.display().to_string(), measured))
}

/// What a run of tasks measured.
pub(super) fn run(path: &Path) -> Result<CycleResult, Failure> {
    let refused = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    match result(path)? {
        (schema, read) if schema == CYCLE_SCHEMA => {
            serde_json::from_value(read).map_err(|error| refused(format!("no result: {error}")))
        }
        (schema, _) => {
            Err(refused(format!("its schema is {schema}; give a result of 'cycle run'")))
        }
    }
}

/// A result with its schema.
fn result(path: &Path) -> Result<(String, Value), Failure> {
    let read: Value = serde_json::from_str(&text(path, RESULT_MAX)?)
        .map_err(|error| Failure::usage(format!("{}: no result: {error}", path.display())))?;
    let schema = read.get("schema").and_then(Value::as_str).unwrap_or("none").to_owned();
    Ok((schema, read))
}

fn of_schema(schema: &str, read: Value) -> Result<Vec<Measured>, String> {
    use serde_json::from_value;
    let measured = match schema {
        HOST_ALL_SCHEMA => from_value(read).map(Measured::parts),
        HOST_SWITCH_SCHEMA => from_value(read).map(|one| vec![Measured::Switch(Box::new(one))]),
        HOST_TIMER_SCHEMA => from_value(read).map(|one| vec![Measured::Timer(Box::new(one))]),
        HOST_INTERRUPT_SCHEMA => {
            from_value(read).map(|one| vec![Measured::Interrupt(Box::new(one))])
        }
        HOST_CLOCK_SCHEMA => from_value(read).map(|one| vec![Measured::Clock(Box::new(one))]),
        PATH_UDP_SCHEMA => from_value(read).map(|one| vec![Measured::Path(Box::new(one))]),
        _ => {
            return Err(format!(
                "its schema is {schema}; give a result of 'host all', 'host timer', 'host switch', \
                 'host interrupt', 'host clock' or 'path udp'"
            ));
        }
    };
    measured.map_err(|error| format!("no result: {error}"))
}

fn named(name: &str, measured: Vec<Measured>) -> Vec<Source> {
    let source = |measured| Source { name: name.to_owned(), measured };
    measured.into_iter().map(source).collect()
}

/// Measures what this machine costs.
pub(super) fn measured(time: Duration) -> Result<Vec<Source>, Failure> {
    let options = HostAllOptions {
        time,
        parts: vec![HostPart::Clock, HostPart::Timer, HostPart::Switch, HostPart::Interrupt],
        priority: Some(PRIORITY),
        hold_awake: true,
        command: output::command_line(),
    };
    let progress = Progress::new();
    let watch = Watch {
        doing: &|part, what| progress.doing(&format!("{}: {what}", part.name())),
        done: &|_| {},
        is_over: &|| output::flow().is_break(),
    };
    let result = all::run(&options, watch);
    progress.finish();
    if output::flow().is_break() {
        return Err(Failure::environment("ended before what the machine costs was measured"));
    }
    let why: Vec<String> = result.parts.iter().flat_map(|part| part.why.clone()).collect();
    let found = named(MEASURED, Measured::parts(result));
    if found.is_empty() {
        return Err(Failure::environment(format!("nothing was measured: {}", why.join("; "))));
    }
    Ok(found)
}

/// Reads a text that is no longer than this.
pub(in crate::commands::cycle) fn text(path: &Path, most: u64) -> Result<String, Failure> {
    let refused = |why: String| Failure::usage(format!("cannot read {}: {why}", path.display()));
    let file = fs::File::open(path).map_err(|error| refused(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(most + 1).read_to_string(&mut text);
    match read.map_err(|error| refused(error.to_string()))? as u64 {
        length if length > most => Err(refused(format!("it is longer than {most} bytes"))),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_known_by_their_schema() {
        let why = of_schema("horolog.load/1", Value::Null).unwrap_err();
        assert!(why.starts_with("its schema is horolog.load/1; give a result of"), "{why}");
        let why = of_schema(HOST_TIMER_SCHEMA, Value::Null).unwrap_err();
        assert!(why.starts_with("no result: "), "{why}");
    }

    #[test]
    fn what_is_no_result_is_said_with_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        fs::write(&path, "{}").unwrap();
        let why = costs(&path).unwrap_err().to_string();
        assert!(why.contains("x.json: its schema is none; "), "{why}");
        fs::write(&path, "{").unwrap();
        assert!(costs(&path).unwrap_err().to_string().contains("x.json: no result: "));
        assert!(matches!(tasks(&directory.path().join("no")), Err(Failure::Usage(_))));
        assert!(text(&path, 0).unwrap_err().to_string().contains("longer than 0 bytes"));
    }
}
