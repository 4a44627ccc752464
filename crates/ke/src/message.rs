//! Requests and responses of NTS key establishment (RFC 8915, section 4): conversion from and to
//! bytes, with the rules that concern several records. Pure. The length of messages is limited.

use std::net::IpAddr;

use crate::algorithm::{AES_128_GCM_SIV, NegotiatedAlgorithm};
use crate::records::{NtsKeRecord, kind, number, numbers};

/// Longest accepted request, in bytes; RFC 8915, section 4, requires a server to accept 1024.
pub const REQUEST_LEN_MAX: usize = 4096;
/// Longest accepted response, in bytes: the minimum that RFC 8915, section 4, requires a client to
/// accept.
pub const RESPONSE_LEN_MAX: usize = 65_536;
/// Longest server name that is sent or accepted, in bytes: the limit of a domain name.
pub const SERVER_LEN_MAX: usize = 255;

/// The number of `NTPv4` among the next protocols (RFC 8915, section 7.7).
const NTPV4: u16 = 0;

/// Error code by which a server refuses a request (RFC 8915, section 7.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum NtsKeErrorCode {
    /// A critical record of an unknown type.
    UnrecognizedCritical = 0,
    /// The message is not a valid request.
    BadRequest = 1,
    /// Internal error of the server.
    Internal = 2,
}

/// Request of a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NtsKeRequest {
    /// True if keys for `NTPv4` are requested. No other protocol is supported.
    pub ntpv4: bool,
    /// Numbers of AEAD algorithms, in order of preference.
    pub algorithms: Vec<u16>,
    /// True if the client exports keys for AES-128-GCM-SIV according to RFC 8915, with that
    /// algorithm in the exporter's context. chrony from 4.4 on does so only if both sides send
    /// record [`kind::EXACT_EXPORTER`], which chrony sends since 4.6.1.
    pub exact_exporter: bool,
}

impl NtsKeRequest {
    /// Parses a complete message. The client's preferred server and port are ignored, even if
    /// invalid, because a server need not follow them (RFC 8915, sections 4.1.7 and 4.1.8).
    pub fn parse(message: &[u8]) -> Result<Self, NtsKeErrorCode> {
        let mut request = Self::default();
        let mut present = ReceivedRecordTypes::default();
        let mut left = message;
        while !present.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = NtsKeRecord::parse(left).ok_or(NtsKeErrorCode::BadRequest)?;
            left = rest;
            if !present.mark_present(record.kind) {
                return Err(NtsKeErrorCode::BadRequest);
            }
            request.apply_record(record)?;
        }
        let has_protocols = present.0[usize::from(kind::NEXT_PROTOCOL)];
        let offered = present.0[usize::from(kind::AEAD_ALGORITHM)];
        // Invalid: bytes after the end, no protocol record, or NTPv4 without algorithms.
        if !left.is_empty() || !has_protocols || (request.ntpv4 && !offered) {
            return Err(NtsKeErrorCode::BadRequest);
        }
        Ok(request)
    }

    fn apply_record(&mut self, record: NtsKeRecord<'_>) -> Result<(), NtsKeErrorCode> {
        let is_valid = match record.kind {
            // Senders must set the critical bit of these two records; it is not required here.
            kind::END_OF_MESSAGE => record.body.is_empty(),
            kind::NEXT_PROTOCOL => {
                let protocols = parse_numbers(record.body).ok_or(NtsKeErrorCode::BadRequest)?;
                self.ntpv4 = protocols.contains(&NTPV4);
                !protocols.is_empty()
            }
            kind::AEAD_ALGORITHM => {
                self.algorithms = parse_numbers(record.body).ok_or(NtsKeErrorCode::BadRequest)?;
                !self.algorithms.is_empty()
            }
            // Only servers send these.
            kind::ERROR | kind::WARNING | kind::NEW_COOKIE => false,
            kind::EXACT_EXPORTER => {
                self.exact_exporter = true;
                true
            }
            kind::SERVER | kind::PORT => true,
            _ if record.critical => return Err(NtsKeErrorCode::UnrecognizedCritical),
            _ => true,
        };
        is_valid.then_some(()).ok_or(NtsKeErrorCode::BadRequest)
    }

    /// Serialises the request as a message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let protocol: &[u16] = if self.ntpv4 { &[NTPV4] } else { &[] };
        append_numbers(&mut message, kind::NEXT_PROTOCOL, protocol);
        append_numbers(&mut message, kind::AEAD_ALGORITHM, &self.algorithms);
        if self.exact_exporter {
            append_record(&mut message, false, kind::EXACT_EXPORTER, &[]);
        }
        append_record(&mut message, true, kind::END_OF_MESSAGE, &[]);
        message
    }

    /// Returns the first of the server's `algorithms`, in its order of preference, that this client
    /// offers; AES-128-GCM-SIV only after all others if the client does not state how it exports
    /// keys for it.
    ///
    /// # Errors
    ///
    /// If the client does not request `NTPv4`, or offers none of the algorithms.
    pub fn negotiate(&self, algorithms: &[u16]) -> Result<NegotiatedAlgorithm, NegotiationFailure> {
        if !self.ntpv4 {
            return Err(NegotiationFailure::Protocol);
        }
        let common = || algorithms.iter().filter(|&ours| self.algorithms.contains(ours));
        // AES-128-GCM-SIV is the last choice for a client that does not state how it exports keys.
        let has_certain_keys = |algorithm: u16| self.exact_exporter || algorithm != AES_128_GCM_SIV;
        let algorithm = common().copied().find(|&one| has_certain_keys(one));
        let algorithm = algorithm.or_else(|| common().next().copied());
        let algorithm = algorithm.ok_or(NegotiationFailure::Algorithm)?;
        Ok(NegotiatedAlgorithm { algorithm, context: algorithm })
    }
}

/// Lack of a common protocol or algorithm. The response then contains an empty list, not an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NegotiationFailure {
    /// The client does not request `NTPv4`.
    Protocol,
    /// There is no common AEAD algorithm.
    Algorithm,
}

/// Response of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NtsKeResponse {
    /// Keys are negotiated.
    Negotiated(NegotiatedParameters),
    /// Client and server have no protocol or algorithm in common.
    NothingInCommon(NegotiationFailure),
    /// The server refused the request, with this error code.
    Error(u16),
}

/// Negotiated algorithm, cookies and NTP server for a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NegotiatedParameters {
    /// Number of the AEAD algorithm.
    pub algorithm: u16,
    /// True if the server exports keys according to RFC 8915: see [`NtsKeRequest::exact_exporter`].
    pub exact_exporter: bool,
    /// The NTP server, if it is another host.
    pub server: Option<String>,
    /// The UDP port of the NTP server, if it is not 123.
    pub port: Option<u16>,
    /// Cookies, at least one.
    pub cookies: Vec<Vec<u8>>,
}

/// Reason why a response is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadResponse {
    /// A record is truncated, malformed, repeated or missing.
    #[error("{0} (RFC 8915, section 4)")]
    Malformed(&'static str),
    /// A critical record is of an unknown type.
    #[error("unknown critical record of type {0}")]
    UnrecognizedCritical(u16),
    /// A warning record. No warning codes are known, and unknown ones must be treated as errors
    /// (RFC 8915, section 4.1.4).
    #[error("unknown warning {0}")]
    Warning(u16),
    /// The response has no cookies.
    #[error("no cookies")]
    NoCookies,
    /// The NTP server is neither a domain name nor an address without a zone (RFC 8915, section
    /// 4.1.7).
    #[error("NTP server '{0}' is neither an address nor a domain name")]
    Server(String),
    /// The NTP port is 0.
    #[error("NTP port is 0")]
    Port,
}

const TRUNCATED: BadResponse = BadResponse::Malformed("a record is truncated");

impl NtsKeResponse {
    /// Parses a complete message.
    pub fn parse(message: &[u8]) -> Result<Self, BadResponse> {
        let mut partial = ParsedResponseRecords::default();
        let mut present = ReceivedRecordTypes::default();
        let mut left = message;
        while !present.0[usize::from(kind::END_OF_MESSAGE)] {
            let (record, rest) = NtsKeRecord::parse(left).ok_or(TRUNCATED)?;
            left = rest;
            if record.kind != kind::NEW_COOKIE && !present.mark_present(record.kind) {
                return Err(BadResponse::Malformed("a record occurs twice that may occur once"));
            }
            partial.apply_record(record)?;
        }
        if !left.is_empty() {
            return Err(BadResponse::Malformed("data after the End of Message record"));
        }
        partial.finish()
    }

    /// Serialises the response as a message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        match self {
            Self::Negotiated(grant) => grant.append_to(&mut message),
            Self::NothingInCommon(NegotiationFailure::Protocol) => {
                append_numbers(&mut message, kind::NEXT_PROTOCOL, &[]);
            }
            Self::NothingInCommon(NegotiationFailure::Algorithm) => {
                append_numbers(&mut message, kind::NEXT_PROTOCOL, &[NTPV4]);
                append_numbers(&mut message, kind::AEAD_ALGORITHM, &[]);
            }
            Self::Error(code) => {
                append_record(&mut message, true, kind::ERROR, &code.to_be_bytes());
            }
        }
        append_record(&mut message, true, kind::END_OF_MESSAGE, &[]);
        message
    }
}

impl NegotiatedParameters {
    fn append_to(&self, message: &mut Vec<u8>) {
        append_numbers(message, kind::NEXT_PROTOCOL, &[NTPV4]);
        append_numbers(message, kind::AEAD_ALGORITHM, &[self.algorithm]);
        if self.exact_exporter {
            append_record(message, false, kind::EXACT_EXPORTER, &[]);
        }
        if let Some(server) = &self.server {
            append_record(message, true, kind::SERVER, server.as_bytes());
        }
        if let Some(port) = self.port {
            append_record(message, true, kind::PORT, &port.to_be_bytes());
        }
        for cookie in &self.cookies {
            append_record(message, false, kind::NEW_COOKIE, cookie);
        }
    }
}

/// Records of a response that have been parsed.
#[derive(Default)]
struct ParsedResponseRecords {
    grant: NegotiatedParameters,
    protocols: Option<Vec<u16>>,
    algorithms: Option<Vec<u16>>,
    error: Option<u16>,
}

impl ParsedResponseRecords {
    fn apply_record(&mut self, record: NtsKeRecord<'_>) -> Result<(), BadResponse> {
        let wrong_length = BadResponse::Malformed("a record has the wrong length");
        let one = || number(record.body).ok_or(wrong_length.clone());
        let many = || parse_numbers(record.body).ok_or(wrong_length.clone());
        match record.kind {
            kind::END_OF_MESSAGE if record.body.is_empty() => {}
            kind::NEW_COOKIE if !record.body.is_empty() => {
                self.grant.cookies.push(record.body.to_vec());
            }
            kind::END_OF_MESSAGE | kind::NEW_COOKIE => return Err(wrong_length),
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

    fn finish(mut self) -> Result<NtsKeResponse, BadResponse> {
        if let Some(code) = self.error {
            return Ok(NtsKeResponse::Error(code));
        }
        let malformed = BadResponse::Malformed;
        let protocols = self.protocols.ok_or(malformed("the Next Protocol record is missing"))?;
        if !protocols.contains(&NTPV4) {
            return Ok(NtsKeResponse::NothingInCommon(NegotiationFailure::Protocol));
        }
        let algorithms =
            self.algorithms.ok_or(malformed("the AEAD Algorithm record is missing"))?;
        match algorithms[..] {
            [] => return Ok(NtsKeResponse::NothingInCommon(NegotiationFailure::Algorithm)),
            [algorithm] => self.grant.algorithm = algorithm,
            _ => return Err(malformed("it selects more than one AEAD algorithm")),
        }
        match (self.grant.cookies.is_empty(), self.grant.port) {
            (true, _) => Err(BadResponse::NoCookies),
            (_, Some(0)) => Err(BadResponse::Port),
            _ => Ok(NtsKeResponse::Negotiated(self.grant)),
        }
    }
}

/// Record types received so far; each may occur once.
#[derive(Default)]
struct ReceivedRecordTypes([bool; 8]);

impl ReceivedRecordTypes {
    /// Marks a record type as present. Returns true if it was not present before, or is not one of
    /// the types 0 to 7, which alone are tracked.
    fn mark_present(&mut self, kind: u16) -> bool {
        self.0
            .get_mut(usize::from(kind))
            .is_none_or(|is_present| !std::mem::replace(is_present, true))
    }
}

fn parse_numbers(body: &[u8]) -> Option<Vec<u16>> {
    numbers(body).map(Iterator::collect)
}

/// Returns the text of a server record (RFC 8915, section 4.1.7); `None` if it is empty, too long
/// or not printable ASCII.
fn printable_host(body: &[u8]) -> Option<&str> {
    let is_valid =
        (1..=SERVER_LEN_MAX).contains(&body.len()) && body.iter().all(u8::is_ascii_graphic);
    is_valid.then(|| std::str::from_utf8(body).ok())?
}

/// Returns true if a server may name this NTP server to clients: an address without brackets or a
/// zone, or a domain name (RFC 8915, section 4.1.7).
#[must_use]
pub fn is_ntp_server(text: &str) -> bool {
    ntp_server(text.as_bytes()).is_ok_and(|name| name == text)
}

/// Parses the NTP server in a response: an address, without brackets that it may have, or a domain
/// name, without a final dot. Zones are rejected, because interface names differ between hosts.
fn ntp_server(body: &[u8]) -> Result<String, BadResponse> {
    let shown = &body[..body.len().min(SERVER_LEN_MAX)];
    let bad = || BadResponse::Server(shown.escape_ascii().to_string());
    let text = printable_host(body).ok_or_else(bad)?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // Without this, a resolver could interpret a name of digits as an address (inet_aton(3)).
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    let has_labels = name.split('.').all(|label| !label.is_empty());
    let is_valid = has_letter && has_labels && name.bytes().all(is_name_byte);
    is_valid.then(|| name.to_owned()).ok_or_else(bad)
}

fn append_record(message: &mut Vec<u8>, critical: bool, kind: u16, body: &[u8]) {
    NtsKeRecord { critical, kind, body }.append_to(message);
}

fn append_numbers(message: &mut Vec<u8>, kind: u16, numbers: &[u16]) {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    append_record(message, true, kind, &body);
}

#[cfg(test)]
mod tests;
