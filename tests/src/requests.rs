//! Scenarios of the sending side of the in-kernel generator: requests are byte for byte those of
//! the plan in Rust, at their intended send times and not before; and the histograms have the
//! layout that the rest of the project reads. The program runs in the kernel without sending
//! anything.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_load::clients::{LaneClients, source_port};
use horolog_load::ptp::{self, PtpRequestKind, PtpRequestOptions};
use horolog_load::request::{LaneFrameTemplate, RequestTimestamps};
use horolog_load::schedule::{FRACTION_BITS, exponential_quantiles, scale_interval};
use horolog_load::token::{EchoedTimestamp, RequestId};
use horolog_stats::buckets::{MAX_VALUE, TEST_VECTORS, bucket_index};
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NtpTimestamp, Span, Timestamp};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::{HEADER_LEN, Header};
use horolog_wire::ptp::{EVENT_PORT, Message, PortIdentity, monitor};
use horolog_xdp::{Generator, GeneratorLane, TrialSettings, XdpAction};

use crate::generator::{ELSEWHERE, LOOPBACK, World};
use crate::random::Random;
use crate::replies::{Age, Requester, TRIAL_AGE};

const SEED: u64 = 0x7265_7175_6573_7473;
const REQUESTS: u32 = 4_000;
/// How many of them come before the sequence numbers start again.
const BEFORE_THE_WRAP: u32 = 100;
/// The second lane, whose clients do not begin at the first.
const LANE: usize = 1;
const INTERVAL_NS: u64 = 1_000;
/// The shortest and the longest frame that the program is given to write over.
const FRAME_MIN: u64 = 14;
const FRAME_MAX: u64 = 200;

/// Runs on one processor, whose lane and tally the program then uses.
fn on_one_core(work: impl FnOnce(u32) -> Result<()> + Send) -> Result<()> {
    let core = *allowed_cores()?.first().context("no processor")?;
    let pinned = || {
        pin_to_core(core)?;
        work(core as u32)
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("panicked"))?
}

/// A lane that is due since a second.
fn lane(clients: LaneClients, now: Timestamp<horolog_time::Monotonic>) -> GeneratorLane {
    let wrap = clients.sequence_end();
    let sequence = wrap - BEFORE_THE_WRAP;
    GeneratorLane {
        start_ns: (now - Span::from_ms(1_000)).as_ns() as u64,
        interval: INTERVAL_NS << FRACTION_BITS,
        end: u64::MAX,
        give_up_ns: u64::MAX,
        number: LANE as u32,
        sequence,
        sequence_end: wrap,
        client: sequence % clients.client_count(),
        clients: clients.client_count(),
        client_base: clients.first_client(),
        active: 1,
        ..GeneratorLane::default()
    }
}

/// Runs of NTP and of PTP.
fn worlds(random: &mut Random) -> Result<Vec<World>> {
    let mut worlds = World::all(random)?;
    worlds.extend(World::all_ptp(random)?);
    Ok(worlds)
}

/// Every request of NTP and PTP is the one that the plan says, whatever was in the frame before,
/// over both IP versions and with clients in turn as well as scattered.
pub(crate) fn requests_match_their_plan() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in worlds(&mut random)? {
            let generator = world.load(ELSEWHERE)?;
            make_all(&world, &generator, core, &mut random)
                .with_context(|| format!("{} {:?}", world.target, world.ptp))?;
        }
        Ok(())
    })
}

fn make_all(world: &World, generator: &Generator, core: u32, random: &mut Random) -> Result<()> {
    let now = ClockMonotonic.now();
    generator.set_trial(&world.trial(now));
    let clients = world.lane_clients(LANE);
    let begun = lane(clients, now);
    generator.set_lane(core, &begun);
    let template = LaneFrameTemplate::new(&world.frames(LANE));
    if world.interleaved {
        (0..world.clients()).for_each(|client| generator.set_origin(client, random.next()));
    }
    for number in 0..REQUESTS {
        let sequence = (begun.sequence + number) % clients.sequence_end();
        let behind = Span::from_ns((u64::from(number) * INTERVAL_NS).cast_signed());
        let intended = Timestamp::from_ns(begun.start_ns.cast_signed()) + behind;
        let frame = random.within(FRAME_MIN..=FRAME_MAX) as usize;
        let outcome = generator.test_run(&random.bytes(frame))?;
        ensure!(outcome.verdict == XdpAction::Redirect, "{number}: {:?}", outcome.verdict);
        let question = RequestId { intended, sequence };
        let client = clients.client(sequence);
        let origin = if world.interleaved { generator.origin(client) } else { 0 };
        let check = match world.ptp {
            None => check_request(world, &template, &outcome.frame, (question, origin)),
            Some(plan) => check_ptp_request(world, plan, &outcome.frame, question),
        };
        check.with_context(|| format!("request {number}: {:02x?}", outcome.frame))?;
    }
    let ended = generator.lane(core);
    let lateness = generator.interval_counts(0, core).lateness_ns.count;
    let requests = u64::from(REQUESTS);
    ensure!((ended.sent, lateness) == (requests, requests), "{ended:?}, {lateness} lateness");
    ensure!(ended.sequence == REQUESTS - BEFORE_THE_WRAP, "{ended:?}");
    let sent = [now.as_ns() as u64, ended.first_sent_ns, ended.last_sent_ns];
    ensure!(sent.is_sorted() && ended.last_sent_ns <= ClockMonotonic.now().as_ns() as u64);
    Ok(())
}

/// Checks a request against what the engines in Rust would send, and by parsing it.
fn check_request(
    world: &World,
    template: &LaneFrameTemplate,
    frame: &[u8],
    (question, origin): (RequestId, u64),
) -> Result<()> {
    let transmit = world.token.encode(question);
    let timestamps = if world.interleaved {
        RequestTimestamps::interleaved(origin, transmit)
    } else {
        RequestTimestamps::basic(transmit)
    };
    let client = world.lane_clients(LANE).client(question.sequence);
    let mut expected = template.bytes().to_vec();
    let source_low = world.network.base().wrapping_add(1).wrapping_add(client);
    template.complete_frame(&mut expected, source_low, timestamps);
    ensure!(frame == expected, "it should be {expected:02x?}");
    let parsed = UdpFrame::parse(frame).map_err(|error| anyhow!("no UDP: {error:?}"))?;
    ensure!(parsed.has_valid_checksum() && parsed.trailer_len == 0, "{parsed:?}");
    ensure!(parsed.source.ip() == world.network.address(client), "{parsed:?}");
    ensure!(parsed.source.port() == source_port(LANE) && parsed.destination == world.target);
    let (header, rest) = Header::parse(parsed.payload)?;
    let (origin, receive) = (header.origin, header.receive);
    let plain = Header { origin, receive, ..Header::request(world.version, header.transmit) };
    ensure!(rest.is_empty() && header == plain);
    let now = ClockMonotonic.now();
    let read = world.token.decode(header.transmit.to_bits(), now);
    let wanted = Some((question, EchoedTimestamp::Transmit));
    ensure!(read == wanted, "it asks {read:?} instead of {question:?}");
    if world.interleaved {
        let read = world.token.decode(header.receive.to_bits(), now);
        ensure!(
            read == Some((question, EchoedTimestamp::Receive)),
            "interleaved, it asks {read:?}"
        );
    }
    Ok(())
}

/// The same of a request for PTP.
fn check_ptp_request(
    world: &World,
    plan: PtpRequestOptions,
    frame: &[u8],
    question: RequestId,
) -> Result<()> {
    let token = world.token.encode(question);
    let client = world.lane_clients(LANE).client(question.sequence);
    let frames = world.frames(LANE);
    let builder = UdpFrameBuilder {
        destination_mac: frames.destination_mac,
        source_mac: frames.source_mac,
        vlan: None,
        source: SocketAddr::new(world.network.address(client), EVENT_PORT),
        destination: plan.destination(world.target.ip()),
    };
    let mut template = ptp::PtpRequestTemplate::new(&plan, LANE, world.target.ip());
    let payload = template.build_request(token, question.sequence);
    let mut expected = vec![0; builder.headers_len() + payload.len()];
    builder.emit(payload, &mut expected);
    ensure!(frame == expected, "it should be {expected:02x?}");
    let parsed = UdpFrame::parse(frame).map_err(|error| anyhow!("no UDP: {error:?}"))?;
    let (message, _) = Message::parse(parsed.payload)?;
    let source = PortIdentity { clock: token, port: LANE as u16 + 1 };
    ensure!(message.header.source == source && message.header.domain == plan.domain);
    let has_request =
        message.tlvs().flatten().any(|tlv| tlv.type_number == monitor::REQUEST_TLV_TYPE);
    ensure!(has_request == (plan.kind == PtpRequestKind::Nsm), "{message:?}");
    Ok(())
}

/// Nothing leaves before its instant, behind the end, after the sender gave up, or from a processor
/// without a lane.
pub(crate) fn requests_leave_at_their_intended_send_times() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        for world in worlds(&mut random)? {
            let generator = world.load(ELSEWHERE)?;
            let now = ClockMonotonic.now();
            generator.set_trial(&world.trial(now));
            let due = lane(world.lane_clients(LANE), now);
            let frame = random.bytes(FRAME_MAX as usize);
            let made = |lane: &GeneratorLane| -> Result<(XdpAction, u32)> {
                generator.set_lane(core, lane);
                let verdict = generator.test_run(&frame)?.verdict;
                Ok((verdict, generator.lane(core).done))
            };
            let later = (now + Span::from_ms(60_000)).as_ns() as u64;
            ensure!(made(&due)? == (XdpAction::Redirect, 0), "due");
            ensure!(
                made(&GeneratorLane { start_ns: later, ..due })? == (XdpAction::Drop, 0),
                "too early"
            );
            ensure!(
                made(&GeneratorLane { next: 9, end: 9, ..due })? == (XdpAction::Drop, 1),
                "at the end"
            );
            ensure!(
                made(&GeneratorLane { give_up_ns: 1, ..due })? == (XdpAction::Drop, 1),
                "given up"
            );
            ensure!(made(&GeneratorLane { active: 0, ..due })? == (XdpAction::Drop, 0), "no lane");
            ensure!(made(&GeneratorLane { done: 1, ..due })? == (XdpAction::Drop, 1), "done");
        }
        Ok(())
    })
}

/// Exponential intervals are those of the table, and have the mean asked for.
pub(crate) fn exponential_intervals_match_the_table() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        let world = World::all(&mut random)?.remove(0);
        let generator = world.load(ELSEWHERE)?;
        let now = ClockMonotonic.now();
        generator.set_trial(&TrialSettings { exponential: true, ..world.trial(now) });
        let begun = lane(world.lane_clients(LANE), now);
        generator.set_lane(core, &begun);
        let quantiles = exponential_quantiles();
        let mut before = 0;
        for _ in 0..REQUESTS {
            generator.test_run(&[0; FRAME_MAX as usize])?;
            let next = generator.lane(core).next;
            let step = next - before;
            let found =
                quantiles.binary_search_by_key(&step, |&q| scale_interval(begun.interval, q));
            ensure!(found.is_ok(), "no quantile gives an interval of {step}");
            before = next;
        }
        let mean = before as f64 / f64::from(REQUESTS) / begun.interval as f64;
        // Six standard deviations of the mean of so many.
        ensure!((mean - 1.0).abs() < 0.1, "the mean interval is {mean} of the one asked for");
        Ok(())
    })
}

/// The bucket that the program counts a response time in is the one of `horolog_stats`, for every
/// edge and for random values; what is larger than the last bucket is refused.
pub(crate) fn buckets_are_the_same() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        let world = World::all(&mut random)?.remove(0);
        let generator = world.load(LOOPBACK)?;
        // Short times as often as long ones.
        let bits: Vec<_> = (0..3_000).map(|_| random.within(28..=63)).collect();
        let drawn = bits.into_iter().map(|bits| random.next() >> bits);
        let drawn: Vec<_> = drawn.map(|value| (value, bucket_index(value))).collect();
        for (number, &(value, bucket)) in TEST_VECTORS.iter().chain(&drawn).enumerate() {
            generator.clear();
            generator.set_trial(&world.trial(ClockMonotonic.now() - TRIAL_AGE));
            let mut requester =
                Requester { world: &world, random: &mut random, next: [number as u32; 2] };
            let mut reply = requester.valid(Age::InTime);
            reply.header.receive = NtpTimestamp::from_bits(1);
            reply.header.transmit = NtpTimestamp::from_bits(1 + units(value));
            generator.test_run(&world.frame_to(reply.client, reply.lane, &reply.payload()))?;
            let tally = generator.interval_counts(0, core);
            let histogram = &tally.response_ns;
            if value > MAX_VALUE {
                ensure!((tally.received, histogram.count) == (0, 0), "{value} was counted");
                continue;
            }
            let used = histogram.buckets.iter().position(|&count| count > 0);
            ensure!(used == Some(bucket), "{value} is in bucket {used:?} instead of {bucket}");
            let rest = (histogram.count, histogram.sum, histogram.min, histogram.max);
            ensure!(rest == (1, value, value, value), "{value}: {rest:?}");
        }
        Ok(())
    })
}

/// The least number of units of 2^-32 s that are this many ns, as far as a timestamp reaches.
fn units(ns: u64) -> u64 {
    let units = (u128::from(ns) << 32).div_ceil(1_000_000_000);
    u64::try_from(units).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// Lateness goes into the same buckets; what is larger than the last one goes into the last one.
pub(crate) fn lateness_is_counted_in_the_same_buckets() -> Result<()> {
    on_one_core(|core| {
        let mut random = Random::new(SEED);
        let world = World::all(&mut random)?.remove(0);
        let generator = world.load(ELSEWHERE)?;
        generator.set_trial(&world.trial(ClockMonotonic.now()));
        let up_ns = ClockMonotonic.now().as_ns() as u64;
        ensure!(up_ns > MAX_VALUE, "this machine is up for less than 69 s; wait a little");
        let mut latest = vec![up_ns];
        let bits: Vec<_> = (0..500).map(|_| random.within(0..=30)).collect();
        latest.extend(bits.into_iter().map(|bits| (random.next() % up_ns) >> bits));
        for late_ns in latest {
            generator.clear();
            let before = ClockMonotonic.now().as_ns() as u64;
            let start_ns = before.saturating_sub(late_ns);
            let due = lane(world.lane_clients(LANE), ClockMonotonic.now());
            generator.set_lane(core, &GeneratorLane { start_ns, ..due });
            generator.test_run(&[0; HEADER_LEN])?;
            let after = ClockMonotonic.now().as_ns() as u64;
            let histogram = &generator.interval_counts(0, core).lateness_ns;
            let used = histogram.buckets.iter().position(|&count| count > 0);
            let range = bucket_index(before - start_ns)..=bucket_index(after - start_ns);
            ensure!(
                used.is_some_and(|bucket| range.contains(&bucket)),
                "{late_ns} ns late is in bucket {used:?} instead of {range:?}"
            );
        }
        Ok(())
    })
}
