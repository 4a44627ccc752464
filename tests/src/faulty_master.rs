//! Scenarios of `horolog load ptp` against masters with every fault that a master can have, one at
//! a time, at every second request: each is found, counted under its own name and nothing else, and
//! the run continues to a complete result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{LoadEngineKind, LoadResult, ReplyKindCounts, RequestMode};
use horolog_sys::netlink::Prefix;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};
use libtest_mimic::Trial;

use crate::faulty_responder::{FaultyResponder, ResponderState};
use crate::faulty_server::{ExpectedFinding, SHORT_TIMEOUT, TIMEOUT, check_found};
use crate::load_command::only_trial;
use crate::load_ptp::load;
use crate::process::server_address;
use crate::ptp_messages::{Datagram, PtpRequest};
use crate::{ROOT_AND_IPV6, faulty_master, scenarios};

mod faults;

use faults::{Context, Fault, FaultAction};

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    scenarios!(ROOT_AND_IPV6, faulty_master:
        each_fault_of_a_delay_response_is_counted_under_its_name,
        each_fault_of_netsync_monitor_is_counted_under_its_name,
        each_fault_of_a_negotiation_is_counted_under_its_name,
    )
    .into()
}

/// A port that is none of PTP's.
const OTHER_PORT: u16 = 1_320;
/// Addresses of the master's host that nobody asks.
const OTHER_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
const OTHER_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0bad, 0, 0, 0, 0, 0, 7));

/// What is to be found of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FaultOutcome {
    /// What any server may do wrong.
    As(ExpectedFinding),
    /// Of NetSync Monitor's answers the delay response alone.
    NoSync,
    /// Of NetSync Monitor's answers the Sync with its follow-up alone.
    NoDelay,
    /// A request for unicast messages was denied.
    Denied,
    /// What had been granted was taken back.
    TakenBack,
    /// What had not been granted was taken back.
    TakenBackOnly,
}

impl FaultOutcome {
    const fn found(self) -> ExpectedFinding {
        match self {
            Self::As(found) => found,
            Self::NoSync | Self::NoDelay | Self::TakenBackOnly => ExpectedFinding::Loss,
            Self::Denied | Self::TakenBack => ExpectedFinding::Nothing,
        }
    }

    /// Checks what was counted, where `seen` requests came and `wrong` of them were wronged.
    fn check(self, result: &LoadResult, [requests, wrong]: [u64; 2]) -> Result<()> {
        check_found(result, self.found(), [requests, wrong])?;
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
        let is_taken_back = matches!(self, Self::TakenBack | Self::TakenBackOnly);
        let right = right && cancellation == if is_taken_back { wrong } else { none };
        ensure!(right, "{:?} of {received}, {wrong} wrong", trial.responses);
        Ok(())
    }
}

/// Starts a master that goes wrong at every second request.
fn start_master(lab: &Lab, at: IpAddr, act: FaultAction) -> Result<FaultyResponder> {
    let other = if at.is_ipv4() { OTHER_IPV4 } else { OTHER_IPV6 };
    let ends = [(at, EVENT_PORT), (at, GENERAL_PORT), (at, OTHER_PORT), (other, GENERAL_PORT)];
    let [event, general, port, address] = lab.server().run(|| ends.map(UdpSocket::bind))?;
    let sockets = [event?, general?, port?, address?];
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    Ok(FaultyResponder::start(move |state| serve(&sockets, act, state)))
}

/// Pause after a round without a request.
const PAUSE: Duration = Duration::from_micros(200);

fn serve(sockets: &[UdpSocket; 4], act: FaultAction, state: &ResponderState) {
    let mut waiting: Vec<(Instant, Datagram)> = Vec::new();
    let mut buffer = [0; 2_048];
    let (mut before, mut other): (Option<PtpRequest>, _) = (None, None);
    while state.is_running() {
        let received = sockets[..2].iter().find_map(|socket| socket.recv_from(&mut buffer).ok());
        if let Some(request) =
            received.and_then(|(length, from)| PtpRequest::read(&buffer[..length], from))
        {
            if before.is_some_and(|one| one.from != request.from) {
                other = before;
            }
            let context =
                Context { request: &request, before: before.as_ref(), other: other.as_ref() };
            let number = state.count_request();
            let wrong = if number.is_multiple_of(2) { act.answers(&context) } else { None };
            if wrong.is_some() {
                state.count_fault();
            }
            let now = Instant::now();
            let datagrams = wrong.unwrap_or_else(|| request.right());
            waiting.extend(datagrams.into_iter().map(|one| (now + one.after, one)));
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

/// Engines, each over one version of IP: the kernel's, which judges for itself, over both.
const BY_ALL: [(LoadEngineKind, bool); 4] = [
    (LoadEngineKind::Udp, false),
    (LoadEngineKind::Packet, false),
    (LoadEngineKind::Xdp, false),
    (LoadEngineKind::Xdp, true),
];
/// Those that negotiate.
const BY_TWO: [(LoadEngineKind, bool); 3] =
    [(LoadEngineKind::Udp, false), (LoadEngineKind::Packet, false), (LoadEngineKind::Packet, true)];

/// Loads a master with each of these faults in one mode, by all of these engines; those of the last
/// list take more than one client.
fn each_is_found(
    mode: &[&str],
    engines: &[(LoadEngineKind, bool)],
    faults: &[&[Fault]],
    among_clients: &[Fault],
) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.server();
    let mut netlink = host.netlink()?;
    for other in [OTHER_IPV4, OTHER_IPV6] {
        netlink.add_address(host.first_interface().index, Prefix::host(other))?;
    }
    let mut wrong = Vec::new();
    for &(engine, ipv6) in engines {
        let at = server_address(&lab, ipv6)?.ip();
        let (clients, more): (&[&str], _) = match engine {
            LoadEngineKind::Udp => (&[], &[][..]),
            // One thread, so that what is another client's is not another thread's as well.
            LoadEngineKind::Packet | LoadEngineKind::Xdp => {
                (&["--threads", "1", "-c", "16"], among_clients)
            }
        };
        for (name, outcome, act) in faults.iter().copied().flatten().chain(more) {
            let late = *outcome == FaultOutcome::As(ExpectedFinding::Late);
            let timeout = if late { SHORT_TIMEOUT } else { TIMEOUT };
            let target = at.to_string();
            let run = [mode[0], &target, "--engine", engine.name(), "--timeout", timeout];
            let rate = ["-r", "1000", "-t", "0.2"];
            let master = start_master(&lab, at, *act)?;
            let loaded = load(lab.client(), &[&run[..], &rate, &mode[1..], clients].concat());
            let counts = master.end();
            let checked = loaded.and_then(|(status, result, words)| {
                ensure!(status == Some(0), "status {status:?}: {words}");
                outcome.check(&result, counts)
            });
            // All of them, so that one run shows every one that is wrong.
            let context = || format!("{name} by {engine:?} from {at}");
            wrong.extend(checked.with_context(context).err().map(|why| format!("{why:#}")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn each_fault_of_a_delay_response_is_counted_under_its_name() -> Result<()> {
    use faults::{OF_A_DELAY, OF_A_NUMBER, OF_A_TIME, OF_ANY, OF_CLIENTS, OF_THE_WAY};
    let faults = [&OF_ANY[..], &OF_THE_WAY, &OF_A_TIME, &OF_A_NUMBER, &OF_A_DELAY];
    each_is_found(&["delay", "--domain", "24"], &BY_ALL, &faults, &OF_CLIENTS)
}

/// Where one of three messages is wrong, it is the follow-up.
fn each_fault_of_netsync_monitor_is_counted_under_its_name() -> Result<()> {
    use faults::{OF_A_NUMBER, OF_A_TIME, OF_ANY, OF_MONITOR, OF_MONITORS_CLIENTS, OF_THE_WAY};
    let faults = [&OF_ANY[..], &OF_THE_WAY, &OF_A_TIME, &OF_A_NUMBER, &OF_MONITOR];
    each_is_found(&["nsm"], &BY_ALL, &faults, &OF_MONITORS_CLIENTS)
}

fn each_fault_of_a_negotiation_is_counted_under_its_name() -> Result<()> {
    use faults::{OF_A_NEGOTIATION, OF_ANY, OF_CLIENTS, OF_THE_WAY};
    let faults = [&OF_ANY[..], &OF_THE_WAY, &OF_A_NEGOTIATION];
    each_is_found(&["unicast", "--grant-duration", "10"], &BY_TWO, &faults, &OF_CLIENTS)
}
