//! Near end of one TCP connection: connect, exchange hello and welcome, read replies and the
//! report. All waits are bounded; a far end without progress for [`IDLE_TIMEOUT`] counts as lost.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use horolog_record::PathEndFacts;
use horolog_sys::tcp;

use super::early_end::ConnectionEndReason;
use super::error::TcpPathError;
use super::protocol::{FarEndReport, REPORT_LEN, TcpHello, TcpWelcome, WELCOME_LEN};
use super::row::WAIT_CHECK_INTERVAL;

/// Timeout of connecting and of the hello.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without a byte after which the far end is lost.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Size in bytes and maximum number of reads that search the remaining data of a closed connection
/// for a report.
const REMAINDER_READ_BYTES: usize = 4_096;
const REMAINDER_READS_MAX: u32 = 1_000;

/// Connection that the far end has accepted.
pub(crate) struct TcpNearEndSession<'a> {
    pub(crate) stream: TcpStream,
    /// Facts about the far end's host, from its welcome.
    pub(crate) far_end: Option<PathEndFacts>,
    is_over: &'a AtomicBool,
}

impl<'a> TcpNearEndSession<'a> {
    /// Connects, sends the hello and reads the welcome.
    pub(crate) fn open(
        address: SocketAddr,
        hello: &TcpHello,
        is_over: &'a AtomicBool,
    ) -> Result<Self, TcpPathError> {
        let failed = |source| TcpPathError::from_io_error(address, source);
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed)?;
        stream.set_nodelay(hello.flags.no_delay).map_err(failed)?;
        if hello.flags.quick_ack_once {
            tcp::set_quick_ack(&stream, true).map_err(failed)?;
        }
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT)).map_err(failed)?;
        let far = exchange_hello(&mut stream, address, hello)?;
        stream.set_read_timeout(Some(WAIT_CHECK_INTERVAL)).map_err(failed)?;
        stream.set_write_timeout(Some(WAIT_CHECK_INTERVAL)).map_err(failed)?;
        Ok(Self { stream, far_end: far, is_over })
    }

    /// Returns true if the run is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Writes all bytes.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), ConnectionEndReason> {
        let mut written = 0;
        let mut since = None;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(0) => {
                    return Err(ConnectionEndReason::ConnectionLost(
                        io::ErrorKind::WriteZero.into(),
                    ));
                }
                Ok(sent) => {
                    written += sent;
                    since = None;
                }
                Err(error) => self.check_timeout(error, &mut since)?,
            }
        }
        Ok(())
    }

    /// Reads a reply that fills `bytes`; calls `waiting` each time the read timeout expires.
    ///
    /// Replies are all zeros. A far end whose byte budget is exhausted sends its report instead and
    /// closes the connection.
    pub(crate) fn read_reply_observed(
        &mut self,
        bytes: &mut [u8],
        waiting: impl FnMut(&TcpStream),
    ) -> Result<(), ConnectionEndReason> {
        let received_len = self.read_full(bytes, waiting)?;
        let is_answer =
            received_len == bytes.len() && bytes.first().is_none_or(|first| *first == 0);
        if is_answer {
            return Ok(());
        }
        Err(self.far_end_loss(io::ErrorKind::UnexpectedEof.into(), &bytes[..received_len]))
    }

    /// Reads until `bytes` is full or the stream ends; returns the number of bytes.
    fn read_full(
        &self,
        bytes: &mut [u8],
        mut waiting: impl FnMut(&TcpStream),
    ) -> Result<usize, ConnectionEndReason> {
        let mut received_len = 0;
        let mut since = None;
        while received_len < bytes.len() {
            match (&self.stream).read(&mut bytes[received_len..]) {
                Ok(0) => break,
                Ok(read) => {
                    received_len += read;
                    since = None;
                }
                Err(error) => {
                    self.check_timeout(error, &mut since)?;
                    waiting(&self.stream);
                }
            }
        }
        Ok(received_len)
    }

    /// Reads a reply that fills `bytes`.
    pub(crate) fn read_reply(&mut self, bytes: &mut [u8]) -> Result<(), ConnectionEndReason> {
        self.read_reply_observed(bytes, |_| ())
    }

    /// Reads available bytes; returns their number, 0 at the end of the stream.
    pub(crate) fn read_available(
        &mut self,
        bytes: &mut [u8],
    ) -> Result<usize, ConnectionEndReason> {
        let mut since = None;
        loop {
            match self.stream.read(bytes) {
                Ok(received_len) => return Ok(received_len),
                Err(error) => self.check_timeout(error, &mut since)?,
            }
        }
    }

    /// Shuts down the sending direction and reads the far end's report, which comes last.
    pub(crate) fn finish_and_read_report(
        &mut self,
    ) -> Result<Box<FarEndReport>, ConnectionEndReason> {
        match self.stream.shutdown(Shutdown::Write) {
            // The far end has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done?,
        }
        let mut bytes = [0; REPORT_LEN];
        // Does not stop at the end of the run, since the report is needed then too.
        let never = AtomicBool::new(false);
        let stream = self.stream.try_clone()?;
        TcpNearEndSession { stream, far_end: None, is_over: &never }
            .read_full(&mut bytes, |_| ())?;
        let report = FarEndReport::parse(&bytes);
        let report = report.ok_or_else(|| {
            ConnectionEndReason::ConnectionLost(io::ErrorKind::UnexpectedEof.into())
        })?;
        report.into_complete()
    }

    /// Returns the reason why the far end closed the connection: an exhausted byte budget if its
    /// report says so, otherwise `error`. `received` is data already read, which may contain the
    /// beginning of the report.
    fn far_end_loss(&self, error: io::Error, received: &[u8]) -> ConnectionEndReason {
        let mut last_bytes = [0; REPORT_LEN];
        keep_last_bytes(&mut last_bytes, received);
        let mut buffer = [0; REMAINDER_READ_BYTES];
        for _ in 0..REMAINDER_READS_MAX {
            match (&self.stream).read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(left) => keep_last_bytes(&mut last_bytes, &buffer[..left]),
            }
        }
        match FarEndReport::parse(&last_bytes).map(FarEndReport::into_complete) {
            Some(Err(bound)) => bound,
            _ => ConnectionEndReason::ConnectionLost(error),
        }
    }

    /// Handles an I/O error: `Ok` to retry after a timeout, `Err` if the run is to end or the far
    /// end is lost. `since` is when the current wait began.
    pub(crate) fn check_timeout(
        &self,
        error: io::Error,
        since: &mut Option<Instant>,
    ) -> Result<(), ConnectionEndReason> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                let since = *since.get_or_insert_with(Instant::now);
                if self.is_over() {
                    Err(ConnectionEndReason::RunEnded)
                } else if since.elapsed() > IDLE_TIMEOUT {
                    Err(ConnectionEndReason::ConnectionLost(error))
                } else {
                    Ok(())
                }
            }
            _ => Err(self.far_end_loss(error, &[])),
        }
    }
}

fn exchange_hello(
    stream: &mut TcpStream,
    address: SocketAddr,
    hello: &TcpHello,
) -> Result<Option<PathEndFacts>, TcpPathError> {
    let failed = |error: io::Error| match error.kind() {
        // Another server closes the connection or sends something else.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            TcpPathError::OtherProtocol(address)
        }
        _ => TcpPathError::from_io_error(address, error),
    };
    stream.write_all(&hello.emit()).map_err(failed)?;
    let mut bytes = [0; WELCOME_LEN];
    stream.read_exact(&mut bytes).map_err(failed)?;
    let welcome = TcpWelcome::parse(&bytes).ok_or(TcpPathError::OtherProtocol(address))?;
    let mut facts = vec![0; usize::from(welcome.facts_bytes)];
    stream.read_exact(&mut facts).map_err(failed)?;
    match TcpPathError::from_welcome(address, welcome) {
        Some(refused) => Err(refused),
        None => Ok(super::parse_far_end(&facts)),
    }
}

/// Appends `received` to a buffer that keeps the last bytes of a stream.
pub(super) fn keep_last_bytes(last_bytes: &mut [u8; REPORT_LEN], received: &[u8]) {
    if let Some(last) = received.last_chunk::<REPORT_LEN>() {
        *last_bytes = *last;
    } else {
        last_bytes.copy_within(received.len().., 0);
        last_bytes[REPORT_LEN - received.len()..].copy_from_slice(received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_stored_whatever_the_pieces() {
        let stream: Vec<u8> = (0..=255).collect();
        for piece in [1, 7, REPORT_LEN - 1, REPORT_LEN, 100, 256] {
            let mut tail = [0; REPORT_LEN];
            stream.chunks(piece).for_each(|received| keep_last_bytes(&mut tail, received));
            assert_eq!(tail[..], stream[256 - REPORT_LEN..], "{piece}");
        }
    }
}
