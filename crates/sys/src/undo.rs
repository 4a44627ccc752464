//! What this process changed on the machine and has to put back, also when it ends without
//! unwinding its stacks, as a second Ctrl-C has it. What a signal does that cannot be caught
//! (`SIGKILL`) is beyond this: for that, hold what goes with its descriptor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Action = Arc<dyn Fn() + Send + Sync>;

/// What is to be put back at present, the oldest first.
static PENDING: Mutex<Vec<Action>> = Mutex::new(Vec::new());

fn pending() -> MutexGuard<'static, Vec<Action>> {
    // The list is whole between any two of its own operations.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that was changed; dropping it puts it back.
pub struct Undo(Action);

impl Undo {
    /// Makes a change, which `back` takes back. Nothing is left to take back if it fails.
    pub fn after<T, E>(
        change: impl FnOnce() -> Result<T, E>,
        back: impl Fn() + Send + Sync + 'static,
    ) -> Result<(T, Self), E> {
        // The list stays locked meanwhile: a process that is ending changes nothing any more.
        let mut pending = pending();
        let made = change()?;
        let action: Action = Arc::new(back);
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

/// Puts everything back that was changed, the newest first, and ends the process. Other threads can
/// change nothing of that kind in between.
pub fn exit(status: i32) -> ! {
    let mut pending = pending();
    put_back(&mut pending);
    std::process::exit(status)
}

fn put_back(pending: &mut Vec<Action>) {
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
