//! PTP over UDP sockets: the event and the general socket of one real client, with the kernel's
//! software receive timestamps. PTP uses the fixed ports 319 and 320 at both ends, so a host has
//! one such client, which needs root or `CAP_NET_BIND_SERVICE`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, DatagramEndpoints, UdpDevice, UdpDeviceError};
use horolog_record::LoadEngineKind as Kind;
use horolog_sys::message::is_refusal;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use super::lane::{BATCH, DatagramFromTarget, LaneDevice};
use super::membership::HeldMulticastMembership;
use super::nic_clock::{self, TimestampingPhc};
use super::threads::{self, DeviceWithCarryOver};
use super::udp::{DropCountingDevice, EXCESS_LEN, socket_options};
use super::{EngineError, IntervalSink, LoadEngine, unavailable_error};
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::{PtpRequestOptions, REQUEST_LEN_MAX};
use crate::request::RequestTimestamps;

/// Longest UDP payload, in bytes, of a frame that is not a jumbo frame: a reply may carry any TLV.
const REPLY_LEN_MAX: usize = 1472;

/// Event and general socket of one PTP client.
struct PtpClientSockets {
    /// Socket that receives Sync, and sends delay requests.
    event: UdpDevice,
    /// Socket that receives the other messages, and sends other requests.
    general: UdpDevice,
    sends_from_general: bool,
    requests: Batch<DatagramEndpoints>,
    replies: Batch<DatagramEndpoints>,
    /// True if the last receive call used the general socket; the next one uses the event socket.
    receives_from_general: bool,
    port_closed: u64,
}

impl PtpClientSockets {
    fn send_requests(&mut self) -> io::Result<usize> {
        let socket = if self.sends_from_general { &mut self.general } else { &mut self.event };
        socket.send(&mut self.requests)
    }

    /// Turns an ICMP error into `None` and counts a closed port, as in [`super::udp`].
    fn count_refusal(&mut self, result: io::Result<usize>) -> io::Result<Option<usize>> {
        match result {
            Err(error) if is_refusal(&error) => {
                self.port_closed += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}

impl LaneDevice for PtpClientSockets {
    fn has_room(&self, _: u32) -> bool {
        !self.requests.is_full()
    }

    fn push(&mut self, _: u32, _: RequestTimestamps) -> bool {
        false // no template: each request is a payload of its own
    }

    fn push_payload(&mut self, _: u32, payload: &[u8]) -> bool {
        self.requests.push(DatagramEndpoints::default(), payload)
    }

    fn send(&mut self) -> io::Result<usize> {
        let mut sent = self.send_requests();
        if let Some(sent) = self.count_refusal(sent)? {
            self.requests.clear();
            return Ok(sent);
        }
        // The kernel returned a pending error instead of sending, which cleared it: send again.
        sent = self.send_requests();
        self.requests.clear();
        Ok(self.count_refusal(sent)?.unwrap_or(0))
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.receives_from_general = !self.receives_from_general;
        let socket = if self.receives_from_general { &mut self.general } else { &mut self.event };
        let result = socket.receive(&mut self.replies, Duration::ZERO);
        let count = self.count_refusal(result)?;
        if count.is_none() {
            self.replies.clear();
        }
        Ok(count.unwrap_or(0))
    }

    fn receive_calls(&self) -> usize {
        2
    }

    fn arrivals(&self) -> impl Iterator<Item = DatagramFromTarget<'_>> {
        self.replies.iter().map(|packet| DatagramFromTarget {
            payload: packet.bytes,
            client: Some(0),
            received_at: packet.received_at,
            phc_ns: packet.hardware.map(|time| time.ns),
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        Ok(DropCountingDevice::dropped(&mut self.event)?
            + DropCountingDevice::dropped(&mut self.general)?)
    }

    fn port_closed(&self) -> u64 {
        self.port_closed
    }
}

/// Engine over the two sockets of one client.
pub struct PtpUdpEngine {
    plan: RunPlan,
    lanes: [DeviceWithCarryOver<PtpClientSockets>; 1],
    nic_clock: Option<TimestampingPhc>,
    /// Membership in the multicast group to which replies are sent.
    _membership: Option<HeldMulticastMembership>,
}

impl PtpUdpEngine {
    /// Opens the sockets, and joins the group to which replies are sent, if they are multicast.
    pub fn open(plan: &RunPlan, ptp: PtpRequestOptions) -> Result<Self, EngineError> {
        let master = plan.target.ip();
        let group = ptp.multicast_group(master);
        let nic_clock = TimestampingPhc::open(plan, Kind::Udp)?;
        let options = socket_options(plan, group.is_some(), nic_clock.as_ref());
        let wildcard = |port| match master {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        let target_at = |port| {
            let mut address = plan.target;
            address.set_port(port);
            address
        };
        let open =
            |local, remote| UdpDevice::connect_from(local, remote, &options).map_err(open_error);
        let (event, general) = match group {
            None => (
                open(wildcard(EVENT_PORT), target_at(EVENT_PORT))?,
                open(wildcard(GENERAL_PORT), target_at(GENERAL_PORT))?,
            ),
            Some(group) => (
                open(wildcard(EVENT_PORT), ptp.destination(master))?,
                open(SocketAddr::new(group, GENERAL_PORT), target_at(GENERAL_PORT))?,
            ),
        };
        let port = PtpClientSockets {
            event,
            general,
            sends_from_general: ptp.port() == GENERAL_PORT,
            requests: Batch::new(BATCH, REQUEST_LEN_MAX),
            replies: Batch::new(BATCH, REPLY_LEN_MAX + EXCESS_LEN),
            receives_from_general: false,
            port_closed: 0,
        };
        let lanes = [DeviceWithCarryOver::new(port, None)];
        Ok(Self {
            plan: plan.clone(),
            lanes,
            nic_clock,
            _membership: HeldMulticastMembership::join(plan)?,
        })
    }
}

/// Returns the error with a remedy that fits the fixed ports.
fn open_error(error: UdpDeviceError) -> EngineError {
    let (reason, remedy) = match &error {
        UdpDeviceError::Privilege(address) => (
            format!("PTP's port {} needs root or CAP_NET_BIND_SERVICE", address.port()),
            "run as root",
        ),
        UdpDeviceError::InUse(address) => (
            format!("PTP's port {} is in use by another program on this host", address.port()),
            "stop it, use --engine packet, or run the load from another host",
        ),
        _ => return error.into(),
    };
    unavailable_error(Kind::Udp, reason, remedy)
}

impl LoadEngine for PtpUdpEngine {
    fn kind(&self) -> Kind {
        Kind::Udp
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
