//! PTP in Ethernet frames without IP, through packet sockets. Requests go from the interface's own
//! address to the master's or to the group of all PTP ports, so answers need no route and simulated
//! clients no addresses: they differ by the port identity in their requests. It needs `CAP_NET_RAW`
//! and a master on the same link.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, Device, FrameSelection, PacketDevice, PacketOptions};
use horolog_record::Engine as Kind;
use horolog_wire::ethernet::{self, Header};
use horolog_wire::ptp::{ETHER_TYPE, MULTICAST_MAC};

use super::card::{self, Card};
use super::lane::{Arrival, BATCH, Port};
use super::packet::{RECEIVE_BUFFER, RECEIVE_LEN};
use super::threads::{self, Lane};
use super::udp::Drops;
use super::{Engine, EngineError, Intervals, unfit};
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::REQUEST_LEN_MAX;
use crate::request::Stamps;
use crate::target::{Link, Macs, Route};

/// One lane's packet socket.
struct EthernetPort {
    device: PacketDevice,
    macs: Macs,
    multicast: bool,
    /// To whom everything comes; `None` where that is not known from the frame.
    client: Option<u32>,
    requests: Batch<()>,
    answers: Batch<()>,
}

impl EthernetPort {
    /// The message in a frame of the master's, where it is for us.
    fn message<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let (header, payload) = Header::parse(frame).ok()?;
        let own = if self.multicast { MULTICAST_MAC } else { self.macs.source };
        let is_ours = header.destination == own && header.source == self.macs.destination;
        (is_ours && header.ether_type == ETHER_TYPE).then_some(payload)
    }
}

impl Port for EthernetPort {
    fn has_room(&self, _: u32) -> bool {
        !self.requests.is_full()
    }

    fn push(&mut self, _: u32, _: Stamps) -> bool {
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
        self.device.receive(&mut self.answers, Duration::ZERO)
    }

    fn receive_calls(&self) -> usize {
        1
    }

    fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.answers.iter().filter_map(|packet| {
            let payload = self.message(packet.bytes)?;
            Some(Arrival {
                payload,
                client: self.client,
                received_at: packet.received_at,
                card_ns: packet.hardware.map(|time| time.ns),
            })
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        Drops::dropped(&mut self.device)
    }

    fn port_closed(&self) -> u64 {
        0 // there are no ports
    }
}

/// The engine over packet sockets, without IP.
pub struct EthernetEngine {
    plan: RunPlan,
    lanes: Vec<Lane<EthernetPort>>,
    /// Its clock stamps answers, where that was asked for.
    card: Option<Card>,
}

impl EthernetEngine {
    /// Opens a packet socket for each lane.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let (link, macs) = link(plan, Kind::Packet)?;
        let card = Card::open(plan, Kind::Packet)?;
        let ptp = plan.ptp;
        let multicast = ptp.is_some_and(|ptp| ptp.multicast);
        let options = PacketOptions {
            slots: BATCH,
            selection: FrameSelection::EtherType(ETHER_TYPE),
            groups: multicast.then_some(MULTICAST_MAC).into_iter().collect(),
            receive_buffer: Some(RECEIVE_BUFFER),
            hardware_timestamps: card.is_some(),
            bypass_queueing: !plan.tapped,
            ..PacketOptions::default()
        };
        let frame_len = ethernet::HEADER_LEN + REQUEST_LEN_MAX;
        let lane = |_| {
            let port = EthernetPort {
                device: PacketDevice::open(&link.interface, &options)?,
                macs,
                multicast,
                client: ptp.and_then(|ptp| ptp.clients_max()).map(|_| 0),
                requests: Batch::new(BATCH, frame_len),
                answers: Batch::new(BATCH, RECEIVE_LEN),
            };
            Ok(Lane::new(port, None))
        };
        let lanes = (0..plan.lanes).map(lane).collect::<Result<_, EngineError>>()?;
        Ok(Self { plan: plan.clone(), lanes, card })
    }
}

/// The link that the master is on.
pub(super) fn link(plan: &RunPlan, engine: Kind) -> Result<(&Link, Macs), EngineError> {
    let target = plan.target.ip();
    let Route::Link(link) = &plan.route else {
        let reason = format!("{target} is an address of this machine");
        return Err(unfit(engine, reason, "load it from another machine or a lab"));
    };
    let Some(macs) = link.macs.filter(|macs| !macs.destination.is_group()) else {
        let reason = format!("no frames can be built for interface '{}'", link.interface);
        return Err(unfit(engine, reason, "ask over UDP"));
    };
    if let Some(gateway) = link.gateway {
        let reason =
            format!("{target} is behind the router {gateway}, which passes no such frames");
        return Err(unfit(engine, reason, "ask over UDP, or from a machine on its link"));
    }
    Ok((link, macs))
}

impl Engine for EthernetEngine {
    fn kind(&self) -> Kind {
        Kind::Packet
    }

    fn run(&mut self, plan: &TrialPlan, intervals: &mut dyn Intervals) -> Result<(), EngineError> {
        let offset = card::offset_plan(&self.plan, self.card.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, 1, offset, intervals)
    }
}
