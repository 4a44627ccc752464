//! Peers of a node in a task: messages to and from them, and barriers. Datagrams, as real-time
//! clusters have them: losses are counted and never retransmitted, and no peer is waited for beyond
//! a limit.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_sys::datagram::{self, MessageHeader, WaitMode};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::datagram::{DatagramHeader, DatagramKind, HEADER_LEN};
use super::mesh_instrument::MeshInstrument;
use super::step_exchange::StepExchange;
use crate::task::{Audience, MESSAGE_MAX, StepMessage};

/// Bytes of a message in one datagram: with the headers no more than Ethernet carries.
const PART_LEN: usize = 1_400;
/// Parts of a message, at most.
const PARTS_MAX: usize = (MESSAGE_MAX as usize).div_ceil(PART_LEN).next_multiple_of(64);
/// Room for the messages of all nodes.
const BUFFER_BYTES: usize = 8 << 20;
/// Longest single wait for room in a full network queue.
const ROOM: Duration = Duration::from_micros(200);
/// Messages of periods and steps to come that are stored for each node.
const AHEAD_MAX: usize = 8;

/// A period and a superstep of it.
pub(crate) type StepId = (u64, u16);

/// State of a peer.
#[derive(Default)]
struct Peer {
    arrived: Option<(StepId, i64)>,
    messages: Vec<PartialMessage>,
    /// Latest period of any arrival or message from it.
    latest_period: Option<u64>,
}

/// Message that has been received in part.
struct PartialMessage {
    step_id: StepId,
    missing: u16,
    /// One bit for each received part.
    received: [u64; PARTS_MAX / 64],
    sent_ns: i64,
}

impl PartialMessage {
    /// Records a part, possibly a duplicate; returns true if it was the last missing one.
    fn take(&mut self, part: u16) -> bool {
        let bit = 1 << (part % 64);
        let Some(word) = self.received.get_mut(usize::from(part) / 64) else { return false };
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.missing = self.missing.saturating_sub(1);
        self.missing == 0
    }
}

/// All nodes of a task from the point of view of one of them.
pub(crate) struct Mesh {
    socket: Socket,
    own: u16,
    addresses: Vec<SocketAddr>,
    peers: Vec<Peer>,
    bytes: Vec<u8>,
    account: Option<Box<MeshInstrument>>,
    envelope: MessageHeader,
}

/// Opens a socket that peers can reach at this address; returns it with its port.
pub(crate) fn open(local: SocketAddr) -> io::Result<(Socket, u16)> {
    let socket = Socket::udp(local)?;
    socket.bind(local)?;
    socket.set_receive_buffer(BUFFER_BYTES)?;
    let port = socket.local_address()?.port();
    Ok((socket, port))
}

impl Mesh {
    /// Makes the mesh of the nodes at these addresses, of which this is number `own`.
    pub(crate) fn new(socket: Socket, own: u16, addresses: Vec<SocketAddr>) -> Self {
        let peers = addresses.iter().map(|_| Peer::default()).collect();
        let bytes = vec![0; HEADER_LEN + PART_LEN];
        Self { socket, own, addresses, peers, bytes, account: None, envelope: MessageHeader::new() }
    }

    /// Uses this instrument for messages from here on; it must have been made for this mesh's
    /// socket.
    pub(crate) fn instrument(&mut self, account: MeshInstrument) {
        self.account = Some(Box::new(account));
    }

    /// Returns the instrument, if installed.
    pub(crate) fn account(&mut self) -> Option<&mut MeshInstrument> {
        self.account.as_deref_mut()
    }

    /// Returns the latest period of any arrival or message from a node.
    pub(crate) fn latest_period(&self, node: u16) -> Option<u64> {
        self.peers.get(usize::from(node))?.latest_period
    }

    /// Takes the datagrams that have arrived, without waiting, up to as much as a buffer holds.
    pub(crate) fn listen(&mut self) {
        const DATAGRAMS_MAX: usize = BUFFER_BYTES / PART_LEN;
        let _ = (0..DATAGRAMS_MAX).take_while(|_| self.receive().is_some()).count();
    }

    fn is_awaited(&self, node: u16) -> bool {
        self.account.as_ref().is_none_or(|account| !account.ignores(node))
    }

    fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let own = self.own;
        (0..self.addresses.len() as u16).filter(move |node| *node != own)
    }

    fn neighbour(&self, by: u16) -> Option<u16> {
        let nodes = self.addresses.len() as u16;
        (nodes > 1).then(|| (self.own + by) % nodes)
    }

    /// Sends a message, and waits for those of the peers.
    pub(crate) fn exchange(
        &mut self,
        step_id: StepId,
        message: StepMessage,
        limit: Timestamp<Monotonic>,
    ) -> StepExchange {
        let (to, mut from): (Vec<u16>, Vec<u16>) = match message.to {
            Audience::All => (self.others().collect(), self.others().collect()),
            Audience::Next => {
                let nodes = self.addresses.len() as u16;
                let before = self.neighbour(nodes.saturating_sub(1));
                (self.neighbour(1).into_iter().collect(), before.into_iter().collect())
            }
        };
        from.retain(|node| self.is_awaited(*node));
        let begun = MonotonicClock.now();
        self.send_message(step_id, message.bytes as usize, &to, limit);
        self.wait(begun, limit, &from, |peer| {
            let whole = |one: &&PartialMessage| one.step_id == step_id && one.missing == 0;
            peer.messages.iter().find(whole).map(|one| one.sent_ns)
        })
    }

    /// Announces to the peers that this node has arrived, and waits for them.
    pub(crate) fn barrier(&mut self, step_id: StepId, limit: Timestamp<Monotonic>) -> StepExchange {
        let mut others: Vec<u16> = self.others().collect();
        let begun = MonotonicClock.now();
        let header = self.header(DatagramKind::Arrival, step_id);
        for node in &others {
            self.send(&header.to_bytes(), *node, limit);
        }
        others.retain(|node| self.is_awaited(*node));
        self.wait(begun, limit, &others, |peer| {
            peer.arrived.filter(|(arrived, _)| *arrived >= step_id).map(|(_, sent_ns)| sent_ns)
        })
    }

    fn header(&self, kind: DatagramKind, (cycle, step): StepId) -> DatagramHeader {
        DatagramHeader { kind, node: self.own, cycle, step, sent_ns: Realtime.now().as_ns() }
    }

    fn send_message(
        &mut self,
        step_id: StepId,
        len: usize,
        to: &[u16],
        limit: Timestamp<Monotonic>,
    ) {
        let of = len.div_ceil(PART_LEN) as u16;
        let mut bytes = std::mem::take(&mut self.bytes);
        for part in 0..of {
            let header = self.header(DatagramKind::Part { part, of }, step_id);
            bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
            let rest = len - usize::from(part) * PART_LEN;
            let part = &bytes[..HEADER_LEN + rest.min(PART_LEN)];
            for node in to {
                let address = self.addresses[usize::from(*node)];
                let is_intercepted =
                    |account: &MeshInstrument| account.intercepts(*node, part, address);
                if !self.account.as_deref().is_some_and(is_intercepted) {
                    self.send(part, *node, limit);
                }
            }
        }
        self.bytes = bytes;
    }

    /// Sends a datagram, and waits for room if the queue is full. A datagram that is refused for
    /// another reason is lost, and the receiver counts it.
    fn send(&self, bytes: &[u8], to: u16, limit: Timestamp<Monotonic>) {
        let to = self.addresses[usize::from(to)];
        while let Err(error) = datagram::send_to(self.socket.as_fd(), bytes, to) {
            let is_full = error.kind() == io::ErrorKind::WouldBlock;
            if !is_full || MonotonicClock.now() >= limit {
                return;
            }
            let _ = self.socket.wait_writable(ROOM);
        }
    }

    /// Waits until `sent` returns, for each of these nodes, the send time of the awaited datagram.
    fn wait(
        &mut self,
        begun: Timestamp<Monotonic>,
        limit: Timestamp<Monotonic>,
        from: &[u16],
        sent: impl Fn(&Peer) -> Option<i64>,
    ) -> StepExchange {
        let sending_over = MonotonicClock.now();
        let own_ns = (sending_over - begun).as_ns().unsigned_abs();
        let mut last = None;
        let missing = loop {
            let mut missing = from.iter().filter(|node| sent(self.of(**node)).is_none());
            let Some(node) = missing.next() else { break 0 };
            let others = missing.count();
            last = Some(*node);
            if !self.take(limit) {
                break 1 + others as u16;
            }
        };
        let waited_ns = (MonotonicClock.now() - sending_over).as_ns().unsigned_abs();
        if let Some(account) = &mut self.account {
            let absent =
                from.iter().filter(|node| sent(&self.peers[usize::from(**node)]).is_none());
            account.missing = absent.copied().collect();
        }
        let sent_ns = last.filter(|_| missing == 0).and_then(|node| sent(self.of(node)));
        // Transit time, and the part of it within the wait. The clocks of two hosts may differ by
        // more than that, so it is limited to the wait.
        let way_ns = sent_ns.map_or(0, |sent_ns| Realtime.now().as_ns().saturating_sub(sent_ns));
        let way_ns = way_ns.max(0).unsigned_abs().min(waited_ns);
        StepExchange {
            transit_ns: own_ns + way_ns,
            idle_ns: waited_ns - way_ns,
            missing,
            awaited: last,
        }
    }

    fn of(&self, node: u16) -> &Peer {
        &self.peers[usize::from(node)]
    }

    /// Takes the next datagram, waiting for it until `limit`; returns true if one was received.
    fn take(&mut self, limit: Timestamp<Monotonic>) -> bool {
        loop {
            match self.receive() {
                Some(true) => return true,
                Some(false) => {}
                None => {
                    let left = limit - MonotonicClock.now();
                    let Ok(left_ns) = u64::try_from(left.as_ns()) else { return false };
                    // The next attempt to receive, or the limit, reveals a failure.
                    let _ = self.socket.wait_readable(Duration::from_nanos(left_ns));
                    if left_ns == 0 {
                        return false;
                    }
                }
            }
        }
    }

    /// Receives a datagram without waiting; returns whether it was one of a node, or `None` if
    /// there is none.
    fn receive(&mut self) -> Option<bool> {
        let mut bytes = [0; HEADER_LEN + PART_LEN];
        let received = match &mut self.account {
            None => self.envelope.receive_with_source(
                self.socket.as_fd(),
                &mut bytes,
                WaitMode::NonBlocking,
            ),
            Some(account) => account.receive(&self.socket, &mut bytes),
        };
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // The error is that of an earlier datagram that could not be delivered.
            Err(_) => return Some(false),
        };
        let header = DatagramHeader::from_bytes(&bytes[..received.len]);
        // A datagram must come from the address of the node that it names.
        let is_own = |header: &DatagramHeader| {
            let known = self.addresses.get(usize::from(header.node)).zip(received.remote);
            known
                .is_some_and(|(known, from)| (known.ip(), known.port()) == (from.ip(), from.port()))
        };
        let header = header.filter(is_own);
        Some(header.is_some_and(|header| self.process_header(&header)))
    }

    fn process_header(&mut self, header: &DatagramHeader) -> bool {
        let step_id = (header.cycle, header.step);
        let Some(peer) = self.peers.get_mut(usize::from(header.node)) else { return false };
        if matches!(header.kind, DatagramKind::Arrival | DatagramKind::Part { .. }) {
            peer.latest_period = peer.latest_period.max(Some(header.cycle));
        }
        match header.kind {
            DatagramKind::Arrival => {
                if peer.arrived.is_none_or(|(arrived, _)| arrived < step_id) {
                    peer.arrived = Some((step_id, header.sent_ns));
                }
            }
            DatagramKind::Part { part, of } => {
                let is_whole = peer.part(step_id, (part, of), header.sent_ns);
                if let Some(account) = self.account.as_mut().filter(|_| is_whole) {
                    account.received(header.node, step_id, header.sent_ns);
                }
            }
            DatagramKind::Ping => {
                let back = DatagramHeader { kind: DatagramKind::Pong, node: self.own, ..*header };
                let at_once = MonotonicClock.now();
                self.send(&back.to_bytes(), header.node, at_once);
            }
            DatagramKind::Pong | DatagramKind::Release | DatagramKind::Last => return false,
        }
        true
    }
}

impl Peer {
    /// Records a part of a message; returns true if it was the last missing one.
    fn part(&mut self, step_id: StepId, (part, of): (u16, u16), sent_ns: i64) -> bool {
        if usize::from(of) > PARTS_MAX {
            return false;
        }
        if let Some(known) = self.messages.iter_mut().find(|one| one.step_id == step_id) {
            known.sent_ns = known.sent_ns.max(sent_ns);
            return known.take(part);
        }
        // The oldest is dropped: its exchange no longer waits for it.
        if self.messages.len() == AHEAD_MAX {
            let oldest = (0..AHEAD_MAX).min_by_key(|at| self.messages[*at].step_id);
            self.messages.swap_remove(oldest.unwrap_or(0));
        }
        let mut message =
            PartialMessage { step_id, missing: of, received: [0; PARTS_MAX / 64], sent_ns };
        let is_whole = message.take(part);
        self.messages.push(message);
        is_whole
    }
}

/// State of the network before the first period.
pub(crate) struct PeerBaseline {
    /// Half of the round-trip time of the shortest message to the next node, in ns: the median.
    pub(crate) latency_ns: Option<u64>,
}

impl Mesh {
    /// Until `until`, sends the shortest messages to the next node, one after the other, awaits
    /// their return, and returns those of peers.
    pub(crate) fn measure_baseline(&mut self, until: Timestamp<Monotonic>) -> PeerBaseline {
        /// Timeout of a ping.
        const PING_TIMEOUT: Span = Span::from_ms(5);
        let mut taken_ns: Vec<u64> = Vec::new();
        let next = self.neighbour(1);
        while MonotonicClock.now() < until {
            let Some(next) = next else { break };
            let sent = MonotonicClock.now();
            let ping =
                DatagramHeader { sent_ns: sent.as_ns(), ..self.header(DatagramKind::Ping, (0, 0)) };
            self.send(&ping.to_bytes(), next, until);
            let deadline = (sent + PING_TIMEOUT).min(until);
            while MonotonicClock.now() < deadline {
                let left_ns = (deadline - MonotonicClock.now()).as_ns().max(0).unsigned_abs();
                let _ = self.socket.wait_readable(Duration::from_nanos(left_ns));
                if self.comes_back(sent) {
                    taken_ns.push((MonotonicClock.now() - sent).as_ns().unsigned_abs() / 2);
                    break;
                }
            }
        }
        taken_ns.sort_unstable();
        PeerBaseline { latency_ns: taken_ns.get(taken_ns.len() / 2).copied() }
    }

    /// Takes the waiting datagrams; returns true if the ping of that instant was among them.
    fn comes_back(&mut self, sent: Timestamp<Monotonic>) -> bool {
        let mut bytes = [0; HEADER_LEN + PART_LEN];
        while let Ok(len) =
            datagram::receive(self.socket.as_fd(), &mut bytes, WaitMode::NonBlocking)
        {
            let Some(header) = DatagramHeader::from_bytes(&bytes[..len]) else { continue };
            if header.kind == DatagramKind::Pong && header.sent_ns == sent.as_ns() {
                return true;
            }
            self.process_header(&header);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;

    use super::*;

    fn meshes<const N: usize>() -> [Mesh; N] {
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let sockets: [(Socket, u16); N] = std::array::from_fn(|_| open((home, 0).into()).unwrap());
        let addresses: Vec<_> = sockets.iter().map(|(_, port)| (home, *port).into()).collect();
        let mut own = 0;
        sockets.map(|(socket, _)| {
            own += 1;
            Mesh::new(socket, own - 1, addresses.clone())
        })
    }

    fn in_a_second() -> Timestamp<Monotonic> {
        MonotonicClock.now() + Span::from_ms(1_000)
    }

    #[test]
    fn all_meet_at_a_barrier_and_who_is_late_is_named() {
        let [mut one, mut two, mut three] = meshes();
        let limit = in_a_second() + Span::from_ms(9_000);
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(60));
            two.barrier((7, 1), limit)
        });
        let other = thread::spawn(move || three.barrier((7, 1), limit));
        let met = one.barrier((7, 1), limit);
        assert_eq!((met.missing, met.awaited), (0, Some(1)));
        assert!(met.idle_ns > 30_000_000, "{met:?}");
        assert_eq!(other.join().unwrap().missing, 0);
        let last = late.join().unwrap();
        assert!(last.missing == 0 && last.idle_ns < met.idle_ns, "{last:?}");
    }

    #[test]
    fn who_does_not_come_is_not_waited_for_beyond_the_limit() {
        let [mut one, _two] = meshes();
        let limit = MonotonicClock.now() + Span::from_ms(20);
        let met = one.barrier((0, 0), limit);
        assert_eq!((met.missing, met.awaited), (1, Some(1)));
        assert!(MonotonicClock.now() >= limit);
        let message = StepMessage { bytes: 10, to: Audience::Next };
        assert_eq!(one.exchange((0, 0), message, limit).missing, 1);
    }

    #[test]
    fn messages_of_many_parts_come_whole_even_before_their_time() {
        let [mut one, mut two] = meshes();
        let limit = in_a_second() + Span::from_ms(9_000);
        let message = StepMessage { bytes: 100_000, to: Audience::All };
        let ahead = thread::spawn(move || {
            let first = two.exchange((0, 0), message, limit);
            // The other reads this one's second message while it waits for the first.
            (first, two.exchange((0, 1), message, limit))
        });
        let first = one.exchange((0, 0), message, limit);
        thread::sleep(Duration::from_millis(20));
        let second = one.exchange((0, 1), message, limit);
        let (theirs, next) = ahead.join().unwrap();
        for exchange in [first, second, theirs, next] {
            assert_eq!(exchange.missing, 0, "{exchange:?}");
        }
    }

    #[test]
    fn datagrams_of_unknown_nodes_are_ignored() {
        let [mut one, two] = meshes();
        let stranger =
            DatagramHeader { kind: DatagramKind::Arrival, node: 9, cycle: 0, step: 0, sent_ns: 0 };
        two.send(&stranger.to_bytes(), 0, in_a_second());
        two.send(b"hello", 0, in_a_second());
        let limit = MonotonicClock.now() + Span::from_ms(20);
        assert_eq!(one.barrier((0, 0), limit).missing, 1);
    }

    #[test]
    fn the_shortest_messages_have_a_latency() {
        let [mut one, mut two] = meshes();
        let until = MonotonicClock.now() + Span::from_ms(100);
        let other = thread::spawn(move || two.measure_baseline(until).latency_ns);
        let latency_ns = one.measure_baseline(until).latency_ns;
        assert!(latency_ns.is_some() && other.join().unwrap().is_some());
    }
}
