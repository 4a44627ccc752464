//! Reason for which a task's command failed, or its program was abandoned, as a few words of memory
//! and as a sentence. Text from a program is quoted without characters that cannot stand in a line.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::program::ProgramFailure;
use crate::task::STATE_MAX;

/// Words of a failure: its number, and the quoted text.
pub(crate) const FAILURE_WORDS: usize = 1 + QUOTE_WORDS;
const QUOTE_WORDS: usize = STATE_MAX.div_ceil(8);
/// Position of the kind in the number: the kind is in the upper bits, its detail in the lower ones.
const KIND_SHIFT: u32 = 48;
const STATUS: u64 = 1;
const SIGNAL: u64 = 2;
const TOO_LONG: u64 = 3;
const NOT_STARTED: u64 = 4;
const STATE: u64 = 5;

/// Reason for a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TaskFailure {
    /// Its program is no longer usable.
    Program(ProgramFailure),
    /// Its program reported this state, which the task does not name.
    State(String),
    /// Its command ended with this status.
    Status(u8),
    /// Its command was ended by this signal.
    Signal(u8),
    /// Its command took longer than this number of ms.
    TooLong(u64),
    /// Its command could not be started, for the reason with this system error number.
    NotStarted(u16),
}

impl TaskFailure {
    /// Returns the failure of a command that did not succeed.
    pub(crate) fn of_status(status: ExitStatus) -> Option<Self> {
        let low = |number: i32| number as u8;
        match (status.code(), status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) => Some(Self::Status(low(code))),
            (None, signal) => Some(Self::Signal(low(signal.unwrap_or(0)))),
        }
    }

    /// Returns the reason for which a command with this timeout was abandoned.
    pub(crate) fn of_error(error: &io::Error, timeout: Duration) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            const MOST: u64 = (1 << KIND_SHIFT) - 1;
            return Self::TooLong(u64::try_from(timeout.as_millis()).unwrap_or(MOST).min(MOST));
        }
        Self::NotStarted(error.raw_os_error().unwrap_or(0) as u16)
    }

    /// Encodes the failure as words, of which the first is not 0.
    pub(crate) fn to_words(&self) -> [u64; FAILURE_WORDS] {
        let mut words = [0; FAILURE_WORDS];
        let of = |kind: u64, number: u64| kind << KIND_SHIFT | number;
        words[0] = match self {
            Self::Program(fault) => fault.number(),
            Self::State(name) => {
                let bytes = name.as_bytes();
                for (word, bytes) in words[1..].iter_mut().zip(bytes.chunks(8)) {
                    let mut eight = [0; 8];
                    eight[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(eight);
                }
                of(STATE, 0)
            }
            Self::Status(status) => of(STATUS, (*status).into()),
            Self::Signal(signal) => of(SIGNAL, (*signal).into()),
            Self::TooLong(ms) => of(TOO_LONG, *ms),
            Self::NotStarted(number) => of(NOT_STARTED, (*number).into()),
        };
        words
    }

    /// Decodes words, if they are those of a failure.
    pub(crate) fn of_words(words: [u64; FAILURE_WORDS]) -> Option<Self> {
        let number = words[0] & ((1 << KIND_SHIFT) - 1);
        match words[0] >> KIND_SHIFT {
            0 => ProgramFailure::of(number).map(Self::Program),
            STATUS => Some(Self::Status(number as u8)),
            SIGNAL => Some(Self::Signal(number as u8)),
            TOO_LONG => Some(Self::TooLong(number)),
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
            Self::Program(fault) => fault.fmt(f),
            Self::State(name) => write!(
                f,
                "marked state '{name}' is not among the task's states; add it to the \
                 task file, as in states = [\"{name}\"]"
            ),
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "terminated by signal {signal}"),
            Self::TooLong(ms) if ms % 1_000 == 0 => {
                write!(f, "no answer within --timeout ({} s)", ms / 1_000)
            }
            Self::TooLong(ms) => write!(f, "no answer within --timeout ({ms} ms)"),
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
            (TaskFailure::Program(ProgramFailure::Gone), "unexpected end of the program"),
            (TaskFailure::State("dry".into()), "states = [\"dry\"]"),
            (TaskFailure::State(wet), "state 'wet and dry and cold and warm...'"),
            (TaskFailure::Status(3), "exit status 3"),
            (TaskFailure::Signal(9), "terminated by signal 9"),
            (TaskFailure::TooLong(10_000), "within --timeout (10 s)"),
            (TaskFailure::TooLong(250), "within --timeout (250 ms)"),
            (TaskFailure::NotStarted(2), "cannot start: No such file"),
        ] {
            let words = fault.to_words();
            assert_ne!(words[0], 0, "{fault:?}");
            assert!(fault.to_string().contains(expected), "{fault}");
            assert_eq!(TaskFailure::of_words(words), Some(fault));
        }
        assert_eq!(TaskFailure::of_words([0; FAILURE_WORDS]), None);
        assert_eq!(TaskFailure::of_words([u64::MAX; FAILURE_WORDS]), None);
    }

    #[test]
    fn text_of_another_host_stays_on_its_line() {
        let words = TaskFailure::State("a\nb\u{1b}c".into()).to_words();
        assert_eq!(TaskFailure::of_words(words), Some(TaskFailure::State("abc".into())));
    }

    #[test]
    fn a_command_is_judged_by_how_it_ended() {
        let of = |raw| TaskFailure::of_status(ExitStatus::from_raw(raw));
        assert_eq!(of(0), None);
        assert_eq!(of(3 << 8), Some(TaskFailure::Status(3)));
        assert_eq!(of(15), Some(TaskFailure::Signal(15)));
        let long = TaskFailure::of_error(&io::ErrorKind::TimedOut.into(), Duration::MAX);
        assert_eq!(TaskFailure::of_words(long.to_words()), Some(long));
    }
}
