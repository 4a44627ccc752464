//! Facts about a host, each with its value and one line on its meaning; the table and the HTML
//! report show the same ones.

/// Single fact.
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

/// Value of an unreported fact.
pub(crate) const UNKNOWN: &str = "unavailable";

/// Formats a list in words.
pub(crate) fn listed(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
