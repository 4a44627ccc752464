//! TCP latency: round trips of messages of one size, one at a time on each connection.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{Distribution, ProgressSlots, TcpInfoSummary, TcpLatencyRow, TcpSettings};
use horolog_stats::Histogram;
use horolog_sys::tcp;

use super::client::TcpNearEndSession;
use super::early_end::{ConnectionEndReason, MeasurementEarlyEndReason};
use super::error::TcpPathError;
use super::live::ConnectionProgressPublisher;
use super::options::{PathTcpOptions, ceil_ms};
use super::protocol::{ConnectionFlags, ConnectionJob, TcpHello};
use super::row::{combined_tcp_info, tcp_info_summary};

/// Values of a row, and why it is incomplete, if it is.
pub(super) struct TcpRowOutcome<T> {
    pub(super) figures: T,
    /// Reason why the row is incomplete.
    pub(super) early_end: Option<MeasurementEarlyEndReason>,
}

/// Outcome of one connection of a latency row.
struct LatencyConnectionOutcome {
    times: Histogram,
    tcp: Option<TcpInfoSummary>,
    early_end: Option<MeasurementEarlyEndReason>,
}

pub(super) fn connection_flags(settings: &TcpSettings) -> ConnectionFlags {
    ConnectionFlags {
        no_delay: settings.no_delay,
        quick_ack_each: settings.quick_ack,
        cork: settings.cork,
        ..ConnectionFlags::default()
    }
}

/// Measures one row: round trips of one message size, over all connections, which publish progress
/// in `slots`.
pub(super) fn measure_latency(
    address: SocketAddr,
    size: u64,
    options: &PathTcpOptions,
    is_over: &AtomicBool,
    slots: Option<&ProgressSlots>,
) -> Result<TcpRowOutcome<TcpLatencyRow>, TcpPathError> {
    let settings = &options.settings;
    let bytes = size as u32;
    let hello = TcpHello {
        job: ConnectionJob::Exchange,
        flags: connection_flags(settings),
        request_bytes: bytes,
        head_bytes: bytes,
        body_bytes: 0,
        batch: 1,
        time_ms: ceil_ms(options.time()),
        warm_up_ms: ceil_ms(options.warm_up()),
    };
    let sessions =
        (0..settings.connections).map(|_| TcpNearEndSession::open(address, &hello, is_over));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(sessions.len());
    let outcomes: Vec<_> = thread::scope(|scope| {
        let start = &start;
        let start_connection = |(index, session)| {
            scope.spawn(move || {
                measure_connection(session, size as usize, options, (start, slots, index))
            })
        };
        let running: Vec<_> = sessions.into_iter().enumerate().map(start_connection).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut times = Histogram::new();
    for outcome in &outcomes {
        times.merge(&outcome.times);
    }
    let tcp: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.tcp).collect();
    let figures = TcpLatencyRow {
        size_bytes: size,
        round_trips: times.count(),
        rtt_ns: Distribution::from_histogram(&times),
        tcp: combined_tcp_info(&tcp),
    };
    Ok(TcpRowOutcome {
        figures,
        early_end: outcomes.into_iter().find_map(|outcome| outcome.early_end),
    })
}

fn measure_connection(
    mut session: TcpNearEndSession<'_>,
    size: usize,
    options: &PathTcpOptions,
    (start, slots, index): (&Barrier, Option<&ProgressSlots>, usize),
) -> LatencyConnectionOutcome {
    let mut times = Histogram::new();
    start.wait();
    let reporter = ConnectionProgressPublisher::new(slots, index);
    let outcome = run_exchanges(&mut session, size, options, &mut times, reporter);
    let tcp = tcp::info(&session.stream).ok().map(|info| tcp_info_summary(&info));
    let ended = outcome.and_then(|()| session.finish_and_read_report());
    let lost = ended.err().and_then(|lost| lost.early_end());
    LatencyConnectionOutcome { times, tcp, early_end: lost }
}

fn run_exchanges(
    session: &mut TcpNearEndSession<'_>,
    size: usize,
    options: &PathTcpOptions,
    times: &mut Histogram,
    mut reporter: ConnectionProgressPublisher<'_>,
) -> Result<(), ConnectionEndReason> {
    let settings = &options.settings;
    let (request, mut reply_buffer) = (vec![0; size], vec![0; size]);
    let measure_from = Instant::now() + options.warm_up();
    let until = measure_from + options.time();
    let mut begun = Instant::now();
    while begun < until && !session.is_over() {
        if settings.cork {
            tcp::set_cork(&session.stream, true)?;
        }
        session.write_all(&request)?;
        if settings.cork {
            tcp::set_cork(&session.stream, false)?;
        }
        if settings.quick_ack {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        session.read_reply(&mut reply_buffer)?;
        // One clock reading ends an exchange and begins the next.
        let ended = Instant::now();
        if begun >= measure_from {
            times.record(saturating_ns(ended - begun));
        }
        // Read again after publishing, which is not part of an exchange.
        begun = if reporter.publish_round_trips(ended, times) { Instant::now() } else { ended };
    }
    Ok(())
}

pub(super) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns true if the run is to end, for loops without a session.
pub(super) fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
