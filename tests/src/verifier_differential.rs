//! Differential scenarios of the load generator's two verifiers: every reply counts the same for
//! the one in the kernel and for the one in Rust. The program runs in the kernel without being
//! attached anywhere; replies of real servers are for the scenarios of whole runs.

use std::mem;

use anyhow::{Context, Result, ensure};
use horolog_load::offset::{ReceiveTimestamps, ServerOffsetParameters};
use horolog_load::request_tracker::{LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts};
use horolog_load::verify::ReplyVerifier as Judge;
use horolog_record::InvalidReplyReason;
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::ntp::AssociationMode;
use horolog_xdp::{Generator, TrialSettings, XdpAction};

use crate::generator::{LANES, LOOPBACK, TIMEOUT, World};
use crate::random::Random;
use crate::replies::{Age, Expected, GROUP, KINDS, Kind, Reply, Requester, TRIAL_AGE};
use crate::reply_counts::ReplyCounts;

/// Enough for more than 20,000 replies over each IP version.
const GROUPS_OF_A_KIND: u64 = 16;
const SEED: u64 = 0x7665_7264_6963_7473;

/// Whether it all is what was expected, where requests were in interleaved mode or not.
fn is(tallied: &ReplyCounts, expected: Expected, interleaved: bool) -> bool {
    let all = tallied.total();
    match expected {
        Expected::ReceivedInterleaved if interleaved => tallied.interleaved == all,
        Expected::InvalidInterleaved(reason) if interleaved => {
            tallied.invalid[reason as usize] == all
        }
        Expected::ReceivedInterleaved | Expected::InvalidInterleaved(_) => {
            tallied.invalid[InvalidReplyReason::Origin as usize] == all
        }
        Expected::Received => tallied.received == all,
        Expected::ReceivedAndDuplicate => {
            (tallied.received, tallied.duplicate) == (all / 2, all / 2)
        }
        Expected::Late => tallied.late == all,
        Expected::LateAndDuplicate => (tallied.late, tallied.duplicate) == (all / 2, all / 2),
        Expected::Invalid(reason) => tallied.invalid[reason as usize] == all,
        Expected::Anything => {
            use InvalidReplyReason::{
                Client, KissRate, Length, Mode, Origin, Stratum, Timestamp, Version,
            };
            let known = [Length, Mode, Version, Origin, Client, Stratum, Timestamp, KissRate];
            let all_met = known.iter().all(|&reason| tallied.invalid[reason as usize] > 0);
            let received = tallied.received > 0 && tallied.unsynchronised > 0;
            all_met && received && tallied.duplicate > 0 && tallied.late > 0
        }
    }
}

/// Both verifiers over the same trial.
struct Bench {
    generator: Generator,
    accounts: Vec<RequestTracker>,
    /// What each lane takes to its next trial.
    carried: [LaneCarryOver; LANES],
    judged: u64,
}

impl Bench {
    fn new(world: &World) -> Result<Self> {
        let carried = Default::default();
        Ok(Self { generator: world.load(LOOPBACK)?, accounts: Vec::new(), carried, judged: 0 })
    }

    /// Begins a trial in which each lane asks [`GROUP`] questions, from the `before`-th on.
    fn begin(&mut self, world: &World, start: Timestamp<Monotonic>, before: u64) -> Result<()> {
        self.generator.clear();
        self.generator.set_trial(&world.trial(start));
        self.accounts.clear();
        for lane in 0..LANES {
            self.generator.set_sequences_before(lane as u32, before as u32);
            let (version, interleaved) = (world.version, world.interleaved);
            let plan = TrackerConfig {
                expected: Judge { token: world.token, version, interleaved, extended: false },
                clients: world.lane_clients(lane),
                start,
                timeout: TIMEOUT,
                rate: 1_000.0,
                offset: Some(ServerOffsetParameters::default()),
                ptp: None,
                interval: None,
                fairness: false,
            };
            let first_client = plan.clients.first_client();
            let carried = mem::take(&mut self.carried[lane]);
            let carried = LaneCarryOver { registered: before, first_client, ..carried };
            let mut account = RequestTracker::open(&plan, carried)?;
            (0..GROUP).for_each(|_| account.register());
            self.accounts.push(account);
        }
        Ok(())
    }

    /// Lets both judge a reply.
    fn verify(&mut self, world: &World, reply: &Reply) -> Result<()> {
        let payload = reply.payload();
        let frame = world.frame_to(reply.client, reply.lane, &payload);
        let outcome = self.generator.test_run(&frame)?;
        ensure!(outcome.verdict == XdpAction::Drop, "the program says {:?}", outcome.verdict);
        ensure!(outcome.frame == frame, "the program changed the reply");
        let now = ClockMonotonic.now();
        let timestamps = ReceiveTimestamps { kernel: Some(ClockRealtime.now()), phc_ns: None };
        self.accounts[reply.lane].receive(&payload, Some(reply.client), now, now, timestamps);
        self.judged += 1;
        Ok(())
    }

    /// Ends the trial and returns what both counted, if that is the same.
    fn end(&mut self, world: &World) -> Result<ReplyCounts> {
        let (program, program_response) = ReplyCounts::of_program(&self.generator);
        let mut counts = TrialCounts::default();
        for (account, carried) in self.accounts.drain(..).zip(&mut self.carried) {
            let lane;
            (lane, *carried) = account.close(GROUP);
            counts.merge(&TrialCounts::sum_intervals(&lane));
        }
        self.compare_origins(world)?;
        let model = ReplyCounts::of_model(&counts);
        ensure!(program == model, "program {program:?}\nmodel   {model:?}");
        let responses = (program_response.sum(), counts.response.sum());
        ensure!(program_response == counts.response, "response times differ: sums {responses:?}");
        Ok(program)
    }

    /// What each client's next request would refer to is the same for both.
    fn compare_origins(&self, world: &World) -> Result<()> {
        if !world.interleaved {
            return Ok(());
        }
        for (lane, carried) in self.carried.iter().enumerate() {
            let clients = world.lane_clients(lane);
            for client in 0..clients.client_count() {
                let program = self.generator.origin(clients.first_client() + client);
                let model = carried.origins.origin_of(client);
                ensure!(program == model, "client {client}: {program:#x} and {model:#x}");
            }
        }
        Ok(())
    }
}

/// Has both verify replies of a kind, to requests from the `before`-th on.
fn compare_kind(
    bench: &mut Bench,
    world: &World,
    kind: &Kind,
    before: u64,
    random: &mut Random,
) -> Result<ReplyCounts> {
    let mut total = ReplyCounts::default();
    for group in 0..GROUPS_OF_A_KIND {
        let before = before + group * GROUP;
        bench.begin(world, ClockMonotonic.now() - TRIAL_AGE, before)?;
        let mut requester = Requester { world, random: &mut *random, next: [before as u32; LANES] };
        while requester.next.iter().all(|&next| u64::from(next) < before + GROUP) {
            for reply in (kind.make)(&mut requester) {
                bench.verify(world, &reply)?;
            }
        }
        total.add(&bench.end(world).with_context(|| format!("{}, group {group}", kind.name))?);
    }
    let right = is(&total, kind.expected, world.interleaved);
    ensure!(right, "{} should be {:?}: {total:?}", kind.name, kind.expected);
    Ok(total)
}

/// Replies of every kind count as the same in the kernel and in Rust, to the last response time,
/// over both IP versions and with clients in turn as well as scattered.
pub(crate) fn program_and_model_agree() -> Result<()> {
    let mut random = Random::new(SEED);
    let mut judged = 0;
    for world in World::all(&mut random)? {
        let mut bench = Bench::new(&world)?;
        let mut before = GROUP;
        for kind in &KINDS {
            compare_kind(&mut bench, &world, kind, before, &mut random)
                .with_context(|| format!("{} {:?}", world.target, world.random_sources))?;
            before += GROUPS_OF_A_KIND * GROUP;
        }
        judged += bench.judged;
    }
    ensure!(judged >= 80_000, "only {judged} replies were judged");
    Ok(())
}

/// A reply that comes between two trials, when the next one is planned and has not begun, belongs
/// to the one before and counts as late.
pub(crate) fn a_reply_before_the_trial_counts_for_an_earlier_one() -> Result<()> {
    let mut random = Random::new(SEED);
    for world in World::all(&mut random)? {
        let mut bench = Bench::new(&world)?;
        bench.begin(&world, ClockMonotonic.now() + Span::from_ms(60_000), GROUP)?;
        let mut requester = Requester { world: &world, random: &mut random, next: [0; LANES] };
        for _ in 0..GROUP / 2 {
            let reply = requester.valid(Age::InTime);
            bench.verify(&world, &reply)?;
        }
        let counts = bench.end(&world)?;
        ensure!(
            is(&counts, Expected::Late, world.interleaved) && counts.late == GROUP / 2,
            "{counts:?}"
        );
    }
    Ok(())
}

/// The first interval whose book is open, and how many there are, of 100 ms: no reply to a request
/// before can be in time any more.
const FIRST: u64 = 185;
const INTERVALS: u64 = 230;

/// On a course a reply stands in the book of the interval in which its request was due, a late one
/// to an interval that is closed in the oldest that is open, an invalid one in that of the moment.
pub(crate) fn replies_are_counted_in_the_intervals_of_their_requests() -> Result<()> {
    const INTERVAL: Span = Span::from_ms(100);
    let mut random = Random::new(SEED);
    for world in World::all(&mut random)? {
        let generator = world.load_with_intervals(LOOPBACK, 64)?;
        let start = ClockMonotonic.now() - TRIAL_AGE;
        let (interval_ns, intervals) = (INTERVAL.as_ns() as u64, INTERVALS);
        generator.set_trial(&TrialSettings { interval_ns, intervals, ..world.trial(start) });
        generator.set_first_interval(FIRST);
        let number = |at: Timestamp<Monotonic>| (at - start).as_ns() as u64 / interval_ns;
        let mut requester = Requester { world: &world, random: &mut random, next: [0; LANES] };
        for age in [Age::InTime, Age::Late].into_iter().cycle().take(32) {
            let mut reply = requester.valid(age);
            let token = reply.header.origin.to_bits();
            let question = world.token.decode(token, ClockMonotonic.now());
            let due = number(question.context("not ours")?.0.intended);
            let late = u64::from(age == Age::Late);
            count_one(&world, &generator, &reply, [1 - late, late, 0], |found| {
                found == due.max(FIRST)
            })?;
            reply.header.mode = AssociationMode::Client;
            let before = number(ClockMonotonic.now());
            count_one(&world, &generator, &reply, [0, 0, 1], |found| {
                (before..=number(ClockMonotonic.now())).contains(&found)
            })?;
        }
    }
    Ok(())
}

/// Counts a reply in fresh books: as received, late and invalid as expected, in the right one.
fn count_one(
    world: &World,
    generator: &Generator,
    reply: &Reply,
    expected: [u64; 3],
    is_right: impl Fn(u64) -> bool,
) -> Result<()> {
    generator.test_run(&world.frame_to(reply.client, reply.lane, &reply.payload()))?;
    let mut found = Vec::new();
    for number in FIRST..INTERVALS {
        for processor in 0..generator.processors() {
            let interval = generator.interval_counts(number, processor);
            let counts = [interval.received, interval.late, interval.invalid.iter().sum()];
            if counts != [0; 3] {
                found.push((number, counts));
            }
        }
        generator.clear_interval(number);
    }
    ensure!(
        matches!(found[..], [(number, counts)] if is_right(number) && counts == expected),
        "{found:?}"
    );
    Ok(())
}

/// What is no reply to a simulated client goes on to the network stack as it came, and is not
/// counted.
pub(crate) fn packets_that_are_no_reply_pass() -> Result<()> {
    let mut random = Random::new(SEED);
    for world in World::all(&mut random)? {
        let mut bench = Bench::new(&world)?;
        bench.begin(&world, ClockMonotonic.now() - TRIAL_AGE, 0)?;
        let mut requester = Requester { world: &world, random: &mut random, next: [0; LANES] };
        let reply = requester.valid(Age::InTime);
        let good = world.frame_to(reply.client, reply.lane, &reply.payload());
        for frame in foreign_frames(&world, &good) {
            let outcome = bench.generator.test_run(&frame)?;
            ensure!(outcome.verdict == XdpAction::Pass, "{:?} for {frame:02x?}", outcome.verdict);
            ensure!(outcome.frame == frame, "the program changed what it passed");
        }
        ensure!(
            ReplyCounts::of_program(&bench.generator).0.total() == 0,
            "counted: {:?}",
            ReplyCounts::of_program(&bench.generator).0
        );
        bench.verify(&world, &reply)?;
        let counts = bench.end(&world)?;
        ensure!(is(&counts, Expected::Received, world.interleaved), "the good one is not good");
    }
    Ok(())
}

/// A good reply, changed in one byte that says whose it is.
fn foreign_frames(world: &World, good: &[u8]) -> Vec<Vec<u8>> {
    const LINK_TYPE: usize = 12;
    // Protocol, last byte of the source, first of the destination, source port.
    let [protocol, source, destination, port] =
        if world.target.is_ipv4() { [23, 29, 30, 34] } else { [20, 37, 38, 54] };
    let mut frames: Vec<_> = [LINK_TYPE, protocol, source, destination, port]
        .into_iter()
        .map(|at| {
            let mut frame = good.to_vec();
            frame[at] ^= 0x10;
            frame
        })
        .collect();
    frames.push(good[..20].to_vec());
    if !world.random_sources {
        // The address behind the last client's.
        let payload = &good[good.len() - horolog_wire::ntp::HEADER_LEN..];
        frames.push(world.frame_to(world.clients(), 0, payload));
    }
    frames
}
