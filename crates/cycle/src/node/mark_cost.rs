//! Cost of a mark to a program. Nothing is run for it but a thread that receives marks.

use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_sys::thread_usage::ContextSwitches;
use horolog_sys::unix::ChildSocket;
use horolog_time::Clock;

use super::program::NUMBER;
use crate::mark::MARK_MAX;

/// Timeout for the reader of a trial.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures the cost of a mark to a program, including the wake-up of the waiting thread: the
/// median of many trials. Both threads have the core, the policy and the priority of this one, as
/// the program and its reader do.
pub(crate) fn mark_ns() -> io::Result<u64> {
    let mut trials = mark_trials()?;
    if trials.iter().any(|trial| trial.woke) {
        trials.retain(|trial| trial.woke);
    }
    trials.sort_unstable_by_key(|trial| trial.ns);
    Ok(trials.get(trials.len() / 2).map_or(0, |trial| trial.ns))
}

/// One mark.
#[derive(Clone, Copy, Debug)]
struct MarkTrial {
    ns: u64,
    /// True if its reader slept and was woken by it.
    woke: bool,
}

fn mark_trials() -> io::Result<Vec<MarkTrial>> {
    const TRIALS: usize = 201;
    /// Pause in which its reader falls asleep again.
    const PAUSE: Duration = Duration::from_micros(50);
    let (mut socket, there) = ChildSocket::pair(&mut Command::new(""), NUMBER)?;
    let (to, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let read = move || -> io::Result<()> {
            let mut buffer = [0; MARK_MAX];
            for _ in 0..TRIALS {
                let before = ContextSwitches::now()?;
                socket.recv(&mut buffer, READ_TIMEOUT)?;
                // Sending fails only after the trials were abandoned.
                let _ = to.send(ContextSwitches::now()?.since(before).voluntary > 0);
            }
            Ok(())
        };
        let reading =
            thread::Builder::new().name("mark's reader".into()).spawn_scoped(scope, read)?;
        let mut trials = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            thread::sleep(PAUSE);
            let begun = MonotonicClock.now();
            there.send(b"begin")?;
            let ns = (MonotonicClock.now() - begun).as_ns().unsigned_abs();
            let Ok(woke) = receiver.recv() else { break };
            trials.push(MarkTrial { ns, woke });
        }
        // The thread does not panic; if it did, the panic would continue here.
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(trials)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_mark_has_waking_its_reader_in_it() {
        let trials = mark_trials().unwrap();
        let woke = trials.iter().filter(|trial| trial.woke).count();
        assert!(2 * woke > trials.len(), "{woke} of {}", trials.len());
        assert!(mark_ns().unwrap() > 0);
    }
}
