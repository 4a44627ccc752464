//! Client of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use horolog_sys::explain::explain;
use horolog_sys::unix::connect_without_waiting;

use super::message::{ControlRefusalClass, ControlRequest, ControlResponse};
use crate::RelayListing;
use crate::relay::CHANGE_TIMEOUT;

/// Timeout for a request that changes nothing, and for sending a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a response, in bytes; a listing of the largest table is far smaller.
const RESPONSE_BYTES_MAX: u64 = 8 << 20;

/// Reason for which a request was not executed, or for which its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ControlClientError {
    /// No relay answers on the socket.
    #[error("no relay answers at {0}: {why}; check that it runs, or name its socket with \
             --socket", why = explain(.1))]
    NoResponse(PathBuf, #[source] io::Error),
    /// The request was sent and its outcome is unknown.
    #[error(
        "the relay at {0} received the change and has not answered: {why}; check with 'horolog \
         relay list' whether it applied it", why = explain(.1))]
    OutcomeUnknown(PathBuf, #[source] io::Error),
    /// The response is not that of a relay of this version.
    #[error("{0} does not answer as a relay of this version: {1}")]
    InvalidResponse(PathBuf, String),
    /// The relay refused the request, or did not confirm the change: its reason, and the class.
    #[error("{0}")]
    Refused(String, ControlRefusalClass),
}

/// Sends a request to the relay at `path`; returns its state for [`ControlRequest::List`], `None`
/// for a change that was applied.
pub fn request(
    path: &Path,
    request: &ControlRequest,
) -> Result<Option<RelayListing>, ControlClientError> {
    // The timeout of a change exceeds the longest time that a change can take.
    let timeout = match request {
        ControlRequest::List => REQUEST_TIMEOUT,
        _ => REQUEST_TIMEOUT + CHANGE_TIMEOUT,
    };
    let no_response = |error| ControlClientError::NoResponse(path.to_owned(), error);
    let mut stream = connect_without_waiting(path).map_err(no_response)?;
    let text = exchange(&mut stream, request.to_line().as_bytes(), timeout);
    let text = text.map_err(|error| match request {
        ControlRequest::List => no_response(error),
        _ => ControlClientError::OutcomeUnknown(path.to_owned(), error),
    })?;
    match serde_json::from_slice(&text) {
        Ok(ControlResponse::Done) => Ok(None),
        Ok(ControlResponse::Listing(listing)) => Ok(Some(*listing)),
        Ok(ControlResponse::Refused { reason, class }) => {
            Err(ControlClientError::Refused(reason, class))
        }
        Err(error) => Err(ControlClientError::InvalidResponse(path.to_owned(), error.to_string())),
    }
}

fn exchange(stream: &mut UnixStream, line: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_read_timeout(Some(timeout))?;
    // A relay that does not read to the end may have sent its reason.
    let written = stream.write_all(line);
    let mut response = Vec::new();
    let read = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response);
    if response.is_empty() {
        written?;
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    read.map(|_| response)
}
