//! Changes of this process to the machine that it must undo, even if it ends without unwinding its
//! stacks, as after a second Ctrl-C. A signal that cannot be caught (`SIGKILL`) is beyond this: for
//! that, use resources that vanish with their descriptor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type UndoAction = Arc<dyn Fn() + Send + Sync>;

/// Changes to undo at present, the oldest first.
static PENDING: Mutex<Vec<UndoAction>> = Mutex::new(Vec::new());

fn pending() -> MutexGuard<'static, Vec<UndoAction>> {
    // The list is consistent between any two of its own operations.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Change that was made; dropping it undoes it.
pub struct Undo(UndoAction);

impl Undo {
    /// Makes a change, which `back` undoes. Nothing is left to undo if it fails.
    pub fn after<T, E>(
        change: impl FnOnce() -> Result<T, E>,
        back: impl Fn() + Send + Sync + 'static,
    ) -> Result<(T, Self), E> {
        // The list stays locked meanwhile: a process that is ending makes no more changes.
        let mut pending = pending();
        let made = change()?;
        let action: UndoAction = Arc::new(back);
        pending.push(Arc::clone(&action));
        Ok((made, Self(action)))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        pending().retain(|action| !Arc::ptr_eq(action, &self.0));
        (self.0)();
    }
}

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Undo(..)")
    }
}

/// Undoes all changes, the newest first, and ends the process. Other threads can make no such
/// change in between.
pub fn exit(status: i32) -> ! {
    let mut pending = pending();
    put_back(&mut pending);
    std::process::exit(status)
}

fn put_back(pending: &mut Vec<UndoAction>) {
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
            Undo::after(|| Ok::<_, ()>(()), back).unwrap().1
        };
        let (first, second, third) = (change("first"), change("second"), change("third"));
        drop(second);
        assert_eq!(*log.lock().unwrap(), ["second"]);
        put_back(&mut pending());
        assert_eq!(*log.lock().unwrap(), ["second", "third", "first"]);
        // Those that were put back by then do it once more where they are dropped after all.
        drop((first, third));
        let failed = Undo::after(|| Err::<(), _>("no"), || unreachable!());
        assert!(failed.is_err() && pending().is_empty());
    }
}
