//! The packets of a port, taken by a packet socket in a thread of its own. Only headers are looked
//! at, and nothing is kept but what [`Flows`] makes of them.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::Realtime;
use horolog_sys::filter::Instruction;
use horolog_sys::message::MessageTable;
use horolog_sys::packet;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Timestamp, Utc};

use super::flow::Flows;
use super::segment::Segment;

/// Bytes of a frame that hold all headers.
const SNAP: usize = 160;
const SLOTS: usize = 64;
const BUFFER_BYTES: usize = 8 << 20;
const LOOK: Duration = Duration::from_millis(20);

/// A capture that runs; dropping it ends it.
pub(super) struct Capture {
    flows: Arc<Mutex<Flows>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Capture {
    /// Follows the connections of `flows` at an interface, 0 for all of them.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub(super) fn start(interface: u32, port: u16, flows: Flows) -> io::Result<Self> {
        let socket = packet::open()?;
        // Over loopback each packet would be seen twice; elsewhere both directions are wanted.
        if packet::interface_index("lo").is_ok_and(|lo| lo == interface) {
            packet::ignore_outgoing(&socket)?;
        }
        socket.attach_filter(&filter(port))?;
        socket.set_receive_buffer(BUFFER_BYTES)?;
        socket.tell_frame_times(false)?;
        packet::bind(&socket, interface, Some(packet::ANY_PROTOCOL))?;
        let (flows, over) = (Arc::new(Mutex::new(flows)), Arc::new(AtomicBool::new(false)));
        let (theirs, end) = (Arc::clone(&flows), Arc::clone(&over));
        let work = move || follow(&socket, &theirs, &end);
        let thread = thread::Builder::new().name("stall-packets".to_owned()).spawn(work)?;
        Ok(Self { flows, over, thread: Some(thread) })
    }

    /// Does something with what was found so far.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Flows) -> T) -> T {
        // A thread that panicked in the middle has said so; its numbers stand.
        work(&mut self.flows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends it; packets that were dropped before they were seen.
    pub(super) fn end(&mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

fn follow(socket: &Socket, flows: &Mutex<Flows>, over: &AtomicBool) -> u64 {
    let mut table = MessageTable::new(SLOTS);
    let mut buffers = vec![[0_u8; SNAP]; SLOTS];
    loop {
        // What came until the end is still taken.
        let is_over = over.load(Ordering::Relaxed);
        // A socket that fails, such as one whose interface goes down, has no more to say.
        let is_readable = socket.wait_readable(if is_over { Duration::ZERO } else { LOOK });
        if !matches!(is_readable, Ok(true)) {
            if is_over {
                break;
            }
            continue;
        }
        let slots = buffers.iter_mut().map(|buffer| &mut buffer[..]);
        let Ok(count) = table.receive(socket.as_fd(), slots) else { continue };
        let mut flows = flows.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, buffer) in buffers.iter().enumerate().take(count) {
            let received = table.received(slot);
            let frame = buffer.get(..received.len).unwrap_or_default();
            let at = received.control.received_at.unwrap_or_else(|| Realtime.now());
            if let Some(segment) = Segment::parse(frame) {
                flows.take(&segment, since_1970(at));
            }
        }
    }
    packet::statistics(socket).map_or(0, |counts| counts.dropped.into())
}

fn since_1970(at: Timestamp<Utc>) -> u64 {
    u64::try_from(at.as_ns()).unwrap_or(0)
}

/// A program that keeps the headers of TCP segments from and to a port, over IPv4 and IPv6. The
/// kernel takes VLAN tags off.
fn filter(port: u16) -> Vec<Instruction> {
    let port = u32::from(port);
    let keep = SNAP as u32;
    vec![
        Instruction::load_half(12),
        Instruction::jump_if_equal(0x0800, 0, 7),
        Instruction::load_byte(23),
        Instruction::jump_if_equal(6, 0, 13),
        Instruction::load_index_ipv4_length(14),
        Instruction::load_half_indexed(14),
        Instruction::jump_if_equal(port, 9, 0),
        Instruction::load_half_indexed(16),
        Instruction::jump_if_equal(port, 7, 8),
        Instruction::jump_if_equal(0x86dd, 0, 7),
        Instruction::load_byte(20),
        Instruction::jump_if_equal(6, 0, 5),
        Instruction::load_half(54),
        Instruction::jump_if_equal(port, 2, 0),
        Instruction::load_half(56),
        Instruction::jump_if_equal(port, 0, 1),
        Instruction::finish(keep),
        Instruction::finish(0),
    ]
}
