//! Scenarios of `horolog load ptp` against faulty masters, with one kind of fault each at every
//! second request: each fault is counted under its own name only, and the run completes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{LoadEngineKind, LoadResult, ReplyKindCounts, RequestMode};
use horolog_wire::prefix::Prefix;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use crate::ROOT_AND_IPV6;
use crate::faulty_responder::{FaultGroup, FaultyResponder, ResponderCounts, ResponderState};
use crate::faulty_server::{ExpectedFinding, SHORT_TIMEOUT, TIMEOUT, check_result};
use crate::load_command::only_trial;
use crate::load_ptp::load;
use crate::process::server_address;
use crate::ptp_messages::{Datagram, PtpRequest};
use crate::scenario::{Queue, Scenario, scenario};

mod faults;

use faults::{Context, Fault, FaultAction};

pub(crate) fn all() -> Vec<Scenario> {
    type Run = fn(Cell) -> Result<()>;
    let runs: [(&str, Run, &[Cell]); 3] = [
        ("a_delay_response", each_fault_of_a_delay_response_is_counted, &ALL_ENGINES),
        ("netsync_monitor", each_fault_of_netsync_monitor_is_counted, &ALL_ENGINES),
        ("a_negotiation", each_fault_of_a_negotiation_is_counted, &UNICAST_ENGINES),
    ];
    let all = runs.into_iter().flat_map(|(of, run, cells)| {
        cells.iter().map(move |&cell| {
            let (engine, family) = (cell.0.name(), if cell.1 { "ipv6" } else { "ipv4" });
            let name = format!("faulty_master::each_fault_of_{of}_is_counted::{engine}_{family}");
            let faults = scenario(name, ROOT_AND_IPV6, move || run(cell));
            faults.in_queue(Queue::of_generator(cell.0))
        })
    });
    all.collect()
}

/// Source port that is not one of PTP's.
const OTHER_PORT: u16 = 1_320;
/// Addresses of the master's host to which no request is sent.
const OTHER_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
const OTHER_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0bad, 0, 0, 0, 0, 0, 7));

/// Expected effect of a fault on the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FaultOutcome {
    /// Effect that also occurs with NTP servers.
    Common(ExpectedFinding),
    /// Only the delay response of a NetSync Monitor exchange arrives.
    NoSync,
    /// Only Sync and `Follow_Up` of a NetSync Monitor exchange arrive.
    NoDelay,
    /// A request for unicast messages was denied.
    Denied,
    /// A grant was cancelled.
    Cancelled,
    /// A cancellation arrived without a grant.
    CancelledOnly,
}

impl FaultOutcome {
    const fn expected_finding(self) -> ExpectedFinding {
        match self {
            Self::Common(found) => found,
            Self::NoSync | Self::NoDelay | Self::CancelledOnly => ExpectedFinding::Loss,
            Self::Denied | Self::Cancelled => ExpectedFinding::Nothing,
        }
    }

    /// Checks the counts of a run against those of the responder.
    fn check(self, result: &LoadResult, counts: ResponderCounts) -> Result<()> {
        check_result(result, self.expected_finding(), counts)?;
        let wrong = counts.faults;
        let trial = only_trial(result)?;
        let ReplyKindCounts { delay, sync_follow_up, grant, denial, cancellation, .. } =
            trial.responses;
        let (received, none) = (trial.received, 0);
        let right = match (result.mode, self) {
            (RequestMode::PtpDelay, _) => (delay, sync_follow_up) == (received, none),
            (RequestMode::PtpNsm, Self::NoSync) => {
                (delay, sync_follow_up) == (received + wrong, received)
            }
            (RequestMode::PtpNsm, Self::NoDelay) => {
                (delay, sync_follow_up) == (received, received + wrong)
            }
            (RequestMode::PtpNsm, _) => delay.min(sync_follow_up) == received,
            (_, Self::Denied) => (grant, denial) == (received - wrong, wrong),
            (_, _) => (grant, denial) == (received, none),
        };
        let is_taken_back = matches!(self, Self::Cancelled | Self::CancelledOnly);
        let right = right && cancellation == if is_taken_back { wrong } else { none };
        let counts = trial.responses;
        ensure!(right, "wrong response counts: {counts:?} of {received}, {wrong} with the fault");
        Ok(())
    }
}

type PtpFaults = FaultGroup<FaultOutcome, FaultAction>;

/// Starts a master that commits the faults in turn, at every second request.
fn start_master(lab: &Lab, at: IpAddr, faults: &PtpFaults) -> Result<FaultyResponder> {
    let other = if at.is_ipv4() { OTHER_IPV4 } else { OTHER_IPV6 };
    let ends = [(at, EVENT_PORT), (at, GENERAL_PORT), (at, OTHER_PORT), (other, GENERAL_PORT)];
    let [event, general, port, address] = lab.server().run(|| ends.map(UdpSocket::bind))?;
    let sockets = [event?, general?, port?, address?];
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let faults = faults.clone();
    Ok(FaultyResponder::start(move |state| serve(&sockets, &faults, state)))
}

/// Pause after a poll of the sockets without a request.
const PAUSE: Duration = Duration::from_micros(200);

fn serve(sockets: &[UdpSocket; 4], faults: &PtpFaults, state: &ResponderState) {
    let mut waiting: Vec<(Instant, Datagram)> = Vec::new();
    let mut buffer = [0; 2_048];
    let (mut before, mut other): (Option<PtpRequest>, _) = (None, None);
    while state.is_running() {
        let received = sockets[..2].iter().find_map(|socket| socket.recv_from(&mut buffer).ok());
        if let Some(request) =
            received.and_then(|(length, from)| PtpRequest::parse(&buffer[..length], from))
        {
            if before.is_some_and(|one| one.from != request.from) {
                other = before;
            }
            let context =
                Context { request: &request, before: before.as_ref(), other: other.as_ref() };
            let wrong = faults.commit(state, state.count_request(), |act| act.responses(&context));
            let now = Instant::now();
            let datagrams = wrong.unwrap_or_else(|| request.correct_response());
            waiting.extend(datagrams.into_iter().map(|one| (now + one.delay, one)));
            before = Some(request);
        } else {
            thread::sleep(PAUSE);
        }
        let now = Instant::now();
        for (_, one) in waiting.extract_if(.., |(due, _)| *due <= now) {
            let _ = sockets[one.from as usize].send_to(&one.payload, one.to);
        }
    }
}

/// Engine, and true for IPv6.
type Cell = (LoadEngineKind, bool);

/// Both IP versions for XDP, which verifies replies in the kernel.
const ALL_ENGINES: [Cell; 4] = [
    (LoadEngineKind::Udp, false),
    (LoadEngineKind::Packet, false),
    (LoadEngineKind::Xdp, false),
    (LoadEngineKind::Xdp, true),
];
/// Engines that support unicast negotiation.
const UNICAST_ENGINES: [Cell; 3] =
    [(LoadEngineKind::Udp, false), (LoadEngineKind::Packet, false), (LoadEngineKind::Packet, true)];

/// Loads a master with each fault in one mode. Faults of `among_clients` need an engine with
/// several clients.
fn check_faults(
    mode: &[&str],
    (engine, ipv6): Cell,
    faults: &[&[Fault]],
    among_clients: &[Fault],
) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.server();
    let mut netlink = host.netlink()?;
    for other in [OTHER_IPV4, OTHER_IPV6] {
        netlink.add_address(host.first_interface().index, Prefix::host(other))?;
    }
    let target = server_address(&lab, ipv6)?.ip();
    let (clients, more): (&[&str], _) = match engine {
        LoadEngineKind::Udp => (&[], &[][..]),
        // A single thread, so that a reply to another client is not one to another thread.
        LoadEngineKind::Packet | LoadEngineKind::Xdp => {
            (&["--threads", "1", "-c", "16"], among_clients)
        }
    };
    let mut wrong = Vec::new();
    for group in FaultGroup::by_outcome(faults.iter().copied().flatten().chain(more).copied()) {
        let is_late = group.outcome == FaultOutcome::Common(ExpectedFinding::Late);
        let timeout = if is_late { SHORT_TIMEOUT } else { TIMEOUT };
        let at = target.to_string();
        let run = [mode[0], &at, "--engine", engine.name(), "--timeout", timeout];
        let rate = ["-r", "1000", "-t", "0.2"];
        let master = start_master(&lab, target, &group)?;
        let loaded = load(lab.client(), &[&run[..], &rate, &mode[1..], clients].concat());
        let counts = master.end();
        let checked = loaded.and_then(|(status, result, words)| {
            ensure!(status == Some(0), "status {status:?}: {words}");
            group.outcome.check(&result, counts)?;
            group.check_all_committed(counts)
        });
        // Failures are collected, so that one run shows them all.
        wrong.extend(checked.err().map(|why| format!("{}: {why:#}", group.names())));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn each_fault_of_a_delay_response_is_counted(cell: Cell) -> Result<()> {
    use faults::{
        CLIENT_FAULTS, DELAY_RESPONSE_FAULTS, DELIVERY_FAULTS, MESSAGE_FAULTS, SEQUENCE_FAULTS,
        TIMESTAMP_FAULTS,
    };
    let faults = [
        &MESSAGE_FAULTS[..],
        &DELIVERY_FAULTS,
        &TIMESTAMP_FAULTS,
        &SEQUENCE_FAULTS,
        &DELAY_RESPONSE_FAULTS,
    ];
    check_faults(&["delay", "--domain", "24"], cell, &faults, &CLIENT_FAULTS)
}

/// For faults of a single message, it is the `Follow_Up`.
fn each_fault_of_netsync_monitor_is_counted(cell: Cell) -> Result<()> {
    use faults::{
        DELIVERY_FAULTS, MESSAGE_FAULTS, MONITOR_CLIENT_FAULTS, MONITOR_FAULTS, SEQUENCE_FAULTS,
        TIMESTAMP_FAULTS,
    };
    let faults = [
        &MESSAGE_FAULTS[..],
        &DELIVERY_FAULTS,
        &TIMESTAMP_FAULTS,
        &SEQUENCE_FAULTS,
        &MONITOR_FAULTS,
    ];
    check_faults(&["nsm"], cell, &faults, &MONITOR_CLIENT_FAULTS)
}

fn each_fault_of_a_negotiation_is_counted(cell: Cell) -> Result<()> {
    use faults::{CLIENT_FAULTS, DELIVERY_FAULTS, MESSAGE_FAULTS, NEGOTIATION_FAULTS};
    let faults = [&MESSAGE_FAULTS[..], &DELIVERY_FAULTS, &NEGOTIATION_FAULTS];
    check_faults(&["unicast", "--grant-duration", "10"], cell, &faults, &CLIENT_FAULTS)
}
