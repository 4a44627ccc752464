//! The routing table as a person writes it, in a TOML file: groups, their children, lists and
//! limits. What follows from it, and whether it can be, is `table`'s business.

use std::fmt::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Network, fields};

/// Packets of a group in a second, unless it says otherwise.
pub const RATE: u64 = 100_000;
/// Copies of a relay in a second, unless it says otherwise.
pub const COPY_RATE: u64 = 1_000_000;
/// The TTL or hop limit that a copy leaves with at most, unless its group says otherwise.
pub const HOP_LIMIT: u8 = 32;

/// A whole table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spec {
    /// Where copies may go: every child lies in one of these networks.
    #[serde(default)]
    pub destinations: Vec<Network>,
    /// Copies in a second, of all groups together.
    #[serde(default = "copy_rate", deserialize_with = "fields::whole")]
    pub copy_rate: u64,
    /// The groups.
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupSpec>,
}

/// A group: where its packets come to, whose they may be, and who gets copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroupSpec {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The address and port that it listens at: a multicast group's, one of this host's, or a
    /// wildcard. Copies leave from this port.
    #[serde(deserialize_with = "fields::address")]
    pub listen: SocketAddr,
    /// The interface to join a multicast group on; the kernel's choice where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Whose packets are relayed.
    pub sources: Vec<Network>,
    /// Packets in a second.
    #[serde(default = "rate", deserialize_with = "fields::whole")]
    pub rate: u64,
    /// The TTL or hop limit that a copy leaves with at most.
    #[serde(default = "hop_limit", deserialize_with = "fields::whole")]
    pub hop_limit: u8,
    /// Who gets copies.
    #[serde(default, deserialize_with = "fields::addresses")]
    pub children: Vec<SocketAddr>,
}

const fn rate() -> u64 {
    RATE
}

const fn copy_rate() -> u64 {
    COPY_RATE
}

const fn hop_limit() -> u8 {
    HOP_LIMIT
}

/// Why a file is no table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct SpecFault {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it, in one line.
    pub reason: String,
}

impl Spec {
    /// Reads a table file.
    pub fn parse(text: &str) -> Result<Self, SpecFault> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.get(..at).unwrap_or(text).matches('\n').count();
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            SpecFault { line, reason }
        })
    }

    /// The same as a table file. Names that are no names of groups would need quoting, and no table
    /// has such.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        list(&mut text, "destinations", &self.destinations);
        line(&mut text, "copy-rate", self.copy_rate);
        for group in &self.groups {
            text.push_str("\n[[group]]\n");
            quoted(&mut text, "name", &group.name);
            quoted(&mut text, "listen", group.listen);
            if let Some(interface) = &group.interface {
                quoted(&mut text, "interface", interface);
            }
            list(&mut text, "sources", &group.sources);
            line(&mut text, "rate", group.rate);
            line(&mut text, "hop-limit", group.hop_limit);
            list(&mut text, "children", &group.children);
        }
        text
    }
}

// Writing to memory does not fail.

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{key} = {value}");
}

fn quoted(text: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{key} = \"{value}\"");
}

fn list(text: &mut String, key: &str, values: &[impl std::fmt::Display]) {
    let items: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    let _ = match items.len() {
        0..=2 => writeln!(text, "{key} = [{}]", items.join(", ")),
        _ => writeln!(text, "{key} = [\n    {},\n]", items.join(",\n    ")),
    };
}
