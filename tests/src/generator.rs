//! In-kernel generator for test runs of single frames: loaded with the settings of `horolog load`,
//! attached to no interface. Sends nothing.

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

/// Interface of the frames of a test run.
pub(crate) const LOOPBACK: u32 = 1;
/// Another interface, by which a test run sends nothing.
pub(crate) const OTHER_INTERFACE: u32 = 2;
pub(crate) const LANES: usize = 2;
/// Longest time to a valid reply.
pub(crate) const TIMEOUT: Span = Span::from_ms(1_000);
/// Age of the run, less than the uptime of a machine that runs scenarios.
pub(crate) const RUN_AGE: Span = Span::from_ms(30_000);

const OWN_MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 1]);
const TARGET_MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// Not a multiple of the lanes, so that one lane has one client more.
const CLIENTS: u32 = 1_001;

/// Servers over IPv4 and IPv6.
const TARGETS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];

/// Settings of a run for both implementations of the generator.
#[derive(Clone, Debug)]
pub(crate) struct GeneratorRun {
    pub(crate) target: SocketAddr,
    pub(crate) network: SimulatedClientNetwork,
    pub(crate) token: RequestTokenCodec,
    pub(crate) version: u8,
    /// True if clients are drawn from the whole network instead of taking turns.
    pub(crate) random_sources: bool,
    /// True if requests are in interleaved mode.
    pub(crate) interleaved: bool,
    /// PTP instead of NTP requests.
    pub(crate) ptp: Option<PtpRequestOptions>,
}

/// PTP requests: kind, true for multicast, and true for clients drawn at random.
const PTP_REQUESTS: [(PtpRequestKind, bool, bool); 4] = [
    (PtpRequestKind::Delay, false, false),
    (PtpRequestKind::Delay, false, true),
    (PtpRequestKind::Delay, true, false),
    (PtpRequestKind::Nsm, false, false),
];

impl GeneratorRun {
    /// Returns runs over IPv4 and IPv6: clients in turn, clients in turn in interleaved mode, and
    /// clients drawn at random.
    pub(crate) fn all(random: &mut Random) -> Result<Vec<Self>> {
        let mut runs = Vec::new();
        for target in TARGETS {
            for (random_sources, interleaved) in [(false, false), (false, true), (true, false)] {
                runs.push(Self {
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
        Ok(runs)
    }

    /// Returns runs with each kind of PTP request over IPv4 and IPv6.
    pub(crate) fn all_ptp(random: &mut Random) -> Result<Vec<Self>> {
        let mut runs = Vec::new();
        for target in TARGETS {
            for (kind, multicast, random_sources) in PTP_REQUESTS {
                let (domain, minor_version) = (random.next() as u8, random.within(0..=1) as u8);
                runs.push(Self {
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
        Ok(runs)
    }

    /// Returns the clients of a lane.
    pub(crate) fn lane_clients(&self, lane: usize) -> LaneClients {
        if self.random_sources {
            LaneClients::random(self.network.host_count(), self.token.key(), lane, LANES)
        } else {
            LaneClients::in_turn(CLIENTS, lane, LANES, 1)
        }
    }

    /// Number of clients of all lanes.
    pub(crate) fn client_count(&self) -> u32 {
        if self.random_sources { self.network.host_count() } else { CLIENTS }
    }

    /// Returns the frame parameters of a lane.
    pub(crate) fn frame_parameters(&self, lane: usize) -> LaneFrameParameters {
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

    /// Returns a frame from the target to a client of a lane.
    pub(crate) fn frame_to(&self, client: u32, lane: usize, payload: &[u8]) -> Vec<u8> {
        let to = SocketAddr::new(self.network.address(client), clients::source_port(lane));
        Self::frame(self.target, to, payload)
    }

    /// Returns a frame between these endpoints.
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

    /// Loads the program: frames from `interface` are replies, and all others are turned into
    /// requests.
    pub(crate) fn load(&self, interface: u32) -> Result<Generator> {
        self.load_with_intervals(interface, 1)
    }

    /// Loads the program with counts of `intervals` intervals per CPU.
    pub(crate) fn load_with_intervals(&self, interface: u32, intervals: u32) -> Result<Generator> {
        let template = LaneFrameTemplate::new(&match self.ptp {
            None => LaneFrameParameters { source_port: 0, ..self.frame_parameters(0) },
            Some(_) => self.frame_parameters(0),
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

    /// Returns the settings of a trial of this run.
    pub(crate) fn trial(&self, start: Timestamp<Monotonic>) -> TrialSettings {
        TrialSettings {
            start_ns: start.as_ns() as u64,
            realtime_minus_monotonic_ns: realtime_minus_monotonic().offset.as_ns(),
            lanes: LANES as u32,
            clients_per_lane: self.client_count() / LANES as u32,
            lanes_with_one_more: self.client_count() % LANES as u32,
            random_addresses: if self.random_sources { self.network.host_count() } else { 0 },
            exponential: false,
            interval_ns: 0,
            intervals: 0,
        }
    }
}
