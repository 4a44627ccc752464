//! Instrumentation of messages between nodes for a test of an application: loss and delay on
//! purpose, a record of arrivals, and peers that are not waited for because they timed out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_sys::datagram::{self, MessageHeader, WaitMode};
use horolog_sys::message::ReceiveInfo;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::mesh::StepId;

/// Messages that are recorded between two collections.
const RECEIVED_MAX: usize = 1_024;
/// Datagrams that wait to be sent late, at most.
const LATER_MAX: usize = 16_384;

/// Disposition of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Disposition {
    /// It is sent.
    #[default]
    Sent,
    /// It is not sent.
    Drop,
    /// It is sent later by this time.
    Delayed(Span),
}

/// Message that was received completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedMessage {
    /// Node that sent it.
    pub(crate) node: u16,
    /// Its period and step.
    pub(crate) step_id: StepId,
    /// Time from its sending to the arrival of the last part.
    pub(crate) transit_ns: u64,
}

/// Instrument of one node.
pub(crate) struct MeshInstrument {
    /// Disposition of the next message to each node.
    pub(crate) dispositions: Vec<Disposition>,
    /// Nodes that are not waited for.
    pub(crate) ignored: Vec<bool>,
    /// Messages received since the last collection from here.
    pub(crate) received: Vec<ReceivedMessage>,
    /// Nodes that were missing in the last exchange.
    pub(crate) missing: Vec<u16>,
    /// Arrival of the datagram being processed, in ns since 1970.
    arrived_ns: i64,
    envelope: MessageHeader,
    later: SyncSender<DelayedDatagram>,
}

/// Datagram to be sent late.
struct DelayedDatagram {
    due: Timestamp<Monotonic>,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl MeshInstrument {
    /// Makes the instrument of a mesh of this number of nodes, one of which has this socket.
    pub(crate) fn new(socket: &Socket, nodes: usize) -> io::Result<Self> {
        socket.enable_receive_timestamps(false)?;
        let (later, waiting) = mpsc::sync_channel(LATER_MAX);
        let own = socket.try_clone()?;
        thread::Builder::new()
            .name("late messages".into())
            .spawn(move || deliver(&own, &waiting))?;
        Ok(Self {
            dispositions: vec![Disposition::Sent; nodes],
            ignored: vec![false; nodes],
            received: Vec::new(),
            missing: Vec::new(),
            arrived_ns: 0,
            envelope: MessageHeader::new(),
            later,
        })
    }

    /// Returns true if the mesh must not send this datagram, because it is sent later or dropped.
    pub(super) fn intercepts(&self, node: u16, bytes: &[u8], to: SocketAddr) -> bool {
        match self.dispositions.get(usize::from(node)).copied().unwrap_or_default() {
            Disposition::Sent => false,
            Disposition::Drop => true,
            Disposition::Delayed(delay) => {
                let due = MonotonicClock.now() + delay;
                self.later.try_send(DelayedDatagram { due, to, bytes: bytes.to_vec() }).is_ok()
            }
        }
    }

    pub(super) fn ignores(&self, node: u16) -> bool {
        self.ignored.get(usize::from(node)).copied().unwrap_or(false)
    }

    /// Receives a datagram, and records its arrival.
    pub(super) fn receive(&mut self, socket: &Socket, bytes: &mut [u8]) -> io::Result<ReceiveInfo> {
        let received = self.envelope.receive(socket.as_fd(), bytes, WaitMode::NonBlocking)?;
        let arrived = received.control.received_at;
        self.arrived_ns = arrived.map_or_else(|| Realtime.now().as_ns(), Timestamp::as_ns);
        Ok(received)
    }

    /// Records that the last part of a message was just received.
    pub(super) fn received(&mut self, node: u16, step_id: StepId, sent_ns: i64) {
        let way_ns = self.arrived_ns.saturating_sub(sent_ns).max(0).unsigned_abs();
        if self.received.len() < RECEIVED_MAX {
            self.received.push(ReceivedMessage { node, step_id, transit_ns: way_ns });
        }
    }
}

/// Sends the delayed datagrams, until the sending end of the channel is closed.
fn deliver(socket: &Socket, later: &Receiver<DelayedDatagram>) {
    let mut waiting: Vec<DelayedDatagram> = Vec::new();
    loop {
        let next = waiting.iter().map(|one| one.due).min();
        let left = next.map(|due| (due - MonotonicClock.now()).as_ns().max(0).unsigned_abs());
        let received = match left {
            None => later.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(left_ns) => later.recv_timeout(Duration::from_nanos(left_ns)),
        };
        match received {
            Ok(one) => waiting.push(one),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = MonotonicClock.now();
        let is_full = waiting.len() > LATER_MAX;
        waiting.retain(|one| {
            let waits = one.due > now && !is_full;
            if !waits {
                // A refused datagram is lost, as on any network.
                let _ = datagram::send_to(socket.as_fd(), &one.bytes, one.to);
            }
            waits
        });
    }
}
