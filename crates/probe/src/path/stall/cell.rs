//! Execution of one write pattern with one socket option. Whenever a read waits, the data held back
//! by the socket is sampled.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{HeldDataSampleCounts, StallSocketOption, TcpInfoSummary, WritePattern};
use horolog_sys::tcp;

use super::plan::WritePatternPlan;
use crate::path::tcp::protocol::FarEndReport;
use crate::path::tcp::{
    ConnectionEndReason, MeasurementEarlyEndReason, TcpNearEndSession, TcpPathError, WELCOME_DELAY,
    add_held_sample, held_sample_delay, tcp_info_summary,
};

/// Measured exchange of a write pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WritePatternExchange {
    /// Time from the first write to the last byte read.
    pub(super) duration: Duration,
    /// Number of the read that waited longest, from 1.
    pub(super) longest_read: u32,
}

/// Outcome of a pattern.
#[derive(Debug, Default)]
pub(super) struct WritePatternOutcome {
    pub(super) exchanges: Vec<WritePatternExchange>,
    /// Samples of the data held back by this end's socket, taken while it waited.
    pub(super) held_samples: HeldDataSampleCounts,
    pub(super) near_tcp: Option<TcpInfoSummary>,
    pub(super) report: Option<FarEndReport>,
    /// Reason why the exchanges ended early; `None` if they did not, or if the run was to end.
    pub(super) early_end: Option<MeasurementEarlyEndReason>,
}

/// Runs the exchanges of a pattern, over one connection or over one each, until the run is to end
/// or the far end is lost.
pub(super) fn run_pattern(
    address: SocketAddr,
    plan: &WritePatternPlan,
    is_over: &AtomicBool,
) -> Result<WritePatternOutcome, TcpPathError> {
    let mut outcome = WritePatternOutcome::default();
    let connections = if plan.has_connection_per_exchange() { plan.exchanges } else { 1 };
    for _ in 0..connections {
        let mut session = TcpNearEndSession::open(address, &plan.hello(), is_over)?;
        if plan.hello().flags.delay_welcome {
            thread::sleep(WELCOME_DELAY);
        }
        let wait = session.stream.set_read_timeout(Some(held_sample_delay()));
        let ran = wait
            .map_err(ConnectionEndReason::from)
            .and_then(|()| run_connection(&mut session, plan, &mut outcome));
        outcome.near_tcp = tcp::info(&session.stream)
            .ok()
            .map(|info| tcp_info_summary(&info))
            .or(outcome.near_tcp);
        match ran {
            Ok(report) => outcome.report = report.map(|report| *report).or(outcome.report),
            Err(lost) => {
                outcome.early_end = lost.early_end();
                break;
            }
        }
        if session.is_over() {
            break;
        }
    }
    Ok(outcome)
}

/// Runs the exchanges of one connection; returns the far end's report, `None` if the far end closes
/// the connection itself.
fn run_connection(
    session: &mut TcpNearEndSession<'_>,
    plan: &WritePatternPlan,
    outcome: &mut WritePatternOutcome,
) -> Result<Option<Box<FarEndReport>>, ConnectionEndReason> {
    let sent = vec![0; plan.write_payload_bytes() as usize];
    let mut received = vec![0; plan.reads().1 as usize];
    let count = if plan.has_connection_per_exchange() { 1 } else { plan.exchanges };
    for number in 1..=count {
        if session.is_over() {
            break;
        }
        let is_last = number == count && plan.pattern == WritePattern::LastWithEnd;
        let exchange = run_exchange(
            session,
            plan,
            (&sent, &mut received),
            is_last,
            &mut outcome.held_samples,
        )?;
        outcome.exchanges.push(exchange);
    }
    if plan.has_connection_per_exchange() {
        Ok(None)
    } else {
        session.finish_and_read_report().map(Some)
    }
}

fn run_exchange(
    session: &mut TcpNearEndSession<'_>,
    plan: &WritePatternPlan,
    (sent, received): (&[u8], &mut [u8]),
    is_last: bool,
    samples: &mut HeldDataSampleCounts,
) -> Result<WritePatternExchange, ConnectionEndReason> {
    let corked = plan.option == StallSocketOption::Cork && !plan.has_far_end_writes();
    let begun = Instant::now();
    if corked {
        tcp::set_cork(&session.stream, true)?;
    }
    for _ in 0..plan.writes {
        session.write_all(sent)?;
    }
    if corked {
        tcp::set_cork(&session.stream, false)?;
    }
    if is_last {
        session.stream.shutdown(std::net::Shutdown::Write)?;
    }
    let mut before = begun;
    let mut longest = (Duration::ZERO, 1);
    for read in 1..=plan.reads().0 {
        if plan.option == StallSocketOption::QuickAckEach {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        session.read_reply_observed(received, |stream| {
            if let Ok(info) = tcp::info(stream) {
                add_held_sample(&info, false, samples);
            }
        })?;
        let now = Instant::now();
        longest = longest.max((now - before, read));
        before = now;
    }
    Ok(WritePatternExchange { duration: before - begun, longest_read: longest.1 })
}
