//! Scenarios of `horolog load` against faulty servers, with one kind of fault each at every second
//! request: each fault is counted under its own name only, and the run completes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{
    FindingCode, InvalidReplyReason, LoadEngineKind, LoadResult, LossLocation,
    RequestMode as LoadMode,
};
use horolog_time::{NtpShort, NtpTimestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};
use horolog_wire::prefix::Prefix;

use crate::faulty_responder::{FaultGroup, FaultyResponder, ResponderCounts, ResponderState};
use crate::load_accounting::lost_at;
use crate::load_command::{ENGINES, check_sums, has_finding, only_trial, result_of};
use crate::process::server_address;
use crate::scenario::{Queue, Scenario, scenario};
use crate::{ROOT, faulty_server, scenarios};

mod nts;

pub(crate) fn all() -> Vec<Scenario> {
    let with_every_engine = scenarios!(ROOT, faulty_server:
        run_survives_a_server_restart,
        invalid_replies_are_not_an_outage,
    );
    let mut all: Vec<_> =
        with_every_engine.map(|scenario| scenario.in_queue(Queue::Measuring)).into();
    for engine in ENGINES {
        let name =
            format!("faulty_server::each_fault_is_counted_under_its_name::{}", engine.name());
        let faults = scenario(name, ROOT, move || each_fault_is_counted_under_its_name(engine));
        all.push(faults.in_queue(Queue::of_generator(engine)));
    }
    all.extend(nts::all());
    all
}

/// Reply timeout: longer than a process waits for a core of a busy machine.
pub(crate) const TIMEOUT: &str = "1s";
/// Reply timeout for late replies.
pub(crate) const SHORT_TIMEOUT: &str = "50ms";
/// Delay of late replies: longer than [`SHORT_TIMEOUT`], shorter than a run.
pub(crate) const LATE: Duration = Duration::from_millis(120);
/// Address of the server's host to which no request is sent.
const OTHER_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

/// Expected effect of a fault on the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpectedFinding {
    /// No effect: the fault is not counted.
    Nothing,
    /// Invalid reply with this reason.
    Invalid(InvalidReplyReason),
    /// Second reply to a request.
    Duplicate,
    /// Second reply to another request, and none to this one.
    Replay,
    /// Reply after the timeout.
    Late,
    /// No reply.
    Loss,
    /// Reply of an unsynchronised server.
    Unsynchronised,
}

/// Source of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Target,
    OtherPort,
    OtherAddress,
}

/// Datagram of a reply.
struct Datagram {
    payload: Vec<u8>,
    from: From,
    to: SocketAddr,
    after: Duration,
}

/// Request with the requests before it.
struct Request {
    from: SocketAddr,
    reply: Header,
    /// Reply to the last request of another client.
    other: Option<(SocketAddr, Header)>,
    /// Number of requests before this one.
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

    fn correct_reply(&self) -> Datagram {
        self.datagram(Self::bytes(&self.reply))
    }

    fn changed_reply(&self, change: impl FnOnce(&mut Header)) -> Vec<Datagram> {
        let mut reply = self.reply;
        change(&mut reply);
        vec![self.datagram(Self::bytes(&reply))]
    }

    fn kiss_reply(&self, code: [u8; 4]) -> Vec<Datagram> {
        self.changed_reply(|reply| {
            (reply.stratum, reply.leap) = (0, LeapIndicator::Unsynchronised);
            reply.reference_id = code;
        })
    }

    /// Returns one of the reply forms of unsynchronised servers.
    fn unsynchronised_reply(&self) -> Vec<Datagram> {
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
        self.changed_reply(|reply| {
            (reply.leap, reply.stratum) = (LeapIndicator::from_bits(leap), stratum);
            reply.reference_id = id;
            if number % 2 == 1 {
                (reply.receive, reply.transmit) = (NtpTimestamp::UNKNOWN, NtpTimestamp::UNKNOWN);
            }
        })
    }

    fn resized_reply(&self, length: usize) -> Vec<Datagram> {
        let mut payload = Self::bytes(&self.reply);
        payload.resize(length, 0xa5);
        vec![self.datagram(payload)]
    }
}

/// Makes the replies with a fault; returns `None` if a request gives no occasion for it.
type FaultFn = fn(&Request) -> Option<Vec<Datagram>>;

const fn invalid(reason: InvalidReplyReason) -> ExpectedFinding {
    ExpectedFinding::Invalid(reason)
}

const FAULTS: [(&str, ExpectedFinding, FaultFn); 26] = [
    ("garbage", invalid(InvalidReplyReason::Length), |request| {
        Some(vec![request.datagram(vec![0xff, 0, 7, 0x80, 0x24])])
    }),
    ("empty", invalid(InvalidReplyReason::Length), |request| Some(request.resized_reply(0))),
    ("truncated", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized_reply(HEADER_LEN - 1))
    }),
    ("oversized", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized_reply(HEADER_LEN + 20))
    }),
    ("maximum length", invalid(InvalidReplyReason::Length), |request| {
        Some(request.resized_reply(1_472))
    }),
    ("mode of a client", invalid(InvalidReplyReason::Mode), |request| {
        Some(request.changed_reply(|reply| reply.mode = AssociationMode::Client))
    }),
    ("mode of a broadcast", invalid(InvalidReplyReason::Mode), |request| {
        Some(request.changed_reply(|reply| reply.mode = AssociationMode::Broadcast))
    }),
    ("version 3", invalid(InvalidReplyReason::Version), |request| {
        Some(request.changed_reply(|reply| reply.version = 3))
    }),
    ("version 7", invalid(InvalidReplyReason::Version), |request| {
        Some(request.changed_reply(|reply| reply.version = 7))
    }),
    ("kiss RATE", invalid(InvalidReplyReason::KissRate), |request| {
        Some(request.kiss_reply(*b"RATE"))
    }),
    ("kiss DENY", invalid(InvalidReplyReason::KissDeny), |request| {
        Some(request.kiss_reply(*b"DENY"))
    }),
    ("another kiss", invalid(InvalidReplyReason::KissOther), |request| {
        Some(request.kiss_reply(*b"NKEY"))
    }),
    ("kiss with an unknown origin", invalid(InvalidReplyReason::Origin), |request| {
        let mut kiss = request.kiss_reply(*b"DENY");
        kiss[0].payload[24..32].copy_from_slice(&[0xde; 8]);
        Some(kiss)
    }),
    ("unusual and valid", ExpectedFinding::Nothing, |request| {
        Some(request.changed_reply(|reply| {
            (reply.stratum, reply.reference_id) = (2, [0; 4]);
            (reply.poll, reply.precision) = (127, 0);
            reply.root_dispersion = NtpShort::from_bits(10 << 16);
            reply.receive = NtpTimestamp::from_bits(0xe600_0000_0000_0000);
            reply.transmit = reply.receive;
        }))
    }),
    ("stratum 17", invalid(InvalidReplyReason::Stratum), |request| {
        Some(request.changed_reply(|reply| reply.stratum = 17))
    }),
    ("no transmit timestamp", invalid(InvalidReplyReason::Timestamp), |request| {
        Some(request.changed_reply(|reply| reply.transmit = NtpTimestamp::from_bits(0)))
    }),
    ("sent before received", invalid(InvalidReplyReason::Timestamp), |request| {
        let before = request.reply.receive.to_bits().wrapping_sub(1);
        Some(request.changed_reply(|reply| reply.transmit = NtpTimestamp::from_bits(before)))
    }),
    ("unknown origin", invalid(InvalidReplyReason::Origin), |request| {
        // This bit selects one of a request's two timestamps.
        let origin = request.reply.origin.to_bits() ^ 1;
        Some(request.changed_reply(|reply| reply.origin = NtpTimestamp::from_bits(origin)))
    }),
    ("another client's reply", invalid(InvalidReplyReason::Client), |request| {
        let (_, other) = request.other?;
        Some(request.changed_reply(|reply| reply.origin = other.origin))
    }),
    ("replayed", ExpectedFinding::Duplicate, |request| {
        Some(vec![request.correct_reply(), request.correct_reply()])
    }),
    ("out of order", ExpectedFinding::Nothing, |request| {
        Some(vec![Datagram { after: Duration::from_millis(7), ..request.correct_reply() }])
    }),
    ("late", ExpectedFinding::Late, |request| {
        Some(vec![Datagram { after: LATE, ..request.correct_reply() }])
    }),
    ("unanswered", ExpectedFinding::Loss, |_| Some(Vec::new())),
    ("from another port", ExpectedFinding::Loss, |request| {
        Some(vec![Datagram { from: From::OtherPort, ..request.correct_reply() }])
    }),
    ("from another address", ExpectedFinding::Loss, |request| {
        Some(vec![Datagram { from: From::OtherAddress, ..request.correct_reply() }])
    }),
    ("unsynchronised", ExpectedFinding::Unsynchronised, |request| {
        Some(request.unsynchronised_reply())
    }),
];

type NtpFaults = FaultGroup<ExpectedFinding, FaultFn>;

/// Returns a group of one fault, whose outcome the caller checks.
fn at_each_request(commit: FaultFn) -> NtpFaults {
    FaultGroup::at_each_request(ExpectedFinding::Nothing, commit)
}

/// Starts a server that commits the faults in turn.
fn start_server(lab: &Lab, at: SocketAddr, faults: &NtpFaults) -> Result<FaultyResponder> {
    let others = [SocketAddr::new(at.ip(), 1_123), SocketAddr::new(OTHER_ADDRESS, at.port())];
    let bind = || [at, others[0], others[1]].map(UdpSocket::bind);
    let [target, other_port, other_address] = lab.server().run(bind)?;
    let sockets = [target?, other_port?, other_address?];
    sockets[0].set_read_timeout(Some(Duration::from_millis(2)))?;
    let faults = faults.clone();
    Ok(FaultyResponder::start(move |state| serve(&sockets, &faults, state)))
}

fn serve(sockets: &[UdpSocket; 3], faults: &NtpFaults, state: &ResponderState) {
    let mut pending: Vec<(Instant, Datagram)> = Vec::new();
    let mut buffer = [0; 2_048];
    let (mut before, mut other) = (None, None);
    while state.is_running() {
        if let Ok((length, from)) = sockets[0].recv_from(&mut buffer)
            && let Some(reply) = reply_to(&buffer[..length])
        {
            if before.is_some_and(|(client, _)| client != from) {
                other = before;
            }
            before = Some((from, reply));
            let number = state.count_request();
            let request = Request { from, reply, other, number };
            let wrong = faults.commit(state, number, |commit| commit(&request));
            let now = Instant::now();
            let datagrams = wrong.unwrap_or_else(|| vec![request.correct_reply()]);
            pending.extend(datagrams.into_iter().map(|one| (now + one.after, one)));
        }
        let now = Instant::now();
        pending.retain(|(due, datagram)| {
            let is_due = *due <= now;
            if is_due {
                let socket = &sockets[datagram.from as usize];
                let _ = socket.send_to(&datagram.payload, datagram.to);
            }
            !is_due
        });
    }
}

/// Returns the correct reply to a request.
pub(crate) fn reply_to(request: &[u8]) -> Option<Header> {
    let (request, _) = Header::parse(request).ok()?;
    // Valid timestamps need only a transmission after the reception.
    let receive = NtpTimestamp::from_bits(0xe000_0000_0000_0000);
    let transmit = NtpTimestamp::from_bits(receive.to_bits() + 0x1_0000);
    let (mode, stratum, origin) = (AssociationMode::Server, 1, request.transmit);
    Some(Header { mode, stratum, origin, receive, transmit, ..request })
}

/// Checks that the result counts the faults of the responder as the expected kind, and no others;
/// requests that the server did not receive are lost.
pub(crate) fn check_result(
    result: &LoadResult,
    found: ExpectedFinding,
    ResponderCounts { requests, faults: wrong, .. }: ResponderCounts,
) -> Result<()> {
    let trial = only_trial(result)?;
    check_sums(trial)?;
    ensure!(wrong > 0 && trial.sent >= requests, "{wrong} of {requests} with a fault: {trial:?}");
    // A busy machine may drop some requests before the server.
    let not_received = trial.sent - requests;
    let invalid = match found {
        ExpectedFinding::Invalid(reason) => BTreeMap::from([(reason, wrong)]),
        _ => BTreeMap::new(),
    };
    ensure!(trial.invalid == invalid, "invalid replies {:?} for {wrong} faults", trial.invalid);
    // A PTP master whose time is not traceable may still be synchronised.
    let is_ptp =
        matches!(result.mode, LoadMode::PtpDelay | LoadMode::PtpNsm | LoadMode::PtpUnicast);
    let unsynchronised =
        if found == ExpectedFinding::Unsynchronised && !is_ptp { wrong } else { 0 };
    let in_time = unsynchronised.saturating_sub(trial.late)..=unsynchronised;
    let counted = trial.unsynchronised;
    ensure!(in_time.contains(&counted), "{counted} of {wrong} counted as unsynchronised");
    // The last duplicates may arrive after the end of the run.
    let repeats = matches!(found, ExpectedFinding::Duplicate | ExpectedFinding::Replay);
    let duplicates = if repeats { wrong - wrong.div_ceil(10)..=wrong } else { 0..=0 };
    ensure!(duplicates.contains(&trial.duplicate), "{} duplicates", trial.duplicate);
    // On a busy machine, correct replies may be late as well.
    let loses = matches!(
        found,
        ExpectedFinding::Invalid(_) | ExpectedFinding::Loss | ExpectedFinding::Replay
    );
    let lost = not_received + trial.late + if loses { wrong } else { 0 };
    let adds_up = match found {
        // A run ends when no request is outstanding, so that some late replies are not received.
        ExpectedFinding::Late => trial.late > 0 && trial.lost >= wrong,
        _ => trial.lost == lost,
    };
    let late = trial.late;
    ensure!(
        adds_up,
        "{} lost: {wrong} faults, {not_received} not received, {late} late",
        trial.lost
    );
    ensure!(lost_at(trial, LossLocation::Late) == trial.late, "{:?}", trial.lost_at);
    let is_kiss = matches!(found, ExpectedFinding::Invalid(reason) if reason.kiss_code().is_some());
    for (code, expected) in [
        (FindingCode::KissOfDeath, is_kiss),
        (FindingCode::InvalidReplies, matches!(found, ExpectedFinding::Invalid(_)) && !is_kiss),
        (FindingCode::DuplicateReplies, repeats),
        (FindingCode::ServerUnsynchronised, found == ExpectedFinding::Unsynchronised),
    ] {
        ensure!(has_finding(result, code) == expected, "{code:?}: {:?}", result.findings);
    }
    Ok(())
}

fn each_fault_is_counted_under_its_name(engine: LoadEngineKind) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    let mut wrong = Vec::new();
    for faults in FaultGroup::by_outcome(FAULTS) {
        let server = start_server(&lab, at, &faults)?;
        // A single thread, so that a reply to another client is not one to another thread.
        let run = [&*target, "--engine", engine.name(), "--threads", "1", "-c", "16"];
        let is_late = faults.outcome == ExpectedFinding::Late;
        let timeout = if is_late { SHORT_TIMEOUT } else { TIMEOUT };
        let rate = ["-r", "1000", "-t", "0.2", "--timeout", timeout];
        let result = result_of(lab.client(), &[&run[..], &rate].concat());
        let counts = server.end();
        let checked = result
            .and_then(|result| check_result(&result, faults.outcome, counts))
            .and_then(|()| faults.check_all_committed(counts));
        // Failures are collected, so that one run shows them all.
        wrong.extend(checked.err().map(|why| format!("{}: {why:#}", faults.names())));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// No reply is valid, with each engine: losses are attributed to invalid replies, and no finding
/// reports an outage or an unsynchronised server.
pub(crate) fn invalid_replies_are_not_an_outage() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    let rate: FaultFn = |request| Some(request.kiss_reply(*b"RATE"));
    let version: FaultFn = |request| Some(request.changed_reply(|reply| reply.version = 3));
    for engine in ENGINES {
        for (commit, code) in
            [(rate, FindingCode::KissOfDeath), (version, FindingCode::InvalidReplies)]
        {
            let server = start_server(&lab, at, &at_each_request(commit))?;
            let run = [&*target, "--engine", engine.name(), "-r", "1000", "-t", "0.4"];
            let result = result_of(lab.client(), &[&run[..], &["--timeout", TIMEOUT]].concat());
            let requests = server.end().requests;
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
            ensure!(has_finding(&result, code) && !is_misreported, "{name}: {:?}", result.findings);
        }
    }
    Ok(())
}

/// A server is closed for 400 ms in the middle of a run: requests in that time are lost, later ones
/// are answered, and closed-port errors do not end the run.
pub(crate) fn run_survives_a_server_restart() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let host = lab.server();
    host.netlink()?.add_address(host.first_interface().index, Prefix::host(OTHER_ADDRESS))?;
    let target = at.ip().to_string();
    for engine in ENGINES {
        let no_fault = at_each_request(|_| None);
        let result = thread::scope(|scope| {
            let first = start_server(&lab, at, &no_fault)?;
            let lab = &lab;
            let restart = scope.spawn(move || {
                while first.requests() < 300 {
                    thread::sleep(Duration::from_millis(5));
                }
                first.end();
                thread::sleep(Duration::from_millis(400));
                start_server(lab, at, &no_fault)
            });
            let run = [&*target, "--engine", engine.name(), "-r", "1k-1.5k", "-x", "1.5"];
            let result = result_of(lab.client(), &[&run[..], &["-t", "1"]].concat());
            let _second = restart.join().map_err(|_| anyhow::anyhow!("panicked"))??;
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
