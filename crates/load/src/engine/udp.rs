//! Engine for unprivileged use: ordinary UDP sockets, one for each client, with the kernel's
//! software receive timestamps. It simulates nothing, and each packet passes the whole network
//! stack of the host.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, Endpoints, UdpDevice, UdpError, UdpOptions};
use horolog_record::LoadEngineKind as Kind;
use horolog_sys::message::is_refusal;

use super::lane::{BATCH, LanePort, TargetDatagram};
use super::nic_clock::{self, EnabledNicClock};
use super::threads::{self, Lane};
use super::{EngineError, IntervalSink, LoadEngine};
use crate::plan::{RunPlan, TrialPlan};
use crate::request::{self, RequestTimestamps};
use crate::target::Route;
use crate::trailer::RequestTrailer;
use crate::verify::PAYLOAD_LEN;

/// Bytes of buffer beyond the longest request's length, to detect replies that are too long.
pub(super) const EXCESS_LEN: usize = 80;

/// Bytes of receive buffer requested for each socket. The kernel charges about 800 for each small
/// datagram, so this holds some 5,000 replies; it grants less to a process without privilege.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Error number for "too many open files" (errno(3), EMFILE).
const TOO_MANY_FILES: i32 = 24;

/// A device that counts the packets it dropped.
pub(crate) trait Drops {
    /// Returns the packets dropped for lack of room since the device was opened.
    fn dropped(&mut self) -> io::Result<u64>;
}

impl Drops for UdpDevice {
    fn dropped(&mut self) -> io::Result<u64> {
        Self::dropped(self)
    }
}

/// Sockets of one lane: one for each of its clients.
pub(crate) struct SocketPort<D: BatchDevice<Address = Endpoints>> {
    pub(crate) sockets: Vec<D>,
    /// Number of the client of the first socket.
    pub(crate) first: u32,
    requests: Batch<Endpoints>,
    ready: usize,
    sender: usize,
    replies: Batch<Endpoints>,
    receiver: usize,
    port_closed: u64,
}

impl<D: BatchDevice<Address = Endpoints>> SocketPort<D> {
    /// Creates a port; requests have at most `payload_max` bytes, and at least those of a plain
    /// one.
    pub(crate) fn new(version: u8, payload_max: usize) -> Self {
        let payload_max = payload_max.max(PAYLOAD_LEN);
        let mut requests = Batch::new(BATCH, payload_max);
        while requests
            .push(Endpoints::default(), &request::payload(version, RequestTimestamps::default()))
        {
        }
        Self {
            sockets: Vec::new(),
            first: 0,
            requests,
            ready: 0,
            sender: 0,
            replies: Batch::new(BATCH, payload_max + EXCESS_LEN),
            receiver: 0,
            port_closed: 0,
        }
    }

    /// Counts and hides the error that the target's port is closed, and hides refusals by a router
    /// on the path: such an error belongs to an earlier request, whose missing reply is detected
    /// anyway.
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

impl<D: BatchDevice<Address = Endpoints> + Drops + Send> LanePort for SocketPort<D> {
    fn has_room(&self, client: u32) -> bool {
        let socket = (client - self.first) as usize;
        self.ready < self.requests.slots() && (self.ready == 0 || socket == self.sender)
    }

    fn push(&mut self, client: u32, timestamps: RequestTimestamps) -> bool {
        let socket = (client - self.first) as usize;
        if !self.has_room(client) {
            return false;
        }
        self.sender = socket;
        self.ready += 1;
        self.requests.set_len(self.ready);
        request::set_timestamps(self.requests.packet_mut(self.ready - 1).bytes, timestamps);
        true
    }

    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool {
        let socket = (client - self.first) as usize;
        if !self.has_room(client) {
            return false;
        }
        if self.ready == 0 {
            self.requests.clear();
        }
        self.sender = socket;
        let pushed = self.requests.push(Endpoints::default(), payload);
        self.ready += usize::from(pushed);
        pushed
    }

    fn send(&mut self) -> io::Result<usize> {
        self.ready = 0;
        let result = self.sockets[self.sender].send(&mut self.requests);
        if let Some(sent) = self.unless_closed(result)? {
            return Ok(sent);
        }
        // The error was returned instead of sending, and is now cleared.
        let again = self.sockets[self.sender].send(&mut self.requests);
        Ok(self.unless_closed(again)?.unwrap_or(0))
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.receiver = (self.receiver + 1) % self.sockets.len();
        let result = self.sockets[self.receiver].receive(&mut self.replies, Duration::ZERO);
        let count = self.unless_closed(result)?;
        if count.is_none() {
            self.replies.clear();
        }
        Ok(count.unwrap_or(0))
    }

    fn receive_calls(&self) -> usize {
        self.sockets.len()
    }

    fn arrivals(&self) -> impl Iterator<Item = TargetDatagram<'_>> {
        let client = Some(self.first + self.receiver as u32);
        self.replies.iter().map(move |packet| TargetDatagram {
            payload: packet.bytes,
            client,
            received_at: packet.received_at,
            phc_ns: packet.hardware.map(|time| time.ns),
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        self.sockets.iter_mut().map(Drops::dropped).sum()
    }

    fn port_closed(&self) -> u64 {
        self.port_closed
    }
}

/// Returns the socket options of a run: bound to its interface if requested or if `need`, and with
/// hardware timestamps if the NIC supports them.
pub(super) fn socket_options(
    plan: &RunPlan,
    need: bool,
    nic_clock: Option<&EnabledNicClock>,
) -> UdpOptions {
    let interface = match &plan.route {
        Route::Link(link) if link.is_explicit || need => Some(link.interface.clone()),
        _ => None,
    };
    UdpOptions {
        slots: BATCH,
        receive_buffer: Some(RECEIVE_BUFFER),
        interface,
        hardware_timestamps: nic_clock.is_some(),
        ..UdpOptions::default()
    }
}

/// Engine over ordinary UDP sockets.
pub struct UdpEngine {
    plan: RunPlan,
    lanes: Vec<Lane<SocketPort<UdpDevice>>>,
    nic_clock: Option<EnabledNicClock>,
    options: UdpOptions,
}

impl UdpEngine {
    /// Prepares the engine; sockets are opened as trials need them.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let nic_clock = EnabledNicClock::open(plan, Kind::Udp)?;
        let options = socket_options(plan, false, nic_clock.as_ref());
        let lane = |lane| {
            let tail = threads::tail(plan, lane)?;
            let payload_max = tail.as_ref().map_or(0, RequestTrailer::request_len_max);
            Ok(Lane::new(SocketPort::new(plan.version, payload_max), tail))
        };
        let lanes = (0..plan.lanes).map(lane).collect::<Result<_, EngineError>>()?;
        let mut engine = Self { plan: plan.clone(), lanes, nic_clock, options };
        engine.prepare(plan.lanes as u32)?;
        Ok(engine)
    }

    /// Returns the number of consecutive requests of one client: as many as one call sends, except
    /// in interleaved mode and with per-client sessions, where a client carries state from one
    /// reply to its next request.
    fn requests_in_a_row(&self) -> u32 {
        let sessions = self.plan.sessions.as_ref();
        let has_own = sessions.is_some_and(|sessions| sessions.clients().is_some());
        if self.plan.interleaved || has_own { 1 } else { BATCH as u32 }
    }

    /// Opens a socket for each client of each lane.
    fn prepare(&mut self, clients: u32) -> Result<(), EngineError> {
        let run = self.requests_in_a_row();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let block = self.plan.lane_clients(clients, (index, self.plan.lanes), run);
            lane.port.first = block.first();
            while lane.port.sockets.len() < block.count() as usize {
                let opened = UdpDevice::connect(self.plan.target, &self.options);
                lane.port.sockets.push(opened.map_err(|error| explain(error, clients))?);
            }
            lane.port.sockets.truncate(block.count() as usize);
            lane.port.receiver = 0;
        }
        Ok(())
    }
}

fn explain(error: UdpError, clients: u32) -> EngineError {
    match error {
        UdpError::Other(_, error) if error.raw_os_error() == Some(TOO_MANY_FILES) => {
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
        self.prepare(plan.clients)?;
        let run = self.requests_in_a_row();
        let offset = nic_clock::offset_plan(&self.plan, self.nic_clock.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, run, offset, intervals)
    }
}
