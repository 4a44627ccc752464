//! One client's connection: TLS, request, response, end. It reads on readiness, never waits, and is
//! independent of the others.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use horolog_sys::listen::set_cork;
use rustls::{Error, ServerConnection};

use super::CookieProvider;
use super::config::KeConfig;
use super::counters::{KeCounters, count};
use super::prefix_limiter::ClientPrefix;
use crate::ALPN;
use crate::algorithm::{AES_128_GCM_SIV, Keys, NegotiatedAlgorithm};
use crate::message::{Grant, KeRequest, KeResponse, REQUEST_LEN_MAX, RequestError};
use crate::records::message_len;

/// Greatest number of bytes read from one connection, TLS included. A handshake takes about 2 kB,
/// with post-quantum keys; the rest is for the request.
const READ_MAX: usize = 16 * 1024;
/// Number of bytes discarded at a time from a client after its response.
const DISCARDED_AT_A_TIME: usize = 2048;

/// Outcome of a connection: its counter.
pub(crate) type ConnectionOutcome = fn(&KeCounters) -> &AtomicU64;

/// Next step of a connection.
pub(crate) enum ConnectionStep {
    /// Wait until it can be read or, if `write` is set, written.
    Wait {
        /// True if data is waiting to be written.
        write: bool,
    },
    /// Close the connection.
    Close,
}

/// Context shared by all connections.
pub(crate) struct ConnectionContext<'a> {
    pub(crate) config: &'a KeConfig,
    pub(crate) keeper: &'a dyn CookieProvider,
    pub(crate) tally: &'a KeCounters,
}

pub(crate) struct KeConnection {
    stream: TcpStream,
    tls: Box<ServerConnection>,
    pub(crate) opened: Instant,
    pub(crate) prefix: ClientPrefix,
    /// True if it is registered for writing too.
    pub(crate) watches_write: bool,
    request: Vec<u8>,
    read: usize,
    /// Outcome; set once the last message is determined.
    outcome: Option<ConnectionOutcome>,
    /// True if that message has been sent and the outcome counted; from then on it waits for the
    /// client to close.
    concluded: bool,
}

impl KeConnection {
    pub(crate) fn new(
        stream: TcpStream,
        tls: ServerConnection,
        opened: Instant,
        prefix: ClientPrefix,
    ) -> Self {
        Self {
            stream,
            tls: Box::new(tls),
            opened,
            prefix,
            watches_write: false,
            request: Vec::new(),
            read: 0,
            outcome: None,
            concluded: false,
        }
    }

    /// Counts its outcome, once.
    pub(crate) fn conclude(&mut self, outcome: ConnectionOutcome, tally: &KeCounters) {
        if !std::mem::replace(&mut self.concluded, true) {
            count(outcome(tally));
        }
    }

    /// Reads once, processes the input, and writes as much as the system accepts.
    pub(crate) fn advance(&mut self, desk: &ConnectionContext<'_>) -> ConnectionStep {
        let end: ConnectionOutcome = match self.read() {
            Err(error) if is_for_later(&error) => return self.flush(desk.tally),
            Ok(false) if self.read <= READ_MAX => {
                if self.outcome.is_none() {
                    self.outcome = self.progress(desk);
                }
                return self.flush(desk.tally);
            }
            Ok(false) => |tally| &tally.too_long,
            Ok(true) | Err(_) => |tally| &tally.broken,
        };
        self.conclude(end, desk.tally);
        ConnectionStep::Close
    }

    /// Reads available data; returns true if the client has closed.
    fn read(&mut self) -> io::Result<bool> {
        let length = if self.outcome.is_none() {
            self.tls.read_tls(&mut self.stream)?
        } else {
            self.discard()?
        };
        self.read += length;
        Ok(length == 0)
    }

    /// Discards input after the response. The end of the stream mostly comes with its last bytes,
    /// so it is checked at once.
    fn discard(&mut self) -> io::Result<usize> {
        let mut room = [0; DISCARDED_AT_A_TIME];
        let length = self.stream.read(&mut room)?;
        match self.stream.read(&mut room) {
            Ok(0) => Ok(0),
            Ok(more) => Ok(length + more),
            Err(error) if is_for_later(&error) => Ok(length),
            Err(error) => Err(error),
        }
    }

    /// Advances handshake and request; returns an outcome when only writing is left.
    fn progress(&mut self, desk: &ConnectionContext<'_>) -> Option<ConnectionOutcome> {
        match self.tls.process_new_packets() {
            Ok(_) => {}
            Err(Error::NoApplicationProtocol) => return Some(|tally| &tally.not_ntske),
            Err(_) => return Some(|tally| &tally.handshake_failed),
        }
        if self.tls.is_handshaking() {
            return None;
        }
        if self.tls.alpn_protocol() != Some(ALPN) {
            self.tls.send_close_notify();
            return Some(|tally| &tally.not_ntske);
        }
        let request = self.take_request()?;
        let (response, outcome) = match request {
            Ok(request) => self.answer(&request, desk),
            Err(error) => refuse(error),
        };
        // The buffer has no limit, so this cannot fail; a client would see a truncated response.
        let _ = self.tls.writer().write_all(&response.to_bytes());
        self.tls.send_close_notify();
        Some(outcome)
    }

    /// The request, once it is complete or cannot become valid.
    fn take_request(&mut self) -> Option<Result<KeRequest, RequestError>> {
        let room = (REQUEST_LEN_MAX + 1).saturating_sub(self.request.len());
        let ended = match self.tls.reader().take(room as u64).read_to_end(&mut self.request) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        match message_len(&self.request) {
            Some(length) if length <= REQUEST_LEN_MAX => Some(KeRequest::parse(&self.request)),
            // With bytes left in the reader, the request has reached the greatest length.
            _ if ended || self.request.len() > REQUEST_LEN_MAX => {
                Some(Err(RequestError::BadRequest))
            }
            _ => None,
        }
    }

    fn answer(
        &self,
        request: &KeRequest,
        desk: &ConnectionContext<'_>,
    ) -> (KeResponse, ConnectionOutcome) {
        match request.agree(&desk.keeper.algorithms()) {
            Ok(agreed) => match self.grant(agreed, request, desk) {
                Some(grant) => (KeResponse::Granted(grant), |tally| &tally.established),
                None => (KeResponse::Error(RequestError::Internal as u16), |tally| {
                    &tally.internal_error
                }),
            },
            Err(why) => (KeResponse::Disagreed(why), |tally| &tally.nothing_in_common),
        }
    }

    fn grant(
        &self,
        agreed: NegotiatedAlgorithm,
        request: &KeRequest,
        desk: &ConnectionContext<'_>,
    ) -> Option<Grant> {
        let (config, algorithm) = (desk.config, agreed.algorithm);
        let keys = Keys::export(&self.tls, agreed).ok()?;
        let cookies = desk.keeper.cookies(algorithm, &keys.c2s, &keys.s2c, config.cookies);
        (!cookies.is_empty()).then(|| Grant {
            algorithm,
            exact_exporter: request.exact_exporter && algorithm == AES_128_GCM_SIV,
            server: config.ntp_server.clone(),
            port: config.ntp_port,
            cookies,
        })
    }

    /// Sends a timeout error to a client whose request is incomplete (RFC 8915, section 4.1.3). The
    /// part that the system does not accept at once is dropped.
    pub(crate) fn refuse_late(&mut self) {
        if self.outcome.is_none() && !self.tls.is_handshaking() {
            let late = KeResponse::Error(RequestError::BadRequest as u16);
            // The buffer has no limit, so this cannot fail.
            let _ = self.tls.writer().write_all(&late.to_bytes());
            self.tls.send_close_notify();
            while self.tls.wants_write() && self.tls.write_tls(&mut self.stream).is_ok() {}
        }
    }

    /// Writes pending data; after the last of it, signals the end to the client and waits for it to
    /// close, so that later input does not make the system discard data that the client has not
    /// read yet.
    fn flush(&mut self, tally: &KeCounters) -> ConnectionStep {
        if self.outcome.is_some() && self.tls.wants_write() {
            // If corking fails, the end of the stream takes a segment of its own.
            let _ = set_cork(&self.stream);
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return ConnectionStep::Wait { write: true },
                Err(_) => {
                    self.conclude(|tally| &tally.broken, tally);
                    return ConnectionStep::Close;
                }
            }
        }
        if let Some(outcome) = self.outcome.filter(|_| !self.concluded) {
            self.conclude(outcome, tally);
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return ConnectionStep::Close;
            }
        }
        ConnectionStep::Wait { write: false }
    }
}

impl AsFd for KeConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn refuse(error: RequestError) -> (KeResponse, ConnectionOutcome) {
    (KeResponse::Error(error as u16), |tally| &tally.bad_request)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
