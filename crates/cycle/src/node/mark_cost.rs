//! Cost of a mark to the program that sends it, measured with a receiving thread instead of a
//! program.

use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_sys::thread_usage::ContextSwitches;
use horolog_sys::unix::ChildSocket;
use horolog_time::Clock;

use super::program::SOCKET_FD;
use crate::mark::MARK_MAX;

/// Longest wait of the receiving thread for one mark.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures how long a program needs to send a mark, including the wake-up of the receiving thread:
/// the median of many trials. Both threads have the core, policy and priority of this one, as a
/// program and its receiver do.
pub(crate) fn mark_ns() -> io::Result<u64> {
    let mut trials = mark_trials()?;
    if trials.iter().any(|trial| trial.is_woken) {
        trials.retain(|trial| trial.is_woken);
    }
    trials.sort_unstable_by_key(|trial| trial.duration_ns);
    Ok(trials.get(trials.len() / 2).map_or(0, |trial| trial.duration_ns))
}

/// Trial of one mark.
#[derive(Clone, Copy, Debug)]
struct MarkTrial {
    duration_ns: u64,
    /// True if the receiving thread slept and was woken by the mark.
    is_woken: bool,
}

fn mark_trials() -> io::Result<Vec<MarkTrial>> {
    const TRIALS: usize = 201;
    /// Pause in which the receiving thread falls asleep again.
    const PAUSE: Duration = Duration::from_micros(50);
    let (mut socket, program_socket) = ChildSocket::pair(&mut Command::new(""), SOCKET_FD)?;
    let (result_sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let read = move || -> io::Result<()> {
            let mut buffer = [0; MARK_MAX];
            for _ in 0..TRIALS {
                let before = ContextSwitches::now()?;
                socket.recv(&mut buffer, READ_TIMEOUT)?;
                // Sending fails only after the trials were abandoned.
                let _ = result_sender.send(ContextSwitches::now()?.since(before).voluntary > 0);
            }
            Ok(())
        };
        let reader =
            thread::Builder::new().name("mark's reader".into()).spawn_scoped(scope, read)?;
        let mut trials = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            thread::sleep(PAUSE);
            let begun = MonotonicClock.now();
            program_socket.send(b"begin")?;
            let ns = (MonotonicClock.now() - begun).as_ns().unsigned_abs();
            let Ok(woke) = receiver.recv() else { break };
            trials.push(MarkTrial { duration_ns: ns, is_woken: woke });
        }
        // The thread does not panic; if it did, the panic would continue here.
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(trials)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_mark_has_waking_its_reader_in_it() {
        let trials = mark_trials().unwrap();
        let woke = trials.iter().filter(|trial| trial.is_woken).count();
        assert!(2 * woke > trials.len(), "{woke} of {}", trials.len());
        assert!(mark_ns().unwrap() > 0);
    }
}
