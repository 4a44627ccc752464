//! UDP sockets: opening them and setting their options. Datagrams go through [`crate::message`],
//! single ones through [`crate::datagram`].

mod options;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int};

use crate::address::RawAddress;
use crate::descriptor::{check, check_new, get_option, set_option, wait_for, wait_for_any};
use crate::filter::{self, Instruction};

/// Index of the number of dropped datagrams in the answer to `SO_MEMINFO`.
const MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Length of every datagram that [`Socket::enable_unicast_detection`] marks, and of no other.
pub const LINK_GROUP_LEN: usize = 1;

/// Datagram socket, IPv4 or IPv6, or a packet socket ([`crate::packet`]).
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
}

impl Socket {
    /// Creates a UDP socket of the family of `address`, not bound yet.
    ///
    /// # Errors
    ///
    /// Of socket(2), such as no IPv6 in this kernel.
    pub fn udp(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        Self::open(family, libc::SOCK_DGRAM, 0)
    }

    pub(crate) fn open(family: c_int, kind: c_int, protocol: c_int) -> io::Result<Self> {
        // SAFETY: three numbers in, a new descriptor out, owned from here on.
        let descriptor =
            unsafe { check_new(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol)) }?;
        Ok(Self { descriptor })
    }

    /// Returns its descriptor, for another type to own.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Returns a second descriptor of the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { descriptor: self.descriptor.try_clone()? })
    }

    /// Binds the socket to a local address.
    pub fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let (raw, length) = RawAddress::encode(local);
        // SAFETY: the address and its length, alive for the call.
        check(unsafe { libc::bind(self.descriptor.as_raw_fd(), raw.as_ptr(), length as _) })
            .map(drop)
    }

    /// Binds the socket to an address of this host alone, or to a wildcard.
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

    /// Fixes the remote address: datagrams go there by default, and only its datagrams are
    /// received.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        let (raw, length) = RawAddress::encode(remote);
        // SAFETY: the address and its length, alive for the call.
        check(unsafe { libc::connect(self.descriptor.as_raw_fd(), raw.as_ptr(), length as _) })
            .map(drop)
    }

    /// Returns the local address that the socket is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let mut raw = RawAddress::default();
        let mut length = RawAddress::CAPACITY as libc::socklen_t;
        // SAFETY: room for an address and the size of that room, alive for the call.
        check(unsafe {
            libc::getsockname(self.descriptor.as_raw_fd(), raw.as_mut_ptr(), &raw mut length)
        })?;
        raw.decode(length as usize).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Allows several sockets to share one address and port (`SO_REUSEPORT`); must be set before
    /// binding.
    pub fn set_reuse_port(&self) -> io::Result<()> {
        self.switch_on(SOL_SOCKET, libc::SO_REUSEPORT)
    }

    /// Sets if an IPv6 wildcard socket leaves IPv4 alone (`IPV6_V6ONLY`); must be set before
    /// binding.
    pub fn set_v6_only(&self, v6_only: bool) -> io::Result<()> {
        set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_V6ONLY, &c_int::from(v6_only))
    }

    /// Requests the local address and interface of each datagram (`IP_PKTINFO`,
    /// `IPV6_RECVPKTINFO`).
    pub fn enable_packet_info(&self, local: SocketAddr) -> io::Result<()> {
        if local.is_ipv4() {
            self.switch_on(IPPROTO_IP, libc::IP_PKTINFO)
        } else {
            self.switch_on(IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
        }
    }

    /// Makes datagrams that were sent to one address of this host alone distinguishable from all
    /// others: by their destination ([`crate::ancillary::AncillaryData::is_unicast`]), and those
    /// whose link address is a group's or the broadcast address by their length,
    /// [`LINK_GROUP_LEN`]. The kernel delivers such a datagram (RFC 1122, section 3.3.6
    /// notwithstanding) without reporting its link address.
    pub fn enable_unicast_detection(&self, local: SocketAddr) -> io::Result<()> {
        self.enable_destination_info(local)?;
        self.mark_link_groups(None)
    }

    /// Marks datagrams for one host whose link address is a group's or the broadcast address, like
    /// [`Socket::enable_unicast_detection`], except those that have this byte at this offset.
    pub fn mark_link_groups(&self, unless: Option<(u32, u8)>) -> io::Result<()> {
        self.attach_filter(&filter::link_groups(Some(LINK_GROUP_LEN as u32), unless))
    }

    /// Makes datagrams that were sent to one address of this host distinguishable from all others
    /// by their destination alone, and leaves all of them whole.
    pub fn enable_destination_info(&self, local: SocketAddr) -> io::Result<()> {
        if local.is_ipv6() {
            self.enable_packet_info(local)?;
        }
        // An IPv6 socket may take IPv4 as well, and then reports broadcast destinations this way.
        self.switch_on(IPPROTO_IP, libc::IP_PKTINFO)
    }

    /// Drops datagrams for one host whose link address is a group's or the broadcast address, and
    /// counts them among [`Socket::drops`]; for sockets that need datagrams of every length.
    pub fn drop_link_groups(&self) -> io::Result<()> {
        self.attach_filter(&filter::link_groups(None, None))
    }

    /// Requests a software receive timestamp with each datagram (`SO_TIMESTAMPING`,
    /// Documentation/networking/timestamping.rst); with `hardware` also the one of an interface's
    /// own clock, if there is one.
    pub fn enable_receive_timestamps(&self, hardware: bool) -> io::Result<()> {
        let mut flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        if hardware {
            flags |= libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        }
        set_option(self.as_fd(), SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Enables timestamps like [`Socket::enable_receive_timestamps`], and allows requests for
    /// transmit timestamps, packet by packet. With `hardware`, the timestamps of an interface's own
    /// clock are reported as well, with the interface.
    pub fn enable_timestamps(&self, local: SocketAddr, hardware: bool) -> io::Result<()> {
        if hardware {
            // Packets from the error queue name their interface in this way alone.
            self.enable_packet_info(local)?;
        }
        self.enable_frame_timestamps(hardware)
    }

    /// Enables timestamps like [`Socket::enable_timestamps`], for a packet socket, whose interface
    /// is known.
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

    /// Requests a receive buffer of `bytes`, past the system's limit if this process may
    /// (`SO_RCVBUFFORCE`), and returns the granted size in the same measure.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    }

    /// Requests a send buffer like [`Socket::set_receive_buffer`].
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    }

    fn set_buffer(&self, bytes: usize, forced: c_int, limited: c_int) -> io::Result<usize> {
        let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
        if set_option(self.as_fd(), SOL_SOCKET, forced, &wanted).is_err() {
            set_option(self.as_fd(), SOL_SOCKET, limited, &wanted)?;
        }
        let [granted] = get_option(self.as_fd(), SOL_SOCKET, limited)?;
        // The kernel doubles the requested size, to leave room for its own bookkeeping: socket(7).
        Ok(granted as usize / 2)
    }

    /// Joins a multicast group on an interface, and sends to groups by that interface alone, no
    /// further than its link and not back to this host (`IP_ADD_MEMBERSHIP`, `IP_MULTICAST_IF`,
    /// `IP_MULTICAST_LOOP`, ip(7); the same of ipv6(7)).
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let index = interface as c_int;
        let off: c_int = 0;
        match group {
            IpAddr::V4(group) => {
                let member = libc::ip_mreqn {
                    imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
                    imr_address: libc::in_addr { s_addr: 0 },
                    imr_ifindex: index,
                };
                set_option(self.as_fd(), IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &member)?;
                set_option(self.as_fd(), IPPROTO_IP, libc::IP_MULTICAST_IF, &member)?;
                set_option(self.as_fd(), IPPROTO_IP, libc::IP_MULTICAST_LOOP, &off)
            }
            IpAddr::V6(group) => {
                let member = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
                    ipv6mr_interface: interface,
                };
                set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &member)?;
                set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index)?;
                set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, &off)
            }
        }
    }

    /// Receives packets of multicast groups only on the interfaces where this socket has joined
    /// them, not where others have (`IP_MULTICAST_ALL`, ip(7), `IPV6_MULTICAST_ALL`).
    pub fn only_joined_groups(&self, group: IpAddr) -> io::Result<()> {
        let off: c_int = 0;
        match group {
            IpAddr::V4(_) => set_option(self.as_fd(), IPPROTO_IP, libc::IP_MULTICAST_ALL, &off),
            IpAddr::V6(_) => set_option(self.as_fd(), IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, &off),
        }
    }

    /// Sends and receives by the interface named `name` alone (`SO_BINDTODEVICE`).
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such interface.
    pub fn bind_to_interface(&self, name: &str) -> io::Result<()> {
        // SAFETY: the name's bytes and their number; the kernel reads them and needs no final zero.
        check(unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name.as_ptr().cast(),
                name.len() as libc::socklen_t,
            )
        })
        .map(drop)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => io::ErrorKind::NotFound.into(),
            _ => error,
        })
    }

    /// Delivers each datagram for a shared port to the socket whose index in the order of binding
    /// is the number of the CPU that received it, modulo `sockets` (`SO_ATTACH_REUSEPORT_CBPF`).
    /// Set on one socket, it holds for all that share the port.
    pub fn steer_by_cpu(&self, sockets: u32) -> io::Result<()> {
        let program = filter::cpu_modulo(sockets);
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Delivers each datagram for a shared port to a socket by its index in the order of binding:
    /// one whose payload is longer than `len_max` bytes to the second half of `sockets`, any other
    /// to the first, and within the half by the number of the CPU that received it or at random.
    /// Set on one socket, it holds for all that share the port.
    pub fn steer_by_length(&self, sockets: u32, len_max: u32, by_cpu: bool) -> io::Result<()> {
        let program = filter::longer_in_second_half(sockets / 2, len_max, by_cpu);
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Keeps only packets for which `program` returns a number other than 0 (`SO_ATTACH_FILTER`).
    pub fn attach_filter(&self, program: &[Instruction]) -> io::Result<()> {
        self.attach(libc::SO_ATTACH_FILTER, program)
    }

    fn attach(&self, option: c_int, program: &[Instruction]) -> io::Result<()> {
        let header = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            // The kernel copies the program and does not write to it.
            filter: program.as_ptr().cast_mut().cast(),
        };
        set_option(self.as_fd(), SOL_SOCKET, option, &header)
    }

    /// Returns the datagrams that the kernel dropped at this socket since it was opened, mostly
    /// because its buffer was full; modulo 2^32 (`SO_MEMINFO`; the number that `SO_RXQ_OVFL` gives,
    /// without the need of a later datagram to carry it).
    pub fn drops(&self) -> io::Result<u32> {
        let words: [u32; MEMINFO_DROPS + 1] =
            get_option(self.as_fd(), SOL_SOCKET, libc::SO_MEMINFO)?;
        Ok(words[MEMINFO_DROPS])
    }

    /// Waits up to `wait` until something can be received; returns true if it can. A signal ends
    /// the wait like a timeout.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.as_fd(), libc::POLLIN, wait)
    }

    /// Waits like [`Socket::wait_readable`], for either of two sockets.
    pub fn wait_either(&self, other: &Self, wait: Duration) -> io::Result<bool> {
        wait_for_any([self.as_fd(), other.as_fd()], libc::POLLIN, wait)
    }

    /// Waits like [`Socket::wait_readable`], until there is room to send.
    pub fn wait_writable(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.as_fd(), libc::POLLOUT, wait)
    }

    pub(crate) fn switch_on(&self, level: c_int, name: c_int) -> io::Result<()> {
        set_option(self.as_fd(), level, name, &(1 as c_int))
    }
}

/// Returns true for a broadcast address of a network of this host, or of all: the kernel refuses to
/// connect a socket to one that may not broadcast.
fn is_broadcast(address: SocketAddr) -> io::Result<bool> {
    if !address.is_ipv4() || address.ip().is_unspecified() {
        return Ok(false);
    }
    // Any port will do, since nothing is sent.
    let connected = Socket::udp(address)?.connect((address.ip(), 9).into());
    Ok(connected.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES)))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
