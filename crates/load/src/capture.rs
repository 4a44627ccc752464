//! What was sent and received, for Wireshark (`--pcap`). A thread of its own reads a tap on the
//! interface and writes a file; the engine knows nothing of it. At high rates one request in so
//! many is kept, and its reply with it: both carry the same token.
//!
//! A tap was chosen rather than a writing device, because it shows what really passed the
//! interface, with the kernel's timestamps, for sockets as well as for raw frames, and leaves the
//! sending loop alone. What it is too slow for it counts.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{
    Besides, Captured, Conversation, Direction, End, PacketError, PcapngWriter, Sample, Tap,
    TapControl,
};
use horolog_sys::clock::Realtime;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_wire::ptp::{self, EVENT_PORT, GENERAL_PORT, MessageType};

use crate::plan::RunPlan;
use crate::ptp::{PtpKind, PtpPlan, Transport};
use crate::target::Route;

/// Requests a second of which all are kept; of more, one in two, four, eight and so on.
pub const RATE_WHOLE: f64 = 10_000.0;
/// Packets that are kept unless another number is asked for.
pub const PACKETS_MAX: u64 = 1_000_000;
/// How long the thread waits for packets before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(20);
/// Where the lower halves of NTP's transmit timestamp and origin timestamp stand (RFC 5905, figure
/// 8). Their lowest bit tells the two timestamps of a request apart, so it does not count.
const TRANSMIT_LOW: u32 = 44;
const ORIGIN_LOW: u32 = 28;
/// Of the sequence number of a token, above that bit, so many bits choose what is kept.
const TOKEN_BITS_MAX: u32 = 24;
/// Where the word stands whose lower half is the number of a PTP message, which answers to delay
/// requests have from these (IEEE 1588-2019, table 35).
const PTP_NUMBER: u32 = ptp::SEQUENCE_ID_OFFSET as u32 - 2;
/// Where the lower half of the clock's identity stands that asks for unicast messages, and that a
/// grant is for (tables 35 and 51): a token's. Signaling messages have numbers of their own.
const PTP_ASKING_LOW: u32 = ptp::SOURCE_OFFSET as u32 + 4;
const PTP_TARGET_LOW: u32 = ptp::HEADER_LEN as u32 + 4;

/// What to keep, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureOptions {
    /// The file, which is written anew.
    pub path: PathBuf,
    /// How many packets to keep at most.
    pub packets_max: u64,
}

/// Why nothing can be captured; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be written.
    #[error("cannot write {0}: {1}; choose another file with --pcap")]
    File(PathBuf, #[source] io::Error),
    /// The tap cannot be opened.
    #[error("--pcap takes a tap on {0}, which needs CAP_NET_RAW; run as root, or leave it out")]
    Privilege(String),
    /// The interface has other frames.
    #[error("--pcap knows Ethernet frames only, and {0} has none; leave it out")]
    NotEthernet(String),
    /// Anything else that the kernel refused.
    #[error("--pcap: {0}")]
    Tap(PacketError),
    /// The thread cannot be started, or not be told what to keep.
    #[error("--pcap: {0}")]
    System(#[from] io::Error),
}

/// What has become of a capture.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CaptureSummary {
    /// The file.
    pub path: PathBuf,
    /// Packets written.
    pub written: u64,
    /// Packets that were missed, because they came faster than they were read.
    pub missed: u64,
    /// Packets left out when there were enough.
    pub left_out: u64,
    /// One request in so many was kept where it was fewest.
    pub one_in: u64,
    /// Why the file ends early.
    pub fault: Option<String>,
}

/// A capture that goes on until it is ended.
pub(crate) struct Capture {
    control: TapControl,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<CaptureSummary>>,
    ptp: Option<PtpKind>,
    one_in: u64,
}

impl Capture {
    /// Opens file and tap. Nothing is kept before [`Capture::begin`].
    pub(crate) fn open(options: &CaptureOptions, plan: &RunPlan) -> Result<Self, CaptureError> {
        let (interface, is_loopback) = match &plan.route {
            Route::ThisHost => ("lo", true),
            Route::Link(link) => (link.interface.as_str(), false),
        };
        if !is_loopback && !has_ethernet(interface) {
            return Err(CaptureError::NotEthernet(interface.to_owned()));
        }
        let conversation = conversation(plan);
        let (tap, control) = Tap::open(interface, is_loopback, conversation.clone()).map_err(
            |error| match error {
                PacketError::Privilege(interface) => CaptureError::Privilege(interface),
                error => CaptureError::Tap(error),
            },
        )?;
        let unwritable = |error| CaptureError::File(options.path.clone(), error);
        let file = File::create(&options.path).map_err(unwritable)?;
        let writer = PcapngWriter::new(file, interface).map_err(unwritable)?;
        let ending = Arc::new(AtomicBool::new(false));
        let summary = CaptureSummary { path: options.path.clone(), ..CaptureSummary::default() };
        let mut keeper = Keeper { tap, conversation, packets_max: options.packets_max, summary };
        let ended = Arc::clone(&ending);
        let keep = move || {
            let fault = keeper.keep(writer, &ended).err().map(|error| error.to_string());
            CaptureSummary { fault, ..keeper.summary }
        };
        let thread = thread::Builder::new().name("capture".into()).spawn(keep)?;
        let ptp = plan.ptp.map(|ptp| ptp.kind);
        Ok(Self { control, ending, thread: Some(thread), ptp, one_in: 1 })
    }

    /// A trial begins at this rate: from here on as many packets of it are kept as can be.
    pub(crate) fn begin(&mut self, rate: f64) -> io::Result<()> {
        let bits = (rate / RATE_WHOLE).log2().ceil().max(0.0) as u32;
        let (one_in, sample) = sample(self.ptp, bits);
        self.one_in = self.one_in.max(one_in);
        self.control.watch(&sample)
    }

    /// Writes what is still to come, and tells what has become of it.
    pub(crate) fn end(mut self) -> CaptureSummary {
        self.ending.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let summary = match ended {
            Some(Ok(summary)) => summary,
            // It has said so on stderr.
            _ => CaptureSummary {
                fault: Some("the capturing thread failed".to_owned()),
                ..CaptureSummary::default()
            },
        };
        CaptureSummary { one_in: self.one_in, ..summary }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
    }
}

/// What the target and the engine say to one another.
fn conversation(plan: &RunPlan) -> Conversation {
    match &plan.ptp {
        None => Conversation::with(plan.target),
        Some(ptp) => ptp_conversation(plan, ptp),
    }
}

fn ptp_conversation(plan: &RunPlan, ptp: &PtpPlan) -> Conversation {
    if let (Transport::Ethernet, Route::Link(link)) = (ptp.transport, &plan.route) {
        let master = link.macs.map(|macs| macs.destination);
        let to = if ptp.multicast { Some(ptp::MULTICAST_MAC) } else { master };
        let end = |address| End::Ethernet(ptp::ETHER_TYPE, address);
        return Conversation {
            from: master.map(end).into_iter().collect(),
            to: to.map(end).into_iter().collect(),
        };
    }
    let master = plan.target.ip();
    let ports = [EVENT_PORT, GENERAL_PORT];
    Conversation {
        from: ports.map(|port| End::Udp(SocketAddr::new(master, port))).into(),
        to: vec![End::Udp(ptp.destination(master))],
    }
}

/// One request in 2^`bits`, and how many that are.
fn sample(ptp: Option<PtpKind>, bits: u32) -> (u64, Sample) {
    let by_number = bits.min(u16::BITS);
    let number_mask = (1 << by_number) - 1;
    let by_token = bits.min(TOKEN_BITS_MAX);
    let token_mask = ((1 << by_token) - 1) << 1;
    let of = |bits: u32, sent_offset, received_offset, mask, besides| {
        (1_u64 << bits, Sample { sent_offset, received_offset, mask, besides })
    };
    match ptp {
        None => of(by_token, TRANSMIT_LOW, ORIGIN_LOW, token_mask, None),
        Some(PtpKind::Delay | PtpKind::Nsm) => {
            of(by_number, PTP_NUMBER, PTP_NUMBER, number_mask, None)
        }
        Some(PtpKind::Unicast(_)) => {
            // What was granted tells of no request.
            let answer_kind = MessageType::Signaling as u8;
            let besides = Besides { answer_kind, offset: PTP_NUMBER, mask: number_mask };
            of(by_token, PTP_ASKING_LOW, PTP_TARGET_LOW, token_mask, Some(besides))
        }
    }
}

fn has_ethernet(interface: &str) -> bool {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_by_name(interface));
    link.is_ok_and(|link| link.mac.is_some())
}

/// The thread's own: what it reads, and what it has done.
struct Keeper {
    tap: Tap,
    conversation: Conversation,
    packets_max: u64,
    summary: CaptureSummary,
}

impl Keeper {
    /// Keeps what comes until it is told to end, and then what is still there.
    fn keep(&mut self, mut writer: PcapngWriter<File>, ending: &AtomicBool) -> io::Result<()> {
        loop {
            let is_last = ending.load(Ordering::Relaxed);
            let came = self.take(&mut writer, if is_last { Duration::ZERO } else { WAIT })?;
            writer.flush()?;
            if is_last && came == 0 {
                break;
            }
        }
        self.summary.missed = self.tap.dropped()?;
        let seen = self.summary.written + self.summary.left_out + self.summary.missed;
        writer.finish(Realtime.now(), seen, self.summary.missed)
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
            let direction = if is_answer { Direction::Inbound } else { Direction::Outbound };
            let at = packet.received_at.unwrap_or_else(|| Realtime.now());
            writer.packet(&Captured { at, direction, bytes: packet.bytes });
            summary.written += 1;
        }
        Ok(batch.len())
    }
}
