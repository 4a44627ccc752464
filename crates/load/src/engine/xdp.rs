//! The engine inside the kernel: requests are made, paced, matched and judged by a BPF program, and
//! this file plans and adds up. It needs Linux 5.18, the privilege to load BPF programs and an
//! interface with native XDP; each lane takes one processor for itself while it sends.
//!
//! The program drops the replies that it has counted, so the network stack never sees them. The
//! server has to route replies for simulated clients to an address of this host.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_record::{Engine as Kind, InvalidReason, Spacing};
use horolog_stats::{Recorder, SignedRecorder};
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_sys::signal::InterruptibleThread;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_xdp::{
    Generator, GeneratorSettings, Interface, LANES_MAX, Lane, OffsetSettings, Protocol,
    RawHistogram, TrialSettings, XdpError,
};

use super::drain::{Drain, GRACE, LEAD};
use super::membership::Membership;
use super::packet::frame_plans;
use super::{Engine, EngineError, unfit};
use crate::account::{PtpCounts, TrialCounts};
use crate::clients::LaneClients;
use crate::offset::OffsetCounts;
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::PtpKind;
use crate::request::{FramePlan, FrameTemplate};
use crate::schedule::{self, FRACTION_BITS};

/// The rate from which on a lane gets a second one's help: a lane that also receives its replies
/// keeps its schedule well beyond.
const LANE_RATE: f64 = 1e6;

/// Between two looks at whether a lane has ended, or whether replies still come.
const LOOK: Duration = Duration::from_millis(1);

/// Between two looks at whether replies still come.
const DRAIN_PAUSE: Span = Span::from_ns(100_000);

/// Requests of one lane that may wait for their replies at the same time: the program keeps a bit
/// for each of so many.
const IN_FLIGHT_MAX: f64 = (1 << 24) as f64;

/// The in-kernel engine, in place on its interface.
pub struct XdpEngine {
    generator: Generator,
    plan: RunPlan,
    /// Sequence number at which each lane goes on.
    sequences: Vec<u32>,
    /// Keeps this host in the group that replies go to.
    _membership: Option<Membership>,
}

impl XdpEngine {
    /// Loads the program and attaches it to the interface of the plan's route.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let (link, frames) = frame_plans(plan, Kind::Xdp)?;
        if plan.lanes > plan.cores.len() || plan.lanes > LANES_MAX {
            let reason = format!(
                "each of {} sending threads takes a core, and there are {}",
                plan.lanes,
                plan.cores.len().min(LANES_MAX)
            );
            return Err(unfit(Kind::Xdp, reason, "use fewer threads"));
        }
        let (Some(network), Some(frame)) = (plan.network, frames.first()) else {
            let reason = "it has no simulated clients".to_owned();
            return Err(unfit(Kind::Xdp, reason, "name a source network with -s"));
        };
        if !horolog_xdp::live_frames_supported()? {
            return Err(XdpError::NoLiveFrames.into());
        }
        let template = FrameTemplate::new(&match frame.ptp {
            // The program fills the lane's port in.
            None => FramePlan { source_port: 0, ..*frame },
            Some(_) => *frame,
        });
        let generator = Generator::attach(&GeneratorSettings {
            protocol: match plan.ptp.map(|ptp| ptp.kind) {
                None => Protocol::Ntp,
                Some(PtpKind::Delay) => Protocol::PtpDelay,
                Some(PtpKind::Nsm) => Protocol::PtpMonitor,
            },
            multicast: plan.ptp.is_some_and(|ptp| ptp.multicast),
            domain: plan.ptp.map_or(0, |ptp| ptp.domain),
            offsets: plan.offset.map(|offset| OffsetSettings {
                correction_ns: offset.correction.as_ns(),
                mean_of_server: offset.mean_of_server,
            }),
            interface: Interface { index: link.index, name: link.interface.clone() },
            target: plan.target.ip(),
            port: plan.target.port(),
            version: plan.version,
            lanes: plan.lanes as u32,
            echo: plan.echo,
            interleaved: plan.interleaved,
            clients: plan.clients,
            key: plan.token.key(),
            run_start_ns: plan.token.run_start().as_ns() as u64,
            reply_timeout_ns: plan.reply_timeout.as_nanos() as u64,
            request: template.bytes().to_vec(),
            sums: template.constant_sums(),
            first_client: network.address(0),
            exponential: schedule::exponential_quantiles(),
        })?;
        // The last cores first: the first one takes most interrupts, and what is pinned elsewhere.
        let cores = plan.cores.iter().rev().copied().collect();
        let plan = RunPlan { cores, ..plan.clone() };
        let membership = Membership::of(&plan)?;
        let sequences = vec![0; plan.lanes];
        Ok(Self { generator, plan, sequences, _membership: membership })
    }

    /// The cores of a trial's lanes: as many as the rate takes, so that the others are left to a
    /// server on the same machine.
    fn cores(&self, trial: &TrialPlan) -> &[usize] {
        let in_flight = trial.rate * self.plan.reply_timeout.as_secs_f64();
        let lanes = (trial.rate / LANE_RATE).max(in_flight / IN_FLIGHT_MAX).ceil() as usize;
        &self.plan.cores[..lanes.clamp(1, self.plan.lanes)]
    }

    /// Divides clients and schedule over the lanes; all begin at `start`.
    fn prepare(&self, trial: &TrialPlan, start: Timestamp<Monotonic>) -> Result<(), EngineError> {
        let cores = self.cores(trial);
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
        self.generator.clear();
        self.generator.set_trial(&TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_ahead_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: lanes as u32,
            clients_per_lane: trial.clients / lanes as u32,
            lanes_with_one_more: trial.clients % lanes as u32,
            random_room: random.map_or(0, |network| network.room()),
            exponential: trial.spacing == Spacing::Exponential,
        });
        for (number, &core) in cores.iter().enumerate() {
            let lane = Lane {
                start_ns: start.as_ns() as u64,
                next: interval / lanes as u64 * number as u64,
                interval,
                end,
                give_up_ns: give_up.as_ns() as u64,
                number: number as u32,
                ..self.turn(self.plan.lane_clients(trial.clients, (number, lanes), 1), number)
            };
            self.generator.set_lane(core as u32, &lane);
        }
        Ok(())
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

    /// Sends on all lanes at once until their schedules have ended.
    fn send(&self, cores: &[usize], batch: u32) -> Result<(), EngineError> {
        thread::scope(|scope| {
            let senders: Vec<_> = cores
                .iter()
                .map(|&core| {
                    let (handle, thread) = mpsc::channel();
                    let sender = Sender { generator: &self.generator, core, batch };
                    (scope.spawn(move || sender.run(&handle)), thread, core)
                })
                .collect();
            for (task, thread, core) in &senders {
                let Ok(thread) = thread.recv() else { continue };
                while self.generator.lane(*core as u32).done == 0 && !task.is_finished() {
                    thread::sleep(LOOK);
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
        })
    }

    /// Waits for the last replies.
    fn drain(&self, sent: u64) {
        let last_sent = MonotonicClock.now();
        let timeout = Span::from_ns(self.plan.reply_timeout.as_nanos() as i64);
        let mut drain = Drain { last_sent, heard: last_sent, timeout };
        let mut answered = self.generator.answered();
        while answered < sent {
            let now = MonotonicClock.now();
            let rtt = self.generator.longest_rtt_ns();
            if drain.is_over(now, (rtt > 0).then(|| Span::from_ns(rtt as i64))) {
                break;
            }
            sleep_until(now + DRAIN_PAUSE);
            let count = self.generator.answered();
            if count > answered {
                (answered, drain.heard) = (count, MonotonicClock.now());
            }
        }
    }

    /// Adds up what all processors counted.
    fn collect(&mut self, cores: &[usize]) -> TrialCounts {
        let mut counts = TrialCounts::default();
        for (&core, sequence) in cores.iter().zip(&mut self.sequences) {
            let lane = self.generator.lane(core as u32);
            *sequence = lane.sequence;
            let left = lane.end.saturating_sub(lane.next).div_ceil(lane.interval.max(1));
            let instant = |ns: u64| (lane.sent > 0).then(|| Timestamp::from_ns(ns as i64));
            counts.merge(&TrialCounts {
                planned: lane.sent + left,
                sent: lane.sent,
                first_sent: instant(lane.first_sent_ns),
                last_sent: instant(lane.last_sent_ns),
                ..TrialCounts::default()
            });
        }
        for processor in 0..self.generator.processors() {
            let tally = self.generator.tally(processor);
            let mut invalid = [0; InvalidReason::ALL.len()];
            invalid[..tally.invalid.len()].copy_from_slice(&tally.invalid);
            counts.merge(&TrialCounts {
                received: tally.received,
                interleaved: tally.interleaved,
                ptp: self.plan.ptp.map(|_| PtpCounts {
                    delay: tally.delay,
                    sync_follow_up: tally.sync_follow_up,
                }),
                duplicate: tally.duplicate,
                late: tally.late + tally.late_earlier,
                invalid,
                server_unsynchronised: tally.unsynchronised,
                rtt: recorder(&tally.rtt_ns),
                response: recorder(&tally.response_ns),
                lateness: recorder(&tally.lateness_ns),
                ..TrialCounts::default()
            });
        }
        counts.offsets = self.plan.offset.map(|_| self.offsets(counts.received));
        counts
    }

    /// Adds up the offsets that all processors took. Every reply has an instant.
    fn offsets(&self, received: u64) -> OffsetCounts {
        let mut offsets = SignedRecorder::new();
        for tally in self.generator.offsets() {
            let [negative, positive] = [&tally.negative, &tally.positive].map(recorder);
            let (squares, clamped) = (tally.squares(), tally.clamped);
            offsets.merge(&SignedRecorder::from_parts(negative, positive, squares, clamped));
        }
        OffsetCounts { stamped: received, offsets }
    }
}

impl Engine for XdpEngine {
    fn kind(&self) -> Kind {
        Kind::Xdp
    }

    fn trial(&mut self, trial: &TrialPlan) -> Result<TrialCounts, EngineError> {
        let cores = self.cores(trial).to_vec();
        let in_flight = trial.rate * self.plan.reply_timeout.as_secs_f64();
        if in_flight > IN_FLIGHT_MAX * cores.len() as f64 {
            let reason = format!("{in_flight:.0} requests could wait for their replies at once");
            return Err(unfit(Kind::Xdp, reason, "use a shorter --timeout or a lower rate"));
        }
        self.prepare(trial, MonotonicClock.now() + LEAD)?;
        self.send(&cores, batch(trial.rate / cores.len() as f64))?;
        self.drain(cores.iter().map(|&core| self.generator.lane(core as u32).sent).sum());
        Ok(self.collect(&cores))
    }
}

/// How many frames the kernel asks the program for before it sends what is due. A frame leaves at
/// the end of its batch, so a slow lane wants small ones; asking costs less in large ones.
fn batch(rate: f64) -> u32 {
    if rate < 500_000.0 { 16 } else { 64 }
}

/// One lane's thread.
struct Sender<'a> {
    generator: &'a Generator,
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
        while self.generator.lane(self.core as u32).done == 0 {
            self.generator.send(i32::MAX, self.batch)?;
        }
        Ok(())
    }
}

fn recorder(raw: &RawHistogram) -> Recorder {
    // The program keeps to the layout, so the kernel's table is never refused.
    Recorder::from_raw(&raw.buckets, raw.sum.into(), raw.min, raw.max).unwrap_or_default()
}
