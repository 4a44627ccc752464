//! Near end of one connection: connecting, greeting, reading the result. All waits are bounded; a
//! far end without progress for [`IDLE_TIMEOUT`] counts as lost.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use horolog_record::PathEndpoint;
use horolog_sys::tcp;

use super::early_end::ConnectionLoss;
use super::error::TcpPathError;
use super::protocol::{FarEndReport, Hello, REPORT_LEN, TcpWelcome, WELCOME_LEN};
use super::row::TICK;

/// Timeout of connecting and greeting.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without a byte after which the far end is lost.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Size and number of reads of the data that a lost far end left behind.
const LEFT_BYTES: usize = 4_096;
const LEFT_READS: u32 = 1_000;

/// Connection accepted by the far end.
pub(crate) struct TcpSession<'a> {
    pub(crate) stream: TcpStream,
    /// Facts that the far end sent about itself.
    pub(crate) far: Option<PathEndpoint>,
    is_over: &'a AtomicBool,
}

impl<'a> TcpSession<'a> {
    /// Connects and greets.
    pub(crate) fn open(
        address: SocketAddr,
        hello: &Hello,
        is_over: &'a AtomicBool,
    ) -> Result<Self, TcpPathError> {
        let failed = |source| TcpPathError::connection(address, source);
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed)?;
        stream.set_nodelay(hello.flags.no_delay).map_err(failed)?;
        if hello.flags.quick_ack_once {
            tcp::set_quick_ack(&stream, true).map_err(failed)?;
        }
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT)).map_err(failed)?;
        let far = greet(&mut stream, address, hello)?;
        stream.set_read_timeout(Some(TICK)).map_err(failed)?;
        stream.set_write_timeout(Some(TICK)).map_err(failed)?;
        Ok(Self { stream, far, is_over })
    }

    /// Returns true if the run is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Writes all bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectionLoss> {
        let mut written = 0;
        let mut since = None;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(0) => return Err(ConnectionLoss::Gone(io::ErrorKind::WriteZero.into())),
                Ok(sent) => {
                    written += sent;
                    since = None;
                }
                Err(error) => self.tick(error, &mut since)?,
            }
        }
        Ok(())
    }

    /// Reads an answer that fills `bytes`, and calls `waiting` whenever a wait expires.
    ///
    /// Answers are all zeros. A far end that reached a bound of its own sends its report in place
    /// of an answer, and closes the connection.
    pub(crate) fn read_watching(
        &mut self,
        bytes: &mut [u8],
        waiting: impl FnMut(&TcpStream),
    ) -> Result<(), ConnectionLoss> {
        let received_len = self.fill(bytes, waiting)?;
        let is_answer =
            received_len == bytes.len() && bytes.first().is_none_or(|first| *first == 0);
        if is_answer {
            return Ok(());
        }
        Err(self.gone(io::ErrorKind::UnexpectedEof.into(), &bytes[..received_len]))
    }

    /// Reads exactly `bytes`, or up to the end of the stream; returns the number of bytes.
    fn fill(
        &self,
        bytes: &mut [u8],
        mut waiting: impl FnMut(&TcpStream),
    ) -> Result<usize, ConnectionLoss> {
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
                    self.tick(error, &mut since)?;
                    waiting(&self.stream);
                }
            }
        }
        Ok(received_len)
    }

    /// Reads an answer that fills `bytes`.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<(), ConnectionLoss> {
        self.read_watching(bytes, |_| ())
    }

    /// Reads available bytes; returns 0 at the end of the stream.
    pub(crate) fn read_some(&mut self, bytes: &mut [u8]) -> Result<usize, ConnectionLoss> {
        let mut since = None;
        loop {
            match self.stream.read(bytes) {
                Ok(received_len) => return Ok(received_len),
                Err(error) => self.tick(error, &mut since)?,
            }
        }
    }

    /// Shuts the sending side down, and reads the far end's report, which comes last.
    pub(crate) fn finish(&mut self) -> Result<Box<FarEndReport>, ConnectionLoss> {
        match self.stream.shutdown(Shutdown::Write) {
            // Already shut down, and the far end has finished.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done?,
        }
        let mut bytes = [0; REPORT_LEN];
        // The report of an interrupted run is needed too, so the wait is unconditional.
        let never = AtomicBool::new(false);
        let stream = self.stream.try_clone()?;
        TcpSession { stream, far: None, is_over: &never }.fill(&mut bytes, |_| ())?;
        let report = FarEndReport::parse(&bytes);
        let report =
            report.ok_or_else(|| ConnectionLoss::Gone(io::ErrorKind::UnexpectedEof.into()))?;
        report.whole()
    }

    /// Returns the reason for which the far end closed the connection: its report, if it left one;
    /// the front of the report may be in `received`.
    fn gone(&self, error: io::Error, received: &[u8]) -> ConnectionLoss {
        let mut tail = [0; REPORT_LEN];
        keep_tail(&mut tail, received);
        let mut buffer = [0; LEFT_BYTES];
        for _ in 0..LEFT_READS {
            match (&self.stream).read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(left) => keep_tail(&mut tail, &buffer[..left]),
            }
        }
        match FarEndReport::parse(&tail).map(FarEndReport::whole) {
            Some(Err(bound)) => bound,
            _ => ConnectionLoss::Gone(error),
        }
    }

    /// Handles an expired wait.
    pub(crate) fn tick(
        &self,
        error: io::Error,
        since: &mut Option<Instant>,
    ) -> Result<(), ConnectionLoss> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                let since = *since.get_or_insert_with(Instant::now);
                if self.is_over() {
                    Err(ConnectionLoss::Ended)
                } else if since.elapsed() > IDLE_TIMEOUT {
                    Err(ConnectionLoss::Gone(error))
                } else {
                    Ok(())
                }
            }
            _ => Err(self.gone(error, &[])),
        }
    }
}

fn greet(
    stream: &mut TcpStream,
    address: SocketAddr,
    hello: &Hello,
) -> Result<Option<PathEndpoint>, TcpPathError> {
    let failed = |error: io::Error| match error.kind() {
        // A server of another protocol closes the connection or sends something else.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            TcpPathError::Foreign(address)
        }
        _ => TcpPathError::connection(address, error),
    };
    stream.write_all(&hello.emit()).map_err(failed)?;
    let mut bytes = [0; WELCOME_LEN];
    stream.read_exact(&mut bytes).map_err(failed)?;
    let welcome = TcpWelcome::parse(&bytes).ok_or(TcpPathError::Foreign(address))?;
    let mut facts = vec![0; usize::from(welcome.facts_bytes)];
    stream.read_exact(&mut facts).map_err(failed)?;
    match TcpPathError::verdict(address, welcome) {
        Some(refused) => Err(refused),
        None => Ok(super::far_end(&facts)),
    }
}

/// Keeps the last bytes of a stream, whatever the pieces in which it arrives.
pub(super) fn keep_tail(tail: &mut [u8; REPORT_LEN], received: &[u8]) {
    if let Some(last) = received.last_chunk::<REPORT_LEN>() {
        *tail = *last;
    } else {
        tail.copy_within(received.len().., 0);
        tail[REPORT_LEN - received.len()..].copy_from_slice(received);
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
            stream.chunks(piece).for_each(|received| keep_tail(&mut tail, received));
            assert_eq!(tail[..], stream[256 - REPORT_LEN..], "{piece}");
        }
    }
}
