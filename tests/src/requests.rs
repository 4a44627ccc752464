//! Scenarios of the sending side of the in-kernel generator: requests equal those of the
//! implementation in Rust byte for byte and are not sent before their intended send times;
//! histograms have the layout of `horolog_stats`. Test runs execute the BPF program without sending
//! packets.

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

use crate::generator::{GeneratorRun, LOOPBACK, OTHER_INTERFACE};
use crate::random::Random;
use crate::replies::{Age, Requester, TRIAL_AGE};

const SEED: u64 = 0x7265_7175_6573_7473;
const REQUESTS: u32 = 4_000;
/// Requests before the sequence numbers wrap.
const REQUESTS_BEFORE_WRAP: u32 = 100;
/// Second lane: its clients do not start at the first client.
const LANE: usize = 1;
const INTERVAL_NS: u64 = 1_000;
/// Shortest frame that the program overwrites, in bytes.
const FRAME_MIN: u64 = 14;
/// Longest frame that the program overwrites, in bytes.
const FRAME_MAX: u64 = 200;

/// Runs `work` on one CPU, whose lane and counters the program then uses.
fn run_on_one_core(work: impl FnOnce(u32) -> Result<()> + Send) -> Result<()> {
    let core = *allowed_cores()?.first().context("no allowed CPU")?;
    let pinned = || {
        pin_to_core(core)?;
        work(core as u32)
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("thread panicked"))?
}

/// Returns a lane whose first intended send time was 1 s ago.
fn lane(clients: LaneClients, now: Timestamp<horolog_time::Monotonic>) -> GeneratorLane {
    let wrap = clients.sequence_end();
    let sequence = wrap - REQUESTS_BEFORE_WRAP;
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

/// Returns generator runs with NTP and with PTP requests.
fn generator_runs(random: &mut Random) -> Result<Vec<GeneratorRun>> {
    let mut runs = GeneratorRun::all(random)?;
    runs.extend(GeneratorRun::all_ptp(random)?);
    Ok(runs)
}

/// Every NTP and PTP request equals the plan's, whatever the frame contained before, over both IP
/// versions and with sequential and scattered clients.
pub(crate) fn requests_match_their_plan() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        for run in generator_runs(&mut random)? {
            let generator = run.load(OTHER_INTERFACE)?;
            check_requests(&run, &generator, core, &mut random)
                .with_context(|| format!("{} {:?}", run.target, run.ptp))?;
        }
        Ok(())
    })
}

fn check_requests(
    run: &GeneratorRun,
    generator: &Generator,
    core: u32,
    random: &mut Random,
) -> Result<()> {
    let now = ClockMonotonic.now();
    generator.set_trial(&run.trial(now));
    let clients = run.lane_clients(LANE);
    let begun = lane(clients, now);
    generator.set_lane(core, &begun);
    let template = LaneFrameTemplate::new(&run.frame_parameters(LANE));
    if run.interleaved {
        (0..run.client_count()).for_each(|client| generator.set_origin(client, random.next()));
    }
    for number in 0..REQUESTS {
        let sequence = (begun.sequence + number) % clients.sequence_end();
        let offset = Span::from_ns((u64::from(number) * INTERVAL_NS).cast_signed());
        let intended = Timestamp::from_ns(begun.start_ns.cast_signed()) + offset;
        let frame = random.within(FRAME_MIN..=FRAME_MAX) as usize;
        let outcome = generator.test_run(&random.bytes(frame))?;
        ensure!(outcome.verdict == XdpAction::Redirect, "{number}: {:?}", outcome.verdict);
        let request_id = RequestId { intended, sequence };
        let client = clients.client(sequence);
        let origin = if run.interleaved { generator.origin(client) } else { 0 };
        let check = match run.ptp {
            None => check_request(run, &template, &outcome.frame, (request_id, origin)),
            Some(plan) => check_ptp_request(run, plan, &outcome.frame, request_id),
        };
        check.with_context(|| format!("request {number}: {:02x?}", outcome.frame))?;
    }
    let ended = generator.lane(core);
    let lateness = generator.interval_counts(0, core).lateness_ns.count;
    let requests = u64::from(REQUESTS);
    ensure!(
        (ended.sent, lateness) == (requests, requests),
        "lane {ended:?} with {lateness} lateness samples"
    );
    ensure!(ended.sequence == REQUESTS - REQUESTS_BEFORE_WRAP, "{ended:?}");
    let sent = [now.as_ns() as u64, ended.first_sent_ns, ended.last_sent_ns];
    ensure!(sent.is_sorted() && ended.last_sent_ns <= ClockMonotonic.now().as_ns() as u64);
    Ok(())
}

/// Checks a request against the frame of the engines in Rust, and by parsing it.
fn check_request(
    run: &GeneratorRun,
    template: &LaneFrameTemplate,
    frame: &[u8],
    (request_id, origin): (RequestId, u64),
) -> Result<()> {
    let transmit = run.token.encode(request_id);
    let timestamps = if run.interleaved {
        RequestTimestamps::interleaved(origin, transmit)
    } else {
        RequestTimestamps::basic(transmit)
    };
    let client = run.lane_clients(LANE).client(request_id.sequence);
    let mut expected = template.bytes().to_vec();
    let source_low = run.network.base().wrapping_add(1).wrapping_add(client);
    template.complete_frame(&mut expected, source_low, timestamps);
    ensure!(frame == expected, "expected frame: {expected:02x?}");
    let parsed = UdpFrame::parse(frame).map_err(|error| anyhow!("invalid frame: {error:?}"))?;
    ensure!(parsed.has_valid_checksum() && parsed.trailer_len == 0, "{parsed:?}");
    ensure!(parsed.source.ip() == run.network.address(client), "{parsed:?}");
    ensure!(parsed.source.port() == source_port(LANE) && parsed.destination == run.target);
    let (header, rest) = Header::parse(parsed.payload)?;
    let (origin, receive) = (header.origin, header.receive);
    let plain = Header { origin, receive, ..Header::request(run.version, header.transmit) };
    ensure!(rest.is_empty() && header == plain);
    let now = ClockMonotonic.now();
    let read = run.token.decode(header.transmit.to_bits(), now);
    let wanted = Some((request_id, EchoedTimestamp::Transmit));
    ensure!(read == wanted, "the request is {read:?} instead of {wanted:?}");
    if run.interleaved {
        let read = run.token.decode(header.receive.to_bits(), now);
        ensure!(
            read == Some((request_id, EchoedTimestamp::Receive)),
            "the receive timestamp holds {read:?}"
        );
    }
    Ok(())
}

/// Checks a PTP request against the frame of the engines in Rust, and by parsing it.
fn check_ptp_request(
    run: &GeneratorRun,
    plan: PtpRequestOptions,
    frame: &[u8],
    request_id: RequestId,
) -> Result<()> {
    let token = run.token.encode(request_id);
    let client = run.lane_clients(LANE).client(request_id.sequence);
    let frames = run.frame_parameters(LANE);
    let builder = UdpFrameBuilder {
        destination_mac: frames.destination_mac,
        source_mac: frames.source_mac,
        vlan: None,
        source: SocketAddr::new(run.network.address(client), EVENT_PORT),
        destination: plan.destination(run.target.ip()),
    };
    let mut template = ptp::PtpRequestTemplate::new(&plan, LANE, run.target.ip());
    let payload = template.build_request(token, request_id.sequence);
    let mut expected = vec![0; builder.headers_len() + payload.len()];
    builder.emit(payload, &mut expected);
    ensure!(frame == expected, "expected frame: {expected:02x?}");
    let parsed = UdpFrame::parse(frame).map_err(|error| anyhow!("invalid frame: {error:?}"))?;
    let (message, _) = Message::parse(parsed.payload)?;
    let source = PortIdentity { clock: token, port: LANE as u16 + 1 };
    ensure!(message.header.source == source && message.header.domain == plan.domain);
    let has_request =
        message.tlvs().flatten().any(|tlv| tlv.type_number == monitor::REQUEST_TLV_TYPE);
    ensure!(has_request == (plan.kind == PtpRequestKind::Nsm), "{message:?}");
    Ok(())
}

/// No request is sent before its intended send time, at the end of the trial, after the sender gave
/// up, or from a CPU without a lane.
pub(crate) fn requests_leave_at_their_intended_send_times() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        for run in generator_runs(&mut random)? {
            let generator = run.load(OTHER_INTERFACE)?;
            let now = ClockMonotonic.now();
            generator.set_trial(&run.trial(now));
            let due = lane(run.lane_clients(LANE), now);
            let frame = random.bytes(FRAME_MAX as usize);
            let run_lane = |lane: &GeneratorLane| -> Result<(XdpAction, u32)> {
                generator.set_lane(core, lane);
                let verdict = generator.test_run(&frame)?.verdict;
                Ok((verdict, generator.lane(core).done))
            };
            let later = (now + Span::from_ms(60_000)).as_ns() as u64;
            ensure!(run_lane(&due)? == (XdpAction::Redirect, 0), "due");
            ensure!(
                run_lane(&GeneratorLane { start_ns: later, ..due })? == (XdpAction::Drop, 0),
                "too early"
            );
            ensure!(
                run_lane(&GeneratorLane { next: 9, end: 9, ..due })? == (XdpAction::Drop, 1),
                "at the end"
            );
            ensure!(
                run_lane(&GeneratorLane { give_up_ns: 1, ..due })? == (XdpAction::Drop, 1),
                "given up"
            );
            ensure!(
                run_lane(&GeneratorLane { active: 0, ..due })? == (XdpAction::Drop, 0),
                "no lane"
            );
            ensure!(run_lane(&GeneratorLane { done: 1, ..due })? == (XdpAction::Drop, 1), "done");
        }
        Ok(())
    })
}

/// Exponential intervals are those of the quantile table and have the intended mean.
pub(crate) fn exponential_intervals_match_the_table() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        let run = GeneratorRun::all(&mut random)?.remove(0);
        let generator = run.load(OTHER_INTERFACE)?;
        let now = ClockMonotonic.now();
        generator.set_trial(&TrialSettings { exponential: true, ..run.trial(now) });
        let begun = lane(run.lane_clients(LANE), now);
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
        // Six standard deviations of the mean of `REQUESTS` intervals.
        ensure!((mean - 1.0).abs() < 0.1, "the mean interval is {mean} times the intended one");
        Ok(())
    })
}

/// The program counts a response time in the bucket of `horolog_stats`, for test vectors and random
/// values; a value above the last bucket is not counted.
pub(crate) fn response_time_buckets_match_horolog_stats() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        let run = GeneratorRun::all(&mut random)?.remove(0);
        let generator = run.load(LOOPBACK)?;
        // Log-uniform: short times are as frequent as long ones.
        let bits: Vec<_> = (0..3_000).map(|_| random.within(28..=63)).collect();
        let drawn = bits.into_iter().map(|bits| random.next() >> bits);
        let drawn: Vec<_> = drawn.map(|value| (value, bucket_index(value))).collect();
        for (number, &(value, bucket)) in TEST_VECTORS.iter().chain(&drawn).enumerate() {
            generator.clear();
            generator.set_trial(&run.trial(ClockMonotonic.now() - TRIAL_AGE));
            let mut requester =
                Requester { world: &run, random: &mut random, next: [number as u32; 2] };
            let mut reply = requester.valid(Age::InTime);
            reply.header.receive = NtpTimestamp::from_bits(1);
            reply.header.transmit = NtpTimestamp::from_bits(1 + to_ntp_units(value));
            generator.test_run(&run.frame_to(reply.client, reply.lane, &reply.payload()))?;
            let counts = generator.interval_counts(0, core);
            let histogram = &counts.response_ns;
            if value > MAX_VALUE {
                ensure!((counts.received, histogram.count) == (0, 0), "{value} ns was counted");
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

/// Returns the smallest number of units of 2^-32 s that is at least `ns`, up to `i64::MAX`.
fn to_ntp_units(ns: u64) -> u64 {
    let units = (u128::from(ns) << 32).div_ceil(1_000_000_000);
    u64::try_from(units).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// Send lateness is counted in the buckets of `horolog_stats`; the last one takes larger values.
pub(crate) fn lateness_buckets_match_horolog_stats() -> Result<()> {
    run_on_one_core(|core| {
        let mut random = Random::new(SEED);
        let run = GeneratorRun::all(&mut random)?.remove(0);
        let generator = run.load(OTHER_INTERFACE)?;
        generator.set_trial(&run.trial(ClockMonotonic.now()));
        let up_ns = ClockMonotonic.now().as_ns() as u64;
        ensure!(up_ns > MAX_VALUE, "the host has been up for less than 69 s; wait");
        let mut latenesses = vec![up_ns];
        let bits: Vec<_> = (0..500).map(|_| random.within(0..=30)).collect();
        latenesses.extend(bits.into_iter().map(|bits| (random.next() % up_ns) >> bits));
        for late_ns in latenesses {
            generator.clear();
            let before = ClockMonotonic.now().as_ns() as u64;
            let start_ns = before.saturating_sub(late_ns);
            let due = lane(run.lane_clients(LANE), ClockMonotonic.now());
            generator.set_lane(core, &GeneratorLane { start_ns, ..due });
            generator.test_run(&[0; HEADER_LEN])?;
            let after = ClockMonotonic.now().as_ns() as u64;
            let histogram = &generator.interval_counts(0, core).lateness_ns;
            let used = histogram.buckets.iter().position(|&count| count > 0);
            let range = bucket_index(before - start_ns)..=bucket_index(after - start_ns);
            ensure!(
                used.is_some_and(|bucket| range.contains(&bucket)),
                "a lateness of {late_ns} ns is in bucket {used:?} instead of {range:?}"
            );
        }
        Ok(())
    })
}
