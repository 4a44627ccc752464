//! This end of one connection: it is made, the far end is greeted, and what came of it is read. All
//! waits are bounded; a far end that does nothing for [`STALLED`] has gone.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use horolog_record::PathEnd;
use horolog_sys::tcp;

use super::error::PathError;
use super::loss::Lost;
use super::protocol::{Hello, REPORT_LEN, Report, WELCOME_LEN, Welcome};
use super::row::TICK;

/// How long making a connection and greeting may take.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// After this long without a byte the far end has gone.
pub(super) const STALLED: Duration = Duration::from_secs(4);
/// Most that is read at once, and how often, of what a far end left behind.
const LEFT_BYTES: usize = 4_096;
const LEFT_READS: u32 = 1_000;

/// A connection that the far end has accepted.
pub(crate) struct Session<'a> {
    pub(crate) stream: TcpStream,
    /// What the far end tells of itself.
    pub(crate) far: Option<PathEnd>,
    is_over: &'a AtomicBool,
}

impl<'a> Session<'a> {
    /// Connects and greets.
    pub(crate) fn open(
        address: SocketAddr,
        hello: &Hello,
        is_over: &'a AtomicBool,
    ) -> Result<Self, PathError> {
        let failed = |source| PathError::connection(address, source);
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE).map_err(failed)?;
        stream.set_nodelay(hello.flags.no_delay).map_err(failed)?;
        if hello.flags.quick_ack_once {
            tcp::set_quick_ack(&stream, true).map_err(failed)?;
        }
        stream.set_read_timeout(Some(CONNECT_PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(CONNECT_PATIENCE)).map_err(failed)?;
        let far = greet(&mut stream, address, hello)?;
        stream.set_read_timeout(Some(TICK)).map_err(failed)?;
        stream.set_write_timeout(Some(TICK)).map_err(failed)?;
        Ok(Self { stream, far, is_over })
    }

    /// Whether the run is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Writes all of it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        let mut written = 0;
        let mut since = None;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(0) => return Err(Lost::Gone(io::ErrorKind::WriteZero.into())),
                Ok(sent) => {
                    written += sent;
                    since = None;
                }
                Err(error) => self.tick(error, &mut since)?,
            }
        }
        Ok(())
    }

    /// Reads an answer of exactly so much, with a look at `waiting` whenever a wait brings nothing.
    ///
    /// Answers are of zeros. A far end that reached a bound of its own sends its report in the
    /// place of an answer, and hangs up.
    pub(crate) fn read_watching(
        &mut self,
        bytes: &mut [u8],
        waiting: impl FnMut(&TcpStream),
    ) -> Result<(), Lost> {
        let came = self.fill(bytes, waiting)?;
        let is_answer = came == bytes.len() && bytes.first().is_none_or(|first| *first == 0);
        if is_answer {
            return Ok(());
        }
        Err(self.gone(io::ErrorKind::UnexpectedEof.into(), &bytes[..came]))
    }

    /// Reads exactly so much, or what came before the end of the stream; how much that is.
    fn fill(&self, bytes: &mut [u8], mut waiting: impl FnMut(&TcpStream)) -> Result<usize, Lost> {
        let mut came = 0;
        let mut since = None;
        while came < bytes.len() {
            match (&self.stream).read(&mut bytes[came..]) {
                Ok(0) => break,
                Ok(read) => {
                    came += read;
                    since = None;
                }
                Err(error) => {
                    self.tick(error, &mut since)?;
                    waiting(&self.stream);
                }
            }
        }
        Ok(came)
    }

    /// Reads an answer of exactly so much.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<(), Lost> {
        self.read_watching(bytes, |_| ())
    }

    /// Reads what is there, up to so much; 0 at the end of the stream.
    pub(crate) fn read_some(&mut self, bytes: &mut [u8]) -> Result<usize, Lost> {
        let mut since = None;
        loop {
            match self.stream.read(bytes) {
                Ok(came) => return Ok(came),
                Err(error) => self.tick(error, &mut since)?,
            }
        }
    }

    /// Says that no more is written, and reads the far end's report, which comes last.
    pub(crate) fn finish(&mut self) -> Result<Box<Report>, Lost> {
        match self.stream.shutdown(Shutdown::Write) {
            // It was said before, and the far end is through already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done?,
        }
        let mut bytes = [0; REPORT_LEN];
        // It is wanted of a run that is ended too, so it is waited for in any case.
        let never = AtomicBool::new(false);
        let stream = self.stream.try_clone()?;
        Session { stream, far: None, is_over: &never }.fill(&mut bytes, |_| ())?;
        let report = Report::parse(&bytes);
        let report = report.ok_or_else(|| Lost::Gone(io::ErrorKind::UnexpectedEof.into()))?;
        report.whole()
    }

    /// Why the far end hung up: what it reported, where it left that behind; the front of it may
    /// have come already.
    fn gone(&self, error: io::Error, came: &[u8]) -> Lost {
        let mut tail = [0; REPORT_LEN];
        keep_tail(&mut tail, came);
        let mut buffer = [0; LEFT_BYTES];
        for _ in 0..LEFT_READS {
            match (&self.stream).read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(left) => keep_tail(&mut tail, &buffer[..left]),
            }
        }
        match Report::parse(&tail).map(Report::whole) {
            Some(Err(bound)) => bound,
            _ => Lost::Gone(error),
        }
    }

    /// What a wait that brought nothing means.
    pub(crate) fn tick(&self, error: io::Error, since: &mut Option<Instant>) -> Result<(), Lost> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                let since = *since.get_or_insert_with(Instant::now);
                if self.is_over() {
                    Err(Lost::Ended)
                } else if since.elapsed() > STALLED {
                    Err(Lost::Gone(error))
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
) -> Result<Option<PathEnd>, PathError> {
    let failed = |error: io::Error| match error.kind() {
        // Whatever speaks another protocol hangs up, or says something else.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            PathError::Foreign(address)
        }
        _ => PathError::connection(address, error),
    };
    stream.write_all(&hello.emit()).map_err(failed)?;
    let mut bytes = [0; WELCOME_LEN];
    stream.read_exact(&mut bytes).map_err(failed)?;
    let welcome = Welcome::parse(&bytes).ok_or(PathError::Foreign(address))?;
    let mut facts = vec![0; usize::from(welcome.facts_bytes)];
    stream.read_exact(&mut facts).map_err(failed)?;
    match PathError::verdict(address, welcome) {
        Some(refused) => Err(refused),
        None => Ok(super::far_end(&facts)),
    }
}

/// The last bytes of a stream, whatever the pieces in which it came.
pub(super) fn keep_tail(tail: &mut [u8; REPORT_LEN], came: &[u8]) {
    if let Some(last) = came.last_chunk::<REPORT_LEN>() {
        *tail = *last;
    } else {
        tail.copy_within(came.len().., 0);
        tail[REPORT_LEN - came.len()..].copy_from_slice(came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_kept_whatever_the_pieces() {
        let stream: Vec<u8> = (0..=255).collect();
        for piece in [1, 7, REPORT_LEN - 1, REPORT_LEN, 100, 256] {
            let mut tail = [0; REPORT_LEN];
            stream.chunks(piece).for_each(|came| keep_tail(&mut tail, came));
            assert_eq!(tail[..], stream[256 - REPORT_LEN..], "{piece}");
        }
    }
}
