//! Requests and responses of NTS key establishment (RFC 8915, section 4): the rules that span
//! several records. Pure: bytes in, values out, and back. Both are short, so both are bounded.

use std::net::IpAddr;

use crate::algorithm::{AES_128_GCM_SIV, NegotiatedAlgorithm};
use crate::records::{Record, kind, number, numbers};

/// Longest accepted request, in bytes; RFC 8915, section 4, requires a server to accept 1024.
pub const REQUEST_LEN_MAX: usize = 4096;
/// Longest accepted response, in bytes: the minimum that RFC 8915, section 4, requires a client to
/// accept.
pub const RESPONSE_LEN_MAX: usize = 65_536;
/// Longest name of a server that is sent or accepted, in bytes: the limit of a domain name.
pub const SERVER_LEN_MAX: usize = 255;

/// The number of `NTPv4` among the next protocols (RFC 8915, section 7.7).
const NTPV4: u16 = 0;

/// Reason for which a server refuses a request (RFC 8915, section 7.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RequestError {
    /// A critical record of an unknown type.
    UnrecognizedCritical = 0,
    /// Not a request.
    BadRequest = 1,
    /// Internal error of the server.
    Internal = 2,
}

/// Request of a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeRequest {
    /// True if keys for `NTPv4` are requested. No other protocol is supported.
    pub ntpv4: bool,
    /// Numbers of AEAD algorithms, in order of preference.
    pub algorithms: Vec<u16>,
    /// True if the client is known to use AES-128-GCM-SIV in the exporter's context as the standard
    /// demands. chrony from 4.4 on does not, unless both sides send record
    /// [`kind::EXACT_EXPORTER`], as chrony has done since 4.6.1.
    pub exact_exporter: bool,
}

impl KeRequest {
    /// Reads a whole message. The client's preferred host and port are ignored, even if invalid: a
    /// server need not follow them (RFC 8915, sections 4.1.7 and 4.1.8).
    pub fn parse(message: &[u8]) -> Result<Self, RequestError> {
        let mut request = Self::default();
        let mut present = PresentRecords::default();
        let mut left = message;
        while !present.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = Record::parse(left).ok_or(RequestError::BadRequest)?;
            left = rest;
            if !present.first(record.kind) {
                return Err(RequestError::BadRequest);
            }
            request.take(record)?;
        }
        let has_protocols = present.0[usize::from(kind::NEXT_PROTOCOL)];
        let offered = present.0[usize::from(kind::AEAD_ALGORITHM)];
        // Bytes after the end, no protocol record, or NTPv4 without algorithms.
        if !left.is_empty() || !has_protocols || (request.ntpv4 && !offered) {
            return Err(RequestError::BadRequest);
        }
        Ok(request)
    }

    fn take(&mut self, record: Record<'_>) -> Result<(), RequestError> {
        let sound = match record.kind {
            // The critical bit is mandatory for senders of these two; receivers need not refuse
            // them without it.
            kind::END_OF_MESSAGE => record.body.is_empty(),
            kind::NEXT_PROTOCOL => {
                let protocols = list(record.body).ok_or(RequestError::BadRequest)?;
                self.ntpv4 = protocols.contains(&NTPV4);
                !protocols.is_empty()
            }
            kind::AEAD_ALGORITHM => {
                self.algorithms = list(record.body).ok_or(RequestError::BadRequest)?;
                !self.algorithms.is_empty()
            }
            // Only servers send these.
            kind::ERROR | kind::WARNING | kind::NEW_COOKIE => false,
            kind::EXACT_EXPORTER => {
                self.exact_exporter = true;
                true
            }
            kind::SERVER | kind::PORT => true,
            _ if record.critical => return Err(RequestError::UnrecognizedCritical),
            _ => true,
        };
        sound.then_some(()).ok_or(RequestError::BadRequest)
    }

    /// The request as a message.
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

    /// The algorithm that a server with `algorithms`, in order of preference, negotiates with this
    /// client.
    pub fn agree(&self, algorithms: &[u16]) -> Result<NegotiatedAlgorithm, NegotiationFailure> {
        if !self.ntpv4 {
            return Err(NegotiationFailure::Protocol);
        }
        let common = || algorithms.iter().filter(|&ours| self.algorithms.contains(ours));
        // A client with an unknown way of exporting keys gets an unambiguous algorithm, if there is
        // one.
        let certain = |algorithm: u16| self.exact_exporter || algorithm != AES_128_GCM_SIV;
        let algorithm = common().copied().find(|&one| certain(one));
        let algorithm = algorithm.or_else(|| common().next().copied());
        let algorithm = algorithm.ok_or(NegotiationFailure::Algorithm)?;
        Ok(NegotiatedAlgorithm { algorithm, context: algorithm })
    }
}

/// Lack of a common protocol or algorithm. It is not a protocol error: the response contains an
/// empty list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NegotiationFailure {
    /// The client does not request `NTPv4`.
    Protocol,
    /// There is no common AEAD algorithm.
    Algorithm,
}

/// Response of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeResponse {
    /// Keys are negotiated.
    Granted(Grant),
    /// Nothing is in common.
    Disagreed(NegotiationFailure),
    /// The request is refused, with the number of the error.
    Error(u16),
}

/// Cookies and server address granted to a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Grant {
    /// Number of the AEAD algorithm.
    pub algorithm: u16,
    /// See [`KeRequest::exact_exporter`].
    pub exact_exporter: bool,
    /// The NTP server, if it is another host.
    pub server: Option<String>,
    /// The UDP port of the NTP server, if it is not 123.
    pub port: Option<u16>,
    /// At least one.
    pub cookies: Vec<Vec<u8>>,
}

/// Defect of a response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadResponse {
    /// A record is truncated, malformed, repeated or missing.
    #[error("{0} (RFC 8915, section 4)")]
    Malformed(&'static str),
    /// A critical record is of an unknown type.
    #[error("unknown critical record of type {0}")]
    UnrecognizedCritical(u16),
    /// A warning. All warnings are unknown, and so count as errors (RFC 8915, section 4.1.4).
    #[error("unknown warning {0}")]
    Warning(u16),
    /// Keys without a cookie.
    #[error("no cookies")]
    NoCookies,
    /// The NTP server's name is neither an address without a zone nor a domain name (RFC 8915,
    /// section 4.1.7).
    #[error("NTP server '{0}' is neither an address nor a domain name")]
    Server(String),
    /// UDP has no port 0.
    #[error("NTP port is 0")]
    Port,
}

const CUT: BadResponse = BadResponse::Malformed("a record is truncated");

impl KeResponse {
    /// Reads a whole message.
    pub fn parse(message: &[u8]) -> Result<Self, BadResponse> {
        let mut reading = PartialResponse::default();
        let mut present = PresentRecords::default();
        let mut left = message;
        while !present.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = Record::parse(left).ok_or(CUT)?;
            left = rest;
            if record.kind != kind::NEW_COOKIE && !present.first(record.kind) {
                return Err(BadResponse::Malformed("a record occurs twice that may occur once"));
            }
            reading.take(record)?;
        }
        if !left.is_empty() {
            return Err(BadResponse::Malformed("data after the End of Message record"));
        }
        reading.finish()
    }

    /// The response as a message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        match self {
            Self::Granted(grant) => grant.emit(&mut message),
            Self::Disagreed(NegotiationFailure::Protocol) => {
                emit_numbers(&mut message, kind::NEXT_PROTOCOL, &[]);
            }
            Self::Disagreed(NegotiationFailure::Algorithm) => {
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

/// A response as read so far.
#[derive(Default)]
struct PartialResponse {
    grant: Grant,
    protocols: Option<Vec<u16>>,
    algorithms: Option<Vec<u16>>,
    error: Option<u16>,
}

impl PartialResponse {
    fn take(&mut self, record: Record<'_>) -> Result<(), BadResponse> {
        let odd = BadResponse::Malformed("a record has the wrong length");
        let one = || number(record.body).ok_or(odd.clone());
        let many = || list(record.body).ok_or(odd.clone());
        match record.kind {
            kind::END_OF_MESSAGE if record.body.is_empty() => {}
            kind::NEW_COOKIE if !record.body.is_empty() => {
                self.grant.cookies.push(record.body.to_vec());
            }
            kind::END_OF_MESSAGE | kind::NEW_COOKIE => return Err(odd),
            kind::NEXT_PROTOCOL => self.protocols = Some(many()?),
            kind::AEAD_ALGORITHM => self.algorithms = Some(many()?),
            kind::ERROR => self.error = Some(one()?),
            kind::WARNING => return Err(BadResponse::Warning(one()?)),
            kind::SERVER => self.grant.server = Some(ntp_server(record.body)?),
            kind::PORT => self.grant.port = Some(one()?),
            kind::EXACT_EXPORTER => self.grant.exact_exporter = true,
            unknown if record.critical => return Err(BadResponse::UnrecognizedCritical(unknown)),
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<KeResponse, BadResponse> {
        if let Some(code) = self.error {
            return Ok(KeResponse::Error(code));
        }
        let lacks = BadResponse::Malformed;
        let protocols = self.protocols.ok_or(lacks("the Next Protocol record is missing"))?;
        if !protocols.contains(&NTPV4) {
            return Ok(KeResponse::Disagreed(NegotiationFailure::Protocol));
        }
        let algorithms = self.algorithms.ok_or(lacks("the AEAD Algorithm record is missing"))?;
        match algorithms[..] {
            [] => return Ok(KeResponse::Disagreed(NegotiationFailure::Algorithm)),
            [algorithm] => self.grant.algorithm = algorithm,
            _ => return Err(lacks("it selects more than one AEAD algorithm")),
        }
        match (self.grant.cookies.is_empty(), self.grant.port) {
            (true, _) => Err(BadResponse::NoCookies),
            (_, Some(0)) => Err(BadResponse::Port),
            _ => Ok(KeResponse::Granted(self.grant)),
        }
    }
}

/// Record types received so far; each may occur once.
#[derive(Default)]
struct PresentRecords([bool; 8]);

impl PresentRecords {
    /// Returns true if this is the first record of its type, or of an unknown type.
    fn first(&mut self, kind: u16) -> bool {
        self.0
            .get_mut(usize::from(kind))
            .is_none_or(|is_present| !std::mem::replace(is_present, true))
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

/// Returns true if a server may name this NTP server to clients: an address without brackets or a
/// zone, or a domain name (RFC 8915, section 4.1.7).
#[must_use]
pub fn is_ntp_server(text: &str) -> bool {
    ntp_server(text.as_bytes()).is_ok_and(|name| name == text)
}

/// The NTP server in a response. The response comes from another host, on which a zone identifier
/// would mean another interface, so zones are rejected.
fn ntp_server(body: &[u8]) -> Result<String, BadResponse> {
    let shown = &body[..body.len().min(SERVER_LEN_MAX)];
    let bad = || BadResponse::Server(shown.escape_ascii().to_string());
    let text = host(body).ok_or_else(bad)?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // A number of another form would be parsed as an address in surprising ways.
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    let has_labels = name.split('.').all(|label| !label.is_empty());
    let sound = has_letter && has_labels && name.bytes().all(is_name_byte);
    sound.then(|| name.to_owned()).ok_or_else(bad)
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
