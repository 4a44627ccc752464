//! Engine without privileges: one UDP socket for each client, with the kernel's software receive
//! timestamps. Clients are real, and each packet passes the whole network stack of the host.

use std::io;
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, DatagramEndpoints, UdpDevice, UdpDeviceError, UdpDeviceOptions,
};
use horolog_record::LoadEngineKind as Kind;
use horolog_sys::message::is_refusal;

use super::lane::{BATCH, DatagramFromTarget, LaneDevice};
use super::nic_clock::{self, TimestampingPhc};
use super::threads::{self, DeviceWithCarryOver};
use super::{EngineError, IntervalSink, LoadEngine};
use crate::plan::{RunPlan, TrialPlan};
use crate::request::{self, RequestTimestamps};
use crate::target::Route;
use crate::trailer::RequestTrailer;
use crate::verify::PAYLOAD_LEN;

/// Bytes of buffer beyond the longest request's length, to detect replies that are too long.
pub(super) const EXCESS_LEN: usize = 80;

/// Receive buffer requested for each socket, in bytes. The kernel charges about 800 bytes for a
/// small datagram, so it holds about 5,000 replies; without privileges the kernel may grant less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Error number for "too many open files" (errno(3), EMFILE).
const TOO_MANY_FILES: i32 = 24;

/// A device that counts the packets it dropped.
pub(crate) trait DropCountingDevice {
    /// Returns the number of packets dropped for lack of room since the device was opened.
    fn dropped(&mut self) -> io::Result<u64>;
}

impl DropCountingDevice for UdpDevice {
    fn dropped(&mut self) -> io::Result<u64> {
        Self::dropped(self)
    }
}

/// UDP sockets of one lane, one per client.
pub(crate) struct LaneUdpSockets<D: BatchDevice<Address = DatagramEndpoints>> {
    pub(crate) sockets: Vec<D>,
    /// Client number of the first socket.
    pub(crate) first_client: u32,
    requests: Batch<DatagramEndpoints>,
    queued: usize,
    send_socket: usize,
    replies: Batch<DatagramEndpoints>,
    receive_socket: usize,
    port_closed: u64,
}

impl<D: BatchDevice<Address = DatagramEndpoints>> LaneUdpSockets<D> {
    /// Creates the device without sockets; payloads of requests have at most `payload_max` bytes,
    /// or the length of a plain request if that is longer.
    pub(crate) fn new(version: u8, payload_max: usize) -> Self {
        let payload_max = payload_max.max(PAYLOAD_LEN);
        let mut requests = Batch::new(BATCH, payload_max);
        while requests.push(
            DatagramEndpoints::default(),
            &request::ntp_payload(version, RequestTimestamps::default()),
        ) {}
        Self {
            sockets: Vec::new(),
            first_client: 0,
            requests,
            queued: 0,
            send_socket: 0,
            replies: Batch::new(BATCH, payload_max + EXCESS_LEN),
            receive_socket: 0,
            port_closed: 0,
        }
    }

    /// Turns an ICMP error (port closed, or rejected by a router) into `None`, and counts a closed
    /// port. The kernel reports the error of an earlier request here; its missing reply counts as
    /// lost anyway.
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

impl<D: BatchDevice<Address = DatagramEndpoints> + DropCountingDevice + Send> LaneDevice
    for LaneUdpSockets<D>
{
    fn has_room(&self, client: u32) -> bool {
        let socket = (client - self.first_client) as usize;
        self.queued < self.requests.slots() && (self.queued == 0 || socket == self.send_socket)
    }

    fn push(&mut self, client: u32, timestamps: RequestTimestamps) -> bool {
        let socket = (client - self.first_client) as usize;
        if !self.has_room(client) {
            return false;
        }
        self.send_socket = socket;
        self.queued += 1;
        self.requests.set_len(self.queued);
        request::set_timestamps(self.requests.packet_mut(self.queued - 1).bytes, timestamps);
        true
    }

    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool {
        let socket = (client - self.first_client) as usize;
        if !self.has_room(client) {
            return false;
        }
        if self.queued == 0 {
            self.requests.clear();
        }
        self.send_socket = socket;
        let pushed = self.requests.push(DatagramEndpoints::default(), payload);
        self.queued += usize::from(pushed);
        pushed
    }

    fn send(&mut self) -> io::Result<usize> {
        self.queued = 0;
        let result = self.sockets[self.send_socket].send(&mut self.requests);
        if let Some(sent) = self.count_refusal(result)? {
            return Ok(sent);
        }
        // The kernel returned a pending error instead of sending, which cleared it: send again.
        let again = self.sockets[self.send_socket].send(&mut self.requests);
        Ok(self.count_refusal(again)?.unwrap_or(0))
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.receive_socket = (self.receive_socket + 1) % self.sockets.len();
        let result = self.sockets[self.receive_socket].receive(&mut self.replies, Duration::ZERO);
        let count = self.count_refusal(result)?;
        if count.is_none() {
            self.replies.clear();
        }
        Ok(count.unwrap_or(0))
    }

    fn receive_calls(&self) -> usize {
        self.sockets.len()
    }

    fn arrivals(&self) -> impl Iterator<Item = DatagramFromTarget<'_>> {
        let client = Some(self.first_client + self.receive_socket as u32);
        self.replies.iter().map(move |packet| DatagramFromTarget {
            payload: packet.bytes,
            client,
            received_at: packet.received_at,
            phc_ns: packet.hardware.map(|time| time.ns),
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        self.sockets.iter_mut().map(DropCountingDevice::dropped).sum()
    }

    fn port_closed(&self) -> u64 {
        self.port_closed
    }
}

/// Returns the socket options of a run. Sockets are bound to the interface if the user named it or
/// `must_bind` is true, and use hardware timestamps if `nic_clock` is given.
pub(super) fn socket_options(
    plan: &RunPlan,
    must_bind: bool,
    nic_clock: Option<&TimestampingPhc>,
) -> UdpDeviceOptions {
    let interface = match &plan.route {
        Route::Link(link) if link.is_explicit || must_bind => Some(link.interface.clone()),
        _ => None,
    };
    UdpDeviceOptions {
        slots: BATCH,
        receive_buffer: Some(RECEIVE_BUFFER),
        interface,
        hardware_timestamps: nic_clock.is_some(),
        ..UdpDeviceOptions::default()
    }
}

/// Engine with one UDP socket for each client.
pub struct UdpEngine {
    plan: RunPlan,
    lanes: Vec<DeviceWithCarryOver<LaneUdpSockets<UdpDevice>>>,
    nic_clock: Option<TimestampingPhc>,
    options: UdpDeviceOptions,
}

impl UdpEngine {
    /// Opens the engine with one socket per lane; each trial opens the sockets of its clients.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let nic_clock = TimestampingPhc::open(plan, Kind::Udp)?;
        let options = socket_options(plan, false, nic_clock.as_ref());
        let behaviour = plan.requests.behaviour();
        let lane = |lane| {
            let trailer = behaviour.request_trailer((lane, plan.lanes))?;
            let payload_max = trailer.as_ref().map_or(0, RequestTrailer::request_len_max);
            Ok(DeviceWithCarryOver::new(
                LaneUdpSockets::new(behaviour.version(), payload_max),
                trailer,
            ))
        };
        let lanes = (0..plan.lanes).map(lane).collect::<Result<_, EngineError>>()?;
        let mut engine = Self { plan: plan.clone(), lanes, nic_clock, options };
        engine.open_sockets(plan.lanes as u32)?;
        Ok(engine)
    }

    /// Returns the number of consecutive requests of one client: [`BATCH`], or 1 if each request
    /// depends on the previous reply.
    fn consecutive_requests(&self) -> u32 {
        if self.plan.requests.behaviour().depends_on_replies() { 1 } else { BATCH as u32 }
    }

    /// Opens or closes sockets so that each lane has one per client.
    fn open_sockets(&mut self, clients: u32) -> Result<(), EngineError> {
        let consecutive_requests = self.consecutive_requests();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let block =
                self.plan.lane_clients(clients, (index, self.plan.lanes), consecutive_requests);
            lane.device.first_client = block.first_client();
            while lane.device.sockets.len() < block.client_count() as usize {
                let opened = UdpDevice::connect(self.plan.target, &self.options);
                lane.device.sockets.push(opened.map_err(|error| open_error(error, clients))?);
            }
            lane.device.sockets.truncate(block.client_count() as usize);
            lane.device.receive_socket = 0;
        }
        Ok(())
    }
}

fn open_error(error: UdpDeviceError, clients: u32) -> EngineError {
    match error {
        UdpDeviceError::Other(_, error) if error.raw_os_error() == Some(TOO_MANY_FILES) => {
            EngineError::Descriptors { clients }
        }
        error => error.into(),
    }
}

impl LoadEngine for UdpEngine {
    fn kind(&self) -> Kind {
        Kind::Udp
    }

    fn run(
        &mut self,
        plan: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError> {
        self.open_sockets(plan.clients)?;
        let consecutive_requests = self.consecutive_requests();
        let offset = nic_clock::trial_offset_plan(&self.plan, self.nic_clock.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, consecutive_requests, offset, intervals)
    }
}
