//! `AF_XDP` sockets as packet devices: receive UDP datagrams in frames that an XDP program selects
//! and redirects, and send replies in frames built here. Both bypass the network stack.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use horolog_time::Timestamp;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_xdp::XskSocket;

use crate::batch::{Batch, BatchPacket};
use crate::device::BatchDevice;
use crate::udp::{DatagramEndpoints, FrameEndpoints};

/// Sleep while datagrams arrive in quick succession but none is available, so that one wake-up
/// serves several. Timestamps are unaffected: receive timestamps are taken by the XDP program, and
/// transmit timestamps after the sleep.
const BATCHING_SLEEP: Duration = Duration::from_micros(500);
/// Longest gap between datagrams that arrive in quick succession.
const BURST_GAP_MAX: Duration = Duration::from_millis(1);

/// `AF_XDP` socket. Its packets are the payloads of UDP datagrams; [`DatagramEndpoints::link`]
/// holds the MAC addresses for the frame of a reply. A frame that is not UDP is received as an
/// empty, truncated packet.
#[derive(Debug)]
pub struct XskDevice {
    socket: XskSocket,
    interface: u32,
    /// Time when datagrams were last received.
    last_received_at: Option<Instant>,
}

impl XskDevice {
    /// Returns a device on a socket bound to a receive queue of the interface with this index.
    #[must_use]
    pub const fn new(socket: XskSocket, interface: u32) -> Self {
        Self { socket, interface, last_received_at: None }
    }

    fn receive_available(&mut self, batch: &mut Batch<DatagramEndpoints>) -> usize {
        let interface = self.interface;
        let room = batch.slots() - batch.len();
        self.socket.receive(room, |frame| {
            // The batch has room for each.
            let _ = match UdpFrame::parse(frame.bytes) {
                Ok(datagram) => {
                    let address = endpoints(&datagram, interface);
                    let received = Timestamp::from_ns(frame.received_ns as i64);
                    batch.push_received(address, datagram.payload, received)
                }
                Err(_) => batch
                    .push_unread(DatagramEndpoints { interface, ..DatagramEndpoints::default() }),
            };
        });
        batch.len()
    }
}

impl BatchDevice for XskDevice {
    type Address = DatagramEndpoints;

    fn receive(
        &mut self,
        batch: &mut Batch<DatagramEndpoints>,
        wait: Duration,
    ) -> io::Result<usize> {
        batch.clear();
        let mut count = self.receive_available(batch);
        if count == 0 && !wait.is_zero() {
            if self.last_received_at.is_some_and(|last| last.elapsed() < BURST_GAP_MAX) {
                thread::sleep(BATCHING_SLEEP.min(wait));
                count = self.receive_available(batch);
            }
            if count == 0 && self.socket.wait(wait)? {
                count = self.receive_available(batch);
            }
        }
        if count > 0 {
            self.last_received_at = Some(Instant::now());
        }
        Ok(count)
    }

    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        let mut sent = 0_usize;
        for packet in batch.iter() {
            if let Some(builder) = builder(&packet)
                && self.socket.push(|frame| emit(&builder, packet.bytes, frame))
            {
                sent += 1;
            }
        }
        Ok(sent.saturating_sub(self.socket.flush()?))
    }
}

fn endpoints(datagram: &UdpFrame<'_>, interface: u32) -> DatagramEndpoints {
    let link = FrameEndpoints {
        remote: datagram.ethernet.source,
        local: datagram.ethernet.destination,
        vlan: datagram.ethernet.vlan,
        local_port: datagram.destination.port(),
    };
    DatagramEndpoints {
        remote: datagram.source,
        local: datagram.destination.ip(),
        interface,
        group: None,
        unicast: true,
        link: Some(link),
    }
}

/// Returns the builder of a reply's frame; `None` without link-layer endpoints, with a remote MAC
/// address of zeros, or if the IP addresses differ in version.
fn builder(packet: &BatchPacket<'_, DatagramEndpoints>) -> Option<UdpFrameBuilder> {
    let DatagramEndpoints { remote, local, link, .. } = packet.address;
    let FrameEndpoints { remote: to, local: from, vlan, local_port } = link?;
    let is_complete = to != MacAddress::default() && remote.is_ipv4() == local.is_ipv4();
    is_complete.then(|| UdpFrameBuilder {
        destination_mac: to,
        source_mac: from,
        vlan,
        source: (local, local_port).into(),
        destination: remote,
    })
}

/// Writes the frame and returns its length; 0 if it exceeds the buffer.
fn emit(builder: &UdpFrameBuilder, payload: &[u8], frame: &mut [u8]) -> usize {
    if builder.headers_len() + payload.len() > frame.len() {
        return 0;
    }
    builder.emit(payload, frame)
}
