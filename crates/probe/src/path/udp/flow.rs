//! UDP flow to the far end: socket and buffers; sends, receives and timestamps datagrams. Send
//! times are decided elsewhere.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use horolog_sys::datagram::{self, MsghdrBuffers, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_wire::path_probe::{FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, Header};
use horolog_wire::stamp::SENDER_HOP_LIMIT;

use super::codec::ProbeCodec;
use super::error::UdpPathError;
use super::hello::{self, request_session};
use super::options::PathUdpOptions;
use super::prepare::stamp_codec;

/// Socket buffer size, for a burst of long datagrams.
const BUFFER_BYTES: usize = 4 << 20;
/// Maximum length of a datagram in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// Socket connected to the far end, with the codec, the buffers and the timestamp state of one
/// flow.
pub(super) struct UdpFlow {
    pub(super) socket: DatagramSocket,
    pub(super) codec: ProbeCodec,
    pub(super) wait: WaitMode,
    /// True if kernel timestamps are enabled.
    pub(super) kernel_timestamps: bool,
    /// True if the traffic class of replies is received.
    receives_class: bool,
    envelope: MsghdrBuffers,
    pub(super) send_buffer: Vec<u8>,
    pub(super) receive_buffer: Vec<u8>,
    /// Number of datagrams sent since the kernel began to number them for timestamps.
    pub(super) sent_count: u32,
    /// Traffic class of the latest reply that had one.
    pub(super) reply_traffic_class: Option<u8>,
}

/// Datagram in the receive buffer of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedDatagram {
    pub(super) len: usize,
    /// Kernel receive timestamp in ns since 1970; `None` if not enabled or not delivered.
    pub(super) received_ns: Option<i64>,
}

/// Opens a socket connected to the far end, with the options of the run.
pub(super) fn open_connected_socket(
    options: &PathUdpOptions,
    to: SocketAddr,
) -> io::Result<DatagramSocket> {
    let socket = DatagramSocket::udp(to)?;
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
        // Before connecting, since the traffic class may select another route.
        socket.set_traffic_class(to, options.dscp << 2)?;
    }
    socket.connect(to)?;
    // Best effort.
    let _ = (socket.set_receive_buffer(BUFFER_BYTES), socket.set_send_buffer(BUFFER_BYTES));
    Ok(socket)
}

impl UdpFlow {
    /// Opens a flow for datagrams of `length` bytes; requests a session unless the far end is a
    /// STAMP reflector.
    pub(super) fn open(
        options: &PathUdpOptions,
        to: SocketAddr,
        length: u64,
    ) -> Result<Self, UdpPathError> {
        let failed = |source| UdpPathError::Socket { address: to, source };
        let socket = open_connected_socket(options, to).map_err(failed)?;
        let receives_class = options.dscp != 0;
        let codec = if options.is_stamp {
            socket.set_hop_limit(to, SENDER_HOP_LIMIT).map_err(failed)?;
            stamp_codec()
        } else {
            let kernel = if options.kernel_timestamps { FLAG_KERNEL_TIME } else { 0 };
            let class = if receives_class { FLAG_TRAFFIC_CLASS } else { 0 };
            let welcome = request_session(&socket, to, kernel | class)?;
            if options.rows.iter().any(|row| row.load_ratio > 0.0) {
                hello::begin_session(&socket, welcome.session).map_err(failed)?;
            }
            ProbeCodec::Horolog { session: welcome.session }
        };
        if receives_class {
            socket.enable_traffic_class(to, true).map_err(failed)?;
        }
        if options.kernel_timestamps {
            socket.enable_all_timestamps().map_err(failed)?;
        }
        if options.busy_polling {
            // Best effort: it needs driver support and possibly a privilege.
            let _ = socket.set_busy_poll(50);
        }
        Ok(Self {
            socket,
            codec,
            wait: if options.busy_polling { WaitMode::NonBlocking } else { WaitMode::Blocking },
            kernel_timestamps: options.kernel_timestamps,
            receives_class,
            envelope: MsghdrBuffers::new(),
            send_buffer: vec![0; length as usize],
            receive_buffer: vec![0; DATAGRAM_BYTES_MAX],
            sent_count: 0,
            reply_traffic_class: None,
        })
    }

    /// Sets the timeout of a receive call.
    pub(super) fn set_receive_timeout(&self, wait: Duration) -> Result<(), io::Error> {
        self.socket.set_receive_timeout(wait)
    }

    /// Receives a datagram into the receive buffer, and stores its traffic class if it has one.
    pub(super) fn receive(&mut self) -> io::Result<ReceivedDatagram> {
        if !self.kernel_timestamps && !self.receives_class {
            let len = datagram::receive(self.socket.as_fd(), &mut self.receive_buffer, self.wait)?;
            return Ok(ReceivedDatagram { len, received_ns: None });
        }
        let received =
            self.envelope.receive(self.socket.as_fd(), &mut self.receive_buffer, self.wait)?;
        self.reply_traffic_class = received.control.traffic_class.or(self.reply_traffic_class);
        let received_ns = received.control.received_at.map(horolog_time::Timestamp::as_ns);
        Ok(ReceivedDatagram { len: received.len, received_ns })
    }

    /// Returns the next kernel transmit timestamp: number of the datagram, and instant in ns since
    /// 1970.
    pub(super) fn transmit_timestamp(&mut self) -> Option<(u32, i64)> {
        let received = self.envelope.receive_transmit_timestamp(self.socket.as_fd()).ok()?;
        Some((received.timestamp_id?, received.received_at?.as_ns()))
    }

    /// Ends the session; returns the far end's counts datagram, `None` without one.
    pub(super) fn end_session(&self) -> Option<Header> {
        match self.codec {
            ProbeCodec::Horolog { session } => hello::end_session(&self.socket, session),
            ProbeCodec::Stamp { .. } => None,
        }
    }

    /// Returns true if the far end answers a hello, so that missing replies have another reason;
    /// false for STAMP, which has none.
    pub(super) fn is_reachable(&self, to: SocketAddr) -> bool {
        matches!(self.codec, ProbeCodec::Horolog { .. })
            && request_session(&self.socket, to, 0).is_ok()
    }
}
