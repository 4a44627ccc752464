//! Differential scenarios of the load generator's two verifiers over PTP: every message of a master
//! counts the same for the one in the kernel and for the one in Rust. The program makes the
//! requests that the messages answer as well. It runs in the kernel without being attached
//! anywhere.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_load::offset::{ReceiveTimestamps, ServerOffsetParameters};
use horolog_load::ptp::{self, PtpRequestKind};
use horolog_load::request_tracker::{LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts};
use horolog_load::token::RequestId;
use horolog_load::verify;
use horolog_record::InvalidReplyReason;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::frame::UdpFrame;
use horolog_wire::ptp::{Message, PortIdentity};
use horolog_xdp::{Generator, GeneratorLane, XdpAction};

use crate::generator::{ELSEWHERE, LANES, LOOPBACK, TIMEOUT, World};
use crate::ptp_replies::{
    CHANGES, Change, Master, Part, PtpRequest, PtpResponse, extension, extensions, lane, number,
};
use crate::random::Random;
use crate::replies::TRIAL_AGE;
use crate::reply_counts::ReplyCounts;

const SEED: u64 = 0x7074_7072_6570_6c79;
/// Requests of each lane between two comparisons.
const GROUP: u64 = 32;
const GROUPS_OF_A_KIND: u64 = 8;

/// What a question with its answers is to count as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// As received, with so many duplicates.
    Received(u64),
    /// As so many late answers, with so many duplicates.
    Late(u64, u64),
    /// As one invalid answer.
    Invalid(InvalidReplyReason),
    /// As neither received nor anything else.
    Owed,
    /// As whatever it is.
    Anything,
}

/// Asks a question and answers it.
type Make = dyn Fn(&mut Bench, &World, &mut Random) -> Result<Vec<PtpResponse>>;

/// A kind of answers.
struct Kind {
    name: String,
    expected: Expected,
    make: Box<Make>,
}

fn kind(
    name: impl Into<String>,
    expected: Expected,
    make: impl Fn(&mut Bench, &World, &mut Random) -> Result<Vec<PtpResponse>> + 'static,
) -> Kind {
    Kind { name: name.into(), expected, make: Box::new(make) }
}

/// Both verifiers over the same trial.
struct Bench {
    generator: Generator,
    core: u32,
    accounts: Vec<RequestTracker>,
    carried: Vec<LaneCarryOver>,
    /// The lane whose turn it is.
    turn: usize,
    /// The next sequence number of each lane.
    next: [u32; LANES],
    judged: u64,
}

impl Bench {
    fn new(world: &World, core: u32) -> Result<Self> {
        let carried = (0..LANES).map(|_| LaneCarryOver::default()).collect();
        let (generator, accounts) = (world.load(LOOPBACK)?, Vec::new());
        Ok(Self { generator, core, accounts, carried, turn: 0, next: [0; LANES], judged: 0 })
    }

    fn begin(&mut self, world: &World, start: Timestamp<Monotonic>) -> Result<()> {
        self.generator.clear();
        self.generator.set_trial(&world.trial(start));
        let plan = world.ptp.context("a world of PTP")?;
        let (token, master) = (world.token, world.target.ip());
        let clients = if world.random_sources { 0 } else { world.clients() };
        for (lane, carried) in self.carried.drain(..).enumerate() {
            self.generator.set_sequences_before(lane as u32, carried.registered as u32);
            let plan = TrackerConfig {
                expected: verify::ReplyVerifier {
                    token,
                    version: 0,
                    interleaved: false,
                    extended: false,
                },
                clients: world.lane_clients(lane),
                start,
                timeout: TIMEOUT,
                rate: 1_000.0,
                offset: Some(ServerOffsetParameters::default()),
                ptp: Some(ptp::PtpMessageVerifier {
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
            self.accounts.push(RequestTracker::open(&plan, carried)?);
        }
        Ok(())
    }

    /// Sends the next request of the next lane by both generators, and compares the two.
    fn send_request(&mut self, world: &World, age: Span) -> Result<PtpRequest> {
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
        self.generator.set_interface(ELSEWHERE);
        let outcome = self.generator.test_run(&[0; 200])?;
        self.generator.set_interface(LOOPBACK);
        ensure!(outcome.verdict == XdpAction::Redirect, "no request: {:?}", outcome.verdict);
        let frame = UdpFrame::parse(&outcome.frame).map_err(|error| anyhow!("{error:?}"))?;

        let account = &mut self.accounts[number];
        let next = account.next(intended);
        let payload = account.payload(&next).context("it is PTP")?;
        ensure!(frame.payload == payload, "{:02x?} and {payload:02x?}", frame.payload);
        ensure!(frame.source.ip() == world.network.address(next.client));
        let (message, _) = Message::parse(payload)?;
        let requesting = message.header.source;
        account.register();
        Ok(PtpRequest {
            client: next.client,
            question: RequestId { intended, sequence },
            requesting,
        })
    }

    /// A request that was not sent in this trial.
    fn unsent_request(&mut self, world: &World, age: Span) -> PtpRequest {
        let number = self.turn;
        // The number is that of the last question before this trial.
        let sequence = self.next[number].saturating_sub(1);
        let intended = ClockMonotonic.now() - age;
        let question = RequestId { intended, sequence };
        let requesting =
            PortIdentity { clock: world.token.encode(question), port: number as u16 + 1 };
        PtpRequest { client: world.lane_clients(number).client(sequence), question, requesting }
    }

    /// Lets both judge an answer, and returns whether the program let it pass.
    fn verify(&mut self, world: &World, answer: &PtpResponse) -> Result<bool> {
        let master = world.target.ip();
        let group = world.ptp.and_then(|plan| plan.multicast_group(master));
        let to = group.unwrap_or_else(|| world.network.address(answer.client));
        let [from, to] = [master, to].map(|ip| SocketAddr::new(ip, answer.port));
        let frame = World::frame(from, to, &answer.bytes);
        let outcome = self.generator.test_run(&frame)?;
        ensure!(outcome.frame == frame, "the program changed the answer");
        let passed = outcome.verdict == XdpAction::Pass;
        let right = outcome.verdict == XdpAction::Drop || (passed && group.is_some());
        ensure!(right, "the program says {:?}", outcome.verdict);
        let now = ClockMonotonic.now();
        let timestamps = ReceiveTimestamps { kernel: Some(ClockRealtime.now()), phc_ns: None };
        let client = world.network.client_of(to.ip());
        for account in &mut self.accounts {
            account.receive(&answer.bytes, client, now, now, timestamps);
        }
        self.judged += 1;
        Ok(passed)
    }

    /// Ends the trial and returns what both counted, if that is the same.
    fn end(&mut self) -> Result<ReplyCounts> {
        let (program, response) = ReplyCounts::of_program(&self.generator);
        let mut counts = TrialCounts::default();
        for account in self.accounts.drain(..) {
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

/// Whether so many questions came to what is expected of each.
fn is(tallied: &ReplyCounts, expected: Expected, questions: u64) -> bool {
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
        Expected::Owed => counts == (0, 0, 0, 0),
        Expected::Anything => tallied.received > 0 && invalid > 0,
    }
}

const IN_TIME: Span = Span::from_ms(300);
const LATE: Span = Span::from_ms(3_000);

/// A question that is answered by `answers`.
fn answered(
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

/// A question whose `Delay_Resp`, the only answer that counts here, is changed.
fn changed(name: impl Into<String>, expected: Expected, change: Change) -> Kind {
    kind(name, expected, move |bench, world, random| {
        let request = bench.send_request(world, IN_TIME)?;
        let mut answer = Master { world, random }.delay(&request);
        change(&mut answer, random);
        Ok(vec![answer])
    })
}

/// A `Delay_Resp` to a question that was not asked in this trial.
fn pretended(name: &str, expected: Expected, age: fn(&mut Random) -> Span) -> Kind {
    kind(name, expected, move |bench, world, random| {
        bench.turn = (bench.turn + 1) % LANES;
        let request = bench.unsent_request(world, age(random));
        Ok(vec![Master { world, random }.delay(&request)])
    })
}

/// What a fault is to count as, where it shows in the group whose answer it is.
fn fault(world: &World, reason: InvalidReplyReason) -> Expected {
    use InvalidReplyReason::{Length, Mode, Origin, Sequence, Version};
    let multicast = world.ptp.is_some_and(|plan| plan.multicast);
    match reason {
        // It may be somebody else's.
        Length | Mode | Origin | Sequence | Version if multicast => Expected::Owed,
        reason => Expected::Invalid(reason),
    }
}

/// Kinds of a `Delay_Resp`: the first of each lane has to be a right one, whose source is the
/// master.
fn kinds_of_delay(world: &World) -> Vec<Kind> {
    let plan = world.ptp.unwrap_or_else(|| unreachable!("a world of PTP"));
    let is_only = plan.kind == PtpRequestKind::Delay;
    let right = |copies| if is_only { Expected::Received(copies) } else { Expected::Owed };
    let mut kinds = vec![
        answered("a delay response", right(0), IN_TIME, |master, request| {
            vec![master.delay(request)]
        }),
        answered("a late one", Expected::Late(1, 0), LATE, |master, request| {
            vec![master.delay(request)]
        }),
        answered("a late one twice", Expected::Late(1, 1), LATE, |master, request| {
            vec![master.delay(request); 2]
        }),
        pretended("of an earlier trial", Expected::Late(1, 0), |random| {
            Span::from_ms(random.within(21_000..=25_000).cast_signed())
        }),
        pretended("of another run", fault(world, InvalidReplyReason::Origin), |random| {
            Span::from_ms(random.within(35_000..=60_000).cast_signed())
        }),
        pretended("of the future", fault(world, InvalidReplyReason::Origin), |_| {
            Span::from_ms(-5_000)
        }),
        changed("another number", fault(world, InvalidReplyReason::Sequence), number),
        changed("no lane of ours", fault(world, InvalidReplyReason::Origin), lane),
        changed("half an extension", Expected::Invalid(InvalidReplyReason::Length), extensions),
    ];
    for (change, reason) in CHANGES {
        kinds.push(changed(format!("a delay response: {reason:?}"), fault(world, reason), change));
    }
    if is_only {
        kinds.push(answered("twice", Expected::Received(1), IN_TIME, |master, request| {
            vec![master.delay(request); 2]
        }));
    } else {
        let monitor = Expected::Invalid(InvalidReplyReason::Monitor);
        kinds.push(changed("no extension", monitor, extension));
    }
    if !plan.multicast {
        let client = Expected::Invalid(InvalidReplyReason::Client);
        kinds.push(kind("to another client", client, |bench, world, random| {
            let request = bench.send_request(world, IN_TIME)?;
            let answer = Master { world, random }.delay(&request);
            let other = (answer.client + 1 + random.next() as u32 % 900) % world.clients();
            Ok(vec![PtpResponse { client: other, ..answer }])
        }));
    }
    kinds
}

/// A complete answer one message of which, Sync or follow-up, is changed.
fn changed_sync(change: Change, reason: InvalidReplyReason) -> Kind {
    kind(format!("a Sync: {reason:?}"), Expected::Invalid(reason), move |bench, world, random| {
        let request = bench.send_request(world, IN_TIME)?;
        let mut master = Master { world, random };
        let (times, part) = (master.times(), master.random.pick(&[Part::Sync, Part::FollowUp]));
        let mut answer = master.answer(&request, part, times);
        change(&mut answer, random);
        Ok(vec![answer])
    })
}

/// Kinds of what NetSync Monitor owes.
fn kinds_of_monitor() -> Vec<Kind> {
    let mut kinds = vec![
        answered("all that is owed", Expected::Received(0), IN_TIME, |master, request| {
            master.all(request)
        }),
        answered("all but one", Expected::Owed, IN_TIME, |master, request| {
            let mut answers = master.all(request);
            answers.pop();
            answers
        }),
        answered("all, and the last again", Expected::Received(1), IN_TIME, |master, request| {
            let mut answers = master.all(request);
            answers.extend(answers.last().cloned());
            answers
        }),
        answered("all too late", Expected::Late(3, 0), LATE, |master, request| {
            let times = master.times();
            [Part::FollowUp, Part::Delay, Part::Sync]
                .map(|p| master.answer(request, p, times))
                .into()
        }),
        answered(
            "sent before it was asked for",
            Expected::Invalid(InvalidReplyReason::Timestamp),
            IN_TIME,
            |master, request| {
                let ((receive, _), (transmit, _)) = (master.times(), master.times());
                let times = (receive.max(transmit), receive.min(transmit));
                [Part::Delay, Part::FollowUp, Part::Sync]
                    .map(|part| master.answer(request, part, times))
                    .into()
            },
        ),
        answered("several faults at once", Expected::Anything, IN_TIME, |master, request| {
            let mut answers = master.all(request);
            for answer in &mut answers {
                for (change, _) in CHANGES {
                    // A message that was cut off has nothing left to change.
                    if master.random.within(0..=40) == 0 && answer.bytes.len() >= 44 {
                        change(answer, master.random);
                    }
                }
                if master.random.within(0..=20) == 0 {
                    answer.client = (answer.client + 1) % master.world.clients();
                }
            }
            answers.extend(answers.first().cloned());
            answers
        }),
    ];
    kinds.extend(CHANGES.map(|(change, reason)| changed_sync(change, reason)));
    kinds.push(changed_sync(number, InvalidReplyReason::Sequence));
    kinds.push(changed_sync(extensions, InvalidReplyReason::Length));
    kinds
}

fn compare_kind(bench: &mut Bench, world: &World, kind: &Kind, random: &mut Random) -> Result<()> {
    let mut total = ReplyCounts::default();
    for group in 0..GROUPS_OF_A_KIND {
        bench.begin(world, ClockMonotonic.now() - TRIAL_AGE)?;
        for _ in 0..LANES as u64 * GROUP {
            for answer in (kind.make)(bench, world, random)? {
                bench.verify(world, &answer).with_context(|| format!("{answer:02x?}"))?;
            }
        }
        total.add(&bench.end().with_context(|| format!("group {group}"))?);
    }
    let questions = GROUPS_OF_A_KIND * LANES as u64 * GROUP;
    let right = is(&total, kind.expected, questions);
    ensure!(right, "{questions} should each be {:?}: {total:?}", kind.expected);
    Ok(())
}

/// Work for one processor, whose lane and tally the program then uses.
fn on_one_core(work: impl FnOnce(u32) -> Result<()> + Send) -> Result<()> {
    let core = *allowed_cores()?.first().context("no processor")?;
    let pinned = || {
        pin_to_core(core)?;
        work(core as u32)
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("panicked"))?
}

/// Messages of every kind count as the same in the kernel and in Rust, over both IP versions, to
/// clients and to the group, with and without NetSync Monitor.
pub(crate) fn program_and_model_agree() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        let mut judged = 0;
        for world in World::all_ptp(&mut random)? {
            let mut bench = Bench::new(&world, core)?;
            let mut kinds = kinds_of_delay(&world);
            if world.ptp.is_some_and(|plan| plan.kind == PtpRequestKind::Nsm) {
                kinds.extend(kinds_of_monitor());
            }
            for kind in &kinds {
                compare_kind(&mut bench, &world, kind, &mut random)
                    .with_context(|| format!("{} {:?} {}", world.target, world.ptp, kind.name))?;
            }
            judged += bench.judged;
        }
        ensure!(judged >= 60_000, "only {judged} messages were judged");
        Ok(())
    })
}

/// What a request of an earlier trial is owed counts as late when it comes.
pub(crate) fn responses_of_an_earlier_trial_are_late() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in World::all_ptp(&mut random)? {
            let mut bench = Bench::new(&world, core)?;
            bench.begin(&world, ClockMonotonic.now() - TRIAL_AGE)?;
            let mut master = Master { world: &world, random: &mut random };
            let is_only = world.ptp.is_some_and(|plan| plan.kind == PtpRequestKind::Delay);
            let mut owed = Vec::new();
            for _ in 0..GROUP {
                let request = bench.send_request(&world, IN_TIME)?;
                let all = if is_only { vec![master.delay(&request)] } else { master.all(&request) };
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

/// What is no answer of the master to a simulated client, or to the group, goes on to the network
/// stack as it came.
pub(crate) fn packets_that_are_no_response_pass() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in World::all_ptp(&mut random)? {
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
                let frame = World::frame(from.into(), to.into(), &answer.bytes);
                let outcome = bench.generator.test_run(&frame)?;
                ensure!(outcome.verdict == XdpAction::Pass, "{from:?} to {to:?}");
                ensure!(outcome.frame == frame, "the program changed what it passed");
            }
            ensure!(bench.end()?.total() == 0);
        }
        Ok(())
    })
}
