//! Execution of a UDP path run from its options to its record: the far end is resolved and
//! identified, then each row in turn gets its flows, its threads and its load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::target::{is_public, require_unicast};
use horolog_record::{
    Host, PATH_UDP_SCHEMA, PathLoad, PathMeasurementCost, PathProtocol, PathRow, PathSendMode,
    PathTarget, PathUdpResult, ProgressPublisher, ProgressSlots, RowEndReason, TimestampSource,
    rfc3339_now,
};
use horolog_stats::{DuplicateWindow, Recorder};
use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_sys::packet::interface_index;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::super::live_sampler::{CurrentRow, PathLiveSampler, PathObserver};
use super::codec::Codec;
use super::cost;
use super::error::UdpPathError;
use super::findings::{self, UdpRunContext};
use super::flow::UdpFlow;
use super::flow_stats::FlowStats;
use super::live;
use super::load::{self, PathLoadGenerator};
use super::open_loop::{FlowReceiver, FlowSchedule, FlowSender, FlowShared};
use super::options::{LoadKind, PathUdpOptions, RowPlan};
use super::ping_pong::{FlowOutcome, ping_pong};
use super::prepare::{FarEndInfo, check, find, own_error_ns};
use super::row::{self, RowOutcome};
use super::shared::{LoadRatioGate, RowState};
use super::sum::FlowSums;

/// Delay after enabling timestamps: the kernel needs a moment to start them.
const SETTLING: Span = Span::from_ms(20);
/// Time from starting the threads to the first request at a fixed rate.
const LEAD: Span = Span::from_ms(5);
/// Requests whose replies are recognised, at least and at most.
const REACH: (f64, f64) = (4_096.0, 4_194_304.0);

/// Run ready to begin.
#[derive(Debug)]
pub struct PathUdp {
    options: PathUdpOptions,
    to: SocketAddr,
    found: FarEndInfo,
    cost: PathMeasurementCost,
}

impl PathUdp {
    /// Checks the options, then resolves and identifies the far end.
    ///
    /// # Errors
    ///
    /// If the options are invalid, or the far end does not answer.
    pub fn prepare(mut options: PathUdpOptions) -> Result<Self, UdpPathError> {
        check(&options)?;
        options.warm_up = options.warm_up_within_time();
        if let Some(name) = &options.interface {
            interface_index(name).map_err(|_| UdpPathError::NoInterface(name.clone()))?;
        }
        let to = options.target.resolve(options.family, options.interface.as_deref())?;
        require_unicast(to.ip())?;
        if options.is_stamp && is_public(to.ip()) && !options.i_own_this_target {
            return Err(UdpPathError::Public(to.ip()));
        }
        let found = find(&options, to)?;
        Ok(Self { options, to, found, cost: cost::measure() })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.options.rows.len()
    }

    /// Measures all rows and returns the record. `progress` is called with each row when it begins;
    /// `is_over` returns true to end early, and the observer takes snapshots meanwhile.
    ///
    /// # Errors
    ///
    /// If load cannot be sent as requested.
    pub fn run(
        self,
        progress: &dyn Fn(usize, &RowPlan),
        is_over: &(dyn Fn() -> bool + Sync),
        observer: Option<&dyn PathObserver>,
    ) -> Result<PathUdpResult, UdpPathError> {
        let started = rfc3339_now();
        let mut sampler = PathLiveSampler::new();
        let mut rows: Vec<PathRow> = Vec::new();
        let mut circumstances = UdpRunContext::default();
        for (index, plan) in self.options.rows.iter().enumerate() {
            if is_over() {
                circumstances.interrupted = true;
                break;
            }
            progress(index, plan);
            let clock = realtime_minus_monotonic();
            let name = live::name(plan);
            let under = self.under(index, &name);
            let sampling = observer.map(|observer| (observer, &sampler, under));
            let row = self.row(plan, clock, is_over, sampling)?;
            if let Some(observer) = observer {
                sampler.end(observer, under, live::counts(&row), live::ended(&row));
            }
            if !clock.agrees(realtime_minus_monotonic()) {
                circumstances.stepped.push(index);
            }
            let ended = row.ended;
            // A row that was ended in its warm-up has nothing to show.
            if ended != Some(RowEndReason::Interrupted) || row.counts.sent > 0 {
                rows.push(row);
            }
            if ended.is_some() {
                circumstances.interrupted = ended == Some(RowEndReason::Interrupted);
                break;
            }
        }
        Ok(self.result(started, rows, &circumstances))
    }

    fn result(
        self,
        started: String,
        rows: Vec<PathRow>,
        circumstances: &UdpRunContext,
    ) -> PathUdpResult {
        let (options, to) = (self.options, self.to);
        let broadcast = load::kind(&options, to) == LoadKind::Broadcast;
        let has_load = options.rows.iter().any(|row| row.load_ratio > 0.0);
        let mut result = PathUdpResult {
            schema: PATH_UDP_SCHEMA.to_owned(),
            started,
            host: Host::read(),
            target: PathTarget {
                name: options.target.to_string(),
                address: to.ip(),
                port: to.port(),
                mtu: self.found.mtu.into(),
                same_clock: self.found.same_clock,
                clock_error_ns: self.found.clock_error_ns,
            },
            protocol: if options.is_stamp { PathProtocol::Stamp } else { PathProtocol::Horolog },
            mode: if options.rate.is_some() {
                PathSendMode::OpenLoop
            } else {
                PathSendMode::PingPong
            },
            flows: options.flows,
            busy_polling: options.busy_polling,
            timestamps: if options.kernel_timestamps {
                TimestampSource::Kernel
            } else {
                TimestampSource::User
            },
            dscp: options.dscp,
            warm_up: options.warm_up,
            reply_timeout_ns: options.timeout.as_nanos() as u64,
            load_length: options.load_length,
            load_broadcast: broadcast && has_load,
            command: options.command,
            cost: self.cost,
            rows,
            limits: Vec::new(),
            findings: Vec::new(),
        };
        result.findings = findings::all(&result, circumstances);
        result
    }

    /// Runs one row, from the opening of its flows to its record.
    fn row(
        &self,
        plan: &RowPlan,
        clock: ClockOffset,
        is_over: &(dyn Fn() -> bool + Sync),
        sampling: Option<(&dyn PathObserver, &PathLiveSampler, CurrentRow<'_>)>,
    ) -> Result<PathRow, UdpPathError> {
        let options = &self.options;
        let flows = (0..options.flows).map(|_| UdpFlow::open(options, self.to, plan.length));
        let flows = match flows.collect::<Result<Vec<_>, _>>() {
            Ok(flows) => flows,
            Err(UdpPathError::NoReply(..)) => return Ok(self.missed(plan, RowEndReason::Vanished)),
            Err(UdpPathError::Refused(..)) => return Ok(self.missed(plan, RowEndReason::Closed)),
            Err(error) => return Err(error),
        };
        let load = (plan.load_ratio > 0.0)
            .then(|| PathLoadGenerator::open(options, self.to))
            .transpose()?;
        if options.kernel_timestamps {
            sleep_until(MonotonicClock.now() + SETTLING);
        }
        let warm_up = options.warm_up as u32;
        let each = options.count.map(|count| count.div_ceil(options.flows) as u32);
        let shared = RowState {
            to: self.to,
            warm_up,
            count: each.map(|count| count + warm_up),
            // A number of requests takes as long as it takes.
            time: if each.is_some() { Duration::from_hours(24) } else { options.time },
            timeout: options.timeout,
            busy_polling: options.busy_polling,
            is_over,
            ended: AtomicBool::new(false),
            gate: LoadRatioGate::new(plan.load_ratio),
        };
        let session = match flows.first().map(|flow| flow.codec) {
            Some(Codec::Horolog { session }) => session,
            _ => 0,
        };
        let is_done = AtomicBool::new(false);
        let slots = sampling.map(|_| ProgressSlots::new(flows.len()));
        let all = thread::scope(|scope| {
            let (shared, is_done, slots) = (&shared, &is_done, slots.as_ref());
            if let (Some((observer, sampler, under)), Some(slots)) = (sampling, slots) {
                scope.spawn(move || sampler.sample_until(observer, under, slots, is_done));
            }
            let loading = load.map(|load| scope.spawn(move || load.run(shared, session, is_done)));
            let all = self.flows(flows, shared, clock.offset, slots);
            is_done.store(true, Ordering::Release);
            // A thread that died has published its counts.
            loading.map(thread::ScopedJoinHandle::join);
            all
        });
        // The last of the load is in flight before the counts are requested.
        let all: Vec<_> =
            all.into_iter().map(|(one, flow, late)| (tallied(one, &flow), flow, late)).collect();
        Ok(row::record(plan, self.outcome(plan, &shared, &all)))
    }

    /// Returns a row as the observer sees it.
    fn under<'a>(&self, index: usize, name: &'a str) -> CurrentRow<'a> {
        let options = &self.options;
        let by_count = options.count.zip(options.rate).map(|(count, rate)| count as f64 / rate);
        let by_time = options.count.is_none().then_some(options.time.as_secs_f64());
        CurrentRow {
            index,
            name,
            rate: options.rate,
            duration_s: by_time.or(by_count),
            is_transfer: false,
        }
    }

    /// Runs all flows in parallel.
    fn flows(
        &self,
        flows: Vec<UdpFlow>,
        shared: &RowState<'_>,
        offset: Span,
        slots: Option<&ProgressSlots>,
    ) -> Vec<(FlowOutcome, UdpFlow, Option<Recorder>)> {
        let start = MonotonicClock.now() + LEAD;
        let publisher_of = |index| Some(ProgressPublisher::new(slots?.slot(index)?, start));
        thread::scope(|scope| {
            let threads: Vec<_> = flows
                .into_iter()
                .enumerate()
                .map(|(index, flow)| {
                    let offset_and_publisher = (offset, publisher_of(index));
                    match self.options.rate {
                        None => {
                            scope.spawn(move || self.ping_pong(flow, shared, offset_and_publisher))
                        }
                        Some(rate) => {
                            let phase = Span::from_ns((index as f64 * 1e9 / rate) as i64);
                            let begin = start + phase;
                            scope.spawn(move || {
                                self.open_loop(flow, shared, offset_and_publisher, (rate, begin))
                            })
                        }
                    }
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
        })
    }

    fn ping_pong(
        &self,
        mut flow: UdpFlow,
        shared: &RowState<'_>,
        offset_and_publisher: (Span, Option<ProgressPublisher<'_>>),
    ) -> Option<(FlowOutcome, UdpFlow, Option<Recorder>)> {
        let window = DuplicateWindow::new(REACH.0 as u64).ok()?;
        let stats = self.flow_stats();
        let brought = ping_pong(&mut flow, shared, stats, &window, offset_and_publisher);
        Some((brought, flow, None))
    }

    fn open_loop(
        &self,
        flow: UdpFlow,
        shared: &RowState<'_>,
        (offset, publisher): (Span, Option<ProgressPublisher<'_>>),
        (rate, start): (f64, Timestamp<Monotonic>),
    ) -> Option<(FlowOutcome, UdpFlow, Option<Recorder>)> {
        let options = &self.options;
        let own_rate = rate / options.flows as f64;
        let by_time = (own_rate * options.time.as_secs_f64()).ceil().max(1.0) as u32;
        let count = shared.count.unwrap_or(by_time.saturating_add(shared.warm_up));
        let schedule = FlowSchedule { start, interval_ns: 1e9 / own_rate, count };
        let reach = (own_rate * options.timeout.as_secs_f64() * 2.0).clamp(REACH.0, REACH.1);
        let reach = (reach as usize).next_power_of_two();
        let between = FlowShared::new(DuplicateWindow::new(reach as u64).ok()?, reach);
        let socket = flow.socket.try_clone().ok()?;
        let out = vec![0; flow.out.len()];
        let codec = flow.codec;
        let left_at = if flow.kernel { vec![0; reach] } else { Vec::new() };
        let (sent, (mut brought, flow)) = thread::scope(|scope| {
            let between = &between;
            let sender =
                FlowSender { socket: &socket, codec, out, shared, between, schedule, offset };
            let sending = scope.spawn(move || sender.run());
            let stats = self.flow_stats();
            let receiver =
                FlowReceiver { flow, stats, shared, between, schedule, offset, left_at, publisher };
            let received = receiver.run();
            sending.join().ok().map(|sent| (sent, received))
        })?;
        brought.stats.counts.sent = sent.left;
        brought.stats.counts.refused = sent.refused;
        (brought.begun, brought.over) = (sent.begun, sent.over);
        Some((brought, flow, Some(sent.late)))
    }

    fn flow_stats(&self) -> FlowStats {
        let timeout = Span::from_ns(self.options.timeout.as_nanos() as i64);
        FlowStats::new(self.options.warm_up as u32, timeout)
    }

    fn outcome(
        &self,
        plan: &RowPlan,
        shared: &RowState<'_>,
        all: &[(FlowOutcome, UdpFlow, Option<Recorder>)],
    ) -> RowOutcome {
        let options = &self.options;
        let mut stats = self.flow_stats();
        let mut late: Option<Recorder> = None;
        let mut sum = FlowSums::default();
        for (brought, flow, own_late) in all {
            stats.merge(&brought.stats);
            if let Some(own) = own_late {
                late.get_or_insert_default().merge(own);
            }
            sum.add(brought, flow);
        }
        let ended = sum.ended.or((shared.is_over)().then_some(RowEndReason::Interrupted));
        let relaxed = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let gate = &shared.gate;
        let sent = gate.sent().saturating_sub(relaxed(&gate.load_before));
        let valid = gate.valid().saturating_sub(relaxed(&gate.valid_before));
        let ratio = if valid == 0 { 0.0 } else { sent as f64 / valid as f64 };
        let far_error = stats.far_error.zip(own_error_ns());
        let by_reply = far_error.map(|(far, own)| far.as_ns().unsigned_abs().saturating_add(own));
        RowOutcome {
            directions: sum.directions.filter(|_| sum.all_counted),
            host_losses: Some(sum.host_losses),
            load_arrived: gate.is_there().then_some(sum.load_arrived),
            duration: sum.begun.map_or(Span::ZERO, |begun| sum.over - begun),
            clock_error_ns: if options.is_stamp { by_reply } else { self.found.clock_error_ns },
            load: PathLoad {
                planned_ratio: plan.load_ratio,
                ratio,
                sent,
                sent_in_all: gate.sent(),
                arrived: None,
            },
            class_back: sum.class_back,
            ended,
            planned_rate: options.rate,
            fragments: self.fragments(plan),
            receives_class: options.dscp != 0,
            stats,
            late,
        }
    }

    fn fragments(&self, plan: &RowPlan) -> u64 {
        row::fragments(plan.length, self.found.mtu.into(), self.to.is_ipv6())
    }

    /// Returns a row that could not begin.
    fn missed(&self, plan: &RowPlan, ended: RowEndReason) -> PathRow {
        let outcome = RowOutcome {
            stats: self.flow_stats(),
            directions: None,
            host_losses: None,
            load_arrived: None,
            late: None,
            duration: Span::ZERO,
            clock_error_ns: None,
            load: PathLoad { planned_ratio: plan.load_ratio, ..PathLoad::default() },
            class_back: None,
            ended: Some(ended),
            planned_rate: self.options.rate,
            fragments: self.fragments(plan),
            receives_class: false,
        };
        row::record(plan, outcome)
    }
}

/// Adds the far end's final counts, if it still answers, and the drops of this host's socket.
fn tallied(mut brought: FlowOutcome, flow: &UdpFlow) -> FlowOutcome {
    if brought.ended.is_none()
        && let Some(tally) = flow.end()
    {
        brought.stats.counted = Some(tally.counted);
        brought.stats.far_losses = tally.losses();
    }
    brought.stats.dropped = flow.socket.drops().ok().map(u64::from);
    brought
}
