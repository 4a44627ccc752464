//! Scenarios of leap seconds: the XDP program and its model agree around a step, and a server
//! passes the leap second of 2016 on both timelines, with either engine. System clocks are not
//! changed: by its test offset, the server serves a time just before that leap.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_server::{
    AddressHashKey, FrameDecisionInputs, FrameInterleavedHandling, FrameTimes, FrameVerdict,
    InterleavedTable, clock_update, decide_frame,
};
use horolog_source::ClockPage;
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::leap::{LeapKind, LeapSecond, LeapSecondRepresentation, Smear};
use horolog_time::{Clock, Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp, Utc};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};
use horolog_xdp::{Responder, ResponderClockPageWriter, ResponderSettings, XdpAction};
use tempfile::TempDir;

use crate::client;
use crate::differential::{check_reply, hexadecimal, random_page, timestamps, valid_requests};
use crate::frames::{LISTEN, listen_set, serve_stations};
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::random::Random;
use crate::scenario::{Need, Scenario, scenario};

const ROOT: &[Need] = &[Need::Root];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = vec![
        scenario("server_leap::program_and_model_agree_around_a_step", ROOT, || {
            program_and_model_agree_around_a_step()
        }),
        scenario("server_leap::an_invalid_leap_file_prevents_the_start", ROOT, || {
            an_invalid_leap_file_prevents_the_start()
        }),
    ];
    for engine in Engine::ALL {
        let name = format!("{}::server_leap::a_leap_second_is_served", engine.name());
        all.push(scenario(name, ROOT, move || a_leap_second_is_served(engine)));
    }
    all
}

/// Rounds, each with its own step.
const STEPS: usize = 60;

/// Program and model agree byte for byte on both timelines, before and after many steps.
fn program_and_model_agree_around_a_step() -> Result<()> {
    let mut random = Random::new(0x6c65_6170);
    let (mut before, mut after) = (0, 0);
    for round in 0..STEPS {
        let (responder, mut writer) = Responder::load(&ResponderSettings::BASIC)?;
        serve_stations(&responder)?;
        let smeared = round % 2;
        for (index, address) in LISTEN.into_iter().enumerate() {
            let timeline = if index == smeared {
                LeapSecondRepresentation::Smeared
            } else {
                LeapSecondRepresentation::Stepped
            };
            responder.answer_with_timeline(address, timeline)?;
        }
        let counts = compare_around_step(&mut random, &responder, &mut writer, smeared)
            .with_context(|| format!("step {round}"))?;
        before += counts.0;
        after += counts.1;
    }
    ensure!(before > STEPS && after > STEPS, "{before} before and {after} after a step");
    Ok(())
}

/// Compares program and model from before to after a step. Returns the numbers of replies of the
/// stepped timeline before and after it.
fn compare_around_step(
    random: &mut Random,
    responder: &Responder,
    writer: &mut ResponderClockPageWriter,
    smeared: usize,
) -> Result<(usize, usize)> {
    let mut pages = [random_page(random), random_page(random)];
    let stepped = &mut pages[1 - smeared];
    // From 100 µs before the anchor to 1 ms after it.
    let distance = random.within(0..=1_100_000) as i64 - 100_000;
    stepped.timebase.step_at = stepped.timebase.anchor + Span::from_ns(distance);
    stepped.timebase.step = random.pick(&[-1, 1]) << 32;
    stepped.leap_after = LeapIndicator::from_bits(random.next() as u8);
    let step_at = stepped.timebase.step_at;
    writer.publish(&clock_update(&pages[1 - smeared]), &clock_update(&pages[smeared]));
    let (mut before, mut after) = (0, 0);
    let ends = ClockMonotonic.now() + Span::from_ns(1_500_000);
    while ClockMonotonic.now() < ends {
        for (request, (index, page)) in valid_requests(random).iter().zip(pages.iter().enumerate())
        {
            let sent_at = ClockMonotonic.now();
            let outcome = responder.test_run(request)?;
            let answered = ClockMonotonic.now();
            ensure!(outcome.verdict == XdpAction::Transmit, "{:?}", outcome.verdict);
            // The program may have run before or after the step.
            if sent_at < step_at && step_at <= answered {
                continue;
            }
            compare_reply(request, &outcome.frame, page, sent_at, answered)?;
            match index != smeared {
                true if sent_at < step_at => before += 1,
                true => after += 1,
                false => {}
            }
        }
    }
    Ok((before, after))
}

fn compare_reply(
    request: &[u8],
    reply: &[u8],
    page: &ClockPage,
    sent_at: Timestamp<Monotonic>,
    answered: Timestamp<Monotonic>,
) -> Result<()> {
    let listen = listen_set();
    let (receive, transmit) = timestamps(reply)?;
    let table =
        InterleavedTable::new(0, AddressHashKey([0; 2])).context("cannot make an empty table")?;
    let interleaved = FrameInterleavedHandling::Answer(&table);
    let page_then = page.for_reply_at(sent_at);
    let server =
        FrameDecisionInputs { listen: &listen, page: &page_then, limiter: None, interleaved };
    let arrival = FrameTimes { now: sent_at, received: receive, transmit };
    let model = decide_frame(request, &server, &arrival);
    let expected = FrameVerdict::Transmit(reply.to_vec());
    ensure!(model == expected, "program {}, model {model:?}", hexadecimal(reply));
    check_reply(request, reply)?;
    let bounds = [sent_at, answered].map(|now| page.timebase.ntp_at(now));
    let [Some(first), Some(last)] = bounds else { anyhow::bail!("the page has expired") };
    let in_order = receive.since(first) >= Span::ZERO && last.since(receive) >= Span::ZERO;
    ensure!(in_order, "{receive:?} is not between {first:?} and {last:?}");
    Ok(())
}

const LEAP_FILE: &str = include_str!("../../crates/server/testdata/leap-seconds-2016.list");
const LEAP: LeapSecond =
    LeapSecond { midnight: Timestamp::from_ns(1_483_228_800 * NS_PER_S), kind: LeapKind::Insert };
const SMEAR: Smear = Smear { length: Span::from_ns(2_000 * NS_PER_S) };
/// Pause between two requests.
const REQUEST_PAUSE: Duration = Duration::from_millis(5);
/// Time between the start of the server and the leap.
const BEFORE_LEAP: Span = Span::from_ns(4 * NS_PER_S);
/// Time between the leap and the last request.
const AFTER_LEAP: Span = Span::from_ns(2 * NS_PER_S);
/// Tolerance: error with which the server measures the system clock against the monotonic clock,
/// and of the client's own readings.
const READING_ERROR: Span = Span::from_ns(20_000);

/// A server passes the leap second of 2016: every reply lies between the exact times, in UTC or
/// smeared, at which the request was sent and the reply was received.
fn a_leap_second_is_served(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let directory = TempDir::new()?;
    let list = directory.path().join("leap-seconds.list");
    fs::write(&list, LEAP_FILE)?;
    let stepped = server_address(&lab, false)?;
    let smeared = SocketAddr::new(stepped.ip(), stepped.port() + 1);
    let offset = LEAP.midnight - BEFORE_LEAP - ClockRealtime.now();
    let list = list.to_string_lossy();
    let (smear_listen, offset_ns) = (smeared.to_string(), offset.as_ns().to_string());
    let arguments = ["--leap-file", &list, "--leap-smear", "2000", "--smear-listen"];
    let arguments = [&arguments[..], &[&smear_listen, "--test-offset", &offset_ns]].concat();
    let server = Server::start(lab.server(), engine, &[stepped], &arguments)?;

    let mut checker = ReplyChecker { offset, counts: [[0; 2]; 2], last_smeared: None };
    let endpoints = [
        (stepped, LeapSecondRepresentation::Stepped),
        (smeared, LeapSecondRepresentation::Smeared),
    ];
    let sockets = endpoints.map(|(at, timeline)| (client_socket(lab.client(), at), at, timeline));
    while ClockRealtime.now() + offset < LEAP.midnight + AFTER_LEAP {
        for (socket, at, timeline) in &sockets {
            let socket = socket.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            checker.query(socket, *at, *timeline)?;
        }
        thread::sleep(REQUEST_PAUSE);
    }
    let enough = checker.counts.iter().flatten().all(|count| *count > 20);
    ensure!(enough, "too few replies by timeline, before and after: {:?}", checker.counts);
    let status = server.status()?;
    let by_xdp = status["xdp_counters"]["answered_ipv4"].as_u64().unwrap_or_default();
    ensure!((by_xdp > 0) == (engine == Engine::Xdp), "answered by XDP: {by_xdp}");
    Ok(())
}

fn client_socket(host: &LabHost, server: SocketAddr) -> Result<UdpSocket> {
    client::socket(host, server, TIMEOUT)
}

/// Checker of replies, with its counts.
struct ReplyChecker {
    offset: Span,
    /// Replies by timeline, before and after the leap.
    counts: [[usize; 2]; 2],
    last_smeared: Option<NtpTimestamp>,
}

impl ReplyChecker {
    fn query(
        &mut self,
        socket: &UdpSocket,
        server: SocketAddr,
        timeline: LeapSecondRepresentation,
    ) -> Result<()> {
        let token = client::now();
        let sent_at = ClockRealtime.now() + self.offset - READING_ERROR;
        socket.send_to(&client::request(4, token), server)?;
        let mut buffer = [0; 2 * HEADER_LEN];
        let (length, _) = socket.recv_from(&mut buffer).context("no reply")?;
        let received_at = ClockRealtime.now() + self.offset + READING_ERROR;
        let (header, rest) = Header::parse(&buffer[..length])?;
        ensure!(
            rest.is_empty() && header.mode == AssociationMode::Server && header.origin == token
        );
        let is_after = sent_at >= LEAP.step_instant();
        if is_after == (received_at >= LEAP.step_instant()) {
            self.counts[timeline as usize][usize::from(is_after)] += 1;
            check_time(&header, timeline, sent_at, received_at)?;
        }
        if timeline == LeapSecondRepresentation::Smeared {
            let last = self.last_smeared.replace(header.transmit);
            let is_monotonic = last.is_none_or(|last| header.transmit.since(last) > Span::ZERO);
            ensure!(is_monotonic, "smeared time steps back from {last:?}: {header:?}");
        }
        Ok(())
    }
}

/// Checks a reply against the exact time at `sent_at` and `received_at`, on the scale before the
/// leap.
fn check_time(
    header: &Header,
    timeline: LeapSecondRepresentation,
    sent_at: Timestamp<Utc>,
    received_at: Timestamp<Utc>,
) -> Result<()> {
    let is_after = sent_at >= LEAP.step_instant();
    let exact = |instant: Timestamp<Utc>| match timeline {
        LeapSecondRepresentation::Smeared => SMEAR.reading_at(&LEAP, instant).instant,
        LeapSecondRepresentation::Stepped if is_after => instant + LEAP.step(),
        LeapSecondRepresentation::Stepped => instant,
    };
    let served = [header.receive, header.transmit].map(|ntp| ntp.to_utc(LEAP.midnight));
    let in_order = [exact(sent_at), served[0], served[1], exact(received_at)];
    ensure!(in_order.is_sorted(), "{timeline:?}: out of order: {in_order:?}");
    let announced = timeline == LeapSecondRepresentation::Stepped && !is_after;
    let expected = if announced { LeapIndicator::Insert } else { LeapIndicator::None };
    ensure!(header.leap == expected, "{timeline:?} at {sent_at:?}: {header:?}");
    let is_smear = header.reference_id[0] == 254;
    ensure!(
        is_smear == (timeline == LeapSecondRepresentation::Smeared),
        "{timeline:?}: {header:?}"
    );
    let ahead = header.reference.since(header.transmit);
    ensure!(ahead <= Span::ZERO, "{timeline:?}: the reference is in the future: {header:?}");
    Ok(())
}

/// An invalid leap-seconds file or option prevents the start, with one line that names the error.
fn an_invalid_leap_file_prevents_the_start() -> Result<()> {
    const ENVIRONMENT: i32 = 3;
    const USAGE: i32 = 2;
    let directory = TempDir::new()?;
    let path = directory.path().join("leap-seconds.list");
    let name = path.to_string_lossy().into_owned();
    let file = ["--leap-file", name.as_str(), "--listen", "127.0.0.1:0"];
    let smear = ["--smear-listen", "127.0.0.1:0"];
    let damaged = LEAP_FILE.replace("3692217600 37", "3692217600 38");
    let changed = LEAP_FILE.replace("3692217600 37", "3692217600 35");
    let cases: [(Option<&str>, &[&str], i32, &str); 6] = [
        (None, &file, ENVIRONMENT, "No such file"),
        (Some("\u{0}"), &file, ENVIRONMENT, "line 1: seconds and TAI minus UTC expected"),
        (Some(&damaged), &file, ENVIRONMENT, "line 5: TAI minus UTC changes by one second"),
        (Some(&changed), &file, ENVIRONMENT, "line 6: the hash does not match"),
        (Some(LEAP_FILE), &smear, USAGE, "--leap-file"),
        (Some(LEAP_FILE), &["--leap-smear", "10"], USAGE, "--leap-smear takes 2000 to 604800 s"),
    ];
    for (text, arguments, status, named) in cases {
        text.map_or(Ok(()), |text| fs::write(&path, text))?;
        let mut command = Command::new(binary()?);
        command.args(["serve", "--local", "--engine", "socket"]).args(arguments);
        command.arg("--status-socket").arg(directory.path().join("status.sock"));
        let output = run_to_end(&mut command, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_named = output.status.code() == Some(status) && stderr.contains(named);
        ensure!(is_named && stderr.lines().count() == 1, "{named}: {} {stderr}", output.status);
    }
    Ok(())
}
