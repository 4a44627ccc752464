//! What a request and a response of NTS key establishment say (RFC 8915, section 4): the rules over
//! several records. Pure: bytes in, values out, and back. Both are short, so both are bounded.

use crate::algorithm::{AES_128_GCM_SIV, Agreed};
use crate::records::{Record, kind, number, numbers};

/// Longest request that is read, in bytes.
pub const REQUEST_LEN_MAX: usize = 4096;
/// Longest response that is read, in bytes: eight cookies of well over a thousand bytes.
pub const RESPONSE_LEN_MAX: usize = 16 * 1024;
/// Longest name of a server that is sent or taken, in bytes: that of a domain name.
pub const SERVER_LEN_MAX: usize = 255;

/// The number of `NTPv4` among the next protocols (RFC 8915, section 7.7).
const NTPV4: u16 = 0;

/// Why a server refuses a request (RFC 8915, section 7.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RequestError {
    /// A critical record of an unknown type.
    UnrecognizedCritical = 0,
    /// Not a request.
    BadRequest = 1,
    /// The server is at fault.
    Internal = 2,
}

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Request {
    /// Whether keys for `NTPv4` are asked for. Nothing else can be had here.
    pub ntpv4: bool,
    /// Numbers of AEAD algorithms, the most wanted first.
    pub algorithms: Vec<u16>,
    /// Whether the client is known to name AES-128-GCM-SIV in the exporter's context as the
    /// standard demands. chrony from 4.4 on does not, unless both sides send record
    /// [`kind::EXACT_EXPORTER`], as chrony has done since 4.6.1.
    pub exact_exporter: bool,
}

impl Request {
    /// Reads a whole message. A host and a port that the client would like are checked, and then
    /// left aside: a server need not follow them.
    pub fn parse(message: &[u8]) -> Result<Self, RequestError> {
        let mut request = Self::default();
        let mut seen = Seen::default();
        let mut left = message;
        while !seen.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = Record::parse(left).ok_or(RequestError::BadRequest)?;
            left = rest;
            if !seen.first(record.kind) {
                return Err(RequestError::BadRequest);
            }
            request.take(record)?;
        }
        let asked = seen.0[usize::from(kind::NEXT_PROTOCOL)];
        let offered = seen.0[usize::from(kind::AEAD_ALGORITHM)];
        // Bytes behind the end, no word of a protocol, or NTPv4 without algorithms.
        if !left.is_empty() || !asked || (request.ntpv4 && !offered) {
            return Err(RequestError::BadRequest);
        }
        Ok(request)
    }

    fn take(&mut self, record: Record<'_>) -> Result<(), RequestError> {
        let sound = match record.kind {
            kind::END_OF_MESSAGE => record.critical && record.body.is_empty(),
            kind::NEXT_PROTOCOL => {
                let protocols = list(record.body).ok_or(RequestError::BadRequest)?;
                self.ntpv4 = protocols.contains(&NTPV4);
                record.critical && !protocols.is_empty()
            }
            kind::AEAD_ALGORITHM => {
                self.algorithms = list(record.body).ok_or(RequestError::BadRequest)?;
                !self.algorithms.is_empty()
            }
            kind::SERVER => host(record.body).is_some(),
            kind::PORT => number(record.body).is_some(),
            // Only servers send these.
            kind::ERROR | kind::WARNING | kind::NEW_COOKIE => false,
            kind::EXACT_EXPORTER => {
                self.exact_exporter = true;
                true
            }
            _ if record.critical => return Err(RequestError::UnrecognizedCritical),
            _ => true,
        };
        sound.then_some(()).ok_or(RequestError::BadRequest)
    }

    /// The message that asks this.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let protocol: &[u16] = if self.ntpv4 { &[NTPV4] } else { &[] };
        emit_numbers(&mut message, kind::NEXT_PROTOCOL, protocol);
        emit_numbers(&mut message, kind::AEAD_ALGORITHM, &self.algorithms);
        if self.exact_exporter {
            emit(&mut message, false, kind::EXACT_EXPORTER, &[]);
        }
        emit(&mut message, true, kind::END_OF_MESSAGE, &[]);
        message
    }

    /// What a server that has `algorithms`, its favourite first, agrees on with this client.
    pub fn agree(&self, algorithms: &[u16]) -> Result<Agreed, Disagreement> {
        if !self.ntpv4 {
            return Err(Disagreement::Protocol);
        }
        let common = || algorithms.iter().filter(|&ours| self.algorithms.contains(ours));
        // A client of which it is not known how it exports keys gets one of those that leave no
        // doubt, as long as there is one.
        let certain = |algorithm: u16| self.exact_exporter || algorithm != AES_128_GCM_SIV;
        let algorithm = common().copied().find(|&one| certain(one));
        let algorithm = algorithm.or_else(|| common().next().copied());
        let algorithm = algorithm.ok_or(Disagreement::Algorithm)?;
        Ok(Agreed { algorithm, context: algorithm })
    }
}

/// What client and server do not have in common. It is not an error of the protocol: the response
/// says so by an empty list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disagreement {
    /// The client does not want `NTPv4`.
    Protocol,
    /// There is no common AEAD algorithm.
    Algorithm,
}

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// Keys are agreed on.
    Granted(Grant),
    /// Nothing in common.
    Disagreed(Disagreement),
    /// The request is refused, with the number of the error.
    Error(u16),
}

/// What a server gives to a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Grant {
    /// Number of the AEAD algorithm.
    pub algorithm: u16,
    /// See [`Request::exact_exporter`].
    pub exact_exporter: bool,
    /// The host to ask for the time, if it is another one.
    pub server: Option<String>,
    /// The UDP port to ask for the time, if it is not 123.
    pub port: Option<u16>,
    /// At least one.
    pub cookies: Vec<Vec<u8>>,
}

/// A response that cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadResponse {
    /// A record is cut, misshapen, repeated or missing.
    #[error("it breaks the rules of RFC 8915, section 4")]
    Malformed,
    /// A critical record is of an unknown type.
    #[error("its critical record of type {0} is not known")]
    UnrecognizedCritical(u16),
    /// A warning, all of which are unknown, and so count as errors (RFC 8915, section 4.1.4).
    #[error("it carries the unknown warning {0}")]
    Warning(u16),
}

impl Response {
    /// Reads a whole message.
    pub fn parse(message: &[u8]) -> Result<Self, BadResponse> {
        let mut reading = Reading::default();
        let mut seen = Seen::default();
        let mut left = message;
        while !seen.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = Record::parse(left).ok_or(BadResponse::Malformed)?;
            left = rest;
            if record.kind != kind::NEW_COOKIE && !seen.first(record.kind) {
                return Err(BadResponse::Malformed);
            }
            reading.take(record)?;
        }
        reading.finish().filter(|_| left.is_empty()).ok_or(BadResponse::Malformed)
    }

    /// The message that answers this.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        match self {
            Self::Granted(grant) => grant.emit(&mut message),
            Self::Disagreed(Disagreement::Protocol) => {
                emit_numbers(&mut message, kind::NEXT_PROTOCOL, &[]);
            }
            Self::Disagreed(Disagreement::Algorithm) => {
                emit_numbers(&mut message, kind::NEXT_PROTOCOL, &[NTPV4]);
                emit_numbers(&mut message, kind::AEAD_ALGORITHM, &[]);
            }
            Self::Error(code) => emit(&mut message, true, kind::ERROR, &code.to_be_bytes()),
        }
        emit(&mut message, true, kind::END_OF_MESSAGE, &[]);
        message
    }
}

impl Grant {
    fn emit(&self, message: &mut Vec<u8>) {
        emit_numbers(message, kind::NEXT_PROTOCOL, &[NTPV4]);
        emit_numbers(message, kind::AEAD_ALGORITHM, &[self.algorithm]);
        if self.exact_exporter {
            emit(message, false, kind::EXACT_EXPORTER, &[]);
        }
        if let Some(server) = &self.server {
            emit(message, true, kind::SERVER, server.as_bytes());
        }
        if let Some(port) = self.port {
            emit(message, true, kind::PORT, &port.to_be_bytes());
        }
        for cookie in &self.cookies {
            emit(message, false, kind::NEW_COOKIE, cookie);
        }
    }
}

/// A response as far as it has been read.
#[derive(Default)]
struct Reading {
    grant: Grant,
    protocols: Option<Vec<u16>>,
    algorithms: Option<Vec<u16>>,
    error: Option<u16>,
}

impl Reading {
    fn take(&mut self, record: Record<'_>) -> Result<(), BadResponse> {
        let one = || number(record.body).ok_or(BadResponse::Malformed);
        let many = || list(record.body).ok_or(BadResponse::Malformed);
        match record.kind {
            kind::END_OF_MESSAGE if record.body.is_empty() => {}
            kind::END_OF_MESSAGE => return Err(BadResponse::Malformed),
            kind::NEXT_PROTOCOL => self.protocols = Some(many()?),
            kind::AEAD_ALGORITHM => self.algorithms = Some(many()?),
            kind::ERROR => self.error = Some(one()?),
            kind::WARNING => return Err(BadResponse::Warning(one()?)),
            kind::NEW_COOKIE if record.body.is_empty() => return Err(BadResponse::Malformed),
            kind::NEW_COOKIE => self.grant.cookies.push(record.body.to_vec()),
            kind::SERVER => {
                self.grant.server = Some(host(record.body).ok_or(BadResponse::Malformed)?.into());
            }
            kind::PORT => self.grant.port = Some(one()?),
            kind::EXACT_EXPORTER => self.grant.exact_exporter = true,
            unknown if record.critical => return Err(BadResponse::UnrecognizedCritical(unknown)),
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Option<Response> {
        if let Some(code) = self.error {
            return Some(Response::Error(code));
        }
        if self.protocols?.first() != Some(&NTPV4) {
            return Some(Response::Disagreed(Disagreement::Protocol));
        }
        match self.algorithms?[..] {
            [] => Some(Response::Disagreed(Disagreement::Algorithm)),
            [algorithm] if !self.grant.cookies.is_empty() => {
                self.grant.algorithm = algorithm;
                Some(Response::Granted(self.grant))
            }
            _ => None,
        }
    }
}

/// Which of the known types have come; every one may come once.
#[derive(Default)]
struct Seen([bool; 8]);

impl Seen {
    /// Whether this is the first of its type, or of a type that is not known.
    fn first(&mut self, kind: u16) -> bool {
        self.0.get_mut(usize::from(kind)).is_none_or(|seen| !std::mem::replace(seen, true))
    }
}

fn list(body: &[u8]) -> Option<Vec<u16>> {
    numbers(body).map(Iterator::collect)
}

/// A host's name or address (RFC 8915, section 4.1.7): printable ASCII.
fn host(body: &[u8]) -> Option<&str> {
    let sound = (1..=SERVER_LEN_MAX).contains(&body.len()) && body.iter().all(u8::is_ascii_graphic);
    sound.then(|| std::str::from_utf8(body).ok())?
}

fn emit(message: &mut Vec<u8>, critical: bool, kind: u16, body: &[u8]) {
    Record { critical, kind, body }.emit(message);
}

fn emit_numbers(message: &mut Vec<u8>, kind: u16, numbers: &[u16]) {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    emit(message, true, kind, &body);
}

#[cfg(test)]
mod tests;
