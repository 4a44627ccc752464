//! The asking end of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use horolog_sys::unix::connect_at_once;

use super::message::{Answer, Fault, Request};
use crate::Listing;
use crate::node::CHANGE_PATIENCE;

/// How long a relay may take for what is no change, or to read a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// A listing of the largest table is far smaller.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Why a relay did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody answers there.
    #[error("no relay answers at {0}: {1}; see that it runs, or name its socket with --socket")]
    NoAnswer(PathBuf, #[source] io::Error),
    /// It was asked and did not say what became of that.
    #[error(
        "the relay at {0} took the change and has not answered: {1}; it may still make it, which \
         'horolog relay list' shows"
    )]
    Unanswered(PathBuf, #[source] io::Error),
    /// What answers is no relay, or another version of it.
    #[error("what answers at {0} is no relay of this version: {1}")]
    Nonsense(PathBuf, String),
    /// It refused.
    #[error("{0}")]
    Refused(String, Fault),
}

/// Asks the relay at `path`; its state, where that was asked for.
pub fn ask(path: &Path, request: &Request) -> Result<Option<Listing>, AskError> {
    // Who asks for a change waits for longer than that may take.
    let patience = match request {
        Request::List => PATIENCE,
        _ => PATIENCE + CHANGE_PATIENCE,
    };
    let no_answer = |error| AskError::NoAnswer(path.to_owned(), error);
    let mut stream = connect_at_once(path).map_err(no_answer)?;
    let text = exchange(&mut stream, request.to_line().as_bytes(), patience);
    let text = text.map_err(|error| match request {
        Request::List => no_answer(error),
        _ => AskError::Unanswered(path.to_owned(), error),
    })?;
    match serde_json::from_slice(&text) {
        Ok(Answer::Done) => Ok(None),
        Ok(Answer::Listing(listing)) => Ok(Some(*listing)),
        Ok(Answer::Refused { reason, fault }) => Err(AskError::Refused(reason, fault)),
        Err(error) => Err(AskError::Nonsense(path.to_owned(), error.to_string())),
    }
}

fn exchange(stream: &mut UnixStream, line: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(patience))?;
    // One who does not read to the end may have said why.
    let written = stream.write_all(line);
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    if answer.is_empty() {
        written?;
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    read.map(|_| answer)
}
