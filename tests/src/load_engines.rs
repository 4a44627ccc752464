//! Scenarios of the engines of the load generator on lab hosts: each counts the replies of a server
//! with known behaviour, locates losses, and refuses unreachable targets with a helpful message.
//! They need root. Performance is for the benchmarks.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::loss_attribution::ServerRequestCounts;
use horolog_load::ramp::Ramp;
use horolog_load::target::RouteHints;
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult, LossLocation};
use horolog_sys::ethtool::set_gro;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use crate::load_command::{finding, has_finding, only_trial};

const NTP_PORT: u16 = 123;
const RATE: f64 = 5_000.0;
const DURATION: Duration = Duration::from_millis(400);
const REQUESTS: u64 = 2_000;

/// Server in the lab that counts requests, and answers all but every `unanswered_every`-th.
struct Server {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(lab: &Lab, address: IpAddr, unanswered_every: u64) -> Result<Self> {
        let at = SocketAddr::new(address, NTP_PORT);
        let socket = lab.server().run(|| UdpSocket::bind(at))??;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let mut server = Self {
            stop: Arc::default(),
            received: Arc::default(),
            answered: Arc::default(),
            thread: None,
        };
        let (stop, received, answered) =
            (Arc::clone(&server.stop), Arc::clone(&server.received), Arc::clone(&server.answered));
        server.thread = Some(thread::spawn(move || {
            let mut buffer = [0; 128];
            while !stop.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let count = received.fetch_add(1, Ordering::Relaxed) + 1;
                let Some(reply) = reply_to(&buffer[..length]) else { continue };
                if count % unanswered_every != 0 && socket.send_to(&reply, from).is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        Ok(server)
    }

    fn counters(&self) -> impl FnMut() -> Option<ServerRequestCounts> + Send + 'static {
        let (received, answered) = (Arc::clone(&self.received), Arc::clone(&self.answered));
        move || {
            Some(ServerRequestCounts {
                received: received.load(Ordering::Relaxed),
                answered: answered.load(Ordering::Relaxed),
            })
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn reply_to(request: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let (request, _) = Header::parse(request).ok()?;
    let reply = Header {
        mode: AssociationMode::Server,
        stratum: 1,
        origin: request.transmit,
        receive: request.transmit,
        ..request
    };
    let mut bytes = [0; HEADER_LEN];
    reply.emit(&mut bytes);
    Some(bytes)
}

fn new_lab() -> Result<Lab> {
    Ok(Lab::new(&LabConfig::default())?)
}

fn options(target: IpAddr, engine: Option<LoadEngineKind>) -> Result<LoadOptions> {
    let ramp = Ramp { min: RATE, max: RATE, multiplier: 2.0, duration: DURATION };
    let target = target.to_string().parse()?;
    Ok(LoadOptions { engine, ..LoadOptions::new(target, LoadProcedure::Ramp(ramp)) })
}

/// Runs a load from the lab's client; returns its result, or the error that prevented it.
fn run(lab: &Lab, options: LoadOptions) -> Result<Result<LoadResult, LoadError>> {
    let namespaces = vec![lab.server().netns.clone()];
    let load = move || LoadRun::prepare(LoadOptions { namespaces, ..options })?.run(&mut ());
    Ok(lab.client().run(load)?)
}

/// Checks that each request is answered and counted once.
fn expect_all_answered(lab: &Lab, target: IpAddr, engine: LoadEngineKind) -> Result<()> {
    let _server = Server::start(lab, target, u64::MAX)?;
    let result = run(lab, options(target, Some(engine))?)??;
    let trial = only_trial(&result)?;
    ensure!(result.engine == engine, "engine {:?}", result.engine);
    ensure!(
        (trial.sent, trial.received, trial.lost) == (REQUESTS, REQUESTS, 0)
            && trial.invalid.is_empty()
            && (trial.duplicate, trial.late) == (0, 0),
        "{engine:?} to {target}: {trial:?}"
    );
    Ok(())
}

fn server_ipv6(lab: &Lab) -> Result<IpAddr> {
    lab.server().first_interface().ipv6.map(IpAddr::from).context("no IPv6 address")
}

/// The packet engine's simulated clients send over IPv4 and IPv6, and every reply is counted.
pub(crate) fn packet_engine_counts_every_reply() -> Result<()> {
    let lab = new_lab()?;
    expect_all_answered(&lab, lab.server().first_interface().ipv4.into(), LoadEngineKind::Packet)?;
    expect_all_answered(&lab, server_ipv6(&lab)?, LoadEngineKind::Packet)
}

/// The udp engine sends over IPv4 and IPv6, and every reply is counted.
pub(crate) fn udp_engine_counts_every_reply() -> Result<()> {
    let lab = new_lab()?;
    expect_all_answered(&lab, lab.server().first_interface().ipv4.into(), LoadEngineKind::Udp)?;
    expect_all_answered(&lab, server_ipv6(&lab)?, LoadEngineKind::Udp)
}

/// Replies to sources scattered over a whole network are recognised.
pub(crate) fn random_sources_are_recognised() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().first_interface().ipv4.into();
    let _server = Server::start(&lab, target, u64::MAX)?;
    let options =
        LoadOptions { random_sources: true, ..options(target, Some(LoadEngineKind::Packet))? };
    let result = run(&lab, options)??;
    let trial = only_trial(&result)?;
    ensure!(trial.received == REQUESTS && trial.clients > 1_000_000, "{trial:?}");
    Ok(())
}

/// Requests that the server did not answer are located at the server.
pub(crate) fn unanswered_requests_are_lost_at_the_server() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().first_interface().ipv4.into();
    let server = Server::start(&lab, target, 10)?;
    let options = LoadOptions {
        counter_source: Some(Box::new(server.counters())),
        ..options(target, Some(LoadEngineKind::Packet))?
    };
    let result = run(&lab, options)??;
    let trial = only_trial(&result)?;
    ensure!(trial.lost == REQUESTS / 10, "{trial:?}");
    let at_server = trial.lost_at.get(&LossLocation::Server).copied();
    ensure!(at_server == Some(trial.lost), "{:?}", trial.lost_at);
    Ok(())
}

/// Overflow of a socket that is not read is located at the socket.
pub(crate) fn losses_at_a_full_socket_are_located() -> Result<()> {
    let lab = new_lab()?;
    let target: IpAddr = lab.server().first_interface().ipv4.into();
    let bind = || UdpSocket::bind((target, NTP_PORT));
    let _unread = lab.server().run(bind)??;
    let result = run(&lab, options(target, Some(LoadEngineKind::Packet))?)??;
    let trial = only_trial(&result)?;
    let lost_at = |location| trial.lost_at.get(&location).copied().unwrap_or(0);
    ensure!(trial.lost == REQUESTS && lost_at(LossLocation::Socket) > 0, "{trial:?}");
    let sum: u64 = trial.lost_at.values().sum();
    ensure!(sum == trial.lost, "{:?} for {} lost", trial.lost_at, trial.lost);
    finding(&result, FindingCode::NoReplies).map(drop)
}

/// Without a route to simulated clients, the advice names the missing route; automatic selection
/// falls back to the udp engine, which needs none.
pub(crate) fn a_missing_return_route_is_named() -> Result<()> {
    let config = LabConfig { client_networks: Vec::new(), ..LabConfig::default() };
    let lab = Lab::new(&config)?;
    let target = lab.server().first_interface().ipv4.into();
    let _server = Server::start(&lab, target, u64::MAX)?;
    let result = run(&lab, options(target, Some(LoadEngineKind::Packet))?)??;
    let advice = &finding(&result, FindingCode::NoReplies)?.advice;
    let route = format!("ip route add 10.64.0.0/10 via {}", lab.client().first_interface().ipv4);
    ensure!(advice.contains(&route), "{advice}");
    let result = run(&lab, options(target, None)?)??;
    ensure!(result.engine == LoadEngineKind::Udp, "engine {:?}", result.engine);
    ensure!(only_trial(&result)?.received == REQUESTS, "{:?}", result.trials);
    let is_reported = |message: &str| {
        message.contains("'packet'") && message.contains("no reply to simulated clients")
    };
    let mut fallbacks =
        result.findings.iter().filter(|one| one.code == FindingCode::EngineFallback);
    ensure!(fallbacks.any(|one| is_reported(&one.message)), "{:?}", result.findings);
    Ok(())
}

/// If the peer end of the veth takes no XDP frames, automatic selection falls back to the packet
/// engine and reports the reason, and an explicit XDP engine is refused, over both IP versions,
/// with selected and given source networks. If the target does not answer, the XDP engine stays.
pub(crate) fn the_engine_falls_back_if_xdp_frames_do_not_arrive() -> Result<()> {
    let lab = new_lab()?;
    let interface = lab.server().first_interface().name.clone();
    let v4: IpAddr = lab.server().first_interface().ipv4.into();
    let with = |network: Option<&str>, target, engine| -> Result<LoadOptions> {
        let source_network = network.map(str::parse).transpose()?;
        let reply_timeout = Duration::from_millis(200);
        Ok(LoadOptions { source_network, reply_timeout, ..options(target, engine)? })
    };
    let unanswered = run(&lab, with(Some("10.64.0.0/10"), v4, None)?)??;
    ensure!(
        unanswered.engine == LoadEngineKind::Xdp,
        "engine {:?} for an unresponsive target",
        unanswered.engine
    );
    ensure!(!has_finding(&unanswered, FindingCode::EngineFallback), "{:?}", unanswered.findings);
    lab.server().run(|| set_gro(&interface, false))??;
    for (target, network) in
        [(v4, "10.64.0.0/10"), (server_ipv6(&lab)?, "fdfe:686f:726f:6c6f::/96")]
    {
        let _server = Server::start(&lab, target, u64::MAX)?;
        for network in [None, Some(network)] {
            let result = run(&lab, with(network, target, None)?)??;
            ensure!(
                result.engine == LoadEngineKind::Packet,
                "{target}: engine {:?}",
                result.engine
            );
            ensure!(only_trial(&result)?.received == REQUESTS, "{target}: {:?}", result.trials);
            let why = &finding(&result, FindingCode::EngineFallback)?.message;
            ensure!(why.contains("takes no frames from XDP"), "{why}");
            let named = run(&lab, with(network, target, Some(LoadEngineKind::Xdp))?)?;
            let error = named.err().context("in-kernel engine was not refused")?.to_string();
            for words in ["'xdp'", "takes no frames from XDP", "enable GRO", "--engine packet"] {
                ensure!(error.contains(words) && !error.contains('\n'), "{error}");
            }
        }
    }
    Ok(())
}

/// A closed port is distinguished from a server that does not answer.
pub(crate) fn a_closed_port_is_named() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().first_interface().ipv4.into();
    let result = run(&lab, options(target, Some(LoadEngineKind::Udp))?)??;
    let advice = &finding(&result, FindingCode::NoReplies)?.advice;
    ensure!(advice.contains("port is closed"), "{advice}");
    Ok(())
}

/// Each cause of an unreachable target has its own message of one line.
pub(crate) fn unreachable_targets_are_refused() -> Result<()> {
    let lab = new_lab()?;
    let server: IpAddr = lab.server().first_interface().ipv4.into();
    let check_refused = |target: IpAddr, hints: RouteHints, expected: &str| {
        let options = LoadOptions { hints, ..options(target, Some(LoadEngineKind::Packet))? };
        let message = match run(&lab, options)? {
            Ok(_) => bail!("{target} was loaded"),
            Err(error) => error.to_string(),
        };
        ensure!(message.contains(expected) && !message.contains('\n'), "{message}");
        Ok(())
    };
    let through = |interface: &str| RouteHints { interface: Some(interface.into()), mac: None };
    let elsewhere = [203, 0, 113, 9].into();
    check_refused(elsewhere, RouteHints::default(), "no route to 203.0.113.9")?;
    check_refused(server, through("nosuch0"), "'nosuch0' not found")?;
    check_refused(
        lab.client().first_interface().ipv4.into(),
        RouteHints::default(),
        "address of this host",
    )?;
    // On the link by route, but without a host or a fixed neighbour entry.
    let client = lab.client();
    let absent: IpAddr = [198, 18, 7, 7].into();
    let route = horolog_wire::prefix::Prefix::host(absent);
    let index = client.first_interface().index;
    client.netlink()?.add_route(route, None, index)?;
    check_refused(absent, RouteHints::default(), "no MAC address for 198.18.7.7")
}
