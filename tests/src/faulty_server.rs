//! Scenarios of `horolog load` against servers with every fault that a server can have, one at a
//! time, at every second request: each is found, counted under its own name and nothing else, and
//! the run continues to a complete result.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{
    FindingCode, InvalidReplyReason, LoadResult, LossLocation, RequestMode as LoadMode,
};
use horolog_sys::netlink::Prefix;
use horolog_time::{NtpShort, NtpTimestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};
use libtest_mimic::Trial;

use crate::faulty_responder::{FaultyResponder, ResponderState};
use crate::load_accounting::lost_at;
use crate::load_command::{ENGINES, check_sums, has, only_trial, result_of};
use crate::process::server_address;
use crate::{ROOT, faulty_server, scenarios};

mod nts;

/// Those that measure.
pub(crate) fn all() -> Vec<Trial> {
    scenarios!(ROOT, faulty_server:
        a_restarted_server_ends_no_run,
        a_server_without_a_valid_reply_is_not_called_dead,
    )
    .into()
}

/// Those that wait: at a low rate, with patience.
pub(crate) fn waiting() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, faulty_server: each_fault_is_counted_under_its_name));
    all.extend(nts::all());
    all
}

/// How long a reply may take; less where late ones are to be seen, which take long enough for that
/// but not longer than the run does.
pub(crate) const TIMEOUT: &str = "500ms";
pub(crate) const SHORT_TIMEOUT: &str = "50ms";
pub(crate) const LATE: Duration = Duration::from_millis(120);
/// An address of the server's host that nobody asks.
const OTHER_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

/// What is to be found of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpectedFinding {
    /// Nothing: it is none that counts.
    Nothing,
    /// An invalid reply, for this reason.
    Invalid(InvalidReplyReason),
    /// A second reply.
    Duplicate,
    /// A second reply to another request, and none to this one.
    Replay,
    /// A reply out of time.
    Late,
    /// No reply.
    Loss,
    /// The server says that it does not know the time.
    Unsynchronised,
}

/// Where a reply comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Target,
    OtherPort,
    OtherAddress,
}

/// A datagram to send in answer.
struct Datagram {
    payload: Vec<u8>,
    from: From,
    to: SocketAddr,
    after: Duration,
}

/// A request, and what is known of others.
struct Request {
    from: SocketAddr,
    reply: Header,
    /// The reply to the last request of another client.
    other: Option<(SocketAddr, Header)>,
    /// Requests before this one.
    number: u64,
}

impl Request {
    fn bytes(header: &Header) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes
    }

    fn datagram(&self, payload: Vec<u8>) -> Datagram {
        Datagram { payload, from: From::Target, to: self.from, after: Duration::ZERO }
    }

    fn right(&self) -> Datagram {
        self.datagram(Self::bytes(&self.reply))
    }

    fn changed(&self, change: impl FnOnce(&mut Header)) -> Vec<Datagram> {
        let mut reply = self.reply;
        change(&mut reply);
        vec![self.datagram(Self::bytes(&reply))]
    }

    fn kiss(&self, code: [u8; 4]) -> Vec<Datagram> {
        self.changed(|reply| {
            (reply.stratum, reply.leap) = (0, LeapIndicator::Unsynchronised);
            reply.reference_id = code;
        })
    }

    /// One of the replies of servers that are not synchronised.
    fn unsynchronised(&self) -> Vec<Datagram> {
        const FORMS: [(u8, u8, [u8; 4]); 7] = [
            (3, 0, [0; 4]),
            (3, 0, *b"INIT"),
            (3, 0, *b"STEP"),
            (3, 2, [192, 0, 2, 9]),
            (3, 16, *b"INIT"),
            (0, 16, [0; 4]),
            (0, 0, [0; 4]),
        ];
        let number = (self.number / 2) as usize;
        let (leap, stratum, id) = FORMS[number % FORMS.len()];
        self.changed(|reply| {
            (reply.leap, reply.stratum) = (LeapIndicator::from_bits(leap), stratum);
            reply.reference_id = id;
            if number % 2 == 1 {
                (reply.receive, reply.transmit) = (NtpTimestamp::UNKNOWN, NtpTimestamp::UNKNOWN);
            }
        })
    }

    fn resized(&self, length: usize) -> Vec<Datagram> {
        let mut payload = Self::bytes(&self.reply);
        payload.resize(length, 0xa5);
        vec![self.datagram(payload)]
    }
}

/// A kind of fault; `None` where a request gives no occasion for it.
type FaultFn = fn(&Request) -> Option<Vec<Datagram>>;

const fn invalid(reason: InvalidReplyReason) -> ExpectedFinding {
    ExpectedFinding::Invalid(reason)
}

const FAULTS: [(&str, ExpectedFinding, FaultFn); 26] = [
    ("garbage", invalid(InvalidReplyReason::Length), |request| {
        Some(vec![request.datagram(vec![0xff, 0, 7, 0x80, 0x24])])
    }),
    ("nothing in it", invalid(InvalidReplyReason::Length), |request| Some(request.resized(0))),
    ("truncated", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized(HEADER_LEN - 1))
    }),
    ("oversized", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized(HEADER_LEN + 20))
    }),
    ("as long as can be", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized(1_472))
    }),
    ("mode of a client", invalid(InvalidReplyReason::Mode), |request| {
        Some(request.changed(|reply| reply.mode = AssociationMode::Client))
    }),
    ("mode of a broadcast", invalid(InvalidReplyReason::Mode), |request| {
        Some(request.changed(|reply| reply.mode = AssociationMode::Broadcast))
    }),
    ("version 3", invalid(InvalidReplyReason::Version), |request| {
        Some(request.changed(|reply| reply.version = 3))
    }),
    ("version 7", invalid(InvalidReplyReason::Version), |request| {
        Some(request.changed(|reply| reply.version = 7))
    }),
    ("kiss RATE", invalid(InvalidReplyReason::KissRate), |request| Some(request.kiss(*b"RATE"))),
    ("kiss DENY", invalid(InvalidReplyReason::KissDeny), |request| Some(request.kiss(*b"DENY"))),
    ("another kiss", invalid(InvalidReplyReason::KissOther), |request| {
        Some(request.kiss(*b"NKEY"))
    }),
    ("kiss of nobody", invalid(InvalidReplyReason::Origin), |request| {
        let mut kiss = request.kiss(*b"DENY");
        kiss[0].payload[24..32].copy_from_slice(&[0xde; 8]);
        Some(kiss)
    }),
    ("odd and right", ExpectedFinding::Nothing, |request| {
        Some(request.changed(|reply| {
            (reply.stratum, reply.reference_id) = (2, [0; 4]);
            (reply.poll, reply.precision) = (127, 0);
            reply.root_dispersion = NtpShort::from_bits(10 << 16);
            reply.receive = NtpTimestamp::from_bits(0xe600_0000_0000_0000);
            reply.transmit = reply.receive;
        }))
    }),
    ("stratum 17", invalid(InvalidReplyReason::Stratum), |request| {
        Some(request.changed(|reply| reply.stratum = 17))
    }),
    ("no transmit timestamp", invalid(InvalidReplyReason::Timestamp), |request| {
        Some(request.changed(|reply| reply.transmit = NtpTimestamp::from_bits(0)))
    }),
    ("sent before received", invalid(InvalidReplyReason::Timestamp), |request| {
        let before = request.reply.receive.to_bits().wrapping_sub(1);
        Some(request.changed(|reply| reply.transmit = NtpTimestamp::from_bits(before)))
    }),
    ("origin of nobody", invalid(InvalidReplyReason::Origin), |request| {
        // The bit that tells which of a request's timestamps it is.
        let origin = request.reply.origin.to_bits() ^ 1;
        Some(request.changed(|reply| reply.origin = NtpTimestamp::from_bits(origin)))
    }),
    ("another client's reply", invalid(InvalidReplyReason::Client), |request| {
        let (_, other) = request.other?;
        Some(request.changed(|reply| reply.origin = other.origin))
    }),
    ("replayed", ExpectedFinding::Duplicate, |request| {
        Some(vec![request.right(), request.right()])
    }),
    ("out of order", ExpectedFinding::Nothing, |request| {
        Some(vec![Datagram { after: Duration::from_millis(7), ..request.right() }])
    }),
    ("late", ExpectedFinding::Late, |request| {
        Some(vec![Datagram { after: LATE, ..request.right() }])
    }),
    ("silent", ExpectedFinding::Loss, |_| Some(Vec::new())),
    ("from another port", ExpectedFinding::Loss, |request| {
        Some(vec![Datagram { from: From::OtherPort, ..request.right() }])
    }),
    ("from another address", ExpectedFinding::Loss, |request| {
        Some(vec![Datagram { from: From::OtherAddress, ..request.right() }])
    }),
    ("unsynchronised", ExpectedFinding::Unsynchronised, |request| Some(request.unsynchronised())),
];

/// Starts a server that goes wrong at every second request, or always.
fn start_server(
    lab: &Lab,
    at: SocketAddr,
    commit: FaultFn,
    always: bool,
) -> Result<FaultyResponder> {
    let others = [SocketAddr::new(at.ip(), 1_123), SocketAddr::new(OTHER_ADDRESS, at.port())];
    let bind = || [at, others[0], others[1]].map(UdpSocket::bind);
    let [target, other_port, other_address] = lab.server().run(bind)?;
    let sockets = [target?, other_port?, other_address?];
    sockets[0].set_read_timeout(Some(Duration::from_millis(2)))?;
    Ok(FaultyResponder::start(move |state| serve(&sockets, (commit, always), state)))
}

fn serve(sockets: &[UdpSocket; 3], (commit, always): (FaultFn, bool), state: &ResponderState) {
    let mut waiting: Vec<(Instant, Datagram)> = Vec::new();
    let mut buffer = [0; 2_048];
    let (mut before, mut other) = (None, None);
    while state.is_running() {
        if let Ok((length, from)) = sockets[0].recv_from(&mut buffer)
            && let Some(reply) = answer(&buffer[..length])
        {
            if before.is_some_and(|(client, _)| client != from) {
                other = before;
            }
            before = Some((from, reply));
            let requests = state.count_request();
            let request = Request { from, reply, other, number: requests };
            let wrong = if always || requests % 2 == 1 { commit(&request) } else { None };
            if wrong.is_some() {
                state.count_fault();
            }
            let now = Instant::now();
            let datagrams = wrong.unwrap_or_else(|| vec![request.right()]);
            waiting.extend(datagrams.into_iter().map(|one| (now + one.after, one)));
        }
        let now = Instant::now();
        waiting.retain(|(due, datagram)| {
            let is_due = *due <= now;
            if is_due {
                let socket = &sockets[datagram.from as usize];
                let _ = socket.send_to(&datagram.payload, datagram.to);
            }
            !is_due
        });
    }
}

/// The right reply to a request.
pub(crate) fn answer(request: &[u8]) -> Option<Header> {
    let (request, _) = Header::parse(request).ok()?;
    // Timestamps say nothing here but that the reply left later than the request came.
    let receive = NtpTimestamp::from_bits(0xe000_0000_0000_0000);
    let transmit = NtpTimestamp::from_bits(receive.to_bits() + 0x1_0000);
    let (mode, stratum, origin) = (AssociationMode::Server, 1, request.transmit);
    Some(Header { mode, stratum, origin, receive, transmit, ..request })
}

/// Checks that of what a server did wrong, and of what it did not see, there is as much in the
/// result as it has to be, and under that name.
pub(crate) fn check_found(
    result: &LoadResult,
    found: ExpectedFinding,
    [requests, wrong]: [u64; 2],
) -> Result<()> {
    let trial = only_trial(result)?;
    check_sums(trial)?;
    ensure!(wrong > 0 && trial.sent >= requests, "{wrong} of {requests} wrong, {trial:?}");
    // A busy machine has no room for all of them.
    let unseen = trial.sent - requests;
    let invalid = match found {
        ExpectedFinding::Invalid(reason) => BTreeMap::from([(reason, wrong)]),
        _ => BTreeMap::new(),
    };
    ensure!(trial.invalid == invalid, "invalid: {:?}, {wrong} wrong", trial.invalid);
    // A master whose time can be traced to nothing may well be synchronised.
    let is_ptp =
        matches!(result.mode, LoadMode::PtpDelay | LoadMode::PtpNsm | LoadMode::PtpUnicast);
    let unsynchronised =
        if found == ExpectedFinding::Unsynchronised && !is_ptp { wrong } else { 0 };
    let in_time = unsynchronised.saturating_sub(trial.late)..=unsynchronised;
    ensure!(in_time.contains(&trial.unsynchronised), "{} of {wrong}", trial.unsynchronised);
    // The copy of the last reply may come when the run is over.
    let repeats = matches!(found, ExpectedFinding::Duplicate | ExpectedFinding::Replay);
    let duplicates = if repeats { wrong - 1..=wrong } else { 0..=0 };
    ensure!(duplicates.contains(&trial.duplicate), "{} duplicate", trial.duplicate);
    // On a busy machine even a right reply may be late.
    let loses = matches!(
        found,
        ExpectedFinding::Invalid(_) | ExpectedFinding::Loss | ExpectedFinding::Replay
    );
    let lost = unseen + trial.late + if loses { wrong } else { 0 };
    let adds_up = match found {
        // A run that has nothing to wait for any more ends, so not all of these are seen.
        ExpectedFinding::Late => trial.late > 0 && trial.lost >= wrong,
        _ => trial.lost == lost,
    };
    ensure!(adds_up, "{} lost, {wrong} wrong, {unseen} unseen, {} late", trial.lost, trial.late);
    ensure!(lost_at(trial, LossLocation::Late) == trial.late, "{:?}", trial.lost_at);
    let is_kiss = matches!(found, ExpectedFinding::Invalid(reason) if reason.kiss_code().is_some());
    for (code, expected) in [
        (FindingCode::KissOfDeath, is_kiss),
        (FindingCode::InvalidReplies, matches!(found, ExpectedFinding::Invalid(_)) && !is_kiss),
        (FindingCode::DuplicateReplies, repeats),
        (FindingCode::ServerUnsynchronised, found == ExpectedFinding::Unsynchronised),
    ] {
        ensure!(has(result, code) == expected, "{code:?}: {:?}", result.findings);
    }
    Ok(())
}

/// By every engine: the kernel's, which judges for itself, and the two that share one judge.
pub(crate) fn each_fault_is_counted_under_its_name() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    let mut wrong = Vec::new();
    for engine in ENGINES {
        for (name, found, commit) in FAULTS {
            let server = start_server(&lab, at, commit, false)?;
            // One thread, so that what is another client's is not another thread's as well.
            let run = [&*target, "--engine", engine.name(), "--threads", "1", "-c", "16"];
            let timeout = if found == ExpectedFinding::Late { SHORT_TIMEOUT } else { TIMEOUT };
            let rate = ["-r", "1000", "-t", "0.3", "--timeout", timeout];
            let result = result_of(lab.client(), &[&run[..], &rate].concat());
            let counts = server.end();
            let checked = result.and_then(|result| check_found(&result, found, counts));
            // All of them, so that one run shows every one that is wrong.
            wrong.extend(checked.err().map(|why| format!("{name} by {engine:?}: {why:#}")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// No reply is valid, by every engine: the losses stand as what they are, and the run says neither
/// that the server was silent nor that packets were lost on the way.
pub(crate) fn a_server_without_a_valid_reply_is_not_called_dead() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    let rate: FaultFn = |request| Some(request.kiss(*b"RATE"));
    let version: FaultFn = |request| Some(request.changed(|reply| reply.version = 3));
    for engine in ENGINES {
        for (commit, code) in
            [(rate, FindingCode::KissOfDeath), (version, FindingCode::InvalidReplies)]
        {
            let server = start_server(&lab, at, commit, true)?;
            let run = [&*target, "--engine", engine.name(), "-r", "1000", "-t", "0.4"];
            let result = result_of(lab.client(), &[&run[..], &["--timeout", TIMEOUT]].concat());
            let [requests, _] = server.end();
            let (result, name) = (result?, engine.name());
            let trial = only_trial(&result)?;
            check_sums(trial)?;
            ensure!((trial.received, trial.invalid_total()) == (0, requests), "{name}: {trial:?}");
            ensure!(
                lost_at(trial, LossLocation::Invalid) == requests,
                "{name}: {:?}",
                trial.lost_at
            );
            let wrong = [
                FindingCode::NoReplies,
                FindingCode::ServerOutage,
                FindingCode::ServerUnsynchronised,
            ];
            let is_misreported =
                result.findings.iter().any(|finding| wrong.contains(&finding.code));
            ensure!(has(&result, code) && !is_misreported, "{name}: {:?}", result.findings);
        }
    }
    Ok(())
}

/// A server whose socket is closed for a while and opened again: what was sent meanwhile is lost,
/// what comes later is answered, and a refusal of the port ends nothing.
pub(crate) fn a_restarted_server_ends_no_run() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    for engine in ENGINES {
        let right: FaultFn = |_| None;
        let result = thread::scope(|scope| {
            let first = start_server(&lab, at, right, false)?;
            let lab = &lab;
            let dies = scope.spawn(move || {
                while first.requests() < 300 {
                    thread::sleep(Duration::from_millis(5));
                }
                first.end();
                thread::sleep(Duration::from_millis(400));
                start_server(lab, at, right, false)
            });
            let run = [&*target, "--engine", engine.name(), "-r", "1k-1.5k", "-x", "1.5"];
            let result = result_of(lab.client(), &[&run[..], &["-t", "1.5"]].concat());
            let _second = dies.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            result
        })?;
        let [first, second] = &result.trials[..] else {
            anyhow::bail!("{engine:?}: {} trials", result.trials.len())
        };
        check_sums(first)?;
        check_sums(second)?;
        ensure!(first.lost > 0 && first.received > 300, "{engine:?}: {first:?}");
        ensure!(second.received > second.lost, "{engine:?}: {second:?}");
        ensure!(first.invalid.is_empty() && result.engine == engine, "{first:?}");
    }
    Ok(())
}
