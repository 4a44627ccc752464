//! Capture of a port's TCP segments by a packet socket in a thread of its own. Only headers are
//! captured, and only the state in [`TrackedConnections`] is stored.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::ClockRealtime;
use horolog_sys::filter::BpfInstruction;
use horolog_sys::message::MmsghdrTable;
use horolog_sys::packet;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Timestamp, Utc};

use super::flow::TrackedConnections;
use super::segment::TcpSegment;

/// Capture length: bytes of a frame that include all headers.
const SNAP_LEN: usize = 160;
const BATCH_PACKETS: usize = 64;
const BUFFER_BYTES: usize = 8 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Running capture; dropping it stops the thread.
pub(super) struct RunningStallCapture {
    flows: Arc<Mutex<TrackedConnections>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl RunningStallCapture {
    /// Starts a capture on an interface (index; 0 for all) that adds segments to `flows`.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub(super) fn start(interface: u32, port: u16, flows: TrackedConnections) -> io::Result<Self> {
        let socket = packet::open()?;
        // On loopback each packet would be captured twice, outgoing and incoming.
        if packet::interface_index("lo").is_ok_and(|lo| lo == interface) {
            packet::ignore_outgoing(&socket)?;
        }
        socket.attach_filter(&port_filter(port))?;
        socket.set_receive_buffer(BUFFER_BYTES)?;
        socket.enable_frame_timestamps(false)?;
        packet::bind(&socket, interface, Some(packet::ANY_PROTOCOL))?;
        let (flows, over) = (Arc::new(Mutex::new(flows)), Arc::new(AtomicBool::new(false)));
        let (thread_flows, thread_is_over) = (Arc::clone(&flows), Arc::clone(&over));
        let work = move || capture_packets(&socket, &thread_flows, &thread_is_over);
        let thread = thread::Builder::new().name("stall-packets".to_owned()).spawn(work)?;
        Ok(Self { flows, is_over: over, thread: Some(thread) })
    }

    /// Calls a function with the present state of the connections.
    pub(super) fn with_flows<T>(&self, work: impl FnOnce(&mut TrackedConnections) -> T) -> T {
        // A thread that panicked has reported it; the state remains usable.
        work(&mut self.flows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops the capture; returns the number of packets that the kernel dropped before they were
    /// read.
    pub(super) fn finish(&mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for RunningStallCapture {
    fn drop(&mut self) {
        self.finish();
    }
}

fn capture_packets(
    socket: &DatagramSocket,
    flows: &Mutex<TrackedConnections>,
    over: &AtomicBool,
) -> u64 {
    let mut table = MmsghdrTable::new(BATCH_PACKETS);
    let mut buffers = vec![[0_u8; SNAP_LEN]; BATCH_PACKETS];
    loop {
        // Read first, so that packets which arrived before the stop are still processed.
        let is_over = over.load(Ordering::Relaxed);
        // A failed socket, for example after its interface went down, yields no more packets.
        let is_readable =
            socket.wait_readable(if is_over { Duration::ZERO } else { POLL_INTERVAL });
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
            let at = received.control.received_at.unwrap_or_else(|| ClockRealtime.now());
            if let Some(segment) = TcpSegment::parse(frame) {
                flows.add_segment(&segment, unix_ns(at));
            }
        }
    }
    packet::statistics(socket).map_or(0, |counts| counts.dropped.into())
}

fn unix_ns(at: Timestamp<Utc>) -> u64 {
    u64::try_from(at.as_ns()).unwrap_or(0)
}

/// Returns a BPF program that passes the headers of TCP segments from and to a port, over IPv4 and
/// IPv6 without extension headers. The kernel has stripped VLAN tags.
fn port_filter(port: u16) -> Vec<BpfInstruction> {
    let port = u32::from(port);
    let snap_len = SNAP_LEN as u32;
    vec![
        BpfInstruction::load_half(12),
        BpfInstruction::jump_if_equal(0x0800, 0, 7),
        BpfInstruction::load_byte(23),
        BpfInstruction::jump_if_equal(6, 0, 13),
        BpfInstruction::load_index_ipv4_length(14),
        BpfInstruction::load_half_indexed(14),
        BpfInstruction::jump_if_equal(port, 9, 0),
        BpfInstruction::load_half_indexed(16),
        BpfInstruction::jump_if_equal(port, 7, 8),
        BpfInstruction::jump_if_equal(0x86dd, 0, 7),
        BpfInstruction::load_byte(20),
        BpfInstruction::jump_if_equal(6, 0, 5),
        BpfInstruction::load_half(54),
        BpfInstruction::jump_if_equal(port, 2, 0),
        BpfInstruction::load_half(56),
        BpfInstruction::jump_if_equal(port, 0, 1),
        BpfInstruction::finish(snap_len),
        BpfInstruction::finish(0),
    ]
}
