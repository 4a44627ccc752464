//! Peers of a node in a task: messages and barriers between them. They use datagrams, as real-time
//! clusters do: losses are counted and not retransmitted, and no wait for a peer exceeds a
//! deadline.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::datagram::{self, MsghdrBuffers, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::datagram::{DatagramHeader, DatagramKind, HEADER_LEN};
use super::mesh_instrument::MeshTestInstrument;
use crate::entry::PeriodEntry;
use crate::task::{MESSAGE_MAX, MessageDestination, SuperstepMessage};

/// Bytes of a message in one datagram; with all headers within an Ethernet MTU of 1500 bytes.
const FRAGMENT_LEN: usize = 1_400;
/// Largest number of fragments of a message, rounded up to a multiple of 64.
const FRAGMENTS_MAX: usize = (MESSAGE_MAX as usize).div_ceil(FRAGMENT_LEN).next_multiple_of(64);
/// Size of the receive buffer, in bytes, for the messages of all nodes.
const BUFFER_BYTES: usize = 8 << 20;
/// Longest single wait for space in a full send queue.
const SEND_QUEUE_WAIT: Duration = Duration::from_micros(200);
/// Largest number of messages stored for each peer, of this and of later supersteps.
const MESSAGES_PER_PEER_MAX: usize = 8;

/// Period and superstep within it.
pub(crate) type SuperstepId = (u64, u16);

/// Latest barrier arrival and messages received from a peer.
#[derive(Default)]
struct PeerState {
    latest_arrival: Option<(SuperstepId, i64)>,
    messages: Vec<PartialMessage>,
    /// Latest period of any barrier arrival or message fragment from the peer.
    latest_period: Option<u64>,
}

/// Message with the fragments received so far.
struct PartialMessage {
    step_id: SuperstepId,
    missing_fragments: u16,
    /// One bit for each received fragment.
    received: [u64; FRAGMENTS_MAX / 64],
    sent_ns: i64,
}

impl PartialMessage {
    /// Records a fragment, possibly a duplicate; returns true if it was the last missing one.
    fn record_fragment(&mut self, index: u16) -> bool {
        let bit = 1 << (index % 64);
        let Some(word) = self.received.get_mut(usize::from(index) / 64) else { return false };
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.missing_fragments = self.missing_fragments.saturating_sub(1);
        self.missing_fragments == 0
    }
}

/// All nodes of a task, as one of them reaches them.
pub(crate) struct Mesh {
    socket: DatagramSocket,
    own_index: u16,
    addresses: Vec<SocketAddr>,
    peers: Vec<PeerState>,
    send_buffer: Vec<u8>,
    instrument: Option<Box<MeshTestInstrument>>,
    envelope: MsghdrBuffers,
}

/// Opens a socket that peers can reach at this address; returns it with its port.
pub(crate) fn open_mesh_socket(local: SocketAddr) -> io::Result<(DatagramSocket, u16)> {
    let socket = DatagramSocket::udp(local)?;
    socket.bind(local)?;
    socket.set_receive_buffer(BUFFER_BYTES)?;
    let port = socket.local_address()?.port();
    Ok((socket, port))
}

impl Mesh {
    /// Creates the mesh of the nodes at these addresses; `own_index` is the index of this node.
    pub(crate) fn new(socket: DatagramSocket, own_index: u16, addresses: Vec<SocketAddr>) -> Self {
        let peers = addresses.iter().map(|_| PeerState::default()).collect();
        let send_buffer = vec![0; HEADER_LEN + FRAGMENT_LEN];
        Self {
            socket,
            own_index,
            addresses,
            peers,
            send_buffer,
            instrument: None,
            envelope: MsghdrBuffers::new(),
        }
    }

    /// Installs an instrument for later messages; it must have been created for this mesh's socket.
    pub(crate) fn set_instrument(&mut self, instrument: MeshTestInstrument) {
        self.instrument = Some(Box::new(instrument));
    }

    /// Returns the installed instrument, or `None`.
    pub(crate) fn instrument_mut(&mut self) -> Option<&mut MeshTestInstrument> {
        self.instrument.as_deref_mut()
    }

    /// Returns the latest period of any barrier arrival or message fragment from a node; `None`
    /// before the first.
    pub(crate) fn latest_period(&self, node: u16) -> Option<u64> {
        self.peers.get(usize::from(node))?.latest_period
    }

    /// Processes the datagrams that have arrived, without waiting, at most as many as the receive
    /// buffer holds.
    pub(crate) fn process_received(&mut self) {
        const DATAGRAMS_MAX: usize = BUFFER_BYTES / FRAGMENT_LEN;
        let _ = (0..DATAGRAMS_MAX).take_while(|_| self.receive().is_some()).count();
    }

    fn is_awaited(&self, node: u16) -> bool {
        self.instrument.as_ref().is_none_or(|instrument| !instrument.is_ignored(node))
    }

    fn other_nodes(&self) -> impl Iterator<Item = u16> + use<> {
        let own_index = self.own_index;
        (0..self.addresses.len() as u16).filter(move |node| *node != own_index)
    }

    fn node_after(&self, distance: u16) -> Option<u16> {
        let nodes = self.addresses.len() as u16;
        (nodes > 1).then(|| (self.own_index + distance) % nodes)
    }

    /// Sends a message and waits until the deadline for those of the peers that send to this node
    /// in the same step, except ignored ones.
    pub(crate) fn exchange(
        &mut self,
        step_id: SuperstepId,
        message: SuperstepMessage,
        deadline: Timestamp<Monotonic>,
    ) -> MeshExchangeOutcome {
        let (to, mut from): (Vec<u16>, Vec<u16>) = match message.to {
            MessageDestination::All => (self.other_nodes().collect(), self.other_nodes().collect()),
            MessageDestination::Next => {
                let nodes = self.addresses.len() as u16;
                let before = self.node_after(nodes.saturating_sub(1));
                (self.node_after(1).into_iter().collect(), before.into_iter().collect())
            }
        };
        from.retain(|node| self.is_awaited(*node));
        let begun = ClockMonotonic.now();
        self.send_message(step_id, message.bytes as usize, &to, deadline);
        self.wait(begun, deadline, &from, |peer| {
            let is_complete =
                |one: &&PartialMessage| one.step_id == step_id && one.missing_fragments == 0;
            peer.messages.iter().find(is_complete).map(|one| one.sent_ns)
        })
    }

    /// Announces the arrival at a barrier to the peers, and waits until the deadline for the
    /// arrivals of those that are not ignored.
    pub(crate) fn barrier(
        &mut self,
        step_id: SuperstepId,
        deadline: Timestamp<Monotonic>,
    ) -> MeshExchangeOutcome {
        let mut others: Vec<u16> = self.other_nodes().collect();
        let begun = ClockMonotonic.now();
        let header = self.header(DatagramKind::BarrierArrival, step_id);
        for node in &others {
            self.send(&header.to_bytes(), *node, deadline);
        }
        others.retain(|node| self.is_awaited(*node));
        self.wait(begun, deadline, &others, |peer| {
            peer.latest_arrival
                .filter(|(arrived, _)| *arrived >= step_id)
                .map(|(_, sent_ns)| sent_ns)
        })
    }

    fn header(&self, kind: DatagramKind, (cycle, step): SuperstepId) -> DatagramHeader {
        DatagramHeader {
            kind,
            node: self.own_index,
            period: cycle,
            superstep: step,
            sent_ns: ClockRealtime.now().as_ns(),
        }
    }

    fn send_message(
        &mut self,
        step_id: SuperstepId,
        len: usize,
        to: &[u16],
        deadline: Timestamp<Monotonic>,
    ) {
        let count = len.div_ceil(FRAGMENT_LEN) as u16;
        let mut bytes = std::mem::take(&mut self.send_buffer);
        for index in 0..count {
            let header = self.header(DatagramKind::Fragment { index, count }, step_id);
            bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
            let rest = len - usize::from(index) * FRAGMENT_LEN;
            let fragment = &bytes[..HEADER_LEN + rest.min(FRAGMENT_LEN)];
            for node in to {
                let address = self.addresses[usize::from(*node)];
                let is_intercepted = |instrument: &MeshTestInstrument| {
                    instrument.try_intercept(*node, fragment, address)
                };
                if !self.instrument.as_deref().is_some_and(is_intercepted) {
                    self.send(fragment, *node, deadline);
                }
            }
        }
        self.send_buffer = bytes;
    }

    /// Sends a datagram, and waits until the deadline for space if the send queue is full. A
    /// datagram refused for another reason is lost, and the receiver counts it.
    fn send(&self, bytes: &[u8], to: u16, deadline: Timestamp<Monotonic>) {
        let to = self.addresses[usize::from(to)];
        while let Err(error) = datagram::send_to(self.socket.as_fd(), bytes, to) {
            let is_full = error.kind() == io::ErrorKind::WouldBlock;
            if !is_full || ClockMonotonic.now() >= deadline {
                return;
            }
            let _ = self.socket.wait_writable(SEND_QUEUE_WAIT);
        }
    }

    /// Waits until `sent` returns a send time for each of these nodes, at most until the deadline.
    fn wait(
        &mut self,
        begun: Timestamp<Monotonic>,
        deadline: Timestamp<Monotonic>,
        from: &[u16],
        sent: impl Fn(&PeerState) -> Option<i64>,
    ) -> MeshExchangeOutcome {
        let send_end = ClockMonotonic.now();
        let send_duration_ns = (send_end - begun).as_ns().unsigned_abs();
        let mut last = None;
        let missing = loop {
            let mut missing = from.iter().filter(|node| sent(self.peer(**node)).is_none());
            let Some(node) = missing.next() else { break 0 };
            let others = missing.count();
            last = Some(*node);
            if !self.receive_until(deadline) {
                break 1 + others as u16;
            }
        };
        let waited_ns = (ClockMonotonic.now() - send_end).as_ns().unsigned_abs();
        if let Some(instrument) = &mut self.instrument {
            let absent =
                from.iter().filter(|node| sent(&self.peers[usize::from(**node)]).is_none());
            instrument.missing = absent.copied().collect();
        }
        let sent_ns = last.filter(|_| missing == 0).and_then(|node| sent(self.peer(node)));
        // Transit time of the last datagram, limited to the wait, since the clocks of two hosts may
        // differ by more than that.
        let transit_ns =
            sent_ns.map_or(0, |sent_ns| ClockRealtime.now().as_ns().saturating_sub(sent_ns));
        let transit_ns = transit_ns.max(0).unsigned_abs().min(waited_ns);
        MeshExchangeOutcome {
            transit_ns: send_duration_ns + transit_ns,
            idle_ns: waited_ns - transit_ns,
            missing,
            straggler: last,
        }
    }

    fn peer(&self, node: u16) -> &PeerState {
        &self.peers[usize::from(node)]
    }

    /// Waits for the next datagram of a peer; returns false if none came until the deadline.
    fn receive_until(&mut self, deadline: Timestamp<Monotonic>) -> bool {
        loop {
            match self.receive() {
                Some(true) => return true,
                Some(false) => {}
                None => {
                    let left = deadline - ClockMonotonic.now();
                    let Ok(left_ns) = u64::try_from(left.as_ns()) else { return false };
                    // A failure shows at the next attempt to receive, or at the deadline.
                    let _ = self.socket.wait_readable(Duration::from_nanos(left_ns));
                    if left_ns == 0 {
                        return false;
                    }
                }
            }
        }
    }

    /// Receives a datagram without waiting. Returns true if it was a valid one of a peer, false if
    /// not, or `None` if there is none.
    fn receive(&mut self) -> Option<bool> {
        let mut bytes = [0; HEADER_LEN + FRAGMENT_LEN];
        let received = match &mut self.instrument {
            None => self.envelope.receive_with_source(
                self.socket.as_fd(),
                &mut bytes,
                WaitMode::NonBlocking,
            ),
            Some(instrument) => instrument.receive(&self.socket, &mut bytes),
        };
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // The error belongs to an earlier datagram that could not be delivered.
            Err(_) => return Some(false),
        };
        let header = self.header_from_node(&bytes[..received.len], received.remote);
        Some(header.is_some_and(|header| self.process_header(&header)))
    }

    /// Parses a datagram from the address `remote`; `None` unless that is the address of the node
    /// that it names.
    fn header_from_node(&self, bytes: &[u8], remote: Option<SocketAddr>) -> Option<DatagramHeader> {
        let header = DatagramHeader::from_bytes(bytes)?;
        let (known, from) = self.addresses.get(usize::from(header.node)).zip(remote)?;
        ((known.ip(), known.port()) == (from.ip(), from.port())).then_some(header)
    }

    fn process_header(&mut self, header: &DatagramHeader) -> bool {
        let step_id = (header.period, header.superstep);
        let Some(peer) = self.peers.get_mut(usize::from(header.node)) else { return false };
        if matches!(header.kind, DatagramKind::BarrierArrival | DatagramKind::Fragment { .. }) {
            peer.latest_period = peer.latest_period.max(Some(header.period));
        }
        match header.kind {
            DatagramKind::BarrierArrival => {
                if peer.latest_arrival.is_none_or(|(arrived, _)| arrived < step_id) {
                    peer.latest_arrival = Some((step_id, header.sent_ns));
                }
            }
            DatagramKind::Fragment { index: part, count: of } => {
                let is_whole = peer.record_fragment(step_id, (part, of), header.sent_ns);
                if let Some(instrument) = self.instrument.as_mut().filter(|_| is_whole) {
                    instrument.record_message(header.node, step_id, header.sent_ns);
                }
            }
            DatagramKind::Ping => {
                let pong =
                    DatagramHeader { kind: DatagramKind::Pong, node: self.own_index, ..*header };
                let now = ClockMonotonic.now();
                self.send(&pong.to_bytes(), header.node, now);
            }
            DatagramKind::Pong | DatagramKind::Release | DatagramKind::EndOfReleases => {
                return false;
            }
        }
        true
    }
}

impl PeerState {
    /// Records a fragment of a message; returns true if it was the last missing one.
    fn record_fragment(
        &mut self,
        step_id: SuperstepId,
        (part, of): (u16, u16),
        sent_ns: i64,
    ) -> bool {
        if usize::from(of) > FRAGMENTS_MAX {
            return false;
        }
        if let Some(known) = self.messages.iter_mut().find(|one| one.step_id == step_id) {
            known.sent_ns = known.sent_ns.max(sent_ns);
            return known.record_fragment(part);
        }
        // The oldest message is dropped: no exchange waits for it any longer.
        if self.messages.len() == MESSAGES_PER_PEER_MAX {
            let oldest = (0..MESSAGES_PER_PEER_MAX).min_by_key(|at| self.messages[*at].step_id);
            self.messages.swap_remove(oldest.unwrap_or(0));
        }
        let mut message = PartialMessage {
            step_id,
            missing_fragments: of,
            received: [0; FRAGMENTS_MAX / 64],
            sent_ns,
        };
        let is_whole = message.record_fragment(part);
        self.messages.push(message);
        is_whole
    }
}

/// Network latency before the first period.
pub(crate) struct NetworkLatencyBaseline {
    /// Median of half the round-trip times of pings to the next node, in ns; `None` without a pong.
    pub(crate) latency_ns: Option<u64>,
}

impl Mesh {
    /// Pings the next node until `until`, one ping after the other, and sends back pings of peers.
    pub(crate) fn measure_baseline(
        &mut self,
        until: Timestamp<Monotonic>,
    ) -> NetworkLatencyBaseline {
        /// Timeout of a ping.
        const PING_TIMEOUT: Span = Span::from_ms(5);
        let mut latencies_ns: Vec<u64> = Vec::new();
        let next = self.node_after(1);
        while ClockMonotonic.now() < until {
            let Some(next) = next else { break };
            let sent = ClockMonotonic.now();
            let ping =
                DatagramHeader { sent_ns: sent.as_ns(), ..self.header(DatagramKind::Ping, (0, 0)) };
            self.send(&ping.to_bytes(), next, until);
            let deadline = (sent + PING_TIMEOUT).min(until);
            while ClockMonotonic.now() < deadline {
                let left_ns = (deadline - ClockMonotonic.now()).as_ns().max(0).unsigned_abs();
                let _ = self.socket.wait_readable(Duration::from_nanos(left_ns));
                if self.receive_pong(sent) {
                    latencies_ns.push((ClockMonotonic.now() - sent).as_ns().unsigned_abs() / 2);
                    break;
                }
            }
        }
        latencies_ns.sort_unstable();
        NetworkLatencyBaseline { latency_ns: latencies_ns.get(latencies_ns.len() / 2).copied() }
    }

    /// Processes the waiting datagrams up to the pong of the ping that was sent at this instant;
    /// returns false if it was not among them.
    fn receive_pong(&mut self, sent: Timestamp<Monotonic>) -> bool {
        let mut bytes = [0; HEADER_LEN + FRAGMENT_LEN];
        while let Ok(received) = self.envelope.receive_with_source(
            self.socket.as_fd(),
            &mut bytes,
            WaitMode::NonBlocking,
        ) {
            let header = self.header_from_node(&bytes[..received.len], received.remote);
            let Some(header) = header else { continue };
            if header.kind == DatagramKind::Pong && header.sent_ns == sent.as_ns() {
                return true;
            }
            self.process_header(&header);
        }
        false
    }
}

/// Outcome of an exchange of messages or of a barrier. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MeshExchangeOutcome {
    /// Time of sending, plus the transit time of the last arrival.
    pub(crate) transit_ns: u64,
    /// Waiting time until the last arrival was sent.
    pub(crate) idle_ns: u64,
    /// Number of nodes that did not arrive by the deadline.
    pub(crate) missing: u16,
    /// Node that was waited for last.
    pub(crate) straggler: Option<u16>,
}

impl MeshExchangeOutcome {
    /// Records an exchange of messages in the entry of the step.
    pub(crate) fn record_messages(self, entry: &mut PeriodEntry) {
        entry.communicate_ns = self.transit_ns;
        entry.idle_ns = self.idle_ns;
        entry.missing = self.missing;
        entry.straggler = self.straggler;
    }

    /// Records a barrier, which follows the messages, in the entry of the step.
    pub(crate) fn record_barrier(self, entry: &mut PeriodEntry) {
        entry.barrier_ns = self.transit_ns;
        entry.idle_ns += self.idle_ns;
        entry.is_broken = self.missing > 0;
        entry.straggler = self.straggler.or(entry.straggler);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;

    use super::*;

    fn meshes<const N: usize>() -> [Mesh; N] {
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let sockets: [(DatagramSocket, u16); N] =
            std::array::from_fn(|_| open_mesh_socket((home, 0).into()).unwrap());
        let addresses: Vec<_> = sockets.iter().map(|(_, port)| (home, *port).into()).collect();
        let mut own = 0;
        sockets.map(|(socket, _)| {
            own += 1;
            Mesh::new(socket, own - 1, addresses.clone())
        })
    }

    fn in_a_second() -> Timestamp<Monotonic> {
        ClockMonotonic.now() + Span::from_ms(1_000)
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
        assert_eq!((met.missing, met.straggler), (0, Some(1)));
        assert!(met.idle_ns > 30_000_000, "{met:?}");
        assert_eq!(other.join().unwrap().missing, 0);
        let last = late.join().unwrap();
        assert!(last.missing == 0 && last.idle_ns < met.idle_ns, "{last:?}");
    }

    #[test]
    fn who_does_not_come_is_not_waited_for_beyond_the_limit() {
        let [mut one, _two] = meshes();
        let limit = ClockMonotonic.now() + Span::from_ms(20);
        let met = one.barrier((0, 0), limit);
        assert_eq!((met.missing, met.straggler), (1, Some(1)));
        assert!(ClockMonotonic.now() >= limit);
        let message = SuperstepMessage { bytes: 10, to: MessageDestination::Next };
        assert_eq!(one.exchange((0, 0), message, limit).missing, 1);
    }

    #[test]
    fn messages_of_many_parts_come_whole_even_before_their_time() {
        let [mut one, mut two] = meshes();
        let limit = in_a_second() + Span::from_ms(9_000);
        let message = SuperstepMessage { bytes: 100_000, to: MessageDestination::All };
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
        let stranger = DatagramHeader {
            kind: DatagramKind::BarrierArrival,
            node: 9,
            period: 0,
            superstep: 0,
            sent_ns: 0,
        };
        two.send(&stranger.to_bytes(), 0, in_a_second());
        two.send(b"hello", 0, in_a_second());
        let limit = ClockMonotonic.now() + Span::from_ms(20);
        assert_eq!(one.barrier((0, 0), limit).missing, 1);
    }

    #[test]
    fn the_shortest_messages_have_a_latency() {
        let [mut one, mut two] = meshes();
        let until = ClockMonotonic.now() + Span::from_ms(100);
        let other = thread::spawn(move || two.measure_baseline(until).latency_ns);
        let latency_ns = one.measure_baseline(until).latency_ns;
        assert!(latency_ns.is_some() && other.join().unwrap().is_some());
    }
}
