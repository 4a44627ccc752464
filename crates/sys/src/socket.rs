//! UDP sockets and their options. [`crate::message`] transfers batches of datagrams,
//! [`crate::datagram`] single ones.

mod options;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::descriptor::{get_option, set_option, wait_for, wait_for_any};
use crate::filter::{self, BpfInstruction};

/// Index of the number of drops in `SO_MEMINFO`.
const MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Length of the datagrams marked by [`DatagramSocket::enable_unicast_detection`], in bytes; no
/// other datagram has it.
pub const LINK_GROUP_LEN: usize = 1;

/// UDP socket, or a packet socket ([`crate::packet`]).
#[derive(Debug)]
pub struct DatagramSocket {
    descriptor: OwnedFd,
}

impl DatagramSocket {
    /// Creates an unbound UDP socket of the IP version of `address`.
    ///
    /// # Errors
    ///
    /// Of socket(2), for example in a kernel without IPv6.
    pub fn udp(address: SocketAddr) -> io::Result<Self> {
        Self::open(family_of(address), SocketType::DGRAM, SocketFlags::empty())
    }

    pub(crate) fn open(
        family: AddressFamily,
        kind: SocketType,
        flags: SocketFlags,
    ) -> io::Result<Self> {
        let descriptor = socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)?;
        Ok(Self { descriptor })
    }

    /// Returns the descriptor with its ownership.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Duplicates the descriptor of the socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { descriptor: self.descriptor.try_clone()? })
    }

    /// Binds the socket to a local address.
    pub fn bind(&self, local: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::bind(&self.descriptor, &local)?)
    }

    /// Binds the socket to a unicast address of this host, or to a wildcard.
    ///
    /// # Errors
    ///
    /// Of bind(2); `AddrNotAvailable` also for multicast and broadcast addresses, which the kernel
    /// would accept.
    pub fn bind_to_host(&self, local: SocketAddr) -> io::Result<()> {
        if local.ip().is_multicast() || is_broadcast(local)? {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        self.bind(local)
    }

    /// Connects the socket: the remote address is the default destination and the only accepted
    /// source.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.descriptor, &remote)?)
    }

    /// Returns the local address that the socket is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(&self.descriptor)?;
        address.try_into().map_err(|_| io::ErrorKind::Unsupported.into())
    }

    /// Allows several sockets to share one address and port (`SO_REUSEPORT`); must be set before
    /// binding.
    pub fn set_reuse_port(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseport(self, true)?)
    }

    /// Sets whether an IPv6 wildcard socket excludes IPv4 (`IPV6_V6ONLY`); must be set before
    /// binding.
    pub fn set_v6_only(&self, v6_only: bool) -> io::Result<()> {
        Ok(sockopt::set_ipv6_v6only(self, v6_only)?)
    }

    /// Requests the destination address and ingress interface of each datagram (`IP_PKTINFO`,
    /// `IPV6_RECVPKTINFO`). Of `local` only the IP version matters.
    pub fn enable_packet_info(&self, local: SocketAddr) -> io::Result<()> {
        if local.is_ipv4() {
            self.switch_on(IPPROTO_IP, libc::IP_PKTINFO)
        } else {
            self.switch_on(IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
        }
    }

    /// Makes datagrams sent to this host alone distinguishable from others: multicast and broadcast
    /// at the IP layer by the destination ([`crate::message::AncillaryData::is_unicast`]), and
    /// unicast datagrams with a multicast or broadcast MAC address by their length
    /// [`LINK_GROUP_LEN`]. The kernel delivers the latter despite RFC 1122, section 3.3.6, and does
    /// not report the MAC address.
    pub fn enable_unicast_detection(&self, local: SocketAddr) -> io::Result<()> {
        self.enable_destination_info(local)?;
        self.mark_link_groups(None)
    }

    /// Marks unicast datagrams with a multicast or broadcast MAC address, like
    /// [`DatagramSocket::enable_unicast_detection`], except those with this byte at this offset of
    /// the payload.
    pub fn mark_link_groups(&self, exempt_byte: Option<(u32, u8)>) -> io::Result<()> {
        self.attach_filter(&filter::link_group_filter(Some(LINK_GROUP_LEN as u32), exempt_byte))
    }

    /// Makes datagrams sent to a unicast address of this host distinguishable by their destination
    /// alone; no datagram is truncated.
    pub fn enable_destination_info(&self, local: SocketAddr) -> io::Result<()> {
        if local.is_ipv6() {
            self.enable_packet_info(local)?;
        }
        // A dual-stack IPv6 socket reports IPv4 broadcast destinations this way.
        self.switch_on(IPPROTO_IP, libc::IP_PKTINFO)
    }

    /// Drops unicast datagrams with a multicast or broadcast MAC address and counts them in
    /// [`DatagramSocket::drops`], for sockets that receive datagrams of every length.
    pub fn drop_link_groups(&self) -> io::Result<()> {
        self.attach_filter(&filter::link_group_filter(None, None))
    }

    /// Requests a software receive timestamp for each datagram (`SO_TIMESTAMPING`,
    /// Documentation/networking/timestamping.rst), and with `hardware` also a hardware timestamp,
    /// if available.
    pub fn enable_receive_timestamps(&self, hardware: bool) -> io::Result<()> {
        let mut flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        if hardware {
            flags |= libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        }
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Enables receive timestamps like [`DatagramSocket::enable_receive_timestamps`], and requests
    /// for transmit timestamps of single datagrams. With `hardware`, hardware timestamps are
    /// reported with their interface.
    pub fn enable_timestamps(&self, local: SocketAddr, hardware: bool) -> io::Result<()> {
        if hardware {
            // Packets from the error queue report their interface only this way.
            self.enable_packet_info(local)?;
        }
        self.enable_frame_timestamps(hardware)
    }

    /// Enables timestamps like [`DatagramSocket::enable_timestamps`] for a packet socket, whose
    /// interface is known.
    pub fn enable_frame_timestamps(&self, hardware: bool) -> io::Result<()> {
        let mut flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        if hardware {
            flags |= libc::SOF_TIMESTAMPING_RX_HARDWARE
                | libc::SOF_TIMESTAMPING_RAW_HARDWARE
                | libc::SOF_TIMESTAMPING_OPT_PKTINFO
                | libc::SOF_TIMESTAMPING_OPT_CMSG;
        }
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Requests a receive buffer of `bytes`, above the system limit if permitted
    /// (`SO_RCVBUFFORCE`); returns the granted size in bytes.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    }

    /// Requests a send buffer like [`DatagramSocket::set_receive_buffer`].
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    }

    fn set_buffer(&self, bytes: usize, forced: c_int, limited: c_int) -> io::Result<usize> {
        let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
        if set_option(self.as_fd(), SOL_SOCKET, forced, &wanted).is_err() {
            set_option(self.as_fd(), SOL_SOCKET, limited, &wanted)?;
        }
        let [granted] = get_option(self.as_fd(), SOL_SOCKET, limited)?;
        // The kernel doubles the requested size for its own overhead (socket(7)).
        Ok(granted as usize / 2)
    }

    /// Joins a multicast group on an interface, and sends multicast by that interface only, within
    /// the link and without loopback (`IP_ADD_MEMBERSHIP`, `IP_MULTICAST_IF`, `IP_MULTICAST_LOOP`
    /// in ip(7), and their IPv6 counterparts).
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt::set_ip_add_membership_with_ifindex(self, &group, &any, interface)?;
                sockopt::set_ip_multicast_if_with_ifindex(self, &group, &any, interface)?;
                sockopt::set_ip_multicast_loop(self, false)?;
            }
            IpAddr::V6(group) => {
                sockopt::set_ipv6_add_membership(self, &group, interface)?;
                sockopt::set_ipv6_multicast_if(self, interface)?;
                sockopt::set_ipv6_multicast_loop(self, false)?;
            }
        }
        Ok(())
    }

    /// Restricts reception of multicast to groups that this socket has joined; over IPv4 also to
    /// the interfaces where it has joined them (`IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`). Of
    /// `group` only the IP version matters.
    pub fn only_joined_groups(&self, group: IpAddr) -> io::Result<()> {
        let off: c_int = 0;
        match group {
            IpAddr::V4(_) => set_option(self.as_fd(), IPPROTO_IP, libc::IP_MULTICAST_ALL, &off),
            IpAddr::V6(_) => set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, &off),
        }
    }

    /// Restricts sending and receiving to the interface named `name` (`SO_BINDTODEVICE`).
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such interface.
    pub fn bind_to_interface(&self, name: &str) -> io::Result<()> {
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_BINDTODEVICE, name).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENODEV) => io::ErrorKind::NotFound.into(),
                _ => error,
            }
        })
    }

    /// Delivers each datagram for a shared port to the socket whose index (in the order of binding)
    /// is the number of the receiving CPU modulo `sockets` (`SO_ATTACH_REUSEPORT_CBPF`). It applies
    /// to all sockets that share the port.
    pub fn steer_by_cpu(&self, sockets: u32) -> io::Result<()> {
        let program = filter::cpu_modulo(sockets);
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Delivers each datagram for a shared port to a socket by its index (in the order of binding):
    /// payloads longer than `len_max` bytes to the second half of `sockets`, others to the first
    /// half; within a half by the receiving CPU or at random. It applies to all sockets that share
    /// the port.
    pub fn steer_by_length(&self, sockets: u32, len_max: u32, by_cpu: bool) -> io::Result<()> {
        let program = filter::longer_in_second_half(sockets / 2, len_max, by_cpu);
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Accepts only packets for which `program` returns a number other than 0; longer ones are
    /// truncated to that number of bytes (`SO_ATTACH_FILTER`).
    pub fn attach_filter(&self, program: &[BpfInstruction]) -> io::Result<()> {
        self.attach(libc::SO_ATTACH_FILTER, program)
    }

    fn attach(&self, option: c_int, program: &[BpfInstruction]) -> io::Result<()> {
        let header = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            // The kernel copies the program and does not write to it.
            filter: program.as_ptr().cast_mut().cast(),
        };
        set_option(self.as_fd(), SOL_SOCKET, option, &header)
    }

    /// Returns the datagrams dropped at this socket since it was opened, usually because its buffer
    /// was full, modulo 2^32 (`SO_MEMINFO`; unlike `SO_RXQ_OVFL` without the need for another
    /// datagram).
    pub fn drops(&self) -> io::Result<u32> {
        let words: [u32; MEMINFO_DROPS + 1] =
            get_option(self.as_fd(), SOL_SOCKET, libc::SO_MEMINFO)?;
        Ok(words[MEMINFO_DROPS])
    }

    /// Waits up to `wait` until the socket is readable; returns true if it is. A signal ends the
    /// wait like a timeout.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.as_fd(), PollFlags::IN, wait)
    }

    /// Waits like [`DatagramSocket::wait_readable`] for either of two sockets.
    pub fn wait_either(&self, other: &Self, wait: Duration) -> io::Result<bool> {
        wait_for_any([self.as_fd(), other.as_fd()], PollFlags::IN, wait)
    }

    /// Waits like [`DatagramSocket::wait_readable`] until the socket is writable.
    pub fn wait_writable(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.as_fd(), PollFlags::OUT, wait)
    }

    pub(crate) fn switch_on(&self, level: c_int, name: c_int) -> io::Result<()> {
        set_option(self.as_fd(), level, name, &(1 as c_int))
    }
}

pub(crate) const fn family_of(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Returns true for a broadcast address: the kernel refuses to connect a socket without
/// `SO_BROADCAST` to one.
fn is_broadcast(address: SocketAddr) -> io::Result<bool> {
    if !address.is_ipv4() || address.ip().is_unspecified() {
        return Ok(false);
    }
    // Any port works, since nothing is sent.
    let connected = DatagramSocket::udp(address)?.connect((address.ip(), 9).into());
    Ok(connected.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES)))
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
