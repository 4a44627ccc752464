//! Scenarios of requests that are not addressed to this host alone, by IP or MAC address, and of
//! damaged requests and those of another VLAN. No listener answers them, with any engine; those
//! that the network stack does not drop are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_lab::{Lab, LabConfig, RunningProgram};
use horolog_wire::ethernet::{MacAddress, TYPE_VLAN, VlanTag};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::path_probe::{HELLO_LEN, Header as Probe, PathDatagramKind};
use horolog_wire::{path_probe, ptp, stamp};
use serde_json::Value;

use crate::client;
use crate::mutated_frames::{wrong_ipv4_checksum, wrong_udp_checksum};
use crate::process::{Engine, Server, TIMEOUT, binary, wait_until};
use crate::random::Random;
use crate::relay::{Relay, table};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, ROOT_AND_IPV6, group_requests, scenarios};

/// Time in which a forbidden reply would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(200);
const CLIENT_PORT: u16 = 40_000;
const CHILD_PORT: u16 = 41_000;
const RELAY_PORT: u16 = 5_000;
const BROADCAST_MAC: MacAddress = MacAddress([0xff; 6]);
const ALL_NODES_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const SEED: u64 = 0x6164_6472;

pub(crate) fn all() -> Vec<Scenario> {
    let name = |of: &str, how: &str| format!("group_requests::{of}::{how}");
    let configurations: [(&str, Engine, &[&str]); 3] = [
        ("socket", Engine::Socket, &["--threads", "2"]),
        ("shared-lock", Engine::Socket, &["--threads", "2", "--dispatch", "shared-lock"]),
        ("xdp", Engine::Xdp, &["--threads", "2"]),
    ];
    let mut all: Vec<_> = configurations
        .into_iter()
        .map(|(how, engine, arguments)| {
            let run = move || a_server_ignores_misaddressed_requests(engine, arguments);
            scenario(name("a_server_ignores_misaddressed_requests", how), ROOT_AND_IPV6, run)
        })
        .collect();
    all.extend(scenarios!(ROOT_AND_IPV6, group_requests: a_far_end_ignores_misaddressed_requests));
    for engine in ["sendmmsg", "xdp"] {
        let run = move || a_relay_ignores_misaddressed_packets(engine);
        all.push(scenario(name("a_relay_ignores_misaddressed_packets", engine), ROOT, run));
    }
    all
}

/// Service under test: its port, and a request with exactly one reply.
struct TestService {
    port: u16,
    request: Vec<u8>,
}

fn ntp() -> TestService {
    TestService { port: 123, request: client::request(4, client::now()).to_vec() }
}

/// Returns a request with a trailer, which XDP passes to the sockets.
fn long_ntp() -> TestService {
    TestService { port: 123, request: [&client::request(4, client::now())[..], &[0; 20]].concat() }
}

/// Returns a PTP delay request of an arbitrary clock.
fn delay_request() -> TestService {
    let mut request = vec![0; 44];
    request[..4].copy_from_slice(&[1, 2, 0, 44]);
    request[20..30].copy_from_slice(&[9, 9, 9, 0xff, 0xfe, 9, 9, 9, 0, 1]);
    TestService { port: ptp::EVENT_PORT, request }
}

/// Lab of two hosts, the first of which sends frames and receives the replies.
struct GroupRequestTestbed {
    lab: Lab,
    device: PacketSocketDevice,
}

impl GroupRequestTestbed {
    fn new() -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let client = lab.client();
        let options = PacketSocketOptions {
            selection: FrameSelection::Program(Vec::new()),
            receive_buffer: Some(1 << 22),
            ..PacketSocketOptions::default()
        };
        let device =
            client.run(|| PacketSocketDevice::open(&client.first_interface().name, &options))??;
        Ok(Self { lab, device })
    }

    fn client_address(&self, ipv6: bool) -> Result<IpAddr> {
        let port = self.lab.client().first_interface();
        Ok(if ipv6 { port.ipv6.context("no IPv6")?.into() } else { port.ipv4.into() })
    }

    fn server_address(&self, ipv6: bool) -> Result<IpAddr> {
        let port = self.lab.server().first_interface();
        Ok(if ipv6 { port.ipv6.context("no IPv6")?.into() } else { port.ipv4.into() })
    }

    fn server_mac(&self) -> MacAddress {
        MacAddress(self.lab.server().first_interface().mac)
    }

    fn frame(&self, to: IpAddr, mac: MacAddress, service: &TestService) -> Result<Vec<u8>> {
        self.tagged_frame(to, mac, service, None)
    }

    fn tagged_frame(
        &self,
        to: IpAddr,
        mac: MacAddress,
        service: &TestService,
        vlan: Option<VlanTag>,
    ) -> Result<Vec<u8>> {
        let builder = UdpFrameBuilder {
            destination_mac: mac,
            source_mac: MacAddress(self.lab.client().first_interface().mac),
            vlan,
            source: SocketAddr::new(self.client_address(to.is_ipv6())?, CLIENT_PORT),
            destination: SocketAddr::new(to, service.port),
        };
        let padding = match (to, service.port) {
            (IpAddr::V6(_), ptp::EVENT_PORT) => &[0; ptp::IPV6_PADDING_LEN][..],
            _ => &[],
        };
        let payload = [&service.request, padding].concat();
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(&payload, &mut frame);
        Ok(frame)
    }

    /// Returns frames that are addressed to several hosts, by IP or only by MAC address.
    fn to_several(&self, ipv6: bool, service: &TestService) -> Result<Vec<Vec<u8>>> {
        let (server, mac) = (self.server_address(ipv6)?, self.server_mac());
        let group_mac = |group: IpAddr| MacAddress::of_group(group);
        let mut ways = vec![(server, BROADCAST_MAC)];
        match server {
            IpAddr::V4(own) => {
                // The network has four addresses; the last is its broadcast address.
                let directed = IpAddr::V4(Ipv4Addr::from_bits(own.to_bits() | 3));
                let all_hosts = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
                let limited = IpAddr::V4(Ipv4Addr::BROADCAST);
                ways.extend([(directed, BROADCAST_MAC), (directed, mac), (limited, BROADCAST_MAC)]);
                ways.extend([(limited, mac), (all_hosts, group_mac(all_hosts)), (all_hosts, mac)]);
                ways.push((server, group_mac(all_hosts)));
            }
            IpAddr::V6(_) => {
                let all_nodes = ALL_NODES_V6.into();
                ways.extend([(all_nodes, group_mac(all_nodes)), (all_nodes, mac)]);
                ways.push((server, group_mac(all_nodes)));
            }
        }
        ways.into_iter().map(|(to, mac)| self.frame(to, mac, service)).collect()
    }

    /// Returns frames that the network stack drops, or that are for another host or a missing VLAN
    /// interface.
    fn damaged(&self, ipv6: bool, service: &TestService) -> Result<Vec<Vec<u8>>> {
        let (server, mac, mut random) =
            (self.server_address(ipv6)?, self.server_mac(), Random::new(SEED));
        let plain = self.frame(server, mac, service)?;
        let vlan = Some(VlanTag { protocol: TYPE_VLAN, control: 7 });
        let tagged = self.tagged_frame(server, mac, service, vlan)?;
        let other_host = self.frame(server, MacAddress([2, 0, 0, 0, 0, 0x99]), service)?;
        let mut all = vec![tagged, other_host, wrong_udp_checksum(plain.clone(), &mut random)];
        if !ipv6 {
            all.push(wrong_ipv4_checksum(plain, &mut random));
        }
        Ok(all)
    }

    /// Sends frames and returns the number of replies until a quiet period; if `first`, waits up to
    /// [`TIMEOUT`] for the first one.
    fn replies(&mut self, frames: &[Vec<u8>], first: bool) -> Result<usize> {
        let own = [self.client_address(false)?, self.client_address(true)?];
        let mut batch = Batch::new(32, 2_048);
        for together in frames.chunks(32) {
            batch.clear();
            ensure!(together.iter().all(|frame| batch.push((), frame)), "a frame does not fit");
            let sent = self.device.send(&mut batch)?;
            ensure!(sent == together.len(), "{sent} frames were sent");
        }
        let mut count = 0;
        let mut wait = if first { TIMEOUT } else { QUIET_PERIOD };
        while self.device.receive(&mut batch, wait)? > 0 {
            let replies = batch.iter().filter_map(|packet| UdpFrame::parse(packet.bytes).ok());
            count += replies.filter(|reply| own.contains(&reply.destination.ip())).count();
            if count > 0 {
                wait = QUIET_PERIOD;
            }
        }
        Ok(count)
    }

    /// Checks that a unicast request has one reply, and that all other frames have none.
    fn check(&mut self, ipv6: bool, services: &[TestService]) -> Result<()> {
        for service in services {
            let context = || format!("port {}, ipv6 {ipv6}", service.port);
            let plain = self.frame(self.server_address(ipv6)?, self.server_mac(), service)?;
            let count = self.replies(&[plain], true)?;
            ensure!(count == 1, "{}: {count} replies to a plain request", context());
            let odd = [self.to_several(ipv6, service)?, self.damaged(ipv6, service)?].concat();
            for (number, frame) in odd.iter().enumerate() {
                let mut batch = Batch::new(1, 2_048);
                ensure!(batch.push((), frame), "{}: frame {number} does not fit", context());
                self.device.send(&mut batch)?;
            }
            let count = self.replies(&[], false)?;
            if count > 0 {
                for (number, frame) in odd.iter().enumerate() {
                    let count = self.replies(std::slice::from_ref(frame), false)?;
                    ensure!(count == 0, "{}: {count} replies to frame {number}", context());
                }
            }
            ensure!(count == 0, "{}: {count} replies", context());
        }
        Ok(())
    }
}

fn count(status: &Value, pointer: &str) -> Result<u64> {
    status
        .pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("no {pointer}: {status}"))
}

fn a_server_ignores_misaddressed_requests(engine: Engine, arguments: &[&str]) -> Result<()> {
    let mut bench = GroupRequestTestbed::new()?;
    let any: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, 123).into(), (Ipv6Addr::UNSPECIFIED, 123).into()];
    let interface = bench.lab.server().first_interface().name.clone();
    let ptp = ["--ptp", &interface, "--ptp-transport", "udp4", "--ptp-announce-interval", "-2"];
    let time = ["--stratum", "1", "--tai-offset", "37"];
    let arguments = [&ptp[..], &time, arguments].concat();
    let server = Server::start(bench.lab.server(), engine, &any, &arguments)?;
    wait_until("the port is master", || {
        Ok(server.status()?["ptp"]["ports"][0]["state"] == "master")
    })?;
    for ipv6 in [false, true] {
        bench.check(ipv6, &[ntp(), long_ntp()])?;
    }
    bench.check(false, &[delay_request()])?;
    let status = server.status()?;
    // Of each IPv4 request, two to broadcast addresses and one by MAC address reach the sockets.
    let refused = count(&status, "/counters/ignored/not_unicast")?;
    ensure!(refused >= 6, "only {refused} requests counted: {status}");
    // Ports publish their counts at intervals.
    wait_until("refused messages are counted", || {
        let refused = count(&server.status()?, "/ptp/ports/0/refused/not_unicast");
        Ok(refused.is_ok_and(|refused| refused >= 3))
    })?;
    if engine == Engine::Xdp {
        ensure!(count(&status, "/xdp_counters/answered_ptp")? == 1, "{status}");
        ensure!(count(&status, "/xdp_counters/passed/malformed")? > 0, "{status}");
    }
    Ok(())
}

/// The far end of path measurements is also a STAMP reflector.
fn a_far_end_ignores_misaddressed_requests() -> Result<()> {
    let mut bench = GroupRequestTestbed::new()?;
    let mut command = bench.lab.server().command(binary()?);
    let mut far = RunningProgram::start(command.args(["path", "serve", "--stamp"]))?;
    let (stamp, mut hello) = (stamp::PACKET_LEN, vec![0; HELLO_LEN]);
    Probe::new(PathDatagramKind::Hello, 0, 1).emit(&mut hello);
    let services = [
        TestService { port: path_probe::PORT, request: hello },
        TestService { port: stamp::PORT, request: vec![0; stamp] },
    ];
    let plain = bench.frame(bench.server_address(false)?, bench.server_mac(), &services[1])?;
    // The far end needs time to start.
    wait_until("the far end replies", || {
        ensure!(far.exit_status().is_none(), "the far end ended: {:?}", far.exit_status());
        Ok(bench.replies(std::slice::from_ref(&plain), false)? == 1)
    })?;
    for ipv6 in [false, true] {
        bench.check(ipv6, &services)?;
    }
    Ok(())
}

fn a_relay_ignores_misaddressed_packets(engine: &str) -> Result<()> {
    let mut bench = GroupRequestTestbed::new()?;
    let child = SocketAddr::new(bench.client_address(false)?, CHILD_PORT);
    let at = match engine {
        // The BPF programs recognise groups by address, so that the address must be specific.
        "xdp" => SocketAddr::new(bench.server_address(false)?, RELAY_PORT),
        _ => (Ipv4Addr::UNSPECIFIED, RELAY_PORT).into(),
    };
    let relay = Relay::start(bench.lab.server(), &table(at, &[child]), &["--engine", engine])?;
    let group = &relay.listing()?.groups[0];
    ensure!(group.engine == engine, "{group:?}");
    let service = TestService { port: RELAY_PORT, request: b"for the group's children".to_vec() };
    bench.check(false, &[service]).map_err(|error| anyhow!("{error:#}: {:?}", relay.listing()))
}
