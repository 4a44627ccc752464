//! The options of a socket that say in what manner its datagrams go and how it waits for them:
//! traffic class, hop limit, fragmentation, broadcast, busy polling, timestamps of all of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int};

use super::Socket;
use crate::descriptor::{get_option, set_option};

impl Socket {
    /// Sets the traffic class of what is sent: DSCP in the upper six bits, ECN in the lower two
    /// (`IP_TOS`, `IPV6_TCLASS`).
    pub fn set_traffic_class(&self, local: SocketAddr, class: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TOS, libc::IPV6_TCLASS, class.into())
    }

    /// Asks for the traffic class of each datagram (`IP_RECVTOS`, `IPV6_RECVTCLASS`), or no more.
    pub fn tell_traffic_class(&self, local: SocketAddr, on: bool) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, on.into())
    }

    /// Sets the TTL or hop limit of what is sent to one host (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    pub fn set_hop_limit(&self, local: SocketAddr, limit: u8) -> io::Result<()> {
        self.set_by_family(local, libc::IP_TTL, libc::IPV6_UNICAST_HOPS, limit.into())
    }

    /// Asks for what is left of the TTL or hop limit of each datagram (`IP_RECVTTL`,
    /// `IPV6_RECVHOPLIMIT`).
    pub fn tell_hop_limit(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(local, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, 1)
    }

    /// Sends datagrams that are longer than the path's MTU in fragments, and learns nothing of
    /// routers that say otherwise (`IP_PMTUDISC_DONT`).
    pub fn send_in_fragments(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        )
    }

    /// Refuses to send datagrams that are longer than the path's MTU as far as this host knows it,
    /// and lets no router take others apart (`IP_PMTUDISC_DO`).
    pub fn never_fragment(&self, local: SocketAddr) -> io::Result<()> {
        self.set_by_family(
            local,
            libc::IP_MTU_DISCOVER,
            libc::IPV6_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )
    }

    /// Whether others that say the same may listen at this address and port, or at a wildcard that
    /// it is part of (`SO_REUSEADDR`). The kernel asks both ends when one is bound: a packet to one
    /// host is then for the socket whose address is the closest, one to a multicast group for all.
    pub fn share_address(&self, on: bool) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_REUSEADDR, &c_int::from(on))
    }

    /// The MTU of the path to where the socket is connected, as far as this host knows it
    /// (`IP_MTU`, `IPV6_MTU`).
    pub fn path_mtu(&self, local: SocketAddr) -> io::Result<u32> {
        let (level, name) = if local.is_ipv4() {
            (IPPROTO_IP, libc::IP_MTU)
        } else {
            (IPPROTO_IPV6, libc::IPV6_MTU)
        };
        get_option(self.as_fd(), level, name).map(|[mtu]| mtu)
    }

    /// Lets the socket send to broadcast addresses (`SO_BROADCAST`).
    pub fn allow_broadcast(&self) -> io::Result<()> {
        self.switch_on(SOL_SOCKET, libc::SO_BROADCAST)
    }

    /// Lets a receiving call look into the interface's queue for so many microseconds before it
    /// sleeps (`SO_BUSY_POLL`); only drivers that can be polled gain by it.
    pub fn set_busy_poll(&self, us: u32) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_BUSY_POLL, &(us as c_int))
    }

    /// Ends a receiving call that waits after so long, with `WouldBlock` (`SO_RCVTIMEO`).
    ///
    /// # Errors
    ///
    /// None is known; zero would mean no end and is taken for a microsecond.
    pub fn set_receive_timeout(&self, wait: Duration) -> io::Result<()> {
        let wait = wait.max(Duration::from_micros(1));
        let timeout = libc::timeval {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_usec: wait.subsec_micros().into(),
        };
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
    }

    /// Asks for the kernel's timestamps of all datagrams, those that come and those that leave; the
    /// latter come by the error queue without the bytes, numbered from 0 on in the order of
    /// sending (`SOF_TIMESTAMPING_OPT_ID`). Asking anew begins with 0 again.
    pub fn tell_all_times(&self) -> io::Result<()> {
        let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE
            | libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Asks for no timestamps any more.
    pub fn tell_no_times(&self) -> io::Result<()> {
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
