//! The other side of [`crate::mark`]: what a program in Rust needs to be the work of a task. It
//! implements [`Program`] and calls [`serve`]; `crates/cycle/examples/program.rs` is one.

use std::env;
use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixDatagram;

use horolog_sys::unix::inherited;
use horolog_time::{Monotonic, Timestamp};

use crate::mark::{MARK_MAX, Mark, Phase, Told, VARIABLE};

/// Work that is done once in each period.
pub trait Program {
    /// Does the work of one period. What it returns is whether it went well; a period that did not
    /// is counted as failed, and the next one comes all the same.
    fn period(&mut self, period: &Period<'_>) -> bool;
}

/// A period that is worked in.
#[derive(Debug)]
pub struct Period<'a> {
    socket: &'a UnixDatagram,
    cycle: u64,
    due: Timestamp<Monotonic>,
}

impl Period<'_> {
    /// Its number, from 0 on.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// When it was released.
    #[must_use]
    pub const fn due(&self) -> Timestamp<Monotonic> {
        self.due
    }

    /// Marks what the program does from here on; a period begins with [`Phase::Computation`].
    ///
    /// # Errors
    ///
    /// When nobody measures any longer.
    pub fn phase(&self, phase: Phase) -> io::Result<()> {
        say(self.socket, Mark::Phase(phase))
    }

    /// Marks the state that the program is in from this period on; the task names those that there
    /// are.
    ///
    /// # Errors
    ///
    /// When nobody measures any longer.
    pub fn state(&self, name: &str) -> io::Result<()> {
        say(self.socket, Mark::State(name))
    }
}

/// Works through all periods of the task that this program was started for; says how many there
/// were.
///
/// # Errors
///
/// `NotFound` where it was not started as a task's program, and whatever its socket suffers from.
pub fn serve(program: &mut impl Program) -> io::Result<u64> {
    let number = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let nobody = || {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{VARIABLE} is not set: start this program as the 'program' of a task"),
        )
    };
    serve_at(&inherited(number.ok_or_else(nobody)?)?, program)
}

fn serve_at(socket: &UnixDatagram, program: &mut impl Program) -> io::Result<u64> {
    let mut buffer = [0; MARK_MAX];
    let mut periods = 0;
    say(socket, Mark::Ready)?;
    loop {
        let len = socket.recv(&mut buffer)?;
        match Told::parse(&buffer[..len]) {
            Some(Told::Release { cycle, due_ns }) => {
                say(socket, Mark::Begin)?;
                let period = Period { socket, cycle, due: Timestamp::from_ns(due_ns) };
                let went_well = program.period(&period);
                say(socket, if went_well { Mark::End } else { Mark::Failed })?;
                periods += 1;
            }
            Some(Told::Stop) => return Ok(periods),
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn say(socket: &UnixDatagram, what: impl Display) -> io::Result<()> {
    socket.send(what.to_string().as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Odd(Vec<u64>);

    impl Program for Odd {
        fn period(&mut self, period: &Period<'_>) -> bool {
            self.0.push(period.cycle());
            assert_eq!(period.due().as_ns(), 7);
            period.phase(Phase::Barrier).unwrap();
            period.state("wet").unwrap();
            period.cycle() % 2 == 1
        }
    }

    #[test]
    fn a_program_marks_each_release_that_it_is_told() {
        let (here, there) = UnixDatagram::pair().unwrap();
        for told in ["release 4 7", "release 5 7", "stop"] {
            here.send(told.as_bytes()).unwrap();
        }
        let mut program = Odd(Vec::new());
        let periods = serve_at(&there, &mut program).unwrap();
        assert_eq!((periods, program.0), (2, vec![4, 5]));
        let mut said = Vec::new();
        here.set_nonblocking(true).unwrap();
        let mut buffer = [0; MARK_MAX];
        while let Ok(len) = here.recv(&mut buffer) {
            said.push(String::from_utf8(buffer[..len].to_vec()).unwrap());
        }
        let period = ["begin", "phase barrier", "state wet"];
        let all = [&["ready"][..], &period, &["end failed"], &period, &["end"]].concat();
        assert_eq!(said, all);
    }

    #[test]
    fn a_program_that_nobody_measures_says_so() {
        assert_eq!(serve(&mut Odd(Vec::new())).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
