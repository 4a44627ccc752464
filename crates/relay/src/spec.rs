//! Routing table as written by a person, in a TOML file: groups, their children, lists and limits.
//! Module `table` checks and interprets it.

use std::fmt::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{IpNetwork, fields};

/// Default packet rate of a group, per second.
pub const RATE: u64 = 100_000;
/// Default copy rate of a relay, per second.
pub const COPY_RATE: u64 = 1_000_000;
/// Default upper limit of the TTL or hop limit of a copy.
pub const HOP_LIMIT: u8 = 32;

/// Specification of a routing table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RoutingTableSpec {
    /// Permitted destinations of copies: every child lies in one of these networks.
    #[serde(default)]
    pub destinations: Vec<IpNetwork>,
    /// Limit of copies per second, of all groups together.
    #[serde(default = "copy_rate", deserialize_with = "fields::whole")]
    pub copy_rate: u64,
    /// Groups of the table, in the order of the file.
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupSpec>,
}

/// Group: the destination and permitted sources of its packets, and the receivers of copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroupSpec {
    /// Name of the group: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Address and port on which it listens: a multicast group's, one of this host's, or a
    /// wildcard. Copies leave from this port.
    #[serde(deserialize_with = "fields::address")]
    pub listen: SocketAddr,
    /// Interface on which to join a multicast group; the kernel's choice if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Networks whose packets are relayed.
    pub sources: Vec<IpNetwork>,
    /// Limit of packets per second.
    #[serde(default = "rate", deserialize_with = "fields::whole")]
    pub rate: u64,
    /// Upper limit of the TTL or hop limit of a copy.
    #[serde(default = "hop_limit", deserialize_with = "fields::whole")]
    pub hop_limit: u8,
    /// True if the kernel may fragment copies that are longer than the MTU of the route to a child;
    /// otherwise they are dropped.
    #[serde(default = "fragment")]
    pub fragment: bool,
    /// Receivers of copies.
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

const fn fragment() -> bool {
    true
}

/// Reason for which a file is not a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RoutingTableFileError {
    /// Line number, from 1 on.
    pub line: usize,
    /// Error in one line of text.
    pub reason: String,
}

impl RoutingTableSpec {
    /// Parses a table file.
    pub fn parse(text: &str) -> Result<Self, RoutingTableFileError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.get(..at).unwrap_or(text).matches('\n').count();
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            RoutingTableFileError { line, reason }
        })
    }

    /// Renders the table as a file. Names are not escaped, because a checked table has only names
    /// that need no escaping.
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
            line(&mut text, "fragment", group.fragment);
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
