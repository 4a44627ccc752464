//! Worker thread: it receives packets, decides about them, and passes the copies to the engine. One
//! thread, so that each child gets its copies in the order in which the packets arrived.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use horolog_sys::clock::ClockMonotonic;
use horolog_sys::epoll::Epoll;
use horolog_time::Clock;
use horolog_wire::frame::UdpFrame;

use crate::decide::{LocalAddresses, PacketCopies, decide};
use crate::engine::{CopySender, OutgoingCopy};
use crate::group_socket::GroupSocket;
use crate::receiver::PacketReceiver;
use crate::relay::{ForwardingPlan, RelaySharedState};
use crate::send_interface::{FRAME_BYTES_MAX, injectable_length};
use crate::{CopyDrop, LocalSenderInterface, ReceivedPacket, RelayRateLimiter};

/// Epoll token of the wake-up stream: readable after a change, closed to stop the worker.
const WAKEUP_TOKEN: u64 = 0;
/// Epoll token of the send interface.
const SEND_INTERFACE_TOKEN: u64 = 1;
/// Maximum number of frames received from the send interface per wake-up.
const FRAMES_MAX: usize = 256;
/// Maximum number of ready sockets per wake-up.
const EVENTS_MAX: usize = 64;
/// Maximum number of receive calls for one group per wake-up.
const RECEIVE_CALLS_MAX: usize = 4;

pub(crate) struct RelayWorker {
    shared: Arc<RelaySharedState>,
    engine: Box<dyn CopySender>,
    wakeups: UnixStream,
    events: Epoll,
    sockets: HashMap<u64, Arc<GroupSocket>>,
    receiver: PacketReceiver,
    limits: RelayRateLimiter,
    /// Buffer for a frame of the send interface.
    frame: Box<[u8]>,
}

impl RelayWorker {
    /// Makes a worker. The bytes of `wakeups` are discarded: each announces a change.
    pub(crate) fn new(
        shared: Arc<RelaySharedState>,
        engine: Box<dyn CopySender>,
        limits: RelayRateLimiter,
        wakeups: UnixStream,
    ) -> io::Result<Self> {
        wakeups.set_nonblocking(true)?;
        let events = Epoll::new(EVENTS_MAX)?;
        events.add(wakeups.as_fd(), WAKEUP_TOKEN)?;
        let mut frame = Vec::new();
        if let Some(interface) = &shared.send_interface {
            events.add(interface.as_fd(), SEND_INTERFACE_TOKEN)?;
            frame.resize(FRAME_BYTES_MAX, 0);
        }
        Ok(Self {
            shared,
            engine,
            wakeups,
            events,
            sockets: HashMap::new(),
            receiver: PacketReceiver::new(),
            limits,
            frame: frame.into_boxed_slice(),
        })
    }

    /// Relays until the stream of wake-ups is closed; returns an error of epoll or of that stream.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.apply_plan()?;
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        loop {
            ready.clear();
            ready.extend(self.events.wait_in_milliseconds(None)?);
            if ready.contains(&WAKEUP_TOKEN) {
                if self.drain_wakeups()? {
                    return Ok(());
                }
                self.apply_plan()?;
            }
            if ready.contains(&SEND_INTERFACE_TOKEN) {
                self.receive_frames();
            }
            for token in &ready {
                if let Some(socket) = self.sockets.get(token).map(Arc::clone) {
                    self.receive_and_relay(&socket);
                }
            }
        }
    }

    fn drain_wakeups(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 64];
        loop {
            match io::Read::read(&mut self.wakeups, &mut bytes) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies the present plan: registers its sockets and releases all others.
    fn apply_plan(&mut self) -> io::Result<()> {
        let plan = self.shared.plan.load_full();
        let mut obsolete = std::mem::take(&mut self.sockets);
        for socket in &plan.sockets {
            if obsolete.remove(&socket.token).is_none() {
                self.events.add(socket.as_fd(), socket.token)?;
            }
            self.sockets.insert(socket.token, Arc::clone(socket));
        }
        for socket in obsolete.values() {
            self.events.remove(socket.as_fd())?;
        }
        drop(obsolete);
        self.limits.apply_table(&plan.table, now_ns());
        let number = plan.number;
        // The previous plan's resources are released before the change is reported to be in force.
        drop(plan);
        self.shared.applied_plan.store(number, Ordering::Release);
        Ok(())
    }

    fn receive_and_relay(&mut self, socket: &GroupSocket) {
        for _ in 0..RECEIVE_CALLS_MAX {
            match self.receiver.receive(socket) {
                Ok(0) => return,
                Ok(count) => self.relay_batch(socket, count),
                Err(_) => {
                    self.shared.receive_errors.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Receives and relays the waiting frames that programs on this host sent by the send
    /// interface, at most [`FRAMES_MAX`].
    fn receive_frames(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(interface) = &shared.send_interface else { return };
        let mut frame = std::mem::take(&mut self.frame);
        for _ in 0..FRAMES_MAX {
            match interface.receive(&mut frame) {
                Ok(Some(frame)) => self.relay_frame(interface, frame),
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.drop_send_interface(interface, &error);
                    break;
                }
            }
        }
        self.frame = frame;
    }

    /// Continues without the send interface, which has been deleted: it does not come back, and
    /// would report errors forever.
    fn drop_send_interface(&self, interface: &LocalSenderInterface, error: &io::Error) {
        // If it cannot be removed, it is not registered.
        let _ = self.events.remove(interface.as_fd());
        if !self.shared.send_interface_gone.swap(true, Ordering::Relaxed) {
            let name = interface.name();
            eprintln!(
                "horolog: the send interface '{name}' is gone ({error}); restart the relay to \
                 create it again"
            );
        }
    }

    /// Relays a frame by the XDP engine if possible, otherwise by the socket engine. Frames not
    /// addressed to a group are ignored: the kernel sends frames of its own on any interface.
    fn relay_frame(&mut self, interface: &LocalSenderInterface, frame: &[u8]) {
        let (plan, local_addresses) = (self.shared.plan.load(), self.shared.local_addresses.load());
        let Ok(udp) = UdpFrame::parse(frame) else { return };
        let destination = udp.destination;
        let mut groups = plan.table.groups().iter().zip(&plan.sockets);
        let Some((group, socket)) = groups.find(|(_, socket)| socket.listen == destination) else {
            return;
        };
        if let (Some(xdp), Some(length)) = (&self.shared.xdp, injectable_length(frame, &udp))
            && xdp.try_inject(destination, length, || interface.inject(frame).is_ok())
        {
            return;
        }
        let packet = ReceivedPacket {
            source: udp.source,
            destination,
            to_group: destination.ip().is_multicast(),
            // Only packets of multicast groups arrive here, and these start with the group's hop
            // limit.
            hop_limit: None,
            payload_len: udp.payload.len(),
        };
        group.counters.count_received(udp.payload.len());
        let decided = decide(&plan.table, &local_addresses, &mut self.limits, &packet, now_ns());
        let copies = match decided {
            Ok(copies) => copies,
            Err(refusal) => return group.counters.count_refused(refusal),
        };
        let prepared = socket.prepare_for(&copies).map_err(|_| CopyDrop::Other);
        let mut copies = copies.children().filter_map(|(child, admitted)| {
            let admitted = admitted.and(prepared);
            admitted.map_err(|reason| child.counters.count_dropped(reason)).ok()?;
            Some(OutgoingCopy { bytes: udp.payload, child })
        });
        self.engine.send(socket.socket(), &mut copies);
    }

    fn relay_batch(&mut self, socket: &GroupSocket, count: usize) {
        let (plan, local_addresses) = (self.shared.plan.load(), self.shared.local_addresses.load());
        let mut cursor = BatchCursor {
            plan: &plan,
            local_addresses: &local_addresses,
            limits: &mut self.limits,
            receiver: &self.receiver,
            socket,
            now_ns: now_ns(),
            slots: 0..count,
            current: None,
            child: 0,
        };
        while let Some(copies) = cursor.current_copies() {
            let hop_limit = copies.hop_limit;
            match socket.prepare_for(&copies) {
                Ok(()) => {
                    self.engine
                        .send(socket.socket(), &mut SameHopLimitCopies(&mut cursor, hop_limit));
                }
                Err(_) => {
                    SameHopLimitCopies(&mut cursor, hop_limit)
                        .for_each(|copy| copy.child.counters.count_dropped(CopyDrop::Other));
                }
            }
        }
    }
}

/// Returns the present time on the monotonic clock, by which the XDP engine charges the same
/// limits.
fn now_ns() -> u64 {
    ClockMonotonic.now().as_ns() as u64
}

/// Cursor over the packets of one receive call and the children of each.
struct BatchCursor<'a> {
    plan: &'a ForwardingPlan,
    local_addresses: &'a LocalAddresses,
    limits: &'a mut RelayRateLimiter,
    receiver: &'a PacketReceiver,
    socket: &'a GroupSocket,
    now_ns: u64,
    /// Packets not yet decided upon.
    slots: std::ops::Range<usize>,
    current: Option<(PacketCopies<'a>, &'a [u8])>,
    /// Next child of the current packet.
    child: usize,
}

impl<'a> BatchCursor<'a> {
    /// Returns the copies of the current packet, or of the next one to be relayed; `None` at the
    /// end of the batch.
    fn current_copies(&mut self) -> Option<PacketCopies<'a>> {
        if self.current.is_none() {
            self.current = self.decide_next();
            self.child = 0;
        }
        self.current.map(|(copies, _)| copies)
    }

    /// Returns the next packet to be relayed, with its payload; refused ones are counted. `None` at
    /// the end of the batch.
    fn decide_next(&mut self) -> Option<(PacketCopies<'a>, &'a [u8])> {
        loop {
            let slot = self.slots.next()?;
            let (packet, bytes) = self.receiver.packet(self.socket, slot);
            let table = &self.plan.table;
            let decided = decide(table, self.local_addresses, self.limits, &packet, self.now_ns);
            // The packet counts for the group at whose socket it arrived.
            let counters = table.find_group(self.socket.listen).map(|group| &group.counters);
            if let Some(counters) = counters {
                counters.count_received(bytes.len());
            }
            match (decided, counters) {
                (Ok(copies), _) => return Some((copies, bytes)),
                (Err(refusal), Some(counters)) => counters.count_refused(refusal),
                // The group was removed in the meantime.
                (Err(_), None) => {}
            }
        }
    }
}

/// Copies of consecutive packets that leave with one hop limit.
struct SameHopLimitCopies<'a, 'b>(&'b mut BatchCursor<'a>, u8);

impl<'a> Iterator for SameHopLimitCopies<'a, '_> {
    type Item = OutgoingCopy<'a>;

    fn next(&mut self) -> Option<OutgoingCopy<'a>> {
        let Self(cursor, hop_limit) = self;
        loop {
            if cursor.current_copies()?.hop_limit != *hop_limit {
                return None;
            }
            let (copies, bytes) = cursor.current?;
            match copies.group.children.get(cursor.child) {
                None => cursor.current = None,
                Some(child) => {
                    cursor.child += 1;
                    match child.admit_copy(bytes.len(), copies.group.spec.fragment) {
                        Ok(()) => return Some(OutgoingCopy { bytes, child }),
                        Err(reason) => child.counters.count_dropped(reason),
                    }
                }
            }
        }
    }
}
