//! Facts about a machine, each with its value and one line on what it means; the table and the page
//! show the same ones.

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) meaning: String,
}

/// Facts under one heading.
#[derive(Debug, Clone)]
pub(crate) struct FactGroup {
    pub(crate) title: &'static str,
    pub(crate) facts: Vec<Fact>,
}

pub(crate) fn fact(
    name: impl Into<String>,
    value: impl Into<String>,
    meaning: impl Into<String>,
) -> Fact {
    Fact { name: name.into(), value: value.into(), meaning: meaning.into() }
}

/// What stands where a machine does not tell.
pub(crate) const UNKNOWN: &str = "not told";

/// A list in words.
pub(crate) fn listed(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
