//! The engine with simulated clients: whole Ethernet frames through a packet socket, so that
//! requests come from as many addresses as are wanted and skip the sending half of the network
//! stack. It needs `CAP_NET_RAW`.
//!
//! Simulated clients do not answer ARP or neighbour solicitations; the server has to route replies
//! to an address of this host. This host's stack sees the replies after the packet socket, for
//! addresses that are not its own. It throws them away, or forwards them where it is a router,
//! unless a guard keeps them from it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_io::{Batch, Device, FrameSelection, PacketDevice, PacketOptions, UdpFilter};
use horolog_record::Engine as Kind;
use horolog_wire::frame::{Builder, UdpFrame};
use horolog_xdp::{Interface, ReplyDrop, ReplyDropSettings, XdpError};

use super::lane::{Arrival, BATCH, Port};
use super::threads::{self, Lane};
use super::udp::Drops;
use super::{Engine, EngineError, unfit};
use crate::account::TrialCounts;
use crate::clients;
use crate::nts::LaneSessions;
use crate::plan::{RunPlan, TrialPlan};
use crate::request::{FramePlan, FrameTemplate, Stamps};
use crate::target::{Link, Route};
use crate::verify::PAYLOAD_LEN;

/// Room for any frame that is not a jumbo frame.
const RECEIVE_LEN: usize = 2048;

/// Bytes of receive buffer asked for each lane. The kernel charges about 800 for each small frame,
/// so this holds some 20,000 replies: 20 ms at a million a second.
const RECEIVE_BUFFER: usize = 16 << 20;

impl Drops for PacketDevice {
    fn dropped(&mut self) -> io::Result<u64> {
        Self::dropped(self)
    }
}

/// One lane's packet socket and the clients behind it.
pub(crate) struct FramePort<D: Device<Address = ()>> {
    pub(crate) device: D,
    template: FrameTemplate,
    plan: FramePlan,
    requests: Batch<()>,
    ready: usize,
    replies: Batch<()>,
}

impl<D: Device<Address = ()>> FramePort<D> {
    /// Requests have at most `payload_max` bytes, and templates at least those of a plain one.
    pub(crate) fn new(device: D, plan: &FramePlan, payload_max: usize) -> Self {
        let template = FrameTemplate::new(plan);
        let headers = template.bytes().len() - PAYLOAD_LEN;
        let mut requests = Batch::new(BATCH, headers + payload_max.max(PAYLOAD_LEN));
        while requests.push((), template.bytes()) {}
        Self {
            device,
            template,
            plan: *plan,
            requests,
            ready: 0,
            replies: Batch::new(BATCH, RECEIVE_LEN),
        }
    }

    /// The reply in a frame, if it is one of the target's to this lane. The UDP checksum is not
    /// looked at: on virtual links it is left to hardware that does not exist.
    fn arrival<'a>(&self, frame: &'a [u8]) -> Option<Arrival<'a>> {
        let frame = UdpFrame::parse(frame).ok()?;
        let from_target = frame.source == self.plan.target;
        let to_lane = frame.destination.port() == self.plan.source_port;
        (from_target && to_lane).then(|| Arrival {
            payload: frame.payload,
            client: self.plan.network.client(frame.destination.ip()),
            received_at: None,
        })
    }
}

impl<D: Device<Address = ()> + Drops + Send> Port for FramePort<D> {
    fn push(&mut self, client: u32, stamps: Stamps) -> bool {
        if self.ready == self.requests.slots() {
            return false;
        }
        self.ready += 1;
        self.requests.set_len(self.ready);
        let source_low = self.plan.network.base().wrapping_add(1).wrapping_add(client);
        let frame = self.requests.packet_mut(self.ready - 1).bytes;
        self.template.complete(frame, source_low, stamps);
        true
    }

    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool {
        if self.ready == 0 {
            self.requests.clear();
        }
        let source = SocketAddr::new(self.plan.network.address(client), self.plan.source_port);
        let builder = Builder {
            destination_mac: self.plan.destination_mac,
            source_mac: self.plan.source_mac,
            vlan: None,
            source,
            destination: self.plan.target,
        };
        let pushed = self.requests.push_with((), |frame| builder.emit(payload, frame));
        self.ready += usize::from(pushed);
        pushed
    }

    fn send(&mut self) -> io::Result<usize> {
        self.ready = 0;
        self.device.send(&mut self.requests)
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.device.receive(&mut self.replies, Duration::ZERO)
    }

    fn receive_calls(&self) -> usize {
        1
    }

    fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.replies.iter().filter_map(|packet| {
            let arrival = self.arrival(packet.bytes)?;
            Some(Arrival { received_at: packet.received_at, ..arrival })
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        self.device.dropped()
    }

    fn port_closed(&self) -> u64 {
        0 // a packet socket with a filter for UDP sees no ICMP
    }
}

/// The engine over packet sockets.
pub struct PacketEngine {
    plan: RunPlan,
    lanes: Vec<Lane<FramePort<PacketDevice>>>,
    /// Keeps the replies from this host's stack while the engine lives.
    guard: Result<ReplyDrop, XdpError>,
}

impl PacketEngine {
    /// Opens a packet socket for each lane.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let (link, frames) = frame_plans(plan, Kind::Packet)?;
        let lanes = frames.iter().map(|frame| {
            let options = PacketOptions {
                slots: BATCH,
                selection: FrameSelection::Udp(UdpFilter {
                    source: frame.target.ip(),
                    source_port: Some(frame.target.port()),
                    destination_port: Some(frame.source_port),
                }),
                receive_buffer: Some(RECEIVE_BUFFER),
                bypass_queueing: !plan.tapped,
                ..PacketOptions::default()
            };
            let device = PacketDevice::open(&link.interface, &options)?;
            let nts = threads::sessions(plan)?;
            let payload_max = nts.as_ref().map_or(0, LaneSessions::request_len_max);
            Ok(Lane::new(FramePort::new(device, frame, payload_max), nts))
        });
        let lanes = lanes.collect::<Result<_, EngineError>>()?;
        Ok(Self { plan: plan.clone(), lanes, guard: guard(link, &frames) })
    }
}

fn guard(link: &Link, frames: &[FramePlan]) -> Result<ReplyDrop, XdpError> {
    let interface = Interface { index: link.index, name: link.interface.clone() };
    // A plan has at least one lane, and all have the same target and network.
    let frame = &frames[0];
    let network = frame.network.prefix();
    ReplyDrop::attach(&ReplyDropSettings {
        interface,
        target: frame.target.ip(),
        port: frame.target.port(),
        network: network.address(),
        prefix_len: network.length(),
    })
}

/// What an engine that builds frames needs: the link, and what each lane's frames look like.
pub fn frame_plans(plan: &RunPlan, engine: Kind) -> Result<(&Link, Vec<FramePlan>), EngineError> {
    let Route::Link(link) = &plan.route else {
        let reason = format!("{} is an address of this machine", plan.target.ip());
        return Err(unfit(
            engine,
            reason,
            "use --engine udp, or load it from another machine or a lab",
        ));
    };
    let (Some(macs), Some(network)) = (link.macs, plan.network) else {
        let reason = format!("no frames can be built for interface '{}'", link.interface);
        return Err(unfit(engine, reason, "use --engine udp"));
    };
    let frame = |lane| FramePlan {
        source_mac: macs.source,
        destination_mac: macs.destination,
        network,
        source_port: clients::port(lane),
        target: plan.target,
        version: plan.version,
    };
    Ok((link, (0..plan.lanes).map(frame).collect()))
}

impl Engine for PacketEngine {
    fn kind(&self) -> Kind {
        Kind::Packet
    }

    fn shortfall(&self) -> Option<String> {
        let error = self.guard.as_ref().err()?;
        Some(format!(
            "replies to simulated clients also reach this host's network stack, which throws them \
             away at a higher cost: {error}"
        ))
    }

    fn trial(&mut self, plan: &TrialPlan) -> Result<TrialCounts, EngineError> {
        threads::run(&mut self.lanes, &self.plan, plan, 1)
    }
}
