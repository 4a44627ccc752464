//! Signals that end a wait: they are kept back, and a thread waits for them and tells whoever
//! waits. One that sleeps by a clock is called out of its sleep.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender as Channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use horolog_sys::signal::{BlockedSignals, InterruptibleThread, Sender, Signal, is_ignored};

/// How long the sleeper may take to notice, before it is called once more.
const REPEAT: Duration = Duration::from_millis(1);

/// The signals that end a wait.
const ENDING: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

/// A signal that came, and who sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    /// Which.
    pub signal: Signal,
    /// Who sent it.
    pub sender: Sender,
}

/// What the thread of the signals and the one that sleeps share.
#[derive(Debug)]
struct Shared {
    came: Mutex<Option<Came>>,
    asleep: AtomicBool,
    sleeper: InterruptibleThread,
}

/// Signals that come from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    shared: Arc<Shared>,
}

impl Signals {
    /// Keeps them back, but those that this process was started to ignore, and has a thread wait
    /// for them, which gives each to `tell`. The calling thread is the one that can be called out
    /// of its sleep. Call it before any thread is started.
    pub(crate) fn watch<T: Send + 'static>(
        to: Channel<T>,
        tell: impl Fn(Came) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let taken = ENDING.into_iter().filter(|signal| !is_ignored(*signal).unwrap_or(false));
        let blocked = BlockedSignals::block(&taken.collect::<Vec<_>>())?;
        let shared = Arc::new(Shared {
            came: Mutex::new(None),
            asleep: AtomicBool::new(false),
            sleeper: InterruptibleThread::current()?,
        });
        let told = Arc::clone(&shared);
        let wait = move || {
            loop {
                let Ok(Some((signal, sender))) = blocked.wait_for_sender(Duration::from_hours(1))
                else {
                    continue;
                };
                let came = Came { signal, sender };
                told.came.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(came);
                // Nobody listens any more where the wait is over.
                let _ = to.send(tell(came));
                told.call();
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Self { shared })
    }

    /// The first one that came, if any.
    #[must_use]
    pub(crate) fn came(&self) -> Option<Came> {
        *self.shared.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, by a function that a signal handler ends, unless a signal came or comes. Gives
    /// nothing where one did.
    pub(crate) fn sleep<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        // From here on it is called, until it says that it is awake.
        self.shared.asleep.store(true, Ordering::SeqCst);
        let slept = self.came().is_none().then(sleep);
        self.shared.asleep.store(false, Ordering::SeqCst);
        slept.filter(|_| self.came().is_none())
    }
}

impl Shared {
    fn call(&self) {
        while self.asleep.load(Ordering::SeqCst) {
            if !self.sleeper.interrupt().unwrap_or(false) {
                return;
            }
            thread::sleep(REPEAT);
        }
    }
}
