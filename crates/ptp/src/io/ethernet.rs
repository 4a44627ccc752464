//! PTP on Ethernet (IEEE 1588-2019, annex E): one packet socket for all messages.

use std::io;
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions,
    TransmitTimestampSource,
};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ethernet::{HEADER_LEN, Header, MacAddress};
use horolog_wire::ptp::{ETHER_TYPE, MULTICAST_MAC, PEER_MULTICAST_MAC};

use super::link::{
    IncomingPtpMessage, OutgoingPtpMessage, PtpPortSockets, PtpSocketError, TransmittedPtpMessage,
};
use super::served::ServedTime;
use crate::address::{PtpAddress, PtpDestination};

/// Maximum number of frames per system call.
const BATCH: usize = 32;
const FRAME_MAX: usize = 1_514;
/// Minimum length of a frame without its checksum (IEEE 802.3, clause 4.4.2).
const FRAME_MIN: usize = 60;
/// Receive buffer size, in bytes: enough for 0.1 s at 100,000 messages per second.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_WAIT: Duration = Duration::from_millis(1);

/// Packet socket of a port on Ethernet.
pub(super) struct PtpEthernetSocket {
    device: PacketSocketDevice,
    mac: MacAddress,
    received: Batch<()>,
    outgoing: Batch<()>,
    looped: Batch<()>,
    refused: u64,
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
        let timestamp_source = if hardware {
            TransmitTimestampSource::Hardware
        } else {
            TransmitTimestampSource::Kernel
        };
        let options = PacketSocketOptions {
            slots: BATCH,
            selection: FrameSelection::EtherType(ETHER_TYPE),
            groups: vec![MULTICAST_MAC, PEER_MULTICAST_MAC],
            transmit_timestamps: Some(timestamp_source),
            hardware_timestamps: hardware,
            bypass_queueing: false,
            receive_buffer: Some(RECEIVE_BUFFER),
            send_wait: SEND_WAIT,
            ..PacketSocketOptions::default()
        };
        let batch = || Batch::new(BATCH, FRAME_MAX);
        Ok(Self {
            device: PacketSocketDevice::open(interface, &options)?,
            mac,
            received: batch(),
            outgoing: batch(),
            looped: batch(),
            refused: 0,
            dropped: 0,
        })
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
        self.device.wait(wait).map(drop)
    }

    fn receive(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&IncomingPtpMessage<'_>),
    ) -> io::Result<usize> {
        let count = self.device.receive(&mut self.received, Duration::ZERO)?;
        let now = now();
        for packet in self.received.iter().filter(|packet| !packet.truncated) {
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
        let count = self.device.receive_transmitted(&mut self.looped)?;
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
        if self.outgoing.is_full() {
            self.flush();
        }
        let slot = self.outgoing.len();
        let header =
            Header { destination: to, source: self.mac, vlan: None, ether_type: ETHER_TYPE };
        let len = (HEADER_LEN + message.bytes.len()).max(FRAME_MIN);
        let pushed = self.outgoing.push_with((), |frame| {
            frame[..len].fill(0);
            let start = header.emit(frame);
            frame[start..start + message.bytes.len()].copy_from_slice(message.bytes);
            len
        });
        if pushed {
            *self.outgoing.packet_mut(slot).wants_timestamp = message.needs_timestamp;
        }
    }

    fn flush(&mut self) {
        let count = self.outgoing.len();
        if count > 0 {
            // A failure of the device is reported by the next receive call.
            let sent = self.device.send(&mut self.outgoing).unwrap_or(0);
            self.refused += (count - sent) as u64;
            self.outgoing.clear();
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn dropped(&mut self) -> u64 {
        self.dropped = self.device.dropped().unwrap_or(self.dropped);
        self.dropped
    }
}
