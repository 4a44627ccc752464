//! One client's connection: TLS, the request, the response, the end. It reads when it is told that
//! it can, never waits, and does not know of others.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use horolog_sys::listen::hold_back;
use rustls::{Error, ServerConnection};

use super::Keeper;
use super::config::KeConfig;
use super::counters::{Tally, count};
use super::neighbours::Prefix;
use crate::ALPN;
use crate::algorithm::{AES_128_GCM_SIV, Agreed, Keys};
use crate::message::{Grant, REQUEST_LEN_MAX, Request, RequestError, Response};
use crate::records::message_len;

/// Most bytes that are read from one connection, TLS and all. A handshake takes about 2 kB, with
/// keys against quantum computers; the rest is for the request.
const READ_MAX: usize = 16 * 1024;
/// What is thrown away at a time from a client that has been answered.
const DISCARDED_AT_A_TIME: usize = 2048;

/// What became of a connection: the counter for it.
pub(crate) type Outcome = fn(&Tally) -> &AtomicU64;

/// What a connection wants next.
pub(crate) enum Next {
    /// To be told when it can be read or, if so said, written.
    Wait {
        /// Whether there is something to write.
        write: bool,
    },
    /// To be closed.
    Close,
}

/// What all connections share.
pub(crate) struct Desk<'a> {
    pub(crate) config: &'a KeConfig,
    pub(crate) keeper: &'a dyn Keeper,
    pub(crate) tally: &'a Tally,
}

pub(crate) struct Connection {
    stream: TcpStream,
    tls: Box<ServerConnection>,
    pub(crate) opened: Instant,
    pub(crate) prefix: Prefix,
    /// Whether it is registered for writing too.
    pub(crate) watches_write: bool,
    request: Vec<u8>,
    read: usize,
    /// Set once it is known what is said last.
    outcome: Option<Outcome>,
    /// Whether that has been said and counted; from then on it waits for the client to close.
    concluded: bool,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        tls: ServerConnection,
        opened: Instant,
        prefix: Prefix,
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

    /// Counts how it ended, once.
    pub(crate) fn conclude(&mut self, outcome: Outcome, tally: &Tally) {
        if !std::mem::replace(&mut self.concluded, true) {
            count(outcome(tally));
        }
    }

    /// Reads once, does what follows from it, and writes as much as the system takes.
    pub(crate) fn advance(&mut self, desk: &Desk<'_>) -> Next {
        let end: Outcome = match self.read() {
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
        Next::Close
    }

    /// Takes what has come; says whether the client has closed.
    fn read(&mut self) -> io::Result<bool> {
        let length = if self.outcome.is_none() {
            self.tls.read_tls(&mut self.stream)?
        } else {
            self.discard()?
        };
        self.read += length;
        Ok(length == 0)
    }

    /// Throws away what came after the answer. The end of the stream mostly comes with its last
    /// bytes, so it is looked for at once.
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

    /// Handshake and request; an outcome when there is nothing more to wait for but to write.
    fn progress(&mut self, desk: &Desk<'_>) -> Option<Outcome> {
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
        // The buffer has no limit, so this cannot fail; a client would see a cut response.
        let _ = self.tls.writer().write_all(&response.to_bytes());
        self.tls.send_close_notify();
        Some(outcome)
    }

    /// The request, once it is all there or cannot become one.
    fn take_request(&mut self) -> Option<Result<Request, RequestError>> {
        let room = (REQUEST_LEN_MAX + 1).saturating_sub(self.request.len());
        let ended = match self.tls.reader().take(room as u64).read_to_end(&mut self.request) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        match message_len(&self.request) {
            Some(length) if length <= REQUEST_LEN_MAX => Some(Request::parse(&self.request)),
            // With bytes left in the reader, the request is as long as can be read.
            _ if ended || self.request.len() > REQUEST_LEN_MAX => {
                Some(Err(RequestError::BadRequest))
            }
            _ => None,
        }
    }

    fn answer(&self, request: &Request, desk: &Desk<'_>) -> (Response, Outcome) {
        match request.agree(&desk.keeper.algorithms()) {
            Ok(agreed) => match self.grant(agreed, request, desk) {
                Some(grant) => (Response::Granted(grant), |tally| &tally.established),
                None => {
                    (Response::Error(RequestError::Internal as u16), |tally| &tally.internal_error)
                }
            },
            Err(why) => (Response::Disagreed(why), |tally| &tally.nothing_in_common),
        }
    }

    fn grant(&self, agreed: Agreed, request: &Request, desk: &Desk<'_>) -> Option<Grant> {
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

    /// Writes what there is; when that was all, tells the client so, and waits for it to close, so
    /// that nothing that it still sends makes the system throw away what it has not read yet.
    fn flush(&mut self, tally: &Tally) -> Next {
        if self.outcome.is_some() && self.tls.wants_write() {
            // If it cannot be had, the end takes a segment of its own.
            let _ = hold_back(&self.stream);
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return Next::Wait { write: true },
                Err(_) => {
                    self.conclude(|tally| &tally.broken, tally);
                    return Next::Close;
                }
            }
        }
        if let Some(outcome) = self.outcome.filter(|_| !self.concluded) {
            self.conclude(outcome, tally);
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return Next::Close;
            }
        }
        Next::Wait { write: false }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn refuse(error: RequestError) -> (Response, Outcome) {
    (Response::Error(error as u16), |tally| &tally.bad_request)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
