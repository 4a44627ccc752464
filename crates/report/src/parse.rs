//! Parsing of a result of any kind, selected by its schema.

use horolog_record as record;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::compare::{self, ComparedValues};
use crate::document::{DescribeResult, RenderableResult};
use crate::located_value;

/// Reason why a result cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ResultParseError {
    /// The kind of the result is unknown.
    #[error("'{0}' is not a known kind of result")]
    Kind(String),
    /// The kind is known in another version only.
    #[error("its schema is '{schema}', and this version reads '{known}'")]
    Version {
        /// Schema of the result.
        schema: String,
        /// Known version.
        known: String,
    },
    /// The content does not match the schema.
    #[error("invalid result '{schema}': {what}")]
    Content {
        /// Schema of the result.
        schema: String,
        /// Defect of the content.
        what: String,
    },
}

/// Parses a result of any kind, selected by its schema.
///
/// # Errors
///
/// Fails if the kind of the result is unknown or its content is invalid.
pub fn parse_result(result: &Value) -> Result<Box<dyn RenderableResult>, ResultParseError> {
    (kind(result)?.parse)(result)
}

/// Returns the schemas of all kinds of results that can be shown.
pub fn result_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.schema)
}

/// Returns the values of a result that are compared.
///
/// # Errors
///
/// Fails if the kind of the result is unknown, its content is invalid or a histogram is damaged.
pub(crate) fn compared_values(result: &Value) -> Result<ComparedValues, ResultParseError> {
    (kind(result)?.compared_values)(result)
}

/// Functions that parse the results of one kind.
struct ResultKind {
    schema: &'static str,
    parse: fn(&Value) -> Result<Box<dyn RenderableResult>, ResultParseError>,
    compared_values: fn(&Value) -> Result<ComparedValues, ResultParseError>,
}

impl ResultKind {
    /// Returns the kind of results of type `R`.
    const fn of<R: DescribeResult + DeserializeOwned + 'static>(schema: &'static str) -> Self {
        Self {
            schema,
            parse: |result| Ok(Box::new(read::<R>(result)?)),
            compared_values: |result| {
                let values = compare::values_of(&read::<R>(result)?);
                values.map_err(|what| content_error(result, what))
            },
        }
    }
}

macro_rules! kinds {
    ($($kind:ident $type:ident $schema:ident,)*) => {
        &[$(ResultKind::of::<record::$type>(record::$schema)),*]
    };
}

const KINDS: &[ResultKind] = record::result_kinds!(kinds);

fn kind(result: &Value) -> Result<&'static ResultKind, ResultParseError> {
    let schema = result["schema"].as_str().unwrap_or_default();
    let is_nts_ke = |mode: record::RequestMode| mode == record::RequestMode::NtsKe;
    if schema == NTS_KE.schema && read(&result["mode"]).is_ok_and(is_nts_ke) {
        return Ok(&NTS_KE);
    }
    if let Some(kind) = KINDS.iter().find(|kind| kind.schema == schema) {
        return Ok(kind);
    }
    let name = |schema: &str| schema.split_once('/').map_or("", |(name, _)| name).to_owned();
    let other = KINDS.iter().find(|kind| name(kind.schema) == name(schema));
    Err(other.map_or_else(
        || ResultParseError::Kind(schema.to_owned()),
        |kind| ResultParseError::Version {
            schema: schema.to_owned(),
            known: kind.schema.to_owned(),
        },
    ))
}

/// Parses a result. An error names the path of the value that does not fit.
fn read<R: DeserializeOwned>(result: &Value) -> Result<R, ResultParseError> {
    located_value::deserialize(result).map_err(|error| content_error(result, error.to_string()))
}

fn schema(result: &Value) -> String {
    result["schema"].as_str().unwrap_or_default().to_owned()
}

fn content_error(result: &Value, what: String) -> ResultParseError {
    ResultParseError::Content { schema: schema(result), what }
}

/// Kind of loads of NTS-KE exchanges, which share their schema with other loads.
const NTS_KE: ResultKind = ResultKind::of::<record::NtsKeLoadResult>(record::LOAD_SCHEMA);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::table::TableStyle;

    fn value(result: &impl serde::Serialize) -> Value {
        serde_json::to_value(result).unwrap()
    }

    fn parse(result: &Value) -> Box<dyn RenderableResult> {
        parse_result(result).unwrap()
    }

    #[test]
    fn a_stored_result_renders_as_its_command_did() {
        let style = TableStyle::default();
        let (query, load) = (fixture::query(100), fixture::load());
        let (parsed, parsed_load) = (parse(&value(&query)), parse(&value(&load)));
        assert_eq!(parsed.text(&style), query.text(&style));
        assert_eq!(parsed.page(), query.page());
        assert_eq!(parsed_load.text(&style), load.text(&style));
    }

    /// The lists of a result's own, but for its command.
    fn lists(result: &Value) -> Vec<String> {
        let fields = result.as_object().unwrap().iter();
        let lists = fields.filter(|(name, field)| field.is_array() && *name != "command");
        lists.map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn every_kind_has_a_page_whatever_its_lists_lack() {
        let directory = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");
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
                let parsed = parse(&result);
                let page = parsed.page();
                let main = crate::html::main_of(&page);
                assert!(main.contains("class=\"verdict\""), "{}: {emptied:?}", path.display());
                let plots = main.find("class=\"plot\"").unwrap_or(usize::MAX);
                let is_first = main.find("<h2>Findings").is_none_or(|findings| findings < plots);
                assert!(is_first, "{}: findings behind plots", path.display());
                let odd = ["NaN", ">inf", "-inf", "18446744073709551615"];
                assert!(!odd.iter().any(|odd| main.contains(odd)), "{emptied:?}: {main}");
                assert_ne!(parsed.text(&TableStyle::default()), "");
            }
            kinds.insert(whole["schema"].as_str().unwrap().to_owned());
        }
        assert!(result_kinds().all(|kind| kinds.contains(kind)));
    }

    #[test]
    fn a_foreign_result_moves_no_cursor() {
        let mut query = fixture::query(100);
        query.findings[0].message.insert_str(0, "\u{1b}[2J\u{9b}\u{1b}");
        let text = parse(&value(&query)).text(&TableStyle::default());
        assert!(text.contains("[2J") && !text.contains(['\u{1b}', '\u{9b}']), "{text}");
        let coloured = TableStyle { colour: true, ..TableStyle::default() };
        let text = parse(&value(&query)).text(&coloured);
        assert!(text.contains("\u{1b}[33m") && text.contains("[2J"), "{text}");
        assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{9b}'), "{text}");
    }

    #[test]
    fn what_cannot_be_parsed_is_named() {
        let message = |result: Value| parse_result(&result).err().unwrap().to_string();
        let of = |schema: &str| serde_json::json!({ "schema": schema });
        assert_eq!(
            message(of("horolog.load/1")),
            "its schema is 'horolog.load/1', and this version reads 'horolog.load/2'"
        );
        assert_eq!(message(of("horolog.x/1")), "'horolog.x/1' is not a known kind of result");
        assert!(message(of("horolog.query/2")).contains("/2': missing field"));
        let mut load = value(&fixture::load());
        load["trials"][1]["sent"] = "many".into();
        let unsound = "invalid result 'horolog.load/2': trials[1].sent: invalid type: string";
        assert!(message(load).starts_with(unsound));
    }
}
