//! The page as data: what was read of a machine at one instant. What could not be read is named,
//! and is absent; an absent counter claims nothing.

use serde::{Deserialize, Serialize};

use crate::{Socket, Softnet, UdpCounters};

/// Name and version of this format.
pub const SCHEMA: &str = "horolog.counters/1";

/// All counters that could be read. All count since some start of their own; only differences mean
/// something.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was read, RFC 3339.
    pub read_at: String,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// The queues between interfaces and the network stack, of all processors and interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softnet: Option<Softnet>,
    /// UDP over IPv4, all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_ipv4: Option<UdpCounters>,
    /// UDP over IPv6, all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_ipv6: Option<UdpCounters>,
    /// UDP sockets that take datagrams from anyone.
    #[serde(default)]
    pub sockets: Vec<Socket>,
    /// Time servers that told what they counted.
    #[serde(default)]
    pub servers: Vec<Server>,
    /// What could not be read.
    #[serde(default)]
    pub unread: Vec<Unread>,
}

/// What an interface counted (`struct rtnl_link_stats64`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Received packets that were bad.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets thrown away for want of room, in the driver or behind it.
    pub rx_dropped: u64,
    /// Packets thrown away before they were sent.
    pub tx_dropped: u64,
    /// Packets that the hardware had no room for.
    pub rx_missed: u64,
    /// Frames that its XDP program sent back and that did not fit into the other end's ring; only
    /// virtual links tell.
    #[serde(default)]
    pub xdp_tx_errors: u64,
}

/// What a time server counted itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Server {
    /// `chronyd` or `horolog`.
    pub program: String,
    /// Requests that it received.
    pub received: u64,
    /// Requests that it answered.
    pub answered: u64,
    /// Requests that its limits or lists turned away without a word, part of `received`.
    pub limited: u64,
}

/// Something that could not be read, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unread {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

impl Page {
    /// Reads a page as it was served. The reason of a refusal is one line.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let page: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if page.schema == SCHEMA {
            return Ok(page);
        }
        let schema: String = page.schema.chars().take(40).filter(|c| !c.is_control()).collect();
        Err(format!("its format is '{schema}' instead of '{SCHEMA}'"))
    }

    /// The page as it is served.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A structure of names and numbers always has a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_read() {
        let page = Page {
            schema: SCHEMA.to_owned(),
            interfaces: vec![Interface {
                name: "eth0".into(),
                rx_packets: u64::MAX,
                ..Interface::default()
            }],
            servers: vec![Server { program: "chronyd".into(), ..Server::default() }],
            ..Page::default()
        };
        assert_eq!(Page::parse(page.to_json().as_bytes()), Ok(page));
    }

    #[test]
    fn another_format_is_refused_in_one_line() {
        for text in ["", "{}", "[]", r#"{"schema":"a\nb","read_at":"","interfaces":[]}"#] {
            let refusal = Page::parse(text.as_bytes()).unwrap_err();
            assert!(!refusal.contains('\n') && !refusal.is_empty(), "{refusal}");
        }
        let newer = r#"{"schema":"horolog.counters/1","read_at":"","interfaces":[],"more":1}"#;
        assert!(Page::parse(newer.as_bytes()).is_ok(), "a newer page may hold more");
    }
}
