//! TCP bandwidth: a stream of messages of one size in one direction, counted by the receiver.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use horolog_record::{
    ProgressSlots, TcpBandwidthRow, TcpDirection, TcpInfoSummary, ZeroCopyCounts,
};
use horolog_sys::tcp::{self, ZeroCopySender};

use super::client::{TcpNearEndSession, keep_last_bytes};
use super::early_end::{ConnectionEndReason, MeasurementEarlyEndReason};
use super::error::TcpPathError;
use super::latency::{TcpRowOutcome, connection_flags, saturating_ns};
use super::live::ConnectionProgressPublisher;
use super::options::{PathTcpOptions, ceil_ms};
use super::protocol::{ConnectionFlags, ConnectionJob, FarEndReport, REPORT_LEN, TcpHello};
use super::row::{combined_tcp_info, tcp_info_summary};

/// Maximum receive buffer size in bytes; a read returns at most one message.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// Outcome of one connection of a bandwidth row.
#[derive(Default)]
struct BandwidthConnectionOutcome {
    bytes: u64,
    duration_ns: u64,
    tcp: Option<TcpInfoSummary>,
    zero_copy: Option<ZeroCopyCounts>,
    lost: Option<MeasurementEarlyEndReason>,
}

/// Measures one row: a message size in one direction, over all connections, which publish progress
/// in `slots`.
pub(super) fn measure_bandwidth(
    address: SocketAddr,
    size: u64,
    direction: TcpDirection,
    options: &PathTcpOptions,
    is_over: &AtomicBool,
    slots: Option<&ProgressSlots>,
) -> Result<TcpRowOutcome<TcpBandwidthRow>, TcpPathError> {
    let settings = &options.settings;
    let hello = bandwidth_hello(size as u32, direction, options);
    let sessions =
        (0..settings.connections).map(|_| TcpNearEndSession::open(address, &hello, is_over));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(sessions.len());
    let run_connection = |index: usize, mut session: TcpNearEndSession<'_>| {
        start.wait();
        let reporter = ConnectionProgressPublisher::new(slots, index);
        match direction {
            TcpDirection::Forward => send_stream(&mut session, size as usize, options, reporter),
            TcpDirection::Backward => {
                receive_stream(&mut session, size as usize, options, reporter)
            }
        }
    };
    let outcomes: Vec<BandwidthConnectionOutcome> = thread::scope(|scope| {
        let one = &run_connection;
        let spawned = |(index, session)| scope.spawn(move || one(index, session));
        let running: Vec<_> = sessions.into_iter().enumerate().map(spawned).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    Ok(combined_outcome(outcomes, size, direction))
}

fn bandwidth_hello(size: u32, direction: TcpDirection, options: &PathTcpOptions) -> TcpHello {
    let (work, request_bytes, head_bytes) = match direction {
        TcpDirection::Forward => (ConnectionJob::Receive, size, 0),
        TcpDirection::Backward => (ConnectionJob::Send, 0, size),
    };
    TcpHello {
        job: work,
        // A cork would be removed at once by the next message. The welcome is delayed because the
        // receiver of a stream that begins with a dialogue delays its acknowledgements, which makes
        // Nagle's algorithm send more and smaller segments.
        flags: ConnectionFlags {
            cork: false,
            delay_welcome: true,
            ..connection_flags(&options.settings)
        },
        request_bytes,
        head_bytes,
        body_bytes: 0,
        batch: 1,
        time_ms: ceil_ms(options.time()),
        warm_up_ms: ceil_ms(options.warm_up()),
    }
}

fn combined_outcome(
    outcomes: Vec<BandwidthConnectionOutcome>,
    size: u64,
    direction: TcpDirection,
) -> TcpRowOutcome<TcpBandwidthRow> {
    let duration_ns = outcomes.iter().map(|outcome| outcome.duration_ns).max().unwrap_or(0);
    let received_bytes = outcomes.iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    // Connections end at different times, so rates are computed per connection.
    let rate_of = |one: &BandwidthConnectionOutcome| match one.duration_ns {
        0 => 0.0,
        ns => one.bytes as f64 * 1e9 / ns as f64,
    };
    let rate: f64 = outcomes.iter().map(rate_of).sum();
    let tcp: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.tcp).collect();
    let zero_copy = outcomes.iter().filter_map(|outcome| outcome.zero_copy);
    let zero_copy = zero_copy.reduce(|one, other| ZeroCopyCounts {
        sends: one.sends.saturating_add(other.sends),
        copied: one.copied.saturating_add(other.copied),
    });
    let figures = TcpBandwidthRow {
        size_bytes: size,
        direction,
        received_bytes,
        duration_ns,
        rate,
        message_rate: rate / size as f64,
        zero_copy,
        tcp: combined_tcp_info(&tcp),
    };
    TcpRowOutcome { figures, early_end: outcomes.into_iter().find_map(|outcome| outcome.lost) }
}

fn send_stream(
    session: &mut TcpNearEndSession<'_>,
    size: usize,
    options: &PathTcpOptions,
    reporter: ConnectionProgressPublisher<'_>,
) -> BandwidthConnectionOutcome {
    let mut outcome = BandwidthConnectionOutcome::default();
    let payload = vec![0; size];
    let counted_from = Instant::now() + options.warm_up();
    let meter = TimedSendProgress {
        reporter,
        counted_from,
        until: counted_from + options.time(),
        bytes: 0,
    };
    let sent = if options.settings.zero_copy {
        send_zero_copy(session, payload, meter, &mut outcome)
    } else {
        send_copies(session, &payload, meter)
    };
    outcome.tcp = tcp::info(&session.stream).ok().map(|info| tcp_info_summary(&info));
    let ended = sent.and_then(|()| session.finish_and_read_report());
    if let Ok(report) | Err(ConnectionEndReason::BudgetReached(_, report)) = &ended {
        outcome.bytes = report.bytes;
        outcome.duration_ns = report.duration_ns;
    }
    outcome.lost = ended.err().and_then(|lost| lost.early_end());
    outcome
}

/// End condition and live progress of a sending connection. The result uses the bytes that the far
/// end received, not these.
struct TimedSendProgress<'a> {
    reporter: ConnectionProgressPublisher<'a>,
    counted_from: Instant,
    until: Instant,
    bytes: u64,
}

impl TimedSendProgress<'_> {
    /// Adds `sent` bytes, unless the warm-up is still on; returns true until the time is over.
    fn should_continue(&mut self, sent: usize) -> bool {
        let now = Instant::now();
        if now > self.counted_from {
            self.bytes += sent as u64;
        }
        self.reporter.publish_bytes(now, self.bytes);
        now < self.until
    }
}

fn send_copies(
    session: &mut TcpNearEndSession<'_>,
    payload: &[u8],
    mut meter: TimedSendProgress<'_>,
) -> Result<(), ConnectionEndReason> {
    let mut sent = 0;
    while meter.should_continue(sent) && !session.is_over() {
        session.write_all(payload)?;
        sent = payload.len();
    }
    Ok(())
}

fn send_zero_copy(
    session: &TcpNearEndSession<'_>,
    payload: Vec<u8>,
    mut meter: TimedSendProgress<'_>,
    outcome: &mut BandwidthConnectionOutcome,
) -> Result<(), ConnectionEndReason> {
    let size = payload.len();
    let mut sender = ZeroCopySender::new(&session.stream, payload.into_boxed_slice())?;
    let mut since = None;
    let (mut offset, mut last) = (0, 0);
    while meter.should_continue(std::mem::take(&mut last)) && !session.is_over() {
        match sender.send(offset) {
            Ok(sent) => {
                last = sent;
                offset = if offset + sent == size { 0 } else { offset + sent };
                since = None;
            }
            Err(error) => session.check_timeout(error, &mut since)?,
        }
    }
    sender.finish()?;
    let (sends, copied) = sender.completions();
    outcome.zero_copy = Some(ZeroCopyCounts { sends: sends.into(), copied: copied.into() });
    Ok(())
}

fn receive_stream(
    session: &mut TcpNearEndSession<'_>,
    size: usize,
    options: &PathTcpOptions,
    reporter: ConnectionProgressPublisher<'_>,
) -> BandwidthConnectionOutcome {
    let mut outcome = BandwidthConnectionOutcome::default();
    let ended = receive_to_end(session, size, options, &mut outcome, reporter);
    if let Ok(report) | Err(ConnectionEndReason::BudgetReached(_, report)) = &ended {
        outcome.tcp = Some(report.tcp);
    }
    outcome.lost = ended.err().and_then(|lost| lost.early_end());
    outcome
}

/// Receives to the end of the stream, whose last bytes are the far end's report.
fn receive_to_end(
    session: &mut TcpNearEndSession<'_>,
    size: usize,
    options: &PathTcpOptions,
    outcome: &mut BandwidthConnectionOutcome,
    mut reporter: ConnectionProgressPublisher<'_>,
) -> Result<Box<FarEndReport>, ConnectionEndReason> {
    let mut buffer = vec![0; size.min(RECEIVE_BUFFER_BYTES)];
    let mut last_bytes = [0; REPORT_LEN];
    let mut counted_from = None;
    let mut last = Instant::now();
    loop {
        if options.settings.quick_ack {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        let received = session.read_available(&mut buffer)?;
        if received == 0 {
            break;
        }
        if session.is_over() {
            return Err(ConnectionEndReason::RunEnded);
        }
        keep_last_bytes(&mut last_bytes, &buffer[..received]);
        last = Instant::now();
        if last > *counted_from.get_or_insert(last + options.warm_up()) {
            outcome.bytes += received as u64;
        }
        reporter.publish_bytes(last, outcome.bytes);
    }
    outcome.bytes = outcome.bytes.saturating_sub(REPORT_LEN as u64);
    let begun = counted_from.unwrap_or(last);
    outcome.duration_ns = saturating_ns(last.saturating_duration_since(begun));
    let missing_report =
        || ConnectionEndReason::ConnectionLost(std::io::ErrorKind::UnexpectedEof.into());
    FarEndReport::parse(&last_bytes).ok_or_else(missing_report)?.into_complete()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_up_by_their_own_rates() {
        let one = |bytes, duration_ns| BandwidthConnectionOutcome {
            bytes,
            duration_ns,
            ..BandwidthConnectionOutcome::default()
        };
        let outcomes = vec![one(1_000, 1_000_000_000), one(1_000, 500_000_000), one(0, 0)];
        let row = combined_outcome(outcomes, 100, TcpDirection::Forward).figures;
        assert_eq!((row.received_bytes, row.duration_ns), (2_000, 1_000_000_000));
        assert!((row.rate - 3_000.0).abs() < 1e-6 && (row.message_rate - 30.0).abs() < 1e-9);
    }
}
