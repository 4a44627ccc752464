//! Ping-pong of the calling thread with a peer process or thread: the caller passes the turn, waits
//! until it returns, and so on, by `sched_yield`, a pipe, a futex or an eventfd. The caller
//! measures the cost of a turn.

mod channel;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::affinity::{self, RealTimeSchedulingOutcome};
use crate::descriptor::check;

use channel::HandoffChannel;
pub use channel::HandoffMechanism;

/// Longest time for a peer to start or end on a busy machine.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Kind of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// Process with its own address space.
    Process,
    /// Thread of this process.
    Thread,
}

/// Core and scheduling of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPlacement {
    /// Core to which the peer is pinned.
    pub core: usize,
    /// Real-time priority; `None` for a sched-other peer.
    pub priority: Option<u8>,
}

/// Running peer; dropping it ends the peer.
#[derive(Debug)]
pub struct PingPongPeer {
    channel: Arc<HandoffChannel>,
    running: RunningPeer,
}

#[derive(Debug)]
enum RunningPeer {
    Process(Pid),
    Thread(Option<JoinHandle<()>>),
}

impl PingPongPeer {
    /// Starts a peer and waits until it is ready. The caller must not spin on the peer's core with
    /// real-time priority in the meantime.
    ///
    /// # Errors
    ///
    /// If no process, thread or descriptor is available, or the placement is refused.
    pub fn start(
        kind: PeerKind,
        mechanism: HandoffMechanism,
        placement: PeerPlacement,
    ) -> io::Result<Self> {
        let channel = Arc::new(HandoffChannel::open(mechanism, kind == PeerKind::Thread)?);
        let running = match kind {
            PeerKind::Process => RunningPeer::Process(fork(&channel, placement)?),
            PeerKind::Thread => {
                let theirs = Arc::clone(&channel);
                let work = move || run_peer(&theirs, placement);
                RunningPeer::Thread(Some(thread::Builder::new().name("peer".into()).spawn(work)?))
            }
        };
        let peer = Self { channel, running };
        let started = Instant::now();
        loop {
            if let Some(outcome) = peer.channel.readiness() {
                return outcome.map(|()| peer);
            }
            if started.elapsed() > PEER_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not start"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Passes the turn to the peer and waits until it returns. With `sched_yield` this only yields,
    /// and the scheduler decides whether the peer runs.
    ///
    /// # Errors
    ///
    /// `Interrupted` if a signal ended the wait; the turn is then incomplete, and no further one
    /// may follow.
    #[inline]
    pub fn turn(&self) -> io::Result<()> {
        self.channel.turn()
    }
}

impl Drop for PingPongPeer {
    fn drop(&mut self) {
        self.channel.stop();
        match &mut self.running {
            RunningPeer::Process(pid) => reap(*pid),
            RunningPeer::Thread(thread) => {
                if let Some(thread) = thread.take() {
                    // The readiness of the peer has already reported errors.
                    let _ = thread.join();
                }
            }
        }
    }
}

/// Handoff without a peer: the system calls of one side of a turn, which are the part of the cost
/// that is not the context switch.
#[derive(Debug)]
pub struct PeerlessHandoff(HandoffChannel);

impl PeerlessHandoff {
    /// Opens the descriptors of the calls.
    ///
    /// # Errors
    ///
    /// If no descriptor is available.
    pub fn open(mechanism: HandoffMechanism, kind: PeerKind) -> io::Result<Self> {
        HandoffChannel::open(mechanism, kind == PeerKind::Thread).map(Self)
    }

    /// Makes the system calls of one side: passing the turn without a peer, and finding that it is
    /// the turn of this side.
    ///
    /// # Errors
    ///
    /// `Interrupted` by a signal.
    #[inline]
    pub fn call(&self) -> io::Result<()> {
        self.0.baseline_calls()
    }
}

/// Entry function of the peer process or thread.
fn run_peer(channel: &HandoffChannel, placement: PeerPlacement) {
    let settled = apply_placement(placement);
    channel.report_readiness(settled.as_ref().err().map(|error| error.raw_os_error().unwrap_or(0)));
    if settled.is_ok() {
        channel.serve_turns();
    }
}

fn apply_placement(placement: PeerPlacement) -> io::Result<()> {
    affinity::pin_to_core(placement.core)?;
    match placement.priority.map(|priority| affinity::try_real_time(priority.into())) {
        Some(RealTimeSchedulingOutcome::Unchanged(error)) => Err(error),
        Some(RealTimeSchedulingOutcome::RealTime) | None => Ok(()),
    }
}

/// Forks a child that runs the peer and ends with the thread that created it.
fn fork(channel: &HandoffChannel, placement: PeerPlacement) -> io::Result<Pid> {
    let parent = std::process::id();
    // SAFETY: the child makes nothing but system calls and accesses to memory that was there
    // before: it does not allocate, takes no lock and ends by `_exit`, so it is of no matter in
    // what state other threads were.
    let pid = check(unsafe { libc::fork() })?;
    if let Some(pid) = Pid::from_raw(pid) {
        return Ok(pid);
    }
    // A child that loses its parent before this call finds that it has another one.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if parent_id() == parent {
        run_peer(channel, placement);
    }
    // SAFETY: ends this process without running anything else in it.
    unsafe { libc::_exit(0) }
}

/// Waits for a child after a stop request; kills it after [`PEER_TIMEOUT`].
fn reap(pid: Pid) {
    let started = Instant::now();
    let mut killed = false;
    loop {
        if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
            return;
        }
        if !killed && started.elapsed() > PEER_TIMEOUT {
            // It was not reaped, so the number is still its own.
            let _ = kill_process(pid, Signal::KILL);
            killed = true;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Ends of a pipe or eventfd, for reading and for writing.
type ReadAndWriteEnds = (OwnedFd, OwnedFd);

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [HandoffMechanism; 4] = [
        HandoffMechanism::Yield,
        HandoffMechanism::Pipe,
        HandoffMechanism::Futex,
        HandoffMechanism::EventFd,
    ];

    /// On one core and in threads of their own, since they are tied to it.
    #[test]
    fn turns_are_taken_with_each_kind_of_peer() {
        thread::spawn(|| {
            let core = affinity::allowed_cores().unwrap()[0];
            affinity::pin_to_core(core).unwrap();
            for way in WAYS {
                for kind in [PeerKind::Process, PeerKind::Thread] {
                    let placement = PeerPlacement { core, priority: None };
                    let peer = PingPongPeer::start(kind, way, placement).unwrap();
                    for _ in 0..50 {
                        peer.turn().unwrap();
                    }
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_baseline_waits_for_no_peer() {
        for way in WAYS {
            for kind in [PeerKind::Process, PeerKind::Thread] {
                let alone = PeerlessHandoff::open(way, kind).unwrap();
                (0..50).for_each(|_| alone.call().unwrap());
            }
        }
    }

    #[test]
    fn an_impossible_placement_is_refused() {
        let placement = PeerPlacement { core: 8_191, priority: None };
        for kind in [PeerKind::Process, PeerKind::Thread] {
            assert!(PingPongPeer::start(kind, HandoffMechanism::Pipe, placement).is_err());
        }
    }
}
