//! PTP over UDP (IEEE 1588-2019, annexes C and D): a socket for event messages and one for general
//! messages, bound to one interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, Endpoints, TransmitTimestamp, UdpDevice, UdpOptions};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::frame::{TransmittedFrame, looped};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, IPV6_PADDING_LEN};

use super::link::{
    IncomingPtpMessage, LinkError, OutgoingPtpMessage, PortLink, TransmittedMessage,
};
use super::served::ServedTime;
use crate::ptp::{PtpAddress, PtpDestination};

/// Messages moved by one system call.
const BATCH: usize = 32;
/// Upper limit of the length of received and sent messages.
const MESSAGE_MAX: usize = 1_024;
/// Maximum length of a returned message, which includes its headers.
const LOOPED_MAX: usize = MESSAGE_MAX + 64;
/// Receive buffer for a burst of a tenth of a second at a hundred thousand messages per second.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 1 << 20;
const SEND_WAIT: Duration = Duration::from_millis(1);

/// Multicast groups of an address family.
#[derive(Clone, Copy)]
struct Groups {
    all: IpAddr,
    peers: IpAddr,
}

impl Groups {
    fn has(self, group: IpAddr) -> bool {
        group == self.all || group == self.peers
    }
}

const IPV4: Groups = Groups {
    all: IpAddr::V4(horolog_wire::ptp::MULTICAST_IPV4),
    peers: IpAddr::V4(horolog_wire::ptp::PEER_MULTICAST_IPV4),
};
const IPV6: Groups = Groups {
    all: IpAddr::V6(horolog_wire::ptp::MULTICAST_IPV6),
    peers: IpAddr::V6(horolog_wire::ptp::PEER_MULTICAST_IPV6),
};

/// One of the two sockets, with its send queue.
struct UdpChannel {
    device: UdpDevice,
    received: Batch<Endpoints>,
    leaving: Batch<Endpoints>,
    refused: u64,
}

impl UdpChannel {
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
            // The next receive detects a device failure.
            let sent = self.device.send(&mut self.leaving).unwrap_or(0);
            self.refused += (count - sent) as u64;
            self.leaving.clear();
        }
    }
}

/// Returns the sender of a datagram. A message to a group was sent to no particular address of this
/// host.
fn from(ends: &Endpoints) -> PtpAddress {
    let own = if ends.group.is_some() { Endpoints::default().local } else { ends.local };
    PtpAddress::Ip { peer: ends.remote.ip(), own }
}

/// Link of a port over UDP.
pub(super) struct UdpLink {
    event: UdpChannel,
    general: UdpChannel,
    looped: Batch<Endpoints>,
    groups: Groups,
    interface: u32,
    padding: usize,
}

impl UdpLink {
    /// Opens the sockets on the interface with this name and index. With `hardware`, hardware
    /// timestamps are requested.
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
        let stamp = if hardware { TransmitTimestamp::Hardware } else { TransmitTimestamp::Kernel };
        let options = UdpOptions {
            slots: BATCH,
            interface: Some(interface.to_owned()),
            report_unicast: true,
            receive_buffer: Some(RECEIVE_BUFFER),
            send_buffer: Some(SEND_BUFFER),
            send_wait: SEND_WAIT,
            ..UdpOptions::default()
        };
        let stamping = UdpOptions { transmit_timestamps: Some(stamp), ..options.clone() };
        let link = Self {
            event: UdpChannel::open(any, EVENT_PORT, &stamping)?,
            general: UdpChannel::open(any, GENERAL_PORT, &options)?,
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

    fn endpoints(&self, to: PtpDestination, event: bool) -> Option<Endpoints> {
        let standard = if event { EVENT_PORT } else { GENERAL_PORT };
        let unspecified = Endpoints::default().local;
        let (ip, local, port) = match to {
            PtpDestination::Group => (self.groups.all, unspecified, standard),
            PtpDestination::PeerGroup => (self.groups.peers, unspecified, standard),
            // A manager at source port 0 has no port for a response (RFC 768).
            PtpDestination::To(PtpAddress::Ip { peer, own })
            | PtpDestination::Manager(PtpAddress::Ip { peer, own }, 0) => (peer, own, standard),
            PtpDestination::Manager(PtpAddress::Ip { peer, own }, port) => (peer, own, port),
            PtpDestination::To(PtpAddress::Mac(_))
            | PtpDestination::Manager(PtpAddress::Mac(_), _) => {
                return None;
            }
        };
        let remote = match ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.interface).into(),
        };
        Some(Endpoints { local, ..Endpoints::to(remote) })
    }

    fn destination(&self, sent: &TransmittedFrame<'_>) -> PtpDestination {
        match sent.destination {
            ip if ip == self.groups.all => PtpDestination::Group,
            ip if ip == self.groups.peers => PtpDestination::PeerGroup,
            peer => PtpDestination::To(PtpAddress::Ip { peer, own: sent.source }),
        }
    }
}

impl PortLink for UdpLink {
    fn wait(&mut self, wait: Duration) -> io::Result<()> {
        self.event.device.wait_either(&self.general.device, wait).map(drop)
    }

    fn receive(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&IncomingPtpMessage<'_>),
    ) -> io::Result<usize> {
        let mut count = 0;
        for (way, event) in [(&mut self.event, true), (&mut self.general, false)] {
            count += way.device.receive(&mut way.received, Duration::ZERO)?;
            let now = now();
            for packet in way.received.iter().filter(|packet| !packet.truncated) {
                let Endpoints { group, unicast, .. } = packet.address;
                each(&IncomingPtpMessage {
                    bytes: packet.bytes,
                    from: from(&packet.address),
                    from_port: packet.address.remote.port(),
                    to_group: group.is_some(),
                    stray: !unicast && !group.is_some_and(|group| self.groups.has(group)),
                    event,
                    timestamp: served.ptp_timestamp(&packet, now),
                });
            }
        }
        Ok(count)
    }

    fn returned(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&TransmittedMessage<'_>),
    ) -> io::Result<usize> {
        let count = self.event.device.sent(&mut self.looped)?;
        let now = now();
        for packet in self.looped.iter() {
            if let (Some(sent), Some(stamp)) =
                (looped(packet.bytes), served.ptp_timestamp(&packet, now))
            {
                each(&TransmittedMessage {
                    bytes: sent.payload,
                    to: self.destination(&sent),
                    timestamp: stamp,
                });
            }
        }
        Ok(count)
    }

    fn push(&mut self, message: &OutgoingPtpMessage<'_>) {
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
            *way.leaving.packet_mut(slot).wants_timestamp = message.needs_timestamp;
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
