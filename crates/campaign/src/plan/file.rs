//! A plan as a TOML file: what is written, with where it stands.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use crate::fault::{Fault, line_of};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPlan {
    pub(super) schema: Spanned<String>,
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) duration_max: Option<Spanned<String>>,
    pub(super) max_offset: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) role: Vec<RawRole>,
}

/// A role.
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
    pub(super) judged: Option<bool>,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Spanned<Value>>,
}

/// The text with which lines are told.
#[derive(Clone, Copy)]
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    pub(super) fn read(self) -> Result<RawPlan, Fault> {
        toml::from_str(self.0).map_err(|error| Fault::of_toml(self.0, &error))
    }

    pub(super) fn line<T>(self, value: &Spanned<T>) -> usize {
        line_of(self.0, value.span().start)
    }

    pub(super) fn fault<T>(self, value: &Spanned<T>, reason: impl Into<String>) -> Fault {
        Fault::new(Some(self.line(value)), reason)
    }
}

/// A value that is one word: a text, a number, or true or false.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// One word, or a list of such.
pub(super) fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(list) => list.iter().map(word).collect(),
        one => Some(vec![word(one)?]),
    }
}
