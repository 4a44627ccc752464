//! PTP on Ethernet (IEEE 1588-2019, annex E): one packet socket for all messages.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ethernet::{HEADER_LEN, Header, MacAddress};
use horolog_wire::ptp::{ETHER_TYPE, MULTICAST_MAC, PEER_MULTICAST_MAC};

use super::link::{
    BATCH, BatchedPtpDevice, IncomingPtpMessage, OutgoingPtpMessage, PtpPortSockets,
    PtpSocketError, RECEIVE_BUFFER, SEND_WAIT, TransmittedPtpMessage, timestamp_source,
};
use super::served::ServedTime;
use crate::address::{PtpAddress, PtpDestination};

const FRAME_MAX: usize = 1_514;
/// Minimum length of a frame without its checksum (IEEE 802.3, clause 4.4.2).
const FRAME_MIN: usize = 60;

/// Packet socket of a port on Ethernet.
pub(super) struct PtpEthernetSocket {
    socket: BatchedPtpDevice<PacketSocketDevice>,
    mac: MacAddress,
    looped: Batch<()>,
    dropped: u64,
}

impl PtpEthernetSocket {
    /// Opens the socket on the interface with this name and MAC address. With `hardware`, it uses
    /// hardware timestamps.
    pub(super) fn open(
        interface: &str,
        mac: MacAddress,
        hardware: bool,
    ) -> Result<Self, PtpSocketError> {
        let options = PacketSocketOptions {
            slots: BATCH,
            selection: FrameSelection::EtherType(ETHER_TYPE),
            groups: vec![MULTICAST_MAC, PEER_MULTICAST_MAC],
            transmit_timestamps: Some(timestamp_source(hardware)),
            hardware_timestamps: hardware,
            bypass_queueing: false,
            receive_buffer: Some(RECEIVE_BUFFER),
            send_wait: SEND_WAIT,
            ..PacketSocketOptions::default()
        };
        let device = PacketSocketDevice::open(interface, &options)?;
        let socket = BatchedPtpDevice::new(device, FRAME_MAX);
        Ok(Self { socket, mac, looped: Batch::new(BATCH, FRAME_MAX), dropped: 0 })
    }
}

const fn destination_mac(to: PtpDestination) -> Option<MacAddress> {
    match to {
        PtpDestination::Group => Some(MULTICAST_MAC),
        PtpDestination::PeerGroup => Some(PEER_MULTICAST_MAC),
        PtpDestination::To(PtpAddress::Mac(mac))
        | PtpDestination::Manager(PtpAddress::Mac(mac), _) => Some(mac),
        PtpDestination::To(PtpAddress::Ip { .. })
        | PtpDestination::Manager(PtpAddress::Ip { .. }, _) => None,
    }
}

fn destination(mac: MacAddress) -> PtpDestination {
    match mac {
        MULTICAST_MAC => PtpDestination::Group,
        PEER_MULTICAST_MAC => PtpDestination::PeerGroup,
        mac => PtpDestination::To(PtpAddress::Mac(mac)),
    }
}

impl PtpPortSockets for PtpEthernetSocket {
    fn wait(&mut self, wait: Duration) -> io::Result<()> {
        self.socket.device.wait(wait).map(drop)
    }

    fn receive(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&IncomingPtpMessage<'_>),
    ) -> io::Result<usize> {
        let count = self.socket.device.receive(&mut self.socket.received, Duration::ZERO)?;
        let now = now();
        for packet in self.socket.received.iter().filter(|packet| !packet.truncated) {
            let Ok((header, bytes)) = Header::parse(packet.bytes) else { continue };
            // A promiscuous interface also receives frames for other hosts.
            if ![self.mac, MULTICAST_MAC, PEER_MULTICAST_MAC].contains(&header.destination) {
                continue;
            }
            // On Ethernet, event messages are recognised by their type alone.
            each(&IncomingPtpMessage {
                bytes,
                from: PtpAddress::Mac(header.source),
                from_port: 0,
                to_group: header.destination.is_group(),
                stray: false,
                event: bytes.first().is_some_and(|kind| kind & 0x8 == 0),
                timestamp: served.ptp_timestamp(&packet, now),
            });
        }
        Ok(count)
    }

    fn receive_transmitted(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&TransmittedPtpMessage<'_>),
    ) -> io::Result<usize> {
        let count = self.socket.device.receive_transmitted(&mut self.looped)?;
        let now = now();
        for packet in self.looped.iter() {
            if let (Ok((header, bytes)), Some(timestamp)) =
                (Header::parse(packet.bytes), served.ptp_timestamp(&packet, now))
            {
                each(&TransmittedPtpMessage {
                    bytes,
                    to: destination(header.destination),
                    timestamp,
                });
            }
        }
        Ok(count)
    }

    fn push(&mut self, message: &OutgoingPtpMessage<'_>) {
        let Some(to) = destination_mac(message.to) else { return };
        let header =
            Header { destination: to, source: self.mac, vlan: None, ether_type: ETHER_TYPE };
        let len = (HEADER_LEN + message.bytes.len()).max(FRAME_MIN);
        self.socket.push((), message, len, |frame| header.emit(frame));
    }

    fn flush(&mut self) {
        self.socket.flush();
    }

    fn refused(&self) -> u64 {
        self.socket.refused
    }

    fn dropped(&mut self) -> u64 {
        self.dropped = self.socket.device.dropped().unwrap_or(self.dropped);
        self.dropped
    }
}
