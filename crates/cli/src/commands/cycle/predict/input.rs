//! Input of a prediction: the task file, results of other commands, and costs measured now.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use horolog_cycle::predict::{CostInput, CostRecord};
use horolog_cycle::task::{FILE_MAX, TaskSet};
use horolog_probe::host::all::{self, HostAllOptions, HostCallbacks};
use horolog_record::{
    CYCLE_SCHEMA, CycleResult, HOST_ALL_SCHEMA, HOST_CLOCK_SCHEMA, HOST_INTERRUPT_SCHEMA,
    HOST_SWITCH_SCHEMA, HOST_TIMER_SCHEMA, HostMeasurement, PATH_UDP_SCHEMA,
};
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// The longest accepted result, in bytes: one of many cores with its histograms has a few MB.
const RESULT_MAX: u64 = 256 << 20;
/// Priority of the measurement, as of tasks: above most others.
const PRIORITY: u8 = 80;
const MEASURED: &str = "the measurement now";

/// Reads a task file.
pub(super) fn tasks(path: &Path) -> Result<TaskSet, CommandFailure> {
    let text = text(path, FILE_MAX)?;
    TaskSet::parse(&text)
        .map_err(|fault| CommandFailure::usage(format!("{}, {fault}", path.display())))
}

/// The costs in a result of another command.
pub(in crate::commands::cycle) fn costs(path: &Path) -> Result<Vec<CostInput>, CommandFailure> {
    let refused = |why: String| CommandFailure::usage(format!("{}: {why}", path.display()));
    let (schema, read) = result(path)?;
    let measured = of_schema(&schema, read).map_err(refused)?;
    Ok(named(&path.display().to_string(), measured))
}

/// The result of a run of tasks.
pub(super) fn run(path: &Path) -> Result<CycleResult, CommandFailure> {
    let refused = |why: String| CommandFailure::usage(format!("{}: {why}", path.display()));
    match result(path)? {
        (schema, read) if schema == CYCLE_SCHEMA => {
            serde_json::from_value(read).map_err(|error| refused(format!("not a result: {error}")))
        }
        (schema, _) => {
            Err(refused(format!("its schema is {schema}; give a result of 'cycle run'")))
        }
    }
}

/// A result with its schema.
fn result(path: &Path) -> Result<(String, Value), CommandFailure> {
    let read: Value = serde_json::from_str(&text(path, RESULT_MAX)?).map_err(|error| {
        CommandFailure::usage(format!("{}: not a result: {error}", path.display()))
    })?;
    let schema = read.get("schema").and_then(Value::as_str).unwrap_or("none").to_owned();
    Ok((schema, read))
}

fn of_schema(schema: &str, read: Value) -> Result<Vec<CostRecord>, String> {
    use serde_json::from_value;
    let measured = match schema {
        HOST_ALL_SCHEMA => from_value(read).map(CostRecord::from_host_all),
        HOST_SWITCH_SCHEMA => from_value(read).map(|one| vec![CostRecord::Switch(Box::new(one))]),
        HOST_TIMER_SCHEMA => from_value(read).map(|one| vec![CostRecord::Timer(Box::new(one))]),
        HOST_INTERRUPT_SCHEMA => {
            from_value(read).map(|one| vec![CostRecord::Interrupt(Box::new(one))])
        }
        HOST_CLOCK_SCHEMA => from_value(read).map(|one| vec![CostRecord::Clock(Box::new(one))]),
        PATH_UDP_SCHEMA => from_value(read).map(|one| vec![CostRecord::Path(Box::new(one))]),
        _ => {
            return Err(format!(
                "its schema is {schema}; give a result of 'host all', 'host timer', 'host switch', \
                 'host interrupt', 'host clock' or 'path udp'"
            ));
        }
    };
    measured.map_err(|error| format!("not a result: {error}"))
}

fn named(name: &str, measured: Vec<CostRecord>) -> Vec<CostInput> {
    let source = |measured| CostInput { name: name.to_owned(), measured };
    measured.into_iter().map(source).collect()
}

/// Measures the costs of this host.
pub(super) fn measured(time: Duration) -> Result<Vec<CostInput>, CommandFailure> {
    let options = HostAllOptions {
        time,
        parts: vec![
            HostMeasurement::Clock,
            HostMeasurement::Timer,
            HostMeasurement::Switch,
            HostMeasurement::Interrupt,
        ],
        priority: Some(PRIORITY),
        hold_awake: true,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let watch = HostCallbacks {
        report_step: &|part, what| progress.set_message(&format!("{}: {what}", part.name())),
        report_outcome: &|_| {},
        is_over: &|| output::flow().is_break(),
    };
    let result = all::run(&options, watch);
    progress.finish();
    if output::flow().is_break() {
        return Err(CommandFailure::environment("ended before the host costs were measured"));
    }
    let why: Vec<String> = result.parts.iter().flat_map(|part| part.reason.clone()).collect();
    let found = named(MEASURED, CostRecord::from_host_all(result));
    if found.is_empty() {
        return Err(CommandFailure::environment(format!(
            "nothing was measured: {}",
            why.join("; ")
        )));
    }
    Ok(found)
}

/// Reads a text of at most this length.
pub(in crate::commands::cycle) fn text(path: &Path, most: u64) -> Result<String, CommandFailure> {
    let refused =
        |why: String| CommandFailure::usage(format!("cannot read {}: {why}", path.display()));
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
        let why = of_schema("horolog.load/2", Value::Null).unwrap_err();
        assert!(why.starts_with("its schema is horolog.load/2; give a result of"), "{why}");
        let why = of_schema(HOST_TIMER_SCHEMA, Value::Null).unwrap_err();
        assert!(why.starts_with("not a result: "), "{why}");
    }

    #[test]
    fn error_of_an_invalid_result_names_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        fs::write(&path, "{}").unwrap();
        let why = costs(&path).unwrap_err().to_string();
        assert!(why.contains("x.json: its schema is none; "), "{why}");
        fs::write(&path, "{").unwrap();
        assert!(costs(&path).unwrap_err().to_string().contains("x.json: not a result: "));
        assert!(matches!(tasks(&directory.path().join("no")), Err(CommandFailure::Usage(_))));
        assert!(text(&path, 0).unwrap_err().to_string().contains("longer than 0 bytes"));
    }
}
