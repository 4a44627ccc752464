//! Program that runs as long as a value exists. It is killed when the value is dropped and when the
//! thread that started it ends, in whatever way.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::namespace::die_with_parent;

/// Interval at which a waiting thread checks whether a program is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reason for which a program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunningProgramError {
    /// The program could not be started, or its state could not be read.
    #[error("cannot run '{program}': {source}")]
    System {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The program exited before it was ready.
    #[error("{words}")]
    Exited {
        /// Last line of its standard error, or a statement that there was none.
        words: String,
    },
    /// The program was not ready in time.
    #[error("'{program}' was not ready within {} s", timeout.as_secs_f64())]
    NotReady {
        /// Name of the program.
        program: String,
        /// The timeout.
        timeout: Duration,
    },
}

/// Running program; dropping it kills the program and waits for its exit.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    program: String,
}

impl RunningProgram {
    /// Starts a program without input and output; its standard error is captured for
    /// [`RunningProgramError::Exited`]. See [`die_with_parent`] about the thread that may call
    /// this.
    pub fn start(command: &mut Command) -> Result<Self, RunningProgramError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match die_with_parent(command).spawn() {
            Ok(child) => Ok(Self { child, program }),
            Err(source) => Err(RunningProgramError::System { program, source }),
        }
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `is_ready` returns true, and returns the duration of the wait.
    pub fn await_ready(
        &mut self,
        timeout: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Duration, RunningProgramError> {
        let started = Instant::now();
        while !is_ready() {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) => {
                    return Err(RunningProgramError::Exited { words: self.last_error_line() });
                }
                Err(source) => {
                    return Err(RunningProgramError::System {
                        program: self.program.clone(),
                        source,
                    });
                }
            }
            if started.elapsed() > timeout {
                return Err(RunningProgramError::NotReady {
                    program: self.program.clone(),
                    timeout,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(started.elapsed())
    }

    /// Returns the exit status and the last line of standard error, if the program has exited by
    /// itself.
    pub fn exit_status(&mut self) -> Option<(ExitStatus, String)> {
        // A program with an unreadable state counts as running: it is killed on drop.
        let status = self.child.try_wait().ok().flatten()?;
        Some((status, self.last_error_line()))
    }

    fn last_error_line(&mut self) -> String {
        let mut output = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Output that cannot be read counts as absent.
            let _ = stderr.read_to_string(&mut output);
        }
        match output.lines().last() {
            Some(line) => line.to_owned(),
            None => format!("'{}' ended without output", self.program),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // If the program has already exited, this fails, which is harmless.
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
        assert_eq!(running.exit_status(), None);
        let kill = Command::new("kill").arg(running.pid().to_string()).status().unwrap();
        assert!(kill.success());
        while running.exit_status().is_none() {
            thread::sleep(POLL_INTERVAL);
        }
        let (status, words) = running.exit_status().unwrap();
        assert_eq!((status.code(), &*words), (None, "'sleep' ended without output"));
    }

    #[test]
    fn a_program_goes_with_its_value() {
        let mut running = RunningProgram::start(Command::new("sleep").arg("1000")).unwrap();
        let process = format!("/proc/{}", running.pid());
        assert!(running.await_ready(Duration::from_secs(1), || true).is_ok());
        let error = running.await_ready(Duration::from_millis(10), || false).unwrap_err();
        assert!(matches!(error, RunningProgramError::NotReady { .. }));
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
