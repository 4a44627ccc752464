//! Instrument of the messages between nodes in an application test: injects loss and delay, records
//! arrivals, and excludes peers that have timed out from waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::datagram::{self, MsghdrBuffers, WaitMode};
use horolog_sys::message::ReceivedDatagramInfo;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::mesh::SuperstepId;

/// Largest number of messages recorded between two collections.
const RECEIVED_MAX: usize = 1_024;
/// Largest number of delayed datagrams that wait to be sent.
const DELAYED_MAX: usize = 16_384;

/// Treatment of a message that a node is to send.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum MessageDisposition {
    /// Sent at once.
    #[default]
    Sent,
    /// Not sent.
    Dropped,
    /// Sent after this delay.
    Delayed(Span),
}

/// Message of which all fragments were received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedMessage {
    /// Sending node.
    pub(crate) node: u16,
    /// Period and superstep of the message.
    pub(crate) step_id: SuperstepId,
    /// Time from sending to the arrival of the last fragment, in ns.
    pub(crate) transit_ns: u64,
}

/// Instrument of one node's mesh: what happens to its messages, which messages arrived, and which
/// nodes are not waited for.
pub(crate) struct MeshTestInstrument {
    /// Disposition of the next message to each node.
    pub(crate) dispositions: Vec<MessageDisposition>,
    /// True for the nodes that are not waited for.
    pub(crate) ignored: Vec<bool>,
    /// Messages received since the last collection.
    pub(crate) received: Vec<ReceivedMessage>,
    /// Nodes that were missing in the last exchange or barrier.
    pub(crate) missing: Vec<u16>,
    /// Arrival of the datagram being processed, in ns since 1970.
    arrived_ns: i64,
    envelope: MsghdrBuffers,
    delayed: SyncSender<DelayedDatagram>,
}

/// Datagram to be sent late.
struct DelayedDatagram {
    due: Timestamp<Monotonic>,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl MeshTestInstrument {
    /// Creates the instrument of a mesh of this number of nodes; `socket` is this node's.
    pub(crate) fn new(socket: &DatagramSocket, nodes: usize) -> io::Result<Self> {
        socket.enable_receive_timestamps(false)?;
        let (delayed, waiting) = mpsc::sync_channel(DELAYED_MAX);
        let sender = socket.try_clone()?;
        thread::Builder::new()
            .name("late messages".into())
            .spawn(move || send_delayed(&sender, &waiting))?;
        Ok(Self {
            dispositions: vec![MessageDisposition::Sent; nodes],
            ignored: vec![false; nodes],
            received: Vec::new(),
            missing: Vec::new(),
            arrived_ns: 0,
            envelope: MsghdrBuffers::new(),
            delayed,
        })
    }

    /// Drops or delays a datagram as its message's disposition requires. Returns false if the mesh
    /// must send it now, also because too many delayed datagrams wait.
    pub(super) fn try_intercept(&self, node: u16, bytes: &[u8], to: SocketAddr) -> bool {
        match self.dispositions.get(usize::from(node)).copied().unwrap_or_default() {
            MessageDisposition::Sent => false,
            MessageDisposition::Dropped => true,
            MessageDisposition::Delayed(delay) => {
                let due = ClockMonotonic.now() + delay;
                self.delayed.try_send(DelayedDatagram { due, to, bytes: bytes.to_vec() }).is_ok()
            }
        }
    }

    pub(super) fn is_ignored(&self, node: u16) -> bool {
        self.ignored.get(usize::from(node)).copied().unwrap_or(false)
    }

    /// Receives a datagram without waiting and notes its arrival.
    pub(super) fn receive(
        &mut self,
        socket: &DatagramSocket,
        bytes: &mut [u8],
    ) -> io::Result<ReceivedDatagramInfo> {
        let received = self.envelope.receive(socket.as_fd(), bytes, WaitMode::NonBlocking)?;
        let arrived = received.control.received_at;
        self.arrived_ns = arrived.map_or_else(|| ClockRealtime.now().as_ns(), Timestamp::as_ns);
        Ok(received)
    }

    /// Records a message, the last fragment of which was just received; discards it if
    /// [`RECEIVED_MAX`] messages wait for collection.
    pub(super) fn record_message(&mut self, node: u16, step_id: SuperstepId, sent_ns: i64) {
        let transit_ns = self.arrived_ns.saturating_sub(sent_ns).max(0).unsigned_abs();
        if self.received.len() < RECEIVED_MAX {
            self.received.push(ReceivedMessage { node, step_id, transit_ns });
        }
    }
}

/// Sends delayed datagrams at their times (all at once if more than [`DELAYED_MAX`] wait), until
/// the sending end of the channel is closed.
fn send_delayed(socket: &DatagramSocket, delayed: &Receiver<DelayedDatagram>) {
    let mut waiting: Vec<DelayedDatagram> = Vec::new();
    loop {
        let next = waiting.iter().map(|one| one.due).min();
        let remaining = next.map(|due| (due - ClockMonotonic.now()).as_ns().max(0).unsigned_abs());
        let received = match remaining {
            None => delayed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(left_ns) => delayed.recv_timeout(Duration::from_nanos(left_ns)),
        };
        match received {
            Ok(one) => waiting.push(one),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = ClockMonotonic.now();
        let is_full = waiting.len() > DELAYED_MAX;
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
