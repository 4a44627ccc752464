//! What a list of runs shows of a result: what all kinds of results have in common.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// Digits of a key: 64 bits of a hash are enough to tell a person's runs apart.
const KEY_DIGITS: usize = 16;
/// Characters of a strange schema that are shown.
const SCHEMA_SHOWN: usize = 40;

/// A JSON text without what stands between its tokens, on one line; numbers stay as they are
/// written.
#[must_use]
pub fn one_line(text: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let mut is_kept = |c: char| {
        let was_in_string = in_string;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
        was_in_string || !c.is_ascii_whitespace()
    };
    text.chars().filter(|c| is_kept(*c)).collect()
}

/// Of a result, what all kinds have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The beginning of the SHA-256 of the result's text in [`one_line`], in hexadecimal digits.
    pub key: String,
    /// Such as `horolog.load/1`.
    pub schema: String,
    /// When it began, RFC 3339 in UTC; as text, such instants are in order.
    pub started: String,
    /// The command line; words with spaces in them are quoted.
    pub command: String,
    /// How many findings are errors, and how many are warnings.
    pub findings: [u64; 2],
    /// How many of the limits that it was held against were broken.
    pub broken: u64,
}

/// Why a text is no result.
#[derive(Debug, Error)]
pub enum FactsError {
    /// It is no JSON, or cut off.
    #[error("{how}: {0}", how = how(.0))]
    Json(#[from] serde_json::Error),
    /// It is JSON of something else.
    #[error("it is no result of horolog: it has no '{0}'")]
    Field(&'static str),
    /// It has a schema of something else.
    #[error("it is no result of horolog: its schema is '{0}'")]
    Schema(String),
}

/// In which way a text is no JSON.
fn how(error: &serde_json::Error) -> &'static str {
    if error.is_eof() { "it ends too early" } else { "it is no JSON" }
}

impl Facts {
    /// Those of a result's text.
    ///
    /// # Errors
    ///
    /// It is cut off, or no result.
    pub fn of(text: &str) -> Result<Self, FactsError> {
        let result: Value = serde_json::from_str(text)?;
        let (schema, started) = schema_and_start(&result)?;
        let list =
            |name: &str| result.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of = |severity: &str| {
            list("findings").iter().filter(|one| one["severity"] == severity).count() as u64
        };
        Ok(Self {
            key: key(&one_line(text)),
            schema: schema.to_owned(),
            started: started.to_owned(),
            command: list("command")
                .iter()
                .filter_map(Value::as_str)
                .map(quoted)
                .collect::<Vec<_>>()
                .join(" "),
            findings: [of("error"), of("warning")],
            broken: list("limits").iter().filter(|one| one["failed"] == true).count() as u64,
        })
    }
}

/// The schema of a result, and when it began: what makes it one.
///
/// # Errors
///
/// It is something else.
pub fn schema_and_start(result: &Value) -> Result<(&str, &str), FactsError> {
    let field = |name| result.get(name).and_then(Value::as_str).ok_or(FactsError::Field(name));
    let schema = field("schema")?;
    if !schema.starts_with("horolog.") {
        return Err(FactsError::Schema(schema.chars().take(SCHEMA_SHOWN).collect()));
    }
    Ok((schema, field("started")?))
}

/// The key of a result in [`one_line`].
pub(crate) fn key(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let first: [u8; 8] = std::array::from_fn(|index| hash[index]);
    format!("{:0KEY_DIGITS$x}", u64::from_be_bytes(first))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%@+[]{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"schema":"horolog.load/1","started":"2026-01-02T03:04:05Z",
        "command":["horolog","load","it's"],
        "findings":[{"severity":"error"},{"severity":"note"},{"severity":"error"}],
        "limits":[{"failed":false},{"failed":true}]}"#;

    #[test]
    fn facts_are_those_of_the_text() {
        let facts = Facts::of(RESULT).unwrap();
        assert_eq!(facts.schema, "horolog.load/1");
        assert_eq!(facts.command, r"horolog load 'it'\''s'");
        assert_eq!((facts.findings, facts.broken), ([2, 0], 1));
        assert_eq!(facts.key.len(), KEY_DIGITS);
        assert_ne!(facts.key, Facts::of(&RESULT.replace("03:04", "03:05")).unwrap().key);
    }

    #[test]
    fn a_result_is_the_same_however_it_is_laid_out() {
        let pretty = r#"{ "schema": "horolog.x/1",
            "started": "a \" b \\", "n": 1.50 }"#;
        let line = r#"{"schema":"horolog.x/1","started":"a \" b \\","n":1.50}"#;
        assert_eq!(one_line(pretty), line);
        assert_eq!(one_line(line), line);
        assert_eq!(Facts::of(pretty).unwrap().key, Facts::of(line).unwrap().key);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for (text, said) in [
            (&RESULT[..40], "too early"),
            ("no", "no JSON"),
            ("{}", "no 'schema'"),
            (r#"{"schema":"other/1","started":"x"}"#, "its schema is 'other/1'"),
            (r#"{"schema":"horolog.load/1"}"#, "no 'started'"),
        ] {
            let error = Facts::of(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
