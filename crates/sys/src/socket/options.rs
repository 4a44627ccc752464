//! Socket options for datagrams: traffic class, hop limit, fragmentation, broadcast, busy polling,
//! timestamps of all datagrams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int};

use rustix::net::sockopt;

use super::DatagramSocket;
use crate::descriptor::set_option;

impl DatagramSocket {
    /// Sets the traffic class of sent datagrams: DSCP in the upper six bits, ECN in the lower two
    /// (`IP_TOS`, `IPV6_TCLASS`). Of `local` only the IP version matters.
    pub fn set_traffic_class(&self, local: SocketAddr, class: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TOS, libc::IPV6_TCLASS, class.into())
    }

    /// Enables or disables the report of the traffic class of each datagram (`IP_RECVTOS`,
    /// `IPV6_RECVTCLASS`). Of `local` only the IP version matters.
    pub fn enable_traffic_class(&self, local: SocketAddr, on: bool) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, on.into())
    }

    /// Sets the TTL or hop limit of unicast datagrams (`IP_TTL`, `IPV6_UNICAST_HOPS`). Of `local`
    /// only the IP version matters.
    pub fn set_hop_limit(&self, local: SocketAddr, limit: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TTL, libc::IPV6_UNICAST_HOPS, limit.into())
    }

    /// Requests the remaining TTL or hop limit of each datagram (`IP_RECVTTL`,
    /// `IPV6_RECVHOPLIMIT`). Of `local` only the IP version matters.
    pub fn enable_hop_limit(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, 1)
    }

    /// Fragments datagrams that exceed the known path MTU, and sets "don't fragment" on others
    /// (`IP_PMTUDISC_WANT`). Of `local` only the IP version matters.
    pub fn allow_fragmentation(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_WANT,
        )
    }

    /// Refuses datagrams that exceed the known path MTU, and sets "don't fragment" on others
    /// (`IP_PMTUDISC_DO`). Of `local` only the IP version matters.
    pub fn never_fragment(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )
    }

    /// Allows sockets with this option to share an address and port, or to overlap by a wildcard
    /// (`SO_REUSEADDR`). The kernel checks it on both sockets at bind(2). A unicast packet goes to
    /// the socket with the most specific address, a multicast packet to all.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseaddr(self, on)?)
    }

    /// Returns the known path MTU to the connected peer, in bytes (`IP_MTU`, `IPV6_MTU`). Of
    /// `local` only the IP version matters.
    pub fn path_mtu(&self, local: SocketAddr) -> io::Result<u32> {
        let is_ipv4 = local.is_ipv4();
        Ok(if is_ipv4 { sockopt::ip_mtu(self) } else { sockopt::ipv6_mtu(self) }?)
    }

    /// Allows the socket to send to broadcast addresses (`SO_BROADCAST`).
    pub fn allow_broadcast(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_broadcast(self, true)?)
    }

    /// Sets the time for which a receive call polls the queue of the interface before it sleeps, in
    /// microseconds (`SO_BUSY_POLL`); it helps only with drivers that support it.
    pub fn set_busy_poll(&self, us: u32) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_BUSY_POLL, &(us as c_int))
    }

    /// Sets the timeout of a receive call, after which it returns `WouldBlock` (`SO_RCVTIMEO`).
    /// Zero, which would mean no timeout, is replaced by one microsecond.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn set_receive_timeout(&self, wait: Duration) -> io::Result<()> {
        let wait = wait.max(Duration::from_micros(1));
        Ok(sockopt::set_socket_timeout(self, sockopt::Timeout::Recv, Some(wait))?)
    }

    /// Requests software timestamps of all received and sent datagrams. Transmit timestamps arrive
    /// in the error queue without payload, numbered from 0 in the order of sending
    /// (`SOF_TIMESTAMPING_OPT_ID`).
    pub fn enable_all_timestamps(&self) -> io::Result<()> {
        let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE
            | libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Disables receive and transmit timestamps (`SO_TIMESTAMPING`).
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
