//! Runs one trial on all lanes at once, a thread for each, and adds up what they counted.

use std::thread;
use std::{io, mem};

use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::EngineError;
use super::drain::LEAD;
use super::lane::{LaneTrial, Port};
use crate::account::{Account, AccountPlan, Carried, TrialCounts};
use crate::nts::LaneSessions;
use crate::offset::OffsetPlan;
use crate::plan::{RunPlan, TrialPlan};
use crate::schedule::Schedule;

/// A port, and what is known of the requests that have gone through it.
pub(crate) struct Lane<P> {
    pub(crate) port: P,
    carried: Carried,
}

impl<P> Lane<P> {
    /// A lane that has sent nothing; `nts` is what its requests are authenticated with.
    pub(crate) fn new(port: P, nts: Option<LaneSessions>) -> Self {
        Self { port, carried: Carried { nts: nts.map(Box::new), ..Carried::default() } }
    }
}

/// What the requests of one more lane are authenticated with, where they are.
pub(crate) fn sessions(plan: &RunPlan) -> Result<Option<LaneSessions>, EngineError> {
    plan.sessions.as_ref().map(|sessions| Ok(sessions.lane(plan.version)?)).transpose()
}

/// Runs one trial on `lanes`; each client has `run` requests in a row, and offsets are taken as
/// `offset` says.
pub(crate) fn run<P: Port>(
    lanes: &mut [Lane<P>],
    plan: &RunPlan,
    trial: &TrialPlan,
    run: u32,
    offset: Option<OffsetPlan>,
) -> Result<TrialCounts, EngineError> {
    let realtime_ahead = realtime_minus_monotonic().offset;
    let start = MonotonicClock.now() + LEAD;
    let count = lanes.len();
    let mut tasks = Vec::with_capacity(count);
    for (index, lane) in lanes.iter_mut().enumerate() {
        let timeout = Span::from_ns(plan.reply_timeout.as_nanos() as i64);
        let account = AccountPlan {
            expected: plan.expected(),
            clients: plan.lane_clients(trial.clients, (index, count), run),
            start,
            timeout,
            rate: trial.rate / count as f64,
            offset,
            ptp: plan.expected_ptp(trial.clients, (index, count)),
        };
        let account = Account::open(&account, mem::take(&mut lane.carried))?;
        let schedule = schedule(plan, trial, start, (index, count))?;
        let end = start + Span::from_ns(trial.duration.as_nanos() as i64);
        let port = &mut lane.port;
        let clock = &MonotonicClock;
        let task = LaneTrial { port, clock, account, schedule, end, timeout, realtime_ahead };
        tasks.push((task, plan.core(index), &mut lane.carried));
    }
    let mut counts = TrialCounts::default();
    for result in on_threads(tasks) {
        counts.merge(&result.map_err(EngineError::system("send and receive"))?);
    }
    Ok(counts)
}

fn schedule(
    plan: &RunPlan,
    trial: &TrialPlan,
    start: Timestamp<Monotonic>,
    lane: (usize, usize),
) -> Result<Schedule, EngineError> {
    // Another seed for each trial, from what both already have.
    let seed = plan.token.key() ^ start.as_ns() as u64;
    Schedule::new(start, trial.rate, trial.duration, trial.spacing, lane, seed)
        .ok_or(EngineError::Rate { rate: trial.rate, duration_s: trial.duration.as_secs_f64() })
}

type Task<'a, P> = (LaneTrial<'a, P, MonotonicClock>, Option<usize>, &'a mut Carried);

fn on_threads<P: Port>(tasks: Vec<Task<'_, P>>) -> Vec<io::Result<TrialCounts>> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .into_iter()
            .map(|(task, core, carried)| {
                scope.spawn(move || {
                    // A lane works all the same where these are refused, only less evenly; the
                    // lateness that it records shows it.
                    let _ = affinity::set_timer_slack_ns(1);
                    let _ = core.map(affinity::pin_to_core);
                    let (counts, kept) = task.run()?;
                    *carried = kept;
                    Ok(counts)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
