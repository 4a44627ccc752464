//! Execution of a UDP path run from its options to its record: the far end is resolved and
//! identified, then each row in turn gets its flows, its threads and its load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::target::{is_public, require_unicast};
use horolog_record::{
    Host, LiveSampler, PATH_UDP_SCHEMA, PartPlan, PathLoad, PathMeasurementCost, PathProtocol,
    PathSendMode, PathTarget, PathUdpResult, PathUdpRow, ProgressPublisher, ProgressSlots,
    RunObserver, TimestampSource, UdpRowEndReason, rfc3339_now,
};
use horolog_stats::{DuplicateWindow, Histogram};
use horolog_sys::clock::{ClockMonotonic, ClockOffset, realtime_minus_monotonic, sleep_until};
use horolog_sys::packet::interface_index;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::super::report_row;
use super::codec::ProbeCodec;
use super::cost;
use super::error::UdpPathError;
use super::findings::{self, UdpRunContext};
use super::flow::UdpFlow;
use super::flow_stats::FlowStats;
use super::load::{self, PathLoadGenerator};
use super::open_loop::{FlowReceiver, FlowSchedule, FlowSender, SharedFlowState};
use super::options::{LoadAddressingMode, PathUdpOptions, UdpRowPlan};
use super::ping_pong::{FlowOutcome, ping_pong};
use super::prepare::{FarEndClockAndMtu, check_options, identify_far_end, local_error_bound_ns};
use super::row::{self, FlowSums, UdpRowOutcome};
use super::shared::{LoadRatioPacer, SharedRowState};

/// Delay after enabling timestamps, before they are reliable.
const TIMESTAMPING_DELAY: Span = Span::from_ms(20);
/// Time from starting the threads to the first request at a fixed rate.
const START_LEAD: Span = Span::from_ms(5);
/// Minimum and maximum number of requests that the duplicate window covers.
const WINDOW_LEN_RANGE: (f64, f64) = (4_096.0, 4_194_304.0);

/// UDP path run whose far end has been identified.
#[derive(Debug)]
pub struct PathUdpRun {
    options: PathUdpOptions,
    to: SocketAddr,
    far_end: FarEndClockAndMtu,
    cost: PathMeasurementCost,
}

impl PathUdpRun {
    /// Checks the options, resolves and identifies the far end, and measures the cost of the
    /// measurement.
    ///
    /// # Errors
    ///
    /// If the options are invalid, the interface or an address of the target does not exist, a
    /// STAMP target is public without confirmation, or the far end does not answer or does not
    /// support the lengths.
    pub fn prepare(mut options: PathUdpOptions) -> Result<Self, UdpPathError> {
        check_options(&options)?;
        options.warm_up = options.warm_up_within_time();
        if let Some(name) = &options.interface {
            interface_index(name).map_err(|_| UdpPathError::NoInterface(name.clone()))?;
        }
        let to = options.target.resolve(options.family, options.interface.as_deref())?;
        require_unicast(to.ip())?;
        if options.is_stamp && is_public(to.ip()) && !options.i_own_this_target {
            return Err(UdpPathError::PublicReflector(to.ip()));
        }
        let found = identify_far_end(&options, to)?;
        Ok(Self { options, to, far_end: found, cost: cost::measure_cost() })
    }

    /// Measures row by row and returns the record; ends early when a row does or `is_over` returns
    /// true.
    ///
    /// # Errors
    ///
    /// If a flow or the load cannot be opened, unless because the far end no longer answers.
    pub fn run(
        self,
        is_over: &(dyn Fn() -> bool + Sync),
        observer: &mut (dyn RunObserver + Send),
    ) -> Result<PathUdpResult, UdpPathError> {
        let started = rfc3339_now();
        let mut sampler = LiveSampler::new(observer);
        let mut rows: Vec<PathUdpRow> = Vec::new();
        let mut context = UdpRunContext::default();
        for (index, plan) in self.options.rows.iter().enumerate() {
            if is_over() {
                context.interrupted = true;
                break;
            }
            let part = self.part_plan(index, plan);
            sampler.observer.part_started(&part);
            let clock = realtime_minus_monotonic();
            let row = self.run_row(plan, clock, is_over, (&mut sampler, &part))?;
            report_row(&mut sampler, &part, (row::row_counts(&row), row::row_summary(&row)));
            if !clock.agrees(realtime_minus_monotonic()) {
                context.stepped.push(index);
            }
            let ended = row.ended;
            // A row that was interrupted in its warm-up has no values.
            if ended != Some(UdpRowEndReason::Interrupted) || row.counts.sent > 0 {
                rows.push(row);
            }
            if ended.is_some() {
                context.interrupted = ended == Some(UdpRowEndReason::Interrupted);
                break;
            }
        }
        Ok(self.result(started, rows, &context))
    }

    fn result(
        self,
        started: String,
        rows: Vec<PathUdpRow>,
        context: &UdpRunContext,
    ) -> PathUdpResult {
        let (options, to) = (self.options, self.to);
        let broadcast = load::load_destination(&options, to) == LoadAddressingMode::Broadcast;
        let has_load = options.rows.iter().any(|row| row.load_ratio > 0.0);
        let mut result = PathUdpResult {
            schema: PATH_UDP_SCHEMA.to_owned(),
            started,
            host: Host::read(),
            target: PathTarget {
                name: options.target.to_string(),
                address: to.ip(),
                port: to.port(),
                mtu: self.far_end.mtu.into(),
                same_clock: self.far_end.same_clock,
                clock_error_ns: self.far_end.clock_error_ns,
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
        result.findings = findings::all_findings(&result, context);
        result
    }

    /// Runs one row: opens its flows, runs them with the load, and returns the record.
    fn run_row(
        &self,
        plan: &UdpRowPlan,
        clock: ClockOffset,
        is_over: &(dyn Fn() -> bool + Sync),
        (sampler, part): (&mut LiveSampler<'_>, &PartPlan),
    ) -> Result<PathUdpRow, UdpPathError> {
        let options = &self.options;
        let flows = (0..options.flows).map(|_| UdpFlow::open(options, self.to, plan.length));
        let flows = match flows.collect::<Result<Vec<_>, _>>() {
            Ok(flows) => flows,
            Err(UdpPathError::NoReply(..)) => {
                return Ok(self.unstarted_row(plan, UdpRowEndReason::Vanished));
            }
            Err(UdpPathError::NothingListens(..)) => {
                return Ok(self.unstarted_row(plan, UdpRowEndReason::Closed));
            }
            Err(error) => return Err(error),
        };
        let load = (plan.load_ratio > 0.0)
            .then(|| PathLoadGenerator::open(options, self.to))
            .transpose()?;
        if options.kernel_timestamps {
            sleep_until(ClockMonotonic.now() + TIMESTAMPING_DELAY);
        }
        let warm_up = options.warm_up as u32;
        let requests_per_flow = options.count.map(|count| count.div_ceil(options.flows) as u32);
        let shared = SharedRowState {
            to: self.to,
            warm_up,
            count: requests_per_flow.map(|count| count + warm_up),
            // If the number of requests ends the row, time is practically unlimited.
            time: if requests_per_flow.is_some() { Duration::from_hours(24) } else { options.time },
            timeout: options.timeout,
            busy_polling: options.busy_polling,
            is_over,
            is_row_ended: AtomicBool::new(false),
            gate: LoadRatioPacer::new(plan.load_ratio),
        };
        let session = match flows.first().map(|flow| flow.codec) {
            Some(ProbeCodec::Horolog { session }) => session,
            _ => 0,
        };
        let is_done = AtomicBool::new(false);
        let all = sampler.sample_during(part, flows.len(), |slots| {
            thread::scope(|scope| {
                let (shared, is_done) = (&shared, &is_done);
                let loading =
                    load.map(|load| scope.spawn(move || load.send_load(shared, session, is_done)));
                let all = self.run_flows(flows, shared, clock.offset, slots);
                is_done.store(true, Ordering::Release);
                // A thread that panicked has already published its counts.
                loading.map(thread::ScopedJoinHandle::join);
                all
            })
        });
        // The last load datagrams have been sent before the counts are requested.
        let all: Vec<_> = all
            .into_iter()
            .map(|(one, flow, late)| (with_final_counts(one, &flow), flow, late))
            .collect();
        Ok(row::row_record(plan, self.row_outcome(plan, &shared, &all)))
    }

    /// Returns the plan of a row for the observer.
    fn part_plan(&self, index: usize, plan: &UdpRowPlan) -> PartPlan {
        let options = &self.options;
        let by_count = options.count.zip(options.rate).map(|(count, rate)| count as f64 / rate);
        let by_time = options.count.is_none().then_some(options.time.as_secs_f64());
        PartPlan {
            index,
            count: Some(options.rows.len()),
            name: row::row_name(plan),
            intended_rate: options.rate,
            duration_s: by_time.or(by_count),
            ..PartPlan::default()
        }
    }

    /// Runs all flows in parallel; returns outcome, flow and send lateness (`None` for ping-pong)
    /// of each. Flows whose thread failed are left out.
    fn run_flows(
        &self,
        flows: Vec<UdpFlow>,
        shared: &SharedRowState<'_>,
        offset: Span,
        slots: Option<&ProgressSlots>,
    ) -> Vec<(FlowOutcome, UdpFlow, Option<Histogram>)> {
        let start = ClockMonotonic.now() + START_LEAD;
        let publisher_of = |index| Some(ProgressPublisher::new(slots?.slot(index)?, start));
        thread::scope(|scope| {
            let threads: Vec<_> = flows
                .into_iter()
                .enumerate()
                .map(|(index, flow)| {
                    let offset_and_publisher = (offset, publisher_of(index));
                    match self.options.rate {
                        None => scope
                            .spawn(move || self.run_ping_pong(flow, shared, offset_and_publisher)),
                        Some(rate) => {
                            let phase = Span::from_ns((index as f64 * 1e9 / rate) as i64);
                            let begin = start + phase;
                            scope.spawn(move || {
                                self.run_open_loop(
                                    flow,
                                    shared,
                                    offset_and_publisher,
                                    (rate, begin),
                                )
                            })
                        }
                    }
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
        })
    }

    fn run_ping_pong(
        &self,
        mut flow: UdpFlow,
        shared: &SharedRowState<'_>,
        offset_and_publisher: (Span, Option<ProgressPublisher<'_>>),
    ) -> Option<(FlowOutcome, UdpFlow, Option<Histogram>)> {
        let window = DuplicateWindow::new(WINDOW_LEN_RANGE.0 as u64).ok()?;
        let stats = self.flow_stats();
        let outcome = ping_pong(&mut flow, shared, stats, &window, offset_and_publisher);
        Some((outcome, flow, None))
    }

    fn run_open_loop(
        &self,
        flow: UdpFlow,
        shared: &SharedRowState<'_>,
        (offset, publisher): (Span, Option<ProgressPublisher<'_>>),
        (rate, start): (f64, Timestamp<Monotonic>),
    ) -> Option<(FlowOutcome, UdpFlow, Option<Histogram>)> {
        let options = &self.options;
        let own_rate = rate / options.flows as f64;
        let by_time = (own_rate * options.time.as_secs_f64()).ceil().max(1.0) as u32;
        let count = shared.count.unwrap_or(by_time.saturating_add(shared.warm_up));
        let schedule = FlowSchedule { start, interval_ns: 1e9 / own_rate, count };
        let window_len = (own_rate * options.timeout.as_secs_f64() * 2.0)
            .clamp(WINDOW_LEN_RANGE.0, WINDOW_LEN_RANGE.1);
        let window_len = (window_len as usize).next_power_of_two();
        let flow_shared =
            SharedFlowState::new(DuplicateWindow::new(window_len as u64).ok()?, window_len);
        let socket = flow.socket.try_clone().ok()?;
        let out = vec![0; flow.send_buffer.len()];
        let codec = flow.codec;
        let left_at = if flow.kernel_timestamps { vec![0; window_len] } else { Vec::new() };
        let (sent, (mut outcome, flow)) = thread::scope(|scope| {
            let between = &flow_shared;
            let sender = FlowSender {
                socket: &socket,
                codec,
                send_buffer: out,
                shared,
                flow_shared: between,
                schedule,
                utc_offset: offset,
            };
            let sending = scope.spawn(move || sender.send_all());
            let stats = self.flow_stats();
            let receiver = FlowReceiver {
                flow,
                stats,
                shared,
                flow_shared: between,
                schedule,
                utc_offset: offset,
                transmit_timestamps: left_at,
                publisher,
            };
            let received = receiver.receive_all();
            sending.join().ok().map(|sent| (sent, received))
        })?;
        outcome.stats.counts.sent = sent.sent_count;
        outcome.stats.counts.refused = sent.refused;
        (outcome.started_at, outcome.ended_at) = (sent.first_sent_at, sent.last_sent_at);
        Some((outcome, flow, Some(sent.send_late)))
    }

    fn flow_stats(&self) -> FlowStats {
        let timeout = Span::from_ns(self.options.timeout.as_nanos() as i64);
        FlowStats::new(self.options.warm_up as u32, timeout)
    }

    fn row_outcome(
        &self,
        plan: &UdpRowPlan,
        shared: &SharedRowState<'_>,
        all: &[(FlowOutcome, UdpFlow, Option<Histogram>)],
    ) -> UdpRowOutcome {
        let options = &self.options;
        let mut stats = self.flow_stats();
        let mut late: Option<Histogram> = None;
        let mut sum = FlowSums::default();
        for (outcome, flow, own_late) in all {
            stats.merge(&outcome.stats);
            if let Some(own) = own_late {
                late.get_or_insert_default().merge(own);
            }
            sum.add(outcome, flow);
        }
        let ended = sum.end_reason.or((shared.is_over)().then_some(UdpRowEndReason::Interrupted));
        let relaxed = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let gate = &shared.gate;
        let sent = gate.load_sent().saturating_sub(relaxed(&gate.load_before_measurement));
        let valid = gate.valid_sent().saturating_sub(relaxed(&gate.valid_before_measurement));
        let ratio = if valid == 0 { 0.0 } else { sent as f64 / valid as f64 };
        let far_error = stats.far_error.zip(local_error_bound_ns());
        let by_reply = far_error.map(|(far, own)| far.as_ns().unsigned_abs().saturating_add(own));
        UdpRowOutcome {
            directions: sum.directions.filter(|_| sum.have_far_counts),
            host_losses: Some(sum.host_losses),
            load_received: gate.has_load().then_some(sum.load_received),
            duration: sum.started_at.map_or(Span::ZERO, |begun| sum.ended_at - begun),
            clock_error_ns: if options.is_stamp { by_reply } else { self.far_end.clock_error_ns },
            load: PathLoad {
                planned_ratio: plan.load_ratio,
                ratio,
                sent,
                sent_in_all: gate.load_sent(),
                arrived: None,
            },
            reply_traffic_class: sum.reply_traffic_class,
            end_reason: ended,
            intended_rate: options.rate,
            fragments: self.fragment_count(plan),
            receives_class: options.dscp != 0,
            stats,
            send_late: late,
        }
    }

    fn fragment_count(&self, plan: &UdpRowPlan) -> u64 {
        row::fragment_count(plan.length, self.far_end.mtu.into(), self.to.is_ipv6())
    }

    /// Returns the record of a row that could not be started.
    fn unstarted_row(&self, plan: &UdpRowPlan, ended: UdpRowEndReason) -> PathUdpRow {
        let outcome = UdpRowOutcome {
            stats: self.flow_stats(),
            directions: None,
            host_losses: None,
            load_received: None,
            send_late: None,
            duration: Span::ZERO,
            clock_error_ns: None,
            load: PathLoad { planned_ratio: plan.load_ratio, ..PathLoad::default() },
            reply_traffic_class: None,
            end_reason: Some(ended),
            intended_rate: self.options.rate,
            fragments: self.fragment_count(plan),
            receives_class: false,
        };
        row::row_record(plan, outcome)
    }
}

/// Adds the far end's final counts, if it still answers, and the drops at this host's socket.
fn with_final_counts(mut outcome: FlowOutcome, flow: &UdpFlow) -> FlowOutcome {
    if outcome.end_reason.is_none()
        && let Some(counts_header) = flow.end_session()
    {
        outcome.stats.far_counts = Some(counts_header.counts);
        outcome.stats.far_losses = counts_header.losses();
    }
    outcome.stats.dropped = flow.socket.drops().ok().map(u64::from);
    outcome
}
