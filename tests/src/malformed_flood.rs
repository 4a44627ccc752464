//! Scenarios of malformed datagrams at full rate: the server answers every valid request among them
//! and nothing else, no reply is longer than its request, and the counters add up to the datagrams
//! sent.

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
/// Datagrams between two awaited replies. The ring of a veth holds 256 and the queue of the stack
/// 1,000, so no datagram is lost and each is counted.
const BURST: usize = 64;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which an unexpected reply would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// Longest UDP payload of an IPv6 packet of 1,500 bytes, in bytes.
const PAYLOAD_MAX: u64 = 1_452;

/// Kind of a datagram, classified independently of the server (RFC 5905, section 7.3; a trailer
/// consists of words of 32 bits).
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
        // Control and private messages have other lengths.
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

/// Kinds that have no reply, with the server's names of the reasons.
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

/// Counts of sent datagrams.
#[derive(Default, Debug)]
struct SentCounts {
    kinds: BTreeMap<DatagramKind, u64>,
    /// Plain requests of 48 bytes with a mode, which XDP answers itself.
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

/// Returns a random datagram that is no valid request.
fn malformed_datagram(random: &mut Random) -> Vec<u8> {
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

/// Returns a valid request: plain, in symmetric active mode, with a trailer of 20 bytes that may be
/// a MAC, or of version 1 without a mode.
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

/// Receives the next reply, which must be the one to `request`.
fn expect_reply(socket: &UdpSocket, server: SocketAddr, request: &[u8]) -> Result<()> {
    let mut buffer = [0; 2_048];
    let (length, from) = socket.recv_from(&mut buffer).context("a request was not answered")?;
    let reply = &buffer[..length];
    ensure!(from == server, "reply from {from}");
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

/// Sends malformed datagrams for [`DURATION`], with a request after every burst.
fn send_malformed(lab: &Lab, server: SocketAddr) -> Result<SentCounts> {
    let socket = client::socket(lab.client(), server, READ_TIMEOUT)?;
    let mut random = Random::new(SEED);
    // Generated beforehand, so that they are sent at full rate.
    let malformed: Vec<_> = (0..4_096).map(|_| malformed_datagram(&mut random)).collect();
    let mut sent = SentCounts::default();
    let started = Instant::now();
    while started.elapsed() < DURATION {
        let first = random.within(0..=(malformed.len() - BURST) as u64) as usize;
        let request = request(&mut random);
        for payload in malformed[first..first + BURST].iter().chain([&request]) {
            socket.send_to(payload, server)?;
            sent.count(payload);
        }
        expect_reply(&socket, server, &request)?;
    }
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let unexpected = socket.recv_from(&mut [0; 2_048]);
    ensure!(unexpected.is_err(), "reply without a request: {unexpected:?}");
    Ok(sent)
}

/// Returns a counter of a status by its JSON pointer.
fn counter(status: &Value, path: &str) -> Result<u64> {
    let value = status.pointer(path).and_then(Value::as_u64);
    value.with_context(|| format!("no counter {path} in {status}"))
}

/// Checks the value of a counter.
fn check_counter(status: &Value, path: &str, expected: u64) -> Result<()> {
    let counted = counter(status, path)?;
    ensure!(counted == expected, "{path} is {counted} instead of {expected}: {status}");
    Ok(())
}

/// Returns the server's status once it has counted `received` datagrams, which may take a moment.
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
        check_counter(&status, "/xdp_counters/passed/length", sent.other_length)?;
        let request = sent.total() - sent.plain - sent.other_length;
        check_counter(&status, "/xdp_counters/passed/request", request)?;
        for reason in ["malformed", "fragment", "no_clock"] {
            check_counter(&status, &format!("/xdp_counters/passed/{reason}"), 0)?;
        }
    }
    for (kind, reason) in IGNORED {
        check_counter(&status, &format!("/counters/ignored/{reason}"), sent.of(kind))?;
    }
    check_counter(&status, "/counters/answered", sent.of(DatagramKind::Request) - by_xdp)?;
    check_counter(&status, "/counters/received", received)?;
    for none in ["ignored/source", "expired", "refused", "dropped", "receive_errors"] {
        check_counter(&status, &format!("/counters/{none}"), 0)?;
    }
    Ok(())
}

/// Malformed datagrams have no reply, requests among them have one, and the counters agree with the
/// datagrams sent, over IPv4 and IPv6.
pub(crate) fn malformed_requests_get_no_reply(engine: Engine) -> Result<()> {
    for ipv6 in [false, true] {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, ipv6)?;
        let server = Server::start(lab.server(), engine, &[at], &[])?;
        let sent = send_malformed(&lab, at)?;
        for kind in IGNORED.map(|(kind, _)| kind).into_iter().chain([DatagramKind::Request]) {
            ensure!(sent.of(kind) > 20, "too few {kind:?} datagrams: {sent:?}");
        }
        check_counters(&server, engine, &sent).with_context(|| format!("{sent:?}"))?;
        client::query_from(lab.client(), at).context("query after malformed datagrams")?;
    }
    Ok(())
}
