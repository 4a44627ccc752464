//! Round trips of messages of one size, one at a time on each connection.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{Distribution, ProgressSlots, TcpInfoSummary, TcpLatency, TcpSettings};
use horolog_stats::Recorder;
use horolog_sys::tcp;

use super::client::TcpSession;
use super::early_end::{ConnectionLoss, EarlyEnd};
use super::error::TcpPathError;
use super::live::ProgressReporter;
use super::options::{TcpOptions, ms};
use super::protocol::{ConnectionFlags, ConnectionJob, Hello};
use super::row::{combined, figures};

/// Outcome of a row.
pub(super) struct TcpRowOutcome<T> {
    pub(super) figures: T,
    /// Reason for which it is incomplete.
    pub(super) lost: Option<EarlyEnd>,
}

/// Outcome of one connection.
struct LatencyConnectionOutcome {
    times: Recorder,
    tcp: Option<TcpInfoSummary>,
    lost: Option<EarlyEnd>,
}

pub(super) fn flags(settings: &TcpSettings) -> ConnectionFlags {
    ConnectionFlags {
        no_delay: settings.no_delay,
        quick_ack_each: settings.quick_ack,
        cork: settings.cork,
        ..ConnectionFlags::default()
    }
}

/// Measures messages of one size; connections publish progress in `slots`.
pub(super) fn measure(
    address: SocketAddr,
    size: u64,
    options: &TcpOptions,
    is_over: &AtomicBool,
    slots: Option<&ProgressSlots>,
) -> Result<TcpRowOutcome<TcpLatency>, TcpPathError> {
    let settings = &options.settings;
    let bytes = size as u32;
    let hello = Hello {
        work: ConnectionJob::Exchange,
        flags: flags(settings),
        request_bytes: bytes,
        head_bytes: bytes,
        body_bytes: 0,
        batch: 1,
        time_ms: ms(options.time()),
        warm_up_ms: ms(options.warm_up()),
    };
    let sessions = (0..settings.connections).map(|_| TcpSession::open(address, &hello, is_over));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(sessions.len());
    let outcomes: Vec<_> = thread::scope(|scope| {
        let start = &start;
        let one = |(index, session)| {
            scope.spawn(move || ping_pong(session, size as usize, options, (start, slots, index)))
        };
        let running: Vec<_> = sessions.into_iter().enumerate().map(one).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut times = Recorder::new();
    for outcome in &outcomes {
        times.merge(&outcome.times);
    }
    let tcp: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.tcp).collect();
    let figures = TcpLatency {
        size_bytes: size,
        round_trips: times.count(),
        rtt_ns: Distribution::from_recorder(&times),
        tcp: combined(&tcp),
    };
    Ok(TcpRowOutcome { figures, lost: outcomes.into_iter().find_map(|outcome| outcome.lost) })
}

fn ping_pong(
    mut session: TcpSession<'_>,
    size: usize,
    options: &TcpOptions,
    (start, slots, index): (&Barrier, Option<&ProgressSlots>, usize),
) -> LatencyConnectionOutcome {
    let mut times = Recorder::new();
    start.wait();
    let teller = ProgressReporter::new(slots, index);
    let outcome = exchanges(&mut session, size, options, &mut times, teller);
    let tcp = tcp::info(&session.stream).ok().map(|info| figures(&info));
    let ended = outcome.and_then(|()| session.finish());
    let lost = ended.err().and_then(|lost| lost.loss());
    LatencyConnectionOutcome { times, tcp, lost }
}

fn exchanges(
    session: &mut TcpSession<'_>,
    size: usize,
    options: &TcpOptions,
    times: &mut Recorder,
    mut teller: ProgressReporter<'_>,
) -> Result<(), ConnectionLoss> {
    let settings = &options.settings;
    let (out, mut back) = (vec![0; size], vec![0; size]);
    let counted_from = Instant::now() + options.warm_up();
    let until = counted_from + options.time();
    let mut begun = Instant::now();
    while begun < until && !session.is_over() {
        if settings.cork {
            tcp::set_cork(&session.stream, true)?;
        }
        session.write(&out)?;
        if settings.cork {
            tcp::set_cork(&session.stream, false)?;
        }
        if settings.quick_ack {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        session.read(&mut back)?;
        // One reading of the clock ends an exchange and begins the next.
        let ended = Instant::now();
        if begun >= counted_from {
            times.record(ns(ended - begun));
        }
        // The time of publishing is not part of an exchange.
        begun = if teller.round_trips(ended, times) { Instant::now() } else { ended };
    }
    Ok(())
}

pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns true if the run is to end, for loops without a session.
pub(super) fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
