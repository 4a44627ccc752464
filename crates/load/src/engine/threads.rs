//! Runs one trial on all lanes at once, a thread for each, and adds up what they counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, mem, thread};

use horolog_record::Telling;
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::EngineError;
use super::drain::LEAD;
use super::intervals::{self, Gathering, Intervals};
use super::lane::{LaneTrial, Port};
use super::so_far::{self, Looking};
use crate::account::{Account, AccountPlan, Carried};
use crate::offset::OffsetPlan;
use crate::plan::{RunPlan, TrialPlan};
use crate::schedule::Schedule;
use crate::tail::{Added, Tail};

/// A port, and what is known of the requests that have gone through it.
pub(crate) struct Lane<P> {
    pub(crate) port: P,
    carried: Carried,
}

impl<P> Lane<P> {
    /// A lane that has sent nothing; `tail` follows its requests' headers.
    pub(crate) fn new(port: P, tail: Option<Tail>) -> Self {
        Self { port, carried: Carried { tail: tail.map(Box::new), ..Carried::default() } }
    }
}

/// What follows the headers of a lane's requests, where anything does.
pub(crate) fn tail(plan: &RunPlan, lane: usize) -> Result<Option<Tail>, EngineError> {
    Ok(match &plan.sessions {
        Some(sessions) => Some(Tail::Nts(sessions.lane(plan.version, (lane, plan.lanes))?)),
        None if plan.additions.is_empty() => None,
        None => Some(Tail::Added(Added::new(&plan.additions, plan.version))),
    })
}

/// Runs one trial on `lanes`; each client has `run` requests in a row, and offsets are taken as
/// `offset` says.
pub(crate) fn run<P: Port>(
    lanes: &mut [Lane<P>],
    plan: &RunPlan,
    trial: &TrialPlan,
    run: u32,
    offset: Option<OffsetPlan>,
    intervals: &mut dyn Intervals,
) -> Result<(), EngineError> {
    let stop = &AtomicBool::new(false);
    let interval = trial.interval();
    let timeout = Span::from_ns(plan.reply_timeout.as_nanos() as i64);
    let count = lanes.len();
    let mut opened = Vec::with_capacity(count);
    for (index, lane) in lanes.iter_mut().enumerate() {
        let account = AccountPlan {
            expected: plan.expected(),
            clients: plan.lane_clients(trial.clients, (index, count), run),
            start: MonotonicClock.now(),
            timeout,
            rate: trial.rate / count as f64,
            offset,
            ptp: plan.expected_ptp(trial.clients, (index, count)),
            interval,
            fairness: plan.fairness,
        };
        opened.push((Account::open(&account, mem::take(&mut lane.carried))?, lane));
    }
    let realtime_ahead = realtime_minus_monotonic().offset;
    // Books for many requests take longer than the lead.
    let start = MonotonicClock.now() + LEAD;
    let slots = &so_far::wanted(count, intervals);
    let mut tasks = Vec::with_capacity(count);
    for (index, (mut account, lane)) in opened.into_iter().enumerate() {
        account.begin_at(start);
        let schedule = schedule(plan, trial, start, (index, count))?;
        let task = LaneTrial {
            port: &mut lane.port,
            clock: &MonotonicClock,
            account,
            schedule,
            end: start + Span::from_ns(trial.duration.as_nanos() as i64),
            timeout,
            realtime_ahead,
            interval: interval.map(|interval| (start + interval, interval)),
            stop,
            telling: slots
                .as_ref()
                .and_then(|all| all.of(index))
                .map(|own| Telling::new(own, start)),
        };
        tasks.push((task, plan.core(index), &mut lane.carried));
    }
    let looks = (intervals::look(trial), slots.as_ref().map(Looking::new));
    on_threads(tasks, (start, stop), looks, intervals)
        .map_err(EngineError::system("send and receive"))
}

fn schedule(
    plan: &RunPlan,
    trial: &TrialPlan,
    start: Timestamp<Monotonic>,
    lane: (usize, usize),
) -> Result<Schedule, EngineError> {
    // Another seed for each trial, from what both already have.
    let seed = plan.token.key() ^ start.as_ns() as u64;
    match &trial.course {
        None => Schedule::new(start, trial.rate, trial.duration, trial.spacing, lane, seed),
        Some(course) => Schedule::on_course(start, course, trial.spacing, lane, seed),
    }
    .ok_or(EngineError::Rate { rate: trial.rate, duration_s: trial.duration.as_secs_f64() })
}

type Task<'a, P> = (LaneTrial<'a, P, MonotonicClock>, Option<usize>, &'a mut Carried);

fn on_threads<P: Port>(
    tasks: Vec<Task<'_, P>>,
    begun: (Timestamp<Monotonic>, &AtomicBool),
    looks: (Duration, Option<Looking<'_>>),
    intervals: &mut dyn Intervals,
) -> io::Result<()> {
    let gathering = Gathering::new(tasks.len());
    let (sender, books) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .into_iter()
            .map(|(task, core, carried)| {
                let sender = sender.clone();
                scope.spawn(move || {
                    // A lane works all the same where these are refused, only less evenly; the
                    // lateness that it records shows it.
                    let _ = affinity::set_timer_slack_ns(1);
                    let _ = core.map(affinity::pin_to_core);
                    // Whoever takes the books outlives the lanes.
                    let ran = task.run(&mut |book| drop(sender.send(book)));
                    if ran.is_err() {
                        // Without it the others are not what was asked for.
                        begun.1.store(true, Ordering::Relaxed);
                    }
                    *carried = ran?;
                    Ok(())
                })
            })
            .collect();
        drop(sender);
        gathering.gather(&books, begun, looks, intervals);
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
