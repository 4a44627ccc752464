//! Packet capture for Wireshark (`--pcap`). A separate thread reads a capture socket on the
//! interface and writes a file, independently of the engine. At high rates one request in N is
//! written, together with its reply: both carry the same token.
//!
//! The capture uses a socket of its own instead of recording in the engine: it shows the packets
//! that really passed the interface, with the kernel's timestamps, works for sockets and raw frames
//! alike, and does not slow the sending loop. Packets that it cannot read in time are counted as
//! missed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{
    CaptureDirection, CaptureFilterHandle, CaptureSocket, CapturedPacket, PacketSamplingRule,
    PacketSocketError, PcapngWriter, RemoteEndSelection,
};
use horolog_sys::clock::ClockRealtime;
use horolog_sys::explain::explain;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;

use crate::plan::RunPlan;
use crate::request_kind::RequestKind;
use crate::target::Route;

/// Highest rate, in requests per second, at which every request is captured. Above it one request
/// in 2, 4, 8 and so on is captured.
pub const UNSAMPLED_RATE_MAX: f64 = 10_000.0;
/// Default limit of the packets written.
pub const PACKETS_MAX: u64 = 1_000_000;
/// Longest wait for packets before the thread checks whether it must end.
const WAIT: Duration = Duration::from_millis(20);
/// Offsets of the low 32 bits of the NTP transmit and origin timestamps (RFC 5905, figure 8). Their
/// lowest bit distinguishes the two timestamps of one request, so the sample ignores it.
const TRANSMIT_LOW: u32 = 44;
const ORIGIN_LOW: u32 = 28;
/// Largest number of token bits that select the captured requests: the low bits of the sequence
/// number, above the lowest bit of the token.
const TOKEN_BITS_MAX: u32 = 24;

/// Output file and limit of a packet capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureOptions {
    /// Output file; an existing file is replaced.
    pub path: PathBuf,
    /// Largest number of packets written to the file.
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
    /// Any other error of the capture socket.
    #[error("--pcap: {0}")]
    Socket(PacketSocketError),
    /// The thread cannot be started, or the capture filter cannot be set.
    #[error("--pcap: {why}", why = explain(.0))]
    System(#[from] io::Error),
}

/// Numbers of packets that a capture wrote and left out, and the error that ended it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CaptureSummary {
    /// Output file.
    pub path: PathBuf,
    /// Packets written.
    pub written: u64,
    /// Packets that the capture socket dropped because they were not read in time.
    pub missed: u64,
    /// Packets left out after the limit was reached.
    pub left_out: u64,
    /// Sampling ratio at the highest rate of the run: one request in `one_in` was written.
    pub one_in: u64,
    /// Error that ended the file early; `None` if it is complete.
    pub error: Option<String>,
}

/// Capture in progress; [`RunningCapture::finish`] ends it.
pub(crate) struct RunningCapture {
    control: CaptureFilterHandle,
    should_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<CaptureSummary>>,
    requests: RequestKind,
    one_in: u64,
}

impl RunningCapture {
    /// Opens the file and the capture socket. Nothing is captured before the first
    /// [`RunningCapture::begin_trial`].
    pub(crate) fn open(options: &CaptureOptions, plan: &RunPlan) -> Result<Self, CaptureError> {
        let (interface, is_loopback) = match &plan.route {
            Route::ThisHost => ("lo", true),
            Route::Link(link) => (link.interface.as_str(), false),
        };
        if !is_loopback && !has_ethernet(interface) {
            return Err(CaptureError::NotEthernet(interface.to_owned()));
        }
        let conversation = plan.requests.behaviour().captured_ends(plan);
        let (socket, control) = CaptureSocket::open(interface, is_loopback, conversation.clone())
            .map_err(|error| match error {
            PacketSocketError::Privilege(interface) => CaptureError::Privilege(interface),
            error => CaptureError::Socket(error),
        })?;
        let unwritable = |error| CaptureError::File(options.path.clone(), error);
        let file = File::create(&options.path).map_err(unwritable)?;
        let writer = PcapngWriter::new(file, interface).map_err(unwritable)?;
        let should_end = Arc::new(AtomicBool::new(false));
        let summary = CaptureSummary { path: options.path.clone(), ..CaptureSummary::default() };
        let mut capture_thread =
            CaptureWriter { socket, conversation, packets_max: options.packets_max, summary };
        let thread_should_end = Arc::clone(&should_end);
        let run = move || {
            let error = capture_thread
                .write_packets(writer, &thread_should_end)
                .err()
                .map(|error| error.to_string());
            CaptureSummary { error, ..capture_thread.summary }
        };
        let thread = thread::Builder::new().name("capture".into()).spawn(run)?;
        let requests = plan.requests.clone();
        Ok(Self { control, should_end, thread: Some(thread), requests, one_in: 1 })
    }

    /// Sets the sampling ratio for a trial at `rate` requests per second.
    pub(crate) fn begin_trial(&mut self, rate: f64) -> io::Result<()> {
        let bits = (rate / UNSAMPLED_RATE_MAX).log2().ceil().max(0.0) as u32;
        let (one_in, sample) = self.requests.behaviour().sampling_rule(bits);
        self.one_in = self.one_in.max(one_in);
        self.control.set_filter(&sample)
    }

    /// Ends the capture once the packets still queued are written, and returns the summary.
    pub(crate) fn finish(mut self) -> CaptureSummary {
        self.should_end.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let summary = match ended {
            Some(Ok(summary)) => summary,
            // The thread has printed its error on stderr.
            _ => CaptureSummary {
                error: Some("the capture thread failed".to_owned()),
                ..CaptureSummary::default()
            },
        };
        CaptureSummary { one_in: self.one_in, ..summary }
    }
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        self.should_end.store(true, Ordering::Relaxed);
    }
}

/// Returns the sampling ratio 2^`bits`, limited by the bits of a token, and the rule that selects
/// one request in so many with its reply, by the token's low bits at these offsets.
pub(crate) fn sampling_rule(
    bits: u32,
    sent_offset: u32,
    received_offset: u32,
) -> (u64, PacketSamplingRule) {
    let bits = bits.min(TOKEN_BITS_MAX);
    let mask = ((1 << bits) - 1) << 1;
    (1 << bits, PacketSamplingRule { sent_offset, received_offset, mask, extra: None })
}

/// Returns the sampling ratio and rule for NTP packets.
pub(crate) fn ntp_sampling_rule(bits: u32) -> (u64, PacketSamplingRule) {
    sampling_rule(bits, TRANSMIT_LOW, ORIGIN_LOW)
}

fn has_ethernet(interface: &str) -> bool {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_by_name(interface));
    link.is_ok_and(|link| link.mac.is_some())
}

/// Writer of captured packets, run by the capture thread: socket, limit and counts.
struct CaptureWriter {
    socket: CaptureSocket,
    conversation: RemoteEndSelection,
    packets_max: u64,
    summary: CaptureSummary,
}

impl CaptureWriter {
    /// Writes packets until `ending` is set, and then the ones still queued.
    fn write_packets(
        &mut self,
        mut writer: PcapngWriter<File>,
        ending: &AtomicBool,
    ) -> io::Result<()> {
        loop {
            let is_last = ending.load(Ordering::Relaxed);
            let count =
                self.write_batch(&mut writer, if is_last { Duration::ZERO } else { WAIT })?;
            writer.flush()?;
            if is_last && count == 0 {
                break;
            }
        }
        self.summary.missed = self.socket.dropped()?;
        let received = self.summary.written + self.summary.left_out + self.summary.missed;
        writer.finish(ClockRealtime.now(), received, self.summary.missed)
    }

    fn write_batch(
        &mut self,
        writer: &mut PcapngWriter<File>,
        wait: Duration,
    ) -> io::Result<usize> {
        let Self { socket, conversation, packets_max, summary } = self;
        let batch = socket.receive(wait)?;
        for packet in batch.iter() {
            if summary.written >= *packets_max {
                summary.left_out += 1;
                continue;
            }
            let is_answer = conversation.is_from_remote(packet.bytes);
            let direction =
                if is_answer { CaptureDirection::Inbound } else { CaptureDirection::Outbound };
            let at = packet.received_at.unwrap_or_else(|| ClockRealtime.now());
            writer.add_packet(&CapturedPacket { at, direction, bytes: packet.bytes });
            summary.written += 1;
        }
        Ok(batch.len())
    }
}
