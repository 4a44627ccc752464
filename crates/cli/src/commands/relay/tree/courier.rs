//! Numbered packets from one private host, and when they came to others. Nobody is woken by what
//! comes to a sink: it waits in the socket's buffer with the kernel's timestamp and is taken out
//! between packets, so that receivers cost the two or more relays beside them nothing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use horolog_lab::Host;
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, Realtime, sleep_until};
use horolog_sys::datagram::send_to;
use horolog_sys::message::MessageTable;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Span, Timestamp, Utc};

use crate::failure::Failure;
use crate::output;

/// Packets between two times of taking out.
const CHUNK: usize = 50;
/// What is on its way arrives meanwhile ...
const SETTLE: Duration = Duration::from_millis(20);
/// ... or after as many times as long, where the machine is busy with something else.
const SETTLES_MAX: usize = 25;
/// Room for several chunks of the longest packets, with the kernel's bookkeeping.
const BUFFER_BYTES: usize = 4 << 20;
const SLOTS: usize = 64;
/// Of a packet, its number and the course that it belongs to are looked at.
const HEAD_BYTES: usize = 8;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Packets that do not count, before those that do.
    pub(super) warm_up: usize,
    pub(super) packets: usize,
    pub(super) interval: Duration,
    pub(super) payload: usize,
}

/// The delays to each sink, packet by packet, in ns; none for a packet that did not come.
pub(super) type Arrivals = Vec<Vec<Option<u64>>>;

/// Where packets are to come.
pub(super) struct Sink {
    socket: Socket,
}

impl Sink {
    /// Opens one in a host.
    pub(super) fn open(host: &Host, at: SocketAddr) -> Result<Self, Failure> {
        let open = || -> io::Result<Socket> {
            let socket = Socket::udp(at)?;
            socket.set_receive_buffer(BUFFER_BYTES)?;
            socket.tell_receive_time(false)?;
            socket.bind(at)?;
            Ok(socket)
        };
        let socket = host.run(open)?.map_err(|error| failed("receive", &error))?;
        Ok(Self { socket })
    }
}

/// Who sends them, and takes them from the sinks.
pub(super) struct Courier {
    socket: Socket,
    table: MessageTable,
    heads: Box<[[u8; HEAD_BYTES]]>,
    /// Courses so far: what is left of an earlier one is known by its number.
    courses: u32,
}

impl Courier {
    /// Sends from a host.
    pub(super) fn open(host: &Host) -> Result<Self, Failure> {
        let at = SocketAddr::new(host.port().ipv4.into(), 0);
        let open = || -> io::Result<Socket> {
            let socket = Socket::udp(at)?;
            socket.bind(at)?;
            Ok(socket)
        };
        let socket = host.run(open)?.map_err(|error| failed("send", &error))?;
        let heads = vec![[0; HEAD_BYTES]; SLOTS].into_boxed_slice();
        Ok(Self { socket, table: MessageTable::new(SLOTS), heads, courses: 0 })
    }

    /// Sends a course to one address, from one core, and tells what came to the sinks. It ends
    /// early, with what there is, when the measurement is to end.
    pub(super) fn run(
        &mut self,
        to: SocketAddr,
        sinks: &[&Sink],
        course: &Course,
    ) -> Result<Arrivals, Failure> {
        thread::scope(|scope| {
            // Threads of relays, which are started from elsewhere, are free to run on any.
            let sending = scope.spawn(|| {
                let cores = affinity::allowed_cores().unwrap_or_default();
                let pinned = cores.first().map(|core| affinity::pin_to_core(*core)).transpose();
                pinned.map_err(|error| failed("send", &error))?;
                self.send(to, sinks, course)
            });
            sending
                .join()
                .unwrap_or_else(|_| Err(Failure::environment("the thread that sends has ended")))
        })
    }

    fn send(
        &mut self,
        to: SocketAddr,
        sinks: &[&Sink],
        course: &Course,
    ) -> Result<Arrivals, Failure> {
        self.courses += 1;
        let total = course.warm_up + course.packets;
        let mut packet = vec![0; course.payload.max(HEAD_BYTES)];
        packet[4..HEAD_BYTES].copy_from_slice(&self.courses.to_le_bytes());
        let mut sent_at: Vec<Timestamp<Utc>> = Vec::with_capacity(total);
        let mut arrivals = vec![vec![None; total]; sinks.len()];
        let interval = Span::from_ns(i64::try_from(course.interval.as_nanos()).unwrap_or(i64::MAX));
        while sent_at.len() < total && output::flow().is_continue() {
            let mut due = MonotonicClock.now();
            for _ in 0..CHUNK.min(total - sent_at.len()) {
                due = due + interval;
                sleep_until(due);
                packet[..4].copy_from_slice(&(sent_at.len() as u32).to_le_bytes());
                sent_at.push(Realtime.now());
                send_to(self.socket.as_fd(), &packet, to)
                    .map_err(|error| failed("send", &error))?;
            }
            for _ in 0..SETTLES_MAX {
                thread::sleep(SETTLE);
                for (sink, arrivals) in sinks.iter().zip(&mut arrivals) {
                    self.take(sink, &sent_at, arrivals)
                        .map_err(|error| failed("receive", &error))?;
                }
                if arrivals.iter().all(|came| came[..sent_at.len()].iter().all(Option::is_some)) {
                    break;
                }
            }
        }
        for arrivals in &mut arrivals {
            arrivals.truncate(sent_at.len());
            arrivals.drain(..course.warm_up.min(arrivals.len()));
        }
        Ok(arrivals)
    }

    /// Takes out what waits at a sink.
    fn take(
        &mut self,
        sink: &Sink,
        sent_at: &[Timestamp<Utc>],
        arrivals: &mut [Option<u64>],
    ) -> io::Result<()> {
        loop {
            let buffers = self.heads.iter_mut().map(|head| &mut head[..]);
            let count = match self.table.receive(sink.socket.as_fd(), buffers) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                received => received?,
            };
            for (slot, head) in self.heads.iter().enumerate().take(count) {
                let received = self.table.received(slot);
                let word = |at: usize| {
                    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
                };
                let (number, course) = (word(0) as usize, word(4));
                let known = sent_at.get(number).filter(|_| course == self.courses);
                let stamped = received.control.received_at.filter(|_| received.len == HEAD_BYTES);
                if let (Some(sent_at), Some(received_at)) = (known, stamped) {
                    // A clock that was set back meanwhile says nothing; the first copy counts.
                    let delay = u64::try_from((received_at - *sent_at).as_ns()).ok();
                    arrivals[number] = arrivals[number].or(delay);
                }
            }
        }
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::environment(format!("cannot {what} in a private host: {error}"))
}
