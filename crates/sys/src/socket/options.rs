//! Socket options for the transmission and reception of datagrams: traffic class, hop limit,
//! fragmentation, broadcast, busy polling, timestamps of all of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int};

use super::Socket;
use crate::descriptor::{get_option, set_option};

impl Socket {
    /// Sets the traffic class of sent datagrams: DSCP in the upper six bits, ECN in the lower two
    /// (`IP_TOS`, `IPV6_TCLASS`).
    pub fn set_traffic_class(&self, local: SocketAddr, class: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TOS, libc::IPV6_TCLASS, class.into())
    }

    /// Enables or disables the report of the traffic class of each datagram (`IP_RECVTOS`,
    /// `IPV6_RECVTCLASS`).
    pub fn enable_traffic_class(&self, local: SocketAddr, on: bool) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, on.into())
    }

    /// Sets the TTL or hop limit of unicast datagrams (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    pub fn set_hop_limit(&self, local: SocketAddr, limit: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TTL, libc::IPV6_UNICAST_HOPS, limit.into())
    }

    /// Requests the remaining TTL or hop limit of each datagram (`IP_RECVTTL`,
    /// `IPV6_RECVHOPLIMIT`).
    pub fn enable_hop_limit(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, 1)
    }

    /// Sends datagrams that are longer than the path MTU, as far as this host knows it, in
    /// fragments, and forbids routers to fragment the others (`IP_PMTUDISC_WANT`).
    pub fn allow_fragmentation(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_WANT,
        )
    }

    /// Refuses to send datagrams that are longer than the path MTU as far as this host knows it,
    /// and forbids routers to fragment others (`IP_PMTUDISC_DO`).
    pub fn never_fragment(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )
    }

    /// Allows other sockets with the same option to listen at this address and port, or at a
    /// wildcard that includes it (`SO_REUSEADDR`). The kernel checks both sockets when one is
    /// bound: a packet to one host is then for the socket whose address is the closest, one to a
    /// multicast group for all.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_REUSEADDR, &c_int::from(on))
    }

    /// Returns the path MTU to the connected peer, as far as this host knows it (`IP_MTU`,
    /// `IPV6_MTU`).
    pub fn path_mtu(&self, local: SocketAddr) -> io::Result<u32> {
        let (level, name) = if local.is_ipv4() {
            (IPPROTO_IP, libc::IP_MTU)
        } else {
            (IPPROTO_IPV6, libc::IPV6_MTU)
        };
        get_option(self.as_fd(), level, name).map(|[mtu]| mtu)
    }

    /// Allows the socket to send to broadcast addresses (`SO_BROADCAST`).
    pub fn allow_broadcast(&self) -> io::Result<()> {
        self.switch_on(SOL_SOCKET, libc::SO_BROADCAST)
    }

    /// Makes a receiving call poll the interface's queue for this many microseconds before it
    /// sleeps (`SO_BUSY_POLL`); only drivers that can be polled gain by it.
    pub fn set_busy_poll(&self, us: u32) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_BUSY_POLL, &(us as c_int))
    }

    /// Sets the timeout of a receiving call, which then ends with `WouldBlock` (`SO_RCVTIMEO`).
    ///
    /// # Errors
    ///
    /// None is known; zero would mean no timeout and is taken for a microsecond.
    pub fn set_receive_timeout(&self, wait: Duration) -> io::Result<()> {
        let wait = wait.max(Duration::from_micros(1));
        let timeout = libc::timeval {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_usec: wait.subsec_micros().into(),
        };
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
    }

    /// Requests the kernel's timestamps of all datagrams, received and sent; the latter come by the
    /// error queue without the bytes, numbered from 0 on in the order of sending
    /// (`SOF_TIMESTAMPING_OPT_ID`). A new request begins with 0 again.
    pub fn enable_all_timestamps(&self) -> io::Result<()> {
        let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE
            | libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Disables timestamps.
    pub fn disable_timestamps(&self) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &(0 as c_int))
    }

    fn set_by_family(&self, local: SocketAddr, v4: c_int, v6: c_int, to: c_int) -> io::Result<()> {
        if local.is_ipv4() {
            set_option(self.as_fd(), IPPROTO_IP, v4, &to)
        } else {
            set_option(self.as_fd(), IPPROTO_IPV6, v6, &to)
        }
    }
}
