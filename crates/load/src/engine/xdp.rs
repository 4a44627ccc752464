//! In-kernel engine: a BPF program builds, paces, matches and verifies requests; this file plans
//! and adds up. Requires Linux 5.18, the privilege to load BPF programs and an interface with
//! native XDP; each lane occupies one CPU while it sends.
//!
//! The program drops the replies that it has counted, so the network stack never receives them. The
//! server must route replies for simulated clients to an address of this host.

mod frames;
mod interval_reader;
mod rate_segments;
mod settings;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_record::{LoadEngineKind as Kind, Progress, Spacing};
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_sys::signal::InterruptibleThread;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_xdp::{Generator, LanePosition, TrialSettings, XdpError};

use self::interval_reader::IntervalReader;
use self::settings::settings;

use super::drain::{Drain, GRACE, START_DELAY};
use super::intervals::MixIntervals;
use super::membership::Membership;
use super::{EngineError, IntervalSink, LoadEngine, unfit};
use crate::clients::LaneClients;
use crate::load_profile::{LoadProfile, ProfileInstants};
use crate::outage::OutageDetector;
use crate::plan::{RunPlan, TrialPlan};
use crate::request_tracker::TrialCounts;
use crate::schedule::{self, FRACTION_BITS};

/// Rate above which another lane is added: a lane that also receives its replies keeps its schedule
/// well beyond it.
const LANE_RATE: f64 = 1e6;

/// Interval of the checks whether a lane has ended, and of the state of the trial.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Interval of the checks whether replies still arrive.
const DRAIN_PAUSE: Span = Span::from_ns(100_000);

/// Most requests of one lane in flight at the same time: the program has one bit for each of them.
const IN_FLIGHT_MAX: f64 = (1 << 24) as f64;

/// In-kernel engine, attached to its interface.
pub struct XdpEngine {
    /// One part, or the kinds of requests of a mix in their order. The first one's program is
    /// attached, and each passes frames that are not its own to the next.
    parts: Vec<XdpPart>,
}

/// One kind of requests.
struct XdpPart {
    generator: Generator,
    plan: RunPlan,
    /// Next sequence number of each lane.
    sequences: Vec<u32>,
    /// Sequence numbers that each lane has used, from 0 on.
    used_sequences: Vec<u32>,
    /// Keeps this host in the group that replies are sent to.
    _membership: Option<Membership>,
}

impl XdpEngine {
    /// Loads the program and attaches it to the interface of the plan's route.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let generator = Generator::attach(&settings(plan, false)?).map_err(refused)?;
        Ok(Self { parts: vec![XdpPart::new(plan, generator)?] })
    }

    /// Loads a program for each plan, at least one, and attaches them to the interface of their
    /// route.
    pub(crate) fn open_mix(plans: &[RunPlan]) -> Result<Self, EngineError> {
        let settings = plans.iter().map(|plan| settings(plan, true));
        let settings = settings.collect::<Result<Vec<_>, _>>()?;
        let generators = Generator::attach_chain(&settings).map_err(refused)?;
        let parts =
            plans.iter().zip(generators).map(|(plan, generator)| XdpPart::new(plan, generator));
        Ok(Self { parts: parts.collect::<Result<_, _>>()? })
    }
}

/// Returns this engine's error for a refused program; a different engine needs none.
fn refused(error: XdpError) -> EngineError {
    match error {
        XdpError::DeafPeer { .. } => unfit(Kind::Xdp, error.to_string(), "or use --engine packet"),
        XdpError::NoTransmit { .. } => unfit(Kind::Xdp, error.to_string(), "use --engine packet"),
        error => error.into(),
    }
}

impl XdpPart {
    fn new(plan: &RunPlan, generator: Generator) -> Result<Self, EngineError> {
        // The last cores first: the first one takes most interrupts and most pinned threads.
        let cores = plan.cores.iter().rev().copied().collect();
        let plan = RunPlan { cores, ..plan.clone() };
        let membership = Membership::of(&plan)?;
        let (sequences, used_sequences) = (vec![0; plan.lanes], vec![0; plan.lanes]);
        Ok(Self { generator, plan, sequences, used_sequences, _membership: membership })
    }

    /// Refuses a rate at which more requests could be in flight than can be distinguished.
    fn check(&self, trial: &TrialPlan, cores: &[usize]) -> Result<(), EngineError> {
        let in_flight = trial.rate * self.plan.reply_timeout.as_secs_f64();
        if in_flight <= IN_FLIGHT_MAX * cores.len() as f64 {
            return Ok(());
        }
        let reason = format!("up to {in_flight:.0} requests would await replies at the same time");
        Err(unfit(Kind::Xdp, reason, "choose a shorter reply timeout or a lower rate"))
    }

    /// Divides clients and schedule among the lanes; all begin at `start`.
    fn prepare(
        &self,
        trial: &TrialPlan,
        cores: &[usize],
        start: Timestamp<Monotonic>,
    ) -> Result<(), EngineError> {
        let lanes = cores.len();
        let rate_error =
            || EngineError::Rate { rate: trial.rate, duration_s: trial.duration.as_secs_f64() };
        let interval = schedule::interval(trial.rate, lanes).ok_or_else(rate_error)?;
        let end = u64::try_from(trial.duration.as_nanos())
            .ok()
            .and_then(|ns| ns.checked_mul(1 << FRACTION_BITS))
            .ok_or_else(rate_error)?;
        let random = self.plan.network.filter(|_| self.plan.random_sources);
        let give_up = start + Span::from_ns(trial.duration.as_nanos() as i64) + GRACE;
        for (number, &used) in (0..).zip(&self.used_sequences) {
            self.generator.set_sequences_before(number, used);
        }
        self.generator.set_trial(&TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_ahead_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: lanes as u32,
            clients_per_lane: trial.clients / lanes as u32,
            lanes_with_one_more: trial.clients % lanes as u32,
            random_addresses: random.map_or(0, |network| network.room()),
            exponential: trial.spacing == Spacing::Exponential,
            interval_ns: trial.interval().map_or(0, |interval| interval.as_ns() as u64),
            intervals: trial.profile.as_ref().map_or(0, |profile| profile.intervals()),
        });
        // Cleared after the new start is set, so that no reply to the last trial is counted in this
        // one.
        self.generator.clear();
        for (number, &core) in cores.iter().enumerate() {
            let mut lane = LanePosition {
                start_ns: start.as_ns() as u64,
                next: interval / lanes as u64 * number as u64,
                interval,
                end,
                give_up_ns: give_up.as_ns() as u64,
                number: number as u32,
                ..self.turn(self.plan.lane_clients(trial.clients, (number, lanes), 1), number)
            };
            if let Some(profile) = &trial.profile {
                self.set_profile(&mut lane, profile, lanes).ok_or_else(rate_error)?;
            }
            self.generator.set_lane(core as u32, &lane);
        }
        Ok(())
    }

    /// Sets a lane to the first rate segment of a profile; `None` if a rate is too low for a
    /// schedule.
    fn set_profile(
        &self,
        lane: &mut LanePosition,
        profile: &LoadProfile,
        lanes: usize,
    ) -> Option<()> {
        let legs = rate_segments::rate_segments(profile, (lane.number as usize, lanes))?;
        let first = legs.first()?;
        lane.next = first.first;
        lane.interval = first.interval;
        lane.segment_end = first.end;
        lane.phase_over_ns = lane.start_ns + first.phase_over_ns;
        lane.segments = legs.len() as u32;
        self.generator.set_rate_segments(lane.number, &legs);
        Some(())
    }

    /// Returns a lane that continues with its clients.
    fn turn(&self, clients: LaneClients, number: usize) -> LanePosition {
        let wrap = clients.wrap();
        // A lane begins with a fresh 64-bit word in the bitmap of answered requests.
        let sequence = match self.sequences[number].next_multiple_of(64) {
            sequence if sequence < wrap => sequence,
            _ => 0,
        };
        LanePosition {
            sequence,
            sequence_end: wrap,
            client: sequence % clients.count(),
            clients: clients.count(),
            client_base: clients.first(),
            active: 1,
            ..LanePosition::default()
        }
    }

    /// Checks the state of this part of the trial: whether replies arrive, and whether an interval
    /// is over.
    fn check_trial(
        &self,
        cores: &[usize],
        trial: &mut RunningTrialPart<'_>,
        intervals: &mut dyn IntervalSink,
    ) {
        let now = MonotonicClock.now();
        let (answered, longest) = trial.interval_reader.answered(now - trial.start);
        if answered > trial.answered {
            // The replies that have just arrived belong to requests of at most one round trip ago.
            trial.listener.answered(now - longest, self.sent(cores));
            trial.answered = answered;
        }
        let incomplete = trial.interval_reader.incomplete(now - trial.start);
        if incomplete > trial.incomplete {
            trial.listener.record_invalid(now, timeout(&self.plan), self.sent(cores));
            trial.incomplete = incomplete;
        }
        if trial.profile.is_some() {
            trial.interval_reader.poll(now - trial.start, intervals);
        }
    }

    /// Ends the schedules of its lanes.
    fn end(&self, cores: &[usize]) {
        for &core in cores {
            self.generator.end_lane(core as u32);
        }
    }

    /// Returns the requests sent in this trial.
    fn sent(&self, cores: &[usize]) -> u64 {
        cores.iter().map(|&core| self.generator.lane(core as u32).sent).sum()
    }

    /// Waits for the last replies.
    fn drain(&self, sent: u64, trial: &RunningTrialPart<'_>) {
        let last_sent = MonotonicClock.now();
        let mut drain = Drain { last_sent, last_reply: last_sent, timeout: timeout(&self.plan) };
        let (mut answered, mut longest) = trial.interval_reader.answered(last_sent - trial.start);
        while answered < sent {
            let now = MonotonicClock.now();
            if drain.is_over(now, (longest > Span::ZERO).then_some(longest)) {
                break;
            }
            sleep_until(now + DRAIN_PAUSE);
            let before = answered;
            (answered, longest) = trial.interval_reader.answered(now - trial.start);
            if answered > before {
                drain.last_reply = MonotonicClock.now();
            }
        }
    }

    /// Returns the requests that the lanes had planned and not sent when they ended.
    fn left(&self, cores: &[usize], trial: &RunningTrialPart<'_>) -> u64 {
        let left = |lane: &LanePosition| match trial.profile {
            _ if lane.next >= lane.end => 0,
            None => (lane.end - lane.next).div_ceil(lane.interval.max(1)),
            Some(profile) => ProfileInstants::new(profile, cores.len()).left(lane.next),
        };
        cores.iter().map(|&core| left(&self.generator.lane(core as u32))).sum()
    }

    /// Returns the lanes' counts of a trial that belong to no interval: for one rate also the send
    /// times of the first and last request.
    fn trial_counts(&self, cores: &[usize], trial: &RunningTrialPart<'_>) -> TrialCounts {
        let planned = self.left(cores, trial);
        let mut counts = TrialCounts { planned, ..TrialCounts::default() };
        counts.clients = interval_reader::clients(&self.generator);
        if trial.profile.is_some() {
            return counts;
        }
        for lane in cores.iter().map(|&core| self.generator.lane(core as u32)) {
            let instant = |ns: u64| (lane.sent > 0).then(|| Timestamp::from_ns(ns as i64));
            counts.merge(&TrialCounts {
                planned: lane.sent,
                first_sent: instant(lane.first_sent_ns),
                last_sent: instant(lane.last_sent_ns),
                ..TrialCounts::default()
            });
        }
        counts
    }

    /// Returns the send time of the last request; the start if none was sent.
    fn last_sent(&self, cores: &[usize], start: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let last = cores.iter().map(|&core| self.generator.lane(core as u32).last_sent_ns).max();
        start.max(Timestamp::from_ns(last.unwrap_or(0) as i64))
    }

    /// Ends this part of a trial, early if `is_ended`: waits for the last replies and delivers the
    /// open intervals.
    fn finish(
        &self,
        cores: &[usize],
        trial: RunningTrialPart<'_>,
        is_ended: bool,
        intervals: &mut dyn IntervalSink,
    ) {
        let sent = self.sent(cores);
        self.drain(sent, &trial);
        let mut counts = self.trial_counts(cores, &trial);
        let last_sent = self.last_sent(cores, trial.start);
        counts.outages = Some(trial.listener.close(last_sent, sent));
        let reached = if is_ended { last_sent - trial.start } else { trial.duration };
        trial.interval_reader.finish(reached, &counts, intervals);
    }

    /// Stores the positions at which the lanes continue in the next trial.
    fn note_lanes(&mut self, cores: &[usize]) {
        for (number, &core) in cores.iter().enumerate() {
            let LanePosition { sequence, sent, .. } = self.generator.lane(core as u32);
            let has_wrapped = sent > u64::from(sequence);
            self.used_sequences[number] =
                if has_wrapped { u32::MAX } else { self.used_sequences[number].max(sequence) };
            self.sequences[number] = sequence;
        }
    }
}

impl XdpEngine {
    /// Returns the cores of a trial's lanes, of which every part has one on each: as many as the
    /// total rate requires, so that the others are left to a server on the same host.
    fn cores(&self, trial: &TrialPlan) -> Vec<usize> {
        let Some(first) = self.parts.first() else { return Vec::new() };
        let most = self.parts.iter().map(|part| part.plan.lanes).min().unwrap_or(1);
        let in_flight = trial.rate * first.plan.reply_timeout.as_secs_f64();
        let lanes = (trial.rate / LANE_RATE).max(in_flight / IN_FLIGHT_MAX).ceil() as usize;
        first.plan.cores[..lanes.clamp(1, most)].to_vec()
    }

    /// Sends on all cores at once until the schedules of all lanes have ended; returns true if they
    /// were ended early.
    fn send(
        &self,
        cores: &[usize],
        batch: u32,
        trials: &mut [RunningTrialPart<'_>],
        shares: &mut MixIntervals<'_>,
    ) -> Result<bool, EngineError> {
        let generators: Vec<_> = self.parts.iter().map(|part| &part.generator).collect();
        let (generators, mut is_ended) = (&*generators, false);
        thread::scope(|scope| {
            let senders: Vec<_> = cores
                .iter()
                .map(|&core| {
                    let (handle, thread) = mpsc::channel();
                    let sender = SenderThread { generators, core, batch };
                    (scope.spawn(move || sender.run(&handle)), thread, core)
                })
                .collect();
            for (task, thread, core) in &senders {
                let Ok(thread) = thread.recv() else { continue };
                while !is_done(generators, *core) && !task.is_finished() {
                    thread::sleep(CHECK_INTERVAL);
                    is_ended |= self.check_parts(cores, trials, shares);
                }
                // The signal may arrive while the thread is between two calls: repeat it.
                while !task.is_finished() {
                    thread.interrupt().map_err(EngineError::system("end a sending thread"))?;
                    thread::sleep(CHECK_INTERVAL);
                }
            }
            senders.into_iter().try_for_each(|(task, ..)| {
                task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        Ok(is_ended)
    }

    /// Returns true if a trial must not continue, after checking its state and ending it.
    fn check_parts(
        &self,
        cores: &[usize],
        trials: &mut [RunningTrialPart<'_>],
        shares: &mut MixIntervals<'_>,
    ) -> bool {
        for (index, (part, trial)) in self.parts.iter().zip(&mut *trials).enumerate() {
            part.check_trial(cores, trial, &mut shares.part(index));
        }
        let elapsed = trials.first().map_or(Span::ZERO, |trial| MonotonicClock.now() - trial.start);
        if shares.is_snapshot_due(elapsed) {
            let mut so_far = Progress::default();
            for trial in &*trials {
                trial.interval_reader.so_far(elapsed, &mut so_far);
            }
            shares.report_progress(elapsed, &so_far);
        }
        let is_over = shares.tick(elapsed).is_break();
        if is_over {
            self.parts.iter().for_each(|part| part.end(cores));
        }
        is_over
    }
}

/// Returns true if the lanes of all parts on a core have ended.
fn is_done(generators: &[&Generator], core: usize) -> bool {
    generators.iter().all(|generator| generator.lane(core as u32).done != 0)
}

impl LoadEngine for XdpEngine {
    fn kind(&self) -> Kind {
        Kind::Xdp
    }

    fn run(
        &mut self,
        trial: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError> {
        let cores = self.cores(trial);
        let whole = std::slice::from_ref(trial);
        let of_parts: Vec<_> = trial.parts.iter().map(|part| trial.of_part(part)).collect();
        let plans = if of_parts.is_empty() { whole } else { &of_parts };
        let parts = || self.parts.iter().zip(plans);
        parts().try_for_each(|(part, plan)| part.check(plan, &cores))?;
        let start = MonotonicClock.now() + START_DELAY;
        parts().try_for_each(|(part, plan)| part.prepare(plan, &cores, start))?;
        let mut under_way: Vec<_> =
            parts().map(|(part, plan)| RunningTrialPart::new(part, plan, start)).collect();
        let mut shares = MixIntervals::new(plans.len(), intervals);
        let batch = batch(trial.rate / cores.len() as f64);
        let is_ended = self.send(&cores, batch, &mut under_way, &mut shares)?;
        for (index, (part, trial)) in self.parts.iter().zip(under_way).enumerate() {
            part.finish(&cores, trial, is_ended, &mut shares.part(index));
        }
        shares.finish();
        self.parts.iter_mut().for_each(|part| part.note_lanes(&cores));
        Ok(())
    }
}

/// A part of a running trial.
struct RunningTrialPart<'a> {
    start: Timestamp<Monotonic>,
    duration: Span,
    listener: OutageDetector,
    /// Requests answered at the last check.
    answered: u64,
    /// Other replies by then: invalid ones, and parts of a reply.
    incomplete: u64,
    profile: Option<&'a LoadProfile>,
    interval_reader: IntervalReader<'a>,
}

impl<'a> RunningTrialPart<'a> {
    fn new(part: &'a XdpPart, plan: &'a TrialPlan, start: Timestamp<Monotonic>) -> Self {
        let profile = plan.profile.as_deref();
        Self {
            start,
            duration: Span::from_ns(plan.duration.as_nanos() as i64),
            listener: OutageDetector::new(start),
            answered: 0,
            incomplete: 0,
            profile,
            interval_reader: IntervalReader::new(&part.generator, &part.plan, profile),
        }
    }
}

fn timeout(plan: &RunPlan) -> Span {
    Span::from_ns(plan.reply_timeout.as_nanos() as i64)
}

/// Returns the number of frames that the kernel requests from the program before it sends those
/// due. A frame leaves at the end of its batch, so a slow lane needs small ones; large ones cost
/// less per frame.
fn batch(rate: f64) -> u32 {
    if rate < 500_000.0 { 16 } else { 64 }
}

/// Sending thread of the lanes on a core.
struct SenderThread<'a> {
    /// Generators; the first one sends for all.
    generators: &'a [&'a Generator],
    core: usize,
    batch: u32,
}

impl SenderThread<'_> {
    fn run(self, handle: &mpsc::Sender<InterruptibleThread>) -> Result<(), EngineError> {
        let thread = InterruptibleThread::current()
            .map_err(EngineError::system("make a sending thread interruptible"))?;
        affinity::pin_to_core(self.core).map_err(EngineError::system("pin a sending thread"))?;
        // The receiver ends the call; without a receiver, there is nothing to send for.
        if handle.send(thread).is_err() {
            return Ok(());
        }
        let Some(first) = self.generators.first() else { return Ok(()) };
        while !is_done(self.generators, self.core) {
            first.send(i32::MAX, self.batch)?;
        }
        Ok(())
    }
}
