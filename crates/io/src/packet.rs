//! Packet socket as a device: sends and receives raw Ethernet frames on one interface, bypassing
//! the network stack. The caller builds and parses the frames.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::explain::explain;
use horolog_sys::filter::BpfInstruction;
use horolog_sys::message::{MmsghdrTable, OutgoingDatagram, TransmitTimestampSource};
use horolog_sys::packet;
use horolog_sys::socket::DatagramSocket;
use horolog_wire::ethernet::{self, MacAddress};

use crate::batch::{Batch, PacketMetadata};
use crate::device::BatchDevice;
use crate::filter::{LaneNumberFilter, UdpFilter};
use crate::queue::{self, SocketBatchReceiver, send_all};

/// Mask of the VLAN identifier in a VLAN tag; identifier 0 only carries a priority (IEEE 802.1Q,
/// 9.6).
const VLAN_IDENTIFIER: u32 = 0x0fff;

/// Selection of the frames that a device receives from the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameSelection {
    /// No frames: the device only sends.
    NoFrames,
    /// UDP datagrams.
    Udp(UdpFilter),
    /// UDP datagrams except those of another lane.
    UdpOfLane(UdpFilter, LaneNumberFilter),
    /// Frames of this Ethernet type that belong to no VLAN: without a tag, or with VLAN identifier
    /// 0.
    EtherType(u16),
    /// Frames for which a classic BPF program returns a number other than 0; all frames if it is
    /// empty.
    Program(Vec<BpfInstruction>),
}

/// Options of a packet device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct PacketSocketOptions {
    /// Maximum number of frames per system call; more frames take several calls.
    pub slots: usize,
    /// Frames to receive.
    pub selection: FrameSelection,
    /// Multicast groups whose frames the interface is to receive as well.
    pub groups: Vec<MacAddress>,
    /// True to receive frames sent by this host as well.
    pub outgoing: bool,
    /// True to take kernel receive timestamps; they are also taken if hardware or transmit
    /// timestamps are requested.
    pub receive_timestamps: bool,
    /// True to report hardware receive timestamps, if the interface takes them. Ignored if
    /// `transmit_timestamps` is set, whose source then applies to both directions.
    pub hardware_timestamps: bool,
    /// Source of transmit timestamps; `None` requests none. With hardware timestamps, received
    /// frames get them too, otherwise only kernel timestamps.
    pub transmit_timestamps: Option<TransmitTimestampSource>,
    /// True to pass frames directly to the driver, without queueing and traffic control
    /// (`PACKET_QDISC_BYPASS`). The driver refuses frames for which it has no room.
    pub bypass_queueing: bool,
    /// Receive buffer size to request, in bytes; the system's default if `None`.
    pub receive_buffer: Option<usize>,
    /// Send buffer size to request, in bytes; the system's default if `None`.
    pub send_buffer: Option<usize>,
    /// Time that [`BatchDevice::send`] waits each time for room in a full send buffer before it
    /// drops the rest of the batch. Zero: no wait.
    pub send_wait: Duration,
}

impl Default for PacketSocketOptions {
    fn default() -> Self {
        Self {
            slots: 32,
            selection: FrameSelection::NoFrames,
            groups: Vec::new(),
            outgoing: false,
            receive_timestamps: true,
            hardware_timestamps: false,
            transmit_timestamps: None,
            bypass_queueing: true,
            receive_buffer: None,
            send_buffer: None,
            send_wait: Duration::ZERO,
        }
    }
}

/// Reason for which a packet device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketSocketError {
    /// Missing interface.
    #[error("cannot use interface {0}: not found; choose one that `ip link` shows")]
    NoInterface(String),
    /// Packet sockets not permitted to this process.
    #[error(
        "cannot send raw frames on {0}: root or CAP_NET_RAW is required; run as root or use UDP \
         sockets"
    )]
    Privilege(String),
    /// Any other error of the kernel.
    #[error("cannot open a packet socket on {0}: {why}", why = explain(.1))]
    Other(String, io::Error),
}

/// Packet socket bound to one interface. Its packets are whole Ethernet frames without frame check
/// sequence. Frames longer than the interface's MTU permits are refused.
#[derive(Debug)]
pub struct PacketSocketDevice {
    socket: DatagramSocket,
    table: MmsghdrTable,
    send_wait: Duration,
    dropped: u64,
    transmit_timestamp: Option<TransmitTimestampSource>,
}

impl PacketSocketDevice {
    /// Opens a device on the interface named `interface`.
    ///
    /// # Errors
    ///
    /// See [`PacketSocketError`].
    pub fn open(interface: &str, options: &PacketSocketOptions) -> Result<Self, PacketSocketError> {
        let index = packet::interface_index(interface)
            .map_err(|_| PacketSocketError::NoInterface(interface.to_owned()))?;
        let socket = open_socket(index, options).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => PacketSocketError::Privilege(interface.to_owned()),
            _ => PacketSocketError::Other(interface.to_owned(), error),
        })?;
        Ok(Self {
            socket,
            table: MmsghdrTable::new(options.slots),
            send_wait: options.send_wait,
            dropped: 0,
            transmit_timestamp: options.transmit_timestamps,
        })
    }

    /// Waits up to `wait` for a received frame, or a sent one that is looped back. Returns true if
    /// there is one.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn wait(&self, wait: Duration) -> io::Result<bool> {
        self.socket.wait_readable(wait)
    }

    /// Returns another handle on the device's socket, by which its filter can be changed.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub(crate) fn try_clone_socket(&self) -> io::Result<DatagramSocket> {
        self.socket.try_clone()
    }

    /// Returns the number of frames that the kernel dropped at this device since it was opened,
    /// because its receive buffer was full (`PACKET_STATISTICS`). Must be called at least once in
    /// 2^32 drops.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += u64::from(packet::statistics(&self.socket)?.dropped);
        Ok(self.dropped)
    }
}

impl SocketBatchReceiver<()> for PacketSocketDevice {
    fn socket(&self) -> &DatagramSocket {
        &self.socket
    }

    fn try_receive(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        let count = self.table.receive(self.socket.as_fd(), batch.buffers_mut())?;
        let table = &self.table;
        batch.fill(count, |slot| PacketMetadata::received(&table.received(slot), ()));
        Ok(count)
    }
}

impl BatchDevice for PacketSocketDevice {
    type Address = ();

    fn receive(&mut self, batch: &mut Batch<()>, wait: Duration) -> io::Result<usize> {
        queue::receive(self, batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        let (table, socket, timestamp_source) =
            (&mut self.table, &self.socket, self.transmit_timestamp);
        send_all(socket, batch.len(), self.send_wait, |first| {
            let frames = batch.iter().skip(first).map(|packet| OutgoingDatagram {
                bytes: packet.bytes,
                remote: None,
                local: None,
                transmit_timestamp: timestamp_source.filter(|_| packet.wants_timestamp),
            });
            table.send(socket.as_fd(), frames)
        })
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        queue::receive_transmitted(self.socket.as_fd(), &mut self.table, batch, |_| ())
    }
}

impl AsFd for PacketSocketDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open_socket(interface: u32, options: &PacketSocketOptions) -> io::Result<DatagramSocket> {
    let socket = packet::open()?;
    if options.bypass_queueing {
        packet::bypass_queueing(&socket)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_receive_buffer(bytes)?;
    }
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer(bytes)?;
    }
    // A socket for all protocols receives a frame before the ingress programs of traffic control;
    // one for a single protocol receives it after them, if it still exists. So the socket takes all
    // protocols, and the filter selects.
    let (ether_type, program) = match &options.selection {
        FrameSelection::NoFrames => (None, Vec::new()),
        FrameSelection::Udp(filter) => (Some(packet::ANY_PROTOCOL), filter.program()),
        FrameSelection::UdpOfLane(filter, mark) => {
            (Some(packet::ANY_PROTOCOL), filter.program_of_lane(mark))
        }
        FrameSelection::EtherType(number) => (
            Some(packet::ANY_PROTOCOL),
            vec![
                // The kernel has removed the tag; a frame of another VLAN is not for this
                // interface.
                BpfInstruction::load_vlan_tag(),
                BpfInstruction::and(VLAN_IDENTIFIER),
                BpfInstruction::jump_if_equal(0, 0, 3),
                BpfInstruction::load_half(ethernet::ETHER_TYPE_OFFSET),
                BpfInstruction::jump_if_equal((*number).into(), 0, 1),
                BpfInstruction::finish(u32::MAX),
                BpfInstruction::finish(0),
            ],
        ),
        FrameSelection::Program(program) => (Some(packet::ANY_PROTOCOL), program.clone()),
    };
    if ether_type.is_some() {
        if !options.outgoing {
            packet::ignore_outgoing(&socket)?;
        }
        if options.receive_timestamps || options.hardware_timestamps {
            socket.enable_receive_timestamps(options.hardware_timestamps)?;
        }
    }
    if let Some(source) = options.transmit_timestamps {
        socket.enable_frame_timestamps(source == TransmitTimestampSource::Hardware)?;
    }
    if !program.is_empty() {
        socket.attach_filter(&program)?;
    }
    for group in &options.groups {
        packet::join_group(&socket, interface, group.0)?;
    }
    // Bound last, so that no frame arrives before the filter is attached.
    packet::bind(&socket, interface, ether_type)?;
    Ok(socket)
}
