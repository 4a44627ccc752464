//! PTP over Ethernet without IP (IEEE 1588-2019, annex E), through packet sockets. Requests go from
//! the interface's MAC address to the master or to the PTP multicast address. So replies need no
//! route, and simulated clients have no addresses: they differ by the port identity in their
//! requests. Requires `CAP_NET_RAW` and a master on the same link.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_record::LoadEngineKind as Kind;
use horolog_wire::ethernet::{self, Header};
use horolog_wire::ptp::{ETHER_TYPE, MULTICAST_MAC};

use super::lane::{BATCH, DatagramFromTarget, LaneDevice};
use super::nic_clock::{self, TimestampingPhc};
use super::packet::{RECEIVE_BUFFER, RECEIVE_LEN};
use super::threads::{self, DeviceWithCarryOver};
use super::udp::DropCountingDevice;
use super::{EngineError, IntervalSink, LoadEngine, unavailable_error};
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::{PtpRequestOptions, REQUEST_LEN_MAX};
use crate::request::RequestTimestamps;
use crate::target::{FirstLink, LinkMacs, Route};

/// Packet socket of one lane.
struct LaneEthernetSocket {
    device: PacketSocketDevice,
    macs: LinkMacs,
    multicast: bool,
    /// Client of all received frames; `None` if only their content identifies it.
    client: Option<u32>,
    requests: Batch<()>,
    replies: Batch<()>,
}

impl LaneEthernetSocket {
    /// Returns the PTP message in a frame from the master to this host or the multicast group;
    /// `None` for other frames.
    fn message<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let (header, payload) = Header::parse(frame).ok()?;
        let own = if self.multicast { MULTICAST_MAC } else { self.macs.source };
        let is_ours = header.destination == own && header.source == self.macs.destination;
        (is_ours && header.ether_type == ETHER_TYPE).then_some(payload)
    }
}

impl LaneDevice for LaneEthernetSocket {
    fn has_room(&self, _: u32) -> bool {
        !self.requests.is_full()
    }

    fn push(&mut self, _: u32, _: RequestTimestamps) -> bool {
        false // no template: each request is a payload of its own
    }

    fn push_payload(&mut self, _: u32, payload: &[u8]) -> bool {
        let destination = if self.multicast { MULTICAST_MAC } else { self.macs.destination };
        let header =
            Header { destination, source: self.macs.source, vlan: None, ether_type: ETHER_TYPE };
        self.requests.push_with((), |frame| {
            let at = header.emit(frame);
            frame[at..at + payload.len()].copy_from_slice(payload);
            at + payload.len()
        })
    }

    fn send(&mut self) -> io::Result<usize> {
        let sent = self.device.send(&mut self.requests);
        self.requests.clear();
        sent
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.device.receive(&mut self.replies, Duration::ZERO)
    }

    fn receive_calls(&self) -> usize {
        1
    }

    fn arrivals(&self) -> impl Iterator<Item = DatagramFromTarget<'_>> {
        self.replies.iter().filter_map(|packet| {
            let payload = self.message(packet.bytes)?;
            Some(DatagramFromTarget {
                payload,
                client: self.client,
                received_at: packet.received_at,
                phc_ns: packet.hardware.map(|time| time.ns),
            })
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        DropCountingDevice::dropped(&mut self.device)
    }

    fn port_closed(&self) -> u64 {
        0 // there are no ports
    }
}

/// Engine for PTP over Ethernet through packet sockets.
pub struct PtpEthernetEngine {
    plan: RunPlan,
    lanes: Vec<DeviceWithCarryOver<LaneEthernetSocket>>,
    /// NIC clock that timestamps replies, if requested.
    nic_clock: Option<TimestampingPhc>,
}

impl PtpEthernetEngine {
    /// Opens a packet socket for each lane.
    pub fn open(plan: &RunPlan, ptp: PtpRequestOptions) -> Result<Self, EngineError> {
        let (link, macs) = master_link(plan, Kind::Packet)?;
        let nic_clock = TimestampingPhc::open(plan, Kind::Packet)?;
        let options = PacketSocketOptions {
            slots: BATCH,
            selection: FrameSelection::EtherType(ETHER_TYPE),
            groups: ptp.multicast.then_some(MULTICAST_MAC).into_iter().collect(),
            receive_buffer: Some(RECEIVE_BUFFER),
            hardware_timestamps: nic_clock.is_some(),
            bypass_queueing: !plan.is_captured,
            ..PacketSocketOptions::default()
        };
        let frame_len = ethernet::HEADER_LEN + REQUEST_LEN_MAX;
        let lane = |_| {
            let port = LaneEthernetSocket {
                device: PacketSocketDevice::open(&link.interface, &options)?,
                macs,
                multicast: ptp.multicast,
                client: ptp.clients_max().map(|_| 0),
                requests: Batch::new(BATCH, frame_len),
                replies: Batch::new(BATCH, RECEIVE_LEN),
            };
            Ok(DeviceWithCarryOver::new(port, None))
        };
        let lanes = (0..plan.lanes).map(lane).collect::<Result<_, EngineError>>()?;
        Ok(Self { plan: plan.clone(), lanes, nic_clock })
    }
}

/// Returns the link to the master and its MAC addresses; an error if Ethernet frames cannot reach
/// the master.
pub(super) fn master_link(
    plan: &RunPlan,
    engine: Kind,
) -> Result<(&FirstLink, LinkMacs), EngineError> {
    let target = plan.target.ip();
    let Route::Link(link) = &plan.route else {
        let reason = format!("{target} is an address of this host");
        return Err(unavailable_error(engine, reason, "run the load from another host or a lab"));
    };
    let Some(macs) = link.macs.filter(|macs| !macs.destination.is_group()) else {
        let reason = format!("interface '{}' cannot send Ethernet frames", link.interface);
        return Err(unavailable_error(engine, reason, "use UDP"));
    };
    if let Some(gateway) = link.gateway {
        let reason =
            format!("{target} is behind the router {gateway}, which does not forward such frames");
        return Err(unavailable_error(
            engine,
            reason,
            "use UDP, or a generator on the target's link",
        ));
    }
    Ok((link, macs))
}

impl LoadEngine for PtpEthernetEngine {
    fn kind(&self) -> Kind {
        Kind::Packet
    }

    fn run(
        &mut self,
        plan: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError> {
        let offset = nic_clock::trial_offset_plan(&self.plan, self.nic_clock.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, 1, offset, intervals)
    }
}
