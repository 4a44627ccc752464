//! A run over a path from its options to its record: the far end is found and asked who it is, then
//! one row after the other gets its flows, its threads and its load.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::target::{is_public, require_unicast};
use horolog_record::{
    Host, PATH_UDP_SCHEMA, PathCost, PathLoad, PathMode, PathProtocol, PathRow, PathTarget,
    PathUdpResult, RowEnd, Slots, StampKind, Telling, rfc3339_now,
};
use horolog_stats::{Recorder, SeenWindow};
use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_sys::packet::interface_index;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::super::looks::{Lookout, Onlooker, Under};
use super::books::Books;
use super::codec::Codec;
use super::cost;
use super::error::PathError;
use super::findings::{self, Circumstances};
use super::flow::Flow;
use super::load::{self, Load};
use super::looks;
use super::open_loop::{Between, Receiver, Schedule, Sender};
use super::options::{LoadKind, PathUdpOptions, RowPlan};
use super::ping_pong::{Brought, ping_pong};
use super::prepare::{Found, check, find, own_error_ns};
use super::row::{self, Outcome};
use super::shared::{Gate, Shared};
use super::sum::Sum;

/// The kernel takes a moment to begin with timestamps when somebody asks for them.
const SETTLING: Span = Span::from_ms(20);
/// From the making of the threads to the first request at a fixed rate.
const LEAD: Span = Span::from_ms(5);
/// Requests of which an answer is recognised, at least and at most.
const REACH: (f64, f64) = (4_096.0, 4_194_304.0);

/// A run that can begin.
#[derive(Debug)]
pub struct PathUdp {
    options: PathUdpOptions,
    to: SocketAddr,
    found: Found,
    cost: PathCost,
}

impl PathUdp {
    /// Checks the options, finds the far end and asks it who it is.
    ///
    /// # Errors
    ///
    /// When the options cannot be, or nobody answers.
    pub fn prepare(mut options: PathUdpOptions) -> Result<Self, PathError> {
        check(&options)?;
        options.warm_up = options.warm_up_within_time();
        let mut to = options.target.resolve(options.family)?;
        require_unicast(to.ip())?;
        if options.is_stamp && is_public(to.ip()) && !options.i_own_this_target {
            return Err(PathError::Public(to.ip()));
        }
        if let Some(name) = &options.interface {
            let index = interface_index(name);
            let index = index.map_err(|_| PathError::NoInterface(name.clone()))?;
            if let SocketAddr::V6(v6) = &mut to {
                v6.set_scope_id(index);
            }
        } else if matches!(to.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Err(PathError::NeedsInterface(to.ip()));
        }
        let found = find(&options, to)?;
        Ok(Self { options, to, found, cost: cost::measure() })
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.options.rows.len()
    }

    /// Measures all rows and returns the record. `progress` is told of each row when it begins;
    /// `is_over` says when to end early, and `onlooker` sees how it goes meanwhile.
    ///
    /// # Errors
    ///
    /// When load cannot be sent as it was asked for.
    pub fn run(
        self,
        progress: &dyn Fn(usize, &RowPlan),
        is_over: &(dyn Fn() -> bool + Sync),
        onlooker: Option<&dyn Onlooker>,
    ) -> Result<PathUdpResult, PathError> {
        let started = rfc3339_now();
        let mut lookout = Lookout::new();
        let mut rows: Vec<PathRow> = Vec::new();
        let mut circumstances = Circumstances::default();
        for (index, plan) in self.options.rows.iter().enumerate() {
            if is_over() {
                circumstances.interrupted = true;
                break;
            }
            progress(index, plan);
            let clock = realtime_minus_monotonic();
            let name = looks::name(plan);
            let under = self.under(index, &name);
            let looking = onlooker.map(|onlooker| (onlooker, &lookout, under));
            let row = self.row(plan, clock, is_over, looking)?;
            if let Some(onlooker) = onlooker {
                lookout.end(onlooker, under, looks::counts(&row), looks::ended(&row));
            }
            if !clock.agrees(realtime_minus_monotonic()) {
                circumstances.stepped.push(index);
            }
            let ended = row.ended;
            // Of one that was ended in its warm-up there is nothing to show.
            if ended != Some(RowEnd::Interrupted) || row.counts.sent > 0 {
                rows.push(row);
            }
            if ended.is_some() {
                circumstances.interrupted = ended == Some(RowEnd::Interrupted);
                break;
            }
        }
        Ok(self.result(started, rows, &circumstances))
    }

    fn result(
        self,
        started: String,
        rows: Vec<PathRow>,
        circumstances: &Circumstances,
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
            mode: if options.rate.is_some() { PathMode::OpenLoop } else { PathMode::PingPong },
            flows: options.flows,
            busy_polling: options.busy_polling,
            timestamps: if options.kernel_timestamps { StampKind::Kernel } else { StampKind::User },
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

    /// One row, from the opening of its flows to its record.
    fn row(
        &self,
        plan: &RowPlan,
        clock: ClockOffset,
        is_over: &(dyn Fn() -> bool + Sync),
        looks: Option<(&dyn Onlooker, &Lookout, Under<'_>)>,
    ) -> Result<PathRow, PathError> {
        let options = &self.options;
        let flows = (0..options.flows).map(|_| Flow::open(options, self.to, plan.length));
        let flows = match flows.collect::<Result<Vec<_>, _>>() {
            Ok(flows) => flows,
            Err(PathError::Silent(..)) => return Ok(self.missed(plan, RowEnd::Vanished)),
            Err(PathError::Refused(..)) => return Ok(self.missed(plan, RowEnd::Closed)),
            Err(error) => return Err(error),
        };
        let load = (plan.load_ratio > 0.0).then(|| Load::open(options, self.to)).transpose()?;
        if options.kernel_timestamps {
            sleep_until(MonotonicClock.now() + SETTLING);
        }
        let warm_up = options.warm_up as u32;
        let each = options.count.map(|count| count.div_ceil(options.flows) as u32);
        let shared = Shared {
            to: self.to,
            warm_up,
            count: each.map(|count| count + warm_up),
            // A number of requests takes as long as it takes.
            time: if each.is_some() { Duration::from_hours(24) } else { options.time },
            timeout: options.timeout,
            busy_polling: options.busy_polling,
            is_over,
            ended: AtomicBool::new(false),
            gate: Gate::new(plan.load_ratio),
        };
        let session = match flows.first().map(|flow| flow.codec) {
            Some(Codec::Horolog { session }) => session,
            _ => 0,
        };
        let is_done = AtomicBool::new(false);
        let slots = looks.map(|_| Slots::new(flows.len()));
        let all = thread::scope(|scope| {
            let (shared, is_done, slots) = (&shared, &is_done, slots.as_ref());
            if let (Some((onlooker, lookout, under)), Some(slots)) = (looks, slots) {
                scope.spawn(move || lookout.watch(onlooker, under, slots, is_done));
            }
            let loading = load.map(|load| scope.spawn(move || load.run(shared, session, is_done)));
            let all = self.flows(flows, shared, clock.offset, slots);
            is_done.store(true, Ordering::Release);
            // A thread that died sent what it counted.
            loading.map(thread::ScopedJoinHandle::join);
            all
        });
        // The last of the load is under way before what came is asked for.
        let all: Vec<_> =
            all.into_iter().map(|(one, flow, late)| (tallied(one, &flow), flow, late)).collect();
        Ok(row::record(plan, self.outcome(plan, &shared, &all)))
    }

    /// A row as those see it who look on.
    fn under<'a>(&self, index: usize, name: &'a str) -> Under<'a> {
        let options = &self.options;
        let by_count = options.count.zip(options.rate).map(|(count, rate)| count as f64 / rate);
        let by_time = options.count.is_none().then_some(options.time.as_secs_f64());
        Under {
            index,
            name,
            rate: options.rate,
            duration_s: by_time.or(by_count),
            is_transfer: false,
        }
    }

    /// All flows side by side.
    fn flows(
        &self,
        flows: Vec<Flow>,
        shared: &Shared<'_>,
        offset: Span,
        slots: Option<&Slots>,
    ) -> Vec<(Brought, Flow, Option<Recorder>)> {
        let start = MonotonicClock.now() + LEAD;
        let telling = |index| Some(Telling::new(slots?.of(index)?, start));
        thread::scope(|scope| {
            let threads: Vec<_> = flows
                .into_iter()
                .enumerate()
                .map(|(index, flow)| {
                    let told = (offset, telling(index));
                    match self.options.rate {
                        None => scope.spawn(move || self.ping_pong(flow, shared, told)),
                        Some(rate) => {
                            let phase = Span::from_ns((index as f64 * 1e9 / rate) as i64);
                            let begin = start + phase;
                            scope.spawn(move || self.open_loop(flow, shared, told, (rate, begin)))
                        }
                    }
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
        })
    }

    fn ping_pong(
        &self,
        mut flow: Flow,
        shared: &Shared<'_>,
        told: (Span, Option<Telling<'_>>),
    ) -> Option<(Brought, Flow, Option<Recorder>)> {
        let seen = SeenWindow::new(REACH.0 as u64).ok()?;
        let books = self.books();
        let brought = ping_pong(&mut flow, shared, books, &seen, told);
        Some((brought, flow, None))
    }

    fn open_loop(
        &self,
        flow: Flow,
        shared: &Shared<'_>,
        (offset, telling): (Span, Option<Telling<'_>>),
        (rate, start): (f64, Timestamp<Monotonic>),
    ) -> Option<(Brought, Flow, Option<Recorder>)> {
        let options = &self.options;
        let own_rate = rate / options.flows as f64;
        let by_time = (own_rate * options.time.as_secs_f64()).ceil().max(1.0) as u32;
        let count = shared.count.unwrap_or(by_time.saturating_add(shared.warm_up));
        let schedule = Schedule { start, interval_ns: 1e9 / own_rate, count };
        let reach = (own_rate * options.timeout.as_secs_f64() * 2.0).clamp(REACH.0, REACH.1);
        let reach = (reach as usize).next_power_of_two();
        let between = Between::new(SeenWindow::new(reach as u64).ok()?, reach);
        let socket = flow.socket.try_clone().ok()?;
        let out = vec![0; flow.out.len()];
        let codec = flow.codec;
        let left_at = if flow.kernel { vec![0; reach] } else { Vec::new() };
        let (sent, (mut brought, flow)) = thread::scope(|scope| {
            let between = &between;
            let sender = Sender { socket: &socket, codec, out, shared, between, schedule, offset };
            let sending = scope.spawn(move || sender.run());
            let books = self.books();
            let receiver =
                Receiver { flow, books, shared, between, schedule, offset, left_at, telling };
            let received = receiver.run();
            sending.join().ok().map(|sent| (sent, received))
        })?;
        brought.books.counts.sent = sent.left;
        brought.books.counts.refused = sent.refused;
        (brought.begun, brought.over) = (sent.begun, sent.over);
        Some((brought, flow, Some(sent.late)))
    }

    fn books(&self) -> Books {
        let timeout = Span::from_ns(self.options.timeout.as_nanos() as i64);
        Books::new(self.options.warm_up as u32, timeout)
    }

    fn outcome(
        &self,
        plan: &RowPlan,
        shared: &Shared<'_>,
        all: &[(Brought, Flow, Option<Recorder>)],
    ) -> Outcome {
        let options = &self.options;
        let mut books = self.books();
        let mut late: Option<Recorder> = None;
        let mut sum = Sum::default();
        for (brought, flow, own_late) in all {
            books.merge(&brought.books);
            if let Some(own) = own_late {
                late.get_or_insert_default().merge(own);
            }
            sum.add(brought, flow);
        }
        let ended = sum.ended.or((shared.is_over)().then_some(RowEnd::Interrupted));
        let relaxed = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let gate = &shared.gate;
        let sent = gate.sent().saturating_sub(relaxed(&gate.load_before));
        let valid = gate.valid().saturating_sub(relaxed(&gate.valid_before));
        let ratio = if valid == 0 { 0.0 } else { sent as f64 / valid as f64 };
        let far_error = books.far_error.zip(own_error_ns());
        let by_reply = far_error.map(|(far, own)| far.as_ns().unsigned_abs().saturating_add(own));
        Outcome {
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
            tells_class: options.dscp != 0,
            books,
            late,
        }
    }

    fn fragments(&self, plan: &RowPlan) -> u64 {
        row::fragments(plan.length, self.found.mtu.into(), self.to.is_ipv6())
    }

    /// A row that could not begin.
    fn missed(&self, plan: &RowPlan, ended: RowEnd) -> PathRow {
        let outcome = Outcome {
            books: self.books(),
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
            tells_class: false,
        };
        row::record(plan, outcome)
    }
}

/// With what the far end counted to the end, where it is still there, and this host's socket lost.
fn tallied(mut brought: Brought, flow: &Flow) -> Brought {
    if brought.ended.is_none()
        && let Some(tally) = flow.end()
    {
        brought.books.counted = Some(tally.counted);
        brought.books.far_losses = tally.losses();
    }
    brought.books.dropped = flow.socket.drops().ok().map(u64::from);
    brought
}
