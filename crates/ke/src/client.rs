//! NTS-KE client. [`NtsKeExchangeInProgress`] runs the protocol over any stream, blocking or not;
//! [`NtsKeClient`] holds the state that exchanges share, and also runs exchanges over TCP. Nothing
//! is retried, and no host name is resolved.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use horolog_sys::listen::set_cork;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection};
use zeroize::Zeroizing;

use crate::algorithm::{AES_128_GCM_SIV, AES_SIV_CMAC_256, NegotiatedAlgorithm, NtsKeys, key_len};
use crate::message::{
    NegotiatedParameters, NegotiationFailure, NtsKeRequest, NtsKeResponse, RESPONSE_LEN_MAX,
};
use crate::records::message_len;
use crate::verifier::CachingVerifier;
use crate::{ALPN, NtsKeError, NtsKeExchangePhase, TrustAnchors};

/// Result of an exchange: keys, cookies and NTP server of an NTS session. The keys are wiped on
/// drop.
pub struct SessionMaterial {
    /// Number of the AEAD algorithm.
    pub algorithm: u16,
    /// The client-to-server key.
    pub c2s: Zeroizing<Vec<u8>>,
    /// The server-to-client key.
    pub s2c: Zeroizing<Vec<u8>>,
    /// Cookies, at least one.
    pub cookies: Vec<Vec<u8>>,
    /// The NTP server, if it is another host.
    pub server: Option<String>,
    /// The UDP port of the NTP server, if it is not 123.
    pub port: Option<u16>,
    /// True if the keys may be wrong, because the server did not indicate how it exports keys for
    /// AES-128-GCM-SIV: see [`NtsKeClient::fallback_client`].
    pub keys_uncertain: bool,
}

impl fmt::Debug for SessionMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionMaterial")
            .field("algorithm", &self.algorithm)
            .field("cookies", &self.cookies.len())
            .field("server", &self.server)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Runs one exchange with the server at `address`, whose certificate must be valid for the name
/// `target`, by a client of its own. `algorithms` are numbers of AEAD algorithms in order of
/// preference; see [`NtsKeClient::exchange_keys`].
pub fn exchange_keys(
    target: &str,
    address: SocketAddr,
    trust: &TrustAnchors,
    algorithms: &[u16],
    timeout: Duration,
) -> Result<SessionMaterial, NtsKeError> {
    NtsKeClient::new(trust, algorithms)?.exchange_keys(target, address, timeout)
}

/// NTS-KE client: configuration shared by all exchanges with the same trust anchors. Sessions are
/// not resumed, so each exchange has a full handshake.
#[derive(Clone)]
pub struct NtsKeClient {
    config: Arc<ClientConfig>,
    request: NtsKeRequest,
    /// True if keys are exported according to RFC 8915 even if the server does not indicate that it
    /// does so.
    uses_standard_exporter: bool,
}

impl NtsKeClient {
    /// Creates a client. `algorithms` are numbers of AEAD algorithms known to [`crate::key_len`],
    /// in order of preference.
    pub fn new(trust: &TrustAnchors, algorithms: &[u16]) -> Result<Self, NtsKeError> {
        if algorithms.is_empty() || algorithms.iter().any(|&one| key_len(one).is_none()) {
            let list = algorithms.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let wrong = format!("'{list}' is not a list of AEAD algorithms that NTS can use");
            return Err(NtsKeError::Configuration(wrong));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = CachingVerifier::new(trust, &provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        let request = NtsKeRequest {
            ntpv4: true,
            algorithms: algorithms.to_vec(),
            exact_exporter: algorithms.contains(&AES_128_GCM_SIV),
        };
        Ok(Self { config: Arc::new(config), request, uses_standard_exporter: false })
    }

    /// Returns a client for another attempt after keys for AES-128-GCM-SIV proved wrong. It does
    /// not offer that algorithm or, if it has no other, exports the keys according to RFC 8915.
    #[must_use]
    pub fn fallback_client(&self) -> Self {
        let mut client = Self { uses_standard_exporter: true, ..self.clone() };
        let others = |&one: &u16| one != AES_128_GCM_SIV;
        let algorithms: Vec<_> = self.request.algorithms.iter().copied().filter(others).collect();
        if !algorithms.is_empty() {
            client.request = NtsKeRequest { algorithms, exact_exporter: false, ntpv4: true };
        }
        client
    }

    /// Begins an exchange with a server whose certificate must be valid for `target`, a host name
    /// or an IP address.
    pub fn begin(&self, target: &str) -> Result<NtsKeExchangeInProgress, NtsKeError> {
        let name = ServerName::try_from(target.to_owned())
            .map_err(|_| NtsKeError::InvalidName(target.to_owned()))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name)?;
        // rustls buffers the request until the handshake is complete.
        let request = self.request.to_bytes();
        tls.writer()
            .write_all(&request)
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let offered = self.request.algorithms.clone();
        Ok(NtsKeExchangeInProgress {
            tls,
            offered,
            uses_standard_exporter: self.uses_standard_exporter,
            response: Vec::new(),
        })
    }

    /// Runs an exchange with the server at `address`, whose certificate must be valid for the name
    /// `target`, over a connection of its own. Blocks until it is complete or `timeout` has passed.
    pub fn exchange_keys(
        &self,
        target: &str,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<SessionMaterial, NtsKeError> {
        let deadline = Instant::now() + timeout;
        let stream_error = |phase| {
            move |error: io::Error| match error.kind() {
                ErrorKind::TimedOut => NtsKeError::TimedOut { address, phase },
                _ => NtsKeError::Connection { address, phase, error },
            }
        };
        let mut exchange = self.begin(target)?;
        let connected = TcpStream::connect_timeout(&address, timeout);
        let mut stream = connected.map_err(stream_error(NtsKeExchangePhase::Connecting))?;
        loop {
            let (phase, left) =
                (exchange.phase(), deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(NtsKeError::TimedOut { address, phase });
            }
            stream.set_read_timeout(Some(left)).map_err(stream_error(phase))?;
            stream.set_write_timeout(Some(left)).map_err(stream_error(phase))?;
            match exchange.advance(&mut stream) {
                Ok(NtsKeExchangeStatus::Done(established)) => {
                    // Without cork, the FIN is sent in a segment of its own.
                    let _ = set_cork(&stream);
                    exchange.close(&mut stream);
                    return Ok(*established);
                }
                Ok(NtsKeExchangeStatus::Incomplete { .. }) => {}
                Err(NtsKeError::StreamFailed(error)) => {
                    return Err(stream_error(exchange.phase())(error));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for NtsKeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NtsKeClient").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Progress of an exchange.
#[derive(Debug)]
pub enum NtsKeExchangeStatus {
    /// The exchange continues when the stream is readable or, if `wants_write` is true, writable.
    Incomplete {
        /// True if data is waiting to be written.
        wants_write: bool,
    },
    /// The exchange is complete. [`NtsKeExchangeInProgress::close`] informs the server; then the
    /// connection can be closed.
    Done(Box<SessionMaterial>),
}

/// One exchange in progress.
pub struct NtsKeExchangeInProgress {
    tls: ClientConnection,
    offered: Vec<u16>,
    uses_standard_exporter: bool,
    response: Vec<u8>,
}

impl fmt::Debug for NtsKeExchangeInProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NtsKeExchangeInProgress")
            .field("offered", &self.offered)
            .finish_non_exhaustive()
    }
}

impl NtsKeExchangeInProgress {
    /// Writes pending data, reads once, and processes the received data. A stream that would block,
    /// or whose own timeout expires, is not an error.
    ///
    /// # Errors
    ///
    /// [`NtsKeError::StreamFailed`] if the stream fails; all other errors are caused by the server.
    pub fn advance(
        &mut self,
        stream: &mut (impl Read + Write),
    ) -> Result<NtsKeExchangeStatus, NtsKeError> {
        self.write(stream)?;
        match self.tls.read_tls(stream) {
            Ok(0) => return Err(NtsKeError::ClosedEarly(self.phase())),
            Ok(_) => {}
            Err(error) if is_retryable(&error) => return Ok(self.incomplete()),
            Err(error) => return Err(NtsKeError::StreamFailed(error)),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the TLS alert; the server may have closed the connection already.
            let _ = self.write(stream);
            return Err(error.into());
        }
        if !self.tls.is_handshaking() {
            if self.tls.alpn_protocol() != Some(ALPN) {
                return Err(NtsKeError::NotNtsKe);
            }
            if let Some(length) = self.read_response()? {
                return self.finish(length).map(|done| NtsKeExchangeStatus::Done(Box::new(done)));
            }
        }
        self.write(stream)?;
        Ok(self.incomplete())
    }

    /// Sends the alert `close_notify` (RFC 8446, section 6.1). Write errors are ignored.
    pub fn close(mut self, stream: &mut impl Write) {
        self.tls.send_close_notify();
        let _ = self.write(stream);
    }

    /// Returns the phase that the exchange is in.
    fn phase(&self) -> NtsKeExchangePhase {
        match (self.tls.is_handshaking(), self.response.is_empty()) {
            (true, _) => NtsKeExchangePhase::Handshake,
            (false, true) => NtsKeExchangePhase::Response,
            (false, false) => NtsKeExchangePhase::PartialResponse,
        }
    }

    fn incomplete(&self) -> NtsKeExchangeStatus {
        NtsKeExchangeStatus::Incomplete { wants_write: self.tls.wants_write() }
    }

    fn write(&mut self, stream: &mut impl Write) -> Result<(), NtsKeError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(stream) {
                Ok(_) => {}
                Err(error) if is_retryable(&error) => break,
                Err(error) => return Err(NtsKeError::StreamFailed(error)),
            }
        }
        Ok(())
    }

    /// Reads the available part of the response; returns its length once it is complete.
    fn read_response(&mut self) -> Result<Option<usize>, NtsKeError> {
        let room = (RESPONSE_LEN_MAX + 1).saturating_sub(self.response.len());
        let ended = match self.tls.reader().take(room as u64).read_to_end(&mut self.response) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => return Err(NtsKeError::ClosedEarly(self.phase())),
        };
        match message_len(&self.response) {
            Some(length) if length <= RESPONSE_LEN_MAX => Ok(Some(length)),
            _ if self.response.len() > RESPONSE_LEN_MAX => Err(NtsKeError::TooLong),
            _ if ended => Err(NtsKeError::ClosedEarly(self.phase())),
            _ => Ok(None),
        }
    }

    fn finish(&self, length: usize) -> Result<SessionMaterial, NtsKeError> {
        let grant = match NtsKeResponse::parse(&self.response[..length])? {
            NtsKeResponse::Negotiated(grant) if self.offered.contains(&grant.algorithm) => grant,
            NtsKeResponse::Negotiated(grant) => {
                return Err(NtsKeError::NotOffered(grant.algorithm));
            }
            NtsKeResponse::NothingInCommon(NegotiationFailure::Algorithm) => {
                return Err(NtsKeError::NoAlgorithm);
            }
            NtsKeResponse::NothingInCommon(NegotiationFailure::Protocol) => {
                return Err(NtsKeError::NoProtocol);
            }
            NtsKeResponse::Error(code) => return Err(NtsKeError::Refused { code }),
        };
        let NegotiatedParameters { algorithm, exact_exporter, server, port, cookies } = grant;
        let uncertain =
            algorithm == AES_128_GCM_SIV && !exact_exporter && !self.uses_standard_exporter;
        // A server that does not indicate its export is assumed to be chrony 4.4 to 4.6.
        let context = if uncertain { AES_SIV_CMAC_256 } else { algorithm };
        let keys = NtsKeys::export(&self.tls, NegotiatedAlgorithm { algorithm, context })?;
        let (c2s, s2c, keys_uncertain) = (keys.c2s, keys.s2c, uncertain);
        Ok(SessionMaterial { algorithm, c2s, s2c, cookies, server, port, keys_uncertain })
    }
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
