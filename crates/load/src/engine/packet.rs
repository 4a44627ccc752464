//! Engine with simulated clients: whole Ethernet frames through a packet socket, so that requests
//! come from any number of addresses and skip the sending half of the network stack. Requires
//! `CAP_NET_RAW`.
//!
//! Simulated clients do not answer ARP or neighbour solicitations, so the server must route replies
//! to an address of this host. This host's stack also receives the replies, which are not for its
//! addresses. It drops them, or forwards them if it is a router, unless a BPF program
//! ([`ReplyDropProgram`]) drops them first.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, FrameSelection, LaneNumberFilter, PacketSocketDevice, PacketSocketOptions,
    UdpFilter,
};
use horolog_record::LoadEngineKind as Kind;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ptp::MessageType;
use horolog_wire::ptp::message::{REQUESTING_PORT_OFFSET, SIGNALING_PORT_OFFSET};
use horolog_xdp::{Interface, ReplyDropProgram, ReplyDropSettings, XdpError};

use super::lane::{BATCH, DatagramFromTarget, LaneDevice};
use super::membership::HeldMulticastMembership;
use super::nic_clock::{self, TimestampingPhc};
use super::threads::{self, DeviceWithCarryOver};
use super::udp::DropCountingDevice;
use super::{EngineError, IntervalSink, LoadEngine, unavailable_error};
use crate::clients;
use crate::plan::{ReplyDropPlan, RunPlan, TrialPlan};
use crate::ptp::{PtpRequestKind, port_number};
use crate::request::{
    LaneFrameParameters, LaneFrameTemplate, PtpFrameParameters, RequestTimestamps,
};
use crate::target::{FirstLink, Route};
use crate::trailer::RequestTrailer;

/// Buffer length for a received frame, in bytes: enough for any but a jumbo frame.
pub(super) const RECEIVE_LEN: usize = 2048;

/// Receive buffer requested for each lane, in bytes. The kernel charges about 800 bytes for a small
/// frame, so it holds about 20,000 replies: 20 ms at 1,000,000 replies/s.
pub(super) const RECEIVE_BUFFER: usize = 16 << 20;

impl DropCountingDevice for PacketSocketDevice {
    fn dropped(&mut self) -> io::Result<u64> {
        Self::dropped(self)
    }
}

/// Packet socket of one lane and its clients.
pub(crate) struct LanePacketSocket<D: BatchDevice<Address = ()>> {
    pub(crate) device: D,
    template: LaneFrameTemplate,
    plan: LaneFrameParameters,
    requests: Batch<()>,
    queued: usize,
    replies: Batch<()>,
}

impl<D: BatchDevice<Address = ()>> LanePacketSocket<D> {
    /// Creates a lane's socket over `device`, with room for plain requests and for payloads of up
    /// to `payload_max` bytes.
    pub(crate) fn new(device: D, plan: &LaneFrameParameters, payload_max: usize) -> Self {
        let template = LaneFrameTemplate::new(plan);
        let mut requests = Batch::new(BATCH, template.bytes().len() + payload_max);
        while requests.push((), template.bytes()) {}
        Self {
            device,
            template,
            plan: *plan,
            requests,
            queued: 0,
            replies: Batch::new(BATCH, RECEIVE_LEN),
        }
    }

    /// Returns the datagram in a frame if it is a reply of the target to this lane. The UDP
    /// checksum is not verified, because on virtual links it is never filled in (checksum offload).
    fn target_datagram<'a>(&self, frame: &'a [u8]) -> Option<DatagramFromTarget<'a>> {
        let frame = UdpFrame::parse(frame).ok()?;
        self.plan.is_reply(frame.source, frame.destination).then(|| DatagramFromTarget {
            payload: frame.payload,
            client: self.plan.network.client_of(frame.destination.ip()),
            received_at: None,
            phc_ns: None,
        })
    }
}

impl<D: BatchDevice<Address = ()> + DropCountingDevice + Send> LaneDevice for LanePacketSocket<D> {
    fn has_room(&self, _: u32) -> bool {
        self.queued < self.requests.slots()
    }

    fn push(&mut self, client: u32, timestamps: RequestTimestamps) -> bool {
        if !self.has_room(client) {
            return false;
        }
        self.queued += 1;
        self.requests.set_len(self.queued);
        let source_low = self.plan.network.base().wrapping_add(1).wrapping_add(client);
        let frame = self.requests.packet_mut(self.queued - 1).bytes;
        self.template.complete_frame(frame, source_low, timestamps);
        true
    }

    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool {
        if self.queued == 0 {
            self.requests.clear();
        }
        let source = SocketAddr::new(self.plan.network.address(client), self.plan.source_port);
        let builder = UdpFrameBuilder {
            destination_mac: self.plan.destination_mac,
            source_mac: self.plan.source_mac,
            vlan: None,
            source,
            destination: self.plan.target,
        };
        let pushed = self.requests.push_with((), |frame| builder.emit(payload, frame));
        self.queued += usize::from(pushed);
        pushed
    }

    fn send(&mut self) -> io::Result<usize> {
        self.queued = 0;
        self.device.send(&mut self.requests)
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.device.receive(&mut self.replies, Duration::ZERO)
    }

    fn receive_calls(&self) -> usize {
        1
    }

    fn arrivals(&self) -> impl Iterator<Item = DatagramFromTarget<'_>> {
        self.replies.iter().filter_map(|packet| {
            let arrival = self.target_datagram(packet.bytes)?;
            let (received_at, hardware) = (packet.received_at, packet.hardware);
            Some(DatagramFromTarget {
                received_at,
                phc_ns: hardware.map(|time| time.ns),
                ..arrival
            })
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        self.device.dropped()
    }

    fn port_closed(&self) -> u64 {
        0 // a packet socket with a filter for UDP sees no ICMP
    }
}

/// Engine that sends Ethernet frames with IP packets of simulated clients through packet sockets.
pub struct PacketEngine {
    plan: RunPlan,
    lanes: Vec<DeviceWithCarryOver<LanePacketSocket<PacketSocketDevice>>>,
    /// NIC clock that timestamps replies, if requested.
    nic_clock: Option<TimestampingPhc>,
    /// Program that drops the replies before this host's stack; `None` if the plan requests none,
    /// an error if it could not be attached.
    reply_drop: Result<Option<ReplyDropProgram>, XdpError>,
    /// Membership in the multicast group to which replies are sent.
    _membership: Option<HeldMulticastMembership>,
}

impl PacketEngine {
    /// Opens a packet socket for each lane.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let (link, frames) = frame_plans(plan, Kind::Packet)?;
        let nic_clock = TimestampingPhc::open(plan, Kind::Packet)?;
        let lanes = frames.iter().enumerate().map(|(lane, frame)| {
            let options = PacketSocketOptions {
                slots: BATCH,
                selection: frame_selection(frame, plan),
                receive_buffer: Some(RECEIVE_BUFFER),
                hardware_timestamps: nic_clock.is_some(),
                bypass_queueing: !plan.is_captured,
                ..PacketSocketOptions::default()
            };
            let device = PacketSocketDevice::open(&link.interface, &options)?;
            let trailer = plan.requests.behaviour().request_trailer((lane, plan.lanes))?;
            let payload_max = trailer.as_ref().map_or(0, RequestTrailer::request_len_max);
            Ok(DeviceWithCarryOver::new(LanePacketSocket::new(device, frame, payload_max), trailer))
        });
        let lanes = lanes.collect::<Result<_, EngineError>>()?;
        let membership = HeldMulticastMembership::join(plan)?;
        let reply_drop =
            plan.reply_drop.as_ref().map(|guard| attach_reply_drop(link, plan, guard)).transpose();
        Ok(Self { plan: plan.clone(), lanes, nic_clock, reply_drop, _membership: membership })
    }
}

/// Returns the filter for the traffic that a lane must receive.
fn frame_selection(frame: &LaneFrameParameters, plan: &RunPlan) -> FrameSelection {
    let network = frame.network.prefix();
    let network = plan.shares_ports.then(|| (network.address(), network.length()));
    let Some(ptp) = frame.ptp else {
        return FrameSelection::Udp(UdpFilter {
            source: frame.target.ip(),
            source_port: Some(frame.target.port()),
            destination_port: Some(frame.source_port),
            destination_network: network,
        });
    };
    let filter = UdpFilter {
        source: ptp.master,
        source_port: None,
        destination_port: None,
        destination_network: network,
    };
    let (kind, offset) = match ptp.plan.kind {
        PtpRequestKind::Unicast(_) => (MessageType::Signaling, SIGNALING_PORT_OFFSET),
        PtpRequestKind::Delay | PtpRequestKind::Nsm => {
            (MessageType::DelayResp, REQUESTING_PORT_OFFSET)
        }
    };
    let mark = LaneNumberFilter {
        kind: kind as u8,
        offset: offset as u32,
        number: port_number(ptp.lane),
        last: port_number(plan.first_lane + plan.lanes - 1),
    };
    FrameSelection::UdpOfLane(filter, mark)
}

/// Attaches the program that drops replies before this host's stack.
fn attach_reply_drop(
    link: &FirstLink,
    plan: &RunPlan,
    drop_plan: &ReplyDropPlan,
) -> Result<ReplyDropProgram, XdpError> {
    ReplyDropProgram::attach(&ReplyDropSettings {
        interface: Interface { index: link.index, name: link.interface.clone() },
        target: plan.target.ip(),
        ports: drop_plan.ports.clone(),
        network: drop_plan.network.address(),
        prefix_len: drop_plan.network.length(),
    })
}

/// Returns the link and the frame layout of each lane, for engines that build frames.
pub fn frame_plans(
    plan: &RunPlan,
    engine: Kind,
) -> Result<(&FirstLink, Vec<LaneFrameParameters>), EngineError> {
    let Route::Link(link) = &plan.route else {
        let reason = format!("{} is an address of this host", plan.target.ip());
        return Err(unavailable_error(
            engine,
            reason,
            "use --engine udp, or run the load from another host or a lab",
        ));
    };
    let (Some(macs), Some(network)) = (link.macs, plan.network) else {
        let reason = format!("interface '{}' cannot send Ethernet frames", link.interface);
        return Err(unavailable_error(engine, reason, "use --engine udp"));
    };
    let (master, behaviour) = (plan.target.ip(), plan.requests.behaviour());
    let group = behaviour.multicast_group(master);
    let frame = |lane| LaneFrameParameters {
        source_mac: macs.source,
        destination_mac: group.map_or(macs.destination, MacAddress::of_group),
        network,
        source_port: behaviour
            .fixed_port()
            .unwrap_or_else(|| clients::source_port(plan.first_lane + lane)),
        target: group.map_or(plan.target, |group| SocketAddr::new(group, plan.target.port())),
        version: behaviour.version(),
        ptp: plan.requests.ptp().map(|ptp| PtpFrameParameters {
            plan: ptp,
            master,
            lane: plan.first_lane + lane,
            excluded_network: plan.excluded_network,
        }),
    };
    Ok((link, (0..plan.lanes).map(frame).collect()))
}

impl LoadEngine for PacketEngine {
    fn kind(&self) -> Kind {
        Kind::Packet
    }

    fn missing_feature(&self) -> Option<String> {
        let error = self.reply_drop.as_ref().err()?;
        Some(format!(
            "replies to simulated clients also reach this host's network stack, which discards \
             them at a higher cost: {error}"
        ))
    }

    fn run(
        &mut self,
        plan: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError> {
        let offset = nic_clock::trial_offset_plan(&self.plan, self.nic_clock.as_mut())?;
        let consecutive_requests = self.plan.consecutive_requests;
        threads::run(&mut self.lanes, &self.plan, plan, consecutive_requests, offset, intervals)
    }
}
