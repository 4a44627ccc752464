//! Changes of the system that this process must undo, even if it ends without unwinding, as after a
//! second Ctrl-C. After `SIGKILL` nothing is undone; for that case use resources that end with
//! their descriptor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type UndoAction = Arc<dyn Fn() + Send + Sync>;

/// Actions that undo the present changes, oldest change first.
static PENDING: Mutex<Vec<UndoAction>> = Mutex::new(Vec::new());

fn lock_pending() -> MutexGuard<'static, Vec<UndoAction>> {
    // A panic cannot leave the list inconsistent.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard of a change; dropping it undoes the change.
pub struct UndoGuard(UndoAction);

impl UndoGuard {
    /// Makes a change that `undo` reverts. If the change fails, there is nothing to undo.
    pub fn after_change<T, E>(
        change: impl FnOnce() -> Result<T, E>,
        undo: impl Fn() + Send + Sync + 'static,
    ) -> Result<(T, Self), E> {
        // The list stays locked during the change, so that none is made while the process ends.
        let mut pending = lock_pending();
        let made = change()?;
        let action: UndoAction = Arc::new(undo);
        pending.push(Arc::clone(&action));
        Ok((made, Self(action)))
    }
}

impl Drop for UndoGuard {
    fn drop(&mut self) {
        lock_pending().retain(|action| !Arc::ptr_eq(action, &self.0));
        (self.0)();
    }
}

impl std::fmt::Debug for UndoGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UndoGuard(..)")
    }
}

/// Undoes all changes, newest first, and ends the process. Other threads can make no further
/// changes.
pub fn exit(status: i32) -> ! {
    let mut pending = lock_pending();
    undo_all(&mut pending);
    std::process::exit(status)
}

fn undo_all(pending: &mut Vec<UndoAction>) {
    while let Some(action) = pending.pop() {
        action();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for all of it, since there is one list for the process.
    #[test]
    fn each_change_is_put_back_once_and_the_newest_first() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let change = |name: &'static str| {
            let log = Arc::clone(&log);
            let back = move || log.lock().unwrap().push(name);
            UndoGuard::after_change(|| Ok::<_, ()>(()), back).unwrap().1
        };
        let (first, second, third) = (change("first"), change("second"), change("third"));
        drop(second);
        assert_eq!(*log.lock().unwrap(), ["second"]);
        undo_all(&mut lock_pending());
        assert_eq!(*log.lock().unwrap(), ["second", "third", "first"]);
        // Those that were put back by then do it once more where they are dropped after all.
        drop((first, third));
        let failed = UndoGuard::after_change(|| Err::<(), _>("no"), || unreachable!());
        assert!(failed.is_err() && lock_pending().is_empty());
    }
}
