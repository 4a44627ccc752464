//! A second process or thread that takes turns with the calling thread: the caller hands over,
//! waits until it is handed back, and so on. By `sched_yield`, a pipe, a futex or an eventfd. What
//! turns cost is for the caller to measure; nothing here reads a clock.

mod channel;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::affinity::{self, Scheduling};
use crate::descriptor::check;

use channel::Channel;
pub use channel::Way;

/// Time for a partner to begin or to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(200);

/// What the partner is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartnerKind {
    /// A process of its own, with an address space of its own.
    Process,
    /// A thread of this process.
    Thread,
}

/// Where and how the partner runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The core that it is tied to.
    pub core: usize,
    /// Its real-time priority; an ordinary one has none.
    pub priority: Option<u8>,
}

/// The partner, from when it is ready until it is dropped.
#[derive(Debug)]
pub struct Partner {
    channel: Arc<Channel>,
    running: Running,
}

#[derive(Debug)]
enum Running {
    Process(libc::pid_t),
    Thread(Option<JoinHandle<()>>),
}

impl Partner {
    /// Starts a partner and waits until it is ready. The caller must not spin on the partner's core
    /// in real time before that.
    ///
    /// # Errors
    ///
    /// When there is no process, thread or descriptor to be had, or the place is refused.
    pub fn start(kind: PartnerKind, way: Way, place: Place) -> io::Result<Self> {
        let channel = Arc::new(Channel::open(way, kind == PartnerKind::Thread)?);
        let running = match kind {
            PartnerKind::Process => Running::Process(fork(&channel, place)?),
            PartnerKind::Thread => {
                let theirs = Arc::clone(&channel);
                let work = move || take_part(&theirs, place);
                Running::Thread(Some(thread::Builder::new().name("partner".into()).spawn(work)?))
            }
        };
        let partner = Self { channel, running };
        let started = Instant::now();
        loop {
            if let Some(outcome) = partner.channel.readiness() {
                return outcome.map(|()| partner);
            }
            if started.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the partner did not begin"));
            }
            thread::sleep(LOOK);
        }
    }

    /// Hands over and waits until handed back. By `sched_yield` it only lets the partner run, where
    /// the scheduler agrees.
    ///
    /// # Errors
    ///
    /// `Interrupted` where a signal ended the wait: the turn is not over then, and no other one may
    /// follow.
    #[inline]
    pub fn turn(&self) -> io::Result<()> {
        self.channel.turn()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.channel.stop();
        match &mut self.running {
            Running::Process(pid) => reap(*pid),
            Running::Thread(thread) => {
                if let Some(thread) = thread.take() {
                    // It has nothing to tell that was not told by its readiness.
                    let _ = thread.join();
                }
            }
        }
    }
}

/// The system calls of one side of a turn with nobody to take it: what of a turn is no switch.
#[derive(Debug)]
pub struct Alone(Channel);

impl Alone {
    /// Opens what the calls need.
    ///
    /// # Errors
    ///
    /// When there is no descriptor to be had.
    pub fn open(way: Way, kind: PartnerKind) -> io::Result<Self> {
        Channel::open(way, kind == PartnerKind::Thread).map(Self)
    }

    /// The calls of one side: handing over, to nobody, and finding that it is this side's turn.
    ///
    /// # Errors
    ///
    /// `Interrupted` where a signal came.
    #[inline]
    pub fn call(&self) -> io::Result<()> {
        self.0.alone()
    }
}

/// What the partner does, in whatever it runs.
fn take_part(channel: &Channel, place: Place) {
    let settled = settle(place);
    channel.be_ready(settled.as_ref().err().map(|error| error.raw_os_error().unwrap_or(0)));
    if settled.is_ok() {
        channel.answer();
    }
}

fn settle(place: Place) -> io::Result<()> {
    affinity::pin_to_core(place.core)?;
    match place.priority.map(|priority| affinity::prefer_real_time(priority.into())) {
        Some(Scheduling::Ordinary(error)) => Err(error),
        Some(Scheduling::RealTime) | None => Ok(()),
    }
}

/// A child that takes part and ends with the thread that made it.
fn fork(channel: &Channel, place: Place) -> io::Result<libc::pid_t> {
    // SAFETY: no argument.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child makes nothing but system calls and accesses to memory that was there
    // before: it does not allocate, takes no lock and ends by `_exit`, so it is of no matter in
    // what state other threads were.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        // SAFETY: plain system calls with numbers. Whoever loses its parent before it asked to end
        // with it sees that it has another one.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == parent {
                take_part(channel, place);
            }
            libc::_exit(0);
        }
    }
    Ok(pid)
}

/// Waits for a child that was told to end; one that does not is killed.
fn reap(pid: libc::pid_t) {
    let started = Instant::now();
    let mut killed = false;
    loop {
        // SAFETY: a child of this process that nobody else waits for; its status is not asked for.
        let ended = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        if ended != 0 {
            return;
        }
        if !killed && started.elapsed() > PATIENCE {
            // SAFETY: as above: it was not reaped, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            killed = true;
        }
        thread::sleep(LOOK);
    }
}

/// Both ends of something that is read at one end what is written at the other.
type Ends = (OwnedFd, OwnedFd);

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Way; 4] = [Way::Yield, Way::Pipe, Way::Futex, Way::EventFd];

    /// On one core and in threads of their own, since they are tied to it.
    #[test]
    fn turns_are_taken_with_each_kind_of_partner() {
        thread::spawn(|| {
            let core = affinity::allowed_cores().unwrap()[0];
            affinity::pin_to_core(core).unwrap();
            for way in WAYS {
                for kind in [PartnerKind::Process, PartnerKind::Thread] {
                    let place = Place { core, priority: None };
                    let partner = Partner::start(kind, way, place).unwrap();
                    for _ in 0..50 {
                        partner.turn().unwrap();
                    }
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn alone_nobody_is_waited_for() {
        for way in WAYS {
            for kind in [PartnerKind::Process, PartnerKind::Thread] {
                let alone = Alone::open(way, kind).unwrap();
                (0..50).for_each(|_| alone.call().unwrap());
            }
        }
    }

    #[test]
    fn a_place_that_is_not_there_is_refused() {
        let place = Place { core: 8_191, priority: None };
        for kind in [PartnerKind::Process, PartnerKind::Thread] {
            assert!(Partner::start(kind, Way::Pipe, place).is_err());
        }
    }
}
