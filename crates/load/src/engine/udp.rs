//! The engine that anyone may use: ordinary UDP sockets, each of them one client, with the kernel's
//! software receive timestamps. It needs no privilege, simulates nothing, and pays the whole way
//! through the host's network stack.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, UdpDevice, UdpError, UdpOptions};
use horolog_record::Engine as Kind;
use horolog_sys::message::is_refusal;

use super::card::{self, Card};
use super::lane::{Arrival, BATCH, Port};
use super::threads::{self, Lane};
use super::{Engine, EngineError, Intervals};
use crate::plan::{RunPlan, TrialPlan};
use crate::request::{self, Stamps};
use crate::tail::Tail;
use crate::target::Route;
use crate::verify::PAYLOAD_LEN;

/// Room behind a reply of the longest request's length, for what shows that one is too long.
pub(super) const EXCESS_LEN: usize = 80;

/// Bytes of receive buffer asked for each socket. The kernel charges about 800 for each small
/// datagram, so this holds some 5,000 replies; it grants less to a process without privilege.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The kernel's error number for "too many open files" (errno(3), EMFILE).
const TOO_MANY_FILES: i32 = 24;

/// A device that knows how many packets it had to drop.
pub(crate) trait Drops {
    /// Packets dropped for want of room, since the device was opened.
    fn dropped(&mut self) -> io::Result<u64>;
}

impl Drops for UdpDevice {
    fn dropped(&mut self) -> io::Result<u64> {
        Self::dropped(self)
    }
}

/// The sockets of one lane: one for each of its clients.
pub(crate) struct SocketPort<D: Device<Address = Endpoints>> {
    pub(crate) sockets: Vec<D>,
    /// The number of the client behind the first socket.
    pub(crate) first: u32,
    requests: Batch<Endpoints>,
    ready: usize,
    sender: usize,
    replies: Batch<Endpoints>,
    receiver: usize,
    port_closed: u64,
}

impl<D: Device<Address = Endpoints>> SocketPort<D> {
    /// Requests have at most `payload_max` bytes, and at least those of a plain one.
    pub(crate) fn new(version: u8, payload_max: usize) -> Self {
        let payload_max = payload_max.max(PAYLOAD_LEN);
        let mut requests = Batch::new(BATCH, payload_max);
        while requests.push(Endpoints::default(), &request::payload(version, Stamps::default())) {}
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

    /// Counts and hides the news that the target's port is closed, and hides that somebody on the
    /// way refuses: it belongs to an earlier request, and whoever waits for replies will miss them
    /// soon enough.
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

impl<D: Device<Address = Endpoints> + Drops + Send> Port for SocketPort<D> {
    fn has_room(&self, client: u32) -> bool {
        let socket = (client - self.first) as usize;
        self.ready < self.requests.slots() && (self.ready == 0 || socket == self.sender)
    }

    fn push(&mut self, client: u32, stamps: Stamps) -> bool {
        let socket = (client - self.first) as usize;
        if !self.has_room(client) {
            return false;
        }
        self.sender = socket;
        self.ready += 1;
        self.requests.set_len(self.ready);
        request::set_stamps(self.requests.packet_mut(self.ready - 1).bytes, stamps);
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
        // The error took the place of sending, and is gone now.
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

    fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        let client = Some(self.first + self.receiver as u32);
        self.replies.iter().map(move |packet| Arrival {
            payload: packet.bytes,
            client,
            received_at: packet.received_at,
            card_ns: packet.hardware.map(|time| time.ns),
        })
    }

    fn dropped(&mut self) -> io::Result<u64> {
        self.sockets.iter_mut().map(Drops::dropped).sum()
    }

    fn port_closed(&self) -> u64 {
        self.port_closed
    }
}

/// What the sockets of a run are opened with: bound to its interface where that was asked for, or
/// where they `need` it, and with the card's timestamps where there is a card that takes them.
pub(super) fn socket_options(plan: &RunPlan, need: bool, card: Option<&Card>) -> UdpOptions {
    let interface = match &plan.route {
        Route::Link(link) if link.asked_for || need => Some(link.interface.clone()),
        _ => None,
    };
    UdpOptions {
        slots: BATCH,
        receive_buffer: Some(RECEIVE_BUFFER),
        interface,
        hardware_timestamps: card.is_some(),
        ..UdpOptions::default()
    }
}

/// The engine over ordinary UDP sockets.
pub struct UdpEngine {
    plan: RunPlan,
    lanes: Vec<Lane<SocketPort<UdpDevice>>>,
    card: Option<Card>,
    options: UdpOptions,
}

impl UdpEngine {
    /// Readies the engine; sockets are opened as trials need them.
    pub fn open(plan: &RunPlan) -> Result<Self, EngineError> {
        let card = Card::open(plan, Kind::Udp)?;
        let options = socket_options(plan, false, card.as_ref());
        let lane = |lane| {
            let tail = threads::tail(plan, lane)?;
            let payload_max = tail.as_ref().map_or(0, Tail::request_len_max);
            Ok(Lane::new(SocketPort::new(plan.version, payload_max), tail))
        };
        let lanes = (0..plan.lanes).map(lane).collect::<Result<_, EngineError>>()?;
        let mut engine = Self { plan: plan.clone(), lanes, card, options };
        engine.prepare(plan.lanes as u32)?;
        Ok(engine)
    }

    /// Requests of one client in a row: as many as one call sends, but in interleaved mode and with
    /// a session of its own, where a client takes something from one reply to its next request.
    fn requests_in_a_row(&self) -> u32 {
        let sessions = self.plan.sessions.as_ref();
        let has_own = sessions.is_some_and(|sessions| sessions.clients().is_some());
        if self.plan.interleaved || has_own { 1 } else { BATCH as u32 }
    }

    /// Gives each lane a socket for each of its clients.
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

impl Engine for UdpEngine {
    fn kind(&self) -> Kind {
        Kind::Udp
    }

    fn run(&mut self, plan: &TrialPlan, intervals: &mut dyn Intervals) -> Result<(), EngineError> {
        self.prepare(plan.clients)?;
        let run = self.requests_in_a_row();
        let offset = card::offset_plan(&self.plan, self.card.as_mut())?;
        threads::run(&mut self.lanes, &self.plan, plan, run, offset, intervals)
    }
}
