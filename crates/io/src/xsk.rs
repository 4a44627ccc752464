//! `AF_XDP` sockets as packet devices: UDP datagrams that an XDP program redirects in their frames,
//! and whose replies are sent in frames built here, both bypassing the network stack. The XDP
//! program selects the datagrams.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use horolog_time::Timestamp;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{Builder, UdpFrame};
use horolog_xdp::XskSocket;

use crate::batch::{Batch, BatchPacket};
use crate::device::BatchDevice;
use crate::udp::{Endpoints, FrameEndpoints};

/// Sleep while no datagram is available but datagrams arrive in quick succession, so that one
/// wake-up serves several. No timestamp is affected: a datagram carries its receive time, and its
/// reply its transmit time.
const NAP: Duration = Duration::from_micros(500);
/// Longest gap between datagrams in quick succession.
const SOON: Duration = Duration::from_millis(1);

/// `AF_XDP` socket. Its packets are the payloads of UDP datagrams; [`Endpoints::link`] holds the
/// link of a reply's frame. A frame without UDP counts as a packet without readable bytes. See
/// [`BatchDevice`] for the rest.
#[derive(Debug)]
pub struct XskDevice {
    socket: XskSocket,
    interface: u32,
    /// Time of the last received datagrams.
    last: Option<Instant>,
}

impl XskDevice {
    /// Returns a device on a socket that is bound to a queue of the interface with this index.
    #[must_use]
    pub const fn new(socket: XskSocket, interface: u32) -> Self {
        Self { socket, interface, last: None }
    }

    fn take(&mut self, batch: &mut Batch<Endpoints>) -> usize {
        let interface = self.interface;
        let room = batch.slots() - batch.len();
        self.socket.receive(room, |frame| {
            // There is a slot for each.
            let _ = match UdpFrame::parse(frame.bytes) {
                Ok(datagram) => {
                    let address = endpoints(&datagram, interface);
                    let received = Timestamp::from_ns(frame.received_ns as i64);
                    batch.push_received(address, datagram.payload, received)
                }
                Err(_) => batch.push_unread(Endpoints { interface, ..Endpoints::default() }),
            };
        });
        batch.len()
    }
}

impl BatchDevice for XskDevice {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, wait: Duration) -> io::Result<usize> {
        batch.clear();
        let mut count = self.take(batch);
        if count == 0 && !wait.is_zero() {
            if self.last.is_some_and(|last| last.elapsed() < SOON) {
                thread::sleep(NAP.min(wait));
                count = self.take(batch);
            }
            if count == 0 && self.socket.wait(wait)? {
                count = self.take(batch);
            }
        }
        if count > 0 {
            self.last = Some(Instant::now());
        }
        Ok(count)
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
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

fn endpoints(datagram: &UdpFrame<'_>, interface: u32) -> Endpoints {
    let link = FrameEndpoints {
        remote: datagram.ethernet.source,
        local: datagram.ethernet.destination,
        vlan: datagram.ethernet.vlan,
        local_port: datagram.destination.port(),
    };
    Endpoints {
        remote: datagram.source,
        local: datagram.destination.ip(),
        interface,
        group: None,
        unicast: true,
        link: Some(link),
    }
}

/// Returns the builder of a frame; `None` for a packet without a link.
fn builder(packet: &BatchPacket<'_, Endpoints>) -> Option<Builder> {
    let Endpoints { remote, local, link, .. } = packet.address;
    let FrameEndpoints { remote: to, local: from, vlan, local_port } = link?;
    let is_whole = to != MacAddress::default() && remote.is_ipv4() == local.is_ipv4();
    is_whole.then(|| Builder {
        destination_mac: to,
        source_mac: from,
        vlan,
        source: (local, local_port).into(),
        destination: remote,
    })
}

/// Writes the frame; returns length 0 if there is no room.
fn emit(builder: &Builder, payload: &[u8], frame: &mut [u8]) -> usize {
    if builder.headers_len() + payload.len() > frame.len() {
        return 0;
    }
    builder.emit(payload, frame)
}
