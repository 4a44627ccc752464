//! PTP over UDP (IEEE 1588-2019, annexes C and D): a socket for event messages and one for general
//! ones, bound to one interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, TransmitStamp, UdpDevice, UdpOptions};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::frame::{Looped, looped};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, IPV6_PADDING_LEN};

use super::link::{Incoming, Link, LinkError, Outgoing, Returned};
use super::served::Served;
use crate::ptp::{Address, Destination};

/// Messages that one system call moves.
const BATCH: usize = 32;
/// Longer than any message that is answered or sent.
const MESSAGE_MAX: usize = 1_024;
/// A looped message stands behind its headers.
const LOOPED_MAX: usize = MESSAGE_MAX + 64;
/// A burst of a tenth of a second at a hundred thousand messages a second.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 1 << 20;
const SEND_WAIT: Duration = Duration::from_millis(1);

/// The groups of a family.
#[derive(Clone, Copy)]
struct Groups {
    all: IpAddr,
    peers: IpAddr,
}

const IPV4: Groups = Groups {
    all: IpAddr::V4(horolog_wire::ptp::MULTICAST_IPV4),
    peers: IpAddr::V4(horolog_wire::ptp::PEER_MULTICAST_IPV4),
};
const IPV6: Groups = Groups {
    all: IpAddr::V6(horolog_wire::ptp::MULTICAST_IPV6),
    peers: IpAddr::V6(horolog_wire::ptp::PEER_MULTICAST_IPV6),
};

/// One of the two sockets, with what waits to leave by it.
struct Way {
    device: UdpDevice,
    received: Batch<Endpoints>,
    leaving: Batch<Endpoints>,
    refused: u64,
}

impl Way {
    fn open(ip: IpAddr, port: u16, options: &UdpOptions) -> Result<Self, LinkError> {
        Ok(Self {
            device: UdpDevice::bind(SocketAddr::new(ip, port), options)?,
            received: Batch::new(BATCH, MESSAGE_MAX),
            leaving: Batch::new(BATCH, MESSAGE_MAX),
            refused: 0,
        })
    }

    fn flush(&mut self) {
        let count = self.leaving.len();
        if count > 0 {
            // A device that fails is found by the next receive.
            let sent = self.device.send(&mut self.leaving).unwrap_or(0);
            self.refused += (count - sent) as u64;
            self.leaving.clear();
        }
    }
}

/// Who sent a datagram. What was sent to a group was sent to none of our addresses in particular.
fn from(ends: &Endpoints) -> Address {
    let own = if ends.to_group { Endpoints::default().local } else { ends.local };
    Address::Ip { peer: ends.remote.ip(), own }
}

/// A port's way over UDP.
pub(super) struct UdpLink {
    event: Way,
    general: Way,
    looped: Batch<Endpoints>,
    groups: Groups,
    interface: u32,
    padding: usize,
}

impl UdpLink {
    /// Opens the sockets on the interface of this name and index. With `hardware`, its card's
    /// timestamps are asked for.
    pub(super) fn open(
        interface: &str,
        index: u32,
        ipv6: bool,
        hardware: bool,
    ) -> Result<Self, LinkError> {
        let (any, groups): (IpAddr, _) = if ipv6 {
            (Ipv6Addr::UNSPECIFIED.into(), IPV6)
        } else {
            (Ipv4Addr::UNSPECIFIED.into(), IPV4)
        };
        let stamp = if hardware { TransmitStamp::Hardware } else { TransmitStamp::Kernel };
        let options = UdpOptions {
            slots: BATCH,
            interface: Some(interface.to_owned()),
            receive_buffer: Some(RECEIVE_BUFFER),
            send_buffer: Some(SEND_BUFFER),
            send_wait: SEND_WAIT,
            ..UdpOptions::default()
        };
        let stamping = UdpOptions { transmit_timestamps: Some(stamp), ..options.clone() };
        let link = Self {
            event: Way::open(any, EVENT_PORT, &stamping)?,
            general: Way::open(any, GENERAL_PORT, &options)?,
            looped: Batch::new(BATCH, LOOPED_MAX),
            groups,
            interface: index,
            padding: if ipv6 { IPV6_PADDING_LEN } else { 0 },
        };
        for group in [groups.all, groups.peers] {
            for way in [&link.event, &link.general] {
                way.device.join(group, index).map_err(|source| LinkError::Join {
                    group,
                    interface: interface.to_owned(),
                    source,
                })?;
            }
        }
        Ok(link)
    }

    fn endpoints(&self, to: Destination, event: bool) -> Option<Endpoints> {
        let port = if event { EVENT_PORT } else { GENERAL_PORT };
        let unspecified = Endpoints::default().local;
        let (ip, local) = match to {
            Destination::Group => (self.groups.all, unspecified),
            Destination::PeerGroup => (self.groups.peers, unspecified),
            Destination::To(Address::Ip { peer, own }) => (peer, own),
            Destination::To(Address::Mac(_)) => return None,
        };
        let remote = match ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.interface).into(),
        };
        Some(Endpoints { local, ..Endpoints::to(remote) })
    }

    fn destination(&self, sent: &Looped<'_>) -> Destination {
        match sent.destination {
            ip if ip == self.groups.all => Destination::Group,
            ip if ip == self.groups.peers => Destination::PeerGroup,
            peer => Destination::To(Address::Ip { peer, own: sent.source }),
        }
    }
}

impl Link for UdpLink {
    fn wait(&mut self, wait: Duration) -> io::Result<()> {
        self.event.device.wait_either(&self.general.device, wait).map(drop)
    }

    fn receive(
        &mut self,
        served: &Served<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&Incoming<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        for (way, event) in [(&mut self.event, true), (&mut self.general, false)] {
            count += way.device.receive(&mut way.received, Duration::ZERO)?;
            let now = now();
            for packet in way.received.iter().filter(|packet| !packet.truncated) {
                each(&Incoming {
                    bytes: packet.bytes,
                    from: from(&packet.address),
                    to_group: packet.address.to_group,
                    event,
                    stamp: served.stamp(&packet, now),
                });
            }
        }
        Ok(count)
    }

    fn returned(
        &mut self,
        served: &Served<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&Returned<'_>),
    ) -> io::Result<usize> {
        let count = self.event.device.sent(&mut self.looped)?;
        let now = now();
        for packet in self.looped.iter() {
            if let (Some(sent), Some(stamp)) = (looped(packet.bytes), served.stamp(&packet, now)) {
                each(&Returned { bytes: sent.payload, to: self.destination(&sent), stamp });
            }
        }
        Ok(count)
    }

    fn push(&mut self, message: &Outgoing<'_>) {
        let Some(endpoints) = self.endpoints(message.to, message.event) else { return };
        let padding = self.padding;
        let way = if message.event { &mut self.event } else { &mut self.general };
        if way.leaving.is_full() {
            way.flush();
        }
        let slot = way.leaving.len();
        let len = message.bytes.len() + padding;
        let pushed = way.leaving.push_with(endpoints, |buffer| {
            buffer[..len].fill(0);
            buffer[..message.bytes.len()].copy_from_slice(message.bytes);
            len
        });
        if pushed {
            *way.leaving.packet_mut(slot).stamp = message.stamp;
        }
    }

    fn flush(&mut self) {
        self.event.flush();
        self.general.flush();
    }

    fn refused(&self) -> u64 {
        self.event.refused + self.general.refused
    }

    fn dropped(&mut self) -> u64 {
        [&mut self.event, &mut self.general]
            .map(|way| way.device.dropped().unwrap_or(0))
            .iter()
            .sum()
    }
}
