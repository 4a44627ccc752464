//! Differential scenarios of the load generator's two verifiers: the BPF program and the
//! implementation in Rust count every reply in the same way. Test runs execute the program without
//! attaching it; replies of real servers are covered by other scenarios.

use std::mem;

use anyhow::{Context, Result, ensure};
use horolog_load::offset::{ReceiveTimestamps, ServerOffsetParameters};
use horolog_load::request_tracker::{
    ExpectedReplies, LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts,
};
use horolog_load::verify::ReplyVerifier;
use horolog_record::InvalidReplyReason;
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::ntp::AssociationMode;
use horolog_xdp::{Generator, TrialSettings, XdpAction};

use crate::generator::{GeneratorRun, LANES, LOOPBACK, TIMEOUT};
use crate::random::Random;
use crate::replies::{Age, Expected, GROUP, KINDS, Reply, ReplyKind, Requester, TRIAL_AGE};
use crate::reply_counts::ReplyCounts;

/// Groups of replies per kind: more than 20,000 replies over each IP version.
const GROUPS_PER_KIND: u64 = 16;
const SEED: u64 = 0x7665_7264_6963_7473;

/// Returns true if all replies were counted as expected, depending on the mode of their requests.
fn is_expected(counts: &ReplyCounts, expected: Expected, interleaved: bool) -> bool {
    let all = counts.total();
    match expected {
        Expected::ReceivedInterleaved if interleaved => counts.interleaved == all,
        Expected::InvalidInterleaved(reason) if interleaved => {
            counts.invalid[reason as usize] == all
        }
        Expected::ReceivedInterleaved | Expected::InvalidInterleaved(_) => {
            counts.invalid[InvalidReplyReason::Origin as usize] == all
        }
        Expected::Received => counts.received == all,
        Expected::ReceivedAndDuplicate => (counts.received, counts.duplicate) == (all / 2, all / 2),
        Expected::Late => counts.late == all,
        Expected::LateAndDuplicate => (counts.late, counts.duplicate) == (all / 2, all / 2),
        Expected::Invalid(reason) => counts.invalid[reason as usize] == all,
        Expected::Anything => {
            use InvalidReplyReason::{
                Client, KissRate, Length, Mode, Origin, Stratum, Timestamp, Version,
            };
            let known = [Length, Mode, Version, Origin, Client, Stratum, Timestamp, KissRate];
            let all_met = known.iter().all(|&reason| counts.invalid[reason as usize] > 0);
            let received = counts.received > 0 && counts.unsynchronised > 0;
            all_met && received && counts.duplicate > 0 && counts.late > 0
        }
    }
}

/// Both verifiers of one trial.
struct VerifierPair {
    generator: Generator,
    trackers: Vec<RequestTracker>,
    /// State that each lane carries over to its next trial.
    carried: [LaneCarryOver; LANES],
    verified: u64,
}

impl VerifierPair {
    fn new(run: &GeneratorRun) -> Result<Self> {
        let carried = Default::default();
        Ok(Self { generator: run.load(LOOPBACK)?, trackers: Vec::new(), carried, verified: 0 })
    }

    /// Begins a trial in which each lane has [`GROUP`] requests, from number `before` on.
    fn begin(
        &mut self,
        run: &GeneratorRun,
        start: Timestamp<Monotonic>,
        before: u64,
    ) -> Result<()> {
        self.generator.clear();
        self.generator.set_trial(&run.trial(start));
        self.trackers.clear();
        for lane in 0..LANES {
            self.generator.set_sequences_before(lane as u32, before as u32);
            let (version, interleaved) = (run.version, run.interleaved);
            let plan = TrackerConfig {
                expected: ExpectedReplies::Ntp(ReplyVerifier {
                    token: run.token,
                    version,
                    interleaved,
                    extended: false,
                }),
                clients: run.lane_clients(lane),
                start,
                timeout: TIMEOUT,
                rate: 1_000.0,
                offset: Some(ServerOffsetParameters::default()),
                interval: None,
                fairness: false,
            };
            let first_client = plan.clients.first_client();
            let carried = mem::take(&mut self.carried[lane]);
            let carried = LaneCarryOver { registered: before, first_client, ..carried };
            let mut tracker = RequestTracker::open(&plan, carried)?;
            (0..GROUP).for_each(|_| tracker.register());
            self.trackers.push(tracker);
        }
        Ok(())
    }

    /// Passes a reply to both verifiers.
    fn verify(&mut self, run: &GeneratorRun, reply: &Reply) -> Result<()> {
        let payload = reply.payload();
        let frame = run.frame_to(reply.client, reply.lane, &payload);
        let outcome = self.generator.test_run(&frame)?;
        ensure!(outcome.verdict == XdpAction::Drop, "the verdict is {:?}", outcome.verdict);
        ensure!(outcome.frame == frame, "the program changed the reply");
        let now = ClockMonotonic.now();
        let timestamps = ReceiveTimestamps { kernel: Some(ClockRealtime.now()), phc_ns: None };
        self.trackers[reply.lane].receive(&payload, Some(reply.client), now, now, timestamps);
        self.verified += 1;
        Ok(())
    }

    /// Ends the trial and returns its counts, which must be equal for both verifiers.
    fn end(&mut self, run: &GeneratorRun) -> Result<ReplyCounts> {
        let (program, program_response) = ReplyCounts::of_program(&self.generator);
        let mut counts = TrialCounts::default();
        for (tracker, carried) in self.trackers.drain(..).zip(&mut self.carried) {
            let lane;
            (lane, *carried) = tracker.close(GROUP);
            counts.merge(&TrialCounts::sum_intervals(&lane));
        }
        self.compare_origins(run)?;
        let model = ReplyCounts::of_model(&counts);
        ensure!(program == model, "program {program:?}\nmodel   {model:?}");
        let responses = (program_response.sum(), counts.response.sum());
        ensure!(program_response == counts.response, "response times differ: sums {responses:?}");
        Ok(program)
    }

    /// Checks that the origin timestamp of each client's next request is equal for both verifiers.
    fn compare_origins(&self, run: &GeneratorRun) -> Result<()> {
        if !run.interleaved {
            return Ok(());
        }
        for (lane, carried) in self.carried.iter().enumerate() {
            let clients = run.lane_clients(lane);
            for client in 0..clients.client_count() {
                let program = self.generator.origin(clients.first_client() + client);
                let model = carried.origins.origin_of(client);
                ensure!(program == model, "client {client}: {program:#x} and {model:#x}");
            }
        }
        Ok(())
    }
}

/// Passes replies of one kind to both verifiers, for requests from number `before` on.
fn compare_kind(
    pair: &mut VerifierPair,
    run: &GeneratorRun,
    kind: &ReplyKind,
    before: u64,
    random: &mut Random,
) -> Result<ReplyCounts> {
    let mut total = ReplyCounts::default();
    for group in 0..GROUPS_PER_KIND {
        let before = before + group * GROUP;
        pair.begin(run, ClockMonotonic.now() - TRIAL_AGE, before)?;
        let mut requester =
            Requester { world: run, random: &mut *random, next: [before as u32; LANES] };
        while requester.next.iter().all(|&next| u64::from(next) < before + GROUP) {
            for reply in (kind.make)(&mut requester) {
                pair.verify(run, &reply)?;
            }
        }
        total.add(&pair.end(run).with_context(|| format!("{}, group {group}", kind.name))?);
    }
    let is_right = is_expected(&total, kind.expected, run.interleaved);
    ensure!(is_right, "{} was not counted as {:?}: {total:?}", kind.name, kind.expected);
    Ok(total)
}

/// Both verifiers count replies of every kind in the same way, with the same response times, over
/// both IP versions and with sequential and scattered clients.
pub(crate) fn program_and_model_agree() -> Result<()> {
    let mut random = Random::new(SEED);
    let mut judged = 0;
    for run in GeneratorRun::all(&mut random)? {
        let mut pair = VerifierPair::new(&run)?;
        let mut before = GROUP;
        for kind in &KINDS {
            compare_kind(&mut pair, &run, kind, before, &mut random)
                .with_context(|| format!("{} {:?}", run.target, run.random_sources))?;
            before += GROUPS_PER_KIND * GROUP;
        }
        judged += pair.verified;
    }
    ensure!(judged >= 80_000, "only {judged} replies were verified");
    Ok(())
}

/// A reply between two trials, when the next one is planned but has not begun, counts as a late one
/// of the earlier trial.
pub(crate) fn a_reply_before_the_trial_counts_for_an_earlier_one() -> Result<()> {
    let mut random = Random::new(SEED);
    for run in GeneratorRun::all(&mut random)? {
        let mut pair = VerifierPair::new(&run)?;
        pair.begin(&run, ClockMonotonic.now() + Span::from_ms(60_000), GROUP)?;
        let mut requester = Requester { world: &run, random: &mut random, next: [0; LANES] };
        for _ in 0..GROUP / 2 {
            let reply = requester.valid(Age::InTime);
            pair.verify(&run, &reply)?;
        }
        let counts = pair.end(&run)?;
        ensure!(
            is_expected(&counts, Expected::Late, run.interleaved) && counts.late == GROUP / 2,
            "{counts:?}"
        );
    }
    Ok(())
}

/// Number of the first open interval: no reply to a request of an earlier one can be in time.
const FIRST_OPEN: u64 = 185;
/// Number of intervals, of 100 ms each.
const INTERVALS: u64 = 230;

/// With a load profile, a reply is counted in the interval of its intended send time, a late one in
/// the oldest open interval if its own is closed, and an invalid one in the current interval.
pub(crate) fn replies_are_counted_in_the_intervals_of_their_requests() -> Result<()> {
    const INTERVAL: Span = Span::from_ms(100);
    let mut random = Random::new(SEED);
    for run in GeneratorRun::all(&mut random)? {
        let generator = run.load_with_intervals(LOOPBACK, 64)?;
        let start = ClockMonotonic.now() - TRIAL_AGE;
        let (interval_ns, intervals) = (INTERVAL.as_ns() as u64, INTERVALS);
        generator.set_trial(&TrialSettings { interval_ns, intervals, ..run.trial(start) });
        generator.set_first_interval(FIRST_OPEN);
        let number = |at: Timestamp<Monotonic>| (at - start).as_ns() as u64 / interval_ns;
        let mut requester = Requester { world: &run, random: &mut random, next: [0; LANES] };
        for age in [Age::InTime, Age::Late].into_iter().cycle().take(32) {
            let mut reply = requester.valid(age);
            let token = reply.header.origin.to_bits();
            let request = run.token.decode(token, ClockMonotonic.now());
            let due = number(request.context("unknown token")?.0.intended);
            let late = u64::from(age == Age::Late);
            check_count(&run, &generator, &reply, [1 - late, late, 0], |found| {
                found == due.max(FIRST_OPEN)
            })?;
            reply.header.mode = AssociationMode::Client;
            let before = number(ClockMonotonic.now());
            check_count(&run, &generator, &reply, [0, 0, 1], |found| {
                (before..=number(ClockMonotonic.now())).contains(&found)
            })?;
        }
    }
    Ok(())
}

/// Counts a reply in empty intervals, and checks that it is counted as received, late and invalid
/// as expected, in the right interval.
fn check_count(
    run: &GeneratorRun,
    generator: &Generator,
    reply: &Reply,
    expected: [u64; 3],
    is_right: impl Fn(u64) -> bool,
) -> Result<()> {
    generator.test_run(&run.frame_to(reply.client, reply.lane, &reply.payload()))?;
    let mut found = Vec::new();
    for number in FIRST_OPEN..INTERVALS {
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

/// A packet that is no reply to a simulated client passes to the network stack unchanged and is not
/// counted.
pub(crate) fn packets_that_are_no_reply_pass() -> Result<()> {
    let mut random = Random::new(SEED);
    for run in GeneratorRun::all(&mut random)? {
        let mut pair = VerifierPair::new(&run)?;
        pair.begin(&run, ClockMonotonic.now() - TRIAL_AGE, 0)?;
        let mut requester = Requester { world: &run, random: &mut random, next: [0; LANES] };
        let reply = requester.valid(Age::InTime);
        let valid = run.frame_to(reply.client, reply.lane, &reply.payload());
        for frame in foreign_frames(&run, &valid) {
            let outcome = pair.generator.test_run(&frame)?;
            ensure!(outcome.verdict == XdpAction::Pass, "{:?} for {frame:02x?}", outcome.verdict);
            ensure!(outcome.frame == frame, "the program changed what it passed");
        }
        ensure!(
            ReplyCounts::of_program(&pair.generator).0.total() == 0,
            "counted: {:?}",
            ReplyCounts::of_program(&pair.generator).0
        );
        pair.verify(&run, &reply)?;
        let counts = pair.end(&run)?;
        ensure!(is_expected(&counts, Expected::Received, run.interleaved), "a valid reply is lost");
    }
    Ok(())
}

/// Returns copies of a valid reply, each with another protocol, source or destination, and a
/// truncated one.
fn foreign_frames(run: &GeneratorRun, valid: &[u8]) -> Vec<Vec<u8>> {
    const LINK_TYPE: usize = 12;
    // Protocol, last byte of the source, first of the destination, source port.
    let [protocol, source, destination, port] =
        if run.target.is_ipv4() { [23, 29, 30, 34] } else { [20, 37, 38, 54] };
    let mut frames: Vec<_> = [LINK_TYPE, protocol, source, destination, port]
        .into_iter()
        .map(|at| {
            let mut frame = valid.to_vec();
            frame[at] ^= 0x10;
            frame
        })
        .collect();
    frames.push(valid[..20].to_vec());
    if !run.random_sources {
        // Address after that of the last client.
        let payload = &valid[valid.len() - horolog_wire::ntp::HEADER_LEN..];
        frames.push(run.frame_to(run.client_count(), 0, payload));
    }
    frames
}
