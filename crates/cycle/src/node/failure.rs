//! Reason for the failure of a task's command or program, encoded as words of shared memory and
//! shown as a sentence. Text from a program is quoted without control characters.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::program::ProgramFailure;
use crate::task::STATE_MAX;

/// Number of words of an encoded failure: its number and the quoted text.
pub(crate) const FAILURE_WORDS: usize = 1 + QUOTE_WORDS;
const QUOTE_WORDS: usize = STATE_MAX.div_ceil(8);
/// Bit position of the kind in the failure's number; the bits below hold its detail.
const KIND_SHIFT: u32 = 48;
const STATUS: u64 = 1;
const SIGNAL: u64 = 2;
const TIMED_OUT: u64 = 3;
const NOT_STARTED: u64 = 4;
const STATE: u64 = 5;

/// Reason for the failure of a task's command or program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TaskFailure {
    /// The program is no longer usable.
    Program(ProgramFailure),
    /// The program reported this state, which the task does not list.
    State(String),
    /// The command exited with this status.
    Status(u8),
    /// The command was terminated by this signal.
    Signal(u8),
    /// The command exceeded this timeout, in ms.
    TimedOut(u64),
    /// The command could not be started, because of this system error (errno).
    NotStarted(u16),
}

impl TaskFailure {
    /// Returns the failure of a command with this exit status; `None` on success.
    pub(crate) fn from_status(status: ExitStatus) -> Option<Self> {
        let low = |number: i32| number as u8;
        match (status.code(), status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) => Some(Self::Status(low(code))),
            (None, signal) => Some(Self::Signal(low(signal.unwrap_or(0)))),
        }
    }

    /// Returns the failure of a command that was abandoned because of `error`.
    pub(crate) fn from_error(error: &io::Error, timeout: Duration) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            const MS_MAX: u64 = (1 << KIND_SHIFT) - 1;
            return Self::TimedOut(
                u64::try_from(timeout.as_millis()).unwrap_or(MS_MAX).min(MS_MAX),
            );
        }
        Self::NotStarted(error.raw_os_error().unwrap_or(0) as u16)
    }

    /// Encodes the failure as words; the first one is not 0.
    pub(crate) fn to_words(&self) -> [u64; FAILURE_WORDS] {
        let mut words = [0; FAILURE_WORDS];
        let encode = |kind: u64, number: u64| kind << KIND_SHIFT | number;
        words[0] = match self {
            Self::Program(failure) => failure.number(),
            Self::State(name) => {
                let bytes = name.as_bytes();
                for (word, bytes) in words[1..].iter_mut().zip(bytes.chunks(8)) {
                    let mut padded = [0; 8];
                    padded[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(padded);
                }
                encode(STATE, 0)
            }
            Self::Status(status) => encode(STATUS, (*status).into()),
            Self::Signal(signal) => encode(SIGNAL, (*signal).into()),
            Self::TimedOut(ms) => encode(TIMED_OUT, *ms),
            Self::NotStarted(number) => encode(NOT_STARTED, (*number).into()),
        };
        words
    }

    /// Decodes words; `None` if they encode no failure.
    pub(crate) fn from_words(words: [u64; FAILURE_WORDS]) -> Option<Self> {
        let number = words[0] & ((1 << KIND_SHIFT) - 1);
        match words[0] >> KIND_SHIFT {
            0 => ProgramFailure::from_number(number).map(Self::Program),
            STATUS => Some(Self::Status(number as u8)),
            SIGNAL => Some(Self::Signal(number as u8)),
            TIMED_OUT => Some(Self::TimedOut(number)),
            NOT_STARTED => Some(Self::NotStarted(number as u16)),
            STATE => {
                let bytes: Vec<u8> =
                    words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = String::from_utf8_lossy(&bytes);
                Some(Self::State(text.chars().filter(|c| !c.is_control()).collect()))
            }
            _ => None,
        }
    }
}

impl Display for TaskFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(failure) => failure.fmt(f),
            Self::State(name) => write!(
                f,
                "marked state '{name}' is not among the task's states; add it to the \
                 task file, as in states = [\"{name}\"]"
            ),
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "terminated by signal {signal}"),
            Self::TimedOut(ms) if ms % 1_000 == 0 => {
                write!(f, "no answer within --timeout ({} s)", ms / 1_000)
            }
            Self::TimedOut(ms) => write!(f, "no answer within --timeout ({ms} ms)"),
            Self::NotStarted(number) => {
                let error = io::Error::from_raw_os_error((*number).into());
                write!(f, "cannot start: {error}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_encoded_as_words_and_give_their_reason() {
        let wet = "wet and dry and cold and warm...".to_owned();
        assert_eq!(wet.len(), STATE_MAX);
        for (fault, expected) in [
            (TaskFailure::Program(ProgramFailure::Exited), "unexpected end of the program"),
            (TaskFailure::State("dry".into()), "states = [\"dry\"]"),
            (TaskFailure::State(wet), "state 'wet and dry and cold and warm...'"),
            (TaskFailure::Status(3), "exit status 3"),
            (TaskFailure::Signal(9), "terminated by signal 9"),
            (TaskFailure::TimedOut(10_000), "within --timeout (10 s)"),
            (TaskFailure::TimedOut(250), "within --timeout (250 ms)"),
            (TaskFailure::NotStarted(2), "cannot start: No such file"),
        ] {
            let words = fault.to_words();
            assert_ne!(words[0], 0, "{fault:?}");
            assert!(fault.to_string().contains(expected), "{fault}");
            assert_eq!(TaskFailure::from_words(words), Some(fault));
        }
        assert_eq!(TaskFailure::from_words([0; FAILURE_WORDS]), None);
        assert_eq!(TaskFailure::from_words([u64::MAX; FAILURE_WORDS]), None);
    }

    #[test]
    fn text_of_another_host_stays_on_its_line() {
        let words = TaskFailure::State("a\nb\u{1b}c".into()).to_words();
        assert_eq!(TaskFailure::from_words(words), Some(TaskFailure::State("abc".into())));
    }

    #[test]
    fn a_command_is_judged_by_how_it_ended() {
        let of = |raw| TaskFailure::from_status(ExitStatus::from_raw(raw));
        assert_eq!(of(0), None);
        assert_eq!(of(3 << 8), Some(TaskFailure::Status(3)));
        assert_eq!(of(15), Some(TaskFailure::Signal(15)));
        let long = TaskFailure::from_error(&io::ErrorKind::TimedOut.into(), Duration::MAX);
        assert_eq!(TaskFailure::from_words(long.to_words()), Some(long));
    }
}
