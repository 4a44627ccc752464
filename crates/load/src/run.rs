//! Run of a load: drives the engine through a ramp, a search or a load profile, trial by trial, and
//! composes the record. Does not interpret metrics.

mod profile;
mod trial_sink;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, Finding, Host, LOAD_SCHEMA, LiveSampler, LoadResult,
    LoadSeriesPoint, LoadTarget, LoadTimeSeries, Outage, OverloadResult, PartPlan, RequestMode,
    RunObserver, Trial, rfc3339_now,
};
use horolog_stats::{Search, SearchConfig, SearchOutcome, SearchStep, TrialOutcome};
use horolog_sys::adjtimex;
use horolog_time::Span;

use crate::capture::{CaptureError, CaptureOptions, CaptureSummary, RunningCapture};
use crate::error::LoadError;
use crate::findings::{RunConditions, RunFindingInputs, TrialFindings, TrialWithCounts};
use crate::limit::LoadMetricLimit;
use crate::loss_attribution::{self, MissingReplyCounts};
use crate::loss_attribution_counters::LossAttributionCounterReader;
use crate::options::{LoadOptions, LoadProcedure};
use crate::plan::TrialPlan;
use crate::prepare::{PreparedLoad, prepare};
use crate::ramp::Ramp;
use crate::remote_counters::RemoteCounterReader;
use crate::request_kind::RequestKind;
use crate::request_tracker::TrialCounts;
use crate::target::{Route, return_route_command};
use crate::trial;

pub use profile::OverloadTestOptions;
use trial_sink::TrialSink;
pub(crate) use trial_sink::{LoadSampler, ended_values};

/// Pause after a trial with losses, in which the server can clear its backlog.
const TRIAL_PAUSE: Duration = Duration::from_millis(10);

/// Longest warm-up, in seconds.
const WARM_UP_S_MAX: f64 = 10.0;

/// Run whose options are resolved and whose engine is open, with its results so far.
pub struct LoadRun {
    options: LoadOptions,
    prepared: PreparedLoad,
    watch: LossAttributionCounterReader,
    capture: Option<RunningCapture>,
    trials: Vec<Trial>,
    conditions: RunConditions,
    trial_findings: TrialFindings,
    search: Option<CapacitySearchResult>,
    series: Option<LoadTimeSeries>,
    outages: Vec<Outage>,
    overload: Option<OverloadResult>,
    interrupted: bool,
    /// Error that ended the run early.
    failure: Option<String>,
}

impl LoadRun {
    /// Checks and resolves all options, and opens the engine. Sends no load, only what this needs:
    /// name and neighbour resolution, NTS-KE, a request for the remote counters, and test requests
    /// of NTS or of an engine that is chosen automatically or is the XDP engine.
    pub fn prepare(mut options: LoadOptions) -> Result<Self, LoadError> {
        profile::check_job(&options)?;
        let prepared = prepare(&options)?;
        let (target, route) = (prepared.target().ip(), prepared.route());
        let watch = LossAttributionCounterReader::new(target, route, &options.namespaces)
            .with_server_counters(options.counter_source.take());
        let page = options.remote_counters.take();
        let page =
            page.map(|page| RemoteCounterReader::open(page, prepared.target())).transpose()?;
        let transport = prepared.requests().find_map(RequestKind::ptp).map(|ptp| ptp.transport);
        let watch = watch.with_remote_counters(page).with_ptp(transport);
        let open = |options: &CaptureOptions| RunningCapture::open(options, &prepared.plans[0]);
        let capture = options.capture.as_ref().map(open).transpose()?;
        let conditions = run_conditions(&options, &prepared, &watch);
        Ok(Self {
            options,
            prepared,
            watch,
            capture,
            trials: Vec::new(),
            conditions,
            trial_findings: TrialFindings::default(),
            search: None,
            series: None,
            outages: Vec::new(),
            overload: None,
            interrupted: false,
            failure: None,
        })
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn engine(&self) -> horolog_record::LoadEngineKind {
        self.prepared.engine.kind()
    }

    /// Returns the mode of the requests.
    #[must_use]
    pub fn mode(&self) -> RequestMode {
        self.options.requests.mode()
    }

    /// Returns true if offsets of the server's transmit timestamps are measured.
    #[must_use]
    pub fn measures_offsets(&self) -> bool {
        self.prepared.offset().is_some()
    }

    /// Returns the target, and the route to it.
    #[must_use]
    pub fn target(&self) -> LoadTarget {
        let target = self.prepared.target();
        let link = match self.prepared.route() {
            Route::ThisHost => None,
            Route::Link(link) => Some(link),
        };
        LoadTarget {
            address: target.ip(),
            port: target.port(),
            name: self.options.target.name().map(str::to_owned),
            interface: link.map(|link| link.interface.clone()),
            mac: link.and_then(|link| link.macs).map(|macs| macs.destination.to_string()),
            source_network: self.prepared.network.map(|network| network.prefix().to_string()),
        }
    }

    /// Runs all trials and returns the record. An error after the first trial ends the run and
    /// becomes a finding; before, it is returned.
    pub fn run(
        mut self,
        observer: &mut (dyn RunObserver<Trial, LoadSeriesPoint> + Send),
    ) -> Result<LoadResult, LoadError> {
        let mut sampler = LiveSampler::new(observer);
        let started = rfc3339_now();
        let overload_test = self.options.overload_test;
        let result = match self.options.job.clone() {
            LoadProcedure::Ramp(ramp) => self.run_ramp(&ramp, &mut sampler),
            LoadProcedure::Search { kind, config } => {
                self.search_then_overload((kind, config), overload_test.as_ref(), &mut sampler)
            }
            LoadProcedure::Profile(profile) => self.run_profile(&profile, &mut sampler),
            LoadProcedure::Overload(rate) => {
                self.run_overload(&overload_test.unwrap_or_default(), rate, &mut sampler)
            }
        };
        match result {
            // Nothing was measured.
            Err(error) if self.trials.is_empty() => return Err(error),
            ended => self.failure = ended.err().map(|error| error.to_string()),
        }
        Ok(self.into_result(started))
    }

    fn search_then_overload(
        &mut self,
        (kind, config): (CapacitySearchGoal, SearchConfig),
        overload_test: Option<&OverloadTestOptions>,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(), LoadError> {
        self.run_search(kind, config, sampler)?;
        let lower = self.search.as_ref().and_then(|search| search.lower);
        match (overload_test, lower) {
            (Some(overload_test), Some(rate)) => self.run_overload(overload_test, rate, sampler),
            _ => Ok(()),
        }
    }

    fn run_ramp(&mut self, ramp: &Ramp, sampler: &mut LoadSampler<'_>) -> Result<(), LoadError> {
        for rate in ramp.rates()? {
            let (outcome, flow) = self.run_trial(rate, ramp.duration, sampler)?;
            let loss = outcome.lost as f64 / outcome.sent.max(1) as f64;
            if flow.is_break() || Ramp::is_last_trial(loss) {
                break;
            }
        }
        Ok(())
    }

    fn run_search(
        &mut self,
        kind: CapacitySearchGoal,
        config: SearchConfig,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(), LoadError> {
        let mut search = Search::new(config)?;
        loop {
            match search.next() {
                SearchStep::Trial { rate, duration } => {
                    let (outcome, flow) = self.run_trial(rate, duration, sampler)?;
                    if flow.is_break() {
                        return Ok(());
                    }
                    search.record(&outcome);
                }
                SearchStep::Done(outcome) => {
                    self.search = Some(search_result(kind, &config, &outcome));
                    return Ok(());
                }
            }
        }
    }

    fn trial_plan(&self, rate: f64, duration: Duration) -> TrialPlan {
        let (spacing, clients) = (self.options.spacing, self.active_clients(rate));
        let nts = self.prepared.sessions().is_some();
        let parts = self.prepared.parts.clone();
        TrialPlan { rate, duration, spacing, clients, nts, profile: None, parts }
    }

    /// Sets the sampling ratio of the capture, if there is one, for this rate.
    fn begin_capture(&mut self, rate: f64) -> Result<(), LoadError> {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        Ok(capture.begin_trial(rate).map_err(CaptureError::System)?)
    }

    fn run_trial(
        &mut self,
        rate: f64,
        duration: Duration,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(TrialOutcome, ControlFlow<()>), LoadError> {
        let index = self.trials.len();
        let (intended_rate, duration_s) = (Some(rate), Some(duration.as_secs_f64()));
        let part = PartPlan { index, intended_rate, duration_s, ..PartPlan::default() };
        sampler.observer.part_started(&part);
        let begun = Instant::now();
        let plan = self.trial_plan(rate, duration);
        self.begin_capture(rate)?;
        self.warm_up(&plan)?;
        let before = self.watch.read();
        let engine = &mut self.prepared.engine;
        sampler.begin(index);
        let (counts, stopped) = (TrialCounts::default(), false);
        let mut sink = TrialSink { counts, stopped, sampler, plan: part };
        let compliant_clients = match &self.prepared.compliant_clients {
            None => {
                engine.run(&plan, &mut sink)?;
                None
            }
            Some(group) => Some(group.run_during(duration, || engine.run(&plan, &mut sink))?.1),
        };
        let TrialSink { counts, stopped, plan: part, .. } = sink;
        let after = self.watch.read();
        // The record of a trial that was ended early has its actual duration.
        let plan = if stopped { trial::truncate_plan(plan, &counts) } else { plan };
        let missing = MissingReplyCounts::from_counts(&counts);
        let trial =
            trial::record(&plan, &counts, loss_attribution::attribute(missing, &before, &after));
        let trial = Trial { compliant_clients, ..trial };
        let outcome = TrialOutcome {
            intended_rate: rate,
            achieved_rate: trial.achieved_rate,
            sent: trial.sent,
            lost: trial.lost,
            duration: Duration::from_secs_f64(trial.duration_s),
        };
        if stopped && trial.sent == 0 {
            // The trial was ended before its first request.
            self.interrupted = true;
            return Ok((outcome, ControlFlow::Break(())));
        }
        self.record_outages(index, &counts);
        let part = PartPlan { duration_s: Some(trial.duration_s), ..part };
        let ended = ended_values(&counts);
        sampler.finish(&part, trial.duration_s, &ended.part_counts, ended);
        sampler.observer.part_ended(index, &trial);
        let flow = sampler.observer.flow();
        self.interrupted |= flow.is_break();
        self.add_trial(trial, &counts);
        if sampler.observer.wants_snapshots() {
            sampler.observer.findings(self.findings(None));
        }
        // Overload leaves a backlog at the server, which is gone if the trial waited long enough
        // for its last replies.
        if outcome.lost > 0 && begun.elapsed() < duration + TRIAL_PAUSE {
            std::thread::sleep(TRIAL_PAUSE);
        }
        Ok((outcome, flow))
    }

    /// Adds a trial with its findings.
    fn add_trial(&mut self, trial: Trial, counts: &TrialCounts) {
        self.trial_findings.add(&TrialWithCounts::new(&trial, counts), &self.conditions);
        self.trials.push(trial);
    }

    /// Returns the number of clients at this rate.
    fn active_clients(&self, rate: f64) -> u32 {
        let most = self.prepared.clients();
        let client_rate = self.options.rate_per_client.filter(|_| !self.options.random_sources);
        client_rate.map_or(most, |each| {
            // At least one client per lane; there are never more lanes than clients.
            ((rate / each) as u32).clamp(self.prepared.lanes() as u32, most)
        })
    }

    /// Sends requests of all clients without counting them, at the initial rate of a trial or
    /// profile and for at most [`WARM_UP_S_MAX`], so that the server has state of each client.
    fn warm_up(&mut self, plan: &TrialPlan) -> Result<(), LoadError> {
        if self.options.warm_up > 0 {
            let rate =
                plan.profile.as_ref().map_or(plan.rate, |profile| profile.rate_at(Span::ZERO));
            let requests = f64::from(self.options.warm_up) * f64::from(plan.clients);
            let duration = Duration::from_secs_f64((requests / rate).min(WARM_UP_S_MAX));
            let plan = TrialPlan { rate, duration, profile: None, ..plan.clone() };
            self.prepared.engine.run_trial(&plan, &mut || ControlFlow::Continue(()))?;
        }
        Ok(())
    }

    /// Returns the findings so far.
    fn findings(&self, capture: Option<&CaptureSummary>) -> Vec<Finding> {
        let inputs = RunFindingInputs {
            remote_counter_errors: self.watch.remote_errors(),
            capture,
            clock_synchronised: adjtimex::kernel_clock().ok().map(|clock| clock.synchronised),
            fallbacks: &self.prepared.fallbacks,
            missing_feature: self.prepared.engine.missing_feature(),
            interrupted: self.interrupted,
            failure: self.failure.as_deref(),
            search: self.search.as_ref(),
            outages: &self.outages,
            overload: self.overload.as_ref(),
        };
        let mut findings =
            self.trial_findings.run_findings(&self.trials, &self.conditions, &inputs);
        let sessions = self.prepared.sessions().into_iter();
        findings.extend(sessions.flat_map(|sessions| sessions.findings()));
        findings
    }

    fn into_result(mut self, started: String) -> LoadResult {
        let capture = self.capture.take().map(RunningCapture::finish);
        let findings = self.findings(capture.as_ref());
        let (target, mode, engine) = (self.target(), self.mode(), self.engine());
        let threads = self.prepared.lanes();
        let reply_timeout_ns = self.options.reply_timeout.as_nanos() as u64;
        let offset = self.prepared.offset().map(|offset| offset.method());
        let judge = |limit: &LoadMetricLimit| limit.evaluate(&self.trials, self.search.as_ref());
        let limits = self.options.limits.iter().map(judge).collect();
        LoadResult {
            schema: LOAD_SCHEMA.to_owned(),
            started,
            command: self.options.command.clone(),
            host: Host::read(),
            target,
            mode,
            engine,
            threads,
            spacing: self.options.spacing,
            reply_timeout_ns,
            offset,
            trials: self.trials,
            search: self.search,
            series: self.series,
            outages: self.outages,
            overload: self.overload,
            limits,
            findings,
        }
    }
}

fn run_conditions(
    options: &LoadOptions,
    prepared: &PreparedLoad,
    watch: &LossAttributionCounterReader,
) -> RunConditions {
    let return_route = match (&prepared.network, prepared.route()) {
        (Some(network), Route::Link(link)) => {
            Some(return_route_command(&network.prefix(), link.source))
        }
        _ => None,
    };
    RunConditions {
        engine: prepared.engine.kind(),
        spacing: options.spacing,
        requests: options.requests.clone(),
        return_route,
        shared_host: watch.is_server_local(),
        replies_unopened: prepared.sessions().is_some_and(|sessions| !sessions.can_open()),
        measures_offsets: prepared.offset().is_some(),
    }
}

/// Converts the outcome of a search to its record.
pub(crate) fn search_result(
    kind: CapacitySearchGoal,
    config: &SearchConfig,
    outcome: &SearchOutcome,
) -> CapacitySearchResult {
    CapacitySearchResult {
        kind,
        goal_loss_ratio: config.goal.ratio(),
        rate: outcome.rate.unwrap_or(0.0),
        lower: outcome.lower,
        upper: outcome.upper,
        loss_ratio: outcome.loss_ratio().unwrap_or(0.0),
        end: outcome.reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_record::{FindingCode, LoadEngineKind};
    use horolog_wire::ntp::{AssociationMode as NtpMode, HEADER_LEN, Header};
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// A server on loopback that leaves every `unanswered_every`-th request unanswered.
    struct Server {
        address: std::net::SocketAddr,
        stop: Arc<AtomicBool>,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl Server {
        fn start(unanswered_every: u64) -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let address = socket.local_addr().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = Arc::clone(&stop);
            let thread = thread::spawn(move || {
                let (mut buffer, mut count) = ([0; 100], 0_u64);
                while !stopped.load(Ordering::Relaxed) {
                    let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                    let (request, _) = Header::parse(&buffer[..length]).unwrap();
                    count += 1;
                    if count % unanswered_every == 0 {
                        continue;
                    }
                    let reply = Header {
                        mode: NtpMode::Server,
                        stratum: 1,
                        origin: request.transmit,
                        receive: request.transmit,
                        ..request
                    };
                    let mut bytes = [0; HEADER_LEN];
                    reply.emit(&mut bytes);
                    socket.send_to(&bytes, from).unwrap();
                }
            });
            Self { address, stop, thread: Some(thread) }
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    struct Rows(usize, usize);

    impl RunObserver<Trial, LoadSeriesPoint> for Rows {
        fn part_ended(&mut self, index: usize, _: &Trial) {
            assert_eq!(index, self.0);
            self.0 += 1;
        }

        fn flow(&self) -> ControlFlow<()> {
            if self.0 < self.1 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }

    fn load(server: &Server, max: f64, rows: usize) -> LoadResult {
        let duration = Duration::from_millis(100);
        let ramp = Ramp { min: 1000.0, max, multiplier: 2.0, duration };
        let target = server.address.to_string().parse().unwrap();
        let options = LoadOptions::new(target, LoadProcedure::Ramp(ramp));
        LoadRun::prepare(options).unwrap().run(&mut Rows(0, rows)).unwrap()
    }

    #[test]
    fn a_ramp_over_loopback_counts_what_the_server_left_out() {
        let server = Server::start(10);
        let result = load(&server, 2000.0, 99);
        assert_eq!((result.engine, result.trials.len()), (LoadEngineKind::Udp, 2));
        assert_eq!((result.trials[0].sent, result.trials[0].lost), (100, 10));
        assert_eq!((result.trials[1].sent, result.trials[1].lost), (200, 20));
        let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
        for code in
            [FindingCode::LossUnattributed, FindingCode::SharedMachine, FindingCode::EngineFallback]
        {
            assert!(codes.contains(&code), "{codes:?}");
        }
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.contains("horolog.load/2"));
    }

    #[test]
    fn a_ramp_ends_when_more_than_half_is_lost_or_on_request() {
        let mute = Server::start(1);
        assert_eq!(load(&mute, 8000.0, 99).trials.len(), 1);
        let server = Server::start(u64::MAX);
        assert_eq!(load(&server, 8000.0, 2).trials.len(), 2);
    }
}
