//! Non-blocking state machine of one client's connection: TLS handshake, request, response, end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use horolog_sys::listen::set_cork;
use rustls::{Error, ServerConnection};

use super::CookieProvider;
use super::config::NtsKeConfig;
use super::counters::{NtsKeCounters, count};
use super::prefix_limiter::ClientPrefix;
use crate::ALPN;
use crate::algorithm::{AES_128_GCM_SIV, NegotiatedAlgorithm, NtsKeys};
use crate::message::{
    NegotiatedParameters, NtsKeErrorCode, NtsKeRequest, NtsKeResponse, REQUEST_LEN_MAX,
};
use crate::records::message_len;

/// Largest number of bytes read from one connection, TLS included. A handshake with post-quantum
/// keys takes about 2 kB.
const READ_BYTES_MAX: usize = 16 * 1024;
/// Size of the buffer for input that is discarded after the response, in bytes.
const DISCARD_BYTES: usize = 2048;

/// Outcome of a connection, represented by the function that selects its counter.
pub(crate) type OutcomeCounterSelector = fn(&NtsKeCounters) -> &AtomicU64;

/// Next step of a connection.
pub(crate) enum ConnectionStep {
    /// Wait until the stream is readable or, if `wants_write` is true, writable.
    Wait {
        /// True if data is waiting to be written.
        wants_write: bool,
    },
    /// Close the connection.
    Close,
}

/// Context shared by all connections.
pub(crate) struct ConnectionContext<'a> {
    pub(crate) config: &'a NtsKeConfig,
    pub(crate) cookie_provider: &'a dyn CookieProvider,
    pub(crate) counters: &'a NtsKeCounters,
}

pub(crate) struct NtsKeConnection {
    stream: TcpStream,
    tls: Box<ServerConnection>,
    pub(crate) opened: Instant,
    pub(crate) prefix: ClientPrefix,
    /// True if epoll also watches for writability.
    pub(crate) watches_write: bool,
    request: Vec<u8>,
    read_bytes: usize,
    /// Outcome; `None` until the last message has been generated.
    outcome: Option<OutcomeCounterSelector>,
    /// True if the outcome has been counted: the last message has been sent, and the client's end
    /// of the stream is awaited.
    is_concluded: bool,
}

impl NtsKeConnection {
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
            read_bytes: 0,
            outcome: None,
            is_concluded: false,
        }
    }

    /// Counts the outcome of the connection, unless one has been counted already.
    pub(crate) fn count_outcome(
        &mut self,
        outcome: OutcomeCounterSelector,
        counters: &NtsKeCounters,
    ) {
        if !std::mem::replace(&mut self.is_concluded, true) {
            count(outcome(counters));
        }
    }

    /// Reads once, processes the input, and writes as much as the socket accepts.
    pub(crate) fn advance(&mut self, context: &ConnectionContext<'_>) -> ConnectionStep {
        let outcome: OutcomeCounterSelector = match self.read_available() {
            Err(error) if is_retryable(&error) => return self.flush(context.counters),
            Ok(false) if self.read_bytes <= READ_BYTES_MAX => {
                if self.outcome.is_none() {
                    self.outcome = self.process_input(context);
                }
                return self.flush(context.counters);
            }
            Ok(false) => |counters| &counters.too_long,
            Ok(true) | Err(_) => |counters| &counters.broken,
        };
        self.count_outcome(outcome, context.counters);
        ConnectionStep::Close
    }

    /// Reads available data; returns true if the client has closed.
    fn read_available(&mut self) -> io::Result<bool> {
        let length = if self.outcome.is_none() {
            self.tls.read_tls(&mut self.stream)?
        } else {
            self.discard()?
        };
        self.read_bytes += length;
        Ok(length == 0)
    }

    /// Discards input after the response; returns its length in bytes, 0 at the end of the stream.
    /// Reads twice, because the end of the stream usually arrives together with the last bytes.
    fn discard(&mut self) -> io::Result<usize> {
        let mut room = [0; DISCARD_BYTES];
        let length = self.stream.read(&mut room)?;
        match self.stream.read(&mut room) {
            Ok(0) => Ok(0),
            Ok(more) => Ok(length + more),
            Err(error) if is_retryable(&error) => Ok(length),
            Err(error) => Err(error),
        }
    }

    /// Processes received TLS records and, once it is complete, the request. Returns the outcome
    /// when only the response remains to be written.
    fn process_input(&mut self, context: &ConnectionContext<'_>) -> Option<OutcomeCounterSelector> {
        match self.tls.process_new_packets() {
            Ok(_) => {}
            Err(Error::NoApplicationProtocol) => return Some(|counters| &counters.not_ntske),
            Err(_) => return Some(|counters| &counters.handshake_failed),
        }
        if self.tls.is_handshaking() {
            return None;
        }
        if self.tls.alpn_protocol() != Some(ALPN) {
            self.tls.send_close_notify();
            return Some(|counters| &counters.not_ntske);
        }
        let request = self.read_request()?;
        let (response, outcome) = match request {
            Ok(request) => self.respond(&request, context),
            Err(error) => error_response(error),
        };
        // Cannot fail, because the buffer has no limit.
        let _ = self.tls.writer().write_all(&response.to_bytes());
        self.tls.send_close_notify();
        Some(outcome)
    }

    /// Reads the request; `None` while it is incomplete and can still become valid.
    fn read_request(&mut self) -> Option<Result<NtsKeRequest, NtsKeErrorCode>> {
        let room = (REQUEST_LEN_MAX + 1).saturating_sub(self.request.len());
        let ended = match self.tls.reader().take(room as u64).read_to_end(&mut self.request) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        match message_len(&self.request) {
            Some(length) if length <= REQUEST_LEN_MAX => Some(NtsKeRequest::parse(&self.request)),
            // The stream has ended, or the request exceeds the limit.
            _ if ended || self.request.len() > REQUEST_LEN_MAX => {
                Some(Err(NtsKeErrorCode::BadRequest))
            }
            _ => None,
        }
    }

    fn respond(
        &self,
        request: &NtsKeRequest,
        context: &ConnectionContext<'_>,
    ) -> (NtsKeResponse, OutcomeCounterSelector) {
        match request.negotiate(&context.cookie_provider.algorithms()) {
            Ok(negotiated) => match self.create_grant(negotiated, request, context) {
                Some(grant) => (NtsKeResponse::Negotiated(grant), |counters| &counters.established),
                None => (NtsKeResponse::Error(NtsKeErrorCode::Internal as u16), |counters| {
                    &counters.internal_error
                }),
            },
            Err(why) => {
                (NtsKeResponse::NothingInCommon(why), |counters| &counters.nothing_in_common)
            }
        }
    }

    fn create_grant(
        &self,
        negotiated: NegotiatedAlgorithm,
        request: &NtsKeRequest,
        context: &ConnectionContext<'_>,
    ) -> Option<NegotiatedParameters> {
        let (config, algorithm) = (context.config, negotiated.algorithm);
        let keys = NtsKeys::export(&self.tls, negotiated).ok()?;
        let cookies =
            context.cookie_provider.cookies(algorithm, &keys.c2s, &keys.s2c, config.cookies);
        (!cookies.is_empty()).then(|| NegotiatedParameters {
            algorithm,
            exact_exporter: request.exact_exporter && algorithm == AES_128_GCM_SIV,
            server: config.ntp_server.clone(),
            port: config.ntp_port,
            cookies,
        })
    }

    /// Sends the error "bad request" to a client whose TLS handshake is complete and whose request
    /// is not at the timeout (RFC 8915, section 4.1.3). Bytes that the socket does not accept at
    /// once are dropped.
    pub(crate) fn send_timeout_error(&mut self) {
        if self.outcome.is_none() && !self.tls.is_handshaking() {
            let response = NtsKeResponse::Error(NtsKeErrorCode::BadRequest as u16);
            // Cannot fail, because the TLS writer's buffer has no limit.
            let _ = self.tls.writer().write_all(&response.to_bytes());
            self.tls.send_close_notify();
            while self.tls.wants_write() && self.tls.write_tls(&mut self.stream).is_ok() {}
        }
    }

    /// Writes pending data. After the last message, shuts down the sending direction and waits for
    /// the client to close: closing a socket with unread input would reset the connection, and the
    /// client could lose the response.
    fn flush(&mut self, counters: &NtsKeCounters) -> ConnectionStep {
        if self.outcome.is_some() && self.tls.wants_write() {
            // Without cork, the FIN is sent in a segment of its own.
            let _ = set_cork(&self.stream);
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if is_retryable(&error) => {
                    return ConnectionStep::Wait { wants_write: true };
                }
                Err(_) => {
                    self.count_outcome(|counters| &counters.broken, counters);
                    return ConnectionStep::Close;
                }
            }
        }
        if let Some(outcome) = self.outcome.filter(|_| !self.is_concluded) {
            self.count_outcome(outcome, counters);
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return ConnectionStep::Close;
            }
        }
        ConnectionStep::Wait { wants_write: false }
    }
}

impl AsFd for NtsKeConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn error_response(error: NtsKeErrorCode) -> (NtsKeResponse, OutcomeCounterSelector) {
    (NtsKeResponse::Error(error as u16), |counters| &counters.bad_request)
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
