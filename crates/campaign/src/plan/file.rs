//! Plan file in TOML: its unparsed values with their positions.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use crate::file_error::{FileError, line_at_offset};

/// Contents of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPlan {
    pub(super) schema: Spanned<String>,
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) duration_max: Option<Spanned<String>>,
    pub(super) max_offset: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) role: Vec<RawRole>,
}

/// Role in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawRole {
    pub(super) name: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) count: Option<Spanned<Value>>,
    pub(super) for_each: Option<Spanned<String>>,
    pub(super) for_each_pair: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) apart_from: Vec<Spanned<String>>,
    pub(super) affects_verdict: Option<bool>,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Spanned<Value>>,
}

/// Text of the file, from which line numbers are derived.
#[derive(Clone, Copy)]
pub(super) struct PlanText<'a>(pub(super) &'a str);

impl PlanText<'_> {
    pub(super) fn read(self) -> Result<RawPlan, FileError> {
        toml::from_str(self.0).map_err(|error| FileError::from_toml_error(self.0, &error))
    }

    pub(super) fn line<T>(self, value: &Spanned<T>) -> usize {
        line_at_offset(self.0, value.span().start)
    }

    pub(super) fn error_at<T>(self, value: &Spanned<T>, reason: impl Into<String>) -> FileError {
        FileError::new(Some(self.line(value)), reason)
    }
}

/// Converts a string, a number or a Boolean to text; `None` for other types.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Converts a scalar value, or a list of scalar values, to texts; `None` for other types.
pub(super) fn scalar_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(list) => list.iter().map(scalar_text).collect(),
        one => Some(vec![scalar_text(one)?]),
    }
}
