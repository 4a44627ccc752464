//! The thread that relays: it takes packets, has them decided upon, and hands the copies to the
//! engine. One thread, so that each child gets its copies in the order in which the packets came.

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

use crate::decide::{Copies, Own, decide};
use crate::engine::{Engine, Outbound};
use crate::handover::{FRAME_BYTES_MAX, plain_length};
use crate::node::{Plan, Shared};
use crate::outlet::Outlet;
use crate::receiver::Receiver;
use crate::{Drop, Limits, Packet, SendInterface};

/// The token of the stream that tells of changes, and by its end that it is all over.
const CHANGED: u64 = 0;
/// The token of the send interface.
const HANDED: u64 = 1;
/// Frames that are taken from it before it is another's turn.
const HANDED_MAX: usize = 256;
/// Sockets looked at in one turn.
const EVENTS: usize = 64;
/// Calls that one group may have before it is another's turn.
const CALLS_MAX: usize = 4;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    engine: Box<dyn Engine>,
    told: UnixStream,
    events: Epoll,
    outlets: HashMap<u64, Arc<Outlet>>,
    receiver: Receiver,
    limits: Limits,
    /// Room for a frame of the send interface.
    frame: Box<[u8]>,
}

impl Worker {
    /// `told` is read, and what is read of it thrown away: a byte tells of a change.
    pub(crate) fn new(
        shared: Arc<Shared>,
        engine: Box<dyn Engine>,
        limits: Limits,
        told: UnixStream,
    ) -> io::Result<Self> {
        told.set_nonblocking(true)?;
        let events = Epoll::new(EVENTS)?;
        events.add(told.as_fd(), CHANGED)?;
        let mut frame = Vec::new();
        if let Some(interface) = &shared.send_interface {
            events.add(interface.as_fd(), HANDED)?;
            frame.resize(FRAME_BYTES_MAX, 0);
        }
        Ok(Self {
            shared,
            engine,
            told,
            events,
            outlets: HashMap::new(),
            receiver: Receiver::new(),
            limits,
            frame: frame.into_boxed_slice(),
        })
    }

    /// Relays until the stream that tells of changes is closed.
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
            match io::Read::read(&mut self.told, &mut bytes) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the sockets of the present plan, and lets go of all others.
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
        // What the plan before held goes before anybody is told that it has gone.
        drop(plan);
        self.shared.in_force.store(number, Ordering::Release);
        Ok(())
    }

    fn serve(&mut self, outlet: &Outlet) {
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

    /// Takes what programs on this host hand over by the send interface.
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

    /// Does without the send interface, which somebody has deleted: it does not come back, and
    /// would be told of for ever.
    fn lose(&self, interface: &SendInterface, error: &io::Error) {
        // Where it cannot be taken out, it is not in.
        let _ = self.events.remove(interface.as_fd());
        if !self.shared.send_interface_gone.swap(true, Ordering::Relaxed) {
            let name = interface.name();
            eprintln!(
                "horolog: the send interface '{name}' is gone ({error}); restart the relay to have \
                 it again"
            );
        }
    }

    /// Has the kernel's body make the copies of a frame, or the engine. What is not for a group is
    /// nothing to a relay: the kernel sends its own by any interface.
    fn hand_over(&mut self, interface: &SendInterface, frame: &[u8]) {
        let (plan, own) = (self.shared.plan.load(), self.shared.own.load());
        let Ok(udp) = UdpFrame::parse(frame) else { return };
        let to = udp.destination;
        let mut groups = plan.table.groups().iter().zip(&plan.outlets);
        let Some((group, outlet)) = groups.find(|(_, outlet)| outlet.listen == to) else { return };
        if let (Some(kernel), Some(length)) = (&self.shared.kernel, plain_length(frame, &udp))
            && kernel.takes(to, length, || interface.put_in(frame).is_ok())
        {
            return;
        }
        let packet = Packet {
            source: udp.source,
            destination: to,
            to_group: to.ip().is_multicast(),
            // Only a multicast group's packets come this way, and theirs begin anew.
            hop_limit: None,
            payload: udp.payload.len(),
        };
        group.book.received(udp.payload.len());
        let decided = decide(&plan.table, &own, &mut self.limits, &packet, now_ns());
        let copies = match decided {
            Ok(copies) => copies,
            Err(refusal) => return group.book.refused(refusal),
        };
        let can_send = outlet.set_hop_limit(copies.hop_limit).map_err(|_| Drop::Other);
        let mut copies = copies.children().filter_map(|(child, admitted)| {
            let admitted = admitted.and(can_send);
            admitted.map_err(|reason| child.book.dropped(reason)).ok()?;
            Some(Outbound { bytes: udp.payload, child })
        });
        self.engine.send(outlet.socket(), &mut copies);
    }

    fn relay(&mut self, outlet: &Outlet, count: usize) {
        let (plan, own) = (self.shared.plan.load(), self.shared.own.load());
        let mut pass = Pass {
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
        while let Some(hop_limit) = pass.begin_run() {
            match outlet.set_hop_limit(hop_limit) {
                Ok(()) => self.engine.send(outlet.socket(), &mut Run(&mut pass, hop_limit)),
                Err(_) => {
                    Run(&mut pass, hop_limit).for_each(|copy| copy.child.book.dropped(Drop::Other));
                }
            }
        }
    }
}

/// Now, on the clock of the kernel's body, which charges the same limits.
fn now_ns() -> u64 {
    MonotonicClock.now().as_ns() as u64
}

/// The way through the packets of one call and the children of each.
struct Pass<'a> {
    plan: &'a Plan,
    own: &'a Own,
    limits: &'a mut Limits,
    receiver: &'a Receiver,
    outlet: &'a Outlet,
    now_ns: u64,
    /// Packets not yet decided upon.
    slots: std::ops::Range<usize>,
    current: Option<(Copies<'a>, &'a [u8])>,
    /// The child of the current packet whose turn it is.
    child: usize,
}

impl<'a> Pass<'a> {
    /// The hop limit of what is to be sent next, if there is something.
    fn begin_run(&mut self) -> Option<u8> {
        if self.current.is_none() {
            self.current = self.decide_next();
            self.child = 0;
        }
        self.current.map(|(copies, _)| copies.hop_limit)
    }

    /// The next packet that is to be relayed; those that are not are noted.
    fn decide_next(&mut self) -> Option<(Copies<'a>, &'a [u8])> {
        loop {
            let slot = self.slots.next()?;
            let (packet, bytes) = self.receiver.packet(self.outlet, slot);
            let table = &self.plan.table;
            let decided = decide(table, self.own, self.limits, &packet, self.now_ns);
            // It stands in the book of the group at whose socket it came in.
            let book = table.find(self.outlet.listen).map(|group| &group.book);
            if let Some(book) = book {
                book.received(bytes.len());
            }
            match (decided, book) {
                (Ok(copies), _) => return Some((copies, bytes)),
                (Err(refusal), Some(book)) => book.refused(refusal),
                // Its group was taken away while it came.
                (Err(_), None) => {}
            }
        }
    }
}

/// The copies of as many packets as leave with one hop limit.
struct Run<'a, 'b>(&'b mut Pass<'a>, u8);

impl<'a> Iterator for Run<'a, '_> {
    type Item = Outbound<'a>;

    fn next(&mut self) -> Option<Outbound<'a>> {
        let Self(pass, hop_limit) = self;
        loop {
            if pass.begin_run()? != *hop_limit {
                return None;
            }
            let (copies, bytes) = pass.current?;
            match copies.group.children.get(pass.child) {
                None => pass.current = None,
                Some(child) => {
                    pass.child += 1;
                    match child.admits(bytes.len()) {
                        Ok(()) => return Some(Outbound { bytes, child }),
                        Err(reason) => child.book.dropped(reason),
                    }
                }
            }
        }
    }
}
