//! Counter snapshot: counters of a host at one instant. What cannot be read is absent and listed in
//! `unavailable`; a source that does not exist, such as `snmp6` without IPv6, is only absent.

use serde::{Deserialize, Serialize};

use crate::{SoftnetCounts, UdpCounts, UdpSocketCounts};

/// Name and version of this format.
pub const SCHEMA: &str = "horolog.counters/2";

/// All counters that could be read. They have different starting points, so only differences
/// between two snapshots are meaningful.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CounterSnapshot {
    /// Name and version of the format, [`SCHEMA`].
    pub schema: String,
    /// Time of reading, in UTC (RFC 3339).
    pub read_at: String,
    /// Network interfaces.
    pub interfaces: Vec<InterfaceCounts>,
    /// Receive backlogs of all CPUs (`/proc/net/softnet_stat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softnet: Option<SoftnetCounts>,
    /// UDP over IPv4, all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_ipv4: Option<UdpCounts>,
    /// UDP over IPv6, all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_ipv6: Option<UdpCounts>,
    /// UDP sockets that accept datagrams from any address.
    #[serde(default)]
    pub sockets: Vec<UdpSocketCounts>,
    /// Time servers that reported counts.
    #[serde(default)]
    pub servers: Vec<ServerCounts>,
    /// Counters that could not be read.
    #[serde(default)]
    pub unavailable: Vec<UnavailableCounter>,
}

/// Counters of an interface (`struct rtnl_link_stats64`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InterfaceCounts {
    /// Name of the interface.
    pub name: String,
    /// Packets received by the interface.
    pub rx_packets: u64,
    /// Packets sent by the interface.
    pub tx_packets: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets that were dropped before delivery, for lack of memory or of a receiver.
    pub rx_dropped: u64,
    /// Packets dropped before transmission.
    pub tx_dropped: u64,
    /// Received packets dropped by the NIC for lack of buffers.
    pub rx_missed: u64,
    /// Frames that an XDP program sent back (`XDP_TX`) and that did not fit into the peer's ring;
    /// reported only by veth interfaces.
    #[serde(default)]
    pub xdp_tx_errors: u64,
}

/// Counts that a time server reports about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerCounts {
    /// `chronyd` or `horolog`.
    pub program: String,
    /// Requests that the server received.
    pub received: u64,
    /// Requests that the server answered.
    pub answered: u64,
    /// Requests that a rate limit or an access list refused without a reply; included in
    /// `received`.
    pub limited: u64,
}

/// A counter that could not be read, and the reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnavailableCounter {
    /// Part of the snapshot: `interfaces`, a file of `/proc/net`, or a program.
    pub item: String,
    /// Reason why it could not be read.
    pub reason: String,
}

impl CounterSnapshot {
    /// Parses a snapshot as served. The error is one line of text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let snapshot: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if snapshot.schema == SCHEMA {
            return Ok(snapshot);
        }
        let schema: String = snapshot.schema.chars().take(40).filter(|c| !c.is_control()).collect();
        Err(format!("its format is '{schema}' instead of '{SCHEMA}'"))
    }

    /// Returns the snapshot as served, in JSON.
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
        let page = CounterSnapshot {
            schema: SCHEMA.to_owned(),
            interfaces: vec![InterfaceCounts {
                name: "eth0".into(),
                rx_packets: u64::MAX,
                ..InterfaceCounts::default()
            }],
            servers: vec![ServerCounts { program: "chronyd".into(), ..ServerCounts::default() }],
            ..CounterSnapshot::default()
        };
        assert_eq!(CounterSnapshot::parse(page.to_json().as_bytes()), Ok(page));
    }

    #[test]
    fn another_format_is_refused_in_one_line() {
        for text in ["", "{}", "[]", r#"{"schema":"a\nb","read_at":"","interfaces":[]}"#] {
            let refusal = CounterSnapshot::parse(text.as_bytes()).unwrap_err();
            assert!(!refusal.contains('\n') && !refusal.is_empty(), "{refusal}");
        }
        let newer = r#"{"schema":"horolog.counters/2","read_at":"","interfaces":[],"more":1}"#;
        assert!(CounterSnapshot::parse(newer.as_bytes()).is_ok(), "a newer page may hold more");
    }
}
