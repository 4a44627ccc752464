//! The in-kernel generator, loaded for test runs of single frames and attached nowhere, with the
//! settings that `horolog load` would give it. It sends nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use horolog_load::clients::{self, LaneClients, SimulatedClientNetwork};
use horolog_load::ptp::{PtpLoadTransport, PtpRequestKind, PtpRequestOptions};
use horolog_load::request::{LaneFrameParameters, LaneFrameTemplate, PtpFrameParameters};
use horolog_load::schedule;
use horolog_load::token::RequestTokenCodec;
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::ntp::PORT;
use horolog_wire::ptp::EVENT_PORT;
use horolog_xdp::{
    Generator, GeneratorSettings, Interface, RequestProtocol, ServerOffsetSettings, TrialSettings,
};

use crate::random::Random;

/// The interface that a test run shows as the one that a frame came in by.
pub(crate) const LOOPBACK: u32 = 1;
/// Another one; a test run sends nothing by it.
pub(crate) const ELSEWHERE: u32 = 2;
pub(crate) const LANES: usize = 2;
/// How long a reply may take.
pub(crate) const TIMEOUT: Span = Span::from_ms(1_000);
/// How long ago the run began: less than this machine has been up when scenarios run.
pub(crate) const RUN_AGE: Span = Span::from_ms(30_000);

const OWN_MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 1]);
const TARGET_MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// No multiple of the lanes, so that one of them has a client more.
const CLIENTS: u32 = 1_001;

/// Servers over both IP versions.
const TARGETS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];

/// Settings of a run for both implementations of the generator.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) target: SocketAddr,
    pub(crate) network: SimulatedClientNetwork,
    pub(crate) token: RequestTokenCodec,
    pub(crate) version: u8,
    /// Clients are drawn from the whole network instead of taking turns.
    pub(crate) random_sources: bool,
    /// Requests are in interleaved mode.
    pub(crate) interleaved: bool,
    /// PTP is asked for instead.
    pub(crate) ptp: Option<PtpRequestOptions>,
}

/// The ways to ask a PTP master: what, whether by the group, and with clients drawn at random.
const PTP: [(PtpRequestKind, bool, bool); 4] = [
    (PtpRequestKind::Delay, false, false),
    (PtpRequestKind::Delay, false, true),
    (PtpRequestKind::Delay, true, false),
    (PtpRequestKind::Nsm, false, false),
];

impl World {
    /// Runs over both IP versions, with clients in turn, also in interleaved mode, and drawn at
    /// random.
    pub(crate) fn all(random: &mut Random) -> Result<Vec<Self>> {
        let mut worlds = Vec::new();
        for target in TARGETS {
            for (random_sources, interleaved) in [(false, false), (false, true), (true, false)] {
                worlds.push(Self {
                    target: SocketAddr::new(target, PORT),
                    network: SimulatedClientNetwork::find(target, &[])?,
                    token: RequestTokenCodec::new(random.next(), ClockMonotonic.now() - RUN_AGE),
                    version: if random_sources { 3 } else { 4 },
                    random_sources,
                    interleaved,
                    ptp: None,
                });
            }
        }
        Ok(worlds)
    }

    /// Runs that ask for PTP, over both IP versions and in all ways.
    pub(crate) fn all_ptp(random: &mut Random) -> Result<Vec<Self>> {
        let mut worlds = Vec::new();
        for target in TARGETS {
            for (kind, multicast, random_sources) in PTP {
                let (domain, minor_version) = (random.next() as u8, random.within(0..=1) as u8);
                worlds.push(Self {
                    target: SocketAddr::new(target, EVENT_PORT),
                    network: SimulatedClientNetwork::find(target, &[])?,
                    token: RequestTokenCodec::new(random.next(), ClockMonotonic.now() - RUN_AGE),
                    ptp: Some(PtpRequestOptions {
                        kind,
                        domain,
                        minor_version,
                        multicast,
                        transport: PtpLoadTransport::Udp,
                    }),
                    version: 0,
                    random_sources,
                    interleaved: false,
                });
            }
        }
        Ok(worlds)
    }

    /// The clients of a lane.
    pub(crate) fn lane_clients(&self, lane: usize) -> LaneClients {
        if self.random_sources {
            LaneClients::random(self.network.host_count(), self.token.key(), lane, LANES)
        } else {
            LaneClients::in_turn(CLIENTS, lane, LANES, 1)
        }
    }

    /// How many clients there are, all lanes together.
    pub(crate) fn clients(&self) -> u32 {
        if self.random_sources { self.network.host_count() } else { CLIENTS }
    }

    /// How the requests of a lane are framed.
    pub(crate) fn frames(&self, lane: usize) -> LaneFrameParameters {
        let master = self.target.ip();
        let group = self.ptp.and_then(|ptp| ptp.multicast_group(master));
        LaneFrameParameters {
            source_mac: OWN_MAC,
            destination_mac: group.map_or(TARGET_MAC, MacAddress::of_group),
            network: self.network,
            source_port: self.ptp.map_or_else(|| clients::source_port(lane), |_| EVENT_PORT),
            target: self.ptp.map_or(self.target, |ptp| ptp.destination(master)),
            version: self.version,
            ptp: self.ptp.map(|plan| PtpFrameParameters {
                plan,
                master,
                lane,
                excluded_network: None,
            }),
        }
    }

    /// A frame from the target to a lane of a client.
    pub(crate) fn frame_to(&self, client: u32, lane: usize, payload: &[u8]) -> Vec<u8> {
        let to = SocketAddr::new(self.network.address(client), clients::source_port(lane));
        Self::frame(self.target, to, payload)
    }

    /// A frame between these ends.
    pub(crate) fn frame(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let builder = horolog_wire::frame::UdpFrameBuilder {
            destination_mac: OWN_MAC,
            source_mac: TARGET_MAC,
            vlan: None,
            source,
            destination,
        };
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(payload, &mut frame);
        frame
    }

    /// Loads the program, which takes frames from `interface` for replies and makes requests of all
    /// others.
    pub(crate) fn load(&self, interface: u32) -> Result<Generator> {
        self.load_with_intervals(interface, 1)
    }

    /// The same with counts of this many intervals for each CPU.
    pub(crate) fn load_with_intervals(&self, interface: u32, intervals: u32) -> Result<Generator> {
        let template = LaneFrameTemplate::new(&match self.ptp {
            None => LaneFrameParameters { source_port: 0, ..self.frames(0) },
            Some(_) => self.frames(0),
        });
        Ok(Generator::load(&GeneratorSettings {
            protocol: match self.ptp.map(|ptp| ptp.kind) {
                None => RequestProtocol::Ntp,
                Some(PtpRequestKind::Delay) => RequestProtocol::PtpDelay,
                Some(PtpRequestKind::Nsm | PtpRequestKind::Unicast(_)) => {
                    RequestProtocol::PtpMonitor
                }
            },
            multicast: self.ptp.is_some_and(|ptp| ptp.multicast),
            domain: self.ptp.map_or(0, |ptp| ptp.domain),
            ethernet: None,
            offsets: Some(ServerOffsetSettings { correction_ns: 0, mean_of_server: false }),
            interface: Interface { index: interface, name: String::new() },
            target: self.target.ip(),
            port: self.target.port(),
            version: self.version,
            lanes: LANES as u32,
            echo: false,
            interleaved: self.interleaved,
            clients: CLIENTS,
            counts_each_client: false,
            chained: false,
            open_intervals: intervals,
            key: self.token.key(),
            run_start_ns: self.token.run_start().as_ns() as u64,
            reply_timeout_ns: TIMEOUT.as_ns() as u64,
            request: template.bytes().to_vec(),
            sums: template.constant_sums(),
            first_client: self.network.address(0),
            exponential: schedule::exponential_quantiles(),
        })?)
    }

    /// A trial of this run.
    pub(crate) fn trial(&self, start: Timestamp<Monotonic>) -> TrialSettings {
        TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_minus_monotonic_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: LANES as u32,
            clients_per_lane: self.clients() / LANES as u32,
            lanes_with_one_more: self.clients() % LANES as u32,
            random_addresses: if self.random_sources { self.network.host_count() } else { 0 },
            exponential: false,
            interval_ns: 0,
            intervals: 0,
        }
    }
}
