//! PTP over ordinary sockets: the two sockets of one real client, with the kernel's software
//! receive timestamps. PTP uses the fixed ports 319 and 320 at both ends; so there is one such
//! client on each host, and it needs root or `CAP_NET_BIND_SERVICE`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, Endpoints, UdpDevice, UdpError};
use horolog_record::LoadEngineKind as Kind;
use horolog_sys::message::is_refusal;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use super::lane::{BATCH, LanePort, TargetDatagram};
use super::membership::Membership;
use super::nic_clock::{self, EnabledNicClock};
use super::threads::{self, Lane};
use super::udp::{Drops, EXCESS_LEN, socket_options};
use super::{EngineError, IntervalSink, LoadEngine, unfit};
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::REQUEST_LEN_MAX;
use crate::request::RequestTimestamps;

/// Largest payload of a frame that is not a jumbo frame: any TLV may follow a reply.
const ANSWER_LEN_MAX: usize = 1472;

/// The two sockets of a client.
struct ClientPort {
    /// Socket that receives Sync, and sends delay requests.
    event: UdpDevice,
    /// Socket that receives the other messages, and sends other requests.
    general: UdpDevice,
    sends_from_general: bool,
    requests: Batch<Endpoints>,
    answers: Batch<Endpoints>,
    /// True if the general socket is next to be received from.
    from_general: bool,
    port_closed: u64,
}

impl ClientPort {
    fn send_requests(&mut self) -> io::Result<usize> {
        let socket = if self.sends_from_general { &mut self.general } else { &mut self.event };
        socket.send(&mut self.requests)
    }

    /// Counts and hides the error that the master's port is closed; see [`super::udp`].
    fn unless_closed(&mut self, result: io::Result<usize>) -> io::Result<Option<usize>> {
        match result {
            Err(error) if is_refusal(&error) => {
                self.port_closed += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}

impl LanePort for ClientPort {
    fn has_room(&self, _: u32) -> bool {
        !self.requests.is_full()
    }

    fn push(&mut self, _: u32, _: RequestTimestamps) -> bool {
        false // no template: each request is a payload of its own
    }

    fn push_payload(&mut self, _: u32, payload: &[u8]) -> bool {
        self.requests.push(Endpoints::default(), payload)
    }

    fn send(&mut self) -> io::Result<usize> {
        let mut sent = self.send_requests();
        if let Some(sent) = self.unless_closed(sent)? {
            self.requests.clear();
            return Ok(sent);
        }
        // The error was returned instead of sending, and is now cleared.
        sent = self.send_requests();
        self.requests.clear();
        Ok(self.unless_closed(sent)?.unwrap_or(0))
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.from_general = !self.from_general;
        let socket = if self.from_general { &mut self.general } else { &mut self.event };
        let result = socket.receive(&mut self.answers, Duration::ZERO);
        let count = self.unless_closed(result)?;
        if count.is_none() {
            self.answers.clear();
        }
        Ok(count.unwrap_or(0))
    }

    fn receive_calls(&self) -> usize {
        2
    }

    fn arrivals(&self) -> impl Iterator<Item = TargetDatagram<'_>> {
        self.answers.iter().map(|packet| TargetDatagram {
            payload: packet.bytes,
            client: Some(0),
            received_at: packet.received_at,
            phc_ns: packet.hardware.map(|time| time.ns),
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        Ok(Drops::dropped(&mut self.event)? + Drops::dropped(&mut self.general)?)
    }

    fn port_closed(&self) -> u64 {
        self.port_closed
    }
}

/// Engine over the two sockets of one client.
pub struct PtpUdpEngine {
    plan: RunPlan,
    lanes: [Lane<ClientPort>; 1],
    nic_clock: Option<EnabledNicClock>,
    /// Keeps this host in the group that replies are sent to.
    _membership: Option<Membership>,
}

impl PtpUdpEngine {
    /// Opens the sockets.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let Some(ptp) = plan.ptp else {
            return Err(unfit(Kind::Udp, "PTP options are missing".to_owned(), "add them"));
        };
        let master = plan.target.ip();
        let group = ptp.group(master);
        let nic_clock = EnabledNicClock::open(plan, Kind::Udp)?;
        let options = socket_options(plan, group.is_some(), nic_clock.as_ref());
        let any = |port| match master {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        let at = |port| {
            let mut address = plan.target;
            address.set_port(port);
            address
        };
        let open =
            |local, remote| UdpDevice::connect_from(local, remote, &options).map_err(explain);
        let (event, general) = match group {
            None => {
                (open(any(EVENT_PORT), at(EVENT_PORT))?, open(any(GENERAL_PORT), at(GENERAL_PORT))?)
            }
            Some(group) => (
                open(any(EVENT_PORT), ptp.destination(master))?,
                open(SocketAddr::new(group, GENERAL_PORT), at(GENERAL_PORT))?,
            ),
        };
        let port = ClientPort {
            event,
            general,
            sends_from_general: ptp.port() == GENERAL_PORT,
            requests: Batch::new(BATCH, REQUEST_LEN_MAX),
            answers: Batch::new(BATCH, ANSWER_LEN_MAX + EXCESS_LEN),
            from_general: false,
            port_closed: 0,
        };
        let lanes = [Lane::new(port, None)];
        Ok(Self { plan: plan.clone(), lanes, nic_clock, _membership: Membership::of(plan)? })
    }
}

/// Returns the error with a remedy that fits the fixed ports.
fn explain(error: UdpError) -> EngineError {
    let (reason, remedy) = match &error {
        UdpError::Privilege(address) => (
            format!("PTP's port {} needs root or CAP_NET_BIND_SERVICE", address.port()),
            "run as root",
        ),
        UdpError::InUse(address) => (
            format!("PTP's port {} is in use by another program on this host", address.port()),
            "stop it, use --engine packet, or run the load from another host",
        ),
        _ => return error.into(),
    };
    unfit(Kind::Udp, reason, remedy)
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
        let offset = nic_clock::offset_plan(&self.plan, self.nic_clock.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, 1, offset, intervals)
    }
}
