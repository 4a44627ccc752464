//! Run of one pattern under one option: exchange by exchange, with a sample of the data held by the
//! socket whenever a read waits.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{HeldDataSamples, StallPattern, StallSocketOption, TcpInfoSummary};
use horolog_sys::tcp;

use super::plan::PatternPlan;
use crate::path::tcp::protocol::FarEndReport;
use crate::path::tcp::{
    ConnectionLoss, EarlyEnd, SETTLE, TcpPathError, TcpSession, count_held, figures, observe_wait,
};

/// Measured exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StallExchange {
    /// Time from the first write to the last byte read.
    pub(super) took: Duration,
    /// Read that waited longest, counted from 1.
    pub(super) longest_read: u32,
}

/// Outcome of a pattern.
#[derive(Debug, Default)]
pub(super) struct PatternOutcome {
    pub(super) exchanges: Vec<StallExchange>,
    /// Samples of the data held by this end's socket while it waited.
    pub(super) held: HeldDataSamples,
    pub(super) near: Option<TcpInfoSummary>,
    pub(super) report: Option<FarEndReport>,
    /// Reason for which the far end was lost; [`ConnectionLoss::Ended`] is not one.
    pub(super) lost: Option<EarlyEnd>,
}

/// Runs a pattern.
pub(super) fn run(
    address: SocketAddr,
    plan: &PatternPlan,
    is_over: &AtomicBool,
) -> Result<PatternOutcome, TcpPathError> {
    let mut outcome = PatternOutcome::default();
    let connections = if plan.is_one_by_one() { plan.exchanges } else { 1 };
    for _ in 0..connections {
        let mut session = TcpSession::open(address, &plan.hello(), is_over)?;
        if plan.hello().flags.settle {
            thread::sleep(SETTLE);
        }
        let wait = session.stream.set_read_timeout(Some(observe_wait()));
        let ran = wait
            .map_err(ConnectionLoss::from)
            .and_then(|()| connection(&mut session, plan, &mut outcome));
        outcome.near = tcp::info(&session.stream).ok().map(|info| figures(&info)).or(outcome.near);
        match ran {
            Ok(report) => outcome.report = report.map(|report| *report).or(outcome.report),
            Err(lost) => {
                outcome.lost = lost.loss();
                break;
            }
        }
        if session.is_over() {
            break;
        }
    }
    Ok(outcome)
}

/// Runs all exchanges of a connection; returns the far end's report if there is one.
fn connection(
    session: &mut TcpSession<'_>,
    plan: &PatternPlan,
    outcome: &mut PatternOutcome,
) -> Result<Option<Box<FarEndReport>>, ConnectionLoss> {
    let sent = vec![0; plan.sent_bytes() as usize];
    let mut received = vec![0; plan.reads().1 as usize];
    let count = if plan.is_one_by_one() { 1 } else { plan.exchanges };
    for number in 1..=count {
        if session.is_over() {
            break;
        }
        let is_last = number == count && plan.pattern == StallPattern::LastWithEnd;
        let exchange = exchange(session, plan, (&sent, &mut received), is_last, &mut outcome.held)?;
        outcome.exchanges.push(exchange);
    }
    if plan.is_one_by_one() { Ok(None) } else { session.finish().map(Some) }
}

fn exchange(
    session: &mut TcpSession<'_>,
    plan: &PatternPlan,
    (sent, received): (&[u8], &mut [u8]),
    is_last: bool,
    samples: &mut HeldDataSamples,
) -> Result<StallExchange, ConnectionLoss> {
    let corked = plan.option == StallSocketOption::Cork && !plan.is_of_far_end();
    let begun = Instant::now();
    if corked {
        tcp::set_cork(&session.stream, true)?;
    }
    for _ in 0..plan.writes {
        session.write(sent)?;
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
        session.read_watching(received, |stream| {
            if let Ok(info) = tcp::info(stream) {
                count_held(&info, false, samples);
            }
        })?;
        let now = Instant::now();
        longest = longest.max((now - before, read));
        before = now;
    }
    Ok(StallExchange { took: before - begun, longest_read: longest.1 })
}
