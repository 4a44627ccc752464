//! How a UDP device is opened, and why that can fail.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_sys::message::TransmitStamp;

/// How a UDP device is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct UdpOptions {
    /// Datagrams that one system call moves at most; more than that goes in several calls.
    pub slots: usize,
    /// Several sockets may share the address and port (`SO_REUSEPORT`).
    pub share_port: bool,
    /// Take a kernel timestamp of each received datagram.
    pub receive_timestamps: bool,
    /// Tell the timestamps that an interface's own clock takes of them, where it does.
    pub hardware_timestamps: bool,
    /// Whether packets can be timestamped on their way out, and by what. With the hardware's
    /// timestamps come those of received datagrams as well.
    pub transmit_timestamps: Option<TransmitStamp>,
    /// An IPv6 wildcard listener leaves IPv4 alone.
    pub v6_only: bool,
    /// Bytes of receive buffer to ask for; the system's default if `None`.
    pub receive_buffer: Option<usize>,
    /// Bytes of send buffer to ask for; the system's default if `None`.
    pub send_buffer: Option<usize>,
    /// The one interface to use, by name.
    pub interface: Option<String>,
    /// How long [`crate::Device::send`] waits for room when the send buffer is full before it
    /// counts a datagram as refused. Zero: not at all.
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
            v6_only: true,
            receive_buffer: None,
            send_buffer: None,
            interface: None,
            send_wait: Duration::ZERO,
        }
    }
}

/// Why a UDP device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The address is taken by another socket.
    #[error(
        "cannot use {0}: another program is using this address and port; stop it or choose another port"
    )]
    InUse(SocketAddr),
    /// The address is not one of this host's.
    #[error("cannot use {0}: this host has no such address; choose one that `ip address` shows")]
    NotLocal(SocketAddr),
    /// A port below the unprivileged range.
    #[error(
        "cannot use {0}: this port needs root or CAP_NET_BIND_SERVICE; choose a port from 1024 up"
    )]
    Privilege(SocketAddr),
    /// The interface to bind to does not exist.
    #[error(
        "cannot use interface {0}: there is none of this name; choose one that `ip link` shows"
    )]
    NoInterface(String),
    /// There is no way to the peer.
    #[error("cannot reach {0}: {1}; check the address and the route to it")]
    Unreachable(SocketAddr, io::Error),
    /// Anything else that the kernel refused.
    #[error("cannot open a UDP socket for {0}: {1}")]
    Other(SocketAddr, io::Error),
}
