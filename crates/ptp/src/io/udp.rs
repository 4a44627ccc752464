//! PTP over UDP (IEEE 1588-2019, annexes C and D): one socket for event messages and one for
//! general messages, both bound to one interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, DatagramEndpoints, UdpDevice, UdpDeviceOptions};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::frame::{TransmittedDatagram, parse_looped_frame};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, IPV6_PADDING_LEN};

use super::link::{
    BATCH, BatchedPtpDevice, IncomingPtpMessage, OutgoingPtpMessage, PtpPortSockets,
    PtpSocketError, RECEIVE_BUFFER, SEND_WAIT, TransmittedPtpMessage, timestamp_source,
};
use super::served::ServedTime;
use crate::address::{PtpAddress, PtpDestination};

/// Maximum length of a message, in bytes.
const MESSAGE_MAX: usize = 1_024;
/// Maximum length of a looped-back message with its headers, in bytes.
const LOOPED_MAX: usize = MESSAGE_MAX + 64;
const SEND_BUFFER: usize = 1 << 20;

/// PTP's multicast groups of one IP version.
#[derive(Clone, Copy)]
struct MulticastGroups {
    primary: IpAddr,
    peer_delay: IpAddr,
}

impl MulticastGroups {
    fn contains(self, group: IpAddr) -> bool {
        group == self.primary || group == self.peer_delay
    }
}

const IPV4_GROUPS: MulticastGroups = MulticastGroups {
    primary: IpAddr::V4(horolog_wire::ptp::MULTICAST_IPV4),
    peer_delay: IpAddr::V4(horolog_wire::ptp::PEER_MULTICAST_IPV4),
};
const IPV6_GROUPS: MulticastGroups = MulticastGroups {
    primary: IpAddr::V6(horolog_wire::ptp::MULTICAST_IPV6),
    peer_delay: IpAddr::V6(horolog_wire::ptp::PEER_MULTICAST_IPV6),
};

/// Socket for event messages or for general messages, with its batches.
type BatchedUdpSocket = BatchedPtpDevice<UdpDevice>;

fn open_socket(
    ip: IpAddr,
    port: u16,
    options: &UdpDeviceOptions,
) -> Result<BatchedUdpSocket, PtpSocketError> {
    let device = UdpDevice::bind(SocketAddr::new(ip, port), options)?;
    Ok(BatchedPtpDevice::new(device, MESSAGE_MAX))
}

/// Returns the sender of a datagram. If the datagram was sent to a multicast group, the sender
/// knows no address of this host.
fn sender_address(ends: &DatagramEndpoints) -> PtpAddress {
    let own = if ends.group.is_some() { DatagramEndpoints::default().local } else { ends.local };
    PtpAddress::Ip { peer: ends.remote.ip(), local: own }
}

/// UDP sockets of a port.
pub(super) struct PtpUdpSockets {
    event: BatchedUdpSocket,
    general: BatchedUdpSocket,
    looped: Batch<DatagramEndpoints>,
    groups: MulticastGroups,
    interface: u32,
    padding: usize,
}

impl PtpUdpSockets {
    /// Opens the sockets on the interface with this name and index. With `hardware`, event messages
    /// get hardware timestamps.
    pub(super) fn open(
        interface: &str,
        index: u32,
        ipv6: bool,
        hardware: bool,
    ) -> Result<Self, PtpSocketError> {
        let (any, groups): (IpAddr, _) = if ipv6 {
            (Ipv6Addr::UNSPECIFIED.into(), IPV6_GROUPS)
        } else {
            (Ipv4Addr::UNSPECIFIED.into(), IPV4_GROUPS)
        };
        let options = UdpDeviceOptions {
            slots: BATCH,
            interface: Some(interface.to_owned()),
            report_unicast: true,
            receive_buffer: Some(RECEIVE_BUFFER),
            send_buffer: Some(SEND_BUFFER),
            send_wait: SEND_WAIT,
            ..UdpDeviceOptions::default()
        };
        let stamping = UdpDeviceOptions {
            transmit_timestamps: Some(timestamp_source(hardware)),
            ..options.clone()
        };
        let link = Self {
            event: open_socket(any, EVENT_PORT, &stamping)?,
            general: open_socket(any, GENERAL_PORT, &options)?,
            looped: Batch::new(BATCH, LOOPED_MAX),
            groups,
            interface: index,
            padding: if ipv6 { IPV6_PADDING_LEN } else { 0 },
        };
        for group in [groups.primary, groups.peer_delay] {
            for channel in [&link.event, &link.general] {
                channel.device.join(group, index).map_err(|source| PtpSocketError::Join {
                    group,
                    interface: interface.to_owned(),
                    source,
                })?;
            }
        }
        Ok(link)
    }

    fn endpoints(&self, to: PtpDestination, event: bool) -> Option<DatagramEndpoints> {
        let standard = if event { EVENT_PORT } else { GENERAL_PORT };
        let unspecified = DatagramEndpoints::default().local;
        let (ip, local, port) = match to {
            PtpDestination::Group => (self.groups.primary, unspecified, standard),
            PtpDestination::PeerGroup => (self.groups.peer_delay, unspecified, standard),
            // A manager that sends from port 0 gets the response at the standard port: 0 is not a
            // port (RFC 768).
            PtpDestination::To(PtpAddress::Ip { peer, local: own })
            | PtpDestination::Manager(PtpAddress::Ip { peer, local: own }, 0) => {
                (peer, own, standard)
            }
            PtpDestination::Manager(PtpAddress::Ip { peer, local: own }, port) => (peer, own, port),
            PtpDestination::To(PtpAddress::Mac(_))
            | PtpDestination::Manager(PtpAddress::Mac(_), _) => {
                return None;
            }
        };
        let remote = match ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.interface).into(),
        };
        Some(DatagramEndpoints { local, ..DatagramEndpoints::to_remote(remote) })
    }

    fn destination(&self, sent: &TransmittedDatagram<'_>) -> PtpDestination {
        match sent.destination {
            ip if ip == self.groups.primary => PtpDestination::Group,
            ip if ip == self.groups.peer_delay => PtpDestination::PeerGroup,
            peer => PtpDestination::To(PtpAddress::Ip { peer, local: sent.source }),
        }
    }
}

impl PtpPortSockets for PtpUdpSockets {
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
        for (channel, event) in [(&mut self.event, true), (&mut self.general, false)] {
            count += channel.device.receive(&mut channel.received, Duration::ZERO)?;
            let now = now();
            for packet in channel.received.iter().filter(|packet| !packet.truncated) {
                let DatagramEndpoints { group, unicast, .. } = packet.address;
                each(&IncomingPtpMessage {
                    bytes: packet.bytes,
                    from: sender_address(&packet.address),
                    from_port: packet.address.remote.port(),
                    to_group: group.is_some(),
                    stray: !unicast && !group.is_some_and(|group| self.groups.contains(group)),
                    event,
                    timestamp: served.ptp_timestamp(&packet, now),
                });
            }
        }
        Ok(count)
    }

    fn receive_transmitted(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&TransmittedPtpMessage<'_>),
    ) -> io::Result<usize> {
        let count = self.event.device.receive_transmitted(&mut self.looped)?;
        let now = now();
        for packet in self.looped.iter() {
            if let (Some(sent), Some(timestamp)) =
                (parse_looped_frame(packet.bytes), served.ptp_timestamp(&packet, now))
            {
                each(&TransmittedPtpMessage {
                    bytes: sent.payload,
                    to: self.destination(&sent),
                    timestamp,
                });
            }
        }
        Ok(count)
    }

    fn push(&mut self, message: &OutgoingPtpMessage<'_>) {
        let Some(endpoints) = self.endpoints(message.to, message.event) else { return };
        let padding = self.padding;
        let channel = if message.event { &mut self.event } else { &mut self.general };
        channel.push(endpoints, message, message.bytes.len() + padding, |_| 0);
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
            .map(|channel| channel.device.dropped().unwrap_or(0))
            .iter()
            .sum()
    }
}
