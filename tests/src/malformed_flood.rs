//! Scenarios of a server that is sent malformed datagrams at full rate: every valid request in
//! between is answered, nothing else is, no reply is longer than its request, and the counters add
//! up to what was sent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};
use serde_json::Value;

use crate::client;
use crate::process::{Engine, Server, TIMEOUT, server_address};
use crate::random::Random;

const DURATION: Duration = Duration::from_secs(1);
const SEED: u64 = 0x6e6f_6973_6521;
/// Datagrams between two answers waited for. A veth's ring holds 256 and the stack's queue 1,000,
/// so none is lost on the way and every one can be accounted for.
const BURST: usize = 64;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long something that must not come is waited for.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// What fits into a frame of 1,500 bytes behind the headers of IPv6.
const PAYLOAD_MAX: u64 = 1_452;

/// What a datagram is to the server, judged here once more, and apart from the server's own
/// judgement (RFC 5905, section 7.3; what follows the header comes in words of 32 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DatagramKind {
    Request,
    Length,
    Version,
    Mode(u8),
}

impl DatagramKind {
    fn of(payload: &[u8]) -> Self {
        let [first, _, ..] = *payload else { return Self::Length };
        // Control messages and private ones have lengths of their own.
        if first & 7 >= 6 {
            return Self::Mode(first & 7);
        }
        if payload.len() < 48 || !payload.len().is_multiple_of(4) {
            return Self::Length;
        }
        match (first >> 3 & 7, first & 7) {
            (0 | 5..=7, _) => Self::Version,
            // The clients' ports here are not 123, so version 1 needs no mode.
            (_, 1 | 3) | (1, 0) => Self::Request,
            (_, mode) => Self::Mode(mode),
        }
    }
}

/// The sorts that are not answered, with the server's names for the reasons.
const IGNORED: [(DatagramKind, &str); 8] = [
    (DatagramKind::Length, "length"),
    (DatagramKind::Version, "version"),
    (DatagramKind::Mode(0), "mode_reserved"),
    (DatagramKind::Mode(2), "mode_passive"),
    (DatagramKind::Mode(4), "mode_server"),
    (DatagramKind::Mode(5), "mode_broadcast"),
    (DatagramKind::Mode(6), "mode_control"),
    (DatagramKind::Mode(7), "mode_private"),
];

/// What was sent.
#[derive(Default, Debug)]
struct SentCounts {
    kinds: BTreeMap<DatagramKind, u64>,
    /// Datagrams of 48 bytes that are plain requests with a mode, which XDP answers itself.
    plain: u64,
    /// Datagrams of another length than 48 bytes.
    other_length: u64,
}

impl SentCounts {
    fn count(&mut self, payload: &[u8]) {
        *self.kinds.entry(DatagramKind::of(payload)).or_default() += 1;
        let is_header = payload.len() == HEADER_LEN;
        self.other_length += u64::from(!is_header);
        let is_plain =
            is_header && DatagramKind::of(payload) == DatagramKind::Request && payload[0] & 7 != 0;
        self.plain += u64::from(is_plain);
    }

    fn of(&self, kind: DatagramKind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.kinds.values().sum()
    }
}

/// A datagram that must not be answered.
fn noise(random: &mut Random) -> Vec<u8> {
    loop {
        let length = match random.within(0..=3) {
            0 => random.within(0..=52),
            1 => HEADER_LEN as u64,
            2 => random.within(0..=PAYLOAD_MAX),
            _ => random.pick(&[PAYLOAD_MAX, HEADER_LEN as u64 + 20, HEADER_LEN as u64 - 1]),
        };
        let payload = random.bytes(length as usize);
        if DatagramKind::of(&payload) != DatagramKind::Request {
            return payload;
        }
    }
}

/// A valid request: plain, in symmetric active mode, with 20 bytes that could be a message
/// authentication code behind it, or of version 1 without a mode.
fn request(random: &mut Random) -> Vec<u8> {
    let version = random.within(1..=4) as u8;
    let mut payload = client::request(version, NtpTimestamp::from_bits(random.next())).to_vec();
    match random.within(0..=4) {
        0 => payload.extend(random.bytes(20)),
        1 => payload[0] = 1 << 3,
        2 => payload[0] = version << 3 | 1,
        _ => {}
    }
    payload
}

/// Takes the next reply, which has to be the one to `request`.
fn expect_reply(socket: &UdpSocket, server: SocketAddr, request: &[u8]) -> Result<()> {
    let mut buffer = [0; 2_048];
    let (length, from) = socket.recv_from(&mut buffer).context("a request was not answered")?;
    let reply = &buffer[..length];
    ensure!(from == server, "a reply came from {from}");
    ensure!(length == HEADER_LEN && length <= request.len(), "a reply of {length} bytes");
    let (header, _) = Header::parse(reply)?;
    let mode = if request[0] & 7 == 1 {
        AssociationMode::SymmetricPassive
    } else {
        AssociationMode::Server
    };
    ensure!(header.mode == mode, "{header:?}");
    ensure!(header.version == request[0] >> 3 & 7, "{header:?} to {request:02x?}");
    ensure!(reply[24..32] == request[40..48], "{header:?} is no reply to {request:02x?}");
    Ok(())
}

/// Sends noise for a while, with a request behind every burst of it.
fn make_noise(lab: &Lab, server: SocketAddr) -> Result<SentCounts> {
    let socket = client::socket(lab.client(), server, READ_TIMEOUT)?;
    let mut random = Random::new(SEED);
    // Made beforehand, so that the noise comes as fast as can be sent.
    let noises: Vec<_> = (0..4_096).map(|_| noise(&mut random)).collect();
    let mut sent = SentCounts::default();
    let started = Instant::now();
    while started.elapsed() < DURATION {
        let first = random.within(0..=(noises.len() - BURST) as u64) as usize;
        let request = request(&mut random);
        for payload in noises[first..first + BURST].iter().chain([&request]) {
            socket.send_to(payload, server)?;
            sent.count(payload);
        }
        expect_reply(&socket, server, &request)?;
    }
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let unasked = socket.recv_from(&mut [0; 2_048]);
    ensure!(unasked.is_err(), "a reply that nobody asked for: {unasked:?}");
    Ok(sent)
}

/// A counter by the path to it.
fn counter(status: &Value, path: &str) -> Result<u64> {
    let value = status.pointer(path).and_then(Value::as_u64);
    value.with_context(|| format!("no counter {path} in {status}"))
}

/// Checks that a counter is what it has to be.
fn expect(status: &Value, path: &str, expected: u64) -> Result<()> {
    let counted = counter(status, path)?;
    ensure!(counted == expected, "{path} is {counted} instead of {expected}: {status}");
    Ok(())
}

/// The server's status once it has counted what it received; what came last may take a moment.
fn settled_status(server: &Server, received: u64) -> Result<Value> {
    let started = Instant::now();
    loop {
        let status = server.status()?;
        let counted =
            counter(&status, "/counters/received")? + counter(&status, "/counters/dropped")?;
        if counted >= received || started.elapsed() > TIMEOUT {
            return Ok(status);
        }
    }
}

fn check_counters(server: &Server, engine: Engine, sent: &SentCounts) -> Result<()> {
    let by_xdp = if engine == Engine::Xdp { sent.plain } else { 0 };
    let received = sent.total() - by_xdp;
    let status = settled_status(server, received)?;
    if engine == Engine::Xdp {
        let answered = counter(&status, "/xdp_counters/answered_ipv4")?
            + counter(&status, "/xdp_counters/answered_ipv6")?;
        ensure!(answered == sent.plain, "XDP answered {answered} of {}: {status}", sent.plain);
        expect(&status, "/xdp_counters/passed/length", sent.other_length)?;
        let request = sent.total() - sent.plain - sent.other_length;
        expect(&status, "/xdp_counters/passed/request", request)?;
        for reason in ["malformed", "fragment", "no_clock"] {
            expect(&status, &format!("/xdp_counters/passed/{reason}"), 0)?;
        }
    }
    for (kind, reason) in IGNORED {
        expect(&status, &format!("/counters/ignored/{reason}"), sent.of(kind))?;
    }
    expect(&status, "/counters/answered", sent.of(DatagramKind::Request) - by_xdp)?;
    expect(&status, "/counters/received", received)?;
    for none in ["ignored/source", "expired", "refused", "dropped", "receive_errors"] {
        expect(&status, &format!("/counters/{none}"), 0)?;
    }
    Ok(())
}

/// Noise is not answered, requests in between are, and the counters tell exactly what was sent,
/// over both IP versions.
pub(crate) fn malformed_requests_get_no_reply(engine: Engine) -> Result<()> {
    for ipv6 in [false, true] {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, ipv6)?;
        let server = Server::start(lab.server(), engine, &[at], &[])?;
        let sent = make_noise(&lab, at)?;
        for kind in IGNORED.map(|(kind, _)| kind).into_iter().chain([DatagramKind::Request]) {
            ensure!(sent.of(kind) > 20, "too little was sent: {sent:?}");
        }
        check_counters(&server, engine, &sent).with_context(|| format!("{sent:?}"))?;
        client::query_from(lab.client(), at).context("after the noise")?;
    }
    Ok(())
}
