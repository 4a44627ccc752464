//! Runs one pattern under one option: exchange by exchange, with a look at what the socket holds
//! back whenever a read waits.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{HeldSamples, SocketOption, StallPattern, TcpFigures};
use horolog_sys::tcp;

use super::plan::Plan;
use crate::path::tcp::protocol::Report;
use crate::path::tcp::{Loss, Lost, PathError, SETTLE, Session, figures, held, observe_wait};

/// One exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exchange {
    /// From the first write to the last byte read.
    pub(super) took: Duration,
    /// The read that waited longest, counted from 1.
    pub(super) longest_read: u32,
}

/// What a pattern came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) exchanges: Vec<Exchange>,
    /// What this end's socket held back while it waited.
    pub(super) held: HeldSamples,
    pub(super) near: Option<TcpFigures>,
    pub(super) report: Option<Report>,
    /// Why the far end was lost; [`Lost::Ended`] is none of its.
    pub(super) lost: Option<Loss>,
}

/// Runs a pattern.
pub(super) fn run(
    address: SocketAddr,
    plan: &Plan,
    is_over: &AtomicBool,
) -> Result<Outcome, PathError> {
    let mut outcome = Outcome::default();
    let connections = if plan.is_one_by_one() { plan.exchanges } else { 1 };
    for _ in 0..connections {
        let mut session = Session::open(address, &plan.hello(), is_over)?;
        if plan.hello().flags.settle {
            thread::sleep(SETTLE);
        }
        let wait = session.stream.set_read_timeout(Some(observe_wait()));
        let ran =
            wait.map_err(Lost::from).and_then(|()| connection(&mut session, plan, &mut outcome));
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

/// All exchanges of a connection, and the far end's report where it gives one.
fn connection(
    session: &mut Session<'_>,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<Option<Box<Report>>, Lost> {
    let sent = vec![0; plan.sent_bytes() as usize];
    let mut came = vec![0; plan.reads().1 as usize];
    let count = if plan.is_one_by_one() { 1 } else { plan.exchanges };
    for place in 1..=count {
        if session.is_over() {
            break;
        }
        let is_last = place == count && plan.pattern == StallPattern::LastWithEnd;
        let exchange = exchange(session, plan, (&sent, &mut came), is_last, &mut outcome.held)?;
        outcome.exchanges.push(exchange);
    }
    if plan.is_one_by_one() { Ok(None) } else { session.finish().map(Some) }
}

fn exchange(
    session: &mut Session<'_>,
    plan: &Plan,
    (sent, came): (&[u8], &mut [u8]),
    is_last: bool,
    samples: &mut HeldSamples,
) -> Result<Exchange, Lost> {
    let corked = plan.option == SocketOption::Cork && !plan.is_of_far_end();
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
        if plan.option == SocketOption::QuickAckEach {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        session.read_watching(came, |stream| {
            if let Ok(info) = tcp::info(stream) {
                held(&info, false, samples);
            }
        })?;
        let now = Instant::now();
        longest = longest.max((now - before, read));
        before = now;
    }
    Ok(Exchange { took: before - begun, longest_read: longest.1 })
}
