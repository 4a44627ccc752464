//! Input of a prediction: the task file, costs from results of other commands, and costs measured
//! now.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use horolog_cycle::predict::{CostInput, CostSourceResult};
use horolog_cycle::task::{FILE_MAX, TaskSet};
use horolog_probe::host::all::{self, HostAllCallbacks, HostAllOptions};
use horolog_record::{
    CYCLE_SCHEMA, CycleResult, HOST_ALL_SCHEMA, HOST_CLOCK_SCHEMA, HOST_INTERRUPT_SCHEMA,
    HOST_SWITCH_SCHEMA, HOST_TIMER_SCHEMA, HostMeasurementKind, PATH_UDP_SCHEMA,
};
use horolog_report::located_value::deserialize;
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Maximum length of a result file, in bytes. A result with histograms of many cores has a few MB.
const RESULT_MAX: u64 = 256 << 20;
/// Real-time priority of the measuring threads, equal to the default priority of tasks.
const PRIORITY: u8 = 80;
/// Name of the costs that were measured now, in place of a file's.
const MEASUREMENT_NAME: &str = "the measurement now";

/// Reads a task file (TOML).
pub(in crate::commands::cycle) fn read_tasks(path: &Path) -> Result<TaskSet, CommandFailure> {
    let text = read_text(path, FILE_MAX)?;
    TaskSet::parse(&text)
        .map_err(|fault| CommandFailure::usage(format!("{}, {fault}", path.display())))
}

/// Reads the costs from a file with the result of another command.
pub(in crate::commands::cycle) fn read_costs(
    path: &Path,
) -> Result<Vec<CostInput>, CommandFailure> {
    let refused = |why: String| CommandFailure::usage(format!("{}: {why}", path.display()));
    let (schema, json) = read_result(path)?;
    let records = parse_cost_records(&schema, &json).map_err(refused)?;
    Ok(cost_inputs(&path.display().to_string(), records))
}

/// Reads a result of `horolog cycle run`.
pub(super) fn read_cycle_result(path: &Path) -> Result<CycleResult, CommandFailure> {
    let refused = |why: String| CommandFailure::usage(format!("{}: {why}", path.display()));
    match read_result(path)? {
        (schema, json) if schema == CYCLE_SCHEMA => {
            deserialize(&json).map_err(|error| refused(format!("not a result: {error}")))
        }
        (schema, _) => {
            Err(refused(format!("its schema is {schema}; give a result of 'cycle run'")))
        }
    }
}

/// Reads a result of any kind. Returns its schema (`none` if it has none) and its JSON.
fn read_result(path: &Path) -> Result<(String, Value), CommandFailure> {
    let json: Value = serde_json::from_str(&read_text(path, RESULT_MAX)?).map_err(|error| {
        CommandFailure::usage(format!("{}: not a result: {error}", path.display()))
    })?;
    let schema = json.get("schema").and_then(Value::as_str).unwrap_or("none").to_owned();
    Ok((schema, json))
}

/// Converts a result of this schema to cost records.
fn parse_cost_records(schema: &str, json: &Value) -> Result<Vec<CostSourceResult>, String> {
    let records = match schema {
        HOST_ALL_SCHEMA => deserialize(json).map(CostSourceResult::from_host_all),
        HOST_SWITCH_SCHEMA => {
            deserialize(json).map(|one| vec![CostSourceResult::Switch(Box::new(one))])
        }
        HOST_TIMER_SCHEMA => {
            deserialize(json).map(|one| vec![CostSourceResult::Timer(Box::new(one))])
        }
        HOST_INTERRUPT_SCHEMA => {
            deserialize(json).map(|one| vec![CostSourceResult::Interrupt(Box::new(one))])
        }
        HOST_CLOCK_SCHEMA => {
            deserialize(json).map(|one| vec![CostSourceResult::Clock(Box::new(one))])
        }
        PATH_UDP_SCHEMA => deserialize(json).map(|one| vec![CostSourceResult::Path(Box::new(one))]),
        _ => {
            return Err(format!(
                "its schema is {schema}; give a result of 'host all', 'host timer', 'host switch', \
                 'host interrupt', 'host clock' or 'path udp'"
            ));
        }
    };
    records.map_err(|error| format!("not a result: {error}"))
}

fn cost_inputs(name: &str, records: Vec<CostSourceResult>) -> Vec<CostInput> {
    let source = |measured| CostInput { name: name.to_owned(), measured };
    records.into_iter().map(source).collect()
}

/// Measures the costs of this host for approximately `time`; an error if it was interrupted or
/// nothing was measured.
pub(super) fn measure_costs(time: Duration) -> Result<Vec<CostInput>, CommandFailure> {
    let options = HostAllOptions {
        time,
        parts: vec![
            HostMeasurementKind::Clock,
            HostMeasurementKind::Timer,
            HostMeasurementKind::Switch,
            HostMeasurementKind::Interrupt,
        ],
        priority: Some(PRIORITY),
        hold_awake: true,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let callbacks = HostAllCallbacks {
        report_step: &|part, what| progress.set_message(&format!("{}: {what}", part.name())),
        report_outcome: &|_| {},
        is_over: &|| output::check_stop_request().is_break(),
    };
    let result = all::run(&options, callbacks);
    progress.finish();
    if output::check_stop_request().is_break() {
        return Err(CommandFailure::environment("ended before the host costs were measured"));
    }
    let reasons: Vec<String> = result.parts.iter().flat_map(|part| part.reason.clone()).collect();
    let inputs = cost_inputs(MEASUREMENT_NAME, CostSourceResult::from_host_all(result));
    if inputs.is_empty() {
        return Err(CommandFailure::environment(format!(
            "nothing was measured: {}",
            reasons.join("; ")
        )));
    }
    Ok(inputs)
}

/// Reads a text file of at most `most` bytes.
pub(in crate::commands::cycle) fn read_text(
    path: &Path,
    most: u64,
) -> Result<String, CommandFailure> {
    let refused =
        |why: String| CommandFailure::usage(format!("cannot read {}: {why}", path.display()));
    let file = fs::File::open(path).map_err(|error| refused(error.to_string()))?;
    let mut text = String::new();
    let read_length = file.take(most + 1).read_to_string(&mut text);
    match read_length.map_err(|error| refused(error.to_string()))? as u64 {
        length if length > most => Err(refused(format!("it is longer than {most} bytes"))),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_known_by_their_schema() {
        let why = parse_cost_records("horolog.load/2", &Value::Null).unwrap_err();
        assert!(why.starts_with("its schema is horolog.load/2; give a result of"), "{why}");
        let why = parse_cost_records(HOST_TIMER_SCHEMA, &Value::Null).unwrap_err();
        assert!(why.starts_with("not a result: "), "{why}");
    }

    #[test]
    fn error_of_an_invalid_result_names_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        fs::write(&path, "{}").unwrap();
        let why = read_costs(&path).unwrap_err().to_string();
        assert!(why.contains("x.json: its schema is none; "), "{why}");
        fs::write(&path, "{").unwrap();
        assert!(read_costs(&path).unwrap_err().to_string().contains("x.json: not a result: "));
        assert!(matches!(read_tasks(&directory.path().join("no")), Err(CommandFailure::Usage(_))));
        assert!(read_text(&path, 0).unwrap_err().to_string().contains("longer than 0 bytes"));
    }
}
