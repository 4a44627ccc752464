//! Raw Ethernet frames on one interface, past the network stack: a packet socket as a device. What
//! the frames hold is the caller's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::filter::Instruction;
use horolog_sys::message::{MessageTable, Outgoing, TransmitStamp};
use horolog_sys::packet;
use horolog_sys::socket::Socket;
use horolog_wire::ethernet::{self, MacAddress};

use crate::batch::{Batch, Note};
use crate::device::Device;
use crate::filter::{LaneMark, UdpFilter};
use crate::queue::{self, Queue, send_all};

/// The bits of a VLAN tag that name the VLAN; 0 is a priority alone (IEEE 802.1Q, 9.6).
const VLAN_IDENTIFIER: u32 = 0x0fff;

/// Which of the frames that come in by the interface a device receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameSelection {
    /// None: the device only sends, and costs the interface nothing.
    Nothing,
    /// UDP datagrams.
    Udp(UdpFilter),
    /// UDP datagrams that name no other lane than this one.
    UdpOfLane(UdpFilter, LaneMark),
    /// Frames of this Ethernet type that are of no VLAN.
    EtherType(u16),
    /// What a classic BPF program returns a number other than 0 for; all frames if it is empty.
    Program(Vec<Instruction>),
}

/// How a packet device is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct PacketOptions {
    /// Frames that one system call moves at most; more than that goes in several calls.
    pub slots: usize,
    /// What to receive.
    pub selection: FrameSelection,
    /// Groups whose frames the interface is to take as well.
    pub groups: Vec<MacAddress>,
    /// Receive what this host sends as well.
    pub outgoing: bool,
    /// Take a kernel timestamp of each received frame.
    pub receive_timestamps: bool,
    /// Tell the timestamps that the interface's own clock takes of them, where it does.
    pub hardware_timestamps: bool,
    /// Whether frames can be timestamped on their way out, and by what. With the hardware's
    /// timestamps come those of received frames as well.
    pub transmit_timestamps: Option<TransmitStamp>,
    /// Hand frames straight to the driver. They are refused when it has no room, for there is no
    /// queue; traffic control does not see them.
    pub bypass_queueing: bool,
    /// Bytes of receive buffer to ask for; the system's default if `None`.
    pub receive_buffer: Option<usize>,
    /// Bytes of send buffer to ask for; the system's default if `None`.
    pub send_buffer: Option<usize>,
    /// How long [`Device::send`] waits for room when the send buffer is full before it counts a
    /// frame as refused. Zero: not at all.
    pub send_wait: Duration,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            slots: 32,
            selection: FrameSelection::Nothing,
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

/// Why a packet device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no such interface here.
    #[error(
        "cannot use interface {0}: there is none of this name; choose one that `ip link` shows"
    )]
    NoInterface(String),
    /// Packet sockets are not allowed to this process.
    #[error(
        "cannot send raw frames on {0}: that needs root or CAP_NET_RAW; run as root or use UDP sockets"
    )]
    Privilege(String),
    /// Anything else that the kernel refused.
    #[error("cannot open a packet socket on {0}: {1}")]
    Other(String, io::Error),
}

/// A packet socket bound to one interface. Its packets are whole Ethernet frames without checksum;
/// one that the interface cannot send, being longer than its MTU allows, is refused. See [`Device`]
/// for the rest.
#[derive(Debug)]
pub struct PacketDevice {
    socket: Socket,
    table: MessageTable,
    send_wait: Duration,
    dropped: u64,
    stamp: Option<TransmitStamp>,
}

impl PacketDevice {
    /// Opens a device on the interface named `interface`.
    ///
    /// # Errors
    ///
    /// See [`PacketError`].
    pub fn open(interface: &str, options: &PacketOptions) -> Result<Self, PacketError> {
        let index = packet::interface_index(interface)
            .map_err(|_| PacketError::NoInterface(interface.to_owned()))?;
        let socket = open_socket(index, options).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => PacketError::Privilege(interface.to_owned()),
            _ => PacketError::Other(interface.to_owned(), error),
        })?;
        Ok(Self {
            socket,
            table: MessageTable::new(options.slots),
            send_wait: options.send_wait,
            dropped: 0,
            stamp: options.transmit_timestamps,
        })
    }

    /// Waits up to `wait` until frames can be received or something came back of what was sent;
    /// says whether that is so.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn wait(&self, wait: Duration) -> io::Result<bool> {
        self.socket.wait_readable(wait)
    }

    /// Another handle on the device's socket, to change its filter.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub(crate) fn try_clone_socket(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// Frames that the kernel dropped at this device since it was opened, because its receive
    /// buffer was full (`PACKET_STATISTICS`). To be asked at least once in 2^32 drops.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += u64::from(packet::statistics(&self.socket)?.dropped);
        Ok(self.dropped)
    }
}

impl Queue<()> for PacketDevice {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn try_receive(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        let count = self.table.receive(self.socket.as_fd(), batch.buffers_mut())?;
        let table = &self.table;
        batch.fill(count, |slot| Note::received(&table.received(slot), ()));
        Ok(count)
    }
}

impl Device for PacketDevice {
    type Address = ();

    fn receive(&mut self, batch: &mut Batch<()>, wait: Duration) -> io::Result<usize> {
        queue::receive(self, batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        let (table, socket, stamp) = (&mut self.table, &self.socket, self.stamp);
        send_all(socket, batch.len(), self.send_wait, |first| {
            let frames = batch.iter().skip(first).map(|packet| Outgoing {
                bytes: packet.bytes,
                remote: None,
                local: None,
                stamp: stamp.filter(|_| packet.stamp),
            });
            table.send(socket.as_fd(), frames)
        })
    }

    fn sent(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        queue::sent(self.socket.as_fd(), &mut self.table, batch, |_| ())
    }
}

impl AsFd for PacketDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open_socket(interface: u32, options: &PacketOptions) -> io::Result<Socket> {
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
    // All taps for any protocol come before the programs at the interface's ingress, those for one
    // protocol after them, where a frame may be gone already; so the filter picks the protocol.
    let (ether_type, program) = match &options.selection {
        FrameSelection::Nothing => (None, Vec::new()),
        FrameSelection::Udp(filter) => (Some(packet::ANY_PROTOCOL), filter.program()),
        FrameSelection::UdpOfLane(filter, mark) => {
            (Some(packet::ANY_PROTOCOL), filter.program_of_lane(mark))
        }
        FrameSelection::EtherType(number) => (
            Some(packet::ANY_PROTOCOL),
            vec![
                // The kernel has taken a tag off; what is of a VLAN is not for this interface.
                Instruction::load_vlan_tag(),
                Instruction::and(VLAN_IDENTIFIER),
                Instruction::jump_if_equal(0, 0, 3),
                Instruction::load_half(ethernet::ETHER_TYPE_OFFSET),
                Instruction::jump_if_equal((*number).into(), 0, 1),
                Instruction::finish(u32::MAX),
                Instruction::finish(0),
            ],
        ),
        FrameSelection::Program(program) => (Some(packet::ANY_PROTOCOL), program.clone()),
    };
    if ether_type.is_some() {
        if !options.outgoing {
            packet::ignore_outgoing(&socket)?;
        }
        if options.receive_timestamps || options.hardware_timestamps {
            socket.tell_receive_time(options.hardware_timestamps)?;
        }
    }
    if let Some(stamp) = options.transmit_timestamps {
        socket.tell_frame_times(stamp == TransmitStamp::Hardware)?;
    }
    if !program.is_empty() {
        socket.attach_filter(&program)?;
    }
    for group in &options.groups {
        packet::join_group(&socket, interface, group.0)?;
    }
    // Last, so that no frame comes in past the filter.
    packet::bind(&socket, interface, ether_type)?;
    Ok(socket)
}
