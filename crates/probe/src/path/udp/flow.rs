//! One conversation with the far end: its socket, its buffers, and the sending, receiving and
//! timestamping of a datagram. The send times are decided elsewhere.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use horolog_sys::datagram::{self, MessageHeader, WaitMode};
use horolog_sys::socket::Socket;
use horolog_wire::path_probe::{FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, Header};
use horolog_wire::stamp::SENDER_HOP_LIMIT;

use super::codec::Codec;
use super::error::UdpPathError;
use super::hello::{self, hello};
use super::options::PathUdpOptions;
use super::prepare::stamp_codec;

/// Socket buffer size, for a burst of long datagrams.
const BUFFER_BYTES: usize = 4 << 20;
/// Maximum length of a datagram.
const ROOM: usize = 65_536;

/// Flow ready for use.
pub(super) struct UdpFlow {
    pub(super) socket: Socket,
    pub(super) codec: Codec,
    pub(super) wait: WaitMode,
    /// True if the kernel takes timestamps.
    pub(super) kernel: bool,
    /// True if the traffic class of replies is received.
    receives_class: bool,
    envelope: MessageHeader,
    pub(super) out: Vec<u8>,
    pub(super) input: Vec<u8>,
    /// Datagrams sent since the kernel numbers them.
    pub(super) sent: u32,
    /// Traffic class of received replies.
    pub(super) class_back: Option<u8>,
}

/// Received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedDatagram {
    pub(super) len: usize,
    /// Kernel receive timestamp, in ns since 1970.
    pub(super) received_ns: Option<i64>,
}

/// Returns a socket that is connected to the far end, with the options for all its datagrams.
pub(super) fn connected(options: &PathUdpOptions, to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::udp(to)?;
    if let Some(interface) = &options.interface {
        socket.bind_to_interface(interface)?;
    }
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind((any, 0).into())?;
    socket.allow_fragmentation(to)?;
    if options.dscp != 0 {
        // Before the route is looked up: another class may have another route.
        socket.set_traffic_class(to, options.dscp << 2)?;
    }
    socket.connect(to)?;
    // Best effort.
    let _ = (socket.set_receive_buffer(BUFFER_BYTES), socket.set_send_buffer(BUFFER_BYTES));
    Ok(socket)
}

impl UdpFlow {
    /// Opens a flow for datagrams of one length.
    pub(super) fn open(
        options: &PathUdpOptions,
        to: SocketAddr,
        length: u64,
    ) -> Result<Self, UdpPathError> {
        let failed = |source| UdpPathError::Socket { address: to, source };
        let socket = connected(options, to).map_err(failed)?;
        let receives_class = options.dscp != 0;
        let codec = if options.is_stamp {
            socket.set_hop_limit(to, SENDER_HOP_LIMIT).map_err(failed)?;
            stamp_codec()
        } else {
            let kernel = if options.kernel_timestamps { FLAG_KERNEL_TIME } else { 0 };
            let class = if receives_class { FLAG_TRAFFIC_CLASS } else { 0 };
            let welcome = hello(&socket, to, kernel | class)?;
            if options.rows.iter().any(|row| row.load_ratio > 0.0) {
                hello::begin(&socket, welcome.session).map_err(failed)?;
            }
            Codec::Horolog { session: welcome.session }
        };
        if receives_class {
            socket.enable_traffic_class(to, true).map_err(failed)?;
        }
        if options.kernel_timestamps {
            socket.enable_all_timestamps().map_err(failed)?;
        }
        if options.busy_polling {
            // Only drivers with busy polling benefit, and it may need a privilege.
            let _ = socket.set_busy_poll(50);
        }
        Ok(Self {
            socket,
            codec,
            wait: if options.busy_polling { WaitMode::NonBlocking } else { WaitMode::Blocking },
            kernel: options.kernel_timestamps,
            receives_class,
            envelope: MessageHeader::new(),
            out: vec![0; length as usize],
            input: vec![0; ROOM],
            sent: 0,
            class_back: None,
        })
    }

    /// Sets the longest sleep of a receive call.
    pub(super) fn sleep_at_most(&self, wait: Duration) -> Result<(), io::Error> {
        self.socket.set_receive_timeout(wait)
    }

    /// Receives a datagram into the buffer.
    pub(super) fn receive(&mut self) -> io::Result<ReceivedDatagram> {
        if !self.kernel && !self.receives_class {
            let len = datagram::receive(self.socket.as_fd(), &mut self.input, self.wait)?;
            return Ok(ReceivedDatagram { len, received_ns: None });
        }
        let received = self.envelope.receive(self.socket.as_fd(), &mut self.input, self.wait)?;
        self.class_back = received.control.traffic_class.or(self.class_back);
        let received_ns = received.control.received_at.map(horolog_time::Timestamp::as_ns);
        Ok(ReceivedDatagram { len: received.len, received_ns })
    }

    /// Returns the next kernel transmit timestamp: the datagram's number and the instant.
    pub(super) fn transmit_timestamp(&mut self) -> Option<(u32, i64)> {
        let stamp = self.envelope.receive_transmit_timestamp(self.socket.as_fd()).ok()?;
        Some((stamp.timestamp_id?, stamp.received_at?.as_ns()))
    }

    /// Ends the session; returns the far end's counts of it.
    pub(super) fn end(&self) -> Option<Header> {
        match self.codec {
            Codec::Horolog { session } => hello::end(&self.socket, session),
            Codec::Stamp { .. } => None,
        }
    }

    /// Returns true if the far end is reachable: a period without replies may have another reason.
    pub(super) fn is_there(&self, to: SocketAddr) -> bool {
        matches!(self.codec, Codec::Horolog { .. }) && hello(&self.socket, to, 0).is_ok()
    }
}
