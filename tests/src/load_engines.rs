//! Scenarios of the load generator in private hosts: that each engine counts what a server of known
//! behaviour did, says where the rest went, and refuses what cannot be with a message that helps.
//! They need root. Nothing here is timed: speed is for the benchmarks.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::places::ServerCounters;
use horolog_load::ramp::Ramp;
use horolog_load::target::Hints;
use horolog_load::{Job, Load, LoadError, LoadOptions, Observer};
use horolog_record::{Code, Engine, LoadResult, Place, Trial};
use horolog_wire::ntp::{HEADER_LEN, Header, Mode};

use crate::load_command::{finding, only_trial};

const NTP_PORT: u16 = 123;
const RATE: f64 = 5_000.0;
const DURATION: Duration = Duration::from_millis(400);
const REQUESTS: u64 = 2_000;

/// A server in the lab that answers all requests but every `silent_every`-th, and counts.
struct Server {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(lab: &Lab, address: IpAddr, silent_every: u64) -> Result<Self> {
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
                let Some(reply) = answer(&buffer[..length]) else { continue };
                if count % silent_every != 0 && socket.send_to(&reply, from).is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        Ok(server)
    }

    fn counters(&self) -> impl FnMut() -> Option<ServerCounters> + Send + 'static {
        let (received, answered) = (Arc::clone(&self.received), Arc::clone(&self.answered));
        move || {
            Some(ServerCounters {
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

fn answer(request: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let (request, _) = Header::parse(request).ok()?;
    let reply = Header {
        mode: Mode::Server,
        stratum: 1,
        origin: request.transmit,
        receive: request.transmit,
        ..request
    };
    let mut bytes = [0; HEADER_LEN];
    reply.emit(&mut bytes);
    Some(bytes)
}

struct Silent;

impl Observer for Silent {
    fn ended(&mut self, _: usize, _: &Trial) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn new_lab() -> Result<Lab> {
    Ok(Lab::new(&LabConfig::default())?)
}

fn options(target: IpAddr, engine: Option<Engine>) -> Result<LoadOptions> {
    let ramp = Ramp { min: RATE, max: RATE, multiplier: 2.0, duration: DURATION };
    let target = target.to_string().parse()?;
    Ok(LoadOptions { engine, ..LoadOptions::new(target, Job::Ramp(ramp)) })
}

/// Runs a load from the lab's client and returns the record, or why it did not begin.
fn run(lab: &Lab, options: LoadOptions) -> Result<Result<LoadResult, LoadError>> {
    let namespaces = vec![lab.server().netns.clone()];
    let load = move || Load::prepare(LoadOptions { namespaces, ..options })?.run(&mut Silent);
    Ok(lab.client().run(load)?)
}

/// Everything is answered and counted, each request once.
fn expect_all_answered(lab: &Lab, target: IpAddr, engine: Engine) -> Result<()> {
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

fn v6_of(lab: &Lab) -> Result<IpAddr> {
    lab.server().port().ipv6.map(IpAddr::from).context("no IPv6 address")
}

/// The packet engine's simulated clients ask over IPv4 and IPv6, and every reply is counted.
pub(crate) fn packet_engine_counts_every_reply() -> Result<()> {
    let lab = new_lab()?;
    expect_all_answered(&lab, lab.server().port().ipv4.into(), Engine::Packet)?;
    expect_all_answered(&lab, v6_of(&lab)?, Engine::Packet)
}

/// The udp engine asks over IPv4 and IPv6, and every reply is counted.
pub(crate) fn udp_engine_counts_every_reply() -> Result<()> {
    let lab = new_lab()?;
    expect_all_answered(&lab, lab.server().port().ipv4.into(), Engine::Udp)?;
    expect_all_answered(&lab, v6_of(&lab)?, Engine::Udp)
}

/// Sources scattered over a whole network are answered and recognised as well.
pub(crate) fn random_sources_are_recognised() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().port().ipv4.into();
    let _server = Server::start(&lab, target, u64::MAX)?;
    let options = LoadOptions { random_sources: true, ..options(target, Some(Engine::Packet))? };
    let result = run(&lab, options)??;
    let trial = only_trial(&result)?;
    ensure!(trial.received == REQUESTS && trial.clients > 1_000_000, "{trial:?}");
    Ok(())
}

/// What the server left unanswered is found at the server.
pub(crate) fn unanswered_requests_are_lost_at_the_server() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().port().ipv4.into();
    let server = Server::start(&lab, target, 10)?;
    let options = LoadOptions {
        ask_server: Some(Box::new(server.counters())),
        ..options(target, Some(Engine::Packet))?
    };
    let result = run(&lab, options)??;
    let trial = only_trial(&result)?;
    ensure!(trial.lost == REQUESTS / 10, "{trial:?}");
    let at_server = trial.lost_at.get(&Place::Server).copied();
    ensure!(at_server == Some(trial.lost), "{:?}", trial.lost_at);
    Ok(())
}

/// What a socket that nobody reads had no room for is found at the socket.
pub(crate) fn a_full_socket_is_found() -> Result<()> {
    let lab = new_lab()?;
    let target: IpAddr = lab.server().port().ipv4.into();
    let bind = || UdpSocket::bind((target, NTP_PORT));
    let _deaf = lab.server().run(bind)??;
    let result = run(&lab, options(target, Some(Engine::Packet))?)??;
    let trial = only_trial(&result)?;
    let place = |place| trial.lost_at.get(&place).copied().unwrap_or(0);
    ensure!(trial.lost == REQUESTS && place(Place::Socket) > 0, "{trial:?}");
    let sum: u64 = trial.lost_at.values().sum();
    ensure!(sum == trial.lost, "{:?} for {} lost", trial.lost_at, trial.lost);
    finding(&result, Code::NoReplies).map(drop)
}

/// Without a way back to simulated clients, the route that is missing is named; an engine that was
/// left open falls back to sockets, which need none.
pub(crate) fn a_missing_return_route_is_named() -> Result<()> {
    let config = LabConfig { client_networks: Vec::new(), ..LabConfig::default() };
    let lab = Lab::new(&config)?;
    let target = lab.server().port().ipv4.into();
    let _server = Server::start(&lab, target, u64::MAX)?;
    let result = run(&lab, options(target, Some(Engine::Packet))?)??;
    let advice = &finding(&result, Code::NoReplies)?.advice;
    let route = format!("ip route add 10.64.0.0/10 via {}", lab.client().port().ipv4);
    ensure!(advice.contains(&route), "{advice}");
    let result = run(&lab, options(target, None)?)??;
    ensure!(result.engine == Engine::Udp, "engine {:?}", result.engine);
    ensure!(only_trial(&result)?.received == REQUESTS, "{:?}", result.trials);
    let told = |message: &str| {
        message.contains("'packet'") && message.contains("no reply to simulated clients")
    };
    let mut fallbacks = result.findings.iter().filter(|one| one.code == Code::EngineFallback);
    ensure!(fallbacks.any(|one| told(&one.message)), "{:?}", result.findings);
    Ok(())
}

/// A port on which nobody listens is told from a server that is merely silent.
pub(crate) fn a_closed_port_is_named() -> Result<()> {
    let lab = new_lab()?;
    let target = lab.server().port().ipv4.into();
    let result = run(&lab, options(target, Some(Engine::Udp))?)??;
    let advice = &finding(&result, Code::NoReplies)?.advice;
    ensure!(advice.contains("nobody listens"), "{advice}");
    Ok(())
}

/// Each way in which a target cannot be reached has its own message of one line.
pub(crate) fn unreachable_targets_are_refused() -> Result<()> {
    let lab = new_lab()?;
    let server: IpAddr = lab.server().port().ipv4.into();
    let refuse = |target: IpAddr, hints: Hints, expected: &str| {
        let options = LoadOptions { hints, ..options(target, Some(Engine::Packet))? };
        let message = match run(&lab, options)? {
            Ok(_) => bail!("{target} was loaded"),
            Err(error) => error.to_string(),
        };
        ensure!(message.contains(expected) && !message.contains('\n'), "{message}");
        Ok(())
    };
    let through = |interface: &str| Hints { interface: Some(interface.into()), mac: None };
    let elsewhere = [203, 0, 113, 9].into();
    refuse(elsewhere, Hints::default(), "no route to 203.0.113.9")?;
    refuse(server, through("nosuch0"), "'nosuch0' not found")?;
    refuse(lab.client().port().ipv4.into(), Hints::default(), "address of this machine")?;
    // On the link by route, but nobody has the address. Fixed neighbours do not know it either.
    let client = lab.client();
    let absent: IpAddr = [198, 18, 7, 7].into();
    let route = horolog_sys::netlink::Prefix::host(absent);
    let index = client.port().index;
    client.netlink()?.add_route(route, None, index)?;
    refuse(absent, Hints::default(), "did not tell its MAC address")
}
