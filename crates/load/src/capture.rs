//! Packet capture for Wireshark (`--pcap`). A separate thread reads a capture socket on the
//! interface and writes a file, independently of the engine. At high rates one request in N is
//! written, together with its reply: both carry the same token.
//!
//! A capture socket was chosen rather than recording in the engine, because it shows the packets
//! that really passed the interface, with the kernel's timestamps, for sockets as well as for raw
//! frames, and leaves the sending loop alone. Packets that arrive faster than it can read them are
//! counted.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{
    CaptureControl, CaptureDirection, CaptureSocket, Captured, Conversation, ExtraSample,
    PacketError, PacketSample, PcapngWriter, RemoteEnd,
};
use horolog_sys::clock::Realtime;
use horolog_sys::explain::explain;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_wire::ptp::{self, EVENT_PORT, GENERAL_PORT, MessageType};

use crate::plan::RunPlan;
use crate::ptp::{PtpKind, PtpLoadTransport, PtpPlan};
use crate::target::Route;

/// Highest rate, in requests per second, at which all packets are kept; above it, one in two, four,
/// eight and so on.
pub const RATE_WHOLE: f64 = 10_000.0;
/// Default limit of the packets written.
pub const PACKETS_MAX: u64 = 1_000_000;
/// Longest wait for packets before the thread checks whether it must end.
const WAIT: Duration = Duration::from_millis(20);
/// Offsets of the lower halves of NTP's transmit timestamp and origin timestamp (RFC 5905, figure
/// 8). Their lowest bit distinguishes the two timestamps of a request, so it does not count.
const TRANSMIT_LOW: u32 = 44;
const ORIGIN_LOW: u32 = 28;
/// Highest number of bits of a token's sequence number, above that bit, that select the packets to
/// keep.
const TOKEN_BITS_MAX: u32 = 24;
/// Offset of the 32-bit word whose lower half is the sequence ID of a PTP message, which replies to
/// delay requests copy from these (IEEE 1588-2019, table 35).
const PTP_NUMBER: u32 = ptp::SEQUENCE_ID_OFFSET as u32 - 2;
/// Offset of the lower half of the identity of the clock that requests unicast messages, and that a
/// grant is for (tables 35 and 51); it is part of a token. Signaling messages have sequence IDs of
/// their own.
const PTP_REQUESTER_LOW: u32 = ptp::SOURCE_OFFSET as u32 + 4;
const PTP_TARGET_LOW: u32 = ptp::HEADER_LEN as u32 + 4;

/// Options of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureOptions {
    /// Output file; an existing file is replaced.
    pub path: PathBuf,
    /// Most packets to keep.
    pub packets_max: u64,
}

/// Reason for which a capture failed; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be written.
    #[error("cannot write {0}: {why}; choose another file with --pcap", why = explain(.1))]
    File(PathBuf, #[source] io::Error),
    /// The capture socket cannot be opened for lack of privilege.
    #[error("--pcap captures on {0}, which needs CAP_NET_RAW; run as root, or omit --pcap")]
    Privilege(String),
    /// The interface does not carry Ethernet frames.
    #[error("--pcap captures Ethernet frames only, and {0} has none; omit --pcap")]
    NotEthernet(String),
    /// Any other error of the kernel.
    #[error("--pcap: {0}")]
    Tap(PacketError),
    /// The thread cannot be started, or the capture filter cannot be set.
    #[error("--pcap: {why}", why = explain(.0))]
    System(#[from] io::Error),
}

/// Result of a capture.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CaptureSummary {
    /// Output file.
    pub path: PathBuf,
    /// Packets written.
    pub written: u64,
    /// Packets missed because they arrived faster than they were read.
    pub missed: u64,
    /// Packets left out after the limit was reached.
    pub left_out: u64,
    /// Sampling ratio: one request in N was written at the lowest ratio.
    pub one_in: u64,
    /// Reason for which the file ends early.
    pub fault: Option<String>,
}

/// A capture in progress, until [`RunningCapture::end`].
pub(crate) struct RunningCapture {
    control: CaptureControl,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<CaptureSummary>>,
    ptp: Option<PtpKind>,
    one_in: u64,
}

impl RunningCapture {
    /// Opens the file and the capture socket. Nothing is written before [`RunningCapture::begin`].
    pub(crate) fn open(options: &CaptureOptions, plan: &RunPlan) -> Result<Self, CaptureError> {
        let (interface, is_loopback) = match &plan.route {
            Route::ThisHost => ("lo", true),
            Route::Link(link) => (link.interface.as_str(), false),
        };
        if !is_loopback && !has_ethernet(interface) {
            return Err(CaptureError::NotEthernet(interface.to_owned()));
        }
        let conversation = conversation(plan);
        let (tap, control) = CaptureSocket::open(interface, is_loopback, conversation.clone())
            .map_err(|error| match error {
                PacketError::Privilege(interface) => CaptureError::Privilege(interface),
                error => CaptureError::Tap(error),
            })?;
        let unwritable = |error| CaptureError::File(options.path.clone(), error);
        let file = File::create(&options.path).map_err(unwritable)?;
        let writer = PcapngWriter::new(file, interface).map_err(unwritable)?;
        let ending = Arc::new(AtomicBool::new(false));
        let summary = CaptureSummary { path: options.path.clone(), ..CaptureSummary::default() };
        let mut keeper =
            CaptureThread { tap, conversation, packets_max: options.packets_max, summary };
        let ended = Arc::clone(&ending);
        let keep = move || {
            let fault = keeper.keep(writer, &ended).err().map(|error| error.to_string());
            CaptureSummary { fault, ..keeper.summary }
        };
        let thread = thread::Builder::new().name("capture".into()).spawn(keep)?;
        let ptp = plan.ptp.map(|ptp| ptp.kind);
        Ok(Self { control, ending, thread: Some(thread), ptp, one_in: 1 })
    }

    /// Begins a trial at this rate: from here on as many of its packets are kept as the rate
    /// permits.
    pub(crate) fn begin(&mut self, rate: f64) -> io::Result<()> {
        let bits = (rate / RATE_WHOLE).log2().ceil().max(0.0) as u32;
        let (one_in, sample) = sample(self.ptp, bits);
        self.one_in = self.one_in.max(one_in);
        self.control.set_filter(&sample)
    }

    /// Writes the packets still to come, and returns the summary.
    pub(crate) fn end(mut self) -> CaptureSummary {
        self.ending.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let summary = match ended {
            Some(Ok(summary)) => summary,
            // The thread has printed its error on stderr.
            _ => CaptureSummary {
                fault: Some("the capture thread failed".to_owned()),
                ..CaptureSummary::default()
            },
        };
        CaptureSummary { one_in: self.one_in, ..summary }
    }
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
    }
}

/// Returns the packets that the target and the engine exchange.
fn conversation(plan: &RunPlan) -> Conversation {
    match &plan.ptp {
        None => Conversation::with(plan.target),
        Some(ptp) => ptp_conversation(plan, ptp),
    }
}

fn ptp_conversation(plan: &RunPlan, ptp: &PtpPlan) -> Conversation {
    if let (PtpLoadTransport::Ethernet, Route::Link(link)) = (ptp.transport, &plan.route) {
        let master = link.macs.map(|macs| macs.destination);
        let to = if ptp.multicast { Some(ptp::MULTICAST_MAC) } else { master };
        let end = |address| RemoteEnd::Ethernet(ptp::ETHER_TYPE, address);
        return Conversation {
            from: master.map(end).into_iter().collect(),
            to: to.map(end).into_iter().collect(),
        };
    }
    let master = plan.target.ip();
    let ports = [EVENT_PORT, GENERAL_PORT];
    Conversation {
        from: ports.map(|port| RemoteEnd::Udp(SocketAddr::new(master, port))).into(),
        to: vec![RemoteEnd::Udp(ptp.destination(master))],
    }
}

/// Returns the sample of one request in 2^`bits`, and that ratio.
fn sample(ptp: Option<PtpKind>, bits: u32) -> (u64, PacketSample) {
    let by_number = bits.min(u16::BITS);
    let number_mask = (1 << by_number) - 1;
    let by_token = bits.min(TOKEN_BITS_MAX);
    let token_mask = ((1 << by_token) - 1) << 1;
    let of = |bits: u32, sent_offset, received_offset, mask, extra| {
        (1_u64 << bits, PacketSample { sent_offset, received_offset, mask, extra })
    };
    match ptp {
        None => of(by_token, TRANSMIT_LOW, ORIGIN_LOW, token_mask, None),
        Some(PtpKind::Delay | PtpKind::Nsm) => {
            of(by_number, PTP_NUMBER, PTP_NUMBER, number_mask, None)
        }
        Some(PtpKind::Unicast(_)) => {
            // Granted messages identify no request.
            let answer_kind = MessageType::Signaling as u8;
            let extra = ExtraSample { answer_kind, offset: PTP_NUMBER, mask: number_mask };
            of(by_token, PTP_REQUESTER_LOW, PTP_TARGET_LOW, token_mask, Some(extra))
        }
    }
}

fn has_ethernet(interface: &str) -> bool {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_by_name(interface));
    link.is_ok_and(|link| link.mac.is_some())
}

/// State of the capture thread: its input and its counts.
struct CaptureThread {
    tap: CaptureSocket,
    conversation: Conversation,
    packets_max: u64,
    summary: CaptureSummary,
}

impl CaptureThread {
    /// Writes packets until `ending` is set, and then the ones still queued.
    fn keep(&mut self, mut writer: PcapngWriter<File>, ending: &AtomicBool) -> io::Result<()> {
        loop {
            let is_last = ending.load(Ordering::Relaxed);
            let count = self.take(&mut writer, if is_last { Duration::ZERO } else { WAIT })?;
            writer.flush()?;
            if is_last && count == 0 {
                break;
            }
        }
        self.summary.missed = self.tap.dropped()?;
        let received = self.summary.written + self.summary.left_out + self.summary.missed;
        writer.finish(Realtime.now(), received, self.summary.missed)
    }

    fn take(&mut self, writer: &mut PcapngWriter<File>, wait: Duration) -> io::Result<usize> {
        let Self { tap, conversation, packets_max, summary } = self;
        let batch = tap.receive(wait)?;
        for packet in batch.iter() {
            if summary.written >= *packets_max {
                summary.left_out += 1;
                continue;
            }
            let is_answer = conversation.is_answer(packet.bytes);
            let direction =
                if is_answer { CaptureDirection::Inbound } else { CaptureDirection::Outbound };
            let at = packet.received_at.unwrap_or_else(|| Realtime.now());
            writer.packet(&Captured { at, direction, bytes: packet.bytes });
            summary.written += 1;
        }
        Ok(batch.len())
    }
}
