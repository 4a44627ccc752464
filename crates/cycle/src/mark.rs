//! Marks by which a program reports its activities in a period, and commands to the program: one
//! line of text in each datagram. Pure.

use std::fmt::{self, Display, Formatter};

use crate::task::STATE_MAX;

/// Environment variable with the file descriptor number of a program's socket.
pub const SOCKET_VARIABLE: &str = "HOROLOG_CYCLE_FD";
/// Longest line of either side, in bytes.
pub const MARK_MAX: usize = 128;

/// Mark by which a program reports its activity in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramMark<'a> {
    /// The program waits for its first release.
    Ready,
    /// Start of a period, with computation as the first activity.
    Begin,
    /// Start of another activity.
    Phase(PeriodPhase),
    /// State of the program from this period on.
    State(&'a str),
    /// Successful end of the period's work.
    End,
    /// End of the period's work with a failure.
    Failed,
}

/// Kind of activity in a period (equation (2) of Hao, Xue and Qin, "Performance and test method for
/// real-time parallel system", 2010).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PeriodPhase {
    /// Computing.
    Computation,
    /// Messages in transit.
    Communication,
    /// Waiting for peers that are behind.
    Idle,
    /// Synchronising with peers at a barrier.
    Barrier,
}

impl PeriodPhase {
    /// Every phase.
    pub const ALL: [Self; 4] = [Self::Computation, Self::Communication, Self::Idle, Self::Barrier];

    /// Returns the name by which marks refer to the phase.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Communication => "communication",
            Self::Idle => "idle",
            Self::Barrier => "barrier",
        }
    }
}

impl<'a> ProgramMark<'a> {
    /// Parses a datagram; `None` if it is not a mark. The line end and surrounding spaces are
    /// ignored.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok().filter(|text| text.len() <= MARK_MAX)?.trim();
        let (word, rest) = text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest));
        let rest = rest.trim();
        match (word, rest) {
            ("ready", "") => Some(Self::Ready),
            ("begin", "") => Some(Self::Begin),
            ("end", "") => Some(Self::End),
            ("end", "failed") => Some(Self::Failed),
            ("phase", name) => {
                PeriodPhase::ALL.into_iter().find(|phase| phase.name() == name).map(Self::Phase)
            }
            ("state", name) => {
                let is_name =
                    (1..=STATE_MAX).contains(&name.len()) && !name.contains(char::is_control);
                is_name.then_some(Self::State(name))
            }
            _ => None,
        }
    }
}

impl Display for ProgramMark<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Begin => f.write_str("begin"),
            Self::Phase(phase) => write!(f, "phase {}", phase.name()),
            Self::State(name) => write!(f, "state {name}"),
            Self::End => f.write_str("end"),
            Self::Failed => f.write_str("end failed"),
        }
    }
}

/// Command to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramCommand {
    /// Release of a period.
    Release {
        /// Number of the period, from 0.
        cycle: u64,
        /// Instant of the release, in ns of `CLOCK_MONOTONIC`.
        due_ns: i64,
    },
    /// End of the run: no further release follows.
    Stop,
}

impl ProgramCommand {
    /// Parses a datagram; `None` if it is not a command.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok().filter(|text| text.len() <= MARK_MAX)?;
        let mut words = text.split_ascii_whitespace();
        let mark = match words.next()? {
            "release" => {
                let (cycle, due_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                Self::Release { cycle, due_ns }
            }
            "stop" => Self::Stop,
            _ => return None,
        };
        words.next().is_none().then_some(mark)
    }
}

impl Display for ProgramCommand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { cycle, due_ns } => write!(f, "release {cycle} {due_ns}"),
            Self::Stop => f.write_str("stop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_are_read_with_a_line_end_and_without() {
        for (text, mark) in [
            (&b"ready"[..], Some(ProgramMark::Ready)),
            (b"begin\n", Some(ProgramMark::Begin)),
            (b"phase communication", Some(ProgramMark::Phase(PeriodPhase::Communication))),
            (b"state fault tolerance\n", Some(ProgramMark::State("fault tolerance"))),
            (b"end\r\n", Some(ProgramMark::End)),
            (b"end failed", Some(ProgramMark::Failed)),
            (b"", None),
            (b"end badly", None),
            (b"phase", None),
            (b"phase computing", None),
            (b"state", None),
            (b"state 0123456789abcdef0123456789abcdefx", None),
            (b"state a\nb", None),
            (b"begin 7", None),
            (b"\xff", None),
        ] {
            assert_eq!(ProgramMark::parse(text), mark, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_calmly_and_what_is_read_is_written_as_it_is_read(
            bytes in proptest::collection::vec(any::<u8>(), 0..160),
        ) {
            if let Some(mark) = ProgramMark::parse(&bytes) {
                let line = mark.to_string();
                prop_assert_eq!(ProgramMark::parse(line.as_bytes()), Some(mark));
            }
            if let Some(command) = ProgramCommand::parse(&bytes) {
                prop_assert_eq!(ProgramCommand::parse(command.to_string().as_bytes()), Some(command));
            }
        }

        #[test]
        fn releases_round_trip(cycle in any::<u64>(), due_ns in any::<i64>()) {
            let command = ProgramCommand::Release { cycle, due_ns };
            prop_assert_eq!(ProgramCommand::parse(command.to_string().as_bytes()), Some(command));
        }
    }
}
