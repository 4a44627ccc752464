//! Where the threads of a node wait until all nodes are ready, or it is called off.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::Shared;

/// How often a thread looks whether it is to begin.
const LOOK: Duration = Duration::from_millis(1);

/// Closed until somebody says what all wait for.
pub(crate) struct Gate<T> {
    go: Mutex<Option<T>>,
    is_called_off: AtomicBool,
}

impl<T: Clone> Gate<T> {
    pub(crate) const fn new() -> Self {
        Self { go: Mutex::new(None), is_called_off: AtomicBool::new(false) }
    }

    /// Lets all through with what they were told, or calls it off where they were told nothing:
    /// otherwise they would wait for ever.
    ///
    /// # Errors
    ///
    /// The one that is given, after it was called off.
    pub(crate) fn tell(&self, told: io::Result<Option<T>>) -> io::Result<()> {
        self.is_called_off.store(!matches!(told, Ok(Some(_))), Ordering::Relaxed);
        *self.go.lock().unwrap_or_else(PoisonError::into_inner) = told?;
        Ok(())
    }

    /// Waits until all nodes are ready; `None` where it is called off.
    pub(crate) fn wait(&self, shared: Shared<'_>) -> Option<T> {
        loop {
            if let Some(go) = &*self.go.lock().unwrap_or_else(PoisonError::into_inner) {
                return Some(go.clone());
            }
            if self.is_called_off.load(Ordering::Relaxed) || shared.is_stopped() {
                return None;
            }
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::node::region_words;

    #[test]
    fn whoever_waits_is_let_through_or_called_off() {
        let words: Vec<AtomicU64> = (0..region_words(1)).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared::new(&words, 1).unwrap();
        let waited = |told: Option<io::Result<Option<u8>>>| {
            let gate = Gate::new();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| gate.wait(shared));
                thread::sleep(2 * LOOK);
                let is_well = told.is_none_or(|told| gate.tell(told).is_ok());
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
