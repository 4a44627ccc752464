//! Start gate of a node's threads: they wait until all nodes are ready, or the start is cancelled.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::NodeSharedMemory;

/// Interval at which a waiting thread checks the gate.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Gate at which threads wait until a value is set.
pub(crate) struct StartGate<T> {
    value: Mutex<Option<T>>,
    is_cancelled: AtomicBool,
}

impl<T: Clone> StartGate<T> {
    pub(crate) const fn new() -> Self {
        Self { value: Mutex::new(None), is_cancelled: AtomicBool::new(false) }
    }

    /// Releases all threads with the value. Without a value, or on an error, cancels the start, so
    /// that no thread waits forever.
    ///
    /// # Errors
    ///
    /// The error in `start`, after the cancellation.
    pub(crate) fn release_or_cancel(&self, start: io::Result<Option<T>>) -> io::Result<()> {
        self.is_cancelled.store(!matches!(start, Ok(Some(_))), Ordering::Relaxed);
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = start?;
        Ok(())
    }

    /// Waits for the value; `None` if the start is cancelled or the run is stopped.
    pub(crate) fn wait(&self, shared: NodeSharedMemory<'_>) -> Option<T> {
        loop {
            if let Some(value) = &*self.value.lock().unwrap_or_else(PoisonError::into_inner) {
                return Some(value.clone());
            }
            if self.is_cancelled.load(Ordering::Relaxed) || shared.is_stopped() {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::node::region_words;

    #[test]
    fn waiting_threads_are_released_or_cancelled() {
        let words: Vec<AtomicU64> = (0..region_words(1)).map(|_| AtomicU64::new(0)).collect();
        let shared = NodeSharedMemory::new(&words, 1).unwrap();
        let waited = |optional_start: Option<io::Result<Option<u8>>>| {
            let gate = StartGate::new();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| gate.wait(shared));
                thread::sleep(2 * POLL_INTERVAL);
                let is_well =
                    optional_start.is_none_or(|start| gate.release_or_cancel(start).is_ok());
                (waiting.join().unwrap(), is_well)
            })
        };
        assert_eq!(waited(Some(Ok(Some(7)))), (Some(7), true));
        assert_eq!(waited(Some(Ok(None))), (None, true));
        assert_eq!(waited(Some(Err(io::ErrorKind::InvalidData.into()))), (None, false));
        shared.stop();
        assert_eq!(waited(None), (None, true));
    }
}
