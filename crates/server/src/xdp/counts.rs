//! Counts of the XDP engine and the interfaces on which it answers, for `horolog status`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Interface on which XDP answers, for `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpInterfaceStatus {
    /// Interface name.
    pub interface: String,
    /// Attach mode: `native` or `generic`.
    pub mode: Cow<'static, str>,
}

/// Counts of the XDP engine, for `horolog status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpCounts {
    /// Requests answered over IPv4, including kisses.
    pub answered_ipv4: u64,
    /// Requests answered over IPv6, including kisses.
    pub answered_ipv6: u64,
    /// Requests answered in interleaved mode, part of `answered_ipv4` or `answered_ipv6`.
    pub answered_interleaved: u64,
    /// Requests answered in symmetric passive mode (2), part of `answered_ipv4` or `answered_ipv6`.
    pub answered_symmetric: u64,
    /// Requests admitted by rate limits and prefix lists; 0 without any.
    pub admitted: u64,
    /// Requests dropped by rate limits and prefix lists, by reason.
    pub dropped: XdpDropCounts,
    /// Kisses sent, by code.
    pub kisses: XdpKissCounts,
    /// PTP delay requests answered.
    pub answered_ptp: u64,
    /// PTP NetSync Monitor requests answered.
    pub answered_ptp_monitor: u64,
    /// Requests longer than a header that were redirected to `AF_XDP` sockets of this process.
    /// Their outcomes are among the counts of the socket engine.
    pub to_af_xdp: u64,
    /// Frames passed to the network stack, by reason.
    pub passed: XdpPassCounts,
}

impl XdpCounts {
    /// Returns the number of NTP requests answered, including kisses.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered_ipv4 + self.answered_ipv6
    }
}

/// Declares `by_name` for a struct of counts; a field that the list omits is a compile error.
macro_rules! counts_by_name {
    ($type:ty, $($name:ident),+) => {
        impl $type {
            /// Returns each count with its name in the status.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let Self { $($name),+ } = *self;
                [$((stringify!($name), $name)),+].into_iter()
            }
        }
    };
}

counts_by_name!(
    XdpPassCounts,
    not_ntp,
    malformed,
    fragment,
    address,
    length,
    request,
    no_clock,
    interleaved
);
counts_by_name!(XdpDropCounts, limited, denied, new_clients);
counts_by_name!(XdpKissCounts, rate, deny);

impl XdpDropCounts {
    /// Returns the number of requests dropped for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().map(|(_, count)| count).sum()
    }
}

/// Counts of frames passed to the network stack, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpPassCounts {
    /// Frame other than a UDP packet over IP to a listen address and port, or in a VLAN in which
    /// this host has no interface.
    pub not_ntp: u64,
    /// Inconsistent lengths, wrong checksum, or trailing bytes.
    pub malformed: u64,
    /// Fragments of packets over IPv4.
    pub fragment: u64,
    /// Source address that is not answered, or multicast or broadcast address.
    pub address: u64,
    /// Length other than that of an NTP header.
    pub length: u64,
    /// NTP version or mode that XDP does not answer.
    pub request: u64,
    /// Valid requests for which the clock page had expired.
    pub no_clock: u64,
    /// Request that may be in interleaved mode, on an interface where the sockets answer those.
    pub interleaved: u64,
}

/// Counts of requests dropped by rate limits and prefix lists, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpDropCounts {
    /// Requests in excess of the client's rate limit.
    pub limited: u64,
    /// Requests denied by the lists.
    pub denied: u64,
    /// Requests in excess of the limit for new clients.
    pub new_clients: u64,
}

/// Counts of kisses sent, by kiss code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpKissCounts {
    /// Kisses to clients in excess of their rate limit.
    pub rate: u64,
    /// Kisses to clients denied by the lists.
    pub deny: u64,
}
