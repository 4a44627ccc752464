//! Facts about a host, each with its value and a line on its meaning, shared by the terminal and
//! the HTML report.

/// Fact about a host: its name, its value, and a line on its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFact {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) meaning: String,
}

/// Facts under one heading.
#[derive(Debug, Clone)]
pub(crate) struct FactGroup {
    pub(crate) title: &'static str,
    pub(crate) facts: Vec<HostFact>,
}

pub(crate) fn fact(
    name: impl Into<String>,
    value: impl Into<String>,
    meaning: impl Into<String>,
) -> HostFact {
    HostFact { name: name.into(), value: value.into(), meaning: meaning.into() }
}

/// Text for a fact that is not available.
pub(crate) const UNKNOWN: &str = "unavailable";

/// Joins the items with commas; returns `none` if there are no items.
pub(crate) fn listed(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
