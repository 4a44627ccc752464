//! XDP engine: a BPF program builds, paces, matches and verifies requests in the kernel; this
//! module plans trials and adds up counts. Requires Linux 5.18, the privilege to load BPF programs
//! and an interface with native XDP. Each lane occupies one CPU while it sends.
//!
//! The program drops the replies that it has counted, so the network stack never receives them. The
//! server must route replies for simulated clients to an address of this host.

mod interval_reader;
mod rate_segments;
mod settings;

use horolog_record::{LoadEngineKind as Kind, Progress, RequestSpacing};
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_xdp::{CoreSenders, Generator, GeneratorLane, TrialSettings, XdpError};

use self::interval_reader::IntervalReader;
use self::settings::settings;

use super::drain::{ReplyDrain, SCHEDULE_GRACE, START_DELAY};
use super::intervals::MixIntervalMerger;
use super::membership::HeldMulticastMembership;
use super::{EngineError, IntervalSink, LoadEngine, unavailable_error};
use crate::clients::LaneClients;
use crate::load_profile::{LoadProfile, LoadProfileSendTimes};
use crate::outage::OutageDetector;
use crate::plan::{RunPlan, TrialPlan};
use crate::request_tracker::TrialCounts;
use crate::schedule::{self, FRACTION_BITS};

/// Largest rate of one lane, in requests per second; above it, another lane is used. A lane that
/// also receives its replies keeps its schedule well beyond this rate.
const LANE_RATE_MAX: f64 = 1e6;

/// Interval at which the wait for the last replies is checked.
const DRAIN_PAUSE: Span = Span::from_ns(100_000);

/// Largest number of requests of one lane in flight: the program has a bitmap with one bit for
/// each.
const IN_FLIGHT_MAX: f64 = (1 << 24) as f64;

/// In-kernel engine, attached to its interface.
pub struct XdpEngine {
    /// Generators of the parts of a mix, in order, or a single one. The program of the first one is
    /// attached; each passes frames that are not its own to the next.
    parts: Vec<MixPartGenerator>,
}

/// Generator of one part of a mix: requests of one kind.
struct MixPartGenerator {
    generator: Generator,
    plan: RunPlan,
    /// Sequence number with which each lane continues in the next trial.
    next_sequences: Vec<u32>,
    /// Number of sequence numbers, from 0 on, that each lane has used so far; `u32::MAX` once they
    /// have wrapped.
    used_sequences: Vec<u32>,
    /// Keeps this host in the group that replies are sent to.
    _membership: Option<HeldMulticastMembership>,
}

impl XdpEngine {
    /// Loads a program for each plan, at least one, and attaches them to the interface of their
    /// route.
    pub fn open(plans: &[RunPlan]) -> Result<Self, EngineError> {
        let is_chain = plans.len() > 1;
        let settings = plans.iter().map(|plan| settings(plan, is_chain));
        let settings = settings.collect::<Result<Vec<_>, _>>()?;
        let generators = match &settings[..] {
            [only] => Generator::attach(only).map(|generator| vec![generator]),
            _ => Generator::attach_chain(&settings),
        };
        let generators = generators.map_err(attach_error)?;
        let parts = plans
            .iter()
            .zip(generators)
            .map(|(plan, generator)| MixPartGenerator::new(plan, generator));
        Ok(Self { parts: parts.collect::<Result<_, _>>()? })
    }
}

/// Returns the error of a program that could not be attached, with the remedy of another engine
/// where that helps.
fn attach_error(error: XdpError) -> EngineError {
    match error {
        XdpError::PeerWithoutXdp { .. } => {
            unavailable_error(Kind::Xdp, error.to_string(), "or use --engine packet")
        }
        XdpError::RedirectUnsupported { .. } => {
            unavailable_error(Kind::Xdp, error.to_string(), "use --engine packet")
        }
        error => error.into(),
    }
}

impl MixPartGenerator {
    fn new(plan: &RunPlan, generator: Generator) -> Result<Self, EngineError> {
        // Uses the last cores first, because the first core handles most interrupts and pinned
        // threads.
        let cores = plan.cores.iter().rev().copied().collect();
        let plan = RunPlan { cores, ..plan.clone() };
        let membership = HeldMulticastMembership::join(&plan)?;
        let (sequences, used_sequences) = (vec![0; plan.lanes], vec![0; plan.lanes]);
        Ok(Self {
            generator,
            plan,
            next_sequences: sequences,
            used_sequences,
            _membership: membership,
        })
    }

    /// Refuses a rate at which more requests could be in flight than can be distinguished.
    fn check_in_flight(&self, trial: &TrialPlan, cores: &[usize]) -> Result<(), EngineError> {
        let in_flight = trial.rate * self.plan.reply_timeout.as_seconds();
        if in_flight <= IN_FLIGHT_MAX * cores.len() as f64 {
            return Ok(());
        }
        let reason = format!("up to {in_flight:.0} requests would await replies at the same time");
        Err(unavailable_error(Kind::Xdp, reason, "choose a shorter reply timeout or a lower rate"))
    }

    /// Configures the program for a trial: divides clients and schedule among the lanes, which all
    /// begin at `start`.
    fn set_trial(
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
        let give_up = start + Span::from_ns(trial.duration.as_nanos() as i64) + SCHEDULE_GRACE;
        for (number, &used) in (0..).zip(&self.used_sequences) {
            self.generator.set_sequences_before(number, used);
        }
        self.generator.set_trial(&TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_minus_monotonic_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: lanes as u32,
            clients_per_lane: trial.clients / lanes as u32,
            lanes_with_one_more: trial.clients % lanes as u32,
            random_addresses: random.map_or(0, |network| network.host_count()),
            exponential: trial.spacing == RequestSpacing::Exponential,
            interval_ns: trial.interval().map_or(0, |interval| interval.as_ns() as u64),
            intervals: trial.profile.as_ref().map_or(0, |profile| profile.interval_count()),
        });
        // Cleared after the new start is set, so that no reply to the last trial is counted in this
        // one.
        self.generator.clear();
        for (number, &core) in cores.iter().enumerate() {
            let mut lane = GeneratorLane {
                start_ns: start.as_ns() as u64,
                next: interval / lanes as u64 * number as u64,
                interval,
                end,
                give_up_ns: give_up.as_ns() as u64,
                number: number as u32,
                ..self.lane_position(
                    self.plan.lane_clients(trial.clients, (number, lanes), 1),
                    number,
                )
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
        lane: &mut GeneratorLane,
        profile: &LoadProfile,
        lanes: usize,
    ) -> Option<()> {
        let segments = rate_segments::rate_segments(profile, (lane.number as usize, lanes))?;
        let first = segments.first()?;
        lane.next = first.first;
        lane.interval = first.interval;
        lane.segment_end = first.end;
        lane.phase_over_ns = lane.start_ns + first.phase_over_ns;
        lane.segments = segments.len() as u32;
        self.generator.set_rate_segments(lane.number, &segments);
        Some(())
    }

    /// Returns the start position of a lane in a trial: its clients, and the sequence number after
    /// those of earlier trials.
    fn lane_position(&self, clients: LaneClients, number: usize) -> GeneratorLane {
        let wrap = clients.sequence_end();
        // A multiple of 64, so that the lane starts with a new word of the bitmap of answered
        // requests.
        let sequence = match self.next_sequences[number].next_multiple_of(64) {
            sequence if sequence < wrap => sequence,
            _ => 0,
        };
        GeneratorLane {
            sequence,
            sequence_end: wrap,
            client: sequence % clients.client_count(),
            clients: clients.client_count(),
            client_base: clients.first_client(),
            active: 1,
            ..GeneratorLane::default()
        }
    }

    /// Checks the state of this part of a trial: records new replies for outage detection and
    /// delivers closed intervals.
    fn check_trial(
        &self,
        cores: &[usize],
        trial: &mut RunningMixPart<'_>,
        intervals: &mut dyn IntervalSink,
    ) {
        let now = ClockMonotonic.now();
        let (answered, longest) = trial.interval_reader.answered(now - trial.start);
        if answered > trial.answered {
            // New replies answer requests that were sent at most the longest round trip ago.
            trial.outage_detector.answered(now - longest, self.sent(cores));
            trial.answered = answered;
        }
        let incomplete = trial.interval_reader.incomplete(now - trial.start);
        if incomplete > trial.incomplete {
            trial.outage_detector.record_invalid(now, self.plan.reply_timeout, self.sent(cores));
            trial.incomplete = incomplete;
        }
        if trial.plan.profile.is_some() {
            trial.interval_reader.poll(now - trial.start, intervals);
        }
    }

    /// Ends the lanes of this part.
    fn end_lanes(&self, cores: &[usize]) {
        for &core in cores {
            self.generator.end_lane(core as u32);
        }
    }

    /// Returns the requests sent in this trial.
    fn sent(&self, cores: &[usize]) -> u64 {
        cores.iter().map(|&core| self.generator.lane(core as u32).sent).sum()
    }

    /// Waits until all `sent` requests are answered or [`ReplyDrain::is_over`] is true.
    fn drain(&self, sent: u64, trial: &RunningMixPart<'_>) {
        let last_sent = ClockMonotonic.now();
        let mut drain =
            ReplyDrain { last_sent, last_reply: last_sent, timeout: self.plan.reply_timeout };
        let (mut answered, mut longest) = trial.interval_reader.answered(last_sent - trial.start);
        while answered < sent {
            let now = ClockMonotonic.now();
            if drain.is_over(now, (longest > Span::ZERO).then_some(longest)) {
                break;
            }
            sleep_until(now + DRAIN_PAUSE);
            let before = answered;
            (answered, longest) = trial.interval_reader.answered(now - trial.start);
            if answered > before {
                drain.last_reply = ClockMonotonic.now();
            }
        }
    }

    /// Returns the number of planned requests that the lanes did not send.
    fn unsent_requests(&self, cores: &[usize], trial: &RunningMixPart<'_>) -> u64 {
        let left = |lane: &GeneratorLane| match &trial.plan.profile {
            _ if lane.next >= lane.end => 0,
            None => (lane.end - lane.next).div_ceil(lane.interval.max(1)),
            Some(profile) => {
                LoadProfileSendTimes::new(profile, cores.len()).requests_after(lane.next)
            }
        };
        cores.iter().map(|&core| left(&self.generator.lane(core as u32))).sum()
    }

    /// Returns the counts of a trial that belong to no interval: planned requests that were not
    /// sent, and the counts of each client. At a constant rate `planned` also includes the requests
    /// that were sent, and the send times of the first and last request are known.
    fn trial_counts(&self, cores: &[usize], trial: &RunningMixPart<'_>) -> TrialCounts {
        let planned = self.unsent_requests(cores, trial);
        let mut counts = TrialCounts { planned, ..TrialCounts::default() };
        counts.clients = interval_reader::client_counts(&self.generator);
        if trial.plan.profile.is_some() {
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

    /// Returns the send time of the last request; `start` if none was sent.
    fn last_sent(&self, cores: &[usize], start: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let last = cores.iter().map(|&core| self.generator.lane(core as u32).last_sent_ns).max();
        start.max(Timestamp::from_ns(last.unwrap_or(0) as i64))
    }

    /// Ends this part of a trial: waits for the last replies and delivers the open intervals.
    /// `is_ended` is true if the trial was ended early.
    fn finish(
        &self,
        cores: &[usize],
        trial: RunningMixPart<'_>,
        is_ended: bool,
        intervals: &mut dyn IntervalSink,
    ) {
        let sent = self.sent(cores);
        self.drain(sent, &trial);
        let mut counts = self.trial_counts(cores, &trial);
        let last_sent = self.last_sent(cores, trial.start);
        counts.outages = Some(trial.outage_detector.close(last_sent, sent));
        let reached = if is_ended { last_sent - trial.start } else { trial.plan.duration.into() };
        trial.interval_reader.finish(reached, &counts, intervals);
    }

    /// Stores the positions at which the lanes continue in the next trial.
    fn store_lane_positions(&mut self, cores: &[usize]) {
        for (number, &core) in cores.iter().enumerate() {
            let GeneratorLane { sequence, sent, .. } = self.generator.lane(core as u32);
            let has_wrapped = sent > u64::from(sequence);
            self.used_sequences[number] =
                if has_wrapped { u32::MAX } else { self.used_sequences[number].max(sequence) };
            self.next_sequences[number] = sequence;
        }
    }
}

impl XdpEngine {
    /// Returns the cores of a trial, with one lane of every part on each. Their number is what the
    /// total rate requires; the other cores are left to a server on the same host.
    fn cores(&self, trial: &TrialPlan) -> Vec<usize> {
        let Some(first) = self.parts.first() else { return Vec::new() };
        let most = self.parts.iter().map(|part| part.plan.lanes).min().unwrap_or(1);
        let in_flight = trial.rate * first.plan.reply_timeout.as_seconds();
        let lanes = (trial.rate / LANE_RATE_MAX).max(in_flight / IN_FLIGHT_MAX).ceil() as usize;
        first.plan.cores[..lanes.clamp(1, most)].to_vec()
    }

    /// Sends on all cores at once until the schedules of all lanes have ended; returns the trials
    /// of the parts, and true if they were ended early.
    fn send<'a>(
        &'a self,
        cores: &[usize],
        plans: &'a [TrialPlan],
        batch: u32,
        mix_intervals: &mut MixIntervalMerger<'_>,
    ) -> Result<(Vec<RunningMixPart<'a>>, bool), EngineError> {
        let generators: Vec<_> = self.parts.iter().map(|part| &part.generator).collect();
        let mut is_ended = false;
        let senders = CoreSenders {
            cores,
            is_done: &|core| is_done(&generators, core),
            // The program of the first part sends for all.
            send: &|| generators.first().map_or(Ok(()), |first| first.send(i32::MAX, batch)),
        };
        let trials = senders.run(
            || self.start_trials(cores, plans),
            |trials| is_ended |= self.check_and_stop(cores, trials, mix_intervals),
        )?;
        Ok((trials, is_ended))
    }

    /// Configures the programs of all parts for trials that begin in a moment.
    fn start_trials<'a>(
        &'a self,
        cores: &[usize],
        plans: &'a [TrialPlan],
    ) -> Result<Vec<RunningMixPart<'a>>, EngineError> {
        let start = ClockMonotonic.now() + START_DELAY;
        let parts = self.parts.iter().zip(plans);
        parts
            .map(|(part, plan)| {
                part.set_trial(plan, cores, start)?;
                Ok(RunningMixPart::new(part, plan, start))
            })
            .collect()
    }

    /// Checks all parts and reports progress. Ends the lanes and returns true if the trial must not
    /// continue.
    fn check_and_stop(
        &self,
        cores: &[usize],
        trials: &mut [RunningMixPart<'_>],
        mix_intervals: &mut MixIntervalMerger<'_>,
    ) -> bool {
        for (index, (part, trial)) in self.parts.iter().zip(&mut *trials).enumerate() {
            part.check_trial(cores, trial, &mut mix_intervals.part_sink(index));
        }
        let elapsed = trials.first().map_or(Span::ZERO, |trial| ClockMonotonic.now() - trial.start);
        if mix_intervals.is_snapshot_due(elapsed) {
            let mut progress = Progress::default();
            for trial in &*trials {
                trial.interval_reader.publish_progress(elapsed, &mut progress);
            }
            mix_intervals.report_progress(elapsed, &progress);
        }
        let is_over = mix_intervals.tick(elapsed).is_break();
        if is_over {
            self.parts.iter().for_each(|part| part.end_lanes(cores));
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
        let plans = trial.part_plans();
        let mut parts = self.parts.iter().zip(&plans);
        parts.try_for_each(|(part, plan)| part.check_in_flight(plan, &cores))?;
        let mut mix_intervals = MixIntervalMerger::new(plans.len(), intervals);
        let batch = batch_size(trial.rate / cores.len() as f64);
        let (trials, is_ended) = self.send(&cores, &plans, batch, &mut mix_intervals)?;
        for (index, (part, trial)) in self.parts.iter().zip(trials).enumerate() {
            part.finish(&cores, trial, is_ended, &mut mix_intervals.part_sink(index));
        }
        mix_intervals.finish();
        self.parts.iter_mut().for_each(|part| part.store_lane_positions(&cores));
        Ok(())
    }
}

/// Part of a mix in a running trial.
struct RunningMixPart<'a> {
    plan: &'a TrialPlan,
    start: Timestamp<Monotonic>,
    outage_detector: OutageDetector,
    /// Number of answered requests at the last check.
    answered: u64,
    /// Number of invalid replies and of replies that are one part of several, at the last check.
    incomplete: u64,
    interval_reader: IntervalReader<'a>,
}

impl<'a> RunningMixPart<'a> {
    fn new(part: &'a MixPartGenerator, plan: &'a TrialPlan, start: Timestamp<Monotonic>) -> Self {
        let profile = plan.profile.as_deref();
        Self {
            plan,
            start,
            outage_detector: OutageDetector::new(start),
            answered: 0,
            incomplete: 0,
            interval_reader: IntervalReader::new(&part.generator, &part.plan, profile),
        }
    }
}

/// Returns the number of frames in a batch of the program's test run, for a lane with this rate.
/// Frames leave at the end of their batch: small batches delay slow lanes less, large ones cost
/// less per frame.
fn batch_size(rate: f64) -> u32 {
    if rate < 500_000.0 { 16 } else { 64 }
}
