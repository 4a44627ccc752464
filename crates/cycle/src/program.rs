//! Rust library for programs that are the work of a task; the protocol is that of [`crate::mark`].
//! A program implements [`PeriodicProgram`] and calls [`serve`]; see
//! `crates/cycle/examples/program.rs`.

use std::env;
use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixDatagram;

use horolog_sys::unix::inherited_socket;
use horolog_time::{Monotonic, Timestamp};

use crate::mark::{MARK_MAX, PeriodPhase, ProgramCommand, ProgramMark, SOCKET_VARIABLE};

/// Program that does its work once in each period.
pub trait PeriodicProgram {
    /// Does the work of one period and returns true if it succeeded. A failed period is counted as
    /// such, and the next one follows regardless.
    fn period(&mut self, period: &CurrentProgramPeriod<'_>) -> bool;
}

/// Period in progress, of a program.
#[derive(Debug)]
pub struct CurrentProgramPeriod<'a> {
    socket: &'a UnixDatagram,
    cycle: u64,
    due: Timestamp<Monotonic>,
}

impl CurrentProgramPeriod<'_> {
    /// Returns the number of the period, from 0.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Returns the instant of the period's release.
    #[must_use]
    pub const fn due(&self) -> Timestamp<Monotonic> {
        self.due
    }

    /// Marks the start of another activity; a period starts with [`PeriodPhase::Computation`].
    ///
    /// # Errors
    ///
    /// The measuring node has closed its end.
    pub fn phase(&self, phase: PeriodPhase) -> io::Result<()> {
        send_line(self.socket, ProgramMark::Phase(phase))
    }

    /// Marks the program's state from this period on; the task file lists the valid names.
    ///
    /// # Errors
    ///
    /// The measuring node has closed its end.
    pub fn state(&self, name: &str) -> io::Result<()> {
        send_line(self.socket, ProgramMark::State(name))
    }
}

/// Does the work of all periods of the task for which this program was started; returns their
/// number.
///
/// # Errors
///
/// `NotFound` if the program was not started as a task's program, `InvalidData` on an unknown
/// command, and any error of its socket.
pub fn serve(program: &mut impl PeriodicProgram) -> io::Result<u64> {
    let descriptor = env::var(SOCKET_VARIABLE).ok().and_then(|text| text.parse().ok());
    let missing_variable = || {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{SOCKET_VARIABLE} is not set; start this program as the 'program' of a task"),
        )
    };
    serve_at(&inherited_socket(descriptor.ok_or_else(missing_variable)?)?, program)
}

fn serve_at(socket: &UnixDatagram, program: &mut impl PeriodicProgram) -> io::Result<u64> {
    let mut buffer = [0; MARK_MAX];
    let mut periods = 0;
    send_line(socket, ProgramMark::Ready)?;
    loop {
        let len = socket.recv(&mut buffer)?;
        match ProgramCommand::parse(&buffer[..len]) {
            Some(ProgramCommand::Release { cycle, due_ns }) => {
                send_line(socket, ProgramMark::Begin)?;
                let period =
                    CurrentProgramPeriod { socket, cycle, due: Timestamp::from_ns(due_ns) };
                let succeeded = program.period(&period);
                send_line(socket, if succeeded { ProgramMark::End } else { ProgramMark::Failed })?;
                periods += 1;
            }
            Some(ProgramCommand::Stop) => return Ok(periods),
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn send_line(socket: &UnixDatagram, line: impl Display) -> io::Result<()> {
    socket.send(line.to_string().as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Odd(Vec<u64>);

    impl PeriodicProgram for Odd {
        fn period(&mut self, period: &CurrentProgramPeriod<'_>) -> bool {
            self.0.push(period.cycle());
            assert_eq!(period.due().as_ns(), 7);
            period.phase(PeriodPhase::Barrier).unwrap();
            period.state("wet").unwrap();
            period.cycle() % 2 == 1
        }
    }

    #[test]
    fn a_program_marks_each_release_that_it_receives() {
        let (here, there) = UnixDatagram::pair().unwrap();
        for command in ["release 4 7", "release 5 7", "stop"] {
            here.send(command.as_bytes()).unwrap();
        }
        let mut program = Odd(Vec::new());
        let periods = serve_at(&there, &mut program).unwrap();
        assert_eq!((periods, program.0), (2, vec![4, 5]));
        let mut marks = Vec::new();
        here.set_nonblocking(true).unwrap();
        let mut buffer = [0; MARK_MAX];
        while let Ok(len) = here.recv(&mut buffer) {
            marks.push(String::from_utf8(buffer[..len].to_vec()).unwrap());
        }
        let period = ["begin", "phase barrier", "state wet"];
        let all = [&["ready"][..], &period, &["end failed"], &period, &["end"]].concat();
        assert_eq!(marks, all);
    }

    #[test]
    fn a_program_started_without_a_run_returns_an_error() {
        assert_eq!(serve(&mut Odd(Vec::new())).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
