//! A program that runs as long as it is needed: it ends with the value that represents it, and with
//! the thread that started it, however that ends.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::namespace::die_with_parent;

/// Interval between two checks of whether a program is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reason why a program is not usable.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// It could not be started, or its state could not be read.
    #[error("cannot run '{program}': {source}")]
    System {
        /// The program.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// It ended before it was ready.
    #[error("{words}")]
    Ended {
        /// Its last line on standard error, or a statement that there was none.
        words: String,
    },
    /// It was not ready in time.
    #[error("'{program}' was not ready within {} s", timeout.as_secs_f64())]
    NotReady {
        /// The program.
        program: String,
        /// The timeout.
        timeout: Duration,
    },
}

/// A running program; dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    program: String,
}

impl RunningProgram {
    /// Starts a program without input and output; its standard error is stored for
    /// [`RunningError::Ended`]. See [`die_with_parent`] about the thread to call this from.
    pub fn start(command: &mut Command) -> Result<Self, RunningError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match die_with_parent(command).spawn() {
            Ok(child) => Ok(Self { child, program }),
            Err(source) => Err(RunningError::System { program, source }),
        }
    }

    /// Its process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` returns true and returns the time that this took.
    pub fn await_ready(
        &mut self,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Duration, RunningError> {
        let begun = Instant::now();
        while !ready() {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) => return Err(RunningError::Ended { words: self.last_words() }),
                Err(source) => {
                    return Err(RunningError::System { program: self.program.clone(), source });
                }
            }
            if begun.elapsed() > timeout {
                return Err(RunningError::NotReady { program: self.program.clone(), timeout });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(begun.elapsed())
    }

    /// Its exit status and last line on standard error, if it has ended by itself.
    pub fn ended(&mut self) -> Option<(ExitStatus, String)> {
        // A program whose state cannot be read counts as running: dropping it kills it anyway.
        let status = self.child.try_wait().ok().flatten()?;
        Some((status, self.last_words()))
    }

    fn last_words(&mut self) -> String {
        let mut words = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Output that cannot be read counts as absent.
            let _ = stderr.read_to_string(&mut words);
        }
        match words.lines().last() {
            Some(line) => line.to_owned(),
            None => format!("'{}' ended without output", self.program),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Failing is fine if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_too_early_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo 'no such clock' >&2; exit 3"]);
        let mut running = RunningProgram::start(&mut command).unwrap();
        let error = running.await_ready(Duration::from_secs(10), || false).unwrap_err();
        assert_eq!(error.to_string(), "no such clock");
    }

    #[test]
    fn a_program_that_ends_later_is_detected() {
        let mut running = RunningProgram::start(Command::new("sleep").arg("1000")).unwrap();
        assert_eq!(running.ended(), None);
        let kill = Command::new("kill").arg(running.pid().to_string()).status().unwrap();
        assert!(kill.success());
        while running.ended().is_none() {
            thread::sleep(POLL_INTERVAL);
        }
        let (status, words) = running.ended().unwrap();
        assert_eq!((status.code(), &*words), (None, "'sleep' ended without output"));
    }

    #[test]
    fn a_program_goes_with_its_value() {
        let mut running = RunningProgram::start(Command::new("sleep").arg("1000")).unwrap();
        let process = format!("/proc/{}", running.pid());
        assert!(running.await_ready(Duration::from_secs(1), || true).is_ok());
        let error = running.await_ready(Duration::from_millis(10), || false).unwrap_err();
        assert!(matches!(error, RunningError::NotReady { .. }));
        assert!(std::path::Path::new(&process).exists());
        drop(running);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = RunningProgram::start(&mut Command::new("/nowhere/at-all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at-all"), "{error}");
    }
}
