//! A result of any kind, by its schema, as its own command shows it.

use horolog_record as record;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Error as PathError;
use thiserror::Error;

use crate::html;
use crate::table::{self, TableStyle};

/// Why a result cannot be shown.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AnyError {
    /// Nobody here knows its kind.
    #[error("'{0}' is no kind of result known here")]
    Kind(String),
    /// Its kind is known, but of another version.
    #[error("it is a result '{schema}', and '{known}' is known here")]
    Version {
        /// Its own.
        schema: String,
        /// The one that is known.
        known: String,
    },
    /// It has not what its kind has.
    #[error("it is no sound result '{schema}': {what}")]
    Content {
        /// Its schema.
        schema: String,
        /// What is wrong.
        what: String,
    },
}

/// The lines for the terminal, without a newline at the end. It may be somebody else's result: what
/// would move the terminal's cursor is left out.
///
/// # Errors
///
/// Its kind is not known, or it is unsound.
pub fn table_of(mut result: Value, style: &TableStyle) -> Result<String, AnyError> {
    let kind = kind(&result)?;
    disarm(&mut result);
    (kind.table)(result, style)
}

/// The page as HTML.
///
/// # Errors
///
/// Its kind is not known, or it is unsound.
pub fn page_of(result: &Value) -> Result<String, AnyError> {
    (kind(result)?.page)(result)
}

/// Looks whether a result has what its kind has, where that is known here.
///
/// # Errors
///
/// It is unsound.
pub fn check_result(result: &Value) -> Result<(), AnyError> {
    match kind(result) {
        Ok(kind) => (kind.check)(result),
        Err(AnyError::Kind(_) | AnyError::Version { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The schemas of all kinds of results that can be shown.
pub fn result_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.schema)
}

/// Takes control characters out of all texts.
fn disarm(value: &mut Value) {
    match value {
        Value::String(text) => text.retain(|c| c == '\n' || !c.is_control()),
        Value::Array(items) => items.iter_mut().for_each(disarm),
        Value::Object(fields) => fields.values_mut().for_each(disarm),
        _ => {}
    }
}

type Rendered = Result<String, AnyError>;

/// What is done with results of a kind.
struct Kind {
    schema: &'static str,
    table: fn(Value, &TableStyle) -> Rendered,
    page: fn(&Value) -> Rendered,
    check: fn(&Value) -> Result<(), AnyError>,
}

/// Reads a result as the kind that a page is of.
fn check_as<T: DeserializeOwned>(_: fn(&T) -> String, result: &Value) -> Result<(), AnyError> {
    read::<T>(result).map(drop)
}

/// A kind of which every result is read the same way.
macro_rules! kind {
    ($schema:ident, $table:path, $page:path) => {
        Kind {
            schema: record::$schema,
            table: |result, style| Ok($table(&taken(result)?, style)),
            page: |result| Ok($page(&read(result)?)),
            check: |result| check_as($page, result),
        }
    };
}

const KINDS: [Kind; 27] = [
    Kind { schema: record::LOAD_SCHEMA, table: load_table, page: load_page, check: load_check },
    kind!(AFTER_SCHEMA, table::after, html::after),
    kind!(AT_SCHEMA, table::at, html::at),
    kind!(BENCH_CORES_SCHEMA, table::bench_cores, html::bench_cores),
    kind!(BENCH_NTS_SCHEMA, table::bench_nts, html::bench_nts),
    kind!(BENCH_RELAY_SCHEMA, table::bench_relay, html::bench_relay),
    kind!(CAMPAIGN_SCHEMA, table::campaign, html::campaign),
    kind!(CLOCK_SCHEMA, table::clock, html::clock),
    kind!(CLOCK_COMPARE_SCHEMA, table::clock_compare, html::clock_compare),
    kind!(CLOCK_LOG_SCHEMA, table::clock_log, html::clock_log),
    kind!(COMPARE_SCHEMA, table::compare, html::compare),
    kind!(CYCLE_SCHEMA, table::cycle, html::cycle),
    kind!(CYCLE_PREDICT_SCHEMA, table::cycle_predict, html::cycle_predict),
    kind!(CYCLE_TEST_SCHEMA, table::cycle_test, html::cycle_test),
    kind!(DEMO_SCHEMA, table::demo, html::demo),
    kind!(HOST_ALL_SCHEMA, table::host_all, html::host_all),
    kind!(HOST_CLOCK_SCHEMA, table::host_clock, html::host_clock),
    kind!(HOST_DELAY_SCHEMA, table::host_delay, html::host_delay),
    kind!(HOST_INTERRUPT_SCHEMA, table::host_interrupt, html::host_interrupt),
    kind!(HOST_NIC_SCHEMA, table::host_nic, html::host_nic),
    kind!(HOST_SWITCH_SCHEMA, table::host_switch, html::host_switch),
    kind!(HOST_TIMER_SCHEMA, table::host_timer, html::host_timer),
    kind!(PATH_STALL_SCHEMA, table::path_stall, html::path_stall),
    kind!(PATH_TCP_SCHEMA, table::path_tcp, html::path_tcp),
    kind!(PATH_UDP_SCHEMA, table::path_udp, html::path_udp),
    kind!(QUERY_SCHEMA, table::query, html::query),
    kind!(RELAY_TREE_SCHEMA, table::relay_tree, html::relay_tree),
];

fn kind(result: &Value) -> Result<&'static Kind, AnyError> {
    let schema = result["schema"].as_str().unwrap_or_default();
    if let Some(kind) = KINDS.iter().find(|kind| kind.schema == schema) {
        return Ok(kind);
    }
    let name = |schema: &str| schema.split_once('/').map_or("", |(name, _)| name).to_owned();
    let other = KINDS.iter().find(|kind| name(kind.schema) == name(schema));
    Err(other.map_or_else(
        || AnyError::Kind(schema.to_owned()),
        |kind| AnyError::Version { schema: schema.to_owned(), known: kind.schema.to_owned() },
    ))
}

/// Only what is unsound is read with its places, since to keep them takes a tenth of the time.
fn read<R: DeserializeOwned>(result: &Value) -> Result<R, AnyError> {
    let where_it_is = |_| serde_path_to_error::deserialize(result);
    R::deserialize(result).or_else(where_it_is).map_err(|error| unsound(&schema(result), &error))
}

/// The same of one that is not needed any longer, without a copy of what is in it.
fn taken<R: DeserializeOwned>(result: Value) -> Result<R, AnyError> {
    let schema = schema(&result);
    serde_path_to_error::deserialize(result).map_err(|error| unsound(&schema, &error))
}

fn schema(result: &Value) -> String {
    result["schema"].as_str().unwrap_or_default().to_owned()
}

/// What is wrong, after where: `trials[0].sent: invalid type: ...`.
fn unsound(schema: &str, error: &PathError<serde_json::Error>) -> AnyError {
    let (place, why) = (error.path().to_string(), error.inner());
    // The whole has no name.
    let what = if place == "." { why.to_string() } else { format!("{place}: {why}") };
    AnyError::Content { schema: schema.to_owned(), what }
}

/// Whether it is one of key establishments, which share their schema with the loads.
fn of_establishments(result: &Value) -> bool {
    read(&result["mode"]).is_ok_and(|mode: record::Mode| mode == record::Mode::NtsKe)
}

fn load_table(result: Value, style: &TableStyle) -> Rendered {
    if of_establishments(&result) {
        let result: record::EstablishmentResult = taken(result)?;
        let mut lines = Vec::new();
        if result.search.is_some() {
            lines.push(table::establishment_header(style));
            let row = |trial| table::establishment_row(trial, style);
            lines.extend(result.trials.iter().map(row));
        }
        lines.push(table::establishment(&result, style));
        return Ok(lines.join("\n"));
    }
    let result: record::LoadResult = taken(result)?;
    Ok(table::load(&result, style))
}

fn load_check(result: &Value) -> Result<(), AnyError> {
    if of_establishments(result) {
        check_as(html::establishment, result)
    } else {
        check_as(html::load, result)
    }
}

fn load_page(result: &Value) -> Rendered {
    if of_establishments(result) {
        return Ok(html::establishment(&read(result)?));
    }
    Ok(html::load(&read(result)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn value(result: &impl serde::Serialize) -> Value {
        serde_json::to_value(result).unwrap()
    }

    #[test]
    fn a_kept_result_looks_as_its_command_had_it() {
        let style = TableStyle::default();
        let (query, load) = (fixture::query(100), fixture::load());
        assert_eq!(table_of(value(&query), &style), Ok(table::query(&query, &style)));
        assert_eq!(page_of(&value(&query)), Ok(html::query(&query)));
        assert_eq!(table_of(value(&load), &style), Ok(table::load(&load, &style)));
    }

    /// The lists of a result's own, but for its command.
    fn lists(result: &Value) -> Vec<String> {
        let fields = result.as_object().unwrap().iter();
        let lists = fields.filter(|(name, field)| field.is_array() && *name != "command");
        lists.map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn every_kind_has_a_page_whatever_its_lists_lack() {
        let directory = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/tests/schema");
        let mut kinds = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let whole: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let lists = lists(&whole);
            let each = lists.iter().map(std::slice::from_ref);
            for emptied in each.chain([&lists[..]]) {
                let mut result = whole.clone();
                for name in emptied {
                    result[name] = Value::Array(Vec::new());
                }
                let page = page_of(&result).unwrap();
                let main = html::main_of(&page);
                assert!(main.contains("class=\"verdict\""), "{}: {emptied:?}", path.display());
                let plots = main.find("class=\"plot\"").unwrap_or(usize::MAX);
                let is_first = main.find("<h2>Findings").is_none_or(|findings| findings < plots);
                assert!(is_first, "{}: findings behind plots", path.display());
                let odd = ["NaN", ">inf", "-inf", "18446744073709551615"];
                assert!(!odd.iter().any(|odd| main.contains(odd)), "{emptied:?}: {main}");
                table_of(result, &TableStyle::default()).unwrap();
            }
            kinds.insert(whole["schema"].as_str().unwrap().to_owned());
        }
        // A log is no result of this program's.
        let missing: Vec<_> = result_kinds().filter(|kind| !kinds.contains(*kind)).collect();
        assert_eq!(missing, [record::CLOCK_LOG_SCHEMA]);
    }

    #[test]
    fn a_foreign_result_moves_no_cursor() {
        let mut query = fixture::query(100);
        query.findings[0].message.insert_str(0, "\u{1b}[2J\u{9b}");
        let text = table_of(value(&query), &TableStyle::default()).unwrap();
        assert!(text.contains("[2J") && !text.contains(['\u{1b}', '\u{9b}']), "{text}");
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        let told = |result: Value| {
            let why = table_of(result, &TableStyle::default()).unwrap_err();
            why.to_string()
        };
        let of = |schema: &str| serde_json::json!({ "schema": schema });
        assert_eq!(
            told(of("horolog.load/2")),
            "it is a result 'horolog.load/2', and 'horolog.load/1' is known here"
        );
        assert_eq!(told(of("horolog.x/1")), "'horolog.x/1' is no kind of result known here");
        assert!(told(of("horolog.query/1")).contains("/1': missing field"));
        let mut load = value(&fixture::load());
        load["trials"][1]["sent"] = "many".into();
        let unsound =
            "it is no sound result 'horolog.load/1': trials[1].sent: invalid type: string";
        assert!(page_of(&load).unwrap_err().to_string().starts_with(unsound));
        assert!(told(load).starts_with(unsound));
        assert!(page_of(&of("horolog.after/1")).unwrap_err().to_string().contains("missing field"));
    }
}
