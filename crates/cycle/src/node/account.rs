//! What a test of an application wants of messages between nodes beside their exchange: that some
//! are lost or late on purpose, that somebody keeps account of what came when, and that a node of
//! which nothing is heard is not waited for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_sys::datagram::{self, Envelope, Wait};
use horolog_sys::message::Received;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::mesh::Place;

/// Messages that are remembered until somebody asks for them.
const CAME_MAX: usize = 1_024;
/// Datagrams that wait to be sent late, at most.
const LATER_MAX: usize = 16_384;

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Fate {
    /// It is sent.
    #[default]
    Sent,
    /// It is not sent.
    Lost,
    /// It is sent so much later.
    Delayed(Span),
}

/// A message that came whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    /// From this node.
    pub(crate) node: u16,
    /// Of this period and step.
    pub(crate) place: Place,
    /// From when it was written to when the last part came.
    pub(crate) way_ns: u64,
}

/// The account of one node.
pub(crate) struct Account {
    /// What becomes of the next message to each node.
    pub(crate) fates: Vec<Fate>,
    /// Nodes that are not waited for.
    pub(crate) ignored: Vec<bool>,
    /// Messages that came since somebody took them from here.
    pub(crate) came: Vec<Came>,
    /// Nodes that did not come to the last exchange.
    pub(crate) missing: Vec<u16>,
    /// When what is looked at came, in ns since 1970.
    arrived_ns: i64,
    envelope: Envelope,
    later: SyncSender<Later>,
}

/// A datagram that is to be sent.
struct Later {
    due: Timestamp<Monotonic>,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Account {
    /// Of so many nodes, one of which has this socket.
    pub(crate) fn new(socket: &Socket, nodes: usize) -> io::Result<Self> {
        socket.tell_receive_time(false)?;
        let (later, waiting) = mpsc::sync_channel(LATER_MAX);
        let own = socket.try_clone()?;
        thread::Builder::new()
            .name("late messages".into())
            .spawn(move || deliver(&own, &waiting))?;
        Ok(Self {
            fates: vec![Fate::Sent; nodes],
            ignored: vec![false; nodes],
            came: Vec::new(),
            missing: Vec::new(),
            arrived_ns: 0,
            envelope: Envelope::new(),
            later,
        })
    }

    /// Whether it is for somebody else to send this datagram, or for nobody.
    pub(super) fn keeps(&self, node: u16, bytes: &[u8], to: SocketAddr) -> bool {
        match self.fates.get(usize::from(node)).copied().unwrap_or_default() {
            Fate::Sent => false,
            Fate::Lost => true,
            Fate::Delayed(delay) => {
                let due = MonotonicClock.now() + delay;
                self.later.try_send(Later { due, to, bytes: bytes.to_vec() }).is_ok()
            }
        }
    }

    pub(super) fn ignores(&self, node: u16) -> bool {
        self.ignored.get(usize::from(node)).copied().unwrap_or(false)
    }

    /// Receives a datagram, and remembers when it came.
    pub(super) fn receive(&mut self, socket: &Socket, bytes: &mut [u8]) -> io::Result<Received> {
        let received = self.envelope.receive(socket.as_fd(), bytes, Wait::Never)?;
        let arrived = received.control.received_at;
        self.arrived_ns = arrived.map_or_else(|| Realtime.now().as_ns(), Timestamp::as_ns);
        Ok(received)
    }

    /// The last part of a message was just received.
    pub(super) fn came(&mut self, node: u16, place: Place, sent_ns: i64) {
        let way_ns = self.arrived_ns.saturating_sub(sent_ns).max(0).unsigned_abs();
        if self.came.len() < CAME_MAX {
            self.came.push(Came { node, place, way_ns });
        }
    }
}

/// Sends what is to be sent late, until nobody wants that any more.
fn deliver(socket: &Socket, later: &Receiver<Later>) {
    let mut waiting: Vec<Later> = Vec::new();
    loop {
        let next = waiting.iter().map(|one| one.due).min();
        let left = next.map(|due| (due - MonotonicClock.now()).as_ns().max(0).unsigned_abs());
        let came = match left {
            None => later.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(left_ns) => later.recv_timeout(Duration::from_nanos(left_ns)),
        };
        match came {
            Ok(one) => waiting.push(one),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = MonotonicClock.now();
        let is_full = waiting.len() > LATER_MAX;
        waiting.retain(|one| {
            let waits = one.due > now && !is_full;
            if !waits {
                // What is refused is lost, as on any network.
                let _ = datagram::send_to(socket.as_fd(), &one.bytes, one.to);
            }
            waits
        });
    }
}
