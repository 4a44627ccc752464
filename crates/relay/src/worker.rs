//! Worker thread: it receives packets, decides about them, and passes the copies to the engine. One
//! thread, so that each child gets its copies in the order in which the packets arrived.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use horolog_sys::clock::MonotonicClock;
use horolog_sys::epoll::Epoll;
use horolog_time::Clock;
use horolog_wire::frame::UdpFrame;

use crate::decide::{Copies, LocalAddresses, decide};
use crate::engine::{CopySender, Outbound};
use crate::group_socket::GroupSocket;
use crate::receiver::PacketReceiver;
use crate::relay::{ForwardingPlan, RelayState};
use crate::send_interface::{FRAME_BYTES_MAX, plain_length};
use crate::{CopyDrop, ReceivedPacket, RelayLimits, SendInterface};

/// Token of the stream of wake-ups for changes, whose end ends the worker.
const CHANGED: u64 = 0;
/// Token of the send interface.
const HANDED: u64 = 1;
/// Frames that are taken from it in one turn.
const HANDED_MAX: usize = 256;
/// Sockets that are served in one turn.
const EVENTS: usize = 64;
/// Receive calls of one group in one turn.
const CALLS_MAX: usize = 4;

pub(crate) struct RelayWorker {
    shared: Arc<RelayState>,
    engine: Box<dyn CopySender>,
    wakeups: UnixStream,
    events: Epoll,
    outlets: HashMap<u64, Arc<GroupSocket>>,
    receiver: PacketReceiver,
    limits: RelayLimits,
    /// Room for a frame of the send interface.
    frame: Box<[u8]>,
}

impl RelayWorker {
    /// Makes a worker. The bytes of `wakeups` are discarded: each announces a change.
    pub(crate) fn new(
        shared: Arc<RelayState>,
        engine: Box<dyn CopySender>,
        limits: RelayLimits,
        wakeups: UnixStream,
    ) -> io::Result<Self> {
        wakeups.set_nonblocking(true)?;
        let events = Epoll::new(EVENTS)?;
        events.add(wakeups.as_fd(), CHANGED)?;
        let mut frame = Vec::new();
        if let Some(interface) = &shared.send_interface {
            events.add(interface.as_fd(), HANDED)?;
            frame.resize(FRAME_BYTES_MAX, 0);
        }
        Ok(Self {
            shared,
            engine,
            wakeups,
            events,
            outlets: HashMap::new(),
            receiver: PacketReceiver::new(),
            limits,
            frame: frame.into_boxed_slice(),
        })
    }

    /// Relays until the stream of wake-ups is closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.take_over()?;
        let mut ready = Vec::with_capacity(EVENTS);
        loop {
            ready.clear();
            ready.extend(self.events.wait_coarsely(None)?);
            if ready.contains(&CHANGED) {
                if self.is_over()? {
                    return Ok(());
                }
                self.take_over()?;
            }
            if ready.contains(&HANDED) {
                self.take_handed();
            }
            for token in &ready {
                if let Some(outlet) = self.outlets.get(token).map(Arc::clone) {
                    self.serve(&outlet);
                }
            }
        }
    }

    fn is_over(&mut self) -> io::Result<bool> {
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

    /// Uses the sockets of the present plan, and releases all others.
    fn take_over(&mut self) -> io::Result<()> {
        let plan = self.shared.plan.load_full();
        let mut left = std::mem::take(&mut self.outlets);
        for outlet in &plan.outlets {
            if left.remove(&outlet.token).is_none() {
                self.events.add(outlet.as_fd(), outlet.token)?;
            }
            self.outlets.insert(outlet.token, Arc::clone(outlet));
        }
        for outlet in left.values() {
            self.events.remove(outlet.as_fd())?;
        }
        drop(left);
        self.limits.take_over(&plan.table, now_ns());
        let number = plan.number;
        // The previous plan's resources are released before the change is reported to be in force.
        drop(plan);
        self.shared.in_force.store(number, Ordering::Release);
        Ok(())
    }

    fn serve(&mut self, outlet: &GroupSocket) {
        for _ in 0..CALLS_MAX {
            match self.receiver.receive(outlet) {
                Ok(0) => return,
                Ok(count) => self.relay(outlet, count),
                Err(_) => {
                    self.shared.receive_errors.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Takes the frames that programs on this host sent by the send interface.
    fn take_handed(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(interface) = &shared.send_interface else { return };
        let mut frame = std::mem::take(&mut self.frame);
        for _ in 0..HANDED_MAX {
            match interface.receive(&mut frame) {
                Ok(Some(frame)) => self.hand_over(interface, frame),
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lose(interface, &error);
                    break;
                }
            }
        }
        self.frame = frame;
    }

    /// Continues without the send interface, which has been deleted: it does not come back, and
    /// would report errors forever.
    fn lose(&self, interface: &SendInterface, error: &io::Error) {
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

    /// Has the XDP engine make the copies of a frame, or the socket engine. Frames not addressed to
    /// a group are ignored: the kernel sends its own on any interface.
    fn hand_over(&mut self, interface: &SendInterface, frame: &[u8]) {
        let (plan, own) = (self.shared.plan.load(), self.shared.own.load());
        let Ok(udp) = UdpFrame::parse(frame) else { return };
        let to = udp.destination;
        let mut groups = plan.table.groups().iter().zip(&plan.outlets);
        let Some((group, outlet)) = groups.find(|(_, outlet)| outlet.listen == to) else { return };
        if let (Some(kernel), Some(length)) = (&self.shared.kernel, plain_length(frame, &udp))
            && kernel.can_inject(to, length, || interface.inject(frame).is_ok())
        {
            return;
        }
        let packet = ReceivedPacket {
            source: udp.source,
            destination: to,
            to_group: to.ip().is_multicast(),
            // Only a multicast group's packets arrive here, and their hop limit starts anew.
            hop_limit: None,
            payload: udp.payload.len(),
        };
        group.counters.received(udp.payload.len());
        let decided = decide(&plan.table, &own, &mut self.limits, &packet, now_ns());
        let copies = match decided {
            Ok(copies) => copies,
            Err(refusal) => return group.counters.refused(refusal),
        };
        let can_send = outlet.prepare_for(&copies).map_err(|_| CopyDrop::Other);
        let mut copies = copies.children().filter_map(|(child, admitted)| {
            let admitted = admitted.and(can_send);
            admitted.map_err(|reason| child.counters.dropped(reason)).ok()?;
            Some(Outbound { bytes: udp.payload, child })
        });
        self.engine.send(outlet.socket(), &mut copies);
    }

    fn relay(&mut self, outlet: &GroupSocket, count: usize) {
        let (plan, own) = (self.shared.plan.load(), self.shared.own.load());
        let mut pass = BatchCursor {
            plan: &plan,
            own: &own,
            limits: &mut self.limits,
            receiver: &self.receiver,
            outlet,
            now_ns: now_ns(),
            slots: 0..count,
            current: None,
            child: 0,
        };
        while let Some(first) = pass.begin_run() {
            let hop_limit = first.hop_limit;
            match outlet.prepare_for(&first) {
                Ok(()) => self.engine.send(outlet.socket(), &mut HopLimitRun(&mut pass, hop_limit)),
                Err(_) => {
                    HopLimitRun(&mut pass, hop_limit)
                        .for_each(|copy| copy.child.counters.dropped(CopyDrop::Other));
                }
            }
        }
    }
}

/// Returns the present time on the clock of the XDP engine, which charges the same limits.
fn now_ns() -> u64 {
    MonotonicClock.now().as_ns() as u64
}

/// Position in the packets of one call and the children of each.
struct BatchCursor<'a> {
    plan: &'a ForwardingPlan,
    own: &'a LocalAddresses,
    limits: &'a mut RelayLimits,
    receiver: &'a PacketReceiver,
    outlet: &'a GroupSocket,
    now_ns: u64,
    /// Packets not yet decided upon.
    slots: std::ops::Range<usize>,
    current: Option<(Copies<'a>, &'a [u8])>,
    /// Next child of the current packet.
    child: usize,
}

impl<'a> BatchCursor<'a> {
    /// Returns the next copies to be sent, if any.
    fn begin_run(&mut self) -> Option<Copies<'a>> {
        if self.current.is_none() {
            self.current = self.decide_next();
            self.child = 0;
        }
        self.current.map(|(copies, _)| copies)
    }

    /// Returns the next packet to be relayed; refused ones are counted.
    fn decide_next(&mut self) -> Option<(Copies<'a>, &'a [u8])> {
        loop {
            let slot = self.slots.next()?;
            let (packet, bytes) = self.receiver.packet(self.outlet, slot);
            let table = &self.plan.table;
            let decided = decide(table, self.own, self.limits, &packet, self.now_ns);
            // It counts for the group at whose socket it arrived.
            let counters = table.find(self.outlet.listen).map(|group| &group.counters);
            if let Some(counters) = counters {
                counters.received(bytes.len());
            }
            match (decided, counters) {
                (Ok(copies), _) => return Some((copies, bytes)),
                (Err(refusal), Some(counters)) => counters.refused(refusal),
                // Its group was removed in the meantime.
                (Err(_), None) => {}
            }
        }
    }
}

/// Copies of consecutive packets that leave with one hop limit.
struct HopLimitRun<'a, 'b>(&'b mut BatchCursor<'a>, u8);

impl<'a> Iterator for HopLimitRun<'a, '_> {
    type Item = Outbound<'a>;

    fn next(&mut self) -> Option<Outbound<'a>> {
        let Self(pass, hop_limit) = self;
        loop {
            if pass.begin_run()?.hop_limit != *hop_limit {
                return None;
            }
            let (copies, bytes) = pass.current?;
            match copies.group.children.get(pass.child) {
                None => pass.current = None,
                Some(child) => {
                    pass.child += 1;
                    match child.admits(bytes.len(), copies.group.spec.fragment) {
                        Ok(()) => return Some(Outbound { bytes, child }),
                        Err(reason) => child.counters.dropped(reason),
                    }
                }
            }
        }
    }
}
