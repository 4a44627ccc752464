//! Options of a UDP device, and the errors of opening it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_sys::explain::explain;
use horolog_sys::message::TransmitTimestamp;

/// Options of a UDP device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct UdpOptions {
    /// Maximum number of datagrams per system call; more datagrams take several calls.
    pub slots: usize,
    /// True if several sockets may share the address and port (`SO_REUSEPORT`).
    pub share_port: bool,
    /// True to take kernel receive timestamps.
    pub receive_timestamps: bool,
    /// True to report hardware receive timestamps, if the interface takes them.
    pub hardware_timestamps: bool,
    /// Source of transmit timestamps; `None` requests none. With hardware timestamps, received
    /// datagrams get them too.
    pub transmit_timestamps: Option<TransmitTimestamp>,
    /// True to report whether each datagram was sent to a unicast address
    /// ([`crate::Endpoints::unicast`]). A server needs that: with `SO_REUSEPORT` every socket of
    /// the port receives a copy of a multicast or broadcast datagram.
    pub report_unicast: bool,
    /// True to set `IPV6_V6ONLY`, so that an IPv6 wildcard listener receives no IPv4 datagrams.
    pub v6_only: bool,
    /// Receive buffer size to request, in bytes; the system's default if `None`.
    pub receive_buffer: Option<usize>,
    /// Send buffer size to request, in bytes; the system's default if `None`.
    pub send_buffer: Option<usize>,
    /// Name of the only interface to use.
    pub interface: Option<String>,
    /// Time that [`crate::BatchDevice::send`] waits for room in a full send buffer before it counts
    /// a datagram as refused. Zero: no wait.
    pub send_wait: Duration,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            slots: 32,
            share_port: false,
            receive_timestamps: true,
            hardware_timestamps: false,
            transmit_timestamps: None,
            report_unicast: false,
            v6_only: true,
            receive_buffer: None,
            send_buffer: None,
            interface: None,
            send_wait: Duration::ZERO,
        }
    }
}

/// Reason for which a UDP device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// Address in use by another socket.
    #[error("cannot use {0}: address in use by another program; stop it or choose another port")]
    InUse(SocketAddr),
    /// Address of another host.
    #[error("cannot use {0}: not an address of this host; choose one that `ip address` shows")]
    NotLocal(SocketAddr),
    /// Port below the unprivileged range.
    #[error("cannot use {0}: root or CAP_NET_BIND_SERVICE is required; choose a port from 1024 up")]
    Privilege(SocketAddr),
    /// Missing interface.
    #[error("cannot use interface {0}: not found; choose one that `ip link` shows")]
    NoInterface(String),
    /// No route to the peer.
    #[error("cannot reach {0}: {why}; check the address and the route to it", why = explain(.1))]
    Unreachable(SocketAddr, io::Error),
    /// Any other error of the kernel.
    #[error("cannot open a UDP socket for {0}: {why}", why = explain(.1))]
    Other(SocketAddr, io::Error),
}
