//! Runs one trial on all lanes at once, a thread for each, and adds up their counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, mem, thread};

use horolog_record::ProgressPublisher;
use horolog_sys::affinity;
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::EngineError;
use super::drain::START_DELAY;
use super::intervals::{self, IntervalMerger, IntervalSink, ProgressForwarder};
use super::lane::{LaneDevice, LaneTrial};
use crate::offset::ServerOffsetParameters;
use crate::plan::{RunPlan, TrialPlan};
use crate::request_tracker::{LaneCarryOver, RequestTracker, TrackerConfig};
use crate::schedule::LaneSchedule;
use crate::trailer::RequestTrailer;

/// Device of a lane, and the state that it carries over between trials.
pub(crate) struct DeviceWithCarryOver<P> {
    pub(crate) device: P,
    carried: LaneCarryOver,
}

impl<P> DeviceWithCarryOver<P> {
    /// Returns a lane that has sent nothing; `trailer` is that of its requests.
    pub(crate) fn new(port: P, trailer: Option<RequestTrailer>) -> Self {
        Self {
            device: port,
            carried: LaneCarryOver { trailer: trailer.map(Box::new), ..LaneCarryOver::default() },
        }
    }
}

/// Runs one trial on `lanes`. Each client sends `consecutive_requests` requests in a row; offsets
/// are measured according to `offset`.
pub(crate) fn run<P: LaneDevice>(
    lanes: &mut [DeviceWithCarryOver<P>],
    plan: &RunPlan,
    trial: &TrialPlan,
    consecutive_requests: u32,
    offset: Option<ServerOffsetParameters>,
    intervals: &mut dyn IntervalSink,
) -> Result<(), EngineError> {
    let stop = &AtomicBool::new(false);
    let interval = trial.interval();
    let timeout = plan.reply_timeout;
    let (behaviour, count) = (plan.requests.behaviour(), lanes.len());
    let mut opened = Vec::with_capacity(count);
    for (index, lane) in lanes.iter_mut().enumerate() {
        let config = TrackerConfig {
            expected: behaviour.expected_replies(plan, trial.clients, (index, count)),
            clients: plan.lane_clients(trial.clients, (index, count), consecutive_requests),
            start: ClockMonotonic.now(),
            timeout,
            rate: trial.rate / count as f64,
            offset,
            interval,
            fairness: plan.fairness,
        };
        opened.push((RequestTracker::open(&config, mem::take(&mut lane.carried))?, lane));
    }
    let realtime_ahead = realtime_minus_monotonic().offset;
    // The tracker is allocated before the start is set, because allocation can take longer than the
    // start delay.
    let start = ClockMonotonic.now() + START_DELAY;
    let slots = &super::intervals::slots_if_wanted(count, intervals);
    let mut tasks = Vec::with_capacity(count);
    for (index, (mut tracker, lane)) in opened.into_iter().enumerate() {
        tracker.set_start(start);
        let schedule = schedule(plan, trial, start, (index, count))?;
        let task = LaneTrial {
            device: &mut lane.device,
            clock: &ClockMonotonic,
            tracker,
            schedule,
            end: start + Span::from_ns(trial.duration.as_nanos() as i64),
            timeout,
            realtime_ahead,
            interval: interval.map(|interval| (start + interval, interval)),
            stop,
            publisher: slots
                .as_ref()
                .and_then(|all| all.slot(index))
                .map(|own| ProgressPublisher::new(own, start)),
        };
        tasks.push((task, plan.core(index), &mut lane.carried));
    }
    let observation =
        (intervals::check_interval(trial), slots.as_ref().map(ProgressForwarder::new));
    run_on_threads(tasks, (start, stop), observation, intervals)
        .map_err(EngineError::system("send and receive"))
}

fn schedule(
    plan: &RunPlan,
    trial: &TrialPlan,
    start: Timestamp<Monotonic>,
    lane: (usize, usize),
) -> Result<LaneSchedule, EngineError> {
    // The run's key and the start time give each trial another seed.
    let seed = plan.token.key() ^ start.as_ns() as u64;
    match &trial.profile {
        None => LaneSchedule::new(start, trial.rate, trial.duration, trial.spacing, lane, seed),
        Some(profile) => LaneSchedule::with_profile(start, profile, trial.spacing, lane, seed),
    }
    .ok_or(EngineError::Rate { rate: trial.rate, duration_s: trial.duration.as_secs_f64() })
}

type LaneThreadInputs<'a, P> =
    (LaneTrial<'a, P, ClockMonotonic>, Option<usize>, &'a mut LaneCarryOver);

fn run_on_threads<P: LaneDevice>(
    tasks: Vec<LaneThreadInputs<'_, P>>,
    start_and_stop: (Timestamp<Monotonic>, &AtomicBool),
    observation: (Duration, Option<ProgressForwarder<'_>>),
    intervals: &mut dyn IntervalSink,
) -> io::Result<()> {
    let merger = IntervalMerger::new(tasks.len());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .into_iter()
            .map(|(task, core, carried)| {
                let sender = sender.clone();
                scope.spawn(move || {
                    // Errors are ignored: the lane still works, with a higher send lateness, which
                    // is recorded.
                    let _ = affinity::set_timer_slack_ns(1);
                    let _ = core.map(affinity::pin_to_core);
                    // The receiver of the counts outlives the lanes.
                    let result =
                        task.run(&mut |closed_interval| drop(sender.send(closed_interval)));
                    if result.is_err() {
                        // Without this lane the others are not the requested load.
                        start_and_stop.1.store(true, Ordering::Relaxed);
                    }
                    *carried = result?;
                    Ok(())
                })
            })
            .collect();
        drop(sender);
        merger.merge_until_end(&receiver, start_and_stop, observation, intervals);
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
