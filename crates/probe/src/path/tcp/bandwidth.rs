//! Bandwidth: messages of one size in one direction, as many as possible; the receiver counts.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use horolog_record::{ProgressSlots, TcpBandwidth, TcpDirection, TcpInfoSummary, ZeroCopyCounts};
use horolog_sys::tcp::{self, ZeroCopySender};

use super::client::{TcpSession, keep_tail};
use super::early_end::{ConnectionLoss, EarlyEnd};
use super::error::TcpPathError;
use super::latency::{TcpRowOutcome, flags, ns};
use super::live::ProgressReporter;
use super::options::{TcpOptions, ms};
use super::protocol::{ConnectionFlags, ConnectionJob, FarEndReport, Hello, REPORT_LEN};
use super::row::{combined, figures};

/// Receive buffer size; a read takes one message at most.
const ROOM: usize = 256 << 10;

/// Outcome of one connection.
#[derive(Default)]
struct BandwidthConnectionOutcome {
    bytes: u64,
    duration_ns: u64,
    tcp: Option<TcpInfoSummary>,
    zero_copy: Option<ZeroCopyCounts>,
    lost: Option<EarlyEnd>,
}

/// Measures messages of one size; connections publish progress in `slots`.
pub(super) fn measure(
    address: SocketAddr,
    size: u64,
    direction: TcpDirection,
    options: &TcpOptions,
    is_over: &AtomicBool,
    slots: Option<&ProgressSlots>,
) -> Result<TcpRowOutcome<TcpBandwidth>, TcpPathError> {
    let settings = &options.settings;
    let hello = hello(size as u32, direction, options);
    let sessions = (0..settings.connections).map(|_| TcpSession::open(address, &hello, is_over));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(sessions.len());
    let one = |index: usize, mut session: TcpSession<'_>| {
        start.wait();
        let teller = ProgressReporter::new(slots, index);
        match direction {
            TcpDirection::Forward => send(&mut session, size as usize, options, teller),
            TcpDirection::Backward => receive(&mut session, size as usize, options, teller),
        }
    };
    let outcomes: Vec<BandwidthConnectionOutcome> = thread::scope(|scope| {
        let one = &one;
        let spawned = |(index, session)| scope.spawn(move || one(index, session));
        let running: Vec<_> = sessions.into_iter().enumerate().map(spawned).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    Ok(summed(outcomes, size, direction))
}

fn hello(size: u32, direction: TcpDirection, options: &TcpOptions) -> Hello {
    let (work, request_bytes, head_bytes) = match direction {
        TcpDirection::Forward => (ConnectionJob::Sink, size, 0),
        TcpDirection::Backward => (ConnectionJob::Source, 0, size),
    };
    Hello {
        work,
        // A cork around a message would be removed at once by the next one. The receiver of a
        // stream that begins with a dialogue would acknowledge it as one: late, which makes Nagle's
        // algorithm send more and smaller segments.
        flags: ConnectionFlags { cork: false, settle: true, ..flags(&options.settings) },
        request_bytes,
        head_bytes,
        body_bytes: 0,
        batch: 1,
        time_ms: ms(options.time()),
        warm_up_ms: ms(options.warm_up()),
    }
}

fn summed(
    outcomes: Vec<BandwidthConnectionOutcome>,
    size: u64,
    direction: TcpDirection,
) -> TcpRowOutcome<TcpBandwidth> {
    let duration_ns = outcomes.iter().map(|outcome| outcome.duration_ns).max().unwrap_or(0);
    let received_bytes = outcomes.iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    // Connections do not end at the very same time, so each has its own rate.
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
    let figures = TcpBandwidth {
        size_bytes: size,
        direction,
        received_bytes,
        duration_ns,
        rate,
        message_rate: rate / size as f64,
        zero_copy,
        tcp: combined(&tcp),
    };
    TcpRowOutcome { figures, lost: outcomes.into_iter().find_map(|outcome| outcome.lost) }
}

fn send(
    session: &mut TcpSession<'_>,
    size: usize,
    options: &TcpOptions,
    teller: ProgressReporter<'_>,
) -> BandwidthConnectionOutcome {
    let mut outcome = BandwidthConnectionOutcome::default();
    let payload = vec![0; size];
    let counted_from = Instant::now() + options.warm_up();
    let meter = Meter { teller, counted_from, until: counted_from + options.time(), bytes: 0 };
    let sent = if options.settings.zero_copy {
        send_zero_copy(session, payload, meter, &mut outcome)
    } else {
        send_copies(session, &payload, meter)
    };
    outcome.tcp = tcp::info(&session.stream).ok().map(|info| figures(&info));
    let ended = sent.and_then(|()| session.finish());
    if let Ok(report) | Err(ConnectionLoss::Bound(_, report)) = &ended {
        outcome.bytes = report.bytes;
        outcome.duration_ns = report.duration_ns;
    }
    outcome.lost = ended.err().and_then(|lost| lost.loss());
    outcome
}

/// Meter of a sending connection: its end time, and the bytes written so far for the live view. The
/// result uses the bytes that the far end received.
struct Meter<'a> {
    teller: ProgressReporter<'a>,
    counted_from: Instant,
    until: Instant,
    bytes: u64,
}

impl Meter<'_> {
    /// Returns true to go on, after another `sent` bytes.
    fn goes_on(&mut self, sent: usize) -> bool {
        let now = Instant::now();
        if now > self.counted_from {
            self.bytes += sent as u64;
        }
        self.teller.bytes(now, self.bytes);
        now < self.until
    }
}

fn send_copies(
    session: &mut TcpSession<'_>,
    payload: &[u8],
    mut meter: Meter<'_>,
) -> Result<(), ConnectionLoss> {
    let mut sent = 0;
    while meter.goes_on(sent) && !session.is_over() {
        session.write(payload)?;
        sent = payload.len();
    }
    Ok(())
}

fn send_zero_copy(
    session: &TcpSession<'_>,
    payload: Vec<u8>,
    mut meter: Meter<'_>,
    outcome: &mut BandwidthConnectionOutcome,
) -> Result<(), ConnectionLoss> {
    let size = payload.len();
    let mut sender = ZeroCopySender::new(&session.stream, payload.into_boxed_slice())?;
    let mut since = None;
    let (mut from, mut last) = (0, 0);
    while meter.goes_on(std::mem::take(&mut last)) && !session.is_over() {
        match sender.send(from) {
            Ok(sent) => {
                last = sent;
                from = if from + sent == size { 0 } else { from + sent };
                since = None;
            }
            Err(error) => session.tick(error, &mut since)?,
        }
    }
    sender.finish()?;
    let (sends, copied) = sender.completions();
    outcome.zero_copy = Some(ZeroCopyCounts { sends: sends.into(), copied: copied.into() });
    Ok(())
}

fn receive(
    session: &mut TcpSession<'_>,
    size: usize,
    options: &TcpOptions,
    teller: ProgressReporter<'_>,
) -> BandwidthConnectionOutcome {
    let mut outcome = BandwidthConnectionOutcome::default();
    let ended = take_all(session, size, options, &mut outcome, teller);
    if let Ok(report) | Err(ConnectionLoss::Bound(_, report)) = &ended {
        outcome.tcp = Some(report.tcp);
    }
    outcome.lost = ended.err().and_then(|lost| lost.loss());
    outcome
}

/// Reads to the end of the stream; the last bytes are the far end's report.
fn take_all(
    session: &mut TcpSession<'_>,
    size: usize,
    options: &TcpOptions,
    outcome: &mut BandwidthConnectionOutcome,
    mut teller: ProgressReporter<'_>,
) -> Result<Box<FarEndReport>, ConnectionLoss> {
    let mut buffer = vec![0; size.min(ROOM)];
    let mut tail = [0; REPORT_LEN];
    let mut counted_from = None;
    let mut last = Instant::now();
    loop {
        if options.settings.quick_ack {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        let received = session.read_some(&mut buffer)?;
        if received == 0 {
            break;
        }
        if session.is_over() {
            return Err(ConnectionLoss::Ended);
        }
        keep_tail(&mut tail, &buffer[..received]);
        last = Instant::now();
        if last > *counted_from.get_or_insert(last + options.warm_up()) {
            outcome.bytes += received as u64;
        }
        teller.bytes(last, outcome.bytes);
    }
    outcome.bytes = outcome.bytes.saturating_sub(REPORT_LEN as u64);
    let begun = counted_from.unwrap_or(last);
    outcome.duration_ns = ns(last.saturating_duration_since(begun));
    let gone = || ConnectionLoss::Gone(std::io::ErrorKind::UnexpectedEof.into());
    FarEndReport::parse(&tail).ok_or_else(gone)?.whole()
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
        let row = summed(outcomes, 100, TcpDirection::Forward).figures;
        assert_eq!((row.received_bytes, row.duration_ns), (2_000, 1_000_000_000));
        assert!((row.rate - 3_000.0).abs() < 1e-6 && (row.message_rate - 30.0).abs() < 1e-9);
    }
}
