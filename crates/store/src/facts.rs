//! Facts of a result that a list of runs shows, from the fields common to all kinds of results.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// Digits of a key: 64 bits of a hash suffice to distinguish the runs of one user.
const KEY_DIGITS: usize = 16;
/// Largest number of characters shown of an unknown schema.
const SCHEMA_CHARS_MAX: usize = 40;

/// Returns the JSON text on one line, without whitespace between tokens; numbers and strings stay
/// as written.
#[must_use]
pub fn compact_json(text: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let mut is_retained = |c: char| {
        let was_in_string = in_string;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
        was_in_string || !c.is_ascii_whitespace()
    };
    text.chars().filter(|c| is_retained(*c)).collect()
}

/// Fields common to all kinds of results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultFacts {
    /// Key: first hexadecimal digits of the SHA-256 of the result's text after [`compact_json`].
    pub key: String,
    /// Schema, such as `horolog.load/2`.
    pub schema: String,
    /// Start of the run, RFC 3339 in UTC, so that text order is chronological.
    pub started: String,
    /// Command line as one text; a word is in single quotes if it is empty or has a character other
    /// than ASCII letters, digits and `-_./:=,%@+[]{}`.
    pub command: String,
    /// Number of findings of severity error, and of severity warning.
    pub findings: [u64; 2],
    /// Number of failed limits.
    pub failed_limits: u64,
}

/// Reason why a text is not a result.
#[derive(Debug, Error)]
pub enum ResultFactsError {
    /// The text is not JSON, or truncated.
    #[error("{how}: {0}", how = how(.0))]
    Json(#[from] serde_json::Error),
    /// A field that all results have is missing or not a string.
    #[error("not a result of horolog: '{0}' is missing")]
    Field(&'static str),
    /// The schema is not that of a result.
    #[error("not a result of horolog: its schema is '{0}'")]
    Schema(String),
}

/// Returns the reason why a text cannot be parsed as JSON.
fn how(error: &serde_json::Error) -> &'static str {
    if error.is_eof() { "it is truncated" } else { "it is not JSON" }
}

impl ResultFacts {
    /// Reads the facts from a result's text.
    ///
    /// # Errors
    ///
    /// Fails if the text is truncated, or no result.
    pub fn parse(text: &str) -> Result<Self, ResultFactsError> {
        let result: Value = serde_json::from_str(text)?;
        let (schema, started) = schema_and_start(&result)?;
        let array_field =
            |name: &str| result.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let finding_count = |severity: &str| {
            array_field("findings").iter().filter(|one| one["severity"] == severity).count() as u64
        };
        Ok(Self {
            key: result_key(&compact_json(text)),
            schema: schema.to_owned(),
            started: started.to_owned(),
            command: array_field("command")
                .iter()
                .filter_map(Value::as_str)
                .map(quoted)
                .collect::<Vec<_>>()
                .join(" "),
            findings: [finding_count("error"), finding_count("warning")],
            failed_limits: array_field("limits").iter().filter(|one| one["failed"] == true).count()
                as u64,
        })
    }
}

/// Returns the schema and the start time of a result.
///
/// # Errors
///
/// Fails if a field is missing or not a string, or the schema does not begin with `horolog.`.
pub fn schema_and_start(result: &Value) -> Result<(&str, &str), ResultFactsError> {
    let field =
        |name| result.get(name).and_then(Value::as_str).ok_or(ResultFactsError::Field(name));
    let schema = field("schema")?;
    if !schema.starts_with("horolog.") {
        return Err(ResultFactsError::Schema(schema.chars().take(SCHEMA_CHARS_MAX).collect()));
    }
    Ok((schema, field("started")?))
}

/// Returns the key of a result whose text is in the form of [`compact_json`].
pub(crate) fn result_key(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let first: [u8; 8] = std::array::from_fn(|index| hash[index]);
    format!("{:0KEY_DIGITS$x}", u64::from_be_bytes(first))
}

fn quoted(word: &str) -> String {
    let is_unquoted = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%@+[]{}".contains(c);
    if !word.is_empty() && word.chars().all(is_unquoted) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"schema":"horolog.load/2","started":"2026-01-02T03:04:05Z",
        "command":["horolog","load","it's"],
        "findings":[{"severity":"error"},{"severity":"note"},{"severity":"error"}],
        "limits":[{"failed":false},{"failed":true}]}"#;

    #[test]
    fn facts_are_those_of_the_text() {
        let facts = ResultFacts::parse(RESULT).unwrap();
        assert_eq!(facts.schema, "horolog.load/2");
        assert_eq!(facts.command, r"horolog load 'it'\''s'");
        assert_eq!((facts.findings, facts.failed_limits), ([2, 0], 1));
        assert_eq!(facts.key.len(), KEY_DIGITS);
        assert_ne!(facts.key, ResultFacts::parse(&RESULT.replace("03:04", "03:05")).unwrap().key);
    }

    #[test]
    fn a_result_is_the_same_however_it_is_laid_out() {
        let pretty = r#"{ "schema": "horolog.x/1",
            "started": "a \" b \\", "n": 1.50 }"#;
        let line = r#"{"schema":"horolog.x/1","started":"a \" b \\","n":1.50}"#;
        assert_eq!(compact_json(pretty), line);
        assert_eq!(compact_json(line), line);
        assert_eq!(ResultFacts::parse(pretty).unwrap().key, ResultFacts::parse(line).unwrap().key);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for (text, expected) in [
            (&RESULT[..40], "truncated"),
            ("no", "not JSON"),
            ("{}", "'schema' is missing"),
            (r#"{"schema":"other/1","started":"x"}"#, "its schema is 'other/1'"),
            (r#"{"schema":"horolog.load/2"}"#, "'started' is missing"),
        ] {
            let error = ResultFacts::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
