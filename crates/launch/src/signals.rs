//! Signals that end a wait. They are blocked; a thread waits for them, notifies the waiting thread
//! and interrupts its sleep.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender as Channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use horolog_sys::signal::{BlockedSignals, InterruptibleThread, Signal, SignalOrigin, is_ignored};

/// Pause before a sleeping thread is interrupted again.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(1);

/// Signals that end a wait.
const TERMINATING_SIGNALS: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

/// Caught signal and its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaughtSignal {
    /// Signal that was caught.
    pub signal: Signal,
    /// Sender of the signal: the kernel, for example by a key of the terminal, or a process.
    pub sender: SignalOrigin,
}

/// State shared by the signal thread and the sleeping thread.
#[derive(Debug)]
struct SignalWatcherState {
    caught: Mutex<Option<CaughtSignal>>,
    is_sleeping: AtomicBool,
    sleeper: InterruptibleThread,
}

/// Watcher of the signals that end a wait.
#[derive(Debug)]
pub(crate) struct SignalWatcher {
    shared: Arc<SignalWatcherState>,
}

impl SignalWatcher {
    /// Blocks the signals, except those that this process was started to ignore, and starts a
    /// thread that waits for them and sends each as `to_event` converts it. The calling thread is
    /// the one whose sleep can be interrupted. Must be called before any thread is started.
    pub(crate) fn watch<T: Send + 'static>(
        to: Channel<T>,
        to_event: impl Fn(CaughtSignal) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let watched =
            TERMINATING_SIGNALS.into_iter().filter(|signal| !is_ignored(*signal).unwrap_or(false));
        let blocked = BlockedSignals::block(&watched.collect::<Vec<_>>())?;
        let shared = Arc::new(SignalWatcherState {
            caught: Mutex::new(None),
            is_sleeping: AtomicBool::new(false),
            sleeper: InterruptibleThread::current()?,
        });
        let state = Arc::clone(&shared);
        let wait = move || {
            loop {
                let Ok(Some((signal, sender))) = blocked.wait_for_sender(Duration::from_hours(1))
                else {
                    continue;
                };
                let caught = CaughtSignal { signal, sender };
                state.caught.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(caught);
                // The receiver is gone if the wait is over.
                let _ = to.send(to_event(caught));
                state.interrupt_sleeper();
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Self { shared })
    }

    /// Returns the first caught signal, if any.
    #[must_use]
    pub(crate) fn caught(&self) -> Option<CaughtSignal> {
        *self.shared.caught.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `sleep`, which must return on EINTR. Returns `None` if a signal was caught before or
    /// during it.
    pub(crate) fn sleep<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        // From here on the signal thread interrupts this one, until the flag is cleared.
        self.shared.is_sleeping.store(true, Ordering::SeqCst);
        let slept = self.caught().is_none().then(sleep);
        self.shared.is_sleeping.store(false, Ordering::SeqCst);
        slept.filter(|_| self.caught().is_none())
    }
}

impl SignalWatcherState {
    fn interrupt_sleeper(&self) {
        while self.is_sleeping.load(Ordering::SeqCst) {
            if !self.sleeper.interrupt().unwrap_or(false) {
                return;
            }
            thread::sleep(INTERRUPT_INTERVAL);
        }
    }
}
