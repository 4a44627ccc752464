//! Differential scenarios of the load generator's two verifiers over PTP: every message of a master
//! counts the same in the kernel and in Rust. The in-kernel program also makes the requests. It
//! runs without being attached.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_load::offset::{ReceiveTimestamps, ServerOffsetParameters};
use horolog_load::ptp::{self, PtpRequestKind};
use horolog_load::request_tracker::{
    ExpectedReplies, LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts,
};
use horolog_load::token::RequestId;
use horolog_record::InvalidReplyReason;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::frame::UdpFrame;
use horolog_wire::ptp::{Message, PortIdentity};
use horolog_xdp::{Generator, GeneratorLane, XdpAction};

use crate::generator::{GeneratorRun, LANES, LOOPBACK, OTHER_INTERFACE, TIMEOUT};
use crate::ptp_replies::{
    MESSAGE_FAULTS, Master, MessageFault, PtpRequest, PtpResponse, ResponseKind, incomplete_tlv,
    wrong_lane, wrong_monitor_tlv, wrong_sequence_number,
};
use crate::random::Random;
use crate::replies::TRIAL_AGE;
use crate::reply_counts::ReplyCounts;

const SEED: u64 = 0x7074_7072_6570_6c79;
/// Requests of each lane between two comparisons.
const GROUP: u64 = 32;
const GROUPS_PER_KIND: u64 = 8;

/// Expected counts of a request and its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// Received, with this number of duplicates.
    Received(u64),
    /// This number of late messages, with this number of duplicates.
    Late(u64, u64),
    /// One invalid message.
    Invalid(InvalidReplyReason),
    /// Incomplete or ignored: nothing is counted.
    Incomplete,
    /// Some received and some invalid messages, and any others.
    Anything,
}

/// Function that sends a request and returns its response.
type MakeResponse = dyn Fn(&mut Bench, &GeneratorRun, &mut Random) -> Result<Vec<PtpResponse>>;

/// Kind of responses.
struct Kind {
    name: String,
    expected: Expected,
    make: Box<MakeResponse>,
}

fn kind(
    name: impl Into<String>,
    expected: Expected,
    make: impl Fn(&mut Bench, &GeneratorRun, &mut Random) -> Result<Vec<PtpResponse>> + 'static,
) -> Kind {
    Kind { name: name.into(), expected, make: Box::new(make) }
}

/// Both verifiers over the same trial.
struct Bench {
    generator: Generator,
    core: u32,
    trackers: Vec<RequestTracker>,
    carried: Vec<LaneCarryOver>,
    /// Lane of the last request.
    turn: usize,
    /// Next sequence number of each lane.
    next: [u32; LANES],
    verified: u64,
}

impl Bench {
    fn new(world: &GeneratorRun, core: u32) -> Result<Self> {
        let carried = (0..LANES).map(|_| LaneCarryOver::default()).collect();
        let (generator, accounts) = (world.load(LOOPBACK)?, Vec::new());
        Ok(Self {
            generator,
            core,
            trackers: accounts,
            carried,
            turn: 0,
            next: [0; LANES],
            verified: 0,
        })
    }

    fn begin(&mut self, world: &GeneratorRun, start: Timestamp<Monotonic>) -> Result<()> {
        self.generator.clear();
        self.generator.set_trial(&world.trial(start));
        let plan = world.ptp.context("no PTP plan")?;
        let (token, master) = (world.token, world.target.ip());
        let clients = if world.random_sources { 0 } else { world.client_count() };
        for (lane, carried) in self.carried.drain(..).enumerate() {
            self.generator.set_sequences_before(lane as u32, carried.registered as u32);
            let plan = TrackerConfig {
                clients: world.lane_clients(lane),
                start,
                timeout: TIMEOUT,
                rate: 1_000.0,
                offset: Some(ServerOffsetParameters::default()),
                expected: ExpectedReplies::Ptp(ptp::PtpMessageVerifier {
                    plan,
                    token,
                    lane,
                    lanes: LANES,
                    clients,
                    master,
                }),
                interval: None,
                fairness: false,
            };
            self.trackers.push(RequestTracker::open(&plan, carried)?);
        }
        Ok(())
    }

    /// Sends the next request of the next lane by both generators, and compares the two requests.
    fn send_request(&mut self, world: &GeneratorRun, age: Span) -> Result<PtpRequest> {
        self.turn = (self.turn + 1) % LANES;
        let (number, clients) = (self.turn, world.lane_clients(self.turn));
        let intended = ClockMonotonic.now() - age;
        let sequence = self.next[number];
        self.next[number] += 1;
        let begun = GeneratorLane {
            start_ns: intended.as_ns() as u64,
            end: u64::MAX,
            give_up_ns: u64::MAX,
            number: number as u32,
            sequence,
            sequence_end: clients.sequence_end(),
            client: sequence % clients.client_count(),
            clients: clients.client_count(),
            client_base: clients.first_client(),
            active: 1,
            ..GeneratorLane::default()
        };
        self.generator.set_lane(self.core, &begun);
        self.generator.set_interface(OTHER_INTERFACE);
        let outcome = self.generator.test_run(&[0; 200])?;
        self.generator.set_interface(LOOPBACK);
        ensure!(outcome.verdict == XdpAction::Redirect, "no request: {:?}", outcome.verdict);
        let frame = UdpFrame::parse(&outcome.frame).map_err(|error| anyhow!("{error:?}"))?;

        let account = &mut self.trackers[number];
        let next = account.next(intended);
        let payload = account.payload(&next).context("no PTP payload")?;
        ensure!(frame.payload == payload, "{:02x?} and {payload:02x?}", frame.payload);
        ensure!(frame.source.ip() == world.network.address(next.client));
        let (message, _) = Message::parse(payload)?;
        let requesting = message.header.source;
        account.register();
        Ok(PtpRequest {
            client: next.client,
            request_id: RequestId { intended, sequence },
            requesting,
        })
    }

    /// Returns a request that was not sent in this trial.
    fn unsent_request(&mut self, world: &GeneratorRun, age: Span) -> PtpRequest {
        let number = self.turn;
        // The sequence number is that of the last request before this trial.
        let sequence = self.next[number].saturating_sub(1);
        let intended = ClockMonotonic.now() - age;
        let question = RequestId { intended, sequence };
        let requesting =
            PortIdentity { clock: world.token.encode(question), port: number as u16 + 1 };
        PtpRequest {
            client: world.lane_clients(number).client(sequence),
            request_id: question,
            requesting,
        }
    }

    /// Gives a message to both verifiers; returns true if the program passed it.
    fn verify(&mut self, world: &GeneratorRun, answer: &PtpResponse) -> Result<bool> {
        let master = world.target.ip();
        let group = world.ptp.and_then(|plan| plan.multicast_group(master));
        let to = group.unwrap_or_else(|| world.network.address(answer.client));
        let [from, to] = [master, to].map(|ip| SocketAddr::new(ip, answer.port));
        let frame = GeneratorRun::frame(from, to, &answer.bytes);
        let outcome = self.generator.test_run(&frame)?;
        ensure!(outcome.frame == frame, "the program changed the message");
        let passed = outcome.verdict == XdpAction::Pass;
        let right = outcome.verdict == XdpAction::Drop || (passed && group.is_some());
        ensure!(right, "verdict of the program: {:?}", outcome.verdict);
        let now = ClockMonotonic.now();
        let timestamps = ReceiveTimestamps { kernel: Some(ClockRealtime.now()), phc_ns: None };
        let client = world.network.client_of(to.ip());
        for account in &mut self.trackers {
            account.receive(&answer.bytes, client, now, now, timestamps);
        }
        self.verified += 1;
        Ok(passed)
    }

    /// Ends the trial and returns its counts, which must be equal in both verifiers.
    fn end(&mut self) -> Result<ReplyCounts> {
        let (program, response) = ReplyCounts::of_program(&self.generator);
        let mut counts = TrialCounts::default();
        for account in self.trackers.drain(..) {
            let (lane, carried) = account.close(GROUP);
            counts.merge(&TrialCounts::sum_intervals(&lane));
            self.carried.push(carried);
        }
        let model = ReplyCounts::of_model(&counts);
        ensure!(program == model, "program {program:?}\nmodel   {model:?}");
        ensure!(response == counts.response, "response times differ");
        Ok(program)
    }
}

/// Returns true if the counts of this number of requests are as expected for each.
fn is_expected(tallied: &ReplyCounts, expected: Expected, questions: u64) -> bool {
    let invalid = tallied.invalid_total();
    let counts = (tallied.received, tallied.duplicate, tallied.late, invalid);
    match expected {
        Expected::Received(duplicates) => counts == (questions, duplicates * questions, 0, 0),
        Expected::Late(late, duplicates) => {
            counts == (0, duplicates * questions, late * questions, 0)
        }
        Expected::Invalid(reason) => {
            counts == (0, 0, 0, questions) && tallied.invalid[reason as usize] == questions
        }
        Expected::Incomplete => counts == (0, 0, 0, 0),
        Expected::Anything => tallied.received > 0 && invalid > 0,
    }
}

const IN_TIME: Span = Span::from_ms(300);
const LATE: Span = Span::from_ms(3_000);

/// Returns a kind of requests with the responses that `answers` makes.
fn answered_kind(
    name: &str,
    expected: Expected,
    age: Span,
    answers: fn(&mut Master<'_>, &PtpRequest) -> Vec<PtpResponse>,
) -> Kind {
    kind(name, expected, move |bench, world, random| {
        let request = bench.send_request(world, age)?;
        Ok(answers(&mut Master { world, random }, &request))
    })
}

/// Returns a kind whose `Delay_Resp`, the only counted message, is changed.
fn changed_kind(name: impl Into<String>, expected: Expected, change: MessageFault) -> Kind {
    kind(name, expected, move |bench, world, random| {
        let request = bench.send_request(world, IN_TIME)?;
        let mut answer = Master { world, random }.delay(&request);
        change(&mut answer, random);
        Ok(vec![answer])
    })
}

/// Returns a kind of `Delay_Resp` to a request that was not sent in this trial.
fn unsent_kind(name: &str, expected: Expected, age: fn(&mut Random) -> Span) -> Kind {
    kind(name, expected, move |bench, world, random| {
        bench.turn = (bench.turn + 1) % LANES;
        let request = bench.unsent_request(world, age(random));
        Ok(vec![Master { world, random }.delay(&request)])
    })
}

/// Returns the expected counts of a fault in a unicast or multicast response.
fn expected_of_fault(world: &GeneratorRun, reason: InvalidReplyReason) -> Expected {
    use InvalidReplyReason::{Length, Mode, Origin, Sequence, Version};
    let multicast = world.ptp.is_some_and(|plan| plan.multicast);
    match reason {
        // The message may be for another client of the group.
        Length | Mode | Origin | Sequence | Version if multicast => Expected::Incomplete,
        reason => Expected::Invalid(reason),
    }
}

/// Returns kinds of a `Delay_Resp`. The first of each lane has to be correct, since its source is
/// taken as the master.
fn kinds_of_delay(world: &GeneratorRun) -> Vec<Kind> {
    let plan = world.ptp.unwrap_or_else(|| unreachable!("no PTP plan"));
    let is_only = plan.kind == PtpRequestKind::Delay;
    let right = |copies| if is_only { Expected::Received(copies) } else { Expected::Incomplete };
    let mut kinds = vec![
        answered_kind("a delay response", right(0), IN_TIME, |master, request| {
            vec![master.delay(request)]
        }),
        answered_kind("a late response", Expected::Late(1, 0), LATE, |master, request| {
            vec![master.delay(request)]
        }),
        answered_kind(
            "a duplicate late response",
            Expected::Late(1, 1),
            LATE,
            |master, request| vec![master.delay(request); 2],
        ),
        unsent_kind("of an earlier trial", Expected::Late(1, 0), |random| {
            Span::from_ms(random.within(21_000..=25_000).cast_signed())
        }),
        unsent_kind(
            "of another run",
            expected_of_fault(world, InvalidReplyReason::Origin),
            |random| Span::from_ms(random.within(35_000..=60_000).cast_signed()),
        ),
        unsent_kind("of the future", expected_of_fault(world, InvalidReplyReason::Origin), |_| {
            Span::from_ms(-5_000)
        }),
        changed_kind(
            "another sequence number",
            expected_of_fault(world, InvalidReplyReason::Sequence),
            wrong_sequence_number,
        ),
        changed_kind(
            "an unknown lane",
            expected_of_fault(world, InvalidReplyReason::Origin),
            wrong_lane,
        ),
        changed_kind(
            "an incomplete TLV",
            Expected::Invalid(InvalidReplyReason::Length),
            incomplete_tlv,
        ),
    ];
    for (change, reason) in MESSAGE_FAULTS {
        kinds.push(changed_kind(
            format!("a delay response: {reason:?}"),
            expected_of_fault(world, reason),
            change,
        ));
    }
    if is_only {
        kinds.push(answered_kind(
            "a duplicate",
            Expected::Received(1),
            IN_TIME,
            |master, request| vec![master.delay(request); 2],
        ));
    } else {
        let monitor = Expected::Invalid(InvalidReplyReason::Monitor);
        kinds.push(changed_kind("no monitor TLV", monitor, wrong_monitor_tlv));
    }
    if !plan.multicast {
        let client = Expected::Invalid(InvalidReplyReason::Client);
        kinds.push(kind("to another client", client, |bench, world, random| {
            let request = bench.send_request(world, IN_TIME)?;
            let answer = Master { world, random }.delay(&request);
            let other = (answer.client + 1 + random.next() as u32 % 900) % world.client_count();
            Ok(vec![PtpResponse { client: other, ..answer }])
        }));
    }
    kinds
}

/// Returns a kind of a single message, Sync or `Follow_Up`, that is changed.
fn changed_sync(change: MessageFault, reason: InvalidReplyReason) -> Kind {
    kind(format!("a Sync: {reason:?}"), Expected::Invalid(reason), move |bench, world, random| {
        let request = bench.send_request(world, IN_TIME)?;
        let mut master = Master { world, random };
        let (times, part) = (
            master.timestamps(),
            master.random.pick(&[ResponseKind::Sync, ResponseKind::FollowUp]),
        );
        let mut answer = master.response(&request, part, times);
        change(&mut answer, random);
        Ok(vec![answer])
    })
}

/// Returns kinds of NetSync Monitor responses.
fn kinds_of_monitor() -> Vec<Kind> {
    let mut kinds = vec![
        answered_kind("a complete response", Expected::Received(0), IN_TIME, |master, request| {
            master.monitor_response(request)
        }),
        answered_kind(
            "an incomplete response",
            Expected::Incomplete,
            IN_TIME,
            |master, request| {
                let mut answers = master.monitor_response(request);
                answers.pop();
                answers
            },
        ),
        answered_kind("with a duplicate", Expected::Received(1), IN_TIME, |master, request| {
            let mut answers = master.monitor_response(request);
            answers.extend(answers.last().cloned());
            answers
        }),
        answered_kind("a late response", Expected::Late(3, 0), LATE, |master, request| {
            let times = master.timestamps();
            [ResponseKind::FollowUp, ResponseKind::Delay, ResponseKind::Sync]
                .map(|p| master.response(request, p, times))
                .into()
        }),
        answered_kind(
            "transmitted before the request was received",
            Expected::Invalid(InvalidReplyReason::Timestamp),
            IN_TIME,
            |master, request| {
                let ((receive, _), (transmit, _)) = (master.timestamps(), master.timestamps());
                let times = (receive.max(transmit), receive.min(transmit));
                [ResponseKind::Delay, ResponseKind::FollowUp, ResponseKind::Sync]
                    .map(|part| master.response(request, part, times))
                    .into()
            },
        ),
        answered_kind("several faults at once", Expected::Anything, IN_TIME, |master, request| {
            let mut answers = master.monitor_response(request);
            for answer in &mut answers {
                for (change, _) in MESSAGE_FAULTS {
                    // A truncated message may be too short for a change.
                    if master.random.within(0..=40) == 0 && answer.bytes.len() >= 44 {
                        change(answer, master.random);
                    }
                }
                if master.random.within(0..=20) == 0 {
                    answer.client = (answer.client + 1) % master.world.client_count();
                }
            }
            answers.extend(answers.first().cloned());
            answers
        }),
    ];
    kinds.extend(MESSAGE_FAULTS.map(|(change, reason)| changed_sync(change, reason)));
    kinds.push(changed_sync(wrong_sequence_number, InvalidReplyReason::Sequence));
    kinds.push(changed_sync(incomplete_tlv, InvalidReplyReason::Length));
    kinds
}

fn compare_kind(
    bench: &mut Bench,
    world: &GeneratorRun,
    kind: &Kind,
    random: &mut Random,
) -> Result<()> {
    let mut total = ReplyCounts::default();
    for group in 0..GROUPS_PER_KIND {
        bench.begin(world, ClockMonotonic.now() - TRIAL_AGE)?;
        for _ in 0..LANES as u64 * GROUP {
            for answer in (kind.make)(bench, world, random)? {
                bench.verify(world, &answer).with_context(|| format!("{answer:02x?}"))?;
            }
        }
        total.add(&bench.end().with_context(|| format!("group {group}"))?);
    }
    let requests = GROUPS_PER_KIND * LANES as u64 * GROUP;
    let right = is_expected(&total, kind.expected, requests);
    ensure!(right, "{requests} requests, each expected as {:?}: {total:?}", kind.expected);
    Ok(())
}

/// Runs work on one CPU, whose lane and counters the program then uses.
fn run_on_one_core(work: impl FnOnce(u32) -> Result<()> + Send) -> Result<()> {
    let core = *allowed_cores()?.first().context("no CPU")?;
    let pinned = || {
        pin_to_core(core)?;
        work(core as u32)
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("panicked"))?
}

/// Messages of every kind count the same in the kernel and in Rust, over IPv4 and IPv6, to clients
/// and to the group, with and without NetSync Monitor.
pub(crate) fn program_and_model_agree() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        let mut verified = 0;
        for world in GeneratorRun::all_ptp(&mut random)? {
            let mut bench = Bench::new(&world, core)?;
            let mut kinds = kinds_of_delay(&world);
            if world.ptp.is_some_and(|plan| plan.kind == PtpRequestKind::Nsm) {
                kinds.extend(kinds_of_monitor());
            }
            for kind in &kinds {
                compare_kind(&mut bench, &world, kind, &mut random)
                    .with_context(|| format!("{} {:?} {}", world.target, world.ptp, kind.name))?;
            }
            verified += bench.verified;
        }
        ensure!(verified >= 60_000, "only {verified} messages were verified");
        Ok(())
    })
}

/// Responses to requests of an earlier trial are counted as late.
pub(crate) fn responses_of_an_earlier_trial_are_late() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in GeneratorRun::all_ptp(&mut random)? {
            let mut bench = Bench::new(&world, core)?;
            bench.begin(&world, ClockMonotonic.now() - TRIAL_AGE)?;
            let mut master = Master { world: &world, random: &mut random };
            let is_only = world.ptp.is_some_and(|plan| plan.kind == PtpRequestKind::Delay);
            let mut owed = Vec::new();
            for _ in 0..GROUP {
                let request = bench.send_request(&world, IN_TIME)?;
                let all = if is_only {
                    vec![master.delay(&request)]
                } else {
                    master.monitor_response(&request)
                };
                owed.extend(all);
            }
            bench.end()?;
            bench.begin(&world, ClockMonotonic.now())?;
            for answer in &owed {
                bench.verify(&world, answer)?;
            }
            let counts = bench.end()?;
            let late = (counts.late, counts.total()) == (owed.len() as u64, owed.len() as u64);
            ensure!(late, "{} {:?}: {counts:?}", world.target, world.ptp);
        }
        Ok(())
    })
}

/// Packets that are no response of the master to a simulated client or to the group pass unchanged
/// to the network stack.
pub(crate) fn packets_that_are_no_response_pass() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in GeneratorRun::all_ptp(&mut random)? {
            let mut bench = Bench::new(&world, core)?;
            bench.begin(&world, ClockMonotonic.now() - TRIAL_AGE)?;
            let request = bench.send_request(&world, IN_TIME)?;
            let answer = Master { world: &world, random: &mut random }.delay(&request);
            let group = world.ptp.and_then(|plan| plan.multicast_group(world.target.ip()));
            let client = world.network.address(request.client);
            let (master, own) = (world.target.ip(), world.network.prefix().address());
            let unasked = if group.is_some() { client } else { own };
            let destination = group.unwrap_or(client);
            let [event, general, other] = [319, 320, 321];
            for (from, to) in [
                ((own, general), (destination, general)),
                ((master, general), (destination, event)),
                ((master, other), (destination, other)),
                ((master, general), (unasked, general)),
            ] {
                let frame = GeneratorRun::frame(from.into(), to.into(), &answer.bytes);
                let outcome = bench.generator.test_run(&frame)?;
                ensure!(outcome.verdict == XdpAction::Pass, "{from:?} to {to:?}");
                ensure!(outcome.frame == frame, "the program changed a packet that it passed");
            }
            ensure!(bench.end()?.total() == 0);
        }
        Ok(())
    })
}
