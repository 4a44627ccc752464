//! This end of one connection: it is made, the far end is greeted, and what came of it is read. All
//! waits are bounded; a far end that does nothing for [`STALLED`] has gone.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use horolog_record::PathEnd;
use horolog_sys::tcp;

use super::error::PathError;
use super::protocol::{Hello, REPORT_LEN, Report, WELCOME_LEN, Welcome};
use super::row::TICK;

/// How long making a connection and greeting may take.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// After this long without a byte the far end has gone.
pub(super) const STALLED: Duration = Duration::from_secs(4);

/// Why a connection that was made is of no more use.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The run is to end.
    Ended,
    /// The far end or the path has gone.
    Gone(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl Lost {
    /// In words; `None` where nothing is wrong.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Ended => None,
            Self::Gone(error) => Some(match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    format!("nothing came or went for {} s", STALLED.as_secs())
                }
                io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
                _ => error.to_string(),
            }),
        }
    }
}

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

    /// Reads exactly so much, with a look at `waiting` whenever a wait brings nothing.
    pub(crate) fn read_watching(
        &mut self,
        bytes: &mut [u8],
        mut waiting: impl FnMut(&TcpStream),
    ) -> Result<(), Lost> {
        let mut came = 0;
        let mut since = None;
        while came < bytes.len() {
            match self.stream.read(&mut bytes[came..]) {
                Ok(0) => return Err(Lost::Gone(io::ErrorKind::UnexpectedEof.into())),
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
        Ok(())
    }

    /// Reads exactly so much.
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
    pub(crate) fn finish(&mut self) -> Result<Report, Lost> {
        match self.stream.shutdown(Shutdown::Write) {
            // It was said before, and the far end is through already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done?,
        }
        let mut bytes = [0; REPORT_LEN];
        // It is wanted of a run that is ended too, so it is waited for in any case.
        let never = AtomicBool::new(false);
        let stream = self.stream.try_clone()?;
        Session { stream, far: None, is_over: &never }.read(&mut bytes)?;
        Report::parse(&bytes).ok_or_else(|| Lost::Gone(io::ErrorKind::InvalidData.into()))
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
            _ => Err(Lost::Gone(error)),
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
