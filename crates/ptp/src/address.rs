//! Addresses of PTP messages: other clocks, multicast groups and managers.

use std::net::{IpAddr, Ipv4Addr};

use horolog_wire::ethernet::MacAddress;

/// Address of another clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PtpAddress {
    /// IP addresses of both hosts.
    Ip {
        /// IP address of the remote host.
        peer: IpAddr,
        /// IP address of this host to which the remote host sends; unspecified if unknown.
        local: IpAddr,
    },
    /// MAC address of the remote host.
    Mac(MacAddress),
}

impl PtpAddress {
    /// Returns true if both belong to the same remote host, whatever the address of this host.
    pub(crate) fn is_same_peer(self, other: Self) -> bool {
        self.with_local_unspecified() == other.with_local_unspecified()
    }

    /// Returns the address with an unspecified address of this host; it sorts before all others of
    /// the same remote host.
    pub(crate) fn with_local_unspecified(self) -> Self {
        match self {
            Self::Ip { peer, .. } => Self::Ip { peer, local: Ipv4Addr::UNSPECIFIED.into() },
            mac @ Self::Mac(_) => mac,
        }
    }
}

/// Destination of a PTP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpDestination {
    /// Multicast group of all PTP messages except those of the peer delay mechanism.
    Group,
    /// Multicast group of the peer delay mechanism, limited to the link.
    PeerGroup,
    /// Single port.
    To(PtpAddress),
    /// Sender of a management request, which need not be a PTP port, with its UDP source port
    /// (annexes C.2 and D.2); the port is not used over Ethernet.
    Manager(PtpAddress, u16),
}
