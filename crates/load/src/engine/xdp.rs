//! The engine inside the kernel: requests are made, paced, matched and judged by a BPF program, and
//! this file plans and adds up. It needs Linux 5.18, the privilege to load BPF programs and an
//! interface with native XDP; each lane takes one processor for itself while it sends.
//!
//! The program drops the replies that it has counted, so the network stack never sees them. The
//! server has to route replies for simulated clients to an address of this host.

mod books;
mod frames;
mod legs;
mod settings;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_record::{Engine as Kind, SoFar, Spacing};
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_sys::signal::InterruptibleThread;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_xdp::{Generator, Lane, TrialSettings};

use self::books::Books;
use self::settings::settings;

use super::drain::{Drain, GRACE, LEAD};
use super::intervals::Shares;
use super::membership::Membership;
use super::{Engine, EngineError, Intervals, unfit};
use crate::account::TrialCounts;
use crate::clients::LaneClients;
use crate::course::{Course, Instants};
use crate::plan::{RunPlan, TrialPlan};
use crate::schedule::{self, FRACTION_BITS};
use crate::silence::Listener;

/// The rate from which on a lane gets a second one's help: a lane that also receives its replies
/// keeps its schedule well beyond.
const LANE_RATE: f64 = 1e6;

/// Between two looks at whether a lane has ended, and at how the trial stands.
const LOOK: Duration = Duration::from_millis(1);

/// Between two looks at whether replies still come.
const DRAIN_PAUSE: Span = Span::from_ns(100_000);

/// Requests of one lane that may wait for their replies at the same time: the program keeps a bit
/// for each of so many.
const IN_FLIGHT_MAX: f64 = (1 << 24) as f64;

/// The in-kernel engine, in place on its interface.
pub struct XdpEngine {
    /// One, or the kinds of requests of a mix in their order. The first one's program is attached,
    /// and each hands on what is not its own to the next.
    parts: Vec<Part>,
}

/// One kind of requests.
struct Part {
    generator: Generator,
    plan: RunPlan,
    /// Sequence number at which each lane goes on.
    sequences: Vec<u32>,
    /// How many numbers of each lane were asked, from 0 on.
    asked: Vec<u32>,
    /// Keeps this host in the group that replies go to.
    _membership: Option<Membership>,
}

impl XdpEngine {
    /// Loads the program and attaches it to the interface of the plan's route.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let generator = Generator::attach(&settings(plan, false)?)?;
        Ok(Self { parts: vec![Part::new(plan, generator)?] })
    }

    /// Loads a program for each plan, of which there has to be one, and attaches them to the
    /// interface of their route.
    pub(crate) fn open_mix(plans: &[RunPlan]) -> Result<Self, EngineError> {
        let settings = plans.iter().map(|plan| settings(plan, true));
        let generators = Generator::attach_chain(&settings.collect::<Result<Vec<_>, _>>()?)?;
        let parts =
            plans.iter().zip(generators).map(|(plan, generator)| Part::new(plan, generator));
        Ok(Self { parts: parts.collect::<Result<_, _>>()? })
    }
}

impl Part {
    fn new(plan: &RunPlan, generator: Generator) -> Result<Self, EngineError> {
        // The last cores first: the first one takes most interrupts, and what is pinned elsewhere.
        let cores = plan.cores.iter().rev().copied().collect();
        let plan = RunPlan { cores, ..plan.clone() };
        let membership = Membership::of(&plan)?;
        let (sequences, asked) = (vec![0; plan.lanes], vec![0; plan.lanes]);
        Ok(Self { generator, plan, sequences, asked, _membership: membership })
    }

    /// Refuses a rate at which more could be on their way than are told apart.
    fn check(&self, trial: &TrialPlan, cores: &[usize]) -> Result<(), EngineError> {
        let in_flight = trial.rate * self.plan.reply_timeout.as_secs_f64();
        if in_flight <= IN_FLIGHT_MAX * cores.len() as f64 {
            return Ok(());
        }
        let reason = format!("{in_flight:.0} requests could wait for their replies at once");
        Err(unfit(Kind::Xdp, reason, "use a shorter --timeout or a lower rate"))
    }

    /// Divides clients and schedule over the lanes; all begin at `start`.
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
        for (number, &asked) in (0..).zip(&self.asked) {
            self.generator.set_asked_before(number, asked);
        }
        self.generator.set_trial(&TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_ahead_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: lanes as u32,
            clients_per_lane: trial.clients / lanes as u32,
            lanes_with_one_more: trial.clients % lanes as u32,
            random_room: random.map_or(0, |network| network.room()),
            exponential: trial.spacing == Spacing::Exponential,
            interval_ns: trial.interval().map_or(0, |interval| interval.as_ns() as u64),
            intervals: trial.course.as_ref().map_or(0, |course| course.intervals()),
        });
        // Behind the new start, so that no reply to the last trial is counted in this one.
        self.generator.clear();
        for (number, &core) in cores.iter().enumerate() {
            let mut lane = Lane {
                start_ns: start.as_ns() as u64,
                next: interval / lanes as u64 * number as u64,
                interval,
                end,
                give_up_ns: give_up.as_ns() as u64,
                number: number as u32,
                ..self.turn(self.plan.lane_clients(trial.clients, (number, lanes), 1), number)
            };
            if let Some(course) = &trial.course {
                self.set_course(&mut lane, course, lanes).ok_or_else(rate_error)?;
            }
            self.generator.set_lane(core as u32, &lane);
        }
        Ok(())
    }

    /// Puts a lane on the first leg of a course; `None` where a rate is too low for a schedule.
    fn set_course(&self, lane: &mut Lane, course: &Course, lanes: usize) -> Option<()> {
        let legs = legs::legs(course, (lane.number as usize, lanes))?;
        let first = legs.first()?;
        lane.next = first.first;
        lane.interval = first.interval;
        lane.leg_end = first.end;
        lane.phase_over_ns = lane.start_ns + first.phase_over_ns;
        lane.legs = legs.len() as u32;
        self.generator.set_legs(lane.number, &legs);
        Some(())
    }

    /// Where a lane goes on with its clients.
    fn turn(&self, clients: LaneClients, number: usize) -> Lane {
        let wrap = clients.wrap();
        // A lane begins with a fresh word of 64 in the books of answered requests.
        let sequence = match self.sequences[number].next_multiple_of(64) {
            sequence if sequence < wrap => sequence,
            _ => 0,
        };
        Lane {
            sequence,
            sequence_end: wrap,
            client: sequence % clients.count(),
            clients: clients.count(),
            client_base: clients.first(),
            active: 1,
            ..Lane::default()
        }
    }

    /// Looks at how its part of the trial stands: whether replies come, and whether an interval is
    /// over.
    fn look(&self, cores: &[usize], trial: &mut UnderWay<'_>, intervals: &mut dyn Intervals) {
        let now = MonotonicClock.now();
        let (answered, longest) = trial.books.answered(now - trial.start);
        if answered > trial.answered {
            // What has just come was asked for a round trip ago, at the most.
            trial.listener.heard(now - longest, self.sent(cores));
            trial.answered = answered;
        }
        if trial.course.is_some() {
            trial.books.look(now - trial.start, intervals);
        }
    }

    /// Ends the schedules of its lanes.
    fn end(&self, cores: &[usize]) {
        for &core in cores {
            self.generator.end_lane(core as u32);
        }
    }

    /// Requests sent in this trial.
    fn sent(&self, cores: &[usize]) -> u64 {
        cores.iter().map(|&core| self.generator.lane(core as u32).sent).sum()
    }

    /// Waits for the last replies.
    fn drain(&self, sent: u64, trial: &UnderWay<'_>) {
        let last_sent = MonotonicClock.now();
        let mut drain = Drain { last_sent, heard: last_sent, timeout: timeout(&self.plan) };
        let (mut answered, mut longest) = trial.books.answered(last_sent - trial.start);
        while answered < sent {
            let now = MonotonicClock.now();
            if drain.is_over(now, (longest > Span::ZERO).then_some(longest)) {
                break;
            }
            sleep_until(now + DRAIN_PAUSE);
            let before = answered;
            (answered, longest) = trial.books.answered(now - trial.start);
            if answered > before {
                drain.heard = MonotonicClock.now();
            }
        }
    }

    /// Requests that the lanes had planned and not made when they ended.
    fn left(&self, cores: &[usize], trial: &UnderWay<'_>) -> u64 {
        let left = |lane: &Lane| match trial.course {
            _ if lane.next >= lane.end => 0,
            None => (lane.end - lane.next).div_ceil(lane.interval.max(1)),
            Some(course) => Instants::new(course, cores.len()).left(lane.next),
        };
        cores.iter().map(|&core| left(&self.generator.lane(core as u32))).sum()
    }

    /// What the lanes tell of a trial besides the books: of one rate when its first and last
    /// requests left, too.
    fn told(&self, cores: &[usize], trial: &UnderWay<'_>) -> TrialCounts {
        let planned = self.left(cores, trial);
        let mut counts = TrialCounts { planned, ..TrialCounts::default() };
        counts.clients = books::clients(&self.generator);
        if trial.course.is_some() {
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

    /// When the last request left; the start where none did.
    fn last_sent(&self, cores: &[usize], start: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let last = cores.iter().map(|&core| self.generator.lane(core as u32).last_sent_ns).max();
        start.max(Timestamp::from_ns(last.unwrap_or(0) as i64))
    }

    /// Ends its part of a trial, early where `is_ended`: waits for the last replies and hands over
    /// what is open.
    fn finish(
        &self,
        cores: &[usize],
        trial: UnderWay<'_>,
        is_ended: bool,
        intervals: &mut dyn Intervals,
    ) {
        let sent = self.sent(cores);
        self.drain(sent, &trial);
        let mut told = self.told(cores, &trial);
        let last_sent = self.last_sent(cores, trial.start);
        told.silences = Some(trial.listener.close(last_sent, sent));
        let reached = if is_ended { last_sent - trial.start } else { trial.duration };
        trial.books.finish(reached, &told, intervals);
    }

    /// Notes where the lanes go on in the next trial.
    fn note_lanes(&mut self, cores: &[usize]) {
        for (number, &core) in cores.iter().enumerate() {
            let Lane { sequence, sent, .. } = self.generator.lane(core as u32);
            let has_wrapped = sent > u64::from(sequence);
            self.asked[number] =
                if has_wrapped { u32::MAX } else { self.asked[number].max(sequence) };
            self.sequences[number] = sequence;
        }
    }
}

impl XdpEngine {
    /// The cores of a trial's lanes, of which every part has one on each: as many as the rate of
    /// all takes, so that the others are left to a server on the same machine.
    fn cores(&self, trial: &TrialPlan) -> Vec<usize> {
        let Some(first) = self.parts.first() else { return Vec::new() };
        let most = self.parts.iter().map(|part| part.plan.lanes).min().unwrap_or(1);
        let in_flight = trial.rate * first.plan.reply_timeout.as_secs_f64();
        let lanes = (trial.rate / LANE_RATE).max(in_flight / IN_FLIGHT_MAX).ceil() as usize;
        first.plan.cores[..lanes.clamp(1, most)].to_vec()
    }

    /// Sends on all cores at once until the schedules of all lanes have ended; says whether they
    /// were ended early.
    fn send(
        &self,
        cores: &[usize],
        batch: u32,
        trials: &mut [UnderWay<'_>],
        shares: &mut Shares<'_>,
    ) -> Result<bool, EngineError> {
        let generators: Vec<_> = self.parts.iter().map(|part| &part.generator).collect();
        let (generators, mut is_ended) = (&*generators, false);
        thread::scope(|scope| {
            let senders: Vec<_> = cores
                .iter()
                .map(|&core| {
                    let (handle, thread) = mpsc::channel();
                    let sender = Sender { generators, core, batch };
                    (scope.spawn(move || sender.run(&handle)), thread, core)
                })
                .collect();
            for (task, thread, core) in &senders {
                let Ok(thread) = thread.recv() else { continue };
                while !is_done(generators, *core) && !task.is_finished() {
                    thread::sleep(LOOK);
                    is_ended |= self.look(cores, trials, shares);
                }
                // The thread may be between two calls when a signal comes: repeat it.
                while !task.is_finished() {
                    thread.interrupt().map_err(EngineError::system("end a sending thread"))?;
                    thread::sleep(LOOK);
                }
            }
            senders.into_iter().try_for_each(|(task, ..)| {
                task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        Ok(is_ended)
    }

    /// Looks at how a trial stands, and ends it where it is not to go on.
    fn look(&self, cores: &[usize], trials: &mut [UnderWay<'_>], shares: &mut Shares<'_>) -> bool {
        for (index, (part, trial)) in self.parts.iter().zip(&mut *trials).enumerate() {
            part.look(cores, trial, &mut shares.part(index));
        }
        let elapsed = trials.first().map_or(Span::ZERO, |trial| MonotonicClock.now() - trial.start);
        if shares.look_is_due(elapsed) {
            let mut so_far = SoFar::default();
            for trial in &*trials {
                trial.books.so_far(elapsed, &mut so_far);
            }
            shares.look(elapsed, &so_far);
        }
        let is_over = shares.tick(elapsed).is_break();
        if is_over {
            self.parts.iter().for_each(|part| part.end(cores));
        }
        is_over
    }
}

/// Whether the lanes of all parts on a core have ended.
fn is_done(generators: &[&Generator], core: usize) -> bool {
    generators.iter().all(|generator| generator.lane(core as u32).done != 0)
}

impl Engine for XdpEngine {
    fn kind(&self) -> Kind {
        Kind::Xdp
    }

    fn run(&mut self, trial: &TrialPlan, intervals: &mut dyn Intervals) -> Result<(), EngineError> {
        let cores = self.cores(trial);
        let whole = std::slice::from_ref(trial);
        let of_parts: Vec<_> = trial.parts.iter().map(|part| trial.of_part(part)).collect();
        let plans = if of_parts.is_empty() { whole } else { &of_parts };
        let parts = || self.parts.iter().zip(plans);
        parts().try_for_each(|(part, plan)| part.check(plan, &cores))?;
        let start = MonotonicClock.now() + LEAD;
        parts().try_for_each(|(part, plan)| part.prepare(plan, &cores, start))?;
        let mut under_way: Vec<_> =
            parts().map(|(part, plan)| UnderWay::new(part, plan, start)).collect();
        let mut shares = Shares::new(plans.len(), intervals);
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

/// A part of a trial that is under way.
struct UnderWay<'a> {
    start: Timestamp<Monotonic>,
    duration: Span,
    listener: Listener,
    /// Requests that were answered at the last look.
    answered: u64,
    course: Option<&'a Course>,
    books: Books<'a>,
}

impl<'a> UnderWay<'a> {
    fn new(part: &'a Part, plan: &'a TrialPlan, start: Timestamp<Monotonic>) -> Self {
        let course = plan.course.as_deref();
        Self {
            start,
            duration: Span::from_ns(plan.duration.as_nanos() as i64),
            listener: Listener::new(start),
            answered: 0,
            course,
            books: Books::new(&part.generator, &part.plan, course),
        }
    }
}

fn timeout(plan: &RunPlan) -> Span {
    Span::from_ns(plan.reply_timeout.as_nanos() as i64)
}

/// How many frames the kernel asks the program for before it sends what is due. A frame leaves at
/// the end of its batch, so a slow lane wants small ones; asking costs less in large ones.
fn batch(rate: f64) -> u32 {
    if rate < 500_000.0 { 16 } else { 64 }
}

/// The thread that sends for the lanes on a core.
struct Sender<'a> {
    /// The first one sends for all.
    generators: &'a [&'a Generator],
    core: usize,
    batch: u32,
}

impl Sender<'_> {
    fn run(self, handle: &mpsc::Sender<InterruptibleThread>) -> Result<(), EngineError> {
        let thread = InterruptibleThread::current()
            .map_err(EngineError::system("make a sending thread interruptible"))?;
        affinity::pin_to_core(self.core).map_err(EngineError::system("pin a sending thread"))?;
        // Whoever listens ends the call; if nobody does any more, there is nothing to send for.
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
